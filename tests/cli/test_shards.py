"""batch --shard and --merge: a list of jobs in parts, and their JUnit files as one; what a killed batch leaves."""
import json
import os
import random
import re
import subprocess
import time
import unittest
import xml.etree.ElementTree

from harness import BINARY, ROOT, clean_environment, npy_bytes, save, start
from test_batch import BatchTest


def cases(path):
    """{name: kind} of the test cases of a JUnit file, whose totals must be right."""
    root = xml.etree.ElementTree.parse(path).getroot()
    kinds, all_kinds = {}, []
    for suite in root:
        of_suite = [(case.get("name"), case[0].tag if len(case) else "passed") for case in suite.iter("testcase")]
        count = {kind: sum(k == kind for _, k in of_suite) for kind in ("failure", "error", "skipped")}
        assert [suite.get(n) for n in ("tests", "failures", "errors", "skipped")] == [
            str(n) for n in (len(of_suite), count["failure"], count["error"], count["skipped"])], suite.attrib
        kinds.update(of_suite)
        all_kinds += of_suite
    assert root.get("tests") == str(len(all_kinds))
    assert len(kinds) == len(all_kinds)
    assert root.get("errors") == str(sum(kind == "error" for _, kind in all_kinds))
    return kinds


class Shards(BatchTest):
    def setUp(self):
        super().setUp()
        save(self.folder / "bad.npy", self.problem.expected() + 1)
        # b reads what a writes, so the two stay together.
        self.name = self.manifest(self.job(name="a", output="a.npy"), self.job(name="b", result="a.npy"),
                                  self.job(name="c", golden="bad.npy"), self.job(name="d", output="d.npy"),
                                  self.job(name="e", command="verify"), self.job(name="f <&>", command="verify"))

    def shard(self, k, r, *args, status=0):
        return self.words(self.batch(self.name, "--shard", f"{k}/{r}", "--keep-going", "--junit", f"{k}.xml", *args,
                                     status=status))[0]

    def test_each_job_is_in_one(self):
        for parts in (1, 2, 3, 5, 8):
            seen = [self.shard(k, parts, status=int("c" in self.names(k, parts))) for k in range(1, parts + 1)]
            names = [name for words in seen for name in words]
            self.assertEqual(sorted(names), ["a", "b", "c", "d", "e", "f"])
            self.assertTrue(any({"a", "b"} <= set(words) for words in seen))
            self.assertLessEqual(max(map(len, seen)) - min(map(len, seen)), 2)
            self.batch("--merge", *(f"{k}.xml" for k in range(1, parts + 1)), "--junit", "all.xml", status=1)
            self.assertEqual(cases(self.folder / "all.xml"), {
                "a": "passed", "b": "passed", "c": "failure", "d": "passed", "e": "passed", "f <&>": "passed"})

    def names(self, k, parts):
        report = json.loads(self.run_here("batch", self.name, "--shard", f"{k}/{parts}", "--dry-run", "--json").out)
        self.assertEqual(report["batch"]["shard"], f"{k}/{parts}")
        return {job["name"] for job in report["jobs"]}

    def test_each_has_its_own_state(self):
        for wanted in ("ok", "skipped"):
            self.assertEqual(self.shard(1, 2, "--resume", "--match", "[abd]"),
                             {"a": wanted, "b": "skipped" if wanted == "skipped" else "match"})
            self.assertEqual(self.shard(2, 2, "--resume", "--match", "[abd]"), {"d": wanted})
        self.assertIn("jobs.jsonl.1-of-2.state", self.listing())
        self.assertIn("jobs.jsonl.2-of-2.state", self.listing())
        self.assertNotIn("jobs.jsonl.state", self.listing())

    def test_malformed_lines_stop_all_and_are_merged_once(self):
        with open(self.folder / self.name, "a", encoding="utf8") as lines:
            lines.write("{}\n")
        for args in ([], ["--keep-going"]):
            for k in (1, 2):
                result = self.run_here("batch", self.name, "--shard", f"{k}/2", "--junit", f"{k}.xml", *args)
                self.assertEqual((result.status, result.err.count("line 7: op is missing")), (3, 1))
            self.run_here("batch", "--merge", "1.xml", "2.xml", "--junit", "all.xml")
            found = cases(self.folder / "all.xml")
            self.assertEqual((len(found), found["line 7"]), (7, "error"))

    def test_wrong_use(self):
        for text in ("0/2", "3/2", "1", "a/b", "1/0", "1/-2", "1/2/3", "1:2"):
            self.assert_one_error(self.run_here("batch", self.name, f"--shard={text}"), 2, f"--shard: '{text}'", "K/R")
        self.assertNotIn("a.npy", self.listing())


