"""`Promise`: the answer of environments, which is waited for when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Promise"]


class Promise:
    """The answer to a call, which is waited for when it is asked for.

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
        """Takes what waits for the answer.

        Args:
            wait: What waits for it; it is called once.
            locked: Calls what it is given when no other thread uses the pool.
            look: Waits for so many seconds at most, and returns True if the answer has
                come; without it there is no waiting for a time.
        """
        self._wait: Callable[[], Any] | None = wait
        self._locked, self._look = locked, look
        self._value: Any = None
        self._error: BaseException | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, for `timeout` seconds at most; returns True if there is an answer."""
        locked = self._locked or (lambda _, function, *given: function(*given))
        if self._wait is not None and timeout is not None and self._look is not None:
            return locked("promise", self._look, timeout)  # type: ignore[no-any-return]  # a bool
        if self._wait is not None:
            locked("promise", self.settle)
        return True

    def settle(self) -> None:
        """Waits for the answer, if that has not been done, and keeps it."""
        if self._wait is None:
            return
        try:
            self._value = self._wait()
        except Exception as error:
            # Because it is raised where the answer is asked for, and not here.
            self._error = error
        self._wait = None

    def __call__(self) -> Any:
        """Returns the answer, or raises what the environment raised."""
        if self._locked is not None and self._wait is not None:
            self._locked("promise", self.settle)
        return self.answer()

    def answer(self) -> Any:
        """Does the same for a call that holds the lock already."""
        self.settle()
        if self._error is not None:
            raise self._error
        return self._value
