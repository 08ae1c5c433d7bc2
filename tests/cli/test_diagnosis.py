"""verify's diagnosis, as it is printed: one test of each form of answer, and the faults that tests/tools/diagnosis does not
have. Everything wrong is made here, from the definition, with numpy."""
import itertools
import re

import numpy as np

from diagnosing import DOCUMENTED, DiagnosisTest, normal_problem, plain_problem
from harness import ROOT, kept, put, single


class Faults(DiagnosisTest):
    """Orders, attributes, groups and sums of few digits."""

    def test_every_simulated_fault_is_documented(self):
        kinds = "".join(path.read_text() for path in (ROOT / "tests/tools/diagnosis").glob("kinds_of_*.cpp"))
        names = set(re.findall(r"[a-z]+(?:_[a-z]+)+", "".join(re.findall(r'"[a-z_+]+"', kinds))))
        names -= {"out_backprop"}   # a word of a text
        self.assertGreater(len(names), 30)
        self.assertLessEqual(names, DOCUMENTED)

    def test_filter_order_the_other_way_round(self):
        # The file is said to be OIHW, and holds HWIO.
        self.use(normal_problem(groups=1))
        k, c = self.dw.shape[3], self.dw.shape[2]
        self.names(self.dw.reshape(k, c, *self.problem.taps), "filter_order",
                   "its elements are taken in HWIO order, not in OIHW", "--filter-format", "OIHW")
        self.names(np.swapaxes(self.dw, 2, 3).reshape(self.dw.shape), "filter_order",
                   "C and K are exchanged: its elements are taken in HWOI order, not in HWIO")

    def test_layouts(self):
        def as_channels_first(tensor):
            # The memory of an NHWC tensor, taken for NCHW.
            shape = (tensor.shape[0], tensor.shape[-1], *tensor.shape[1:-1])
            return np.moveaxis(tensor.reshape(shape), 1, -1)

        p = self.use(normal_problem("conv3d"))
        self.names(self.wrong(x=as_channels_first(p.x), dy=as_channels_first(p.dy)), "tensor_layout",
                   "the memory of input and out_backprop is taken for NCDHW, not NDHWC")
        turned = np.moveaxis(p.x, -1, 1).reshape(p.x.shape)
        self.names(self.wrong(x=turned), "tensor_layout",
                   "the memory of input is turned to NCDHW and then taken for NDHWC")

    def test_padding_before_instead_of_after(self):
        # SAME puts the odd row and column after. One off by one is the same: one statement for both.
        self.use(normal_problem(size=(8, 8), taps=(3, 3), strides=(2, 2), dilations=(1, 1)))
        self.assertEqual(self.problem.before, (0, 0))
        self.names(self.wrong(before=(1, 1)), "padding_swapped",
                   "the padding after is put before: the padding before h and w is 1,1, not 0,0")
        self.names(self.wrong(before=(1, 0)), "padding_swapped",
                   "the padding after is put before: the padding before h is 1, not 0")

    def test_attributes_of_h_and_w_swapped(self):
        self.use(normal_problem(size=(12, 12), taps=(3, 3), strides=(2, 1), dilations=(1, 3),
                                padding=((2, 1), (0, 4))))
        self.names(self.wrong(strides=(1, 2)), "attribute_order",
                   "the strides of h and w are swapped")

    def test_group_order(self):
        p = self.use(normal_problem(c=8, k=12, groups=4))
        each = p.k // p.groups
        blocks = self.dw.reshape(*self.dw.shape[:3], p.groups, each)
        self.names(blocks[..., [2, 0, 3, 1], :].reshape(self.dw.shape), "group_order",
                   "group 0 holds 2, group 1 holds 0, group 2 holds 3, group 3 holds 1")

    def test_half_precision_sums(self):
        """Pixel by pixel, of products that are not rounded."""
        p = self.use(normal_problem("depthwise", n=3, size=(12, 11), dtype="float16"))
        dw = np.zeros((*p.taps, p.k), "f2")
        for (n, *out), tap in itertools.product(np.ndindex(*p.dy.shape[:-1]), np.ndindex(*p.taps)):
            at = [o * s - b + t * d for o, s, b, t, d in zip(out, p.strides, p.before, tap, p.dilations)]
            if all(0 <= a < e for a, e in zip(at, p.size)):
                products = np.repeat(p.x[(n, *at)], p.k // p.c) * p.dy[(n, *out)]
                dw[tap] = (dw[tap] + products).astype("f2")
        lines = self.verify(dw.astype("f8").reshape(self.dw.shape))
        found = self.report["findings"]
        self.assertEqual([f["fault"] for f in found], ["low_precision_sums"], lines)
        self.assertEqual(found[0]["certainty"], "bits")
        self.assertRegex(lines[0], "^the result matches bit by bit if sums are "
                                   "rounded to float16 after each addition")

    def test_float16_gradients_of_tensorflow(self):
        # TensorFlow 2.21's, as hexadecimal bytes: by one thread, of one that sums an image at a time, and by four.
        for op, n, size, c, k, blocks, gradient in (
            ("conv3d", 3, 6, 2, 2, "in blocks of 320 pixels, which make sums of 328 pixels each",
             "2cd485cfe6cc844db7cecb4fccd0344d8c45e0cb1745f5ce62c600bc3cd140bc2a428f4b52d0524b65484643ea49dbcbec4a84ce64d01843"
             "be50fdcb86c5c245f3ca474d024401cf65caef4948c75acf1c4b5c3821cb4dc98031f0b5be4e88c9"),
            ("conv2d", 24, 8, 2, 3, "in blocks of 776 pixels",
             "1acdabd58e507e5179524c4d384c26c9584772c9bf50195018c6fccdf750e8c03cc4b840d5cd7154ec4fcc53524a28c8ec3f0fd093cd06ca"
             "7a53cfd360b78a4b4e505ecd6c49caccbd4ca6d2324cc3ccf84aded09253f34ca74e3ad2374cf3cbb24e4f510352a2ce0847c751"),
            ("depthwise", 4, 8, 6, 6, "in blocks of 64 pixels",
             "c0b29443c0b358d054446a4e083eaf4c5b5346470f48a1bc0ecc9ec829cb46c8114c0bc702ce45c8ad4478d25c4c084137c4b546be4b3048"
             "944199c4bcc3934ad03960c72e4ce8c400ab464c40b19248784996c36ace2ac924cc16c963c4e84b48cb944a183800c5184aae4c"),
            ("conv2d", 64, 16, 2, 3, "in blocks of 320 pixels, which make sums of 4096 pixels each",
             "bcc956567c5aa251f1551049cfdac2dc4ed27d50875c0059dad61bd489d6b25424540d5931d784d58ece665aeed0c4c7654ed8469c52a3d5"
             "8046b048d64c1952a6571ad87c54a05686d632d772d79c51d84f61d4b259e7519ccd80c430d0e4d56352a04da8ccfc50105be259"),
        ):
            for name, seed, channels in (("x", 1, c), ("dy", 2, k)):
                extents = [size] * (3 if op == "conv3d" else 2)
                values = np.random.default_rng(seed).standard_normal((n, *extents, channels))
                np.save(self.folder / f"{name}.npy", values.astype("f2"))
            taps = (3, 2, 2) if op == "conv3d" else (3, 3)
            dw = np.frombuffer(bytes.fromhex(gradient), "<f2").reshape(*taps, c, k // c if op == "depthwise" else k)
            args = ["verify", "--op", op, "-i", "x.npy", "-g", "dy.npy", "-p", "same", "--result", "r.npy"]
            with self.subTest(op=op, blocks=blocks):
                np.save(self.folder / "r.npy", dw)
                self.assertIn(f"MISMATCH: sums are rounded to float16 after each addition, {blocks} (",
                              self.succeed(*args, status=1).out)
                accepted = self.succeed(*args, "--accept", "low_precision_sums").out
                self.assertTrue(accepted.startswith("MATCH, with low_precision_sums accepted: "), accepted)
                np.save(self.folder / "r.npy", np.where(dw == dw.max(), dw * np.float16(1.1), dw))
                wrong = self.succeed(*args, "--accept", "low_precision_sums", status=1).out
                self.assertTrue(wrong.startswith("MISMATCH"), wrong)


class Places(DiagnosisTest):
    """Faults in a part of the gradient, which is named as people do."""

    def use_tiles(self):
        self.use(plain_problem(c=35, k=35, taps=(3, 3)))

    def test_copies(self):
        self.use_tiles()
        values = put(self.dw, ((0, 1), self.dw[2, 2]))
        self.names(single(values), "copied", "tap (0,1) holds (2,2)", whole=False)
        values = put(self.dw, ((0, 1, slice(16), slice(16)), self.dw[1, 1, :16, :16]))
        self.names(single(values), "copied", "16x16 tile c 0-15, k 0-15 of tap (0,1) holds c 0-15, "
                                             "k 0-15 of tap (1,1)", whole=False)
        self.names(single(np.roll(self.dw, -4, -1)), "channel_order", "output channel k 0 holds k 4, ", whole=False)

    def test_a_fault_in_one_place(self):
        self.use_tiles()
        p = self.problem
        others = [0, 1, 3]
        wrong = self.wrong(x=p.x[others], dy=p.dy[others])
        values = put(self.dw, ((..., slice(16, 32)), wrong[..., 16:32]))
        self.names(single(values), "missing_image", "image 2 is left out, in output channels k "
                   "16-31 (a whole tile of 16) alone", whole=False)


class Pixels(DiagnosisTest):
    def test_ranges(self):
        p = self.use(normal_problem(n=4, size=(16, 17), strides=(1, 1), dilations=(1, 1)))
        row, image = p.out[1], p.out[0] * p.out[1]
        for begin, end, text in ((2 * image + 3 * row, 2 * image + 4 * row, "row 3 of image 2 is"),
                                 (512, 1024, "pixels 512 to 1023 of N*P*Q = 1088 (chunks of 512) "
                                             "are"),
                                 (image + row + 2, image + row + 3,
                                  "the pixel p 1, q 2 of image 1 is")):
            dy = np.zeros_like(p.dy)
            dy.reshape(-1, p.k)[begin:end] = p.dy.reshape(-1, p.k)[begin:end]
            part = self.wrong(dy=dy)
            self.names(single(self.dw - part), "missing_pixels", f"{text} left out", whole=False)


class Precision(DiagnosisTest):
    def test_split_sums(self):
        p = self.use(normal_problem(n=4, size=(16, 15), strides=(1, 1), dilations=(1, 1)))
        pixels = int(np.prod(p.dy.shape[:-1]))
        chunk = -(-pixels // 7)
        total = 0
        for begin in range(0, pixels, chunk):
            dy = np.zeros_like(p.dy)
            dy.reshape(-1, p.k)[begin:begin + chunk] = p.dy.reshape(-1, p.k)[begin:begin + chunk]
            total = total + kept("bfloat16", self.wrong(dy=dy))
        self.names(single(total), "low_precision_sums", "the sums of 7 splits (split-K) are rounded to bfloat16",
                   whole=False)


class Fillings(DiagnosisTest):
    """What stands in the place of right sums."""

    def test_a_factor_within_half_a_step_is_none(self):
        self.use(plain_problem(c=12, k=16, taps=(3, 3), dtype="float16"), "float16")
        mantissa, exponent = np.frexp(self.dw)
        cut_off = np.ldexp(np.trunc(np.ldexp(mantissa, 11)), exponent - 11)
        lines = self.verify(cut_off * (1 - 2.0**-13))
        self.assertNotIn("scale_factor", [f["fault"] for f in self.report["findings"]], lines)

    def test_nonfinite_suppressed(self):
        p = self.use(normal_problem(groups=1, last=False))
        skipped = self.wrong(dy=put(p.dy, ((3, 2, 2, 5), 0)))
        p.dy[3, 2, 2, 5] = np.inf
        self.use(p)
        lines = self.verify(single(skipped))
        self.assertEqual([f["fault"] for f in self.report["findings"]], ["nonfinite_suppressed"], lines)
        self.assertIn("output channel k 5", lines[0])

    def test_causes_of_factors(self):
        pixels = self.use(normal_problem(n=5)).dy[..., 0].size
        for factor, text, cause in ((0.2, "0.2 (1/N)", "a mean in place of a sum"),
                                    (1 / 12, "0.0833333333 (1/12)", "a mean in place of a sum"),
                                    (1 / pixels, f"{1 / pixels:.9g} (1/(N*P*Q))", "a mean in place of a sum"),
                                    (2.0**13, "8192 (2^13)", "a loss scale"), (0.37, "0.37", "")):
            lines = self.verify(single(self.dw * factor))
            with self.subTest(factor=factor):
                self.assertIn(f"it is multiplied by {text} (all", lines[0])
                found = self.report["findings"][0]["cause"]
                self.assertIn(cause, found) if cause else self.assertEqual(found, "")

    def test_equal_elements_are_one_piece_of_evidence(self):
        # Equal channels of x and of dy: one number in all 32, which is a multiple of any other.
        p = plain_problem(n=4, size=(4, 4), c=4, k=8, taps=(1, 1))
        p.x[:], p.dy[:] = p.x[..., :1], p.dy[..., :1]
        self.use(p)
        self.assertEqual(len(np.unique(self.dw)), 1)
        lines = self.verify(single(self.dw * 1.2345))
        self.assertEqual(self.report["findings"], [], lines)


class Pairs(DiagnosisTest):
    def test_two_faults(self):
        p = self.use(normal_problem())
        low = {name: kept("bfloat16", getattr(p, name))
               for name in ("x", "dy")}
        values = self.wrong(**low)
        values[1, 0] = 0
        self.names(single(values), "input_precision+zero",
                   "x and dy are rounded to bfloat16 before they are multiplied, and 0 is in place "
                   "of tap (1,0)")
