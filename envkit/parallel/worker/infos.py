"""`InfoNotes`: marks the rows that have an info, and writes declared infos.

Asking workers for infos takes about as long as a step of cheap environments, and most
infos are empty. If the slab asks for it, a worker reads each info before it marks the
row as answered. Beside the row it writes how the episode ended, and whether the info
has anything more.

Declared infos are always read, and written into the slab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit.batches import copied_arrays
from envkit.errors import SpecError
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import (
    BEGUN_INFO,
    DECLARED_INFO,
    ONLY_DECLARED_INFO,
    SHOWN_INFO,
    TERMINATED,
    TRUNCATED,
    slot_of,
)
from envkit.parallel.worker.environments import EnvironmentHost
from envkit.time_step import FLAGS, StepType, TimeStep, flags_in
from envkit.types import Array

__all__ = ["InfoNotes", "InfoRows", "says_more"]

_MID, _LAST = StepType.MID, StepType.LAST
# Stands for the info of an environment that has none.
_NOTHING = object()


class InfoNotes:
    """Keeps infos until they are asked for, and marks the rows that have one.

    Environments are counted from the first one of the worker, rows from the first one
    of the slab.
    """

    def __init__(
        self,
        slab: Slab,
        host: EnvironmentHost,
        may_write: Callable[[], None] | None = None,
        name_of: Callable[[int], str] = "env {}".format,
    ) -> None:
        """Takes the environments of one worker, with no infos yet.

        Args:
            slab: The slab for the marks.
            host: The host of the environments.
            may_write: Called before each write; raises if writing is forbidden.
            name_of: Names the environment of a row.
        """
        self._host = host
        self._rows: InfoRows | None = None
        self._slab = slab
        self._has_info = slab.words.info_marks
        self._sequence = slab.words.numbers
        # One element, which the other side may change between two requests.
        self.wanted = slab.wants_infos
        if slab.layout.declares_info:
            self._rows = InfoRows(slab, may_write, name_of)
            self.wanted = memoryview(bytes([True]))
        # By environment: the number of a request, and the info after it.
        self._kept: dict[int, tuple[int, Any]] = {}
        # The same for episodes that ended and were followed by the next in one step.
        self._final: dict[int, tuple[int, Any]] = {}

    def record(self, index: int, row: int, time_step: TimeStep) -> None:
        """Records whether a single environment has an info for its time step."""
        # Hot: called once per row and step, where infos are wanted.
        info = self._ask(index)
        declared = 0
        if self._rows is not None:
            declared, info = _written(self._rows.write, row, info=info)
        marks = declared
        if time_step.step_type is not _MID:
            marks |= int(_marks_of_ends(info, time_step))
        is_empty = type(info) is dict and not info
        if is_empty or not says_more(info):
            self._has_info[row] = marks
            if self._kept:
                self._kept.pop(index, None)
        else:
            self._has_info[row] = SHOWN_INFO | marks
            self._kept[index] = self._sequence[row], info

    def record_batch(
        self, index: int, block: slice, moved: Array, time_step: TimeStep
    ) -> None:
        """Records whether a batch has an info for its rows.

        Args:
            index: The environment.
            block: Its rows.
            moved: A mask of the rows that have moved.
            time_step: The time step that it returned.
        """
        info = self._ask(index)
        rows = block.start + np.flatnonzero(moved)
        declared = 0
        if self._rows is not None:
            declared, info = _written(self._rows.write_batch, block, moved, info=info)
        marks = declared | _marks_of_ends(info, time_step)[moved]
        if says_more(info, np.shape(time_step.step_type)):
            # Rows that have not moved share the info.
            self._slab.mark_infos(block, SHOWN_INFO, keep=True)
            self._slab.mark_infos(rows, SHOWN_INFO | marks)
            self._kept[index] = self._sequence[block.start], info
        else:
            self._slab.mark_infos(rows, marks)
            self._kept.pop(index, None)

    def keep_final(self, index: int, row: int) -> None:
        """Keeps the info of an environment that is about to be reset.

        Args:
            index: The environment.
            row: Its first row.
        """
        number = self._sequence[row]
        self._final[index] = number, self.final(index, number)

    def final(self, index: int, number: int) -> Any:
        """Returns the info of an environment that is about to be reset, to keep it.

        Args:
            index: The environment.
            number: The request that ended its episode.
        """
        kept_at, info = self._kept.get(index, (-1, None))
        # The reset may overwrite the arrays in it.
        return copied_arrays(info if kept_at == number else self._ask(index))

    def record_begun(self, index: int, rows: Any, time_step: TimeStep) -> None:
        """Records whether the `FIRST` after a `LAST` has an info.

        Args:
            index: The environment.
            rows: Its rows that have begun.
            time_step: The time step of its reset.
        """
        if says_more(self._ask(index), np.shape(time_step.step_type)):
            self._slab.mark_infos(rows, BEGUN_INFO, keep=True)

    def forget(self, index: int) -> None:
        """Forgets the infos of an environment that is being reset."""
        self._kept.pop(index, None)
        self._final.pop(index, None)

    def adopt(self, index: int, other: InfoNotes) -> None:
        """Copies the infos of an environment from another object."""
        for mine, theirs in (
            (self._kept, other._kept),
            (self._final, other._final),
        ):
            mine.pop(index, None)
            if index in theirs:
                mine[index] = theirs[index]

    def answer(self, index: int, row: int) -> Any:
        """Returns the info of the time step returned last.

        It is not the info of an episode that has begun since, because only the old one
        shows whether the end was both a termination and a truncation.

        Args:
            index: The environment.
            row: Its first row.
        """
        number, info = self._final.get(index, (-1, _NOTHING))
        if number != self._sequence[row] or info is _NOTHING:
            number, info = self._kept.get(index, (-1, _NOTHING))
            if not isinstance(info, BaseException):
                # Hand it out only once, because the caller may change it.
                self._kept.pop(index, None)
        return self.told(index, info if number == self._sequence[row] else _NOTHING)

    def told(self, index: int, info: Any) -> Any:
        """Returns a kept info, or raises the exception kept in its place."""
        if info is _NOTHING:
            return self._host.envs[index].get_info()
        if isinstance(info, BaseException):
            raise info
        return info

    def invalidate(self, index: int, block: slice) -> None:
        """Forgets the info of an environment that may now have a new one.

        Args:
            index: The environment.
            block: Its rows.
        """
        self._kept.pop(index, None)
        if self._rows is not None:
            self._slab.forget_declared(block)

    def _ask(self, index: int) -> Any:
        """Returns an environment's info, or the exception it raised instead."""
        try:
            return self._host.envs[index].get_info()
        except NotImplementedError:
            return _NOTHING
        except BaseException as error:
            self._host.let_through(error)
            return error


