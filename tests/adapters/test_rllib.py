"""`to_rllib` makes what RLlib's env runners step, as RLlib asks Gymnasium for it."""

from __future__ import annotations

import pickle

import gymnasium
import numpy as np
import pytest

from envkit.adapters import to_rllib
from envkit.testing import CountingEnv

ID = "envkit-of-rllib-v0"


@pytest.fixture
def asked():
    """Registers a creator and asks for environments, both as RLlib does."""

    def ask(creator, mode, config=None, num_envs=3):
        config = dict(config or {})
        gymnasium.register(
            ID,
            entry_point=lambda: creator(config),
            vector_entry_point=lambda num_envs: creator(
                config | {"num_envs": num_envs}
            ),
        )
        envs.append(gymnasium.make_vec(ID, num_envs, vectorization_mode=mode))
        return envs[-1]

    envs = []
    yield ask
    for env in envs:
        env.close()
    gymnasium.registry.pop(ID, None)


def test_an_env_runner_steps_one_pool(asked):
    creator = to_rllib("CartPole-v1", num_workers=2)

    env = asked(creator, "vector_entry_point", num_envs=4)

    assert 2 == len(env.wrapped_env().workers)
    observations, _ = env.reset(seed=7)
    assert (4, 4) == observations.shape
    assert (4,) == env.step(env.action_space.sample())[1].shape


def test_an_episode_begins_with_the_step_after_the_end(asked):
    """RLlib's episodes take the first observation of the next step as their begin."""
    creator = to_rllib(CountingEnv, backend="inline", steps_per_episode=2)

    env = asked(creator, "vector_entry_point")

    assert gymnasium.vector.AutoresetMode.NEXT_STEP is env.metadata["autoreset_mode"]
    env.reset()
    steps = [env.step(np.zeros(3, np.int64)) for _ in range(3)]
    assert [False, True, False] == [bool(step[2].all()) for step in steps]
    assert [1, 2, 10] == [int(step[0][0]) for step in steps]


def test_without_a_vector_entry_point_environments_are_single(asked):
    creator = to_rllib("Catch-v1", rows=6, num_workers=2, backend="thread")

    env = asked(creator, "sync")

    assert [type(single.unwrapped).__name__ for single in env.envs] == (
        ["_RLlibEnv"] * 3
    )
    assert (3, 6, 5) == env.reset(seed=7)[0].shape


def test_env_config_adds_and_overrides_arguments(asked):
    creator = to_rllib("Catch-v1", rows=6, backend="inline")

    env = asked(creator, "vector_entry_point", {"rows": 4, "columns": 3})

    assert (4, 3) == env.single_observation_space.shape


def test_natively_batched_environments_stay_one_batch(asked):
    pytest.importorskip("envpool", reason="envpool is not installed")
    creator = to_rllib("envpool:CartPole-v1")

    env = asked(creator, "vector_entry_point", num_envs=2)

    assert "EnvPoolWrapper" == type(env.wrapped_env()).__name__


@pytest.mark.parametrize(("infos", "steps"), [("all", [1, 1, 1]), ("none", None)])
def test_infos_chooses_which_infos_are_read(asked, infos, steps):
    creator = to_rllib("Catch-v1", backend="inline", infos=infos)
    env = asked(creator, "vector_entry_point")
    env.reset()

    found = env.step(np.ones(3, np.int64))[4].get("episode_steps")

    assert steps == (None if found is None else found.tolist())


def test_a_creator_pickles_and_has_a_readable_repr():
    creator = to_rllib("Catch-v1", num_workers=2)

    there = pickle.loads(pickle.dumps(creator))

    assert "to_rllib('Catch-v1', infos='all', num_workers=2)" == repr(there)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["Cach"], {}, r"There is no environment named 'Cach'"),
        (["Catch"], {"infos": "some"}, r"infos must be .*, got 'some'"),
        ([3], {}, r"The target is 3 of type int, which is non-callable"),
    ],
)
def test_invalid_arguments_are_refused_before_ray_starts(arguments, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        to_rllib(*arguments, **options)
