"""`PendingEvents`: a person's events until a step uses them."""

from __future__ import annotations

import collections
import threading
from typing import Any

from envkit.desktop.actions import fitting
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import Event, KeyEvent, PointerEvent

__all__ = ["PendingEvents"]

# Limits of events and releases that wait for a step: nobody types more.
_MOST_EVENTS, _MOST_RELEASES = 4096, 1024


class PendingEvents:
    """Keeps events until a step uses them; any thread may put and pop.

    It drops a pointer move if the next event is another move.
    """

    def __init__(self) -> None:
        """Starts without events."""
        self._events: collections.deque[Event] = collections.deque()
        self._lock = threading.Lock()
        # The buttons that are down, and whether the newest event is only a move.
        self._buttons, self._has_moved = 0, False
        # The buttons that were down before the oldest event.
        self._buttons_before = 0

    def __len__(self) -> int:
        """Returns the number of events."""
        return len(self._events)

    def put(self, event: Event) -> None:
        """Adds an event.

        Raises:
            DesktopError: There are more events than people can make.
        """
        with self._lock:
            events = self._events
            moves = isinstance(event, PointerEvent) and event.buttons == self._buttons
            if moves and self._has_moved and events:
                events[-1] = event
                return
            # Releases have room of their own, so that no key stays down.
            room = _MOST_EVENTS + (not _is_press(event)) * _MOST_RELEASES
            if len(events) >= room:
                raise DesktopError(
                    f"A viewer must send at most {_MOST_EVENTS} events in a step, got "
                    "more."
                )
            events.append(event)
            self._has_moved = moves
            if isinstance(event, PointerEvent):
                self._buttons = event.buttons

    def pop(self, most: int | None = None) -> list[Event]:
        """Removes and returns the oldest events, `most` of them or all."""
        with self._lock:
            count = len(self._events) if most is None else min(most, len(self._events))
            return self._pop(count)

    def pop_fitting(self, actions: Any) -> list[Event]:
        """Removes and returns the oldest events that fit into one action."""
        with self._lock:
            events = list(self._events)
        return self.pop(fitting(actions, events)) if events else []

    def has_press(self) -> bool:
        """Returns True if an event presses a key or a button."""
        with self._lock:
            return any(map(_is_press, self._events))

    def has_release(self) -> bool:
        """Returns True if an event releases a key or a button."""
        with self._lock:
            buttons = self._buttons_before
            for event in self._events:
                if isinstance(event, PointerEvent):
                    if buttons & ~event.buttons:
                        return True
                    buttons = event.buttons
                elif not event.down:
                    return True
        return False

    def pop_press(self) -> list[Event]:
        """Removes and returns the events up to the first press, or none."""
        with self._lock:
            for place, event in enumerate(self._events):
                if _is_press(event):
                    return self._pop(place + 1)
        return []

    def _pop(self, count: int) -> list[Event]:
        popped = [self._events.popleft() for _ in range(count)]
        pointed = [event for event in popped if isinstance(event, PointerEvent)]
        if pointed:
            self._buttons_before = pointed[-1].buttons
        return popped


def _is_press(event: Event) -> bool:
    return event.down if isinstance(event, KeyEvent) else bool(event.buttons)
