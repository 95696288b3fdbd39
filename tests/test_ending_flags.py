"""The two flags of an info, and what is none."""

from __future__ import annotations

import numpy as np
import pytest

from envkit.ending_flags import flags_in


@pytest.mark.parametrize("make", [bool, np.bool_, np.array])
def test_flags_of_any_make_are_found(make):
    info = {"terminated": make(True), "lives": 2, "truncated": make(False)}

    assert (make(True), make(False)) == flags_in(info)
    assert 3 == len(info)


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"terminated": True},
        {"truncated": True},
        {"terminated": 1, "truncated": 0},
        {"terminated": True, "truncated": None},
        {"terminated": np.array(1), "truncated": np.array(0)},
        {"terminated": np.zeros(2, bool), "truncated": np.zeros(2, bool)},
    ],
)
def test_what_is_no_pair_of_booleans_is_none(info):
    assert flags_in(info) is None
