r"""Writes measured figures into RESULTS.md and the pages that quote them.

    make bench
    python tools/performance_figures.py benchmarks/results benchmarks/RESULTS.md \\
        docs/performance.md README.md

RESULTS.md is written whole: a section for each result, with the docstring of its
benchmark. In other pages, the text between a pair of comments is replaced:

    <!-- table: startup: private memory of a worker -->
    <!-- end of figures -->

`table: NAME: TITLE` quotes one table, and `picture: speed` draws two environments in
all libraries, with envkit's speed over each of them.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime
import json
import os
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import performance_pictures as pictures

ROOT = Path(__file__).resolve().parent.parent
_PLACE = re.compile(
    r"(<!-- (table|picture): (.+?) -->\n).*?(<!-- end of figures -->)", re.S
)
_FASTER = "as fast as "
_PICTURES = Path("docs/pictures")
# Tables that are drawn as bars: those of one step of many environments.
_BARS = re.compile(r"one step of (\d+) environments, ")

# The order of RESULTS.md. Results that no chapter names come last.
_CHAPTERS = {
    "Batches in worker processes": [
        "parallel_step",
        "tf_agents",
        "scaling",
        "games",
        "efficiency",
        "images",
        "stragglers",
        "resets",
    ],
    "Starting, importing, recovering": [
        "startup",
        "import_cost",
        "recovery",
        "losses",
    ],
    "One environment, whole batches, wrappers": [
        "overhead",
        "batched_envs",
        "wrappers",
    ],
    "Other libraries": ["adapters", "native_vectors", "tf_environment", "torch_steps"],
    "Real time and desktops": ["realtime", "desktop"],
    "Several machines and networks": ["links", "ray_pools", "serving", "protocols"],
    "Sessions": ["sessions"],
    "A million steps of trouble": ["soak", "soak_replay"],
}
_TITLES = {"tf_agents": "parallel_step, beside TF-Agents"}
_TEXTS = {
    "tf_agents": (
        "The same benchmark in a virtual environment of its own, since TF-Agents needs "
        "an older TensorFlow and NumPy."
    )
}
_SCRIPTS = {
    "soak": "tests/soak/run.py",
    "soak_replay": "tests/soak/replays.py",
}


def write_results(results: Path, page: Path) -> None:
    """Writes all results to one page."""
    known = {
        path.stem: json.loads(path.read_text("utf-8"))
        for path in results.glob("*.json")
    }
    named = {name for names in _CHAPTERS.values() for name in names}
    chapters = {**_CHAPTERS, "Others": sorted(known.keys() - named)}
    parts = [
        "# Results of the benchmarks\n",
        "`make bench` measures and writes this page; "
        "[Performance](../docs/performance.md) explains the method. Tables have the "
        "median of the rounds and their middle half.\n",
    ]
    for chapter, names in chapters.items():
        measured = [name for name in names if name in known]
        if measured:
            parts.append(f"## {chapter}\n")
        for name in measured:
            parts += [f"### {_TITLES.get(name, name)}\n", _text_of(name)]
            parts.append(_figures(name, known[name], page))
    page.write_text("\n".join(part for part in parts if part), "utf-8")


def _text_of(name: str) -> str:
    """Returns the docstring of a benchmark, without the command that runs it."""
    if name in _TEXTS:
        return _TEXTS[name] + "\n"
    path = ROOT / _SCRIPTS.get(name, f"benchmarks/{name}.py")
    if not path.exists():
        return ""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraphs = [part for part in text.split("\n\n") if not part.startswith("    ")]
    return "\n\n".join(paragraphs) + "\n"


def _figures(name: str, result: dict[str, Any], page: Path) -> str:
    if "tables" in result:
        return _report(name, result, page)
    return _soak(result) if "troubles" in result else _soak_replay(result)


def fill(results: Path, page: Path) -> None:
    """Replaces every part of the page that has a result."""

    def figures(match: re.Match[str]) -> str:
        begin, kind, what, end = match.groups()
        if kind == "picture":
            text = _speed(results, page)
        else:
            text = _quoted(results, *what.split(": ", 1))
        if not text:
            print(f"{what} was not measured; its part of {page} stays")
            return match[0]
        return f"{begin}\n{text}\n{end}"

    page.write_text(_PLACE.sub(figures, page.read_text("utf-8")), "utf-8")


def _quoted(results: Path, name: str, title: str) -> str:
    """Returns one table of a result; "" where there is none."""
    path = results / f"{name}.json"
    result = json.loads(path.read_text("utf-8")) if path.exists() else {"tables": {}}
    if title not in result["tables"]:
        return ""
    return f"{_medians(title, result['tables'][title])}\n{_source(result)}"


def _medians(title: str, table: dict[str, Any]) -> str:
    rows = [
        (name, _number(statistics.median(values)))
        for name, values in table["figures"].items()
        if values
    ]
    return _table((title, f"median {table['unit']}"), rows)


def _report(name: str, result: dict[str, Any], page: Path) -> str:
    parts = []
    for title, table in result["tables"].items():
        rows = [
            (name, _number(statistics.median(values)), _middle_half(values))
            for name, values in table["figures"].items()
            if values
        ]
        parts.append(_table((title, f"median {table['unit']}", "middle half"), rows))
        if missing := [name for name, values in table["figures"].items() if not values]:
            parts.append(f"Not measured here: {'; '.join(missing)}.\n")
        if found := _BARS.match(title):
            parts.append(_bars(name, result, title, int(found[1]), page))
    for index, (title, facts) in enumerate(result.get("curves", {}).items()):
        path = _PICTURES / f"{name}_{index + 1}.svg"
        pictures.curve(title, facts, path)
        parts.append(_picture(title, path, page))
        parts.append(_curve_table(facts))
    ratios = [
        (
            row["claim"],
            _number(row["ratio"]),
            " … ".join(map(_number, row["middle_half"])),
        )
        for row in result["ratios"]
        if row["ratio"] is not None
    ]
    if ratios:
        parts.append(_table(("ratio", "median", "middle half"), ratios))
    if result["facts"]:
        facts = [(name, str(value)) for name, value in result["facts"].items()]
        parts.append(_table(("", ""), facts))
    parts.append(_source(result))
    return "\n".join(parts)


@dataclasses.dataclass(frozen=True)
class _Environment:
    """One of the environments in the picture of the README.

    Attributes:
        result: The benchmark that steps it.
        title: How the title of its table begins.
        name: What it is called.
        rows: How many of them are stepped.
        ending: How the claims of its ratios end.
    """

    result: str
    title: str
    name: str
    rows: int
    ending: str = ""


# A step of the one takes a few microseconds, of the other hundreds.
_SPEED = (
    _Environment("parallel_step", "one step of 64 env", "Gymnasium's CartPole-v1", 64),
    _Environment(
        "games", "one step of 16 of", "Atari's Pong-v5", 16, ", 16 of Pong-v5"
    ),
)
_ALONE = "a loop over Gymnasium's"
# What needs other libraries than the rest runs with those, so of it there is the ratio.
_APART = {"parallel_step": ("tf_agents", "TF-Agents ParallelPyEnvironment")}
# Beside copies of arrays there is no room for a second bar of ours.
_NOT_DRAWN = {"envkit, zero_copy", "a loop over envkit's"}


def _speed(results: Path, page: Path) -> str:
    """Draws two environments in all libraries; returns the picture and the ratios."""
    panels, ratios, sources = {}, [], []
    for each in _SPEED:
        path = results / f"{each.result}.json"
        if not path.exists():
            return ""
        result = json.loads(path.read_text("utf-8"))
        sources.append(_source(result))
        (figures,) = (
            table["figures"]
            for title, table in result["tables"].items()
            if title.startswith(each.title)
        )
        times = {
            name: statistics.median(values)
            for name, values in figures.items()
            if values and name not in _NOT_DRAWN
        }
        title = (
            f"{each.rows} of {each.name}, {times[_ALONE] / each.rows:,.0f} us a step"
        )
        speeds = {name: each.rows * 1e6 / time for name, time in times.items()}
        claims = {
            row["claim"].removeprefix(_FASTER).removesuffix(each.ending): row["ratio"]
            for row in result["ratios"]
            if row["claim"].startswith(_FASTER) and row["claim"].endswith(each.ending)
        }
        ratios.append({name: claims[name] for name in claims if name not in _NOT_DRAWN})
        _add_what_runs_apart(results, each.result, speeds, ratios[-1])
        panels[title] = _one_of_each(speeds)
    pictures.panels(panels, "environment steps per second", _PICTURES / "speed.svg")
    names = list(dict.fromkeys(name for found in ratios for name in found))
    rows = [
        (name, *(_number(r) if (r := found.get(name)) else "" for found in ratios))
        for name in names
        if any(found.get(name) for found in ratios)
    ]
    heading = "envkit's speed over that of", *(f"{e.rows} of {e.name}" for e in _SPEED)
    text = "Steps per second of " + ", and of ".join(panels)
    picture = _picture(text, _PICTURES / "speed.svg", page)
    missing = [name for name in names if not all(found.get(name) for found in ratios)]
    missing = [name for name in missing if name != _APART["parallel_step"][1]]
    parts = [picture, _table(heading, rows)]
    if missing:
        parts.append(f"Empty is what was not measured: {'; '.join(missing)}.\n")
    return "\n".join([*parts, *sources])


def _add_what_runs_apart(
    results: Path, name: str, speeds: dict[str, float], ratios: dict[str, float | None]
) -> None:
    """Adds a contender that was measured beside envkit in a run of its own."""
    apart, contender = _APART.get(name, ("", ""))
    path = results / f"{apart}.json"
    if apart and path.exists():
        for row in json.loads(path.read_text("utf-8"))["ratios"]:
            if row["claim"] == _FASTER + contender and row["ratio"]:
                ratios[contender] = row["ratio"]
                speeds[contender] = speeds["envkit"] / row["ratio"]


def _one_of_each(speeds: dict[str, float]) -> dict[str, float]:
    """Returns the speeds with the better number of PufferLib's workers alone."""
    puffers = [name for name in speeds if name.startswith("PufferLib")]
    best = max(puffers, key=speeds.__getitem__, default=None)
    return {n: s for n, s in speeds.items() if n == best or n not in puffers}


