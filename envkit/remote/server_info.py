"""What servers of environments have said of themselves, and what differs."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from envkit._shared.text import escaped
from envkit.errors import ConstructorError
from envkit.provenance import VersionWarning, envkit_version
from envkit.remote.protocol import PROTOCOL

__all__ = ["ServerInfo", "ServerInfos"]


class ServerInfo(NamedTuple):
    """What one session's server has said of itself.

    Attributes:
        address: Where it is.
        session: What it calls the session.
        said: The facts.
        differences: What differs from this envkit, or from another session.
    """

    address: str
    session: str
    said: dict[str, Any]
    differences: tuple[str, ...]


class ServerInfos:
    """Compares each server of a pool with this envkit and with the first server."""

    def __init__(self, mismatch: str) -> None:
        """Takes what to do about differences: "warn" or "error"."""
        if mismatch not in ("warn", "error"):
            raise ValueError(
                f"mismatch must be 'warn' or 'error', got {mismatch!r:.80}."
            )
        self._mismatch = mismatch
        self._first: ServerInfo | None = None
        self._warned: set[str] = set()

    def note(self, address: str, session: str, said: dict[str, Any]) -> ServerInfo:
        """Returns the fact of a session, after warning of what differs.

        Raises:
            ConstructorError: It differs, and that is an error.
        """
        fact = ServerInfo(address, session, said, ())
        fact = fact._replace(differences=self._differences(fact))
        self._first = self._first or fact
        if fact.differences and self._mismatch == "error":
            raise ConstructorError(
                f'{" ".join(fact.differences)} (mismatch="warn" goes on all the same.)'
            )
        for text in fact.differences:
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, VersionWarning, stacklevel=2)
        return fact

    def _differences(self, fact: ServerInfo) -> tuple[str, ...]:
        found = []
        theirs = fact.said.get("envkit")
        if theirs != envkit_version():
            found.append(
                f"The server at {fact.address} has envkit {theirs!s:.40}, and this is "
                f"envkit {envkit_version()}."
            )
        protocol = fact.said.get("protocol")
        if protocol != list(PROTOCOL):
            found.append(
                f"The server at {fact.address} speaks protocol {protocol!s:.40}, and "
                f"this envkit speaks {list(PROTOCOL)}."
            )
        first = self._first
        for key, what in (
            ("names", "environment"),
            ("sha256", "specs"),
            ("envkit", "version of envkit"),
        ):
            if first is not None and first.said.get(key) != fact.said.get(key):
                found.append(
                    f"The servers at {first.address} and {fact.address} have not the "
                    f"same {what}: {first.said.get(key)!s:.80} and "
                    f"{fact.said.get(key)!s:.80}."
                )
        return tuple(map(escaped, found))
