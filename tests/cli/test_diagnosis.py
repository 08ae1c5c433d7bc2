"""verify's diagnosis: faults put into a right gradient, each of which it must name. Everything wrong is made here, from the
definition, with numpy."""
import numpy as np

from diagnosing import DiagnosisTest, normal_problem, plain_problem
from harness import kept, put, single, tf32


class Faults(DiagnosisTest):
    """Orders, attributes, groups, sums of few digits, and images."""

    def test_filter_flipped(self):
        self.names(np.flip(self.dw, 1), "filter_flipped", "the filter is flipped in w")
        self.use(normal_problem("conv3d"))
        self.names(np.flip(self.dw, (0, 1, 2)), "filter_flipped", "the filter is flipped in d, h and w")

    def test_filter_order(self):
        self.use(normal_problem(groups=1))
        for name, order in (("OIHW", (3, 2, 0, 1)), ("HWOI", (0, 1, 3, 2)), ("WHIO", (1, 0, 2, 3))):
            with self.subTest(name):
                memory = np.ascontiguousarray(np.transpose(self.dw, order))
                words = {"HWOI": "C and K are exchanged: ",
                         "WHIO": "rows and columns of the filter are exchanged: "}.get(name, "")
                self.names(memory.reshape(self.dw.shape), "filter_order",
                           f"{words}its elements are taken in {name} order, not in HWIO")

    def test_filter_order_the_other_way_round(self):
        # The file is said to be OIHW, and holds HWIO.
        self.use(normal_problem(groups=1))
        k, c = self.dw.shape[3], self.dw.shape[2]
        self.names(self.dw.reshape(k, c, *self.problem.taps), "filter_order",
                   "its elements are taken in HWIO order, not in OIHW", "--filter-format", "OIHW")

    def test_layouts(self):
        def as_channels_first(tensor):
            # The memory of an NHWC tensor, taken for NCHW.
            shape = (tensor.shape[0], tensor.shape[-1], *tensor.shape[1:-1])
            return np.moveaxis(tensor.reshape(shape), 1, -1)

        p = self.use(normal_problem("conv3d"))
        x, dy = as_channels_first(p.x), as_channels_first(p.dy)
        for changes, which in (({"x": x}, "input"), ({"dy": dy}, "out_backprop"),
                               ({"x": x, "dy": dy}, "input and out_backprop")):
            with self.subTest(which=which):
                self.names(self.wrong(**changes), "tensor_layout",
                           f"the memory of {which} is taken for NCDHW, not NDHWC")
        turned = np.moveaxis(p.x, -1, 1).reshape(p.x.shape)
        self.names(self.wrong(x=turned), "tensor_layout",
                   "the memory of input is turned to NCDHW and then taken for NDHWC")

    def test_layouts_of_channels_first(self):
        self.use(normal_problem(last=False))
        x = self.problem.x
        memory = np.ascontiguousarray(np.moveaxis(x, -1, 1))  # NCHW, as the file is
        self.names(self.wrong(x=memory.reshape(x.shape)), "tensor_layout",
                   "the memory of input is taken for NHWC, not NCHW")

    def test_axes_swapped(self):
        p = self.use(normal_problem(size=(8, 8), strides=(1, 1), dilations=(1, 1)))
        self.names(self.wrong(x=np.swapaxes(p.x, 1, 2)), "tensor_layout",
                   "the memory of input is taken with h and w swapped")

    def test_padding_before_instead_of_after(self):
        # SAME puts the odd row and column after. One off by one is the same: one statement for both.
        self.use(normal_problem(size=(8, 8), taps=(3, 3), strides=(2, 2), dilations=(1, 1)))
        self.assertEqual(self.problem.before, (0, 0))
        self.names(self.wrong(before=(1, 1)), "padding_swapped",
                   "the padding after is put before: the padding before h and w is 1,1, not 0,0")
        self.names(self.wrong(before=(1, 0)), "padding_swapped",
                   "the padding after is put before: the padding before h is 1, not 0")
        self.use(normal_problem(size=(8, 8), taps=(3, 3), strides=(1, 1), dilations=(1, 1),
                                padding=((3, 0), (0, 2))))
        self.names(self.wrong(before=(0, 2)), "padding_swapped",
                   "the padding after is put before: the padding before h and w is 0,2, not 3,0")

    def test_attributes_of_h_and_w_swapped(self):
        self.use(normal_problem(size=(12, 12), taps=(3, 3), strides=(2, 1), dilations=(1, 3),
                                padding=((2, 1), (0, 4))))
        self.names(self.wrong(strides=(1, 2)), "attribute_order",
                   "the strides of h and w are swapped")
        self.names(self.wrong(dilations=(3, 1)), "attribute_order",
                   "the dilations of h and w are swapped")
        self.names(self.wrong(before=(0, 2)), "attribute_order",
                   "the padding of h and w are swapped")

    def test_group_order(self):
        p = self.use(normal_problem(c=8, k=12, groups=4))
        each = p.k // p.groups
        blocks = self.dw.reshape(*self.dw.shape[:3], p.groups, each)
        self.names(blocks[..., ::-1, :].reshape(self.dw.shape), "group_order",
                   "its groups are in reverse order")
        self.names(blocks[..., [2, 0, 3, 1], :].reshape(self.dw.shape), "group_order",
                   "its groups are in the order 2,0,3,1")
        # Output channels numbered with the groups fastest.
        mixed = np.swapaxes(blocks, -1, -2).reshape(self.dw.shape)
        lines = self.verify(mixed)
        self.assertTrue(lines[0].startswith("the result matches if its groups are interleaved"),
                        lines)
        self.assertEqual(self.report["findings"][0]["fault"], "group_order")

    def test_group_order_of_the_tensors(self):
        p = self.use(normal_problem(c=8, k=12, groups=4))

        def reverse(tensor):
            parts = tensor.reshape(*tensor.shape[:-1], p.groups, -1)
            return parts[..., ::-1, :].reshape(tensor.shape)

        def interleaved(tensor):
            parts = tensor.reshape(*tensor.shape[:-1], -1, p.groups)
            return np.swapaxes(parts, -1, -2).reshape(tensor.shape)

        self.names(self.wrong(x=reverse(p.x)), "group_order",
                   "the groups of input are in reverse order")
        for changes, which in (({"x": interleaved(p.x)}, "input"),
                               ({"dy": interleaved(p.dy)}, "out_backprop")):
            lines = self.verify(self.wrong(**changes))
            self.assertEqual([f["fault"] for f in self.report["findings"]], ["group_order"], lines)
            self.assertIn(f"the groups of {which} are interleaved", lines[0])

    def half_sums(self, kind, order=slice(None), fused=False):
        """Sums of float16 (or float32) numbers, pixel by pixel in some order."""
        p = self.problem
        dw = np.zeros((*p.taps, p.c // p.groups, p.k), kind)
        for tap, x, dy in self.seen(p.x.astype(kind), p.dy.astype(kind), order):
            parts = x.astype("f8") * dy if fused else x * dy
            dw[tap] = (dw[tap] + np.moveaxis(parts, 0, 1).reshape(dw[tap].shape)).astype(kind)
        return dw.astype("f8").reshape(self.dw.shape)

    def test_half_precision_sums(self):
        for dtype, op, fused in (("float16", "conv2d", False), ("float32", "depthwise", True)):
            self.use(normal_problem(op, n=3, size=(12, 11), dtype="float16"), dtype)
            with self.subTest(dtype=dtype, op=op, fused=fused):
                lines = self.verify(self.half_sums("f2", fused=fused))
                found = self.report["findings"]
                self.assertEqual([f["fault"] for f in found], ["low_precision_sums"], lines)
                self.assertEqual(found[0]["certainty"], "bits")
                self.assertRegex(lines[0], "^the result matches bit by bit if sums are "
                                           "rounded to float16 after each addition")

    def test_half_precision_sums_in_another_order(self):
        self.use(normal_problem(n=4, size=(16, 15), strides=(1, 1), dilations=(1, 1), dtype="float16"))
        lines = self.verify(self.half_sums("f2", slice(None, None, -1)))
        found = self.report["findings"]
        self.assertEqual([(f["fault"], f["certainty"]) for f in found], [("low_precision_sums", "size")], lines)
        self.assertRegex(lines[0], "^the result has errors of the size that it has if sums are rounded to float16 ")

    def test_float32_sums_of_float64(self):
        self.use(normal_problem(n=4, size=(12, 11)), "float64")
        lines = self.verify(self.half_sums("f4"))
        self.assertIn("sums are rounded to float32 after each addition", lines[0])

    def test_missing_image(self):
        p = self.use(normal_problem(n=5))
        for images, fault, text in (([1, 2, 3, 4], "missing_image", "image 0 is left out"),
                                    ([0, 1, 2, 4], "missing_image", "image 3 is left out"),
                                    ([0, 1, 2], "missing_image", "images 3 to 4 are left out"),
                                    ([2, 3, 4], "missing_image", "images 0 to 1 are left out"),
                                    ([0, 1, 1, 2, 3, 4], "doubled_image", "image 1 is counted twice")):
            self.names(self.wrong(x=p.x[images], dy=p.dy[images]), fault, text)

    def test_weights(self):
        p = self.use(normal_problem())
        for first, last, weight, text in ((0, 2, 0.5, "images 0 to 1 are multiplied by 0.5"),
                                          (1, 2, -0.3, "image 1 is multiplied by -0.3")):
            dy = put(p.dy, (slice(first, last), weight * p.dy[first:last]))
            self.names(self.wrong(dy=dy), "weighted_images", text)


class Inputs(DiagnosisTest):
    def test_roundings_of_tf32(self):
        for scale in (1, 1e-9):
            p = normal_problem(size=(29, 28), n=8)
            p.dy = single(p.dy * scale)
            # Ties are one of 8192 numbers; a few more tell the roundings apart.
            ties = np.asarray(p.x).astype("<f4").view("<u4")
            ties.reshape(-1)[::50] = ties.reshape(-1)[::50] & 0xFFFFE000 | 0x1000
            p.x = ties.view("<f4").astype("f8")
            self.use(p)
            for how, text in (("even", "TF32 (half to even)"), ("away", "TF32")):
                lines = self.verify(single(self.wrong(x=tf32(p.x, how), dy=tf32(p.dy, how))))
                self.assertTrue(lines[0].startswith(f"the result matches if x and dy are rounded "
                                                    f"to {text} before"), lines)
            self.names(single(self.wrong(x=tf32(p.x, "cut"), dy=tf32(p.dy, "cut"))),
                       "input_precision", "x and dy are cut off to TF32 before they are multiplied")


class Images(DiagnosisTest):
    def test_images(self):
        p = self.use(normal_problem(n=5))
        for order, text in (([0] * 5, "image 0 of input is taken for all images"),
                            ([4] * 5, "the last image of input is taken for all images"),
                            ([4, 0, 1, 2, 3], "input is one image behind"),
                            ([1, 2, 3, 4, 0], "input is one image ahead"),
                            ([0, 1, 2, 0, 1], "input begins again at image 0 after every 3")):
            self.names(single(self.wrong(x=p.x[order])), "image_order", text, whole=False)
        self.names(single(self.wrong(dy=p.dy[[0] * 5])), "image_order",
                   "image 0 of out_backprop is taken for all images")


class Places(DiagnosisTest):
    """Faults in a part of the gradient, which is named as people do."""

    def use_tiles(self):
        self.use(plain_problem(c=35, k=35, taps=(3, 3)))

    def test_zero_and_nan(self):
        self.use_tiles()
        for place, value, text in (
                ((1, 2), 0, "tap (1,2)"),
                ((..., slice(32, None)), np.nan, "output channels k 32-34 (the last 3 of 35, a remainder of 32)"),
                ((1, 2, ..., slice(16, 32)), 0, "output channels k 16-31 (a whole tile of 16) of tap (1,2)"),
                ((slice(None), slice(None), slice(7, None, 8)), np.nan, "input channels c % 8 == 7 (every 8th)"),
                ((0, 1, 0, 3), 0, "the element r 0, s 1, c 0, k 3")):
            with self.subTest(text=text):
                self.names(single(put(self.dw, (place, value))), "nan" if value else "zero",
                           f"{'NaN' if value else 0} is in place of {text}", whole=False)
        self.names(self.dw * np.nan, "nan", "every element is set to NaN", whole=False)
        values = put(self.dw, ((0, 1, ..., 2), 0), ((2, 2, ..., 20), 0))
        self.names(single(values), "zero", "0 is in place of output channel k 2 of tap (0,1), and "
                                           "output channel k 20 of tap (2,2)", whole=False)

    def test_copies(self):
        self.use_tiles()
        values = put(self.dw, ((0, 1), self.dw[2, 2]))
        self.names(single(values), "copied", "tap (0,1) holds (2,2)", whole=False)
        values = put(self.dw, ((0, 1, slice(16), slice(16)), self.dw[1, 1, :16, :16]))
        self.names(single(values), "copied", "16x16 tile c 0-15, k 0-15 of tap (0,1) holds c 0-15, "
                                             "k 0-15 of tap (1,1)", whole=False)
        self.names(single(self.dw[..., [k ^ 1 if k < 34 else k for k in range(35)]]),
                   "channel_order", "the output channels are exchanged in pairs, k and k^1",
                   whole=False)
        for values, text in ((self.dw[..., ::-1], "in reverse order"), (np.roll(self.dw, -4, -1), "shifted by 4")):
            self.names(single(values), "channel_order", f"its output channels are {text}", whole=False)

    def test_taps_exchanged_in_a_channel(self):
        self.use_tiles()
        values = put(self.dw, ((0, 0, ..., 5), self.dw[0, 1, ..., 5]),
                     ((0, 1, ..., 5), self.dw[0, 0, ..., 5]))
        self.names(single(values), "tap_order", "the taps (0,0) and (0,1) are exchanged, in output "
                   "channel k 5 alone", whole=False)

    def test_a_fault_in_one_place(self):
        self.use_tiles()
        p = self.problem
        others = [0, 1, 3]
        wrong = self.wrong(x=p.x[others], dy=p.dy[others])
        values = put(self.dw, ((..., slice(16, 32)), wrong[..., 16:32]))
        self.names(single(values), "missing_image", "image 2 is left out, in output channels k "
                   "16-31 (a whole tile of 16) alone", whole=False)
        values = put(self.dw, ((..., 2), 2.5 * self.dw[..., 2]))
        self.names(single(values), "scale_factor", "it is multiplied by 2.5, in output channel k 2 "
                                                   "alone", whole=False)


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
            self.names(single(self.dw + part), "doubled_pixels", f"{text} counted twice",
                       whole=False)


    def test_of_every_image(self):
        p = self.use(normal_problem(n=4, size=(16, 17), strides=(1, 1), dilations=(1, 1)))
        lanes = np.arange(p.dy[..., 0].size).reshape(p.dy.shape[:-1]) % 32
        for pixels, text in (((slice(None), slice(8, 12)), "rows 8 to 11 of every image are"),
                             ((slice(None), slice(None), 5), "column 5 of every image is"),
                             ((slice(None), 15, 0), "the pixel p 15, q 0 of every image is"),
                             ((2, slice(4, 8), slice(8, 12)), "the tile p 4-7, q 8-11 of image 2 is"),
                             ((slice(None), slice(4, 8), slice(8, 12)),
                              "the tile p 4-7, q 8-11 of every image is"),
                             (lanes == 31, "lane 31 of 32 that take pixels in turns is")):
            part = self.wrong(dy=put(np.zeros_like(p.dy), (pixels, p.dy[pixels])))
            with self.subTest(text):
                self.names(single(self.dw - part), "missing_pixels", f"{text} left out")

    def test_stages(self):
        p = self.use(plain_problem(n=4, size=(16, 15)))
        for exchanged, text in ((False, "a stage of 32 pixels of dy is the one before it, in pixels "
                                        "640 to 671"),
                                (True, "stages of 32 pixels of dy change places, in pixels 640 to "
                                       "703")):
            dy = p.dy.copy()
            flat, old = dy.reshape(-1, p.k), p.dy.reshape(-1, p.k)
            flat[640:672] = old[672:704] if exchanged else old[608:640]
            flat[672:704] = old[640:672] if exchanged else old[672:704]
            self.names(single(self.wrong(dy=dy)), "stale_pixels", f"{text} of N*P*Q = 960 alone")


class Precision(DiagnosisTest):

    def test_one_rounding_in_one_place(self):
        # Thousands of split sums give most of these elements too: the one rounding is the name.
        p = self.use(normal_problem(n=4, size=(12, 11), groups=1))
        for dtype, name, place, text in (("bfloat16", "bfloat16", (..., 5), "output channel k 5"),
                                         ("bfloat16", "bfloat16", (..., 2, slice(None)), "input channel c 2"),
                                         ("float16", "float16 or TF32", (1, 1), "tap (1,1)")):
            with self.subTest(dtype=dtype, text=text):
                values = single(put(self.dw, (place, kept(dtype, self.dw[place]))))
                self.names(values, "result_precision", f"it is rounded to {name} once, in {text} alone")
        self.assertEqual(p.k, 6)

    def test_split_sums(self):
        p = self.use(normal_problem(n=4, size=(16, 15), strides=(1, 1), dilations=(1, 1)))
        pixels = int(np.prod(p.dy.shape[:-1]))
        for splits, text in ((4, "the sums of each image"), (7, "the sums of 7 splits (split-K)")):
            chunk = -(-pixels // splits)
            total = 0
            for begin in range(0, pixels, chunk):
                dy = np.zeros_like(p.dy)
                dy.reshape(-1, p.k)[begin:begin + chunk] = p.dy.reshape(-1, p.k)[
                    begin:begin + chunk]
                total = total + kept("bfloat16", self.wrong(dy=dy))
            self.names(single(total), "low_precision_sums", f"{text} are rounded to bfloat16",
                       whole=False)

    def test_winograd_in_16_bits(self):
        """Toom and Cook's transforms by points and infinity, of tiles that are then rounded."""
        for dtype, points, taps in (("float16", (0, 1, -1), (3, 3)), ("bfloat16", (0, 1, -1, 2, -2), (3, 3)),
                                    ("bfloat16", (0, 1, -1), (1, 3))):
            m = len(points) - 1
            roots = [[b for b in points if b != a] for a in points]
            of_x = np.array([[*np.poly(rest)[::-1], 0] for rest in roots] + [np.poly(points)[::-1]])
            of_dy = np.array([[a**i / np.prod([a - b for b in rest]) for i in range(m)]
                              for a, rest in zip(points, roots)] + [[0] * (m - 1) + [1]])
            to_taps = np.array([[a**i for a in points] + [i == 2] for i in range(3)])
            one = np.ones((1, 1))
            forms = [(of_x, of_dy, to_taps) if count == 3 else (one,) * 3 for count in taps]
            p = self.use(plain_problem(n=3, size=(9, 14), c=8, k=8, taps=taps, dtype=dtype), dtype)
            tiles = [-(-out // form[1].shape[1]) for out, form in zip(p.dy.shape[1:3], forms)]
            x, dy = (np.pad(a, ((0, 0), *((b if a is p.x else 0, m + 2) for b in p.before), (0, 0))) for a in (p.x, p.dy))
            total = 0
            for at in np.ndindex(*tiles):
                def tile(a, kind):
                    windows = (slice(t * form[1].shape[1], t * form[1].shape[1] + form[kind].shape[1]) for t, form in zip(at, forms))
                    return kept(dtype, np.einsum("ih,jw,nhwc->nijc", forms[0][kind], forms[1][kind], a[(slice(None), *windows)]))
                total = total + np.einsum("nijc,nijk->ijck", tile(x, 0), tile(dy, 1))
            values = np.einsum("ri,sj,ijck->rsck", forms[0][2], forms[1][2], total)
            with self.subTest(dtype=dtype, points=points, taps=taps):
                self.names(values, "winograd_tiles", f"it is summed by Winograd's F(3, {m}), whose tiles are rounded to {dtype}", whole=False)


class Fillings(DiagnosisTest):
    """What stands in the place of right sums."""

    def cut_off(self, bits):
        """The exact sums without the digits beyond so many bits."""
        mantissa, exponent = np.frexp(self.dw)
        return np.ldexp(np.trunc(np.ldexp(mantissa, bits)), exponent - bits)

    def test_roundings(self):
        for dtype, bits in (("bfloat16", 8), ("float16", 11)):
            self.use(plain_problem(c=12, k=16, taps=(3, 3), dtype=dtype), dtype)
            for file in {dtype, "float32"} if bits == 8 else {"float32"}:
                name = dtype if dtype == "bfloat16" or file == dtype else "float16 or TF32"
                with self.subTest(dtype=dtype, file=file):
                    self.names(self.cut_off(bits), "result_precision",
                               f"it is cut off to {name} once", dtype=file)

    def test_a_factor_within_half_a_step_is_none(self):
        self.use(plain_problem(c=12, k=16, taps=(3, 3), dtype="float16"), "float16")
        lines = self.verify(self.cut_off(11) * (1 - 2.0**-13))
        self.assertNotIn("scale_factor", [f["fault"] for f in self.report["findings"]], lines)

    def test_saturation(self):
        p = normal_problem(n=4, dtype="float16")
        p.x = p.x.clip(-4, 4) * 512
        self.use(p, "float16")
        p.dy = p.dy * 2.0**np.round(np.log2(3 * 65504 / abs(self.dw).max()))
        self.use(p, "float16")
        self.assertGreater(np.count_nonzero(abs(self.dw) > 65520), 3)
        for most, name, verb in ((65504, ", the largest float16", "overflow"),
                                 (57344, ", the largest float8_e5m2", "be larger")):
            self.names(self.dw.clip(-most, most), "saturated",
                       f"it is cut off at {most}{name}, where it should {verb}", dtype="float16")
        self.names(single(self.dw.clip(-65504, 65504)), "saturated",
                   "it is cut off at 65504, the largest float16, where it should be larger",
                   dtype="float32")

    def test_sums_of_ones_stop(self):
        for dtype, stop in (("bfloat16", 256), ("float16", 2048)):
            p = plain_problem(n=2, size=(40, 40), c=2, k=3, taps=(1, 1), dtype=dtype)
            p.x[:], p.dy[:] = 1, 0.5
            self.use(p, dtype)
            lines = self.verify(self.dw * 0 + stop / 2)
            self.assertEqual(lines[0].split(" (")[0], "the result matches bit by bit if sums are rounded to "
                             f"{dtype} after each addition, pixel by pixel")

    def test_nonfinite_suppressed(self):
        for last, value in ((True, np.nan), (False, np.inf)):
            p = normal_problem(groups=1, last=last)
            self.use(p)
            at = (3, 2, 2, 5) if last else (3, 5, 2, 2)
            skipped = self.wrong(dy=put(p.dy, ((3, 2, 2, 5), 0)))
            p.dy[3, 2, 2, 5] = value
            self.use(p)
            place = ",".join(map(str, at))
            touched = ~np.isfinite(self.dw)
            for values, what in ((skipped, "the sum of the other terms"), (np.where(touched, 0, skipped), "0")):
                with self.subTest(last=last, what=what):
                    lines = self.verify(single(values))
                    self.assertEqual([f["fault"] for f in self.report["findings"]], ["nonfinite_suppressed"], lines)
                    self.assertIn(f", as dy[{place}] has; it is {what} there", lines[0])
                    self.assertIn("output channel k 5", lines[0])

    def test_causes_of_factors(self):
        pixels = self.use(normal_problem(n=5)).dy[..., 0].size
        for factor, text, cause in ((2, "2", "added to what was there"),
                                    (3, "3", "added to what was there"), (-1, "-1", "a sign"),
                                    (0.2, "0.2 (1/N)", "a mean in place of a sum"),
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
        self.names(single(self.dw[::-1] * 3), "filter_flipped+scale_factor",
                   "the filter is flipped in h, and it is multiplied by 3")
        self.names(single(self.wrong(**low)[::-1]), "filter_flipped+input_precision",
                   "the filter is flipped in h, and x and dy are rounded to bfloat16 before they "
                   "are multiplied")
        values = self.wrong(**low)
        values[1, 0] = 0
        self.names(single(values), "input_precision+zero",
                   "x and dy are rounded to bfloat16 before they are multiplied, and 0 is in place "
                   "of tap (1,0)")
