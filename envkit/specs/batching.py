"""Specs of batches: outer dimensions, and a common spec for different environments.

| `specs`   | what may differ                                                         |
|-----------|-------------------------------------------------------------------------|
| `"equal"` | nothing                                                                 |
| `"union"` | bounds: the common ones are the widest                                  |
| `"pad"`   | bounds, and the shapes of observations, which are padded to the largest |

With `"pad"` an observation is a dictionary: the `observation`, a `mask` of the elements
that are not padding, and, for an action that is a choice, an `action_mask` of the
choices that the row's environment has.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from envkit import nest
from envkit._internal.text import foreign
from envkit.errors import SpecError, SpecMismatchError
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, as_outer_dims, is_discrete
from envkit.specs.environment_spec import (
    EnvironmentSpec,
    difference_of_leaves,
    mismatch,
)
from envkit.specs.special import ObjectSpec, TextSpec
from envkit.types import Array, NestedSpec

__all__ = [
    "SPECS",
    "add_outer_dims_nest",
    "as_specs",
    "choices_of",
    "common_spec",
    "masks_of",
    "mixed_continues",
    "remove_outer_dims_nest",
    "stacked_infos",
]


Info = TypeVar("Info")


def add_outer_dims_nest(structure: NestedSpec, outer_dims: Sequence[int]) -> NestedSpec:
    """Prepends `outer_dims` to the shape of every spec; bounds and names stay.

    Example:
        >>> add_outer_dims_nest({"a": ArraySpec((3,), np.float32)}, (2,))
        {'a': ArraySpec(shape=(2, 3), dtype=float32)}
    """
    dims = as_outer_dims(outer_dims)
    return nest.map_structure(
        lambda spec: _as_spec(spec).replace(shape=(*dims, *spec.shape)), structure
    )


def remove_outer_dims_nest(structure: NestedSpec, num_outer_dims: int) -> NestedSpec:
    """Removes the first `num_outer_dims` dimensions from the shape of every spec.

    Bounds that differ along a removed dimension widen to cover all of them.

    Example:
        >>> remove_outer_dims_nest(ArraySpec((8, 3), np.float32), 1)
        ArraySpec(shape=(3,), dtype=float32)
    """
    if not isinstance(num_outer_dims, numbers.Integral):
        raise TypeError(
            f"num_outer_dims is a number of dimensions, not {num_outer_dims!r:.80}."
        )
    return nest.map_structure(
        lambda spec: _without_outer_dims(_as_spec(spec), num_outer_dims), structure
    )


def _as_spec(spec: Any) -> ArraySpec:
    if not isinstance(spec, ArraySpec):
        shown = foreign(spec) or f"{spec!r:.80}"
        raise TypeError(f"{shown} is not an ArraySpec, so it has no dimensions.")
    return spec


def _without_outer_dims(spec: ArraySpec, count: int) -> ArraySpec:
    if count < 0 or count > len(spec.shape):
        raise ValueError(
            f"Cannot remove {count} outer dimensions from {spec}, which has "
            f"{len(spec.shape)}."
        )
    shape = spec.shape[count:]
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=shape)
    reduced = BoundedArraySpec(
        shape,
        spec.dtype,
        _reduced(spec.minimum, len(shape), np.min),
        _reduced(spec.maximum, len(shape), np.max),
    )
    # Keeps the spec's class.
    return spec.replace(shape, minimum=reduced.minimum, maximum=reduced.maximum)


def _reduced(bound: Array, rank: int, reduce: Any) -> Array | None:
    extra = max(bound.ndim - rank, 0)
    if not extra:
        return bound
    if not bound.size:  # there are no rows, so the dtype's limit holds
        return None
    return np.asarray(reduce(bound, axis=tuple(range(extra))))


def mixed_continues(said: Sequence[bool], makers: Sequence[str]) -> str:
    """Describes environments only some of which continue after a `LAST`.

    Args:
        said: The `continues_after_last` of each environment.
        makers: The origin of each environment.
    """
    goes_on, begins = list(said).index(True), list(said).index(False)
    return (
        f"env {goes_on} ({makers[goes_on]}) continues after its LAST, and env {begins} "
        f"({makers[begins]}) begins a new episode then. continues_after_last must be "
        "the same for all environments of a batch: declare it in all of them, or make "
        "two batches."
    )


def stacked_infos(infos: Sequence[Info]) -> Info | list[Info]:
    """Stacks infos of equal structure; returns a list if their structures differ.

    They also stay a list if one array could not hold the values unchanged.

    Example:
        >>> stacked_infos([{"lives": 3}, {"lives": 2}])
        {'lives': array([3, 2])}
        >>> stacked_infos([{"lives": 3}, {}])
        [{'lives': 3}, {}]
    """
    try:
        return nest.map_structure(_stacked_alike, *infos)  # type: ignore[no-any-return]  # a nest like them
    except (SpecError, TypeError, ValueError):
        return list(infos)


def _stacked_alike(*column: Any) -> Array:
    """Stacks values if one array can hold them unchanged."""
    arrays = [np.asarray(value) for value in column]
    if len({array.dtype.kind for array in arrays}) > 1 or arrays[0].dtype.hasobject:
        raise ValueError("One array cannot hold values of several kinds.")
    return np.stack(arrays)


SPECS = ("equal", "union", "pad")
# With more choices, a mask would be larger than most observations.
_MOST_CHOICES = 2**16
_HINTS = {
    "union": 'specs="union" makes one batch, with the widest bounds.',
    "pad": 'specs="pad" makes one batch: smaller observations are padded with zeros, '
    "and have a mask.",
}


def as_specs(given: Any) -> str:
    """Checks and returns `specs`: how the specs of a batch may differ."""
    if given in SPECS:
        return str(given)
    raise ValueError(
        f"specs must be one of {', '.join(map(repr, SPECS))}, got {given!r:.80}."
    )


def common_spec(
    specs: Sequence[EnvironmentSpec], makers: Sequence[str], how: str = "equal"
) -> EnvironmentSpec:
    """Returns the spec of a batch of environments.

    Args:
        specs: The specs of the environments.
        makers: The origin of each environment, for the message.
        how: What may differ, one of `SPECS`.

    Raises:
        SpecMismatchError: More than that differs.

    Example:
        >>> number = ArraySpec((), np.float32)
        >>> few, many = (BoundedArraySpec((), np.int64, 0, n) for n in (1, 4))
        >>> few = EnvironmentSpec(number, few, number, number)
        >>> many = few._replace(action=many)
        >>> common_spec([few, many], ["few", "many"], "union").action
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=4)
    """
    if how == "equal":
        for index, spec in enumerate(specs):
            unlike = specs[0].difference(spec)
            if unlike is not None:
                hint = _hint(specs, makers)
                raise mismatch(specs, makers, index, *unlike, hint=hint)
        return specs[0]
    parts: dict[str, NestedSpec] = {}
    for part in EnvironmentSpec._fields:
        is_padded = how == "pad" and part == "observation"
        unite = _padded if is_padded else _united
        common = getattr(specs[0], part)
        for index, spec in enumerate(specs):
            try:
                common = _common(common, getattr(spec, part), unite)
            except _UnlikeError as error:
                hint = "" if how == "pad" else _hint(specs, makers, ("pad",))
                raise mismatch(
                    specs, makers, index, part, str(error), hint=hint
                ) from None
        parts[part] = common
    if how == "pad":
        parts["observation"] = _with_masks(parts["observation"], parts["action"])
    return EnvironmentSpec(**parts)


def _hint(
    specs: Sequence[EnvironmentSpec],
    makers: Sequence[str],
    ways: Sequence[str] = ("union", "pad"),
) -> str:
    """Names another mode that would make a batch; "" if there is none."""
    for how in ways:
        try:
            common_spec(specs, makers, how)
        except SpecMismatchError:
            continue
        return _HINTS[how]
    return ""


class _UnlikeError(Exception):
    """Two specs differ more than the mode allows; the text says where."""


def _common(
    first: NestedSpec, second: NestedSpec, unite: Callable[[Any, Any], Any]
) -> NestedSpec:
    leaves = {}
    for pair in nest.pair_up(first, second):
        place = f" at {pair.path}" if pair.path else ""
        if pair.problem or nest.is_nested(pair.value):
            problem = pair.problem or f"It is {nest.outline(pair.value)}."
            raise _UnlikeError(f"The structure differs{place}. {problem}")
        leaf = unite(pair.template, pair.value)
        if leaf is None:
            text = difference_of_leaves(pair.template, pair.value, place)
            raise _UnlikeError(text)
        leaves[pair.path] = leaf
    paths = [path for path, _ in nest.flatten_with_paths(first)]
    return nest.unflatten_as(first, [leaves[path] for path in paths])


def _united(first: Any, second: Any) -> ArraySpec | None:
    """Returns a spec whose bounds cover both specs'; `None` if there is none."""
    if first == second:
        return first  # type: ignore[no-any-return]  # it is a spec
    alike = (first.shape, first.dtype) == (second.shape, second.dtype)
    return _padded(first, second) if alike else None


