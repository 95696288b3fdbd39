"""`DesktopServer`: shows pictures to VNC viewers, and takes their keys and pointer."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

from envkit.desktop.keys import Event
from envkit.desktop.protocol import DesktopError
from envkit.desktop.viewer import Viewer, changed_tiles, grid_of
from envkit.errors import ClosedError
from envkit.secret_files import DRAW, Draw, ServerSecret
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = ["DesktopServer"]

_log = logging.getLogger(__name__)

_LARGEST, _MOST_PIXELS = 0xFFFF, 1 << 26


class DesktopServer:
    """Shows pictures to VNC viewers, and takes their keys and pointer.

    It serves in a thread of its own. A viewer gets what has changed since its last
    update, and no update before it has taken the one before, so slow viewers see fewer
    pictures and hold up none of the others.

    Viewers need a password, which is drawn unless it is given: `passwords` has it, and
    a `DesktopClient` of the same user on the same machine finds it.

    One viewer controls: of those that know `password`, the one that has been there
    longest. Events of the others are dropped; they observe.

    Attributes:
        address: The host and the port that it listens at.
        name: The name that viewers show.
        passwords: That of viewers that control, and that of observers.

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
        password: str | Draw | None = DRAW,
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
            password: What viewers must know, drawn unless given; `None` lets every
                account of the machine control.
            observer_password: What viewers must know that only observe.
            on_event: Called with each event of the viewer that controls, in the thread
                of the server: it must return soon. A `DesktopError` that it raises ends
                the connection of the viewer.
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
        self.name = name
        secret = ServerSecret("password", password)
        self.passwords = (secret.text, observer_password)
        self._on_event = on_event
        self._most, self._patience = max_viewers, handshake_timeout
        self._frame: Array = np.zeros((height, width, 3), np.uint8)
        self._changes: Array | None = None
        self._lock = threading.Lock()
        self._viewers: list[Viewer] = []
        self._closing = False
        self._failure: BaseException | None = None
        with contextlib.ExitStack() as stack:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family)
            self._listener = stack.enter_context(listener)
            self._listener.setblocking(False)
            self.address: tuple[str, int] = self._listener.getsockname()[:2]
            secret.publish(self.address)
            stack.callback(secret.close)
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

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height of the picture."""
        return self._frame.shape[1], self._frame.shape[0]

    def rename(self, name: str) -> None:
        """Changes the name, which viewers show as the title of their windows."""
        if name != self.name:
            self.name = name
            with self._lock:
                if not self._closing:
                    self._ring()

    def take(self, viewer: Viewer, event: Event) -> bool:
        """Hands on an event of a viewer, if it controls; returns whether it does."""
        if self._on_event is None or viewer is not self._controller():
            return False
        self._on_event(event)
        return True

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
                changed = changed_tiles(self._frame, picture)
                if not changed.any():
                    return
                if self._changes is not None:
                    changed |= self._changes
            else:
                changed = np.ones(grid_of(picture), bool)
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
        viewer = Viewer(self, link, str(address[0]), time.monotonic() + self._patience)
        self._viewers.append(viewer)
        self._selector.register(viewer.wire, selectors.EVENT_READ, viewer)
        self._attend(viewer, 0)

    def _attend(self, viewer: Viewer, mask: int) -> None:
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

    def _drop(self, viewer: Viewer, reason: str = "the server is closing") -> None:
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

    def _controller(self) -> Viewer | None:
        return next((one for one in self._viewers if one.ready and one.controls), None)


def _is_size(width: int, height: int) -> bool:
    is_inside = 0 < width <= _LARGEST and 0 < height <= _LARGEST
    return is_inside and width * height <= _MOST_PIXELS
