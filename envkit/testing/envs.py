"""Example environments for tests: they count, follow a script, crash or are slow."""

from __future__ import annotations

import abc
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from envkit import nest
from envkit.py_environment import PyEnvironment
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.time_step import TimeStep, restart, termination, transition
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = [
    "CountingEnv",
    "CrashingEnv",
    "EpisodeCountingEnv",
    "NestedCountingEnv",
    "ScriptedEnv",
    "SlowEnv",
]


class _Counter(PyEnvironment):
    """Counts steps and episodes; subclasses say how the counts are shown."""

    def __init__(self, steps_per_episode: int = 10) -> None:
        if steps_per_episode < 1:
            raise ValueError(
                f"steps_per_episode is {steps_per_episode}; an episode has at least "
                "one step."
            )
        super().__init__(handle_auto_reset=True)
        self._steps_per_episode = steps_per_episode
        self._episodes = 0
        self._current_step = 0

    def action_spec(self) -> NestedSpec:
        """Returns the spec of the action, which is ignored."""
        return BoundedArraySpec((), np.int32, 0, 1)

    def get_info(self) -> dict[str, Any]:
        """Returns an empty dictionary."""
        return {}

    def seed(self, seed: Seed) -> None:
        """Does nothing: counting is not random."""

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns a grey picture that brightens as the episode goes on."""
        if mode != "rgb_array":
            raise NotImplementedError(
                f"Only rgb_array is rendered by {type(self).__name__}, not {mode!r}."
            )
        level = 255 * self._current_step // self._steps_per_episode
        return np.full((8, 8, 3), level, np.uint8)

    @abc.abstractmethod
    def _observe(self) -> NestedArray:
        """Returns the counts."""

    def _reset(self) -> TimeStep:
        # Only a finished episode counts: resetting in the middle starts it again.
        if self._current_time_step is not None and self._current_time_step.is_last():
            self._episodes += 1
        self._current_step = 0
        return restart(self._observe())

    def _step(self, action: NestedArray) -> TimeStep:
        self._current_step += 1
        if self._current_step < self._steps_per_episode:
            return transition(self._observe(), reward=0.0)
        return termination(self._observe(), reward=1.0)

    def _get_state(self) -> Any:
        return self._episodes, self._current_step

    def _set_state(self, state: Any) -> None:
        self._episodes, self._current_step = state


class CountingEnv(_Counter):
    """Observes `10 * episodes + steps`, so that every step is recognisable.

    Example:
        >>> env = CountingEnv(steps_per_episode=2)
        >>> [int(env.step(0).observation) for _ in range(5)]
        [0, 1, 2, 10, 11]
    """

    def __init__(
        self, steps_per_episode: int = 10, dtype: npt.DTypeLike = np.int32
    ) -> None:
        """Makes an environment whose observations have the given dtype."""
        super().__init__(steps_per_episode)
        self._dtype = np.dtype(dtype)

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of the count."""
        return BoundedArraySpec((), self._dtype)

    def action_spec(self) -> NestedSpec:
        """Returns the spec of the action, which is ignored."""
        return BoundedArraySpec((), self._dtype, 0, 1)

    def _observe(self) -> NestedArray:
        # A small dtype starts again when it is full.
        return np.array(10 * self._episodes + self._current_step).astype(self._dtype)


class EpisodeCountingEnv(_Counter):
    """Observes the tuple `(episodes, steps)`."""

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of both counts."""
        return BoundedArraySpec((), np.int32), BoundedArraySpec((), np.int32)

    def _observe(self) -> NestedArray:
        return np.array(self._episodes, np.int32), np.array(
            self._current_step, np.int32
        )


class NestedCountingEnv(_Counter):
    """Observes `total_steps` (as `CountingEnv` counts) and `current_steps`."""

    def __init__(
        self, steps_per_episode: int = 10, nested_action: bool = False
    ) -> None:
        """Makes an environment; its action is a dictionary if that is asked for."""
        super().__init__(steps_per_episode)
        self._nested_action = nested_action

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of both counts."""
        return {
            "total_steps": BoundedArraySpec((), np.int32),
            "current_steps": BoundedArraySpec((), np.int32),
        }

    def action_spec(self) -> NestedSpec:
        """Returns the spec of the action, which is ignored."""
        spec = super().action_spec()
        return {"foo": spec, "bar": spec} if self._nested_action else spec

    def _observe(self) -> NestedArray:
        return {
            "total_steps": np.array(10 * self._episodes + self._current_step, np.int32),
            "current_steps": np.array(self._current_step, np.int32),
        }


