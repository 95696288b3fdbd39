"""`SharedBlock`: anonymous bytes that several processes map, without a name."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap

__all__ = [
    "KEEPS_ORDER",
    "SharedBlock",
    "anonymous_file",
    "available_bytes",
    "fence",
    "full_fence",
]

# There, a processor shows its stores to others in the order in which it made them.
KEEPS_ORDER = platform.machine().lower() in {"x86_64", "amd64", "i686", "i386"}
_barrier = threading.Lock()


def fence() -> None:
    """Orders memory: stores made before this are visible before those made after it.

    Wherever a number says that a row is complete, this stands between the row and the
    number. Taking and giving back a lock orders memory; where the processor keeps
    stores in order this costs nothing but the call.
    """
    if not KEEPS_ORDER:
        with _barrier:
            pass


def full_fence() -> None:
    """Makes stores from before this visible to others before anything is read after it.

    Of two processes that each store one thing, call this, and read what the other
    stores, one at least reads the new value. That holds where `KEEPS_ORDER` is true:
    there the instruction that takes a lock waits for the stores before it.
    """
    with _barrier:
        pass


class SharedBlock:
    """A block of memory that travels to another process as a file descriptor.

    It never has a name: on Linux it is a memfd, elsewhere a file that is unlinked
    before another process could open it. So nothing is left in `/dev/shm` however the
    processes end, and the size of that mount does not matter.

    Example:
        >>> block = SharedBlock.create(64)
        >>> same = SharedBlock.attach(os.dup(block.fd), 64)
        >>> block.buffer[0] = 7
        >>> same.buffer[0]
        7
        >>> same.close(), block.close()
        (None, None)
    """

    def __init__(self, fd: int, size: int) -> None:
        """Maps `size` bytes of a descriptor, which now belongs to the block."""
        self.fd = fd
        self.size = size
        import mmap  # Not with the package: a fence, which slabs need, does without.

        self._map = mmap.mmap(fd, size)

    @classmethod
    def create(cls, size: int) -> SharedBlock:
        """Makes a block of zeros.

        Raises:
            MemoryError: There is not that much memory; a page that cannot be had would
                otherwise kill the process that touches it first.
        """
        if size > available_bytes():
            # Asking for it page by page would call the memory killer.
            raise _refused(size, f"there are {available_bytes():,}")
        fd = anonymous_file()
        try:
            os.ftruncate(fd, max(size, 1))
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, max(size, 1))
            return cls(fd, max(size, 1))
        except (OSError, OverflowError, ValueError) as error:
            os.close(fd)
            if getattr(error, "errno", None) in {errno.EMFILE, errno.ENFILE}:
                raise
            raise _refused(
                size, getattr(error, "strerror", None) or str(error)
            ) from error

    @classmethod
    def attach(cls, fd: int, size: int) -> SharedBlock:
        """Maps the block that another process made."""
        return cls(fd, max(size, 1))

    @property
    def buffer(self) -> mmap.mmap:
        """The bytes."""
        return self._map

    def write_behind(self, text: bytes) -> None:
        """Writes behind the bytes what is for others to read, if there is room."""
        with contextlib.suppress(OSError):
            os.pwrite(self.fd, text, self.size)

    def write_nothing_behind(self) -> None:
        """Takes away what was written behind the bytes."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, self.size)

    def close(self) -> None:
        """Gives the descriptor back.

        The mapping goes when the last array over it does: unmapping it under an array
        that is still in use would crash the process.
        """
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def available_bytes(root: str = "/") -> int:
    """Returns how much memory this process may have, as far as the system tells.

    Args:
        root: Where `proc` and `sys` are.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open(f"{root}/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":") for line in file.read().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    for path in _cgroup_limits(root):
        # "max" stands for no limit.
        with (
            contextlib.suppress(OSError, ValueError),
            open(path, encoding="ascii") as file,
        ):
            found.append(int(file.read()))
    return min(found, default=sys.maxsize)


def _cgroup_limits(root: str) -> Iterator[str]:
    """Yields the files that may limit this process's memory, of both versions."""
    groups = f"{root}/sys/fs/cgroup"
    places = {"": f"{groups}{{}}/memory.max"}
    places["memory"] = f"{groups}/memory{{}}/memory.limit_in_bytes"
    # A container sees its own group here, whatever the next file calls it.
    yield from (place.format("") for place in places.values())
    with contextlib.suppress(OSError, ValueError):
        with open(f"{root}/proc/self/cgroup", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
        for _, controllers, path in lines:
            for place in {*controllers.split(",")} & places.keys():
                # The limits of the groups around it hold as well.
                while path.strip("/"):
                    yield places[place].format(path)
                    path = path.rpartition("/")[0]


def _refused(size: int, reason: str) -> MemoryError:
    return MemoryError(
        f"The pool needs {size:,} bytes of shared memory, and the system refused them: "
        f"{reason}. Use fewer environments or smaller observations."
    )


def anonymous_file() -> int:
    """Opens a file that has no name, and returns its descriptor."""
    if sys.platform == "linux":
        return os.memfd_create("envkit", os.MFD_CLOEXEC)
    import tempfile  # which loads a dozen modules that Linux has no need of

    with tempfile.TemporaryFile(prefix="envkit") as file:
        return os.dup(file.fileno())
