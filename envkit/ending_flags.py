"""The two flags of an info, where a time step alone cannot say how an episode ended.

An environment that can end in both ways at once, or discounts by 0 without ending, has
`terminated` and `truncated` in its `get_info()`: both of them, and each one boolean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["FLAGS", "flags_in"]

FLAGS = ("terminated", "truncated")
_BOOLEAN = np.dtype(np.bool_)


def flags_in(info: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Returns the two flags of an info, if it has both.

    Example:
        >>> flags_in({"terminated": np.array(True), "truncated": False, "steps": 7})
        (array(True), False)
        >>> flags_in({"truncated": True}) is None
        True
    """
    # Hot: called once per step.
    if "terminated" not in info or "truncated" not in info:
        return None
    terminated, truncated = info["terminated"], info["truncated"]
    if _is_flag(terminated) and _is_flag(truncated):
        return terminated, truncated
    return None


def _is_flag(value: Any) -> bool:
    kind = type(value)
    if kind is np.ndarray:
        return value.ndim == 0 and value.dtype == _BOOLEAN  # type: ignore[no-any-return]  # a boolean
    return kind is bool or kind is np.bool_
