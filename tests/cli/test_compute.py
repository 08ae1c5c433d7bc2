"""The main job: what is computed, from every spelling and every way in and out."""
import itertools
import os
import subprocess
import threading

import numpy as np
from harness import (ALGORITHMS, DTYPES, OPS, CliTest, Problem, load, npy_bytes, raw_npy, round_to,
                     run, save, small, to_float64)


class EveryOp(CliTest):
    def test_ops_dtypes_layouts(self):
        for op, dtype, last in itertools.product(OPS, DTYPES, (True, False)):
            with self.subTest(op=op, dtype=dtype, last=last):
                self.assert_computes(small(op, last), dtype)

    def test_paddings(self):
        for op, padding in itertools.product(OPS, ("same", "valid", "explicit")):
            if padding == "explicit":
                padding = [(1, 0), (0, 2), (3, 1)][:3 if op == "conv3d" else 2]
            with self.subTest(op=op, padding=padding):
                self.assert_computes(small(op, padding=padding))

    def test_algorithms(self):
        for op, dtype, algorithm in itertools.product(OPS, DTYPES, (*ALGORITHMS, "auto")):
            with self.subTest(op=op, dtype=dtype, algorithm=algorithm):
                self.assert_computes(small(op), dtype, "-a", algorithm)

    def test_backends(self):
        for op, dtype, backend in itertools.product(OPS, DTYPES, ("auto", "cpu", "reference")):
            with self.subTest(op=op, dtype=dtype, backend=backend):
                self.assert_computes(small(op), dtype, "--backend", backend)

    def test_filter_formats(self):
        for op, form, dtype in itertools.product(OPS, ("HWIO", "OIHW", "OHWI"),
                                                 ("float32", "bfloat16")):
            name = {"HWIO": "DHWIO", "OIHW": "OIDHW", "OHWI": "ODHWI"}[form]
            name = name if op == "conv3d" else form
            with self.subTest(op=op, form=name, dtype=dtype):
                self.assert_computes(small(op), dtype, "--filter-format", name,
                                     filter_format=form)

    def test_out_dtypes(self):
        for dtype, out in itertools.product(DTYPES, DTYPES):
            with self.subTest(dtype=dtype, out=out):
                self.assert_computes(small("conv2d"), dtype, "--out-dtype", out, out=out)

    def test_out_dtype_rounds_once(self):
        # 2049 and 257 lie between two numbers of float16 and bfloat16: ties go to the even one.
        for total, out in ((2049, "float16"), (2051, "float16"), (257, "bfloat16"),
                           (259, "bfloat16"), (70000, "float16"), (16777217, "float32")):
            problem = Problem(n=1, size=(1, 1), c=1, k=1, taps=(1, 1))
            problem.x[:], problem.dy[:] = total, 1
            with self.subTest(total=total, out=out):
                self.assert_computes(problem, "float64", "--out-dtype", out, out=out)

    def test_groups(self):
        for op, groups, c, k in (("conv2d", 1, 6, 6), ("conv2d", 2, 6, 4), ("conv2d", 3, 6, 9),
                                 ("conv2d", 6, 6, 6), ("conv2d", 6, 6, 12), ("conv3d", 2, 4, 6),
                                 ("conv3d", 4, 4, 4), ("conv2d", 32, 64, 64)):
            for last in (True, False):
                problem = small(op, last, groups=groups, c=c, k=k)
                with self.subTest(op=op, groups=groups, last=last):
                    self.assert_computes(problem)
                    sizes = ",".join(map(str, problem.filter_sizes()))
                    self.assert_computes(problem, filter_flags=["--filter-sizes", sizes])
                    self.assert_computes(
                        problem, filter_flags=["--filter-sizes", sizes, "--groups", groups])

    def test_depthwise_multipliers(self):
        for m, last in itertools.product((1, 2, 3), (True, False)):
            with self.subTest(m=m, last=last):
                self.assert_computes(small("depthwise", last, k=3 * m))


