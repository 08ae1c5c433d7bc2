"""generate: the same files for a seed; gradients checked by definition."""
import hashlib
import re
import shlex

import numpy as np
from harness import DTYPES, OPS, CliTest, load, parse_report, small

FILES = ["gradient.npy", "input.npy", "out_backprop.npy"]


class GenerateTest(CliTest):
    def generate(self, *args, out="made", **more):
        return self.succeed("generate", *args, "-o", out, **more).out

    def made(self, name="input.npy"):
        return load(self.folder / "made" / name)


def flags_of(problem):
    """Arguments of generate for a Problem of the harness."""
    shape = (problem.n, *problem.size, problem.c) if problem.last else (problem.n, problem.c,
                                                                       *problem.size)
    args = [problem.op, "--shape", ",".join(map(str, shape))]
    flags = problem.flags(["--filter-sizes", ",".join(map(str, problem.filter_sizes()))])
    return [*args, *flags[2:]]  # without --op


class Values(GenerateTest):
    # Of float16, bfloat16, float32 and float64: the first digits of SHA-256 of x and dy, channels last and first.
    DIGESTS = {
        "int": "c605c8060e251b93 30571bdfc656d488 66ed0f1d5cabce0a 7d65fed7b79e4a6c",
        "uniform": "1e787ddf3d2cb365 faf97f7bab93b154 084d5d5757133f22 8f65a5de531a85a6",
        "normal": "ba004f96d25ee914 7588f4a4d25ca4b1 d13422c40a6c1503 6cf03273f589502d",
        "adversarial": "801b23542e1a0ec9 7c182160e9640cdf 6c6e83745eb16755 33bcd593dc300777",
    }

    def test_a_seed_makes_the_same_files_in_every_version(self):
        """The digests are of files that were compared with docs/generate.md, written down in numpy."""
        for dist, digests in self.DIGESTS.items():
            for dtype, digest in zip(DTYPES, digests.split(), strict=True):
                files = b""
                for layout, shape in (("NHWC", "2,5,4,6"), ("NCHW", "2,6,5,4")):
                    self.generate("conv2d", "--shape", shape, "--filter-sizes", "3,2,6,4", "-p", "same", "-f", layout, "--dist",
                                  dist, "--dtype", dtype, "--seed", 2**40 + 7, "--clobber")
                    files += self.read("made/input.npy") + self.read("made/out_backprop.npy")
                with self.subTest(dist=dist, dtype=dtype):
                    self.assertEqual(hashlib.sha256(files).hexdigest()[:16], digest)

    def test_nonfinite(self):
        for dist in ("int", "normal", "uniform", "adversarial"):
            args = ["depthwise", "--shape", "2,6,5,4", "-k", 2, "-p", "same", "--dist", dist,
                    "--clobber"]
            self.generate(*args)
            usual = {name: self.made(name)[1] for name in FILES}
            self.assertTrue(all(np.isfinite(values).all() for values in usual.values()))
            self.generate(*args, "--nonfinite")
            for name, infinity in (("input.npy", -np.inf), ("out_backprop.npy", np.inf)):
                values = self.made(name)[1]
                self.assertEqual(np.isnan(values).sum(), 1)
                self.assertEqual((values == infinity).sum(), 1)
                self.assertEqual(np.isinf(values).sum(), 1)
                same = np.isfinite(values)
                np.testing.assert_array_equal(values[same], usual[name][same])
            self.assertGreater(np.isnan(self.made("gradient.npy")[1]).sum(), 0)


