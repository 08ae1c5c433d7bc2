#!/usr/bin/env python3
"""Checks testdata/ without TensorFlow: every golden gradient is derived again from x and dy, in float64.

    python3 scripts/check_testdata.py testdata

Needs Python 3.11 and numpy 1.24. Shares no code with make_testdata.py: this one goes pixel by pixel over dy,
that one tap by tap, and the .npy headers are read here by hand, because numpy forgets the byte order of '>V2'.
"""
import argparse
import ast
import collections
import hashlib
import json
import pathlib
import sys

import numpy as np

SIZE_LIMIT = 5 << 19
DTYPES = {"float16": "f2", "bfloat16": "V2", "float32": "f4", "float64": "f8"}
UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
SMALLEST_SUBNORMAL_EXPONENT = {"float16": -24, "bfloat16": -133, "float32": -149, "float64": -1074}
LAYOUTS = {"conv2d": ("NHWC", "NCHW"), "depthwise": ("NHWC", "NCHW"), "conv3d": ("NDHWC", "NCDHW"),
           "conv1d": ("NWC", "NCW")}
FIELDS = {"name": str, "op": str, "input": str, "out_backprop": str, "golden": str, "filter_sizes": list,
          "strides": list, "padding": str, "explicit_paddings": list, "dilations": list, "data_format": str,
          "dtype": str, "bitwise": bool, "input_sha256": str, "out_backprop_sha256": str, "golden_sha256": str,
          "notes": dict}


class Bad(Exception):
    """Something is wrong with a case; the message says what."""


def require(condition, message):
    if not condition:
        raise Bad(message)


# ---- .npy ----------------------------------------------------------------------------------------

def read_npy(path):
    """Returns (array, header); bfloat16 comes as its bits in uint16. The header also gets the format's version."""
    content = path.read_bytes()
    require(content[:6] == b"\x93NUMPY" and content[6] in (1, 2, 3) and content[7] == 0, f"{path.name}: not .npy")
    prefix = 10 if content[6] == 1 else 12
    end = prefix + int.from_bytes(content[8:prefix], "little")
    header = ast.literal_eval(content[prefix:end].decode("utf-8" if content[6] == 3 else "latin-1"))
    require(set(header) == {"descr", "fortran_order", "shape"}, f"{path.name}: keys of the header")
    kind = np.dtype(header["descr"].replace("V2", "u2"))
    count = int(np.prod(header["shape"], dtype=np.int64))
    require(len(content) - end == count * kind.itemsize, f"{path.name}: wrong number of bytes for its shape")
    array = np.frombuffer(content, kind, offset=end)
    array = array.reshape(header["shape"], order="F" if header["fortran_order"] else "C")
    return array.astype(kind.newbyteorder("=")), header | {"version": content[6]}


def values_of(array, dtype):
    """float64 numbers, or long double for float64 data so that their sums are exact enough."""
    if dtype == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.longdouble if dtype == "float64" else np.float64)


def round_to(values, dtype):
    """To the nearest number of the dtype. Exact cases alone need it: there float64 to float32 rounds nothing."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype != "bfloat16":
            return values.astype(DTYPES[dtype]).astype(values.dtype)
        bits = values.astype(np.float32).view(np.uint32)
    nan = np.isnan(values)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(nan, np.nan, rounded)


# ---- The definition ------------------------------------------------------------------------------

def spatial_part(case, vector):
    return vector[1:-1] if case["data_format"].endswith("C") else vector[2:]


def geometry(case, extents):
    """For each axis: stride, dilation, padding in front, and the output's extent."""
    pairs = list(zip(case["explicit_paddings"][::2], case["explicit_paddings"][1::2]))
    strides, dilations = spatial_part(case, case["strides"]), spatial_part(case, case["dilations"])
    axes = []
    for axis, (extent, stride, dilation) in enumerate(zip(extents, strides, dilations)):
        span = (case["filter_sizes"][axis] - 1) * dilation + 1
        front, back = spatial_part(case, pairs)[axis] if case["padding"] == "EXPLICIT" else (0, 0)
        if case["padding"] == "SAME":
            out = (extent + stride - 1) // stride
            total = max((out - 1) * stride + span - extent, 0)
            front = total // 2
        else:
            out = (extent + front + back - span) // stride + 1
        axes.append((stride, dilation, front, out))
    return axes


