"""Whatever fails, the files are the old or the new ones, and the error is one line.

The short form, for every day, takes a part of the faults; CONVGRAD_FAULTS=full takes all of them
(scripts/test_faults --full, which also prints the counts). docs/measurements/robustness.md has what they were.
"""
import collections
import concurrent.futures
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import faults
from faults import CALL_FAULTS, INJECT, Injector, Wrong, large_scenarios, scenarios
from harness import BINARY, SANITIZED, clean_environment

FULL = os.environ.get("CONVGRAD_FAULTS") == "full"
MOST_WRONG = 10  # that are told before the rest is not run any more


class Tally:
    """How many runs ended in which way; printed by the full form, or with CONVGRAD_FAULTS=show."""

    def __init__(self, what):
        self.what, self.ends, self.wrong = what, collections.Counter(), []

    def add(self, end):
        self.ends[end] += 1

    def line(self):
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items(), key=str))
        return f"{self.what}: {sum(self.ends.values())} runs, {len(self.wrong)} wrong: {ends}"


class FaultTest(unittest.TestCase):
    def setUp(self):
        top = tempfile.mkdtemp(prefix="convgrad-faults-")
        self.addCleanup(shutil.rmtree, top, ignore_errors=True)
        self.top = pathlib.Path(top)
        self.local = threading.local()

    def folder(self):
        """One for each thread and scenario's run."""
        if not hasattr(self.local, "folder"):
            self.local.folder = pathlib.Path(tempfile.mkdtemp(dir=self.top))
        return self.local.folder

    def injector(self):
        if not hasattr(self.local, "injector"):
            self.local.injector = Injector(tempfile.mkdtemp(dir=self.top))
        return self.local.injector

    def do_all(self, what, tasks):
        """Calls the tasks, some at a time; each returns how its run ended or raises Wrong."""
        tally = Tally(what)

        def one(task):
            if len(tally.wrong) >= MOST_WRONG:
                return
            try:
                tally.add(task())
            except Wrong as wrong:
                tally.wrong.append(str(wrong))

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(one, tasks):
                pass
        if os.environ.get("CONVGRAD_FAULTS"):
            print(tally.line(), file=sys.stderr, flush=True)
        self.assertGreater(sum(tally.ends.values()) + len(tally.wrong), 0)
        if tally.wrong:
            self.fail("\n".join([tally.line(), *tally.wrong]))
        return tally


