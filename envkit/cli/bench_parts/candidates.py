"""The ways to step an environment that are tried, each with the call that makes it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envkit import targets
from envkit.constructors import constructor, make

__all__ = [
    "BACKENDS",
    "Candidate",
    "candidates",
    "more_workers",
    "pool_of",
    "worker_counts",
]

BACKENDS = ("batch", "inline", "thread", "process")

# More workers than that nobody has seen to pay.
_MOST_WORKERS = 128
# A gain that is no accident.
_PAYS = 1.1


@dataclass(frozen=True)
class Candidate:
    """One way to step so many environments.

    Attributes:
        backend: "inline", "thread" or "process"; "batch" where the environment steps
            many rows itself.
        workers: How many workers; `None` for a batch.
        target: What `make` takes.
        arguments: What the environment is made with.
        options: What `make` is called with besides.
    """

    backend: str
    workers: int | None
    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """Makes the environment."""
        return make(self._recipe(), **self.options)

    def call(self) -> str:
        """Returns the text of the call that makes the same."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        target = repr(self.target)
        if not self._is_plain():
            target = f"envkit.constructor({target}{_as_text(self.arguments)})"
            return f"envkit.make({target}, {given})"
        return f"envkit.make({target}{_as_text(self.arguments)}, {given})"

    def _is_plain(self) -> bool:
        """Says whether no argument of the environment is taken for the pool's."""
        return self.backend == "batch" or not self.arguments.keys() & _pool_options()

    def _recipe(self) -> Any:
        return constructor(self.target, **self.arguments)


def _as_text(arguments: Mapping[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in arguments.items())


def _pool_options() -> set[str]:
    from envkit.parallel import ParallelPyEnvironment

    return set(inspect.signature(ParallelPyEnvironment).parameters)


def candidates(
    target: str,
    arguments: Mapping[str, Any],
    *,
    num_envs: int,
    backends: Sequence[str],
    workers: Sequence[int],
) -> Iterator[Candidate]:
    """Yields the ways to try, the simplest first."""
    own = _own_batch(target, arguments, num_envs)
    if "batch" in backends and own is not None:
        yield own
    if own is not None and "num_envs" in own.options:
        return  # Its library makes all rows, whatever `make` is told about workers.
    for backend in backends:
        if backend == "batch":
            continue
        # Inline nothing runs beside anything else.
        for count in [1] if backend == "inline" else workers:
            yield pool_of(target, arguments, num_envs, backend, count)


def pool_of(
    target: str, arguments: Mapping[str, Any], num_envs: int, backend: str, workers: int
) -> Candidate:
    """Returns a pool as a way to try."""
    options = {"num_envs": num_envs, "backend": backend, "num_workers": workers}
    return Candidate(backend, workers, target, arguments, options)


def more_workers(
    last: Candidate, speed: float, speeds_before: Sequence[float], num_envs: int
) -> Candidate | None:
    """Returns a pool with twice the workers, if those that it has have paid.

    Environments that wait gain from workers long after the CPUs are in use.
    """
    count = min(2 * (last.workers or 1), num_envs, _MOST_WORKERS)
    if count == last.workers or speed < _PAYS * max(speeds_before, default=0.0):
        return None
    return pool_of(last.target, last.arguments, num_envs, last.backend, count)


def worker_counts(cpus: int, num_envs: int) -> list[int]:
    """Returns how many workers to try: 1, 2, 4 … the CPUs, and a little above.

    Example:
        >>> worker_counts(2, 64), worker_counts(8, 64), worker_counts(8, 3)
        ([1, 2, 3], [1, 2, 4, 8, 12], [1, 2, 3])
    """
    powers = [2**power for power in range(cpus.bit_length()) if 2**power < cpus]
    counts = {*powers, cpus, math.ceil(1.5 * cpus)}
    return sorted({min(count, num_envs) for count in counts})


def _own_batch(
    target: str, arguments: Mapping[str, Any], num_envs: int
) -> Candidate | None:
    """Returns how the environment steps many rows itself, if it does."""
    if targets.makes_batches(target, {*arguments, "num_envs"}):
        return Candidate("batch", None, target, arguments, {"num_envs": num_envs})
    if "batch_size" not in arguments and _takes_batch_size(target):
        return Candidate("batch", None, target, arguments, {"batch_size": num_envs})
    return None


def _takes_batch_size(target: str) -> bool:
    """Says whether what makes the environment names such a parameter."""
    build = constructor(target)._build
    try:
        found = targets.load(target, build) if isinstance(build, str) else build
        return "batch_size" in inspect.signature(found).parameters
    except (TypeError, ValueError):  # It is made by something without a signature.
        return False
