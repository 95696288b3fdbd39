"""`Seal`: proves that frames arrive as they were sent.

If a link is not encrypted, each frame carries two tags, HMAC-SHA256 with a key that
only the two ends of this connection know:

```
head      number   zero     tag of these    body                 tag of all of it
16 bytes  8 bytes  8 bytes  32 bytes        as the head says     32 bytes
```

Each direction has its own key, so no frame can be sent back to its sender. The number
counts the frames of a direction, so none can be left out, repeated or moved. The head
has its own tag because its length is used before the body arrives. The second tag
covers everything before it; a frame without a body has none.

Sixteen bytes of a sealed head are padding: they keep the body's offset from a cache
line the same as behind a bare head.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import Any

from envkit.distributed.frames import HEAD, Frame, FrameError

__all__ = ["KEY_SIZE", "Seal"]

KEY_SIZE = 32
_COUNT = struct.Struct("<Q8x")
_SIGNED = HEAD.size + _COUNT.size
_TAG = 32
# A body of at most this many bytes is copied into one piece, because that is faster
# than hashing its parts one by one.
_SMALL = 1 << 12


class Seal:
    """Seals the outgoing frames of one end of a link, and checks incoming ones.

    Attributes:
        head: The memory of a sealed head that is being read.

    Example:
        >>> here, there = Seal(b"a" * 32, b"b" * 32), Seal(b"b" * 32, b"a" * 32)
        >>> parts = here.sealed([HEAD.pack(1, 0, 0, 0, 2), b"hi"])
        >>> head, body = bytearray(HEAD.size), bytearray(2)
        >>> for memory, data in zip(there.want([memoryview(head)]), parts):
        ...     memory[:] = data
        >>> there.check()
        >>> for memory, data in zip(there.want([memoryview(body)]), parts[1:]):
        ...     memory[:] = data
        >>> there.check()
        >>> body
        bytearray(b'hi')
    """

    def __init__(self, sends: bytes, gets: bytes) -> None:
        """Takes the keys of the two directions."""
        self._sends = hmac.new(sends, digestmod=hashlib.sha256)
        self._gets = hmac.new(gets, digestmod=hashlib.sha256)
        self._sent = self._got = 0
        self.head = memoryview(bytearray(_SIGNED + _TAG))
        self._signed, self._head_tag = self.head[:_SIGNED], self.head[_SIGNED:]
        self._tag = memoryview(bytearray(_TAG))
        # For the frame being read: the memory for its head, until that has arrived; how
        # many bytes still need memory; and the memory that is not yet part of the
        # computed tag.
        self._head_goes_to: memoryview | None = None
        self._left = 0
        self._unhashed: list[memoryview] = []
        self._mac = self._gets

    # Sending.

    def sealed(self, parts: Sequence[Any]) -> list[Any]:
        """Returns the parts of whole frames with their tags between them."""
        # Hot: called once per frame.
        sealed: list[Any] = []
        index, count = 0, len(parts)
        while index < count:
            head = bytes(parts[index]) + _COUNT.pack(self._sent)
            self._sent += 1
            mac = self._sends.copy()
            mac.update(head)
            sealed.append(head + mac.digest())
            left = HEAD.unpack_from(head)[-1]
            index += 1
            if not left:
                continue
            begin = index
            is_small = left <= _SMALL
            while left > 0:
                part = parts[index]
                left -= len(part)
                index += 1
                if not is_small:
                    mac.update(part)
            if is_small:
                body = b"".join(parts[begin:index])
                mac.update(body)
                sealed += body, mac.digest()
            else:
                sealed += parts[begin:index]
                sealed.append(mac.digest())
        return sealed

    # Reading.

    def want(self, views: list[memoryview]) -> list[memoryview]:
        """Takes the memory of a head, or of the next part of a body.

        Returns:
            The memory to read into, with room for the tags too.
        """
        # Hot: called a few times per frame.
        if not views:
            return views
        if not self._left:
            (self._head_goes_to,) = views
            return [self.head]
        self._left -= sum(map(len, views))
        if self._left < 0:
            raise FrameError("its frames do not have the size that their rows need")
        self._unhashed += views
        return views if self._left else [*views, self._tag]

    def check(self) -> None:
        """Checks the bytes that were read into all the wanted memory.

        Raises:
            FrameError: The bytes were changed, repeated or moved on the way.
        """
        # Hot: called a few times per frame.
        if self._head_goes_to is not None:
            head, self._head_goes_to = self._head_goes_to, None
            self._begin()
            if not hmac.compare_digest(self._mac.digest(), self._head_tag):
                self._refuse()
            head[:] = self.head[: HEAD.size]
            self._left = HEAD.unpack_from(self.head)[-1]
            if not self._left:
                self._got += 1
        elif self._unhashed:
            for view in self._unhashed:
                self._mac.update(view)
            self._unhashed.clear()
            if not self._left:
                self._end()

    def expected(self, frame: Frame) -> Frame:
        """Returns the sealed form of an expected frame, to read in its place."""
        # Hot: called once per worker and batch step.
        parts = [self.head, *frame.parts[1:], self._tag]
        return Frame(frame.head, parts, frame.size + len(self.head) - HEAD.size + _TAG)

    def check_expected(self, frame: Frame) -> None:
        """Checks a sealed frame that has been read completely.

        Raises:
            FrameError: The bytes were changed, repeated or moved on the way.
        """
        # Hot: called once per worker and batch step.
        self._begin()
        body = frame.parts[1:-1]
        if frame.size <= _SMALL:
            self._mac.update(b"".join(body))
        else:
            for part in body:
                self._mac.update(part)
        self._end()

    def _begin(self) -> None:
        if self._signed[HEAD.size :] != _COUNT.pack(self._got):
            self._refuse()
        self._mac = self._gets.copy()
        self._mac.update(self._signed)

    def _end(self) -> None:
        if not hmac.compare_digest(self._mac.digest(), self._tag):
            self._refuse()
        self._got += 1

    def _refuse(self) -> None:
        raise FrameError(
            f"frame {self._got} was changed, left out, repeated or added on its way"
        )
