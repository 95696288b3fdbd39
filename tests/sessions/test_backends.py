"""Sessions on every backend; those on Ray are in tests/distributed."""

from __future__ import annotations

import contextlib
import functools
import sys

import pytest

from envkit.distributed.links import linked
from tests.remote.serving import served
from tests.sessions.environments import Owned
from tests.sessions.playing import group_of_seven, kill_one, seven_alone
from tests.sessions.running import run

OWNED = "tests.sessions.environments:Owned"


def linked_here():
    if sys.platform != "linux":
        pytest.skip("as worker processes")
    return contextlib.nullcontext(linked(["envkit worker {address}"] * 2))


@contextlib.contextmanager
def at_a_server():
    with served("Catch", OWNED) as server:
        yield server.address


HERE = {
    name: functools.partial(contextlib.nullcontext, name)
    for name in ("inline", "thread", "process")
}
ELSEWHERE = {"linked": linked_here, "tcp": at_a_server}


@pytest.mark.parametrize("name", [*HERE, *ELSEWHERE])
def test_a_group_of_one_seed_plays_the_same_turns_on_every_backend(name):
    with {**HERE, **ELSEWHERE}[name]() as backend:
        assert [seven_alone()] * 4 == run(group_of_seven(backend))


@pytest.mark.parametrize("name", ["process", *ELSEWHERE])
def test_a_killed_environment_ends_its_own_session_only(name):
    with {**HERE, **ELSEWHERE}[name]() as backend:
        owned = OWNED if name == "tcp" else Owned
        dies, other, again = run(kill_one(owned, backend))
    assert dies in ("crashed", "link_lost")
    assert [("terminated", 6.0)] * 2 == [other, again]
