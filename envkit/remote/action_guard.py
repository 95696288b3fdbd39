"""`ActionGuard`: the actions of a client, before environments see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from envkit.parallel.slab import Slab
from envkit.specs.arrays import BoundedArraySpec
from envkit.types import Array

__all__ = ["ActionGuard"]


class ActionGuard:
    """Checks the actions of a client before environments see them."""

    def __init__(self, slab: Slab, begins: Callable[[int], bool]) -> None:
        self._slab = slab
        self._begins = begins
        self._bounded: list[tuple[int, Array, Array]] = []
        self._unsigned: dict[int, tuple[str, int]] = {}
        for leaf, spec in enumerate(slab.layout.action.leaves):
            if not isinstance(spec, BoundedArraySpec) or spec.dtype.kind not in "iufb":
                continue
            low, high = np.asarray(spec.minimum), np.asarray(spec.maximum)
            if spec.dtype.kind in "iu":
                info = np.iinfo(spec.dtype)
                if (low <= info.min).all() and (high >= info.max).all():
                    continue
            # Of a single bound one comparison of all is enough.
            self._bounded.append((leaf, low, high))
            # From 0 on, it is one: what is below is large without its sign.
            if spec.dtype.kind in "iu" and not low.any() and not high.ndim:
                self._unsigned[leaf] = (f"u{spec.dtype.itemsize}", int(high))

    def bad_rows(self, rows: Sequence[int]) -> list[int]:
        """Returns the rows that are to step with an action out of bounds."""
        # Hot: once per request.
        slab, bad = self._slab, None
        columns = slab.action_columns()
        is_all = len(rows) == slab.layout.rows
        for leaf, low, high in self._bounded:
            column = columns[leaf] if is_all else columns[leaf][rows]
            if leaf in self._unsigned and column.size:
                kind, most = self._unsigned[leaf]
                if column.view(kind).max() <= most:
                    continue
            if not column.size or (
                not low.ndim
                and not high.ndim
                and column.min() >= low
                and column.max() <= high
            ):
                continue
            fits = (column >= low) & (column <= high)
            if fits.all():
                continue
            one = ~fits.reshape(len(fits), -1).all(axis=1)
            bad = one if bad is None else bad | one
        if bad is None:
            return []
        chosen = np.asarray(rows)[bad]
        return [
            row
            for row in chosen[slab.are_to_step(chosen)].tolist()
            # Where a step begins an episode, its action is ignored.
            if not self._begins(row)
        ]
