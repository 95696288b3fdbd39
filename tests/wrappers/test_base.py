"""What every wrapper inherits: forwarding, the two hooks, state, rows, the chain."""

from __future__ import annotations

import copy
import pickle
from unittest import mock

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    AutoReset,
    BatchedPyEnvironment,
    Blocking,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    RandomPyEnvironment,
)
from envkit.base_wrapper import PyEnvironmentBaseWrapper, rows_in_wrapper
from envkit.envs import CartPole, Catch, GridWorld
from envkit.errors import CallOrderError
from envkit.testing import CountingEnv, EpisodeCountingEnv, TracingEnv
from envkit.wrappers.limits import TimeLimit
from envkit.wrappers.statistics import RunStats
from tests.wrappers.recorder import Recorder


class Doubled(PyEnvironmentBaseWrapper):
    """Doubles rewards in both hooks' way, and counts what it has seen."""

    _kept = ("_seen",)

    def __init__(self, env, handle_auto_reset=False):
        super().__init__(env, handle_auto_reset)
        self._seen = np.zeros(self._dims, np.int64)

    def _see(self, time_step, rows):
        moved = np.ones(self._dims, bool) if rows is None else rows
        self._seen = self._seen + moved
        return time_step._replace(reward=np.asarray(time_step.reward * 2))


class Flipped(PyEnvironmentBaseWrapper):
    def _act(self, action):
        return 1 - np.asarray(action)


class AsInTFAgents(PyEnvironmentBaseWrapper):
    """Written for TF-Agents: it overrides `_reset` and `_step`."""

    def _reset(self):
        return self._env.reset()

    def _step(self, action):
        time_step = self._env.step(action)
        return time_step._replace(reward=np.asarray(time_step.reward + 1))


class Rich(CountingEnv):
    """Has everything that is to be forwarded, and remembers that it was."""

    colour = "red"
    _secret = 1

    def __init__(self):
        super().__init__()
        self.seeds, self.closed = [], 0

    def reward_spec(self):
        return ArraySpec((2,), np.float32, name="two")

    def discount_spec(self):
        return BoundedArraySpec((), np.float32, 0, 0.5)

    def _reset(self):
        return self._rich(super()._reset())

    def _step(self, action):
        return self._rich(super()._step(action))

    def _rich(self, time_step):
        rewards, half = np.full(2, time_step.reward), np.array(0.5, np.float32)
        return time_step._replace(reward=rewards, discount=half)

    def get_info(self):
        return {"steps": self._current_step}

    def seed(self, seed):
        self.seeds.append(seed)
        return "seeded"

    def close(self):
        self.closed += 1

    def greet(self, name):
        return f"hello {name}"


def test_all_four_specs_come_from_the_environment():
    env = PyEnvironmentBaseWrapper(Rich())
    assert Rich().environment_spec() == env.environment_spec()
    assert Rich().time_step_spec() == env.time_step_spec()


def test_info_seed_render_and_close_reach_the_environment():
    rich = Rich()
    env = PyEnvironmentBaseWrapper(rich)
    env.reset()
    env.step(0)
    assert {"steps": 1} == env.get_info()
    assert "seeded" == env.seed(4)
    assert [4] == rich.seeds
    assert (8, 8, 3) == env.render().shape
    with pytest.raises(NotImplementedError, match="'human'"):
        env.render("human")
    env.close()
    assert 1 == rich.closed


def test_a_with_statement_on_a_wrapper_closes_the_environment():
    rich = Rich()
    with PyEnvironmentBaseWrapper(rich):
        pass
    assert 1 == rich.closed


def test_unknown_attributes_come_from_the_environment():
    env = PyEnvironmentBaseWrapper(PyEnvironmentBaseWrapper(Rich()))
    assert "red" == env.colour
    assert "hello you" == env.greet("you")


def test_private_attributes_are_not_forwarded():
    env = PyEnvironmentBaseWrapper(Rich())
    with pytest.raises(AttributeError, match="has no attribute '_secret'"):
        _ = env._secret
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = env.nothing


def test_the_wrapped_environment_is_available():
    rich = Rich()
    inner = PyEnvironmentBaseWrapper(rich)
    env = TimeLimit(inner, 5)
    assert inner is env.wrapped_env()
    assert rich is env.unwrapped
    assert rich is inner.unwrapped


def test_repr_shows_the_whole_chain():
    env = PyEnvironmentBaseWrapper(TimeLimit(CartPole(batch_size=8), 5))
    assert (
        "PyEnvironmentBaseWrapper(TimeLimit(CartPole(batch_size=8), duration=5))"
        == repr(env)
    )


def test_an_environments_own_repr_is_used():
    class Shown(CountingEnv):
        def __repr__(self):
            return "Shown('so')"

    assert "TimeLimit(Shown('so'), duration=5)" == repr(TimeLimit(Shown(), 5))


