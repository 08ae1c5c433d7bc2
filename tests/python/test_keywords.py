"""The interface as tools see it: keywords, types, the pytest plugin, and layers of other libraries."""
import ast
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import convgrad
import convgrad.testing

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE = "conv2d n2 h7 w6 c4 k6 r3 s3 pad_same"
USE = f"""
import pathlib
import numpy as np
import convgrad, convgrad.testing
x, dy, dw = convgrad.generate(problem="{LINE}", dist="normal")
verdict = convgrad.verify(x, dy, [dw, dw], op="conv2d", kernel_size=(3, 3), stride=1, padding="same", diagnosis=False, save=pathlib.Path("kept"))
verdict.bits + len(verdict.faults) + len(convgrad.__version__)
convgrad.testing.assert_filter_gradient(x, dy, dw, op="conv2d", kernel=3, padding=1)
for name, line in convgrad.problems("reference").items():
    print(name, str(convgrad.verify_function(lambda a, b: a, line, np.float32, "normal")), verdict.plot())
"""


def test_keywords_are_the_options():
    done = subprocess.run([sys.executable, ROOT / "scripts/make_keywords.py", shutil.which("convgrad")], capture_output=True, text=True, check=True)
    committed = (ROOT / "python/convgrad/_keywords.py").read_text()
    assert done.stdout == committed, "scripts/make_keywords.py PROGRAM > python/convgrad/_keywords.py"
    assert all(line.strip() in convgrad.verify.__doc__ for line in ("strides, stride: 1 by default", "slack: of criterion rounding"))


def test_the_syntax_is_that_of_the_oldest_python():
    for file in (ROOT / "python/convgrad").glob("*.py"):
        ast.parse(file.read_text(), feature_version=(3, 8))


@pytest.mark.skipif(not importlib.util.find_spec("mypy"), reason="mypy is not installed")
def test_types(tmp_path):
    wrong = "convgrad.verify(x, dy, dw, krenel=3)\nconvgrad.verify(x, dy, dw, groups='a')\nconvgrad.nothing\n"
    (tmp_path / "use.py").write_text(f"{USE}reveal_type(verdict.score)\n{wrong}")
    env = {**os.environ, "MYPYPATH": str(ROOT / "python"), "MYPY_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "use.py"], cwd=tmp_path, env=env,
                          capture_output=True, text=True, check=False)
    said = [line.partition(" ")[2] for line in done.stdout.splitlines()]
    assert said[0] == 'note: Revealed type is "float | None"', done.stdout
    assert [line.rpartition("  ")[2] for line in said if line.startswith("error")] == ["[call-arg]", "[arg-type]", "[attr-defined]"], done.stdout


def test_golden_files_of_pytest(tmp_path):
    (tmp_path / "test_it.py").write_text(f"""
import convgrad, pytest
@pytest.mark.parametrize("factor", [1, 2])
def test(filter_gradient_golden, factor):
    x, dy, dw = convgrad.generate(problem={LINE!r})
    filter_gradient_golden(x, dy, factor * dw, op="conv2d", kernel=3, padding=1)
    if factor == 1:
        filter_gradient_golden(x, -dy, -dw, op="conv2d", kernel=3, padding=1)
""")

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-p", "convgrad.pytest_plugin", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/tmp"]
        return subprocess.run([*command, "test_it.py", *options], cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    assert run().count("Error: there is no golden file yet: pytest --update-golden writes") >= 2
    assert "MISMATCH: it is multiplied by 2" in run("--update-golden")
    assert sorted(file.name for file in (tmp_path / "golden").iterdir()) == ["test_it.test_1_.2.npy", "test_it.test_1_.npy"]
    assert (tmp_path / "tmp/test_2_0/failed/command.sh").exists()
    said = run()
    assert "1 failed, 1 passed" in said and "next: dw is right" not in said
    stale = tmp_path / "golden/test_it.test_1_.npy"
    np.save(stale, -np.load(stale))
    assert "next: dw is right: pytest --update-golden writes it" in run()


def test_problems_of_suites(tmp_path):
    found = convgrad.problems("others")
    lines = (ROOT / "bench/layers/others.tsv").read_text().splitlines()
    assert found["dw7x7_96"] == "depthwise n8 h28 w28 c96 k96 r7 s7 pad_same"
    assert len(found) == sum(not line.startswith("#") for line in lines)
    (tmp_path / "mine.tsv").write_text(f"# of mine\nfirst 3 {LINE}  # three\n{LINE}\nmb2ic8ih9oc16oh9kh3ph1\n")
    assert convgrad.problems(tmp_path / "mine.tsv") == {"first": LINE, LINE: LINE, "mb2ic8ih9oc16oh9kh3ph1": "mb2ic8ih9oc16oh9kh3ph1"}
    with pytest.raises(convgrad.Error, match="^none: No such file or directory, expected a file or one of batch, "):
        convgrad.problems("none")


@pytest.mark.parametrize("op", ["conv1d", "conv2d", "conv3d"])
def test_lines_of_hypothesis(op):
    hypothesis = pytest.importorskip("hypothesis")

    @hypothesis.settings(max_examples=20, deadline=None, database=None)
    @hypothesis.given(convgrad.testing.lines(op))
    def made(line):
        convgrad.generate(problem=line)

    made()


class Layer:
    """What convgrad reads of a layer, by the names of PyTorch and Keras."""

    def __init__(self, **names):
        self.__dict__.update(names)


def test_what_layers_are_refused():
    x, dy, dw = convgrad.generate(problem=LINE)
    torch_layer = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1, "output_padding": (0, 0),
                   "transposed": False}
    first = [np.moveaxis(a, 3, 1) for a in (x, dy)] + [dw.transpose(3, 2, 0, 1)]
    assert convgrad.verify(*first, layer=Layer(padding_mode="zeros", **torch_layer))
    with pytest.raises(convgrad.Error, match="^layer: padding_mode is 'circular', expected 'zeros'"):
        convgrad.verify(*first, layer=Layer(padding_mode="circular", **torch_layer))
    keras = {"kernel_size": (3, 3), "strides": (1, 1), "padding": "same", "dilation_rate": (1, 1), "groups": 1, "data_format": "channels_last"}
    assert convgrad.verify(x, dy, dw, layer=Layer(activation=None, **keras))
    with pytest.raises(convgrad.Error, match="^layer: its activation is relu, expected none: give op, "):
        def relu(y):
            return y
        convgrad.verify(x, dy, dw, layer=Layer(activation=relu, **keras))
    with pytest.raises(convgrad.Error, match="^layer is a Layer, expected a Conv1d, "):
        convgrad.verify(*first, layer=Layer())
    with pytest.raises(TypeError, match="^kernel is given beside layer, which sets it"):
        convgrad.verify(*first, layer=Layer(padding_mode="zeros", **torch_layer), kernel=3)


