"""Arrays of .npz and .safetensors archives, and tensors through pipes."""
import io
import itertools
import json
import struct
import subprocess
import sys
import unittest
import zipfile

import numpy as np
from harness import (BINARY, SANITIZED, CliTest, Problem, SmallTest, clean_environment, npy_bytes,
                     round_to, save)

USAGE, INPUT, RUNTIME = 2, 3, 5
SAFETENSORS = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


def zip_bytes(members, method=zipfile.ZIP_STORED):
    """A zip archive of {name: bytes}."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def safetensors_bytes(tensors):
    """A .safetensors file of {name: (dtype, values)}."""
    header, payload = {}, b""
    for name, (dtype, values) in tensors.items():
        data = np.ascontiguousarray(round_to(dtype, values)).tobytes()
        header[name] = {"dtype": SAFETENSORS[dtype], "shape": list(np.shape(values)),
                        "data_offsets": [len(payload), len(payload) + len(data)]}
        payload += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + payload


def members_of(problem):
    """{name: .npy bytes} of a problem's tensors."""
    return {"x.npy": npy_bytes("float32", problem.x), "dy.npy": npy_bytes("float32", problem.dy)}


class Commands(SmallTest):
    """Every flag that takes a tensor."""

    def setUp(self):
        super().setUp()
        self.assert_quiet(self.run_here(*self.problem.args()))
        dw = self.read("dw.npy")
        sizes = io.BytesIO()
        np.save(sizes, np.array(self.problem.filter_sizes()))
        members = {**members_of(self.problem), "dw.npy": dw, "sizes.npy": sizes.getvalue()}
        self.write("s.npz", zip_bytes(members))
        self.write("c.npz", zip_bytes(members, zipfile.ZIP_DEFLATED))
        self.args = [*self.problem.flags(), "-i", "c.npz:x", "-g", "s.npz:dy"]

    def test_gradients(self):
        """Of every dtype and order: zip_archive_test.cpp, safetensors_test.cpp."""
        self.write("t.safetensors", safetensors_bytes(
            {"x": ("float32", self.problem.x), "dy": ("float32", self.problem.dy)}))
        for x, dy in (("s.npz:x", "c.npz:dy.npy"), ("c.npz:x", "t.safetensors:dy"), ("t.safetensors:x", "dy.npy")):
            with self.subTest(x=x, dy=dy):
                self.assert_quiet(self.run_here(*self.problem.args("got.npy", x=x, dy=dy)))
                self.assertEqual(self.read("got.npy"), self.want)

    def test_verify(self):
        for result in ("s.npz:dw", "c.npz:dw"):
            for extra in ([], ["--golden", "c.npz:dw", "--bitwise"], ["--golden", "s.npz:dw"]):
                self.succeed("verify", *self.args, "--result", result, *extra)
        wrong = np.load(self.folder / "dw.npy")
        wrong[1, 1, 0, 2] += 1
        np.savez_compressed(self.folder / "w.npz", dw=wrong)
        self.assertIn("w.npz:dw", self.succeed("verify", *self.args, "--result", "w.npz:dw", status=1).out)

    def test_compare(self):
        self.write("t.safetensors", safetensors_bytes({"dw": ("float32", self.problem.expected())}))
        for got, want in itertools.permutations(
                ("s.npz:dw", "c.npz:dw", "t.safetensors:dw", "dw.npy"), 2):
            self.succeed("compare", got, want, "--bitwise")
        self.assertIn("s.npz:x", self.succeed("compare", "s.npz:x", "c.npz:dy", status=1).out)

    def test_filter_flags(self):
        flags = self.problem.flags([])
        for filter_flags in (["--filter-like", "c.npz:dw"], ["--filter-like", "s.npz:dw.npy"],
                             ["--filter-sizes", "c.npz:sizes"], ["--filter-sizes", "s.npz:sizes"]):
            result = self.run_here(*flags, *filter_flags, "-i", "x.npy", "-g", "dy.npy", "-o",
                                   "o.npy")
            self.assert_quiet(result)
            self.assertEqual(self.read("o.npy"), self.read("dw.npy"))

    def test_inspect(self):
        done = self.succeed("inspect", "s.npz", "x.npy")
        names = [line.split(": ")[0] for line in done.out.splitlines() if not line.startswith(" ")]
        self.assertEqual(names, ["s.npz:x", "s.npz:dy", "s.npz:dw", "s.npz:sizes", "x.npy"])
        self.write("t.safetensors", safetensors_bytes(
            {"w": ("bfloat16", np.ones((2, 3))), "b.c": ("float64", np.zeros(0))}))
        files = self.report("inspect", "t.safetensors", "c.npz:dw")["files"]
        self.assertEqual([f["file"] for f in files],
                         ["t.safetensors:w", "t.safetensors:b.c", "c.npz:dw"])
        self.assertEqual([f["format"] for f in files], ["safetensors", "safetensors", "1.0"])
        self.assertEqual([f["shape"] for f in files[:2]], [[2, 3], [0]])
        self.assertEqual((files[0]["descr"], files[0]["dtype"]), ("BF16", "bfloat16"))

    def test_archives_are_kept(self):
        base = [*self.args, "-o"]
        for args, status, part in (
                ([*base, "s.npz:dw"], USAGE, "the archive of --out-backprop"),
                ([*base, "./c.npz"], USAGE, "the archive of --input"),
                ([*base, "o.npy", "--json=c.npz"], USAGE, "--json=c.npz is the --input"),
                (["verify", *base, "c.npz", "--golden", "s.npz:dw"], USAGE, "archive of --input")):
            self.refuses(status, [part], *args)
        filters = self.problem.flags(["--filter-sizes", "s.npz:sizes"])
        self.refuses(USAGE, ["--output", "--filter-sizes", "s.npz"], *filters, "-i", "x.npy", "-g", "dy.npy", "-o", "s.npz")
        self.assert_one_error(self.run_here(*base, "o.npy", "--json=n.npz:report"), INPUT, "expected a file of its own")

    def test_a_name_like_an_archives_may_be_written(self):
        self.assert_quiet(self.run_here(*self.args, "-o", "a:b.npy"))
        done = self.run_here(*self.args, "-o", "dw.npy:1")
        self.assertEqual((done.status, done.out, done.err.count("\n")), (0, "", 1), str(done))
        self.assertEqual(self.read("dw.npy:1"), self.read("dw.npy"))


