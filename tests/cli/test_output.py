"""The output appears complete or not at all, and replaces nothing that is read: places, streams, limits, signals, races."""
import contextlib
import json
import os
import pathlib
import re
import signal
import time
import unittest

import numpy as np
from harness import (SANITIZED, THREAD_SANITIZED, CliTest, Problem, SmallTest, cpu_seconds, run, save, start,
                     wait_until)

OLD = b"an old gradient, precious"
USAGE = 2


class OutputTest(SmallTest):
    def setUp(self):
        super().setUp()
        self.before = self.listing()


class Places(OutputTest):
    def test_tensors_are_kept(self):
        os.symlink("x.npy", self.folder / "link.npy")
        os.link(self.folder / "dy.npy", self.folder / "hard.npy")
        np.save(self.folder / "golden.npy", np.zeros(1, np.float32))
        for command in ((), ("verify", "--golden", "golden.npy")):
            for name, flag in (("x.npy", "--input"), ("./dy.npy", "--out-backprop"), ("link.npy", "--input"),
                               (str(self.folder / "x.npy"), "--input"), ("hard.npy", "--out-backprop"),
                               ("golden.npy", "--golden")):
                if flag == "--golden" and not command:
                    continue
                self.kept([*command, *self.problem.args(name)],
                          f"--output: {name} is the file of {flag}, which would be replaced; name another file")

    def kept(self, words, *parts, stdin="/dev/null", stdout=None):
        """Refused, and every file and name as before; standard output is appended to a file."""
        with open(self.folder / stdin, "rb") as source, contextlib.ExitStack() as stack:
            more = {"stdout": stack.enter_context(open(self.folder / stdout, "ab"))} if stdout else {}
            self.refuses(USAGE, parts, *words, stdin=source, **more)

    def test_what_standard_input_is_read_from_is_kept(self):
        problem = self.problem
        for name in ("dw.npy", "gold.npy"):
            self.write(name, self.want)
        os.link(self.folder / "dw.npy", self.folder / "old.npy")
        flags = ["verify", *problem.flags(), "-i", "x.npy", "-g", "dy.npy"]
        for source, words, flag in (
                ("x.npy", problem.args("x.npy", x="-"), "--input"),
                ("x.npy", problem.args("./x.npy", x="-:float32[1]"), "--input"),
                ("dw.npy", problem.args("old.npy", filter_flags=["--filter-like", "-"]), "--filter-like"),
                ("dw.npy", [*flags, "--result", "-", "--save-diff", "old.npy"], "--result"),
                ("dw.npy", [*flags, "--golden", "-", "-o", "dw.npy"], "--golden"),
                ("dw.npy", ["compare", "gold.npy", "-", "--save-diff", "dw.npy"], "WANT"),
                ("x.npy", [*problem.args(x="-"), "--json=x.npy"], "--input"),
                ("dw.npy", ["inspect", "-", "--json=dw.npy"], "FILE")):
            self.kept(words, flag, "file", stdin=source)
        with open(self.folder / "x.npy", "rb") as source:  # and another one is written
            self.assert_quiet(self.run_here(*problem.args("x2.npy", x="-"), stdin=source))
        self.assertEqual(self.read("x2.npy"), self.want)

    def test_nothing_is_appended_to_what_is_read(self):
        problem = self.problem
        for target, words, flag in (
                ("x.npy", problem.args("-"), "--input"),
                ("x.npy", problem.args("/dev/stdout"), "--input"),
                ("x.npy", [*problem.args(), "--json"], "--input"),
                ("x.npy", ["compare", "x.npy", "x.npy", "--json"], "GOT"),
                ("dw.npy", [*problem.args("-"), "--json=dw.npy"], "--output")):
            self.write("dw.npy", b"")
            self.kept(words, flag, stdout=target)
        self.kept(problem.args("-", x="-"), "--input", stdin="x.npy", stdout="x.npy")

    def test_a_list_of_jobs_is_kept(self):
        for more, words, streams in (
                ({}, ["-", "--json=jobs.jsonl"], {"stdin": "jobs.jsonl"}),
                ({}, ["-", "--state", "jobs.jsonl"], {"stdin": "jobs.jsonl"}),
                ({"output": "jobs.jsonl"}, ["-"], {"stdin": "jobs.jsonl"}),
                ({}, ["jobs.jsonl", "--json"], {"stdout": "jobs.jsonl"}),
                ({}, ["jobs.jsonl", "--json", "--shard", "0"], {"stdout": "jobs.jsonl"})):
            self.write("jobs.jsonl", json.dumps(self.problem.job(**{"output": "dw.npy", **more})) + "\n")
            self.kept(["batch", *words], **streams)
        self.kept(["batch", "jobs.jsonl", "--json"], "--json", "input", stdout="x.npy")

    def test_a_name_with_a_dash(self):
        done = self.run_here(*self.problem.args("./-"))
        self.assertEqual((done.status, done.out, done.err.count("\n")), (0, "", 1), str(done))
        self.assertIn("warning: --output: ./- is written as .npy", done.err)
        self.assertEqual(self.read("-"), self.want)


