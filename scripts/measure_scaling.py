#!/usr/bin/env python3
"""Strong and weak scaling of --mpi on this machine, and a model of it for up to 1,024 ranks.

    scripts/measure_scaling.py [--ranks 1,2] [--images N] [--repeat R] [--quick]
    scripts/measure_scaling.py --model [--rate GFLOPS] [--read GB/S] [--network GB/S] [--latency US]

Each rank has one thread. Strong: the same batch on more ranks; weak: as many images for each rank.
The times are those of the slowest rank, from its first byte to the sum of all, best of R runs; the
bits of all runs must be equal. The model takes the rate of one rank and of reading from the
measurement (or from the flags), the cuts of the batch from the program's own plan, and the network
from the flags: they are assumptions, not measured.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = os.environ.get("CONVGRAD_BINARY", str(ROOT / "build/release/convgrad"))
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl": "self,vader",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1"}
# Layers of ResNet-50: side, input channels, output channels, taps.
LAYERS = {"3x3 64-64": (56, 64, 64, 3), "3x3 256-256": (14, 256, 256, 3), "1x1 512-2048": (7, 512, 2048, 1)}


def tensor(path, images, side, channels, seed=None):
    """A float32 .npy; without a seed a sparse file of zeros."""
    text = str({"descr": "<f4", "fortran_order": False, "shape": (images, side, side, channels)})
    text += " " * (-(len(text) + 11) % 64) + "\n"
    size = images * side * side * channels * 4
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        if seed is None:
            file.truncate(file.tell() + size)
        else:
            import numpy as np
            rng = np.random.default_rng(seed)
            for _ in range(images):
                rng.standard_normal(side * side * channels, dtype=np.float32).tofile(file)
    return size


def make(folder, layer, images, seed=None):
    side, c, k, _ = LAYERS[layer]
    return (tensor(folder / "x.npy", images, side, c, seed) +
            tensor(folder / "dy.npy", images, side, k, None if seed is None else seed + 1))


def flags(layer):
    taps = str(LAYERS[layer][3])
    return ["--op", "conv2d", "-i", "x.npy", "-g", "dy.npy", "-k", taps, "-p", "same"]


def run(folder, layer, ranks, repeat):
    """(seconds of the slowest rank, of its adding, report) of the best of some runs."""
    best = None
    for _ in range(repeat):
        subprocess.run(["mpirun", "-n", str(ranks), BINARY, "--mpi", *flags(layer), "-t", "1", "-o", f"dw{ranks}.npy",
                        "--json=report.json"], cwd=folder, env=ENVIRONMENT, check=True, stdin=subprocess.DEVNULL)
        report = json.loads((folder / "report.json").read_text())
        slowest = max(rank["timing_ms"]["total"] for rank in report["ranks"]) / 1e3
        if best is None or slowest < best[0]:
            best = (slowest, min(rank["timing_ms"]["add"] for rank in report["ranks"]) / 1e3, report)
    return best


def measure(args, folder):
    """Prints both tables; returns GFLOP/s of a rank and GB/s of its reading."""
    layer, images = "3x3 64-64", args.images
    print(f"Layer {layer}, 56x56, float32, one thread a rank, {os.cpu_count()} processors, best of {args.repeat}")
    print("\n| strong scaling | images | seconds | speed-up | efficiency | adding ms |\n| ---: | ---: | ---: | ---: | "
          "---: | ---: |")
    make(folder, layer, images, 1)
    base = rates = None
    for ranks in args.ranks:
        seconds, add, report = run(folder, layer, ranks, args.repeat)
        if base is None:
            base, first = seconds * ranks, (folder / f"dw{ranks}.npy").read_bytes()
            timing = report["ranks"][0]["timing_ms"]
            rates = (report["work"]["flops"] / ranks / timing["kernel"] * 1e-6,
                     report["ranks"][0]["read_bytes"] / timing["read"] * 1e-6)
        if (folder / f"dw{ranks}.npy").read_bytes() != first:
            sys.exit(f"{ranks} ranks gave other bits")
        print(f"| {ranks} | {images} | {seconds:.3f} | {base / seconds:.2f} | {base / seconds / ranks:.0%} | "
              f"{add * 1e3:.1f} |", flush=True)
    print("\n| weak scaling | images | seconds | efficiency | adding ms |\n| ---: | ---: | ---: | ---: | ---: |")
    base = None
    for ranks in args.ranks:
        make(folder, layer, images // 2 * ranks, 1)
        seconds, add, _ = run(folder, layer, ranks, args.repeat)
        base = base or seconds
        print(f"| {ranks} | {images // 2 * ranks} | {seconds:.3f} | {base / seconds:.0%} | {add * 1e3:.1f} |", flush=True)
    print(f"\nOne rank: {rates[0]:.1f} GFLOP/s, reads {rates[1]:.2f} GB/s")
    return rates


def largest_part(folder, layer, images, ranks):
    """Images of the first part, which is one of the largest, by the program's own plan."""
    make(folder, layer, images)
    done = subprocess.run([BINARY, *flags(layer), "--batch-range", f"1/{ranks}", "--dry-run", "--json"], cwd=folder,
                          check=True, capture_output=True, text=True)
    part = json.loads(done.stdout)["part"]
    return part["images"][1] - part["images"][0]


