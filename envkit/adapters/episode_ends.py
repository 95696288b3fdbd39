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

from envkit.ending_flags import FLAGS, flags_in

__all__ = ["FLAGS", "as_info", "take_flags"]


def as_info(info: Any) -> dict[str, Any]:
    """Returns the info of an environment as Gymnasium has it: a dictionary."""
    # Hot: called once per step.
    if type(info) is dict or isinstance(info, Mapping):
        return dict(info)
    # Environments of the old Gym have none for a beginning.
    return {} if info is None else {"info": info}


def take_flags(info: dict[str, Any]) -> tuple[bool, bool] | None:
    """Takes the two flags out of an info, if it has both.

    Example:
        >>> import numpy as np
        >>> info = {"terminated": np.array(True), "truncated": np.array(False), "a": 1}
        >>> take_flags(info), info
        ((True, False), {'a': 1})
        >>> take_flags({"truncated": True}) is None
        True
    """
    # Hot: called once per step.
    flags = flags_in(info)
    if flags is None:
        return None
    del info["terminated"], info["truncated"]
    return bool(flags[0]), bool(flags[1])
