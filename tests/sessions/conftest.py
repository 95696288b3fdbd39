"""Every test here checks that no process, thread or shared memory is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.residue import Residue
from tests.sessions.environments import IS_OVER
from tests.waiting import until


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = Residue.now()
    yield
    IS_OVER.set()
    assert until(lambda: not Residue.now().since(before)), Residue.now().since(before)
    IS_OVER.clear()
