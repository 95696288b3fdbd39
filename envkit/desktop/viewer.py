"""`Viewer`: a viewer's connection, its rights, and the picture it has seen."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from envkit._shared.admission import Stranger
from envkit.desktop.encodings import (
    CURSOR,
    DESKTOP_SIZE,
    ENCODINGS,
    NAME,
    QUALITY,
    RAW,
    ROLE,
    Codec,
    Cursor,
    blocks_of,
)
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import Event, KeyEvent, PointerEvent
from envkit.desktop.nonblocking_socket import NonblockingSocket
from envkit.desktop.pixels import PixelFormat, Rectangle
from envkit.desktop.protocol import (
    EncodingsListed,
    Entered,
    FormatChosen,
    Greeted,
    Proof,
    ProtocolEvent,
    ServerProtocol,
    State,
    UpdateRequested,
    name_bytes,
    rectangle_header,
    update_header,
)
from envkit.desktop.tight import has_jpeg
from envkit.types import Array

__all__ = ["Desk", "Viewer", "changed_tiles", "grid_of"]

_TILE = 32
# Keyboards have fewer keys.
_MOST_KEYS = 256


class Desk(Protocol):
    """What a viewer needs to know about the desktop, and can do to it.

    Attributes:
        name: The name of the desktop.
        passwords: The passwords of viewers that control and of observers.
        size: The width and the height of the picture.
    """

    name: str
    passwords: tuple[str | None, str | None]

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height of the picture; 0 and 0 before the first one."""

    def handle(self, viewer: Viewer, event: Event) -> bool:
        """Passes on an event if the viewer is in control; returns whether it is."""

    def is_controller(self, viewer: Viewer) -> bool:
        """Returns True if this viewer is in control."""

    def refusal(self) -> str | None:
        """Returns why no more viewers are admitted; `None` if there is room."""

    def judged_at(self, host: str, *, is_right: bool) -> float:
        """Returns when to tell a viewer whether its password is right."""

    def welcome(self, viewer: Viewer) -> None:
        """Logs that a viewer has finished the handshake."""


