"""The README's example, run as printed: its python and sh blocks, in order, in one empty folder."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ["CONVGRAD_BINARY"]).resolve()


def blocks():
    text = (ROOT / "README.md").read_text()
    return re.findall(r"^```(python|sh)\n(.*?)^```", text, re.M | re.S)


class Readme(unittest.TestCase):
    def test_example(self):
        found = blocks()
        self.assertGreaterEqual(len(found), 4)
        env = dict(os.environ, PATH=f"{BINARY.parent}:{os.environ['PATH']}")
        with tempfile.TemporaryDirectory() as folder:
            for language, code in found:
                command = [sys.executable, "-c", code] if language == "python" else [
                    "bash", "-euc", code]
                result = subprocess.run(command, cwd=folder, env=env, capture_output=True,
                                        text=True)
                self.assertEqual(result.returncode, 0, code + result.stdout + result.stderr)
                if "verify" in code:
                    self.assertTrue(result.stdout.startswith("MATCH"), result.stdout)
            self.assertTrue((pathlib.Path(folder) / "dw.npy").exists())

    def test_links(self):
        for name in re.findall(r"\]\(((?!http)[^)]+)\)", (ROOT / "README.md").read_text()):
            self.assertTrue((ROOT / name).exists(), name)
