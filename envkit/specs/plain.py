"""Specs as plain data, for recordings and environment servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envkit.provenance import from_plain, to_plain
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec, TextSpec

__all__ = ["plain_spec", "spec_from_plain"]

_KINDS: dict[str, Callable[..., ArraySpec]] = {
    "ArraySpec": ArraySpec,
    "BoundedArraySpec": BoundedArraySpec,
    "ObjectSpec": ObjectSpec,
    "TextSpec": TextSpec,
}


def plain_spec(spec: ArraySpec) -> dict[str, Any]:
    """Returns a spec's contents as data that JSON can hold.

    Example:
        >>> import numpy as np
        >>> plain_spec(ArraySpec((2,), np.int8))
        {'kind': 'ArraySpec', 'shape': [2], 'dtype': '|i1', 'name': None}
    """
    facts = {"shape": list(spec.shape), "dtype": spec.dtype.str, "name": spec.name}
    if isinstance(spec, BoundedArraySpec):
        bounds = {"minimum": spec.minimum, "maximum": spec.maximum}
        return {"kind": "BoundedArraySpec", **facts, **to_plain(bounds)}
    if isinstance(spec, TextSpec):
        lengths = {"min_length": spec.min_length, "max_length": spec.max_length}
        return {"kind": "TextSpec", **facts, **lengths, "letters": spec.letters}
    kind = "ObjectSpec" if isinstance(spec, ObjectSpec) else "ArraySpec"
    return {"kind": kind, **facts}


def spec_from_plain(data: Any) -> ArraySpec:
    """Returns the spec that `plain_spec` wrote.

    Example:
        >>> import numpy as np
        >>> spec_from_plain(plain_spec(ArraySpec((2,), np.int8)))
        ArraySpec(shape=(2,), dtype=int8)
    """
    facts = from_plain(data)
    return _KINDS[facts.pop("kind")](**facts)
