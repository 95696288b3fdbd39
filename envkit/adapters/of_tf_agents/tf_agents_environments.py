"""Environments of envkit in the classes of TF-Agents, which must be installed."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.forwarding import forwarded
from envkit.adapters.of_tf_agents.tf_agents_order import check_rows_begin
from envkit.adapters.spaces.repacking import Repacker
from envkit.adapters.spaces.values import Leaf, array_leaf
from envkit.errors import CallOrderError
from envkit.py_environment import PyEnvironment
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedArray, Seed

__all__ = ["as_py_environment", "as_tf_environment"]


def as_py_environment(env: PyEnvironment) -> Any:
    """Makes a `PyEnvironment` of TF-Agents of an environment, batched or not."""
    return _py_environment_class()(env)


def as_tf_environment(env: Any) -> Any:
    """Makes a `TFEnvironment` of TF-Agents of an environment in TensorFlow."""
    return _tf_environment_class()(env)


class _PyAdapter:
    """Does what an envkit environment does, in the classes of TF-Agents."""

    def __init__(self, env: PyEnvironment) -> None:
        # TF-Agents' base class begins an episode when the one before has ended in all
        # rows; a batch begins them row by row, and sees to that itself.
        super().__init__(handle_auto_reset=not env.batched)  # type: ignore[call-arg]  # TF-Agents' class comes next
        self._env = env
        self._name = type(env).__name__
        ours = env.time_step_spec()
        self._specs = nest.map_structure(_spec_for_tf_agents, _time_step_class()(*ours))
        self._own_action_spec = nest.map_structure(
            _spec_for_tf_agents, env.action_spec()
        )
        self._repack = Repacker(
            ours,
            () if env.batch_size is None else (env.batch_size,),
            leaf=_own_array_leaf,
            subject=f"{self._name} returned a time step that",
            template=self._specs,
        )
        self._current_time_step = self._standing()

    @property
    def batched(self) -> bool:
        return self._env.batched

    @property
    def batch_size(self) -> int | None:
        return self._env.batch_size

    def wrapped_env(self) -> PyEnvironment:
        """Returns the environment of envkit."""
        return self._env

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, self.wrapped_env, name)

    def observation_spec(self) -> Any:
        return self._specs.observation

    def action_spec(self) -> Any:
        return self._own_action_spec

    def reward_spec(self) -> Any:
        return self._specs.reward

    def discount_spec(self) -> Any:
        return self._specs.discount

    def time_step_spec(self) -> Any:
        # TF-Agents' own would leave out what discount_spec says.
        return self._specs

    def render(self, mode: str = "rgb_array") -> Any:
        return self._env.render(mode)

    def seed(self, seed: Seed) -> Any:
        return self._env.seed(seed)

    def get_info(self) -> Any:
        return self._env.get_info()

    def get_state(self) -> Any:
        return self._env.get_state()

    def set_state(self, state: Any) -> None:
        self._env.set_state(state)
        self._current_time_step = self._standing()

    def close(self) -> None:
        self._env.close()

    def _standing(self) -> Any:
        """Returns the environment's current time step, or `None` before the first."""
        try:
            time_step = self._env.current_time_step()
        except CallOrderError:
            return None
        return self._repack(time_step)

    def _reset(self) -> Any:
        return self._repack(self._env.reset())

    def _step(self, action: NestedArray) -> Any:
        # Hot: called once per step.
        time_step = self._repack(self._env.step(action))
        if self._env.batched:
            check_rows_begin(self._name, self._current_time_step, time_step)
        return time_step


class _TFAdapter:
    """Does what a TensorFlow environment of envkit does, with TF-Agents' time steps."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._kind = _time_step_class()
        super().__init__(  # type: ignore[call-arg]  # TF-Agents' class comes next
            self._kind(*env.time_step_spec()), env.action_spec(), env.batch_size
        )

    def wrapped_env(self) -> Any:
        """Returns the environment of envkit."""
        return self._env

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, self.wrapped_env, name)

    def render(self, mode: str = "rgb_array") -> Any:
        return self._env.render(mode)

    def _current_time_step(self) -> Any:
        return self._kind(*self._env.current_time_step())

    def _reset(self) -> Any:
        return self._kind(*self._env.reset())

    def _step(self, action: NestedArray) -> Any:
        return self._kind(*self._env.step(action))


@functools.cache
def _py_environment_class() -> Any:
    from tf_agents.environments import (  # type: ignore[import-not-found]  # an environment of its own has it
        py_environment,
    )

    class ToTFAgents(_PyAdapter, py_environment.PyEnvironment):  # type: ignore[misc]  # it has no types
        """An environment of envkit as a `PyEnvironment` of TF-Agents."""

    return ToTFAgents


@functools.cache
def _tf_environment_class() -> Any:
    from tf_agents.environments import tf_environment

    class TFToTFAgents(_TFAdapter, tf_environment.TFEnvironment):  # type: ignore[misc]  # it has no types
        """A TensorFlow environment of envkit as a `TFEnvironment` of TF-Agents."""

    return TFToTFAgents


def _time_step_class() -> Any:
    from tf_agents.trajectories import (  # type: ignore[import-not-found]  # as above
        time_step,
    )

    return time_step.TimeStep


def _spec_for_tf_agents(spec: ArraySpec) -> Any:
    from tf_agents.specs import (  # type: ignore[import-not-found]  # as above
        array_spec,
    )

    if isinstance(spec, BoundedArraySpec):
        return array_spec.BoundedArraySpec(
            spec.shape, spec.dtype, spec.minimum, spec.maximum, spec.name
        )
    return array_spec.ArraySpec(spec.shape, spec.dtype, spec.name)


def _own_array_leaf(spec: ArraySpec) -> Leaf:
    """Returns a function like that of `array_leaf` which copies only what it must."""
    shape, dtype, convert = spec.shape, spec.dtype, array_leaf(spec)

    def as_own(value: Any) -> Array:
        # Hot: called once per leaf and step. An environment's arrays are the caller's,
        # except those which nobody may write to: they are views that change later, and
        # TensorFlow would not copy them either.
        if (
            type(value) is np.ndarray
            and value.dtype == dtype
            and value.shape == shape
            and (value.flags.writeable or not shape)
        ):
            return value
        array: Array = convert(value)
        return array

    return as_own
