"""The line of `envkit.progress` for sessions."""

from __future__ import annotations

import io

from rich.console import Console

import envkit
from envkit.sessions import Sessions
from tests.sessions.environments import RAISE, Owned
from tests.sessions.playing import episode
from tests.sessions.running import in_loop


async def attempt(session):
    turn = await session.reset()
    while turn.end is None:
        turn = await session.step(1)
    return turn.total


@in_loop
async def test_progress_counts_episodes_of_sessions():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    async with Sessions("Catch", 2) as sessions:
        await sessions.group(seed=3, size=1).run(attempt)  # before it began
        with envkit.progress(sessions, 8, console=console) as bar:
            totals = await sessions.group(seed=7, size=8).run(attempt)
    assert (bar.done, bar.episodes, bar.steps) == (8, 8, 8 * 9)
    assert bar.mean_return == sum(totals) / 8
    assert "8/8 episodes · 72 steps" in shown.getvalue()
    assert bar.seconds_left == 0.0


@in_loop
async def test_progress_shows_lost_episodes_apart():
    async with Sessions(Owned, 1) as sessions, sessions.lease() as session:
        with envkit.progress(sessions, 2) as bar:
            assert await episode(session, 1, RAISE) == "raised"
            assert await episode(session, 2) == ("terminated", 6.0)
    assert (bar.episodes, bar.lost_episodes, bar.restarts) == (1, 1, 1)
    assert bar.mean_return == 6.0
