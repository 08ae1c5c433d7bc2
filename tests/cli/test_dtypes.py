"""Files that are raw, of 8-bit floats, or that cannot say their dtype; tensors of two dtypes."""
import shutil

import numpy as np
from harness import ROOT, CliTest, npy_bytes, raw_npy, round_to

SHAPE, OUT = (2, 6, 7, 3), (2, 6, 7, 4)
ATTRIBUTES = ("--op", "conv2d", "-k", "3", "-p", "same")


class DtypesTest(CliTest):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(5)
        self.x, self.dy = (rng.integers(-8, 9, shape).astype(np.float64) for shape in (SHAPE, OUT))
        self.write("x.npy", npy_bytes("bfloat16", self.x))
        self.write("dy.npy", npy_bytes("float32", self.dy))

    def gradient(self, x="x.npy", dy="dy.npy", *more, **how):
        self.succeed(*ATTRIBUTES, "-i", x, "-g", dy, "-o", "dw.npy", *more, **how)
        return self.read("dw.npy")

    def refuse(self, x, dy, status, text, *flags, **more):
        self.refuses(status, [text], *ATTRIBUTES, "-i", x, "-g", dy, "-o", "dw.npy", *flags, **more)


class Raw(DtypesTest):
    def test_as_the_same_npy(self):
        want = self.gradient()
        self.write("b16.bin", round_to("bfloat16", self.x).tobytes())
        self.assertEqual(self.gradient("b16.bin:bfloat16[2,6,7,3]"), want)
        self.assertEqual(self.gradient("-:>float32[2,6,7,3]", stdin=self.x.astype(">f4").tobytes()), want)

    def test_wherever_arrays_are_read(self):
        self.gradient()
        dw = np.load(self.folder / "dw.npy")
        self.write("dw.bin", dw.astype("<f8").tobytes())
        self.write("sizes.bin", np.array(dw.shape, "<i4").tobytes())
        name = "dw.bin:float64[3,3,3,4]"
        for args in (("verify", *ATTRIBUTES, "-i", "x.npy", "-g", "dy.npy", "--result", name),
                     ("compare", name, "dw.npy"), ("inspect", name, "sizes.bin:int32[4]"),
                     ("--op", "conv2d", "--filter-sizes", "sizes.bin:int32[4]", "-p", "same",
                      "-i", "x.npy", "-g", "dy.npy", "-o", "b.npy")):
            self.succeed(*args)

    def test_refusals(self):
        """raw_tensor_test.cpp has what does not fit."""
        self.write("x.bin", self.x.astype("<f4").tobytes())
        self.refuse("x.bin", "dy.npy", 3, "for elements alone add dtype and shape, FILE:float32[8,56,56,64]")
        self.refuse("/dev/zero:float32[2,6,7,3]", "dy.npy", 3,
                    "goes on after the 1008 payload bytes that dtype and shape in its name make")
        self.refuse("-:float32[2,6,7,3]", "-", 2, "expected one array on standard input")
        self.refuse("x.bin:float32[2,6,7,3]", "dy.npy", 2, "is the file of --input", "-o", "./x.bin")


