"""Giving episodes a goal."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    RandomPyEnvironment,
    StepType,
)
from envkit.envs import CartPole
from envkit.errors import SpecError
from envkit.testing import (
    CountingEnv,
    EpisodeCountingEnv,
    NestedCountingEnv,
    check_environment,
)
from envkit.wrappers.goals import GoalReplayEnvWrapper
from envkit.wrappers.limits import TimeLimit


class Ahead(GoalReplayEnvWrapper):
    """The goal is three steps further than where the episode began."""

    def observation_spec(self):
        count = self.wrapped_env().observation_spec()
        return {"count": count, "goal": count}

    def get_goal_from_trajectory(self, trajectory):
        return trajectory.observation + np.int32(3)

    def get_trajectory_with_goal(self, trajectory, goal):
        observation = {"count": trajectory.observation, "goal": goal}
        return trajectory._replace(observation=observation)


class InPlace(GoalReplayEnvWrapper):
    """Puts the goal where it was taken from, as people do with TF-Agents."""

    def __init__(self, env, key):
        super().__init__(env)
        self._key = key

    def get_goal_from_trajectory(self, trajectory):
        return trajectory.observation[self._key]

    def get_trajectory_with_goal(self, trajectory, goal):
        trajectory.observation.update({self._key: goal})
        return trajectory


class Given(GoalReplayEnvWrapper):
    """Takes goals from a list."""

    def __init__(self, env, *goals):
        super().__init__(env)
        self.goals, self.shown = list(goals), []

    def get_goal_from_trajectory(self, trajectory):
        return self.goals.pop(0)

    def get_trajectory_with_goal(self, trajectory, goal):
        self.shown.append(goal)
        return trajectory


def counters(*lengths):
    envs = [CountingEnv(steps_per_episode=length) for length in lengths]
    return BatchedPyEnvironment(envs, multithreading=False)


def goals(env, count):
    """Returns the goals of so many steps."""
    action = np.zeros(env._dims, np.int32)
    return [env.step(action).observation["goal"].tolist() for _ in range(count)]


# As in TF-Agents.


@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [
        ({"obs1": (4,), "obs2": (5,)}, np.int32),
        ({"obs1": (1,), "obs2": (1,), "obs3": (4,)}, np.float32),
        ({"obs1": (5, 2), "obs2": (3, 3)}, np.float32),
    ],
)
@pytest.mark.parametrize("batch_size", [None, 4])
def test_observations_keep_their_keys(shapes, dtype, batch_size):
    spec = collections.OrderedDict(
        (key, ArraySpec(shape, dtype)) for key, shape in shapes.items()
    )
    action_spec = BoundedArraySpec((), np.int32, -10, 10)
    env = InPlace(RandomPyEnvironment(spec, action_spec, batch_size=batch_size), "obs1")
    action = np.zeros(() if batch_size is None else batch_size, np.int32)
    for time_step in (env.step(action), env.reset()):
        assert env.observation_spec().keys() == time_step.observation.keys()


def test_the_goal_stays_the_same_for_the_episode():
    env = InPlace(NestedCountingEnv(steps_per_episode=4), "current_steps")
    env.reset()
    assert [0, 0, 0] == [int(env.step(0).observation["current_steps"]) for _ in "123"]


def test_a_goal_wrapper_defines_the_goal(message_of):
    message = message_of(TypeError, lambda: GoalReplayEnvWrapper(CountingEnv()))
    assert "get_goal_from_trajectory" in message
    assert "get_trajectory_with_goal" in message


# When goals are taken.


def test_an_automatic_reset_gives_a_new_goal():
    env = Ahead(CountingEnv(steps_per_episode=2))
    assert [3, 3, 3, 13, 13] == goals(env, 5)


def test_a_reset_by_another_wrapper_gives_a_new_goal():
    env = Ahead(TimeLimit(CountingEnv(), 1))
    goals(env, 2)  # FIRST, LAST
    env.wrapped_env().wrapped_env()._episodes = 5
    assert [53] == goals(env, 1)


def test_a_held_row_keeps_its_goal():
    env = Given(counters(9, 9), np.array([1, 2]), np.array([3, 4]))
    env.reset()
    env.reset(np.array([True, False]))
    assert [3, 2] == env.shown[-1].tolist()


@given(
    moves=st.lists(
        st.tuples(
            st.sampled_from(["step", "step", "reset"]),
            st.lists(st.booleans(), min_size=3, max_size=3),
        ),
        max_size=25,
    ),
    lengths=st.lists(st.integers(1, 4), min_size=3, max_size=3),
)
def test_the_goal_always_comes_from_the_first_time_step(moves, lengths):
    env = Ahead(counters(*lengths))
    time_step = env.reset()
    expected = time_step.observation["count"] + 3
    for call, mask in moves:
        mask = np.array(mask)
        if call == "step":
            time_step = env.step(np.zeros(3, np.int32), mask)
        else:
            time_step = env.reset(mask)
        begun = mask & (time_step.step_type == StepType.FIRST)
        expected = np.where(begun, time_step.observation["count"] + 3, expected)
        assert expected.tolist() == time_step.observation["goal"].tolist()


# What goals may be.


def test_the_goal_of_a_single_environment_may_be_anything():
    env = Given(CountingEnv(steps_per_episode=1), "north", {"to": [1, None]})
    for _ in range(3):
        env.step(0)
    assert ["north", "north", {"to": [1, None]}] == env.shown


def test_arithmetic_with_a_scalar_observation_makes_an_array():
    env = Ahead(CountingEnv())
    goal = env.reset().observation["goal"]
    assert (np.ndarray, np.int32) == (type(goal), goal.dtype)


def test_goals_may_be_nested():
    class Both(Ahead):
        def observation_spec(self):
            spec = self.wrapped_env().observation_spec()
            return {"count": spec, "goal": spec}

        def get_goal_from_trajectory(self, trajectory):
            episodes, steps = trajectory.observation
            return episodes, steps + np.int32(3)

    envs = [EpisodeCountingEnv(length) for length in (1, 9)]
    env = Both(BatchedPyEnvironment(envs, multithreading=False))
    for _ in range(3):
        observation = env.step(np.zeros(2, np.int32)).observation
    assert [[1, 0], [3, 3]] == [leaf.tolist() for leaf in observation["goal"]]


def test_the_reward_may_depend_on_the_goal():
    class Reached(Ahead):
        def get_trajectory_with_goal(self, trajectory, goal):
            time_step = super().get_trajectory_with_goal(trajectory, goal)
            reward = (trajectory.observation == goal).astype(np.float32)
            return time_step._replace(reward=np.asarray(reward))

    env = Reached(CountingEnv())
    env.reset()
    assert [0.0, 0.0, 1.0, 0.0] == [float(env.step(0).reward) for _ in range(4)]


def test_a_stored_time_step_can_be_relabelled():
    env = Ahead(CountingEnv())
    env.reset()
    stored = env.wrapped_env().step(0)
    again = env.get_trajectory_with_goal(stored, np.array(1, np.int32))
    assert {"count": 1, "goal": 1} == again.observation


# Whose arrays are whose.


def test_changes_to_an_observation_do_not_reach_the_environment():
    env = InPlace(NestedCountingEnv(), "current_steps")
    env.reset()
    env.step(0)
    inner = env.wrapped_env().current_time_step().observation
    assert 1 == inner["current_steps"]


@pytest.mark.parametrize("make", [CountingEnv, lambda: counters(10, 10)])
def test_changing_an_observed_goal_changes_no_other(make):
    env = Ahead(make())
    first = env.reset().observation["goal"]
    first[...] = 77
    second = env.step(np.zeros(env._dims, np.int32)).observation["goal"]
    assert [3] == np.unique(second).tolist()
    assert not np.shares_memory(first, second)


@pytest.mark.parametrize("make", [CountingEnv, lambda: counters(10, 10)])
def test_changing_a_returned_goal_changes_no_other(make):
    source = np.zeros(() if make is CountingEnv else 2, np.int32)
    env = Given(make(), source)
    env.reset()
    source[...] = 77
    env.step(np.zeros(env._dims, np.int32))
    assert [0] == np.unique(env.shown[-1]).tolist()


# State.


def test_a_restored_batch_can_have_goals_of_another_kind():
    env = Given(counters(1, 1), np.array([1, 2]), {"to": np.zeros((2, 5))})
    new = env.get_state()
    env.reset()
    env.set_state(new)
    env.reset()
    assert (2, 5) == env.shown[-1]["to"].shape


# What is refused.


def test_a_goal_without_rows_is_refused(message_of):
    env = Given(counters(1, 1, 1), {"place": np.zeros(2, np.float32)})
    assert (
        "Given.get_goal_from_trajectory() returned a goal that does not have 3 rows at "
        "goal['place'].\n"
        "\n"
        "  expected   array of shape (3, ...)\n"
        "  got        array of shape (2,), dtype float32, values 0.0 … 0.0\n"
        "\n"
        "The episodes of a batch begin one by one, so each row has a goal of its own: "
        "compute it from all rows of trajectory.observation."
    ) == message_of(SpecError, env.reset)


def test_a_goal_that_is_one_number_for_all_rows_is_refused(message_of):
    env = Given(counters(1, 1), 3)
    assert (
        "Given.get_goal_from_trajectory() returned a goal that does not have 2 rows.\n"
        "\n"
        "  expected   array of shape (2, ...)\n"
        "  got        array of shape (), dtype int64, values 3 … 3\n"
        "\n"
        "The episodes of a batch begin one by one, so each row has a goal of its own: "
        "compute it from all rows of trajectory.observation."
    ) == message_of(SpecError, env.reset)


def test_a_goal_of_another_kind_than_before_is_refused(message_of):
    env = Given(counters(1, 1), np.zeros(2, np.float32), np.zeros((2, 1)))
    env.reset()
    assert (
        "Given.get_goal_from_trajectory() returned a goal whose shape or dtype has "
        "changed.\n"
        "\n"
        "  expected   array of shape (2,), dtype float32\n"
        "  got        array of shape (2, 1), dtype float64, values 0.0 … 0.0\n"
        "\n"
        "The goals of all rows are kept together."
    ) == message_of(SpecError, env.reset)


def test_a_goal_of_another_structure_than_before_is_refused(message_of):
    env = Given(counters(1, 1), {"x": np.zeros(2)}, {"y": np.zeros(2)})
    env.reset()
    assert (
        "Given.get_goal_from_trajectory() returned a goal whose structure has "
        "changed.\n"
        "\n"
        "  expected   {'x': *}\n"
        "  got        {'y': *}\n"
        "\n"
        "The goals of all rows are kept together."
    ) == message_of(SpecError, env.reset)


@pytest.mark.parametrize("make", [CountingEnv, lambda: counters(1, 1)])
def test_a_missing_goal_is_reported(make, message_of):
    assert (
        "Given.get_goal_from_trajectory() returned None, not a goal. Did a return "
        "statement get lost?"
    ) == message_of(SpecError, Given(make(), None).reset)


def test_a_missing_return_statement_is_reported(message_of):
    class Lost(Ahead):
        def get_trajectory_with_goal(self, trajectory, goal):
            super().get_trajectory_with_goal(trajectory, goal)

    assert (
        "Lost.get_trajectory_with_goal() returned None, not a TimeStep. Did a return "
        "statement get lost?"
    ) == message_of(SpecError, Lost(CountingEnv()).reset)


def test_repr_shows_the_wrapped_environment():
    assert "Ahead(CartPole(batch_size=2))" == repr(Ahead(CartPole(batch_size=2)))


class ObservedGoal(GoalReplayEnvWrapper):
    """Shows what was seen first beside what is seen now."""

    def observation_spec(self):
        seen = self.wrapped_env().observation_spec()
        return {"seen": seen, "goal": seen}

    def get_goal_from_trajectory(self, trajectory):
        return {"goal": trajectory.observation, "note": "seen first"}

    def get_trajectory_with_goal(self, trajectory, goal):
        observation = {"seen": trajectory.observation, "goal": goal["goal"]}
        return trajectory._replace(observation=observation)


class RowGoal(ObservedGoal):
    def get_goal_from_trajectory(self, trajectory):
        return {"goal": trajectory.observation}


@pytest.mark.parametrize(("wrapper", "rows"), [(ObservedGoal, None), (RowGoal, 2)])
def test_a_pickled_state_keeps_the_byte_order_of_goals(wrapper, rows):
    def env():
        return wrapper(
            RandomPyEnvironment(
                BoundedArraySpec((3,), ">f4", -1, 1),
                BoundedArraySpec((), np.int32, 0, 3),
                batch_size=rows,
            )
        )

    check_environment(env, steps=12, require=["seed", "state"])
