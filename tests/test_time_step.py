from __future__ import annotations

import decimal
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import nest
from envkit.errors import SpecError
from envkit.specs import ArraySpec, BoundedArraySpec, add_outer_dims_nest, check_fits
from envkit.time_step import (
    StepType,
    TimeStep,
    flags_in,
    restart,
    termination,
    time_step_spec,
    transition,
    truncation,
)
from tests import strategies

OBSERVATION = np.arange(4.0)
MAKERS = [transition, termination, truncation]


def shapes_of(time_step: TimeStep) -> tuple[Any, ...]:
    """Returns the shapes of step type, reward and discount."""
    return tuple(np.shape(field) for field in time_step[:3])


def assert_equal(expected: Any, actual: Any) -> None:
    """Compares arrays with their dtypes, which == of NumPy does not."""
    np.testing.assert_array_equal(expected, actual, strict=True)


# StepType.


def test_step_types_are_read_only_scalar_arrays_of_int32():
    assert [0, 1, 2] == [StepType.FIRST, StepType.MID, StepType.LAST]
    for constant in (StepType.FIRST, StepType.MID, StepType.LAST):
        assert (np.ndarray, (), np.int32) == (
            type(constant),
            constant.shape,
            constant.dtype,
        )
        with pytest.raises(ValueError, match="read-only"):
            constant[()] = 1


@pytest.mark.parametrize(
    "value", [1, 1.0, True, np.int8(1), np.array(1), np.array(1, np.int32)]
)
def test_a_step_type_is_made_from_its_number(value):
    assert StepType(value) is StepType.MID


@pytest.mark.parametrize(
    "value", [3, -1, 0.5, np.nan, None, "a", [0], np.array([0, 1]), {}]
)
def test_step_types_are_made_only_from_their_numbers(message_of, value):
    assert (
        f"No known conversion from {value!r} to a StepType: FIRST is 0, MID is 1, LAST "
        "is 2."
    ) == message_of(ValueError, lambda: StepType(value))


# TimeStep.


def test_name_and_fields_are_what_tensorflow_compares():
    assert "TimeStep" == TimeStep.__name__
    assert ("step_type", "reward", "discount", "observation") == TimeStep._fields


def test_time_steps_refuse_new_attributes():
    with pytest.raises(AttributeError):
        TimeStep(1, 2, 3, 4).value = 5


@pytest.mark.parametrize(
    ("step_type", "first", "mid", "last"),
    [
        (StepType.FIRST, True, False, False),
        (StepType.MID, False, True, False),
        (StepType.LAST, False, False, True),
        (np.int64(2), False, False, True),
        (1, False, True, False),
    ],
)
def test_a_time_step_knows_its_place_in_the_episode(step_type, first, mid, last):
    time_step = TimeStep(step_type, 0.0, 1.0, OBSERVATION)
    answers = [time_step.is_first(), time_step.is_mid(), time_step.is_last()]
    assert [first, mid, last] == answers
    assert {np.bool_} == {type(answer) for answer in answers}


@pytest.mark.parametrize("dims", [(3,), (1, 3), (0,)])
@pytest.mark.parametrize(
    "convert", [np.array, np.ndarray.tolist], ids=["array", "list"]
)
def test_a_batch_is_asked_row_by_row(dims, convert):
    step_type = np.resize([0, 1, 2], dims).astype(np.int32)
    time_step = TimeStep(convert(step_type), 0.0, 1.0, OBSERVATION)
    assert_equal(np.resize([True, False, False], dims), time_step.is_first())
    assert_equal(np.resize([False, True, False], dims), time_step.is_mid())
    assert_equal(np.resize([False, False, True], dims), time_step.is_last())


def test_a_time_step_of_numbers_prints_on_one_line():
    assert (
        "TimeStep(\n{'step_type': 1, 'reward': 2, 'discount': 1, 'observation': -1})"
    ) == repr(TimeStep(1, 2, 1, -1))


def test_a_time_step_of_arrays_prints_field_by_field():
    assert (
        "TimeStep(\n"
        "{'step_type': array([0, 0], dtype=int32),\n"
        " 'reward': array([0., 0.], dtype=float32),\n"
        " 'discount': array([1., 1.], dtype=float32),\n"
        " 'observation': {'b': array([0., 1., 2., 3.]), 'a': 7}})"
    ) == str(restart({"b": OBSERVATION, "a": 7}, batch_size=2))


