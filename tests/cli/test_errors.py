"""Malformed jobs: one line, status 2 or 3, nothing written, never a crash. problem_test.cpp has what the validator refuses."""
import time

import numpy as np
from harness import CliTest, npy_bytes, raw_npy, save
from help_text import options_of

USAGE, INPUT = 2, 3


class ErrorTest(CliTest):
    """Every other case has an old output, which must stay; the rest must leave none."""
    has_old = False

    def ones(self, name, shape, dtype="float32"):
        save(self.folder / name, np.ones(shape), dtype)

    def job(self, **changes):
        """Flags of a sound job, with changes; None leaves one out. Writes its files."""
        for name, shape in (("x.npy", changes.pop("x", (2, 6, 7, 4))), ("dy.npy", changes.pop("dy", (2, 3, 4, 6)))):
            if shape is not None:
                self.ones(name, shape)
        flags = {"op": "conv2d", "i": "x.npy", "g": "dy.npy", "k": "3", "s": "2", "p": "same", **changes}
        args = []
        for name, value in flags.items():
            if value is not None:
                args += [("-" if len(name) == 1 else "--") + name.replace("_", "-"), str(value)]
        return args

    def refuse(self, status, parts, *args, output=True, **more):
        (self.folder / "dw.npy").unlink(missing_ok=True)
        if output:
            args = [*args, "-o", "dw.npy"]
            self.has_old = not self.has_old
            if self.has_old:
                self.write("dw.npy", b"an old gradient")
        begin = time.monotonic()
        self.refuses(status, parts, *args, timeout=20, **more)
        self.assertLess(time.monotonic() - begin, 5)


class Sound(ErrorTest):
    def test_the_job_that_is_spoiled_below(self):
        self.assert_quiet(self.run_here(*self.job(), "-o", "dw.npy"))


class Attributes(ErrorTest):
    """One of each kind; problem_test.cpp has every axis and bound."""

    def test_shapes_and_numbers(self):
        self.refuse(INPUT, ["--out-backprop", "dy.npy", "axis 2 (Q) is 5, expected 4"], *self.job(dy=(2, 3, 5, 6)))
        for flag, name in (("s", "--strides"), ("d", "--dilations"), ("k", "--kernel"), ("groups", "--groups")):
            for bad in (0, -(2**63), 10**30):
                self.refuse(INPUT, [name, str(bad)], *self.job(**{flag: bad}))

    def test_not_numbers(self):
        """test_attributes.py has lists that are none."""
        for word in ("abc", "1.5", "3x", "1e3", "0x3", "+-1", "1;2", "nan", "inf", "3,,x", "٣"):
            self.refuse(USAGE, ["--strides", "whole number"], *self.job(s=word))
        for flag, name in (("d", "--dilations"), ("k", "--kernel"), ("groups", "--groups")):
            self.refuse(USAGE, [name, "whole number"], *self.job(**{flag: "1.5"}))

    def test_empty_lists(self):
        for text in ("[]", " ", ",", "()"):
            self.refuse(USAGE, ["--strides", "empty"], *self.job(s=text))
        for flag, name in (("d", "--dilations"), ("k", "--kernel"), ("explicit_paddings", "--explicit-paddings")):
            self.refuse(USAGE, [name, "empty"], *self.job(**{flag: "[]"}))


class FilterSize(ErrorTest):
    def test_filter_size_files(self):
        """npy_test.cpp has what is no list of integers, filter_shape_test.cpp what is no filter's shape."""
        for data in (npy_bytes("float32", [3, 3, 4, 6]), raw_npy((0,), "'<i4'", b"")):
            self.write("sizes.npy", data)
            self.refuse(INPUT, ["sizes"], *self.job(k=None, filter_sizes="sizes.npy"))
        save(self.folder / "w.npy", np.zeros((3, 3, 4, 7)))
        self.refuse(INPUT, ["w.npy", "expected 6"], *self.job(k=None, filter_like="w.npy"))
        for flag in ("filter_sizes", "filter_like"):
            self.refuse(INPUT, ["none.npy", "No such file"], *self.job(k=None, **{flag: "none.npy"}))


