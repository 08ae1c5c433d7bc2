"""What pytest gets with the package: the fixture filter_gradient_golden, and --update-golden."""
from __future__ import annotations

import itertools
import os
import re

import pytest

import convgrad

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pathlib
    from typing import Any, Callable

__tracebackhide__ = True


def pytest_addoption(parser: pytest.Parser) -> None:
    try:
        parser.addoption("--update-golden", action="store_true", help="filter_gradient_golden writes gradients that match the reference")
    except ValueError:  # another plugin has it: then it serves both
        pass


@pytest.fixture
def filter_gradient_golden(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Callable[..., convgrad.Verdict]:
    """A function like convgrad.testing.assert_filter_gradient(x, dy, dw, ...) that also judges golden/FILE.TEST.npy beside the test's
    FILE.py, FILE.TEST.2.npy when it is called again. With --update-golden it writes that file. What fails is kept in the folder of tmp_path."""
    update = bool(request.config.getoption("--update-golden", default=False))
    folder, calls = os.path.join(os.path.dirname(str(request.path)), "golden"), itertools.count(1)
    name = re.sub(r"[^\w.,=-]+", "_", f"{request.path.stem}.{request.node.name}")

    def check(x: Any, dy: Any, dw: Any, **keywords: Any) -> convgrad.Verdict:
        call = next(calls)
        golden = os.path.join(folder, f"{name}.npy" if call == 1 else f"{name}.{call}.npy")
        if update:
            os.makedirs(folder, exist_ok=True)
        elif not os.path.exists(golden):
            raise convgrad.Error(f"there is no golden file yet: pytest --update-golden writes {golden}", 3)
        verdict = convgrad.verify(x, dy, dw, golden=golden, update_golden=update, **{"save": tmp_path / "failed", **keywords})
        if not verdict:
            text = str(verdict)
            if not update and all(result["got"] == golden or result["verdict"] == "match" for result in verdict.report["compare"]["results"]):
                text += "\nnext: dw is right: pytest --update-golden writes it in the place of the golden file"
            raise AssertionError(text)
        return verdict

    return check
