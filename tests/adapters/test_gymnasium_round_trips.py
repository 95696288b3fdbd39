"""Every environment that Gymnasium ships and that runs here comes through unchanged."""

from __future__ import annotations

import importlib.util
import pickle

import gymnasium
import numpy as np
import pytest

from envkit.adapters import GymnasiumWrapper, spec_from_gym_space
from envkit.adapters.spaces.from_members import from_member
from envkit.adapters.spaces.members import to_member
from envkit.adapters.spaces.spaces_from_specs import space_from_spec
from tests.adapters.gym_spaces import same

# By where an environment's class is: the package that it needs, if any.
NEEDS = {
    "gymnasium.envs.classic_control": "",
    "gymnasium.envs.toy_text": "",
    "gymnasium.envs.box2d": "Box2D",
    "gymnasium.envs.mujoco": "mujoco",
}
STEPS = 40


def shipped():
    """Lists the ids of what can be made here, the newest version of each."""
    newest = {spec.name: spec for spec in sorted(gymnasium.registry.values(), key=age)}
    for spec in newest.values():
        for home, package in NEEDS.items():
            is_here = not package or importlib.util.find_spec(package)
            if str(spec.entry_point).startswith(home) and is_here:
                yield spec.id


def age(spec):
    return spec.version or 0


every_environment = pytest.mark.parametrize("name", list(shipped()))
# Box2D crashes where the warnings are errors that it raises when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")


def make(name):
    return gymnasium.make(name, max_episode_steps=15)


def wrapped(name):
    return GymnasiumWrapper(make(name), reward_dtype=np.float64)


@every_environment
def test_its_spaces_come_back_from_their_specs(name):
    env = gymnasium.make(name)

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
