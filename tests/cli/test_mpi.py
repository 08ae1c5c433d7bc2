"""--mpi: the bits of one process from any number of ranks; errors end the whole job with one line."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest
import xml.etree.ElementTree

import numpy as np

from faults import INJECT
from harness import (BINARY, DTYPES, ERROR, ROOT, SANITIZED, CliTest, Problem, clean_environment, parse_report,
                     raw_npy, save, wait_until)
from test_ranges import PROBLEMS, RangesTest

MODULE = pathlib.Path(BINARY).parent / "convgrad_mpi.so"
MPIRUN = shutil.which("mpirun")
# In a container tests may run as root, and on fewer processors than there are ranks.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1",
               "OMPI_MCA_btl": "self,vader",
               "ASAN_OPTIONS": "detect_leaks=0"}   # Open MPI keeps memory until the end


def read_bytes(pid):
    """What a process has read from files and pipes so far."""
    return int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text()).group(1))


class Module(CliTest):
    def test_a_program_without_it_says_so(self):
        self.use_small()
        lonely = self.folder / "convgrad"
        shutil.copy(BINARY, lonely)
        done = subprocess.run([lonely, "--mpi", *self.problem.args()], cwd=self.folder, env=clean_environment(),
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertRegex(done.stderr, r"^convgrad: error: --mpi: .*install [^\n]*\n$")
        self.assertNotIn("dw.npy", self.listing())

    def test_other_runs_do_not_load_it(self):
        libraries = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("libmpi", libraries)


@unittest.skipUnless(MPIRUN and MODULE.exists(), "no Open MPI, or a build without it")
class MpiTest(RangesTest):
    def assert_valid(self, report):
        try:
            import jsonschema
        except ImportError:
            return
        schema = json.loads((ROOT / "docs/report.schema.json").read_text())
        jsonschema.validate(report, schema, jsonschema.Draft202012Validator)

    def mpi_environment(self):
        folder = self.folder / "session"   # Open MPI's own files
        folder.mkdir(exist_ok=True)
        return {**clean_environment(), **ENVIRONMENT, "TMPDIR": str(folder)}

    def mpirun(self, ranks, *args, timeout=120):
        return subprocess.run([MPIRUN, "-n", str(ranks), BINARY, "--mpi", *map(str, args)], cwd=self.folder,
                              env=self.mpi_environment(), capture_output=True, text=True, check=False,
                              timeout=timeout, stdin=subprocess.DEVNULL)

    def on_ranks(self, ranks, *extra):
        done = self.mpirun(ranks, *self.args, "-o", "ranks.npy", *extra)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return (self.folder / "ranks.npy").read_bytes()

    def mpirun_with_another_rank_1(self, prelude, ranks, *args):
        """prelude: what rank 1's shell does before it starts the program."""
        script = self.folder / "one"
        script.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" != 1 ] || {prelude}\nexec {BINARY} "$@"\n')
        script.chmod(0o755)
        return subprocess.run([MPIRUN, "-n", str(ranks), script, *args], cwd=self.folder,
                              env=self.mpi_environment(), capture_output=True, text=True, check=False, timeout=120)

    def assert_fails_once(self, done, status, *parts):
        """One line of convgrad's; mpirun adds some of its own."""
        self.assertEqual(done.returncode, status, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith(ERROR)]
        self.assertEqual(len(lines), 1, done.stderr)
        for part in parts:
            self.assertIn(part, lines[0])
        self.assertNotIn("ranks.npy", self.listing())


