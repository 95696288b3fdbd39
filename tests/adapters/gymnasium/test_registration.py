"""envkit's environments by Gymnasium's ids, such as `envkit/CartPole-v1`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as vector_wrappers

import envkit
from envkit import ParallelPyEnvironment, registry
from envkit.adapters import PyToGymnasium, PyToGymnasiumVector
from envkit.adapters.gymnasium.vectorize import VectorizedEnvs
from envkit.testing import CountingEnv

OWN = [name for name in envkit.registry.registered() if name.endswith("-v1")]
HERE = "HereAlone-v3"


def shown(program: str) -> list[str]:
    """Runs a program in a fresh interpreter; returns the lines it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "" == done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "program",
    [
        "import envkit; import gymnasium; print(gymnasium.make('envkit/Catch-v1'))",
        "import gymnasium; import envkit; print(gymnasium.make('envkit/Catch-v1'))",
        "import gymnasium; print(gymnasium.make('envkit:envkit/Catch-v1'))",
    ],
    ids=["envkit first", "gymnasium first", "named in the id"],
)
def test_the_ids_are_known_in_any_order_of_imports(program):
    (line,) = shown(program)
    assert "PyToGymnasium<envkit/Catch-v1>" in line


def test_gymnasium_keeps_its_own_loader():
    program = """
import envkit, importlib.util
found = importlib.util.find_spec("gymnasium")
print(found.loader.get_filename("gymnasium") == found.origin)
import gymnasium
print(type(gymnasium.__loader__).__name__, type(gymnasium.__spec__.loader).__name__)
"""
    assert ["True", "SourceFileLoader SourceFileLoader"] == shown(program)


def test_an_error_of_ours_does_not_break_the_import_of_gymnasium():
    program = """
import warnings
from envkit.adapters.gymnasium import registration
registration._specs = lambda gymnasium: 1 / 0
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import gymnasium
print(gymnasium.make("CartPole-v1").spec.id)
print(*[one.message for one in caught if "envkit" in str(one.message)])
"""
    assert [
        "CartPole-v1",
        "gymnasium does not know the names of envkit's environments: "
        "ZeroDivisionError: division by zero",
    ] == shown(program)


@pytest.mark.parametrize("name", OWN)
def test_each_own_environment_passes_gymnasiums_checker(name):
    with warnings.catch_warnings():
        # Gymnasium warns of infinite and of constant observations, its own included.
        warnings.filterwarnings("ignore", message=".*A Box observation space")
        env = gymnasium.make(f"envkit/{name}")
        assert ["rgb_array", "ansi"] == env.metadata["render_modes"]
        check_env(env.unwrapped)


def test_the_registered_limits_are_those_of_the_environments():
    def limit_of(name):
        target = registry.load(name, registry.constructor(name).build)
        parameter = inspect.signature(target).parameters.get("max_episode_steps")
        return None if parameter is None else parameter.default

    assert {name: limit_of(name) for name in OWN} == {
        name: gymnasium.spec(f"envkit/{name}").max_episode_steps for name in OWN
    }


@pytest.mark.parametrize(("limit", "length"), [(None, 500), (7, 7), (600, 600)])
def test_max_episode_steps_means_what_it_means_in_gymnasium(limit, length):
    for make in (
        functools.partial(gymnasium.make_vec, num_envs=1),
        functools.partial(gymnasium.make_vec, num_envs=1, vectorization_mode="sync"),
    ):
        with contextlib.closing(
            make("envkit/CartPole-v1", max_episode_steps=limit)
            if limit
            else make("envkit/CartPole-v1")
        ) as envs:
            observation, _ = envs.reset(seed=1)
            for step in range(1, length + 1):
                # Keeps the pole up for as long as asked.
                push = (
                    observation[:, 2]
                    + 0.5 * observation[:, 3]
                    + 0.05 * (observation[:, 0] + observation[:, 1])
                )
                observation, _, terminated, truncated, _ = envs.step(
                    (push > 0).astype(np.int64)
                )
                assert not terminated.any()
                assert [step == length] == truncated.tolist()


def test_arguments_go_to_the_environment():
    env = gymnasium.make("envkit/Catch-v1", rows=5, render_mode="rgb_array")
    assert (5, 5) == env.reset(seed=1)[0].shape
    assert 3 == env.render().ndim
    envs = gymnasium.make_vec("envkit/Catch-v1", num_envs=2, rows=5)
    assert (2, 5, 5) == envs.reset(seed=1)[0].shape


