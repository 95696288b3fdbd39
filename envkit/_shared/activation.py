"""Takes sockets from systemd, and reports a service's status to it.

systemd listens, and starts the service with its sockets as descriptors from 3 on:
`LISTEN_FDS` is their number, `LISTEN_PID` the process they are for, and
`LISTEN_FDNAMES` their names in the unit (`FileDescriptorName=`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from envkit._shared.listening import place_of
from envkit.extend import counted

__all__ = ["InheritedSocket", "inherited_sockets", "notify", "shared_out"]

_FIRST = 3
_VARIABLES = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


class InheritedSocket(NamedTuple):
    """A listening socket from before the server started, and its name."""

    name: str
    sock: socket.socket

    @property
    def place(self) -> str:
        """The address and port it listens on."""
        return place_of(self.sock.getsockname())


def inherited_sockets() -> list[InheritedSocket]:
    """Takes the sockets that this process was started with; a second call finds none.

    Child processes inherit neither the sockets nor the variables.

    Raises:
        ValueError: One of the sockets cannot be used.
    """
    given = {name: os.environ.pop(name, "") for name in _VARIABLES}
    if given["LISTEN_PID"] != str(os.getpid()):
        return []  # they are for the process that started this one
    count = int(given["LISTEN_FDS"]) if given["LISTEN_FDS"].isdecimal() else 0
    names = given["LISTEN_FDNAMES"].split(":") if given["LISTEN_FDNAMES"] else []
    unnamed = itertools.repeat("unknown")
    fds = range(_FIRST, _FIRST + count)
    return [*map(_taken, fds, itertools.chain(names, unnamed))]


def _taken(fd: int, name: str) -> InheritedSocket:
    try:
        os.set_inheritable(fd, False)
        sock = socket.socket(fileno=fd)
    except OSError as error:
        raise ValueError(
            f"The inherited descriptor {fd} ({name}) must be a socket: "
            f"{error.strerror}."
        ) from error
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        raise ValueError(
            f"The inherited socket {name!r} must be a TCP socket, such as "
            "ListenStream=127.0.0.1:7600. Unix sockets are not supported."
        )
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ValueError(
            f"The inherited socket {name!r} must be listening: the unit needs "
            "ListenStream= and Accept=no."
        )
    return InheritedSocket(name, sock)


def shared_out(
    inherited: Sequence[InheritedSocket], counts: Mapping[str, int]
) -> dict[str, tuple[socket.socket, ...]]:
    """Assigns sockets to protocols by their names.

    Args:
        inherited: The sockets. With a single protocol, their names do not matter.
        counts: The protocols to serve, and the number of sockets each needs; 0 if it
            cannot take any.

    Raises:
        ValueError: A socket fits no protocol, or a protocol has too many or too few.
    """
    shared: dict[str, list[socket.socket]] = {}
    for one in inherited:
        name = next(iter(counts)) if len(counts) == 1 else one.name
        if name not in counts:
            raise ValueError(
                f"The inherited socket {one.name!r} belongs to no served protocol: "
                f"FileDescriptorName= must be {' or '.join(counts)}."
            )
        shared.setdefault(name, []).append(one.sock)
    for name, sockets in shared.items():
        if not counts[name]:
            raise ValueError(
                f"{name} cannot take an inherited socket: gRPC for Python opens "
                "its own. Leave it out of the unit, and pass --host and --port."
            )
        if len(sockets) != counts[name]:
            raise ValueError(
                f"{name} needs {counted(counts[name], 'inherited socket')} here, got "
                f"{len(sockets)}."
            )
    return {name: tuple(sockets) for name, sockets in shared.items()}


def notify(state: str) -> None:
    """Reports the service's status to systemd, such as "READY=1", if it listens."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where[:1] in ("/", "@"):
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
        ):
            sock.settimeout(1.0)
            sock.sendto(state.encode(), where.replace("@", "\0", 1))
