"""`Display`: starts, watches, restarts and stops a screen and its program."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np

from envkit._shared.secret_files import secret_in
from envkit.desktop.client import DesktopClient
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import Event
from envkit.desktop.screen_thread import Probe, ScreenThread
from envkit.desktop.supervisor import ProgramEnd, Supervisor, SupervisorError
from envkit.errors import MissingDependencyError
from envkit.extend import describe
from envkit.types import Array

__all__ = ["Display"]

_LOGGER = logging.getLogger(__name__)

# Longest wait for an ended program to vanish from the screen, in seconds.
_SHADOW = 2.0
# The largest share of the pixels that a cursor covers.
_CURSOR = 0.01
# The largest coordinate of an X server.
_LARGEST = 32767
# Variables that make programs draw on another screen, or on none.
_OTHER_SCREENS = (
    *("WAYLAND_DISPLAY", "WAYLAND_SOCKET", "SDL_VIDEODRIVER", "GDK_BACKEND"),
    "QT_QPA_PLATFORM",
)
_XVNC = [
    *("Xvnc", "-rfbunixpath", "{folder}/rfb", "-rfbport", "-1", "-AlwaysShared"),
    *("-SecurityTypes", "None", "-FrameRate", "120", "-depth", "24"),
    *("-nolisten", "tcp", "-noreset", "-geometry", "{size}"),
]


class Display:
    """Runs a screen, and a program on it.

    Attributes:
        screen: The screen; `restart` replaces one that was lost.
        folder: A folder that exists as long as the display.
    """

    def __init__(
        self,
        display: str,
        size: tuple[int, int] | None,
        password: str | None,
        timeout: float,
    ) -> None:
        """Starts the display, or connects to one.

        Args:
            display: "local" or an address.
            size: The width and height of a local display.
            password: The password of a remote display.
            timeout: Seconds within which the display must be ready.
        """
        self._address = display
        self._size = size or (640, 480)
        self._password = password
        self._timeout = timeout
        self._program: int | None = None
        self._lost: str | None = None
        self._number: int | None = None
        self._probe: Probe | None = None
        self._is_local = display == "local"
        if not self._is_local:
            _parts_of(display)  # Refuse a wrong address before anything is started.
        elif max(self._size) > _LARGEST:
            raise ValueError(
                f"size must be at most {_LARGEST} x {_LARGEST} on a local display, got "
                f"{self._size[0]} x {self._size[1]}."
            )
        self._supervisor = Supervisor()
        try:
            self._open()
        except BaseException:
            self._supervisor.close()
            raise

    def set_probe(self, probe: Probe | None) -> None:
        """Sets the probe, which measures the time from a key to its pixels."""
        self._probe = self.screen.probe = probe

    @property
    def folder(self) -> str:
        """A folder that is removed with the display."""
        return self._supervisor.folder

    def _open(self) -> None:
        client = self._started() if self._is_local else self._connected()
        self.screen = ScreenThread(client, self._probe)
        self._lost = None
        # The first picture shows the screen without a program.
        self.screen.update(self._timeout)
        self._blank = self.screen.frame.copy()

    def _started(self) -> DesktopClient:
        """Starts a local display, and connects to it."""
        if shutil.which("Xvnc") is None:
            raise MissingDependencyError(
                "A local display needs Xvnc, which is not installed. apt-get install "
                "tigervnc-standalone-server"
            )
        size = "{}x{}".format(*self._size)
        try:
            self._number = self._supervisor.display(
                [part.replace("{size}", size) for part in _XVNC]
            )
        except SupervisorError as error:
            raise DesktopError(str(error)) from error
        return DesktopClient(
            f"{self.folder}/rfb", encodings=("raw", "copy"), timeout=self._timeout
        )

    def _connected(self) -> DesktopClient:
        """Connects to a remote display, which may still be starting."""
        host, port, password = _parts_of(self._address)
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return DesktopClient(
                    host,
                    port,
                    password=password if self._password is None else self._password,
                    timeout=max(deadline - time.monotonic(), 1.0),
                )
            except DesktopError as error:
                refused = not isinstance(error.__cause__, OSError)
                if refused or time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)

    @property
    def name(self) -> str:
        """The X display, such as ":7", or the address."""
        return self._address if self._number is None else f":{self._number}"

    def access(self) -> dict[str, str]:
        """Returns the environment variables with which programs reach the X server."""
        if self._number is None:
            return {}
        return {"DISPLAY": f":{self._number}", "XAUTHORITY": self._supervisor.authority}

    @property
    def has_program(self) -> bool:
        """Whether a program has been started and not stopped."""
        return self._program is not None

    def start(
        self, command: Sequence[str], environ: dict[str, str], folder: str | None
    ) -> None:
        """Starts a program in place of the previous one."""
        self.stop()
        elsewhere = dict.fromkeys(_OTHER_SCREENS) if self._is_local else {}
        try:
            self._program = self._supervisor.start(
                list(command), {**elsewhere, **self.access(), **environ}, folder
            )
        except SupervisorError as error:
            raise DesktopError(str(error)) from error

    def stop(self) -> None:
        """Stops the program, and waits until the screen no longer shows it."""
        if self._program is None:
            return
        self._supervisor.stop(self._program)
        self._program = None
        if not self._is_local or self.trouble() is not None:
            return
        deadline = time.monotonic() + _SHADOW
        while time.monotonic() < deadline:
            if _share_of_changes(self.screen.frame, self._blank) <= _CURSOR:
                return
            self.update(max(deadline - time.monotonic(), 0.0))

    def update(self, timeout: float = 0.0) -> bool:
        """Draws the changes received; `trouble` tells if the connection is lost."""
        if self._lost is not None:
            return False
        try:
            return self.screen.update(timeout)
        except DesktopError as error:
            self._lost = str(error)
            return False

    def send(self, events: list[Event]) -> None:
        """Sends events; `trouble` tells whether the connection is lost."""
        if self._lost is not None or not events:
            return
        try:
            self.screen.send(*events)
        except DesktopError as error:
            self._lost = str(error)

    def trouble(self) -> str | None:
        """Returns why the episode cannot continue; `None` if it can."""
        if self._program is not None:
            ended = self._supervisor.ended(self._program)
            if ended is not None:
                words = f"; its last output: {ended.words}" if ended.words else ""
                return f"the program {ended}{words}"
        if (ended := self._server_end()) is not None:
            return f"the X server {ended}"
        return self._lost

    def loss_kind(self) -> str | None:
        """Returns the kind of the `Loss` behind `trouble`.

        It is `None` if the program has exited with status 0.
        """
        if self._program is not None:
            ended = self._supervisor.ended(self._program)
            if ended is not None:
                return "crashed" if ended.status else None
        return "link_lost" if self._server_end() is None else "crashed"

    def _server_end(self) -> ProgramEnd | None:
        """Returns how the local X server has ended; `None` if it has not."""
        return self._supervisor.display_ended() if self._is_local else None

    def restart(self, *, again: bool = False) -> None:
        """Restarts a display that has ended, or reconnects to one that was lost.

        Args:
            again: Whether to do so even if nothing failed: the machine was reset.
        """
        if self._server_end() is None and self._lost is None and not again:
            return
        self.stop()
        self.screen.close()
        if self._is_local:
            self._supervisor.stop(0)
        self._open()

    def close(self) -> None:
        """Stops the program, the display and everything that they started."""
        try:
            self.screen.close()
        finally:
            self._supervisor.close()


def _parts_of(display: Any) -> tuple[str, int, str | None]:
    """Returns the host, port and password of an address."""
    if display in ("xvnc", "xvfb"):
        raise ValueError(
            f"display={display!r} has been removed: display='local' starts Xvnc, the "
            "one server of local displays."
        )
    try:
        parts = urlsplit(display if isinstance(display, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urlsplit("")
    has_place = parts.path in ("", "/") if host else parts.path.startswith("/")
    if parts.scheme != "vnc" or not has_place or parts.fragment:
        raise ValueError(
            "display must be 'local' or an address such as 'vnc://host:5900', got "
            f"{describe(display)}."
        )
    password = None if parts.password is None else unquote(parts.password)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if given.keys() - {"password_file"}:
        raise ValueError(
            "After ? an address must have password_file=PATH or nothing, got "
            f"{', '.join(sorted(given))}."
        )
    if given:
        secret = secret_in(given["password_file"], "password_file")
        password = secret.decode("utf-8", "replace").splitlines()[0]
    if not host:
        return unquote(parts.path), 0, password
    return host, 5900 if port is None else port, password


def _share_of_changes(frame: Array, other: Array) -> float:
    """Returns the share of the pixels that differ."""
    if frame.shape != other.shape:
        return 1.0
    return float(np.mean((frame != other).any(axis=-1)))
