"""Attributes of environments in workers: read, and set where they are."""

from __future__ import annotations

import functools
import threading

import pytest

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
)
from envkit.envs import CartPole
from envkit.errors import ClosedError, EnvironmentRaised
from envkit.testing import CountingEnv
from envkit.wrappers import PyEnvironmentBaseWrapper, TimeLimit
from tests.parallel.streams import pool_of


class Levelled(CountingEnv):
    """Shows its level in the info."""

    def __init__(self, level=1):
        super().__init__()
        self.level = level

    @property
    def fixed(self):
        return "fixed"

    def get_info(self):
        return {"level": self.level}


class Tinted(PyEnvironmentBaseWrapper):
    """A wrapper with an attribute of its own."""

    tint = "red"


class Adapting(CountingEnv):
    """Reads what it has not from an object that is hidden inside."""

    def __init__(self):
        super().__init__()
        self._game = type("Game", (), {"gravity": 9.8})()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._game, name)


def wrapped(level=1):
    return TimeLimit(Tinted(Levelled(level)), 5)


POOLS = [ParallelPyEnvironment, AsyncParallelPyEnvironment]


@pytest.mark.parametrize("kind", POOLS)
def test_set_attr_sets_an_attribute_in_the_workers(backend, kind):
    with pool_of([Levelled] * 4, backend, kind=kind, num_workers=2) as env:
        env.set_attr("level", 3)
        env.set_attr("level", 7, env_ids=[3, 1])
        assert [3, 7, 3, 7] == env.access("level")
        assert [{"level": level} for level in (3, 7, 3, 7)] == env.call("get_info")


def test_a_handle_sets_an_attribute_in_its_environment(backend):
    with pool_of([Levelled] * 3, backend, num_workers=2) as env:
        env.envs[0].level = 3
        env._envs[2].level = 5
        env.envs[1].brand_new = [1, 2]

        assert [3, 1, 5] == env.access("level")
        assert [3, 5] == [env.envs[row].level for row in (0, 2)]
        assert [1, 2] == env.envs[1].brand_new


def test_an_attribute_is_set_on_the_object_that_has_it(backend):
    with pool_of([wrapped] * 2, backend, num_workers=1) as env:
        env.set_attr("level", 3)
        env.set_attr("tint", "blue", env_ids=[1])
        assert [{"level": 3}] * 2 == env.get_infos()
        assert ["red", "blue"] == env.access("tint")
        assert [True, True] == env.env_is_wrapped(Tinted)


def test_a_new_attribute_is_set_on_the_outermost_wrapper():
    inner = Levelled()
    env = BatchedPyEnvironment([TimeLimit(inner, 5)])

    env.set_attr("age", 3)

    assert (3, False) == (env.envs[0].age, hasattr(inner, "age"))


def test_a_batch_in_this_process_sets_attributes_alike():
    env = BatchedPyEnvironment([Levelled(), wrapped(), wrapped()])

    env.set_attr("level", 3)
    env.set_attr("level", 5, env_ids=[2])

    assert [3, 3, 5] == [one.level for one in env.envs]
    assert 5 == env.envs[2].unwrapped.level


def test_a_wrapper_around_a_batch_or_pool_passes_attributes_on():
    for batch in (
        BatchedPyEnvironment([Levelled(), Levelled()]),
        ParallelPyEnvironment([Levelled] * 2, backend="inline"),
    ):
        with TimeLimit(batch, 5) as env:
            env.set_attr("level", 4, env_ids=[1])
            assert [1, 4] == [one.level for one in env.envs]


def test_the_rows_of_a_batch_in_a_worker_are_set_together():
    def two():
        return BatchedPyEnvironment([Levelled(), Levelled()])

    with ParallelPyEnvironment([two, Levelled], backend="inline") as env:
        env.set_attr("level", 6)
        rows, single = env.get_infos([0, 1])

        assert ([6, 6], 6) == (rows["level"].tolist(), single["level"])


