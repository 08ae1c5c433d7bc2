"""verify's diagnosis of x and dy that are not read as they are: numbers that were rounded or cut
off, images, lines and pixels that are others', attributes of one axis, and sums of parts."""
import numpy as np
from harness import kept, put, single, tf32
from test_diagnosis import DiagnosisTest, normal_problem, plain_problem


def of_bits(values, bits, least, most):
    """The nearest numbers of so many bits, ties to even."""
    unit = np.exp2(np.maximum(np.floor(np.log2(np.abs(values) + 2.0**-1000)), least) + 1 - bits)
    return np.clip(np.rint(values / unit) * unit, -most, most)


class Inputs(DiagnosisTest):
    def test_roundings_of_tf32(self):
        for scale in (1, 1e-4, 1e-9):
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

    def test_small_types(self):
        p = self.use(normal_problem())
        for name, bits, least, most in (("float8 e4m3", 4, -6, 448), ("float8 e5m2", 3, -14, 57344)):
            for scaled in (False, True):
                x, dy = (of_bits(v / s, bits, least, most) * s for v in (p.x, p.dy)
                         for s in [np.abs(v).max() / most if scaled else 1])
                self.names(single(self.wrong(x=x, dy=dy)), "input_precision",
                           f"x and dy are rounded to {name}"
                           f"{', with a scale for each tensor' if scaled else ''}"
                           " before they are multiplied")
        steps = [np.abs(v).max() / 127 for v in (p.x, p.dy)]
        x, dy = (np.rint(single(v / s)) * s for v, s in zip((p.x, p.dy), steps))
        self.names(single(self.wrong(x=x, dy=dy)), "input_precision",
                   "x and dy are rounded to int8", whole=False)

    def test_scales(self):
        p = self.use(normal_problem(size=(16, 8), c=64, k=6, groups=1, strides=(1, 1)))

        def scaled(values, axes):
            scale = np.abs(values).max(axes, keepdims=True) / 448
            return of_bits(values / scale, 4, -6, 448) * scale

        def blocks(values):
            scale = np.exp2(np.floor(np.log2(np.abs(values).max(-1, keepdims=True))) - 8)
            return of_bits(values / scale, 4, -6, 448) * scale

        for x, text in ((scaled(p.x, (0, 1, 2)), "channel"), (scaled(p.x, (1, 2, 3)), "image"),
                        (blocks(p.x.reshape(-1, 32)), "32 channels of a pixel (MX)"),
                        (blocks(p.x.reshape(-1, 32, 64).swapaxes(1, 2)).swapaxes(1, 2),
                         "32 pixels of a channel (MX)")):
            self.names(single(self.wrong(x=x.reshape(p.x.shape))), "input_precision",
                       f"x alone is rounded to float8 e4m3, with a scale for each {text} before "
                       "they are multiplied")

    def test_one_tensor_in_some_pixels(self):
        p = self.use(plain_problem(n=4, size=(16, 15), taps=(1, 1)))
        for rounding, name in ((lambda v: kept("float16", v), "float16"),
                               (lambda v: kept("bfloat16", v), "bfloat16")):
            x = put(p.x, (slice(2, 4), rounding(p.x[2:])))
            self.names(single(self.wrong(x=x)), "input_precision", f"x alone is rounded to {name} "
                       "before they are multiplied, in images 2 to 3 alone", among=True)
            dy = p.dy.copy()
            dy.reshape(-1, p.k)[700:] = rounding(dy.reshape(-1, p.k)[700:])
            self.names(single(self.wrong(dy=dy)), "input_precision", f"dy alone is rounded to {name} "
                       "before they are multiplied, in pixels 700 to 959 of N*P*Q = 960 alone",
                       among=True)

    def test_autocast(self):
        p = self.use(normal_problem())
        low = {name: kept("bfloat16", getattr(p, name)) for name in ("x", "dy")}
        self.names(kept("bfloat16", single(self.wrong(**low))), "input_precision+result_precision",
                   "x and dy are rounded to bfloat16 before they are multiplied, and it is rounded "
                   "to bfloat16 once")

    def test_two_terms(self):
        p = self.use(normal_problem())
        (xh, xl), (yh, yl) = ((high, kept("bfloat16", v - high)) for v in (p.x, p.dy)
                              for high in [kept("bfloat16", v)])
        three = self.wrong(x=xh + xl, dy=yh) + self.wrong(x=xh, dy=yl)
        self.names(single(three), "input_precision",
                   "x and dy are split into two bfloat16 numbers each, and the product of the lower"
                   " ones is left out")
        self.names(single(self.wrong(x=xh, dy=yh + yl)), "input_precision",
                   "x is rounded to bfloat16, and dy to the sum of two bfloat16 numbers")

    def test_one_image(self):
        p = self.use(normal_problem())
        x, dy = p.x.copy(), p.dy.copy()
        x[2], dy[2] = kept("bfloat16", x[2]), kept("bfloat16", dy[2])
        self.names(single(self.wrong(x=x, dy=dy)), "input_precision",
                   "x and dy are rounded to bfloat16 before they are multiplied, in image 2 alone")


