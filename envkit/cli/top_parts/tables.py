"""What `envkit top` shows: tables for people, plain data for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from envkit.cli.terminal import Fitting
from envkit.cli.top_parts.looking import PoolView, WorkerView
from envkit.cli.top_parts.pools import FoundPool
from envkit.wording import counted, listed

__all__ = ["list_as_data", "list_as_table", "view_as_data", "view_as_table"]

# A step that has been seen running for so long is worth a word.
_LONG = 1.0
_MEGABYTE = 2**20


def list_as_table(pools: Sequence[FoundPool]) -> RenderableType:
    """Shows which pools are running."""
    table = Table("pid", "program", "environments", "workers", "class", "envkit")
    for pool in pools:
        plate = pool.plate
        table.add_row(
            str(pool.pid),
            # As it is: what looks like markup is a part of the name.
            Text(plate.program),
            Text(f"{plate.envs} × {listed(plate.targets, most=3)}"),
            str(len(plate.blocks)),
            Text(plate.kind),
            Text(plate.envkit),
        )
    return table


def list_as_data(pools: Sequence[FoundPool]) -> list[dict[str, Any]]:
    """Returns which pools are running, as data that JSON can hold."""
    return [
        {
            "pid": pool.pid,
            "program": pool.plate.program,
            "targets": list(pool.plate.targets),
            "environments": pool.plate.envs,
            "rows": pool.plate.rows,
            "workers": len(pool.plate.blocks),
            "class": pool.plate.kind,
            "began": pool.plate.began,
            "envkit": pool.plate.envkit,
        }
        for pool in pools
    ]


def view_as_table(view: PoolView) -> RenderableType:
    """Shows what the workers of a pool do."""
    plate = view.pool.plate
    title = Text.assemble(
        (f"{plate.kind} of {view.pool}", "bold"),
        f": {plate.envs} × {listed(plate.targets, most=3)}",
    )
    table = Table(title=title, title_justify="left", title_style="")
    for heading in (
        "worker", "pid", "rows", "steps/s", "busy", "waiting", "restarts", "PSS", "USS"
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    table.add_column("now")
    for worker in view.workers:
        table.add_row(*_cells(worker), style="red" if worker.pid is None else "")
    return Group(Fitting(table), Text(_summary(view)))


def _cells(worker: WorkerView) -> list[str]:
    first, stop = worker.rows
    memory = worker.memory
    return [
        str(worker.worker),
        "" if worker.pid is None else str(worker.pid),
        str(first) if stop - first == 1 else f"{first}–{stop - 1}",
        f"{worker.steps_per_second:,.0f}",
        f"{worker.busy:.0%}",
        f"{worker.waiting:.0%}",
        str(worker.restarts),
        *(
            ("", "")
            if memory is None
            else (f"{part / _MEGABYTE:,.0f} MB" for part in memory)
        ),
        _doing(worker),
    ]


def _doing(worker: WorkerView) -> str:
    if worker.pid is None:
        return "gone"
    if worker.running is not None and worker.running_for >= _LONG:
        return f"env {worker.running} for {worker.running_for:.0f} s"
    return ""


def _summary(view: PoolView) -> str:
    text = (
        f"{view.steps_per_second:,.0f} steps/s in {view.calls_per_second:,.0f} "
        "calls/s of its program"
    )
    restarts = sum(worker.restarts for worker in view.workers)
    if restarts:
        text += f"; {counted(restarts, 'restart')} so far"
    slowest = view.slowest
    if slowest is not None:
        text += (
            f"\nslowest: env {slowest.env} (worker {slowest.worker}), about "
            f"{1e6 * slowest.seconds_per_step:,.0f} us a step, "
            f"{slowest.times:.1f} times the median environment's"
        )
    return text


def view_as_data(view: PoolView) -> dict[str, Any]:
    """Returns what the workers of a pool do, as data that JSON can hold."""
    (pool,) = list_as_data([view.pool])
    slowest = view.slowest
    return {
        **pool,
        "seconds": view.seconds,
        "steps_per_second": view.steps_per_second,
        "calls_per_second": view.calls_per_second,
        "slowest": None if slowest is None else slowest._asdict(),
        "per_worker": [
            {
                "worker": worker.worker,
                "pid": worker.pid,
                "rows": list(range(*worker.rows)),
                "steps": worker.steps,
                "resets": worker.resets,
                "restarts": worker.restarts,
                "steps_per_second": worker.steps_per_second,
                "busy": worker.busy,
                "waiting": worker.waiting,
                "running": worker.running,
                "running_for": worker.running_for,
                "memory": None if worker.memory is None else worker.memory._asdict(),
            }
            for worker in view.workers
        ],
    }
