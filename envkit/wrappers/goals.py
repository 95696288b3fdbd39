"""Gives each episode a goal, for hindsight experience replay."""

from __future__ import annotations

import abc
import copy
from typing import Any

import numpy as np

from envkit import nest
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.extend import WrapperInternals, as_array, describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.rows import where_rows

__all__ = ["GoalReplayEnvWrapper"]


_FIRST = StepType.FIRST


class _GoalInternals(WrapperInternals):
    """Saves the goal with its dtypes."""

    def save(self, env: Any) -> Any:
        dtypes = nest.map_structure(_dtype_of, env._goal)
        return {**super().save(env), "dtypes": dtypes}

    def fits(self, env: Any, saved: Any) -> bool:
        return super().fits(env, saved) and "dtypes" in saved

    def restore(self, env: Any, saved: Any) -> None:
        # Pickled arrays come back in native byte order.
        env._goal = nest.map_structure(
            lambda leaf, dtype: leaf if dtype is None else np.asarray(leaf, dtype),
            saved["_goal"],
            saved["dtypes"],
        )
        env._goals = None


class GoalReplayEnvWrapper(PyEnvironmentBaseWrapper):
    """Gives each episode a goal, and shows it in every time step of the episode.

    It provides the interface that hindsight experience replay
    (https://arxiv.org/abs/1707.01495) needs. A subclass implements
    `get_goal_from_trajectory`, which returns the goal of an episode, and
    `get_trajectory_with_goal`, which puts a goal into a time step: into its
    observation, its reward, or both. A learner calls the second method again for stored
    transitions, with a goal that was reached later. A subclass that changes the specs
    overrides those too.

    The goal is taken from the `FIRST` of every episode, also when the environment
    begins an episode automatically in a step. In a batch, each row has its own goal:
    both methods get the time step of the whole batch, and every array of the goal has
    one row per row of the batch. Only rows that begin an episode take their row of a
    new goal.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> class CountToThree(GoalReplayEnvWrapper):
        ...     def observation_spec(self):
        ...         count = self.wrapped_env().observation_spec()
        ...         return {"count": count, "goal": count}
        ...     def get_goal_from_trajectory(self, trajectory):
        ...         return trajectory.observation + 3
        ...     def get_trajectory_with_goal(self, trajectory, goal):
        ...         observation = {"count": trajectory.observation, "goal": goal}
        ...         return trajectory._replace(observation=observation)
        >>> env = CountToThree(CountingEnv(steps_per_episode=2))
        >>> for _ in range(5):
        ...     observation = env.step(0).observation
        ...     print(observation["count"], observation["goal"])
        0 3
        1 3
        2 3
        10 13
        11 13
    """

    _envkit = _GoalInternals()

    _kept = ("_goal",)

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._observation = nest.Structure(self._env.observation_spec())
        self._goal: NestedArray = None
        # Only for a batch: the structure of its goals, known from the first one.
        self._goals: nest.Structure | None = None

    @abc.abstractmethod
    def get_trajectory_with_goal(
        self, trajectory: TimeStep, goal: NestedArray
    ) -> TimeStep:
        """Returns a time step as an agent with this goal would see it.

        Args:
            trajectory: The environment's time step; you may change its dictionaries,
                but not its arrays.
            goal: The goal; the method may keep its arrays.
        """

    @abc.abstractmethod
    def get_goal_from_trajectory(self, trajectory: TimeStep) -> NestedArray:
        """Returns the goal of the episode that begins with this time step.

        In a batch, only rows that begin an episode use the result.

        Args:
            trajectory: As in `get_trajectory_with_goal`.
        """

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        first = np.asarray(time_step.step_type) == _FIRST
        if rows is not None:
            first = first & rows
        if self._goal is None or first.any():
            goal = self.get_goal_from_trajectory(self._with_own_nest(time_step))
            if goal is None:
                raise SpecError(
                    f"{type(self).__name__}.get_goal_from_trajectory() returned None, "
                    "not a goal. Did a return statement get lost?"
                )
            self._goal = self._joined(goal, first) if self._dims else _kept_goal(goal)
        shown = self.get_trajectory_with_goal(
            # A copy, because users get the goal with every step.
            self._with_own_nest(time_step),
            copy.deepcopy(self._goal),
        )
        if not hasattr(shown, "step_type"):
            raise SpecError(
                f"{type(self).__name__}.get_trajectory_with_goal() returned "
                f"{describe(shown)}, not a TimeStep. Did a return statement get "
                "lost?"
            )
        return shown

    def _with_own_nest(self, time_step: TimeStep) -> TimeStep:
        """Repacks the observation: subclasses write `observation["goal"] = ...`."""
        leaves = self._observation.flatten(time_step.observation)
        return time_step._replace(observation=self._observation.unflatten(leaves))

    def _joined(self, goal: NestedArray, first: Array) -> NestedArray:
        """Takes the new goals of rows that begin, and keeps the other rows' goals."""
        subject = f"{type(self).__name__}.get_goal_from_trajectory() returned a goal"
        goals = self._goals or _structure_of(goal if self._goal is None else self._goal)
        try:
            leaves = goals.flatten(goal)
        except SpecError:
            raise SpecError(
                f"{subject} whose structure has changed.\n\n"
                f"  expected   {nest.outline(goals.template)}\n"
                f"  got        {nest.outline(goal)}\n\n"
                "The goals of all rows are kept together."
            ) from None
        leaves = [as_array(leaf) for leaf in leaves]
        before = leaves if self._goal is None else goals.flatten(self._goal)
        for new, old, path in zip(leaves, before, goals.paths, strict=True):
            place = f" at {nest.join('goal', path)}" if path else ""
            self._check_rows(new, old, subject, place)
        self._goals = goals
        if self._goal is None:
            return goals.unflatten([np.array(leaf) for leaf in leaves])
        pairs = zip(leaves, before, strict=True)
        return goals.unflatten([where_rows(first, new, old) for new, old in pairs])

    def _check_rows(self, new: Array, old: Array, subject: str, place: str) -> None:
        """Raises if a new goal cannot be taken row by row; `old` has the other rows."""
        if new.shape[:1] != self._dims:
            raise SpecError(
                f"{subject} that does not have {self.batch_size} rows{place}.\n\n"
                f"  expected   array of shape ({self.batch_size}, ...)\n"
                f"  got        {describe(new)}\n\n"
                "The episodes of a batch begin one by one, so each row has a goal of "
                "its own: compute it from all rows of trajectory.observation."
            )
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            raise SpecError(
                f"{subject} whose shape or dtype has changed{place}.\n\n"
                f"  expected   array of shape {old.shape}, dtype {old.dtype}\n"
                f"  got        {describe(new)}\n\n"
                "The goals of all rows are kept together."
            )


def _kept_goal(goal: NestedArray) -> NestedArray:
    """Copies a goal; arithmetic turns arrays without dimensions into NumPy scalars."""
    return nest.map_structure(
        lambda leaf: (
            np.array(leaf)
            if isinstance(leaf, np.ndarray | np.generic)
            else copy.deepcopy(leaf)
        ),
        goal,
    )


def _dtype_of(leaf: Any) -> np.dtype[Any] | None:
    return leaf.dtype if isinstance(leaf, np.ndarray) else None


def _structure_of(goal: NestedArray) -> nest.Structure:
    """Returns the structure of a goal, without keeping its arrays."""
    return nest.Structure(nest.map_structure(lambda _: 0, goal))
