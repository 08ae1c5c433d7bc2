"""--json: one strict JSON document per run, for results and for errors alike."""
import hashlib
import os

import numpy as np
from harness import ALL_ALGORITHMS, PROCESSOR, Problem, SmallTest, parse_report, raw_npy, save
from verifying import VerifyTest


class Compute(SmallTest):
    def test_fields(self):
        report = self.report(*self.problem.args(), "-t", 2)
        self.assertEqual(list(report), ["schema", "command", "command_line", "status", "exit_code",
                                        "tool", "tensors", "op", "attrs", "work",
                                        "execution", "timing_ms", "perf", "output"])
        self.assertEqual(report["command_line"],
                         "convgrad " + " ".join(map(str, self.problem.args())) + " -t 2 --json")
        self.assertEqual(report["op"], "conv2d")
        self.assertEqual(report["tensors"]["input"], {
            "file": "x.npy", "shape": [2, 7, 9, 4], "dtype": "float32", "descr": "<f4",
            "fortran_order": False, "bytes": 2 * 7 * 9 * 4 * 4,
            "hash": "sha256:" + hashlib.sha256(self.problem.x.astype("<f4").tobytes()).hexdigest()})
        self.assertEqual(report["tensors"]["out_backprop"]["shape"], [2, 4, 9, 6])
        attrs = report["attrs"]
        self.assertEqual(
            {key: attrs[key] for key in ("op", "tensorflow_op", "dtype", "out_dtype", "data_format",
                                         "filter_format", "filter_shape", "groups", "strides",
                                         "dilations", "pads")},
            {"op": "conv2d", "tensorflow_op": "Conv2DBackpropFilter", "dtype": "float32",
             "out_dtype": "float32", "data_format": "NHWC", "filter_format": "HWIO",
             "filter_shape": [3, 2, 2, 6], "groups": 2, "strides": [2, 1], "dilations": [1, 2],
             "pads": [[1, 1], [1, 1]]})
        # 2 flops for each of N P Q R S C/G K, padding included.
        self.assertEqual(report["work"]["flops"], 2 * 2 * 4 * 9 * 3 * 2 * 2 * 6)
        self.assertEqual(report["work"]["bytes"], 4 * (2 * 7 * 9 * 4 + 2 * 4 * 9 * 6 + 72))
        execution = report["execution"]
        self.assertEqual((execution["backend"], execution["threads"]), ("cpu", 2))
        self.assertIn(execution["algorithm"], ALL_ALGORITHMS)
        for key in ("memory_bytes", "memory_limit_bytes", "blocks", "slices", "tiles"):
            self.assertGreater(execution[key], 0)
        time = report["timing_ms"]
        perf = report["perf"]
        self.assertAlmostEqual(perf["gflops"] * time["kernel"] * 1e6 / report["work"]["flops"], 1, 1)
        self.assertAlmostEqual(perf["gbytes_per_s"] / perf["gflops"],
                               report["work"]["bytes"] / report["work"]["flops"], 9)

    def test_nothing_else_on_stdout(self):
        for extra in (["--json", "-v"], ["--json", "--list-algorithms"], ["--json=-"]):
            with self.subTest(extra):
                self.assertEqual(parse_report(self.run_here(*self.problem.args(), *extra).out)["exit_code"], 0)

    def test_a_report_that_cannot_be_written(self):
        for name, status in (("/dev/full", 5), ("none/r.json", 3), (".", 3)):
            self.assert_one_error(self.run_here(*self.problem.args(), f"--json={name}"), status, name)

    def test_dry_run_has_no_timing(self):
        self.assertNotIn("timing_ms", self.report(*self.problem.args(), "--dry-run"))

    def test_a_name_that_is_no_utf8(self):
        name = b"caf\xe9.npy"
        (self.folder / "x.npy").rename(os.fsdecode(bytes(self.folder) + b"/" + name))
        report = self.report(*self.problem.args(x=os.fsdecode(name)))
        self.assertIn("caf", report["tensors"]["input"]["file"])

    def test_conversions_are_timed(self):
        # Big endian and Fortran order are converted; what is stored as kernels take it is not.
        problem = Problem(n=16, size=(32, 32), c=16, k=2, taps=(1, 1))   # 1 MiB: more than a tick
        problem.save(self.folder)
        shape = problem.x.shape
        for swapped, data in ((False, self.read("x.npy")),
                              (True, raw_npy(shape, "'>f4'", problem.x.astype(">f4").tobytes())),
                              (True, raw_npy(shape, "'<f4'", problem.x.astype("<f4").tobytes("F"), fortran=True))):
            self.write("x.npy", data)
            self.assertEqual(self.report(*problem.args())["timing_ms"]["convert"] > 0, swapped)

    def test_the_environment_of_openblas(self):
        # HASWELL needs AVX2; PRESCOTT runs on every x86-64.
        core = "NEOVERSEN1" if PROCESSOR == "aarch64" else "PRESCOTT"
        blas = self.report("info", env={"OPENBLAS_CORETYPE": core})["tool"]["blas"]
        self.assertEqual((blas["OPENBLAS_CORETYPE"], blas["core"].upper()), (core, core))
        self.assertIsNone(self.report("info")["tool"]["blas"]["OPENBLAS_CORETYPE"])


