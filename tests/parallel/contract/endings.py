"""Checks of workers that die, are killed and are replaced."""

from __future__ import annotations

import time
from collections.abc import Callable

from envkit.parallel.backends.base import Exited, Raised
from envkit.parallel.messages import RemoteFailure
from envkit.parallel.slab_layout import STEP
from envkit.testing.contract.findings import Broken, Skipped, broken
from tests.parallel.contract.crew import Crew
from tests.parallel.contract.environments import DIE, EXIT_CODE, WAIT
from tests.parallel.contract.trial import BackendTrial

__all__ = [
    "committed",
    "death",
    "failed_replacement",
    "ghosts",
    "kill_at_once",
    "kill_busy",
    "kill_idle",
    "kill_starting",
]


def _need_kill(crew: Crew) -> None:
    if not crew.backend.can_kill:
        raise Skipped("it cannot kill (can_kill is False)")


def _await_exit(crew: Crew, worker: int) -> None:
    crew.wait(lambda: worker in crew.exits, f"Worker {worker} is gone.")
    report = crew.exits[worker]
    crew.settle()
    times = [e.worker for e in crew.events if isinstance(e, Exited)].count(worker)
    known = report.worker == worker and report.pid
    if not known or times != 1 or crew.backend.pid(worker):
        raise broken(
            f"Worker {worker} is gone.",
            "Exited comes once, with worker and process; pid() is 0 from then on.",
            **{
                "told": f"{times} times",
                "report": str(report),
                "pid()": str(crew.backend.pid(worker)),
            },
        )


def _restore(crew: Crew, worker: int) -> None:
    crew.restore(worker)
    crew.run(range(crew.rows))
    crew.settle()
    crew.events.clear()


def _others(crew: Crew, worker: int) -> list[int]:
    gone = range(*crew.slab.layout.blocks[worker])
    return [row for row in range(crew.rows) if row not in gone]


def kill_idle(trial: BackendTrial) -> None:
    """A worker that is killed while idle is told to be gone, and can be replaced."""
    crew = trial.crew()
    _need_kill(crew)
    crew.backend.kill(1)
    _await_exit(crew, 1)
    crew.run(_others(crew, 1))
    _restore(crew, 1)


def kill_at_once(trial: BackendTrial) -> None:
    """What a worker has not answered when it is told to be gone, it never answers."""
    crew = trial.crew()
    _need_kill(crew)
    crew.ask(range(4))
    crew.dispatch(None)
    crew.backend.kill(0)
    crew.await_rows([2, 3])
    crew.check_answers([2, 3])
    _await_exit(crew, 0)
    _look_for_ghosts(crew, 0)
    _restore(crew, 0)


def _look_for_ghosts(crew: Crew, worker: int) -> None:
    """Looks whether a worker that is gone still answers, or is told to have raised."""
    rows = range(*crew.slab.layout.blocks[worker])
    before = {row: crew.before_exit[row] for row in rows}
    crew.settle()
    after = {row: crew.has_come[row] for row in rows}
    end = max(i for i, event in enumerate(crew.events) if isinstance(event, Exited))
    late = [event for event in crew.events[end:] if isinstance(event, Raised)]
    if before != after or any(set(event.rows) & set(rows) for event in late):
        raise broken(
            f"Worker {worker} was told to be gone.",
            "What it had answered is in the slab before, because the pool repairs the "
            "other rows when it handles Exited.",
            **{"has answered by then": str(before), "has answered": str(after)},
        )


def kill_busy(trial: BackendTrial) -> None:
    """A worker that hangs in an environment ends at once when it is killed."""
    crew = trial.crew()
    _need_kill(crew)
    trial.need_aside()
    crew.send(range(4), STEP, {2: crew.action(WAIT)})
    crew.await_entered(2)
    crew.await_rows([0, 1, 3])
    crew.backend.kill(1)
    _await_exit(crew, 1)
    if crew.has_come[2]:
        raise Broken("Row 2 has answered, whose environment was killed in its step.")
    crew.check_answers([0, 1, 3])
    crew.run(_others(crew, 1))
    _restore(crew, 1)


