from __future__ import annotations

import numpy as np
import pytest

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec
from envkit._shared.pixels import grayscale, resize
from envkit.envs import CartPole, Catch, GridWorld
from envkit.parallel import ParallelPyEnvironment
from envkit.seeding import seed_per_row
from envkit.testing import CountingEnv, check_environment
from envkit.testing.contract.recording import first_difference, snapshot
from envkit.time_step import StepType
from envkit.wrappers.atari import (
    AtariPreprocessing,
    AtariTimeLimit,
    FireOnReset,
    FrameStack4,
    LivesLookup,
    NoopReset,
)
from envkit.wrappers.limits import TimeLimit
from tests.wrappers.environments import Drive, MovesTogether, batch_of
from tests.wrappers.games import Arcade, Film

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


def brightness(time_step):
    """Returns how bright a screen is that is so all over."""
    (value,) = np.unique(time_step.observation)
    return int(value)


# What TF-Agents' tests of its own AtariPreprocessing say.


def test_the_observation_has_a_channel():
    env = AtariPreprocessing(Film([10, 8]), frame_skip=1, screen_size=16)
    assert (16, 16, 1) == env.reset().observation.shape


def test_the_end_of_a_game_is_passed_on():
    env = AtariPreprocessing(Film(range(11)), frame_skip=1)
    env.reset()
    ends = [bool(env.step(0).is_last()) for _ in range(10)]
    assert [False] * 9 + [True] == ends


def test_the_rewards_of_skipped_frames_are_added_up():
    env = AtariPreprocessing(Film([0] * 9, rewards=[1] * 9), frame_skip=2)
    env.reset()
    assert env.step(0).reward == 2


def test_the_brighter_of_two_frames_is_seen():
    env = AtariPreprocessing(Film([10, 8, 6, 4, 2]), frame_skip=2)
    env.reset()
    assert brightness(env.step(0)) == 8


# What it does beyond that.


def test_the_action_is_repeated_for_the_skipped_frames():
    film = Film(range(12))
    env = AtariPreprocessing(film)
    env.reset()
    env.step(2)
    env.step(1)
    assert [2, 2, 2, 2, 1, 1, 1, 1] == film.actions


def test_only_the_last_two_frames_are_seen():
    env = AtariPreprocessing(Film([9, 200, 200, 30, 20, 10, 0, 8, 40]))
    seen = [brightness(env.reset()), brightness(env.step(0)), brightness(env.step(0))]
    assert [9, 30, 40] == seen


def test_a_single_frame_is_unchanged():
    env = AtariPreprocessing(Film([50, 40, 30, 20]), frame_skip=1)
    seen = [brightness(env.step(0)) for _ in range(4)]
    assert [50, 40, 30, 20] == seen


@pytest.mark.parametrize(
    ("frames", "expected"),
    [([9, 5], 5), ([9, 8, 5], 5), ([9, 8, 7, 5], 5), ([9, 8, 7, 6, 5], 6)],
)
def test_an_episode_that_ends_early_shows_its_last_frame(frames, expected):
    env = AtariPreprocessing(Film(frames))
    env.reset()
    time_step = env.step(0)
    assert time_step.is_last()
    assert expected == brightness(time_step)
    assert sum(range(len(frames))) == time_step.reward


def test_the_discount_comes_from_the_last_frame():
    env = AtariPreprocessing(Film([1] * 7, truncated=True))
    env.reset()
    discounts = [float(env.step(0).discount) for _ in range(2)]
    assert discounts == pytest.approx([0.9, 0.9])


def test_the_step_after_an_episode_skips_no_frames():
    film = Film([3, 2, 1])
    env = AtariPreprocessing(film)
    env.reset()
    env.step(0)
    time_step = env.step(0)
    assert time_step.is_first()
    assert [] == film.actions
    assert brightness(time_step) == 3


def test_colours_become_gray_before_frames_are_compared():
    env, plain = AtariPreprocessing(Arcade(), 2, screen_size=6), Arcade()
    env.reset()
    plain.reset()
    frames = [grayscale(plain.step(0).observation) for _ in range(2)]
    seen = env.step(0).observation
    expected = resize(np.maximum(*frames), (6, 6))
    assert np.array_equal(expected[..., np.newaxis], seen)


