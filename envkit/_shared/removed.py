"""Names that have gone: calling one raises a sentence with the call to write now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["removed_name"]


def removed_name(name: str, instead: str) -> Callable[..., NoReturn]:
    """Returns what stands under a removed name for one version.

    Args:
        name: The name, as it was called.
        instead: The rest of the sentence: what to call instead.

    Example:
        >>> removed_name("AsyncPool", "Pool('Pong-v5', 64) steps all rows")()
        Traceback (most recent call last):
        TypeError: AsyncPool has been removed: Pool('Pong-v5', 64) steps all rows.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{name} has been removed: {instead}.")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse
