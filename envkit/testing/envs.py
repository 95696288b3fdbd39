"""Example environments for tests: counting, scripted, crashing, slow, or traceable.

The observations of `TracingEnv` name their environment, episode and step, and
`check_trace` compares them with the expected ones.
"""

from __future__ import annotations

import abc
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import (
    StepType,
    TimeStep,
    restart,
    termination,
    transition,
    truncation,
)
from envkit.types import Array, NestedArray, NestedSpec, Seed

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "CountingEnv",
    "CrashingEnv",
    "EpisodeCountingEnv",
    "NestedCountingEnv",
    "ScriptedEnv",
    "SlowEnv",
    "TracingEnv",
    "check_trace",
]


def _checked_lengths(steps_per_episode: int | Sequence[int]) -> list[int]:
    """Returns the lengths of episodes, used in turn."""
    lengths: list[int] = np.atleast_1d(steps_per_episode).tolist()
    if not lengths or min(lengths) < 1:
        raise ValueError(
            f"steps_per_episode must be at least 1, got {steps_per_episode}."
        )
    return lengths


def _check_mode(env: PyEnvironment, mode: str) -> None:
    if mode != "rgb_array":
        raise NotImplementedError(
            f"Only rgb_array is rendered by {type(env).__name__}, not {mode!r}."
        )


