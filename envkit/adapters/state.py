"""The state of a Gymnasium environment as a token, with wrappers and generators.

A copy of the environment would not do: most environments around C code inherit from
`gymnasium.utils.EzPickle`, and the copy of such a one is a new environment at its
beginning. A state is what each layer holds: the attributes of every wrapper and
of the environment within, pickled together. A layer's reference to another stays one,
and pictures of pygame are copied.

What does not pickle, such as a lambda, a viewer or the memory of a C library, makes the
whole impossible: there are no states with holes. It stays the object it is, however, if
the environment offers to save and restore its own state:

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
    check: Callable[[Any], None] | None = None,
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
        check: Called with each object before it is pickled; it raises for one that a
            copy cannot stand for.

    Raises:
        NotImplementedError: Something that it holds does not pickle.
    """
    layers = layers_of(gym_env) if layers is None else layers
    own_state = _own_state(layers[-1])
    staying = _Staying(layers, kept, check)
    if own_state is not None:
        staying.add_what_does_not_pickle()
    # Whatever an attribute raises when it is pickled, it means the same.
    try:
        held = [vars(layer) for layer in layers]
        return Snapshot(_names_of(layers), staying.dumps((held, beside, own_state)))
    except Exception as error:
        raise NotImplementedError(
            f"{name} cannot save its state. A state is all that the environment and "
            f"its wrappers hold, and one of these things does not pickle: {error}"
        ) from error


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
    """Lists the wrappers from the outside, and last the environment."""
    layers = [gym_env]
    # An old environment need not be of Gym's class.
    while getattr(layers[-1], "unwrapped", layers[-1]) is not layers[-1]:
        layers.append(getattr(layers[-1], "env", layers[-1].unwrapped))
    return layers


def _names_of(layers: Sequence[Any]) -> tuple[str, ...]:
    return tuple(type(layer).__qualname__ for layer in layers)


class _OwnState(NamedTuple):
    """An environment's own way to save and restore its state."""

    save: Callable[[], Any]
    restore: Callable[[Any], Any]


_OFFERS = (
    ("get_state", "set_state"),
    ("clone_full_state", "restore_full_state"),
    ("clone_state", "restore_state"),
)


def offer_of(env: Any) -> _OwnState | None:
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
            return _OwnState(functools.partial(save, include_rng=True), restore)
        return _OwnState(save, restore)
    return None


def _can_be_called(method: Any, *arguments: Any) -> bool:
    try:
        inspect.signature(method).bind(*arguments)
    except (TypeError, ValueError):  # It is not a function, or does not tell.
        return False
    return True


class _Staying:
    """The objects that stay in place: pickled as references, by what they are called.

    References are found again in the environment that is there when a state is
    restored, which may be another one than the state was saved from.
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
        """Lets the attributes of the environment stay that would not pickle."""
        for name, value in vars(self._inner).items():
            # Libraries refuse with errors of many kinds; each means the same here.
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
    """Pickles what stays as references, and other objects by what they hold."""

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
            # That of old Gym pickles in a way which NumPy has outgrown.
            return type(obj), (obj.bit_generator,)
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


def reduced_drawing(value: Any) -> Any:
    """Returns how `pickle` reduces an object of pygame; NotImplemented for others."""
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
