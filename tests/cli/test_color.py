"""Colours: on a terminal only, never with NO_COLOR, and as --color says. Terminals are real: ptys."""
import subprocess

from harness import CliTest, Problem, at_a_terminal, save

RED, GREEN, YELLOW, PLAIN = "\x1b[1;31m", "\x1b[1;32m", "\x1b[1;33m", "\x1b[0m"


class ColorTest(CliTest):
    def setUp(self):
        super().setUp()
        self.problem = Problem(n=1, size=(4, 4), c=2, k=2, taps=(2, 2))
        self.problem.save(self.folder)
        save(self.folder / "wrong.npy", self.problem.expected() + 1)
        self.verify = ["verify", "-i", "x.npy", "-g", "dy.npy", *self.problem.flags()]

    def at_a_terminal(self, *args, env=None, **more):
        unset = {} if "NO_COLOR" in (env or {}) else {"NO_COLOR": None}
        return at_a_terminal(*args, cwd=self.folder, env={**unset, "TERM": "xterm-256color", **(env or {})}, **more)


class Terminal(ColorTest):
    def test_verdicts(self):
        status, text = self.at_a_terminal(*self.verify)
        self.assertEqual(status, 0)
        self.assertTrue(text.startswith(f"{GREEN}MATCH{PLAIN}: "), repr(text[:60]))
        status, text = self.at_a_terminal(*self.verify, "--result", "wrong.npy")
        self.assertEqual(status, 1)
        self.assertTrue(text.startswith(f"{RED}MISMATCH{PLAIN}: "), repr(text[:60]))

    def test_errors(self):
        status, text = self.at_a_terminal("inspect", "none.npy")
        self.assertEqual(status, 3)
        self.assertTrue(text.startswith(f"convgrad: {RED}error:{PLAIN} "), repr(text))
        self.assertEqual(text.count("\n"), 1)

    def test_notes(self):
        _, text = self.at_a_terminal(*self.verify, "--save-diff", "d.txt")
        self.assertIn(f"convgrad: {YELLOW}warning:{PLAIN} ", text)

    def test_each_stream_for_itself(self):
        # Only stderr is the terminal: an error is coloured, a verdict in a file is not.
        _, text = self.at_a_terminal("--frobnicate", stdout=subprocess.DEVNULL)
        self.assertIn(RED, text)
        with open(self.folder / "out", "wb") as out:
            self.at_a_terminal(*self.verify, stdout=out)
        self.assertTrue(self.read("out").startswith(b"MATCH: "))

    def test_what_turns_them_off(self):
        for args, env in ((["--color", "never"], {}), ([], {"NO_COLOR": "0"}), ([], {"TERM": "dumb"}),
                          ([], {"CONVGRAD_COLOR": "never"}), (["--color=auto"], {"NO_COLOR": "1"})):
            with self.subTest(args=args, env=env):
                status, text = self.at_a_terminal(*self.verify, *args, env=env)
                self.assertEqual((status, "\x1b" in text), (0, False), repr(text))
        _, text = self.at_a_terminal("--color=never", "--threads", "x")
        self.assertTrue(text.startswith("convgrad: error: "), repr(text))

    def test_an_empty_no_color_is_none(self):
        _, text = self.at_a_terminal(*self.verify, env={"NO_COLOR": ""})
        self.assertEqual(text, self.run_here(*self.verify).out.replace("MATCH", f"{GREEN}MATCH{PLAIN}", 1))


class Elsewhere(ColorTest):
    def test_always(self):
        # Chosen by the user, it wins over NO_COLOR, as https://no-color.org wants it.
        for args, env in ((["--color=always"], {"NO_COLOR": "1"}), ([], {"CONVGRAD_COLOR": "always", "NO_COLOR": "1"})):
            with self.subTest(args=args, env=env):
                result = self.run_here(*self.verify, *args, env=env)
                self.assertTrue(result.out.startswith(GREEN), result.out[:60])
        result = self.run_here("--threads", "x", "--color=always")
        self.assertEqual(result.status, 2)
        self.assertTrue(result.err.startswith(f"convgrad: {RED}error:{PLAIN} "), result.err)

    def test_reports_have_none(self):
        for args in (self.verify, ["--frobnicate"]):
            self.assertNotIn("\x1b", self.run_here(*args, "--json", "--color=always").out)

    def test_wrong_values(self):
        for word, parts in (("purple", ["'purple'", "auto, always or never"]), ("", ["--color"])):
            self.refuses(2, parts, *self.verify, f"--color={word}")
