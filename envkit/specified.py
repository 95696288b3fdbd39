"""`Specified`: what an environment of any kind says about its data."""

from __future__ import annotations

import abc

from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import DISCOUNT_SPEC, REWARD_SPEC, STEP_TYPE_SPEC, TimeStep
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
        return REWARD_SPEC

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of the discount: a float32 in [0, 1] unless overridden."""
        return DISCOUNT_SPEC

    def time_step_spec(self) -> TimeStep:
        """Returns the specs of a whole time step, as a `TimeStep`."""
        return TimeStep(
            step_type=STEP_TYPE_SPEC,
            reward=self.reward_spec(),
            discount=self.discount_spec(),
            observation=self.observation_spec(),
        )

    def environment_spec(self) -> EnvironmentSpec:
        """Returns the four specs together, ready to be compared."""
        return EnvironmentSpec.of(self)
