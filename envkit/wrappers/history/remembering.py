"""`Remembering`: the base of wrappers that show observations of the past."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from envkit import nest
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import check_fits, flatten_as
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.fresh_nests import fresh_nest
from envkit.wrappers.history.row_history import history_of, with_zero

__all__ = ["Remembering"]

_FIRST = StepType.FIRST


class Remembering(PyEnvironmentBaseWrapper):
    """Keeps the last observations of each row's episode.

    Subclasses set `_observation_spec` and say in `_shown_now` what is seen of them.
    """

    _observation_spec: NestedSpec

    def __init__(
        self, env: Any, length: int, repeats_first: bool, handle_auto_reset: bool
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            length: How many observations are kept.
            repeats_first: Whether the first observation of an episode stands for those
                before it; if not, zeros do.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._repeats_first = repeats_first
        self._structure = nest.Structure(env.observation_spec())
        self._leaf_specs: tuple[ArraySpec, ...] = self._structure.leaves
        self._expected = [
            ((*self._dims, *spec.shape), spec.dtype) for spec in self._leaf_specs
        ]
        self._past = history_of(
            self, "observations", self._leaf_specs, length, self._dims
        )
        self._padded_specs = [
            spec if repeats_first or length == 1 else with_zero(spec)
            for spec in self._leaf_specs
        ]

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of what is shown in one row."""
        return fresh_nest(self._observation_spec)

    @abc.abstractmethod
    def _shown_now(self) -> NestedArray:
        """Returns the observation in new arrays."""

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        if rows is not None and rows.all():
            rows = None
        self._remember(time_step, rows, self._begun(time_step.step_type, rows))
        return time_step._replace(observation=self._shown_now())

    def _begun(self, step_type: Any, rows: Array | None) -> Array | slice | None:
        """Returns the rows in which an episode has begun; `None` if in none."""
        first = np.asarray(step_type) == _FIRST
        if not self._dims:
            return slice(None) if first else None
        begun = (first if rows is None else first & rows).nonzero()[0]
        return begun if begun.size else None

    def _remember(
        self, time_step: TimeStep, rows: Array | None, begun: Array | slice | None
    ) -> None:
        leaves = self._checked_leaves(time_step.observation)
        if begun is not None and not self._repeats_first:
            self._past.clear(begun)
        self._past.push(leaves, rows)
        if begun is not None and self._repeats_first:
            self._past.repeat(begun)

    def _checked_leaves(self, observation: NestedArray) -> list[Any]:
        """Flattens an observation; nothing may broadcast or change its dtype."""
        subject = f"{type(self._env).__name__} returned an observation that"
        leaves = flatten_as(self._structure, observation, subject=subject)
        for index, (shape, dtype) in enumerate(self._expected):
            leaf = leaves[index]
            if (
                type(leaf) is not np.ndarray
                or leaf.shape != shape
                or leaf.dtype != dtype
            ):
                check_fits(
                    leaf,
                    self._leaf_specs[index],
                    subject=subject,
                    path=self._structure.paths[index],
                    outer_dims=self._dims,
                )
        return leaves

    def _save(self) -> Any:
        return {"observations": self._past.save()}

    def _restore(self, saved: Any) -> None:
        self._past.restore(saved["observations"])

    def _fits(self, saved: Any) -> bool:
        return self._past.fits(saved["observations"])
