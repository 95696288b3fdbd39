"""`GivenActions`: what an agent hands in, as arrays that are nobody else's."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.action_rows import ActionRows
from envkit.errors import SpecError
from envkit.specs.validation import check_fits
from envkit.types import NestedArray, NestedSpec

__all__ = ["GivenActions"]


class GivenActions:
    """Takes an action of one environment, or of every row of a batch.

    Example:
        >>> from envkit import BoundedArraySpec
        >>> actions = GivenActions(BoundedArraySpec((), np.int32, 0, 4), None)
        >>> actions.take(3, "step()")
        array(3, dtype=int32)
    """

    def __init__(self, spec: NestedSpec, rows: int | None) -> None:
        """Prepares.

        Args:
            spec: The specs of an action.
            rows: How many rows a batch has; `None` for a single environment.
        """
        self._spec = spec
        self._structure = nest.Structure(spec)
        self._rows = rows

    def take(self, action: Any, call: str) -> NestedArray:
        """Returns an action in arrays of the spec's dtypes, or refuses it.

        Args:
            action: An action of arrays, lists or numbers.
            call: What it was given to, for the message.
        """
        is_single = self._rows is None
        rows = ActionRows(self._spec, self._rows or 1, call)
        try:
            given = self._structure.map(_alone, action) if is_single else action
            columns = rows.columns(given)
        except (SpecError, TypeError, ValueError):
            # Of a single action the message need not tell that it is taken for a row.
            check_fits(
                action,
                self._spec,
                subject=f"{call} was given an action that",
                root="action",
                outer_dims=() if self._rows is None else (self._rows,),
            )
            raise
        leaves = [
            np.array(column, spec.dtype)[0 if is_single else slice(None), ...]
            for column, spec in zip(columns, self._structure.leaves, strict=True)
        ]
        return self._structure.unflatten(leaves)


def _alone(leaf: Any) -> Any:
    """Returns what one row has as a batch of one."""
    return leaf[np.newaxis] if isinstance(leaf, np.ndarray) else [leaf]
