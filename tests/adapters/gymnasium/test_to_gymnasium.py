"""An environment of envkit is one of Gymnasium's, by Gymnasium's own measure."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    restart,
    termination,
    transition,
    truncation,
)
from envkit.adapters import GymnasiumWrapper, spec_from_gym_space
from envkit.adapters.gymnasium.to_gymnasium import PyToGymnasium
from envkit.envs import Catch, GridWorld, TicTacToe
from envkit.envs.random_py_environment import RandomPyEnvironment
from envkit.errors import SpecError
from envkit.testing import CountingEnv, NestedCountingEnv, ScriptedEnv
from envkit.wrappers import TimeLimit
from tests import strategies

SHIPPED = [
    "Acrobot-v1",
    "Blackjack-v1",
    "CartPole-v1",
    "CliffWalking-v1",
    "FrozenLake-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Taxi-v4",
]


class Scripted(ScriptedEnv):
    """Has an info, too."""

    def __init__(self, *script, info=None):
        super().__init__(script)
        self.info = info

    def get_info(self):
        if self.info is None:
            raise NotImplementedError
        return self.info


def zero():
    return np.zeros(2, np.float32)


def scripted(*steps, info=None):
    return PyToGymnasium(Scripted(restart(zero()), *steps, info=info))


@pytest.fixture(scope="module")
def registered():
    """Registers an environment of envkit with Gymnasium, and returns its id."""

    def make(render_mode=None):
        return PyToGymnasium(Catch(), render_mode)

    gymnasium.register("games/Catch-v0", make)
    yield "games/Catch-v0"
    del gymnasium.registry["games/Catch-v0"]


@pytest.mark.parametrize("make", [Catch, GridWorld, TicTacToe, NestedCountingEnv])
def test_gymnasiums_checker_accepts_it(make):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(PyToGymnasium(make(), render_mode="rgb_array"))

    # Of bounds it has an opinion; and a bare environment has no spec to be made by.
    remarks = [str(one.message) for one in caught]
    opinions = ("observation space m", "not having a spec")
    assert [] == [
        text for text in remarks if not any(part in text for part in opinions)
    ]


def test_gymnasiums_checker_accepts_a_registered_environment(registered):
    env = gymnasium.make(registered, render_mode="rgb_array")
    # It is seeded twice, compared, rendered in every mode and closed.
    check_env(env.unwrapped)
    assert (10, 5) == env.observation_space.shape
    env.close()


@settings(max_examples=30)
@given(strategies.spec_nests())
def test_spaces_match_the_specs(spec):
    env = RandomPyEnvironment(spec, BoundedArraySpec((), np.int64, 0, 3))
    adapted = PyToGymnasium(env)
    observation, _ = adapted.reset(seed=1)
    assert adapted.observation_space.contains(observation)
    assert spec_from_gym_space(adapted.action_space) == env.action_spec()


@pytest.mark.parametrize(
    ("step", "terminated", "truncated", "info"),
    [
        (transition(zero(), 1.0), False, False, {}),
        (transition(zero(), 1.0, 0.5), False, False, {"discount": 0.5}),
        (transition(zero(), 1.0, 0.0), False, False, {"discount": 0.0}),
        (termination(zero(), 1.0), True, False, {}),
        (truncation(zero(), 1.0), False, True, {}),
        (truncation(zero(), 1.0, 0.25), False, True, {"discount": 0.25}),
    ],
)
def test_the_discount_decides_between_termination_and_truncation(
    step, terminated, truncated, info
):
    env = scripted(step)
    env.reset()
    _, reward, *ends = env.step(0)
    assert (1.0, [terminated, truncated, info]) == (reward, ends)
    assert [float, bool, bool] == [type(part) for part in (reward, *ends[:2])]


@pytest.mark.parametrize(
    ("step", "terminated", "truncated", "info"),
    [
        (termination(zero(), 1.0), True, True, {"lives": 2}),
        # It discounts by 0 without having terminated.
        (truncation(zero(), 1.0, 0.0), False, True, {"lives": 2, "discount": 0.0}),
        # It says nothing of use.
        (termination(zero(), 1.0), False, False, {"lives": 2}),
    ],
)
def test_flags_in_the_info_decide_the_end(step, terminated, truncated, info):
    env = scripted(step)
    env.wrapped_env().info = {
        "terminated": terminated,
        "truncated": truncated,
        "lives": 2,
    }
    env.reset()

    _, _, *ends = env.step(0)

    if not (terminated or truncated):
        terminated = True
    assert [terminated, truncated, info] == ends


def test_the_info_is_a_copy():
    """And an environment without one is asked once."""
    env = scripted(transition(zero(), 1.0), info={"lives": 2})
    _, info = env.reset()
    info["lives"] = 0
    assert {"lives": 2} == env.step(0)[4]
    env = scripted(transition(zero(), 1.0))
    env.reset()
    env.wrapped_env().info = {"lives": 2}
    assert {} == env.step(0)[4]


def test_vector_rewards_are_arrays():
    class Several(CountingEnv):
        def reward_spec(self):
            return ArraySpec((2,), np.float64)

        def _reset(self):
            return super()._reset()._replace(reward=np.zeros(2))

        def _step(self, action):
            return super()._step(action)._replace(reward=np.array([0.5, 1.5]))

    env = PyToGymnasium(Several())
    env.reset()

    assert [0.5, 1.5] == env.step(0)[1].tolist()


def test_a_seed_reaches_the_environment_and_np_random():
    first, second = PyToGymnasium(Catch()), PyToGymnasium(Catch())
    episodes = [env.reset(seed=7)[0].tolist() for env in (first, second)]
    assert episodes[0] == episodes[1]
    assert first.np_random.integers(99) == second.np_random.integers(99)
    assert 7 == first.np_random_seed


def test_an_environment_without_seeds_is_logged(caplog):
    env = scripted(transition(zero(), 1.0))
    with caplog.at_level(logging.WARNING):
        env.reset(seed=7)
    assert [
        "reset(seed=...) has not seeded Scripted: Scripted cannot be seeded: override "
        "seed(seed), or give _reset() an argument seed."
    ] == caplog.messages


def test_options_reach_environments_that_accept_them():
    env = PyToGymnasium(GymnasiumWrapper(gymnasium.make("CartPole-v1")))
    observation, _ = env.reset(seed=1, options={"low": 0.25, "high": 0.5})
    assert (observation >= 0.25).all()
    assert (env.reset()[0] < 0.25).all()
    assert scripted(transition(zero(), 1.0)).reset(options={"low": 1})


@pytest.mark.parametrize("before", [[], [0, 0]])
def test_a_step_outside_an_episode_is_refused(before, message_of):
    env = scripted(termination(zero(), 1.0))
    for action in before[1:]:
        env.reset()
        env.step(action)

    assert (
        "PyToGymnasium(Scripted).step() was called before reset(), or after the end of "
        "an episode. Call reset() first."
    ) == message_of(gymnasium.error.ResetNeeded, lambda: env.step(0))


class Choosing(PyEnvironment):
    """Keeps the actions that it was given."""

    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.given = []

    def observation_spec(self):
        return ArraySpec((), np.float32)

    def action_spec(self):
        return self.spec

    def _reset(self):
        return restart(np.zeros((), np.float32))

    def _step(self, action):
        self.given.append(action)
        return transition(np.zeros((), np.float32), 0.0)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8])
@pytest.mark.parametrize("kind", [int, np.int64, np.int16, np.array])
def test_an_integer_of_any_type_gets_the_dtype_of_the_spec(dtype, kind):
    env = Choosing(BoundedArraySpec((), dtype, -1, 3))
    adapted = PyToGymnasium(env)
    adapted.reset()
    for number in (-1, 3):
        adapted.step(kind(number))

    assert [(np.ndarray, dtype, -1), (np.ndarray, dtype, 3)] == [
        (type(given), given.dtype, int(given)) for given in env.given
    ]


@pytest.mark.parametrize("wrong", [-2, 4, np.int64(4), 10**30])
def test_an_integer_out_of_range_is_refused(wrong):
    env = Choosing(BoundedArraySpec((), np.int64, -1, 3))
    adapted = PyToGymnasium(env)
    adapted.reset()
    with pytest.raises(SpecError):
        adapted.step(wrong)
    assert [] == env.given


def test_render_uses_the_render_mode():
    env = PyToGymnasium(Catch(), render_mode="rgb_array")
    env.reset()
    assert ((3,), ["rgb_array", "ansi"]) == (
        env.render().shape[2:],
        env.metadata["render_modes"],
    )
    assert isinstance(env.wrapped_env(), PyEnvironment)


def test_mode_and_metadata_come_from_the_environment():
    gym_env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    env = PyToGymnasium(GymnasiumWrapper(gym_env))
    assert "rgb_array" == env.render_mode
    assert gym_env.metadata["render_fps"] == env.metadata["render_fps"]
    assert ["human", "rgb_array"] == env.metadata["render_modes"]
    env.close()


def test_attributes_are_read_and_set_in_their_layer():
    env = PyToGymnasium(TimeLimit(Catch(), 5))
    assert 5 == env.get_wrapper_attr("duration")
    assert (True, False) == (
        env.has_wrapper_attr("duration"),
        env.has_wrapper_attr("nothing"),
    )
    inner = Scripted(restart(zero()))
    env = PyToGymnasium(inner)
    assert env.set_wrapper_attr("info", {"lives": 2}, force=False)
    assert env.set_wrapper_attr("render_mode", "ansi")
    assert not env.set_wrapper_attr("nothing", 1, force=False)
    assert ({"lives": 2}, "ansi") == (inner.info, env.render_mode)
    assert not hasattr(inner, "nothing")
    game = gymnasium.make("CartPole-v1")
    env = PyToGymnasium(GymnasiumWrapper(game))
    assert env.set_wrapper_attr("gravity", 1.6)
    assert 1.6 == game.unwrapped.gravity == env.get_wrapper_attr("gravity")


def test_a_copy_continues_the_episode():
    env = PyToGymnasium(Catch())
    env.reset(seed=7)
    env.step(0)
    expected = env.step(1)[0].tolist()
    env.reset(seed=7)
    env.step(0)

    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert expected == twin.step(1)[0].tolist()


def test_gymnasiums_vector_environments_accept_it():
    makers = [lambda: PyToGymnasium(CountingEnv(2))] * 2
    envs = gymnasium.vector.SyncVectorEnv(makers, autoreset_mode="SameStep")
    envs.reset(seed=1)

    envs.step(np.zeros(2, np.int64))
    observations, rewards, terminations, _, infos = envs.step(np.zeros(2, np.int64))

    assert ([10, 10], [1.0, 1.0], [True, True], [2, 2]) == (
        observations.tolist(),
        rewards.tolist(),
        terminations.tolist(),
        infos["final_obs"].tolist(),
    )


def test_texts_and_integers_are_members_of_gymnasiums_types():
    class Told(PyEnvironment):
        def observation_spec(self):
            return ArraySpec((), "<U5"), BoundedArraySpec((), np.int64, 0, 4)

        def action_spec(self):
            return BoundedArraySpec((), np.int64, 0, 1)

        def _reset(self):
            return restart((np.array("begin"), np.array(3)))

        def _step(self, action):
            raise NotImplementedError

    env = PyToGymnasium(Told())

    observation, _ = env.reset()

    assert ("begin", 3) == observation
    assert [str, np.int64] == [type(part) for part in observation]
    assert isinstance(env.observation_space, spaces.Tuple)


def with_nest(name):
    nested = {f"{name}_spec": lambda self: {"a": ArraySpec((), np.float32)}}
    return type("Nested", (CountingEnv,), nested)()


def begun(env):
    adapted = PyToGymnasium(env)
    adapted.reset()
    return adapted


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: PyToGymnasium(BatchedPyEnvironment([CountingEnv()])),
            ValueError,
            "PyToGymnasium was given BatchedPyEnvironment, which is a batch: "
            "PyToGymnasiumVector takes those.",
        ),
        (
            lambda: PyToGymnasium(Catch),
            TypeError,
            "PyToGymnasium was given the class Catch, not an environment. Did you mean "
            "Catch()?",
        ),
        (
            lambda: PyToGymnasium(7),
            TypeError,
            "PyToGymnasium was given 7 of type int, not an environment.",
        ),
        *(
            (
                lambda name=name: PyToGymnasium(with_nest(name)),
                ValueError,
                f"PyToGymnasium was given Nested, whose {name}_spec() is a dict of 1 "
                f"element; in Gymnasium the {name} is one {what}.",
            )
            for name, what in (("reward", "array"), ("discount", "number"))
        ),
        (
            lambda: begun(Catch()).step(3),
            SpecError,
            "PyToGymnasium.step() was given an action that does not fit its spec.\n\n"
            "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, "
            "maximum=2)\n"
            "  got        array of shape (), dtype int64, values 3 … 3\n\n"
            "The value 3 is above the maximum 2.",
        ),
        (
            PyToGymnasium(Catch()).render,
            NotImplementedError,
            "PyToGymnasium(Catch) was made without a render_mode, so it does not "
            'render. Make it with render_mode="rgb_array".',
        ),
        (
            lambda: PyToGymnasium(Catch()).seed,
            AttributeError,
            "'PyToGymnasium' object has no attribute 'seed'; wrapped_env() has.",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, text, message_of):
    assert text == message_of(error, call)
