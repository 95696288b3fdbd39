"""Converts specs, values and settings to dm_env_rpc's tensors and back, for both ends.

Each leaf of an action or an observation has a number, from 1, and a name: its keys
joined by dots; a single array is "action" or "observation". The reward is an
observation, and so is the discount if its spec is unusual.

`TensorCodec` is the server's end: it converts an environment's values, and checks
actions. `ServedTensors` is the client's end: it interprets a server's specs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.extend import describe
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec, Strings, TextSpec
from envkit.specs.validation import check_fits
from envkit.time_step import DISCOUNT_SPEC, REWARD_SPEC, TimeStep
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "INVALID",
    "NOT_FOUND",
    "ServedTensors",
    "StatusError",
    "TensorCodec",
    "read_settings",
    "settings_of",
]

# Bytes of a request beside a step's actions: settings, names.
_LEAST_REQUEST = 1 << 16
_NUMBER, _OBJECT = 12, 1 << 20
_WIDER = {"int16": "int32", "uint16": "uint32", "float16": "float32"}
# Codes of google.rpc.
INVALID, NOT_FOUND = 3, 5


class StatusError(Exception):
    """An error of the protocol: a code of `google.rpc`, and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class _TensorLeaf(NamedTuple):
    """An array of an action or an observation on the wire.

    Attributes:
        name: Its keys, joined by dots.
        spec: Its spec.
        dtype: The dtype on the wire; `str` for text.
        default: The value of a missing action.
    """

    name: str
    spec: ArraySpec
    dtype: np.dtype[Any]
    default: Array


def _leaves(spec: NestedSpec, root: str) -> list[_TensorLeaf]:
    """Returns the leaves of a nest in order.

    Raises:
        SpecError: The protocol has no form for one of them.
    """
    structure = nest.Structure(spec)
    names = [".".join(keys) or root for keys in _keys(spec)]
    pairs = zip(names, structure.leaves, strict=True)
    return [_leaf(name, leaf, root) for name, leaf in pairs]


def _keys(spec: NestedSpec) -> Iterator[tuple[str, ...]]:
    """Yields the keys of each leaf, in the order of flattening."""
    if isinstance(spec, ArraySpec):
        yield ()
        return
    if nest.is_namedtuple(spec):
        children: Any = zip(spec._fields, spec, strict=True)
    elif isinstance(spec, Mapping):
        children = [(key, spec[key]) for key in nest.sorted_keys(spec, "")]
    elif isinstance(spec, list | tuple):
        children = [(str(index), child) for index, child in enumerate(spec)]
    else:
        raise SpecError(
            f"dm_env_rpc has no form for {describe(spec)}: specs must be in "
            "dictionaries, lists, tuples and namedtuples."
        )
    for key, child in children:
        if not isinstance(key, str) or "." in key:
            raise SpecError(
                f"dm_env_rpc has no form for the key {key!r:.80}: keys must be strings "
                "without dots, which separate the keys in a name."
            )
        for rest in _keys(child):
            yield (key, *rest)


def _leaf(name: str, spec: ArraySpec, root: str) -> _TensorLeaf:
    is_text = spec.dtype.kind == "U"
    if isinstance(spec, ObjectSpec) and isinstance(spec.kind, Strings):
        is_text = spec.kind.kind is str
    dtype = np.dtype(str if is_text else _WIDER.get(spec.dtype.name, spec.dtype))
    if not is_text and (spec.dtype.kind not in "biuf" or dtype.itemsize > 8):
        raise SpecError(
            f"dm_env_rpc has no form for {spec!r:.160}, which the {root} has as "
            f"{name!r}: arrays must be of numbers, of booleans or of text."
        )
    if root == "observation" and name in ("reward", "discount"):
        raise SpecError(
            f"dm_env_rpc reserves the name {name!r}, so an observation must have "
            "another one. Rename it."
        )
    if isinstance(spec, ObjectSpec):
        default: Array = np.full(spec.shape, "", object)
    elif isinstance(spec, BoundedArraySpec):
        default = np.broadcast_to(spec.minimum, spec.shape).astype(spec.dtype)
    else:
        default = np.zeros(spec.shape, spec.dtype)
    return _TensorLeaf(name, spec, dtype, default)


