"""The program has as many threads as it was asked for; OpenBLAS's idle workers, which would spin, are gone."""

import os
import time

import harness


class Threads(harness.CliTest):
    def test_no_idle_workers(self):
        fifo = self.folder / "x.npy"
        os.mkfifo(fifo)
        with harness.start("--op", "conv2d", "-i", "x.npy", "-g", "dy.npy", "-k", "3", "-p", "same", "-o", "dw.npy",
                           "-t", "1", cwd=self.folder) as process:
            try:
                # It waits for the FIFO's writer; by then everything has been loaded and set up.
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline:
                    state = (harness.pathlib.Path("/proc") / str(process.pid) / "wchan")
                    waiting = state.exists() and "fifo" in state.read_text()
                    count = len(os.listdir(f"/proc/{process.pid}/task"))
                    if waiting or count == 1:
                        time.sleep(0.2)
                        break
                    time.sleep(0.01)
                self.assertEqual(len(os.listdir(f"/proc/{process.pid}/task")), 1)
            finally:
                process.kill()
