"""Removed names: calling one raises a sentence with the replacement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["removed_name"]


def removed_name(name: str, instead: str) -> Callable[..., NoReturn]:
    """Returns a function to keep under a removed name for one version.

    Args:
        name: The removed name.
        instead: The rest of the sentence: the replacement.

    Example:
        >>> removed_name("AsyncPool", "Pool('Pong-v5', 64) steps all rows")()
        Traceback (most recent call last):
        TypeError: AsyncPool has been removed: Pool('Pong-v5', 64) steps all rows.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{name} has been removed: {instead}.")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse
