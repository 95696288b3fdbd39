"""Tracks the keys that count in a step: `PressedKeys`."""

from __future__ import annotations

__all__ = ["PressedKeys"]


class PressedKeys:
    """Tracks keys that are down, or were down briefly since the last tick.

    Example:
        >>> keys = PressedKeys()
        >>> keys.press("left")
        >>> keys.press("space")
        >>> keys.release("space")
        >>> keys.tick(), keys.tick()
        (['left', 'space'], ['left'])
    """

    def __init__(self, ticks: int = 0) -> None:
        """Starts with no key down.

        Args:
            ticks: How many ticks a pressed key stays down, for terminals, which report
                no release; 0 keeps it down until it is released.
        """
        self._ticks = ticks
        # The keys that are down with their remaining ticks, and all keys of this
        # tick; the newest is the last.
        self._down: dict[str, int] = {}
        self._seen: dict[str, None] = {}

    @property
    def down(self) -> tuple[str, ...]:
        """The keys that are down, the newest last."""
        return tuple(self._down)

    def press(self, key: str) -> None:
        """Presses a key; one that is already down becomes the newest."""
        self.release(key)
        self._seen.pop(key, None)
        self._down[key], self._seen[key] = self._ticks, None

    def release(self, key: str) -> None:
        """Releases a key; it still counts in the current tick."""
        self._down.pop(key, None)

    def tick(self) -> list[str]:
        """Ends a tick, and returns its keys, the newest last."""
        pressed = list(self._seen)
        if self._ticks:
            left = self._down.items()
            self._down = {key: ticks - 1 for key, ticks in left if ticks > 1}
        self._seen = dict.fromkeys(self._down)
        return pressed

    def clear(self) -> None:
        """Forgets all keys."""
        self._down.clear()
        self._seen.clear()
