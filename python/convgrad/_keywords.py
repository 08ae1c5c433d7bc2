"""Written by scripts/make_keywords.py from the options of the program: change those, or it."""
from __future__ import annotations

from . import _calls

TYPE_CHECKING = False  # typing takes time to import, which the command of a wheel begins with
if TYPE_CHECKING:
    import os
    from typing import Any, Callable, Iterable, Literal, Sequence, Union

    import numpy as np

    from . import Verdict
    Array = Any  # of numpy, PyTorch, JAX, CuPy or TensorFlow, or one that has DLPack
    DType = Any  # a name, or what numpy.dtype() takes
    Numbers = Union[int, str, Sequence[Any], "NDArray"]
    Path = Union[str, "os.PathLike[str]"]
    NDArray = np.ndarray[Any, Any]

__tracebackhide__ = True  # pytest shows the test, not what follows


def filter_gradient(
    x: Array, dy: Array, *, layer: Any = None, op: str | None = None, filter_sizes: Numbers | None = None,
    kernel: Numbers | None = None, kernel_size: Numbers | None = None, filter_like: Array | None = None, strides: Numbers | None = None,
    stride: Numbers | None = None, padding: Numbers | None = None, explicit_paddings: Numbers | None = None,
    dilations: Numbers | None = None, dilation: Numbers | None = None, data_format: str | None = None, groups: int | None = None,
    filter_format: str | None = None, out_dtype: DType | None = None, use_cudnn_on_gpu: bool | None = None, problem: str | None = None,
    input_dtype: DType | None = None, out_backprop_dtype: DType | None = None,
    backend: Literal["auto", "cpu", "cuda", "reference"] | None = None, device: int | None = None, threads: int | None = None,
    algorithm: str | None = None, memory_limit: int | str | None = None, spot_check: int | None = None) -> NDArray:
    """The gradient of a convolution with respect to its filter, as a numpy array. Raises convgrad.Error.

    x (input) and dy (out_backprop): arrays in the layout that data_format names, NHWC or NDHWC without. op and one keyword that tells
        the filter's shape (kernel, filter_sizes, filter_like), or layer, are needed:

            filter_gradient(x, dy, op="conv2d", kernel=3, strides=(2, 1), padding="same", filter_format="OIHW")
    layer: a Conv1d, Conv2d, Conv3d or ConvTranspose of PyTorch, or a convolution of Keras, instead of op, kernel, strides, padding,
        dilations and groups, and of the formats. x is what it reads and dy the gradient of what it writes, of transposed ones, too.

    A bfloat16 gradient is of ml_dtypes' type where that is installed, else raw 16 bits ("V2").

    op: conv2d, depthwise, conv3d or conv1d, or what TensorFlow or PyTorch calls it
    filter_sizes: shape of the gradient in TensorFlow's order, as numbers or an integer .npy
    kernel, kernel_size: taps alone; the channels follow from the tensors
    filter_like: a filter .npy whose shape is the gradient's
    strides, stride: 1 by default
    padding: SAME, VALID, EXPLICIT, or numbers: 1 or 1,2 as PyTorch has them, or pairs
    explicit_paddings: (before, after) for each spatial axis, or for every axis in data-format order
    dilations, dilation: 1 by default
    data_format: NHWC (default) or NCHW; NDHWC or NCDHW; NWC or NCW; or channels_last, channels_first
    groups: checked against the shapes; needed only with kernel
    filter_format: order of the gradient's axes: HWIO (default), OIHW or OHWI; D before H in 3-D, no H in 1-D; or RSCK, KCRS, KRSC
    out_dtype: dtype of the gradient: float16, bfloat16, float32 or float64; default the inputs', if alike
    use_cudnn_on_gpu: accepted for TensorFlow's sake; has no effect
    problem: all in a line: conv2d n8 h56 w56 c64 k128 r3 s3 stride2 pad_same, or benchdnn's or MIOpenDriver's
    input_dtype: of x, where its file holds uint16 or raw bytes instead: bfloat16, float8_e4m3fn, ...
    out_backprop_dtype: the same for dy
    backend: auto decides by the problem and the machine
    device: CUDA device number
    threads: CPU threads; 0, the default, is all
    algorithm: a row of --list-algorithms, or auto
    memory_limit: memory for sums and blocks, e.g. 512MiB
    spot_check: check N elements of the gradient, and its corners, before it is written; 16 by default on a device, else 0
    """
    return _calls.filter_gradient(**locals())


