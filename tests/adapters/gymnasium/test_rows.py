"""Attributes and methods of the environments in a batch, wherever these are."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from envkit import BatchedPyEnvironment, ParallelPyEnvironment
from envkit.adapters import GymnasiumWrapper
from envkit.adapters.gymnasium.rows import (
    blocks_of,
    call_rows,
    get_rows,
    set_rows,
    values_by_row,
)
from envkit.envs import CartPole
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit


class Named(CountingEnv):
    """Has a name, and says it."""

    def __init__(self, name="Ada"):
        super().__init__()
        self.name = name

    def greet(self, greeting="Hello"):
        return f"{greeting}, {self.name}"


class NamedBatch(CartPole):
    """Has one name for all rows."""

    name = "Charles"

    def greet(self, greeting="Hello"):
        return f"{greeting}, {self.name}"


def named(*names):
    return [lambda name=name: Named(name) for name in names]


def batch(*names):
    return BatchedPyEnvironment([make() for make in named(*names)])


def pool(*names):
    return ParallelPyEnvironment(named(*names), backend="inline")


def pool_with_batch():
    makers = [lambda: NamedBatch(batch_size=2), lambda: NamedBatch(batch_size=1)]
    return ParallelPyEnvironment(makers, backend="inline")


@pytest.mark.parametrize("make", [batch, pool])
def test_attributes_and_methods_are_called_in_every_environment(make):
    with make("Ada", "Blaise") as env:
        assert ("Ada", "Blaise") == get_rows(env, "name") == call_rows(env, "name")
        assert ("Hello, Ada", "Hello, Blaise") == call_rows(env, "greet")
        assert ("Oh, Ada", "Oh, Blaise") == call_rows(env, "greet", ("Oh",))
        assert ("Oh, Ada", "Oh, Blaise") == call_rows(
            env, "greet", (), {"greeting": "Oh"}
        )


def test_a_natively_batched_environment_answers_for_all_rows():
    env = NamedBatch(batch_size=3)
    assert ("Charles",) * 3 == get_rows(env, "name")
    assert ("Hello, Charles",) * 3 == call_rows(env, "greet")


def test_a_batch_in_a_worker_answers_for_its_rows():
    with pool_with_batch() as env:
        assert [range(2), range(2, 3)] == blocks_of(env)
        assert (2, 2, 1) == get_rows(env, "batch_size")


@pytest.mark.parametrize("make", [batch, pool])
def test_a_missing_attribute_raises_attribute_error(make):
    with make("Ada") as env, pytest.raises(AttributeError):
        get_rows(env, "age")


def test_an_error_in_a_method_is_raised():
    with pool("Ada") as env, pytest.raises(TypeError, match="unexpected keyword"):
        call_rows(env, "greet", (), {"to": "Ada"})


@pytest.mark.parametrize("name", ["reset", "step", "close"])
def test_call_rows_refuses_to_step_or_reset(name, message_of):
    assert (
        f"call({name!r}) would move environments behind the batch's back. Use "
        f"{name}() itself."
    ) == message_of(ValueError, lambda: call_rows(batch("Ada"), name))


@pytest.mark.parametrize("make", [batch, pool])
def test_an_attribute_is_set_in_each_environment(make):
    with make("Ada", "Blaise") as env:
        set_rows(env, "name", ["Charles", "Dorothy"])
        assert ("Charles", "Dorothy") == get_rows(env, "name")
        set_rows(env, "name", "Emmy")
        assert ("Emmy", "Emmy") == get_rows(env, "name")


def test_an_attribute_is_set_in_its_layer():
    inner, game = Named(), GymnasiumWrapper(gymnasium.make("CartPole-v1"))
    env = BatchedPyEnvironment([TimeLimit(inner, 5)])
    set_rows(env, "name", "Blaise")
    set_rows(env, "age", 3)
    assert ("Blaise", False) == (inner.name, hasattr(inner, "age"))
    assert 3 == env.envs[0].age
    set_rows(BatchedPyEnvironment([game]), "gravity", 2.5)
    assert 2.5 == game.gym.unwrapped.gravity


def test_a_natively_batched_environment_has_one_value(message_of):
    env = NamedBatch(batch_size=2)
    set_rows(env, "name", ["Ada"] * 2)
    assert "Ada" == env.name
    assert (
        "Rows 0 to 1 are one object, which cannot have several values of 'name'. Pass "
        "one value for all of them."
    ) == message_of(ValueError, lambda: set_rows(env, "name", ["Ada", "Blaise"]))


def test_values_are_given_for_each_row(message_of):
    assert [7, 7] == values_by_row(7, 2)
    assert (7, 8) == values_by_row((7, 8), 2)
    assert (
        "3 values for 2 environments. Pass a list with one for each, or a single value "
        "for all."
    ) == message_of(ValueError, lambda: values_by_row([1, 2, 3], 2))
    array = np.zeros(3)
    assert array is values_by_row(array, 2)[1]
