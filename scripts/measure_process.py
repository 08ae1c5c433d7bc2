#!/usr/bin/env python3
"""Times whole processes, from files to file, with the files in the page cache.

    python3 scripts/measure_process.py [--binary PATH] [--tensorflow-python PATH] [--rounds N]
    python3 scripts/measure_process.py --verify bench/layers/reference.tsv [--before PATH]
    python3 scripts/measure_process.py --spot-check bench/layers/reference.tsv [--before PATH]

1. A depthwise 3x3 layer whose x and dy have 100 MB each, beside `cat x.npy dy.npy > /dev/null`, also with --spot-check 16: on
   the processor, where the check waits for the kernel that it overlaps with on a device.
2. A 3x3 layer of 16x14x14x256 -> 256, also with the check, beside a Python process that imports TensorFlow, loads the same files, computes the
   same gradient and saves it.
3. A 3x3 layer of 64x56x56x64 -> 64 by the Python package, on arrays, beside the program on files in memory that are there already.
With --verify: `verify --result` of each layer of a suite in float32, beside that of another program, an earlier one.
With --spot-check: each layer of a suite in float32, of so many images that x and dy have 600 MB, with --spot-check 16 and without, also by
the other program, with `cat` of both; then the processor's seconds that the check takes, on a device beside the copies and kernels.
All take turns; the shortest time of each counts.
"""
import argparse
import itertools
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

from compare_peers import read_suite
from peers import environment

ROOT = pathlib.Path(__file__).resolve().parents[1]
TENSORFLOW = """
import sys
import numpy as np
import tensorflow as tf
x, dy = np.load("x.npy"), np.load("dy.npy")
dw = tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=[3, 3, 256, 256], out_backprop=dy, strides=[1, 1, 1, 1],
                                     padding="SAME")
np.save("dw_tensorflow.npy", dw.numpy())
"""


def save(folder, name, shape, rng):
    np.save(folder / name, rng.standard_normal(shape, dtype=np.float32))


def seconds(command, folder, env):
    start = time.perf_counter()
    status = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    if status > 1:  # 1 is a mismatch
        raise SystemExit(f"{' '.join(command)}: status {status}")
    return time.perf_counter() - start


def shortest(commands, folder, rounds, env):
    times = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(seconds(command, folder, env))
    return {name: min(values) for name, values in times.items()}


def layer_flags(layer):
    """As programs from before lines know them."""
    flags = ["--op", layer["op"]]
    for flag, numbers in (("-k", layer["taps"]), ("-s", layer["strides"]), ("-d", layer["dilations"]),
                          ("--explicit-paddings", itertools.chain(*layer["pads"]))):
        flags += [flag, ",".join(map(str, numbers))]
    return [*flags, "-f", layer["layout"], "--groups", str(layer["groups"])]


def tensor_shape(layer, channels, extents):
    return [channels, *extents] if layer["layout"].startswith("NC") else [*extents, channels]


def halves_apart(folder, program, flags, terms, env):
    """Makes the tensors' numbers positive, of dy's odd images negative, and a gradient with the errors of float32 sums of so many
    terms that take the odd images behind the even ones."""
    x, dy = (np.abs(np.load(folder / f"{name}.npy")) for name in ("input", "out_backprop"))
    dy[1::2] *= -1
    np.save(folder / "x.npy", x)
    np.save(folder / "dy.npy", dy)
    random, total = np.random.default_rng(2), 0
    for first in range(min(2, len(x))):
        np.save(folder / "x_half.npy", x[first::2])
        np.save(folder / "dy_half.npy", dy[first::2])
        subprocess.run([program, "-i", "x_half.npy", "-g", "dy_half.npy", "-o", "half.npy", *flags], cwd=folder, env=env,
                       check=True, capture_output=True)
        half = np.load(folder / "half.npy")
        total = total + half * (1 + 2**-24 * terms**0.5 / 4 * random.standard_normal(half.shape))
    np.save(folder / "order.npy", total.astype("f4"))


