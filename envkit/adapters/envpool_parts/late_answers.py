"""`LateAnswers`: waits for a call that cannot be told how long it may take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from envkit.interruptible import wait_for_end

__all__ = ["LateAnswers"]


class LateAnswers:
    """Calls something that waits, in a thread of its own where there is a deadline.

    What comes after the deadline is kept for the next call.

    Example:
        >>> answers = LateAnswers(lambda: "ready")
        >>> answers.get(None), answers.get(60.0)
        (('ready',), ('ready',))
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        """Prepares to call."""
        self._call = call
        self._thread: threading.Thread | None = None
        self._results: list[Any] = []
        self._is_waiting = False

    @property
    def was_interrupted(self) -> bool:
        """Whether Ctrl-C came while an answer came, which is lost then."""
        return self._is_waiting

    @property
    def is_idle(self) -> bool:
        """Whether the next answer is simply waited for."""
        return self._thread is None and not self._is_waiting

    def get(self, timeout: float | None) -> tuple[Any] | None:
        """Returns the next answer, in a tuple, or `None` if it does not come in time.

        Args:
            timeout: Seconds to wait; `None` for ever.
        """
        if timeout is None and self._thread is None:
            return (self.get_now(),)
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer, daemon=True)
            self._thread.start()
        self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        self._thread = None
        result = self._results.pop()
        if isinstance(result, BaseException):
            raise result
        return (result,)

    def get_now(self) -> Any:
        """Returns the next answer, where no call is out, however long it takes."""
        # Hot: called once per batch of any size.
        self._is_waiting = True
        result = self._call()
        self._is_waiting = False
        return result

    def _answer(self) -> None:
        try:
            self._results.append(self._call())
        # Whatever it is, it belongs to whoever waits.
        except BaseException as error:
            self._results.append(error)

    def close(self) -> None:
        """Waits until no call is out any more."""
        if self._thread is not None:
            wait_for_end(self._thread)
            self._thread = None
