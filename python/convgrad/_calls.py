"""What the functions of _keywords.py do: arrays become files or pipes, keywords the words of the command line."""
from __future__ import annotations

import os

import convgrad
from convgrad import Error

__tracebackhide__ = True
_SET_PIPE_SIZE = 1031  # of Linux; fcntl has a name for it from Python 3.10 on
_BY_LAYER = {"op", "kernel", "kernel_size", "filter_sizes", "filter_like", "strides", "padding", "explicit_paddings", "dilations", "groups",
             "problem"}
_FILES = {"filter_like", "golden", "accumulated_on", "save_diff"}


def _half(np, a, _):
    """Half of it, the first number among them: of few numbers none might be left."""
    kept = np.roll(a, 1) > 0
    kept.flat[:1] = True
    return np.where(kept, a, 0)


_KINDS = {
    "normal": lambda np, a, _: a,
    "relu": _half,
    "wide": lambda np, a, random: a * 2.0 ** random.integers(-12, 1, a.shape),
    "integers": lambda np, a, _: np.rint(2 * a),
    "constant": lambda np, a, _: np.full(a.shape, 1.5),
}


class Tried(list):  # type: ignore[type-arg]
    """What verify_function() tried and found right, a line each; print() lists them."""

    def __str__(self) -> str:
        return "\n".join([f"{len(self)} of {len(self)} kinds of data match", *self])


def _numpy_module():
    """numpy, which run() does without."""
    try:
        import numpy
    except ModuleNotFoundError:
        raise Error("numpy is missing: pip install numpy", 4) from None
    return numpy


def filter_gradient(x, dy, layer, **flags):
    import io
    np = _numpy_module()
    given = _given(flags)
    arrays, dtype, words = _tensors(x, dy, layer, given)
    done = _run_on_pipes(arrays, [*words, "--output", "-"])
    return _typed(np.load(io.BytesIO(done.stdout)), _dtype_name(given["out_dtype"]) if "out_dtype" in given else dtype)


def verify(x, dy, dw, layer, save, **flags):
    import json
    import re
    np = _numpy_module()
    given = _given(flags)
    wanted = {name: given.pop(name) for name in ("golden", "accumulated_on")
              if not isinstance(given.get(name, ""), (str, os.PathLike))}
    arrays, _, words = _tensors(x, dy, layer, given)
    runs = list(dw) if _is_runs(dw) else [dw]
    if not runs:
        raise Error("dw is an empty list, expected a gradient or some", 3)
    files = [(option, name, array) for option, (name, array) in arrays.items()]
    for name, array in wanted.items():
        files.append((name, name, _numpy(array, name)[0]))
    for number, array in enumerate(runs, 1):
        name = "dw" if len(runs) == 1 else f"dw_{number}"
        files.append(("result", name, _numpy(array, name)[0]))
    with _folder(2 * sum(array.nbytes for _, _, array in files)) as folder:
        told = [*words, *(word for option, name, _ in files for word in _flag(option, f"{name}.npy"))]
        for _, name, array in files:
            _write(os.open(os.path.join(folder, f"{name}.npy"), os.O_WRONLY | os.O_CREAT), array)
        difference = given.get("save_diff")
        if not difference and len(runs) == 1 and "sample" not in given:
            difference = os.path.join(folder, "difference.npy")
            words += ["--save-diff", difference]
        for option, name, _ in files:
            words += _flag(option, os.path.join(folder, f"{name}.npy"))
        report = os.path.join(folder, "report.json")
        escaped = re.escape(folder)
        in_folder = re.compile(rf"{escaped}/(\w+)\.npy")
        text = _run(["verify", *words, f"--json={report}"], lambda said: in_folder.sub(r"\1", said)).stdout
        with open(report, encoding="utf-8") as file:
            said = re.sub(rf" --save-diff {escaped}/difference.npy| --json={escaped}/report.json", "", file.read()).replace(folder + os.sep, "")
        drawn = np.load(difference) if difference and os.path.exists(difference) else None
    verdict = json.loads(said)
    repeat = "" if verdict["compare"]["verdict"] == "match" else "repeat: the same call with save=FOLDER keeps x, dy, dw and the command\n"
    if repeat and save is not None:
        _save(save, files, told)
        repeat = f"repeat: sh {os.path.join(os.path.abspath(save), 'command.sh')}\n"
    text = re.sub(r"(?m)^repeat: .*\n", lambda _: repeat, in_folder.sub(r"\1", text))
    text = re.sub(r"(?m)^next: .*", lambda line: _in_python(line[0]), text)
    return convgrad.Verdict(text.rstrip("\n"), verdict, drawn)


