"""Wrappers that repeat or delay actions."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.actions_and_rewards import nearest_to_zero
from envkit._shared.arguments import is_number
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.extend import WrapperInternals, checked_size
from envkit.specs.arrays import ArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wrappers.actions import GivenActions
from envkit.wrappers.history import history_of
from envkit.wrappers.randomness import Branch, branched, wrapper_streams
from envkit.wrappers.rewards import add_in_rows, sum_spec
from envkit.wrappers.rows import where_rows

__all__ = ["ActionRepeat", "DelayAction", "MaxAndSkipObservation", "StickyAction"]


_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST


class ActionRepeat(PyEnvironmentBaseWrapper):
    """Repeats every action several times, and adds up the rewards.

    It stops early when an episode ends or begins. Everything but the reward comes from
    the last step, including the discount.

    Each row of a batch stops on its own. The batch must be able to hold rows while
    others step (see its `holds_rows`).

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = ActionRepeat(CountingEnv(steps_per_episode=5), times=2)
        >>> [int(env.step(0).observation) for _ in range(5)]
        [0, 2, 4, 5, 10]
    """

    _shown = ("times",)

    def __init__(self, env: Any, times: int, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            times: How many times an action is repeated; 2 or more.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._times = checked_size(
            "times", times, least=2, hint=" (greater than 1, or nothing is repeated)"
        )
        self._envkit.check_holds_rows(self)

    @property
    def times(self) -> int:
        """How many times an action is repeated."""
        return self._times

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of one row's summed reward, with the bounds of the sum."""
        return nest.map_structure(
            lambda spec: sum_spec(spec, self._times), self._env.reward_spec()
        )

    def _step(self, action: NestedArray) -> TimeStep:
        return self._repeat(action, self._env.step(action), True)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        time_step = self._env.step_rows(action, stepping, beginning)
        return self._repeat(action, time_step, stepping)

    def _repeat(self, action: NestedArray, time_step: TimeStep, rows: Any) -> TimeStep:
        """Makes the steps after the first one, in rows that are in mid-episode."""
        total = nest.map_structure(np.array, time_step.reward)
        for left in reversed(range(self._times - 1)):
            rows = rows & (np.asarray(time_step.step_type) == _MID)
            if not rows.any():
                break
            before = time_step.observation
            if rows.all():
                time_step = self._env.step(action)
            else:
                time_step = self._env.step_rows(action, rows)
            total = nest.map_structure(
                functools.partial(add_in_rows, rows), total, time_step.reward
            )
            if not left:
                seen = self._joined(rows, before, time_step.observation)
                time_step = time_step._replace(observation=seen)
        return time_step._replace(reward=total)

    def _joined(
        self, rows: Any, before: NestedArray, observation: NestedArray
    ) -> NestedArray:
        """Returns the observation, for rows that made the last repetition."""
        return observation