class Gradients(GenerateTest):
    def test_ways_to_give_a_filter(self):
        self.generate("conv2d", "--shape", "2,7,9,4", "-k", "3,2", "--groups", 2, "--out-channels", 6, "-p", "same")
        self.assertEqual(self.made("gradient.npy")[1].shape, (3, 2, 2, 6))
        for more, k in (([], 4), (["--multiplier", 3], 12), (["--out-channels", 8], 8)):
            self.generate("depthwise", "--shape", "1,5,5,4", "-k", 2, "-p", "valid", "--clobber",
                          *more)
            self.assertEqual(self.made("gradient.npy")[1].shape, (2, 2, 4, k // 4))

    def test_empty(self):
        self.generate("conv2d", "--shape", "0,4,4,2", "-k", 3, "--out-channels", 2, "-p", "same",
                      "--nonfinite")
        self.assertEqual(self.made()[1].shape, (0, 4, 4, 2))
        np.testing.assert_array_equal(self.made("gradient.npy")[1], np.zeros((3, 3, 2, 2)))


class Output(GenerateTest):
    ARGS = ["conv2d", "--shape", "2,8,8,3", "--filter-sizes", "3,3,3,8", "-s", "2", "-p", "same"]

    def test_the_commands_run_as_printed(self):
        for op in OPS:
            for dist in ("int", "adversarial"):
                problem = small(op, last=op != "conv2d",
                                padding="valid" if op == "depthwise" else ((2, 1),) * len(
                                    small(op).taps))
                out = self.generate(*flags_of(problem), "--dist", dist, "--clobber", "--out-dtype",
                                    "float64", out="a b")
                lines = re.findall(r"^  (convgrad .*)$", out, re.M)
                self.assertEqual(len(lines), 3 if dist == "int" else 2)
                for line in lines:
                    done = self.bash(line, text=True)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), line)
                self.assertTrue((self.folder / "dw.npy").exists())

    def test_report(self):
        report = parse_report(self.generate(*self.ARGS, "--seed", 9, "--json"))
        self.assertEqual(list(report["tensors"]), ["input", "out_backprop", "gradient"])
        self.assertEqual((report["command"], report["status"]), ("generate", "ok"))
        for tensor, shape in zip(report["tensors"].values(),
                                 ([2, 8, 8, 3], [2, 4, 4, 8], [3, 3, 3, 8])):
            data = self.read(tensor["file"])
            values = np.load(self.folder / tensor["file"])
            self.assertEqual((tensor["shape"], tensor["dtype"], tensor["descr"], tensor["bytes"]),
                             (shape, "float32", "<f4", values.nbytes))
            self.assertEqual(tensor["hash"],
                             "sha256:" + hashlib.sha256(values.tobytes()).hexdigest())
            self.assertEqual(len(data), 128 + values.nbytes)
        self.assertEqual(report["attrs"]["strides"], [2, 2])
        made_with = report["generate"]
        self.assertEqual((made_with["dist"], made_with["seed"], made_with["nonfinite"]),
                         ("int", 9, False))
        self.assertEqual(len(made_with["commands"]), 3)
        self.assertEqual(shlex.split(made_with["commands"][0])[0], "convgrad")
        self.assertEqual(report["execution"]["backend"], "reference")

    def test_files_that_are_there_stay(self):
        for name in FILES:
            self.generate(*self.ARGS, "--clobber")
            for other in FILES:
                if other != name:
                    (self.folder / "made" / other).unlink()
            (self.folder / "made" / name).write_bytes(b"mine")
            self.refuses(3, [f"made/{name}", "exists already", "--clobber"], "generate", *self.ARGS, "-o", "made")
            self.assertEqual([p.name for p in (self.folder / "made").iterdir()], [name])
            self.assertEqual(self.read(f"made/{name}"), b"mine")
            result = self.run_here("generate", *self.ARGS, "-o", "made", "--clobber",
                                   "--no-clobber")
            self.assertEqual(result.status, 3)
        self.generate(*self.ARGS, "--clobber")
        self.assertEqual(sorted(p.name for p in (self.folder / "made").iterdir()), FILES)

    def test_a_folder_that_was_made_goes_again(self):
        for extra, status in ((["--memory-limit", "1KiB"], 5), (["--out-dtype", "int8"], 2),
                              (["--seed", "-1"], 2)):
            for folder in ("new", "new/deep"):
                self.refuses(status, [], "generate", *self.ARGS, "-o", folder, *extra)
        self.succeed("generate", *self.ARGS, "-o", "new/deep")
        self.assertEqual(sorted(p.name for p in (self.folder / "new/deep").iterdir()), FILES)

    def test_what_the_disk_has_no_room_for(self):
        large = ["conv2d", "--shape", "100000,1000,1000,1000", "-k", 3, "--out-channels", 64, "-p", "same", "-o", "big"]
        self.refuses(3, ["--output: big has", "free, but the files take 387 TiB"], "generate", *large)
        out = self.succeed("generate", *large, "--dry-run").out
        self.assertIn("big/input.npy: float32 (100000, 1000, 1000, 1000), 364 TiB\n", out)
        self.assertEqual(self.listing(), [])
        self.succeed("generate", *large, "--dry-run", "--json")


class Misuse(GenerateTest):
    def test_each_is_one_line(self):
        self.write("file", b"")
        sound = ["conv2d", "--shape", "2,8,8,3", "--filter-sizes", "3,3,3,8", "-p", "same"]
        out = ["-o", "made"]
        for args, status, parts in (
                (out, 2, ["--op is missing"]),
                ([*sound], 2, ["--output is missing"]),
                ([*sound, "-o", "-"], 2, ["--output", "folder"]),
                ([*sound, "-o", "file"], 3, ["file"]),
                ([*sound, "-o", "file/made"], 3, ["--output", "file/made"]),
                (["conv2d", *sound[3:], *out], 2, ["--shape is missing"]),
                ([*sound[:3], "-k", 3, "-p", "same", *out], 2, ["--out-channels is missing"]),
                ([*sound, "--out-channels", 8, *out], 2, ["--out-channels"]),
                ([*sound, "--multiplier", 8, *out], 2, ["--multiplier"]),
                ([*sound, "--dtype", "float16,float32", *out], 2, ["--dtype"]),
                ([*sound, "--seed", 2**63, *out], 2, ["--seed"]),
                (["conv2d", "--shape", "2,8,8", *sound[3:], *out], 3, ["--shape", "3 axes"]),
                (["conv2d", "--shape", f"{2**40},{2**20},8,3", *sound[3:], *out], 3, ["does not fit"]),
                (["--problem", "conv2d float8_e5m2 n1 h4 w4 c1 k1 r1 s1", *out], 2, ["float8_e5m2"]),
                ([*sound, *out, "--json=made/input.npy"], 2, ["--json"])):
            self.refuses(status, parts, "generate", *args)