class Viewer:
    """Serves the connection of a viewer, in the server's thread.

    Attributes:
        link: The connection.
        stranger: The viewer's address, and the deadline of its handshake.
        due: When a viewer that waits for a verdict gets it.
        alive_at: When the viewer last sent anything, or read waiting data.
        watched: The events that the server's selector waits for; 0 for none.
        ready: Whether the handshake is over.
        controls: Whether the viewer may control.
        leaving: The reason why the viewer must leave; empty if there is none.
    """

    def __init__(
        self,
        desk: Desk,
        link: socket.socket,
        stranger: Stranger,
        *,
        controls: bool | None = None,
    ) -> None:
        """Greets the viewer; the handshake must be over by the deadline.

        Args:
            desk: The desktop.
            link: The connection.
            stranger: The viewer's address, and the deadline of its handshake.
            controls: Whether the viewer may control; `None` if its password decides.
        """
        self._desk = desk
        self.stranger = stranger
        self.due, self.watched = 0.0, 0
        self.alive_at = self._sent_at = time.monotonic()
        self.ready, self.controls, self._knows = False, bool(controls), False
        self._is_known = controls is not None
        self.leaving = ""
        self._codec = Codec(PixelFormat())
        self._encoding = RAW
        # The pseudo-encodings that the viewer understands.
        self._resizes = self._has_cursor = self._has_name = self._has_role = False
        self._size, self._name = (0, 0), ""
        self._role: tuple[bool, bool] | None = None
        self._cursor_sent = False
        # Tiles that the viewer has yet to see, and the region of its last request.
        self._dirty: Array = np.zeros((0, 0), bool)
        self._region: Rectangle | None = None
        self._down: set[int] = set()
        self._pointer = PointerEvent(0, 0, 0)
        self._protocol = ServerProtocol()
        self.link = NonblockingSocket(link)
        self.link.send(self._protocol.data_to_send())

    @property
    def waits(self) -> bool:
        """True while it waits for the verdict on its password, or for a picture."""
        return self._protocol.state in (State.JUDGEMENT, State.PICTURE)

    def read(self) -> bool:
        """Reads received bytes, or makes the decision that the viewer waits for.

        Returns:
            Whether the viewer sent anything.

        Raises:
            DesktopError: The connection is lost, or the viewer breaks the protocol.
        """
        data = unread = b"" if self.waits else self.link.read()
        while True:
            # A viewer that sends ahead may wait for two decisions in a row.
            if self.waits:
                self._decide()
            event, unread = self._protocol.receive(unread), b""
            if event is None:
                break
            self._handle(event)
        self.link.send(self._protocol.data_to_send())
        return bool(data)

    def add_changes(self, frame: Array, changes: Array | None) -> None:
        """Adds changes of the picture to those the viewer has not seen yet."""
        grid = grid_of(frame)
        if self._dirty.shape != grid:
            self._dirty = np.ones(grid, bool)
        elif changes is not None:
            self._dirty |= changes

    def wants_update(self) -> bool:
        """Returns True if the viewer asked, has read all, and there is news."""
        return (
            self._region is not None
            and not self.link.unsent
            and not self.leaving
            and (
                bool(self._dirty[_tiles_of(self._region)].any())
                or (self._has_name and self._name != self._desk.name)
                or (self._has_role and self._role != self._role_now())
            )
        )

    def silence(self, now: float) -> float:
        """Returns how many seconds ago the viewer last showed that it reads."""
        if self._region is not None and not self.link.unsent:
            return 0.0
        return now - max(self.alive_at, self._sent_at)

    def probe(self) -> None:
        """Resends part of the picture: a viewer that reads it will ask for more."""
        if self._region is not None:
            self._dirty[_tiles_of(self._region)][:1, :1] = True

    def send_update(self, frame: Array) -> None:
        """Sends the changes in the requested region."""
        height, width = frame.shape[:2]
        rectangles = self._news()
        if self._resizes and self._size != (width, height):
            self._size = (width, height)
            rectangles.append(
                rectangle_header(Rectangle(0, 0, width, height), DESKTOP_SIZE)
            )
            self._region, self._dirty[:] = Rectangle(0, 0, width, height), True
        assert self._region is not None
        tiles = _tiles_of(self._region)
        for area in _areas(self._dirty[tiles], tiles):
            place = _clipped(
                area, min(width, self._size[0]), min(height, self._size[1])
            )
            for block in blocks_of(self._encoding, place) if place.area else ():
                data = self._codec.encode(self._encoding, block.of(frame))
                rectangles.append(rectangle_header(block, self._encoding) + data)
        self._dirty[tiles] = False
        if rectangles:
            self._region, self._sent_at = None, time.monotonic()
            self.link.send(update_header(len(rectangles)) + b"".join(rectangles))

    def _news(self) -> list[bytes]:
        """Returns what is new apart from pixels: cursor, name and role."""
        found = []
        if self._has_cursor and not self._cursor_sent:
            self._cursor_sent = True
            height, width = _ARROW.picture.shape[:2]
            place = Rectangle(_ARROW.x, _ARROW.y, width, height)
            found.append(
                rectangle_header(place, CURSOR) + self._codec.encode_cursor(_ARROW)
            )
        if self._has_name and self._name != self._desk.name:
            self._name = self._desk.name
            place = Rectangle(0, 0, 0, 0)
            found.append(rectangle_header(place, NAME) + name_bytes(self._name))
        if self._has_role and self._role != self._role_now():
            self._role = self._role_now()
            found.append(rectangle_header(Rectangle(*self._role, 0, 0), ROLE))
        return found

    def _role_now(self) -> tuple[bool, bool]:
        """Returns whether the viewer is in control, and whether it may be."""
        return self._desk.is_controller(self), self.controls

    def release_all(self) -> None:
        """Releases the keys and buttons that the viewer holds."""
        with contextlib.suppress(DesktopError):
            for key in sorted(self._down):
                self._desk.handle(self, KeyEvent(key, False))
            if self._pointer.buttons:
                self._desk.handle(self, self._pointer._replace(buttons=0))
        self._down.clear()
        self._pointer = self._pointer._replace(buttons=0)

    def _handle(self, event: ProtocolEvent) -> None:
        match event:
            case Greeted():
                self._offer()
            case Proof():
                self._judge(event)
            case Entered():
                self.due = self.stranger.deadline = math.inf
            case FormatChosen(pixel_format):
                # The zlib streams continue.
                self._codec.format = pixel_format
                self._cursor_sent = False
            case EncodingsListed(encodings):
                self._choose_encoding(encodings)
            case UpdateRequested(incremental, place):
                self._ask(incremental, place)
            case KeyEvent(key, down):
                self._key(key, down)
            case PointerEvent():
                self._pointer = event
                self._desk.handle(self, event)

    # The handshake: responses to its events.

    def _offer(self) -> None:
        password, _ = self._desk.passwords
        reason = self._desk.refusal()
        if reason is not None:
            self._refuse(reason)
        elif self._is_known or password is None:
            self.controls |= not self._is_known
            self._protocol.offer(None)
        else:
            self._protocol.offer(os.urandom(16))

    def _judge(self, proof: Proof) -> None:
        """Checks a password; `_decide` tells the viewer the verdict later."""
        password, observing = self._desk.passwords
        self.controls = password is not None and proof.knows(password)
        self._knows = self.controls or (
            observing is not None and proof.knows(observing)
        )
        self.due = self._desk.judged_at(self.stranger.host, is_right=self._knows)
        self.stranger.deadline += max(0.0, self.due - time.monotonic())

    def _decide(self) -> None:
        """Sends the verdict or the desktop once it is due."""
        if self._protocol.state is State.PICTURE:
            if self._desk.size != (0, 0):
                self._begin()
        elif time.monotonic() < self.due:
            return
        elif self._knows:
            self._protocol.accept()
        else:
            self._refuse("The password is wrong.")

    def _begin(self) -> None:
        reason = self._desk.refusal()
        if reason is not None:  # The last place was taken during the handshake.
            raise DesktopError(reason)
        self._size, self._name = self._desk.size, self._desk.name
        self._protocol.begin(self._size, self._codec.format.pack(), self._name)
        self.ready = True
        self._desk.welcome(self)

    def _refuse(self, reason: str) -> None:
        """Refuses the viewer; the connection ends once the viewer knows."""
        self._protocol.refuse(reason)
        self.leaving = reason

    def _choose_encoding(self, named: tuple[int, ...]) -> None:
        known = [number for number in named if number in ENCODINGS.values()]
        self._encoding = known[0] if known else RAW
        self._resizes = DESKTOP_SIZE in named
        self._has_cursor, self._has_name = CURSOR in named, NAME in named
        self._has_role = ROLE in named
        qualities = [number - QUALITY for number in named if 0 <= number - QUALITY < 10]
        self._codec.quality = max(qualities) if qualities and has_jpeg() else None

    def _ask(self, incremental: bool, region: Rectangle) -> None:
        if not incremental:
            self._dirty[_tiles_of(region)] = True
        if self._region is not None:
            region = _around(self._region, region)
        self._region = region

    def _key(self, key: int, down: bool) -> None:
        if down and key not in self._down and len(self._down) >= _MOST_KEYS:
            raise DesktopError(
                f"A viewer must hold at most {_MOST_KEYS} keys at a time, got more."
            )
        if self._desk.handle(self, KeyEvent(key, down)):
            (self._down.add if down else self._down.discard)(key)


