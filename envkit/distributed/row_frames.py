"""`RowFrames`: packs the rows of one worker into frames, and unpacks them.

```
ASKED     sequence, has_info       of all rows of the worker
          [which rows]             unless all are asked
          command, actions of the rows that are asked
BEGUN     [which rows], leaves of the FIRST that follows a LAST in the same step
ANSWERED  meters, [which rows], answered, has_info, [padding], leaves of one slot
```

Arrays follow each other as they lie in the slab. If all rows of a worker are sent, they
are sent from a view of the slab and read into one; the padding then keeps the largest
leaf aligned to a cache line all the way. Leaves of dtype object are not part of frames:
they are messages, sent before.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envkit.distributed.link import ANSWERED, ASKED, BEGUN, HEAD, Frame, FrameError
from envkit.parallel.slab import Slab
from envkit.time_step import StepType
from envkit.types import Array

__all__ = ["ALL_ROWS", "RowFrames"]

# The lowest two bits of the flags: in ASKED the autoreset order, in other frames the
# slot.
_ORDER, _WANTS_INFOS, ALL_ROWS = 3, 4, 8
_SLOT = 3
_LINE = 64
_TWO = np.uint32(2)
_RAISED = np.uint32(1)
_LARGEST = 2**32 - 1


class RowFrames:
    """Packs and unpacks the rows of one worker, in the slab of either side.

    Rows are counted from the worker's first one. In lockstep, all rows are asked with
    one number and answer in one frame of known layout: see "Lockstep" below. The other
    methods are for everything else.

    Attributes:
        size: How many rows there are.
    """

    def __init__(self, slab: Slab, worker: int) -> None:
        """Lays views over the rows of a worker."""
        block = self._block = slab.block(worker)
        self.size = len(block.numbers)
        self._slab = slab
        self._sequence = block.numbers
        self._answered, self._has_info = block.answers, block.info_marks
        self._meters, self._meters_size = block.meters, block.meters.nbytes
        asked = (block.requested, *block.actions)
        self._asked = [array for array in asked if _travels(array)]
        self._leaves = [list(filter(_travels, leaves)) for leaves in block.leaves]
        self._step_types = [leaves[0] for leaves in self._leaves]
        self._numbers_views = _views([self._sequence, self._has_info])
        self._asked_views = [*self._numbers_views, *_views(self._asked)]
        self._leaf_views = [_views(leaves) for leaves in self._leaves]
        self._numbers_size = _size(self._numbers_views)
        self._asked_size = _row_size(self._asked)
        self._leaf_sizes = [_row_size(leaves) for leaves in self._leaves]
        # Separate memory for data that must be checked before use.
        self._control = np.zeros(self._meters_size + 9 * self.size + _LINE, np.uint8)
        self._everyone = np.arange(self.size)
        self._trash = bytearray()
        # For the answer being read: the rows, their numbers, which are accepted.
        self._rows: Any = None
        self._numbers: Array = np.zeros(0, np.uint32)
        self._infos: Array = np.zeros(0, np.uint8)
        self._accepted: Array = np.zeros(0, bool)
        # For each row, the number of its unanswered request, with the lowest bit set; 0
        # for none. In lockstep `_together` has the number of all rows, and these are 0
        # unless `_may_be_apart`.
        self._outstanding = np.zeros(self.size, np.uint32)
        self._may_be_apart = False
        self._together = 0
        self._prepare_lockstep()

    # Lockstep.

    def _prepare_lockstep(self) -> None:
        self._head = memoryview(bytearray(HEAD.size))
        self._asked_frames: dict[int, Frame] = {}
        size = self._meters_size + 5 * self.size
        # Slots begin at a cache line, and so do the pages of a socket.
        sizes = [len(view) for view in self._leaf_views[0]]
        largest = sizes.index(max(sizes, default=0)) if sizes else 0
        self._padding = -(HEAD.size + size + sum(sizes[:largest])) % _LINE
        control = _view(self._control)[: size + self._padding]
        numbers = slice(self._meters_size, self._meters_size + 4 * self.size)
        self._control_meters = self._control[: self._meters_size].view(np.int64)
        self._control_numbers = self._control[numbers].view(np.uint32)
        self._control_infos = self._control[numbers.stop : size]
        # Bytes are compared and copied several times as fast as arrays.
        self._control_views = _views(
            [self._control_meters, self._control_infos, self._control_numbers]
        )
        self._own_views = _views([self._meters, self._has_info, self._answered])
        self._sequence_view, self._answered_view = _views(
            [self._sequence, self._answered]
        )
        self._first_number = self._sequence[:1].data
        self._asked_numbers = b""
        self._none_out = bytes(4 * self.size)
        self._expected_answers: list[Frame] = []
        self._answers: list[Frame] = []
        own = _views([self._meters, self._answered, self._has_info])
        for slot in (0, 1):
            leaves = self._leaf_views[slot]
            length = len(control) + _size(leaves)
            head = HEAD.pack(ANSWERED, slot | ALL_ROWS, 0, self.size, length)
            whole = HEAD.size + length
            self._expected_answers.append(
                Frame(head, [self._head, control, *leaves], whole)
            )
            parts = [head, *own, bytes(self._padding), *leaves]
            self._answers.append(Frame(head, parts, whole))
        # By leaf of a time step: its place among the parts of an answer.
        self._part_of_leaf: dict[int, int] = {}
        for index, array in enumerate(self._slab.columns(0)):
            if _travels(array):
                place = len(self._answers[0].parts) - len(self._leaf_views[0])
                self._part_of_leaf[index] = place + len(self._part_of_leaf)
        # A system call takes about a thousand pieces at once; objects have frames of
        # their own.
        self._is_plain = len(self._leaf_views[0]) < 1000 and not (
            self._slab.layout.private_steps or self._slab.private_actions
        )

    def _flags(self) -> int:
        slab = self._slab
        order: int = slab.order[0]
        return order | _WANTS_INFOS if slab.wants_infos[0] else order

    def ask_together(self) -> Frame | None:
        """Returns the frame that asks all rows.

        `None` if they are not in lockstep; `due` then returns the rows to `ask`.
        """
        # Hot: called once per worker and batch step.
        number: int = self._first_number[0]
        numbers = self._sequence_view.tobytes()
        if (
            not self._is_plain
            or self._together
            or not number
            or numbers != _repeated(number, self.size)
            or self._answered_view.tobytes() != _repeated(number - 2, self.size)
        ):
            return None
        if self._may_be_apart:
            if self._outstanding.tobytes() != self._none_out:
                return None
            self._may_be_apart = False
        self._together, self._asked_numbers = number, numbers
        flags = self._flags()
        frame = self._asked_frames.get(flags)
        if frame is None:
            frame = self._asked_frames[flags] = self._asked_frame(flags)
        return frame

    def _asked_frame(self, flags: int) -> Frame:
        length = self._numbers_size + self.size * self._asked_size
        head = HEAD.pack(ASKED, flags | ALL_ROWS, 0, self.size, length)
        return Frame(head, [head, *self._asked_views], HEAD.size + length)

    def expected_answer(self) -> Frame:
        """Returns the frame that answers a request of all rows."""
        # Hot: called once per worker and batch step.
        return self._expected_answers[(self._together >> 1) & 1]

    def accept_together(self) -> None:
        """Accepts the expected frame."""
        # Hot: called once per worker and batch step.
        meters, infos, numbers = self._control_views
        if not self._together or numbers.tobytes() != self._asked_numbers:
            self._count_apart()
            self._set_accepted(
                self._everyone, self._control_numbers, self._control_infos
            )
            self._accept_in_place()
            return
        own_meters, own_infos, answered = self._own_views
        own_meters[:] = meters
        own_infos[:] = infos
        answered[:] = numbers
        self._together = 0

    def _count_apart(self) -> None:
        """Records row by row the request that `ask_together` recorded once for all."""
        if self._together:
            self._outstanding.fill(self._together | 1)
            self._may_be_apart, self._together = True, 0

    # The pool's side.

    def due(self, rows: Array | None) -> Array:
        """Returns those of the rows that owe an answer and have not been sent yet.

        `None` stands for all.
        """
        self._count_apart()
        numbers = self._sequence | _RAISED
        due = (numbers != self._outstanding) & (numbers != self._answered | _RAISED)
        return np.flatnonzero(due) if rows is None else rows[due[rows]]

    def ask(self, rows: Array) -> list[Any]:
        """Returns the frame that asks some due rows."""
        # Hot in asynchronous use: called for every few rows.
        self._outstanding[rows] = self._sequence[rows] | _RAISED
        self._may_be_apart = True
        if rows.size == self.size:
            return [*self._asked_frame(self._flags()).parts]
        return self._asked_some(rows)

    def ask_again(self, answered: Array) -> None:
        """Forgets the unanswered requests sent over a lost link.

        Args:
            answered: For each row, the number that the other end has answered; it sends
                that answer again.
        """
        self._may_be_apart, self._together = True, 0
        numbers = self._sequence | _RAISED
        is_owed = numbers != self._answered | _RAISED
        comes = is_owed & (numbers == answered | _RAISED)
        self._outstanding[:] = np.where(comes, numbers, np.uint32(0))

    def numbers_frame(self) -> list[Any]:
        """Returns the frame that tells a worker the numbers of its rows."""
        return self._asked_some(self._everyone[:0])

    def _asked_some(self, rows: Array) -> list[Any]:
        length = self._numbers_size + rows.size * (4 + self._asked_size)
        head = HEAD.pack(ASKED, self._flags(), 0, rows.size, length)
        body = _gathered([rows.astype(np.uint32), *(one[rows] for one in self._asked)])
        return [head, *self._numbers_views, *body]

    def is_outstanding(self, row: int) -> bool:
        """Returns True if an answer to a row's last request may still come."""
        self._count_apart()
        return bool(self._outstanding[row] == self._sequence[row] | _RAISED)

    def receive_control(self, flags: int, count: int, length: int) -> memoryview:
        """Returns the memory for the part of an answer before its leaves.

        Raises:
            FrameError: There is no such answer.
        """
        slot, is_all = flags & _SLOT, bool(flags & ALL_ROWS)
        size = self._meters_size + (5 * count + self._padding if is_all else 9 * count)
        if (
            count > self.size
            or (is_all and count != self.size)
            or slot > 1
            or length != size + count * self._leaf_sizes[slot]
        ):
            raise FrameError("its worker has sent an impossible answer")
        return _view(self._control[:size])

    def receive_leaves(self, flags: int, count: int) -> list[Any]:
        """Returns the memory for an answer's leaves, once the first part is here."""
        # Hot in asynchronous use: called once per answer.
        self._count_apart()
        control, slot, place = self._control, flags & _SLOT, self._meters_size
        rows: Any = self._everyone
        if not flags & ALL_ROWS:
            rows = control[place : place + 4 * count].view(np.uint32).astype(np.intp)
            place += 4 * count
            if rows.size and rows.max() >= self.size:
                raise FrameError("its worker has answered rows that it does not have")
        numbers = control[place : place + 4 * count].view(np.uint32)
        self._set_accepted(
            rows, numbers, control[place + 4 * count : place + 5 * count]
        )
        if self._is_in_place(flags):
            return self._leaf_views[slot]
        return [self._trash_of(count * self._leaf_sizes[slot])]

    def _set_accepted(self, rows: Array, numbers: Array, infos: Array) -> None:
        """Determines which rows' answers are accepted.

        Withdrawn requests are answered too, and those answers are ignored.
        """
        self._rows, self._numbers, self._infos = rows, numbers, infos
        asked = numbers | _RAISED
        self._accepted = (asked == self._outstanding[rows]) & (
            asked == (self._sequence[rows] | _RAISED)
        )

    def _is_in_place(self, flags: int) -> bool:
        return bool(flags & ALL_ROWS and self._accepted.all())

    def accept(self, flags: int) -> None:
        """Accepts a complete answer."""
        if not self._is_in_place(flags):
            leaves = self._leaves[flags & _SLOT]
            _scatter(self._trash, leaves, self._rows, self._accepted)
        self._accept_in_place()

    def _accept_in_place(self) -> None:
        """Accepts an answer whose leaves are in place; writes its numbers last."""
        rows, accepted = self._rows, self._accepted
        whole = rows[accepted]
        self._meters[:] = self._control_meters
        self._has_info[whole] = self._infos[accepted]
        self._answered[whole] = self._numbers[accepted]
        same = (self._numbers | _RAISED) == self._outstanding[rows]
        self._outstanding[rows[same]] = 0

    def receive_begun(self, count: int, length: int) -> memoryview:
        """Returns the memory for episodes that began in the same step."""
        if count > self.size or length != count * (4 + self._leaf_sizes[2]):
            raise FrameError("its worker has sent an impossible beginning")
        return self._trash_of(length)

    def accept_begun(self, count: int) -> None:
        """Accepts episodes that have begun; the answers of their rows follow."""
        self._count_apart()
        rows = np.frombuffer(self._trash, np.uint32, count).astype(np.intp)
        if rows.size and rows.max() >= self.size:
            raise FrameError("its worker has begun rows that it does not have")
        accepted = self._outstanding[rows] == (self._sequence[rows] | _RAISED)
        _scatter(self._trash, self._leaves[2], rows, accepted, 4 * count)

    # The worker's side.

    def expected_request(self, flags: int) -> Frame | None:
        """Returns the frame that will ask all rows again, after one with these flags.

        `None` if only some were asked, because the next request may be for some too.
        """
        if not self._is_plain or not flags & ALL_ROWS:
            return None
        head, parts, size = self._asked_frame(flags)
        return Frame(head, [self._head, *parts[1:]], size)

    def receive_asked(self, flags: int, count: int) -> list[Any]:
        """Returns the memory for rows that are asked."""
        # Hot in asynchronous use: called once per request.
        if flags & ALL_ROWS:
            return self._asked_views
        size = count * (4 + self._asked_size)
        return [*self._numbers_views, self._trash_of(size)]

    def check_asked(self, flags: int, count: int, length: int) -> None:
        """Raises unless a frame's head is that of a valid request to rows.

        Raises:
            FrameError: Its size or its flags are wrong.
        """
        is_all = bool(flags & ALL_ROWS)
        size = self._numbers_size + count * (self._asked_size + 4 * (not is_all))
        if (
            count > self.size
            or (is_all and count != self.size)
            or flags & _ORDER == _ORDER
            or flags >> 4
            or length != size
        ):
            raise FrameError("the other end has sent an impossible request")

    def accept_asked(self, flags: int, count: int) -> None:
        """Makes exactly the asked rows pending."""
        # Hot: called once per request.
        slab = self._slab
        slab.order[0] = flags & _ORDER
        slab.wants_infos[0] = bool(flags & _WANTS_INFOS)
        if flags & ALL_ROWS:
            number: int = self._first_number[0]
            if self._sequence_view.tobytes() == _repeated(number, self.size):
                self._answered_view[:] = _repeated(number - 2, self.size)
            else:
                np.subtract(self._sequence, _TWO, out=self._answered)
            return
        self._block.withdraw_all()
        rows = np.frombuffer(self._trash, np.uint32, count).astype(np.intp)
        if rows.size and rows.max() >= self.size:
            raise FrameError("the other end has asked rows that there are not")
        everyone = np.ones(count, bool)
        _scatter(self._trash, self._asked, rows, everyone, 4 * count)
        self._answered[rows] -= _TWO

    def answer_together(self, lent: Mapping[int, Array]) -> Frame | None:
        """Returns the frame with the answers of all rows.

        `None` if they are not in lockstep: call `answer` then.

        Args:
            lent: By leaf, the values of all rows, for leaves that are not in the slab.
        """
        # Hot: called once per request.
        number: int = self._first_number[0]
        slot = self._slab.slot_of(number)
        if self._sequence_view.tobytes() != _repeated(number, self.size) or (
            self._slab.is_same_step and (self._step_types[slot] == StepType.LAST).any()
        ):
            return None
        answer = self._answers[slot]
        if lent:
            parts = [*answer.parts]
            for leaf, values in lent.items():
                parts[self._part_of_leaf[leaf]] = _view(values)
            answer = answer._replace(parts=parts)
        return answer

    def split_done(self, rows: Sequence[int]) -> tuple[list[int], list[int]]:
        """Splits the rows into those that have answered and those that have not."""
        # Hot in asynchronous use: called once per row.
        answered, numbers = self._slab.words.answers, self._slab.words.numbers
        done = [row for row in rows if answered[row] | 1 == numbers[row] | 1]
        return done, [row for row in rows if row not in done]

    def answer(self, rows: Sequence[int]) -> list[Any]:
        """Returns the frames with the answers of rows."""
        # Hot in asynchronous use: called once per row.
        chosen = np.array(rows, np.intp)
        parts: list[Any] = []
        slots = (self._sequence[chosen] >> 1) & 1
        if self._slab.is_same_step:
            parts += self._begun(chosen, slots)
        if len(rows) == self.size and (slots == slots[0]).all():
            return [*parts, *self._answers[slots[0]].parts]
        for slot in (0, 1):
            some = chosen[slots == slot]
            if some.size:
                parts += self._answer_some(some, slot)
        return parts

    def _answer_some(self, rows: Array, slot: int) -> list[Any]:
        length = self._meters_size + rows.size * (9 + self._leaf_sizes[slot])
        head = HEAD.pack(ANSWERED, slot, 0, rows.size, length)
        arrays = [self._answered, self._has_info, *self._leaves[slot]]
        body = [self._meters, rows.astype(np.uint32), *(each[rows] for each in arrays)]
        return [head, *_gathered(body)]

    def _begun(self, rows: Array, slots: Array) -> list[Any]:
        types = np.where(
            slots == 0, self._step_types[0][rows], self._step_types[1][rows]
        )
        rows = rows[types == StepType.LAST]
        if not rows.size:
            return []
        length = rows.size * (4 + self._leaf_sizes[2])
        body = [rows.astype(np.uint32), *(leaf[rows] for leaf in self._leaves[2])]
        return [HEAD.pack(BEGUN, 2, 0, rows.size, length), *_gathered(body)]

    def _trash_of(self, size: int) -> memoryview:
        if len(self._trash) < size:
            self._trash = bytearray(size)
        return memoryview(self._trash)[:size]


def _repeated(number: int, times: int) -> bytes:
    return (number & _LARGEST).to_bytes(4, sys.byteorder) * times


def _travels(array: Array) -> bool:
    """Returns True if an array's rows can be sent as bytes."""
    return not array.dtype.hasobject and bool(array.nbytes)


def _view(array: Array) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _views(arrays: Sequence[Array]) -> list[memoryview]:
    return [_view(array) for array in arrays]


def _gathered(arrays: Sequence[Array]) -> list[memoryview]:
    return [_view(np.ascontiguousarray(array)) for array in arrays if array.nbytes]


def _size(views: Sequence[memoryview]) -> int:
    return sum(map(len, views))


def _row_size(arrays: Sequence[Array]) -> int:
    return sum(array.nbytes // len(array) for array in arrays)


def _scatter(
    memory: Any, arrays: Sequence[Array], rows: Array, accepted: Array, place: int = 0
) -> None:
    """Copies rows out of bytes into their arrays."""
    count = len(rows)
    for array in arrays:
        shape = (count, *array.shape[1:])
        values = np.ndarray(shape, array.dtype, memory, place)
        array[rows[accepted]] = values[accepted]
        place += values.nbytes
