"""Draws what the benchmarks measured: curves with their ideal, and bars.

`performance_figures.py` calls this for each benchmark whose page part is written.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt  # asks for a display before that

# The same figures give the same files.
plt.rcParams["svg.hashsalt"] = "envkit"
_OURS, _OTHERS, _IDEAL = "#0b7a75", "#8d99ae", "#444444"
_BOUND = "#dfe3ea"  # what a second CPU could give at most
_LABELS = plt.rcParams["axes.prop_cycle"].by_key()["color"]


def curve(title: str, facts: dict[str, Any], path: Path) -> None:
    """Draws a figure against what grows, with the middle half of the rounds."""
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    points = facts["points"]
    # A logarithm has no place for nothing at all.
    places = [max(point, 0.5 * min(p for p in points if p)) for point in points]
    for index, (name, rounds) in enumerate(facts["figures"].items()):
        colour = _OURS if name == "envkit" else _LABELS[index % len(_LABELS)]
        style = ("--", _IDEAL) if name == "ideal" else ("-", colour)
        middles = [statistics.median(values) for values in rounds]
        axes.plot(places, middles, style[0], color=style[1], label=name, marker=".")
        if name != "ideal":
            quarters = [_quarters(values) for values in rounds]
            axes.fill_between(places, *zip(*quarters, strict=True), alpha=0.15)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(places, [f"{point:,}" for point in points])
    axes.minorticks_off()
    axes.set(title=title, xlabel=facts["axis"], ylabel=facts["unit"])
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    _save(figure, path)


def bars(title: str, speeds: dict[str, float], unit: str, path: Path) -> None:
    """Draws one bar for each contender, the fastest above."""
    names = sorted(speeds, key=speeds.__getitem__)
    figure, axes = plt.subplots(figsize=(6.4, 0.34 * len(names) + 1.1))
    colours = [_OURS if name.startswith("envkit") else _OTHERS for name in names]
    drawn = axes.barh(names, [speeds[name] for name in names], color=colours)
    axes.bar_label(drawn, [f"{speeds[name]:,.0f}" for name in names], padding=4)
    axes.set(title=title, xlabel=unit, xlim=(0, 1.18 * max(speeds.values())))
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def panels(parts: dict[str, dict[str, float]], unit: str, path: Path) -> None:
    """Draws bars of several measurements, below each other, each with its own scale."""
    heights = [len(speeds) for speeds in parts.values()]
    figure, every = plt.subplots(
        len(parts),
        figsize=(7.6, 0.32 * sum(heights) + 1.0 * len(parts)),
        height_ratios=heights,
        layout="constrained",
    )
    for axes, (title, speeds) in zip(every, parts.items(), strict=True):
        names = sorted(speeds, key=speeds.__getitem__)
        values = [speeds[name] for name in names]
        drawn = axes.barh(names, values, color=[_colour(name) for name in names])
        axes.bar_label(drawn, [f"{value:,.0f}" for value in values], padding=4)
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        axes.set(xlim=(0, 1.16 * max(values)), xticks=[])
        axes.tick_params(left=False)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    every[-1].set_xlabel(unit)
    _save(figure, path)


def _colour(name: str) -> str:
    if name.startswith("envkit"):
        return _OURS
    return _BOUND if name.startswith("ideal") else _OTHERS


def _quarters(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
