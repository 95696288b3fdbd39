"""Episodes of sessions that any backend can play."""

from __future__ import annotations

import asyncio

import envkit
from envkit import RestartPolicy
from envkit.sessions import Sessions
from tests.sessions.environments import DIE, WAIT

__all__ = ["group_of_seven", "kill_one", "seven_alone"]

_OFTEN = RestartPolicy(max_restarts=10, within=None, backoff=0.0)


async def group_of_seven(backend):
    """Plays four attempts at the episode of seed 7 of Catch in two environments."""

    async def attempt(session):
        turns = [await session.reset()]
        while turns[-1].end is None:
            turns.append(await session.step(turns[-1].steps % 3))
        return [(turn.observation.tobytes(), turn.reward) for turn in turns]

    async with Sessions("Catch", 2, backend=backend) as sessions:
        return await sessions.group(seed=7, size=4).run(attempt)


def seven_alone():
    """Plays the same episode in an environment without sessions."""
    with envkit.make("Catch", seed=7) as env:
        steps = [env.reset()]
        while not steps[-1].is_last():
            steps.append(env.step((len(steps) - 1) % 3))
    return [(step.observation.tobytes(), float(step.reward)) for step in steps]


async def kill_one(owned, backend):
    """Kills one of two environments of the class `Owned`, beside a step of the other.

    Returns:
        How the episode of each ended, and the next one of the killed one's session.
    """
    async with (
        Sessions(owned, 2, backend=backend, restart=_OFTEN) as sessions,
        sessions.lease() as dies,
        sessions.lease() as other,
    ):
        ends = await asyncio.gather(episode(dies, 1, DIE), episode(other, 2))
        return [*ends, await episode(dies, 3)]


async def episode(session, owner, order=WAIT):
    """Plays an episode, gives an order in its first step, and returns its end."""
    turn = await session.reset(options={"owner": owner})
    turn = await session.step([owner, order, 20])
    while turn.end is None:
        assert (turn.observation["owner"], turn.observation["is_foreign"]) == (owner, 0)
        turn = await session.step([owner, WAIT, 0])
    return turn.end.kind if turn.is_lost else (turn.end, turn.total)
