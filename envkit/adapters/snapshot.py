"""The state of a Gymnasium environment as a token, with wrappers and generators.

A copy of the environment would not do: most environments around C code inherit from
`gymnasium.utils.EzPickle`, and the copy of such a one is a new environment at its
beginning. What is saved is what each layer holds: the attributes of every wrapper and
of the environment within, pickled together. A layer's reference to another stays one.
What does not pickle, such as the memory of a C library or a window, makes the whole
impossible: there are no states with holes. What an environment keeps elsewhere, in
NumPy's global generator for example, is not part of it.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from typing import Any

__all__ = ["Snapshot", "restore_snapshot", "take_snapshot"]


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """What an environment and its wrappers hold at one moment.

    Attributes:
        layers: The classes of the wrappers, from the outside, and of the environment.
        content: Their attributes, pickled.
    """

    layers: tuple[str, ...]
    content: bytes


def take_snapshot(gym_env: Any, name: str, beside: Any = None) -> Snapshot:
    """Saves the state of an environment.

    Args:
        gym_env: The environment, with or without wrappers.
        name: What to call it in an error.
        beside: Something that is to be saved with it.

    Raises:
        NotImplementedError: Something that it holds does not pickle.
    """
    layers = _layers_of(gym_env)
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, layers).dump(([vars(layer) for layer in layers], beside))
    # Whatever an attribute raises when it is pickled, it means the same.
    except Exception as error:
        raise NotImplementedError(
            f"{name} cannot save its state. A state is all that the environment and "
            "its wrappers hold, and one of these things does not pickle: "
            f"{error}"
        ) from error
    return Snapshot(_names_of(layers), buffer.getvalue())


def restore_snapshot(gym_env: Any, name: str, snapshot: Snapshot) -> Any:
    """Brings back a state, and returns what was saved beside it.

    Raises:
        ValueError: The state is one of another kind of environment.
    """
    layers = _layers_of(gym_env)
    if snapshot.layers != _names_of(layers):
        raise ValueError(
            f"{name} was given the state of another environment.\n\n"
            f"  expected   {' in '.join(reversed(_names_of(layers)))}\n"
            f"  got        {' in '.join(reversed(snapshot.layers))}\n\n"
            "A state fits the same environment in the same wrappers."
        )
    held, beside = _Unpickler(io.BytesIO(snapshot.content), layers).load()
    for layer, attributes in zip(layers, held, strict=True):
        vars(layer).clear()
        vars(layer).update(attributes)
    return beside


def _layers_of(gym_env: Any) -> list[Any]:
    """Lists the wrappers from the outside, and last the environment."""
    layers = [gym_env]
    while layers[-1].unwrapped is not layers[-1]:
        layers.append(layers[-1].env)
    return layers


def _names_of(layers: list[Any]) -> tuple[str, ...]:
    return tuple(type(layer).__qualname__ for layer in layers)


class _Pickler(pickle.Pickler):
    """Pickles references to layers as such, and other objects by what they hold."""

    def __init__(self, file: io.BytesIO, layers: list[Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._indices = {id(layer): index for index, layer in enumerate(layers)}

    def persistent_id(self, obj: Any) -> int | None:
        return self._indices.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        if "_ezpickle_args" in getattr(obj, "__dict__", ()):
            return _new, (type(obj),), vars(obj), None, None, _set_vars
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Puts the layers of a living environment where references to them were."""

    def __init__(self, file: io.BytesIO, layers: list[Any]) -> None:
        super().__init__(file)
        self._layers = layers

    def persistent_load(self, index: int) -> Any:
        return self._layers[index]


def _new(kind: type) -> Any:
    return object.__new__(kind)


def _set_vars(obj: Any, attributes: dict[str, Any]) -> None:
    vars(obj).update(attributes)
