"""Flag, CONVGRAD_* variable, --config file, default: in this order."""
import re
import subprocess
import unittest

import numpy as np
from harness import (BINARY, ROOT, CliTest, Problem, clean_environment, commands, npy_bytes, options_of,
                     parse_report, save, small)


class LayeringTest(CliTest):
    def setUp(self):
        super().setUp()
        self.problem = Problem(n=1, size=(4, 4), c=2, k=2, taps=(2, 2))
        self.problem.save(self.folder)
        self.files = ["-i", "x.npy", "-g", "dy.npy"]
        self.base = ["--op", "conv2d", "-k", "2", "-p", "same", *self.files]

    def config(self, text, name="c.toml"):
        mode = {"mode": "wb"} if isinstance(text, bytes) else {"mode": "w", "encoding": "utf-8"}
        with open(self.folder / name, **mode) as file:
            file.write(text)
        return name

    def plan(self, *args, env=None, command=()):
        """The report of a dry run: what the layers came to."""
        result = self.run_here(*command, *args, "--dry-run", "--json", env=env)
        self.assertEqual((result.status, result.err), (0, ""), str(result))
        report = parse_report(result.out)
        return {**report["attrs"], **report["execution"]}


class Precedence(LayeringTest):
    def test_threads(self):
        self.config("threads = 5\n")
        config = ["--config", "c.toml"]
        env = {"CONVGRAD_THREADS": "3"}
        for expected, args, variables in ((2, ["-t", 2, *config], env), (2, ["-t", 2], env),
                                          (2, ["-t", 2, *config], {}), (3, config, env),
                                          (3, [], env), (5, config, {})):
            with self.subTest(args=args, env=variables):
                self.assertEqual(self.plan(*self.base, *args, env=variables)["threads"], expected)
                self.assertEqual(self.plan(*self.base, *args, env=variables,
                                           command=["verify"])["threads"], expected)

    def test_every_kind_of_option(self):
        # name, words of flag, variable and file, key of the report, what each of them gives.
        for name, words, key, values in (
                ("out-dtype", ("float16", "float64", "bfloat16"), "out_dtype", None),
                ("filter-format", ("OIHW", "OHWI", "HWIO"), "filter_format", None),
                ("algorithm", ("direct", "im2col_gemm", "direct"), "algorithm", None),
                ("backend", ("reference", "cpu", "reference"), "backend", None),
                ("memory-limit", ("512MiB", "256MiB", "1GiB"), "memory_limit_bytes",
                 (2**29, 2**28, 2**30)),
                ("groups", ("2", "1", "2"), "groups", (2, 1, 2))):
            values = values or words
            variable = "CONVGRAD_" + name.upper().replace("-", "_")
            self.config(f'{name} = "{words[2]}"\n')
            config = ["--config", "c.toml"]
            with self.subTest(name):
                self.assertEqual(self.plan(*self.base, *config)[key], values[2])
                self.assertEqual(self.plan(*self.base, *config, env={variable: words[1]})[key],
                                 values[1])
                self.assertEqual(self.plan(*self.base, *config, f"--{name}", words[0],
                                           env={variable: words[1]})[key], values[0])

    def test_vectors(self):
        problem = Problem(n=1, size=(5, 5), c=2, k=2, taps=(2, 2), strides=(2, 1))
        problem.save(self.folder)
        for text in ("2,1", "2 1", "[2,1]", "1,2,1,1"):
            plan = self.plan(*self.base, env={"CONVGRAD_STRIDES": text})
            self.assertEqual(plan["strides"], [2, 1])
        for text in ('"2,1"', "[2, 1]", "[2,1]", '"[2,1]"', "[1, 2, 1, 1]"):
            self.config(f"strides = {text}\n")
            self.assertEqual(self.plan(*self.base, "--config", "c.toml")["strides"], [2, 1], text)
            # Not a mixture of the layers.
            plan = self.plan(*self.base, "--config", "c.toml", env={"CONVGRAD_STRIDES": "2,1"})
            self.assertEqual(plan["strides"], [2, 1])
            self.assertEqual(self.plan(*self.base, "--config", "c.toml", "-s", "2,1",
                                       env={"CONVGRAD_STRIDES": "7"})["strides"], [2, 1])

    def test_flags_without_a_value(self):
        for word, on in (("1", True), ("true", True), ("0", False), ("false", False), ("on", True),
                         ("off", False), ("yes", True), ("no", False)):
            with self.subTest(word):
                result = self.run_here(*self.base, "-o", "dw.npy", env={"CONVGRAD_DRY_RUN": word})
                self.assertEqual((result.status, "dw.npy" in self.listing()), (0, not on),
                                 str(result))
                (self.folder / "dw.npy").unlink(missing_ok=True)
        for word, on in (("true", True), ("false", False)):
            self.config(f"dry-run = {word}\n")
            result = self.run_here(*self.base, "-o", "dw.npy", "--config", "c.toml")
            self.assertEqual((result.status, "dw.npy" in self.listing()), (0, not on))
            (self.folder / "dw.npy").unlink(missing_ok=True)
        # A variable that says no wins over a file that says yes; a flag can say no, too.
        self.config("dry-run = true\n")
        for args, env in (([], {"CONVGRAD_DRY_RUN": "false"}), (["--dry-run=false"], {})):
            self.assert_quiet(self.run_here(*self.base, "-o", "dw.npy", "--config", "c.toml",
                                            *args, env=env))
            self.assertIn("dw.npy", self.listing())
            (self.folder / "dw.npy").unlink()

    def test_the_whole_problem_from_variables(self):
        problem = small("conv2d")
        problem.save(self.folder)
        names = {"--op": "CONVGRAD_OP", "-i": "CONVGRAD_INPUT", "-g": "CONVGRAD_OUT_BACKPROP",
                 "-o": "CONVGRAD_OUTPUT", "--data-format": "CONVGRAD_DATA_FORMAT",
                 "--strides": "CONVGRAD_STRIDES", "--dilations": "CONVGRAD_DILATIONS",
                 "--padding": "CONVGRAD_PADDING", "--kernel": "CONVGRAD_KERNEL",
                 "--groups": "CONVGRAD_GROUPS"}
        args = problem.args()
        env = {names[flag]: str(value) for flag, value in zip(args[::2], args[1::2])}
        self.assert_quiet(self.run_here(env=env))
        self.assertEqual((self.folder / "dw.npy").read_bytes(),
                         npy_bytes("float32", problem.expected()))
        lines = [f'{flag[len("CONVGRAD_"):].lower()} = "{value}"\n' for flag, value in env.items()]
        self.config("# all of it\n" + "".join(lines))
        (self.folder / "dw.npy").unlink()
        self.assert_quiet(self.run_here("--config", "c.toml"))
        self.assert_quiet(self.run_here(env={"CONVGRAD_CONFIG": "c.toml"}))

    def test_empty_variables_are_not_set(self):
        self.assertEqual(self.plan(*self.base, env={"CONVGRAD_STRIDES": "", "CONVGRAD_OP": "",
                                                    "CONVGRAD_CONFIG": ""})["strides"], [1, 1])

    def test_hyphens_and_underscores_in_keys(self):
        for key in ("out-dtype", "out_dtype"):
            self.config(f'{key} = "float64"\n')
            self.assertEqual(self.plan(*self.base, "--config", "c.toml")["out_dtype"], "float64")

    def test_config_flag_wins_over_its_variable(self):
        self.config("threads = 5\n")
        self.config("threads = 6\n", "other.toml")
        self.assertEqual(self.plan(*self.base, "--config", "c.toml",
                                   env={"CONVGRAD_CONFIG": "other.toml"})["threads"], 5)

    def test_sections(self):
        self.config('threads = 2\nout_dtype = "float64"\n\n[verify]\nthreads = 4\nmax-ulp = 3\n')
        config = ["--config", "c.toml"]
        self.assertEqual(self.plan(*self.base, *config)["threads"], 2)
        for place in ([*config, "verify"], ["verify", *config]):
            result = self.run_here(*place, *self.base, "--json")
            self.assertEqual(result.status, 0, str(result))
            report = parse_report(result.out)
            self.assertEqual(report["execution"]["threads"], 4)
            self.assertEqual(report["attrs"]["out_dtype"], "float64")
            self.assertIn("3 ULP", report["compare"]["criterion"])

    def test_a_flag_silences_its_rivals(self):
        # --bitwise on the command line, another criterion below: the flag wins, or the message
        # says where the rival stands.
        self.config("[verify]\nmax-ulp = 3\n")
        for env, where in (({"CONVGRAD_MAX_ULP": "3"}, "CONVGRAD_MAX_ULP"),
                           ({"CONVGRAD_RTOL": "3"}, "CONVGRAD_RTOL"),
                           ({"CONVGRAD_CONFIG": "c.toml"}, "c.toml")):
            result = self.run_here("verify", *self.base, "--bitwise", env=env)
            with self.subTest(env):
                self.assertIn(result.status, (0, 2))
                self.assertIn("every bit equal" if result.status == 0 else where,
                              result.out + result.err)
        for env, where in (({"CONVGRAD_FILTER_SIZES": "3,3,2,2"}, "CONVGRAD_FILTER_SIZES"),
                           ({"CONVGRAD_FILTER_LIKE": "w.npy"}, "CONVGRAD_FILTER_LIKE")):
            result = self.run_here(*self.base, "-o", "dw.npy", env=env)
            with self.subTest(env):
                self.assertIn(result.status, (0, 2, 3))
                if result.status:
                    self.assertIn(where, result.err)

    def test_verifys_options_do_not_disturb_compute(self):
        self.config("[verify]\nrtol = 1\n")
        self.assert_quiet(self.run_here(*self.base, "-o", "dw.npy", "--config", "c.toml",
                                        env={"CONVGRAD_MAX_ULP": "3"}))

    def test_options_after_and_before_the_command(self):
        for args in (["-t", 1, "verify", *self.base], ["verify", "-t", 1, *self.base],
                     [*self.files, "verify", *self.base[:-4], "-t", 1]):
            result = self.run_here(*args, "--json", env={"CONVGRAD_THREADS": "7"})
            self.assertEqual(result.status, 0, str(result))
            self.assertEqual(parse_report(result.out)["execution"]["threads"], 1)