def test_flickering_things_are_seen_in_every_step():
    """The sprite of the game is drawn in every other frame only."""
    env = AtariPreprocessing(Arcade(), 2, screen_size=84)
    env.reset()
    assert all(env.step(0).observation.max() > 150 for _ in range(5))


def test_bounds_of_pictures_are_kept():
    class Dark(Film):
        def observation_spec(self):
            return BoundedArraySpec((4, 6), np.uint8, 0, [[100] * 6, *[[90] * 6] * 3])

    specs = [
        AtariPreprocessing(env, screen_size=2).observation_spec()
        for env in (Film([0]), Dark([0]), Arcade())
    ]
    assert specs == [
        ArraySpec((2, 2, 1), np.uint8),
        BoundedArraySpec((2, 2, 1), np.uint8, 0, 100),
        BoundedArraySpec((2, 2, 1), np.uint8, 0, 255),
    ]
    assert specs[2].name == "screen"


def test_reward_bounds_cover_the_sum():
    film = Film([0, 1], reward_spec=BoundedArraySpec((), np.float32, -1, 2))
    assert (
        BoundedArraySpec((), np.float32, -4, 8)
        == AtariPreprocessing(film).reward_spec()
    )


# Lives.

LIVES = [3, 3, 2, 2, 2, 1, 1, 1, 1]
FRAMES = [90, 80, 70, 60, 50, 40, 30, 20, 10]


def with_lives(frame_skip=1, **options):
    film = Film(FRAMES, LIVES)
    env = AtariPreprocessing(film, frame_skip, terminal_on_life_loss=True, **options)
    return env, film


def test_each_life_is_an_episode_of_one_continuing_game():
    env, film = with_lives()
    steps, over = [], []
    for _ in range(12):
        steps.append(env.step(0))
        over.append(env.game_over)

    types = [int(step.step_type) for step in steps]
    assert [0, 1, 2, 0, 1, 1, 2, 0, 1, 1, 2, 0] == types
    assert [0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0] == [int(step.reward) for step in steps]
    discounts = [float(step.discount) for step in steps]
    assert [1, 0.9, 0, 1, 0.9, 0.9, 0, 1, 0.9, 0.9, 0, 1] == pytest.approx(discounts)
    seen = [brightness(step) for step in steps]
    assert [90, 80, 70, 70, 60, 50, 40, 40, 30, 20, 10, 90] == seen
    assert [False] * 10 + [True, False] == over
    assert film.resets == 2


def test_a_skip_stops_where_a_life_is_lost():
    env, film = with_lives(frame_skip=4)
    env.reset()
    time_step = env.step(0)
    assert time_step.is_last()
    assert len(film.actions) == 2
    assert time_step.reward == 3
    assert brightness(time_step) == 70


def test_without_the_option_lives_do_not_matter():
    env = AtariPreprocessing(Film(FRAMES, LIVES), 1)
    env.reset()
    types = [int(env.step(0).step_type) for _ in range(8)]
    assert [1] * 7 + [2] == types


def test_losing_the_last_life_is_a_termination():
    film = Film([3, 2, 1], [2, 2, 1], truncated=True)
    env = AtariPreprocessing(film, 1, terminal_on_life_loss=True)
    env.reset()
    env.step(0)
    time_step = env.step(0)
    assert (LAST, 0.0) == (time_step.step_type, time_step.discount)
    assert env.game_over
    assert env.step(0).is_first()
    assert film.resets == 2


def test_a_game_that_begins_with_fewer_lives_loses_none():
    film = Film([3, 2, 1], [2, 5, 5])
    env = AtariPreprocessing(film, 1, terminal_on_life_loss=True)
    types = [int(env.step(0).step_type) for _ in range(6)]
    assert [0, 1, 2, 0, 1, 2] == types


def test_reset_after_the_loss_of_a_life_begins_the_next():
    env, film = with_lives()
    for _ in range(3):
        last = env.step(0)
    first = env.reset()
    assert first.is_first()
    assert np.array_equal(last.observation, first.observation)
    assert film.resets == 1


def test_reset_at_another_time_begins_a_game():
    env, film = with_lives()
    for _ in range(4):
        env.step(0)
    assert brightness(env.reset()) == 90
    assert film.resets == 2


