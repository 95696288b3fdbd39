"""`Rules`: one environment as plain functions, with a record as its state."""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import keyword
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

import numpy as np

from envkit.extend import checked_size, describe, listed
from envkit.specs.arrays import ArraySpec
from envkit.types import Array, NestedSpec

__all__ = ["PlainArray", "PlainStates", "Rules"]

# numba and Python compute alike with these: numba adds smaller integers as int64.
_ARRAYS = ("int8", "int16", "int32", "int64", "float64")
_PADDING = "_padding"  # fields of rules begin with a letter
_SCALARS: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
_TAKEN = {
    "reset": ("state", "rng"),
    "step": ("state", "action", "rng"),
    "observe": ("state", "out"),
}


@dataclass(frozen=True)
class Rules:
    """Defines one environment by plain functions of scalars and small arrays.

    The functions may call one another, other plain functions, `math`, and the parts of
    NumPy that numba supports. Numbers of their module, and of enclosing functions, are
    constants.

    Attributes:
        state: The fields of the state, with their values before each `reset`: numbers,
            booleans or arrays. Rules read and write `state.name`. Integers are int64
            and other numbers float64, as in Python; arrays keep their dtype, int8 to
            int64 or float64.
        observation_spec: The spec of an observation, or a dictionary of specs.
        action_spec: The spec of an action: integers or floats, a single one or an
            array.
        reset: `reset(state, rng)` begins an episode. The state already has the values
            of `state`, so write only what differs.
        step: `step(state, action, rng)` returns the reward, whether the episode
            terminates, and whether it is truncated. The action is an int or a float, or
            an array of int64 or float64.
        observe: `observe(state, out)` writes the whole observation into `out`, an array
            of the spec's shape and dtype; for the shape `()` it has one element. For a
            dictionary of specs, `out` has an attribute for each key.
        max_episode_steps: The number of steps after which an episode is truncated.
        info: The fields of the state that `get_info` returns.

    Example:
        >>> from envkit.specs import BoundedArraySpec
        >>> def reset(state, rng):
        ...     state.place = rng.integers(0, 3)
        >>> def step(state, action, rng):
        ...     state.place += action
        ...     return 1.0, state.place >= 9, False
        >>> def observe(state, out):
        ...     out[0] = state.place
        >>> walk = Rules(
        ...     state={"place": 0},
        ...     observation_spec=BoundedArraySpec((), np.int32, 0, 20),
        ...     action_spec=BoundedArraySpec((), np.int64, 0, 2),
        ...     reset=reset,
        ...     step=step,
        ...     observe=observe,
        ... )
        >>> walk.record.names
        ('place',)
    """

    state: Mapping[str, Any]
    observation_spec: NestedSpec
    action_spec: ArraySpec
    reset: Callable[[Any, Any], None]
    step: Callable[[Any, Any, Any], tuple[float, bool, bool]]
    observe: Callable[[Any, Any], None]
    max_episode_steps: int | None = None
    info: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, taken in _TAKEN.items():
            object.__setattr__(
                self, name, _checked_rule(name, getattr(self, name), taken)
            )
        if not isinstance(self.state, Mapping) or not self.state:
            raise TypeError(
                "Rules.state must be a dictionary with a value for each field, such as "
                f'{{"place": 0}}, got {describe(self.state)}.'
            )
        for name, value in self.state.items():
            _check_field(name, value)
        object.__setattr__(self, "info", tuple(self.info))
        for name in self.info:
            if name not in self.state:
                raise ValueError(
                    f"Rules.info must name fields of the state, got {name!r}; the "
                    f"fields are {listed(map(repr, self.state))}."
                )
        if self.max_episode_steps is not None:
            checked_size("Rules.max_episode_steps", self.max_episode_steps)
        _check_specs(self.observation_spec, self.action_spec)

    @property
    def record(self) -> np.dtype[Any]:
        """The dtype of a row's state."""
        fields: list[Any] = []
        for name, value in self.state.items():
            if isinstance(value, np.ndarray):
                fields.append((name, value.dtype, value.shape))
            else:
                fields.append((name, _SCALARS[type(value)]))
        # The widest fields first, and the rest as a padding field: no byte is
        # undefined, so equal states are equal in every byte, and every number is
        # aligned.
        fields.sort(key=lambda field: -np.dtype(field[1]).itemsize)
        rest = -np.dtype(fields).itemsize % 8
        if rest:
            fields.append((_PADDING, np.int8, (rest,)))
        return np.dtype(fields)

    def states(self, rows: int) -> np.ndarray[Any, Any]:
        """Returns the rows' states before their first `reset`."""
        states = np.zeros(rows, self.record)
        for name, value in self.state.items():
            states[name] = value
        return states

    def functions(self) -> dict[str, FunctionType]:
        """Returns the three rules by their names."""
        return {name: getattr(self, name) for name in _TAKEN}

    def out_of(self) -> FunctionType:
        """Returns the function that makes the `out` of `observe` for a row."""
        spec = self.observation_spec
        if not isinstance(spec, Mapping):
            return cast("FunctionType", _first_leaf)
        names = sorted(spec)  # the order of leaves in nests
        out_class = namedtuple("Out", names)  # type: ignore[misc]
        scope: dict[str, Any] = {"Out": out_class, "__name__": __name__}
        leaves = ", ".join(f"leaves[{at}][row]" for at in range(len(names)))
        exec(f"def out_of(leaves, row):\n    return Out({leaves})", scope)
        made: FunctionType = scope["out_of"]
        return made


