"""Writes measured figures into the tutorial's end and into docs/more_machines.md.

    python tools/choosing_figures.py

The text between a page's pair of comments is replaced: in docs/tutorial.md by the
medians of the ways to run environments, in docs/more_machines.md by those of links and
of Ray.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"
_CARTPOLES = "one step of 64 environments, 2 workers"
_PICTURES = "64 pictures of (210, 160, 3), 2 workers"
_STRAGGLERS = "16 environments, 5% of the steps 50 times slower"
_ALONE = "one environment that does nothing"
_BATCH = "CartPole, a batch of 64"
_POOL, _ACTORS, _RLLIB = "pool on Ray", "two actors, a call a step", "RLlib's runners"
_ACTS, _BATCHES = ", with a network", ", two batches"
_STEP, _SAMPLE = ", a step a call", ", 50 steps a call"
_LOOPS, _LOOPS_OF_BATCHES = (
    "two loops over environments",
    "two loops over a batch",
)

# What RLlib's runners do, beside which pool, and what two workers could reach at most:
# each as it is called in the figures, and in words.
RUNNERS = [
    (
        ("random actions, a step a call", f"{_RLLIB}{_STEP}"),
        ("a pool that is given its actions", _POOL),
        _LOOPS,
    ),
    (
        ("random actions, samples of 50 steps", f"{_RLLIB}{_SAMPLE}"),
        ("the same", _POOL),
        _LOOPS,
    ),
    (
        ("their network, a step a call", f"{_RLLIB}, with their network{_STEP}"),
        ("a pool whose caller has such a network", f"{_POOL}{_ACTS}"),
        "",
    ),
    (
        (
            "their network, samples of 50 steps",
            f"{_RLLIB}, with their network{_SAMPLE}",
        ),
        ("the same", f"{_POOL}{_ACTS}"),
        "",
    ),
    (
        (
            "Gymnasium's batch of 32, samples of 50 steps",
            f"{_RLLIB}{_BATCHES}{_SAMPLE}",
        ),
        ("a pool of two batches", f"{_POOL}{_BATCHES}"),
        _LOOPS_OF_BATCHES,
    ),
]

# What is stepped, how, and where that was measured: file, table, contender.
CHOICES = [
    (
        "64 of Gymnasium's CartPoles, a batch",
        "one after the other, in this process",
        ("parallel_step", _CARTPOLES, "a loop over envkit's"),
    ),
    ("", "in two worker processes", ("parallel_step", _CARTPOLES, "envkit")),
    (
        "64 rows of the built-in CartPole, a batch",
        "one object in this process",
        ("tf_environment", _BATCH, "without TensorFlow"),
    ),
    (
        "64 pictures of 210 × 160 × 3 bytes, a batch",
        "copies",
        ("images", _PICTURES, "envkit"),
    ),
    ("", "views, `zero_copy=True`", ("images", _PICTURES, "envkit, zero_copy")),
    (
        "16 environments, now and then a slow step, a transition",
        "in lockstep",
        ("stragglers", _STRAGGLERS, "envkit, in lockstep"),
    ),
    ("", "rows that are ready, `recv(4)`", ("stragglers", _STRAGGLERS, "envkit, recv")),
    (
        "an environment that does nothing, from TensorFlow",
        "eagerly",
        ("tf_environment", _ALONE, "eager"),
    ),
    ("", "eagerly, `isolation=True`", ("tf_environment", _ALONE, "eager, isolation")),
    ("", "in a loop of a graph", ("tf_environment", _ALONE, "in a loop")),
]


def choices(results: Path = RESULTS) -> str:
    """Returns the table of what can be chosen between."""
    lines = ["| what a step is of | how | median us |", "| :--- | :--- | ---: |"]
    machines = set()
    for what, how, (file, table, contender) in CHOICES:
        result = json.loads((results / f"{file}.json").read_text("utf-8"))
        values = result["tables"][table]["figures"][contender]
        machine = result["machine"]
        machines.add((machine["cpus"], machine["python"]))
        lines.append(f"| {what} | {how} | {_number(statistics.median(values))} |")
    source = "; ".join(f"{cpus} CPUs, Python {python}" for cpus, python in machines)
    return "\n".join([*lines, "", f"Measured with {source}."])


def links(results: Path = RESULTS) -> str:
    """Returns the table of what steps over links take."""
    found = _tables("links", results)
    kinds = ("process", "linked", "bare socket")
    lines = [
        f"| median us of a step of | {' | '.join(kinds)} |",
        "| :--- |" + " ---: |" * 3,
    ]
    for title, table in found.items():
        if "linked" in table["figures"]:
            times = [_median(table, kind) for kind in kinds]
            lines.append(f"| {title} | {' | '.join(times)} |")
    return "\n".join(lines)


def places(results: Path = RESULTS) -> str:
    """Returns the table of where the time of a step over links goes."""
    lines = ["| of a step over links of such rows | median us |", "| :--- | ---: |"]
    for title, table in _tables("links", results).items():
        if title.startswith("where the time"):
            lines += [
                f"| {part} | {_median(table, part)} |" for part in table["figures"]
            ]
    return "\n".join(lines)


def pools_on_ray(results: Path = RESULTS) -> str:
    """Returns the table of a pool on Ray beside actors that are called."""
    kinds = (_POOL, _ACTORS)
    lines = [
        f"| median us of a step of | {' | '.join(kinds)} |",
        "| :--- | ---: | ---: |",
    ]
    for title, table in _tables("ray_pools", results).items():
        if _ACTORS in table["figures"]:
            times = [_median(table, kind) for kind in kinds]
            lines.append(f"| {title} | {' | '.join(times)} |")
    return "\n".join(lines)


def env_runners(results: Path = RESULTS) -> str:
    """Returns the table of a pool on Ray beside RLlib's environment runners."""
    lines = [
        "| what RLlib's runners do | beside | the pool is as fast | two bare loops are "
        "as fast |",
        "| :--- | :--- | ---: | ---: |",
    ]
    tables = _tables("ray_pools", results)
    (table,) = (t for name, t in tables.items() if "CartPoles, 2 workers" in name)
    for (what, theirs), (beside, ours), most in RUNNERS:
        times = [_times(table, theirs, name) if name else "" for name in (ours, most)]
        lines.append(f"| {what} | {beside} | {' | '.join(times)} |")
    return "\n".join(lines)


