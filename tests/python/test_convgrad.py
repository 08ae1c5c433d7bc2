"""python/convgrad, by the program on PATH: what a user of the wheel calls."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import convgrad

ROOT = pathlib.Path(__file__).resolve().parents[2]
TENSORS = ROOT / "testdata/quickstart"
LAYER = {"op": "conv2d", "kernel": 3, "strides": 2, "padding": "same"}


def load(name):
    return np.load(TENSORS / name)


def test_options_are_those_of_the_command_line():
    rng = np.random.default_rng(1)
    x, dy = rng.standard_normal((2, 4, 9, 8)), rng.standard_normal((2, 6, 4, 8))
    dw = convgrad.filter_gradient(x, dy, op="conv2d", kernel=np.array([3, 2]), strides=(2, 1), padding="explicit",
                                  explicit_paddings=((0, 0), (1, 0)), data_format="NCHW", filter_format="OIHW",
                                  use_cudnn_on_gpu=None, out_dtype=np.float32, algorithm="direct")
    assert dw.shape == (6, 4, 3, 2) and dw.dtype == np.float32
    want = np.einsum("nchw,nkhw->kc", x[:, :, 1:8:2, :], dy)    # of a tap that meets no padding
    np.testing.assert_allclose(dw[:, :, 1, 1], want, rtol=1e-6)


def test_bits_go_out_as_they_came():
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 6, 6, 4), (1, 3, 3, 8)))
    exact = convgrad.filter_gradient(*((a.view(np.uint32) & 0xFFFF0000).view(np.float32) for a in (x, dy)), **LAYER)
    bits = [(a.view(np.uint32) >> 16).astype(np.uint16).view("V2") for a in (x, dy)]
    dw = convgrad.filter_gradient(*bits, **LAYER)
    assert dw.dtype == "V2"
    np.testing.assert_allclose((dw.view(np.uint16).astype(np.uint32) << 16).view(np.float32), exact, rtol=2**-8)
    np.testing.assert_allclose(convgrad.filter_gradient(*bits, out_dtype="float32", **LAYER), exact, rtol=1e-5)


def test_filter_like_takes_an_array():
    x, dy = load("x.npy"), load("dy.npy")
    want = convgrad.filter_gradient(x, dy, **LAYER)
    layer = {name: value for name, value in LAYER.items() if name != "kernel"}
    np.testing.assert_array_equal(convgrad.filter_gradient(x, dy, filter_like=want, **layer), want)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_types_of_ml_dtypes(name):
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    rng = np.random.default_rng(1)
    x, dy = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((1, 4, 4, 2), (1, 2, 2, 3)))
    exact = convgrad.filter_gradient(x, dy, **LAYER)
    dw = convgrad.filter_gradient(x.astype(dtype), dy.astype(dtype), **LAYER)
    assert dw.dtype == (dtype if name == "bfloat16" else np.float32)    # as docs/files.md says
    np.testing.assert_array_equal(dw.astype(np.float32), exact.astype(dw.dtype).astype(np.float32))
    if name == "bfloat16":
        for out in (dtype.name, dtype, "bf16"):
            assert convgrad.filter_gradient(x, dy, out_dtype=out, **LAYER).dtype == dtype


def test_a_refusal_is_an_error_of_one_line():
    x, dy = load("x.npy"), load("dy.npy")
    with pytest.raises(convgrad.Error, match="^[^\n]*axis[^\n]*$") as raised:
        convgrad.filter_gradient(x, dy, op="conv2d", kernel=3, strides=1, padding="same")
    assert raised.value.status == 3 and "convgrad: error" not in str(raised.value)
    with pytest.raises(convgrad.Error, match="^op is missing, expected conv2d, depthwise, conv3d or conv1d$"):
        convgrad.filter_gradient(x, dy, kernel=3)
    with pytest.raises(TypeError, match="^stride is True, expected a value"):
        convgrad.filter_gradient(x, dy, op="conv2d", kernel=3, stride=True, padding="same")
    for name in ("output", "dry_run", "no_such_option"):
        with pytest.raises(TypeError, match=name):
            convgrad.filter_gradient(x, dy, **{name: 1}, **LAYER)


def test_run_gives_verdicts(tmp_path):
    want = TENSORS / "dw_tensorflow.npy"
    np.save(tmp_path / "dw.npy", 2 * np.load(want))
    assert convgrad.run(["compare", want, want, "--bitwise"]).returncode == 0
    assert convgrad.run(["compare", tmp_path / "dw.npy", want, "--bitwise"]).returncode == 1
    assert convgrad.run(["--version"], stdout=subprocess.PIPE).stdout.startswith(b"convgrad ")
    with pytest.raises(convgrad.Error, match="none.npy"):
        convgrad.run(["inspect", tmp_path / "none.npy"])


def test_no_temporary_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 0))    # no room in memory
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    run = convgrad.run
    monkeypatch.setattr(convgrad, "run", lambda words, **options: (seen.append(list(tmp_path.iterdir())), run(words, **options))[1])
    dw = convgrad.filter_gradient(load("x.npy"), load("dy.npy"), **LAYER)
    assert convgrad.verify(load("x.npy"), load("dy.npy"), dw, **LAYER)
    assert [len(folders) for folders in seen] == [0, 1] and not list(tmp_path.iterdir())


def test_without_a_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(convgrad.Error, match="install the wheel") as raised:
        convgrad.run(["--version"])
    assert raised.value.status == 4
    with pytest.raises(SystemExit, match="install the wheel"):
        convgrad.main()


def test_the_command_imports_little():
    loaded = subprocess.run([sys.executable, "-c", "import sys, convgrad; print(*sys.modules)"], capture_output=True, text=True,
                            check=True).stdout.split()
    assert not {"numpy", "subprocess", "tempfile"} & set(loaded)


def test_the_version_is_cmakes():
    version = ProjectMetadata(str(ROOT / "python"), PluginManager()).version
    assert convgrad.__version__ == version


def test_no_wheel_without_a_program():
    env = {name: value for name, value in os.environ.items() if not name.startswith("CONVGRAD_")}
    done = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=ROOT / "python", env=env,
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "scripts/release" in done.stderr


def test_nothing_is_installed_by_a_name_that_is_not_ours():
    for file in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("python/*.md"), *ROOT.glob("python/convgrad/*.py")]:
        assert not re.search(r"pip install '?convgrad(?!-)", file.read_text()), file


def test_the_readme(capsys):
    block = (ROOT / "python/README.md").read_text().split("```python\n")[1].split("```")[0]
    names = {}
    exec(block, names)    # as printed
    assert names["dw"].shape == (3, 3, 16, 24) and capsys.readouterr().out.startswith("convgrad ")
