"""The words of others: their spellings are taken, and a slip is answered with what would fit."""
import base64
import bz2
import io
import json
import lzma
import pickle
import zipfile

import numpy as np
from harness import CliTest, parse_report, raw_npy, run, save

X, DY = (2, 8, 9, 3), (2, 4, 5, 8)          # conv2d, 3x3, stride 2, SAME
FILTER = ["-k", "3", "-s", "2", "-p", "same"]
JOB = ["--op", "conv2d", "-i", "x.npy", "-g", "dy.npy", *FILTER]




class WordsTest(CliTest):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(5)
        self.x, self.dy = rng.integers(-4, 5, X).astype(float), rng.integers(-4, 5, DY).astype(float)
        save(self.folder / "x.npy", self.x)
        save(self.folder / "dy.npy", self.dy)
        save(self.folder / "x1.npy", np.moveaxis(self.x, -1, 1))
        save(self.folder / "dy1.npy", np.moveaxis(self.dy, -1, 1))
        self.want = self.gradient(*FILTER)

    def gradient(self, *flags, op="conv2d", tensors=("x.npy", "dy.npy"), env=None):
        (self.folder / "dw.npy").unlink(missing_ok=True)
        named = [] if op is None else ["--op", op]
        result = self.run_here(*named, "-i", tensors[0], "-g", tensors[1], "-o", "dw.npy", *flags,
                               env=env)
        self.assert_quiet(result)
        return self.read("dw.npy")

    def refuse(self, status, parts, *flags, tensors=("x.npy", "dy.npy")):
        return self.refuses(status, parts, "--op", "conv2d", "-i", tensors[0], "-g", tensors[1], "-o", "no.npy", *flags).err


