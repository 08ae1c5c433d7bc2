#!/usr/bin/env python3
"""Writes testdata/: inputs, output gradients and filter gradients, with golden.jsonl as their list.

    python -m venv venv && venv/bin/pip install tensorflow-cpu==2.21 ml_dtypes scikit-image
    venv/bin/python scripts/make_testdata.py testdata

Two families. "real": a small network learns for a few steps to remove noise from photographs; what its
layers see going forward (x) and backward (dy) is stored. "unit": small integers, whose sums are exact.
The gradient is TensorFlow's own where its CPU op computes it; elsewhere it is definition() below, in float64,
rounded once. Wherever TensorFlow computes, the two are compared, and TensorFlow has to lie within the bound.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import collections
import dataclasses
import hashlib
import io
import itertools
import json
import pathlib
import pickle
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

import ml_dtypes
import numpy as np
import skimage
import skimage.data
import tensorflow as tf

SEED = 20240229
STEPS = 30
# As in mixed-precision training: keeps the gradients inside float16's range. A power of two, so nothing is rounded.
LOSS_SCALE = 2.0**12

DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
          "f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
DTYPE_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
DESCR = {"f16": "<f2", "bf16": "<V2", "f32": "<f4", "f64": "<f8"}
UNIT_ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
SMALLEST_SUBNORMAL_EXPONENT = {"f16": -24, "bf16": -133, "f32": -149, "f64": -1074}
TENSORFLOW_OPS = {"conv2d": "Conv2DBackpropFilter", "depthwise": "DepthwiseConv2dNativeBackpropFilter",
                  "conv3d": "Conv3DBackpropFilterV2", "conv1d": "gradient of tf.nn.conv1d"}
DEFINITION = "float64 definition"


@dataclasses.dataclass(frozen=True)
class Layer:
    """One convolution. Tuples are spatial, outermost axis first; `out` is K, or the multiplier M of a depthwise one."""
    name: str
    op: str
    kernel: tuple
    out: int
    strides: tuple = ()
    dilations: tuple = ()
    groups: int = 1
    padding: str = "SAME"
    pads: tuple = ()     # of EXPLICIT: a (before, after) pair for each axis
    reads: str = ""      # real layers: the tensor that it reads
    shape: tuple = ()    # unit layers: N, spatial extents, C

    @property
    def axes(self):
        return len(self.kernel)

    def stride(self):
        return self.strides or (1,) * self.axes

    def dilation(self):
        return self.dilations or (1,) * self.axes

    def group_count(self, channels):
        return max(channels, 1) if self.op == "depthwise" else self.groups

    def out_channels(self, channels):
        return channels * self.out if self.op == "depthwise" else self.out

    def filter_sizes(self, channels):
        per_group = channels if self.op == "depthwise" else channels // self.groups
        return [*self.kernel, per_group, self.out]


def padding_and_output(layer, extents):
    """((before, after), ...) and the output's extents, by TensorFlow's rules."""
    pads, outs = [], []
    for axis, extent in enumerate(extents):
        stride = layer.stride()[axis]
        span = (layer.kernel[axis] - 1) * layer.dilation()[axis] + 1
        if layer.padding == "SAME":
            out = -(-extent // stride)
            total = max((out - 1) * stride + span - extent, 0)
            pad = (total // 2, total - total // 2)
        else:
            pad = layer.pads[axis] if layer.padding == "EXPLICIT" else (0, 0)
            out = (extent + sum(pad) - span) // stride + 1
        pads.append(pad)
        outs.append(out)
    return pads, outs


# ---- The definition ------------------------------------------------------------------------------

def outputs_inside(out, extent, stride, front, offset):
    """The outputs i for which i * stride - front + offset is a row of x."""
    begin = max(0, -((offset - front) // stride))
    end = min(out, (extent - 1 + front - offset) // stride + 1)
    return begin, max(begin, end)


def tap_slices(layer, tap, extents, outs, pads):
    """What one tap reads: slices of x's spatial axes and of dy's, equally long. Padding is in neither."""
    of_x, of_dy = [], []
    for axis, index in enumerate(tap):
        stride, front = layer.stride()[axis], pads[axis][0]
        offset = index * layer.dilation()[axis]
        begin, end = outputs_inside(outs[axis], extents[axis], stride, front, offset)
        first = begin * stride - front + offset
        of_x.append(slice(first, first + (end - begin) * stride, stride) if end > begin else slice(0, 0))
        of_dy.append(slice(begin, end))
    return tuple(of_x), tuple(of_dy)


def flat_pixels(tensor):
    """[pixel, group, channel], also where there are no channels, from which numpy cannot tell the pixels."""
    return tensor.reshape(int(np.prod(tensor.shape[:-2])), *tensor.shape[-2:])


def definition(layer, x, dy):
    """x, dy: channels last. Returns dw in TensorFlow's layout, sum |x||dy| and the number of terms of each element."""
    number = np.longdouble if x.dtype == np.float64 else np.float64
    channels = x.shape[-1]
    groups = layer.group_count(channels)
    pads, outs = padding_and_output(layer, x.shape[1:-1])
    if list(dy.shape) != [x.shape[0], *outs, layer.out_channels(channels)]:
        raise ValueError(f"{layer.name}: dy is {dy.shape}, expected {outs}")
    x, dy = x.astype(number), dy.astype(number)
    x = x.reshape(*x.shape[:-1], groups, channels // groups)
    dy = dy.reshape(*dy.shape[:-1], groups, dy.shape[-1] // groups)
    sums, magnitudes, terms = [], [], []
    for tap in np.ndindex(*layer.kernel):
        of_x, of_dy = tap_slices(layer, tap, x.shape[1:-2], outs, pads)
        a, b = (flat_pixels(part) for part in (x[:, *of_x], dy[:, *of_dy]))
        # c, g, k: output channel g * (K / groups) + k comes last in every layout of the filter.
        sums.append(np.einsum("igc,igk->cgk", a, b))
        magnitudes.append(np.einsum("igc,igk->cgk", abs(a), abs(b)))
        terms.append(np.full(sums[-1].shape, len(a)))
    sizes = layer.filter_sizes(channels)
    # + 0.0: no negative zeros.
    return tuple(np.stack(part).reshape(sizes) + 0.0 for part in (sums, magnitudes, terms))


def worst_ratio(got, expected, dtype):
    """The largest error as a multiple of what is allowed; infinite where a NaN or an infinity differs."""
    value, magnitude, terms = expected
    accumulator = 2.0**-53 if dtype == "f64" else 2.0**-24
    with np.errstate(all="ignore"):
        rounded = value.astype(DTYPES[dtype])
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        allowed = (UNIT_ROUNDOFF[dtype] * abs(value) + 4 * np.sqrt(terms) * accumulator * magnitude
                   + np.ldexp(np.longdouble(0.5), SMALLEST_SUBNORMAL_EXPONENT[dtype]))
        ratio = abs(got.astype(value.dtype) - value) / allowed
    ratio = np.where(same & ~np.isfinite(ratio), 0, np.where(np.isnan(ratio), np.inf, ratio))
    return float(ratio.max(initial=0))


# ---- Real layers: a network that removes noise from photographs ----------------------------------

REAL_LAYERS = [
    Layer("stem_7x7_s2_same", "conv2d", (7, 7), 8, (2, 2), reads="picture"),
    Layer("body_3x3_same", "conv2d", (3, 3), 8, reads="stem"),
    Layer("bottleneck_1x1", "conv2d", (1, 1), 8, padding="VALID", reads="stem"),
    Layer("shortcut_1x1_s2_same", "conv2d", (1, 1), 16, (2, 2), reads="stem"),
    Layer("grouped_3x3_g4_same", "conv2d", (3, 3), 8, groups=4, reads="stem"),
    Layer("grouped_3x3_g2_s2_valid", "conv2d", (3, 3), 12, (2, 2), groups=2, padding="VALID", reads="stem"),
    Layer("dilated_3x3_d2_same", "conv2d", (3, 3), 6, dilations=(2, 2), reads="stem"),
    Layer("dilated_3x3_d2x3_valid", "conv2d", (3, 3), 4, dilations=(2, 3), padding="VALID", reads="stem"),
    Layer("dilated_grouped_3x3_d2_g2", "conv2d", (3, 3), 4, dilations=(2, 2), groups=2, padding="VALID", reads="stem"),
    Layer("explicit_3x3_s2x1", "conv2d", (3, 3), 4, (2, 1), padding="EXPLICIT", pads=((0, 2), (1, 3)), reads="stem"),
    Layer("row_1x5_s1x2_same", "conv2d", (1, 5), 4, (1, 2), reads="stem"),
    Layer("depthwise_3x3_same", "depthwise", (3, 3), 1, reads="stem"),
    Layer("depthwise_3x3_s2_same", "depthwise", (3, 3), 1, (2, 2), reads="stem"),
    Layer("multiplier2_3x3_valid", "depthwise", (3, 3), 2, padding="VALID", reads="stem"),
    Layer("depthwise_5x5_same", "depthwise", (5, 5), 1, reads="stem"),
    Layer("multiplier2_5x5_s2_same", "depthwise", (5, 5), 2, (2, 2), reads="stem"),
    Layer("dilated_3x3_d2_same", "depthwise", (3, 3), 1, dilations=(2, 2), reads="stem"),
    Layer("explicit_3x3_s2", "depthwise", (3, 3), 1, (2, 2), padding="EXPLICIT", pads=((0, 1), (2, 1)), reads="stem"),
    Layer("depthwise_3x3_s2x1_same", "depthwise", (3, 3), 1, (2, 1), reads="stem"),
    Layer("stem_3x3x3_same", "conv3d", (3, 3, 3), 4, reads="clip"),
    Layer("body_3x3x3_s2_same", "conv3d", (3, 3, 3), 4, (2, 2, 2), reads="clip_stem"),
    Layer("body_3x3x3_valid", "conv3d", (3, 3, 3), 3, padding="VALID", reads="clip_stem"),
    Layer("spatial_1x3x3_s1x2x2_same", "conv3d", (1, 3, 3), 3, (1, 2, 2), reads="clip_stem"),
    Layer("temporal_3x1x1_s2x1x1_same", "conv3d", (3, 1, 1), 2, (2, 1, 1), reads="clip_stem"),
    Layer("grouped_3x3x3_g2_s2_same", "conv3d", (3, 3, 3), 4, (2, 2, 2), groups=2, reads="clip_stem"),
    Layer("dilated_3x3x3_d1x2x2_valid", "conv3d", (3, 3, 3), 3, dilations=(1, 2, 2), padding="VALID",
          reads="clip_stem"),
    Layer("explicit_3x3x3_s1x2x2", "conv3d", (3, 3, 3), 2, (1, 2, 2), padding="EXPLICIT",
          pads=((1, 0), (0, 2), (1, 1)), reads="clip_stem"),
    Layer("quickstart", "conv2d", (3, 3), 16, (2, 2), reads="large_picture"),
]
# Dtype and channels last: six of the eight kinds for each layer, in turn, to keep the files small.
REAL_KINDS = [[("f32", True), ("f16", True), ("bf16", True), ("f32", False), ("f16", False), ("f64", True)],
              [("f32", True), ("f16", True), ("bf16", True), ("f32", False), ("bf16", False), ("f64", False)]]
# Layers whose output, after a ReLU, is what others read.
STEMS = {"stem_7x7_s2_same": "stem", "stem_3x3x3_same": "clip_stem"}
CHANNELS = {"picture": 3, "large_picture": 3, "clip": 3, "stem": 8, "clip_stem": 4}


def load_pictures():
    """Three photographs shipped in scikit-image, shrunk four times, in units of about one standard deviation."""
    pictures = []
    for load in (skimage.data.astronaut, skimage.data.chelsea, skimage.data.coffee):
        picture = load().astype(np.float64)
        height, width = picture.shape[0] // 4, picture.shape[1] // 4
        small = picture[:height * 4, :width * 4].reshape(height, 4, width, 4, 3).mean(axis=(1, 3))
        pictures.append((small / 255 - 0.45) / 0.25)
    return pictures


def crops(rng, pictures, count, height, width):
    """[count, height, width, 3]"""
    return np.stack([clips(rng, pictures, 1, 1, height, width)[0, 0] for _ in range(count)])


def clips(rng, pictures, count, frames, height, width):
    """[count, frames, height, width, 3]: a window that moves a pixel or two with each frame."""
    batch = []
    for _ in range(count):
        picture = pictures[rng.integers(len(pictures))]
        down, right = rng.integers(1, 3, size=2)
        top = rng.integers(picture.shape[0] - height - frames * down)
        left = rng.integers(picture.shape[1] - width - frames * right)
        batch.append([picture[top + f * down:, left + f * right:][:height, :width] for f in range(frames)])
    return np.array(batch)


def make_batch(rng, pictures):
    clean = {"picture": crops(rng, pictures, 2, 18, 20), "large_picture": crops(rng, pictures, 2, 48, 48),
             "clip": clips(rng, pictures, 2, 5, 8, 9)}
    noisy = {name: value + 0.1 * rng.standard_normal(value.shape) for name, value in clean.items()}
    return clean, noisy


def convolve(layer, x, weights):
    """The forward convolution from its definition, so that any layer can be trained, also one TensorFlow lacks."""
    pads, outs = padding_and_output(layer, x.shape[1:-1])
    channels = x.shape[-1]
    groups = layer.group_count(channels)
    padded = tf.pad(x, [(0, 0), *pads, (0, 0)])
    taps = []
    for tap in np.ndindex(*layer.kernel):
        starts = [i * d for i, d in zip(tap, layer.dilation())]
        taps.append(padded[:, *(slice(b, b + (o - 1) * s + 1, s) for b, o, s in zip(starts, outs, layer.stride()))])
    patches = tf.reshape(tf.stack(taps), (len(taps), x.shape[0], -1, groups, channels // groups))
    y = tf.einsum("tnigc,tcgk->nigk", patches, weights)
    return tf.reshape(y, (x.shape[0], *outs, layer.out_channels(channels)))


def target_of(clean, layer, outs):
    """The noiseless picture at the layer's own resolution."""
    for axis, out in enumerate(outs, start=1):
        rows = np.linspace(0, clean.shape[axis] - 1, out).round().astype(int)
        clean = clean.take(rows, axis=axis)
    return clean


def initial_weights(rng):
    weights, heads = [], []
    for layer in REAL_LAYERS:
        channels = CHANNELS[layer.reads]
        groups, out = layer.group_count(channels), layer.out_channels(channels)
        taps = int(np.prod(layer.kernel))
        spread = (taps * channels / groups) ** -0.5
        weights.append(spread * rng.standard_normal((taps, channels // groups, groups, out // groups)))
        heads.append(out**-0.5 * rng.standard_normal((out, 3)))
    return weights, heads


def forward(weights, heads, clean, noisy):
    """Returns the loss, and what every layer read and produced."""
    values = {name: tf.constant(value) for name, value in noisy.items()}
    loss, inputs, outputs = 0.0, [], []
    for layer, weight, head in zip(REAL_LAYERS, weights, heads):
        x = values[layer.reads]
        y = convolve(layer, x, weight)
        inputs.append(x)
        outputs.append(y)
        if layer.name in STEMS:
            values[STEMS[layer.name]] = tf.nn.relu(y)
        source = {"stem": "picture", "clip_stem": "clip"}.get(layer.reads, layer.reads)
        wanted = target_of(clean[source], layer, y.shape[1:-1])
        loss += tf.reduce_mean((tf.nn.silu(y) @ head - wanted) ** 2)
    return loss, inputs, outputs


def train():
    """{layer: (x, dy)} of the last step, channels last, in float64."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    rng = np.random.default_rng(SEED)
    pictures = load_pictures()
    weights, heads = initial_weights(rng)
    weights, heads = [tf.Variable(w) for w in weights], [tf.Variable(h) for h in heads]
    losses = []
    for step in range(STEPS):
        clean, noisy = make_batch(rng, pictures)
        with tf.GradientTape() as tape:
            loss, inputs, outputs = forward(weights, heads, clean, noisy)
            scaled = loss * LOSS_SCALE
        variables = weights + heads
        gradients = tape.gradient(scaled, variables + outputs)
        for variable, gradient in zip(variables, gradients):
            # Steps of one length: the layers differ too much in size for one learning rate.
            variable.assign_sub(0.05 * gradient / tf.norm(gradient))
        losses.append(float(loss))
    print(f"training: mean loss {np.mean(losses[:5]):.3f} in the first 5 steps, {np.mean(losses[-5:]):.3f} in the last")
    dys = gradients[len(variables):]
    return {layer: (x.numpy(), dy.numpy()) for layer, x, dy in zip(REAL_LAYERS, inputs, dys)}


# ---- Unit layers: small integers -----------------------------------------------------------------

def conv2d(name, shape, kernel, out, strides=(), **more):
    return Layer(name, "conv2d", kernel, out, strides, shape=shape, **more)


def depthwise(name, shape, kernel, multiplier, strides=(), **more):
    return Layer(name, "depthwise", kernel, multiplier, strides, shape=shape, **more)


def conv1d(name, shape, kernel, out, strides=(), **more):
    return Layer(name, "conv1d", kernel, out, strides, shape=shape, **more)


def conv3d(name, shape, kernel, out, strides=(), **more):
    return Layer(name, "conv3d", kernel, out, strides, shape=shape, **more)


VALID = {"padding": "VALID"}


def explicit(*pads):
    return {"padding": "EXPLICIT", "pads": pads}


# These get every dtype and layout; the others float32 channels last and two more, in turn.
FULL_UNITS = [
    conv2d("k2x2_depth3_valid", (1, 3, 6, 3), (2, 2), 3, **VALID),
    conv2d("dilated_2x2_valid", (2, 5, 6, 2), (2, 2), 3, dilations=(2, 3), **VALID),
    conv2d("grouped_3x3_g3_same", (2, 4, 5, 6), (3, 3), 6, groups=3),
    conv2d("explicit_asymmetric_3x2", (2, 4, 5, 2), (3, 2), 3, **explicit((2, 0), (0, 1))),
    depthwise("k2x2_multiplier2_valid", (2, 3, 4, 3), (2, 2), 2, **VALID),
    depthwise("dilated_3x3_same", (1, 5, 6, 3), (3, 3), 1, dilations=(2, 2)),
    depthwise("explicit_asymmetric_3x2", (2, 4, 5, 3), (3, 2), 1, **explicit((2, 0), (0, 1))),
    conv3d("k2x2x2_depth3_valid", (1, 3, 4, 3, 3), (2, 2, 2), 2, **VALID),
    conv3d("dilated_2x2x2_same", (1, 4, 4, 5, 2), (2, 2, 2), 3, dilations=(2, 2, 2)),
    conv3d("grouped_2x2x2_g2_same", (1, 3, 4, 3, 4), (2, 2, 2), 4, groups=2),
    conv3d("explicit_asymmetric_2x2x2", (1, 3, 3, 4, 2), (2, 2, 2), 2, **explicit((0, 1), (2, 0), (1, 0))),
    conv1d("k3_s2_same", (2, 8, 3), (3,), 4, (2,)),
    conv1d("dilated_grouped_k3_d2_g2_valid", (1, 9, 4), (3,), 6, dilations=(2,), groups=2, **VALID),
    conv1d("explicit_asymmetric_k2", (1, 6, 2), (2,), 3, **explicit((2, 0))),
]
UNITS = [
    conv2d("k1x1", (2, 3, 4, 3), (1, 1), 5),
    conv2d("k2x2_depth1_valid", (1, 2, 3, 1), (2, 2), 1, **VALID),
    conv2d("kernel_is_input", (2, 2, 3, 1), (2, 3), 2, **VALID),
    conv2d("one_channel_3x3_same", (2, 5, 4, 1), (3, 3), 1),
    conv2d("even_4x4_same", (1, 6, 5, 2), (4, 4), 2),
    conv2d("even_2x2_s2_same_odd_input", (2, 5, 7, 2), (2, 2), 3, (2, 2)),
    conv2d("k3x3_s2_same_odd", (1, 7, 5, 2), (3, 3), 3, (2, 2)),
    conv2d("k3x3_s2_same_even", (1, 6, 8, 2), (3, 3), 3, (2, 2)),
    conv2d("unequal_strides_3x3_s3x1_valid", (2, 8, 5, 2), (3, 3), 2, (3, 1), **VALID),
    conv2d("stride_over_kernel_1x1_s2_same", (1, 3, 3, 2), (1, 1), 2, (2, 2)),
    conv2d("stride_over_kernel_2x2_s3_same", (1, 4, 7, 2), (2, 2), 2, (3, 3)),
    conv2d("stride_over_kernel_2x2_s3_valid", (1, 6, 7, 2), (2, 2), 2, (3, 3), **VALID),
    conv2d("unread_trailing_rows_3x3_s3_valid", (1, 5, 8, 2), (3, 3), 2, (3, 3), **VALID),
    conv2d("kernel_over_input_5x5_same", (2, 2, 3, 2), (5, 5), 2),
    conv2d("kernel_over_input_5x5_s2_explicit", (1, 3, 2, 2), (5, 5), 2, (2, 2), **explicit((2, 3), (1, 4))),
    conv2d("tap_sees_only_padding_d4_same", (1, 4, 3, 2), (3, 3), 2, dilations=(4, 4)),
    conv2d("dilated_3x3_d2_s2_same", (1, 7, 8, 2), (3, 3), 2, (2, 2), dilations=(2, 2)),
    conv2d("padding_over_filter_3x3", (1, 3, 4, 2), (3, 3), 2, **explicit((5, 4), (4, 6))),
    conv2d("one_output_pixel", (3, 3, 3, 4), (3, 3), 5, **VALID),
    conv2d("one_input_pixel_3x3_same", (4, 1, 1, 3), (3, 3), 4),
    conv2d("groups_are_channels_3x3", (1, 5, 4, 4), (3, 3), 8, groups=4),
    conv2d("channel_tail_3x3", (1, 4, 4, 17), (3, 3), 5),
    conv2d("filter_tail_1x1", (1, 5, 4, 3), (1, 1), 33),
    depthwise("k1x1", (2, 3, 4, 5), (1, 1), 1),
    depthwise("one_channel_3x3_same", (2, 4, 5, 1), (3, 3), 1),
    depthwise("multiplier3_3x3_same", (1, 4, 5, 2), (3, 3), 3),
    depthwise("even_2x2_s2_same_odd_input", (1, 5, 7, 3), (2, 2), 1, (2, 2)),
    depthwise("k3x3_s2_valid", (2, 6, 7, 4), (3, 3), 1, (2, 2), **VALID),
    depthwise("unequal_strides_3x3_s1x2_same", (1, 4, 7, 3), (3, 3), 1, (1, 2)),
    depthwise("stride_over_kernel_2x2_s3_same", (1, 7, 6, 3), (2, 2), 1, (3, 3)),
    depthwise("unread_trailing_rows_2x2_s3_valid", (1, 7, 6, 3), (2, 2), 1, (3, 3), **VALID),
    depthwise("kernel_over_input_5x5_same", (2, 2, 3, 3), (5, 5), 1),
    depthwise("dilated_3x3_d2x1_s1x2_multiplier2", (1, 6, 5, 2), (3, 3), 2, (1, 2), dilations=(2, 1)),
    depthwise("padding_over_filter_3x3", (1, 3, 4, 3), (3, 3), 1, **explicit((5, 4), (4, 6))),
    depthwise("one_output_pixel", (3, 3, 3, 4), (3, 3), 1, **VALID),
    depthwise("one_input_pixel_3x3_same", (4, 1, 1, 5), (3, 3), 1),
    depthwise("channel_tail_3x3", (1, 4, 4, 19), (3, 3), 1),
    conv3d("k1x1x1", (2, 2, 3, 2, 3), (1, 1, 1), 4),
    conv3d("k1x2x3_valid", (1, 2, 3, 5, 2), (1, 2, 3), 2, **VALID),
    conv3d("one_channel_3x3x3_same", (1, 3, 4, 3, 1), (3, 3, 3), 1),
    conv3d("even_2x2x2_s2_same_odd_input", (1, 5, 3, 7, 2), (2, 2, 2), 2, (2, 2, 2)),
    conv3d("stride_over_kernel_s3_same", (1, 4, 7, 5, 2), (2, 1, 2), 2, (3, 3, 3)),
    conv3d("unequal_strides_s1x2x3_valid", (1, 3, 5, 8, 2), (2, 2, 2), 2, (1, 2, 3), **VALID),
    conv3d("kernel_over_input_5x3x3_same", (1, 2, 3, 2, 2), (5, 3, 3), 2),
    conv3d("tap_sees_only_padding_d3_same", (1, 2, 3, 3, 2), (3, 2, 2), 2, dilations=(3, 1, 1)),
    conv3d("padding_over_filter_2x2x2", (1, 2, 3, 2, 2), (2, 2, 2), 2, **explicit((3, 2), (2, 4), (3, 3))),
    conv3d("one_output_pixel", (2, 2, 3, 2, 3), (2, 3, 2), 4, **VALID),
    conv3d("dilated_grouped_2x2x2", (1, 3, 4, 5, 4), (2, 2, 2), 2, dilations=(1, 2, 3), groups=2),
    conv3d("one_frame_1x3x3_same", (2, 1, 4, 3, 2), (1, 3, 3), 3),
    conv1d("kernel_over_input_k5_same", (1, 3, 2), (5,), 2),
    conv1d("groups_are_channels_k3", (1, 6, 3), (3,), 3, groups=3),
]
# TensorFlow returns whatever lies in memory for some of these, so it is never asked.
EMPTY_UNITS = [
    conv2d("empty_batch_3x3_same", (0, 4, 5, 2), (3, 3), 3),
    conv2d("empty_output_3x3_valid", (2, 2, 5, 2), (3, 3), 3, **VALID),
    conv2d("empty_output_dilated_valid", (1, 4, 4, 2), (3, 3), 2, dilations=(2, 2), **VALID),
    depthwise("empty_batch_3x3_same", (0, 4, 5, 3), (3, 3), 2),
    depthwise("empty_output_3x3_valid", (2, 5, 2, 3), (3, 3), 1, **VALID),
    conv3d("empty_batch_2x2x2_same", (0, 3, 4, 5, 2), (2, 2, 2), 3),
    conv3d("empty_output_3x2x2_valid", (1, 2, 4, 5, 2), (3, 2, 2), 3, **VALID),
    # The gradient itself is empty, the first as in TensorFlow's own tests.
    conv2d("no_output_channels_2x2_valid", (1, 2, 3, 1), (2, 2), 0, **VALID),
    conv2d("no_input_channels_2x2_same", (1, 2, 3, 0), (2, 2), 2),
    depthwise("no_channels_2x2_same", (1, 2, 3, 0), (2, 2), 2),
    depthwise("multiplier0_2x2_same", (1, 2, 3, 2), (2, 2), 0),
    conv1d("no_output_channels_k2_same", (1, 4, 2), (2,), 0),
]
# A NaN and an infinity in pixels of dy that meet nothing but padding: they contribute nothing.
PADDING_NAN_UNITS = [
    conv2d("nan_meets_only_padding", (1, 3, 4, 2), (3, 3), 2, **explicit((3, 4), (3, 3))),
    depthwise("nan_meets_only_padding", (1, 3, 4, 3), (3, 3), 1, **explicit((3, 4), (3, 3))),
    conv3d("nan_meets_only_padding", (1, 2, 3, 3, 2), (2, 2, 2), 2, **explicit((2, 2), (2, 3), (2, 2))),
]
# A NaN in a corner of dy: it reaches the taps that meet data there, and no others.
CORNER_NAN_UNITS = [
    conv2d("nan_in_corner_3x3_same", (1, 4, 5, 2), (3, 3), 2),
    depthwise("nan_in_corner_3x3_same", (1, 4, 5, 3), (3, 3), 1),
    conv3d("nan_in_corner_3x3x3_same", (1, 3, 3, 4, 2), (3, 3, 3), 2),
]
LONG_SUM = conv2d("long_sum_1x1", (2, 24, 24, 1), (1, 1), 1)
SUBNORMAL = conv2d("subnormal_gradient_2x2", (1, 4, 4, 2), (2, 2), 2)
OVERFLOW = conv2d("overflow_to_infinity_2x2", (1, 4, 4, 2), (2, 2), 2)
COUNTING = [
    conv2d("counting_2x2_depth3_valid", (1, 2, 3, 3), (2, 2), 3, **VALID),
    depthwise("counting_2x2_valid", (1, 2, 3, 2), (2, 2), 1, **VALID),
    conv3d("counting_2x2x2_depth3_valid", (1, 2, 3, 2, 3), (2, 2, 2), 3, **VALID),
]


def unit_shapes(layer):
    _, outs = padding_and_output(layer, layer.shape[1:-1])
    return layer.shape, (layer.shape[0], *outs, layer.out_channels(layer.shape[-1]))


def integers(layer):
    """x and dy of integers in [-4, 4], without 0 so that no sum is a negative zero."""
    # Seeded by the name: a new case does not change the others.
    rng = np.random.default_rng([SEED, zlib.crc32(f"{layer.op} {layer.name}".encode())])
    return [rng.integers(1, 5, shape) * rng.choice([-1.0, 1.0], shape) for shape in unit_shapes(layer)]


def with_padding_nan(layer):
    x, dy = integers(layer)
    dy[:, 0] = np.nan
    dy[:, -1] = np.inf
    dy[..., 0, :] = -np.inf
    return x, dy


def with_corner_nan(layer):
    x, dy = integers(layer)
    dy[(0,) * (dy.ndim - 1) + (-1,)] = np.nan
    return x, dy


def counting(layer):
    """1, 2, 3 ..., as in TensorFlow's own tests."""
    return [np.arange(1.0, np.prod(shape) + 1).reshape(shape) for shape in unit_shapes(layer)]


# ---- Cases ---------------------------------------------------------------------------------------

@dataclasses.dataclass
class Case:
    layer: Layer
    dtype: str
    channels_last: bool
    x: np.ndarray     # channels last, rounded to the dtype
    dy: np.ndarray
    source: str
    exact: bool = False
    ask_tensorflow: bool = True
    headers: dict = dataclasses.field(default_factory=dict)   # "x", "dy" or "dw": what is unusual about the file
    suffix: str = ""
    folder: str = ""

    @property
    def layout(self):
        return {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[self.layer.axes][self.channels_last]

    @property
    def name(self):
        return f"{self.layer.name}_{self.layout.lower()}_{self.dtype}{self.suffix}"

    def in_layout(self, array):
        return np.ascontiguousarray(array if self.channels_last else np.moveaxis(array, -1, 1))

    def in_order(self, spatial, other):
        """A vector over the spatial axes with the batch's and the channels' entries put in, in data-format order."""
        spatial = list(spatial)
        return [other, *spatial, other] if self.channels_last else [other, other, *spatial]

    def attributes(self):
        layer = self.layer
        pads = self.in_order(layer.pads, (0, 0)) if layer.padding == "EXPLICIT" else []
        return {"filter_sizes": layer.filter_sizes(self.x.shape[-1]), "strides": self.in_order(layer.stride(), 1),
                "padding": layer.padding, "explicit_paddings": [int(p) for pair in pads for p in pair],
                "dilations": self.in_order(layer.dilation(), 1), "data_format": self.layout}


def make_case(layer, dtype, channels_last, data, source, **more):
    x, dy = (np.asarray(part).astype(DTYPES[dtype]) for part in data)
    return Case(layer, dtype, channels_last, x, dy, source, **more)


def everywhere(layer, data, source, **more):
    return [make_case(layer, dtype, last, data, source, **more) for dtype in DTYPES for last in (True, False)]


def in_turn(layers, make, **more):
    """float32 channels last for each, and two more of the other seven kinds, so that neighbours get all of them."""
    others = itertools.cycle([(d, last) for last in (False, True) for d in DTYPES if (d, last) != ("f32", True)])
    cases = []
    for layer in layers:
        data = make(layer)
        for dtype, last in [("f32", True), next(others), next(others)]:
            cases.append(make_case(layer, dtype, last, data, "unit", **more))
    return cases


def real_cases():
    cases = []
    for layer, data in train().items():
        if layer.name == "quickstart":
            cases.append(make_case(layer, "f32", True, data, "real", folder="quickstart"))
        else:
            cases += [make_case(layer, dtype, last, data, "real") for dtype, last in REAL_KINDS[len(cases) // 6 % 2]]
    return cases


def unit_cases():
    cases = []
    for layer in FULL_UNITS:
        cases += everywhere(layer, integers(layer), "unit", exact=True)
    cases += in_turn(UNITS, integers, exact=True)
    cases += in_turn(COUNTING, counting, exact=True)
    cases += in_turn(EMPTY_UNITS, integers, exact=True, ask_tensorflow=False)
    cases += in_turn(PADDING_NAN_UNITS, with_padding_nan, exact=True)
    cases += in_turn(CORNER_NAN_UNITS, with_corner_nan)
    # All positive: a float16 or bfloat16 accumulator gets stuck long before the end.
    long_sum = [abs(part) for part in integers(LONG_SUM)]
    cases += [make_case(LONG_SUM, dtype, True, long_sum, "unit", exact=True) for dtype in DTYPES]
    tiny = [part * 2.0**-12 for part in integers(SUBNORMAL)]
    cases.append(make_case(SUBNORMAL, "f16", True, tiny, "unit", exact=True))
    huge = [abs(part) * 2.0**6 for part in integers(OVERFLOW)]
    cases.append(make_case(OVERFLOW, "f16", True, huge, "unit", exact=True))
    return cases + header_cases()


def header_cases():
    """The same tensors in files that are legal .npy but not what numpy writes by default."""
    conv, depth, volume = FULL_UNITS[0], FULL_UNITS[4], FULL_UNITS[7]
    swapped, fortran = {"big_endian": True}, {"fortran": True}
    kinds = [
        (conv, "f32", "_fortran", {"x": fortran, "dy": fortran}),
        (conv, "f32", "_big_endian", {"x": swapped, "dy": swapped}),
        (depth, "bf16", "_big_endian", {"x": swapped, "dy": swapped}),
        (conv, "f16", "_format_2", {"x": {"version": (2, 0)}, "dy": {"version": (2, 0)}}),
        (volume, "f64", "_format_3", {"x": {"version": (3, 0)}, "dy": {"version": (3, 0)}}),
        (volume, "f32", "_all_unusual", {"x": swapped | fortran | {"version": (2, 0)},
                                         "dy": fortran | {"version": (3, 0)}, "dw": swapped | fortran}),
    ]
    return [make_case(layer, dtype, True, integers(layer), "unit", exact=True, headers=headers, suffix=suffix)
            for layer, dtype, suffix, headers in kinds]


# ---- TensorFlow, in processes of its own: some combinations abort --------------------------------

def conv1d_gradient(job):
    """tf.nn.conv1d has no op of its own: TensorFlow differentiates the 2-D one that it calls."""
    options = dict(job["attributes"])
    if options.pop("explicit_paddings"):
        raise ValueError("tf.nn.conv1d has no explicit padding")
    weights = tf.Variable(np.zeros(options.pop("filter_sizes"), job["x"].dtype))
    with tf.GradientTape() as tape:
        y = tf.nn.conv1d(job["x"], weights, stride=options.pop("strides"), **options)
    return tape.gradient(y, weights, output_gradients=tf.constant(job["dy"]))


def tensorflow_gradient(job):
    if job["op"] == "conv1d":
        return conv1d_gradient(job)
    options = job["attributes"]
    if job["op"] == "conv3d":
        options.pop("explicit_paddings")
    return getattr(tf.raw_ops, TENSORFLOW_OPS[job["op"]])(input=job["x"], out_backprop=job["dy"], **options)


def run_jobs(folder):
    """The worker: answers the jobs in a folder that have no answer yet."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    for job_path in sorted(pathlib.Path(folder).glob("*.job")):
        answer = job_path.with_suffix(".answer")
        if answer.exists():
            continue
        # If the process dies below, this is what stays.
        answer.write_bytes(pickle.dumps("aborts the process"))
        job = pickle.loads(job_path.read_bytes())
        try:
            result = tensorflow_gradient(job).numpy()
        except Exception as error:
            sentence = re.sub(r"\{\{.*?\}\}|\[Op:.*", "", str(error).splitlines()[0]).strip()
            result = "refuses: " + sentence.rstrip(":")
        answer.write_bytes(pickle.dumps(result))


def ask_tensorflow(cases):
    """For each case an array, or a sentence that says why there is none."""
    folder = pathlib.Path(tempfile.mkdtemp())
    wanted = []
    for index, case in enumerate(cases):
        wanted.append(folder / f"{index:05}.answer")
        if case.ask_tensorflow:
            job = {"op": case.layer.op, "attributes": case.attributes(),
                   "x": case.in_layout(case.x), "dy": case.in_layout(case.dy)}
            (folder / f"{index:05}.job").write_bytes(pickle.dumps(job))
        else:
            wanted[-1].write_bytes(pickle.dumps("not asked: an empty tensor, may return uninitialised memory"))
    try:
        while not all(path.exists() for path in wanted):
            try:
                subprocess.run([sys.executable, __file__, "--answer-jobs", str(folder)],
                               stderr=subprocess.DEVNULL, timeout=300)
            except subprocess.TimeoutExpired:
                pass
        return [pickle.loads(path.read_bytes()) for path in wanted]
    finally:
        shutil.rmtree(folder)


# ---- Writing -------------------------------------------------------------------------------------

def npy_bytes(array, dtype, fortran=False, big_endian=False, version=(1, 0)):
    """The file's bytes. np.save writes the usual ones; a header is put together only where numpy could not write it."""
    file = io.BytesIO()
    if not (fortran or big_endian or version != (1, 0)):
        np.save(file, array)
        if f"'descr': '{DESCR[dtype]}'".encode() not in file.getvalue():
            raise ValueError(f"numpy wrote another descr than {DESCR[dtype]}")
        return file.getvalue()
    order = ">" if big_endian else "<"
    header = str({"descr": order + DESCR[dtype][1:], "fortran_order": fortran, "shape": array.shape}).encode()
    prefix = 8 + (2 if version == (1, 0) else 4)
    header += b" " * (-(prefix + len(header) + 1) % 64) + b"\n"
    file.write(b"\x93NUMPY" + bytes(version) + len(header).to_bytes(prefix - 8, "little") + header)
    bits = array.view(f"u{array.itemsize}").astype(f"{order}u{array.itemsize}")
    file.write(bits.tobytes(order="F" if fortran else "C"))
    return file.getvalue()


class Writer:
    """Writes arrays below a folder; an input that is already there, byte for byte, is used again."""

    def __init__(self, folder):
        self.folder = folder
        self.inputs = {}

    def write(self, case, kind, array):
        content = npy_bytes(array, case.dtype, **case.headers.get(kind, {}))
        path = f"{case.layer.op}/{case.name}.{kind}.npy"
        if case.folder:
            path = f"{case.folder}/{'dw_tensorflow' if kind == 'dw' else kind}.npy"
        elif kind != "dw":
            path = self.inputs.setdefault((case.layer.op, kind, content), path)
        target = self.folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
        return path


def choose_oracle(case, answer):
    """The gradient to store, whose it is, TensorFlow's worst ratio or None, and why TensorFlow was not taken or ""."""
    expected = definition(case.layer, case.x, case.dy)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = expected[0].astype(DTYPES[case.dtype])
    if worst_ratio(rounded, expected, case.dtype) > 1:
        raise ValueError(f"{case.name}: the definition breaks its own bound")
    if case.exact and not (expected[1] < 2**24).all():
        raise ValueError(f"{case.name}: its sums need not be exact")
    if isinstance(answer, str):
        return rounded, DEFINITION, None, answer
    ratio = worst_ratio(answer, expected, case.dtype)
    if ratio > 1:
        return rounded, DEFINITION, None, f"wrong: {ratio:.3g} times the bound"
    if case.exact and answer.tobytes() != rounded.tobytes():
        return rounded, DEFINITION, None, "not exact on small integers"
    oracle = f"tensorflow {tf.__version__} {TENSORFLOW_OPS[case.layer.op]}"
    return answer, oracle, ratio, ""


def hash_of(path):
    """So that one flipped bit in any file is seen, also where the bound allows it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_cases(folder, cases, answers):
    writer, lines, ratios, refusals = Writer(folder), [], collections.defaultdict(list), []
    for case, answer in zip(cases, answers):
        dw, oracle, ratio, why = choose_oracle(case, answer)
        if ratio is not None:
            ratios[case.dtype].append(ratio)
        if why:
            refusals.append((case, why))
        name = "quickstart" if case.folder else f"{case.layer.op}_{case.name}"
        files = {"input": writer.write(case, "x", case.in_layout(case.x)),
                 "out_backprop": writer.write(case, "dy", case.in_layout(case.dy)),
                 "golden": writer.write(case, "dw", dw)}
        lines.append({"name": name, "op": case.layer.op, **files, **case.attributes(),
                      "dtype": DTYPE_NAMES[case.dtype], "bitwise": case.exact,
                      **{f"{field}_sha256": hash_of(folder / path) for field, path in files.items()},
                      "notes": {"oracle": oracle, "source": case.source}})
    if len({line["name"] for line in lines}) != len(lines):
        raise ValueError("two cases have one name")
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / "golden.jsonl").write_text(text)
    return lines, ratios, refusals


def count_table(lines):
    kinds = collections.Counter((line["op"], line["dtype"], line["notes"]["oracle"] == DEFINITION) for line in lines)
    rows = ["| op | dtype | TensorFlow | definition |", "| --- | --- | ---: | ---: |"]
    for op in TENSORFLOW_OPS:
        for dtype in DTYPE_NAMES.values():
            rows.append(f"| {op} | {dtype} | {kinds[op, dtype, False]} | {kinds[op, dtype, True]} |")
    return "\n".join(rows)


def refusal_table(refusals):
    """Which cases TensorFlow does not answer rightly, gathered by what it says."""
    seen = collections.defaultdict(collections.Counter)
    for case, why in refusals:
        kind = "a value outside the bound" if why.startswith("wrong") else re.sub(r"\b\d+\b(?!\.)", "N", why)
        seen[case.layer.op, kind][case.layer.name] += 1
    rows = ["| op | TensorFlow on the CPU | cases | of these layers |", "| --- | --- | ---: | --- |"]
    for (op, kind), names in sorted(seen.items()):
        some = ", ".join(list(names)[:5]) + (", ..." if len(names) > 5 else "")
        rows.append(f"| {op} | {kind.replace('|', '/')} | {sum(names.values())} | {some} |")
    return "\n".join(rows)


def write_readme(folder, lines, ratios, refusals):
    quick = next(line for line in lines if line["name"] == "quickstart")
    worst = ", ".join(f"{DTYPE_NAMES[d]} {max(r):.2f}" for d, r in sorted(ratios.items()))
    (folder / "README.md").write_text(README.format(
        count=len(lines), real=sum(line["notes"]["source"] == "real" for line in lines),
        unit=sum(line["notes"]["source"] == "unit" for line in lines), steps=STEPS, seed=SEED, scale=int(LOSS_SCALE),
        python=platform.python_version(), tensorflow=tf.__version__, numpy=np.__version__,
        ml_dtypes=ml_dtypes.__version__, skimage=skimage.__version__, worst=worst,
        counts=count_table(lines), refusals=refusal_table(refusals), oracle=quick["notes"]["oracle"]))


README = """# testdata

Filter gradients with known answers: {count} problems, listed in `golden.jsonl`, one JSON object a line.
Written by `scripts/make_testdata.py`; checked, without TensorFlow, by `scripts/check_testdata.py`.

## Families
- **real** ({real}): a small network was trained for {steps} steps to remove noise from photographs. Stored are what its layers
  read (x) and the gradients that came back to their outputs (dy, with a loss scale of {scale}), rounded to each dtype.
  Stems with stride 2, 3x3, 1x1, grouped, dilated, unevenly padded, unequal strides; depthwise 3x3 and 5x5, with stride,
  with multiplier 2; the same in 3-D on clips whose frames are shifted crops. Each in four dtypes, six of the eight
  combinations of dtype and layout in turn.
- **unit** ({unit}): a few small integers each, after TensorFlow's own unit tests: 1x1, even and uneven padding, strides larger
  than the filter, filters larger than the input, unread trailing rows, taps that see only padding, one pixel in or out,
  more padding than filter, empty batches, outputs and gradients, NaN and infinity that meet only padding, unusual .npy headers
  (Fortran order, big-endian, format 2.0 and 3.0). `bitwise` is true where every correct algorithm gives the same bits.
- `quickstart/`: one layer of the real family in float32, NHWC: a 3x3 convolution with stride 2 and SAME padding, 3 to 16
  channels, on two 48x48 crops. `dw_tensorflow.npy` is the gradient of {oracle}.
- `types/`, in a list of its own, `types.jsonl` (36): 8-bit floats and tensors of two dtypes, by all four ops, in .npy, .safetensors and raw files,
  against the definition in float64 with ml_dtypes' values. Written by `scripts/make_type_testdata.py`.

## Fields of golden.jsonl
The list is a manifest of `convgrad batch` (docs/batch.md): `convgrad batch testdata/golden.jsonl --keep-going` checks all of it.
`input`, `out_backprop`, `golden` are paths beside the list; several problems may share an input. `filter_sizes`, `strides`,
`padding`, `explicit_paddings`, `dilations`, `data_format` are TensorFlow's attributes, in data-format order (conv3d and conv1d
also have EXPLICIT here). `dtype` is that of all three arrays. bfloat16 is stored as `<V2`, as numpy and ml_dtypes do. `input_sha256`,
`out_backprop_sha256` and `golden_sha256` are SHA-256 of the whole files, so that a flipped bit is seen that the bound allows.
`oracle`, in `notes`, says who computed the golden array: TensorFlow's CPU op (oneDNN on), or the definition: each tap's products
summed in float64 (float64 data: in long double), padding left out, rounded once.

{counts}

Where TensorFlow computes, it lies within `u|dw| + 4 sqrt(L) e sum|x||dy|` of the definition, plus half of the smallest subnormal:
u is half an ulp of the dtype, L the number of terms, e is 2^-24 (float64: 2^-53). Its largest error as a part of that: {worst}.
Where it does not compute, or breaks the bound, the golden array is the definition's:

{refusals}

## Versions and how to make them again
Python {python}, tensorflow-cpu {tensorflow}, numpy {numpy}, ml_dtypes {ml_dtypes}, scikit-image {skimage}; seed {seed}.
```
python3 -m venv venv && venv/bin/pip install tensorflow-cpu=={tensorflow} ml_dtypes=={ml_dtypes} scikit-image=={skimage}
venv/bin/python scripts/make_testdata.py testdata
python3 scripts/check_testdata.py testdata
```
The last bits of the real family depend on the processor that trains; the unit family does not.

## Pictures
Crops, shrunk four times and with noise added, of three pictures in the scikit-image package, all free of copyright:
`astronaut` (Eileen Collins; NASA, public domain), `chelsea` (Stefan van der Walt, CC0), `coffee` (Rachel Michetti, CC0).
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="testdata", type=pathlib.Path)
    parser.add_argument("--answer-jobs", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer_jobs:
        run_jobs(options.answer_jobs)
        return
    cases = real_cases() + unit_cases()
    answers = ask_tensorflow(cases)
    for name in (*TENSORFLOW_OPS, "quickstart"):
        shutil.rmtree(options.folder / name, ignore_errors=True)
    options.folder.mkdir(exist_ok=True)
    lines, ratios, refusals = write_cases(options.folder, cases, answers)
    write_readme(options.folder, lines, ratios, refusals)
    for case, why in refusals:
        print(f"{case.layer.op} {case.name}: {why}")
    print(count_table(lines))
    for dtype, values in sorted(ratios.items()):
        print(f"worst ratio {DTYPE_NAMES[dtype]}: {max(values):.3f} over {len(values)} cases")


if __name__ == "__main__":
    main()
