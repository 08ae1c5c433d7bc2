"""batch: lines and lists that are refused, flags that make no sense, jobs that fail."""
import os
import re
import shutil
import xml.etree.ElementTree

import numpy as np
from batching import BatchTest
from harness import ERROR, save


class Malformed(BatchTest):
    FIELDS = (  # batch_test.cpp has more
        ({"op": "conv2"}, "op: 'conv2'", "did you mean 'conv2d'"),
        ({"input": None}, "input is missing"),
        ({"input": "-"}, "input: -"),
        ({"strides": [2, True]}, "strides: 'true' is not a whole number"),
        ({"kernel": {"a": 1}}, "kernel: an object, expected"),
        ({"threads": 2}, "threads: is no field of a job"),
        ({"rtol": 1}, "rtol: is a field of jobs that verify"),
        ({"command": "verify", "no_clobber": "maybe"}, "no_clobber: 'maybe'"),
        ({"golden_sha256": "ab" * 32}, "golden_sha256: is given, but golden is not"),
        ({"input_sha256": "abc"}, "input_sha256: 'abc', expected 64 hexadecimal digits"),
        ({"name": "n" * 201}, "name: 201 bytes"),
        ({"kernel": [[[1]]]}, "kernel: lists within lists"),
        ({"op\n\x1b[31m": "conv2d"}, r"op\x0a\x1b[31m: is unknown"),
        ({"name": "a\nb\x1b", "padding": "sam"}, r"line 1 (a\x0ab\x1b): padding: 'sam'",
         "did you mean 'SAME'"),
    )

    def test_fields(self):
        for fields, *parts in self.FIELDS:
            with self.subTest(fields):
                result = self.run_here("batch", self.manifest(self.job(**fields)), "--keep-going")
                self.assertEqual(result.status, 3, str(result))
                self.assertEqual(result.err.count("\n"), 1, str(result))
                self.assertTrue(result.err.startswith(f"{ERROR}jobs.jsonl, line 1"), str(result))
                for part in parts:
                    self.assertIn(part, result.err)
                self.assertLess(len(result.err), 600)
                self.assertNotRegex(result.err, r"[^\x20-\x7e\n]|exception")
                self.assertRegex(result.out, r"^1 job: 1 error; \S+ s\n$")
                self.assertEqual(self.listing(), sorted(["jobs.jsonl", "x.npy", "dy.npy"]))

    def test_nothing_runs_without_keep_going(self):
        name = self.manifest(self.job(), "{}\n", self.job(name="two", output="two.npy"), "[]\n")
        result = self.run_here("batch", name, "--junit", "r.xml")
        self.assertEqual((result.status, result.raw), (3, b""))
        self.assertEqual(re.findall(r"line \d+", result.err), ["line 2", "line 4"])
        self.assertNotIn("dw.npy", self.listing())
        root = xml.etree.ElementTree.parse(self.folder / "r.xml").getroot()
        self.assertEqual((root.get("tests"), root.get("errors")), ("4", "2"))

    def test_no_manifest_at_all(self):
        (self.folder / "folder").mkdir()
        self.manifest("", name="empty.jsonl")
        self.manifest("\n \n\r\n", name="blank.jsonl")
        self.manifest("[ ]\n", name="none.json")
        for name, *parts in (("none.jsonl", "none.jsonl: cannot open: No such file"), ("folder", "is a folder"),
                             ("empty.jsonl", "has no job"), ("blank.jsonl", "has no job"),
                             ("none.json", "has no job"),
                             ("x.npy", "is not text")):
            self.refuses(3, parts, "batch", name)
        self.refuses(3, ["standard input", "has no job"], "batch", "-", stdin=b"")


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
                ([name, "--jobs", "129"], 2, "from 0 to 128"),
                ([name, "--match", "("], 2, "--match: '(' is no regular expression"),
                ([name, "--match", "zzz"], 2, "none of the 1 jobs"),
                ([name, "--op", "conv2d"], 2, "--op"),
                ([name, "-b", "reference", "-a", "direct"], 2, "--algorithm: direct"),
                ([name, "--junit", "-"], 2, "--junit: -"),
                ([name, "--state", "-"], 2, "--state: -"),
                ([name, "--junit", "none/r.xml"], 3, "none/r.xml", "No such file"),
                ([name, "--junit", "x.npy"], 2, "--junit: x.npy is the input of", "line 1 (a)"),
                ([name, "--junit", "dw.npy"], 2, "--junit: dw.npy is the output of"),
                ([two, "--match", "b", "--junit", "x.npy"], 2, "--junit: x.npy is the input of", "line 1 (a)"),
                ([name, "--junit", "notes.xml"], 2, "--junit: notes.xml exists and is no JUnit file", "remove it"),
                ([name, "--state", "dy.npy"], 2, "--state: dy.npy is the out_backprop of"),
                ([name, "--state", name], 2, "--state: jobs.jsonl is the manifest too"),
                ([name, "--junit", "a", "--state", "a"], 2, "--junit: a is --state too"),
                ([name, "--json=x.npy"], 2, "--json=x.npy exists and is no report")):
            self.refuses(status, parts, "batch", *args)
        self.refuses(2, ["--state is missing"], "batch", "-", "--resume", stdin=b"{}")

    def test_a_file_that_is_no_state(self):
        for text in ("", "hello\n", '{"schema":"convgrad.batch-state/1"}\n{"job":1}\n'):
            self.write("s", text)
            self.refuses(3, ["--state: s, line ", "remove the file"], "batch", self.manifest(self.job()), "--resume", "--state", "s")


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
            self.assertEqual(result.err.count(alone.err.removeprefix(ERROR)), 4, result.err)

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
        for path in ("fifo", "/dev/null", "folder"):
            for more in ((), ("--resume",)):
                result = self.run_here("batch", self.manifest(self.job(input=path)), *more)
                self.assertEqual(result.status, 3)
                self.assertIn(f"input ({path}): is no regular file", result.err)


class Order(BatchTest):
    """Jobs may run in any order: no line reads or writes what another one writes."""

    def test_the_gradient_that_a_job_computes_and_judges_is_its_own(self):
        save(self.folder / "golden.npy", self.problem.expected())
        own = self.job(name="a", golden="golden.npy", output="dw.npy")
        self.assertIn("1 match", self.batch(self.manifest(own)).out)
        self.assertEqual(self.read("dw.npy"), self.want)

    def test_what_the_list_is_given_is_not_replaced(self):
        save(self.folder / "golden.npy", self.problem.expected())
        os.link(self.folder / "golden.npy", self.folder / "hard.npy")
        shutil.copy(self.folder / "x.npy", self.folder / "x2.npy")
        kept = self.contents()
        for reader, field, name in ((self.job(), "output", "./dy.npy"),
                                    (self.job(golden="golden.npy"), "output", "hard.npy"),
                                    (self.job(kernel=None, filter_like="golden.npy"), "output", "golden.npy"),
                                    (self.job(), "save_diff", "dy.npy")):
            writer = self.job(**{field: name}, input="x2.npy", result="x2.npy", name="writes")
            text = self.manifest({**reader, "name": "reads"}, writer)
            with self.subTest(name, reader=reader):
                for words in ([], ["--match", "writes"], ["--shard", "2/2"], ["--keep-going"]):   # lines that are left out count
                    result = self.run_here("batch", text, "--dry-run", *words)
                    self.assertEqual(result.status, 3)
                    self.assertIn(f"line 2 (writes): {field}: {name} is read by line 1, and jobs run in any order", result.err)
                self.assertEqual({**self.contents(), "jobs.jsonl": None}, {**kept, "jobs.jsonl": None})

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