class Spellings(WordsTest):
    def test_names_of_operations(self):
        for op in ("Conv2DBackpropFilter", "conv2d_backprop_filter_v2", "torch.nn.grad.conv2d_weight", "CONV2D"):
            with self.subTest(op):
                self.assertEqual(self.gradient(*FILTER, op=op), self.want)
        for op, names in (
                ("depthwise", ("depthwise_conv2d", "tf.nn.depthwise_conv2d_backprop_filter",
                               "tf.raw_ops.DepthwiseConv2dNativeBackpropFilter")),
                ("conv3d", ("conv3d_backprop_filter", "tf.compat.v1.nn.conv3d_backprop_filter_v2",
                            "Conv3DBackpropFilterV2", "torch.nn.grad.conv3d_weight")),
                ("conv1d", ("conv1d_backprop_filter", "torch.nn.grad.conv1d_weight"))):
            shape = {"depthwise": "1,4,4,2", "conv3d": "1,2,4,4,2", "conv1d": "1,4,2"}[op]
            flags = ["--shape", shape, "-k", "3", "-p", "same", "-o", "made", "--clobber"]
            flags += ["--out-channels", "2"] if op != "depthwise" else []
            for name in names:
                self.assertEqual(self.report("generate", name, *flags)["op"], op)
        for name in ("conv", "foo.conv2d", "conv2d_input", "convolution_backward"):
            self.refuses(2, ["--op", f"'{name}' is not an operation"],
                         "--op", name, "-i", "x.npy", "-g", "dy.npy", "-o", "no.npy", *FILTER)

    def test_in_variables(self):
        """In jobs: test_batch.py; in a suite: problem_line_test.cpp."""
        env = {"CONVGRAD_OP": "conv2d_backprop_filter", "CONVGRAD_DATA_FORMAT": "channels_last",
               "CONVGRAD_KERNEL": "3x3", "CONVGRAD_PADDING": "[[0,0],[0,1],[1,1],[0,0]]",
               "CONVGRAD_USE_CUDNN_ON_GPU": "False"}
        self.assertEqual(self.gradient("-s", "2x2", op=None, env=env), self.want)

    def test_paddings(self):
        self.assertEqual(self.gradient("-k", "3", "-s", "2", "--padding",
                                       "[[0,0],[0,1],[1,1],[0,0]]"), self.want)
        for flags in (["-p", "(0,1),(1,1)"], ["-p", "0,0,0,1,1,1,0,0"], ["-p", "0,1,1,1"]):
            self.assertEqual(self.gradient("-k", "3", "-s", "2", *flags), self.want)
        shape = ["--shape", "1,6,6,2", "--out-channels", "2", "-k", "2x3", "-o", "made", "--clobber"]
        torch, pairs = (self.succeed("generate", "conv2d", *shape, *flags).out
                        for flags in (["-p", "0,1"], ["--explicit-paddings", "0,0,1,1"]))
        self.assertEqual(torch, pairs)
        for flags, parts in ((["-p", "1,2,3"], ["--padding: 3 numbers"]),
                             (["-p", "[[1,1]]"], ["--padding: 2 numbers"]),
                             (["-p", "1,x"], ["--padding: 'x'"]),
                             (["-p", "[1,1],[0,0],[1,1],[1,0]"], ["--padding", "expected 0,0"])):
            self.refuse(2 if "x" in flags[1] else 3, parts, "-k", "3", *flags)
        self.refuse(2, ["--explicit-paddings", "--padding"], "-k", "3", "-p", "1",
                    "--explicit-paddings", "1,1,1,1")
        # A flag wins over the other's variable.
        self.assertEqual(self.gradient("-k", "3", "-s", "2", "-p", "[[0,1],[1,1]]",
                                       env={"CONVGRAD_EXPLICIT_PADDINGS": "9"}), self.want)

    def test_formats(self):
        for name in ("NCHW", "channels_first", "Channels_First"):
            self.assertEqual(self.gradient(*FILTER, "-f", name, tensors=("x1.npy", "dy1.npy")),
                             self.want)
        for theirs, ours in (("RSCK", "HWIO"), ("KCRS", "OIHW"), ("krsc", "OHWI")):
            self.assertEqual(self.gradient(*FILTER, "--filter-format", theirs),
                             self.gradient(*FILTER, "--filter-format", ours))
        flags = ["--shape", "1,3,4,4,2", "-k", "3", "--out-channels", "3", "-p", "same", "-o", "made",
                 "--clobber"]
        for theirs, ours in (("KCTRS", "OIDHW"), ("KTRSC", "ODHWI"), ("TRSCK", "DHWIO")):
            report = self.report("generate", "conv3d", *flags, "--filter-format", theirs)
            self.assertEqual(report["attrs"]["filter_format"], ours)
        self.refuse(2, ["--filter-format: 'RSKC' is unknown"], *FILTER, "--filter-format", "RSKC")
        self.refuse(2, ["--data-format: 'channels' is unknown"], *FILTER, "-f", "channels")

    def test_paddings_of_jax_and_onnx(self):
        """Negative numbers crop; SAME_LOWER has its odd one in front."""
        save(self.folder / "cut.npy", self.x[:, 1:, 2:])
        save(self.folder / "small.npy", self.dy[:, :3, :3])
        want = self.gradient("-k", "3", "-s", "2", "-p", "0,1,0,0", tensors=("cut.npy", "small.npy"))
        for pads in ("[[-1,1],[-2,0]]", "-1,1,-2,0", "((-1, 1), (-2, 0))"):
            self.assertEqual(self.gradient("-k", "3", "-s", "2", "-p", pads,
                                           tensors=("x.npy", "small.npy")), want)
        line = "conv2d n2 h8 w9 c3 k8 r3 s3 stride2 pad_before-1,-2 pad_after1,0"
        self.assertEqual(self.gradient("--problem", line, op=None, tensors=("x.npy", "small.npy")), want)
        for name, pads in (("SAME_UPPER", "0,1,1,1"), ("same_lower", "1,0,1,1")):
            self.assertEqual(self.gradient("-k", "3", "-s", "2", "-p", name),
                             self.gradient("-k", "3", "-s", "2", "-p", pads))

    def test_names_of_options_and_types(self):
        self.assertEqual(self.gradient("--kernel_size", "3", "-s", "2", "-p", "same"), self.want)
        self.write("x.bin", self.x.astype("<f4").tobytes())
        self.assertEqual(self.gradient(*FILTER, tensors=("x.bin:float32 (2, 8, 9, 3,)", "dy.npy")), self.want)
        self.refuse(3, ["x.bin:float32: ", "; elements alone need dtype and shape, x.bin:float32[8,56,56,64]"],
                    *FILTER, tensors=("x.bin:float32", "dy.npy"))
        self.refuse(2, ["--filter-sizes: '3;3;3;8'", "; put commas between numbers"], "--filter-sizes", "3;3;3;8",
                    "-p", "same")
        for flags in (["--op", "depthwise", "-f", "NCW"], ["--op", "depthwise_conv1d"]):
            self.refuses(2, ["; use --op conv1d with --groups C"], *flags, "-i", "x.npy", "-g", "dy.npy", "-o", "no.npy", *FILTER)

    def test_one_tensor_of_float64(self):
        np.save(self.folder / "dy64.npy", self.dy)
        result = self.run_here("--op", "conv2d", "-i", "x.npy", "-g", "dy64.npy", "-o", "dw.npy", *FILTER)
        self.assertEqual((result.status, result.err), (0, "convgrad: note: --input is float32 and --out-backprop "
                                                          "float64, so the gradient is computed in float64\n"))


