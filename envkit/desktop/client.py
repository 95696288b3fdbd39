"""`DesktopClient`: shows a remote desktop, and sends keys and pointer events."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable

import numpy as np

from envkit._shared.closing import Closable
from envkit._shared.secret_files import find
from envkit.desktop.encodings import (
    COPY,
    CURSOR,
    DESKTOP_SIZE,
    ENCODINGS,
    NAME,
    QUALITY,
    RAW,
    Codec,
    Cursor,
    Decoder,
    read_name,
)
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import KeyEvent, PointerEvent, keysym
from envkit.desktop.nonblocking_socket import NonblockingSocket
from envkit.desktop.pixels import MOST_PIXELS, PixelFormat, Rectangle
from envkit.desktop.protocol import (
    LAST,
    Begun,
    ClientProtocol,
    PasswordNeeded,
    RectangleBegun,
    encodings_message,
    event_message,
    format_message,
    request_message,
)
from envkit.desktop.tight import check_jpeg
from envkit.types import Array

__all__ = ["DesktopClient"]

# How many reads and seconds one call may spend after its deadline.
_MOST_READS, _OVERTIME = 64, 0.1
# Limits: bytes that the server has not read, and draws of each pixel in one update.
_MOST_UNSENT, _MOST_TIMES = 1 << 20, 16


class DesktopClient(Closable):
    """Shows the desktop of a VNC server, and sends keys and pointer events.

    It asks for new changes as soon as it has received some, so `frame` is as new as the
    last `update`.

    Attributes:
        frame: The picture: height, width, and red, green, blue. `update` draws into it,
            so copy it to keep it.
        name: The name of the desktop.
        cursor: The pointer's picture, if the server sends it apart from the desktop's.
        version: The version of the protocol in use.
        updates: The number of complete updates.
        received_at: The time of the last one, by `time.monotonic`; `None` before.
        on_update: A function to call after each one.

    Example:
        >>> from envkit.desktop import DesktopClient, DesktopServer
        >>> with DesktopServer((4, 3), password="secret") as server:
        ...     server.show(np.full((3, 4, 3), 7, np.uint8))
        ...     with DesktopClient(*server.address, password="secret") as desktop:
        ...         desktop.update(timeout=60), desktop.size, int(desktop.frame.max())
        (True, (4, 3), 7)
    """

    def __init__(
        self,
        host: str,
        port: int = 5900,
        *,
        password: str | None = None,
        shared: bool = True,
        encodings: Iterable[str] = ("zrle", "tight", "zlib", "copy", "raw"),
        quality: int | None = None,
        draw_cursor: bool = True,
        pixel_format: PixelFormat | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Connects, and asks for the first picture.

        Args:
            host: The server's name or address; the path of a Unix socket if it has a
                "/".
            port: The server's port.
            password: The password, if the server asks for one. Without it, the client
                finds the password that a server of the same user on the same machine
                has drawn.
            shared: Whether other viewers may stay connected.
            encodings: The encodings that the server may choose from, best first:
                "zrle", "tight" and "zlib" for a slow network, "raw" on one machine;
                "copy" goes with any of them.
            quality: The quality of JPEG in "tight", from 0 to 9; `None` for exact
                pictures. JPEG needs the package pillow.
            draw_cursor: Whether the server may draw its pointer into the picture. If
                not, `cursor` has the pointer's picture, if the server sends it.
            pixel_format: The format of pixels on the wire; by default 32 bits.
            timeout: Seconds within which the connection must be made.

        Raises:
            DesktopError: There is no server, or it refuses.
        """
        # All servers know raw pixels, and send them without being asked.
        wanted = [*map(_encoding, encodings), RAW]
        self._encodings = list(dict.fromkeys(wanted))
        if quality is not None:
            if not 0 <= quality <= 9:
                raise ValueError(f"quality must be from 0 to 9, got {quality!r}.")
            check_jpeg()
        self._allowed = [DESKTOP_SIZE, NAME, LAST]
        self._allowed += [] if draw_cursor else [CURSOR]
        self._allowed += [] if quality is None else [QUALITY + quality]
        self.cursor: Cursor | None = None
        self._format = pixel_format or PixelFormat()
        self._codec = Codec(self._format)
        self._host, self._port = host, port
        self._where = host if "/" in host else f"{host}:{port}"
        self.frame: Array = np.zeros((0, 0, 3), np.uint8)
        self.name = ""
        self.version = (3, 8)
        self.updates = 0
        self.received_at: float | None = None
        self.on_update: Callable[[], None] | None = None
        self._protocol = ClientProtocol(
            f"The VNC server at {self._where}", password=password, shared=shared
        )
        self._ready = False
        # True if more bytes were received than the last update took.
        self._has_more = False
        # Size changes and pixels drawn in the current update.
        self._resized = self._drawn = 0
        self._lost: DesktopError | None = None
        self._closed = False
        self._link = NonblockingSocket(_dial(host, port, timeout))
        deadline = time.monotonic() + timeout
        try:
            while not self._ready:
                if not self._wait(deadline):
                    raise DesktopError(
                        f"The VNC server at {self._where} must answer within "
                        f"{timeout:g} seconds, and has not."
                    )
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height of the desktop."""
        return self.frame.shape[1], self.frame.shape[0]

    def fileno(self) -> int:
        """Returns the connection's descriptor, for waiting on several at once."""
        return self._link.fileno()

    def update(self, timeout: float | None = 0.0) -> bool:
        """Draws the changes received; returns whether the picture may have changed.

        Args:
            timeout: Seconds to wait for a change if there is none yet; `None` waits as
                long as it takes.

        Raises:
            DesktopError: The connection is lost, or the server breaks the protocol.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        before, left = self.updates, _MOST_READS
        try:
            while left and self._wait(deadline if self.updates == before else 0.0):
                # A server may send faster than this client reads.
                late = 0.0 if deadline is None else time.monotonic() - deadline
                left -= late >= 0.0 or self.updates > before
                if late >= _OVERTIME and self.updates > before:
                    break
        except DesktopError as error:
            self._lost = error
            if self.updates == before:
                raise
            # Return this picture first; the next call raises.
        return self.updates > before

    def send(self, *events: KeyEvent | PointerEvent) -> None:
        """Sends events, in this order.

        Raises:
            DesktopError: The connection is lost, or the server does not read.
        """
        self._send(b"".join(map(event_message, events)))

    def key(self, key: str | int, down: bool) -> None:
        """Presses or releases a key.

        Args:
            key: The key's name, a character, or its keysym.
            down: Whether the key goes down.
        """
        self.send(KeyEvent(keysym(key), down))

    def press(self, *keys: str | int) -> None:
        """Presses keys together, and releases them in reverse order."""
        symbols = [keysym(key) for key in keys]
        self.send(*(KeyEvent(symbol, True) for symbol in symbols))
        self.send(*(KeyEvent(symbol, False) for symbol in reversed(symbols)))

    def pointer(self, x: int, y: int, buttons: int = 0) -> None:
        """Moves the pointer; each bit of `buttons` is a button that is down."""
        self.send(PointerEvent(x, y, buttons))

    def refresh(self) -> None:
        """Asks for the whole picture again, changed or not."""
        self._ask(incremental=False)

    def close(self) -> None:
        """Closes the connection; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._link.close()

    def _wait(self, deadline: float | None) -> bool:
        """Reads and writes once; returns whether anything was read in time."""
        if self._closed:
            raise DesktopError(f"The connection to {self._where} is closed.")
        if self._lost is not None:
            raise self._lost
        data = b""
        if not self._has_more:
            poll = select.poll()
            poll.register(
                self._link, select.POLLIN | (self._link.unsent and select.POLLOUT)
            )
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not poll.poll(None if left is None else left * 1000):
                return False
            self._link.write()
            data = self._link.read()
        self._read(data)
        return bool(data) or deadline is None or time.monotonic() < deadline

    def _ask(self, incremental: bool = True) -> None:
        place = Rectangle(0, 0, *self.size)
        self._send(request_message(place, incremental=incremental))

    def _send(self, data: bytes) -> None:
        if self._link.unsent > _MOST_UNSENT:
            raise DesktopError(
                f"The VNC server at {self._where} must read what it is sent; "
                f"{self._link.unsent} bytes are still unread."
            )
        self._link.send(data)

    def _read(self, data: bytes) -> None:
        """Handles bytes from the server, up to the end of an update."""
        protocol = self._protocol
        event = protocol.receive(data)
        while event is not None:
            if isinstance(event, RectangleBegun):
                event = protocol.decode(self._decoder(event.place, event.encoding))
                continue
            if isinstance(event, PasswordNeeded):
                protocol.give_password(self._drawn_password())
            elif isinstance(event, Begun):
                self._begin(event)
            else:
                self._finish_update()
                # A few more bytes could be many updates, each of them much work.
                self._has_more = True
                return
            event = protocol.receive()
        self._has_more = False
        self._link.send(protocol.data_to_send())

    def _begin(self, begun: Begun) -> None:
        """Ends the handshake, and asks for the first picture."""
        self.version, self.name = self._protocol.version, begun.name
        self._resize(begun.width, begun.height)
        self._link.send(self._protocol.data_to_send())
        if begun.pixel_format != self._format.pack():
            self._link.send(format_message(self._format))
        self._link.send(encodings_message([*self._encodings, *self._allowed]))
        self._ask(incremental=False)
        self._ready = True

    def _drawn_password(self) -> str | None:
        """Returns the password drawn by a server of this user on this machine."""
        if "/" in self._host:
            return None
        return find("password", self._host, self._port)

    def _decoder(self, place: Rectangle, encoding: int) -> Decoder:
        """Returns the generator that reads and draws a rectangle."""
        # Hot: called once per rectangle.
        if encoding == DESKTOP_SIZE:
            return self._resize_again(place)
        if encoding == NAME:
            return self._read_name()
        if encoding == CURSOR and CURSOR in self._allowed:
            return self._read_cursor(place)
        place.check_inside(self.frame)
        self._drawn += place.area
        if self._drawn > _MOST_TIMES * self.frame.size // 3:
            # Otherwise a few bytes could keep this client busy for hours.
            raise DesktopError(
                f"An update must draw each pixel at most {_MOST_TIMES} times, got "
                f"{self._drawn} pixels on a desktop of {self.size[0]} x "
                f"{self.size[1]}."
            )
        return self._codec.decode(encoding, place, self.frame)

    def _resize_again(self, place: Rectangle) -> Decoder:
        self._resized += 1
        if self._resized > _MOST_TIMES:
            raise DesktopError(
                f"An update must change the size at most {_MOST_TIMES} times, got more."
            )
        self._resize(place.width, place.height)
        yield from ()

    def _read_name(self) -> Decoder:
        self.name = yield from read_name()

    def _read_cursor(self, place: Rectangle) -> Decoder:
        self.cursor = yield from self._codec.decode_cursor(place)

    def _finish_update(self) -> None:
        self._resized = self._drawn = 0
        self.updates += 1
        self.received_at = time.monotonic()
        self._ask()
        if self.on_update is not None:
            self.on_update()

    def _resize(self, width: int, height: int) -> None:
        if width * height > MOST_PIXELS:
            raise DesktopError(
                f"A desktop must have at most {MOST_PIXELS} pixels, got {width} x "
                f"{height}."
            )
        before, self.frame = self.frame, np.zeros((height, width, 3), np.uint8)
        kept = self.frame[: before.shape[0], : before.shape[1]]
        kept[:] = before[:height, :width]


def _dial(host: str, port: int, timeout: float) -> socket.socket:
    try:
        if "/" not in host:
            return socket.create_connection((host, port), timeout)
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.settimeout(timeout)
            link.connect(host)
        except BaseException:
            link.close()
            raise
        return link
    except OSError as error:
        where = host if "/" in host else f"{host}:{port}"
        raise DesktopError(f"There is no VNC server at {where}: {error}.") from error


def _encoding(name: str) -> int:
    known: dict[str, int] = {**ENCODINGS, "copy": COPY}
    if name == "hextile":
        raise ValueError(
            "The encoding 'hextile' has been removed: use 'zrle', 'tight' or 'zlib'; a "
            "server that has none of them sends raw pixels."
        )
    if name not in known:
        raise ValueError(
            f"An encoding must be one of {', '.join(sorted(known))}, got {name!r}."
        )
    return known[name]