def _is_runs(dw):
    """Whether it is several arrays, and no array of nested lists."""
    return isinstance(dw, (list, tuple)) and not (dw and isinstance(dw[0], (list, tuple, int, float)))


def _save(folder, files, words):
    import shlex
    os.makedirs(folder, exist_ok=True)
    for _, name, array in files:
        _write(os.open(os.path.join(folder, f"{name}.npy"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), array)
    program = os.path.dirname(os.path.abspath(convgrad._program()))  # a wheel's environment may not be active
    command = " ".join(shlex.quote(str(word)) for word in ["convgrad", "verify", *words])
    with open(os.path.join(folder, "command.sh"), "w", encoding="utf-8") as file:
        file.write(f'PATH="$PATH":{shlex.quote(program)}\ncase $0 in */*) cd "${{0%/*}}" ;; esac\n{command}\n')


def assert_filter_gradient(x, dy, dw, **keywords):
    import warnings
    if not _fit(x, dy, dw, keywords) and _fit(dy, dw, x, keywords):
        warnings.warn("assert_filter_gradient(dw, x, dy) is now assert_filter_gradient(x, dy, dw)", DeprecationWarning, 3)
        x, dy, dw = dy, dw, x
    verdict = convgrad.verify(x, dy, dw, **keywords)
    if not verdict:
        raise AssertionError(str(verdict))


def _fit(x, dy, dw, keywords):
    """Whether the shapes can be those of x, dy and dw in this order."""
    np = _numpy_module()
    layout = str(keywords["data_format"] or "").upper()
    channels = (1,) if layout in ("NCHW", "NCDHW", "NCW", "CHANNELS_FIRST") else (-1,)
    if not layout and any(keywords[name] is not None for name in ("layer", "problem")):  # which may say either
        channels = (1, -1)
    try:
        of_x, of_dy, of_dw = (np.shape(array[0] if _is_runs(array) else array) for array in (x, dy, dw))
        return of_x[0] == of_dy[0] and len(of_x) == len(of_dy) and any(
            not {of_x[axis], of_dy[axis]}.isdisjoint(of_dw) for axis in channels)
    except (IndexError, TypeError, ValueError):
        return False


def generate(**flags):
    return _made(_given(flags))[0]


def _made(given):
    """(x, dy, dw), and the problem's line."""
    import json
    np = _numpy_module()
    with _folder(0) as folder:
        done = _run(["generate", *_words(given), "--json", "--output", folder])
        loaded = (np.load(os.path.join(folder, f"{name}.npy")) for name in ("input", "out_backprop", "gradient"))
        return tuple(_typed(array, "bfloat16") for array in loaded), json.loads(done.stdout)["attrs"]["line"]


def verify_function(function, problem, dtypes, data, layouts, seed, save, **flags):
    given, tried, failures, raised = _given(flags), Tried(), [], None
    kinds = _several(data) or list(_KINDS)
    if unknown := [kind for kind in kinds if kind not in _KINDS]:
        raise Error(f"data: {unknown[0]!r} is unknown, expected {', '.join(_KINDS)}", 2)
    lines = _several(problem)
    if not lines or not all(isinstance(line, str) for line in lines):
        raise Error(f"problem is {problem!r}, expected a line such as 'conv2d n2 h9 w9 c8 k16 r3 s3 pad_same', or several", 2)
    for line in lines:
        for layout in _several(layouts) or [None]:
            for asked, kind, x, dy, out in _data_of_line(line, layout, kinds, _several(dtypes), seed):
                tried.append(f"{asked}, {kind} data")
                dw, failure, error = _called(function, x, _with_signs(dy, asked, seed), layout)
                raised = raised or error
                if not failure:
                    try:  # the files of one failure are enough
                        verdict = convgrad.verify(x, dy, dw, problem=asked, signs=seed, out_dtype=out, fail_vacuous=True,
                                                  save=None if failures else save, **given)
                        repeat = {"data": kind, "layouts": layout, "seed": None if seed == 1 else seed, **given}
                        failure = "" if verdict else _with_call(str(verdict), function, asked, repeat if save is None else None)
                    except Error as error:
                        if error.status != 3:
                            raise
                        failure, raised = str(error), raised or error
                if failure:
                    first, _, more = failure.partition("\n")
                    failures.append(f"{first} ({tried[-1]})\n{more}".rstrip("\n"))
    if failures:
        others = [said.partition("\n")[0] for said in failures[1:]]
        raise AssertionError("\n".join([failures[0], f"{len(failures)} of {len(tried)} kinds of data fail", *others])) from raised
    return tried


def _data_of_line(line, layout, kinds, dtypes, seed):
    """(line, kind of data, x, dy, dtype of dw) for each kind and dtype."""
    np = _numpy_module()
    made, (op, _, *rest), own = _tensors_of_line(line, layout, seed)
    for kind in kinds:
        random = np.random.default_rng(seed)
        tensors = [_KINDS[kind](np, tensor, random) for tensor in made]
        for dtype in map(_dtype_name, dtypes or [own]):
            stored, _, out = dtype.partition("->")
            of_x, *_, of_dy = stored.split("*") * 2
            out = out or ("float32" if "float8" in stored else of_x if of_x == of_dy else None)
            yield " ".join([op, dtype, *rest]), kind, tensors[0].astype(_dtype(of_x)), tensors[1].astype(_dtype(of_dy)), out


def _called(function, x, dy, layout):
    """What the function returns of copies, what it did wrong, and what it raised."""
    given = {"x": x.copy(), "dy": dy}
    before = {name: array.tobytes() for name, array in given.items()}
    try:
        dw = function(*given.values(), layout) if layout else function(*given.values())
    except Exception as error:  # which may come of this kind of data alone
        return None, f"the function raised {type(error).__name__}: {error}", error
    changed = [name for name, array in given.items() if array.tobytes() != before[name]]
    if changed:
        return dw, f"the function changed {' and '.join(changed)}, which it may only read", None
    if dw is None or _is_runs(dw):
        return dw, f"the function returned {dw if dw is None else type(dw).__name__}, expected the gradient", None
    return dw, "", None


def _with_call(said, function, line, keywords):
    """A verdict that says how to repeat it, by a call where no files are kept."""
    import re
    if keywords is None:
        return said
    name = getattr(function, "__name__", "")
    words = "".join(f", {key}={value!r}" for key, value in keywords.items() if value is not None)
    call = f"repeat: convgrad.verify_function({name if name.isidentifier() else 'f'}, {line!r}{words})"
    return re.sub(r"(?m)^repeat: .*", lambda _: call, said)


def _tensors_of_line(line, layout, seed):
    """x and dy in float64, the words of the line as the program prints it, and its dtype."""
    import re
    words = line.split()
    own = [word for word in words if re.match(r"b?float\d", word)]
    rest = " ".join(word for word in words if word not in own)
    made, said = _made({"problem": rest, "dtype": "float64", "dist": "normal", "seed": seed, "data_format": layout})
    said = said.split()
    if not own:  # lines of other programs say it in their own way
        own = ["float32"] if words[0] == said[0] else [_made({"problem": line})[1].split()[1]]
    return made[:2], said, own[0]


def _with_signs(dy, problem, seed):
    """What `convgrad generate --signs` makes of dy."""
    import io
    np = _numpy_module()
    array, dtype = _numpy(dy, "dy")
    words = ["generate", "--signs", seed, "--problem", problem, "--output", "-"]
    if array.dtype.itemsize == 1:  # the file cannot say which
        words += ["--dtype", dtype]
    return np.load(io.BytesIO(_run_on_pipes({"from": ("dy", array)}, words).stdout)).view(array.dtype)


def _given(flags):
    """The keywords that were given, of two names of one option the program's."""
    given = {name: value for name, value in flags.items() if value is not None}
    types = {**convgrad.filter_gradient.__annotations__, **convgrad.verify.__annotations__, **convgrad.generate.__annotations__}
    for name, value in given.items():
        if isinstance(value, bool) and "bool" not in types[name]:
            raise TypeError(f"{name} is {value}, expected a value")
    for theirs, ours in (("stride", "strides"), ("dilation", "dilations")):
        if {theirs, ours} <= given.keys():
            raise TypeError(f"{theirs} and {ours} are both given, expected one of them")
        if theirs in given:
            given[ours] = given.pop(theirs)
    return given


def _tensors(x, dy, layer, given):
    """{option: (what the caller calls it, array)}, the type of x, and the words of the other options."""
    np = _numpy_module()
    options = ("input", "out_backprop")
    if layer is not None:
        if beside := sorted(_BY_LAYER & given.keys()):
            raise TypeError(f"{beside[0]} is given beside layer, which sets it")
        transposed, own = _of_layer(layer)
        given = {**own, **given}
        options = options[::-1] if transposed else options
    arrays, dtypes = {}, {}
    for option, name, array in zip(options, ("x", "dy"), (x, dy)):
        array, dtypes[option] = _numpy(array, name)
        arrays[option] = name, array
    words = _words({name: value for name, value in given.items() if name != "filter_like"})
    like = given.get("filter_like")
    if isinstance(like, (str, os.PathLike)):
        words += _flag("filter_like", like)
    elif like is not None:
        arrays["filter_like"] = "filter_like", np.zeros(np.shape(like), np.float32)  # only its shape counts
    for option, dtype in dtypes.items():
        if arrays[option][1].dtype.itemsize == 1 and dtype:  # the file cannot say which
            words += _flag(f"{option}_dtype", dtype)
    return arrays, dtypes["input"] or arrays["input"][1].dtype, words


def _of_layer(layer):
    """Whether a layer is transposed, whose x is a convolution's dy, and the options that it says."""
    kind = type(layer).__name__
    axes = len(getattr(layer, "kernel_size", ()))
    own = {"op": f"conv{axes}d", "groups": getattr(layer, "groups", 1), "padding": layer.padding} if 1 <= axes <= 3 else {}
    if own and hasattr(layer, "padding_mode"):  # of PyTorch
        if layer.padding_mode != "zeros":
            raise Error(f"layer: padding_mode is {layer.padding_mode!r}, expected 'zeros': pad x, and give op, kernel, ... instead of layer", 3)
        own.update(strides=layer.stride, dilations=layer.dilation, kernel=layer.kernel_size, data_format="channels_first",
                   filter_format=("OIW", "OIHW", "OIDHW")[axes - 1])
        if not isinstance(layer.padding, str):  # output_padding are pixels that only a transposed layer writes
            own.update(padding="explicit", explicit_paddings=[(pad, pad - more) for pad, more in zip(layer.padding, layer.output_padding)])
        return layer.transposed, own
    depthwise = hasattr(layer, "depth_multiplier")
    if own and hasattr(layer, "dilation_rate") and "Separable" not in kind and (axes == 2 or not depthwise):  # of Keras
        activation = getattr(layer.activation, "__name__", type(layer.activation).__name__)
        if layer.activation is not None and activation != "linear":
            raise Error(f"layer: its activation is {activation}, expected none: give op, kernel, ... instead of layer, and dy of the "
                        "convolution alone", 3)
        own.update(strides=layer.strides, dilations=layer.dilation_rate, kernel=layer.kernel_size, data_format=layer.data_format)
        if depthwise:
            own.update(op="depthwise", groups=None)
        if layer.padding == "causal":
            own.update(padding="explicit", explicit_paddings=[(layer.dilation_rate[0] * (layer.kernel_size[0] - 1), 0)])
        return "Transpose" in kind, own
    raise Error(f"layer is a {kind}, expected a Conv1d, Conv2d, Conv3d or ConvTranspose of PyTorch, or a convolution of Keras", 3)


def _numpy(array, name):
    """A numpy array in C order, and the name of its type if that is none of numpy's own. A tensor of PyTorch, CuPy, JAX or TensorFlow is
    copied from its device."""
    np = _numpy_module()
    libraries, dtype = {kind.__module__.partition(".")[0] for kind in type(array).__mro__}, None
    if array is None:
        raise Error(f"{name} is None: was backward() called?", 3)
    if isinstance(array, np.ma.MaskedArray):
        raise Error(f"{name} is a masked array: give {name}.filled(0) or {name}.data", 3)
    try:
        if "torch" in libraries:
            import torch
            if array.layout is not torch.strided or array.is_quantized:
                what = "quantized" if array.is_quantized else "sparse"
                raise Error(f"{name} is a {what} tensor: give {name}.{'dequantize' if array.is_quantized else 'to_dense'}()", 3)
            array = array.detach().cpu().resolve_conj().resolve_neg()
            if array.dtype == torch.bfloat16 or array.element_size() == 1 and array.dtype.is_floating_point:
                dtype = str(array.dtype).partition(".")[2]
                array = array.view(torch.int16 if dtype == "bfloat16" else torch.uint8)
            array = array.numpy()
            array = array.view(f"V{array.itemsize}") if dtype else array
        elif "cupy" in libraries:
            array = array.get()
        elif hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
            array = np.from_dlpack(array)
        found = np.asarray(array, order="C")
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, Error):
            raise
        raise Error(f"{name} is no array of numbers: {' '.join(str(error).split())}", 3) from None
    if found.dtype.hasobject:
        raise Error(f"{name} is no array of numbers, but of objects ({type(array).__name__}): give it as an array of float32, dense", 3)
    return found, dtype or (found.dtype.name if found.dtype.isbuiltin == 2 else None)


