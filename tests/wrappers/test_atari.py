from __future__ import annotations

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec
from envkit.envs import Catch, GridWorld
from envkit.parallel import ParallelPyEnvironment
from envkit.seeding import seed_per_row
from envkit.testing import CountingEnv, check_environment
from envkit.testing.contract.recording import first_difference, snapshot
from envkit.time_step import StepType
from envkit.wrappers.atari.preprocessing import AtariPreprocessing, FrameStack4
from envkit.wrappers.limits import TimeLimit
from envkit.wrappers.pictures.arithmetic import grayscale, resize
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


def test_the_end_of_a_game_is_passed_through():
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


def test_the_action_is_given_for_so_many_frames():
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


def test_a_single_frame_is_seen_as_it_is():
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


def test_the_discount_is_that_of_the_last_frame():
    env = AtariPreprocessing(Film([1] * 7, truncated=True))
    env.reset()

    discounts = [float(env.step(0).discount) for _ in range(2)]

    assert discounts == pytest.approx([0.9, 0.9])


def test_the_step_after_an_episode_is_no_skip():
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


def test_bounds_of_rewards_are_those_of_the_sum():
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


def test_the_loss_of_a_life_ends_an_episode():
    env, _ = with_lives()
    env.reset()

    first, second = env.step(0), env.step(0)

    assert (MID, LAST) == (first.step_type, second.step_type)
    assert (0.0, 2.0) == (second.discount, second.reward)
    assert not env.game_over


def test_the_game_goes_on_with_the_next_life():
    env, film = with_lives()

    steps = [env.step(0) for _ in range(12)]

    types = [int(step.step_type) for step in steps]
    assert [0, 1, 2, 0, 1, 1, 2, 0, 1, 1, 2, 0] == types
    assert [0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0] == [int(step.reward) for step in steps]
    seen = [brightness(step) for step in steps]
    assert [90, 80, 70, 70, 60, 50, 40, 40, 30, 20, 10, 90] == seen
    assert film.resets == 2


def test_the_next_life_begins_with_discount_1():
    env, _ = with_lives()
    for _ in range(3):
        env.step(0)

    time_step = env.step(0)

    assert (FIRST, 1.0, 0.0) == (
        time_step.step_type,
        time_step.discount,
        time_step.reward,
    )


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


def test_the_end_of_the_game_is_told_from_that_of_a_life():
    env, _ = with_lives()

    over = []
    for _ in range(12):
        env.step(0)
        over.append(env.game_over)

    assert [False] * 10 + [True, False] == over


def test_a_life_that_is_lost_with_the_game_is_a_termination():
    film = Film([3, 2, 1], [2, 2, 1], truncated=True)
    env = AtariPreprocessing(film, 1, terminal_on_life_loss=True)
    env.reset()
    env.step(0)

    time_step = env.step(0)

    assert (LAST, 0.0) == (time_step.step_type, time_step.discount)
    assert env.game_over
    assert env.step(0).is_first()
    assert film.resets == 2


def test_fewer_lives_at_the_beginning_of_a_game_are_no_loss():
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


def test_the_picture_of_the_next_life_is_nobody_elses():
    env, _ = with_lives()
    for _ in range(3):
        last = env.step(0)
    last.observation[...] = 0

    first = env.step(0)

    assert brightness(first) == 70


def test_lives_may_be_counted_otherwise():
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


def test_lives_may_be_seen_in_the_time_step_alone():
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


def test_an_environment_that_does_not_begin_episodes_is_helped():
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


def test_each_row_stops_for_itself():
    films = [Film([9, 8, 7]), Film([6, 5, 4, 3, 2, 1]), Film([5, 4])]
    env = AtariPreprocessing(batch_of(*films), screen_size=1)
    env.reset()

    time_step = env.step([1, 2, 3])

    assert [2, 1, 2] == time_step.step_type.tolist()
    assert [3.0, 10.0, 1.0] == time_step.reward.tolist()
    assert [7, 3, 4] == time_step.observation.reshape(-1).tolist()
    assert [[1] * 2, [2] * 4, [3]] == [film.actions for film in films]


