"""Reads and sets the attributes, infos and endings of a batch's rows.

Rows may be environments in workers, environments in this process, or one object for all
rows, whose attributes then count for each row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.adapters.foreign import handed_options, told_of_losses
from envkit.adapters.gymnasium.infos import (
    Flags,
    InfosOfSome,
    RowInfos,
    block_infos,
    row_infos,
)
from envkit.extend import counted, listed, may_lose, set_attribute
from envkit.losses import Loss
from envkit.time_step import TimeStep
from envkit.types import Array

__all__ = [
    "BatchRows",
    "blocks_of",
    "call_rows",
    "check_call",
    "check_infos",
    "envs_of",
    "get_rows",
    "own_or_first",
    "set_rows",
    "values_by_row",
]


def call_rows(
    env: Any,
    name: str,
    args: tuple[Any, ...] = (),
    kwargs: Any = None,
    rows: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """Calls a method of every environment, or returns an attribute.

    Args:
        env: The batch.
        name: The method or attribute.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        rows: The rows; `None` for all.

    Raises:
        ValueError: These rows are not separate environments.

    Example:
        >>> from envkit import BatchedPyEnvironment
        >>> from envkit.testing import CountingEnv
        >>> env = BatchedPyEnvironment([CountingEnv(), CountingEnv()])
        >>> call_rows(env, "get_info"), call_rows(env, "batched", rows=[1])
        (({}, {}), (False,))
    """
    kwargs = kwargs or {}
    check_call(name)
    ids, objects = _asked(env, rows)
    if objects is None:
        return _by_row(env, _ask_workers(env, name, args, kwargs, ids), ids)
    results = [
        found(*args, **kwargs) if callable(found := getattr(one, name)) else found
        for one in objects
    ]
    return _by_row(env, results, rows)


def check_call(name: str) -> None:
    """Raises for methods that step environments, because the batch must know."""
    if name in ("reset", "step", "close"):
        raise ValueError(
            f"call({name!r}) would move environments behind the batch's back. Use "
            f"{name}() itself."
        )


def get_rows(env: Any, name: str, rows: Sequence[int] | None = None) -> tuple[Any, ...]:
    """Returns an attribute of every environment, or of some rows'."""
    ids, objects = _asked(env, rows)
    if objects is None:
        return _by_row(env, env.access(name, env_ids=ids), rows)
    return _by_row(env, [getattr(one, name) for one in objects], rows)


def set_rows(
    env: Any, name: str, values: Any, rows: Sequence[int] | None = None
) -> None:
    """Sets an attribute of every environment.

    Args:
        env: The batch.
        name: The attribute.
        values: A list or tuple with a value per row, or one value for all.
        rows: The rows; `None` for all.
    """
    ids, objects = _asked(env, rows)
    by_env = values_by_row(values, env.batch_size if rows is None else len(rows))
    if rows is None or len(rows) == env.batch_size:
        by_env = _by_env(env, name, by_env)
    if objects is not None:
        for one, value in zip(objects, by_env, strict=True):
            set_attribute(one, name, value)
    elif not isinstance(values, list | tuple):
        _set_in_workers(env, name, values, ids)
    else:
        for one, value in zip(ids or range(len(by_env)), by_env, strict=True):
            _set_in_workers(env, name, value, [one])


def values_by_row(values: Any, rows: int) -> Sequence[Any]:
    """Returns a value for each row from an argument of `set_rows`."""
    if not isinstance(values, list | tuple):
        return [values] * rows
    if len(values) != rows:
        raise ValueError(
            f"{counted(len(values), 'value')} for {counted(rows, 'environment')}. Pass "
            "a list with one for each, or a single value for all."
        )
    return values


def envs_of(env: Any) -> list[Any] | None:
    """Returns a batch's environments, or handles on them, if there are any."""
    envs = getattr(env, "envs", None)
    if isinstance(envs, list) and envs and hasattr(envs[0], "time_step_spec"):
        return envs
    return None


def own_or_first(env: Any, name: str) -> Any:
    """Returns a batch's attribute, else its first environment's, else `None`."""
    own = getattr(env, name, None)
    envs = envs_of(env)
    return own if own is not None or envs is None else getattr(envs[0], name, None)


def blocks_of(env: Any) -> list[range] | None:
    """Returns the rows of each of a batch's environments, if it has any.

    An environment in a pool may itself be a batch of several rows.
    """
    envs = envs_of(env)
    if envs is None:
        return None
    if len(envs) == env.batch_size:
        return [range(row, row + 1) for row in range(len(envs))]
    rows = [getattr(handle, "rows", None) for handle in envs]
    return [block for block in rows if isinstance(block, range)]


