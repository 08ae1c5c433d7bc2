"""bench: convgrad's algorithms, cuDNN and PyTorch over the layers of layers/reference.tsv.

Times are the device's own between two events, around a CUDA graph of at least 20 gradients that take turns with copies of x and
dy of 256 MB together: starting kernels and the L2 cache count for nobody. convgrad's include the
tree; cuDNN's and PyTorch's are those of their gradients. float32 is without TF32 everywhere.
"""
import csv
import io
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time

import compare_peers
import steps

DTYPES = ("bfloat16", "float32", "float16", "float64")
# In the order of their worth, for those who do not come to the end.
STAGES = ("bfloat16", "float32", "bfloat16-n256", "float32-n64", "float16", "bfloat16-n64", "float32-n256", "float16-n64",
          "float16-n256", "float64")
TORCH = ("PyTorch", "PyTorch deterministic")
SUITE = steps.HERE / "layers/reference.tsv"


def layers_of(stage):
    """(dtype, lines of a suite by name, layers): with the stage's number of images in each layer of two dimensions."""
    dtype, _, images = stage.partition("-n")
    if dtype not in DTYPES or (images and not images.isdigit()):
        sys.exit(f"run bench: '{stage}' is no stage, expected DTYPE or DTYPE-nIMAGES, such as {', '.join(STAGES)}")
    lines = {}
    for line in SUITE.read_text().splitlines():
        if line.startswith("#") or (images and "conv3d" in line):
            continue
        name = line.split()[0]
        lines[name] = (re.sub(r" n\d+ ", f" n{images} ", line) if images else line) + "\n"
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write("".join(lines.values()))
        file.flush()
        return dtype, lines, compare_peers.read_suite(file.name, None, "")


class Bench:
    def __init__(self, session, stage):
        self.session, self.stage = session, stage
        self.dtype, self.lines, self.layers = layers_of(stage)

    def add(self, layer, column, **row):
        self.session.add(stage=self.stage, layer=layer["name"], column=column, **row)

    def done(self, layer, column):
        return self.session.done(stage=self.stage, layer=layer["name"], column=column)

    # ---- convgrad and cuDNN ----

    def measure(self, layer, algorithms):
        """Adds the rows that a process comes to; returns why it ended before the last one, or ''."""
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as suite:
            suite.write(self.lines[layer["name"]])
            suite.flush()
            command = [steps.PROGRAM, "bench", "--suite", suite.name, "--dtype", self.dtype, "-b", self.session.backend, "-a",
                       algorithms, "--warmup", "1", "--repeat", "7", "--min-time", "0", "--no-peaks", "--format", "csv"]
            result = self.session.run(command, min(90, max(self.session.left(), 10)))
        for row in csv.DictReader(io.StringIO(result.out)):
            if row["name"] != layer["name"] or not row.get("problem"):
                continue
            column = "auto" if row["requested_algorithm"] == "auto" else row["algorithm"]
            if not self.done(layer, column):
                self.add(layer, column, status="ok", algorithm=row["algorithm"], ms=float(row["median_ms"]),
                         least_ms=float(row["min_ms"]), gflops=float(row["gflops"]), gbytes_per_s=float(row["gbytes_per_s"]))
        if result.status == 0:
            return ""
        return result.no_device() or (f"hung after {result.seconds:.0f} s" if result.status is None else result.last_line())

    def convgrad(self, layer):
        """All algorithms in a process; where it ends early, those that are missing in one each. The reason, if there is no
        device."""
        if self.done(layer, "cudnn"):
            return ""
        # That auto is there and the last one is not: a call was cut off.
        reason = "cut off" if self.done(layer, "auto") else self.measure(layer, "auto,all")
        if any(words in reason for words in steps.NO_DEVICE):
            return reason
        if self.session.backend == "cpu":
            return ""
        missing = [name for name in self.algorithms() if not self.done(layer, name)]
        # An algorithm that is not there could not compute the layer. Its column's reason is that algorithm's own sentence.
        for name in missing if reason else [name for name in missing if name in ("cudnn", "cudnn_any", "cuda_wgmma")]:
            if self.session.left() < 5:
                break
            reason = self.measure(layer, name)
            if not self.done(layer, name):
                self.add(layer, name, status="none", reason=reason)
        return ""

    def algorithms(self):
        return ["auto", *(name for name in self.session.algorithms() if name != "cudnn"), "cudnn"]

    # ---- PyTorch ----

    def torch(self):
        """One process for all layers, started again behind one that it did not survive."""
        while self.session.left() > 20:
            wanted = [{**layer, "dtype": self.dtype, "column": column} for layer in self.layers for column in TORCH
                      if not self.done(layer, column)]
            if not wanted or not self.torch_once(wanted):
                return

    def torch_once(self, wanted):
        """True where it ended behind a row of its own and goes on with the next."""
        with tempfile.TemporaryFile("w+", errors="replace") as err:
            worker = TorchWorker(wanted, err)
            reason = ""
            for answers, item in enumerate(wanted):
                answer = worker.answer(min(60 if answers else 150, self.session.left()))
                reason = answer.pop("ended", "")
                if reason:
                    break
                self.add(item, item["column"], **answer)
            worker.end()
            err.seek(0)
            self.session.log(f"PyTorch, {self.stage}: {reason or 'done'}\n{err.read()[-2000:]}")
        if not reason or self.session.left() < 5:
            return False
        if not reason.startswith("the process"):  # the same for all: there is no PyTorch
            for item in wanted:
                self.add(item, item["column"], status="none", reason=reason)
            return False
        self.add(item, item["column"], status="none", reason=reason)
        return True

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
            # TF32 is another computation.
            own = [row for name, row in of.items() if name.startswith("cuda_") and name != "cuda_mma_tf32" and "ms" in row]
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


class TorchWorker:
    """torch_times.py: a process that answers one line of JSON for each layer."""

    def __init__(self, layers, err):
        # Without the libraries that convgrad is given: PyTorch has its own. cuBLAS is deterministic with this workspace alone.
        env = {key: value for key, value in os.environ.items() if not key.startswith("CONVGRAD_")}
        env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        self.text = b""
        with tempfile.TemporaryFile() as request:
            request.write(json.dumps(layers).encode())
            request.seek(0)
            self.process = subprocess.Popen([os.environ.get("PYTHON") or sys.executable, steps.HERE / "torch_times.py"],
                                            stdin=request, stdout=subprocess.PIPE, stderr=err, env=env, start_new_session=True)

    def answer(self, seconds):
        """The next; {"ended": why} instead where none comes."""
        end = time.monotonic() + seconds
        while b"\n" not in self.text:
            with selectors.DefaultSelector() as selector:
                selector.register(self.process.stdout, selectors.EVENT_READ)
                if not selector.select(max(end - time.monotonic(), 0)):
                    return {"ended": f"the process hung for {seconds:.0f} s"}
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return {"ended": f"the process ended with status {self.process.wait()}"}
            self.text += more
        line, _, self.text = self.text.partition(b"\n")
        return json.loads(line)

    def end(self):
        self.process.kill()
        self.process.stdout.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass  # the driver holds it; the next process is another one


def number(value):
    return f"{value:.3g}" if value else "–"


def ratio_of(columns):
    """The best peer's time over auto's, of a layer's rows by column."""
    peers = [columns[name]["ms"] for name in ("cudnn", "cudnn_any", *TORCH) if "ms" in columns.get(name, {})]
    return min(peers) / columns["auto"]["ms"] if peers and "ms" in columns.get("auto", {}) else None


def bench(session, stages):
    stages = stages or STAGES
    benches = [Bench(session, stage) for stage in stages]
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
