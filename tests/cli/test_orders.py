"""verify judges by any order of summing, and says if it must; what a wider order's errors hide by their size, their
structure tells. Sums are made here in float32, one term after the other."""
import pathlib
import subprocess

import numpy as np

from harness import BINARY, Problem, clean_environment, save, tf32
from verifying import VerifyTest, in_sequence


class OrdersTest(VerifyTest):
    FLAGS = ("--diagnosis", "off",)
    library = False  # is asked, too

    def pointwise(self, n, size, c, k, sign, terms=True):
        """1x1; x >= 0 and dy of one sign in each part of the pixels. Terms [n, p, q, c, k]."""
        random = np.random.default_rng(1)
        self.problem = Problem("conv2d", n=n, c=c, k=k, size=(size, size), taps=(1, 1), padding="valid")
        x = np.maximum(random.standard_normal((n, size, size, c)) + .5, 0).astype("f4")
        parts = np.meshgrid(*map(np.arange, (n, size, size)), indexing="ij")
        dy = (1 + .3 * random.standard_normal((n, size, size, k))) * np.where(sign(*parts), 1, -1)[..., None]
        self.x, self.dy = x, dy.astype("f4")
        save(self.folder / "x.npy", self.x, "float32")
        save(self.folder / "dy.npy", self.dy, "float32")
        return self.x[..., :, None] * self.dy[..., None, :] if terms else None

    def judge(self, gradient, *flags, status=0):
        save(self.folder / "r.npy", np.reshape(gradient, (1, 1, *gradient.shape[-2:])), "float32")
        lines = self.verify("--result", "r.npy", *flags, status=status).splitlines()
        if self.library and not {"--sample", "--fail-assumed"} & set(flags):
            self.assertEqual(self.by_the_library(flags, lines), self.by_the_program(lines), lines)
        return lines

    def by_the_program(self, lines):
        cut = [line.split(" of up to ")[1].split()[0] if " of up to " in line else "0" for line in lines
               if line.startswith("reason: adders")]
        verdict = "match" + " assumed" * lines[0].startswith("MATCH if") if lines[0].startswith("MATCH") else "mismatch"
        return verdict + "".join(f" cut {terms}" for terms in cut)

    def by_the_library(self, flags, lines):
        tool = pathlib.Path(BINARY).parent / "tests/library_verdict"
        if not tool.exists():  # an installed program
            return self.by_the_program(lines)
        values = dict(zip(flags[::2], map(str, flags[1::2])))
        words = ["natural"] * ("--order" in values)
        words += [f"{word}={values[flag]}" for flag, word in (("--longest-sum", "longest"), ("--adders", "adders")) if flag in values]
        problem = next(line for line in lines if line.startswith("conv2d "))
        done = subprocess.run([tool, "x.npy", "dy.npy", "r.npy", problem, *words], cwd=self.folder, capture_output=True, text=True,
                              check=True, env=clean_environment())
        return done.stdout.strip()

    def apart(self, terms, axis):
        one = terms.shape[3:]
        return sum(in_sequence(np.take(terms, range(i, terms.shape[axis], 2), axis).reshape(-1, *one)) for i in (0, 1))

    def assumes_an_order(self, gradient, *flags):
        first = self.judge(gradient, *flags)[0]
        self.assertRegex(first, r"^MATCH if it sums in another order than n, z, p, q: errors are [\d.]+ times what that order makes, "
                         r"another may make [\d.]+; --order natural or the probe \(generate --signs\) decides; r.npy against the "
                         "float64 reference$")

    def test_a_match_says_that_it_assumes_an_order(self):
        for axis, what, sign in ((0, "images", lambda n, p, q: n % 2), (1, "rows", lambda n, p, q: p % 2),
                                 (2, "pixels", lambda n, p, q: q % 2)):
            with self.subTest(what):
                terms = self.pointwise(64, 8, 8, 8, sign)
                apart = self.apart(terms, axis)
                self.library = axis == 0
                self.assumes_an_order(apart)
                if axis > 0:
                    continue
                lines = self.judge(apart, "--order", "natural", status=1)
                self.assertTrue(any(line.startswith("reason: accuracy: ") for line in lines), lines)
                one_by_one = self.judge(in_sequence(terms.reshape(-1, 8, 8)))
                self.assertTrue(one_by_one[0].startswith("MATCH: "))
                self.judge(apart, "--sample", 40)
                order = self.compare("--result", "r.npy")["order_assumed"]
                self.assertGreater(order["rms"], 5)
                self.assertGreater(order["allowed"], order["rms"])
                lines = self.judge(apart, "--fail-assumed", status=1)
                self.assertTrue(lines[0].startswith("MISMATCH: it matches only if it sums in another order than n, z, p, q: "), lines)
                self.assertEqual(self.compare("--result", "r.npy", "--fail-assumed", status=1)["reason"], "assumed")
                self.judge(in_sequence(terms.reshape(-1, 8, 8)), "--fail-assumed")

    def test_terms_that_are_alike_round_one_way_in_another_order(self):
        self.library = True
        self.pointwise(900, 1, 1, 3, lambda n, p, q: n < 450, terms=False)
        self.x[...], self.dy[:450], self.dy[450:] = .1, .3, -.7
        save(self.folder / "x.npy", self.x, "float32")
        save(self.folder / "dy.npy", self.dy, "float32")
        terms = (self.x * self.dy)[::-1]
        self.assumes_an_order(in_sequence(terms))
        self.judge(in_sequence(terms[:-1]), status=1)

    def test_tensors_that_can_be_read_once_have_the_natural_order(self):
        terms = self.pointwise(64, 8, 8, 8, lambda n, p, q: n % 2)
        save(self.folder / "r.npy", self.apart(terms, 0)[None, None], "float32")
        flags = [word for word in self.args("--result", "r.npy") if word != "x.npy"]
        flags.insert(flags.index("-i") + 1, "-")
        result = self.run_here(*flags, stdin=(self.folder / "x.npy").read_bytes())
        self.assertEqual(result.status, 1, str(result))

    def test_structure_tells_what_a_wider_order_hides(self):
        # 147,456 pixels: even and odd images reach 10^5, and their rounding is about as large as a term.
        self.pointwise(64, 48, 16, 16, lambda n, p, q: n % 2, terms=False)

        def summed(x, dy):
            halves = []
            for i in (0, 1):
                total = np.zeros((16, 16), "f4")
                for a, b in zip(x[i::2].reshape(-1, 16, 1), dy[i::2].reshape(-1, 1, 16)):
                    total += a * b
                halves.append(total)
            return halves[0] + halves[1]

        right = summed(self.x, self.dy)
        self.assumes_an_order(right)

        def fault(x, dy):
            whole = [np.einsum("npqc,npqk->ck", a.astype("f8"), b.astype("f8")) for a, b in ((x, dy), (self.x, self.dy))]
            return (right + whole[0] - whole[1]).astype("f4")

        lost = self.dy.copy()
        lost[5, 9, 13] = 0
        lines = self.judge(fault(self.x, lost), status=1)
        self.assertIn("reason: structure: errors are the terms of pixel [5,9,13] of out_backprop, which is left out (by chance "
                      "once in 2^", lines[1])

    def test_no_order_makes_one_channel_less_exact_than_the_others(self):
        terms = self.pointwise(64, 8, 8, 16, lambda n, p, q: n % 2)
        one_by_one = in_sequence(terms.reshape(-1, 8, 16)).astype("f8")
        errors = 5e-5 * abs(one_by_one).mean() * np.random.default_rng(5).standard_normal(8)
        for k in (3, 9):
            wrong = one_by_one.copy()
            wrong[:, k] += errors
            lines = self.judge(wrong.astype("f4"), status=1)
            self.assertIn(f" at output channel {k} of a float32 sum", lines[1])
        self.assumes_an_order((one_by_one + np.resize(errors, (16, 8)).T).astype("f4"))

    def test_what_inputs_were_rounded_to_is_told_by_its_structure(self):
        terms = self.pointwise(64, 14, 16, 16, lambda n, p, q: n % 2)
        right = self.apart(terms, 0).astype("f8")
        for how, which in (("even", "x and dy"), ("away", "dy"), ("cut", "x")):
            x, dy = (tf32(values, how) if name in which.split() else values for name, values in (("x", self.x), ("dy", self.dy)))
            lost = (np.einsum("npqc,npqk->ck", a.astype("f8"), b.astype("f8")) for a, b in ((x, dy), (self.x, self.dy)))
            with self.subTest(how):
                lines = self.judge((right + next(lost) - next(lost)).astype("f4"), status=1)
                self.assertRegex(lines[1], "reason: (accuracy: |structure: errors are what is lost where .* (TF32|cut off to float16))")

    def test_errors_that_are_small_and_have_a_structure_fail(self):
        problem = Problem("conv2d", n=16, c=8, k=8, size=(14, 14), taps=(3, 3))
        self.prepare(problem.fill_normal(2))
        near = self.compare("--result", self.result_file(self.dw * 1.000003), status=1)
        self.assertEqual((near["reason"], near["structure"]["form"]), ("structure", "factor"))
        self.assertAlmostEqual(near["structure"]["size"], 3e-6, delta=1e-6)
        bits = self.dw.astype("f4").view("u4") & np.uint32(0xffffffc0)
        cut = self.compare("--result", self.result_file(bits.view("f4")), status=1)
        self.assertEqual(cut["reason"], "structure")
        self.assertIn("reason: structure: errors ", self.verify("--result", "r.npy", status=1))

    def test_float32_on_tensor_cores(self):
        self.library = True
        terms = self.pointwise(64, 12, 8, 8, lambda n, p, q: n < 40)
        x, dy = (values.reshape(-1, values.shape[-1]) for values in (self.x, self.dy))
        high = [tf32(values, "away") for values in (x, dy)]
        low = [tf32(values - part, "away") for values, part in zip((x, dy), high)]
        total = np.zeros((8, 8), "f4")
        for at in range(0, len(x), 8):
            for a, b in ((low[0], high[1]), (high[0], low[1]), high):
                exact = total + a[at:at + 8].T.astype("f8") @ b[at:at + 8].astype("f8")
                total = exact.astype("f4")
                total = np.where(abs(total) > abs(exact), np.nextafter(total, np.float32(0)), total)
        lines = self.judge(total, status=1)
        self.assertEqual(lines[1], "reason: adders: errors are those of 3xTF32 on tensor cores, whose adders cut digits off; "
                         "--adders tensor-core accepts it")
        self.judge(total, "--adders", "tensor-core")
        self.assertNotIn("3xTF32", "\n".join(self.judge(in_sequence(terms.reshape(-1, 8, 8)) * np.float32(1.001), status=1)))

    def test_long_sums_of_16_bits_on_tensor_cores(self):
        """Of 16,384 products in one accumulator whose adders cut, as Ampere's do: 8 at a time, 24 bits."""
        random = np.random.default_rng(2)
        self.library = True
        self.problem = Problem("conv2d", n=4, c=2, k=4, size=(64, 64), taps=(1, 1), padding="valid")
        x, dy = ((.5 + .5 * random.random((4, 64, 64, c))).astype("f4").view("u4") & np.uint32(0xffff0000) for c in (2, 4))
        x, dy = x.view("f4"), dy.view("f4")
        save(self.folder / "x.npy", x, "bfloat16")
        save(self.folder / "dy.npy", dy, "bfloat16")
        total = np.zeros((2, 4), "f4")
        for a, b in zip(x.reshape(-1, 8, 2), dy.reshape(-1, 8, 4)):
            step = 2.0 ** (np.floor(np.log2(np.maximum(total, 1))) - 23)
            total = total + (np.floor(a[:, :, None].astype("f8") * b[:, None, :] / step) * step).sum(0)
            total = (np.floor(total / step) * step).astype("f4")
        lines = self.judge(total, "--out-dtype", "float32", status=1)
        longest = self.compare("--result", "r.npy", "--out-dtype", "float32", status=1)["longest_sum"]
        self.assertIn(longest, (8192, 16384))
        self.assertEqual(lines[1], "reason: adders: errors are those of sums on tensor cores, whose adders cut digits off, of up to "
                         f"{longest} terms at a time; --longest-sum {longest} accepts it")
        self.judge(total, "--out-dtype", "float32", "--longest-sum", longest)
        x, dy = x.reshape(-1, 2).astype("f8"), dy.reshape(-1, 4).astype("f8")
        lost = np.argsort(x[:, 0] - x[:, 1])[-4:]  # pixels that one channel misses more than the other
        left_out = x.T @ dy - x[lost].T @ dy[lost]
        for wrong in (total * np.float32(1.01), left_out.astype("f4")):
            self.assertNotIn("adders", "\n".join(self.judge(wrong, "--out-dtype", "float32", status=1)))
