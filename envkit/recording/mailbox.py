"""`Mailbox`: what one thread hands to another, and how much of it may lie there."""

from __future__ import annotations

import collections
import threading
from typing import Any

from envkit.interruptible import wait_a_while

__all__ = ["Mailbox"]


class Mailbox:
    """A queue that holds so many bytes, and passes on that nobody empties it any more.

    Example:
        >>> box = Mailbox(most=10)
        >>> box.put("a", 6), box.put("b", 6, wait=False)
        (True, False)
        >>> box.take()
        'a'
    """

    def __init__(self, most: int) -> None:
        """Takes the number of bytes."""
        self._most = most
        self._letters: collections.deque[tuple[Any, int]] = collections.deque()
        self._used = 0
        self._changed = threading.Condition()
        self._failure: Exception | None = None

    def put(self, letter: Any, size: int = 0, *, wait: bool = True) -> bool:
        """Leaves a letter, if need be when there is room; says whether it did.

        One that is larger than the box goes in when that is empty.
        """
        with self._changed:
            while (
                size
                and self._used
                and self._used + size > self._most
                and self._failure is None
            ):
                if not wait:
                    return False
                wait_a_while(self._changed)
            self.check()
            self._letters.append((letter, size))
            self._used += size
            self._changed.notify_all()
            return True

    def take(self) -> Any:
        """Waits for a letter and takes the oldest."""
        with self._changed:
            while not self._letters:
                self._changed.wait()
            letter, size = self._letters.popleft()
            self._used -= size
            self._changed.notify_all()
            return letter

    def fail(self, failure: Exception) -> list[Any]:
        """Lets whoever leaves a letter from now on know that nobody reads it.

        Returns:
            The letters that were not read.
        """
        with self._changed:
            self._failure = failure
            unread = [letter for letter, _ in self._letters]
            self._letters.clear()
            self._used = 0
            self._changed.notify_all()
            return unread

    def check(self) -> None:
        """Raises what `fail` was told."""
        failure = self._failure
        if failure is not None:
            # A new one each time, for the traceback of one that is raised again grows.
            raise type(failure)(*failure.args) from failure.__cause__
