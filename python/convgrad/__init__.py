"""convgrad from Python, on arrays of numpy, PyTorch, JAX, CuPy and TensorFlow: filter_gradient() computes, verify() judges,
generate() makes tensors, verify_function() tries a function on many, and run() calls the program with any arguments.

Nothing is imported before it is used: the command `convgrad` of a wheel begins here, too.
"""
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any, Iterable

    from matplotlib.figure import Figure

__all__ = ["Error", "Verdict", "filter_gradient", "generate", "problems", "run", "verify", "verify_function"]
__version__: str  # of the program

__tracebackhide__ = True  # pytest shows the test, not what follows
_CARRIED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program", "bin", "convgrad")


class Error(RuntimeError):
    """The program's message, one line, and its exit status: 2 usage, 3 bad input, 4 not available here, 5 failed
    while running; negative: the signal that ended it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> Any:  # pools of processes pickle it
        return Error, (str(self), self.status)


class Verdict:
    """What verify() found. It is true if the gradient matches, and str() of it is what the program prints.

    match: whether it matches
    bits: how many bits agree with the reference, inf if all do
    score: the errors over those that are allowed, above 1 where they are too large; None with another criterion than rounding
    reason: of a mismatch, "elements", "accuracy", "structure", "adders", "dtype" or "vacuous"; else None
    faults: the names of those that explain a mismatch
    report: everything, as docs/report.md says
    """

    def __init__(self, text: str, report: dict[str, Any], difference: Any = None) -> None:
        import math
        compare = report["compare"]
        error = float(compare["relative_error"])
        self.match: bool = compare["verdict"] == "match"
        self.bits: float = math.inf if error == 0 else -math.log2(error) if error < 1 else 0.0
        self.score: float | None = float(compare["rounding"]["score"]) if "rounding" in compare else None
        self.reason: str | None = compare.get("reason")
        self.faults: list[str] = [found["fault"] for found in compare.get("diagnosis", {}).get("findings", [])]
        self.report = report
        self._text, self._difference = text, difference

    def plot(self) -> Figure:
        """Where the gradient is off, as a figure of matplotlib, in units of what --criterion rounding allows the mean of many elements."""
        import re
        from . import plot
        if self._difference is None:
            raise Error("there is no picture of several results or a sample, expected a verdict of one whole gradient", 2)
        compare = self.report["compare"]
        slack = re.search(r"<= ([\d.]+)\*g", compare["criterion"])
        allowed = float(slack[1]) * float(compare["rounding"]["scale"]) if slack else None
        return plot.diff(self._difference, self.report["attrs"]["filter_format"], allowed)

    def __bool__(self) -> bool:
        return self.match

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<convgrad.Verdict {self._text.partition(os.linesep)[0]}>"

    def _repr_html_(self) -> str:
        import html
        first, _, rest = html.escape(self._text).partition("\n")
        color = "green" if self.match else "firebrick"
        return f'<details><summary style="color: {color}">{first}</summary><pre>{rest}</pre></details>'


def main() -> None:
    """The command `convgrad`: this process becomes the program."""
    if not os.path.exists(_CARRIED):
        sys.exit("convgrad: error: this Python package carries no program: install the wheel")
    os.execv(_CARRIED, ["convgrad", *sys.argv[1:]])


def _program() -> str:
    import shutil
    program = _CARRIED if os.path.exists(_CARRIED) else shutil.which("convgrad")
    if program is None:
        raise Error("convgrad is not on PATH, and this Python package carries no program: install the wheel", 4)
    return program


def run(arguments: Iterable[Any], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Runs convgrad with these arguments: run(["compare", "a.npy", "b.npy"]).stdout.

    Returns a subprocess.CompletedProcess; its returncode is 0 (done, match) or 1 (mismatch). Raises Error where
    there is no verdict. options are those of subprocess.run; without any, stdout and stderr are captured as text.
    """
    import subprocess
    options = options or {"capture_output": True, "text": True}
    done = subprocess.run([_program(), *map(str, arguments)], check=False, **options)
    if done.returncode in (0, 1):
        return done
    said = done.stderr or ""
    said = (said.decode(errors="replace") if isinstance(said, bytes) else said).strip().split("\n")[-1]
    said = said.partition("convgrad: error: ")[2] or said
    raise Error(said or f"convgrad ended with status {done.returncode}", done.returncode)


def problems(suite: str | os.PathLike[str]) -> dict[str, str]:
    """{name: line} of a suite that is installed with the program, or of a file of such lines, for a test of each:

        layers = convgrad.problems("reference")
        @pytest.mark.parametrize("line", layers.values(), ids=layers)
    """
    import json
    import re
    known = {found["name"]: found["file"] for found in json.loads(run(["bench", "--list-suites", "--json"]).stdout)["suites"]}
    try:
        with open(known.get(str(suite), suite), encoding="utf-8") as file:
            lines = [" ".join(line.partition("#")[0].split()) for line in file]
    except OSError as error:
        raise Error(f"{suite}: {error.strerror}, expected a file or one of {', '.join(known)}", 3) from None
    named = re.compile(r"(?:(\S+) (?:\d+ )?)?((?:conv[123]d|depthwise) .*)")
    found = (named.fullmatch(line) or [line, line, line] for line in lines if line)
    return {match[1] or match[2]: match[2] for match in found}


def _lazily(name: str) -> Any:
    import importlib
    if name == "__version__":
        return run(["--version"]).stdout.split()[1]
    if name in ("plot", "testing"):
        return importlib.import_module(f"convgrad.{name}")
    raise AttributeError(f"module 'convgrad' has no attribute {name!r}")


if not TYPE_CHECKING:  # else any name would be one of the module's
    __getattr__ = _lazily

from ._keywords import filter_gradient, generate, verify, verify_function  # noqa: E402 - which take what is above
