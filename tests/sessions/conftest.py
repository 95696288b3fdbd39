"""Every test here checks that no process, thread or shared memory is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.residue import Residue, described, left_behind
from tests.sessions.environments import IS_OVER


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    IS_OVER.clear()
    before = Residue.now()
    yield
    IS_OVER.set()
    left = left_behind(before)
    assert not left, described(left)
