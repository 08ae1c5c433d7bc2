"""verify judges by any order of summing that kernels use, and says which; what a wider order's errors hide by their size,
their structure tells. Sums are made here in float32, one term after the other."""
import numpy as np

from harness import Problem, save, tf32
from verifying import VerifyTest


def in_sequence(terms):
    return np.add.accumulate(terms, 0, "f4")[-1]


class OrdersTest(VerifyTest):
    FLAGS = ("--no-diagnosis",)

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
        return self.verify("--result", "r.npy", *flags, status=status).splitlines()

    def apart(self, terms, axis):
        one = terms.shape[3:]
        return sum(in_sequence(np.take(terms, range(i, terms.shape[axis], 2), axis).reshape(-1, *one)) for i in (0, 1))

    def test_a_match_names_the_order(self):
        for axis, what, sign in ((0, "images", lambda n, p, q: n % 2), (1, "rows", lambda n, p, q: p % 2),
                                 (2, "pixels", lambda n, p, q: q % 2)):
            with self.subTest(what):
                terms = self.pointwise(64, 8, 8, 8, sign)
                apart = self.apart(terms, axis)
                self.assertRegex(self.judge(apart)[0], rf"^MATCH: r.npy .* 0 of 64 elements fail \(0 %\), as a sum that takes "
                                 rf"even and odd {what} apart \([\d.]+ times what the order n, p, q makes, of [\d.]+ allowed\)$")
                lines = self.judge(apart, "--order", "natural", status=1)
                self.assertTrue(any(line.startswith("reason: accuracy: ") for line in lines), lines)
                one_by_one = self.judge(in_sequence(terms.reshape(-1, 8, 8)))
                self.assertNotIn("as a sum", one_by_one[0])
                self.judge(apart, "--sample", 40)
                order = self.compare("--result", "r.npy")["order"]
                self.assertEqual(order["sum"], f"that takes even and odd {what} apart")
                self.assertGreater(order["rms"], 5)
                self.assertGreater(order["allowed"], order["rms"])

    def test_turns_of_three_and_along_two_axes(self):
        for what, parts, sign in (
                ("images in 3 turns", lambda n, p, q: n % 3, lambda n, p, q: np.where(n % 3 < 2, n % 3, n % 2)),
                ("even and odd rows and columns apart at once", lambda n, p, q: p % 2 * 2 + q % 2, lambda n, p, q: (p + q) % 2),
                ("rows in 4 and columns in 4 turns at once", lambda n, p, q: p % 4 * 4 + q % 4, lambda n, p, q: (p // 2 + q // 2) % 2)):
            with self.subTest(what):
                terms = self.pointwise(960, 8, 8, 8, sign)
                at = parts(*np.meshgrid(*map(np.arange, (960, 8, 8)), indexing="ij"))
                apart = sum(in_sequence(terms[at == part]) for part in np.unique(at))
                self.assertIn(f", as a sum that takes {what} (", self.judge(apart)[0])

    def test_terms_that_are_alike_round_one_way_in_another_order(self):
        self.pointwise(900, 1, 1, 3, lambda n, p, q: n < 450, terms=False)
        self.x[...], self.dy[:450], self.dy[450:] = .1, .3, -.7
        save(self.folder / "x.npy", self.x, "float32")
        save(self.folder / "dy.npy", self.dy, "float32")
        terms = (self.x * self.dy)[::-1]
        self.assertRegex(self.judge(in_sequence(terms))[0], "^MATCH: .* as a sum of terms that are alike, which round one way")
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
        self.assertIn("even and odd images apart", self.judge(right)[0])

        def fault(x, dy):
            whole = [np.einsum("npqc,npqk->ck", a.astype("f8"), b.astype("f8")) for a, b in ((x, dy), (self.x, self.dy))]
            return (right + whole[0] - whole[1]).astype("f4")

        lost, twice = self.dy.copy(), self.dy.copy()
        lost[5, 9, 13] = 0
        twice[8, 0, 47] *= 2
        for dy, at, what in ((lost, "5,9,13", "left out"), (twice, "8,0,47", "there twice")):
            lines = self.judge(fault(self.x, dy), status=1)
            self.assertIn(f"reason: structure: errors are the terms of pixel [{at}] of out_backprop, which is {what} (by chance "
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
        self.assertIn("as a sum", self.judge((one_by_one + np.resize(errors, (16, 8)).T).astype("f4"))[0])

    def test_a_small_problem_keeps_the_order(self):
        terms = self.pointwise(64, 8, 8, 8, lambda n, p, q: n % 2)
        self.judge(self.apart(terms, 0), "--order", "natural", "--save-repro", "small", status=1)
        self.assertIn(" --order natural\n", (self.folder / "small/repro.sh").read_text())

    def test_what_inputs_were_rounded_to_is_told_by_its_structure(self):
        terms = self.pointwise(64, 14, 16, 16, lambda n, p, q: n % 2)
        right = self.apart(terms, 0).astype("f8")
        for how in ("even", "away", "cut"):
            for x, dy in ((tf32(self.x, how), tf32(self.dy, how)), (self.x, tf32(self.dy, how)), (tf32(self.x, how), self.dy)):
                lost = (np.einsum("npqc,npqk->ck", a.astype("f8"), b.astype("f8")) for a, b in ((x, dy), (self.x, self.dy)))
                with self.subTest(how):
                    lines = self.judge((right + next(lost) - next(lost)).astype("f4"), status=1)
                    self.assertRegex(lines[1], "reason: (accuracy: |structure: errors are what is lost where .* TF32)")

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
