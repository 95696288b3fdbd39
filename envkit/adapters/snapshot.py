"""The state of a Gymnasium environment as a token, with wrappers and generators.

A copy of the environment would not do: most environments around C code inherit from
`gymnasium.utils.EzPickle`, and the copy of such a one is a new environment at its
beginning. What is saved is what each layer holds: the attributes of every wrapper and
of the environment within, pickled together. A layer's reference to another stays one. A
function that has no name stays where it is, and what it holds is saved; pictures are
copied.

What does not pickle, such as the memory of a C library, makes the whole impossible:
there are no states with holes. It stays the object it is, however, if the environment
offers to save and restore its state by itself:

```
get_state()          set_state(state)
clone_full_state()   restore_full_state(state)
clone_state()        restore_state(state)         with `include_rng` if it has that
```

What an environment keeps elsewhere, in NumPy's global generator for example, is not
part of the state.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import io
import pickle
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit.adapters.states.drawing import reduced_drawing
from envkit.adapters.states.local_functions import (
    bring_back,
    held_by,
    local_functions,
)

__all__ = [
    "Offer",
    "Snapshot",
    "layers_of",
    "offer_of",
    "restore_snapshot",
    "take_snapshot",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """What an environment and its wrappers hold at one moment.

    Attributes:
        layers: The classes of the wrappers, from the outside, and of the environment.
        content: Their attributes, pickled.
    """

    layers: tuple[str, ...]
    content: bytes


def take_snapshot(
    gym_env: Any,
    name: str,
    beside: Any = None,
    *,
    layers: Sequence[Any] | None = None,
    kept: Sequence[Any] = (),
) -> Snapshot:
    """Saves the state of an environment.

    Args:
        gym_env: The environment, with or without wrappers.
        name: What to call it in an error.
        beside: Something that is to be saved with it.
        layers: The objects whose attributes are its state, the environment last;
            `None` for those that `layers_of` finds.
        kept: Objects that stay what they are, however they are referred to: neither
            saved nor restored.

    Raises:
        NotImplementedError: Something that it holds does not pickle.
    """
    layers = layers_of(gym_env) if layers is None else layers
    own_state = _own_state(layers[-1])
    everything = [vars(layer) for layer in layers], beside, own_state
    for staying in _ways(layers, kept, own_state):
        # Whatever an attribute raises when it is pickled, it means the same.
        try:
            return Snapshot(_names_of(layers), staying.dumps(everything))
        except Exception as error:
            last_error = error
    raise NotImplementedError(
        f"{name} cannot save its state. A state is all that the environment and its "
        f"wrappers hold, and one of these things does not pickle: {last_error}"
    ) from last_error


def _ways(
    layers: Sequence[Any], kept: Sequence[Any], own_state: Any
) -> Iterator[_Staying]:
    """Says what may stay in place: ever more, as long as it does not pickle."""
    staying = _Staying(layers, kept)
    yield staying
    # Looked for only where there is one, because it takes a while.
    staying.add_functions()
    yield staying
    if own_state is not None:
        staying.add_what_does_not_pickle()
        yield staying


def _own_state(env: Any) -> tuple[Any] | None:
    """Asks an environment for its state, if it offers that."""
    offer = offer_of(env)
    try:
        return None if offer is None else (offer.save(),)
    except NotImplementedError:  # A base class only says that there could be one.
        return None


def restore_snapshot(
    gym_env: Any,
    name: str,
    snapshot: Snapshot,
    *,
    layers: Sequence[Any] | None = None,
    kept: Sequence[Any] = (),
) -> Any:
    """Brings back a state, and returns what was saved beside it.

    Args:
        gym_env: The environment, with or without wrappers.
        name: What to call it in an error.
        snapshot: What `take_snapshot` returned.
        layers: As for `take_snapshot`, in the same order.
        kept: As for `take_snapshot`, in the same order.

    Raises:
        ValueError: The state is one of another kind of environment.
    """
    layers = layers_of(gym_env) if layers is None else layers
    if snapshot.layers != _names_of(layers):
        raise ValueError(
            f"{name} was given the state of another environment.\n\n"
            f"  expected   {' in '.join(reversed(_names_of(layers)))}\n"
            f"  got        {' in '.join(reversed(snapshot.layers))}\n\n"
            "A state fits the same environment in the same wrappers."
        )
    staying = _Staying(layers, kept)
    try:
        held, beside, own_state = staying.loads(snapshot.content)
    except _MissingFunctionError as error:
        raise ValueError(
            f"{name} was given the state of another environment: it holds {error}, a "
            "function that there is none of in the same place here. A state fits the "
            "same environment in the same wrappers."
        ) from None
    for layer, attributes in zip(layers, held, strict=True):
        vars(layer).clear()
        vars(layer).update(attributes)
    offer = offer_of(layers[-1])
    if offer is not None and own_state is not None:
        offer.restore(*own_state)
    return beside


def layers_of(gym_env: Any) -> list[Any]:
    """Lists the wrappers from the outside, and last the environment."""
    layers = [gym_env]
    # An old environment need not be of Gym's class.
    while getattr(layers[-1], "unwrapped", layers[-1]) is not layers[-1]:
        layers.append(getattr(layers[-1], "env", layers[-1].unwrapped))
    return layers


def _names_of(layers: Sequence[Any]) -> tuple[str, ...]:
    return tuple(type(layer).__qualname__ for layer in layers)


class Offer(NamedTuple):
    """An environment's own way to save and restore its state."""

    save: Callable[[], Any]
    restore: Callable[[Any], Any]


