"""`HistoryWrapper`: the last observations, and the actions between them."""

from __future__ import annotations

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    RandomPyEnvironment,
)
from envkit.envs import CartPole, Catch
from envkit.testing import CountingEnv, NestedCountingEnv, check_environment
from envkit.wrappers.history.history_wrapper import HistoryWrapper
from envkit.wrappers.limits import FixedLength


class CountingFrom20(CountingEnv):
    """Observes nothing but what is above zero."""

    def __init__(self, steps_per_episode=10):
        super().__init__(steps_per_episode)
        self._episodes = 2

    def observation_spec(self):
        return BoundedArraySpec((), np.int32, 20, 99)


def lists(nested):
    return {name: array.tolist() for name, array in nested.items()}


# What TF-Agents promises.


def test_observations_get_a_new_first_axis():
    env = HistoryWrapper(CartPole(), 3)

    assert (3, 4) == env.observation_spec().shape


def test_actions_get_a_new_first_axis():
    env = HistoryWrapper(CartPole(), 3, include_actions=True)

    assert ["observation", "action"] == list(env.observation_spec())
    assert (3, 4) == env.observation_spec()["observation"].shape
    assert (3,) == env.observation_spec()["action"].shape


def test_three_observations_are_shown_unless_asked_otherwise():
    env = HistoryWrapper(CountingEnv())

    assert (3, False, False) == (
        env.history_length,
        env.include_actions,
        env.tile_first_step_obs,
    )
    assert (3,) == env.observation_spec().shape


def test_zeros_stand_for_what_was_before_the_episode():
    env = HistoryWrapper(CountingFrom20(), 3)

    assert [[0, 0, 20], [0, 20, 21], [20, 21, 22], [21, 22, 23]] == [
        env.step(0).observation.tolist() for _ in range(4)
    ]


def test_the_first_observation_stands_for_what_was_before_it():
    env = HistoryWrapper(CountingFrom20(), 3, tile_first_step_obs=True)

    assert [[20, 20, 20], [20, 20, 21], [20, 21, 22], [21, 22, 23]] == [
        env.step(0).observation.tolist() for _ in range(4)
    ]


def test_actions_are_shown_beside_what_they_led_to():
    env = HistoryWrapper(CountingEnv(), 3, include_actions=True)

    assert [
        {"observation": [0, 0, 0], "action": [0, 0, 0]},
        {"observation": [0, 0, 1], "action": [0, 0, 5]},
        {"observation": [0, 1, 2], "action": [0, 5, 6]},
        {"observation": [1, 2, 3], "action": [5, 6, 7]},
    ] == [lists(env.step(action).observation) for action in (4, 5, 6, 7)]


def test_nests_are_stacked_leaf_by_leaf():
    env = HistoryWrapper(NestedCountingEnv(nested_action=True), 3, include_actions=True)
    env.reset()
    for action in (5, 6, 7):
        observation = env.step({"foo": action, "bar": -action}).observation

    assert {"total_steps": [1, 2, 3], "current_steps": [1, 2, 3]} == lists(
        observation["observation"]
    )
    assert {"foo": [5, 6, 7], "bar": [-5, -6, -7]} == lists(observation["action"])


def test_an_episode_after_the_last_step_begins_with_an_empty_history():
    env = HistoryWrapper(CountingEnv(steps_per_episode=2), 3, include_actions=True)
    seen = [env.step(1) for _ in range(5)]

    assert [0, 1, 2, 0, 1] == [int(time_step.step_type) for time_step in seen]
    assert {"observation": [0, 0, 10], "action": [0, 0, 0]} == lists(
        seen[3].observation
    )
    assert {"observation": [0, 10, 11], "action": [0, 0, 1]} == lists(
        seen[4].observation
    )


# Specs.


def test_bounds_stay_where_the_first_observation_fills_up():
    env = HistoryWrapper(CountingFrom20(), 3, tile_first_step_obs=True)

    assert BoundedArraySpec((3,), np.int32, 20, 99) == env.observation_spec()


def test_bounds_are_widened_where_zeros_fill_up():
    env = HistoryWrapper(CountingFrom20(), 3)

    assert BoundedArraySpec((3,), np.int32, 0, 99) == env.observation_spec()


def test_nothing_fills_up_a_history_of_one():
    env = HistoryWrapper(CountingFrom20(), 1)

    assert BoundedArraySpec((1,), np.int32, 20, 99) == env.observation_spec()


def test_bounds_of_actions_are_always_widened_because_none_led_to_the_first():
    action = BoundedArraySpec((2,), np.int64, [1, 2], 3)
    env = HistoryWrapper(
        RandomPyEnvironment(ArraySpec((), np.float32), action), 1, True, True
    )

    assert BoundedArraySpec((1, 2), np.int64, 0, 3) == env.observation_spec()["action"]


