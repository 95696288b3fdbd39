"""An environment of Gym, of whatever age, keeps envkit's contract."""

from __future__ import annotations

import copy
import functools
import importlib.machinery
import os
import pickle
import random
import subprocess
import sys
import types
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    nest,
)
from envkit.adapters.gym import suite as suite_gym
from envkit.adapters.gym.suite import (
    GymWrapper,
    action_converter,
    observation_converter,
    spec_from_gym_space,
)
from envkit.adapters.gymnasium import spaces as gymnasium_spaces
from envkit.adapters.gymnasium.to_gymnasium import PyToGymnasium
from envkit.adapters.gymnasium.to_gymnasium_vector import PyToGymnasiumVector
from envkit.errors import CallOrderError, MissingDependencyError, SpecError
from envkit.specs import check_arrays_nest
from envkit.specs.special import ObjectSpec
from envkit.wrappers import PrivateRandomness, RunStats, TimeLimit
from tests.adapters.old_gyms import (
    AGES,
    LIMIT,
    Box,
    Dict,
    Discrete,
    Gym17,
    Gym23,
    Gym26,
    MultiBinary,
    MultiDiscrete,
    Tuple,
    Wrapper,
    gym17,
    gym23,
    gym26,
)

EVERY_AGE = pytest.mark.parametrize("make", AGES.values(), ids=AGES.keys())


class Script:
    """Says what it is told to say, and remembers what it was given."""

    observation_space = Box(0, 100, (2,))
    action_space = Discrete(2)

    def __init__(self, *steps, first=(0, 0), spaces=None):
        self.steps, self.first, self.actions = list(steps), first, []
        if spaces is not None:
            self.observation_space, self.action_space = spaces

    def reset(self):
        return self.first

    def step(self, action):
        self.actions.append(action)
        return self.steps.pop(0)


def scripted(*steps, first=(0, 0), spaces=None, **options):
    env = GymWrapper(Script(*steps, first=first, spaces=spaces), **options)
    env.reset()
    return env


def observing(space, observation, **options):
    spaces = space, Discrete(2)
    return GymWrapper(Script(first=observation, spaces=spaces), **options)


def acting(space):
    end = (0, 0), 0.0, True, {}
    return scripted(end, spaces=(Script.observation_space, space))


def end_of_episode(env):
    """Steps to the end of an episode, and returns its last time step."""
    time_step = env.reset()
    while not time_step.is_last():
        time_step = env.step(1)
    return time_step


def stream(env, steps=30):
    """Steps, and shows all that came of it."""
    return [repr((env.step(step % 2), env.get_info())) for step in range(steps)]


@EVERY_AGE
def test_specs_come_from_the_spaces(make):
    env = GymWrapper(make())
    assert BoundedArraySpec((2,), np.float32, -100, 100) == env.observation_spec()
    assert BoundedArraySpec((), np.int64, 0, 1) == env.action_spec()
    assert ("observation", "action") == (
        env.observation_spec().name,
        env.action_spec().name,
    )


def test_bounds_can_stay_arrays_and_dtypes_can_be_chosen():
    env = GymWrapper(gym17(), simplify_box_bounds=False)
    assert (2,) == env.observation_spec().maximum.shape
    env = GymWrapper(gym17(), spec_dtype_map={Box: np.float16, Discrete: np.int32})
    time_step = env.step(np.array(1, np.int32))
    assert np.float16 == env.observation_spec().dtype == time_step.observation.dtype
    assert np.int32 == env.action_spec().dtype


@EVERY_AGE
def test_the_discount_is_the_argument_until_a_termination(make):
    env = GymWrapper(make(), discount=0.5)
    env.seed(0)
    first, second = env.step(0), env.step(0)
    assert (first.is_first(), second.is_mid()) == (True, True)
    assert [(0.0, 1.0), (0.0, 0.5)] == [
        (step.reward, step.discount) for step in (first, second)
    ]
    time_step = end_of_episode(env)
    assert time_step.observation[1] < LIMIT
    assert (1.0, 0.0) == (time_step.reward, time_step.discount)
    assert env.step(0).is_first()


@EVERY_AGE
def test_a_truncation_keeps_the_discount(make):
    env = GymWrapper(make(), discount=0.5)
    env.seed(0)
    time_step = env.reset()
    while not time_step.is_last():  # It stays away from the edges.
        time_step = env.step(int(time_step.observation[0] < 0))
    assert LIMIT == time_step.observation[1]
    assert (0.0, 0.5) == (time_step.reward, time_step.discount)


@pytest.mark.parametrize(
    ("step", "discount", "terminated", "truncated"),
    [
        ((True, {}), 0.0, True, False),
        ((True, {"TimeLimit.truncated": False}), 0.0, True, False),
        ((True, {"TimeLimit.truncated": True}), 0.5, False, True),
        ((True, False, {}), 0.0, True, False),
        ((False, True, {}), 0.5, False, True),
        ((True, True, {}), 0.0, True, True),
        ((np.True_, {}), 0.0, True, False),
        ((np.array([True]), {}), 0.0, True, False),
        ((1, None), 0.0, True, False),
    ],
)
def test_discount_and_info_tell_termination_from_truncation(
    step, discount, terminated, truncated
):
    env = scripted(((1, 1), 1.0, *step), discount=0.5)
    time_step = env.step(0)
    assert time_step.is_last()
    assert (1.0, discount) == (time_step.reward, time_step.discount)
    flags = {"terminated": terminated, "truncated": truncated}
    assert flags == {name: env.get_info()[name] for name in flags}


