"""A game of ViZDoom keeps envkit's contract, with the numbers of the bare game."""

from __future__ import annotations

import functools
import os
import pickle

import numpy as np
import pytest

import envkit
from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
)
from envkit.adapters import VizDoomWrapper, suite_vizdoom
from envkit.errors import ClosedError
from envkit.testing import check_environment

vizdoom = pytest.importorskip("vizdoom", reason="vizdoom is not installed")

# Each game is a process that takes its time to start.
pytestmark = pytest.mark.slow

SMALL = (160, 120)
LEFT, ATTACK = [1, 0, 0], [0, 0, 1]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A game leaves a folder where it is started."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def made():
    """Makes games, and closes them."""
    envs = []

    def make(scenario="basic", **options):
        options = {"screen_resolution": SMALL, **options}
        envs.append(VizDoomWrapper(scenario, **options))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


def bare_game(scenario="basic", timeout=None, screen_format="CRCGCB"):
    game = vizdoom.DoomGame()
    game.load_config(os.path.join(vizdoom.scenarios_path, f"{scenario}.cfg"))
    game.set_window_visible(False)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(getattr(vizdoom.ScreenFormat, screen_format))
    if timeout is not None:
        game.set_episode_timeout(timeout)
    return game


def play(env, action):
    """Plays to the end; returns the last two time steps."""
    before, time_step = None, env.reset()
    while not time_step.is_last():
        before, time_step = time_step, env.step(action)
    return before, time_step


def test_specs_come_from_the_game(made):
    env = made(actions="buttons")
    assert {
        "screen": BoundedArraySpec((120, 160, 3), np.uint8, 0, 255, "screen"),
        "game_variables": {"AMMO2": ArraySpec((), np.float64, "AMMO2")},
    } == env.observation_spec()
    assert BoundedArraySpec((3,), np.int8, 0, 1) == env.action_spec()
    assert ("MOVE_LEFT", "MOVE_RIGHT", "ATTACK") == env.buttons


@pytest.mark.parametrize("scenario", ["basic", "take_cover", "deadly_corridor"])
def test_time_steps_match_the_bare_game_bit_for_bit(made, scenario):
    env = made(scenario, frame_skip=4, seed=5)
    game = bare_game(scenario)
    game.set_seed(5)
    game.init()
    rng = np.random.default_rng(0)
    time_step = env.reset()
    for _ in range(40):
        screen = np.moveaxis(game.get_state().screen_buffer, 0, -1)
        np.testing.assert_array_equal(screen, time_step.observation["screen"])
        if variables := time_step.observation.get("game_variables"):
            assert game.get_state().game_variables.tolist() == [
                float(value) for value in variables.values()
            ]
        move = rng.integers(0, 2, len(env.buttons))
        reward = game.make_action(move.tolist(), 4)
        time_step = env.step(move)
        assert np.float32(reward) == time_step.reward
        assert game.is_episode_finished() == time_step.is_last()
        if time_step.is_last():
            break
    game.close()


@pytest.mark.parametrize(
    "screen_format",
    ["RGB24", "BGR24", "RGBA32", "ARGB32", "BGRA32", "ABGR32", "CBCGCR"],
)
def test_colours_are_red_green_and_blue_in_every_format(made, screen_format):
    expected = made(seed=3).reset().observation["screen"]
    game = functools.partial(bare_game, screen_format=screen_format)
    env = made(game, seed=3)
    np.testing.assert_array_equal(expected, env.reset().observation["screen"])


def test_a_grey_screen_has_one_channel_and_renders_in_colour(made):
    env = made("simpler_basic", observe="screen")
    assert (120, 160, 1) == env.reset().observation.shape
    assert (120, 160, 3) == env.render().shape


def test_observed_parts_are_enabled_in_the_game(made):
    parts = ("depth", "labels", "automap", "audio")
    env = made("basic", observe=parts, frame_skip=4)
    observation = env.reset().observation
    assert [(120, 160, 1), (120, 160, 1), (120, 160, 3)] == [
        observation[part].shape for part in parts[:3]
    ]
    assert np.int16 == observation["audio"].dtype


def test_a_single_observed_part_is_not_a_dictionary(made):
    env = made(observe="game_variables")
    assert {"AMMO2": 50.0} == env.reset().observation


