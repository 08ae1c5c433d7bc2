#!/usr/bin/env python3
"""Puts faults into right gradients, and prints which of them `convgrad verify` sees.

    python3 scripts/measure_power.py [--short]

A fault is set against the error of right sums of the same data, rounded to the output's dtype: one term after the other in the
accumulator's type, and for 16-bit data as tensor cores do. Its size is the ratio of the root mean squares over the elements that
it touches. The tables have verify's score, which is above 1 for what is caught. What is not has a mark: "." smaller than the error
of right sums, "?" larger, "!" so large that it ought to be seen: ten times, or what the criterion grants so few elements. The last
are failures of this measurement.
"""
import argparse
import collections
import dataclasses
import sys
import tempfile
import time

import numpy as np

import layers
from layers import Layer, rounded

KINDS = ("normal", "coherent", "positive", "constant", "relu", "lognormal", "90 % zeros", "channel ranges", "subnormal")
LAYERS = (
    Layer("conv2d", 128, (40, 40), 4, 6, (3, 2), (1, 1), (2, 1), ((2, 2), (0, 1))),
    Layer("conv2d", 90, (29, 31), 12, 8, (5, 3), (2, 2), (1, 1), ((2, 2), (1, 1)), groups=4),
    Layer("depthwise", 20, (46, 44), 10, 20, (5, 5), (1, 1), (1, 1), ((2, 2), (2, 2))),
    Layer("conv3d", 6, (9, 24, 22), 5, 6, (3, 3, 3), (1, 2, 1), (1, 1, 1), ((1, 1), (1, 1), (1, 1))),
)
DTYPES = (("float32", "float32"), ("float64", "float64"), ("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float16", "float16"))
RIGHT = ("plain", "fma", "reverse", "cut4096")
# (fault, output of float32 from): what is granted hides it.
KNOWN = {(fault, "bfloat16"): "digits that tensor cores may cut; --adders ieee sees it" for fault in
         ("element off by 0.01 %", "element off by 0.1 %", "element of another tap", "tap off by 1e-5")}
KNOWN["tap off by 1e-5", "float32"] = "90 % zeros and 24 elements to a tap"


def faulty_gradients(layer, x, dy, sums, rng):
    """{fault: gradient} from what simulated_sums gave; the differences that faults make are of float64."""
    base = sums["plain"]
    exact = layer.gradient(x, dy)
    faults = {name: values for name, values in sums.items() if name not in RIGHT}
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
    faults["tap off by 1e-5"] = changed(middle, base[middle] * (1 + 1e-5))
    faults["element of another tap"] = changed((*first, 0, 0), base[(*last, 0, 0)])
    faults["last input channel 0"] = changed((..., -1, slice(None)), 0)
    faults["last output channel 0"] = changed((..., -1), 0)
    faults["a tap 0"] = changed(last, 0)
    extended = np.pad(x, ((0, 0), *layer.pads, (0, 0)), mode="edge")
    unpadded = dataclasses.replace(layer, extents=extended.shape[1:-1], pads=((0, 0),) * len(layer.pads))
    faults["padding by the edge"] = base + (unpadded.gradient(extended, dy) - exact)
    return faults


def sizes_of(faults, sums, layer, x, dy, want):
    """(How many times larger than the error of right sums each fault is, how many times it may be)."""
    # An element's error is taken from all elements', as large relative to its terms as theirs: a few may be right by chance.
    terms = layer.gradient(abs(x), abs(dy))
    terms[terms == 0] = 1
    error = terms * max(np.sqrt(np.mean(((rounded(sums[way], layer.out) - want) / terms) ** 2)) for way in RIGHT if way in sums)
    sizes = {}
    for name, values in faults.items():
        difference = values - sums["plain"]
        touched = difference != 0
        n = max(1, np.count_nonzero(touched))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            size = np.sqrt(np.sum(difference[touched] ** 2) / np.sum(error[touched] ** 2))
        # verify lets 3*g(n) scales pass, and right sums have an error of about 0.6 of them.
        sizes[name] = float(size), max(10, 5 * np.sqrt(1 + 2 * np.sqrt(30 / n) + 60 / n))
    return sizes


def same(values, sums, out):
    return np.array_equal(rounded(values, out), rounded(sums["plain"], out))


def cell(score, size, seen):
    return f"{score:.2g}" + ("" if score > 1 else "." if size < 1 else "?" if size < seen else "!")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true", help="about a minute: fewer layers, dtypes and kinds of data")
    parser.add_argument("--convgrad", default=str(layers.BUILD / "convgrad"))
    args = parser.parse_args()
    kinds, dtypes, suite = (KINDS[:4], DTYPES[0:4:2], LAYERS[::2]) if args.short else (KINDS, DTYPES, LAYERS)
    counts, unseen, wrong = collections.Counter(), [], []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        judge = layers.Judge(folder, args.convgrad)
        for (dtype, out), layer in ((d, l) for d in dtypes for l in suite):
            layer = dataclasses.replace(layer, dtype=dtype, out=out)
            table, right = collections.defaultdict(dict), {}
            for kind in kinds:
                rng = np.random.default_rng(1)
                x, dy = layers.make_data(kind, layer, rng)
                judge.put(layer, x, dy)
                sums = judge.sums(",".join((*RIGHT, "faulty")))
                faults = faulty_gradients(layer, x, dy, sums, rng)
                faults = {name: values for name, values in faults.items() if not same(values, sums, out)}
                want = judge.computed("-b", "reference", "--out-dtype", "float64")
                sizes = sizes_of(faults, sums, layer, x, dy, want)
                scores = judge.scores({"right": sums["plain"], **faults})
                right[kind] = scores.pop("right")[0]
                if not right[kind] <= 1:
                    wrong.append(f"{layer}, {kind}: the right sum scores {right[kind]:.3g}")
                for fault, (score, _) in scores.items():
                    size, seen = sizes[fault]
                    table[fault][kind] = cell(score, size, seen)
                    verdict = "caught" if score > 1 else "below the noise" if size < 1 else "missed"
                    counts[verdict] += 1
                    if verdict == "missed":
                        unseen.append((size, score, f"{fault}, {kind}, {layer}"))
                        if size >= seen and not (out == "float32" and (fault, dtype) in KNOWN):
                            wrong.append(f"{fault}, {kind}, {layer}: {size:.3g} times the noise scores {score:.3g}")
            print(f"\n{layer}\n{'':26s}" + "".join(f"{kind[:9]:>10s}" for kind in kinds))
            for fault, cells in {"right, one after another": {k: f"{s:.2g}" for k, s in right.items()}, **table}.items():
                print(f"{fault:26s}" + "".join(f"{cells.get(kind, '-'):>10s}" for kind in kinds), flush=True)
    print("\nmissed, by size over the noise:")
    for size, score, what in sorted(unseen, reverse=True):
        print(f"{size:8.2f} score {score:.2g}: {what}")
    for line in wrong:
        print("FAILS", line)
    large = sum(size >= 10 for size, _, _ in unseen)
    print(f"{sum(counts.values())} faults in {time.monotonic() - began:.0f} s: {counts['caught']} caught, "
          f"{counts['below the noise']} below the noise of right sums, {counts['missed']} missed above it, "
          f"of these {large} ten times or more")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
