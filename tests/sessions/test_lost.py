"""Environments that are lost: one session ends, and a sample is never made up."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import signal

import numpy as np
import pytest

from envkit import ArraySpec, Loss, RestartPolicy
from envkit.envs import Catch
from envkit.errors import WorkerError
from envkit.sessions import Sessions
from tests.sessions.environments import DIE, HANG, RAISE, WAIT, Owned
from tests.sessions.running import in_loop, until_so
from tests.waiting import until

_OFTEN = RestartPolicy(max_restarts=100, within=None, backoff=0.0)


async def play(session, owner, order=WAIT):
    turn = await session.reset(options={"owner": owner})
    turn = await session.step([owner, order, 0])
    while turn.end is None:
        assert not turn.observation["is_foreign"]
        turn = await session.step([owner, WAIT, 0])
    return turn


@pytest.mark.parametrize(
    ("backend", "order", "kind"),
    [
        ("thread", RAISE, "raised"),
        ("thread", HANG, "timed_out"),
        ("process", RAISE, "raised"),
        ("process", DIE, "crashed"),
        ("process", HANG, "timed_out"),
    ],
)
def test_a_lost_environment_ends_its_own_session_only(backend, order, kind):
    @in_loop
    async def run():
        timeout = 2.0 if order == HANG else None
        async with Sessions(
            Owned, 2, backend=backend, step_timeout=timeout, restart=_OFTEN
        ) as sessions:
            async with sessions.lease() as losing, sessions.lease() as other:
                turn = await play(losing, 1, order)
                assert isinstance(turn.end, Loss)
                assert turn.end.kind == kind
                assert turn.is_lost
                assert math.isnan(turn.reward)
                assert math.isnan(turn.total)
                assert [loss.kind for loss in losing.losses] == [kind]
                assert (await play(other, 2)).total == 6.0
                # The same session goes on with another environment.
                assert (await play(losing, 3)).total == 6.0
            await until_so(lambda: sessions.statistics().free == 2)
            assert sessions.statistics().lost == 1
            assert sessions.statistics().episodes == 2

    run()


@in_loop
async def test_a_lost_episode_can_be_begun_again():
    class Fragile(Catch):
        def _step(self, action):
            if action == 2:
                raise RuntimeError("It fell.")
            return super()._step(action)

    async with Sessions(Fragile, 1) as sessions, sessions.lease(seed=7) as session:
        first = await session.reset()
        assert (await session.step(2)).is_lost
        again = await session.reset(seed=session.seed)
    np.testing.assert_array_equal(first.observation, again.observation)


class Rebuilt(Owned):
    """Is built a second time only once a file exists, or a minute has passed."""

    def __init__(self, folder):
        super().__init__(10**6)
        for number in range(2):  # of the sessions
            with contextlib.suppress(FileExistsError):
                return (folder / str(number)).touch(exist_ok=False)
        assert until((folder / "let_go").exists, 60.0)


@in_loop
async def test_other_sessions_go_on_while_an_idle_worker_is_replaced(tmp_path):
    make = functools.partial(Rebuilt, tmp_path)
    async with (
        Sessions(make, 2, backend="process", restart=_OFTEN) as sessions,
        sessions.lease() as idle,
        sessions.lease() as other,
    ):
        await asyncio.gather(idle.reset(), other.reset())
        os.kill(sessions._pool.workers[0].pid, signal.SIGKILL)
        while other.turn.steps < 100 or sessions._pool.workers[0].state == "ready":
            await other.step([-1, WAIT, 5])
        reset = asyncio.ensure_future(idle.reset(options={"owner": 3}))
        for _ in range(100):
            await other.step([-1, WAIT, 0])
        assert not reset.done()
        (tmp_path / "let_go").touch()
        assert (await reset).observation["owner"] == 3


class Broken(Owned):
    def _reset(self, options=None):
        raise RuntimeError("The level is missing.")


@in_loop
async def test_an_environment_whose_resets_fail_is_lost_for_good():
    once = RestartPolicy(max_restarts=1, backoff=0.0)
    async with Sessions(Broken, 1, restart=once) as sessions:
        async with sessions.lease() as session:
            waits = asyncio.ensure_future(sessions.lease()._take())
            for _ in range(2):
                turn = await session.reset()
                assert turn.end.kind == "reset_failed"
                assert "The level is missing." in str(turn.end.error)
            with pytest.raises(WorkerError, match="lost for good"):
                await session.reset()
        for lease in (waits, sessions.lease()):
            with pytest.raises(WorkerError, match=r"The level is missing\."):
                await lease


@in_loop
async def test_a_reset_is_not_repeated_without_end():
    # So that the pool always has restarts left, as when each reset takes long.
    moment = RestartPolicy(max_restarts=2, within=1e-9, backoff=0.0)
    async with (
        Sessions(Broken, 1, restart=moment) as sessions,
        sessions.lease() as session,
    ):
        turn = await session.reset(options={})
        assert len(session.losses) >= 3
        assert session.losses[-1] == turn.end
        assert sessions.statistics().size == 0


@in_loop
async def test_a_new_environment_is_given_the_options_that_it_needs():
    class Choosy(Owned):
        def _reset(self, options=None):
            return super()._reset({"owner": options["owner"]})

    once = RestartPolicy(max_restarts=1, backoff=0.0)
    async with Sessions(Choosy, 1, restart=once) as sessions:
        for owner in (1, 2):
            async with sessions.lease() as session:
                assert (await play(session, owner, RAISE)).end.kind == "raised"
                assert (await play(session, owner)).total == 6.0


@pytest.mark.parametrize("is_declared", [True, False])
@in_loop
async def test_an_info_that_cannot_be_read_loses_its_own_episode_only(is_declared):
    class Forgetful(Owned):
        def info_spec(self):
            return {"done": ArraySpec((), np.int64)} if is_declared else {}

        def get_info(self):
            if (self._owner, self._done) == (1, 3):
                raise KeyError("the level")  # as a wrong call of a tool does
            return {"done": np.int64(self._done)}

    async with (
        Sessions(Forgetful, 2, num_workers=1) as sessions,
        sessions.lease() as losing,
        sessions.lease() as other,
    ):
        turn, good = await asyncio.gather(play(losing, 1), play(other, 2))
    assert (turn.end.kind, turn.steps) == ("raised", 3)
    assert math.isnan(turn.total)
    assert isinstance(turn.end.error, KeyError)
    assert (good.end, good.total) == ("terminated", 6.0)
    assert good.info == {"done": 6}


@in_loop
async def test_environments_that_are_gone_for_good_leave_the_others():
    never = RestartPolicy(max_restarts=0)
    async with Sessions(Owned, 2, backend="process", restart=never) as sessions:
        for alive in (1, 0):
            async with sessions.lease() as session:
                turn = await play(session, 1, DIE)
                assert turn.end.kind == "crashed"
                assert sessions.statistics().size == alive
                with pytest.raises(WorkerError, match="take another lease"):
                    await session.reset()
        with pytest.raises(WorkerError, match="lost for good"):
            await sessions.lease()


@in_loop
async def test_who_waits_is_told_when_no_environment_is_left():
    never = RestartPolicy(max_restarts=0)
    async with Sessions(Owned, 1, backend="process", restart=never) as sessions:

        async def lose():
            async with sessions.lease() as session:
                is_leased.set()
                await play(session, 1, DIE)

        is_leased = asyncio.Event()
        losing = asyncio.ensure_future(lose())
        await is_leased.wait()
        with pytest.raises(WorkerError, match="lost for good"):
            await sessions.lease()
        await losing


@in_loop
async def test_an_environment_without_seeds_raises_what_it_says():
    class Unseeded(Owned):
        def seed(self, seed):
            raise NotImplementedError("It is always the same.")

    async with (
        Sessions(functools.partial(Unseeded, 2), 1) as sessions,
        sessions.lease() as session,
    ):
        with pytest.raises(NotImplementedError, match="always the same"):
            await session.reset(seed=1)
        assert (await play(session, 1)).total == 2.0
