"""The frames of a channel: what arrived is cut into messages, what leaves into rests.

```
 0xEC     descriptors   length of the payload   payload
 1 byte   1 byte        6 bytes, big endian     a pickle, or what send_bytes was given
```

Descriptors travel with the first byte of their frame. Their number is in the header,
because the kernel may hand them over a few frames early when one read takes several.

Nothing here reads or writes. An `Inbox` and an `Outgoing` change in one place only, a
list that grows by what system calls return; whatever follows from it is a new object.
"""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["First", "Inbox", "Outgoing"]

MARK = 0xEC
HEADER = 8
LONGEST = 2**48 - 1
# Linux takes no more in one message.
MOST_DESCRIPTORS = 253
INT = array.array("i").itemsize
ANCILLARY_SIZE = socket.CMSG_SPACE(MOST_DESCRIPTORS * INT)
# macOS does not have it: there descriptors are marked after they came.
CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

Buffer = bytes | bytearray | memoryview
# What recvmsg returns: data, ancillary data, flags, address.
Chunk = tuple[bytes, list[tuple[int, int, bytes]], int, Any]
END: Chunk = (b"", [], 0, None)


class First(NamedTuple):
    """The first message of an inbox, and the inbox without it."""

    payload: Buffer
    others: Inbox


class Inbox:
    """What was read and not received yet.

    Only `chunks` grows in place; everything else is a new inbox in place of the old.
    """

    __slots__ = (
        "_counted",
        "_scanned",
        "_start",
        "chunks",
        "closing",
        "failure",
        "loose",
        "untaken",
    )

    def __init__(
        self,
        chunks: list[Chunk] | None = None,
        *,
        start: int = 0,
        scanned: int = 0,
        loose: tuple[int, ...] = (),
        untaken: tuple[int, ...] = (),
        failure: Exception | None = None,
        counted: tuple[int, int] = (0, 0),
        closing: Iterator[int] | None = None,
    ) -> None:
        self.chunks: list[Chunk] = [] if chunks is None else chunks
        # How many bytes of the first chunk are used up.
        self._start = start
        # How many chunks, 0 or 1, have their descriptors in `loose` already.
        self._scanned = scanned
        # Descriptors that came and belong to a message that is not the first.
        self.loose = loose
        # Descriptors of messages that were received.
        self.untaken = untaken
        # What unpickling a message raised, if nobody was told yet.
        self.failure = failure
        # How many chunks were counted, and their bytes: a message of many chunks must
        # not be counted anew with each.
        self._counted = counted
        # The descriptors that are still to be closed, once `close` has begun.
        self.closing = closing

    @property
    def ended(self) -> bool:
        """Whether the other end is closed."""
        return bool(self.chunks) and not self.chunks[-1][0]

    def missing(self) -> int:
        """Returns how many bytes the first message lacks, as far as is known."""
        have = self._available()
        if have < HEADER:
            return HEADER - have
        return max(0, HEADER + self._header()[1] - have)

    def first(self) -> First | None:
        """Returns the first message if it is here as a whole.

        Raises:
            ConnectionAbortedError: These are no messages, or descriptors got lost.
        """
        have = self._available()
        if have < HEADER:
            return None
        count, length = self._header()
        if have < HEADER + length:
            return None
        parts, index, stop = self._cut(HEADER, length)
        touched = self.chunks[self._scanned : index + 1]
        fds = self.loose + tuple(fd for chunk in touched for fd in _descriptors(chunk))
        if len(fds) < count or any(chunk[2] & socket.MSG_CTRUNC for chunk in touched):
            raise ConnectionAbortedError(
                "Descriptors were lost on their way: this process has no room for more "
                "open files. Raise the limit (ulimit -n)."
            )
        # The end of the last chunk is the beginning of the next.
        whole = stop == len(self.chunks[index][0])
        counted, total = self._counted
        others = Inbox(
            self.chunks[index + whole :],
            start=0 if whole else stop,
            scanned=0 if whole else 1,
            loose=fds[count:],
            untaken=self.untaken + fds[:count],
            counted=(
                counted - index - whole,
                total - sum(len(chunk[0]) for chunk in self.chunks[: index + whole]),
            ),
        )
        return First(parts[0] if len(parts) == 1 else b"".join(parts), others)

    def descriptors(self) -> list[int]:
        """Returns all descriptors that came and were not taken."""
        unscanned = self.chunks[self._scanned :]
        arrived = [fd for chunk in unscanned for fd in _descriptors(chunk)]
        return [*self.untaken, *self.loose, *arrived]

    def end_text(self) -> str:
        """Says how it ended."""
        have, missing = self._available(), self.missing()
        if not have:
            return "The other end of the channel is closed."
        return (
            "The other end of the channel was closed in the middle of a message: "
            f"{have} bytes of it had come, at least {missing} are missing."
        )

    def changed(self, *, untaken: tuple[int, ...], failure: Exception | None) -> Inbox:
        """Returns this inbox with other descriptors to take and another failure."""
        return Inbox(
            self.chunks,
            start=self._start,
            scanned=self._scanned,
            loose=self.loose,
            untaken=untaken,
            failure=failure,
            counted=self._counted,
        )

    def _available(self) -> int:
        counted, total = self._counted
        if counted < len(self.chunks):
            total += sum(len(chunk[0]) for chunk in self.chunks[counted:])
            self._counted = len(self.chunks), total
        return total - self._start

    def _header(self) -> tuple[int, int]:
        """Returns how many descriptors and bytes the first message has."""
        header = b"".join(self._cut(0, HEADER)[0])
        if header[0] != MARK:
            raise ConnectionAbortedError(
                "What arrived through the channel is no message: something else has "
                "written to its descriptor."
            )
        return header[1], int.from_bytes(header[2:], "big")

    def _cut(self, skip: int, length: int) -> tuple[list[memoryview], int, int]:
        """Returns bytes in pieces, and where they end: in which chunk, at what byte."""
        begin = self._start + skip
        index = 0
        while begin > len(self.chunks[index][0]):
            begin -= len(self.chunks[index][0])
            index += 1
        parts = []
        while True:
            data = self.chunks[index][0]
            piece = memoryview(data)[begin : begin + length]
            parts.append(piece)
            length -= len(piece)
            if not length:
                return parts, index, begin + len(piece)
            begin = 0
            index += 1