def test_the_action_spec_stays():
    env = HistoryWrapper(Catch(), 3, include_actions=True)

    assert Catch().action_spec() == env.action_spec()


# Actions.


@pytest.mark.parametrize(
    "action", [1, [1], np.array(1), np.int8(1), True], ids=lambda action: repr(action)
)
def test_actions_are_shown_in_the_dtype_of_their_spec(action):
    inner = RandomPyEnvironment(
        ArraySpec((), np.float32), BoundedArraySpec(np.shape(action), np.uint8, 0, 1)
    )
    env = HistoryWrapper(inner, 2, include_actions=True)
    shown = [env.reset(), env.step(action)][-1].observation["action"]

    assert np.uint8 == shown.dtype
    assert [0, 1] == shown.ravel().tolist()


def test_actions_are_remembered_whatever_becomes_of_their_array():
    inner = BatchedPyEnvironment([CountingEnv(), CountingEnv()], False)
    env = HistoryWrapper(inner, 2, include_actions=True)
    action = np.array([0, 1], np.int32)
    env.reset()
    env.step(action)
    action[:] = 1

    assert [[0, 1], [1, 1]] == env.step(action).observation["action"].tolist()


def test_actions_are_remembered_as_given_whatever_the_environment_makes_of_them():
    class Clipping(CountingEnv):
        def action_spec(self):
            return BoundedArraySpec((1,), np.float32, -1.0, 1.0)

        def _step(self, action):
            np.clip(action, -1.0, 1.0, out=action)
            return super()._step(action)

    env = HistoryWrapper(Clipping(), 2, include_actions=True)
    env.reset()

    assert [[0.0], [5.0]] == (
        env.step(np.array([5.0], np.float32)).observation["action"].tolist()
    )


def test_the_state_of_a_wrapper_without_actions_is_refused(message_of):
    token = HistoryWrapper(CountingEnv()).get_state()
    env = HistoryWrapper(CountingEnv(), include_actions=True)

    assert (
        "HistoryWrapper.set_state() was given the state of a HistoryWrapper made with "
        "other arguments, or of another environment. A state fits environments that "
        "are wrapped in the same way."
    ) == message_of(ValueError, lambda: env.set_state(token))


def test_the_environment_gets_the_action_itself():
    given = []

    class Noting(CountingEnv):
        def _step(self, action):
            given.append(action)
            return super()._step(action)

    env = HistoryWrapper(Noting(), 2, include_actions=True)
    action = np.array(1, np.int64)
    env.reset()
    env.step(action)

    assert given[0] is action


@pytest.mark.parametrize("action", [None, "left", [1, 2]])
def test_the_action_after_the_end_of_an_episode_may_be_anything(action):
    env = HistoryWrapper(CountingEnv(steps_per_episode=1), 2, include_actions=True)
    env.reset()
    env.step(1)

    assert [0, 0] == env.step(action).observation["action"].tolist()


def test_actions_that_repeat_an_end_are_remembered_in_a_batch_as_in_a_single_one():
    def play(env, action):
        env.reset()
        return [env.step(action).observation["action"] for _ in range(5)]

    def wrapped(env):
        return HistoryWrapper(FixedLength(env, 4), 2, include_actions=True)

    inner = BatchedPyEnvironment([CountingEnv(steps_per_episode=2)], False)
    single = play(wrapped(CountingEnv(steps_per_episode=2)), 1)
    batch = play(wrapped(inner), [1])

    assert [array.tolist() for array in single] == [
        array[0].tolist() for array in batch
    ]


def test_an_environment_that_takes_any_action_has_none_to_show():
    env = HistoryWrapper(RandomPyEnvironment(ArraySpec((), np.int64)), 2, True)
    env.reset()

    assert () == env.step("anything").observation["action"]


def test_a_step_that_failed_leaves_no_action_behind():
    class Failing(CountingEnv):
        def _step(self, action):
            if int(action) == 9:
                raise RuntimeError("no such gear")
            return super()._step(action)

    env = HistoryWrapper(Failing(), 2, include_actions=True)
    env.reset()
    with pytest.raises(RuntimeError, match="no such gear"):
        env.step(9)

    assert [0, 1] == env.step(1).observation["action"].tolist()