def test_time_steps_of_numbers_have_a_hash_and_those_of_arrays_none():
    assert hash(TimeStep(1, 2, 1, {"a": -1})) == hash(TimeStep(1, 2, 1, {"a": -1}))
    with pytest.raises(TypeError, match="unhashable type"):
        hash(restart(OBSERVATION))


def test_a_time_step_can_be_pickled():
    time_step = transition({"a": OBSERVATION}, 0.5, 0.25)
    copied = pickle.loads(pickle.dumps(time_step))
    assert TimeStep is type(copied)
    np.testing.assert_equal(time_step, copied)


# restart.


def test_restart_begins_an_episode():
    time_step = restart(OBSERVATION)
    assert time_step.step_type is StepType.FIRST
    assert_equal(np.array(0, np.float32), time_step.reward)
    assert_equal(np.array(1, np.float32), time_step.discount)


@pytest.mark.parametrize(
    ("batch_size", "dims"),
    [
        (3, (3,)),
        (np.int32(3), (3,)),
        ([3], (3,)),
        ((2, 3), (2, 3)),
        (np.array([2, 3]), (2, 3)),
        (0, (0,)),
        ((), ()),
        ([], ()),
        (None, ()),
    ],
)
def test_restart_begins_the_episodes_of_a_batch(batch_size, dims):
    time_step = restart(OBSERVATION, batch_size)
    assert_equal(np.zeros(dims, np.int32), time_step.step_type)
    assert_equal(np.zeros(dims, np.float32), time_step.reward)
    assert_equal(np.ones(dims, np.float32), time_step.discount)


@pytest.mark.parametrize(
    "observation", [OBSERVATION, 7, "text", (), None, {"a": [OBSERVATION], "b": 3}]
)
@pytest.mark.parametrize(
    "make",
    [
        restart,
        lambda observation: transition(observation, 0.0),
        lambda observation: termination(observation, 0.0),
        lambda observation: truncation(observation, 0.0),
        lambda observation: transition(observation, np.zeros(3)),
    ],
)
def test_observations_are_passed_through_unchanged(make, observation):
    assert make(observation).observation is observation


@pytest.mark.parametrize(("batch_size", "dims"), [(2, (2,)), (None, ())])
def test_restart_makes_the_reward_of_its_spec(batch_size, dims):
    reward_spec = {
        "score": ArraySpec((3,), np.float64),
        "parts": [BoundedArraySpec((), np.int8, 5, 9)],
    }
    reward = restart(OBSERVATION, batch_size, reward_spec).reward
    assert ["score", "parts"] == list(reward)
    assert_equal(np.zeros((*dims, 3), np.float64), reward["score"])
    assert_equal(np.zeros(dims, np.int8), reward["parts"][0])


@pytest.mark.parametrize(
    "batch_size", [-1, 2.0, True, "a", [[2]], [None], {}, [1, [2, 3]], [2, -1]]
)
def test_restart_refuses_an_invalid_batch_size(message_of, batch_size):
    assert (
        f"restart() was given {batch_size!r} as batch_size; a size or a sequence of "
        "sizes is expected."
    ) == message_of(SpecError, lambda: restart(OBSERVATION, batch_size))


@pytest.mark.parametrize(
    ("reward_spec", "path"),
    [
        (3, "reward_spec"),
        ({"a": [None]}, "reward_spec['a'][0]"),
        (np.float32, "reward_spec"),
    ],
)
def test_restart_refuses_an_invalid_reward_spec(message_of, reward_spec, path):
    leaf = nest.first_leaf(reward_spec)
    assert (
        f"restart() was given {leaf!r} as {path}, which is not a spec."
    ) == message_of(TypeError, lambda: restart(OBSERVATION, 2, reward_spec))


# transition, termination, truncation: one reward.


@pytest.mark.parametrize(
    "reward", [1, 1.0, True, np.float32(1), np.float64(1), np.int8(1), np.array(1.0)]
)
@pytest.mark.parametrize(
    ("make", "step_type", "discount"),
    [
        (transition, StepType.MID, 1.0),
        (termination, StepType.LAST, 0.0),
        (truncation, StepType.LAST, 1.0),
    ],
)
def test_a_number_is_the_reward_of_one_environment(make, step_type, discount, reward):
    time_step = make(OBSERVATION, reward)
    assert time_step.step_type is step_type
    assert_equal(np.array(1, np.float32), time_step.reward)
    assert_equal(np.array(discount, np.float32), time_step.discount)