def _asked(
    env: Any, rows: Sequence[int] | None
) -> tuple[Sequence[int] | None, list[Any] | None]:
    """Returns the ids of workers to ask, `None` for all; or the objects to ask."""
    envs, names = envs_of(env), ("call", "access")
    if rows is None or list(rows) == list(range(env.batch_size)):
        is_in_workers = all(callable(getattr(env, name, None)) for name in names)
        return None, None if is_in_workers else envs or [env]
    # Not if it is merely forwarded: a wrapper may have the attribute itself.
    is_in_workers = all(callable(getattr(type(env), name, None)) for name in names)
    if envs is None and is_in_workers:
        return rows, None
    if envs is not None and len(envs) == env.batch_size:
        return rows, None if is_in_workers else [envs[row] for row in rows]
    raise ValueError(
        f"{type(env).__name__} has several rows in one object, which cannot be asked "
        f"about rows {listed(rows)} alone. Leave the indices out."
    )


def _by_row(
    env: Any, results: Sequence[Any], rows: Sequence[int] | None
) -> tuple[Any, ...]:
    """Repeats an environment's answer for each of its rows."""
    if len(results) == (env.batch_size if rows is None else len(rows)):
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


def _ask_workers(
    env: Any, name: str, args: Any, kwargs: Any, ids: Sequence[int] | None
) -> list[Any]:
    try:
        return env.call(name, *args, env_ids=ids, **kwargs)  # type: ignore[no-any-return]  # a list
    except TypeError as error:
        if args or kwargs or "object is not callable" not in str(error):
            raise
        return env.access(name, env_ids=ids)  # type: ignore[no-any-return]  # a list


def _set_in_workers(env: Any, name: str, value: Any, ids: Sequence[int] | None) -> None:
    """Sets an attribute of environments that are reached with `call` and `access`."""
    if getattr(env, "vector_env", None) is None:
        env.set_attr(name, value, env_ids=ids)
    else:  # Gymnasium's `set_attr` takes a value per row and no rows
        env.call("set_wrapper_attr", name, value, env_ids=ids)


_INFOS = ("all", "final", "none")


def check_infos(infos: Any) -> None:
    """Raises unless `infos` is one of the three words."""
    if infos not in _INFOS:
        raise ValueError(
            f"infos must be one of {', '.join(map(repr, _INFOS))}, got {infos!r:.80}."
        )


