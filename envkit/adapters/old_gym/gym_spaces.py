"""The spaces of the old Gym as specs, with the dtypes that TF-Agents gives them.

Gym's spaces said nothing about dtypes for a long time, and its environments did not
keep to what the spaces said. Hence a choice of dtypes here, and observations that are
converted to them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from envkit.adapters.spaces import checked_members
from envkit.adapters.spaces import specs_from_spaces as spaces
from envkit.adapters.spaces.from_members import from_member
from envkit.adapters.spaces.space_kinds import kind_of_space
from envkit.adapters.spaces.values import Converter, Leaf, array_leaf, bounded_leaf
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedSpec

__all__ = ["action_converter", "observation_converter", "spec_from_gym_space"]

Dtypes: TypeAlias = Mapping[type, Any]


def spec_from_gym_space(
    space: Any,
    dtype_map: Dtypes | None = None,
    simplify_box_bounds: bool = True,
    name: str | None = None,
) -> NestedSpec:
    """Makes the specs that the members of a space of Gym fit, as arrays.

    `Discrete` becomes int64, `MultiDiscrete` and `MultiBinary` int32, as in TF-Agents;
    `Box` keeps its dtype. `Dict` becomes a dictionary with the keys in the space's
    order, `Tuple` a tuple. Others, which only late versions of Gym have, become what
    they become with Gymnasium.

    Args:
        space: A space of Gym, or anything that has the attributes of one.
        dtype_map: Which dtypes other than these to use, by class of space.
        simplify_box_bounds: Whether bounds that are the same for every element of a
            `Box` are kept as a single number.
        name: The name of the spec; in a nest, what the names begin with.

    Raises:
        ValueError: It is no space.

    Example:
        >>> class Discrete:  # gym.spaces.Discrete has these attributes, too.
        ...     n, shape = 3, ()
        >>> spec_from_gym_space(Discrete(), name="action")
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=2, name='action')
        >>> spec_from_gym_space(Discrete(), {Discrete: np.uint8}).dtype
        dtype('uint8')
    """
    return _spec(space, dtype_map or {}, simplify_box_bounds, name, name or "")


def _spec(
    space: Any, dtypes: Dtypes, simplify: bool, name: str | None, path: str
) -> NestedSpec:
    def below(child: Any, part: str, place: str) -> NestedSpec:
        child_name = part if name is None else f"{name}/{part}"
        return _spec(child, dtypes, simplify, child_name, f"{path}{place}")

    kind = _kind(space)
    if kind == "Dict":
        children = space.spaces.items()
        return {key: below(child, str(key), f"[{key!r}]") for key, child in children}
    if kind == "Tuple":
        return tuple(
            below(child, f"tuple_{index}", f"[{index}]")
            for index, child in enumerate(space.spaces)
        )
    if not kind:
        raise _no_space(space, path)
    if kind not in _SPECS:
        return spaces.spec_from_gym_space(space, simplify, name)
    dtype = _chosen_dtype(dtypes, space)
    return _SPECS[kind](space, dtype, simplify, name)


def _kind(space: Any) -> str:
    """Names the class of Gym's spaces that this is one of, by name or by attributes."""
    kind = kind_of_space(space)
    if kind:
        return kind
    if hasattr(space, "spaces"):
        return "Dict" if isinstance(space.spaces, Mapping) else "Tuple"
    if hasattr(space, "nvec"):
        return "MultiDiscrete"
    if hasattr(space, "low") and hasattr(space, "high"):
        return "Box"
    if hasattr(space, "n"):
        return "MultiBinary" if getattr(space, "shape", None) else "Discrete"
    return ""


def _no_space(space: Any, path: str) -> SpecError:
    place = f" at {path}" if path else ""
    error = SpecError(
        f"The space{place} is {describe(space)}, which is not a space of Gym."
    )
    error.path = path
    return error


def _chosen_dtype(dtypes: Dtypes, space: Any) -> Any:
    """Returns the dtype that somebody chose for a space, if anybody did."""
    for kind in type(space).__mro__:
        if kind in dtypes:
            return np.dtype(dtypes[kind])
    return None


def _box(space: Any, chosen: Any, simplify: bool, name: str | None) -> ArraySpec:
    own = getattr(space, "dtype", None)
    dtype = _first(chosen, own, np.float32)
    if dtype.kind not in "iuf":  # Only numbers have bounds.
        return ArraySpec(_shape(space), dtype, name)
    low, high = np.asarray(space.low), np.asarray(space.high)
    if simplify and _all_same(low) and _all_same(high):
        low, high = low.flat[0], high.flat[0]
    return BoundedArraySpec(_shape(space), dtype, low, high, name)


def _discrete(space: Any, chosen: Any, simplify: bool, name: str | None) -> ArraySpec:
    low = int(getattr(space, "start", 0))
    high = low + int(space.n) - 1
    return BoundedArraySpec((), _first(chosen, np.int64), low, high, name)


def _multi_discrete(
    space: Any, chosen: Any, simplify: bool, name: str | None
) -> ArraySpec:
    high = np.asarray(space.nvec) - 1
    shape = high.shape
    if _all_same(high):
        high = high.flat[0]
    return BoundedArraySpec(shape, _first(chosen, np.int32), 0, high, name)


