"""--help and --version: complete, and every example runs as it is printed."""
import re
import shlex
import subprocess
import unittest

import numpy as np
from harness import BINARY, CliTest, clean_environment, run, save

COMMANDS = ([], ["verify"], ["bench"], ["inspect"], ["info"])


class Help(CliTest):
    def test_help_goes_to_stdout(self):
        for command in COMMANDS:
            for flag in ("-h", "--help"):
                result = run(*command, flag)
                with self.subTest(command=command, flag=flag):
                    self.assertEqual((result.status, result.err), (0, ""))
                    self.assertIn("Usage: convgrad", result.out)
                    self.assertIn("Examples:", result.out)

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
                     "--json", "--config", "--version"):
            self.assertIn(flag, text)
        for command in ("verify", "bench", "inspect", "info"):
            self.assertRegex(text, rf"(?m)^  {command} ")
        text = run("verify", "--help").out
        for flag in ("--result", "--golden", "--rtol", "--atol", "--max-ulp", "--bitwise",
                     "-k,--kernel", "--op", "--sample", "--seed", "--reference", "--repeat-check",
                     "--update-golden", "--save-repro", "--diagnosis,--no-diagnosis"):
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

    def test_help_wins_over_a_broken_job(self):
        self.assertEqual(run("--op", "conv2d", "--help").status, 0)
        self.assertEqual(run("verify", "--rtol", "1", "-h").status, 0)

    def test_version(self):
        result = run("--version")
        self.assertEqual((result.status, result.err), (0, ""))
        self.assertRegex(result.out, r"^convgrad \d+\.\d+\.\d+ \([^()]+\)\n$")
        self.assertNotIn("(,", result.out)

    def test_no_arguments(self):
        result = run()
        self.assert_one_error(result, 2, "--help")


class Examples(CliTest):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(1)
        save(self.folder / "x.npy", rng.standard_normal((2, 8, 8, 3)))
        save(self.folder / "dy.npy", rng.standard_normal((2, 4, 4, 8)))

    def test_they_run_as_printed(self):
        first = None
        for command in COMMANDS:
            text = run(*command, "--help").out
            lines = [line.strip() for line in text[text.index("Examples:"):].splitlines()
                     if line.startswith("  convgrad ")]
            self.assertGreater(len(lines), 0)
            first = first or lines[0]
            self.assertEqual(shlex.split(first)[0], "convgrad")
            for line in lines:
                with self.subTest(line):
                    if not (self.folder / "dw.npy").exists() and line != first:
                        self.shell(first)
                    done = self.shell(line)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), line)

    def shell(self, line):
        return subprocess.run(["bash", "-c", f'convgrad() {{ {BINARY} "$@"; }}; {line}'],
                              cwd=self.folder, env=clean_environment(), capture_output=True,
                              check=False, text=True, timeout=60)

    def test_the_two_ways_to_give_a_filter_agree(self):
        results = []
        for line in run("--help").out.splitlines():
            if line.startswith("  convgrad --op") and "-o dw.npy" in line:
                self.shell(line.strip())
                results.append((self.folder / "dw.npy").read_bytes())
        self.assertGreaterEqual(len(results), 2)
        self.assertEqual(len(set(results)), 1)


if __name__ == "__main__":
    unittest.main()
