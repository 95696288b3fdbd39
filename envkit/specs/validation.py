"""Checks values against specs, and explains what does not fit, where, and why."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit._internal.text import a_or_an, counted, foreign, listed
from envkit.errors import SpecError
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, as_outer_dims, within
from envkit.specs.special import ObjectSpec, TextSpec
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "assert_arrays_spec_nest",
    "check_arrays_nest",
    "check_fits",
    "describe",
    "explain",
    "flatten_as",
]


class _Misfit(NamedTuple):
    """Describes a leaf that does not fit, or a subtree of the wrong structure."""

    path: str
    expected: str
    got: str
    reason: str


def explain(
    value: NestedArray,
    spec: NestedSpec,
    *,
    subject: str = "The value",
    root: str = "",
    outer_dims: Sequence[int] = (),
) -> str | None:
    """Describes what is wrong with a value, and where; `None` if it fits.

    Args:
        value: A nest of arrays.
        spec: The nest of specs that it must fit.
        subject: The value's name, as the beginning of the sentence.
        root: The beginning of the path, such as `observation`.
        outer_dims: Dimensions of the arrays before their specs' own.

    Example:
        >>> spec = {"camera": ArraySpec((2, 2), np.uint8)}
        >>> print(explain({"camera": np.zeros((2, 3), np.uint8)}, spec))
        The value does not fit its spec at ['camera'].
        <BLANKLINE>
          expected   ArraySpec(shape=(2, 2), dtype=uint8)
          got        array of shape (2, 3), dtype uint8, values 0 … 0
        <BLANKLINE>
        Axis 1 has size 3 instead of 2.
        >>> explain({"camera": np.zeros((2, 2), np.uint8)}, spec) is None
        True
    """
    error = _error(value, spec, subject, root, as_outer_dims(outer_dims))
    return None if error is None else str(error)


def check_fits(
    value: NestedArray,
    spec: NestedSpec,
    *,
    subject: str = "The value",
    root: str = "",
    path: str = "",
    outer_dims: Sequence[int] = (),
    context: str = "",
) -> None:
    """Raises the `SpecError` that `explain` describes unless the value fits.

    `path` is the value's path below the root, if it is part of something. `context` is
    a last sentence for the reader, such as when the value came.
    """
    dims = as_outer_dims(outer_dims)
    error = _error(value, spec, subject, root, dims, context, path)
    if error is not None:
        raise error


def flatten_as(
    structure: nest.Structure, value: NestedArray, *, subject: str, root: str = ""
) -> list[Any]:
    """Flattens a value; raises a `SpecError` with the path for a wrong structure.

    Checks only the structure, because flattening does not look at leaves.
    """
    # Hot: called once per step by environments that take nested actions.
    try:
        return structure.flatten(value)
    except SpecError:
        problems = (
            pair
            for pair in nest.pair_up(structure.template, value, root)
            if pair.problem
        )
        pair = next(problems)
    raise SpecError.does_not_fit(
        subject,
        path=pair.path,
        root=root,
        expected=f"the structure {nest.outline(pair.template)}",
        got=describe(pair.value),
        reason=pair.problem,
    )


def check_arrays_nest(array: NestedArray, spec: NestedSpec) -> bool:
    """Returns True if every array of a nest fits its spec; never raises.

    Example:
        >>> check_arrays_nest([np.zeros(2)], [ArraySpec((2,), np.float64)])
        True
    """
    try:
        return all(
            not pair.problem
            and isinstance(pair.template, ArraySpec)
            and pair.template.check_array(pair.value)
            for pair in nest.pair_up(spec, array)
        )
    except SpecError:  # keys without an order are no structure
        return False


def assert_arrays_spec_nest(array: NestedArray, spec: NestedSpec) -> None:
    """Raises unless every array of a nest fits its spec.

    Raises:
        TypeError: A leaf of `spec` is not an `ArraySpec`.
        SpecError: A value does not fit; the error is also a `ValueError`.
    """
    for path, leaf in nest.flatten_with_paths(spec):
        if not isinstance(leaf, ArraySpec):
            place = f" at {path}" if path else ""
            shown = foreign(leaf) or f"{leaf!r:.80}"
            raise TypeError(f"The spec{place} is {shown}, not an ArraySpec.")
    check_fits(array, spec)


def _error(
    value: NestedArray,
    spec: NestedSpec,
    subject: str,
    root: str,
    outer_dims: tuple[int, ...],
    context: str = "",
    path: str = "",
) -> SpecError | None:
    misfits: list[_Misfit] = []
    fitting = 0
    for pair in nest.pair_up(spec, value, nest.join(root, path)):
        misfit = _misfit(pair, outer_dims)
        if misfit is None:
            fitting += 1
        else:
            misfits.append(misfit)
    if not misfits:
        return None
    first = misfits[0]
    return SpecError.does_not_fit(
        subject,
        path=first.path,
        root=root,
        expected=first.expected,
        got=first.got,
        reason=" ".join(filter(None, [first.reason, _others(misfits[1:], fitting)])),
        note=context,
    )


def _others(misfits: Sequence[_Misfit], fitting: int) -> str:
    """Says how many of the nest's other leaves fit."""
    if misfits:
        places = listed([misfit.path for misfit in misfits], most=3)
        return f"Neither does it fit at {places}."
    if fitting == 1:
        return "The other leaf fits."
    return f"The other {fitting} leaves fit." if fitting else ""


