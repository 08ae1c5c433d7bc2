#!/usr/bin/env python3
"""Judges right gradients of random problems by `convgrad verify`: none may fail.

    python3 scripts/measure_false_alarms.py [--problems 5000] [--probe] [--peers] [--captured FOLDER]

Each problem has random attributes and data of one kind (scripts/layers.py) and is judged as summed in each of the right ways
of tests/tools/simulated_sums, by some of convgrad's algorithms, and with --peers by each library of peer_gradients.py that can be
imported (TORCH_PYTHON, TENSORFLOW_PYTHON, JAX_PYTHON, ONNXRUNTIME_PYTHON, TINYGRAD_PYTHON, NUMPY_PYTHON name their Pythons).
Problem i of a seed is always the same: --first i --problems 1 repeats it. Captured problems are judged too: a folder that
capture_layers.py made, or testdata/captured. With --probe all are of a dy with random signs, and judged as `verify --signs` does;
--probe --problems 40 takes less than a minute.
"""
import argparse
import collections
import dataclasses
import itertools
import math
import subprocess
import sys
import tempfile

import numpy as np

import layers
import peer_gradients
import peers
from layers import KINDS, Layer

MOST_TERMS = 3e6  # of all elements together


# ---- Problems ------------------------------------------------------------------------------------

def log_uniform(rng, low, high):
    return int(math.exp(rng.uniform(math.log(low), math.log(high + 1))))


