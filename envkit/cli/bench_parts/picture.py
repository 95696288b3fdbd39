"""The figures as a picture, drawn by matplotlib."""

from __future__ import annotations

import importlib.util
import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envkit.cli.bench_parts.measuring import Figures, Measured
from envkit.cli.bench_parts.peer_runs import PeerRun
from envkit.cli.bench_parts.report import best_of, whole_title_of
from envkit.errors import MissingDependencyError

__all__ = ["check_can_draw", "draw"]

_BEST, _OURS, _THEIRS = "#2f7d4f", "#8fb8a0", "#b9b9b9"


def check_can_draw(path: str) -> None:
    """Raises if the picture could not be drawn or stored, before anything is measured.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        ValueError: It draws no files that end like this one.
        OSError: There is no such directory, or nothing can be written to it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError.needed_by(
            "--plot", package="matplotlib", extra="plot"
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kinds = FigureCanvasAgg.get_supported_filetypes()
    kind = Path(path).suffix[1:]
    if kind not in kinds:
        raise ValueError(
            f"--plot {path}: the file's name says what is drawn, and has to end in one "
            f"of {', '.join(f'.{known}' for known in sorted(kinds))}."
        )
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"--plot {path}: there is no such directory.")
    if Path(path).is_dir():
        raise IsADirectoryError(f"--plot {path}: that is a directory.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(
            f"--plot {path}: nothing can be written there: {error.strerror}."
        ) from error


def draw(
    path: str, title: str, tries: Sequence[Measured], peers: Sequence[PeerRun]
) -> None:
    """Draws how many steps a second each way makes, with the spread of its rounds."""
    from matplotlib.figure import Figure

    bars = _bars(tries, peers)
    figure = Figure(figsize=(8, 1.2 + 0.32 * len(bars)), layout="constrained")
    axes = figure.subplots()
    for place, (name, figures, colour) in enumerate(bars):
        speed = figures.speed
        around = [[speed - min(figures.speeds)], [max(figures.speeds) - speed]]
        axes.barh(place, speed, color=colour, xerr=around, ecolor="#404040", capsize=2)
        axes.annotate(
            f" {speed:,.0f}",
            (max(figures.speeds), place),
            va="center",
            fontsize="small",
        )
        axes.annotate(name, (0, place), xytext=(-4, 0), textcoords="offset points",
                      ha="right", va="center", fontsize="small")  # fmt: skip
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    axes.set_title(title)
    axes.set_xlabel("steps per second; the median round, and the range of all")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    _store(figure, path)


def _bars(
    tries: Sequence[Measured], peers: Sequence[PeerRun]
) -> list[tuple[str, Figures, str]]:
    best = best_of(tries)
    bars = []
    for tried in tries:
        if tried.figures is not None:
            colour = _BEST if tried is best else _OURS
            bars.append((whole_title_of(tried), tried.figures, colour))
    bars += [(run.title, run.figures, _THEIRS) for run in peers if run.figures]
    return bars


def _store(figure: Any, path: str) -> None:
    """Writes the picture as a whole or not at all."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix[1:], dpi=150)
    part = Path(f"{path}.part")
    try:
        part.write_bytes(drawn.getvalue())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