def test_a_step_may_return_a_list():
    env = scripted([(1, 1), 1.0, False, {}])
    assert env.step(0).is_mid()


@EVERY_AGE
def test_without_auto_reset_a_step_after_the_end_is_refused_until_reset(
    make, message_of
):
    env = GymWrapper(make(), auto_reset=False)
    end_of_episode(env)
    assert (
        f"The episode of {type(env.gym.unwrapped).__name__} has ended, and this "
        "GymWrapper was made with auto_reset=False. Call reset()."
    ) == message_of(CallOrderError, lambda: env.step(0))
    assert env.reset().is_first()
    assert env.step(0).is_mid()


@EVERY_AGE
def test_done_and_info_are_those_of_the_current_time_step(make):
    env = GymWrapper(make())
    assert (True, None) == (env.done, env.get_info())
    env.reset()
    assert not env.done
    time_step = env.step(0)
    env.get_info().clear()
    assert {"place": int(time_step.observation[0])} == env.get_info()
    end_of_episode(env)
    assert env.done


@pytest.mark.parametrize(
    ("make", "info"), [(gym17, None), (gym23, None), (gym26, {"began": True})]
)
def test_a_reset_has_an_info_if_the_environment_returns_one(make, info):
    env = GymWrapper(make())
    end_of_episode(env)
    env.reset()
    assert info == env.get_info()


def test_an_info_other_than_a_dictionary_is_unchanged():
    env = scripted(((1, 1), 1.0, True, ["a text"]))
    env.step(0)
    assert ["a text"] == env.get_info()


@pytest.mark.parametrize(
    ("observation", "is_all"),
    [
        (((1, 1), {"lives": 3}), True),
        ((((1, 1), {"lives": 3}), {"lives": 9, "began": True}), False),
    ],
    ids=["alone", "with an info"],
)
def test_an_observation_ending_in_a_dictionary_is_not_mistaken_for_an_info(
    observation, is_all
):
    space = Tuple(Box(0, 9, (2,)), Dict(lives=Discrete(4)))
    env = observing(space, observation)
    place, rest = env.reset().observation
    assert ([1, 1], 3) == (place.tolist(), rest["lives"])
    assert is_all == (env.get_info() is None)


@EVERY_AGE
def test_observations_are_copies_of_a_reused_array(make):
    env = GymWrapper(make())
    observations = [env.step(0).observation for _ in range(3)]
    assert [0, 1, 2] == [int(observation[1]) for observation in observations]


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (Box(0, 9, (2,)), [0.5, 1]),
        (Box(0, 9, (2,)), np.array([0.5, 1.0])),
        (Box(0, 9, (2,), np.uint8), np.array([3.0, 9.0])),
        (Box(0, 9, (2,), np.uint8), np.array([3, 9])),
        (Box(0, 1, (), np.float64), 0.5),
        (Discrete(4), 3),
        (Discrete(4), np.float64(3)),
        (MultiDiscrete([4, 4]), np.array([3, 2])),
        (MultiBinary(2), [True, False]),
        (Tuple(Discrete(4), Box(0, 9, (1,))), [2, [0.5]]),
        (Dict(place=Discrete(4), news=Box(0, 9, (1,))), {"news": [1], "place": 2}),
    ],
)
def test_observations_are_converted_to_their_spec(space, observation):
    env = observing(space, observation)

    found = env.reset().observation

    specs = nest.flatten(env.observation_spec())
    for spec, leaf in zip(specs, nest.flatten(found), strict=True):
        assert spec.check_array(leaf)
    np.testing.assert_array_equal(
        np.concatenate([np.ravel(leaf) for leaf in nest.flatten(found)]),
        np.concatenate([np.ravel(leaf) for leaf in _in_order(space, observation)]),
    )


def _in_order(space, value):
    if isinstance(space, Dict):
        return [value[name] for name in sorted(space.spaces)]
    return value if isinstance(space, Tuple) else [value]


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (Box(0, 9, (2,), np.uint8), np.array([0.5, 1.0])),
        (Box(0, 9, (2,), np.uint8), np.array([np.nan, 1.0])),
        (Box(0, 9, (2,), np.uint8), np.array([1.0, 256.0])),
        (Box(0, 9, (2,), np.uint8), np.array([-1, 1])),
        (Box(0, 9, (2,), np.uint8), [[1], [1, 2]]),
        (Box(0, 9, (2,)), np.zeros((2, 1))),
        (Discrete(4), "left"),
        (Tuple(Discrete(4)), {"place": 1}),
    ],
)
def test_observations_that_would_lose_precision_are_refused(space, observation):
    with pytest.raises(SpecError):
        observing(space, observation).reset()


def test_an_invalid_observation_is_explained(message_of):
    space = Dict(camera=Box(0, 255, (2, 2), np.uint8))
    env = observing(space, {"camera": np.full((2, 2), 0.5)})

    assert (
        "Script returned an observation that does not fit its spec at "
        "observation['camera'].\n\n"
        "  expected   BoundedArraySpec(shape=(2, 2), dtype=uint8, minimum=0, "
        "maximum=255, name='observation/camera')\n"
        "  got        array of shape (2, 2), dtype float64, values 0.5 … 0.5\n\n"
        "dtype is float64; the spec says uint8. If that is meant, add "
        ".astype(np.uint8)."
    ) == message_of(SpecError, env.reset)


def test_observations_can_keep_their_dtype():
    given = np.array([1.0, 2.5])
    env = observing(Box(0, 9, (2,), np.uint8), given, match_obs_space_dtype=False)
    found = env.reset().observation
    assert np.float64 == found.dtype
    np.testing.assert_array_equal(given, found)
    assert not np.shares_memory(given, found)


