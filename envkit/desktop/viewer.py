"""The connection of a viewer: what it may do, sends, and has been shown."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from envkit.desktop.connection import Connection, Script, skipped
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
from envkit.desktop.keys import Event, KeyEvent, PointerEvent
from envkit.desktop.pixels import PixelFormat, Rectangle
from envkit.desktop.protocol import (
    DesktopError,
    Entered,
    Greeted,
    Proof,
    ServerHandshake,
    State,
    name_bytes,
)
from envkit.desktop.tight import has_jpeg
from envkit.types import Array

__all__ = ["Desk", "Viewer", "changed_tiles", "grid_of"]

_TILE = 32
_MOST_ENCODINGS = 1 << 10
# Keyboards have fewer keys.
_MOST_KEYS = 256


class Desk(Protocol):
    """What the viewers of a desktop share.

    Attributes:
        name: The name of the desktop.
        passwords: That of viewers that control, and that of observers.
        size: The width and the height of the picture.
    """

    name: str
    passwords: tuple[str | None, str | None]

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height of the picture; 0 and 0 before the first one."""

    def handle(self, viewer: Viewer, event: Event) -> bool:
        """Hands on an event, if the viewer controls; returns whether it does."""

    def is_controller(self, viewer: Viewer) -> bool:
        """True if the events of this viewer count."""

    def refusal(self) -> str | None:
        """Returns why no more viewers are admitted; `None` if there is room."""

    def judged_at(self, host: str, *, is_right: bool) -> float:
        """Returns when a viewer at an address is told whether its password is right."""

    def welcome(self, viewer: Viewer) -> None:
        """Logs that a viewer has finished the handshake."""