def verify_suite(suite, programs, rounds, env):
    """Prints a line for each layer, and the geometric means of the last program's times over the first's, and over its own of a match:
    of the right gradient, of one with noise, which no fault explains, and of one that sums in another order."""
    results = {"gradient.npy": ("input.npy", "out_backprop.npy"), "noise.npy": ("input.npy", "out_backprop.npy"),
               "order.npy": ("x.npy", "dy.npy")}
    ratios = {result: [] for result in results}
    for layer in read_suite(suite, None, ""):
        flags = layer_flags(layer)
        shape = ",".join(map(str, [layer["N"], *tensor_shape(layer, layer["C"], layer["in"])]))
        with tempfile.TemporaryDirectory() as folder:
            run = [programs[-1], "generate", "--shape", shape, *flags, "--out-channels", str(layer["K"]), "--dist", "normal",
                   "-o", folder, "--clobber"]
            subprocess.run(run, env=env, check=True, capture_output=True)
            right = np.load(pathlib.Path(folder) / "gradient.npy")
            noise = np.random.default_rng(1).standard_normal(right.shape)
            np.save(pathlib.Path(folder) / "noise.npy", (right * (1 + 1e-3 * noise)).astype(right.dtype))
            halves_apart(pathlib.Path(folder), programs[-1], flags, layer["N"] * math.prod(layer["out"]), env)
            cells = []
            for result, (x, dy) in results.items():
                verify = ["verify", "-i", x, "-g", dy, "--result", result, *flags]
                times = shortest({program: [program, *verify] for program in programs}, folder, rounds, env)
                match = times if result == "gradient.npy" else match
                ratios[result].append([times[programs[-1]] / other for other in (times[programs[0]], match[programs[-1]])])
                cells += [*(f"{times[program]:7.3f} s" for program in programs), f"x {ratios[result][-1][0]:.2f}"]
        print(f"{layer['name']:20s}", "  ".join(cells), flush=True)
    for result, values in ratios.items():
        for of, each in zip(("the first program's time", "a match"), zip(*values)):
            print(f"{result}, {len(each)} layers, times {of}: geometric mean {np.exp(np.mean(np.log(each))):.2f}, most {max(each):.2f}")