class Geometry(CliTest):
    """Shapes where kernels go wrong, with every algorithm."""

    CASES = {
        "one pixel": dict(size=(1, 1), taps=(1, 1)),
        "one pixel under 3x3": dict(size=(1, 1), taps=(3, 3)),
        "stride larger than the filter": dict(size=(9, 11), taps=(2, 2), strides=(5, 4)),
        "stride larger than the image": dict(size=(3, 4), taps=(1, 1), strides=(7, 9)),
        "prime channels": dict(size=(5, 5), c=7, k=13, taps=(3, 3)),
        "33 and 65 channels": dict(size=(4, 4), c=33, k=65, taps=(2, 2)),
        "17 output channels": dict(size=(6, 3), c=3, k=17, taps=(1, 3)),
        "padding larger than the filter": dict(size=(4, 3), taps=(2, 3),
                                               padding=[(5, 0), (4, 7)]),
        "taps that see padding alone": dict(size=(2, 2), taps=(5, 5)),
        "dilation over the edge": dict(size=(5, 6), taps=(3, 3), dilations=(4, 5)),
        "unequal strides and dilations": dict(size=(11, 9), taps=(3, 2), strides=(3, 1),
                                              dilations=(1, 3)),
        "unread trailing rows": dict(size=(8, 10), taps=(2, 2), strides=(3, 4), padding="valid"),
        "filter as large as the image": dict(size=(6, 5), taps=(6, 5), padding="valid"),
        "wide and flat": dict(size=(1, 300), taps=(1, 7)),
        "tall and thin": dict(size=(700, 1), c=2, k=2, taps=(3, 1)),
        "many images": dict(n=129, size=(2, 2), c=2, k=3, taps=(2, 2)),
        "a 7x7 first layer": dict(size=(16, 15), c=3, k=8, taps=(7, 7), strides=(2, 2)),
        "1x1 with stride": dict(size=(8, 8), c=5, k=4, taps=(1, 1), strides=(2, 2)),
        "even filter, odd padding": dict(size=(6, 6), taps=(4, 4), strides=(1, 3)),
    }
    DEPTHWISE = {
        "dilated depthwise": dict(size=(9, 9), taps=(3, 3), dilations=(2, 3)),
        "depthwise 5x5": dict(size=(7, 8), taps=(5, 5)),
        "depthwise with unequal strides": dict(size=(9, 8), taps=(3, 3), strides=(2, 1)),
        "depthwise, prime channels": dict(size=(4, 5), c=19, k=19, taps=(3, 3)),
        "depthwise, explicit padding": dict(size=(4, 5), taps=(3, 3), padding=[(4, 0), (0, 3)]),
    }
    CONV3D = {
        "3-D, all axes differ": dict(size=(5, 6, 7), taps=(3, 2, 1), strides=(2, 1, 3),
                                     dilations=(1, 3, 1)),
        "3-D, one voxel": dict(size=(1, 1, 1), taps=(1, 1, 1)),
        "3-D, explicit padding": dict(size=(3, 3, 3), taps=(2, 2, 2),
                                      padding=[(3, 0), (0, 1), (2, 2)]),
        "3-D, grouped": dict(size=(3, 4, 4), taps=(3, 3, 3), groups=2),
    }

    def check(self, op, cases, **base):
        for name, case in cases.items():
            for last, algorithm in itertools.product((True, False), ALGORITHMS):
                with self.subTest(name, last=last, algorithm=algorithm):
                    problem = Problem(op, last=last, **{**base, **case})
                    self.assert_computes(problem, "float32", "-a", algorithm)

    def test_conv2d(self):
        self.check("conv2d", self.CASES)

    def test_depthwise(self):
        self.check("depthwise", self.DEPTHWISE, c=4, k=8)
        self.check("depthwise", self.DEPTHWISE, c=4, k=4)

    def test_conv3d(self):
        self.check("conv3d", self.CONV3D, c=2, k=4)

    def test_half_types(self):
        for name, case in self.CASES.items():
            for dtype in ("float16", "bfloat16", "float64"):
                with self.subTest(name, dtype=dtype):
                    self.assert_computes(Problem(**case), dtype)

    def test_batch_sizes_around_65536(self):
        for n in (65535, 65536, 65537):
            problem = Problem(n=n, size=(1, 1), c=2, k=2, taps=(1, 1))
            problem.dy.flat[:-7] = 0  # exact in float32, and the last images count
            with self.subTest(n=n):
                self.assert_computes(problem)


