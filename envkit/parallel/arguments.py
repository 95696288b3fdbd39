"""What pools are given, checked: constructors, numbers, timeouts, names of backends."""

from __future__ import annotations

import importlib
import math
import numbers
import operator
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envkit import constructors
from envkit.parallel.cpus import available_cpus
from envkit.specs.validation import describe
from envkit.types import EnvConstructor

if TYPE_CHECKING:
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.supervision import RestartPolicy

__all__ = [
    "as_backend",
    "as_constructors",
    "as_policy",
    "as_timeout",
    "as_validate",
    "as_worker_count",
    "check_name",
]

# By name, so that nothing is imported that is not used.
BACKENDS = {
    "inline": "envkit.parallel.backends.inline:InlineBackend",
    "thread": "envkit.parallel.backends.thread:ThreadBackend",
    "process": "envkit.parallel.backends.process:ProcessBackend",
}
START_METHODS = ("spawn", "forkserver", "fork")
VALIDATE = ("always", "first", "never")


def as_constructors(given: Any, pool: str) -> list[EnvConstructor]:
    """Returns what to call for each environment."""
    if isinstance(given, str) or callable(given) or hasattr(given, "time_step_spec"):
        kind = describe(given)
        if isinstance(given, type):
            kind = f"the class {given.__name__}"
        raise TypeError(
            f"env_constructors is {kind}; {pool} needs a list with one constructor "
            "for each environment:\n\n"
            f'  {pool}(["my_game.envs:make"] * 8)\n'
            f"  {pool}([MyEnv] * 8)"
        )
    if not isinstance(given, Sequence):
        try:
            given = list(given)
        except TypeError:
            raise TypeError(
                f"env_constructors is {describe(given)}; {pool} needs a list with one "
                "constructor for each environment."
            ) from None
    if not given:
        raise ValueError(
            "env_constructors is empty; a pool has at least one environment."
        )
    return [_as_constructor(entry, index, pool) for index, entry in enumerate(given)]


def _as_constructor(entry: Any, index: int, pool: str) -> EnvConstructor:
    if isinstance(entry, str):
        return constructors.constructor(entry)
    if hasattr(entry, "time_step_spec") and not isinstance(entry, type):
        kind = type(entry).__name__
        raise TypeError(
            f"env_constructors[{index}] is a {kind} object; {pool} needs something to "
            "call that makes one.\n\n"
            "Each environment is built inside its own worker, so pass the recipe:\n\n"
            f"  {pool}([{kind}(...)])                       # the finished dish\n"
            f"  {pool}([functools.partial({kind}, ...)])    # the recipe\n"
            f'  {pool}(["my_game.envs:make"])               # the recipe, by name'
        )
    if not callable(entry):
        raise TypeError(
            f"env_constructors[{index}] is {describe(entry)}, which is non-callable; "
            f"{pool} needs something to call that makes an environment, or a name."
        )
    return entry  # type: ignore[no-any-return]  # callable() says so


def as_worker_count(given: Any, envs: int) -> int:
    """Returns how many workers there are to be: no more than environments."""
    if given is None:
        return min(available_cpus(), envs)
    try:
        if isinstance(given, bool):
            raise TypeError
        count = operator.index(given)
    except TypeError:
        raise TypeError(
            f"num_workers is {describe(given)}; it is an integer, or None for one "
            "worker per available CPU."
        ) from None
    if count < 1:
        raise ValueError(f"num_workers is {count}; a pool has at least one worker.")
    return min(count, envs)


def as_backend(
    given: Any, start_method: Any, worker_env: Mapping[str, str] | None
) -> Backend:
    """Returns the backend that a name stands for, or the one that was given."""
    if start_method not in START_METHODS:
        raise ValueError(
            f"start_method is {start_method!r:.80}; it is one of "
            f"{', '.join(map(repr, START_METHODS))}."
        )
    _check_worker_env(worker_env)
    if not isinstance(given, str):
        if not hasattr(given, "wait_events"):
            raise TypeError(
                f"backend is {describe(given)}; it is a name "
                f"({', '.join(map(repr, BACKENDS))}) or a Backend."
            )
        return given  # type: ignore[no-any-return]  # it has the methods
    if given not in BACKENDS:
        raise ValueError(
            f"There is no backend named {given!r:.80}; the names are "
            f"{', '.join(map(repr, BACKENDS))}."
        )
    if given == "process" and os.name == "nt":
        raise ValueError(
            'backend="process" does not run on Windows yet: use backend="thread" or '
            'backend="inline".'
        )
    module, _, name = BACKENDS[given].partition(":")
    make = getattr(importlib.import_module(module), name)
    if given == "process":
        return make(start_method, worker_env)  # type: ignore[no-any-return]
    return make()  # type: ignore[no-any-return]


def _check_worker_env(worker_env: Any) -> None:
    if worker_env is None:
        return
    if not isinstance(worker_env, Mapping) or not all(
        isinstance(part, str) for item in worker_env.items() for part in item
    ):
        raise TypeError(
            f"worker_env is {describe(worker_env)}; it maps names of environment "
            'variables to strings, such as {"CUDA_VISIBLE_DEVICES": "0"}.'
        )


def as_policy(given: Any) -> RestartPolicy | None:
    """Returns what to do about a worker that fails: `None` is to raise."""
    if isinstance(given, str) and given == "raise":
        return None
    from envkit.parallel.supervision import RestartPolicy

    if isinstance(given, RestartPolicy):
        return given
    raise ValueError(
        f'on_worker_failure is {given!r:.80}; it is "raise" or a RestartPolicy(...).'
    )


def as_timeout(name: str, given: Any) -> float | None:
    """Returns seconds, or `None` for no limit."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise TypeError(f"{name} is {describe(given)}; it is seconds, or None.")
    seconds = float(given)
    if math.isnan(seconds) or seconds <= 0:
        raise ValueError(
            f"{name} is {given}; it is a positive number of seconds, or None."
        )
    return None if math.isinf(seconds) else seconds


def as_validate(given: Any) -> str:
    """Returns when to look at everything that environments return."""
    if given in VALIDATE:
        return str(given)
    raise ValueError(
        f"validate is {given!r:.80}; it is one of {', '.join(map(repr, VALIDATE))}."
    )


def check_name(name: Any) -> None:
    """Refuses what is no name, and names that are private."""
    if not isinstance(name, str):
        raise TypeError(f"name is {describe(name)}; it is a string.")
    if name.startswith("_"):
        raise AttributeError(
            f"{name!r} is private to the environment; only public names are forwarded."
        )
