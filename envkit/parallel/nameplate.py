"""`Nameplate`: what a pool tells of itself to those who look on from another process.

It is written once, behind the rows in the shared memory, when all workers are there.
Whoever may read the memory of the process finds it, on Linux as a file of `/proc`, and
with it the counters that workers keep anyway. So nobody who looks on costs the pool
anything, and nothing has to be removed, however the process ends.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from envkit.constructors import recipe_of_constructor
from envkit.provenance import envkit_version

if TYPE_CHECKING:
    from envkit.parallel.pool import WorkerPool

__all__ = ["FORMAT", "Nameplate", "put_up_nameplate"]

# What the numbers and places of a plate mean; it changes when they do.
FORMAT = 1
# The end of the file: where the plate begins, and what shows that there is one.
_END = struct.Struct("<Q8s")
_MARK = b"envkit\0\1"
# As many as anybody wants to read of a pool that they do not know.
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
            ValueError: It is of an envkit that writes other plates.
        """
        size = os.fstat(fd).st_size
        end = os.pread(fd, _END.size, max(0, size - _END.size))
        if len(end) < _END.size:
            return None
        place, mark = _END.unpack(end)
        if mark != _MARK or place > size:
            return None
        import json

        found: dict[str, Any] = json.loads(
            os.pread(fd, size - _END.size - place, place)
        )
        if found.get("format") != FORMAT:
            raise ValueError(
                f"the pool is run by envkit {found.get('envkit')}, which counts "
                "otherwise than this one"
            )
        return cls(**found)


def put_up_nameplate(
    kind: str, constructors: Sequence[Any], backend: Any, pool: WorkerPool
) -> None:
    """Tells whose pool this is, if the backend has a place for that."""
    if not hasattr(backend, "put_up"):
        return
    # Most constructors are one and the same.
    distinct = {id(each): each for each in constructors}.values()
    plate = Nameplate(
        kind=kind,
        program=os.path.basename(sys.argv[0]) or "python",
        pid=os.getpid(),
        targets=list(dict.fromkeys(map(_target_of, distinct)))[:_TOLD_TARGETS],
        envs=len(constructors),
        blocks=pool.layout.blocks,
        first_rows=[rows.start for rows in pool.rows_of_env],
        places=pool.layout.places,
        began=time.time(),
        envkit=envkit_version(),
    )
    backend.put_up(plate.packed(pool.layout.size))


def _target_of(constructor: Any) -> str:
    try:
        return str(recipe_of_constructor(constructor)["id"])
    except Exception:  # It may be anything that can be called.
        return type(constructor).__name__