def test_reset_after_seeding_begins_a_game():
    env, film = with_lives()
    for _ in range(3):
        env.step(0)
    env.seed(1)
    assert brightness(env.reset()) == 90
    assert film.resets == 2


def test_the_step_after_seeding_begins_a_game():
    """The episode has ended, so there is no going on."""
    env, film = with_lives()
    for _ in range(3):
        env.step(0)
    env.seed(1)
    assert env.step(0).is_first()
    assert film.resets == 2


def test_the_next_lifes_picture_is_a_copy():
    env, _ = with_lives()
    for _ in range(3):
        last = env.step(0)
    last.observation[...] = 0
    first = env.step(0)
    assert brightness(first) == 70


def test_lives_can_be_counted_by_a_function():
    film = Film(FRAMES, LIVES)
    env = AtariPreprocessing(
        film,
        1,
        terminal_on_life_loss=True,
        lives=lambda time_step, info: info["lives"] - time_step.observation.max() // 85,
    )
    env.reset()

    types = [int(env.step(0).step_type) for _ in range(2)]
    assert [1, 2] == types


def test_lives_can_be_read_from_the_time_step():
    class Silent(Film):
        def get_info(self):
            raise NotImplementedError

    env = AtariPreprocessing(
        Silent([3, 2, 1, 0]),
        1,
        True,
        lives=lambda time_step, info: time_step.observation.min(),
    )
    env.reset()
    assert env.step(0).is_last()


def test_lives_are_found_in_infos_that_do_not_stack():
    class Talkative(Film):
        def get_info(self):
            return {**super().get_info(), "more": 1}

    env = AtariPreprocessing(
        batch_of(Film(FRAMES, LIVES), Talkative(FRAMES[1:], LIVES[1:])), 1, True
    )
    env.reset()

    types = [env.step([0, 0]).step_type.tolist() for _ in range(3)]
    assert [[1, 2], [2, 0], [0, 1]] == types
    assert isinstance(env.get_info(), list)


def test_an_environment_without_auto_reset_is_reset():
    class Waits(Film):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self._handle_auto_reset = False

    film = Waits([3, 2, 1], [2, 1, 1])
    env = AtariPreprocessing(film, 1, False, 84, True)
    types = [int(env.step(0).step_type) for _ in range(6)]
    assert [0, 1, 2, 0, 1, 2] == types
    assert film.resets == 2


# Batches.


def test_a_time_limit_outside_begins_new_games():
    films = [Film(FRAMES), Film(FRAMES, LIVES)]
    env = TimeLimit(AtariPreprocessing(batch_of(*films), 1, True, screen_size=1), 3)
    types = [env.step([0, 0]).step_type.tolist() for _ in range(5)]
    assert [[0, 0], [1, 1], [1, 2], [2, 0], [0, 1]] == types
    assert [2, 1] == [film.resets for film in films]


def test_game_over_returns_a_copy():
    env = AtariPreprocessing(batch_of(Film([2, 1]), Film([2, 1])), 1, True)
    env.reset()
    env.step([0, 0])
    env.game_over[...] = False
    assert [True, True] == env.game_over.tolist()


def test_a_preprocessed_game_keeps_the_contract():
    """Lives are lost in it; the other wrappers of games are in `cases/atari.py`."""
    check_environment(
        lambda: AtariTimeLimit(AtariPreprocessing(Arcade(), 3, True, 7), 6),
        steps=30,
        require=["seed", "state", "info"],
    )


@pytest.mark.parametrize(
    ("skip", "lives", "colours"),
    [(1, False, True), (4, False, False), (3, True, True), (1, True, False)],
)
def test_preprocessing_rows_and_preprocessing_a_pool_agree(skip, lives, colours):
    def wrapped(env):
        return FrameStack4(AtariPreprocessing(env, skip, lives, 7))

    def game():
        return Arcade(colours=colours)

    def batch(make):
        return ParallelPyEnvironment([make] * 3, backend="inline")

    rng = np.random.default_rng(1)
    moves = rng.integers(0, 4, (60, 3))
    streams = []
    for env in (batch(lambda: wrapped(game())), wrapped(batch(game))):
        env.seed(seed_per_row(5, 3))
        stream = [snapshot(env.reset())]
        for number, action in enumerate(moves):
            if number % 9 == 4:
                stream.append(snapshot(env.reset(np.array([False, True, True]))))
            if number % 5 == 2:
                stream.append(snapshot(env.step(action, np.array([True, False, True]))))
            stream.append(snapshot(env.step(action)))
        streams.append(stream)
        env.close()

    assert all(first_difference(*pair) is None for pair in zip(*streams, strict=True))


