"""Checks of what rows may hold: leaves of any kind, and batches."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from envkit import nest
from envkit.parallel.slab_layout import RESET, STEP
from envkit.testing.contract.findings import broken
from envkit.types import EnvConstructor
from tests.parallel.contract.crew import Crew
from tests.parallel.contract.environments import EchoEnv, make_batch
from tests.parallel.contract.trial import BackendTrial

__all__ = ["batches", "leaf_kinds", "objects"]


def leaf_kinds(trial: BackendTrial) -> None:
    """Booleans, text, dates, empty arrays and empty nests arrive as they were sent."""
    _send_round(trial, with_object=False)


def objects(trial: BackendTrial) -> None:
    """Leaves that are objects arrive as they were sent, in both directions."""
    _send_round(trial, with_object=True)


def _send_round(trial: BackendTrial, with_object: bool) -> None:
    crew = trial.new_crew()
    crew.start((2,), lambda env: functools.partial(EchoEnv, with_object))
    crew.send([0, 1], RESET)
    crew.await_rows([0, 1])
    _compare(crew, {0: EchoEnv.value(0, with_object), 1: EchoEnv.value(0, with_object)})
    for numbers in ({0: 1, 1: 2}, {1: 3}, {0: 4}, {0: 5, 1: 6}):
        values = {
            row: EchoEnv.value(number, with_object) for row, number in numbers.items()
        }
        crew.send([*values], STEP, values)
        crew.await_rows(values)
        _compare(crew, values)


def _compare(crew: Crew, values: dict[int, Any]) -> None:
    for row, due in values.items():
        if row in crew.failures:
            raise broken(
                f"Row {row} failed, whose environment returns its action.",
                "Every leaf that a spec allows is carried.",
                got=crew.failures[row].traceback.strip().splitlines()[-1],
            )
        got = crew.answers[row].observation
        pairs = zip(nest.flatten_with_paths(due), nest.flatten(got), strict=True)
        for (path, wanted), found in pairs:
            if wanted.dtype != found.dtype or not np.array_equal(wanted, found):
                raise broken(
                    f"Leaf {path!r} of row {row} is not what its environment returned.",
                    "It was the action, sent there and back again.",
                    expected=repr(wanted),
                    got=repr(found),
                )


def batches(trial: BackendTrial) -> None:
    """A batched environment runs on several rows, some of which may begin anew."""
    crew = trial.new_crew()
    hellos = crew.start((2,), _batch_of)
    sizes = [hello.batch_sizes for hello in hellos]
    if sizes != [(2, 3)]:
        raise broken(
            "A worker has two batched environments.",
            "A pool lays out its rows by them.",
            expected="batch sizes 2 and 3",
            got=str(sizes),
        )
    crew.run(range(5), RESET)
    for _ in range(2):
        crew.ask(range(5))
        crew.dispatch(None)
        crew.await_rows(range(5))
        crew.check_answers(range(5))
    crew.run([0, 3], RESET)
    crew.run([2, 3, 4])
    crew.run([0, 1])


def _batch_of(env: int) -> EnvConstructor:
    return functools.partial(make_batch, 2 * env, 2 + env)
