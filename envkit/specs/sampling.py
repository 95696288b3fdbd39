"""Draws random values that fit a spec, over its whole range."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from envkit import nest
from envkit._internal.text import a_or_an, foreign, listed
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, as_outer_dims, is_discrete
from envkit.specs.special import ObjectKind, ObjectSpec, TextSpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedArray, NestedSpec, RandomSource

__all__ = ["sample_bounded_spec", "sample_spec", "sample_spec_nest"]

# A mask has a byte for each choice.
_MOST_CHOICES = 2**20

_DIGITS = np.array(list("0123456789"))
_DIGITS.setflags(write=False)


def sample_bounded_spec(
    spec: BoundedArraySpec,
    rng: RandomSource,
    outer_dims: Sequence[int] = (),
    *,
    mask: Any = None,
) -> Array:
    """Draws one array between a spec's bounds, inclusive.

    Args:
        spec: Any integer or float spec with bounds, scalar or per element.
        rng: A `numpy.random.Generator`, or a `RandomState` as in TF-Agents.
        outer_dims: Dimensions before the spec's own.
        mask: The choices of an integer spec that may be drawn, as in
            `sample_spec_nest`; `None` for all.

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
    dims = as_outer_dims(outer_dims)
    if mask is not None:
        return _sample_masked(spec, _checked(rng), dims, mask, "")
    shape = (*dims, *spec.shape)
    if is_discrete(spec):
        return _sample_integers(spec, _checked(rng), shape)
    return _sample_floats(spec, _checked(rng), shape)


def sample_spec_nest(
    structure: NestedSpec,
    rng: RandomSource,
    outer_dims: Sequence[int] = (),
    *,
    mask: Any = None,
) -> NestedArray:
    """Draws a value for every spec of a nest.

    Specs without bounds are sampled over the whole range of their dtype. Booleans are
    true or false with equal probability. Text consists of digits, unless the spec has
    its own letters. An `ObjectSpec` is sampled by its kind.

    A mask has one boolean per choice between a spec's bounds, along its last axis:
    `(*outer_dims, *spec.shape, choices)`. Allowed choices are equally likely. Without
    the outer dimensions, it applies to all rows. If elements have different numbers of
    choices, every mask is as long as the longest, and the excess is ignored; or pass a
    list with one mask per element.

    Args:
        structure: Specs, or one spec.
        rng: A `numpy.random.Generator`, or a `RandomState` as in TF-Agents.
        outer_dims: Dimensions before the specs' own.
        mask: The choices that may be drawn: a nest of masks like that of the specs, in
            which `None` allows everything; `None` for no masks at all.

    Example:
        >>> spec = {"move": BoundedArraySpec((), np.int64, 0, 3)}
        >>> rng = np.random.default_rng(0)
        >>> sample_spec_nest(spec, rng, outer_dims=(5,))["move"].shape
        (5,)
        >>> legal = {"move": np.array([[False, True, False, False]] * 5)}
        >>> sample_spec_nest(spec, rng, outer_dims=(5,), mask=legal)["move"]
        array([1, 1, 1, 1, 1])

    Raises:
        ValueError: A mask allows no choice in some row.
    """
    checked = _checked(rng)
    dims = as_outer_dims(outer_dims)
    if mask is not None:
        return _sample_with(structure, checked, dims, mask)
    return nest.map_structure(lambda spec: _sample(spec, checked, dims), structure)


def sample_spec(
    spec: ArraySpec, rng: Any, outer_dims: Sequence[int], mask: Any
) -> Array:
    """Implements `ArraySpec.sample`, which also takes a seed or `None`."""
    is_seed = isinstance(rng, int | np.integer) and not isinstance(rng, bool)
    if rng is None or is_seed:
        rng = np.random.default_rng(rng)
    elif isinstance(rng, np.ndarray | list | tuple):
        raise TypeError(
            f"rng is {describe(rng)}; sample() takes a generator or a seed first. A "
            "mask is passed by name: sample(rng, mask=mask)."
        )
    return sample_spec_nest(spec, rng, outer_dims, mask=mask)  # type: ignore[no-any-return]


def _sample_with(
    structure: NestedSpec, rng: RandomSource, dims: tuple[int, ...], masks: Any
) -> NestedArray:
    """Draws a value for every spec, using the mask at the same position."""
    values = []
    for pair in nest.pair_up(structure, masks):
        place = f" at {pair.path}" if pair.path else ""
        if pair.problem:
            raise ValueError(
                f"The masks must have the same structure as the specs{place}. "
                f"{pair.problem}"
            )
        if pair.value is None:
            values.append(_sample(pair.template, rng, dims))
        else:
            values.append(_sample_masked(pair.template, rng, dims, pair.value, place))
    return nest.unflatten_as(structure, values)


def _sample_masked(
    spec: Any, rng: RandomSource, dims: tuple[int, ...], mask: Any, place: str
) -> Array:
    """Draws from the choices that a mask allows."""
    low, counts = _choices_of(spec, place)
    allowed = _allowed(mask, counts, (*dims, *spec.shape), place)
    left = np.asarray(allowed.sum(-1))
    if not left.all():
        _refuse_empty(left, dims, counts, place)
    # The index of the choice among the allowed ones, counted from 1.
    number = (rng.random(left.shape) * left).astype(np.int64) + 1
    choice = np.argmax(allowed.cumsum(-1) == np.asarray(number)[..., np.newaxis], -1)
    # The dtype can hold each choice, but perhaps not the number of choices.
    return np.asarray(low + choice.astype(low.dtype)).astype(spec.dtype)


