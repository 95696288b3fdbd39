"""What a pool tells of itself to those who look on from another process."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time

import numpy as np
import pytest

from envkit import constructor
from envkit.parallel import ParallelPyEnvironment
from envkit.parallel.durability.published import (
    FORMAT,
    PublishedMemory,
    PublishedPool,
)
from envkit.testing import CountingEnv
from envkit.wrappers.standby import StandbyEnvironment
from tests import residue

pytestmark = pytest.mark.skipif(
    not residue.ON_LINUX, reason="memory without a name is no memfd here"
)


# Where the counters of a small pool may be.
PLACES = {
    "modes": 0,
    "sequence": 64,
    "command": 80,
    "answered": 96,
    "meters": 128,
    "worker_facts": 256,
}


def memory_of_pools():
    """Returns, by its inode, each memory of a pool that this process has open."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{number}"
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(path).startswith("/memfd:envkit "):
                found[os.stat(path).st_ino] = path
    return found


@pytest.fixture
def memories():
    """Opens the memory of the pools that the test has made."""
    # An exception that was caught keeps the memory of a pool that ended with it.
    earlier = memory_of_pools().keys()
    with contextlib.ExitStack() as opened:

        def find():
            found = []
            for inode, path in memory_of_pools().items():
                if inode not in earlier:
                    fd = os.open(path, os.O_RDONLY)
                    opened.callback(os.close, fd)
                    found.append((fd, PublishedPool.read(fd)))
            return [(fd, plate) for fd, plate in found if plate is not None]

        yield find


@pytest.fixture
def plates(memories):
    """Reads the plates of the pools that the test has made."""
    return lambda: [plate for _, plate in memories()]


def test_a_pool_publishes_what_it_is(plates):
    recipe = constructor("CartPole", batch_size=3)
    before = time.time()
    with ParallelPyEnvironment([recipe] * 2, num_workers=2, start_method="fork"):
        (plate,) = plates()

    assert ("ParallelPyEnvironment", os.getpid(), ["CartPole-v1"], 2, 6) == (
        plate.kind,
        plate.pid,
        plate.targets,
        plate.envs,
        plate.rows,
    )
    assert ([[0, 3], [3, 6]], [0, 3]) == (plate.blocks, plate.first_rows)
    assert before <= plate.began <= time.time()


def test_counts_are_read_from_the_pools_memory(memories):
    with ParallelPyEnvironment(
        [CountingEnv] * 3, num_workers=2, start_method="fork"
    ) as env:
        (memory,) = (PublishedMemory(fd, plate) for fd, plate in memories())
        before = memory.counts()
        env.reset()
        env.step([0, 0, 0])
        counts = memory.counts()
        known = env.statistics().workers
        workers = memory.workers()
        is_running, _ = memory.running()

        assert [2, 2, 2] == counts.requests_since(before).tolist()
        assert (2, [4, 2]) == (counts.calls - before.calls, counts.steps.tolist())
        assert [worker.pid for worker in known] == [each.process for each in workers]
        assert not is_running.any()
        assert not memory.is_closed()

    assert memory.is_closed()
    assert memory.is_whole


def test_memory_with_moved_rows_is_reported(memories):
    with ParallelPyEnvironment(
        [CountingEnv], num_workers=1, start_method="fork"
    ) as env:
        (memory,) = (PublishedMemory(fd, plate) for fd, plate in memories())
        assert not memory.has_moved()
        env.resize(2)

        assert memory.has_moved()


def test_the_worker_of_a_standby_environment_is_no_published_pool(plates):
    with StandbyEnvironment(CountingEnv, in_workers=True):
        assert [] == plates()


@pytest.fixture
def fd():
    """A file of memory that is called as a pool's is."""
    number = os.memfd_create("envkit")
    yield number
    os.close(number)


@pytest.mark.parametrize("text", [b"", b"short", b"x" * 100], ids=len)
def test_memory_without_published_facts_has_none(text, fd):
    os.write(fd, text)
    assert PublishedPool.read(fd) is None


FACTS = {
    "kind": "Pool",
    "program": "a.py",
    "pid": 1,
    "targets": ["B-v1"],
    "envs": 2,
    "blocks": [[0, 1], [1, 3]],
    "first_rows": [0, 1],
    "places": PLACES,
    "are_linked": False,
    "began": 0.5,
    "envkit": "9.9",
    "format": FORMAT,
}


def test_published_facts_survive_the_round_trip(fd):
    plate = PublishedPool(**FACTS)
    os.write(fd, bytes(512) + plate.packed(512))
    assert plate == PublishedPool.read(fd)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"[]",
        b"3",
        b"{" * 100_000,
        b"[" * 100_000,
        *(
            json.dumps({**FACTS, **wrong}).encode()
            for wrong in (
                {"more": 1},
                {"kind": 3},
                {"targets": [3]},
                {"targets": 3},
                {"pid": "1"},
                {"pid": None},
                {"blocks": []},
                {"blocks": [[0, 1], [2, 3]]},
                {"blocks": [[0, 1], [1, 10**15]]},
                {"blocks": [[0, 1], [1, 3, 5]]},
                {"blocks": 5},
                {"first_rows": [0]},
                {"first_rows": [1, 2]},
                {"first_rows": [0, 3]},
                {"envs": 10**9},
                {"places": {}},
                {"places": {**PLACES, "worker_facts": 500}},
                {"places": {**PLACES, "modes": -8}},
                {"places": {**PLACES, "meters": "8"}},
                {"are_linked": 1},
                {"began": "now"},
                {"began": float("nan")},
            )
        ),
    ],
    ids=lambda content: content[-60:].decode("latin-1").replace("\xff", "?"),
)
def test_corrupt_published_facts_raise_one_kind_of_error(content, fd):
    os.write(fd, bytes(512) + content + struct.pack("<Q8s", 512, b"envkit\0\1"))
    with pytest.raises(ValueError, match="plate"):
        PublishedPool.read(fd)


@pytest.mark.parametrize("place", [2**64 - 1, 2**63, 513, 528])
def test_published_facts_outside_the_memory_are_ignored(place, fd):
    os.write(fd, bytes(512) + struct.pack("<Q8s", place, b"envkit\0\1"))
    assert PublishedPool.read(fd) is None


def test_facts_of_another_envkit_version_name_it(fd):
    plate = PublishedPool(
        "Pool", "a.py", 1, [], 1, [[0, 1]], [0], {}, False, 0.0, "9.9", 99
    )
    os.write(fd, plate.packed(0))
    with pytest.raises(ValueError, match=r"run by envkit 9\.9, which counts otherwise"):
        PublishedPool.read(fd)


def test_a_pool_runs_without_room_for_published_facts(plates, monkeypatch):
    def full(*unused):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with ParallelPyEnvironment(
        [CountingEnv] * 2, num_workers=1, start_method="fork"
    ) as env:
        assert [] == plates()
        assert [0, 0] == np.asarray(env.reset().observation).tolist()
