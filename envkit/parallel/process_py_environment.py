"""`ProcessPyEnvironment`: one environment in its own process, a pool of one."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from envkit._internal.removed import refuse_removed_options
from envkit.losses import Loss
from envkit.parallel.env_handles import OneEnvironment
from envkit.parallel.opening import as_constructors
from envkit.parallel.parallel_py_environment import ParallelPyEnvironment
from envkit.types import EnvConstructor, NestedSpec

if TYPE_CHECKING:
    from envkit._internal.worker_process import WorkerProcess

__all__ = ["ProcessPyEnvironment"]


class ProcessPyEnvironment(OneEnvironment):
    """Runs one environment in its own process: a pool of one.

    Nothing runs before `start()`. Public attributes that this object lacks are read
    from the environment, and set on it.

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

    _env = 0

    def __init__(
        self,
        env_constructor: EnvConstructor | str,
        flatten: bool = False,
        **options: Any,
    ) -> None:
        """Stores the arguments; `start` starts the process.

        Args:
            env_constructor: A constructor, called in the process, or its name.
            flatten: Accepted for compatibility with TF-Agents.
            **options: Keyword arguments of `ParallelPyEnvironment`.
        """
        refuse_removed_options(options, "ProcessPyEnvironment({maker})")
        self._constructor = as_constructors([env_constructor], type(self).__name__)
        self._options = options
        self._pool_env: ParallelPyEnvironment | None = None

    def start(self, wait_to_start: bool = True) -> None:
        """Starts the process and waits until the environment is built.

        Args:
            wait_to_start: Accepted for compatibility with TF-Agents: `wait_start` then
                returns at once.
        """
        if self._pool_env is None:
            self._pool_env = ParallelPyEnvironment(self._constructor, **self._options)

    def wait_start(self) -> None:
        """Returns once the environment is built."""
        self._facade._check_open("wait_start")

    @property
    def batched(self) -> bool:
        """Whether the environment is batched."""
        return self._facade._pool.is_batch[0]  # type: ignore[no-any-return]  # it says so

    @property
    def batch_size(self) -> int | None:
        """The environment's batch size; `None` for a single environment."""
        return self._facade.batch_size if self.batched else None

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of the reward."""
        return self._facade.reward_spec()

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of the discount."""
        return self._facade.discount_spec()

    def seed(self, seed: Any) -> Any:
        """Seeds the environment with exactly this seed."""
        if self.batched:
            return self._facade.seed(seed)
        return self._facade.seed([seed])[0]

    def get_info(self) -> Any:
        """Returns the environment's info for the current time step."""
        return self._facade.call("get_info")[0]

    @property
    def workers(self) -> list[WorkerProcess]:
        """The process, in a list; empty before `start` and after `close`."""
        return [] if self._pool_env is None else self._pool_env.workers

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call, as a pool's `losses` does."""
        return self._facade.losses()  # type: ignore[no-any-return]  # it is a pool

    def get_state(self) -> Any:
        """Returns a token for `set_state`."""
        return self._facade.get_state()

    def set_state(self, state: Any) -> None:
        """Restores what `get_state` returned."""
        self._facade.set_state(state)

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

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self._set_there(name, value)