class Streams(OutputTest):
    """Standard streams that are closed from the start, and outputs that are none."""

    def test_closed_streams_are_no_files_of_ours(self):
        # Every second job fails, and says so to what would be an output of the other ones.
        jobs = [self.problem.job(input="x.npy" if i % 2 else "none.npy", output=f"dw{i}.npy") for i in range(200)]
        self.write("jobs.jsonl", "".join(json.dumps(job) + "\n" for job in jobs))
        done = self.bash("convgrad batch jobs.jsonl --jobs 2 --keep-going <&- >&- 2>&-")
        self.assertEqual(done.returncode, 3)
        for i in range(1, 200, 2):
            self.assertEqual(self.read(f"dw{i}.npy"), self.want, i)

    def test_closed_streams_cannot_be_used(self):
        for redirection, status, args in (("<&-", 3, self.problem.args(x="-")), (">&-", 5, self.problem.args("-"))):
            done = self.bash(f"convgrad {' '.join(args)} {redirection}")
            self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")), (status, b"", 1), done.stderr)
            self.assertEqual(self.listing(), self.before)

    def test_accumulate_needs_a_file(self):
        os.mkfifo(self.folder / "fifo")
        self.refuses(2, ["--accumulate", "fifo"], *self.problem.args("fifo"), "--accumulate")