class Merge(BatchTest):
    def setUp(self):
        super().setUp()
        self.name = self.manifest(*(self.job(name=n, command="verify") for n in "abcd"),
                                  self.job(name="gone", input="none.npy"))
        for k in (1, 2, 3):
            self.run_here("batch", self.name, "--shard", f"{k}/3", "--junit", f"{k}.xml")

    def merge(self, *args, status):
        return self.batch(*args, "--junit", "all.xml", status=status)

    def test_the_worst_status(self):
        result = self.merge("--merge", "1.xml", "2.xml", "3.xml", status=3)
        self.assertRegex(result.out, r"^5 jobs: 4 passed, 0 mismatch, 1 error, 0 skipped; \d+\.\d+ s\n$")
        self.assertEqual(result.err.count("\n"), 1)
        self.assertIn("jobs.jsonl, gone: none.npy: cannot open", result.err)
        # What was joined can be joined again, and read by others.
        self.batch("--merge", "all.xml", "--junit", "again.xml", status=3)
        self.assertEqual((self.folder / "again.xml").read_bytes(), (self.folder / "all.xml").read_bytes())

    def test_a_missing_shard(self):
        result = self.merge("--merge", "1.xml", "3.xml", status=5)
        self.assertIn("convgrad: error: jobs.jsonl, shard 2/3: is in none of the merged files\n", result.err)
        self.assertEqual(cases(self.folder / "all.xml"),
                         {"a": "passed", "d": "passed", "c": "passed", "shard 2/3": "error"})

    def test_missing_jobs(self):
        result = self.merge(self.name, "--merge", "1.xml", "3.xml", status=5)
        self.assertEqual(re.findall(r"jobs.jsonl, (\S+): is in none", result.err), ["b", "gone"])
        self.assertEqual(cases(self.folder / "all.xml"), {
            "a": "passed", "d": "passed", "c": "passed", "b": "error", "gone": "error"})
        self.merge(self.name, "--match", "^[acd]$", "--merge", "1.xml", "3.xml", status=0)

    def test_doubled_and_strange_jobs(self):
        before = self.listing()
        for files, *parts in ((["1.xml", "2.xml", "1.xml"], "job 'a' is in 1.xml and in 1.xml again"),
                              (["1.xml", "whole.xml"], "job 'a' is in 1.xml and in whole.xml"),
                              (["1.xml", "other.xml"], "other.xml is shard 2/2", "1.xml one of 3")):
            if files[1] == "whole.xml":
                self.run_here("batch", self.name, "--junit", "whole.xml")
            if files[1] == "other.xml":
                self.run_here("batch", self.name, "--shard", "2/2", "--junit", "other.xml")
            self.assert_one_error(self.run_here("batch", "--merge", *files, "--junit", "all.xml"), 3, "--merge: ",
                                  *parts)
        other = self.manifest(self.job(name="z", command="verify"), name="other.jsonl")
        self.assert_one_error(self.run_here("batch", other, "--merge", "1.xml", "--junit", "all.xml"), 3,
                              "job 'a' of 1.xml is none of other.jsonl")
        # Without a manifest, those of two lists are two suites.
        self.batch(other, "--junit", "z.xml")
        self.merge("--merge", "1.xml", "2.xml", "3.xml", "z.xml", status=3)
        self.assertEqual(len(cases(self.folder / "all.xml")), 6)
        self.assertEqual(set(self.listing()) - set(before),
                         {"whole.xml", "other.xml", "other.jsonl", "z.xml", "all.xml"})

    def test_other_files(self):
        text = (self.folder / "1.xml").read_text()
        for i, wrong in enumerate((text[:-1], text[:len(text) // 2], text + "\n", "", "<a/>\n", text.replace("    <t", "<t"),
                                   text.replace('"1/3"', '"0/3"'), text.replace(' name="a"', ""), text + text)):
            (self.folder / "wrong.xml").write_text(wrong)
            with self.subTest(i):
                result = self.run_here("batch", "--merge", "2.xml", "wrong.xml", "--junit", "all.xml")
                self.assert_one_error(result, 3, "--merge: wrong.xml, line ", "is not what convgrad batch")
        self.assertNotIn("all.xml", self.listing())
        self.assert_one_error(self.run_here("batch", "--merge", "none.xml", "--junit", "all.xml"), 3, "none.xml")

    def test_wrong_use(self):
        before = {n: (self.folder / n).read_bytes() for n in self.listing()}
        for args, *parts in ((["--merge", "1.xml"], "--junit is missing"), (["--merge"], "--merge"),
                             (["--merge", "1.xml", "2.xml", "--junit", "./1.xml"], "--merge: 1.xml is --junit too"),
                             (["--merge", "1.xml", "--junit", "x.npy"], "--junit: x.npy exists and is no JUnit file"),
                             *(([self.name, "--merge", "1.xml", "--junit", "all.xml", *more], f"given with {more[0]}")
                               for more in (["--shard", "1/2"], ["--mpi"], ["--resume"], ["--state", "s"],
                                            ["--dry-run"]))):
            with self.subTest(args):
                self.assert_one_error(self.run_here("batch", *args), 2, *parts)
                self.assertEqual({n: (self.folder / n).read_bytes() for n in self.listing()}, before)


class Killed(BatchTest):
    """SIGKILL at random moments: what was said to be done is done, and the rest is known not to be."""

    def setUp(self):
        super().setUp()
        self.count = 60
        self.name = self.manifest(*(self.job(name=f"j{i}", output=f"{i}.npy") for i in range(self.count)))

    def run_and_kill(self, lines, more_seconds):
        process = start("batch", self.name, "--resume", "-j", 2, "-t", 2, "--junit", "r.xml", cwd=self.folder)
        said = []
        for _ in range(lines):
            said.append(process.stdout.readline().decode())
        time.sleep(more_seconds)
        process.kill()
        rest, _ = process.communicate(timeout=60)
        return "".join(said) + rest.decode()

    def test_nothing_is_lost(self):
        rng, done = random.Random(7), set()
        for _ in range(8):
            out = self.run_and_kill(len(done) + rng.randrange(1, 7), rng.random() * 0.004)
            words = dict(reversed(word) for word in re.findall(r"(?m)^(ok|skipped|lost) +(\S+) .*\n", out))
            for name in done & set(words):   # what was done is never done again
                self.assertEqual(words[name], "skipped", out)
            done |= {name for name, word in words.items() if word in ("ok", "skipped")}
            for name in done:
                self.assertEqual((self.folder / f"{name[1:]}.npy").read_bytes(), self.want)
            state = (self.folder / "jobs.jsonl.state").read_text().splitlines()
            kept = {one["name"] for one in map(json.loads, state[1:]) if one["status"] == "ok"}
            self.assertLessEqual(done, kept)
            found = cases(self.folder / "r.xml")
            self.assertEqual(len(found), self.count)
            if len(kept) < self.count:
                self.assertIn("error", found.values())   # a killed batch does not look like a good one
        result = self.batch(self.name, "--resume", "--junit", "r.xml")
        words = self.words(result)[0]
        self.assertLessEqual(done, {name for name, word in words.items() if word == "skipped"})
        self.assertNotIn("error", cases(self.folder / "r.xml").values())
        for i in range(self.count):
            self.assertEqual((self.folder / f"{i}.npy").read_bytes(), self.want)

    def test_the_jobs_that_ran_are_named(self):
        state = self.folder / "jobs.jsonl.state"
        self.batch(self.name, "--resume")
        lines = [line for line in state.read_text().splitlines(True) if '"name":"j7"' not in line]
        key = json.loads(next(line for line in state.read_text().splitlines() if '"name":"j7"' in line))["job"]
        state.write_text("".join(lines) + json.dumps({"job": key, "name": "j7", "status": "begun"}) + '\n{"job":"sha')
        result = self.batch(self.name, "--resume", "--json=r.json")
        self.assertRegex(result.out, r"^lost      j7  had begun, and not ended")
        self.assertEqual(result.out.count("skipped  "), self.count - 1)
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["batch"]["lost"], ["j7"])
        self.assertNotIn("lost", self.batch(self.name, "--resume").out)

    def test_one_state_is_one_batchs(self):
        process = start("batch", self.name, "--resume", "-t", 1, cwd=self.folder)
        process.stdout.readline()
        process.send_signal(19)   # SIGSTOP
        result = self.run_here("batch", self.name, "--resume")
        process.send_signal(18)
        self.assertEqual(process.wait(timeout=60), 0)
        process.communicate()
        self.assert_one_error(result, 2, "--state: jobs.jsonl.state is in use by another batch")
        self.assertEqual(self.batch(self.name, "--resume").out.count("skipped  "), self.count)