def test_a_timeout_truncates_and_repeats_the_last_screen(made):
    env = made(settings={"episode_timeout": 8}, frame_skip=4, discount=0.5)

    before, last = play(env, LEFT)
    assert 0.5 == last.discount
    np.testing.assert_array_equal(
        before.observation["screen"], last.observation["screen"]
    )
    info = env.get_info()
    assert (False, True) == (info["terminated"], info["truncated"])


def test_death_terminates_with_the_final_game_variables(made):
    env = made("deadly_corridor", frame_skip=8, seed=1)

    before, last = play(env, [0] * 7)

    assert 0.0 == last.discount
    assert last.observation["game_variables"]["HEALTH"] <= 0
    assert before.observation["game_variables"]["HEALTH"] > 0
    info = env.get_info()
    assert (True, True, False) == (
        info["player_dead"],
        info["terminated"],
        info["truncated"],
    )


def test_a_menu_makes_actions_discrete(made):
    env = made(actions=[[], ["MOVE_LEFT"], ["MOVE_LEFT", "ATTACK"]])
    env.reset()
    env.step(2)
    assert BoundedArraySpec((), np.int64, 0, 2) == env.action_spec()
    assert [1, 0, 1] == env.game.get_last_action()
    assert ({}, {"MOVE_LEFT": 1.0}, {"MOVE_LEFT": 1.0, "ATTACK": 1.0}) == env.menu


def test_the_info_has_a_seed_that_repeats_the_episode(made):
    env = made(seed=7)
    env.reset()
    seeds = [env.get_info()["seed"]]
    second = env.reset().observation["screen"]
    seeds.append(env.get_info()["seed"])
    env.seed(seeds[1])

    np.testing.assert_array_equal(second, env.reset().observation["screen"])
    assert 7 == seeds[0] != seeds[1]


def test_a_running_game_is_accepted(made):
    game = bare_game()
    game.init()
    env = made(game, screen_resolution=None)
    assert game is env.game
    assert env.reset().is_first()


def test_a_running_game_cannot_be_reconfigured():
    game = bare_game()
    game.init()

    with pytest.raises(ValueError, match="runs already") as error:
        VizDoomWrapper(game, realtime=True)

    game.close()
    assert (
        "VizDoomWrapper was given a running game, whose screen_resolution, settings, "
        "realtime and window can no longer be chosen. Pass it before its init()."
    ) == str(error.value)


def test_observing_parts_the_game_lacks_is_refused(message_of):
    assert (
        "observe has 'game_variables', which this game does not have: it has screen. "
        "Game variables are named in its configuration, and a game that runs already "
        "cannot be given other parts."
    ) == message_of(
        ValueError,
        lambda: VizDoomWrapper("my_way_home", observe=["screen", "game_variables"]),
    )


def test_a_state_replays_its_actions_in_another_game(made):
    env = made("take_cover", seed=2, frame_skip=4)
    env.reset()
    moves = np.random.default_rng(1).integers(0, 2, (12, 2))
    for move in moves[:6]:
        env.step(move)
    token = pickle.loads(pickle.dumps(env.get_state()))
    expected = [env.step(move) for move in moves[6:]]
    other = made("take_cover", seed=99, frame_skip=4)

    other.set_state(token)

    for time_step, move in zip(expected, moves[6:], strict=True):
        again = other.step(move)
        np.testing.assert_array_equal(
            time_step.observation["screen"], again.observation["screen"]
        )
        assert time_step.reward == again.reward


def test_the_state_of_another_game_is_refused(made, message_of):
    token = made("take_cover").get_state()
    assert (
        "VizDoomWrapper.set_state() was given the state of another game.\n\n"
        "  expected   basic, map map01, skill 5, frame_skip 1, buttons MOVE_LEFT, "
        "MOVE_RIGHT, ATTACK\n"
        "  got        take_cover, map map01, skill 4, frame_skip 1, buttons MOVE_LEFT, "
        "MOVE_RIGHT\n\n"
        "A state fits games that were made with the same arguments."
    ) == message_of(ValueError, lambda: made().set_state(token))


def test_a_real_time_game_has_no_state(made):
    env = made(realtime=True)
    env.reset()
    env.step(LEFT)

    with pytest.raises(NotImplementedError) as error:
        env.get_state()

    assert "ASYNC_PLAYER" == env.game.get_mode().name
    assert (
        "basic cannot save its state: it runs in real time, and a state is restored "
        "by repeating its actions. Make it with realtime=False."
    ) == str(error.value)