def test_repr_shows_the_wrapped_chain():
    env = FrameStack4(AtariPreprocessing(GridWorld(), 2, True, 16))
    assert repr(env) == (
        "FrameStack4(AtariPreprocessing(GridWorld(), frame_skip=2, "
        "terminal_on_life_loss=True, screen_size=16), stack_size=4)"
    )


# Wrong arguments.


@pytest.mark.parametrize("name", ["frame_skip", "screen_size"])
@pytest.mark.parametrize("size", [0, -1, 1.5, None])
def test_sizes_must_be_positive_integers(message_of, name, size):
    assert (f"{name} must be an integer of at least 1, got {size}.") == message_of(
        ValueError, lambda: AtariPreprocessing(Film([1]), **{name: size})
    )


def test_a_nest_is_refused(message_of):
    message = message_of(ValueError, lambda: AtariPreprocessing(Drive()))
    assert message.startswith(
        "AtariPreprocessing needs a game that shows a picture, and Drive shows "
        "something else.\n\n"
        "  expected   uint8 picture of shape (height, width, 3) or (height, width)\n"
        "  got        {'camera': BoundedArraySpec(shape=(6, 4, 3), "
    )


def test_without_skipping_a_batch_needs_no_masked_steps():
    env = AtariPreprocessing(MovesTogether(batch_size=2), 1)
    assert [0, 0] == env.reset().step_type.tolist()


def test_four_frames_are_stacked_along_the_channels():
    env = FrameStack4(AtariPreprocessing(Film([4, 3, 2, 1]), 1, screen_size=1))
    seen = [env.step(0).observation.reshape(-1).tolist() for _ in range(3)]
    assert FrameStack4.STACK_SIZE == 4
    assert [[4, 4, 4, 4], [4, 4, 4, 3], [4, 4, 3, 2]] == seen
    assert (1, 1, 4) == env.observation_spec().shape


def test_the_frame_stack_restarts_with_each_life():
    film = Film([4, 3, 2, 1], [2, 1, 1, 1])
    env = FrameStack4(AtariPreprocessing(film, 1, True, screen_size=1))
    seen = [env.step(0).observation.reshape(-1).tolist() for _ in range(4)]
    assert [[4, 4, 4, 4], [4, 4, 4, 3], [3, 3, 3, 3], [3, 3, 3, 2]] == seen


def test_a_class_is_refused_as_an_environment(message_of):
    message = message_of(TypeError, lambda: FrameStack4(GridWorld))
    assert message.startswith("FrameStack4 wraps an environment, not ")


# The lives of a game, wherever it has them.


def test_lives_are_in_the_info():
    env = Film([1, 2], [5, 4])
    lives = LivesLookup(env)(env.reset())
    assert np.array_equal(np.array(5.0), lives)
    assert np.float64 == lives.dtype


def test_each_row_has_its_own_lives():
    env = BatchedPyEnvironment([Film([1, 2], [5, 4]), Film([1, 2], [3, -1])], False)
    env.reset()
    lives = LivesLookup(env)(env.step([0, 0]))
    assert [4.0, -1.0] == lives.tolist()


def test_the_info_is_read_anew_each_time():
    """Whoever counts lives may write into the array that holds them."""
    kept = np.array([3.0, 2.0])
    env = Catch(batch_size=2)
    lives = LivesLookup(env, lambda time_step, info: kept)(env.reset())
    assert not np.shares_memory(kept, lives)


NO_LIVES = (
    "get_info() of {} has no 'lives', so nothing shows when one is lost. Pass "
    "lives=..., a function of a time step and its info that returns how many are left."
)


