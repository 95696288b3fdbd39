"""Checks of how rows are run: every answer whole, made once, and where it was asked."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.parallel.slab_layout import (
    NEXT_STEP_ORDER,
    RAISED,
    REBUILD,
    RESET,
    SAME_STEP_ORDER,
    SAME_STEP_SLOT,
    STEP,
)
from envkit.testing.contract.findings import Broken, broken
from envkit.time_step import StepType
from tests.parallel.contract.crew import Crew, time_step_of
from tests.parallel.contract.environments import RAISE, WAIT
from tests.parallel.contract.trial import BackendTrial

__all__ = [
    "answers",
    "autoreset",
    "each_row",
    "masked",
    "neighbours",
    "once",
    "orders",
    "portions",
    "raises",
    "rebuild",
    "same_step",
    "visible",
]

# One row of each worker of the common crew.
_ONE_EACH = (0, 2, 3)


def visible(trial: BackendTrial) -> None:
    """A row's time step is whole in the slab before its number stands there."""
    crew = trial.crew()
    for rows in (range(4), range(4), [1], [2, 3]):
        crew.run(rows)


def once(trial: BackendTrial) -> None:
    """Each row that was asked answers once, however often it is dispatched."""
    crew = trial.crew()
    for rows in (None, None, [1], None, [3, 2]):
        asked = range(4) if rows is None else rows
        before = crew.slab.numbers.copy()
        crew.ask(asked)
        before[asked] += 2
        crew.dispatch(rows)
        crew.dispatch(None)
        crew.await_rows(range(4))
        crew.dispatch(rows)
        crew.settle()
        crew.check_answers(asked)
        _look_at_numbers(crew, before)


def _look_at_numbers(crew: Crew, due: Any) -> None:
    """Looks whether every row has the number of its last request, and has answered."""
    for what, got in (
        ("sequence", crew.slab.numbers),
        ("answered", crew.slab.answers),
    ):
        if not np.array_equal(due, got):
            raise broken(
                f"Rows have other numbers in Slab.{what} than they were asked with.",
                "A backend asks no row, and a row answers when it was asked.",
                expected=str(due),
                got=str(got),
            )


def answers(trial: BackendTrial) -> None:
    """Every row gets the answer of its own environment to its own action."""
    crew = trial.crew()
    for _ in range(3):
        crew.ask(range(4))
        crew.dispatch(None)
        crew.await_rows(range(4))
        crew.check_answers(range(4))
    crew.run([2, 0])
    crew.run([1], RESET)
    crew.run(range(4))


def orders(trial: BackendTrial) -> None:
    """Workers may finish in any order, and their rows answer as they do."""
    crew = trial.crew()
    for order in itertools.permutations(_ONE_EACH):
        if trial.is_aside:
            crew.send(_ONE_EACH, STEP, {row: crew.action(WAIT) for row in _ONE_EACH})
        for row in order:
            if trial.is_aside:
                crew.let_go(row)
            else:
                crew.send([row])
            crew.await_rows([row])
            crew.check_answers([row])


def portions(trial: BackendTrial) -> None:
    """Rows may be dispatched while others, of the same worker too, are on their way."""
    crew = trial.crew()
    for row in (1, 3, 0, 2):
        crew.send([row])
    crew.await_rows(range(4))
    crew.check_answers(range(4))
    if trial.is_aside:
        crew.send([0], STEP, {0: crew.action(WAIT)})
        crew.await_entered(0)
        crew.send([2, 1])
        crew.await_rows([2])
        crew.let_go(0)
        crew.await_rows([0, 1])
        crew.check_answers(range(3))
    crew.settle()
    _look_at_numbers(crew, crew.slab.numbers)


def each_row(trial: BackendTrial) -> None:
    """Where single rows are waited for, each ends the wait while the next one runs."""
    trial.need_aside()
    crew = trial.new_crew()
    crew.start((2,), rings_each_row=True)
    crew.run([0, 1], RESET)
    crew.send([0, 1], STEP, {1: crew.action(WAIT)})
    began = time.monotonic()
    crew.take(crew.backend.wait_events(crew.patience, 1))
    took = time.monotonic() - began
    if not crew.has_come[0] or crew.has_come[1] or took > crew.too_long:
        raise broken(
            "Row 0 has answered, and row 1 of the same worker is in its environment.",
            "With PoolOptions.rings_each_row each row that has answered ends a wait.",
            **{
                "row 0 has answered": str(crew.has_come[0]),
                "row 1 has answered": str(crew.has_come[1]),
                "wait_events took": f"{took:.1f} s",
            },
        )
    crew.let_go(1)
    crew.await_rows([1])
    crew.check_answers([0, 1])


