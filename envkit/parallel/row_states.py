"""`Rows`: whose every row is, and the numbers that say how far it has come.

A row has five numbers, each of which follows the one before it. The slab has the first
two; a request raises `sequence` by two, and a row owes an answer until `answered` is
the same.

```
 sequence   the last request                     written by the pool
 sent       the last request that went out       after `dispatch`
 answered   the last request that was answered   written by the row's worker
 seen       the last answer that the pool saw    after it has looked
 returned   the last answer that the caller got  by `recv`, or when a step returns
```

So what a row is doing is read and not remembered, and a call that Ctrl-C has
interrupted leaves nothing half done: the next call finds in the numbers which requests
have to be sent once more and which answers have not been seen.

```
           request                  answer                 return
 READY ───────────────▶ BUSY ───────────────────▶ FINISHED ─────────▶ READY
   ▲                      │ raised, died, late
   │ repaired (FINISHED)  ▼
   └──────────────────  lost  ──(no restart allowed)──▶ BROKEN ──(reset)──▶ BUSY
```

What a lost row returns keeps its stream grammatical. In the middle of an episode it is
a `LAST` with the last whole observation, and the next step returns the `FIRST` of the
new environment; where a `FIRST` was due, it is the new environment's. A row whose new
environment is not there yet is *held*: its command is sent when it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.errors import WorkerError
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
    """Keeps what is known of every row, beside its time steps in the slab.

    It knows no workers and no clock: times are passed in. The arrays and dictionaries
    stay the same objects for as long as there is a pool.

    Attributes:
        layout: Where the rows are, with a block for each worker.
        batch_sizes: For each worker, the batch size of each of its environments,
            `None` for a single one.
        is_batch: For each environment, whether it is a batch itself.
        rows_of_env: For each environment, its rows.
        env_of_row: For each row, the index of its environment.
        worker_of_row: For each row, the index of its worker.
        slab: The slab, until `close`.
        sent: For each row, the number of the last request that went out.
        seen: For each row, the number of the last answer that the pool has seen.
        returned: For each row, the number of the last answer that the caller has.
        repaired: Which rows' last time step was made up for an environment that is
            gone.
        errors: For each BROKEN row, why.
        begun: Which rows have ever begun an episode.
        begin: The command with which a new environment begins, where there is one.
        held: For each row whose command waits for a worker, or for a pause to pass,
            the end of the pause.
        resumed: For those of them whose environment is to continue, the command.
        observers: The extras of the pool, which are told what is asked.
    """

    slab: Slab
    observers: Sequence[RowObserver] = ()

    def __init__(
        self,
        spec: EnvironmentSpec,
        batch_sizes: Sequence[Sequence[int | None]],
        info_spec: dict[str, Any],
    ) -> None:
        """Gives every environment its rows, in order; `bind` gives these a slab.

        Args:
            spec: The specs of one row.
            batch_sizes: For each worker, the batch size of each of its environments,
                `None` for a single one.
            info_spec: What all environments declare of their infos.
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
        """Takes the slab, in which no row has been asked yet."""
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
        # When a new environment may begin, after a pause.
        self._begin_at = np.zeros(rows)
        # Rows whose episode was cut while nothing was asked of them: they owe a LAST.
        self._cut = np.zeros(rows, bool)
        # Rows that return a LAST together with the FIRST of the new environment.
        self._cut_at_once = np.zeros(rows, bool)
        # Until when each row that was sent must answer, and what `PoolClock.away` was
        # then: infinite where this deadline has been extended.
        self._due = np.full(rows, np.inf)
        self._away = np.zeros(rows)
        # Which rows finished before which.
        self._order = np.zeros(rows, np.int64)
        self._next_order = 0

    def adopt(self, other: Rows) -> None:
        """Lets rows be as far as they are among other rows, where none is asked.

        The slab has taken over what is there.
        """
        count = min(self.layout.rows, other.layout.rows)
        for name in ("repaired", "begun", "begin", "_begin_at", "_cut", "_order"):
            getattr(self, name)[:count] = getattr(other, name)[:count]
        self._next_order = other._next_order
        self.errors.update(
            (row, error) for row, error in other.errors.items() if row < count
        )

    # What the numbers say.

    def are_plain(self) -> bool:
        """True if there is nothing special to remember about any row."""
        # Hot: called once per batch step. Comparing bytes is quicker than `any`.
        return not (
            self.errors
            or self.held
            or self._begin_bytes.tobytes() != self._nothing
            or self._repaired_bytes.tobytes() != self._nothing
        )

    def unsent(self) -> Array:
        """Returns the rows that were asked by a request that has not gone out."""
        # Hot in asynchronous use: called for every few rows.
        if self._sent_bytes.tobytes() == self._sequence_bytes.tobytes():
            return _NONE
        asked = self.sent != self.slab.numbers
        asked &= self.slab.owing_rows()
        unsent: Array = asked.nonzero()[0]
        return unsent

    def answered(self) -> Array:
        """Returns the rows whose answers are in the slab and have not been seen."""
        # Hot in asynchronous use: called for every few rows.
        slab = self.slab
        new: Array = (self.seen != slab.answers).nonzero()[0]
        if new.size:
            # Of the others the environment has raised, or the pool moves them now.
            new = new[slab.answers[new] == slab.numbers[new]]
            fence()
        return new

    def busy(self, rows: Array) -> int:
        """Returns how many of the rows have no answer yet, as far as was seen."""
        # Hot in asynchronous use: called for every few rows. They differ, so as many as
        # there are at all are all of them.
        if rows.size == len(self.seen):
            count = self.all_busy()
        else:
            waiting = self.seen[rows] != self.slab.numbers[rows]
            count = int(np.count_nonzero(waiting))
        if self.held:
            count += int(are_among(rows, self.held).sum())
        return count

    def all_busy(self) -> int:
        """Returns how many rows were asked and have no answer yet, held ones apart."""
        return int(np.count_nonzero(self.seen != self.slab.numbers))

    def owing(self) -> Array:
        """Returns a mask of the rows that owe the caller an answer."""
        owing: Array = self.returned != self.slab.numbers
        if self.held:
            owing[list(self.held)] = True
        return owing

    def standing(self, rows: Array) -> Array:
        """Returns a mask of those of the rows that have answered and are not broken."""
        standing = ~self.slab.owing_rows()[rows]
        for special in (self.held, self.errors):
            if special:
                standing &= ~are_among(rows, special)
        return standing

    def finished(self, rows: Array, count: int) -> Array:
        """Returns rows that have finished, first those that did so first."""
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

    # What happens to the numbers.

    def request(self, rows: Array, command: int | Array) -> None:
        """Asks the given rows."""
        for observer in self.observers:
            observer.asked(rows, command)
        self.slab.request(rows, command)

    def set_answered(self, rows: Array) -> None:
        """Marks answers as seen, in this order."""
        # May be interrupted: until the last line nothing depends on what it writes.
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
        """Notes that a new environment has begun its first episode."""
        if self.slab.requested[row] == REBUILD:
            # The whole environment was rebuilt: its other rows need only a reset.
            siblings = self.rows_of_env[self.env_of_row[row]]
            begins = self.begin[siblings.start : siblings.stop]
            begins[begins == REBUILD] = RESET
        self.begin[row] = 0
        if self._cut_at_once[row]:
            self._cut_at_once[row] = False
            self.slab.cut_before_first(row)
            self.repaired[row] = True

    def set_returned(self, rows: Array) -> None:
        """Notes that the caller has the answers of these rows."""
        self.returned[rows] = self.slab.numbers[rows]

    def set_all_returned(self) -> None:
        """Notes that the caller has all answers."""
        # Hot: called once per batch step.
        self._returned_bytes[:] = self._sequence_bytes

    def align(self, moved: Array) -> None:
        """Lets every row stand in the slot of those that have moved."""
        with uninterrupted():
            self.slab.align(moved)
            self._stand(slice(None))

    def stand(self, shown: Sequence[Array], standing: Sequence[Array]) -> None:
        """Lets every row stand at a time step that comes from elsewhere."""
        with uninterrupted():
            self.slab.write_all(shown, standing)
            self._stand(slice(None))

    def _stand(self, rows: Any) -> None:
        """Notes that rows stand at numbers to which the pool itself has moved them."""
        for numbers in (self.sent, self.seen, self.returned):
            numbers[rows] = self.slab.numbers[rows]

    # By when rows must answer.

    def set_sent(self, rows: Array, due: float | Array, away: float) -> None:
        """Notes that requests have gone out, and by when they must be answered."""
        self._due[rows] = due
        self._away[rows] = away
        self.sent[rows] = self.slab.numbers[rows]

    def extend_deadlines(self, now: float, away: float) -> None:
        """Extends deadlines that have passed by the seconds away, once a request."""
        late = self.late(now)
        self._due[late] += np.maximum(away - self._away[late], 0.0)
        self._away[late] = np.inf

    def late(self, now: float) -> Array:
        """Returns the rows that should have answered by now."""
        return np.flatnonzero(self.slab.owing_rows() & (self._due <= now))

    def deadlines(self, watched: Array) -> list[float]:
        """Returns the moments at which something is to be done about rows.

        Args:
            watched: The rows whose workers are there. Of the others only their
                workers' own deadlines count: a moment that has passed would make a
                wait return at once, again and again.
        """
        owing = self.slab.owing_rows() & watched
        times = [float(self._due[owing].min())] if owing.any() else []
        return times + [at for row, at in self.held.items() if watched[row]]

    # Rows whose environment is gone, or new.

    def withdraw(self, rows: Array) -> list[int]:
        """Takes back requests that will not be answered; returns their commands."""
        commands: list[int] = self.slab.requested[rows].tolist()
        self.slab.withdraw(rows)
        self._stand(rows)
        return commands

    def lose(self, row: int, command: int, begin: int, at: float) -> None:
        """Repairs a row whose request was withdrawn.

        Args:
            row: The row.
            command: What it had been asked for.
            begin: The command with which its new environment begins.
            at: When that may be, after a pause.
        """
        self.begin[row] = begin
        self._begin_at[row] = at
        if command == STEP and self._is_in_episode(row):
            self._end_episode(row, at)
        else:
            self.held[row] = at

    def _end_episode(self, row: int, at: float) -> None:
        """Ends a row's episode where it stood, as the order of resets wants it."""
        if self.slab.autoreset != SAME_STEP_ORDER:
            self.slab.write_cut(row)
            self.sent[row] = self.seen[row] = self.slab.numbers[row]
            self.repaired[row] = True
            self._order[row] = self._next_order
            self._next_order += 1
            return
        # Where the episode stood goes where the new FIRST will not be.
        self.slab.keep_standing(row)
        self._cut_at_once[row] = True
        self.held[row] = at

    def hold(self, row: int, command: int) -> None:
        """Keeps a command for an environment that is going to continue."""
        self.held[row], self.resumed[row] = 0.0, command

    def drop_held(self, row: int) -> int:
        """Takes back a command that was kept for an environment; returns it."""
        del self.held[row]
        return self.resumed.pop(row)

    def set_replaced(
        self, rows: Sequence[int], lost: dict[int, int], begin: int = RESET
    ) -> None:
        """Ends the episodes of rows whose environments a new worker replaces.

        Args:
            rows: The rows whose environments are gone.
            lost: Those that owed an answer, with what they had been asked for.
            begin: The command with which the new environments begin.
        """
        for row in rows:
            if row in self.held:  # It waits for a new environment as it is.
                self.begin[row] = begin
                continue
            if row in lost:
                self.lose(row, lost[row], begin, 0.0)
            elif row not in self.errors and self.begin[row] == 0:
                # Where a new environment was due already, it stays as it was.
                self._cut[row] = self._is_in_episode(row)
            self.begin[row] = begin
            self._begin_at[row] = 0.0

    def keep_episodes(self, rows: Sequence[int]) -> None:
        """Lets the episodes of rows go on in new environments that have the states."""
        for row in rows:
            self.begin[row] = 0
            self._cut[row] = False

    def resume(self, row: int, command: int) -> None:
        """Takes up a command for an environment that is new, or not there now.

        The row has finished afterwards, or its command is held.
        """
        was_cut = self._cut[row]
        self._cut[row] = False
        if not self.begin[row]:  # The environment is going to continue.
            self.hold(row, command)
        elif command == STEP and was_cut:
            self._end_episode(row, float(self._begin_at[row]))
        else:
            self.held[row] = float(self._begin_at[row])

    def envs_to_rebuild(self, rows: list[int]) -> set[int]:
        """Returns the environments that are built anew when these rows are released."""
        return {
            int(self.env_of_row[row])
            for row in rows
            if row not in self.resumed and self.begin[row] == REBUILD
        }

    def release(self, rows: list[int]) -> None:
        """Asks held rows, whose new environments are there."""
        commands = []
        for row in rows:
            del self.held[row]
            command = self.resumed.pop(row, None)
            if command is None:
                command = self.begin[row] = self.begin[row] or RESET
            commands.append(command)
        self.request(np.array(rows, np.intp), np.array(commands, np.uint8))

    def break_row(self, row: int, error: WorkerError) -> None:
        """Notes that a row's environment is gone and not replaced."""
        self.errors[row] = error
        self.held.pop(row, None)
        self.resumed.pop(row, None)
        self._cut[row] = self._cut_at_once[row] = False

    def break_rows(self, rows: Sequence[int], error: WorkerError) -> None:
        """Notes that rows' worker stays gone; what has finished is still good."""
        numbers = self.slab.numbers
        for row in rows:
            if self.returned[row] == numbers[row]:
                self.break_row(row, error)

    # Where rows stand.

    def _is_in_episode(self, row: int) -> bool:
        """True if a row's episode has begun and not ended."""
        if not self.begun[row]:
            return False
        return not self.slab.ended(np.array([row]))[0]

    def has_ended(self, row: int) -> bool:
        """True if a row stands at the end of an episode."""
        return bool(self.begun[row]) and not self._is_in_episode(row)

    def is_special(self, row: int) -> bool:
        """True if a row is broken or held, or its environment is new."""
        return bool(self.begin[row]) or row in self.held or row in self.errors

    def new_rows(self) -> tuple[int, ...]:
        """Returns the rows whose environment is new and has not begun."""
        return tuple(np.flatnonzero(self.begin).tolist())

    def set_restored(self, begun: Sequence[bool], new_rows: Sequence[int]) -> None:
        """Lets rows stand where their environments are that were set to a state.

        Args:
            begun: Which rows have begun an episode.
            new_rows: The rows whose environment had not begun when this was saved.
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
        """Releases the slab's memory; what is known of the rows stays."""
        self._sequence_bytes.release()
        del self.slab
