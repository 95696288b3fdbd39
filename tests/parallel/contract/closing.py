"""Checks of `close`, whatever is going on at the time."""

from __future__ import annotations

import os
import time

from envkit.parallel.slab_layout import RESET, STEP
from envkit.testing.contract.findings import Broken, broken
from tests.parallel.contract.crew import Crew
from tests.parallel.contract.environments import WAIT
from tests.parallel.contract.trial import BackendTrial
from tests.waiting import is_running, until

__all__ = ["close_busy", "close_early", "close_idle"]


def close_idle(trial: BackendTrial) -> None:
    """`close` closes environments and ends processes; once more it does nothing."""
    crew = trial.last_crew()
    tokens = [crew.where(env)[2] for env in range(4)]
    _close(crew, 5.0)
    open_ = [t for t in tokens if not (crew.folder / f"closed-{t}").exists()]
    if open_:
        raise broken(
            "The backend was closed while every worker was idle.",
            "What an environment holds may outlive its process, if it is not closed.",
            **{"environments": "4", "not closed": str(len(open_))},
        )
    _look_for_processes(crew, tokens)


def close_busy(trial: BackendTrial) -> None:
    """`close` ends workers that are busy, after about the grace they are given."""
    crew = trial.new_crew()
    crew.start((1, 2))
    crew.run(range(3), RESET)
    tokens = [crew.where(env)[2] for env in range(3)]
    orders = {1: crew.action(WAIT)} if trial.is_aside else {}
    crew.send(range(3), STEP, orders)
    if trial.is_aside:
        crew.await_entered(1)
    _close(crew, 0.05)
    _look_for_processes(crew, tokens)


def close_early(trial: BackendTrial) -> None:
    """`close` is possible before anything has started, and while it starts."""
    _close(trial.new_crew(), 5.0)
    crew = trial.new_crew()
    crew.begin_start((1,))
    _close(crew, 5.0)


def _close(crew: Crew, grace: float) -> None:
    began = time.monotonic()
    reports = crew.close(grace)
    took = time.monotonic() - began
    if took > grace + crew.too_long:
        raise broken(
            f"close({grace:g}) took {took:.1f} s.",
            "A worker that does not end in that time is ended, or left alone.",
            expected=f"about {grace:g} s",
        )
    workers = sorted(report.worker for report in reports)
    if len(set(workers)) != len(workers) or not set(workers) <= {
        job.worker for job in crew.jobs
    }:
        raise Broken(f"close() reports the ends of workers {workers}.")
    again = crew.close(grace)
    if again:
        raise Broken("close() reports ends once more when it is called a second time.")


def _look_for_processes(crew: Crew, tokens: list[str]) -> None:
    """Raises if a process lives on that environments were in.

    One on another machine may end a moment after its connection.
    """
    pids = {int(token.partition("-")[0]) for token in tokens} - {os.getpid()}
    until(lambda: not any(map(is_running, pids)), crew.patience)
    living = [pid for pid in pids if is_running(pid)]
    if living:
        raise broken(
            "The backend was closed.",
            "No process is left after that.",
            **{"workers alive": str(len(living))},
        )
