"""Packing leaves into one vector."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec
from envkit.specs import add_outer_dims_nest, check_arrays_nest
from envkit.wrappers.observations.packing import Packing
from tests import strategies

LEAVES = st.lists(strategies.specs("biuf", any_byte_order=True), min_size=1, max_size=3)


def common_dtype(specs):
    return np.result_type(*[spec.dtype for spec in specs])


@given(LEAVES, st.sampled_from([(), (1,), (3,)]), st.data())
def test_the_vector_has_all_elements_of_a_row_in_order(specs, dims, data):
    packing = Packing(specs, dims, common_dtype(specs))
    leaves = [data.draw(strategies.values(spec, dims)) for spec in specs]

    packed = packing.pack(leaves)

    for row in np.ndindex(dims):
        expected = np.concatenate([leaf[row].ravel() for leaf in leaves])
        assert np.array_equal(expected, packed[row])


@given(LEAVES, st.sampled_from([(), (3,)]), st.data())
def test_the_vector_fits_its_spec(specs, dims, data):
    packing = Packing(specs, dims, common_dtype(specs), "packed")
    leaves = [data.draw(strategies.values(spec, dims)) for spec in specs]

    assert "packed" == packing.spec.name
    assert check_arrays_nest(
        packing.pack(leaves), add_outer_dims_nest(packing.spec, dims)
    )


def test_bounds_are_put_together_too():
    specs = [
        BoundedArraySpec((2,), np.float32, [-1.0, -2.0], 3.0),
        ArraySpec((), np.bool_),
    ]
    expected = BoundedArraySpec((3,), np.float32, [-1.0, -2.0, 0.0], [3.0, 3.0, 1.0])

    assert expected == Packing(specs, (), np.float32).spec


def test_one_leaf_without_bounds_leaves_the_vector_without():
    specs = [BoundedArraySpec((2,), np.float32, -1.0, 3.0), ArraySpec((), np.float32)]

    assert ArraySpec((3,), np.float32) == Packing(specs, (), np.float32).spec


def test_an_infinite_bound_stays_infinite_in_another_dtype():
    specs = [BoundedArraySpec((), np.float32), BoundedArraySpec((), np.int32, 0, 1)]
    expected = BoundedArraySpec((2,), np.float64, [-np.inf, 0], [np.inf, 1])

    assert expected == Packing(specs, (), np.float64).spec


def test_booleans_alone_make_a_vector_of_booleans():
    packing = Packing([ArraySpec((2,), np.bool_)], (), np.bool_)

    assert ArraySpec((2,), np.bool_) == packing.spec


def test_the_vector_shares_no_memory_with_a_single_leaf():
    leaf = np.zeros(3)

    packed = Packing([ArraySpec((3,), np.float64)], (), np.float64).pack([leaf])

    assert not np.shares_memory(leaf, packed)
