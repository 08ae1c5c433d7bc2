"""The main job: what is computed, from every spelling and every way in and out."""
import itertools
import subprocess

import numpy as np
from harness import ALGORITHMS, DTYPES, OPS, CliTest, Problem, npy_bytes, save, small


class EveryOp(CliTest):
    """Shapes, attributes and forms of files: test_attributes.py draws them at random."""

    def test_dtypes_layouts_and_ways_to_compute(self):
        ways = [*(["-a", name] for name in (*ALGORITHMS, "auto")),
                *(["-b", name] for name in ("auto", "cpu", "reference"))]
        for op, dtype, last, way in itertools.product(OPS, DTYPES, (True, False), ways):
            with self.subTest(op=op, dtype=dtype, last=last, way=way):
                self.assert_computes(small(op, last), dtype, *way)

    def test_out_dtype_rounds_once(self):
        # 2049 and 257 lie between two numbers of float16 and bfloat16: ties go to the even one.
        for total, out in ((2049, "float16"), (2051, "float16"), (257, "bfloat16"),
                           (259, "bfloat16"), (70000, "float16"), (16777217, "float32")):
            problem = Problem(n=1, size=(1, 1), c=1, k=1, taps=(1, 1))
            problem.x[:], problem.dy[:] = total, 1
            with self.subTest(total=total, out=out):
                self.assert_computes(problem, "float64", "--out-dtype", out, out=out)


class Options(CliTest):
    def setUp(self):
        super().setUp()
        self.use_small()

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
        missing = self.run_here(*self.problem.args("none.npy"), "--accumulate")
        self.assert_one_error(missing, 3, "none.npy", "No such file")
        save(self.folder / "dw.npy", np.zeros((1, 2, 3, 4)))
        old = self.read("dw.npy")
        self.assert_one_error(self.run_here(*self.problem.args(), "--accumulate"), 3, "dw.npy",
                              "(1, 2, 3, 4)", "(3, 2, 2, 6)")
        save(self.folder / "other.npy", self.problem.expected(), "float64")
        self.assert_one_error(self.run_here(*self.problem.args("other.npy"), "--accumulate"), 3,
                              "other.npy", "float64", "float32", "--out-dtype float64")
        self.assert_one_error(self.run_here(*self.problem.args("-"), "--accumulate"), 2,
                              "--accumulate", "--output")
        self.assert_one_error(self.run_here(*self.problem.args(), "--accumulate", "--no-clobber"),
                              2, "--accumulate", "--no-clobber")
        self.assertEqual(self.read("dw.npy"), old)

    def test_no_clobber(self):
        self.assert_quiet(self.run_here(*self.problem.args(), "--no-clobber"))
        self.assertEqual(self.read("dw.npy"), self.want)
        self.write("dw.npy", b"precious")
        result = self.run_here(*self.problem.args(), "--no-clobber")
        self.assert_one_error(result, 3, "dw.npy", "exists", "--no-clobber")
        self.assertEqual(self.read("dw.npy"), b"precious")
        self.assertEqual(self.listing(), ["dw.npy", "dy.npy", "x.npy"])

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

    def test_list_algorithms_says_why_not(self):
        problem = small("conv2d")
        problem.save(self.folder, "float16")
        result = self.run_here(*problem.args(), "--list-algorithms")
        self.assertEqual(result.status, 0)
        for line in result.out.splitlines()[1:]:
            self.assertRegex(line, r"^[* ] \w+ +(estimated [\d.e-]+ ms|\w)", line)

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
            with self.subTest(limit):
                result = self.run_here(*self.problem.args(), "--memory-limit", limit)
                self.assert_one_error(result, 5, "--memory-limit", "needs", "raise")
                self.assertEqual(self.listing(), ["dy.npy", "x.npy"])

    def test_memory_message_adds_up(self):
        # The largest part of what is needed is named, and how to need less.
        result = self.run_here(*self.problem.args(), "-t", 4096, "--memory-limit", "30MiB")
        self.assert_one_error(result, 5, "--memory-limit", "workspace", "--threads")

    def test_blas_and_locale_do_not_matter(self):
        for env in ({"OPENBLAS_NUM_THREADS": "7"}, {"OMP_NUM_THREADS": "3"},
                    {"LC_ALL": "de_DE.UTF-8"}, {"LANG": "xx"}, {"NO_COLOR": "1"}):
            with self.subTest(env):
                self.assert_quiet(self.run_here(*self.problem.args(), env=env))
                self.assertEqual(self.read("dw.npy"), self.want)


class SameBytes(CliTest):
    """The gradient's bits depend on nothing but the problem."""

    def bytes_of(self, problem, *extra):
        return self.compute(problem, "float32", *extra, save_tensors=False)

    def blocks(self, problem, limit):
        text = self.run_here(*problem.args(), "--dry-run", "--memory-limit", limit).out
        for line in text.splitlines():
            if line.startswith("plan"):
                return line.split(" block")[0].split()[-1]
        self.fail(text)

    def test_memory_limits_change_blocks_and_nothing_else(self):
        # About 50 MiB each: many images, or one that must be cut into rows or planes.
        cases = {
            "images": Problem(n=16, size=(112, 112), c=64, k=16, taps=(3, 3), strides=(2, 2)),
            "images, channels first": Problem("depthwise", n=16, size=(80, 80), c=64, k=64,
                                              taps=(3, 3), last=False),
            "rows": Problem(n=1, size=(1000, 400), c=32, k=4, taps=(5, 3)),
            "rows, channels first": Problem(n=1, size=(1000, 400), c=32, k=4, taps=(3, 3),
                                            dilations=(3, 1), last=False),
            "planes": Problem("conv3d", n=1, size=(50, 80, 100), c=32, k=4, taps=(3, 1, 2)),
        }
        for name, problem in cases.items():
            problem.fill_normal(5).save(self.folder)
            limits = ("30MiB", "34MiB", "40MiB", "60MiB", "75MiB", "150MiB", "1GiB")
            usable = [limit for limit in limits if self.run_here(
                *problem.args(), "--dry-run", "--memory-limit", limit).status == 0]
            self.assertGreaterEqual(len(usable), 3, f"limits that suffice: {usable}")
            counts = {self.blocks(problem, limit) for limit in usable}
            self.assertGreaterEqual(len(counts), 3, f"{usable} give {counts} blocks")
            results = {self.bytes_of(problem, "--memory-limit", limit, "-t", 2)
                       for limit in usable}
            results.add(self.bytes_of(problem, "-t", 3))
            results.add(self.bytes_of(problem, "--threads", 0))
            with self.subTest(name):
                self.assertEqual(len(results), 1)
            for flags, name_of_stream in (({"x": "-"}, "x.npy"), ({"dy": "-"}, "dy.npy")):
                with self.subTest(name + ", piped", stream=name_of_stream):
                    with subprocess.Popen(["cat", self.folder / name_of_stream],
                                          stdout=subprocess.PIPE) as piped:
                        result = self.run_here(*problem.args("-", **flags), stdin=piped.stdout)
                    self.assertEqual((result.status, result.err), (0, ""))
                    self.assertIn(result.raw, results)
