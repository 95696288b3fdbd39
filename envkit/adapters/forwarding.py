"""`forwarded`: what an adapter does not have, the environment within it may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["forwarded"]


def forwarded(adapter: Any, wrapped_env: Callable[[], Any], name: str) -> Any:
    """Returns what an adapter's `__getattr__` has to: the environment's attribute.

    Args:
        adapter: Whoever was asked.
        wrapped_env: Returns the environment.
        name: The attribute; private ones are the environment's own affair.
    """
    # Besides, copy and pickle ask for some before there is an environment.
    if not name.startswith("_"):
        try:
            return getattr(wrapped_env(), name)
        except AttributeError:
            pass
    raise AttributeError(f"{type(adapter).__name__!r} object has no attribute {name!r}")
