"""`XvfbScreen`: the screen of an Xvfb, read from its memory and used by XTEST.

Xvfb has no VNC server. It keeps its picture in a file that can be mapped, and X's own
protocol has requests that press keys and move the pointer. They are few, so they are
written here, on the display's socket.
"""

from __future__ import annotations

import contextlib
import mmap
import select
import socket
import struct
import sys
import time
from collections.abc import Callable

import numpy as np

from envkit.desktop.keys import MODIFIERS, Event, KeyEvent
from envkit.desktop.protocol import DesktopError
from envkit.types import Array

__all__ = ["XvfbScreen", "xvfb_command"]

# Seconds between two looks at the memory.
_POLL_INTERVAL = 0.004
_TIMEOUT = 30.0
# The numbers of X11's requests, and of the events that XTEST makes.
_CHANGE_KEYS, _GET_KEYS, _QUERY_EXTENSION, _FAKE = 100, 101, 98, 2
_KEY_DOWN, _KEY_UP, _BUTTON_DOWN, _BUTTON_UP, _MOTION = 2, 3, 4, 5, 6
# How X's servers are shown a cookie.
_METHOD = b"MIT-MAGIC-COOKIE-1"
# The numbers of a file of the format XWD, before its colours, each of 4 bytes.
_XWD = {"header": 0, "width": 4, "height": 5, "bits": 11, "line": 12, "colours": 19}


def xvfb_command(width: int, height: int) -> list[str]:
    """Returns the command that starts an Xvfb, for the keeper."""
    return [
        *("Xvfb", "-displayfd", "{fd}", "-fbdir", "{folder}", "-nolisten", "tcp"),
        *("-noreset", "-screen", "0", f"{width}x{height}x24"),
    ]


