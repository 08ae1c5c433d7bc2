"""convgrad.verify(), generate(), verify_function() and convgrad.testing: kernels in numpy, and arrays of other libraries."""
import concurrent.futures
import html
import math
import os
import re
import shlex
import shutil
import subprocess
import sys

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


def right(x, dy):
    return kernel(x, dy).astype(x.dtype)


def failing():
    """In another process."""
    raise convgrad.Error("the message", 3)


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
    assert str(verdict).startswith("MATCH: dw against") and "--json" not in str(verdict)
    assert verdict.report["compare"]["count"] == golden.size
    convgrad.testing.assert_filter_gradient(x, dy, golden, **LAYER)
    assert convgrad.verify(x, dy, golden, max_ulp=1, **LAYER).score is None
    assert convgrad.verify(x, dy, golden, golden=golden, **LAYER)
    assert not convgrad.verify(x, dy, golden, golden=2 * golden, **LAYER)
    assert convgrad.verify(x, dy, golden + 1, accumulated_on=np.ones_like(golden), **LAYER)
    tried = convgrad.verify_function(kernel, LINE, dtypes=("float32", "float16->float32"))
    assert len(tried) == 10 and str(tried).startswith("10 of 10 kinds of data match\nconv2d float32 NHWC n4 h10 w9 c6 k8 ")


def test_taps_follow_from_the_gradient(tensors):
    x, dy, golden = tensors
    convgrad.testing.assert_filter_gradient(x, dy, golden, op="conv2d", padding=1)


def test_the_next_step_is_a_keyword(tensors):
    x, dy, dw = tensors
    rounded = np.float32(np.float16(dw))
    verdict = convgrad.verify(x, dy, rounded, **LAYER)
    assert "\nnext: accept result_precision if the kernel does so on purpose\n" in str(verdict)
    assert convgrad.verify(x, dy, rounded, accept="result_precision", **LAYER)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_explained(tensors, tmp_path, name):
    fault, wrong = WRONG[name]
    x, dy, _ = tensors
    with pytest.raises(AssertionError, match="^MISMATCH: [a-z].*; dw against") as raised:
        convgrad.testing.assert_filter_gradient(x, dy, wrong(x, dy), save=tmp_path / "kept", **LAYER)
    lines = str(raised.value).splitlines()
    assert lines[1].startswith("diagnosis: the result")
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == ["command.sh", "dw.npy", "dy.npy", "x.npy"]
    shell, *command = shlex.split(lines[-1].partition("repeat: ")[2])
    assert shell == "sh"    # which the barest systems lack
    again = subprocess.run([shutil.which(shell) or "bash", *command], cwd="/", env={**os.environ, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert again.returncode == 1 and again.stdout.splitlines()[0].replace("dw.npy", "dw") == lines[0]
    verdict = convgrad.verify(x, dy, wrong(x, dy), **LAYER)
    assert not verdict and verdict.reason == "elements" and verdict.score > 1 and fault in " ".join(verdict.faults)
    assert repr(verdict) == f"<convgrad.Verdict {lines[0]}>" and html.escape(lines[1]) in verdict._repr_html_()
    assert "repeat: the same call with save=FOLDER" in str(verdict)
    with pytest.raises(AssertionError, match=r"^MISMATCH: .* \(conv2d float32 .* pad_same, normal data\)\n") as raised:
        convgrad.verify_function(wrong, LINE, slack=2)
    call = next(line for line in str(raised.value).splitlines() if line.startswith("repeat: ")).partition(": ")[2]
    with pytest.raises(AssertionError, match="^MISMATCH") as repeated:
        eval(call, {"convgrad": convgrad, "f": wrong})
    assert str(repeated.value).splitlines()[0] == str(raised.value).splitlines()[0]


def test_orders_of_arguments(tensors):
    x, dy, dw = tensors
    with pytest.warns(DeprecationWarning, match=r"is now assert_filter_gradient\(x, dy, dw\)"):
        convgrad.testing.assert_filter_gradient(dw, x, dy, **LAYER)
    first = [np.moveaxis(a, 3, 1) for a in (x, dy)]
    with pytest.warns(DeprecationWarning):
        convgrad.testing.assert_filter_gradient(dw.transpose(3, 2, 0, 1), *first, data_format="NCHW", filter_format="OIHW", **LAYER)
    line = "conv2d NCHW n3 h9 w9 c5 k7 r3 s3 pad_same"    # a wrong layout would take it for the old order
    convgrad.testing.assert_filter_gradient(*convgrad.generate(problem=line), problem=line)


def test_pytest_shows_the_test_alone(tmp_path):
    (tmp_path / "test_it.py").write_text(f"""
import convgrad, numpy as np
def test():
    convgrad.verify_function(lambda x, dy: np.ones((3, 3, 6, 8), "f4"), {LINE!r})
def test_assert():
    assert convgrad.verify(None, 1, 2)
""")
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tmp_path], capture_output=True, text=True, check=False)
    assert "_calls.py" not in done.stdout and "_keywords.py" not in done.stdout and "2 failed" in done.stdout, done.stdout
    assert "Error: x is None: was backward() called?" in done.stdout