@pytest.mark.parametrize("observation", [np.zeros(3), [[1], [1, 2]], None])
def test_shapes_are_checked_even_if_dtypes_are_not(observation):
    env = observing(Box(0, 9, (2,)), observation, match_obs_space_dtype=False)
    with pytest.raises(SpecError):
        env.reset()


@pytest.mark.parametrize(
    "reward",
    [2, 2.0, np.float64(2), np.float32(2), np.int8(2), np.array(2.0), np.array([2])],
)
def test_a_reward_becomes_a_float32_scalar(reward):
    env = scripted(((1, 1), reward, False, {}))
    time_step = env.step(0)
    assert env.reward_spec().check_array(time_step.reward)
    assert 2.0 == time_step.reward


@pytest.mark.parametrize(
    ("reward", "shown"),
    [
        (np.zeros(2), "array of shape (2,), dtype float64, values 0.0 … 0.0"),
        (None, "None"),
    ],
)
def test_a_reward_other_than_a_number_is_refused(reward, shown, message_of):
    env = scripted(((1, 1), reward, False, {}))
    assert (
        "Script returned a reward that does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(), dtype=float32, name='reward')\n"
        f"  got        {shown}\n\n"
        "A reward of a Gym environment is one number."
    ) == message_of(SpecError, lambda: env.step(0))


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (None, "None"),
        (((0, 0), 0.0, False), "a tuple of 3 elements"),
        (np.zeros(4), "array of shape (4,), dtype float64, values 0.0 … 0.0"),
    ],
)
def test_a_step_with_an_invalid_result_is_refused(result, what, message_of):
    env = scripted(result)
    assert (
        f"Script.step() returned {what}; in Gym it returns the tuple (observation, "
        "reward, done, info), and since 0.26 (observation, reward, terminated, "
        "truncated, info)."
    ) == message_of(SpecError, lambda: env.step(0))


@pytest.mark.parametrize(
    "action", [1, True, np.int64(1), np.uint8(1), np.array(1), np.array(1, np.int32)]
)
def test_a_discrete_action_reaches_the_environment_as_an_int(action):
    env = acting(Discrete(2))
    env.step(action)
    assert [(int, 1)] == [(type(given), given) for given in env.gym.actions]


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (Box(-1, 1, (2,)), np.array([0.5, -1.0])),
        (Box(0, 9, (2,), np.uint8), [1, 2]),
        (MultiDiscrete([2, 3]), np.array([1, 2], np.int32)),
        (MultiBinary(3), np.array([1, 0, 1])),
    ],
)
def test_an_array_reaches_the_environment_in_the_dtype_of_its_space(space, action):
    env = acting(space)
    env.step(action)
    (given,) = env.gym.actions
    assert (space.dtype, space.shape) == (given.dtype, given.shape)
    np.testing.assert_array_equal(action, given)


def test_an_array_stays_in_the_dtype_of_its_spec_if_the_space_has_none():
    space = Box(-1, 1, (2,))
    del space.dtype
    env = acting(space)
    env.step(np.zeros(2, np.float32))
    assert np.float32 == env.gym.actions[0].dtype


def test_discrete_actions_in_a_nest_reach_the_environment_as_ints():
    env = acting(Dict(way=Tuple(Discrete(2), Box(-1, 1, (1,))), push=Discrete(3)))
    env.step({"way": (np.array(1), [0.5]), "push": np.array(2)})
    (given,) = env.gym.actions
    assert (int, int) == (type(given["way"][0]), type(given["push"]))
    assert (1, 0.5, 2) == (given["way"][0], given["way"][1][0], given["push"])


def test_discrete_actions_may_have_a_start():
    space = Discrete(3)
    space.start = 5
    env = acting(space)
    env.step(np.array(7))
    assert BoundedArraySpec((), np.int64, 5, 7) == env.action_spec()
    assert [7] == env.gym.actions


def test_an_action_is_copied_for_the_environment():
    env = acting(Box(-1, 1, (2,)))
    action = np.zeros(2, np.float32)
    env.step(action)
    assert not np.shares_memory(action, env.gym.actions[0])


@pytest.mark.parametrize("action", [2, -1, np.array([1]), 0.5, "left", None])
def test_an_invalid_action_moves_nothing(action):
    env = acting(Discrete(2))
    with pytest.raises(SpecError):
        env.step(action)
    assert [] == env.gym.actions


def test_an_invalid_action_is_explained(message_of):
    assert (
        "GymWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1, "
        "name='action')\n"
        "  got        array of shape (), dtype int64, values 2 … 2\n\n"
        "The value 2 is above the maximum 1."
    ) == message_of(SpecError, lambda: acting(Discrete(2)).step(2))


def test_an_environment_with_a_seed_method_is_seeded_at_once():
    env = GymWrapper(gym17())
    answer = env.seed(7)
    env.reset()
    env.reset()
    assert [7] == answer
    assert [None, 7] == env.gym.seeds


def test_a_seed_in_the_middle_of_an_episode_applies_to_the_next():
    streams = []
    for steps in (0, 1):
        env = GymWrapper(gym17())
        env.reset()
        env.seed(7)
        for _ in range(steps):
            env.step(0)
        env.reset()
        streams.append(stream(env))

    assert streams[0] == streams[1]


@pytest.mark.parametrize("make", [gym23, gym26])
def test_an_environment_whose_reset_takes_a_seed_is_seeded_by_reset(make):
    env = GymWrapper(make())
    answer = env.seed(7)
    env.reset()
    env.reset()
    assert 0 == answer
    assert [7, None] == env.gym.seeds