def _first_leaf(leaves: Any, row: int) -> Any:
    return leaves[0][row]


def _checked_rule(name: str, rule: Any, taken: tuple[str, ...]) -> FunctionType:
    rule = getattr(rule, "py_func", rule)  # if numba has compiled it already
    if not isinstance(rule, FunctionType):
        raise TypeError(
            f"Rules.{name} must be a plain function, made with def, got "
            f"{describe(rule)}."
        )
    parameters = inspect.signature(rule).parameters.values()
    plain = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    if len(parameters) != len(taken) or any(
        each.kind not in plain for each in parameters
    ):
        raise TypeError(
            f"Rules.{name} must take {listed(taken)}, in this order, got "
            f"{rule.__qualname__}{inspect.signature(rule)}."
        )
    drawing = _other_random_numbers(rule, set())
    if drawing is not None:
        raise TypeError(
            f"Rules.{name} must draw its random numbers from rng, with random(), "
            "integers(low, high), uniform(low, high), normal() or shuffle(array). "
            f"Numbers from {drawing} do not depend on the row's seed."
        )
    return rule


def _other_random_numbers(rule: FunctionType, seen: set[FunctionType]) -> str | None:
    """Returns the source of random numbers other than `rng`, if a function has one."""
    seen.add(rule)
    for name, attribute in _globals_of(rule.__code__):
        value = rule.__globals__.get(name)
        value = getattr(value, "py_func", value)
        is_module = isinstance(value, ModuleType)
        home = getattr(value, "__name__" if is_module else "__module__", None)
        if value is np and attribute == "random":
            return f"{name}.random"
        if str(home).split(".")[0] == "random" or str(home).startswith("numpy.random"):
            return name
        if isinstance(value, FunctionType) and value not in seen:
            found = _other_random_numbers(value, seen)
            if found is not None:
                return found
    return None


def _globals_of(code: CodeType) -> Iterator[tuple[str, object]]:
    """Yields the global names that code reads, each with its first attribute."""
    told = [*dis.get_instructions(code)]
    for read, then in itertools.pairwise(told):
        if read.opname == "LOAD_GLOBAL":
            yield read.argval, then.argval
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _globals_of(part)


