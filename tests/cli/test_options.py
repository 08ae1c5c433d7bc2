"""Every option of the table, as --help has it: in -h, the manual, the completions, and as a variable.

The manual's pages are made from --help by the build (help2man).
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

from harness import BINARY, ROOT, CliTest, parse_report, run
from help_text import ExampleFolder, commands, options_of

# What a user has to make up: numbers, lists of them, names.
FREE = {"N", "N,...", "SIZE", "X", "S", "G", "K", "M", "R,S", "SH,SW", "DH,DW", "B,A,...", "N,H,W,C", "PART", "RE",
        "A:B|K/R", "K/R", "KEY=VALUE", "LINE", "FAULT,...", "NETWORK"}
# Variables say how the main job writes gradients; --json and the like have none.
NO_VARIABLE = {"verify": {"output", "raw", "accumulate", "no-clobber"}, "generate": {"output", "from", "signs"}}


def words_of(command, *more):
    return [command] * bool(command) + list(more)


def texts_of(command):
    """{names: text} from a command's --help."""
    rows = re.findall(r"(?m)^  (-[^ \n]+)(?: [^ \n]+)?(?:\s+)([^\n]+)$", run(*words_of(command, "--help")).out)
    return {names.split("[")[0]: text for names, text in rows}


def manual(path, **env):
    """A page as plain text, words unbroken, and what man complains of."""
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", path], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "10000",
                               "MAN_KEEP_FORMATTING": "", **env})
    text = re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout).replace("‐", "-").replace("−", "-")
    return text, done.stderr


def rows_of_script(shell):
    """{(command, name): (takes, values, help)} of a script of completions."""
    lines = re.findall(r"(?m)^_convgrad_row .*$", run("completion", shell).out)
    return {(command, name): rest for _, command, name, *rest in map(shlex.split, lines)}


class Options(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.pages = pathlib.Path(tempfile.mkdtemp(prefix="convgrad-man-"))
        cls.addClassCleanup(shutil.rmtree, cls.pages)
        subprocess.run([ROOT / "scripts/make_man", BINARY, cls.pages], check=True, timeout=120)

    def page(self, command):
        return self.pages / ("-".join(["convgrad", *words_of(command)]) + ".1")

    def test_help(self):
        for command in commands():
            short, long = run(*words_of(command, "-h")), run(*words_of(command, "--help"))
            lines = short.out.splitlines()
            with self.subTest(command):
                self.assertEqual((short.status, short.err, long.status, long.err), (0, "", 0, ""))
                self.assertIn("Examples:", long.out)
                self.assertIn("Example:", short.out)
                self.assertLessEqual(len(lines), 30, short.out)
                self.assertLessEqual(max(map(len, lines)), 120, short.out)
                self.assertNotRegex(long.out, r"\x1b|(?m:[ \t]$)")
            for names, _ in options_of(command):
                if "--op" not in names or command != "generate":    # there it has a place
                    self.assertTrue(any(name in short.out for name in names), names)
            for names, text in texts_of(command).items():
                self.assertLess(len(text), 120, names)
                self.assertNotRegex(names + text, r"INT|TEXT|FLOAT|NONNEGATIVE|UINT|\[b, kb|\{", names)

    def test_manual(self):
        self.assertEqual({path.name for path in self.pages.iterdir()}, {self.page(name).name for name in commands()})
        for command in commands():
            page, complaints = manual(self.page(command))
            self.assertEqual(complaints, "", command)
            squeezed = re.sub(r"\s+", " ", page)
            rows = texts_of(command)
            self.assertGreater(len(rows), 1)
            for names, text in rows.items():
                self.assertIn(names.replace(",-", ", -"), page)
                self.assertIn(re.sub(r"\s+", " ", text), squeezed)
            for line in ExampleFolder.examples(command):
                self.assertIn("$ " + line, squeezed)
            # help2man took what stands behind it for another option's name.
            self.assertNotRegex(self.page(command).read_text(), r"\\fR {3,}")
            done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", self.page(command)],
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), command)
        page = manual(self.page(""))[0]
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "NOTES", "EXIT STATUS",
                        "ENVIRONMENT", "EXAMPLES", "SEE ALSO"):
            self.assertRegex(page, rf"(?m)^{section}$")
        self.assertRegex(page, r"NAME\n +convgrad - \w+")
        self.assertIn(f"convgrad {run('--version').out.split()[1]}", page)
        self.assertIn("convgrad-verify(1)", page[page.index("SEE ALSO"):])

    def test_the_same_manual_every_time(self):
        subprocess.run([ROOT / "scripts/make_man", BINARY, self.folder], check=True, timeout=120)
        for path in self.pages.iterdir():
            self.assertEqual(self.read(path.name), path.read_bytes())

    def test_completions(self):
        rows = rows_of_script("bash")
        self.assertEqual(rows_of_script("zsh"), rows)
        for command in commands():
            texts = texts_of(command)
            for names, takes in options_of(command):
                for name in names:
                    kind, values, text = rows[command or "convgrad", name]
                    with self.subTest(command=command, name=name, takes=takes):
                        self.assertEqual(text, texts[",".join(names)])
                        if not takes or "[" in takes:
                            self.assertEqual(kind, "optional" if takes else "nothing")
                        elif "FILE" in takes or "DIR" in takes:
                            self.assertEqual(kind, "file")
                        elif takes not in FREE:
                            self.assertIn(kind, ("word", "list"))
                            self.assertTrue(values)
                            self.assertTrue(takes.isupper() or values.split() == takes.split("|"))

    def test_variables(self):
        for command in commands():
            if ["--json"] not in [names for names, _ in options_of(command)]:
                continue   # completion: no report says which variables had a say
            for names, takes in options_of(command):
                name = next((name[2:] for name in names if name.startswith("--")), "help")   # -h
                if name in {"help", "version", "json", *NO_VARIABLE.get(command, ())}:
                    continue
                variable = "CONVGRAD_" + name.upper().replace("-", "_")
                word = "never" if name == "color" else "1" if takes else "true"
                with self.subTest(command=command, variable=variable):
                    report = parse_report(self.run_here(*words_of(command, "--json"), env={variable: word}).out)
                    said = report["command_line"] + report.get("error", {}).get("message", "")
                    self.assertIn(variable, said)


class Help(CliTest):
    def test_of_a_command(self):
        for words in ([], ["verify"], ["diff"]):
            self.assertEqual(run("help", *words).out, run(*words, "--help").out)
        self.assertEqual(run("--op", "conv2d", "--help").status, 0)    # it wins over a broken job
        self.assertEqual(run("verify", "--rtol", "1", "-h").status, 0)

    def test_version(self):
        out = run("--version").out
        self.assertEqual(run("-V").out, out)
        self.assertRegex(out, r"^convgrad \d+\.\d+\.\d+ \([^()]+\)\n$")
        self.assertTrue(run("info").out.startswith(out))
        self.assertRegex(run("info").out, r"\nMPI {10}(Open MPI \d+\.\d+\.\d+|none)\n")

    def test_the_ways_to_give_tensors_and_filter_agree(self):
        examples = ExampleFolder(self.folder)
        results = []
        for line in examples.examples(""):
            if "convgrad --op" in line and ("-o dw.npy" in line or "> dw.npy" in line):
                (self.folder / "dw.npy").unlink(missing_ok=True)
                examples.run(line)
                results.append(self.read("dw.npy"))
        self.assertGreaterEqual(len(results), 4)
        self.assertEqual(len(set(results)), 1)
