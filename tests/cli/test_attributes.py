"""Every spelling of every attribute, and random ones: computed right."""
import numpy as np
from harness import ALGORITHMS, DESCR, DTYPES, SANITIZED, CliTest, Problem, npy_bytes, raw_npy, round_to


class Spellings(CliTest):
    def setUp(self):
        super().setUp()
        self.problem = Problem(size=(6, 8), c=3, k=5, taps=(3, 2), strides=(2, 1),
                               dilations=(1, 2), padding=[(1, 2), (0, 3)])
        self.problem.save(self.folder)
        self.want = npy_bytes("float32", self.problem.expected())
        self.files = ["--input", "x.npy", "--out-backprop", "dy.npy", "--output", "dw.npy"]

    def check(self, *args):
        with self.subTest(args=args):
            (self.folder / "dw.npy").unlink(missing_ok=True)
            self.assert_quiet(self.run_here(*args))
            self.assertEqual(self.read("dw.npy"), self.want)

    ATTRIBUTES = ["--kernel", "3,2", "--strides", "2,1", "--dilations", "1,2", "--padding",
                  "EXPLICIT", "--explicit-paddings", "1,2,0,3"]

    def test_vectors(self):
        # The last one counts: these take the place of the ATTRIBUTES'.
        for flag, *spellings in (
                ("-s", ["2,1"], ["2", "1"], ["[2,1]"], ["2 1"], ["[2, 1]"], ["(2, 1)"], ["1,2,1,1"],
                 ["1", "2", "1", "1"], ["[1,2,1,1]"], ["1 2 1 1"], ["(2,1,)"], ["2,", "1"], ["2x1"], ["[[2,1]]"]),
                ("-k", ["3,2"], ["3", "2"], ["[3,2]"], ["3 2"]),
                ("--explicit-paddings", ["1", "2", "0", "3"], ["[1,2,0,3]"], ["0,0,1,2,0,3,0,0"],
                 ["0 0 1 2 0 3 0 0"], ["[[0,0],[1,2],[0,3],[0,0]]"])):
            for words in spellings:
                self.check("--op", "conv2d", *self.files, *self.ATTRIBUTES, flag, *words)
        for sizes in (["3,2,3,5"], ["3", "2", "3", "5"], ["[3,2,3,5]"], ["3 2 3 5"]):
            self.check("--op", "conv2d", *self.files, "--filter-sizes", *sizes, "-s", "2,1",
                       "-d", "1,1,2,1", "-p", "EXPLICIT", "--explicit-paddings", "1,2,0,3")
        for padding in (["-p", "[1,2], [0,3]"], ["--explicit-paddings", "1,2,0,3"]):
            self.check("--op", "conv2d", *self.files, "-k", "3,2", "-s", "2,1", "-d", "1,2", *padding)

    def test_malformed_vectors(self):
        for flag, name, lists in (
                ("-p", "--padding", ("[[1,1,1],[1]]", "[[1,1],[1,1]", "[1,1]]", "]][[1", "1,,1", "[1,1",
                                     "[[0,0],1,1,1,1,[0,0]]", "[1,1)", "[1,1],1,1", "[[[1,1],[1,1]]]")),
                ("-k", "--kernel", ("3]", "(3,3]", "3,,3", "[3,3", "3)", ",3", "[3,,3]", "[,3]", "[3],[3]",
                                    "[[3],[3]]", "[3,3]]", "[[3,3]", "3[3]"))):
            for text in lists:
                for words in ([flag, text], [f"{name}={text}"], [flag + text]):
                    result = self.run_here("--op", "conv2d", *self.files, "-k3", *words)
                    with self.subTest(words):
                        self.assert_one_error(result, 2, f"{name}: '{text}' is no list, expected "
                                              "whole numbers such as 3,3 or [3,3], or pairs of them")
        self.assert_one_error(self.run_here("--op", "conv2d", *self.files, "-k", "(3,", "3]"),
                              2, "--kernel: '(3, 3]' is no list")

    def test_flags_with_an_empty_value(self):
        for word in ("--use-cudnn-on-gpu=", "--use_cudnn_on_gpu=", "--dry-run=", "--json="):
            result = self.run_here("--op", "conv2d", *self.files, "-k3", word)
            self.assert_one_error(result, 2, word[:-1].replace("_", "-") + ": '' is empty, expected")

    def test_the_last_one_counts(self):
        for twice in (["-k", "5", "-k", "3,2"], ["-k5", "-k3,2"], ["-k5,5", "--kernel=3,2"],
                      ["--kernel", "5", "-k3,2", "--groups", "3", "--groups", "1"]):
            self.check("--op", "conv2d", *self.files, *twice, "-s9", "-s2,1", "-d7", "-d1,2", "-pexplicit",
                       "--explicit-paddings", "1,2,0,3")

    def test_underscores(self):
        self.check("--op", "conv2d", "--input", "x.npy", "--out_backprop", "dy.npy", "--output",
                   "dw.npy", "--filter_sizes", "3,2,3,5", "--strides", "2,1", "--dilations", "1,2",
                   "--padding", "EXPLICIT", "--explicit_paddings", "1,2,0,3", "--data_format",
                   "NHWC", "--filter_format", "HWIO", "--out_dtype", "float32")
        for word in ("--use_cudnn_on_gpu", "--no-use-cudnn-on-gpu", "--use_cudnn_on_gpu=false", "--memory_limit=1GiB"):
            self.check("--op", "conv2d", *self.files, *self.ATTRIBUTES, word)


