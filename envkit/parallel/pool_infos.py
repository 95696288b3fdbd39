"""The infos of a pool, read from the slab if possible, otherwise from workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.parallel.asking import ask
from envkit.parallel.row_sets import distinct
from envkit.parallel.slab_layout import DECLARED_INFO, ONLY_DECLARED_INFO
from envkit.specs.batching import stacked_infos
from envkit.types import Array

__all__ = ["all_infos", "declared", "has_more_info"]


def all_infos(facade: Any) -> Any:
    """Returns the infos of all rows, stacked or as a list; no row may be busy."""
    if any(facade._pool.is_batch):
        return ask(facade, "get_info", None)
    if not has_more_info(facade).any():
        leaves = facade._pool.slab.read_infos(facade._everyone)
        return facade._pool.layout.info.structure.unflatten(leaves)
    made_up = facade._pool.repaired
    answers = iter(ask(facade, "get_info", (~made_up).nonzero()[0].tolist()))
    infos = [{} if gone else next(answers) for gone in made_up.tolist()]
    return stacked_infos(infos)


def declared(facade: Any, rows: Array) -> dict[str, Any]:
    """Returns the declared infos of rows, in arrays that belong to the caller.

    Raises:
        WorkerError: An environment had to be asked, and has raised.
    """
    pool = facade._pool
    if not pool.layout.info_spec:
        return {}
    leaves = pool.slab.read_infos(rows)
    there = _is_in_slab(facade, rows, DECLARED_INFO)
    if not there.all():
        made_up = pool.repaired[rows]
        _fill(facade, leaves, rows, ~there & ~made_up)
        for leaf in leaves:
            leaf[made_up] = np.zeros((), leaf.dtype)
    return pool.layout.info.structure.unflatten(leaves)  # type: ignore[no-any-return]


def has_more_info(facade: Any) -> Array:
    """Returns a mask of rows whose info may have more than its declared part."""
    return ~_is_in_slab(facade, facade._everyone, ONLY_DECLARED_INFO)


def _is_in_slab(facade: Any, rows: Array, flag: int) -> Array:
    """Returns a mask of `rows`: True if this part of the info is in the slab."""
    has_info = facade._pool.slab.info_marks[rows] & flag != 0
    there: Array = facade._pool.rows.standing(rows) & has_info
    return there


def _fill(facade: Any, leaves: Sequence[Array], rows: Array, wanted: Array) -> None:
    """Asks environments for the infos that the slab lacks.

    Args:
        facade: The pool.
        leaves: The arrays to write to.
        rows: The rows of their elements.
        wanted: A mask of the elements to write.
    """
    layout, env_of_row = facade._pool.layout.info, facade._pool.env_of_row
    for env in distinct(env_of_row[rows[wanted]]):
        mine = wanted & (env_of_row[rows] == env)
        block = facade._pool.rows_of_env[env]
        (info,) = ask(facade, "get_info", [env])
        infos = info if facade._pool.is_batch[env] else [info]
        parts = layout.batch_values(infos, len(block), f"The info of env {env}")
        for leaf, part in zip(leaves, parts, strict=True):
            leaf[mine] = part[rows[mine] - block.start]