def test_an_environment_with_both_ways_of_seeding_is_seeded_both_ways():
    class Both(Gym23):
        def seed(self, seed=None):
            self.seeds.append(("method", seed))

    env = GymWrapper(Wrapper(Both()))

    answer = env.seed(7)
    env.reset()

    assert 0 == answer
    assert [("method", 7), 7] == env.gym.seeds


def test_under_a_wrapper_without_seeds_the_seed_method_is_called():
    class Deaf(Wrapper):
        def reset(self):
            return self.env.reset()

    class Both(Gym23):
        def seed(self, seed=None):
            self.rng = np.random.default_rng(seed)
            return [seed]

    streams = []
    for _ in range(2):
        env = GymWrapper(Deaf(Both()))
        env.seed(7)
        streams.append(stream(env))

    assert streams[0] == streams[1]


def test_a_reset_with_keyword_arguments_gets_the_seed():
    class Open(Gym26):
        def reset(self, **kwargs):
            return super().reset(**kwargs)

    env = GymWrapper(Open())
    env.seed(7)
    env.reset()

    assert [7] == env.gym.seeds


def test_a_reset_of_unknown_signature_gets_a_seed_only_if_there_is_one():
    env = GymWrapper(Gym17())
    env.gym.reset = Untold(env.gym.reset)
    env.seed(7)
    assert env.reset().is_first()
    assert [None, 7] == env.gym.seeds


class Untold:
    """Can be called, and hides what with, as what is written in C often does."""

    __signature__ = "none"

    def __init__(self, function):
        self._function = function

    def __call__(self):
        return self._function()


def test_an_environment_without_seeds_refuses_seed(message_of):
    assert (
        "Script cannot be seeded: it has no seed(), and its reset() takes no seed."
    ) == message_of(NotImplementedError, lambda: GymWrapper(Script()).seed(7))


def test_a_seed_is_kept_when_the_reset_fails():
    env = GymWrapper(Gym26())
    env.seed(7)
    env.gym.reset = lambda seed=None: 1 / 0
    with pytest.raises(ZeroDivisionError):
        env.reset()
    del env.gym.reset
    env.reset()
    assert [7] == env.gym.seeds


@pytest.mark.parametrize("seed", [7, np.int32(7), [7], (7,), np.array([7])])
@EVERY_AGE
def test_a_seed_reaches_gym_as_a_python_integer(make, seed):
    env = GymWrapper(make())
    env.seed(seed)
    env.reset()
    (used,) = (seed for seed in env.gym.seeds if seed is not None)
    assert (int, 7) == (type(used), used)
    for _ in range(2):
        env.seed(None)
        env.reset()
    assert 3 == len({seed for seed in env.gym.seeds if seed is not None})


@EVERY_AGE
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 12))
@settings(max_examples=4)
def test_the_stream_after_a_seed_depends_on_the_seed_alone(make, seed, steps):
    streams = []
    for before in (0, steps):
        env = GymWrapper(make())
        for _ in range(before):
            env.step(1)
        env.seed(seed)
        env.reset()
        streams.append(stream(env))

    assert streams[0] == streams[1]


@EVERY_AGE
def test_each_row_of_a_batch_has_its_own_stream(make):
    rows = [GymWrapper(make()), GymWrapper(make())]
    env = BatchedPyEnvironment(rows, multithreading=False)
    env.seed(7)
    env.reset()
    first, second = (row.gym.seeds[-1] for row in rows)
    assert first != second


@EVERY_AGE
def test_render_returns_a_copy(make):
    env = GymWrapper(make())
    env.seed(0)
    env.reset()
    first = env.render()
    before = first.copy()
    end_of_episode(env)

    after = env.render("rgb_array")

    assert before.max() < after.max()
    np.testing.assert_array_equal(before, first)


@pytest.mark.parametrize("make", [gym17, gym23])
def test_results_of_render_other_than_pictures_are_unchanged(make):
    env = GymWrapper(make())
    env.reset()
    assert env.render("human") is None


def test_keyword_arguments_of_render_reach_the_environment():
    class Sized(Gym17):
        metadata = None

        def render(self, mode="human", **kwargs):
            return mode, kwargs

    class Modeless(Gym26):
        def render(self, **kwargs):
            return kwargs

    env = GymWrapper(Sized(), render_kwargs={"width": 96})
    assert ("rgb_array", {"width": 96}) == env.render()
    assert ("ansi", {"width": 96}) == env.render("ansi")
    assert {"width": 96} == GymWrapper(Modeless(), render_kwargs={"width": 96}).render()
    with pytest.raises(TypeError, match="multiple values"):
        GymWrapper(Gym17(), render_kwargs={"mode": "human"}).render()


@pytest.mark.parametrize(
    ("env", "mode", "why"),
    [
        (
            Gym17(),
            "ansi",
            "Gym17 cannot render 'ansi': its metadata has the modes 'human', "
            "'rgb_array'.",
        ),
        (
            Gym26("human"),
            "rgb_array",
            "Gym26 cannot render 'rgb_array': the render_mode of this environment is "
            "chosen when it is made, and it was made with render_mode='human'. Make it "
            "with render_mode='rgb_array'.",
        ),
        (
            Wrapper(Gym26(None)),
            "rgb_array",
            "Gym26 cannot render 'rgb_array': the render_mode of this environment is "
            "chosen when it is made, and it was made without one. Make it with "
            "render_mode='rgb_array'.",
        ),
        (Script(), "rgb_array", "Script cannot render: it has no render()."),
    ],
)
def test_an_unsupported_render_mode_is_refused(env, mode, why, message_of):
    assert why == message_of(NotImplementedError, lambda: GymWrapper(env).render(mode))


