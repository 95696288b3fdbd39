"""Makes any environment take and return tensors: `TorchEnvironment`."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch

from envkit.async_environment import AsyncBatch, AsyncEnvironment
from envkit.batched_py_environment import BatchedPyEnvironment
from envkit.errors import CallOrderError
from envkit.extend import as_environment, describe, foreign
from envkit.py_environment import PyEnvironment
from envkit.registry import constructor
from envkit.time_step import AutoReset, TimeStep
from envkit.torch.transfer import Actions, TimeSteps, as_device, checked_dtypes
from envkit.types import NestedArray, NestedSpec, Options, ResetSeed

__all__ = ["TorchEnvironment"]

Self = TypeVar("Self", bound="TorchEnvironment")


class TorchEnvironment:
    """Makes an environment of any kind take and return tensors, as a batch of rows.

    Time steps have tensors on one device; actions may be tensors on any device, arrays
    or lists. Public attributes that this class lacks are looked up in the environment.

    On the CPU, a tensor shares the memory of the environment's array. For a pool with
    `zero_copy=True`, tensors are made once and are valid until the call after the next,
    like the pool's arrays.

    Attributes:
        pyenv: The environment as a batch; a single environment becomes a batch of one.
        device: The device of its tensors.
        is_single: True if it was made from a single environment.
        is_async: True if rows answer `send` at their own pace; False if they `step`.

    Example:
        >>> import envkit
        >>> env = TorchEnvironment(envkit.make("CartPole", batch_size=2, seed=1))
        >>> env.reset().observation.shape
        torch.Size([2, 4])
        >>> env.step(torch.tensor([0, 1])).reward
        tensor([1., 1.])
        >>> env.close()
    """

    def __init__(
        self,
        env: Any,
        device: Any = None,
        dtypes: Mapping[Any, torch.dtype] | None = None,
    ) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            env: An environment or a pool, in lockstep or asynchronous; or a
                constructor, or a name that `envkit.make` accepts.
            device: The device of tensors, such as "cuda"; `None` for the CPU.
            dtypes: The tensors' dtypes by NumPy's, such as `{np.float64:
                torch.float32}`; others stay as they are.

        Raises:
            SpecError: PyTorch has no tensors for a part of the time steps.
        """
        self.device = as_device(device)
        types = checked_dtypes(dtypes)
        self.pyenv, is_ours, self.is_single = _batch_of(env)
        try:
            self._time_steps = TimeSteps(
                self.pyenv.time_step_spec(), self.device, types
            )
            self._actions = Actions(self.pyenv.action_spec())
        except BaseException:
            if is_ours:  # the owner of a given environment closes it
                self.pyenv.close()
            raise
        self.is_async = isinstance(self.pyenv, AsyncEnvironment)
        self._has_begun = False
        name = type(self.pyenv).__name__
        self._reset_name, self._step_name = f"{name}.reset()", f"{name}.step()"
        self._now_name, self._recv_name = (
            f"{name}.current_time_step()",
            f"{name}.recv()",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "pyenv":
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return getattr(self.pyenv, name)

    # Properties and specs.

    @property
    def batch_size(self) -> int:
        """The number of rows."""
        env = self.pyenv
        return int(env.num_envs if self.is_async else env.batch_size)

    @property
    def autoreset(self) -> AutoReset:
        """When the next episode begins after a `LAST`; can be set."""
        return AutoReset.kept_by(self.pyenv)

    @autoreset.setter
    def autoreset(self, order: AutoReset | str) -> None:
        self.pyenv.autoreset = order

    @property
    def repaired(self) -> torch.Tensor:
        """A mask of the rows whose last time step is a made-up `LAST`."""
        return torch.from_numpy(np.array(self.pyenv.repaired)).to(self.device)

    def time_step_spec(self) -> TimeStep:
        """Returns the array specs of one row's time step."""
        return self.pyenv.time_step_spec()  # type: ignore[no-any-return]  # of any kind

    def observation_spec(self) -> NestedSpec:
        """Returns the array specs of one row's observation."""
        return self.pyenv.observation_spec()

    def action_spec(self) -> NestedSpec:
        """Returns the array specs of one row's action."""
        return self.pyenv.action_spec()

    # Between arrays and tensors.

    def tensors(self, time_step: TimeStep, call: str = "the environment") -> TimeStep:
        """Returns a time step of arrays, of some or all rows, as tensors.

        Args:
            time_step: The time step of the environment.
            call: The call that returned it, for the error if it does not fit.
        """
        # Hot: called once per step.
        return self._time_steps.tensors(time_step, call)  # type: ignore[no-any-return]

    def arrays(self, action: NestedArray, call: str = "step") -> NestedArray:
        """Returns a batch of actions as arrays for the environment's step.

        It waits until earlier time steps are no longer being read from memory that a
        step overwrites, so call it right before the step.
        """
        # Hot: called once per step.
        arrays = self._actions.arrays(action, call)
        self._time_steps.wait()
        return arrays

    def empty(self, *dims: int) -> TimeStep:
        """Returns a time step of uninitialised tensors.

        Args:
            *dims: The leading dimensions, such as time and rows.
        """
        return self._time_steps.empty(*dims)  # type: ignore[no-any-return]

    # In lockstep.

    def reset(
        self, mask: Any = None, *, seed: ResetSeed = None, options: Options = None
    ) -> TimeStep:
        """Starts an episode and returns the time step of all rows.

        Args:
            mask: The rows that start an episode, as a tensor or an array; `None` for
                all.
            seed: Seeds the rows first.
            options: The options of this reset.
        """
        self._check_in_lockstep("reset")
        self._time_steps.wait()
        given = {"seed": seed, "options": options}
        given = {name: value for name, value in given.items() if value is not None}
        time_step = self.pyenv.reset(_as_array(mask), **given)
        self._has_begun = True
        return self.tensors(time_step, self._reset_name)

    def step(self, action: NestedArray, mask: Any = None) -> TimeStep:
        """Applies an action to each row and returns the resulting time step.

        Args:
            action: A batch of actions: tensors on any device, arrays or lists.
            mask: The rows that step, as a tensor or an array; the others stay where
                they are.
        """
        # Hot: called once per step.
        pyenv = self.pyenv
        if self.is_async:
            self._check_in_lockstep("step")
        arrays = self.arrays(action)
        if mask is None:
            time_step = pyenv.step(arrays)
        else:
            time_step = pyenv.step(arrays, _as_array(mask))
        self._has_begun = True
        return self.tensors(time_step, self._step_name)

    def current_time_step(self) -> TimeStep:
        """Returns the current time step, on which a policy should act.

        Before the first episode it begins one.
        """
        self._check_in_lockstep("current_time_step")
        try:
            time_step = self.pyenv.current_time_step()
        except CallOrderError:
            # The first call begins an episode; a later error has another reason.
            if self._has_begun:
                raise
            return self.reset()
        return self.tensors(time_step, self._now_name)

    def _check_in_lockstep(self, call: str) -> None:
        if self.is_async:
            name = type(self.pyenv).__name__
            raise CallOrderError(
                f"TorchEnvironment.{call}() needs an environment in lockstep, and "
                f"{name} is asynchronous: call reset_async(), send() and recv(), or "
                "wrap it in envkit.Blocking first."
            )

    # At each row's own pace.

    def reset_async(self, env_ids: Any = None, **given: Any) -> None:
        """Starts an episode in the given rows, or in all; returns at once.

        Args:
            env_ids: The rows, as a tensor or a list; `None` for all.
            **given: `seed` and `options`, as in `AsyncEnvironment.reset_async`.
        """
        self._check_async("reset_async")
        self._time_steps.wait()
        self.pyenv.reset_async(_as_array(env_ids), **given)

    def send(self, actions: NestedArray, env_ids: Any = None) -> None:
        """Hands row `i` of the actions to `env_ids[i]`, or to row `i`; returns at once.

        Args:
            actions: Tensors on any device, arrays or lists.
            env_ids: The rows, as a tensor or a list; `None` for all.
        """
        self._check_async("send")
        self.pyenv.send(self.arrays(actions, "send"), _as_array(env_ids))

    def recv(
        self, count: int | None = None, timeout: float | None = None
    ) -> AsyncBatch:
        """Returns rows that have finished, in the order in which they did.

        Args:
            count: How many rows to wait for; `None` waits for all that owe an answer.
            timeout: Seconds after which to return the rows that are ready, possibly
                none.

        Returns:
            The rows' numbers and time steps as tensors, and their infos.
        """
        self._check_async("recv")
        batch = self.pyenv.recv(count, timeout)
        env_ids: Any = torch.from_numpy(np.asarray(batch.env_ids, np.int64))
        time_step = self.tensors(batch.time_step, self._recv_name)
        return batch._replace(env_ids=env_ids.to(self.device), time_step=time_step)  # type: ignore[no-any-return]

    def _check_async(self, call: str) -> None:
        if not self.is_async:
            raise CallOrderError(
                f"TorchEnvironment.{call}() needs an asynchronous environment, such as "
                f"an AsyncParallelPyEnvironment, and {type(self.pyenv).__name__} is in "
                "lockstep: call reset() and step()."
            )

    # Closing.

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        try:
            self._time_steps.close()
        finally:
            self.pyenv.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TorchEnvironment({self.pyenv!r}, device={str(self.device)!r})"


def _as_array(value: Any) -> Any:
    """Returns a tensor as an array, and any other value unchanged."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def _batch_of(given: Any) -> tuple[Any, bool, bool]:
    """Returns a batch, whether it was made here, and whether it is a batch of one."""
    is_ready = isinstance(given, AsyncEnvironment | PyEnvironment)
    make = constructor(given) if isinstance(given, str) else given
    env = as_environment(make() if callable(make) and not is_ready else make)
    if isinstance(env, AsyncEnvironment):
        return env, not is_ready, False
    if not isinstance(env, PyEnvironment):
        raise TypeError(
            "TorchEnvironment must be given an environment, or something to call that "
            f"makes one, got {foreign(env) or describe(env)}."
        )
    if env.batched:
        return env, not is_ready, False
    return BatchedPyEnvironment([env], multithreading=False), not is_ready, True
