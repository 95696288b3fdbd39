"""Functions that pickle does not find by a name: lambdas, and those within functions.

Many wrappers hold one, and it has a share in what an environment does. It stays the
object it is and where it is, as it does for `copy.deepcopy`. What it holds is part of
the state: the variables that it has from around it, its defaults and its attributes.

Functions that JAX has compiled stay, too. They hold nothing that changes.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

__all__ = ["Empty", "Held", "bring_back", "held_by", "local_functions"]

# How one comes to a function: which layer, and by which names, keys and numbers.
Path: TypeAlias = "tuple[Hashable, ...]"

_PLAIN = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic)
_NO_CONTAINERS = (type, types.ModuleType, types.BuiltinFunctionType)


class Empty:
    """Stands for a variable that has no value yet."""


class Held(NamedTuple):
    """What a function holds at one moment.

    Attributes:
        variables: The values of those that it has from the functions around it.
        defaults: Those of its positional parameters.
        keyword_defaults: Those of its others.
        attributes: What somebody has set on it.
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


def held_by(function: Any) -> Held | None:
    """Returns what a function holds; `None` for one that is compiled."""
    if not isinstance(function, types.FunctionType):
        return None
    return Held(
        tuple(_content(cell) for cell in function.__closure__ or ()),
        function.__defaults__,
        function.__kwdefaults__,
        dict(vars(function)),
    )


def bring_back(function: Any, held: Held | None) -> None:
    """Has a function hold what it held once."""
    if held is None:
        return
    cells = function.__closure__ or ()
    for cell, content in zip(cells, held.variables, strict=True):
        if content is not Empty:
            cell.cell_contents = content
        elif _content(cell) is not Empty:
            del cell.cell_contents
    function.__defaults__ = held.defaults
    function.__kwdefaults__ = held.keyword_defaults
    vars(function).clear()
    vars(function).update(held.attributes)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Empty


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