def _run(words, named=str, **options):
    """convgrad.run(), whose errors name arrays as `named` changes the text, and keywords instead of options."""
    import re
    try:
        return convgrad.run(words, **options)
    except Error as error:
        said = re.sub(r"--(?:input|out-backprop|result) \((\w+)\)", r"\1", named(str(error))).replace("-p '[[", "--padding '[[")
        said = said.replace("exchange --input and --out-backprop", "exchange x and dy")
        raise Error(_in_python(re.sub("; see [a-z ]*--help$", "", said)), error.status) from None


def _in_python(said):
    """What the program says, with keywords instead of options."""
    import re
    known = {**convgrad.verify.__kwdefaults__, **convgrad.generate.__kwdefaults__}
    return re.sub(r"--([a-z-]+)", lambda option: name if (name := option[1].replace("-", "_")) in known else option[0], said)


def _run_on_pipes(arrays, words):
    """Runs convgrad on {option: (name, array)}; it reads them from pipes, which costs less than files."""
    import re
    import threading
    pipes = {option: os.pipe() for option in arrays}
    writers = [threading.Thread(target=_feed, args=(pipes[option][1], array)) for option, (_, array) in arrays.items()]
    for writer in writers:
        writer.start()
    readers = {option: read for option, (read, _) in pipes.items()}
    words = [*words, *(word for option, read in readers.items() for word in _flag(option, f"/dev/fd/{read}"))]
    names = {str(read): arrays[option][0] for option, read in readers.items()}
    try:
        return _run(words, lambda said: re.sub(r"/dev/fd/(\d+)\b", lambda pipe: names.get(pipe[1], pipe[0]), said),
                    pass_fds=tuple(readers.values()), capture_output=True)
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
    np = _numpy_module()
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        rest = array.reshape(-1).view(np.uint8).data
        while rest:
            rest = rest[file.write(rest):]


