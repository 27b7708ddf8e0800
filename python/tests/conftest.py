from __future__ import annotations

from typing import Any

import frameworks
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """A problem without a kernel for this device is skipped, not passed: the summary says which."""
    try:
        return (yield)
    except NotImplementedError as error:
        fw = pyfuncitem.funcargs.get("fw")
        if fw is None or not fw.on_device or "no kernel takes this problem" not in str(error):
            raise
        pytest.skip(f"NO KERNEL: {error}")


@pytest.fixture(params=["numpy", "torch"])
def fw(request: pytest.FixtureRequest) -> Any:
    """A framework whose arrays the test uses."""
    return frameworks.make(request.param)
