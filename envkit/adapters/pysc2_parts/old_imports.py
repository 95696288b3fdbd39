"""Imports PySC2 where it does not import by itself, and leaves no trace but that.

What is in its way:

- the messages of the game's protocol were generated for another age of protobuf, see
  `old_protocol`;
- its module of colours calls `random.shuffle(colors, function)`, and Python has taken
  no such function since 3.11: that module gets a `shuffle` of its own;
- libraries that it needs warn that parts of them are going to be removed, and pygame
  greets whoever imports it: neither is heard during the import.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, MutableSequence
from typing import Any

from envkit.adapters.pysc2_parts.old_protocol import readable_protocol

__all__ = ["import_pysc2", "shuffle"]

_COLORS = "pysc2.lib.colors"
# It imports all the rest.
_ENVIRONMENT = "pysc2.env.sc2_env"
_GREETING = "PYGAME_HIDE_SUPPORT_PROMPT"

# Workers that are threads begin at the same time.
_lock = threading.RLock()


def import_pysc2() -> None:
    """Imports PySC2; if that has been done, does nothing.

    Raises:
        ImportError: It does not import in this way either.
    """
    with _lock:
        if _ENVIRONMENT in sys.modules:
            return
        with readable_protocol(), _without_greeting(), warnings.catch_warnings():
            # They are about scipy, pkg_resources and others, and for the authors.
            warnings.simplefilter("ignore")
            try:
                _mend(importlib.import_module(_COLORS))
                importlib.import_module(_ENVIRONMENT)
            except Exception as error:
                raise ImportError(
                    f"PySC2 cannot be imported: {type(error).__name__}: {error}"
                ) from error


def _mend(colors: Any) -> None:
    """Gives the module of colours a `shuffle` that takes a function."""
    colors.random = types.SimpleNamespace(shuffle=shuffle)


def shuffle(values: MutableSequence[Any], function: Callable[[], float]) -> None:
    """Shuffles as Python 3.10 does, so that the colours are those of all versions.

    Args:
        values: What to shuffle, in place.
        function: Returns numbers from 0 to 1, without 1.

    Example:
        >>> values = [0, 1, 2, 3]
        >>> shuffle(values, lambda: 0.5)
        >>> values
        [0, 3, 1, 2]
    """
    for last in range(len(values) - 1, 0, -1):
        other = int(function() * (last + 1))
        values[last], values[other] = values[other], values[last]


@contextlib.contextmanager
def _without_greeting() -> Iterator[None]:
    """Keeps pygame from printing a line, unless the user has said something else."""
    if _GREETING in os.environ:
        yield
        return
    os.environ[_GREETING] = "1"
    try:
        yield
    finally:
        del os.environ[_GREETING]
