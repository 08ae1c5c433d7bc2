"""compare: the verdict on two arrays, its wording, its files, and everything it refuses."""
import itertools
import os
import struct
import subprocess

import numpy as np
from harness import (BINARY, DTYPES, SANITIZED, CliTest, clean_environment, header_bytes, load, npy_bytes,
                     raw_npy, save)
from test_archives import safetensors_bytes

SHAPES = ((), (1,), (0,), (7,), (2, 0, 3), (3, 4), (2, 3, 4), (3, 3, 2, 2), (2, 3, 1, 2, 3))


class CompareTest(CliTest):
    def save(self, name, values, dtype="float32"):
        save(self.folder / name, values, dtype)
        return name

    def compare(self, *args, **more):
        return self.succeed("compare", *args, **more).out

    def pair(self, got, want, *args, status=0, dtypes=("float32", "float32")):
        self.save("got.npy", got, dtypes[0])
        self.save("want.npy", want, dtypes[1])
        out = self.compare("got.npy", "want.npy", *args, status=status)
        self.assertEqual(out.split(":")[0], "MISMATCH" if status else "MATCH")
        report = self.report("got.npy", "want.npy", *args, status=status)
        self.assertEqual(report["compare"]["verdict"], "mismatch" if status else "match")
        return out

    def report(self, *args, status=0, **more):
        report = super().report("compare", *args, status=status, **more)
        self.assertEqual((report["command"], report["status"]), ("compare", "mismatch" if status else "match"))
        return report


class Verdict(CompareTest):
    def test_equal_arrays_of_every_dtype_and_shape(self):
        rng = np.random.default_rng(1)
        criteria = ([], ["--bitwise"], ["--max-ulp", 0], ["--rtol", 0])
        for i, (dtype, shape) in enumerate(itertools.product(DTYPES, SHAPES)):
            values = rng.integers(-9, 9, shape)
            with self.subTest(dtype=dtype, shape=shape):
                out = self.pair(values, values, *criteria[i % 4], dtypes=(dtype, dtype))
                self.assertIn(f"Mismatched elements: 0 / {values.size} (0 %)\n", out)
                self.assertIn(f"{dtype} {values.shape}", out)

    def test_one_element(self):
        want = np.arange(36.0).reshape(3, 3, 2, 2)
        got = want.copy()
        got[1, 2, 0, 1] += 2
        self.assertEqual(self.pair(got, want, status=1), """\
MISMATCH: got.npy against want.npy: float32 (3, 3, 2, 2)
Not equal to tolerance rtol=1.3e-06, atol=1e-05 (defaults of float32)
Mismatched elements: 1 / 36 (2.78 %)
Max absolute difference: 2 at [1,2,0,1]: got 23, want 21
Max relative difference: 0.0952381 at [1,2,0,1]: got 23, want 21
Max ULP difference: 1.04858e+06 at [1,2,0,1]: got 23, want 21
First mismatch at [1,2,0,1]: got 23, want 21
""")
        compare = self.report("got.npy", "want.npy", status=1)["compare"]
        self.assertEqual((compare["count"], compare["mismatches"]), (36, 1))
        self.assertEqual(compare["first_mismatch"],
                         {"value": 2.0, "index": [1, 2, 0, 1], "got": 23.0, "want": 21.0})
        self.assertEqual(compare["max_ulp"]["value"], 2 * 2**19)

    def test_the_worst_of_those_that_fail_come_first(self):
        out = self.pair([1000.5, 1e-3, 5, 0.5], [1000, 2e-3, 5, 0], "--rtol", "1e-3", "--atol", "1e-6",
                        status=1, dtypes=("float64", "float64"))
        self.assertIn("""
Max absolute difference among mismatches: 0.5 at [3]: got 0.5, want 0
Max absolute difference: 0.5 at [0]: got 1000.5, want 1000
Max relative difference of elements where want is not 0: 0.5 at [1]: got 0.001, want 0.002
Max ULP difference: 4.60268e+18 at [3]: got 0.5, want 0
First mismatch at [1]: got 0.001, want 0.002
""", out)
        compare = self.report("got.npy", "want.npy", "--rtol", "1e-3", "--atol", "1e-6",
                              status=1)["compare"]
        self.assertEqual((compare["max_abs"]["index"], compare["failing"]["max_abs"]["index"]),
                         ([0], [3]))
        self.assertEqual((compare["zero_wants"], compare["failing"]["zero_wants"]), (1, 1))

    def test_nan_and_infinities(self):
        nan, inf = np.nan, np.inf
        out = self.pair([1, nan, 3], [1, nan, 3], "--no-equal-nan", status=1)
        self.assertIn("Mismatched elements: 1 / 3 ", out)
        self.assertIn("NaN equals nothing", out)
        self.pair([1, nan], [1, nan], "--no-equal-nan", "--equal-nan")
        out = self.pair([5, nan], [5, inf], status=1)
        self.assertIn("Mismatches that are not finite: 1, the first at [1]", out)
        self.assertIn("Max absolute difference: 0\n", out)
        compare = self.report("got.npy", "want.npy", status=1)["compare"]
        self.assertEqual(compare["nonfinite"], {"mismatches": 1, "got": {"nan": 1, "inf": 0},
                                                "want": {"nan": 0, "inf": 1}})
        self.assertEqual(compare["first_mismatch"]["got"], "nan")

    def test_shapes_that_differ(self):
        for got, want in (((2, 3), (3, 2)), ((2, 3), (6,)), ((), (1,)), ((0,), (0, 1)),
                          ((1, 3), (2, 3)), ((3,), (1, 3))):
            out = self.pair(np.ones(got), np.ones(want), status=1)
            turned = " in the order of their axes" if sorted(got) == sorted(want) else ""
            self.assertEqual(out, f"MISMATCH: got.npy against want.npy: shapes {got}, {want} "
                                  f"differ{turned}\n")
        compare = self.report("got.npy", "want.npy", status=1)["compare"]
        self.assertEqual(compare["refused"], "shapes (3,), (1, 3) differ")
        out = self.compare("got.npy", "want.npy", "--save-diff", "d.npy", status=1)
        self.assertIn("No difference is written", out)
        self.assertEqual(self.listing(), ["got.npy", "want.npy"])

    def test_dtypes_that_differ(self):
        out = self.pair([1 / 3], [1 / 3], dtypes=("float16", "float32"))   # the defaults of each: array_compare_test.cpp
        self.assertIn("float16 and float32 (1,)", out)
        self.assertIn("(defaults of float16)", out)
        self.pair([1 / 3], [1 / 3], "--max-ulp", 0, dtypes=("float16", "float32"))
        out = self.pair([1.0], [1.0], "--bitwise", status=1, dtypes=("float64", "float32"))
        self.assertEqual(out, "MISMATCH: got.npy against want.npy: dtypes float64, float32 "
                              "differ, so their bits do\n")
        self.pair([70000.0], [np.inf], status=1, dtypes=("float32", "float16"))


