#!/usr/bin/env python3
"""Measures filter gradients of convgrad, PyTorch, TensorFlow and OpenBLAS im2col (convgrad's im2col_gemm) over a suite.

    python3 scripts/compare_peers.py --tensorflow-python tf/bin/python --torch-python torch/bin/python
    python3 scripts/compare_peers.py --before PROGRAM
    python3 scripts/compare_peers.py --network resnet50,unet --batch 4 ...    the totals of networks' layers by their counts
    python3 scripts/compare_peers.py --draw 60 ...    layers of 89 networks, others each time; --seed S draws those of a run again

For each layer the programs take turns, --rounds times, so that all of them see the same machine. A turn is one run that is
not counted, then at least --repeat runs and --min-time seconds; its time is the shortest. The table has the median of the
turns' times, with --before the shortest. Every time is of the whole gradient, from tensors in memory to the tensor in memory.
"""
import argparse
import json
import math
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

import peers

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORD = re.compile(r"([a-z_]+)(\d+(?:,\d+)*)")  # of a problem's line
DTYPES = ("float16", "bfloat16", "float32", "float64")
TITLES = {"convgrad": "convgrad", "before": "before", "im2col": "OpenBLAS im2col"} | peers.TITLES
PEERS = tuple(peers.TITLES)
NETWORKS = ROOT / "bench/layers/networks.tsv"
# Of layers that are drawn: their images are as many as keep to both.
MOST_GFLOP, MOST_MB = 3, 200
SLOW_S = 20  # a program that takes longer for one run is measured once


# ---- Layers --------------------------------------------------------------------------------------

