"""batch: manifests, what their jobs may be, and the golden files of testdata."""
import hashlib
import json
import random
import re
import shutil

import numpy as np
from batching import BatchTest
from harness import ROOT, CliTest, Problem, parse_report, save


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
                     {"padding": [[0, 0], *pads, [0, 0]]}, {"filter_format": "RSCK", "use_cudnn_on_gpu": "True"},
                     {"op": "Conv2DBackpropFilter"}, {"notes": {"why": [1, {"a": None}]}}):
            with self.subTest(more):
                (self.folder / "dw.npy").unlink(missing_ok=True)
                self.batch(self.manifest({**self.job(), **more}))
                self.assertEqual(self.read("dw.npy"), self.want)

    def test_lists_that_are_no_json_lines(self):
        jobs = [self.job(), self.job(output="b.npy")]
        for text in (json.dumps(jobs), " ,\r\n".join(map(json.dumps, jobs))):
            for name in ("dw.npy", "b.npy"):
                (self.folder / name).unlink(missing_ok=True)
            self.batch("-", stdin=text.encode())   # of JSON Lines the last has no end
            self.assertEqual((self.read("dw.npy"), self.read("b.npy")), (self.want, self.want))
        self.write("jobs.json", json.dumps(jobs[0], indent=2) + "\n" + json.dumps(jobs[1], indent=2))
        self.assert_one_error(self.batch("jobs.json", status=3), 3, "line 1: an object goes on over more lines, expected "
                              "JSON Lines, one object a line; jq -c . FILE makes it so")

    def test_the_line_of_a_report_is_a_job(self):
        """What docs/batch.md says: jq '{problem: .attrs.line, input: ..., out_backprop: ..., output: ...}'."""
        # Of every problem: relations_test.cpp.
        report = parse_report(self.run_here(*self.problem.args("a.npy"), "--filter-format", "OIHW", "--json").out)
        line = report["attrs"]["line"]
        fields = {"problem": line, "input": report["tensors"]["input"]["file"],
                  "out_backprop": report["tensors"]["out_backprop"]["file"], "output": "b.npy", "dtype": "float32"}
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
        self.refuses(2, ["--state: all.npz:x is the input of"], "batch", "jobs.jsonl", "--state", "all.npz")

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
        result = self.batch(name, "--junit", "j.xml")
        self.assertRegex(result.out, r"match     z  \S+ ms; warning: nothing was tested: "
                         r"dy is all zeros\nmatch     ok  \S+ ms\n")
        self.assertIn("<system-err>warning: nothing was tested: dy is all zeros</system-err>",
                      (self.folder / "j.xml").read_text())
        self.assertEqual([job["compare"]["vacuous"] for job in self.report(name)["jobs"]], [True, False])
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
        job = parse_report((self.folder / "r.json").read_text())["jobs"][0]
        self.assertEqual(job["compare"]["runs"]["verdict"], "equal")
        self.assertIn("result_2", job["tensors"])
        self.assertTrue((self.folder / "d.npy").exists())
        result = self.batch(self.manifest(both, self.job(name="other", result="a.npy",
                                                         save_diff="d.npy")), status=3)
        self.assertIn("save_diff: d.npy is that of line 1 too", result.err)

    def test_options_from_the_environment(self):
        # Those of the batch, not of its jobs.
        name = self.manifest(self.job())
        env = {"CONVGRAD_THREADS": "2", "CONVGRAD_JOBS": "2", "CONVGRAD_STRIDES": "5",
               "CONVGRAD_OUTPUT": "other.npy", "CONVGRAD_BITWISE": "1"}
        report = self.report(name, env=env)
        self.assertEqual(report["batch"]["threads"], 2)
        self.assertEqual(report["jobs"][0]["status"], "ok")
        self.assertNotIn("other.npy", self.listing())


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
        statuses = self.statuses("-j", 2, status=0)
        self.assertEqual((set(statuses), set(statuses.values())), ({job["name"] for job in self.jobs}, {"match"}))
        self.assertGreaterEqual(len(statuses), 400)


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