def test_notifications_are_in_the_info(made):
    env = made("basic_notifications")
    env.reset()
    assert isinstance(env.get_info()["notifications"], str)


def test_the_settings_of_a_game_are_left_alone(made, tmp_path):
    env = made()
    env.reset()
    env.close()
    assert [] == list(tmp_path.rglob("*.ini"))


def test_a_closed_game_raises_closed_error(made):
    env = made()
    env.close()
    env.close()
    with pytest.raises(ClosedError):
        env.reset()


def test_an_unknown_scenario_is_refused(message_of):
    assert message_of(ValueError, lambda: VizDoomWrapper("basics")).startswith(
        "There is no scenario 'basics', and no file of that name. Did you mean 'basic'"
    )


def test_a_constructor_must_return_a_game(message_of):
    assert (
        "VizDoomWrapper was given what returned 3 of type int. It takes a "
        "vizdoom.DoomGame, a function that makes one, the name of a scenario "
        "such as 'basic', or the path of a configuration."
    ) == message_of(TypeError, lambda: VizDoomWrapper(lambda: 3))


def test_an_unknown_resolution_is_refused(message_of):
    assert message_of(
        ValueError, lambda: VizDoomWrapper("basic", screen_resolution=(10, 10))
    ).startswith(
        "ViZDoom has no resolution '10x10'. It has 160x120, 200x125, 200x150, "
    )


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        (
            ["sound"],
            "observe has no part 'sound'. The parts are screen, depth, labels, "
            "automap, audio, game_variables.",
        ),
        (
            [],
            "observe is empty. The parts are screen, depth, labels, automap, audio, "
            "game_variables.",
        ),
    ],
)
def test_unknown_parts_are_refused(observe, message, message_of):
    assert message == message_of(
        ValueError, lambda: VizDoomWrapper("basic", observe=observe)
    )


def small():
    return VizDoomWrapper(
        "take_cover",
        frame_skip=8,
        actions=1,
        observe="screen",
        screen_resolution=SMALL,
        settings={"episode_timeout": 60},
    )


def test_the_environment_passes_check_environment():
    check_environment(small, steps=15, require=["episodes", "render", "seed", "state"])


def test_games_make_a_batch():
    env = BatchedPyEnvironment([small(), small()])
    env.seed(1)
    assert (2, 120, 160, 3) == env.reset().observation.shape
    assert [1, 1] == env.step([0, 1]).step_type.tolist()
    env.close()


def test_worker_processes_return_the_same_stream():
    with (
        ParallelPyEnvironment([small] * 2) as there,
        ParallelPyEnvironment([small] * 2, backend="inline") as here,
    ):
        for env in (here, there):
            env.seed(5)
        np.testing.assert_array_equal(
            here.reset().observation, there.reset().observation
        )
        for move in np.random.default_rng(0).integers(0, 3, (10, 2)):
            ours, theirs = here.step(move), there.step(move)
            np.testing.assert_array_equal(ours.observation, theirs.observation)


def test_make_knows_the_scheme():
    with envkit.make("vizdoom:basic", screen_resolution=SMALL) as env:
        assert env.reset().is_first()


def test_a_gymnasium_id_has_the_actions_of_that_environment():
    with suite_vizdoom.load("VizdoomBasic-v1", screen_resolution=SMALL) as env:
        assert BoundedArraySpec((), np.int64, 0, 3) == env.action_spec()
        assert ({}, {"ATTACK": 1.0}) == env.menu[:2]


def test_a_gymnasium_id_may_name_the_map_and_skill():
    name = "VizdoomFreedoom2MAP02-S3-v0"
    with suite_vizdoom.load(name, screen_resolution=SMALL) as env:
        assert ("MAP02", 3) == (
            env.game.get_doom_map().upper(),
            env.game.get_doom_skill(),
        )


def test_an_unknown_id_is_refused():
    with pytest.raises(ValueError, match="registers no environment 'VizdoomBasic-v7'"):
        suite_vizdoom.load("VizdoomBasic-v7")


def test_scenarios_are_listed():
    assert {"basic", "deadly_corridor", "take_cover"} < set(suite_vizdoom.scenarios())


def test_env_wrappers_are_applied():
    from envkit.wrappers import TimeLimit

    with suite_vizdoom.load(
        "basic",
        screen_resolution=SMALL,
        env_wrappers=[lambda env: TimeLimit(env, 2)],
    ) as env:
        assert 2 == env.duration