def test_a_batch_that_is_one_object_has_one_value():
    maker = functools.partial(CartPole, batch_size=2)
    with ParallelPyEnvironment([maker, maker], backend="inline") as env:
        env.envs[1].title = "slow"
        env.set_attr("title", "fast", env_ids=[0])
        assert ["fast", "slow"] == env.access("title")


def test_a_process_environment_sets_attributes_too():
    with ProcessPyEnvironment(Levelled, backend="inline") as env:
        env.level = 3

        assert (3, {"level": 3}) == (env.level, env.get_info())

        env.set_attr("level", 4)

        assert 4 == env.access("level")


def test_a_declared_info_reflects_a_set_attribute():
    class Declaring(Levelled):
        def info_spec(self):
            return {"level": ArraySpec((), int)}

    with ParallelPyEnvironment([Declaring] * 2, backend="inline") as env:
        env.reset()
        env.envs[1].level = 8

        assert [1, 8] == env.declared_info()["level"].tolist()


@pytest.mark.parametrize("name", ["step", "rows", "call"])
def test_a_handles_own_attributes_cannot_be_set(name, message_of):
    with ParallelPyEnvironment([Levelled], backend="inline") as env:
        handle = env.envs[0]
        assert (
            f"{name!r} is an attribute of EnvHandle and cannot be set. Where the "
            f"environment has one of this name: set_attr({name!r}, value)."
        ) == message_of(AttributeError, lambda: setattr(handle, name, 3))


@pytest.mark.parametrize("private", ["_level", "__level"])
def test_private_names_cannot_be_set(private, message_of):
    expected = (
        f"{private!r} is private to the environment; only public names are forwarded."
    )
    with ParallelPyEnvironment([Levelled], backend="inline") as env:
        for call in (
            lambda: env.set_attr(private, 3),
            lambda: setattr(env.envs[0], private, 3),
        ):
            assert expected == message_of(AttributeError, call)


def test_a_failed_assignment_raises_the_environments_error(backend):
    with pool_of([Levelled] * 2, backend, num_workers=1) as env:
        with pytest.raises(AttributeError) as caught:
            env.envs[1].fixed = "loose"
        assert isinstance(caught.value, EnvironmentRaised)
        assert ((1,), "set_attr('fixed')") == (caught.value.envs, caught.value.command)
        assert ["fixed"] * 2 == env.access("fixed")


def test_read_only_attributes_cannot_be_set(message_of):
    env = BatchedPyEnvironment([Adapting()])
    assert (
        "'gravity' cannot be set: Adapting only reads it from what it adapts. Give it "
        "a method that sets it, and use call()."
    ) == message_of(AttributeError, lambda: env.set_attr("gravity", 1.6))


def test_an_unpicklable_value_is_refused_and_the_pool_continues():
    with ParallelPyEnvironment(
        [Levelled] * 2, num_workers=1, start_method="fork"
    ) as env:
        with pytest.raises(TypeError):
            env.set_attr("level", threading.Lock())
        assert [1, 1] == env.access("level")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ParallelPyEnvironment([Levelled] * 2, backend="inline"),
        lambda: BatchedPyEnvironment([Levelled(), Levelled()]),
    ],
    ids=["pool", "batch"],
)
@pytest.mark.parametrize(
    ("env_ids", "message"),
    [
        ([2], "env_ids has 2; there are 2 environments, 0 to 1."),
        ([0, 0], "env_ids names an environment twice; there are 2 environments, "),
    ],
)
def test_missing_environments_are_refused(make, env_ids, message):
    with make() as env, pytest.raises(ValueError, match=message):
        env.set_attr("level", 3, env_ids=env_ids)


def test_attributes_cannot_be_set_after_close():
    with ParallelPyEnvironment([Levelled], backend="inline") as env:
        handle = env.envs[0]
    batch = BatchedPyEnvironment([Levelled()])
    batch.close()

    with pytest.raises(ClosedError):
        env.set_attr("level", 3)
    with pytest.raises(ClosedError):
        handle.level = 3
    with pytest.raises(ClosedError):
        env.env_is_wrapped(TimeLimit)
    with pytest.raises(ClosedError):
        batch.set_attr("level", 3)
