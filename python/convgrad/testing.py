"""Assertions for the tests of a kernel, in pytest or without."""
import os

import convgrad

__all__ = ["assert_filter_gradient"]


def assert_filter_gradient(dw, x, dy, **flags):
    """Raises an AssertionError with the whole verdict if dw is not the gradient of x and dy; see convgrad.verify for all of them.

    On a mismatch a small problem that fails in the same way, and the command that repeats it, are in a new folder, which the verdict
    names; save_repro=FOLDER says where.
    """
    __tracebackhide__ = True
    check("", dw, x, dy, **flags)


def check(what, dw, x, dy, **flags):
    """The same, for a message that begins with what was tried."""
    __tracebackhide__ = True
    import tempfile
    made = None if "save_repro" in flags else tempfile.mkdtemp(prefix="convgrad-")
    try:
        verdict = convgrad.verify(x, dy, dw, **{"save_repro": made} | flags)
    finally:
        if made and not os.listdir(made):
            os.rmdir(made)
    if not verdict:
        raise AssertionError(f"{what}{verdict}")