@pytest.mark.parametrize("kind,axes,options", [
    ("Conv1d", 1, {"padding": "same", "dilation": 2}), ("Conv2d", 2, {"stride": (2, 1), "padding": (1, 0), "groups": 2}),
    ("Conv3d", 3, {"padding": 1}),
    ("ConvTranspose1d", 1, {"stride": 2}), ("ConvTranspose2d", 2, {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
    ("ConvTranspose2d", 2, {"dilation": 3, "output_padding": 2}), ("ConvTranspose3d", 3, {"stride": (1, 2, 1), "output_padding": (0, 1, 0)})])
def test_layers_of_torch(kind, axes, options):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    layer = getattr(torch.nn, kind)(4, 6, 3, **options)
    x = torch.randn(2, 4, 7, 6, 5)[(..., *[0] * (3 - axes))]
    y = layer(x)
    dy = torch.randn_like(y)
    y.backward(dy)
    convgrad.testing.assert_filter_gradient(x, dy, layer.weight.grad, layer=layer)
    assert not convgrad.verify(x, dy, 1.01 * layer.weight.grad, layer=layer)
    np.testing.assert_allclose(convgrad.filter_gradient(x, dy, layer=layer), layer.weight.grad, rtol=1e-3, atol=1e-3)
    with pytest.raises(convgrad.Error, match="^dw is None: was"):
        convgrad.verify(x, dy, getattr(torch.nn, kind)(4, 6, 3).weight.grad, layer=layer)


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    x, dy, dw = map(torch.tensor, convgrad.generate(problem=LINE))
    layer = {"op": "conv2d", "kernel": 3, "padding": 1}
    negative = torch.complex(x, -x).conj().imag    # x, with the bit that says to negate
    assert negative.is_neg() and convgrad.verify(negative, dy, dw, **layer)
    for wrong, said in ((x.to_sparse(), r"sparse tensor: give x.to_dense\(\)"),
                        (torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), r"quantized tensor: give x.dequantize\(\)")):
        with pytest.raises(convgrad.Error, match=f"^x is a {said}$"):
            convgrad.verify(wrong, dy, dw, **layer)


@pytest.mark.parametrize("kind,axes,options", [
    ("Conv1D", 1, {"padding": "causal", "dilation_rate": 2}), ("Conv2D", 2, {"strides": 2, "padding": "same", "groups": 2}),
    ("Conv3D", 3, {"data_format": "channels_first"}), ("DepthwiseConv2D", 2, {"depth_multiplier": 2}),
    ("Conv2DTranspose", 2, {"strides": 2, "padding": "same"}), ("Conv3DTranspose", 3, {"strides": 2})])
def test_layers_of_keras(kind, axes, options, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    torch, keras = pytest.importorskip("torch"), pytest.importorskip("keras")
    layer = getattr(keras.layers, kind)(*[6] * (kind != "DepthwiseConv2D"), 3, **options)
    x = torch.randn(2, 4, 7, 6, 4)[(slice(None), *[0] * (3 - axes))]
    y = layer(x)
    dy = torch.randn_like(y)
    y.backward(dy)
    convgrad.testing.assert_filter_gradient(x, dy, layer.kernel.value.grad, layer=layer)
