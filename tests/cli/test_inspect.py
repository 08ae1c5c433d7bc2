"""inspect: headers, dtypes, numbers and hashes of any .npy file."""
import hashlib
import time

import numpy as np
from harness import DTYPES, CliTest, npy_bytes, parse_report, raw_npy, round_to, save


class InspectTest(CliTest):
    def inspect(self, *files, **more):
        return self.succeed("inspect", *files, **more).out

    def one(self, data, file="a.npy", **more):
        self.write("a.npy", data)
        return self.report("inspect", file, **more)["files"][0]


class Numbers(InspectTest):
    def test_values_and_their_hash(self):
        rng = np.random.default_rng(1)
        for dtype in DTYPES:
            for shape in ((), (0, 3), (7,), (3, 4, 5), (600, 7000)):
                values = rng.integers(-99, 99, shape).astype(float)
                want = "sha256:" + hashlib.sha256(round_to(dtype, values).tobytes()).hexdigest()
                with self.subTest(dtype=dtype, shape=shape):
                    file = self.one(npy_bytes(dtype, values))
                    self.assertEqual(file["hash"], want)
                    self.assertIn(f"\n  {want} values\n", self.inspect("a.npy"))
                    seen = file["values"]
                    if values.size == 0:
                        continue
                    self.assertEqual(
                        (seen["count"], seen["min"], seen["max"], seen["nan"], seen["inf"],
                         seen["zero"], seen["subnormal"]),
                        (values.size, values.min(), values.max(), 0, 0, (values == 0).sum(), 0))
                    self.assertAlmostEqual(seen["mean"], values.mean(), 12)

    def test_odd_values(self):
        smallest = {"float16": (2.0**-24, 2.0**-14), "bfloat16": (2.0**-133, 2.0**-126),
                    "float32": (2.0**-149, 2.0**-126), "float64": (2.0**-1074, 2.0**-1022)}
        for dtype, (subnormal, normal) in smallest.items():
            values = [np.nan, np.inf, -np.inf, 0, -0.0, subnormal, normal - subnormal, -normal, 1]
            seen = self.one(npy_bytes(dtype, values))["values"]
            self.assertEqual([seen[key] for key in ("count", "nan", "inf", "zero", "subnormal",
                                                    "min", "max")],
                             [9, 1, 2, 2, 2, -normal, 1])
        seen = self.one(npy_bytes("float32", [np.nan, np.inf]))["values"]
        self.assertEqual((seen["min"], seen["max"], seen["mean"]), (None, None, None))
        self.assertIn("no finite values, 1 NaN, 1 Inf", self.inspect("a.npy"))

    def test_means_do_not_overflow_or_drift(self):
        seen = self.one(npy_bytes("float64", [1.7e308, 1.7e308, 1.6e308]))["values"]
        self.assertAlmostEqual(seen["mean"] / 1e308, 5 / 3, 12)
        values = np.full(1 << 20, 0.1)
        self.assertAlmostEqual(self.one(npy_bytes("float64", values))["values"]["mean"], 0.1, 15)

    def test_integers(self):
        for descr, values in (("<i4", [3, 3, 64, -128]), (">i8", [2**63 - 1, -2**63]),
                              ("<u8", [2**64 - 1, 0]), ("|u1", [255, 1]), ("|i1", [-128, 5]),
                              (">u2", [65535, 7]), ("|b1", [1, 0])):
            array = np.array(values, dtype=descr)
            file = self.one(raw_npy(array.shape, f"'{descr}'", array.tobytes()))
            with self.subTest(descr):
                self.assertEqual(file["dtype"], array.dtype.name)
                self.assertEqual((file["values"]["min"], file["values"]["max"]),
                                 (int(array.min()), int(array.max())))
                self.assertIn(f"min {int(array.min())}, max {int(array.max())}, mean ",
                              self.inspect("a.npy"))


class Hashes(InspectTest):
    def test_the_form_of_the_file_does_not_matter(self):
        values = np.random.default_rng(3).standard_normal((30, 40, 50))
        want = "sha256:" + hashlib.sha256(values.tobytes()).hexdigest()
        for descr, fortran, version in (("'<f8'", False, (1, 0)), ("'>f8'", False, (2, 0)),
                                        ("'<f8'", True, (3, 0)), ("'>f8'", True, (1, 0))):
            payload = values.astype(descr.strip("'")).tobytes("F" if fortran else "C")
            data = raw_npy(values.shape, descr, payload, fortran, 8, version)
            self.assertEqual(self.one(data)["hash"], want)
            self.assertEqual(self.one(data, "-", stdin=data)["hash"], want)
            self.assertIn(f"{'Fortran' if fortran else 'C'} order, {descr}, {'big' if '>' in descr else 'little'} endian, "
                          f"format {version[0]}.0", self.inspect("a.npy"))

    def test_hash_of_the_file(self):
        data = npy_bytes("float32", np.arange(9))
        want = "sha256:" + hashlib.sha256(data).hexdigest()
        self.assertEqual(self.one(data)["file_hash"], want)
        self.assertIn(f"\n  {want} file\n", self.inspect("a.npy"))
        self.assertNotIn("file_hash", self.one(data, "-", stdin=data))
        np.savez(self.folder / "a.npz", x=np.ones(3))
        member = self.one(data, "a.npz")
        self.assertIn("hash", member)
        self.assertNotIn("file_hash", member)


class Files(InspectTest):
    def test_several(self):
        save(self.folder / "a.npy", [1, 2])
        save(self.folder / "b.npy", [[3.0]], "bfloat16")
        out = self.inspect("a.npy", "-", "b.npy", stdin=npy_bytes("float64", [4]))
        self.assertEqual([line.split(":")[0] for line in out.splitlines() if line[0] != " "],
                         ["a.npy", "standard input", "b.npy"])
        self.assertEqual((out.count(" values\n"), out.count(" file\n")), (3, 2))
        self.assertIn("b.npy: bfloat16 (1, 1), C order, '<V2', little endian, format 1.0, 2 bytes",
                      out)

    def test_bad_ones_among_them(self):
        save(self.folder / "a.npy", [1, 2])
        self.write("cut.npy", npy_bytes("float32", [1, 2])[:-1])
        self.write("c.npy", raw_npy((2,), "'<c8'", item=8))
        result = self.run_here("inspect", "cut.npy", "a.npy", "none.npy", "c.npy")
        self.assertEqual((result.status, result.err.count("\n")), (3, 3), str(result))
        for part in ("cut.npy: has 135 bytes", "none.npy: cannot open", "'<c8' is complex64"):
            self.assertIn(part, result.err)
        self.assertTrue(result.out.startswith("a.npy: float32"))
        files = parse_report(self.run_here("inspect", "cut.npy", "a.npy", "--json").out)["files"]
        self.assertIn("error", files[0])
        self.assertEqual(files[1]["values"]["max"], 2)

    def test_thousands_of_arrays_take_seconds(self):
        # Each was looked up in the whole directory before: 2,000 took 8 s, 20,000 minutes.
        np.savez(self.folder / "many.npz", **{f"p{i}": np.float32([i]) for i in range(20000)})
        start = time.monotonic()
        out = self.inspect("many.npz")
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(out.count(": float32 (1,)"), 20000)

    def test_misuse(self):
        save(self.folder / "a.npy", [1, 2])
        for args, status, part in ((["inspect", "-", "-"], 2, "twice"), (["inspect", "."], 3, "folder")):
            self.refuses(status, [part], *args)
