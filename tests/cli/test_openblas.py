"""OpenBLAS is loaded by what needs it, and by nothing else; where it is wrong, --spot-check writes no gradient."""
import json
import os
import shutil
import unittest

from faults import INJECT
from harness import SmallTest

WRONG_BLAS = os.environ.get("CONVGRAD_WRONG_BLAS", "")
SAID = ("im2col_gemm computes a wrong gradient: ", " elements that were checked, the first [", ": got ", ", expected ",
        "nothing is written; use -b reference")


class BlasTest(SmallTest):
    def found_first(self, make):
        """An environment in which what make(path) puts there is found as OpenBLAS."""
        (self.folder / "lib").mkdir(exist_ok=True)
        path = self.folder / "lib" / "libopenblas.so.0"
        path.unlink(missing_ok=True)
        make(path)
        return {"LD_LIBRARY_PATH": f"{path.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"}


class Loaded(BlasTest):
    def with_algorithm(self, algorithm, *more, env=None):
        (self.folder / "dw.npy").unlink(missing_ok=True)
        return self.run_here(*self.problem.args(), "-a", algorithm, *more, env=env)

    @unittest.skipUnless(INJECT, "CONVGRAD_FAULT_LIBRARY does not name a library")
    def test_a_library_that_is_not_openblas(self):
        env = self.found_first(lambda path: shutil.copy(INJECT, path))
        self.assertEqual(self.run_here("--version", env=env).status, 0)
        self.assert_quiet(self.with_algorithm("direct", env=env))
        self.assertEqual(self.read("dw.npy"), self.want)
        result = self.with_algorithm("im2col_gemm", env=env)
        self.assert_one_error(result, 5, "libopenblas.so.0 has no cblas_sgemm", "install")
        self.assertEqual(self.listing(), ["dy.npy", "lib", "x.npy"])
        self.assert_one_error(self.run_here("info", env=env), 5, "has no cblas_sgemm")

    def test_what_does_not_need_it_does_not_load_it(self):
        for algorithm, is_needed in (("direct", False), ("im2col_gemm", True)):
            for command in ([], ["verify"]):
                output = [] if command else ["-o", "dw.npy"]
                args = ["-i", "x.npy", "-g", "dy.npy", *self.problem.flags(), *output]
                env = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(self.folder / "loaded")}
                result = self.run_here(*command, *args, "-a", algorithm, "--json=report.json", env=env)
                (log,) = self.folder.glob("loaded.*")
                with self.subTest(command=command, algorithm=algorithm):
                    self.assertEqual(result.status, 0, str(result))
                    self.assertEqual("libopenblas" in log.read_text(), is_needed)
                log.unlink()

    def test_not_to_be_loaded_by_its_name(self):
        # What it was built with is next.
        env = self.found_first(lambda path: path.write_bytes(b"no library"))
        self.assert_quiet(self.with_algorithm("im2col_gemm", env=env))
        self.assertEqual(self.read("dw.npy"), self.want)


@unittest.skipUnless(WRONG_BLAS, "CONVGRAD_WRONG_BLAS does not name a library")
class SpotCheck(BlasTest):
    def setUp(self):
        super().setUp()
        self.env = self.found_first(lambda path: shutil.copy(WRONG_BLAS, path))
        self.args = [*self.problem.args(), "-a", "im2col_gemm"]

    def refuse(self, *args):
        self.refuses(5, SAID, *args, "--spot-check", "16", env=self.env)

    def test_a_wrong_kernel_writes_only_unchecked(self):
        for more in ([], ["--spot-check", "0"]):   # on the processor it is off
            self.assert_quiet(self.run_here(*self.args, *more, env=self.env))
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
