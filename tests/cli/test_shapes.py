"""conv1d, and gradients without elements: in every command that takes an operation."""
import itertools
import shlex

import numpy as np
from harness import DTYPES, CliTest, Problem, npy_bytes, save

INPUT = 3


def line(**more):
    """A 1-D problem with an uneven stride, dilation, groups and padding."""
    return Problem("conv1d", **{"size": (13,), "c": 4, "k": 6, "taps": (3,), "strides": (2,), "dilations": (2,), "groups": 2,
                                "padding": ((3, 1),), **more})


class Conv1d(CliTest):
    def test_every_format(self):
        for last, dtype in itertools.product((True, False), DTYPES):
            problem = line(last=last)
            self.assert_computes(problem, dtype)
        for form, name in (("OIHW", "OIW"), ("OHWI", "owi")):
            self.assert_computes(line(), "float32", "--filter-format", name, filter_format=form)

    def test_parts(self):
        problem = line(n=7, size=(200,), c=8, k=8)
        problem.save(self.folder)
        for k in (1, 2):
            self.assert_quiet(self.run_here(*problem.args(f"p{k}.npz"), "--batch-range", f"{k}/2"))
        self.assert_quiet(self.run_here("reduce", "p2.npz", "p1.npz", "-o", "sum.npy"))
        self.assertEqual(self.read("sum.npy"), npy_bytes("float32", problem.expected()))

    def test_verify_and_its_diagnosis(self):
        problem = line(size=(40,), padding="same", groups=1)
        problem.fill_normal(3).save(self.folder, "float64")
        flags = ["-i", "x.npy", "-g", "dy.npy", *problem.flags()]
        self.succeed("verify", *flags)
        right = problem.expected()
        for name, wrong, text in (("flipped", right[::-1], "flipped"), ("divided", right / 3, "1/S"),
                                  ("turned", np.ascontiguousarray(right.transpose(2, 1, 0)).reshape(right.shape), "OIW")):
            save(self.folder / f"{name}.npy", wrong, "float64")
            done = self.succeed("verify", *flags, "--result", f"{name}.npy", status=1)
            self.assertIn(text, done.out, name)
            self.assertNotRegex(done.out, r"\br\b|H and W|rows and columns")
            self.assertNotRegex(done.out, r"\[\d+,\d+,\d+,\d+\]")   # three places: [s,c,k]

    def test_other_commands(self):
        report = self.report("generate", "conv1d", "--shape", "2,3,9", "-k", 3, "--out-channels", 4, "-s", 2, "-p", "same",
                             "-f", "NCW", "-o", "made")
        self.assertEqual((report["op"], report["attrs"]["filter_shape"], report["attrs"]["strides"]),
                         ("conv1d", [3, 3, 4], [2]))
        for command in report["generate"]["commands"]:
            self.succeed(*shlex.split(command)[1:])
        self.write("suite.txt", "line conv1d NWC n2 w20 c4 k6 s3 stride2 pad_same\n")
        done = self.succeed("bench", "--suite", "suite.txt", "--repeat", 1, "--min-time", 0, "--no-peaks", "--json")
        self.assertIn("conv1d float32 NWC n2 w20 c4 k6 s3 stride2", done.out)


# op, x, dy, filter sizes: problem_test.cpp has more. The first is TensorFlow's own test of an empty filter.
EMPTY = (("conv2d", (1, 2, 3, 1), (1, 1, 2, 0), (2, 2, 1, 0)),
         ("conv2d", (2, 2, 3, 0), (2, 1, 2, 4), (2, 2, 0, 4)),
         ("depthwise", (1, 2, 3, 0), (1, 1, 2, 0), (2, 2, 0, 3)),
         ("conv3d", (1, 2, 2, 3, 2), (1, 1, 1, 2, 0), (2, 2, 2, 2, 0)))


class EmptyGradients(CliTest):
    def use(self, op, x, dy, sizes):
        save(self.folder / "x.npy", np.ones(x))
        save(self.folder / "dy.npy", np.ones(dy))
        return ["-i", "x.npy", "-g", "dy.npy", "--op", op, "-p", "valid", "--filter-sizes", ",".join(map(str, sizes))]

    def test_formats_parts_and_plans(self):
        for op, x, dy, sizes in EMPTY:
            args = self.use(op, x, dy, sizes)
            self.assert_quiet(self.run_here(*args, "-o", "dw.npz"))
            self.assert_quiet(self.run_here(*args, "-o", "dw.safetensors"))
            self.assert_quiet(self.run_here(*args, "-o", "dw.bin", "--raw"))
            self.assertEqual(self.read("dw.bin"), b"")
            self.assert_quiet(self.run_here(*args, "-o", "dw.npz", "--accumulate"))
            self.assertEqual(np.load(self.folder / "dw.npz")["dw"].shape, sizes)
            self.assert_quiet(self.run_here(*args, "-o", "part.npz", "--batch-range", "1/1"))
            self.assert_quiet(self.run_here("reduce", "part.npz", "-o", "sum.npy"))
            self.assertEqual(self.read("sum.npy"), npy_bytes("float32", np.zeros(sizes)))
            self.succeed("inspect", "dw.npz", "dw.safetensors")
            for what in ("--dry-run", "--list-algorithms"):
                self.succeed(*args, what)
            self.succeed("bench", *args, "--repeat", 1, "--min-time", 0, "--no-peaks", "-a", "all")
            self.succeed("generate", op, "--shape", ",".join(map(str, x)), *args[-4:], "-o", "made", "--clobber")
            self.assertEqual(np.load(self.folder / "made/gradient.npy").shape, sizes)

    def test_verify_has_nothing_to_compare(self):
        for op, x, dy, sizes in EMPTY:
            args = self.use(op, x, dy, sizes)
            save(self.folder / "dw.npy", np.zeros(sizes))
            for more in ((), ("--result", "dw.npy"), ("--golden", "dw.npy", "--bitwise"), ("--rtol", 1e-5),
                         ("--max-ulp", 1), ("--criterion", "bound"), ("--sample", 5),
                         ("--show", 3, "--save-diff", "d.npy"), ("--fail-vacuous",)):
                done = self.succeed("verify", *args, *more, status=1 if "--fail-vacuous" in more else 0)
                self.assertRegex(done.out, "MATCH, but nothing was tested|MISMATCH", str(done))
            self.assertEqual(self.report("verify", *args)["compare"]["count"], 0)
            save(self.folder / "wrong.npy", np.zeros(sizes[:-1]))
            self.assert_one_error(self.run_here("verify", *args, "--result", "wrong.npy"), INPUT, "wrong.npy", "shape")
