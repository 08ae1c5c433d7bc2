"""convgrad from Python: run() calls the program, filter_gradient() takes and returns numpy arrays.

Nothing is imported before it is used: the command `convgrad` of a wheel begins here, too.
"""
import os
import sys

__all__ = ["Error", "filter_gradient", "run"]

_CARRIED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program", "bin", "convgrad")


class Error(RuntimeError):
    """The program's message, one line, and its exit status: 2 usage, 3 bad input, 4 not available here, 5 failed
    while running; negative: the signal that ended it."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status


def main():
    """The command `convgrad`: this process becomes the program."""
    if not os.path.exists(_CARRIED):
        sys.exit("convgrad: error: this Python package carries no program: install the wheel")
    os.execv(_CARRIED, ["convgrad", *sys.argv[1:]])


def _program():
    import shutil
    program = _CARRIED if os.path.exists(_CARRIED) else shutil.which("convgrad")
    if program is None:
        raise Error("convgrad is not on PATH, and this Python package carries no program: install the wheel", 4)
    return program


def run(arguments, **options):
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


def filter_gradient(x, dy, **flags):
    """The gradient of a convolution with respect to its filter, as a numpy array.

    x (input) and dy (out_backprop): arrays in the layout that data_format names, NHWC or NDHWC without. flags: the options
    of the command line with underscores, of which op and one that tells the filter's shape (kernel, filter_sizes)
    are needed (filter_like is an array, too, or a file):

        filter_gradient(x, dy, op="conv2d", kernel=3, strides=(2, 1), padding="same", filter_format="OIHW")

    Types of ml_dtypes are taken, and bfloat16 is returned as such; as raw 16 bits ("V2") it goes out as it came. Raises
    Error.
    """
    import numpy as np
    arrays = {"input": np.asarray(x), "out_backprop": np.asarray(dy)}
    if refused := sorted({*arrays, "output"} & flags.keys()):
        raise TypeError(f"filter_gradient() takes no {refused[0]}; convgrad.run() does")
    if not isinstance(flags.get("filter_like"), (str, os.PathLike, type(None))):
        arrays["filter_like"] = np.zeros(np.shape(flags.pop("filter_like")), np.float32)  # only its shape counts
    arguments = [word for name, value in flags.items() for word in _flag(name, value)]
    with _folder(2 * sum(array.nbytes for array in arrays.values())) as folder:
        for name, array in arrays.items():
            path = os.path.join(folder, f"{name}.npy")
            np.save(path, array)
            arguments += [f"--{name.replace('_', '-')}", path]
            if array.dtype.isbuiltin == 2 and array.dtype.itemsize == 1:  # ml_dtypes': the file cannot say which
                arguments += _flag(f"{name}_dtype", array.dtype)
        output = os.path.join(folder, "dw.npy")
        run([*arguments, "--output", output])
        try:
            return _typed(np.load(output), flags.get("out_dtype", arrays["input"].dtype))
        except (OSError, ValueError):  # dry_run, raw, ...
            raise TypeError(f"with {', '.join(sorted(flags))} convgrad writes no gradient as .npy; convgrad.run() takes them") from None


def _flag(name, value):
    """One option: its values with commas between, a True alone."""
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, (str, os.PathLike)):
        return [flag, os.fspath(value)]
    import numpy as np
    if name.endswith("dtype"):
        return [flag, np.dtype(value).name]
    return [flag, ",".join(map(str, np.ravel(value).tolist()))]


def _folder(nbytes):
    """A temporary folder, in memory where there is room."""
    import shutil
    import tempfile
    memory = "/dev/shm"
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > nbytes
    return tempfile.TemporaryDirectory(prefix="convgrad-", dir=memory if has_room else None)


def _typed(dw, dtype):
    """The gradient as it is, but for bfloat16, whose file has bits alone: as dtype, or as bits without ml_dtypes."""
    if dw.dtype.kind == "f":
        return dw
    if isinstance(dtype, str):
        try:
            from ml_dtypes import bfloat16 as dtype
        except ImportError:
            return dw
    return dw.view(dtype)