def test_a_forwarding_wrapper_uses_the_environments_render_mode():
    class Passing(Wrapper):
        def render(self, *args, **kwargs):
            return self.env.render(*args, **kwargs)

    pictures = [
        GymWrapper(Passing(Passing(env))).render() for env in (Gym17(), Gym26())
    ]

    assert [(4, 4, 3)] * 2 == [picture.shape for picture in pictures]


def test_a_render_with_variable_arguments_gets_the_mode():
    class Open(Gym17):
        def render(self, *args):
            return args

    assert ("rgb_array",) == GymWrapper(Open()).render()


def test_an_environment_need_not_have_a_close():
    GymWrapper(Script()).close()


@EVERY_AGE
def test_attributes_are_set_in_the_wrapped_environment(make):
    env = BatchedPyEnvironment([GymWrapper(make()), GymWrapper(make())])
    envs = PyToGymnasiumVector(env)

    envs.set_attr("closed", [3, 4])
    envs.set_attr("brand_new", 5)
    assert [3, 4] == [own.gym.unwrapped.closed for own in env.envs]
    assert (5, 5) == envs.get_attr("brand_new")
    assert env.envs[0].set_wrapper_attr("closed", 6, force=False)
    assert not env.envs[0].set_wrapper_attr("nothing", 6, force=False)


@pytest.mark.parametrize("gather", [BatchedPyEnvironment, None])
def test_a_reset_without_an_info_has_an_empty_one_in_gymnasium(gather):
    if gather is None:
        game = PyToGymnasium(GymWrapper(gym17()))
    else:
        game = PyToGymnasiumVector(gather([GymWrapper(gym17()), GymWrapper(gym17())]))
    assert {} == game.reset()[1]


@EVERY_AGE
def test_a_copy_is_independent(make):
    env = GymWrapper(make())
    env.seed(3)
    env.reset()
    copied = copy.deepcopy(env)
    assert stream(copied) == stream(env)
    assert env.gym is not copied.gym


@EVERY_AGE
@given(seed=st.integers(0, 2**31 - 1), before=st.integers(0, 30))
@settings(max_examples=4)
def test_set_state_repeats_the_stream(make, seed, before):
    env = GymWrapper(make())
    env.seed(seed)
    for _ in range(before):
        env.step(1)
    state = pickle.loads(pickle.dumps(env.get_state()))
    ahead = stream(env)

    env.set_state(state)
    assert ahead == stream(env)


@EVERY_AGE
def test_a_state_includes_the_seed_of_the_next_reset(make):
    env = GymWrapper(make())
    env.reset()
    env.seed(7)
    state = env.get_state()
    streams = []
    for steps in (0, 1):
        env.set_state(state)
        for _ in range(steps):
            env.step(0)
        env.reset()
        streams.append(stream(env))

    assert streams[0] == streams[1]


def test_set_state_restores_an_ended_episode():
    env = GymWrapper(gym17(), auto_reset=False)
    end_of_episode(env)
    state = env.get_state()
    env.reset()

    env.set_state(state)
    assert env.done
    with pytest.raises(CallOrderError):
        env.step(0)


def test_worker_processes_return_the_same_stream():
    def play(env):
        with env:
            env.seed(7)
            return [repr(env.step(np.array([1, 0]))) for _ in range(12)]

    makers = [lambda: GymWrapper(gym17()), lambda: GymWrapper(gym17())]
    here = BatchedPyEnvironment([make() for make in makers], multithreading=False)

    assert play(here) == play(ParallelPyEnvironment(makers, num_workers=1))


def test_an_environment_with_an_id_is_called_by_its_id():
    class Registered(Script):
        spec = type("EnvSpec", (), {"id": "Script-v0"})()

    with pytest.raises(NotImplementedError, match=r"^Script-v0 cannot be seeded"):
        GymWrapper(Registered()).seed(7)


def test_gym_wrapper_takes_arguments_in_tf_agents_order():
    env = GymWrapper(gym17(), 0.5, {Box: np.float64}, True, False, False, {"a": 1})
    env.reset()
    assert 0.5 == env.step(0).discount
    assert (np.float64, (2,)) == (
        env.observation_spec().dtype,
        env.observation_spec().minimum.shape,
    )


def test_options_reach_a_reset_that_takes_them():
    given = []

    class Asked(Gym26):
        def reset(self, seed, options):
            given.append((seed, options))
            return super().reset(seed=seed)

    env = GymWrapper(Wrapper(Asked()))
    env.reset(seed=7, options={"level": 3})
    env.reset()

    assert [(7, {"level": 3}), (None, None)] == given


def test_a_gym_without_options_refuses_them():
    env = GymWrapper(gym17())
    with pytest.raises(NotImplementedError, match="takes no reset options"):
        env.reset(options={"level": 3})


ROOT = Path(__file__).parents[2]


class OldSpec:
    """What an id stood for until 0.23: its `make` adds nothing."""

    def __init__(self, entry_point, max_episode_steps):
        self.id = "Walk-v0"
        self.entry_point, self.max_episode_steps = entry_point, max_episode_steps

    def make(self, **kwargs):
        return self.entry_point(**kwargs)


class LateSpec(OldSpec):
    """What it stands for since: a limit and a checker go around the environment."""

    disable_env_checker = False

    def make(self, **kwargs):
        env = super().make(**kwargs)
        if not self.disable_env_checker:
            raise AttributeError("module 'numpy' has no attribute 'bool8'")
        if self.max_episode_steps is not None:
            raise AssertionError("Gym's own limit hides why an episode ends.")
        return Wrapper(env)