@pytest.mark.parametrize("make", [transition, truncation])
@pytest.mark.parametrize(
    "discount",
    [0.5, np.float16(0.5), np.float64(0.5), np.array(0.5), 0, 1, True, np.int64(1)],
)
@pytest.mark.parametrize(
    ("reward", "outer_dims", "dims"),
    [(1.0, None, ()), (np.ones((2, 3)), (2, 3), (2, 3))],
)
def test_a_discount_is_kept_as_float32_for_every_row(
    make, discount, reward, outer_dims, dims
):
    time_step = make(OBSERVATION, reward, discount, outer_dims)
    assert_equal(np.full(dims, discount, np.float32), time_step.discount)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("reward", [np.nan, np.array(np.nan), np.array([1.0, np.nan])])
def test_a_reward_may_be_nan(make, reward):
    assert np.isnan(make(OBSERVATION, reward).reward).any()


# Batches.


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, bool])
@pytest.mark.parametrize(
    ("make", "step_type", "discount"),
    [
        (transition, 1, 1.0),
        (termination, 2, 0.0),
        (truncation, 2, 1.0),
    ],
)
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1,), (0,)])
def test_a_reward_with_a_dimension_is_a_batch(make, step_type, discount, dtype, shape):
    """Of a vector reward, each row has one step type and one discount."""
    time_step = make(OBSERVATION, np.ones(shape, dtype))
    assert_equal(np.full(shape[0], step_type, np.int32), time_step.step_type)
    assert_equal(np.ones(shape, np.float32), time_step.reward)
    assert_equal(np.full(shape[0], discount, np.float32), time_step.discount)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("outer_dims", "dims"),
    [((2, 3), (2, 3)), ([2], (2,)), (np.array([2, 3]), (2, 3)), ((), ()), ([], ())],
)
def test_outer_dims_name_the_batchs_dimensions(make, outer_dims, dims):
    time_step = make(OBSERVATION, np.ones((2, 3)), outer_dims=outer_dims)
    assert (dims, (2, 3), dims) == shapes_of(time_step)
    assert np.int32 == time_step.step_type.dtype


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_outer_dims_keep_the_dtype_of_the_reward(make, dtype):
    assert_equal(
        np.ones(2, dtype), make(OBSERVATION, np.ones(2, dtype), outer_dims=(2,)).reward
    )
    assert_equal(np.array(1, dtype), make(OBSERVATION, dtype(1), outer_dims=()).reward)
    # A number of Python has no dtype to keep.
    assert_equal(np.array(1, np.float32), make(OBSERVATION, 1.0, outer_dims=()).reward)


@pytest.mark.parametrize("make", [transition, truncation])
@pytest.mark.parametrize("discount", [[0.5, 0.25], np.array([0.5, 0.25])])
def test_every_row_can_have_its_own_discount(make, discount):
    assert_equal(
        np.array([0.5, 0.25], np.float32),
        make(OBSERVATION, np.ones(2), discount).discount,
    )


@given(
    data=st.data(),
    reward_spec=strategies.spec_nests(
        strategies.specs("iuf", spec_shapes=strategies.shapes(max_dims=2))
    ),
    dims=strategies.outer_dims(),
)
def test_time_steps_fit_the_spec_of_their_observation_and_reward(
    data, reward_spec, dims
):
    observation_spec = ArraySpec((4,), np.float64)
    spec = time_step_spec(observation_spec, reward_spec)
    observation = np.zeros((*dims, 4))
    # An empty reward spec stands for the usual reward.
    reward = data.draw(strategies.values(spec.reward, dims))
    # What restart makes is zero, whatever the bounds.
    zeros_fit = spec._replace(
        reward=nest.map_structure(ArraySpec.from_spec, spec.reward)
    )

    check_fits(restart(observation, dims, spec.reward), zeros_fit, outer_dims=dims)
    for make in MAKERS:
        time_step = make(observation, reward, outer_dims=dims)
        check_fits(time_step, add_outer_dims_nest(spec, dims))