class SameBits(MpiTest):
    def test_one_to_eight_ranks(self):
        self.use()
        whole = self.one_run()
        for ranks in range(1, 9):
            self.assertEqual(self.on_ranks(ranks, "-t", 1), whole, ranks)

    def test_ops_and_dtypes(self):
        for index, op in enumerate(PROBLEMS):
            for ranks, dtype in enumerate(DTYPES, 2):
                last = (index + ranks) % 2 == 0
                self.use(op, dtype, last)
                with self.subTest(op=op, dtype=dtype, last=last, ranks=ranks):
                    self.assertEqual(self.on_ranks(ranks), self.one_run())

    def test_algorithms(self):
        self.use()
        for name in ("direct", "im2col_gemm"):
            self.assertEqual(self.on_ranks(3, "-a", name, "--memory-limit", "30MiB"),
                             self.one_run("-a", name), name)

    def test_more_ranks_than_images(self):
        for n in (0, 1, 2):
            self.use(n=n)
            self.problem.dy = self.problem.dy[:n]
            self.assertEqual(self.on_ranks(4), self.one_run(), n)

    def test_an_axis_without_pixels(self):
        problem = Problem(n=2, size=(0, 5), padding="same")
        problem.save(self.folder)
        self.args = ["-i", "x.npy", "-g", "dy.npy", *problem.flags()]
        self.assertEqual(self.on_ranks(2), self.one_run())

    def test_output_options(self):
        self.use()
        self.one_run("--out-dtype", "float64")
        shutil.copy(self.folder / "whole.npy", self.folder / "ranks.npy")
        self.assertEqual(self.on_ranks(2, "--out-dtype", "float64", "--accumulate"),
                         self.one_run("--out-dtype", "float64", "--accumulate"))

    def test_each_rank_reads_its_images_alone(self):
        self.use("conv2d", n=8, size=(256, 256), c=8, k=4, groups=1)
        done = self.mpirun(4, *self.args, "-o", "ranks.npy", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = parse_report(done.stdout)
        ranks = report["ranks"]
        self.assert_valid(report)
        self.assertEqual([r["images"] for r in ranks], [[0, 2], [2, 4], [4, 6], [6, 8]])
        tensors = report["tensors"]["input"]["bytes"] + report["tensors"]["out_backprop"]["bytes"]
        for rank in ranks:
            self.assertGreaterEqual(rank["read_bytes"], tensors / 4)
            self.assertLess(rank["read_bytes"], tensors / 4 + 2**16)

    def test_dry_run(self):
        self.use()
        done = self.mpirun(3, *self.args, "--dry-run")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count("problem    "), 1)


