#!/usr/bin/env python3
"""Measures which filter gradients TensorFlow's and PyTorch's CPU ops compute, and writes docs/measurements/support.md.

    python3 scripts/measure_support.py --tensorflow-python tf/bin/python --torch-python torch/bin/python

Each combination of op, dtype, layout and variant runs in a process that may abort; the next process goes on behind it.
The results are judged by check_testdata.py's float64 definition and its bound.
"""
import argparse
import collections
import itertools
import pathlib
import re
import sys
import tempfile

import numpy as np

import peers
from check_testdata import DTYPES, LAYOUTS, filter_gradient, geometry, values_of, worst_ratio

COLUMNS = list(DTYPES)
NO_ATTRIBUTE = "no such attribute"
# The four of conv2d and conv3d and the two of depthwise that are counted as "op, dtype, layout, dilation, groups".
BASIC = ("plain", "dilated", "grouped", "dilated, grouped")
VARIANTS = {"conv2d": (*BASIC, "explicit padding", "unequal strides"),
            "depthwise": ("plain", "dilated", "explicit padding", "unequal strides"),
            "conv3d": (*BASIC, "explicit padding", "unequal strides")}
PEERS = {"TensorFlow, oneDNN on": ("tensorflow", {"TF_ENABLE_ONEDNN_OPTS": "1"}),
         "TensorFlow, TF_ENABLE_ONEDNN_OPTS=0": ("tensorflow", {"TF_ENABLE_ONEDNN_OPTS": "0"}),
         "PyTorch": ("torch", {})}


# ---- Problems ------------------------------------------------------------------------------------

def make_problem(op, variant, layout, dtype, padding):
    """A problem in the fields of golden.jsonl. With SAME the padding is even, so that PyTorch can express it."""
    extents = [5, 17, 15] if op == "conv3d" else [17, 15]
    axes, channels = len(extents), 8
    grouped, dilated = "grouped" in variant, "dilated" in variant
    strides = [1, 2, 1][-axes:] if variant == "unequal strides" else [1] * axes
    dilations = [2] * axes if dilated else [1] * axes
    pairs = [(1, 0), (0, 2), (1, 2)][-axes:]

    def in_order(spatial, other):
        return [other, *spatial, other] if layout.endswith("C") else [other, other, *spatial]

    per_group = channels // 2 if grouped else channels
    problem = {"op": op, "dtype": dtype, "data_format": layout, "padding": padding,
               "filter_sizes": [3] * axes + [per_group, 2 if op == "depthwise" else channels],
               "strides": in_order(strides, 1), "dilations": in_order(dilations, 1), "explicit_paddings": []}
    if padding == "EXPLICIT":
        problem["explicit_paddings"] = [p for pair in in_order(pairs, (0, 0)) for p in pair]
    outs = [axis[3] for axis in geometry(problem, extents)]
    wanted = channels * problem["filter_sizes"][-1] if op == "depthwise" else channels
    shape = lambda spatial, count: (2, *spatial, count) if layout.endswith("C") else (2, count, *spatial)
    return problem, shape(extents, channels), shape(outs, wanted)


def to_dtype(array, dtype):
    """Rounded; bfloat16 as its bits in uint16, cut off, which is as good for random numbers."""
    if dtype == "bfloat16":
        return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return array.astype(DTYPES[dtype])


def all_combinations():
    for op, variants in VARIANTS.items():
        for variant, layout, dtype in itertools.product(variants, LAYOUTS[op], COLUMNS):
            yield op, variant, layout, dtype


def problems_of(combination):
    """Both paddings: TensorFlow's depthwise op with dilations fails in another way with each."""
    op, variant, layout, dtype = combination
    paddings = ("EXPLICIT",) if variant == "explicit padding" else ("SAME", "VALID")
    return {padding: make_problem(op, variant, layout, dtype, padding) for padding in paddings}


# ---- Workers: they run in the peers' own Pythons -------------------------------------------------

def run_tensorflow(problem, x, dy):
    import ml_dtypes
    import tensorflow as tf
    if problem["dtype"] == "bfloat16":
        x, dy = x.view(ml_dtypes.bfloat16), dy.view(ml_dtypes.bfloat16)
    attributes = {key: problem[key] for key in ("filter_sizes", "strides", "padding", "data_format", "dilations")}
    if problem["op"] != "conv3d":
        attributes["explicit_paddings"] = problem["explicit_paddings"]
    dw = getattr(tf.raw_ops, peers.TENSORFLOW_OPS[problem["op"]])(input=x, out_backprop=dy, **attributes).numpy()
    return dw.view(np.uint16) if problem["dtype"] == "bfloat16" else dw