class _Counter(PyEnvironment):
    """Counts steps and episodes; subclasses turn the counts into observations."""

    def __init__(self, steps_per_episode: int = 10) -> None:
        _checked_lengths(steps_per_episode)
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
        """Returns a grey picture that gets brighter as the episode continues."""
        _check_mode(self, mode)
        level = 255 * self._current_step // self._steps_per_episode
        return np.full((8, 8, 3), level, np.uint8)

    @abc.abstractmethod
    def _observe(self) -> NestedArray:
        """Returns the counts."""

    def _reset(self) -> TimeStep:
        # Only finished episodes count, because a reset in the middle repeats one.
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
        # A small dtype wraps around when it is full.
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
    """Observes `total_steps` (counted as in `CountingEnv`) and `current_steps`."""

    def __init__(
        self, steps_per_episode: int = 10, nested_action: bool = False
    ) -> None:
        """Makes an environment; its action may be a dictionary."""
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
    """Returns given time steps one after the other, whatever the actions.

    `reset` goes to the next `FIRST` of the script, and the script repeats. The
    attribute `actions` lists the actions received.

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
            script: The time steps to return; the first is a `FIRST`.
            observation_spec: The observations' spec; by default the first one's.
            action_spec: The action's spec; by default an integer, 0 or 1.
        """
        if not script or not script[0].is_first():
            raise ValueError(
                "script must have at least one time step, and begin with a FIRST."
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
        # Copies, because a caller may write into the time step.
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
    """Counts, until it fails as configured.

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
            crash_at: The call in which it fails, counted from 1 over its whole life.
            how: "raise" an exception, "exit" the process without cleanup, or the name
                of a signal that the process sends itself, such as "SIGSEGV".
            where: The method that fails: "init", "step", "reset", "render" or "close".
            steps_per_episode: The length of an episode.
        """
        if how not in ("raise", "exit", *signal.Signals.__members__):
            raise ValueError(
                f"how must be 'raise', 'exit' or the name of a signal, got {how!r}."
            )
        places = ("init", "step", "reset", "render", "close")
        if where not in places:
            raise ValueError(
                f"where must be one of {', '.join(places)}, got {where!r}."
            )
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
        """Returns a picture, unless it is configured to fail here."""
        self._maybe_crash("render")
        return super().render(mode)

    def close(self) -> None:
        """Closes, unless it is configured to fail here."""
        self._maybe_crash("close")
        super().close()


class SlowEnv(CountingEnv):
    """Counts, and sleeps in every step.

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
            step_time: The duration of a step in seconds.
            reset_time: The duration of a reset in seconds.
            steps_per_episode: The length of an episode.
            sleep: Called with these seconds; pass `ManualClock.sleep` in tests that
                must not wait.
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


class TracingEnv(PyEnvironment):
    """Names its number, episode and step in every observation.

    It has no clock and no randomness: its number, its seed and the actions determine
    every time step. So the data alone reveal a time step that was lost, repeated, late
    or sent to another environment, and `check_trace` finds it.

    An observation is a dictionary: the `env_id`, the `seed` (-1 without one), the
    `episode` and the `step` in it, both counted from 0, the `length` of this episode
    and whether it `truncates`, the last `action` (-1 in a `FIRST`), and a `pattern`
    computed from the others, which reveals a half-written observation.

    Every `reset` begins the next episode, even in the middle of one. The first `reset`
    after `seed` begins with episode 0 again, as in a new environment.

    Example:
        >>> env = TracingEnv(env_id=7, steps_per_episode=2)
        >>> time_steps = [env.step(action) for action in (40, 41, 42, 43)]
        >>> [int(time_step.observation["episode"]) for time_step in time_steps]
        [0, 0, 0, 1]
        >>> check_trace(time_steps[0], 41, time_steps[1])
        ''
    """

    def __init__(
        self,
        env_id: int = 0,
        steps_per_episode: int | Sequence[int] = 5,
        truncate_every: int = 3,
    ) -> None:
        """Makes an environment.

        Args:
            env_id: The environment's number.
            steps_per_episode: The length of an episode; several lengths are used in
                turn, and `env_id` is the index of the first.
            truncate_every: Every so many episodes, one is truncated instead of
                terminated; 0 for never.
        """
        self._lengths = _checked_lengths(steps_per_episode)
        super().__init__(handle_auto_reset=True)
        self._env_id = env_id
        self._truncate_every = truncate_every
        self._next_seed: int | None = None
        self._seed = self._episode = self._step_in_episode = self._last_action = -1

    @property
    def env_id(self) -> int:
        """The environment's number."""
        return self._env_id

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of the numbers in an observation."""
        number = ArraySpec((), np.int64)
        return {
            "action": number,
            "env_id": number,
            "episode": number,
            "length": number,
            "pattern": ArraySpec(_RAMP.shape, _RAMP.dtype),
            "seed": number,
            "step": number,
            "truncates": ArraySpec((), np.bool_),
        }

    def action_spec(self) -> NestedSpec:
        """Returns the spec of an action: a number below one billion."""
        return BoundedArraySpec((), np.int64, 0, 999_999_999)

    def get_info(self) -> dict[str, Any]:
        """Returns the number, the episode and the step of the current time step."""
        return {
            "env_id": np.array(self._env_id, np.int64),
            "episode": np.array(self._episode, np.int64),
            "step": np.array(self._step_in_episode, np.int64),
        }

    def seed(self, seed: Seed) -> None:
        """Restarts with episode 0 and observes this seed, from the next `reset` on."""
        (given,) = checked_seeds(seed, 1)
        self._next_seed = -1 if given is None else given % 2**63

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns a picture coloured by environment, episode and step."""
        _check_mode(self, mode)
        colour = np.array([self._env_id, self._episode, self._step_in_episode]) % 256
        return np.full((8, 8, 3), colour, np.uint8)

    @property
    def _length(self) -> int:
        length: int = self._lengths[(self._env_id + self._episode) % len(self._lengths)]
        return length

    @property
    def _truncates(self) -> bool:
        every = self._truncate_every
        return every > 0 and self._episode % every == every - 1

    def _observe(self) -> dict[str, Array]:
        trace = self._env_id, self._seed, self._episode, self._step_in_episode
        return {
            "action": np.array(self._last_action, np.int64),
            "env_id": np.array(self._env_id, np.int64),
            "episode": np.array(self._episode, np.int64),
            "length": np.array(self._length, np.int64),
            "pattern": _pattern(*trace, self._last_action),
            "seed": np.array(self._seed, np.int64),
            "step": np.array(self._step_in_episode, np.int64),
            "truncates": np.array(self._truncates),
        }

    def _reset(self) -> TimeStep:
        if self._next_seed is not None:
            self._seed, self._next_seed, self._episode = self._next_seed, None, -1
        self._episode += 1
        self._step_in_episode, self._last_action = 0, -1
        return restart(self._observe())

    def _step(self, action: NestedArray) -> TimeStep:
        self._step_in_episode += 1
        self._last_action = int(action)
        reward = _reward(self._last_action)
        if self._step_in_episode < self._length:
            return transition(self._observe(), reward)
        end = truncation if self._truncates else termination
        return end(self._observe(), reward)

    def _get_state(self) -> Any:
        return (
            self._next_seed,
            self._seed,
            self._episode,
            self._step_in_episode,
            self._last_action,
        )

    def _set_state(self, state: Any) -> None:
        (
            self._next_seed,
            self._seed,
            self._episode,
            self._step_in_episode,
            self._last_action,
        ) = state


_RAMP = np.arange(16, dtype=np.uint32)
_RAMP.setflags(write=False)


def _pattern(*numbers: int) -> Array:
    """Returns an array in which every element depends on every number."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 1_000_003 + number) % 2**32
    pattern: Array = _RAMP + np.uint32(mixed)
    return pattern


def _reward(action: int) -> float:
    # Never 0, because that is the reward of a repaired row; and exact in float32.
    return action % 1000 + 0.5


class _Trace(NamedTuple):
    """Holds the numbers of a `TracingEnv` time step, as Python numbers."""

    env_id: int
    seed: int
    episode: int
    step: int
    step_type: str
    action: int
    reward: float
    discount: float
    length: int
    truncates: bool

    @classmethod
    def of(cls, time_step: TimeStep) -> _Trace:
        seen = time_step.observation
        return cls(
            int(seen["env_id"]),
            int(seen["seed"]),
            int(seen["episode"]),
            int(seen["step"]),
            _STEP_TYPES.get(int(time_step.step_type), str(time_step.step_type)),
            int(seen["action"]),
            float(time_step.reward),
            float(time_step.discount),
            int(seen["length"]),
            bool(seen["truncates"]),
        )

    @property
    def place(self) -> tuple[int, int]:
        """The episode, and the step in it."""
        return self.episode, self.step

    @property
    def was_cut_short(self) -> bool:
        """True if the environment was lost here, and another took its place."""
        return self.step_type == "LAST" and self.step < self.length


_STEP_TYPES = {
    int(StepType.FIRST): "FIRST",
    int(StepType.MID): "MID",
    int(StepType.LAST): "LAST",
}


_BEGINNING: dict[str, Any] = {
    "step": 0,
    "step_type": "FIRST",
    "action": -1,
    "reward": 0.0,
    "discount": 1.0,
}


def check_trace(
    previous: TimeStep | None,
    action: Any,
    current: TimeStep,
    *,
    repaired: bool = False,
    env_id: int | None = None,
) -> str:
    """Describes an error in a stream of `TracingEnv`; "" if there is none.

    The time steps are one row's, without a batch dimension, in the order of
    `AutoReset.NEXT_STEP`: after a `LAST` comes a `FIRST`, and its action is ignored.
    After a repaired `LAST`, recognisable by its observation, comes the `FIRST` of a new
    environment.

    Args:
        previous: The previous time step; `None` if the environment is new or was just
            seeded.
        action: The action of `step`; `None` if `reset` was called.
        current: The time step to check.
        repaired: Whether the environment was lost on the way to `current`. Then
            `current` is a `LAST` with reward 0, discount 1 and the observation of
            `previous`; or, if a `FIRST` was due, the `FIRST` of a new environment.
        env_id: The number that `current` must have; by default `previous`'s.

    Example:
        >>> env = TracingEnv(env_id=7)
        >>> first, second = env.reset(), env.step(41)
        >>> check_trace(first, 41, second)
        ''
        >>> check_trace(first, 42, second).split(": ")[:2]
        ['env 7, episode 0, step 1', 'the answer to another action']
    """
    came = _Trace.of(current)
    before = None if previous is None else _Trace.of(previous)
    due = _due(before, action, came, repaired)
    if env_id is not None:
        due = due._replace(env_id=env_id)
    told = came.env_id, came.seed, *came.place, came.action
    is_whole = np.array_equal(current.observation["pattern"], _pattern(*told))
    if came == due and is_whole:
        return ""
    differences = [
        f"{name} is {got} instead of {wanted}"
        for name, got, wanted in zip(_Trace._fields, came, due, strict=True)
        if got != wanted
    ] + ([] if is_whole else ["the pattern is of other numbers"])
    return (
        f"env {due.env_id}, episode {due.episode}, step {due.step}: "
        f"{_diagnosis(before, due, came, is_whole)}: {', '.join(differences)}."
    )


def _due(before: _Trace | None, action: Any, came: _Trace, repaired: bool) -> _Trace:
    """Returns the expected numbers, with those that may differ taken from `came`."""
    if before is None:
        return came._replace(episode=0, **_BEGINNING)
    if action is None or before.step_type == "LAST":
        is_new = repaired or before.was_cut_short or came.seed != before.seed
        episode = 0 if is_new else before.episode + 1
        return came._replace(env_id=before.env_id, episode=episode, **_BEGINNING)
    if repaired:
        return before._replace(step_type="LAST", reward=0.0, discount=1.0)
    step = before.step + 1
    ends = step == before.length
    return before._replace(
        step=step,
        step_type="LAST" if ends else "MID",
        action=int(action),
        reward=_reward(int(action)),
        discount=0.0 if ends and not before.truncates else 1.0,
    )


def _diagnosis(before: _Trace | None, due: _Trace, came: _Trace, is_whole: bool) -> str:
    if not is_whole:
        return "parts of different answers"
    if came.env_id != due.env_id:
        return "the answer of another environment"
    if before is not None and came.place == before.place != due.place:
        return "the answer before came again"
    if came.place < due.place:
        return "an older answer"
    if came.place > due.place:
        return "an answer is missing"
    if came.action != due.action:
        return "the answer to another action"
    return "not the answer that was due"