def _padded(first: Any, second: Any) -> ArraySpec | None:
    """Returns a spec that fits both when padded with zeros; `None` if there is none."""
    if first == second:
        return first  # type: ignore[no-any-return]  # it is a spec
    # Specs of text and objects say more than shape and dtype.
    if any(isinstance(spec, TextSpec | ObjectSpec) for spec in (first, second)):
        return None
    if first.dtype != second.dtype or len(first.shape) != len(second.shape):
        return None
    shape = tuple(map(max, first.shape, second.shape))
    name = first.name if first.name == second.name else None
    specs = [first, second]
    if not all(isinstance(spec, BoundedArraySpec) for spec in specs):
        return ArraySpec(shape, first.dtype, name)
    lows = [_embedded(spec.minimum, spec.shape, shape) for spec in specs]
    highs = [_embedded(spec.maximum, spec.shape, shape) for spec in specs]
    return BoundedArraySpec(
        shape,
        first.dtype,
        _simplified(np.minimum(*lows)),
        _simplified(np.maximum(*highs)),
        name,
    )


def _embedded(bound: Array, own: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Returns a bound that is zero wherever the array is padded."""
    whole = np.zeros(shape, bound.dtype)
    whole[tuple(slice(size) for size in own)] = np.broadcast_to(bound, own)
    return whole


def _simplified(bound: Array) -> Array:
    """Returns a single number if all elements of a bound are equal."""
    is_one = bound.size and bool((bound == bound.flat[0]).all())
    return np.asarray(bound.flat[0]) if is_one else bound


# Masks.


def choices_of(spec: Any) -> range | None:
    """Returns the values of an action that is a single choice; `None` otherwise.

    Example:
        >>> choices_of(BoundedArraySpec((), np.int64, 2, 4))
        range(2, 5)
        >>> choices_of(ArraySpec((), np.int64)) is None
        True
    """
    if not isinstance(spec, BoundedArraySpec) or spec.shape or not is_discrete(spec):
        return None
    choices = range(int(spec.minimum), int(spec.maximum) + 1)
    return choices if len(choices) <= _MOST_CHOICES else None


def masks_of(common: EnvironmentSpec, own: EnvironmentSpec) -> dict[str, Any]:
    """Returns the masks that accompany an environment's observations.

    Args:
        common: The spec of the batch.
        own: The spec of the environment.
    """
    padded = common.observation["observation"]
    masks = {"mask": nest.map_structure(_elements, padded, own.observation)}
    if "action_mask" in common.observation:
        masks["action_mask"] = nest.map_structure(_legal, common.action, own.action)
    return masks


def _elements(common: ArraySpec, own: ArraySpec) -> Array:
    mask = np.zeros(common.shape, np.bool_)
    mask[tuple(slice(size) for size in own.shape)] = True
    mask.setflags(write=False)
    return mask


def _legal(common: ArraySpec, own: Any) -> Array:
    choices = choices_of(common)
    if choices is None:
        mask = np.ones(common.shape, np.bool_)
    else:
        low, high = int(own.minimum), int(own.maximum)
        mask = np.array([low <= choice <= high for choice in choices], np.bool_)
    mask.setflags(write=False)
    return mask


def _with_masks(observation: NestedSpec, action: NestedSpec) -> dict[str, NestedSpec]:
    def mask(spec: ArraySpec) -> ArraySpec:
        return ArraySpec(spec.shape, np.bool_, "mask")

    def action_mask(spec: ArraySpec) -> ArraySpec:
        choices = choices_of(spec)
        shape = spec.shape if choices is None else (len(choices),)
        return ArraySpec(shape, np.bool_, "action_mask")

    specs = {
        "observation": observation,
        "mask": nest.map_structure(mask, observation),
    }
    if any(choices_of(leaf) is not None for leaf in nest.flatten(action)):
        specs["action_mask"] = nest.map_structure(action_mask, action)
    return specs
