"""docs/report.schema.json, which harness.parse_report() holds every report against; real ones of every command's failures.

The schema knows every field: one that it does not name fails, so it cannot fall behind the program.
"""
import copy
import json
import operator

from harness import SCHEMA, VALIDATOR, SmallTest, parse_report, save, small
from help_text import ExampleFolder, commands


class SchemaTest(SmallTest):
    def setUp(self):
        super().setUp()
        want = self.problem.expected()
        save(self.folder / "dw.npy", want)
        save(self.folder / "wrong.npy", want + 1)
        self.base = ["-i", "x.npy", "-g", "dy.npy", *self.problem.flags()]

    def report(self, *args, status=None, **more):
        """The report of a run in a file, and what the run says besides."""
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
        return report


class Schema(SchemaTest):
    def test_it_knows_every_command(self):
        self.assertEqual(set(SCHEMA["properties"]["command"]["enum"]),
                         {"compute", *(name for name in commands() if name and self.has_report(name))})

    def has_report(self, name):
        return "\n  --json" in self.run_here(name, "--help").out

    def test_every_object_is_closed(self):
        # Else a field could be added without the schema noticing.
        VALIDATOR.check_schema(SCHEMA)
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
        for path in (["schema"], ["tool", "blas", "core"], ["attrs", "pads"], ["tensors", "input", "shape"],
                     ["timing_ms", "convert"], ["compare", "verdict"]):
            refused(operator.delitem, path)


class Reports(SchemaTest):
    """Fields that no other test asks for; every report that one reads is held against the schema."""

    def test_compute(self):
        for extra in (["--list-algorithms"], ["--backend", "reference"], ["--accumulate"]):
            self.report(*self.problem.args(), *extra, status=0)
        self.report("--list-algorithms", status=0)
        empty = small("conv2d", n=0)
        empty.save(self.folder)
        self.report(*empty.args(), status=0)
        self.report(*empty.args("1.npz"), "--batch-range", "1/1", "--dry-run", status=0)

    def test_verify(self):
        for extra, status in (([], 0), (["--golden", "dw.npy"], 0), (["--golden", "wrong.npy", "--result", "dw.npy"], 1),
                              (["--dry-run"], 0), (["-o", "new.npy"], 0), (["--criterion", "bound"], 0),
                              (["--result", "wrong.npy", "--rtol", "1e9"], 0),
                              (["--sample", 3, "--result", "wrong.npy"], 1)):
            self.report("verify", *self.base, *extra, status=status)

    def test_batch(self):
        job = self.problem.job()
        lines = [{**job, "output": "o.npy"}, {**job, "result": "wrong.npy"},
                 {**job, "golden": "dw.npy"}, {**job, "input": "none.npy", "output": "p.npy"}]
        self.write("j.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        for statuses in (["ok", "mismatch", "match", "error"], ["skipped", "mismatch", "skipped", "error"]):
            report = self.report("batch", "j.jsonl", "--keep-going", "--resume", status=3)
            self.assertEqual([one["status"] for one in report["jobs"]], statuses)
        self.write("j.jsonl", json.dumps(lines[0]) + '\n{"op": 3}\n')
        report = self.report("batch", "j.jsonl", status=3)
        self.assertEqual([one["status"] for one in report["jobs"]], ["not run", "error"])

    def test_streams(self):
        with (self.folder / "x.npy").open("rb") as stdin:
            report = self.report("-i", "-", *self.base[2:], "-o", "-", stdin=stdin, status=0)
        self.assertIsNone(report["tensors"]["input"]["hash"])

    def test_info(self):
        self.report("info", "--peaks", "-t", 1, status=0)


class Failures(SchemaTest):
    def test_each_status(self):
        for args, status in ((["-s", "0"], 3), (["-i", "none.npy"], 3), (["-p", "full"], 2),
                             (["--frobnicate"], 2), (["--backend", "cuda", "--device", "4095"], 4),
                             (["--memory-limit", "1KiB"], 5), (["-o", "/dev/full"], 5)):
            self.report(*self.base, "-o", "new.npy", *args, status=status)
            if "/dev/full" not in args:
                self.report("verify", *self.base, *args, status=status)
        for words in (["compare", "none.npy", "dw.npy"], ["reduce", "none.npz", "-o", "sum.npy"],
                      ["batch", "none.jsonl"], ["inspect", "x.npy", "none.npy"]):
            self.report(*words, status=3)
        self.report("generate", "conv2d", "-k", 3, "-o", "made", status=2)

    def test_each_command(self):
        for name in commands():
            if name and not Schema.has_report(self, name):
                continue
            command = [name] if name else []
            for args in (["--frobnicate"], ["--color=purple"], ["--color"], ["-o"],
                         ["one", "two", "three", "four", "five"]):
                with self.subTest(command=name, args=args):
                    result = self.run_here(*command, "--json", *args)
                    shown = parse_report(result.out)
                    self.assertIn(shown["error"]["message"], result.err)
                    for report in (shown, self.report(*command, *args, status=result.status)):
                        self.assertGreaterEqual(report["exit_code"], 2)
                        self.assertEqual((report["status"], report["command"]),
                                         ("error", name or "compute"))


class Examples(SchemaTest):
    def test_those_of_the_help(self):
        """Every example of every --help that can write a report."""
        folder = ExampleFolder(self.folder)
        reports = 0
        quick = " --no-peaks --min-time 0 --repeat 1"
        for name in commands():
            lines = folder.examples(name)
            # Some example is of the command itself.
            self.assertTrue(any(f"{line} ".startswith(f"convgrad {name} ".replace("  ", " ")) for line in lines), lines)
            for line in lines:
                line += quick if line.startswith("convgrad bench ") else ""
                with self.subTest(line):
                    words = line.split()
                    no_report = name and not Schema.has_report(self, name) or "--help" in words
                    at_end = not no_report and " | " not in line and " >" not in line and "--json" not in line
                    done = folder.run(line + " --json=report.json" if at_end else line)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    if at_end:
                        parse_report((self.folder / "report.json").read_text())
                        reports += 1
                    elif "--json" in words and not no_report:
                        parse_report(done.stdout)
                        reports += 1
        self.assertGreater(reports, 8)
