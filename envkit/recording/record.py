"""Writes the episodes of an environment to files, while it runs: `Record`."""

from __future__ import annotations

import contextlib
import operator
import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import CallOrderError, RecordingError, SpecError
from envkit.extend import WrapperInternals, checked_size, counted, describe, locked
from envkit.provenance import dumped, envkit_version, provenance_of, to_plain
from envkit.recording.format import (
    ACTIONS,
    EPISODE,
    FORMAT,
    VERSION,
    Layout,
    begin_directory,
    packer,
)
from envkit.recording.pictures import Renderer
from envkit.recording.writer import MovedRows, Opening, Writer
from envkit.specs.environment_spec import info_spec_of
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed
from envkit.wrappers.video import capped_cubic_video_schedule

__all__ = ["Record"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
# The parts of an episode that may be kept.
_NOTHING, _ACTIONS, _WHOLE = 0, 1, 2


class _RecordInternals(WrapperInternals):
    """Writes the options of resets to the log."""

    def check_open(self, env: Any, call: str) -> None:
        """Raises if nothing can be written any more."""
        env._writer.check()

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        """Passes options on, and logs them if the environment has accepted them."""
        if options is not None:
            env._writer.check()
            asked = None if rows is None else rows.tolist()
            facts = {"options": options, "rows": asked}
            logged = to_plain(facts, "reset", env._pack)
        super().hand_options(env, options, rows)
        if options is not None:
            env._log("options", **logged)

    def restore(self, env: Any, saved: Any) -> None:
        super().restore(env, saved)
        env._kept_of[:] = _NOTHING
        env._writer.leave(list(range(len(env._episodes))), "set_state")
        env._log("set_state")


class Record(PyEnvironmentBaseWrapper):
    """Writes episodes to files: time steps, actions, infos, lags and notes.

    A thread writes them while the environment continues. The recording includes the
    environment's provenance, so `envkit replay --check` can make the environment again
    and compare its results. `Replay` plays the recording as an environment.

    Episodes are counted from 0, in a batch separately for each row. `when` chooses the
    episodes to write. For the others, only the actions are written, because later
    episodes cannot be checked without them. An episode that is broken off by `reset`,
    `set_state` or `close` is written up to there, with the reason.

    An episode's file appears when the next episode begins, or with `flush` and `close`:
    until then you can add notes. Several threads may use one `Record`; their calls wait
    for each other. A step after `close` or in a fork of the process raises an error,
    because no thread is left to write.

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
    _envkit = _RecordInternals(one_thread=True)

    def __init__(
        self,
        env: Any,
        directory: str | os.PathLike[str],
        when: str | Callable[[int], bool] = "always",
        *,
        info: bool = True,
        pictures: bool = False,
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
            directory: The directory of the recording, which holds nothing else.
            when: The episodes to write: "always" for all, "never" for none, "cubic" for
                0, 1, 8, 27 and the other cubes and from 1,000 on every thousandth, or a
                function that takes an episode's number and returns whether to write it.
            info: Whether to call `get_info()` at each step that is written. A pool has
                to ask its workers for it.
            pictures: Whether to render each time step that is written, for
                `envkit replay`, `Replay.render` and `Episode.picture`. The files have
                them as PNG: 2 to 30 kB each for most of Gymnasium's environments. A
                library that needs a mode for it, such as Gymnasium, must have been
                given `render_mode="rgb_array"`.
            actions_between: Whether to keep the actions of the other episodes.
            when_full: If the disk is slower than the environment and `memory` is full,
                "wait", or "drop" the episodes that do not fit. `dropped` counts those,
                and `close` warns about them.
            memory: How many bytes may wait to be written.
            compress: Whether to compress files.
            pickle: Whether to pickle values that are neither arrays nor JSON; otherwise
                they are refused. Reading such a recording may run any code.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.

        Raises:
            FileExistsError: The directory has a recording already.
            NotImplementedError: The environment cannot render `pictures`.
        """
        super().__init__(env, handle_auto_reset)
        self._when_name, self._is_due = _schedule(when)
        if when_full not in ("wait", "drop"):
            raise ValueError(
                f"when_full must be 'wait' or 'drop', got {describe(when_full)}."
            )
        memory = checked_size("memory", memory)
        self._layout = Layout(
            self.time_step_spec(),
            self.action_spec(),
            info_spec_of(self._env) if info else {},
        )
        self._pack = packer(pickle)
        self._infos = _Infos(self._env, self._layout, self._pack) if info else None
        self._renderer = Renderer(self._env) if pictures else None
        self._waits = when_full == "wait"
        self._between = _ACTIONS if actions_between else _NOTHING
        rows = 1 if self.batch_size is None else self.batch_size
        self._row_dims = (rows,)
        # Per row: the number of its episode, and what is kept of it.
        self._episodes = np.full(rows, -1, np.int64)
        self._kept_of = np.full(rows, _NOTHING, np.int8)
        self._calls = 0
        self._action: list[Array] | None = None
        self._misfit: SpecError | None = None
        self._warned = 0
        self._directory = self._begin_directory(directory)
        self._writer = Writer(self._directory, memory=memory, compress=compress)
        # Completes a recording that was not closed when Python ends.
        weakref.finalize(self, _close_quietly, self._writer)

    @property
    def directory(self) -> str:
        """The directory of the recording."""
        return str(self._directory)

    @property
    def when(self) -> str:
        """The name of the schedule that chooses episodes."""
        return self._when_name

    @property
    def dropped(self) -> int:
        """The number of episodes that the writer has dropped so far."""
        return self._writer.dropped

    @locked
    def annotate(self, row: int | None = None, /, **values: Any) -> None:
        """Adds a note to the current time step, if its episode is written.

        Args:
            row: The row of a batch that the note is about; `None` for all rows.
            **values: Arrays, and values that JSON has.
        """
        self.current_time_step()
        kept = [one for one in self._rows_of(row) if self._kept_of[one] == _WHOLE]
        noted = to_plain(dict(values), "note", self._pack)
        if not kept:
            return
        if not self._writer.annotate(kept, dumped(noted), wait=self._waits):
            self._drop(kept)

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
            allowed = f"from 0 to {rows - 1}" if self._dims else "0"
            raise ValueError(
                f"The row of annotate() must be {allowed}, got {describe(row)}."
            )
        return [index]

    def flush(self) -> None:
        """Waits until everything except running episodes is in files.

        An episode at its `LAST` becomes a file too, and accepts no more notes.
        """
        self._writer.flush()

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment, and logs the seed."""
        self._writer.check()
        result = super().seed(seed)
        self._log("seed", seed=_as_numbers(seed))
        return result

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._writer.check()
        super()._seed_rows(seeds)
        self._log("seed_rows", rows=seeds)

    def _log(self, event: str, **facts: Any) -> None:
        """Logs an event, placed before the next call."""
        self._writer.log({"event": event, "call": self._calls, **facts})

    def close(self) -> None:
        """Writes the rest of the recording, and closes the environment."""
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
        # Hot: called once per step. Copies, because the caller may change the arrays.
        try:
            leaves = self._layout.action.flatten(action)
        except SpecError as error:
            # An action before a FIRST is ignored; the environment refuses other wrong
            # ones.
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
            moved_rows = MovedRows(
                call,
                kept,
                step_types[kept],
                openings,
                self._action_columns(actions, kept),
                whole,
                self._columns(time_step, whole) if whole.size else {},
                self._pictures(whole) if whole.size else [],
            )
            if not self._writer.move(moved_rows, wait=self._waits):
                self._drop(kept.tolist())
        return time_step

    def _check_ends(self, call: int, last: Array) -> None:
        """Logs the ends that a pool has made up."""
        repaired = getattr(self._env, "repaired", None)
        if repaired is None or not (last & repaired).any():
            return
        losses = self._env.current_losses()
        for row in (last & repaired).nonzero()[0].tolist():
            facts = {"event": "replaced", "call": call, "row": row}
            if row in losses:
                error = losses[row].error
                text = f"{type(error).__name__}: {error}".partition("\n")[0]
                facts |= {"kind": losses[row].kind, "error": text}
            self._writer.log(facts)

    def _open(self, first: Array) -> list[Opening]:
        """Returns the episodes that begin and are kept at least in part."""
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
                self._writer.leave([row], "reset")
            self._kept_of[row] = kept
            if kept != _NOTHING:
                kind = EPISODE if kept == _WHOLE else ACTIONS
                openings.append(Opening(row, episode, kind))
        return openings

    def _drop(self, rows: list[int]) -> None:
        self._kept_of[rows] = _NOTHING
        self._writer.drop([(row, int(self._episodes[row])) for row in rows])

    def _action_columns(
        self, actions: list[Array] | None, rows: Array
    ) -> dict[str, Any]:
        layout = self._layout
        if actions is None:  # this is a reset
            actions = [
                np.zeros(self._dims + spec.shape, spec.dtype)
                for spec in layout.action.leaves
            ]
        named = zip(layout.actions, actions, strict=True)
        return {name: self._column(leaf, rows, name) for name, leaf in named}

    def _columns(self, time_step: TimeStep, rows: Array) -> dict[str, Any]:
        """Returns copies of some rows of a time step and its info, by column."""
        leaves = self._layout.time_step.flatten(time_step)
        columns = {
            name: self._column(np.asarray(leaf), rows, name)
            for name, leaf in zip(self._layout.steps, leaves, strict=True)
            if name != "step_type"  # all rows that are kept have it
        }
        if self._infos is not None:
            columns |= self._infos.columns(rows.tolist())
        return columns

    def _pictures(self, rows: Array) -> list[Array]:
        if self._renderer is None:
            return []
        return self._renderer.pictures(rows.tolist())

    def _column(self, leaf: Array, rows: Array, name: str) -> Any:
        by_row = leaf if self._dims else leaf[np.newaxis]
        if leaf.dtype.hasobject:
            return [
                dumped(to_plain(by_row[row, ...], name, self._pack))
                for row in rows.tolist()
            ]
        return by_row[rows]

    def _begin_directory(self, directory: Any) -> Path:
        try:
            # Absolute, because the program may change its working directory.
            path = Path(os.path.abspath(directory))
        except TypeError:
            raise TypeError(
                f"directory must be the path of a directory, got {describe(directory)}."
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


def _schedule(when: Any) -> tuple[str, Callable[[int], bool]]:
    """Returns the name of a schedule, and the function that chooses episodes.

    Example:
        >>> name, is_due = _schedule("cubic")
        >>> [number for number in range(30) if is_due(number)]
        [0, 1, 8, 27]
    """
    named: dict[Any, Callable[[int], bool]] = {
        "always": lambda _: True,
        "never": lambda _: False,
        "cubic": capped_cubic_video_schedule,
    }
    if isinstance(when, str) and when in named:
        return when, named[when]
    if callable(when):
        return getattr(when, "__qualname__", type(when).__qualname__), when
    raise ValueError(
        "when must be 'always', 'never', 'cubic' or a function of the number of an "
        f"episode, got {describe(when)}."
    )


def _as_numbers(seed: Any) -> Any:
    """Returns a seed, or seeds, as Python numbers."""
    if isinstance(seed, np.ndarray):
        return seed.tolist()
    if isinstance(seed, list | tuple):
        # Not through an array: small and large numbers together would become floats.
        return [_as_numbers(one) for one in seed]
    return None if seed is None else operator.index(seed)


def _close_quietly(writer: Writer) -> None:
    # Python is ending or the environment was garbage-collected: no caller could handle
    # it.
    with contextlib.suppress(RecordingError):
        writer.close()


class _Infos:
    """Splits the infos of an environment into columns.

    The values that `info_spec()` declares become arrays, the rest lines of JSON.
    """

    def __init__(
        self, env: Any, layout: Layout, pack: Callable[[Any, str], Any]
    ) -> None:
        self._env, self._layout, self._pack = env, layout, pack
        self._rows: int | None = env.batch_size if env.batched else None
        # True once there was an info; False if there was none at first.
        self._has_some: bool | None = None

    def columns(self, rows: Sequence[int]) -> dict[str, Any]:
        """Returns the infos of some rows, by column name."""
        if self._has_some is False:
            return {}
        try:
            info = self._env.get_info()
            self._has_some = True
        except NotImplementedError:
            # A column has an element for every time step, or it does not exist.
            if not self._has_some:
                self._has_some = False
                return {}
            info = None
        except CallOrderError:
            # Blocking, for example, cannot ask while rows are stepping.
            info = None
        columns: dict[str, list[Any]] = {name: [] for name in self._layout.infos}
        lines = []
        for row in rows:
            rest = _of_row(info, row, self._rows)
            for leaf, path, column in zip(
                self._layout.info.leaves,
                self._layout.info_keys,
                columns.values(),
                strict=True,
            ):
                absent = np.zeros(leaf.shape, leaf.dtype)
                rest, value = _removed(rest, path, absent)
                column.append(np.array(value, leaf.dtype))
            lines.append(dumped(to_plain(rest, "info", self._pack)))
        return {**columns, "info": lines}


def _removed(info: Any, path: tuple[str, ...], absent: Array) -> tuple[Any, Any]:
    """Returns an info without the value at a path, and that value."""
    if not isinstance(info, Mapping) or path[0] not in info:
        return info, absent
    others = {key: value for key, value in info.items() if key != path[0]}
    if len(path) == 1:
        return others, info[path[0]]
    inner, value = _removed(info[path[0]], path[1:], absent)
    return ({**others, path[0]: inner} if inner else others), value


def _of_row(info: Any, row: int, rows: int | None) -> Any:
    """Returns one row's part of an info."""
    if rows is None:
        return info
    if isinstance(info, list) and len(info) == rows:
        return info[row]
    return _row_of(info, row, rows)


def _row_of(value: Any, row: int, rows: int) -> Any:
    if isinstance(value, np.ndarray) and value.shape[:1] == (rows,):
        return value[row, ...]
    if isinstance(value, Mapping):
        return {key: _row_of(item, row, rows) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_row_of(item, row, rows) for item in value))
    return value