def run_torch(problem, x, dy):
    import torch
    bfloat16, last = problem["dtype"] == "bfloat16", problem["data_format"].endswith("C")
    *kernel, per_group, out = problem["filter_sizes"]
    extents = x.shape[1:-1] if last else x.shape[2:]
    stride, dilation, padding, _ = zip(*geometry(problem, extents))

    def tensor(array):
        made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if bfloat16 else torch.from_numpy(array)
        return made.movedim(-1, 1) if last else made   # a view: NHWC in memory is torch.channels_last

    x, dy = tensor(x), tensor(dy)
    groups = x.shape[1] if problem["op"] == "depthwise" else x.shape[1] // per_group
    memory = {4: torch.channels_last, 5: torch.channels_last_3d}[x.dim()] if last else torch.contiguous_format
    weight = torch.empty((dy.shape[1], x.shape[1] // groups, *kernel), dtype=x.dtype).to(memory_format=memory)
    dw = torch.ops.aten.convolution_backward(dy, x, weight, None, stride, padding, dilation, False, [0] * len(kernel),
                                             groups, [False, True, False])[1]
    dw = dw.movedim((0, 1), (-1, -2)).contiguous().reshape(problem["filter_sizes"])
    return dw.view(torch.int16).numpy().view(np.uint16) if bfloat16 else dw.numpy()


def gradients_by(module):
    """Answers a worker's requests: a problem, and the folder with its x.npy and dy.npy that dw.npy is to be in."""
    run = {"tensorflow": run_tensorflow, "torch": run_torch}[module.__name__]

    def answer(problem):
        folder = pathlib.Path(problem["folder"])
        x, dy = (np.load(folder / name, mmap_mode="c") for name in ("x.npy", "dy.npy"))
        if problem["dtype"] == "bfloat16":
            x, dy = x.view(np.uint16), dy.view(np.uint16)
        np.save(folder / "dw.npy", run(problem, x, dy))
        return {}

    return answer


# ---- Verdicts ------------------------------------------------------------------------------------

def verdict_of(answer, folder, problem, x, dy):
    if "how" in answer:
        first = next(iter(answer["error"].splitlines()), "")
        return answer["how"], re.sub(r"\{\{.*?\}\}|\[Op:.*", "", first).strip() if answer["how"] == "refuses" else ""
    dw = values_of(np.load(folder / "dw.npy"), problem["dtype"])
    ratio = worst_ratio(problem["dtype"], dw, *filter_gradient(problem, *(values_of(a, problem["dtype"]) for a in (x, dy))))
    return ("computes", "") if ratio <= 1 else ("wrong", f"{ratio:.2g} times the bound")


def measure(name, python):
    """{combination: {padding: (verdict, message)}} and the peer's version."""
    kind, variables = PEERS[name]
    worker = peers.Worker(__file__, kind, python, 1, variables, silence_s=240)
    verdicts, seeds = collections.defaultdict(dict), itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for combination in all_combinations():
            for padding, (problem, *shapes) in problems_of(combination).items():
                if padding == "EXPLICIT" and (kind == "torch" or problem["op"] == "conv3d"):
                    verdicts[combination][padding] = (NO_ATTRIBUTE, "")
                    continue
                rng = np.random.default_rng(next(seeds))
                x, dy = (to_dtype(rng.standard_normal(shape), problem["dtype"]) for shape in shapes)
                np.save(folder / "x.npy", x)
                np.save(folder / "dy.npy", dy)
                answer = worker.ask(problem | {"folder": str(folder)})
                verdicts[combination][padding] = verdict_of(answer, folder, problem, x, dy)
        worker.end()
    return verdicts, worker.version


def cell(answers):
    """One word, or one for each padding where they differ."""
    words = {padding: verdict for padding, (verdict, _) in answers.items()}
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return ", ".join(f"{padding} {word}" for padding, word in words.items())


def count_computed(verdicts, combinations):
    return sum(cell(verdicts[c]) == "computes" for c in combinations)


def heads(*words):
    return ["| " + " | ".join((*words, *COLUMNS)) + " |", "| --- " * (len(words) + len(COLUMNS)) + "|"]


def table(verdicts):
    """A row for all that have the same cells."""
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    for op, variants in VARIANTS.items():
        for layout in LAYOUTS[op]:
            for variant in variants:
                cells = tuple(cell(verdicts[op, variant, layout, dtype]) for dtype in COLUMNS)
                rows[cells][op, layout].append(variant.replace(",", " and"))
    lines = heads("")
    for cells, alike in rows.items():
        layouts = collections.defaultdict(list)
        for (op, layout), variants in alike.items():
            layouts[op, ", ".join(variants)].append(layout)
        named = "; ".join(f"{op} {', '.join(found)}: {variants}" for (op, variants), found in layouts.items())
        lines.append(f"| {named} | {' | '.join(cells)} |")
    return "\n".join(lines)


def messages(verdicts):
    seen = collections.Counter()
    for (op, *_), answers in verdicts.items():
        for verdict, message in answers.values():
            if verdict == "refuses":
                seen[f"{op}: {message}"] += 1
    return "\n".join(f"- {text} ({count})" for text, count in sorted(seen.items()))


def worst_of(verdicts):
    """The largest error of each op, variant and dtype whose values are wrong."""
    seen = collections.defaultdict(lambda: collections.defaultdict(float))
    for (op, variant, _, dtype), answers in verdicts.items():
        for verdict, message in answers.values():
            if verdict == "wrong":
                found = seen[op, variant]
                found[dtype] = max(found[dtype], float(message.split()[0]))
    if not seen:
        return ""
    rows = [f"| {op} | {variant} | "
            + " | ".join(f"{found[dtype]:.2g}" if dtype in found else "" for dtype in COLUMNS) + " |"
            for (op, variant), found in seen.items()]
    return "\n".join([*heads("op", "variant"), *rows])


INTRODUCTION = """# What TensorFlow and PyTorch compute on the CPU

convgrad computes all of these filter gradients, which its tests check. This page is written by
```
python3 scripts/measure_support.py --tensorflow-python PATH --torch-python PATH
```

| | of all {all} | of the {basic} of op, dtype, layout, dilation, groups |
| --- | ---: | ---: |
"""

DEFINITIONS = """
"computes" means that every element lies within the [bound](../numerics.md#bound-the-worst-case) of the float64 definition, "wrong" that one does not. "refuses" is an error,
"aborts" the process's end, and "no such attribute" uneven padding, which TensorFlow's conv3d and PyTorch lack.
"""

METHOD = """
## How it is measured
TensorFlow was called by its raw ops and PyTorch by `torch.ops.aten.convolution_backward`, with 3x3 (3x3x3) filters, 2 images of 17x15 pixels (5 frames),
8 channels, 2 groups, dilation 2 and multiplier 2; padding was SAME and VALID, and uneven for the explicit variants. A cell has one word, or
one for each padding. The script also prints the other two tables, and messages. Processor: {processor}.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensorflow-python", metavar="PATH")
    parser.add_argument("--torch-python", metavar="PATH")
    parser.add_argument("-o", "--output", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "docs" / "measurements" / "support.md")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        peers.serve(*options.worker, gradients_by)
        return
    if not (options.tensorflow_python and options.torch_python):
        parser.error("--tensorflow-python and --torch-python are needed")
    everything = list(all_combinations())
    basic = [c for c in everything if c[1] in BASIC]
    text = INTRODUCTION.format(all=len(everything), basic=len(basic))
    tables, details = DEFINITIONS, ""
    for name, (peer, _) in PEERS.items():
        python = options.tensorflow_python if peer == "tensorflow" else options.torch_python
        verdicts, version = measure(name, python)
        title = name.replace("TensorFlow", f"TensorFlow {version}").replace("PyTorch", f"PyTorch {version}")
        text += (f"| {title} computes | {count_computed(verdicts, everything)} |"
                 f" {count_computed(verdicts, basic)} |\n")
        found = f"\n## {title}\n\n{table(verdicts)}\n"
        if tables == DEFINITIONS:
            tables += found
        else:
            details += found
        if messages(verdicts):
            details += f"\n{title} refuses with (how often):\n{messages(verdicts)}\n"
        if worst_of(verdicts):
            details += f"\nWrong values of {title}, the largest error in bounds:\n\n{worst_of(verdicts)}\n"
    text += tables + METHOD.format(processor=peers.processor())
    print(text + details, end="")
    options.output.write_text(text)


if __name__ == "__main__":
    try:
        main()
    except peers.DoesNotStart as error:
        sys.exit(f"measure_support: {error}")
