"""`Specified`: what an environment of any kind says about its data."""

from __future__ import annotations

import abc

import numpy as np

from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import TimeStep
from envkit.types import NestedSpec

__all__ = ["Specified"]


class Specified(abc.ABC):
    """Has specs for what it takes and gives; the base of every environment class.

    The specs are those of one environment, without the dimensions of a batch.
    """

    @abc.abstractmethod
    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation, without a batch dimension."""

    @abc.abstractmethod
    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action, without a batch dimension."""

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of the reward: a float32 scalar unless overridden."""
        return ArraySpec((), np.float32, name="reward")

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of the discount: a float32 in [0, 1] unless overridden."""
        return BoundedArraySpec((), np.float32, 0.0, 1.0, name="discount")

    def time_step_spec(self) -> TimeStep:
        """Returns the specs of a whole time step, as a `TimeStep`."""
        return TimeStep(
            step_type=ArraySpec((), np.int32, name="step_type"),
            reward=self.reward_spec(),
            discount=self.discount_spec(),
            observation=self.observation_spec(),
        )

    def environment_spec(self) -> EnvironmentSpec:
        """Returns the four specs together, ready to be compared."""
        return EnvironmentSpec.of(self)
