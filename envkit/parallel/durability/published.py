"""`Nameplate`: what a pool tells of itself to those who look on from another process.

It is written once, behind the rows in the shared memory, when all workers are there.
A process that may read the memory of this one finds it, on Linux as a file of `/proc`,
and with it the counters that workers keep anyway. So looking on costs the pool
nothing, and nothing has to be removed, however the process ends.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from envkit.parallel.slab import METERS
from envkit.provenance import envkit_version
from envkit.registry import recipe_of_constructor

if TYPE_CHECKING:
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.pool import Pool

__all__ = ["FORMAT", "Nameplate", "put_up_nameplate"]

# What the numbers and places of a plate mean; it changes when they do.
FORMAT = 2
# The end of the file: where the plate begins, and what shows that there is one.
_END = struct.Struct("<Q8s")
_MARK = b"envkit\0\1"
# A larger one cannot be a plate, and would take all memory of those who look on.
_LONGEST, _MOST_ROWS = 2**26, 2**22
# As many as a reader needs of a pool that they do not know.
_TOLD_TARGETS = 20


@dataclass(frozen=True, slots=True)
class Nameplate:
    """What a pool tells of itself.

    Attributes:
        kind: The class of the pool.
        program: What runs it.
        pid: Its process, as the process itself sees that.
        targets: What its environments are, each once.
        envs: How many environments there are.
        blocks: For each worker, its first row and the row after its last.
        first_rows: The first row of each environment.
        places: Where the counters begin, by name.
        are_linked: Whether rows answer over links, in which case it does not show
            which of a worker's rows is running.
        began: When it was ready, in seconds since 1970.
        envkit: Which envkit runs it.
        format: What the plate means.
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
        """How many rows there are."""
        return self.blocks[-1][1]

    def packed(self, size: int) -> bytes:
        """Returns what is to be written behind that many bytes."""
        import json

        return json.dumps(asdict(self)).encode() + _END.pack(size, _MARK)

    @classmethod
    def read(cls, fd: int) -> Nameplate | None:
        """Reads the plate of a file; `None` if it has none.

        Raises:
            ValueError: It is of an envkit that writes other plates, or no pool's.
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

        # Any program may write such memory, and anything into it.
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
        """True if a pool can be so, and its counters lie in that much memory."""
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


def put_up_nameplate(
    kind: str, constructors: Sequence[Any], backend: Backend, pool: Pool, began: float
) -> None:
    """Tells whose pool this is, if the backend has a place for that."""
    # Most constructors are one and the same.
    distinct = {id(each): each for each in constructors}.values()
    # A constructor says so whose pool is a part of an environment, which nobody made.
    if not all(getattr(each, "is_listed", True) for each in distinct):
        return
    targets = list(dict.fromkeys(map(_target_of, distinct)))
    plate = Nameplate(
        kind=kind,
        program=os.path.basename(sys.argv[0]) or "python",
        pid=os.getpid(),
        targets=targets[:_TOLD_TARGETS],
        envs=len(constructors),
        blocks=pool.layout.blocks,
        first_rows=[rows.start for rows in pool.rows_of_env],
        places=pool.layout.places,
        are_linked=not backend.keeps_answers,
        began=began,
        envkit=envkit_version(),
    )
    backend.publish(plate.packed(pool.layout.size))


def _target_of(constructor: Any) -> str:
    try:
        return str(recipe_of_constructor(constructor)["id"])
    except Exception:  # It may be anything that can be called.
        return type(constructor).__name__
