"""batch: manifests, jobs at a time, --resume, JUnit, signals, and the golden files of testdata."""
import hashlib
import json
import os
import random
import re
import resource
import shutil
import time
import xml.etree.ElementTree

import numpy as np
from harness import (ERROR, OPS, ROOT, SANITIZED, THREAD_SANITIZED, CliTest, Problem, at_a_terminal, npy_bytes,
                     parse_report, save, small, start, wait_until)

FORMATS = {"conv2d": ("HWIO", "OIHW", "OHWI"), "depthwise": ("HWIO", "OIHW", "OHWI"),
           "conv3d": ("DHWIO", "ODHWI", "OIDHW")}


class BatchTest(CliTest):
    def setUp(self):
        super().setUp()
        self.use_small()

    def job(self, **more):
        """The fields of self.problem, with an output if nothing else is asked for."""
        if not {"output", "golden", "result", "command"} & set(more):
            more["output"] = "dw.npy"
        return {k: v for k, v in self.problem.job(**more).items() if v is not None}

    def manifest(self, *jobs, name="jobs.jsonl"):
        text = "".join(job if isinstance(job, str) else json.dumps(job) + "\n" for job in jobs)
        self.write(name, text)
        return name

    def batch(self, *args, status=0, **more):
        result = self.run_here("batch", *args, **more)
        self.assertEqual(result.status, status, str(result))
        return result

    def words(self, result):
        """{name: first word} of the jobs' lines, and the summary."""
        lines = result.out.splitlines()
        split = [re.match(r"(not run|\w+) +(\S+)", line) for line in lines[:-1]]
        return {m.group(2): m.group(1) for m in split}, lines[-1]

    def report(self, *args, **more):
        return parse_report(self.batch(*args, "--json", **more).out)


