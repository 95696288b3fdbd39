"""`Supervisor`: a process that starts a display and programs, and stops them all.

It is their parent, so it knows when they end and what they printed last. It is also a
*subreaper*: the kernel hands it the children of programs that have ended. When its
socket closes, its owner is gone, whatever signal killed it. The supervisor then kills
every process below it, and removes its folder and the files of X servers.

X servers admit every client that knows their cookie, which is in a file in the folder.
Without a cookie they would admit every account of the machine.

The process runs only this file, without envkit and NumPy, to start quickly.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

__all__ = ["ProgramEnd", "Supervisor", "SupervisorError"]

_PATIENCE = 120.0  # Seconds within which it answers, even on a busy machine.
_GRACE = 2.0  # Seconds for an X server to remove its files.
_MOST_WORDS = 4096  # Bytes kept from the end of a program's output.
_MARK = "ENVKIT_POOL"  # In the environment of a pool's workers and of their children.
_PDEATHSIG, _SUBREAPER = 1, 36  # From <linux/prctl.h>.
_LOCAL, _WILD = 256, 0xFFFF  # From <X11/Xauth.h>: this machine, and any.
_METHOD = b"MIT-MAGIC-COOKIE-1"


class SupervisorError(RuntimeError):
    """A display or a program could not be started."""


class ProgramEnd(NamedTuple):
    """Says how a program ended.

    Attributes:
        status: Its exit status, or minus the number of a signal.
        words: The last lines that it printed.
    """

    status: int
    words: str

    def __str__(self) -> str:
        if self.status < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-self.status).name}"
        return f"has ended with status {self.status}"


class _Messages:
    """Sends and receives messages, a line of JSON each, over a socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._rest = b""
        self.fileno, self.close = link.fileno, link.close

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message."""
        self._link.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """Returns the received messages; `None` if the other end is gone."""
        piece = b""
        with contextlib.suppress(OSError):
            piece = self._link.recv(1 << 16)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [json.loads(line) for line in lines] if piece else None


class Supervisor:
    """Starts and stops a display and programs through the supervisor process.

    Attributes:
        folder: A folder that only this user can open; it is removed in the end.
        authority: The file in it with the cookie of the display, for `XAUTHORITY`.

    Example:
        >>> supervisor = Supervisor()
        >>> number = supervisor.start(["sh", "-c", "echo bye; exit 3"])
        >>> while (ended := supervisor.ended(number)) is None:
        ...     pass
        >>> str(ended), ended.words
        ('has ended with status 3', 'bye')
        >>> supervisor.close()
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                # A pool kills processes with its mark, and this one must live to clean
                # up.
                env={name: os.environ[name] for name in os.environ if name != _MARK},
                pass_fds=[theirs.fileno()],
                # Ctrl-C must not reach it.
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._link: _Messages | None = _Messages(ours)
        self._answers: list[dict[str, Any]] = []
        self._ended: dict[int, ProgramEnd] = {}
        self._count = 0
        self.folder: str = self._answer()["folder"]
        self.authority = _authority(self.folder)

    def display(self, command: Sequence[str]) -> int:
        """Starts an X server, and returns the number of its display.

        Args:
            command: The command, in which "{folder}" stands for the folder. The server
                also gets a new cookie for each display.

        Raises:
            SupervisorError: The program does not exist, or has ended.
        """
        return int(self._ask({"display": list(command)})["display"])

    def start(
        self,
        command: Sequence[str],
        environ: Mapping[str, str | None] | None = None,
        folder: str | None = None,
    ) -> int:
        """Starts a program, and returns its number.

        Args:
            command: The program and its arguments.
            environ: Environment variables in addition to this process's; `None`
                removes one.
            folder: The program's working directory.

        Raises:
            SupervisorError: The program or the folder does not exist.
        """
        self._count += 1
        variables = dict(environ or {})
        message = {"start": list(command), "environ": variables, "cwd": folder}
        self._ask({**message, "number": self._count})
        return self._count

    def ended(self, number: int) -> ProgramEnd | None:
        """Returns how a program ended; `None` while it runs."""
        self._read(0.0)
        return self._ended.get(number)

    def display_ended(self) -> ProgramEnd | None:
        """Returns how the X server ended; `None` while it runs."""
        return self.ended(0)

    def stop(self, number: int) -> None:
        """Kills a program and everything it started, and waits until all have ended."""
        self._ask({"stop": number})
        self._ended.pop(number, None)

    def close(self) -> None:
        """Stops everything; calling it again does nothing."""
        if self._link is None:
            return
        self._link.close()
        self._link = None
        self._process.wait()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._link is None:
            raise SupervisorError("The supervisor is closed.")
        try:
            self._link.send(message)
        except OSError as error:
            raise SupervisorError(
                f"The supervisor of the desktop is gone: {error}."
            ) from error
        answer = self._answer()
        if "error" in answer:
            raise SupervisorError(answer["error"])
        return answer

    def _answer(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while not self._answers:
            left = deadline - time.monotonic()
            if left <= 0:
                raise SupervisorError(
                    "The supervisor of the desktop has not answered for "
                    f"{_PATIENCE:g} s."
                )
            self._read(left)
        return self._answers.pop(0)

    def _read(self, timeout: float) -> None:
        """Reads messages; waits up to `timeout` seconds for the first one."""
        if self._link is None:
            raise SupervisorError("The supervisor is closed.")
        while _readable([self._link.fileno()], timeout):
            timeout = 0.0
            messages = self._link.receive()
            if messages is None:
                raise SupervisorError("The supervisor of the desktop is gone.")
            for message in messages:
                if "ended" in message:
                    number, *ended = message["ended"]
                    self._ended[number] = ProgramEnd(*ended)
                else:
                    self._answers.append(message)


# The rest runs in the process itself.


class _Running:
    """A child of the supervisor, with the pipe that it prints to.

    Attributes:
        is_silent: Whether it has closed the pipe.
        printed: The end of its output.
    """

    def __init__(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self.number = number
        self.process = process
        self.is_silent = False
        self.printed = b""
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)

    def read(self) -> None:
        """Reads the pipe, and keeps the end of the output."""
        pipe = self.process.stdout
        piece: bytes | None = None
        with contextlib.suppress(OSError, ValueError):
            while pipe and (piece := pipe.read(1 << 16)):
                self.printed = (self.printed + piece)[-_MOST_WORDS:]
            # An empty piece is the end of the pipe; `None` means nothing to read yet.
            self.is_silent = self.is_silent or piece == b""

    def words(self) -> str:
        """Returns the end of the output as text."""
        self.read()
        return self.printed.decode("utf-8", "replace").strip()


class _Process:
    """Runs the loop of the supervisor."""

    def __init__(self, link: socket.socket) -> None:
        self._link = _Messages(link)
        # The cookie of an X server that has not printed its number yet.
        self._cookie: bytes | None = None
        self._owner = os.getppid()
        self._running: dict[int, _Running] = {}
        # The files of the X server, with their inodes.
        self._files: dict[str, int] = {}
        self._folder = tempfile.mkdtemp(prefix="envkit-desktop-")

    def run(self) -> None:
        """Handles messages until the owner is gone."""
        bell, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(bell, False)
        signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._send({"folder": self._folder})
        while os.getppid() == self._owner:
            pipes = {
                one.process.stdout.fileno(): one
                for one in self._running.values()
                if one.process.stdout is not None and not one.is_silent
            }
            link = self._link.fileno()
            # With a timeout, because another process may have a copy of the owner's
            # socket.
            for ready in _readable([link, bell, *pipes], 0.5):
                if ready == bell:
                    with contextlib.suppress(BlockingIOError):
                        os.read(bell, 4096)
                elif ready != link:
                    pipes[ready].read()
                    self._announce_display()
                elif not self._handle():
                    return
            self._reap()

    def clean(self) -> None:
        """Stops every process below this one, and removes their files."""
        display = self._running.pop(0, None)
        kept = [display.process.pid] if display else []
        self._end_all(but=kept)
        if display is not None:
            display.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                display.process.wait(_GRACE)
        self._end_all(but=[])
        self._remove_files()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remove_files(self) -> None:
        """Removes the files that an X server has left behind."""
        for file, inode in self._files.items():
            with contextlib.suppress(OSError):
                # Unless another server has taken the number since.
                if os.stat(file).st_ino == inode:
                    os.unlink(file)
        self._files = {}

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._link.send(message)

    def _handle(self) -> bool:
        """Handles the messages received; returns False if the owner is gone."""
        messages = self._link.receive()
        for message in messages or ():
            try:
                if "display" in message:
                    self._start_display(message["display"])
                elif "start" in message:
                    self._start(message["number"], message["start"], message)
                    self._send({"started": message["number"]})
                else:
                    self._stop(message["stop"])
                    self._send({"stopped": message["stop"]})
            except (OSError, ValueError) as error:
                self._send({"error": str(error)})
        return messages is not None

    def _start(self, number: int, command: list[str], options: dict[str, Any]) -> None:
        environ = {**os.environ, **options.get("environ", {})}
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={
                    name: value for name, value in environ.items() if value is not None
                },
                cwd=options.get("cwd"),
                start_new_session=True,
                preexec_fn=_die_with_parent,
                bufsize=0,
            )
        except FileNotFoundError as error:
            kind = "folder" if error.filename == options.get("cwd") else "program"
            raise OSError(f"There is no {kind} {error.filename!r}.") from None
        except PermissionError as error:
            raise OSError(
                f"{error.filename!r} must be a program that may be executed."
            ) from None
        self._running[number] = _Running(number, process)

    def _start_display(self, command: list[str]) -> None:
        """Starts an X server, which prints its number when it is ready."""
        self._remove_files()
        self._cookie = os.urandom(16)
        # The server accepts any entry of the file; it has no number yet.
        self._write_authority(_entry(_WILD, b"", b"", self._cookie))
        command = [part.replace("{folder}", self._folder) for part in command]
        options = ["-displayfd", "1", "-auth", _authority(self._folder)]
        self._start(0, [*command, *options], {})

    def _announce_display(self) -> None:
        """Sends the number of a display once the X server has printed it."""
        display = self._running.get(0)
        found = re.search(rb"^(\d+)\n", display.printed, re.M) if display else None
        if self._cookie is None or found is None:
            return
        cookie, self._cookie = self._cookie, None
        number = int(found[1])
        for file in (f"/tmp/.X{number}-lock", f"/tmp/.X11-unix/X{number}"):
            with contextlib.suppress(OSError):
                self._files[file] = os.stat(file).st_ino
        # Some programs look up the entry by the name of this machine, and by the
        # number.
        name, place = socket.gethostname().encode(), str(number).encode()
        self._write_authority(
            _entry(_LOCAL, name, place, cookie) + _entry(_WILD, b"", place, cookie)
        )
        self._send({"display": number})

    def _write_authority(self, entries: bytes) -> None:
        """Replaces the file with the cookie, which only this user can read."""
        authority = _authority(self._folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(f"{authority}.new", flags, 0o600), "wb") as file:
            file.write(entries)
        os.replace(f"{authority}.new", authority)

    def _stop(self, number: int) -> None:
        running = self._running.pop(number, None)
        kept = [one.process.pid for one in self._running.values()]
        if running is not None and running.process.poll() is None:
            _kill(running.process.pid)
        # This includes the program's children, which now belong to this process.
        self._end_all(but=kept)
        if running is not None:
            with contextlib.suppress(OSError):
                if running.process.stdout:
                    running.process.stdout.close()

    def _end_all(self, but: list[int]) -> None:
        """Kills the processes below this one, except some and their descendants."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            found = [pid for pid in _children(os.getpid()) if pid not in but]
            if not found:
                return
            for pid in found:
                _kill(pid)
            for pid in found:
                # Once this returns, the children of the dead belong to this process.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _reap(self) -> None:
        """Reports programs that have ended, and reaps the processes that they left."""
        for number, running in list(self._running.items()):
            if running.process.poll() is not None:
                del self._running[number]
                words = running.words()
                if number == 0 and self._cookie is not None:
                    program = running.process.args[0]  # type: ignore[index]  # a list
                    words = words or "it printed nothing"
                    self._send({"error": f"{program!s} does not start: {words}"})
                else:
                    status = running.process.returncode
                    self._send({"ended": [number, status, words]})
        known = {one.process.pid for one in self._running.values()}
        for pid in _children(os.getpid()):
            if pid not in known:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _authority(folder: str) -> str:
    return f"{folder}/Xauthority"


def _entry(family: int, address: bytes, number: bytes, cookie: bytes) -> bytes:
    """Returns an entry of an Xauthority file."""
    texts = (address, number, _METHOD, cookie)
    parts = [struct.pack(">H", len(text)) + text for text in texts]
    return struct.pack(">H", family) + b"".join(parts)


def _readable(numbers: Sequence[int], timeout: float) -> list[int]:
    """Waits for descriptors; returns those that are readable or have ended."""
    poller = select.poll()  # Not select(), which refuses descriptors above 1023.
    for number in numbers:
        poller.register(number, select.POLLIN)
    return [number for number, _ in poller.poll(timeout * 1000)]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> Iterator[int]:
    """Yields the children of a process, including zombies."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The program's name may contain spaces and brackets.
                if int(file.read().rpartition(b")")[2].split()[1]) == pid:
                    yield int(name)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    """Makes the kernel kill a program if the supervisor dies."""
    _prctl(_PDEATHSIG, signal.SIGKILL)


def _main() -> NoReturn:
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _prctl(_SUBREAPER, 1)
    process = _Process(link)
    try:
        process.run()
    finally:
        process.clean()
    sys.exit(0)


if __name__ == "__main__":
    _main()
