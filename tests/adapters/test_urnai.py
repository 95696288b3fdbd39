"""URNAI's environments with its interface, and both kinds as one another."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
import textwrap
import threading

import gymnasium
import numpy as np
import pytest

from envkit import ArraySpec, BatchedPyEnvironment, StepType, make
from envkit.adapters import from_urnai, to_urnai, urnai
from envkit.adapters.urnai import GymEnv, Menu, PLEEnv, SC2Env, VizdoomEnv
from envkit.errors import MissingDependencyError
from envkit.parallel import ParallelPyEnvironment
from envkit.testing import CountingEnv, check_environment
from tests.adapters import ple_games
from tests.adapters.adapter_games import UrnaiMenu, UrnaiWalk

# from_urnai


@pytest.mark.parametrize(
    "make_env",
    [
        functools.partial(from_urnai, UrnaiWalk, actions=[-1, 1], num_actions=2),
        lambda: from_urnai(UrnaiWalk(edge=2), action_wrapper=Menu([-1, 1])),
        lambda: BatchedPyEnvironment(
            [from_urnai(UrnaiWalk, action_wrapper=UrnaiMenu()) for _ in range(2)],
            multithreading=False,
        ),
    ],
    ids=["class", "instance", "batched"],
)
def test_an_urnai_environment_passes_check_environment(make_env):
    check_environment(make_env, steps=40, require=["state", "info"])


def test_worker_processes_start_the_environment_themselves():
    make_env = functools.partial(from_urnai, UrnaiWalk, action_wrapper=Menu([-1, 1]))
    with ParallelPyEnvironment([make_env] * 2, num_workers=1) as env:
        env.reset()
        time_step = env.step(np.array([0, 1]))
    assert [[-1, 1], [1, 1]] == time_step.observation.tolist()


def test_only_restart_starts_a_running_environment_again():
    theirs = UrnaiWalk()
    theirs.start()
    env = from_urnai(theirs, num_actions=2)
    env.reset()
    assert (1, theirs) == (theirs.starts, env.env_instance)
    env.restart()
    assert 2 == theirs.starts


def test_actions_excluded_by_the_action_wrapper_are_illegal():
    env = from_urnai(UrnaiWalk, action_wrapper=UrnaiMenu())
    env.reset()
    masks = [env.get_info()["legal_actions"].tolist()]
    env.step(0)
    masks.append(env.get_info()["legal_actions"].tolist())
    assert [[True, True], [True, False]] == masks


def test_the_action_wrapper_decides_how_many_steps_an_action_takes():
    env = from_urnai(UrnaiWalk, action_wrapper=UrnaiMenu)
    env.reset()
    one, two = env.step(0), env.step(1)
    assert ("one", "two") == env.action_names
    assert [1, 3] == [one.observation[1], two.observation[1]]
    assert (1.0, 5.0) == (one.reward, two.reward)  # places 1; then 2 and 3


@pytest.mark.parametrize("given", [lambda kind: kind(), lambda kind: kind])
def test_builders_make_observations_and_rewards(given):
    class State:
        def build_state(self, obs):
            return np.array([obs], np.float32)

    class Reward:
        def get_reward(self, obs, reward, done):
            return -float(done)

    env = from_urnai(
        functools.partial(UrnaiWalk, edge=1),
        actions=["stay", "go"],
        state_builder=given(State),
        reward_builder=given(Reward),
    )
    env.reset()
    time_steps = [env.step(1)]
    while not time_steps[-1].is_last():
        time_steps.append(env.step(1))

    assert ArraySpec((1, 2), np.float32) == env.observation_spec()
    assert -1.0 == time_steps[-1].reward


def test_probing_the_only_instance_leaves_it_at_a_beginning():
    env = from_urnai(UrnaiWalk(), num_actions=2, probe_steps=20)
    spec = env.observation_spec()
    first, second = env.reset(), env.step(1)
    assert ArraySpec((2,), np.int64, "observation") == spec
    assert ([0, 0], 1) == (first.observation.tolist(), second.observation[1])


def test_probing_the_only_instance_keeps_its_seed():
    envs = [from_urnai(GymEnv("CartPole-v1"), probe_steps=steps) for steps in (0, 30)]
    for env in envs:
        env.seed(7)
    unprobed, probed = (env.reset().observation for env in envs)
    assert unprobed.tolist() == probed.tolist()


def test_specs_can_be_declared():
    spec = ArraySpec((2,), np.float32)
    env = from_urnai(UrnaiWalk, observation_spec=spec, action_spec=spec)
    assert (spec, spec) == (env.observation_spec(), env.action_spec())
    assert np.float32 == env.reset().observation.dtype


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: from_urnai(3),
            TypeError,
            "from_urnai() was given 3 of type int, which is not an environment of "
            "URNAI: that has the methods start, step, reset, close.",
        ),
        (
            lambda: from_urnai(CountingEnv),
            TypeError,
            "from_urnai() was given the class CountingEnv, which is not an environment "
            "of URNAI: that has the methods start, step, reset, close.",
        ),
        (
            lambda: from_urnai(lambda: 3).action_spec(),
            TypeError,
            "from_urnai() made 3 of type int, which is not an environment of URNAI: "
            "that has the methods start, step, reset, close.",
        ),
        (
            lambda: to_urnai(BatchedPyEnvironment([CountingEnv()])),
            TypeError,
            "to_urnai() was given BatchedPyEnvironment, which is batched; URNAI only "
            "has single environments.",
        ),
        (
            lambda: GymEnv("Pendulum-v1").get_action_wrapper(),
            TypeError,
            "Pendulum-v1 has no numbered actions; its action space is "
            "Box(-2.0, 2.0, (1,), float32).",
        ),
        (
            GymEnv,
            TypeError,
            "GymEnv needs the id of an environment: GymEnv('Name-v1').",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, text, message_of):
    assert text == message_of(error, call)


# to_urnai


def test_to_urnai_returns_three_values_from_step():
    env = to_urnai(CountingEnv(steps_per_episode=2))
    env.start()
    assert (0, (1, 0.0, False), (2, 1.0, True)) == (
        int(env.reset()),
        env.step(0),
        env.step(0),
    )


def test_to_urnai_restarts_an_environment_it_can_make():
    env = to_urnai(functools.partial(make, "Catch", rows=4))
    first = env.reset()
    instance = env.env_instance
    env.restart()
    assert (4, True) == (len(first), env.env_instance is not instance)


def test_to_urnai_keeps_an_instance_it_cannot_make_again(message_of):
    env = to_urnai(CountingEnv())
    instance = env.env_instance
    env.restart()

    assert env.env_instance is instance
    env.close()
    env.close()
    assert message_of(RuntimeError, env.reset) == (
        "CountingEnv was closed. To start again, give to_urnai() a function that "
        "makes an environment."
    )


def test_to_urnai_numbers_discrete_actions_only(message_of):
    env = to_urnai(functools.partial(make, "gymnasium:Pendulum-v1"))
    assert [0, 1] == to_urnai(CountingEnv()).get_action_wrapper().get_actions()
    assert message_of(TypeError, env.get_action_wrapper).startswith(
        "env has no numbered actions, but BoundedArraySpec(shape=(1,), dtype=float32"
    )
    env.close()


def test_a_round_trip_through_urnai_changes_nothing():
    env, plain = from_urnai(to_urnai(CountingEnv())), CountingEnv()
    for _ in range(8):
        ours, theirs = env.step(1), plain.step(1)
        assert int(theirs.step_type) == int(ours.step_type)
        assert (theirs.observation, theirs.reward) == (ours.observation, ours.reward)


# GymEnv


def test_the_classes_take_the_arguments_of_urnai():
    def names(kind):
        return list(inspect.signature(kind).parameters)

    assert ["id", "render", "reset_done", "num_steps", "_id"] == names(GymEnv)
    assert ["game", "_id", "render", "reset_done", "num_steps"] == names(PLEEnv)
    assert [
        "map_name",
        "players",
        "player_race",
        "enemy_race",
        "difficulty",
        "render",
        "reset_done",
        "spatial_dim",
        "step_mul",
        "game_steps_per_ep",
        "obs_features",
        "realtime",
        "self_play",
    ] == names(SC2Env)[:-1]
    assert [
        "wad",
        "doommap",
        "_id",
        "render",
        "reset_done",
        "num_steps",
        "res",
        "auto_map",
    ] == names(VizdoomEnv)


def test_gym_env_matches_gymnasium_bit_for_bit():
    env, bare = GymEnv(_id="CartPole-v1"), gymnasium.make("CartPole-v1")
    env.seed(5)
    theirs, _ = bare.reset(seed=5)

    assert theirs.tolist() == env.reset().tolist()
    for action in (0, 1, 1, 0):
        observation, reward, terminated, truncated, _ = bare.step(action)
        ours = env.step(action)

        assert (observation.tolist(), reward, terminated or truncated) == (
            ours[0].tolist(),
            ours[1],
            ours[2],
        )
    env.close()
    env.close()


def test_gym_env_starts_in_its_constructor():
    env = GymEnv("CartPole-v1")
    first = env.env_instance
    env.start()
    still = env.env_instance
    env.restart()

    assert (True, True) == (still is first, env.env_instance is not first)
    assert ("CartPole-v1", False, True, 100) == (
        env.id,
        env.render,
        env.reset_done,
        env.num_steps,
    )


def test_gym_env_passes_check_environment():
    check_environment(
        functools.partial(from_urnai, functools.partial(GymEnv, "CartPole-v1")),
        steps=40,
        require=["seed", "state"],
    )


OLD_GYM = """
__version__ = "0.21.0"

