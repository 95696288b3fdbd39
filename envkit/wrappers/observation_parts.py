"""Wrappers that choose, rename or join the parts of observations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit import nest
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import a_or_an, as_array, describe, listed
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.nests import fresh_nest
from envkit.wrappers.observations import known_bounds

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "FlattenObservation",
    "FlattenObservationsWrapper",
    "ObservationFilterWrapper",
    "Packing",
    "RenameObservation",
    "SelectObservation",
    "is_choice",
]


class ObservationFilterWrapper(PyEnvironmentBaseWrapper):
    """Selects elements of a vector observation, in the given order.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = ObservationFilterWrapper(CartPole(batch_size=3, seed=1), idx=[2, 0])
        >>> env.reset().observation.shape
        (3, 2)
        >>> env.observation_spec().maximum
        array([0.41887903, 4.8       ], dtype=float32)
    """

    _shown = ("idx",)

    def __init__(
        self,
        env: Any,
        idx: Sequence[int] | npt.NDArray[np.integer[Any]],
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            idx: The indices of the elements to show; negative ones count from the end.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        spec = self._env.observation_spec()
        if nest.is_nested(spec) or len(spec.shape) != 1:
            raise ValueError(
                "ObservationFilterWrapper filters observations that are a single "
                f"vector, and this one is {_kind(spec)}. To choose among the parts of "
                "a dictionary use SelectObservation; to make a vector of other "
                "observations, FlattenObservationsWrapper."
            )
        self._idx = _checked_indices(idx, spec.shape[0])
        self._spec = _filtered(spec, self._idx)

    @property
    def idx(self) -> list[int]:
        """The indices of the elements that are shown."""
        indices: list[int] = self._idx.tolist()
        return indices

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the selected elements."""
        return self._spec

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Indexing with an array copies.
        seen = np.asarray(time_step.observation)[..., self._idx]
        return time_step._replace(observation=seen)


