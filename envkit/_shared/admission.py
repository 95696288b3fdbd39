"""`Admission`: decides which clients a server admits, and logs each refusal.

All envkit servers share it, whatever their protocol and whoever owns their sockets:

```
connection ── meet ──▶ stranger ── leave ──▶ client    its secret is right
                          ├─── refuse ──▶ its secret is wrong: answered late
                          └─── drop ────▶ too slow, or too many others
```

A connection is a stranger until it has proved that it may enter. It has a few
seconds to do so. If there are too many strangers, the address with the most of them
loses its oldest one.

The log is `envkit.serve`: one WARNING line for each refused client, and one INFO line
when a client opens something. Refusals that come too fast are counted instead of
logged.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

from envkit._shared.guesses import Guesses, peer_of
from envkit._shared.listening import place_of
from envkit._shared.text import escaped
from envkit.errors import EnvkitError

__all__ = ["LOG", "MOST_STRANGERS", "Admission", "Stranger", "WrongSecretError"]

LOG = logging.getLogger("envkit.serve")

# How many connections may be about to prove themselves, unless a server expects more
# clients at once.
MOST_STRANGERS = 64

# Log lines about refusals: the number allowed at once, and per second afterwards.
_BURST, _PER_SECOND = 1000, 20.0
_LONGEST_REASON = 400


class WrongSecretError(EnvkitError, PermissionError):
    """A client has not shown a valid secret; the message is for the client.

    Attributes:
        reason: The text for the log, which may name the holder of a token.
        is_guess: Whether the client showed a wrong secret, and so must wait.
    """

    def __init__(
        self, message: str = "", reason: str = "", *, is_guess: bool = False
    ) -> None:
        super().__init__(message)
        self.reason, self.is_guess = reason, is_guess


class Stranger:
    """A connection that has not shown a secret yet; `Admission.meet` creates it.

    Attributes:
        place: The address and port that it comes from.
        host: The address alone.
        deadline: The time by which it must have proved itself, as `time.monotonic`.
        is_logged: Whether the log already has a line about it.
        fault: The text for the log if it leaves now.
    """

    def __init__(
        self, address: object, deadline: float, cut: Callable[[str], object]
    ) -> None:
        """Takes an address in a socket's form."""
        self.place = place_of(address)
        self.host = self.place.rpartition(":")[0] or "?"
        self.deadline = deadline
        self.is_logged = False
        self.fault = "it left before it proved itself"
        self.cut = cut


