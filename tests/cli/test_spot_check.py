"""--spot-check: a gradient that is wrong is never written."""
import json
import os
import shutil
import unittest

from harness import SmallTest

WRONG_BLAS = os.environ.get("CONVGRAD_WRONG_BLAS", "")
SAID = ("im2col_gemm computes a wrong gradient: ", " elements that were checked, the first [", ": got ", ", expected ",
        "nothing is written; use -b reference")


@unittest.skipUnless(WRONG_BLAS, "CONVGRAD_WRONG_BLAS does not name a library")
class SpotCheck(SmallTest):
    def setUp(self):
        super().setUp()
        (self.folder / "lib").mkdir()
        shutil.copy(WRONG_BLAS, self.folder / "lib/libopenblas.so.0")
        self.env = {"LD_LIBRARY_PATH": f"{self.folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        self.args = [*self.problem.args(), "-a", "im2col_gemm"]

    def refuse(self, *args):
        self.refuses(5, SAID, *args, "--spot-check", "16", env=self.env)

    def test_a_wrong_kernel_writes_only_unchecked(self):
        self.assert_quiet(self.run_here(*self.args, env=self.env))  # on the processor it is off
        self.assertNotEqual(self.read("dw.npy"), self.want)
        (self.folder / "dw.npy").unlink()
        self.assert_quiet(self.run_here(*self.args, "--spot-check", "0", env=self.env))
        self.assertNotEqual(self.read("dw.npy"), self.want)
        (self.folder / "dw.npy").unlink()
        self.refuse(*self.args)

    def test_a_right_kernel_writes_the_same(self):
        self.assert_quiet(self.run_here(*self.problem.args(), "--spot-check", "1000"))
        self.assertEqual(self.read("dw.npy"), self.want)

    def test_an_old_file_stays(self):
        self.assert_quiet(self.run_here(*self.problem.args()))
        for more in ([], ["--accumulate"]):
            self.refuse(*self.args, *more)

    def test_parts_and_standard_output(self):
        args = ["-i", "x.npy", "-g", "dy.npy", *self.problem.flags(), "-a", "im2col_gemm"]
        self.refuse(*args, "-o", "part.npz", "--batch-range", "1/2")
        self.refuse(*args, "-o", "-")

    def test_batch(self):
        self.write("jobs.jsonl", json.dumps(self.problem.job(output="dw.npy", algorithm="im2col_gemm", spot_check=16)))
        result = self.run_here("batch", "jobs.jsonl", env=self.env)
        self.assertEqual(result.status, 5, str(result))
        self.assertIn(SAID[0], result.err)
        self.assertFalse((self.folder / "dw.npy").exists())