@unittest.skipUnless(INJECT, "CONVGRAD_FAULT_LIBRARY does not name the interposer")
@unittest.skipIf(SANITIZED, "a sanitizer's own interposer must be the first")
class Injected(FaultTest):
    def inject(self, what, choose, hows, more=""):
        """choose(list of faults of a scenario) -> those that are run."""
        tasks = []
        for scenario in scenarios().values():
            scenario.learn(self.folder())
            counts = self.injector().count(scenario, self.folder())
            self.assertGreater(counts["open"] + counts["read"], 2, "the interposer is not there")
            for fault in choose(list(faults.faults(counts, hows))):
                fault = fault.replace(":ENOMEM", f"{more}:ENOMEM") if more else fault
                tasks.append(lambda s=scenario, f=fault: "status %d" %
                             self.injector().run(s, self.folder(), f))
        return self.do_all(what, tasks)

    def test_calls(self):
        step = 1 if FULL else 11
        tally = self.inject("system calls that fail", lambda every: every[::step], CALL_FAULTS)
        self.assertGreater(tally.ends["status 5"], 0)

    def test_allocations(self):
        def choose(every):
            return every if FULL else every[3::len(every) // 7]

        tally = self.inject("one allocation that fails", choose, {"malloc": ("ENOMEM",)})
        self.assertGreater(tally.ends["status 5"], 0)

    def test_all_allocations_from_one_on(self):
        def choose(every):
            return every[::23] if FULL else every[5::len(every) // 3]

        self.inject("all allocations from one on that fail", choose, {"malloc": ("ENOMEM",)}, "+")


@unittest.skipIf(SANITIZED, "a sanitizer takes terabytes of address space")
class Memory(FaultTest):
    @staticmethod
    def limit(size):
        return ["prlimit", f"--as={size}"]

    def least(self, works, low, step):
        """The least address space above low at which works(limit) holds, looked for from so much more on: 4 GiB at most."""
        low, high = low >> 12, (low + step) >> 12
        while high < 1 << 20 and not works(high << 12):
            low, high = high, high + 2 * (high - low)
        enough = 1 if FULL else 1 + (high - low) // 64  # pages
        while high - low > enough:
            middle = (low + high) // 2
            low, high = (low, middle) if works(middle << 12) else (middle, high)
        return high << 12

    def test_address_space(self):
        if shutil.which("prlimit") is None:
            self.skipTest("there is no prlimit")

        def loads(size):
            done = subprocess.run([*self.limit(size), BINARY, "--help"], check=False,
                                  env=clean_environment(), capture_output=True, timeout=30)
            return done.returncode == 0 and not done.stderr

        def works(scenario, size):
            status, _, err = scenario.run(self.folder(), wrapper=self.limit(size))
            return status == scenario.status and not err

        steps = 64 if FULL else 6
        low, tasks = self.least(loads, 0, 16 << 20), []
        for scenario in scenarios().values():
            scenario.learn(self.folder())
            high = self.least(lambda size, s=scenario: works(s, size), low, 1 << 16)
            self.assertGreater(high, low)
            for i in range(steps):
                size = low + (high - low) * i // (steps - 1)

                def task(s=scenario, n=size):
                    try:
                        ended = s.run(self.folder(), wrapper=self.limit(n))
                        s.check(self.folder(), *ended, {s.status, 5})
                    except Wrong as wrong:
                        raise Wrong(f"{s.name}, prlimit --as={n}: {wrong}") from None
                    return f"status {ended[0]}"

                tasks.append(task)
        self.do_all(f"limits of the address space, from {low >> 20} MiB on", tasks)


class Signals(FaultTest):
    """At random moments between the start of the program and a little after its end."""

    def send(self, scenario, number, moment):
        folder = self.folder()
        scenario.prepare(folder)
        process = scenario.start(folder)
        time.sleep(moment)
        process.send_signal(number)
        return scenario.wait(process)

    def strike(self, scenario, number, moment):
        what = f"{scenario.name}, {number.name} after {moment * 1e3:.1f} ms"
        status, _, err = self.send(scenario, number, moment)
        killed = number == signal.SIGKILL
        # A signal that comes before main() ends the process as it ends any.
        if status not in {scenario.status, -number} | (set() if killed else {128 + number}):
            raise Wrong(f"{what}: status {status}\n{err}")
        if err not in ("", "convgrad: interrupted\n"):
            raise Wrong(f"{what}: {err}")
        try:
            scenario.check_files(self.folder(), status, allow_temporaries=killed)
        except Wrong as wrong:
            raise Wrong(f"{what}: {wrong}") from None
        left = any(faults.TEMPORARY.fullmatch(os.path.basename(name))
                   for name in scenario.listing(self.folder()))
        return ("in time to end it" if status != scenario.status else "too late") + (
            ", a temporary left" if left else "")

    def strike_often(self, numbers, count):
        random.seed(7)
        tasks = []
        for scenario in large_scenarios():
            scenario.learn(self.folder())
            begin = time.monotonic()
            scenario.run(self.folder())
            duration = time.monotonic() - begin
            for i in range(count // 2):
                moment, number = random.uniform(0, 1.2 * duration), numbers[i % len(numbers)]
                tasks.append(lambda s=scenario, n=number, m=moment: self.strike(s, n, m))
        names = " and ".join(number.name for number in numbers)
        tally = self.do_all(names, tasks)
        ended = sum(n for end, n in tally.ends.items() if end.startswith("in time"))
        self.assertGreater(ended, len(tasks) // 8, tally.line())

    def test_kill(self):
        self.strike_often([signal.SIGKILL], 500 if FULL else 12)

    def test_interrupt_and_terminate(self):
        self.strike_often([signal.SIGINT, signal.SIGTERM], 500 if FULL else 16)