class BatchRows:
    """Reads the infos, attributes and endings of a batch's or pool's rows."""

    def __init__(self, env: Any, wanted: str) -> None:
        """Takes a batch.

        Args:
            env: The batch.
            wanted: Which infos to read.
        """
        self._env = env
        self._name = type(env).__name__
        self._rows = int(env.batch_size)
        self._everyone = np.ones(self._rows, bool)
        self._wanted = wanted
        self._may_lose = may_lose(env)
        # The rows of each of a pool's environments. `None` if the method is merely
        # forwarded, because a wrapper may have its own infos.
        self._blocks: list[range] | None = None
        if callable(getattr(type(env), "rows_with_info", None)):
            self._blocks = blocks_of(env)
        if self._blocks is not None and wanted != "none":
            # Whether each environment is itself a batch, possibly of one row.
            self._batched = list(env.access("batched"))
            env.rows_with_info()  # makes workers report them from now on

    def prepared(
        self, mask: Array, seeds: list[int | None], options: list[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """Hands seeds and options to the masked rows for a reset inside the context.

        Programs for Gymnasium seed every environment and pass options to any. A line in
        the log reports seeds and options that are ignored.

        Args:
            mask: The rows.
            seeds: A seed or `None` for each row; `None` for rows outside the mask.
            options: Options or `None` for each row.
        """
        with told_of_losses("seed", self._name):
            self._seed(seeds)
        return handed_options(self._env, options, None if mask.all() else mask)

    def _seed(self, seeds: list[int | None]) -> None:
        known = sum(seed is not None for seed in seeds)
        if known == self._rows:
            self._env.seed(seeds)
        elif known and not self._env.seeds_rows:
            raise ValueError(
                f"{counted(known, 'seed')} for {counted(self._rows, 'row')} of "
                f"{self._name}, which seeds all of them or none."
            )
        elif known:
            self._env._envkit.seed_rows(self._env, seeds)

    def infos(self, ended: Array) -> RowInfos | None:
        """Reads the infos of a step, for all rows or for those that ended."""
        # Hot: called once per batch step.
        if self._wanted == "all":
            return self._ask(self._everyone)
        if self._wanted == "final" and np.count_nonzero(ended):
            found = self._ask(ended)
            return None if found is None else InfosOfSome(found, ended)
        return None

    def begun_infos(self, rows: Array, *, at_once: bool) -> RowInfos | None:
        """Reads the infos of rows that have just begun an episode.

        Args:
            rows: A mask of the rows.
            at_once: Whether they began in the step that ended the previous episode.
        """
        if self._wanted == "none" or (at_once and self._wanted != "all"):
            return None
        found: RowInfos | None
        if at_once and hasattr(self._env, "current_info"):
            found = row_infos(self._env.current_info(), self._rows, begun=True)
        else:
            found = self._ask(rows, has_left=at_once, begun=True)
        self._take_flags(found)
        return found

    def _take_flags(self, infos: RowInfos | None) -> Flags | None:
        """Removes the flags of endings from infos, if there are any."""
        return None if infos is None else infos.take_flags()

    def _ask(
        self, rows: Array, *, has_left: bool = False, begun: bool = False
    ) -> RowInfos | None:
        """Reads the infos of the batch, or of its environments with these rows.

        Args:
            rows: A mask of the rows.
            has_left: Whether to read the infos of the next episode's beginning while
                the batch still shows the previous end.
            begun: Whether infos of the beginning of an episode are wanted.
        """
        try:
            if self._blocks is None:
                return row_infos(self._env.get_info(), self._rows, begun=begun)
            return self._asked(self._blocks, rows, has_left, begun)
        except NotImplementedError:  # the environment has no infos
            self._wanted = "none"
            return None

    def _asked(
        self, blocks: list[range], rows: Array, has_left: bool, begun: bool
    ) -> RowInfos | None:
        """Reads the infos of the environments of a pool."""
        # Hot: called once per batch step, and most of the time there is no info.
        told = rows & self._env.rows_with_info(begun=has_left)
        if not np.count_nonzero(told):
            return None
        # The infos of batches are joined, so read all rows.
        chosen = rows if any(self._batched) else told
        envs = [
            env
            for env, block in enumerate(blocks)
            if chosen[block.start : block.stop].any()
        ]
        return block_infos(
            self._read(envs, has_left),
            [blocks[env] for env in envs],
            self._rows,
            [self._batched[env] for env in envs],
            begun=begun,
        )

    def _read(self, envs: list[int], has_left: bool) -> list[Any]:
        """Reads the infos of a pool's environments."""
        if has_left:
            return self._env.call("get_info", env_ids=envs)  # type: ignore[no-any-return]  # a list
        return self._env.get_infos(envs)  # type: ignore[no-any-return]  # a list

    def ends(
        self, shown: TimeStep, ended: Array, infos: RowInfos | None
    ) -> tuple[Array, Array]:
        """Returns masks of the rows that were terminated and of those truncated.

        It removes the flags from the infos. Without flags, a pool reports how episodes
        ended; otherwise discounts decide.
        """
        # Hot: called once per batch step.
        flags = self._take_flags(infos)
        if not np.count_nonzero(ended):
            return ended.copy(), ended.copy()
        if self._blocks is not None:
            terminated, truncated = self._env.ends()
        else:
            terminated = ended & (np.asarray(shown.discount) == 0.0)
            truncated = ended ^ terminated
        if flags is not None:
            told = ended & flags.given & (flags.terminated | flags.truncated)
            terminated = np.where(told, flags.terminated, terminated)
            truncated = np.where(told, flags.truncated, truncated)
        return terminated, truncated

    def losses(self, ended: Array) -> dict[int, Loss]:
        """Returns the losses behind those ends of episodes that are made up, by row."""
        # Hot: called once per batch step in which an episode ends.
        if not self._may_lose or not (self._env.repaired & ended).any():
            return {}
        losses = self._env.current_losses().items()
        return {row: loss for row, loss in losses if ended[row]}

    def call(self, name: str, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment."""
        return call_rows(self._env, name, args, kwargs)

    def get(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every environment."""
        return get_rows(self._env, name)

    def set(self, name: str, values: Any) -> None:
        """Sets an attribute of every environment."""
        set_rows(self._env, name, values)
