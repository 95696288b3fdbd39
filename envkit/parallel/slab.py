"""`Slab`: one block of memory with an array per leaf and a row per environment.

`slab_layout` has the table of its arrays. No other module touches them: the parent
reads rows through read-only arrays such as `Slab.numbers`, and writes through methods.
Workers' loops use `Slab.words`.

Request numbers go up by two, so the lowest bit of an answer is free to mean that the
environment raised. One store thus says that a row is complete, and how it ended. The
rest of the answer is written before that store and read after it.

Each row alternates between slots 0 and 1, so its previous time step stays whole while
the next is written. If its environment dies halfway, the last observation is intact.
Slot 2 holds the `FIRST` that follows a `LAST` in the same step, under
`AutoReset.SAME_STEP`. Infos belong to the time steps in slots 0 and 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit.parallel.slab_layout import (
    ANY_INFO,
    BEGUN_INFO,
    CACHE_LINE,
    DECLARED_INFO,
    IDLE,
    LOST,
    ONLY_DECLARED_INFO,
    RAISED,
    REBUILD,
    RESIDENT,
    SAME_STEP_ORDER,
    SAME_STEP_SLOT,
    SHOWN_INFO,
    SHOWN_SLOTS,
    SLOTS,
    STEP,
    TERMINATED,
    TRUNCATED,
    SlabLayout,
    slot_of,
)
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.system.shared_memory import KEEPS_ORDER, fence, full_fence
from envkit.time_step import StepType
from envkit.types import Array

__all__ = [
    "Block",
    "Slab",
    "Words",
    "bytes_of",
    "view_of",
]


_LAST = int(StepType.LAST)
# As arrays: NumPy calculates with these twice as fast as with its scalars.
_ONE, _TWO = np.array(1, np.uint32), np.array(2, np.uint32)
_ONE.setflags(write=False)
_TWO.setflags(write=False)
# Request numbers wrap around after this one.
_LARGEST = 0xFFFFFFFF
# With more rows than this, a worker does not count how many owe an answer.
_MANY = 4096


class Words(NamedTuple):
    """The requests and answers of all rows, as views that are fast to use.

    Attributes:
        numbers: The number of each row's last request.
        requested: The command of each row's last request.
        answers: The number that each row has answered, with the bit `RAISED`.
        info_marks: See `Slab.info_marks`.
    """

    numbers: memoryview
    requested: memoryview
    answers: memoryview
    info_marks: memoryview


class Block(NamedTuple):
    """The rows of one worker, as they are sent to another machine and back.

    Attributes:
        numbers: See `Words`; likewise the next three.
        requested: See there.
        answers: See there.
        info_marks: See there.
        meters: The worker's counts.
        actions: The rows of each leaf of an action.
        leaves: By slot: the rows of each leaf of a time step, and of each declared leaf
            of an info if the slot has them.
    """

    numbers: Array
    requested: Array
    answers: Array
    info_marks: Array
    meters: Array
    actions: list[Array]
    leaves: list[list[Array]]

    def withdraw_all(self) -> None:
        """Withdraws the requests of these rows, which then owe nothing."""
        self.answers[:] = self.numbers
        self.requested.fill(IDLE)


def view_of(array: Array) -> memoryview:
    """Returns a view whose elements are Python numbers, which read faster."""
    return memoryview(array)  # type: ignore[arg-type]  # arrays are buffers


def bytes_of(array: Array) -> memoryview:
    """Returns a view of the bytes of a contiguous array.

    To compare two views, compare their `tobytes()`: copying and comparing takes a tenth
    of the time that views need to compare their elements.
    """
    return view_of(array.reshape(-1).view(np.uint8))


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _aligned(size: int) -> memoryview:
    """Returns zeroed memory that begins at a cache line.

    The kernel copies rows into a socket faster from such memory.
    """
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    place = -memory.__array_interface__["data"][0] % CACHE_LINE
    return view_of(memory)[place : place + size]


class Slab:
    """The arrays of a layout over one buffer; the parent and each worker have one.

    Attributes:
        layout: Where each array lies.
        private_actions: The leaves of an action that shared memory cannot hold.
        announcements: One number: how often rows were asked. It grows when the whole
            request has been written, so a worker that watches it sees all of it or
            nothing.
        asking: One number: the next value of `announcements` while rows are being
            asked, its present value otherwise.
        messages: One number: how many messages were announced, to any worker. It grows
            before a message is sent.
        awaited: One number: the parent continues when fewer rows than this owe an
            answer; with 0 every answer wakes it.
        numbers: The number of each row's last request; read-only, as are the next
            three.
        requested: The command of each row's last request.
        answers: The number that each row has answered, with the bit `RAISED`.
        info_marks: The bits `SHOWN_INFO` and `BEGUN_INFO` of each row, if infos are
            recorded.
        words: The same four, for workers to read and write.
        order: One number: the value of `autoreset`.
        wants_infos: One number: whether workers record which environments have an info.
    """

    def __init__(self, layout: SlabLayout, buffer: Any = None) -> None:
        """Lays the arrays over a buffer, new memory by default."""
        self.layout = layout
        self.private_actions = layout.private_actions
        if buffer is None:
            buffer = _aligned(max(layout.size, 1))
        arrays = layout.arrays(buffer)
        (modes,), (sequence,) = arrays["modes"], arrays["sequence"]
        (command,), (answered,) = arrays["command"], arrays["answered"]
        (has_info,), (self._meters,) = arrays["has_info"], arrays["meters"]
        (self._worker_facts,) = arrays["worker_facts"]
        self._actions, self._steps = arrays["actions"], arrays["steps"]
        self._infos = arrays["infos"]
        self._modes = modes
        self.order = view_of(modes[0:1])
        self.wants_infos = view_of(modes[1:2])
        self.announcements = view_of(modes[8:16].view(np.uint64))
        self.asking = view_of(modes[16:24].view(np.uint64))
        self.messages = view_of(modes[24:32].view(np.uint64))
        self.awaited = view_of(modes[32:40].view(np.uint64))
        self._sequence = sequence
        self._command = command
        self._answered = answered
        self._has_info = has_info
        self.numbers, self.requested = _read_only(sequence), _read_only(command)
        self.answers, self.info_marks = _read_only(answered), _read_only(has_info)
        self.words = Words(*map(view_of, (sequence, command, answered, has_info)))
        # Split by slot, because indexing once is faster than twice.
        self._all_slots = [
            array.reshape(SLOTS * layout.rows, *array.shape[2:])
            for array in self._steps
        ]
        self._stride = np.array(layout.rows)
        # The command that every row has, or IDLE if they differ; and whether all rows
        # use one slot, or `None` if that is not known.
        self._command_of_all = IDLE
        self._has_one_slot: bool | None = None
        self._all_step = bytes([STEP]) * layout.rows
        # Copying and comparing bytes is faster than comparing two small arrays.
        self._sequence_bytes = bytes_of(sequence)
        self._answered_bytes = bytes_of(answered)

    def adopt(self, other: Slab) -> None:
        """Copies the rows that both slabs have from the other slab.

        None of them may owe an answer. Further rows show nothing yet.
        """
        rows = min(self.layout.rows, other.layout.rows)
        workers = min(len(self.layout.blocks), len(other.layout.blocks))
        self._modes[:] = other._modes
        self._has_one_slot = None
        for name in ("meters", "worker_facts"):
            getattr(self, f"_{name}")[:workers] = getattr(other, f"_{name}")[:workers]
        for name in ("command", "has_info", "sequence", "answered"):
            getattr(self, f"_{name}")[:rows] = getattr(other, f"_{name}")[:rows]
        for mine, theirs in zip(self._actions, other._actions, strict=True):
            mine[:rows] = theirs[:rows]
        for mine, theirs in zip(
            (*self._steps, *self._infos), (*other._steps, *other._infos), strict=True
        ):
            mine[:, :rows] = theirs[:, :rows]

    # Both sides.

    slot_of = staticmethod(slot_of)

    def columns(self, slot: int) -> list[Array]:
        """Returns the leaves of a slot's time steps, with a row per environment."""
        return [array[slot] for array in self._steps]

    def action_columns(self) -> list[Array]:
        """Returns the leaves of actions, with a row per environment."""
        return self._actions

    def block(self, worker: int) -> Block:
        """Returns the rows of one worker."""
        first, stop = self.layout.blocks[worker]
        rows = slice(first, stop)
        leaves = [[array[slot, rows] for array in self._steps] for slot in range(SLOTS)]
        for slot in range(SHOWN_SLOTS):
            leaves[slot] += [array[slot, rows] for array in self._infos]
        return Block(
            self._sequence[rows],
            self._command[rows],
            self._answered[rows],
            self._has_info[rows],
            self._meters[worker],
            [array[rows] for array in self._actions],
            leaves,
        )

    def counters(self, worker: int) -> memoryview:
        """Returns a worker's row of meters."""
        return view_of(self._meters[worker])

    def counter(self, which: int) -> Array:
        """Returns one meter for all workers."""
        column: Array = self._meters[:, which]
        return column

    def forget_declared(self, rows: Any) -> None:
        """Marks rows as having no declared infos in the slab."""
        self._has_info[rows] &= ~np.uint8(DECLARED_INFO | ONLY_DECLARED_INFO)

    # The parent's side.

    def write_fact(
        self, which: int, value: Any, worker: int | slice = slice(None)
    ) -> None:
        """Writes a fact about one worker, or all, for other processes to read."""
        self._worker_facts[worker, which] = value

    def resident(self, worker: int) -> int:
        """Returns the memory that a worker has reported; 0 if it has not."""
        return int(self._meters[worker, RESIDENT])

    def announce_message(self) -> None:
        """Announces a message that will be sent to a worker."""
        self.messages[0] += 1

    @property
    def autoreset(self) -> int:
        """The order in which workers begin the episode after a `LAST`."""
        return int(self._modes[0])

    @autoreset.setter
    def autoreset(self, order: int) -> None:
        self._modes[0] = order

    @property
    def is_same_step(self) -> bool:
        """True if the step that ends an episode also begins the next."""
        return self.order[0] == SAME_STEP_ORDER

    def want_infos(self) -> None:
        """Makes workers record, from now on, which environments have an info."""
        if not self.wants_infos[0]:
            self._has_info.fill(ANY_INFO)
            fence()
            self._modes[1] = True

    def write_actions(self, columns: Sequence[Array], rows: Any = ...) -> None:
        """Writes the actions of some or all rows, given an array for each leaf."""
        # Hot: called once per batch of any size.
        for array, column in zip(self._actions, columns, strict=True):
            array[rows] = column

    def request_all(self, command: int) -> None:
        """Asks every row; actions, if any, must have been written before."""
        # Hot: called once per batch step.
        try:
            self.asking[0] = self.announcements[0] + 1
            if command != self._command_of_all:
                self._command.fill(command)
                self._command_of_all = command
            fence()
            self._sequence += _TWO
        finally:
            fence()
            self.announcements[0] = self.asking[0]

    def request(self, rows: Array, command: int | Array) -> None:
        """Asks the given rows."""
        try:
            self.asking[0] = self.announcements[0] + 1
            self._command_of_all, self._has_one_slot = IDLE, None
            self._command[rows] = command
            fence()
            self._sequence[rows] += _TWO
        finally:
            fence()
            self.announcements[0] = self.asking[0]

    def announce(self) -> None:
        """Announces a request after Ctrl-C prevented that.

        Otherwise a worker that is awake, whose bell is not rung, would miss it.
        """
        # Hot in asynchronous use: called once per batch of any size.
        if self.announcements[0] != self.asking[0]:
            fence()
            self.announcements[0] = self.asking[0]

    def all_answered(self) -> bool:
        """True if no row owes an answer."""
        # Hot: called at every wake-up of the parent.
        if self._sequence_bytes.tobytes() == self._answered_bytes.tobytes():
            fence()
            return True
        return False

    def are_aligned(self) -> bool:
        """True if no row owes an answer, and all rows use one slot."""
        # Hot: called once per batch step.
        if self._has_one_slot is None:
            self._has_one_slot = not ((self._sequence ^ self._sequence[0]) & 2).any()
        return self._has_one_slot and (
            self._sequence_bytes.tobytes() == self._answered_bytes.tobytes()
        )

    def owing_rows(self) -> Array:
        """Returns a mask of the rows that owe an answer."""
        mask: Array = self._sequence != self._answered
        fence()
        return mask

    def count_owing(self) -> int:
        """Returns how many rows owe an answer."""
        return int(np.count_nonzero(self.owing_rows()))

    def wait_for(self, owing: int) -> None:
        """Tells workers to wake the parent when at most `owing` rows owe an answer.

        The parent must look at the answers again before it sleeps. Then no wake-up
        is lost. The parent stores its requests and `awaited`, then a full fence, then
        looks. A worker stores its answer, then a full fence, then looks (`is_awaited`).
        So if the parent misses an answer, its worker sees all that the parent has
        stored, which does not change while the parent sleeps. The last of those workers
        to store its answer also sees the others' answers, and rings.

        Args:
            owing: The number; negative if answers are not enough, and every answer must
                wake the parent.
        """
        # Hot: called once per batch of any size.
        self.awaited[0] = owing + 1 if owing >= 0 else 0
        full_fence()

    def raised_rows(self, rows: Array) -> Array:
        """Returns those of the rows whose environments have raised."""
        raised: Array = rows[(self._sequence[rows] ^ self._answered[rows]) == RAISED]
        return raised

    def has_come(self, owing: int) -> bool:
        """True if at most `owing` rows owe an answer, or an environment has raised."""
        if self.all_answered():
            return owing >= 0
        marks = self._sequence ^ self._answered
        fence()
        return int(np.count_nonzero(marks)) <= owing or bool((marks == RAISED).any())

    def slots(self, rows: Array | slice) -> Array:
        """Returns the slot of each row's answer."""
        return (self._sequence[rows] >> _ONE & _ONE).astype(np.intp)

    def commands_are_known(self) -> bool:
        """True if every row's command is to step, reset, rebuild, or none."""
        # Hot on servers: called once per request.
        return (
            self._command.tobytes() == self._all_step
            or int(self._command.max()) <= REBUILD
        )

    def are_to_step(self, rows: Array) -> Array:
        """Returns a mask of the rows that were asked to step."""
        mask: Array = self._command[rows] == STEP
        return mask

    @staticmethod
    def asks_to_step(commands: int | Array) -> bool:
        """Returns True if one of the commands is to step."""
        return bool(np.any(np.equal(commands, STEP)))

    def withdraw(self, rows: Array) -> None:
        """Withdraws requests that will not be answered; the previous answers remain."""
        self.stand_at(rows, self._sequence[rows] - _TWO)

    def stand_at(self, rows: Any, numbers: Any) -> None:
        """Sets rows to a number without a request, as if it were asked and answered.

        A worker may read these words at any moment, because its bell may ring after it
        has seen the request. Until both words are written, neither the worker nor an
        interrupted call may mistake the row for one that was asked.
        """
        with uninterrupted():
            self._command_of_all, self._has_one_slot = IDLE, None
            self._command[rows] = IDLE
            fence()
            self._sequence[rows] = numbers
            self._answered[rows] = numbers

    def read(self, rows: Array, slots: Array | None = None) -> list[Array]:
        """Returns copies of the leaves of the time steps that rows show."""
        # Hot in asynchronous use: called for every few rows.
        if slots is None:
            slots = self.slots(rows)
        places = slots * self._stride + rows
        return [array.take(places, 0) for array in self._all_slots]

    def read_standing(self, rows: Array) -> list[Array]:
        """Returns copies of the leaves of rows' current time steps.

        Under `AutoReset.SAME_STEP` a row that shows a `LAST` stands at the `FIRST` of
        the next episode.
        """
        slots = self.slots(rows)
        if self.is_same_step:
            slots[self._steps[0][slots, rows] == StepType.LAST] = SAME_STEP_SLOT
        return self.read(rows, slots)

    def read_infos(self, rows: Array) -> list[Array]:
        """Returns copies of the declared leaves of rows' infos."""
        slots = self.slots(rows)
        return [array[slots, rows] for array in self._infos]

    def step_types(self, rows: Array) -> Array:
        """Returns the step types of the time steps that rows show."""
        types: Array = self._steps[0][self.slots(rows), rows]
        return types

    def ends(self) -> tuple[Array, Array]:
        """Returns masks of the rows that show an end: terminated and truncated.

        A row can be in both. If no worker has marked it, its discount decides.
        """
        # Hot: called once per batch step, for Gymnasium.
        rows, marks = np.arange(self.layout.rows), self._has_info
        if self._has_one_slot:
            types = self._steps[0][slot_of(int(self._sequence[0]))]
        else:
            types = self.step_types(rows)
        shown = types == _LAST
        terminated = shown & (marks & TERMINATED != 0)
        truncated = shown & (marks & TRUNCATED != 0)
        untold = shown & ~(terminated | truncated)
        if np.count_nonzero(untold):
            worthless, slots = untold.copy(), self.slots(rows)
            for leaf in self.layout.discount_leaves:
                discounts = self._steps[leaf][slots, rows].reshape(len(rows), -1)
                worthless &= (discounts == 0.0).all(1)
            terminated |= worthless
            truncated |= untold & ~worthless
        return terminated, truncated

    def shows_last(self, rows: Array) -> Array:
        """Returns a mask of the rows that show a `LAST`."""
        mask: Array = self.step_types(rows) == StepType.LAST
        return mask

    def shows_loss(self, rows: Array) -> Array:
        """Returns a mask of the rows whose environments have made up a `LAST`."""
        mask: Array = self._has_info[rows] & LOST != 0
        return mask & self.shows_last(rows) if mask.any() else mask

    def standing_slot(self, row: int) -> int:
        """Returns the slot of a row's current time step."""
        slot = slot_of(int(self._sequence[row]))
        has_left = self.is_same_step and (self._steps[0][slot, row] == StepType.LAST)
        return SAME_STEP_SLOT if has_left else slot

    def views(self, slot: int) -> list[Array]:
        """Returns read-only views of a slot, one for each leaf."""
        views = [array[slot] for array in self._steps]
        for view in views:
            view.flags.writeable = False
        return views

    # Leaves of dtype object, which each process has for itself.

    def action_objects(self, row: int) -> dict[int, Any]:
        """Returns the leaves of a row's action that shared memory cannot hold."""
        return {leaf: self._actions[leaf][row] for leaf in self.private_actions}

    def write_action_objects(self, row: int, leaves: Mapping[int, Any]) -> None:
        """Writes leaves of a row's action that came from the other process."""
        for leaf, value in leaves.items():
            self._actions[leaf][row] = value

    def write_step_objects(
        self, row: int, slot: int, leaves: Mapping[int, Array]
    ) -> None:
        """Writes leaves of a row's time step that came from the other process."""
        for leaf, value in leaves.items():
            self._steps[leaf][slot, row] = value[()]

    def write_cut(self, row: int) -> None:
        """Writes the answer for a lost environment: its episode ends here.

        The answer is a `LAST` with the last observation, reward 0 and discount 1, so
        that the value of the last state can still be bootstrapped.
        """
        number = int(self._sequence[row]) + 2 & _LARGEST
        self._cut(row, slot_of(number), self.standing_slot(row))
        self.stand_at(row, number)

    def cut_before_first(self, row: int) -> None:
        """Inserts the end of the episode before the `FIRST` that a row answered.

        For a step under `AutoReset.SAME_STEP` whose environment was replaced. The old
        episode's last time step must be in the slot of `SAME_STEP`.
        """
        slot = slot_of(int(self._sequence[row]))
        # The ellipsis keeps a single object an array.
        first = [array[slot, row, ...].copy() for array in self._steps]
        info_of_first = self._has_info[row] & SHOWN_INFO
        self._cut(row, slot, SAME_STEP_SLOT)
        self._has_info[row] = BEGUN_INFO if info_of_first else 0
        for array, value in zip(self._steps, first, strict=True):
            array[SAME_STEP_SLOT, row] = value[()]

    def _cut(self, row: int, slot: int, source: int) -> None:
        # A lost environment has no info.
        self._has_info[row] = 0
        rewards, discounts = self.layout.reward_leaves, self.layout.discount_leaves
        for index, array in enumerate(self._steps):
            if index == 0:
                array[slot, row] = StepType.LAST
            elif index in rewards:
                array[slot, row] = np.zeros((), array.dtype)
            elif index in discounts:
                array[slot, row] = np.ones((), array.dtype)
            else:
                array[slot, row] = array[source, row]

    def keep_standing(self, row: int) -> None:
        """Copies a row's current time step to the slot of `SAME_STEP`."""
        source = self.standing_slot(row)
        for array in self._steps:
            array[SAME_STEP_SLOT, row] = array[source, row]

    def write_all(self, shown: Sequence[Array], standing: Sequence[Array]) -> None:
        """Writes the time steps that all rows show, and their current ones."""
        self.align(np.arange(1))
        numbers = self._sequence + _TWO
        slot = slot_of(int(numbers[0]))
        for array, leaf, other in zip(self._steps, shown, standing, strict=True):
            array[slot] = leaf
            array[SAME_STEP_SLOT] = other
        self._has_info.fill(ANY_INFO)
        self.stand_at(slice(None), numbers)

    def align(self, moved: Array) -> None:
        """Brings every row to the slot of the rows that have moved.

        The other rows repeat the time step at which they stand, so the whole batch is
        one slot of each array.
        """
        if not moved.size:
            return
        slot = slot_of(int(self._sequence[moved[0]]))
        behind = np.flatnonzero(((self._sequence >> 1) & 1) != slot)
        if behind.size:
            for array in (*self._steps, *self._infos):
                array[slot, behind] = array[1 - slot, behind]
            self.stand_at(behind, self._sequence[behind] + _TWO)

    def show_standing(self, rows: Array) -> None:
        """Makes rows show the `FIRST` that followed a `LAST` in the same step.

        `align` must have brought them to the slot of the rows that have moved. Their
        numbers are then not those under which workers know infos.
        """
        rows = rows[self.shows_last(rows)]
        slots = self.slots(rows)
        for array in self._steps:
            array[slots, rows] = array[SAME_STEP_SLOT, rows]
        self._has_info[rows] = ANY_INFO

    def ended(self, rows: Array) -> Array:
        """Returns a mask of the rows that are at the end of an episode."""
        ended = self.shows_last(rows)
        if self.is_same_step:
            # Not if the next episode has begun already.
            ended &= self._steps[0][SAME_STEP_SLOT, rows] == StepType.LAST
        return ended

    def ask_as(self, rows: Any, numbers: Any, commands: Any) -> None:
        """Asks rows under given numbers, while no other process is looking."""
        self._command_of_all = IDLE
        self._command[rows] = commands
        self._sequence[rows] = numbers

    def forget_requests(self) -> None:
        """Forgets requests that have no answer yet."""
        self._sequence[:] = self._answered & ~np.uint32(RAISED)

    # The worker's side.

    def write(
        self,
        rows: Any,
        slots: Any,
        leaves: Sequence[Any],
        left_out: Collection[int] = (),
    ) -> None:
        """Writes time steps into rows.

        Args:
            rows: A row, or some.
            slots: One slot for all of them, or one for each.
            leaves: The leaves of the time steps.
            left_out: The leaves that are not written.
        """
        # Hot: called once per step of a batch.
        for index, (array, leaf) in enumerate(zip(self._steps, leaves, strict=True)):
            if index not in left_out:
                array[slots, rows] = leaf

    def write_leaf(self, index: int, slot: int, leaf: Any) -> None:
        """Writes one leaf of all rows."""
        self._steps[index][slot] = leaf

    def write_infos(self, rows: Any, slots: Any, leaves: Sequence[Any]) -> None:
        """Writes declared infos beside the time steps of rows."""
        # Hot: called once per row and step of environments that declare something.
        for array, leaf in zip(self._infos, leaves, strict=True):
            array[slots, rows] = leaf

    def mark_infos(self, rows: Any, marks: int | Array, *, keep: bool = False) -> None:
        """Marks which infos rows have.

        Args:
            rows: The rows.
            marks: The bits for `info_marks`, the same for all or one for each.
            keep: Whether to keep the bits that are already set.
        """
        if keep:
            self._has_info[rows] |= marks
        else:
            self._has_info[rows] = marks

    def is_awaited(self) -> bool:
        """Returns True if the rows that have just answered must wake the parent.

        `wait_for` explains why at least one worker finds that the awaited number is
        reached. That holds only if `KEEPS_ORDER` is True.
        """
        # Hot: called once per batch of any size, or once per row.
        if not KEEPS_ORDER:
            return True
        full_fence()
        awaited = self.awaited[0]
        if awaited == 1:
            return self.all_answered()
        if awaited == 0 or self.layout.rows > _MANY:
            return True
        return self.count_owing() < awaited

    def read_actions(self, rows: slice | Sequence[int]) -> list[Any]:
        """Returns copies of the actions of some rows, one column for each leaf."""
        # Hot: called once per request.
        if isinstance(rows, slice):
            return [array[rows].copy() for array in self._actions]
        # Indexing with a list copies.
        return [array[rows] for array in self._actions]

    def lockstep(self, worker: int) -> Callable[[int], bool]:
        """Returns a function that checks whether all rows of a worker step together.

        It takes a number, and returns True if all rows must answer with it.
        """
        first, stop = self.layout.blocks[worker]
        count = stop - first
        sequence, answered, command = (
            bytes_of(array[first:stop])
            for array in (self._sequence, self._answered, self._command)
        )
        all_step = bytes([STEP]) * count

        def all_step_to(number: int) -> bool:
            # Hot: called at every wake-up of a worker. `pending` explains the order of
            # these reads. Bytes objects are compared all at once, elements of views one
            # by one.
            asked = number.to_bytes(4, sys.byteorder) * count
            if sequence.tobytes() != asked:
                return False
            fence()
            if command.tobytes() != all_step:
                return False
            fence()
            before = (number - 2 & _LARGEST).to_bytes(4, sys.byteorder) * count
            if answered.tobytes() != before:
                return False
            fence()
            return sequence.tobytes() == asked

        return all_step_to

    def pending(self, first: int, stop: int) -> list[int]:
        """Returns the rows of a block that were asked and have not answered."""
        # Hot: called at every wake-up of a worker. Reads go in the order of the writes
        # in `stand_at`, so its number comes with IDLE or with its answer. The answer
        # may belong to a later number than the one read, or to an earlier one to which
        # the row was reset. So the number is read again.
        asked = self._sequence[first:stop].tolist()
        fence()
        commands = self._command[first:stop].tolist()
        fence()
        done = self._answered[first:stop].tolist()
        fence()
        sequence = self._sequence
        return [
            row
            for row, number, command, last in zip(
                range(first, stop), asked, commands, done, strict=True
            )
            if command != IDLE
            and 0 < (number - last) & _LARGEST < 2**31
            and sequence[row] == number
        ]

    def pending_as_asked(self, first: int, stop: int) -> list[int] | None:
        """Does the same as `pending`, but sees each request completely or not at all.

        It returns `None` while a request is being written. Most workers need not care,
        because their rows are independent; rows of a batched environment are not.
        """
        number = self.announcements[0]
        fence()
        if self.asking[0] != number:
            return None
        fence()
        rows = self.pending(first, stop)
        return rows if self.asking[0] == number else None

    def commit(self, rows: slice | int | Sequence[int]) -> None:
        """Marks rows as answered; their answers must already be written."""
        fence()
        self._answered[rows] = self._sequence[rows]

    def fail(self, rows: int | Sequence[int]) -> None:
        """Marks rows whose environment raised; a message brings the failure itself."""
        fence()
        self._answered[rows] = self._sequence[rows] | np.uint32(RAISED)
