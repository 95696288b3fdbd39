"""A server's secret, and the holder of the secret that a client has shown.

A server has one secret, given or drawn, or a file with several tokens, each with the
name of its holder:

```
# NAME  TOKEN                     EXPIRY in ISO 8601; UTC without a zone
alice   x7Yl8sB0c0G5uC0Q2mV1dR3t
ci      0b8f1b2d9a4e4f6f8a7c6d5e  2027-01-31T18:00:00+01:00
```

A changed file is read again when a client proves itself.
"""

from __future__ import annotations

import datetime
import os
import re
import stat
import threading
from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from envkit._shared.admission import LOG, WrongSecretError
from envkit._shared.secret_files import (
    Draw,
    SecretFile,
    check_token,
    new_password,
    new_token,
    publish,
    read_private,
)
from envkit.extend import counted

__all__ = ["Holder", "ServerSecret", "TokensFile"]

_MOST_BYTES = 1 << 20
_NAME = re.compile(r"[\w.@+-]{1,64}")


class Holder(NamedTuple):
    """Someone who knows a secret.

    Attributes:
        name: The holder's name in the log; "" if the server has one secret for all.
        secret: The secret.
        expires: When it expires; `None` for never.
    """

    name: str = ""
    secret: bytes = b""
    expires: datetime.datetime | None = None

    def at(self, place: str) -> str:
        """Returns the log's name for this holder at an address.

        Example:
            >>> Holder("alice").at("10.0.0.7:4242"), Holder().at("10.0.0.7:4242")
            ('alice@10.0.0.7:4242', '10.0.0.7:4242')
        """
        return f"{self.name}@{place}" if self.name else place


class TokensFile:
    """A file with tokens, names and expiry dates; a changed file is read again.

    Attributes:
        path: Its path.
    """

    def __init__(
        self, path: str | os.PathLike[str], what: str = "--tokens-file"
    ) -> None:
        """Reads the file.

        Args:
            path: Its path.
            what: Its name in messages.

        Raises:
            ValueError: A line is wrong, or there are no tokens.
            SecretFileError: Others than its owner can read it.
            OSError: It cannot be read.
        """
        self.path, self._what = os.fspath(path), what
        self._lock = threading.Lock()
        self._seen: object = None
        self._holders = self._read()
        if not self._holders:
            raise ValueError(f"{what} must have a token, and {self.path!r} has none.")

    def holders(self) -> tuple[Holder, ...]:
        """Returns the tokens that are in the file now.

        If the file can no longer be read, or has a wrong line, the previous tokens stay
        valid; the log says so once.
        """
        with self._lock:
            if self._seen != self._signature():
                self._seen = self._signature()
                try:
                    self._holders = self._read()
                    LOG.info(
                        "%s %r was read again: %s",
                        self._what,
                        self.path,
                        counted(len(self._holders), "token"),
                    )
                except (ValueError, OSError) as error:
                    LOG.warning(
                        "%s %r has changed and is not used; the previous tokens stay "
                        "valid: %s",
                        self._what,
                        self.path,
                        str(error).partition("\n")[0],
                    )
            return self._holders

    def _signature(self) -> object:
        try:
            return _signature_of(os.stat(self.path))
        except OSError as error:
            return error.errno

    def _read(self) -> tuple[Holder, ...]:
        # A pipe could keep all clients waiting.
        if not stat.S_ISREG(os.stat(self.path).st_mode):
            raise ValueError(f"{self._what} must be a regular file, got {self.path!r}.")
        data, found_at = read_private(self.path, self._what, _MOST_BYTES)
        # A later write changes the signature.
        self._seen = _signature_of(found_at)
        if len(data) > _MOST_BYTES:
            raise ValueError(
                f"{self._what} must be a file of {_MOST_BYTES} bytes at most; "
                f"{self.path!r} has more."
            )
        found: list[Holder] = []
        lines: dict[object, int] = {}
        # Windows editors begin files with a byte order mark.
        text = data.decode("utf-8-sig", "replace")
        for number, line in enumerate(text.split("\n"), 1):
            words = list(takewhile(lambda word: word[0] != "#", line.split()))
            if not words:
                continue
            try:
                holder = _holder_in(words)
                for what, key in (("name", holder.name), ("token", holder.secret)):
                    if key in lines:
                        raise ValueError(
                            f"The {what} must be unique: line {lines[key]} has it too."
                        )
                    lines[key] = number
            except ValueError as error:
                raise ValueError(
                    f"{self._what} is wrong in line {number} of {self.path!r}: {error}"
                ) from error
            found.append(holder)
        return tuple(found)