class Refusals(SmallTest):
    """One line that names the archive, the member and what to do; status 3; no output."""

    def test_standard_input_is_no_archive(self):
        data = zip_bytes(members_of(self.problem))
        self.refuses(INPUT, ["standard input", "FILE.npz:NAME"], *self.problem.args(x="-"), stdin=data)
        self.write("s.npz", data)
        with open(self.folder / "s.npz", "rb") as file:
            result = self.run_here(*self.problem.args(x="-"), stdin=file)
        self.assert_one_error(result, INPUT, "standard input: is an archive", "FILE:NAME", "x or dy")

    def test_a_wrong_checksum_writes_nothing(self):
        data = bytearray(zip_bytes(members_of(self.problem)))
        data[data.find(b"PK\1\2") + 16] ^= 1
        self.write("w.npz", bytes(data))
        self.write("old.npy", b"old")
        for args in (self.problem.args(x="w.npz:x"), self.problem.args("old.npy", x="w.npz:x"), ["inspect", "w.npz:x"],
                     ["verify", *self.problem.flags(), "-i", "w.npz:x", "-g", "dy.npy"],
                     [*self.problem.flags(["--filter-like", "w.npz:x"]), "-i", "x.npy", "-g", "dy.npy", "-o", "o.npy"],
                     ["bench", *self.problem.flags(), "-i", "w.npz:x", "-g", "dy.npy", "--no-peaks"],
                     # Nothing on standard output either.
                     self.problem.args("-", x="w.npz:x")):
            self.refuses(INPUT, ["w.npz:x", "CRC"], *args)


class Memory(CliTest):
    """A deflated member is streamed; only what cannot be is held, within the limit."""

    def setUp(self):
        super().setUp()
        # 96 MiB of zeros: 100 kB deflated.
        self.x = np.zeros((24, 64, 64, 256), dtype="<f4")
        self.dy = np.zeros((24, 64, 64, 1), dtype="<f4")
        save(self.folder / "dy.npy", self.dy)
        self.args = ["--op", "conv2d", "-g", "dy.npy", "-k", "1", "-p", "same", "-o", "dw.npy", "-t", "1",
                     "--memory-limit", "48MiB"]

    def peak_mib(self, *args):
        # From a small process: a child's peak begins with its parent's memory.
        measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
                   "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        done = subprocess.run([sys.executable, "-S", "-c", measure, BINARY, *args],
                              cwd=self.folder, env=clean_environment(), capture_output=True,
                              check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return int(done.stdout) / 1024

    @unittest.skipIf(SANITIZED, "a sanitizer needs more")
    def test_streamed(self):
        np.savez_compressed(self.folder / "c.npz", x=self.x)
        np.savez(self.folder / "s.npz", x=self.x)
        for name in ("c.npz:x", "s.npz:x"):
            self.assertLess(self.peak_mib(*self.args, "-i", name), 64, name)

    def test_held_within_the_limit(self):
        for save in (np.savez_compressed, np.savez):
            save(self.folder / "f.npz", x=np.asfortranarray(self.x))
            self.args[-1] = "64MiB"
            self.refuses(RUNTIME, ["--memory-limit", "96.0 MiB of held", "in C order"], *self.args, "-i", "f.npz:x")
            self.args[-1] = "256MiB"
            self.assert_quiet(self.run_here(*self.args, "-i", "f.npz:x"))