def verify(
    x: Array, dy: Array, dw: Array | Sequence[Array], *, layer: Any = None, save: Path | None = None, op: str | None = None,
    filter_sizes: Numbers | None = None, kernel: Numbers | None = None, kernel_size: Numbers | None = None,
    filter_like: Array | None = None, strides: Numbers | None = None, stride: Numbers | None = None, padding: Numbers | None = None,
    explicit_paddings: Numbers | None = None, dilations: Numbers | None = None, dilation: Numbers | None = None,
    data_format: str | None = None, groups: int | None = None, filter_format: str | None = None, out_dtype: DType | None = None,
    use_cudnn_on_gpu: bool | None = None, problem: str | None = None, input_dtype: DType | None = None,
    out_backprop_dtype: DType | None = None, backend: Literal["auto", "cpu", "cuda", "reference"] | None = None,
    device: int | None = None, threads: int | None = None, algorithm: str | None = None, memory_limit: int | str | None = None,
    golden: Array | None = None, update_golden: bool | None = None, signs: int | None = None, accumulated_on: Array | None = None,
    alpha: float | None = None, beta: float | None = None, criterion: Literal["rounding", "bound"] | None = None,
    slack: float | None = None, longest_sum: int | None = None, adders: Literal["tensor-core", "ieee"] | None = None,
    order: Literal["any", "natural"] | None = None, rtol: float | None = None, atol: float | None = None, max_ulp: int | None = None,
    bitwise: bool | None = None, accept: str | Sequence[str] | None = None, fail_vacuous: bool | None = None,
    fail_assumed: bool | None = None, sample: int | None = None, seed: int | None = None,
    diagnosis: Literal["off", "quick", "full"] | bool | None = None, save_diff: Path | None = None, verbose: bool | None = None,
    show: int | None = None, tag: str | None = None) -> Verdict:
    """Judges dw, a gradient that somebody computed of x and dy, against the reference. Raises convgrad.Error where there is no verdict.

    x, dy: as in filter_gradient().
    dw: an array, or a list of those that several runs of one kernel gave.
    save: a folder that gets x, dy, dw and command.sh, which repeats the verdict, on a mismatch.
    layer: a Conv1d, Conv2d, Conv3d or ConvTranspose of PyTorch, or a convolution of Keras, instead of op, kernel, strides, padding,
        dilations and groups, and of the formats. x is what it reads and dy the gradient of what it writes, of transposed ones, too.

    op: conv2d, depthwise, conv3d or conv1d, or what TensorFlow or PyTorch calls it
    filter_sizes: shape of the gradient in TensorFlow's order, as numbers or an integer .npy
    kernel, kernel_size: taps alone; the channels follow from the tensors
    filter_like: a filter .npy whose shape is the gradient's
    strides, stride: 1 by default
    padding: SAME, VALID, EXPLICIT, or numbers: 1 or 1,2 as PyTorch has them, or pairs
    explicit_paddings: (before, after) for each spatial axis, or for every axis in data-format order
    dilations, dilation: 1 by default
    data_format: NHWC (default) or NCHW; NDHWC or NCDHW; NWC or NCW; or channels_last, channels_first
    groups: checked against the shapes; needed only with kernel
    filter_format: order of the gradient's axes: HWIO (default), OIHW or OHWI; D before H in 3-D, no H in 1-D; or RSCK, KCRS, KRSC
    out_dtype: dtype of the gradient: float16, bfloat16, float32 or float64; default the inputs', if alike
    use_cudnn_on_gpu: accepted for TensorFlow's sake; has no effect
    problem: all in a line: conv2d n8 h56 w56 c64 k128 r3 s3 stride2 pad_same, or benchdnn's or MIOpenDriver's
    input_dtype: of x, where its file holds uint16 or raw bytes instead: bfloat16, float8_e4m3fn, ...
    out_backprop_dtype: the same for dy
    backend: auto decides by the problem and the machine
    device: CUDA device number
    threads: CPU threads; 0, the default, is all
    algorithm: a row of --list-algorithms, or auto
    memory_limit: memory for sums and blocks, e.g. 512MiB
    golden: judge this gradient too; with a tolerance: compare with it, not with the reference
    update_golden: compare with the reference, and on a match write the gradient to golden
    signs: the kernel ran on the dy of generate signs S: no order but n, p, q, and slack 1
    accumulated_on: what the result's memory held: beta*FILE + alpha*gradient is expected
    alpha: what the gradient was multiplied by; 1 by default
    beta: the same for accumulated_on
    criterion: errors as rounding makes them, the default, or the worst case
    slack: of criterion rounding: so many times the errors of a right sum pass; 3 by default
    longest_sum: the result was summed in runs of at most N pixels, so smaller errors are expected of it
    adders: whether adders may have cut digits off, the default of 16-bit data, or only rounded
    order: errors of sums in any order, the default, or in n, z, p, q alone
    rtol: pass if |got-want| <= atol + rtol*|want|
    atol: see rtol; the one that is not given is 0
    max_ulp: pass if at most N steps between numbers of the dtype apart
    bitwise: pass if every bit is equal (any NaN equals any NaN)
    accept: match what the diagnosis explains by these faults, such as low_precision_sums
    fail_vacuous: status 1 where the data can show no fault, such as zeros
    fail_assumed: status 1 where it matches only if it sums in another order than n, z, p, q
    sample: compare N elements, chosen by the seed, and all corners; each costs N*P*Q
    seed: of sample; 1 by default
    diagnosis: look for the fault that explains a mismatch: for some seconds, the default, or to the end
    save_diff: got - want as .npy, 0 where they are equal: float32, or float64 if one of them is
    verbose: plan and timings on stderr
    show: list the N elements that are most off
    tag: kept with the report; again for more
    """
    return _calls.verify(**locals())


