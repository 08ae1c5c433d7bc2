"""The combinations that docs/measurements/support.md counts for TensorFlow and PyTorch: convgrad computes all of them, within the
bound, with every algorithm."""

import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import harness
import measure_support
from check_testdata import filter_gradient, values_of, worst_ratio


FIELDS = ("op", "data_format", "padding", "filter_sizes", "strides", "dilations", "explicit_paddings")


class Support(harness.CliTest):
    def test_all_combinations(self):
        combinations = list(measure_support.all_combinations())
        self.assertEqual(len(combinations), 128)
        jobs, wants = "", {}
        for seed, combination in enumerate(combinations):
            for padding, (problem, *shapes) in measure_support.problems_of(combination).items():
                rng = np.random.default_rng(seed)
                dtype = problem["dtype"]
                x, dy = (values_of(measure_support.to_dtype(rng.standard_normal(shape), dtype), dtype)
                         for shape in shapes)
                name = f"{len(wants)}"
                harness.save(self.folder / f"{name}.x.npy", x, dtype)
                harness.save(self.folder / f"{name}.dy.npy", dy, dtype)
                job = {key: problem[key] for key in FIELDS if problem[key]}
                jobs += json.dumps({**job, "input": f"{name}.x.npy", "out_backprop": f"{name}.dy.npy",
                                    "output": f"{name}.npy"}) + "\n"
                wants[name] = (combination, padding, dtype, filter_gradient(problem, x, dy))
        self.write("jobs.jsonl", jobs)
        for algorithm in harness.ALGORITHMS:
            self.succeed("batch", "jobs.jsonl", "-a", algorithm)
            for name, (combination, padding, dtype, want) in wants.items():
                with self.subTest(combination, padding=padding, algorithm=algorithm):
                    path = self.folder / f"{name}.npy"
                    found, got = harness.load(path)
                    path.unlink()
                    self.assertEqual(found, dtype)
                    self.assertLessEqual(worst_ratio(dtype, got, *want), 1)
