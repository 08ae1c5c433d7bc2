#!/usr/bin/env python3
"""scripts/make_keywords.py PROGRAM - prints python/convgrad/_keywords.py: the functions of the Python package, whose keywords
are the options of PROGRAM's --help, so that the two cannot differ. tests/python/test_keywords.py says when to run it again:

    scripts/make_keywords.py build/release/convgrad > python/convgrad/_keywords.py
"""
import re
import subprocess
import sys
import textwrap

# What is a function's own, or means nothing without files and a terminal: convgrad.run() takes it.
LEFT_OUT = set("help input out_backprop output result json raw no_clobber clobber dry_run list_algorithms accumulate batch_range mpi "
               "quiet color version from".split())
TYPES = {"": "bool", "X": "float", "N": "int", "S": "int", "G": "int", "K": "int", "M": "int", "R,S": "Numbers", "SH,SW": "Numbers",
         "DH,DW": "Numbers", "N,H,W,C": "Numbers", "R,S,C,K|FILE": "Numbers", "B,A,...": "Numbers", "PADDING": "Numbers", "DTYPE": "DType",
         "FAULT,...": "str | Sequence[str]", "FILE": "Path", "SIZE": "int | str"}
OTHER_TYPES = {"diagnosis": 'Literal["off", "quick", "full"] | bool', "filter_like": "Array",
               "golden": "Array", "accumulated_on": "Array", "threads": "int"}
# Beside the program's names, PyTorch's.
TWINS = {"strides": "stride", "dilations": "dilation"}

HEAD = '''"""Written by scripts/make_keywords.py from the options of the program: change those, or it."""
from __future__ import annotations

from . import _calls

TYPE_CHECKING = False  # typing takes time to import, which the command of a wheel begins with
if TYPE_CHECKING:
    import os
    from typing import Any, Callable, Iterable, Literal, Sequence, Union

    import numpy as np

    from . import Verdict
    Array = Any  # of numpy, PyTorch, JAX, CuPy or TensorFlow, or one that has DLPack
    DType = Any  # a name, or what numpy.dtype() takes
    Numbers = Union[int, str, Sequence[Any], "NDArray"]
    Path = Union[str, "os.PathLike[str]"]
    NDArray = np.ndarray[Any, Any]

__tracebackhide__ = True  # pytest shows the test, not what follows
'''

LAYER = """layer: a Conv1d, Conv2d, Conv3d or ConvTranspose of PyTorch, or a convolution of Keras, instead of op, kernel, strides, padding,
    dilations and groups, and of the formats. x is what it reads and dy the gradient of what it writes, of transposed ones, too."""
JUDGED = """dw: an array, or a list of those that several runs of one kernel gave.
save: a folder that gets x, dy, dw and command.sh, which repeats the verdict, on a mismatch."""

FUNCTIONS = [
    ("filter_gradient", "", "x: Array, dy: Array", ["layer: Any = None"], "NDArray", {"Reporting"},
     """The gradient of a convolution with respect to its filter, as a numpy array. Raises convgrad.Error.

x (input) and dy (out_backprop): arrays in the layout that data_format names, NHWC or NDHWC without. op and one keyword that tells
    the filter's shape (kernel, filter_sizes, filter_like), or layer, are needed:

        filter_gradient(x, dy, op="conv2d", kernel=3, strides=(2, 1), padding="same", filter_format="OIHW")
""" + LAYER + """

A bfloat16 gradient is of ml_dtypes' type where that is installed, else raw 16 bits ("V2")."""),
    ("verify", "verify", "x: Array, dy: Array, dw: Array | Sequence[Array]", ["layer: Any = None", "save: Path | None = None"],
     "Verdict", set(),
     """Judges dw, a gradient that somebody computed of x and dy, against the reference. Raises convgrad.Error where there is no verdict.

x, dy: as in filter_gradient().
""" + JUDGED + "\n" + LAYER),
    ("assert_filter_gradient", "verify", "x: Array, dy: Array, dw: Array | Sequence[Array]",
     ["layer: Any = None", "save: Path | None = None"], "None", set(),
     """Raises an AssertionError with the verdict if dw is not the gradient of x and dy: see verify(), whose keywords it takes.

The order of earlier versions, dw, x, dy, is taken where only that fits: x and dy have as many images, and dw has the channels of
both or of one."""),
    ("generate", "generate", "", [], "tuple[NDArray, NDArray, NDArray]", {"Reporting", "signs"},
     """(x, dy, dw) that `convgrad generate` makes, the same for a seed everywhere; dw is the gradient as its dtype rounds it.

    generate(problem="conv2d n2 h9 w9 c8 k16 r3 s3 pad_same", dist="normal", seed=3)"""),
    ("verify_function", "verify", "function: Callable[..., Array], problem: str | Iterable[str] | dict[str, str], dtypes: Any = None,\n"
     "    data: str | Iterable[str] | None = None, layouts: str | Iterable[str] | None = None, seed: int = 1",
     ["save: Path | None = None"], "_calls.Tried", {"Operation", "Tensors", "golden", "update_golden", "accumulated_on", "beta", "fail_vacuous", "save_diff", "seed", "signs"},
     """Asserts that function(x, dy) returns the gradient, of its dtype, of each kind of data, and leaves its arguments as they are.

It gets copies, and a dy with random signs, by which all orders of summation are alike: see `convgrad verify --signs`. Returns what was
tried, which print() lists. The AssertionError has the first verdict that fails, and a line for each other.

problem: a line such as "conv2d n2 h9 w9 c8 k16 r3 s3 pad_same", or one of benchdnn or MIOpenDriver, or several.
dtypes: instead of the line's: "bfloat16", numpy.float16, "float16->float32", or several; those that numpy lacks take ml_dtypes.
data: some of the kinds "normal", "relu" (half of it zeros), "wide" (of 12 powers of two), "integers" (sums are exact) and "constant";
    all without.
layouts: data formats to try, each in place of the line's; the function gets it as its third argument.
save: a folder for x, dy and dw of the first that fails.
Further keywords are those of verify()."""),
]


