"""Learning curves, with a spread over seeds: `plot`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from envkit.extend import checked_size, counted, listed
from envkit.monitoring.drawing import check_can_draw, new_figure
from envkit.monitoring.runs import Run, runs_in
from envkit.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "CENTERS",
    "SPREADS",
    "X_AXES",
    "Curve",
    "curves_in",
    "draw",
    "plot",
    "summary_of",
]

X_AXES = {"step": "environment steps", "time": "seconds", "episode": "episodes"}
# Each spread, and its name in the legend.
SPREADS = {
    "std": "± standard deviation",
    "minmax": "minimum to maximum",
    "ci": "95% confidence interval",
    "none": "",
}
CENTERS: dict[str, Any] = {"mean": np.mean, "median": np.median}
# Where a curve has more points than this, it is drawn at so many places.
_MOST_POINTS = 1000
# Student's t for 95%, by degrees of freedom from 1 on.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class Curve(NamedTuple):
    """The runs that are drawn as one curve.

    Attributes:
        label: Its label in the legend.
        runs: Its runs, one for each seed.
    """

    label: str
    runs: list[Run]


class _Line(NamedTuple):
    """The points of a curve, and the band around it."""

    x: Array
    middle: Array
    low: Array
    high: Array


def plot(
    runs: str
    | os.PathLike[str]
    | Sequence[str | os.PathLike[str]]
    | Mapping[str, str | os.PathLike[str] | Sequence[str | os.PathLike[str]]],
    *,
    x: str = "step",
    y: str = "return",
    window: int | None = None,
    center: str = "mean",
    spread: str = "std",
    ax: Axes | None = None,
) -> Figure:
    """Draws learning curves from the logs of `LogEpisodes`, or from recordings.

    Each folder is a curve. If it has no log itself, the logs below it are drawn: those
    whose paths differ only in numbers, such as `seed0` and `seed1`, are the seeds of
    one curve. A dictionary has a label for each curve, and one or several folders,
    which are its seeds.

    First, each run is smoothed: a point is the mean of its last `window` episodes.
    Between two points it is interpolated. A curve of several seeds is the mean of their
    lines, as far as all of them have come, and the band is the spread between them.
    Lost episodes are left out.

    This needs matplotlib (the extra `plot`). It uses neither pyplot nor a display;
    notebooks show the figure, and `figure.savefig("curves.png")` writes it.

    Args:
        runs: A folder, a list of folders, or a dictionary.
        x: "step" for the steps of all rows, "time" for seconds, or "episode".
        y: A column of the log, such as "return", "length" or "return.0".
        window: How many episodes to average; `None` for a tenth of the shortest
            run, at most 100.
        center: "mean" or "median" over seeds.
        spread: The band over seeds: "std" for the standard deviation, "minmax" for the
            lowest and highest, "ci" for a 95% confidence interval of the mean, "none"
            for no band.
        ax: The axes to draw into; `None` for a new figure.

    Returns:
        The figure.

    Example:
        >>> import tempfile, envkit
        >>> from envkit.wrappers import LogEpisodes
        >>> folder = tempfile.mkdtemp()
        >>> for seed in range(3):
        ...     env = envkit.make("CartPole", seed=seed)
        ...     with LogEpisodes(env, f"{folder}/seed{seed}") as env:
        ...         for step in range(500):
        ...             _ = env.step(step % 2)
        >>> figure = envkit.plot(folder, spread="minmax")
        >>> figure.savefig(f"{folder}/curves.png")
    """
    check_can_draw("envkit.plot()")
    return draw(
        curves_in(runs), x=x, y=y, window=window, center=center, spread=spread, ax=ax
    )


def curves_in(runs: Any) -> list[Curve]:
    """Reads the runs of each curve."""
    if isinstance(runs, Mapping):
        curves = [
            Curve(
                str(label), [run for path in _as_list(paths) for run in runs_in(path)]
            )
            for label, paths in runs.items()
        ]
    else:
        curves = [curve for path in _as_list(runs) for curve in _curves_below(path)]
    if not curves:
        raise ValueError('There is nothing to draw: name a folder, such as "runs/x".')
    return curves


def _as_list(paths: Any) -> list[Any]:
    return list(paths) if isinstance(paths, list | tuple) else [paths]


def _curves_below(path: str | os.PathLike[str]) -> list[Curve]:
    """Returns a curve for each group of runs whose paths differ only in numbers."""
    groups: dict[str, list[Run]] = {}
    for run in runs_in(path):
        below = os.path.relpath(run.path, path)
        groups.setdefault(re.sub(r"\d+", "*", below), []).append(run)
    if len(groups) == 1:
        return [Curve(str(path), *groups.values())]
    return [
        Curve(str(Path(path, name)) if len(group) > 1 else str(group[0].path), group)
        for name, group in groups.items()
    ]


def draw(
    curves: Sequence[Curve],
    *,
    x: str = "step",
    y: str = "return",
    window: int | None = None,
    center: str = "mean",
    spread: str = "std",
    ax: Axes | None = None,
) -> Figure:
    """Draws curves; the arguments are those of `plot`."""
    _check_choice("x", x, X_AXES)
    _check_choice("center", center, CENTERS)
    _check_choice("spread", spread, SPREADS)
    if window is None:
        shortest = min(run.column(y).size for curve in curves for run in curve.runs)
        window = max(1, min(100, shortest // 10))
    window = checked_size("window", window)
    axes = new_figure(7, 4).subplots() if ax is None else ax
    for curve in curves:
        seeds = f" ({len(curve.runs)} runs)" if len(curve.runs) > 1 else ""
        line = _line(curve.runs, x, y, window, center, spread)
        (drawn,) = axes.plot(
            line.x,
            line.middle,
            marker="o" if line.x.size == 1 else None,
            label=f"{curve.label}{seeds}",
        )
        if spread != "none" and len(curve.runs) > 1:
            axes.fill_between(
                line.x, line.low, line.high, color=drawn.get_color(), alpha=0.2, lw=0
            )
    smoothed = f" (mean of {window} episodes)" if window > 1 else ""
    axes.set(xlabel=X_AXES[x], ylabel=f"{y.replace('_', ' ')}{smoothed}")
    if x != "time":  # seconds may have decimals
        axes.xaxis.set_major_formatter("{x:,.0f}")
    title = None
    if any(len(curve.runs) > 1 for curve in curves):
        title = f"{center} of runs{', ' * (spread != 'none')}{SPREADS[spread]}"
    axes.legend(title=title)
    return axes.figure


def _check_choice(name: str, choice: Any, choices: Any) -> None:
    if choice not in choices:
        raise ValueError(
            f"{name} must be one of {listed(map(repr, choices))}, got {choice!r:.80}."
        )


def _line(
    runs: Sequence[Run], x: str, y: str, window: int, center: str, spread: str
) -> _Line:
    """Returns the points of a curve over all of its runs."""
    lines = [_smoothed(*_points(run, x, y), window) for run in runs]
    begin = max(places[0] for places, _ in lines)
    # Where one run has no more data, the others cannot be compared with it.
    end = max(begin, min(places[-1] for places, _ in lines))
    at = np.unique(np.concatenate([places for places, _ in lines]))
    at = at[(begin <= at) & (at <= end)]
    if at.size > _MOST_POINTS:
        at = np.linspace(begin, end, _MOST_POINTS)
    values = np.array([np.interp(at, *line) for line in lines])
    middle = CENTERS[center](values, axis=0)
    return _Line(at, middle, *_band(values, middle, spread))


def _points(run: Run, x: str, y: str) -> tuple[Array, Array]:
    """Returns the episodes of a run that have a number."""
    places, values = run.column(x), run.column(y)
    has_number = np.isfinite(values)
    if not has_number.any():
        raise ValueError(f"The run in {str(run.path)!r} has no number for {y!r}.")
    return places[has_number], values[has_number]


def _smoothed(places: Array, values: Array, window: int) -> tuple[Array, Array]:
    """Returns the mean of the last episodes at each place where one has ended.

    Example:
        >>> _smoothed(np.array([1, 2, 2]), np.array([1.0, 3.0, 8.0]), 2)
        (array([1, 2]), array([1. , 5.5]))
    """
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, values.size + 1)
    begins = np.maximum(ends - window, 0)
    means = (sums[ends] - sums[begins]) / (ends - begins)
    # Of several episodes that ended in one step, the last one's mean has them all.
    is_last = np.append(np.diff(places) > 0, True)
    return places[is_last], means[is_last]


def _band(values: Array, middle: Array, spread: str) -> tuple[Array, Array]:
    """Returns the lower and upper end of the band over the runs."""
    if spread == "minmax":
        return values.min(axis=0), values.max(axis=0)
    seeds = len(values)
    if seeds == 1 or spread == "none":
        return middle, middle
    width = values.std(axis=0, ddof=1)
    if spread == "ci":
        # About the mean, even if the curve is the median.
        middle = values.mean(axis=0)
        width = width * _student(seeds - 1) / math.sqrt(seeds)
    return middle - width, middle + width


def _student(freedom: int) -> float:
    """Returns Student's t for a 95% interval.

    Example:
        >>> _student(2), round(_student(30), 3)
        (4.303, 2.042)
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = 1.959964
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    )


def summary_of(curve: Curve) -> str:
    """Describes a curve in a line: its runs, episodes and steps."""
    episodes = sum(run.columns["episode"].size for run in curve.runs)
    steps = min(int(run.columns["step"][-1]) for run in curve.runs)
    runs = counted(len(curve.runs), "run")
    return f"{curve.label}: {runs}, {counted(episodes, 'episode')}, to step {steps:,}"
