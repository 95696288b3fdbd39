"""Sessions whose event loop has a thread of its own."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from envkit.errors import ClosedError, ConstructorError
from envkit.sessions import Sessions
from envkit.sessions.blocking import BlockingSessions
from tests.waiting import PATIENCE, until


async def total(sessions, seed):
    async with sessions.lease(seed=seed) as session:
        turn = await session.reset()
        while turn.end is None:
            turn = await session.step(1)
        return turn.total


def test_many_threads_share_few_environments():
    shared = BlockingSessions(Sessions("Catch", 2))
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(
            lambda seed: shared.call(total, shared.sessions, seed), range(16)
        )
        assert {-1.0, 1.0} == set(found)
    shared.close()


def test_what_keeps_environments_from_being_built_is_raised_in_each_call():
    shared = BlockingSessions(Sessions("Catch", 1, speed=3))
    for _ in range(2):
        with pytest.raises(ConstructorError, match="speed"):
            shared.call(total, shared.sessions, 1)
    shared.close()


def test_closing_ends_calls_that_wait():
    shared = BlockingSessions(Sessions("Catch", 1))
    begun = threading.Event()

    async def forever():
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(shared.call, forever)
        assert begun.wait(PATIENCE)
        shared.close()
        with pytest.raises(ClosedError, match="were closed"):
            call.result(PATIENCE)
    with pytest.raises(ClosedError):
        shared.call(forever)


def test_forgotten_sessions_end():
    shared = BlockingSessions(Sessions("Catch", 1))
    shared.call(total, shared.sessions, 1)
    (thread,) = [t for t in threading.enumerate() if t.name == "envkit-sessions-loop"]
    del shared
    gc.collect()
    assert until(lambda: not thread.is_alive())


PROGRAM = """
import asyncio, threading
from envkit.sessions import Sessions
from envkit.sessions.blocking import BlockingSessions

shared = BlockingSessions(Sessions("Catch", 2, backend={backend!r}))
begun = threading.Event()

async def forever():
    async with shared.sessions.lease(seed=1) as session:
        await session.reset()
        begun.set()
        await asyncio.Event().wait()

def call():
    try:
        shared.call(forever)
    except Exception as error:
        print(error)

threading.Thread(target=call).start()
begun.wait()
"""


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_a_program_ends_while_a_thread_waits_for_an_answer(backend):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(backend=backend)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The program ends while an environment answers.\n"
