"""Layers with data of many kinds, and the ways of summing that tests/simulated_sums has: what measure_power.py and
measure_false_alarms.py share. Tensors are channels last, paddings explicit."""
import dataclasses
import json
import math
import pathlib
import subprocess

import numpy as np

import peers

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "release"
# Significant bits.
BITS = {"float64": 53, "float32": 24, "float16": 11, "tf32": 11, "bfloat16": 8}
NUMPY = {"float64": np.float64, "float32": np.float32, "float16": np.float16}


def rounded(values, dtype):
    """float64 of the nearest numbers of dtype."""
    values = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):
        if dtype in NUMPY:
            return values.astype(NUMPY[dtype]).astype(np.float64)
        fraction, exponent = np.frexp(values)  # bfloat16, TF32: float32's exponents
        bits = BITS[dtype] - np.maximum(0, -125 - exponent)
        nearest = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)
        return np.where(np.abs(nearest) >= 2.0**128, np.copysign(np.inf, nearest), nearest)


def save(path, values, dtype):
    """bfloat16 as ml_dtypes writes it. The values are numbers of dtype."""
    if dtype == "bfloat16":
        values = (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16).view("V2")
    np.save(path, np.ascontiguousarray(values, None if dtype == "bfloat16" else NUMPY[dtype]))