def install(monkeypatch, kind=OldSpec, entry_point=Gym17, max_episode_steps=None):
    """Puts a module in the place of Gym that knows one id, and returns what it is."""
    spec = kind(entry_point, max_episode_steps)
    gym = types.ModuleType("gym")
    gym.__spec__ = importlib.machinery.ModuleSpec("gym", None, origin="here")
    gym.spec = {"Walk-v0": spec}.__getitem__
    monkeypatch.setitem(sys.modules, "gym", gym)
    return spec


def length_of_an_episode(env, most=20):
    """Counts the steps of an episode in which the piece stays away from the edges."""
    time_step = env.reset()
    steps = 0
    while not time_step.is_last() and steps < most:
        time_step = env.step(int(time_step.observation[0] < 0))
        steps += 1
    return steps


@pytest.mark.parametrize(
    ("kind", "entry_point"), [(OldSpec, Gym17), (LateSpec, Gym17), (LateSpec, Gym26)]
)
def test_load_applies_the_limit_of_the_id(monkeypatch, kind, entry_point):
    spec = install(monkeypatch, kind, entry_point, 5)
    env = suite_gym.load("Walk-v0")
    assert isinstance(env, TimeLimit)
    assert (5, 5) == (env.duration, length_of_an_episode(env))
    assert 1.0 == env.current_time_step().discount
    assert 5 == spec.max_episode_steps


@pytest.mark.parametrize(
    ("of_the_id", "asked_for", "length"),
    [(None, None, 20), (5, 3, 3), (5, 0, 20), (5, -1, 20)],
    ids=["none", "another", "none at all", "negative"],
)
@pytest.mark.parametrize("kind", [OldSpec, LateSpec])
def test_load_accepts_another_limit_or_none(
    monkeypatch, kind, of_the_id, asked_for, length
):
    install(monkeypatch, kind, max_episode_steps=of_the_id)
    env = suite_gym.load("Walk-v0", max_episode_steps=asked_for)
    assert (TimeLimit if length < 20 else PrivateRandomness) is type(env)
    assert length == length_of_an_episode(env)


def test_load_takes_arguments_in_tf_agents_order(monkeypatch):
    class Sized(Gym17):
        def __init__(self, size, colour=None):
            super().__init__()
            self.size, self.colour = size, colour

        def render(self, mode="human", **kwargs):
            return kwargs

    install(monkeypatch, entry_point=Sized)

    env = suite_gym.load(
        "Walk-v0",
        0.5,
        4,
        (Wrapper, Wrapper),
        (RunStats,),
        {Box: np.float64},
        {"size": 7},
        {"width": 96},
        colour="red",
    )
    env.reset()

    assert isinstance(env, RunStats)
    assert (7, "red", 4) == (env.size, env.colour, env.duration)
    assert Wrapper is type(env.gym.env)
    assert np.float64 == env.observation_spec().dtype
    assert 0.5 == env.step(0).discount
    assert {"width": 96} == env.render()


def test_a_module_that_registers_the_id_is_imported_first(monkeypatch, tmp_path):
    gym_spec = install(monkeypatch)
    (tmp_path / "old_walks.py").write_text("imported = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    env = suite_gym.load("old_walks:Walk-v0")
    assert sys.modules.pop("old_walks").imported
    assert isinstance(env.gym, gym_spec.entry_point)


def test_a_missing_gym_is_named_and_not_needed_by_the_wrapper(monkeypatch, message_of):
    monkeypatch.setitem(sys.modules, "gym", None)
    assert (
        "The environment 'CartPole-v1' needs the package gym, which is not installed. "
        'pip install "gym>=0.22"'
    ) == message_of(MissingDependencyError, lambda: suite_gym.load("CartPole-v1"))
    for make in AGES.values():
        assert suite_gym.wrap_env(make()).reset().is_first()


@EVERY_AGE
def test_wrap_env_sets_no_limit_by_default(make):
    env = suite_gym.wrap_env(make(), private_randomness=False)
    assert GymWrapper is type(env)


class Dicey(Gym17):
    """Draws from the generators of the whole process, as many old games do."""

    def seed(self, seed=None):
        return [seed]

    def _draw(self, n):
        return (np.random.randint(n) + random.randrange(n)) % n  # noqa: NPY002  # so


def dicey(**options):
    return suite_gym.wrap_env(Dicey(), max_episode_steps=7, **options)


def places(env, actions):
    return [env.step(action).observation.copy() for action in actions]


@pytest.mark.parametrize("rows", [4, 16])
def test_old_games_play_in_one_worker_as_they_do_alone(rows):
    seeds, actions = range(rows), [step % 2 for step in range(40)]
    alone = []
    for seed in seeds:
        env = dicey()
        env.seed(seed)
        alone.append(places(env, actions))

    with ParallelPyEnvironment([dicey] * rows, num_workers=1, backend="inline") as env:
        env.seed(list(seeds))
        together = places(env, [np.full(rows, action) for action in actions])

    np.testing.assert_array_equal(np.swapaxes(alone, 0, 1), together)


def test_old_games_are_stepped_without_time_steps_all_the_same():
    for make in (dicey, functools.partial(dicey, private_randomness=False)):
        env = make()
        assert env._envkit.direct_row(env) is not None


def test_wrap_env_takes_arguments_in_tf_agents_order():
    class Limit(TimeLimit):
        pass

    env = suite_gym.wrap_env(
        gym17(),
        0.5,
        2,
        (Wrapper,),
        Limit,
        (RunStats,),
        {Box: np.float64},
        False,
        {"width": 96},
    )

    assert isinstance(env, RunStats)
    assert Limit is type(env.wrapped_env())
    assert Wrapper is type(env.gym)
    assert np.float64 == env.observation_spec().dtype
    assert 2 == length_of_an_episode(env)
    assert 0.5 == env.current_time_step().discount


# By version, what it needs beside NumPy. The youngest of all, whose checker fails with
# NumPy 2; one in which reset() has seeds, and step() still four values; and the
# youngest of those with a seed() that installs with any Python. That one looks for
# distutils, which only setuptools has since Python 3.12, and draws on displays only.
PACKAGES = {
    "0.26.2": ["gym_notices", "pygame-ce"],
    "0.23.1": ["gym_notices", "pygame-ce"],
    "0.17.3": ["scipy", "setuptools"],
}


def python_with_gym(version: str, folder: Path) -> Path:
    """Returns an interpreter that has a version of Gym and this version of NumPy."""
    packages = [f"gym=={version}", f"numpy=={np.__version__}", "cloudpickle", "dm-tree"]
    # What they are said to need besides is for other environments.
    options = ["--no-deps", "--retries=1", *packages, *PACKAGES[version]]
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, ROOT / "tools" / "make_venv.py", folder],
        [python, "-m", "pip", "install", *options],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.fail(
                f"This test makes a virtual environment with gym {version} from a "
                "package index, and that failed:\n\n"
                f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
            )
    return python


