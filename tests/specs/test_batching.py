from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
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


@given(spec=strategies.spec_nests(), dims=strategies.outer_dims())
def test_removing_undoes_adding(spec, dims):
    batched = add_outer_dims_nest(spec, dims)

    removed = remove_outer_dims_nest(batched, len(dims))

    assert spec == removed
    assert [place.value.name for place in strategies.leaves(spec)] == [
        place.value.name for place in strategies.leaves(removed)
    ]


@given(data=st.data(), spec=strategies.spec_nests(), dims=strategies.outer_dims())
def test_a_batch_of_fitting_values_fits_the_batched_spec(data, spec, dims):
    batch = data.draw(strategies.values(spec, dims))

    assert check_arrays_nest(batch, add_outer_dims_nest(spec, dims))


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
def test_outer_dims_come_before_the_specs_own(dims):
    spec = {"a": NAMED, "b": [ArraySpec((), np.float32)]}

    batched = add_outer_dims_nest(spec, dims)

    assert {
        "a": BoundedArraySpec((4, 3, 2), np.int64, [0, 1], 9),
        "b": [ArraySpec((4, 3), np.float32)],
    } == batched
    assert "move" == batched["a"].name


def test_containers_stay_what_they_are():
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
def test_bounds_widen_to_hold_all_rows(minimum, maximum, count, expected):
    spec = BoundedArraySpec((2, 3), np.int64, minimum, maximum, name="move")

    removed = remove_outer_dims_nest({"a": spec}, count)

    assert {"a": expected} == removed
    assert "move" == removed["a"].name


def test_a_batch_without_rows_leaves_the_limits_of_the_dtype():
    """No row says anything about its bounds."""
    spec = BoundedArraySpec((0, 2), np.int64, np.zeros((0, 2)), np.ones((0, 1)))

    assert BoundedArraySpec((2,), np.int64) == remove_outer_dims_nest(spec, 1)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (4, "outer_dims is a sequence of sizes, not 4: for one dimension write (4,)."),
        (
            np.int64(4),
            "outer_dims is a sequence of sizes, not 4: for one dimension write (4,).",
        ),
        (None, "outer_dims is a sequence of sizes, not None."),
    ],
)
def test_what_are_no_dimensions_are_not_added(message_of, dims, message):
    raised = message_of(TypeError, lambda: add_outer_dims_nest({"a": NAMED}, dims))

    assert message == raised


def test_negative_dimensions_are_not_added(message_of):
    raised = message_of(ValueError, lambda: add_outer_dims_nest(NAMED, (-4,)))

    assert "outer_dims holds -4; a size is an integer of at least 0." == raised


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (
            2,
            "Cannot remove 2 outer dimensions from ArraySpec(shape=(3,), dtype=int8), "
            "which has 1.",
        ),
        (
            -1,
            "Cannot remove -1 outer dimensions from ArraySpec(shape=(3,), dtype=int8), "
            "which has 1.",
        ),
    ],
)
def test_more_dimensions_than_there_are_cannot_be_removed(message_of, count, message):
    raised = message_of(
        ValueError,
        lambda: remove_outer_dims_nest({"a": ArraySpec((3,), np.int8)}, count),
    )

    assert message == raised


@pytest.mark.parametrize("count", [1.0, (1,)])
def test_the_number_of_dimensions_to_remove_is_an_integer(message_of, count):
    raised = message_of(
        TypeError, lambda: remove_outer_dims_nest(ArraySpec((3,), np.int8), count)
    )

    assert (f"num_outer_dims is a number of dimensions, not {count!r}.") == raised


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: add_outer_dims_nest(spec, (4,)),
        lambda spec: remove_outer_dims_nest(spec, 1),
    ],
    ids=["add", "remove"],
)
@pytest.mark.parametrize("leaf", [3, None, np.zeros(3)], ids=repr)
def test_only_specs_have_dimensions(message_of, change, leaf):
    raised = message_of(TypeError, lambda: change({"a": leaf}))

    assert f"{leaf!r} is not an ArraySpec, so it has no dimensions." == (raised)
