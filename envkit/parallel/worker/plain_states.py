"""States as plain data, which is what a checkpoint holds instead of pickled ones.

Reading plain data runs no code of the file that it comes from. An environment's state
that holds bytes is not plain, because some environments unpickle the bytes they get.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.provenance import PlainDataError, dumped, from_plain, loaded, to_plain

__all__ = [
    "PLAIN",
    "check_plain",
    "is_plain_state",
    "plain_state",
    "read_plain_state",
]

# What a plain state begins with, and no pickle can.
PLAIN = b"plain state\n"


def is_plain_state(state: bytes) -> bool:
    """Returns whether these bytes were written by `plain_state`."""
    return state.startswith(PLAIN)


def plain_state(state: Any) -> bytes:
    """Returns an environment's state as bytes that hold plain data.

    Raises:
        PlainDataError: Something in it has no such form.

    Example:
        >>> read_plain_state(plain_state({"place": (1, 2)}))
        {'place': (1, 2)}
    """
    check_plain(state, "state", takes_bytes=False)
    return PLAIN + dumped(to_plain(state, "state")).encode()


def read_plain_state(state: bytes) -> Any:
    """Returns the state that `plain_state` wrote.

    Raises:
        PlainDataError: It holds what `plain_state` does not write.
    """
    value = from_plain(loaded(state.removeprefix(PLAIN)))
    # A file may hold anything, whatever has been written.
    check_plain(value, "state", takes_bytes=False)
    return value


def check_plain(value: Any, place: str, *, takes_bytes: bool) -> None:
    """Refuses what plain data would bring back as something else.

    Args:
        value: The value.
        place: What messages call it.
        takes_bytes: Whether there may be bytes in it.

    Raises:
        PlainDataError: Such a value was found, or the value contains itself.
    """
    try:
        _check(value, place, takes_bytes)
    except RecursionError:
        raise PlainDataError(place, value) from None


def _check(value: Any, place: str, takes_bytes: bool) -> None:
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            _check(key, f"a key of {place}", takes_bytes)
            _check(item, f"{place}[{key!r}]", takes_bytes)
    elif isinstance(value, list | tuple):
        # The parts of a named tuple have names.
        names = getattr(value, "_fields", None)
        for index, item in enumerate(value):
            part = f"[{index}]" if names is None else f".{names[index]}"
            _check(item, place + part, takes_bytes)
    elif isinstance(value, np.ndarray | np.generic):
        # A subclass, such as a masked array, would come back as a plain array.
        is_own = kind is np.ndarray or isinstance(value, np.generic)
        if not is_own or not value.dtype.itemsize:
            raise PlainDataError(place, value)
        if value.dtype.hasobject:
            _check(value.ravel().tolist(), place, takes_bytes)
    if isinstance(value, bytes) and not takes_bytes:
        raise PlainDataError(place, value)