class Fails(MpiTest):
    def test_usage(self):
        self.use()
        for extra, parts in ((["--batch-range", "1/2", "-o", "part.npz"], ["--mpi", "--batch-range"]),
                             (["--backend", "reference"], ["--mpi", "reference"]), (["--list-algorithms"], ["--mpi"]),
                             (["--frobnicate"], ["--frobnicate"]), (["-t", "x"], ["--threads"]),
                             (["--mpi=1", "-t", "x"], ["--threads"])):
            with self.subTest(extra):
                self.assert_fails_once(self.mpirun(3, *self.args, "-o", "ranks.npy", *extra), 2, *parts)
        stream = ["-" if a == "x.npy" else a for a in self.args]
        self.assert_fails_once(self.mpirun(2, *stream, "-o", "ranks.npy"), 2, "--input")
        os.mkfifo(self.folder / "fifo")
        stream = ["fifo" if a == "x.npy" else a for a in self.args]
        self.assert_fails_once(self.mpirun(2, *stream, "-o", "ranks.npy"), 2, "--input", "fifo")

    def test_bad_input(self):
        self.use()
        x = (self.folder / "x.npy").read_bytes()
        (self.folder / "x.npy").write_bytes(x[:-4])
        self.assert_fails_once(self.mpirun(3, *self.args, "-o", "ranks.npy"), 3, "x.npy")
        (self.folder / "x.npy").write_bytes(x)
        self.assert_fails_once(self.mpirun(2, *self.args, "-o", "none/ranks.npy"), 3, "none")
        self.assert_fails_once(self.mpirun(2, *self.args, "-o", "ranks.npy", "--memory-limit", "1MiB"), 5,
                               "--memory-limit")

    def test_one_rank_alone_fails(self):
        self.use()
        done = self.mpirun_with_another_rank_1('set -- "$@" -a direct', 3, "--mpi", *self.args,
                                               "-o", "ranks.npy", "-a", "im2col_gemm")
        self.assert_fails_once(done, 3, "rank 1", "algorithm", "direct", "im2col_gemm")

    @unittest.skipIf(SANITIZED, "sanitizers allocate by themselves")
    def test_one_rank_lacks_memory(self):
        # 17 MB of sums, all else is far below that; rank 0 must not wait for them for ever.
        problem = Problem(n=8, size=(32, 32), c=64, k=64, taps=(16, 16))
        problem.save(self.folder)
        done = self.mpirun_with_another_rank_1(
            f"export LD_PRELOAD={INJECT} CONVGRAD_FAULT=malloc:1+:ENOMEM CONVGRAD_FAULT_BYTES={8 * 2**20}", 2,
            "--mpi", *problem.args("ranks.npy"))
        self.assert_fails_once(done, 5, "rank 1", "out of memory", "partial gradients")

    def test_a_full_disk(self):
        self.use()
        self.assert_fails_once(self.mpirun(2, *self.args, "-o", "/dev/full"), 5, "/dev/full")

    def children(self, process):
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rsplit(")", 1)[1].split()
                name = os.readlink(entry.parent / "exe")
            except OSError:
                continue
            if int(fields[1]) == process.pid and pathlib.Path(name).name == pathlib.Path(BINARY).name:
                found.append(int(entry.parent.name))
        return found

    def test_a_killed_rank_ends_the_job(self):
        shape = [256, 112, 112, 64]   # 822 MB each, sparse: seconds of work
        for name in ("x.npy", "dy.npy"):
            header = raw_npy(shape, payload=b"")
            with open(self.folder / name, "wb") as file:
                file.write(header)
                file.truncate(len(header) + 4 * int(np.prod(shape)))
        save(self.folder / "ranks.npy", np.ones(3))
        old = (self.folder / "ranks.npy").read_bytes()
        with subprocess.Popen([MPIRUN, "-n", "3", BINARY, "--mpi", "--op", "conv2d", "-i", "x.npy", "-g", "dy.npy", "-k",
                               "3", "-p", "same", "-t", "1", "-o", "ranks.npy"], cwd=self.folder,
                              env=self.mpi_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            def begun():   # more than it takes to start MPI
                ranks = self.children(process)
                return len(ranks) == 3 and all(read_bytes(rank) > 64 << 20 for rank in ranks)
            wait_until(begun, process)
            ranks = self.children(process)
            os.kill(ranks[1], signal.SIGKILL)
            _, err = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertRegex(err, re.compile("signal 9|killed", re.I))
        self.assertEqual(self.children(process), [])
        self.assertEqual((self.folder / "ranks.npy").read_bytes(), old)
        self.assertEqual(self.listing(), ["dy.npy", "ranks.npy", "session", "x.npy"])


class Batch(MpiTest):
    """batch --mpi: jobs that ranks take from rank 0."""

    def setUp(self):
        super().setUp()
        self.use_small()
        save(self.folder / "bad.npy", self.problem.expected() + 1)

    def job(self, name, **more):
        flags = self.problem.flags()
        fields = {flag[2:].replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2])}
        return {"name": name, "input": "x.npy", "out_backprop": "dy.npy", **fields, **more}

    def manifest(self, jobs):
        (self.folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))

    def mixed(self):
        """Jobs of all kinds; two rows of them wait for others."""
        jobs = [self.job(f"o{i}", output=f"{i}.npy") for i in range(6)]
        jobs += [self.job(f"r{i}", result=f"{i}.npy", bitwise=True) for i in range(6)]
        jobs += [self.job("bad", golden="bad.npy"), self.job("none", input="none.npy", output="n.npy"),
                 self.job("after", result="n.npy"), self.job("\u00fc\n<&>", command="verify")]
        self.manifest(jobs)

    def popen(self, ranks, *args, launcher=()):
        return subprocess.Popen([MPIRUN, *launcher, "-n", str(ranks), BINARY, "batch", "--mpi", *args], cwd=self.folder,
                                env=self.mpi_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def batch(self, ranks, *args, stdin="", **more):
        with self.popen(ranks, *args, **more) as process:
            out, err = process.communicate(stdin, timeout=120)
        return process.returncode, out, [line for line in err.splitlines() if line.startswith("convgrad: ")]

    @staticmethod
    def rows(out):
        return sorted(re.sub(r"[\d.]+ m?s$", "", line) for line in out.splitlines())

    def test_what_one_process_says(self):
        self.mixed()
        alone = self.run_here("batch", "jobs.jsonl", "--keep-going", "--junit", "alone.xml")
        outputs = {f"{i}.npy": (self.folder / f"{i}.npy").read_bytes() for i in range(6)}
        for ranks, more in ((1, []), (4, []), (3, ["-j", "2", "-t", "2"])):
            for name in outputs:
                (self.folder / name).unlink()
            status, out, errors = self.batch(ranks, "jobs.jsonl", "--keep-going", "--junit", "r.xml", "--json=r.json",
                                             *more)
            self.assertEqual((status, self.rows(out)), (alone.status, self.rows(alone.out)))
            self.assertEqual(errors, alone.err.splitlines())
            self.assertEqual(outputs, {name: (self.folder / name).read_bytes() for name in outputs})
            untimed = [re.sub(r' time="[\d.]+"', "", (self.folder / name).read_text()) for name in ("alone.xml", "r.xml")]
            self.assertEqual(*untimed)
            report = parse_report((self.folder / "r.json").read_text())
            self.assert_valid(report)
            each = report["batch"]["ranks"]
            self.assertEqual([one["rank"] for one in each], list(range(ranks)))
            self.assertEqual(sum(one["jobs"] for one in each), len(report["jobs"]))
            self.assertEqual([one["jobs"] for one in each],
                             [sum(job["rank"] == rank for job in report["jobs"]) for rank in range(ranks)])
            self.assertEqual(report["batch"]["jobs_at_a_time"], ranks * (2 if more else 1))

    def test_other_ranks_do_jobs_too(self):
        self.slow(12)
        status, _, _ = self.batch(3, "jobs.jsonl", "--json=r.json", "-t", "1")
        ranks = parse_report((self.folder / "r.json").read_text())["batch"]["ranks"]
        self.assertEqual(status, 0)
        for rank in ranks:
            self.assertGreaterEqual(rank["jobs"], 2)

    def test_resume_shard_match_and_dry_run(self):
        self.manifest([self.job(f"o{i}", output=f"{i}.npy") for i in range(6)])
        self.assertIn("6 ok", self.batch(2, "jobs.jsonl", "--resume")[1])
        self.assertEqual(self.batch(3, "jobs.jsonl", "--resume")[1].count("skipped  "), 6)
        self.assertEqual(self.run_here("batch", "jobs.jsonl", "--resume").out.count("skipped  "), 6)
        (self.folder / "3.npy").write_bytes(b"")
        self.assertIn("1 ok, 5 skipped", self.batch(2, "jobs.jsonl", "--resume")[1])
        self.assertIn("3 jobs: 3 ok", self.batch(2, "jobs.jsonl", "--shard", "2/2")[1])
        self.assertIn("2 jobs: 2 planned", self.batch(2, "jobs.jsonl", "--match", "[12]", "--dry-run")[1])
        text = (self.folder / "jobs.jsonl").read_text()
        self.assertIn("6 ok", self.batch(2, "-", stdin=text)[1])

    @unittest.skipIf(SANITIZED, "the program ends by exit() then")
    def test_rank_0_ends_first(self):
        self.manifest([self.job("bad", golden="bad.npy")])
        # mpirun gives the others a second.
        done = self.mpirun_with_another_rank_1(f"export LD_PRELOAD={INJECT} CONVGRAD_FAULT_EXIT_MS=2000", 2,
                                               "batch", "--mpi", "jobs.jsonl")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("interrupted", done.stderr)

    def test_it_stops_at_a_failure(self):
        self.manifest([self.job("bad", golden="bad.npy")] + [self.job(f"r{i}", command="verify") for i in range(200)])
        status, out, _ = self.batch(2, "jobs.jsonl", "-t", "1")
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"201 jobs: (\d+ match, )?1 mismatch, \d+ not run;")

    def test_jobs_that_are_too_large(self):
        self.mixed()
        status, _, errors = self.batch(2, "jobs.jsonl", "--memory-limit", "20MiB", "--keep-going", "--match", "o")
        self.assertEqual((status, len(errors)), (5, 7), errors)   # o0 to o5, and none.npy is missing

    def test_a_job_that_needs_everything(self):
        self.manifest([self.job(f"o{i}", output=f"{i}.npy") for i in range(4)])
        status, out, errors = self.batch(2, "jobs.jsonl", "-j", "2", "-t", "2", "--memory-limit", "40MiB", "--json")
        self.assertEqual((status, errors), (0, []))
        for job in parse_report(out)["jobs"]:
            self.assertEqual((job["execution"]["memory_limit_bytes"] >> 20, job["rank"]), (40, 0))

    def test_errors_are_one_line(self):
        self.mixed()
        for args, status, *parts in ((["jobs.jsonl", "--frobnicate"], 2, "--frobnicate"), (["none.jsonl"], 3, "none.jsonl"),
                                     (["jobs.jsonl", "--shard", "3/2"], 2, "--shard")):
            code, out, errors = self.batch(2, *args)
            self.assertEqual((code, out, len(errors)), (status, "", 1), errors)
            for part in parts:
                self.assertIn(part, errors[0])

    def slow(self, count):
        size = 32 if SANITIZED else 112   # a tenth of a second each
        problem = Problem(n=4, size=(size, size), c=16, k=16, taps=(3, 3))
        problem.save(self.folder)
        self.manifest([{"name": f"j{i}", "op": "conv2d", "input": "x.npy", "out_backprop": "dy.npy", "kernel": 3,
                        "padding": "same", "output": f"{i}.npy", "backend": "reference"} for i in range(count)])

    def kill_a_rank(self, rank=1, number=signal.SIGKILL, launcher=()):
        """Kills a rank of 3 in the middle; returns what came out and the lines of the state then."""
        self.slow(16)
        state = self.folder / "jobs.jsonl.state"

        def lines():
            return [json.loads(line) for line in state.read_text().splitlines()[1:]] if state.exists() else []
        with self.popen(3, "jobs.jsonl", "--resume", "--keep-going", "--junit", "r.xml", "-t", "1",
                        launcher=launcher) as process:
            wait_until(lambda: sum(line["status"] == "ok" for line in lines()) >= 3, process)
            for child in Fails.children(self, process):
                if f"OMPI_COMM_WORLD_RANK={rank}\0".encode() in pathlib.Path(f"/proc/{child}/environ").read_bytes():
                    os.kill(child, number)
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err, lines()

    def finish_and_check(self, lost):
        again = self.run_here("batch", "jobs.jsonl", "--resume", "--junit", "r.xml")
        self.assertEqual(again.status, 0)
        self.assertEqual(sorted(re.findall(r"(?m)^lost +(\S+) ", again.out)), sorted(lost))
        self.assertRegex(again.out, r"16 jobs: \d+ ok, \d+ skipped;")
        self.assertEqual(len({(self.folder / f"{i}.npy").read_bytes() for i in range(16)}), 1)

    def test_a_killed_rank_loses_nothing(self):
        # mpirun ends the others, a second or two later: they may be done by then.
        status, out, err, lines = self.kill_a_rank()
        self.assertEqual(status, 128 + signal.SIGKILL, err)
        self.check_what_is_left(out, err, lines)

    def test_rank_0_says_what_ran(self):
        _, out, err, lines = self.kill_a_rank(0, signal.SIGTERM)
        error = next(line for line in err.splitlines() if line.startswith(ERROR))
        self.assertRegex(error, r"jobs.jsonl: mpirun ended all ranks, while these jobs ran: j\d+ on rank \d, .*--resume")
        self.assertEqual([name for name in self.listing() if name.startswith(".")], [])
        passed, done = self.check_what_is_left(out, err, lines)
        self.assertEqual(passed, done)

    def check_what_is_left(self, out, err, lines):
        done = {line["name"] for line in lines if line["status"] == "ok"}
        lost = {line["name"] for line in lines if line["status"] == "begun"} - done
        self.assertLessEqual(set(re.findall(r"(?m)^ok +(\S+) ", out)), done)
        self.assertEqual(set(re.findall(r"(j\d+) on rank \d", err)) | set(re.findall(r"\((j\d+)\): lost: ", err)), lost,
                         err)
        suite = xml.etree.ElementTree.parse(self.folder / "r.xml").getroot()[0]
        passed = {case.get("name") for case in suite.iter("testcase") if len(case) == 0}
        self.assertLessEqual(passed, done)
        self.assertEqual(suite.get("errors"), str(16 - len(passed)))
        self.finish_and_check(lost)
        return passed, done

    def test_with_recovery_the_others_go_on(self):
        _, out, err, lines = self.kill_a_rank(launcher=["--enable-recovery"])
        lost = re.findall(r"line \d+ \((j\d+)\): lost: rank 1, which ran it, has ended", err)
        self.assertEqual(len(lost), 1, err)
        self.assertRegex(out, r"16 jobs: 15 ok, 1 error;")
        merged = self.run_here("batch", "--merge", "r.xml", "--junit", "all.xml")
        self.assertEqual(merged.status, 5)
        self.assertIn(lost[0], merged.err)
        self.finish_and_check(lost)

    def test_the_documented_line(self):
        (line,) = re.findall(r"(?m)^mpirun -n 4 convgrad batch (.*)$", (ROOT / "docs/batch.md").read_text())
        self.manifest([self.job(f"o{i}", output=f"{i}.npy") for i in range(9)])
        words = line.split()
        self.assertEqual(words[0], "--mpi")
        status, out, errors = self.batch(4, *words[1:])
        self.assertEqual((status, errors), (0, []))
        self.assertIn("9 jobs: 9 ok;", out)
        self.assertIn("report.xml", self.listing())


if __name__ == "__main__":
    if not MPIRUN or not MODULE.exists():
        print("no Open MPI: all but the module's absence is skipped", file=sys.stderr)
    unittest.main()
