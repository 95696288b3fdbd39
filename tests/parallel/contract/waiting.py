"""Checks of `wait_events`: for how long and for what it waits, and what it keeps."""

from __future__ import annotations

import time

import numpy as np

from envkit.parallel.backends.base import Event
from envkit.parallel.slab_layout import STEP
from envkit.testing.contract.findings import Broken, broken
from tests.parallel.contract.crew import LEAST_LOOKS, Crew
from tests.parallel.contract.environments import RAISE, WAIT
from tests.parallel.contract.trial import BackendTrial

__all__ = ["kept", "owing", "timeout"]


def timeout(trial: BackendTrial) -> None:
    """`wait_events` returns with nothing when the time is over."""
    crew = trial.crew()
    crew.settle()
    _look_at_timeouts(crew, "nothing was asked")
    if trial.is_aside:
        crew.send([0], STEP, {0: crew.action(WAIT)})
        crew.await_entered(0)
        _look_at_timeouts(crew, "row 0 is in its environment")
        crew.let_go(0)
        crew.await_rows([0])


def _look_at_timeouts(crew: Crew, situation: str) -> None:
    for seconds in (0, 0.0, 0.05):
        began = time.monotonic()
        queue = crew.backend.wait_events(seconds)
        took = time.monotonic() - began
        if queue or took > crew.too_long:
            raise broken(
                f"wait_events({seconds:g}) was called while {situation}.",
                "With nothing to tell it returns an empty queue, in about that time.",
                events=str(list(queue))[:100],
                took=f"{took:.3g} s",
            )


def owing(trial: BackendTrial) -> None:
    """A wait ends when few enough rows owe an answer, or an environment has raised."""
    crew = trial.crew()
    for rows, owing in ((range(4), 0), ([1, 2], 0), ([3], 2)):
        crew.send(rows)
        _wait(crew, owing)
        crew.await_rows(rows)
        crew.check_answers(rows)
    if not trial.is_aside:
        return
    # One row stays away. The others end the wait all the same.
    for owing in (1, 2):
        crew.send([0, 2, 3], STEP, {0: crew.action(WAIT)})
        _wait(crew, owing)
        crew.await_rows([2, 3])
        crew.let_go(0)
        _wait(crew, 0)
        crew.await_rows([0])
        crew.check_answers([0, 2, 3])
    crew.send([0, 2], STEP, {0: crew.action(WAIT), 2: crew.action(RAISE)})
    while not crew.has_come[2]:
        _wait(crew, 0)
    crew.forget_failures()
    crew.let_go(0)
    _wait(crew, 0)
    crew.await_rows([0])


def _wait(crew: Crew, owing: int) -> None:
    """Waits until at most so many rows owe an answer; an event may come before."""
    began = time.monotonic()
    queue = crew.backend.wait_events(crew.patience, owing)
    took = time.monotonic() - began
    still = crew.slab.count_owing()
    if took > crew.too_long or (still > owing and not queue and not _marks(crew)):
        raise broken(
            f"wait_events(timeout, {owing}) was called.",
            "It returns at once when that many rows owe an answer, or fewer.",
            **{"rows that owe an answer": str(still), "took": f"{took:.1f} s"},
        )
    crew.take(queue)


def _marks(crew: Crew) -> bool:
    return bool(crew.slab.raised_rows(np.arange(crew.rows)).size)


def kept(trial: BackendTrial) -> None:
    """What the caller leaves in the queue is returned again, and nothing is lost."""
    crew = trial.crew()
    for worker, envs in ((0, [0, 1]), (2, [3])):
        number = crew.post(worker, "access", envs, [("env_id",)] * len(envs))
        deadline, looks = time.monotonic() + crew.patience, 0
        left: list[Event] = []
        while not left and (looks < LEAST_LOOKS or time.monotonic() < deadline):
            left = list(crew.backend.wait_events(0.05))
            looks += 1
        for seconds in (0.0, 0.05):
            again = list(crew.backend.wait_events(seconds))
            if [*map(id, again[: len(left)])] != [*map(id, left)]:
                raise broken(
                    "wait_events() was called again, and its queue was not emptied.",
                    "A call that is interrupted before it has handled an event finds "
                    "it there the next time.",
                    before=str(left)[:200],
                    now=str(again)[:200],
                )
        crew.await_reply(number)
        crew.settle()
        if len(crew.replies[number]) != 1:
            raise Broken("An answer that was left in the queue came once more.")
