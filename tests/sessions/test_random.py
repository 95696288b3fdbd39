"""Random players: cancellations, timeouts, exceptions and kills at any moment."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from envkit import RestartPolicy
from envkit.sessions import LeaseTimeout, Sessions
from tests.sessions.environments import DIE, HANG, RAISE, WAIT, Owned
from tests.sessions.running import in_loop, until_so

_ORDERS = {"thread": [RAISE, HANG], "process": [RAISE, DIE, HANG]}


class Players:
    """Coroutines that play, each as an owner of its own."""

    def __init__(self, sessions, backend, rng):
        self.sessions = sessions
        self.rng = rng
        self.faults = _ORDERS[backend]
        self.owners = itertools.count()
        self.complete = self.lost = self.cancelled = self.too_late = 0

    def order(self):
        is_bad = self.rng.random() < 0.02
        return self.rng.choice(self.faults) if is_bad else WAIT

    async def play(self):
        owner = next(self.owners)
        timeout = self.rng.choice([None, None, 0.01, 1.0])
        try:
            async with self.sessions.lease(timeout=timeout) as session:
                for _ in range(self.rng.randint(1, 2)):
                    await self.episode(session, owner)
        except LeaseTimeout:
            self.too_late += 1

    async def episode(self, session, owner):
        options = {"owner": owner, "order": self.order()}
        seed = self.rng.choice([None, 3])
        turn = await session.reset(seed=seed, options=options)
        while turn.end is None:
            # Another owner's reset would show here, or a step without a reset.
            assert turn.observation["owner"] == owner
            assert not turn.observation["is_foreign"]
            milliseconds = self.rng.choice([0, 0, 5])
            turn = await session.step([owner, self.order(), milliseconds])
        if turn.is_lost:
            self.lost += 1
        else:
            assert (turn.end, turn.total) == ("terminated", 6.0)
            self.complete += 1

    async def run(self, count, at_once):
        """Runs `count` players, so many at once, and cancels some of them.

        Who is cancelled is drawn once for each, so as many are on a slow machine.
        """
        running = {}
        while count or running:
            while count and len(running) < at_once:
                rounds = self.rng.randint(0, 20) if self.rng.random() < 0.3 else None
                running[asyncio.ensure_future(self.play())] = rounds
                count -= 1
            await asyncio.sleep(0.002)
            for task, rounds in running.items():
                if rounds == 0:
                    task.cancel()
                elif rounds is not None:
                    running[task] = rounds - 1
            for task in [task for task in running if task.done()]:
                del running[task]
                self.cancelled += task.cancelled()
                if not task.cancelled():
                    task.result()


@pytest.mark.parametrize(
    ("backend", "num_workers", "count"),
    [("thread", 5, 250), ("thread", 2, 200), ("process", 3, 100)],
)
def test_no_environment_is_lost_nor_shared(backend, num_workers, count):
    @in_loop
    async def run():
        often = RestartPolicy(max_restarts=10_000, within=None, backoff=0.0)
        async with Sessions(
            Owned,
            5,
            backend=backend,
            num_workers=num_workers,
            step_timeout=0.5,
            reset_timeout=0.5,
            restart=often,
        ) as sessions:
            players = Players(sessions, backend, random.Random(backend))
            await players.run(count, at_once=12)
            await until_so(lambda: sessions.statistics().free == 5)
            statistics = sessions.statistics()
        assert (statistics.leased, statistics.busy, statistics.waiting) == (0, 0, 0)
        assert players.complete == statistics.episodes
        assert players.lost == statistics.lost
        assert players.complete > count / 8
        assert min(players.lost, players.cancelled, players.too_late) > 0

    run()