class Viewer:
    """The connection of a viewer, in the thread of the server.

    Attributes:
        link: What it is read from.
        host: The address that it is at.
        where: That address and its port, for logs.
        deadline: When the handshake must be over.
        due: When a handshake that is paused goes on.
        alive_at: When it has last sent anything, or taken what was waiting for it.
        watched: What the server's selector waits for; 0 for nothing.
        ready: Whether the handshake is over.
        controls: Whether it knows the password of those that control.
        leaving: Why it is to leave, when it has been told so; else empty.
    """

    def __init__(
        self,
        desk: Desk,
        link: socket.socket,
        host: str,
        where: str,
        deadline: float,
        *,
        controls: bool | None = None,
    ) -> None:
        """Greets the viewer; the handshake must be over by the deadline.

        Args:
            desk: What it shares with others.
            link: The connection.
            host: The address that it is at.
            where: That address and its port, for logs.
            deadline: When the handshake must be over.
            controls: Whether it may control; `None` if its password will tell.
        """
        self._desk = desk
        self.host, self.where, self.deadline = host, where, deadline
        self.due, self.watched = 0.0, 0
        self.alive_at = self._sent_at = time.monotonic()
        self.ready, self.controls = False, bool(controls)
        self._is_known = controls is not None
        self.leaving = ""
        self._codec = Codec(PixelFormat())
        self._encoding = RAW
        # What it knows beside pixels.
        self._resizes = self._has_cursor = self._has_name = self._has_role = False
        self._size, self._name = (0, 0), ""
        self._role: tuple[bool, bool] | None = None
        self._cursor_sent = False
        # What it has not been shown yet, and what it has asked for.
        self._dirty: Array = np.zeros((0, 0), bool)
        self._region: Rectangle | None = None
        self._down: set[int] = set()
        self._pointer = PointerEvent(0, 0, 0)
        self._handshake = ServerHandshake()
        self.link = Connection(link, self._script())
        self.link.send(self._handshake.data_to_send())

    def add_changes(self, frame: Array, changes: Array | None) -> None:
        """Adds what has changed in the picture to what is to be shown."""
        grid = grid_of(frame)
        if self._dirty.shape != grid:
            self._dirty = np.ones(grid, bool)
        elif changes is not None:
            self._dirty |= changes

    def wants_update(self) -> bool:
        """True if it has asked, has taken what was sent, and there is anything new."""
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
        """Returns for how many seconds it has owed a sign that it reads."""
        if self._region is not None and not self.link.unsent:
            return 0.0
        return now - max(self.alive_at, self._sent_at)

    def probe(self) -> None:
        """Sends a part of the picture again, after which one that reads asks anew."""
        if self._region is not None:
            self._dirty[_tiles_of(self._region)][:1, :1] = True

    def send_update(self, frame: Array) -> None:
        """Sends what has changed in the region that was asked for."""
        height, width = frame.shape[:2]
        rectangles = self._news()
        if self._resizes and self._size != (width, height):
            self._size = (width, height)
            rectangles.append(_header(Rectangle(0, 0, width, height), DESKTOP_SIZE))
            self._region, self._dirty[:] = Rectangle(0, 0, width, height), True
        assert self._region is not None
        tiles = _tiles_of(self._region)
        for area in _areas(self._dirty[tiles], tiles):
            place = _clipped(
                area, min(width, self._size[0]), min(height, self._size[1])
            )
            for block in blocks_of(self._encoding, place) if place.area else ():
                data = self._codec.encode(self._encoding, block.of(frame))
                rectangles.append(_header(block, self._encoding) + data)
        self._dirty[tiles] = False
        if rectangles:
            self._region, self._sent_at = None, time.monotonic()
            count = struct.pack(">BxH", 0, len(rectangles))
            self.link.send(count + b"".join(rectangles))

    def _news(self) -> list[bytes]:
        """Returns what is new beside the picture."""
        found = []
        if self._has_cursor and not self._cursor_sent:
            self._cursor_sent = True
            height, width = _ARROW.picture.shape[:2]
            place = Rectangle(_ARROW.x, _ARROW.y, width, height)
            found.append(_header(place, CURSOR) + self._codec.encode_cursor(_ARROW))
        if self._has_name and self._name != self._desk.name:
            self._name = self._desk.name
            place = Rectangle(0, 0, 0, 0)
            found.append(_header(place, NAME) + name_bytes(self._name))
        if self._has_role and self._role != self._role_now():
            self._role = self._role_now()
            found.append(_header(Rectangle(*self._role, 0, 0), ROLE))
        return found

    def _role_now(self) -> tuple[bool, bool]:
        """Returns whether the viewer controls, and whether it may."""
        return self._desk.is_controller(self), self.controls

    def let_go(self) -> None:
        """Lets go of what the viewer has held, when it leaves."""
        with contextlib.suppress(DesktopError):
            for key in sorted(self._down):
                self._desk.handle(self, KeyEvent(key, False))
            if self._pointer.buttons:
                self._desk.handle(self, self._pointer._replace(buttons=0))
        self._down.clear()
        self._pointer = self._pointer._replace(buttons=0)

    def _pause_until(self, is_over: Callable[[], bool]) -> Script:
        """Reads nothing until a condition holds, at which the server looks each time.

        Until then the server need not look before `due`, unless its bell rings.
        """
        while not is_over():
            self.link.paused = True
            yield 0

    def _script(self) -> Script:
        """Reads what the viewer sends, from the first byte to the last."""
        handshake = self._handshake
        while handshake.state is not State.OVER:
            event = handshake.receive((yield handshake.needed))
            if isinstance(event, Greeted):
                self._offer()
            elif isinstance(event, Proof):
                yield from self._judge(event)
            elif isinstance(event, Entered):
                yield from self._enter()
            self.link.send(handshake.data_to_send())
        self.ready = True
        self._desk.welcome(self)
        while True:
            (kind,) = yield 1
            if kind == 0:
                # The streams of zlib go on.
                self._codec.format = PixelFormat.unpack((yield 19)[3:])
                self._cursor_sent = False
            elif kind == 2:
                yield from self._choose_encoding()
            elif kind == 3:
                incremental, *region = struct.unpack(">BHHHH", (yield 9))
                self._ask(bool(incremental), Rectangle(*region))
            elif kind == 4:
                down, key = struct.unpack(">BxxI", (yield 7))
                self._key(key, bool(down))
            elif kind == 5:
                buttons, x, y = struct.unpack(">BHH", (yield 5))
                self._pointer = PointerEvent(x, y, buttons)
                self._desk.handle(self, self._pointer)
            elif kind == 6:
                (length,) = struct.unpack(">xxxI", (yield 7))
                yield from skipped(length)
            else:
                raise DesktopError(
                    f"A message of a viewer must be of a known kind, got {kind}."
                )

    # The handshake: what its events ask for.

    def _offer(self) -> None:
        password, _ = self._desk.passwords
        reason = self._desk.refusal()
        if reason is not None:
            self._refuse(reason)
        elif self._is_known or password is None:
            self.controls |= not self._is_known
            self._handshake.offer(None)
        else:
            self._handshake.offer(os.urandom(16))

    def _judge(self, proof: Proof) -> Script:
        """Tells the viewer whether its password is right, when it may know that."""
        password, observing = self._desk.passwords
        self.controls = password is not None and proof.knows(password)
        knows = self.controls or (observing is not None and proof.knows(observing))
        self.due = self._desk.judged_at(self.host, is_right=knows)
        self.deadline += max(0.0, self.due - time.monotonic())
        yield from self._pause_until(lambda: time.monotonic() >= self.due)
        if knows:
            self._handshake.accept()
        else:
            self._refuse("The password is wrong.")

    def _enter(self) -> Script:
        """Tells the viewer the desktop, when there is a picture."""
        self.due = math.inf
        yield from self._pause_until(lambda: self._desk.size != (0, 0))
        reason = self._desk.refusal()
        if reason is not None:  # The last place was taken during the handshake.
            raise DesktopError(reason)
        self._size, self._name = self._desk.size, self._desk.name
        self._handshake.begin(self._size, self._codec.format.pack(), self._name)

    def _refuse(self, reason: str) -> None:
        """Sends the viewer away; the connection ends when it has been told."""
        self._handshake.refuse(reason)
        self.leaving = reason

    def _choose_encoding(self) -> Script:
        (count,) = struct.unpack(">xH", (yield 3))
        if count > _MOST_ENCODINGS:
            raise DesktopError(
                f"A viewer must name at most {_MOST_ENCODINGS} encodings, got {count}."
            )
        named = struct.unpack(f">{count}i", (yield 4 * count)) if count else ()
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