def test_each_row_loses_lives_for_itself():
    films = [Film([9, 8, 7, 6, 5], [2, 1, 1, 1, 1]), Film(range(9))]
    env = AtariPreprocessing(batch_of(*films), 1, True, screen_size=1)

    steps = [env.step([0, 0]) for _ in range(4)]

    types = [step.step_type.tolist() for step in steps]
    assert [[0, 0], [2, 1], [0, 1], [1, 1]] == types
    screens = [step.observation.reshape(-1).tolist() for step in steps]
    assert [[9, 0], [8, 1], [8, 2], [7, 3]] == screens
    assert [[1, 1], [0, 1], [1, 1], [1, 1]] == [
        np.rint(step.discount).tolist() for step in steps
    ]


def test_all_rows_may_begin_the_next_life_at_once():
    env = AtariPreprocessing(
        batch_of(Film(FRAMES, LIVES), Film(FRAMES, LIVES)), 1, True
    )

    types = [env.step([0, 0]).step_type.tolist() for _ in range(4)]

    assert [[0, 0], [1, 1], [2, 2], [0, 0]] == types
    assert [False, False] == env.game_over.tolist()


def test_rows_that_are_not_asked_stay_between_lives():
    env = AtariPreprocessing(
        batch_of(Film(FRAMES, LIVES), Film(FRAMES, LIVES)), 1, True, screen_size=1
    )
    for _ in range(3):
        env.step([0, 0])

    one = env.step([0, 0], np.array([True, False]))
    both = env.step([0, 0])

    assert [0, 2] == one.step_type.tolist()
    assert [1, 0] == both.step_type.tolist()
    assert [60, 70] == both.observation.reshape(-1).tolist()


def test_a_reset_of_rows_begins_games_and_lives():
    films = [Film(FRAMES, LIVES), Film(FRAMES), Film(FRAMES)]
    env = AtariPreprocessing(batch_of(*films), 1, True, screen_size=1)
    for _ in range(3):
        env.step([0, 0, 0])

    time_step = env.reset(np.array([True, True, False]))

    assert [0, 0, 1] == time_step.step_type.tolist()
    assert [70, 90, 70] == time_step.observation.reshape(-1).tolist()
    assert [1, 2, 1] == [film.resets for film in films]


def test_a_time_limit_around_it_begins_games():
    films = [Film(FRAMES), Film(FRAMES, LIVES)]
    env = TimeLimit(AtariPreprocessing(batch_of(*films), 1, True, screen_size=1), 3)

    types = [env.step([0, 0]).step_type.tolist() for _ in range(5)]

    assert [[0, 0], [1, 1], [1, 2], [2, 0], [0, 1]] == types
    assert [2, 1] == [film.resets for film in films]


def test_game_over_is_a_copy():
    env = AtariPreprocessing(batch_of(Film([2, 1]), Film([2, 1])), 1, True)
    env.reset()
    env.step([0, 0])

    env.game_over[...] = False

    assert [True, True] == env.game_over.tolist()


VARIANTS = [
    (1, False, True),
    (4, False, False),
    (3, True, True),
    (1, True, False),
]


@pytest.mark.parametrize(("skip", "lives", "colours"), VARIANTS)
@pytest.mark.parametrize("rows", [None, 3])
def test_a_preprocessed_game_is_an_environment(skip, lives, colours, rows):
    def make():
        games = [Arcade(colours=colours) for _ in range(rows or 1)]
        env = batch_of(*games) if rows else games[0]
        return AtariPreprocessing(env, skip, lives, 7)

    check_environment(make, steps=60, require=["seed", "state", "render", "info"])


@pytest.mark.parametrize(("skip", "lives", "colours"), VARIANTS)
@pytest.mark.parametrize(
    "batch",
    [
        lambda make: batch_of(make(), make(), make()),
        lambda make: ParallelPyEnvironment([make] * 3, backend="inline"),
    ],
    ids=["batched", "pooled"],
)
def test_games_are_seen_alike_before_and_after_they_become_a_batch(
    skip, lives, colours, batch
):
    def wrapped(env):
        return FrameStack4(AtariPreprocessing(env, skip, lives, 7))

    def game():
        return Arcade(colours=colours)

    rng = np.random.default_rng(1)
    moves = rng.integers(0, 4, (80, 3))
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


def test_a_state_between_two_lives_brings_back_what_is_seen():
    env, _ = with_lives(screen_size=1)
    env = AtariPreprocessing(Arcade(), 2, True, 5)
    env.seed(1)
    time_step = env.reset()
    while not time_step.is_last() or env.game_over:
        time_step = env.step(1)
    state = env.get_state()
    expected = [snapshot(env.step(2)) for _ in range(30)]

    other = AtariPreprocessing(Arcade(), 2, True, 5)
    other.set_state(state)

    seen = [snapshot(other.step(2)) for _ in range(30)]
    pairs = zip(expected, seen, strict=True)
    assert all(first_difference(*pair) is None for pair in pairs)


