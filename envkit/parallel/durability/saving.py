"""Saves the state of a pool to a token or a file, and restores it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envkit._internal.text import counted
from envkit.errors import CheckpointError, WorkerError
from envkit.parallel.asking import ask
from envkit.parallel.durability.checkpoint import (
    Saved,
    check_leaves,
    not_plain,
    read_checkpoint,
    write_checkpoint,
)
from envkit.parallel.state import PoolState
from envkit.provenance import record_seed
from envkit.time_step import AutoReset, TimeStep

__all__ = ["load_pool", "restore", "save", "state_of"]


def _states(facade: Any) -> tuple[bytes, ...]:
    return tuple(ask(facade, "get_state", None, tries=2))


def state_of(facade: Any, environments: tuple[bytes, ...] | None = None) -> PoolState:
    """Returns the state of a pool none of whose rows owes an answer.

    Args:
        facade: The pool.
        environments: The environments' states, if known already.
    """
    slab, begun = facade._pool.slab, facade._pool.begun
    shown = standing = None
    if begun.any():
        # Read from the slab, because returned arrays belong to the caller.
        shown = facade._structure.unflatten(slab.read(facade._everyone))
        standing = facade._structure.unflatten(slab.read_standing(facade._everyone))
    return PoolState(
        environments=_states(facade) if environments is None else environments,
        time_step=shown,
        standing=standing,
        autoreset=facade._order.value,
        new_rows=facade._pool.rows.new_rows(),
        begun=tuple(begun.tolist()),
    )


def restore(facade: Any, state: PoolState) -> TimeStep | None:
    """Sets every environment's state, or changes nothing.

    Returns:
        The time step that now counts as the last returned; `None` before the first.
    """
    pool, standing = facade._pool, state.standing
    ended = np.zeros(facade._rows, bool)
    if standing is not None:
        ended = np.asarray(standing.is_last())
    flags = [[bool(ended[row]) for row in rows] for rows in pool.rows_of_env]
    # An environment that cannot save its state must raise before anything changes.
    before = _states(facade)
    flags_before = [
        [pool.rows.has_ended(row) for row in rows] for rows in pool.rows_of_env
    ]
    tokens = list(zip(state.environments, flags, strict=True))
    try:
        ask(facade, "set_state", None, tokens, tries=2)
    except BaseException:
        tokens = list(zip(before, flags_before, strict=True))
        envs = pool.present_envs()
        # The pending error tells more than the loss of another worker.
        with contextlib.suppress(WorkerError):
            pool.ask("set_state", envs, [tokens[env] for env in envs])
        raise
    shown = standing
    if standing is not None:
        # Only in this order can an environment be at a different time step than its row
        # shows.
        same = AutoReset.SAME_STEP
        if facade._order is same is AutoReset.of(state.autoreset):
            shown = state.time_step
        flatten = facade._structure.flatten
        pool.rows.stand(flatten(shown), flatten(standing))
    pool.set_restored(state.begun, state.new_rows)
    return shown


def save(facade: Any, path: str | os.PathLike[str], extra: Any, pickles: bool) -> None:
    """Writes a checkpoint of a pool that owes no answer."""
    facade._settle()
    asked = [pickles] * len(facade._pool.rows_of_env)
    results = ask(facade, "save", None, asked, tries=2)
    for env, token in enumerate(results):
        if isinstance(token, str):
            raise not_plain(f"in env {env}, {token}")
    state = state_of(facade, tuple(results))
    shown = standing = None
    if state.standing is not None:
        shown, standing = map(
            facade._structure.flatten, (state.time_step, state.standing)
        )
    workers = facade._pool.workers
    saved = Saved(
        state._replace(time_step=None, standing=None),
        shown,
        standing,
        facade._order_kept.value,
        list(facade._structure.paths),
        facade._envkit.seed,
        workers.seeds.given,
        workers.restarts_by_env(),
        [(seed.seed, seed.rebuilds) for seed in workers.seeds],
        extra,
    )
    write_checkpoint(path, saved, pickles)


def _continue(facade: Any, saved: Saved) -> None:
    """Restores the state of a pool from a checkpoint."""
    state, unflatten = saved.state, facade._structure.unflatten
    check_leaves(saved, facade._structure.paths, facade._pool.slab.views(0))
    if saved.time_step is not None and saved.standing is not None:
        state = state._replace(
            time_step=unflatten(saved.time_step),
            standing=unflatten(saved.standing),
        )
    ask(facade, "assume_seed", None, saved.known, tries=2)
    facade._pool.workers.continue_run(saved.seeds, saved.restarts)
    record_seed(facade, saved.noted_seed)
    facade.set_state(state)  # The subclasses differ.
    facade.extra = saved.extra


def load_pool(
    make: Callable[..., Any],
    path: str | os.PathLike[str],
    env_constructors: Any,
    pickles: bool,
    options: dict[str, Any],
) -> Any:
    """Makes a pool that continues from a checkpoint.

    Args:
        make: The class of the pool.
        path: The checkpoint; it is read before anything starts.
        env_constructors: The constructors of the environments.
        pickles: Whether to unpickle data in it.
        options: Further arguments of the class.
    """
    saved = read_checkpoint(path, pickles)
    count = len(saved.state.environments)
    if isinstance(env_constructors, Sequence) and not isinstance(env_constructors, str):
        given = len(env_constructors)
        if given != count:
            raise CheckpointError(
                f"The checkpoint {str(path)!r} is of {counted(count, 'environment')}, "
                f"and {counted(given, 'constructor')} were given. load() must be given "
                "the constructors of the pool that was saved."
            )
    pool = make(env_constructors, **{"autoreset": saved.autoreset, **options})
    try:
        _continue(pool, saved)
    except BaseException:
        pool.close()
        raise
    return pool
