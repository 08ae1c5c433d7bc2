#!/usr/bin/env python3
"""Writes testdata/types: gradients of 8-bit floats and of tensors of two dtypes, listed in types.jsonl.

    python -m venv venv && venv/bin/pip install ml_dtypes safetensors
    venv/bin/python scripts/make_type_testdata.py testdata

The golden arrays are the definition's: ml_dtypes' values in float64, each tap's products added up, rounded once to the
dtype that convgrad writes. The tensors lie in .npy as ml_dtypes writes it, in .safetensors and in raw files.
"""
import argparse
import itertools
import json
import pathlib
import shutil
import zlib

import ml_dtypes
import numpy as np

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
SAFETENSORS = dict(zip(FLOAT8, ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")),
                   bfloat16="BF16", float16="F16", float32="F32", float64="F64")
TAPS = 3  # of each axis, with padding SAME
# By turns: spatial extents of one image with 4 channels, output channels, format.
OPS = {"conv2d": ((8, 8), 4, "NHWC"), "depthwise": ((8, 8), 8, "NHWC"), "conv3d": ((4, 4, 4), 4, "NDHWC"),
       "conv1d": ((64,), 4, "NWC")}


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def common(a, b):
    """What the products are computed in: the narrowest of four that holds both."""
    if a in FLOAT8 and b in FLOAT8:
        return "bfloat16"
    if a in FLOAT8 or a == b:
        return b
    if b in FLOAT8:
        return a
    return "float64" if "float64" in (a, b) else "float32"


def written(a, b):
    """The gradient's dtype."""
    if common(a, b) == "float64":
        return "float64"
    return a if a == b and a not in FLOAT8 else "float32"


def definition(op, x, dy):
    spatial, channels = x.shape[1:-1], x.shape[-1]
    padded = np.pad(x.astype(np.float64), ((0, 0), *((1, 1),) * len(spatial), (0, 0)))
    wide = dy.astype(np.float64).reshape(-1, *((channels, dy.shape[-1] // channels) if op == "depthwise"
                                               else dy.shape[-1:]))
    dw = []
    for tap in itertools.product(range(TAPS), repeat=len(spatial)):
        seen = padded[(slice(None), *(slice(t, t + n) for t, n in zip(tap, spatial)))].reshape(-1, channels)
        dw.append(np.einsum("pc,pcm->cm" if op == "depthwise" else "pc,pk->ck", seen, wide))
    return np.reshape(dw, (*(TAPS,) * len(spatial), *dw[0].shape))


def every_number(rng, dtype, shape):
    """All finite numbers of an 8-bit float, in any order, again and again; normally distributed ones of others."""
    if dtype.itemsize > 1:
        return rng.standard_normal(shape).astype(dtype)
    numbers = np.arange(256, dtype=np.uint8).view(dtype)
    numbers = numbers[np.isfinite(numbers.astype(np.float32))]
    count = int(np.prod(shape))
    return rng.permutation(np.resize(numbers.view(np.uint8), count)).view(dtype).reshape(shape)


def save(folder, name, form, array, dtype):
    """Writes the array and returns the fields of a job that name it; form is npy, safetensors or raw."""
    if form == "npy":
        np.save(folder / f"{name}.npy", array)
        return f"types/{name}.npy"
    if form == "raw":
        array.tofile(folder / f"{name}.bin")
        return f"types/{name}.bin:{dtype}[{','.join(map(str, array.shape))}]"
    entry = {"dtype": SAFETENSORS[dtype], "shape": list(array.shape), "data_offsets": [0, array.nbytes]}
    header = json.dumps({"t": entry}).encode()
    header += b" " * (-len(header) % 8)
    (folder / f"{name}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + array.tobytes())
    return f"types/{name}.safetensors:t"


def job_of(folder, index, a, b):
    name = f"{a}_{b}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    op = list(OPS)[index % len(OPS)]
    spatial, out, data_format = OPS[op]
    x = every_number(rng, dtype_of(a), (1, *spatial, 4))
    dy = every_number(rng, dtype_of(b), (1, *spatial, out))
    forms = ("npy", "safetensors", "raw")
    job = {"name": name, "op": op,
           "input": save(folder, f"{name}.x", forms[index % 3], x, a),
           "out_backprop": save(folder, f"{name}.dy", forms[index // 3 % 3], dy, b)}
    for field, dtype in (("input", a), ("out_backprop", b)):
        # Void bytes do not say which float they are.
        if job[field].endswith(".npy") and dtype_of(dtype).str.endswith("V1"):
            job[f"{field}_dtype"] = dtype
    dw = definition(op, x, dy).astype(dtype_of(written(a, b)))
    np.save(folder / f"{name}.dw.npy", dw)
    ones = [1] * x.ndim
    return job | {"golden": f"types/{name}.dw.npy", "filter_sizes": list(dw.shape), "strides": ones,
                  "padding": "SAME", "explicit_paddings": [], "dilations": ones,
                  "data_format": data_format, "dtype": common(a, b), "bitwise": False}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="testdata", type=pathlib.Path)
    testdata = parser.parse_args().folder
    folder = testdata / "types"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wide = ("bfloat16", "float16", "float32", "float64")
    pairs = [*itertools.product(FLOAT8, repeat=2), *zip(FLOAT8, wide), *zip(wide, reversed(FLOAT8)),
             *((a, b) for a, b in itertools.permutations(wide, 2))]
    jobs = [job_of(folder, index, a, b) for index, (a, b) in enumerate(pairs)]
    (testdata / "types.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    print(f"{len(jobs)} problems")


if __name__ == "__main__":
    main()
