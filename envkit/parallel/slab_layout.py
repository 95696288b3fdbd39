"""`SlabLayout`: the arrays of a slab, their contents, and their places.

`ARRAYS` is the table: each array, its writer and its purpose. The parent's arrays and
the workers' arrays lie on different cache lines. Leaves of dtype object do not fit into
shared memory: each side has private arrays for them, and the backend transfers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.specs.arrays import ArraySpec
from envkit.specs.environment_spec import DeclaredInfo, EnvironmentSpec
from envkit.time_step import STEP_TYPE_SPEC, TimeStep
from envkit.types import Array

__all__ = [
    "ANY_INFO",
    "ARRAYS",
    "AWAITED_NS",
    "AWAKE",
    "BEGUN_INFO",
    "BUSY_NS",
    "CACHE_LINE",
    "CLOSED",
    "DECLARED_INFO",
    "DISABLED_ORDER",
    "ELSEWHERE",
    "HIDDEN_NS",
    "HIDDEN_RESETS",
    "IDLE",
    "LAST_CPU",
    "LOST",
    "METERS",
    "MOVED",
    "NEXT_STEP_ORDER",
    "NO_PROCESS",
    "ONLY_DECLARED_INFO",
    "PROCESS",
    "RAISED",
    "REBUILD",
    "RESET",
    "RESETS",
    "RESIDENT",
    "RESTARTS",
    "RUNS",
    "SAME_STEP_ORDER",
    "SAME_STEP_SLOT",
    "SHOWN_INFO",
    "SHOWN_SLOTS",
    "SLOTS",
    "STEP",
    "STEPS",
    "TERMINATED",
    "TRUNCATED",
    "WAITING_NS",
    "SlabArray",
    "SlabLayout",
    "is_private",
    "shareable",
    "slot_of",
]

CACHE_LINE = 64

IDLE, STEP, RESET, REBUILD = range(4)

# The lowest bit of an answer.
RAISED = 1

SAME_STEP_SLOT = 2
SLOTS, SHOWN_SLOTS = 3, 2

# Values of `Slab.autoreset`.
NEXT_STEP_ORDER, SAME_STEP_ORDER, DISABLED_ORDER = range(3)

# Bits of `Slab.has_info`: there is an info for the shown time step, and for the FIRST
# that follows it in the same step. Both are set where workers have not looked.
SHOWN_INFO, BEGUN_INFO = 1, 2
ANY_INFO = SHOWN_INFO | BEGUN_INFO
# The declared part of the info is in the slab; the info has nothing else.
DECLARED_INFO, ONLY_DECLARED_INFO = 4, 8
# How the episode has ended, if it has; both can be true.
TERMINATED, TRUNCATED = 16, 32
# The `LAST` is made up for what the environment has lost inside. Only with a `LAST`.
LOST = 64

# Places in a worker's line of `meters`. It updates its counts before it marks the last
# row of a run. Further: the CPU where it last ran; its memory, if it may be on another
# machine; how many resets were over before their rows were asked, how long these took,
# and how long the others took.
STEPS, RESETS, BUSY_NS, WAITING_NS, RUNS, LAST_CPU, RESIDENT = range(7)
HIDDEN_RESETS, HIDDEN_NS, AWAITED_NS = range(7, 10)
# Whether it will look at `announcements` before it sleeps, and so needs no ring.
AWAKE = 10
# The number of places in a line.
METERS = 16

# The parent's facts about a worker, for observers in other processes: its process and
# how often it was replaced. Special values in place of a process: there is none at the
# moment; the pool is closed; it is on another machine, so its number means nothing
# here; the rows have moved to another slab, because their number has changed.
PROCESS, RESTARTS = range(2)
NO_PROCESS, CLOSED, ELSEWHERE, MOVED = 0, -1, -2, -3


def slot_of(number: int) -> int:
    """Returns the slot of the answer to a request.

    Example:
        >>> [slot_of(number) for number in (2, 4, 6, 6 | RAISED)]
        [1, 0, 1, 1]
    """
    return (number >> 1) & 1


class SlabArray(NamedTuple):
    """One line of the slab's table.

    Attributes:
        name: Its name.
        dtype: The dtype of its elements; empty if there is an array for each leaf, with
            the leaf's dtype.
        shape: The sizes of its dimensions: N is the number of rows, W that of workers.
            The shape of a leaf comes last.
        writer: Who writes it.
        purpose: Its purpose.
    """

    name: str
    dtype: str
    shape: tuple[str | int, ...]
    writer: str
    purpose: str


# In the order in which they lie in memory. The parent's arrays and the workers' arrays
# lie on different cache lines.
_P, _W = "the parent", "a worker"
ARRAYS = tuple(
    SlabArray(*line)
    for line in (
        (
            "modes",
            "uint8",
            (CACHE_LINE,),
            _P,
            "the autoreset order, counts of requests",
        ),
        ("sequence", "uint32", ("N",), _P, "the number of a row's last request"),
        ("command", "uint8", ("N",), _P, "IDLE, STEP, RESET or REBUILD"),
        ("answered", "uint32", ("N",), _W, "the number it has answered"),
        (
            "has_info",
            "uint8",
            ("N",),
            _W,
            "whether it has an info, how it ended, if it was lost",
        ),
        ("meters", "int64", ("W", METERS), _W, "what statistics() shows"),
        ("worker_facts", "int64", ("W", 2), _P, "each worker's process, its restarts"),
        ("actions", "", ("N",), _P, "one array for each leaf of an action"),
        ("steps", "", (SLOTS, "N"), _W, "one for each leaf of a time step"),
        ("infos", "", (SHOWN_SLOTS, "N"), _W, "one for each declared leaf of an info"),
    )
)


@dataclass(frozen=True)
class SlabLayout:
    """Computes where each array is, with the same result in every process.

    Attributes:
        spec: The specs of one environment.
        blocks: Each worker's first row and the row after its last.
        info_spec: The infos that all environments declare, in dictionaries.
    """

    spec: EnvironmentSpec
    blocks: tuple[tuple[int, int], ...]
    info_spec: dict[str, Any] = field(default_factory=dict)

    def of_worker(self, worker: int) -> SlabLayout:
        """Returns the layout of one worker's rows alone.

        Example:
            >>> from envkit.envs import CartPole
            >>> layout = SlabLayout(EnvironmentSpec.of(CartPole()), ((0, 3), (3, 5)))
            >>> layout.of_worker(1).blocks
            ((0, 2),)
        """
        first, stop = self.blocks[worker]
        return SlabLayout(self.spec, ((0, stop - first),), self.info_spec)

    @property
    def workers(self) -> range:
        """The workers that have rows."""
        return range(len(self.blocks))

    @property
    def worker_of_row(self) -> Array:
        """The index of each row's worker."""
        counts = [stop - first for first, stop in self.blocks]
        return np.repeat(np.arange(len(self.blocks)), counts)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.blocks[-1][1]

    @cached_property
    def action(self) -> nest.Structure:
        """The structure of an action."""
        return nest.Structure(self.spec.action)

    @cached_property
    def time_step(self) -> nest.Structure:
        """The structure of a time step."""
        return nest.Structure(
            TimeStep(
                STEP_TYPE_SPEC,
                self.spec.reward,
                self.spec.discount,
                self.spec.observation,
            )
        )

    @cached_property
    def info(self) -> DeclaredInfo:
        """Reads the declared leaves of an info."""
        return DeclaredInfo(self.info_spec)

    @property
    def declares_info(self) -> bool:
        """True if the environments declare an info."""
        return bool(self.info.structure.leaves)

    @cached_property
    def _leaves(self) -> dict[str, Sequence[ArraySpec]]:
        """The specs of leaves, by the name of their arrays in the table."""
        return {
            "actions": self.action.leaves,
            "steps": self.time_step.leaves,
            "infos": self.info.structure.leaves,
        }

    @cached_property
    def _arrays(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """The shape and dtype of every array, in the order of their places."""
        sizes: dict[str | int, Any] = {"N": self.rows, "W": len(self.blocks)}
        found: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        for array in ARRAYS:
            first = tuple(
                sizes[size] if size in sizes else int(size) for size in array.shape
            )
            if array.name in self._leaves:
                leaves = self._leaves[array.name]
                found += [((*first, *spec.shape), spec.dtype) for spec in leaves]
            else:
                found.append((first, np.dtype(array.dtype)))
        return found

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The offset of each array; the last entry is the total size."""
        offsets = [0]
        for shape, dtype in self._arrays:
            size = 0 if is_private(dtype) else _bytes_of(shape, dtype)
            offsets.append(offsets[-1] + -(-size // CACHE_LINE) * CACHE_LINE)
        return tuple(offsets)

    @property
    def places(self) -> dict[str, int]:
        """The offsets of the arrays that `envkit top` reads from another process."""
        names = [array.name for array in ARRAYS if array.dtype]
        return dict(zip(names, self.offsets, strict=False))

    @property
    def size(self) -> int:
        """The size of the shared memory in bytes."""
        return self.offsets[-1]

    def arrays(self, buffer: Any) -> dict[str, list[Array]]:
        """Lays the arrays over a buffer; arrays that cannot be shared are new.

        Returns:
            For each name in `ARRAYS`: one array, or one for each leaf.
        """
        laid = iter(
            [
                np.full(shape, None, object)
                if is_private(dtype)
                else np.ndarray(shape, dtype, buffer, offset)
                for (shape, dtype), offset in zip(
                    self._arrays, self.offsets, strict=False
                )
            ]
        )
        return {
            array.name: [next(laid) for _ in self._leaves.get(array.name, (None,))]
            for array in ARRAYS
        }

    @cached_property
    def reward_leaves(self) -> range:
        """The numbers of the leaves of the reward."""
        return range(1, 1 + len(nest.flatten(self.spec.reward)))

    @cached_property
    def discount_leaves(self) -> range:
        """The numbers of the leaves of the discount."""
        first = self.reward_leaves.stop
        return range(first, first + len(nest.flatten(self.spec.discount)))

    @cached_property
    def private_actions(self) -> tuple[int, ...]:
        """The numbers of the leaves of an action that cannot be shared."""
        return _private(self.action.leaves)

    @cached_property
    def private_steps(self) -> tuple[int, ...]:
        """The numbers of the leaves of a time step that cannot be shared."""
        return _private(self.time_step.leaves)


def is_private(dtype: np.dtype[Any]) -> bool:
    """Returns True if values of a dtype cannot be kept in shared memory.

    Objects are addresses, and text of no fixed width has no place to be written to.
    """
    return dtype.hasobject or (dtype.itemsize == 0 and dtype.kind in "SU")


def shareable(info_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of an `info_spec` that shared memory can hold."""
    parts: dict[str, Any] = {}
    for key, value in info_spec.items():
        part = shareable(value) if isinstance(value, Mapping) else value
        if part and not (isinstance(part, ArraySpec) and is_private(part.dtype)):
            parts[key] = part
    return parts


def _private(specs: Sequence[ArraySpec]) -> tuple[int, ...]:
    return tuple(index for index, spec in enumerate(specs) if is_private(spec.dtype))


def _bytes_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    size = dtype.itemsize
    for length in shape:
        size *= length
    return size
