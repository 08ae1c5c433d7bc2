#!/usr/bin/env python3
"""Measures convgrad on a CUDA device beside cuDNN (convgrad's algorithm cudnn) and PyTorch, where they are there.

    python3 scripts/bench_gpu.py --binary build/gpu/convgrad

Times are the device's own, for tensors that are in its memory, the median of the runs. float32 is without TF32 everywhere.
cuDNN is asked for deterministic algorithms; PyTorch is as fast as it can be, and as deterministic as that is.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare_peers  # noqa: E402

ROOT = compare_peers.ROOT


def bench(options, layer, dtype, algorithm):
    """(milliseconds, algorithm, GB/s, TFLOP/s) of one layer, or None and the reason."""
    command = [options.binary, "bench", "--suite", options.suite, "--only", layer["name"], "--dtype", dtype, "-b", "cuda",
               "-a", algorithm, "--repeat", "10", "--min-time", "0.02", "--warmup", "2", "--json=-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.strip()
    for problem in json.loads(done.stdout)["problems"]:
        if problem["name"] == layer["name"]:
            perf = problem["perf"]
            return (problem["timing_ms"]["kernel"]["median"], problem["execution"]["algorithm"], perf["gbytes_per_s"],
                    perf["gflops"] / 1e3), None
    return None, "not in the report"


class Torch:
    def __init__(self):
        import torch
        torch.set_grad_enabled(False)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no device")
        self.torch = torch

    def milliseconds(self, layer, dtype):
        torch = self.torch
        if any(before != after for before, after in layer["pads"]):
            return None
        deep = torch.channels_last_3d if layer["op"] == "conv3d" else torch.channels_last
        form = deep if layer["layout"].endswith("C") else torch.contiguous_format

        def normal(*shape):
            made = torch.randn(*shape, device="cuda", dtype=torch.float32)
            return made.to(getattr(torch, dtype)).contiguous(memory_format=form)

        x = normal(layer["N"], layer["C"], *layer["in"])
        dy = normal(layer["N"], layer["K"], *layer["out"])
        w = normal(layer["K"], layer["C"] // layer["groups"], *layer["taps"])
        backward = torch.ops.aten.convolution_backward

        def run():
            backward(dy, x, w, None, layer["strides"], [before for before, _ in layer["pads"]], layer["dilations"], False,
                     [0] * len(layer["strides"]), layer["groups"], [False, True, False])

        times = []
        for i in range(13):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            end.synchronize()
            if i >= 3:
                times.append(start.elapsed_time(end))
        return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/convgrad"))
    parser.add_argument("--suite", default=str(ROOT / "bench/layers/reference.tsv"))
    parser.add_argument("--dtype", default="float16,bfloat16,float32,float64")
    parser.add_argument("--seconds", type=float, default=400, help="no new layer is begun after so many")
    options = parser.parse_args()
    os.environ.pop("CONVGRAD_BACKEND", None)
    start = time.monotonic()
    try:
        torch = Torch()
    except Exception as error:  # the table does without it
        torch = None
        print(f"without PyTorch: {error}", file=sys.stderr)
    info = json.loads(subprocess.run([options.binary, "info", "--json"], capture_output=True, text=True, check=True).stdout)
    if not info["cuda"]["devices"]:
        sys.exit("bench_gpu.py: " + info["cuda"]["why_none"])
    device = info["cuda"]["devices"][0]
    rows, failed = [], 0
    for dtype in options.dtype.split(","):
        for layer in compare_peers.read_suite(options.suite, None, ""):
            if time.monotonic() - start > options.seconds * 0.9:
                print("out of time: the rest is left out", file=sys.stderr)
                break
            ours, reason = bench(options, layer, dtype, "auto")
            if ours is None:
                print(f"{layer['name']} {dtype}: {reason}", file=sys.stderr)
                failed += 1
                continue
            cudnn, _ = bench(options, layer, dtype, "cudnn")
            try:
                other = torch.milliseconds(layer, dtype) if torch else None
            except Exception as error:  # what a peer cannot do is a result
                print(f"PyTorch: {layer['name']} {dtype}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
                other = None
            peers = [time_ms for time_ms in (cudnn[0] if cudnn else None, other) if time_ms]
            rows.append((layer["name"], dtype, *ours, cudnn[0] if cudnn else None, other,
                         min(peers) / ours[0] if peers else None))

    def cell(value):
        return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)

    print(f"\n{device['name']}, compute capability {device['compute_capability']}, {device['multiprocessors']} multiprocessors")
    print("| layer | dtype | convgrad ms | algorithm | GB/s | TFLOP/s | cuDNN ms | PyTorch ms | best peer / convgrad |")
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        print("| " + " | ".join(cell(value) for value in row) + " |")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