class XvfbScreen:
    """Shows the picture of an Xvfb, and sends keys and the pointer.

    Attributes:
        frame: The picture: height, width, and red, green, blue.
        updates: How many changes have been seen.
        received_at: When the last one was; `None` before.
        on_update: A function that is called whenever one has been seen.
    """

    def __init__(self, number: int, folder: str, cookie: bytes) -> None:
        """Connects.

        Args:
            number: The number of the display.
            folder: Where it keeps its picture.
            cookie: What it asks for.
        """
        self.updates = 0
        self.received_at: float | None = None
        self.on_update: Callable[[], None] | None = None
        self._link = _Link(number, cookie)
        self._buttons = 0
        try:
            with open(f"{folder}/Xvfb_screen0", "rb") as file:
                self._memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except OSError as error:
            self._link.close()
            raise DesktopError(f"Xvfb has no picture: {error}.") from error
        numbers = struct.unpack(">25I", self._memory[:100])
        told = {name: numbers[place] for name, place in _XWD.items()}
        width, height = told["width"], told["height"]
        if told["bits"] != 32:
            self.close()
            raise DesktopError(
                f"Xvfb must have 32 bits for each pixel, got {told['bits']}."
            )
        pixels = np.frombuffer(
            self._memory,
            np.uint8,
            told["line"] * height,
            told["header"] + 12 * told["colours"],
        )
        lines = pixels.reshape(height, told["line"])[:, : 4 * width]
        # In the order blue, green, red, nothing.
        self._pixels: Array | None = lines.reshape(height, width, 4)
        # Nothing has been looked at yet, so the first look finds a change.
        self._before: Array | None = None
        self.frame: Array = np.zeros((height, width, 3), np.uint8)

    @property
    def size(self) -> tuple[int, int]:
        """The width and height."""
        return self.frame.shape[1], self.frame.shape[0]

    def update(self, timeout: float | None = 0.0) -> bool:
        """Looks at the memory; returns whether the picture has changed.

        Args:
            timeout: How many seconds to wait for a change; `None` for ever.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._look():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            left = _POLL_INTERVAL if deadline is None else deadline - now
            time.sleep(min(left, _POLL_INTERVAL))
        return True

    def _look(self) -> bool:
        if self._pixels is None:
            raise DesktopError("The connection to Xvfb is closed.")
        if self._before is not None and np.array_equal(self._pixels, self._before):
            return False
        self._before = before = self._pixels.copy()
        self.frame = before[..., 2::-1].copy()
        self.updates += 1
        self.received_at = time.monotonic()
        if self.on_update is not None:
            self.on_update()
        return True

    def send(self, *events: Event) -> None:
        """Sends events."""
        for event in events:
            if isinstance(event, KeyEvent):
                self._link.key(event.key, event.down)
                continue
            self._link.fake(_MOTION, 0, event.x, event.y)
            for bit in range(8):
                down = event.buttons >> bit & 1
                if down != self._buttons >> bit & 1:
                    self._link.fake(_BUTTON_DOWN if down else _BUTTON_UP, bit + 1)
            self._buttons = event.buttons
        self._link.flush()

    def close(self) -> None:
        """Ends the connection; calling it again does nothing."""
        self._link.close()
        if getattr(self, "_pixels", None) is not None:
            self._pixels = None
        # An array over it that is still there keeps the memory.
        with contextlib.suppress(BufferError):
            self._memory.close()


class _Link:
    """A connection to an X server, for the few requests that are needed."""

    def __init__(self, number: int, cookie: bytes) -> None:
        self._link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._link.settimeout(_TIMEOUT)
        self._waiting = b""
        # Which key codes have been given other keys, the oldest first.
        self._lent: dict[int, int] = {}
        try:
            path = f"/tmp/.X11-unix/X{number}"
            # The file is gone if a server that had this number has ended just now.
            if not sys.platform.startswith("linux") or self._link.connect_ex(
                f"\0{path}"
            ):
                self._link.connect(path)
            self._greet(cookie)
        except OSError as error:
            self._link.close()
            raise DesktopError(f"Display :{number} refuses: {error}.") from error

    def _greet(self, cookie: bytes) -> None:
        sizes = len(_METHOD), len(cookie)
        greeting = struct.pack("<BxHHHHxx", ord("l"), 11, 0, *sizes)
        for part in (_METHOD, cookie):
            greeting += part.ljust(_padded(len(part)), b"\0")
        self._link.sendall(greeting)
        success, _, length = struct.unpack("<B5sH", self._read(8))
        body = self._read(4 * length)
        if success != 1:
            raise OSError(body.decode("utf-8", "replace").strip("\0 \n"))
        vendor, formats = struct.unpack_from("<H", body, 16)[0], body[21]
        self._first, last = body[26], body[27]
        (self._root,) = struct.unpack_from(
            "<I", body, 32 + _padded(vendor) + 8 * formats
        )
        name = b"XTEST"
        asked = struct.pack("<BxHHxx", _QUERY_EXTENSION, 2 + _padded(len(name)) // 4, 5)
        reply = self._reply(asked + name.ljust(_padded(len(name)), b"\0"))
        if not reply[8]:
            raise OSError("it has no XTEST")
        self._xtest = reply[9]
        count = last - self._first + 1
        keys = self._reply(struct.pack("<BxHBBxx", _GET_KEYS, 2, self._first, count))
        self._width = keys[1]
        syms = np.frombuffer(keys[32:], "<u4").reshape(count, self._width)
        # A key that is only there with Shift gets a key code of its own.
        self._codes: dict[int, int] = {}
        for code in reversed(range(count)):
            if syms[code, 0]:
                self._codes[int(syms[code, 0])] = self._first + code
        self._spare = [
            self._first + code for code in range(count) if not syms[code].any()
        ]
        self._link.setblocking(False)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._link.recv(count - len(data))
            if not piece:
                raise OSError("it has closed the connection")
            data += piece
        return data

    def _reply(self, request: bytes) -> bytes:
        self._link.sendall(request)
        while True:
            head = self._read(32)
            if head[0] == 0:
                raise OSError(f"error {head[1]}")
            if head[0] == 1:
                (length,) = struct.unpack_from("<I", head, 4)
                return head + self._read(4 * length)

    def key(self, key: int, down: bool) -> None:
        """Presses a key, or lets go of it."""
        code = self._codes.get(key)
        if code is None:
            code = self._lend(key)
        self.fake(_KEY_DOWN if down else _KEY_UP, code)

    def _lend(self, key: int) -> int:
        """Gives a key that the keyboard does not have a key code."""
        if self._spare:
            code = self._spare.pop(0)
        elif self._lent:
            before = next(iter(self._lent))
            code = self._lent.pop(before)
            del self._codes[before]
        else:
            raise DesktopError(f"The keyboard of Xvfb has no room for key {key:#x}.")
        self._lent[key] = self._codes[key] = code
        syms = [key] * self._width if key not in MODIFIERS else [key]
        syms += [0] * (self._width - len(syms))
        head = struct.pack("<BBHBBxx", _CHANGE_KEYS, 1, 2 + len(syms), code, len(syms))
        self._waiting += head + struct.pack(f"<{len(syms)}I", *syms)
        return code

    def fake(self, kind: int, detail: int, x: int = 0, y: int = 0) -> None:
        """Adds an event."""
        self._waiting += struct.pack(
            "<BBHBBxxIIxxxxxxxxhhxxxxxxxB",
            *(self._xtest, _FAKE, 9, kind, detail, 0),
            *(self._root if kind == _MOTION else 0, x, y, 0),
        )

    def flush(self) -> None:
        """Sends the events, and forgets what the server has said."""
        try:
            with contextlib.suppress(BlockingIOError):
                while self._link.recv(1 << 16):
                    pass
            while self._waiting:
                try:
                    sent = self._link.send(self._waiting)
                except BlockingIOError:
                    # A program may hold the server up for a while.
                    poll = select.poll()
                    poll.register(self._link, select.POLLOUT)
                    if not poll.poll(_TIMEOUT * 1000):
                        raise OSError(
                            f"it has read nothing for {_TIMEOUT:g} s"
                        ) from None
                    continue
                self._waiting = self._waiting[sent:]
        except OSError as error:
            raise DesktopError(f"The connection to Xvfb is lost: {error}.") from error

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()


def _padded(length: int) -> int:
    return -(-length // 4) * 4