def _misfit(pair: nest.Pair, outer_dims: tuple[int, ...]) -> _Misfit | None:
    spec, value = pair.template, pair.value
    if pair.problem:
        return _Misfit(
            pair.path,
            f"the structure {nest.outline(spec)}",
            describe(value),
            pair.problem,
        )
    if not isinstance(spec, ArraySpec):
        shown = foreign(spec) or repr(spec)[:80]
        return _Misfit(
            pair.path, "an ArraySpec", shown, "The spec is not an ArraySpec."
        )
    if not outer_dims:
        fits = spec.check_array(value)
    else:
        # Hot for large batches: the whole batch's spec is made only for a message.
        shape = (*outer_dims, *spec.shape)
        fits = (
            isinstance(value, np.ndarray)
            and value.shape == shape
            and value.dtype == spec.dtype
            and _contents_fit(value, spec)
        )
    if fits:
        return None
    full = spec.replace(shape=(*outer_dims, *spec.shape)) if outer_dims else spec
    return _Misfit(pair.path, repr(full), describe(value), _reason(value, full, spec))


def _contents_fit(value: Array, spec: ArraySpec) -> bool:
    """Returns True if the elements of an array of the right dtype fit."""
    if isinstance(spec, BoundedArraySpec):
        return within(value, spec.minimum, spec.maximum)
    return not isinstance(spec, TextSpec | ObjectSpec) or spec.allows_all(value)


def describe(value: Any) -> str:
    """Summarises a value in one line: what it is, not its contents.

    Example:
        >>> describe(np.zeros((84, 84), np.uint8))
        'array of shape (84, 84), dtype uint8, values 0 … 0'
        >>> describe([1, 2, 3])
        'a list of 3 elements'
    """
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        array = f"array of shape {value.shape}, dtype {value.dtype}{_range(value)}"
        is_holder = value.shape == () and value.dtype.kind == "O"
        return f"{array} that holds {describe(value[()])}" if is_holder else array
    if isinstance(value, bool | numbers.Number | np.generic):
        return f"{value!r:.40} of type {type(value).__name__}"
    if isinstance(value, str | bytes):
        return f"the string {value!r:.40}"
    kind = type(value).__name__
    if nest.is_nested(value) and hasattr(value, "__len__"):
        return f"{a_or_an(kind)} of {counted(len(value), 'element')}"
    return foreign(value) or a_or_an(f"{kind} object")


def _range(array: Array) -> str:
    if not array.size or array.dtype.kind not in "biuf":
        return ""
    missing = np.isnan(array)
    if missing.all():
        return ", all NaN"
    present = array[~missing]
    text = f", values {present.min()!s} … {present.max()!s}"
    return f"{text} and NaN" if missing.any() else text


def _reason(value: Any, full: ArraySpec, spec: ArraySpec) -> str:
    """Returns the sentence that says what is wrong with one leaf."""
    if value is None:
        return "None is not an array. Did a return statement get lost?"
    if isinstance(value, str | bytes):
        return "A string is not an array."
    if nest.is_nested(value):
        kind = a_or_an(type(value).__name__)
        if isinstance(value, list | tuple):
            return (
                f"The value is {kind}, not an array: "
                f"use np.array(..., {_code(full.dtype)})."
            )
        return f"The value is {kind}; an array is expected here."
    if not isinstance(value, np.ndarray):
        return _reason_for_number(value, full)
    reasons = []
    if value.shape != full.shape:
        reasons.append(_reason_for_shape(value.shape, full.shape, spec.shape))
    if value.dtype != full.dtype:
        reasons.append(_reason_for_dtype(value.dtype, full.dtype))
    if not reasons and isinstance(full, BoundedArraySpec):
        reasons.append(_reason_for_bounds(value, full))
    if not reasons and isinstance(full, TextSpec):
        reasons.append(_reason_for_text(value, full))
    if not reasons and isinstance(full, ObjectSpec):
        reasons.append(_reason_for_objects(value, full))
    return " ".join(reasons)


def _code(dtype: np.dtype[Any]) -> str:
    """Returns a dtype as written in code."""
    if dtype.isnative and dtype.kind in "biufc":
        return "np.bool_" if dtype.kind == "b" else f"np.{dtype.name}"
    return repr(str(dtype).lstrip("|"))