def _header(place: Rectangle, encoding: int) -> bytes:
    return struct.pack(">HHHHi", *place, encoding)


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
    """Yields the areas of dirty tiles: runs in rows, and equal ones below as one."""
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
    """Returns the smallest rectangle with both in it."""
    x, y = min(first.x, second.x), min(first.y, second.y)
    right = max(first.x + first.width, second.x + second.width)
    bottom = max(first.y + first.height, second.y + second.height)
    return Rectangle(x, y, right - x, bottom - y)


def _arrow() -> Cursor:
    """Draws a black arrow with a white edge, for viewers that show their pointer."""
    shape = np.array([[mark != " " for mark in row] for row in _SHAPE])
    inside = np.array([[mark == "#" for mark in row] for row in _SHAPE])
    picture: Array = np.zeros((*shape.shape, 4), np.uint8)
    picture[shape] = 255
    picture[inside, :3] = 0
    picture.flags.writeable = False
    return Cursor(picture, 0, 0)


_SHAPE = [
    "+         ",
    "++        ",
    "+#+       ",
    "+##+      ",
    "+###+     ",
    "+####+    ",
    "+#####+   ",
    "+######+  ",
    "+#####+++ ",
    "+##+##+   ",
    "+#+ +##+  ",
    "++  +##+  ",
    "+    +##+ ",
    "      ++  ",
]
_ARROW = _arrow()
