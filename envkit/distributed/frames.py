"""What travels over a link: frames of rows and frames of messages.

```
kind    flags   zero      rows      length    body
1 byte  1 byte  2 bytes   4 bytes   8 bytes   as many bytes as the length says
```
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["ANSWERED", "ASKED", "BEGUN", "HEAD", "MESSAGE", "Frame", "FrameError"]

HEAD = struct.Struct("<BBHIQ")
# Kinds of frames: a pickle; rows on their way to a worker; rows with their answers; the
# FIRST that has begun in the same step, of rows whose answers follow.
MESSAGE, ASKED, ANSWERED, BEGUN = range(1, 5)


class FrameError(EOFError):
    """The other end has sent what neither end sends: nothing else can follow it."""


class Frame(NamedTuple):
    """A frame that is sent or comes again and again.

    Attributes:
        head: Its first bytes.
        parts: The memory of all of it; that of the head comes first.
        size: How many bytes that are.
    """

    head: bytes
    parts: Sequence[Any]
    size: int
