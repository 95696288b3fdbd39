"""`PublishedPool`: the facts that a pool publishes for programs such as `envkit top`.

They are written once, behind the rows in shared memory, when all workers are ready. A
process with permission to read this one's memory finds them, on Linux as a file in
`/proc`, together with the counters that workers keep anyway. So being observed costs
the pool nothing, and nothing has to be removed however the process ends.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from envkit.parallel.observers import PoolObserver
from envkit.parallel.slab_layout import (
    BUSY_NS,
    CLOSED,
    ELSEWHERE,
    IDLE,
    METERS,
    MOVED,
    NO_PROCESS,
    PROCESS,
    RAISED,
    RESETS,
    RESTARTS,
    STEPS,
    WAITING_NS,
)
from envkit.provenance import envkit_version
from envkit.registry import recipe_of_constructor
from envkit.types import Array

if TYPE_CHECKING:
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.pool import Pool
    from envkit.parallel.slab import Slab

__all__ = [
    "FORMAT",
    "PublishedCounts",
    "PublishedMemory",
    "PublishedPool",
    "PublishedWorker",
    "Publisher",
]

# The version of the plate, the published text; it changes with the meaning of its
# contents.
FORMAT = 3
# The end of the file: the offset of the plate, and a mark that there is one.
_END = struct.Struct("<Q8s")
_MARK = b"envkit\0\1"
# Anything larger cannot be a plate, and could take all of the reader's memory.
_LONGEST, _MOST_ROWS = 2**26, 2**22
# Enough for a reader who does not know the pool.
_MOST_TARGETS = 20


@dataclass(frozen=True, slots=True)
class PublishedPool:
    """The published facts about a pool.

    Attributes:
        kind: The pool's class.
        program: The program that runs it.
        pid: Its process, in the process's own PID namespace.
        targets: Its kinds of environments, each once.
        envs: The number of environments.
        blocks: Each worker's first row and the row after its last.
        first_rows: The first row of each environment.
        places: The offsets of the counters, by name.
        are_linked: Whether rows answer over links, in which case nobody can see which
            of a worker's rows is running.
        began: When it became ready, in seconds since 1970.
        envkit: The version of envkit.
        format: The version of the plate.
    """

    kind: str
    program: str
    pid: int
    targets: Sequence[str]
    envs: int
    blocks: Sequence[Sequence[int]]
    first_rows: Sequence[int]
    places: dict[str, int]
    are_linked: bool
    began: float
    envkit: str
    format: int = FORMAT

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.blocks[-1][1]

    def packed(self, size: int) -> bytes:
        """Returns the bytes to write after `size` bytes of rows."""
        import json

        return json.dumps(asdict(self)).encode() + _END.pack(size, _MARK)

    @classmethod
    def read(cls, fd: int) -> PublishedPool | None:
        """Reads the facts published by the pool whose memory a file is.

        Args:
            fd: A descriptor of the memory, opened from `/proc/PID/fd/N`, say.

        Returns:
            The facts; `None` if the memory is not a pool's.

        Raises:
            ValueError: It belongs to a version of envkit with other plates, or to no
                pool.
        """
        size = os.fstat(fd).st_size
        end = os.pread(fd, _END.size, max(0, size - _END.size))
        if len(end) < _END.size:
            return None
        place, mark = _END.unpack(end)
        length = size - _END.size - place
        if mark != _MARK or not 0 < length <= _LONGEST:
            return None
        import json

        # Any program may have such memory, with anything in it.
        try:
            found: dict[str, Any] = json.loads(os.pread(fd, length, place))
            is_known = found.get("format") == FORMAT
            plate = cls(**found) if is_known else None
            is_whole = plate is None or plate._fits(place)
        except Exception as error:
            raise ValueError(f"the plate cannot be read: {error}") from error
        if plate is None:
            raise ValueError(
                f"the pool is run by envkit {found.get('envkit')}, which counts "
                "otherwise than this one"
            )
        if not is_whole:
            raise ValueError("the plate does not fit the memory that it is behind")
        return plate

    def _fits(self, size: int) -> bool:
        """Returns True if the facts are plausible and the counters fit."""
        texts = [self.kind, self.program, self.envkit, *self.targets]
        if not all(isinstance(text, str) for text in texts):
            return False
        ends = [0, *(stop for _, stop in self.blocks)]
        counts = [self.pid, self.envs, *ends, *self.first_rows, *self.places.values()]
        if not all(type(count) is int and count >= 0 for count in counts):
            return False
        firsts = [*self.first_rows, self.rows]
        arrays = {
            "modes": 64,
            "meters": 8 * METERS * len(self.blocks),
            "worker_facts": 16 * len(self.blocks),
            "sequence": 4 * self.rows,
            "command": self.rows,
            "answered": 4 * self.rows,
        }
        return (
            type(self.are_linked) is bool
            and type(self.began) in (int, float)
            and 0 <= self.began < math.inf
            and [first for first, _ in self.blocks] == ends[:-1]
            and all(first < stop for first, stop in itertools.pairwise(ends))
            and len(self.first_rows) == self.envs
            and firsts[0] == 0
            and all(first < stop for first, stop in itertools.pairwise(firsts))
            and self.rows <= _MOST_ROWS
            and all(self.places[name] + arrays[name] <= size for name in arrays)
        )


class PublishedWorker(NamedTuple):
    """The published facts about one worker.

    Attributes:
        process: Its process, in the pool's PID namespace; `None` if it has none, or is
            on another machine.
        is_elsewhere: Whether it is on another machine.
        restarts: How many times it was replaced.
    """

    process: int | None
    is_elsewhere: bool
    restarts: int


class PublishedCounts(NamedTuple):
    """A pool's counts at one moment.

    Attributes:
        calls: How many times the caller has asked rows.
        numbers: The number of each row's last request.
        steps: For each worker, the number of commands that its rows have executed.
        resets: For each worker, the number of episodes begun.
        busy_ns: For each worker, the nanoseconds it spent running rows.
        waiting_ns: For each worker, the nanoseconds it spent waiting.
    """

    calls: int
    numbers: Array
    steps: Array
    resets: Array
    busy_ns: Array
    waiting_ns: Array

    def requests_since(self, before: PublishedCounts) -> Array:
        """Returns how many requests each row has had since an earlier moment."""
        # A request raises the number by two; numbers wrap around.
        requests: Array = (self.numbers - before.numbers).astype(np.int64) >> 1
        return requests


class PublishedMemory:
    """Reads the counts of a pool from another process.

    It does not map the memory, because a process that touches mapped memory after its
    owner has shrunk it is killed.

    Attributes:
        is_whole: Whether every read found all of its bytes.
    """

    def __init__(self, fd: int, pool: PublishedPool) -> None:
        """Takes a descriptor of the pool's memory, and its published facts.

        Args:
            fd: The descriptor, which still belongs to the caller.
            pool: The result of `PublishedPool.read`.
        """
        self._fd, self._pool = fd, pool
        self._rows, self._workers = pool.rows, len(pool.blocks)
        self.is_whole = True

    def counts(self) -> PublishedCounts:
        """Returns the pool's counts so far."""
        modes = self._array("modes", np.uint64, 8)
        meters = self._array("meters", np.int64, METERS * self._workers)
        by_worker = meters.reshape(self._workers, METERS)
        return PublishedCounts(
            int(modes[1]),
            self._array("sequence", np.uint32, self._rows),
            *(by_worker[:, which] for which in (STEPS, RESETS, BUSY_NS, WAITING_NS)),
        )

    def running(self) -> tuple[Array, Array]:
        """Returns a mask of the rows that owe an answer, and all rows' numbers."""
        numbers = self._array("sequence", np.uint32, self._rows)
        commands = self._array("command", np.uint8, self._rows)
        answered = self._array("answered", np.uint32, self._rows)
        return ((numbers ^ answered) > RAISED) & (commands != IDLE), numbers

    def workers(self) -> list[PublishedWorker]:
        """Returns the current facts about the workers."""
        return [
            PublishedWorker(
                process if process > NO_PROCESS else None,
                process == ELSEWHERE,
                restarts,
            )
            for process, restarts in self._facts().tolist()
        ]

    def has_moved(self) -> bool:
        """Returns True if the rows are in new memory because their number changed."""
        return bool((self._facts()[:, PROCESS] == MOVED).all())

    def is_closed(self) -> bool:
        """Returns True if the pool was closed."""
        return bool((self._facts()[:, PROCESS] == CLOSED).all())

    def _facts(self) -> Array:
        found = self._array("worker_facts", np.int64, 2 * self._workers)
        return found.reshape(self._workers, 2)

    def _array(self, name: str, dtype: Any, count: int) -> Array:
        """Returns a copy of an array in the pool's memory."""
        size = count * np.dtype(dtype).itemsize
        found = os.pread(self._fd, size, self._pool.places[name])
        if len(found) < size:
            self.is_whole = False
            found = found.ljust(size, b"\0")
        return np.frombuffer(found, dtype)


