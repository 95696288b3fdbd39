"""The observations of a PySC2 agent: specs, and plain arrays that fit them.

PySC2 declares the shape of each observation, with 0 for a length that varies:

```
PySC2                            envkit
(27, 64, 84)                     ArraySpec of that shape
(0, 46) "feature_units"          ArraySpec of shape (512, 46), padded with 0, beside
                                 its length in "feature_units_length"; or an
                                 ObjectSpec of arrays of any length
(0,) "map_name", a string        TextSpec
(0,) "_response_observation"     ObjectSpec, the message of the game
nothing, for an agent that asks  ObjectSpec, the message of the game
for messages
(0,) "available_actions"         the same, beside "action_mask", which is true for
                                 functions that can be called
```
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from envkit.errors import SpecError
from envkit.extend import describe
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec, TextSpec
from envkit.types import Array, NestedSpec

__all__ = ["MASK", "Lengths", "Observer", "Rows", "Variable"]

Variable: TypeAlias = Literal["pad", "object"]
Lengths: TypeAlias = Mapping[str, int]
_Field: TypeAlias = Callable[[Any], dict[str, Any]]

MASK = "action_mask"
_IDS = "available_actions"
_MESSAGE = "_response_observation"
_TEXTS = frozenset(["map_name"])
_COLORED = frozenset(["rgb_minimap", "rgb_screen"])
# All other arrays are int32.
_WIDE = frozenset(["feature_units", "raw_units"])

# Default room. In the largest battles the game has more units, which raises an error
# instead of losing some silently.
_ROOM = {
    "action_result": 64,
    "alerts": 64,
    "build_queue": 16,
    "cargo": 256,
    "feature_effects": 128,
    "feature_units": 512,
    "last_actions": 64,
    "map_name": 64,
    "multi_select": 512,
    "production_queue": 16,
    "radar": 32,
    "raw_effects": 256,
    "raw_units": 1024,
    "single_select": 1,
    "unit_counts": 256,
    "upgrades": 128,
}
_ROOM_FOR_OTHERS = 256


class Observer:
    """Converts the observations that PySC2 returns to one agent.

    Example:
        >>> shapes = {"player": (11,), "cargo": (0, 7)}
        >>> observe = Observer(shapes, subject="It", path="observation")
        >>> list(observe.spec), observe.spec["cargo"].shape
        (['player', 'cargo', 'cargo_length'], (256, 7))
        >>> player = np.arange(11, dtype=np.int32)
        >>> seen = observe({"player": player, "cargo": np.ones((2, 7), np.int32)})
        >>> int(seen["cargo_length"]), int(seen["cargo"].sum())
        (2, 14)
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        subject: str,
        path: str,
        functions: int = 0,
        names: Collection[str] | None = None,
        lengths: Lengths | None = None,
        variable: Variable = "pad",
    ) -> None:
        """Reads PySC2's description of its observations.

        Args:
            shapes: The agent's part of PySC2's `observation_spec`.
            subject: The beginning of error messages.
            path: Its path in the time step, such as `observation[1]`.
            functions: The number of functions that the agent can call.
            names: The observations to include; `None` for all.
            lengths: The room for lists, if not the default.
            variable: What to do with arrays whose length varies.
        """
        self._subject = subject
        self._path = path
        self._lengths = {**_ROOM, _IDS: functions, **(lengths or {})}
        self._variable = variable
        self._fields: dict[str, _Field] = {}
        specs: dict[str, ArraySpec] = {}
        # Messages are not described.
        self.spec: NestedSpec = specs if shapes else ObjectSpec(name="observation")
        for name, shape in shapes.items():
            if names is None or name in names:
                field_specs, self._fields[name] = self._field(name, tuple(shape))
                specs.update(field_specs)
        if _IDS in shapes and functions and (names is None or MASK in names):
            specs[MASK] = ArraySpec((functions,), np.bool_, MASK)
            self._mask_size = functions
        else:
            self._mask_size = 0

    def __call__(self, theirs: Any) -> Any:
        """Converts one observation to new arrays."""
        # Hot: called once per agent and step.
        if isinstance(self.spec, ObjectSpec):
            return ObjectSpec.wrap(theirs)
        ours: dict[str, Any] = {}
        for name, read in self._fields.items():
            if name not in theirs:
                raise self._misfit(name, None, "PySC2 says in its specs that it is.")
            ours.update(read(theirs[name]))
        if self._mask_size:
            ours[MASK] = np.zeros(self._mask_size, np.bool_)
            ours[MASK][np.asarray(theirs[_IDS], np.int64)] = True
        return ours

    def _field(
        self, name: str, shape: tuple[int, ...]
    ) -> tuple[dict[str, ArraySpec], _Field]:
        if name == _MESSAGE:
            return {name: ObjectSpec(name=name)}, lambda value: {
                # PySC2 returns a function for it, so that it is not copied.
                name: ObjectSpec.wrap(value() if callable(value) else value)
            }
        if name in _TEXTS:
            return self._text(name)
        dtype = np.dtype(np.int64 if name in _WIDE else np.int32)
        if 0 not in shape:
            return self._fixed(name, shape, dtype)
        if self._variable == "object" or 0 in shape[1:]:
            return self._object(name, shape, dtype)
        return self._padded(name, shape, dtype)

    def _fixed(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> tuple[dict[str, ArraySpec], _Field]:
        spec = ArraySpec(shape, dtype, name)
        if name in _COLORED:
            spec = BoundedArraySpec(shape, dtype, 0, 255, name)

        def read(value: Any) -> dict[str, Any]:
            array = self._plain(name, value, spec)
            if array.shape != shape:
                raise self._misfit(name, value, "It has another shape.", spec)
            return {name: array.copy()}

        return {name: spec}, read

    def _padded(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> tuple[dict[str, ArraySpec], _Field]:
        room = self._lengths.get(name, _ROOM_FOR_OTHERS)
        row = shape[1:]
        spec = ArraySpec((room, *row), dtype, name)
        length_name = f"{name}_length"
        length_spec = BoundedArraySpec((), np.int32, 0, room, length_name)

        def read(value: Any) -> dict[str, Any]:
            array = self._rows(name, value, row, spec)
            length = len(array)
            if length > room:
                raise self._misfit(name, value, _too_long(name, length, room), spec)
            padded = np.zeros(spec.shape, dtype)
            padded[:length] = array
            return {name: padded, length_name: np.array(length, np.int32)}

        return {name: spec, length_name: length_spec}, read

    def _object(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> tuple[dict[str, ArraySpec], _Field]:
        spec = ObjectSpec(name=name, kind=Rows(dtype.name, len(shape)))
        row = shape[1:]
        as_rows = ArraySpec(row, dtype, name)

        def read(value: Any) -> dict[str, Any]:
            if 0 in row:
                array = self._plain(name, value, as_rows)
            else:
                array = self._rows(name, value, row, as_rows)
            return {name: ObjectSpec.wrap(array.copy())}

        return {name: spec}, read

    def _text(self, name: str) -> tuple[dict[str, ArraySpec], _Field]:
        room = self._lengths[name]
        spec = TextSpec((), f"<U{room}", name)

        def read(value: Any) -> dict[str, Any]:
            if not isinstance(value, str):
                raise self._misfit(name, value, "It is a string in PySC2.", spec)
            if len(value) > room:
                reason = _too_long(name, len(value), room)
                raise self._misfit(name, value, reason, spec)
            return {name: np.array(value, spec.dtype)}

        return {name: spec}, read

    def _rows(
        self, name: str, value: Any, row: tuple[int, ...], spec: ArraySpec
    ) -> Array:
        """Returns an array whose length varies as an array of rows."""
        array = self._plain(name, value, spec)
        # Without rows, PySC2 does not report their width.
        if not array.size:
            return np.zeros((0, *row), spec.dtype)
        if array.ndim != len(row) + 1 or array.shape[1:] != row:
            raise self._misfit(name, value, f"Rows of shape {row} are expected.", spec)
        return array

    def _plain(self, name: str, value: Any, spec: ArraySpec) -> Array:
        """Returns a value as a plain array of a spec's dtype."""
        try:
            array: Array = np.asarray(value)
        except ValueError:  # rows of different lengths
            array = np.array(None)
        if array.dtype == spec.dtype:
            return array
        if array.dtype.kind in "biuf":
            with np.errstate(invalid="ignore"):
                converted = array.astype(spec.dtype)
            if (converted == array).all():
                return converted
        reason = f"Its values are not numbers that {spec.dtype} can hold."
        raise self._misfit(name, value, reason, spec)

    def _misfit(
        self, name: str, value: Any, reason: str, spec: ArraySpec | None = None
    ) -> SpecError:
        return SpecError.does_not_fit(
            self._subject,
            path=f"{self._path}[{name!r}]",
            root="observation",
            expected="something" if spec is None else repr(spec),
            got="nothing" if value is None else describe(value),
            reason=reason,
        )


class Rows:
    """Describes PySC2's arrays of varying length.

    Example:
        >>> Rows("int32", 2).contains(np.zeros((3, 7), np.int32))
        True
    """

    __slots__ = ("_dimensions", "_dtype")

    def __init__(self, dtype: str, dimensions: int) -> None:
        """Takes the name of the dtype, and the number of dimensions."""
        self._dtype = dtype
        self._dimensions = dimensions

    def contains(self, value: Any) -> bool:
        """Returns True if a value is such an array."""
        return (
            type(value) is np.ndarray
            and value.dtype == self._dtype
            and value.ndim == self._dimensions
        )

    def sample(self, rng: Any) -> Array:
        """Returns an array without rows; only PySC2 knows what rows contain."""
        return np.zeros((0,) * self._dimensions, self._dtype)

    def __repr__(self) -> str:
        return f"Rows({self._dtype!r}, {self._dimensions})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _too_long(name: str, length: int, room: int) -> str:
    return (
        f"It has a length of {length}, and there is room for {room}. Pass "
        f"max_lengths={{{name!r}: {length}}}, or more."
    )