class Failures(OutputTest):
    """Writes that fail: 5, one line, the old file as it was."""

    def test_a_full_standard_output(self):
        with open("/dev/full", "wb") as full:
            for args in (self.problem.args("-"), [*self.problem.args(), "--dry-run"], ["--help"],
                         ["--version"], ["info"], ["info", "--json"], ["--list-algorithms"],
                         ["inspect", "x.npy"], ["completion", "bash"], [*self.problem.args(), "--json"],
                         ["verify", *self.problem.flags(), "-i", "x.npy", "-g", "dy.npy"]):
                self.assert_one_error(self.run_here(*args, stdout=full), 5, "standard output", "No space left")

    def test_a_file_that_shrinks(self):
        # x is 64 MiB and in blocks of at most 40; it is cut when half of dy has gone through a pipe: no SIGBUS.
        problem = Problem(n=64, size=(64, 64), c=64, k=1, taps=(1, 1))
        problem.save(self.folder)
        self.write("dw.npy", OLD)
        dy = self.read("dy.npy")
        os.mkfifo(self.folder / "fifo")
        process = start(*problem.args(dy="fifo"), "-b", "reference", "-t", 1, "--memory-limit", "40MiB",
                        cwd=self.folder)
        with open(self.folder / "fifo", "wb", buffering=0) as fifo, contextlib.suppress(BrokenPipeError):
            fifo.write(dy[:len(dy) // 2])
            os.truncate(self.folder / "x.npy", 1 << 20)
            fifo.write(dy[len(dy) // 2:])
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, err.count(b"\n")), (3, b"", 1), err)
        self.assertIn(b"x.npy: shrank while it was read", err)
        self.assertEqual(self.read("dw.npy"), OLD)


@unittest.skipIf(THREAD_SANITIZED, "the thread sanitizer delivers signals late")
class Signals(OutputTest):
    NAMES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

    def setUp(self):
        super().setUp()
        # Ten seconds of reference, or more.
        self.long = Problem(n=8, size=(64, 64), c=256, k=256, taps=(7, 7))
        self.long.save(self.folder)

    @staticmethod
    def wait_for_work(process):
        # Tensors are read and the program is set up in less.
        wait_until(lambda: cpu_seconds(process.pid) > 0.4, process)

    @staticmethod
    def wait_for_sleep(process):
        """Until its first thread waits, with handlers in place."""
        def waits():
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.M).group(1), 16)
            return caught >> (signal.SIGTERM - 1) & 1 and re.search(r"^State:\s*S", status, re.M)
        wait_until(waits, process)

    def stop(self, process, number):
        process.send_signal(number)
        begin = time.monotonic()
        out, err = process.communicate(timeout=20)
        self.assertLess(time.monotonic() - begin, 3)
        return out, err

    def test_during_the_work(self):
        self.write("dw.npy", OLD)
        for number, status in self.NAMES.items():
            for words in ([*self.long.args(), "-b", "reference"], [*self.long.args("new.npy"), "-b", "reference"],
                          ["verify", *self.long.flags(), "-i", "x.npy", "-g", "dy.npy"]):
                process = start(*words, "-t", 2, cwd=self.folder)
                self.wait_for_work(process)
                out, err = self.stop(process, number)
                with self.subTest(number.name, words=words):
                    self.assertEqual(process.returncode, status, err)
                    self.assertEqual(out, b"")
                    self.assertLessEqual(err.count(b"\n"), 1)
                    self.assertEqual(self.read("dw.npy"), OLD)
                    self.assertEqual(self.listing(), sorted([*self.before, "dw.npy"]))

    def test_while_waiting_for_a_fifo(self):
        os.mkfifo(self.folder / "fifo")
        process = start(*self.problem.args(x="fifo"), cwd=self.folder)
        self.wait_for_sleep(process)
        self.stop(process, signal.SIGINT)
        self.assertEqual(process.returncode, 130)

    def test_what_batch_systems_send(self):
        os.mkfifo(self.folder / "fifo")
        for number in (signal.SIGXCPU, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM,
                       signal.SIGPWR, signal.SIGQUIT):
            # Its temporary is there while it waits for what comes after the header.
            process = start("compare", "fifo", "x.npy", "--save-diff", "dw.npy", cwd=self.folder)
            with open(self.folder / "fifo", "wb", buffering=0) as fifo:
                fifo.write(self.read("x.npy")[:128])
                wait_until(lambda: any(".tmp" in name for name in self.listing()), process)
                process.send_signal(number)
                process.wait(timeout=20)
            process.communicate()
            with self.subTest(number.name):
                self.assertEqual(process.returncode, 128 + number)
                self.assertEqual(self.listing(), sorted([*self.before, "fifo"]))

    def test_an_ignored_signal_stays_ignored(self):
        # nohup: SIGHUP was ignored from the start.
        process = start(*self.long.args(), "-b", "reference", cwd=self.folder,
                        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_for_work(process)
        process.send_signal(signal.SIGHUP)
        before = cpu_seconds(process.pid)
        wait_until(lambda: cpu_seconds(process.pid) > before + 0.2, process)
        self.stop(process, signal.SIGTERM)
        self.assertEqual(process.returncode, 143)


class Startup(CliTest):
    @unittest.skipIf(SANITIZED, "a sanitizer needs more")
    def test_an_empty_job_is_quick(self):
        # The contract is 10 ms; the limit is wide because machines of CI are busy.
        save(self.folder / "x.npy", np.zeros((0, 4, 4, 2)))
        save(self.folder / "dy.npy", np.zeros((0, 4, 4, 2)))
        times = []
        for _ in range(9):
            begin = time.monotonic()
            result = run("--op", "conv2d", "-i", "x.npy", "-g", "dy.npy", "-o", "-", "-k", 3, "-p",
                         "same", cwd=self.folder)
            times.append(time.monotonic() - begin)
            self.assertEqual(result.status, 0)
        self.assertLess(min(times), 0.15, times)
