"""`PressedKeys`: the keys that count in a step."""

from __future__ import annotations

__all__ = ["PressedKeys"]


class PressedKeys:
    """Keeps the keys that are down, and those that were for a moment since a tick.

    Example:
        >>> keys = PressedKeys()
        >>> keys.press("left")
        >>> keys.press("space")
        >>> keys.release("space")
        >>> keys.tick(), keys.tick()
        (['left', 'space'], ['left'])
    """

    def __init__(self, ticks: int = 0) -> None:
        """Begins with no key down.

        Args:
            ticks: For how many ticks a key is down that was pressed, as a terminal
                tells of no release; 0 until it is released.
        """
        self._ticks = ticks
        # The keys that are down with the ticks that they have left, and all of this
        # tick; the newest is the last.
        self._down: dict[str, int] = {}
        self._seen: dict[str, None] = {}

    @property
    def down(self) -> tuple[str, ...]:
        """The keys that are down, the newest last."""
        return tuple(self._down)

    def press(self, key: str) -> None:
        """Has a key go down; one that is down already is the newest now."""
        self.release(key)
        self._seen.pop(key, None)
        self._down[key], self._seen[key] = self._ticks, None

    def release(self, key: str) -> None:
        """Has a key go up; it counts in this tick if it was down in it."""
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
