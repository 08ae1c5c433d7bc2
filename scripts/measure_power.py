#!/usr/bin/env python3
"""Puts faults into right gradients, and prints which of them `convgrad verify` sees.

    python3 scripts/measure_power.py [--short] [--probe] [--captured FOLDER]

A fault is set against the error of right sums of the same data, rounded to the output's dtype: one term after the other in the
accumulator's type, and for 16-bit data as tensor cores do. Its size is the ratio of the root mean squares over the elements that
it touches. The tables have verify's score, which is above 1 for what is caught. What is not has a mark: "." smaller than the error
of right sums, "?" larger, "!" so large that it ought to be seen: ten times, or what the criterion grants so few elements. The last
are failures of this measurement. Where another right order has more than WIDE times that error, faults are put into its sum too
("kind *"), against its error, and faults of the first sum have to be so much larger, but those of ANYWHERE. --captured takes the
problems of a folder that capture_layers.py made instead. With --probe all are of a dy with random signs, and judged as
`verify --signs` does, which ought to see three times the error of right sums.
"""
import argparse
import collections
import dataclasses
import math
import sys
import tempfile
import time

import numpy as np

import layers
from layers import LAYERS, rounded

KINDS = ("normal", "coherent", "images in turns", "positive", "constant", "relu", "lognormal", "90 % zeros", "channel ranges",
         "subnormal", "signs by position", "tanh, signs by stride")
DTYPES = (("float32", "float32"), ("float64", "float64"), ("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float16", "float16"))
RIGHT = ("plain", "fma", "reverse", "cut4096")
# Of the orders that verify allows, one of each kind.
WIDER = ("pqn n mod 2", "pqn", "qnp", "pixel mod 2", "row mod 2", "image in 2")
WIDE = 2
ANYWHERE = ("pixel left out", "row left out", "image left out", "tf32 inputs", "bfloat16_")
# (fault, output of float32 from): what is granted hides it.
KNOWN = {(fault, "bfloat16"): "digits that tensor cores may cut; --adders ieee sees it" for fault in
         ("element off by 0.01 %", "element off by 0.1 %", "element of another tap", "tap off by 1e-5")}
KNOWN["tap off by 1e-5", "float32"] = "90 % zeros and 24 elements to a tap"


