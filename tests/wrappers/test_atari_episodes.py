from __future__ import annotations

import numpy as np
import pytest

from envkit.envs import CartPole, Catch
from envkit.seeding import seed_per_row
from envkit.testing import check_environment
from envkit.wrappers.atari.openings import FireOnReset, NoopReset
from envkit.wrappers.atari.preprocessing import AtariPreprocessing
from tests.wrappers.environments import Drive, MovesTogether, batch_of
from tests.wrappers.games import Arcade, Film

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


def test_a_game_begins_after_some_noops():
    assert {1, 2, 3, 4, 5} == set(noops(Film(LONG), 5))


def test_noops_are_equally_likely():
    counts = np.bincount(noops(Film(LONG), 4, games=2000))

    assert counts[1:].min() > 400


def test_there_may_be_no_noops():
    assert {0} == set(noops(Film(LONG), 0, games=5))


def test_the_noop_may_be_another_action():
    film = Film(LONG)
    env = NoopReset(film, 5, 3)

    env.reset()

    assert {3} == set(film.actions)


def test_an_episode_begins_with_what_is_there_after_the_noops():
    film = Film(LONG)
    env = NoopReset(film, 5)

    time_step = env.reset()

    assert time_step.is_first()
    assert (0.0, 1.0) == (time_step.reward, time_step.discount)
    assert (time_step.observation == len(film.actions)).all()


def test_episodes_that_begin_by_themselves_begin_with_noops_too():
    film = Film(range(40))
    env = NoopReset(film, 3)
    time_step = env.reset()
    while not time_step.is_last():
        time_step = env.step(2)

    time_step = env.step(2)

    assert time_step.is_first()
    assert 1 <= len(film.actions) <= 3
    assert {0} == set(film.actions)


def test_a_game_that_ends_in_noops_is_reset_and_gets_the_rest():
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


def test_seeds_say_how_many_noops_there_are():
    film = Film(LONG)
    env = NoopReset(film, 30)
    streams = []
    for seed in (1, 2, 1):
        env.seed(seed)
        stream = []
        for _ in range(10):
            env.reset()
            stream.append(len(film.actions))
        streams.append(stream)

    assert streams[0] == streams[2] != streams[1]


def test_each_row_has_its_own_number_of_noops():
    alone = []
    for seed in seed_per_row(7, 3):
        film = Film(LONG)
        env = NoopReset(film, 20)
        env.seed(seed)
        env.reset()
        alone.append(len(film.actions))
    films = [Film(LONG) for _ in range(3)]
    env = NoopReset(batch_of(*films), 20)
    env.seed(7)

    time_step = env.reset()

    assert alone == [len(film.actions) for film in films]
    assert alone == time_step.observation[:, 0, 0].tolist()
    assert [0, 0, 0] == time_step.step_type.tolist()


def test_other_rows_wait_while_one_begins():
    films = [Film(LONG), Film(range(3))]
    env = NoopReset(batch_of(*films), 1)
    env.reset()

    steps = [env.step([2, 2]) for _ in range(3)]

    assert [[1, 2], [1, 0], [1, 2]] == [step.step_type.tolist() for step in steps]
    assert [[2, 2], [3, 1], [4, 2]] == [
        step.observation[:, 0, 0].tolist() for step in steps
    ]
    assert [[2, 2], [3, 0], [4, 2]] == [step.reward.tolist() for step in steps]


def test_a_reset_of_one_row_takes_noops_in_that_row():
    films = [Film(LONG), Film(LONG)]
    env = NoopReset(batch_of(*films), 4)
    env.reset()
    before = list(films[0].actions)

    env.reset(np.array([False, True]))

    assert before == films[0].actions
    assert films[1].resets == 2
    assert 1 <= len(films[1].actions) <= 4


def test_inside_the_preprocessing_there_are_no_noops_after_the_loss_of_a_life():
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


def test_fire_may_be_pressed_alone():
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


def test_rows_in_which_fire_ends_the_game_are_reset_alone():
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


def test_a_game_that_knows_no_fire_is_left_alone():
    film = Meaningful("NOOP", "UP", "DOWN", "LEFT")

    FireOnReset(film, next_action=9).reset()

    assert [] == film.actions


