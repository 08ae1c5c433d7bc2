"""docs/examples: the workflow fits the action, whose steps are run here as a runner would."""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tarfile

import yaml

from harness import BINARY, ROOT, CliTest, clean_environment

ACTION = "docs/examples/verify"
BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]    # GitHub's `shell: bash`


def load(path):
    return yaml.safe_load((ROOT / path).read_text())


class Action(CliTest):
    def setUp(self):
        super().setUp()
        self.release = self.folder / "convgrad-1-linux.tar.xz"
        with tarfile.open(self.release, "w:xz", preset=0) as tar:
            program = self.folder / "program"
            program.write_text(f'#!/bin/sh\nexec "{pathlib.Path(BINARY).resolve()}" "$@"\n')
            program.chmod(0o755)
            tar.add(program, "convgrad-1-linux/bin/convgrad")

    def run_action(self, **inputs):
        """The status of the first step that fails, or 0; and what was said."""
        action = load(f"{ACTION}/action.yml")
        self.assertEqual(action["runs"]["using"], "composite")
        given = {name: spec.get("default") for name, spec in action["inputs"].items()} | inputs
        path_file, said = self.folder / "path", ""
        for step in action["runs"]["steps"]:
            self.assertEqual(step["shell"], "bash")
            self.assertNotIn("${{", step["run"])    # what an input says is no command
            env = {name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: given[found.group(1)], value)
                   for name, value in step["env"].items()}
            added = path_file.read_text().split() if path_file.exists() else []
            env.update(RUNNER_TEMP=str(self.folder / "runner"), GITHUB_PATH=str(path_file),
                       PATH=":".join([*added, "/usr/bin:/bin"]))
            (self.folder / "runner").mkdir(exist_ok=True)
            done = subprocess.run([*BASH, step["run"]], cwd=self.folder, env=clean_environment(env), capture_output=True,
                                  text=True, check=False)
            said += done.stdout + done.stderr
            if done.returncode:
                return done.returncode, said
        return 0, said

    def jobs(self, golden):
        folder = os.path.relpath(ROOT / "testdata/quickstart", self.folder)
        job = {"name": "quickstart", "op": "conv2d", "input": f"{folder}/x.npy", "out_backprop": f"{folder}/dy.npy",
               "kernel": 3, "strides": 2, "padding": "same", "golden": f"{folder}/{golden}"}
        (self.folder / "jobs.jsonl").write_text(json.dumps(job) + "\n")
        return "jobs.jsonl"

    def test_it_verifies(self):
        digest = hashlib.sha256(self.release.read_bytes()).hexdigest()
        status, said = self.run_action(release=self.release.name, sha256=digest, jobs=self.jobs("dw_tensorflow.npy"),
                                       report="junit.xml")
        self.assertEqual(status, 0, said)
        self.assertIn('name="quickstart"', (self.folder / "junit.xml").read_text())
        status, said = self.run_action(release=self.release.as_uri(), jobs=self.jobs("dw_tensorflow.npy"))
        self.assertEqual(status, 0, said)
        self.assertTrue((self.folder / "report.xml").exists())

    def test_it_fails(self):
        status, said = self.run_action(release=self.release.name, jobs=self.jobs("x.npy"))
        self.assertNotEqual(status, 0, said)
        status, said = self.run_action(release=self.release.name, jobs=self.jobs("dw_tensorflow.npy"), sha256="0" * 64)
        self.assertNotEqual(status, 0, said)
        self.assertNotIn("quickstart", said)

    def test_the_workflow_fits(self):
        inputs = load(f"{ACTION}/action.yml")["inputs"]
        required = {name for name, spec in inputs.items() if spec.get("required")}
        workflow = load("docs/examples/github-workflow.yml")
        steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
        uses = [step for step in steps if step.get("uses") == f"./{ACTION}"]
        self.assertEqual(len(uses), 1)
        self.assertLessEqual(required, uses[0]["with"].keys())
        self.assertLessEqual(uses[0]["with"].keys(), inputs.keys())
        for job in workflow["jobs"].values():
            self.assertLessEqual({job["needs"]} if "needs" in job else set(), workflow["jobs"].keys())
        # What a release leaves is copied: both tarballs, if --arch were left out.
        packed = self.folder / "build/packages"
        packed.mkdir(parents=True)
        for arch in ("x86_64", "aarch64"):
            (packed / f"convgrad-1-linux-{arch}.tar.xz").write_text(arch)
        pack = next(step["run"] for step in steps if step.get("name") == "Pack convgrad").splitlines()
        subprocess.run([*BASH, pack[-1]], cwd=self.folder, check=True)
        self.assertEqual((self.folder / uses[0]["with"]["release"]).read_text(), "x86_64")
        for script in re.findall(r"\./(scripts/\w+)", str(steps)):
            self.assertTrue(os.access(ROOT / script, os.X_OK), script)