def assert_filter_gradient(
    x: Array, dy: Array, dw: Array | Sequence[Array], *, layer: Any = None, save: Path | None = None, op: str | None = None,
    filter_sizes: Numbers | None = None, kernel: Numbers | None = None, kernel_size: Numbers | None = None,
    filter_like: Array | None = None, strides: Numbers | None = None, stride: Numbers | None = None, padding: Numbers | None = None,
    explicit_paddings: Numbers | None = None, dilations: Numbers | None = None, dilation: Numbers | None = None,
    data_format: str | None = None, groups: int | None = None, filter_format: str | None = None, out_dtype: DType | None = None,
    use_cudnn_on_gpu: bool | None = None, problem: str | None = None, input_dtype: DType | None = None,
    out_backprop_dtype: DType | None = None, backend: Literal["auto", "cpu", "cuda", "reference"] | None = None,
    device: int | None = None, threads: int | None = None, algorithm: str | None = None, memory_limit: int | str | None = None,
    golden: Array | None = None, update_golden: bool | None = None, signs: int | None = None, accumulated_on: Array | None = None,
    alpha: float | None = None, beta: float | None = None, criterion: Literal["rounding", "bound"] | None = None,
    slack: float | None = None, longest_sum: int | None = None, adders: Literal["tensor-core", "ieee"] | None = None,
    order: Literal["any", "natural"] | None = None, rtol: float | None = None, atol: float | None = None, max_ulp: int | None = None,
    bitwise: bool | None = None, accept: str | Sequence[str] | None = None, fail_vacuous: bool | None = None,
    fail_assumed: bool | None = None, sample: int | None = None, seed: int | None = None,
    diagnosis: Literal["off", "quick", "full"] | bool | None = None, save_diff: Path | None = None, verbose: bool | None = None,
    show: int | None = None, tag: str | None = None) -> None:
    """Raises an AssertionError with the verdict if dw is not the gradient of x and dy: see verify(), whose keywords it takes.

    The order of earlier versions, dw, x, dy, is taken where only that fits: x and dy have as many images, and dw has the channels of
    both or of one.
    """
    return _calls.assert_filter_gradient(**locals())


