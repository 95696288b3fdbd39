"""The wrappers of TensorFlow environments."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf

import envkit
from envkit import StepType
from envkit.envs import CartPole
from envkit.errors import SpecError
from envkit.tf import (
    RandomTFEnvironment,
    TFCartPole,
    TFEnvironment,
    TFPyEnvironment,
)
from envkit.tf.tensor_spec import BoundedTensorSpec
from envkit.tf.tf_wrappers import (
    OneHotActionWrapper,
    TFEnvironmentBaseWrapper,
    TFTimeLimit,
)


class Recorder(RandomTFEnvironment):
    """Remembers what it was given, and has something of its own."""

    favourite = "left"

    def __init__(self, action_spec=None, rows=2, probability=0.0):
        spec = envkit.time_step_spec(
            tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.float32)
        )
        action_spec = action_spec or BoundedTensorSpec([], tf.int32, 0, 2)
        super().__init__(spec, action_spec, rows, probability)
        self.closed = 0
        self.modes = []

    def step(self, action):
        self.action = action
        return super().step(action)

    def render(self, mode="rgb_array"):
        self.modes.append(mode)
        return tf.zeros([2, 4, 4, 3], tf.uint8)

    def close(self):
        self.closed += 1


class RowsAlike(Recorder):
    """Cannot reset single rows."""

    _reset_rows = TFEnvironment._reset_rows


def step_types(time_step):
    return time_step.step_type.numpy().tolist()


def same(time_step, other):
    pairs = zip(tf.nest.flatten(time_step), tf.nest.flatten(other), strict=True)
    return all(np.array_equal(ours, theirs) for ours, theirs in pairs)


# The base.


def test_the_wrapper_has_the_specs_of_the_environment():
    env = Recorder()
    wrapper = TFEnvironmentBaseWrapper(env)

    for name in (
        "time_step_spec",
        "action_spec",
        "observation_spec",
        "reward_spec",
        "discount_spec",
    ):
        assert getattr(env, name)() is getattr(wrapper, name)()
    assert (True, 2, True) == (wrapper.batched, wrapper.batch_size, wrapper.resets_rows)
    assert env is wrapper.wrapped_env()


def test_the_calls_reach_the_environment():
    env = Recorder()
    with TFEnvironmentBaseWrapper(env) as wrapper:
        for call in (
            wrapper.reset,
            lambda: wrapper.step([0, 1]),
            lambda: wrapper.reset([True, False]),
        ):
            assert same(call(), env.current_time_step())
            assert same(wrapper.current_time_step(), env.current_time_step())
        assert (2, 4, 4, 3) == wrapper.render("human").shape

    assert (["human"], 1) == (list(env.modes), env.closed)
    assert [0, 1] == step_types(env.current_time_step())


def test_unknown_public_attributes_come_from_the_environment():
    wrapper = TFEnvironmentBaseWrapper(TFEnvironmentBaseWrapper(Recorder()))

    assert "left" == wrapper.favourite
    with pytest.raises(AttributeError, match="nonsense"):
        _ = wrapper.nonsense
    with pytest.raises(
        AttributeError,
        match="'TFEnvironmentBaseWrapper' object has no attribute '_has_begun'",
    ):
        _ = wrapper._has_begun


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_wrapper_can_be_copied(copied):
    wrapper = TFTimeLimit(TFCartPole(2, seed=1), 3)
    wrapper.reset()

    twin = copied(wrapper)

    assert same(wrapper.current_time_step(), twin.current_time_step())
    assert 3 == twin.duration


def test_a_wrapper_without_an_environment_yet_does_not_recurse():
    with pytest.raises(AttributeError):
        _ = object.__new__(TFEnvironmentBaseWrapper).anything


def test_a_checkpoint_of_a_wrapper_restores_everything(tmp_path):
    def make(seed):
        return TFTimeLimit(TFEnvironmentBaseWrapper(TFCartPole(2, seed=seed)), 3)

    env, other = make(1), make(2)
    env.step([0, 1])
    env.step([0, 1])
    env.reset([True, False])
    path = tf.train.Checkpoint(env=env).save(str(tmp_path / "state"))
    expected = [env.step([0, 1]) for _ in range(5)]

    for restored in (env, other):
        status = tf.train.Checkpoint(env=restored).restore(path)
        status.assert_existing_objects_matched()

        assert all(same(step, restored.step([0, 1])) for step in expected)


# One-hot actions.


def test_integers_become_one_hot_and_other_leaves_are_unchanged():
    spec = {
        "turn": BoundedTensorSpec([], tf.int32, 1, 3),
        "keys": BoundedTensorSpec([2], tf.int64, [0, 10], [4, 14]),
        "speed": tf.TensorSpec([3], tf.float32),
    }
    env = OneHotActionWrapper(Recorder(spec))

    name = "one_hot_action_spec"
    assert {
        "turn": BoundedTensorSpec([3], tf.int32, 0, 1, name),
        "keys": BoundedTensorSpec([2, 5], tf.int64, 0, 1, name),
        "speed": spec["speed"],
    } == env.action_spec()
    assert name == env.action_spec()["turn"].name


@pytest.mark.parametrize("traced", [False, True])
def test_the_minimum_is_added_back_in_every_leaf(traced):
    inner = Recorder(
        (
            BoundedTensorSpec([], tf.int8, -128, 127),
            [BoundedTensorSpec([2], tf.int64, [0, 10], [2, 12])],
            tf.TensorSpec([], tf.float32),
        )
    )
    env = OneHotActionWrapper(inner)
    env.reset()

    def step(speed):
        action = (
            tf.one_hot([0, 255], 256, dtype=tf.int8),
            [tf.one_hot([[0, 1], [2, 2]], 3, dtype=tf.int64)],
            speed,
        )
        env.step(action)
        return inner.action

    turn, (keys,), speed = (tf.function(step) if traced else step)(tf.ones([2]))

    assert (tf.int8, [-128, 127]) == (turn.dtype, turn.numpy().tolist())
    assert (tf.int64, [[0, 11], [2, 12]]) == (keys.dtype, keys.numpy().tolist())
    assert [1.0, 1.0] == speed.numpy().tolist()


@pytest.mark.parametrize(
    ("make", "error", "expected"),
    [
        (
            lambda: TFTimeLimit(CartPole(2), 3),
            TypeError,
            "The environment of TFTimeLimit must be a TFEnvironment, got a CartPole "
            "object. Make one of it first: TFPyEnvironment(env).",
        ),
        (
            lambda: TFTimeLimit(None, 3),
            TypeError,
            "The environment of TFTimeLimit must be a TFEnvironment, got None.",
        ),
        (
            lambda: OneHotActionWrapper(
                Recorder([BoundedTensorSpec([2, 2], tf.int32, 0, 1)])
            ),
            ValueError,
            "Integer actions of OneHotActionWrapper must have at most one dimension, "
            "and action[0] has shape (2, 2).",
        ),
        (
            lambda: OneHotActionWrapper(Recorder(tf.TensorSpec([], tf.int32))),
            ValueError,
            "Integer actions of OneHotActionWrapper must have bounds, and action has "
            "none, so that the vector would have no end.",
        ),
        (
            lambda: OneHotActionWrapper(
                Recorder(BoundedTensorSpec([2], tf.int32, 0, [1, 2]))
            ),
            ValueError,
            "All elements of an action of OneHotActionWrapper must have the "
            "same number of values, but in action they have 2, 3.",
        ),
    ],
)
def test_errors_say_what_must_be(make, error, expected, message_of):
    assert expected == message_of(error, make)


def test_an_action_that_is_not_one_hot_in_shape_is_refused():
    with pytest.raises(SpecError) as caught:
        OneHotActionWrapper(Recorder()).step(tf.zeros([2, 2], tf.int32))

    assert (
        "OneHotActionWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   tensor of shape (2, 3), dtype int32, values 0 … 1\n"
        "  got        tensor of shape (2, 2), dtype int32\n\n"
        "The shape is (2, 2) instead of (2, 3)."
    ) == str(caught.value)


# Time limits.


@pytest.mark.parametrize("env", [TFCartPole(seed=1), RowsAlike(rows=1)])
def test_the_last_allowed_step_is_last_and_keeps_its_discount(env):
    env = TFTimeLimit(env, 3)

    time_steps = [env.step([1]) for _ in range(6)]

    assert [0, 1, 1, 2, 0, 1] == [int(step[0][0]) for step in time_steps]
    assert {1.0} == {float(step.discount[0]) for step in time_steps}


def test_an_environment_that_only_returns_first_is_ended():
    class NeverGoesOn(TFCartPole):
        def step(self, action):
            time_step = super().step(action)
            return time_step._replace(step_type=tf.zeros_like(time_step.step_type))

    env = TFTimeLimit(NeverGoesOn(seed=1), 3)
    assert [0, 0, 0, 2, 0, 0] == [int(env.step([1])[0][0]) for _ in range(6)]


def test_the_current_time_step_is_the_last_step_too():
    env = TFTimeLimit(TFCartPole(2, seed=1), 2)
    for _ in range(4):
        stepped = env.step([0, 1])
        assert same(stepped, env.current_time_step())


@pytest.mark.parametrize("compiled", [False, True])
def test_a_limit_around_cartpole_equals_its_own_limit(compiled):
    """Rows that end at different times, without the limit and because of it."""
    rows, steps = 20, 26
    env = TFTimeLimit(TFCartPole(rows, max_episode_steps=None, seed=3), 12)
    like = CartPole(rows, max_episode_steps=12, seed=3)
    step = tf.function(env.step, jit_compile=True) if compiled else env.step
    actions = np.random.default_rng(1).integers(0, 2, (steps, rows))
    env.reset()
    like.reset()

    for action in actions:
        ours, theirs = step(tf.constant(action)), like.step(action)

        assert all(map(np.array_equal, theirs[:3], ours[:3]))
        assert np.allclose(theirs.observation, ours.observation, 0.0, 1e-6)


def test_an_end_that_comes_with_the_limit_stays_a_termination():
    inner = TFCartPole(1)
    env = TFTimeLimit(inner, 1)
    inner.reset_to([[2.39, 9.0, 0.0, 0.0]])

    time_steps = [env.step([1]) for _ in range(2)]

    assert [StepType.LAST, StepType.FIRST] == [int(step[0][0]) for step in time_steps]
    assert 0.0 == float(time_steps[0].discount[0])


def test_resets_restart_the_count():
    env = TFTimeLimit(TFCartPole(2, seed=1), 2)
    env.reset()
    env.step([0, 1])
    env.reset()
    assert [1, 1] == step_types(env.step([0, 1]))

    assert [0, 1] == step_types(env.reset([True, False]))
    assert [1, 2] == step_types(env.step([0, 1]))
    assert [1, 2] == step_types(env.current_time_step())
    assert [0, 2] == step_types(env.reset([True, False]))
    assert [0, 0] == step_types(env.reset([False, True]))
    assert [1, 1] == step_types(env.step([0, 1]))


def test_rows_truncated_together_do_not_step():
    inner = Recorder()
    env = TFTimeLimit(inner, 1)
    env.reset()
    env.step([0, 1])
    inner.action = None
    assert [0, 0] == step_types(env.step([0, 1]))
    assert inner.action is None


@pytest.mark.parametrize("rows", [2, None])
def test_a_batch_that_cannot_reset_single_rows_is_refused(rows):
    env = RowsAlike()
    env._batch_size = rows

    with pytest.raises(ValueError, match="RowsAlike") as caught:
        TFTimeLimit(env, 3)

    assert (
        f"TFTimeLimit cannot wrap RowsAlike of batch size {rows}: its rows end one by "
        "one, and it cannot reset single rows. Override _reset_rows(mask) in "
        "RowsAlike, or have it limit its episodes itself: of a Python environment, "
        "wrap that before it becomes one of TensorFlow."
    ) == str(caught.value)


@pytest.mark.parametrize("duration", [0, 1.5, None])
def test_the_duration_must_be_a_number_of_steps(duration):
    with pytest.raises(ValueError, match=r"duration .*an integer of at least 1"):
        TFTimeLimit(TFCartPole(), duration)


# What a time limit has counted.


def types(env, steps):
    return [int(env.step(tf.zeros([1], tf.int64)).step_type[0]) for _ in range(steps)]


def test_the_state_of_a_time_limit_contains_its_count():
    env = TFTimeLimit(TFPyEnvironment(CartPole(seed=1)), 3)
    env.reset()
    token = env.get_state()
    first = types(env, 3)
    env.set_state(token)
    now = int(env.current_time_step().step_type[0])

    assert [1, 1, 2] == first == types(env, 3)
    assert 0 == now


def test_a_time_limit_restarts_from_a_given_state():
    env = TFTimeLimit(TFCartPole(seed=1), 3)
    env.reset()
    types(env, 2)
    env.reset_to(tf.zeros([1, 4]))
    assert [1, 1, 2] == types(env, 3)


@pytest.mark.parametrize("order", ["same_step", "disabled"])
def test_a_time_limit_refuses_another_order_of_episodes(message_of, order):
    expected = (
        f"TFTimeLimit cannot wrap an environment with AutoReset.{order.upper()}: where "
        "it cuts an episode, the next step begins another. Limit the Python "
        "environment in place of this one: TFPyEnvironment(TimeLimit(env, duration))."
    )
    with TFPyEnvironment(CartPole(2, seed=1)) as env:
        wrapper = TFTimeLimit(env, 5)
        env.autoreset = order

        assert order == wrapper.autoreset.value
        assert expected == message_of(ValueError, lambda: TFTimeLimit(env, 5))
        assert expected == message_of(ValueError, lambda: wrapper.step([0, 0]))


def test_a_wrapper_returns_the_state_of_its_environment():
    env = TFEnvironmentBaseWrapper(TFPyEnvironment(CartPole(seed=1)))
    env.reset()
    token = env.get_state()
    first = env.step([1]).observation.numpy()
    env.set_state(token)
    assert first.tolist() == env.step([1]).observation.numpy().tolist()