def test_a_mode_with_list_collects_pictures():
    env = gymnasium.make("envkit/Catch-v1", render_mode="rgb_array_list")
    env.reset()
    env.step(1)
    assert 2 == len(env.render())


def test_an_own_environment_is_one_batch_unless_pool_options_are_given():
    name = "envkit/CartPole-v1"
    with contextlib.closing(gymnasium.make_vec(name, num_envs=64)) as envs:
        assert isinstance(envs, PyToGymnasiumVector)
        assert isinstance(envs.wrapped_env(), envkit.envs.CartPole)
        assert 64 == envs.num_envs
    with contextlib.closing(
        gymnasium.make_vec(name, num_envs=4, backend="inline", num_workers=2)
    ) as envs:
        assert isinstance(envs.wrapped_env(), ParallelPyEnvironment)


@pytest.mark.parametrize(
    ("name", "options"),
    [("CartPole-v1", {}), ("Make-v0", {"target": "gymnasium:Pendulum-v1"})],
)
def test_a_vector_of_no_environments_is_refused(name, options):
    with pytest.raises(ValueError, match="num_envs must be an integer of at least 1"):
        gymnasium.make_vec(f"envkit/{name}", num_envs=0, **options)


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync", "async"])
def test_every_vectorization_mode_begins_alike(mode):
    name = "envkit/CartPole-v1"
    envs = gymnasium.make_vec(name, num_envs=3, vectorization_mode=mode)
    with contextlib.closing(envs):
        observations, _ = envs.reset(seed=7)
        assert AutoresetMode.NEXT_STEP == envs.metadata["autoreset_mode"]
    singles = [gymnasium.make(name).reset(seed=7 + row)[0] for row in range(3)]
    assert np.array_equal(singles, observations)


# Ids of Gymnasium's own, in envkit's workers.


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Acrobot-v1", {"max_episode_steps": 6}),
        ("MountainCarContinuous-v0", {"max_episode_steps": 6, "goal_velocity": 0.01}),
    ],
)
def test_an_id_of_gymnasium_behaves_as_in_a_sync_vector(name, arguments, mode):
    theirs = gymnasium.make_vec(
        name,
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode(mode)},
        **arguments,
    )
    ours = gymnasium.make_vec(
        f"envkit/{name}",
        num_envs=3,
        vectorization_mode="vector_entry_point",
        backend="inline",
        num_workers=2,
        autoreset_mode=mode,
        **arguments,
    )
    with contextlib.closing(theirs), contextlib.closing(ours):
        for attribute in ("observation_space", "action_space", "single_action_space"):
            assert getattr(theirs, attribute) == getattr(ours, attribute)
        assert theirs.metadata == ours.metadata
        assert data_equivalence(theirs.reset(seed=3), ours.reset(seed=3))
        theirs.action_space.seed(3)
        for _ in range(20):
            actions = theirs.action_space.sample()
            expected, got = theirs.step(actions), ours.step(actions)
            assert data_equivalence(expected, got)


def test_an_id_of_gymnasium_makes_its_own_environment_alone():
    env = gymnasium.make("envkit/Acrobot-v1", render_mode="rgb_array")
    assert type(env.unwrapped) is type(gymnasium.make("Acrobot-v1").unwrapped)
    assert 500 == env.spec.max_episode_steps
    assert "envkit/Acrobot-v1" == env.spec.id


def test_every_id_that_gymnasium_can_make_has_one_in_the_namespace():
    ours = {
        spec.name for spec in gymnasium.registry.values() if spec.namespace == "envkit"
    }
    assert {"Acrobot", "FrozenLake", "Pendulum", "HalfCheetah", "LunarLander"} <= ours
    assert [] == [
        name
        for name in envkit.registry.names_in("gymnasium")
        if name.startswith("envkit/")
    ]


@pytest.mark.slow
def test_workers_know_an_id_that_only_this_program_has_registered():
    gymnasium.register(HERE, "gymnasium.envs.classic_control:PendulumEnv")
    try:
        envs = gymnasium.make_vec(
            "envkit/Make-v0", num_envs=2, num_workers=1, target=f"gymnasium:{HERE}"
        )
        with contextlib.closing(envs):
            assert isinstance(envs, VectorizedEnvs)
            assert (2, 3) == envs.reset(seed=1)[0].shape
    finally:
        del gymnasium.registry[HERE]