def _multi_binary(
    space: Any, chosen: Any, simplify: bool, name: str | None
) -> ArraySpec:
    return BoundedArraySpec(_shape(space), _first(chosen, np.int32), 0, 1, name)


_SPECS: dict[str, Callable[[Any, Any, bool, str | None], ArraySpec]] = {
    "Box": _box,
    "Discrete": _discrete,
    "MultiBinary": _multi_binary,
    "MultiDiscrete": _multi_discrete,
}


def _first(*dtypes: Any) -> np.dtype[Any]:
    given: np.dtype[Any] = np.dtype(next(d for d in dtypes if d is not None))
    return given


def _shape(space: Any) -> tuple[int, ...]:
    shape = getattr(space, "shape", None)
    if shape is None:
        # Early ones have only what they were made with.
        shape = np.shape(space.low) if hasattr(space, "low") else np.ravel(space.n)
    return tuple(int(size) for size in shape)


def _all_same(array: Array) -> bool:
    return bool(array.size and (array == array.flat[0]).all())


def observation_converter(
    space: Any, spec: NestedSpec, *, subject: str, to_dtype: bool = True
) -> Converter:
    """Returns a function that makes new arrays of an observation.

    Args:
        space: A space of Gym.
        spec: What `spec_from_gym_space` made of it.
        subject: What an observation is, as the sentence of an error begins.
        to_dtype: Whether arrays change their dtype to that of the spec. They do where
            their values survive that, but for the digits of a fraction. If not, any
            dtype will do.
    """

    def leaf(space: Any, spec: Any, path: str) -> Leaf:
        if _kind(space) not in _SPECS:
            return from_member(space, spec, subject=subject, root=path)
        return _converted_leaf(spec) if to_dtype else _shaped_leaf(spec)

    root = "observation"
    leaves = _leaves(space, spec, root, leaf)
    return Converter(spec, leaves, subject=subject, root=root)


def _leaves(
    space: Any, spec: Any, path: str, leaf: Callable[[Any, Any, str], Leaf]
) -> Any:
    """Makes a nest of functions, one for each space that is not a nest of others."""
    kind = _kind(space)
    if kind == "Dict":
        return {
            key: _leaves(child, spec[key], f"{path}[{key!r}]", leaf)
            for key, child in space.spaces.items()
        }
    if kind == "Tuple":
        return tuple(
            _leaves(child, spec[index], f"{path}[{index}]", leaf)
            for index, child in enumerate(space.spaces)
        )
    return leaf(space, spec, path)


def _converted_leaf(spec: ArraySpec) -> Leaf:
    """Does what `array_leaf` does, and takes whole numbers of floats for integers."""
    convert = array_leaf(spec)
    if spec.dtype.kind not in "iu":
        return convert

    def convert_whole(value: Any) -> Array:
        try:
            return convert(value)  # type: ignore[no-any-return]  # it makes arrays
        except SpecError:
            whole = _whole(value, spec)
            if whole is None:
                raise
            return whole

    return convert_whole


def _whole(value: Any, spec: ArraySpec) -> Array | None:
    """Returns an array of floats as integers, if that is what they are."""
    try:
        given = np.asarray(value)
    except ValueError:  # Rows that differ in length.
        return None
    if given.shape != spec.shape or given.dtype.kind != "f":
        return None
    with np.errstate(invalid="ignore"):  # What is no number, or too large, comes out
        array = given.astype(spec.dtype)  # as something else.
    return array if (array == given).all() else None


def _shaped_leaf(spec: ArraySpec) -> Leaf:
    def convert(value: Any) -> Array:
        try:
            array = np.array(value)
        except ValueError:  # Rows that differ in length.
            raise SpecError from None
        if array.shape != spec.shape or array.dtype == object:
            raise SpecError
        return array

    return convert


def action_converter(space: Any, spec: NestedSpec, *, subject: str) -> Converter:
    """Returns a function that makes members of a space of what fits its spec.

    A choice becomes a number of Python: old environments look it up in dictionaries.

    Args:
        space: A space of Gym.
        spec: What `spec_from_gym_space` made of it.
        subject: What an action is, as the sentence of an error begins.
    """

    def leaf(space: Any, spec: Any, path: str) -> Leaf:
        kind = _kind(space)
        if kind not in _SPECS:
            return checked_members.action_converter(
                space, spec, subject=subject, root=path
            )
        return _choice_leaf(spec) if kind == "Discrete" else _array_leaf(space, spec)

    root = "action"
    leaves = _leaves(space, spec, root, leaf)
    return Converter(spec, leaves, subject=subject, root=root)


def _choice_leaf(spec: BoundedArraySpec) -> Leaf:
    low, high = int(spec.minimum), int(spec.maximum)
    convert_other = bounded_leaf(spec)

    def convert(value: Any) -> int:
        # Hot: called once per step.
        try:
            number = operator.index(value)
        except TypeError:
            number = int(convert_other(value))
        if not low <= number <= high:
            raise SpecError
        return number

    return convert


def _array_leaf(space: Any, spec: ArraySpec) -> Leaf:
    convert = bounded_leaf(spec)
    own = getattr(space, "dtype", None)
    if own is None or np.dtype(own) == spec.dtype:
        return convert
    dtype = np.dtype(own)

    def convert_back(value: Any) -> Array:
        array: Array = convert(value)
        return array.astype(dtype)

    return convert_back
