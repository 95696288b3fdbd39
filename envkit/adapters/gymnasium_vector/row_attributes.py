"""Attributes and methods of the environments in a batch, with a value for each row.

Where the rows are environments in workers, the workers are asked; where they are
environments in this process, these; and where a batch is one object, its value stands
for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envkit.wording import counted
from envkit.wrappers.base import set_attribute

__all__ = [
    "blocks_of",
    "call_rows",
    "envs_of",
    "get_rows",
    "own_or_first",
    "set_in_workers",
    "set_rows",
    "values_by_row",
]

# They would move environments behind the back of whoever keeps the time steps.
_MOVES = ("reset", "step", "close")


def call_rows(
    env: Any, name: str, args: tuple[Any, ...] = (), kwargs: Any = None
) -> tuple[Any, ...]:
    """Calls a method of every environment; an attribute that is none is returned.

    Example:
        >>> from envkit import BatchedPyEnvironment
        >>> from envkit.testing import CountingEnv
        >>> env = BatchedPyEnvironment([CountingEnv(), CountingEnv()])
        >>> call_rows(env, "get_info"), call_rows(env, "batched")
        (({}, {}), (False, False))
    """
    kwargs = kwargs or {}
    if name in _MOVES:
        raise ValueError(
            f"call({name!r}) would move environments behind the batch's back. Use "
            f"{name}() itself."
        )
    if _is_in_workers(env):
        return _by_row(env, _ask_workers(env, name, args, kwargs))
    results = [
        found(*args, **kwargs) if callable(found := getattr(one, name)) else found
        for one in _objects(env)
    ]
    return _by_row(env, results)


def get_rows(env: Any, name: str) -> tuple[Any, ...]:
    """Returns an attribute of every environment."""
    if _is_in_workers(env):
        return _by_row(env, env.access(name))
    return _by_row(env, [getattr(one, name) for one in _objects(env)])


def set_rows(env: Any, name: str, values: Any) -> None:
    """Sets an attribute of every environment.

    Args:
        env: The batch.
        name: The attribute.
        values: A list or a tuple with one for each row, or one for all.
    """
    is_one = not isinstance(values, list | tuple)
    by_env = _by_env(env, name, values_by_row(values, env.batch_size))
    if not _is_in_workers(env):
        for one, value in zip(_objects(env), by_env, strict=True):
            set_attribute(one, name, value)
    elif is_one:
        set_in_workers(env, name, values)
    else:
        for index, value in enumerate(by_env):
            set_in_workers(env, name, value, [index])


def values_by_row(values: Any, rows: int) -> Sequence[Any]:
    """Returns a value for each row of what `set_rows` is given."""
    if not isinstance(values, list | tuple):
        return [values] * rows
    if len(values) != rows:
        raise ValueError(
            f"{counted(len(values), 'value')} for {counted(rows, 'environment')}. Pass "
            "a list with one for each, or a single value for all."
        )
    return values


def envs_of(env: Any) -> list[Any] | None:
    """Returns a batch's environments, or handles on them, if it has some."""
    envs = getattr(env, "envs", None)
    if isinstance(envs, list) and envs and hasattr(envs[0], "time_step_spec"):
        return envs
    return None


def own_or_first(env: Any, name: str) -> Any:
    """Returns a batch's attribute, or that of its first environment, or `None`."""
    own = getattr(env, name, None)
    envs = envs_of(env)
    return own if own is not None or envs is None else getattr(envs[0], name, None)


def blocks_of(env: Any) -> list[range] | None:
    """Returns the rows of each of a batch's environments, if it has some.

    In a pool an environment may be a batch itself, of several rows.
    """
    envs = envs_of(env)
    if envs is None:
        return None
    if len(envs) == env.batch_size:
        return [range(row, row + 1) for row in range(len(envs))]
    rows = [getattr(handle, "rows", None) for handle in envs]
    return [block for block in rows if isinstance(block, range)]


def _is_in_workers(env: Any) -> bool:
    return callable(getattr(env, "call", None)) and callable(
        getattr(env, "access", None)
    )


def _objects(env: Any) -> list[Any]:
    envs = envs_of(env)
    return [env] if envs is None else envs


def _by_row(env: Any, results: Sequence[Any]) -> tuple[Any, ...]:
    """Repeats what an environment of several rows has answered."""
    if len(results) == env.batch_size:
        return tuple(results)
    blocks = blocks_of(env) or [range(env.batch_size)]
    return tuple(
        result for result, block in zip(results, blocks, strict=True) for _ in block
    )


def _by_env(env: Any, name: str, values: Sequence[Any]) -> list[Any]:
    """Returns one value for each environment, which may have several rows."""
    blocks = blocks_of(env) or [range(env.batch_size)]
    chosen = []
    for block in blocks:
        first = values[block.start]
        if any(values[row] is not first for row in block):
            raise ValueError(
                f"Rows {block.start} to {block.stop - 1} are one object, which cannot "
                f"have several values of {name!r}. Pass one value for all of them."
            )
        chosen.append(first)
    return chosen


def _ask_workers(env: Any, name: str, args: Any, kwargs: Any) -> list[Any]:
    try:
        return env.call(name, *args, **kwargs)  # type: ignore[no-any-return]  # a list
    except TypeError as error:
        if args or kwargs or "object is not callable" not in str(error):
            raise
        return env.access(name)  # type: ignore[no-any-return]  # a list


def set_in_workers(
    env: Any, name: str, value: Any, env_ids: Sequence[int] | None = None
) -> None:
    """Sets an attribute of environments that are asked with `call` and `access`."""
    if getattr(env, "vector_env", None) is None:
        env.set_attr(name, value, env_ids=env_ids)
    else:  # The `set_attr` of Gymnasium's takes a value for each row, and no rows.
        env.call("set_wrapper_attr", name, value, env_ids=env_ids)
