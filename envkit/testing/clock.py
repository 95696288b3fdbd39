"""A clock that moves only when a test moves it: `ManualClock`."""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """Stands still until a test moves it.

    Call it for the time; `sleep` moves it, so code under test does not wait.

    Example:
        >>> clock = ManualClock()
        >>> clock.sleep(1.5)
        >>> clock.advance(0.5)
        >>> clock(), clock.now()
        (2.0, 2.0)
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = float(start)

    def now(self) -> float:
        """Returns the time in seconds."""
        return self._now

    def __call__(self) -> float:
        """Returns the time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Moves the clock forward."""
        if not seconds >= 0.0:
            raise ValueError(
                f"seconds must be at least 0, got {seconds}: a clock does not go back."
            )
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        """Moves the clock forward, as if the caller had slept."""
        self.advance(max(seconds, 0.0))
