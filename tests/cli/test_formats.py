"""What -o writes: .npy, .npz, .safetensors or the elements alone, by the file's name; and what it never replaces."""
import fcntl
import json
import os
import pty
import select
import termios
import zipfile

import numpy as np
from harness import SmallTest, save

USAGE, INPUT = 2, 3
DTYPES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


def read_safetensors(content):
    """By the format's definition: {name: (dtype, shape, bytes)}."""
    length = int.from_bytes(content[:8], "little")
    assert content[8:9] == b"{" and (8 + length) % 8 == 0
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    ends = sorted(tuple(entry["data_offsets"]) for entry in header.values())
    assert [begin for begin, _ in ends] == [0, *(end for _, end in ends[:-1])] and ends[-1][1] == len(data)
    return {name: (entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


class FormatsTest(SmallTest):
    def setUp(self):
        super().setUp()
        self.args = self.problem.args()[:4] + self.problem.flags()
        self.before = self.contents()

    def make(self, output, *more):
        self.assert_quiet(self.run_here(*self.args, "-o", output, *more))

    def elements(self):
        """Of the .npy file that is right."""
        return self.want[-4 * self.problem.expected().size:]


class Written(FormatsTest):
    def test_npz(self):
        for output, file, member in (("dw.npz", "dw.npz", "dw"), ("a.npz:w/kernel", "a.npz", "w/kernel"),
                                     ("b.npz:g.npy", "b.npz", "g")):
            self.make(output)
            with zipfile.ZipFile(self.folder / file) as archive:
                self.assertIsNone(archive.testzip())
                self.assertEqual(archive.namelist(), [f"{member}.npy"])
                self.assertEqual(archive.read(f"{member}.npy"), self.want)
            with np.load(self.folder / file) as arrays:
                self.assertEqual(list(arrays), [member])
                np.testing.assert_array_equal(arrays[member], self.problem.expected())
        first = self.read("dw.npz")
        self.make("dw.npz")
        self.assertEqual(self.read("dw.npz"), first)

    def test_safetensors(self):
        for dtype, name in DTYPES.items():
            self.problem.save(self.folder, dtype)
            self.make("dw.npy")
            self.make("dw.safetensors")
            tensors = read_safetensors(self.read("dw.safetensors"))
            want = self.read("dw.npy")
            shape = self.problem.filter_sizes()
            size = int(np.prod(shape)) * {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}[name]
            self.assertEqual(tensors, {"dw": (name, shape, want[-size:])})
            self.make("dw.bin", "--raw")
            self.assertEqual(self.read("dw.bin"), want[-size:])
        self.make("w.safetensors:layer.0 weight".replace(" ", "."))
        self.assertEqual(list(read_safetensors(self.read("w.safetensors"))), ["layer.0.weight"])

    def test_streams(self):
        done = self.succeed(*self.args, "-o", "-", "--raw")
        self.assertEqual(done.raw, self.elements())

    def test_a_terminal_gets_no_array_by_any_name(self):
        parent, child = pty.openpty()
        name = os.ttyname(child)
        os.symlink(name, self.folder / "link.npy")
        golden = self.write("want.npy", self.want)

        def at_the_terminal(*words):
            return self.run_here(*words, stdout=child, start_new_session=True,
                                 preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0))
        try:
            for words, flag, path in (
                    *(([*self.args, "-o", path], "--output", path)
                      for path in ("-", "/dev/stdout", "/dev/tty", name, "link.npy")),
                    ([*self.args, "-o", "/dev/tty", "--raw"], "--output", "/dev/tty"),
                    (["verify", *self.args, "-o", "/dev/tty"], "--output", "/dev/tty"),
                    (["verify", *self.args, "--save-diff", name], "--save-diff", name),
                    (["verify", *self.args, "--golden", name, "--update-golden"], "--golden", name),
                    (["compare", golden, golden, "--save-diff", "/dev/stdout"], "--save-diff", "/dev/stdout")):
                with self.subTest(words):
                    done = at_the_terminal(*words)
                    why = f"convgrad: error: {flag}: {path} is a terminal, and arrays are not text; name a file\n"
                    self.assertEqual((done.status, done.err), (USAGE, why))
            self.assertEqual(select.select([parent], [], [], 0)[0], [])  # nothing was written to it
            self.assertEqual(at_the_terminal(*self.args, "-o", "/dev/tty", "--dry-run").status, 0)
        finally:
            os.close(child)
            os.close(parent)

    def test_other_endings(self):
        for output in ("dw.bin", "dw", "dw.NPY"):
            done = self.run_here(*self.args, "-o", output)
            self.assertEqual((done.status, done.out), (0, ""))
            self.assertRegex(done.err, rf"^convgrad: warning: --output: {output} is written as \.npy.*--raw.*\n$")
            self.assertEqual(self.read(output), self.want)
        self.assert_quiet(self.run_here(*self.args, "-o", "/dev/null"))

    def test_report(self):
        self.make("dw.npy")
        plain = self.gradient("dw.npy")
        for output, file, extra in (("dw.npz", "dw.npz:dw", []), ("a.safetensors:w", "a.safetensors:w", []),
                                    ("dw.bin", "dw.bin", ["--raw"])):
            gradient = self.gradient(output, *extra)
            self.assertEqual(gradient["file"], file)
            self.assertEqual(gradient["hash"], plain["hash"])

    def gradient(self, output, *more):
        return self.report(*self.args, "-o", output, *more)["tensors"]["gradient"]

    def test_other_commands(self):
        for k in (1, 2):
            self.make(f"p{k}.npz", "--batch-range", f"{k}/2")
            self.make(f"p{k}.npz", "--batch-range", f"{k}/2")  # once more: it is the part again
        parts = ["p1.npz", "p2.npz"]
        self.assert_quiet(self.run_here("reduce", *parts, "-o", "sum.npz"))
        self.write("want.npy", self.want)
        self.assertEqual(self.run_here("compare", "sum.npz:dw", "want.npy", "--bitwise").status, 0)
        self.assert_quiet(self.run_here("reduce", *parts, "-o", "sum.bin", "--raw"))
        self.assertEqual(self.read("sum.bin"), self.elements())
        self.succeed("verify", *self.args, "-o", "v.safetensors", "--save-diff", "d.npz")
        self.assertEqual(self.run_here("compare", "v.safetensors:dw", "want.npy", "--bitwise").status, 0)
        self.assertEqual(np.load(self.folder / "d.npz")["dw"].shape, self.problem.filter_sizes())
        self.succeed("compare", "want.npy", "v.safetensors:dw", "--save-diff", "e.safetensors")
        self.assertEqual(read_safetensors(self.read("e.safetensors"))["dw"][0], "F32")
        job = self.problem.job(output="job.npz:w")
        raw = {**job, "output": "job.bin", "raw": True}
        self.write("jobs.jsonl", json.dumps(job) + "\n" + json.dumps(raw) + "\n")
        for word in ("ok", "skipped"):
            done = self.succeed("batch", "jobs.jsonl", "--resume")
            self.assertEqual([row.split()[0] for row in done.out.splitlines()[:2]], [word] * 2)
        self.assertEqual(list(np.load(self.folder / "job.npz")), ["w"])
        self.assertEqual(self.read("job.bin"), self.elements())

    def test_accumulate_and_golden(self):
        for name, member in (("dw.npz", "dw"), ("dw.safetensors:w", "w")):
            self.make(name)
            self.make(name, "--accumulate")
            file = name.split(":")[0]
            double = self.folder / "double.npy"
            save(double, 2 * self.problem.expected())
            self.assertEqual(self.run_here("compare", f"{file}:{member}", "double.npy", "--bitwise").status, 0)
        for golden in ("g.npz", "h.safetensors:w"):
            for word in ("is written", "holds it already"):
                done = self.succeed("verify", *self.args, "--golden", golden, "--update-golden")
                self.assertIn(word, done.out)


class Kept(FormatsTest):
    def test_an_archive_that_holds_something_else(self):
        np.savez(self.folder / "w.npz", dw=np.zeros(3), bias=np.ones(3))
        with zipfile.ZipFile(self.folder / "model.pt", "w") as archive:
            archive.writestr("model/data.pkl", b"x")
        self.make("one.safetensors:a")
        for output in ("w.npz", "w.npz:dw", "model.pt", "one.safetensors", "one.safetensors:b"):
            self.refuses(USAGE, ["is an archive that holds", "name another file"], *self.args, "-o", output)
        self.refuses(USAGE, ["model.pt", "holds 'model/data.pkl'"], *self.args, "-o", "model.pt", "--raw")
        self.refuses(USAGE, ["w.npz", "holds 'dw'"], *self.args, "-o", "w.npz", "--batch-range", "1/2")
        self.refuses(USAGE, ["w.npz", "'bias'"], "verify", *self.args, "--golden", "w.npz:dw", "--update-golden")
        self.refuses(USAGE, ["w.npz", "'bias'"], "compare", "x.npy", "x.npy", "--save-diff", "w.npz")
        self.write("bad.npz", b"PK\x03\x04 and no more")
        self.refuses(USAGE, ["bad.npz", "is not replaced"], *self.args, "-o", "bad.npz")

    def test_names_and_flags_that_disagree(self):
        for output, more, parts in (
                ("dw.npy", ["--raw"], ["--raw", "dw.npy"]),
                ("dw.npz:", [], ["dw.npz:", "name of an array"]), ("dw.npz:a b", [], ["'a b'"]),
                ("f.safetensors:__metadata__", [], ["__metadata__"]),
                ("dw.bin:float32[3,2]", [], ["name dw.bin and add --raw"]),
                ("dw.bin", ["--raw", "--accumulate"], ["--accumulate", "--raw"]),
                ("p.bin", ["--raw", "--batch-range", "1/2"], ["--raw", "--batch-range"]),
                ("p.npy", ["--batch-range", "1/2"], ["--output", "p.npy", "FILE.npz"]),
                ("p.npz:x", ["--batch-range", "1/2"], ["--output", "p.npz:x", "FILE.npz"])):
            self.refuses(USAGE, parts, *self.args, "-o", output, *more)
        self.make("dw.npz")
        self.refuses(INPUT, ["dw.npz", "--no-clobber"], *self.args, "-o", "dw.npz:dw", "--no-clobber")
        os.mkfifo(self.folder / "fifo.npz")
        self.assert_one_error(self.run_here(*self.args, "-o", "fifo.npz"), USAGE, "fifo.npz", "regular file")

    def test_no_output_is_an_input(self):
        os.symlink("x.npy", self.folder / "link.npy")
        np.savez(self.folder / "t.npz", x=self.problem.x, w=self.problem.expected().astype(np.float32))
        self.write("want.npy", self.want)
        self.make("p.npz", "--batch-range", "1/1")
        self.succeed("bench", *self.args, "--repeat", 1, "--min-time", 0, "--no-peaks", "--json=base.json")
        like = [*self.args[:4], *self.problem.flags(["--filter-like", "want.npy"])]
        for flag, args in (
                ("--result", ["verify", *self.args, "--result", "want.npy", "--save-diff", "want.npy"]),
                ("--input", ["verify", *self.args, "--save-diff", "./link.npy"]),
                ("--filter-like", ["verify", *like, "--golden", "want.npy", "--update-golden"]),
                ("WANT", ["compare", "x.npy", "t.npz:x", "--save-diff", "t.npz:d"]),
                ("GOT", ["compare", "x.npy", "t.npz:x", "--save-diff", str(self.folder / "link.npy")]),
                ("PARTS", ["reduce", "p.npz", "-o", "p.npz:dw"]),
                ("--filter-like", ["generate", "conv2d", "--shape", "1,4,4,4", "--filter-like", "g/gradient.npy", "-p",
                                   "same", "-o", "g", "--clobber"])):
            if "g" in args:
                self.assertEqual(self.run_here("generate", "conv2d", "--shape", "1,4,4,4", "-k", 1, "--out-channels",
                                               2, "-p", "same", "-o", "g").status, 0)
            self.refuses(USAGE, [flag, "another file"], *args)
        self.refuses(USAGE, ["--json", "FILE"], "inspect", "base.json", "--json=base.json")

    def test_two_outputs_are_two_files(self):
        self.refuses(USAGE, ["--save-diff", "--output"], "verify", *self.args, "-o", "d.npy", "--save-diff", "d.npy")