def grid_of(frame: Array) -> tuple[int, int]:
    """Returns how many rows and columns of tiles a picture has."""
    return -(-frame.shape[0] // _TILE), -(-frame.shape[1] // _TILE)


def changed_tiles(before: Array, after: Array) -> Array:
    """Returns which tiles differ."""
    rows, columns = grid_of(before)
    changed = np.zeros((rows * _TILE, columns * _TILE), bool)
    differs: Array = np.any(before != after, axis=2)
    changed[: before.shape[0], : before.shape[1]] = differs
    tiles: Array = np.any(changed.reshape(rows, _TILE, columns, _TILE), axis=(1, 3))
    return tiles


def _tiles_of(region: Rectangle) -> tuple[slice, slice]:
    """Returns the tiles that a region touches."""
    return (
        slice(region.y // _TILE, -(-(region.y + region.height) // _TILE)),
        slice(region.x // _TILE, -(-(region.x + region.width) // _TILE)),
    )


def _areas(dirty: Array, tiles: tuple[slice, slice]) -> Iterator[Rectangle]:
    """Yields the areas of dirty tiles: runs in a row, merged with equal ones below."""
    begun: dict[tuple[int, int], int] = {}
    for number in range(len(dirty) + 1):
        row = dirty[number] if number < len(dirty) else np.zeros(0, bool)
        edges = np.flatnonzero(np.diff(row, prepend=False, append=False))
        runs = {(start, stop) for start, stop in edges.reshape(-1, 2).tolist()}
        for run in [run for run in begun if run not in runs]:
            top, (start, stop) = begun.pop(run), run
            yield Rectangle(
                (tiles[1].start + start) * _TILE,
                (tiles[0].start + top) * _TILE,
                (stop - start) * _TILE,
                (number - top) * _TILE,
            )
        for run in runs:
            begun.setdefault(run, number)


def _clipped(place: Rectangle, width: int, height: int) -> Rectangle:
    return place._replace(
        width=max(0, min(place.width, width - place.x)),
        height=max(0, min(place.height, height - place.y)),
    )


def _around(first: Rectangle, second: Rectangle) -> Rectangle:
    """Returns the smallest rectangle around both."""
    x, y = min(first.x, second.x), min(first.y, second.y)
    right = max(first.x + first.width, second.x + second.width)
    bottom = max(first.y + first.height, second.y + second.height)
    return Rectangle(x, y, right - x, bottom - y)


def _arrow() -> Cursor:
    """Draws a black arrow with a white edge, for viewers that show their pointer."""
    y, x = np.mgrid[:14, :10]
    shape = ((x <= y) & (y < 10)) | ((np.abs(x - y / 2) < 1.3) & (y > 7))
    around = np.pad(shape, 1)
    inside = around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
    picture: Array = np.zeros((*shape.shape, 4), np.uint8)
    picture[shape] = 255
    picture[shape & inside, :3] = 0
    picture.flags.writeable = False
    return Cursor(picture, 0, 0)


_ARROW = _arrow()
