"""Asks the environments of a pool: calls, attributes, seeds, options, pictures."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit.errors import SpecError, WorkerError
from envkit.specs.validation import describe
from envkit.types import Array

if TYPE_CHECKING:
    from envkit.parallel.pool import Pool

__all__ = [
    "among_all",
    "ask",
    "check_name",
    "render",
    "seed_rows",
    "send_options",
]


def check_name(name: Any) -> None:
    """Raises if a value is not a name, or is a private one."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {describe(name)}.")
    if name.startswith("_"):
        raise AttributeError(
            f"{name!r} is private to the environment; only public names are forwarded."
        )


def ask(
    facade: Any,
    method: str,
    envs: Sequence[int] | None,
    values: Sequence[Any] | None = None,
    *,
    tries: float = 1,
) -> list[Any]:
    """Asks all or some environments a question, and raises their exceptions.

    Args:
        facade: The pool.
        method: The question.
        envs: The environments; `None` for all.
        values: What each is asked.
        tries: How often to ask all of them if one of their workers is lost and
            replaced. After 2, a worker that was dead before does no harm, and one that
            the question itself kills does not use up the restarts.
    """
    everyone = range(len(facade._pool.rows_of_env))
    envs = everyone if envs is None else envs
    values = [None] * len(envs) if values is None else values
    if not envs:
        return []
    with facade._marking_raised():
        results = _answers(facade._pool, method, envs, values, tries)
    facade._pool.raise_failures(envs, results)
    return results


def _answers(
    pool: Pool, method: str, envs: Sequence[int], values: Sequence[Any], tries: float
) -> list[Any]:
    while True:
        tries -= 1
        try:
            return pool.ask(method, envs, values)
        except WorkerError:
            if tries < 1 or not set(envs).issubset(pool.present_envs()):
                raise


def seed_rows(facade: Any, seeds: list[int | None]) -> None:
    """Seeds some rows; those with a seed of `None` keep their random numbers."""
    by_env = [[seeds[row] for row in rows] for rows in facade._pool.rows_of_env]
    envs = [
        env for env, own in enumerate(by_env) if any(seed is not None for seed in own)
    ]
    ask(facade, "seed_rows", envs, [by_env[env] for env in envs], tries=math.inf)


def among_all(facade: Any, values: Sequence[Any], rows: Array) -> list[Any]:
    """Returns a list with a value for each row: `None` for rows not in `rows`."""
    by_row: list[Any] = [None] * facade._rows
    for row, value in zip(rows.tolist(), values, strict=True):
        by_row[row] = value
    return by_row


def send_options(facade: Any, options: Any, rows: Array | None) -> None:
    """Sends options to the environments before the reset that uses them."""
    facade._settle()
    asked = {}
    for env, block in enumerate(facade._pool.rows_of_env):
        own = [options[row] if rows is None or rows[row] else None for row in block]
        if any(one is not None for one in own):
            mask = None if rows is None or rows[block].all() else rows[block]
            is_batch = facade._pool.is_batch[env]
            asked[env] = (own, mask) if is_batch else (own[0], None)
    envs = list(asked)
    try:
        ask(facade, "reset", envs, list(asked.values()), tries=math.inf)
    except Exception:
        # Take back the options that other environments got: their next reset must not
        # use them.
        with contextlib.suppress(WorkerError):
            ask(facade, "reset", envs, [(None, None)] * len(envs))
        raise


def render(facade: Any, envs: Sequence[int], mode: str) -> Any:
    """Returns stacked pictures, or a list of the environments' own results."""
    pictures = ask(facade, "render", envs, [mode] * len(envs))
    if mode != "rgb_array" or not pictures:
        return _by_row(facade, envs, pictures)
    stacks = [
        np.asarray(picture) if facade._pool.is_batch[env] else np.asarray(picture)[None]
        for env, picture in zip(envs, pictures, strict=True)
    ]
    for env, stack in zip(envs, stacks, strict=True):
        if stack.shape[1:] != stacks[0].shape[1:]:
            raise SpecError(
                f"The pictures of env {envs[0]} and env {env} have the shapes "
                f"{stacks[0].shape[1:]} and {stack.shape[1:]}; those of a batch "
                f"have one size. For each as it is: call('render', {mode!r})."
            )
    return np.concatenate(stacks)


def _by_row(facade: Any, envs: Sequence[int], found: Sequence[Any]) -> list[Any]:
    """Returns the rendered results by row, splitting those of batched environments."""
    by_row: list[Any] = []
    for env, one in zip(envs, found, strict=True):
        rows = len(facade._pool.rows_of_env[env])
        is_listed = isinstance(one, list | tuple) and len(one) == rows
        by_row += one if facade._pool.is_batch[env] and is_listed else [one] * rows
    return by_row