class ScriptedEnv(PyEnvironment):
    """Returns given time steps, one after the other, whatever the actions.

    `reset` goes to the next `FIRST` of the script, and the script repeats. The actions
    it was given are kept in `actions`.

    Example:
        >>> from envkit import restart, termination
        >>> script = [restart(np.zeros(1)), termination(np.ones(1), reward=5.0)]
        >>> env = ScriptedEnv(script)
        >>> [float(env.step(None).reward) for _ in range(4)]
        [0.0, 5.0, 0.0, 5.0]
    """

    def __init__(
        self,
        script: Sequence[TimeStep],
        observation_spec: NestedSpec | None = None,
        action_spec: NestedSpec | None = None,
    ) -> None:
        """Makes an environment from time steps.

        Args:
            script: What to return; the first is a `FIRST`.
            observation_spec: Taken from the first observation unless given.
            action_spec: An integer, 0 or 1, unless given.
        """
        if not script or not script[0].is_first():
            raise ValueError(
                "A script has at least one time step, a FIRST to begin with."
            )
        super().__init__()
        self._script = list(script)
        self._observation_spec = (
            nest.map_structure(ArraySpec.from_array, script[0].observation)
            if observation_spec is None
            else observation_spec
        )
        self._action_spec = (
            BoundedArraySpec((), np.int64, 0, 1) if action_spec is None else action_spec
        )
        self._next = 0
        self.actions: list[Any] = []

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of the script's observations."""
        return self._observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the spec of the action, which is ignored."""
        return self._action_spec

    def _read(self) -> TimeStep:
        time_step = self._script[self._next]
        self._next = (self._next + 1) % len(self._script)
        # The script stays as it is, whatever a caller does to what was returned.
        return nest.map_structure(np.array, time_step)  # type: ignore[no-any-return]

    def _reset(self) -> TimeStep:
        while not self._script[self._next].is_first():
            self._next = (self._next + 1) % len(self._script)
        return self._read()

    def _step(self, action: NestedArray) -> TimeStep:
        self.actions.append(action)
        return self._read()

    def _get_state(self) -> Any:
        return self._next, self.actions

    def _set_state(self, state: Any) -> None:
        self._next, self.actions = state


class CrashingEnv(CountingEnv):
    """Counts, until it fails in the way it was told to.

    Example:
        >>> env = CrashingEnv(crash_at=2)
        >>> _ = env.reset(), env.step(0)
        >>> env.step(0)
        Traceback (most recent call last):
        RuntimeError: CrashingEnv was told to raise in step 2.
    """

    def __init__(
        self,
        crash_at: int = 1,
        how: str = "raise",
        where: str = "step",
        steps_per_episode: int = 10,
    ) -> None:
        """Makes an environment that fails.

        Args:
            crash_at: In which call it fails, counted from 1 over its whole life.
            how: "raise" an exception, "exit" the process without cleaning up, or the
                name of a signal that the process sends itself, such as "SIGSEGV".
            where: "init", "step", "reset", "render" or "close".
            steps_per_episode: How long an episode is.
        """
        if how not in ("raise", "exit", *signal.Signals.__members__):
            raise ValueError(
                f"how is {how!r}; it is 'raise', 'exit' or a signal's name."
            )
        places = ("init", "step", "reset", "render", "close")
        if where not in places:
            raise ValueError(f"where is {where!r}; it is one of {', '.join(places)}.")
        self._crash_at = crash_at
        self._how = how
        self._where = where
        self._calls = 0
        self._maybe_crash("init")
        super().__init__(steps_per_episode)

    def _maybe_crash(self, where: str) -> None:
        if where != self._where:
            return
        self._calls += 1
        if self._calls != self._crash_at:
            return
        if self._how == "raise":
            raise RuntimeError(
                f"CrashingEnv was told to raise in {where} {self._calls}."
            )
        if self._how == "exit":
            os._exit(3)
        os.kill(os.getpid(), getattr(signal, self._how))

    def _reset(self) -> TimeStep:
        self._maybe_crash("reset")
        return super()._reset()

    def _step(self, action: NestedArray) -> TimeStep:
        self._maybe_crash("step")
        return super()._step(action)

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns a picture, unless it was told to fail here."""
        self._maybe_crash("render")
        return super().render(mode)

    def close(self) -> None:
        """Closes, unless it was told to fail here."""
        self._maybe_crash("close")
        super().close()


class SlowEnv(CountingEnv):
    """Counts, and takes its time.

    Example:
        >>> from envkit.testing import ManualClock
        >>> clock = ManualClock()
        >>> env = SlowEnv(step_time=0.5, reset_time=2.0, sleep=clock.sleep)
        >>> _ = env.reset(), env.step(0)
        >>> clock.now()
        2.5
    """

    def __init__(
        self,
        step_time: float = 0.01,
        reset_time: float = 0.0,
        steps_per_episode: int = 10,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Makes a slow environment.

        Args:
            step_time: Seconds that a step takes.
            reset_time: Seconds that a reset takes.
            steps_per_episode: How long an episode is.
            sleep: How time passes: `ManualClock.sleep` for tests that do not wait.
        """
        super().__init__(steps_per_episode)
        self._step_time = step_time
        self._reset_time = reset_time
        self._sleep = sleep

    def _reset(self) -> TimeStep:
        self._sleep(self._reset_time)
        return super()._reset()

    def _step(self, action: NestedArray) -> TimeStep:
        self._sleep(self._step_time)
        return super()._step(action)
