"""`InfoRows`: what environments declare of their infos, in the rows of a slab.

The worker writes it before it marks a row as answered, beside the time step that it
belongs to; the other side reads it without asking anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit.parallel.slab import (
    DECLARED_INFO,
    ONLY_DECLARED_INFO,
    Slab,
    is_private,
    slot_of,
    view_of,
)
from envkit.specs.array_spec import ArraySpec
from envkit.types import Array

__all__ = ["InfoRows", "shareable"]


def shareable(info_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what of an `info_spec` can lie in shared memory."""
    parts: dict[str, Any] = {}
    for key, value in info_spec.items():
        part = shareable(value) if isinstance(value, Mapping) else value
        if part and not (isinstance(part, ArraySpec) and is_private(part.dtype)):
            parts[key] = part
    return parts


class InfoRows:
    """Writes into rows of a slab what environments declare of their infos."""

    def __init__(
        self, slab: Slab, may_write: Callable[[], None] | None, name: Any
    ) -> None:
        """Prepares for a slab.

        Args:
            slab: Where to write.
            may_write: Called before anything is written; raises if it may not be.
            name: Names the environment of a row.
        """
        self._declared = slab.layout.info
        self._infos = slab.infos
        self._slab = slab
        self._sequence = view_of(slab.sequence)
        self._may_write = may_write
        self._name = name

    def write(self, row: int, info: Any) -> int:
        """Writes an info beside the time step of a row.

        Returns:
            What the slab says of the row's info then.

        Raises:
            SpecError: It does not have what is declared.
        """
        # Hot: called once per row and step of environments that declare something.
        leaves = self._declared.values(info, (), f"The info of {self._name(row)}")
        if self._may_write is not None:
            self._may_write()
        slot = slot_of(self._sequence[row])
        for array, leaf in zip(self._infos, leaves, strict=True):
            array[slot, row] = leaf
        return self._flags(info)

    def write_batch(self, block: slice, moved: Array, info: Any) -> int:
        """Writes the info of a batch beside those of its time steps that are new.

        Args:
            block: The rows of the batch.
            moved: A mask of those of them that have moved.
            info: Arrays with an element for each row, or a list of infos.
        """
        size = block.stop - block.start
        rows = block.start + np.flatnonzero(moved)
        if isinstance(info, list) and len(info) == size:
            flags = [self.write(row, info[row - block.start]) for row in rows.tolist()]
            return int(np.bitwise_and.reduce(flags)) if flags else 0
        subject = f"The info of {self._name(block.start)}"
        leaves = self._declared.values(info, (size,), subject)
        if self._may_write is not None:
            self._may_write()
        slots = self._slab.slots(rows)
        for array, leaf in zip(self._infos, leaves, strict=True):
            array[slots, rows] = leaf[moved]
        return self._flags(info)

    def _flags(self, info: Any) -> int:
        if self._declared.is_all_of(info):
            return DECLARED_INFO | ONLY_DECLARED_INFO
        return DECLARED_INFO
