"""Infos and the flags in them."""

from __future__ import annotations

import numpy as np
import pytest

from envkit.adapters.episode_ends import as_info, take_flags


@pytest.mark.parametrize("make", [bool, np.bool_, np.array])
def test_flags_of_any_make_are_taken_out(make):
    info = {"terminated": make(True), "lives": 2, "truncated": make(False)}

    assert (True, False) == take_flags(info)
    assert {"lives": 2} == info


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"terminated": True},
        {"truncated": np.array(True)},
        {"terminated": 1, "truncated": 0},
        {"terminated": True, "truncated": "no"},
        {"terminated": np.zeros(2, bool), "truncated": np.zeros(2, bool)},
    ],
)
def test_what_is_no_pair_of_flags_stays(info):
    before = dict(info)

    assert take_flags(info) is None
    assert before.keys() == info.keys()


def test_an_info_is_a_dictionary_of_its_own():
    info = {"lives": 2}

    as_info(info)["lives"] = 3

    assert {"lives": 2} == info


def test_what_is_no_dictionary_becomes_the_only_value_of_one():
    assert {"info": (1, 2)} == as_info((1, 2))