class Names(ErrorTest):
    """Unknown words, each with the choices and, when it is close, a suggestion."""

    def test_enums(self):
        cases = (
            ("op", "", ["--op"]),
            ("p", "smae", ["--padding", "SAME, VALID, EXPLICIT, SAME_UPPER or SAME_LOWER", "did you mean 'SAME'"]),
            ("out_dtype", "float8", ["--out-dtype", "float16, bfloat16, float32 or float64", "did you mean 'float"]),
            ("a", "reference", ["--algorithm", "--backend reference"]),
            ("b", "cdua", ["--backend", "auto, cpu, cuda or reference", "did you mean 'cuda'"]),
        )
        for flag, word, parts in cases:
            self.refuse(USAGE, parts, *self.job(**{flag: word}))

    def test_unknown_flags(self):
        for flag, meant in (("--ouput", "--output"), ("--filter_size", "--filter-sizes"), ("--jsn", "--json")):
            for form in (f"{flag}=1", flag):
                spelled = f"'{flag.replace('_', '-')}'"
                self.refuse(USAGE, [spelled, f"did you mean '{meant}'", "--help"],
                            *self.job(), form)
        for flag in ("-x", "-1", "--frobnicate", "-Z5"):
            self.refuse(USAGE, [flag, "--help"], *self.job(), flag)
        # A flag of verify alone, in the compute command.
        self.refuse(USAGE, ["--rtol"], *self.job(), "--rtol", "1")

    def test_commands(self):
        for word, meant in (("Verify", "verify"), ("inf", "info")):
            self.refuse(USAGE, [f"'{word}'", f"did you mean '{meant}'", "--help"], word,
                        output=False)
            self.refuse(USAGE, [f"'{word}'", f"did you mean '{meant}'"], word,
                        *self.job())
        for words in (["frobnicate"], ["x.npy"], [*self.job(), "-o", "z.npy", "stray"], ["info", "stray"],
                      ["info", "--bogus"], ["inspect", "--bogus"]):
            self.refuse(USAGE, [words[-1]], *words, output=False)

    def test_missing_flags(self):
        self.refuse(USAGE, ["--op", "conv2d, depthwise, conv3d or conv1d", "--help"], output=False)
        for flag, name in (("op", "--op"), ("i", "--input"), ("g", "--out-backprop"),
                           ("p", "--padding")):
            self.refuse(USAGE, [name, "is missing"], *self.job(**{flag: None}))
        for said, *words in (("--output is missing", *self.job()), ("is missing", "verify"), ("no file", "inspect")):
            self.refuse(USAGE, [said], *words, output=False)

    def test_flags_without_their_value(self):
        for flags, takes in options_of(""):
            name = [flag for flag in flags if flag.startswith("--")][:1]
            for flag in flags if takes and "[" not in takes else ():
                self.refuse(USAGE, name, flag, output=False)
                # Before another flag, which must not be taken for the value.
                self.refuse(USAGE, name, *self.job(), flag, "--dry-run")

    def test_values_for_flags_that_take_none(self):
        for flag in ("--dry-run=maybe", "--accumulate=7.5", "--verbose=loud", "--no-clobber=x"):
            self.refuse(USAGE, [flag.split("=", maxsplit=1)[0]], *self.job(), flag)

    def test_numbers_of_execution_flags(self):
        for flag, words in (("--threads", ("-1", "x", "1.5", "5000", "9" * 30)),
                            ("--device", ("-1", "x", "1.5", "9" * 30)),
                            ("--memory-limit", ("x", "12XB", "MiB", "-5", "-1GiB", "1e400",
                                                "9" * 30, "99999999999999GiB", "nan"))):
            for word in words:
                self.refuse(USAGE, [flag, "expected"], *self.job(), flag, word)


class Files(ErrorTest):
    def test_output_is_checked_before_the_work(self):
        # A job of minutes must not end in an error that could be known at its start.
        save(self.folder / "big.npy", np.zeros((16, 64, 64, 64)))
        begin = time.monotonic()
        result = self.run_here("--op", "conv2d", "-i", "big.npy", "-g", "big.npy", "-k", 7, "-p",
                               "same", "-b", "reference", "-t", 1, "-o", "none/dw.npy")
        self.assert_one_error(result, INPUT, "none/dw.npy")
        self.assertLess(time.monotonic() - begin, 2)

    def test_names_with_odd_characters(self):
        self.ones("x.npy", (2, 6, 7, 3))
        for name in ("with space.npy", "quote'.npy", "new\nline.npy", "ünï.npy", "-dash.npy"):
            self.refuse(INPUT, ["No such file"], *self.job(x=None, i=f"./{name}"))
