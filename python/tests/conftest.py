from __future__ import annotations

from typing import Any

import frameworks
import pytest


@pytest.fixture(params=["numpy", "torch"])
def fw(request: pytest.FixtureRequest) -> Any:
    """A framework whose arrays the test uses."""
    return frameworks.make(request.param)
