"""Time steps of tensors, through the same functions that make time steps of arrays."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import tensorflow as tf

import envkit
from envkit import ArraySpec, StepType, TimeStep
from envkit.errors import SpecError


def values(time_step: TimeStep) -> TimeStep:
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), time_step)


def test_restart_of_a_tensor_is_made_of_tensors():
    time_step = envkit.restart(tf.constant([1.0, 2.0]))

    assert all(tf.is_tensor(field) for field in time_step)
    assert (StepType.FIRST, 0.0, 1.0) == tuple(values(time_step)[:3])


@pytest.mark.parametrize(
    "batch_size", [2, [2], (2,), tf.constant(2), tf.constant([2]), np.int64(2)]
)
def test_restart_takes_a_batch_size_of_any_form(batch_size):
    time_step = envkit.restart(tf.zeros([2, 3]), batch_size)

    assert [0, 0] == time_step.step_type.numpy().tolist()
    assert [0.0, 0.0] == time_step.reward.numpy().tolist()
    assert [1.0, 1.0] == time_step.discount.numpy().tolist()


@pytest.mark.parametrize("batch_size", [None, 5])
def test_restart_takes_the_reward_spec_of_either_kind(batch_size):
    outer = [] if batch_size is None else [5]
    for spec in (ArraySpec([2], np.float16), tf.TensorSpec([2], tf.float16)):
        time_step = envkit.restart(tf.zeros([5, 2]), batch_size, {"points": spec})

        assert tf.float16 == time_step.reward["points"].dtype
        assert [*outer, 2] == time_step.reward["points"].shape.as_list()


def test_restart_of_an_array_takes_a_tensor_spec_for_its_reward():
    time_step = envkit.restart(-1, None, tf.TensorSpec([2], tf.float64))

    assert isinstance(time_step.reward, np.ndarray)
    assert np.float64 == time_step.reward.dtype


@pytest.mark.parametrize(
    ("function", "step_type", "discount"),
    [
        (envkit.transition, StepType.MID, 1.0),
        (envkit.termination, StepType.LAST, 0.0),
        (envkit.truncation, StepType.LAST, 1.0),
    ],
)
def test_a_batch_has_a_step_type_and_a_discount_for_each_row(
    function, step_type, discount
):
    time_step = values(function(tf.zeros([2, 1]), tf.constant([2.0, 3.0])))

    assert [int(step_type)] * 2 == time_step.step_type.tolist()
    assert [discount] * 2 == time_step.discount.tolist()
    assert [2.0, 3.0] == time_step.reward.tolist()


def test_the_reward_keeps_its_dtype():
    time_step = envkit.transition(tf.zeros([2]), tf.constant([1.0, 2.0], tf.float64))

    assert tf.float64 == time_step.reward.dtype


def test_a_python_number_becomes_a_float32_reward():
    time_step = envkit.transition(tf.zeros([2]), 1)

    assert tf.float32 == time_step.reward.dtype
    assert [] == time_step.step_type.shape.as_list()


def test_a_tensor_reward_alone_makes_a_time_step_of_tensors():
    time_step = envkit.transition((), tf.constant(1.0))

    assert tf.is_tensor(time_step.step_type)


def test_nested_rewards_make_a_batch_of_their_first_dimension():
    reward = [tf.ones([2, 1]), tf.ones([2, 3])]

    time_step = values(envkit.transition(tf.zeros([2, 1]), reward, tf.constant(0.5)))

    assert [1, 1] == time_step.step_type.tolist()
    assert [0.5, 0.5] == time_step.discount.tolist()


def test_outer_dims_say_what_is_a_batch():
    reward = tf.ones([2, 3])

    for dims in ([], ()):
        assert 0 == envkit.termination(tf.zeros([2]), reward, dims).step_type.shape.rank
    assert (2, 3) == envkit.termination(tf.zeros([2]), reward, [2, 3]).step_type.shape
    assert (2,) == envkit.truncation(
        tf.zeros([2]), reward, outer_dims=tf.TensorShape([2])
    ).discount.shape


def test_inside_a_function_the_batch_size_may_be_unknown():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def step(reward):
        return envkit.transition(reward, reward, 0.5)

    for rows in (2, 3):
        time_step = values(step(tf.ones([rows])))

        assert [1] * rows == time_step.step_type.tolist()
        assert [0.5] * rows == time_step.discount.tolist()


def test_inside_a_function_static_shapes_are_known_where_they_can_be():
    shapes = []

    @tf.function
    def step(reward):
        time_step = envkit.transition(reward, reward, 0.5)
        shapes.extend([time_step.step_type.shape, time_step.discount.shape])
        return time_step

    step(tf.ones([4]))

    assert [[4], [4]] == [shape.as_list() for shape in shapes]


@pytest.mark.parametrize("traced", [False, True])
def test_is_last_of_tensors_is_a_tensor(traced):
    def ends(step_type):
        return TimeStep(step_type, 0.0, 1.0, ()).is_last()

    ended = (tf.function(ends) if traced else ends)(tf.constant([0, 1, 2]))

    assert tf.is_tensor(ended)
    assert [False, False, True] == ended.numpy().tolist()


def test_a_missing_reward_is_refused():
    with pytest.raises(SpecError) as caught:
        envkit.transition(tf.zeros([2]), None)

    assert str(caught.value) == (
        "transition() was given None as reward. A reward is a number, an array or a "
        "tensor; where nothing was earned, pass 0.0."
    )


def test_a_missing_discount_is_refused():
    with pytest.raises(SpecError) as caught:
        envkit.truncation(tf.zeros([2]), 1.0, None)

    assert str(caught.value) == (
        "truncation() was given None as discount. Pass 1.0 where later rewards count "
        "in full, 0.0 where the episode is over for good."
    )


def test_the_time_step_spec_of_tensor_specs_is_made_of_tensor_specs():
    spec = envkit.time_step_spec({"camera": tf.TensorSpec([3], tf.float32)})

    assert tf.TensorSpec([], tf.int32, "step_type") == spec.step_type
    assert tf.TensorSpec([], tf.float32, "reward") == spec.reward
    assert (0.0, 1.0) == (float(spec.discount.minimum), float(spec.discount.maximum))
    assert isinstance(spec.discount, tf.TensorSpec)


@pytest.mark.parametrize(
    ("observation", "reward"),
    [
        (tf.TensorSpec([], tf.float32), ArraySpec([], np.float32)),
        (ArraySpec([], np.float32), tf.TensorSpec([], tf.float32)),
    ],
)
def test_specs_of_both_kinds_do_not_mix(observation, reward):
    with pytest.raises(TypeError, match="Both must be of one kind"):
        envkit.time_step_spec(observation, reward)


def test_tensorflow_takes_a_time_step_for_the_namedtuple_others_define():
    other = collections.namedtuple(
        "TimeStep", ["step_type", "reward", "discount", "observation"]
    )

    tf.nest.assert_same_structure(
        envkit.restart(np.zeros(2)), other(0, 0.0, 1.0, np.zeros(2))
    )