class Everything(LayeringTest):
    """Whatever option a command has: it has a variable and a key, too."""

    def names(self, command):
        for names, takes in options_of(command):
            name = next((name for name in names if name.startswith("--")), "--help")   # -h
            if name not in ("--help", "--version", "--json", "--config"):
                yield name[2:], takes

    def test_variables(self):
        ignored = {"verify": {"output", "raw", "accumulate", "no-clobber"}, "generate": {"output"}}
        for command in commands():
            if ["--json"] not in [names for names, _ in options_of(command)]:
                continue   # completion: no report says which variables had a say
            for name, takes in self.names(command):
                if name in ignored.get(command, ()):
                    continue
                variable = "CONVGRAD_" + name.upper().replace("-", "_")
                word = "never" if name == "color" else "1" if takes else "true"
                with self.subTest(command=command, variable=variable):
                    result = self.run_here(*[command] * bool(command), "--json", env={variable: word})
                    report = parse_report(result.out)
                    said = report["command_line"] + report.get("error", {}).get("message", "")
                    self.assertIn(variable, said)

    def test_keys(self):
        for command in commands():
            if "--config" not in [names[-1] for names, _ in options_of(command)]:
                continue
            for name, takes in self.names(command):
                for section in ({"", command} if command else {"compute"}):
                    if not section and name not in dict(self.names("")):
                        continue
                    word = '"never"' if name == "color" else "1" if takes else "true"
                    self.config((f"[{section}]\n" if section else "") + f"{name} = {word}\n")
                    result = self.run_here(*[command] * bool(command), "--config", "c.toml")
                    with self.subTest(command=command, key=name, section=section):
                        self.assertNotIn("is not an option", result.err)
                        self.assertNotIn("only be given as a flag", result.err)