class Pipes(SmallTest):
    """Tensors through standard input and output."""

    def setUp(self):
        super().setUp()
        self.write("golden.npy", self.want)

    def shell(self, line):
        """A bash line, with $F for the problem's flags."""
        return self.bash(f"set -o pipefail; F='{' '.join(self.problem.flags())}'; {line}")

    def test_either_tensor(self):
        for line in ("cat x.npy | convgrad $F -i - -g dy.npy -o -", "convgrad $F -i - -g dy.npy -o - < x.npy",
                     "cat dy.npy | convgrad $F -i x.npy -g - -o -",
                     "cat x.npy | convgrad $F -i - -g dy.npy -o /dev/stdout | cat",
                     "convgrad $F -i <(cat x.npy) -g <(cat dy.npy) -o -",
                     "cat x.npy | convgrad $F -i - -g dy.npy -o - --json=report.json"):
            done = self.shell(line)
            with self.subTest(line):
                self.assertEqual((done.returncode, done.stderr), (0, b""))
                self.assertEqual(done.stdout, self.want)

    def test_numpy_in_front_and_verify_behind(self):
        make = ("import numpy as np, sys;"
                "np.save(open(1, 'wb', buffering=0), np.load('x.npy'), allow_pickle=False)")
        done = self.shell(f'{sys.executable} -c "{make}" | convgrad $F -i - -g dy.npy -o - | '
                          "convgrad verify $F -i x.npy -g dy.npy --result - --golden golden.npy --bitwise")
        self.assertEqual((done.returncode, done.stderr), (0, b""), done)
        self.assertIn(b"MATCH", done.stdout)
        # The one in front fails: compare gets nothing, and says so.
        done = self.shell("echo no array | convgrad $F -i - -g dy.npy -o - | convgrad compare - golden.npy")
        self.assertEqual((done.returncode, done.stdout), (INPUT, b""), done)
        self.assertEqual(done.stderr.count(b"standard input"), 2, done)

    def test_other_flags(self):
        for line in ("cat golden.npy | convgrad verify $F -i x.npy -g dy.npy --result -",
                     "cat golden.npy | convgrad verify $F -i x.npy -g dy.npy --golden - --bitwise",
                     "cat x.npy | convgrad inspect -",
                     "cat x.npy | convgrad bench $F -i - -g dy.npy --repeat 1 --min-time 0 --no-peaks"):
            done = self.shell(line)
            with self.subTest(line):
                self.assertEqual((done.returncode, done.stderr), (0, b""), done)
        flags = self.problem.flags(["--filter-like", "-"])
        with open(self.folder / "golden.npy", "rb") as golden:
            result = self.run_here(*flags, "-i", "x.npy", "-g", "dy.npy", "-o", "-", stdin=golden)
        self.assertEqual((result.status, result.err, result.raw), (0, "", self.want))

    def test_one_array_on_standard_input(self):
        for args in (["-i", "-", "-g", "dy.npy", "-o", "o.npy",
                      *self.problem.flags(["--filter-like", "-"])],
                     ["verify", "-i", "-", "-g", "dy.npy", "--result", "-",
                      *self.problem.flags()]):
            self.assert_one_error(self.run_here(*args), USAGE, "standard input")

    def test_nothing_is_written_before_the_gradient_is_complete(self):
        x = self.read("x.npy")
        for data, part in ((x[:-1], "truncated"), (b"", "is empty"), (x + b"\0", "goes on after")):
            self.refuses(INPUT, ["standard input", part], *self.problem.args("-", x="-"), stdin=data)
        self.assert_one_error(self.run_here(*self.problem.args("-", x="none.npy")), INPUT)
        self.assert_one_error(self.run_here(*self.problem.args("-"), "--memory-limit", "1"), RUNTIME)

    def test_a_reader_that_leaves(self):
        # More than a pipe holds: the write fails, with a status and one line, not a signal.
        problem = Problem(n=1, size=(2, 2), c=256, k=256, taps=(1, 1))
        problem.save(self.folder)
        line = " ".join([BINARY, *problem.args("-")])
        for reader in ("head -c 10 >/dev/null", "true", "exec 0<&-"):
            done = self.bash(f"{line} | {reader}; exit ${{PIPESTATUS[0]}}")
            with self.subTest(reader):
                self.assertEqual(done.returncode, RUNTIME, done)
                self.assertEqual(done.stderr.count(b"\n"), 1, done)
                self.assertIn(b"standard output: cannot write: Broken pipe", done.stderr)