class MaxAndSkipObservation(ActionRepeat):
    """Repeats each action, and shows the maximum of the last two observations.

    So nothing is missing in games that draw some things only in every other frame. The
    maximum is taken element by element. At the beginning of an episode, and if it ended
    before the last repetition, the observation is a single frame.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = MaxAndSkipObservation(CountingEnv(steps_per_episode=5), skip=2)
        >>> [int(env.step(0).observation) for _ in range(5)]
        [0, 2, 4, 5, 10]
    """

    _shown = ("skip",)

    def __init__(
        self, env: Any, skip: int = 4, handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap; its observations must be numbers.
            skip: How many steps each action takes; 2 or more.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        checked_size("skip", skip, least=2, hint=", or nothing is skipped")
        super().__init__(env, skip, handle_auto_reset)
        for path, spec in nest.flatten_with_paths(self._env.observation_spec()):
            if spec.dtype.kind not in "biuf":
                raise ValueError(
                    "MaxAndSkipObservation compares numbers, and the observation"
                    f"{f' at {path}' if path else ''} is {spec!r:.200}."
                )

    @property
    def skip(self) -> int:
        """How many steps each action takes."""
        return self._times

    def _joined(
        self, rows: Any, before: NestedArray, observation: NestedArray
    ) -> NestedArray:
        return nest.map_structure(
            lambda first, second: where_rows(rows, np.maximum(first, second), second),
            before,
            observation,
        )


class StickyAction(PyEnvironmentBaseWrapper):
    """Repeats the previous action with some probability, instead of the given one.

    A policy cannot rely on its actions then. An episode's first action is never
    replaced. Each row draws from its own random stream; `seed` sets the streams.

    Example:
        >>> from envkit import BoundedArraySpec, RandomPyEnvironment
        >>> env = RandomPyEnvironment(
        ...     ArraySpec((), np.float32),
        ...     BoundedArraySpec((), np.int64, 0, 9),
        ...     episode_end_probability=0.0,
        ...     reward_fn=lambda step_type, action, observation: action,
        ... )
        >>> env = StickyAction(env, 0.5)
        >>> env.seed(3)
        >>> _ = env.reset()
        >>> [int(env.step(action).reward) for action in range(10)]
        [0, 0, 2, 3, 4, 4, 6, 7, 8, 8]
    """

    _kept = ("_before", "_left", "_is_under_way", "_has_before", "_streams")
    _shown = ("repeat_action_probability",)

    def __init__(
        self,
        env: Any,
        repeat_action_probability: float,
        repeat_action_duration: int | tuple[int, int] = 1,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            repeat_action_probability: The probability that an action sticks; 0.25 is
                usual for Atari games.
            repeat_action_duration: For how many steps it sticks: a number, or the
                minimum and maximum of a random number.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        if (
            not is_number(repeat_action_probability)
            or not 0 <= repeat_action_probability < 1
        ):
            raise ValueError(
                "repeat_action_probability must be a number from 0 to less than 1, "
                "because some action must be taken, got "
                f"{repeat_action_probability!r:.80}."
            )
        self._probability = float(repeat_action_probability)
        self._durations = _as_range(repeat_action_duration)
        self._given = GivenActions(
            "StickyAction.step() was given an action",
            self._env.action_spec(),
            self._dims,
        )
        # The previous action; its remaining repetitions; and the rows whose next step
        # uses an action, and has a previous one.
        self._before = [
            np.zeros((*self._dims, *spec.shape), spec.dtype)
            for spec in self._given.structure.leaves
        ]
        self._left = np.zeros(self._dims, np.int64)
        self._is_under_way = np.zeros(self._dims, bool)
        self._has_before = np.zeros(self._dims, bool)
        self._streams = wrapper_streams(self, None, Branch.STICKING)

    @property
    def repeat_action_probability(self) -> float:
        """The probability that an action sticks."""
        return self._probability

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment, and the streams of this wrapper."""
        self._streams = wrapper_streams(self, seed, Branch.STICKING)
        return super().seed(seed)

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._streams.seed_rows(branched(self, seeds, Branch.STICKING))
        super()._seed_rows(seeds)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._step_with_memory(action, np.ones(self._dims, bool), None)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        return self._step_with_memory(action, stepping, beginning)

    def _step_with_memory(
        self, action: NestedArray, stepping: Array, beginning: Array | None
    ) -> TimeStep:
        acting = stepping & self._is_under_way
        given = self._given.leaves(action, ignored=lambda: np.logical_not(acting))
        positions = self._streams.positions.copy()
        sticks, left = self._draw(acting)
        leaves = [
            np.asarray(where_rows(sticks, before, leaf), before.dtype)
            if sticks.any()
            else leaf
            for before, leaf in zip(self._before, given, strict=True)
        ]
        taken = self._given.structure.unflatten(leaves)
        try:
            if beginning is None:
                time_step, rows = self._env.step(taken), None
            else:
                time_step = self._env.step_rows(taken, stepping, beginning)
                rows = stepping | beginning
        except BaseException:
            # The environment refused the action, so restore the state from before.
            self._streams.positions[...] = positions
            raise
        self._left = left
        self._has_before = self._has_before | acting
        self._before = [
            np.asarray(where_rows(acting, leaf, before), before.dtype)
            for before, leaf in zip(self._before, leaves, strict=True)
        ]
        return self._see(time_step, rows)

    def _draw(self, acting: Array) -> tuple[Array, Array]:
        """Draws which rows repeat their action, and how often; returns both."""
        rows = acting.reshape(-1).nonzero()[0]
        share = np.ones(acting.size)
        share[rows] = self._streams.uniform(rows, 1)[0]
        begins = acting & self._has_before & (self._left == 0)
        begins &= share.reshape(self._dims) < self._probability
        sticks = np.asarray(begins | (acting & (self._left > 0)))
        least, most = self._durations
        lengths = np.full(acting.size, least)
        if most > least:
            lengths[rows] = self._streams.integers(rows, least, most + 1)
        length = np.where(begins, lengths.reshape(self._dims), self._left)
        return sticks, length - sticks

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        step_type = np.asarray(time_step.step_type)
        moved: Any = True if rows is None else rows
        first = moved & (step_type == _FIRST)
        self._left = np.where(first, 0, self._left)
        self._has_before = self._has_before & ~first
        self._is_under_way = np.where(moved, step_type != _LAST, self._is_under_way)
        return time_step


def _as_range(duration: Any) -> tuple[int, int]:
    bounds = duration if isinstance(duration, tuple | list) else (duration, duration)
    if len(bounds) != 2:
        raise ValueError(
            "repeat_action_duration must be a number of steps, or two: the fewest "
            f"and the most, got {duration!r}."
        )
    least, most = (checked_size("repeat_action_duration", bound) for bound in bounds)
    if least > most:
        raise ValueError(
            f"repeat_action_duration is {duration!r}: the fewest steps are more than "
            "the most."
        )
    return least, most


class _DelayInternals(WrapperInternals):
    """Saves the delayed actions."""

    def save(self, env: Any) -> Any:
        return env._past.save()

    def fits(self, env: Any, saved: Any) -> bool:
        fits: bool = env._past.fits(saved)
        return fits

    def restore(self, env: Any, saved: Any) -> None:
        env._past.restore(saved)


class DelayAction(PyEnvironmentBaseWrapper):
    """Plays the action given `delay` steps ago.

    In the first `delay` steps of an episode there is none yet, and `first_action` is
    played. The last `delay` actions of an episode are never played. Each row of a batch
    has its own delay line. To show the pending actions, put `HistoryWrapper(env,
    include_actions=True)` around this wrapper.

    Example:
        >>> from envkit.envs import Catch
        >>> env = DelayAction(Catch(seed=1), delay=1, first_action=1)
        >>> paddle = [int(env.step(2).observation[-1].argmax()) for _ in range(4)]
        >>> paddle
        [2, 2, 3, 4]
    """

    _envkit = _DelayInternals()

    _shown = ("delay", "first_action")

    def __init__(
        self,
        env: Any,
        delay: int,
        first_action: NestedArray = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            delay: How many steps late actions are played; 0 for no delay.
            first_action: One row's action before the first one is due; `None` for
                zeros, or the nearest value to zero within bounds.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        self._delay = checked_size("delay", delay, least=0)
        super().__init__(env, handle_auto_reset)
        spec = self._env.action_spec()
        self._given = GivenActions(
            "DelayAction.step() was given an action", spec, self._dims
        )
        structure = self._given.structure
        # Copies, here and below: later changes to the caller's array must not show.
        self._first_action = copy.deepcopy(first_action)
        if first_action is None:
            leaves = [nearest_to_zero(leaf) for leaf in structure.leaves]
        else:
            leaves = self._checked_leaves(first_action)
        self._first = [
            np.array(np.broadcast_to(leaf, (*self._dims, *leaf.shape)))
            for leaf in leaves
        ]
        self._past = history_of(
            self, "actions", structure.leaves, max(self._delay, 1), self._dims
        )
        self._play_first(None)

    def _checked_leaves(self, first_action: NestedArray) -> list[Array]:
        """Returns the leaves of the first action, in the dtypes of their specs."""
        structure = self._given.structure
        converted = _of_dtypes(structure, first_action)
        check_fits(
            converted,
            structure.template,
            subject="DelayAction was given a first_action that",
            root="first_action",
            context="It is the action of one row.",
        )
        return [np.asarray(leaf) for leaf in structure.flatten(converted)]

    @property
    def delay(self) -> int:
        """How many steps late actions are played."""
        return self._delay

    @property
    def first_action(self) -> NestedArray:
        """The action before the first one is due; `None` for roughly zero."""
        return copy.deepcopy(self._first_action)

    def _play_first(self, rows: Array | None) -> None:
        """Fills the delay line with the first action in some rows, or in all."""
        self._past.push(self._first, rows)
        self._past.repeat(slice(None) if rows is None else rows)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._step_with_memory(action, None, None)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        return self._step_with_memory(action, stepping, beginning)

    def _step_with_memory(
        self, action: NestedArray, stepping: Array | None, beginning: Array | None
    ) -> TimeStep:
        # Hot: called once per step.
        if not self._delay:
            taken, given = action, None
        else:
            given = self._given.leaves(action, ignored=lambda: self._ignored(stepping))
            taken = self._given.structure.unflatten(self._past.oldest())
        if stepping is None or beginning is None:
            time_step, rows = self._env.step(taken), None
        else:
            time_step = self._env.step_rows(taken, stepping, beginning)
            rows = stepping | beginning
        if given is not None:  # after the step, which may have raised
            self._past.push(given, stepping)
        return self._see(time_step, rows)

    def _ignored(self, stepping: Array | None) -> Array:
        """Returns the rows that begin an episode, and so ignore their action."""
        current = self._current_time_step
        if current is None:
            return np.ones(self._dims, bool)
        ended = np.asarray(current.step_type) == _LAST
        if self.continues_after_last:
            ended = np.zeros_like(ended)
        return np.asarray(ended if stepping is None else ended | ~stepping)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        first = np.asarray(time_step.step_type) == _FIRST
        if rows is not None:
            first = first & rows
        if self._delay and first.any():
            self._play_first(first if self._dims else None)
        return time_step


def _of_dtypes(structure: nest.Structure, action: NestedArray) -> NestedArray:
    """Converts an action to the dtypes of its specs, if that loses nothing."""

    def of_dtype(spec: ArraySpec, leaf: Any) -> Any:
        array = np.asarray(leaf)
        own = array.astype(spec.dtype) if array.dtype.kind in "biuf" else array
        return own if np.array_equal(own, array) else leaf

    try:
        leaves = structure.flatten(action)
    except SpecError:
        return action  # the caller refuses it
    pairs = zip(structure.leaves, leaves, strict=True)
    return structure.unflatten([of_dtype(spec, leaf) for spec, leaf in pairs])
