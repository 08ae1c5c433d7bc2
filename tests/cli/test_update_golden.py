"""verify --update-golden."""
import os

import numpy as np
from harness import load, npy_bytes, off, raw_npy, save, small
from verifying import VerifyTest


class UpdateGolden(VerifyTest):
    def setUp(self):
        super().setUp()
        self.golden = self.folder / "g.npy"
        self.flags = ["--golden", "g.npy", "--update-golden"]

    def test_a_new_file(self):
        out = self.verify(*self.flags)
        self.assertIn("golden: g.npy is written\n", out)
        self.assertIn("against the float64 reference", out)
        self.assertEqual(self.golden.read_bytes(), npy_bytes("float32", self.dw))
        # A wrong one is replaced.
        save(self.golden, off(self.dw, ((0, 0, 0, slice(3)), 1)))
        self.verify("--golden", "g.npy", status=1)
        out = self.verify(*self.flags)
        self.assertIn(f"golden: g.npy is written: 3 of {self.dw.size} elements change\n", out)
        self.assertEqual(self.golden.read_bytes(), npy_bytes("float32", self.dw))

    def test_the_same_file_is_left_alone(self):
        save(self.golden, self.dw)
        before = os.stat(self.golden)
        self.assertIn("golden: g.npy holds it already, to the bit\n", self.verify(*self.flags))
        after = os.stat(self.golden)
        self.assertEqual((before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns))
        # One bit is a difference: -0 for 0.
        problem = small("conv2d")
        problem.x[:] = 0
        self.prepare(problem)
        save(self.golden, -self.dw * 1.0)
        self.assertTrue(np.signbit(load(self.golden)[1]).all())
        self.assertIn("elements change", self.verify(*self.flags))
        self.assertEqual(self.golden.read_bytes(), npy_bytes("float32", self.dw))

    def test_another_dtype(self):
        save(self.golden, self.dw, "float64")
        out = self.verify(*self.flags)
        self.assertIn(f"golden: g.npy is written: 0 of {self.dw.size} elements change, float64 "
                      "before\n", out)
        self.assertEqual(self.golden.read_bytes(), npy_bytes("float32", self.dw))
        self.verify(*self.flags, "--out-dtype", "bfloat16")
        self.assertEqual(self.golden.read_bytes(), npy_bytes("bfloat16", self.dw))

    def test_a_result_becomes_the_golden_file(self):
        self.judge(self.dw, *self.flags, dtype="float64")
        self.assertEqual(self.golden.read_bytes(), npy_bytes("float64", self.dw))
        self.judge(self.dw + 1, *self.flags, "--atol", "1")   # the criterion decides
        self.assertEqual(self.golden.read_bytes(), npy_bytes("float32", self.dw + 1))

    def test_a_wrong_result_does_not(self):
        out = self.judge(self.dw + 1, *self.flags, status=1)
        self.assertIn("golden: g.npy is left as it is: the gradient does not match the reference\n",
                      out)
        self.assertFalse(self.golden.exists())
        self.golden.write_bytes(npy_bytes("float32", self.dw * 2))
        self.verify(*self.flags, "--result", "r.npy", status=1)
        self.assertEqual(self.golden.read_bytes(), npy_bytes("float32", self.dw * 2))
        # The golden file agrees with the result: that does not matter.
        save(self.golden, self.dw + 1)
        self.verify(*self.flags, "--result", "r.npy", status=1)

    def test_the_report(self):
        self.assertEqual(self.compare(*self.flags)["golden"], {"file": "g.npy", "status": "written"})
        self.assertEqual(self.compare(*self.flags)["golden"]["status"], "unchanged")
        save(self.folder / "r.npy", self.dw + 1)
        compare = self.compare(*self.flags, "--result", "r.npy", status=1)
        self.assertEqual(compare["golden"]["status"], "left")

    def test_what_is_no_golden_file_is_not_replaced(self):
        for data, part in ((b"hello", "g.npy"), (npy_bytes("float32", self.dw[:1]), "shape"),
                           (raw_npy(self.dw.shape, "'<i4'"), "int32")):
            self.golden.write_bytes(data)
            self.refuses(3, ["g.npy", part], *self.args(*self.flags))

    def test_wrong_uses(self):
        save(self.folder / "r.npy", self.dw)
        for extra, status, parts in (
                (["--update-golden"], 2, ("--update-golden", "--golden")),
                (["--golden", "-", "--update-golden"], 2, ("--golden -",)),
                (["--golden", "x.npy", "--update-golden"], 2, ("--golden", "--input")),
                (["--golden", "./dy.npy", "--update-golden"], 2, ("--golden", "--out-backprop")),
                (["--golden", "r.npy", "--update-golden", "--result", "r.npy"], 2,
                 ("--golden", "--result")),
                (["--golden", "o.npy", "--update-golden", "-o", "o.npy"], 2,
                 ("--golden", "--output")),
                (["--golden", "no/g.npy", "--update-golden"], 3, ("no/g.npy", "folder")),
                (["--golden", "r.npy", "--update-golden", "--no-clobber"], 3,
                 ("r.npy", "--no-clobber"))):
            self.refuses(status, parts, *self.args(*extra))
