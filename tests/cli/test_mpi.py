"""--mpi: the bits of one process from any number of ranks; errors end the whole job with one line."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

import numpy as np

from faults import INJECT
from harness import (BINARY, ERROR, SANITIZED, Problem, SmallTest, clean_environment, parse_report, raw_npy,
                     save, wait_until)
from test_ranges import RangesTest

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


class Module(SmallTest):
    def test_a_program_without_it_says_so(self):
        lonely = self.folder / "convgrad"
        shutil.copy(BINARY, lonely)
        self.refuses(4, [re.compile("^--mpi: .*install ")], "--mpi", *self.problem.args(), program=lonely)

    def test_other_runs_do_not_load_it(self):
        libraries = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("libmpi", libraries)


@unittest.skipUnless(MPIRUN and MODULE.exists(), "no Open MPI, or a build without it")
class MpiTest(RangesTest):
    def mpi_environment(self):
        folder = self.folder / "session"   # Open MPI's own files
        folder.mkdir(exist_ok=True)
        return {**clean_environment(), **ENVIRONMENT, "TMPDIR": str(folder)}

    def mpirun(self, ranks, *args, program=BINARY):
        return subprocess.run([MPIRUN, "-n", str(ranks), program, "--mpi", *map(str, args)], cwd=self.folder,
                              env=self.mpi_environment(), capture_output=True, text=True, check=False,
                              timeout=120, stdin=subprocess.DEVNULL)

    def on_ranks(self, ranks, *extra):
        done = self.mpirun(ranks, *self.args, "-o", "ranks.npy", *extra)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return self.read("ranks.npy")

    def mpirun_with_another_rank_1(self, prelude, ranks, *args):
        """prelude: what rank 1's shell does before it starts the program."""
        script = self.folder / "one"
        script.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" != 1 ] || {prelude}\nexec {BINARY} "$@"\n')
        script.chmod(0o755)
        return self.mpirun(ranks, *args, program=script)

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
        whole = self.one_run()
        for ranks in (1, 2, 3, 5, 8):
            self.assertEqual(self.on_ranks(ranks, "-t", 1), whole, ranks)

    def test_more_ranks_than_images(self):
        for n in (0, 1, 2):
            self.use(n=n)
            self.assertEqual(self.on_ranks(4), self.one_run(), n)

    def test_output_options(self):
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
        self.assertEqual([r["images"] for r in ranks], [[0, 2], [2, 4], [4, 6], [6, 8]])
        tensors = report["tensors"]["input"]["bytes"] + report["tensors"]["out_backprop"]["bytes"]
        for rank in ranks:
            self.assertGreaterEqual(rank["read_bytes"], tensors / 4)
            self.assertLess(rank["read_bytes"], tensors / 4 + 2**16)

    def test_dry_run(self):
        done = self.mpirun(3, *self.args, "--dry-run")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count("problem    "), 1)


class Fails(MpiTest):
    def test_usage(self):
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
        x = self.read("x.npy")
        self.write("x.npy", x[:-4])
        self.assert_fails_once(self.mpirun(3, *self.args, "-o", "ranks.npy"), 3, "x.npy")
        self.write("x.npy", x)
        self.assert_fails_once(self.mpirun(2, *self.args, "-o", "none/ranks.npy"), 3, "none")
        self.assert_fails_once(self.mpirun(2, *self.args, "-o", "ranks.npy", "--memory-limit", "1MiB"), 5,
                               "--memory-limit")

    def test_a_wrong_kernel(self):
        """What stands in OpenBLAS's place loses a pixel."""
        shutil.copy(os.environ["CONVGRAD_WRONG_BLAS"], self.folder / "libopenblas.so.0")
        self.write("all", f'#!/bin/sh\nLD_LIBRARY_PATH={self.folder}:$LD_LIBRARY_PATH exec {BINARY} "$@"\n')
        (self.folder / "all").chmod(0o755)
        done = self.mpirun(2, *self.args, "-o", "ranks.npy", "-a", "im2col_gemm", "--spot-check", 16,
                           program=self.folder / "all")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, ": rank [01]: im2col_gemm computes a wrong gradient: ")
        self.assertFalse((self.folder / "ranks.npy").exists())

    def test_one_rank_alone_fails(self):
        done = self.mpirun_with_another_rank_1('set -- "$@" -a direct', 3, *self.args,
                                               "-o", "ranks.npy", "-a", "im2col_gemm")
        self.assert_fails_once(done, 3, "rank 1", "algorithm", "direct", "im2col_gemm")

    @unittest.skipIf(SANITIZED, "sanitizers allocate by themselves")
    def test_one_rank_lacks_memory(self):
        # 17 MB of sums, all else is far below that; rank 0 must not wait for them for ever.
        problem = Problem(n=8, size=(32, 32), c=64, k=64, taps=(16, 16))
        problem.save(self.folder)
        done = self.mpirun_with_another_rank_1(
            f"export LD_PRELOAD={INJECT} CONVGRAD_FAULT=malloc:1+:ENOMEM CONVGRAD_FAULT_BYTES={8 * 2**20}", 2,
            *problem.args("ranks.npy"))
        self.assert_fails_once(done, 5, "rank 1", "out of memory", "partial gradients")

    @unittest.skipIf(SANITIZED, "the program ends by exit() then")
    def test_rank_0_ends_first(self):
        # mpirun gives the others a second.
        done = self.mpirun_with_another_rank_1(f"export LD_PRELOAD={INJECT} CONVGRAD_FAULT_EXIT_MS=2000", 2,
                                               *self.args, "-o", "/dev/full")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertNotIn("interrupted", done.stderr)

    def test_a_full_disk(self):
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
        old = self.read("ranks.npy")
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
        self.assertEqual(self.read("ranks.npy"), old)
        self.assertEqual(self.listing(), ["dy.npy", "ranks.npy", "session", "x.npy"])
