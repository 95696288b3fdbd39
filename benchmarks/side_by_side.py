"""Contenders that take turns, and a report of how they compare.

Every contender has its turn in every round, so that a machine that is busy for a moment
is unfair to nobody; a ratio is that of each round by itself, so that what slows both
sides down cancels out.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
# By the module that is imported.
PACKAGES = {
    "numpy": "numpy", "numba": "numba", "gymnasium": "gymnasium",
    "stable_baselines3": "stable-baselines3", "pufferlib": "pufferlib",
    "envpool": "envpool", "torch": "torch", "torchrl": "torchrl", "ale_py": "ale-py",
    "ray": "ray", "rtgym": "rtgym", "openenv": "openenv", "dm_env_rpc": "dm-env-rpc",
    "asyncvnc": "asyncvnc", "vncdotool": "vncdotool", "tf_agents": "tf-agents",
    "tensorflow": "tensorflow",
}  # fmt: skip

# A figure for each round; none where the package is not installed.
Figures = dict[str, list[float]]


@dataclass
class Contender:
    """Something to step, and how to end it.

    Attributes:
        step: Steps all environments once.
        close: Ends it.
        measure: Returns the microseconds of a step, given the seconds to take for
            that; for whoever is not stepped from here.
        spinning: Processes of it that wait busily; they are stopped between its
            turns, for they would take the others' CPUs.
    """

    step: Callable[[], object] = lambda: None
    close: Callable[[], object] = lambda: None
    spinning: Sequence[int] = ()
    measure: Callable[[float], float] | None = None

    def take_turn(self, seconds: float) -> float:
        """Returns the microseconds of a step."""
        _send(signal.SIGCONT, self.spinning)
        figure = (
            self.measure(seconds) if self.measure else microseconds(self.step, seconds)
        )
        _send(signal.SIGSTOP, self.spinning)
        return figure


@contextlib.contextmanager
def opened(
    makers: Mapping[str, Callable[[], Contender | None] | None],
) -> Iterator[dict[str, Contender | None]]:
    """Opens the contenders one after the other, and closes them all at the end."""
    with contextlib.ExitStack() as stack:
        contenders: dict[str, Contender | None] = {}
        # Without showing progress: some fork, so there are to be no threads.
        for name, make in makers.items():
            contenders[name] = contender = make() if make else None
            if contender:
                # What was stopped cannot end; so it goes on first.
                stack.callback(contender.close)
                stack.callback(_send, signal.SIGCONT, contender.spinning)
                _send(signal.SIGSTOP, contender.spinning)
        yield contenders


def take_turns(
    contenders: Mapping[str, Contender | None], rounds: int, seconds: float
) -> Figures:
    """Returns microseconds per step, by contender and round; the first does not count.

    Args:
        contenders: Who takes part; `None` is a package that is not installed.
        rounds: How many turns everyone has.
        seconds: How long a turn lasts.
    """
    figures: Figures = {name: [] for name in contenders}
    shown = sys.stdout.isatty()
    for number in track(
        range(rounds + 1), "measuring", transient=True, disable=not shown
    ):
        for name, contender in contenders.items():
            if contender is None:
                continue
            figure = contender.take_turn(seconds)
            if number:
                figures[name].append(figure)
    return figures


def microseconds(step: Callable[[], object], seconds: float) -> float:
    """Steps for that long, after steps that do not count; returns time per step."""
    # A waiter that sleeps between looks takes a moment to be awake.
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds / 10 or calls == 0:
        step()
        calls += 1
    calls, start, elapsed = 0, time.perf_counter(), 0.0
    while elapsed < seconds or calls == 0:
        step()
        calls += 1
        elapsed = time.perf_counter() - start
    return 1e6 * elapsed / calls


def _send(number: signal.Signals, pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def best(figures: Figures, names: Sequence[str]) -> str:
    """Returns the one of these names that was fastest, if it was measured at all."""
    return min(names, key=lambda name: np.median(figures[name] or [np.inf]))


def options(
    description: str, rounds: int, seconds: float, **sizes: int
) -> argparse.ArgumentParser:
    """Returns a parser for what every script can be told."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=float, default=seconds, help="of one turn")
    parser.add_argument("--json", type=Path, help="where the figures go")
    for name, size in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size)
    return parser


