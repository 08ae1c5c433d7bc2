"""verify --reference adjoint: right gradients pass, wrong ones do not, and what it cannot judge."""
import re
import unittest

import numpy as np
from harness import ALGORITHMS, DTYPES, OPS, Problem, npy_bytes, round_to, save, small, to_float64
from verifying import VerifyTest


class AdjointTest(VerifyTest):
    FLAGS = ("--reference", "adjoint")

    def prepare(self, problem, dtype="float32", normal=True):
        self.dtype = dtype
        if normal:
            rng = np.random.default_rng(8)
            for name in ("x", "dy"):
                values = rng.standard_normal(getattr(problem, name).shape).astype("f4").astype("f8")
                setattr(problem, name, to_float64(dtype, round_to(dtype, values)))
        super().prepare(problem, dtype)

    def result_file(self, values):
        rounded = values if self.dtype == "float64" else values.astype("f4").astype("f8")
        return super().result_file(rounded, self.dtype)


class Match(AdjointTest):
    def test_own_results(self):
        for op in OPS:
            for dtype in DTYPES:
                for last in (True, False):
                    self.prepare(small(op, last), dtype)
                    for extra in (*(["-a", name] for name in ALGORITHMS), ["-b", "reference"], []):
                        with self.subTest(op=op, dtype=dtype, last=last, extra=extra):
                            self.verify(*extra)

    def test_a_result(self):
        for op in OPS:
            self.prepare(small(op))
            self.verify("--result", self.result_file(self.dw))

    def test_the_text(self):
        self.prepare(Problem(n=2, size=(7, 6), c=40, k=36, taps=(3, 2), groups=2))
        out = self.verify()
        # 6 taps, 2 groups, 2 x 2 blocks of at most 16 channels, 8 V.
        self.assertIn("against <dW,V> = <dY,conv(X,V)>, 0 of 384 equalities fail\n", out)
        self.assertRegex(out, r"(?m)^checked: 8 V for each, seed 1; one wrong element is found for "
                              r"certain if it is off by more than [\d.e-]+, [\d.e-]+ of the "
                              r"elements' rms$")
        self.assertRegex(out, r"(?m)^largest error/bound 0\.0\d+ at tap \[\d,\d\], c [\d-]+, k ")
        self.assertEqual(len(re.findall(r"(?m)^  \[\d,\d\] +0 ", out)), 6)
        compare = self.compare()
        self.assertEqual((compare["count"], compare["mismatches"]), (384, 0))
        self.assertEqual(len(compare["taps"]), 6)
        adjoint = compare["adjoint"]
        self.assertEqual((adjoint["vectors"], adjoint["seed"]), (8, 1))
        self.assertGreater(adjoint["certain_error"], 0)
        self.assertAlmostEqual(adjoint["rms_element"], np.sqrt(np.mean(self.dw ** 2)), 4)
        self.assertLess(adjoint["worst"]["ratio"], 1)

    def test_seeds(self):
        self.prepare(small("conv2d"))
        texts = {self.verify("--seed", seed).rsplit("repeat:", maxsplit=1)[0]
                 for seed in (1, 2, 3)}
        self.assertEqual(len(texts), 3)
        self.assertEqual(self.verify("--seed", 1).rsplit("repeat:", maxsplit=1)[0],
                         self.verify().rsplit("repeat:", maxsplit=1)[0])

    def test_threads_and_memory_change_nothing(self):
        self.prepare(Problem(n=7, size=(40, 38), c=8, k=8, taps=(3, 3)))
        self.result_file(self.dw)
        texts = {self.verify("--result", "r.npy", *extra).rsplit("repeat:", maxsplit=1)[0]
                 for extra in (["-t", 1], ["-t", 3], ["-t", 2, "--memory-limit", "29MiB"])}
        self.assertEqual(len(texts), 1)

    def test_a_limit_of_memory(self):
        # One image is larger than the blocks; projections of few channels are larger than x.
        self.prepare(Problem(n=1, size=(600, 500), c=1, k=2, taps=(3, 3)))
        self.result_file(self.dw)
        self.verify("--result", "r.npy", "--memory-limit", "34MiB", "-t", 1)

    def test_streams(self):
        self.prepare(small("conv2d"))
        self.result_file(self.dw)
        for name, tensor in (("-i", self.problem.x), ("-g", self.problem.dy),
                             ("--result", self.dw)):
            args = self.args("--result", "r.npy")
            args[args.index(name) + 1] = "-"
            result = self.run_here(*args, stdin=npy_bytes("float32", tensor))
            self.assertEqual((result.status, result.err), (0, ""), str(result))

    def test_an_empty_batch(self):
        self.prepare(small("conv2d", n=0))
        self.assertIn("warning: every expected value is 0", self.verify())
        save(self.folder / "r.npy", self.dw + 1e-30)
        self.verify("--result", "r.npy", status=1)

    def test_dry_run(self):
        self.prepare(small("conv2d"))
        result = self.run_here(*self.args("--dry-run"))
        self.assertEqual((result.status, result.err), (0, ""))
        self.assertIn("memory", result.out)


