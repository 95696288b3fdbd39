"""Adds the time in the episode to observations: `TimeAwareObservation`."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.arguments import checked_key
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import checked_flag, checked_size
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedSpec
from envkit.wrappers.nests import fresh_nest
from envkit.wrappers.observation_parts import Packing
from envkit.wrappers.observations import place

__all__ = ["TimeAwareObservation"]


_FIRST = StepType.FIRST
# The key of a plain observation in a dictionary with the time, as in Gymnasium.
_OBS = "obs"
# The largest int32.
_LARGEST = int(np.iinfo(np.int32).max)


class TimeAwareObservation(PyEnvironmentBaseWrapper):
    """Adds the number of steps in the episode to each observation.

    With a time limit, the best action may depend on the time left, which an agent
    cannot see from the state alone. The time of a `FIRST` is 0, and it stops at
    `max_steps` if an episode is longer. Each row counts on its own.

    With `flatten`, all leaves become one vector with the time as its last element, in a
    dtype that holds them all. Without it, a dictionary gets another key for the time,
    and a list or tuple another element; any other observation goes into a dictionary
    with the keys `"obs"` and `dict_time_key`. The time then has the shape `(1,)`.

    Example:
        >>> from envkit.envs import CartPole
        >>> from envkit.wrappers.limits import TimeLimit
        >>> env = TimeAwareObservation(
        ...     TimeLimit(CartPole(seed=1), duration=5), normalize_time=True
        ... )
        >>> env.observation_spec().shape
        (5,)
        >>> [f"{env.step(1).observation[-1]:.1f}" for _ in range(4)]
        ['0.0', '0.2', '0.4', '0.6']
        >>> from envkit.testing import CountingEnv
        >>> env = TimeAwareObservation(CountingEnv(), flatten=False)
        >>> env.reset().observation
        {'obs': array(0, dtype=int32), 'time': array([0], dtype=int32)}
    """

    _kept = ("_steps",)
    _shown = ("flatten", "normalize_time", "max_steps")

    def __init__(
        self,
        env: Any,
        flatten: bool = True,
        normalize_time: bool = False,
        dict_time_key: str = "time",
        max_steps: int | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            flatten: Whether to join observation and time into one vector.
            normalize_time: Whether the time is a float32 that reaches 1 at step
                `max_steps`; if not, it is an int32 that counts steps.
            dict_time_key: The key of the time in a dictionary.
            max_steps: The length of the longest episode. `None` reads it from a
                `TimeLimit` or `FixedLength` in the environment.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._flatten = checked_flag("flatten", flatten)
        self._normalize_time = checked_flag("normalize_time", normalize_time)
        self._dict_time_key = checked_key("dict_time_key", dict_time_key)
        self._max_steps = _limit(self._env, max_steps)
        if self._normalize_time and self._max_steps is None:
            raise ValueError(
                "TimeAwareObservation needs the length of episodes to normalize the "
                "time, and found no TimeLimit or FixedLength in the environment. Pass "
                "max_steps, or wrap a TimeLimit."
            )
        self._most = min(self._max_steps or _LARGEST, _LARGEST)
        self._steps = np.zeros(self._dims, np.int64)
        spec, time = self._env.observation_spec(), self._time_spec()
        self._structure = nest.Structure(spec)
        self._packing: Packing | None = None
        if self._flatten:
            self._packing = self._prepared_packing(time)
            self._observation_spec: NestedSpec = self._packing.spec
        else:
            self._join = _joiner(spec, dict_time_key)
            self._observation_spec = self._join(spec, time)
            # Called only because it refuses keys that cannot be sorted.
            nest.flatten(self._observation_spec)

    @property
    def flatten(self) -> bool:
        """Whether observation and time are joined into one vector."""
        return self._flatten

    @property
    def normalize_time(self) -> bool:
        """Whether the time goes from 0 to 1."""
        return self._normalize_time

    @property
    def dict_time_key(self) -> str:
        """The key of the time in a dictionary."""
        return self._dict_time_key

    @property
    def max_steps(self) -> int | None:
        """The length of the longest episode; `None` if unknown."""
        return self._max_steps

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of the observation with the time."""
        return fresh_nest(self._observation_spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        is_first = np.asarray(time_step.step_type) == _FIRST
        steps = np.where(is_first, 0, self._steps + 1)
        self._steps = steps if rows is None else np.where(rows, steps, self._steps)
        observation, time = time_step.observation, self._time()
        if self._packing is None:
            return time_step._replace(observation=self._join(observation, time))
        leaves = [*self._structure.flatten(observation), time]
        return time_step._replace(observation=self._packing.pack(leaves))

    def _time(self) -> Array:
        """Returns every row's time, along the last axis of an array."""
        steps = np.minimum(self._steps, self._most).reshape((*self._dims, 1))
        if self._normalize_time:
            return (steps / self._most).astype(np.float32)
        return steps.astype(np.int32)

    def _time_spec(self) -> BoundedArraySpec:
        name = self._dict_time_key
        if self._normalize_time:
            return BoundedArraySpec((1,), np.float32, 0.0, 1.0, name)
        return BoundedArraySpec((1,), np.int32, 0, self._most, name)

    def _prepared_packing(self, time: ArraySpec) -> Packing:
        specs = [*self._structure.leaves, time]
        for spec, path in zip(specs, self._structure.paths, strict=False):
            if spec.dtype.kind not in "biuf":
                raise ValueError(
                    "TimeAwareObservation cannot put the observation"
                    f"{place(path)} into a vector of numbers: its dtype is "
                    f"{spec.dtype}. Pass flatten=False."
                )
        dtype = np.result_type(*[spec.dtype for spec in specs])
        return Packing(specs, self._dims, dtype)


def _limit(env: Any, max_steps: Any) -> int | None:
    if max_steps is not None:
        hint = ", or None to ask the environment"
        return checked_size("max_steps", max_steps, hint=hint)
    # `fix_length` is the full length, even if the episode itself ends earlier.
    for name in ("fix_length", "duration"):
        duration: Any = getattr(env, name, None)
        # An attribute of this name may mean anything, for instance seconds.
        with contextlib.suppress(TypeError):
            steps = 0 if isinstance(duration, bool) else operator.index(duration)
            if steps >= 1:
                return steps
    return None


def _joiner(spec: NestedSpec, key: str) -> Callable[[Any, Any], Any]:
    """Chooses the function that adds the time to an observation and its spec."""
    if isinstance(spec, Mapping):
        if key in spec:
            raise ValueError(
                f"dict_time_key is {key!r}, a key that the observation already has. "
                "Pass another one."
            )
        return functools.partial(_in_dictionary, key=key)
    if type(spec) is list or type(spec) is tuple:
        return functools.partial(_in_sequence, kind=type(spec))
    if key == _OBS:
        raise ValueError(
            f"dict_time_key is {key!r}, the key of the observation itself. Pass "
            "another one."
        )
    return functools.partial(_in_new_dictionary, key=key)


# Module functions rather than lambdas, so that wrappers can be pickled.
def _in_dictionary(observation: Any, time: Any, key: str) -> Any:
    return {**observation, key: time}


def _in_sequence(observation: Any, time: Any, kind: type) -> Any:
    return kind([*observation, time])


def _in_new_dictionary(observation: Any, time: Any, key: str) -> Any:
    return {_OBS: observation, key: time}