def random_layer(rng):
    op = rng.choice(["conv2d", "conv2d", "depthwise", "conv3d"])
    dtype = rng.choice(["float32", "float32", "float64", "bfloat16", "float16"])
    out = "float32" if dtype.endswith("16") and rng.random() < .4 else dtype
    if rng.random() < .05:
        return dataclasses.replace(layers.LAYERS[rng.integers(len(layers.LAYERS))], dtype=str(dtype), out=str(out))
    while True:
        pixels = log_uniform(rng, 1, 200_000)
        n = log_uniform(rng, 1, pixels)
        outs = [log_uniform(rng, 1, pixels // n) if op == "conv3d" else 1]
        outs.append(round(max(1, pixels / n / outs[0]) ** rng.choice([.2, .5, .5, .5, 1])))
        outs.append(max(1, pixels // n // outs[0] // outs[1]))
        outs = outs[-3 if op == "conv3d" else -2:]
        taps = [int(rng.choice([1, 2, 3, 3, 5])) for _ in outs]
        c, multiplier, groups = log_uniform(rng, 1, 12), log_uniform(rng, 1, 12), int(rng.choice([1, 1, 1, 2, 3]))
        c, k = (c, c * min(multiplier, 3)) if op == "depthwise" else (c * groups, multiplier * groups)
        if n * math.prod(outs) * math.prod(taps) * c * k // (c if op == "depthwise" else groups) <= MOST_TERMS:
            break
    strides = [int(rng.choice([1, 1, 2, 3]))] * len(outs)
    if rng.random() < .2:
        strides = [int(rng.integers(1, 4)) for _ in outs]
    dilations = [int(rng.choice([1, 1, 1, 2, 3]))] * len(outs)
    extents, pads = [], []
    for out_extent, t, s, d in zip(outs, taps, strides, dilations):
        span = (t - 1) * d + 1
        needed = (out_extent - 1) * s + span + int(rng.integers(s))
        before, after = (int(rng.integers(span)) for _ in range(2))
        if before + after >= needed:
            before = after = 0
        extents.append(needed - before - after)
        pads.append((before, after))
    return Layer(str(op), n, tuple(extents), c, k, tuple(taps), tuple(strides), tuple(dilations), tuple(pads), groups,
                 str(dtype), str(out))


# ---- The measurement -----------------------------------------------------------------------------

def algorithm_names(convgrad):
    done = subprocess.run([convgrad, "--list-algorithms"], capture_output=True, text=True, env=peers.environment(), check=True)
    return [line.split()[0] for line in done.stdout.splitlines() if line and line.split()[0].split("_")[0] in
            ("direct", "im2col", "outer", "streaming")]


def made_problems(args):
    """(name, kind, layer, x, dy, generator) of each."""
    for i in range(args.first, args.first + args.problems):
        rng = np.random.default_rng([args.seed, i])
        kind, layer = args.kinds[i % len(args.kinds)], random_layer(rng)
        if args.peers:
            layer.out = layer.dtype  # the only one that peers have
        yield f"problem {i}", kind, layer, *layers.make_data(kind, layer, rng), rng


def captured_problems(args):
    for i, (name, layer, x, dy) in enumerate(layers.captured(args.captured)):
        yield name, f"captured {name.split('_')[0]}", layer, x, dy, np.random.default_rng([args.seed, i])


class Counts:
    """What was judged, and what failed."""

    def __init__(self):
        self.largest, self.judged, self.excused = {}, collections.Counter(), collections.Counter()
        self.failed, self.scores = collections.defaultdict(collections.Counter), []

    def count(self, way, score, group, kind, what):
        self.judged[way] += 1
        self.scores.append(score)
        if way not in self.largest or score > self.largest[way][0]:
            self.largest[way] = (score, group, what)
        if not score <= 1:
            self.failed[way][kind] += 1
            print(f"FAILS {way}: {score:.3g} ({group}), {what}", flush=True)

    def print(self):
        print("\nlargest score of each way of summing, and its problem:")
        for way, (score, group, what) in sorted(self.largest.items()):
            print(f"{way:36s} {self.judged[way]:6d} {score:8.3g} {group:10s} {what}")
        if self.failed:
            print("\nfailures of each way, by kind of data:")
        for way, kinds in sorted(self.failed.items(), key=lambda item: -item[1].total()):
            print(f"{way:36s} {kinds.total():6d}  {', '.join(f'{kind} {times}' for kind, times in kinds.most_common())}")


def judge_problem(judge, counts, problem, workers, algorithms, refused, what):
    _, kind, layer, x, dy, rng = problem
    dy = judge.put(layer, x, dy)
    results, own = judge.sums("right"), {}
    for name in rng.choice(algorithms, 2, replace=False):
        computed = judge.computed("-a", name)
        if computed is not None:
            own[f"convgrad, {name}"] = computed
    if workers:
        theirs, no = peer_gradients.results_of(workers, judge.folder, layer, x, dy)
        results |= theirs
        refused += no
    for way, (score, group) in judge.scores(results | own).items():
        why = peer_gradients.known_wrong(way, layer, kind)
        if why and not score <= 1:
            counts.excused[f"{way}, {layer.dtype}: {why}"] += 1
        else:
            counts.count(way, score, group, kind, what)
    if own:
        for way, (score, group) in judge.scores(own, "--longest-sum", "512").items():
            counts.count("convgrad, --longest-sum 512", score, group, kind, f"{way.split()[-1]}, {what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), help="of data, with commas between them")
    parser.add_argument("--probe", action="store_true", help="random signs on dy, judged by --signs")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--captured", metavar="FOLDER", default=str(layers.ROOT / "testdata" / "captured"), help="of capture_layers.py")
    parser.add_argument("--convgrad", default=str(layers.BUILD / "convgrad"))
    args = parser.parse_args()
    workers = peer_gradients.start() if args.peers else {}
    algorithms = algorithm_names(args.convgrad)
    counts, refused, problems = Counts(), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        judge = layers.Judge(folder, args.convgrad, signs=1 if args.probe else None)
        for problem in itertools.chain(made_problems(args), captured_problems(args)):
            what = f"{problem[0]}: {problem[1]}, {problem[2]}"
            problems += 1
            try:
                judge_problem(judge, counts, problem, workers, algorithms, refused, what)
            except (RuntimeError, KeyError) as error:
                counts.count("no verdict", math.inf, repr(error), problem[1], what)
            if problems % 100 == 0:
                print(f"{problems} problems, {len(counts.scores)} gradients, largest score {max(counts.scores):.3g}", file=sys.stderr,
                      flush=True)
    for worker in workers.values():
        worker.end()

    counts.print()
    for title, counter in (("known to be wrong", counts.excused), ("not computed", refused)):
        for text, times in counter.most_common(12):
            print(f"{title}, {times} times: {text}")
    shares = ", ".join(f"{np.mean(np.array(counts.scores) > limit):.2%} over {limit:g}" for limit in (.25, .5, .75, 1))
    failures = sum(kinds.total() for kinds in counts.failed.values())
    print(f"{problems} problems, {len(counts.scores)} right gradients judged, {judge.different} different ones: {failures} fail; {shares}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
