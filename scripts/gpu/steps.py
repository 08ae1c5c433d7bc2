"""Cases as processes under limits, with results that outlive them. Needs the standard library alone."""
import gzip
import json
import os
import pathlib
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE / "convgrad"
NO_DEVICE = ("no CUDA device", "no device", "no NVIDIA driver")
LEAST = 15  # seconds: a case is not begun with less
MOST_PRINTED = 11000  # characters of a table; the whole is in a file


def writable_folder(*candidates):
    for folder in candidates:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    sys.exit(f"none of {', '.join(map(str, candidates))} can be written")


def unpack():
    """Where large files are unpacked: here, or a temporary folder if this one cannot be written."""
    missing = [path for path in HERE.rglob("*.gz") if not path.with_suffix("").exists()]
    if not missing:
        return HERE
    root = writable_folder(HERE, pathlib.Path(tempfile.gettempdir()) / f"convgrad_unpacked_{os.getuid()}")
    for path in missing:
        target = root / path.relative_to(HERE).with_suffix("")
        target.parent.mkdir(exist_ok=True)
        part = target.with_name(f"{target.name}.{os.getpid()}")
        with gzip.open(path) as packed, open(part, "wb") as file:
            shutil.copyfileobj(packed, file)
        part.rename(target)
    return root


def peers_libraries():
    """lib folders of packages that pip installed: nvidia/cudnn/lib and what cuDNN loads from beside it."""
    roots = dict.fromkeys([*site.getsitepackages(), site.getusersitepackages(), *sys.path])
    return [str(folder) for root in roots if root for folder in sorted(pathlib.Path(root).glob("nvidia/*/lib"))]


def find_tool(name):
    places = (None, "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")
    return next(filter(None, (shutil.which(name, path=place) for place in places)), None)


class Result:
    """Of a process: status (None: it ran out of time), seconds, what it said."""

    def __init__(self, status, seconds, out, err):
        self.status, self.seconds, self.out, self.err = status, seconds, out, err

    def lines(self):
        return [" ".join(line.split())[:200] for line in (self.err + "\n" + self.out).splitlines() if line.strip()]

    def last_line(self):
        return self.lines()[-1] if self.lines() else ""

    def no_device(self):
        """The line that says that there is none, or ''."""
        said = [line for line in self.lines() if any(words in line for words in NO_DEVICE)]
        return said[0] if said and self.status in (0, 4) else ""