def model(args, folder, rates):
    """Each rank reads and computes its images at the same time; then ceil(log2 R) levels of the tree
    cross the network, each with |dW| float64 numbers, which are added; rank 0 writes |dW|."""
    gflops, read = rates
    print(f"\nModel: a rank computes {gflops:.0f} GFLOP/s and reads {read:.1f} GB/s of its own; network "
          f"{args.network:g} GB/s and {args.latency:g} us a message; sums are added at {args.add:g} GB/s")
    for kind in ("strong", "weak"):
        print(f"\n| {kind}, layer | ranks | images | of one rank | GB read by it | GFLOP of it | MB of dW sent | "
              "sum s | tree ms | efficiency |\n| --- | " + "---: | " * 9)
        for layer, (side, c, k, taps) in LAYERS.items():
            one = int(args.gbytes * 1e9 / (side * side * (c + k) * 4))
            for ranks in (1, 8, 64, 256, 1024):
                images = one * (8 if kind == "strong" else ranks)
                mine = largest_part(folder, layer, images, ranks)
                flops = 2.0 * mine * side * side * taps * taps * c * k
                size = mine * side * side * (c + k) * 4
                dw = 8.0 * taps * taps * c * k
                work = max(flops / gflops * 1e-9, size / read * 1e-9)
                levels = math.ceil(math.log2(ranks))
                pieces = math.ceil(dw / 2**21)
                tree = levels * (dw / args.network * 1e-9 + pieces * args.latency * 1e-6 + dw * 3 / args.add * 1e-9)
                total = 2.0 * images * side * side * taps * taps * c * k
                ideal = max(total / gflops * 1e-9, images * side * side * (c + k) * 4 / read * 1e-9) / ranks
                print(f"| {layer} | {ranks} | {images} | {mine} | {size * 1e-9:.3f} | {flops * 1e-9:.0f} | "
                      f"{dw * 1e-6 * (ranks > 1):.2f} | {work:.3f} | {tree * 1e3:.2f} | {ideal / (work + tree):.0%} |",
                      flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one small run, no model")
    parser.add_argument("--model", action="store_true", help="the model alone")
    parser.add_argument("--rate", type=float, default=100, help="GFLOP/s of a rank, with --model")
    parser.add_argument("--read", type=float, default=2, help="GB/s that a rank reads, with --model")
    parser.add_argument("--network", type=float, default=10, help="GB/s between two ranks")
    parser.add_argument("--latency", type=float, default=5, help="microseconds of a message")
    parser.add_argument("--add", type=float, default=10, help="GB/s at which sums are added")
    parser.add_argument("--gbytes", type=float, default=8, help="tensors of one rank (weak), or an eighth of all (strong)")
    args = parser.parse_args()
    args.ranks = [int(word) for word in args.ranks.split(",")]
    if args.quick:
        args.images, args.repeat = 16, 1
    folder = pathlib.Path(tempfile.mkdtemp(prefix="convgrad-scaling-"))
    try:
        if not args.model and shutil.which("mpirun") is None:
            sys.exit("scripts/measure_scaling.py: no mpirun; install Debian's openmpi-bin")
        rates = (args.rate, args.read) if args.model else measure(args, folder)
        if not args.quick:
            model(args, folder, rates)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
