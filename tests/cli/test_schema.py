"""Real reports of every command, failures too, against docs/report.schema.json.

The schema knows every field: one that it does not name fails here, so it cannot fall behind the program.
"""
import copy
import json
import operator

import jsonschema
import numpy as np
from harness import ROOT, CliTest, ExampleFolder, commands, parse_report, raw_npy, save, small
from test_archives import safetensors_bytes

SCHEMA = json.loads((ROOT / "docs/report.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


class SchemaTest(CliTest):
    def setUp(self):
        super().setUp()
        self.use_small()
        want = self.problem.expected()
        for name, values in (("dw.npy", want), ("wrong.npy", want + 1), ("nan.npy", want * float("nan")),
                             ("flipped.npy", want[::-1]), ("short.npy", want[1:])):
            save(self.folder / name, values)
        self.write("i.npy", raw_npy((2,), "'<i4'"))
        self.base = ["-i", "x.npy", "-g", "dy.npy", *self.problem.flags()]

    def assert_valid(self, report, what=""):
        errors = sorted(VALIDATOR.iter_errors(report), key=lambda error: list(error.path))
        self.assertEqual([], [f"{list(error.path)}: {error.message}" for error in errors], what)

    def report(self, *args, status=None, **more):
        """The report of a run, checked."""
        result = self.run_here(*args, "--json=report.json", **more)
        if status is not None:
            self.assertEqual(result.status, status, str(result))
        path = self.folder / "report.json"
        self.assertTrue(path.exists(), str(result))
        report = parse_report(path.read_text())
        path.unlink()
        self.assertEqual(report["exit_code"], result.status, str(result))
        if report["status"] == "error" and report["command"] != "batch":   # which has a line for each job
            self.assertIn(f"convgrad: error: {report['error']['message']}\n", result.err)
            self.assertEqual(report["error"]["code"], result.status)
        self.assert_valid(report, str(result))
        return report


class Schema(SchemaTest):
    def test_it_is_one(self):
        VALIDATOR.check_schema(SCHEMA)
        self.assertEqual(SCHEMA["properties"]["schema"]["const"], "convgrad.report/1")

    def test_it_knows_every_command(self):
        # completion prints a script and has no report.
        self.assertEqual(set(SCHEMA["properties"]["command"]["enum"]),
                         {"compute", *(name for name in commands() if name and self.has_report(name))})

    def has_report(self, name):
        return "\n  --json" in self.run_here(name, "--help").out

    def test_every_object_is_closed(self):
        # Else a field could be added without the schema noticing.
        open_ones = {"timing_ms", "perf", "compare"}  # closed by command, further up in the schema
        def walk(node, path):
            if isinstance(node, dict):
                if node.get("type") == "object" and path[-1] not in open_ones:
                    self.assertIs(node.get("additionalProperties"), False, path)
                for key, value in node.items():
                    walk(value, [*path, key])
            elif isinstance(node, list):
                for value in node:
                    walk(value, path)
        walk(SCHEMA, ["report"])

    def test_it_refuses_what_is_wrong(self):
        report = self.report("verify", *self.base, "-a", "im2col_gemm", status=0)
        def refused(change, path):
            changed = copy.deepcopy(report)
            part = changed
            for name in path[:-1]:
                part = part[name]
            change(part, path[-1])
            self.assertFalse(VALIDATOR.is_valid(changed), path)
        for path in (["schema"], ["command"], ["status"], ["exit_code"], ["tool"], ["compare"],
                     ["tool", "git"], ["tool", "blas", "core"], ["attrs", "pads"],
                     ["tensors", "input", "shape"], ["execution", "threads"], ["work", "flops"],
                     ["timing_ms", "convert"], ["perf", "gflops"], ["compare", "verdict"]):
            refused(operator.delitem, path)
        for value, *path in (("convgrad.report/2", "schema"), ("convert", "command"), (1, "exit_code"),
                             ("mismatch", "status"), (-1, "tensors", "input", "shape", 0),
                             ("int8", "attrs", "dtype"), ("fast", "perf", "gflops"),
                             (1, "something"), ({"code": 2, "message": "x", "hint": None}, "error"),
                             ({}, "compare"), ([[1, 1, 1]], "attrs", "pads")):
            with self.subTest(value):
                refused(lambda part, name, value=value: operator.setitem(part, name, value), path)


class Reports(SchemaTest):
    def test_compute(self):
        for op in ("conv2d", "depthwise", "conv3d"):
            for dtype in ("float16", "bfloat16", "float32", "float64"):
                problem = small(op)
                problem.save(self.folder, dtype)
                report = self.report(*problem.args(), status=0)
                self.assertEqual((report["command"], report["op"]), ("compute", op))
        for extra in (["--dry-run"], ["--list-algorithms"], ["--backend", "reference"],
                      ["--accumulate"], ["--filter-format", "OIDHW"]):
            self.report(*problem.args(), *extra, status=0)
        self.report("--list-algorithms", status=0)
        save(self.folder / "x.npy", small("conv2d", n=0).x)
        save(self.folder / "dy.npy", small("conv2d", n=0).dy)
        self.report(*small("conv2d", n=0).args(), status=0)

    def test_verify(self):
        for extra, status in (([], 0), (["--result", "dw.npy"], 0), (["--golden", "dw.npy"], 0),
                              (["--result", "wrong.npy"], 1), (["--result", "nan.npy"], 1),
                              (["--golden", "wrong.npy", "--bitwise"], 1), (["--dry-run"], 0),
                              (["--result", "wrong.npy", "--rtol", "1e9"], 0),
                              (["--result", "wrong.npy", "--max-ulp", 3], 1), (["-o", "new.npy"], 0),
                              (["--sample", 3], 0), (["--sample", 3, "--result", "wrong.npy"], 1),
                              (["--criterion", "bound"], 0),
                              (["--show", 3, "--result", "dw.npy", "--result", "wrong.npy"], 1),
                              (["--result", "dw.npy", "--result", "dw.npy"], 0),
                              (["--golden", "wrong.npy", "--result", "dw.npy"], 1),
                              (["--result", "flipped.npy"], 1),
                              (["--result", "flipped.npy", "--diagnosis", "off"], 1),
                              (["--golden", "flipped.npy"], 1),
                              (["--golden", "g.npy", "--update-golden"], 0),
                              (["--golden", "g.npy", "--update-golden"], 0)):
            report = self.report("verify", *self.base, *extra, status=status)
        self.assertEqual(report["compare"]["golden"]["status"], "unchanged")

    def test_compare(self):
        for got, other, extra, status in (("dw.npy", "dw.npy", [], 0), ("wrong.npy", "dw.npy", [], 1),
                                          ("nan.npy", "nan.npy", ["--no-equal-nan"], 1),
                                          ("short.npy", "dw.npy", [], 1), ("i.npy", "dw.npy", [], 3),
                                          ("i.npy", "i.npy", [], 0),
                                          ("none.npy", "dw.npy", [], 3),
                                          ("wrong.npy", "dw.npy", ["--max-ulp", 1], 1)):
            self.report("compare", got, other, *extra, status=status)

    def test_generate(self):
        for extra in ([], ["--dist", "normal", "--nonfinite"], ["--dtype", "bfloat16"]):
            report = self.report("generate", "conv2d", "--shape", "2,6,6,2", "-k", 3,
                                 "--out-channels", 3, "-p", "same", *extra, "-o", "made", "--clobber", status=0)
            self.assertEqual(set(report["tensors"]), {"input", "out_backprop", "gradient"})
        self.report("generate", "conv2d", "-k", 3, "-o", "made", status=2)

    def test_batch(self):
        job = self.problem.job()
        lines = [{**job, "output": "o.npy"}, {**job, "result": "wrong.npy"},
                 {**job, "golden": "dw.npy"}, {**job, "input": "none.npy", "output": "p.npy"}]
        self.write("j.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        report = self.report("batch", "j.jsonl", "--keep-going", status=3)
        self.assertEqual([one["status"] for one in report["jobs"]],
                         ["ok", "mismatch", "match", "error"])
        self.report("batch", "j.jsonl", "--keep-going", "--resume", status=3)
        report = self.report("batch", "j.jsonl", "--keep-going", "--resume", status=3)
        self.assertEqual(report["jobs"][0]["status"], "skipped")
        self.report("batch", "j.jsonl", status=1)
        self.write("j.jsonl", json.dumps(lines[0]) + '\n{"op": 3}\n')
        report = self.report("batch", "j.jsonl", status=3)
        self.assertEqual([one["status"] for one in report["jobs"]], ["not run", "error"])
        self.report("batch", "none.jsonl", status=3)
        self.write("j.jsonl", json.dumps(lines[0]) + "\n" + json.dumps(lines[1]) + "\n")
        report = self.report("batch", "j.jsonl", "--shard", "2/2", "--junit", "2.xml", status=1)
        self.assertEqual(report["batch"]["shard"], "2/2")

    def test_parts(self):
        for k in (1, 2):
            report = self.report(*self.base, "--batch-range", f"{k}/2", "-o", f"{k}.npz", status=0)
            self.assertEqual(report["part"]["of_images"], 2)
        self.report(*self.base, "--batch-range", "1/2", "--dry-run", status=0)
        self.report("reduce", "1.npz", "2.npz", "-o", "sum.npy", status=0)
        self.report("reduce", "2.npz", "-o", "sum.npy", status=3)

    def test_a_gradient_without_elements(self):
        for name, shape in (("x0.npy", (2, 4, 4, 0)), ("dy0.npy", (2, 4, 4, 3))):
            save(self.folder / name, np.zeros(shape))
        self.report("verify", "--op", "conv2d", "-i", "x0.npy", "-g", "dy0.npy", "-k", "1", "-p", "valid", status=0)

    def test_streams_and_archives(self):
        np.savez(self.folder / "all.npz", x=self.problem.x.astype("f4"), i=[1, 2])
        self.report("inspect", "all.npz", status=0)
        done = self.folder / "done.json"
        with (self.folder / "x.npy").open("rb") as stdin:
            result = self.run_here("-i", "-", *self.base[2:], "-o", "-", f"--json={done.name}",
                                   stdin=stdin)
        self.assertEqual(result.status, 0, str(result))
        report = parse_report(done.read_text())
        self.assert_valid(report)
        self.assertIsNone(report["tensors"]["input"]["hash"])

    def test_bench(self):
        fast = ["--min-time", 0, "--repeat", 2, "-t", "1"]
        self.report("bench", *self.base, *fast, "--no-peaks", status=0)
        self.report("bench", *self.base, *fast, "--algorithm", "auto,direct", "--no-peaks", status=0)
        self.report("bench", "--op", "conv2d", "--input-shape", "1,8,8,2", "--filter-sizes",
                    "3,3,2,4", "-p", "same", *fast, status=0)
        report = self.report("bench", "--problem", "ic3ih5oc4kh3", *fast, "--no-peaks", "--tag", "host=ci-1", "--tag",
                             "note=a=b, c", status=0)
        self.assertEqual(report["tags"], {"host": "ci-1", "note": "a=b, c"})
        self.report("bench", "--list-suites", status=0)

    def test_inspect_and_info(self):
        save(self.folder / "odd.npy", [1.5, float("nan"), float("inf")])
        save(self.folder / "empty.npy", [])
        self.write("x.bin", bytes(96))
        self.write("t.safetensors", safetensors_bytes({"x": ("float32", np.zeros(2))}))
        self.report("inspect", "x.npy", "odd.npy", "empty.npy", "x.bin:float32[2,12]", "t.safetensors:x", status=0)
        self.report("inspect", "x.npy", "i.npy", "none.npy", status=3)
        self.report("info", status=0)
        self.report("info", "--peaks", "-t", 1, status=0)


class Failures(SchemaTest):
    def test_each_status(self):
        for args, status in ((["-s", "0"], 3), (["-i", "none.npy"], 3), (["-p", "full"], 2),
                             (["--frobnicate"], 2), (["--backend", "cuda", "--device", "4095"], 4),
                             (["--memory-limit", "1KiB"], 5), (["-o", "/dev/full"], 5)):
            self.report(*self.base, "-o", "new.npy", *args, status=status)
            if "/dev/full" not in args:
                self.report("verify", *self.base, *args, status=status)

    def test_each_command(self):
        for name in commands():
            if name and not Schema.has_report(self, name):
                continue
            command = [name] if name else []
            for args in (["--frobnicate"], ["--color=purple"], ["--color"],
                         ["one", "two", "three", "four", "five"]):
                with self.subTest(command=name, args=args):
                    report = self.report(*command, *args)
                    self.assertGreaterEqual(report["exit_code"], 2)
                    self.assertEqual((report["status"], report["command"]),
                                     ("error", name or "compute"))


class Examples(SchemaTest):
    def test_those_of_the_help(self):
        """Every example of every --help that can write a report."""
        folder = ExampleFolder(self.folder)
        reports = 0
        quick = " --no-peaks --min-time 0 --repeat 1"   # test_options.py runs them as they are
        for name in commands():
            for line in folder.examples(name):
                line += quick if line.startswith("convgrad bench ") else ""
                with self.subTest(line):
                    words = line.split()
                    if name and not Schema.has_report(self, name) or "--help" in words:
                        folder.run(line)
                        continue
                    at_end = " | " not in line and " >" not in line and "--json" not in line
                    done = folder.run(line + " --json=report.json" if at_end else line)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    if at_end:
                        self.assert_valid(parse_report((self.folder / "report.json").read_text()))
                        reports += 1
                    elif "--json" in words:
                        self.assert_valid(parse_report(done.stdout))
                        reports += 1
        self.assertGreater(reports, 8)