def faulty_gradients(layer, x, dy, sums, base, rng):
    """{fault: gradient} from what simulated_sums gave; the differences that faults make to the base are of float64."""
    base = sums[base]
    exact = layer.gradient(x, dy)
    # Of what is summed faultily the order is the usual one.
    faults = {name: values for name, values in sums.items() if name not in RIGHT + WIDER}
    first, middle = (0,) * len(layer.taps), tuple(t // 2 for t in layer.taps)
    last = tuple(t - 1 for t in layer.taps)

    def of_part(*index):
        only = np.zeros_like(dy)
        only[index] = dy[index]
        return layer.gradient(x, only)

    def changed(index, values):
        gradient = base.copy()
        gradient[index] = values
        return gradient

    for _ in range(100):
        pixel = tuple(int(rng.integers(extent)) for extent in dy.shape[:-1])
        part = of_part(*pixel)
        if part.any():
            break
    faults["pixel left out"] = base - part
    faults["row left out"] = base - of_part(*pixel[:-1])
    part = of_part(pixel[0])
    faults["image left out"], faults["image twice"] = base - part, base + part
    faults["last columns left out"] = base - of_part(..., -1, slice(None))
    begin = layer.pixels // 2 // 512 * 512
    chunk = np.zeros_like(dy)
    chunk.reshape(layer.pixels, -1)[begin:begin + 512] = dy.reshape(layer.pixels, -1)[begin:begin + 512]
    tile = (*middle, slice(16), slice(16))
    faults["chunk twice in a tile"] = changed(tile, base[tile] + layer.gradient(x, chunk)[tile])
    for dtype in ("float32", "tf32", "float16", "bfloat16"):
        rounded_x, rounded_dy = rounded(x, dtype), rounded(dy, dtype)
        if np.isfinite(rounded_x).all() and np.isfinite(rounded_dy).all():
            faults[f"{dtype} inputs"] = base + (layer.gradient(rounded_x, rounded_dy) - exact)
        if layers.BITS[dtype] < layers.BITS[layer.out]:
            faults[f"{dtype} result"] = rounded(base, dtype)
    if layer.dtype in ("float32", "float64"):
        for how, cut in TF32.items():
            faults[f"tf32 inputs, {how}"] = base + (layer.gradient(cut(x), cut(dy)) - exact)
    if layer.out == "float32":
        cut = low_bits_cut(base)
        faults["low 8 bits cut off"], faults["low 8 bits of a tap"] = cut, changed(middle, cut[middle])
    smallest = 2.0 ** {"float64": -1022, "float16": -14}.get(layer.dtype, -126)
    flushed = [np.where(abs(values) < smallest, 0, values) for values in (x, dy)]
    faults["subnormal inputs flushed"] = base + (layer.gradient(*flushed) - exact)
    shifted = np.zeros_like(x)
    shifted[..., 1:, :] = x[..., :-1, :]
    row = (*middle, 0)
    faults["channel of a tap shifted"] = changed(row, base[row] + (layer.gradient(shifted, dy) - exact)[row])
    one = np.unravel_index(np.argsort(abs(base), axis=None)[base.size // 2], base.shape)
    for name, factor in (("0.01 %", 1e-4), ("0.1 %", 1e-3), ("10 %", .1)):
        faults[f"element off by {name}"] = changed(one, base[one] * (1 + factor))
    faults["all off by 1e-5"] = base * (1 + 1e-5)
    for name, index in (("tap", middle), ("output channel", (..., -1)), ("input channel", (..., 0, slice(None)))):
        faults[f"{name} off by 1e-5"] = changed(index, base[index] * (1 + 1e-5))
    faults["element of another tap"] = changed((*first, 0, 0), base[(*last, 0, 0)])
    faults["last input channel 0"] = changed((..., -1, slice(None)), 0)
    faults["last output channel 0"] = changed((..., -1), 0)
    faults["a tap 0"] = changed(last, 0)
    extended = np.pad(x, ((0, 0), *layer.pads, (0, 0)), mode="edge")
    unpadded = dataclasses.replace(layer, extents=extended.shape[1:-1], pads=((0, 0),) * len(layer.pads))
    faults["padding by the edge"] = base + (unpadded.gradient(extended, dy) - exact)
    return faults


def low_bits_cut(values):
    return (np.asarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFFFF00)).view(np.float32).astype(np.float64)


def of_tf32(values, added):
    """float32's bits, cut off after something is added; rounded to nearest is layers.rounded."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(added)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


TF32 = {"cut off": lambda values: of_tf32(values, 0), "half away": lambda values: of_tf32(values, 0x1000)}


def relative_errors(ways, sums, layer, want, terms):
    return {way: np.sqrt(np.mean(((rounded(sums[way], layer.out) - want) / terms) ** 2)) for way in ways if way in sums}


def bases_of(sums, layer, want, terms):
    """{right way that faults are put into: (relative error of right sums, how much larger another's is)}"""
    usual = max(relative_errors(RIGHT, sums, layer, want, terms).values())
    way, widest = max(relative_errors(WIDER, sums, layer, want, terms).items(), key=lambda item: item[1])
    wider = widest / usual if usual else 1
    return {"plain": (usual, max(1, wider))} | ({way: (widest, 1)} if wider > WIDE else {})


def sizes_of(faults, base, relative, layer, terms, slack):
    """(How many times larger than the error of right sums each fault is, how many times it may be)."""
    # An element's error is taken from all elements', as large relative to its terms as theirs: a few may be right by chance.
    error = terms * relative
    sizes = {}
    for name, values in faults.items():
        difference = values - base
        touched = difference != 0
        n = max(1, np.count_nonzero(touched))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            size = np.sqrt(np.sum(difference[touched] ** 2) / np.sum(error[touched] ** 2))
        # verify lets slack*g(n) scales pass, and right sums have an error of about 0.6 of them.
        sizes[name] = float(size), max(10 if slack == 3 else 3, 5 / 3 * slack * np.sqrt(1 + 2 * np.sqrt(30 / n) + 60 / n))
    return sizes


def cell(score, size, seen):
    return f"{score:.2g}" + ("" if score > 1 else "." if size < 1 else "?" if size < seen else "!")


class Table:
    """What was seen of each fault."""

    def __init__(self):
        self.judged, self.largest_missed, self.smallest_caught = collections.defaultdict(collections.Counter), {}, {}
        self.unseen, self.wrong = [], []

    def add(self, fault, size, score, seen, what, known):
        verdict = "caught" if score > 1 else "below" if size < 1 else "missed"
        self.judged[fault][verdict] += 1
        if verdict == "caught":
            self.smallest_caught[fault] = min(size, self.smallest_caught.get(fault, size))
        elif verdict == "missed":
            self.largest_missed[fault] = max((size, score), self.largest_missed.get(fault, (size, score)))
            self.unseen.append((size, score, f"{fault}, {what}"))
            if size >= seen and not known:
                self.wrong.append(f"{fault}, {what}: {size:.3g} times the noise scores {score:.3g}")

    def print(self):
        print("\nmissed, by size over the noise:")
        for size, score, what in sorted(self.unseen, reverse=True):
            print(f"{size:8.2f} score {score:.2g}: {what}")
        print(f"\n{'':32s}{'caught':>8s}{'below':>8s}{'missed':>8s}   size over the error of right sums: smallest caught, largest missed")
        for fault, verdicts in sorted(self.judged.items()):
            counts = "".join(f"{verdicts[verdict]:8d}" for verdict in ("caught", "below", "missed"))
            size, score = self.largest_missed.get(fault, (math.nan, math.nan))
            print(f"{fault:32s}{counts}   {self.smallest_caught.get(fault, math.nan):8.3g}{size:8.3g} (score {score:.2g})")
        for line in self.wrong:
            print("FAILS", line)


def judge_problem(judge, table, layer, kind, x, dy):
    """{kind, or kind *: {fault: cell}}"""
    rng, columns = np.random.default_rng(1), {}
    dy = judge.put(layer, x, dy)
    sums = judge.sums(",".join((*RIGHT, *WIDER, "faulty")))
    want = judge.computed("-b", "reference", "--out-dtype", "float64")
    terms = layer.gradient(abs(x), abs(dy))
    terms[terms == 0] = 1
    for way, (relative, wider) in bases_of(sums, layer, want, terms).items():
        name = kind if way == "plain" else f"{kind} *"
        right = rounded(sums[way], layer.out)
        faults = {fault: values for fault, values in faulty_gradients(layer, x, dy, sums, way, rng).items()
                  if not np.array_equal(rounded(values, layer.out), right)}
        sizes = sizes_of(faults, sums[way], relative, layer, terms, 1 if judge.signs else 3)
        scores = judge.scores({"right": sums[way], **faults})
        columns[name] = {"right": f"{scores['right'][0]:.2g}"}
        what = f"{kind}, {layer}" + ("" if way == "plain" else f", in the order {way}")
        if not scores.pop("right")[0] <= 1:
            table.wrong.append(f"{what}: the right sum fails")
        for fault, (score, _) in scores.items():
            size, seen = sizes[fault]
            if not fault.startswith(ANYWHERE):
                seen *= wider
            table.add(fault, size, score, seen, what, layer.out == "float32" and (fault, layer.dtype) in KNOWN)
            columns[name][fault] = cell(score, size, seen)
    return columns


def print_columns(layer, columns):
    print(f"\n{layer}\n{'':26s}" + "".join(f"{kind[:9]:>10s}" for kind in columns))
    for fault in dict.fromkeys(fault for cells in columns.values() for fault in cells):
        print(f"{fault:26s}" + "".join(f"{cells.get(fault, '-'):>10s}" for cells in columns.values()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true", help="about a minute: fewer layers, dtypes and kinds of data")
    parser.add_argument("--probe", action="store_true", help="random signs on dy, judged by --signs")
    parser.add_argument("--captured", metavar="FOLDER", help="of capture_layers.py")
    parser.add_argument("--convgrad", default=str(layers.BUILD / "convgrad"))
    args = parser.parse_args()
    kinds, dtypes, suite = (KINDS[:4], DTYPES[0:4:2], LAYERS[::2]) if args.short else (KINDS, DTYPES, LAYERS)
    if args.short and args.probe:  # signs make what is left out alike
        kinds = KINDS[:3:2]
    table, began = Table(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        judge = layers.Judge(folder, args.convgrad, signs=1 if args.probe else None)
        if args.captured:
            for name, layer, x, dy in layers.captured(args.captured):
                print_columns(layer, judge_problem(judge, table, layer, name, x, dy))
        else:
            for (dtype, out), layer in ((d, l) for d in dtypes for l in suite):
                layer, columns = dataclasses.replace(layer, dtype=dtype, out=out), {}
                for kind in kinds:
                    columns |= judge_problem(judge, table, layer, kind, *layers.make_data(kind, layer, np.random.default_rng(1)))
                print_columns(layer, columns)
    table.print()
    counts = sum(table.judged.values(), collections.Counter())
    least = 3 if args.probe else 10
    large = sum(size >= least for size, _, _ in table.unseen)
    print(f"{counts.total()} faults in {time.monotonic() - began:.0f} s: {counts['caught']} caught, "
          f"{counts['below']} below the noise of right sums, {counts['missed']} missed above it, "
          f"of these {large} {least} times or more, {len(table.wrong)} of which ought to be seen")
    return 1 if table.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
