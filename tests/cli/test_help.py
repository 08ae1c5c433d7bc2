"""--help and --version: complete, and every example runs as it is printed."""
import re

from harness import CliTest, ExampleFolder, commands, options_of, run

COMMANDS = [[name] if name else [] for name in commands()]


class Help(CliTest):
    def test_short(self):
        for command in commands():
            words = [command] * bool(command)
            short, long = run(*words, "-h"), run(*words, "--help")
            with self.subTest(command):
                self.assertEqual((short.status, short.err), (0, ""))
                self.assertEqual((long.status, long.err), (0, ""))
                self.assertIn("Usage: convgrad", long.out)
                self.assertIn("Examples:", long.out)
                lines = short.out.splitlines()
                self.assertLessEqual(len(lines), 30, short.out)
                self.assertLessEqual(max(map(len, lines)), 120, short.out)
                self.assertIn("Usage: convgrad", short.out)
                self.assertIn("Example:", short.out)
                self.assertGreater(len(long.out), len(short.out))
                for names, _ in options_of(command):
                    if "--op" not in names or command != "generate":    # there it has a place
                        self.assertTrue(any(name in short.out for name in names), names)

    def test_help_of_a_command(self):
        for words in ([], ["verify"], ["diff"]):
            self.assertEqual(run("help", *words).out, run(*words, "--help").out)

    def test_version(self):
        out = run("--version").out
        self.assertEqual(run("-V").out, out)
        self.assertRegex(out, r"^convgrad \d+\.\d+\.\d+ \([^()]+\)\n"
                              r"BLAS  OpenBLAS \d+\.\d+\.\d+, kernels for \w+\n"
                              r"CUDA  (toolkit \d+\.\d+[.\d]*|none.*)\n"
                              r"MPI   (Open MPI \d+\.\d+\.\d+|none.*)\n$")

    def test_each_option_has_a_text(self):
        for command in COMMANDS:
            text = run(*command, "--help").out
            self.assertNotIn("\x1b", text)
            for line in text.splitlines():
                self.assertEqual(line, line.rstrip())
                if re.match(r"  (-\w,)?--[\w-]+", line):
                    self.assertLess(len(line), 150, line)
                    self.assertNotRegex(line, r"INT|TEXT|FLOAT|NONNEGATIVE|UINT|\[b, kb|\{", line)

    def test_help_wins_over_a_broken_job(self):
        self.assertEqual(run("--op", "conv2d", "--help").status, 0)
        self.assertEqual(run("verify", "--rtol", "1", "-h").status, 0)


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
