"""An option that pools no longer have raises one sentence, with what replaces it."""

from __future__ import annotations

import functools

import pytest

import envkit
from envkit import (
    AsyncParallelPyEnvironment,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    make,
)
from envkit.adapters import GymnasiumWrapper, vectorize
from envkit.testing import CountingEnv

MAKERS = {
    "ParallelPyEnvironment": lambda **options: ParallelPyEnvironment(
        [CountingEnv] * 2, **options
    ),
    "AsyncParallelPyEnvironment": lambda **options: AsyncParallelPyEnvironment(
        [CountingEnv] * 2, **options
    ),
    "ProcessPyEnvironment": lambda **options: ProcessPyEnvironment(
        CountingEnv, **options
    ),
    "make": lambda **options: make(CountingEnv, num_envs=2, **options),
    "vectorize": lambda **options: vectorize([CountingEnv] * 2, **options),
}
HAS_GONE = "has been removed: make the wrapper in each constructor,"
WRAPPERS = {
    ("max_episodes_per_env", 100): "RebuildAfter({make_env}, episodes=100)",
    ("standby", 1): "StandbyEnvironment({make_env})",
    ("standby_workers", True): "StandbyEnvironment({make_env}, in_workers=True)",
}
# What to write instead. Functions for `vectorize` make environments of Gymnasium's.
CALLS = {
    "ParallelPyEnvironment": "ParallelPyEnvironment([lambda: {wrapper}] * 8)",
    "AsyncParallelPyEnvironment": "AsyncParallelPyEnvironment([lambda: {wrapper}] * 8)",
    "ProcessPyEnvironment": "ProcessPyEnvironment(lambda: {wrapper})",
    "make": "ParallelPyEnvironment([lambda: {wrapper}] * 8)",
    "vectorize": "vectorize([lambda: {wrapper}] * 8)",
}
FOREIGN = {"vectorize": "lambda: GymnasiumWrapper(make_env())"}


def written(maker, option):
    """Returns the call that takes the place of one with a removed option."""
    wrapper = WRAPPERS[option].format(make_env=FOREIGN.get(maker, "make_env"))
    return CALLS[maker].format(wrapper=wrapper)


# Forked, because that is the fastest: the sentence is not about how workers start.
FORKING = {
    pool.__name__: functools.partial(pool, start_method="fork")
    for pool in (
        ParallelPyEnvironment,
        AsyncParallelPyEnvironment,
        ProcessPyEnvironment,
    )
}
FORKING["vectorize"] = functools.partial(vectorize, context="fork")


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("option", WRAPPERS, ids=str)
def test_a_removed_option_raises_a_sentence_with_its_replacement(
    maker, option, message_of
):
    name, value = option
    text = message_of(TypeError, lambda: MAKERS[maker](**{name: value}))
    assert f"{name} {HAS_GONE} {written(maker, option)}." == text


@pytest.mark.parametrize("maker", MAKERS)
def test_num_workers_auto_names_the_bench_command(maker, message_of):
    def make_pool():
        env = MAKERS[maker](num_workers="auto")
        env.start()  # Only one that is a process of its own comes here.

    assert (
        'num_workers="auto" has been removed: `envkit bench my_game.envs:make '
        "--num-envs 8` prints the fastest call, with the num_workers to write."
    ) == message_of(TypeError, make_pool)


# `make` and `ParallelPyEnvironment` suggest the same call.
@pytest.mark.parametrize("maker", [each for each in CALLS if each != "make"])
@pytest.mark.parametrize("option", WRAPPERS, ids=str)
def test_the_suggested_replacement_works(maker, option):
    names = {name: getattr(envkit, name) for name in envkit.__all__}
    names |= {**FORKING, "GymnasiumWrapper": GymnasiumWrapper}
    names["make_env"] = CountingEnv
    if maker == "vectorize":
        gymnasium = pytest.importorskip("gymnasium")
        names["make_env"] = functools.partial(gymnasium.make, "CartPole-v1")
    env = eval(written(maker, option).replace("* 8", "* 2"), names)
    try:
        if maker == "ProcessPyEnvironment":
            env.start()
        if maker == "AsyncParallelPyEnvironment":
            env.reset_async()
            assert [0, 1] == sorted(env.recv().env_ids.tolist())
        else:
            env.reset()
    finally:
        env.close()
