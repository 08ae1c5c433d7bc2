"""Colours: on a terminal only, never with NO_COLOR, and as --color says. Terminals are real: ptys."""
import subprocess

from harness import CliTest, Problem, at_a_terminal, save

RED, GREEN, YELLOW, PLAIN = "\x1b[1;31m", "\x1b[1;32m", "\x1b[1;33m", "\x1b[0m"


class Color(CliTest):
    def setUp(self):
        super().setUp()
        self.problem = Problem(n=1, size=(4, 4), c=2, k=2, taps=(2, 2))
        self.problem.save(self.folder)
        save(self.folder / "wrong.npy", self.problem.expected() + 1)
        self.verify = ["verify", "-i", "x.npy", "-g", "dy.npy", *self.problem.flags()]

    def at_a_terminal(self, *args, env=None, **more):
        unset = {} if "NO_COLOR" in (env or {}) else {"NO_COLOR": None}
        return at_a_terminal(*args, cwd=self.folder, env={**unset, "TERM": "xterm-256color", **(env or {})}, **more)

    def test_verdicts_errors_and_notes(self):
        for args, status, begin in ((self.verify, 0, f"{GREEN}MATCH{PLAIN}: "),
                                    ([*self.verify, "--result", "wrong.npy"], 1, f"{RED}MISMATCH{PLAIN}: "),
                                    (["inspect", "none.npy"], 3, f"convgrad: {RED}error:{PLAIN} "),
                                    ([*self.verify, "--save-diff", "d.txt"], 0, f"convgrad: {YELLOW}warning:{PLAIN} ")):
            found, text = self.at_a_terminal(*args)
            self.assertEqual(found, status)
            self.assertTrue(text.startswith(begin), repr(text[:80]))

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

    def test_always(self):
        # Chosen by the user, it wins over NO_COLOR, as https://no-color.org wants it.
        for args, env in ((["--color=always"], {"NO_COLOR": "1"}), ([], {"CONVGRAD_COLOR": "always", "NO_COLOR": "1"})):
            with self.subTest(args=args, env=env):
                result = self.run_here(*self.verify, *args, env=env)
                self.assertTrue(result.out.startswith(GREEN), result.out[:60])

    def test_reports_have_none(self):
        for args in (self.verify, ["--frobnicate"]):
            self.assertNotIn("\x1b", self.run_here(*args, "--json", "--color=always").out)
