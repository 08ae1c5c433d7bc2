"""What the tests of verify share."""
import numpy as np

from harness import CliTest, save, small


def in_sequence(terms):
    """The sum over the first axis, one after the other, in float32."""
    return np.add.accumulate(terms, 0, "f4")[-1]


class VerifyTest(CliTest):
    FLAGS = ()  # of every run

    def setUp(self):
        super().setUp()
        self.prepare(small("conv2d"))

    def prepare(self, problem, dtype="float32"):
        self.problem = problem
        problem.save(self.folder, dtype)
        self.dw = problem.expected()

    def args(self, *extra):
        return ["verify", "-i", "x.npy", "-g", "dy.npy", *self.problem.flags(), *self.FLAGS, *extra]

    def verify(self, *extra, status=0, **more):
        result = self.succeed(*self.args(*extra), status=status, **more)
        first = result.out.split(":")[0]
        matches = "MATCH(|, but nothing was tested| if it sums in another order than n, z, p, q|, with [a-z_]+ accepted)$"
        self.assertRegex(first, "MISMATCH$" if status else matches, str(result))
        return result.out

    def report(self, *extra, status=0):
        report = super().report(*self.args(*extra), status=status)
        self.assertEqual(report["status"], "mismatch" if status else "match")
        self.assertEqual(report["compare"]["verdict"], report["status"])
        return report

    def compare(self, *extra, **more):
        return self.report(*extra, **more)["compare"]

    def judge(self, values, *extra, dtype="float32", **more):
        """What verify says of a result with these values."""
        return self.verify("--result", self.result_file(values, dtype), *extra, **more)

    def result_file(self, values, dtype="float32", name="r.npy"):
        save(self.folder / name, values, dtype)
        return name