@dataclass
class Report:
    """Collects tables, curves and ratios, prints them, writes them to a file.

    Attributes:
        name: The script's, and so the file's.
        imported_elsewhere: Modules that are imported by processes that it starts alone.
    """

    name: str
    imported_elsewhere: Sequence[str] = ()
    console: Console = field(default_factory=Console)
    tables: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)
    ratios: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def table(self, title: str, figures: Figures, unit: str = "us per step") -> None:
        """Prints the median and the middle half of each contender."""
        self.tables[title] = {"unit": unit, "figures": figures}
        table = Table(title=title)
        table.add_column("")
        for heading in (f"median {unit}", "middle half"):
            table.add_column(heading, justify="right")
        for name, values in figures.items():
            if values:
                low, median, high = np.percentile(values, [25, 50, 75])
                table.add_row(
                    name, _number(median), f"{_number(low)} … {_number(high)}"
                )
            else:
                table.add_row(name, "not measured", "", style="dim")
        self.console.print(table)

    def ratio(
        self,
        claim: str,
        over: Sequence[float],
        under: Sequence[float],
        *,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Divides round by round, and compares the median with the bar."""
        bar = {"at_least": at_least, "at_most": at_most}
        if not (over and under):
            self.ratios.append({"claim": claim, **bar, "ratio": None, "reached": None})
            return
        low, median, high = np.percentile(np.divide(over, under), [25, 50, 75])
        reached = (at_least is None or median >= at_least) and (
            at_most is None or median <= at_most
        )
        self.ratios.append(
            {
                "claim": claim,
                **bar,
                "ratio": median,
                "middle_half": [low, high],
                "reached": bool(reached),
            }
        )

    def curve(
        self,
        title: str,
        axis: str,
        unit: str,
        points: Sequence[float],
        figures: Mapping[str, Sequence[Sequence[float]]],
    ) -> None:
        """Prints medians by point, of each contender, and keeps them for a picture.

        Args:
            title: What is measured.
            axis: What the points are.
            unit: What the figures are.
            points: Where it was measured.
            figures: By contender and point: a figure for each round.
        """
        self.curves[title] = {
            "axis": axis,
            "unit": unit,
            "points": list(points),
            "figures": {name: list(values) for name, values in figures.items()},
        }
        table = Table(title=title)
        table.add_column(axis)
        for name in figures:
            table.add_column(f"{name}: {unit}", justify="right")
        for index, point in enumerate(points):
            medians = [np.median(values[index]) for values in figures.values()]
            table.add_row(f"{point:,}", *map(_number, medians))
        self.console.print(table)

    def fact(self, name: str, value: Any) -> None:
        """Prints and keeps something that is no ratio."""
        self.facts[name] = value
        self.console.print(f"{name}: {value}")

    def finish(self, path: Path | None) -> None:
        """Prints the ratios, and writes everything to the file."""
        table = Table(title=f"{self.name}: asked and reached")
        table.add_column("")
        for heading in ("measured", "middle half", "bar", "reached"):
            table.add_column(heading, justify="right")
        for row in self.ratios:
            table.add_row(row["claim"], *_cells(row))
        self.console.print(table)
        path = path or RESULTS / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "benchmark": self.name,
            "command": f"python benchmarks/{self.name}.py",
            "arguments": _arguments(),
            "date": datetime.date.today().isoformat(),
            "machine": _machine(self.imported_elsewhere),
            "tables": self.tables,
            "curves": self.curves,
            "ratios": self.ratios,
            "facts": self.facts,
        }
        path.write_text(json.dumps(result, indent=1) + "\n")
        self.console.print(f"written to {path}", soft_wrap=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    bar = (
        f"≥ {row['at_least']}"
        if row["at_least"] is not None
        else f"≤ {row['at_most']}"
        if row["at_most"] is not None
        else ""
    )
    if row["ratio"] is None:
        return "not measured", "", bar, ""
    low, high = row["middle_half"]
    mark = ("[green]yes" if row["reached"] else "[bold red]no") if bar else ""
    return f"{row['ratio']:.3g}", f"{low:.3g} … {high:.3g}", bar, mark


def _arguments() -> list[str]:
    """Returns what was asked for, but for paths, which are those of this machine."""
    return [word for word in sys.argv[1:] if os.sep not in word and word != "--json"]


def _machine(imported_elsewhere: Sequence[str]) -> dict[str, Any]:
    versions = {}
    for module, package in PACKAGES.items():
        if module not in sys.modules and module not in imported_elsewhere:
            continue
        # The builds of TensorFlow have names of their own.
        for name in (package, f"{package}-cpu"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
                break
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "packages": versions,
    }
