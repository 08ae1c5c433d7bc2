"""Assertions for the tests of a kernel, in pytest or without."""
from __future__ import annotations

from ._keywords import assert_filter_gradient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["assert_filter_gradient", "lines"]


def lines(op: str = "conv2d") -> Any:
    """A strategy of hypothesis, which has to be installed: lines of small problems of conv1d, conv2d or conv3d, for verify_function()."""
    from hypothesis import strategies
    axes = int(op[-2])
    small = strategies.integers(1, 3)

    @strategies.composite
    def line(draw: Any) -> str:
        taps, strides, dilations, pads = ([draw(small) for _ in range(axes)] for _ in range(4))
        groups = draw(strategies.sampled_from((1, 1, 2)))
        sizes = [f"{name}{(tap - 1) * dilation + draw(strategies.integers(1, 8))}" for name, tap, dilation in
                 zip("dhw"[-axes:], taps, dilations)]
        taps = [f"{name}{tap}" for name, tap in zip("trs"[-axes:], taps)]
        words = [f"{name}{','.join(map(str, each))}" for name, each in (("stride", strides), ("dilation", dilations), ("pad", pads))]
        return " ".join([op, f"n{draw(small)}", *sizes, f"c{groups * draw(small)}", f"k{groups * draw(small)}", *taps, f"groups{groups}", *words])

    return line()
