"""batch --shard: a list of jobs in parts, by the tools that docs/batch.md names; what a killed batch leaves."""
import json
import os
import random
import re
import subprocess
import time
import xml.etree.ElementTree

from harness import BINARY, ROOT, clean_environment, save, start
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
        self.name = self.manifest(self.job(name="a", output="a.npy"), self.job(name="b", command="verify"),
                                  self.job(name="c", golden="bad.npy"), "\n", self.job(name="d", output="d.npy"),
                                  self.job(name="e", command="verify"), self.job(name="f <&>", command="verify"))

    def shard(self, k, r, *args, status=0):
        return self.words(self.batch(self.name, "--shard", f"{k}/{r}", "--keep-going", "--junit", f"{k}.xml", *args,
                                     status=status))[0]

    def test_each_job_is_in_one(self):
        lines = {"a": 1, "b": 2, "c": 3, "d": 5, "e": 6, "f <&>": 7}
        for parts in (1, 2, 3, 5, 8):
            for k in range(1, parts + 1):
                wanted = {name for name, line in lines.items() if line % parts == k % parts}
                self.assertEqual(self.names(k, parts), wanted)
                self.shard(k, parts, status=int("c" in wanted))
                self.assertEqual(cases(self.folder / f"{k}.xml"),
                                 {name: "failure" if name == "c" else "passed" for name in wanted})

    def names(self, k, parts):
        report = self.report(self.name, "--shard", f"{k}/{parts}", "--dry-run")
        self.assertEqual(report["batch"]["shard"], f"{k}/{parts}")
        return {job["name"] for job in report["jobs"]}

    def test_each_has_its_own_state(self):
        for wanted in ("ok", "skipped"):
            self.assertEqual(self.shard(1, 2, "--resume", "--match", "[ad]"), {"a": wanted, "d": wanted})
            self.assertEqual(self.shard(2, 2, "--resume", "--match", "[b]"), {"b": {"ok": "match"}.get(wanted, wanted)})
        self.assertIn("jobs.jsonl.1-of-2.state", self.listing())
        self.assertIn("jobs.jsonl.2-of-2.state", self.listing())
        self.assertNotIn("jobs.jsonl.state", self.listing())

    def test_malformed_lines_stop_all(self):
        with open(self.folder / self.name, "a", encoding="utf8") as lines:
            lines.write("{}\n")
        for args in ([], ["--keep-going"]):
            for k in (1, 2):
                result = self.run_here("batch", self.name, "--shard", f"{k}/2", "--junit", f"{k}.xml", *args)
                self.assertEqual((result.status, result.err.count("line 8: op is missing")), (3, 1))

    def test_wrong_use(self):
        for text in ("0/2", "3/2", "1", "a/b", "1/0", "1/-2", "1/2/3", "1:2"):
            self.assert_one_error(self.run_here("batch", self.name, f"--shard={text}"), 2, f"--shard: '{text}'", "K/R")
        self.assertNotIn("a.npy", self.listing())


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
            words = dict(reversed(word) for word in re.findall(r"(?m)^(ok|skipped) +(\S+) .*\n", out))
            for name in done & set(words):   # what was done is never done again
                self.assertEqual(words[name], "skipped", out)
            done |= {name for name, word in words.items() if word in ("ok", "skipped")}
            for name in done:
                self.assertEqual(self.read(f"{name[1:]}.npy"), self.want)
            state = (self.folder / "jobs.jsonl.state").read_text().splitlines()
            kept = {"j" + json.loads(line)["job"]["output"][0].removesuffix(".npy") for line in state[1:]}
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
            self.assertEqual(self.read(f"{i}.npy"), self.want)

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
    """The shards of docs/batch.md, as they stand there: each job is run once."""
    COUNT = 20

    def setUp(self):
        super().setUp()
        text = (ROOT / "docs/batch.md").read_text()
        self.slurm, _, self.xargs = re.findall(r"(?ms)^```\n(.*?)^```", text[text.index("## Shards"):text.index("## Golden")])
        self.manifest(*(self.job(name=f"j{i}", output=f"{i}.npy", no_clobber=True) for i in range(self.COUNT)))
        (self.folder / "bin").mkdir()
        os.symlink(os.path.abspath(BINARY), self.folder / "bin/convgrad")

    def shell(self, text, **more):
        environment = clean_environment()
        environment["PATH"] = f"{self.folder / 'bin'}:{environment['PATH']}"
        done = subprocess.run(["sh", "-euc", text], cwd=self.folder, env={**environment, **more}, capture_output=True,
                              text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def check(self, out, shards):
        self.assertEqual(sorted(re.findall(r"(?m)^(\w+) +j(\d+) ", out)), sorted(("ok", str(i)) for i in range(self.COUNT)))
        found = [name for k in range(1, shards + 1) for name in cases(self.folder / f"report-{k}.xml")]
        self.assertEqual(sorted(found), sorted(f"j{i}" for i in range(self.COUNT)))
        for i in range(self.COUNT):
            self.assertEqual(self.read(f"{i}.npy"), self.want)

    def test_the_slurm_array(self):
        """What Slurm does: the script once for each number of the array."""
        self.assertTrue(self.slurm.startswith("#!/bin/sh\n#SBATCH --array=1-8\n"))
        self.check("".join(self.shell(self.slurm, SLURM_ARRAY_TASK_ID=str(k)) for k in range(1, 9)), 8)

    def test_xargs(self):
        self.check(self.shell(self.xargs), 2)
