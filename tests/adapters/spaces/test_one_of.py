"""Values of one of several specs, and values that say nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from envkit import BoundedArraySpec, nest
from envkit.adapters.spaces.one_of import OneOf, neutral_value
from envkit.specs import TextSpec, check_arrays_nest
from tests import strategies


def test_a_union_of_specs_is_a_nest():
    spec = OneOf(
        BoundedArraySpec((), np.int64, 0, 1),
        (BoundedArraySpec((), np.int64, 0, 4), {"a": TextSpec((), "<U3")}),
    )

    assert ["tag", "branches[0]", "branches[1]['a']"] == [
        path for path, _ in nest.flatten_with_paths(spec)
    ]


@given(spec=strategies.spec_nests())
@settings(max_examples=50)
def test_a_neutral_value_fits(spec):
    assert check_arrays_nest(neutral_value(spec), spec)


def test_a_neutral_number_is_as_near_to_zero_as_it_may_be():
    spec = BoundedArraySpec((3,), np.int64, [5, -1, -9], [9, 1, -7])

    assert [5, 0, -7] == neutral_value(spec).tolist()


def test_a_neutral_text_is_as_short_as_it_may_be():
    assert "" == neutral_value(TextSpec((), "<U3"))
    assert "bb" == neutral_value(TextSpec((), "<U3", min_length=2, letters="ba"))
    assert "  " == neutral_value(TextSpec((), "<U3", min_length=2))
