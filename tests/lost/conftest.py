"""Every test here checks that no process and no shared memory is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lost.leftovers import expect_nothing_since
from tests.residue import Residue


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    before = Residue.now()
    yield
    expect_nothing_since(before)