def generate(
    *, op: str | None = None, shape: Numbers | None = None, input_shape: Numbers | None = None, out_channels: int | None = None,
    multiplier: int | None = None, problem: str | None = None, dtype: DType | None = None,
    dist: Literal["int", "normal", "uniform", "adversarial"] | None = None, seed: int | None = None, nonfinite: bool | None = None,
    filter_sizes: Numbers | None = None, kernel: Numbers | None = None, kernel_size: Numbers | None = None,
    filter_like: Array | None = None, strides: Numbers | None = None, stride: Numbers | None = None, padding: Numbers | None = None,
    explicit_paddings: Numbers | None = None, dilations: Numbers | None = None, dilation: Numbers | None = None,
    data_format: str | None = None, groups: int | None = None, filter_format: str | None = None, out_dtype: DType | None = None,
    use_cudnn_on_gpu: bool | None = None, threads: int | None = None, memory_limit: int | str | None = None) -> tuple[NDArray, NDArray, NDArray]:
    """(x, dy, dw) that `convgrad generate` makes, the same for a seed everywhere; dw is the gradient as its dtype rounds it.

        generate(problem="conv2d n2 h9 w9 c8 k16 r3 s3 pad_same", dist="normal", seed=3)

    op: conv2d, depthwise, conv3d or conv1d, or TensorFlow's op name
    shape, input_shape: shape of x in data-format order
    out_channels: channels of dy, with kernel
    multiplier: the same for depthwise: K = C*M; 1 by default
    problem: all in a line: conv2d n8 h56 w56 c64 k128 r3 s3 stride2 pad_same, or benchdnn's or MIOpenDriver's
    dtype: float16, bfloat16, float32 (default) or float64; of --from: as --out-backprop-dtype
    dist: distribution of the elements; int, the default, has exact gradients
    seed: the same files for the same seed, anywhere; 1 by default
    nonfinite: a NaN and an infinity in each tensor
    filter_sizes: shape of the gradient in TensorFlow's order, as numbers or an integer .npy
    kernel, kernel_size: taps alone; the channels follow from the tensors
    filter_like: a filter .npy whose shape is the gradient's
    strides, stride: 1 by default
    padding: SAME, VALID, EXPLICIT, or numbers: 1 or 1,2 as PyTorch has them, or pairs
    explicit_paddings: (before, after) for each spatial axis, or for every axis in data-format order
    dilations, dilation: 1 by default
    data_format: NHWC (default) or NCHW; NDHWC or NCDHW; NWC or NCW; or channels_last, channels_first
    groups: checked against the shapes; needed only with kernel
    filter_format: order of the gradient's axes: HWIO (default), OIHW or OHWI; D before H in 3-D, no H in 1-D; or RSCK, KCRS, KRSC
    out_dtype: dtype of the gradient: float16, bfloat16, float32 or float64; default the inputs', if alike
    use_cudnn_on_gpu: accepted for TensorFlow's sake; has no effect
    threads: CPU threads; 0, the default, is all
    memory_limit: memory for sums and blocks, e.g. 512MiB
    """
    return _calls.generate(**locals())


def verify_function(
    function: Callable[..., Array], problem: str | Iterable[str] | dict[str, str], dtypes: Any = None,
    data: str | Iterable[str] | None = None, layouts: str | Iterable[str] | None = None, seed: int = 1, *, save: Path | None = None,
    backend: Literal["auto", "cpu", "cuda", "reference"] | None = None, device: int | None = None, threads: int | None = None,
    algorithm: str | None = None, memory_limit: int | str | None = None, alpha: float | None = None,
    criterion: Literal["rounding", "bound"] | None = None, slack: float | None = None, longest_sum: int | None = None,
    adders: Literal["tensor-core", "ieee"] | None = None, order: Literal["any", "natural"] | None = None, rtol: float | None = None,
    atol: float | None = None, max_ulp: int | None = None, bitwise: bool | None = None, accept: str | Sequence[str] | None = None,
    fail_assumed: bool | None = None, sample: int | None = None, diagnosis: Literal["off", "quick", "full"] | bool | None = None,
    verbose: bool | None = None, show: int | None = None, tag: str | None = None) -> _calls.Tried:
    """Asserts that function(x, dy) returns the gradient, of its dtype, of each kind of data, and leaves its arguments as they are.

    It gets copies, and a dy with random signs, by which all orders of summation are alike: see `convgrad verify --signs`. Returns what was
    tried, which print() lists. The AssertionError has the first verdict that fails, and a line for each other.

    problem: a line such as "conv2d n2 h9 w9 c8 k16 r3 s3 pad_same", or one of benchdnn or MIOpenDriver, or several.
    dtypes: instead of the line's: "bfloat16", numpy.float16, "float16->float32", or several; those that numpy lacks take ml_dtypes.
    data: some of the kinds "normal", "relu" (half of it zeros), "wide" (of 12 powers of two), "integers" (sums are exact) and "constant";
        all without.
    layouts: data formats to try, each in place of the line's; the function gets it as its third argument.
    save: a folder for x, dy and dw of the first that fails.
    Further keywords are those of verify().
    """
    return _calls.verify_function(**locals())
