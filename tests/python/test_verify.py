"""convgrad.verify(), generate(), verify_function() and convgrad.testing: kernels in numpy, and arrays of other libraries."""
import math
import subprocess

import numpy as np
import pytest

import convgrad
import convgrad.testing

LINE = "conv2d n4 h10 w9 c6 k8 r3 s3 pad_same"
LAYER = {"op": "conv2d", "kernel": 3, "padding": "same"}


def kernel(x, dy, pad=True, pixels=slice(None), sums=np.float32):
    """The gradient of a 3x3 filter, tap by tap."""
    x, dy = (np.asarray(a, np.float64) for a in (x, dy))
    around = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="constant" if pad else "edge")
    dw = np.zeros((3, 3, x.shape[3], dy.shape[3]), sums)
    for r, s in np.ndindex(3, 3):
        seen = around[:, r:r + x.shape[1], s:s + x.shape[2]].reshape(-1, x.shape[3])
        dw[r, s] = (seen[pixels].T @ dy.reshape(-1, dy.shape[3])[pixels]).astype(sums)
    return dw.astype(np.float32)


WRONG = {
    "sums that end at whole blocks of 64 pixels": ("pixel", lambda x, dy: kernel(x, dy, pixels=slice(0, x[..., 0].size // 64 * 64))),
    "padding that repeats the border": ("padding", lambda x, dy: kernel(x, dy, pad=False)),
    "a filter turned over": ("flip", lambda x, dy: kernel(x, dy)[::-1, ::-1]),
    "a result in float16": ("result_precision", lambda x, dy: kernel(x, dy, sums=np.float16)),
    "an image left out": ("image", lambda x, dy: kernel(x[:-1], dy[:-1])),
}


@pytest.fixture(name="tensors")
def made_tensors():
    return convgrad.generate(problem=LINE, dist="normal", seed=2)


def test_a_right_kernel(tensors):
    x, dy, golden = tensors
    verdict = convgrad.verify(x, dy, kernel(x, dy), **LAYER)
    assert verdict and verdict.match and verdict.reason is None and verdict.faults == []
    assert 20 < verdict.bits < math.inf and 0 <= verdict.score < 1
    assert str(verdict).startswith("MATCH: dw.npy against") and "--json" not in str(verdict)
    assert verdict.report["compare"]["count"] == golden.size
    convgrad.testing.assert_filter_gradient(golden, x, dy, **LAYER)
    assert convgrad.verify(x, dy, golden, max_ulp=1, **LAYER).score is None
    convgrad.verify_function(kernel, LINE, dtypes=("float32", "float16->float32"))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_explained(tensors, tmp_path, name):
    fault, wrong = WRONG[name]
    x, dy, _ = tensors
    with pytest.raises(AssertionError, match="^MISMATCH: ") as raised:
        convgrad.testing.assert_filter_gradient(wrong(x, dy), x, dy, save_repro=tmp_path / "small", **LAYER)
    assert "\ndiagnosis: the result" in str(raised.value) and "\nrepeat: convgrad verify --" in str(raised.value)
    assert subprocess.run(["bash", "repro.sh"], cwd=tmp_path / "small", capture_output=True, check=False).returncode == 1
    verdict = convgrad.verify(x, dy, wrong(x, dy), **LAYER)
    assert not verdict and verdict.reason == "elements" and verdict.score > 1 and fault in " ".join(verdict.faults)
    with pytest.raises(AssertionError, match="^normal data: MISMATCH"):
        convgrad.verify_function(wrong, LINE, save_repro=tmp_path / "made")


def test_runs_of_one_kernel(tensors):
    x, dy, dw = tensors
    other = dw.copy()
    other[0, 0, 0, 0] *= 1.5
    assert "runs: 2 results, every bit equal" in str(convgrad.verify(x, dy, (dw, dw), **LAYER))
    assert not convgrad.verify(x, dy, [dw, other], **LAYER)


def test_functions_get_layouts_and_kinds_of_data():
    seen = []

    def function(x, dy, layout):
        seen.append((layout, x.shape, x.dtype.name, len(np.unique(x))))
        return convgrad.filter_gradient(x, dy, data_format=layout, **LAYER)

    convgrad.verify_function(function, [LINE, LINE + " NHWC"], dtypes=["float32", "float64"], data=["normal", "constant"],
                             layouts=["NHWC", "NCHW"])
    assert {entry[:3] for entry in seen} == {(layout, shape, dtype) for layout, shape in (("NHWC", (4, 10, 9, 6)), ("NCHW", (4, 6, 10, 9)))
                                             for dtype in ("float32", "float64")}
    assert {entry[3] == 1 for entry in seen} == {True, False} and len(seen) == 16


def test_functions_get_copies_and_random_signs():
    seen = []

    def zeroing(x, dy):
        seen.append(dy.copy())
        x[:] = dy[:] = 0
        return np.zeros((3, 3, 6, 8), np.float32)

    with pytest.raises(AssertionError, match="^normal data: the function changed x and dy, which it may only read\n5 of 5 kinds of data fail\n"):
        convgrad.verify_function(zeroing, LINE)
    assert set(np.unique(seen[-1])) == {-1.5, 1.5} and np.all(seen[-1] == seen[-1][..., :1])
    with pytest.raises(AssertionError, match="^normal data: MISMATCH: nothing was tested"):
        convgrad.verify_function(lambda x, dy: np.zeros((3, 3, 6, 8), np.float32), LINE.replace("n4", "n0"), data=["normal"])


def test_all_kinds_are_tried_and_their_dtypes_judged(tmp_path):
    calls = []

    def narrow(x, dy):
        calls.append(x.dtype)
        return kernel(x, dy).astype(np.float16)

    with pytest.raises(AssertionError) as raised:
        convgrad.verify_function(narrow, LINE, dtypes=("float16", "float32", "float16->float32"), data=["normal", "wide"])
    lines = str(raised.value).splitlines()
    assert len(calls) == 6 and "4 of 6 kinds of data fail" in lines
    assert lines[0].startswith("normal data: MISMATCH: dw.npy is float16, narrower than the float32 data"), lines[0]
    assert sum(line.startswith(("normal data: MISMATCH", "wide data: MISMATCH")) for line in lines) == 4
    assert lines[-1].endswith("(conv2d float16->float32 n4 h10 w9 c6 k8 r3 s3 pad_same)")
    first = convgrad.verify_function(kernel, LINE, layouts=None, data=["integers"], save_repro=tmp_path / "none")
    assert first is None and not (tmp_path / "none").exists()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn*float8_e5m2", "float8_e5m2fnuz"])
def test_functions_of_other_dtypes(dtype):
    pytest.importorskip("ml_dtypes")
    convgrad.verify_function(kernel, LINE, dtypes=[dtype], data=["normal", "integers"])


def test_no_verdict_is_an_error(tensors):
    x, dy, dw = tensors
    with pytest.raises(convgrad.Error, match=r"^--out-backprop \(dy.npy\): axis 1") as raised:
        convgrad.verify(x, dy, dw, strides=2, **LAYER)
    assert raised.value.status == 3
    with pytest.raises(convgrad.Error, match=r"^--out-backprop \(dy\): axis 1"):
        convgrad.filter_gradient(x, dy, strides=2, **LAYER)
    for function, flag in ((convgrad.verify, "result"), (convgrad.generate, "output")):
        with pytest.raises(TypeError, match=flag):
            function(*((x, dy, dw) if flag == "result" else ()), **{flag: "dw.npy"})


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_torch(tensors, dtype):
    torch = pytest.importorskip("torch")
    x, dy = (torch.tensor(a).round().to(getattr(torch, dtype)) for a in tensors[:2])
    want = convgrad.filter_gradient(x.float().numpy(), dy.float().numpy(), **LAYER)
    first = x.permute(0, 3, 1, 2)    # NCHW by its shape, NHWC in memory
    assert not first.is_contiguous()
    flags = {"data_format": "NCHW", "out_dtype": "float32", **LAYER}
    np.testing.assert_array_equal(convgrad.filter_gradient(first, dy.permute(0, 3, 1, 2).contiguous(), **flags), want)
    dw = torch.tensor(want, requires_grad=True)
    convgrad.testing.assert_filter_gradient(dw, first, dy.permute(0, 3, 1, 2), **flags)
    if torch.cuda.is_available():
        assert convgrad.verify(first.cuda(), dy.permute(0, 3, 1, 2).cuda(), dw.cuda(), **flags)


@pytest.mark.parametrize("name", ["jax", "tensorflow", "cupy"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_libraries(tensors, name, dtype):
    library = pytest.importorskip(name)
    x, dy = (np.rint(a) for a in tensors[:2])
    want = convgrad.filter_gradient(x, dy, **LAYER)
    if dtype == "bfloat16":
        x, dy = (a.astype(pytest.importorskip("ml_dtypes").bfloat16) for a in (x, dy))
    make = {"jax": lambda: library.numpy.asarray, "tensorflow": lambda: library.constant, "cupy": lambda: library.asarray}[name]()
    x, dy, dw = (make(a) for a in (x, dy, want))
    np.testing.assert_array_equal(convgrad.filter_gradient(x, dy, out_dtype="float32", **LAYER), want)
    assert convgrad.verify(x, dy, dw, out_dtype="float32", **LAYER).bits == math.inf


def test_a_tensor_that_has_dlpack_alone(tensors):
    class Tensor:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x, dy, dw = tensors
    wrapped = [Tensor(x), Tensor(dy)]
    np.testing.assert_array_equal(convgrad.filter_gradient(*wrapped, **LAYER), convgrad.filter_gradient(x, dy, **LAYER))