class StandIns(WordsTest):
    """What stands where an array is expected."""

    def test_files_say_what_they_are(self):
        array = self.read("x.npy")
        for name, data, part in (
                ("lfs.npy", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\n", "Git LFS pointer"),
                ("annex.npy", b"/annex/objects/SHA256E-s8--4d.npy\n", "git annex get"),
                ("page.npy", b"<!DOCTYPE html><html>", "is HTML"), ("p.safetensors", b"<html></html>", "is HTML"),
                ("not.npy", b'{"message": "Not Found"}', "is JSON"),
                ("crlf.npy", array.replace(b"\n", b"\r\n"), "converted as text"),
                ("utf8.npy", array.decode("latin1").encode(), "converted as text"),
                ("lost.npy", array.decode("utf8", "replace").encode(), "converted as text"),
                ("ps5.npy", b"\xff\xfe" + array.decode("cp437").encode("utf-16-le"), "UTF-16"),
                ("ps5be.npy", b"\xfe\xff" + array.decode("cp437").encode("utf-16-be"), "UTF-16"),
                ("b64.npy", base64.b64encode(array), "base64"),
                ("x.npy.bz2", bz2.compress(array), "bzcat"), ("x.npy.xz", lzma.compress(array), "xzcat")):
            with self.subTest(name):
                self.write(name, data)
                self.refuse(3, [name, part], *FILTER, tensors=(name, "dy.npy"))
                self.assert_one_error(self.run_here("inspect", name), 3, name, part)

    def test_types_by_name(self):
        ones = {"float8_e4m3fn": 0x38, "float8_e5m2": 0x3c, "float8_e4m3fnuz": 0x40, "float8_e5m2fnuz": 0x40}
        for name, one in ones.items():
            self.write("x8.npy", raw_npy(X, repr(name), bytes([one]) * np.prod(X)))
            self.assertIn(f"x8.npy: {name} (2, 8, 9, 3)", self.succeed("inspect", "x8.npy").out)
            self.assertIn("mean 1,", self.succeed("inspect", "x8.npy").out)
        # Types that are not read: a flag may still say which of them the bytes are.
        want = self.gradient(*FILTER, tensors=("x8.npy", "dy.npy"))
        for name in ("float8_e3m4", "float8_e8m0fnu", "int4", "<V1", "|V1", "|u1"):
            self.write("x8.npy", raw_npy(X, repr(name), bytes([0x38]) * np.prod(X)))
            self.refuse(3, [name, "--input-dtype"], *FILTER, tensors=("x8.npy", "dy.npy"))
            self.assertEqual(self.gradient(*FILTER, "--input-dtype", "float8_e4m3fn",
                                           tensors=("x8.npy", "dy.npy")), want)

    def test_arrays_that_are_no_numbers(self):
        np.savez(self.folder / "a.npz", x=np.ones(3), names=np.array(["a", "bb"]), z=np.ones(2, "c8"),
                 o=np.array([{}], dtype=object))
        out = self.succeed("inspect", "a.npz").out
        for part in ("a.npz:x: float64 (3,)", "a.npz:names: dtype '<U2' is strings", "a.npz:z: dtype '<c8' is complex64",
                     "a.npz:o: dtype '|O' is Python objects", "numpy.savez(file, **x)"):
            self.assertIn(part, out)
        self.assertEqual(self.report("inspect", "a.npz")["status"], "ok")
        self.assert_one_error(self.run_here("inspect", "a.npz:names"), 3, "is strings")


class Hints(WordsTest):
    def test_exchanged_tensors(self):
        said = "; exchange --input and --out-backprop: then it fits"
        self.refuse(3, [said], *FILTER, tensors=("dy.npy", "x.npy"))
        save(self.folder / "dy2.npy", np.ones((2, 3, 5, 8)))
        self.assertNotIn("exchange", self.refuse(3, ["axis 1 (P)"], *FILTER,
                                                 tensors=("x.npy", "dy2.npy")))
        self.assertNotIn("exchange", self.refuse(3, ["axis 1 (P)"], *FILTER,
                                                 tensors=("dy2.npy", "x.npy")))

    def test_layouts(self):
        first = ("x1.npy", "dy1.npy")
        self.refuse(3, ["; use --data-format NCHW: then it fits"], *FILTER, tensors=first)
        self.refuse(3, ["; use --data-format NHWC: then it fits"], *FILTER, "-f", "channels_first")
        # Two slips at a time, where no single one explains it.
        save(self.folder / "w.npy", np.ones((8, 3, 3, 3)))
        self.refuse(3, ["; use --data-format NCHW and use --filter-format "], "--filter-like",
                    "w.npy", "-s", "2", "-p", "same", tensors=first)

    def test_one_tensor_in_the_other_format(self):
        self.refuse(3, ["; turn --input to NHWC, as the other one is: then it fits"], *FILTER, tensors=("x1.npy", "dy.npy"))
        self.refuse(3, ["; turn --out-backprop to NHWC, as the other one is: then it fits"], *FILTER, tensors=("x.npy", "dy1.npy"))
        self.refuse(3, ["; turn --input to NCHW, as the other one is: then it fits"], *FILTER, "-f", "NCHW", tensors=("x.npy", "dy1.npy"))
        self.refuse(3, ["; use --filter-sizes 3,3,3,8: then it fits"], "--filter-sizes", "3,3,8,3", "-s", 2, "-p", "same")

    def test_orders_of_filters(self):
        rest = ["-s", "2", "-p", "same"]
        self.refuse(3, ["; use --filter-sizes 3,3,3,8, since [8,3,3,3] is OIHW or OHWI: then it fits"], "--filter-sizes",
                    "8,3,3,3", *rest)
        save(self.folder / "x5.npy", np.ones((2, 8, 9, 5)))
        for shape, name in (((8, 5, 2, 3), "OIHW"), ((8, 2, 3, 5), "OHWI")):
            save(self.folder / "w.npy", np.ones(shape))
            tensors = ("x5.npy", "dy.npy")
            self.refuse(3, [f"; use --filter-format {name}: then it fits"], "--filter-like", "w.npy",
                        *rest, tensors=tensors)
            self.refuse(3, [f"; use --filter-sizes 2,3,5,8, since [{','.join(map(str, shape))}] is "
                            f"{name}: then it fits"], "--filter-sizes", ",".join(map(str, shape)),
                        *rest, tensors=tensors)
        self.assertNotIn("since", self.refuse(3, ["--filter-sizes"], "--filter-sizes", "9,7,3,5",
                                              *rest))

    def test_words_that_lead_on(self):
        for flags, status, part in ((["--op", "ConvTranspose2d"], 2, "Transposed convolutions"),
                                    (["--op", "tf.nn.conv2d_transpose"], 2, "Transposed convolutions"),
                                    (["--op", "ConvGrad"], 2, "as many as it has spatial axes"),
                                    ([*FILTER, "--input-dilation", 2], 2, "put the zeros between x's pixels"),
                                    ([*FILTER, "--lhs-dilation=2"], 2, "put the zeros between x's pixels")):
            self.assert_one_error(self.run_here("--op", "conv2d", "-i", "x.npy", "-g", "dy.npy", "-o", "no.npy", *flags)
                                  if flags[0] != "--op" else self.run_here(*flags, "-i", "x.npy"), status, part)

    def test_the_gradient_says_the_taps(self):
        dw = np.load(self.folder / "dw.npy")
        np.save(self.folder / "oihw.npy", dw.transpose(3, 2, 0, 1))
        rest = ["-i", "x.npy", "-g", "dy.npy", "-s", 2, "-p", "same"]
        self.succeed("verify", "--op", "conv2d", *rest, "--result", "dw.npy")
        self.succeed("verify", "--op", "conv2d", *rest, "--result", "oihw.npy", "--filter-format", "OIHW")
        self.succeed("verify", "--op", "conv2d", *rest, "--golden", "dw.npy", "--bitwise")
        self.assert_one_error(self.run_here("verify", "--op", "conv2d", *rest, "--result", "dw.npy", "-k", 5), 3,
                              "dw.npy: shape (3, 3, 3, 8), expected (5, 5, 3, 8)")
        self.assert_one_error(self.run_here("verify", "--op", "conv2d", *rest), 2, "the filter's size is missing")
        self.assert_one_error(self.run_here("verify", "--op", "conv2d", *rest, "--result", "-"), 2, "--result: standard input is read too late")
        for shape, fits in (((3, 3, 5, 8), "--result (bad.npy)[2]"), ((27, 8), "reshape it to HWIO"), ((X[0], *dw.shape), "make images groups")):
            np.save(self.folder / "bad.npy", np.zeros(shape, np.float32))
            self.assert_one_error(self.run_here("verify", "--op", "conv2d", *rest, "--result", "bad.npy"), 3, fits)

    def test_an_operation_without_its_flag(self):
        for command in ([], ["verify"]):
            self.refuses(2, ["'conv2d' is an operation, expected as --op conv2d"],
                         *command, "conv2d", "-i", "x.npy", "-g", "dy.npy", *FILTER)
        self.assert_one_error(self.run_here("conv4d"), 2, "neither an option nor a command")

    def test_files_of_torch_save(self):
        with zipfile.ZipFile(self.folder / "new.pt", "w") as archive:
            archive.writestr("new/data.pkl", b"\x80\x02.")
            archive.writestr("new/data/0", bytes(64))
        stream = io.BytesIO()
        pickle.dump(0x1950a86a20f9469cfc6c, stream, protocol=2)   # torch.serialization.MAGIC_NUMBER
        self.write("old.pt", stream.getvalue() + bytes(64))
        said = "a torch.save file (save the tensor with safetensors or numpy.save)"
        for name in ("new.pt", "new.pt:x", "old.pt"):
            self.refuse(3, [name.split(":", maxsplit=1)[0], said], *FILTER, tensors=(name, "dy.npy"))
        for name in ("new.pt", "old.pt"):
            self.assert_one_error(self.run_here("inspect", name), 3, said)
        self.write("other.pkl", pickle.dumps([1]))
        self.refuse(3, ["a Python pickle"], *FILTER, tensors=("other.pkl", "dy.npy"))


class Quiet(WordsTest):
    def test_only_errors_and_what_was_asked_for(self):
        (self.folder / "jobs.jsonl").write_text(
            '{"op": "conv2d", "input": "x.npy", "out_backprop": "dy.npy", "kernel": 3, "strides": 2, '
            '"padding": "same", "result": "dw.npy"}\n')
        bench = ["bench", "--op", "conv2d", "--input-shape", "1,4,4,2", "-k", "1", "--out-channels",
                 "2", "-p", "same", "--repeat", "1", "--min-time", "0", "--no-peaks"]
        for words in ([*JOB, "--dry-run"], ["verify", *JOB, "--result", "dw.npy"], ["info"],
                      ["compare", "dw.npy", "dw.npy"], ["batch", "jobs.jsonl"], ["inspect", "x.npy"],
                      ["generate", "conv2d", "--shape", "1,4,4,2", "-k", "1", "--out-channels", "2",
                       "-p", "same", "-o", "made"], bench):
            with self.subTest(words):
                self.assert_quiet(self.run_here(*words, "-q"))
        self.assert_quiet(self.run_here("inspect", "x.npy", env={"CONVGRAD_QUIET": "True"}))
        self.assertEqual(self.run_here(*JOB, "-o", "-", "-q").raw, self.want)
        script = self.run_here("completion", "bash").raw
        result = self.run_here("completion", "bash", env={"CONVGRAD_QUIET": "1"})
        self.assertEqual((result.status, result.raw, result.err), (0, script, ""))
        self.assertEqual(self.report("verify", *JOB, "--result", "dw.npy", "--quiet")["status"], "match")
        save(self.folder / "wrong.npy", np.load(self.folder / "dw.npy") + 1)
        wrong = self.run_here("verify", *JOB, "--result", "wrong.npy", "-q")
        self.assertEqual((wrong.status, wrong.raw, wrong.err), (1, b"", ""))
        self.assert_one_error(self.run_here("inspect", "none.npy", "-q"), 3, "none.npy")
        self.refuses(2, ["--quiet", "--verbose"], *JOB, "-o", "a.npy", "-q", "-v")


class Parts(WordsTest):
    def test_inspect(self):
        self.assert_quiet(self.run_here(*JOB, "--batch-range", "1/2", "-o", "part.npz"))
        out = self.run_here("inspect", "part.npz").out
        self.assertRegex(out, r"^part\.npz: a part of a gradient, images \d:\d of 2, for convgrad reduce\n")
        self.assertIn("conv2d float32 NHWC n2 h8 w9 c3 k8 r3 s3 stride2 pad_same", out)
        self.assertIn("part.npz:sums: float64", out)
        part, sums = self.report("inspect", "part.npz")["files"]
        data = np.load(self.folder / "part.npz")
        problem = json.loads(data["problem"].item())
        self.assertEqual(part["part"], {"images": problem["images"], "of_images": 2,
                                        "slices": problem["slices"],
                                        "of_slices": problem["of_slices"],
                                        "nodes": len(data["sums"])})
        self.assertEqual(part["algorithm"], problem["algorithm"])
        self.assertEqual(sums["file"], "part.npz:sums")
        np.savez(self.folder / "odd.npz", problem=np.bytes_(b"{}"), sums=data["sums"])
        result = self.run_here("inspect", "odd.npz")
        self.assertEqual(result.status, 3, str(result))
        self.assertIn("odd.npz: damaged", result.err)
        self.assertIn("odd.npz:sums: float64", result.out)


class Integers(CliTest):
    def compare(self, got, want, *flags):
        np.save(self.folder / "got.npy", np.asarray(got))
        np.save(self.folder / "want.npy", np.asarray(want))
        return self.run_here("compare", "got.npy", "want.npy", *flags)

    def test_by_value_and_exactly(self):
        for got, want, status in (
                (np.int32([1, -2]), np.int32([1, -2]), 0), (np.int32([1, -2]), np.int32([1, 2]), 1),
                (np.uint64([2**64 - 1]), np.int64([-1]), 1),
                (np.uint64([2**64 - 1]), np.uint64([2**64 - 1]), 0),
                (np.int8([5, -1]), np.int64([5, -1]), 0), (np.bool_([1, 0]), np.bool_([1, 0]), 0),
                (np.bool_([1, 0]), np.bool_([1, 1]), 1), (np.bool_([1, 0]), np.uint8([1, 0]), 0)):
            result = self.compare(got, want)
            with self.subTest(str((got, want))):
                self.assertEqual(result.status, status, str(result))
                self.assertIn("every value equal", result.out)
                self.assertNotIn("ULP", result.out)
        result = self.compare(np.int64([[1, 2], [2**40 + 1, 4]]), np.int64([[1, 2], [2**40, 4]]))
        self.assertIn("Max absolute difference: 1 at [1,0]: got 1099511627777, want 1099511627776",
                      result.out)

    def test_values_are_exact(self):
        for dtype, got, want in ((np.uint64, 2**64 - 1, 2**64 - 2), (np.int64, 2**53 + 1, 2**53),
                                 (np.int64, -2**63, -2**63 + 1), (np.bool_, 0, 1)):
            with self.subTest(got):
                text = self.compare(dtype([got]), dtype([want])).out
                self.assertEqual(text.count(f" at [0]: got {got}, want {want}\n"), 3, text)
                compare = parse_report(self.compare(dtype([got]), dtype([want]), "--json").out)["compare"]
                for key in ("max_abs", "max_rel", "first_mismatch"):
                    values = compare[key]["got"], compare[key]["want"]
                    self.assertEqual(values, (got, want))
                    self.assertEqual({type(value) for value in values}, {int})

    def test_criteria_and_files(self):
        a, b = np.int32([100, 7]), np.int32([101, 7])
        self.assertEqual(self.compare(a, b, "--atol", "1").status, 0)
        self.assertEqual(self.compare(a, b, "--rtol", "0.001").status, 1)
        self.assertEqual(self.compare(a, a, "--bitwise").status, 0)
        result = self.compare(a, a.astype(np.int64), "--bitwise")
        self.assertEqual(result.status, 1)
        self.assertIn("dtypes int32, int64 differ", result.out)
        self.assert_one_error(self.compare(a, b, "--max-ulp", "1"), 2, "--max-ulp", "int32", "--atol")
        self.assert_one_error(self.compare(a, a.astype(float)), 3, "is int32", "is float64",
                              "convert")
        self.assertEqual(self.compare(a, b, "--save-diff", "d.npy").status, 1)
        self.assertEqual(np.load(self.folder / "d.npy").tolist(), [-1, 0])
        report = parse_report(self.compare(a, b, "--json").out)
        self.assertEqual((report["compare"]["mismatches"], "max_ulp" in report["compare"]),
                         (1, False))


class Info(CliTest):
    def test_what_this_machine_cannot_run(self):
        out = run("info").out
        report = self.report("info")
        has = set(report["machine"]["instruction_sets"])
        needs = {"streaming": None, "im2col_gemm": None, "outer_product_avx512": "avx512f",
                 "streaming_avx2": "avx2", "outer_product_avx512_bf16": "avx512_bf16",
                 "outer_product_amx": "amx_tile", "outer_product_amx_fp16": "amx_fp16"}
        rows = {row["name"]: row for row in report["algorithms"]}
        for name, need in needs.items():
            self.assertEqual("why_not" in rows[name], need is not None and need not in has, rows[name])
            if "why_not" in rows[name]:
                self.assertIn(f"(not here: {rows[name]['why_not']})", out)
        if not report["cuda"]["devices"]:
            self.assertIn("why_not", report["algorithms"][-1])
            self.assertIn("backend cuda is not here: ", out)