def _words(given):
    return [word for name, value in given.items() for word in _flag(name, value)]


def _flag(name, value):
    """One option: its values with commas between, a True alone, a False as what turns it off."""
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return {"diagnosis": [flag, "off"], "use_cudnn_on_gpu": ["--no-use-cudnn-on-gpu"]}.get(name, []) if value is False else []
    if value is True:
        return [] if name == "diagnosis" else [flag]  # it is on
    if name in _FILES and isinstance(value, (str, os.PathLike)):
        return [flag, os.path.abspath(value)]  # command.sh runs elsewhere
    if name.endswith("dtype"):
        return [flag, _dtype_name(value)]
    if isinstance(value, (str, os.PathLike)):
        return [flag, os.fspath(value)]
    np = _numpy_module()
    return [flag, ",".join(map(str, np.ravel(value).tolist()))]


def _several(value):
    """What was given as one, as several or as a dict of them, as a list."""
    if value is None:
        return []
    value = value.values() if isinstance(value, dict) else value
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, (str, type)) else [value]


def _folder(nbytes):
    """A temporary folder, in memory where there is room."""
    import shutil
    import tempfile
    memory = "/dev/shm"
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > nbytes
    return tempfile.TemporaryDirectory(prefix="convgrad-", dir=memory if has_room else None)