class Admission:
    """Decides which clients a server admits, and logs refusals; thread-safe.

    Attributes:
        protocol: The server's name in the log.
        patience: The seconds that a connection has to prove itself.
        guesses: The wrong secrets shown so far.

    Example:
        >>> admission = Admission("vnc", most=1)
        >>> first = admission.meet(("10.0.0.1", 4000), print)
        >>> second = admission.meet(("10.0.0.2", 4000), print)
        it has not proved itself, and others came
        >>> admission.leave(first.place), admission.leave(second.place)
        (False, True)
    """

    def __init__(
        self,
        protocol: str,
        *,
        most: int = MOST_STRANGERS,
        patience: float = 10.0,
        most_late: int = 32,
    ) -> None:
        """Starts without strangers.

        Args:
            protocol: The server's name in the log.
            most: The maximum number of strangers.
            patience: The seconds that each has to prove itself.
            most_late: The maximum number of wrong guesses kept waiting at once.
        """
        self.protocol, self.patience = protocol, patience
        self.guesses = Guesses(most_late)
        self._most = most
        self._lock = threading.Lock()
        self._strangers: dict[str, Stranger] = {}  # by place, the oldest first
        self._lines, self._refilled_at, self._left_out = float(_BURST), 0.0, 0

    def health(self, *, is_stopping: bool = False) -> dict[str, str]:
        """Returns the facts about the server that anyone may know."""
        status = "stopping" if is_stopping else "ok"
        return {"status": status, "protocol": self.protocol}

    # Strangers.

    def meet(self, address: object, cut: Callable[[str], object]) -> Stranger:
        """Counts a new connection, and drops another one if necessary.

        Args:
            address: The address it comes from, in a socket's form.
            cut: Ends the connection; called with the reason, from any thread.
        """
        stranger = Stranger(address, time.monotonic() + self.patience, cut)
        if len(self._strangers) >= self._most:
            self.make_room()
        with self._lock:
            self._strangers[stranger.place] = stranger
        return stranger

    def make_room(self) -> None:
        """Drops the oldest stranger of the address that has the most."""
        with self._lock:
            strangers = list(self._strangers.values())
        counts = collections.Counter(peer_of(each.host) for each in strangers)
        oldest = max(
            strangers, key=lambda each: counts[peer_of(each.host)], default=None
        )
        if oldest is not None:
            self._drop(oldest, "it has not proved itself, and others came")

    def drop_late(self, now: float) -> None:
        """Drops the strangers that have run out of time."""
        with self._lock:
            strangers = list(self._strangers.values())
        for each in strangers:
            if each.deadline <= now:
                reason = f"it has not proved itself within {self.patience:g} s"
                self._drop(each, reason)

    def drop_all(self, reason: str) -> None:
        """Drops all strangers, because the server is closing."""
        with self._lock:
            strangers = list(self._strangers.values())
        for each in strangers:
            self._drop(each, reason)

    def _drop(self, stranger: Stranger, reason: str) -> None:
        if self.leave(stranger.place):
            if not stranger.is_logged:
                self.refuse(stranger.place, reason)
                stranger.is_logged = True
            stranger.cut(reason)

    def leave(self, place: str) -> bool:
        """Removes a stranger, admitted or not; returns False if it was dropped."""
        with self._lock:
            return self._strangers.pop(place, None) is not None

    def excuse(self, place: str) -> None:
        """Lets a stranger, such as a health probe, leave without a log line."""
        with self._lock:
            if place in self._strangers:
                self._strangers[place].is_logged = True

    def set_fault(self, place: str, reason: str) -> None:
        """Sets the reason to log if a connection ends before it is admitted."""
        with self._lock:
            if place in self._strangers:
                self._strangers[place].fault = reason

    def lose(self, stranger: Stranger) -> None:
        """Removes a closed connection, and logs it if it had shown no valid secret."""
        if self.leave(stranger.place) and not stranger.is_logged:
            self.refuse(stranger.place, stranger.fault)

    def next_deadline(self) -> float:
        """Returns the time at which the next stranger is late, or infinity."""
        with self._lock:
            return min(
                (each.deadline for each in self._strangers.values()), default=math.inf
            )

    # The log.

    def refuse(self, place: str, reason: str, client: str = "") -> None:
        """Logs in one line that a client was refused.

        A stranger gets only one line, even if it is dropped or leaves later.

        Args:
            place: The address and port that it comes from.
            reason: The reason; only the first line of it is logged.
            client: The client's name in the log, if not the place.
        """
        with self._lock:
            if place in self._strangers:
                self._strangers[place].is_logged = True
            now = time.monotonic()
            more = _PER_SECOND * (now - self._refilled_at)
            self._lines = min(self._lines + more, float(_BURST))
            self._refilled_at = now
            if self._lines < 1.0:
                self._left_out += 1
                return
            self._lines -= 1.0
            left_out, self._left_out = self._left_out, 0
        told = escaped(reason.partition("\n")[0][:_LONGEST_REASON])
        if left_out:
            told += f" ({left_out} refusals before it were left out here)"
        LOG.warning("%s was refused by %s: %s", client or place, self.protocol, told)

    @contextlib.contextmanager
    def refusing(self, place: str, error: WrongSecretError) -> Iterator[float]:
        """Logs a wrong secret, and yields the seconds to wait before the answer."""
        self.refuse(place, error.reason)
        if not error.is_guess:
            yield 0.0
            return
        with self.guesses.late(place.rpartition(":")[0]) as seconds:
            yield seconds

    def log(self, client: str, did: str) -> None:
        """Logs an action of a client."""
        LOG.info("%s %s", client, escaped(did))
