"""Which episodes are recorded, by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envkit.specs.validation import describe
from envkit.wrappers.video.video_schedule import capped_cubic_video_schedule

__all__ = ["as_schedule"]


def as_schedule(when: Any) -> tuple[str, Callable[[int], bool]]:
    """Returns what a schedule is called, and what says whether an episode is due.

    Args:
        when: "always", "never", "cubic", or what is called with an episode's number.

    Example:
        >>> name, is_due = as_schedule("cubic")
        >>> [number for number in range(30) if is_due(number)]
        [0, 1, 8, 27]
    """
    if when == "always":
        return when, lambda _: True
    if when == "never":
        return when, lambda _: False
    if when == "cubic":
        return when, capped_cubic_video_schedule
    if callable(when):
        return getattr(when, "__qualname__", type(when).__qualname__), when
    raise ValueError(
        f"when is {describe(when)}; it is 'always', 'never', 'cubic' or something to "
        "call with the number of an episode."
    )
