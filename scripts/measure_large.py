#!/usr/bin/env python3
"""A problem larger than memory: peak resident memory, and the bits of a run that is cut and killed.

    scripts/measure_large.py [--size GB] [--limit MIB] [--parts R] [--kills N]

x and dy are sparse files with random numbers in some images. One run computes the gradient under
--memory-limit. Then the parts of --batch-range 1/R ... R/R are computed, the first N of them killed
on their way and started again, and added by convgrad reduce: the files must be equal. Status 1 if
they are not, or if any process had more resident memory than the limit.
"""
import argparse
import os
import pathlib
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = os.environ.get("CONVGRAD_BINARY", str(ROOT / "build/release/convgrad"))
SIDE, CHANNELS = 56, 64   # a layer of ResNet-50: 3x3, 64 to 64 channels


def sparse(path, images, seed, filled=64):
    """A float32 .npy [images, 56, 56, 64] of zeros, random in about `filled` images."""
    text = str({"descr": "<f4", "fortran_order": False, "shape": (images, SIDE, SIDE, CHANNELS)})
    text += " " * (-(len(text) + 11) % 64) + "\n"
    item = SIDE * SIDE * CHANNELS * 4
    numbers = random.Random(seed)
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        start = file.tell()
        file.truncate(start + images * item)
        for image in range(0, images, max(1, images // filled)):
            file.seek(start + image * item)
            # Numbers from -2 to 2: any sign and fraction with an exponent of -1 to 0.
            values = [numbers.getrandbits(24) & 0x80ffffff | 0x3f000000 | numbers.getrandbits(1) << 31
                      for _ in range(4096)]
            file.write(struct.pack(f"<{len(values)}I", *values) * (item // 4 // len(values)))
    return images * item


class Runs:
    def __init__(self, folder, limit):
        self.folder, self.limit, self.peak = folder, limit, 0

    def start(self, *words):
        return subprocess.Popen([BINARY, *map(str, words)], cwd=self.folder)

    def finish(self, process):
        if process.returncode is not None:   # kill() has found it done
            return process.returncode
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.peak = max(self.peak, usage.ru_maxrss * 1024)
        return process.returncode

    def compute(self, output, *words):
        return self.start("--op", "conv2d", "-i", "x.npy", "-g", "dy.npy", "-k", 3, "-p", "same",
                          "--memory-limit", f"{self.limit}MiB", "-o", output, *words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=float, default=40, help="GB of both tensors")
    parser.add_argument("--limit", type=int, default=1024, help="MiB")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--kills", type=int, default=2)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="convgrad-large-"))
    try:
        return measure(args, folder)
    finally:
        shutil.rmtree(folder)


def measure(args, folder):
    images = max(args.parts, int(args.size * 1e9 / (2 * SIDE * SIDE * CHANNELS * 4)))
    size = sparse(folder / "x.npy", images, 1) + sparse(folder / "dy.npy", images, 2)
    runs = Runs(folder, args.limit)
    begin = time.time()
    if runs.finish(runs.compute("whole.npy")) != 0:
        return 1
    whole_s = time.time() - begin
    print(f"{size / 1e9:.1f} GB of tensors ({images} images), limit {args.limit} MiB: peak resident memory "
          f"{runs.peak / 2**20:.0f} MiB, {whole_s:.1f} s, {size / whole_s / 1e9:.2f} GB/s", flush=True)

    begin = time.time()
    parts, killed = [], 0
    for k in range(1, args.parts + 1):
        part = f"part{k}.npz"
        words = ("--batch-range", f"{k}/{args.parts}")
        if k <= args.kills:
            delay = whole_s / args.parts / 2
            while killed < k and delay > 1e-3:   # it may be done before it is killed
                (folder / part).unlink(missing_ok=True)
                process = runs.compute(part, *words)
                time.sleep(delay)
                process.kill()
                killed += runs.finish(process) == -9
                delay /= 2
            if killed < k or (folder / part).exists():
                print(f"part {k} could not be killed on its way")
                return 1
        if runs.finish(runs.compute(part, *words)) != 0:
            return 1
        parts.append(part)
    if runs.finish(runs.start("reduce", *reversed(parts), "-o", "sum.npy")) != 0:
        return 1
    equal = (folder / "sum.npy").read_bytes() == (folder / "whole.npy").read_bytes()
    bytes_of_parts = sum((folder / part).stat().st_size for part in parts)
    print(f"{args.parts} parts, {killed} of them killed and computed again, and convgrad reduce: "
          f"{'the same bits' if equal else 'OTHER BITS'}, {bytes_of_parts / 2**20:.1f} MiB of parts, "
          f"peak resident memory {runs.peak / 2**20:.0f} MiB, {time.time() - begin:.1f} s")
    return 0 if equal and runs.peak <= args.limit * 2**20 else 1


if __name__ == "__main__":
    sys.exit(main())
