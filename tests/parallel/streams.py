"""Comparing what environments return: to the last bit, and as sets of transitions."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment
from envkit.distributed.links import linked
from envkit.time_step import AutoReset, StepType, TimeStep

BACKENDS = ("inline", "thread", "process")
EVERYWHERE = (*BACKENDS, "linked") if sys.platform == "linux" else BACKENDS


def pool_of(
    constructors: Sequence[Any],
    backend: Any = "inline",
    *,
    kind: Any = ParallelPyEnvironment,
    **options: Any,
) -> Any:
    """Makes a pool whose workers start at the same time, as forks if possible.

    A fork server takes longer to start than most tests.
    """
    options.setdefault("start_serially", False)
    if backend == "process":
        options.setdefault("start_method", "fork")
    elif backend == "linked":
        backend = linked(["envkit worker {address}"] * 2)
    return kind(constructors, backend=backend, **options)


async_pool_of = functools.partial(pool_of, kind=AsyncParallelPyEnvironment)


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """Names the places where two nests differ: in type, dtype, shape or any bit."""
    if isinstance(expected, dict):
        if type(expected) is not type(actual) or list(expected) != list(actual):
            return [f"{path}: {actual!r} instead of {expected!r}"]
        pairs = [(f"[{key!r}]", expected[key], actual[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        if type(expected) is not type(actual) or len(expected) != len(actual):
            return [f"{path}: {actual!r} instead of {expected!r}"]
        pairs = [
            (f"[{index}]", *pair)
            for index, pair in enumerate(zip(expected, actual, strict=True))
        ]
    else:
        if _same_bits(expected, actual):
            return []
        return [f"{path}: {type(actual)} {actual!r} instead of {expected!r}"]
    return [
        text
        for place, one, other in pairs
        for text in differences(one, other, path + place)
    ]


def _same_bits(expected: Any, actual: Any) -> bool:
    if not isinstance(actual, np.ndarray | np.generic):
        return False
    one, other = np.asarray(expected), np.asarray(actual)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.hasobject:
        return one.tolist() == other.tolist()
    return one.tobytes() == other.tobytes()


def stacked(rows: Sequence[Any]) -> Any:
    """Stacks plain nests of arrays; dtypes stay as they are."""
    first = rows[0]
    if isinstance(first, dict):
        return {key: stacked([row[key] for row in rows]) for key in first}
    if isinstance(first, list | tuple):
        parts = [stacked(column) for column in zip(*rows, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    array = np.empty((len(rows), *np.shape(first)), np.asarray(first).dtype)
    for index, row in enumerate(rows):
        array[index] = row
    return array


def row_of(nest: Any, row: int) -> Any:
    """Takes one row out of a batch, as arrays."""
    if isinstance(nest, dict):
        return {key: row_of(value, row) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        parts = [row_of(value, row) for value in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)
    return np.asarray(nest[row])


def leaves_of(nest: Any) -> Iterator[Any]:
    """Yields the arrays of a plain nest."""
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, list | tuple):
        for child in nest:
            yield from leaves_of(child)
    else:
        yield nest


def bits_of(nest: Any) -> bytes:
    """Returns all that the arrays of a nest hold."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in leaves_of(nest))


def digest_of(time_steps: Sequence[Any]) -> str:
    """Sums up a stream: equal for equal bits."""
    digest = hashlib.sha256()
    for time_step in time_steps:
        for leaf in leaves_of(time_step):
            array = np.asarray(leaf)
            digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def play(env: Any, actions: Sequence[Any]) -> list[TimeStep]:
    """Resets, then steps with each action."""
    return [env.reset(), *(env.step(action) for action in actions)]


def played(env: Any, order: AutoReset, steps: int = 30) -> list[Any]:
    """Plays five `Walk`s on under an order; returns all that can be seen of it."""
    env.autoreset = order
    env.seed([3, 4, 5, 6, 7])
    time_step = env.reset()
    seen: list[Any] = [time_step]
    rng = np.random.default_rng(0)
    for step in range(steps):
        actions = rng.random((5, 2), np.float32)
        if order is AutoReset.DISABLED and time_step.is_last().any():
            time_step = env.reset(time_step.is_last())
        elif step % 5 == 4 and order is AutoReset.NEXT_STEP:
            time_step = env.step(actions, np.arange(5) != step % 4)
        else:
            time_step = env.step(actions)
        seen += [time_step, env.get_info()]
    return seen


def is_grammatical(step_types: Sequence[int]) -> bool:
    """Says whether a stream is FIRST (MID)* LAST, repeated, its end perhaps missing."""
    expects_first = True
    for step_type in step_types:
        if (step_type == StepType.FIRST) != expects_first:
            return False
        expects_first = step_type == StepType.LAST
    return True


def messages_of(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """Makes each call and returns the errors' names and first lines."""
    told = {}
    for name, call in calls.items():
        told[name] = "no error"
        try:
            call()
        except Exception as error:
            told[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return told


@contextlib.contextmanager
def closing(*envs: Any) -> Iterator[None]:
    """Closes several environments in the end."""
    try:
        yield
    finally:
        for env in envs:
            env.close()
