"""`AlignedCopies`: copies of arrays whose memory TensorFlow can take over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["AlignedCopies"]

# At such addresses TensorFlow's own tensors begin. It takes others for its own as well,
# where it is handed memory, and aborts the process when it calculates with them.
_ALIGNMENT = 64
# An array of more bytes has memory of its own, so that whoever keeps a reward does not
# keep a picture alive.
_LARGE = 1 << 12


class AlignedCopies:
    """Copies lists of arrays of certain shapes and dtypes.

    Example:
        >>> copies = AlignedCopies([((2,), np.dtype("int32")), ((3,), np.dtype(bool))])
        >>> copies.of([np.array([1, 2], np.int32), np.zeros(3, bool)])
        [array([1, 2], dtype=int32), array([False, False, False])]
    """

    def __init__(self, kinds: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
        """Prepares for lists of arrays, each of a shape and dtype."""
        # By place in the list: the field of the record that small arrays share, or
        # none for text, whose width is not known, and for what is large.
        self._fields: list[str | None] = []
        self._kinds = list(kinds)
        names, formats, offsets, size = [], [], [], 0
        for index, (shape, dtype) in enumerate(kinds):
            bytes_needed = dtype.itemsize * int(np.prod(shape))
            if dtype.kind in "SUO" or bytes_needed > _LARGE:
                self._fields.append(None)
                continue
            self._fields.append(str(index))
            names.append(str(index))
            formats.append((dtype, shape))
            offsets.append(size)
            size += bytes_needed + -bytes_needed % _ALIGNMENT
        self._size = size
        self._record = np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
        )

    def of(self, arrays: Sequence[Array]) -> list[Array]:
        """Returns the copies."""
        # Hot: called once per step.
        record = _aligned(self._size, (), self._record)
        copies = []
        for field, kind, array in zip(self._fields, self._kinds, arrays, strict=True):
            if field is not None:
                copy = record[field]
                copy[...] = array
            elif array.dtype.kind in "SUO":
                copy = array.copy()
            else:
                copy = _aligned(array.nbytes, *kind)
                copy[...] = array
            copies.append(copy)
        return copies


def _aligned(size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns an array that begins at an aligned address."""
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return np.ndarray(shape, dtype, memory, begin)
