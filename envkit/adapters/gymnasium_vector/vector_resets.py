"""`ResetArguments`: what the resets of a vector environment of Gymnasium are given."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.adapters.gymnasium_vector.vector_kinds import kind_of_vector_env
from envkit.masked_rows import options_copy
from envkit.seeding import checked_seeds, seed_per_row
from envkit.types import Array, Seed

__all__ = ["ResetArguments", "options_of_all"]

_MASK = "reset_mask"


class ResetArguments:
    """Keeps options, and seeds until a reset has used them.

    Gymnasium's own vector environments take a seed for each row. Others have, as far as
    one can tell, one generator for all rows, and take one integer.

    Attributes:
        state: What later resets depend on.
        is_by_row: Whether each row takes a seed of its own.
    """

    def __init__(self, vector_env: Any, options: Mapping[str, Any] | None) -> None:
        """Prepares for a vector environment."""
        self._rows = int(vector_env.num_envs)
        self.is_by_row = bool(kind_of_vector_env(vector_env))
        self._seeds: list[int | None] | int | None = None
        self._options = _as_options(options)

    @property
    def state(self) -> Any:
        """What later resets depend on."""
        return self._seeds, self._options

    @state.setter
    def state(self, state: Any) -> None:
        self._seeds, self._options = state

    def note_options(self, options: Mapping[str, Any] | None) -> None:
        """Keeps options for all resets to come."""
        self._options = _as_options(options)

    def note_seed(self, seed: Seed) -> None:
        """Keeps one seed for all rows, or one for each, for the next reset."""
        if self.is_by_row:
            self._seeds = [_known(own) for own in seed_per_row(seed, self._rows)]
            return
        seeds = [_known(own) for own in checked_seeds(seed, self._rows)]
        self._seeds = seeds[0] if np.ndim(seed) == 0 else _one_of(seeds)  # type: ignore[arg-type]  # None has no dimension

    def note_seeds(self, seeds: list[int | None]) -> None:
        """Keeps seeds of some rows for their next reset; `None` is for the others."""
        before = self._seeds if isinstance(self._seeds, list) else [None] * self._rows
        self._seeds = [
            old if new is None else new for old, new in zip(before, seeds, strict=True)
        ]

    def of_reset(
        self, mask: Array | None = None, given: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Returns what to call `reset` with, for the masked rows or for all.

        The seeds are kept until `use_seeds`.

        Args:
            mask: The rows; `None` for all.
            given: Options that are for this reset alone.
        """
        # Gymnasium's own environments take what they know out of the dictionary.
        options = copy.deepcopy(self._options) if given is None else given
        if mask is not None:
            options = {**(options or {}), _MASK: mask.copy()}
        return {"seed": self._seeds_of(mask), "options": options}

    def use_seeds(self, mask: Array | None = None) -> None:
        """Forgets the seeds of rows that have been reset."""
        self._seeds = None if mask is None else self._seeds_of(~mask)
        if not self.is_by_row:
            self._seeds = None

    def _seeds_of(self, mask: Array | None) -> list[int | None] | int | None:
        if mask is None or not isinstance(self._seeds, list):
            return self._seeds
        return [
            seed if masked else None
            for seed, masked in zip(self._seeds, mask.tolist(), strict=True)
        ]


def _known(seed: int | None) -> int:
    # To Gymnasium no seed means to go on with the old generator.
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed


def _one_of(seeds: list[int]) -> int:
    """Makes one seed that depends on all."""
    return int(np.random.SeedSequence(seeds).generate_state(1)[0])


def _as_options(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    # Whoever gave them may go on changing them.
    own = options_copy(options)
    if own is not None and _MASK in own:
        raise ValueError(
            "The options of a reset have a 'reset_mask', which says which rows are "
            "reset this once. Call reset(mask) for that."
        )
    return own


def options_of_all(options: Any, rows: Array | None) -> dict[str, Any] | None:
    """Returns the one dictionary that a vector environment is to be reset with."""
    if options is None:
        return None
    asked = [own for row, own in enumerate(options) if rows is None or rows[row]]
    if any(own != asked[0] for own in asked):
        raise NotImplementedError(
            "A vector environment of Gymnasium's is reset with the same options in all "
            "rows. Pass one dictionary. envkit's pools, and vectorize(), make "
            "environments with options of their own."
        )
    return _as_options(asked[0])
