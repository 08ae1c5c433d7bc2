"""Runs whose files are known before and after, and what must hold of them when something fails.

A Scenario is one command line in a folder: the files that it finds, those that it leaves when all
goes well. check() is the contract for a run in which anything may have failed: every file is what
it was or what it is to become, no temporary is left, the exit status is one of the table's, and an
error is one line.
"""
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import xml.etree.ElementTree

import numpy as np

from harness import BINARY, Problem, clean_environment, npy_bytes, small

INJECT = os.environ.get("CONVGRAD_FAULT_LIBRARY", "")
CLASSES = ("open", "read", "write", "fsync", "close", "rename", "malloc")
TEMPORARY = re.compile(r"\..*\.convgrad-[\w-]{8}\.tmp")
STATUSES = {0, 1, 2, 3, 4, 5}
OLD = b"what was there before\n"
OLD_REPORT = b'{\n  "schema": "convgrad.report/1"\n}\n'  # reports replace nothing else,
OLD_JUNIT = b'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="convgrad batch"/>\n'  # nor do JUnit's
TIMEOUT_S = 60


def old(name):
    return {"report.json": OLD_REPORT, "report.xml": OLD_JUNIT}.get(name, OLD)


class Wrong(AssertionError):
    """A run that broke the contract."""


def big_endian(data):
    """A .npy file in Fortran order, with the bytes of its elements swapped."""
    array = np.load(io.BytesIO(data))
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(array).astype(array.dtype.newbyteorder(">")))
    return stream.getvalue()