class Said(DtypesTest):
    """--input-dtype and --out-backprop-dtype."""

    def test_bits_under_another_name(self):
        want = self.gradient()
        bits = round_to("bfloat16", self.x)
        self.write("x.npy", raw_npy(SHAPE, "'<u2'", bits.tobytes()))
        self.assertEqual(self.gradient("x.npy", "dy.npy", "--input-dtype", "bfloat16"), want)
        self.write("d.npy", raw_npy(OUT, "'<u2'", round_to("bfloat16", self.dy).tobytes()))
        self.assertEqual(self.gradient("x.npy", "d.npy", "--input-dtype", "bf16",
                                       "--out-backprop-dtype", "bfloat16", "--out-dtype", "float32"),
                         want)
        self.succeed("verify", *ATTRIBUTES, "-i", "x.npy", "-g", "dy.npy", "--input-dtype", "bfloat16",
                     "--result", "dw.npy")

    def test_refusals(self):
        """npy_header_test.cpp and raw_tensor_test.cpp have more."""
        self.write("u2.npy", raw_npy(SHAPE, "'<u2'", bytes(2 * self.x.size)))
        self.refuse("u2.npy", "dy.npy", 3, "if it is bfloat16, say so with --input-dtype")
        self.refuse("x.npy", "u2.npy", 3, "say so with --out-backprop-dtype")
        self.refuse("u2.npy", "dy.npy", 2, "did you mean 'float8_e4m3fn'?", "--input-dtype", "float8")
        self.refuse("x.npy", "dy.npy", 2, "expected float16, bfloat16", "--out-dtype", "float8_e5m2")

    def test_advice_for_other_files_fits_them(self):
        self.gradient("x.npy", "dy.npy", "--out-dtype", "bfloat16")
        dw = np.load(self.folder / "dw.npy")
        np.save(self.folder / "u2.npy", dw.view("<u2"))
        verify = ("verify", *ATTRIBUTES, "-i", "x.npy", "-g", "dy.npy")
        for flag in ("--result", "--golden"):
            result = self.run_here(*verify, flag, "u2.npy")
            self.assert_one_error(result, 3, "u2.npy: ", "if it is bfloat16, save x.view('V2')")
            self.assertNotIn("--input-dtype", result.err)
        self.write("v1.npy", raw_npy((4,), "'|V1'", bytes(range(4))))
        for args in (("inspect", "v1.npy"), ("compare", "v1.npy", "v1.npy")):
            result = self.run_here(*args)
            self.assert_one_error(result, 3, "v1.npy: ",
                                  "convert with x.view(ml_dtypes.float8_e4m3fn).astype('float32')")
            self.assertNotIn("--input-dtype", result.err)


class Two(DtypesTest):
    def test_the_report_names_both(self):
        report = self.report(*ATTRIBUTES, "-i", "x.npy", "-g", "dy.npy", "-o", "dw.npy")
        attributes = report["attrs"]
        self.assertEqual([attributes[key] for key in ("input_dtype", "out_backprop_dtype", "dtype",
                                                      "out_dtype")],
                         ["bfloat16", "float32", "float32", "float32"])
        self.assertTrue(attributes["line"].startswith("conv2d bfloat16*float32->float32 NHWC"))
        self.assertEqual(report["work"]["bytes"], 2 * self.x.size + 4 * self.dy.size + 4 * 108)

    def test_same_bits_in_blocks_and_parts(self):
        want = self.gradient()
        for part in ("1/2", "2/2"):
            self.succeed(*ATTRIBUTES, "-i", "x.npy", "-g", "dy.npy", "--batch-range", part, "-o", f"part{part[0]}.npz")
        self.succeed("reduce", "part1.npz", "part2.npz", "-o", "sum.npy")
        self.assertEqual(self.read("sum.npy"), want)

    def test_golden(self):
        shutil.copytree(ROOT / "testdata/types", self.folder / "types")
        shutil.copy(ROOT / "testdata/types.jsonl", self.folder)
        result = self.run_here("batch", "types.jsonl")
        self.assertIn("\n36 jobs: 36 match; ", result.out, str(result))
        # Each number in a wrong place is seen.
        for x in sorted((self.folder / "types").glob("*.x.*")):
            data = bytearray(x.read_bytes())
            data[-1] ^= 0x40
            x.write_bytes(data)
        result = self.run_here("batch", "types.jsonl", "--keep-going")
        self.assertIn("\n36 jobs: 36 mismatch; ", result.out, str(result))

    def test_compare_counts_steps_of_8_bits(self):
        self.write("a.bin", bytes([0x30, 0x40, 0x7e, 0x01]))
        self.write("b.bin", bytes([0x31, 0x40, 0x7c, 0x81]))
        names = ("a.bin:float8_e4m3fn[4]", "b.bin:float8_e4m3fn[4]")
        self.assertEqual(self.run_here("compare", *names, "--max-ulp", "2").status, 0)
        self.assertEqual(self.run_here("compare", *names, "--max-ulp", "1").status, 1)
        self.assertEqual(self.run_here("compare", names[0], names[0], "--bitwise").status, 0)