class TensorCodec:
    """Converts an environment's specs and values to dm_env_rpc's."""

    def __init__(self, spec: Any) -> None:
        from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils

        self._tensors = tensor_utils
        if not isinstance(spec.reward, ArraySpec):
            raise SpecError(
                "dm_env_rpc's reward is one array, and the environment's reward is a "
                "nest. Wrap it so that the reward is an array."
            )
        self._action = nest.Structure(spec.action)
        self._observation = nest.Structure(spec.observation)
        self._actions = dict(enumerate(_leaves(spec.action, "action"), start=1))
        observed = _leaves(spec.observation, "observation")
        observed.append(_leaf("reward", spec.reward, "reward"))
        self._has_discount = spec.discount != DISCOUNT_SPEC
        if self._has_discount:
            observed.append(_leaf("discount", spec.discount, "discount"))
        self._observed = dict(enumerate(observed, start=1))
        self.specs = dm_env_rpc_pb2.ActionObservationSpecs(
            actions=_tensor_specs(self._actions),
            observations=_tensor_specs(self._observed),
        )
        self.largest_request = _LEAST_REQUEST + sum(
            map(_size_of, self._actions.values())
        )

    def check_requested(self, numbers: Sequence[int]) -> None:
        """Refuses numbers of unknown observations."""
        for number in numbers:
            if number not in self._observed:
                known = ", ".join(map(str, self._observed))
                raise StatusError(
                    NOT_FOUND,
                    f"There is no observation {number}; there are {known}.",
                )

    def action(self, tensors: Mapping[int, Any]) -> NestedArray:
        """Returns the action in a request.

        Raises:
            StatusError: It does not fit the specs.
        """
        # Hot: called once per step.
        for number in tensors:
            if number not in self._actions:
                known = ", ".join(map(str, self._actions))
                raise StatusError(
                    NOT_FOUND, f"There is no action {number}; there are {known}."
                )
        return self._action.unflatten(
            [
                self._value(tensors[number], leaf)
                if number in tensors
                else leaf.default
                for number, leaf in self._actions.items()
            ]
        )

    def _value(self, tensor: Any, leaf: _TensorLeaf) -> Array:
        what = f"The action {leaf.name!r}"
        values = _array_of(tensor, leaf.dtype, leaf.spec.shape, what)
        return self._checked(values, leaf)

    def _checked(self, values: Array, leaf: _TensorLeaf) -> Array:
        spec = leaf.spec
        array = np.array(values, spec.dtype)
        longest = spec.dtype.itemsize // 4 if spec.dtype.kind == "U" else None
        if longest is not None and any(len(text) > longest for text in values.flat):
            raise StatusError(
                INVALID,
                f"The action {leaf.name!r} must have at most {longest} characters.",
            )
        try:
            if spec.dtype != leaf.dtype and spec.dtype.kind in "iuf":
                check_fits(values.astype(leaf.dtype), _widened(spec, leaf.dtype))
            check_fits(array, spec, subject=f"The action {leaf.name!r}")
        except SpecError as error:
            raise StatusError(INVALID, str(error)) from error
        return array

    def observations(
        self, time_step: TimeStep, numbers: Sequence[int]
    ) -> dict[int, Any]:
        """Returns the tensors of the requested observations."""
        # Hot: called once per step.
        values = [*self._observation.flatten(time_step.observation), time_step.reward]
        if self._has_discount:
            values.append(time_step.discount)
        pack = self._tensors.pack_tensor
        return {
            number: pack(values[number - 1], self._observed[number].dtype)
            for number in set(numbers)
        }


def _widened(spec: ArraySpec, dtype: np.dtype[Any]) -> ArraySpec:
    """Returns a spec with a wider dtype that allows the same values."""
    limits: Any = np.finfo if spec.dtype.kind == "f" else np.iinfo
    low, high = limits(spec.dtype).min, limits(spec.dtype).max
    if isinstance(spec, BoundedArraySpec):
        low, high = spec.minimum, spec.maximum
    return BoundedArraySpec(spec.shape, dtype, low, high)


def _array_of(
    tensor: Any, dtype: np.dtype[Any], shape: tuple[int, ...], what: str
) -> Array:
    """Returns the array of a tensor.

    Raises:
        StatusError: It has another dtype or shape.
    """
    # Hot: called once per leaf and step.
    from dm_env_rpc.v1 import tensor_utils

    payload, given = tensor.WhichOneof("payload"), tuple(tensor.shape)
    if payload is None or tensor_utils.get_tensor_type(tensor) != dtype:
        raise StatusError(
            INVALID,
            f"{what} must have the dtype {dtype.name}, got {payload or 'no values'}.",
        )
    open_sizes = sum(size < 0 for size in given)
    fits = len(given) == len(shape) and all(
        size < 0 or size == own for size, own in zip(given, shape, strict=True)
    )
    values = tensor_utils.unpack_proto(tensor) if fits else np.empty(0)
    size = math.prod(shape)
    if not fits or open_sizes > 1 or len(values) not in (1, size):
        raise StatusError(
            INVALID,
            f"{what} must have the shape {shape}, with -1 for at most one size, and "
            f"{size} values, or one for all; got the shape {given!s:.80} and "
            f"{len(getattr(tensor, payload).array)} values.",
        )
    if len(values) != size:
        values = np.broadcast_to(values, (size,))
    array: Array = values.reshape(shape)
    return array


