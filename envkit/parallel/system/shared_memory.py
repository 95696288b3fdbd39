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

# These processors show their stores to others in the order in which they made them.
KEEPS_ORDER = platform.machine().lower() in {"x86_64", "amd64", "i686", "i386"}
_barrier = threading.Lock()


def fence() -> None:
    """Orders memory: stores before the fence are visible before those after it.

    It belongs between writing a row and the number that says the row is complete.
    Acquiring and releasing a lock orders memory. On a processor that keeps stores in
    order, it costs only the call.
    """
    if not KEEPS_ORDER:
        with _barrier:
            pass


def full_fence() -> None:
    """Makes earlier stores visible to others before any later read.

    If two processes each store a value, call this, and read the other's value, at least
    one of them reads the new one. That holds only if `KEEPS_ORDER` is True: on those
    processors, the instruction that acquires a lock waits for earlier stores.
    """
    with _barrier:
        pass


class SharedBlock:
    """A block of memory that is passed to other processes as a file descriptor.

    It never has a name: on Linux it is a memfd, elsewhere a file that is unlinked
    before another process can open it. So nothing is left in `/dev/shm` however the
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
        import mmap  # Imported late: slabs need only the fences of this module.

        self._map = mmap.mmap(fd, size)

    @classmethod
    def create(cls, size: int) -> SharedBlock:
        """Makes a block of zeros.

        Raises:
            MemoryError: There is not that much memory. Otherwise the first process to
                touch a missing page would be killed.
        """
        if size > available_bytes():
            # Allocating it page by page would bring on the OOM killer.
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
        """Maps a block that another process made."""
        return cls(fd, max(size, 1))

    @property
    def buffer(self) -> mmap.mmap:
        """The bytes."""
        return self._map

    def write_behind(self, text: bytes) -> None:
        """Writes a text for other processes after the block, if there is room."""
        with contextlib.suppress(OSError):
            os.pwrite(self.fd, text, self.size)

    def write_nothing_behind(self) -> None:
        """Removes the text after the block."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, self.size)

    def close(self) -> None:
        """Closes the descriptor.

        The memory is unmapped with the last array over it: unmapping it under an array
        in use would crash the process.
        """
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def available_bytes(root: str = "/") -> int:
    """Returns how much memory this process can get, as far as the system says.

    Args:
        root: The folder with `proc` and `sys`.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open(f"{root}/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":") for line in file.read().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    for path in _cgroup_limits(root):
        # "max" means no limit.
        with (
            contextlib.suppress(OSError, ValueError),
            open(path, encoding="ascii") as file,
        ):
            found.append(int(file.read()))
    return min(found, default=sys.maxsize)


def _cgroup_limits(root: str) -> Iterator[str]:
    """Yields the files of both cgroup versions that may limit our memory."""
    groups = f"{root}/sys/fs/cgroup"
    places = {"": f"{groups}{{}}/memory.max"}
    places["memory"] = f"{groups}/memory{{}}/memory.limit_in_bytes"
    # A container sees its own group here, whatever name the next file has for it.
    yield from (place.format("") for place in places.values())
    with contextlib.suppress(OSError, ValueError):
        with open(f"{root}/proc/self/cgroup", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
        for _, controllers, path in lines:
            for place in {*controllers.split(",")} & places.keys():
                # The limits of the enclosing groups apply too.
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
    import tempfile  # loads a dozen modules that Linux does not need

    with tempfile.TemporaryFile(prefix="envkit") as file:
        return os.dup(file.fileno())