class Files(CompareTest):
    def test_standard_input_on_either_side(self):
        data = npy_bytes("bfloat16", [[1, 2], [3, 4]])
        self.save("a.npy", [[1, 2], [3, 4]], "bfloat16")
        out = self.compare("-", "a.npy", stdin=data)
        self.assertTrue(out.startswith("MATCH: standard input against a.npy: bfloat16 (2, 2)"))
        self.compare("a.npy", "-", "--bitwise", stdin=data)
        self.assertEqual(self.report("-", "a.npy", stdin=data)["tensors"]["got"]["file"], "-")
        self.assert_one_error(self.run_here("compare", "-", "-", stdin=data), 2, "- is given twice")
        self.refuses(3, ["standard input"], "compare", "-", "a.npy", stdin=data + b"x")
        done = self.bash("convgrad inspect a.npy >/dev/null && "
                         "cat a.npy | convgrad diff - a.npy -q --bitwise")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def test_archives_and_folders(self):
        a, b = np.arange(6, dtype="f4"), np.arange(6, dtype="f4") + 1
        self.write("want.safetensors", safetensors_bytes({"w1": ("float32", a), "w2": ("float32", b)}))
        np.savez(self.folder / "same.npz", w1=a, w2=b)
        np.savez(self.folder / "got.npz", w1=a, w2=a, b=a)
        for name, arrays in (("one", {"w1": a, "deep/w2": b}), ("two", {"w1": a, "deep/w2": b})):
            for array in arrays:
                (self.folder / name / array).parent.mkdir(parents=True, exist_ok=True)
                np.save(self.folder / name / f"{array}.npy", arrays[array])
        for got, want in (("same.npz", "same.npz"), ("same.npz", "want.safetensors"), ("one", "two")):
            out = self.compare(got, want)
            self.assertTrue(out.startswith(f"MATCH: {got} against {want}: 2 of 2 arrays match\n"), out)
        self.assertEqual(self.compare("got.npz", "want.safetensors", status=1), """\
MISMATCH: got.npz against want.safetensors: 1 of 3 arrays matches
match     w1  float32 (6,)
mismatch  w2  float32 (6,), 6 / 6 (100 %), first at [0]: got 0, want 1
mismatch  b  is in got.npz alone
""")
        np.savez(self.folder / "one/pair.npz", w=a)
        np.savez(self.folder / "two/pair.npz", w=b)
        self.assertIn("mismatch  pair.npz:w  float32 (6,)", self.compare("one", "two", status=1))
        report = self.report("got.npz", "want.safetensors", status=1)["compare"]
        self.assertEqual((report["only_got"], report["only_want"]), (["b"], []))
        self.assertEqual([(one["name"], one["compare"]["verdict"]) for one in report["arrays"]],
                         [("w1", "match"), ("w2", "mismatch")])
        np.save(self.folder / "x.npy", a)
        for args, status, part in ((["got.npz", "x.npy"], 3, "is an archive"), (["one", "got.npz"], 3, "no name is in both"),
                                   (["got.npz", "same.npz", "--save-diff", "d.npy"], 2, "--save-diff")):
            self.assert_one_error(self.run_here("compare", *args), status, part)

    def test_report(self):
        self.save("a.npy", np.ones((2, 3)), "float16")
        self.save("b.npy", np.ones((2, 3)))
        report = self.report("a.npy", "b.npy", "--atol", 0.5)
        self.assertEqual([tensor["dtype"] for tensor in report["tensors"].values()], ["float16", "float32"])
        compare = report["compare"]
        self.assertEqual(compare["criterion"], "rtol=0, atol=0.5")
        self.assertEqual(set(compare), {"verdict", "got", "want", "criterion", "equal_nan", "count",
                                        "mismatches", "max_abs", "max_rel", "max_ulp", "nonfinite"})
        self.assertEqual(compare["max_abs"], {"value": 0.0})

    def test_save_diff(self):
        rng = np.random.default_rng(5)
        for dtype in DTYPES:
            want = rng.integers(-99, 99, (2, 3, 4)).astype(float)
            got = want.copy()
            got[1, 1] += 1
            self.pair(got, want, "--save-diff", "d.npy", status=1, dtypes=(dtype, dtype))
            kind, values = load(self.folder / "d.npy")
            self.assertEqual(kind, "float64" if dtype == "float64" else "float32")
            np.testing.assert_array_equal(values, got - want)
        for shape in ((), (0, 3)):
            self.pair(np.ones(shape), np.ones(shape), "--save-diff", "d.npy")
            self.assertEqual(self.read("d.npy"), npy_bytes("float32", np.zeros(shape)))

    def test_files_are_not_lost(self):
        self.save("a.npy", [1, 2])
        self.save("d.npy", [7])
        for args in (["--save-diff", "d.npy", "--no-clobber"], ["--save-diff", "none/d.npy"],
                     ["--save-diff", "."]):
            self.refuses(3, [args[1]], "compare", "a.npy", "a.npy", *args)
        self.write("bad.npy", npy_bytes("float32", [1, 2])[:-1])
        for other in ("bad.npy", "none.npy"):
            self.refuses(3, [other], "compare", "a.npy", other, "--save-diff", "d.npy")

    def test_large_arrays_in_little_memory(self):
        count = 64 << 20
        for name in ("a.npy", "b.npy"):
            with open(self.folder / name, "wb") as file:
                file.write(header_bytes(f"{{'descr': '<f4', 'fortran_order': False, "
                                        f"'shape': (1, {count}), }}"))
                file.truncate(file.tell() + 4 * count)
                if name == "b.npy":
                    file.seek(-8, os.SEEK_END)
                    file.write(struct.pack("<f", 1.5))
        process = subprocess.Popen([BINARY, "compare", "a.npy", "b.npy"], cwd=self.folder,
                                   env=clean_environment(), stdout=subprocess.PIPE)
        out = process.stdout.read().decode()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 1)
        self.assertIn(f"Mismatched elements: 1 / {count} (1.49e-06 %)", out)
        self.assertIn(f"at [0,{count - 2}]: got 0, want 1.5", out)
        if not SANITIZED:
            self.assertLess(usage.ru_maxrss, 128 << 10)  # KiB; the arrays have 512 MiB


class Misuse(CompareTest):
    def test_each_is_one_line(self):
        self.save("a.npy", [1, 2])
        self.write("i.npy", raw_npy((2,), "'<i4'"))
        for args, status, parts in (
                ([], 2, ["GOT and WANT are missing"]),
                (["a.npy"], 2, ["WANT is missing"]),
                (["a.npy", "a.npy", "--rtol", "1", "--bitwise"], 2, ["exclude each other"]),
                (["a.npy", "a.npy", "--max-ulp", "1.5"], 2, ["--max-ulp"]),
                (["a.npy", "a.npy", "--save-diff", "-"], 2, ["--save-diff", "name a file"]),
                (["a.npy", "a.npy", "--json=a.npy"], 2, ["GOT", "report"]),
                (["a.npy", "a.npy", "--save-diff", "x", "--json=x"], 2, ["--save-diff"]),
                (["a.npy", "i.npy"], 3, ["int32"])):
            self.refuses(status, parts, "compare", *args)
        self.assert_one_error(self.run_here("a.npy", "compare"), 2, "a.npy")
