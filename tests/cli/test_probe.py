"""generate --signs and verify --signs: a kernel judged on a dy with random signs; results that are added to a buffer or
multiplied; dtypes that were not meant."""

import numpy as np
from harness import OPS, Problem, load, npy_bytes, round_to, save, single, small, to_float64
from verifying import VerifyTest

MASK = np.uint64(0xFFFFFFFF)
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def philox(count, seed, stream):
    """Two arrays of 64 random bits for the elements 0 .. count - 1: Philox4x32-10."""
    i = np.arange(count, dtype=np.uint64)
    c = [i & MASK, i >> np.uint64(32), np.full(count, stream, np.uint64), np.zeros_like(i)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & MASK,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & MASK]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0] | c[1] << np.uint64(32), c[2] | c[3] << np.uint64(32)


def signs(pixels, seed):
    """docs/generate.md, written down again."""
    a, b = philox(-(-pixels // 128), seed, 4)
    words = np.stack([a, b], 1).reshape(-1)
    i = np.arange(pixels)
    return np.where(words[i // 64] >> (i % 64).astype(np.uint64) & np.uint64(1), -1.0, 1.0)


def signed(dy, seed):
    """dy with its channels last."""
    return dy * signs(dy[..., 0].size, seed).reshape(*dy.shape[:-1], 1)


def signed_gradient(problem, seed, form="HWIO"):
    return problem.but(dy=signed(problem.dy, seed)).expected(form)


def rolled(values, seed=1):
    """Normal numbers in the place of others."""
    return single(np.random.default_rng(seed).standard_normal(values.shape))


def plain(problem, dy, dtype=np.float32):
    """A 3x3 filter's gradient by sums of float32, image by image and row by row."""
    x = np.pad(problem.x, ((0, 0), (1, 1), (1, 1), (0, 0))).astype(dtype)
    n, h, w, k = dy.shape
    dw = np.zeros((3, 3, problem.c, k), dtype)
    for r, s in np.ndindex(3, 3):
        for i, p in np.ndindex(n, h):
            for q in range(w):
                dw[r, s] += x[i, r + p, s + q][:, None] * dy[i, p, q].astype(dtype)
    return dw


class Signs(VerifyTest):
    def sign(self, seed, *extra, out="dy_s.npy", **more):
        return self.succeed("generate", "--from", "dy.npy", "--signs", seed, "-o", out, *extra, **more)

    def test_the_signs_are_those_of_the_seed_in_every_layout(self):
        for op in OPS:
            for last in (True, False):
                for dtype in ("float32", "bfloat16", "float64", "float16"):
                    problem = small(op, last, n=5)
                    problem.dy.flat[:2] = 0, np.inf
                    self.prepare(problem, dtype)
                    out = self.sign(2**40 + 7, "-f", problem.data_format, "--clobber").out
                    kind, got = load(self.folder / "dy_s.npy")
                    with self.subTest(op=op, last=last, dtype=dtype):
                        self.assertIn(f"dy_s.npy: {dtype} (", out)
                        self.assertEqual(kind, dtype)
                        np.testing.assert_array_equal(got, problem.stored(signed(problem.dy, 2**40 + 7)))
                        self.assertEqual(np.signbit(got).sum(), np.signbit(problem.stored(signed(problem.dy, 2**40 + 7))).sum())

    def test_a_right_kernel_matches_and_a_wrong_one_does_not(self):
        for op in OPS:
            for last in (True, False):
                problem = small(op, last, n=6).fill_normal(3)
                for dtype in ("float32", "bfloat16"):
                    for name in ("x", "dy"):
                        setattr(problem, name, to_float64(dtype, round_to(dtype, getattr(problem, name))))
                    self.prepare(problem, dtype)
                    self.result_file(signed_gradient(problem, 5), dtype, "dw_s.npy")
                    with self.subTest(op=op, last=last, dtype=dtype):
                        text = self.verify("--signs", 5, "--result", "dw_s.npy")
                        self.assertIn("rms of error/rounding <= 1*g(n)", text)
                        self.verify("--signs", 5, "--result", "dw_s.npy", "--sample", 9, "-t", 3, "--memory-limit", "40MiB")
                        self.verify("--signs", 6, "--result", "dw_s.npy", "--diagnosis", "off", status=1)
                        self.verify("--result", "dw_s.npy", "--diagnosis", "off", status=1)
                        # Its own kernels run on what they read, too.
                        self.verify("--signs", 5)

    def test_the_slack_is_one(self):
        self.prepare(Problem(n=40, size=(12, 12), c=4, k=4, taps=(3, 3)).fill_normal(1))
        right = plain(self.problem, signed(self.problem.dy, 1))
        self.judge(right, "--signs", 1)
        noise = 3e-7 * np.sqrt(np.mean(right**2)) * np.random.default_rng(1).standard_normal(right.shape)
        self.judge(right + 12 * noise, "--signs", 1, "--slack", 3)
        report = self.report("--result", "r.npy", "--signs", 1, status=1)
        self.assertEqual(report["compare"]["reason"], "accuracy")
        self.assertNotIn("nothing is wrong with it", " ".join(report["compare"]["diagnosis"]["text"]))

    def test_streams_archives_and_rows_at_a_time(self):
        problem = Problem(n=3, size=(40, 30), c=3, k=5, taps=(3, 3)).fill_normal(2)
        self.prepare(problem)
        whole = self.sign(3).out
        want = npy_bytes("float32", signed(problem.dy, 3))
        self.assertEqual(self.read("dy_s.npy"), want)
        self.assertEqual(self.run_here("generate", "--from", "-", "--signs", 3, "-o", "-", stdin=self.read("dy.npy")).raw, want)
        np.savez_compressed(self.folder / "t.npz", dy=problem.dy.astype("f4"))
        self.succeed("generate", "--from", "t.npz:dy", "--signs", 3, "-o", "s.npz:dy")
        with np.load(self.folder / "s.npz") as archive:
            np.testing.assert_array_equal(archive["dy"], signed(problem.dy, 3).astype("f4"))
        np.save(self.folder / "f.npy", np.asfortranarray(problem.dy.astype(">f4")))
        self.succeed("generate", "--from", "f.npy", "--signs", 3, "-o", "f_s.npy")
        self.assertEqual(self.read("f_s.npy"), want)
        self.assertIn("sha256:", whole)
        self.result_file(signed_gradient(problem, 3), name="dw_s.npy")
        flags = ["--signs", 3, "--result", "dw_s.npy"]
        self.verify(*flags)
        common = ["verify", "-i", "x.npy", *problem.flags(), *flags]
        for files in (["-g", "-"], ["-g", "t.npz:dy"], ["-g", "f.npy"], ["-g", "-", "--memory-limit", "40MiB"]):
            result = self.run_here(*common, *files, stdin=self.read("dy.npy"))
            self.assertEqual(result.status, 0, str(result))

    def test_float8_keeps_zeros_and_nan(self):
        for dtype in FLOAT8:
            bits = np.arange(2 * 8 * 16, dtype=np.uint8).reshape(2, 8, 16, 1)
            np.save(self.folder / "dy.npy", bits)
            self.sign(9, "--dtype", dtype, "--clobber")
            got = np.load(self.folder / "dy_s.npy").view(np.uint8)
            flips = (signs(256, 9).reshape(bits.shape) < 0) & ((bits & 0x7f != 0) | (not dtype.endswith("uz")))
            np.testing.assert_array_equal(got, np.where(flips, bits ^ 0x80, bits))
            # Both are judged as the same numbers: of 0.5 to 1, which are alike in the four.
            tensors = np.random.default_rng(1).integers(0x30, 0x38, (2, 8, 16, 3), np.uint8)
            np.save(self.folder / "dy.npy", tensors)
            np.save(self.folder / "x.npy", tensors)
            self.sign(9, "--dtype", dtype, "--clobber")
            layer = ["--op", "conv2d", "-k", 3, "-p", "same", "-i", "x.npy", "--input-dtype", dtype,
                     "--out-backprop-dtype", dtype]
            self.succeed(*layer, "-g", "dy_s.npy", "-o", "dw_s.npy")
            self.succeed("verify", *layer, "-g", "dy.npy", "--signs", 9, "--result", "dw_s.npy")

    def test_a_fault_is_named(self):
        problem = Problem(n=4, size=(9, 8), c=4, k=6, taps=(3, 3)).fill_normal(1)
        self.prepare(problem)
        text = self.judge(signed_gradient(problem, 2)[::-1, ::-1], "--signs", 2, status=1)
        self.assertIn("diagnosis: the result matches if the filter is flipped in h and w", text)

    def test_a_file_that_is_there_stays(self):
        self.write("dy_s.npy", b"mine")
        words = ["generate", "--from", "dy.npy", "--signs", 1, "-o", "dy_s.npy"]
        self.refuses(3, ["dy_s.npy: exists already", "another file", "--clobber"], *words)
        self.succeed(*words, "--clobber")
        self.refuses(2, ["dy.npy", "--from"], *words[:-1], "dy.npy", "--clobber")

    def test_wrong_uses(self):
        save(self.folder / "rank2.npy", np.zeros((3, 4)))
        np.save(self.folder / "bytes.npy", np.zeros((1, 2, 2, 1), np.uint8))
        out = ["-o", "dy_s.npy"]
        for args, status, parts in (
                (["--signs", 1, *out], 2, ["--from is missing"]),
                (["--from", "dy.npy", *out], 2, ["--signs is missing"]),
                (["--from", "dy.npy", "--signs", 1], 2, ["--output is missing"]),
                (["--from", "dy.npy", "--signs", -1, *out], 2, ["--signs"]),
                (["--from", "dy.npy", "--signs", 1, "--dist", "normal", *out], 2, ["--dist", "--from"]),
                (["--from", "dy.npy", "--signs", 1, "-k", 3, *out], 2, ["--kernel", "--from"]),
                (["--from", "dy.npy", "--signs", 1, "-f", "NDHWC", *out], 2, ["NDHWC"]),
                (["--from", "dy.npy", "--signs", 1, "--op", "conv3d", *out], 3, ["dy.npy", "4 axes, expected 5"]),
                (["--from", "dy.npy", "--signs", 1, "--problem", "conv2d n1 h4 w4 c1 k1 r1 s1", *out], 3, ["dy.npy", "--problem"]),
                (["--from", "rank2.npy", "--signs", 1, *out], 3, ["rank2.npy", "2 axes"]),
                (["--from", "bytes.npy", "--signs", 1, *out], 3, ["bytes.npy", "--dtype"])):
            self.refuses(status, parts, "generate", *args)


class Accumulated(VerifyTest):
    def setUp(self):
        super().setUp()
        self.prepare(Problem(n=2, size=(8, 8), c=3, k=4, taps=(3, 3)).fill_normal(3))
        self.old = 100 * rolled(self.dw)

    def check(self, values, *flags, dtype="float32", old=None, status=0):
        self.result_file(self.old if old is None else old, dtype, "old.npy")
        return self.judge(values, "--accumulated-on", "old.npy", *flags, dtype=dtype, status=status)

    def test_a_buffer_of_float32(self):
        self.check(self.old + self.dw)
        self.check(self.old + self.dw, "--sample", 20)
        self.check(-.25 * self.old + 3 * self.dw, "--alpha", 3, "--beta=-.25")
        self.check(self.dw, "--beta", 0, old=np.full_like(self.old, np.nan))
        text = self.check(self.old + self.dw, status=1, old=self.old * 1.001)
        self.assertIn("MISMATCH", text)
        self.check(self.old + self.dw[::-1], status=1)
        self.check(self.dw, status=1)
        self.judge(self.old + self.dw, "--diagnosis", "off", status=1)

    def test_a_buffer_of_bfloat16_is_rounded_once_or_twice(self):
        for size in (1, 100):
            old = to_float64("bfloat16", round_to("bfloat16", size * rolled(self.dw)))
            self.check(old + self.dw, "--out-dtype", "bfloat16", dtype="bfloat16", old=old)
            twice = (old.astype("f4") + self.dw.astype("f4")).astype("f4")
            self.check(twice, "--out-dtype", "bfloat16", dtype="bfloat16", old=old)
            # A gradient that is rounded to bfloat16 first is not.
            thrice = old + to_float64("bfloat16", round_to("bfloat16", self.dw))
            if size == 1:
                self.check(thrice, "--out-dtype", "bfloat16", dtype="bfloat16", old=old, status=1)

    def test_float64_keeps_its_digits(self):
        problem = self.problem
        self.prepare(problem, "float64")
        exact = self.old.astype(np.longdouble) * 3 + self.dw.astype(np.longdouble)
        self.check(exact.astype("f8"), "--beta", 3, dtype="float64")
        self.check(exact.astype("f8") * (1 + 1e-13), "--beta", 3, dtype="float64", status=1)

    def test_alpha_alone(self):
        scale = 1 / (.37 * 5.3)
        self.judge(scale * self.dw, "--alpha", repr(scale))
        self.judge(scale * self.dw, "--alpha", repr(scale), "--sample", 9)
        self.judge(-self.dw, "--alpha=-1")
        text = self.judge(scale * self.dw[::-1, ::-1], "--alpha", repr(scale), status=1)
        self.assertIn("matches if the filter is flipped in h and w (all", text)
        self.judge(scale * 1.00001 * self.dw, "--alpha", repr(scale), "--diagnosis", "off", status=1)

    def test_the_diagnosis_is_of_the_gradient(self):
        text = self.check(.5 * self.old + 2 * self.dw[:, ::-1], "--alpha", 2, "--beta", .5, status=1)
        self.assertIn("matches if the filter is flipped in w (all", text)

    def test_with_signs_and_another_filter_format(self):
        dw = signed_gradient(self.problem, 4, "OIHW")
        old = 100 * rolled(dw)
        self.check(old + dw, "--signs", 4, "--filter-format", "OIHW", old=old)

    def test_wrong_uses(self):
        self.result_file(self.old, name="old.npy")
        self.result_file(self.old[..., :2], name="narrow.npy")
        self.result_file(self.old, "float64", "old64.npy")
        self.result_file(self.dw)
        result = ["--result", "r.npy"]
        for extra, status, parts in (
                (["--accumulated-on", "old.npy"], 2, ("--accumulated-on", "--result")),
                (["--alpha", 2], 2, ("--alpha", "--result")),
                ([*result, "--beta", 2], 2, ("--beta", "--accumulated-on")),
                ([*result, "--alpha", 0], 2, ("--alpha", "another number")),
                ([*result, "--alpha", "inf"], 2, ("--alpha",)),
                ([*result, "--accumulated-on", "old.npy", "--golden", "old.npy", "--bitwise"], 2, ("--accumulated-on", "--golden")),
                ([*result, "--accumulated-on", "narrow.npy"], 3, ("narrow.npy", "shape")),
                ([*result, "--accumulated-on", "none.npy"], 3, ("none.npy",)),
                ([*result, "--accumulated-on", "old64.npy"], 3, ("--accumulated-on", "float64", "float32"))):
            self.refuses(status, parts, *self.args(*extra))


class NarrowDtype(VerifyTest):
    def test_a_narrower_dtype_has_to_be_meant(self):
        text = self.judge(self.dw, dtype="float16", status=1)
        self.assertTrue(text.startswith("MISMATCH: r.npy is float16, narrower than the float32 data (--out-dtype float16 if that is "
                                        "meant); its numbers match\n"), text)
        self.assertEqual(self.compare("--result", "r.npy", status=1)["reason"], "dtype")
        self.judge(self.dw, "--out-dtype", "float16", dtype="float16")
        text = self.judge(self.dw, "--out-dtype", "float32", dtype="bfloat16", status=1)
        self.assertIn("MISMATCH: r.npy is bfloat16, expected float32; its numbers match\n", text)
        text = self.judge(self.dw + 1, "--diagnosis", "off", dtype="float16", status=1)
        self.assertIn("\nreason: dtype: r.npy is float16, narrower", text)
        self.judge(self.dw, dtype="float64")
        self.judge(self.dw, "--out-dtype", "float32", dtype="float64", status=1)
        self.result_file(self.dw, name="other.npy")
        self.verify("--result", "other.npy", "--result", "r.npy", "--out-dtype", "float32", status=1)

    def test_wider_ones_are_usual(self):
        self.prepare(small("conv2d"), "bfloat16")
        for dtype in ("bfloat16", "float16", "float32", "float64"):
            self.judge(self.dw, dtype=dtype)
        line = "conv2d bfloat16->float32 n2 h7 w9 c4 k6 r3 s2 stride2,1 dilation1,2 pad_same groups2"
        flags = ["verify", "-i", "x.npy", "-g", "dy.npy", "--problem", line, "--result", "r.npy"]
        self.result_file(self.dw, "float32")
        self.succeed(*flags)
        self.result_file(self.dw, "bfloat16")
        self.assertIn("r.npy is bfloat16, expected float32", self.run_here(*flags).out)
