"""`PoolOptions`: the options of a pool's constructor, checked once.

A new option is a line of `PoolOptions`, its check, and a parameter of the constructors.
The pool keeps the whole object, and each worker gets it with its job.
"""

from __future__ import annotations

import copy
import math
import numbers
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from envkit._internal.arguments import checked_flag
from envkit._internal.removed import refuse_auto_workers
from envkit.specs.validation import describe
from envkit.time_step import AutoReset

if TYPE_CHECKING:
    from envkit.parallel.restarts import RestartPolicy

__all__ = ["PoolOptions", "as_timeout", "as_worker_count"]

_START_METHODS = ("spawn", "forkserver", "fork")
_VALIDATE = ("always", "first", "never")


def as_worker_count(name: str, given: Any) -> int | None:
    """Returns a number of workers, or `None` for the default."""
    if given is None:
        return None
    if isinstance(given, str) and given == "auto":
        refuse_auto_workers()
    must = (
        f"{name} must be an integer of at least 1, or None for one worker per "
        "available CPU, got"
    )
    try:
        if isinstance(given, bool):
            raise TypeError
        count = operator.index(given)
    except TypeError:
        raise TypeError(f"{must} {describe(given)}.") from None
    if count < 1:
        raise ValueError(f"{must} {count}.")
    return count


def as_timeout(name: str, given: Any) -> float | None:
    """Returns seconds, or `None` for no limit."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise TypeError(
            f"{name} must be a positive number of seconds, or None, got "
            f"{describe(given)}."
        )
    seconds = float(given)
    if math.isnan(seconds) or seconds <= 0:
        raise ValueError(
            f"{name} must be a positive number of seconds, or None, got {given}."
        )
    return None if math.isinf(seconds) else seconds


def _as_bool(_: str, given: Any) -> bool:
    return bool(given)


def _as_order(_: str, given: Any) -> AutoReset:
    return AutoReset.of(given)


def _as_specs(_: str, given: Any) -> str:
    from envkit.specs.batching import as_specs  # workers don't need it

    return as_specs(given)


def _one_of(choices: tuple[str, ...]) -> Callable[[str, Any], str]:
    def check(name: str, given: Any) -> str:
        if given in choices:
            return str(given)
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices))}, got {given!r:.80}."
        )

    return check


def _as_policy(name: str, given: Any) -> str | RestartPolicy:
    if isinstance(given, str) and given == "raise":
        return given
    from envkit.parallel.restarts import RestartPolicy

    if isinstance(given, RestartPolicy):
        return given
    raise ValueError(
        f'{name} must be "raise" or a RestartPolicy(...), got {given!r:.80}.'
    )


def _as_variables(name: str, given: Any) -> dict[str, str] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(
        isinstance(part, str) for item in given.items() for part in item
    ):
        raise TypeError(
            f"{name} must map names of environment variables to strings, such as "
            f'{{"CUDA_VISIBLE_DEVICES": "0"}}, got {describe(given)}.'
        )
    return dict(given)


def _as_bytes(name: str, given: Any) -> int | None:
    must = f"{name} must be a whole number of bytes, such as 2 * 2**30, or None, got"
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, numbers.Integral):
        raise TypeError(f"{must} {describe(given)}.")
    if given < 1:
        raise ValueError(f"{must} {given}.")
    return int(given)


# Functions that return an option's value, or raise. Each accepts its own result.
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "num_workers": as_worker_count,
    "start_serially": _as_bool,
    "blocking": _as_bool,
    "autoreset": _as_order,
    "start_method": _one_of(_START_METHODS),
    "on_worker_failure": _as_policy,
    "start_timeout": as_timeout,
    "reset_timeout": as_timeout,
    "step_timeout": as_timeout,
    "worker_env": _as_variables,
    "zero_copy": _as_bool,
    "validate": _one_of(_VALIDATE),
    "specs": _as_specs,
    "eager_resets": checked_flag,
    "max_worker_memory": _as_bytes,
}


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Holds the options of a pool's constructor, which documents them.

    Only `rings_each_row` is not one: it is true for asynchronous pools, which wait for
    single rows.

    Example:
        >>> PoolOptions(step_timeout=5).step_timeout
        5.0
        >>> PoolOptions(validate="often")
        Traceback (most recent call last):
        ValueError: validate must be one of 'always', 'first', 'never', got 'often'.
    """

    num_workers: int | None = None
    start_serially: bool = True
    blocking: bool = False
    autoreset: AutoReset = AutoReset.NEXT_STEP
    start_method: str = "spawn"
    on_worker_failure: str | RestartPolicy = "raise"
    start_timeout: float | None = None
    reset_timeout: float | None = None
    step_timeout: float | None = None
    worker_setup: str | Callable[[], Any] | None = None
    worker_env: dict[str, str] | None = None
    zero_copy: bool = False
    validate: str = "first"
    specs: str = "equal"
    eager_resets: bool = False
    max_worker_memory: int | None = None
    rings_each_row: bool = False

    def __post_init__(self) -> None:
        """Checks every option."""
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> PoolOptions:
        """Picks the options out of a constructor's arguments."""
        names = [each.name for each in fields(cls) if each.name in given]
        return cls(**{name: given[name] for name in names})

    def without_setup(self) -> PoolOptions:
        """Returns the options without `worker_setup`, which is sent separately."""
        options = copy.copy(self)  # unlike replace(), it checks nothing again
        object.__setattr__(options, "worker_setup", None)
        return options

    @property
    def policy(self) -> RestartPolicy | None:
        """How failed workers are replaced; `None` if failures raise."""
        policy = self.on_worker_failure
        return None if isinstance(policy, str) else policy
