"""Every backend keeps the contract, as far as it claims to."""

from __future__ import annotations

import functools

import pytest

from envkit.distributed.links import linked
from envkit.parallel.backends.inline import InlineBackend
from envkit.parallel.backends.process import ProcessBackend
from envkit.parallel.backends.thread import ThreadBackend
from tests.parallel.contract.check_backend import check_backend
from tests.parallel.fake_backend import FakeBackend

CANNOT_KILL = {
    "failed_replacement",
    "kill_at_once",
    "kill_busy",
    "kill_idle",
    "kill_starting",
}
NO_PROCESSES = {"built_apart", "committed", "death"}
NOT_ASIDE = {"each_row", "ghosts"}

# What each cannot be asked: whatever else it skips, it fails to do.
BACKENDS = {
    "inline": (InlineBackend, CANNOT_KILL | NO_PROCESSES | NOT_ASIDE),
    "thread": (ThreadBackend, CANNOT_KILL | NO_PROCESSES),
    "fake": (FakeBackend, NO_PROCESSES | NOT_ASIDE | {"kill_busy"}),
    "process, spawn": (functools.partial(ProcessBackend, "spawn"), set()),
    "process, forkserver": (functools.partial(ProcessBackend, "forkserver"), set()),
    "process, fork": (functools.partial(ProcessBackend, "fork"), set()),
    "linked": (functools.partial(linked, ["envkit worker {address}"] * 3), set()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_keeps_the_contract(name):
    make_backend, may_skip = BACKENDS[name]
    report = check_backend(make_backend)
    assert may_skip == report.skipped.keys()