class Errors(SmallTest):
    def test_hints(self):
        # The part of a message that says what to do, and no other.
        save(self.folder / "a; use b.npy", [1.0])
        data = self.read("x.npy")
        self.write("short.npy", data[:-1])
        for args, hint in ((["-p", "sam"], "did you mean 'SAME'?"), (["-s", "0"], None),
                           (["--frobnicate"], "see convgrad --help"),
                           (["-i", "none; use x.npy"], None), (["-i", "a; use b.npy"], None),
                           (["-i", "none; a.npy", "-g", "a; use b.npy"], None),
                           (["-i", "short.npy"], None), (["--threads", "x"], "see convgrad --help"),
                           (["--algorithm", "reference"], "use --backend reference"),
                           (["-o", "-"], "use --json=FILE")):
            error = parse_report(self.run_here("--json", *self.problem.args(), *args).out)["error"]
            with self.subTest(args):
                self.assertEqual(error["hint"], hint, error["message"])
                self.assertTrue(error["message"].endswith(hint or ""))

    def test_an_error_of_both(self):
        result = self.run_here(*self.problem.args(), "-s", "0", "--json=/dev/full")
        self.assertIn(result.status, (3, 5))
        self.assertEqual(result.raw, b"")


class Verify(VerifyTest):
    def test_fields(self):
        report = self.report()
        seconds = report["timing_ms"]["kernel"] * 1e-3  # the reference's are no kernel's
        self.assertAlmostEqual(report["perf"]["gflops"] * seconds * 1e9 / report["work"]["flops"],
                               1, 1)
        compare = report["compare"]
        self.assertEqual(
            set(compare), {"verdict", "got", "dtype", "want", "criterion", "count", "mismatches",
                           "failing", "relative_error", "max_abs", "max_rel", "max_ulp", "max_ratio",
                           "rounding", "taps", "nonfinite", "all_zero", "vacuous", "repeat"})
        self.assertEqual((compare["count"], compare["mismatches"]), (72, 0))
        self.assertIn(compare["got"], ALL_ALGORITHMS)
        self.assertEqual(compare["max_abs"], {"value": 0.0})
        self.assertEqual([tap["tap"] for tap in compare["taps"]],
                         [[r, s] for r in range(3) for s in range(2)])

    def test_a_report_of_a_mismatch_that_cannot_be_written(self):
        result = self.run_here(*self.args("--result", self.result_file(self.dw + 1), "--json=none/r.json"))
        self.assertGreaterEqual(result.status, 2)


class Info(SmallTest):
    def test_a_report_replaces_nothing_but_a_report(self):
        self.write("jobs.jsonl", b'{"op": "conv2d"}\n')
        save(self.folder / "other.npy", np.ones(3))
        self.assert_quiet(self.run_here(*self.problem.args()))
        os.symlink("x.npy", self.folder / "link.npy")
        os.symlink("new.npy", self.folder / "new-link.npy")
        verify = ["verify", "-i", "x.npy", "-g", "dy.npy", *self.problem.flags()]
        another = ("--json", "another file")
        for parts, *args in ((another, "inspect", "x.npy", "--json=x.npy"),
                             (another, *self.problem.args(), "--json=other.npy"),
                             (another, "generate", "conv2d", "--shape", "1,2,2,1", "-k", "1", "-o", ".", "--clobber",
                              "--json=x.npy"),
                             (another, "batch", "jobs.jsonl", "--json=jobs.jsonl"),
                             ((), "batch", "jobs.jsonl", "--json=jobs.jsonl", "--match", "("),
                             ((), *self.problem.args(), "--json=x.npy", "--kernel"),
                             *((("--json",), *self.problem.args(), f"--json={name}")
                               for name in ("dw.npy", "x.npy", "./dy.npy", "link.npy")),
                             *((("--json",), *verify, flag, "dw.npy", "--json=dw.npy")
                               for flag in ("--result", "--golden")),
                             *((("--json",), *self.problem.args("new.npy"), f"--json={name}")
                               for name in ("new.npy", "./new.npy", self.folder / "new.npy", "new-link.npy"))):
            self.refuses(2, parts, *args)
        (self.folder / "empty.json").touch()
        for name in ("new.json", "new.json", "empty.json"):
            self.assertEqual(self.run_here(*self.problem.args(), f"--json={name}").status, 0)
            self.assertEqual(parse_report((self.folder / name).read_text())["status"], "ok")

    def test_info(self):
        report = self.report("info")
        self.assertGreaterEqual(report["machine"]["threads"], 1)
        self.assertGreater(report["machine"]["memory_bytes"], 1 << 28)
        self.assertTrue(report["cuda"]["devices"] or report["cuda"]["why_none"])
        text = self.succeed("info")
        n = report["machine"]["threads"]
        for part in ("processor", f", {n} thread{'s' * (n > 1)}, ", "BLAS", "CUDA", "algorithms", "im2col_gemm", "direct"):
            self.assertIn(part, text.out)


class Determinism(SmallTest):
    def test_same_report_but_for_the_times(self):
        def stable():
            report = self.report(*self.problem.args())
            del report["timing_ms"], report["perf"]
            return report

        self.assertEqual(stable(), stable())
