"""Games of ale-py by name, one by one and in its own vector environment."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

import envkit
from envkit import AutoReset, BatchedPyEnvironment, ParallelPyEnvironment, nest
from envkit.adapters import (
    AtariVectorWrapper,
    GymnasiumVectorWrapper,
    GymnasiumWrapper,
    suite_ale,
    suite_gymnasium,
)
from envkit.errors import CallOrderError, SpecError
from envkit.seeding import seed_per_row
from envkit.testing import check_environment
from envkit.time_step import StepType
from envkit.wrappers import AtariPreprocessing, TimeLimit

ale_py = pytest.importorskip("ale_py", reason="ale-py is not installed")
gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
vector = pytest.importorskip("ale_py.vector_env", reason="this ale-py has none")

FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)
NEXT_STEP, SAME_STEP, DISABLED = AutoReset
SMALL = {"img_height": 12, "img_width": 10, "stack_num": 2}


def same(first, second):
    pairs = zip(nest.flatten(first), nest.flatten(second), strict=True)
    return all(np.array_equal(*pair) for pair in pairs)


# Names.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Pong", "ALE/Pong-v5"),
        ("Pong-v5", "ALE/Pong-v5"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("ms_pacman", "ALE/MsPacman-v5"),
        ("Pong-v4", "Pong-v4"),
        ("PongNoFrameskip-v4", "PongNoFrameskip-v4"),
    ],
)
def test_a_game_has_several_names(name, expected):
    with envkit.make(f"ale:{name}") as env:
        assert isinstance(env, GymnasiumWrapper)
        assert expected == env.spec.id


def test_an_unknown_game_gets_a_suggestion(message_of):
    message = message_of(ValueError, lambda: envkit.make("ale:Breakot"))
    assert message.startswith("ale-py has no game named 'Breakot'. Did you mean 'Brea")
    assert message.endswith(
        " A name is 'Pong', 'Pong-v5' or 'PongNoFrameskip-v4'; "
        "ale_py.roms.get_all_rom_ids() names all games."
    )


def test_keyword_arguments_go_to_the_game():
    with suite_ale.load("Pong", obs_type="ram", full_action_space=True) as env:
        assert (128,) == env.observation_spec().shape
        assert 17 == env.action_spec().maximum


def test_limits_and_wrappers_are_applied():
    def crop(env):
        return gymnasium.wrappers.TransformObservation(
            env, lambda seen: seen[:9], gymnasium.spaces.Box(0, 255, (9,), np.uint8)
        )

    with suite_ale.load(
        "Pong", 0.5, 2, [crop], [lambda env: TimeLimit(env, 9)], {"obs_type": "ram"}
    ) as env:
        assert isinstance(env, TimeLimit)
        assert [FIRST, MID, LAST] == [int(env.step(0).step_type) for _ in range(3)]
        assert (9,) == env.current_time_step().observation.shape
        assert 0.5 == env.current_time_step().discount


# One game.


@pytest.mark.parametrize("name", ["Breakout-v5", "Pong-v4"])
def test_time_steps_match_the_bare_game(name):
    with suite_ale.load(name) as env:
        game = gymnasium.make(env.spec.id)
        env.seed(3)
        time_step, (seen, _) = env.reset(), game.reset(seed=3)
        for number in range(25):
            assert np.array_equal(seen, time_step.observation)
            action = number * 7 % int(env.action_spec().maximum + 1)
            time_step = env.step(action)
            seen, reward, terminated, truncated, info = game.step(action)
            assert np.float32(reward) == time_step.reward
            assert (terminated or truncated) == time_step.is_last()
        game.close()
        assert info == env.get_info()


def played(env, seed, actions):
    env.seed(seed)
    return [env.reset(), *map(env.step, actions)]


def test_a_state_restores_sticky_actions_and_random_frameskips():
    make = functools.partial(
        suite_ale.load, "Breakout", frameskip=(2, 5), obs_type="ram"
    )
    rng = np.random.default_rng(0)
    with make() as env, make() as untouched, make() as other:
        for seed in range(2):
            before, after = rng.integers(0, 4, (2, 12 + seed))
            played(untouched, seed, before)
            expected = [untouched.step(action) for action in after]
            played(env, seed, before)
            token = pickle.loads(pickle.dumps(env.get_state()))
            info = env.get_info()
            streams = [[env.step(action) for action in after]]
            for restored in (env, other):
                restored.set_state(token)
                assert info == restored.get_info()
                streams.append([restored.step(action) for action in after])
            for stream in streams:
                assert all(map(same, expected, stream))


def test_set_state_restores_the_picture():
    make = functools.partial(suite_ale.load, "Breakout", render_mode="rgb_array")
    with make() as env, make() as other:
        played(env, 3, [1, 2, 2, 3])
        picture = env.render()
        token = env.get_state()
        assert np.array_equal(picture, env.render())
        env.step(2)
        assert not np.array_equal(picture, env.render())
        for restored in (env, other):
            restored.set_state(token)
            assert np.array_equal(picture, restored.render())


def test_continuous_sticky_actions_have_no_state():
    with suite_ale.load("Pong", continuous=True) as env:
        env.reset()
        with pytest.raises(NotImplementedError, match="cannot save its state"):
            env.get_state()
    with suite_ale.load("Pong", continuous=True, repeat_action_probability=0.0) as env:
        env.reset()
        env.set_state(env.get_state())


@pytest.mark.slow
def test_a_game_passes_check_environment():
    make = functools.partial(
        suite_ale.load, "Pong", obs_type="ram", max_num_frames_per_episode=20
    )
    features = ["episodes", "info", "seed", "state"]
    assert () == check_environment(make, steps=25, require=features).failed


def recipe():
    return envkit.constructor("ale:Pong", obs_type="ram")


@pytest.mark.slow
def test_batches_and_workers_return_the_same_stream():
    actions = [np.array([number % 6, 2]) for number in range(20)]
    streams = []
    for env in (
        BatchedPyEnvironment([recipe()(), recipe()()]),
        ParallelPyEnvironment([recipe()] * 2, backend="inline"),
        ParallelPyEnvironment([recipe()] * 2, num_workers=2),
    ):
        with env:
            env.seed([5, 6])
            streams.append([env.reset(), *map(env.step, actions)])
    with recipe()() as env:
        env.seed(5)
        alone = [env.reset(), *(env.step(action[0]) for action in actions)]

    first, *others = streams
    for other in others:
        assert all(map(same, first, other))
    assert all(
        np.array_equal(one.observation, batch.observation[0])
        for one, batch in zip(alone, first, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"terminal_on_life_loss": True},
        {"grayscale_newaxis": True, "scale_obs": True, "screen_size": (80, 105)},
        {"grayscale_obs": False, "screen_size": (80, 105), "frame_skip": 3},
    ],
    ids=["games", "lives", "scaled", "colours"],
)
@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_preprocessing_matches_gymnasium_bit_for_bit(game, arguments):
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    name = f"{game}NoFrameskip-v4"
    arguments = {"noop_max": 0, "grayscale_newaxis": False, **arguments}
    ours = AtariPreprocessing(suite_ale.load(name), **arguments)
    theirs = gymnasium.wrappers.AtariPreprocessing(gymnasium.make(name), **arguments)
    rng = np.random.default_rng(0)
    ours.seed(3)
    time_step, (seen, _) = ours.reset(), theirs.reset(seed=3)
    for _ in range(250):
        assert seen.dtype == time_step.observation.dtype
        assert np.array_equal(seen, time_step.observation)
        action = int(rng.integers(4))
        time_step = ours.step(action)
        seen, reward, terminated, truncated, _ = theirs.step(action)
        assert reward == time_step.reward
        assert terminated == bool(time_step.is_last() and time_step.discount == 0)
        assert not truncated
        if terminated:
            # Of a game that ends within an action theirs shows a picture from before.
            break
    ours.close()
    theirs.close()


# The vector environment.


def batch(order=NEXT_STEP, name="Breakout", rows=2, **arguments):
    return suite_ale.load_vector(
        name, rows, autoreset=order, **{**SMALL, "noop_max": 3, **arguments}
    )


def test_make_makes_the_vector_environment():
    with envkit.make("ale:Pong", num_envs=3, vectorization="native", **SMALL) as env:
        assert isinstance(env, AtariVectorWrapper)
        assert isinstance(env, GymnasiumVectorWrapper)
        assert isinstance(env.vector_env, vector.AtariVectorEnv)
        assert (3, 2, 12, 10) == env.reset().observation.shape


def test_a_constructor_makes_the_vector_environment_in_workers():
    recipe = envkit.constructor(
        "ale:Pong", vectorization="native", num_envs=2, num_threads=1, **SMALL
    )
    with ParallelPyEnvironment([recipe] * 2, backend="inline") as env:
        assert (4, 2, 12, 10) == env.reset().observation.shape


def test_time_steps_match_the_bare_vector_environment():
    limits = {"noop_max": 3, "max_num_frames_per_episode": 60, **SMALL}
    theirs = vector.AtariVectorEnv(
        "breakout", 2, repeat_action_probability=0.25, **limits
    )
    seen, _ = theirs.reset(seed=np.array([5, 6]))
    rng = np.random.default_rng(0)
    with batch(**limits) as env:
        env.seed([5, 6])
        time_step = env.reset()
        for _ in range(25):
            assert np.array_equal(seen, time_step.observation)
            action = rng.integers(0, 4, 2)
            over = time_step.is_last()
            time_step = env.step(action)
            seen, reward, terminated, truncated, info = theirs.step(action)
            kinds = np.where(over, FIRST, MID)
            kinds[terminated | truncated] = LAST
            assert kinds.tolist() == time_step.step_type.tolist()
            assert np.where(terminated, 0, 1).tolist() == time_step.discount.tolist()
            assert reward.tolist() == time_step.reward.tolist()
        assert info["lives"].tolist() == env.get_info()["lives"].tolist()
    theirs.close()


def streams_of(env, count):
    """Lists observations and kinds of each row, without actions that nobody used."""
    env.seed([5, 6])
    env.reset()
    streams, numbers = [[] for _ in range(2)], [0] * 2
    for _ in range(count):
        standing = env.current_time_step()
        if env.autoreset is DISABLED and standing.is_last().any():
            standing = env.reset(standing.is_last())
        acting = np.flatnonzero(~standing.is_last())
        action = np.array([(row + 3 * numbers[row]) % 4 for row in range(2)])
        after = env.step(action)
        for row in acting.tolist():
            numbers[row] += 1
            streams[row].append(
                (
                    standing.observation[row].tobytes(),
                    float(after.reward[row]),
                    float(after.discount[row]),
                    after.observation[row].tobytes(),
                )
            )
    return streams


def test_every_autoreset_order_gives_the_same_transitions():
    streams = []
    for order in (NEXT_STEP, SAME_STEP, DISABLED):
        with batch(order, max_num_frames_per_episode=20) as env:
            assert order is env.autoreset
            streams.append(streams_of(env, 18))
    expected, *others = streams
    for actual in others:
        for one, other in zip(expected, actual, strict=True):
            count = min(len(one), len(other))
            assert count > 10
            assert one[:count] == other[:count]


def test_disabled_resets_rows_individually(message_of):
    with batch(DISABLED, max_num_frames_per_episode=10) as env:
        before = env.reset()
        while not before.is_last().any():
            before = env.step([0, 0])
        message = message_of(CallOrderError, lambda: env.step([0, 0]))
        time_step = env.reset(np.array([False, True]))
        assert message.startswith("step() was called after the episode of rows 0, 1")
        assert [LAST, FIRST] == time_step.step_type.tolist()
        assert np.array_equal(before.observation[0], time_step.observation[0])


def test_a_rows_seed_does_not_depend_on_the_batch_size_or_the_reset():
    many = batch(rows=3, noop_max=30)
    alone = batch(DISABLED, noop_max=30)
    with many, alone:
        many.seed(7)
        seeds = [int(seed) for seed in seed_per_row(7, 3)]
        alone.reset()
        alone.seed(seeds[:2])
        alone.reset(np.array([True, False]))
        alone.reset(np.array([False, True]))
        one, other = many.reset().observation, alone.current_time_step().observation
        assert np.array_equal(one[:2], other)


def test_arrays_are_copies_and_invalid_actions_and_states_are_refused(
    message_of,
):
    with batch() as env:
        env.seed([2**32 - 1, None])
        kept = [env.reset()]
        assert kept[0].is_first().all()
        copies = [nest.map_structure(np.copy, kept[0])]
        for _ in range(8):
            kept.append(env.step([1, 2]))
            copies.append(nest.map_structure(np.copy, kept[-1]))
        assert all(map(same, copies, kept))
        assert "does not fit its spec" in message_of(
            SpecError, lambda: env.step([0, 4])
        )
        assert "AtariVectorEnv cannot save its state." in message_of(
            NotImplementedError, env.get_state
        )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: AtariVectorWrapper(
                vector.AtariVectorEnv("pong", 4, batch_size=2, **SMALL)
            ),
            "AtariVectorWrapper was given an AtariVectorEnv with batch_size=2 and "
            "num_envs=4, which is its asynchronous mode. Make it without a batch_size.",
        ),
        (
            lambda: suite_ale.load("Pong", vectorization="async"),
            "vectorization must be None for a single game, or 'native' for ale-py's "
            "own vector environment, got 'async'.",
        ),
        (
            lambda: suite_ale.load("Pong", 1.0, 9, vectorization="native"),
            "max_episode_steps and gym_env_wrappers are for single games. With "
            "vectorization='native', max_num_frames_per_episode limits episodes, and "
            "env_wrappers wraps the batch.",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, text, message_of):
    assert text == message_of(ValueError, call)


@pytest.mark.slow
def test_the_vector_environment_passes_check_environment():
    make = functools.partial(
        batch, name="Pong", rows=1, max_num_frames_per_episode=12, num_threads=1
    )
    features = ["episodes", "info", "seed"]
    assert () == check_environment(make, steps=20, require=features).failed


def test_the_gymnasium_scheme_accepts_games_with_their_module():
    with suite_gymnasium.load("ale_py:ALE/Pong-v5", obs_type="ram") as env:
        assert "ALE/Pong-v5" == env.spec.id
