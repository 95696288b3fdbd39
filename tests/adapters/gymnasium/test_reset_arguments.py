"""Adapters pass to `reset` what it takes, however many wrappers are around it."""

from __future__ import annotations

import functools
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envkit import BatchedPyEnvironment, ParallelPyEnvironment
from envkit.adapters import (
    GymnasiumVectorWrapper,
    GymnasiumWrapper,
    PyToGymnasium,
    vectorize,
)
from tests.adapters.gymnasium.environments import (
    Deaf,
    Game,
    Monitor,
    Seeded,
    Usual,
    monitored,
)


class Chosen(Game):
    def reset(self, options):
        return self.begin(options=options)


class Absorbing(Monitor):
    """Takes options itself."""

    def reset(self, *, seed=None, options=None):
        self.chosen = options
        return self.env.reset(seed=seed)


@pytest.mark.parametrize(
    ("kind", "told"),
    {
        "seed": (Seeded, {"seed": None}),
        "nothing": (Deaf, {}),
        "options": (Chosen, {"options": None}),
        "both": (Usual, {"seed": None, "options": None}),
    }.values(),
    ids=["seed", "nothing", "options", "both"],
)
def test_reset_passes_the_arguments_that_the_innermost_reset_takes(kind, told):
    env = GymnasiumWrapper(monitored(kind))
    env.reset()
    assert told == env.unwrapped.told
    assert [2, 0] == [int(env.step(0).step_type) for _ in range(2)]


def test_a_seed_reaches_a_reset_without_options():
    env = GymnasiumWrapper(monitored(Seeded))
    env.seed(7)
    first = env.reset().observation
    assert {"seed": 7} == env.unwrapped.told
    env.seed(7)
    np.testing.assert_array_equal(first, env.reset().observation)


def test_a_wrapper_with_its_own_options_gets_them():
    env = GymnasiumWrapper(Monitor(Absorbing(Seeded())))
    env.reset(options={"level": 3})
    assert {"level": 3} == env.chosen
    assert {"seed": None} == env.unwrapped.told


def seed(env):
    env.seed(3)


def choose(env):
    env.set_reset_options({"level": 3})


def choose_in_a_reset(env):
    env.reset(options={"level": 3})


NO_OPTIONS = (
    "Deaf takes no reset options, and was given 'level': its reset() has no argument "
    "`options`."
)


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (seed, "Deaf cannot be seeded: its reset() takes no seed."),
        (choose, NO_OPTIONS),
        (choose_in_a_reset, NO_OPTIONS),
    ],
)
def test_arguments_that_reset_does_not_take_are_refused(ask, text, message_of):
    env = GymnasiumWrapper(monitored(Deaf))
    assert text == message_of(NotImplementedError, lambda: ask(env))


def test_unsupported_reset_options_are_refused_in_the_constructor(message_of):
    assert NO_OPTIONS == message_of(
        NotImplementedError,
        lambda: GymnasiumWrapper(Monitor(Deaf()), reset_options={"level": 3}),
    )


def test_to_gymnasium_logs_unsupported_seeds_and_options(caplog):
    env = PyToGymnasium(GymnasiumWrapper(monitored(Deaf)))
    env.reset(seed=3, options={"level": 3})
    assert [
        "reset(seed=...) has not seeded GymnasiumWrapper: Deaf cannot be seeded: its "
        "reset() takes no seed.",
        f"reset(options=...) has not reached GymnasiumWrapper: {NO_OPTIONS}",
    ] == [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("kind", [Seeded, Deaf, Usual])
@pytest.mark.parametrize("make", ["batch", "pool"])
def test_batches_and_pools_step_it(make, kind):
    makers = [lambda: GymnasiumWrapper(monitored(kind))] * 2
    if make == "pool":
        batch = ParallelPyEnvironment(makers, num_workers=1)
    else:
        batch = BatchedPyEnvironment([one() for one in makers])
    with batch as env:
        env.reset()
        steps = [env.step([0, 0]).step_type.tolist() for _ in range(4)]
    assert [[2, 2], [0, 0]] * 2 == steps


def two_of(kind):
    return vectorize([functools.partial(monitored, kind)] * 2, num_workers=1)


@pytest.mark.parametrize("kind", [Seeded, Deaf, Usual])
def test_vectorize_steps_it(kind):
    with closing(two_of(kind)) as envs:
        envs.reset()
        ended = [envs.step(np.zeros(2, int))[2].tolist() for _ in range(4)]
    assert [[True, True], [False, False]] * 2 == ended


def test_vectorize_seeds_environments_and_logs_lost_options(caplog):
    with closing(two_of(Seeded)) as envs:
        first, _ = envs.reset(seed=3, options={"level": 3})
        again, _ = envs.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith("reset(options=...) has not reached vectorize: ")
    assert "Seeded takes no reset options, and was given 'level'" in text


class Rows(gymnasium.vector.VectorEnv):
    """Two games of one step, whose reset takes no options."""

    num_envs = 2
    single_observation_space = Game.observation_space
    single_action_space = Game.action_space
    observation_space = spaces.Box(0, 1, (2, 1), np.float32)
    action_space = spaces.MultiDiscrete([2, 2])
    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012  # Gymnasium's way
    told = None

    def reset(self, *, seed=None):
        self.told = seed
        return np.zeros((2, 1), np.float32), {}


class VectorMonitor(gymnasium.vector.VectorWrapper):
    def reset(self, **kwargs):
        return self.env.reset(**kwargs)


def test_a_vector_environment_gets_the_arguments_its_reset_takes(message_of):
    env = GymnasiumVectorWrapper(VectorMonitor(Rows()))
    env.seed(5)
    env.reset()
    assert 5 == env.vector_env.env.told
    text = message_of(NotImplementedError, lambda: env.reset(options={"level": 3}))
    assert text.startswith("Rows takes no reset options, and was given 'level'")
