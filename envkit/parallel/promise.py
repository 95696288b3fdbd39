"""`Promise`: an answer of environments, awaited when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Promise"]


class Promise:
    """The answer to a call; calling the promise waits for it.

    Example:
        >>> promise = Promise(lambda: 42)
        >>> promise()
        42
    """

    def __init__(
        self,
        wait: Callable[[], Any],
        locked: Callable[..., Any] | None = None,
        look: Callable[[float], bool] | None = None,
    ) -> None:
        """Takes the function that waits for the answer.

        Args:
            wait: Waits for the answer; it is called once.
            locked: Calls a function while no other thread uses the pool.
            look: Waits for at most a number of seconds, and returns True if the answer
                has come. Without it, `wait` cannot take a timeout.
        """
        self._wait: Callable[[], Any] | None = wait
        self._locked, self._look = locked, look
        self._value: Any = None
        self._error: BaseException | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for at most `timeout` seconds; returns True if the answer has come."""
        locked = self._locked or (lambda _, function, *given: function(*given))
        if self._wait is not None and timeout is not None and self._look is not None:
            return locked("promise", self._look, timeout)  # type: ignore[no-any-return]  # a bool
        if self._wait is not None:
            locked("promise", self.settle)
        return True

    def settle(self) -> None:
        """Waits for the answer unless it is here already, and keeps it."""
        if self._wait is None:
            return
        try:
            self._value = self._wait()
        except Exception as error:
            # It is raised to the caller of the promise, not here.
            self._error = error
        self._wait = None

    def __call__(self) -> Any:
        """Returns the answer, or raises the environment's exception."""
        if self._locked is not None and self._wait is not None:
            self._locked("promise", self.settle)
        return self.answer()

    def answer(self) -> Any:
        """Does the same as calling it, for callers that already hold the lock."""
        self.settle()
        if self._error is not None:
            raise self._error
        return self._value