def geometry(extent, taps, stride, dilation, padding):
    """(before, after, out) of one axis; padding is SAME or (before, after)."""
    reach = (taps - 1) * dilation + 1
    if padding == "SAME":
        out = -(-extent // stride)
        total = max((out - 1) * stride + reach - extent, 0)
        return total // 2, total - total // 2, out
    before, after = padding
    return before, after, (extent + before + after - reach) // stride + 1


def layer_of(name, problem, layout):
    """A problem's line, as `describe` writes it, as a dictionary of numbers, with pads and output extents worked out."""
    op, *words = problem.split()
    rank = 3 if op == "conv3d" else 2
    numbers = {match[1]: [int(number) for number in match[2].split(",")] for match in map(WORD.fullmatch, words) if match}
    if op == "conv1d":  # an image of one row
        op, numbers = "conv2d", {"h": [1], "r": [1]} | {key: [usual, *numbers[key]] if key in numbers else [usual] for key, usual in (
            ("stride", 1), ("dilation", 1), ("pad", 0), ("pad_before", 0), ("pad_after", 0))} | {
            key: value for key, value in numbers.items() if len(key) == 1 or key == "groups"}

    def of_axes(key, usual):
        values = numbers.get(key, [usual])
        return values * rank if len(values) == 1 else values

    layer = {"name": name, "op": op, "N": numbers.get("n", [1])[0], "C": numbers["c"][0], "K": numbers["k"][0]}
    layer["in"] = [numbers[axis][0] for axis in "dhw"[3 - rank:]]
    layer["taps"] = [numbers[axis][0] for axis in "trs"[3 - rank:]]
    layer["strides"], layer["dilations"] = of_axes("stride", 1), of_axes("dilation", 1)
    deep = "D" if rank == 3 else ""
    last = layout != "nchw" if layout else f"NC{deep}HW" not in words
    layer["layout"] = f"N{deep}HWC" if last else f"NC{deep}HW"
    layer["groups"] = layer["C"] if op == "depthwise" else numbers.get("groups", [1])[0]
    if "pad_same" in words:
        layer["padding"], paddings = "SAME", ["SAME"] * rank
    else:
        both = of_axes("pad", 0)
        paddings = [(before or pad, after or pad)
                    for pad, before, after in zip(both, of_axes("pad_before", 0), of_axes("pad_after", 0))]
        layer["padding"] = "EXPLICIT" if any(map(any, paddings)) else "VALID"
    axes = [geometry(*axis) for axis in zip(layer["in"], layer["taps"], layer["strides"], layer["dilations"], paddings)]
    layer["pads"] = [axis[:2] for axis in axes]
    layer["out"] = [axis[2] for axis in axes]
    layer["flops"] = (2 * layer["N"] * math.prod(layer["out"]) * math.prod(layer["taps"])
                      * layer["C"] // layer["groups"] * layer["K"])
    layer["mb"] = 4e-6 * max(layer["N"] * layer["C"] * math.prod(layer["in"]), layer["N"] * layer["K"] * math.prod(layer["out"]),
                             math.prod(layer["taps"]) * layer["C"] // layer["groups"] * layer["K"])  # the largest, as float32
    return layer


def read_suite(path, layout, only):
    """Layers of lines NAME [COUNT] PROBLEM."""
    layers = []
    for line in pathlib.Path(path).read_text().splitlines():
        words = line.split("#")[0].split()
        if not words or only not in words[0]:
            continue
        problem = words[2:] if words[1].isdigit() else words[1:]
        layers.append({**layer_of(words[0], " ".join(problem), layout), "count": int(words[1]) if words[1].isdigit() else 1})
    if not layers:
        sys.exit(f"compare_peers.py: {path} has no layer whose name holds '{only}'")
    return layers


def with_images(layer, n):
    return {**layer, "N": n, "flops": layer["flops"] // layer["N"] * n}


def network_of(layer):
    return layer["name"].rpartition("/")[0]


def of_networks(layers, names, batch):
    known = {network_of(layer) for layer in layers}
    chosen = known if names == "all" else set()
    for name in [] if names == "all" else names.split(","):
        networks = {network for network in known if f"/{network}".endswith(f"/{name}")}
        if len(networks) != 1:
            sys.exit(f"compare_peers.py: --network: '{name}' is {' and '.join(sorted(networks)) or f'not in {NETWORKS}'}")
        chosen |= networks
    return [with_images(layer, batch) for layer in layers if network_of(layer) in chosen]


def problem_of(layer):
    """What layers of several networks have in common."""
    return json.dumps({key: layer[key] for key in layer if key not in ("name", "count")})


def drawn(layers, count, seed):
    """A network, all alike, and one of its layers by how often it has it; none twice."""
    networks = {}
    for layer in layers:
        images = min(layer["N"], int(MOST_GFLOP * 1e9 * layer["N"] / layer["flops"]), int(MOST_MB * layer["N"] / layer["mb"]))
        if images > 0:
            networks.setdefault(network_of(layer), []).append(with_images(layer, images))
    random_ = random.Random(seed)
    chosen = {}
    while len(chosen) < count:
        of_one = random_.choice(list(networks.values()))
        layer = random_.choices(of_one, [layer["count"] for layer in of_one])[0]
        chosen[problem_of(layer)] = layer
    return list(chosen.values())


# ---- Workers: they run in the peers' own Pythons -------------------------------------------------

class Torch:
    def __init__(self, module):
        self.torch = module

    def prepare(self, layer, dtype):
        generator = self.torch.Generator().manual_seed(1)
        x, dy, gradient = peers.torch_gradient(self.torch, layer, dtype, generator)
        return lambda: gradient(x, dy)


class TensorFlow:
    def __init__(self, module):
        self.tf = module

    def prepare(self, layer, dtype):
        tf = self.tf
        if not layer["layout"].endswith("C"):
            raise RuntimeError("its CPU ops take channels last alone")
        if layer["op"] == "depthwise" and set(layer["dilations"]) != {1}:
            raise RuntimeError("its depthwise op ignores dilations")
        generator = tf.random.Generator.from_seed(1)

        def normal(*shape):
            return tf.cast(generator.normal(shape), dtype)

        x, dy = normal(layer["N"], *layer["in"], layer["C"]), normal(layer["N"], *layer["out"], layer["K"])
        padding = layer["padding"].upper()
        if padding not in ("SAME", "VALID"):  # not every op has explicit paddings: the zeros come first
            x, padding = tf.pad(x, [[0, 0], *layer["pads"], [0, 0]]), "VALID"
        per_group = layer["C"] // layer["groups"]
        channels = [layer["C"], layer["K"] // layer["C"]] if layer["op"] == "depthwise" else [per_group, layer["K"]]
        attributes = {"filter_sizes": [*layer["taps"], *channels], "strides": [1, *layer["strides"], 1],
                      "dilations": [1, *layer["dilations"], 1], "padding": padding, "data_format": layer["layout"]}
        op = getattr(tf.raw_ops, peers.TENSORFLOW_OPS[layer["op"]])
        compiled = tf.function(lambda x, dy: op(input=x, out_backprop=dy, **attributes))

        def run():
            result = compiled(x, dy)
            tf.test.experimental.sync_devices()
            return result

        return run


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class Answers:
    """Of a worker, to two requests: a layer and dtype are prepared, repeat and min_time are a turn with them."""

    def __init__(self, module):
        self.peer = {"torch": Torch, "tensorflow": TensorFlow}[module.__name__](module)
        self.run = None

    def __call__(self, request):
        if "layer" in request:
            self.run = None  # frees the last problem's tensors first
            self.run = self.peer.prepare(request["layer"], request["dtype"])
            return {"first": seconds(self.run)}
        times = []
        seconds(self.run)
        while len(times) < request["repeat"] or sum(times) < request["min_time"]:
            times.append(seconds(self.run))
        return {"times": times}


# ---- The programs, as the parent sees them -------------------------------------------------------

class Peer:
    def __init__(self, kind, python, options):
        self.options = options
        self.worker = peers.Worker(__file__, kind, python, options.threads)
        self.worker.start()
        self.version = self.worker.version

    def ask(self, **request):
        answer = self.worker.ask(request)
        self.rest()
        if "error" in answer:
            answer["error"] = " ".join(answer["error"].split())[:300]
        return answer

    def rest(self):
        """Returns when the worker's threads have stopped waiting actively, or after a second."""
        def ticks():
            fields = pathlib.Path(f"/proc/{self.worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        before, deadline = -1, time.monotonic() + 1
        while self.worker.process and ticks() != before and time.monotonic() < deadline:
            before = ticks()
            time.sleep(0.05)

    def prepare(self, layer, dtype):
        self.once = None
        answer = self.ask(layer=layer, dtype=dtype)
        if answer.get("first", 0) > SLOW_S:
            self.once = answer["first"]
        return answer.get("error")

    def turn(self):
        """The shortest time of a turn in seconds, or the error as text."""
        if self.once is not None:
            return self.once
        answer = self.ask(repeat=self.options.repeat, min_time=self.options.min_time)
        return answer.get("error") or min(answer["times"])


class Convgrad:
    """The program itself: it starts in milliseconds, and makes its own tensors."""

    def __init__(self, binary, algorithm, options):
        self.binary, self.algorithm, self.options = binary, algorithm, options

    def call(self, *args):
        return subprocess.run([self.binary, *map(str, args)], env=peers.environment(), capture_output=True, text=True,
                              check=False)

    def prepare(self, layer, dtype):
        def words(values):
            return ",".join(map(str, values))

        o = self.options
        last = layer["layout"].endswith("C")
        shape = [layer["N"], *layer["in"], layer["C"]] if last else [layer["N"], layer["C"], *layer["in"]]
        self.args = ["bench", "--op", layer["op"], "--input-shape", words(shape), "-k", words(layer["taps"]),
                     "--out-channels", layer["K"], "-s", words(layer["strides"]), "-d", words(layer["dilations"]),
                     "-f", layer["layout"], "--explicit-paddings", words(p for pair in layer["pads"] for p in pair),
                     "--dtype", dtype, "-a", self.algorithm, "-t", o.threads, "--repeat", o.repeat, "--min-time", o.min_time,
                     "--no-peaks", "--json"]
        if layer["op"] != "depthwise":
            self.args += ["--groups", layer["groups"]]

    def turn(self):
        done = self.call(*self.args)
        if done.returncode != 0:
            return done.stderr.strip()
        report = json.loads(done.stdout)
        self.used = report["execution"]["algorithm"]
        return report["timing_ms"]["kernel"]["min"] / 1e3


# ---- Measuring and printing ----------------------------------------------------------------------

def measure(programs, layer, dtype, rounds):
    """Per program its turns' times, or the error."""
    result = {name: program.prepare(layer, dtype) or [] for name, program in programs.items()}
    for _ in range(rounds):
        for name, program in programs.items():
            if isinstance(result[name], str):
                continue
            time_or_error = program.turn()
            if isinstance(time_or_error, str):
                result[name] = time_or_error
            else:
                result[name].append(time_or_error)
    return result


def summarise(layer, dtype, turns, algorithm):
    of_turns = min if "before" in turns else statistics.median
    milliseconds = {name: None if isinstance(times, str) else of_turns(times) * 1e3
                    for name, times in turns.items()}
    own = milliseconds["convgrad"]
    known = {name: milliseconds[name] for name in PEERS if milliseconds.get(name)}
    best = min(known, key=known.get) if known else None
    return {"name": layer["name"], "count": layer["count"], "dtype": dtype, "layout": layer["layout"], "algorithm": algorithm,
            "gflop": layer["flops"] * 1e-9, "ms": milliseconds,
            "gflops": {name: layer["flops"] / ms * 1e-6 if ms else None for name, ms in milliseconds.items()},
            "turns_ms": {name: [t * 1e3 for t in times] for name, times in turns.items() if not isinstance(times, str)},
            "errors": {name: times for name, times in turns.items() if isinstance(times, str)},
            "best_peer": best, "ratio": known[best] / own if best and own else None,
            "ratios": {name: ms / own for name, ms in milliseconds.items() if ms and own and name != "convgrad"}}


def geometric_means(rows):
    """Of the layers that each program computes; best is the faster of the peers."""
    means = {}
    for name in ("before", "im2col", *PEERS, "best"):
        ratios = [row["ratio"] if name == "best" else row["ratios"].get(name) for row in rows]
        logs = [math.log(ratio) for ratio in ratios if ratio]
        if logs:
            means[name] = {"ratio": math.exp(sum(logs) / len(logs)), "layers": len(logs)}
    return means


def cell(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def rival(programs):
    return "before" if "before" in programs else "best peer"


def titles_of(programs):
    return [*(f"{TITLES[name]} ms" for name in programs), "GFLOP/s", f"{rival(programs)} / convgrad"]


def cells_of(row, programs):
    ratio = row["ratios"].get("before") if "before" in programs else row["ratio"]
    return [*(cell(row["ms"][name]) for name in programs), cell(row["gflops"]["convgrad"], 1), cell(ratio)]


def mean_lines(rows):
    parts = [f"{'best peer' if name == 'best' else TITLES[name]} / convgrad {mean['ratio']:.2f} ({mean['layers']} layers)"
             for name, mean in geometric_means(rows).items()]
    return f"geometric mean of {rows[0]['dtype']}: " + ", ".join(parts)


def totals(rows):
    """Per network and dtype the times of all layers by their counts, and the ratios to convgrad's: of a peer that cannot
    compute some, without these, whose number is the second."""
    networks = {}
    for row in rows:
        networks.setdefault((network_of(row), row["dtype"]), []).append(row)
    result = []
    for (network, dtype), layers in networks.items():
        own = [row for row in layers if row["ms"]["convgrad"]]
        total = {"network": network, "dtype": dtype, "layers": sum(row["count"] for row in layers), "problems": len(layers),
                 "ms": sum(row["count"] * row["ms"]["convgrad"] for row in own)}
        for name in (*PEERS, "best"):
            known = [(row["count"], theirs, row["ms"]["convgrad"]) for row in own
                     if (theirs := row["ms"].get(row["best_peer"] if name == "best" else name))]
            if known:
                total[name] = (sum(count * theirs for count, theirs, _ in known) / sum(count * ours for count, _, ours in known),
                               len(layers) - len(known))
        result.append(total)
    return result


BEST = {"best": "best of both, layer by layer,"}


def total_line(total, batch):
    ratios = [f"{(TITLES | BEST)[name]} / convgrad {total[name][0]:.2f}"
              + (f" ({total[name][1]} of {total['problems']} problems left out)" if total[name][1] else "")
              for name in (*PEERS, "best") if name in total]
    return (f"{total['network']}, batch {batch}, {total['dtype']}, {total['layers']} layers: convgrad {total['ms']:.0f} ms; "
            + ", ".join(ratios))


def below_line(rows):
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    return f"{sum(ratio < .9 for ratio in ratios)} of {len(ratios)} below 0.9, the least {min(ratios, default=math.nan):.2f}"


def markdown(report, programs):
    lines = [report["machine"], ""]
    if report["totals"]:
        names = [name for name in (*PEERS, "best") if any(name in total for total in report["totals"])]
        lines += ["| network | dtype | layers | convgrad ms | " + " | ".join((TITLES | BEST)[name].rstrip(",") for name in names) + " |",
                  "| --- | --- | ---: | ---: |" + " ---: |" * len(names)]
        for total in sorted(report["totals"], key=lambda total: total["network"].lower()):
            ratios = [cell(total[name][0]) + (f" ({total[name][1]} left out)" if total[name][1] else "") if name in total else "–"
                      for name in names]
            lines.append(f"| {total['network']} | {total['dtype']} | {total['layers']} | {total['ms']:.0f} | " + " | ".join(ratios) + " |")
        return "\n".join([*lines, ""])
    for dtype in report["dtypes"]:
        rows = [row for row in report["layers"] if row["dtype"] == dtype]
        lines += [f"| {dtype} | " + " | ".join(titles_of(programs)) + " |",
                  "| --- |" + " ---: |" * (len(programs) + 2)]
        lines += [f"| {row['name']} | " + " | ".join(cells_of(row, programs)) + " |" for row in rows]
        lines += ["", mean_lines(rows).capitalize() + ".", ""]
    return "\n".join(lines)


def first_line(options, info, measured):
    tool, blas = info["tool"], info["tool"]["blas"]
    versions = [f"convgrad {tool['version']} ({tool['git']})", *([f"before: {options.before}"] if options.before else []),
                f"{' '.join(blas['config'].split()[:2])} ({blas['core']} kernels)",
                *(f"{TITLES[name]} {peer.version}" for name, peer in measured.items())]
    plural = "" if options.threads == 1 else "s"
    return f"{info['machine']['processor']}, {options.threads} thread{plural}; {', '.join(versions)}"


# ---- The program ---------------------------------------------------------------------------------

def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensorflow-python", metavar="PATH", help="a Python that has tensorflow; without it, it is left out")
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has torch; without it, it is left out")
    parser.add_argument("--binary", metavar="PATH", default=str(ROOT / "build/release/convgrad"), help="convgrad")
    parser.add_argument("--before", metavar="PATH", help="another convgrad, measured instead of OpenBLAS im2col")
    parser.add_argument("--suite", metavar="FILE", default=str(ROOT / "bench/layers/reference.tsv"))
    parser.add_argument("--network", metavar="NAME", help="a list of networks of bench/layers/networks.tsv, or all: their layers and totals")
    parser.add_argument("--batch", type=int, default=4, metavar="N", help="images of each layer of --network; 4 by default")
    parser.add_argument("--draw", type=int, metavar="N", help="N layers of these networks, drawn at random")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of --draw")
    parser.add_argument("--only", metavar="TEXT", default="", help="layers whose names hold TEXT")
    parser.add_argument("--dtype", default="float32", help="a list with commas; float32 by default")
    parser.add_argument("--layout", choices=("nhwc", "nchw"), help="for all layers; by default as the suite says")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3, help="runs of a turn at least")
    parser.add_argument("--min-time", type=float, default=0.2, help="seconds of a turn at least")
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument("--json", metavar="FILE", help="what python3 -m convgrad.plot roofline --peers takes")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.dtypes = options.dtype.split(",")
    if not set(options.dtypes) <= set(DTYPES):
        parser.error(f"--dtype: '{options.dtype}', expected a list of {', '.join(DTYPES)}")
    if min(options.threads, options.rounds, options.repeat) < 1:
        parser.error("--threads, --rounds and --repeat must be at least 1")
    if options.before and not shutil.which(options.before):
        parser.error(f"--before: '{options.before}' is no program, expected another convgrad")
    return options


def compare(options, programs, layers):
    rows = []
    width = max(len(layer["name"]) for layer in layers)
    for dtype in options.dtypes:
        titles = titles_of(programs)
        print(f"\n{dtype:{width}}  " + "  ".join(titles), flush=True)
        of_dtype, known = [], {}
        for layer in layers:
            problem = problem_of(layer)
            if problem not in known:
                turns = measure(programs, layer, dtype, options.rounds)
                known[problem] = turns, getattr(programs["convgrad"], "used", None)
            row = summarise(layer, dtype, *known[problem])
            of_dtype.append(row)
            print(f"{row['name']:{width}}  " + "  ".join(f"{text:>{len(title)}}" for text, title in
                                                         zip(cells_of(row, programs), titles)), flush=True)
            for name, error in row["errors"].items():
                print(f"{'':{width}}  {TITLES[name]}: {error}", file=sys.stderr, flush=True)
        print(mean_lines(of_dtype), flush=True)
        for total in totals(of_dtype) if options.network else ():
            print(total_line(total, options.batch), flush=True)
        if options.draw:
            print(f"seed {options.seed}: {below_line(of_dtype)}", flush=True)
        rows += of_dtype
    return {"threads": options.threads, "rounds": options.rounds, "repeat": options.repeat,
            "min_time_s": options.min_time, "suite": options.suite, "dtypes": options.dtypes, "layers": rows,
            "totals": totals(rows) if options.network else [],
            "geometric_mean": {dtype: geometric_means([row for row in rows if row["dtype"] == dtype])
                               for dtype in options.dtypes}}


def main():
    options = parse()
    if options.worker:
        return peers.serve(*options.worker, Answers)
    layers = read_suite(NETWORKS if options.network or options.draw else options.suite, options.layout, options.only)
    if options.network:
        layers = of_networks(layers, options.network, options.batch)
    elif options.draw:
        layers = drawn(layers, options.draw, options.seed)
    programs = {"convgrad": Convgrad(options.binary, "auto", options)}
    if options.before:
        programs["before"] = Convgrad(options.before, "auto", options)
    elif not options.network:  # it takes longer than all others together for depthwise layers
        programs["im2col"] = Convgrad(options.binary, "im2col_gemm", options)
    measured = {}
    for name, python in (("torch", options.torch_python), ("tensorflow", options.tensorflow_python)):
        if python:
            measured[name] = Peer(name, python, options)
        elif not options.before:
            print(f"{TITLES[name]} is left out: no --{name}-python", file=sys.stderr)
    info = json.loads(programs["convgrad"].call("info", "--json").stdout)
    machine = first_line(options, info, measured)
    print(machine, flush=True)
    programs.update(measured)
    report = {"machine": machine, "processor": info["machine"]["processor"],
              "peers": {name: f"{TITLES[name]} {peer.version}" for name, peer in measured.items()},
              **compare(options, programs, layers)}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    if options.markdown:
        pathlib.Path(options.markdown).write_text(markdown(report, programs))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except peers.DoesNotStart as error:
        sys.exit(f"compare_peers.py: {error}")
