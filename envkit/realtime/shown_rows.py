"""`ShownRows`: what rows show, each of a tick of its own, as one time step."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit import nest
from envkit.realtime.merging import Merged
from envkit.specs.array_spec import ArraySpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["ShownRows", "nothing_earned", "with_row"]

_MID = int(StepType.MID)
_STEP_TYPES = {int(one): one for one in (StepType.FIRST, StepType.MID, StepType.LAST)}


class ShownRows:
    """Puts together what the rows of an environment show."""

    def __init__(self, env: Any) -> None:
        """Asks an environment for its specs.

        Args:
            env: The environment, whose time steps are the `time_step` of each
                `Merged.tick`, and its infos their `info`.
        """
        self._batched = bool(env.batched)
        self._rows = int(env.batch_size) if self._batched else 1
        self._reward = nest.Structure(env.reward_spec())
        self._discount = nest.Structure(env.discount_spec())
        self._observation = nest.Structure(env.observation_spec())

    def time_step(self, merged: Mapping[int, Merged]) -> TimeStep:
        """Returns a time step; rows that show nothing have anything in it."""
        rewards = [one.reward for one in merged.values()]
        discounts = [one.discount for one in merged.values()]
        return TimeStep(
            self._step_type(merged),
            self._numbers(self._reward, rewards, merged),
            self._numbers(self._discount, discounts, merged),
            self._observations(merged),
        )

    def _step_type(self, merged: Mapping[int, Merged]) -> Array:
        if not self._batched:
            return _STEP_TYPES[merged[0].step_type]
        step_types = np.full(self._rows, _MID, np.int32)
        for row, one in merged.items():
            step_types[row] = one.step_type
        return step_types

    def _numbers(
        self,
        structure: nest.Structure,
        parts: list[list[Array]],
        merged: Mapping[int, Merged],
    ) -> NestedArray:
        """Returns rewards or discounts as their spec has them."""
        leaves = []
        for index, spec in enumerate(structure.leaves):
            dims = (self._rows,) if self._batched else ()
            leaf = np.zeros((*dims, *spec.shape), spec.dtype)
            for row, part in zip(merged, parts, strict=True):
                leaf[row if self._batched else ()] = _within(part[index], spec)
            leaves.append(leaf)
        return structure.unflatten(leaves)

    def _observations(self, merged: Mapping[int, Merged]) -> NestedArray:
        """Returns the observations, each of the tick that its row shows."""
        ticks = [one.tick for one in merged.values()]
        observation = ticks[-1].time_step.observation
        # Copies: what is handed out now may have to be shown again.
        leaves = [np.copy(leaf) for leaf in self._observation.flatten(observation)]
        if not all(tick is ticks[0] for tick in ticks):
            for row, tick in zip(merged, ticks, strict=True):
                given = self._observation.flatten(tick.time_step.observation)
                for leaf, one in zip(leaves, given, strict=True):
                    leaf[row] = one[row]
        return self._observation.unflatten(leaves)

    def info(self, merged: Mapping[int, Merged]) -> Any:
        """Returns the infos, each of the tick that its row shows."""
        ticks = {row: one.tick for row, one in merged.items()}
        newest = max(ticks.values(), key=lambda tick: tick.number)
        info = newest.info
        for row, tick in ticks.items():
            if tick is not newest:
                info = with_row(info, tick.info, row, self._rows)
        return info


def _within(value: Array, spec: ArraySpec) -> Array:
    """Returns a sum that its dtype can hold: beyond the limits it is the limit."""
    if spec.dtype.kind not in "iu":
        return value
    info = np.iinfo(spec.dtype)
    # As the dtype's own numbers, for the largest are not exact as floats.
    if info.min < value.min() and value.max() < info.max:
        return value.astype(spec.dtype)
    return np.array(
        [min(max(int(one), info.min), info.max) for one in value.ravel()], spec.dtype
    ).reshape(value.shape)


def nothing_earned(time_step: TimeStep) -> TimeStep:
    """Returns a copy of a time step with reward and discount 0."""
    copied: TimeStep = copy.deepcopy(time_step)
    return copied._replace(
        reward=nest.map_structure(np.zeros_like, time_step.reward),
        discount=nest.map_structure(np.zeros_like, time_step.discount),
    )


def with_row(info: Any, other: Any, row: int, rows: int) -> Any:
    """Returns an info of a batch with a row from another one.

    An info of a batch is a list or an array with an element for each row, or a
    mapping of such; what is neither is one for all, and the newer stays.

    Example:
        >>> with_row({"score": [1, 2], "level": 3}, {"score": [8, 9]}, 1, 2)
        {'score': [1, 9], 'level': 3}
    """
    if isinstance(info, Mapping):
        before = other if isinstance(other, Mapping) else {}
        return {
            key: with_row(part, before[key], row, rows) if key in before else part
            for key, part in info.items()
        }
    of_rows = isinstance(info, list | np.ndarray) and len(info) == rows
    if not of_rows or type(other) is not type(info) or len(other) != rows:
        return info
    info = info.copy()
    info[row] = other[row]
    return info