class Space:
    n = 3

class Env:
    action_space = Space()
    drawn = 0
    def seed(self, seed): self.begin = seed
    def reset(self): return getattr(self, "begin", 0)
    def step(self, action): return action, 1.0, action == 2, {}
    def render(self): self.drawn += 1
    def close(self): pass

class error:
    class Error(Exception): pass

registered = {}

def register(id, **settings):
    if id in registered: raise error.Error("Cannot re-register " + id)
    registered[id] = settings

def spec(id):
    if id not in registered: raise error.Error("No registered env with id " + id)
    return registered[id]

def make(id): return Env()
"""


@pytest.fixture
def old_gym(tmp_path, monkeypatch):
    """A Gym of the days of four values, for as long as a test lasts."""
    (tmp_path / "gym.py").write_text(textwrap.dedent(OLD_GYM))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gym", raising=False)
    yield
    sys.modules.pop("gym", None)


def test_gym_env_falls_back_to_gym(old_gym):
    env = GymEnv("Ancient-v0", render=True)
    env.seed(9)
    assert (9, (1, 1.0, False), (2, 1.0, True), 3) == (
        env.reset(),
        env.step(1),
        env.step(2),
        env.env_instance.drawn,
    )
    assert [0, 1, 2] == env.get_action_wrapper().get_actions()


def test_gym_env_tries_gymnasium_first(old_gym):
    env = GymEnv("CartPole-v1")
    assert isinstance(env.env_instance, gymnasium.Env)
    env.close()


def test_gym_env_works_with_gym_alone(old_gym, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert 0 == GymEnv("CartPole-v1").reset()


def test_gym_env_without_gymnasium_and_gym_says_what_to_install(
    message_of, monkeypatch
):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.setitem(sys.modules, "gym", None)
    assert message_of(MissingDependencyError, lambda: GymEnv("CartPole-v1")) == (
        "GymEnv needs the package gymnasium, which is not installed. pip install "
        '"gymnasium>=1.0"'
    )


def test_gym_env_registers_the_lake_of_urnai():
    env = GymEnv(id="FrozenLakeNotSlippery-v0")
    right, down = 2, 1
    env.reset()
    way = [env.step(move) for move in (down, down, right, right, down, right)]

    assert [4, 8, 9, 10, 14, 15] == [place for place, _, _ in way]
    assert [0, 0, 0, 0, 0, 1] == [reward for _, reward, _ in way]
    assert [False] * 5 + [True] == [done for _, _, done in way]
    env.reset()
    assert [False] * 99 + [True] == [env.step(0)[2] for _ in range(100)]
    assert 4 == env.get_action_wrapper().get_action_space_dim()
    env.close()


def test_gym_env_registers_the_lake_of_urnai_in_gym(old_gym, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    for _ in range(2):
        GymEnv("FrozenLakeNotSlippery-v0").close()
    import gym

    assert gym.registered == {
        "FrozenLakeNotSlippery-v0": {
            "entry_point": "gym.envs.toy_text:FrozenLakeEnv",
            "kwargs": {"map_name": "4x4", "is_slippery": False},
            "max_episode_steps": 100,
            "reward_threshold": 0.78,
        }
    }


def test_gym_env_accepts_the_atari_names_of_gym(tmp_path):
    pytest.importorskip("ale_py", reason="ale_py is not installed")
    program = """
        from envkit.adapters.urnai import GymEnv
        env = GymEnv(id="Breakout-v0")
        print(env.reset().shape, env.get_action_wrapper().get_actions())
    """
    # A process of its own, in which nothing else has registered Atari.
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True,
        capture_output=True,
        text=True,
    )

    assert "(210, 160, 3) [0, 1, 2, 3]\n" == run.stdout


# save and load, which URNAI's trainer calls


class Trainer:
    """Trains as URNAI's does: it loads what there is, saves, and closes at the end."""

    def __init__(self, env, folder):
        self.env = env
        self.folder = folder
        if os.path.exists(folder):
            env.load(folder)
        os.makedirs(folder, exist_ok=True)

    def train(self, episodes, max_steps):
        """Returns the reward of each episode."""
        rewards = []
        for _ in range(episodes):
            self.env.start()
            self.env.reset()
            reward, done, steps = 0.0, False, 0
            while not done and steps < max_steps:
                _, gained, done = self.env.step(steps % 2)
                reward, steps = reward + gained, steps + 1
            rewards.append(reward)
            self.env.save(self.folder)
        self.env.close()
        return rewards


