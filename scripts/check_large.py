#!/usr/bin/env python3
"""Problems whose tensors have more elements than 32 bits count, and reported ones in full.

scripts/check_large.py [--only NAME] [--no-dense] [--quick] [--folder FOLDER]

x and dy are sparse files: zeros but for small integers around the first and the last pixel, those on
both sides of element 2^31 and of byte 2^32, and some in between. So all of the gradient is known, and
must come out exactly. The first problem is then computed from dense files too (9 GB of disk; --no-dense
leaves that out), and a sample of its gradient verified. --quick is the first one by its fastest algorithm
alone, from sparse files. Each job has a memory limit of 1 GiB.
Prints a line for each run; status 1 if one is wrong.
"""
import argparse
import itertools
import math
import os
import pathlib
import random
import shutil
import struct
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = os.environ.get("CONVGRAD_BINARY", str(ROOT / "build/release/convgrad"))
LIMIT = "1GiB"
ITEM = {"<f2": 2, "<f4": 4}


class Case:
    """Stride and dilation 1; before and after are the padding of every spatial axis."""

    def __init__(self, name, descr, n, size, c, k, taps, pads, last, algorithms):
        self.name, self.descr, self.n, self.size, self.c, self.k = name, descr, n, size, c, k
        self.taps, self.pads, self.last, self.algorithms = taps, pads, last, algorithms
        self.out = tuple(s + sum(p) - t + 1 for s, t, p in zip(size, taps, pads))

    def shape(self, spatial, channels):
        return (self.n, *spatial, channels) if self.last else (self.n, channels, *spatial)

    def flags(self):
        deep = "D" if len(self.size) == 3 else ""
        form = f"N{deep}HWC" if self.last else f"NC{deep}HW"
        pads = ",".join(map(str, itertools.chain(*self.pads)))
        return ["--op", f"conv{len(self.size)}d", "-k", ",".join(map(str, self.taps)), "-f", form,
                "--explicit-paddings", pads, "--out-dtype", "float64"]

    def position(self, index, spatial, channels):
        """(image, pixel, channel) of the element that is number index in the file."""
        at = np.unravel_index(index, self.shape(spatial, channels))
        at = tuple(map(int, at))
        return (at[0], at[1:-1], at[-1]) if self.last else (at[0], at[2:], at[1])


CASES = [
    Case("x, dy and im2col above 2^31", "<f2", 129, (1024, 1024), 16, 16, (3, 3), ((1, 1), (1, 1)), True,
         ("auto", "im2col_gemm")),
    Case("TensorFlow #11327", "<f4", 720, (400, 600), 1, 1, (1, 401), ((0, 0), (200, 200)), False,
         ("auto",)),
    Case("TensorFlow #5688", "<f4", 2, (258, 258, 34), 1, 32, (3, 3, 3), ((0, 0),) * 3, True, ("auto",)),
    Case("PyTorch #17930", "<f4", 25, (100, 375, 128), 1, 10, (3, 3, 10), ((1, 1), (1, 1), (0, 0)),
         False, ("auto",)),
]


def header(descr, shape):
    text = str({"descr": descr, "fortran_order": False, "shape": shape})
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def write_sparse(path, descr, shape, values):
    """values: {element number: value}."""
    start = header(descr, shape)
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(len(start) + math.prod(shape) * ITEM[descr])
        for index, value in values.items():
            file.seek(len(start) + index * ITEM[descr])
            file.write(np.array(value, descr).tobytes())


def element_number(case, spatial, channels, image, pixel, channel):
    at = (image, *pixel, channel) if case.last else (image, channel, *pixel)
    number = 0
    for extent, i in zip(case.shape(spatial, channels), at):
        number = number * extent + i
    return number


