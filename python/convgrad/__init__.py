"""convgrad from Python, on arrays of numpy, PyTorch, JAX, CuPy and TensorFlow: filter_gradient() computes, verify() judges,
generate() makes tensors, verify_function() tries a function on many, and run() calls the program with any arguments.

Nothing is imported before it is used: the command `convgrad` of a wheel begins here, too.
"""
import os
import sys

__all__ = ["Error", "Verdict", "filter_gradient", "generate", "run", "verify", "verify_function"]

_CARRIED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program", "bin", "convgrad")
_SET_PIPE_SIZE = 1031  # of Linux; fcntl has a name for it from Python 3.10 on


class Error(RuntimeError):
    """The program's message, one line, and its exit status: 2 usage, 3 bad input, 4 not available here, 5 failed
    while running; negative: the signal that ended it."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status


class Verdict:
    """What verify() found. It is true if the gradient matches, and str() of it is what the program prints.

    match: whether it matches
    bits: how many bits agree with the reference, inf if all do
    score: the errors over those that are allowed, above 1 where they are too large; None with another criterion than rounding
    reason: of a mismatch, "elements", "accuracy", "structure", "adders", "dtype" or "vacuous"; else None
    faults: the names of those that explain a mismatch
    report: everything, as docs/report.md says
    """

    def __init__(self, text, report):
        import math
        compare = report["compare"]
        error = float(compare["relative_error"])
        self.match = compare["verdict"] == "match"
        self.bits = math.inf if error == 0 else -math.log2(error) if error < 1 else 0.0
        self.score = float(compare["rounding"]["score"]) if "rounding" in compare else None
        self.reason = compare.get("reason")
        self.faults = [found["fault"] for found in compare.get("diagnosis", {}).get("findings", [])]
        self.report = report
        self._text = text

    def __bool__(self):
        return self.match

    def __str__(self):
        return self._text

    def __repr__(self):
        return f"<convgrad.Verdict {self._text.partition(os.linesep)[0]}>"


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

    A bfloat16 gradient is of ml_dtypes' type where that is installed, else raw 16 bits ("V2"). Raises Error.
    """
    import io
    import numpy as np
    arrays, dtype, words = _tensors("filter_gradient", x, dy, flags, {"output"})
    done = _run_on_pipes(arrays, [*words, "--output", "-"])
    try:
        return _typed(np.load(io.BytesIO(done.stdout)), flags.get("out_dtype", dtype))
    except (OSError, ValueError):  # dry_run, raw, ...
        raise TypeError(f"with {', '.join(sorted(flags))} convgrad writes no gradient as .npy; convgrad.run() takes them") from None


def verify(x, dy, dw, **flags):
    """Judges dw, a gradient that somebody computed of x and dy, against the reference. Returns a Verdict.

    dw: an array, or a list of those that several runs of one kernel gave. flags: the options of `convgrad verify` with underscores. What
    the program says calls the arrays x.npy, dy.npy and dw.npy (dw_1.npy, ...). Raises Error where there is no verdict.
    """
    import json
    arrays, _, words = _tensors("verify", x, dy, flags, {"output", "result", "json"})
    runs = list(dw) if isinstance(dw, (list, tuple)) else [dw]
    files = [(name, _file_name(name), array) for name, array in arrays.items()]
    for number, array in enumerate(runs, 1):
        files.append(("result", "dw.npy" if len(runs) == 1 else f"dw_{number}.npy", _numpy(array)[0]))
    with _folder(sum(array.nbytes for _, _, array in files)) as folder:
        for flag, name, array in files:
            path = os.path.join(folder, name)
            words += _flag(flag, path)
            _write(os.open(path, os.O_WRONLY | os.O_CREAT), array)
        report = f"--json={os.path.join(folder, 'report.json')}"
        try:
            text = run(["verify", *words, report]).stdout
        except Error as error:
            raise Error(str(error).replace(folder + os.sep, ""), error.status) from None
        with open(report.partition("=")[2], encoding="utf-8") as file:
            said = file.read()
    texts = [words.replace(f" {report}", "").replace(folder + os.sep, "") for words in (text, said)]
    return Verdict(texts[0].rstrip("\n"), json.loads(texts[1]))


