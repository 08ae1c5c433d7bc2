"""bench: convgrad's algorithms, cuDNN and PyTorch over the layers of layers/reference.tsv.

Times are the device's own between two events, around a CUDA graph of at least 20 gradients that take turns with copies of x and
dy of 256 MB together: starting kernels and the L2 cache count for nobody. convgrad's include the
tree; cuDNN's and PyTorch's are those of their gradients. float32 is without TF32 everywhere.
"""
import json
import os
import pathlib
import sys
import tempfile
import time

import compare_peers
import steps

STAGES = ("bfloat16", "float32", "float16", "float64")  # in the order of their worth, for those who do not come to the end
TORCH = ("PyTorch", "PyTorch deterministic")
SUITE = steps.HERE / "layers/reference.tsv"


def layers_of(stage):
    """Lines of the suite by name, and its layers."""
    if stage not in STAGES:
        sys.exit(f"run bench: '{stage}' is no stage, expected one of {', '.join(STAGES)}")
    lines = {line.split()[0]: line + "\n" for line in SUITE.read_text().splitlines() if not line.startswith("#")}
    return lines, compare_peers.read_suite(SUITE, None, "")


class Bench:
    def __init__(self, session, stage):
        self.session, self.stage = session, stage
        self.lines, self.layers = layers_of(stage)

    def add(self, layer, column, **row):
        self.session.add(stage=self.stage, layer=layer["name"], column=column, **row)

    def done(self, layer, column):
        return self.session.done(stage=self.stage, layer=layer["name"], column=column)

    # ---- convgrad and cuDNN ----

    def measure(self, layer, algorithms):
        """Adds the rows of a process; returns why it ended early, or ''."""
        with tempfile.TemporaryDirectory() as folder:
            suite, report = pathlib.Path(folder, "suite.tsv"), pathlib.Path(folder, "report.json")
            suite.write_text(self.lines[layer["name"]])
            command = [steps.PROGRAM, "bench", "--suite", suite, "--dtype", self.stage, "-b", self.session.backend, "-a",
                       algorithms, "--warmup", "1", "--repeat", "7", "--min-time", "0", "--no-peaks", f"--json={report}"]
            result = self.session.run(command, min(90, max(self.session.left(), 10)))
            rows = json.loads(report.read_text()).get("problems", ()) if report.exists() else ()
        for row in rows:
            time_ms, execution = row["timing_ms"]["kernel"], row["execution"]
            column = "auto" if execution["requested_algorithm"] == "auto" else execution["algorithm"]
            if not self.done(layer, column):
                self.add(layer, column, status="ok", algorithm=execution["algorithm"], ms=time_ms["median"],
                         least_ms=time_ms["min"], gflops=row["perf"]["gflops"], gbytes_per_s=row["perf"]["gbytes_per_s"])
        ended = "" if result.status == 0 else result.last_line()
        return result.no_device() or (f"hung after {result.seconds:.0f} s" if result.status is None else ended)

    def convgrad(self, layer):
        """All algorithms in a process; where one ends it, the others in one each. The reason, if there is no device."""
        names = ["auto", *self.session.algorithms()] if self.session.backend == "cuda" else ["auto"]
        if all(self.done(layer, name) for name in names):
            return ""
        reason = self.measure(layer, "auto,all")
        if any(words in reason for words in steps.NO_DEVICE):
            return reason
        for name in names:
            if not self.done(layer, name) and self.session.left() > 5:
                said = self.measure(layer, name) if reason else ""  # all: those that can compute it
                if not self.done(layer, name):
                    self.add(layer, name, status="none", reason=said or "not for this problem")
        return ""

    # ---- PyTorch ----

    def torch(self):
        """One process for all layers, started again behind one that it did not survive."""
        # Without the libraries that convgrad is given: PyTorch has its own. cuBLAS is deterministic with this workspace alone.
        env = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        while self.session.left() > 20:
            wanted = [{**layer, "dtype": self.stage, "column": column} for layer in self.layers for column in TORCH
                      if not self.done(layer, column)]
            if not wanted:
                return
            with tempfile.NamedTemporaryFile("w", suffix=".json") as request:
                json.dump(wanted, request)
                request.flush()
                python = os.environ.get("PYTHON") or sys.executable
                result = self.session.run([python, steps.HERE / "torch_times.py", request.name],
                                          min(60 + 10 * len(wanted), self.session.left()), env)
            answers = [json.loads(line) for line in result.out.splitlines()]
            for item, answer in zip(wanted, answers):
                self.add(item, item["column"], **answer)
            missing = wanted[len(answers):]
            if missing and self.session.left() > 5:
                reason = f"the process hung for {result.seconds:.0f} s" if result.status is None else result.last_line()
                # Status 3: there is no PyTorch, for none of them.
                for item in missing if result.status == 3 else missing[:1]:
                    self.add(item, item["column"], status="none", reason=reason)

    # ---- The stage ----

    def run(self):
        """The reason, if there is no device."""
        for layer in self.layers:
            if self.session.left() < 10:
                return ""
            reason = self.convgrad(layer)
            if reason:
                return reason
        self.torch()
        return ""

    def complete(self):
        columns = ("auto", "cudnn", *TORCH) if self.session.backend == "cuda" else ("auto", *TORCH)
        return all(self.done(layer, column) for layer in self.layers for column in columns)

    def table(self):
        rows = [row for row in self.session.rows if row.get("stage") == self.stage]
        lines = [f"### {self.stage}", "| layer | auto ms | by | TFLOP/s | GB/s | best own ms | by | cuDNN ms | cuDNN any ms "
                 "| PyTorch ms | deterministic ms | best peer / auto |", "|" + " --- |" * 12]
        reasons = {}
        for layer in self.layers:
            of = {row["column"]: row for row in rows if row["layer"] == layer["name"]}
            if not of:
                continue
            own = [row for name, row in of.items() if name.startswith("cuda_") and "ms" in row]
            best = min(own, key=lambda row: row["ms"], default={})
            auto = of.get("auto", {})
            ratio = ratio_of(of)
            lines.append("| " + " | ".join([
                layer["name"], number(auto.get("ms")), auto.get("algorithm", "").removeprefix("cuda_"),
                number(auto.get("gflops", 0) / 1e3), number(auto.get("gbytes_per_s")), number(best.get("ms")),
                best.get("algorithm", "").removeprefix("cuda_"),
                *(number(of.get(name, {}).get("ms")) for name in ("cudnn", "cudnn_any", *TORCH)), number(ratio)]) + " |")
            for name, row in of.items():
                if "ms" not in row:
                    reasons.setdefault((name, row["reason"]), []).append(layer["name"])
        for (name, reason), names in list(reasons.items())[:12]:
            where = "all" if len(names) == len(self.layers) else ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            lines.append(f"- {name} is empty ({where}): {reason[:160]}")
        return "\n".join(lines)