@pytest.mark.parametrize("env", [Catch(), Catch(batch_size=2), CountingEnv()])
def test_an_info_without_lives_is_an_error(message_of, env):
    assert (NO_LIVES.format(type(env).__name__)) == message_of(
        ValueError, lambda: LivesLookup(env)(env.reset())
    )


def test_unstacked_infos_must_all_have_lives(message_of):
    class Silent(Film):
        def get_info(self):
            return {}

    env = BatchedPyEnvironment([Film([1]), Silent([1])], False)
    assert (NO_LIVES.format("BatchedPyEnvironment")) == message_of(
        ValueError, lambda: LivesLookup(env)(env.reset())
    )


@pytest.mark.parametrize(
    ("found", "description"),
    [
        (None, "None"),
        ("many", "the string 'many'"),
        ([1, 2], "a list of 2 elements"),
        (float("nan"), "nan of type float"),
    ],
)
def test_lives_must_be_a_number(message_of, found, description):
    env = Catch()
    lookup = LivesLookup(env, lambda time_step, info: found)
    assert (f"The lives of Catch must be a number, got {description}.") == message_of(
        ValueError, lambda: lookup(env.reset())
    )


def test_lives_of_a_batch_must_be_a_number_per_row(message_of):
    env = Catch(batch_size=3)
    lookup = LivesLookup(env, lambda time_step, info: 3)
    assert (
        "The lives of Catch must be 3 numbers, one for each row, got 3 of type int."
    ) == message_of(ValueError, lambda: lookup(env.reset()))


# atari_episodes.


LONG = range(100)


def noops(film, noop_max, games=200):
    """Plays a lot of beginnings, and returns how many no-ops each had."""
    env = NoopReset(film, noop_max)
    env.seed(3)
    counts = []
    for _ in range(games):
        env.reset()
        counts.append(len(film.actions))
    return counts


@pytest.mark.parametrize(("most", "counts"), [(5, {1, 2, 3, 4, 5}), (0, {0})])
def test_a_game_begins_after_some_noops(most, counts):
    assert counts == set(noops(Film(LONG), most))


def test_noops_are_equally_likely():
    counts = np.bincount(noops(Film(LONG), 4, games=800))
    assert counts[1:].min() > 150


def test_the_noop_action_can_be_chosen():
    film = Film(LONG)
    env = NoopReset(film, 5, 3)
    env.reset()
    assert {3} == set(film.actions)


def test_an_episode_begins_with_the_observation_after_the_noops():
    film = Film(LONG)
    env = NoopReset(film, 5)
    time_step = env.reset()
    assert time_step.is_first()
    assert (0.0, 1.0) == (time_step.reward, time_step.discount)
    assert (time_step.observation == len(film.actions)).all()


def test_automatic_resets_begin_with_noops_too():
    film = Film(range(40))
    env = NoopReset(film, 3)
    time_step = env.reset()
    while not time_step.is_last():
        time_step = env.step(2)
    time_step = env.step(2)
    assert time_step.is_first()
    assert 1 <= len(film.actions) <= 3
    assert {0} == set(film.actions)


def test_a_game_that_ends_during_noops_is_reset_and_gets_the_rest():
    film = Film(range(3))
    env = NoopReset(film, 30)
    env.seed(1)

    counts = set()
    for _ in range(40):
        before = film.resets
        assert env.reset().is_first()
        # Two no-ops end a game.
        counts.add(2 * (film.resets - before - 1) + len(film.actions))
    assert max(counts) > 20
    assert set(range(1, 31)) >= counts


def test_inside_the_preprocessing_a_lost_life_causes_no_noops():
    film = Film(LONG, [3] * 10 + [2] * 90)
    env = AtariPreprocessing(NoopReset(film, 3), 1, True)
    time_step = env.reset()
    while not time_step.is_last():
        time_step = env.step(2)
    before = len(film.actions)
    env.step(2)
    assert before == len(film.actions)


def test_fire_is_pressed_and_then_another_button():
    film = Film(LONG)
    env = FireOnReset(film)
    time_step = env.reset()
    assert [1, 2] == film.actions
    assert time_step.is_first()
    assert (0.0, 1.0) == (time_step.reward, time_step.discount)
    assert (time_step.observation == 2).all()