class FlattenObservationsWrapper(PyEnvironmentBaseWrapper):
    """Joins all parts of an observation, or selected ones, into one vector.

    The parts follow by sorted key, as in every flattened nest, each in row-major order.
    All must have the same dtype. In a batch, each row has its own vector. The vector
    has bounds if all its parts have.

    Example:
        >>> from envkit.envs import TicTacToe
        >>> env = FlattenObservationsWrapper(TicTacToe(seed=1), ["board"])
        >>> env.reset().observation.shape
        (9,)
    """

    _shown = ("observations_allowlist",)

    def __init__(
        self,
        env: Any,
        observations_allowlist: Sequence[str] | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            observations_allowlist: The keys of the parts to use from a dictionary
                observation; `None` for all parts of any nest.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        spec = self._env.observation_spec()
        self._allowlist: list[Any] | None = None
        if observations_allowlist is not None:
            self._allowlist = _checked_keys(
                self, "observations_allowlist", observations_allowlist, spec
            )
        self._structure = nest.Structure(self._chosen(spec))
        leaves = self._structure.leaves
        dtypes = {str(leaf.dtype): leaf.dtype for leaf in leaves}
        if len(dtypes) != 1:
            raise ValueError(
                "FlattenObservationsWrapper joins parts that have the same dtype, and "
                f"these have {listed(dtypes) or 'none: there are no parts'}. "
                "Choose some of them with observations_allowlist, or cast them with "
                "DtypeObservation first."
            )
        (dtype,) = dtypes.values()
        self._packing = Packing(leaves, self._dims, dtype, "packed_observations")

    @property
    def observations_allowlist(self) -> list[Any] | None:
        """The keys of the parts that are used; `None` for all."""
        return None if self._allowlist is None else [*self._allowlist]

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the vector."""
        return self._packing.spec

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = self._structure.flatten(self._chosen(time_step.observation))
        return time_step._replace(observation=self._packing.pack(leaves))

    def _chosen(self, parts: Any) -> Any:
        # The dictionary belongs to the environment, so nothing is deleted from it.
        if self._allowlist is None:
            return parts
        return {key: parts[key] for key in self._allowlist}


class FlattenObservation(PyEnvironmentBaseWrapper):
    """Joins all parts of an observation into one vector, and one-hot encodes choices.

    A choice, which is an integer with several values, becomes a one-hot vector; an
    array of choices becomes one such vector after another. All other parts follow in
    row-major order. The result equals the output of Gymnasium's wrapper of this name:
    `space_from_spec` decides which specs are choices, and the parts keep the order of
    the spec.

    `FlattenObservationsWrapper` leaves integers as they are.

    Example:
        >>> from envkit import BoundedArraySpec, RandomPyEnvironment
        >>> gear = BoundedArraySpec((), np.int64, -1, 1)
        >>> speed = BoundedArraySpec((2,), np.float32, 0.0, 9.0)
        >>> env = RandomPyEnvironment({"gear": gear, "speed": speed})
        >>> env = FlattenObservation(env)
        >>> env.reset().observation.shape, env.observation_spec().dtype
        ((5,), dtype('float64'))
    """

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap; its observation must consist of numbers.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._structure = nest.Structure(self._env.observation_spec())
        specs = self._structure.leaves
        numbers = self._structure.unflatten(list(range(len(specs))))
        # Keeps the spec's order; flattening a nest sorts by key.
        self._order = list(_in_order(numbers))
        self._one_hots = [_one_hot(spec) for spec in specs]
        flat = [
            spec if one_hot is None else one_hot.spec
            for spec, one_hot in zip(specs, self._one_hots, strict=True)
        ]
        for path, spec in zip(self._structure.paths, flat, strict=True):
            if spec.dtype.kind not in "biuf":
                raise ValueError(
                    "FlattenObservation joins numbers, and the observation"
                    f"{f' at {path}' if path else ''} is {spec!r:.200}. "
                    "SelectObservation leaves parts out."
                )
        if not flat:
            raise ValueError("FlattenObservation was given an observation of no parts.")
        dtype = np.result_type(*[spec.dtype for spec in flat])
        ordered = [flat[index] for index in self._order]
        self._packing = Packing(ordered, self._dims, dtype, "flat_observation")

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the vector."""
        return self._packing.spec

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = self._structure.flatten(time_step.observation)
        parts = []
        for index in self._order:
            one_hot = self._one_hots[index]
            parts.append(leaves[index] if one_hot is None else one_hot(leaves[index]))
        return time_step._replace(observation=self._packing.pack(parts))


class _OneHot:
    """One-hot encodes choices, one row's choices after another."""

    def __init__(self, spec: BoundedArraySpec) -> None:
        lows, highs = (
            np.broadcast_to(bound, spec.shape).ravel().tolist()
            for bound in (spec.minimum, spec.maximum)
        )
        counts = [high - low + 1 for low, high in zip(lows, highs, strict=True)]
        if sum(counts) > _MOST_PLACES:
            raise ValueError(
                f"FlattenObservation would need {sum(counts)} places for the choices "
                f"of {spec!r:.200}. Turn the integers into floats first, with "
                "RescaleObservation or DtypeObservation."
            )
        # For each position: the choice it belongs to, and the number it stands for.
        self._owners = np.repeat(np.arange(len(counts)), counts)
        numbers = [
            n
            for low, high in zip(lows, highs, strict=True)
            for n in range(low, high + 1)
        ]
        self._numbers = np.array(numbers, spec.dtype)
        self._dims = len(spec.shape)
        self.spec = BoundedArraySpec((sum(counts),), spec.dtype, 0, 1, spec.name)

    def __call__(self, leaf: Any) -> Array:
        choices = np.asarray(leaf)
        dims = choices.shape[: choices.ndim - self._dims]
        chosen = choices.reshape(*dims, -1)[..., self._owners]
        return np.asarray(chosen == self._numbers, self.spec.dtype)


# More would just fill memory with zeros.
_MOST_PLACES = 2**24


def _one_hot(spec: ArraySpec) -> _OneHot | None:
    # A spec made from a space knows its kind.
    kind = getattr(spec, "kind", None)
    is_bounded = isinstance(spec, BoundedArraySpec)
    is_one = is_choice(spec) if kind is None else is_bounded and "Discrete" in kind
    return _OneHot(spec) if is_one else None  # type: ignore[arg-type]  # it is one


def is_choice(spec: ArraySpec) -> bool:
    """Returns True if the numbers of a spec are choices rather than amounts.

    They are choices in a single bounded integer, and in a vector of integers whose
    dtype and bounds do not suggest pictures or flags.

    Example:
        >>> is_choice(BoundedArraySpec((3,), np.int32, 0, [1, 2, 3]))
        True
        >>> is_choice(BoundedArraySpec((84, 84), np.uint8, 0, 255))
        False
    """
    if not isinstance(spec, BoundedArraySpec) or spec.dtype.kind not in "iu":
        return False
    low, high = spec.minimum.astype(object), spec.maximum.astype(object)
    # Gymnasium counts choices in the dtype of the bounds.
    if not low.size or not np.all(high - low < int(np.iinfo(spec.dtype).max)):
        return False
    is_flags = spec.dtype == np.int8 and np.all(low == 0) and np.all(high == 1)
    is_row = len(spec.shape) == 1 and spec.shape != (0,) and spec.dtype.kind == "i"
    return spec.shape == () or (is_row and not is_flags)


def _in_order(numbers: Any) -> Iterator[int]:
    """Yields the numbers of a nest in the order in which they appear."""
    if isinstance(numbers, Mapping):
        numbers = numbers.values()
    elif not isinstance(numbers, list | tuple):
        yield numbers
        return
    for number in numbers:
        yield from _in_order(number)


class SelectObservation(PyEnvironmentBaseWrapper):
    """Selects parts of a dictionary observation, or a single part.

    Example:
        >>> from envkit.envs import TicTacToe
        >>> SelectObservation(TicTacToe(seed=1), ["mask"]).observation_spec()
        {'mask': ArraySpec(shape=(9,), dtype=bool, name='mask')}
        >>> SelectObservation(TicTacToe(seed=1), "mask").reset().observation.shape
        (9,)
    """

    _shown = ("names",)

    def __init__(
        self, env: Any, names: str | Sequence[str], handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            names: The keys of the parts to show, in this order; a string selects one
                part, which is then the whole observation.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        spec = self._env.observation_spec()
        self._one = isinstance(names, str)
        self._names = _checked_keys(
            self, "names", [names] if self._one else names, spec
        )
        self._spec = self._chosen(spec)

    @property
    def names(self) -> Any:
        """The keys of the parts that are shown."""
        return self._names[0] if self._one else [*self._names]

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of the selected parts."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        return time_step._replace(observation=self._chosen(time_step.observation))

    def _chosen(self, parts: Mapping[Any, Any]) -> NestedArray:
        if self._one:
            return parts[self._names[0]]
        return {name: parts[name] for name in self._names}


class RenameObservation(PyEnvironmentBaseWrapper):
    """Renames keys of a dictionary observation.

    Example:
        >>> from envkit.envs import TicTacToe
        >>> env = RenameObservation(TicTacToe(seed=1), {"mask": "legal_actions"})
        >>> sorted(env.reset().observation)
        ['board', 'legal_actions']
    """

    _shown = ("names",)

    def __init__(
        self, env: Any, names: Mapping[Any, Any], handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            names: The new key for each old one; other parts keep their keys.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        if not isinstance(names, Mapping):
            raise TypeError(
                "names must be a dictionary such as {'old': 'new'}, got "
                f"{describe(names)}."
            )
        spec = self._env.observation_spec()
        _checked_keys(self, "names", [*names], spec)
        self._renamed = dict(names)
        self._pairs = [(old, names.get(old, old)) for old in spec]
        self._check_collisions()
        self._spec = self._with_new_keys(spec)
        # Called only because it refuses keys that cannot be sorted.
        nest.flatten(self._spec)

    def _check_collisions(self) -> None:
        for old, new in self._renamed.items():
            others = [key for key, name in self._pairs if name == new and key != old]
            if others:
                raise ValueError(
                    f"RenameObservation cannot rename {old!r} to {new!r}: "
                    f"{others[0]!r} would have the same name."
                )

    @property
    def names(self) -> dict[Any, Any]:
        """The new key for each renamed one."""
        return dict(self._renamed)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs under their new keys."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        return time_step._replace(
            observation=self._with_new_keys(time_step.observation)
        )

    def _with_new_keys(self, parts: Mapping[Any, Any]) -> dict[Any, Any]:
        return {new: parts[old] for old, new in self._pairs}


def _checked_indices(idx: Any, size: int) -> Array:
    indices = as_array(idx)
    if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
        hint = ""
        if indices.dtype.kind == "b":
            hint = " np.flatnonzero(mask) turns a mask into indices."
        elif indices.ndim == 0 and indices.dtype.kind in "iu":
            hint = f" For one element write [{indices}]."
        raise ValueError(
            "idx must be a list of at least one index, such as [0, 2], got "
            f"{describe(idx)}.{hint}"
        )
    outside = indices[(indices >= size) | (indices < -size)]
    if outside.size:
        raise ValueError(
            f"idx has the index {outside[0]}, which is out of bounds: the observation "
            f"has {size} elements, from 0 to {size - 1}."
        )
    return indices.astype(np.intp)


def _filtered(spec: ArraySpec, indices: Array) -> ArraySpec:
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=indices.shape)
    low, high = (
        bound if bound.ndim == 0 else np.broadcast_to(bound, spec.shape)[indices]
        for bound in (spec.minimum, spec.maximum)
    )
    return BoundedArraySpec(indices.shape, spec.dtype, low, high, spec.name)


def _checked_keys(
    wrapper: PyEnvironmentBaseWrapper, argument: str, keys: Any, spec: NestedSpec
) -> list[Any]:
    """Returns distinct keys of a dictionary of specs; raises if they are wrong."""
    name = type(wrapper).__name__
    if not isinstance(spec, Mapping):
        raise ValueError(
            f"{name} takes {argument} of observations that are a dictionary, and this "
            f"one is {_kind(spec)}."
        )
    known = listed(map(repr, spec))
    # An array without dimensions claims to be iterable, but is not.
    is_list = hasattr(keys, "__iter__") and getattr(keys, "ndim", 1) > 0
    if isinstance(keys, str | bytes | Mapping) or not is_list:
        hint = " RenameObservation takes a dictionary of new keys."
        raise TypeError(
            f"{argument} must be a list of keys of the observation, which are {known}, "
            f"got {describe(keys)}."
            f"{hint if isinstance(keys, Mapping) else ''}"
        )
    chosen = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
    if not chosen:
        raise ValueError(
            f"{argument} must hold at least one key of the observation, got none. Its "
            f"keys are {known}."
        )
    # Uses a list of keys: a wrong key may not be hashable.
    unknown = [key for key in chosen if key not in list(spec)]
    if unknown:
        raise ValueError(
            f"{argument} has {'the keys' if unknown[1:] else 'the key'} "
            f"{listed(map(repr, unknown))}, which the observation does not have. Its "
            f"keys are {known}."
        )
    return list(dict.fromkeys(chosen))


def _kind(spec: NestedSpec) -> str:
    if isinstance(spec, ArraySpec):
        return f"an array of shape {spec.shape}"
    return a_or_an("dictionary" if isinstance(spec, Mapping) else type(spec).__name__)


class Packing:
    """Concatenates leaves into a vector, for each row of a batch.

    Attributes:
        spec: The vector's spec. It has bounds if every leaf has.

    Example:
        >>> leaves = [ArraySpec((2, 2), np.uint8), ArraySpec((), np.uint8)]
        >>> packing = Packing(leaves, (3,), np.uint8)
        >>> packing.spec
        ArraySpec(shape=(5,), dtype=uint8)
        >>> packing.pack([np.zeros((3, 2, 2), np.uint8), np.ones(3, np.uint8)]).shape
        (3, 5)
    """

    __slots__ = ("_shapes", "spec")

    def __init__(
        self,
        specs: Sequence[ArraySpec],
        dims: tuple[int, ...],
        dtype: npt.DTypeLike,
        name: str | None = None,
    ) -> None:
        """Prepares for leaves with the leading dimensions `dims`.

        Args:
            specs: The specs of the leaves, in order; there is at least one.
            dims: The number of rows in a tuple, or `()`.
            dtype: The vector's dtype; every leaf must fit into it.
            name: The name of the vector.
        """
        sizes = [math.prod(spec.shape) for spec in specs]
        self._shapes = [(*dims, size) for size in sizes]
        self.spec = _vector(specs, ArraySpec((sum(sizes),), dtype, name))

    def pack(self, leaves: Sequence[Any]) -> Array:
        """Returns a new array of the leaves' elements, each leaf in row-major order."""
        # Hot: called once per step.
        parts = [
            np.reshape(leaf, shape)
            for leaf, shape in zip(leaves, self._shapes, strict=True)
        ]
        return np.concatenate(parts, axis=-1, dtype=self.spec.dtype)


def _vector(specs: Sequence[ArraySpec], plain: ArraySpec) -> ArraySpec:
    """Adds bounds to a vector's spec, if they are known for all its elements."""
    if plain.dtype.kind not in "iuf":
        return plain
    lows, highs = [], []
    for spec in specs:
        bounds = known_bounds(spec)
        # An element without bounds may even be NaN, which no bounds contain.
        if bounds is None:
            return plain
        low, high = (np.broadcast_to(bound, spec.shape).ravel() for bound in bounds)
        lows.append(low.astype(plain.dtype))
        highs.append(high.astype(plain.dtype))
    return BoundedArraySpec(
        plain.shape,
        plain.dtype,
        np.concatenate(lows),
        np.concatenate(highs),
        plain.name,
    )