def number(value):
    return f"{value:.3g}" if value else "–"


def ratio_of(columns):
    """The best peer's time over auto's, of a layer's rows by column."""
    peers = [columns[name]["ms"] for name in ("cudnn", "cudnn_any", *TORCH) if "ms" in columns.get(name, {})]
    return min(peers) / columns["auto"]["ms"] if peers and "ms" in columns.get("auto", {}) else None


def bench(session):
    benches = [Bench(session, stage) for stage in session.words or STAGES]
    text = [device_lines(session)]
    status = 0
    for one in benches:
        if session.left() < 10:
            break
        begin = time.monotonic()
        reason = one.run()
        if reason:
            text.append(reason)
            status = 4
            break
        print(f"{one.stage}: {time.monotonic() - begin:.0f} s{'' if one.complete() else ', not complete'}", flush=True)
        text.append(one.table())
        (session.out / "bench.md").write_text("\n\n".join(text) + "\n")  # in case that the next one is the last
    rest = [one.stage for one in benches if not one.complete()]
    if rest:
        text.append(f"to go on: run bench {' '.join(rest)}")
    session.table("\n\n".join(text))
    return status


def device_lines(session):
    """What the device is and does, and how the programs were compiled."""
    query = "name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_throttle_reasons.active"
    result = session.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], 20)
    version = (steps.HERE / "version").read_text().split("\n")
    text = result.out.strip() if result.status == 0 else f"nvidia-smi: {result.last_line()}"
    if any("O0" in line for line in version):
        text += "\nWARNING: compiled without optimisation (scripts/gpu/stage --quick): these times mean nothing"
    return f"{text}\nstaged from {version[0]}"