def test_fire_can_be_pressed_alone():
    film = Film(LONG)
    FireOnReset(film, 3, None).reset()
    assert [3] == film.actions


def test_each_episode_begins_with_fire():
    film = Film(range(5))
    env = FireOnReset(film)
    types = [int(env.step(0).step_type) for _ in range(4)]
    assert [0, 1, 2, 0] == types
    assert [1, 2] == film.actions


def test_a_game_that_ends_by_fire_is_reset_before_the_other_button():
    film = Film(range(2))
    env = FireOnReset(film, 1, None)
    time_step = env.reset()
    assert time_step.is_first()
    assert film.resets == 2
    assert [] == film.actions


def test_only_rows_in_which_fire_ends_the_game_are_reset():
    films = [Film(range(2)), Film(LONG)]
    env = FireOnReset(batch_of(*films), 1, None)
    time_step = env.reset()
    assert [0, 0] == time_step.step_type.tolist()
    assert [2, 1] == [film.resets for film in films]
    assert [[], [1]] == [film.actions for film in films]


class Meaningful(Film):
    def __init__(self, *meanings):
        super().__init__(LONG)
        self.get_action_meanings = lambda: list(meanings)


@pytest.mark.parametrize(
    ("second", "following", "pressed"), [("FIRE", 2, [1, 2]), ("UP", 9, [])]
)
def test_fire_is_pressed_only_in_games_that_have_it(second, following, pressed):
    film = Meaningful("NOOP", second, "LEFT", "RIGHT")
    FireOnReset(film, next_action=following).reset()
    assert pressed == film.actions


def test_fire_works_inside_the_preprocessing():
    """Outside of it, fire is pressed for each life, and for so many frames."""
    film = Film(LONG, [3] * 10 + [2] * 90)
    env = FireOnReset(AtariPreprocessing(film, 2, True), 1, None)
    time_step = env.reset()
    assert [1, 1] == film.actions
    while not time_step.is_last():
        time_step = env.step(2)
    before = len(film.actions)
    assert env.step(2).is_first()
    assert [1, 1] == film.actions[before:]
    assert film.resets == 1


def test_actions_may_be_nests():
    action = {"gear": 2, "wheel": [0.5, 0.5]}
    env = NoopReset(batch_of(Drive(100), Drive(100)), 2, action)
    assert [0, 0] == env.reset().step_type.tolist()
    assert (env.get_info()["place"] != 0).all()


def test_repr_shows_the_openings():
    env = FireOnReset(NoopReset(Catch(), 5), 1, None)
    assert repr(env) == (
        "FireOnReset(NoopReset(Catch(), noop_max=5), fire_action=1, next_action=None)"
    )


@pytest.mark.parametrize("noop_max", [-1, 2.5, None])
def test_the_number_of_noops_must_not_be_negative(message_of, noop_max):
    assert (
        f"noop_max must be an integer of at least 0, got {noop_max}."
    ) == message_of(ValueError, lambda: NoopReset(Catch(), noop_max))


@pytest.mark.parametrize("wrapper", [NoopReset, FireOnReset])
def test_openings_refuse_a_batch_without_masked_steps(message_of, wrapper):
    assert (
        f"{wrapper.__name__} cannot wrap MovesTogether(batch_size=2): its rows end one "
        "by one, and it cannot leave rows where they are while others step. Wrap the "
        "single environments before they become a batch, or override "
        "_step_rows(action, stepping, beginning) in MovesTogether."
    ) == message_of(ValueError, lambda: wrapper(MovesTogether(batch_size=2)))


def test_the_pressed_actions_are_copies():
    fire, following = np.array(1), np.array(2)
    env = FireOnReset(Film(LONG), fire, following)
    fire[...] = 3
    env.next_action[...] = 3
    assert (1, 2) == (env.fire_action, env.next_action)


# atari_limits.