def kill_starting(trial: BackendTrial) -> None:
    """A worker that is killed while it starts is told to be gone."""
    crew = trial.new_crew()
    _need_kill(crew)
    crew.begin_start((1,))
    crew.backend.kill(0)
    crew.wait(lambda: 0 in crew.exits, "Worker 0 was killed while it started.")


def death(trial: BackendTrial) -> None:
    """An environment that ends its process takes its worker along, and no other."""
    crew = trial.crew()
    trial.need_apart()
    crew.send(range(4), STEP, {3: crew.action(DIE)})
    crew.await_rows([0, 1, 2])
    crew.check_answers([0, 1, 2])
    _await_exit(crew, 2)
    report = crew.exits[2]
    if crew.has_come[3] or report.exitcode not in (EXIT_CODE, None):
        raise broken(
            f"The environment of row 3 ended its process with {EXIT_CODE}.",
            "The row is not answered; the report says what is known.",
            **{"row 3 has answered": str(crew.has_come[3]), "report": str(report)},
        )
    _restore(crew, 2)


def committed(trial: BackendTrial) -> None:
    """What a worker had answered when it died is in the slab when its end is told.

    Where answers may be lost with a worker, each is there as a whole or not at all.
    """
    crew = trial.crew()
    trial.need_apart()
    crew.send([0, 1], STEP, {1: crew.action(DIE)})
    # By then row 0, which comes before it in the same worker, has its answer.
    crew.await_entered(1)
    _await_exit(crew, 0)
    is_lost = crew.backend.keeps_answers and not crew.has_come[0]
    if is_lost or crew.has_come[1]:
        raise broken(
            "Worker 0 answered row 0, and died in the step of row 1.",
            "An answer that is whole is not lost with the worker.",
            **{
                "row 0 has answered": str(crew.has_come[0]),
                "row 1 has answered": str(crew.has_come[1]),
            },
        )
    crew.check_answers([0] if crew.has_come[0] else [])
    _look_for_ghosts(crew, 0)
    _restore(crew, 0)


def failed_replacement(trial: BackendTrial) -> None:
    """A replacement that cannot be built says why, and can be replaced again."""
    crew = trial.crew()
    _need_kill(crew)
    crew.backend.kill(2)
    _await_exit(crew, 2)
    marker = crew.folder / "broken"
    marker.touch()
    try:
        crew.replace(2, crew.obedient)
        crew.wait(lambda: 2 in crew.started, "Worker 2 was asked to start again.")
    finally:
        marker.unlink()
    failure = crew.started[2].hello
    if not isinstance(failure, RemoteFailure) or failure.kind != "constructor":
        raise broken(
            "The replacement of worker 2 could not be built.",
            "It is a start that failed, like any other.",
            expected="Started(2, RemoteFailure('constructor', ...))",
            got=str(failure)[:200],
        )
    crew.run(_others(crew, 2))
    _restore(crew, 2)


def ghosts(trial: BackendTrial) -> None:
    """A worker that was given up in the middle of a step writes nothing any more."""
    crew = trial.crew()
    trial.need_aside()
    crew.send([2], STEP, {2: crew.action(WAIT)})
    crew.await_entered(2)
    gate = crew.folder / f"go-2-{crew.asked_for[2]}"
    crew.backend.kill(1)
    crew.wait(lambda: 1 in crew.exits, "Worker 1 was killed or given up.")
    crew.restore(1)
    closed = _closed_count(crew)
    gate.touch()
    if not trial.is_apart:
        _await(crew, lambda: _closed_count(crew) > closed)
    for _ in range(3):
        crew.run(range(4))
    crew.settle()
    crew.run(range(4))
    crew.events.clear()


def _closed_count(crew: Crew) -> int:
    return len(list(crew.folder.glob("closed-*")))


def _await(crew: Crew, is_over: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + crew.patience, 0.001
    while not is_over():
        if time.monotonic() >= deadline:
            raise Broken(
                "A worker that was given up did not close its environment when it came "
                f"back from it, within {crew.patience:g} s."
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