def _dtype_name(dtype):
    """The name of a dtype of numpy, ml_dtypes, PyTorch, JAX or TensorFlow; a word of a line stays."""
    np = _numpy_module()
    name = dtype if isinstance(dtype, str) else str(dtype)[6:] if str(dtype).startswith("torch.") else getattr(dtype, "name", None)
    try:
        return name or np.dtype(dtype).name
    except TypeError:
        raise Error(f"{dtype!r} is no dtype, expected one of numpy, or a name such as 'bfloat16' or 'float16->float32'", 2) from None


def _dtype(name):
    np = _numpy_module()
    try:
        if name.startswith(("bfloat", "float8")):
            import ml_dtypes
            return np.dtype(getattr(ml_dtypes, name))
        if np.dtype(name).kind != "f":
            raise TypeError
        return np.dtype(name)
    except ImportError:
        raise Error(f"dtypes: {name} takes ml_dtypes, which is not installed: pip install ml_dtypes", 4) from None
    except (AttributeError, TypeError):
        raise Error(f"dtypes: {name!r} is unknown, expected float32, bfloat16, float8_e4m3fn, float16->float32, ...", 2) from None


def _typed(dw, dtype):
    """The gradient as it is, but for bfloat16, whose file has bits alone: as dtype, or as bits without ml_dtypes."""
    if dw.dtype.kind == "f":
        return dw
    if isinstance(dtype, str):
        try:
            dtype = _dtype("bfloat16")
        except Error:
            return dw
    return dw.view(dtype)