# Nested rewards.


@pytest.mark.parametrize("make", MAKERS)
def test_a_nested_reward_keeps_its_structure(make):
    reward = make(OBSERVATION, {"b": 1.0, "a": (2, np.float64(3))}).reward
    assert ["b", "a"] == list(reward)
    assert_equal(np.array(1, np.float32), reward["b"])
    assert_equal(np.array(2, np.float32), reward["a"][0])
    assert_equal(np.array(3, np.float32), reward["a"][1])


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("reward", "rows"), [({"a": np.ones(2), "b": np.ones((2, 3))}, (2,)), ({}, ())]
)
def test_the_rewards_of_a_nest_share_the_batch(make, reward, rows):
    time_step = make(OBSERVATION, reward)
    assert rows == time_step.step_type.shape == time_step.discount.shape
    assert nest.map_structure(np.shape, reward) == (
        nest.map_structure(np.shape, time_step.reward)
    )


# Copies.


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("outer_dims", [None, (2,)])
def test_later_changes_to_the_callers_arrays_do_not_affect_a_time_step(
    make, outer_dims
):
    reward, discount = np.ones(2, np.float32), np.ones(2, np.float32)
    rest = [] if make is termination else [discount]
    time_step = make(OBSERVATION, reward, *rest, outer_dims=outer_dims)
    reward[0] = discount[0] = 5
    assert [1.0, 1.0] == time_step.reward.tolist()
    assert 5 not in time_step.discount


# Mistakes.


NO_NUMBER = "{} as {}. A reward is a number or an array of numbers."
NO_REWARD = (
    "None as {}. A reward is a number or an array; where nothing was earned, pass 0.0."
)
NO_BATCH = "a reward of shape {}, which does not begin with the batch's dimensions {}."
NO_DIMS = "{!r} as outer_dims; a size or a sequence of sizes is expected."


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("reward", "dims", "problem"),
    [
        (None, None, NO_REWARD.format("reward")),
        (None, (), NO_REWARD.format("reward")),
        ({"a": None, "b": 1.0}, None, NO_REWARD.format("reward['a']")),
        ({"a": 1.0, "b": (np.ones(2), None)}, (), NO_REWARD.format("reward['b'][1]")),
        ("1", None, NO_NUMBER.format("the string '1'", "reward")),
        ({"a": 1j}, None, NO_NUMBER.format("1j of type complex", "reward['a']")),
        ({1}, None, NO_NUMBER.format("a set object", "reward")),
        (
            decimal.Decimal(1),
            None,
            NO_NUMBER.format("Decimal('1') of type Decimal", "reward"),
        ),
        (
            np.array([None, 1.0]),
            None,
            NO_NUMBER.format("array of shape (2,), dtype object", "reward"),
        ),
        (
            np.array(["1"]),
            None,
            NO_NUMBER.format("array of shape (1,), dtype <U1", "reward"),
        ),
        (np.ones((2, 3)), (4,), NO_BATCH.format((2, 3), (4,))),
        (np.ones((2, 3)), (2, 4), NO_BATCH.format((2, 3), (2, 4))),
        (np.ones(2), (2, 3), NO_BATCH.format((2,), (2, 3))),
        (1.0, (4,), NO_BATCH.format((), (4,))),
        *(
            (
                rewards,
                (2,),
                NO_BATCH.format("() at [0]", (2,))
                + " A list or tuple is a nest of rewards, not a batch: use np.array.",
            )
            for rewards in ([1.0, 2.0], (1.0, 2.0))
        ),
        (
            {"a": np.ones(2), "b": 1.0},
            None,
            NO_BATCH.format("() at ['b']", (2,)),
        ),
        (
            {"a": np.ones(2), "b": np.ones(3)},
            None,
            NO_BATCH.format("(3,) at ['b']", (2,)),
        ),
        *(
            (np.ones(2), dims, NO_DIMS.format(dims))
            for dims in ((-1,), (2.0,), "a", [[2]], [None], [1, [2, 3]])
        ),
    ],
)
def test_an_invalid_reward_is_refused(message_of, make, reward, dims, problem):
    assert (f"{make.__name__}() was given {problem}") == message_of(
        SpecError, lambda: make(OBSERVATION, reward, outer_dims=dims)
    )


