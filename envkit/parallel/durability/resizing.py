"""Checks the arguments of `resize`, and changes the size of a pool.

Rows are added and removed at the end. A growing pool starts new workers for its new
rows; a shrinking one ends workers that have no rows left. Then all rows move to a new
slab. Remaining rows are copied as they are, including the numbers of their requests, so
nothing changes for them. If anything raises, the pool keeps its size.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit._internal.arguments import checked_size
from envkit._internal.text import a_or_an, counted
from envkit.errors import CallOrderError
from envkit.parallel.asking import ask
from envkit.parallel.opening import as_constructors, takes_names
from envkit.provenance import record_seed
from envkit.seeding import seed_per_row
from envkit.types import EnvConstructor

__all__ = ["resize"]


def resize(env: Any, num_envs: Any, constructors: Any, num_workers: Any) -> None:
    """Implements `PoolEnvironment.resize`, for a pool that owes no answer."""
    rows = checked_size("num_envs", num_envs)
    if constructors is not None and rows <= env._rows:
        raise ValueError(
            "constructors must be left out where no row is added: it says what builds "
            f"new environments. The pool has {counted(env._rows, 'row')}, and num_envs "
            f"is {rows}."
        )
    if num_workers is not None:
        num_workers = checked_size("num_workers", num_workers)
    if rows == env._rows:
        return
    _refuse_reliance(env)
    if rows < env._rows:
        _check_cut(env, rows)
        env._pool.check_alive(env._everyone[:rows], "resize")
        _shrink(env, rows)
        return
    env._pool.check_alive(env._everyone, "resize")
    more = _new_constructors(env, rows, constructors)
    workers = _new_workers(env, len(more), num_workers)
    _grow(env, more, rows, workers)


def _refuse_reliance(env: Any) -> None:
    """Raises if an object relies on the number of rows."""
    if env._relying():
        # A dropped wrapper may only be waiting for garbage collection.
        gc.collect()
    if kinds := env._relying():
        raise CallOrderError(
            f"resize() was called while {a_or_an(kinds[0])} is around the pool, which "
            f"was made for {counted(env._rows, 'row')}. Resize the pool first and wrap "
            "it then; one that has been wrapped can be resized when its wrappers are "
            "gone: del env."
        )


def _check_cut(env: Any, rows: int) -> None:
    """Raises if only some rows of a batched environment would remain."""
    pool = env._pool
    for index, block in enumerate(pool.rows_of_env):
        if block.start < rows < block.stop:
            raise ValueError(
                f"num_envs must not be {rows}: rows {block.start} to {block.stop - 1} "
                f"are one environment (env {index}) that is a batch itself. It stays "
                f"with {block.stop} rows, and goes with {block.start}."
            )
    for worker, (first, stop) in enumerate(pool.layout.blocks):
        if first < rows < stop and not env._backend.cuts_workers:
            raise ValueError(
                f"num_envs must not be {rows}: rows {first} to {stop - 1} are one "
                f"session of a server (worker {worker}), which is as large as it was "
                f"opened. It stays with {stop} rows, and goes with {first}."
            )


def _new_constructors(env: Any, rows: int, given: Any) -> list[EnvConstructor]:
    """Returns the constructors for new rows."""
    if given is not None:
        elsewhere = takes_names(env._backend)
        return as_constructors(given, "resize()", elsewhere=elsewhere)
    first, *others = env._constructors
    if any(each is not first and each != first for each in others):
        raise ValueError(
            "resize() must be given constructors, because the environments of this "
            "pool have different ones: resize(num_envs, constructors), with a list of "
            "those of the new environments."
        )
    size = len(env._pool.rows_of_env[0])
    count, left = divmod(rows - env._rows, size)
    if left:
        raise ValueError(
            f"num_envs must be {env._rows} and a multiple of {size}, because each "
            f"environment of this pool is a batch of {size} rows, got {rows}."
        )
    return [first] * count


def _new_workers(env: Any, envs: int, given: int | None) -> int:
    """Returns how many workers share new environments.

    By default, each gets as many as the present workers have, with no more new workers
    than the usual number or the number of new environments.
    """
    backend, known = env._backend, env.num_workers
    count = given
    if count is None:
        share = math.ceil(len(env._pool.rows_of_env) / known)
        usual = max(backend.usual_workers(), known)
        count = min(math.ceil(envs / share), usual)
    places = backend.places()
    free = envs if places is None else places - known
    if free < 1 or (given is not None and min(given, envs) > free):
        more = ""
        if hasattr(backend, "add_workers"):
            more = " Give it more commands before: backend.add_workers(commands)."
        raise ValueError(
            f"The backend has places for {counted(places or 0, 'worker')}, of which "
            f"{max(free, 0)} can be had: new rows need workers of their own.{more}"
        )
    return min(count, envs, free)


def _shrink(env: Any, rows: int) -> None:
    pool = env._pool
    envs = sum(block.start < rows for block in pool.rows_of_env)
    try:
        pool.shrink(envs)
    finally:
        if pool.num_rows == rows:
            _adopt_size(env, env._constructors[:envs])


def _grow(env: Any, more: Sequence[EnvConstructor], rows: int, workers: int) -> None:
    pool, before, known = env._pool, env._rows, env._constructors
    # If they are reset here, that brings them into the slot of the others.
    pool.grow(more, workers, rows, lag=int(env._has_begun()))
    try:
        _adopt_size(env, [*known, *more])
        _seed(env, len(known))
        env._begin_new(np.arange(before, rows))
    except BaseException:
        _shrink(env, before)
        raise


def _seed(env: Any, first: int) -> None:
    """Seeds new environments, if the pool was seeded with one seed for all."""
    pool, seed = env._pool, env._envkit.seed
    if seed is None or np.ndim(seed):
        return
    seeds = seed_per_row(seed, env._rows)
    by_env = [
        [seeds[row] for row in rows] if pool.is_batch[index] else seeds[rows[0]]
        for index, rows in enumerate(pool.rows_of_env)
    ]
    new = range(first, len(by_env))
    ask(env, "seed", new, by_env[first:])


def _adopt_size(env: Any, constructors: list[EnvConstructor]) -> None:
    """Updates everything in a pool that depends on the number of rows."""
    env._constructors = constructors
    env._adopt_size()
    env._raised = {row: told for row, told in env._raised.items() if row < env._rows}
    seed = env._envkit.seed
    if seed is not None and np.ndim(seed):
        missing = [None] * (env._rows - len(seed))
        record_seed(env, [*seed[: env._rows], *missing])
