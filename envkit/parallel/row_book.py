"""`RowBook` and `RowMap`: the state of every row, and whose row it is.

The state of one row:

```
           submit                  row answered              take
 READY ───────────────▶ BUSY ───────────────────▶ FINISHED ─────────▶ READY
   ▲                      │ raised, died, late
   │ repaired (FINISHED)  ▼
   └──────────────────  lost  ──(no restart allowed)──▶ BROKEN ──(reset)──▶ BUSY
```

What a lost row returns keeps its stream grammatical. In the middle of an episode it is
a `LAST` with the last whole observation, and the next step returns the `FIRST` of the
new environment; where a `FIRST` was due, it is the new environment's.

The book knows no workers and no clock: whoever keeps it says what happened, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envkit.errors import WorkerError
from envkit.parallel.slab import (
    ANY_INFO,
    REBUILD,
    RESET,
    SAME_STEP_ORDER,
    SAME_STEP_SLOT,
    STEP,
    Slab,
    SlabLayout,
    slot_of,
)
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import StepType
from envkit.types import Array

__all__ = ["BROKEN", "BUSY", "FINISHED", "READY", "RowBook", "RowMap"]

READY, BUSY, FINISHED, BROKEN = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class RowMap:
    """Whose rows are whose; it never changes while there is a pool.

    Attributes:
        layout: Where the rows are, with a block for each worker.
        rows: How many rows there are.
        is_batch: For each environment, whether it is a batch itself.
        rows_of_env: For each environment, its rows.
        env_of_row: For each row, the index of its environment.
        worker_of_row: For each row, the index of its worker.
    """

    layout: SlabLayout
    rows: int
    is_batch: list[bool]
    rows_of_env: list[range]
    env_of_row: Array
    worker_of_row: Array

    @classmethod
    def of(
        cls,
        spec: EnvironmentSpec,
        batch_sizes: Sequence[Sequence[int | None]],
        info_spec: dict[str, Any],
    ) -> RowMap:
        """Gives every environment its rows, in order.

        Args:
            spec: The specs of one row.
            batch_sizes: For each worker, the batch size of each of its environments,
                `None` for a single one.
            info_spec: What all environments declare of their infos.
        """
        of_envs = [size for worker in batch_sizes for size in worker]
        sizes = [size or 1 for size in of_envs]
        stops = np.cumsum(sizes).tolist()
        rows_of_env = [
            range(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)
        ]
        blocks: list[tuple[int, int]] = []
        env = 0
        for worker in batch_sizes:
            first, env = env, env + len(worker)
            blocks.append((rows_of_env[first].start, rows_of_env[env - 1].stop))
        return cls(
            layout=SlabLayout(spec, tuple(blocks), info_spec),
            rows=stops[-1],
            is_batch=[size is not None for size in of_envs],
            rows_of_env=rows_of_env,
            env_of_row=np.repeat(np.arange(len(sizes)), sizes),
            worker_of_row=np.repeat(
                np.arange(len(blocks)), [stop - first for first, stop in blocks]
            ),
        )


class RowBook:
    """Keeps what is known of every row, beside its time steps in the slab.

    The arrays and dicts stay the same objects for as long as there is a book.

    Attributes:
        slab: Where the rows are, until `close`.
        state: For each row, READY, BUSY, FINISHED or BROKEN.
        repaired: Which rows' last time step was made up for an environment that is
            gone.
        errors: For each BROKEN row, why.
        begun: Which rows have ever begun an episode.
        wanted: For each row, what the caller asked it for last.
        due: For each BUSY row, until when it has to answer.
        begin: The command with which a new environment begins, where there is one.
        held: For each row whose command waits for a worker, or for a pause to pass,
            the end of the pause.
    """

    def __init__(self, slab: Slab, row_map: RowMap) -> None:
        """Opens a book in which every row is READY."""
        rows = row_map.rows
        self.slab: Slab = slab
        self._map = row_map
        self.state = np.full(rows, READY, np.uint8)
        self.repaired = np.zeros(rows, bool)
        self.errors: dict[int, WorkerError] = {}
        self.begun = np.zeros(rows, bool)
        self.wanted = np.zeros(rows, np.uint8)
        self.due = np.full(rows, np.inf)
        self.begin = np.zeros(rows, np.uint8)
        self.held: dict[int, float] = {}
        # When a new environment may begin, after a pause.
        self._begin_at = np.zeros(rows)
        # Rows whose episode was cut while nobody was asking: they owe a LAST.
        self._cut = np.zeros(rows, bool)
        # Rows that have been given a moment more for what they were asked.
        self._spared = np.zeros(rows, bool)
        # Rows that return a LAST together with the FIRST of the new environment.
        self._cut_at_once = np.zeros(rows, bool)
        # Which rows finished before which.
        self._order = np.zeros(rows, np.int64)
        self._next_order = 0

    # What is asked and answered.

    def is_plain(self) -> bool:
        """Says whether all rows are READY and nothing is to be remembered about any."""
        return not (
            self.state.any()
            or self.begin.any()
            or self.held
            # Every row that moves is to lose its mark.
            or self.repaired.any()
        )

    def note_asked(self, rows: Array, command: int | Array, due: float | Array) -> None:
        """Notes what the caller wants of all rows, or of each, and until when."""
        self.repaired[rows] = False
        self.wanted[rows] = command
        self.due[rows] = due
        self._spared[rows] = False

    def take_up(self, row: int, command: int) -> bool:
        """Takes up a command for an environment that is new, or not there now.

        Returns:
            Whether the command is held; otherwise the row has finished.
        """
        self.errors.pop(row, None)
        was_cut = self._cut[row]
        self._cut[row] = False
        self.state[row] = BUSY
        if command == STEP and was_cut:
            self._end_episode(row, float(self._begin_at[row]))
        else:
            self.held[row] = float(self._begin_at[row])
        return row in self.held

    def release(self, rows: Sequence[int]) -> None:
        """Notes that the commands of held rows are on their way now."""
        for row in rows:
            del self.held[row]
            self._spared[row] = False
            if not self.begin[row]:
                self.begin[row] = RESET

    def find_lost_requests(self) -> list[int]:
        """Finds rows that were asked by a call that did not live to note it."""
        lost = ~self.slab.answered_rows() & (self.state != BUSY)
        if not lost.any():
            return []
        self.wanted[lost] = self.slab.command[lost]
        self._spared[lost] = False
        self.state[lost] = BUSY
        return np.flatnonzero(lost).tolist()

    def asked(self) -> Array:
        """Returns the BUSY rows whose commands are on their way, or have been."""
        return np.array(
            [row for row in np.flatnonzero(self.state == BUSY) if row not in self.held],
            np.intp,
        )

    def owing(self) -> Array:
        """Returns the BUSY rows that have not answered."""
        return np.flatnonzero((self.state == BUSY) & ~self.slab.answered_rows())

    def postpone(self, seconds: float, until: float) -> None:
        """Gives BUSY rows the seconds in which nothing ran.

        Args:
            seconds: How many.
            until: Until when a row has in any case, but only once for each request.
        """
        busy = self.state == BUSY
        self.due[busy] += seconds
        self._spare(busy & (self.due < until), until)

    def spare(self, now: float, until: float) -> None:
        """Gives rows that became late while nobody looked a moment more, once."""
        self._spare((self.state == BUSY) & (self.due <= now), until)

    def _spare(self, rows: Array, until: float) -> None:
        rows &= ~self._spared
        self.due[rows] = until
        self._spared[rows] = True

    def late_rows(self, now: float) -> list[int]:
        """Returns the rows that should have answered by now."""
        busy = np.flatnonzero((self.state == BUSY) & (self.due <= now))
        # Rows that wait for a new worker are its restart's business.
        return [row for row in busy.tolist() if row not in self.held]

    def deadlines(self, watched: Array) -> list[float]:
        """Returns the moments at which something is to be done about rows.

        Args:
            watched: The rows whose workers are there. Of the others only their
                workers' own deadlines count: a moment that has passed would make a
                wait return at once, again and again.
        """
        busy = (self.state == BUSY) & watched
        busy[list(self.held)] = False
        times = [float(self.due[busy].min())] if busy.any() else []
        return times + [at for row, at in self.held.items() if watched[row]]

    def note_finished(self, rows: Array) -> None:
        """Notes that rows have answered, in this order."""
        # Those that are told twice, as after Ctrl-C, may have been asked again since.
        # One that has raised since is its failure's business.
        whole = self.slab.answered[rows] == self.slab.sequence[rows]
        rows = rows[(self.state[rows] == BUSY) & whole]
        if self.held:
            # They were not asked yet; what they answered before is not meant.
            rows = rows[~np.isin(rows, list(self.held))]
        if not rows.size:
            return
        begun = self.begin[rows] != 0
        if begun.any():
            for row in rows[begun].tolist():
                self._note_begun(row)
        self._order[rows] = self._next_order + np.arange(rows.size)
        self._next_order += rows.size
        self.begun[rows] = True
        self.state[rows] = FINISHED

    def _note_begun(self, row: int) -> None:
        """Notes that a new environment has begun its first episode."""
        if self.slab.command[row] == REBUILD:
            # The whole environment was rebuilt: its other rows need only a reset.
            siblings = self._map.rows_of_env[self._map.env_of_row[row]]
            block = slice(siblings.start, siblings.stop)
            begins = self.begin[block]
            begins[begins == REBUILD] = RESET
        self.begin[row] = 0
        if self._cut_at_once[row]:
            self._cut_at_once[row] = False
            self.slab.cut_before_first(row)
            self.repaired[row] = True

    def finished(self, rows: Array, count: int | None = None) -> Array:
        """Returns rows that have finished, first those that did so first."""
        done: Array = rows[self.state[rows] == FINISHED]
        done = done[np.argsort(self._order[done], kind="stable")]
        return done if count is None else done[:count]

    # What becomes of rows whose environment is gone.

    def lose(self, row: int, begin: int, at: float) -> None:
        """Repairs a BUSY row that its environment will not answer any more.

        Args:
            row: The row.
            begin: The command with which its new environment begins.
            at: When that may be, after a pause.
        """
        self.begin[row] = begin
        self._begin_at[row] = at
        if self.wanted[row] == STEP and self.is_in_episode(row):
            self._end_episode(row, at)
        else:
            self.held[row] = at

    def _end_episode(self, row: int, at: float) -> None:
        """Ends a row's episode where it stood, as the order of resets wants it."""
        if self.slab.autoreset != SAME_STEP_ORDER:
            self._finish_cut(row)
            return
        # Where the episode stood goes where the new FIRST will not be.
        source = self._standing(row)
        for array in self.slab.steps:
            array[SAME_STEP_SLOT, row] = array[source, row]
        self._cut_at_once[row] = True
        self.held[row] = at

    def note_replaced(self, rows: Sequence[int], lost: Sequence[int]) -> None:
        """Notes that a worker is replaced, and with it the environments of its rows.

        Args:
            rows: All rows of the worker.
            lost: Those that were BUSY and had not answered.
        """
        for row in rows:
            if row in self.held:  # It waits for a new environment as it is.
                self.begin[row] = RESET
                continue
            if row in lost:
                self.lose(row, RESET, 0.0)
            elif self.state[row] != BROKEN and self.begin[row] == 0:
                # Where a new environment was due already, it stays as it was.
                self._cut[row] = self.is_in_episode(row)
            self.begin[row] = RESET
            self._begin_at[row] = 0.0

    def break_row(self, row: int, error: WorkerError) -> None:
        """Notes that a row's environment is gone and not replaced."""
        self.errors[row] = error
        self.held.pop(row, None)
        self._cut[row] = self._cut_at_once[row] = False
        self.state[row] = BROKEN

    def break_rows(self, rows: Sequence[int], error: WorkerError) -> None:
        """Notes that rows' worker is gone for good; what has finished is still good."""
        for row in rows:
            if self.state[row] != FINISHED:
                self.break_row(row, error)

    def _finish_cut(self, row: int) -> None:
        """Ends a row's episode where it stood."""
        self.slab.write_cut(row, self._standing(row))
        self.repaired[row] = True
        self._order[row] = self._next_order
        self._next_order += 1
        self.state[row] = FINISHED

    # Where rows stand.

    def _standing(self, row: int) -> int:
        """Returns the slot of the time step at which a row stands."""
        slot = slot_of(int(self.slab.sequence[row]))
        has_ended = self.slab.steps[0][slot, row] == StepType.LAST
        at_once = self.slab.autoreset == SAME_STEP_ORDER
        return SAME_STEP_SLOT if at_once and has_ended else slot

    def is_in_episode(self, row: int) -> bool:
        """Says whether a row's episode has begun and not ended."""
        if not self.begun[row]:
            return False
        standing = self.slab.steps[0][self._standing(row), row]
        return bool(standing != StepType.LAST)

    def has_ended(self, row: int) -> bool:
        """Says whether a row stands at the end of an episode."""
        return bool(self.begun[row]) and not self.is_in_episode(row)

    def stand(self, shown: Sequence[Array], standing: Sequence[Array]) -> None:
        """Lets every row stand at a time step that comes from elsewhere."""
        slab = self.slab
        slab.align(np.arange(1))
        numbers = slab.sequence + np.uint32(2)
        slot = slot_of(int(numbers[0]))
        for array, leaf, other in zip(slab.steps, shown, standing, strict=True):
            array[slot] = leaf
            array[SAME_STEP_SLOT] = other
        slab.has_info.fill(ANY_INFO)
        slab.stand_at(slice(None), numbers)

    def new_rows(self) -> tuple[int, ...]:
        """Returns the rows whose environment is new and has not begun."""
        return tuple(np.flatnonzero(self.begin).tolist())

    def note_restored(self, begun: Sequence[bool], new_rows: Sequence[int]) -> None:
        """Notes that every environment has been given another state.

        Args:
            begun: Which rows have begun an episode.
            new_rows: The rows whose environment had not begun when this was saved.
        """
        self.begun[:] = begun
        self.begin[:] = 0
        self._cut[:] = False
        self.errors.clear()
        self.state[:] = READY
        self.repaired[:] = False
        for row in new_rows:
            self.begin[row] = RESET
            self._begin_at[row] = 0.0
            self._cut[row] = self.is_in_episode(row)

    def close(self) -> None:
        """Lets go of the slab's memory; what is known of the rows stays."""
        del self.slab