class Manifests(BatchTest):
    def test_compute_and_verify(self):
        save(self.folder / "golden.npy", self.problem.expected())
        name = self.manifest(self.job(name="a"), self.job(name="b", result="golden.npy"), "\n",
                             self.job(name="c", golden="golden.npy", bitwise=True),
                             self.job(name="d", command="verify", output="own.npy"))
        result = self.batch(name)
        words, summary = self.words(result)
        self.assertEqual(words, {"a": "ok", "b": "match", "c": "match", "d": "match"})
        self.assertRegex(summary, r"^4 jobs: 1 ok, 3 match; \d+\.\d+ s$")
        self.assertEqual(result.err, "")
        for output in ("dw.npy", "own.npy"):
            self.assertEqual(self.read(output), self.want)

    def test_spellings(self):
        """Hyphens, strings, lists in lists, and values that stand for nothing given."""
        pads = [[b, max(0, (o - 1) * s + (t - 1) * d + 1 - i - b)] for b, o, s, t, d, i in
                zip(*(getattr(self.problem, name) for name in
                      ("before", "out", "strides", "taps", "dilations", "size")))]
        for more in ({"strides": "2,1"}, {"strides": [1, 2, 1, 1]}, {"kernel": "3 2"},
                     {"kernel": "[3,2]"}, {"kernel": [3, 2], "groups": 2}, {"kernel": [[3], 2]},
                     {"explicit_paddings": []}, {"filter_like": ""}, {"filter_sizes": None}, {"no_clobber": False},
                     {"padding": "explicit", "explicit_paddings": pads},
                     {"padding": None, "explicit_paddings": sum(pads, [])},
                     {"kernel": None, "filter-sizes": "3,2,2,6"},
                     {"op": "Conv2DBackpropFilter"}, {"notes": {"why": [1, {"a": None}]}}):
            with self.subTest(more):
                (self.folder / "dw.npy").unlink(missing_ok=True)
                self.batch(self.manifest({**self.job(), **more}))
                self.assertEqual(self.read("dw.npy"), self.want)

    def test_standard_input(self):
        for text in (json.dumps(self.job()) + "\n", json.dumps(self.job()),
                     "\n \n" + json.dumps(self.job()) + "\r\n\r\n",
                     "\ufeff" + json.dumps(self.job()) + "\n", json.dumps([self.job()], indent=2)):
            (self.folder / "dw.npy").unlink(missing_ok=True)
            with self.subTest(text[:20]):
                self.batch("-", stdin=text.encode())
                self.assertEqual(self.read("dw.npy"), self.want)

    def test_lists_that_are_no_json_lines(self):
        jobs = [self.job(), self.job(output="b.npy")]
        for text in (json.dumps(jobs), "".join(json.dumps(job) + " ,\r\n" for job in jobs)):
            for name in ("dw.npy", "b.npy"):
                (self.folder / name).unlink(missing_ok=True)
            self.write("jobs.json", text)
            self.batch("jobs.json")
            self.assertEqual((self.read("dw.npy"), self.read("b.npy")), (self.want, self.want))
        self.write("jobs.json", json.dumps(jobs[0], indent=2) + "\n" + json.dumps(jobs[1], indent=2))
        self.assert_one_error(self.batch("jobs.json", status=3), 3, "line 1: an object goes on over more lines, expected "
                              "JSON Lines, one object a line; jq -c . FILE makes it so")

    def test_the_line_of_a_report_is_a_job(self):
        """What docs/batch.md says: jq '{problem: .attrs.line, input: ..., out_backprop: ..., output: ...}'."""
        for op in OPS:
            self.problem = small(op)
            self.problem.save(self.folder)
            for filter_format in FORMATS[op]:
                with self.subTest(op=op, filter_format=filter_format):
                    first = self.run_here(*self.problem.args("a.npy"), "--filter-format",
                                          filter_format, "--json")
                    report = parse_report(first.out)
                    line = report["attrs"]["line"]
                    fields = {"problem": line, "input": report["tensors"]["input"]["file"],
                              "out_backprop": report["tensors"]["out_backprop"]["file"],
                              "output": "b.npy", "dtype": "float32"}
                    self.batch(self.manifest(fields))
                    self.assertEqual(self.read("a.npy"), self.read("b.npy"))
                    # And it is checked against the tensors.
                    for field, wrong in (("dtype", "float64"), ("problem", line.replace(" n2 ", " n3 ")),
                                         ("problem", line.replace("float32", "float64"))):
                        result = self.batch(self.manifest({**fields, field: wrong}), status=3)
                        self.assertIn(f"line 1: {field}", result.err)
                        self.assertEqual(result.err.count("\n"), 1)

    def test_hashes(self):
        of = {name: hashlib.sha256(self.read(name)).hexdigest() for name in ("x.npy", "dy.npy")}
        self.batch(self.manifest(self.job(input_sha256=of["x.npy"],
                                          out_backprop_sha256=of["dy.npy"].upper())))
        (self.folder / "dw.npy").unlink()
        result = self.batch(self.manifest(self.job(input_sha256=of["dy.npy"])), status=3)
        for part in ("line 1: input (x.npy)", of["x.npy"], of["dy.npy"], "expected"):
            self.assertIn(part, result.err)
        self.assertNotIn("dw.npy", self.listing())

    def test_archives(self):
        np.savez(self.folder / "all.npz", x=self.problem.x.astype(np.float32),
                 dy=self.problem.dy.astype(np.float32),
                 dw=self.problem.expected().astype(np.float32))
        for name in ("x.npy", "dy.npy"):
            (self.folder / name).unlink()
        sha = hashlib.sha256(self.read("all.npz")).hexdigest()
        (self.folder / "deep").mkdir()
        name = self.manifest(
            self.job(name="a", input="../all.npz:x", out_backprop="../all.npz:dy",
                     golden="../all.npz:dw", input_sha256=sha, golden_sha256=sha),
            self.job(name="b", input="../all.npz:x", out_backprop="../all.npz:dy"),
            name="deep/jobs.jsonl")
        self.assertIn("1 ok, 1 match", self.batch(name, "--resume").out)
        self.assertEqual(self.read("deep/dw.npy"), self.want)
        self.assertIn("2 skipped", self.batch(name, "--resume").out)
        np.savez(self.folder / "all.npz", x=self.problem.x.astype(np.float32),
                 dy=self.problem.dy.astype(np.float32) + 1,
                 dw=self.problem.expected().astype(np.float32))
        result = self.batch(name, "--resume", "--keep-going", status=3)
        self.assertIn("line 1 (a): input (deep/../all.npz:x): is sha256:", result.err)
        self.assertIn("1 ok, 1 error", result.out)
        self.assertNotEqual(self.read("deep/dw.npy"), self.want)
        # An archive is a file of the job, which nothing may replace.
        self.write("jobs.jsonl", (self.folder / name).read_text().replace("../", ""))
        for more in ("--junit", "--state"):
            self.assert_one_error(self.run_here("batch", "jobs.jsonl", more, "all.npz"), 2,
                                  f"{more}: all.npz:x is the input of")
        result = self.run_here("batch", self.manifest(self.job(input="all.npz:x",
                                                               out_backprop="all.npz:dy",
                                                               output="all.npz")))
        self.assert_one_error(result, 3, "output: all.npz is the job's input too")

    def test_what_verify_can_do_besides(self):
        wrong = self.problem.expected()[::-1, ::-1]
        save(self.folder / "flipped.npy", wrong)
        (self.folder / "deep").mkdir()
        name = self.manifest(
            self.job(name="a", result="../flipped.npy", input="../x.npy",
                     out_backprop="../dy.npy"),
            self.job(name="b", result="../flipped.npy", input="../x.npy",
                     out_backprop="../dy.npy", sample=20, diagnosis="off"),
            self.job(name="c", command="verify", input="../x.npy", out_backprop="../dy.npy",
                     sample=3, seed=2), name="deep/jobs.jsonl")
        result = self.batch(name, "--keep-going", status=1)
        self.assertRegex(result.out, r"mismatch  a  the filter is flipped in h and w \(\d+ of 72 elements fail\); ")
        self.assertRegex(result.out, r"mismatch  b  \S+ against the float64 reference, \d+ of 20 elements fail \(90 %\)\n")
        self.assertIn("match     c  ", result.out)

    def test_matches_that_test_nothing(self):
        save(self.folder / "zeros.npy", self.problem.dy * 0)
        job = self.job(name="z", command="verify", out_backprop="zeros.npy")
        name = self.manifest(job, self.job(name="ok", command="verify"))
        result = self.batch(name, "--junit", "j.xml", "--json=r.json")
        self.assertRegex(result.out, r"match     z  \S+ ms; warning: nothing was tested: "
                         r"dy is all zeros\nmatch     ok  \S+ ms\n")
        self.assertIn("<system-err>warning: nothing was tested: dy is all zeros</system-err>",
                      (self.folder / "j.xml").read_text())
        jobs = json.loads((self.folder / "r.json").read_text())["jobs"]
        self.assertEqual([job["compare"]["vacuous"] for job in jobs], [True, False])
        expected = "mismatch  z  nothing was tested: dy is all zeros; "
        self.assertIn(expected, self.batch(name, "--fail-vacuous", "--keep-going", status=1).out)
        strict = self.manifest(self.job(name="z", command="verify", out_backprop="zeros.npy",
                                        fail_vacuous=True), name="strict.jsonl")
        self.assertIn(expected, self.batch(strict, status=1).out)

    def test_runs_and_differences(self):
        for name in ("a.npy", "b.npy"):
            save(self.folder / name, self.problem.expected())
        both = self.job(name="runs", result=["a.npy", "b.npy"], save_diff="d.npy")
        result = self.batch(self.manifest(both), "--json=r.json")
        self.assertIn("match     runs", result.out)
        job = json.loads((self.folder / "r.json").read_text())["jobs"][0]
        self.assertEqual(job["compare"]["runs"]["verdict"], "equal")
        self.assertIn("result_2", job["tensors"])
        self.assertTrue((self.folder / "d.npy").exists())
        result = self.batch(self.manifest(both, self.job(name="other", result="a.npy",
                                                         save_diff="d.npy")), status=3)
        self.assertIn("save_diff: d.npy is that of line 1 too", result.err)

    def test_many_jobs(self):
        jobs = [self.job(name=f"j{i}", command="verify") for i in range(100 if SANITIZED else 1000)]
        self.assertIn(f"{len(jobs)} match", self.batch(self.manifest(*jobs), "-j", 2).out)

    def test_options_from_the_environment(self):
        # Those of the batch, not of its jobs.
        name = self.manifest(self.job())
        env = {"CONVGRAD_THREADS": "2", "CONVGRAD_JOBS": "2", "CONVGRAD_STRIDES": "5",
               "CONVGRAD_OUTPUT": "other.npy", "CONVGRAD_BITWISE": "1"}
        report = self.report(name, env=env)
        self.assertEqual(report["batch"]["threads"], 2)
        self.assertEqual(report["jobs"][0]["status"], "ok")
        self.assertNotIn("other.npy", self.listing())