class Emptiness(CliTest):
    def test_empty_batch(self):
        for op, dtype, algorithm in itertools.product(OPS, DTYPES, (*ALGORITHMS, "reference")):
            problem = small(op, n=0)
            extra = ["--backend", "reference"] if algorithm == "reference" else ["-a", algorithm]
            with self.subTest(op=op, dtype=dtype, algorithm=algorithm):
                self.assert_computes(problem, dtype, *extra)
                self.assertFalse(np.any(load(self.folder / "dw.npy")[1]))

    def test_empty_out_backprop(self):
        cases = [Problem(size=(0, 5), taps=(3, 3)), Problem(size=(5, 0), taps=(1, 1)),
                 Problem(size=(0, 0), taps=(2, 2)),
                 Problem(size=(2, 6), taps=(3, 3), padding="valid"),
                 Problem(size=(6, 4), taps=(3, 3), dilations=(1, 2), padding="valid"),
                 Problem("depthwise", size=(0, 3), c=2, k=2, taps=(1, 1)),
                 Problem("conv3d", size=(2, 0, 3), c=2, k=2, taps=(1, 1, 1))]
        for problem, algorithm in itertools.product(cases, ALGORITHMS):
            with self.subTest(size=problem.size, out=problem.out, algorithm=algorithm):
                self.assertIn(0, problem.out)
                self.assert_computes(problem, "float32", "-a", algorithm)

    def test_zeros_are_positive(self):
        problem = small("conv2d", n=0)
        for dtype in DTYPES:
            _, header_and_zeros = None, self.compute(problem, dtype)
            self.assertEqual(header_and_zeros[128:].strip(b"\0"), b"")


class Padding(CliTest):
    """A tap outside x contributes nothing, whatever dy holds there."""

    def test_nan_and_inf_that_meet_padding(self):
        # 5x5 taps over a 2x2 image: the outer taps of each pixel fall outside.
        for op, dtype, value, last in itertools.product(
                ("conv2d", "depthwise"), DTYPES, (np.nan, np.inf), (True, False)):
            problem = Problem(op, n=1, size=(2, 3), c=2, k=4, taps=(5, 5), last=last)
            problem.dy[0, 0, 0, 1] = value
            problem.x[:] = np.abs(problem.x) + 1  # no 0 * Inf
            want = problem.expected()
            self.assertTrue(np.any(~np.isfinite(want)) and np.any(np.isfinite(want)))
            for extra in (*(["-a", name] for name in ALGORITHMS), ["-b", "reference"]):
                with self.subTest(op=op, dtype=dtype, value=value, last=last, extra=extra):
                    kind, got = load(self.compute(problem, dtype, *extra))
                    np.testing.assert_array_equal(got, to_float64(kind, round_to(kind, want)))

    def test_nan_that_meets_only_padding(self):
        # Explicit padding so wide that whole rows of dy never see x.
        for op, dtype in itertools.product(OPS, DTYPES):
            rank = 3 if op == "conv3d" else 2
            problem = Problem(op, n=2, size=(3,) * rank, c=2, k=2, taps=(2,) * rank,
                              padding=[(4, 4)] * rank)
            problem.dy[:, 0] = np.nan
            problem.dy[:, -1] = -np.inf
            want = problem.expected()
            self.assertTrue(np.all(np.isfinite(want)))
            for algorithm in ALGORITHMS:
                with self.subTest(op=op, dtype=dtype, algorithm=algorithm):
                    self.assert_computes(problem, dtype, "-a", algorithm)


