"""`PendingCall`: something that goes on in a thread while nobody waits for it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from envkit.interruptible import wait_for_end

__all__ = ["PendingCall", "timeout_error"]


class PendingCall:
    """Calls a function in a thread of its own, and keeps what comes of it.

    Example:
        >>> call = PendingCall("step", lambda: 7)
        >>> call.wait(timeout=60.0), call.result()
        (True, 7)
    """

    def __init__(self, kind: str, function: Callable[[], Any]) -> None:
        """Starts the call.

        Args:
            kind: What it is called: "step", "reset" or "call".
            function: What to call.
        """
        self.kind = kind
        # Whether somebody has waited in vain.
        self.is_late = False
        self._outcome: Callable[[], Any] = _nothing
        self._thread = threading.Thread(
            target=self._run, args=(function,), name=f"envkit-{kind}", daemon=True
        )
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, and says whether it is over."""
        if timeout is None:
            wait_for_end(self._thread)
        else:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def result(self) -> Any:
        """Returns what the function returned, or raises what it raised."""
        return self._outcome()

    def _run(self, function: Callable[[], Any]) -> None:
        try:
            result = function()
        # It is raised where it is waited for.
        except BaseException as error:
            self._outcome = functools.partial(_raise, error)
        else:
            self._outcome = lambda: result


def _nothing() -> None:
    """Stands for an outcome that is not there yet."""


def _raise(error: BaseException) -> None:
    raise error


@functools.cache
def timeout_error() -> type[Exception]:
    """Returns the class of the error after a wait in vain.

    It is Gymnasium's, `multiprocessing.TimeoutError`, and Python's own as well.
    """
    import multiprocessing

    return type("StepTimeout", (multiprocessing.TimeoutError, TimeoutError), {})