class Scenario:
    """files: what the folder has at first. outputs: name -> check(bytes), None for "must be the
    bytes that a run without faults wrote". status: of a run without faults."""

    def __init__(self, name, args, files, outputs, status=0, old=(), stdin=None, lines=1):
        self.name, self.args, self.files, self.outputs = name, [str(a) for a in args], files, outputs
        self.status, self.old, self.stdin, self.lines = status, set(old), stdin, lines
        self.good = {}

    # ---- a folder

    def prepare(self, folder):
        """Puts the folder into the state before a run, whatever is in it."""
        for path in folder.iterdir():
            if path.name in self.files and path.read_bytes() == self.files[path.name]:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for name, data in self.files.items():
            if not (folder / name).exists():
                (folder / name).write_bytes(data)
        for name in self.old:
            (folder / name).write_bytes(old(name))

    @staticmethod
    def listing(folder):
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")
                      if not path.is_dir())

    # ---- a run

    def start(self, folder, env=None, wrapper=()):
        # Standard input from a file through cat, so that it is a pipe.
        stdin = subprocess.DEVNULL
        feeder = None
        if self.stdin:
            feeder = subprocess.Popen(["cat", self.stdin], cwd=folder, stdout=subprocess.PIPE)
            stdin = feeder.stdout
        process = subprocess.Popen([*wrapper, BINARY, *self.args], cwd=folder,
                                   env=clean_environment(env), stdin=stdin,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if feeder:
            feeder.stdout.close()
        process.feeder = feeder
        return process

    @staticmethod
    def wait(process):
        """(status, stdout, stderr)."""
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Wrong("it hangs") from None
        finally:
            if process.feeder:
                process.feeder.wait()
        return process.returncode, out, err.decode("utf-8", "replace")

    def run(self, folder, env=None, wrapper=()):
        self.prepare(folder)
        return self.wait(self.start(folder, env, wrapper))

    def learn(self, folder):
        """Runs without faults and keeps what comes out."""
        status, out, err = self.run(folder)
        if (status, err) != (self.status, ""):
            raise Wrong(f"{self.name} without faults: status {status}\n{err}")
        for name, check in self.outputs.items():
            data = out if name == "-" else (folder / name).read_bytes()
            if check is not None:
                check(data)
            self.good[name] = data
        unknown = [name for name in self.listing(folder)
                   if name not in self.files and name not in self.outputs]
        if unknown:
            raise Wrong(f"{self.name}: unknown files {unknown}")

    # ---- the contract

    def is_new(self, name, data):
        check = self.outputs[name]
        if check is None:
            return data == self.good[name]
        try:
            check(data)
        except Exception:  # whatever a parser throws at half a file
            return False
        return True

    def check_files(self, folder, status, allow_temporaries=False):
        for path in self.listing(folder):
            name = os.path.basename(path)
            if TEMPORARY.fullmatch(name):
                if not allow_temporaries:
                    raise Wrong(f"{path} is left")
                continue
            data = (folder / path).read_bytes()
            if path in self.outputs and self.is_new(path, data):
                continue
            was = self.files.get(path, old(path) if path in self.old else None)
            if data != was:
                raise Wrong(f"{path} is neither the old nor the new file: {len(data)} bytes, "
                            f"{data[:60]!r}")
            if status in (0, 1) and path in self.outputs:
                raise Wrong(f"status {status}, but {path} is the old file")
        for name in self.files.keys() | self.old:
            if not (folder / name).exists():
                raise Wrong(f"{name} is gone")
        if status in (0, 1):
            for name in self.outputs:
                if name != "-" and not (folder / name).exists():
                    raise Wrong(f"status {status}, but there is no {name}")

    def check_stdout(self, status, out):
        if "-" not in self.outputs:
            return
        if status == self.status:
            if not self.is_new("-", out):
                raise Wrong(f"status {status}, but standard output is {out[:200]!r}")
        elif not self.lines and not self.good["-"].startswith(out):
            raise Wrong(f"status {status}, and standard output is no beginning: {out[:60]!r}")

    def check(self, folder, status, out, err, statuses=STATUSES):
        """Of a run that ended by itself."""
        if status < 0:
            raise Wrong(f"ended by {signal.Signals(-status).name}\n{err}")
        if status not in statuses:
            raise Wrong(f"status {status}\n{err}")
        lines = err.splitlines()
        if status == self.status:
            if lines:
                raise Wrong(f"status {status}, but it says\n{err}")
        elif not 1 <= len(lines) <= max(self.lines, 1) or not err.endswith("\n"):
            raise Wrong(f"status {status} and {len(lines)} lines\n{err}")
        for line in lines:
            if not line.startswith("convgrad: error: ") or len(line) > 600:
                raise Wrong(f"no clean line: {line}")
            if re.search(r"std::|terminate|json\.exception|basic_string|[^\x20-\x7e]", line):
                raise Wrong(f"no sentence for people: {line}")
        self.check_stdout(status, out)
        self.check_files(folder, status)


# ---- what is checked of outputs that have times in them ------------------------------------------

def is_json(data):
    json.loads(data)


def is_junit(data):
    assert xml.etree.ElementTree.fromstring(data).tag == "testsuites"


def is_state(data):
    lines = [json.loads(line) for line in data.decode().splitlines()]
    assert lines[0] == {"schema": "convgrad.batch-state/2"} and data.endswith(b"\n")
    assert lines[1] == {"job": "another"}, "a record is lost"


STATE = b'{"schema":"convgrad.batch-state/2"}\n{"job":"another"}\n'


def is_anything(_):
    pass


# ---- the runs ------------------------------------------------------------------------------------

def scenarios():
    def tensors(problem, dtype="float32"):
        return {"x.npy": npy_bytes(dtype, problem.stored(problem.x)),
                "dy.npy": npy_bytes(dtype, problem.stored(problem.dy))}

    result = []
    problem = small("conv2d")
    plain = tensors(problem)
    result.append(Scenario("files", problem.args("dw.npy"), plain, {"dw.npy": None},
                           old=["dw.npy"]))
    first = small("conv3d", last=False)
    swapped = {name: big_endian(data) for name, data in tensors(first, "float64").items()}
    result.append(Scenario(
        "conversion", [*first.args("dw.npy"), "--filter-format", "OIDHW", "--json=report.json", "-t", 2],
        swapped, {"dw.npy": None, "report.json": is_json}, old=["report.json"]))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        problem.save(path)
        np.savez_compressed(path / "x.npz", x=np.load(path / "x.npy"))
        np.savez(path / "dy.npz", dy=np.load(path / "dy.npy"), other=np.zeros(3))
        archives = {name: (path / name).read_bytes() for name in ("x.npz", "dy.npz")}
    result.append(Scenario("archives", problem.args("dw.npy", x="x.npz:x", dy="dy.npz:dy"),
                           archives, {"dw.npy": None}, old=["dw.npy"]))
    result.append(Scenario("pipes", problem.args("-", x="-"), plain, {"-": None}, stdin="x.npy",
                           lines=0))
    wrong = problem.expected()
    wrong.flat[5] += 9
    result.append(Scenario(
        "mismatch", ["verify", *problem.flags(), "-i", "x.npy", "-g", "dy.npy", "--result", "dw.npy"],
        {**plain, "dw.npy": npy_bytes("float32", wrong)}, {"-": is_anything}, status=1))
    jobs = [dict(zip(words[::2], words[1::2])) for words in ([
        "op", "conv2d", "input", "x.npy", "out_backprop", "dy.npy", "kernel", "3,2", "groups", "2",
        "strides", "2,1", "dilations", "1,2", "padding", "same", *more] for more in (
            ["name", "one", "output", "one.npy"], ["name", "two", "golden", "dw.npy"]))]
    manifest = "".join(json.dumps(job) + "\n" for job in jobs).encode()
    result.append(Scenario(
        "batch", ["batch", "jobs.jsonl", "--resume", "--junit", "report.xml", "--keep-going"],
        {**plain, "dw.npy": npy_bytes("float32", problem.expected()), "jobs.jsonl": manifest,
         "jobs.jsonl.state": STATE},
        {"one.npy": None, "report.xml": is_junit, "jobs.jsonl.state": is_state, "-": is_anything},
        old=["one.npy", "report.xml"], lines=4))
    result.append(Scenario(
        "generate", ["generate", "conv2d", "--shape", "2,6,5,3", "-k", 3, "-p", "same",
                     "--out-channels", 4, "-o", "made"],
        {}, {**{f"made/{name}.npy": None for name in ("input", "out_backprop", "gradient")}, "-": is_anything}))
    return {scenario.name: scenario for scenario in result}


def large_scenarios():
    """Runs of some tenths of a second that write some megabytes, for signals."""
    problem = Problem(n=1, size=(1, 1), c=768, k=768, taps=(1, 1))
    files = {"x.npy": npy_bytes("float64", problem.x), "dy.npy": npy_bytes("float64", problem.dy)}
    job = {"op": "conv2d", "input": "x.npy", "out_backprop": "dy.npy", "kernel": 1, "padding": "same"}
    manifest = "".join(json.dumps({**job, "output": f"{name}.npy"}) + "\n" for name in "abc")
    batch = Scenario("large batch",
                     ["batch", "jobs.jsonl", "--resume", "--junit", "report.xml", "-j", 2],
                     {**files, "jobs.jsonl": manifest.encode(), "jobs.jsonl.state": STATE},
                     {"a.npy": None, "b.npy": None, "c.npy": None, "report.xml": is_junit,
                      "jobs.jsonl.state": is_state, "-": is_anything}, old=["a.npy", "report.xml"])
    return [Scenario("large", problem.args("dw.npy"), files, {"dw.npy": None}, old=["dw.npy"]),
            batch]


# ---- the interposer ------------------------------------------------------------------------------

class Injector:
    """Runs a scenario with one call failing."""

    def __init__(self, folder):
        self.counts = pathlib.Path(folder) / "counts"

    def environment(self, fault=None):
        self.counts.write_bytes(bytes(8 * len(CLASSES)))
        env = {"LD_PRELOAD": INJECT, "CONVGRAD_FAULT_COUNTS": str(self.counts)}
        if fault:
            env["CONVGRAD_FAULT"] = fault
        return env

    def count(self, scenario, folder):
        """Calls of each class in a run without faults."""
        status, _, err = scenario.run(folder, self.environment())
        if status != scenario.status:
            raise Wrong(f"{scenario.name} under the interposer: status {status}\n{err}")
        return dict(zip(CLASSES, struct.unpack(f"{len(CLASSES)}q", self.counts.read_bytes())))

    def run(self, scenario, folder, fault):
        """Checks the contract; says how to repeat what breaks it."""
        try:
            status, out, err = scenario.run(folder, self.environment(fault))
            scenario.check(folder, status, out, err, expected_statuses(scenario, fault))
        except Wrong as wrong:
            raise Wrong(f"{scenario.name}, CONVGRAD_FAULT={fault}: {wrong}") from None
        return status


def expected_statuses(scenario, fault):
    """What may come of a fault: an interruption and a short count nothing, a machine's failure 5."""
    _, _, how = fault.split(":")
    kind = fault.split(":")[0]
    if how == "short" or (how == "EINTR" and kind != "rename"):
        return {scenario.status}
    if how in ("EIO", "ENOMEM"):
        return {scenario.status, 5}
    return {scenario.status, 3, 5}


def faults(counts, hows):
    """CLASS:N:HOW for every call of every class."""
    for kind, number in counts.items():
        for how, n in itertools.product(hows.get(kind, ()), range(1, number + 1)):
            yield f"{kind}:{n}:{how}"


CALL_FAULTS = {"open": ("ENOSPC", "EIO", "EINTR", "ENOMEM"), "read": ("EIO", "EINTR", "short"),
               "write": ("ENOSPC", "EIO", "EINTR", "short"), "fsync": ("ENOSPC", "EIO", "EINTR"),
               "close": ("ENOSPC", "EIO", "EINTR"), "rename": ("ENOSPC", "EIO", "EINTR")}
