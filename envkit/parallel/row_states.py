"""`Rows`: each row's environment, and the numbers that record its progress.

A row has five numbers, each of which follows the one before it. `sequence` and
`answered` are in the slab. A request raises `sequence` by two, and the row owes an
answer until `answered` is equal to it.

```
 sequence   the last request                     written by the pool
 sent       the last request that went out       after `dispatch`
 answered   the last request that was answered   written by the row's worker
 seen       the last answer that the pool saw    after it has looked
 returned   the last answer that the caller got  by `recv`, or when a step returns
```

So a row's state is always read from the numbers, never stored twice, and a call
interrupted by Ctrl-C leaves nothing half done: the numbers tell the next call which
requests to send again and which answers nobody has seen.

```
           request                  answer                 return
 READY ───────────────▶ BUSY ───────────────────▶ FINISHED ─────────▶ READY
   ▲                      │ raised, died, late
   │ repaired (FINISHED)  ▼
   └──────────────────  lost  ──(no restart allowed)──▶ BROKEN ──(reset)──▶ BUSY
```

The answer of a lost row keeps its stream grammatical. In the middle of an episode it is
a `LAST` with the last complete observation, and the next step returns the `FIRST` of
the new environment. If a `FIRST` was due, it is the new environment's. A row whose new
environment is not ready yet is *held*: its command is sent later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.errors import WorkerError
from envkit.parallel.loss_log import LossLog
from envkit.parallel.observers import RowObserver
from envkit.parallel.row_sets import are_among
from envkit.parallel.slab import Slab, bytes_of
from envkit.parallel.slab_layout import (
    REBUILD,
    RESET,
    SAME_STEP_ORDER,
    STEP,
    SlabLayout,
)
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.system.shared_memory import fence
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.types import Array

__all__ = ["Rows"]

_NONE = np.arange(0)
_NONE.setflags(write=False)


class Rows:
    """Keeps the state of every row, apart from its time steps in the slab.

    It knows neither workers nor clocks: times are passed in. The arrays and
    dictionaries stay the same objects as long as the pool exists.

    Attributes:
        layout: The layout of the rows, with a block for each worker.
        batch_sizes: For each worker, the batch size of each of its environments,
            `None` for a single one.
        is_batch: For each environment, whether it is a batch itself.
        rows_of_env: The rows of each environment.
        env_of_row: The index of each row's environment.
        worker_of_row: The index of each row's worker.
        slab: The slab, until `close`.
        sent: The number of each row's last request that went out.
        seen: The number of each row's last answer that the pool has seen.
        returned: The number of each row's last answer that the caller has.
        repaired: Mask of rows whose last time step was made up for a lost environment.
        errors: The error of each BROKEN row.
        begun: Mask of rows that have ever begun an episode.
        begin: For each row with a new environment, the command with which it begins.
        held: For each row whose command waits for a worker or a pause, the end of the
            pause.
        resumed: For each held row whose environment will continue, the command.
        losses: What was lost.
        observers: The extras of the pool, which receive its events.
    """

    slab: Slab
    observers: Sequence[RowObserver] = ()

    def __init__(
        self,
        spec: EnvironmentSpec,
        batch_sizes: Sequence[Sequence[int | None]],
        info_spec: dict[str, Any],
    ) -> None:
        """Gives every environment its rows, in order; `bind` adds the slab.

        Args:
            spec: The specs of one row.
            batch_sizes: For each worker, the batch size of each of its environments,
                `None` for a single one.
            info_spec: The infos that all environments declare.
        """
        self.batch_sizes = [list(worker) for worker in batch_sizes]
        of_envs = [size for worker in batch_sizes for size in worker]
        sizes = [size or 1 for size in of_envs]
        stops = np.cumsum(sizes).tolist()
        self.is_batch = [size is not None for size in of_envs]
        self.rows_of_env = [
            range(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)
        ]
        blocks: list[tuple[int, int]] = []
        env = 0
        for worker in batch_sizes:
            first, env = env, env + len(worker)
            blocks.append(
                (self.rows_of_env[first].start, self.rows_of_env[env - 1].stop)
            )
        self.layout = SlabLayout(spec, tuple(blocks), info_spec)
        self.env_of_row = np.repeat(np.arange(len(sizes)), sizes)
        self.worker_of_row = self.layout.worker_of_row

    def bind(self, slab: Slab) -> None:
        """Takes a slab in which no row has been asked yet."""
        rows = self.layout.rows
        self.slab = slab
        self.sent, self.seen, self.returned = (slab.numbers.copy() for _ in range(3))
        # Copying bytes is three times as fast as copying small arrays.
        self._returned_bytes = bytes_of(self.returned)
        self._sent_bytes = bytes_of(self.sent)
        self._sequence_bytes = bytes_of(slab.numbers)
        self.repaired = np.zeros(rows, bool)
        self.errors: dict[int, WorkerError] = {}
        self.begun = np.zeros(rows, bool)
        self.begin = np.zeros(rows, np.uint8)
        self._nothing = bytes(rows)
        self._begin_bytes = bytes_of(self.begin)
        self._repaired_bytes = bytes_of(self.repaired)
        self.held: dict[int, float] = {}
        self.resumed: dict[int, int] = {}
        self.losses = LossLog()
        # The time at which each new environment may begin, after a pause.
        self._begin_at = np.zeros(rows)
        # Rows whose episode was cut while they were idle: they owe a LAST.
        self._cut = np.zeros(rows, bool)
        # Rows that return a LAST and, in the same step, the FIRST of the new
        # environment.
        self._cut_at_once = np.zeros(rows, bool)
        # The deadline of each sent request, and the value of `PoolClock.away` when it
        # was set: infinite once this deadline has been extended.
        self._due = np.full(rows, np.inf)
        self._away = np.zeros(rows)
        # The order in which rows finished.
        self._order = np.zeros(rows, np.int64)
        self._next_order = 0

    def adopt(self, other: Rows) -> None:
        """Takes over the progress of other rows, none of which owes an answer.

        The slab must have taken over their contents.
        """
        count = min(self.layout.rows, other.layout.rows)
        for name in ("repaired", "begun", "begin", "_begin_at", "_cut", "_order"):
            getattr(self, name)[:count] = getattr(other, name)[:count]
        self._next_order = other._next_order
        self.losses = other.losses
        self.errors.update(
            (row, error) for row, error in other.errors.items() if row < count
        )

    # Questions to the numbers.

    def are_plain(self) -> bool:
        """True if no row is in a special state."""
        # Hot: called once per batch step. Comparing bytes is faster than `any`.
        return not (
            self.errors
            or self.held
            or self._begin_bytes.tobytes() != self._nothing
            or self._repaired_bytes.tobytes() != self._nothing
        )

    def unsent(self) -> Array:
        """Returns the rows whose last request has not been sent."""
        # Hot in asynchronous use: called for every few rows.
        if self._sent_bytes.tobytes() == self._sequence_bytes.tobytes():
            return _NONE
        asked = self.sent != self.slab.numbers
        asked &= self.slab.owing_rows()
        unsent: Array = asked.nonzero()[0]
        return unsent

    def answered(self) -> Array:
        """Returns the rows whose answers are in the slab but not seen yet."""
        # Hot in asynchronous use: called for every few rows.
        slab = self.slab
        new: Array = (self.seen != slab.answers).nonzero()[0]
        if new.size:
            # In the other rows the environment has raised, or the pool is moving them.
            new = new[slab.answers[new] == slab.numbers[new]]
            fence()
        return new

    def busy(self, rows: Array) -> int:
        """Returns how many of the rows have no answer that the pool has seen."""
        # Hot in asynchronous use: called for every few rows. Rows are distinct, so if
        # there are as many as the pool has, they are all.
        if rows.size == len(self.seen):
            count = self.all_busy()
        else:
            waiting = self.seen[rows] != self.slab.numbers[rows]
            count = int(np.count_nonzero(waiting))
        if self.held:
            count += int(are_among(rows, self.held).sum())
        return count

    def all_busy(self) -> int:
        """Returns how many rows have no answer yet, not counting held ones."""
        return int(np.count_nonzero(self.seen != self.slab.numbers))

    def owing(self) -> Array:
        """Returns a mask of the rows that owe the caller an answer."""
        owing: Array = self.returned != self.slab.numbers
        if self.held:
            owing[list(self.held)] = True
        return owing

    def standing(self, rows: Array) -> Array:
        """Returns a mask of `rows`: those that have answered and are intact."""
        standing = ~self.slab.owing_rows()[rows]
        for special in (self.held, self.errors):
            if special:
                standing &= ~are_among(rows, special)
        return standing

    def finished(self, rows: Array, count: int) -> Array:
        """Returns finished rows, in the order in which they finished."""
        # Hot in asynchronous use: called for every few rows.
        numbers = self.slab.numbers[rows]
        is_new = self.seen[rows] == numbers
        is_new &= self.returned[rows] != numbers
        done: Array = rows[is_new]
        done = done[self._order[done].argsort(kind="stable")]
        return done[:count]

    def broken(self, rows: Array) -> Array:
        """Returns those of the rows that are BROKEN."""
        return rows[are_among(rows, self.errors)]

    # Changes of the numbers.

    def request(self, rows: Array, command: int | Array) -> None:
        """Asks the given rows."""
        for observer in self.observers:
            observer.asked(rows, command)
        self.slab.request(rows, command)

    def set_answered(self, rows: Array) -> None:
        """Marks the answers of rows as seen, in this order."""
        # May be interrupted: nothing depends on these writes until the last line.
        self._order[rows] = self._next_order + np.arange(rows.size)
        self._next_order += rows.size
        self.begun[rows] = True
        if self._begin_bytes.tobytes() != self._nothing:
            with uninterrupted():
                for row in rows[self.begin[rows] != 0].tolist():
                    self._finish_begin(row)
                self.seen[rows] = self.slab.numbers[rows]
            return
        self.seen[rows] = self.slab.numbers[rows]

    def _finish_begin(self, row: int) -> None:
        """Records that a new environment has begun its first episode."""
        if self.slab.requested[row] == REBUILD:
            # The whole environment was rebuilt: its other rows need only a reset.
            siblings = self.rows_of_env[self.env_of_row[row]]
            begins = self.begin[siblings.start : siblings.stop]
            begins[begins == REBUILD] = RESET
            self.losses.rebuild(siblings)
        self.begin[row] = 0
        if self._cut_at_once[row]:
            self._cut_at_once[row] = False
            self.slab.cut_before_first(row)
            self.repaired[row] = True

    def set_returned(self, rows: Array) -> None:
        """Records that the caller has the answers of these rows."""
        self.returned[rows] = self.slab.numbers[rows]

    def set_all_returned(self) -> None:
        """Records that the caller has all answers."""
        # Hot: called once per batch step.
        self._returned_bytes[:] = self._sequence_bytes

    def align(self, moved: Array) -> None:
        """Brings every row to the slot of the rows that have moved."""
        with uninterrupted():
            self.slab.align(moved)
            self._stand(slice(None))

    def stand(self, shown: Sequence[Array], standing: Sequence[Array]) -> None:
        """Sets every row to a time step that comes from outside the pool."""
        with uninterrupted():
            self.slab.write_all(shown, standing)
            self._stand(slice(None))

    def _stand(self, rows: Any) -> None:
        """Accepts the numbers that the pool itself has moved rows to."""
        for numbers in (self.sent, self.seen, self.returned):
            numbers[rows] = self.slab.numbers[rows]

    # Deadlines.

    def set_sent(self, rows: Array, due: float | Array, away: float) -> None:
        """Records that requests have gone out, and their deadline."""
        self._due[rows] = due
        self._away[rows] = away
        self.sent[rows] = self.slab.numbers[rows]

    def extend_deadlines(self, now: float, away: float) -> None:
        """Extends passed deadlines by the seconds away, once per request."""
        late = self.late(now)
        self._due[late] += np.maximum(away - self._away[late], 0.0)
        self._away[late] = np.inf

    def late(self, now: float) -> Array:
        """Returns the rows that should have answered by now."""
        return np.flatnonzero(self.slab.owing_rows() & (self._due <= now))

    def deadlines(self, watched: Array) -> list[float]:
        """Returns the times at which rows need attention.

        Args:
            watched: The rows whose workers are ready. For the others only the workers'
                own deadlines count: a moment in the past would make every wait return
                at once.
        """
        owing = self.slab.owing_rows() & watched
        times = [float(self._due[owing].min())] if owing.any() else []
        return times + [at for row, at in self.held.items() if watched[row]]

    # Rows whose environment is lost, or new.

    def withdraw(self, rows: Array) -> list[int]:
        """Withdraws requests that will not be answered; returns their commands."""
        commands: list[int] = self.slab.requested[rows].tolist()
        self.slab.withdraw(rows)
        self._stand(rows)
        return commands

    def lose(self, row: int, command: int, begin: int, at: float) -> None:
        """Repairs a row whose request was withdrawn.

        Args:
            row: The row.
            command: The command of that request.
            begin: The command with which its new environment begins.
            at: The earliest time for that, after a pause.
        """
        self.begin[row] = begin
        self._begin_at[row] = at
        if command == STEP and self._is_in_episode(row):
            self._end_episode(row, at)
        else:
            self.losses.tell(row)
            self.held[row] = at

    def _end_episode(self, row: int, at: float) -> None:
        """Ends a row's episode at its current time step, as the order requires."""
        self.losses.end(row)
        if self.slab.autoreset != SAME_STEP_ORDER:
            self.slab.write_cut(row)
            self.sent[row] = self.seen[row] = self.slab.numbers[row]
            self.repaired[row] = True
            self._order[row] = self._next_order
            self._next_order += 1
            return
        # Move the episode's last time step out of the way of the new FIRST.
        self.slab.keep_standing(row)
        self._cut_at_once[row] = True
        self.held[row] = at

    def hold(self, row: int, command: int) -> None:
        """Keeps a command for an environment that will continue in a new worker."""
        self.held[row], self.resumed[row] = 0.0, command

    def drop_held(self, row: int) -> int:
        """Withdraws and returns a command that was kept for an environment."""
        del self.held[row]
        return self.resumed.pop(row)

    def set_replaced(
        self, rows: Sequence[int], lost: dict[int, int], begin: int = RESET
    ) -> None:
        """Ends the episodes of rows whose environments a new worker replaces.

        Args:
            rows: The rows whose environments are lost.
            lost: The command of each row that owed an answer.
            begin: The command with which the new environments begin.
        """
        for row in rows:
            if row in self.held:  # It waits for a new environment already.
                self.begin[row] = begin
                continue
            if row in lost:
                self.lose(row, lost[row], begin, 0.0)
            elif row not in self.errors and self.begin[row] == 0:
                # If a new environment was due already, nothing changes.
                self._cut[row] = self._is_in_episode(row)
            self.begin[row] = begin
            self._begin_at[row] = 0.0

    def keep_episodes(self, rows: Sequence[int]) -> None:
        """Continues rows' episodes in new environments that have their states."""
        for row in rows:
            self.begin[row] = 0
            self._cut[row] = False

    def resume(self, row: int, command: int) -> None:
        """Handles a command for an environment that is new, or not ready.

        Afterwards the row has finished, or its command is held.
        """
        was_cut = self._cut[row]
        self._cut[row] = False
        if not self.begin[row]:  # The environment will continue.
            self.hold(row, command)
        elif command == STEP and was_cut:
            self._end_episode(row, float(self._begin_at[row]))
        else:
            if was_cut:
                self.losses.tell(row)
            self.held[row] = float(self._begin_at[row])

    def envs_to_rebuild(self, rows: list[int]) -> set[int]:
        """Returns the environments that are rebuilt once these rows are released."""
        return {
            int(self.env_of_row[row])
            for row in rows
            if row not in self.resumed and self.begin[row] == REBUILD
        }

    def release(self, rows: list[int]) -> None:
        """Asks held rows whose new environments are ready."""
        commands = []
        for row in rows:
            del self.held[row]
            command = self.resumed.pop(row, None)
            if command is None:
                command = self.begin[row] = self.begin[row] or RESET
            commands.append(command)
        self.request(np.array(rows, np.intp), np.array(commands, np.uint8))

    def break_row(self, row: int, error: WorkerError) -> None:
        """Records that a row's environment is lost and will not be replaced."""
        self.errors[row] = error
        self.losses.tell(row)
        self.held.pop(row, None)
        self.resumed.pop(row, None)
        self._cut[row] = self._cut_at_once[row] = False

    def break_rows(self, rows: Sequence[int], error: WorkerError) -> None:
        """Records that the rows' worker is lost for good; finished answers stay."""
        numbers = self.slab.numbers
        for row in rows:
            if self.returned[row] == numbers[row]:
                self.break_row(row, error)

    # States of rows.

    def _is_in_episode(self, row: int) -> bool:
        """Returns True if a row's episode has begun and not ended."""
        if not self.begun[row]:
            return False
        return not self.slab.ended(np.array([row]))[0]

    def has_ended(self, row: int) -> bool:
        """Returns True if a row is at the end of an episode."""
        return bool(self.begun[row]) and not self._is_in_episode(row)

    def is_special(self, row: int) -> bool:
        """Returns True if a row is broken or held, or its environment is new."""
        return bool(self.begin[row]) or row in self.held or row in self.errors

    def new_rows(self) -> tuple[int, ...]:
        """Returns the rows whose environment is new and has not begun."""
        return tuple(np.flatnonzero(self.begin).tolist())

    def set_restored(self, begun: Sequence[bool], new_rows: Sequence[int]) -> None:
        """Brings rows to where their restored environments are.

        Args:
            begun: Which rows have begun an episode.
            new_rows: The rows whose environment had not begun when the state was saved.
        """
        self._stand(slice(None))
        self.begun[:] = begun
        self.begin[:] = 0
        self._cut[:] = False
        self.errors.clear()
        self.repaired[:] = False
        for row in new_rows:
            self.begin[row] = RESET
            self._begin_at[row] = 0.0
            self._cut[row] = self._is_in_episode(row)

    def close(self) -> None:
        """Releases the slab's memory; the other facts about rows remain."""
        self._sequence_bytes.release()
        del self.slab
