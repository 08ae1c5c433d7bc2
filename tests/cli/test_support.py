"""The combinations that docs/measurements/support.md counts for TensorFlow and PyTorch: convgrad computes all of them, within the
bound, with every algorithm."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import harness
import measure_support
from check_testdata import filter_gradient, values_of, worst_ratio


def flags(problem):
    listed = [(flag, problem[key]) for flag, key in (
        ("--filter-sizes", "filter_sizes"), ("--strides", "strides"), ("--dilations", "dilations"),
        ("--explicit-paddings", "explicit_paddings")) if problem[key]]
    words = ["--op", problem["op"], "-f", problem["data_format"], "-p", problem["padding"]]
    for flag, numbers in listed:
        words += [flag, ",".join(map(str, numbers))]
    return words


class Support(harness.CliTest):
    def test_all_combinations(self):
        combinations = list(measure_support.all_combinations())
        self.assertEqual(len(combinations), 128)
        for seed, combination in enumerate(combinations):
            for padding, (problem, *shapes) in measure_support.problems_of(combination).items():
                rng = np.random.default_rng(seed)
                dtype = problem["dtype"]
                x, dy = (values_of(measure_support.to_dtype(rng.standard_normal(shape), dtype), dtype)
                         for shape in shapes)
                harness.save(self.folder / "x.npy", x, dtype)
                harness.save(self.folder / "dy.npy", dy, dtype)
                want = filter_gradient(problem, x, dy)
                for algorithm in harness.ALGORITHMS:
                    with self.subTest(combination, padding=padding, algorithm=algorithm):
                        self.assert_quiet(self.run_here(*flags(problem), "-i", "x.npy", "-g", "dy.npy", "-o",
                                                        "dw.npy", "-a", algorithm))
                        found, got = harness.load(self.folder / "dw.npy")
                        self.assertEqual(found, dtype)
                        self.assertLessEqual(worst_ratio(dtype, got, *want), 1)
