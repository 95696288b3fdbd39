"""How episodes of Atari games begin: `NoopReset`, `FireOnReset`."""

from __future__ import annotations

import abc
import copy
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed
from envkit.wrappers.arguments import limited_size
from envkit.wrappers.atari.some_rows import as_first
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.randomness import Branch, branched, wrapper_streams

__all__ = ["FireOnReset", "NoopReset"]

_FIRST, _LAST = StepType.FIRST, StepType.LAST
# Who wants more wants no episode to begin.
_MOST_NOOPS = 2**31 - 1
_PRESS = "It is the action of one row that presses fire."
_NO_OTHER = "With next_action=None fire is pressed and nothing else."


class _Opening(PyEnvironmentBaseWrapper):
    """Takes certain actions at the beginning of each episode, before the agent does.

    What they earn is lost, and the episode begins with what is there after them. A row
    whose episode ends in between is reset, and goes on with the actions that are left.
    """

    def __init__(self, env: Any, handle_auto_reset: bool) -> None:
        super().__init__(env, handle_auto_reset)
        self._check_resets_rows()
        self._check_holds_rows()
        self._action = nest.Structure(env.action_spec())

    @abc.abstractmethod
    def _actions_for(self, rows: Array) -> list[tuple[NestedArray, Array]]:
        """Returns the actions in order, each with a mask of the rows that take it."""

    def _as_action(self, name: str, value: Any, advice: str) -> NestedArray:
        """Returns an action for all rows, given that of one, or refuses it."""
        try:
            leaves = [np.asarray(leaf) for leaf in self._action.flatten(value)]
            leaves = [
                leaf.astype(spec.dtype) if _loses_nothing(leaf, spec.dtype) else leaf
                for leaf, spec in zip(leaves, self._action.leaves, strict=True)
            ]
            converted = self._action.unflatten(leaves)
        except SpecError:
            converted = value
        check_fits(
            converted,
            self._action.template,
            subject=f"{type(self).__name__} was given a {name} that",
            root=name,
            context=advice,
        )
        return self._action.map(
            lambda leaf: np.array(np.broadcast_to(leaf, (*self._dims, *leaf.shape))),
            converted,
        )

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        begun = np.asarray(time_step.step_type) == _FIRST
        if rows is not None:
            begun = begun & rows
        if not begun.any():
            return time_step
        for action, taking in self._actions_for(begun):
            if not taking.any():
                continue
            time_step = self._move(action, taking)
            ended = taking & (np.asarray(time_step.step_type) == _LAST)
            if ended.any():
                time_step = self._env.reset(ended) if self._dims else self._env.reset()
        return as_first(begun, time_step)

    def _move(self, action: NestedArray, rows: Array) -> Any:
        # A copy each time: an environment may write into what it is given.
        action = self._action.map(np.array, action)
        if rows.all():
            return self._env.step(action)
        return self._env.step_rows(action, rows)


def _loses_nothing(array: Array, dtype: np.dtype[Any]) -> bool:
    if array.dtype.kind == "b":
        return dtype.kind == "b"
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        info = np.iinfo(dtype)
        return bool(np.all((array >= info.min) & (array <= info.max)))
    return np.can_cast(array.dtype, dtype, "same_kind")


class NoopReset(_Opening):
    """Begins each episode with a random number of no-ops, from 1 to `noop_max`.

    So a game that always begins in the same way begins in different ones. What the
    no-ops earn is lost. How many there are in each row is drawn from a stream of the
    row's own, which `seed` sets.

    A batch has to be able to leave rows where they are while others step, and to reset
    single rows. Put it inside `AtariPreprocessing`: a no-op is then a frame, and there
    are none after the loss of a life.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = NoopReset(CartPole(batch_size=3), noop_max=5)
        >>> env.seed(1)
        >>> env.reset().step_type, env.get_info()["episode_steps"]
        (array([0, 0, 0], dtype=int32), array([1, 5, 2]))
    """

    _kept = ("_streams",)
    _shown = ("noop_max",)

    def __init__(
        self,
        env: Any,
        noop_max: int = 30,
        noop_action: NestedArray = 0,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            noop_max: The most no-ops; with 0 there are none.
            noop_action: The action that does nothing, of a single row.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._noop_max = limited_size("noop_max", noop_max, most=_MOST_NOOPS, least=0)
        self._noop = self._as_action(
            "noop_action", noop_action, "It is the action of one row that does nothing."
        )
        self._streams = wrapper_streams(self, None, Branch.NOOPS)

    @property
    def noop_max(self) -> int:
        """The most no-ops at the beginning of an episode."""
        return self._noop_max

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment, and how many no-ops there are."""
        self._streams = wrapper_streams(self, seed, Branch.NOOPS)
        return super().seed(seed)

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._streams.seed_rows(branched(self, seeds, Branch.NOOPS))
        super()._seed_rows(seeds)

    def _actions_for(self, rows: Array) -> list[tuple[NestedArray, Array]]:
        counts = np.zeros(rows.size, np.int64)
        drawing = rows.reshape(-1).nonzero()[0]
        if self._noop_max:
            counts[drawing] = self._streams.integers(drawing, 1, self._noop_max + 1)
        counts = counts.reshape(self._dims)
        return [(self._noop, counts > taken) for taken in range(counts.max(initial=0))]


class FireOnReset(_Opening):
    """Begins each episode by pressing fire, and then another button.

    In some games nothing happens until fire is pressed. Where that ends the episode,
    there is another reset before the other button. What is earned is lost.

    A single environment that says what its actions mean, by `get_action_meanings()`,
    is left alone if `fire_action` is not "FIRE" there.

    A batch has to be able to leave rows where they are while others step, and to reset
    single rows.

    Example:
        >>> from envkit.envs import Catch
        >>> env = FireOnReset(Catch(batch_size=2), fire_action=1)
        >>> env.reset().step_type, env.get_info()["episode_steps"]
        (array([0, 0], dtype=int32), array([2, 2]))
    """

    _shown = ("fire_action", "next_action")

    def __init__(
        self,
        env: Any,
        fire_action: NestedArray = 1,
        next_action: NestedArray | None = 2,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            fire_action: The action that presses fire, of a single row.
            next_action: The action after that; `None` for none.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        # Copies, here and below: it is not to show what is not done.
        self._given = copy.deepcopy((fire_action, next_action))
        self._presses: list[NestedArray] = []
        if not _has_no_fire(env, fire_action):
            fire = self._as_action("fire_action", fire_action, _PRESS)
            self._presses.append(fire)
        if self._presses and next_action is not None:
            following = self._as_action("next_action", next_action, _NO_OTHER)
            self._presses.append(following)

    @property
    def fire_action(self) -> NestedArray:
        """The action that presses fire."""
        return copy.deepcopy(self._given[0])

    @property
    def next_action(self) -> NestedArray | None:
        """The action after that; `None` for none."""
        return copy.deepcopy(self._given[1])

    def _actions_for(self, rows: Array) -> list[tuple[NestedArray, Array]]:
        return [(press, rows) for press in self._presses]


def _has_no_fire(env: Any, fire_action: Any) -> bool:
    """Says whether an environment knows that an action is not that of firing."""
    meanings = getattr(env, "get_action_meanings", None)
    if not callable(meanings) or np.ndim(fire_action) != 0:
        return False
    names = list(meanings())
    return not (0 <= fire_action < len(names) and names[fire_action] == "FIRE")
