"""Shapes on which this operation crashed, hung or came out wrong elsewhere, as their reports give them.

VALUES have a gradient: it must be the definition's, with every algorithm that computes the problem (under
sanitizers, which take their time, with the one that is chosen) and with 1, 2 and 4 threads. ERRORS have none: one line that names what is wrong, status 3, no output. Where a
reported tensor is large, an extent is smaller here (scripts/check_large has three of them in full).
"""
import re

import numpy as np

import harness
from harness import CliTest, Problem, npy_bytes

ALGORITHMS = ("auto",) if harness.SANITIZED else harness.ALL_ALGORITHMS

# (report, what happened there, the line that convgrad prints of the problem)
VALUES = [
    ("oneDNN #6035", "hang, wrong values or segmentation fault, by the number of threads",
     "conv2d float32 NHWC n32 h32 w32 c4 k8 r1 s1 stride2"),
    ("oneDNN #4124", "wrong values on AArch64, also in PyTorch",
     "depthwise float32 NHWC n1 h6 w6 c24 k24 r3 s3 stride2 pad1"),
    ("TensorFlow #4135", "segmentation fault; batch 3 there",
     "conv3d float32 NDHWC n1 d85 h65 w83 c8 k32 t1 r1 s1"),
    ("TensorFlow #5688", "cuDNN fails from 258x258 on; batch 2 and 34 frames there",
     "conv3d float32 NDHWC n1 d258 h258 w4 c1 k32 t3 r3 s3"),
    ("TensorFlow #11327", "cuDNN fails; batch 720 there",
     "conv2d float32 NCHW n2 h400 w600 c1 k1 r1 s401 pad_same"),
    ("TensorFlow #57401", "crash: out_backprop is empty though the batch is not",
     "conv2d float32 NHWC n1 h34 w1 c1 k1 r3 s3 stride2"),
    ("TensorFlow #62433", "the gradient of DepthwiseConv2D is an error: no output columns; float64 there",
     "depthwise float32 NHWC n2 h15 w1 c1 k1 r3 s3 stride2"),
    ("TensorFlow #126484", "uninitialised memory comes out where out_backprop is empty",
     "depthwise float32 NHWC n0 h5 w5 c3 k3 r3 s3 pad_same"),
    ("CVE-2021-29520", "heap overflow with K = 1 (see below); this is its legal neighbour",
     "conv3d float32 NDHWC n7 d7 h7 w7 c7 k7 t7 r7 s7 groups7 stride37,65,93"),
    ("PyTorch #51430", "nn.grad.conv2d_weight is wrong with groups",
     "conv2d float32 NCHW n2 h6 w5 c4 k6 r3 s3 groups2 pad_same"),
    ("PyTorch #51430", "so is conv3d_weight",
     "conv3d float32 NCDHW n2 d4 h5 w6 c4 k6 t2 r3 s2 groups2"),
    ("PyTorch #68868", "oneDNN's values are wrong, 720 channels there",
     "conv3d float32 NCDHW n2 d9 h10 w5 c72 k72 t2 r2 s2 groups3 stride4,4,1 pad1"),
    ("PyTorch #16443", "cuDNN fails from 256x256x4 on; 64 output channels there",
     "conv3d float32 NCDHW n1 d256 h256 w4 c1 k8 t5 r5 s5 pad_same"),
    ("PyTorch #17930", "cuDNN fails from batch 25 on; 100 x 375 x 128 there",
     "conv3d float32 NCDHW n25 d10 h15 w128 c1 k10 t3 r3 s10 pad1,1,0"),
]

