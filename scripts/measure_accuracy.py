#!/usr/bin/env python3
"""Measures the error of convgrad's, TensorFlow's and PyTorch's filter gradients over many terms, on the CPU.

    python3 scripts/measure_accuracy.py --tensorflow-python tf/bin/python --torch-python torch/bin/python

Prints the tables of docs/measurements/accuracy.md. Needs Python 3.11 and numpy 1.24; either peer may be left out. Exit status: 1 if
the error of convgrad's sums is not within the bound of docs/numerics.md or not flat in the batch (its rms more than
doubles from the smallest to the largest), 2 if something did not run.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import numpy as np

import peers
from check_testdata import DTYPES, UNIT_ROUNDOFF
from measure_support import PEERS, gradients_by, to_dtype

CHUNK = 512        # pixels that convgrad sums in float32, at most ...
LONG_CHUNK = 4096  # ... of 16-bit data
SHARE = 4          # a peer's error should be this many times convgrad's
GROWTH = 2         # of the sums' rms from the smallest to the largest batch: more is not flat
BLOCK = 2**16      # pixels that are made at a time
PIECE = 2**12      # pixels in one matrix product of the reference: the fewer, the more exact
KEEP = 2**28       # bytes of tensors after which a peer's process is ended: it keeps the memory of the largest
DID_NOT_RUN = 2


@dataclasses.dataclass(frozen=True)
class Layer:
    """Stride 1 and padding SAME, so that the terms are the pixels of the batch. Few channels: many pixels fit."""
    kernel: int
    image: int
    inputs: int
    outputs: int

    def __str__(self):
        return f"{self.kernel}x{self.kernel}, {self.image}x{self.image}, {self.inputs} → {self.outputs}"

    def batch(self, terms):
        return round(terms / self.image**2)

    def bytes(self, terms, dtype):
        return self.batch(terms) * self.image**2 * (self.inputs + self.outputs) * np.dtype(DTYPES[dtype]).itemsize


LAYERS = (Layer(3, 32, 2, 2), Layer(3, 224, 2, 2), Layer(1, 1000, 2, 2), Layer(3, 56, 16, 16), Layer(1, 56, 16, 16),
          Layer(3, 56, 64, 64))
DATA = {"normal": "normal(0, 1)", "uniform": "uniform [0, 1]", "repeated": "one normal(0, 1) image N times",
        "rectified": "x normal(0, 1), 0 where negative, dy normal(0, 1)", "wide": "normal(0, 1) times 2^a, a uniform in [-14, 14]"}


# ---- Tensors and their exact gradient ------------------------------------------------------------

class Pixels:
    """Random images in order: a batch is the beginning of every larger batch of the same layer and data."""

    def __init__(self, data, dtype, image, channels, seed, is_x):
        self.data, self.dtype, self.shape, self.is_x = data, dtype, (image, image, channels), is_x
        self.rng = np.random.default_rng(seed)
        self.kept = None

    def draw(self, count):
        make = self.rng.random if self.data == "uniform" else self.rng.standard_normal
        values = make((count, *self.shape), np.float64 if self.dtype == "float64" else np.float32)
        if self.data == "rectified" and self.is_x:
            values = np.maximum(values, 0)
        if self.data == "wide":
            values = np.ldexp(values, self.rng.integers(-14, 15, values.shape))
        # float16 ends at 65504; a power of two in both tensors changes no rounding of the sums.
        return to_dtype(values / 64 if self.dtype == "float16" else values, self.dtype)

    def next(self, count):
        if self.data != "repeated":
            return self.draw(count)
        self.kept = self.draw(1) if self.kept is None else self.kept
        return np.broadcast_to(self.kept, (count, *self.shape))


def wide(array, dtype):
    """Exact, in the precision of the reference's sums: long double for float64 data."""
    if dtype == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.longdouble if dtype == "float64" else np.float64)


def product(a, b):
    return sum(a[first:first + PIECE].T @ b[first:first + PIECE] for first in range(0, len(a), PIECE))


def products(kernel, x, dy):
    """The sums of a block, tap by tap."""
    count, height, width, _ = dy.shape
    edge = kernel // 2
    x = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    dy = dy.reshape(-1, dy.shape[-1])
    return np.stack([[product(x[:, r:r + height, s:s + width].reshape(-1, x.shape[-1]), dy) for s in range(kernel)]
                     for r in range(kernel)])


