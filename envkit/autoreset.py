"""`AutoReset`: when the episode after a `LAST` begins."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["AutoReset"]


class AutoReset(enum.Enum):
    """In which order a batch returns the end of one episode and the next beginning.

    | | `step` returns for a row that ended | the next `step` of it | right after the end, `current_time_step()` |
    |---|---|---|---|
    | `NEXT_STEP` | `LAST` | returns `FIRST`, its action ignored | that `LAST` |
    | `SAME_STEP` | `LAST` | is the first step of the new episode | the new episode's `FIRST` |
    | `DISABLED` | `LAST` | an error, until `reset(mask)` | that `LAST` |

    Under every order `step` says what happened and `current_time_step()` says where
    the environments stand; the transitions are the same.
    """  # noqa: E501  # a table

    NEXT_STEP = "next_step"
    SAME_STEP = "same_step"
    DISABLED = "disabled"

    @classmethod
    def of(cls, value: AutoReset | str) -> AutoReset:
        """Returns the member a value stands for: itself, or its name.

        Example:
            >>> AutoReset.of("same_step") is AutoReset.SAME_STEP
            True
        """
        if isinstance(value, cls):
            return value
        names = [member.value for member in cls]
        if isinstance(value, str) and value.lower() in names:
            return cls(value.lower())
        raise ValueError(
            f"autoreset is {value!r:.80}; it must be one of "
            f"{', '.join(f'AutoReset.{member.name}' for member in cls)}."
        )

    @classmethod
    def kept_by(cls, env: Any) -> AutoReset:
        """Returns the order that an environment keeps, whatever kind it is of.

        Example:
            >>> AutoReset.kept_by(object()) is AutoReset.NEXT_STEP
            True
        """
        value = getattr(getattr(env, "autoreset", None), "value", None)
        return next((order for order in cls if order.value == value), cls.NEXT_STEP)
