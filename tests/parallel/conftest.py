"""Fixtures for tests of pools: a test that takes `backend` runs on every backend."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parallel.streams import BACKENDS, EVERYWHERE


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    """A backend of this process's machine."""
    return request.param


@pytest.fixture(scope="module", params=EVERYWHERE)
def any_backend(request: pytest.FixtureRequest) -> Any:
    """A backend that `streams.pool_of` can make: those, and linked workers."""
    return request.param