def test_training_continues_from_a_saved_state(tmp_path):
    def train(folder, *parts):
        env = GymEnv("CartPole-v1")
        env.seed(3)
        rewards = []
        for episodes in parts:
            rewards += Trainer(env, folder).train(episodes, 20)
            env = GymEnv("CartPole-v1")
        return rewards

    whole = train(str(tmp_path / "whole"), 6)
    halves = train(str(tmp_path / "halves"), 3, 3)

    assert whole == halves
    assert {"GymEnv_.pkl"} == set(os.listdir(tmp_path / "halves"))


class Notes(urnai.Env):
    """An environment of somebody who came from URNAI."""

    def __init__(self, path="here", places=5):
        super().__init__("notes")
        self.path = path
        self.places = places
        self.lock = threading.Lock()
        self.key = lambda place: place
        self.pickle_black_list.append("path")
        self.notes = "none"

    def start(self):
        self.env_instance = [0]

    def reset(self):
        return 0

    def step(self, action):
        return 0, 0, True

    def close(self):
        self.env_instance = None

    def save_extra(self, persist_path):
        with open(self.get_full_persistance_path(persist_path) + "notes", "w") as file:
            file.write("some")

    def load_extra(self, persist_path):
        with open(self.get_full_persistance_path(persist_path) + "notes") as file:
            self.notes = file.read()


