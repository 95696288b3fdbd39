"""Checks of `wait_events`: how long it waits, for how many, and what it keeps."""

from __future__ import annotations

import time

from envkit.parallel.slab import STEP
from envkit.testing.backend_contract.crew import Crew
from envkit.testing.backend_contract.environments import RAISE, WAIT
from envkit.testing.backend_contract.trial import BackendTrial
from envkit.testing.contract.findings import Broken, broken

__all__ = ["count", "kept", "timeout"]


def timeout(trial: BackendTrial) -> None:
    """`wait_events` returns with nothing when the time is over."""
    crew = trial.crew()
    crew.settle()
    _look_at_timeouts(crew, "nobody was asked anything")
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
        if queue or took > crew.patience:
            raise broken(
                f"wait_events({seconds:g}) was called while {situation}.",
                [("events", str(list(queue))[:100]), ("took", f"{took:.3g} s")],
                "With nothing to tell it returns an empty queue, in about that time.",
            )


def count(trial: BackendTrial) -> None:
    """Who waits for several rows gets fewer when the time is over, or one raised."""
    crew = trial.crew()
    # More than were asked: it is enough that all of them have answered.
    crew.send([1, 2])
    crew.await_rows([1, 2], count=4)
    crew.check_answers([1, 2])
    if not trial.is_aside:
        return
    # One row stays away. The others come all the same.
    for number in (1, 2, 4):
        crew.send([0, 2, 3], STEP, {0: crew.action(WAIT)})
        crew.await_rows([2, 3], number)
        crew.let_go(0)
        crew.await_rows([0], number)
        crew.check_answers([0, 2, 3])
    crew.send([0, 2], STEP, {0: crew.action(WAIT), 2: crew.action(RAISE)})
    crew.await_rows([2], 2)
    crew.let_go(0)
    crew.await_rows([0])
    crew.forget_failures()


def kept(trial: BackendTrial) -> None:
    """What the caller leaves in the queue is returned again, and nothing is lost."""
    crew = trial.crew()
    deadline = time.monotonic() + crew.patience
    for rows in ([0], [2, 1], range(4)):
        crew.send(rows)
        left = list(crew.backend.wait_events(0.05))
        while not left and time.monotonic() < deadline:
            left = list(crew.backend.wait_events(0.05))
        for seconds in (0.0, 0.05):
            again = list(crew.backend.wait_events(seconds))
            if [*map(id, again[: len(left)])] != [*map(id, left)]:
                raise broken(
                    "wait_events() was called again, and its queue was not emptied.",
                    [("was", str(left)[:200]), ("is", str(again)[:200])],
                    "Whoever is interrupted before it has seen to an event finds it "
                    "there the next time.",
                )
        crew.await_rows(rows)
        crew.check_answers(rows)
        crew.settle()
    if any(times != 1 for times in crew.told.values()):
        raise Broken("A row that was left in the queue was announced once more.")
