"""verify --save-repro: a small problem that fails as the large one does."""
import os
import shlex
import subprocess

import numpy as np
from harness import BINARY, OPS, Problem, clean_environment, load, npy_bytes, off, save, small, start
from verifying import VerifyTest


class ReproTest(VerifyTest):
    def fails(self, *extra, folder="repro"):
        """Runs a verify that must fail; what the report says of the small problem."""
        result = self.run_here(*self.args("--save-repro", folder, *extra))
        self.assertEqual((result.status, result.err), (1, ""), str(result))
        self.assertRegex(result.out, f"(?m)^repro: {folder} holds .*; sh repro.sh there repeats it$")
        return result.out

    def repeats(self, folder="repro", status=1):
        """repro.sh, from anywhere."""
        done = subprocess.run(["sh", self.folder / folder / "repro.sh"], cwd="/",
                              env=clean_environment({"CONVGRAD": os.path.abspath(BINARY)}),
                              capture_output=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (status, b""), done)
        return done.stdout.decode()

    def shapes(self, folder="repro"):
        return {name: load(self.folder / folder / name)[1].shape
                for name in os.listdir(self.folder / folder) if name.endswith(".npy")}


class CutOut(ReproTest):
    """The result is a file: the part in which it is wrong is cut out."""

    def test_one_element(self):
        for op, index in (("conv2d", (1, 1, 0, 4)), ("depthwise", (0, 2, 1, 1)),
                          ("conv3d", (1, 2, 0, 1, 2))):
            for last in (True, False):
                self.prepare(small(op, last))
                values = off(self.dw, (index, 3))
                self.result_file(values)
                folder = f"{op}{last}"
                with self.subTest(op=op, last=last):
                    self.fails("--result", "r.npy", folder=folder)
                    self.assertEqual(sorted(os.listdir(self.folder / folder)),
                                     ["README.txt", "dy.npy", "reference.npy", "repro.sh",
                                      "result.npy", "x.npy"])
                    one = (1,) * self.dw.ndim
                    shapes = self.shapes(folder)
                    self.assertEqual((shapes["result.npy"], shapes["reference.npy"]), (one, one))
                    self.assertEqual(load(self.folder / folder / "result.npy")[1].item(),
                                     values[index])
                    kind, want = load(self.folder / folder / "reference.npy")
                    self.assertEqual((kind, want.item()), ("float64", self.dw[index]))
                    out = self.repeats(folder)
                    self.assertIn("1 of 1 elements fail", out)
                    self.assertIn(f"got {values[index]:g}, want {self.dw[index]:g}", out)

    def test_the_taps_that_are_wrong(self):
        self.prepare(Problem(n=2, size=(9, 9), c=4, k=6, taps=(5, 5)))
        self.result_file(off(self.dw, ((1, 2, 3, 4), 5), ((3, 2, 3, 4), 9), ((0, 0, 0, 0), 1)))
        self.fails("--result", "r.npy")
        self.assertEqual(self.shapes()["result.npy"], (3, 1, 1, 1))
        np.testing.assert_array_equal(load(self.folder / "repro/reference.npy")[1],
                                      self.dw[1:4, 2:3, 3:4, 4:5])
        self.assertIn("2 of 3 elements fail", self.repeats())

    def test_formats_dtypes_and_criteria(self):
        for dtype in ("float16", "bfloat16", "float64"):
            self.prepare(small("conv2d"), dtype)
            values = self.problem.expected("OIHW")
            values[4, 1, 2, 0] += 16
            save(self.folder / "r.npy", values, dtype)
            for i, extra in enumerate(([], ["--bitwise"], ["--rtol", "0.001", "--atol", "0.25"],
                                       ["--max-ulp", 2])):
                folder = f"{dtype}{i}"
                with self.subTest(dtype=dtype, extra=extra):
                    self.fails("--result", "r.npy", "--filter-format", "OIHW", *extra,
                               folder=folder)
                    self.assertEqual(load(self.folder / folder / "result.npy")[0], dtype)
                    self.assertIn("1 of 1 elements fail", self.repeats(folder))

    def test_golden(self):
        save(self.folder / "g.npy", off(self.dw, ((1, 0, 1, 2), 2)), "float64")
        save(self.folder / "r.npy", self.dw)
        for extra in ([], ["--result", "r.npy"], ["--bitwise"]):
            folder = "golden" + "".join(extra).strip("-")
            with self.subTest(extra):
                self.fails("--golden", "g.npy", *extra, folder=folder)
                # By rounding, the golden file is wrong whatever the result; by its bits, the two
                # differ.
                result = load(self.folder / folder / "result.npy")
                if extra == ["--bitwise"]:
                    self.assertEqual(load(self.folder / folder / "golden.npy")[0], "float64")
                    self.assertEqual(result[1].item(), self.dw[1, 0, 1, 2])
                    self.assertIn("against golden.npy, 1 of 1 elements fail", self.repeats(folder))
                else:
                    self.assertEqual((result[0], result[1].item()),
                                     ("float64", self.dw[1, 0, 1, 2] + 2))
                    self.assertIn("1 of 1 elements fail", self.repeats(folder))

    def test_after_a_sample(self):
        self.prepare(Problem(n=2, size=(8, 8), c=8, k=8, taps=(3, 3)).fill_normal(8))
        self.result_file(off(self.dw, ((0, 0, 0, 0), 50)))
        self.fails("--result", "r.npy", "--sample", "20")
        self.assertEqual(self.shapes()["result.npy"], (1, 1, 1, 1))
        self.repeats()