def masked(trial: BackendTrial) -> None:
    """Rows that were not asked stay as they are."""
    crew = trial.crew()
    for rows in ([0], [1, 3], [2]):
        others = [row for row in range(4) if row not in rows]
        before = _contents(crew, others)
        crew.run(rows)
        crew.settle()
        for row, was, now in zip(others, before, _contents(crew, others), strict=True):
            if was != now:
                raise Broken(f"Rows {rows} were asked, and row {row} has changed.")


def _contents(crew: Crew, rows: Sequence[int]) -> list[bytes]:
    return [
        b"".join(array[:, row].tobytes() for array in crew.slab._steps)
        + crew.slab.answers[row].tobytes()
        for row in rows
    ]


def raises(trial: BackendTrial) -> None:
    """What an environment raises comes in `Raised`, and its row is marked."""
    crew = trial.crew()
    for rows in ([2], [0, 1]):
        crew.send(rows, STEP, {row: crew.action(RAISE) for row in rows})
        crew.await_rows(rows)
        crew.settle()
        for row in rows:
            _look_at_failure(crew, row)
        crew.forget_failures()
        crew.run(range(4), RESET)


def _look_at_failure(crew: Crew, row: int) -> None:
    failure = crew.failures.get(row)
    if failure is None:
        raise broken(
            f"The environment of row {row} raised, and no event has told so.",
            "Its slot holds nothing that could be read.",
            expected=f"Raised(({row},), ...)",
            got="an answer",
        )
    facts = [
        ("kind", "raised", failure.kind),
        ("env", row, failure.env),
        ("command", "step", failure.command),
        ("type_name", "RuntimeError", failure.type_name),
        ("message", f"env {row} was told to raise.", failure.message),
        ("original()", f"env {row} was told to raise.", str(failure.original())),
        (
            "mark in Slab.answered",
            int(crew.slab.numbers[row]) | RAISED,
            int(crew.slab.answers[row]),
        ),
    ]
    for what, due, got in facts:
        if due != got:
            raise broken(
                f"The failure of row {row} is not told as it was.",
                "It becomes an error of the caller's, who was not there.",
                part=what,
                expected=str(due),
                got=str(got),
            )


def neighbours(trial: BackendTrial) -> None:
    """An environment that raises disturbs no other, of the same worker neither."""
    crew = trial.crew()
    for row in (0, 1, 3):
        others = [other for other in range(4) if other != row]
        crew.send(range(4), STEP, {row: crew.action(RAISE)})
        crew.await_rows(range(4))
        crew.check_answers(others)
        crew.forget_failures()
        crew.run([*others], STEP)
        crew.run(range(4), RESET)


def rebuild(trial: BackendTrial) -> None:
    """REBUILD begins the first episode of a new environment, in the same worker."""
    crew = trial.crew()
    crew.run(range(4))
    before = [crew.where(env) for env in range(4)]
    crew.run([1, 2], REBUILD)
    crew.run(range(4))
    after = [crew.where(env) for env in range(4)]
    rebuilt = [env for env in range(4) if before[env][2] != after[env][2]]
    moved = [env for env in range(4) if before[env][:2] != after[env][:2]]
    if rebuilt != [1, 2] or moved:
        raise broken(
            "Environments 1 and 2 were to be built anew, each where it was.",
            "The others go on as they were.",
            **{"built anew": str(rebuilt), "elsewhere": str(moved)},
        )


def autoreset(trial: BackendTrial) -> None:
    """After a `LAST`, the next step begins an episode, whatever the action."""
    crew = trial.crew()
    crew.slab.autoreset = NEXT_STEP_ORDER
    for _ in range(7):
        crew.run(range(4))


def same_step(trial: BackendTrial) -> None:
    """Under SAME_STEP the `FIRST` that follows a `LAST` is in slot 2 at once."""
    crew = trial.crew()
    crew.slab.autoreset = SAME_STEP_ORDER
    try:
        while not crew.answers or not crew.answers[0].is_last():
            crew.run(range(4))
        for row in range(4):
            first = time_step_of(crew.slab, row, SAME_STEP_SLOT)
            episodes = [
                int(step.observation["episode"]) for step in (crew.answers[row], first)
            ]
            if first.step_type != StepType.FIRST or np.diff(episodes) != 1:
                raise broken(
                    f"Row {row} has ended an episode under SAME_STEP.",
                    "Slab.autoreset says which order it is; runners look at it.",
                    expected="in slot 2, the FIRST of the next episode",
                    got=f"step type {first.step_type}, episodes {episodes}",
                )
            # What follows it is a step in the new episode.
            crew.answers[row] = first
        crew.run(range(4))
    finally:
        crew.slab.autoreset = NEXT_STEP_ORDER