def interesting(count, item, rng):
    """Element numbers near the ends, near 2^31 elements and 2^32 bytes, and anywhere."""
    near = [0, 1, count - 2, count - 1]
    for edge in (2**31, 2**32 // item, 2**31 // item):
        near += range(edge - 2, edge + 3)
    near += [rng.randrange(count) for _ in range(200)]
    return sorted({i for i in near if 0 <= i < count})


def make_tensors(case, folder, rng):
    """Writes x and dy; returns dw[*taps, c, k] in float64."""
    item = ITEM[case.descr]
    before = [p[0] for p in case.pads]
    x_count = math.prod(case.shape(case.size, case.c))
    dy_count = math.prod(case.shape(case.out, case.k))
    x, dy = {}, {}  # by (image, pixel, channel)
    for i in interesting(dy_count, item, rng):
        image, pixel, channel = case.position(i, case.out, case.k)
        dy[image, pixel, channel] = rng.choice((-3, -2, -1, 1, 2, 3))
        for _ in range(3):  # something for it to meet
            seen = tuple(p - b + rng.randrange(t) for p, b, t in zip(pixel, before, case.taps))
            if all(0 <= s < extent for s, extent in zip(seen, case.size)):
                x[image, seen, rng.randrange(case.c)] = rng.choice((-3, -2, -1, 1, 2, 3))
    for i in interesting(x_count, item, rng):
        image, pixel, channel = case.position(i, case.size, case.c)
        x[image, pixel, channel] = rng.choice((-3, -2, -1, 1, 2, 3))
        seen_from = tuple(min(max(p + b - t // 2, 0), o - 1)
                          for p, b, t, o in zip(pixel, before, case.taps, case.out))
        dy[image, seen_from, rng.randrange(case.k)] = rng.choice((-3, -2, -1, 1, 2, 3))
    for name, spatial, channels, values in (("x", case.size, case.c, x), ("dy", case.out, case.k, dy)):
        write_sparse(folder / f"{name}.npy", case.descr, case.shape(spatial, channels),
                     {element_number(case, spatial, channels, *at): v for at, v in values.items()})
    by_pixel = {}
    for (image, pixel, channel), value in x.items():
        by_pixel.setdefault((image, pixel), []).append((channel, value))
    dw = np.zeros((*case.taps, case.c, case.k))
    for (image, pixel, k), value in dy.items():
        for tap in itertools.product(*map(range, case.taps)):
            seen = tuple(p - b + t for p, b, t in zip(pixel, before, tap))
            for c, other in by_pixel.get((image, seen), ()):
                dw[(*tap, c, k)] += value * other
    return dw


def run(arguments):
    """Status, seconds, peak resident bytes."""
    start = time.monotonic()
    pid = os.posix_spawn(BINARY, [BINARY, *map(str, arguments)], os.environ)
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - start, usage.ru_maxrss * 1024


def size_line(case):
    x = math.prod(case.shape(case.size, case.c))
    dy = math.prod(case.shape(case.out, case.k))
    im2col = case.n * math.prod(case.out) * math.prod(case.taps) * case.c
    numbers = ", ".join(f"{name} {count:,} elements ({count / 2**31:.2f} x 2^31)"
                        for name, count in (("x", x), ("dy", dy), ("im2col", im2col)))
    return f"{case.name}: {numbers}"


def check(case, folder, algorithms):
    want = make_tensors(case, folder, random.Random(1))
    ok = True
    for algorithm in algorithms:
        files = ["-i", folder / "x.npy", "-g", folder / "dy.npy"]
        status, seconds, peak = run([*files, "-o", folder / "dw.npy", *case.flags(), "-a", algorithm,
                                     "--memory-limit", LIMIT])
        same = status == 0 and np.array_equal(np.load(folder / "dw.npy"), want)
        ok &= same
        print(f"  {algorithm}: status {status}, {seconds:.1f} s, peak {peak / 2**20:.0f} MiB, "
              f"{np.count_nonzero(want)} of {want.size} elements not 0, "
              f"{'all as known' if same else 'WRONG'}", flush=True)
    return ok


def write_dense(path, descr, shape):
    """A block of random integers again and again; its length shares no factor with the extents."""
    rng = np.random.default_rng(len(str(path)))
    block = rng.integers(-2, 3, 1048583).astype(descr).tobytes()
    left = math.prod(shape) * ITEM[descr]
    with open(path, "wb") as file:
        file.write(header(descr, shape))
        while left > 0:
            left -= file.write(block[:left])


def check_dense(case, folder):
    write_dense(folder / "x.npy", case.descr, case.shape(case.size, case.c))
    write_dense(folder / "dy.npy", case.descr, case.shape(case.out, case.k))
    files = ["-i", folder / "x.npy", "-g", folder / "dy.npy"]
    status, seconds, peak = run(["verify", *files, *case.flags(), "--sample", 8, "--memory-limit", LIMIT])
    print(f"  dense, verify --sample 8: status {status}, {seconds:.1f} s, peak {peak / 2**20:.0f} MiB",
          flush=True)
    return status == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", help="problems whose name contains this")
    parser.add_argument("--no-dense", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", help="where the tensors are made")
    options = parser.parse_args()
    ok = True
    for number, case in enumerate(CASES[:1] if options.quick else CASES):
        if options.only and options.only not in case.name:
            continue
        folder = pathlib.Path(tempfile.mkdtemp(prefix="convgrad-large-", dir=options.folder))
        try:
            print(size_line(case), flush=True)
            ok &= check(case, folder, case.algorithms[:1] if options.quick else case.algorithms)
            if number == 0 and not (options.no_dense or options.quick):
                ok &= check_dense(case, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print("check_large: all as known" if ok else "check_large: WRONG")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