class Publisher(PoolObserver):
    """Keeps the published facts about a pool and its workers up to date."""

    def __init__(self, pool: Pool, backend: Backend, kind: str) -> None:
        """Publishes a pool, if the backend supports it.

        Args:
            pool: The pool.
            backend: The backend that runs its workers.
            kind: The class that the user made.
        """
        self._pool, self._backend, self._kind = pool, backend, kind
        self._began = time.time()
        self._publish()

    def _publish(self) -> None:
        for worker in range(len(self._pool.workers.workers)):
            self._write(worker)
        constructors = self._pool.workers.constructors()
        # Most pools repeat the same constructor.
        distinct = {id(each): each for each in constructors}.values()
        # `is_listed` is False if the pool is part of an environment, and not the
        # user's.
        if not all(getattr(each, "is_listed", True) for each in distinct):
            return
        targets = list(dict.fromkeys(map(_target_of, distinct)))
        layout = self._pool.layout
        published = PublishedPool(
            kind=self._kind,
            program=os.path.basename(sys.argv[0]) or "python",
            pid=os.getpid(),
            targets=targets[:_MOST_TARGETS],
            envs=len(constructors),
            blocks=layout.blocks,
            first_rows=[rows.start for rows in self._pool.rows_of_env],
            places=layout.places,
            are_linked=not self._backend.keeps_answers,
            began=self._began,
            envkit=envkit_version(),
        )
        self._backend.publish(published.packed(layout.size))

    def _write(self, worker: int) -> None:
        """Publishes a worker's process, and how many times it was replaced."""
        entry = self._pool.workers.workers[worker]
        process = entry.process if entry.is_present else NO_PROCESS
        self._pool.slab.write_fact(PROCESS, process, worker)
        self._pool.slab.write_fact(RESTARTS, entry.restarts, worker)

    def started(self, worker: int) -> None:
        """Publishes the process of a restarted worker."""
        self._write(worker)

    def raised(self, env: int) -> None:
        """Publishes that a worker rebuilds an environment."""
        self._write(self._pool.worker_of(env))

    def ended(self, worker: int) -> None:
        """Publishes that a worker has no process."""
        self._pool.slab.write_fact(PROCESS, NO_PROCESS, worker)

    def resized(self, before: Slab) -> None:
        """Publishes the new rows; observers of the old ones notice."""
        before.write_fact(PROCESS, MOVED)
        self._publish()

    def closed(self) -> None:
        """Publishes that the pool is closed, because otherwise it would look idle."""
        self._pool.slab.write_fact(PROCESS, CLOSED)


def _target_of(constructor: Any) -> str:
    try:
        return str(recipe_of_constructor(constructor)["id"])
    except Exception:  # The constructor may be any callable.
        return type(constructor).__name__
