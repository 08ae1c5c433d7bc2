#!/usr/bin/env python3
"""How much time auto's choice of an algorithm costs over the layers of bench/layers/networks.tsv, beside the fastest algorithm.

    scripts/measure_choices.py [--binary PATH] [--dtype float32] [--layout NCHW] [--draw N --seed S]

Batches are cut to 0.2 GFLOP. Every algorithm of this processor is timed once; where auto's is more than 1.15 times as slow as
the fastest, the two take turns, three times, and the least of the ratios counts. Prints these layers, then how many there are.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import compare_peers

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST_FLOP, TOO_MUCH, CHUNK = 2e8, 1.15, 20


def problems(options):
    """Distinct lines with as many images as fit."""
    lines = {}
    for row in compare_peers.NETWORKS.read_text().splitlines():
        if row.startswith("#"):
            continue
        name, _, line = row.split("\t")
        layer = compare_peers.layer_of(name, line, None)
        images = max(1, min(layer["N"], int(MOST_FLOP * layer["N"] / layer["flops"])))
        lines[re.sub(r"\bn\d+", f"n{images}", line, count=1)] = name
    chosen = [(name, line) for line, name in lines.items()]
    return random.Random(options.seed).sample(chosen, min(options.draw, len(chosen))) if options.draw else chosen


def times(options, chosen, algorithm, seconds):
    """For each layer the algorithms with their least times in ms."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as suite:
        suite.writelines(f"{name}\t{line} {options.dtype}{' ' + options.layout if options.layout else ''}\n" for name, line in chosen)
        suite.flush()
        done = subprocess.run([options.binary, "bench", "--suite", suite.name, "-a", algorithm, "--no-peaks", "--repeat", "3",
                               "--min-time", str(seconds), "--json", "-q"], capture_output=True, text=True, check=True)
    found = {}
    report = json.loads(done.stdout)
    for run in report.get("problems") or [report]:
        found.setdefault(run["name"], {})[run["execution"]["algorithm"]] = run["timing_ms"]["kernel"]["min"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/convgrad"), help="convgrad")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--layout", choices=("NCHW",), help="by default channels last")
    parser.add_argument("--draw", type=int, metavar="N", help="N of the layers, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of --draw")
    options = parser.parse_args()
    chosen = problems(options)
    behind = []
    for first in range(0, len(chosen), CHUNK):
        part = chosen[first:first + CHUNK]
        taken = times(options, part, "auto", 0)
        every = times(options, part, "all", 0.005)
        for name, line in part:
            auto, = taken[name]
            fastest = min(every[name], key=every[name].get)
            ratio = every[name][auto] / every[name][fastest]
            for _ in range(3 if ratio > TOO_MUCH else 0):
                turn = [times(options, [(name, line)], algorithm, 0.05)[name][algorithm] for algorithm in (auto, fastest)]
                ratio = min(ratio, turn[0] / turn[1])
            if ratio > TOO_MUCH:
                behind.append(name)
                print(f"{ratio:5.2f}  {auto:25} {fastest:25} {name:40} {line}", flush=True)
    print(f"{options.dtype}: of {len(chosen)} layers auto's choice takes more than {TOO_MUCH} times the fastest in {len(behind)}")


if __name__ == "__main__":
    sys.exit(main())
