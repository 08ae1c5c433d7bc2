"""--backend cuda from a shell. Most of it needs a device, and is skipped with the reason elsewhere."""
import itertools
import os
import shutil
import time
import unittest

from harness import BINARY, DTYPES, OPS, SmallTest, run, small


def why_no_device():
    report = run("info").out
    if report.count("\ndevice "):
        return None
    return report[report.index("\nCUDA "):].splitlines()[2].strip()


WHY = why_no_device()
DRIVER = os.environ.get("CONVGRAD_TEST_DRIVER", "")


class WithoutDevice(SmallTest):
    def test_hidden_devices_are_reported_at_once(self):
        for command in ([], ["verify"]):
            start = time.monotonic()
            self.refuses(4, ["--backend cuda", "CUDA", "--backend cpu"],
                         *command, *self.problem.args(), "--backend", "cuda", env={"CUDA_VISIBLE_DEVICES": ""})
            self.assertLess(time.monotonic() - start, 10)

    def test_a_program_without_its_module(self):
        # What computes on the processor does not need it.
        alone = self.folder / "convgrad"
        shutil.copy(BINARY, alone)
        self.refuses(4, ["--backend cuda", "--backend cpu"], *self.problem.args(), "--backend", "cuda", program=alone)
        self.assert_quiet(self.run_here(*self.problem.args(), program=alone))
        self.write("convgrad_cuda.so", b"no module")
        self.refuses(4, ["--backend cuda", "--backend cpu"], *self.problem.args(), "--backend", "cuda", program=alone)

    @unittest.skipUnless(DRIVER, "no CONVGRAD_TEST_DRIVER: the folder of tests/driver's library")
    @unittest.skipUnless("CUDA         toolkit" in run("info").out, "built without CUDA")
    def test_drivers_without_a_device(self):
        for version, status, said in (
                (12040, 0, "the driver serves CUDA 12.4, and this convgrad was built with "),
                (99000, 100, "the driver sees none"),                 # CUDA_ERROR_NO_DEVICE
                (99000, 803, "unsupported display driver"),           # ..._SYSTEM_DRIVER_MISMATCH
                (99000, 999, "unknown error")):
            env = {"LD_LIBRARY_PATH": DRIVER, "CUDA_VERSION_OF_TEST": str(version),
                   "CUDA_STATUS_OF_TEST": str(status)}
            with self.subTest(version=version, status=status):
                self.assertIn(said, run("info", env=env).out)
                for device in ([], ["--device", "7"]):
                    self.refuses(4, ["--backend cuda", said, "--backend cpu"],
                                 *self.problem.args(), "--backend", "cuda", *device, env=env)

    def test_names_that_do_not_fit_each_other(self):
        self.refuses(2, ["--algorithm", "cuda_streaming", "--backend cpu"],
                     *self.problem.args(), "-b", "cpu", "-a", "cuda_streaming")
        self.refuses(2, ["--algorithm", "--backend reference"], *self.problem.args(), "-b", "reference", "-a", "cuda_streaming")

    def test_dry_run_prints_the_rule(self):
        result = self.run_here(*self.problem.args(), "--dry-run")
        self.assertEqual(result.status, 0, str(result))
        self.assertRegex(result.out, r"\nbackend +cpu: a CUDA device is taken if .* 10 GB/s\): .* <= 2 s\n")

    def test_info_and_list_name_the_algorithms(self):
        for command in (["info"], ["--list-algorithms"]):
            out = run(*command).out
            for name in ("cuda_streaming", "cuda_simt_gemm", "cuda_mma", "cuda_wgmma", "cudnn", "cudnn_any"):
                self.assertIn("\n" + name + " ", out)


@unittest.skipIf(WHY, WHY)
class OnDevice(SmallTest):
    def test_every_op_and_dtype(self):
        for op, dtype, last in itertools.product(OPS, DTYPES, (True, False)):
            with self.subTest(op=op, dtype=dtype, last=last):
                self.assert_computes(small(op, last=last), dtype, "--backend", "cuda")

    def test_filter_formats(self):
        for order in ("OIHW", "OHWI"):
            self.assert_computes(small("conv2d"), "float32", "-b", "cuda", "--filter-format", order,
                                 filter_format=order)

    def test_verify(self):
        args = [arg for arg in self.problem.args() if arg not in ("-o", "dw.npy")]
        self.assertEqual(self.run_here("verify", *args, "-b", "cuda").status, 0)

    def test_a_number_that_no_device_has(self):
        self.refuses(4, ["--device 99", "CUDA device"], *self.problem.args(), "-b", "cuda", "--device", "99")

    def test_too_little_memory(self):
        self.refuses(5, ["--memory-limit"], *self.problem.args(), "-b", "cuda", "--memory-limit", "1KiB")
