"""verify: each criterion at its edge."""
import numpy as np
from harness import Problem, load, off, put, tf32
from verifying import VerifyTest


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
    """compare_test.cpp has the edges of each."""

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

    def wrong(self, **tensors):
        return self.problem.but(**tensors).expected()

    def test_what_it_sees(self):
        rounded = self.dw.astype("f4").view("u4")
        for fault, values in (
                ("a pixel", self.wrong(dy=put(self.problem.dy, ((3, 7, 9), 0)))),
                ("TF32", self.wrong(x=tf32(self.problem.x), dy=tf32(self.problem.dy))),
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
        out = self.judge(self.wrong(x=tf32(self.problem.x), dy=tf32(self.problem.dy)), status=1)
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
        wrong = self.wrong(x=tf32(self.problem.x), dy=tf32(self.problem.dy))
        out = self.judge(wrong, "--accept", "low_precision_sums,input_precision")
        self.assertTrue(out.startswith("MATCH, with input_precision accepted: x and dy are rounded to TF32 (half to even) before they are multiplied"), out)
        compare = self.compare("--result", "r.npy", "--accept", "input_precision")
        self.assertEqual(compare["accepted"], "input_precision")
        self.judge(wrong, "--accept", "low_precision_sums", status=1)
        self.judge(off(wrong, ((1, 2, 1, 0), 1)), "--accept", "input_precision", status=1)
        self.refuses(2, ["--accept: given with --diagnosis off"],
                     *self.args("--result", "r.npy", "--accept", "input_precision", "--diagnosis", "off"))

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
        self.refuses(2, ("--save-diff", "--sample"), *self.args("--save-diff", "d.npy", "--sample", 20))

    def test_wrong_uses(self):
        self.result_file(self.dw)
        for extra, parts in (
                (["--criterion", "rouding"], ("--criterion", "'rouding'", "rounding")),
                (["--criterion", "bound", "--slack", 2], ("--slack", "--criterion rounding")),
                (["--criterion", "bound", "--bitwise"], ("--criterion", "--bitwise")),
                (["--slack", 0], ("--slack", "above 0")),
                (["--longest-sum", 0], ("--longest-sum",)),
                (["--max-ulp", 1, "--atol", 1], ("--max-ulp", "--rtol/--atol")),
                (["--rtol", "nan"], ("--rtol", "expected")),
                (["-o", "o.npy"], ("--output", "--result")),
                (["--golden", "-", "--result", "-"], ("standard input",))):
            self.refuses(2, parts, *self.args("--result", "r.npy", *extra))
        self.refuses(2, ("--output", "verdict"), *self.args("-o", "-"))
