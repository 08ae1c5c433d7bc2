"""Flag, CONVGRAD_* variable, default: in this order. test_options.py has the variable of each option."""
from harness import CliTest, Problem, parse_report


class LayeringTest(CliTest):
    def setUp(self):
        super().setUp()
        self.problem = Problem(n=1, size=(4, 4), c=2, k=2, taps=(2, 2))
        self.problem.save(self.folder)
        self.files = ["-i", "x.npy", "-g", "dy.npy"]
        self.base = ["--op", "conv2d", "-k", "2", "-p", "same", *self.files]

    def plan(self, *args, env=None, command=()):
        """The report of a dry run: what the layers came to."""
        report = self.report(*command, *args, "--dry-run", env=env)
        return {**report["attrs"], **report["execution"]}


class Precedence(LayeringTest):
    def test_every_kind_of_option(self):
        # name, words of flag and variable, key of the report, what each of them gives.
        for name, words, key, values in (
                ("filter-format", ("OIHW", "OHWI"), "filter_format", None),
                ("algorithm", ("direct", "im2col_gemm"), "algorithm", None),
                ("memory-limit", ("512MiB", "256MiB"), "memory_limit_bytes", (2**29, 2**28)),
                ("threads", ("2", "3"), "threads", (2, 3))):
            values = values or words
            env = {"CONVGRAD_" + name.upper().replace("-", "_"): words[1]}
            with self.subTest(name):
                self.assertEqual(self.plan(*self.base, env=env)[key], values[1])
                for command in ([], ["verify"]):
                    plan = self.plan(*self.base, f"--{name}", words[0], env=env, command=command)
                    self.assertEqual(plan[key], values[0])

    def test_vectors(self):
        problem = Problem(n=1, size=(5, 5), c=2, k=2, taps=(2, 2), strides=(2, 1))
        problem.save(self.folder)
        self.assertEqual(self.plan(*self.base, env={"CONVGRAD_STRIDES": "2 1"})["strides"], [2, 1])
        # Not a mixture of the two.
        self.assertEqual(self.plan(*self.base, "-s", "2,1", env={"CONVGRAD_STRIDES": "7"})["strides"], [2, 1])

    def test_flags_without_a_value(self):
        for word, on in (("1", True), ("true", True), ("0", False), ("false", False), ("on", True),
                         ("off", False), ("yes", True), ("no", False)):
            with self.subTest(word):
                result = self.run_here(*self.base, "-o", "dw.npy", env={"CONVGRAD_DRY_RUN": word})
                self.assertEqual((result.status, "dw.npy" in self.listing()), (0, not on),
                                 str(result))
                (self.folder / "dw.npy").unlink(missing_ok=True)
        # A flag can say no, too.
        self.assert_quiet(self.run_here(*self.base, "-o", "dw.npy", "--dry-run=false",
                                        env={"CONVGRAD_DRY_RUN": "true"}))
        self.assertIn("dw.npy", self.listing())

    def test_empty_variables_are_not_set(self):
        self.assertEqual(self.plan(*self.base, env={"CONVGRAD_STRIDES": "", "CONVGRAD_OP": ""})["strides"], [1, 1])

    def test_a_flag_of_one_way_silences_the_variables_of_the_others(self):
        quick = ["--warmup", 0, "--repeat", 1, "--min-time", 0, "--no-peaks"]
        line = ["bench", "--problem", "ic2ih4oc2kh2", *quick]
        files = ["bench", *self.base, *quick]
        made = ["conv2d", "--shape", "1,4,4,1", "-k", 2, "--out-channels", 1, "-p", "same"]
        for args, names in ((self.base, ("EXPLICIT_PADDINGS", "FILTER_SIZES", "FILTER_LIKE")),
                            (["verify", *self.base, "--atol", 0], ("RTOL", "MAX_ULP")),
                            (["verify", *self.base, "--max-ulp", 0], ("RTOL", "ATOL")),
                            (["verify", *self.base, "--bitwise"], ("RTOL", "MAX_ULP")),
                            (["--verbose", *self.base], ("QUIET",)),
                            (["compare", "x.npy", "x.npy", "--bitwise"], ("RTOL", "OUTPUT")),
                            (["generate", *made, "-o", "made", "--clobber"], ("OUTPUT",)),
                            (line, ("SUITE", "INPUT_SHAPE", "INPUT", "OUT_CHANNELS")),
                            (files, ("SUITE", "INPUT_SHAPE", "PROBLEM", "MULTIPLIER"))):
            for name in names:
                env = {f"CONVGRAD_{name}": "1"}
                where = ["-o", "dw.npy"] if args[0].startswith("--") else []
                with self.subTest(args=args, env=env):
                    report = parse_report(self.run_here(*args, *where, "--json", env=env).out)
                    self.assertEqual(report["exit_code"], 0)
                    self.assertTrue(report["command_line"].startswith("convgrad "))
        explicit = ["--op", "conv2d", "-k", "2", "-p", "explicit", *self.files]
        plan = self.plan(*explicit, env={"CONVGRAD_EXPLICIT_PADDINGS": "0,1,0,1", "CONVGRAD_PADDING": "valid"})
        self.assertEqual(plan["pads"], [[0, 1], [0, 1]])

    def test_variables_of_others_do_not_disturb_compute(self):
        # Of verify, of the tests, and of nobody.
        self.assert_quiet(self.run_here(*self.base, "-o", "dw.npy", env={
            "CONVGRAD_MAX_ULP": "3", "CONVGRAD_BINARY": "/x", "CONVGRAD_SOMETHING": "1"}))

    def test_options_stand_behind_their_command(self):
        report = self.report("verify", "-t", 1, *self.base, env={"CONVGRAD_THREADS": "7"})
        self.assertEqual(report["execution"]["threads"], 1)
        verify, compare, bench = ["verify", *self.base], ["compare", "x.npy", "x.npy"], ["bench", "--problem", "ic2ih4oc2kh2"]
        for front, name, words in ((["-t", 1], "threads", verify), (["-i", "x.npy"], "input", verify), (["-q"], "quiet", verify),
                                   (["-o", "x.npy"], "output", compare), (["-b", "reference"], "backend", bench)):
            self.assert_one_error(self.run_here(*front, *words), 2, f"--{name}: given in front of {words[0]}")


class Refused(LayeringTest):
    def refuse(self, status, parts, *args, env=None):
        self.refuses(status, parts, *self.base, "-o", "dw.npy", *args, env=env)

    def test_bad_variables_are_named(self):
        # By the parser, by the command, and by the problem.
        for name, word, status in (("THREADS", "abc", 2), ("MEMORY_LIMIT", "lots", 2), ("DRY_RUN", "maybe", 2),
                                   ("STRIDES", "2,x", 2), ("BACKEND", "gpu", 2), ("DATA_FORMAT", "NHW", 2),
                                   ("STRIDES", "0", 3)):
            self.refuse(status, [f"CONVGRAD_{name}"], env={f"CONVGRAD_{name}": word})

    def test_empty_values(self):
        # An unset variable of a script must not turn a check off.
        for flag in ("--batch-range", "--filter-like", "--padding", "--algorithm", "--memory-limit", "--kernel"):
            self.refuse(2, [flag], flag, "")
        for flag in ("--result", "--golden", "--criterion", "--save-diff"):
            self.refuses(2, [flag, "empty"], "verify", *self.base, flag, "")
