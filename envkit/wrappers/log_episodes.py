"""Logs each episode, to CSV, TensorBoard or a function: `LogEpisodes`."""

from __future__ import annotations

import math
import os
import re
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from envkit.errors import ClosedError
from envkit.extend import describe
from envkit.time_step import TimeStep
from envkit.types import Array
from envkit.wrappers.log_files import (
    CsvFile,
    EventsFile,
    by_episode,
    writes_events,
)
from envkit.wrappers.statistics import RecordEpisodeStatistics

__all__ = ["LogEpisodes"]

# How often the speed and the pool's restarts are measured, in seconds.
_INTERVAL = 1.0


class _Sink(Protocol):
    """Takes the episodes that ended in one step: their numbers by key."""

    def write(self, episodes: dict[str, list[float]]) -> None: ...

    def close(self) -> None: ...


class LogEpisodes(RecordEpisodeStatistics):
    """Writes a line for each episode: its return, its length, and how the run goes.

    The lines go to `episodes.csv` in the folder, and to a file for `tensorboard` if
    that package is installed. With `callback=`, a function gets each line as a
    dictionary of numbers, with or without a folder. For MLflow,
    `callback=lambda line: mlflow.log_metrics(line, step=line["step"])`; for W&B,
    `callback=wandb.log`.

    | key | meaning |
    |---|---|
    | `episode` | the number of the line, from 1, over all rows |
    | `row` | the row of the batch; 0 for a single environment |
    | `step` | the steps that all rows have taken so far |
    | `time` | the seconds since the run began |
    | `return` | the sum of the episode's rewards |
    | `return.0`, `return.left` | the sum of one element, if the reward is an array or a nest |
    | `length` | the steps of the episode |
    | `terminated`, `truncated`, `lost` | 1 for how the episode ended, 0 for the others |
    | `steps_per_second` | the recent speed, of all rows together |
    | `losses` | the episodes lost so far |
    | `restarts` | how often the pool has replaced workers and environments so far |

    An episode that was lost with its environment has no return: its cell is empty, and
    a callback gets `nan`. An episode broken off by a reset has no line. `set_state`
    restores the return so far, but `step` and `time` go on.

    Wrap the whole pool or batch: a wrapper in each worker would need a folder for each.
    Put it inside wrappers that change rewards, such as `NormalizeReward`, to log the
    environment's own. Each line is on disk when the step returns, so a crash loses
    none. A folder holds the log of one run; `envkit plot` draws it.

    The statistics of `RecordEpisodeStatistics` are there as properties and queues;
    `get_info` returns the environment's info without them.

    Attributes:
        directory: The folder; `None` if only a callback gets the lines.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from envkit.envs import CartPole
        >>> from envkit.wrappers import LogEpisodes
        >>> folder = tempfile.mkdtemp()
        >>> with LogEpisodes(CartPole(batch_size=2, seed=1), folder) as env:
        ...     for _ in range(12):
        ...         time_step = env.step([0, 1])
        >>> lines = Path(folder, "episodes.csv").read_text().splitlines()
        >>> lines[0]
        'episode,row,step,time,return,length,terminated,truncated,lost,steps_per_second,losses,restarts'
        >>> [line.split(",")[4] for line in lines[1:]]
        ['9.0', '10.0']
    """  # noqa: E501  # a header is one line

    _shown = ("directory", "buffer_length")

    def __init__(
        self,
        env: Any,
        directory: str | os.PathLike[str] | None = None,
        *,
        callback: Callable[[dict[str, float]], Any] | None = None,
        tensorboard: bool | None = None,
        resume: bool = False,
        overwrite: bool = False,
        buffer_length: int = 100,
        handle_auto_reset: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment, single or batched.
            directory: The folder of the log, such as "runs/x"; created if missing.
            callback: Called with each line.
            tensorboard: Whether to write a file for TensorBoard; `None` if its package
                is installed.
            resume: Whether to continue the log in the folder, if there is one. Steps,
                seconds, losses and restarts go on from its last line.
            overwrite: Whether to delete the log in the folder, if there is one. Without
                either, such a folder raises a `FileExistsError`.
            buffer_length: As in `RecordEpisodeStatistics`.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
            clock: Returns the time in seconds.
        """
        folder = _checked_folder(directory, callback)
        if folder is None and (tensorboard or resume or overwrite):
            raise ValueError(
                "tensorboard, resume and overwrite are about the log in a folder: pass "
                'one, as in LogEpisodes(env, "runs/x", resume=True).'
            )
        if resume and overwrite:
            raise ValueError(
                "resume=True and overwrite=True contradict each other: leave one out."
            )
        super().__init__(
            env,
            buffer_length=buffer_length,
            handle_auto_reset=handle_auto_reset,
            clock=clock,
        )
        elements = _elements(self._reward) if not self._is_scalar else []
        self._return_keys = ["return", *(f"return.{name}" for name in elements)]
        self._sinks: list[_Sink] = []
        last: dict[str, float] = {}
        self.directory = None if folder is None else str(folder)
        if folder is not None:
            # Checked before anything is written.
            has_events = writes_events(tensorboard)
            # Absolute, because the program may change its working directory.
            folder = Path(os.path.abspath(folder))
            file = CsvFile(folder, self._columns(), resume=resume, overwrite=overwrite)
            last = file.last
            self._sinks.append(file)
            if has_events:
                self._sinks.append(EventsFile(folder))
        if callback is not None:
            self._sinks.append(_Callback(callback))
        self._process = os.getpid()
        self._is_closed = False
        weakref.finalize(self, _close_all, self._sinks)
        self._lines = int(last.get("episode", 0))
        self._steps = int(last.get("step", 0))
        self._losses = int(last.get("losses", 0))
        self._restarts_before = int(last.get("restarts", 0))
        self._restarts = self._restarts_before
        now = clock()
        self._run_began = now - last.get("time", 0.0)
        # The last measurement of the speed: when, at which step, and the result.
        self._wrapped_at = self._measured_at = now
        self._measured_step = self._steps
        self._speed = math.nan

    def get_info(self) -> Any:
        """Returns the environment's info."""
        return self._env.get_info()

    def close(self) -> None:
        """Closes the log and the environment."""
        self._is_closed = True
        try:
            _close_all(self._sinks)
        finally:
            super().close()

    def _columns(self) -> list[str]:
        return [
            *("episode", "row", "step", "time", *self._return_keys, "length"),
            *("terminated", "truncated", "lost"),
            *("steps_per_second", "losses", "restarts"),
        ]

    def _add(self, time_step: TimeStep, counts: Array, now: float) -> None:
        # Hot: called once per step.
        super()._add(time_step, counts, now)
        self._steps += int(np.count_nonzero(counts))

    def _end_episodes(self, time_step: TimeStep, ended: Array, whole: Array) -> None:
        super()._end_episodes(time_step, ended, whole)
        if self._is_closed or self._process != os.getpid():
            self._refuse_to_write()
        episodes = self._episodes(time_step, ended, whole)
        for sink in self._sinks:
            sink.write(episodes)

    def _episodes(
        self, time_step: TimeStep, ended: Array, whole: Array
    ) -> dict[str, list[float]]:
        """Returns the numbers of the episodes that ended, by key."""
        rows = np.flatnonzero(ended)
        count = rows.size
        lost = ~whole.reshape(-1)[rows]
        terminated = (np.reshape(time_step.discount, -1)[rows] == 0) & ~lost
        seconds = round(self._measure(has_losses=bool(lost.any())), 6)
        returns = self._returns_of(rows)
        returns[lost] = math.nan
        losses = (self._losses + np.cumsum(lost)).tolist()
        first, self._lines = self._lines + 1, self._lines + count
        self._losses = losses[-1]
        return {
            "episode": list(range(first, first + count)),
            "row": rows.tolist(),
            "step": [self._steps] * count,
            "time": [seconds] * count,
            **dict(zip(self._return_keys, returns.T.tolist(), strict=True)),
            "length": self._lengths.reshape(-1)[rows].tolist(),
            "terminated": _as_numbers(terminated),
            "truncated": _as_numbers(~(terminated | lost)),
            "lost": _as_numbers(lost),
            "steps_per_second": [self._speed] * count,
            "losses": losses,
            "restarts": [self._restarts] * count,
        }

    def _returns_of(self, rows: Array) -> Array:
        """Returns the sum and the elements of the returns of some rows, in columns."""
        if self._is_scalar:
            return self._returns[0].reshape(-1, 1)[rows]
        size = math.prod(self._dims)
        elements = np.concatenate(
            [total.reshape(size, -1)[rows] for total in self._returns], axis=1
        )
        return np.concatenate([elements.sum(axis=1, keepdims=True), elements], axis=1)

    def _measure(self, *, has_losses: bool) -> float:
        """Measures the speed and counts restarts, at times; returns the run's time."""
        now = self._clock()
        elapsed = now - self._measured_at
        is_due = elapsed >= _INTERVAL
        is_first = self._measured_at == self._wrapped_at
        if (is_due or is_first) and elapsed > 0:
            self._speed = round((self._steps - self._measured_step) / elapsed, 1)
        if is_due:
            self._measured_at, self._measured_step = now, self._steps
        if is_due or has_losses:
            self._restarts = self._restarts_before + _restarts_of(self._env)
        return now - self._run_began

    def _refuse_to_write(self) -> NoReturn:
        if self._is_closed:
            raise ClosedError.used(f"LogEpisodes({self.directory!r})", "step()")
        raise RuntimeError(
            f"The log {self.directory!r} is written by the process that began it, and "
            "this is a fork of that one. Make another LogEpisodes here, with another "
            "folder."
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "A LogEpisodes writes files and cannot be copied or pickled: make another, "
            "with a folder of its own."
        )


class _Callback:
    """Hands each line to a function."""

    def __init__(self, function: Callable[[dict[str, float]], Any]) -> None:
        self._function = function

    def write(self, episodes: dict[str, list[float]]) -> None:
        for episode in by_episode(episodes):
            self._function(episode)

    def close(self) -> None:
        """Leaves the function alone."""


def _as_numbers(mask: Array) -> list[float]:
    numbers: list[float] = mask.view(np.int8).tolist()
    return numbers


def _close_all(sinks: list[_Sink]) -> None:
    for sink in sinks:
        sink.close()


def _checked_folder(directory: Any, callback: Any) -> Path | None:
    if callback is not None and not callable(callback):
        raise TypeError(
            "callback must be a function of a dictionary, such as wandb.log, got "
            f"{describe(callback)}."
        )
    if directory is None and callback is None:
        raise TypeError(
            'LogEpisodes needs a folder, such as LogEpisodes(env, "runs/x"), or '
            "callback=, or both."
        )
    if directory is None:
        return None
    if not isinstance(directory, str | os.PathLike) or not os.fspath(directory):
        hint = " Did you mean callback=?" if callable(directory) else ""
        raise TypeError(
            'directory must be the path of a folder, such as "runs/x", got '
            f"{describe(directory)}.{hint}"
        )
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"directory is {str(folder)!r}, which is not a folder."
        )
    return folder


def _elements(structure: Any) -> list[str]:
    """Returns a name for each element of a nest of arrays.

    Example:
        >>> from envkit import ArraySpec, nest
        >>> _elements(nest.Structure({"left": ArraySpec((), "f4")}))
        ['left']
        >>> _elements(nest.Structure(ArraySpec((2,), "f4")))
        ['0', '1']
    """
    return [
        # MLflow takes letters, digits and dots, but no brackets.
        ".".join(re.findall(r"[\w-]+", path) + [str(at) for at in index])
        for path, leaf in zip(structure.paths, structure.leaves, strict=True)
        for index in np.ndindex(*leaf.shape)
    ]


def _restarts_of(env: Any) -> int:
    """Returns how often the pool inside has replaced workers and environments."""
    statistics = getattr(env, "statistics", None)
    found = getattr(statistics() if callable(statistics) else None, "restarts", 0)
    return found if isinstance(found, int) else 0
