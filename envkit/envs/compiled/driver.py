"""The loop that steps rows and counts episodes, for any rules.

In plain Python, the loop and the rules run as written. Compiled, they become one native
loop with the rules inlined. It releases Python's lock, so several threads can each step
some of the rows.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from envkit.envs.compiled.explain import cannot_compile
from envkit.envs.compiled.rng import Rng, numba_rng
from envkit.envs.compiled.rules import Rules
from envkit.envs.kernels import compiled, numba_for
from envkit.extend import checked_size
from envkit.types import Array

__all__ = ["Crew", "RowError", "action_dtype", "driver", "leaf_rows"]

# From this many rows on, waking another thread pays off.
_MANY_ROWS = 16_384


def _drive(
    first: int,
    last: int,
    at: Array,
    states: Any,
    initial: Any,
    positions: Array,
    keys: Array,
    actions: Any,
    begins: Array,
    stays: Array,
    ticks: int,
    clock: int,
    too_long_ago: int,
    began: Array,
    terminated: Array,
    truncated: Array,
    step_type: Array,
    reward: Array,
    discount: Array,
    leaves: Any,
) -> None:
    """Steps the rows from `first` to `last`, and writes their time steps."""
    for row in range(first, last):
        at[0] = row  # the row of a possible error
        if begins[row]:
            states[row] = initial[0]
            _reset(states[row], _rng_of(positions, keys, row))
            began[row] = clock
            terminated[row] = truncated[row] = False
            step_type[row], reward[row], discount[row] = 0, 0.0, 1.0
        elif stays[row]:
            began[row] += ticks  # keeps the age of held episodes
            step_type[row], reward[row] = 0, 0.0
            discount[row] = 0.0 if terminated[row] else 1.0
        else:
            told = _step(states[row], actions[row], _rng_of(positions, keys, row))
            reward[row] = told[0]
            terminated[row] = bool(told[1])
            truncated[row] = bool(told[2]) or began[row] <= too_long_ago
            step_type[row] = 2 if terminated[row] or truncated[row] else 1
            discount[row] = 0.0 if terminated[row] else 1.0
        _observe(states[row], _out_of(leaves, row))


def _reset(state: Any, rng: Any) -> None:
    """Stands in for the rules' own function."""


_step: Any = _reset
_observe: Any = _reset
_out_of: Any = _reset
_rng_of: Any = Rng


def driver(rules: Rules, *, native: bool, bounds_checked: bool, name: str) -> Any:
    """Returns the loop for these rules, compiled or in plain Python.

    Args:
        rules: The rules of one row.
        native: Whether numba compiles it.
        bounds_checked: Whether native code checks indices.
        name: The environment's name in errors.
    """
    if native:
        numba_for(f"{name}(compiled=True)")
    scope = {
        **globals(),
        "_reset": rules.reset,
        "_step": rules.step,
        "_observe": rules.observe,
        "_out_of": rules.out_of(),
        "_rng_of": numba_rng() if native else Rng,
    }
    bound = FunctionType(_drive.__code__, scope, "drive")
    if not native:
        return bound
    bound.__module__ = __name__
    loop = compiled(bound, bounds_checked=bounds_checked, like_python=True)
    try:
        _compile(loop, rules)
    except Exception as error:
        raise cannot_compile(error, rules, name) from error
    return loop


def _compile(loop: Any, rules: Rules) -> None:
    """Compiles the loop now, with no rows, so that errors appear at construction."""
    from envkit import nest

    flags, floats = np.zeros(0, bool), np.zeros(0, np.float32)
    counters, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    loop(
        0,
        0,
        np.zeros(1, np.int64),
        rules.states(0),
        rules.states(1),
        counters,
        counters,
        np.zeros((0, *rules.action_spec.shape), action_dtype(rules)),
        flags,
        flags,
        0,
        0,
        0,
        numbers,
        flags,
        flags,
        np.zeros(0, np.int32),
        floats,
        floats,
        tuple(leaf_rows(spec, 0) for spec in nest.flatten(rules.observation_spec)),
    )


def action_dtype(rules: Rules) -> Any:
    """Returns the dtype of the actions for `step`: 64 bits, as in Python."""
    return np.float64 if rules.action_spec.dtype.kind == "f" else np.int64


def leaf_rows(spec: Any, rows: int) -> Array:
    """Returns an array for one leaf of all rows' observations, to be filled."""
    return np.zeros((rows, *(spec.shape or (1,))), spec.dtype)


class Crew:
    """Runs a loop over rows, in several threads if there are many rows."""

    def __init__(self, rows: int, num_threads: int | None) -> None:
        """Chooses the number of threads: one per CPU if there are many rows."""
        if num_threads is None:
            num_threads = _cpus() if rows >= _MANY_ROWS else 1
        self.num_threads = min(checked_size("num_threads", num_threads), rows)
        edges = np.linspace(0, rows, self.num_threads + 1).astype(int).tolist()
        self._parts = list(itertools.pairwise(edges))
        self._threads: Any = None

    def run(self, loop: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Runs the loop over all rows; an error names its row."""
        if self.num_threads == 1:
            self._run_part(loop, self._parts[0], arguments)
            return
        from envkit._shared.waits import result_of

        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(self.num_threads - 1, "envkit-rows")
        others = [
            self._threads.submit(self._run_part, loop, part, arguments)
            for part in self._parts[1:]
        ]
        try:
            self._run_part(loop, self._parts[0], arguments)
        finally:
            # Waits for all threads before reading their results.
            results = [_outcome(result_of, future) for future in others]
        for error in results:
            if error is not None:
                raise error

    def _run_part(
        self,
        loop: Callable[..., None],
        part: tuple[int, int],
        arguments: tuple[Any, ...],
    ) -> None:
        at = np.zeros(1, np.int64)
        try:
            loop(*part, at, *arguments)
        except Exception as error:
            raise RowError(int(at[0]), error) from error

    def close(self) -> None:
        """Ends the threads; another run starts new ones."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Crew:
        return Crew(self._parts[-1][1], self.num_threads)

    def __reduce__(self) -> Any:
        return Crew, (self._parts[-1][1], self.num_threads)


class RowError(Exception):
    """Wraps an error of the rules, and names its row.

    Attributes:
        row: The row.
        error: The original exception.
    """

    def __init__(self, row: int, error: Exception) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error


def _outcome(result_of: Any, future: Any) -> BaseException | None:
    try:
        result_of(future)
    except RowError as error:
        return error
    return None


def _cpus() -> int:
    """Returns how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
