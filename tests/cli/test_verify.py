"""verify: the verdict, its status, its report, and each criterion at its edge."""
import itertools
import json
import re
import shlex

import numpy as np
from harness import ALGORITHMS, DTYPES, OPS, Problem, load, npy_bytes, off, put, small, tf32
from verifying import VerifyTest


class Match(VerifyTest):
    def test_own_results(self):
        ways = [*(["-a", name] for name in ALGORITHMS), ["-b", "reference"], []]
        for i, (op, dtype) in enumerate(itertools.product(OPS, DTYPES)):
            self.prepare(small(op).fill_normal(1), dtype)
            for extra in ways[(i + i // 4) % 4::4]:
                with self.subTest(op=op, dtype=dtype, extra=extra):
                    self.verify(*extra)
            self.assert_quiet(self.run_here("-o", "dw.npy", *self.args()[1:]))
            self.verify("--result", "dw.npy")
            self.verify("--result", "dw.npy", "--golden", "dw.npy", "--bitwise")

    def test_a_result_of_another_dtype(self):
        for dtype in DTYPES:
            self.result_file(self.dw, dtype)
            self.FLAGS = ["--out-dtype", dtype]
            with self.subTest(dtype):
                self.verify("--result", "r.npy")
                report = self.report("--result", "r.npy")
                self.assertEqual(report["attrs"]["out_dtype"], dtype)
                # Judged by its own spacing: the reference is rounded to it.
                self.verify("--result", "r.npy", "--max-ulp", 0)

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
        self.verify("-o", "dw.npy")
        self.assertEqual(self.read("dw.npy"), npy_bytes("float32", self.dw))
        result = self.run_here(*self.args("-o", "dw.npy", "--no-clobber"))
        self.assert_one_error(result, 3, "dw.npy", "--no-clobber")

    def test_threads_and_limits_do_not_change_the_report(self):
        self.prepare(Problem(n=9, size=(20, 19), c=8, k=8, taps=(3, 3)).fill_normal(2))
        texts = set()
        for extra in (["-t", 1], ["-t", 3], ["-t", 8], ["-t", 2, "--memory-limit", "60MiB"]):
            texts.add(self.verify(*extra).rsplit("repeat:", maxsplit=1)[0])
        self.assertEqual(len(texts), 1)

    def test_verbose(self):
        quiet = self.verify()
        result = self.run_here(*self.args("-v"))
        self.assertEqual(result.status, 0)
        # The tables of what is right are not needed to see that it is.
        self.assertEqual(re.split("largest errors|repeat:", result.out)[0],
                         quiet.rsplit("repeat:", maxsplit=1)[0])
        self.assertIn("\nerrors per tap ", result.out)
        for part in ("thread", "block", " ms"):
            self.assertIn(part, result.err)


class Mismatch(VerifyTest):
    def test_one_element(self):
        for op, index in (("conv2d", (1, 1, 0, 3)), ("depthwise", (0, 2, 1, 1)),
                          ("conv3d", (1, 2, 0, 1, 2))):
            self.prepare(small(op))
            with self.subTest(op):
                out = self.judge(off(self.dw, (index, 2)), status=1)
                place = "[" + ",".join(map(str, index)) + "]"
                tap = "[" + ",".join(map(str, index[:-2])) + "]"
                got, want = self.dw[index] + 2, self.dw[index]
                self.assertIn(f"1 of {self.dw.size} elements", out)
                self.assertRegex(out, rf"absolute +2 +at {re.escape(place)}: got {got:g}, want "
                                      rf"{want:g}\n")
                self.assertRegex(out, rf"first mismatch +2 +at {re.escape(place)}")
                self.assertRegex(out, rf"(?m)^ *{re.escape(tap)} +1 +2\b")
                self.assertEqual(len([1 for line in out.splitlines()
                                      if line.startswith("  [") and line.split()[1] != "0"]), 1)
                self.assertEqual(self.compare("--result", "r.npy", status=1)["max_abs"],
                                 {"value": 2.0, "index": list(index), "got": got, "want": want})

    def test_another_filter_format_still_names_tensorflows_index(self):
        values = self.problem.expected("OIHW")
        values[4, 1, 2, 0] += 5  # [k, c, r, s]
        self.result_file(values)
        compare = self.compare("--result", "r.npy", "--filter-format", "OIHW", status=1)
        self.assertEqual(compare["first_mismatch"]["index"], [2, 0, 1, 4])

    def test_non_finite(self):
        criteria = ([], ["--rtol", "1e30"], ["--max-ulp", 2**62], ["--bitwise"], ["--atol", "1e300"])
        for i, (value, nan, inf) in enumerate(((np.nan, 1, 0), (np.inf, 0, 1), (-np.inf, 0, 1))):
            for j, extra in enumerate(criteria):
                dtype = DTYPES[(i + j) % 4]
                self.result_file(put(self.dw, ((1, 0, 1, 2), value)), dtype)
                with self.subTest(value=value, dtype=dtype, extra=extra):
                    out = self.verify("--result", "r.npy", *extra, status=1)
                    self.assertIn(f"non-finite: got {nan} NaN, {inf} Inf; want 0 NaN, 0 Inf", out)
                    compare = self.compare("--result", "r.npy", *extra, status=1)
                    self.assertEqual(compare["nonfinite"]["got"], {"nan": nan, "inf": inf})
                    self.assertEqual(compare["max_abs"]["value"], "inf")
                    self.assertEqual(compare["first_mismatch"]["got"],
                                     "nan" if nan else ("inf" if value > 0 else "-inf"))

    def test_expected_nan(self):
        # NaN where NaN is due is right; a number there is wrong.
        problem = small("conv2d")
        problem.dy[0, 0, 0, 0] = np.nan
        self.prepare(problem)
        self.assertTrue(np.isnan(self.dw).any() and np.isfinite(self.dw).any())
        self.verify()
        self.judge(self.dw)
        self.judge(np.nan_to_num(self.dw), status=1)

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

    def test_tensors_that_are_mostly_zeros_show_all(self):
        def change(problem):
            for tensor in (problem.x, problem.dy):
                tensor[np.random.default_rng(6).random(tensor.shape) < 0.8] = 0
        for last in (True, False):
            self.assertEqual(self.texts(change, last=last, n=8, c=12, k=12), [])

    def test_random_tensors_show_all(self):
        for last in (True, False):
            self.assertEqual(self.texts(last=last), [])
        self.assertEqual(self.texts(op="conv3d", size=(4, 5, 4), taps=(2, 2, 2)), [])

    def test_constants(self):
        def ones(problem):
            problem.dy[:] = 1
        def both(problem):
            problem.x[:], problem.dy[:] = -3, 1
        for last in (True, False):
            self.assertEqual(self.texts(ones, last=last),
                             ["dy is constant, so no order of its elements"])
            self.assertEqual(self.texts(both, last=last),
                             ["x is constant, so no order of its elements",
                              "dy is constant, so no order of its elements"])

    def test_dy_of_ones_read_backwards(self):
        problem = Problem(n=4, size=(8, 8), c=4, k=5, taps=(3, 3), padding="valid")
        problem.dy[:] = 1
        self.prepare(problem)
        out = self.judge(self.dw)
        self.assertEqual(out.splitlines()[3], "not tested: dy is constant, so no order of its "
                         "elements")
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


class Cancellation(VerifyTest):
    def test_relative_errors_and_ulp_are_of_elements_whose_terms_do_not_cancel(self):
        # Sums of 2^20 - 2^20 + 2^-6 and of 3 + 1 + 1: both are 2^-7 off.
        problem = Problem(n=3, size=(1, 1), c=1, k=2, taps=(1, 1))
        problem.x[:] = 1
        problem.dy[..., 0].flat = [2**20, -2**20, 2**-6]
        problem.dy[..., 1].flat = [3, 1, 1]
        self.prepare(problem)
        out = self.judge(self.dw + 2**-7, status=1)
        self.assertRegex(out, r"\n  relative +0\.001563 +at \[0,0,0,1\]: got ")
        self.assertRegex(out, r"\n  ULP +1\.638e\+04 +at \[0,0,0,1\]: got ")
        compare = self.compare("--result", "r.npy", status=1)
        self.assertEqual(compare["max_rel"]["value"], 0.5)
        self.assertEqual(compare["max_ulp"]["index"], [0, 0, 0, 0])


class Criteria(VerifyTest):
    """Each criterion passes at its edge and fails just past it."""

    def setUp(self):
        super().setUp()
        problem = Problem(n=1, size=(1, 1), c=1, k=4, taps=(1, 1))
        problem.x[:] = 1
        problem.dy[:] = [100, -200, 0, 1]
        self.prepare(problem)

    def check(self, values, passing, failing):
        self.result_file(np.reshape(values, (1, 1, 1, 4)))
        for extra in passing:
            with self.subTest(passing=extra):
                self.verify("--result", "r.npy", *extra)
        for extra in failing:
            with self.subTest(failing=extra):
                self.verify("--result", "r.npy", *extra, status=1)

    def test_rtol_and_atol_add(self):
        self.check([101.5, -200, 0, 1], [["--rtol", "0.01", "--atol", "0.5"]],
                   [["--rtol", "0.01"], ["--atol", "0.5"], ["--rtol", "0.01", "--atol", "0.49"]])

    def test_max_ulp(self):
        self.check([100 + 3 * 2.0**-17, -200, 0, 1], [["--max-ulp", 3]],
                   [["--max-ulp", 2], ["--max-ulp", 0], ["--bitwise"]])
        found = self.compare("--result", "r.npy", "--max-ulp", 3)["max_ulp"]
        self.assertEqual((found["value"], found["index"]), (3, [0, 0, 0, 0]))

    def test_criterion_is_printed(self):
        self.result_file(self.dw)
        for extra, text in ((["--max-ulp", "5"], "at most 5 ULP"),
                            (["--bitwise"], "every bit equal"),
                            (["--rtol", "0.5", "--atol", "2"], "|got-want| <= 2 + 0.5*|want|"),
                            (["--criterion", "bound"],
                             "|got-want| <= u_out*|want| + 4*sqrt(L)*u_acc*sum|x||dy|"),
                            (["--slack", "2.5"], "rms of error/rounding <= 2.5*g(n) of n elements: "
                             "all, each tap, channel and element")):
            self.assertIn(f"criterion: {text}\n", self.verify("--result", "r.npy", *extra))


class Rounding(VerifyTest):
    """The default criterion sees what the worst-case bound lets pass."""

    def setUp(self):
        super().setUp()
        self.prepare(Problem(n=64, size=(56, 56), c=2, k=2, taps=(3, 3)).fill_normal(8))

    def use_fewer(self):
        """For diagnoses, which take seconds of many pixels."""
        self.prepare(Problem(n=8, size=(28, 28), c=2, k=2, taps=(3, 3)).fill_normal(8))

    def wrong(self, x=None, dy=None):
        keep = self.problem.x, self.problem.dy
        self.problem.x = keep[0] if x is None else x
        self.problem.dy = keep[1] if dy is None else dy
        values = self.problem.expected()
        self.problem.x, self.problem.dy = keep
        return values

    def test_what_it_sees(self):
        rounded = self.dw.astype("f4").view("u4")
        for fault, values in (
                ("a pixel", self.wrong(dy=put(self.problem.dy, ((3, 7, 9), 0)))),
                ("TF32", self.wrong(tf32(self.problem.x), tf32(self.problem.dy))),
                ("bfloat16", ((rounded + 0x8000) & np.uint32(0xffff0000)).view("f4")),
                ("an element", off(self.dw, ((1, 2, 1, 0), 1)))):
            with self.subTest(fault):
                out = self.judge(values, "--diagnosis", "off", status=1)
                self.assertRegex(out, "\nreason: accuracy: every element is within the worst-case "
                                 "bound, but errors are .* times rounding's .*: lower precision or "
                                 "missing terms; --criterion bound accepts it\n")
                self.verify("--result", "r.npy", "--criterion", "bound")
                self.verify("--result", "r.npy", "--slack", 1e6)
                compare = self.compare("--result", "r.npy", status=1)
                self.assertEqual((compare["verdict"], compare["reason"]), ("mismatch", "accuracy"))
                self.assertGreater(compare["rounding"]["score"], 1)

    def test_what_it_grants(self):
        # A plain float32 sum of 200704 products, one after another.
        x = np.zeros((64, 58, 58, 2), "f4")
        x[:, 1:57, 1:57] = self.problem.x
        values = np.zeros(self.dw.shape, "f4")
        for r in range(3):
            for s in range(3):
                a = x[:, r:r + 56, s:s + 56].reshape(-1, 2)
                b = self.problem.dy.astype("f4").reshape(-1, 2)
                terms = a[:, :, None] * b[:, None, :]
                values[r, s] = np.cumsum(terms, axis=0, dtype="f4")[-1]
        self.result_file(values)
        compare = self.compare("--result", "r.npy")
        self.assertEqual(compare["verdict"], "match")
        self.assertGreater(compare["rounding"]["rms"], 0.2)
        # And it agrees to the reference as it is said that right ones do, within a bit.
        ratio = compare["relative_error"] / compare["rounding"]["right_relative_error"]
        self.assertLess(abs(np.log2(ratio)), 1)
        # Of a kernel that sums 64 at a time, that is too much.
        out = self.verify("--result", "r.npy", "--longest-sum", 64, status=1)
        self.assertIn("reason: accuracy", out)
        found = self.compare("--result", "r.npy")["rounding"]["detectable"]
        self.assertEqual(found["pixels"], 1)
        self.assertLess(found["gradient"], found["tap"])
        self.assertLess(found["tap"], found["element"])

    def test_the_detectable_is_detected(self):
        self.result_file(self.dw)
        found = self.compare("--result", "r.npy")["rounding"]["detectable"]
        rms = np.sqrt(np.mean(self.dw**2))
        for factor, status in ((2.5, 1), (0.4, 0)):
            for place, index in (("element", (1, 1, 0, 1)), ("tap", (2, 0)), ("gradient", ())):
                self.judge(off(self.dw, (index, factor * found[place] * rms)), "--diagnosis", "off", status=status)

    def test_the_headline_says_which_elements_fail_together(self):
        self.result_file(self.dw)
        found = self.compare("--result", "r.npy")["rounding"]["detectable"]
        rms = np.sqrt(np.mean(self.dw**2))
        for values, which in ((off(self.dw, ((2, 0), found["tap"] * rms)), "tap [2,0] does"),
                              (self.dw + 1.2 * found["gradient"] * rms, "all elements together do")):
            with self.subTest(which):
                lines = self.judge(values, "--diagnosis", "off", status=1).splitlines()
                failing = f"no single element fails, but {which}"
                self.assertEqual(lines[0], "MISMATCH: r.npy against the float64 reference, "
                                 f"{failing} (accuracy)")
                self.assertRegex(lines[1], "^reason: accuracy: ")
                compare = self.compare("--result", "r.npy", "--diagnosis", "off", status=1)
                self.assertEqual((compare["mismatches"], compare["failing"]), (0, failing))

    def test_reason_and_diagnosis_come_first(self):
        self.use_fewer()
        out = self.judge(self.wrong(tf32(self.problem.x), tf32(self.problem.dy)), status=1)
        starts = ["MISMATCH: ", "reason: ", "diagnosis: ", "agrees to ", "conv2d ", "criterion: ",
                  "largest errors", "errors per tap ", "repeat: "]
        places = [out.index(start) if i == 0 else out.index("\n" + start)
                  for i, start in enumerate(starts)]
        self.assertEqual(places, sorted(places))
        self.assertIn("MISMATCH: x and dy are rounded to TF32 (half to even) before they are multiplied", out)
        self.assertIn("\nnext: --accept input_precision if the kernel does so on purpose\n", out)
        # Where terms cancel, ULP say nothing.
        for absent in ("\nnon-finite", "\n  ULP"):
            self.assertNotIn(absent, out)
        self.assertEqual(out.count("rounding's = "), 1)
        self.assertGreater(self.compare("--result", "r.npy", status=1)["max_ulp"]["value"], 1000)

    def test_faults_that_are_accepted(self):
        self.use_fewer()
        wrong = self.wrong(tf32(self.problem.x), tf32(self.problem.dy))
        out = self.judge(wrong, "--accept", "low_precision_sums,input_precision")
        self.assertTrue(out.startswith("MATCH, with input_precision accepted: x and dy are rounded to TF32 (half to even) before they are multiplied"), out)
        compare = self.compare("--result", "r.npy", "--accept", "input_precision")
        self.assertEqual(compare["accepted"], "input_precision")
        self.judge(wrong, "--accept", "low_precision_sums", status=1)
        self.judge(off(wrong, ((1, 2, 1, 0), 1)), "--accept", "input_precision", status=1)
        result = self.run_here(*self.args("--result", "r.npy", "--accept", "input_precision", "--diagnosis", "off"))
        self.assert_one_error(result, 2, "--accept: given with --diagnosis off")

    def test_a_cause_is_that_of_its_own_result(self):
        self.use_fewer()
        rng = np.random.default_rng(4)
        self.result_file(self.dw + rng.standard_normal(self.dw.shape) * abs(self.dw).max(), name="noise.npy")
        self.result_file(self.dw[::-1, ::-1], name="flipped.npy")
        first = self.verify("--result", "noise.npy", "--result", "flipped.npy", status=1).splitlines()[0]
        self.assertTrue(first.startswith("MISMATCH: noise.npy against the float64 reference, "), first)
        first = self.verify("--result", "flipped.npy", "--result", "noise.npy", status=1).splitlines()[0]
        self.assertTrue(first.startswith("MISMATCH: the filter is flipped in h and w ("), first)

    def test_runs_that_differ_though_each_matches(self):
        self.result_file(self.dw)
        found = self.compare("--result", "r.npy")["rounding"]["detectable"]
        off = 0.65 * found["gradient"] * np.sqrt(np.mean(self.dw**2))
        self.result_file(self.dw + off, name="a.npy")
        self.result_file(self.dw - off, name="b.npy")
        out = self.verify("--result", "a.npy", "--result", "b.npy", "--diagnosis", "off", status=1)
        self.assertEqual(out.splitlines()[0], "MISMATCH: a.npy against the float64 reference, 0 of 36 "
                         "elements fail (0 %), but the runs differ")

    def test_runs(self):
        rng = np.random.default_rng(1)
        names = []
        for i in range(3):  # as atomics would add them up
            noise = 1 + 2.0**-20 * rng.standard_normal(self.dw.shape)
            self.result_file(self.dw * noise, name=f"run{i}.npy")
            names += ["--result", f"run{i}.npy"]
        out = self.verify(*names)
        self.assertRegex(out, r"runs: 3 results differ in \d+ of 36 elements; run\d.npy and run0.npy "
                         r"agree to \d\d\.\d bits, differences are \S+ times rounding's")
        self.assertIn("within rounding: order of sums, atomics", out)
        self.assertIn("run1.npy: MATCH against the float64 reference", out)
        runs = self.compare(*names)["runs"]
        self.assertEqual((runs["runs"], runs["verdict"]), (3, "within rounding"))
        self.assertEqual(len(self.compare(*names)["results"]), 3)
        self.assertIn("runs: 2 results, every bit equal", self.verify(*names[:2], *names[:2]))
        beyond = off(self.dw, ((0, 1), 0.1 * rng.standard_normal(self.dw[0, 1].shape)))
        self.result_file(beyond, name="run2.npy")
        out = self.verify(*names, "--diagnosis", "off", status=1)
        self.assertIn("beyond rounding: a race", out)
        self.assertTrue(out.startswith("MISMATCH: run2.npy"))
        compare = self.compare(*names, status=1)
        self.assertEqual(compare["got"], "run2.npy")
        self.assertEqual(compare["runs"]["furthest"], {"got": "run2.npy", "want": "run0.npy"})
        self.verify(*names, "--atol", 1)

    def test_show(self):
        self.use_fewer()
        out = self.judge(off(self.dw, ((1, 2, 1, 0), 2), ((0, 0, 0, 1), 1)), "--show", 2, status=1)
        self.assertRegex(out, r"most off: 2 elements\n  \[1,2,1,0\] got .*, want .*, off by \S+ times "
                         r"rounding's\n  \[0,0,0,1\] got ")
        most = self.compare("--result", "r.npy", "--show", 1000, status=1)["most_off"]
        self.assertEqual(len(most), 36)
        self.assertEqual(most[0]["index"], [1, 2, 1, 0])
        self.assertRegex(self.verify("--result", "r.npy", "--show", 1, "--atol", 3),
                         r"off by (2|1\.99|2\.0)\d*\n")

    def test_difference(self):
        self.use_fewer()
        self.judge(off(self.dw, ((1, 2, 1, 0), 2)), "--save-diff", "d.npy", status=1)
        difference = load(self.folder / "d.npy")[1]
        self.assertEqual(difference.shape, self.dw.shape)
        self.assertAlmostEqual(difference[1, 2, 1, 0], 2, 3)
        for extra, parts in ((["--save-diff", "x.npy"], ("--save-diff", "is the file of --input")),
                             (["--save-diff", "-"], ("--save-diff", "name a file")),
                             (["--save-diff", "d.npy", "--sample", 20], ("--save-diff", "--sample"))):
            with self.subTest(extra):
                self.assert_one_error(self.run_here(*self.args("--result", "r.npy", *extra)), 2,
                                      *parts)

    def test_wrong_uses(self):
        self.result_file(self.dw)
        for extra, parts in (
                (["--criterion", "rouding"], ("--criterion", "'rouding'", "rounding")),
                (["--criterion", "bound", "--slack", 2], ("--slack", "--criterion rounding")),
                (["--criterion", "bound", "--bitwise"], ("--criterion", "--bitwise")),
                (["--slack", 0], ("--slack", "above 0")),
                (["--adders", "none"], ("--adders", "'none'")),
                (["--longest-sum", 0], ("--longest-sum",))):
            with self.subTest(extra):
                self.assert_one_error(self.run_here(*self.args("--result", "r.npy", *extra)), 2,
                                      *parts)


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
        result = self.run_here("verify", *self.flags, "--rtol", "0.01")
        self.assertEqual((result.status, result.err), (1, ""))
        text = self.lines(result.out)
        # The bound's own number is left out: it is tested in compare_test.cpp.
        text = "\n".join(line for line in text.splitlines() if "error/bound" not in line) + "\n"
        ratios = [line.split()[-1] for line in text.splitlines() if line.startswith("  [")]
        self.assertEqual(len(ratios), 2)
        for ratio in ratios:
            text = text.replace(f" {ratio}\nrep", " *\nrep").replace(f" {ratio}\n  [", " *\n  [")
        self.assertEqual(text, f"""\
MISMATCH: r.npy against the float64 reference, 2 of 4 elements fail (50 %)
diagnosis: none of the 257 faults that were tried explains the result
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
