"""Environments of MiniGrid by name, with their missions as text."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

import envkit
from envkit import BatchedPyEnvironment, BoundedArraySpec, nest
from envkit.adapters import suite_minigrid
from envkit.adapters.gymnasium.wrapper import GymnasiumWrapper
from envkit.adapters.minigrid import load
from envkit.errors import SpecError
from envkit.parallel import ParallelPyEnvironment
from envkit.specs.special import TextSpec
from envkit.testing import check_environment
from envkit.wrappers import TimeLimit

minigrid = pytest.importorskip("minigrid", reason="minigrid is not installed")
gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")

FEATURES = ["info", "seed", "state"]


def same(first, second) -> bool:
    pairs = zip(nest.flatten(first), nest.flatten(second), strict=True)
    return all(np.array_equal(*pair) for pair in pairs)


def test_make_knows_the_scheme():
    env = envkit.make("minigrid:MiniGrid-Empty-5x5-v0")
    assert isinstance(env, GymnasiumWrapper)
    assert "MiniGrid-Empty-5x5-v0" == env.spec.id
    assert BoundedArraySpec((), np.int64, 0, 6) == env.action_spec()
    assert env.reset().is_first()


def test_observations_have_a_direction_a_picture_and_a_mission():
    env = load("MiniGrid-Empty-5x5-v0")
    mission = "get to the green goal square"
    assert {
        "direction": BoundedArraySpec((), np.int64, 0, 3),
        "image": BoundedArraySpec((7, 7, 3), np.uint8, 0, 255),
        "mission": TextSpec((), f"<U{len(mission)}", letters="".join({*mission})),
    } == env.observation_spec()
    assert np.array(mission) == env.reset().observation["mission"]


@pytest.mark.parametrize(
    "name", ["MiniGrid-Dynamic-Obstacles-5x5-v0", "BabyAI-GoToLocalS5N2-v0"]
)
def test_an_environment_from_make_passes_check_environment(name):
    pictures = {"render_mode": "rgb_array", "screen_size": 32, "tile_size": 4}
    check_environment(
        functools.partial(envkit.make, f"minigrid:{name}", **pictures),
        steps=40,
        require=[*FEATURES, "render"],
    )


def test_several_environments_pass_check_environment():
    def make():
        envs = [load("MiniGrid-Fetch-5x5-N2-v0") for _ in range(2)]
        return BatchedPyEnvironment(envs, multithreading=False)

    check_environment(make, steps=25, require=FEATURES)


def test_worker_processes_match_the_bare_library():
    name = "MiniGrid-Fetch-5x5-N2-v0"
    bare = [gymnasium.make(name) for _ in range(3)]
    actions = np.random.default_rng(0).integers(7, size=(25, 3))
    with envkit.make(f"minigrid:{name}", num_envs=3, num_workers=2) as env:
        env.seed([1, 2, 3])
        time_step = env.reset()
        for row, other in enumerate(bare):
            expected, _ = other.reset(seed=row + 1)
            assert_same_observation(expected, time_step, row)
        for action in actions:
            time_step = env.step(action)
            for row, other in enumerate(bare):
                if time_step.step_type[row] == 0:
                    assert_same_observation(other.reset()[0], time_step, row)
                    continue
                expected, reward, terminated, truncated, _ = other.step(action[row])

                assert_same_observation(expected, time_step, row)
                assert np.float32(reward) == time_step.reward[row]
                assert float(not terminated) == time_step.discount[row]
                assert (terminated or truncated) == (time_step.step_type[row] == 2)


def assert_same_observation(expected, time_step, row):
    got = {key: value[row] for key, value in time_step.observation.items()}
    assert expected.keys() == got.keys()
    assert expected["direction"] == got["direction"]
    assert expected["mission"] == str(got["mission"])
    assert np.array_equal(expected["image"], got["image"])


def test_minigrids_own_limit_truncates():
    env = load("Empty-5x5", max_steps=3)
    steps = [env.step(0) for _ in range(4)]
    assert [0, 1, 1, 2] == [int(step.step_type) for step in steps]
    assert 1.0 == steps[-1].discount


def test_episodes_can_be_limited_and_environments_wrapped():
    class Named(envkit.wrappers.PyEnvironmentBaseWrapper):
        pass

    env = load("Empty-5x5", max_episode_steps=2, env_wrappers=[Named])

    assert isinstance(env, Named)
    assert isinstance(env.wrapped_env(), TimeLimit)


def test_wrappers_of_minigrid_get_the_bare_environment():
    env = load("Empty-5x5", gym_env_wrappers=[minigrid.wrappers.FullyObsWrapper])
    assert (5, 5, 3) == env.observation_spec()["image"].shape
    assert isinstance(env.observation_spec()["mission"], TextSpec)
    assert (5, 5, 3) == env.reset().observation["image"].shape


@pytest.mark.parametrize(
    ("wrapper", "shape"), [("ImgObsWrapper", (7, 7, 3)), ("FlatObsWrapper", (2835,))]
)
def test_wrappers_may_remove_the_mission(wrapper, shape):
    env = load("Empty-5x5", gym_env_wrappers=[getattr(minigrid.wrappers, wrapper)])
    assert shape == env.observation_spec().shape
    assert shape == env.reset().observation.shape


def test_a_state_restores_the_mission():
    env = load("MiniGrid-Fetch-5x5-N2-v0")
    env.seed(3)
    env.reset()
    token = pickle.loads(pickle.dumps(env.get_state()))
    expected = [env.step(action % 3) for action in range(12)]
    env.seed(4)
    env.reset()

    env.set_state(token)

    assert same(expected, [env.step(action % 3) for action in range(12)])


def test_missions_of_babyai_have_400_characters():
    env = load("BabyAI-GoToLocalS5N2-v0")
    assert 400 == env.observation_spec()["mission"].max_length
    assert str(env.reset().observation["mission"]).startswith("go to ")


def test_mission_length_sets_the_room_for_missions():
    env = load("BabyAI-GoToLocalS5N2-v0", mission_length=60)
    assert "<U60" == env.observation_spec()["mission"].dtype


def test_a_mission_that_is_too_long_is_refused():
    env = load("Empty-5x5", mission_length=5)
    with pytest.raises(SpecError, match=r"observation\['mission'\]"):
        env.reset()


def test_the_longest_mission_is_found_among_any_number(monkeypatch):
    env = gymnasium.make("MiniGrid-PutNear-6x6-N2-v0")
    whole = suite_minigrid.with_text_missions(env).observation_space["mission"]
    monkeypatch.setattr(suite_minigrid, "_FEW", 10)
    assert whole == suite_minigrid.with_text_missions(env).observation_space["mission"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-5x5-v0"),
        ("MiniGrid-Empty-5x5", "MiniGrid-Empty-5x5-v0"),
        ("Empty-5x5-v0", "MiniGrid-Empty-5x5-v0"),
        ("Empty-5x5", "MiniGrid-Empty-5x5-v0"),
        ("GoToRedBall", "BabyAI-GoToRedBall-v0"),
        ("MultiRoom-N4-S5-v1", "MiniGrid-MultiRoom-N4-S5-v1"),
    ],
)
def test_prefix_and_version_of_a_name_are_optional(name, meant):
    registered = [
        "MiniGrid-Empty-5x5-v0",
        "MiniGrid-Empty-5x5-extra-v0",
        "BabyAI-GoToRedBall-v0",
        "MiniGrid-MultiRoom-N4-S5-v0",
        "MiniGrid-MultiRoom-N4-S5-v1",
    ]
    assert meant == suite_minigrid._full_id(name, registered)


def test_an_ambiguous_name_is_refused(message_of):
    registered = ["MiniGrid-Maze-v0", "MiniGrid-Maze-v1", "BabyAI-Other-v0"]
    assert (
        "'Maze' may stand for MiniGrid-Maze-v0 or MiniGrid-Maze-v1. Pass the full id."
    ) == message_of(ValueError, lambda: suite_minigrid._full_id("Maze", registered))


def test_an_unknown_name_gets_a_suggestion(message_of):
    assert (
        "MiniGrid has no environment named 'Maez-v0'. Did you mean 'Maze-v0'? The ids "
        'are those that gymnasium.registry has with "MiniGrid-" and "BabyAI-".'
    ) == message_of(
        ValueError, lambda: suite_minigrid._full_id("Maez-v0", ["MiniGrid-Maze-v0"])
    )


def test_a_pool_has_room_for_the_missions_of_all_rows():
    with ParallelPyEnvironment(
        [functools.partial(load, "Fetch-5x5-N2")] * 2, backend="inline"
    ) as env:
        assert (2,) == env.reset().observation["mission"].shape