class Documentation(BatchTest):
    def test_the_slurm_array(self):
        """What Slurm does: the script once for each number of the array, and then what comes after it."""
        text = (ROOT / "docs/batch.md").read_text()
        script, after = re.findall(r"(?ms)^```sh\n(.*?)^```", text[text.index("## Shards"):])[:2]
        self.assertTrue(script.startswith("#!/bin/sh\n#SBATCH --array=1-8\n"))
        self.manifest(*(self.job(name=f"j{i}", output=f"{i}.npy") for i in range(20)))
        (self.folder / "bin").mkdir()
        os.symlink(os.path.abspath(BINARY), self.folder / "bin/convgrad")
        environment = clean_environment()
        environment["PATH"] = f"{self.folder / 'bin'}:{environment['PATH']}"

        def shell(text, **more):
            return subprocess.run(["sh", "-euc", text], cwd=self.folder, env={**environment, **more},
                                  capture_output=True, text=True, check=False, timeout=60)
        for k in range(1, 9):
            done = shell(script, SLURM_ARRAY_TASK_ID=str(k))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = shell(after)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("20 jobs: 20 passed, ", done.stdout)
        self.assertEqual(set(cases(self.folder / "report.xml").values()), {"passed"})
        for i in range(20):
            self.assertEqual((self.folder / f"{i}.npy").read_bytes(), npy_bytes("float32", self.problem.expected()))


if __name__ == "__main__":
    unittest.main()
