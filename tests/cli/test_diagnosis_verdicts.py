"""verify's diagnosis where several faults explain a gradient, or none, and with golden files, samples and other criteria."""
import numpy as np

from diagnosing import DiagnosisTest, normal_problem, plain_problem, one_entry
from harness import Problem, npy_bytes, off, put, save, single, small


class Every(DiagnosisTest):
    """The same faults under other criteria, and in samples."""

    def test_criteria(self):
        for extra in (["--rtol", "1e-4"], ["--max-ulp", "100"], ["--bitwise"]):
            self.names(self.dw[::-1], "filter_flipped", "the filter is flipped in h", *extra)

    def test_sampled(self):
        p = self.use(normal_problem(c=16, k=16, groups=4))
        for wrong, fault, text in (
                (self.dw[::-1], "filter_flipped", "the filter is flipped in h"),
                (self.wrong(x=p.x[1:], dy=p.dy[1:]), "missing_image", "image 0 is left out")):
            with self.subTest(fault):
                self.names(single(wrong), fault, text, "--sample", 40, whole=False, among=True)
                self.assertEqual(self.report["findings"][0]["checked"], 40)


class Golden(DiagnosisTest):
    """Of a golden file and a gradient, the one that is wrong is diagnosed."""

    def golden_lines(self, result, golden, *extra, status=1):
        save(self.folder / "g.npy", golden)
        return self.verify(result, "--golden", "g.npy", *extra, status=status)

    def test_the_golden_file_is_wrong(self):
        for extra in (["--bitwise"], ["--rtol", "1e-5"]):
            lines = self.golden_lines(self.dw, self.dw[::-1], *extra)
            self.assertRegex(lines[0], "the result is within rounding of the reference")
            self.assertRegex(lines[1], "the golden file is not within rounding")
            self.assertRegex(lines[2], "the golden file matches if the filter is flipped in h ")
            self.assertEqual(self.report["findings"][0]["subject"], "the golden file")

    def test_by_the_reference(self):
        # By the criterion of rounding the reference judges each; only what is wrong is named.
        lines = self.golden_lines(self.dw, self.dw[::-1])
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], "^the golden file matches if the filter is flipped in h ")
        lines = self.golden_lines(self.dw[::-1], self.dw * 2)
        self.assertRegex(" ".join(lines), "the result matches if the filter is flipped in h ")
        self.assertRegex(" ".join(lines), "the golden file matches if it is multiplied by 2")


class Several(DiagnosisTest):
    def test_two_explanations(self):
        # Both images are the same, so each may be the missing one, and half is as good.
        p = normal_problem(n=2)
        p.x[1], p.dy[1] = p.x[0], p.dy[0]
        self.use(p)
        lines = self.verify(single(self.dw / 2))
        texts = " ".join(lines)
        for text in ("it is multiplied by 0.5 (1/N)", "image 0 is left out",
                     "image 1 is left out"):
            self.assertIn(text, texts)
        self.assertEqual(len(lines), 3, lines)

    def test_symmetric_data(self):
        # x is the same in every row and column but for the padding: a flip is a turn by hand too.
        p = plain_problem(n=1, size=(6, 6), c=1, k=1, taps=(3, 3), padding="valid")
        p.dy[:] = (p.dy + np.swapaxes(p.dy, 1, 2)) / 2
        p.x[:] = (p.x + np.swapaxes(p.x, 1, 2)) / 2
        p.dy, p.x = single(p.dy), single(p.x)
        self.use(p)  # dw is symmetric in h and w: flipping both in either order is one thing
        lines = self.verify(self.dw[::-1])
        self.assertTrue(any("flipped in h " in line for line in lines), lines)
        self.assertFalse(any("flipped in w " in line for line in lines), lines)

    def test_everything_fits_constant_data(self):
        # Nothing tells the images apart: some are named, the others counted.
        p = one_entry(6)
        p.x[:] = np.float32(0.7)
        p.dy[:] = 1
        self.use(p)
        lines = self.verify(self.dw * 5 / 6)
        self.assertIn("image 0 is left out", " ".join(lines))
        self.assertLessEqual(len(self.report["findings"]), 8)