def _signature_of(found: os.stat_result) -> object:
    return (
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_mode,
    )


def _holder_in(words: list[str]) -> Holder:
    """Reads a line; the token appears in no message.

    Raises:
        ValueError: The line is wrong.
    """
    if not 2 <= len(words) <= 3:
        raise ValueError(
            f"A line must be NAME TOKEN or NAME TOKEN EXPIRY, got "
            f"{counted(len(words), 'word')}."
        )
    name, token = words[:2]
    if not _NAME.fullmatch(name):
        raise ValueError(
            "A name must have up to 64 letters, digits and the characters . _ @ + -."
        )
    check_token(token.encode())
    expires = None
    if len(words) == 3:
        try:  # older Pythons do not accept Z
            expires = datetime.datetime.fromisoformat(
                re.sub("[zZ]$", "+00:00", words[2])
            )
        except ValueError as error:
            raise ValueError(
                "An expiry must be a date and time as 2027-01-31T18:00:00+01:00, or a "
                f"date, got {words[2][:40]!r}."
            ) from error
        if expires.tzinfo is None:
            expires = expires.replace(tzinfo=datetime.timezone.utc)
    return Holder(name, token.encode(), expires)


class ServerSecret:
    """A server's secret: given, drawn, one of several in a file, or none.

    Attributes:
        data: The secret that clients must know; `None` if they need none, or if each
            has its own token.
        is_drawn: Whether it was drawn, so that only this object knows it.
        is_needed: Whether clients need a secret.

    Example:
        >>> secret = ServerSecret("password", "letmein")
        >>> secret.holder_of(lambda known: known == b"letmein").name
        ''
        >>> secret.holder_of(lambda known: known == b"mellon")
        Traceback (most recent call last):
        envkit._shared.admission.WrongSecretError: The password is not this \
server's.
    """

    def __init__(
        self, kind: str, given: str | bytes | Draw | TokensFile | None
    ) -> None:
        """Draws a secret if necessary.

        Args:
            kind: The kind of secret: "token" or "password".
            given: The secret, `DRAW`, the file of several, or `None`.

        Raises:
            ValueError: The token can be guessed.
        """
        self._kind = kind
        self._published: SecretFile | None = None
        self._tokens = given if isinstance(given, TokensFile) else None
        self.is_drawn = isinstance(given, Draw)
        self.is_needed = given is not None
        self.data: bytes | None = None
        if self.is_drawn:
            given = new_token() if kind == "token" else new_password()
        if isinstance(given, str | bytes):
            self.data = given.encode() if isinstance(given, str) else given
            if kind == "token":
                check_token(self.data)

    @property
    def text(self) -> str | None:
        """The secret as text."""
        return None if self.data is None else self.data.decode("utf-8", "replace")

    def holder_of(self, matches: Callable[[bytes], bool] | None) -> Holder:
        """Returns the holder of the secret that a client has shown.

        Args:
            matches: Returns whether a secret is the one that the client has shown, in
                constant time; `None` if the client has shown nothing.

        Raises:
            WrongSecretError: The secret is wrong or has expired.
        """
        if not self.is_needed:
            return Holder()
        if matches is None:
            raise WrongSecretError(
                f"This server has a {self._kind}, and the client gave none.",
                f"it gave no {self._kind}",
            )
        holders: tuple[Holder, ...] = (Holder("", self.data or b""),)
        if self._tokens is not None:
            holders = self._tokens.holders()
        # Try all of them, so that the time does not reveal which one matched.
        found = [holder for holder in holders if matches(holder.secret)]
        if not found:
            raise WrongSecretError(
                f"The {self._kind} is not this server's.",
                f"the {self._kind} is wrong",
                is_guess=True,
            )
        (holder,) = found
        now = datetime.datetime.now(datetime.timezone.utc)
        if holder.expires is not None and holder.expires <= now:
            raise WrongSecretError(
                "The token has expired.",
                f"the token of {holder.name} expired on {holder.expires.isoformat()}",
            )
        return holder

    def publish(self, address: tuple[str, int]) -> None:
        """Lets clients of this user find a drawn secret by the server's address.

        Args:
            address: The address that the server listens on, as from `getsockname`.

        Raises:
            OSError: The file cannot be written.
        """
        if self.is_drawn:
            host, port = address[:2]
            self._published = publish(self._kind, host, port, self.text or "")

    def close(self) -> None:
        """Removes the file with the drawn secret; calling it again does nothing."""
        if self._published is not None:
            self._published.close()
