"""`Choice`: another environment for each episode."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

from envkit import BatchedPyEnvironment, ParallelPyEnvironment, constructor, make
from envkit.adapters import vectorize
from envkit.envs import CartPole, Catch, Choice, GridWorld
from envkit.errors import SpecMismatchError
from envkit.testing import CountingEnv, check_environment
from envkit.wrappers import FixedLength, TimeLimit
from tests.levels import Level

LENGTHS = [functools.partial(CountingEnv, length) for length in (1, 2, 3)]
GAMES = ["CartPole", functools.partial(CartPole, max_episode_steps=4)]


def choices(env, episodes):
    seen = []
    for _ in range(episodes):
        env.reset()
        seen.append(int(env.get_info()["choice"]))
    return seen


def test_it_passes_check_environment():
    check_environment(
        functools.partial(Choice, GAMES),
        steps=60,
        require=["seed", "state", "info", "info_spec", "render", "episodes"],
    )


def test_each_episode_is_played_in_the_drawn_environment():
    env = Choice(LENGTHS, seed=3)
    lengths, numbers = [], []
    time_step = env.step(0)
    for _ in range(30):
        numbers.append(env.choice)
        steps = 0
        while not time_step.is_last():
            time_step, steps = env.step(0), steps + 1
        lengths.append(steps)
        time_step = env.step(0)
    assert [number + 1 for number in numbers] == lengths
    assert {0, 1, 2} == set(numbers)


def test_the_draws_depend_on_the_seed_alone():
    one, other = Choice(GAMES, seed=5), Choice(GAMES)
    other.reset()
    other.seed(5)
    assert choices(one, 20) == choices(other, 20)
    assert choices(Choice(GAMES, seed=6), 20) != choices(Choice(GAMES, seed=5), 20)


def test_environments_have_their_own_streams():
    balls = [
        [env.reset().observation.tolist() for _ in range(8)]
        for env in Choice(["Catch"] * 2, seed=5).envs
    ]
    assert balls[0] != balls[1]


def test_weights_set_the_probabilities():
    drawn = choices(Choice(LENGTHS, weights=[0, 1, 3], seed=1), 400)
    assert 0 == drawn.count(0)
    assert 260 < drawn.count(2) < 340


def test_a_state_restores_everything():
    env = Choice(GAMES, seed=3)
    for _ in range(5):
        env.step(0)
    token = pickle.loads(pickle.dumps(env.get_state()))
    expected = [env.step(1).observation.tolist() for _ in range(40)]
    expected += choices(env, 9)
    env.set_state(token)
    found = [env.step(1).observation.tolist() for _ in range(40)]
    assert expected == found + choices(env, 9)


@pytest.mark.parametrize(
    "backend", ["inline", "thread", pytest.param("process", marks=pytest.mark.slow)]
)
def test_rows_of_a_pool_draw_independently(backend):
    makers = [functools.partial(Choice, GAMES)] * 3
    expected = BatchedPyEnvironment([maker() for maker in makers])
    with ParallelPyEnvironment(makers, backend=backend) as env:
        for batch in (expected, env):
            batch.seen = [batch.reset(seed=7).observation]
            batch.seen += [batch.step([0, 1, 0]).observation for _ in range(30)]

        np.testing.assert_array_equal(expected.seen, env.seen)
        given = env.declared_info()["choice"]
        assert expected.get_info()["choice"].tolist() == given.tolist()


def test_make_constructor_and_vectorize_accept_it():
    assert 2 == len(make("envkit.envs:Choice", envs=["Catch", "Catch"]).envs)
    recipe = constructor(Choice, envs=GAMES, seed=1)
    with pickle.loads(pickle.dumps(recipe))() as env:
        assert env.reset().is_first()
    envs = vectorize([functools.partial(Choice, GAMES)] * 2, backend="inline")
    _, infos = envs.reset(seed=1)
    assert (2,) == infos["choice"].shape
    envs.close()


def test_reset_options_reach_the_drawn_environment():
    env = Choice([Level, Level], seed=1)
    assert 3 == env.reset(options={"level": 3}).observation[0]
    assert -1 == env.reset().observation[0]
    with pytest.raises(NotImplementedError, match="CountingEnv takes no reset options"):
        Choice(LENGTHS).reset(options={"level": 3})


def test_differing_specs_are_refused(message_of):
    told = message_of(SpecMismatchError, lambda: Choice(["Catch", "GridWorld"]))
    assert (
        "env 0 and env 1 have different observation specs, so they cannot take turns "
        "in one Choice."
    ) == told.partition("\n")[0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: Choice([]),
            ValueError,
            "envs must have at least one environment to choose from, got none.",
        ),
        (
            lambda: Choice("Catch"),
            TypeError,
            'envs must be a list of names or constructors, such as ["Catch", '
            "my_game.Level], got the string 'Catch'.",
        ),
        (
            lambda: Choice([functools.partial(Catch, batch_size=2)]),
            ValueError,
            "envs[0] makes a Catch that is a batch. A Choice must be of single "
            "environments: make a batch of choices.",
        ),
        (
            lambda: Choice([lambda: FixedLength(CountingEnv(), 5)]),
            ValueError,
            "envs[0] makes a FixedLength that repeats a LAST to pad its episodes, and "
            "another environment would begin there. Wrap the Choice instead.",
        ),
        *(
            (
                functools.partial(Choice, GAMES, weights),
                ValueError,
                "weights must have a number of at least 0 for each of 2 environments, "
                f"and one above 0, got {told}.",
            )
            for weights, told in [
                ([1], "a list of 1 element"),
                ([0, 0], "a list of 2 elements"),
                ([1, -1], "a list of 2 elements"),
                ([1, np.nan], "a list of 2 elements"),
            ]
        ),
    ],
)
def test_invalid_arguments_are_refused(message_of, make, error, message):
    assert message == message_of(error, make)


def test_a_failing_constructor_closes_the_environments_made_before():
    closed = []

    class Noted(CountingEnv):
        def close(self):
            closed.append(self)

    def broken():
        raise RuntimeError("no game")

    with pytest.raises(RuntimeError, match="no game"):
        Choice([Noted, broken])
    assert 1 == len(closed)


def test_it_can_be_wrapped():
    env = TimeLimit(Choice(["GridWorld", GridWorld], seed=2), 3)
    assert [0, 1, 1, 2, 0] == [int(env.step(0).step_type) for _ in range(5)]