def open_npy(path, dtype, shape):
    file = open(path, "wb")
    np.lib.format.write_array_header_1_0(file, {"descr": "<" + DTYPES[dtype], "fortran_order": False, "shape": shape})
    return file


def make_tensors(folder, layer, data, dtype, batch):
    """Writes x.npy and dy.npy; returns the exact gradient and sum |x||dy|, summed in blocks."""
    sources = [Pixels(data, dtype, layer.image, channels, [seed, layer.kernel, layer.image], seed == 1)
               for seed, channels in ((1, layer.inputs), (2, layer.outputs))]
    sums, magnitudes, block = 0, 0, max(1, BLOCK // layer.image**2)
    with open_npy(folder / "x.npy", dtype, (batch, *sources[0].shape)) as x_file, \
            open_npy(folder / "dy.npy", dtype, (batch, *sources[1].shape)) as dy_file:
        for first in range(0, batch, block):
            count = min(block, batch - first)
            x, dy = (source.next(count) for source in sources)
            x.tofile(x_file)
            dy.tofile(dy_file)
            if data == "repeated":
                if first > 0:
                    continue
                count, x, dy = 1, x[:1], dy[:1]
            x, dy = wide(x, dtype), wide(dy, dtype)
            part = products(layer.kernel, x, dy)
            sums = sums + part
            magnitudes = magnitudes + (part if data == "uniform" else products(layer.kernel, abs(x), abs(dy)))
    times = batch if data == "repeated" else 1
    return sums * times, magnitudes * times


# ---- convgrad and its peers ----------------------------------------------------------------------

def stop(message):
    print(f"measure_accuracy: {message}", file=sys.stderr)
    sys.exit(DID_NOT_RUN)


def load(path, dtype):
    array = np.load(path)
    return wide(array.view(np.uint16) if array.dtype.kind == "V" else array, dtype)


def run_convgrad(options, folder, layer, dtype, out_dtype):
    out = folder / "dw.npy"
    command = [str(options.convgrad), "--op", "conv2d", "-i", str(folder / "x.npy"), "-g", str(folder / "dy.npy"),
               "-o", str(out), "-k", str(layer.kernel), "-p", "same", "-t", str(options.threads),
               "-a", options.algorithm, "--out-dtype", out_dtype, f"--json={folder / 'report.json'}"]
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        stop(f"{options.convgrad}: {error.strerror}")
    if done.returncode != 0:
        stop(f"{' '.join(command)}: {done.stderr.strip()}")
    return load(out, out_dtype), json.loads((folder / "report.json").read_text())


class Peer:
    def __init__(self, name, python, threads, folder):
        kind, variables = PEERS[name]
        self.name, self.folder = name, folder
        self.worker = peers.Worker(__file__, kind, python, threads, variables | {"OMP_NUM_THREADS": str(threads)},
                                   silence_s=None)

    def run(self, problem):
        """Returns the gradient, or None and why there is none."""
        answer = self.worker.ask(problem | {"folder": str(self.folder)})
        if "how" not in answer:
            return load(self.folder / "dw.npy", problem["dtype"]), ""
        return None, "refuses: " + next(iter(answer["error"].splitlines()), "") if answer["how"] == "refuses" else "aborts"


def problem_of(layer, dtype):
    """In the fields of golden.jsonl, which measure_support.py's functions take."""
    return {"op": "conv2d", "dtype": dtype, "data_format": "NHWC", "padding": "SAME",
            "filter_sizes": [layer.kernel, layer.kernel, layer.inputs, layer.outputs],
            "strides": [1] * 4, "dilations": [1] * 4, "explicit_paddings": []}


# ---- Measuring -----------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Error:
    """Of |error| / sum |x||dy| over the elements, in unit roundoffs of the sums (2^-24, float64: 2^-53)."""
    max: float
    rms: float

    @staticmethod
    def of(got, exact, magnitudes, unit):
        with np.errstate(invalid="ignore"):
            ratio = abs(got - exact) / magnitudes / unit
        ratio = np.where(np.isnan(ratio), np.inf, ratio).astype(np.float64)
        return Error(float(ratio.max()), float(np.sqrt(np.mean(ratio**2))))

    def __str__(self):
        return f"{short(self.max)} / {short(self.rms)}"


def short(value):
    return f"{value:.2g}" if value < 99.5 else f"{value:,.0f}"


@dataclasses.dataclass
class Row:
    layer: Layer
    data: str
    dtype: str
    batch: int
    sums: Error
    result: Error
    peers: dict

    @property
    def terms(self):
        return self.batch * self.layer.image**2

    def bound(self):
        """docs/numerics.md, without the rounding of the result: the sums that convgrad's accumulator makes."""
        chunk = {"float64": self.terms, "float32": CHUNK}.get(self.dtype, LONG_CHUNK)
        return 4 * np.sqrt(min(self.terms, chunk))

    def ratios(self, name):
        """Of the peer's largest and rms error to convgrad's, both of them rounded to the same dtype."""
        peer = self.peers[name]
        if isinstance(peer, str):
            return None
        return tuple(theirs / ours if ours else np.inf
                     for theirs, ours in ((peer.max, self.result.max), (peer.rms, self.result.rms)))

    def cell(self, name):
        ratios = self.ratios(name)
        return f"{self.peers[name]} (×{short(ratios[0])} / ×{short(ratios[1])})" if ratios else self.peers[name]


def measure(options, folder, measured, layer, data, dtype, batch):
    exact, magnitudes = make_tensors(folder, layer, data, dtype, batch)
    unit = 2.0**-53 if dtype == "float64" else 2.0**-24

    def error(got):
        return Error.of(got, exact, magnitudes, unit)

    sums, _ = run_convgrad(options, folder, layer, dtype, "float64")
    result, report = run_convgrad(options, folder, layer, dtype, dtype)
    found = {}
    for peer in measured:
        got, why = peer.run(problem_of(layer, dtype))
        found[peer.name] = why if got is None else error(got)
        if layer.bytes(batch * layer.image**2, dtype) > KEEP:
            peer.worker.end()
    row = Row(layer, data, dtype, batch, error(sums), error(result), found)
    print(f"{layer}, {data}, {dtype}, N {batch}: done", file=sys.stderr, flush=True)
    return row, report


def measure_all(options, folder, measured):
    rows, reports = [], []
    for dtype in options.dtype:
        for layer in LAYERS:
            sizes = sorted({layer.batch(t) for t in options.terms
                            if layer.batch(t) and layer.bytes(t, dtype) <= options.max_gib * 2**30})
            for data in options.data:
                for batch in sizes:
                    row, report = measure(options, folder, measured, layer, data, dtype, batch)
                    rows.append(row)
                    reports.append(report)
    return rows, reports


# ---- Tables and verdict --------------------------------------------------------------------------

def families(rows):
    """The rows that differ in the batch alone."""
    seen = {}
    for row in rows:
        seen.setdefault((row.dtype, str(row.layer), row.data), []).append(row)
    return seen


def magnitude(terms):
    """The power of ten that a number of terms is listed under."""
    return f"10^{np.log10(terms):.1f}".replace(".0", "")


def print_row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |")


def print_heads(words, numbers):
    print_row(*words, *numbers)
    print_row(*["---"] * len(words), *["---:"] * len(numbers))


def print_errors(rows, titles):
    for dtype in dict.fromkeys(row.dtype for row in rows):
        unit = "2^-53" if dtype == "float64" else "2^-24"
        print(f"\n### {dtype}: max / rms of the error, unit {unit} (× convgrad's result)\n")
        print_heads(("layer", "data"), ("N", "terms", "convgrad's sums", "convgrad's result", *titles.values()))
        for row in (row for row in rows if row.dtype == dtype):
            print_row(row.layer, row.data, row.batch, f"{row.terms:.1e}", row.sums, row.result,
                      *(row.cell(name) for name in titles))


def print_ratios(rows, titles):
    """Over the layers, by terms and data."""
    print(f"\n### rms error / convgrad's: least to largest over the layers (how many reach {SHARE})\n")
    print_heads(("dtype", "data", "terms"), titles.values())
    groups = {}
    for row in rows:
        groups.setdefault((row.dtype, row.data, magnitude(row.terms)), []).append(row)
    for key, members in groups.items():
        cells = []
        for name in titles:
            found = sorted(row.ratios(name)[1] for row in members if row.ratios(name))
            cells.append(f"{short(found[0])} to {short(found[-1])} ({sum(r >= SHARE for r in found)} of {len(found)})"
                         if found else "–")
        print_row(*key, *cells)


def print_growth(rows, titles):
    print("\n### rms error of the largest batch / of the smallest\n")
    print_heads(("dtype", "layer", "data", "N"), ("convgrad's sums", "convgrad's result", *titles.values()))
    for (dtype, layer, data), members in families(rows).items():
        first, last = members[0], members[-1]
        if first is last:
            continue
        pairs = [(first.sums, last.sums), (first.result, last.result)]
        pairs += [(first.peers[name], last.peers[name]) for name in titles]
        print_row(dtype, layer, data, f"{first.batch} to {last.batch}",
                  *("–" if isinstance(a, str) or isinstance(b, str) or not a.rms else short(b.rms / a.rms)
                    for a, b in pairs))


def verdict(rows):
    """What is wrong with convgrad's sums, as lines."""
    wrong = []
    for row in rows:
        if not row.sums.max <= row.bound():
            wrong.append(f"{row.layer}, {row.data}, {row.dtype}, N {row.batch}: {short(row.sums.max)} is above "
                         f"the bound of {short(row.bound())}")
    for (dtype, layer, data), members in families(rows).items():
        first, last = members[0].sums, members[-1].sums
        if dtype != "float64" and not last.rms <= GROWTH * first.rms:   # float64 is summed in float64 all the way
            wrong.append(f"{layer}, {data}, {dtype}: rms {short(first.rms)} at N {members[0].batch} grows to "
                         f"{short(last.rms)} at N {members[-1].batch}")
    share = max(row.sums.max / row.bound() for row in rows)
    print(f"\nconvgrad's sums: at most {share:.2g} of the bound 4 sqrt(min(L, {CHUNK})) u ({LONG_CHUNK} for 16-bit data; float64: 4 sqrt(L) u); "
          + ("; ".join(wrong) if wrong else f"no rms grows more than {GROWTH}-fold with the batch"))
    return wrong


def numbers(text):
    values = [float(part) for part in text.split(",")]
    if not all(1 <= value <= 1e10 for value in values):
        raise ValueError
    return values


def dtypes(text):
    if not set(text.split(",")) <= set(DTYPES):
        raise ValueError
    return text.split(",")


def kinds(text):
    if not set(text.split(",")) <= set(DATA):
        raise ValueError
    return text.split(",")


def parse():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--convgrad", metavar="PATH", default=root / "build" / "release" / "convgrad")
    parser.add_argument("--tensorflow-python", metavar="PATH", help="a Python that has TensorFlow")
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has PyTorch")
    parser.add_argument("--terms", type=numbers, metavar="L,...", help="default 1e6,1e7,1e8")
    parser.add_argument("--dtype", type=dtypes, default=["float32"], metavar="DTYPE,...", help="default float32")
    parser.add_argument("--data", type=kinds, default=["normal", "uniform", "repeated"], metavar="KIND,...",
                        help=f"of {', '.join(DATA)}; default normal,uniform,repeated")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default all")
    parser.add_argument("--algorithm", default="auto", help="convgrad's")
    parser.add_argument("--max-gib", type=float, help="leaves out larger tensors; default 2, with --quick 0.1")
    parser.add_argument("--quick", action="store_true", help="1e5,1e6 terms")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.terms = options.terms or ([1e5, 1e6] if options.quick else [1e6, 1e7, 1e8])
    options.max_gib = options.max_gib or (0.1 if options.quick else 2)
    if options.threads < 1:
        parser.error("--threads")
    return options


def main():
    options = parse()
    if options.worker:
        peers.serve(*options.worker, gradients_by)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))   # so that the tensors are removed
    with tempfile.TemporaryDirectory(prefix="convgrad-accuracy.") as folder:
        folder = pathlib.Path(folder)
        pythons = {"tensorflow": options.tensorflow_python, "torch": options.torch_python}
        measured = [Peer(name, pythons[kind], options.threads, folder)
                    for name, (kind, _) in PEERS.items() if pythons[kind]]
        try:
            rows, reports = measure_all(options, folder, measured)
        except peers.DoesNotStart as error:
            stop(error)
        finally:
            for peer in measured:
                peer.worker.end()
    if not rows:
        stop("no layer fits: see --terms and --max-gib")
    titles = {peer.name: peer.name.replace("TensorFlow", f"TensorFlow {peer.worker.version}")
              .replace("PyTorch", f"PyTorch {peer.worker.version}") for peer in measured}
    tool, algorithms = reports[0]["tool"], sorted({report["execution"]["algorithm"] for report in reports})
    print(f"convgrad {tool['version']} ({', '.join(algorithms)}), {options.threads} threads, {peers.processor()}")
    print_errors(rows, titles)
    if titles:
        print_ratios(rows, titles)
    print_growth(rows, titles)
    return 1 if verdict(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
