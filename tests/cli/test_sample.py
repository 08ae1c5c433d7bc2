"""verify --sample: some elements, exactly; what it covers, what it finds and what it refuses."""
import re

from harness import CliTest, Problem, npy_bytes, off, save
from verifying import VerifyTest


class Sample(VerifyTest):
    def setUp(self):
        super().setUp()
        self.prepare(Problem(n=2, size=(7, 6), c=8, k=12, taps=(3, 2), groups=2))  # 288 elements

    def test_it_says_what_it_covered(self):
        out = self.verify("--sample", 50, "--seed", 3)
        self.assertIn("0 of 50 elements fail", out)
        self.assertRegex(out, r"(?m)^checked: 50 of 288 elements, 16 corners among them, seed 3, "
                              r"4.2e\+03 multiply-adds; a fault in 8.8 % of the elements is missed "
                              r"with probability 0.01$")
        sample = self.compare("--sample", 50, "--seed", 3)["sample"]
        self.assertEqual((sample["elements"], sample["of"], sample["corners"], sample["seed"]),
                         (50, 288, 16, 3))
        self.assertEqual(sample["multiply_adds"], 50 * 2 * 7 * 6)
        self.assertAlmostEqual(sample["detectable_share"], 1 - 0.01 ** (1 / 50))
        self.assertEqual(self.compare("--sample", 50)["sample"]["seed"], 1)

    def test_taps_say_how_many_they_have(self):
        out = self.run_here(*self.args("--sample", 50, "-v")).out
        taps = re.findall(r"(?m)^  \[\d,\d\] +0 of (\d+) ", out)
        self.assertEqual(len(taps), 6)
        self.assertEqual(sum(map(int, taps)), 50)

    def test_more_than_there_are(self):
        out = self.verify("--sample", 1000)
        self.assertIn("checked: 288 of 288 elements", out)
        self.assertNotIn("is missed", out)
        self.assertIn("0 of 288 elements fail", out)
        self.assertIn("checked: 288 of 288 elements", self.verify("--sample", 2**63 - 1))

    def test_golden(self):
        save(self.folder / "g.npy", self.dw)
        for extra in ([], ["--bitwise"]):
            self.assertIn("against g.npy", self.verify("--golden", "g.npy", "--sample", 20, *extra))
        values = off(self.dw, ((0, 0, 0, 0), 0.5))
        save(self.folder / "g.npy", values)
        self.verify("--golden", "g.npy", "--sample", 20, "--bitwise", status=1)
        self.judge(values, "--golden", "g.npy", "--sample", 20, "--bitwise")

    def test_streams(self):
        for name, tensor in (("-i", self.problem.x), ("-g", self.problem.dy),
                             ("--result", self.dw)):
            args = self.args("--result", "r.npy", "--sample", 40)
            save(self.folder / "r.npy", self.dw)
            args[args.index(name) + 1] = "-"
            self.succeed(*args, stdin=npy_bytes("float32", tensor))

    def test_output_and_dry_run(self):
        self.verify("--sample", 20, "-o", "dw.npy")
        self.assertEqual(self.read("dw.npy"), npy_bytes("float32", self.dw))
        self.succeed(*self.args("--sample", 20, "--dry-run"))

    def test_it_needs_less_memory_than_the_reference(self):
        def planned(*extra):
            return CliTest.report(self, *self.args("--result", "r.npy", *extra, "--dry-run"))["execution"]["memory_bytes"]

        self.prepare(Problem(n=1, size=(2, 2), c=256, k=512, taps=(1, 1)))
        save(self.folder / "r.npy", self.dw)
        self.assertLess(planned("--sample", 100), planned() - 256 * 512 * 15)


class Misuse(VerifyTest):
    def test_wrong_uses(self):
        save(self.folder / "g.npy", self.dw)
        for extra, status, parts in (
                (["--sample", "0"], 2, ("--sample", "'0'", "from 1")),
                (["--sample", "5", "--seed", "-1"], 2, ("--seed",)),
                (["--seed", "4"], 2, ("--seed", "--sample")),
                (["--sample", "5", "--golden", "g.npy", "--update-golden"], 2,
                 ("--update-golden", "--sample", "full check"))):
            self.refuses(status, parts, *self.args(*extra))

    def test_a_seed_for_everybody(self):
        self.verify(env={"CONVGRAD_SEED": "7"})
        out = self.verify("--sample", 20, env={"CONVGRAD_SEED": "7"})
        self.assertIn("seed 7", out)

    def test_a_broken_result(self):
        for data, part in ((npy_bytes("float32", self.dw[:1]), "shape"), (npy_bytes("float32", self.dw)[:-4], "truncated")):
            self.write("r.npy", data)
            self.refuses(3, ["r.npy", part], *self.args("--result", "r.npy", "--sample", 5))
