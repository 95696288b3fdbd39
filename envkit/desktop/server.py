"""`DesktopServer`: shows pictures to VNC viewers, and takes their keys and pointer."""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator
from types import TracebackType

import numpy as np

from envkit.desktop.keys import Event, KeyEvent, PointerEvent
from envkit.desktop.pixels import (
    DESKTOP_SIZE,
    ENCODINGS,
    RAW,
    Codec,
    PixelFormat,
    Rectangle,
)
from envkit.desktop.protocol import (
    NO_PASSWORD,
    PASSWORD,
    DesktopError,
    Script,
    Wire,
    answer,
    version_of,
    version_text,
)
from envkit.errors import ClosedError
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = ["DesktopServer"]

_log = logging.getLogger(__name__)

_TILE = 32
_MOST_ENCODINGS, _PART = 1 << 10, 1 << 16
_LARGEST, _MOST_PIXELS = 0xFFFF, 1 << 26


class DesktopServer:
    """Shows pictures to VNC viewers, and takes their keys and pointer.

    It serves in a thread of its own. A viewer gets what has changed since its last
    update, and no update before it has taken the one before, so slow viewers see fewer
    pictures and hold up none of the others.

    One viewer controls: of those that know `password`, the one that has been there
    longest. Events of the others are dropped; they observe.

    Attributes:
        address: The host and the port that it listens at.

    Example:
        >>> from envkit.desktop import DesktopClient, DesktopServer
        >>> import queue
        >>> events = queue.Queue()
        >>> with DesktopServer((64, 48), on_event=events.put) as server:
        ...     with DesktopClient(*server.address) as viewer:
        ...         viewer.key("Left", True)
        ...         events.get(timeout=60)
        KeyEvent(key=65361, down=True)
    """

    def __init__(
        self,
        size: tuple[int, int] = (640, 480),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        name: str = "envkit",
        password: str | None = None,
        observer_password: str | None = None,
        on_event: Callable[[Event], object] | None = None,
        max_viewers: int = 16,
        handshake_timeout: float = 10.0,
    ) -> None:
        """Listens, with a black picture.

        Args:
            size: The width and the height of the first picture.
            host: The address to listen at.
            port: The port; 0 for any that is free.
            name: The name that viewers show.
            password: What viewers must know; `None` for no password.
            observer_password: What viewers must know that only observe.
            on_event: Called with each event of the viewer that controls, in the thread
                of the server: it must return soon, and not raise.
            max_viewers: How many may be connected at a time.
            handshake_timeout: Seconds within which a viewer must be connected.
        """
        width, height = size
        if not _is_size(width, height):
            raise ValueError(
                f"size must be a width and a height from 1 to {_LARGEST}, got {size}."
            )
        if observer_password is not None and password is None:
            raise ValueError(
                "observer_password needs password: without one all viewers control."
            )
        self._name = name
        self._passwords = (password, observer_password)
        self._on_event = on_event
        self._most, self._patience = max_viewers, handshake_timeout
        self._frame: Array = np.zeros((height, width, 3), np.uint8)
        self._changes: Array | None = None
        self._lock = threading.Lock()
        self._viewers: list[_Viewer] = []
        self._closing = False
        self._failure: BaseException | None = None
        with contextlib.ExitStack() as stack:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family)
            self._listener = stack.enter_context(listener)
            self._listener.setblocking(False)
            self.address: tuple[str, int] = self._listener.getsockname()[:2]
            # A byte in this pipe wakes the thread.
            ear, self._bell = os.pipe()
            self._ear = ear
            os.set_blocking(self._ear, False)
            os.set_blocking(self._bell, False)
            stack.callback(os.close, self._ear)
            stack.callback(os.close, self._bell)
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._selector.register(self._ear, selectors.EVENT_READ)
            self._thread = threading.Thread(
                target=self._serve,
                name=f"envkit desktop {self.address[1]}",
                daemon=True,
            )
            self._thread.start()
            self._closing_up = stack.pop_all()

    @property
    def viewers(self) -> int:
        """How many viewers are connected."""
        return sum(viewer.ready for viewer in self._viewers)

    def show(self, picture: Array) -> None:
        """Shows a picture: height, width, and red, green, blue, of uint8.

        It may be of another size than the one before: viewers that can follow do.

        Raises:
            ValueError: It is not a picture.
        """
        picture = np.asarray(picture)
        if (
            picture.ndim != 3
            or picture.shape[2] != 3
            or picture.dtype != np.uint8
            or not _is_size(picture.shape[1], picture.shape[0])
        ):
            raise ValueError(
                "A picture must be an array of uint8 with the axes height, width and "
                f"colour, got {describe(picture)}."
            )
        with self._lock:
            if self._closing:
                raise ClosedError.used("DesktopServer", "show")
            if self._frame.shape == picture.shape:
                changed = _changed_tiles(self._frame, picture)
                if not changed.any():
                    return
                if self._changes is not None:
                    changed |= self._changes
            else:
                changed = np.ones(_grid(picture), bool)
            self._frame, self._changes = picture.copy(), changed
            self._ring()

    def close(self) -> None:
        """Ends all connections, and stops listening; calling it again does nothing."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._ring()
        self._thread.join()
        self._closing_up.close()

    def ended(self) -> str | None:
        """Returns why it has ended unasked; `None` as long as it serves."""
        return None if self._failure is None else repr(self._failure)

    def __enter__(self) -> DesktopServer:
        """Returns the server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the server."""
        self.close()

    def _ring(self) -> None:
        # A full pipe wakes the thread as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self._bell, b"\0")

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._round()
        except Exception as error:
            _log.exception("The desktop at port %d has ended.", self.address[1])
            self._failure = error
        finally:
            for viewer in list(self._viewers):
                self._drop(viewer)

    def _round(self) -> None:
        late = [viewer for viewer in self._viewers if not viewer.ready]
        timeout = min(
            (viewer.deadline - time.monotonic() for viewer in late), default=60
        )
        for key, mask in self._selector.select(max(0.0, timeout)):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj == self._ear:
                with contextlib.suppress(BlockingIOError):
                    while os.read(self._ear, 4096):
                        pass
            else:
                self._attend(key.data, mask)
        for viewer in late:
            if not viewer.ready and time.monotonic() > viewer.deadline:
                self._drop(viewer, "it has not finished the handshake in time")
        self._send_updates()

    def _accept(self) -> None:
        try:
            link, address = self._listener.accept()
        except OSError:  # It has given up already.
            return
        if len(self._viewers) >= self._most:
            link.close()
            _log.info("A viewer at %s was refused: there are %d.", address, self._most)
            return
        viewer = _Viewer(self, link, str(address[0]), time.monotonic() + self._patience)
        self._viewers.append(viewer)
        self._selector.register(viewer.wire, selectors.EVENT_READ, viewer)
        self._attend(viewer, 0)

    def _attend(self, viewer: _Viewer, mask: int) -> None:
        """Reads and writes for a viewer, as far as it can now."""
        if viewer not in self._viewers:
            return
        try:
            if mask & selectors.EVENT_READ:
                viewer.wire.read()
            viewer.wire.write()
        except DesktopError as error:
            self._drop(viewer, str(error))
            return
        if viewer.leaving and not viewer.wire.unsent:
            self._drop(viewer, viewer.leaving)
            return
        wanted = selectors.EVENT_READ
        if viewer.wire.unsent:
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(viewer.wire, wanted, viewer)

    def _drop(self, viewer: _Viewer, reason: str = "the server is closing") -> None:
        if viewer in self._viewers:
            viewer.let_go()  # while it controls
            self._viewers.remove(viewer)
            self._selector.unregister(viewer.wire)
            viewer.wire.close()
            _log.info("A viewer at %s has left: %s", viewer.host, reason)

    def _send_updates(self) -> None:
        with self._lock:
            frame, changes, self._changes = self._frame, self._changes, None
        for viewer in list(self._viewers):
            viewer.note(frame, changes)
            if viewer.wants_update():
                viewer.send_update(frame)
                self._attend(viewer, 0)

    def _controller(self) -> _Viewer | None:
        return next((one for one in self._viewers if one.ready and one.controls), None)

    def _take(self, viewer: _Viewer, event: Event) -> bool:
        """Hands on an event, if the viewer controls."""
        if self._on_event is None or viewer is not self._controller():
            return False
        self._on_event(event)
        return True


class _Viewer:
    """The connection of a viewer, in the thread of the server."""

    def __init__(
        self, server: DesktopServer, link: socket.socket, host: str, deadline: float
    ) -> None:
        self._server = server
        self.host, self.deadline = host, deadline
        self.ready = self.controls = False
        self.leaving = ""
        self._codec = Codec(PixelFormat())
        self._encoding = RAW
        self._resizes = False
        self._size = (0, 0)
        # What it has not been shown yet, and what it has asked for.
        self._dirty: Array = np.zeros((0, 0), bool)
        self._region: Rectangle | None = None
        self._down: set[int] = set()
        self._pointer = PointerEvent(0, 0, 0)
        self.wire = Wire(link, self._script())
        self.wire.send(version_text((3, 8)))

    def note(self, frame: Array, changes: Array | None) -> None:
        """Adds what has changed in the picture to what is to be shown."""
        grid = _grid(frame)
        if self._dirty.shape != grid:
            self._dirty = np.ones(grid, bool)
        elif changes is not None:
            self._dirty |= changes

    def wants_update(self) -> bool:
        """True if it has asked, has taken what was sent, and there is anything new."""
        return (
            self._region is not None
            and not self.wire.unsent
            and not self.leaving
            and bool(self._dirty[_tiles_of(self._region)].any())
        )

    def send_update(self, frame: Array) -> None:
        """Sends what has changed in the region that was asked for."""
        height, width = frame.shape[:2]
        rectangles = []
        if self._resizes and self._size != (width, height):
            self._size = (width, height)
            rectangles.append(_header(Rectangle(0, 0, width, height), DESKTOP_SIZE))
            self._region, self._dirty[:] = Rectangle(0, 0, width, height), True
        assert self._region is not None
        tiles = _tiles_of(self._region)
        for y, start, stop in _runs(self._dirty[tiles], tiles):
            place = _clipped(
                Rectangle(start * _TILE, y * _TILE, (stop - start) * _TILE, _TILE),
                min(width, self._size[0]),
                min(height, self._size[1]),
            )
            if place.area:
                data = self._codec.encode(self._encoding, place.of(frame))
                rectangles.append(_header(place, self._encoding) + data)
        self._dirty[tiles] = False
        if rectangles:
            self._region = None
            count = struct.pack(">BxH", 0, len(rectangles))
            self.wire.send(count + b"".join(rectangles))

    def let_go(self) -> None:
        """Lets go of what the viewer has held, when it leaves."""
        for key in sorted(self._down):
            self._server._take(self, KeyEvent(key, False))
        if self._pointer.buttons:
            self._server._take(self, self._pointer._replace(buttons=0))

    def _script(self) -> Script:
        """Reads what the viewer sends, from the first byte to the last."""
        version = version_of((yield 12))
        may_enter = yield from self._authenticate(version)
        while not may_enter:  # It is told why, and what it sends does not count.
            yield 1
        yield 1
        server = self._server
        with server._lock:
            height, width = server._frame.shape[:2]
        self._size = (width, height)
        name = server._name.encode("utf-8")
        self.wire.send(
            struct.pack(">HH", width, height)
            + self._codec.format.pack()
            + struct.pack(">I", len(name))
            + name
        )
        self.ready = True
        _log.info("A viewer at %s is there.", self.host)
        while True:
            (kind,) = yield 1
            if kind == 0:
                self._codec = Codec(PixelFormat.unpack((yield 19)[3:]))
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
                server._take(self, self._pointer)
            elif kind == 6:
                (length,) = struct.unpack(">xxxI", (yield 7))
                while length:
                    part = min(length, _PART)
                    yield part
                    length -= part
            else:
                raise DesktopError(
                    f"A message of a viewer must be of a known kind, got {kind}."
                )

    def _authenticate(self, version: tuple[int, int]) -> Generator[int, bytes, bool]:
        """Asks for the password, and returns whether the viewer knows it."""
        password, observing = self._server._passwords
        kind = NO_PASSWORD if password is None else PASSWORD
        if version == (3, 3):
            self.wire.send(struct.pack(">I", kind))
        else:
            self.wire.send(bytes([1, kind]))
            (chosen,) = yield 1
            if chosen != kind:
                raise DesktopError(
                    f"The viewer must choose the security type {kind}, got {chosen}."
                )
        self.controls = True
        if password is None:
            if version == (3, 8):
                self.wire.send(b"\0\0\0\0")
            return True
        challenge = os.urandom(16)
        self.wire.send(challenge)
        proof = yield 16
        self.controls = hmac.compare_digest(proof, answer(challenge, password))
        knows = self.controls or (
            observing is not None
            and hmac.compare_digest(proof, answer(challenge, observing))
        )
        if knows:
            self.wire.send(b"\0\0\0\0")
            return True
        reason = b"The password is wrong."
        more = struct.pack(">I", len(reason)) + reason if version == (3, 8) else b""
        self.wire.send(b"\0\0\0\1" + more)
        self.leaving = reason.decode()
        return False

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

    def _ask(self, incremental: bool, region: Rectangle) -> None:
        if not incremental:
            self._dirty[_tiles_of(region)] = True
        if self._region is not None:
            region = _around(self._region, region)
        self._region = region

    def _key(self, key: int, down: bool) -> None:
        if self._server._take(self, KeyEvent(key, down)):
            (self._down.add if down else self._down.discard)(key)


def _is_size(width: int, height: int) -> bool:
    is_inside = 0 < width <= _LARGEST and 0 < height <= _LARGEST
    return is_inside and width * height <= _MOST_PIXELS


def _header(place: Rectangle, encoding: int) -> bytes:
    return struct.pack(">HHHHi", *place, encoding)


def _grid(frame: Array) -> tuple[int, int]:
    return -(-frame.shape[0] // _TILE), -(-frame.shape[1] // _TILE)


def _changed_tiles(before: Array, after: Array) -> Array:
    """Returns which tiles differ."""
    rows, columns = _grid(before)
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


def _runs(dirty: Array, tiles: tuple[slice, slice]) -> Iterator[tuple[int, int, int]]:
    """Yields the rows of tiles with their runs of dirty ones: row, start, stop."""
    for number, row in enumerate(dirty):
        edges = np.flatnonzero(np.diff(row, prepend=False, append=False))
        for start, stop in edges.reshape(-1, 2).tolist():
            first = tiles[1].start
            yield tiles[0].start + number, first + start, first + stop


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
