"""The frames on a link, which contain rows or messages.

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
# Kinds of frames: a pickle; rows with requests to a worker; rows with answers; and, for
# rows whose answers follow, the FIRST that begins in the same step.
MESSAGE, ASKED, ANSWERED, BEGUN = range(1, 5)


class FrameError(EOFError):
    """The other end has sent invalid bytes; the link must end."""


class Frame(NamedTuple):
    """A frame that reuses its memory for every send or receive.

    Attributes:
        head: Its first bytes.
        parts: The memory of the whole frame, the head first.
        size: Its size in bytes.
    """

    head: bytes
    parts: Sequence[Any]
    size: int
