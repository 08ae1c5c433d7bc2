#!/usr/bin/env python3
"""Judges right gradients of random problems by `convgrad verify`: none may fail.

    python3 scripts/measure_false_alarms.py [--problems 5000] [--peers]

Each problem has random attributes and data of one kind (scripts/layers.py) and is judged as summed in each of the right ways
of tests/simulated_sums, by some of convgrad's algorithms, and with --peers by PyTorch and TensorFlow (TORCH_PYTHON,
TENSORFLOW_PYTHON name their Pythons). Problem i of a seed is always the same: --first i --problems 1 repeats it.
"""
import argparse
import collections
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

import layers
import peers
from layers import KINDS, LEFT_OUT, Layer

MOST_TERMS = 3e6  # of all elements together


# ---- Problems ------------------------------------------------------------------------------------

def log_uniform(rng, low, high):
    return int(math.exp(rng.uniform(math.log(low), math.log(high + 1))))


def random_layer(rng):
    op = rng.choice(["conv2d", "conv2d", "depthwise", "conv3d"])
    dtype = rng.choice(["float32", "float32", "float64", "bfloat16", "float16"])
    out = "float32" if dtype.endswith("16") and rng.random() < .4 else dtype
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


# ---- Peers: they run in Pythons of their own -----------------------------------------------------