def test_save_skips_attributes_that_do_not_pickle_or_are_excluded(tmp_path):
    saved, loaded = Notes("there", places=9), Notes()
    lock = loaded.lock
    saved.start()
    saved.save(str(tmp_path))
    loaded.load(str(tmp_path))
    assert (9, [0], "some") == (loaded.places, loaded.env_instance, loaded.notes)
    assert ("here", True) == (loaded.path, loaded.lock is lock)
    assert ["Notes_.pkl", "Notes_notes"] == sorted(os.listdir(tmp_path))


def test_loading_from_an_empty_folder_changes_nothing(tmp_path):
    env = GymEnv("CartPole-v1", num_steps=3)
    (tmp_path / "GymEnv_.pkl").touch()
    instance = env.env_instance
    env.load(str(tmp_path))
    env.load(str(tmp_path / "nowhere"))
    assert (3, True) == (env.num_steps, env.env_instance is instance)
    env.close()


def test_to_urnai_saves_and_loads_an_environment_of_envkit(tmp_path):
    env = to_urnai(CountingEnv(steps_per_episode=9))
    env.reset()
    env.step(0)
    env.save(str(tmp_path))
    other = to_urnai(CountingEnv())
    other.load(str(tmp_path))
    assert 2 == other.step(0)[0]