class Mismatch(AdjointTest):
    def test_one_wrong_element_of_the_certain_size(self):
        rng = np.random.default_rng(3)
        for op in OPS:
            for dtype in ("bfloat16", "float32", "float64"):
                self.prepare(small(op), dtype)
                self.result_file(self.dw)
                certain = self.compare("--result", "r.npy")["adjoint"]["certain_error"]
                for sign in (1, -1):
                    index = tuple(rng.integers(0, self.dw.shape))
                    values = self.dw.copy()
                    # Half an ULP more, which the file may take away again.
                    slack = abs(values[index]) * {"bfloat16": 2**-8}.get(dtype, 1e-6)
                    values[index] += sign * (1.01 * certain + slack)
                    self.result_file(values)
                    with self.subTest(op=op, dtype=dtype, index=index):
                        out = self.verify("--result", "r.npy", "--no-diagnosis", status=1)
                        # It is named, with what it should be.
                        place = "[" + ",".join(map(str, index)) + "]"
                        self.assertRegex(out, rf"(?m)^  wrong element .* at {re.escape(place)}: ")

    def test_the_certain_error_is_of_use(self):
        # 6272 terms: a fifth of a percent of what elements usually are.
        self.prepare(Problem(n=8, size=(28, 28), c=16, k=32, taps=(3, 3)))
        adjoint = self.compare()["adjoint"]
        self.assertLess(adjoint["certain_error"], 0.1 * adjoint["rms_element"])

    def test_every_fault(self):
        self.prepare(small("conv2d"))
        column, swapped = self.dw.copy(), self.dw.copy()
        column[..., 1] *= 1.01
        swapped[0, 0, 0, [0, 1]] = swapped[0, 0, 0, [1, 0]]
        for values in (self.dw[::-1], self.dw * 1.001, self.dw * 0, column, swapped, -self.dw,
                       np.roll(self.dw, 1, -1)):
            self.result_file(values)
            self.verify("--result", "r.npy", status=1)

    def test_a_diagnosis_follows(self):
        self.prepare(small("conv2d"))
        self.result_file(self.dw[::-1])
        out = self.verify("--result", "r.npy", status=1)
        self.assertIn("diagnosis: the result matches if the filter is flipped in h ", out)
        compare = self.compare("--result", "r.npy", status=1)
        self.assertEqual(compare["diagnosis"]["findings"][0]["fault"], "filter_flipped")
        self.assertIn("first_mismatch", compare)

    def test_streams(self):
        self.prepare(small("conv2d"))
        self.result_file(self.dw * 2)
        args = self.args("--result", "r.npy")
        args[args.index("-i") + 1] = "-"
        result = self.run_here(*args, stdin=npy_bytes("float32", self.problem.x))
        self.assertEqual((result.status, result.err), (1, ""), str(result))

    def test_nan(self):
        self.prepare(small("conv2d"))
        for value in (np.nan, np.inf, -np.inf):
            values = self.dw.copy()
            values[1, 0, 1, 2] = value
            self.result_file(values)
            out = self.verify("--result", "r.npy", status=1)
            nan, inf = (1, 0) if np.isnan(value) else (0, 1)
            self.assertIn(f"non-finite: got {nan} NaN, {inf} Inf\n", out)
            self.assertIn("at [1,0,1,2]: got", out)
            # The equalities that it enters fail, too.
            self.assertRegex(out, r", 8 of \d+ equalities fail\n")
            self.assertRegex(out, r"(?m)^largest error/bound inf at tap \[1,0\]")
            self.assertRegex(out, r"(?m)^  \[1,0\] +8 +inf +inf$")

    def test_a_value_whose_square_overflows(self):
        self.prepare(small("conv2d"), "float64")
        values = self.dw.copy()
        values[1, 0, 1, 2] = 1e200
        self.result_file(values)
        out = self.verify("--result", "r.npy", status=1)
        self.assertRegex(out, r", 8 of \d+ equalities fail\n")
        self.assertNotIn("nan", out)


class NoVerdict(AdjointTest):
    def test_nan_in_the_data(self):
        self.prepare(small("conv2d"))
        self.problem.x[0, 0, 0, 0] = np.nan
        self.problem.save(self.folder)
        result = self.run_here(*self.args())
        self.assert_one_error(result, 4, "--reference adjoint", "NaN", "--sample")

    def test_overflows_that_may_be_due(self):
        problem = small("conv2d")
        problem.x[:] = 300
        problem.dy[:] = 300
        self.prepare(problem, "float16", normal=False)
        result = self.run_here(*self.args())
        self.assert_one_error(result, 4, "--reference adjoint", "infinities", "--sample")

    def test_wrong_uses(self):
        self.prepare(small("conv2d"))
        save(self.folder / "g.npy", self.dw)
        for extra, parts in (
                (["--golden", "g.npy"], ("--golden", "--reference adjoint")),
                (["--golden", "g.npy", "--update-golden"], ("--golden", "--reference adjoint")),
                (["--rtol", "0.1"], ("--reference adjoint", "--rtol")),
                (["--bitwise"], ("--reference adjoint", "--bitwise")),
                (["--sample", "5"], ("--sample", "--reference adjoint")),
                (["--reference", "adjont"], ("--reference", "'adjont'", "did you mean 'adjoint'")),
                (["--reference", ""], ("--reference", "''"))):
            with self.subTest(extra):
                self.assert_one_error(self.run_here(*self.args(*extra)), 2, *parts)


if __name__ == "__main__":
    unittest.main()