NO_DISCOUNT = "{} as discount. A discount is a number or an array of numbers."


@pytest.mark.parametrize("make", [transition, truncation])
@pytest.mark.parametrize(
    ("discount", "problem"),
    [
        ("a", NO_DISCOUNT.format("the string 'a'")),
        ("0.5", NO_DISCOUNT.format("the string '0.5'")),
        (1j, NO_DISCOUNT.format("1j of type complex")),
        ({"a": 1}, NO_DISCOUNT.format("a dict of 1 element")),
        ([None, 1.0], NO_DISCOUNT.format("a list of 2 elements")),
        (
            np.array([None, 1.0]),
            NO_DISCOUNT.format("array of shape (2,), dtype object"),
        ),
        ([[1.0], [1.0, 2.0]], NO_DISCOUNT.format("a list of 2 elements")),
        (
            None,
            "None as discount. Pass 1.0 where later rewards count in full, 0.0 where "
            "the episode has ended.",
        ),
        (
            np.ones(3),
            "a discount of shape (3,), which does not begin with the batch's "
            "dimensions (2,). Pass one number for all rows, or one for each.",
        ),
    ],
)
def test_an_invalid_discount_is_refused(message_of, make, discount, problem):
    assert (f"{make.__name__}() was given {problem}") == message_of(
        SpecError, lambda: make(OBSERVATION, np.ones(2), discount)
    )


# time_step_spec.


@pytest.mark.parametrize(
    "observation_spec", [{"camera": ArraySpec((2,), np.uint8)}, (), {}, []]
)
def test_the_time_step_spec_has_the_observation_and_default_fields(
    observation_spec,
):
    spec = time_step_spec(observation_spec)
    assert TimeStep is type(spec)
    assert observation_spec is spec.observation
    assert ArraySpec((), np.int32) == spec.step_type
    assert ArraySpec((), np.float32) == spec.reward
    assert BoundedArraySpec((), np.float32, 0.0, 1.0) == spec.discount
    assert ("step_type", "reward", "discount") == (
        spec.step_type.name,
        spec.reward.name,
        spec.discount.name,
    )


def test_the_spec_of_a_time_step_takes_a_reward_spec():
    reward_spec = {"a": ArraySpec((3,), np.float64), "b": [ArraySpec((), np.int8)]}
    assert reward_spec is time_step_spec(ArraySpec((), np.int8), reward_spec).reward


@pytest.mark.parametrize("reward_spec", [None, {}, [], ()])
def test_an_empty_reward_spec_means_the_default_reward(reward_spec):
    spec = time_step_spec(ArraySpec((), np.int8), reward_spec)
    assert ArraySpec((), np.float32) == spec.reward


@pytest.mark.parametrize("reward_spec", [None, ArraySpec((), np.int8)])
def test_without_an_observation_spec_every_field_is_empty(reward_spec):
    assert TimeStep((), (), (), ()) == time_step_spec(None, reward_spec)


@pytest.mark.parametrize(
    ("reward_spec", "place"),
    [(np.float32, ""), ({"a": [np.float32]}, " at ['a'][0]")],
)
def test_reward_specs_of_another_kind_are_refused(message_of, reward_spec, place):
    assert (
        f"The reward spec{place} is <class 'numpy.float32'>, but the observation spec "
        "is made of ArraySpecs. Both must be of one kind."
    ) == message_of(
        TypeError, lambda: time_step_spec(ArraySpec((), np.int8), reward_spec)
    )


@pytest.mark.parametrize(
    ("spec", "place", "leaf"),
    [
        (np.zeros(3), "observation_spec", "array([0., 0., 0.])"),
        ({"a": np.float32}, "observation_spec['a']", "<class 'numpy.float32'>"),
    ],
    ids=["array", "dtype"],
)
def test_an_invalid_observation_spec_is_refused(message_of, spec, place, leaf):
    assert (
        f"time_step_spec() was given {leaf} as {place}, which is not a spec."
    ) == message_of(TypeError, lambda: time_step_spec(spec))


@pytest.mark.parametrize("make", [bool, np.bool_, np.array])
def test_flags_of_any_boolean_type_are_found(make):
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
def test_invalid_flags_are_ignored(info):
    assert flags_in(info) is None