# (report, what happened there, x, dy, flags, what the error says)
ERRORS = [
    ("TensorFlow #57980", "process aborts", (1,) * 6, (),
     "--op conv2d --filter-sizes 7 -s 1,1,1,1,1,1 -p VALID", "--input (x.npy): 6 axes"),
    ("TensorFlow #57981", "process aborts", (1,) * 5, (1,) * 4,
     "--op conv2d --filter-sizes=-5 -s 1,1,1 -p SAME", "--input (x.npy): 5 axes"),
    ("TensorFlow #60195", "process aborts", (1,), (2, 12, 3, 5, 10),
     "--op conv3d --filter-sizes 700 -p VALID -f NCDHW", "--input (x.npy): 1 axis"),
    ("TensorFlow #62142", "process aborts", (2, 7), (10,),
     "--op conv2d --filter-sizes 3 -s 3 -p VALID", "--input (x.npy): 2 axes"),
    ("TensorFlow #85257", "process aborts", (1,), (19, 5, 11, 4),
     "--op conv2d --filter-sizes 20,6,5,3 -s 4538426903074820908 -p VALID", "--input (x.npy): 1 axis"),
    ("TensorFlow #85257", "the same with tensors that are right", (1, 4, 4, 3), (1, 4, 4, 2),
     "--op conv2d --filter-sizes 3,3,3,2 -s 4538426903074820908 -p VALID",
     "--strides: H is 4538426903074820908"),
    ("TensorFlow #85258", "process aborts", (), (),
     "--op depthwise --filter-sizes 13,2,5,4 -p VALID", "--input (x.npy): 0 axes"),
    ("TensorFlow #118348", "process aborts", (1, 4, 4, 3), (1, 4, 4, 2),
     "--op conv2d --filter-sizes 3,3,3,2 -s 1,1,1 -p SAME", "--strides: 3 numbers"),
    ("TensorFlow #118340", "process aborts", (2, 3, 4), (2, 3, 4),
     "--op conv3d --filter-sizes 1,1,1,3,3 -p VALID -f NCDHW", "--input (x.npy): 3 axes"),
    ("TensorFlow #126484", "uninitialised memory comes out", (2, 5, 5, 3), (2, 0, 5, 3),
     "--op depthwise --filter-sizes 3,3,3,1 -p SAME", "axis 1 (P) is 0, expected 5"),
    ("CVE-2021-29520", "heap overflow", (7,) * 5, (7, 1, 1, 1, 1),
     "--op conv3d --filter-sizes 7,7,7,1,1 -s 1,37,65,93,1 -p VALID",
     "7 groups do not divide out_backprop's K=1"),
    ("CVE-2021-29522", "division by zero", (1,) * 5, (1, 1, 1, 1, 0),
     "--op conv3d --filter-sizes 0,0,0,1,0 -p SAME", "--filter-sizes[0] is 0"),
    ("CVE-2021-29524", "division by zero", (0, 0, 1, 0), (0, 0, 1, 1),
     "--op conv2d --filter-sizes 1,1,1,1 -s 1,66,18,1 -p SAME", "--filter-sizes[2] (C/groups) is 1, expected 0"),
    ("CVE-2021-29538", "division by zero", (0,) * 4, (0,) * 4,
     "--op conv2d --filter-sizes 0,0,0,0 -p SAME", "--filter-sizes[0] is 0"),
    ("CVE-2021-29540", "heap overflow", (1, 1, 1, 2), (1, 1, 1, 1),
     "--op conv2d --filter-sizes 1,1,1,1 -s 1,66,49,1 -p VALID",
     "2 groups do not divide out_backprop's K=1"),
    ("CVE-2021-41209", "division by zero", (1, 4, 4, 3), (1, 4, 4, 2),
     "--op conv2d --filter-sizes 0,3,3,2 -p SAME", "--filter-sizes[0] is 0"),
]