class Page(LayeringTest):
    """docs/configuration.md: its commands run, its file is read."""

    def test_blocks(self):
        text = (ROOT / "docs/configuration.md").read_text()
        save(self.folder / "x.npy", np.ones((2, 8, 8, 3)))
        save(self.folder / "dy.npy", np.ones((2, 4, 4, 8)))
        (script,) = re.findall(r"(?m)^```sh\n(.*?)^```", text, re.S)
        done = subprocess.run(["bash", "-euc", f'convgrad() {{ "{BINARY}" "$@"; }}; {script}'],
                              cwd=self.folder, env=clean_environment(), capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        threads = re.findall(r"(\d+) threads?,", done.stdout)
        self.assertEqual(threads, ["2", "1"], done.stdout)
        (file,) = re.findall(r"(?m)^```toml\n(.*?)^```", text, re.S)
        self.config(file)
        base = ["--op", "conv2d", "-k", "3", "-s", "2", "-p", "same", *self.files]
        plan = self.plan(*base, "--config", "c.toml")
        self.assertEqual((plan["threads"], plan["memory_limit_bytes"], plan["filter_format"]),
                         (2, 2**30, "OIHW"))
        report = parse_report(self.run_here("verify", *base, "--config", "c.toml", "--json").out)
        self.assertEqual(report["attrs"]["filter_format"], "HWIO")
        self.assertIn("1 ULP", report["compare"]["criterion"])


class Refused(LayeringTest):
    def refuse(self, status, parts, *args, env=None):
        with self.subTest(args=args, env=env):
            result = self.run_here(*self.base, "-o", "dw.npy", *args, env=env)
            self.assert_one_error(result, status, *parts)
            self.assertNotIn("dw.npy", self.listing())

    def test_bad_variables_are_named(self):
        for name, word, status in (("THREADS", "abc", 2), ("THREADS", "99999", 2),
                                   ("DEVICE", "x", 2), ("MEMORY_LIMIT", "lots", 2),
                                   ("DRY_RUN", "maybe", 2), ("GROUPS", "x", 2),
                                   ("STRIDES", "2,x", 2), ("BACKEND", "gpu", 2),
                                   ("ALGORITHM", "magic", 2), ("OUT_DTYPE", "int4", 2),
                                   ("DATA_FORMAT", "NHW", 2), ("FILTER_FORMAT", "HW", 2),
                                   ("STRIDES", "0", 3), ("DILATIONS", "-1", 3)):
            self.refuse(status, [f"CONVGRAD_{name}"], env={f"CONVGRAD_{name}": word})

    def test_bad_values_in_a_file_are_named(self):
        for line in ('threads = "abc"', "threads = 99999", "threads = 1.5",
                     'memory-limit = "lots"', 'dry-run = "maybe"', "strides = [2, 0]",
                     'strides = "2,x"', 'backend = "gpu"'):
            self.config(line + "\n")
            result = self.run_here(*self.base, "-o", "dw.npy", "--config", "c.toml")
            with self.subTest(line):
                self.assertIn(result.status, (2, 3))
                self.assert_one_error(result, result.status, "c.toml", line.split(" ")[0])

    def test_unknown_keys_and_sections(self):
        for text, parts in (("thraeds = 2\n", ["'thraeds'", "did you mean 'threads'"]),
                            ("outdtype = 2\n", ["did you mean 'out-dtype'"]),
                            ("frobnicate = 2\n", ["'frobnicate'"]),
                            ("[verify]\nrtl = 2\n", ["rtl", "did you mean 'rtol'"]),
                            ("[verfy]\nrtol = 2\n", ["'verfy'", "did you mean 'verify'"]),
                            ("[verify.more]\nrtol = 2\n", ["more"]),
                            ("[inspect]\nthreads = 2\n", ["threads"]),
                            ("rtol = 2\n", ["rtol"])):
            self.config(text)
            self.refuse(3, ["c.toml", *parts], "--config", "c.toml")
        self.config("# lines are named\n\nthraeds = 2\n")
        self.refuse(3, ["c.toml, line 3: 'thraeds'"], "--config", "c.toml")
        self.config("# sections too\n[verfy]\nrtol = 2\n")
        self.refuse(3, ["c.toml, line 2: section 'verfy'"], "--config", "c.toml")

    def test_options_that_no_file_may_set(self):
        for key in ("json", "help", "version", "config"):
            self.config(f"{key} = true\n")
            with self.subTest(key):
                result = self.run_here(*self.base, "-o", "dw.npy", "--config", "c.toml")
                self.assert_one_error(result, 3, "c.toml", key)
                self.assertNotIn(f"did you mean '{key}'", result.err)

    def test_broken_toml(self):
        for text in ("this is not toml\n", "threads 2\n", "strides = [2, 1\n", "[verify\n",
                     "= 3\n", 'op = "conv2d\n', "threads = 2\nthreads = 3\n", "threads = \n",
                     b"\0\1\2\n", b"\x93NUMPY\1\0v\0{'descr'}", b"threads = 2\0\n", "<xml/>\n",
                     '{"threads": 2}\n'):
            self.config(text)
            self.refuse(3, ["c.toml"], "--config", "c.toml")

    def test_missing_files(self):
        self.refuse(3, ["none.toml", "No such file"], "--config", "none.toml")
        self.refuse(3, ["none.toml", "No such file"], env={"CONVGRAD_CONFIG": "none.toml"})
        (self.folder / "folder").mkdir()
        self.refuse(3, ["folder", "is a folder"], "--config", "folder")
        self.refuse(2, ["--config"], "--config", "")

    def test_empty_values(self):
        # An unset variable of a script must not turn a check off.
        for flag in ("--batch-range", "--filter-like", "--padding", "--algorithm", "--memory-limit", "--kernel"):
            self.refuse(2, [flag], flag, "")
        for flag in ("--result", "--golden", "--save-repro", "--criterion", "--save-diff"):
            with self.subTest(flag):
                result = self.run_here("verify", *self.base, flag, "")
                self.assert_one_error(result, 2, flag, "empty")
        self.config('algorithm = ""\n')
        self.refuse(2, ["algorithm", "empty"], "--config", "c.toml")

    def test_an_empty_file_is_no_error(self):
        for text in ("", "\n", "# a comment alone\n", "[verify]\n"):
            self.config(text)
            self.assert_quiet(self.run_here(*self.base, "-o", "dw.npy", "--config", "c.toml"))


class OtherCommands(LayeringTest):
    def test_variables_do_not_disturb_them(self):
        # They have no such options.
        env = {"CONVGRAD_THREADS": "2", "CONVGRAD_OP": "conv2d", "CONVGRAD_STRIDES": "2"}
        for args in (["info"], ["inspect", "x.npy"]):
            result = self.run_here(*args, env=env)
            self.assertEqual((result.status, result.err), (0, ""))

    def test_the_suites_own_variable_is_no_option(self):
        self.assert_quiet(self.run_here(*self.base, "-o", "dw.npy",
                                        env={"CONVGRAD_BINARY": "/x", "CONVGRAD_SOMETHING": "1"}))

    def test_no_file_is_read_by_itself(self):
        for name in ("convgrad.toml", ".convgrad.toml", "config.toml"):
            save(self.folder / name, [1.0])
        self.assert_quiet(self.run_here(*self.base, "-o", "dw.npy",
                                        env={"HOME": str(self.folder)}))


if __name__ == "__main__":
    unittest.main()