class Images(DiagnosisTest):
    def test_images(self):
        for op in ("conv2d", "depthwise", "conv3d"):
            p = self.use(normal_problem(op, n=5))
            for order, text in (([0] * 5, "image 0 of input is taken for all images"),
                                ([4] * 5, "the last image of input is taken for all images"),
                                ([4, 0, 1, 2, 3], "input is one image behind"),
                                ([1, 2, 3, 4, 0], "input is one image ahead"),
                                ([4, 3, 2, 1, 0], "the images of input stand in reverse order"),
                                ([2, 3, 4, 0, 1], "input is 2 images ahead"),
                                ([1, 0, 3, 2, 4], "images of input are exchanged in pairs"),
                                ([0, 1, 2, 0, 1], "input begins again at image 0 after every 3")):
                self.names(single(self.wrong(x=p.x[order])), "image_order", text, whole=False)
            self.names(single(self.wrong(dy=p.dy[[0] * 5])), "image_order",
                       "image 0 of out_backprop is taken for all images")
        p = self.use(normal_problem())
        self.names(single(self.wrong(x=p.x[[2, 3, 0, 1]])), "image_order",
                   "the halves of input's images are exchanged")

    def test_distance_of_images(self):
        p = self.use(plain_problem(padding="valid", taps=(3, 3)))
        size = int(np.prod(p.x.shape[1:]))
        stride = int(np.prod(p.dy.shape[1:-1])) * p.c
        self.assertLess(stride, size)
        x = np.stack([p.x.reshape(-1)[n * stride:n * stride + size] for n in range(p.n)])
        self.names(single(self.wrong(x=x.reshape(p.x.shape))), "image_order",
                   f"images of input begin every {stride} elements, not every {size}")

    def test_weights(self):
        p = self.use(normal_problem())
        for first, last, weight, text in ((0, 2, 0.5, "images 0 to 1 are multiplied by 0.5"),
                                          (1, 2, -0.3, "image 1 is multiplied by -0.3")):
            dy = put(p.dy, (slice(first, last), weight * p.dy[first:last]))
            self.names(single(self.wrong(dy=dy)), "weighted_images", text)


class Attributes(DiagnosisTest):
    def test_one_axis(self):
        p = self.use(plain_problem(strides=(2, 1), dilations=(2, 3), size=(17, 19), taps=(3, 3)))
        for changes, fault, text in (
                (dict(strides=(2, 2)), "attribute_order", "the stride of h is taken for w"),
                (dict(strides=(1, 1)), "strides_ignored", "the strides are ignored"),
                (dict(dilations=(2, 2)), "attribute_order", "the dilation of h is taken for w"),
                (dict(dilations=(2, 1)), "dilations_ignored", "the dilation of w is ignored"),
                (dict(dilations=(3, 4)), "dilations_off_by_one",
                 "the dilations are one more: 3,4 in place of 2,3"),
                (dict(strides=(3, 1)), "strides_off_by_one",
                 "the stride of h is one more: 3 in place of 2")):
            self.names(single(self.wrong(**changes)), fault, text)

    def test_padding_of_another_axis(self):
        p = self.use(plain_problem(size=(11, 9), taps=(7, 3), padding="same"))
        self.assertEqual(tuple(p.before), (3, 1))
        self.names(single(self.wrong(before=(1, 1))), "attribute_order",
                   "the padding of w is taken for h")

    def test_padding_that_holds_a_value(self):
        p = self.use(plain_problem(taps=(3, 3), padding="same"))
        for value in (1, -0.25):
            x = np.pad(p.x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=value)
            self.names(single(self.wrong(x=x, before=(0, 0))), "padding_values",
                       f"padding holds {value} instead of zeros")
        x = np.pad(p.x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        x[1:, 0, 1:-1], x[:-1, -1, 1:-1] = p.x[:-1, -1], p.x[1:, 0]
        self.names(single(self.wrong(x=x, before=(0, 0))), "padding_values", "padding reads the image before, or after")


class Totals(DiagnosisTest):
    def total(self, dtype, images):
        p, total = self.problem, 0
        for n in range(0, p.n, images):
            part = self.wrong(x=p.x[n:n + images], dy=p.dy[n:n + images])
            total = kept(dtype, single(total + part))
        return total

    def test_total_of_images(self):
        for dtype in ("bfloat16", "float16"):
            self.use(plain_problem(n=8, dtype=dtype), dtype)
            for images, unit in ((1, "each image"), (2, "every 2 images")):
                lines = self.verify(self.total(dtype, images))
                self.assertEqual(len(lines), 1, lines)
                self.assertTrue(lines[0].startswith(
                    f"the result matches bit by bit if the total is rounded to {dtype} after {unit}"
                    ", whose sums are float32"), lines)
                self.assertIn("a GEMM with beta = 1 into a 16-bit gradient", lines[0])

    def test_pairs_of_products(self):
        p = self.use(plain_problem(n=3, taps=(1, 1)))
        x, dy = p.x.reshape(-1, 2, p.c, 1), p.dy.reshape(-1, 2, 1, p.k)
        dw = kept("float16", kept("float16", x * dy).sum(1)).sum(0)
        self.names(single(dw).reshape(self.dw.shape), "low_precision_sums",
                   "products are added in float16, 2 pixels at a time, and these sums in float32",
                   whole=False)

    def test_products(self):
        p = self.use(plain_problem(n=3, taps=(1, 1)))
        for dtype in ("bfloat16", "float16"):
            x, dy = p.x.reshape(-1, p.c, 1), p.dy.reshape(-1, 1, p.k)
            dw = kept(dtype, x * dy).sum(0)
            self.names(single(dw).reshape(self.dw.shape), "product_precision",
                       f"products are rounded to {dtype} before they are added")
