#!/usr/bin/env python3
"""What PyTorch's own checks say of two weight gradients, beside `convgrad verify`; takes torch, numpy, and convgrad on PATH.

    PYTHONPATH=python python3 scripts/measure_gradcheck.py

1. A Function whose weight gradient is 1.001 times too large, of nn.Conv2d(8, 16, 3, padding=1) on 2x8x9x9 in float64: torch.autograd.gradcheck.
2. The right float32 gradient of a 3x3 layer of 8x56x56x64 -> 64, as PyTorch computes it: torch.testing.assert_close with that in float64.
"""
import re
import time

import torch
from torch.nn.grad import conv2d_weight

import convgrad


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.nn.functional.conv2d(x, w, padding=1)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return None, 1.001 * conv2d_weight(x, w.shape, dy, padding=1)


def timed(function):
    start = time.perf_counter()
    found = function()
    return found, time.perf_counter() - start


def main():
    torch.manual_seed(1)
    layer = torch.nn.Conv2d(8, 16, 3, padding=1, bias=False, dtype=torch.float64)
    x = torch.randn(2, 8, 9, 9, dtype=torch.float64)
    passes, seconds = timed(lambda: torch.autograd.gradcheck(lambda w: Wrong.apply(x, w), layer.weight, raise_exception=False))
    print(f"a weight gradient times 1.001: gradcheck {'passes it' if passes else 'fails it'} in {seconds:.1f} s")
    y = Wrong.apply(x, layer.weight)
    dy = torch.randn_like(y)
    y.backward(dy)
    verdict, seconds = timed(lambda: convgrad.verify(x, dy, layer.weight.grad, layer=layer))
    print(f"  verify in {seconds:.2f} s: {str(verdict).splitlines()[0]}")

    layer = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False)
    x, dy = torch.randn(8, 64, 56, 56), torch.randn(8, 64, 56, 56)
    layer(x).backward(dy)
    want = conv2d_weight(x.double(), layer.weight.shape, dy.double(), padding=1)
    try:
        torch.testing.assert_close(layer.weight.grad, want, check_dtype=False)
        said = "rejects none"
    except AssertionError as error:
        said = "rejects " + re.search(r"Mismatched elements: (.*)", str(error))[1]
    print(f"a right float32 gradient: assert_close with float64 {said}")
    verdict, seconds = timed(lambda: convgrad.verify(x, dy, layer.weight.grad, layer=layer))
    print(f"  verify in {seconds:.2f} s: {str(verdict).splitlines()[0]}")


if __name__ == "__main__":
    main()
