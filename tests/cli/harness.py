"""What the command-line tests share: running convgrad, .npy files of any kind, the definition.

Needs only Python's standard library, numpy and, for the schema of reports, jsonschema. The gradient
is computed here from its definition, in float64, so that a test's expectation shares nothing with
the program.
"""
import contextlib
import copy
import io
import itertools
import json
import math
import os
import pathlib
import platform
import pty
import re
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

import numpy as np

try:
    import jsonschema
except ImportError:   # on machines that have no more than numpy; test_schema.py needs it
    jsonschema = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/report.schema.json").read_text())
VALIDATOR = jsonschema and jsonschema.Draft202012Validator(SCHEMA)
BINARY = os.environ.get("CONVGRAD_BINARY", str(ROOT / "build/release/convgrad"))
# A sanitizer takes terabytes of address space and its time: some limits mean nothing then.
THREAD_SANITIZED = b"__tsan_init" in pathlib.Path(BINARY).read_bytes()
SANITIZED = THREAD_SANITIZED or b"__asan_init" in pathlib.Path(BINARY).read_bytes()
DTYPES = ("float16", "bfloat16", "float32", "float64")
DESCR = {"float16": "<f2", "bfloat16": "<V2", "float32": "<f4", "float64": "<f8"}
OPS = ("conv2d", "depthwise", "conv3d")
PROCESSOR = os.environ.get("CONVGRAD_PROCESSOR", platform.machine())  # that it is compiled for
FLAGS = {"neon"} if PROCESSOR == "aarch64" else set(
    re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text() + "\nflags :",
              re.M).group(1).split())
