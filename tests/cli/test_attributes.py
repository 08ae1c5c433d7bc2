"""Every spelling of every attribute: computed right. exact_test.cpp draws problems at random."""
import numpy as np
from harness import CliTest, Problem, npy_bytes


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
                ("-p", "--padding", ("[[1,1,1],[1]]", "]][[1", "[[0,0],1,1,1,1,[0,0]]", "[1,1],1,1",
                                     "[[[1,1],[1,1]]]")),
                ("-k", "--kernel", ("3]", "(3,3]", "[3,3", ",3", "[3,,3]", "[3],[3]", "[[3],[3]]", "[3,3]]", "3[3]"))):
            for text in lists:
                for words in ([flag, text], [f"{name}={text}"], [flag + text]):
                    result = self.run_here("--op", "conv2d", *self.files, "-k3", *words)
                    with self.subTest(words):
                        self.assert_one_error(result, 2, f"{name}: '{text}' is no list, expected "
                                              "whole numbers such as 3,3 or [3,3], or pairs of them")
        self.refuses(2, ["--kernel: '(3, 3]' is no list"], "--op", "conv2d", *self.files, "-k", "(3,", "3]")

    def test_flags_with_an_empty_value(self):
        for word in ("--use-cudnn-on-gpu=", "--use_cudnn_on_gpu=", "--dry-run=", "--json="):
            self.refuses(2, [word[:-1].replace("_", "-") + ": '' is empty, expected"], "--op", "conv2d", *self.files, "-k3", word)

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

    def test_files_that_say_the_filter(self):
        """Sizes of any integers: npy_test.cpp. Of a filter of any dtype only the shape counts."""
        for dtype in (">f4", "i8"):
            np.save(self.folder / "w.npy", np.zeros((3, 2, 3, 5), dtype))
            self.check("--op", "conv2d", *self.files, *self.ATTRIBUTES[2:], "--filter-like", "w.npy")
