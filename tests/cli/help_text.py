"""What --help says: its commands, their options, and its examples, which run."""
import re

import numpy as np

from harness import bash, run, save


def commands():
    """The subcommands that --help lists, in its order, behind "" for none."""
    text = run("--help").out
    listed = text[text.index("\nSubcommands:\n"):].split("\n\n")[0]
    return ["", *re.findall(r"(?m)^  ([a-z][\w-]*)", listed)]


def options_of(command):
    """[(names, what they take)] from a command's --help."""
    rows = re.findall(r"(?m)^  (-[^ \n]+)(?: ([^ \n]+))?(?:  .*)?$",
                      run(*[command] * bool(command), "--help").out)
    return [(names.split("[")[0].split(","), takes or ("[=FILE]" if "[=" in names else ""))
            for names, takes in rows]


class ExampleFolder:
    """A folder in which the examples of --help run, as they are printed and in their order."""

    def __init__(self, folder):
        self.folder = folder
        rng = np.random.default_rng(1)
        save(folder / "x.npy", rng.standard_normal((2, 8, 8, 3)))
        save(folder / "dy.npy", rng.standard_normal((2, 4, 4, 8)))
        np.savez(folder / "layer.npz", x=np.load(folder / "x.npy"), dy=np.load(folder / "dy.npy"))
        jobs = re.findall(r"(?m)^  (\{.*\})$", run("batch", "--help").out)   # the manifest that it shows
        (folder / "jobs.jsonl").write_text("\n".join(jobs) + "\n")
        self.run(self.examples("")[0])   # makes dw.npy, which others judge

    @staticmethod
    def examples(command):
        text = run(*[command] * bool(command), "--help").out
        lines = text[text.index("Examples:"):].splitlines()
        return [line.strip() for line in lines if line.startswith("  ")]

    def run(self, line):
        return bash(line, self.folder, text=True)
