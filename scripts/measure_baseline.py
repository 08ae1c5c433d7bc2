#!/usr/bin/env python3
"""How often does `convgrad bench --baseline` raise a false alarm, and how often does it miss a program that is 15 % slower,
while another process uses the other core?

    python3 scripts/measure_baseline.py [--runs 25] [--convgrad PATH]

Everything, the baseline too, is measured on one thread beside a process that computes, copies memory and sleeps for random
times; a row of the baseline for 0.5 s, an attempt at one of a run for 0.1 s. Against the baseline with all times and multiples of the yardstick divided by
1.15 the same program is one that takes 15 % longer. Prints the runs that ended with status 1 (slower), the rows that they named, and the runs in which the
median of some row's quietest attempt was more than 10 % above the baseline's median.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUITE = """conv3x3_64_64_14  conv2d    NHWC 20  14,14 64  64 3,3 1 1 SAME 1
dw5x5_96_14       depthwise NHWC 100 14,14 96  1  5,5 1 1 SAME 0
"""
LOAD = """
import random, time
memory = bytearray(1 << 26)
half = len(memory) // 2
while True:
    kind, end = random.randrange(3), time.monotonic() + random.uniform(0.05, 1)
    while time.monotonic() < end:
        if kind == 0: sum(range(10000))
        elif kind == 1: memory[:half] = memory[half:]
        else: time.sleep(0.01)
"""
COUNTS = ("min", "median", "p95", "per_yardstick")


def bench(program, folder, *args):
    """The exit status and the report."""
    suite = folder / "layers.txt"
    suite.write_text(SUITE)
    done = subprocess.run([program, "bench", "--suite", suite, "-t", "1", "--no-peaks", "--json",
                           *args], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return done.returncode, json.loads(done.stdout)


def save_baseline(path, report, factor):
    for problem in report["problems"]:
        kernel = problem["timing_ms"]["kernel"]
        for name in COUNTS:
            if kernel.get(name) is not None:  # programs before 0.2 have no yardstick
                kernel[name] /= factor
    path.write_text(json.dumps(report))


def row_of_table(what, program, folder, before, runs):
    old = json.loads(before.read_text())["problems"]
    slower = rows = by_median = attempts = 0
    for _ in range(runs):
        status, report = bench(program, folder, "--min-time", "0.1", "--baseline", before)
        problems = [(new["timing_ms"]["kernel"], base["timing_ms"]["kernel"])
                    for new, base in zip(report["problems"], old)]
        slower += status
        rows += len(report["baseline"]["regressions"])
        by_median += any(new["median"] > 1.1 * base["median"] for new, base in problems)
        attempts += sum(new["attempts"] for new, _ in problems) / len(problems)
    print(f"| {what} | {slower} of {runs} | {rows} of {runs * len(old)} | {by_median} of {runs} | {attempts / runs:.1f} |",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--convgrad", default=str(ROOT / "build/release/convgrad"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="convgrad-baseline.") as name, \
            subprocess.Popen([sys.executable, "-c", LOAD]) as load:
        folder = pathlib.Path(name)
        try:
            before = bench(args.convgrad, folder)[1]
            print("| program | runs with status 1 | rows named | runs that a median calls slower | attempts at a row |")
            print("| --- | ---: | ---: | ---: | ---: |")
            for what, factor in (("the same", 1), ("15 % slower", 1.15)):
                save_baseline(folder / "before.json", before, factor)
                row_of_table(what, args.convgrad, folder, folder / "before.json", args.runs)
        finally:
            load.kill()


if __name__ == "__main__":
    main()
