"""Defines environments that are not in lockstep: `AsyncEnvironment`.

`send` hands actions to some rows and returns at once; `recv` returns whichever rows are
ready. A row that is busy or resetting is not among the ids, so each row still produces
`FIRST (MID)* LAST`.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from envkit._internal.missing_names import explains_words
from envkit._internal.text import listed
from envkit.losses import LossReports
from envkit.py_environment import Specified
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, Options, ResetSeed, Seed

__all__ = [
    "AsyncBatch",
    "AsyncEnvironment",
    "as_envs",
    "check_env_ids",
]


Self = TypeVar("Self", bound="AsyncEnvironment")


class _Ready(NamedTuple):
    """Holds the parts of an `AsyncBatch` that unpack."""

    env_ids: Array
    time_step: TimeStep


@explains_words
class AsyncBatch(_Ready):
    """Holds the result of `recv`: rows that are ready, their time steps and infos.

    It is a tuple of the first two, so `env_ids, time_step = env.recv()` works.

    Attributes:
        env_ids: The rows, in the order in which they finished.
        time_step: Their time steps; row `i` of every array belongs to `env_ids[i]`.

    Example:
        >>> import numpy as np
        >>> from envkit import restart
        >>> steps = restart(np.array([5, 6]), batch_size=2)
        >>> batch = AsyncBatch(np.array([3, 1]), steps, {"fuel": np.array([0.5, 1.0])})
        >>> env_ids, time_step = batch
        >>> env_ids.tolist(), batch.info
        ([3, 1], {'fuel': array([0.5, 1. ])})
    """

    _info: Mapping[str, Any] | Exception

    def __new__(
        cls,
        env_ids: Array,
        time_step: TimeStep,
        info: Mapping[str, Any] | Exception | None = None,
    ) -> AsyncBatch:
        """Makes a batch.

        Args:
            env_ids: The rows.
            time_step: Their time steps.
            info: The value of `info`, or the error that reading it raises.
        """
        batch = super().__new__(cls, env_ids, time_step)
        batch._info = {} if info is None else info
        return batch

    @property
    def info(self) -> Mapping[str, Any]:
        """The values that `info_spec` declares for these rows' infos, as arrays.

        It is `{}` if environments declare none; `get_info` returns everything.

        Raises:
            WorkerError: An environment's `get_info` failed, or its info lacks a
                declared value. The time steps stay valid.
        """
        if isinstance(self._info, Exception):
            raise self._info
        return self._info

    def _replace(self, **changes: Any) -> AsyncBatch:
        parts = {**self._asdict(), "info": self._info, **changes}
        return type(self)(**parts)

    def __repr__(self) -> str:
        info = f"{self._info!r}" if self._info else "{}"
        return (
            f"{type(self).__name__}(env_ids={self.env_ids!r}, "
            f"time_step={self.time_step!r}, info={info})"
        )


@explains_words
class AsyncEnvironment(Specified, LossReports):
    """Defines a batch of environments, each of which takes its own time.

    The contract, for each row: after `reset_async` or `send`, the row owes one answer,
    and exactly one `recv` returns it. A row that owes an answer takes no action.
    """

    @property
    @abc.abstractmethod
    def num_envs(self) -> int:
        """The number of rows."""

    @property
    def continues_after_last(self) -> bool:
        """Whether the step after a `LAST` uses its action: no `FIRST` follows it."""
        return False

    @abc.abstractmethod
    def reset_async(
        self,
        env_ids: Sequence[int] | Array | None = None,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> None:
        """Starts an episode in the given rows, or in all; returns at once.

        Args:
            env_ids: The rows; `None` for all.
            seed: Seeds them first: one integer, from which row `i` gets the same stream
                as from `seed()`, or a list with one seed, or `None`, for each of
                `env_ids`.
            options: The options of this reset: a dictionary for all rows, or a list
                with one, or `None`, for each of `env_ids`.
        """

    @abc.abstractmethod
    def send(
        self, actions: NestedArray, env_ids: Sequence[int] | Array | None = None
    ) -> None:
        """Hands row `i` of the actions to `env_ids[i]`, or to row `i`; returns at once.

        Actions that do not fit are refused before any row has received one.
        """

    @abc.abstractmethod
    def recv(
        self, count: int | None = None, timeout: float | None = None
    ) -> AsyncBatch:
        """Returns rows that have finished, in the order in which they did.

        Args:
            count: How many rows to wait for; `None` waits for all that owe an answer.
            timeout: Seconds after which to return the rows that are ready, possibly
                none.

        Raises:
            CallOrderError: No row owes an answer, or fewer than `count` do.
        """

    def seed(self, seed: Seed) -> Any:
        """Makes all randomness from the next reset on depend on `seed` alone."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot be seeded: override seed(seed)."
        )

    def close(self) -> None:  # nothing to free unless a subclass says so
        """Frees the environment's resources; later calls do nothing."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def as_envs(env_ids: Sequence[int] | None, count: int) -> list[int]:
    """Returns the environments listed in `env_ids`, or all of them for `None`.

    Args:
        env_ids: Indices of environments, without repetition.
        count: The number of environments.

    Example:
        >>> as_envs([2, 0], 3), as_envs(None, 3)
        ([2, 0], [0, 1, 2])
    """
    if env_ids is None:
        return list(range(count))
    try:
        envs = [operator.index(env) for env in np.asarray(env_ids).tolist()]
    except TypeError:
        raise TypeError(
            f"env_ids must be a list of indices such as [3], got {describe(env_ids)}."
        ) from None
    wrong = [env for env in envs if not 0 <= env < count]
    if wrong or len(set(envs)) < len(envs):
        what = f"has {wrong[0]}" if wrong else "names an environment twice"
        raise ValueError(
            f"env_ids {what}; there are {count} environments, 0 to {count - 1}."
        )
    return envs


def check_env_ids(given: Any, rows: Array, count: int) -> None:
    """Raises unless the ids are a list of different rows.

    Args:
        given: The caller's value, for the message.
        rows: The same ids as an array.
        count: The number of rows.

    Example:
        >>> import numpy as np
        >>> check_env_ids([0, 7], np.array([0, 7]), 4)
        Traceback (most recent call last):
        ValueError: env_ids has 7; there are 4 environments, 0 to 3.
    """
    # Hot: called once per send.
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise TypeError(
            f"env_ids must be a list of row numbers, such as the env_ids that recv() "
            f"returned, got {describe(given)}."
        )
    # For so few numbers, Python's min is faster than NumPy's.
    distinct: set[int] = set(rows.tolist())
    if distinct and (min(distinct) < 0 or max(distinct) >= count):
        wrong = rows[(rows < 0) | (rows >= count)]
        raise ValueError(
            f"env_ids has {listed(wrong)}; there are {count} environments, 0 "
            f"to {count - 1}."
        )
    if len(distinct) < rows.size:
        raise ValueError(
            "env_ids names an environment twice; each takes one action at a time."
        )
