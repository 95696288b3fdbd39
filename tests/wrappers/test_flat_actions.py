"""FlattenActionWrapper: all parts of an action in one array."""

from __future__ import annotations

import contextlib

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.errors import SpecError
from envkit.specs.sampling import sample_spec_nest
from envkit.wrappers.flat_actions import FlattenActionWrapper
from tests import strategies
from tests.wrappers.recorder import Recorder

GEAR = BoundedArraySpec((), np.int64, 1, 3)
WHEEL = BoundedArraySpec((2,), np.float32, [-1.0, -2.0], [1.0, 2.0])
CAR = {"wheel": WHEEL, "gear": GEAR}
THREE = (
    BoundedArraySpec((3,), np.float32, -1, 1),
    BoundedArraySpec((), np.float32, -2, 2),
    BoundedArraySpec((5,), np.float32, -3, 3),
)


def begun(wrapper):
    """Returns a wrapper whose first episode has begun, and what the inside is given."""
    wrapper.reset()
    return wrapper, wrapper.unwrapped.given


def test_the_spec_has_an_element_for_each_of_the_parts():
    spec = FlattenActionWrapper(
        Recorder(tuple(ArraySpec.from_spec(part) for part in THREE))
    ).action_spec()
    assert ArraySpec((9,), np.float32) == spec
    assert "FlattenedActionSpec" == spec.name


def test_the_bounds_are_concatenated():
    spec = FlattenActionWrapper(Recorder(THREE)).action_spec()
    assert [-1] * 3 + [-2] + [-3] * 5 == spec.minimum.tolist()
    assert [1] * 3 + [2] + [3] * 5 == spec.maximum.tolist()
    assert ((9,), np.float32, "FlattenedActionSpec") == (
        spec.shape,
        spec.dtype,
        spec.name,
    )


def test_one_part_without_bounds_removes_all_bounds():
    spec = FlattenActionWrapper(Recorder((*THREE, ArraySpec((), np.float32))))
    assert ArraySpec((10,), np.float32) == spec.action_spec()


def test_parts_are_taken_in_the_order_of_leaves():
    """Which is that of the keys, not that of the dictionary."""
    env, inside = begun(FlattenActionWrapper(Recorder(CAR), np.float32))
    env.step(np.array([3, 0.5, 2], np.float32))
    assert ["wheel", "gear"] == list(inside[0])
    assert 3 == inside[0]["gear"]
    assert [0.5, 2] == inside[0]["wheel"].tolist()
    assert [np.float32, np.int64] == [leaf.dtype for leaf in inside[0].values()]
    assert [(2,), ()] == [leaf.shape for leaf in inside[0].values()]


def test_fractions_are_cut_off_for_integers():
    env, inside = begun(
        FlattenActionWrapper(Recorder(BoundedArraySpec((4,), np.int32, -2, 2)), float)
    )
    env.step([-2.9, -0.9, 0.9, 2.9])
    assert [-2, 0, 0, 2] == inside[0].tolist()


def test_a_single_number_becomes_a_vector():
    env, inside = begun(FlattenActionWrapper(Recorder(GEAR)))
    env.step([2])
    assert BoundedArraySpec((1,), np.int64, 1, 3) == env.action_spec()
    assert [2] == inside


def test_an_empty_part_takes_no_elements():
    spec = (ArraySpec((0,), np.float32), ArraySpec((2,), np.float32))
    env, inside = begun(FlattenActionWrapper(Recorder(spec)))
    env.step([1.0, 2.0])
    assert [[], [1, 2]] == [leaf.tolist() for leaf in inside[0]]


def test_the_environment_gets_its_own_arrays():
    given_arrays = []

    class Keeper(Recorder):
        def _step(self, action):
            given_arrays.append(action)
            return super()._step(action)

    env, _ = begun(FlattenActionWrapper(Keeper(THREE)))
    action = np.zeros(9, np.float32)
    env.step(action)
    assert not any(np.shares_memory(action, leaf) for leaf in given_arrays[0])


@pytest.mark.parametrize(
    ("spec", "flat_dtype", "minimum", "maximum"),
    [
        (BoundedArraySpec((), np.float64, -0.5, 1.5), np.int8, 0, 1),
        (BoundedArraySpec((), np.int64, -300, 300), np.int8, -128, 127),
        (BoundedArraySpec((), np.float32), np.int8, -128, 127),
        (
            BoundedArraySpec((), np.float32, 0),
            np.float64,
            0,
            np.finfo(np.float32).max,
        ),
        (BoundedArraySpec((), np.int64, 0, 2**63 - 1), np.float64, 0, 2**63 - 1024),
    ],
)
def test_bounds_cast_to_another_dtype_stay_within_the_old_ones(
    spec, flat_dtype, minimum, maximum
):
    flat = FlattenActionWrapper(Recorder(spec), flat_dtype).action_spec()
    assert BoundedArraySpec((1,), flat_dtype, minimum, maximum) == flat