def _check_field(name: Any, value: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(
            "Rules.state must have field names that are valid Python attributes, got "
            f"{name!r}."
        )
    if name.startswith("_"):
        raise ValueError(
            f"Rules.state must have fields that begin with a letter, got {name!r}."
        )
    if isinstance(value, np.ndarray):
        if value.dtype.name not in _ARRAYS:
            raise TypeError(
                f"Rules.state[{name!r}] must be an array of one of {listed(_ARRAYS)}, "
                f"got {describe(value)}. With these, numba computes like Python (take "
                "int8 for booleans); what observe() writes may have any dtype."
            )
        if value.ndim == 0 or value.size == 0:
            raise TypeError(
                f"Rules.state[{name!r}] must be a number, or an array with elements, "
                f"got {describe(value)}."
            )
    elif type(value) not in _SCALARS:
        raise TypeError(
            f"Rules.state[{name!r}] must be a bool, an int, a float or a NumPy array, "
            f"got {describe(value)}."
        )


def _check_specs(observation: Any, action: Any) -> None:
    leaves = observation.values() if isinstance(observation, Mapping) else [observation]
    if not leaves or not all(_is_numeric(leaf, "biuf") for leaf in leaves):
        raise TypeError(
            "Rules.observation_spec must be a spec of numbers, or a dictionary of such "
            f"specs by name, got {describe(observation)}."
        )
    if isinstance(observation, Mapping):
        for name in observation:
            is_name = isinstance(name, str) and name.isidentifier()
            if not is_name or keyword.iskeyword(name) or name.startswith("_"):
                raise ValueError(
                    "Rules.observation_spec must have keys that are valid Python "
                    f"attributes, since observe() writes out.key, got {name!r}."
                )
    if not _is_numeric(action, "iuf"):
        raise TypeError(
            "Rules.action_spec must be one spec of integers or floats, got "
            f"{describe(action)}. Several actions may be elements of one array."
        )


def _is_numeric(spec: Any, kinds: str) -> bool:
    return isinstance(spec, ArraySpec) and spec.dtype.kind in kinds


# The same state in plain Python.


class PlainArray(np.ndarray[Any, Any]):
    """Converts elements to Python numbers when they are read.

    So rules compute in 64 bits, as numba does, and an int8 does not overflow.

    Example:
        >>> board = np.full(2, 100, np.int8).view(PlainArray)
        >>> board[0] + board[1]
        200
    """

    def __getitem__(self, index: Any) -> Any:
        # Most reads are of one element, and item() is the fastest way.
        if type(index) is int and self.ndim == 1:
            return self.item(index)
        if type(index) is tuple and len(index) == self.ndim:
            try:
                return self.item(*index)
            except TypeError:  # the index has a slice
                pass
        found = super().__getitem__(index)
        return found.item() if isinstance(found, np.generic) else found

    def __iter__(self) -> Any:
        return (self[index] for index in range(len(self)))

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:
        """Converts results without dimensions, such as sums, to Python numbers."""
        return array.item() if array.ndim == 0 else array


class PlainStates:
    """Holds the rows' states for rules in plain Python.

    Its items are the states of single rows, with an attribute for each field.
    """

    def __init__(self) -> None:
        self._records: Any = None
        self._rows: list[Any] = []

    def of(self, records: Array) -> PlainStates:
        """Returns this object, with the states in this array."""
        if self._records is not records:
            row_class = _row_class(records.dtype)
            columns = {
                name: records[name].view(PlainArray)
                for name in records.dtype.names or ()
                if name != _PADDING
            }
            self._records = records
            self._rows = [row_class(columns, row) for row in range(len(records))]
        return self

    def __getitem__(self, row: int) -> Any:
        return self._rows[row]

    def __setitem__(self, row: int, state: Any) -> None:
        self._records[row] = state

    # They are views of the array beside them, so a copy makes its own.

    def __deepcopy__(self, memo: dict[int, Any]) -> PlainStates:
        return PlainStates()

    def __reduce__(self) -> Any:
        return PlainStates, ()


@functools.lru_cache(maxsize=64)
def _row_class(record: np.dtype[Any]) -> Any:
    """Returns a class with an attribute for each field of a record."""
    scope: dict[str, Any] = {"__slots__": ("_columns", "_row")}
    names = record.names or ()
    for name in names:
        scope[name] = _field_of(name, record[name])
    return type("State", (_Row,), scope)


class _Row:
    __slots__ = ("_columns", "_row")

    def __init__(self, columns: dict[str, Any], row: int) -> None:
        self._columns, self._row = columns, row

    def __repr__(self) -> str:
        fields = {name: column[self._row] for name, column in self._columns.items()}
        return "State(" + ", ".join(f"{k}={v!r}" for k, v in fields.items()) + ")"


def _field_of(name: str, dtype: np.dtype[Any]) -> property:
    def read(self: Any) -> Any:
        return self._columns[name][self._row]

    def read_number(self: Any) -> Any:
        return self._columns[name].item(self._row)

    kinds = {"b": (bool, np.bool_), "i": (int, np.integer)}.get(
        dtype.kind, (int, float, np.integer, np.floating)
    )

    def write(self: Any, value: Any) -> None:
        if dtype.subdtype is not None:
            raise TypeError(
                f"state.{name} is an array, which cannot be replaced: write its "
                f"elements, as in state.{name}[:] = ..."
            )
        if not isinstance(value, kinds):
            raise TypeError(
                f"state.{name} must be {dtype.name}, as in Rules.state, got "
                f"{describe(value)}."
            )
        self._columns[name][self._row] = value

    return property(read_number if dtype.subdtype is None else read, write)