def generate(**flags):
    """(x, dy, dw) that `convgrad generate` makes, the same for a seed everywhere; dw is the gradient as its dtype rounds it.

    flags: its options with underscores: generate(problem="conv2d n2 h9 w9 c8 k16 r3 s3 pad_same", dist="normal", seed=3).
    """
    import numpy as np
    if "output" in flags:
        raise TypeError("generate() takes no output; convgrad.run() does")
    with _folder(0) as folder:
        run(["generate", *_words(flags), "--output", folder])
        loaded = (np.load(os.path.join(folder, f"{name}.npy")) for name in ("input", "out_backprop", "gradient"))
        return tuple(_typed(array, "bfloat16") for array in loaded)


def verify_function(function, problem, dtypes=("float32",), data=None, layouts=None, seed=1, **flags):
    """Asserts that function(x, dy) returns the gradient of each kind of data, and leaves its arguments as they are.

    It gets copies, and a dy with random signs, by which all orders of summation are alike: see `convgrad verify --signs`. The
    AssertionError has the first verdict, as convgrad.testing.assert_filter_gradient, and a line of each other kind that fails.

    problem: a line such as "conv2d n2 h9 w9 c8 k16 r3 s3 pad_same", or several (docs/options.md), without a dtype. dtypes: words of such a line, as
    "bfloat16" or "float16->float32"; those that numpy lacks take ml_dtypes. data: some of the kinds "normal", "relu" (half of it zeros), "wide" (of 12 powers of two), "integers" (sums are exact)
    and "constant"; all without. layouts: data formats to try, each in place of the line's; the function gets it as its third argument.
    flags: further options of `convgrad verify`.
    """
    import numpy as np
    from . import testing
    kinds = {
        "normal": lambda a, _: a,
        "relu": lambda a, _: np.where(np.roll(a, 1) > 0, a, 0),
        "wide": lambda a, random: a * 2.0 ** random.integers(-12, 1, a.shape),
        "integers": lambda a, _: np.rint(2 * a),
        "constant": lambda a, _: np.full(a.shape, 1.5),
    }
    count, failures = 0, []
    for line in [problem] if isinstance(problem, str) else problem:
        for layout in layouts or [None]:
            op, *words = (word for word in line.split() if not layout or set(word) - set("NCDHW"))
            words = " ".join([layout, *words] if layout else words)
            made = generate(problem=f"{op} float64 {words}", dist="normal", seed=seed)[:2]
            for kind in data or kinds:
                random = np.random.default_rng(seed)
                tensors = [kinds[kind](tensor, random) for tensor in made]
                for dtype in dtypes:
                    stored = dtype.partition("->")[0].split("*")
                    x, dy = (tensor.astype(_dtype(name)) for tensor, name in zip(tensors, (stored[0], stored[-1])))
                    asked = f"{op} {dtype} {words}"
                    given = [x.copy(), _with_signs(dy, asked, seed)]
                    kept = [array.tobytes() for array in given]
                    dw = function(*given, layout) if layout else function(*given)
                    changed = [name for name, array, before in zip(("x", "dy"), given, kept) if array.tobytes() != before]
                    count += 1
                    try:
                        if changed:
                            raise AssertionError(f"{kind} data: the function changed {' and '.join(changed)}, which it may only read")
                        # One small problem is enough.
                        repro = {"save_repro": None} if failures else {}
                        testing.check(f"{kind} data: ", dw, x, dy, problem=asked, signs=seed, fail_vacuous=True, **flags | repro)
                    except AssertionError as failure:
                        failures.append((asked, str(failure)))
    if failures:
        others = [f"{said.splitlines()[0]} ({asked})" for asked, said in failures[1:]]
        raise AssertionError("\n".join([failures[0][1], f"{len(failures)} of {count} kinds of data fail", *others]))


def _with_signs(dy, problem, seed):
    """What `convgrad generate --signs` makes of dy."""
    import io
    import numpy as np
    array, dtype = _numpy(dy)
    words = ["generate", "--signs", seed, "--problem", problem, "--output", "-"]
    if array.dtype.itemsize == 1:  # the file cannot say which
        words += ["--dtype", dtype]
    return np.load(io.BytesIO(_run_on_pipes({"from": array}, words).stdout)).view(array.dtype)


