"""--batch-range and reduce: parts of a batch add up to the bits of one run, or say why they do not."""
import contextlib
import json
import os
import subprocess
import time

import numpy as np

from harness import CliTest, Problem, run, save, start

# Of several images, with chunks that split an image (conv2d), hold several (depthwise), and both; more
# slices than one in each.
PROBLEMS = {
    "conv2d": dict(n=9, size=(41, 40), c=4, k=6, taps=(3, 2), strides=(1, 1), dilations=(1, 2), groups=2),
    "depthwise": dict(n=50, size=(19, 17), c=5, k=10, taps=(2, 3), strides=(2, 1)),
    "conv3d": dict(n=3, size=(9, 23, 21), c=2, k=4, taps=(2, 3, 1)),
}


def real(problem, seed=3):
    """The same problem with data whose sums depend on their order."""
    problem.fill_normal(seed)
    if problem.op == "conv2d" and problem.n > 0:
        problem.dy[-1, 3, 4, 1] = np.inf   # one chunk takes another way through every algorithm
    return problem


class RangesTest(CliTest):
    def setUp(self):
        super().setUp()
        self.use()

    def use(self, op="conv2d", dtype="float32", last=True, **more):
        self.problem = real(Problem(op, last=last, **{**PROBLEMS[op], **more}))
        self.problem.save(self.folder, dtype)
        self.args = ["-i", "x.npy", "-g", "dy.npy", *self.problem.flags()]

    def one_run(self, *extra):
        self.assert_quiet(self.run_here(*self.args, "-o", "whole.npy", *extra))
        return self.read("whole.npy")

    def cuts(self, *extra):
        """Where the batch can be cut, as --dry-run says."""
        result = self.succeed(*self.args, "--batch-range", "1/1", "--dry-run", *extra)
        return list(map(int, result.out.split("can be cut at")[1].replace("...", "").split()))

    def part(self, text, *extra, name=None):
        name = name or "part" + text.replace("/", "of").replace(":", "to") + ".npz"
        self.assert_quiet(self.run_here(*self.args, "--batch-range", text, "-o", name, *extra))
        return name

    def reduce(self, *names):
        self.assert_quiet(self.run_here("reduce", *names, "-o", "sum.npy"))
        return self.read("sum.npy")


class SameBits(RangesTest):
    def test_any_cuts(self):
        for op in PROBLEMS:
            self.use(op)
            cuts, whole = self.cuts(), self.one_run()
            self.assertEqual((cuts[0], cuts[-1]), (0, self.problem.n))
            self.assertGreater(len(cuts), 3)
            rng = np.random.default_rng(5)
            for _ in range(4):
                inner = sorted(rng.choice(cuts[1:-1], rng.integers(0, len(cuts) - 1), replace=False))
                bounds = [0, *map(int, inner), self.problem.n]
                parts = [self.part(f"{a}:{b}") for a, b in zip(bounds, bounds[1:])]
                rng.shuffle(parts)
                self.assertEqual(self.reduce(*parts), whole, bounds)

    def test_small_batches(self):
        """Every image is a cut, and there may be more parts than images."""
        for n in (0, 1, 2, 5):
            self.use(n=n)
            whole = self.one_run()
            images = [self.part(f"{i}:{i + 1}") for i in range(n)] or [self.part("0:0")]
            self.assertEqual(self.reduce(*images), whole, n)
            self.assertEqual(self.reduce(*[self.part(f"{k}/6") for k in (6, 4, 5, 2, 1, 3)]), whole, n)

    def test_what_only_same_can_pad(self):
        # Written out, these paddings are refused: no pixels to pad, and more than 2^31.
        for more in (dict(size=(0, 5)), dict(size=(6, 5), taps=(5, 3), dilations=(1 << 31, 1))):
            self.problem = Problem(n=2, padding="same", **more)
            self.problem.save(self.folder)
            self.args = ["-i", "x.npy", "-g", "dy.npy", *self.problem.flags()]
            whole = self.one_run()
            self.assertEqual(self.reduce(self.part("1/2"), self.part("2/2")), whole, more)

    def test_formats_of_the_result(self):
        for extra in (["--out-dtype", "float64"], ["--filter-format", "OIHW", "--out-dtype", "bfloat16"]):
            parts = [self.part(f"{k}/2", *extra) for k in (1, 2)]
            self.assertEqual(self.reduce(*parts), self.one_run(*extra))

    def test_only_its_images_are_read(self):
        # What is behind the part is cut off the file: only a run that reads it finds out.
        self.use(n=8)
        half = self.part("0:4")
        image = self.problem.x[0].size * 4
        with open(self.folder / "x.npy", "r+b") as file:
            size = file.seek(0, 2)
            file.seek(size - 4 * image)
            file.write(b"\xff" * 4 * image)   # NaN
        again = self.part("0:4", name="again.npz")
        self.assertEqual(self.read(half), self.read(again))

    def test_a_stream_is_read_through(self):
        with open(self.folder / "x.npy", "rb") as x:
            result = run(*["-" if a == "x.npy" else a for a in self.args], "--batch-range", "2/3", "-o",
                         "stream.npz", cwd=self.folder, stdin=x)
        self.assert_quiet(result)
        self.assertEqual(self.read("stream.npz"), self.read(self.part("2/3")))


