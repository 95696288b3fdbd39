"""`Admission`: whom a server lets in, and the line in the log for each refusal.

All servers of envkit share it, whatever their protocol and whoever owns their sockets:

```
connection ── meet ──▶ stranger ── identify ──▶ client     its secret is right
                          │            │
                          │            └─ refuse ────────▶ a wrong secret, which waits
                          └─ drop ───────────────────────▶ too slow, or too many others
```

A connection is a stranger until it has proved that it may enter. Strangers have some
seconds for that; where there are too many of them, the oldest one of the address with
most of them goes.

The log is `envkit.serve`: one line for a client that is refused, at the level WARNING,
and one for what a client does that opens something, at INFO. Refusals that come faster
than a log should grow are counted instead.
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

__all__ = ["LOG", "Admission", "Stranger", "WrongSecretError"]

LOG = logging.getLogger("envkit.serve")

# Lines about refusals that may come at once, and in each second after that.
_BURST, _PER_SECOND = 1000, 20.0
_LONGEST_REASON = 400


class WrongSecretError(EnvkitError, PermissionError):
    """A client has not shown a secret that is valid; the message is for the client.

    Attributes:
        reason: What the log says, which may name the holder of a token.
        is_guess: Whether the client has shown something wrong, and must wait.
    """

    def __init__(
        self, message: str = "", reason: str = "", *, is_guess: bool = False
    ) -> None:
        super().__init__(message)
        self.reason, self.is_guess = reason, is_guess


class Stranger:
    """A connection that has proved nothing yet; `Admission.meet` makes these.

    Attributes:
        place: The address and the port that it comes from.
        host: That address.
        deadline: When it must have proved itself, by `time.monotonic`.
        is_logged: Whether the log has a line about it already.
        fault: What the log says if it leaves now.
    """

    def __init__(
        self, address: object, deadline: float, cut: Callable[[str], object]
    ) -> None:
        """Takes an address as sockets have it."""
        self.place = place_of(address)
        self.host = self.place.rpartition(":")[0] or "?"
        self.deadline = deadline
        self.is_logged = False
        self.fault = "it has left before it had proved itself"
        self.cut = cut


class Admission:
    """Whom a server lets in, and its lines in the log; usable from any thread.

    Attributes:
        protocol: What the log calls the server.
        patience: How many seconds a connection has to prove itself.
        guesses: The wrong secrets that were shown.

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
        most: int = 64,
        patience: float = 10.0,
        most_late: int = 32,
    ) -> None:
        """Begins without strangers.

        Args:
            protocol: What the log calls the server.
            most: How many connections may be about to prove themselves.
            patience: How many seconds each has for that.
            most_late: How many wrong guesses may be kept waiting at a time.
        """
        self.protocol, self.patience = protocol, patience
        self.guesses = Guesses(most_late)
        self._most = most
        self._lock = threading.Lock()
        self._strangers: dict[str, Stranger] = {}  # by place, the oldest first
        self._lines, self._refilled_at, self._left_out = float(_BURST), 0.0, 0

    def health(self, *, is_stopping: bool = False) -> dict[str, str]:
        """Returns what anyone may know of the server."""
        status = "stopping" if is_stopping else "ok"
        return {"status": status, "protocol": self.protocol}

    # Strangers.

    def meet(self, address: object, cut: Callable[[str], object]) -> Stranger:
        """Counts a connection that has just come, and drops another if need be.

        Args:
            address: Where it comes from, as sockets have it.
            cut: Ends the connection; is called with the reason, from any thread.
        """
        stranger = Stranger(address, time.monotonic() + self.patience, cut)
        if len(self._strangers) >= self._most:
            self.make_room()
        with self._lock:
            self._strangers[stranger.place] = stranger
        return stranger

    def make_room(self) -> None:
        """Drops the oldest stranger of the address with most of them."""
        with self._lock:
            strangers = list(self._strangers.values())
        counts = collections.Counter(peer_of(each.host) for each in strangers)
        oldest = max(
            strangers, key=lambda each: counts[peer_of(each.host)], default=None
        )
        if oldest is not None:
            self._drop(oldest, "it has not proved itself, and others came")

    def drop_late(self, now: float) -> None:
        """Drops the strangers that have had their time."""
        with self._lock:
            strangers = list(self._strangers.values())
        for each in strangers:
            if each.deadline <= now:
                reason = f"it has not proved itself within {self.patience:g} s"
                self._drop(each, reason)

    def drop_all(self, reason: str) -> None:
        """Drops all strangers, because the server ends."""
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
        """Forgets a stranger that is none any more; False if it was dropped."""
        with self._lock:
            return self._strangers.pop(place, None) is not None

    def excuse(self, place: str) -> None:
        """Lets a stranger leave without a line in the log, as after a probe."""
        with self._lock:
            if place in self._strangers:
                self._strangers[place].is_logged = True

    def set_fault(self, place: str, reason: str) -> None:
        """Says why a connection ends that may still be a stranger's."""
        with self._lock:
            if place in self._strangers:
                self._strangers[place].fault = reason

    def lose(self, stranger: Stranger) -> None:
        """Forgets a connection that has ended, and logs it if it had proved nothing."""
        if self.leave(stranger.place) and not stranger.is_logged:
            self.refuse(stranger.place, stranger.fault)

    def next_deadline(self) -> float:
        """Returns when the next stranger is late; infinity if there is none."""
        with self._lock:
            return min(
                (each.deadline for each in self._strangers.values()), default=math.inf
            )

    # The log.

    def refuse(self, place: str, reason: str, client: str = "") -> None:
        """Logs that a client was refused, in one line.

        A stranger that is dropped or leaves later has had its line by then.

        Args:
            place: The address and the port that it comes from.
            reason: Why; of several lines the first counts.
            client: What the log calls it, if it is not the place.
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
        """Logs a wrong secret, and yields how many seconds its answer is to wait."""
        self.refuse(place, error.reason)
        if not error.is_guess:
            yield 0.0
            return
        with self.guesses.late(place.rpartition(":")[0]) as seconds:
            yield seconds

    def log(self, client: str, did: str) -> None:
        """Logs what a client has done."""
        LOG.info("%s %s", client, escaped(did))