def load(path):
    """float64; bfloat16 too."""
    values = np.load(path)
    if values.dtype.kind == "V":
        values = (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


@dataclasses.dataclass
class Layer:
    op: str
    n: int
    extents: tuple  # of x: H, W, or D, H, W
    c: int
    k: int  # output channels; a multiple of c in depthwise
    taps: tuple
    strides: tuple
    dilations: tuple
    pads: tuple  # (before, after) of each axis
    groups: int = 1
    dtype: str = "float32"
    out: str = ""

    def __post_init__(self):
        self.out = self.out or self.dtype
        if self.op == "depthwise":
            self.groups = self.c
        self.outs = tuple((i + sum(p) - (t - 1) * d - 1) // s + 1 for i, p, t, d, s in
                          zip(self.extents, self.pads, self.taps, self.dilations, self.strides))
        self.x_shape, self.dy_shape = (self.n, *self.extents, self.c), (self.n, *self.outs, self.k)
        self.pixels = self.n * math.prod(self.outs)
        # As simulated_sums and TensorFlow have it: channels of a group, then all output channels.
        self.dw_shape = (*self.taps, self.c // self.groups, self.k)
        if self.op == "depthwise":
            self.dw_shape = (*self.taps, self.c, self.k // self.c)

    def __str__(self):
        def several(values):
            return "x".join(map(str, values))
        pads = ",".join(f"{a}:{b}" for a, b in self.pads)
        to = f"->{self.out}" if self.out != self.dtype else ""
        return (f"{self.op} {self.dtype}{to} n{self.n} {several(self.extents)} c{self.c} k{self.k} g{self.groups} "
                f"{several(self.taps)} s{several(self.strides)} d{several(self.dilations)} p{pads}")

    def attributes(self):
        """Taps, strides, dilations and paddings, as flags have them."""
        pads = [pad for pair in self.pads for pad in pair]
        return [",".join(map(str, values)) for values in (self.taps, self.strides, self.dilations, pads)]

    def flags(self):
        taps, strides, dilations, pads = self.attributes()
        groups = [] if self.op == "depthwise" else ["--groups", self.groups]
        return ["--op", self.op, "-k", taps, "-s", strides, "-d", dilations, "-p", "explicit", "--explicit-paddings", pads, *groups,
                "--out-dtype", self.out]

    def tap_inputs(self, x):
        """For each tap: its position, and what dy's pixels are multiplied with."""
        padded = np.pad(x, ((0, 0), *self.pads, (0, 0)))
        for tap in np.ndindex(*self.taps):
            at = tuple(slice(t * d, t * d + (o - 1) * s + 1, s)
                       for t, d, o, s in zip(tap, self.dilations, self.outs, self.strides))
            yield tap, padded[(slice(None), *at)]

    def gradient(self, x, dy):
        """In float64, as numpy sums it: for differences that a fault makes."""
        group_c, group_k = self.c // self.groups, self.k // self.groups
        y = dy.reshape(self.pixels, self.groups, group_k).transpose(1, 0, 2)
        dw = np.zeros((*self.taps, group_c, self.groups, group_k))
        for tap, seen in self.tap_inputs(x):
            by_group = seen.reshape(self.pixels, self.groups, group_c).transpose(1, 2, 0)
            dw[tap] = (by_group @ y).transpose(1, 0, 2)
        return dw.reshape(self.dw_shape)


# With many terms to an element: errors of long sums have a direction.
LAYERS = (
    Layer("conv2d", 128, (40, 40), 4, 6, (3, 2), (1, 1), (2, 1), ((2, 2), (0, 1))),
    Layer("conv2d", 90, (29, 31), 12, 8, (5, 3), (2, 2), (1, 1), ((2, 2), (1, 1)), groups=4),
    Layer("depthwise", 20, (46, 44), 10, 20, (5, 5), (1, 1), (1, 1), ((2, 2), (2, 2))),
    Layer("conv3d", 6, (9, 24, 22), 5, 6, (3, 3, 3), (1, 2, 1), (1, 1, 1), ((1, 1), (1, 1), (1, 1))),
)


# ---- Data ----------------------------------------------------------------------------------------

def half_negative(y, axis):
    """The second half of dy along an axis has the other sign."""
    y = abs(y)
    y[(slice(None),) * axis + (slice(y.shape[axis] // 2, None),)] *= -1
    return y


def signs(rng, *shape):
    return rng.choice([-1.0, 1.0], shape)


def cancelling(x, y, rng):
    half = len(x) // 2
    x[half:2 * half], y[half:2 * half] = x[:half], -y[:half]
    return x, y * (1 + 1e-6 * rng.standard_normal(y.shape))


def sorted_signs(y):
    y = abs(y)
    y.reshape(-1, y.shape[-1])[y.size // y.shape[-1] // 2:] *= -1
    return y


def checkered(y):
    return abs(y) * (1 - 2 * (np.indices(y.shape[1:-1]).sum(0) % 2))[None, ..., None]


def framed(y):
    """Nonzero at the borders of the images alone."""
    y = y.copy()
    y[(slice(None),) + (slice(1, -1),) * (y.ndim - 2)] = 0
    return y


def constant_halves(y):
    y = np.full(y.shape, 0.3)
    y[len(y) // 2:] = -0.7
    return y


def one_nonzero(y, rng):
    only = np.zeros_like(y)
    at = tuple(rng.integers(extent) for extent in y.shape[:-1])
    only[at] = y[at]
    return only


def spread(values, rng, axis, powers):
    """Every channel (axis -1) or image (axis 0) has a range of its own."""
    shape = [1] * values.ndim
    shape[axis] = values.shape[axis]
    return values * 10.0 ** rng.uniform(-powers, powers, shape)


def smooth(values, step, of=np.sin):
    return of(np.arange(values.size) * step).reshape(values.shape)


def in_turns(y, axis, run=1):
    """dy of one size, whose sign changes after each run of places along an axis: real and fake images, a stride of the next layer."""
    shape = [1] * y.ndim
    shape[axis] = y.shape[axis]
    return (1 + .3 * y) * (1 - 2 * (np.arange(y.shape[axis]) // run % 2)).reshape(shape)


def of_period(y, axis, *pattern):
    """Signs of threads or colours that are not a power of 2."""
    shape = [1] * y.ndim
    shape[axis] = y.shape[axis]
    return (1 + .3 * y) * np.resize(pattern, y.shape[axis]).reshape(shape)


def by_position(y, rng, *shape):
    """Each pixel of an image has one sign in all images, as a regression's target or a linear layer gives it."""
    return (1 + .3 * y) * signs(rng, 1, *shape)


def of_stride(y, rng):
    """Before a layer of stride 2: a pixel's sign depends on whether its row and column are even."""
    pattern = signs(rng, *[2] * (y.ndim - 2), y.shape[-1])
    return (1 + .3 * y) * pattern[tuple(np.indices(y.shape[1:-1]) % 2)]


def picture(x, rng):
    """Patches of 4x4 pixels that are nearly alike."""
    coarse = rng.standard_normal([extent if axis in (0, x.ndim - 1) else -(-extent // 4) for axis, extent in enumerate(x.shape)])
    for axis, extent in enumerate(x.shape[1:-1], 1):
        coarse = coarse.repeat(4, axis).take(range(extent), axis)
    return coarse + .3 * x


def activation(x, rng):
    return np.maximum(picture(x, rng) + .5, 0)


# kind: (x, dy) from normal numbers x, y; "powers" is how far exponents of 10 may go in the dtype.
KINDS = {
    "normal": lambda x, y, rng, powers: (x, y),
    "positive": lambda x, y, rng, powers: (rng.random(x.shape), rng.random(y.shape)),
    "relu": lambda x, y, rng, powers: (np.maximum(x, 0), y),
    "relu, positive": lambda x, y, rng, powers: (np.maximum(x, 0), abs(y)),
    "coherent": lambda x, y, rng, powers: (abs(x), abs(y) * signs(rng, len(y), *[1] * (y.ndim - 2), y.shape[-1])),
    "constant in an image": lambda x, y, rng, powers: (
        np.maximum(x, 0), np.broadcast_to(rng.standard_normal((len(y), *[1] * (y.ndim - 2), y.shape[-1])) / 7, y.shape)),
    "sorted": lambda x, y, rng, powers: (abs(x), sorted_signs(y)),
    "signs by column": lambda x, y, rng, powers: (abs(x), half_negative(y, y.ndim - 2)),
    "signs by row": lambda x, y, rng, powers: (abs(x), half_negative(y, y.ndim - 3)),
    "checkered": lambda x, y, rng, powers: (abs(x), checkered(y)),
    "lognormal": lambda x, y, rng, powers: (np.exp(2 * x - 2) * signs(rng, *x.shape), np.exp(2 * y - 3) * signs(rng, *y.shape)),
    "Cauchy": lambda x, y, rng, powers: (np.clip(rng.standard_cauchy(x.shape), -1e3, 1e3) / 16, y / 4),
    "outlier": lambda x, y, rng, powers: (x / 16, y + 1e3 * one_nonzero(np.ones_like(y), rng)),
    "90 % zeros": lambda x, y, rng, powers: (x * (rng.random(x.shape) < .1), y),
    "99 % zeros": lambda x, y, rng, powers: (x * (rng.random(x.shape) < .01), y),
    "both 90 % zeros": lambda x, y, rng, powers: (x * (rng.random(x.shape) < .1), y * (rng.random(y.shape) < .1)),
    "one pixel": lambda x, y, rng, powers: (x, one_nonzero(y, rng)),
    "channel ranges": lambda x, y, rng, powers: (spread(x, rng, -1, powers), spread(y, rng, -1, powers)),
    "image ranges": lambda x, y, rng, powers: (spread(x, rng, 0, powers / 2), spread(y, rng, 0, powers / 2)),
    "constant": lambda x, y, rng, powers: (np.full(x.shape, .1), np.full(y.shape, .1)),
    "constant halves": lambda x, y, rng, powers: (np.full(x.shape, .1), constant_halves(y)),
    "two values": lambda x, y, rng, powers: (rng.choice([.1, .3], x.shape), rng.choice([.1, -.7], y.shape)),
    "dy of ones": lambda x, y, rng, powers: (rng.random(x.shape), np.ones(y.shape)),
    "near one": lambda x, y, rng, powers: (1 + 1e-2 * x, 1 + 1e-2 * y),
    "integers": lambda x, y, rng, powers: (np.rint(2 * x), np.rint(2 * y)),
    "cancelling": lambda x, y, rng, powers: cancelling(x, y, rng),
    "border": lambda x, y, rng, powers: (x, framed(y)),
    "equal channels": lambda x, y, rng, powers: (np.broadcast_to(x[..., :1], x.shape), np.broadcast_to(y[..., :1], y.shape)),
    "sine": lambda x, y, rng, powers: (smooth(x, .01), smooth(y, .013, np.cos)),
    "ramp": lambda x, y, rng, powers: (np.linspace(-1, 1, x.size).reshape(x.shape), np.linspace(0, 1, y.size).reshape(y.shape)),
    "mean 3": lambda x, y, rng, powers: (x + 3, y + .1),
    "images in turns": lambda x, y, rng, powers: (activation(x, rng), in_turns(y, 0)),
    "pairs in turns": lambda x, y, rng, powers: (activation(x, rng), in_turns(y, 0, 2)),
    "planes in turns": lambda x, y, rng, powers: (activation(x, rng), in_turns(y, 1)),  # in 2-D, rows
    "rows in turns": lambda x, y, rng, powers: (activation(x, rng), in_turns(y, y.ndim - 3)),
    "columns in turns": lambda x, y, rng, powers: (activation(x, rng), in_turns(y, y.ndim - 2)),
    "runs of columns in turns": lambda x, y, rng, powers: (activation(x, rng), in_turns(y, y.ndim - 2, 4)),
    "images in threes": lambda x, y, rng, powers: (activation(x, rng), of_period(y, 0, 1, 1, -2)),
    "columns in threes": lambda x, y, rng, powers: (activation(x, rng), of_period(y, y.ndim - 2, 1, 1, -2)),
    "images in fives": lambda x, y, rng, powers: (activation(x, rng), of_period(y, 0, 1, -1, 1, 1, -2)),
    "halves of rows": lambda x, y, rng, powers: (activation(x, rng), half_negative(1 + .3 * y, y.ndim - 2)),
    "halves of images": lambda x, y, rng, powers: (activation(x, rng), half_negative(1 + .3 * y, y.ndim - 3)),
    "signs by image": lambda x, y, rng, powers: (activation(x, rng), (1 + .3 * y) * signs(rng, len(y), *[1] * (y.ndim - 1))),
    "signs by position": lambda x, y, rng, powers: (activation(x, rng), by_position(y, rng, *y.shape[1:-1], 1)),
    "signs by position, channel": lambda x, y, rng, powers: (activation(x, rng), by_position(y, rng, *y.shape[1:])),
    "signs by stride": lambda x, y, rng, powers: (activation(x, rng), of_stride(y, rng)),
    "tanh, signs by stride": lambda x, y, rng, powers: (np.tanh(picture(x, rng) + 1), of_stride(y, rng)),
    "smooth": lambda x, y, rng, powers: (picture(x, rng), picture(y, rng)),
    "raw pixels in turns": lambda x, y, rng, powers: (np.rint(np.clip(64 * picture(x, rng) + 128, 0, 255)), in_turns(y, 0) / 64),
    "coordinates": lambda x, y, rng, powers: (
        activation(x, rng), np.linspace(-1, 1, y.shape[-2])[:, None] + .1 * y + picture(y, rng) / 4),
    # Products below the smallest normal number of float32 (float64); float16: the inputs are.
    "subnormal": lambda x, y, rng, powers: (x * {1: 2e-6, 10: 1e-20, 100: 1e-155}[powers],
                                            y * {1: 1, 10: 1e-20, 100: 1e-155}[powers]),
    "some subnormal": lambda x, y, rng, powers: [values * 10.0 ** rng.uniform(-2 * powers, 0, values.shape) for values in (x, y)],
}


# ---- Captured tensors: a folder with a manifest of `convgrad batch` -------------------------------

CAPTURED = "problems.jsonl"


def keep(folder, name, layer, x, dy):
    """Adds a problem to a folder."""
    spatial = [extent for pair in layer.pads for extent in pair]
    entry = {"name": name, "op": layer.op, "input": f"{name}.x.npy", "out_backprop": f"{name}.dy.npy",
             "filter_sizes": layer.dw_shape, "strides": [1, *layer.strides, 1], "padding": "EXPLICIT",
             "explicit_paddings": [0, 0, *spatial, 0, 0], "dilations": [1, *layer.dilations, 1],
             "data_format": "NHWC" if len(layer.taps) == 2 else "NDHWC", "dtype": layer.dtype}
    save(folder / entry["input"], x, layer.dtype)
    save(folder / entry["out_backprop"], dy, layer.dtype)
    with open(folder / CAPTURED, "a") as file:
        file.write(json.dumps(entry) + "\n")


def captured(folder):
    """(name, layer, x, dy) of each problem of a folder, one after the other."""
    folder = pathlib.Path(folder)
    for line in (folder / CAPTURED).read_text().splitlines():
        entry = json.loads(line)
        x, dy = load(folder / entry["input"]), load(folder / entry["out_backprop"])
        pads = entry["explicit_paddings"][2:-2]
        taps, c = tuple(entry["filter_sizes"][:-2]), x.shape[-1]
        yield entry["name"], Layer(
            entry["op"], len(x), x.shape[1:-1], c, dy.shape[-1], taps, tuple(entry["strides"][1:-1]), tuple(entry["dilations"][1:-1]),
            tuple(zip(pads[::2], pads[1::2])), c // entry["filter_sizes"][-2], entry["dtype"]), x, dy


def make_data(kind, layer, rng):
    x, y = rng.standard_normal(layer.x_shape), rng.standard_normal(layer.dy_shape)
    powers = {"float16": 1, "float64": 100}.get(layer.dtype, 10)
    x, y = KINDS[kind](x, y, rng, powers)
    return rounded(x, layer.dtype), rounded(y, layer.dtype)


# ---- Programs ------------------------------------------------------------------------------------

class Judge:
    """Tensors, results and reports in a folder. With signs, a seed, what is judged runs on a dy with other signs (verify --signs)."""

    def __init__(self, folder, convgrad, threads=1, flags=(), signs=None):
        self.folder, self.convgrad, self.flags = pathlib.Path(folder), convgrad, ["-t", str(threads), *flags]
        self.signs = [] if signs is None else ["--signs", str(signs)]
        self.different = 0  # gradients that were judged; those of the same bits count once

    def put(self, layer, x, dy):
        """Returns the dy that sums are of, dy_s.npy."""
        self.layer = layer
        save(self.folder / "x.npy", x, layer.dtype)
        save(self.folder / "dy.npy", dy, layer.dtype)
        save(self.folder / "dy_s.npy", dy, layer.dtype)
        if self.signs:
            done = self.run(self.convgrad, "generate", "--from", "dy.npy", *self.signs, "-o", "dy_s.npy", "--clobber")
            if done.returncode:
                raise RuntimeError(f"{layer}: {done.stderr}")
        return load(self.folder / "dy_s.npy")

    def run(self, *words):
        return subprocess.run(list(map(str, words)), cwd=self.folder, capture_output=True, text=True, env=peers.environment())

    def sums(self, ways):
        """{way: gradient, not yet rounded to the output's dtype}"""
        done = self.run(BUILD / "tests" / "simulated_sums", "x.npy", "dy_s.npy", "sums.npy", ways, self.layer.op,
                        *self.layer.attributes(), self.layer.groups)
        if done.returncode:
            raise RuntimeError(f"{self.layer}: {done.stderr}")
        return dict(zip(done.stdout.splitlines(), np.load(self.folder / "sums.npy").astype(np.float64)))

    def computed(self, *flags, name="own.npy"):
        """The gradient that convgrad computes, or None where the algorithm does not compute it."""
        done = self.run(self.convgrad, "-i", "x.npy", "-g", "dy_s.npy", "-o", name, *self.layer.flags(), *self.flags, *flags)
        if done.returncode not in (0, 4):
            raise RuntimeError(f"{self.layer} {' '.join(flags)}: {done.stderr}")
        return load(self.folder / name) if done.returncode == 0 else None

    def scores(self, results, *flags):
        """{name: (score, group)} of {name: gradient}."""
        files, file_of = {}, {}
        for name, values in results.items():
            values = rounded(values, self.layer.out)
            file_of[name] = files.setdefault(values.tobytes(), f"result{len(files)}.npy")
            save(self.folder / file_of[name], values, self.layer.out)
        self.different += len(files)
        done = self.run(self.convgrad, "verify", "-i", "x.npy", "-g", "dy.npy", *self.layer.flags(), *self.flags, *self.signs, "--diagnosis", "off",
                        "--json=report.json", *flags, *(word for file in files.values() for word in ("--result", file)))
        if done.returncode > 1:
            raise RuntimeError(f"{self.layer}: status {done.returncode}: {done.stderr}")
        compare = json.loads((self.folder / "report.json").read_text())["compare"]
        of_file = {}
        for file, one in zip(files.values(), compare["results"] if len(files) > 1 else [compare], strict=True):
            rounding = one.get("rounding", {})
            score = float(rounding.get("score") or 0)  # "inf" is a word
            group = rounding.get("group") or {"kind": "-"}
            if one["verdict"] == "mismatch" and score <= 1:  # a NaN, an infinity, structure
                score, group = math.inf, {"kind": one.get("reason", "-")}
            of_file[file] = score, f"{group['kind']} {group['index']}" if "index" in group else group["kind"]
        return {name: of_file[file] for name, file in file_of.items()}
