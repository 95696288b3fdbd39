"""`VectorResults`: what a vector environment of Gymnasium returns, checked and copied.

Vector environments reuse their arrays, and those that people write return what they
like; time steps have arrays of their own with exactly the dtypes of the specs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["VectorResults"]

_ARRAY, _BOOLEAN = np.ndarray, np.dtype(np.bool_)


class VectorResults:
    """Reads what `reset` and `step` have returned.

    Attributes:
        reward_dtype: What rewards are made of.
    """

    def __init__(
        self,
        name: str,
        rows: int,
        *,
        to_observations: Callable[[Any], NestedArray],
        observation_spec: NestedSpec,
        reward_dtype: np.dtype[Any],
    ) -> None:
        """Prepares.

        Args:
            name: What to call the vector environment in an error.
            rows: How many rows there are.
            to_observations: Makes a batch of observations of what is returned as such.
            observation_spec: The specs of one row's observation.
            reward_dtype: What rewards are made of.
        """
        self._name = name
        self._shape = (rows,)
        self._to_observations = to_observations
        self.reward_dtype = reward_dtype
        # What a batch of observations is that is one array.
        is_one = isinstance(observation_spec, ArraySpec)
        self._plain_dtype = observation_spec.dtype if is_one else None
        self._plain_shape = (rows, *observation_spec.shape) if is_one else None

    def of_reset(self, result: Any) -> tuple[NestedArray, Any]:
        """Returns the observations and the infos."""
        if not isinstance(result, tuple) or len(result) != 2:
            self._refuse("reset", result, "(observations, infos)")
        return self._to_observations(result[0]), result[1]

    def of_step(self, result: Any) -> tuple[NestedArray, Array, Array, Array, Any]:
        """Returns the parts of what a step has returned.

        Observations and rewards are nobody else's. The two flags are arrays of
        booleans, which the vector environment may change with its next step.
        """
        # Hot: called once per batch step. The first case of each is what nearly all
        # have; which object it is tells sooner than whether it is equal.
        try:
            observation, reward, terminated, truncated, infos = result
        except (TypeError, ValueError):
            self._refuse(
                "step", result, "(observations, rewards, terminated, truncated, infos)"
            )
        shape = self._shape
        if (
            type(observation) is _ARRAY
            and observation.dtype is self._plain_dtype
            and observation.shape == self._plain_shape
        ):
            # As it lies in memory: to turn it round takes twice as long.
            observation = observation.copy("K")
        else:
            observation = self._to_observations(observation)
        if (
            type(reward) is _ARRAY
            and reward.dtype is self.reward_dtype
            and reward.shape == shape
        ):
            reward = reward.copy()
        else:
            reward = self._as_rewards(reward)
        if not (
            type(terminated) is _ARRAY
            and type(truncated) is _ARRAY
            and terminated.dtype is _BOOLEAN
            and truncated.dtype is _BOOLEAN
            and terminated.shape == shape == truncated.shape
        ):
            terminated, truncated = self._as_flags(terminated, truncated)
        return observation, reward, terminated, truncated, infos

    def _as_rewards(self, reward: Any) -> Array:
        array = np.asarray(reward)
        if array.shape != self._shape or array.dtype.kind not in "biuf":
            raise SpecError(
                f"{self._name}.step() returned {describe(reward)} as rewards; in "
                f"Gymnasium these are an array of shape {self._shape}, with a number "
                "for each row."
            )
        return array.astype(self.reward_dtype)

    def _as_flags(self, terminated: Any, truncated: Any) -> tuple[Array, Array]:
        """Takes numbers, lists, and one flag for all rows, too."""
        ended = np.logical_or(terminated, truncated)
        if ended.shape != self._shape or ended.dtype != _BOOLEAN:
            raise SpecError(
                f"{self._name}.step() says with {describe(terminated)} and "
                f"{describe(truncated)} which episodes have ended; in Gymnasium these "
                f"are two arrays of shape {self._shape}, with a boolean for each row."
            )
        first, second = (
            np.broadcast_to(np.asarray(flag).astype(_BOOLEAN), self._shape)
            for flag in (terminated, truncated)
        )
        return first, second

    def _refuse(self, call: str, result: Any, expected: str) -> NoReturn:
        raise SpecError(
            f"{self._name}.{call}() returned {describe(result)}; in Gymnasium it "
            f"returns the tuple {expected}."
        )
