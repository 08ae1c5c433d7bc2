"""batch: what it says of its jobs, as JUnit's XML, JSON, commands to repeat, and on a terminal."""
import re
import xml.etree.ElementTree

from batching import BatchTest
from harness import SANITIZED, THREAD_SANITIZED, Problem, at_a_terminal, parse_report, save


class Reports(BatchTest):
    NAMES = ['<&>"\'', "\x01", "ünïcode", "  spaces  "]   # "what XML can hold" of batch_test.cpp has more

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
        self.assertEqual(names[-1], f"line {total}")
        self.assertEqual(names[:len(self.NAMES)], [n.replace("\x01", "\ufffd") for n in self.NAMES])
        for case in cases:
            self.assertRegex(case.get("time"), r"^\d+\.\d{3}$")
            self.assertIn(case.get("classname"), ("jobs", "jobs.conv2d"))
        times = [float(case.get("time")) for case in cases]
        self.assertLessEqual(max(times), float(suite.get("time")) + 0.001)
        failure = cases[-3].find("failure")
        self.assertIn("elements fail", failure.get("message"))
        self.assertIn("repeat: convgrad verify --op conv2d", failure.text)
        error = cases[-2].find("error")
        self.assertIn('no "<file>.npy', error.get("message"))
        self.assertIn("<op>: is unknown", cases[-1].find("error").get("message"))

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
        for pattern, want in (("al", ["alpha", "alps"]), ("^beta$", ["beta"]), ("alpha|Beta", ["alpha", "Beta"])):
            self.assertEqual([job["name"] for job in self.report(name, "--match", pattern)["jobs"]], want)

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
