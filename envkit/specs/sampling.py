"""Random values that fit a spec, over its whole range."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec, is_discrete
from envkit.specs.batching import as_outer_dims
from envkit.specs.object_spec import ObjectKind, ObjectSpec
from envkit.specs.text_spec import TextSpec
from envkit.types import Array, NestedArray, NestedSpec, RandomSource
from envkit.wording import a_or_an, foreign

__all__ = ["sample_bounded_spec", "sample_spec_nest"]

_DIGITS = np.array(list("0123456789"))
_DIGITS.setflags(write=False)


def sample_bounded_spec(
    spec: BoundedArraySpec, rng: RandomSource, outer_dims: Sequence[int] = ()
) -> Array:
    """Draws one array between a spec's bounds, both included.

    Args:
        spec: Any integer or floating spec with bounds, per element or not.
        rng: A `numpy.random.Generator`, or a `RandomState` as in TF-Agents.
        outer_dims: Dimensions that come before the spec's own.

    Example:
        >>> spec = BoundedArraySpec((3,), np.int64, minimum=[0, 10, 20], maximum=29)
        >>> sample = sample_bounded_spec(spec, np.random.default_rng(0))
        >>> sample.shape, spec.check_array(sample)
        ((3,), True)
    """
    if not isinstance(spec, BoundedArraySpec):
        raise TypeError(
            "sample_bounded_spec() needs a BoundedArraySpec, not "
            f"{foreign(spec) or f'{spec!r:.80}'}; sample_spec_nest() samples every "
            "spec."
        )
    shape = (*as_outer_dims(outer_dims), *spec.shape)
    if is_discrete(spec):
        return _sample_integers(spec, _checked(rng), shape)
    return _sample_floats(spec, _checked(rng), shape)


def sample_spec_nest(
    structure: NestedSpec, rng: RandomSource, outer_dims: Sequence[int] = ()
) -> NestedArray:
    """Draws a value for every spec of a nest.

    Specs without bounds are sampled over everything their dtype can hold. Booleans
    are tossed; text is made of digits, unless the spec has letters of its own. The
    values of an `ObjectSpec` are drawn by its kind.

    Example:
        >>> spec = {"move": BoundedArraySpec((), np.int64, 0, 3)}
        >>> action = sample_spec_nest(spec, np.random.default_rng(0), outer_dims=(5,))
        >>> action["move"].shape
        (5,)
    """
    checked = _checked(rng)
    dims = as_outer_dims(outer_dims)
    return nest.map_structure(lambda spec: _sample(spec, checked, dims), structure)


@functools.cache
def _limits_of(dtype: str) -> BoundedArraySpec:
    return BoundedArraySpec((), dtype)


def _checked(rng: Any) -> RandomSource:
    if isinstance(rng, np.random.Generator | np.random.RandomState):
        return rng
    kind = "None" if rng is None else a_or_an(type(rng).__name__)
    raise TypeError(
        f"rng is {kind}; sampling needs a numpy.random.Generator, "
        "such as numpy.random.default_rng(seed), or a numpy.random.RandomState."
    )


def _sample(spec: Any, rng: RandomSource, outer_dims: tuple[int, ...]) -> Array:
    if not isinstance(spec, ArraySpec):
        shown = foreign(spec) or f"{spec!r:.80}"
        raise TypeError(f"Cannot sample {shown}: it is not an ArraySpec.")
    if isinstance(spec, BoundedArraySpec):
        return sample_bounded_spec(spec, rng, outer_dims)
    kind = spec.dtype.kind
    if kind in "iuf":
        # The limits of the dtype as a spec of its own, drawn as often as needed:
        # making a bounded spec takes longer than most draws.
        return sample_bounded_spec(
            _limits_of(spec.dtype.str), rng, (*outer_dims, *spec.shape)
        )
    shape = (*outer_dims, *spec.shape)
    if isinstance(spec, TextSpec):
        return _sample_texts(spec, rng, shape)
    if isinstance(spec, ObjectSpec) and spec.kind is not None:
        return _sample_objects(spec.kind, rng, shape)
    if kind == "b":
        drawn = _integers(rng, 0, 1, shape, np.dtype(np.uint8)) == 1
        # A box of Gymnasium may fix some of them.
        low, high = getattr(spec, "low", False), getattr(spec, "high", True)
        return np.asarray((drawn | low) & high)
    # NumPy gives every text at least one character, so no array has a width of 0.
    if kind in "US" and spec.dtype.itemsize:
        return _sample_text(spec.dtype, rng, shape)
    raise TypeError(
        f"Cannot sample {spec}: no random value is defined for {spec.dtype}."
    )


def _integers(
    rng: RandomSource, low: Any, high: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """Draws integers of `dtype` between two bounds, both included."""
    if isinstance(rng, np.random.Generator):
        return np.asarray(
            rng.integers(low, high, size=shape, dtype=dtype, endpoint=True)
        )
    # RandomState knows exclusive upper bounds only, and one above the largest uint64
    # exists as a Python integer alone.
    above = np.asarray(high, dtype=object) + 1
    return np.asarray(
        rng.randint(np.asarray(low, dtype=object), above, size=shape, dtype=dtype)
    )


def _sample_integers(
    spec: BoundedArraySpec, rng: RandomSource, shape: tuple[int, ...]
) -> Array:
    # The generators take native byte order only.
    native = spec.dtype.newbyteorder("=")
    return _integers(
        rng, spec.minimum.astype(native), spec.maximum.astype(native), shape, native
    ).astype(spec.dtype, copy=False)


def _sample_floats(
    spec: BoundedArraySpec, rng: RandomSource, shape: tuple[int, ...]
) -> Array:
    wide = np.promote_types(spec.dtype, np.float64)
    low, high = spec.minimum.astype(wide), spec.maximum.astype(wide)
    # RandomState has random() too, under the same name and with the same meaning.
    share = rng.random(shape)
    # Not low + share * (high - low): the width of a whole float64 range is infinite.
    sample = low * (1.0 - share) + high * share
    # Rounding to a smaller dtype may leave the range by half a unit.
    return np.asarray(
        np.clip(sample.astype(spec.dtype), spec.minimum, spec.maximum), spec.dtype
    )


def _sample_text(
    dtype: np.dtype[Any], rng: RandomSource, shape: tuple[int, ...]
) -> Array:
    length = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    digits = _integers(rng, 0, 9, (*shape, length), np.dtype(np.int64))
    letters = np.ascontiguousarray(_DIGITS[digits].astype(f"{dtype.kind}1"))
    text = letters.view(f"{dtype.kind}{length}").reshape(shape)
    return np.asarray(text.astype(dtype))


def _sample_texts(spec: TextSpec, rng: RandomSource, shape: tuple[int, ...]) -> Array:
    size = np.dtype(np.int64)
    letters = np.array(list(_DIGITS if spec.letters is None else spec.letters), "U1")
    longest = spec.max_length if letters.size else 0
    lengths = _integers(rng, spec.min_length, longest, shape, size)
    texts = np.empty(shape, spec.dtype)
    for index, length in np.ndenumerate(lengths):
        if length:
            chosen = _integers(rng, 0, letters.size - 1, (length,), size)
            texts[index] = "".join(letters[chosen])
        else:
            texts[index] = ""
    return texts


def _sample_objects(
    kind: ObjectKind, rng: RandomSource, shape: tuple[int, ...]
) -> Array:
    values = np.empty(shape, object)
    for index in np.ndindex(shape):
        values[index] = kind.sample(rng)
    return values