class NoExplanation(DiagnosisTest):
    def nothing(self, values, *extra, dtype=None):
        lines = self.verify(values, *extra, dtype=dtype)
        self.assertEqual(self.report["findings"], [], lines)
        self.assertRegex(lines[0], r"^none of the \d+ faults that were tried explains the result$")
        self.assertGreater(self.report["tried"], 15)
        return lines

    def test_not_finite(self):
        lines = self.nothing(put(self.dw, ((0, 1, 0, 3), np.inf)))
        self.assertIn("r 0, s 1, c 0, k 3", lines[1])

    def test_beside_what_is_right_and_not_finite(self):
        p = self.problem
        for value in (np.nan, np.inf):
            p.x[0, 0, 0, 0] = value
            self.use(p)
            at = tuple(np.argwhere(np.isfinite(self.dw))[-1])
            for wrong in (off(self.dw, (at, 30)), put(self.dw, (at, self.dw[at] * 1.01))):
                with self.subTest(value=value, wrong=wrong[at]):
                    self.nothing(single(wrong))
        p = normal_problem(k=24)
        p.x[0, 0, 0] = np.inf
        self.use(p)
        self.nothing(single(np.where(np.isinf(self.dw), -self.dw, self.dw)))

    def test_cancelling_sums(self):
        # The bound is as large as the gradient: what lies within it proves nothing.
        p = normal_problem(n=4, size=(12, 12), strides=(1, 1), dilations=(1, 1))
        p.x[:] = 1e3 + p.x * 1e-6
        p.x = single(p.x)
        p.dy -= p.dy.mean(axis=(0, 1, 2))
        p.dy = single(p.dy)
        self.use(p)
        rng = np.random.default_rng(0)
        self.nothing(single(self.dw + 50 * rng.standard_normal(self.dw.shape)))

    def test_a_value_within_the_bound_is_not_enough(self):
        # One bfloat16 number: 99.5 is within its rounding of the gradient without image 1, 99.77,
        # as it is of many others, and hardly nearer to that than to the right one, 100.09.
        p = one_entry(2, (1, 1))
        p.x[0], p.dy[0] = 1 + 2**-7, 99
        p.x[1], p.dy[1] = 0.5, 0.625
        self.use(p, "bfloat16")
        lines = self.verify(np.full_like(self.dw, 99.5))
        self.assertNotIn("match", [f["certainty"] for f in self.report["findings"]], lines)

    def test_a_right_result(self):
        self.assertEqual(self.verify(self.dw, status=0), [])
        self.assertIsNone(self.report)

    def test_one_entry_has_no_factor(self):
        # One number is always a multiple of another; only a known factor may be named.
        self.use(one_entry(3))
        self.nothing(self.dw * 1.2345)
        self.names(single(self.dw / 3), "scale_factor", "it is multiplied by 0.333333333 (1/N)")

    def test_only_rounding(self):
        values = single(self.dw)
        values[0, 0, 0, 0] = np.nextafter(values[0, 0, 0, 0].astype("f4"), np.float32(1e9))
        lines = self.verify(values, "--bitwise")
        self.assertEqual(lines, ["the result is within rounding of the reference: nothing is wrong "
                                 "with it; the tolerance is smaller than rounding"])
        self.assertEqual(self.report["findings"], [])

    def test_an_empty_batch(self):
        self.use(small("conv2d", n=0))
        lines = self.verify(self.dw + 1)
        self.assertEqual(self.report["findings"], [], lines)


class Switch(DiagnosisTest):
    def test_off(self):
        self.assertEqual(self.verify(self.dw[::-1], "--diagnosis", "off"), [])
        self.assertIsNone(self.report)
        self.assertEqual(len(self.verify(self.dw[::-1], "--diagnosis", "quick")), 1)

    def test_streams_cannot_be_read_again(self):
        p = self.use(normal_problem())
        save(self.folder / "r.npy", self.dw[::-1])
        result = self.run_here("verify", "-i", "-", "-g", "dy.npy", *p.flags(), "--result", "r.npy",
                               stdin=npy_bytes("float32", p.x))
        self.assertEqual(result.status, 1)
        self.assertIn("diagnosis: not tried: --input (standard input) is a stream, which can be "
                      "read only once; save it to a file\n", result.out)

    def test_memory(self):
        # An image of x and dy must fit, for it may have been read in any way.
        p = Problem(n=1, size=(1100, 1000), c=16, k=1, taps=(1, 1), strides=(1, 1))
        p.x[:] = np.arange(p.x.size).reshape(p.x.shape) % 5
        self.use(p)
        lines = self.verify(self.dw + 1e7, "--memory-limit", "60MiB")
        self.assertRegex(lines[0], "^not tried: it needs whole images of x and dy, .* MiB, the "
                                   "limit is 60.0 MiB$")