def problem_of(line):
    """What convgrad prints of a problem without dilations, read back."""
    op, _, layout, *words = line.split()
    said = dict(re.fullmatch(r"([a-z]+)_?(.*)", word).groups() for word in words)
    axes = [axis for axis in "dhw" if axis in said]

    def numbers(name, usual):
        values = [int(value) for value in said.get(name, usual).split(",")]
        return values * len(axes) if len(values) == 1 else values

    padding = "same" if said.get("pad") == "same" else [(pad, pad) for pad in numbers("pad", "0")]
    return Problem(op, n=int(said["n"]), size=[int(said[axis]) for axis in axes], c=int(said["c"]), k=int(said["k"]),
                   taps=[int(said[axis]) for axis in "trs" if axis in said], strides=numbers("stride", "1"),
                   padding=padding, groups=int(said["groups"]) if "groups" in said else None, last=layout[-1] == "C")


class KnownKillers(CliTest):
    def check(self, problem, dtype, want, *flags):
        result = self.run_here(*problem.args(), *flags)
        if result.status == 4 and "-a" in flags:
            self.assert_one_error(result, 4, "cannot compute")
            return 0
        self.assert_quiet(result)
        self.assertEqual(self.read("dw.npy"), npy_bytes(dtype, want))
        return 1

    def test_values(self):
        for report, what, line in VALUES:
            problem = problem_of(line)
            want = problem.expected()
            problem.save(self.folder)
            plan = self.run_here(*problem.args(), "--dry-run").out
            self.assertIn(line + "\n", plan)
            ran = 0
            for algorithm, threads in (*((name, 2) for name in ALGORITHMS), ("auto", 1), ("auto", 4)):
                with self.subTest(report, what=what, algorithm=algorithm, threads=threads):
                    ran += self.check(problem, "float32", want, "-a", algorithm, "-t", threads)
            self.assertGreaterEqual(ran, 2 if harness.SANITIZED else 6, report)

    def test_batches_of_pytorch_96225(self):
        # From 65536 images on, the gradient of a 1x1 filter is wrong there.
        for images in (65535, 65536, 65537):
            problem = Problem(n=images, size=(1, 1), c=1, k=1, taps=(1, 1))
            problem.x[:] = problem.dy[:] = 1
            problem.save(self.folder)
            for algorithm in ALGORITHMS:
                with self.subTest(images=images, algorithm=algorithm):
                    self.check(problem, "float32", np.full((1, 1, 1, 1), images), "-a", algorithm)

    def test_sums_of_pytorch_68048(self):
        # A sum of 1600 ones is 256 there, carried in bfloat16. That was the bias; here, the filter.
        problem = Problem(n=1, size=(80, 80), c=1, k=2, taps=(3, 3), strides=(2, 2),
                          padding=[(1, 1), (1, 1)])
        problem.x[:] = problem.dy[:] = 1
        problem.save(self.folder, "bfloat16")
        side = np.array([39, 40, 40])
        want = np.repeat((side[:, None] * side)[:, :, None, None], 2, axis=3)
        self.assertEqual(want[1, 1, 0, 0], 1600)
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                self.check(problem, "bfloat16", want, "-a", algorithm)

    def test_errors(self):
        for report, what, x, dy, flags, message in ERRORS:
            with self.subTest(report, what=what, flags=flags):
                for name, shape in (("x.npy", x), ("dy.npy", dy)):
                    self.write(name, harness.raw_npy(shape))
                self.refuses(3, [message], "-i", "x.npy", "-g", "dy.npy", "-o", "dw.npy", *flags.split())

    def test_the_table_names_every_report(self):
        # docs/measurements/properties.md lists them; one that is tested must be there, and the other way round.
        text = (harness.ROOT / "docs/measurements/properties.md").read_text()
        section = text[text.index("## Known killers"):].split("\n## ")[0]
        listed, project = set(re.findall(r"CVE-\d+-\d+", section)), ""
        for name, number in re.findall(r"(oneDNN|TensorFlow|PyTorch)? (#\d+)", section):
            project = name or project    # the table says it once before several numbers
            listed.add(f"{project} {number}")
        tested = {report for report, *_ in (*VALUES, *ERRORS)} | {"PyTorch #96225", "PyTorch #68048"}
        self.assertEqual(listed, tested)
