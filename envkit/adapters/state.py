"""The state of a Gymnasium environment as a token, with wrappers and generators.

A copy of the environment would not do: most environments around C code inherit from
`gymnasium.utils.EzPickle`, and the copy of such a one is a new environment at its
beginning. A state is what each layer holds: the attributes of every wrapper and
of the environment within, pickled together. A layer's reference to another stays one. A
function that has no name stays where it is, and what it holds is saved; pictures are
copied.

What does not pickle, such as the memory of a C library, makes the whole impossible:
there are no states with holes. It stays the object it is, however, if the environment
offers to save and restore its own state:

```
get_state()          set_state(state)
clone_full_state()   restore_full_state(state)
clone_state()        restore_state(state)         with `include_rng` if it has that
```

What an environment keeps elsewhere, in NumPy's global generator for example, is not
part of the state.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import inspect
import io
import pickle
import sys
import types
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

__all__ = [
    "Snapshot",
    "bring_back",
    "held_by",
    "layers_of",
    "local_functions",
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
    for staying in _ways(_Staying(layers, kept, check), own_state):
        # Whatever an attribute raises when it is pickled, it means the same.
        try:
            held = [vars(layer) for layer in layers]
            content = staying.dumps((held, beside, own_state))
            return Snapshot(_names_of(layers), content)
        except Exception as error:
            last_error = error
    raise NotImplementedError(
        f"{name} cannot save its state. A state is all that the environment and its "
        f"wrappers hold, and one of these things does not pickle: {last_error}"
    ) from last_error


def _ways(staying: _Staying, own_state: Any) -> Iterator[_Staying]:
    """Yields the objects that stay in place: more each time, until the rest pickles."""
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
    saved_layers = getattr(snapshot, "layers", (type(snapshot).__qualname__,))
    if saved_layers != _names_of(layers):
        raise ValueError(
            f"{name} was given the state of another environment.\n\n"
            f"  expected   {' in '.join(reversed(_names_of(layers)))}\n"
            f"  got        {' in '.join(reversed(saved_layers))}\n\n"
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


class _Offer(NamedTuple):
    """An environment's own way to save and restore its state."""

    save: Callable[[], Any]
    restore: Callable[[Any], Any]


_OFFERS = (
    ("get_state", "set_state"),
    ("clone_full_state", "restore_full_state"),
    ("clone_state", "restore_state"),
)


def offer_of(env: Any) -> _Offer | None:
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
            return _Offer(functools.partial(save, include_rng=True), restore)
        return _Offer(save, restore)
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
        self._layers, self._kept, self._check = layers, kept, check
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
            # Libraries refuse with errors of many kinds; each means the same here.
            try:
                self.dumps(value)
            except Exception:
                self._keys[id(value)] = ("attribute", name)

    def dumps(self, value: Any) -> bytes:
        buffer = io.BytesIO()
        held = [(function, held_by(function)) for function in self._functions.values()]
        _Pickler(buffer, self._keys, self._check).dump((value, held))
        return buffer.getvalue()

    def loads(self, content: bytes) -> Any:
        # Plain data may come from a file, and holds arrays but no bytes.
        if type(content) is not bytes:
            raise ValueError(
                f"A snapshot's content must be bytes, got {type(content)}."
            )
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


# How one comes to a function: which layer, and by which names, keys and numbers.
Path: TypeAlias = "tuple[Hashable, ...]"

_PLAIN = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic)
_NO_CONTAINERS = (type, types.ModuleType, types.BuiltinFunctionType)


class _Empty:
    """Stands for a variable that has no value yet."""


class _Held(NamedTuple):
    """What a function holds at one moment.

    Attributes:
        variables: The values of those that it has from the functions around it.
        defaults: Those of its positional parameters.
        keyword_defaults: Those of its others.
        attributes: Those that were set on it.
    """

    variables: tuple[Any, ...]
    defaults: Any
    keyword_defaults: Any
    attributes: dict[str, Any]


def local_functions(layers: Sequence[Any], kept: Sequence[Any] = ()) -> dict[Path, Any]:
    """Finds the functions without a name in what environments hold.

    Args:
        layers: The environments and wrappers.
        kept: What is not looked into.

    Returns:
        The functions by their paths. Those of two environments of one make have the
        same.

    Example:
        >>> import types
        >>> layer = types.SimpleNamespace(double=lambda x: 2 * x, known=sorted)
        >>> [path for path in local_functions([layer])]
        [(0, '.double')]
    """
    found: dict[Path, Any] = {}
    seen = {id(one) for one in (*layers, *kept)}
    pending: list[tuple[Path, Any]] = [
        ((index, step), value)
        for index, layer in enumerate(layers)
        for step, value in _attributes(layer)
    ]
    while pending:
        path, value = pending.pop()
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        is_function = isinstance(value, types.FunctionType)
        if is_function and _has_a_name(value):
            continue
        if is_function or _is_compiled(value):
            found[path] = value
        pending += [((*path, step), part) for step, part in _parts(value)]
    return found


