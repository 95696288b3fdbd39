"""Every test here checks that nothing is left behind."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _nothing_left_behind(nothing_left_behind: None) -> None:
    """Looks when the other fixtures of the test are done."""