def used_seconds(command, folder, env):
    """Also the processor's, of all threads."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = seconds(command, folder, env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def spot_check_suite(suite, programs, rounds, env):
    """Prints a line for each layer: milliseconds of cat; for each program, without and with the check, their ratio, for how many the
    processor works without it and how many more with it."""
    most = {program: 0 for program in programs}
    for layer in read_suite(suite, None, ""):
        x = tensor_shape(layer, layer["C"], layer["in"])
        dy = tensor_shape(layer, layer["K"], layer["out"])
        images = -(-600_000_000 // (4 * (math.prod(x) + math.prod(dy))))
        with tempfile.TemporaryDirectory() as folder:
            for name, shape in (("x.npy", x), ("dy.npy", dy)):
                values = np.random.default_rng(1).standard_normal(5_000_011, dtype=np.float32)
                tensor = np.lib.format.open_memmap(pathlib.Path(folder) / name, "w+", np.float32, (images, *shape)).reshape(-1)
                for begin in range(0, tensor.size, values.size):
                    tensor[begin:begin + values.size] = values[:tensor.size - begin]
            commands = {"cat": ["sh", "-c", "cat x.npy dy.npy > /dev/null"]}
            for program in programs:
                for check in ("0", "16"):
                    commands[program + check] = [program, "-i", "x.npy", "-g", "dy.npy", "-o", "dw.npy", *layer_flags(layer),
                                                 "--spot-check", check]
            turns = [[used_seconds(command, folder, env) for command in commands.values()] for _ in range(rounds)]
        wall, used = (dict(zip(commands, np.min(turns, axis=0)[:, i])) for i in range(2))
        cells = [f"{layer['name']:20s} cat {wall['cat'] * 1e3:4.0f}"]
        for program in programs:
            (free, checked), (alone, both) = ((of[program + "0"], of[program + "16"]) for of in (wall, used))
            most[program] = max(most[program], checked / free)
            cells.append(f"{free * 1e3:5.0f} {checked * 1e3:5.0f}  x {checked / free:.3f}  {alone * 1e3:5.0f} {(both - alone) * 1e3:+5.0f}")
        print("   ".join(cells), flush=True)
    print("most", "  ".join(f"x {ratio:.3f}" for ratio in most.values()))


def python_package(binary, rounds, env):
    """Prints what arrays cost beside files."""
    os.environ.clear()
    os.environ.update(env, PATH=f"{os.path.dirname(binary)}:{env['PATH']}")
    sys.path.insert(0, str(ROOT / "python"))
    import convgrad
    rng = np.random.default_rng(1)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        folder = pathlib.Path(name)
        for tensor in ("x.npy", "dy.npy"):
            save(folder, tensor, (64, 56, 56, 64), rng)
        x, dy = np.load(folder / "x.npy"), np.load(folder / "dy.npy")
        words = ["--op", "conv2d", "-i", folder / "x.npy", "-g", folder / "dy.npy", "-k", "3", "-p", "same"]
        layer = {"op": "conv2d", "kernel": 3, "padding": "same"}
        dw = convgrad.filter_gradient(x, dy, **layer)
        np.save(folder / "dw.npy", dw)
        for call, function, command in (
                ("filter_gradient", lambda: convgrad.filter_gradient(x, dy, **layer), [*words, "-o", folder / "out.npy"]),
                ("verify", lambda: convgrad.verify(x, dy, dw, **layer), ["verify", *words, "--result", folder / "dw.npy"])):
            times = {"arrays": [], "files": []}
            for _ in range(rounds):
                for name, run in (("files", lambda: convgrad.run(command)), ("arrays", function)):
                    start = time.perf_counter()
                    run()
                    times[name].append(time.perf_counter() - start)
            arrays, files = min(times["arrays"]), min(times["files"])
            print(f"{call}() of a 3x3 layer, 64x56x56x64: {arrays * 1e3:.0f} ms, the program on files {files * 1e3:.0f} ms ({arrays / files:.2f} x)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/convgrad"), metavar="PATH")
    parser.add_argument("--tensorflow-python", metavar="PATH", help="a Python that has tensorflow; left out without it")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--verify", metavar="SUITE", help="time verify of these layers instead")
    parser.add_argument("--spot-check", metavar="SUITE", help="time the spot check of these layers instead")
    parser.add_argument("--before", metavar="PATH", help="another convgrad, which takes turns with --binary")
    arguments = parser.parse_args()
    env = environment()
    binary = str(pathlib.Path(arguments.binary).resolve())
    for suite, measure in ((arguments.verify, verify_suite), (arguments.spot_check, spot_check_suite)):
        if suite:
            programs = [str(pathlib.Path(path).resolve()) for path in (arguments.before, binary) if path]
            measure(suite, programs, arguments.rounds, env)
            return
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for tensor in ("x.npy", "dy.npy"):
            save(folder, tensor, (27, 80, 80, 144), rng)
        job = [binary, "-i", "x.npy", "-g", "dy.npy", "-o", "dw.npy", "-k", "3", "-p", "same", "--op"]
        checked = ["--spot-check", "16"]
        times = shortest({"cat": ["sh", "-c", "cat x.npy dy.npy > /dev/null"], "convgrad": [*job, "depthwise"],
                          "checked": [*job, "depthwise", *checked]}, folder, arguments.rounds, env)
        print(f"depthwise 3x3, {2 * (folder / 'x.npy').stat().st_size / 1e6:.0f} MB of x and dy: "
              f"cat {times['cat'] * 1e3:.1f} ms, convgrad {times['convgrad'] * 1e3:.1f} ms "
              f"({times['convgrad'] / times['cat']:.2f} x cat), spot-checked {times['checked'] * 1e3:.1f} ms")
        for tensor in ("x.npy", "dy.npy"):
            save(folder, tensor, (16, 14, 14, 256), rng)
        times = shortest({"convgrad": [*job, "conv2d"], "checked": [*job, "conv2d", *checked]}, folder, arguments.rounds, env)
        print(f"3x3, 16x14x14x256 -> 256: convgrad {times['convgrad'] * 1e3:.1f} ms, spot-checked {times['checked'] * 1e3:.1f} ms")
        if arguments.tensorflow_python:
            command = {"TensorFlow": [os.path.abspath(arguments.tensorflow_python), "-c", TENSORFLOW]}
            slow = shortest(command, folder, min(arguments.rounds, 3), env)["TensorFlow"]
            print(f"the same in a Python process with TensorFlow: {slow * 1e3:.0f} ms "
                  f"({slow / times['convgrad']:.0f} x convgrad)")
            ours, theirs = np.load(folder / "dw.npy"), np.load(folder / "dw_tensorflow.npy")
            if not np.allclose(ours, theirs, rtol=1e-3, atol=1e-3):
                sys.exit("the two gradients differ")
    python_package(binary, arguments.rounds, env)


if __name__ == "__main__":
    main()
