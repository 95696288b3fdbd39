"""Saves the state of a Gymnasium environment, wrappers and generators included.

Copying the environment is not enough: most environments around C code inherit from
`gymnasium.utils.EzPickle`, so a copy is a new environment before its first reset. A
state holds each layer's content: the attributes of every wrapper and of the environment
within, pickled together. References between layers remain references, and pygame
pictures are copied.

If something does not pickle, such as a lambda, a viewer or a C library's memory, there
is no state at all, because a state has no holes. But such an object may simply stay in
place if the environment offers to save and restore its own state:

```
get_state()          set_state(state)
clone_full_state()   restore_full_state(state)
clone_state()        restore_state(state)         with `include_rng` if supported
```

Data that an environment keeps elsewhere, such as NumPy's global generator, is not part
of the state.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Snapshot",
    "layers_of",
    "offer_of",
    "reduced_drawing",
    "restore_snapshot",
    "take_snapshot",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """Holds the content of an environment and its wrappers at one moment.

    Attributes:
        layers: The classes of the wrappers, outermost first, and of the environment.
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
    check: Callable[[Any], None] | None = None,
) -> Snapshot:
    """Saves the state of an environment.

    Args:
        gym_env: The environment, with or without wrappers.
        name: The environment's name in errors.
        beside: Something to save with it.
        layers: The objects whose attributes are the state, the environment last; `None`
            for those that `layers_of` finds.
        kept: Objects that stay in place wherever they are referenced: neither saved nor
            restored.
        check: Called with each object before it is pickled; raises for an object that a
            copy cannot replace.

    Raises:
        NotImplementedError: Something that it holds does not pickle.
    """
    layers = layers_of(gym_env) if layers is None else layers
    own_state = _own_state(layers[-1])
    staying = _Staying(layers, kept, check)
    if own_state is not None:
        staying.add_what_does_not_pickle()
    # Whatever error an attribute raises when pickled, it means the same.
    try:
        held = [vars(layer) for layer in layers]
        return Snapshot(_names_of(layers), staying.dumps((held, beside, own_state)))
    except Exception as error:
        raise NotImplementedError(
            f"{name} cannot save its state. A state has everything in the environment "
            f"and its wrappers, and something there does not pickle: {error}"
        ) from error


def _own_state(env: Any) -> tuple[Any] | None:
    """Asks an environment for its state, if it offers that."""
    offer = offer_of(env)
    try:
        return None if offer is None else (offer.save(),)
    except NotImplementedError:  # a base class only declares the method
        return None


def restore_snapshot(
    gym_env: Any,
    name: str,
    snapshot: Snapshot,
    *,
    layers: Sequence[Any] | None = None,
    kept: Sequence[Any] = (),
) -> Any:
    """Restores a state, and returns what was saved beside it.

    Args:
        gym_env: The environment, with or without wrappers.
        name: The environment's name in errors.
        snapshot: The result of `take_snapshot`.
        layers: As in `take_snapshot`, in the same order.
        kept: As in `take_snapshot`, in the same order.

    Raises:
        ValueError: The state belongs to another kind of environment.
    """
    layers = layers_of(gym_env) if layers is None else layers
    saved_layers = getattr(snapshot, "layers", (type(snapshot).__qualname__,))
    if saved_layers != _names_of(layers):
        raise ValueError(
            f"{name} was given the state of another environment.\n\n"
            f"  expected   {' in '.join(reversed(_names_of(layers)))}\n"
            f"  got        {' in '.join(reversed(saved_layers))}\n\n"
            "A state fits the same environment in the same wrappers."
        )
    held, beside, own_state = _Staying(layers, kept).loads(snapshot.content)
    for layer, attributes in zip(layers, held, strict=True):
        vars(layer).clear()
        vars(layer).update(attributes)
    offer = offer_of(layers[-1])
    if offer is not None and own_state is not None:
        offer.restore(*own_state)
    return beside


def layers_of(gym_env: Any) -> list[Any]:
    """Lists the wrappers, outermost first, and the environment last."""
    layers = [gym_env]
    # An old environment need not inherit from Gym's class.
    while getattr(layers[-1], "unwrapped", layers[-1]) is not layers[-1]:
        layers.append(getattr(layers[-1], "env", layers[-1].unwrapped))
    return layers


def _names_of(layers: Sequence[Any]) -> tuple[str, ...]:
    return tuple(type(layer).__qualname__ for layer in layers)


class _OwnState(NamedTuple):
    """Saves and restores a state with an environment's own methods."""

    save: Callable[[], Any]
    restore: Callable[[Any], Any]


_OFFERS = (
    ("get_state", "set_state"),
    ("clone_full_state", "restore_full_state"),
    ("clone_state", "restore_state"),
)


def offer_of(env: Any) -> _OwnState | None:
    """Returns an environment's own methods to save and restore its state.

    Methods with these names but other arguments mean something else, such as the MuJoCo
    environments' `set_state(qpos, qvel)`.
    """
    for save_name, restore_name in _OFFERS:
        save: Any = getattr(env, save_name, None)
        restore: Any = getattr(env, restore_name, None)
        if not _can_be_called(save) or not _can_be_called(restore, object()):
            continue
        if "include_rng" in inspect.signature(save).parameters:
            return _OwnState(functools.partial(save, include_rng=True), restore)
        return _OwnState(save, restore)
    return None


