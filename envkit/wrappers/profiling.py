"""Measures where an environment's time goes: `PerformanceProfiler`."""

from __future__ import annotations

import cProfile
import sys
import warnings
from collections.abc import Callable
from typing import Any

from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import checked_size, describe
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray

__all__ = ["PerformanceProfiler"]


# Since 3.12, Python refuses a second profiler; before, the second one silently stopped
# the first.
_PYTHON_REFUSES = sys.version_info >= (3, 12)


class PerformanceProfiler(PyEnvironmentBaseWrapper):
    """Runs an environment's `reset` and `step` under `cProfile`.

    After every `process_steps` steps, the wrapper calls `process_profile_fn` with the
    `cProfile.Profile` and starts a new one. Resets are measured but not counted. A step
    of a batch is one step. Only the environment is measured: not the caller, not this
    wrapper, and not the workers of a pool. To measure those, wrap the environments
    before they go into the pool.

    Only one profiler can run at a time: per thread, and since Python 3.12 per process,
    where it also sees other threads. While another one runs (`python -m cProfile`, or
    an outer `PerformanceProfiler`), the environment works as usual but unmeasured; such
    steps do not count, and one `RuntimeWarning` says so.

    Measurements are not part of the environment's state.

    Example:
        >>> import pstats
        >>> from envkit.envs import CartPole
        >>> def print_calls(profile):
        ...     print("measured", pstats.Stats(profile).total_calls > 0)
        >>> env = PerformanceProfiler(CartPole(), print_calls, process_steps=3)
        >>> _ = env.reset()
        >>> for _ in range(6):
        ...     _ = env.step(0)
        measured True
        measured True
    """

    _shown = ("process_steps",)

    def __init__(
        self,
        env: Any,
        process_profile_fn: Callable[[cProfile.Profile], Any],
        process_steps: int,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            process_profile_fn: Called with each profile.
            process_steps: How many steps are measured in each profile.
        """
        super().__init__(env)
        if not callable(process_profile_fn):
            raise TypeError(
                "process_profile_fn must be a function of a cProfile.Profile, such "
                "as lambda profile: profile.print_stats(), got "
                f"{describe(process_profile_fn)}."
            )
        self._process_profile_fn = process_profile_fn
        self._process_steps = checked_size("process_steps", process_steps)
        self._num_steps = 0
        self._profile = cProfile.Profile()
        self._has_warned = False

    @property
    def process_steps(self) -> int:
        """How many steps are measured in each profile."""
        return self._process_steps

    def _reset(self) -> TimeStep:
        return self._measured(self._env.reset)[0]

    def _reset_rows(self, mask: Array) -> TimeStep:
        return self._measured(self._env.reset, mask)[0]

    def _step(self, action: NestedArray) -> TimeStep:
        return self._counted(*self._measured(self._env.step, action))

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        return self._counted(
            *self._measured(self._env.step_rows, action, stepping, beginning)
        )

    def _measured(
        self, function: Callable[..., TimeStep], *args: Any
    ) -> tuple[TimeStep, bool]:
        """Calls a function, and returns whether it was measured."""
        if not self._begin_measuring():
            return function(*args), False
        try:
            return function(*args), True
        finally:
            self._profile.disable()

    def _begin_measuring(self) -> bool:
        if _PYTHON_REFUSES:
            try:
                self._profile.enable()
            except ValueError:
                return self._warn()
            return True
        if sys.getprofile() is not None:
            return self._warn()
        self._profile.enable()
        return True

    def _warn(self) -> bool:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{self!r} does not measure while another profiler is running: Python "
                "allows only one at a time. Stop the other one, or leave out this "
                "wrapper.",
                RuntimeWarning,
                stacklevel=2,
            )
        return False

    def _counted(self, time_step: TimeStep, measured: bool) -> TimeStep:
        """Counts a step, and hands the profile over when it is full."""
        self._num_steps += measured
        if self._num_steps >= self._process_steps:
            # In this order, so the next profile is new even if the function raises.
            profile, self._profile = self._profile, cProfile.Profile()
            self._num_steps = 0
            self._process_profile_fn(profile)
        return time_step