LONG_GAME = range(50)
# A life is lost with every third step.
LIVES_GAME = [20 - frame // 3 for frame in LONG_GAME]


def limited(duration, *films):
    env = batch_of(*films) if len(films) > 1 else films[0]
    return AtariTimeLimit(AtariPreprocessing(env, 1, True, 1), duration)


def types_of(env, steps):
    action = [0] * env.batch_size if env.batched else 0
    return [np.asarray(env.step(action).step_type).tolist() for _ in range(steps)]


# What TF-Agents' tests of its own AtariTimeLimit say.


def test_a_game_ends_at_the_limit_and_a_new_one_begins():
    film = Film(LONG_GAME)
    env = limited(5, film)
    stream = [(int(env.step(0).step_type), env.game_over) for _ in range(8)]
    assert [0, 1, 1, 1, 1, 2, 0, 1] == [kind for kind, _ in stream]
    assert [False] * 5 + [True, False, False] == [over for _, over in stream]
    assert film.resets == 2


# What it does beyond that.


def test_the_limit_counts_across_lives():
    film = Film(LONG_GAME, LIVES_GAME)
    env = limited(8, film)
    types = types_of(env, 13)
    assert [0, 1, 1, 2, 0, 1, 1, 2, 0, 1, 2, 0, 1] == types
    assert film.resets == 2


def test_a_game_that_only_returns_first_is_ended():
    class NeverGoesOn(Arcade):
        game_over = False

        def _step(self, action):
            return super()._step(action)._replace(step_type=StepType.FIRST)

    assert [0, 0, 0, 2, 0, 0] == types_of(AtariTimeLimit(NeverGoesOn(), 3), 6)


def test_the_last_step_keeps_its_discount():
    env = limited(2, Film(LONG_GAME))
    env.reset()
    env.step(0)
    assert env.step(0).discount == pytest.approx(0.9)


def test_a_life_that_is_lost_at_the_limit_ends_the_game():
    film = Film(LONG_GAME, LIVES_GAME)
    env = limited(6, film)
    steps = [env.step(0) for _ in range(9)]
    assert [0, 1, 1, 2, 0, 1, 1, 2, 0] == [int(step.step_type) for step in steps]
    assert steps[7].discount == 0
    assert steps[8].observation == 0
    assert env.step(0).is_mid()


def test_a_game_that_ends_before_the_limit_is_unchanged():
    film = Film(range(3))
    env = limited(5, film)
    assert [0, 1, 2, 0, 1, 2, 0, 1] == types_of(env, 8)
    assert film.resets == 3


def test_reset_after_the_loss_of_a_life_continues_the_count():
    film = Film(LONG_GAME, LIVES_GAME)
    env = limited(5, film)
    for _ in range(4):
        env.step(0)
    env.reset()
    assert film.resets == 1
    assert [1, 2] == types_of(env, 2)
    assert env.game_over


def test_reset_at_another_time_restarts_the_count():
    film = Film(LONG_GAME, LIVES_GAME)
    env = limited(2, film)
    env.step(0)
    env.step(0)
    env.reset()
    assert film.resets == 2
    assert [1, 2, 0] == types_of(env, 3)


def test_reset_after_seeding_restarts_the_limit():
    film = Film(LONG_GAME, LIVES_GAME)
    env = limited(9, film)
    for _ in range(4):
        env.step(0)
    env.seed(1)
    time_step = env.reset()
    assert film.resets == 2
    assert time_step.observation == 0
    assert [1, 1, 2] == types_of(env, 3)


def test_repr_shows_the_limit():
    assert repr(AtariTimeLimit(AtariPreprocessing(Arcade()), 5)).endswith(
        "screen_size=84), duration=5)"
    )


@pytest.mark.parametrize("duration", [0, -1, 2.5, None])
def test_a_limit_must_be_a_positive_integer(message_of, duration):
    env = AtariPreprocessing(Arcade())
    assert (
        f"duration must be an integer of at least 1, got {duration}."
    ) == message_of(ValueError, lambda: AtariTimeLimit(env, duration))


@pytest.mark.parametrize("rows", [1, 2])
def test_a_game_that_ends_at_the_limit_keeps_both_flags(rows):
    ends = Film(range(6))
    env = limited(5, *[ends, Film(LONG_GAME)][:rows])
    env.reset()
    types = types_of(env, 5)[-1]
    info = env.get_info()
    infos = info if isinstance(info, list) else [info]
    flags = [
        pair
        for info in infos
        for pair in np.reshape([info["terminated"], info["truncated"]], (2, -1)).T
    ]
    assert ([2, 2] if rows == 2 else 2) == types
    assert [[True, True], [False, True]][:rows] == np.array(flags).tolist()


REFUSED = {
    "an environment without pictures": (
        ValueError,
        lambda: AtariPreprocessing(CountingEnv()),
        "AtariPreprocessing needs a game that shows a picture, and CountingEnv shows "
        "something else.\n\n"
        "  expected   uint8 picture of shape (height, width, 3) or (height, width)\n"
        f"  got        {CountingEnv().observation_spec()!r}",
    ),
    "a batch that cannot hold rows": (
        ValueError,
        lambda: AtariPreprocessing(MovesTogether(batch_size=2)),
        "AtariPreprocessing cannot wrap MovesTogether(batch_size=2): its rows end one "
        "by one, and it cannot leave rows where they are while others step. Wrap the "
        "single environments before they become a batch, or override "
        "_step_rows(action, stepping, beginning) in MovesTogether.",
    ),
    "lives are a function": (
        TypeError,
        lambda: AtariPreprocessing(Film([1]), lives=3),
        "lives must be a function of a time step and its info, not 3 of type int.",
    ),
    "pictures without channels are not stacked by the name of tf agents": (
        ValueError,
        lambda: FrameStack4(Catch()),
        "FrameStack4 stacks pictures, and the observation of Catch is not one.\n\n"
        "  expected   pictures of shape (height, width, channels)\n"
        "  got        BoundedArraySpec(shape=(10, 5), dtype=float32, minimum=0.0, "
        "maximum=1.0, name='board')\n\n"
        "FrameStack stacks observations of any shape.",
    ),
    "lives are a function of lives": (
        TypeError,
        lambda: LivesLookup(Catch(), "lives"),
        "lives must be a function of a time step and its info, not the string 'lives'.",
    ),
    "an action that does not exist": (
        ValueError,
        lambda: NoopReset(Arcade(), 5, 7),
        "NoopReset was given a noop_action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=3)\n"
        "  got        array of shape (), dtype int64, values 7 … 7\n\n"
        "The value 7 is above the maximum 3.\n"
        "It must be the no-op action of one row.",
    ),
    "an action of another structure": (
        ValueError,
        lambda: NoopReset(Drive()),
        "NoopReset was given a noop_action that does not fit its spec.\n\n"
        "  expected   the structure {'gear': *, 'wheel': *}\n"
        "  got        0 of type int\n\n"
        "The value is a single int; a dictionary is expected.\n"
        "It must be the no-op action of one row.",
    ),
    "an action that would lose something": (
        ValueError,
        lambda: FireOnReset(Arcade(), 1.5),
        "FireOnReset was given a fire_action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=3)\n"
        "  got        array of shape (), dtype float64, values 1.5 … 1.5\n\n"
        "dtype is float64; the spec says int64. If that is meant, add "
        ".astype(np.int64).\n"
        "It must be the action with which one row presses fire.",
    ),
    "another button that does not exist": (
        ValueError,
        lambda: FireOnReset(CartPole()),
        "FireOnReset was given a next_action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1)\n"
        "  got        array of shape (), dtype int64, values 2 … 2\n\n"
        "The value 2 is above the maximum 1.\n"
        "With next_action=None, only fire is pressed.",
    ),
    "a boolean is no button": (
        ValueError,
        lambda: FireOnReset(Film(LONG), True),
        "FireOnReset was given a fire_action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=3)\n"
        "  got        array of shape (), dtype bool, values True … True\n\n"
        "dtype is bool; the spec says int64. If that is meant, add "
        ".astype(np.int64).\nIt must be the action with which one row presses fire.",
    ),
    "an environment that does not know when a game is over": (
        ValueError,
        lambda: AtariTimeLimit(Arcade(), 5),
        "AtariTimeLimit needs an environment with an attribute game_over, which tells "
        "the end of a game from that of a life, and Arcade has none. Put it around "
        "AtariPreprocessing, or use TimeLimit.",
    ),
}


@pytest.mark.parametrize(("error", "call", "message"), REFUSED.values(), ids=REFUSED)
def test_environments_that_are_no_games_are_refused(error, call, message, message_of):
    assert message == message_of(error, call)