def _choices_of(spec: Any, place: str) -> tuple[Array, Array]:
    """Returns each element's first choice, and its number of choices."""
    if not isinstance(spec, BoundedArraySpec) or not is_discrete(spec):
        raise TypeError(
            f"There is a mask{place} for {spec!r:.120}; a mask must be for integers "
            "with bounds, which have choices to leave out."
        )
    native = spec.dtype.newbyteorder("=")
    low = np.broadcast_to(spec.minimum, spec.shape).astype(native)
    high = np.broadcast_to(spec.maximum, spec.shape)
    # As Python integers: the difference may not fit into the dtype.
    counts = high.astype(object) - low.astype(object) + 1
    most = int(np.max(counts, initial=0))
    if most > _MOST_CHOICES:
        raise ValueError(
            f"There is a mask{place} for {spec!r:.120}, which has {most} choices; a "
            f"mask must be for {_MOST_CHOICES} at most."
        )
    return low, np.asarray(counts, np.int64)


def _allowed(mask: Any, counts: Array, shape: tuple[int, ...], place: str) -> Array:
    """Returns a boolean for each choice, of shape `(*shape, choices)`."""
    most = int(counts.max(initial=1))
    if isinstance(mask, list | tuple) and counts.ndim and len(mask) == counts.size:
        mask = _padded(mask, counts, shape, place)
    array = np.asarray(mask)
    is_flag = array.dtype.kind == "b" or (
        array.dtype.kind in "iu" and bool(np.isin(array, (0, 1)).all())
    )
    try:
        if not is_flag or array.shape[-1:] != (most,):
            raise ValueError
        allowed: Array = np.broadcast_to(array.astype(bool), (*shape, most))
    except ValueError:
        shapes = f"{(*shape, most)}"
        if len(shape) > counts.ndim:
            shapes += f", or {(*counts.shape, most)} for all rows"
        raise ValueError(
            f"The mask{place} is {describe(mask)}; it must have one boolean for each "
            f"choice, and the shape {shapes}."
        ) from None
    return allowed & (np.arange(most) < counts[..., np.newaxis])


def _padded(masks: Any, counts: Array, shape: tuple[int, ...], place: str) -> Array:
    """Combines the masks of a spec's elements in one array."""
    dims, most = shape[: len(shape) - counts.ndim], int(counts.max(initial=1))
    padded = np.zeros((*dims, counts.size, most), np.uint8)
    for element, (mask, count) in enumerate(zip(masks, counts.flat, strict=True)):
        own = np.asarray(mask)
        if own.shape[-1:] != (count,) or own.dtype.kind not in "biu":
            raise ValueError(
                f"The mask{place} has {describe(mask)} for element {element}; it must "
                f"have one boolean for each of {count} choices."
            )
        padded[..., element, :count] = own
    return padded.reshape((*shape, most))


def _refuse_empty(
    left: Array, dims: tuple[int, ...], counts: Array, place: str
) -> NoReturn:
    """Raises if a mask allows no choice."""
    index = tuple(int(axis) for axis in np.argwhere(left == 0)[0])
    row, element = index[: len(dims)], index[len(dims) :]
    where = f" in row {listed(row)}" if row else ""
    where += f" for element {listed(element)}" if element else ""
    raise ValueError(
        f"The mask{place} allows nothing{where}: none of "
        f"{int(counts[element])} choices is true. Where the action is not used, as "
        "after the end of an episode, let the mask be true everywhere."
    )


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
        # The dtype's limits as a spec, kept and reused: making a bounded spec takes
        # longer than most draws.
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
        # A Gymnasium box may fix some bounds.
        low, high = getattr(spec, "low", False), getattr(spec, "high", True)
        return np.asarray((drawn | low) & high)
    # NumPy gives every text at least one character, so no array has width 0.
    if kind in "US" and spec.dtype.itemsize:
        return _sample_text(spec.dtype, rng, shape)
    raise TypeError(
        f"Cannot sample {spec}: no random value is defined for {spec.dtype}."
    )


def _integers(
    rng: RandomSource, low: Any, high: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """Draws integers of `dtype` between two bounds, inclusive."""
    if isinstance(rng, np.random.Generator):
        return np.asarray(
            rng.integers(low, high, size=shape, dtype=dtype, endpoint=True)
        )
    # RandomState accepts only exclusive upper bounds, and a number above the largest
    # uint64 exists only as a Python integer.
    above = np.asarray(high, dtype=object) + 1
    return np.asarray(
        rng.randint(np.asarray(low, dtype=object), above, size=shape, dtype=dtype)
    )


def _sample_integers(
    spec: BoundedArraySpec, rng: RandomSource, shape: tuple[int, ...]
) -> Array:
    # The generators accept only native byte order.
    native = spec.dtype.newbyteorder("=")
    return _integers(
        rng, spec.minimum.astype(native), spec.maximum.astype(native), shape, native
    ).astype(spec.dtype, copy=False)


def _sample_floats(
    spec: BoundedArraySpec, rng: RandomSource, shape: tuple[int, ...]
) -> Array:
    wide = np.promote_types(spec.dtype, np.float64)
    low, high = spec.minimum.astype(wide), spec.maximum.astype(wide)
    # RandomState has random() too, with the same meaning.
    share = rng.random(shape)
    # Not low + share * (high - low): the full float64 range has infinite width.
    sample = low * (1.0 - share) + high * share
    # Rounding to a smaller dtype may exceed the range by half a unit.
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