@pytest.mark.slow
@pytest.mark.parametrize("version", PACKAGES)
def test_real_environments_match_gym_without_the_wrapper(version, tmp_path):
    finished = subprocess.run(
        [
            python_with_gym(version, tmp_path / "venv"),
            "-W",
            "ignore",
            "tests/adapters/gym_games.py",
            version,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert 0 == finished.returncode, finished.stderr
    assert (
        "played: CartPole-v1 FrozenLake Blackjack" == finished.stdout.splitlines()[-1]
    )


def box(low, high, dtype=np.float32):
    space = Box(0, 1, np.shape(low), dtype)
    space.low, space.high = np.array(low, dtype), np.array(high, dtype)
    return space


def boxes():
    dtypes = st.sampled_from([np.float32, np.float64, np.uint8, np.int64])
    shapes = st.sampled_from([(), (1,), (2, 3), (0,)])
    return st.builds(Box, st.just(0), st.integers(0, 9), shapes, dtypes)


def all_spaces():
    counts = st.integers(1, 9)
    leaves = (
        boxes()
        | st.builds(Discrete, counts)
        | st.builds(MultiDiscrete, st.lists(counts, min_size=1, max_size=3))
        | st.builds(MultiBinary, st.sampled_from([1, 3, (2, 2)]))
    )
    return st.recursive(
        leaves,
        lambda parts: (
            st.lists(parts, max_size=3).map(lambda children: Tuple(*children))
            | st.dictionaries(st.sampled_from("bca"), parts).map(
                lambda children: Dict(**children)
            )
        ),
        max_leaves=5,
    )


def member_of(space, rng):
    """Draws a member as Gym does, in the space's own dtype."""
    if isinstance(space, Dict):
        return {key: member_of(part, rng) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(member_of(part, rng) for part in space.spaces)
    if isinstance(space, Discrete):
        return rng.randint(space.n)
    if isinstance(space, MultiDiscrete):
        return (rng.random_sample(space.shape) * space.nvec).astype(space.dtype)
    if isinstance(space, MultiBinary):
        return rng.randint(2, size=space.shape).astype(space.dtype)
    return np.asarray(rng.uniform(space.low, space.high), space.dtype)


def dtypes_in(space):
    """Lists the dtypes of the members, in the order of `nest.flatten`."""
    if isinstance(space, Dict):
        children = [space.spaces[key] for key in sorted(space.spaces)]
    elif isinstance(space, Tuple):
        children = space.spaces
    else:
        return [int if isinstance(space, Discrete) else space.dtype]
    return [dtype for child in children for dtype in dtypes_in(child)]


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (Discrete(3), BoundedArraySpec((), np.int64, 0, 2)),
        (MultiDiscrete([2, 3]), BoundedArraySpec((2,), np.int32, 0, [1, 2])),
        (MultiDiscrete([[2], [3]]), BoundedArraySpec((2, 1), np.int32, 0, [[1], [2]])),
        (MultiBinary(4), BoundedArraySpec((4,), np.int32, 0, 1)),
        (MultiBinary((2, 3)), BoundedArraySpec((2, 3), np.int32, 0, 1)),
        (Box(-1, 1, (2,)), BoundedArraySpec((2,), np.float32, -1, 1)),
        (
            box([0, -np.inf], [1, np.inf]),
            BoundedArraySpec(
                (2,),
                np.float32,
                [0, np.finfo(np.float32).min],
                [1, np.finfo(np.float32).max],
            ),
        ),
        (Box(0, 255, (2, 2), np.uint8), BoundedArraySpec((2, 2), np.uint8, 0, 255)),
        (Box(0, 1, (2,), np.bool_), ArraySpec((2,), np.bool_)),
        (Box("", "", (), "<U3"), ArraySpec((), "<U3")),
    ],
)
def test_a_space_becomes_the_spec_of_tf_agents(space, spec):
    found = spec_from_gym_space(space, name="it")
    assert spec == found
    assert type(spec) is type(found)
    assert "it" == found.name


@pytest.mark.parametrize(
    ("space", "shapes"),
    [
        (box([0, 0], [1, 1]), ((), ())),
        (box([0, 0], [1, 2]), ((2,), (2,))),
        (MultiDiscrete([3, 3]), ((), ())),
        (MultiDiscrete([3, 2]), ((), (2,))),
        (Box(0, 1, (0,)), ((0,), (0,))),
    ],
)
def test_uniform_bounds_become_numbers(space, shapes):
    spec = spec_from_gym_space(space)
    assert shapes == (spec.minimum.shape, spec.maximum.shape)
    if isinstance(space, Box):
        arrays = spec_from_gym_space(space, simplify_box_bounds=False)
        assert space.shape == arrays.minimum.shape == arrays.maximum.shape


def test_a_nest_keeps_the_order_of_its_keys_and_names_its_parts():
    space = Dict(b=Tuple(Discrete(2), Discrete(3)), a=Discrete(4))

    named, plain = spec_from_gym_space(space, name="it"), spec_from_gym_space(space)

    assert ["b", "a"] == list(named)
    assert isinstance(named["b"], tuple)
    assert ["it/a", "it/b/tuple_0", "it/b/tuple_1"] == [
        spec.name for spec in nest.flatten(named)
    ]
    assert ["a", "b/tuple_0", "b/tuple_1"] == [
        spec.name for spec in nest.flatten(plain)
    ]


def test_dtypes_can_be_chosen_by_class_of_space():
    class Narrow(Discrete):
        pass

    space = Dict(
        a=Discrete(2),
        b=Narrow(2),
        c=Box(0, 1, (1,)),
        d=MultiDiscrete([2]),
        e=MultiBinary(1),
    )
    chosen = {
        Discrete: np.uint16,
        Narrow: np.uint8,
        Box: np.float64,
        MultiDiscrete: np.int8,
        MultiBinary: np.uint8,
    }

    dtypes = [spec.dtype for spec in nest.flatten(spec_from_gym_space(space, chosen))]

    assert [np.uint16, np.uint8, np.float64, np.int8, np.uint8] == dtypes


def test_spaces_of_early_versions_may_lack_attributes():
    discrete, multi_binary = Discrete(3), MultiBinary(3)
    box_without, multi_discrete = Box(0, 1, (2,), np.float64), MultiDiscrete([2])
    for space in (discrete, box_without, multi_discrete):
        del space.shape, space.dtype
    multi_binary.dtype = None
    assert BoundedArraySpec((), np.int64, 0, 2) == spec_from_gym_space(discrete)
    assert BoundedArraySpec((2,), np.float32, 0, 1) == spec_from_gym_space(box_without)
    assert BoundedArraySpec((1,), np.int32, 0, 1) == spec_from_gym_space(multi_discrete)
    assert BoundedArraySpec((3,), np.int32, 0, 1) == spec_from_gym_space(multi_binary)


def test_gym_spaces_are_recognised_by_name():
    # Without a shape its attributes would speak for Discrete.
    kind = type("MultiBinary", (), {"__module__": "gym.spaces.multi_binary"})
    space = type("Mine", (kind,), {})()
    space.n = (2, 3)
    assert BoundedArraySpec((2, 3), np.int32, 0, 1) == spec_from_gym_space(space)


def test_bounds_outside_of_a_chosen_dtype_are_refused():
    with pytest.raises(ValueError, match="not within the range"):
        spec_from_gym_space(Box(0, 300, (2,)), {Box: np.uint8})


@pytest.mark.parametrize(
    ("space", "name", "message"),
    [
        (None, None, "The space is None, which is not a space of Gym."),
        (
            Dict(a=Tuple("Discrete(2)")),
            "it",
            "The space at it['a'][0] is the string 'Discrete(2)', which is not a space "
            "of Gym.",
        ),
    ],
)
def test_a_value_other_than_a_space_is_refused(space, name, message, message_of):
    assert message == message_of(
        ValueError, lambda: spec_from_gym_space(space, name=name)
    )


LATE = gymnasium.spaces.Dict(
    text=gymnasium.spaces.Text(4, charset="ab"),
    list=gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3)),
)