class Torch:
    def __init__(self, module):
        self.torch = module

    def __call__(self, request):
        torch, rank = self.torch, len(request["taps"])
        dtype = getattr(torch, request["dtype"])
        pads = [p for pair in reversed(request["pads"]) for p in pair]
        x = torch.nn.functional.pad(torch.from_numpy(np.load(request["x"])).movedim(-1, 1).to(dtype), pads)
        dy = torch.from_numpy(np.load(request["dy"])).movedim(-1, 1).to(dtype)
        w = torch.zeros(dy.shape[1], x.shape[1] // request["groups"], *request["taps"], dtype=dtype)
        last = torch.channels_last if rank == 2 else torch.channels_last_3d
        forms = {"channels first": torch.contiguous_format, "channels last": last}
        names = []
        for (name, form), onednn in [(f, o) for f in forms.items() for o in (True, False)]:
            torch.backends.mkldnn.enabled = onednn
            result = torch.ops.aten.convolution_backward(
                dy.contiguous(memory_format=form), x.contiguous(memory_format=form), w.contiguous(memory_format=form), None,
                request["strides"], [0] * rank, request["dilations"], False, [0] * rank, request["groups"], [False, True, False])[1]
            names.append(f"PyTorch, {name}, {'oneDNN' if onednn else 'native'}")
            result = result.permute(*range(2, rank + 2), 1, 0).to(torch.float64).contiguous().numpy()
            np.save(f"{request['out']}{len(names) - 1}.npy", result)
        return {"names": names}


class TensorFlow:
    def __init__(self, module):
        self.tf = module

    def __call__(self, request):
        tf, op, rank = self.tf, request["op"], len(request["taps"])
        if op == "depthwise" and max(request["dilations"]) > 1:
            raise RuntimeError("its depthwise op ignores dilations")
        x = tf.pad(tf.cast(np.load(request["x"]), request["dtype"]), [[0, 0], *request["pads"], [0, 0]])
        dy = tf.cast(np.load(request["dy"]), request["dtype"])
        result = getattr(tf.raw_ops, peers.TENSORFLOW_OPS[op])(
            input=x, out_backprop=dy, filter_sizes=request["dw_shape"], strides=[1, *request["strides"], 1],
            dilations=[1, *request["dilations"], 1], padding="VALID", data_format="NHWC" if rank == 2 else "NDHWC")
        np.save(f"{request['out']}0.npy", tf.cast(result, tf.float64).numpy())
        return {"names": [f"TensorFlow, {op}"]}


PEERS = {"torch": (Torch, "TORCH_PYTHON"), "tensorflow": (TensorFlow, "TENSORFLOW_PYTHON")}


def known_wrong(name, layer, kind):
    """Why a peer's gradient need not pass, or None."""
    if name.startswith("PyTorch") and name.endswith("native") and layer.dtype == "bfloat16":
        return "sums in bfloat16"
    if layer.dtype == "float16" and (name.startswith("TensorFlow") or name.endswith("native")):
        return "sums in float16"
    if name.startswith("TensorFlow") and layer.dtype == "bfloat16" and layer.op != "conv3d":
        return "sums in bfloat16"
    if "subnormal" in kind and (name.startswith("TensorFlow") or layer.dtype == "bfloat16" and name.startswith("PyTorch")):
        return "flushes subnormal numbers"
    return None


def peer_results(judge, workers, layer, x, dy):
    own = np.float64 if layer.dtype == "float64" else np.float32
    request = {"op": layer.op, "dtype": layer.dtype, "taps": layer.taps, "strides": layer.strides, "dilations": layer.dilations,
               "pads": layer.pads, "groups": layer.groups, "dw_shape": layer.dw_shape}
    for name, values in (("x", x), ("dy", dy)):
        request[name] = str(judge.folder / f"{name}_widened.npy")
        np.save(request[name], values.astype(own))
    results, refused = {}, collections.Counter()
    for kind, worker in workers.items():
        request["out"] = str(judge.folder / kind)
        answer = worker.ask(request)
        if "error" in answer:
            refused[f"{peers.TITLES[kind]} {answer['how']}: {answer['error'].splitlines()[0].split('}} ')[-1][:90]}"] += 1
        for i, name in enumerate(answer.get("names", [])):
            # PyTorch's has all groups' channels as TensorFlow's, but for depthwise [R, S, 1, C*M].
            results[name] = np.load(f"{request['out']}{i}.npy").reshape(layer.dw_shape)
    return results, refused


# ---- The measurement -----------------------------------------------------------------------------

def algorithm_names(convgrad):
    done = subprocess.run([convgrad, "--list-algorithms"], capture_output=True, text=True, env=peers.environment(), check=True)
    return [line.split()[0] for line in done.stdout.splitlines() if line and line.split()[0].split("_")[0] in
            ("direct", "im2col", "outer", "streaming")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), help="of data, with commas between them")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--convgrad", default=str(layers.BUILD / "convgrad"))
    args = parser.parse_args()
    workers = {}
    for kind, (_, variable) in PEERS.items() if args.peers else ():
        worker = peers.Worker(os.path.abspath(__file__), kind, os.environ.get(variable, sys.executable), 2)
        try:
            worker.start()
            print(peers.TITLES[kind], worker.version)
            workers[kind] = worker
        except peers.DoesNotStart as error:
            print(error)
    algorithms = algorithm_names(args.convgrad)
    largest, counts, scores, failures = {}, collections.Counter(), [], []
    refused, excused = collections.Counter(), collections.Counter()

    def count(way, score, group, what):
        counts[way] += 1
        scores.append(score)
        if way not in largest or score > largest[way][0]:
            largest[way] = (score, group, what)
        if not score <= 1:
            failures.append(f"{way}: {score:.3g} ({group}), {what}")
            print("FAILS", failures[-1], flush=True)

    with tempfile.TemporaryDirectory() as folder:
        judge = layers.Judge(folder, args.convgrad)
        for i in range(args.first, args.first + args.problems):
            rng = np.random.default_rng([args.seed, i])
            kind, layer = args.kinds[i % len(args.kinds)], random_layer(rng)
            if workers:
                layer.out = layer.dtype  # the only one that peers have
            what = f"problem {i}: {kind}, {layer}"
            x, dy = layers.make_data(kind, layer, rng)
            judge.put(layer, x, dy)
            results = {way: sums for way, sums in judge.sums("right").items() if way not in LEFT_OUT.get(kind, ())}
            own = {}
            for name in rng.choice(algorithms, 2, replace=False):
                computed = judge.computed("-a", name)
                if computed is not None:
                    own[f"convgrad, {name}"] = computed
            if workers:
                theirs, no = peer_results(judge, workers, layer, x, dy)
                results |= theirs
                refused += no
            try:
                for way, (score, group) in judge.scores(results | own).items():
                    why = known_wrong(way, layer, kind)
                    if why and not score <= 1:
                        excused[f"{way}, {layer.dtype}: {why}"] += 1
                    else:
                        count(way, score, group, what)
                if own:
                    for way, (score, group) in judge.scores(own, "--longest-sum", "512").items():
                        count("convgrad, --longest-sum 512", score, group, f"{way.split()[-1]}, {what}")
            except (RuntimeError, KeyError) as error:
                count("no verdict", math.inf, repr(error), what)
            if (i + 1) % 500 == 0:
                print(f"{i + 1} problems, {len(scores)} gradients, largest score {max(scores):.3g}", file=sys.stderr, flush=True)
    for worker in workers.values():
        worker.end()

    print("\nlargest score of each way of summing, and its problem:")
    for way, (score, group, what) in sorted(largest.items()):
        print(f"{way:36s} {counts[way]:6d} {score:8.3g} {group:10s} {what}")
    for title, counter in (("known to be wrong", excused), ("not computed", refused)):
        for text, times in counter.most_common(12):
            print(f"{title}, {times} times: {text}")
    print("left out:", "; ".join(f"{kind}: {', '.join(ways)}" for kind, ways in LEFT_OUT.items()))
    shares = ", ".join(f"{np.mean(np.array(scores) > limit):.2%} over {limit:g}" for limit in (.25, .5, .75, 1))
    print(f"{args.problems} problems, {len(args.kinds)} kinds of data, {len(scores)} right gradients judged: {len(failures)} fail; "
          f"{shares}")
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        peers.serve(sys.argv[2], sys.argv[3], PEERS[sys.argv[2]][0])
    else:
        sys.exit(main())