def test_duck_typed_environments_can_be_wrapped():
    env = mock.MagicMock()
    env.batched = False
    env.batch_size = None
    env.observation_spec.return_value = "spec"
    wrapper = PyEnvironmentBaseWrapper(env)
    assert not wrapper.batched
    assert wrapper.batch_size is None
    assert not wrapper.resets_rows
    assert "spec" == wrapper.observation_spec()
    wrapper.seed(3)
    env.seed.assert_called_once_with(3)
    wrapper.render("human")
    env.render.assert_called_once_with("human")


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (
            CountingEnv,
            "TimeLimit wraps an environment, not the class CountingEnv. Did you mean "
            "CountingEnv()?",
        ),
        (None, "TimeLimit wraps an environment, not None."),
        (3, "TimeLimit wraps an environment, not 3 of type int."),
    ],
)
def test_anything_but_an_environment_is_refused(thing, message, message_of):
    assert (message) == message_of(TypeError, lambda: TimeLimit(thing, 5))


# The hooks.


def test_the_hooks_serve_single_environments_and_batches():
    for env in (CountingEnv(1), BatchedPyEnvironment([CountingEnv(1)] * 1, False)):
        doubled = Doubled(env)
        doubled.reset()
        action = 0 if env.batch_size is None else [0]
        assert 2.0 == np.squeeze(doubled.step(action).reward)


def test_actions_pass_through_the_hook():
    env = Flipped(CartPole(seed=1))
    plain = CartPole(seed=1)
    env.reset()
    plain.reset()
    assert plain.step(1).observation.tolist() == env.step(0).observation.tolist()


def test_the_hook_learns_which_rows_have_stepped():
    env = Doubled(BatchedPyEnvironment([CountingEnv() for _ in range(3)], False))
    env.reset()
    env.step([0, 0, 0])
    env.reset(np.array([True, False, False]))
    env.step([0, 0, 0], np.array([True, True, False]))
    env.step_rows(
        [0, 0, 0], np.array([False, True, False]), np.array([True, False, False])
    )
    assert [5, 4, 2] == env._seen.tolist()


def test_a_tf_agents_wrapper_works_on_single_environments():
    env = AsInTFAgents(CountingEnv(2))
    env.reset()
    assert [1.0, 2.0] == [float(env.step(0).reward) for _ in range(2)]


def test_a_tf_agents_wrapper_refuses_partial_batches(message_of):
    env = AsInTFAgents(Catch(batch_size=2))
    env.reset()
    assert (False, False) == (env.resets_rows, env.holds_rows)
    assert (
        "AsInTFAgents overrides _reset(), which concerns all rows, and cannot know "
        "what that means for some of them: override _reset_rows(mask) too, or "
        "_act(action) and _see(time_step, rows) in place of both."
    ) == message_of(NotImplementedError, lambda: env.reset(np.array([True, False])))
    with pytest.raises(NotImplementedError, match=r"overrides _step\(\)"):
        env.step([0, 0], np.array([True, False]))
    with pytest.raises(ValueError, match="TimeLimit cannot wrap AsInTFAgents"):
        TimeLimit(env, 3)


def test_a_wrapper_without_masked_resets_is_not_bypassed():
    class ResetsAll(PyEnvironmentBaseWrapper):
        def _reset(self):
            return self._env.reset()

    env = ResetsAll(Catch(batch_size=2))
    env.reset()
    first, second = np.array([True, False]), np.array([False, True])
    assert env.step_rows([0, 0], first).step_type.tolist() == [1, 0]
    with pytest.raises(NotImplementedError, match=r"overrides _reset\(\), which"):
        env.step_rows([0, 0], first, second)


def test_a_wrapper_can_reset_an_environment_without_auto_reset():
    class Stays(CountingEnv):
        def __init__(self):
            super().__init__(2)
            self._handle_auto_reset = False

    env = PyEnvironmentBaseWrapper(Stays(), handle_auto_reset=True)
    env.reset()
    assert [1, 2, 0, 1] == [int(env.step(0).step_type) for _ in range(4)]


def test_a_wrapper_can_reset_rows_of_a_batch_without_auto_reset():
    inner = EpisodeCountingEnv(2), EpisodeCountingEnv(3)
    env = PyEnvironmentBaseWrapper(
        BatchedPyEnvironment(inner, False), handle_auto_reset=True
    )
    env.reset()
    types = [env.step([0, 0]).step_type.tolist() for _ in range(5)]
    assert [[1, 1], [2, 1], [0, 2], [1, 0], [2, 1]] == types
    assert [1, 1] == env.current_time_step().observation[0].tolist()