def test_an_action_of_the_wrong_shape_is_refused_before_anything_moves(message_of):
    env = HistoryWrapper(CountingEnv(), 2, include_actions=True)
    env.reset()

    assert (
        "HistoryWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=1)\n"
        "  got        array of shape (2,), dtype int32, values 0 … 1\n\n"
        "There is one dimension too many, of size 2: a batch where a single value "
        "belongs.\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step([0, 1]))
    assert [0, 1] == env.step(0).observation["observation"].tolist()


def test_an_action_for_too_few_rows_is_refused(message_of):
    action = BoundedArraySpec((2,), np.int32, [0, 1], [2, 3])
    inner = RandomPyEnvironment(ArraySpec((), np.float32), action, batch_size=3)
    env = HistoryWrapper(inner, 2, include_actions=True)
    env.reset()

    assert (
        "HistoryWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(3, 2), dtype=int32, minimum=[0, 1], "
        "maximum=[2, 3])\n"
        "  got        array of shape (2,), dtype int32, values 0 … 1\n\n"
        "The whole batch dimension is missing: expected (3, 2).\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step(np.array([0, 1])))


def test_an_action_that_would_lose_something_is_refused_with_its_place(message_of):
    inner = RandomPyEnvironment(
        ArraySpec((), np.float32), {"gear": ArraySpec((), np.uint8)}, batch_size=2
    )
    env = HistoryWrapper(inner, 2, include_actions=True)
    env.reset()

    assert (
        "HistoryWrapper.step() was given an action that does not fit its spec at "
        "action['gear'].\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=uint8)\n"
        "  got        array of shape (2,), dtype int64, values 1 … 256\n\n"
        "dtype is int64; the spec says uint8. NumPy makes int64 by default: add "
        ".astype(np.uint8).\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step({"gear": np.array([1, 256])}))


def test_an_action_of_another_structure_is_refused(message_of):
    env = HistoryWrapper(NestedCountingEnv(nested_action=True), include_actions=True)
    env.reset()

    assert (
        "HistoryWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   the structure {'foo': *, 'bar': *}\n"
        "  got        1 of type int\n\n"
        "The value is a single int; a dictionary is expected."
    ) == message_of(ValueError, lambda: env.step(1))


# Arguments.


@pytest.mark.parametrize("length", [0, -1, 1.5, True, None])
def test_a_length_that_is_no_count_is_refused(length, message_of):
    assert (
        f"history_length is {length!r}; it must be an integer of at least 1."
    ) == message_of(ValueError, lambda: HistoryWrapper(CountingEnv(), length))


def test_it_shows_its_arguments():
    env = HistoryWrapper(Catch(batch_size=2), 4, True)

    assert (
        "HistoryWrapper(Catch(batch_size=2), history_length=4, include_actions=True, "
        "tile_first_step_obs=False)"
    ) == repr(env)


def test_no_action_leads_to_a_repetition_of_the_last_step():
    """The environment ignores the actions with which `FixedLength` pads an episode."""
    env = FixedLength(CountingEnv(steps_per_episode=2), 5)
    env = HistoryWrapper(env, 3, include_actions=True)
    env.reset()

    assert [[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]] == [
        env.step(1).observation["action"].tolist() for _ in range(6)
    ]


def test_no_action_leads_to_a_repetition_in_the_rows_that_are_padded():
    envs = [CountingEnv(steps_per_episode=steps) for steps in (1, 3)]
    env = FixedLength(BatchedPyEnvironment(envs, multithreading=False), 3)
    env = HistoryWrapper(env, 3, include_actions=True)
    env.reset()

    assert [[[0, 0, 1], [0, 0, 1]], [[0, 1, 0], [0, 1, 1]], [[1, 0, 0], [1, 1, 1]]] == [
        env.step([1, 1]).observation["action"].tolist() for _ in range(3)
    ]


def test_whether_an_episode_is_padded_is_a_part_of_the_state():
    def padded():
        env = FixedLength(CountingEnv(steps_per_episode=2), 5)
        return HistoryWrapper(env, 2, include_actions=True)

    env, other = padded(), padded()
    for _ in range(3):
        env.step(1)
    other.reset()
    other.set_state(env.get_state())

    assert [1, 0] == other.step(1).observation["action"].tolist()


@pytest.mark.parametrize("rows", [None, 3])
def test_a_history_of_padded_episodes_keeps_the_contract(rows):
    def env(seed=0):
        return RandomPyEnvironment(
            BoundedArraySpec((3,), np.float32, -1, 1),
            BoundedArraySpec((), np.int32, 0, 3),
            episode_end_probability=0.3,
            seed=seed,
        )

    def wrapped():
        inside = env()
        if rows is not None:
            inside = BatchedPyEnvironment([env(seed) for seed in range(rows)])
        return HistoryWrapper(FixedLength(inside, 7), 2, include_actions=True)

    check_environment(wrapped, steps=40, require=["seed", "state"])
