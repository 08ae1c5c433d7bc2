"""The main job's options. test_verify.py and test_support.py have every operation, dtype and algorithm."""
import numpy as np
from harness import ALGORITHMS, DTYPES, SmallTest, npy_bytes, save


class Options(SmallTest):
    def test_accumulate(self):
        for dtype, form in (*((dtype, "HWIO") for dtype in DTYPES), ("float32", "OIHW")):
            with self.subTest(dtype=dtype, form=form):
                self.problem.save(self.folder, dtype)
                expected = self.problem.expected(form)
                old = np.arange(expected.size, dtype=float).reshape(expected.shape) - 40
                save(self.folder / "dw.npy", old, dtype)
                self.assert_quiet(self.run_here(*self.problem.args(), "--accumulate",
                                                "--filter-format", form))
                self.assertEqual(self.read("dw.npy"), npy_bytes(dtype, expected + old))

    def test_accumulate_refuses(self):
        save(self.folder / "dw.npy", np.zeros((1, 2, 3, 4)))
        save(self.folder / "other.npy", self.problem.expected(), "float64")
        for status, parts, output, *more in (
                (3, ["none.npy", "No such file"], "none.npy"), (3, ["dw.npy", "(1, 2, 3, 4)", "(3, 2, 2, 6)"], "dw.npy"),
                (3, ["other.npy", "float64", "float32", "--out-dtype float64"], "other.npy"),
                (2, ["--accumulate", "--output"], "-"), (2, ["--accumulate", "--no-clobber"], "dw.npy", "--no-clobber")):
            self.refuses(status, parts, *self.problem.args(output), "--accumulate", *more)

    def test_dry_run(self):
        args = self.problem.args()
        at = args.index("-o")
        result = self.succeed(*args[:at], *args[at + 2:], "--dry-run")  # without an output
        self.assertEqual(self.listing(), ["dy.npy", "x.npy"])
        # FLOPs are 2 per multiply-add, padding included.
        for part in ("conv2d float32 NHWC n2 h7 w9 c4 k6 r3 s2", "HWIO [3,2,2,6] float32",
                     f"{2 * 2 * 4 * 9 * 3 * 2 * 2 * 6:.4g} FLOPs", "memory", "limit", "im2col_gemm", "direct", "threads"):
            self.assertIn(part, result.out)
        self.write("dw.npy", b"old")
        for extra in ([], ["--no-clobber"], ["--accumulate"], ["-b", "reference"],
                      ["-a", "direct"]):
            with self.subTest(extra):
                self.assertEqual(self.run_here(*self.problem.args(), "--dry-run", *extra).status, 0)
                self.assertEqual(self.read("dw.npy"), b"old")

    def test_list_algorithms(self):
        result = self.succeed("--list-algorithms")
        for name in (*ALGORITHMS, "auto"):
            self.assertRegex(result.out, rf"(?m)^{name} +\w")
        result = self.succeed(*self.problem.args(), "--list-algorithms")
        self.assertIn("conv2d float32 NHWC", result.out)
        self.assertEqual(result.out.count("* "), 1)
        self.assertEqual(self.listing(), ["dy.npy", "x.npy"])

    def test_verbose_speaks_on_stderr_alone(self):
        result = self.run_here(*self.problem.args("-"), "-v")
        self.assertEqual((result.status, result.raw), (0, self.want))
        for part in ("conv2d float32 NHWC", "kernel", "GFLOP/s", "threads", "read", "write",
                     "total"):
            self.assertIn(part, result.err)
        self.assertNotIn("\r", result.err)

    def test_memory_limit_spellings(self):
        for limit in ("1GiB", "1gib", "1G", "512MiB", "600000000", "1024 MiB"):
            with self.subTest(limit):
                result = self.run_here(*self.problem.args(), "--memory-limit", limit)
                self.assert_quiet(result)

    def test_memory_limit_too_small(self):
        for limit in ("1", "1KiB", "1MiB"):
            self.refuses(5, ["--memory-limit", "needs", "raise"], *self.problem.args(), "--memory-limit", limit)
        # The largest part of what is needed is named, and how to need less.
        self.refuses(5, ["--memory-limit", "workspace", "--threads"], *self.problem.args(), "-t", 4096, "--memory-limit", "30MiB")

    def test_blas_and_locale_do_not_matter(self):
        for env in ({"OPENBLAS_NUM_THREADS": "7"}, {"OMP_NUM_THREADS": "3"},
                    {"LC_ALL": "de_DE.UTF-8"}, {"LANG": "xx"}, {"NO_COLOR": "1"}):
            with self.subTest(env):
                self.assert_quiet(self.run_here(*self.problem.args(), env=env))
                self.assertEqual(self.read("dw.npy"), self.want)