def _written(write: Callable[..., int], *where: Any, info: Any) -> tuple[int, Any]:
    """Writes the declared part of an info, if there is one.

    Returns:
        The marks for the slab; and the info, or the error about it.
    """
    if info is _NOTHING or isinstance(info, BaseException):
        return 0, info
    try:
        return write(*where, info), info
    except SpecError as error:
        return 0, error


def says_more(info: Any, dims: tuple[int, ...] = ()) -> bool:
    """Returns True if an info contains more than the flags of an episode's end.

    Args:
        info: The info.
        dims: The number of rows, for the info of a batch.

    Example:
        >>> says_more({"terminated": True, "truncated": True})
        False
        >>> says_more({"lives": 2})
        True
    """
    if not isinstance(info, Mapping):
        return info is not _NOTHING
    if len(info) != len(FLAGS):
        return bool(info)
    return _flags_in(info, dims) is None


def _marks_of_ends(info: Any, time_step: TimeStep) -> Any:
    """Returns the marks of ends for the slab: a number, or one for each row."""
    over = np.asarray(time_step.step_type) == _LAST
    dims, discount = over.shape, np.asarray(time_step.discount)
    if not over.any():
        return np.zeros(dims, np.uint8)
    flags = _flags_in(info, dims) if isinstance(info, Mapping) else None
    terminated, truncated = (False, False) if flags is None else flags
    if discount.shape == dims and discount.dtype != object:
        # If no flag is True, the discount decides.
        untold, is_worth = ~(terminated | np.asarray(truncated)), discount != 0.0
        terminated = terminated | (untold & ~is_worth)
        truncated = truncated | (untold & is_worth)
    ends = np.multiply(terminated, TERMINATED) | np.multiply(truncated, TRUNCATED)
    return (over * ends).astype(np.uint8)


def _flags_in(info: Mapping[str, Any], dims: tuple[int, ...]) -> Any:
    """Returns the flags of one row, or those of all rows of a batch."""
    if dims == ():
        return flags_in(info)
    flags = [info.get(name) for name in FLAGS]
    are_flags = all(
        isinstance(flag, np.ndarray) and flag.dtype == np.bool_ and flag.shape == dims
        for flag in flags
    )
    return flags if are_flags else None


class InfoRows:
    """Writes declared infos into rows of a slab."""

    def __init__(
        self, slab: Slab, may_write: Callable[[], None] | None, name: Any
    ) -> None:
        """Prepares for a slab.

        Args:
            slab: The slab.
            may_write: Called before each write; raises if writing is forbidden.
            name: Names the environment of a row.
        """
        self._declared = slab.layout.info
        self._slab = slab
        self._sequence = slab.words.numbers
        self._may_write = may_write
        self._name = name

    def write(self, row: int, info: Any) -> int:
        """Writes an info beside the time step of a row.

        Returns:
            The marks of the row's info for the slab.

        Raises:
            SpecError: It does not match the declaration.
        """
        # Hot: called once per row and step of environments that declare something.
        leaves = self._declared.values(info, (), f"The info of {self._name(row)}")
        if self._may_write is not None:
            self._may_write()
        self._slab.write_infos(row, slot_of(self._sequence[row]), leaves)
        return self._flags(info)

    def write_batch(self, block: slice, moved: Array, info: Any) -> int:
        """Writes the info of a batch beside its new time steps.

        Args:
            block: The rows of the batch.
            moved: A mask of the rows that have moved.
            info: Arrays with an element for each row, or a list of infos.
        """
        size = block.stop - block.start
        rows = block.start + np.flatnonzero(moved)
        if isinstance(info, list) and len(info) == size:
            flags = [self.write(row, info[row - block.start]) for row in rows.tolist()]
            return int(np.bitwise_and.reduce(flags)) if flags else 0
        subject = f"The info of {self._name(block.start)}"
        leaves = self._declared.values(info, (size,), subject)
        if self._may_write is not None:
            self._may_write()
        slots = self._slab.slots(rows)
        self._slab.write_infos(rows, slots, [leaf[moved] for leaf in leaves])
        return self._flags(info)

    def _flags(self, info: Any) -> int:
        if self._declared.is_all_of(info):
            return DECLARED_INFO | ONLY_DECLARED_INFO
        return DECLARED_INFO