class Computed(ReproTest):
    """The program's own result is cut out as a file is."""

    def test_one_element(self):
        # A criterion that rounding alone breaks.
        for op in OPS:
            self.prepare(small(op, n=3).fill_normal(8))
            with self.subTest(op):
                self.fails("--rtol", "0", "--atol", "0", folder=op)
                shapes = self.shapes(op)
                self.assertEqual(shapes["dy.npy"][0], 3)
                self.assertEqual(shapes["result.npy"], shapes["reference.npy"])
                self.assertRegex(self.repeats(op), r"MISMATCH: result.npy against the float64 reference, [1-9]")

    def test_out_dtype(self):
        self.prepare(small("conv2d").fill_normal(8))
        self.fails("--rtol", "1e-12", "--out-dtype", "float64")
        self.assertEqual(load(self.folder / "repro/result.npy")[0], "float64")
        self.repeats()

    def test_after_a_sample(self):
        self.prepare(small("conv2d").fill_normal(8))
        self.fails("--rtol", "0", "--sample", 20)
        self.repeats()

    def test_it_is_judged_as_it_was(self):
        # Of the program's own sums more is expected than of others'.
        self.prepare(small("conv2d").fill_normal(8))
        result = self.run_here(*self.args("--slack", "1e-9", "--save-repro", "repro"))
        self.assertEqual(result.status, 1, str(result))
        line = (self.folder / "repro/repro.sh").read_text().splitlines()[-1]
        self.assertTrue(line.endswith(" --slack 1.0000000000000001e-09 --longest-sum 512 --adders ieee"), line)
        self.repeats()


class Folder(ReproTest):
    def setUp(self):
        super().setUp()
        self.result_file(off(self.dw, ((0, 0, 0, 0), 2)))

    def test_nothing_on_a_match(self):
        save(self.folder / "r.npy", self.dw)
        result = self.succeed(*self.args("--result", "r.npy", "--save-repro", "repro"))
        self.assertFalse((self.folder / "repro").exists())
        self.assertNotIn("repro:", result.out)

    def test_an_empty_folder_whose_name_has_spaces_and_what_its_readme_says(self):
        (self.folder / "a b").mkdir()
        self.fails("--result", "r.npy", folder="a b")
        self.repeats("a b")
        text = (self.folder / "a b/README.txt").read_text()
        self.assertIn("convgrad verify -i x.npy -g dy.npy", text)
        self.assertIn("--result r.npy", text)

    def test_wrong_uses(self):
        (self.folder / "full").mkdir()
        self.write("full/x.npy", b"mine")
        for folder, status, parts in (("full", 3, ("--save-repro", "full", "not empty")),
                                      ("r.npy", 3, ("--save-repro", "r.npy", "folder")),
                                      ("no/repro", 3, ("--save-repro", "no")),
                                      ("--bitwise", 2, ("--save-repro",))):
            with self.subTest(folder):
                result = self.run_here(*self.args("--result", "r.npy", "--save-repro", folder))
                self.assert_one_error(result, status, *parts)
        self.assertEqual(self.read("full/x.npy"), b"mine")
        self.assertEqual(os.listdir(self.folder / "full"), ["x.npy"])

    def test_two_at_a_time(self):
        # One of them may say that the folder is taken; it leaves the other's files alone.
        for i in range(6):
            args = self.args("--result", "r.npy", "--save-repro", f"both{i}")
            both = [start(*args, cwd=self.folder) for _ in range(2)]
            done = [(*p.communicate(timeout=60), p.returncode) for p in both]
            saved = [f"repro: both{i} holds".encode() in out for out, _, _ in done]
            self.assertLessEqual({status for _, _, status in done}, {1, 3, 5}, done)
            self.assertEqual(sum(saved), 1, done)
            self.repeats(f"both{i}")

    def test_streams(self):
        args = self.args("--result", "r.npy", "--save-repro", "repro")
        args[args.index("-i") + 1] = "-"
        result = self.run_here(*args, stdin=npy_bytes("float32", self.problem.x))
        self.assertEqual((result.status, result.err), (1, ""))
        self.assertIn("repro: not written: --input (standard input) is a stream", result.out)
        self.assertFalse((self.folder / "repro").exists())

    def test_only_padding(self):
        # Every tap at the wrong element lies in the padding.
        self.prepare(Problem(n=1, size=(2, 2), c=1, k=1, taps=(1, 3), padding=((0, 0), (4, 0))))
        self.assertEqual(self.dw[0, 0].item(), 0)
        self.result_file(off(self.dw, ((0, 0), 7)))
        result = self.run_here(*self.args("--result", "r.npy", "--save-repro", "repro"))
        self.assertEqual(result.status, 1, str(result))
        self.assertIn("repro: not written: the wrong element sees nothing but padding", result.out)

    def test_a_full_disk_leaves_nothing(self):
        limit = "ulimit -f 0; trap '' XFSZ; "
        args = ["convgrad", *self.args("--result", "r.npy", "--save-repro", "repro")]
        done = self.bash(limit + shlex.join(map(str, args)) + " | cat; exit ${PIPESTATUS[0]}")
        self.assertEqual(done.returncode, 5, done)
        self.assertIn(b"repro/x.npy", done.stderr)
        self.assertFalse((self.folder / "repro").exists())