def test_a_game_that_knows_fire_gets_it():
    film = Meaningful("NOOP", "FIRE", "UP", "DOWN")

    FireOnReset(film).reset()

    assert [1, 2] == film.actions


def test_fire_goes_through_the_preprocessing():
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


@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize(
    "wrap", [lambda env: NoopReset(env, 3), FireOnReset], ids=["noop", "fire"]
)
def test_a_game_with_an_opening_is_an_environment(rows, wrap):
    def make():
        games = [Arcade() for _ in range(rows or 1)]
        return wrap(batch_of(*games) if rows else games[0])

    check_environment(make, steps=60, require=["seed", "state", "render", "info"])


def test_the_chain_is_shown():
    env = FireOnReset(NoopReset(Catch(), 5), 1, None)

    assert repr(env) == (
        "FireOnReset(NoopReset(Catch(), noop_max=5), fire_action=1, next_action=None)"
    )


@pytest.mark.parametrize("noop_max", [-1, 2.5, None])
def test_a_number_of_noops_is_no_less_than_0(message_of, noop_max):
    message = message_of(ValueError, lambda: NoopReset(Catch(), noop_max))

    assert f"noop_max is {noop_max}; it must be an integer of at least 0." == message


def test_an_action_that_does_not_exist_is_refused(message_of):
    message = message_of(ValueError, lambda: NoopReset(Arcade(), 5, 7))

    assert message == (
        "NoopReset was given a noop_action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=3)\n"
        "  got        array of shape (), dtype int64, values 7 … 7\n\n"
        "The value 7 is above the maximum 3.\n"
        "It is the action of one row that does nothing."
    )


def test_an_action_of_another_structure_is_refused(message_of):
    message = message_of(ValueError, lambda: NoopReset(Drive()))

    assert message == (
        "NoopReset was given a noop_action that does not fit its spec.\n\n"
        "  expected   the structure {'gear': *, 'wheel': *}\n"
        "  got        0 of type int\n\n"
        "The value is a single int; a dictionary is expected.\n"
        "It is the action of one row that does nothing."
    )


def test_an_action_that_would_lose_something_is_refused(message_of):
    message = message_of(ValueError, lambda: FireOnReset(Arcade(), 1.5))

    assert message == (
        "FireOnReset was given a fire_action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=3)\n"
        "  got        array of shape (), dtype float64, values 1.5 … 1.5\n\n"
        "dtype is float64; the spec says int64. If that is meant, add "
        ".astype(np.int64).\n"
        "It is the action of one row that presses fire."
    )


def test_another_button_that_does_not_exist_is_refused(message_of):
    message = message_of(ValueError, lambda: FireOnReset(CartPole()))

    assert message == (
        "FireOnReset was given a next_action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1)\n"
        "  got        array of shape (), dtype int64, values 2 … 2\n\n"
        "The value 2 is above the maximum 1.\n"
        "With next_action=None fire is pressed and nothing else."
    )


@pytest.mark.parametrize("wrapper", [NoopReset, FireOnReset])
def test_a_batch_that_cannot_hold_rows_is_refused(message_of, wrapper):
    message = message_of(ValueError, lambda: wrapper(MovesTogether(batch_size=2)))

    assert message == (
        f"{wrapper.__name__} cannot wrap MovesTogether(batch_size=2): its rows end one "
        "by one, and it cannot leave rows where they are while others step. Wrap the "
        "single environments before they become a batch, or override "
        "_step_rows(action, stepping, beginning) in MovesTogether."
    )


def test_what_is_pressed_is_told_by_copies():
    fire, following = np.array(1), np.array(2)
    env = FireOnReset(Film(LONG), fire, following)
    fire[...] = 3
    env.next_action[...] = 3

    assert (1, 2) == (env.fire_action, env.next_action)


def test_a_boolean_is_no_button(message_of):
    assert (
        "FireOnReset was given a fire_action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=3)\n"
        "  got        array of shape (), dtype bool, values True … True\n\n"
        "dtype is bool; the spec says int64. If that is meant, add "
        ".astype(np.int64).\nIt is the action of one row that presses fire."
    ) == message_of(ValueError, lambda: FireOnReset(Film(LONG), True))
