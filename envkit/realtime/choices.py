"""Looks at what a `RealTimeEnvironment` is told, before anything is built."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

from envkit.realtime.late_actions import check_way
from envkit.realtime.schedule import OVERRUNS, Schedule
from envkit.specs.validation import describe

__all__ = ["as_seconds", "check_choices", "is_environment"]

HOSTS = ("process", "thread", "virtual")


def check_choices(make_env: Any, told: Mapping[str, Any]) -> None:
    """Refuses choices that make no sense, whatever the environment.

    Args:
        make_env: What makes the environment, or the environment.
        told: The keyword arguments, by name.
    """
    host = told["host"]
    _check_choice("host", host, HOSTS)
    _check_choice("at_end", told["at_end"], ("run", "pause"))
    _check_choice("merge", told["merge"], ("discounted", "sum"))
    _check_choice("overrun", told["overrun"], OVERRUNS)
    _check_wait(told["wait"])
    _check_count("act_every", told["act_every"])
    check_way(told["late_action"])
    if told["hz"] is not None:
        Schedule(told["hz"])
    _check_host(host, told)
    if host == "process" and is_environment(make_env):
        raise TypeError(
            f"make_env is the environment {describe(make_env)}, which exists already, "
            "and the clock runs in another process. Pass what makes it, or use "
            "host='thread'."
        )


def _check_host(host: str, told: Mapping[str, Any]) -> None:
    """Refuses what is for another host."""
    think_time, timeout = told["think_time"], told["reset_timeout"]
    if think_time is not None and host != "virtual":
        raise ValueError(
            f"think_time is for host='virtual'; with host={host!r} the agent "
            "thinks for as long as it does."
        )
    if not (think_time in (None, "measured") or callable(think_time)):
        as_seconds("think_time", think_time)
    if timeout is not None:
        as_seconds("reset_timeout", timeout)
        if host == "virtual":
            raise ValueError(
                "reset_timeout is for clocks that run by themselves; with "
                "host='virtual' everything waits for the environment."
            )
    if told["worker_options"] and host != "process":
        raise ValueError(
            f"worker_options are for host='process'; with host={host!r} there is no "
            "worker."
        )


def as_seconds(name: str, value: Any) -> float:
    """Returns a number of seconds, or refuses what is none.

    Example:
        >>> as_seconds("think_time", 1)
        1.0
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:
        raise ValueError(f"{name} is {describe(value)}; it is a number of seconds.")
    return float(value)


def is_environment(value: Any) -> bool:
    """Says whether it is an environment, and not what makes one."""
    return hasattr(value, "time_step_spec") and not isinstance(value, type)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(
            f"{name} is {describe(value)}; it is one of "
            f"{', '.join(map(repr, choices))}."
        )


def _check_wait(wait: Any) -> None:
    if wait in ("next", "newest"):
        return
    is_number = isinstance(wait, numbers.Real) and not isinstance(wait, bool)
    if not is_number or not 0 <= wait < math.inf:
        raise ValueError(
            f"wait is {describe(wait)}; it is 'next', 'newest', or a number of seconds."
        )


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} is {describe(value)}; it is a number of ticks.")
    if value < 1:
        raise ValueError(f"{name} is {value}; it is at least one tick.")