def _reason_for_number(value: Any, spec: ArraySpec) -> str:
    kind = a_or_an(type(value).__name__)
    kind = f"{kind[0].upper()}{kind[1:]}"
    if not isinstance(value, bool | numbers.Number | np.generic):
        return f"{kind} is not an array."
    if spec.shape != ():
        shape = f"an array of shape {spec.shape}"
        return f"The value is a single number; {shape} is expected."
    if isinstance(value, int) and not _can_hold(spec.dtype, value):
        size = "small" if value < 0 else "large"
        return f"The value {value} is too {size} for {spec.dtype}."
    dtype = np.asarray(value).dtype
    if isinstance(value, np.generic) and dtype != spec.dtype:
        return _reason_for_dtype(dtype, spec.dtype)
    if isinstance(value, np.generic) and not isinstance(value, numbers.Number):
        name = "boolean" if dtype.kind == "b" else type(value).__name__
        return f"A NumPy {name} is not an array: use np.asarray(...)."
    if dtype == spec.dtype and isinstance(spec, BoundedArraySpec):
        return _reason_for_bounds(np.asarray(value), spec)
    fix = f"use np.array(..., {_code(spec.dtype)})."
    if dtype.hasobject:
        return f"{kind} is not an array: {fix}"
    return f"{kind} becomes {dtype}; the spec says {spec.dtype}: {fix}"


def _can_hold(dtype: np.dtype[Any], number: int) -> bool:
    if dtype.kind not in "iu":
        return True
    info = np.iinfo(dtype)
    return int(info.min) <= number <= int(info.max)


def _reason_for_shape(
    got: tuple[int, ...], full: tuple[int, ...], spec: tuple[int, ...]
) -> str:
    if len(got) == len(full):
        *most, last = (axis for axis, size in enumerate(got) if size != full[axis])
        if not most:
            return f"Axis {last} has size {got[last]} instead of {full[last]}."
        axes = f"{', '.join(map(str, most))} and {last}"
        return f"Axes {axes} have another size: {got} instead of {full}."
    if len(full) > len(spec) and got == spec:
        return f"The whole batch dimension is missing: expected {full}."
    if len(got) == len(full) + 1 and got[1:] == full:
        return (
            f"There is one dimension too many, of size {got[0]}: a batch where a "
            "single value belongs."
        )
    return f"The array has {counted(len(got), 'dimension')} instead of {len(full)}."


# NumPy's default conversions, by the kinds of the given and the expected dtype.
_HABITS = {
    ("f", "f"): "NumPy makes float64 by default: ",
    ("i", "iu"): "NumPy makes int64 by default: ",
    ("U", "U"): "NumPy makes text as wide as the longest: ",
    ("S", "S"): "NumPy makes text as wide as the longest: ",
}


def _reason_for_dtype(got: np.dtype[Any], expected: np.dtype[Any]) -> str:
    reason = f"dtype is {got}; the spec says {expected}."
    if got.kind == "O":
        return f"{reason} NumPy makes object arrays of rows that differ in shape."
    if (
        got.kind == expected.kind
        and got.kind in "US"
        and got.itemsize > expected.itemsize
    ):
        return reason  # converting would cut off the text
    habit = next(
        (
            text
            for (ours, theirs), text in _HABITS.items()
            if got.kind == ours and expected.kind in theirs
        ),
        "",
    )
    # Nobody makes floats and integers of unusual size by accident.
    if got.kind in "fi" and got not in (np.float64, np.int64):
        habit = ""
    return f"{reason} {habit or 'If that is meant, '}add .astype({_code(expected)})."


def _reason_for_bounds(value: Array, spec: BoundedArraySpec) -> str:
    for outside, bound, verb, name in (
        (value > spec.maximum, spec.maximum, "above", "maximum"),
        (value < spec.minimum, spec.minimum, "below", "minimum"),
    ):
        if np.any(outside):
            return _out_of_bounds(value, np.asarray(outside), bound, verb, name)
    count = int(np.count_nonzero(np.isnan(value)))
    if not count:
        return "A bound of the spec is NaN, so no value fits."
    if value.ndim == 0:
        return "The value is NaN, which no bounds contain."
    return f"{_share(count, value)} NaN, which no bounds contain."


def _reason_for_text(value: Array, spec: TextSpec) -> str:
    text = next(str(text) for text in value.flat if not spec.allows(str(text)))
    length = counted(len(text), "character")
    if len(text) > spec.max_length:
        return f"The text {text!r:.40} has {length}, more than {spec.max_length}."
    if len(text) < spec.min_length:
        return f"The text {text!r:.40} has {length}, fewer than {spec.min_length}."
    letter = next(letter for letter in text if letter not in str(spec.letters))
    return f"The text {text!r:.40} has the letter {letter!r}, which is none of these."


def _reason_for_objects(value: Array, spec: ObjectSpec) -> str:
    wrong = next(item for item in value.flat if not spec.contains(item))
    return f"It holds {describe(wrong)}, which the spec does not know as a value."


def _out_of_bounds(
    value: Array, outside: Array, bound: Array, verb: str, name: str
) -> str:
    index = tuple(int(i) for i in np.argwhere(outside)[0])
    worst = value[index]
    limit = np.broadcast_to(bound, value.shape)[index]
    if value.ndim == 0:
        return f"The value {worst!s} is {verb} the {name} {limit!s}."
    share = _share(int(outside.sum()), value)
    return f"{share} {verb} the {name} {limit!s}: {worst!s} at index {index}."


def _share(count: int, value: Array) -> str:
    verb = "is" if count == 1 else "are"
    return f"{count} of {counted(value.size, 'element')} {verb}"