def seen_by(tap, extent, stride, dilation, front, outputs):
    """The outputs from which a tap sees a row of x, and which row each sees."""
    rows = np.arange(outputs) * stride - front + tap * dilation
    inside = (rows >= 0) & (rows < extent)
    return np.flatnonzero(inside), rows[inside]


def filter_gradient(case, x, dy):
    """Returns dw, sum |x||dy| and the number of terms, all in TensorFlow's layout."""
    if not case["data_format"].endswith("C"):
        x, dy = np.moveaxis(x, 1, -1), np.moveaxis(dy, 1, -1)
    *kernel, per_group, out = case["filter_sizes"]
    extents, channels = x.shape[1:-1], x.shape[-1]
    axes = geometry(case, extents)
    if case["op"] == "depthwise":
        groups, wanted = max(channels, 1), channels * out
        require(per_group == channels, "channels of the filter")
    else:
        groups, wanted = channels // per_group if per_group else 1, out
        require(groups * per_group == channels and out % groups == 0, "groups do not divide the channels")
    require(dy.shape == (x.shape[0], *(a[3] for a in axes), wanted), f"out_backprop is {dy.shape}")
    x = x.reshape(*x.shape[:-1], groups, channels // groups)
    dy = dy.reshape(*dy.shape[:-1], groups, wanted // groups)
    sums = np.zeros((*kernel, channels // groups, groups, wanted // groups), x.dtype)
    magnitudes, terms = np.zeros_like(sums), np.zeros(sums.shape)
    for tap in np.ndindex(*kernel):
        outputs, rows = zip(*(seen_by(t, e, *a) for t, e, a in zip(tap, extents, axes)))
        count = x.shape[0] * int(np.prod([len(r) for r in rows]))
        seen = x[np.ix_(range(x.shape[0]), *rows)].reshape(count, *x.shape[-2:])
        pixels = dy[np.ix_(range(dy.shape[0]), *outputs)].reshape(count, *dy.shape[-2:])
        sums[tap] = np.einsum("ngc,ngk->cgk", seen, pixels)
        magnitudes[tap] = np.einsum("ngc,ngk->cgk", abs(seen), abs(pixels))
        terms[tap] = len(seen)
    return tuple(part.reshape(case["filter_sizes"]) for part in (sums, magnitudes, terms))


def allowed_error(dtype, expected, magnitudes, terms):
    accumulator = 2.0**-53 if dtype == "float64" else 2.0**-24
    tiny = np.ldexp(np.longdouble(0.5), SMALLEST_SUBNORMAL_EXPONENT[dtype])
    return UNIT_ROUNDOFF[dtype] * abs(expected) + 4 * np.sqrt(terms) * accumulator * magnitudes + tiny


def worst_ratio(dtype, got, expected, magnitudes, terms):
    """The largest error as a part of what is allowed; infinite where only one is NaN or infinite."""
    with np.errstate(all="ignore"):
        ratio = abs(got - expected) / allowed_error(dtype, expected, magnitudes, terms)
        rounded = round_to(expected, dtype)
    same = (got == rounded) | (np.isnan(got) & np.isnan(expected))
    ratio = np.where(same & ~np.isfinite(ratio), 0, np.where(np.isnan(ratio), np.inf, ratio))
    return float(ratio.max(initial=0))


# ---- The checks ----------------------------------------------------------------------------------

def check_fields(case):
    require(set(case) == set(FIELDS), f"fields {sorted(set(case) ^ set(FIELDS))} are missing or unknown")
    for field, kind in FIELDS.items():
        require(type(case[field]) is kind, f"{field} is no {kind.__name__}")
    require(case["op"] in LAYOUTS, "op")
    rank = len(LAYOUTS[case["op"]][0])
    require(case["data_format"] in LAYOUTS[case["op"]] and case["dtype"] in DTYPES, "data_format or dtype")
    require(case["padding"] in ("SAME", "VALID", "EXPLICIT"), "padding")
    require(set(case["notes"]) == {"oracle", "source"} and case["notes"]["source"] in ("real", "unit"), "notes")
    oracle = case["notes"]["oracle"]
    require(oracle == "float64 definition" or oracle.startswith("tensorflow "), "oracle")
    for field in ("filter_sizes", "strides", "dilations"):
        channels = 2 if field == "filter_sizes" else 0
        require(len(case[field]) == rank and all(type(v) is int and v >= (0 if i >= rank - channels else 1)
                                                 for i, v in enumerate(case[field])), field)
    channel = case["data_format"].index("C")
    require(all(case[field][axis] == 1 for field in ("strides", "dilations") for axis in (0, channel)), "strides")
    pads = case["explicit_paddings"]
    require(len(pads) == (2 * rank if case["padding"] == "EXPLICIT" else 0), "explicit_paddings")
    require(all(type(v) is int and v >= 0 for v in pads), "explicit_paddings")
    require(not pads or [pads[i] for i in (0, 1, 2 * channel, 2 * channel + 1)] == [0] * 4, "explicit_paddings")


def check_case(folder, case, headers):
    """Returns the worst ratio. Adds to `headers` what is unusual about the files."""
    check_fields(case)
    arrays = []
    for field in ("input", "out_backprop", "golden"):
        array, header = read_npy(folder / case[field])
        hashed = hashlib.sha256((folder / case[field]).read_bytes()).hexdigest()
        require(case[f"{field}_sha256"] == hashed, f"{field}_sha256 is not that of the file")
        require(header["descr"][1:] == DTYPES[case["dtype"]], f"{field} is {header['descr']}")
        headers.update([f"format {header['version']}", f"byte order {header['descr'][0]}",
                        "Fortran order" if header["fortran_order"] else "C order"])
        arrays.append(values_of(array, case["dtype"]))
    x, dy, golden = arrays
    expected = filter_gradient(case, x, dy)
    require(list(golden.shape) == case["filter_sizes"], f"golden is {golden.shape}")
    ratio = worst_ratio(case["dtype"], golden, *expected)
    require(ratio <= 1, f"golden is off by {ratio:.3g} times what is allowed")
    if case["bitwise"]:
        require(np.array_equal(golden, round_to(expected[0], case["dtype"])), "golden is not exact")
        require(not np.signbit(golden[golden == 0]).any(), "golden has negative zeros")
    return ratio


def check_whole(folder, cases, headers):
    require(len({case["name"] for case in cases}) == len(cases), "two cases have one name")
    size = sum(path.lstat().st_size for path in [folder, *folder.rglob("*")])
    require(size <= SIZE_LIMIT, f"{size} bytes in all, more than {SIZE_LIMIT}")
    listed = {case[field] for case in cases for field in ("input", "out_backprop", "golden")}
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*.npy")
             if path.parent.name not in ("types", "captured")}
    require(found == listed, f"listed and found differ in {sorted(found ^ listed)[:3]}")
    seen = {(case["op"], case["dtype"], case["data_format"], case["padding"]) for case in cases}
    wanted = {(op, dtype, layout, padding) for op, layouts in LAYOUTS.items() for layout in layouts
              for dtype in DTYPES for padding in ("SAME", "VALID", "EXPLICIT")}
    require(wanted <= seen, f"no case for {sorted(wanted - seen)[:3]}")
    unusual = {"format 1", "format 2", "format 3", "byte order <", "byte order >", "C order", "Fortran order"}
    require(unusual <= set(headers), f"no file with {sorted(unusual - set(headers))}")
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="testdata", type=pathlib.Path)
    folder = parser.parse_args().folder
    cases = [json.loads(line) for line in (folder / "golden.jsonl").read_text().splitlines()]
    headers, worst, failures = collections.Counter(), collections.defaultdict(float), 0
    for case in cases:
        try:
            ratio = check_case(folder, case, headers)
            worst[case["dtype"]] = max(worst[case["dtype"]], ratio)
        except (Bad, OSError, ValueError, SyntaxError, KeyError) as error:
            print(f"{case.get('name')}: {error}", file=sys.stderr)
            failures += 1
    try:
        size = check_whole(folder, cases, headers)
    except (Bad, KeyError) as error:
        sys.exit(f"check_testdata: {failures} of {len(cases)} cases failed, and: {error}")
    ratios = ", ".join(f"{dtype} {worst[dtype]:.2f}" for dtype in DTYPES)
    print(f"check_testdata: {len(cases) - failures} of {len(cases)} cases passed, {size / 2**20:.2f} MiB; "
          f"largest error as a part of the bound: {ratios}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
