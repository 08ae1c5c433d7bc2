"""The workers that scripts/peers.py starts: answers, and what becomes of those that refuse, die or hang."""

import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import peers

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


class Workers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "torch.py").write_text(TORCH)
        self.worker = peers.Worker(__file__, "torch", sys.executable, 1, {"PYTHONPATH": folder.name}, silence_s=60)
        self.addCleanup(self.worker.end)

    def assert_answers(self):
        self.assertEqual(self.worker.ask([1, "a"]), {"got": [1, "a"], "by": "0.1"})

    def test_answers_in_spite_of_chatter(self):
        self.assert_answers()
        self.assert_answers()
        self.assertEqual(self.worker.version, "0.1")

    def test_the_same_process_goes_on_after_a_refusal(self):
        self.assert_answers()
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


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        peers.serve(*sys.argv[2:], answers_of)
    else:
        unittest.main()
