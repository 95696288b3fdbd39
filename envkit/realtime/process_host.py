"""Runs the clock in its own process, where no agent can delay it: `ProcessHost`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import CallOrderError, WorkerError, WorkerTimeout
from envkit.realtime.hosts import Host
from envkit.realtime.loop import nothing_earned
from envkit.realtime.report import NOTHING_KNOWN, Lag, lag_of
from envkit.registry import make
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["ProcessHost"]

_STEP_TYPES = {int(one): one for one in (StepType.FIRST, StepType.MID, StepType.LAST)}


class ProcessHost(Host):
    """Runs an environment with its own clock in a worker, as a pool of one."""

    def __init__(self, make_env: Callable[[], Any], options: Mapping[str, Any]) -> None:
        """Starts the process, and waits until the environment is built.

        Args:
            make_env: Builds the environment, which has its own clock, in the process.
            options: Keyword arguments of `ParallelPyEnvironment`.
        """
        self._pool = make(make_env, num_envs=1, num_workers=1, **options)
        self.spec = EnvironmentSpec.of(self._pool)
        declared = self._pool.info_spec()
        self.info_spec = {key: declared[key] for key in declared if key != "realtime"}
        self._is_batch = bool(self._pool.access("batched")[0])
        self.batch_size = self._pool.batch_size if self._is_batch else None
        self.resets_rows = self._is_batch and bool(self._pool.access("resets_rows")[0])
        self._action = nest.Structure(self.spec.action)
        self._time_step = nest.Structure(self._pool.time_step_spec())
        # The info of the current time step, once the agent has asked for it.
        self._lag: Lag | None = None

    def inside(self) -> list[Any]:
        """Returns the pool, whose worker can be replaced."""
        return [self._pool]

    def _one(self, time_step: TimeStep) -> TimeStep:
        """Removes the row dimension of a pool of one from a time step."""
        if self._is_batch:
            return time_step
        one = self._time_step.map(lambda leaf: leaf[0, ...], time_step)
        step_type = _STEP_TYPES[int(one.step_type)]
        return one._replace(step_type=step_type)  # type: ignore[no-any-return]

    def reset(self, mask: Array | None, options: Any = None) -> TimeStep:
        """Begins an episode in all rows or in some, and returns its first time step."""
        self._lag = None
        with _raising_timeouts():
            return self._one(self._pool.reset(mask, options=options))

    def check_options(self, options: Any, mask: Array | None) -> None:
        """Does nothing: the process refuses options before anything moves."""

    def step(self, action: NestedArray) -> TimeStep:
        """Passes in an action for every row, waits, and returns the merged ticks."""
        self._lag = None
        if not self._is_batch:
            action = self._action.map(lambda leaf: np.asarray(leaf)[None], action)
        try:
            with _raising_timeouts():
                return self._one(self._pool.step(action))
        except WorkerTimeout as late:
            if not self._is_batch or late.command is not None:
                raise
            # The pool has lost the batch, so all its rows must begin.
            first_sentence = str(late).partition(" It goes on")[0]
            raise WorkerTimeout(
                f"{first_sentence} Call reset(), which begins one in every row, or "
                "close()."
            ) from None

    def next_episode(self, mask: Array | None) -> TimeStep:
        """Waits for the next episode, once the end of the previous one was seen."""
        return self.reset(mask)

    def lag(self) -> Lag:
        """Returns the timing of the current time step."""
        if self._pool.repaired.any():
            # The process was replaced and has made no tick yet: the current time step
            # is the end that the pool has made up.
            rows = self.batch_size or 1
            return lag_of(
                [{**NOTHING_KNOWN, "interrupted": True}] * rows, self._is_batch
            )
        if self._lag is None:
            self._lag = Lag(**self._declared()["realtime"])
        return self._lag

    def peek(self, current: TimeStep) -> TimeStep:
        """Returns the merged ticks so far, without consuming them."""
        try:
            return self._asked("peek")  # type: ignore[no-any-return]
        except CallOrderError:
            return nothing_earned(current)

    def info(self) -> Any:
        """Returns the environment's info of the current time step."""
        if self._pool.rows_with_more_info().any():
            return self._asked("inner_info")
        declared = self._declared()
        return {name: declared[name] for name in self.info_spec} or None

    def _declared(self) -> dict[str, Any]:
        """Returns the declared infos, which came with the time step."""
        declared = self._pool.declared_info()
        return declared if self._is_batch else _of_row_0(declared)

    def _asked(self, method: str, *arguments: Any) -> Any:
        try:
            return self._pool.call(method, *arguments)[0]
        except WorkerError as error:
            # The environment's error must be the same at every host.
            if isinstance(error.__cause__, NotImplementedError):
                raise error.__cause__ from None
            raise

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        return self._asked("seed", seed)

    def render(self, mode: str) -> Any:
        """Returns a picture of the environment's current state."""
        return self._asked("render", mode)

    def get_state(self) -> Any:
        """Returns everything that later ticks depend on."""
        return self._pool.get_state()

    def set_state(self, state: Any) -> None:
        """Restores a state returned by `get_state`."""
        self._lag = None
        self._pool.set_state(state)

    def close(self) -> None:
        """Ends the process."""
        self._pool.close()


def _of_row_0(declared: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _of_row_0(value) if isinstance(value, Mapping) else value[0, ...]
        for key, value in declared.items()
    }


@contextlib.contextmanager
def _raising_timeouts() -> Iterator[None]:
    """Raises the clock's timeout as a timeout, because its process did not fail."""
    try:
        yield
    except WorkerError as error:
        if isinstance(error.__cause__, WorkerTimeout):
            raise error.__cause__ from None
        raise
