"""`ProcessPyEnvironment`: one environment in a process of its own."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from envkit.errors import CallOrderError
from envkit.parallel.arguments import as_constructors
from envkit.parallel.parallel_py_environment import (
    ParallelPyEnvironment,
    Promise,
    set_there,
)
from envkit.time_step import TimeStep
from envkit.types import (
    EnvConstructor,
    NestedArray,
    NestedSpec,
    Options,
    ResetSeed,
)

__all__ = ["ProcessPyEnvironment"]


class ProcessPyEnvironment:
    """Runs one environment in a process of its own: a pool of one.

    Nothing runs before `start()`. Public attributes that are not here are asked from
    the environment, and set in it.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = ProcessPyEnvironment(CountingEnv)
        >>> env.start()
        >>> _ = env.reset()
        >>> promise = env.step(0, blocking=False)
        >>> promise().observation
        array(1, dtype=int32)
        >>> env.close()
    """

    def __init__(
        self,
        env_constructor: EnvConstructor | str,
        flatten: bool = False,
        **options: Any,
    ) -> None:
        """Prepares; `start` starts the process.

        Args:
            env_constructor: What to call, in the process, or its name.
            flatten: Accepted for TF-Agents' sake.
            **options: Keyword arguments of `ParallelPyEnvironment`.
        """
        self._constructor = as_constructors([env_constructor], type(self).__name__)
        self._options = options
        self._pool_env: ParallelPyEnvironment | None = None

    def start(self, wait_to_start: bool = True) -> None:
        """Starts the process and waits until the environment is built.

        Args:
            wait_to_start: Accepted for TF-Agents' sake: `wait_start` then returns at
                once.
        """
        if self._pool_env is None:
            self._pool_env = ParallelPyEnvironment(self._constructor, **self._options)

    def wait_start(self) -> None:
        """Returns once the environment is built."""
        self._env._check_open("wait_start")

    @property
    def _env(self) -> ParallelPyEnvironment:
        if self._pool_env is None:
            raise CallOrderError(
                "This ProcessPyEnvironment has not been started. Call start() first."
            )
        return self._pool_env

    @property
    def batched(self) -> bool:
        """Whether the environment is a batch itself."""
        return self._env._pool.is_batch[0]

    @property
    def batch_size(self) -> int | None:
        """How many rows it has if it is a batch, else `None`."""
        return self._env.batch_size if self.batched else None

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._env.observation_spec()

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._env.action_spec()

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of the reward."""
        return self._env.reward_spec()

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of the discount."""
        return self._env.discount_spec()

    def time_step_spec(self) -> TimeStep:
        """Returns the specs of a time step."""
        return self._env.time_step_spec()

    def step(self, action: NestedArray, blocking: bool = True) -> Any:
        """Applies an action; returns the time step, or a promise of it."""
        return self._env.envs[0].step(action, blocking)

    def reset(
        self,
        blocking: bool = True,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> Any:
        """Starts an episode; returns its first time step, or a promise of it.

        Args:
            blocking: Whether to wait for the time step.
            seed: What the environment is seeded with before.
            options: What the environment is told of this one reset.
        """
        return self._env.envs[0].reset(blocking, seed=seed, options=options)

    def current_time_step(self) -> TimeStep:
        """Returns where the environment stands now."""
        return self._env.envs[0].current_time_step()

    def render(self, mode: str = "rgb_array", blocking: bool = True) -> Any:
        """Returns a picture, or a promise of it."""
        return self._env.envs[0].render(mode, blocking)

    def seed(self, seed: Any) -> Any:
        """Seeds the environment with exactly this seed."""
        if self.batched:
            return self._env.seed(seed)
        return self._env.seed([seed])[0]

    def get_info(self) -> Any:
        """Returns what else there is to know about the current time step."""
        return self._env.call("get_info")[0]

    def get_state(self) -> Any:
        """Returns a token for `set_state`."""
        return self._env.get_state()

    def set_state(self, state: Any) -> None:
        """Brings back what `get_state` returned."""
        self._env.set_state(state)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise:
        """Calls a method of the environment; the promise waits for the result."""
        return self._env.envs[0].call(name, *args, **kwargs)

    def access(self, name: str) -> Any:
        """Returns an attribute of the environment."""
        return self._env.access(name)[0]

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of the environment."""
        self._env.set_attr(name, value)

    def close(self) -> None:
        """Ends the process; calling it again does nothing."""
        if self._pool_env is not None:
            self._pool_env.close()

    def __enter__(self) -> ProcessPyEnvironment:
        self.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool_env is not None:
            self._pool_env.__exit__(exception_type, exception, traceback)

    def __getattr__(self, name: str) -> Any:
        # Private names are never asked for: a half-built object that is unpickled must
        # not ask a process that is not there.
        if name.startswith("_"):
            raise AttributeError(name)
        return self.access(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            set_there(self, name, value)
