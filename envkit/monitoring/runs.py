"""Reads the episodes of runs, from logs and from recordings: `runs_in`."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from envkit.extend import describe, listed, suggestion
from envkit.recording.stored import Recording
from envkit.time_step import StepType
from envkit.types import Array
from envkit.wrappers.log_files import EPISODES

__all__ = ["Run", "runs_in"]

_FIRST = int(StepType.FIRST)
# The files that make a folder a run.
_RECORDING = "recording.json"
_KINDS = f"{EPISODES}, which LogEpisodes writes, or {_RECORDING}, which Record writes"


class Run(NamedTuple):
    """The episodes of a run that have a return.

    Attributes:
        path: The folder.
        columns: An array for each number, such as "step" and "return", with an element
            per episode in the order in which they ended.
    """

    path: Path
    columns: dict[str, Array]

    def column(self, name: str) -> Array:
        """Returns a column; raises with the names there are if there is none."""
        if name not in self.columns:
            raise ValueError(
                f"The run in {str(self.path)!r} has no {name!r}: it has "
                f"{listed(map(repr, self.columns))}.{suggestion(name, self.columns)}"
            )
        return self.columns[name]


def runs_in(path: str | os.PathLike[str]) -> list[Run]:
    """Reads the run in a folder, or all runs in the folders below it.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: There is no run in it, or one that cannot be read.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f'A run is the path of a folder, such as "runs/x", got {describe(path)}.'
        )
    folder = Path(path)
    if folder.name in (EPISODES, _RECORDING):
        folder = folder.parent
    if not folder.exists():
        raise FileNotFoundError(f"There is no folder {str(folder)!r}.")
    runs = [_read(found) for found in _folders(folder)]
    if not runs:
        raise ValueError(
            f"There is no run in {str(folder)!r}: neither it nor a folder in it has "
            f"{_KINDS}."
        )
    with_episodes = [run for run in runs if run.columns["step"].size]
    if not with_episodes:
        raise ValueError(
            f"No episode of the run in {str(folder)!r} has ended yet, so there is "
            "nothing to draw."
        )
    return with_episodes


def _folders(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        if EPISODES in files or _RECORDING in files:
            folders.clear()  # what is below belongs to the run
            yield Path(parent)


def _read(folder: Path) -> Run:
    if (folder / EPISODES).exists():
        return Run(folder, _log(folder / EPISODES))
    return Run(folder, _recording(folder))


def _log(path: Path) -> dict[str, Array]:
    # The last line may be being written.
    header, _, rest = path.read_text("utf-8").rpartition("\n")[0].partition("\n")
    names = header.split(",")
    if not {"episode", "step", "return", "lost"} <= set(names):
        raise ValueError(f"{str(path)!r} is not a log of LogEpisodes.")
    if not rest:
        return {name: np.zeros(0) for name in names}
    # Twice, because neighbours share a comma.
    filled = rest.replace(",,", ",nan,").replace(",,", ",nan,")
    try:
        table = np.loadtxt(io.StringIO(filled), delimiter=",", ndmin=2)
        columns = dict(zip(names, table.T, strict=True))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from error
    whole = columns["lost"] == 0
    return {name: column[whole] for name, column in columns.items()}


def _recording(folder: Path) -> dict[str, Array]:
    recording = Recording(folder, warn=False)
    rewards = [name for name in recording.layout.steps if name.startswith("reward")]
    moves, ends = [], []
    for entry in recording.entries:
        episode = recording.load(entry)
        moves.append(episode.calls[episode.step_types != _FIRST])
        is_whole = entry.kind == "episode" and episode.ended == "last"
        if is_whole and recording.loss_of(episode) is None:
            earned = sum(float(np.sum(episode.column(name))) for name in rewards)
            ends.append((int(episode.calls[-1]), earned, len(episode) - 1))
    ends.sort(key=lambda end: end[0])
    calls, returns, lengths = np.array(ends, float).reshape(-1, 3).T
    # The moves of all rows, up to the call in which the episode ended.
    moved = np.sort(np.concatenate(moves)) if moves else np.zeros(0)
    return {
        "episode": np.arange(1.0, len(ends) + 1),
        "step": np.searchsorted(moved, calls, side="right").astype(float),
        "return": returns,
        "length": lengths,
    }