class FileForms(CliTest):
    """What numpy can write, convgrad can read."""

    def test_orders_and_versions(self):
        for op, last in itertools.product(("conv2d", "conv3d"), (True, False)):
            problem = small(op, last)
            problem.save(self.folder)
            want = npy_bytes("float32", problem.expected())
            x = problem.stored(problem.x)
            forms = {
                "big endian": raw_npy(x.shape, "'>f4'", x.astype(">f4").tobytes()),
                "Fortran": raw_npy(x.shape, "'<f4'", x.astype("<f4").tobytes("F"), fortran=True),
                "Fortran, big endian": raw_npy(x.shape, "'>f4'", x.astype(">f4").tobytes("F"),
                                               fortran=True),
                "2.0": raw_npy(x.shape, "'<f4'", x.astype("<f4").tobytes(), version=(2, 0)),
                "3.0": raw_npy(x.shape, "'<f4'", x.astype("<f4").tobytes(), version=(3, 0)),
                "double quotes": raw_npy(x.shape, '"<f4"', x.astype("<f4").tobytes()),
            }
            for name, data in forms.items():
                with self.subTest(name, op=op, last=last):
                    self.write("form.npy", data)
                    self.assert_quiet(self.run_here(*problem.args(x="form.npy")))
                    self.assertEqual(self.read("dw.npy"), want)
                    piped = self.run_here(*problem.args(x="-"), stdin=data)
                    self.assert_quiet(piped)
                    self.assertEqual(self.read("dw.npy"), want)

    def test_bfloat16_spellings(self):
        problem = small("conv2d")
        problem.save(self.folder, "bfloat16")
        bits = round_to("bfloat16", problem.x)
        for descr in ("'<V2'", "'>V2'", "'|V2'", "'bfloat16'"):
            with self.subTest(descr):
                payload = bits.astype(">u2" if ">" in descr else "<u2").tobytes()
                self.write("x.npy", raw_npy(bits.shape, descr, payload))
                self.assert_computes(problem, "bfloat16", save_tensors=False)

    def test_both_byte_orders_of_float16_and_float64(self):
        for dtype, descr in (("float16", ">f2"), ("float64", ">f8")):
            problem = small("depthwise")
            problem.save(self.folder, dtype)
            (self.folder / "x.npy").write_bytes(
                raw_npy(problem.x.shape, f"'{descr}'", problem.x.astype(descr).tobytes()))
            self.assert_computes(problem, dtype, save_tensors=False)


class Streams(CliTest):
    def setUp(self):
        super().setUp()
        self.problem = small("conv2d")
        self.problem.save(self.folder)
        self.x = self.read("x.npy")
        self.dy = self.read("dy.npy")
        self.want = npy_bytes("float32", self.problem.expected())

    def test_standard_output(self):
        result = self.run_here(*self.problem.args("-"))
        self.assertEqual((result.status, result.raw, result.err), (0, self.want, ""))
        self.assertEqual(self.listing(), ["dy.npy", "x.npy"])

    def test_standard_input(self):
        for flags, data in (({"x": "-"}, self.x), ({"dy": "-"}, self.dy)):
            with self.subTest(flags):
                result = self.run_here(*self.problem.args("-", **flags), stdin=data)
                self.assertEqual((result.status, result.raw, result.err), (0, self.want, ""))

    def test_standard_input_from_a_file(self):
        with open(self.folder / "x.npy", "rb") as file:
            result = self.run_here(*self.problem.args("-", x="-"), stdin=file)
        self.assertEqual((result.status, result.raw, result.err), (0, self.want, ""))

    def test_a_shell_pipe(self):
        words = " ".join(self.problem.args("-", x="-"))
        done = self.bash(f"set -o pipefail; cat x.npy | convgrad {words} | cat")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, self.want, b""))

    def test_dev_stdin_and_stdout(self):
        words = " ".join(self.problem.args("/dev/stdout", x="/dev/stdin"))
        done = self.bash(f"cat x.npy | convgrad {words} | cat")
        self.assertEqual((done.stdout, done.stderr), (self.want, b""))

    def test_fifos(self):
        received = []

        def feed(name, data):
            self.write(name, data)

        def drain(name):
            received.append(self.read(name))

        for name in ("x.fifo", "dy.fifo", "dw.fifo"):
            os.mkfifo(self.folder / name)
        threads = [threading.Thread(target=feed, args=("x.fifo", self.x), daemon=True),
                   threading.Thread(target=feed, args=("dy.fifo", self.dy), daemon=True),
                   threading.Thread(target=drain, args=("dw.fifo",), daemon=True)]
        for thread in threads:
            thread.start()
        result = self.run_here(*self.problem.args("dw.fifo", "x.fifo", "dy.fifo"))
        for thread in threads:
            thread.join(10)
        self.assert_quiet(result)
        self.assertEqual(received, [self.want])
        self.assertEqual(self.listing(), ["dw.fifo", "dy.fifo", "dy.npy", "x.fifo", "x.npy"])

    def test_two_process_substitutions(self):
        words = " ".join(self.problem.args("dw.npy", "<(cat x.npy)", "<(cat dy.npy)"))
        done = self.bash(f"convgrad {words}")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(self.read("dw.npy"), self.want)

    def test_a_slow_stream(self):
        # Bytes that come a few at a time, with a small block size.
        read, write = os.pipe()

        def trickle():
            for at in range(0, len(self.x), 97):
                os.write(write, self.x[at:at + 97])
            os.close(write)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        with os.fdopen(read, "rb") as file:
            result = self.run_here(*self.problem.args("-", x="-"), stdin=file)
        thread.join(10)
        self.assertEqual((result.status, result.raw), (0, self.want))

    def test_truncated_and_trailing_streams(self):
        for data, what in ((self.x[:-1], "truncated"), (self.x[:200], "truncated"),
                           (self.x + b"\0", "exactly one array")):
            result = self.run_here(*self.problem.args(x="-"), stdin=data)
            self.assert_one_error(result, 3, "standard input", what)
            self.assertEqual(self.listing(), ["dy.npy", "x.npy"])


