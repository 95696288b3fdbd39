"""`HeldKeys`: which keys are down, where a terminal only says when they are pressed."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["HeldKeys"]


class HeldKeys:
    """Takes a key for held for a few ticks, until the terminal repeats it.

    Example:
        >>> keys = HeldKeys(ticks=2)
        >>> keys.press(["left"])
        >>> keys.tick(), keys.tick(), keys.tick()
        (('left',), ('left',), ())
    """

    def __init__(self, ticks: int) -> None:
        """Takes for how many ticks a key counts that was pressed."""
        self._ticks = ticks
        self._left: dict[str, int] = {}

    def press(self, keys: Sequence[str]) -> None:
        """Notes keys that have been pressed."""
        for key in keys:
            self._left.pop(key, None)  # It is the newest now.
            self._left[key] = self._ticks

    def tick(self) -> tuple[str, ...]:
        """Returns the keys that are down, the newest last."""
        down = tuple(self._left)
        self._left = {key: left - 1 for key, left in self._left.items() if left > 1}
        return down
