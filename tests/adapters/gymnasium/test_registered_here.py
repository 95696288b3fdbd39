"""Names that the program has registered, and that its workers do not know."""

from __future__ import annotations

import contextlib
import functools

import gymnasium
import pytest

from envkit import ParallelPyEnvironment, make, registry
from envkit.adapters.gymnasium.vectorize import vectorize
from envkit.errors import ConstructorError
from tests.adapters.gymnasium.registered_here import (
    IDS,
    NAME,
    made,
    made_by_gymnasium,
    register,
)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    register()
    yield
    for each in IDS:
        gymnasium.registry.pop(each)


def pool_of(env_constructor, **options):
    return ParallelPyEnvironment([env_constructor] * 2, num_workers=1, **options)


POOLS = {
    "an id": functools.partial(pool_of, f"gymnasium:{IDS[0]}"),
    "an id in a namespace": functools.partial(pool_of, f"gymnasium:{IDS[1]}"),
    "a version": functools.partial(pool_of, f"gymnasium:{IDS[2]}"),
    "make": functools.partial(make, f"gymnasium:{IDS[0]}", num_envs=2, num_workers=1),
    "a function": functools.partial(
        pool_of, functools.partial(made_by_gymnasium, IDS[0])
    ),
    "a vector": functools.partial(
        vectorize, [functools.partial(gymnasium.make, IDS[0])] * 2, num_workers=1
    ),
    "a name of envkit": functools.partial(pool_of, functools.partial(made, NAME)),
}


@pytest.mark.parametrize("case", POOLS)
def test_the_error_for_an_unregistered_id_names_a_working_worker_setup(case):
    with pytest.raises(ConstructorError) as caught:
        POOLS[case]()

    text = str(caught.value)
    does = (
        "envkit.register(...)."
        if case == "a name of envkit"
        else "gymnasium.register_envs(ale_py), or the same with gymnasium.register(...)"
    )
    assert (
        "\n\nA worker sees nothing of what your program has registered. If your "
        "program has registered this name, have worker_setup=... do it, too, which "
        f"runs first in each worker: worker_setup=lambda: {does}"
    ) in text

    with contextlib.closing(POOLS[case](worker_setup=register)) as env:
        env.reset()


def test_an_id_may_name_the_module_that_registers_it():
    pytest.importorskip("ale_py", reason="ale_py is not installed")
    with make("gymnasium:ale_py:ALE/Pong-v5", num_envs=2, num_workers=1) as env:
        assert env.reset().is_first().all()


@pytest.mark.parametrize("name", ["gymnasium:Nowhere-v0", "Nowhere"])
def test_without_worker_processes_the_error_does_not_mention_worker_setup(name):
    maker = functools.partial(made, name)
    with pytest.raises(ConstructorError) as caught:
        pool_of(maker, backend="inline")

    assert "Nowhere" in str(caught.value)
    assert "worker_setup" not in str(caught.value)
