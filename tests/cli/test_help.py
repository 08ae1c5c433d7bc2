"""--help and --version: complete, and every example runs as it is printed."""
import re

from harness import CliTest, ExampleFolder, commands, run

COMMANDS = [[name] if name else [] for name in commands()]


class Help(CliTest):
    def test_help_goes_to_stdout(self):
        for command in COMMANDS:
            for flag, examples in (("-h", "Example:"), ("--help", "Examples:")):
                result = run(*command, flag)
                with self.subTest(command=command, flag=flag):
                    self.assertEqual((result.status, result.err), (0, ""))
                    self.assertIn("Usage: convgrad", result.out)
                    self.assertIn(examples, result.out)

    def test_each_option_has_a_text(self):
        for command in COMMANDS:
            text = run(*command, "--help").out
            for line in text.splitlines():
                if re.match(r"  (-\w,)?--[\w-]+", line):
                    self.assertLess(len(line), 150, line)
                    self.assertNotRegex(line, r"INT|TEXT|FLOAT|NONNEGATIVE|UINT|\[b, kb|\{", line)

    def test_all_flags_of_the_contract(self):
        text = run("--help").out
        for flag in ("--op", "-i,--input", "-g,--out-backprop", "-o,--output", "--filter-sizes",
                     "-k,--kernel", "--filter-like", "-s,--strides", "-p,--padding",
                     "--explicit-paddings", "-d,--dilations", "-f,--data-format", "--groups",
                     "--filter-format", "--use-cudnn-on-gpu", "-b,--backend", "--device",
                     "-t,--threads", "-a,--algorithm", "--list-algorithms", "--out-dtype",
                     "--accumulate", "--memory-limit", "--dry-run", "--no-clobber", "-v,--verbose",
                     "--batch-range", "--mpi", "--json", "--version"):
            self.assertIn(flag, text)
        self.assertLessEqual({"verify", "compare", "batch", "bench", "generate", "reduce", "inspect", "info",
                              "completion"},
                             set(commands()))
        text = run("verify", "--help").out
        for flag in ("--result", "--golden", "--rtol", "--atol", "--max-ulp", "--bitwise",
                     "-k,--kernel", "--op", "--sample", "--seed", "--criterion",
                     "--update-golden", "--save-repro", "--diagnosis,--no-diagnosis"):
            self.assertIn(flag, text)
        text = run("compare", "--help").out
        for flag in ("GOT", "WANT", "--rtol", "--atol", "--max-ulp", "--bitwise", "--equal-nan",
                     "--no-equal-nan", "--save-diff", "-q,--quiet", "--no-clobber"):
            self.assertIn(flag, text)
        self.assertEqual(run("diff", "--help").out, text)
        text = run("generate", "--help").out
        for flag in ("OP", "--op", "--shape", "--dist", "--seed", "--dtype", "-o,--output",
                     "--nonfinite", "--clobber", "-k,--kernel", "--filter-sizes", "-p,--padding"):
            self.assertIn(flag, text)

    def test_groups_and_statuses(self):
        text = run("--help").out
        for part in ("Reporting:", "Operation:", "Tensors:", "Execution:", "Exit status:", "130",
                     "143"):
            self.assertIn(part, text)
        self.assertIn("Comparison:", run("verify", "--help").out)

    def test_no_colours_and_no_trailing_spaces(self):
        for command in COMMANDS:
            text = run(*command, "--help").out
            self.assertNotIn("\x1b", text)
            self.assertEqual([line for line in text.splitlines() if line != line.rstrip()], [])

    def test_an_attribute_without_effect_says_so(self):
        for command in ([], ["verify"], ["bench"], ["generate"]):
            self.assertRegex(run(*command, "--help").out, r"(?s)--use-cudnn-on-gpu,[^.]*has no effect\n")

    def test_help_wins_over_a_broken_job(self):
        self.assertEqual(run("--op", "conv2d", "--help").status, 0)
        self.assertEqual(run("verify", "--rtol", "1", "-h").status, 0)

    def test_version(self):
        result = run("--version")
        self.assertEqual((result.status, result.err), (0, ""))
        self.assertRegex(result.out, r"^convgrad \d+\.\d+\.\d+ \([^()]+\)\n")
        self.assertNotIn("(,", result.out)

    def test_no_arguments(self):
        result = run()
        self.assert_one_error(result, 2, "--help")


class Examples(CliTest):
    def setUp(self):
        super().setUp()
        self.examples = ExampleFolder(self.folder)

    def test_they_run_as_printed(self):
        for command in COMMANDS:
            lines = self.examples.examples(*command or [""])
            self.assertGreater(len(lines), 0)
            # Some example is of the command itself.
            name = " ".join(["convgrad", *command])
            self.assertTrue(any(f"{line} ".startswith(f"{name} ") for line in lines), lines)
            for line in lines:
                with self.subTest(line):
                    done = self.examples.run(line)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), line)

    def test_the_ways_to_give_tensors_and_filter_agree(self):
        results = []
        for line in self.examples.examples(""):
            if "convgrad --op" in line and ("-o dw.npy" in line or "> dw.npy" in line):
                (self.folder / "dw.npy").unlink(missing_ok=True)
                self.examples.run(line)
                results.append(self.read("dw.npy"))
        self.assertGreaterEqual(len(results), 4)
        self.assertEqual(len(set(results)), 1)