def _bars(name: str, result: dict[str, Any], title: str, rows: int, page: Path) -> str:
    speeds = {
        name: rows * 1e6 / statistics.median(values)
        for name, values in result["tables"][title]["figures"].items()
        if values and not name.startswith("ideal")
    }
    path = _PICTURES / f"{name}.svg"
    pictures.bars(
        title.replace("one step of ", ""), speeds, "environment steps per second", path
    )
    return _picture(f"{title}, as steps per second", path, page)


def _picture(text: str, path: Path, page: Path) -> str:
    return f"![{text}]({os.path.relpath(path, page.parent)})\n"


def _curve_table(facts: dict[str, Any]) -> str:
    names = list(facts["figures"])
    rows = [
        (
            f"{point:,}",
            *(_number(statistics.median(facts["figures"][name][i])) for name in names),
        )
        for i, point in enumerate(facts["points"])
    ]
    return _table((f"{facts['axis']} ({facts['unit']})", *names), rows)


def _soak(result: dict[str, Any]) -> str:
    names = ("steps", "restarts", "wrong transitions", "leaked things", "seconds")
    summary = _table(names, [tuple(f"{result[name]:,}" for name in names)])
    rows = [
        (name, f"{facts['tried']:,}", f"{facts['held']:,}", facts["checked"])
        for name, facts in result["troubles"].items()
    ]
    headings = ("trouble", "tried", "held", "what was checked")
    troubles = _table(headings, rows).replace("---: |\n", ":--- |\n")
    return f"{troubles}\n{summary}"


def _soak_replay(result: dict[str, Any]) -> str:
    names = ("steps", "kills", "recovered", "fell back", "streams that differ")
    rows = [
        (pool, *(f"{facts[name]:,}" for name in names))
        for pool, facts in {**result["pools"], "all": result}.items()
    ]
    return _table(("pool", *names), rows)


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    numbers = ["---:"] * (len(headings) - 1)
    lines = [headings, (":---", *numbers), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _source(result: dict[str, Any]) -> str:
    machine = result["machine"]
    packages = ", ".join(
        f"{name} {version}" for name, version in machine["packages"].items()
    )
    day = datetime.date.fromisoformat(result["date"])
    command = " ".join([result["command"], *result.get("arguments", [])])
    return (
        f"`{command}` on {day.day} {day:%B %Y}: {machine['cpus']} CPUs, "
        f"{machine['system'].split('-')[0]}, Python {machine['python']}, {packages}.\n"
    )


def _middle_half(values: list[float]) -> str:
    if len(values) < 2:
        return _number(values[0])
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{_number(low)} … {_number(high)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    for name in sys.argv[2:]:
        write = write_results if Path(name).name == "RESULTS.md" else fill
        write(Path(sys.argv[1]), Path(name))