def test_the_chain_is_shown():
    env = FrameStack4(AtariPreprocessing(GridWorld(), 2, True, 16))

    assert repr(env) == (
        "FrameStack4(AtariPreprocessing(GridWorld(), frame_skip=2, "
        "terminal_on_life_loss=True, screen_size=16), stack_size=4)"
    )


# Wrong arguments.


@pytest.mark.parametrize("name", ["frame_skip", "screen_size"])
@pytest.mark.parametrize("size", [0, -1, 1.5, None])
def test_sizes_are_positive_integers(message_of, name, size):
    message = message_of(
        ValueError, lambda: AtariPreprocessing(Film([1]), **{name: size})
    )

    assert f"{name} is {size}; it must be an integer of at least 1." == message


def test_an_environment_without_pictures_is_refused(message_of):
    message = message_of(ValueError, lambda: AtariPreprocessing(CountingEnv()))

    assert message == (
        "AtariPreprocessing needs a game that shows a picture, and CountingEnv shows "
        "something else.\n\n"
        "  expected   uint8 picture of shape (height, width, 3) or (height, width)\n"
        f"  got        {CountingEnv().observation_spec()!r}"
    )


def test_a_nest_is_refused(message_of):
    message = message_of(ValueError, lambda: AtariPreprocessing(Drive()))

    assert message.startswith(
        "AtariPreprocessing needs a game that shows a picture, and Drive shows "
        "something else.\n\n"
        "  expected   uint8 picture of shape (height, width, 3) or (height, width)\n"
        "  got        {'camera': BoundedArraySpec(shape=(6, 4, 3), "
    )


def test_a_batch_that_cannot_hold_rows_is_refused(message_of):
    message = message_of(
        ValueError, lambda: AtariPreprocessing(MovesTogether(batch_size=2))
    )

    assert message == (
        "AtariPreprocessing cannot wrap MovesTogether(batch_size=2): its rows end one "
        "by one, and it cannot leave rows where they are while others step. Wrap the "
        "single environments before they become a batch, or override "
        "_step_rows(action, stepping, beginning) in MovesTogether."
    )


def test_without_skipping_a_batch_need_not_hold_rows():
    env = AtariPreprocessing(MovesTogether(batch_size=2), 1)

    assert [0, 0] == env.reset().step_type.tolist()


def test_lives_are_a_function(message_of):
    message = message_of(TypeError, lambda: AtariPreprocessing(Film([1]), lives=3))

    assert message == (
        "lives must be a function of a time step and its info, not 3 of type int."
    )


def test_pictures_without_channels_are_not_stacked_by_the_name_of_tf_agents(message_of):
    message = message_of(ValueError, lambda: FrameStack4(Catch()))

    assert message == (
        "FrameStack4 stacks pictures, and the observation of Catch is none.\n\n"
        "  expected   pictures of shape (height, width, channels)\n"
        "  got        BoundedArraySpec(shape=(10, 5), dtype=float32, minimum=0.0, "
        "maximum=1.0, name='board')\n\n"
        "FrameStack stacks observations of any shape."
    )


def test_four_frames_are_put_one_after_the_other_along_the_channels():
    env = FrameStack4(AtariPreprocessing(Film([4, 3, 2, 1]), 1, screen_size=1))

    seen = [env.step(0).observation.reshape(-1).tolist() for _ in range(3)]

    assert FrameStack4.STACK_SIZE == 4
    assert [[4, 4, 4, 4], [4, 4, 4, 3], [4, 4, 3, 2]] == seen
    assert (1, 1, 4) == env.observation_spec().shape


def test_frames_begin_anew_with_each_life():
    film = Film([4, 3, 2, 1], [2, 1, 1, 1])
    env = FrameStack4(AtariPreprocessing(film, 1, True, screen_size=1))

    seen = [env.step(0).observation.reshape(-1).tolist() for _ in range(4)]

    assert [[4, 4, 4, 4], [4, 4, 4, 3], [3, 3, 3, 3], [3, 3, 3, 2]] == seen


def test_a_class_is_no_environment(message_of):
    message = message_of(TypeError, lambda: FrameStack4(GridWorld))

    assert message.startswith("FrameStack4 wraps an environment, not ")