class Session:
    def __init__(self, command, seconds, again=False, backend="cuda", words=()):
        self.command = command if backend == "cuda" else f"{command}-{backend}"
        self.begin, self.seconds, self.backend, self.names = time.monotonic(), seconds, backend, None
        self.words, self.left_out = words, []
        self.out = writable_folder(pathlib.Path(os.environ.get("OUT") or "out").resolve())
        # What is staged anew begins anew.
        stage = (HERE / "version").read_text().split()[0]
        self.state = writable_folder(HERE.parent / "device_state" / stage, self.out)
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("CONVGRAD_")}
        # lib/ is found by the programs themselves: other programs have libraries of their own.
        root = unpack()
        paths = [*peers_libraries(), self.env.get("LD_LIBRARY_PATH", ""), "" if root == HERE else str(root / "lib")]
        self.env["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
        self.env["CONVGRAD_MODULES"] = str(root if (root / "convgrad_cuda.so").exists() else HERE)
        self.path = self.state / f"{self.command}.jsonl"
        # A device may be there by now, and a tool.
        before = self.path.read_text().splitlines() if self.path.exists() and not again else []
        self.rows = [row for row in map(json.loads, before) if row["status"] not in ("no device", "skipped")]
        self.path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

    def wants(self, case):
        return not self.words or any(word in case for word in self.words)

    def left(self):
        return self.seconds - (time.monotonic() - self.begin)

    def log(self, text):
        with open(self.out / f"{self.command}.log", "a") as log:
            log.write(text.rstrip() + "\n")

    def run(self, command, seconds, env=None):
        """Ends the process, and all that it started, after so many seconds: by a signal that it can heed, then by one that
        it cannot. Waits no longer than that even for one that the driver holds."""
        command = [str(word) for word in command]
        begin = time.monotonic()
        status = None
        with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
            try:
                process = subprocess.Popen(["timeout", "-k", "5", str(int(seconds)), *command], stdin=subprocess.DEVNULL,
                                           stdout=out, stderr=err, env={**self.env, **(env or {})}, start_new_session=True)
                status = process.wait(timeout=seconds + 8)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            took = time.monotonic() - begin
            if status == 124 or (status in (137, -9) and took >= seconds):  # timeout's, and its kill's
                status = None
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read(2000000))
        result = Result(status, took, *texts)
        self.log(f"$ {' '.join(command)}\n{result.out}{result.err}-- status {'none: out of time' if status is None else status}, "
                 f"{took:.1f} s")
        return result

    def add(self, **row):
        """A row of results, on the disk at once."""
        self.rows.append(row)
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if self.path.parent != self.out:
            shutil.copy(self.path, self.out)

    def tool(self, name):
        """The path of a tool that needs a device, or None behind a row that says what is missing."""
        found = find_tool(name)
        without = self.run([PROGRAM, "info"], 60).no_device()
        if without:
            self.add(case="all", status="no device", seconds=0, detail=without)
        elif found is None:
            self.add(case="all", status="skipped", seconds=0, detail=f"{name} was not found")
        return None if without else found

    def algorithms(self):
        """Those for devices, by the program's own table, which needs neither a driver nor OpenBLAS."""
        if self.names is None:
            listed = self.run([PROGRAM, "--list-algorithms"], 30)
            names = [line.split()[0] for line in listed.out.splitlines() if line.strip()]
            self.names = [name for name in names if name.startswith(("cuda_", "cudnn"))]
            if not self.names:
                sys.exit(f"{PROGRAM} lists no algorithms: {listed.last_line()}")
        return self.names

    def done(self, **key):
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def case(self, name, command, limit, env=None, judge=None):
        """Runs a case that no earlier call has run, and adds its row; returns the status and what the process said."""
        if self.done(case=name) or not self.wants(name):
            return None, None
        result = None
        allowed = min(limit, self.left())
        if allowed >= min(limit, LEAST):
            result = self.run(command, allowed, env)
        if result is None or (result.status is None and allowed < limit):  # it may need no more than its limit
            self.left_out.append(name)
            return "left out", None
        status, detail = (judge or self.judge)(result)
        self.add(case=name, status=status, seconds=round(result.seconds, 1), detail=detail)
        return status, result

    @staticmethod
    def judge(result):
        if result.status is None:
            return "hung", result.last_line()
        if result.no_device():
            return "no device", result.no_device()
        return ("ok", "") if result.status == 0 else ("failed", f"status {result.status}: {result.last_line()}")

    def finish(self):
        """Prints the table of cases; the command's status."""
        lines = [f"| {self.command} | status | s | |", "| --- | --- | ---: | --- |"]
        for row in self.rows:
            lines.append(f"| {row['case']} | {row['status']} | {row['seconds']} | {row['detail'].replace('|', '/')} |")
        lines += [f"| {name} | left for the next call | | |" for name in self.left_out]
        self.table("\n".join(lines))
        statuses = {row["status"] for row in self.rows}
        if statuses & {"failed", "hung"}:
            return 1
        return 4 if "no device" in statuses else 0

    def table(self, text):
        (self.out / f"{self.command}.md").write_text(text + "\n")
        if len(text) > MOST_PRINTED:
            text = text[:MOST_PRINTED // 3] + "\n...\n" + text[-MOST_PRINTED * 2 // 3:]
        print(f"\n{text}\nin {self.out}: {self.command}.md, .jsonl and .log; {self.seconds - self.left():.0f} s", flush=True)
