"""batch --resume: what is done is skipped, and what has changed since is not."""
import os
import resource
import time

import numpy as np
from batching import BatchTest
from harness import npy_bytes, save, start, wait_until


class Resume(BatchTest):
    def setUp(self):
        super().setUp()
        save(self.folder / "golden.npy", self.problem.expected())
        self.jobs = [self.job(name="a"), self.job(name="b", output="b.npy", out_dtype="float64"),
                     self.job(name="c", golden="golden.npy"),
                     self.job(name="d", command="verify", output="d.npy")]
        self.name = self.manifest(*self.jobs)

    def resume(self, *args, status=0):
        words, _ = self.words(self.batch(self.name, "--resume", *args, status=status))
        return "".join({"skipped": "s", "ok": "r", "match": "r", "mismatch": "m",
                        "not run": "n"}.get(words.get(n), "e") for n in "abcd" if n in words)

    def test_what_is_done_is_skipped(self):
        self.assertEqual(self.resume(), "rrrr")
        before = {n: ((self.folder / n).stat().st_mtime_ns, self.read(n))
                  for n in ("dw.npy", "b.npy")}
        for _ in range(2):
            self.assertEqual(self.resume(), "ssss")
        self.assertEqual(before, {n: ((self.folder / n).stat().st_mtime_ns,
                                      self.read(n)) for n in before})
        self.assertIn("2 ok, 2 match", self.batch(self.name).out)   # only --resume skips
        self.batch(self.name, "--state", "s")
        self.assertEqual(self.resume("--state", "s"), "ssss")

    def test_what_changed_is_done_again(self):
        for name, want in (("x.npy", "rrrr"), ("dy.npy", "rrrr"), ("dw.npy", "rsss"),
                           ("b.npy", "srss"), ("golden.npy", "ssrs"), ("d.npy", "sssr")):
            with self.subTest(name):
                self.problem.save(self.folder)
                save(self.folder / "golden.npy", self.problem.expected())
                self.resume()
                self.assertEqual(self.resume(), "ssss")
                data = bytearray(self.read(name))
                data[-1] ^= 1   # of the same size: only its time tells
                self.write(name, data)
                result = self.run_here("batch", self.name, "--resume", "--keep-going")
                words, _ = self.words(result)
                got = "".join("s" if words[n] == "skipped" else "r" for n in "abcd")
                self.assertEqual(got, want, str(result))

    def test_the_time_and_the_size_of_a_file_are_what_counts(self):
        self.resume()
        os.utime(self.folder / "b.npy", ns=(1, (self.folder / "b.npy").stat().st_mtime_ns + 1))
        self.assertEqual(self.resume(), "srss")
        status = (self.folder / "golden.npy").stat()
        with open(self.folder / "golden.npy", "ab") as file:
            file.write(b"\0")
        os.utime(self.folder / "golden.npy", ns=(status.st_atime_ns, status.st_mtime_ns))
        self.batch(self.name, "--resume", status=3)

    def test_another_algorithm(self):
        """Other attributes make other jobs: batch_test.cpp."""
        self.resume()
        self.assertEqual(self.resume("-a", "direct"), "rrrr")
        self.assertEqual(self.resume("-a", "direct"), "ssss")
        self.assertEqual(self.resume(), "rrsr")  # the others' outputs are direct's

    def test_new_and_removed_lines(self):
        self.name = self.manifest(*self.jobs[:2])
        self.resume()
        self.name = self.manifest(*self.jobs)
        self.assertEqual(self.resume(), "ssrr")
        self.name = self.manifest(*self.jobs[2:])
        self.assertEqual(self.resume(), "ss")
        self.name = self.manifest(*self.jobs)
        self.assertEqual(self.resume(), "ssss")
        self.assertEqual(self.resume("--match", "[ab]"), "ss")

    def test_failures_are_never_skipped(self):
        save(self.folder / "golden.npy", self.problem.expected() + 1)
        for _ in range(2):
            self.assertEqual(self.resume("--keep-going", status=1)[2], "m")
        (self.folder / "x.npy").rename(self.folder / "away")
        self.batch(self.name, "--resume", "--keep-going", status=3)
        (self.folder / "away").rename(self.folder / "x.npy")
        self.assertEqual(self.resume("--keep-going", status=1), "ssms")

    def test_a_changed_hash_in_the_manifest(self):
        self.resume()
        self.jobs[0]["input_sha256"] = "0" * 64
        self.name = self.manifest(*self.jobs)
        result = self.batch(self.name, "--resume", status=3)
        self.assertIn("line 1 (a): input (x.npy)", result.err)

    def test_dry_run_keeps_nothing(self):
        self.batch(self.name, "--resume", "--dry-run")
        self.assertEqual(self.listing(), sorted(["x.npy", "dy.npy", "golden.npy", "jobs.jsonl"]))

    def test_an_input_that_changes_meanwhile(self):
        # x is replaced while it is computed with. The new x was not seen, and must not pass for done.
        rng = np.random.default_rng(6)
        x, dy = rng.integers(-4, 5, (1, 64, 64, 1)), rng.integers(-4, 5, (1, 64, 64, 4096))
        save(self.folder / "x.npy", x)
        save(self.folder / "dy.npy", dy)
        save(self.folder / "other.npy", x + 1)
        self.name = self.manifest({"op": "conv2d", "input": "x.npy", "out_backprop": "dy.npy", "kernel": 1,
                                   "padding": "valid", "output": "dw.npy", "backend": "reference", "name": "a"})
        process = start("batch", self.name, "--resume", "--junit", "r.xml", "-t", 1, cwd=self.folder)
        wait_until(lambda: (self.folder / "r.xml").exists(), process)  # it begins
        time.sleep(0.1)
        (self.folder / "other.npy").replace(self.folder / "x.npy")  # never half a file
        err = process.communicate(timeout=300)[1]
        self.assertEqual(process.returncode, 0, err)
        self.resume()
        want = np.einsum("nhwc,nhwk->ck", x + 1.0, dy)[None, None]
        self.assertEqual(self.read("dw.npy"), npy_bytes("float32", want))
        self.assertEqual(self.resume(), "s")

    def test_a_state_that_cannot_be_written(self):
        for path in ("/dev/full", "/dev/null"):
            self.refuses(2, [f"--state: {path} is a device"], "batch", self.name, "--state", path)
        self.resume()
        before = self.read("jobs.jsonl.state")
        os.utime(self.folder / "x.npy")
        # Above the tensors; of the next lines the first goes in, and a part of the second.
        limit = len(before) + (len(before) - len(before.splitlines(True)[0])) // 4 * 3 // 2
        self.assertGreater(limit, 1200)
        result = self.run_here("batch", self.name, "--resume", preexec_fn=lambda: (
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
        self.assertEqual(result.status, 5, str(result))
        self.assertIn("jobs.jsonl.state: cannot write", result.err)
        self.assertEqual(result.err.count("\n"), 1)
        lines = self.read("jobs.jsonl.state").splitlines(True)
        self.assertEqual((b"".join(lines[:-1]), lines[-1][-1:]), (before, b"\n"))
        self.assertEqual(self.resume(), "srrr")
