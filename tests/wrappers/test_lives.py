from __future__ import annotations

import numpy as np
import pytest

from envkit import BatchedPyEnvironment
from envkit.envs import Catch
from envkit.testing import CountingEnv
from envkit.wrappers.atari.lives import LivesLookup
from tests.wrappers.games import Film


def test_lives_are_in_the_info():
    env = Film([1, 2], [5, 4])

    lives = LivesLookup(env)(env.reset())

    assert np.array_equal(np.array(5.0), lives)
    assert np.float64 == lives.dtype


def test_each_row_has_lives():
    env = BatchedPyEnvironment([Film([1, 2], [5, 4]), Film([1, 2], [3, -1])], False)
    env.reset()

    lives = LivesLookup(env)(env.step([0, 0]))

    assert [4.0, -1.0] == lives.tolist()


def test_the_info_is_not_kept():
    """Whoever counts lives may write into the array that holds them."""
    kept = np.array([3.0, 2.0])
    env = Catch(batch_size=2)

    lives = LivesLookup(env, lambda time_step, info: kept)(env.reset())

    assert not np.shares_memory(kept, lives)


NO_LIVES = (
    "get_info() of {} has no 'lives', so it is not known when one is lost. Pass "
    "lives=..., a function of a time step and its info that returns how many are left."
)


@pytest.mark.parametrize("env", [Catch(), Catch(batch_size=2), CountingEnv()])
def test_an_info_without_lives_is_an_error(message_of, env):
    message = message_of(ValueError, lambda: LivesLookup(env)(env.reset()))

    assert NO_LIVES.format(type(env).__name__) == message


def test_infos_that_do_not_stack_need_lives_in_each(message_of):
    class Silent(Film):
        def get_info(self):
            return {}

    env = BatchedPyEnvironment([Film([1]), Silent([1])], False)

    message = message_of(ValueError, lambda: LivesLookup(env)(env.reset()))

    assert NO_LIVES.format("BatchedPyEnvironment") == message


@pytest.mark.parametrize(
    ("found", "description"),
    [
        (None, "None"),
        ("many", "the string 'many'"),
        ([1, 2], "a list of 2 elements"),
        (float("nan"), "nan of type float"),
    ],
)
def test_lives_are_a_number(message_of, found, description):
    env = Catch()
    lookup = LivesLookup(env, lambda time_step, info: found)

    message = message_of(ValueError, lambda: lookup(env.reset()))

    assert f"The lives of Catch are {description}; they must be a number." == message


def test_lives_of_a_batch_are_a_number_for_each_row(message_of):
    env = Catch(batch_size=3)
    lookup = LivesLookup(env, lambda time_step, info: 3)

    message = message_of(ValueError, lambda: lookup(env.reset()))

    assert message == (
        "The lives of Catch are 3 of type int; they must be 3 numbers, one for each "
        "row."
    )


def test_lives_are_a_function(message_of):
    message = message_of(TypeError, lambda: LivesLookup(Catch(), "lives"))

    assert message == (
        "lives must be a function of a time step and its info, not the string 'lives'."
    )
