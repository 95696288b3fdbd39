"""How the end of an episode reads in Gymnasium: two flags, and at times an info.

| time step                                  | terminated | truncated |
|--------------------------------------------|------------|-----------|
| `LAST` with discount 0                     | true       | false     |
| `LAST` with a discount above 0             | false      | true      |
| `LAST` whose info has both flags           | as it says | as it says |
| any other                                  | false      | false     |

An info has both flags, `terminated` and `truncated`, where an environment can end in
both ways at once, or discounts by 0 without ending. There they are not repeated in the
info that Gymnasium gets. A discount that does not follow from the flags is in it as
`discount`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["FLAGS", "as_info", "take_flags"]

FLAGS = ("terminated", "truncated")


def as_info(info: Any) -> dict[str, Any]:
    """Returns the info of an environment as Gymnasium has it: a dictionary."""
    return dict(info) if isinstance(info, Mapping) else {"info": info}


def take_flags(info: dict[str, Any]) -> tuple[bool, bool] | None:
    """Takes the two flags out of an info, if it has both.

    Example:
        >>> info = {"terminated": np.array(True), "truncated": np.array(False), "a": 1}
        >>> take_flags(info), info
        ((True, False), {'a': 1})
        >>> take_flags({"truncated": True}) is None
        True
    """
    # Hot: called once per step.
    if "terminated" not in info or "truncated" not in info:
        return None
    if not all(_is_flag(info[name]) for name in FLAGS):
        return None
    return bool(info.pop("terminated")), bool(info.pop("truncated"))


def _is_flag(value: Any) -> bool:
    is_scalar = isinstance(value, np.ndarray) and value.shape == ()
    return isinstance(value, bool | np.bool_) or (is_scalar and value.dtype == np.bool_)
