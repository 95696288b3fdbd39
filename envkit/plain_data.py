"""Values as JSON that gives back exactly what went in: arrays, tuples, `nan`, bytes.

What JSON has is written as it is. The rest is an object with one key that begins with
a dollar sign, such as `{"$tuple": [1, 2]}`; an array is its dtype, its shape and its
bytes in base64.
"""

from __future__ import annotations

import base64
import collections
import functools
import json
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["PlainDataError", "dumped", "from_plain", "loaded", "to_plain"]

Other = Callable[[Any, str], Any]


class PlainDataError(TypeError):
    """A value cannot be written as plain data.

    Attributes:
        place: Where it is, such as `info['path'][0]`.
        value: The value.
    """

    def __init__(self, place: str, value: Any) -> None:
        super().__init__(
            f"{place} is of type {_name(type(value))}, which is no plain data."
        )
        self.place, self.value = place, value


def to_plain(value: Any, place: str = "value", other: Other | None = None) -> Any:
    """Returns what `json.dumps` writes, and `from_plain` makes the value of again.

    Args:
        value: The value.
        place: What messages call it.
        other: Is called with a value that has no such form, and its place, and returns
            what to write instead. Without it a `PlainDataError` is raised.

    Example:
        >>> to_plain({"path": (1, 2.5), "seen": [None, "a"]})
        {'path': {'$tuple': [1, 2.5]}, 'seen': [None, 'a']}
    """
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return _items(value, place, other)
    if kind is tuple:
        return {"$tuple": _items(value, place, other)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = zip(value._fields, _items(value, place, other), strict=True)
        return {"$namedtuple": {"name": _name(kind), "fields": dict(fields)}}
    if kind is dict:
        return _dict(value, place, other)
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.fields:
        if value.dtype.hasobject:
            items = _items(np.asarray(value).ravel().tolist(), place, other)
            return {"$objects": {"shape": list(value.shape), "items": items}}
        if _is_readable(value.dtype):
            tag = "$array" if isinstance(value, np.ndarray) else "$number"
            return {tag: _array(np.asarray(value))}
    if kind is bytes:
        return {"$bytes": _text(value)}
    if kind is complex:
        return {"$complex": [to_plain(value.real), to_plain(value.imag)]}
    pathlib = sys.modules.get("pathlib")  # Without it there are no paths.
    if pathlib is not None and isinstance(value, pathlib.PurePath):
        return {"$path": str(value)}
    if other is None:
        raise PlainDataError(place, value)
    return other(value, place)


def _items(values: Any, place: str, other: Other | None) -> list[Any]:
    return [
        to_plain(value, f"{place}[{index}]", other)
        for index, value in enumerate(values)
    ]


def _dict(value: dict[Any, Any], place: str, other: Other | None) -> Any:
    pairs = [
        (key, to_plain(item, f"{place}[{key!r}]", other)) for key, item in value.items()
    ]
    if all(type(key) is str and not key.startswith("$") for key in value):
        return dict(pairs)
    keys = [to_plain(key, f"a key of {place}", other) for key in value]
    return {"$dict": [[key, item] for key, (_, item) in zip(keys, pairs, strict=True)]}


def _array(array: Any) -> dict[str, Any]:
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "data": _text(array.tobytes()),
    }


def _is_readable(dtype: np.dtype[Any]) -> bool:
    """Says whether a dtype is one that its short name stands for, as NumPy's own."""
    try:
        return np.dtype(dtype.str) == dtype
    except TypeError:
        return False


def from_plain(data: Any, other: Callable[[str, Any], Any] | None = None) -> Any:
    """Returns the value that `to_plain` wrote.

    Args:
        data: What `json.loads` returned.
        other: Is called with a tag that is not known here, and what it holds.

    Example:
        >>> from_plain(to_plain({1: (np.float32(0.5), b"x")}))
        {1: (np.float32(0.5), b'x')}
    """
    if isinstance(data, list):
        return [from_plain(item, other) for item in data]
    if not isinstance(data, dict):
        return data
    tag = next(iter(data)) if len(data) == 1 else ""
    if not tag.startswith("$"):
        return {key: from_plain(item, other) for key, item in data.items()}
    read = _READERS.get(tag)
    if read is not None:
        return read(data[tag], functools.partial(from_plain, other=other))
    if other is None:
        raise ValueError(f"There is no plain data called {tag!r}.")
    return other(tag, data[tag])


def _read_array(data: Any, _: Any) -> Any:
    content = np.frombuffer(base64.b64decode(data["data"]), np.dtype(data["dtype"]))
    return content.reshape(data["shape"]).copy()


def _read_objects(data: Any, read: Callable[[Any], Any]) -> Any:
    array = np.empty(len(data["items"]), object)
    for index, item in enumerate(data["items"]):
        array[index] = read(item)
    return array.reshape(data["shape"])


def _read_namedtuple(data: Any, read: Callable[[Any], Any]) -> Any:
    """Makes one of the class of that name if it is here, else of one that is like it.

    A file is not to say what is imported.
    """
    values = {name: read(item) for name, item in data["fields"].items()}
    module, _, name = data["name"].partition(":")
    known: Any = getattr(sys.modules.get(module), name, None)
    is_one = isinstance(known, type) and issubclass(known, tuple)
    if is_one and getattr(known, "_fields", None) == tuple(values):
        return known(**values)
    short = name.rpartition(".")[-1]
    # With rename=True there are fields such as "_1", which it gives them again.
    make: Any = collections.namedtuple(short, list(values), rename=True)  # type: ignore[misc]
    return make(*values.values())


def _read_path(data: Any, _: Any) -> Any:
    import pathlib

    return pathlib.Path(data)


_READERS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "$array": _read_array,
    "$number": lambda data, _: _read_array(data, _)[()],
    "$objects": _read_objects,
    "$namedtuple": _read_namedtuple,
    "$tuple": lambda data, read: tuple(read(data)),
    "$dict": lambda data, read: {read(key): read(item) for key, item in data},
    "$float": lambda data, _: float(data),
    "$bytes": lambda data, _: base64.b64decode(data),
    "$complex": lambda data, read: complex(*read(data)),
    "$path": _read_path,
}


def dumped(data: Any) -> str:
    """Returns plain data as one line of JSON."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def loaded(line: str | bytes) -> Any:
    """Returns the plain data of a line of JSON."""
    return json.loads(line)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
