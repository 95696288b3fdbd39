"""`FinalObservations`: puts final observations where the episodes end that they end.

A vector environment of Gymnasium that resets in the same step returns the observations
of the beginnings, and those of the ends among its infos: one for each row in an array
of objects, or all in one batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.gymnasium_vector.vector_infos import final_observations
from envkit.adapters.spaces.from_members import from_member, from_members
from envkit.errors import SpecError
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wording import listed

__all__ = ["FinalObservations", "merged"]


class FinalObservations:
    """Finds the final observations among infos."""

    def __init__(self, space: Any, spec: NestedSpec, rows: int, name: str) -> None:
        """Prepares.

        Args:
            space: The space of one row's observation.
            spec: Its specs.
            rows: How many rows there are.
            name: What to call the vector environment in an error.
        """
        subject = f"{name} returned a final observation that"
        self._to_one = from_member(space, spec, subject=subject, root="observation")
        self._to_all = from_members(
            space, spec, rows, subject=subject, root="observation"
        )
        self._structure = nest.Structure(spec)
        self._name = name

    def put_into(
        self, observation: NestedArray, infos: dict[str, Any], ended: Array
    ) -> NestedArray:
        """Returns a batch of observations with the final ones in the ended rows.

        Raises:
            SpecError: A row has ended, and there is none for it.
        """
        final = final_observations(infos)
        rows = np.flatnonzero(ended).tolist()
        if not _is_by_row(final):
            self._check_found([] if final is None else rows, rows)
            return merged(self._structure, ended, self._to_all(final), observation)
        self._check_found([row for row in rows if final[row] is not None], rows)
        leaves = [np.array(leaf) for leaf in self._structure.flatten(observation)]
        for row in rows:
            values = self._structure.flatten(self._to_one(final[row]))
            for leaf, value in zip(leaves, values, strict=True):
                leaf[row, ...] = value  # Else an object would stay in its array.
        return self._structure.unflatten(leaves)

    def _check_found(self, found: list[int], rows: list[int]) -> None:
        missing = [row for row in rows if row not in found]
        if missing:
            noun = "row" if len(missing) == 1 else "rows"
            raise SpecError(
                f"{self._name} ended the episodes of {noun} {listed(missing)} and did "
                "not return their final observations: its autoreset_mode is SAME_STEP, "
                "which has them in infos['final_obs']. If it resets with the next "
                "step, pass autoreset_mode='NextStep'."
            )


def merged(
    structure: nest.Structure, mask: Array, masked: NestedArray, other: NestedArray
) -> NestedArray:
    """Takes the masked rows from one batch and the rest from another."""
    pairs = zip(structure.flatten(masked), structure.flatten(other), strict=True)
    return structure.unflatten(
        [
            np.where(mask.reshape(-1, *[1] * (np.ndim(ours) - 1)), ours, theirs)
            for ours, theirs in pairs
        ]
    )


def _is_by_row(final: Any) -> bool:
    if isinstance(final, np.ndarray):
        return bool(final.dtype == object)
    return isinstance(final, list)