# PLEEnv, on a stand-in with the exact interface


def make_ple():
    return ple_games.PLE(ple_games.QuietCatcher())


def test_ple_env_returns_states_and_takes_keys():
    ple = make_ple()
    bare = make_ple()
    bare.init()
    bare.reset_game()
    env = PLEEnv(ple, "catcher", render=False)

    assert bare.getGameState() == env.reset()
    for key in (ple_games.K_a, None, ple_games.K_d):
        reward = bare.act(key)
        expected = bare.getGameState(), reward, bare.game_over()

        assert expected == env.step(key)
    env.close()
    assert ("catcher", None) == (env.id, env.env_instance)


def test_ple_env_is_saved_and_loaded(tmp_path):
    env = PLEEnv(make_ple, "catcher", render=False, num_steps=7)
    env.save(str(tmp_path))
    other = PLEEnv(make_ple, render=False)
    other.load(str(tmp_path))
    assert ("catcher", 7) == (other.id, other.num_steps)
    assert env.reset().keys() == other.reset().keys()


def test_ple_env_has_a_menu_of_keys():
    env = PLEEnv(make_ple())
    assert ("PLE", make_ple().getActionSet()) == (
        env.id,
        [env.get_action_wrapper().get_action(n, None) for n in range(3)],
    )


def test_ple_env_works_in_from_urnai():
    env = from_urnai(functools.partial(PLEEnv, make_ple, render=False), probe_steps=20)
    time_step = env.reset()
    while not time_step.is_last():
        time_step = env.step(0)
    assert 0.0 == time_step.discount


@pytest.mark.usefixtures("ple_package")
def test_ple_env_makes_a_ple_from_a_game():
    pytest.importorskip("pygame", reason="pygame is not installed")
    env = PLEEnv(ple_games.QuietCatcher(), render=False)
    assert ("QuietCatcher", 30, False) == (
        env.id,
        env.env_instance.fps,
        env.env_instance.display_screen,
    )


# SC2Env, on PySC2's own stand-in for the game


@pytest.fixture(scope="module")
def mock_sc2():
    pytest.importorskip("pysc2", reason="pysc2 is not installed")
    from envkit.adapters.pysc2 import prepare

    prepare()
    from pysc2.env import mock_sc2_env
    from pysc2.lib import actions

    return functools.partial(
        SC2Env, make_env=mock_sc2_env.SC2TestEnv
    ), actions.RAW_FUNCTIONS.no_op()


def test_sc2_env_returns_the_first_players_step(mock_sc2):
    make_env, no_op = mock_sc2
    env = make_env("Simple64", self_play=True, step_mul=8)
    observation = env.reset()
    results = [env.step([no_op, no_op]) for _ in range(10)]

    assert (8, (64, 64)) == (observation["step_mul"], tuple(observation["map_size"]))
    assert observation.raw_units.ndim == 2
    assert [False] * 9 + [True] == [done for _, _, done in results]
    assert env.done
    env.close()
    env.close()


