"""The workers that scripts/peers.py starts: answers, and what becomes of those that refuse, die or hang; and two
versions of convgrad in turns."""

import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import peers
from harness import BINARY, ROOT, CliTest, clean_environment

TORCH = """
__version__ = "0.1"
set_num_threads = set_num_interop_threads = set_grad_enabled = lambda value: None
print("chatter")
"""


def answers_of(module):
    def answer(request):
        if request == "refuse":
            raise ValueError("no\nway")
        if request == "die":
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        if request == "hang":
            time.sleep(60)
        print("chatter")
        return {"got": request, "by": module.__version__}

    return answer


class Workers(CliTest):
    def setUp(self):
        super().setUp()
        self.write("torch.py", TORCH)
        self.worker = peers.Worker(__file__, "torch", sys.executable, 1, {"PYTHONPATH": str(self.folder)}, silence_s=60)
        self.addCleanup(self.worker.end)

    def assert_answers(self):
        """In spite of its chatter."""
        self.assertEqual(self.worker.ask([1, "a"]), {"got": [1, "a"], "by": "0.1"})

    def test_the_same_process_goes_on_after_a_refusal(self):
        self.assert_answers()
        self.assertEqual(self.worker.version, "0.1")
        process = self.worker.process
        self.assertEqual(self.worker.ask("refuse"), {"how": "refuses", "error": "no\nway"})
        self.assert_answers()
        self.assertIs(self.worker.process, process)

    def test_another_process_goes_on_after_a_death(self):
        self.assertEqual(self.worker.ask("die"), {"how": "aborts", "error": "ended: last words"})
        self.assert_answers()
        self.worker.process.kill()
        self.worker.process.wait()
        self.assertEqual(self.worker.ask("anything")["how"], "aborts")
        self.assert_answers()

    def test_one_that_hangs_is_given_up(self):
        self.assert_answers()
        self.worker.silence_s = 0.2
        self.assertEqual(self.worker.ask("hang")["how"], "hangs")
        self.worker.silence_s = 60
        self.assert_answers()

    def test_a_python_without_the_peer(self):
        with self.assertRaisesRegex(peers.DoesNotStart, "cannot run TensorFlow: ended: ModuleNotFoundError"):
            peers.Worker(__file__, "tensorflow", sys.executable, 1, {"PYTHONPATH": "/nowhere"}).ask("anything")
        with self.assertRaisesRegex(peers.DoesNotStart, "no-python: No such file"):
            peers.Worker(__file__, "torch", "./no-python", 1).ask("anything")


SLOWER = """#!/usr/bin/env python3
import json, subprocess, sys
done = subprocess.run([%r, *sys.argv[1:]], capture_output=True, check=True)
report = json.loads(done.stdout)
report["timing_ms"]["kernel"]["min"] *= 10
print(json.dumps(report))
"""
SUITE = """first conv2d n2 h6 w5 c3 k4 r3 s3 pad_same
second depthwise NCHW n2 h6 w5 c3 k6 r3 s2 stride2
"""


class TwoVersions(CliTest):
    def setUp(self):
        super().setUp()
        self.slower = self.folder / self.write("slower", SLOWER % os.path.abspath(BINARY))
        self.slower.chmod(0o755)
        self.write("suite.tsv", SUITE)

    def compare(self, before):
        done = subprocess.run(
            [sys.executable, ROOT / "scripts/compare_peers.py", "--binary", BINARY, "--before", before, "--suite",
             self.folder / "suite.tsv", "--threads", "1", "--rounds", "3", "--min-time", "0.01", "--json",
             self.folder / "r.json"], env=clean_environment(), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        return done, json.loads(self.read("r.json"))

    def test_a_slower_one_comes_out_slower(self):
        done, report = self.compare(self.slower)
        self.assertEqual(done.stderr, "")
        for row in report["layers"]:
            self.assertEqual(sorted(row["ms"]), ["before", "convgrad"])
            for name, turns in row["turns_ms"].items():
                self.assertEqual((len(turns), row["ms"][name]), (3, min(turns)))
            self.assertEqual(row["ratios"]["before"], row["ms"]["before"] / row["ms"]["convgrad"])
            self.assertGreater(row["ratios"]["before"], 3)
        first, second = (row["ratios"]["before"] for row in report["layers"])
        mean = report["geometric_mean"]["float32"]["before"]
        self.assertAlmostEqual(mean["ratio"], (first * second) ** 0.5)
        self.assertRegex(done.stdout, rf"(?m)^first .* {first:.2f}$")
        self.assertIn(f"geometric mean of float32: before / convgrad {mean['ratio']:.2f} (2 layers)\n", done.stdout)

    def test_one_that_fails_has_no_time(self):
        done, report = self.compare("/bin/false")
        self.assertEqual([list(row["errors"]) for row in report["layers"]], [["before"]] * 2)
        self.assertEqual(report["geometric_mean"]["float32"], {})
        self.assertIn("–", done.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        peers.serve(*sys.argv[2:], answers_of)