class Random(CliTest):
    """Random jobs through files: the right bits. fuzz/validator.cpp draws those that are unsound, too."""

    COUNT = 60 if SANITIZED else 400

    @staticmethod
    def random_problem(rng):
        def pick(*values):
            return values[rng.integers(len(values))]

        op = pick("conv2d", "conv2d", "depthwise", "conv3d")
        rank = 3 if op == "conv3d" else 2
        c = int(rng.integers(1, 9))
        groups = pick(*[g for g in range(1, c + 1) if c % g == 0])
        k = groups * int(rng.integers(1, 6))
        if op == "depthwise":
            groups, k = c, c * int(rng.integers(1, 4))
        padding = pick("same", "valid", "explicit")
        if padding == "explicit":
            padding = [tuple(map(int, rng.integers(0, 5, 2))) for _ in range(rank)]
        top = 7 if rank == 3 else 12
        return Problem(op, n=int(rng.integers(0, 4)),
                       size=[int(v) for v in rng.integers(int(rng.random() > 0.1), top, rank)],
                       c=c, k=k, taps=[int(v) for v in rng.integers(1, 5, rank)],
                       strides=[int(v) for v in rng.integers(1, 5, rank)],
                       dilations=[int(v) for v in rng.integers(1, 4, rank)], padding=padding,
                       groups=groups, last=bool(rng.integers(2)),
                       seed=int(rng.integers(1 << 30)))

    def test_random_files_and_formats(self):
        # Sound jobs in every dtype, file form, filter format and way to give the filter.
        rng = np.random.default_rng(77)

        def pick(*values):
            return values[rng.integers(len(values))]

        for index in range(self.COUNT):
            problem = self.random_problem(rng)
            if min(problem.out) < 0:
                continue
            dtype, out, form = pick(*DTYPES), pick(*DTYPES, None), pick("HWIO", "OIHW", "OHWI")
            for name, tensor in (("x.npy", problem.x), ("dy.npy", problem.dy)):
                order, endian = pick("C", "F"), pick("<", ">")
                stored = round_to(dtype, problem.stored(tensor))
                descr = DESCR[dtype].replace("<", endian)
                payload = stored.astype(descr.replace("V", "u")).tobytes(order)
                self.write(name, raw_npy(
                    stored.shape, repr(descr), payload, order == "F",
                    version=pick((1, 0), (2, 0), (3, 0))))
            sizes = list(problem.filter_sizes())
            way = pick("kernel", "sizes", "file", "like")
            np.save(self.folder / "sizes.npy", np.array(sizes, pick("<i4", ">i8", "<u2")))
            # Any dtype will do: only the shape counts.
            np.save(self.folder / "w.npy", np.zeros(problem.expected(form).shape, pick("f2", ">f4", "f8", "i8")))
            flags = {"kernel": None, "sizes": ["--filter-sizes", *sizes],
                     "file": ["--filter-sizes", "sizes.npy"],
                     "like": ["--filter-like", "w.npy"]}[way]
            more = ["--filter-format", problem.filter_format(form)]
            more += ["--out-dtype", out] if out else []
            more += pick([], ["-b", "reference"], *(["-a", name] for name in ALGORITHMS))
            more += ["-t", 1 + index % 3]
            with self.subTest(index, dtype=dtype, out=out, form=form, way=way):
                self.assert_computes(problem, dtype, *more, out=out, filter_format=form,
                                     save_tensors=False, filter_flags=flags)