class TheFile(RangesTest):
    def test_numpy_reads_it(self):
        with np.load(self.folder / self.part("2/3")) as file:
            problem = json.loads(file["problem"].item())
            sums = file["sums"]
        self.assertEqual(problem["format"], "convgrad.partial/4")
        self.assertRegex(problem["problem"], r"^conv2d float32 NHWC n9 h41 w40 c4 ")
        self.assertEqual(problem["images"], [3, 6])
        self.assertEqual((sums.shape[1:], sums.dtype), ((6, 2, 6), np.float64))
        part = Problem("conv2d", **PROBLEMS["conv2d"])
        part.x, part.dy = self.problem.x[3:6], self.problem.dy[3:6]
        np.testing.assert_allclose(sums.sum(0).reshape(3, 2, 2, 6), part.grouped(), rtol=1e-4, atol=1e-3)

    def test_as_numpy_saves_it_again(self):
        parts = [self.part(f"{k}/2") for k in (1, 2)]
        for save_as in (np.savez, np.savez_compressed):
            arrays = dict(np.load(self.folder / parts[1]))
            save_as(self.folder / "again.npz", **arrays)
            self.assertEqual(self.reduce(parts[0], "again.npz"), self.one_run())

    def change(self, name, **changes):
        arrays = dict(np.load(self.folder / name))
        problem = json.loads(arrays["problem"].item())
        for key, value in changes.items():
            if key in arrays:
                arrays[key] = value
            else:
                problem[key.removesuffix("_line")] = value
        if "problem" not in changes:
            arrays["problem"] = np.array(json.dumps(problem).encode())
        np.savez(self.folder / "changed.npz", **arrays)
        return "changed.npz"

    def test_numbers_that_cannot_be(self):
        parts = [self.part(f"{k}/2") for k in (1, 2)]
        big = 2**62
        line = json.loads(np.load(self.folder / parts[1])["problem"].item())["problem"]
        lines = [line.replace("n9", f"n{big}"), line.replace("r3", "r0"), "", 7]   # problem_line_test.cpp has more
        for changes in (*({"problem_line": line} for line in lines), {"of_slices": 0},
                        {"of_slices": big}, {"of_slices": -1}, {"of_slices": "x"}, {"slices": [5, 3]}, {"slices": [0, big]},
                        {"images": [5, 3]}, {"images": [0, 99]}, {"images": [-1, 3]}, {"images": 7},
                        {"format": "convgrad.partial/9"}, {"sums": np.zeros((1, 1, 1, 1))},
                        {"sums": np.zeros(3)}, {"slices": [0, 1]},
                        {"problem": np.array(b"{")}, {"problem": np.array(b"[]")}, {"problem": np.array(3.0)},
                        {"problem": np.array([b"{}"])}):
            self.refuses(3, ["changed.npz"], "reduce", parts[0], self.change(parts[1], **changes), "-o", "sum.npy")