def ray_times(results: Path = RESULTS) -> str:
    """Returns the table of how long a pool on Ray takes to start and to go on."""
    path = results / "ray_pools.json"
    seconds = json.loads(path.read_text("utf-8"))["facts"]["seconds to start Ray"]
    lines = ["| | seconds |", "| :--- | ---: |", f"| Ray itself starts | {seconds} |"]
    (table,) = (
        t for t in _tables("ray_pools", results).values() if t["unit"] == "seconds"
    )
    for name, words in (
        ("start", "a pool on it starts"),
        ("a worker is killed", "it goes on after a worker was killed"),
        ("an actor is killed", "it goes on after an actor was killed"),
    ):
        lines.append(f"| {words} | {_median(table, name)} |")
    return "\n".join(lines)


def _tables(name: str, results: Path) -> dict[str, Any]:
    found = json.loads((results / f"{name}.json").read_text("utf-8"))
    tables: dict[str, Any] = found["tables"]
    return tables


def _median(table: dict[str, Any], name: str) -> str:
    return _number(statistics.median(table["figures"][name]))


def _times(table: dict[str, Any], slow: str, quick: str) -> str:
    figures = table["figures"]
    if not figures[slow] or not figures[quick]:
        return "not measured"
    pairs = zip(figures[slow], figures[quick], strict=True)
    return f"{_number(statistics.median(over / under for over, under in pairs))} times"


def fill(page: Path, name: str, text: str) -> None:
    """Replaces what stands between the page's comments of this name."""
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.S)
    old = page.read_text("utf-8")
    page.write_text(place.sub(lambda m: f"{m[1]}\n{text}\n\n{m[2]}", old), "utf-8")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# The parts of docs/more_machines.md.
MACHINES = {
    "links": links,
    "places": places,
    "pools on Ray": pools_on_ray,
    "env runners": env_runners,
    "Ray's seconds": ray_times,
}


def main() -> None:
    fill(ROOT / "docs/tutorial.md", "choices", choices())
    machines = ROOT / "docs/more_machines.md"
    for name, table in MACHINES.items():
        fill(machines, name, table())


if __name__ == "__main__":
    main()