def _tensors(caller, x, dy, flags, refused):
    """The arrays by their options, the type of x, and the words of the other flags."""
    import numpy as np
    if mine := sorted({"input", "out_backprop", *refused} & flags.keys()):
        raise TypeError(f"{caller}() takes no {mine[0]}; convgrad.run() does")
    arrays, dtypes = {}, {}
    for name, array in (("input", x), ("out_backprop", dy)):
        arrays[name], dtypes[name] = _numpy(array)
    words = _words({name: value for name, value in flags.items() if name != "filter_like"})
    like = flags.get("filter_like")
    if isinstance(like, (str, os.PathLike)):
        words += _flag("filter_like", like)
    elif like is not None:
        arrays["filter_like"] = np.zeros(np.shape(like), np.float32)  # only its shape counts
    for name, dtype in dtypes.items():
        if arrays[name].dtype.itemsize == 1 and dtype:  # the file cannot say which
            words += _flag(f"{name}_dtype", dtype)
    return arrays, dtypes["input"] or arrays["input"].dtype, words


def _numpy(array):
    """A numpy array in C order, and the name of its type if that is none of numpy's own. A tensor of PyTorch, CuPy, JAX or TensorFlow is copied from
    its device."""
    import numpy as np
    library, name = type(array).__module__.partition(".")[0], None
    if library == "torch":
        import torch
        array = array.detach().cpu()
        if array.dtype == torch.bfloat16 or array.element_size() == 1 and array.dtype.is_floating_point:
            name = str(array.dtype).partition(".")[2]
            array = array.view(torch.int16 if name == "bfloat16" else torch.uint8)
        array = array.numpy()
        array = array.view(f"V{array.itemsize}") if name else array
    elif library == "cupy":
        array = array.get()
    elif hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
        array = np.from_dlpack(array)
    array = np.asarray(array, order="C")
    return array, name or (array.dtype.name if array.dtype.isbuiltin == 2 else None)


def _run_on_pipes(arrays, words):
    """Runs convgrad on {option: array}; it reads them from pipes, which costs less than files."""
    import re
    import threading
    pipes = {name: os.pipe() for name in arrays}
    writers = [threading.Thread(target=_feed, args=(pipes[name][1], array)) for name, array in arrays.items()]
    for writer in writers:
        writer.start()
    readers = {name: read for name, (read, _) in pipes.items()}
    words = [*words, *(word for name, read in readers.items() for word in _flag(name, f"/dev/fd/{read}"))]
    try:
        return run(words, pass_fds=tuple(readers.values()), capture_output=True)
    except Error as error:
        said = str(error)
        for name, read in readers.items():
            said = re.sub(rf"/dev/fd/{read}\b", _file_name(name)[:-4], said)
        raise Error(said, error.status) from None
    finally:
        for read in readers.values():
            os.close(read)
        for writer in writers:
            writer.join()


def _feed(pipe, array):
    """Writes for a program that may have ended."""
    import fcntl
    try:
        fcntl.fcntl(pipe, _SET_PIPE_SIZE, 1 << 20)
    except OSError:  # more than this user may have
        pass
    try:
        _write(pipe, array)
    except BrokenPipeError:
        pass


def _write(descriptor, array):
    """Writes an array as .npy, and closes the descriptor."""
    import numpy as np
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        rest = array.reshape(-1).view(np.uint8).data
        while rest:
            rest = rest[file.write(rest):]


def _file_name(option):
    return {"input": "x.npy", "out_backprop": "dy.npy"}.get(option, f"{option}.npy")


def _words(flags):
    return [word for name, value in flags.items() for word in _flag(name, value)]


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
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * nbytes
    return tempfile.TemporaryDirectory(prefix="convgrad-", dir=memory if has_room else None)


def _dtype(name):
    import numpy as np
    if name.startswith(("bfloat", "float8")):
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def _typed(dw, dtype):
    """The gradient as it is, but for bfloat16, whose file has bits alone: as dtype, or as bits without ml_dtypes."""
    if dw.dtype.kind == "f":
        return dw
    if isinstance(dtype, str):
        try:
            dtype = _dtype("bfloat16")
        except ImportError:
            return dw
    return dw.view(dtype)