class Refused(RangesTest):
    def test_where_the_batch_cannot_be_cut(self):
        self.use("depthwise")
        cuts = self.cuts()
        gap = next(i for i in range(self.problem.n) if i not in cuts)
        below = max(c for c in cuts if c < gap)
        above = min(c for c in cuts if c > gap)
        for text, side in ((f"{gap}:{self.problem.n}", "begins"), (f"0:{gap}", "ends")):
            self.refuses(2, ["--batch-range", f"image {gap}", side, f"{below} or {above}", "K/R"],
                         *self.args, "--batch-range", text, "-o", "p.npz")

    def test_what_is_no_range(self):
        # Of K/R test_shards.py has more.
        for text in ("x", "1:2:3", "3:1", "-1:2", "4/3", "1.5:2", "1/9999999", "99999999999999999999:2", " 1:2"):
            self.refuses(2, ["--batch-range"], *self.args, f"--batch-range={text}", "-o", "p.npz")
        self.refuses(2, ["--batch-range", "9 images"], *self.args, "--batch-range", "0:10", "-o", "p.npz")

    def test_options_that_do_not_go_with_it(self):
        for extra in (["--accumulate"], ["--backend", "reference"]):
            self.refuses(2, ["--batch-range", extra[0]], *self.args, "--batch-range", "1/2", "-o", "p.npz", *extra)
        self.refuses(2, ["--batch-range"], "verify", *self.args, "--batch-range", "1/2")

    def test_missing_and_double_images(self):
        a, b, c = (self.part(f"{k}/3") for k in (1, 2, 3))
        wide = self.part("3:9")
        for names, parts in (((a, c), ["images 3 to 5 of 9", "--batch-range 3:6"]),
                             ((b, c), ["images 0 to 2 of 9", "--batch-range 0:3"]),
                             ((b, a), ["images 6 to 8 of 9", "--batch-range 6:9"]),
                             ((a, b, c, b), ["images 3 to 5", "twice", b]),
                             ((a, wide, c), ["images 6 to 8", c, wide])):
            self.refuses(3, parts, "reduce", *names, "-o", "sum.npy")

    def test_parts_of_another_run(self):
        a = self.part("1/2", "-a", "direct")
        others = {"algorithm": self.part("2/2", "-a", "im2col_gemm", name="gemm.npz"),
                  "float32->float64": self.part("2/2", "-a", "direct", "--out-dtype", "float64", name="f64.npz")}
        flags = ["valid" if f == "same" else f for f in self.args]
        save(self.folder / "dy.npy", self.problem.stored(self.problem.dy[:, :39, :38]))
        self.assert_quiet(self.run_here(*flags, "--batch-range", "2/2", "-a", "direct", "-o", "valid.npz"))
        others["pad_same"] = "valid.npz"
        for field, name in others.items():
            self.refuses(3, [name, field, a], "reduce", a, name, "-o", "sum.npy")

    def test_another_build(self):
        a, b = self.part("1/2"), self.part("2/2")
        for field, value in (("program", "convgrad 0.0.0 (old)"), ("schedule", 1), ("blas", "another")):
            changed = TheFile.change(self, b, **{field: value})
            self.refuses(3, [changed, field], "reduce", a, changed, "-o", "sum.npy")

    def test_files_that_are_none(self):
        self.one_run()
        np.savez(self.folder / "other.npz", x=np.zeros(3))
        self.write("text.npz", "hello")
        for name, status in (("whole.npy", 3), ("other.npz", 3), ("text.npz", 3), ("none.npz", 3), ("-", 2)):
            self.refuses(status, [name], "reduce", name, "-o", "sum.npy")

    def test_names(self):
        a = self.part("0:9")
        self.write("there.npy", "x")
        self.write("there.npz", "x")
        for status, parts, *args in ((2, ["reduce"], "reduce", "-o", "sum.npy"), (2, ["--output"], "reduce", a),
                                     (2, ["--output", a], "reduce", a, "-o", a),
                                     (3, ["there.npy"], "reduce", a, "-o", "there.npy", "--no-clobber"),
                                     (3, ["there.npz"], *self.args, "--batch-range", "1/1", "-o", "there.npz", "--no-clobber")):
            self.refuses(status, parts, *args)


class Progress(RangesTest):
    def test_a_terminal_shows_what_is_left(self):
        """x comes slowly through a pipe: half of it, a pause, the rest."""
        self.use("conv2d", n=40, size=(64, 64), c=32, k=8, groups=1, dilations=(1, 1))
        x = self.read("x.npy")
        words = ["-" if a == "x.npy" else a for a in self.args]
        terminal, other = os.openpty()
        with start(*words, "-o", "dw.npy", "-t", 1, "--memory-limit", "31MiB", cwd=self.folder, stderr=other,
                   stdin=subprocess.PIPE) as process:
            os.close(other)
            process.stdin.write(x[:len(x) * 3 // 4])
            process.stdin.flush()
            time.sleep(1.3)
            process.stdin.write(x[len(x) * 3 // 4:])
            process.stdin.close()
            self.assertEqual(process.wait(60), 0)
        shown = b""
        with contextlib.suppress(OSError):   # the terminal is gone with its last user
            while part := os.read(terminal, 65536):
                shown += part
        os.close(terminal)
        self.assertRegex(shown.decode(), r"gradient: \[#+ *\] +\d+ %, \d+ (s|min|h \d+ min) left")


class Reports(RangesTest):
    def test_part_and_reduce(self):
        report = self.report(*self.args, "--batch-range", "2/3", "-o", "p.npz")
        self.assertEqual(report["part"]["images"], [3, 6])
        self.assertEqual(report["part"]["of_images"], 9)
        parts = [self.part(f"{k}/3") for k in (3, 1)]
        report = self.report("reduce", "p.npz", *parts, "-o", "sum.npy")
        self.assertEqual([p["images"] for p in report["parts"]], [[0, 3], [3, 6], [6, 9]])
        self.assertEqual(report["output"], "sum.npy")
        self.assertRegex(report["tensors"]["gradient"]["hash"], "^sha256:")

    def test_a_batch_of_parts(self):
        whole = self.one_run()
        jobs = (self.problem.job(output=f"{k}.npz", batch_range=f"{k}/3") for k in (1, 2, 3))
        self.write("jobs.jsonl", "".join(json.dumps(job) + "\n" for job in jobs))
        self.succeed("batch", "jobs.jsonl", "--resume")
        self.assertEqual(self.reduce("1.npz", "2.npz", "3.npz"), whole)
        (self.folder / "2.npz").unlink()
        self.assertIn("skipped", self.succeed("batch", "jobs.jsonl", "--resume").out)
        self.assertEqual(self.reduce("1.npz", "2.npz", "3.npz"), whole)