def test_sc2_env_is_saved_and_loaded(mock_sc2, tmp_path):
    make_env, no_op = mock_sc2
    make_env(step_mul=8).save(str(tmp_path))
    env = make_env()
    env.load(str(tmp_path))
    assert 8 == env.reset()["step_mul"]
    assert (0.0, False) == env.step([no_op])[1:]


def test_sc2_env_accepts_a_single_action_for_a_single_agent(mock_sc2):
    make_env, no_op = mock_sc2
    env = make_env()
    env.reset()
    assert (0.0, False) == env.step(no_op)[1:]


def test_sc2_env_works_in_from_urnai(mock_sc2):
    make_env, no_op = mock_sc2
    env = from_urnai(
        make_env, action_wrapper=Menu([no_op]), state_builder=lambda obs: obs["player"]
    )
    time_steps = [env.reset(), *(env.step(0) for _ in range(10))]
    assert ArraySpec((11,), np.int32) == env.observation_spec()
    assert StepType.LAST == time_steps[-1].step_type


def test_sc2_env_refuses_an_unknown_race(message_of, mock_sc2):
    make_env, _ = mock_sc2
    assert message_of(ValueError, lambda: make_env(player_race="human")) == (
        "player_race must be one of random, protoss, terran, zerg, got 'human'."
    )


def test_sc2_env_names_the_folder_of_a_missing_game(message_of, monkeypatch, tmp_path):
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    assert message_of(FileNotFoundError, lambda: SC2Env("Simple64")) == (
        "StarCraft II was not found: [Errno 2] No such file or directory: "
        f"'{tmp_path}/Versions'. Install the game, and name its folder in the "
        "environment variable SC2PATH unless that is ~/StarCraftII."
    )


# VizdoomEnv


@pytest.fixture(scope="module")
def make_doom():
    pytest.importorskip("vizdoom", reason="vizdoom is not installed")
    return functools.partial(VizdoomEnv, "basic.wad", render=False, num_steps=30)


def test_vizdoom_env_repeats_the_last_state_at_the_end(make_doom):
    env = make_doom()
    before = env.reset()
    menu = env.get_action_wrapper()
    attack = menu.get_action(menu.get_named_actions().index("attack"), before)
    rewards, done = [], False
    while not done:
        state, reward, done = env.step(attack)
        rewards.append(reward)
        before = state

    assert env.game.get_state() is None
    assert ((120, 160), 17) == (state.screen_buffer.shape, len(state.game_variables))
    assert -1.0 == rewards[0]
    assert (160, 120) == (env.get_screen_width(), env.get_screen_height())
    env.close()
    env.close()


def test_vizdoom_env_saves_without_its_scenario_file(make_doom, tmp_path):
    env = make_doom(num_steps=12)
    env.reset()
    env.save(str(tmp_path))
    env.close()
    other = VizdoomEnv("deadly_corridor.wad", render=False)
    other.load(str(tmp_path))
    assert ("deadly_corridor.wad", 12) == (other.wad, other.num_steps)


def test_vizdoom_env_works_in_from_urnai(make_doom):
    def numbers(state):
        return {"screen": state.screen_buffer, "variables": state.game_variables}

    with from_urnai(make_doom, state_builder=numbers) as env:
        streams = []
        for seed in (5, 6, 5):
            env.seed(seed)
            time_steps = [env.reset(), *(env.step(n % 8) for n in range(6))]
            streams.append([t.observation["screen"].tobytes() for t in time_steps])

    assert (True, False) == (streams[0] == streams[2], streams[0] == streams[1])


def test_vizdoom_env_refuses_unknown_scenarios_and_resolutions(message_of, make_doom):
    assert message_of(ValueError, lambda: VizdoomEnv("")) == (
        "VizdoomEnv needs the file of a scenario, such as 'basic.wad'."
    )
    assert message_of(ValueError, lambda: make_doom(res="RES_1X1")) == (
        "res must be one of RES_640X480, RES_320X240, RES_160X120, got 'RES_1X1'."
    )


def test_the_module_is_exported_by_adapters():
    assert urnai.from_urnai is from_urnai