def test_spaces_of_late_versions_become_the_specs_of_gymnasium_spaces():
    spec = spec_from_gym_space(LATE, name="it")
    assert gymnasium_spaces.spec_from_gym_space(LATE, name="it") == spec
    assert isinstance(spec["list"], ObjectSpec)
    read = observation_converter(LATE, spec, subject="It")
    write = action_converter(LATE, spec, subject="It")
    member = {"text": "ab", "list": (0, 2)}

    value = read(member)
    assert check_arrays_nest(value, spec)
    assert member == write(value)
    for convert in (read, write):
        with pytest.raises(SpecError, match=r"^It does not fit its spec"):
            convert({"text": "abbab", "list": ()})


@settings(max_examples=25)
@given(space=all_spaces(), seed=st.integers(0, 999))
def test_members_of_a_space_survive_a_round_trip(space, seed):
    spec = spec_from_gym_space(space)
    member = member_of(space, np.random.RandomState(seed))
    value = observation_converter(space, spec, subject="It")(member)
    back = action_converter(space, spec, subject="It")(value)
    kept = observation_converter(space, spec, subject="It", to_dtype=False)(member)

    assert check_arrays_nest(value, spec)
    members, backs, keeps = (nest.flatten(tree) for tree in (member, back, kept))
    assert dtypes_in(space) == [
        int if type(leaf) is int else leaf.dtype for leaf in backs
    ]
    for before, after, copied in zip(members, backs, keeps, strict=True):
        np.testing.assert_array_equal(before, after)
        # An observation that keeps its dtype is a copy.
        assert np.asarray(before).dtype == copied.dtype
        np.testing.assert_array_equal(before, copied)
        assert not np.shares_memory(np.asarray(before), copied)
