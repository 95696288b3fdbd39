"""`EnvHandle`: calls and steps one environment of a lockstep pool on its own.

Its `step` and `reset` return a time step, or a promise of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit._internal.text import counted
from envkit.batches import options_per_row
from envkit.errors import CallOrderError, ClosedError
from envkit.losses import Loss
from envkit.parallel.asking import among_all, check_name, send_options
from envkit.parallel.promise import Promise
from envkit.parallel.slab_layout import RESET, STEP
from envkit.seeding import checked_seeds, seed_per_row
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Options, ResetSeed

__all__ = ["EnvHandle", "OneEnvironment"]


class OneEnvironment:
    """Calls and steps one environment of a pool; it stays in its worker.

    Other attributes are read from the environment, and set on it.
    """

    __slots__ = ()
    # A `ParallelPyEnvironment`, whose module imports this one.
    _pool_env: Any
    _env: int

    @property
    def _facade(self) -> Any:
        if self._pool_env is None:
            raise CallOrderError(
                f"This {type(self).__name__} has not been started. Call start() first."
            )
        return self._pool_env

    @property
    def _own_rows(self) -> range:
        rows_of_env = self._facade._pool.rows_of_env
        if self._env >= len(rows_of_env):
            raise ClosedError(
                f"env {self._env} was closed by resize(): the pool has "
                f"{counted(len(rows_of_env), 'environment')} now. Take another handle "
                "from envs."
            )
        return rows_of_env[self._env]  # type: ignore[no-any-return]  # of a pool

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._facade.observation_spec()

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._facade.action_spec()

    def time_step_spec(self) -> TimeStep:
        """Returns the specs of a time step."""
        return self._facade.time_step_spec()  # type: ignore[no-any-return]  # likewise

    @property
    def repaired(self) -> Array:
        """Whether its last time step is a made-up `LAST`, as a pool's `repaired`."""
        return self._of_own_rows(self._facade.repaired)

    def current_losses(self) -> dict[int, Loss]:
        """Returns, by row, the loss behind each row of `repaired`."""
        first, found = self._own_rows.start, self._facade.current_losses()
        return {
            row - first: found[row]._replace(row=row - first)
            for row in self._own_rows
            if row in found
        }

    def _of_own_rows(self, values: Array) -> Array:
        rows = self._own_rows
        is_batch = self._facade._pool.is_batch[self._env]
        return values[rows.start : rows.stop] if is_batch else values[rows.start, ...]

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise:
        """Calls a method of the environment, and returns a promise of the result.

        The environment handles calls in the order in which they are made.
        """
        if name == "step":
            return self._promise(self.step(*args, **{**kwargs, "blocking": False}))
        if name == "reset":
            return self._promise(self.reset(*args, **{**kwargs, "blocking": False}))
        self._facade._check_open("call")
        check_name(name)
        return self._ask("call", (name, args, kwargs))

    def _ask(self, method: str, argument: Any) -> Promise:
        return self._facade._locked(method, self._asked, method, argument)  # type: ignore[no-any-return]

    def _asked(self, method: str, argument: Any) -> Promise:
        """Asks the environment a question, and returns a promise of the answer."""
        self._facade._check_open(method)
        pool, envs = self._facade._pool, [self._env]
        _ = self._own_rows  # Raises if there is no such environment.
        numbers = pool.post(method, envs, [argument])

        def wait() -> Any:
            self._facade._check_open(method)
            with self._facade._marking_raised():
                results = pool.answers(numbers, envs)
            pool.raise_failures(envs, results)
            return results[0]

        return Promise(wait, self._facade._locked)

    @staticmethod
    def _promise(promise: Any) -> Promise:
        return promise  # type: ignore[no-any-return]  # blocking=False returns one

    def access(self, name: str) -> Any:
        """Returns an attribute of the environment."""
        return self._facade.access(name, env_ids=[self._env])[0]

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of the environment, as `set_attr` of the pool does."""
        self._facade.set_attr(name, value, env_ids=[self._env])

    def step(self, action: NestedArray, blocking: bool = True) -> Any:
        """Steps this environment alone; returns its time step, or a promise of it."""
        return self._facade._locked("step", self._step, action, blocking)

    def _step(self, action: NestedArray, blocking: bool) -> Any:
        facade = self._facade
        rows = np.array(self._own_rows)
        facade._check_open("step")
        if not facade._pool.begun[rows].all():
            return self._move(rows, RESET, blocking)
        for row in rows.tolist():
            if row in facade._promises:
                facade._promises[row].settle()
        facade._check_can_step(rows)
        columns = facade._actions.columns(self._with_rows(action), rows=rows)
        facade._pool.slab.write_actions(columns, rows)
        return self._move(rows, STEP, blocking)

    def reset(
        self,
        blocking: bool = True,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> Any:
        """Resets this environment alone; returns its time step, or a promise of it.

        Args:
            blocking: Whether to wait for the time step.
            seed: A seed for the environment, given before the reset.
            options: Options for this one reset.
        """
        return self._facade._locked("reset", self._reset, blocking, seed, options)

    def _reset(self, blocking: bool, seed: ResetSeed, options: Options) -> Any:
        facade, rows = self._facade, np.array(self._own_rows)
        facade._check_open("reset")
        if options is not None:
            own = options_per_row(options, rows.size)
            by_row = among_all(facade, own, rows)
            send_options(facade, by_row, None)
            facade._given.set_options(by_row, None)
        if seed is not None:
            is_batch = facade._pool.is_batch[self._env]
            seeds = (
                seed_per_row(seed, rows.size) if is_batch else checked_seeds(seed, 1)
            )
            facade._seed_rows(among_all(facade, seeds, rows))
        return self._move(rows, RESET, blocking)

    def _move(self, rows: Any, command: int, blocking: bool) -> Any:
        promise = self._facade._submit(rows, command)
        own = Promise(lambda: self._own(promise.answer()), self._facade._locked)
        return own.answer() if blocking else own

    def render(self, mode: str = "rgb_array", blocking: bool = True) -> Any:
        """Returns a picture of this environment, or a promise of it."""
        self._facade._check_open("render")
        promise = self._ask("render", mode)
        return promise() if blocking else promise

    def _with_rows(self, action: NestedArray) -> NestedArray:
        if self._facade._pool.is_batch[self._env]:
            return action
        structure = self._facade._actions.structure
        return structure.unflatten(
            [np.asarray(leaf)[None] for leaf in structure.flatten(action)]
        )

    def _own(self, time_step: TimeStep) -> TimeStep:
        """Removes the batch dimension, unless the environment is itself batched."""
        if self._facade._pool.is_batch[self._env]:
            return time_step
        return nest.map_structure(lambda leaf: leaf[0, ...], time_step)  # type: ignore[no-any-return]

    def current_time_step(self) -> TimeStep:
        """Returns the current time step of this environment."""
        block = slice(self._own_rows.start, self._own_rows.stop)
        current = self._facade.current_time_step()
        return self._own(nest.map_structure(lambda leaf: leaf[block], current))

    def __getattr__(self, name: str) -> Any:
        # Never ask for private names: unpickling reads some of a half-built object,
        # which has no process to ask yet.
        if name.startswith("_"):
            raise AttributeError(name)
        return self.access(name)

    def _set_there(self, name: str, value: Any) -> None:
        """Sets an attribute of the environment.

        Raises:
            AttributeError: This object has the attribute itself, and would hide the
                environment's.
        """
        kind = type(self)
        if hasattr(kind, name):
            raise AttributeError(
                f"{name!r} is an attribute of {kind.__name__} and cannot be set. Where "
                f"the environment has one of this name: set_attr({name!r}, value)."
            )
        self.set_attr(name, value)


class EnvHandle(OneEnvironment):
    """Calls and steps one environment of a pool; it stays in its worker.

    Other attributes are read from the environment, and set on it.

    Example:
        >>> from envkit import ParallelPyEnvironment
        >>> from envkit.testing import CountingEnv
        >>> with ParallelPyEnvironment([CountingEnv] * 2, backend="inline") as pool:
        ...     pool.envs[1].level = 3
        ...     promise = pool.envs[1].call("get_info")
        ...     pool.envs[1].level, promise()
        (3, {})
    """

    __slots__ = ("_env", "_pool_env")

    def __init__(self, pool: Any, env: int) -> None:
        """Makes a handle; only pools do this."""
        self._pool_env = pool
        self._env = env

    @property
    def rows(self) -> range:
        """The rows of this environment in the batch."""
        return self._own_rows

    def __setattr__(self, name: str, value: Any) -> None:
        if name in EnvHandle.__slots__:
            object.__setattr__(self, name, value)
        else:
            self._set_there(name, value)

    def __repr__(self) -> str:
        return f"EnvHandle(env={self._env}, rows={self.rows.start}:{self.rows.stop})"
