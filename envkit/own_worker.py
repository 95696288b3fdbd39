"""`OwnWorker`: an environment that lives in a worker process of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit._internal.internals import Internals
from envkit.base_wrapper import rows_in_wrapper, set_attribute
from envkit.batches import hand_options
from envkit.registry import make
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["OwnWorker"]

_STEP_TYPES = {int(one): one for one in (StepType.FIRST, StepType.MID, StepType.LAST)}


class _OwnWorkerInternals(Internals):
    """Hands options to the environment in the worker."""

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        env._asked("take_options", options)


class OwnWorker:
    """Forwards all calls to an environment in a process that only this one has.

    A state is that of the environment, as if it were here. What it raises comes as
    `EnvironmentRaised`, and the end of its process as `WorkerCrashed`.

    The environment is a single one, and its caller resets it after each `LAST`.
    """

    _envkit: Internals = _OwnWorkerInternals(keeps_order=False)

    def __init__(self, make_env: Callable[[], Any], **options: Any) -> None:
        """Starts the process, and waits until the environment is built.

        Args:
            make_env: Makes the environment, in the process.
            **options: Keyword arguments of `ParallelPyEnvironment`.
        """
        hosted = functools.partial(_Hosted, make_env)
        self._pool = make(hosted, num_envs=1, num_workers=1, **options)
        self._has_begun = False
        self._action = nest.Structure(self._pool.action_spec())
        self._time_step = nest.Structure(self._pool.time_step_spec())

    @property
    def batched(self) -> bool:
        """Whether the environment is a batch."""
        return bool(self._asked("attribute", "batched")[1])

    @property
    def type_name(self) -> str:
        """The name of the environment's class."""
        return str(self._asked("type_name"))

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._pool.observation_spec()

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._pool.action_spec()

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of a reward."""
        return self._pool.reward_spec()

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of a discount."""
        return self._pool.discount_spec()

    def time_step_spec(self) -> TimeStep:
        """Returns the specs of a time step."""
        return self._pool.time_step_spec()  # type: ignore[no-any-return]

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs that the environment declares of its info."""
        return self._pool.info_spec()  # type: ignore[no-any-return]

    def reset(self) -> TimeStep:
        """Begins an episode."""
        self._has_begun = True
        return self._one(self._pool.reset())

    def step(self, action: NestedArray) -> TimeStep:
        """Applies an action."""
        one = self._action.map(lambda leaf: np.asarray(leaf)[None], action)
        return self._one(self._pool.step(one))

    def _one(self, time_step: TimeStep) -> TimeStep:
        """Returns a time step without the dimension of a pool of one."""
        one = self._time_step.map(lambda leaf: leaf[0, ...], time_step)
        step_type = _STEP_TYPES[int(one.step_type)]
        return one._replace(step_type=step_type)  # type: ignore[no-any-return]

    def _asked(self, method: str, *arguments: Any) -> Any:
        return self._pool.call(method, *arguments)[0]

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        return self._asked("seed", seed)

    def get_info(self) -> Any:
        """Returns the environment's info of the current time step."""
        return self._asked("get_info")

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders."""
        return self._asked("render", mode)

    def get_state(self) -> Any:
        """Returns the environment's state."""
        return self._asked("get_state")

    def set_state(self, state: Any) -> None:
        """Restores a state of the environment."""
        if not self._has_begun:  # The first step of the pool would reset it.
            self.reset()
        self._asked("set_state", state)

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of the environment."""
        self._asked("set_attr", name, value)

    def env_is_wrapped(self, wrapper_class: type) -> list[bool]:
        """Returns whether the environment is in a wrapper of this class."""
        return self._asked("env_is_wrapped", wrapper_class)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the process."""
        self._pool.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        is_method, found = self._asked("attribute", name)
        return functools.partial(self._asked, name) if is_method else found


class _Hosted:
    """The environment in its process."""

    # So that its worker takes no step after a LAST for a reset: it does not see which
    # states are restored.
    repeats_last = True

    def __init__(self, make_env: Callable[[], Any]) -> None:
        self._env = make_env()

    def type_name(self) -> str:
        """Returns the name of the environment's class."""
        return type(self._env).__name__

    def attribute(self, name: str) -> tuple[bool, Any]:
        """Returns whether there is a method of this name, and else the attribute."""
        found = getattr(self._env, name)
        return (True, None) if callable(found) else (False, found)

    def take_options(self, options: Any) -> None:
        """Hands the environment options for its next reset."""
        hand_options(self._env, options)

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of the environment."""
        set_attribute(self._env, name, value)

    def env_is_wrapped(self, wrapper_class: type) -> list[bool]:
        """Returns whether the environment is in a wrapper of this class."""
        return rows_in_wrapper(self._env, wrapper_class)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return getattr(self._env, name)
