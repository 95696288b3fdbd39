"""`Specified`: what an environment of any kind says about its data."""

from __future__ import annotations

import abc
from typing import Any

from envkit import provenance
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import DISCOUNT_SPEC, REWARD_SPEC, STEP_TYPE_SPEC, TimeStep
from envkit.types import NestedSpec

__all__ = ["Specified"]


class Specified(abc.ABC):
    """Has specs for what it takes and gives; the base of every environment class.

    The specs are those of one environment, without the dimensions of a batch.
    """

    # What `Constructor` leaves on what it has built, and what `seed` was called with.
    _made_from: provenance.Origin | None = None
    _noted_seed: Any = None

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

    def provenance(self) -> dict[str, Any]:
        """Returns where the environment comes from, as data that JSON can hold.

        That are its `id` and `version`, the `class`, the `arguments` it was made with
        (`None` where nobody has noted them: `envkit.make` does), the last `seed`, the
        `wrappers` around it, the outermost first, in a batch its `environments`, the
        versions of `envkit`, of `python` and of the `packages` that matter, and the
        `machine`.

        Example:
            >>> from envkit import make
            >>> found = make("Catch", seed=7).provenance()
            >>> found["id"], found["version"], found["arguments"], found["seed"]
            ('Catch-v1', 1, {'seed': 7}, 7)
        """
        return provenance.provenance_of(self)

    def _made_of(self) -> dict[str, Any]:
        """Returns the part of the provenance that it takes to make another one."""
        return provenance.plain_recipe(self)

    def _packages_behind(self) -> set[str]:
        """Names the packages that the environment depends on."""
        return provenance.packages_behind(self)
