"""`DesktopServer`: shows pictures to VNC viewers, and receives their events."""

from __future__ import annotations

import collections
import contextlib
import errno
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from envkit._shared.admission import Admission, Stranger
from envkit._shared.closing import Closable
from envkit._shared.listening import listener
from envkit._shared.secret_files import DRAW, Draw
from envkit._shared.server_secret import ServerSecret
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import Event
from envkit.desktop.pixels import MOST_PIXELS
from envkit.desktop.viewer import Viewer, changed_tiles, grid_of
from envkit.errors import ClosedError
from envkit.extend import counted, describe
from envkit.types import Array

__all__ = ["DesktopServer"]

_log = logging.getLogger(__name__)

_LARGEST = 0xFFFF
# Most connections in the handshake at a time; `max_viewers` if that is more.
_MOST_STRANGERS = 16
# Seconds without accepting connections when no descriptor is left.
_DEAF = 0.25


class DesktopServer(Closable):
    """Shows pictures to VNC viewers, and receives their key and pointer events.

    It runs in its own thread. A viewer gets the changes since its last update, and
    no update until it has read the one before, so a slow viewer sees fewer pictures and
    delays nobody else.

    Viewers need a password, by default a random one: `passwords` has it, and a
    `DesktopClient` of the same user on the same machine finds it.

    One viewer controls: among those that know `password`, the one that connected first.
    The others observe, and their events are dropped. If the viewer that controls stops
    reading, it goes to the end of the line, and the next one controls.

    A viewer that leaves, hangs or breaks the protocol ends only its own connection.
    After a wrong password, the next attempt from that address is answered a second
    later, then two, then four, on any connection; other addresses do not wait.

    Attributes:
        address: The host and port of the server.
        name: The name that viewers show.
        passwords: The passwords of viewers that control and of observers.

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
        size: tuple[int, int] | None = (640, 480),
        *,
        host: str = "127.0.0.1",
        port: int | socket.socket = 0,
        name: str = "envkit",
        password: str | Draw | None = DRAW,
        observer_password: str | None = None,
        on_event: Callable[[Event], object] | None = None,
        max_viewers: int = 16,
        handshake_timeout: float = 10.0,
        control_timeout: float = 5.0,
    ) -> None:
        """Starts the server with a black picture.

        Args:
            size: The width and height of the black picture; with `None`, viewers wait
                for the first `show`.
            host: The address to listen on.
            port: The port; 0 picks a free one. Or a socket that already listens.
            name: The name that viewers show.
            password: The password for viewers, by default a random one; `None` lets
                every account of the machine control.
            observer_password: A password with which viewers can only watch.
            on_event: Called with each event of the viewer that controls, in the
                server's thread, so it must return soon. An error that it raises ends
                the viewer's connection; any but a `DesktopError` is logged.
            max_viewers: The largest number of viewers at a time. Connections that have
                not finished the handshake do not count: if there are too many of those,
                the oldest is dropped.
            handshake_timeout: Seconds within which a viewer must finish the handshake.
            control_timeout: Seconds after which a viewer that reads nothing loses
                control to the next one that may have it.
        """
        width, height = (0, 0) if size is None else size
        if size is not None and not _is_size(width, height):
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
        self._most = max_viewers
        self._control_timeout = control_timeout
        self._admission = Admission(
            "vnc", most=max(max_viewers, _MOST_STRANGERS), patience=handshake_timeout
        )
        self._frame: Array = np.zeros((height, width, 3), np.uint8)
        self._changes: Array | None = None
        self._lock = threading.Lock()
        self._viewers: list[Viewer] = []
        self._adopted: collections.deque[tuple[socket.socket, tuple[str, int], bool]]
        self._adopted = collections.deque()
        # Since when several viewers may control; until when no connection is accepted.
        self._contested_at: float | None = None
        self._deaf_until: float | None = None
        self._closing = False
        self._failure: BaseException | None = None
        with contextlib.ExitStack() as stack:
            self._listener = stack.enter_context(listener(host, port))
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
        """The number of connected viewers."""
        return sum(viewer.ready for viewer in self._viewers)

    @property
    def is_closed(self) -> bool:
        """True once the server has ended."""
        return self._closing or self._failure is not None

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height of the picture; 0 and 0 before the first one."""
        return self._frame.shape[1], self._frame.shape[0]

    def rename(self, name: str) -> None:
        """Changes the name, which is the title of viewers' windows."""
        if name != self.name:
            self.name = name
            with self._lock:
                if not self._closing:
                    self._ring()

    def adopt(
        self, link: socket.socket, address: tuple[str, int], *, controls: bool
    ) -> None:
        """Takes over the connection of a viewer whose password was checked elsewhere.

        Args:
            link: The connection, with the same protocol as any other.
            address: The viewer's address.
            controls: Whether the viewer may control.
        """
        with self._lock:
            if self.is_closed:
                link.close()
            else:
                self._adopted.append((link, address, controls))
                self._ring()

    # Viewers call these methods, in the thread.

    def handle(self, viewer: Viewer, event: Event) -> bool:
        """Passes on an event if the viewer is in control; returns whether it is."""
        if self._on_event is None or not self.is_controller(viewer):
            return False
        self._on_event(event)
        return True

    def is_controller(self, viewer: Viewer) -> bool:
        """Returns True if this viewer is in control."""
        return viewer is self._controller()

    def refusal(self) -> str | None:
        """Returns why no more viewers are admitted; `None` if there is room."""
        if self.viewers < self._most:
            return None
        are = "is" if self._most == 1 else "are"
        return f"There {are} {counted(self._most, 'viewer')} already."

    def judged_at(self, host: str, *, is_right: bool) -> float:
        """Returns when to tell a viewer whether its password is right."""
        now = time.monotonic()
        return self._admission.guesses.judged_at(host, now, is_right=is_right)

    def welcome(self, viewer: Viewer) -> None:
        """Logs that a viewer has finished the handshake."""
        self._admission.leave(viewer.stranger.place)
        role = "controls" if self.is_controller(viewer) else "observes"
        self._admission.log(
            viewer.stranger.place, f"has connected as a viewer, and {role}"
        )

    def show(self, picture: Array) -> None:
        """Shows a picture: a uint8 array of height, width, and red, green, blue.

        Its size may change, and viewers that can change theirs follow.

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
        """Returns why the server ended without `close`; `None` while it runs."""
        return None if self._failure is None else repr(self._failure)

    def _ring(self) -> None:
        # A full pipe wakes the thread too.
        with contextlib.suppress(BlockingIOError):
            os.write(self._bell, b"\0")

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._round()
        except Exception as error:
            _log.exception("The desktop at port %d has ended.", self.address[1])
            with self._lock:
                self._failure = error
        finally:
            for viewer in list(self._viewers):
                self._drop(viewer)
            for link, *_ in self._adopted:
                link.close()

    def _round(self) -> None:
        for key, mask in self._selector.select(self._idle_time()):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj == self._ear:
                with contextlib.suppress(BlockingIOError):
                    while os.read(self._ear, 4096):
                        pass
            else:
                self._attend(key.data, mask)
        while self._adopted:
            link, address, controls = self._adopted.popleft()
            self._admit(link, address, controls)
        now = time.monotonic()
        for viewer in list(self._viewers):
            if viewer.waits:
                self._attend(viewer, selectors.EVENT_READ)
        self._admission.drop_late(now)
        if self._deaf_until is not None and now >= self._deaf_until:
            self._deaf_until = None
            self._selector.register(self._listener, selectors.EVENT_READ)
        self._pass_controls(now)
        self._send_updates()

    def _idle_time(self) -> float:
        """Returns how long the thread may sleep, unless the bell rings."""
        moments = [viewer.due for viewer in self._viewers if viewer.waits]
        moments.append(self._admission.next_deadline())
        if self._deaf_until is not None:
            moments.append(self._deaf_until)
        now = time.monotonic()
        if self._contested_at is not None:
            moments.append(now + self._control_timeout / 4)
        return max(0.0, min([*moments, now + 60.0]) - now)

    def _accept(self) -> None:
        try:
            link, address = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                # The listener stays readable, so without a pause this loop would spin.
                _log.warning("No viewer can connect for a moment: %s.", error)
                self._admission.make_room()
                self._selector.unregister(self._listener)
                self._deaf_until = time.monotonic() + _DEAF
            return  # Otherwise the viewer has given up already.
        self._admit(link, address)

    def _admit(
        self,
        link: socket.socket,
        address: tuple[str, int],
        controls: bool | None = None,
    ) -> None:
        """Begins the handshake of a connection."""
        stranger = self._admission.meet(
            address, lambda reason: self._drop_stranger(stranger, reason)
        )
        try:
            viewer = Viewer(self, link, stranger, controls=controls)
        except OSError as error:
            link.close()
            self._admission.lose(stranger)
            _log.debug("a viewer has left: %s", error)
            return
        self._viewers.append(viewer)
        self._attend(viewer, 0)

    def _drop_stranger(self, stranger: Stranger, reason: str) -> None:
        for viewer in list(self._viewers):
            if viewer.stranger is stranger:
                self._drop(viewer, reason)

    def _attend(self, viewer: Viewer, mask: int) -> None:
        """Reads from and writes to a viewer, as far as possible without waiting."""
        if viewer not in self._viewers:
            return
        with self._on_behalf_of(viewer):
            waiting = viewer.link.unsent
            has_read = bool(mask & selectors.EVENT_READ) and viewer.read()
            viewer.link.write()
            # A viewer that sends but reads nothing does not see what it controls.
            if viewer.link.unsent < waiting or (has_read and not viewer.link.unsent):
                viewer.alive_at = time.monotonic()
            if viewer.leaving and not viewer.link.unsent:
                raise DesktopError(viewer.leaving)
            wanted = 0 if viewer.waits else selectors.EVENT_READ
            self._watch(
                viewer, wanted | (selectors.EVENT_WRITE if viewer.link.unsent else 0)
            )

    @contextlib.contextmanager
    def _on_behalf_of(self, viewer: Viewer) -> Iterator[None]:
        """Drops only this viewer if the block raises."""
        try:
            yield
        except DesktopError as error:
            self._drop(viewer, str(error))
        except Exception as error:
            _log.exception("Serving the viewer at %s failed.", viewer.stranger.place)
            self._drop(viewer, f"the server raised {type(error).__name__}")

    def _watch(self, viewer: Viewer, wanted: int) -> None:
        """Sets whether the thread wakes up when a viewer can be read or written."""
        if wanted == viewer.watched:
            return
        if not viewer.watched:
            self._selector.register(viewer.link, wanted, viewer)
        elif not wanted:
            self._selector.unregister(viewer.link)
        else:
            self._selector.modify(viewer.link, wanted, viewer)
        viewer.watched = wanted

    def _drop(self, viewer: Viewer, reason: str = "the server is closing") -> None:
        if viewer not in self._viewers:
            return
        try:
            viewer.release_all()  # while it controls
        except Exception:
            _log.exception(
                "The keys of the viewer at %s stay down.", viewer.stranger.place
            )
        self._viewers.remove(viewer)
        self._watch(viewer, 0)
        viewer.link.close()
        place = viewer.stranger.place
        if viewer.ready:
            self._admission.log(place, f"has left: {reason}")
        elif self._admission.leave(place):
            self._admission.refuse(place, reason)

    def _send_updates(self) -> None:
        with self._lock:
            frame, changes, self._changes = self._frame, self._changes, None
        for viewer in list(self._viewers):
            viewer.add_changes(frame, changes)
            if viewer.wants_update():
                with self._on_behalf_of(viewer):
                    viewer.send_update(frame)
                self._attend(viewer, 0)

    def _controller(self) -> Viewer | None:
        return next((one for one in self._viewers if one.ready and one.controls), None)

    def _pass_controls(self, now: float) -> None:
        """Passes control on if the viewer that has it has stopped reading."""
        able = [one for one in self._viewers if one.ready and one.controls]
        if len(able) < 2:
            self._contested_at = None
            return
        if self._contested_at is None:
            self._contested_at = now
        # A viewer that reads asks for the next update after each one.
        for viewer in able:
            if now - viewer.alive_at >= self._control_timeout / 4:
                viewer.probe()
        hung = [one for one in able if one.silence(now) >= self._control_timeout]
        first, *others = able
        is_late = now - self._contested_at >= self._control_timeout
        heirs = [one for one in others if one not in hung]
        if first not in hung or not is_late or not heirs:
            return
        with self._on_behalf_of(first):
            first.release_all()
        # A new list, because other threads may be counting the viewers in the old one.
        self._viewers = sorted(self._viewers, key=lambda one: one in hung)
        self._contested_at = now
        _log.info(
            "The viewer at %s controls now, because the one at %s has read nothing for "
            "%g s.",
            *(heirs[0].stranger.place, first.stranger.place, self._control_timeout),
        )


def _is_size(width: int, height: int) -> bool:
    is_inside = 0 < width <= _LARGEST and 0 < height <= _LARGEST
    return is_inside and width * height <= MOST_PIXELS
