"""verify: the verdict, its status and its report."""
import itertools
import json
import re
import shlex

import numpy as np
from harness import ALGORITHMS, DTYPES, OPS, Problem, npy_bytes, off, put, small
from verifying import VerifyTest


class Match(VerifyTest):
    def test_own_results(self):
        ways = [*(["-a", name] for name in ALGORITHMS), ["-b", "reference"], ["-b", "cpu"]]
        for i, (op, dtype) in enumerate(itertools.product(OPS, DTYPES)):
            self.prepare(small(op).fill_normal(1), dtype)
            for extra in ways[(i + i // 4) % 4::4]:
                with self.subTest(op=op, dtype=dtype, extra=extra):
                    self.verify(*extra)
            self.assert_quiet(self.run_here("-o", "dw.npy", *self.args()[1:]))
            self.verify("--result", "dw.npy")
            self.verify("--result", "dw.npy", "--golden", "dw.npy", "--bitwise")

    def test_an_empty_batch(self):
        self.prepare(small("conv2d", n=0))
        out = self.verify()
        self.assertIn("MATCH, but nothing was tested: there are no images; ", out)

    def test_all_zero_warns(self):
        problem = small("conv2d")
        problem.x[:] = 0
        self.prepare(problem)
        self.assertIn("MATCH, but nothing was tested: x is all zeros; ", self.verify())
        self.assertTrue(self.compare()["all_zero"])
        self.assertTrue(self.compare()["vacuous"])
        self.assertIn("MISMATCH: nothing was tested: x is all zeros; ",
                      self.verify("--fail-vacuous", status=1))
        self.assertIn("72 of 72 elements fail", self.judge(self.dw * 0 + 1, "--fail-vacuous", status=1))
        problem.x[:], problem.dy[:] = 1, 0
        self.prepare(problem)
        self.assertIn("MATCH, but nothing was tested: dy is all zeros; ", self.verify())
        problem.dy[0, 0, 0, 0] = 1
        problem.x[:] = np.inf
        self.prepare(problem)
        self.assertIn("MATCH, but nothing was tested: no expected value is finite; ", self.verify())
        self.prepare(small("conv2d"))
        self.assertNotIn("nothing was tested", self.verify("--fail-vacuous"))
        self.assertFalse(self.compare()["vacuous"])
        self.assertFalse(self.compare()["all_zero"])

    def test_output_is_written_too(self):
        self.assertIn(" ms", self.run_here(*self.args("-o", "dw.npy", "-v")).err)
        self.assertEqual(self.read("dw.npy"), npy_bytes("float32", self.dw))
        self.refuses(3, ["dw.npy", "--no-clobber"], *self.args("-o", "dw.npy", "--no-clobber"))


class Mismatch(VerifyTest):
    def test_one_element(self):
        """Text.test_mismatch has all that is said of conv2d's."""
        for op, index in (("depthwise", (0, 2, 1, 1)), ("conv3d", (1, 2, 0, 1, 2))):
            self.prepare(small(op))
            with self.subTest(op):
                out = self.judge(off(self.dw, (index, 2)), status=1)
                tap = "[" + ",".join(map(str, index[:-2])) + "]"
                self.assertRegex(out, rf"(?m)^ *{re.escape(tap)} +1 +2\b")
                self.assertEqual(self.compare("--result", "r.npy", status=1)["max_abs"],
                                 {"value": 2.0, "index": list(index), "got": self.dw[index] + 2,
                                  "want": self.dw[index]})

    def test_another_filter_format_still_names_tensorflows_index(self):
        values = self.problem.expected("OIHW")
        values[4, 1, 2, 0] += 5  # [k, c, r, s]
        self.result_file(values)
        compare = self.compare("--result", "r.npy", "--filter-format", "OIHW", status=1)
        self.assertEqual(compare["first_mismatch"]["index"], [2, 0, 1, 4])

    def test_non_finite(self):
        """Whatever the criterion: compare_test.cpp."""
        for value, nan, inf in ((np.nan, 1, 0), (-np.inf, 0, 1)):
            out = self.judge(put(self.dw, ((1, 0, 1, 2), value)), "--atol", "1e300", status=1)
            self.assertIn(f"non-finite: got {nan} NaN, {inf} Inf; want 0 NaN, 0 Inf", out)
            compare = self.compare("--result", "r.npy", status=1)
            self.assertEqual(compare["nonfinite"]["got"], {"nan": nan, "inf": inf})
            self.assertEqual(compare["max_abs"]["value"], "inf")
            self.assertEqual(compare["first_mismatch"]["got"], "nan" if nan else "-inf")

    def test_many_taps_are_summed_up(self):
        self.prepare(Problem(n=1, size=(9, 9), c=1, k=1, taps=(7, 7)))
        out = self.judge(self.dw + 1, status=1)
        rows = [line for line in out.splitlines() if line.startswith("  [")]
        self.assertEqual(len(rows), 32)
        self.assertRegex(out, r"\n  17 more +17 +1\b")


class Beyond(VerifyTest):
    """Sums that the result's dtype does not hold: any gradient that is far enough off matches."""
    meant = {}

    def batch_out(self):
        self.write("jobs.jsonl", json.dumps(self.problem.job(result="r.npy", command="verify", **self.meant)) + "\n")
        return self.run_here("batch", "jobs.jsonl").out

    def check(self, dtype, x, dy, text):
        problem = small("conv2d")
        problem.x = (problem.x + 9) * x  # positive
        problem.dy = (problem.dy + 9) * dy
        problem.save(self.folder, dtype)
        self.problem = problem
        with np.errstate(over="ignore"):
            self.result_file(problem.expected(), dtype)
        with self.subTest(dtype=dtype, text=text):
            out = self.verify("--result", "r.npy")
            self.assertIn(f"MATCH, but nothing was tested: every element {text} holds them); ", out)
            self.assertNotIn("would have failed", out)
            self.assertIn(f"MISMATCH: nothing was tested: every element {text}",
                          self.verify("--result", "r.npy", "--fail-vacuous", status=1))
            self.assertIn(f"warning: nothing was tested: every element {text}", self.batch_out())

    def test_every_element(self):
        self.check("float16", 60, 60, "overflows float16 (--out-dtype float32")
        self.check("float16", 1e-6, 1e-6, "underflows float16 (--out-dtype float32")
        self.check("bfloat16", 1e20, 1e20, "overflows bfloat16 (--out-dtype float64")
        self.check("float32", 1e20, 1e20, "overflows float32 (--out-dtype float64")
        self.check("float32", 1e-25, 1e-25, "underflows float32 (--out-dtype float64")

    def test_some_elements(self):
        problem = small("conv2d")
        problem.x[..., 0] *= 1000
        problem.dy[..., 1] *= 1000
        self.prepare(problem)
        with np.errstate(over="ignore"):
            values = self.dw.astype("f2")
        count = int(np.isinf(values).sum())
        self.assertGreater(count, 3)
        self.FLAGS, self.meant = ["--out-dtype", "float16"], {"out_dtype": "float16"}
        out = self.judge(values, "--fail-vacuous", dtype="float16")
        self.assertIn(f"\nnot tested: {count} of 72 elements, which overflow float16\n", out)
        self.assertNotIn("non-finite", out)
        result = self.run_here(*self.args("--result", "r.npy", "-v"))
        self.assertIn(f"non-finite: got 0 NaN, {count} Inf; want 0 NaN, {count} Inf", result.out)
        compare = self.compare("--result", "r.npy")
        self.assertEqual(compare["nonfinite"]["want"], {"nan": 0, "inf": count})
        self.assertEqual(compare["not_tested"], [f"{count} of 72 elements, which overflow float16"])
        self.assertRegex(self.batch_out(), rf" ms; not tested: {count} of 72 elements, which overflow float16\n")
        # "Would have failed" speaks of the others: of their root mean square.
        self.result_file(np.where(np.isinf(values), 0, values), "float16")
        rms = np.sqrt(np.mean(np.float64(values[np.isfinite(values)]) ** 2))
        index = np.unravel_index(np.argmin(np.where(np.isinf(values), np.inf, abs(values))),
                                 values.shape)
        element = compare["rounding"]["detectable"]["element"]
        for factor, status in ((3, 1), (0, 0)):
            with np.errstate(over="ignore"):
                values = off(self.dw, (index, factor * element * rms)).astype("f2")
            self.judge(values, dtype="float16", status=status)
        # A saturated element is wrong, and its error is of the sum that overflows.
        out = self.judge(np.clip(self.dw, -65504, 65504), "--diagnosis", "off", dtype="float16", status=1)
        self.assertIn(f"want 0 NaN, {count} Inf", out)

    def test_sums_as_small_as_right_ones_are_off_by_are_not_tested(self):
        problem = Problem(n=2, size=(1, 1), c=1, k=1, taps=(1, 1))
        problem.x[:] = 1
        problem.dy.flat = [1, -1 + 2.0**-24]
        self.prepare(problem)
        out = self.judge(np.zeros((1, 1, 1, 1)), "--out-dtype", "float16", dtype="float16")
        self.assertTrue(out.startswith("MATCH, but nothing was tested: zeros would match too; "), out)

    def test_nothing_is_tested_where_zeros_or_half_of_the_gradient_match(self):
        """Public report: sums of equal float32 numbers that stop at 2^24."""
        problem = Problem(n=1, size=(5000, 5000), c=1, k=1, taps=(1, 1))
        problem.x[:], problem.dy[:] = 1, 1
        self.prepare(problem, "float16")
        for value in (2**24, 12.5e6):
            out = self.judge(np.full((1, 1, 1, 1), value), "--out-dtype", "float32", "--fail-vacuous", status=1)
            self.assertIn("MISMATCH: nothing was tested: zeros would match too, as a float32 sum of equal terms stops at 16777216 of them", out)
        self.judge(np.zeros((1, 1, 1, 1)), "--out-dtype", "float32")
        self.judge(np.full((1, 1, 1, 1), 12.5e6), "--out-dtype", "float32", "--longest-sum", 512, "--diagnosis", "off", status=1)
        out = self.judge(np.full((1, 1, 1, 1), 2**24), "--out-dtype", "float32", "--longest-sum", 512, status=1)
        self.assertIn("MISMATCH: sums in float32 stop at 16777216 equal terms (1 of 1 elements fail)", out)

    def test_a_large_tolerance_tests_nothing(self):
        for flags in (("--atol", 1e9), ("--rtol", 1)):
            self.assertIn("nothing was tested: ", self.judge(self.dw, *flags, "--fail-vacuous", status=1))

    def test_a_gradient_of_exact_zeros(self):
        """Each image is there with dy and with -dy: a kernel that pairs images returns 0, which is exact."""
        problem = Problem(n=4, size=(8, 8), c=2, k=2, taps=(3, 3))
        problem.fill_normal(3)
        problem.x[2:], problem.dy[2:] = problem.x[:2], -problem.dy[:2]
        self.prepare(problem)
        out = self.judge(np.zeros((3, 3, 2, 2)))
        self.assertTrue(out.startswith("MATCH: "), out)
        self.assertIn("\nthe gradient is 0 as far as float64 shows; ", out)
        self.judge(np.full((3, 3, 2, 2), 1e-3), status=1)


class NotTested(VerifyTest):
    """What a match could not have seen because of the data."""

    def texts(self, change=lambda problem: None, **more):
        problem = Problem(**{"n": 4, "size": (8, 8), "c": 4, "k": 5, "taps": (3, 3),
                             "padding": "valid", **more})
        problem.fill_normal(5)
        change(problem)
        self.prepare(problem)
        compare = self.compare()
        texts = compare.get("not_tested", [])
        line = f"\nnot tested: {'; '.join(texts)}\n"
        for extra in ([], ["--sample", 40], ["-t", 1]):
            out = self.verify(*extra)
            self.assertEqual(line in out, bool(texts), out)
            self.assertEqual("\nnot tested: " in out, bool(texts), out)
        return texts

    def test_random_tensors_show_all_though_they_are_mostly_zeros(self):
        def change(problem):
            for tensor in (problem.x, problem.dy):
                tensor[np.random.default_rng(6).random(tensor.shape) < 0.8] = 0
        for last in (True, False):
            self.assertEqual(self.texts(change, last=last, n=8, c=12, k=12), [])
            self.assertEqual(self.texts(last=last), [])
        self.assertEqual(self.texts(op="conv3d", size=(4, 5, 4), taps=(2, 2, 2)), [])

    def test_constants(self):
        def both(problem):
            problem.x[:], problem.dy[:] = -3, 1
        for last in (True, False):
            self.assertEqual(self.texts(both, last=last),
                             ["x is constant, so no order of its elements",
                              "dy is constant, so no order of its elements"])
        # A mismatch is one, whatever else was not tested.
        self.assertNotIn("not tested", self.judge(self.dw + 1, status=1))

    def test_the_same_along_an_axis(self):
        names = ("images", "rows", "columns", "channels")
        for last in (True, False):
            for axis, name in enumerate(names):
                for tensor in ("x", "dy"):
                    def change(problem):
                        values = getattr(problem, tensor)
                        values[:] = np.take(values, [0], axis)
                    self.assertEqual(self.texts(change, last=last),
                                     [f"{tensor} is the same in all {name}, so not their order"])
        def planes(problem):
            problem.x[:] = problem.x[:, :1]
        self.assertEqual(self.texts(planes, op="conv3d", size=(4, 5, 4), taps=(2, 2, 2)),
                         ["x is the same in all planes, so not their order"])

    def test_some_images_and_channels(self):
        def change(problem):
            problem.x[2] = problem.x[0]
            problem.x[..., 1] = problem.x[..., 3] = 0
            problem.dy[..., [1, 3, 4]] = problem.dy[..., [0, 2, 2]]
            problem.dy[:, 1] = problem.dy[:, 0]  # two rows: that is usual
        for last in (True, False):
            self.assertEqual(self.texts(change, last=last),
                             ["1 of x's 4 images, which are the same as others",
                              "1 of x's 4 channels, which are the same as others",
                              "3 of dy's 5 channels, which are the same as others"])

    def test_images_of_several_blocks(self):
        problem = Problem(n=9, size=(200, 128), c=32, k=1, taps=(1, 1), padding="valid")
        problem.x[1:] = problem.x[0]
        self.prepare(problem)
        self.assertGreater(self.report()["execution"]["blocks"], 1)
        same = "\nnot tested: x is the same in all images, so not their order"
        self.assertIn(same, self.verify())
        # Nor where images are read in pieces: then that is not known.
        self.verify("--memory-limit", "29MiB")
        problem.x[8, 77, 77, 7] += 1
        self.prepare(problem)
        self.assertNotIn(same, self.verify())
        self.assertNotIn(same, self.verify("--memory-limit", "29MiB"))

    def test_negative_zeros_and_nan_are_alike(self):
        def change(problem):
            problem.x[..., 0], problem.x[..., 1] = 0.0, -0.0
        self.assertEqual(self.texts(change), ["1 of x's 4 channels, which are the same as others"])

    def test_taps_that_see_padding_alone(self):
        self.assertEqual(self.texts(size=(1, 1), padding="same"),
                         ["8 of 9 taps, which see padding alone"])
        self.assertEqual(self.texts(size=(1, 6), padding="same"),
                         ["6 of 9 taps, which see padding alone"])


class Golden(VerifyTest):
    def test_result_against_golden(self):
        # Both are wrong, and equal: verify compares what it is told to.
        self.result_file(self.dw + 1, name="golden.npy")
        self.judge(self.dw + 1, "--golden", "golden.npy", "--bitwise")
        self.judge(self.dw, "--golden", "golden.npy", "--bitwise", status=1)
        self.verify("--result", "r.npy", "--golden", "golden.npy", "--atol", 1)

    def test_golden_of_another_dtype(self):
        # A golden in float16 has its own rounding, which the bound grants it.
        self.prepare(small("conv2d").fill_normal(4))
        self.result_file(self.dw, "float16", "golden.npy")
        self.verify("--golden", "golden.npy")
        self.result_file(self.dw, "bfloat16", "golden.npy")
        self.verify("--golden", "golden.npy")
        self.result_file(self.dw * (1 + 2.0**-6), "bfloat16", "golden.npy")
        self.verify("--golden", "golden.npy", status=1)


class Text(VerifyTest):
    """The whole text of a small run, but for spaces at line ends."""

    def lines(self, text):
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"

    def setUp(self):
        super().setUp()
        problem = Problem(n=1, size=(2, 2), c=1, k=2, taps=(2, 1))
        problem.x[:] = np.array([1, 2, 3, 4]).reshape(1, 2, 2, 1)
        problem.dy[:] = np.array([1, 0, 2, -1, 0, 1, 3, 2]).reshape(1, 2, 2, 2)
        self.prepare(problem)
        self.flags = ["--op", "conv2d", "-i", "x.npy", "-g", "dy.npy", "-k", "2,1", "-p", "same",
                      "--result", "r.npy"]
        self.command = "convgrad verify " + " ".join(self.flags)

    def test_match(self):
        self.assertEqual(self.dw.tolist(), [[[[17.0, 9.0]]], [[[11.0, -4.0]]]])
        self.result_file(self.dw)
        result = self.succeed("verify", *self.flags)
        self.assertEqual(self.lines(result.out), f"""\
MATCH: r.npy against the float64 reference, 0 of 4 elements fail (0 %)
agrees to every bit; right float32 sums of these data agree to 24.3; errors at most 0 times rounding's (13.9 allowed) over all elements; rounding's = 6.6e-07 here
would have failed, typically: one element off by 1.5e-06 of the gradient's rms, one tap by 1.1e-06, all elements by 8.1e-07; 1 pixel left out
conv2d float32 NHWC n1 h2 w2 c1 k2 r2 s1 pad_same
criterion: rms of error/rounding <= 3*g(n) of n elements: all, each tap, channel and element
repeat: {self.command}
""")
        tables = self.lines(self.run_here("verify", *self.flags, "-v").out)
        self.assertIn("""
largest errors
  absolute        0
  error/bound     0
errors per tap   failures    largest |error|  error/bound  rms error/rounding
  [0,0]          0           0                0            0
  [1,0]          0           0                0            0
repeat: """, tables)

    def test_mismatch(self):
        values = self.dw.copy()
        values[1, 0, 0] = [11.5, -8]
        self.result_file(values)
        result = self.succeed("verify", *self.flags, "--rtol", "0.01", status=1)
        text = self.lines(result.out)
        # The bound's own number is left out: it is tested in compare_test.cpp.
        text = "\n".join(line for line in text.splitlines() if "error/bound" not in line) + "\n"
        ratios = [line.split()[-1] for line in text.splitlines() if line.startswith("  [")]
        self.assertEqual(len(ratios), 2)
        for ratio in ratios:
            text = text.replace(f" {ratio}\nrep", " *\nrep").replace(f" {ratio}\n  [", " *\n  [")
        self.assertEqual(text, f"""\
MISMATCH: r.npy against the float64 reference, 2 of 4 elements fail (50 %)
diagnosis: none of the 336 faults that were tried explains the result
diagnosis: the wrong elements are tap (1,0)
next: --show 5 lists the worst elements; a second run as another --result shows whether it repeats
agrees to 2.5 bits
conv2d float32 NHWC n1 h2 w2 c1 k2 r2 s1 pad_same
criterion: |got-want| <= 0 + 0.01*|want|
largest errors
  absolute        4            at [1,0,0,1]: got -8, want -4
  relative        1            at [1,0,0,1]: got -8, want -4
  ULP             8.389e+06    at [1,0,0,1]: got -8, want -4
  first mismatch  0.5          at [1,0,0,0]: got 11.5, want 11
  [0,0]          0           0                *
  [1,0]          2           4                *
repeat: {self.command} --rtol 0.01
""")

    def test_repeat_is_a_command(self):
        for name in ("r.npy", "with space.npy", "it's.npy", "$HOME.npy"):
            self.result_file(self.dw + 1, name=name)
            result = self.run_here("verify", *self.flags[:-1], name)
            repeat = result.out.rsplit("repeat: ", maxsplit=1)[1].strip()
            words = shlex.split(repeat)
            self.assertEqual(words, ["convgrad", "verify", *self.flags[:-1], name])
            again = self.bash(repeat)
            self.assertEqual((again.returncode, again.stdout.decode()), (1, result.out))

    def test_repeat_with_variables(self):
        # What came from the environment belongs to the command that repeats it.
        self.result_file(self.dw)
        flags = [flag for flag in self.flags if flag not in ("-k", "2,1", "-p", "same")]
        result = self.run_here("verify", *flags, env={"CONVGRAD_KERNEL": "2,1",
                                                      "CONVGRAD_PADDING": "same"})
        self.assertEqual(result.status, 0)
        repeat = result.out.rsplit("repeat: ", maxsplit=1)[1].strip()
        again = self.bash(repeat)
        self.assertEqual((again.returncode, again.stderr), (0, b""), repeat)
