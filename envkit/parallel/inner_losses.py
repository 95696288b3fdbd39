"""Collects the losses inside the environments of a pool.

Such environments are pools themselves, or run in processes of their own. A worker marks
the ends that they make up; the pool asks for the losses when the caller does.
"""

from __future__ import annotations

from typing import Any

from envkit.errors import WorkerError
from envkit.losses import Loss
from envkit.parallel.asking import ask
from envkit.parallel.row_sets import distinct
from envkit.types import Array

__all__ = ["collect"]


def collect(facade: Any, rows: Array) -> None:
    """Adds the losses inside the environments of rows to those of a pool.

    Args:
        facade: The pool.
        rows: The rows whose environments have made up their `LAST`.
    """
    pool, log = facade._pool, facade._pool.rows.losses
    numbers = pool.slab.numbers
    for env in distinct(pool.env_of_row[rows]):
        block = pool.rows_of_env[env]
        shown = set(rows.tolist()).intersection(block)
        # Asked only once, because they report each loss only once.
        new = [row for row in shown if log.asked.get(row) != int(numbers[row])]
        if not new:
            continue
        told = _told(facade, env)
        for row in new:
            log.asked[row] = int(numbers[row])
            place = row - block.start
            found = [loss for loss in told if loss.row == place]
            log.add((found or [_unknown(env)])[-1]._replace(row=row))


def _told(facade: Any, env: int) -> list[Loss]:
    try:
        (told,) = ask(facade, "call", [env], [("losses", (), {})])
    except WorkerError:  # The environment raised, or its worker is gone by now.
        return []
    return list(told)


def _unknown(env: int) -> Loss:
    error = WorkerError(
        f"Something inside env {env} was lost, and nothing is known of it."
    )
    return Loss(0, "crashed", error)