class Malformed(BatchTest):
    LINES = (
        ('{"op": "conv2d", "inptu": "x.npy"}', "inptu: is unknown", "did you mean 'input'"),
        ('{"op": "conv2d", "Strdes": 1}', "Strdes", "did you mean 'strides'"),
        ('{"op": "conv2d"', "is not JSON at column 16"),
        ("{'op': 'conv2d'}", "is not JSON at column 2"),
        ('{"op": "conv2d",}', "is not JSON at column"),
        ('{"op": NaN}', "is not JSON at column 8"),
        ("{}", "op is missing"),
        ("[" * 100000, "nested too deeply"),
        ('{"notes": ' + "[" * 40 + "]" * 40 + "}", "nested too deeply"),
    )
    FIELDS = (
        ({"op": "conv2"}, "op: 'conv2'", "did you mean 'conv2d'"),
        ({"input": None}, "input is missing"),
        ({"out_backprop": ""}, "out_backprop is missing"),
        ({"command": "compute", "output": None}, "output is missing"),
        ({"input": "-"}, "input: -"),
        ({"output": "-"}, "output: -"),
        ({"output": "x.npy"}, "output: x.npy is the job's input"),
        ({"kernel": "3,x"}, "kernel: 'x' is not a whole number"),
        ({"kernel": 2.5}, "kernel: '2.5' is not a whole number"),
        ({"strides": [2, True]}, "strides: 'true' is not a whole number"),
        ({"strides": 10**30}, "strides: "),
        ({"kernel": {"a": 1}}, "kernel: an object, expected"),
        ({"threads": 2}, "threads: is no field of a job"),
        ({"accumulate": True}, "accumulate: is no field, since"),
        ({"golden": "x.npy", "update_golden": True}, "update_golden: is no field, since"),
        ({"rtol": 1}, "rtol: is a field of jobs that verify"),
        ({"command": "verfy"}, "command: 'verfy'", "did you mean 'verify'"),
        ({"command": "verify", "no_clobber": "maybe"}, "no_clobber: 'maybe'"),
        ({"result": "x.npy", "bitwise": 3}, "bitwise: '3', expected true or false"),
        ({"result": "x.npy", "rtol": "lots"}, "rtol: 'lots'"),
        ({"golden_sha256": "ab" * 32}, "golden_sha256: is given, but golden is not"),
        ({"input_sha256": "abc"}, "input_sha256: 'abc', expected 64 hexadecimal digits"),
        ({"input_sha256": ["a", "b"]}, "input_sha256: a list"),
        ({"name": "n" * 201}, "name: 201 bytes"),
        ({"problem": "conv2d n2 h7 w9 c4 k6 r3 s2"}, "op: given with --problem"),
        ({"--op": "conv2d"}, "__op: is unknown"),
        ({"kernel": [[[1]]]}, "kernel: lists within lists"),
        ({"op\n\x1b[31m": "conv2d"}, r"op\x0a\x1b[31m: is unknown"),
        ({"name": "a\nb\x1b", "padding": "sam"}, r"line 1 (a\x0ab\x1b): padding: 'sam'",
         "did you mean 'SAME'"),
    )

    def check(self, line, *parts, name="jobs.jsonl"):
        with self.subTest(line[:60]):
            self.write(name, line + "\n")
            result = self.run_here("batch", name, "--keep-going")
            self.assertEqual(result.status, 3, str(result))
            self.assertEqual(result.err.count("\n"), 1, str(result))
            self.assertTrue(result.err.startswith(f"{ERROR}{name}, line 1"), str(result))
            for part in parts:
                self.assertIn(part, result.err)
            self.assertLess(len(result.err), 600)
            self.assertNotRegex(result.err, r"[^\x20-\x7e\n]|exception")
            self.assertRegex(result.out, r"^1 job: 1 error; \S+ s\n$")
            self.assertEqual(self.listing(), sorted([name, "x.npy", "dy.npy"]))

    def test_lines(self):
        for line, *parts in self.LINES:
            self.check(line, *parts)

    def test_fields(self):
        for fields, *parts in self.FIELDS:
            self.check(json.dumps(self.job(**fields)), *parts)

    def test_nothing_runs_without_keep_going(self):
        name = self.manifest(self.job(), "{}\n", self.job(name="two", output="two.npy"), "[]\n")
        result = self.run_here("batch", name, "--junit", "r.xml")
        self.assertEqual((result.status, result.raw), (3, b""))
        self.assertEqual(re.findall(r"line \d+", result.err), ["line 2", "line 4"])
        self.assertNotIn("dw.npy", self.listing())
        root = xml.etree.ElementTree.parse(self.folder / "r.xml").getroot()
        self.assertEqual((root.get("tests"), root.get("errors")), ("4", "2"))

    def test_outputs_that_are_there_twice(self):
        os.symlink("dw.npy", self.folder / "link.npy")
        for second in ("dw.npy", "./dw.npy", "../" + self.folder.name + "/dw.npy", "link.npy",
                       str(self.folder / "dw.npy")):
            for first in range(2):  # before it exists, and when it does
                name = self.manifest(self.job(name="a"), self.job(name="b", output=second))
                result = self.run_here("batch", name)
                self.assert_one_error(result, 3, f"line 2: output: {second} is that of line 1 too")
                self.write("dw.npy", b"old")
            (self.folder / "dw.npy").unlink()

    def test_too_many_lines_are_summed_up(self):
        result = self.run_here("batch", self.manifest("{}\n" * 1000))
        self.assertEqual((result.status, result.raw), (3, b""))
        self.assertEqual(result.err.count("\n"), 21)
        self.assertIn("980 more lines", result.err)

    def test_no_manifest_at_all(self):
        (self.folder / "folder").mkdir()
        self.manifest("", name="empty.jsonl")
        self.manifest("\n \n\r\n", name="blank.jsonl")
        self.manifest("[ ]\n", name="none.json")
        for name, *parts in (("none.jsonl", "none.jsonl: cannot open: No such file"), ("folder", "is a folder"),
                             ("empty.jsonl", "has no job"), ("blank.jsonl", "has no job"),
                             ("none.json", "has no job"),
                             ("x.npy", "is not text")):
            with self.subTest(name):
                self.assert_one_error(self.run_here("batch", name), 3, *parts)
        self.assert_one_error(self.run_here("batch", "-", stdin=b""), 3, "standard input",
                              "has no job")


