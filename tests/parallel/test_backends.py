"""Every backend keeps the contract, as far as it claims to."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import envkit
from envkit.distributed.links import linked
from envkit.parallel.backends.inline import InlineBackend
from envkit.parallel.backends.process import ProcessBackend
from envkit.parallel.backends.thread import ThreadBackend
from tests.parallel import pipe_backend
from tests.parallel.contract.check_backend import check_backend
from tests.parallel.fake_backend import FakeBackend
from tools.figures import Sources

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
    "of another package": (pipe_backend.PipeBackend, set()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_keeps_the_contract(name):
    make_backend, may_skip = BACKENDS[name]
    report = check_backend(make_backend)
    assert may_skip == report.skipped.keys()


def test_a_third_party_backend_needs_only_the_documented_api():
    tree = ast.parse(Path(pipe_backend.__file__).read_text("utf-8"))
    taken = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("envkit.")
        for alias in node.names
    }
    described = Sources(Path(envkit.__file__).parents[1]).public_names()
    assert "Inbox" in taken
    assert set() == taken - described
