"""Stores servers' secrets in files that only their user can read.

Other accounts of a machine can reach a server at 127.0.0.1, so each server draws a
secret unless told otherwise. It writes the secret to a file in the user's runtime
folder and keeps the file locked. The same user's clients find it there by the server's
address, and nobody has to type anything.

```
server   publish("token", "127.0.0.1", 7600, secret)    listens, then writes the file
client   find("token", "localhost", 7600)               only if the server wants one
server   SecretFile.close()                             removes it
```

The lock shows that the server is alive: the system releases it whenever the process
ends. A file without a lock belongs to a dead server; it is not used, and the next
server removes it.

Tokens and VNC passwords are drawn separately, and a client that looks for one never
gets the other: VNC compares only 8 characters, and an attacker who has seen its
challenge can try passwords offline.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import ipaddress
import json
import os
import secrets
import socket
import stat
import weakref
from collections.abc import Iterator
from typing import Any, Final

from envkit.errors import EnvkitError

__all__ = [
    "DRAW",
    "LEAST_TOKEN",
    "Draw",
    "SecretFile",
    "SecretFileError",
    "check_token",
    "find",
    "new_password",
    "new_token",
    "publish",
    "read_private",
    "secret_in",
]

# The minimum length of a token, and how to get one.
LEAST_TOKEN = 16
_HOW_TO_DRAW = "openssl rand -hex 32"
_MOST_SECRET = 4096
_VNC_LENGTH = 8
# Without characters that are easily confused when typing.
_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"


class SecretFileError(EnvkitError, PermissionError):
    """Others can access a file with a secret, or its folder."""


class Draw(enum.Enum):
    """The type of `DRAW`."""

    DRAW = "draw"

    def __repr__(self) -> str:
        return "DRAW"


# The default for tokens and passwords: the server draws one.
DRAW: Final = Draw.DRAW


def new_token() -> str:
    """Draws a token.

    Example:
        >>> len(new_token())
        43
    """
    return secrets.token_urlsafe(32)


def new_password() -> str:
    """Draws a password with the 8 characters that VNC compares.

    Example:
        >>> len(new_password())
        8
    """
    return "".join(secrets.choice(_LETTERS) for _ in range(_VNC_LENGTH))


def check_token(token: bytes) -> None:
    """Raises for a token that can be guessed.

    Example:
        >>> check_token(b"t")
        Traceback (most recent call last):
        ValueError: A token must have at least 16 characters, got 1. Draw one with: \
openssl rand -hex 32

    Raises:
        ValueError: The token is too short.
    """
    if len(token) < LEAST_TOKEN:
        raise ValueError(
            f"A token must have at least {LEAST_TOKEN} characters, got {len(token)}. "
            f"Draw one with: {_HOW_TO_DRAW}"
        )


def read_private(
    path: str | os.PathLike[str], what: str, most: int
) -> tuple[bytes, os.stat_result]:
    """Reads a file that only its owner can read.

    Args:
        path: The file.
        what: Its name in messages, such as "--token-file".
        most: The maximum number of bytes; one more is returned of a larger file.

    Raises:
        SecretFileError: Others can read it.
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077:
            raise SecretFileError(
                f"{what} must be a file that its owner alone can read, and "
                f"{os.fspath(path)!r} has the mode {mode:04o}. Run: chmod 600 "
                f"{os.fspath(path)}"
            )
        return file.read(most + 1), found


def secret_in(path: str | os.PathLike[str], what: str) -> bytes:
    """Returns the secret in a file, without surrounding white space.

    Args:
        path: The file.
        what: The file's name in messages, such as "--token-file".

    Raises:
        ValueError: The file is empty, or too long.
        SecretFileError: Others than its owner can read it.
        OSError: It cannot be read.
    """
    secret = read_private(path, what, _MOST_SECRET)[0].strip()
    if not secret or len(secret) > _MOST_SECRET:
        raise ValueError(
            f"{what} must be a file with a secret of 1 to {_MOST_SECRET} bytes; "
            f"{os.fspath(path)!r} has {len(secret) or 'none'}."
        )
    return secret


class SecretFile:
    """The file with a running server's secret; `publish` makes it.

    Attributes:
        path: Its path.
    """

    def __init__(self, path: str, fd: int) -> None:
        """Takes a file that is already written and locked."""
        self.path = path
        self._finalizer = weakref.finalize(self, _remove, os.getpid(), path, fd)

    def close(self) -> None:
        """Removes the file; calling it again does nothing."""
        self._finalizer()


