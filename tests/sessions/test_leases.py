"""Who gets an environment, and when: leases and groups."""

from __future__ import annotations

import asyncio
import functools
import math

import pytest

from envkit.sessions import LeaseTimeout, SessionEnded, Sessions
from tests.sessions.environments import IS_OVER, Slow
from tests.sessions.running import in_loop, until_so


async def attempt(session):
    turn = await session.reset()
    while turn.end is None:
        turn = await session.step(1)
    return session.seed, turn.total, turn.steps


@in_loop
async def test_coroutines_are_served_in_the_order_in_which_they_came():
    served = []

    async def wait(number):
        async with sessions.lease():
            served.append(number)
            await asyncio.sleep(0)

    async with Sessions("Catch", 1) as sessions:
        async with sessions.lease():
            waiting = []
            for number in range(5):
                waiting.append(asyncio.ensure_future(wait(number)))
                await until_so(lambda: sessions.statistics().waiting == len(waiting))
        await asyncio.gather(*waiting)
    assert served == [0, 1, 2, 3, 4]


@in_loop
async def test_waiting_for_a_lease_is_bounded():
    async with Sessions("Catch", 1) as sessions, sessions.lease():
        with pytest.raises(LeaseTimeout, match=r"within 0.01 seconds"):
            await sessions.lease(timeout=0.01)
        assert sessions.statistics().waiting == 0


@in_loop
async def test_a_lease_without_patience_is_an_environment_or_an_error():
    async with Sessions("Catch", 1) as sessions:
        async with sessions.lease(timeout=0):
            with pytest.raises(LeaseTimeout):
                await sessions.lease(timeout=0)
        for wrong in (-1, math.nan, "1"):
            with pytest.raises(ValueError, match="timeout must be a number of seconds"):
                sessions.lease(timeout=wrong)


@pytest.mark.parametrize("error", [TimeoutError, asyncio.TimeoutError])
def test_a_lease_timeout_is_also_a_timeout_of_python(error):
    assert issubclass(LeaseTimeout, error)


@in_loop
async def test_a_cancelled_wait_leaves_the_environment_to_the_next():
    async with Sessions("Catch", 1) as sessions:
        first = await sessions.lease()
        cancelled = asyncio.ensure_future(sessions.lease()._take())
        next_one = asyncio.ensure_future(sessions.lease()._take())
        await until_so(lambda: sessions.statistics().waiting == 2)
        first.release()  # serves the one that is cancelled before it wakes
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        (await next_one).release()
        assert sessions.statistics().free == 1


@in_loop
async def test_a_cancelled_owner_frees_its_environment_after_the_step():
    async def play():
        async with sessions.lease() as session:
            await session.reset()
            stepping.append(session)
            await session.step(0)

    stepping = []
    async with Sessions(functools.partial(Slow, 60.0), 1) as sessions:
        task = asyncio.ensure_future(play())
        await until_so(lambda: stepping)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        IS_OVER.set()  # and with that its step
        async with sessions.lease() as session:
            assert (await session.reset()).observation == 0


@in_loop
async def test_a_group_attempts_one_episode():
    async with Sessions("Catch", 3) as sessions:
        group = await sessions.group(seed=7, size=8).run(attempt)
        (other,) = await sessions.group(seed=8, size=1).run(attempt)
        assert sessions.statistics().free == 3
    assert len(group) == 8
    assert len(set(group)) == 1
    assert group[0][0] == 7
    assert other[0] == 8


@in_loop
async def test_a_group_may_be_larger_than_the_sessions_and_played_in_turn():
    async with Sessions("Catch", 2) as sessions:
        played = [
            await attempt(session) async for session in sessions.group(seed=3, size=5)
        ]
    assert len(played) == 5
    assert len(set(played)) == 1


@in_loop
async def test_a_group_of_a_context_has_all_its_environments_at_once():
    async with Sessions("Catch", 4) as sessions:
        async with sessions.group(seed=1, size=4) as members:
            assert len(members) == 4
            assert sessions.statistics().free == 0
            await asyncio.gather(*map(attempt, members))
        assert sessions.statistics().free == 4
        with pytest.raises(ValueError, match="5 environments were asked for at once"):
            await sessions.group(seed=1, size=5).__aenter__()


@in_loop
async def test_seeds_are_checked_before_anything_is_leased():
    async with Sessions("Catch", 1) as sessions:
        with pytest.raises(TypeError, match="attempt the same episode; got None"):
            sessions.group(seed=None, size=8)
        with pytest.raises(TypeError, match="A seed is an integer"):
            sessions.group(seed="7", size=8)
        with pytest.raises(ValueError, match="cannot be negative"):
            sessions.lease(seed=-1)


@in_loop
async def test_a_member_has_one_episode():
    async with Sessions("Catch", 1) as sessions:
        async for session in sessions.group(seed=1, size=1):
            await attempt(session)
            with pytest.raises(SessionEnded, match="member of a group") as caught:
                await session.reset()
    assert caught.value.reason == "attempted"
    assert session.turn.end == "terminated"


@in_loop
async def test_an_attempt_that_raises_ends_the_others():
    async def fail(session):
        await session.reset()
        raise ZeroDivisionError

    async with Sessions(Slow, 2) as sessions:
        with pytest.raises(ZeroDivisionError):
            await sessions.group(seed=1, size=6).run(fail)
        await until_so(lambda: sessions.statistics().free == 2)
