"""scripts/gpu: what a machine with a device is given starts without anything else, and survives what happens there."""
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from bare_root import enter, make_bare_root
from harness import BINARY, ROOT, CliTest

BUILD = pathlib.Path(BINARY).resolve().parent


def why_skipped():
    if os.environ.get("CONVGRAD_SANITIZE"):
        return "sanitizers' libraries are not staged"
    if not (BUILD / "convgrad_cuda.so").exists() or not (BUILD / "tests/convgrad_gpu_tests").exists():
        return "built without CUDA"
    return ""


if why_skipped():
    print("skipped:", why_skipped())
    sys.exit(77)


class Stage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.root = pathlib.Path(cls.temporary.name) / "root"
        make_bare_root(cls.root)
        cls.folder = cls.root / "somewhere/device"
        subprocess.run([ROOT / "scripts/gpu/stage", "--build", BUILD, "--to", cls.folder], check=True, capture_output=True)
        cls.enter = enter(cls.root)

    def call(self, *args):
        """run in the bare root: its result, and the rows that it has written."""
        if self.enter is None:
            self.skipTest("this user may enter no other root")
        bare = ["/usr/bin/env", "-i", "PATH=/usr/bin", "OUT=/out", "LD_LIBRARY_PATH="]
        done = subprocess.run([*self.enter, *bare, "/somewhere/device/run", *args], capture_output=True, text=True, timeout=300,
                              check=False)
        name = args[0] + ("-cpu" if "cpu" in args else "")
        rows = self.root / f"out/{name}.jsonl"
        return done, [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []

    def test_it_has_no_path_of_this_machine(self):
        for name in ("convgrad", "convgrad_gpu_tests"):
            read = subprocess.run(["readelf", "-d", self.folder / name], capture_output=True, text=True, check=True).stdout
            self.assertEqual(re.findall(r"R(?:UN)?PATH.*\[(.*)\]", read), ["$ORIGIN/lib"])

    def test_without_a_device_every_command_says_so(self):
        for command, least in (("smoke", 14), ("tests", 30), ("sanitize", 1)):
            with self.subTest(command=command):
                done, rows = self.call(command)
                self.assertEqual((done.returncode, done.stderr), (4, ""), done.stdout)
                self.assertGreaterEqual(len(rows), least)
                for row in rows:
                    self.assertEqual(row["status"], "no device", row)
                    self.assertIn("no CUDA device", row["detail"])
                self.assertLess(len(done.stdout), 12000)
        done, rows = self.call("bench")
        self.assertEqual((done.returncode, done.stderr, rows), (4, "", []), done.stdout)
        self.assertIn("no CUDA device", done.stdout)

    def test_all_libraries_are_there(self):
        done, rows = self.call("smoke", "--backend", "cpu")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual({row["status"] for row in rows}, {"ok"})
        self.assertGreaterEqual(len(rows), 14)
        self.assertIn("libraries    all found", done.stdout)
        self.assertRegex(done.stdout, r"BLAS +OpenBLAS ")

    def test_a_call_goes_on_where_the_last_one_stopped(self):
        suite = self.folder / "layers/reference.tsv"
        suite.write_text("".join(f"{name}\tconv2d n2 h8 w8 c4 k8 r3 s3 pad_same\n" for name in ("one", "two")))
        done, rows = self.call("bench", "float32", "--backend", "cpu", "--seconds", "0")
        self.assertIn("to go on: run bench float32", done.stdout)
        self.assertEqual(rows, [])
        lines = suite.read_text()
        suite.write_text(lines.splitlines(keepends=True)[0])
        done, first = self.call("bench", "float32", "--backend", "cpu")
        self.assertEqual({row["layer"] for row in first}, {"one"}, done.stdout + done.stderr)
        self.assertLessEqual({"auto", "direct", "PyTorch", "PyTorch deterministic"}, {row["column"] for row in first})
        suite.write_text(lines)
        done, rows = self.call("bench", "float32", "--backend", "cpu")
        self.assertEqual(rows[:len(first)], first)
        self.assertEqual({row["layer"] for row in rows[len(first):]}, {"two"})
        self.assertRegex(done.stdout, r"\| two \| \d.* \|")


class Cases(CliTest):
    """What a process can do to a command."""

    def setUp(self):
        super().setUp()
        folder = self.folder / "device"
        (folder / "lib").mkdir(parents=True)
        (folder / "version").write_text("a test\n")
        for file in (ROOT / "scripts/gpu").glob("*.py"):
            shutil.copy(file, folder)
        shutil.copy(ROOT / "scripts/compare_peers.py", folder)
        shutil.copy(ROOT / "scripts/peers.py", folder)
        sys.path.insert(0, str(folder))
        self.addCleanup(sys.path.remove, str(folder))
        os.environ["OUT"] = str(folder / "out")
        self.addCleanup(os.environ.pop, "OUT")
        for name in ("steps", "bench"):
            sys.modules.pop(name, None)
        import steps
        self.steps = steps

    def test_a_case_that_hangs_or_dies_leaves_the_others(self):
        session = self.steps.Session("tests", 600)
        for name, command, limit in (("hangs", "sleep 60", 1), ("heeds nothing", "trap '' TERM; sleep 60 & wait; sleep 60", 1),
                                     ("dies", "kill -SEGV $$", 60), ("fails", "echo this is why >&2; exit 3", 60),
                                     ("good", "", 60)):
            session.case(name, ["bash", "-c", command], limit)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(session.finish(), 1)
        self.assertEqual([row["status"] for row in session.rows], ["hung", "hung", "failed", "failed", "ok"])
        self.assertIn("this is why", session.rows[3]["detail"])
        self.assertIn("| good | ok |", printed.getvalue())
        # Another call has them.
        again = self.steps.Session("tests", 60)
        self.assertEqual(again.case("good", ["false"], 9), (None, None))
        self.assertEqual(len(again.rows), 5)

    def test_a_program_that_does_not_start_is_a_failure(self):
        with self.assertRaisesRegex(SystemExit, "lists no algorithms: .*failed to run"):
            self.steps.Session("tests", 60).algorithms()

    def test_no_case_begins_behind_the_end(self):
        session = self.steps.Session("tests", 0)
        self.assertEqual(session.case("late", ["true"], 9), ("left out", None))
        # Nor is one blamed for an end that is not its own.
        session = self.steps.Session("tests", 2)
        self.steps.LEAST = 1
        self.assertEqual(session.case("cut off", ["sleep", "30"], 9), ("left out", None))
        self.assertEqual(session.rows, [])

    def test_another_stage_is_refused(self):
        import bench
        bench.SUITE = ROOT / "bench/layers/reference.tsv"
        self.assertEqual(len(bench.layers_of("bfloat16")[1]), 18)
        with self.assertRaises(SystemExit):
            bench.layers_of("float31")

    def test_a_table_has_the_reasons_for_empty_columns(self):
        import bench
        bench.SUITE = ROOT / "bench/layers/reference.tsv"
        session = self.steps.Session("bench", 60)
        one = bench.Bench(session, "float32")
        layer = one.layers[0]
        for column, ms in (("auto", 2.0), ("cuda_simt_gemm", 2.1), ("PyTorch", 1.0)):
            one.add(layer, column, status="ok", algorithm="cuda_simt_gemm", ms=ms, gflops=1000.0, gbytes_per_s=10.0)
        one.add(layer, "cudnn", status="none", reason="libcudnn.so.9 is not installed")
        table = one.table()
        self.assertIn("| stem7x7s2 | 2 | simt_gemm | 1 | 10 | 2.1 | simt_gemm | – | – | 1 | – | 0.5 |", table)
        self.assertIn("cudnn is empty (stem7x7s2): libcudnn.so.9 is not installed", table)
