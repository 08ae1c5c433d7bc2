"""`convgrad completion`: its scripts at work in bash and zsh; test_options.py has what they know of each option.

They run at a terminal (a pty): a line is typed, a key inserts all its completions, and a function
called convgrad notes what it would have been given.
"""
import os
import pathlib
import pty
import select
import subprocess
import tempfile
import termios
import time

from harness import BINARY, CliTest, clean_environment, run
from help_text import commands

TIMEOUT_S = 120

NOTE = r"""convgrad() { printf '%s\0' "$@" >noted.tmp; mv noted.tmp noted; }
"""
# Completes as usual, and inserts whatever there is.
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], r"""
bind 'set enable-bracketed-paste off'; bind 'set bell-style none'
bind '"\C-t": insert-completions'
""", b"\x14"),
    "zsh": (["zsh", "-f", "-i"], r"""
unsetopt beep nomatch; unset zle_bracketed_paste
autoload -Uz compinit; compinit -u -D
zle -C all-matches complete-word _generic; bindkey '^T' all-matches
zstyle ':completion:all-matches:*' completer _all_matches _complete
zstyle ':completion:all-matches:*' insert true
""", b"\x14"),
}


class Terminal:
    """A shell at a terminal, in a folder, with the script loaded."""

    def __init__(self, shell, folder, load=None):
        words, setup, self.key = START[shell]
        load = load or f'eval "$({BINARY} completion {shell})"'
        self.folder = folder
        self.master, slave = pty.openpty()
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        env = clean_environment({"TERM": "dumb", "HOME": str(folder), "ZDOTDIR": str(folder),
                                 "HISTFILE": "", "PS1": "$ "})
        self.process = subprocess.Popen(words, cwd=folder, env=env, stdin=slave, stdout=slave,
                                        stderr=slave, start_new_session=True)
        os.close(slave)
        (folder / ".setup").write_text(f"{setup}{NOTE}{load}\n")
        self.type(b". ./.setup\n")
        self.note(b"convgrad ready\n")

    def type(self, keys):
        os.write(self.master, keys)

    def note(self, keys):
        """Types, and waits for what convgrad notes."""
        noted = self.folder / "noted"
        noted.unlink(missing_ok=True)
        self.type(keys)
        end = time.monotonic() + TIMEOUT_S
        heard = b""
        while not noted.exists():
            if time.monotonic() > end:
                raise AssertionError(f"no answer to {keys!r}; the terminal has {heard[-2000:]!r}")
            if select.select([self.master], [], [], 0.02)[0]:
                heard += os.read(self.master, 1 << 16)
        text = noted.read_bytes().decode()
        return text.split("\0")[:-1]

    def completions(self, line):
        """What completes the last word of a line: the words that take its place."""
        typed = line.split(" ")
        words = self.note(b"convgrad " + line.encode() + self.key + b"\n")
        got = words[len(typed) - 1:]
        return [] if got == typed[-1:] else got

    def close(self):
        os.close(self.master)
        self.process.kill()
        self.process.wait(TIMEOUT_S)


class CompletionTest:
    """For each shell the same, and one of each: it takes a second to load its completions."""

    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        folder = pathlib.Path(place.name)
        for name in ("x.npy", "two words.npy", "zoo.npy"):
            (folder / name).touch()
        (folder / "folder").mkdir()
        cls.terminal = Terminal(cls.shell, folder)
        cls.addClassCleanup(cls.terminal.close)

    def assert_completes(self, line, words):
        got = self.terminal.completions(line)
        self.assertEqual(sorted(got), sorted(words), f"{self.shell}: convgrad {line}")

    def test_commands(self):
        names = [name for name in commands() if name]
        self.assert_completes("verif", ["verify"])
        self.assert_completes("i", [name for name in names if name.startswith("i")])
        self.assertLessEqual(set(names), set(self.terminal.completions("")))
        # A command takes no other; a value is none.
        self.assert_completes("verify verif", [])
        self.assert_completes("-t 1 verif", ["verify"])
        self.assert_completes("--op verify benc", ["bench"])
        self.assertIn("--golden", self.terminal.completions("-o info verify --gol"))

    # A line, and the words that take its last word's place.
    LINES = (
        ("--acc", ["--accumulate"]), ("verify --bit", ["--bitwise"]), ("--bit", []), ("bench --warm", ["--warmup"]),
        ("-t 2 bench --warm", ["--warmup"]),
        # Values, behind an equals sign too, and in lists.
        ("--op conv", ["conv1d", "conv2d", "conv3d"]), ("verify --op dep", ["depthwise"]), ("-p sa", ["SAME"]),
        ("--padding SA", ["SAME"]), ("--input-dtype float8_e5m2f", ["float8_e5m2fnuz"]), ("completion z", ["zsh"]),
        ("--padding=sa", ["--padding=SAME"]), ("verify --color=al", ["--color=always"]),
        ("bench --dtype float32,bf", ["float32,bfloat16"]), ("bench -a direct,im2", ["direct,im2col_gemm"]),
        # Files, and names or files; numbers are neither.
        ("-i z", ["zoo.npy"]), ("-i two", ["two words.npy"]), ("verify --golden x", ["x.npy"]), ("inspect x", ["x.npy"]),
        ("inspect x.npy z", ["zoo.npy"]), ("--input=z", ["--input=zoo.npy"]), ("--json=z", ["--json=zoo.npy"]),
        ("verify -i x.npy -g z", ["zoo.npy"]), ("bench --suite unet", ["unet3d"]),
        ("bench --suite two", ["two words.npy"]), ("-t z", []), ("--memory-limit z", []))

    def test_lines(self):
        for line, words in self.LINES:
            with self.subTest(line):
                self.assert_completes(line, words)
        # For bash the value behind an equals sign is a word of its own.
        self.assert_completes("--op=", ["--op=conv1d", "conv2d", "conv3d", "depthwise"]
                              if self.shell == "bash" else
                              ["--op=conv1d", "--op=conv2d", "--op=conv3d", "--op=depthwise"])
        self.assertIn("--golden", self.terminal.completions("verify --color=never --gol"))


class Bash(CompletionTest, CliTest):
    shell = "bash"


class Zsh(CompletionTest, CliTest):
    shell = "zsh"

    def test_from_a_folder_of_functions(self):
        functions = self.folder / "functions"
        functions.mkdir()
        (functions / "_convgrad").write_bytes(run("completion", "zsh").raw)
        terminal = Terminal("zsh", self.folder, "fpath=($PWD/functions $fpath); compinit -u -D")
        self.addCleanup(terminal.close)
        # The first time the file is loaded, the second time it is there.
        self.assertEqual(terminal.completions("verify --gol"), ["--golden"])
        self.assertEqual(terminal.completions("--op dep"), ["depthwise"])


class Scripts(CliTest):
    def test_usage(self):
        for args, parts in (([], ["bash or zsh"]), (["tcsh"], ["'tcsh'", "bash or zsh"]),
                            (["bas"], ["did you mean 'bash'"]), (["bash", "zsh"], ["'zsh'"]),
                            (["--json", "bash"], ["--json"])):
            self.assert_one_error(self.run_here("completion", *args), 2, *parts)
