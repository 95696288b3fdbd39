"""`ScreenThread`: reads a screen in a thread, so the picture is always the newest.

A VNC server sends the next change only on request, and a client asks for it after it
has read the last one. Without the thread, an agent that reads 30 times a second would
see pictures that are a thirtieth of a second old.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import numpy as np

from envkit._shared.arguments import checked_seconds
from envkit.desktop.client import DesktopClient
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import Event, keysym
from envkit.extend import describe
from envkit.types import Array

__all__ = ["Probe", "ScreenThread", "checked_probe"]

# Seconds that the thread waits for a change before it checks whether to end.
_PATIENCE = 0.05


class Probe(NamedTuple):
    """Says where a program responds to a key on the screen, for `Desktop(probe=...)`.

    `key_to_pixel` is then the time from the key to the first change in this region;
    changes elsewhere do not count.

    Attributes:
        region: The left, top, width and height of the region.
        key: A key to press regularly, to which the program responds visibly, for
            example by another colour in a corner; `None` to measure the agent's own
            events.
        every: The seconds between two presses.

    Example:
        >>> Probe((0, 0, 8, 8), key="F12").every
        1.0
    """

    region: tuple[int, int, int, int]
    key: str | int | None = None
    every: float = 1.0


class _Picture(NamedTuple):
    """Holds a complete picture."""

    frame: Array
    updates: int
    received_at: float | None


class ScreenThread:
    """Reads a screen in a thread; only `update` replaces its picture.

    Attributes:
        frame: The picture of the last `update`; later updates do not change this array.
        updates: The number of changes until then.
        received_at: The time of the last of them; `None` before the first.
        probe: Where the program shows its response; `None` for any change.
    """

    def __init__(self, screen: DesktopClient, probe: Probe | None = None) -> None:
        """Starts reading a screen; `close` closes it too.

        Args:
            screen: The client of the screen.
            probe: Where the program shows its response; `None` for any change.
        """
        self._screen = screen
        self.probe = probe
        self._changed = threading.Condition()
        self._newest = _Picture(screen.frame.copy(), screen.updates, screen.received_at)
        self.frame, self.updates, self.received_at = self._newest
        self._error: DesktopError | None = None
        self._closed = False
        # When the unanswered events were sent, and the region at that time.
        self._acted: tuple[float, Array] | None = None
        self._key_to_pixel = 0.0
        screen.on_update = self._publish
        self._thread = threading.Thread(
            target=self._read, name="envkit-screen", daemon=True
        )
        self._thread.start()

    @property
    def size(self) -> tuple[int, int]:
        """The width and height."""
        return self.frame.shape[1], self.frame.shape[0]

    @property
    def unseen(self) -> int:
        """The number of changes since the last `update`."""
        return self._newest.updates - self.updates

    @property
    def key_to_pixel(self) -> float:
        """The last measured seconds from an event to its change; 0 for none."""
        return self._key_to_pixel

    def update(self, timeout: float | None = 0.0) -> bool:
        """Switches to the newest picture; returns True if it is new.

        Args:
            timeout: Seconds to wait for a change if there is none yet; `None` waits as
                long as it takes.

        Raises:
            DesktopError: The connection is lost, and there is no newer picture.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._newest.updates > self.updates
                    or self._error is not None
                    or self._closed
                ),
                timeout,
            )
            is_new = self._newest.updates > self.updates
            self.frame, self.updates, self.received_at = self._newest
            if not is_new and self._error is not None:
                raise self._error
        return is_new

    def send(self, *events: Event) -> None:
        """Sends events."""
        self._screen.send(*events)

    def expect(self) -> None:
        """Starts measuring how soon a change follows the events sent next."""
        with self._changed:
            # An unanswered probe is measured from its first press.
            if self._acted is None or self.probe is None:
                self._acted = time.monotonic(), self._region().copy()

    def forget(self) -> None:
        """Discards the measurements."""
        with self._changed:
            self._acted, self._key_to_pixel = None, 0.0

    def close(self) -> None:
        """Ends the thread and the connection; calling it again does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._screen.close()

    def _region(self) -> Array:
        """Returns the region of the newest picture in which changes count."""
        frame = self._newest.frame
        if self.probe is None:
            return frame[:0]
        left, top, width, height = self.probe.region
        return frame[top : top + height, left : left + width]

    # In the thread.

    def _read(self) -> None:
        while not self._closed:
            try:
                self._screen.update(_PATIENCE)
            except DesktopError as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return

    def _publish(self) -> None:
        """Publishes a complete picture, and measures the events it responds to."""
        screen = self._screen
        picture = _Picture(screen.frame.copy(), screen.updates, screen.received_at)
        with self._changed:
            self._newest = picture
            now = picture.received_at
            if self._acted is not None and now is not None and now >= self._acted[0]:
                at, before = self._acted
                is_answer = self.probe is None or not np.array_equal(
                    before, self._region()
                )
                if is_answer:
                    self._key_to_pixel, self._acted = now - at, None
            self._changed.notify_all()


def checked_probe(probe: object, size: tuple[int, int]) -> Probe | None:
    """Returns a probe after checking that its region is on the screen.

    Args:
        probe: A `Probe`, or `None`.
        size: The width and height of the screen.
    """
    if probe is None:
        return None
    if not isinstance(probe, Probe):
        raise TypeError(f"probe must be a Probe or None, got {describe(probe)}.")
    if probe.key is not None:
        keysym(probe.key)
    left, top, width, height = probe.region
    fits = (
        min(left, top) >= 0
        and min(width, height) > 0
        and left + width <= size[0]
        and top + height <= size[1]
    )
    if not fits:
        raise ValueError(
            f"The region of a probe must be on the screen of {size[0]} x {size[1]}, "
            f"got left {left}, top {top}, width {width} and height {height}."
        )
    checked_seconds("every", probe.every, above_zero=True)
    return probe
