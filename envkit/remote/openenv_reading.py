"""Spares a server of WebSockets the pauses that end at once.

uvicorn stops reading from a WebSocket at each message, until the application has taken
it. Mostly that is in the same pass of the event loop, and a pause costs as much as
reading the message. `pausing_late` begins a pause only when more has come.
"""

from __future__ import annotations

from typing import Any

__all__ = ["pausing_late"]


def pausing_late(protocol: Any) -> Any:
    """Returns uvicorn's protocol, whose pauses then begin with the next data."""

    class PausingLate(protocol):  # type: ignore[misc]  # a class of uvicorn's
        def connection_made(self, transport: Any) -> None:
            self._late = _LateTransport(transport)
            super().connection_made(self._late)

        def data_received(self, data: bytes) -> None:
            # Hot: called once per step.
            self._late.pause_if_asked()
            super().data_received(data)

    return PausingLate


class _LateTransport:
    """A transport whose pauses only begin with `pause_if_asked`."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._is_asked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_if_asked(self) -> None:
        if self._is_asked:
            self._transport.pause_reading()

    def pause_reading(self) -> None:
        self._is_asked = True

    def resume_reading(self) -> None:
        self._is_asked = False
        self._transport.resume_reading()