class WrongUse(BatchTest):
    def test_flags(self):
        self.problem.save(self.folder, "float32", "x2.npy", "dy2.npy")
        two = self.manifest(self.job(name="a"),
                            self.job(name="b", input="x2.npy", out_backprop="dy2.npy", output="b.npy"),
                            name="two.jsonl")
        self.write("notes.xml", "<notes/>")
        name = self.manifest(self.job(name="a"))
        for args, status, *parts in (
                ([], 2, "the manifest is missing"),
                ([name, "more.jsonl"], 2, "'more.jsonl'"),
                ([name, "--jobs", "x"], 2, "--jobs: 'x'"),
                ([name, "--jobs", "129"], 2, "from 0 to 128"),
                ([name, "--match", "("], 2, "--match: '(' is no regular expression"),
                ([name, "--match", "zzz"], 2, "none of the 1 jobs"),
                ([name, "--op", "conv2d"], 2, "--op"),
                ([name, "-a", "magic"], 2, "--algorithm: 'magic'"),
                ([name, "-b", "gpu"], 2, "--backend: 'gpu'"),
                ([name, "-b", "reference", "-a", "direct"], 2, "--algorithm: direct"),
                ([name, "--junit", "-"], 2, "--junit: -"),
                ([name, "--state", "-"], 2, "--state: -"),
                ([name, "--junit", "none/r.xml"], 3, "none/r.xml", "No such file"),
                ([name, "--state", "none/s"], 3, "none/s", "No such file"),
                ([name, "--junit", "x.npy"], 2, "--junit: x.npy is the input of", "line 1 (a)"),
                ([name, "--junit", "dw.npy"], 2, "--junit: dw.npy is the output of"),
                ([two, "--match", "b", "--junit", "x.npy"], 2, "--junit: x.npy is the input of", "line 1 (a)"),
                ([name, "--junit", "notes.xml"], 2, "--junit: notes.xml exists and is no JUnit file", "remove it"),
                ([name, "--state", "dy.npy"], 2, "--state: dy.npy is the out_backprop of"),
                ([name, "--state", name], 2, "--state: jobs.jsonl is the manifest too"),
                ([name, "--junit", "a", "--state", "a"], 2, "--junit: a is --state too"),
                ([name, "--json=x.npy"], 2, "--json: x.npy is the input of"),
                ([name, "--json=" + name], 2, "--json: jobs.jsonl is the manifest too")):
            with self.subTest(args):
                before = self.contents()
                self.assert_one_error(self.run_here("batch", *args), status, *parts)
                self.assertEqual(self.contents(), before)
        self.assert_one_error(self.run_here("batch", "-", "--resume", stdin=b"{}"), 2,
                              "--state is missing")

    def test_a_file_that_is_no_state(self):
        for text in ("", "hello\n", "{}\n", '{"schema":"other"}\n', "\x93NUMPY",
                     '{"schema":"convgrad.batch-state/1"}\n{"job":1}\n',
                     '{"schema":"convgrad.batch-state/1"}\nnull\n'):
            self.write("s", text)
            result = self.run_here("batch", self.manifest(self.job()), "--resume", "--state", "s")
            with self.subTest(text):
                self.assert_one_error(result, 3, "--state: s, line ", "remove the file")
                self.assertEqual((self.folder / "s").read_text(), text)
                self.assertNotIn("dw.npy", self.listing())