def held_by(function: Any) -> _Held | None:
    """Returns what a function holds; `None` for one that is compiled."""
    if not isinstance(function, types.FunctionType):
        return None
    return _Held(
        tuple(_content(cell) for cell in function.__closure__ or ()),
        function.__defaults__,
        function.__kwdefaults__,
        dict(vars(function)),
    )


def bring_back(function: Any, held: _Held | None) -> None:
    """Has a function hold what it held once."""
    if held is None:
        return
    cells = function.__closure__ or ()
    for cell, content in zip(cells, held.variables, strict=True):
        if content is not _Empty:
            cell.cell_contents = content
        elif _content(cell) is not _Empty:
            del cell.cell_contents
    function.__defaults__ = held.defaults
    function.__kwdefaults__ = held.keyword_defaults
    vars(function).clear()
    vars(function).update(held.attributes)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _Empty


def _has_a_name(function: Any) -> bool:
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _is_compiled(value: Any) -> bool:
    kind = type(value)
    return kind.__name__ == "PjitFunction" and kind.__module__.startswith("jaxlib")


def _parts(value: Any) -> Iterator[tuple[Hashable, Any]]:
    """Lists what something holds, and how one comes to it."""
    if isinstance(value, _NO_CONTAINERS) or _is_compiled(value):
        return
    if isinstance(value, types.FunctionType):
        for index, cell in enumerate(value.__closure__ or ()):
            yield f"variable {index}", _content(cell)
        yield "defaults", value.__defaults__
        yield "keyword defaults", value.__kwdefaults__
    elif isinstance(value, types.MethodType):
        yield "self", value.__self__
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args))
        yield "keywords", value.keywords
    elif isinstance(value, dict):
        # A key that is an object of its own is another one in another environment.
        yield from ((key, one) for key, one in value.items() if _is_plain(key))
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[Hashable, Any]]:
    held = getattr(value, "__dict__", {})
    return ((f".{name}", one) for name, one in held.items())


def _is_plain(key: Any) -> bool:
    if isinstance(key, tuple):
        return all(map(_is_plain, key))
    return isinstance(key, _PLAIN)


# What `pickle` takes for a description of an object; NotImplemented for its own way.
_Reduced = Any
_CAMERA = (
    "type",
    "fixedcamid",
    "trackbodyid",
    "lookat",
    "distance",
    "azimuth",
    "elevation",
)


def reduced_drawing(value: Any) -> _Reduced:
    """Returns how `pickle` reduces an object that draws; NotImplemented for others."""
    kind = type(value)
    if kind.__name__ == "MujocoRenderer":
        return _without_viewers(value)
    if kind.__name__ == "Surface" and _is_pygames(kind):
        return _reduced_surface(value)
    if kind.__name__ == "Clock" and _is_pygames(kind):
        return kind, ()
    return NotImplemented


def _is_pygames(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "pygame"


def _without_viewers(renderer: Any) -> _Reduced:
    attributes = {**vars(renderer), "_viewers": {}, "viewer": None}
    if renderer.viewer is not None:
        # A viewer chooses its place by where things are when it is made.
        camera = renderer.viewer.cam
        attributes["default_cam_config"] = {
            name: copy.copy(getattr(camera, name)) for name in _CAMERA
        }
    return object.__new__, (type(renderer),), attributes


def _reduced_surface(surface: Any) -> _Reduced:
    import pygame

    if surface is pygame.display.get_surface():
        return _window, ()
    if surface.get_parent() is not None:
        # It shares the memory of another, which copies would not.
        return NotImplemented
    is_indexed = surface.get_bitsize() == 8
    return _surface, (
        surface.get_size(),
        surface.get_flags() & (pygame.SRCALPHA | pygame.SRCCOLORKEY),
        surface.get_bitsize(),
        surface.get_masks(),
        surface.get_buffer().raw,
        surface.get_colorkey(),
        surface.get_alpha(),
        surface.get_palette() if is_indexed else None,
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
    colorkey: Any,
    alpha: Any,
    palette: Any,
) -> Any:
    import pygame

    surface = pygame.Surface(size, flags, depth, masks)
    if palette is not None:
        surface.set_palette(palette)
    surface.get_buffer().write(pixels)
    surface.set_colorkey(colorkey)
    surface.set_alpha(alpha)
    return surface
