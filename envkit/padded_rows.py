"""`PaddedRows`: an environment in a batch with others whose observations are larger."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.specs.common_spec import masks_of
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.validation import check_fits
from envkit.time_step import TimeStep
from envkit.types import Array, NestedSpec
from envkit.wrappers.base import PyEnvironmentBaseWrapper

__all__ = ["PaddedRows"]


class PaddedRows(PyEnvironmentBaseWrapper):
    """Pads observations with zeros to the spec of a batch, and adds the masks.

    Example:
        >>> from envkit.envs import Catch
        >>> from envkit.specs.common_spec import common_spec
        >>> envs = [Catch(rows=3), Catch(rows=5)]
        >>> specs = [env.environment_spec() for env in envs]
        >>> env = PaddedRows(envs[0], common_spec(specs, ["a", "b"], "pad"))
        >>> observation = env.reset().observation
        >>> observation["observation"].shape, observation["mask"].sum(axis=1)
        ((5, 5), array([5, 5, 5, 0, 0]))
    """

    def __init__(self, env: Any, spec: EnvironmentSpec) -> None:
        """Wraps an environment; `spec` is what `common_spec` made of all in "pad"."""
        super().__init__(env)
        own = EnvironmentSpec.of(env)
        self._spec = spec
        self._own = nest.Structure(own.observation)
        self._shapes = [self._dims + leaf.shape for leaf in self._own.leaves]
        padded = nest.flatten(spec.observation["observation"])
        # Where a leaf goes in a larger one; `None` if it is as large.
        self._places: list[Any] = [
            None
            if leaf.shape == common.shape
            else (
                self._dims + common.shape,
                leaf.dtype,
                (..., *map(slice, leaf.shape)),
            )
            for leaf, common in zip(self._own.leaves, padded, strict=True)
        ]
        # In the order of leaves they come before the observation.
        self._masks = [self._by_row(mask) for mask in nest.flatten(masks_of(spec, own))]
        self._whole = nest.Structure(spec.observation)

    def _by_row(self, mask: Array) -> Array:
        return np.broadcast_to(mask, self._dims + mask.shape)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation with its masks."""
        return self._spec.observation

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action in the batch."""
        return self._spec.action

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of a reward in the batch."""
        return self._spec.reward

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of a discount in the batch."""
        return self._spec.discount

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = self._own.flatten(time_step.observation)
        for index, place in enumerate(self._places):
            leaf = leaves[index]
            if np.shape(leaf) != self._shapes[index]:
                self._refuse(time_step)
            if place is not None:
                shape, dtype, part = place
                leaves[index] = array = np.zeros(shape, dtype)
                array[part] = leaf
        masks = [mask.copy() for mask in self._masks]
        observation = self._whole.unflatten([*masks, *leaves])
        return time_step._replace(observation=observation)

    def _refuse(self, time_step: TimeStep) -> None:
        check_fits(
            time_step.observation,
            self._own.template,
            subject=f"{type(self._env).__name__} returned an observation that",
            root="observation",
            outer_dims=self._dims,
        )
