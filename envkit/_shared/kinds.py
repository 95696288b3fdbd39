"""Which space of Gymnasium a spec stands for that did not come from one."""

from __future__ import annotations

import numpy as np

from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec

__all__ = ["usual_kind"]


def usual_kind(spec: ArraySpec) -> str:
    """Names the space that a spec becomes which does not remember one.

    A single integer is a choice and thus `Discrete`, and a row of integers a
    `MultiDiscrete`, where its dtype and bounds are none that pictures have. "" is for
    what no space of Gymnasium's describes.

    Example:
        >>> usual_kind(BoundedArraySpec((), np.int64, 5, 7))
        'Discrete'
        >>> usual_kind(BoundedArraySpec((3,), np.int32, 0, [1, 2, 3]))
        'MultiDiscrete'
        >>> usual_kind(BoundedArraySpec((84, 84), np.uint8, 0, 255))
        'Box'
    """
    if isinstance(spec, ObjectSpec) or spec.dtype.kind not in "biufU":
        return ""
    if spec.dtype.kind == "U":
        is_text = spec.shape == () and spec.dtype.itemsize and spec.dtype.isnative
        return "Text" if is_text else ""
    if spec.dtype.kind in "bf" or not isinstance(spec, BoundedArraySpec):
        return "Box"
    return _kind_of_integers(spec)


def _kind_of_integers(spec: BoundedArraySpec) -> str:
    largest = int(np.iinfo(spec.dtype).max)
    low = np.asarray(spec.minimum).astype(object)
    high = np.asarray(spec.maximum).astype(object)
    # Spaces count their choices in the dtype of these.
    if not spec.minimum.size or not np.all(high - low < largest):
        return "Box"
    if spec.shape == ():
        return "Discrete"
    binary = spec.dtype == np.int8 and np.all(low == 0) and np.all(high == 1)
    if binary and 0 not in spec.shape:
        return "MultiBinary"
    if len(spec.shape) == 1 and spec.dtype.kind == "i" and spec.shape != (0,):
        return "MultiDiscrete"
    return "Box"