def _can_be_called(method: Any, *arguments: Any) -> bool:
    try:
        inspect.signature(method).bind(*arguments)
    except (TypeError, ValueError):  # not a function, or no signature
        return False
    return True


class _Staying:
    """Keeps the objects that stay in place: they are pickled as references, by name.

    References are resolved in the environment at hand when a state is restored, which
    may be another one than the state was saved from.
    """

    def __init__(
        self,
        layers: Sequence[Any],
        kept: Sequence[Any],
        check: Callable[[Any], None] | None = None,
    ) -> None:
        self._inner, self._check = layers[-1], check
        self._objects: dict[Any, Any] = {
            **{("layer", index): layer for index, layer in enumerate(layers)},
            **{("kept", index): value for index, value in enumerate(kept)},
        }
        self._keys = {id(value): key for key, value in self._objects.items()}

    def add_what_does_not_pickle(self) -> None:
        """Adds the environment's attributes that do not pickle."""
        for name, value in vars(self._inner).items():
            # Libraries refuse with many kinds of errors; each means the same here.
            try:
                self.dumps(value)
            except Exception:
                self._keys[id(value)] = ("attribute", name)

    def dumps(self, value: Any) -> bytes:
        buffer = io.BytesIO()
        _Pickler(buffer, self._keys, self._check).dump(value)
        return buffer.getvalue()

    def loads(self, content: bytes) -> Any:
        # Plain data may come from a file, and holds arrays but no bytes.
        if type(content) is not bytes:
            raise ValueError(
                f"A snapshot's content must be bytes, got {type(content)}."
            )
        return _Unpickler(io.BytesIO(content), self._find).load()

    def _find(self, key: tuple[str, Any]) -> Any:
        kind, name = key
        return vars(self._inner)[name] if kind == "attribute" else self._objects[key]


class _Pickler(pickle.Pickler):
    """Pickles objects that stay in place as references, and others by content."""

    def __init__(
        self,
        file: io.BytesIO,
        keys: dict[int, Any],
        check: Callable[[Any], None] | None,
    ) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._keys, self._check = keys, check

    def persistent_id(self, obj: Any) -> Any:
        return self._keys.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        if self._check is not None:
            self._check(obj)
        if "_ezpickle_args" in getattr(obj, "__dict__", ()):
            return _new, (type(obj),), vars(obj), None, None, _set_vars
        if (
            isinstance(obj, np.random.Generator)
            and type(obj) is not np.random.Generator
        ):
            # Old Gym's generator pickles in a form that current NumPy rejects.
            return type(obj), (obj.bit_generator,)
        return reduced_drawing(obj)


class _Unpickler(pickle.Unpickler):
    """Resolves references to the objects that stay in place."""

    def __init__(self, file: io.BytesIO, find: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._find = find

    def persistent_load(self, key: Any) -> Any:
        return self._find(key)


def _new(kind: type) -> Any:
    return object.__new__(kind)


def _set_vars(obj: Any, attributes: dict[str, Any]) -> None:
    vars(obj).update(attributes)


def reduced_drawing(value: Any) -> Any:
    """Returns `pickle`'s reduction of a pygame object; NotImplemented for others."""
    kind = type(value)
    if kind.__name__ == "Surface" and _is_pygames(kind):
        return _reduced_surface(value)
    if kind.__name__ == "Clock" and _is_pygames(kind):
        return kind, ()
    return NotImplemented


def _is_pygames(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "pygame"


def _reduced_surface(surface: Any) -> Any:
    import pygame

    if surface is pygame.display.get_surface():
        return _window, ()
    looks = surface.get_colorkey(), surface.get_alpha()
    if surface.get_parent() is not None:
        place = surface.get_offset(), surface.get_size()
        return _part_of_surface, (surface.get_parent(), place, *looks)
    is_indexed = surface.get_bitsize() == 8
    return _surface, (
        surface.get_size(),
        surface.get_flags() & (pygame.SRCALPHA | pygame.SRCCOLORKEY),
        surface.get_bitsize(),
        surface.get_masks(),
        surface.get_buffer().raw,
        surface.get_palette() if is_indexed else None,
        *looks,
    )


def _window() -> Any:
    pygame = sys.modules.get("pygame")
    return None if pygame is None else pygame.display.get_surface()


def _surface(
    size: tuple[int, int],
    flags: int,
    depth: int,
    masks: tuple[int, int, int, int],
    pixels: bytes,
    palette: Any,
    colorkey: Any,
    alpha: Any,
) -> Any:
    import pygame

    surface = pygame.Surface(size, flags, depth, masks)
    if palette is not None:
        surface.set_palette(palette)
    surface.get_buffer().write(pixels)
    surface.set_colorkey(colorkey)
    surface.set_alpha(alpha)
    return surface


def _part_of_surface(surface: Any, place: Any, colorkey: Any, alpha: Any) -> Any:
    part = surface.subsurface(place)
    part.set_colorkey(colorkey)
    part.set_alpha(alpha)
    return part