def options_of(program, command):
    """[(heading, names, type, text)] of --help."""
    words = [program, *[command] * bool(command), "--help"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    heading, found = "", []
    for line in re.sub(r"(?m)^(  -\S+(?: \S+)?)\n +", r"\1  ", text).splitlines():
        if re.fullmatch(r"[A-Z][a-z ]+:", line):
            heading = line[:-1]
        if option := re.fullmatch(r"  (-\S+)(?: (\S+))?  +(.*)", line):
            names = [name[2:].replace("-", "_") for name in option[1].partition("[")[0].split(",") if name.startswith("--")]
            names = [name for name in names if not name.startswith("no_") or len(names) == 1]
            if names and not LEFT_OUT.intersection(names):
                found.append((heading, names, option[2] or "", option[3]))
    return sorted(found, key=lambda option: (option[0] == "Reporting", option[0] not in ("Problem", "Operation")))


def annotation(name, kind):
    if name in OTHER_TYPES:
        return OTHER_TYPES[name]
    if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", kind):
        return f"Literal[{', '.join(repr(word) for word in kind.split('|'))}]".replace("'", '"')
    return TYPES.get(kind, "str")


def wrapped(words, first, end):
    """Lines of as many words as fit, between parentheses."""
    return first + "\n" + "\n".join(textwrap.wrap(", ".join(words), 136, initial_indent="    ", subsequent_indent="    ",
                                                  break_long_words=False, break_on_hyphens=False)) + end


def function(program, name, command, positional, own, returns, left_out, text):
    options = [option for option in options_of(program, command) if not {option[0], *option[1]} & left_out]
    keywords, lines = list(own), []
    words = {"--" + name.replace("_", "-"): name for _, names, _, _ in options for name in names}
    for _, names, kind, said in options:
        said = re.sub(r"--[a-z-]+", lambda flag: words.get(flag[0], flag[0]), said)
        names += [TWINS[name] for name in names if name in TWINS]
        keywords += [f"{keyword}: {annotation(names[0], kind)} | None = None" for keyword in names]
        lines.append(f"{', '.join(names)}: {said}")
    if name in ("filter_gradient", "verify", "generate"):  # the others refer to these
        text += "\n\n" + "\n".join(lines)
    text = textwrap.indent(text.replace("\\", r"\\"), "    ").lstrip()
    nbsp = [keyword.replace(" ", "\0") for keyword in keywords]  # one is not broken
    head = wrapped([*filter(None, [positional.replace("\n    ", " ").replace(", ", ",\1").replace(" ", "\0").replace(",\1", ", ")]), "*", *nbsp],
                   f"def {name}(", f") -> {returns}:").replace("\0", " ")
    return f'{head}\n    """{text}\n    """\n    return _calls.{name}(**locals())\n'


def main():
    print("\n\n".join([HEAD, *(function(sys.argv[1], *row) for row in FUNCTIONS)]), end="")


if __name__ == "__main__":
    main()