class Failures(BatchTest):
    def jobs(self):
        save(self.folder / "bad.npy", self.problem.expected() + 1)
        return {"good": self.job(name="good", output="good.npy"),
                "mismatch": self.job(name="mismatch", golden="bad.npy"),
                "missing": self.job(name="missing", input="none.npy"),
                "shape": self.job(name="shape", strides=1, output="shape.npy"),
                "algorithm": self.job(name="algorithm", algorithm="streaming",
                                      command="verify", input="big.npy", out_backprop="bigdy.npy", kernel=1, groups=1,
                                      strides=1, dilations=1),
                "tolerances": self.job(name="tolerances", golden="bad.npy", bitwise=True, rtol=1),
                "last": self.job(name="last", output="last.npy")}

    def test_the_worst_status(self):
        save(self.folder / "big.npy", np.ones((1, 2, 2, 80)))
        save(self.folder / "bigdy.npy", np.ones((1, 2, 2, 80)))
        jobs = self.jobs()
        for names, status in ((["good", "last"], 0), (["good", "mismatch", "last"], 1),
                              (["mismatch", "missing"], 3), (["shape", "mismatch"], 3),
                              (["shape", "algorithm", "mismatch"], 4), (["tolerances"], 3)):
            with self.subTest(names):
                result = self.batch(self.manifest(*(jobs[n] for n in names)), "--keep-going",
                                    status=status)
                words, _ = self.words(result)
                errors = [n for n in names if n in ("missing", "shape", "algorithm", "tolerances")]
                for name in names:
                    want = {"good": "ok", "last": "ok", "mismatch": "mismatch"}.get(name)
                    self.assertEqual(words.get(name), want)
                self.assertEqual(re.findall(r"line \d+ \((\w+)\): ", result.err), errors)
                self.assertEqual(result.err.count("\n"), len(errors))

    def test_it_stops_at_a_failure(self):
        jobs = self.jobs()
        for first, status in (("mismatch", 1), ("missing", 3)):
            result = self.batch(self.manifest(jobs["good"], jobs[first], jobs["last"]),
                                status=status)
            self.assertNotIn("last.npy", self.listing())
            self.assertIn("1 not run", result.out)
            self.assertNotIn("last ", result.out)

    def test_memory(self):
        # The limit is divided; a job that does not fit in its part fails as it would alone with that limit.
        name = self.manifest(*(self.job(name=f"j{i}", output=f"{i}.npy") for i in range(4)))
        for limit, count, part in (("200MiB", 2, 100), ("40MiB", 1, 40)):
            report = self.report(name, "-j", count, "-t", 4, "--memory-limit", limit)
            for job in report["jobs"]:
                self.assertEqual(job["status"], "ok")
                self.assertEqual(job["execution"]["memory_limit_bytes"] >> 20, part)
                self.assertEqual(job["execution"]["threads"], 4 // count)
        alone = self.run_here(*self.problem.args("a.npy"), "-t", 2, "--memory-limit", "20MiB")
        for more in ([], ["--dry-run"]):
            result = self.batch(name, "-j", 2, "-t", 4, "--memory-limit", "40MiB", "--keep-going", *more, status=5)
            self.assertEqual(result.err.count(alone.err.removeprefix(ERROR).strip() +
                                              "; with --jobs 1 each job has all of it\n"), 4, result.err)

    def test_a_failed_write(self):
        (self.folder / "dw.npy").mkdir()
        result = self.batch(self.manifest(self.job()), status=3)
        self.assertIn("dw.npy: is a folder", result.err)
        self.batch(self.manifest(self.job(output="/dev/full")), status=5)
        with open("/dev/full", "wb") as full:
            result = self.run_here("batch", self.manifest(self.job(output="a.npy")), stdout=full)
        self.assertEqual(result.status, 5)
        self.assertEqual(result.err.count("\n"), 1)

    def test_devices_and_fifos(self):
        os.mkfifo(self.folder / "fifo")
        (self.folder / "folder").mkdir()
        for path, what in (("fifo", "FIFO"), ("/dev/null", "device"), ("folder", "folder")):
            for more in ((), ("--resume",)):
                result = self.run_here("batch", self.manifest(self.job(input=path)), *more)
                self.assertEqual(result.status, 3)
                self.assertIn(f"input ({path}): is a ", result.err)
                self.assertIn(what, result.err)


class Order(BatchTest):
    """Jobs may run in any order: no line reads or writes what another one writes."""

    def test_a_line_that_reads_what_another_writes(self):
        compute, check = self.job(name="a"), self.job(name="b", result="./dw.npy")
        save(self.folder / "dw.npy", self.problem.expected() + 1)  # an old one
        old = self.read("dw.npy")
        for jobs, why in (((compute, check), "line 2: result: ./dw.npy is written by line 1, and jobs run in any order"),
                          ((check, compute), "line 2: output: dw.npy is read by line 1, and jobs run in any order")):
            name = self.manifest(*jobs)
            for words in ([], ["--match", "a"], ["--shard", "1/2"], ["--dry-run"]):
                self.assert_one_error(self.run_here("batch", name, *words), 3, why)
                self.assertEqual(self.read("dw.npy"), old)
        # The gradient that a job computes and judges is its own.
        save(self.folder / "golden.npy", self.problem.expected())
        own = self.job(name="a", golden="golden.npy", output="dw.npy")
        self.assertIn("1 match", self.batch(self.manifest(own)).out)
        self.assertEqual(self.read("dw.npy"), self.want)

    def test_what_the_list_is_given_is_not_replaced(self):
        golden = self.folder / "golden.npy"
        save(golden, self.problem.expected())
        os.link(golden, self.folder / "hard.npy")
        names = ("x.npy", "dy.npy", "golden.npy")
        kept = [self.read(name) for name in names]
        for name, reader in (("x.npy", self.job()), ("./dy.npy", self.job()),
                             ("hard.npy", self.job(golden="golden.npy")),
                             ("golden.npy", self.job(result="golden.npy")),
                             ("golden.npy", self.job(kernel=None, filter_like="golden.npy"))):
            writer = self.job(output=name, input="x2.npy", out_backprop="dy2.npy", name="writes")
            jobs = [self.job(name="first", output="first.npy", input="x2.npy", out_backprop="dy2.npy"),
                    {**reader, "name": "reads"}, writer, self.job(result=name, name="after")]
            for x in ("x", "dy"):
                shutil.copy(self.folder / f"{x}.npy", self.folder / f"{x}2.npy")
            why = f"jobs.jsonl, line 3: output: {name} is read by line 2, and jobs run in any order"
            with self.subTest(name, reader=reader):
                for words in ([], ["--match", "writes"], ["--shard", "1/2"], ["--dry-run"], ["--keep-going"]):
                    result = self.run_here("batch", self.manifest(*jobs), *words)
                    self.assertEqual(result.status, 3)
                    self.assertIn(why, result.err)
                    self.assertRegex(result.err, r"line 4: \w+: \S+ is written by line 3, and jobs")
                self.assertEqual([self.read(name) for name in names], kept)
        # Nor by the list's pictures and differences, of lines that are left out.
        jobs = [self.job(name="a", input="x2.npy"),
                self.job(name="b", input="x2.npy", result="golden.npy", save_diff="dy.npy"),
                self.job(name="c", output="c.npy")]
        result = self.run_here("batch", self.manifest(*jobs), "--match", "b")
        self.assertEqual(result.status, 3)
        self.assertIn("line 2: save_diff: dy.npy is read by line 1", result.err)

    def test_the_same_bytes_for_any_number_of_jobs(self):
        rng = np.random.default_rng(5)
        save(self.folder / "x.npy", rng.standard_normal((2, 7, 9, 4)))
        save(self.folder / "dy.npy", rng.standard_normal(self.problem.dy.shape))
        name = self.manifest(*(self.job(name=f"j{i}", output=f"{i}.npy", algorithm=a)
                               for i, a in enumerate(["direct", "im2col_gemm", "auto"] * 4)))
        seen = []
        for args in (["-j", 1, "-t", 1], ["-j", 1], ["-j", 3, "-t", 3], ["-j", 0, "-t", 8]):
            self.batch(name, *args)
            seen.append([self.read(f"{i}.npy") for i in range(12)])
        self.assertEqual(seen.count(seen[0]), len(seen))

    def test_how_threads_are_divided(self):
        jobs = [self.job(name=f"j{i}", command="verify") for i in range(6)]
        for count, threads, used, each in ((1, 3, 1, {3}), (2, 4, 2, {2}), (2, 5, 2, {2, 3}),
                                           (8, 2, 2, {1}), (0, 3, 3, {1}), (128, 128, 6, {21, 22})):
            report = self.report(self.manifest(*jobs), "-j", count, "-t", threads)
            self.assertEqual(report["batch"]["jobs_at_a_time"], used)
            self.assertLessEqual({job["execution"]["threads"] for job in report["jobs"]}, each)


class Resume(BatchTest):
    def setUp(self):
        super().setUp()
        save(self.folder / "golden.npy", self.problem.expected())
        self.jobs = [self.job(name="a"), self.job(name="b", output="b.npy", out_dtype="float64"),
                     self.job(name="c", golden="golden.npy"),
                     self.job(name="d", command="verify", output="d.npy")]
        self.name = self.manifest(*self.jobs)

    def resume(self, *args, status=0):
        words, _ = self.words(self.batch(self.name, "--resume", *args, status=status))
        return "".join({"skipped": "s", "ok": "r", "match": "r", "mismatch": "m",
                        "not run": "n"}.get(words.get(n), "e") for n in "abcd" if n in words)

    def test_what_is_done_is_skipped(self):
        self.assertEqual(self.resume(), "rrrr")
        before = {n: ((self.folder / n).stat().st_mtime_ns, self.read(n))
                  for n in ("dw.npy", "b.npy")}
        for _ in range(2):
            self.assertEqual(self.resume(), "ssss")
        self.assertEqual(before, {n: ((self.folder / n).stat().st_mtime_ns,
                                      self.read(n)) for n in before})
        self.write("jobs.jsonl.state", self.read("jobs.jsonl.state")[:-9])   # as a machine that went down may leave it
        self.assertEqual(self.resume(), "sssr")
        self.assertEqual(self.resume(), "ssss")

    def test_nothing_is_kept_or_skipped_without_it(self):
        self.batch(self.name)
        self.assertNotIn("jobs.jsonl.state", self.listing())
        self.assertEqual(self.resume(), "rrrr")
        self.assertIn("2 ok, 2 match", self.batch(self.name).out)
        self.batch(self.name, "--state", "s")
        self.assertIn("2 ok, 2 match", self.batch(self.name, "--state", "s").out)
        self.assertEqual(self.resume("--state", "s"), "ssss")

    def change(self, name):
        """Another byte, same size: only its time tells."""
        path = self.folder / name
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)

    def test_what_changed_is_done_again(self):
        for name, want in (("x.npy", "rrrr"), ("dy.npy", "rrrr"), ("dw.npy", "rsss"),
                           ("b.npy", "srss"), ("golden.npy", "ssrs"), ("d.npy", "sssr")):
            with self.subTest(name):
                self.problem.save(self.folder)
                save(self.folder / "golden.npy", self.problem.expected())
                self.resume()
                self.assertEqual(self.resume(), "ssss")
                self.change(name)
                result = self.run_here("batch", self.name, "--resume", "--keep-going")
                words, _ = self.words(result)
                got = "".join("s" if words[n] == "skipped" else "r" for n in "abcd")
                self.assertEqual(got, want, str(result))

    def test_the_time_and_the_size_of_a_file_are_what_counts(self):
        self.resume()
        for name, want in (("x.npy", "rrrr"), ("b.npy", "srss")):
            os.utime(self.folder / name, ns=(1, (self.folder / name).stat().st_mtime_ns + 1))
            self.assertEqual(self.resume(), want)
        status = (self.folder / "golden.npy").stat()
        with open(self.folder / "golden.npy", "ab") as file:
            file.write(b"\0")
        os.utime(self.folder / "golden.npy", ns=(status.st_atime_ns, status.st_mtime_ns))
        self.batch(self.name, "--resume", status=3)

    def test_another_attribute_or_algorithm(self):
        self.resume()
        self.jobs[1]["out_dtype"] = "float32"
        self.jobs[2]["bitwise"] = True
        self.name = self.manifest(*self.jobs)
        self.assertEqual(self.resume(), "srrs")
        self.assertEqual(self.resume("-a", "direct"), "rrrr")
        self.assertEqual(self.resume("-a", "direct"), "ssss")
        self.assertEqual(self.resume(), "rrsr")  # the others' outputs are direct's

    def test_new_and_removed_lines(self):
        self.name = self.manifest(*self.jobs[:2])
        self.resume()
        self.name = self.manifest(*self.jobs)
        self.assertEqual(self.resume(), "ssrr")
        self.name = self.manifest(*self.jobs[2:])
        self.assertEqual(self.resume(), "ss")
        self.name = self.manifest(*self.jobs)
        self.assertEqual(self.resume(), "ssss")
        self.assertEqual(self.resume("--match", "[ab]"), "ss")

    def test_failures_are_never_skipped(self):
        save(self.folder / "golden.npy", self.problem.expected() + 1)
        for _ in range(2):
            self.assertEqual(self.resume("--keep-going", status=1)[2], "m")
        (self.folder / "x.npy").rename(self.folder / "away")
        self.batch(self.name, "--resume", "--keep-going", status=3)
        (self.folder / "away").rename(self.folder / "x.npy")
        self.assertEqual(self.resume("--keep-going", status=1), "ssms")

    def test_a_changed_hash_in_the_manifest(self):
        self.resume()
        self.jobs[0]["input_sha256"] = "0" * 64
        self.name = self.manifest(*self.jobs)
        result = self.batch(self.name, "--resume", status=3)
        self.assertIn("line 1 (a): input (x.npy)", result.err)

    def test_dry_run_keeps_nothing(self):
        self.batch(self.name, "--resume", "--dry-run")
        self.assertEqual(self.listing(), sorted(["x.npy", "dy.npy", "golden.npy", "jobs.jsonl"]))

    def test_an_input_that_changes_meanwhile(self):
        # x is replaced while it is computed with. The new x was not seen, and must not pass for done.
        rng = np.random.default_rng(6)
        x, dy = rng.integers(-4, 5, (1, 64, 64, 1)), rng.integers(-4, 5, (1, 64, 64, 4096))
        save(self.folder / "x.npy", x)
        save(self.folder / "dy.npy", dy)
        save(self.folder / "other.npy", x + 1)
        self.name = self.manifest({"op": "conv2d", "input": "x.npy", "out_backprop": "dy.npy", "kernel": 1,
                                   "padding": "valid", "output": "dw.npy", "backend": "reference", "name": "a"})
        process = start("batch", self.name, "--resume", "--junit", "r.xml", "-t", 1, cwd=self.folder)
        wait_until(lambda: (self.folder / "r.xml").exists(), process)  # it begins
        time.sleep(0.1)
        (self.folder / "other.npy").replace(self.folder / "x.npy")  # never half a file
        err = process.communicate(timeout=300)[1]
        self.assertEqual(process.returncode, 0, err)
        self.resume()
        want = np.einsum("nhwc,nhwk->ck", x + 1.0, dy)[None, None]
        self.assertEqual(self.read("dw.npy"), npy_bytes("float32", want))
        self.assertEqual(self.resume(), "s")

    def test_a_state_that_cannot_be_written(self):
        for path in ("/dev/full", "/dev/null"):
            self.assert_one_error(self.run_here("batch", self.name, "--state", path), 2,
                                  f"--state: {path} is a device")
        self.resume()
        before = self.read("jobs.jsonl.state")
        os.utime(self.folder / "x.npy")
        # Above the tensors; of the next lines the first goes in, and a part of the second.
        limit = len(before) + (len(before) - len(before.splitlines(True)[0])) // 4 * 3 // 2
        self.assertGreater(limit, 1200)
        result = self.run_here("batch", self.name, "--resume", preexec_fn=lambda: (
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
        self.assertEqual(result.status, 5, str(result))
        self.assertIn("jobs.jsonl.state: cannot write", result.err)
        self.assertEqual(result.err.count("\n"), 1)
        lines = self.read("jobs.jsonl.state").splitlines(True)
        self.assertEqual((b"".join(lines[:-1]), lines[-1][-1:]), (before, b"\n"))
        self.assertEqual(self.resume(), "srrr")


class Reports(BatchTest):
    NAMES = ['<&>"\'', "tab\tline\nend", "\x01\x1f\x7f", "ünïcode \U0001f600", "\ufffe\uffff",
             "]]>", "  spaces  ", "/%s/%d/", "&amp;"]

    def test_junit(self):
        save(self.folder / "bad.npy", self.problem.expected() + 1)
        jobs = [self.job(name=n, command="verify") for n in self.NAMES]
        jobs += [self.job(name="bad <golden>", golden="bad.npy"),
                 self.job(name="gone", input='no "<file>.npy')]
        self.batch(self.manifest(*jobs, '{"<op>": 1}\n'), "--keep-going", "--junit", "r.xml",
                   status=3)
        root = xml.etree.ElementTree.parse(self.folder / "r.xml").getroot()
        self.assertEqual(root.tag, "testsuites")
        suite = root[0]
        total = len(jobs) + 1
        for element in (root, suite):
            self.assertEqual((element.get("tests"), element.get("failures"), element.get("errors")),
                             (str(total), "1", "2"))
        self.assertEqual(suite.get("skipped"), "0")
        cases = suite.findall("testcase")
        self.assertEqual(len(cases), total)
        names = [case.get("name") for case in cases]
        self.assertEqual(names[0], f"line {total}")
        replaced = str.maketrans({c: "\ufffd" for c in "\x01\x1f\ufffe\uffff"})
        self.assertEqual(names[1:len(self.NAMES) + 1], [n.translate(replaced) for n in self.NAMES])
        for case in cases:
            self.assertRegex(case.get("time"), r"^\d+\.\d{3}$")
            self.assertIn(case.get("classname"), ("jobs", "jobs.conv2d"))
        times = [float(case.get("time")) for case in cases]
        self.assertLessEqual(max(times), float(suite.get("time")) + 0.001)
        failure = cases[-2].find("failure")
        self.assertIn("elements fail", failure.get("message"))
        self.assertIn("repeat: convgrad verify --op conv2d", failure.text)
        error = cases[-1].find("error")
        self.assertIn('no "<file>.npy', error.get("message"))
        self.assertIn("<op>: is unknown", cases[0].find("error").get("message"))

    def test_junit_of_jobs_that_did_not_run(self):
        name = self.manifest(self.job(name="a"), self.job(name="b", input="none", output="b.npy"),
                             self.job(name="c", command="verify"), self.job(name="d", output="d.npy"))
        self.batch(name, "--junit", "r.xml", status=3)
        suite = xml.etree.ElementTree.parse(self.folder / "r.xml").getroot()[0]
        self.assertEqual((suite.get("errors"), suite.get("skipped")), ("1", "2"))
        self.assertIn("--keep-going", suite[3].find("skipped").get("message"))

    def test_the_command_to_repeat_a_job(self):
        golden = 'it\'s "golden".npy'
        save(self.folder / golden, self.problem.expected() + 1)
        report = self.report(self.manifest(
            self.job(name="a"), self.job(name="b", golden=golden, rtol=1e-7),
            self.job(name="c", golden=golden, bitwise=True)), "--keep-going", status=1)
        (self.folder / "dw.npy").unlink()
        for job, status in zip(report["jobs"], (0, 1, 1)):
            done = self.bash(job["command_line"])
            self.assertEqual(done.returncode, status, job["command_line"])
        self.assertEqual(self.read("dw.npy"), self.want)

    def test_the_batchs_own_algorithm_is_repeated(self):
        name = self.manifest(self.job(name="a"), self.job(name="b", output="b.npy", algorithm="im2col_gemm"))
        for args, env in ((["-a", "direct"], {}), ([], {"CONVGRAD_ALGORITHM": "direct"})):
            jobs = parse_report(self.batch(name, *args, "--json", env=env).out)["jobs"]
            self.assertTrue(jobs[0]["command_line"].endswith(" --algorithm direct"), jobs[0])
            self.assertTrue(jobs[1]["command_line"].endswith(" --algorithm im2col_gemm"), jobs[1])
            self.assertNotIn("direct", jobs[1]["command_line"])

    def test_json(self):
        save(self.folder / "bad.npy", self.problem.expected() + 1)
        name = self.manifest(self.job(name="a"), "{}\n", self.job(name="c", golden="bad.npy"),
                             self.job(name="d", input="none.npy", output="d.npy"))
        result = self.run_here("batch", name, "--keep-going", "--json=r.json")
        self.assertEqual(result.status, 3)
        self.assertIn("4 jobs", result.out)
        report = parse_report((self.folder / "r.json").read_text())
        self.assertEqual((report["schema"], report["command"], report["status"],
                          report["exit_code"], report["batch"]["manifest"]),
                         ("convgrad.report/1", "batch", "error", 3, name))
        self.assertGreater(report["batch"]["elapsed_ms"], 0)
        self.assertEqual(report["batch"]["counts"],
                         {"jobs": 4, "ok": 1, "match": 0, "planned": 0, "skipped": 0,
                          "mismatch": 1, "error": 2, "not_run": 0})
        a, bad, c, d = report["jobs"]
        self.assertEqual([(j["name"], j["line"], j["status"], j["exit_code"]) for j in (a, bad, c, d)],
                         [("a", 1, "ok", 0), ("line 2", 2, "error", 3), ("c", 3, "mismatch", 1),
                          ("d", 4, "error", 3)])
        single = parse_report(self.run_here(*self.problem.args("e.npy"), "--json").out)
        single["tensors"]["gradient"]["file"] = "dw.npy"
        for key in ("attrs", "tensors", "work"):
            self.assertEqual(a[key], single[key])
        self.assertEqual(set(a["timing_ms"]), set(single["timing_ms"]))
        self.assertEqual(a["output"], "dw.npy")
        self.assertEqual(c["compare"]["verdict"], "mismatch")
        self.assertIn("none.npy", d["error"]["message"])
        self.assertIn("op is missing", bad["error"]["message"])
        self.assertEqual(report["error"]["code"], 3)

    def test_match(self):
        name = self.manifest(*(self.job(name=n, command="verify")
                               for n in ("alpha", "alps", "beta", "Beta")))
        for pattern, want in (("al", ["alpha", "alps"]), ("^beta$", ["beta"]), ("[bB]eta", 2),
                              ("a$", 3), (".", 4), ("alpha|Beta", 2)):
            report = self.report(name, "--match", pattern)
            names = [job["name"] for job in report["jobs"]]
            self.assertEqual(names if isinstance(want, list) else len(names), want)

    def test_dry_run(self):
        name = self.manifest(self.job(name="a"), self.job(name="b", strides=1, output="b.npy"))
        result = self.batch(name, "--dry-run", "--keep-going", status=3)
        self.assertRegex(result.out, r"planned   a  conv2d float32 NHWC n2 .*: \w+, [\d.]+ MiB\n")
        self.assertIn("line 2 (b)", result.err)
        self.assertNotIn("dw.npy", self.listing())

    def test_no_progress_but_on_a_terminal(self):
        result = self.batch(self.slow_manifest(), "-t", 1)
        self.assertEqual(result.err, "")
        self.assertNotIn("\r", result.out)

    def slow_manifest(self, count=6):
        n, c = (4, 32) if SANITIZED else (16, 128)  # a tenth of a second each
        self.problem = Problem(n=n, size=(32, 32), c=c, k=64, taps=(3, 3))
        self.problem.save(self.folder)
        return self.manifest(*(self.job(output=f"{i}.npy", backend="reference") for i in range(count)))

    def test_progress_on_a_terminal(self):
        jobs = 8 if THREAD_SANITIZED else 30  # of seconds each there
        text = at_a_terminal("batch", self.slow_manifest(jobs), "-t", 1, cwd=self.folder)[1]
        bars = re.findall(rf"\r(\d+) of {jobs} jobs: \[(#*)( *)\] +(\d+) %, (\d+) s left ", text)
        self.assertGreater(len(bars), 0, repr(text[-2000:]))
        for _, full, rest, percent, _ in bars:
            self.assertEqual(len(full) + len(rest), 20)
            self.assertLessEqual(abs(5 * len(full) - int(percent)), 5)
        # A job's line begins at the left edge, the bar wiped.
        for line in re.findall(r"(?:^|[\r\n])([^\r\n]*line \d+  \d+\.npy, [^\r\n]*)", text):
            self.assertRegex(line, r"^ok        line ")


class Golden(CliTest):
    """testdata/golden.jsonl: green as it is, red with one flipped bit in any of its files."""

    def setUp(self):
        super().setUp()
        shutil.copytree(ROOT / "testdata", self.folder / "testdata")
        self.list = self.folder / "testdata/golden.jsonl"
        self.jobs = [json.loads(line) for line in self.list.read_text().splitlines()]

    def statuses(self, *args, status):
        result = self.run_here("batch", "testdata/golden.jsonl", "--keep-going", "--json", *args)
        self.assertEqual(result.status, status, result.err)
        return {job["name"]: job["status"] for job in parse_report(result.out)["jobs"]}

    def flip(self, path, bit):
        data = bytearray(path.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)

    def test_green(self):
        result = self.succeed("batch", "testdata/golden.jsonl", "--junit", "report.xml")
        self.assertRegex(result.out, rf"\n{len(self.jobs)} jobs: {len(self.jobs)} match; ")
        root = xml.etree.ElementTree.parse(self.folder / "report.xml").getroot()
        self.assertEqual((root.get("tests"), root.get("failures"), root.get("errors")),
                         (str(len(self.jobs)), "0", "0"))
        self.assertEqual({case.get("name") for case in root.iter("testcase")},
                         {job["name"] for job in self.jobs})
        self.assertGreaterEqual(len(self.jobs), 400)

    def test_one_flipped_bit_in_every_file(self):
        # All files of a kind at a time: a job reads one of each, so each must see its own.
        rng = random.Random(3)
        for kind in ("input", "out_backprop", "golden"):
            paths = sorted({self.list.parent / job[kind] for job in self.jobs})
            bits = {path: rng.randrange(8 * path.stat().st_size) for path in paths}
            for path, bit in bits.items():
                self.flip(path, bit)
            statuses = self.statuses("-j", 2, status=3)
            self.assertEqual(set(statuses), {job["name"] for job in self.jobs})
            self.assertEqual(set(statuses.values()), {"error"}, kind)
            for path, bit in bits.items():
                self.flip(path, bit)
        self.assertEqual(set(self.statuses(status=0).values()), {"match"})


class Documentation(BatchTest):
    TEXT = (ROOT / "docs/batch.md").read_text()

    def test_its_manifests(self):
        self.problem = Problem(n=2, size=(7, 6), c=3, k=4, taps=(3, 3), strides=(2, 2))
        self.problem.save(self.folder)
        save(self.folder / "theirs.npy", self.problem.expected())
        blocks = re.findall(r"(?ms)^```\n(.*?)^```", self.TEXT)
        lines = next(block for block in blocks if block.startswith("{"))
        self.write("jobs.jsonl", lines)
        words, _ = self.words(self.batch("jobs.jsonl"))
        self.assertEqual(words, {"layer1": "ok", "check1": "match"})

    def test_its_list_of_golden_files(self):
        (code,) = re.findall(r"(?ms)^```python\n(.*?)^```", self.TEXT)
        (self.folder / "golden").mkdir()
        for i in range(3):
            problem = Problem(n=1, size=(5, 6), c=2, k=3, taps=(3, 3), seed=i)
            problem.save(self.folder / "golden", "float32", f"{i}.x.npy", f"{i}.dy.npy")
            save(self.folder / f"golden/{i}.dw.npy", problem.expected())
        exec(code.replace('Path("golden")', f"Path({str(self.folder / 'golden')!r})"), {})
        self.assertIn("3 match", self.batch("golden/golden.jsonl").out)
