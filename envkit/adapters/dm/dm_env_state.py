"""The state of an environment of dm_env as a token: all that its parts hold.

The environment, those that it wraps, and their tasks stay the objects they are; saved
are their attributes, pickled together, and a MuJoCo physics in its own way. A copy
would not do: a wrapper that looks for every attribute in the environment within cannot
be copied, for it does so before it has one.

A lambda stays where it is, too, if all that it knows from outside are such objects and
constants.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from envkit.adapters.dm.dm_env_parts import parts_of, physics_of
from envkit.adapters.dm.mujoco_state import restore_physics, save_physics, size_of

__all__ = ["DmEnvState", "restore_state", "save_state"]


_CONSTANTS = (bool, int, float, complex, str, bytes, np.generic, types.NoneType)


@dataclasses.dataclass(frozen=True, slots=True)
class DmEnvState:
    """What an environment holds at one moment.

    Attributes:
        parts: The classes of its parts, from the outside.
        content: What they hold, pickled.
    """

    parts: tuple[str, ...]
    content: bytes


def save_state(env: Any, name: str, beside: Any = None) -> DmEnvState:
    """Saves the state of an environment.

    Args:
        env: The environment.
        name: What to call it in an error.
        beside: Something that is to be saved with it.

    Raises:
        NotImplementedError: Something that it holds does not pickle.
    """
    parts = parts_of(env)
    physics = physics_of(parts)
    buffer = io.BytesIO()
    try:
        held = [vars(part) for part in parts]
        states = [save_physics(one) for one in physics]
        _Pickler(buffer, parts, physics).dump((held, states, beside))
    # Whatever an attribute raises when it is pickled, it means the same.
    except Exception as error:
        raise NotImplementedError(
            f"{name} cannot save its state. A state is all that the environment and "
            f"its task hold, and one of these things does not pickle: {error}"
        ) from error
    return DmEnvState(_names_of(parts), buffer.getvalue())


def restore_state(env: Any, name: str, state: Any) -> Any:
    """Brings back a state, and returns what was saved beside it.

    Raises:
        ValueError: The state is one of another kind of environment.
    """
    parts = parts_of(env)
    physics = physics_of(parts)
    names = _names_of(parts)
    theirs = getattr(state, "parts", (type(state).__qualname__,))
    if theirs != names:
        raise _another(name, " around ".join(names), " around ".join(theirs))
    unpickler = _Unpickler(io.BytesIO(state.content), parts, physics)
    held, states, beside = unpickler.load()
    for one, saved in zip(physics, states, strict=True):
        if saved.size != size_of(one):
            raise _another(name, size_of(one), saved.size)
    for part, attributes in zip(parts, held, strict=True):
        vars(part).clear()
        vars(part).update(attributes)
    for one, saved in zip(physics, states, strict=True):
        restore_physics(one, saved)
    return beside


def _another(name: str, expected: str, got: str) -> ValueError:
    return ValueError(
        f"{name} was given the state of another environment.\n\n"
        f"  expected   {expected}\n"
        f"  got        {got}\n\n"
        "A state fits the same environment in the same wrappers."
    )


def _names_of(parts: list[Any]) -> tuple[str, ...]:
    return tuple(type(part).__qualname__ for part in parts)


class _Pickler(pickle.Pickler):
    """Pickles references to what stays where it is as such."""

    def __init__(self, file: io.BytesIO, parts: list[Any], physics: list[Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._simulates = bool(physics)
        self._places: dict[int, int | tuple[int, str]] = {
            id(kept): index for index, kept in enumerate([*parts, *physics])
        }
        objects = frozenset(self._places)
        for index, part in enumerate(parts):
            for name, value in vars(part).items():
                if _is_lambda(value) and _has_no_state(value, objects):
                    self._places[id(value)] = index, name

    def persistent_id(self, obj: Any) -> int | tuple[int, str] | None:
        return self._places.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        if self._simulates and isinstance(obj, np.ndarray) and _is_a_look(obj):
            raise pickle.PicklingError(
                "an array that shows the memory of MuJoCo; a copy would no longer."
            )
        return NotImplemented


def _is_lambda(value: Any) -> bool:
    """Says whether this is a function that nobody finds by its name."""
    return isinstance(value, types.FunctionType) and "<" in value.__qualname__


def _has_no_state(function: Any, objects: frozenset[int]) -> bool:
    """Says whether a function knows nothing but constants and some objects."""
    return all(
        id(value) in objects or isinstance(value, _CONSTANTS)
        for value in _known_to(function)
    )


def _known_to(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        yield cell.cell_contents
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from vars(function).values()


def _is_a_look(array: Any) -> bool:
    """Says whether an array shows memory of a library that is not NumPy's."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return not isinstance(array, np.ndarray | bytes | bytearray | memoryview)


class _Unpickler(pickle.Unpickler):
    """Puts what has stayed where it is where references to it were."""

    def __init__(self, file: io.BytesIO, parts: list[Any], physics: list[Any]) -> None:
        super().__init__(file)
        self._kept = [*parts, *physics]

    def persistent_load(self, place: int | tuple[int, str]) -> Any:
        if isinstance(place, int):
            return self._kept[place]
        index, name = place
        return vars(self._kept[index])[name]
