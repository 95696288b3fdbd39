"""`EnvHandle`: one environment of a pool, asked by itself; answers are promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit import nest
from envkit.parallel.names import check_name
from envkit.parallel.slab import RESET, STEP
from envkit.time_step import TimeStep
from envkit.types import NestedArray, NestedSpec

if TYPE_CHECKING:
    from envkit.parallel.parallel_py_environment import ParallelPyEnvironment

__all__ = ["EnvHandle", "Promise", "set_there"]


class Promise:
    """The answer to a call, which is waited for when it is asked for.

    Example:
        >>> promise = Promise(lambda: 42)
        >>> promise()
        42
    """

    def __init__(self, wait: Callable[[], Any]) -> None:
        """Takes what waits for the answer; it is called once."""
        self._wait: Callable[[], Any] | None = wait
        self._value: Any = None
        self._error: BaseException | None = None

    def settle(self) -> None:
        """Waits for the answer, if that has not been done, and keeps it."""
        if self._wait is None:
            return
        try:
            self._value = self._wait()
        except Exception as error:
            # Whoever asks for the answer is to have it, not whoever comes by.
            self._error = error
        self._wait = None

    def __call__(self) -> Any:
        """Returns the answer, or raises what the environment raised."""
        self.settle()
        if self._error is not None:
            raise self._error
        return self._value


class EnvHandle:
    """One environment of a pool, which lives in its worker.

    Attributes that the handle does not have are asked from the environment, and set in
    it.

    Example:
        >>> from envkit import ParallelPyEnvironment
        >>> from envkit.testing import CountingEnv
        >>> with ParallelPyEnvironment([CountingEnv] * 2, backend="inline") as pool:
        ...     pool.envs[1].level = 3
        ...     promise = pool.envs[1].call("get_info")
        ...     pool.envs[1].level, promise()
        (3, {})
    """

    __slots__ = ("_env", "_facade")

    def __init__(self, pool: ParallelPyEnvironment, env: int) -> None:
        """Makes a handle; pools do."""
        self._facade = pool
        self._env = env

    @property
    def rows(self) -> range:
        """The rows of the batch that are this environment's."""
        return self._facade._pool.rows_of_env[self._env]

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._facade.observation_spec()

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._facade.action_spec()

    def time_step_spec(self) -> TimeStep:
        """Returns the specs of a time step."""
        return self._facade.time_step_spec()

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise:
        """Calls a method of the environment; the promise waits for the result."""
        if name == "step":
            return self._promise(self.step(*args, **{**kwargs, "blocking": False}))
        if name == "reset":
            return self._promise(self.reset(*args, **{**kwargs, "blocking": False}))
        self._facade._check_open("call")
        check_name(name)
        return self._asked("call", (name, args, kwargs))

    def _asked(self, method: str, argument: Any) -> Promise:
        """Asks the environment; the promise waits for the answer."""
        pool, envs = self._facade._pool, [self._env]
        numbers = pool.post(method, envs, [argument])

        def wait() -> Any:
            self._facade._check_open(method)
            with self._facade._telling():
                results = pool.answers(numbers, envs)
            pool.raise_failures(envs, results)
            return results[0]

        return Promise(wait)

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
        facade = self._facade
        rows = np.array(self.rows)
        facade._check_open("step")
        if not facade._pool.begun[rows].all():
            return self.reset(blocking)
        for row in rows.tolist():
            if row in facade._promises:
                facade._promises[row].settle()
        facade._check_can_step(rows)
        columns = facade._actions.columns(self._with_rows(action), rows=rows)
        facade._pool.slab.write_actions(columns, rows)
        return self._move(rows, STEP, blocking)

    def reset(self, blocking: bool = True) -> Any:
        """Resets this environment alone; returns its time step, or a promise of it."""
        self._facade._check_open("reset")
        return self._move(np.array(self.rows), RESET, blocking)

    def _move(self, rows: Any, command: int, blocking: bool) -> Any:
        promise = self._facade._submit(rows, command)
        own = Promise(lambda: self._own(promise()))
        return own() if blocking else own

    def render(self, mode: str = "rgb_array", blocking: bool = True) -> Any:
        """Returns a picture of this environment, or a promise of it."""
        self._facade._check_open("render")
        promise = self._asked("render", mode)
        return promise() if blocking else promise

    def _with_rows(self, action: NestedArray) -> NestedArray:
        if self._facade._pool.is_batch[self._env]:
            return action
        structure = self._facade._actions.structure
        return structure.unflatten(
            [np.asarray(leaf)[None] for leaf in structure.flatten(action)]
        )

    def _own(self, time_step: TimeStep) -> TimeStep:
        """Takes away the dimension of rows from what is no batch."""
        if self._facade._pool.is_batch[self._env]:
            return time_step
        return nest.map_structure(lambda leaf: leaf[0, ...], time_step)  # type: ignore[no-any-return]

    def current_time_step(self) -> TimeStep:
        """Returns where this environment stands now."""
        block = slice(self.rows.start, self.rows.stop)
        current = self._facade.current_time_step()
        return self._own(nest.map_structure(lambda leaf: leaf[block], current))

    def __getattr__(self, name: str) -> Any:
        # A half-built handle, as unpickling makes it, must not ask anybody.
        if name.startswith("_"):
            raise AttributeError(name)
        return self.access(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in EnvHandle.__slots__:
            object.__setattr__(self, name, value)
        else:
            set_there(self, name, value)

    def __repr__(self) -> str:
        return f"EnvHandle(env={self._env}, rows={self.rows.start}:{self.rows.stop})"


def set_there(handle: Any, name: str, value: Any) -> None:
    """Sets an attribute of the environment that a handle stands for.

    Raises:
        AttributeError: It is one of the handle itself, which would hide that of the
            environment.
    """
    kind = type(handle)
    if hasattr(kind, name):
        raise AttributeError(
            f"{name!r} is an attribute of {kind.__name__} and cannot be set. Where the "
            f"environment has one of this name: set_attr({name!r}, value)."
        )
    handle.set_attr(name, value)
