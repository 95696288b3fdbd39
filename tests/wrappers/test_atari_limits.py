from __future__ import annotations

import numpy as np
import pytest

from envkit.testing import check_environment
from envkit.wrappers.atari.preprocessing import AtariPreprocessing
from envkit.wrappers.atari.time_limit import AtariTimeLimit
from tests.wrappers.environments import batch_of
from tests.wrappers.games import Arcade, Film

LONG = range(50)
# A life is lost with every third step.
LIVES = [20 - frame // 3 for frame in LONG]


def limited(duration, *films):
    env = batch_of(*films) if len(films) > 1 else films[0]
    return AtariTimeLimit(AtariPreprocessing(env, 1, True, 1), duration)


def types_of(env, steps):
    action = [0] * env.batch_size if env.batched else 0
    return [np.asarray(env.step(action).step_type).tolist() for _ in range(steps)]


# What TF-Agents' tests of its own AtariTimeLimit say.


def test_a_game_is_over_after_the_limit():
    env = limited(5, Film(LONG))
    env.reset()

    over = []
    for _ in range(6):
        env.step(0)
        over.append(env.game_over)

    assert [False] * 4 + [True, False] == over


def test_the_step_after_the_limit_resets_the_game():
    film = Film(LONG)
    env = limited(5, film)

    types = types_of(env, 8)

    assert [0, 1, 1, 1, 1, 2, 0, 1] == types
    assert film.resets == 2


# What it does beyond that.


def test_the_limit_counts_over_lives():
    film = Film(LONG, LIVES)
    env = limited(8, film)

    types = types_of(env, 13)

    assert [0, 1, 1, 2, 0, 1, 1, 2, 0, 1, 2, 0, 1] == types
    assert film.resets == 2


def test_the_last_step_keeps_its_discount():
    env = limited(2, Film(LONG))
    env.reset()
    env.step(0)

    assert env.step(0).discount == pytest.approx(0.9)


def test_a_life_that_is_lost_at_the_limit_ends_the_game():
    film = Film(LONG, LIVES)
    env = limited(6, film)

    steps = [env.step(0) for _ in range(9)]

    assert [0, 1, 1, 2, 0, 1, 1, 2, 0] == [int(step.step_type) for step in steps]
    assert steps[7].discount == 0
    assert steps[8].observation == 0
    assert env.step(0).is_mid()


def test_a_game_that_ends_earlier_is_left_alone():
    film = Film(range(3))
    env = limited(5, film)

    assert [0, 1, 2, 0, 1, 2, 0, 1] == types_of(env, 8)
    assert film.resets == 3


def test_reset_after_the_loss_of_a_life_goes_on_counting():
    film = Film(LONG, LIVES)
    env = limited(5, film)
    for _ in range(4):
        env.step(0)

    env.reset()

    assert film.resets == 1
    assert [1, 2] == types_of(env, 2)
    assert env.game_over


def test_reset_at_another_time_begins_to_count():
    film = Film(LONG, LIVES)
    env = limited(2, film)
    env.step(0)
    env.step(0)

    env.reset()

    assert film.resets == 2
    assert [1, 2, 0] == types_of(env, 3)


def test_reset_after_seeding_begins_a_game():
    film = Film(LONG, LIVES)
    env = limited(9, film)
    for _ in range(4):
        env.step(0)

    env.seed(1)
    time_step = env.reset()

    assert film.resets == 2
    assert time_step.observation == 0
    assert [1, 1, 2] == types_of(env, 3)


def test_each_row_counts_for_itself():
    films = [Film(LONG), Film(range(3)), Film(LONG, LIVES)]
    env = limited(4, *films)

    types = types_of(env, 8)

    assert [0, 1, 1, 1, 2, 0, 1, 1] == [row[0] for row in types]
    assert [0, 1, 2, 0, 1, 2, 0, 1] == [row[1] for row in types]
    assert [0, 1, 1, 2, 0, 2, 0, 1] == [row[2] for row in types]
    assert [2, 3, 2] == [film.resets for film in films]


def test_rows_that_are_not_asked_are_not_counted():
    env = limited(3, Film(LONG), Film(LONG))
    env.reset()

    for _ in range(3):
        time_step = env.step([0, 0], np.array([True, False]))

    assert [2, 0] == time_step.step_type.tolist()
    assert [True, False] == env.game_over.tolist()


@pytest.mark.parametrize("rows", [None, 3])
def test_a_limited_game_is_an_environment(rows):
    def make():
        games = [Arcade() for _ in range(rows or 1)]
        env = batch_of(*games) if rows else games[0]
        return AtariTimeLimit(AtariPreprocessing(env, 2, True, 5), 6)

    check_environment(make, steps=60, require=["seed", "state", "render", "info"])


def test_the_chain_is_shown():
    assert repr(AtariTimeLimit(AtariPreprocessing(Arcade()), 5)).endswith(
        "screen_size=84), duration=5)"
    )


def test_an_environment_that_does_not_know_when_a_game_is_over_is_refused(message_of):
    message = message_of(ValueError, lambda: AtariTimeLimit(Arcade(), 5))

    assert message == (
        "AtariTimeLimit needs an environment with an attribute game_over, which tells "
        "the end of a game from that of a life, and Arcade has none. Put it around "
        "AtariPreprocessing, or use TimeLimit."
    )


@pytest.mark.parametrize("duration", [0, -1, 2.5, None])
def test_a_limit_is_a_positive_integer(message_of, duration):
    env = AtariPreprocessing(Arcade())

    message = message_of(ValueError, lambda: AtariTimeLimit(env, duration))

    assert f"duration is {duration}; it must be an integer of at least 1." == message


@pytest.mark.parametrize("rows", [1, 2])
def test_a_game_that_ends_at_the_limit_keeps_both_flags(rows):
    ends = Film(range(6))
    env = limited(5, *[ends, Film(LONG)][:rows])
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
