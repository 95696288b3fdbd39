from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit.specs import (
    ArraySpec,
    BoundedArraySpec,
    add_outer_dims_nest,
    check_arrays_nest,
    remove_outer_dims_nest,
)
from tests import strategies
from tests.strategies import Pair

NAMED = BoundedArraySpec((2,), np.int64, [0, 1], 9, name="move")


@settings(max_examples=20)
@given(spec=strategies.spec_nests(), dims=strategies.outer_dims())
def test_remove_outer_dims_undoes_add_outer_dim(spec, dims):
    batched = add_outer_dims_nest(spec, dims)
    removed = remove_outer_dims_nest(batched, len(dims))
    assert spec == removed
    assert [place.value.name for place in strategies.leaves(spec)] == [
        place.value.name for place in strategies.leaves(removed)
    ]


@settings(max_examples=20)
@given(data=st.data(), spec=strategies.spec_nests(), dims=strategies.outer_dims())
def test_a_batch_of_fitting_values_fits_the_batched_spec(data, spec, dims):
    batch = data.draw(strategies.values(spec, dims))
    assert check_arrays_nest(batch, add_outer_dims_nest(spec, dims))


@settings(max_examples=20)
@given(
    data=st.data(),
    spec=strategies.specs(
        spec_shapes=strategies.shapes().filter(lambda shape: shape and shape[0])
    ),
)
def test_every_row_of_a_batch_fits_the_spec_without_the_batch(data, spec):
    """Bounds that differ from row to row widen; none gets narrower."""
    batch = data.draw(strategies.values(spec))
    row_spec = remove_outer_dims_nest(spec, 1)
    assert type(spec) is type(row_spec)
    assert all(row_spec.check_array(batch[row, ...]) for row in range(len(batch)))


@pytest.mark.parametrize("dims", [(4, 3), [4, 3], np.array([4, 3])])
def test_outer_dims_come_first(dims):
    spec = {"a": NAMED, "b": [ArraySpec((), np.float32)]}
    batched = add_outer_dims_nest(spec, dims)
    assert {
        "a": BoundedArraySpec((4, 3, 2), np.int64, [0, 1], 9),
        "b": [ArraySpec((4, 3), np.float32)],
    } == batched
    assert "move" == batched["a"].name


def test_containers_keep_their_types():
    spec = Pair(ArraySpec((), np.float32), (NAMED, {}))
    assert Pair(
        ArraySpec((5,), np.float32),
        (BoundedArraySpec((5, 2), np.int64, [0, 1], 9), {}),
    ) == add_outer_dims_nest(spec, (5,))


@pytest.mark.parametrize(
    ("minimum", "maximum", "count", "expected"),
    [
        (
            [[0, 1, 2], [3, 4, -5]],
            [[5, 6, 7], [8, 9, 10]],
            1,
            BoundedArraySpec((3,), np.int64, [0, 1, -5], [8, 9, 10]),
        ),
        (
            [[0, 1, 2], [3, 4, -5]],
            [[5, 6, 7], [8, 9, 10]],
            2,
            BoundedArraySpec((), np.int64, -5, 10),
        ),
        ([[0], [1]], 9, 1, BoundedArraySpec((3,), np.int64, 0, 9)),
        ([0, 1, 2], 9, 1, BoundedArraySpec((3,), np.int64, [0, 1, 2], 9)),
        ([[0], [1]], 9, 0, BoundedArraySpec((2, 3), np.int64, [[0], [1]], 9)),
    ],
)
def test_bounds_widen_to_cover_all_rows(minimum, maximum, count, expected):
    spec = BoundedArraySpec((2, 3), np.int64, minimum, maximum, name="move")
    removed = remove_outer_dims_nest({"a": spec}, count)
    assert {"a": expected} == removed
    assert "move" == removed["a"].name


def test_a_batch_without_rows_leaves_only_the_limits_of_the_dtype():
    """No row says anything about its bounds."""
    spec = BoundedArraySpec((0, 2), np.int64, np.zeros((0, 2)), np.ones((0, 1)))
    assert BoundedArraySpec((2,), np.int64) == remove_outer_dims_nest(spec, 1)


NO_DIMS = "outer_dims is a sequence of sizes, not {}"
VECTOR = ArraySpec((3,), np.int8)
TOO_MANY = "Cannot remove {} outer dimensions from {}, which has 1."
NO_COUNT = "num_outer_dims is a number of dimensions, not {!r}."
NO_SPEC = "{!r} is not an ArraySpec, so it has no dimensions."


@pytest.mark.parametrize(
    ("change", "spec", "dims", "kind", "message"),
    [
        *(
            (
                *(add_outer_dims_nest, NAMED, dims, TypeError),
                NO_DIMS.format("4: for one dimension write (4,)."),
            )
            for dims in (4, np.int64(4))
        ),
        (add_outer_dims_nest, NAMED, None, TypeError, NO_DIMS.format("None.")),
        (
            *(add_outer_dims_nest, NAMED, (-4,), ValueError),
            "outer_dims holds -4; a size is an integer of at least 0.",
        ),
        *(
            (
                *(remove_outer_dims_nest, VECTOR, count, ValueError),
                TOO_MANY.format(count, VECTOR),
            )
            for count in (2, -1)
        ),
        *(
            (
                *(remove_outer_dims_nest, VECTOR, count, TypeError),
                NO_COUNT.format(count),
            )
            for count in (1.0, (1,))
        ),
        *(
            (change, leaf, dims, TypeError, NO_SPEC.format(leaf))
            for change, dims in (
                (add_outer_dims_nest, (4,)),
                (remove_outer_dims_nest, 1),
            )
            for leaf in (3, None, np.zeros(3))
        ),
    ],
)
def test_specs_without_the_dimensions_are_refused(
    message_of, change, spec, dims, kind, message
):
    assert message == message_of(kind, lambda: change({"a": spec}, dims))
