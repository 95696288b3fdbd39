"""`Record`: writes the episodes of an environment to files, while it goes on."""

from __future__ import annotations

import contextlib
import operator
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit.envs.base import checked_size
from envkit.errors import RecordingError, SpecError
from envkit.interruptible import in_turn
from envkit.plain_data import dumped, to_plain
from envkit.provenance import envkit_version, provenance_of
from envkit.recording.directory import begin_directory
from envkit.recording.infos import Infos
from envkit.recording.layout import ACTIONS, EPISODE, FORMAT, VERSION, Layout, packer
from envkit.recording.letters import (
    Annotation,
    Dropped,
    End,
    Event,
    Moved,
    Opening,
)
from envkit.recording.schedule import as_schedule
from envkit.recording.writer import Writer
from envkit.specs.info_spec import info_spec_of
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed
from envkit.wording import counted
from envkit.wrappers.base import PyEnvironmentBaseWrapper

__all__ = ["Record"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_NOTHING, _ACTIONS, _WHOLE = 0, 1, 2


class Record(PyEnvironmentBaseWrapper):
    """Writes episodes to files: time steps, actions, infos, lags and notes.

    A thread writes them while the environment goes on. Besides, the recording says
    where the environment comes from, so that `envkit replay --check` can make it again
    and see whether it still does the same. `Replay` plays it as an environment.

    Episodes are counted from 0, in a batch those of each row by themselves. Which are
    written `when` says; of the others there are only the actions, without which nobody
    could check those that follow. An episode that is left in its middle, by `reset`,
    `set_state` or `close`, is written as far as it went, and says so.

    A file appears when its episode is whole, which is when the next one begins, or
    with `flush` and `close`: until then notes may be added.

    Example:
        >>> import tempfile
        >>> from envkit import make
        >>> from envkit.recording import Replay
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Record(make("Catch-v1", seed=3), folder + "/catch") as env:
        ...         for _ in range(10):
        ...             time_step = env.step(1)
        ...     replayed = Replay(folder + "/catch")
        ...     observation = [replayed.step(1) for _ in range(10)][-1].observation
        >>> bool((observation == time_step.observation).all())
        True
    """

    _shown = ("directory", "when")
    _takes_turns = True

    def __init__(
        self,
        env: Any,
        directory: str | os.PathLike[str],
        when: str | Callable[[int], bool] = "always",
        *,
        info: bool = True,
        actions_between: bool = True,
        when_full: str = "wait",
        memory: int = 256 * 2**20,
        compress: bool = True,
        pickle: bool = False,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment, single or batched.
            directory: Where the recording goes: a directory of its own.
            when: Which episodes are written: "always" all, "never" none, "cubic" 0, 1,
                8, 27 and the other cubes and from 1,000 on every thousandth, or what
                is called with an episode's number and says so.
            info: Whether `get_info()` is asked for at each step that is written. A pool
                has to ask its workers.
            actions_between: Whether the actions of the other episodes are kept.
            when_full: What happens if the disk is slower than the environment, and
                `memory` is full: "wait", or "drop" the episodes that there is no room
                for. Those are counted in `dropped`, and `close` warns of them.
            memory: How many bytes may wait to be written.
            compress: Whether files are compressed.
            pickle: Whether what is neither array nor JSON is pickled; otherwise it is
                refused. Whoever reads such a recording has to trust it.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._when_name, self._is_due = as_schedule(when)
        if when_full not in ("wait", "drop"):
            raise ValueError(
                f"when_full is {describe(when_full)}; it is 'wait' or 'drop'."
            )
        memory = checked_size("memory", memory)
        self._layout = Layout(
            self.time_step_spec(),
            self.action_spec(),
            info_spec_of(env) if info else {},
        )
        self._pack = packer(pickle)
        self._infos = Infos(env, self._layout.info, self._pack) if info else None
        self._waits = when_full == "wait"
        self._between = _ACTIONS if actions_between else _NOTHING
        rows = 1 if self.batch_size is None else self.batch_size
        self._row_dims = (rows,)
        # The number of each row's episode, and what is kept of it.
        self._episodes = np.full(rows, -1, np.int64)
        self._kept_of = np.full(rows, _NOTHING, np.int8)
        self._calls = 0
        self._action: list[Array] | None = None
        self._misfit: SpecError | None = None
        self._warned = 0
        self._directory = self._begin_directory(directory)
        self._writer = Writer(self._directory, memory=memory, compress=compress)
        # What nobody closes ends well, too, if Python does.
        weakref.finalize(self, _close_quietly, self._writer)

    @property
    def directory(self) -> str:
        """Where the recording is."""
        return str(self._directory)

    @property
    def when(self) -> str:
        """Which episodes are written."""
        return self._when_name

    @property
    def dropped(self) -> int:
        """How many episodes have been dropped, as far as the writer has come."""
        return self._writer.dropped

    def _check_open(self, call: str) -> None:
        self._writer.check()

    @in_turn
    def annotate(self, row: int | None = None, /, **values: Any) -> None:
        """Notes something about the current time step.

        In an episode that is not written it is not noted either.

        Args:
            row: The row of a batch that it is about; `None` for all.
            **values: What to note; arrays, and what JSON has.
        """
        self.current_time_step()
        kept = [one for one in self._rows_of(row) if self._kept_of[one] == _WHOLE]
        noted = to_plain(dict(values), "note", self._pack)
        if not kept:
            return
        letter = Annotation(kept, dumped(noted))
        if not self._writer.tell(letter, letter.size, wait=self._waits):
            self._drop(np.array(kept))

    def _rows_of(self, row: int | None) -> Sequence[int]:
        """Returns the rows that a note is about."""
        rows = len(self._episodes)
        if row is None:
            return range(rows)
        try:
            index = operator.index(row)
        except TypeError:
            index = -1
        if isinstance(row, bool) or not 0 <= index < rows:
            there_are = f"0 to {rows - 1}" if self._dims else "0 alone"
            raise ValueError(
                f"annotate() was given the row {describe(row)}; there is {there_are}."
            )
        return [index]

    def flush(self) -> None:
        """Waits until everything is on disk, but episodes that go on.

        One that is at its `LAST` is a file then, and takes no more notes.
        """
        self._writer.flush()

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment, and notes with what."""
        self._writer.check()
        result = super().seed(seed)
        self._tell("seed", seed=_as_numbers(seed))
        return result

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._writer.check()
        super()._seed_rows(seeds)
        self._tell("seed_rows", rows=seeds)

    def _take_options(self, options: Any, rows: Array | None) -> None:
        if options is not None:
            self._writer.check()
            asked = None if rows is None else rows.tolist()
            facts = {"options": options, "rows": asked}
            noted = to_plain(facts, "reset", self._pack)
        super()._take_options(options, rows)
        if options is not None:
            self._tell("options", **noted)

    def _tell(self, event: str, **facts: Any) -> None:
        """Notes something that happened before the next call."""
        self._writer.tell(Event({"event": event, "call": self._calls, **facts}))

    def close(self) -> None:
        """Writes what there is, and closes the environment."""
        try:
            self._writer.close({"episodes": (self._episodes + 1).tolist()})
        finally:
            super().close()
        if self.dropped > self._warned:
            self._warned = self.dropped
            warnings.warn(
                f"{counted(self.dropped, 'episode')} of the recording in "
                f"{self.directory!r} could not be written in time and "
                f"{'was' if self.dropped == 1 else 'were'} dropped; log.jsonl says "
                "which. when_full='wait' waits, and more memory helps for a while.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _act(self, action: NestedArray) -> NestedArray:
        # Hot: called once per step. Copies, for the caller may use the arrays again.
        try:
            leaves = self._layout.action.flatten(action)
        except SpecError as error:
            # Before a FIRST nobody looks at it; or else the environment refuses it.
            self._action, self._misfit = None, error
            return action
        self._action, self._misfit = [np.array(leaf) for leaf in leaves], None
        return action

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        actions, self._action = self._action, None
        misfit, self._misfit = self._misfit, None
        call, self._calls = self._calls, self._calls + 1
        step_types = np.reshape(np.asarray(time_step.step_type), -1)
        moved = np.ones(self._row_dims, bool) if rows is None else rows
        first = moved & (step_types == _FIRST)
        last = moved & (step_types == _LAST)
        if last.any():
            self._check_ends(call, last)
        if misfit is not None and not (first == moved).all():
            raise misfit
        openings = self._open(first) if first.any() else []
        kept = (moved & (self._kept_of != _NOTHING)).nonzero()[0]
        if kept.size:
            whole = kept[self._kept_of[kept] == _WHOLE]
            letter = Moved(
                call,
                kept,
                step_types[kept],
                openings,
                self._action_columns(actions, kept),
                whole,
                self._columns(time_step, whole) if whole.size else {},
            )
            if not self._writer.tell(letter, letter.size, wait=self._waits):
                self._drop(kept)
        return time_step

    def _check_ends(self, call: int, last: Array) -> None:
        """Notes ends that a pool has made up."""
        repaired = getattr(self._env, "repaired", None)
        if repaired is not None:
            for row in (last & repaired).nonzero()[0].tolist():
                facts = {"event": "replaced", "call": call, "row": row}
                self._writer.tell(Event(facts))

    def _open(self, first: Array) -> list[Opening]:
        """Counts the episodes that begin, and decides what to keep of them."""
        openings = []
        self._episodes = self._episodes + first
        for row in first.nonzero()[0].tolist():
            episode = int(self._episodes[row])
            kept = self._between
            if self._when_name == "never":
                kept = _NOTHING
            elif self._is_due(episode):
                kept = _WHOLE
            if kept == _NOTHING and self._kept_of[row] != _NOTHING:
                self._writer.tell(End([row], "reset"))
            self._kept_of[row] = kept
            if kept != _NOTHING:
                kind = EPISODE if kept == _WHOLE else ACTIONS
                openings.append(Opening(row, episode, kind))
        return openings

    def _drop(self, rows: Array) -> None:
        self._kept_of[rows] = _NOTHING
        self._writer.tell(
            Dropped([(row, int(self._episodes[row])) for row in rows.tolist()])
        )

    def _action_columns(
        self, actions: list[Array] | None, rows: Array
    ) -> dict[str, Any]:
        layout = self._layout
        if actions is None:  # Nobody has acted: this is a reset.
            actions = [
                np.zeros(self._dims + spec.shape, spec.dtype)
                for spec in layout.action.leaves
            ]
        named = zip(layout.actions, actions, strict=True)
        return {name: self._column(leaf, rows, name) for name, leaf in named}

    def _columns(self, time_step: TimeStep, rows: Array) -> dict[str, Any]:
        """Returns copies of some rows of a time step and its info, by name."""
        leaves = self._layout.time_step.flatten(time_step)
        columns = {
            name: self._column(np.asarray(leaf), rows, name)
            for name, leaf in zip(self._layout.steps, leaves, strict=True)
            if name != "step_type"  # It is there of all rows.
        }
        if self._infos is not None:
            columns |= self._infos.columns(rows.tolist())
        return columns

    def _column(self, leaf: Array, rows: Array, name: str) -> Any:
        by_row = leaf if self._dims else leaf[np.newaxis]
        if leaf.dtype.hasobject:
            return [
                dumped(to_plain(by_row[row, ...], name, self._pack))
                for row in rows.tolist()
            ]
        return by_row[rows]

    def _restore(self, saved: Any) -> None:
        super()._restore(saved)
        self._kept_of[:] = _NOTHING
        self._writer.tell(End(list(range(len(self._episodes))), "set_state"))
        self._tell("set_state")

    def _begin_directory(self, directory: Any) -> Path:
        try:
            # What the program does later with its working directory is of no account.
            path = Path(os.path.abspath(directory))
        except TypeError:
            raise TypeError(
                f"directory is {describe(directory)}; it is the path of a directory."
            ) from None
        started = getattr(self._env, "_current_time_step", None) is not None
        facts = {
            "format": FORMAT,
            "format_version": VERSION,
            "envkit": envkit_version(),
            "batch_size": self.batch_size,
            "repeats_last": self.repeats_last,
            "when": self._when_name,
            "begun_before": started,
            "specs": self._layout.as_plain(),
        }
        provenance = getattr(self._env, "provenance", None)
        known = provenance() if callable(provenance) else provenance_of(self._env)
        begin_directory(path, facts, known)
        return path

    def __reduce__(self) -> Any:
        raise TypeError(
            "A Record writes files and cannot be copied or pickled: make another, with "
            "a directory of its own."
        )


def _as_numbers(seed: Any) -> Any:
    """Returns a seed, or seeds, as numbers of Python's own."""
    if isinstance(seed, np.ndarray):
        return seed.tolist()
    if isinstance(seed, list | tuple):
        # Not by way of an array: one of large and small numbers would have floats.
        return [_as_numbers(one) for one in seed]
    return None if seed is None else operator.index(seed)


def _close_quietly(writer: Writer) -> None:
    # Python ends, or nobody holds the environment: there is nobody to tell.
    with contextlib.suppress(RecordingError):
        writer.close()