def test_a_wrapper_that_resets_rows_never_steps_ended_rows():
    """Also where the environment can only step all rows together."""

    class Together(Recorder):
        _step_rows = PyEnvironment._step_rows

    inside = Together(ArraySpec((), np.int32), 1, 3)
    inside._handle_auto_reset = False
    env = RunStats(inside, handle_auto_reset=True)

    step_types = [env.step([0, 0]).step_type.tolist() for _ in range(5)]
    assert [[0, 0], [2, 1], [0, 1], [2, 2], [0, 0]] == step_types
    assert [2, 1] == env.episodes_per_row.tolist()
    assert [3, 2] == env.resets_per_row.tolist()
    assert [2, 3] == env.total_steps_per_row.tolist()


def test_every_wrapper_has_its_own_current_time_step():
    inner = CountingEnv()
    env = Doubled(inner)
    with pytest.raises(CallOrderError):
        env.current_time_step()
    time_step = env.reset()
    assert time_step is env.current_time_step()


def test_a_disabled_pool_can_be_wrapped():
    pool = ParallelPyEnvironment(
        [CountingEnv] * 2, backend="inline", autoreset=AutoReset.DISABLED
    )
    with TimeLimit(pool, 2) as env:
        env.reset()
        env.step([0, 0])
        env.reset(np.array([True, False]))
        assert [1, 2] == env.step([0, 0]).step_type.tolist()
        assert [1, 0] == env.reset(np.array([False, True])).step_type.tolist()
        assert [2, 1] == env.step([0, 0]).step_type.tolist()


# State.


def test_a_state_token_contains_the_environments_state_and_the_wrappers():
    env = Doubled(CountingEnv())
    env.reset()
    env.step(0)
    token = pickle.loads(pickle.dumps(env.get_state()))
    expected = [env.step(0).observation, env._seen]
    env.set_state(copy.deepcopy(token))
    assert [2] == [int(env._seen)]
    assert 1 == env.current_time_step().observation
    assert expected == [env.step(0).observation, env._seen]


def test_a_state_of_another_chain_is_refused(message_of):
    env = Doubled(CountingEnv())
    env.reset()
    other = TimeLimit(CountingEnv(), 5)
    other.reset()
    assert (
        "Doubled.set_state() was given the state of TimeLimit. A state fits "
        "environments that are wrapped in the same way."
    ) == message_of(ValueError, lambda: env.set_state(other.get_state()))


def test_a_state_that_the_environment_refuses_changes_nothing():
    env = Doubled(CartPole(batch_size=2))
    other = Doubled(CartPole(batch_size=3))
    env.reset()
    other.reset()
    other.step([0, 0, 0])
    with pytest.raises(ValueError, match="another environment"):
        env.set_state(other.get_state())
    assert [1, 1] == env._seen.tolist()


def test_an_environment_without_state_says_so():
    env = PyEnvironmentBaseWrapper(RandomPyEnvironment(ArraySpec((), np.float32)))
    assert env.reset() is not None

    class Stateless(CountingEnv):
        _get_state = PyEnvironment._get_state

    with pytest.raises(NotImplementedError, match="Stateless cannot save its state"):
        PyEnvironmentBaseWrapper(Stateless()).get_state()


def test_a_wrapper_can_be_copied():
    env = TimeLimit(GridWorld(seed=1), 5)
    env.reset()
    twin = copy.deepcopy(env)
    assert env.step(1).observation.tolist() == twin.step(1).observation.tolist()


def test_a_pool_carries_the_state_of_wrappers_in_its_workers():
    def make():
        return TimeLimit(TracingEnv(), 4)

    with ParallelPyEnvironment([make] * 2, backend="inline") as pool:
        pool.reset()
        action = np.zeros(2, pool.action_spec().dtype)
        pool.step(action)
        token = pool.get_state()
        expected = [pool.step(action).step_type.tolist() for _ in range(5)]
        pool.set_state(token)
        assert expected == [pool.step(action).step_type.tolist() for _ in range(5)]


def test_asynchronous_pools_are_wrapped_per_row_or_as_blocking_pools():
    pool = AsyncParallelPyEnvironment([CountingEnv] * 2, backend="inline")
    with pool:
        with pytest.raises(TypeError) as caught:
            TimeLimit(pool, 3)
        env = TimeLimit(Blocking(pool), 2)
        env.reset()
        types = [env.step([0, 0]).step_type.tolist() for _ in range(3)]
    assert str(caught.value) == (
        "TimeLimit wraps an environment in lockstep, and AsyncParallelPyEnvironment is "
        "asynchronous. Wrap the environments in it, or Blocking(env)."
    )
    assert [[1, 1], [2, 2], [0, 0]] == types


def test_a_pool_knows_which_of_its_rows_are_wrapped():
    constructors = [CountingEnv, lambda: TimeLimit(CountingEnv(), 5)]
    with ParallelPyEnvironment(constructors, backend="inline") as pool:
        assert [False, True] == rows_in_wrapper(pool, TimeLimit)
        assert [True, True] == rows_in_wrapper(Doubled(pool), Doubled)