class Options(CliTest):
    def setUp(self):
        super().setUp()
        self.use_small()

    def test_accumulate(self):
        for dtype in DTYPES:
            with self.subTest(dtype):
                self.problem.save(self.folder, dtype)
                old = np.arange(np.prod(self.problem.filter_sizes()), dtype=float) - 40
                old = old.reshape(self.problem.filter_sizes())
                save(self.folder / "dw.npy", old, dtype)
                self.assert_quiet(self.run_here(*self.problem.args(), "--accumulate"))
                self.assertEqual(self.read("dw.npy"),
                                 npy_bytes(dtype, self.problem.expected() + old))

    def test_accumulate_in_another_filter_format(self):
        old = np.arange(np.prod(self.problem.filter_sizes()), dtype=float)
        old = old.reshape(self.problem.expected("OIHW").shape)
        save(self.folder / "dw.npy", old)
        self.assert_quiet(self.run_here(*self.problem.args(), "--accumulate", "--filter-format",
                                        "OIHW"))
        self.assertEqual(self.read("dw.npy"),
                         npy_bytes("float32", self.problem.expected("OIHW") + old))

    def test_accumulate_twice_adds_twice(self):
        self.assert_quiet(self.run_here(*self.problem.args()))
        self.assert_quiet(self.run_here(*self.problem.args(), "--accumulate"))
        self.assertEqual(self.read("dw.npy"), npy_bytes("float32", 2 * self.problem.expected()))

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
        result = self.succeed(*self.problem.args(), "--dry-run")
        self.assertEqual(self.listing(), ["dy.npy", "x.npy"])
        for part in ("conv2d float32 NHWC n2 h7 w9 c4 k6 r3 s2", "HWIO [3,2,2,6] float32",
                     "FLOPs", "memory", "limit", "im2col_gemm", "direct", "threads"):
            self.assertIn(part, result.out)
        self.write("dw.npy", b"old")
        for extra in ([], ["--no-clobber"], ["--accumulate"], ["-b", "reference"],
                      ["-a", "direct"]):
            with self.subTest(extra):
                self.assertEqual(self.run_here(*self.problem.args(), "--dry-run", *extra).status, 0)
                self.assertEqual(self.read("dw.npy"), b"old")

    def test_dry_run_counts_flops(self):
        problem = Problem(n=2, size=(4, 4), c=3, k=5, taps=(3, 3))
        problem.save(self.folder)
        result = self.run_here(*problem.args(), "--dry-run")
        # 2 per multiply-add, padding included.
        self.assertIn(f"{2 * 2 * 16 * 9 * 3 * 5} FLOPs", result.out)

    def test_dry_run_without_output(self):
        args = self.problem.args()
        at = args.index("-o")
        self.assertEqual(self.run_here(*args[:at], *args[at + 2:], "--dry-run").status, 0)

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

    def test_cuda_is_not_available(self):
        if run("info").out.count("\ndevice "):
            self.skipTest("this machine has a CUDA device")
        for command in ([], ["verify"]):
            args = self.problem.args("none.npy")
            result = self.run_here(*command, *args, "--backend", "cuda")
            self.assert_one_error(result, 4, "--backend cuda", "CUDA", "--backend cpu")
            self.assertEqual(self.listing(), ["dy.npy", "x.npy"])

    def test_verbose_speaks_on_stderr_alone(self):
        result = self.run_here(*self.problem.args("-"), "-v")
        self.assertEqual((result.status, result.raw), (0, self.want))
        for part in ("conv2d float32 NHWC", "kernel", "GFLOP/s", "threads", "read", "write",
                     "total"):
            self.assertIn(part, result.err)
        self.assertNotIn("\r", result.err)

    def test_quiet_on_success(self):
        self.assert_quiet(self.run_here(*self.problem.args()))

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

    @staticmethod
    def normal(problem, seed=5):
        rng = np.random.default_rng(seed)
        problem.x = rng.standard_normal(problem.x.shape)
        problem.dy = rng.standard_normal(problem.dy.shape)
        return problem

    def bytes_of(self, problem, *extra):
        return self.compute(problem, "float32", *extra, save_tensors=False)

    def test_threads(self):
        cases = [Problem(n=9, size=(20, 19), c=8, k=16, taps=(3, 3)),
                 Problem("depthwise", n=9, size=(20, 19), c=8, k=16, taps=(5, 5)),
                 Problem("conv3d", n=3, size=(6, 12, 11), c=4, k=8, taps=(3, 3, 3), last=False),
                 Problem(n=9, size=(14, 14), c=8, k=16, taps=(1, 1), last=False)]
        for problem in map(self.normal, cases):
            problem.save(self.folder)
            for algorithm in (*ALGORITHMS, "reference"):
                extra = ["-b", algorithm] if algorithm == "reference" else ["-a", algorithm]
                results = {self.bytes_of(problem, *extra, "-t", t) for t in (1, 2, 3, 8)}
                with self.subTest(op=problem.op, algorithm=algorithm):
                    self.assertEqual(len(results), 1)
            self.assertEqual(self.bytes_of(problem), self.bytes_of(problem, "--threads", 0))

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
            self.normal(problem).save(self.folder)
            limits = ("30MiB", "34MiB", "40MiB", "60MiB", "75MiB", "150MiB", "1GiB")
            usable = [limit for limit in limits if self.run_here(
                *problem.args(), "--dry-run", "--memory-limit", limit).status == 0]
            self.assertGreaterEqual(len(usable), 3, f"limits that suffice: {usable}")
            counts = {self.blocks(problem, limit) for limit in usable}
            self.assertGreaterEqual(len(counts), 3, f"{usable} give {counts} blocks")
            results = {self.bytes_of(problem, "--memory-limit", limit, "-t", 2)
                       for limit in usable}
            results.add(self.bytes_of(problem, "-t", 3))
            with self.subTest(name):
                self.assertEqual(len(results), 1)
            for flags, name_of_stream in (({"x": "-"}, "x.npy"), ({"dy": "-"}, "dy.npy")):
                with self.subTest(name + ", piped", stream=name_of_stream):
                    with subprocess.Popen(["cat", self.folder / name_of_stream],
                                          stdout=subprocess.PIPE) as piped:
                        result = self.run_here(*problem.args("-", **flags), stdin=piped.stdout)
                    self.assertEqual((result.status, result.err), (0, ""))
                    self.assertIn(result.raw, results)

    def test_streams_and_files_agree(self):
        problem = self.normal(Problem(n=5, size=(20, 19), c=8, k=8, taps=(3, 3)))
        problem.save(self.folder)
        want = self.bytes_of(problem)
        x = self.read("x.npy")
        result = self.run_here(*problem.args("-", x="-"), stdin=x)
        self.assertEqual(result.raw, want)

    def test_scaling_by_a_power_of_two(self):
        problem = self.normal(Problem(n=4, size=(20, 19), c=8, k=8, taps=(3, 3)))
        problem.save(self.folder)
        for algorithm in ALGORITHMS:
            want = load(self.bytes_of(problem, "-a", algorithm))[1]
            save(self.folder / "scaled.npy", problem.dy * 2.0**-20)
            self.assert_quiet(self.run_here(*problem.args(dy="scaled.npy"), "-a", algorithm))
            got = load(self.folder / "dw.npy")[1] * 2.0**20
            np.testing.assert_array_equal(got, want)

    def test_a_second_run_gives_the_same_bytes(self):
        problem = self.normal(small("conv2d"))
        problem.save(self.folder)
        self.assertEqual(self.bytes_of(problem), self.bytes_of(problem))