class Outgoing(NamedTuple):
    """A message, or what is left of one, on its way out."""

    parts: tuple[memoryview, ...]
    ancillary: tuple[tuple[int, int, bytes], ...]
    begun: bool
    # What sendmsg returned; the rest is computed from it.
    counts: list[int]

    @classmethod
    def frame(cls, payload: Buffer, fds: Sequence[int]) -> Outgoing:
        """Puts the header before a payload."""
        body = memoryview(payload).cast("B")
        if len(fds) > MOST_DESCRIPTORS:
            raise ValueError(
                f"A message takes {MOST_DESCRIPTORS} descriptors at most, "
                f"not {len(fds)}."
            )
        if len(body) > LONGEST:
            raise ValueError(f"A message of {len(body)} bytes is too long.")
        header = bytes([MARK, len(fds)]) + len(body).to_bytes(6, "big")
        rights = array.array("i", fds).tobytes()
        return cls(
            (memoryview(header), body),
            ((socket.SOL_SOCKET, socket.SCM_RIGHTS, rights),) if fds else (),
            False,
            [],
        )

    def rest(self) -> Outgoing | None:
        """Returns what still has to be sent of a message that has begun to leave.

        `None` if nothing has: it was sent whole, or not at all.
        """
        sent = sum(self.counts)
        if not sent:
            return self if self.begun else None
        parts = []
        for part in self.parts:
            if sent < len(part):
                parts.append(part[sent:])
            sent = max(0, sent - len(part))
        return Outgoing(tuple(parts), (), True, []) if parts else None


def _descriptors(chunk: Chunk) -> list[int]:
    """Returns the descriptors that came with a chunk, closed on exec."""
    found = array.array("i")
    for level, kind, data in chunk[1]:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) // INT * INT])
    if not CLOSE_ON_EXEC:
        for fd in found:
            os.set_inheritable(fd, False)
    return found.tolist()
