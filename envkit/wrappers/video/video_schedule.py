"""Which episodes are filmed: `capped_cubic_video_schedule`, and what else is given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from envkit.envs.base import checked_size
from envkit.specs.validation import describe

__all__ = ["Trigger", "capped_cubic_video_schedule", "checked_trigger", "schedule"]

Trigger = Callable[[int], bool]


def capped_cubic_video_schedule(episode_id: int) -> bool:
    """Says whether an episode is filmed unless told otherwise.

    These are 0, 1, 8, 27 and the other cubes, and from 1,000 on every thousandth.

    Example:
        >>> [number for number in range(100) if capped_cubic_video_schedule(number)]
        [0, 1, 8, 27, 64]
    """
    number = checked_size("episode_id", episode_id, least=0)
    if number >= 1000:
        return number % 1000 == 0
    return bool(round(number ** (1 / 3)) ** 3 == number)


def schedule(every: Any, episode_trigger: Any, step_trigger: Any) -> Trigger | None:
    """Returns what says which episodes are filmed; `None` for none of them.

    Example:
        >>> fifth = schedule(5, None, None)
        >>> [number for number in range(12) if fifth(number)]
        [0, 5, 10]
    """
    checked_trigger("episode_trigger", episode_trigger)
    if every is None:
        if episode_trigger is None and step_trigger is None:
            return capped_cubic_video_schedule
        return episode_trigger  # type: ignore[no-any-return]  # it has been looked at
    if episode_trigger is not None:
        raise ValueError(
            "RecordVideo was given both every and episode_trigger, which say the same "
            "thing in two ways: leave one of them out."
        )
    period = checked_size("every", every)
    # Nothing that would not pickle with the wrapper.
    return functools.partial(_is_multiple, period)


def _is_multiple(period: int, episode_id: int) -> bool:
    return episode_id % period == 0


def checked_trigger(name: str, trigger: Any) -> Trigger | None:
    """Returns a trigger, or refuses what cannot be called."""
    if trigger is None or callable(trigger):
        return trigger  # type: ignore[no-any-return]  # it has been looked at
    hint = " For every n-th episode, pass every=n." if isinstance(trigger, int) else ""
    raise TypeError(
        f"{name} is {describe(trigger)}; it must be something to call with a number, "
        f"which says whether to film.{hint}"
    )
