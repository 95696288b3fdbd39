"""Every environment that Gymnasium ships and that runs here comes through unchanged."""

from __future__ import annotations

import functools
import importlib.util
import pickle
import re

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_match import check_environments_match

from envkit.adapters import GymnasiumWrapper, PyToGymnasium, spec_from_gym_space
from envkit.adapters.spaces.from_members import from_member
from envkit.adapters.spaces.members import to_member
from envkit.adapters.spaces.spaces_from_specs import space_from_spec
from tests.adapters.gym_spaces import same
from tests.adapters.plain_numbers import Plain

# By where an environment's class is: the packages that it needs.
NEEDS = {
    "gymnasium.envs.classic_control": [],
    "gymnasium.envs.toy_text": [],
    "gymnasium.envs.box2d": ["Box2D", "pygame"],
    "gymnasium.envs.mujoco": ["mujoco"],
    "gymnasium.envs.phys2d": ["jax", "flax"],
    "gymnasium.envs.tabular": ["jax", "flax"],
}
# What is registered, but is in other packages by now, or needs an older MuJoCo.
ELSEWHERE = re.compile(r".*-v[23]|Pusher-v4|GymV2[16]Environment-v0")
# What is compiled, or draws pictures to look at.
SLOW = {"gymnasium.envs.box2d", "gymnasium.envs.phys2d", "gymnasium.envs.tabular"}
STEPS = 40


def home_of(spec):
    """Names the folder of Gymnasium that an environment's class is in."""
    return ".".join(str(spec.entry_point).partition(":")[0].split(".")[:3])


def is_elsewhere(spec):
    in_mujoco = home_of(spec) == "gymnasium.envs.mujoco"
    known = in_mujoco or home_of(spec) not in NEEDS
    return known and ELSEWHERE.fullmatch(spec.id) is not None


def own():
    """Lists what Gymnasium has registered itself, whether it runs here or not."""
    specs = gymnasium.registry.values()
    return [spec for spec in specs if str(spec.entry_point).startswith("gymnasium.")]


@functools.cache
def is_here(home):
    return all(map(importlib.util.find_spec, NEEDS[home]))


def shipped():
    """Yields the ids of all versions of what Gymnasium ships."""
    for spec in own():
        if is_elsewhere(spec):
            continue
        packages = " or ".join(NEEDS[home_of(spec)])
        missing = pytest.mark.skipif(
            not is_here(home_of(spec)), reason=f"{packages} is not installed"
        )
        slow = [pytest.mark.slow] if home_of(spec) in SLOW else []
        yield pytest.param(spec.id, marks=[missing, *slow])


every_environment = pytest.mark.parametrize("name", list(shipped()))
pytestmark = [
    # Box2D crashes where the warnings are errors that it raises when it is imported.
    pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning"),
    # There are newer ones of some.
    pytest.mark.filterwarnings("ignore:.*is out of date"),
    pytest.mark.filterwarnings("ignore:.*are deprecated:DeprecationWarning"),
]


def make(name, **arguments):
    return gymnasium.make(name, max_episode_steps=15, **arguments)


def wrapped(name, **arguments):
    return GymnasiumWrapper(make(name, **arguments), reward_dtype=np.float64)


@pytest.mark.parametrize("spec", own(), ids=lambda spec: spec.id)
def test_what_is_registered_is_played_here_or_cannot_be_made(spec):
    if is_elsewhere(spec):
        with pytest.raises((ImportError, gymnasium.error.DependencyNotInstalled)):
            gymnasium.make(spec.id)
    else:
        assert home_of(spec) in NEEDS


@every_environment
def test_there_and_back_again_it_is_the_same_to_gymnasium(name):
    ours = PyToGymnasium(wrapped(name, disable_env_checker=True))

    check_environments_match(
        Plain(make(name, disable_env_checker=True)), ours, num_steps=STEPS, seed=3
    )


@every_environment
def test_its_spaces_come_back_from_their_specs(name):
    env = make(name)

    for space in (env.observation_space, env.action_space):
        spec = spec_from_gym_space(space)
        assert space == space_from_spec(spec)
        space.seed(1)
        member = space.sample()
        assert same(member, to_member(space, spec)(from_member(space, spec)(member)))


def steps_in_gymnasium(env, actions, read):
    """Yields what an environment says, as it has to come out of the wrapper."""
    observation, info = env.reset(seed=5)
    yield read(observation), 0.0, False, 1.0, info
    ended = False
    for action in actions:
        if ended:
            observation, info = env.reset()
            yield read(observation), 0.0, False, 1.0, info
            ended = False
            continue
        observation, reward, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
        if ended:
            info = {"terminated": terminated, "truncated": truncated, **info}
        discount = 0.0 if terminated else 1.0
        yield read(observation), float(reward), ended, discount, info


def steps_in_envkit(env, actions):
    """Yields what the wrapper says."""
    env.seed(5)
    time_steps = [env.reset]
    time_steps += [lambda action=action: env.step(action) for action in actions]
    for call in time_steps:
        time_step = call()
        yield (
            time_step.observation,
            float(time_step.reward),
            bool(time_step.is_last()),
            float(time_step.discount),
            env.get_info(),
        )


@every_environment
def test_it_makes_the_steps_that_it_makes_in_gymnasium(name):
    env, own = wrapped(name), make(name)
    own.action_space.seed(5)
    actions = [own.action_space.sample() for _ in range(STEPS)]
    read = from_member(own.observation_space, env.observation_spec())

    expected = list(steps_in_gymnasium(own, actions, read))
    actual = list(steps_in_envkit(env, actions))

    assert all(map(same, expected, actual))


@every_environment
def test_its_state_brings_back_what_came_after_it(name):
    env = wrapped(name)
    env.seed(5)
    env.action_space.seed(5)
    for _ in range(STEPS // 2):
        env.step(env.action_space.sample())
    actions = [env.action_space.sample() for _ in range(STEPS)]
    if "box2d" in type(env.unwrapped).__module__:
        with pytest.raises(NotImplementedError, match="cannot pickle 'SwigPyObject'"):
            env.get_state()
        return
    state = pickle.loads(pickle.dumps(env.get_state()))
    other = wrapped(name)

    def future(env):
        return [(tuple(env.step(action)), env.get_info()) for action in actions]

    ahead = future(env)
    for restored in (env, other):
        restored.set_state(state)
        assert all(map(same, ahead, future(restored)))