def _size_of(leaf: _TensorLeaf) -> int:
    """Returns the maximum size of an action in bytes."""
    letters = 0
    if leaf.spec.dtype.kind == "O":
        letters = _OBJECT
    elif leaf.spec.dtype.kind == "U":
        letters = leaf.spec.dtype.itemsize
    return math.prod(leaf.spec.shape) * (_NUMBER + letters)


def _tensor_specs(leaves: Mapping[int, _TensorLeaf]) -> dict[int, Any]:
    from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_spec_utils, tensor_utils

    specs = {}
    for number, leaf in leaves.items():
        spec = dm_env_rpc_pb2.TensorSpec(
            name=leaf.name,
            shape=leaf.spec.shape,
            dtype=tensor_utils.np_type_to_data_type(leaf.dtype),
        )
        low, high = _bounds(leaf)
        if low is not None or high is not None:
            tensor_spec_utils.set_bounds(spec, low, high)
        specs[number] = spec
    return specs


def _bounds(leaf: _TensorLeaf) -> tuple[Array | None, Array | None]:
    """Returns the bounds of a leaf; `None` for a bound that the dtype implies.

    A bound is one number, or one for each element, because the protocol has no other
    form.
    """
    spec = leaf.spec
    if not isinstance(spec, BoundedArraySpec) or spec.dtype.kind not in "iuf":
        return None, None
    limits: Any = np.finfo if spec.dtype.kind == "f" else np.iinfo
    found: list[Array | None] = []
    ends = (
        (spec.minimum, limits(leaf.dtype).min),
        (spec.maximum, limits(leaf.dtype).max),
    )
    for bound, limit in ends:
        bound = np.asarray(bound, leaf.dtype)
        if (bound == limit).all():
            found.append(None)
        elif bound.size == 1:
            found.append(bound.reshape(()))
        else:
            found.append(np.broadcast_to(bound, spec.shape))
    return found[0], found[1]


class ServedTensors:
    """Converts a server's actions and observations to nests of arrays and back.

    Attributes:
        specs: The specs as the server sent them.
        requested: The numbers of all observations.
        action_spec: The specs of actions.
        observation_spec: The specs of observations.
        reward_spec: The spec of the reward, by default the usual one.
        discount_spec: The spec of the discount, by default the usual one.
    """

    def __init__(self, specs: Any, text_length: int | None = None) -> None:
        """Reads a server's specs.

        Args:
            specs: An `ActionObservationSpecs`.
            text_length: The maximum length of texts, which then become arrays of a
                fixed width. By default they are objects of any length.

        Raises:
            StatusError: The specs are malformed.
        """
        from dm_env_rpc.v1 import dm_env_flatten_utils, tensor_utils

        self._nests, self._tensors = dm_env_flatten_utils, tensor_utils
        self.specs = specs
        try:
            self._actions = _by_name(specs.actions, text_length)
            self._observations = _by_name(specs.observations, text_length)
            acted, seen = (
                {name: leaf.spec for name, (_, leaf) in part.items()}
                for part in (self._actions, self._observations)
            )
            self.reward_spec = _narrowed(seen.pop("reward", REWARD_SPEC))
            self.discount_spec = _narrowed(seen.pop("discount", DISCOUNT_SPEC))
            self._acts_by_one = set(acted) == {"action"}
            self._shows_one = set(seen) == {"observation"}
            self.action_spec = self._nested(acted, self._acts_by_one)
            self.observation_spec = self._nested(seen, self._shows_one)
        except (TypeError, ValueError) as error:
            raise StatusError(INVALID, f"its specs are malformed: {error}") from error
        self.requested = sorted(number for number, _ in self._observations.values())

    def _nested(self, values: dict[str, Any], is_one: bool) -> Any:
        if is_one:
            return next(iter(values.values()))
        return self._nests.unflatten_dict(values, ".")

    def actions(self, action: Any) -> dict[int, Any]:
        """Returns the tensors of an action that fits its spec."""
        # Hot: called once per step.
        if self._acts_by_one:
            action = {"action": action}
        tensors = {}
        for name, value in self._nests.flatten_dict(action, ".").items():
            number, leaf = self._actions[name]
            tensors[number] = self._tensors.pack_tensor(value, leaf.dtype)
        return tensors

    def values(self, tensors: Mapping[int, Any]) -> tuple[Any, Any, Any]:
        """Returns the observation, reward and discount of a time step.

        A reward or discount that the server does not send is `None`.

        Raises:
            StatusError: An observation is missing, or does not fit.
        """
        # Hot: called once per step.
        found = {}
        for name, (number, leaf) in self._observations.items():
            if number not in tensors:
                raise StatusError(NOT_FOUND, f"The observation {name!r} is missing.")
            what = f"The observation {name!r}"
            array = _array_of(tensors[number], leaf.dtype, leaf.spec.shape, what)
            is_object = leaf.spec.dtype.kind == "O"
            found[name] = array.astype(object) if is_object else array
        reward, discount = found.pop("reward", None), found.pop("discount", None)
        return self._nested(found, self._shows_one), reward, discount


