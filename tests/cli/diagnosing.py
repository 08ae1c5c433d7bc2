"""What tests of verify's diagnosis share: problems of normal data, and gradients of other attributes or tensors."""
import re

from harness import ROOT, CliTest, Problem, kept, parse_report, save


def normal_problem(op="conv2d", seed=5, dtype="float32", **more):
    """A problem of normal data, in which no two taps, channels or images are alike."""
    base = {
        "conv2d": dict(n=4, size=(9, 8), c=4, k=6, taps=(3, 2), strides=(2, 1), dilations=(1, 2),
                       groups=2),
        "depthwise": dict(n=3, size=(9, 8), c=4, k=8, taps=(3, 2), strides=(2, 1),
                          dilations=(1, 2)),
        "conv3d": dict(n=2, size=(5, 7, 6), c=3, k=4, taps=(2, 3, 2), strides=(1, 2, 1),
                       dilations=(2, 1, 1)),
    }[op]
    problem = Problem(op, **{**base, **more}).fill_normal(seed)
    problem.x, problem.dy = kept(dtype, problem.x), kept(dtype, problem.dy)
    return problem


def plain_problem(op="conv2d", **more):
    return normal_problem(op, **{**dict(strides=(1, 1), dilations=(1, 1), groups=1), **more})


def one_entry(n, size=(4, 4)):
    return plain_problem(n=n, size=size, c=1, k=1, taps=(1, 1))


# The faults that docs/faults.md lists.
DOCUMENTED = set(re.findall(r"`(\w+)`", "".join(
    line.split("|")[1] for line in (ROOT / "docs/faults.md").read_text().splitlines()
    if line.startswith("| `"))))


class DiagnosisTest(CliTest):
    def setUp(self):
        super().setUp()
        self.use(normal_problem())

    def use(self, problem, dtype="float32"):
        self.problem, self.dtype = problem, dtype
        problem.save(self.folder, dtype)
        self.dw = problem.expected()
        return problem

    def wrong(self, **changes):
        """The gradient that other attributes or tensors give, in TensorFlow's order."""
        return self.problem.but(**changes).expected()

    def verify(self, values, *extra, dtype=None, status=1):
        """The texts of the diagnosis, which must be the same in the report."""
        save(self.folder / "r.npy", values, dtype or self.dtype)
        args = ["verify", "-i", "x.npy", "-g", "dy.npy", *self.problem.flags(), "--diagnosis", "full", "--result", "r.npy",
                *extra, "--json=report.json"]
        result = self.succeed(*args, status=status)
        lines = [line[len("diagnosis: "):] for line in result.out.splitlines()
                 if line.startswith("diagnosis: ")]
        self.report = parse_report(self.read("report.json").decode())["compare"].get("diagnosis")
        if self.report:
            found = self.report["findings"]
            findings = [line for line in lines if " if " in line]
            self.assertEqual(len(findings), len(found), lines)
            for finding, line in zip(found, findings):
                self.assertIn(finding["text"], line)
                self.assertLessEqual(set(finding["fault"].split("+")), DOCUMENTED)
                self.assertIn(finding["cause"], line)
                self.assertLessEqual(finding["checked"], finding["of"])
                self.assertEqual(finding["of"], self.dw.size)
        return lines

    def names(self, values, fault, text, *extra, dtype=None, among=False, whole=True):
        """The diagnosis finds this fault: it alone, or among others."""
        lines = self.verify(values, *extra, dtype=dtype)
        self.assertTrue(lines)
        self.assertIn(fault, [finding["fault"] for finding in self.report["findings"]], lines)
        expected = f"the result matches if {text}"
        if whole:
            expected += f" (all {self.dw.size} elements checked)"
        matching = [line for line in lines if line.startswith(expected)]
        self.assertEqual(len(matching), 1, f"{expected}\n{lines}")
        if not among:
            self.assertEqual(len(lines), 1, lines)