# Any other environment.


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.mark.usefixtures("registered")
def test_a_name_that_the_program_registers_is_an_id_too():
    envkit.register("Counted-v4", CountingEnv)
    env = gymnasium.make("envkit/Counted-v4", steps_per_episode=2)
    assert isinstance(env.unwrapped, PyToGymnasium)
    envs = gymnasium.make_vec(
        "envkit/Counted-v4", num_envs=2, steps_per_episode=2, backend="inline"
    )
    with contextlib.closing(envs):
        envs.reset()
        envs.step([0, 0])
        _, _, terminations, _, _ = envs.step([0, 0])
        assert terminations.all()


@pytest.mark.usefixtures("registered")
def test_the_spec_of_a_registered_name_works_in_other_processes(monkeypatch):
    envkit.register("Counted-v4", CountingEnv)
    spec = pickle.dumps(gymnasium.spec("envkit/Counted-v4"))
    monkeypatch.setattr(registry, "_registry", {})
    env = gymnasium.make(pickle.loads(spec), steps_per_episode=2)
    assert "envkit/Counted-v4" == env.spec.id


@pytest.mark.usefixtures("registered")
def test_a_registered_name_replaces_an_id_of_gymnasium():
    envkit.register("Pendulum", CountingEnv)
    assert isinstance(gymnasium.make("envkit/Pendulum").unwrapped, PyToGymnasium)
    assert "envkit/Pendulum-v1" not in gymnasium.registry


@pytest.mark.usefixtures("registered")
def test_a_name_that_cannot_be_an_id_is_left_out():
    envkit.register("two words/and more", CountingEnv)
    assert not [name for name in gymnasium.registry if "two words" in name]


@pytest.mark.parametrize("limit", [2, -1])
def test_one_id_takes_any_target(limit):
    envs = gymnasium.make_vec(
        "envkit/Make-v0",
        num_envs=2,
        target=functools.partial(CountingEnv, steps_per_episode=3),
        max_episode_steps=limit,
        backend="inline",
        infos="final",
    )
    with contextlib.closing(envs):
        envs.reset()
        steps = [envs.step([0, 0])[2:4] for _ in range(3)]
    ends = [(bool(first.any()), bool(second.any())) for first, second in steps]
    assert (False, limit == 2) == ends[1]
    assert (limit == -1, False) == ends[2]


def test_the_id_for_any_target_says_what_it_needs(message_of):
    for make in (gymnasium.make, gymnasium.make_vec):
        message = message_of(TypeError, lambda make=make: make("envkit/Make-v0"))
        assert message.startswith(
            "envkit/Make-v0 needs target=..., which is what envkit.make takes: "
            "gymnasium.make('envkit/Make-v0', target='dm_control:cartpole/balance')."
        )


# Specifications and wrappers.


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"num_envs": 3, "max_episode_steps": 5}),
        ("CartPole-v1", {"num_envs": 2, "vectorization_mode": "sync"}),
        ("Catch-v1", {"num_envs": 2, "rows": 4, "render_mode": "rgb_array"}),
        ("Acrobot-v1", {"num_envs": 2, "backend": "inline"}),
    ],
)
def test_the_spec_of_a_vector_makes_it_again(name, arguments):
    envs = gymnasium.make_vec(f"envkit/{name}", **arguments)
    spec = type(envs.spec).from_json(envs.spec.to_json())
    again = gymnasium.make_vec(spec)
    with contextlib.closing(envs), contextlib.closing(again):
        assert f"envkit/{name}" == envs.spec.id
        assert envs.spec == again.spec
        assert type(envs) is type(again)
        assert envs.num_envs == again.num_envs
        assert envs.render_mode == again.render_mode
        assert envs.observation_space == again.observation_space


def test_gymnasiums_wrappers_take_the_vectors():
    envs = gymnasium.make_vec("envkit/CartPole-v1", num_envs=4, max_episode_steps=3)
    envs = vector_wrappers.RecordEpisodeStatistics(envs)
    envs = vector_wrappers.NormalizeObservation(envs)
    with contextlib.closing(envs):
        envs.reset(seed=1)
        for _ in range(3):
            _, _, _, truncations, infos = envs.step(np.zeros(4, np.int64))
    assert truncations.all()
    assert [3.0] * 4 == infos["episode"]["r"].tolist()