def _by_name(
    specs: Mapping[int, Any], text_length: int | None
) -> dict[str, tuple[int, _TensorLeaf]]:
    """Returns numbers and leaves by name, in the order of the numbers."""
    found = {}
    for number in sorted(specs):
        spec = specs[number]
        if spec.name in found:
            raise ValueError(f"several have the name {spec.name!r:.80}")
        found[spec.name] = number, _served_leaf(spec, text_length)
    return found


def _served_leaf(sent: Any, text_length: int | None) -> _TensorLeaf:
    """Returns the leaf of a `TensorSpec`."""
    from dm_env_rpc.v1 import tensor_spec_utils, tensor_utils

    name, shape = sent.name, tuple(sent.shape)
    dtype = tensor_utils.data_type_to_np_type(sent.dtype)
    if sent.HasField("min") or sent.HasField("max"):
        bounds = tensor_spec_utils.bounds(sent)
        spec: ArraySpec = BoundedArraySpec(shape, dtype, bounds.min, bounds.max, name)
    elif dtype.kind == "U" and text_length is not None:
        spec = TextSpec(shape, f"<U{text_length}", name)
    elif dtype.kind in "UO":
        kind = Strings(str) if dtype.kind == "U" else None
        spec = ObjectSpec(shape, name=name, kind=kind)
    else:
        spec = ArraySpec(shape, dtype, name)
    return _TensorLeaf(name, spec, dtype, np.empty(0))


def _narrowed(spec: ArraySpec) -> ArraySpec:
    """Returns the spec of a reward or a discount, with float64 as float32."""
    if spec.dtype != np.float64:
        return spec
    if not isinstance(spec, BoundedArraySpec):
        return ArraySpec(spec.shape, np.float32, spec.name)
    with np.errstate(over="ignore"):  # bounds beyond float32 become infinite
        low, high = np.float32(spec.minimum), np.float32(spec.maximum)
    return BoundedArraySpec(spec.shape, np.float32, low, high, spec.name)


def settings_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings as tensors; nested ones get names with dots.

    Raises:
        ValueError: A value cannot be a tensor.
    """
    from dm_env_rpc.v1 import dm_env_flatten_utils, dm_env_rpc_pb2, tensor_utils

    flat = dm_env_flatten_utils.flatten_dict(values, ".", strict=False)
    return {
        name: value
        if isinstance(value, dm_env_rpc_pb2.Tensor)
        else tensor_utils.pack_tensor(value)
        for name, value in flat.items()
    }


def read_settings(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings as Python values: numbers, texts and lists.

    Raises:
        StatusError: A tensor has other values, or they do not fit its shape.
    """
    from dm_env_rpc.v1 import tensor_utils

    settings: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if tensor.WhichOneof("payload") in (None, "protos"):
            raise StatusError(
                INVALID, f"The setting {name[:80]!r} must be numbers or text."
            )
        values = tensor_utils.unpack_proto(tensor)
        shape = tuple(tensor.shape)
        try:
            plain = (values.reshape(shape) if shape else values[0]).tolist()
        except (ValueError, IndexError, AttributeError) as error:
            raise StatusError(
                INVALID,
                f"The setting {name[:80]!r} has {len(values)} values, which do not fit "
                f"the shape {shape!s:.80}.",
            ) from error
        settings[name] = plain
    return settings