def test_errors_leave_pools_alone():
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        for _ in range(2):
            with pytest.raises(convgrad.Error, match="^the message$") as raised:
                pool.submit(failing).result()
            assert raised.value.status == 3


def test_runs_of_one_kernel(tensors):
    x, dy, dw = tensors
    other = dw.copy()
    other[0, 0, 0, 0] *= 1.5
    assert "runs: 2 results, every bit equal" in str(convgrad.verify(x, dy, (dw, dw), **LAYER))
    assert not convgrad.verify(x, dy, [dw, other], **LAYER)
    assert convgrad.verify(x, dy, dw.tolist(), **LAYER, out_dtype="float64").report["compare"]["dtype"] == "float64"    # no runs
    with pytest.raises(convgrad.Error, match="^dw is an empty list"):
        convgrad.verify(x, dy, [], **LAYER)


def test_functions_get_layouts_and_kinds_of_data():
    seen = []

    def function(x, dy, layout):
        seen.append((layout, x.shape, x.dtype.name, len(np.unique(x))))
        return convgrad.filter_gradient(x, dy, data_format=layout, **LAYER)

    convgrad.verify_function(function, {"one": LINE, "two": LINE + " NHWC"}, dtypes=["float32", "float64"], data=["normal", "constant"],
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

    with pytest.raises(AssertionError, match="^the function changed x and dy, which it may only read .*\n5 of 5 kinds of data fail\n"):
        convgrad.verify_function(zeroing, LINE)
    assert set(np.unique(seen[-1])) == {-1.5, 1.5} and np.all(seen[-1] == seen[-1][..., :1])
    with pytest.raises(AssertionError, match="^MISMATCH: nothing was tested"):
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
    assert lines[0].startswith("MISMATCH: dw is float16, expected float32; its numbers match"), lines[0]
    assert sum(line.startswith("MISMATCH") for line in lines) == 4
    assert lines[-1].endswith("(conv2d float16->float32 NHWC n4 h10 w9 c6 k8 r3 s3 pad_same, wide data)")
    with pytest.raises(AssertionError, match="^MISMATCH: dw is float32, expected float16; its numbers match"):
        convgrad.verify_function(kernel, LINE, "float16", "integers")    # wider than the problem's
    convgrad.verify_function(right, LINE, ["float64", np.float16], ["integers"], save=tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("line", ["mb2ic6ih9oc8oh9kh3ph1", "conv -n 2 -c 6 -H 9 -W 9 -k 8 -y 3 -x 3 -p 1 -q 1",
                                  "convfp16 -n 2 -c 6 -H 9 -W 9 -k 8 -y 3 -x 3 -p 1 -q 1", LINE.replace("conv2d", "conv2d float64")])
def test_lines_of_all_kinds(line):
    seen = []

    def function(x, dy):
        seen.append(x.dtype)
        if line.startswith(("conv ", "convfp16")):    # of MIOpen, in NCHW
            return right(np.moveaxis(x, 1, 3), np.moveaxis(dy, 1, 3)).transpose(3, 2, 0, 1)
        return right(x, dy)

    convgrad.verify_function(function, line, data="integers")
    assert seen == [{"conv2d": "float64", "convfp16": "float16"}.get(line.split()[0], "float32")]


def test_what_verify_function_refuses():
    for keywords, said in (({"data": ["gauss"]}, "^data: 'gauss' is unknown, expected normal, relu, wide"),
                           ({"dtypes": ["float31"]}, "^dtypes: 'float31' is unknown"), ({"dtypes": [3.5]}, "^3.5 is no dtype")):
        with pytest.raises(convgrad.Error, match=said):
            convgrad.verify_function(kernel, LINE, **keywords)
    for problem, function in (([], kernel), (kernel, LINE)):
        with pytest.raises(convgrad.Error, match="^problem is .*, expected a line such as 'conv2d"):
            convgrad.verify_function(function, problem)
    with pytest.raises(convgrad.Error, match="^dtypes: bfloat16 takes ml_dtypes"), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ml_dtypes", None)
        convgrad.verify_function(kernel, LINE, "bfloat16")


def test_what_a_function_raises_is_a_failure_of_that_data():
    def function(x, dy):
        if (x == 1.5).all():
            raise ValueError("no constants")
        return kernel(x, dy) if (np.rint(x) == x).all() else None

    with pytest.raises(AssertionError, match="the function returned None, expected the gradient .*normal data") as raised:
        convgrad.verify_function(function, LINE)
    assert "\n4 of 5 kinds of data fail\n" in str(raised.value) and isinstance(raised.value.__cause__, ValueError)
    for wrong, said in ((lambda dw: dw[0], "dw: shape (3, 6, 8), expected (3, 3, 6, 8)"), (lambda dw: (dw, None), "the function returned tuple")):
        with pytest.raises(AssertionError, match=f"^{re.escape(said)}.* \\(conv2d .*, normal data\\)"):
            convgrad.verify_function(lambda x, dy, wrong=wrong: wrong(kernel(x, dy)), LINE)
    assert re.search(r"\nthe function raised ValueError: no constants \(conv2d .*, constant data\)$", str(raised.value))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn*float8_e5m2", "float8_e5m2fnuz"])
def test_functions_of_other_dtypes(dtype):
    pytest.importorskip("ml_dtypes")
    convgrad.verify_function(kernel, LINE, dtypes=[f"{dtype}->float32"], data=["normal", "integers"])
    if dtype == "bfloat16":
        convgrad.verify_function(right, LINE, dtypes=[__import__("ml_dtypes").bfloat16], data=["integers"])


def test_no_verdict_is_an_error(tensors):
    x, dy, dw = tensors
    with pytest.raises(convgrad.Error, match="^dy: axis 1") as raised:
        convgrad.verify(x, dy, dw, strides=2, **LAYER)
    assert raised.value.status == 3
    for function, flag in ((convgrad.verify, "result"), (convgrad.generate, "output")):
        with pytest.raises(TypeError, match=flag):
            function(*((x, dy, dw) if flag == "result" else ()), **{flag: "dw.npy"})


def test_words_and_values(tensors):
    x, dy, dw = tensors
    assert convgrad.verify(x, dy, dw, op="conv2d", kernel_size=3, stride=1, dilation=(1, 1), padding=1, groups=1, data_format="channels_last")
    with pytest.raises(TypeError, match="^stride and strides are both given"):
        convgrad.verify(x, dy, dw, stride=1, strides=1, **LAYER)
    assert "diagnosis" not in str(convgrad.verify(x, dy, dw[::-1], diagnosis=False, use_cudnn_on_gpu=False, **LAYER))
    assert "diagnosis" in str(convgrad.verify(x, dy, dw[::-1], diagnosis=True, **LAYER))


@pytest.mark.parametrize("name", ["x", "dy", "dw"])
def test_what_is_no_array(tensors, name):
    class Sparse:  # as scipy's, which numpy takes for an object
        pass

    ragged = [[1.0], [1.0, 2.0]]
    for wrong, said in ((None, r" is None: was backward\(\) called\?$"), (Sparse(), " is no array of numbers, but of objects"),
                        (ragged, " is no array of numbers"), (np.array([1, None]), ".*objects"),
                        (np.ma.masked_array(tensors[0]), rf" is a masked array: give {name}.filled\(0\) or {name}.data$")):
        arrays = {**dict(zip(("x", "dy", "dw"), tensors)), name: wrong}
        with pytest.raises(convgrad.Error, match=f"^{name}{said}"):
            convgrad.verify(**arrays, **LAYER)


def test_pictures(tensors):
    pytest.importorskip("matplotlib")
    x, dy, dw = tensors
    wrong = dw.copy()
    wrong[0, 1] *= 1.001
    for array in (dw, wrong):
        picture = convgrad.verify(x, dy, array, **LAYER).plot()
        assert picture.axes[1].get_ylabel() == "|got - want| / allowed" and "below it is blue" in picture.axes[0].get_title("left")
        assert (np.nanmax(picture.axes[0].images[0].get_array()) > 0) == (array is wrong)
    assert convgrad.verify(x, dy, wrong, rtol=1e-4, **LAYER).plot().axes[1].get_ylabel() == "|got - want|"
    assert convgrad.plot.diff(wrong - dw, allowed=1e-3).axes[1].get_ylabel() == "|got - want| / allowed"
    with pytest.raises(convgrad.Error, match="^there is no picture of several results"):
        convgrad.verify(x, dy, [dw, dw], **LAYER).plot()


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
    convgrad.testing.assert_filter_gradient(first, dy.permute(0, 3, 1, 2), dw, **flags)
    assert convgrad.verify(first, dy.permute(0, 3, 1, 2), dw, **{**flags, "out_dtype": torch.float32})
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
