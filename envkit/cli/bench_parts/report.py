"""What `envkit bench` shows: a table for people, plain data for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from envkit.cli.bench_parts.measuring import Figures, Measured
from envkit.cli.bench_parts.peer_runs import PeerRun
from envkit.parallel.cpus import available_cpus
from envkit.provenance import envkit_version
from envkit.wording import counted

__all__ = [
    "about_as_fast",
    "as_data",
    "as_table",
    "best_of",
    "failures",
    "machine",
    "title_of",
    "whole_title_of",
]

_MEGABYTE = 2**20
_NEAR = 0.1


def best_of(tries: Sequence[Measured]) -> Measured | None:
    """Returns the fastest; `None` if nothing could be tried."""
    found = [tried for tried in tries if tried.figures is not None]
    return max(
        found,
        key=lambda tried: tried.figures.speed if tried.figures else 0.0,
        default=None,
    )


def about_as_fast(tries: Sequence[Measured]) -> list[Measured]:
    """Returns those that are so near the best that another day may turn them round."""
    best = best_of(tries)
    if best is None or best.figures is None:
        return []
    bar = best.figures.speed * (1 - _NEAR)
    return [
        tried
        for tried in tries
        if tried is not best and tried.figures and tried.figures.speed >= bar
    ]


def title_of(tried: Measured) -> str:
    """Returns what a way to step environments is called."""
    backend = tried.candidate.backend
    return "its own batch" if backend == "batch" else backend


def whole_title_of(tried: Measured) -> str:
    """Returns what a way to step environments is called, with its workers."""
    workers, title = tried.candidate.workers, title_of(tried)
    if workers is None or title == "inline":
        return title
    return f"{title} with {counted(workers, 'worker')}"


def as_table(tries: Sequence[Measured], peers: Sequence[PeerRun]) -> Table:
    """Shows the figures, the best marked."""
    table = Table()
    table.add_column("")
    for heading in (
        "workers", "steps/s", "rounds within", "median", "p99", "in env", "transport",
        "PSS each", "USS each",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    best = best_of(tries)
    for tried in tries:
        workers = tried.candidate.workers
        title = title_of(tried)
        if tried.figures is None:
            table.add_row(title, _text(workers), "failed", style="red")
            continue
        table.add_row(
            f"★ {title}" if tried is best else title,
            _text(workers),
            *_speeds(tried.figures),
            *_shares(tried.in_env),
            *_memory(tried),
            style="bold green" if tried is best else "",
        )
    if peers:
        table.add_section()
    for run in peers:
        if run.figures is None:
            table.add_row(run.title, "", "–", style="dim")
        else:
            table.add_row(run.title, "", *_speeds(run.figures))
    return table


def failures(tries: Sequence[Measured], peers: Sequence[PeerRun]) -> list[str]:
    """Returns a line for each that has no figures."""
    lines = [
        f"{whole_title_of(tried)}: {tried.error}" for tried in tries if tried.error
    ]
    return lines + [f"{run.title}: {run.error}" for run in peers if run.error]


def _text(workers: int | None) -> str:
    return "" if workers is None else str(workers)


def _speeds(figures: Figures) -> tuple[str, ...]:
    return (
        f"{figures.speed:,.0f}",
        f"{figures.spread:.0%}",
        _time(figures.median),
        _time(figures.p99),
    )


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _shares(in_env: float | None) -> tuple[str, str]:
    return ("", "") if in_env is None else (f"{in_env:.0%}", f"{1 - in_env:.0%}")


def _memory(tried: Measured) -> tuple[str, ...]:
    if tried.memory is None:
        return ("", "")
    return tuple(f"{part / _MEGABYTE:,.0f} MB" for part in tried.memory)


def machine() -> dict[str, Any]:
    """Returns where the figures are from."""
    return {
        "envkit": envkit_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": available_cpus(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def as_data(tries: Sequence[Measured], peers: Sequence[PeerRun]) -> dict[str, Any]:
    """Returns the figures as data that JSON can hold."""
    best = best_of(tries)
    return {
        "tries": [
            {
                "backend": tried.candidate.backend,
                "workers": tried.candidate.workers,
                "call": tried.candidate.call(),
                "best": tried is best,
                "figures": None if tried.figures is None else tried.figures.as_data(),
                "in_env": tried.in_env,
                "transport": None if tried.in_env is None else 1 - tried.in_env,
                "memory": None if tried.memory is None else tried.memory._asdict(),
                "error": tried.error,
            }
            for tried in tries
        ],
        "best": None if best is None else best.candidate.call(),
        "peers": [
            {
                "peer": run.title,
                "figures": None if run.figures is None else run.figures.as_data(),
                "error": run.error,
            }
            for run in peers
        ],
    }