def _remove(owner: int, path: str, fd: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the server, which is still running
    with contextlib.suppress(OSError):
        os.unlink(path)
    with contextlib.suppress(OSError):
        os.close(fd)


def publish(kind: str, host: str, port: int, secret: str) -> SecretFile:
    """Writes a server's secret to a file that only this user can read.

    Args:
        kind: The kind of secret: "token" or "password".
        host: The address that the server listens on.
        port: Its port.
        secret: The secret.

    Raises:
        SecretFileError: The folder belongs to another user, or is open to others.
        OSError: No folder can be written.
    """
    folder = _folder_to_write()
    _sweep(folder)
    text = json.dumps({"kind": kind, "host": host, "port": port, "secret": secret})
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW
    while True:
        path = os.path.join(folder, f"{port}-{secrets.token_hex(4)}")
        fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # Another server may have swept the file away before the lock.
            if os.fstat(fd).st_nlink:
                os.fchmod(fd, 0o600)  # despite the umask
                os.write(fd, text.encode())
                return SecretFile(path, fd)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def find(kind: str, host: str, port: int) -> str | None:
    """Returns the secret of this user's server at an address, or `None`.

    Args:
        kind: The kind of secret: "token" or "password".
        host: The host, as a name or an address.
        port: The port.

    Raises:
        SecretFileError: The file for this port is accessible to others.
    """
    wanted: set[str] | None = None
    for folder in _folders():
        for path in _files_of(folder, port):
            said = _read(folder, path)
            if said is None or said.get("kind") != kind or said.get("port") != port:
                continue
            wanted = _numbers_of(host, port) if wanted is None else wanted
            if _listens_at(str(said.get("host")), wanted):
                return str(said.get("secret"))
    return None


# Folders.


def _folders() -> list[str]:
    """Lists the folders where this user's servers may have written, best first.

    A server and its client may have different environment variables: one of them may be
    started by cron, or after `su`.
    """
    me = os.geteuid()
    runtime = [os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{me}"]
    found = [
        os.path.join(each, "envkit")
        for each in runtime
        if os.path.isabs(each) and _is_own_folder(each)
    ]
    # Not TMPDIR's folder, for the same reason.
    return list(dict.fromkeys([*found, f"/tmp/envkit-{me}"]))


def _is_own_folder(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _folder_to_write() -> str:
    """Returns the folder for secrets, which exists and is this user's alone.

    Raises:
        SecretFileError: The folder is not this user's alone.
    """
    folder = _folders()[0]
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    problem = _problem_with(folder)
    if problem is not None:
        raise SecretFileError(
            f"The secrets of servers go to {folder!r}, which must be a folder of this "
            f"user's own with the mode 0700; {problem}. Remove it, or set "
            "XDG_RUNTIME_DIR to a folder of your own."
        )
    return folder


def _problem_with(folder: str) -> str | None:
    """Returns why others can access a folder; `None` if they cannot."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid != os.geteuid():
        return f"it belongs to the user {found.st_uid}"
    mode = stat.S_IMODE(found.st_mode)
    return f"it has the mode {mode:04o}" if mode & 0o077 else None


# Files.


def _files_of(folder: str, port: int) -> Iterator[str]:
    """Yields the files of a folder for a port.

    Raises:
        SecretFileError: There is one, and others can write to the folder.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # missing, or another user's
        return
    for name in names:
        if name.startswith(f"{port}-"):
            problem = _problem_with(folder)
            if problem is not None:
                raise SecretFileError(
                    f"The secret of the server at port {port} is in {folder!r}, which "
                    f"must be a folder of this user's own with the mode 0700; "
                    f"{problem}. Pass the secret, or remove the folder."
                )
            yield os.path.join(folder, name)


def _read(folder: str, path: str) -> dict[str, Any] | None:
    """Reads a live server's file; returns `None` for a dead one's.

    Raises:
        SecretFileError: It is not this user's alone.
    """
    problem = ""
    try:
        # Neither waits for a writer nor follows a link.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:  # the server has just ended
        return None
    except OSError as error:
        problem = f"it cannot be opened: {error.strerror}"
    else:
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            mode = stat.S_IMODE(found.st_mode)
            if not stat.S_ISREG(found.st_mode):
                problem = "it is not a regular file"
            elif found.st_uid != os.geteuid():
                problem = f"it belongs to the user {found.st_uid}"
            elif mode & 0o077:
                problem = f"it has the mode {mode:04o}"
            elif _takes_lock(fd, fcntl.LOCK_SH):
                return None
            else:
                try:
                    said = json.loads(file.read(2 * _MOST_SECRET))
                except ValueError:
                    return None
                return said if isinstance(said, dict) else None
    raise SecretFileError(
        f"The secret in {path!r} is not used: it must be a file of this user's own "
        f"that no other user can read; {problem}. Remove it, and start the server "
        "again."
    )


def _takes_lock(fd: int, kind: int) -> bool:
    """Returns True if no server has locked a file."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(folder: str) -> None:
    """Removes files left behind by killed servers."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode) and _takes_lock(
                    fd, fcntl.LOCK_EX
                ):
                    os.unlink(path)
            finally:
                os.close(fd)


# Addresses.


def _numbers_of(host: str, port: int) -> set[str]:
    """Returns the addresses that a host name resolves to."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(each[4][0]).partition("%")[0] for each in found}


def _listens_at(bound: str, wanted: set[str]) -> bool:
    """Returns True if a server listening on one address is reached at another."""
    if bound in ("0.0.0.0", "::"):
        return any(map(_is_here, wanted))
    return not wanted.isdisjoint(_numbers_of(bound, 0))


def _is_here(number: str) -> bool:
    """Returns True if an address is this machine's."""
    address = ipaddress.ip_address(number)
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((number, 0))
        except OSError:
            return False
    return True