@given(
    spec=st.lists(
        strategies.bounded_specs(spec_shapes=strategies.shapes(max_dims=1)),
        min_size=1,
        max_size=3,
    ),
    flat_dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 99),
)
def test_actions_within_the_flat_spec_unflatten_within_the_nested_one(
    spec, flat_dtype, seed
):
    rng = np.random.default_rng(seed)
    wrapper = None
    # Between two large integers, for one, there need not be a floating number.
    with contextlib.suppress(ValueError):
        wrapper = FlattenActionWrapper(Recorder(spec, 5, 5), flat_dtype)
    hypothesis.assume(wrapper is not None)
    env, inside = begun(wrapper)

    env.step(sample_spec_nest(env.action_spec(), rng, (2,)))

    for leaf, part in zip(inside[0], spec, strict=True):
        assert (2, *part.shape) == leaf.shape
        assert part.dtype == leaf.dtype
        assert (leaf >= part.minimum).all()
        assert (leaf <= part.maximum).all()


@given(seed=st.integers(0, 99), spec=st.sampled_from([CAR, THREE, [GEAR, (WHEEL,)]]))
def test_flattening_and_unflattening_are_inverse(seed, spec):
    action = sample_spec_nest(spec, np.random.default_rng(seed))
    env, inside = begun(FlattenActionWrapper(Recorder(spec), np.float64))
    env.step(np.hstack(nest.flatten(action)))
    nest.map_structure(np.testing.assert_array_equal, action, inside[0])


def test_repr_shows_the_dtype():
    env = FlattenActionWrapper(Recorder(CAR), np.float32)
    assert "FlattenActionWrapper(Recorder(), flat_dtype=dtype('float32'))" == repr(env)


@pytest.mark.parametrize(
    ("spec", "flat_dtype", "message"),
    [
        (
            CAR,
            None,
            "All action_spec dtypes must match, or `flat_dtype` should be set, and the "
            "action spec of Recorder has int64 at ['gear'] and float32 at ['wheel'].",
        ),
        (
            [BoundedArraySpec((2, 2), np.int64, 0, 1)],
            None,
            "ActionSpec shapes should all have ndim == 1, or be scalar, for "
            "FlattenActionWrapper, and the action spec of Recorder at [0] is "
            "BoundedArraySpec(shape=(2, 2), dtype=int64, minimum=0, maximum=1).",
        ),
        (
            (),
            None,
            "FlattenActionWrapper has nothing to flatten: the action spec of Recorder "
            "is ().",
        ),
        (
            {"name": ArraySpec((), "U5"), "gear": GEAR},
            np.float32,
            "flat_dtype is float32, and only numbers convert to another dtype: the "
            "action spec of Recorder at ['name'] is ArraySpec(shape=(), dtype=<U5).",
        ),
        (
            BoundedArraySpec((), np.float64, 0.2, 0.8),
            np.int32,
            "flat_dtype is int32, which has no number between the bounds of some "
            "part: the action spec of Recorder is BoundedArraySpec(shape=(), "
            "dtype=float64, minimum=0.2, maximum=0.8).",
        ),
    ],
)
def test_actions_that_cannot_be_flattened_are_refused(
    spec, flat_dtype, message, message_of
):
    assert (message) == message_of(
        ValueError, lambda: FlattenActionWrapper(Recorder(spec), flat_dtype)
    )


def test_an_action_of_another_length_is_refused(message_of):
    env, inside = begun(FlattenActionWrapper(Recorder(THREE)))
    assert (
        "FlattenActionWrapper.step() was given an action of incorrect shape that does "
        "not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(9,), dtype=float32, minimum=[-1.0 … "
        "-3.0], maximum=[1.0 … 3.0], name='FlattenedActionSpec')\n"
        "  got        array of shape (8,), dtype float32, values 0.0 … 0.0\n\n"
        "Axis 0 has size 8 instead of 9.\n"
        "The environment has not moved."
    ) == message_of(SpecError, lambda: env.step(np.zeros(8)))
    assert [] == inside


@pytest.mark.parametrize(
    ("gear", "values", "reason"),
    [
        (4.9, "4.9 … 4.9", "4.9, above the maximum 3"),
        (np.inf, "inf … inf", "inf, above the maximum 3"),
        (0.9, "0.9 … 0.9", "0.9, below the minimum 1"),
        (np.nan, None, "nan, which is not an integer"),
    ],
)
def test_the_error_for_a_part_names_its_place_in_the_nest(gear, values, reason):
    env, inside = begun(FlattenActionWrapper(Recorder(CAR), np.float64))

    with pytest.raises(SpecError) as error:
        env.step([gear, 0, 0])

    got = ", all NaN" if values is None else f", values {values}"
    assert (
        "FlattenActionWrapper.step() was given an action that does not fit its spec at "
        "action['gear'].\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=1, maximum=3)\n"
        f"  got        array of shape (), dtype float64{got}\n\n"
        f"The value is {reason}.\n"
        "The environment has not moved."
    ) == str(error.value)
    assert [] == inside


def test_the_action_of_a_row_that_begins_an_episode_is_not_checked():
    env, inside = begun(FlattenActionWrapper(Recorder(CAR, 1, 9), np.float64))
    env.step([[1, 0, 0], [1, 0, 0]])
    time_step = env.step([[np.nan, 1e300, np.inf], [3, 0.5, 0.5]])
    assert [0, 1] == time_step.step_type.tolist()
    assert [1, 3] == inside[-1]["gear"].tolist()
    assert [[0, np.inf], [0.5, 0.5]] == inside[-1]["wheel"].tolist()