_OFFERS = (
    ("get_state", "set_state"),
    ("clone_full_state", "restore_full_state"),
    ("clone_state", "restore_state"),
)


def offer_of(env: Any) -> Offer | None:
    """Returns the way that an environment offers to save and restore its state.

    Methods of these names that want other arguments are something else, such as the
    `set_state(qpos, qvel)` of the environments with MuJoCo.
    """
    for save_name, restore_name in _OFFERS:
        save: Any = getattr(env, save_name, None)
        restore: Any = getattr(env, restore_name, None)
        if not _can_be_called(save) or not _can_be_called(restore, object()):
            continue
        if "include_rng" in inspect.signature(save).parameters:
            return Offer(functools.partial(save, include_rng=True), restore)
        return Offer(save, restore)
    return None


def _can_be_called(method: Any, *arguments: Any) -> bool:
    try:
        inspect.signature(method).bind(*arguments)
    except (TypeError, ValueError):  # It is no function, or one that does not tell.
        return False
    return True


class _Staying:
    """The objects that stay in place: pickled as references, by what they are called.

    References are found again in the environment that is there when a state is
    restored, which may be another one than the state was saved from.
    """

    def __init__(self, layers: Sequence[Any], kept: Sequence[Any]) -> None:
        self._layers, self._kept = layers, kept
        self._inner = layers[-1]
        self._functions: dict[Any, Any] = {}
        self._objects: dict[Any, Any] = {
            **{("layer", index): layer for index, layer in enumerate(layers)},
            **{("kept", index): value for index, value in enumerate(kept)},
        }
        self._keys = {id(value): key for key, value in self._objects.items()}

    def add_functions(self) -> None:
        """Lets the functions stay that have no name."""
        for path, function in local_functions(self._layers, self._kept).items():
            key = "function", (path, _name_of(function))
            self._functions[key] = function
            self._keys[id(function)] = key

    def add_what_does_not_pickle(self) -> None:
        """Lets the attributes of the environment stay that would not pickle."""
        for name, value in vars(self._inner).items():
            try:
                self.dumps(value)
            except Exception:
                self._keys[id(value)] = ("attribute", name)

    def dumps(self, value: Any) -> bytes:
        buffer = io.BytesIO()
        held = [(function, held_by(function)) for function in self._functions.values()]
        _Pickler(buffer, self._keys).dump((value, held))
        return buffer.getvalue()

    def loads(self, content: bytes) -> Any:
        value, held = _Unpickler(io.BytesIO(content), self._find).load()
        for function, what_it_held in held:
            bring_back(function, what_it_held)
        return value

    def _find(self, key: tuple[str, Any]) -> Any:
        kind, name = key
        if kind == "attribute":
            return vars(self._inner)[name]
        if kind == "function":
            return self._find_function(key)
        return self._objects[key]

    def _find_function(self, key: tuple[str, Any]) -> Any:
        if not self._functions:
            self.add_functions()
        try:
            return self._functions[key]
        except KeyError:
            raise _MissingFunctionError(key[1][1]) from None


class _MissingFunctionError(Exception):
    """A state refers to a function, named here, that is not in its place."""


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


class _Pickler(pickle.Pickler):
    """Pickles what stays as references, and other objects by what they hold."""

    def __init__(self, file: io.BytesIO, keys: dict[int, Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._keys = keys

    def persistent_id(self, obj: Any) -> Any:
        return self._keys.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        if "_ezpickle_args" in getattr(obj, "__dict__", ()):
            return _new, (type(obj),), vars(obj), None, None, _set_vars
        if (
            isinstance(obj, np.random.Generator)
            and type(obj) is not np.random.Generator
        ):
            # That of old Gym pickles in a way which NumPy has outgrown.
            return type(obj), (obj.bit_generator,)
        if isinstance(obj, types.ModuleType):  # A function may know one.
            return importlib.import_module, (obj.__name__,)
        return reduced_drawing(obj)


class _Unpickler(pickle.Unpickler):
    """Puts what stays where references to it were."""

    def __init__(self, file: io.BytesIO, find: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._find = find

    def persistent_load(self, key: Any) -> Any:
        return self._find(key)


def _new(kind: type) -> Any:
    return object.__new__(kind)


def _set_vars(obj: Any, attributes: dict[str, Any]) -> None:
    vars(obj).update(attributes)