# The table of kernels in its order, without what this processor cannot run.
ALGORITHMS = tuple(name for name, needs in (
    ("outer_product_avx512", {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"}),
    ("outer_product_avx2", {"avx2", "fma", "f16c"}), ("outer_product_neon", {"neon"}),
    ("im2col_gemm", set()), ("outer_product", set()), ("direct", set())) if needs <= FLAGS)
# Those and the ones that are for some problems only.
ALL_ALGORITHMS = (*ALGORITHMS, "streaming", *(
    ("streaming_neon",) if PROCESSOR == "aarch64" else
    ("streaming_avx512", "streaming_avx2", "outer_product_avx512_bf16", "outer_product_amx",
     "outer_product_amx_fp16", "outer_product_amx_bf16x3")))
ERROR = "convgrad: error: "
TIMEOUT_S = 600  # of what hangs: on busy or emulated processors and with sanitizers much takes minutes


def clean_environment(extra=None):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith("CONVGRAD_") and k != "OPENBLAS_CORETYPE"}
    env["LC_ALL"] = "C.UTF-8"
    for tool in ("ASAN", "UBSAN", "TSAN"):   # no status of convgrad's own
        env[f"{tool}_OPTIONS"] = env.get(f"{tool}_OPTIONS", "") + " exitcode=99"
    env.update(extra or {})
    return env


class Result:
    """What a finished run said. out and err are text; raw is stdout's bytes."""

    def __init__(self, args, status, raw, err):
        self.args, self.status, self.raw = args, status, raw
        self.err = err.decode("utf-8", "replace")

    @property
    def out(self):
        return self.raw.decode("utf-8", "replace")

    def __str__(self):
        out = self.out if len(self.raw) < 4000 else f"({len(self.raw)} bytes)"
        return f"convgrad {' '.join(map(str, self.args))}\n-> {self.status}\n{out}\n{self.err}"


def run(*args, cwd=None, stdin=b"", env=None, timeout=TIMEOUT_S, **more):
    """Runs convgrad to its end. stdin is bytes, or an open file."""
    given = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    stdout = more.pop("stdout", subprocess.PIPE)
    program = more.pop("program", BINARY)
    done = subprocess.run([program, *map(str, args)], cwd=cwd, env=clean_environment(env),
                          stdout=stdout, stderr=subprocess.PIPE, timeout=timeout,
                          check=False, **given, **more)
    return Result(args, done.returncode, done.stdout or b"", done.stderr)


def start(*args, cwd=None, env=None, **more):
    """Starts convgrad and returns the process."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([BINARY, *map(str, args)], cwd=cwd, env=clean_environment(env), **more)


def bash(line, folder, text=False):
    """What a shell does in a folder, where convgrad is this program."""
    return subprocess.run(["bash", "-c", f'convgrad() {{ "{BINARY}" "$@"; }}; {line}'], cwd=folder,
                          env=clean_environment(), capture_output=True, check=False, text=text, timeout=120)


def at_a_terminal(*args, cwd=None, env=None, stdout=None):
    """(status, what the terminal got) of a run whose stderr is one, and stdout unless it is given."""
    environment = {name: value for name, value in clean_environment(env).items() if value is not None}
    leader, follower = pty.openpty()
    with subprocess.Popen([BINARY, *map(str, args)], cwd=cwd, env=environment, stdin=subprocess.DEVNULL,
                          stdout=follower if stdout is None else stdout, stderr=follower) as process:
        os.close(follower)
        text = b""
        with contextlib.suppress(OSError):   # the terminal is gone with its last user
            while part := os.read(leader, 1 << 16):
                text += part
    os.close(leader)
    return process.returncode, text.decode().replace("\r\n", "\n")


def wait_until(condition, process):
    """Looks again and again; the process may not end before the condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < deadline, "what is waited for does not come"
        time.sleep(0.005)


def cpu_seconds(pid):
    """What a process has computed so far, whatever else the machine does."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def round_to(dtype, values):
    """Float64 values as an array that holds them in dtype; bfloat16 as its bits in uint16.

    bfloat16 goes through float32, so values must be exact there (integers below 2^24 are).
    """
    values = np.asarray(values, dtype=np.float64)
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return values.astype(DESCR[dtype])
    single = values.astype("<f4").reshape(-1)
    bits = single.view("<u4").astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(single), 0x7FC0, rounded).astype("<u2").reshape(values.shape)


def to_float64(dtype, stored):
    if dtype != "bfloat16":
        return np.asarray(stored, dtype=np.float64)
    bits = np.ascontiguousarray(stored).astype("<u4") << 16
    return bits.astype("<u4").view("<f4").astype(np.float64)


def kept(dtype, values):
    """What a file of that dtype keeps of values."""
    return to_float64(dtype, round_to(dtype, values))


def single(values):
    return np.asarray(values).astype("f4").astype("f8")


def tf32(values, how="even"):
    """even: half to even; away: half away from 0; cut: towards 0."""
    bits = np.asarray(values).astype("<f4").view("<u4")
    bits = bits + {"even": 0xFFF + (bits >> 13 & 1), "away": 0x1000, "cut": 0}[how]
    return (bits & 0xFFFFE000).astype("<u4").view("<f4").astype("f8")


def put(values, *places):
    """A copy of values, with others at some places: (index, value)."""
    values = values.copy()
    for index, value in places:
        values[index] = value
    return values


def off(values, *places):
    """A copy of values that is off at some places: (index, by how much)."""
    return put(values, *((index, values[index] + more) for index, more in places))


def npy_bytes(dtype, values, order="C"):
    """The bytes of a .npy file, exactly as numpy writes them (ml_dtypes' for bfloat16)."""
    stored = np.asarray(round_to(dtype, values), order=order)
    stream = io.BytesIO()
    np.save(stream, stored)
    data = stream.getvalue()
    return data.replace(b"'<u2'", b"'<V2'", 1) if dtype == "bfloat16" else data


def save(path, values, dtype="float32"):
    pathlib.Path(path).write_bytes(npy_bytes(dtype, values))
    return path


def header_bytes(dictionary, version=(1, 0)):
    """A .npy header around any text."""
    text = dictionary.encode("utf-8" if version[0] == 3 else "latin-1")
    prefix = 10 if version[0] == 1 else 12
    text += b" " * (-(prefix + len(text) + 1) % 64) + b"\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text


def raw_npy(shape, descr="'<f4'", payload=None, fortran=False, item=4, version=(1, 0)):
    """A .npy file whose header says whatever is asked for; the payload is zeros if not given."""
    dims = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': ({dims}), }}"
    return header_bytes(text, version) + (bytes(math.prod(shape) * item) if payload is None else payload)


def load(source):
    """(dtype name, float64 values) of a file or bytes that convgrad wrote."""
    data = source if isinstance(source, bytes) else pathlib.Path(source).read_bytes()
    array = np.load(io.BytesIO(data), allow_pickle=False)
    if array.dtype.kind == "V":
        return "bfloat16", to_float64("bfloat16", array.view("<u2"))
    return array.dtype.name, array.astype(np.float64)


def out_extent(extent, taps, stride, dilation, padding):
    """(out, before, after); padding is 'same', 'valid' or (before, after). out may be < 0."""
    reach = (taps - 1) * dilation + 1
    if padding == "same":
        out = -(-extent // stride)
        total = max((out - 1) * stride + reach - extent, 0) if out else 0
        return out, total // 2, total - total // 2
    before, after = (0, 0) if padding == "valid" else padding
    return (extent + before + after - reach) // stride + 1, before, after


def definition(x, dy, taps, strides, dilations, before, groups):
    """dw[*taps, C/groups, K] in float64 from x[N, *spatial, C] and dy[N, *spatial, K]."""
    rank = len(taps)
    c, k = x.shape[-1] // groups, dy.shape[-1] // groups
    dw = np.zeros((*taps, c, groups * k))
    for tap in itertools.product(*map(range, taps)):
        inside, seen = [], []
        for a in range(rank):
            position = np.arange(dy.shape[1 + a]) * strides[a] - before[a] + tap[a] * dilations[a]
            ok = (position >= 0) & (position < x.shape[1 + a])
            inside.append(np.nonzero(ok)[0])
            seen.append(position[ok])
        xs = x[np.ix_(range(x.shape[0]), *seen, range(x.shape[-1]))].reshape(-1, groups, c)
        dys = dy[np.ix_(range(dy.shape[0]), *inside, range(dy.shape[-1]))].reshape(-1, groups, k)
        with np.errstate(invalid="ignore"):
            dw[tap] = np.einsum("igc,igk->cgk", xs, dys).reshape(c, groups * k)
    return dw


class Problem:
    """One job: shapes, attributes, integer tensors, the flags and the right answer."""

    def __init__(self, op="conv2d", n=2, size=(7, 6), c=4, k=6, taps=(3, 2), strides=None,
                 dilations=None, padding="same", groups=None, last=True, seed=0):
        rank = len(taps)
        self.op, self.n, self.c, self.k, self.last = op, n, c, k, last
        self.size = tuple(size)
        self.taps = tuple(taps)
        self.strides = tuple(strides or (1,) * rank)
        self.dilations = tuple(dilations or (1,) * rank)
        self.padding = padding
        self.groups = groups if groups is not None else (c if op == "depthwise" else 1)
        per_axis = [padding] * rank if isinstance(padding, str) else padding
        extents = [out_extent(*axis) for axis in
                   zip(self.size, self.taps, self.strides, self.dilations, per_axis)]
        self.out = tuple(e[0] for e in extents)
        self.before = tuple(e[1] for e in extents)
        rng = np.random.default_rng(seed)
        self.x, self.dy = (rng.integers(-4, 5, (n, *extents, channels)).astype(np.float64) for extents, channels in
                           ((self.size, c), ((max(o, 0) for o in self.out), k)))

    def fill_normal(self, seed):
        """Normal numbers, which float32 holds, in the place of integers."""
        rng = np.random.default_rng(seed)
        for name in ("x", "dy"):
            setattr(self, name, single(rng.standard_normal(getattr(self, name).shape)))
        return self

    def but(self, **changes):
        """The same with other tensors or attributes."""
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    @property
    def data_format(self):
        axes = "DHW"[3 - len(self.taps):]
        return f"N{axes}C" if self.last else f"NC{axes}"

    def stored(self, tensor):
        """x or dy in the data format."""
        return tensor if self.last else np.moveaxis(tensor, -1, 1)

    def save(self, folder, dtype="float32", x="x.npy", dy="dy.npy"):
        save(pathlib.Path(folder) / x, self.stored(self.x), dtype)
        save(pathlib.Path(folder) / dy, self.stored(self.dy), dtype)

    def flags(self, filter_flags=None):
        """Everything but the files."""
        def numbers(values):
            return ",".join(map(str, values))

        flags = ["--op", self.op, "--data-format", self.data_format,
                 "--strides", numbers(self.strides), "--dilations", numbers(self.dilations)]
        if isinstance(self.padding, str):
            flags += ["--padding", self.padding]
        else:
            flags += ["--padding", "explicit", "--explicit-paddings",
                      numbers(itertools.chain(*self.padding))]
        if filter_flags is None:
            filter_flags = ["--kernel", numbers(self.taps)]
            if self.op != "depthwise":
                filter_flags += ["--groups", self.groups]
        return [*map(str, flags), *map(str, filter_flags)]

    def args(self, output="dw.npy", x="x.npy", dy="dy.npy", filter_flags=None):
        return ["-i", x, "-g", dy, "-o", output, *self.flags(filter_flags)]

    def job(self, **more):
        """A line of a manifest."""
        flags = self.flags()
        names = (flag.lstrip("-").replace("-", "_") for flag in flags[::2])
        return {**dict(zip(names, flags[1::2])), "input": "x.npy", "out_backprop": "dy.npy", **more}

    def grouped(self):
        """dw[*taps, C/groups, K]."""
        return definition(self.x, self.dy, self.taps, self.strides, self.dilations, self.before,
                          self.groups)

    def filter_format(self, form):
        """HWIO, OIHW or OHWI, as it is called for this op."""
        return form.replace("HW", "DHW") if self.op == "conv3d" else form

    def filter_sizes(self):
        """TensorFlow's filter_sizes."""
        if self.op == "depthwise":
            return (*self.taps, self.c, self.k // self.c)
        return (*self.taps, self.c // self.groups, self.k)

    def expected(self, filter_format="HWIO"):
        """The gradient in a filter format (without the D of 3-D)."""
        dw, rank = self.grouped(), len(self.taps)
        if filter_format == "HWIO":
            return dw.reshape(self.filter_sizes())
        axes = tuple(range(rank))
        order = (rank + 1, rank, *axes) if filter_format == "OIHW" else (rank + 1, *axes, rank)
        return np.ascontiguousarray(np.transpose(dw, order))


def small(op, last=True, **more):
    """A problem of each op with unequal strides, dilations and odd extents."""
    base = {
        "conv2d": dict(size=(7, 9), c=4, k=6, taps=(3, 2), strides=(2, 1), dilations=(1, 2),
                       groups=2),
        "depthwise": dict(size=(8, 7), c=3, k=6, taps=(2, 3), strides=(1, 2), dilations=(2, 1)),
        "conv3d": dict(size=(4, 5, 6), c=2, k=4, taps=(2, 3, 1), strides=(1, 2, 1),
                       dilations=(2, 1, 1)),
    }[op]
    return Problem(op, last=last, **{**base, **more})


def parse_report(text):
    """Strict JSON, without NaN and Infinity, in which the schema knows every field."""
    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    report = json.loads(text, parse_constant=refuse)
    if VALIDATOR:
        errors = [f"{list(error.path)}: {error.message}" for error in VALIDATOR.iter_errors(report)]
        assert not errors, errors
    return report


class CliTest(unittest.TestCase):
    """A test in a temporary folder of its own."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.mkdtemp(prefix="convgrad-cli-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.folder = pathlib.Path(folder)

    def run_here(self, *args, **more):
        return run(*args, cwd=self.folder, **more)

    def succeed(self, *args, status=0, **more):
        """Status 0, or a verdict's that is meant, and nothing on stderr."""
        result = self.run_here(*args, **more)
        self.assertEqual((result.status, result.err), (status, ""), str(result))
        return result

    def report(self, *args, status=0, **more):
        """What a run says with --json."""
        return parse_report(self.succeed(*args, "--json", status=status, **more).out)

    def bash(self, line, **more):
        return bash(line, self.folder, **more)

    def read(self, name):
        """The bytes of a file of the folder."""
        return (self.folder / name).read_bytes()

    def write(self, name, data):
        """A file of the folder, of bytes or text."""
        (self.folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return name

    def contents(self):
        """{name: bytes} of the folder, None of what is no file."""
        return {path.name: path.read_bytes() if path.is_file() else None for path in self.folder.iterdir()}

    def listing(self):
        return sorted(os.listdir(self.folder))

    def assert_quiet(self, result):
        """Status 0 and not a word."""
        self.assertEqual((result.status, result.raw, result.err), (0, b"", ""), str(result))

    def assert_one_error(self, result, status, *parts):
        """One line on stderr, nothing on stdout; each part (text, or a pattern) is in the line."""
        self.assertEqual(result.status, status, str(result))
        self.assertEqual(result.raw, b"", str(result))
        self.assertEqual(result.err.count("\n"), 1, str(result))
        self.assertTrue(result.err.endswith("\n"), str(result))
        self.assertTrue(result.err.startswith(ERROR), str(result))
        message = result.err[len(ERROR):].rstrip("\n")
        self.assertGreater(len(message), 10, str(result))
        self.assertLess(len(message), 500, str(result))
        self.assertNotRegex(message, r"[^\x20-\x7e\u00a0-\uffff]|\bstd::|terminate|1797693",
                            str(result))
        for part in parts:
            if isinstance(part, re.Pattern):
                self.assertRegex(message, part, str(result))
            else:
                self.assertIn(part, message, str(result))

    def refuses(self, status, parts, *args, **more):
        """One error with these parts, and every file as before."""
        before = self.contents()
        with self.subTest([*map(str, args)]):
            result = self.run_here(*args, **more)
            self.assert_one_error(result, status, *parts)
            after = self.contents()
            changed = [name for name in {*before, *after} if before.get(name, "") != after.get(name, "")]
            self.assertEqual(changed, [])
        return result

    def assert_computes(self, problem, dtype="float32", *extra, filter_format="HWIO"):
        """The gradient, byte for byte what numpy would write for the definition's values."""
        problem.save(self.folder, dtype)
        self.assert_quiet(self.run_here(*problem.args(), *extra))
        self.assertEqual(self.read("dw.npy"), npy_bytes(dtype, problem.expected(filter_format)))


class SmallTest(CliTest):
    """With a problem whose tensors are in files, and the bytes that its gradient must have."""

    def setUp(self):
        super().setUp()
        self.problem = small("conv2d")
        self.problem.save(self.folder)
        self.want = npy_bytes("float32", self.problem.expected())
