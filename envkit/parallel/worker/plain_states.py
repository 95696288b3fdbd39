"""Writes states as plain data, for checkpoints without pickle.

Reading plain data runs no code from the file. An environment's state that contains
bytes is not plain, because some environments unpickle the bytes they get.
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

# The beginning of a plain state, with which no pickle can begin.
PLAIN = b"plain state\n"


def is_plain_state(state: bytes) -> bool:
    """Returns True if these bytes come from `plain_state`."""
    return state.startswith(PLAIN)


def plain_state(state: Any) -> bytes:
    """Returns an environment's state as bytes of plain data.

    Raises:
        PlainDataError: Part of it has no such form.

    Example:
        >>> read_plain_state(plain_state({"place": (1, 2)}))
        {'place': (1, 2)}
    """
    check_plain(state, "state", takes_bytes=False)
    return PLAIN + dumped(to_plain(state, "state")).encode()


def read_plain_state(state: bytes) -> Any:
    """Returns the state from the bytes of `plain_state`.

    Raises:
        PlainDataError: It contains something that `plain_state` does not write.
    """
    value = from_plain(loaded(state.removeprefix(PLAIN)))
    # The file may contain anything, whatever envkit has written.
    check_plain(value, "state", takes_bytes=False)
    return value


def check_plain(value: Any, place: str, *, takes_bytes: bool) -> None:
    """Raises if plain data would restore a value as something different.

    Args:
        value: The value.
        place: Its name in messages.
        takes_bytes: Whether it may contain bytes.

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
        # A named tuple would lose its names.
        names = getattr(value, "_fields", None)
        for index, item in enumerate(value):
            part = f"[{index}]" if names is None else f".{names[index]}"
            _check(item, place + part, takes_bytes)
    elif isinstance(value, np.ndarray | np.generic):
        # A subclass, such as a masked array, would be restored as a plain array.
        is_own = kind is np.ndarray or isinstance(value, np.generic)
        if not is_own or not value.dtype.itemsize:
            raise PlainDataError(place, value)
        if value.dtype.hasobject:
            _check(value.ravel().tolist(), place, takes_bytes)
    if isinstance(value, bytes) and not takes_bytes:
        raise PlainDataError(place, value)
