"""Runs benchmarks on this working tree and on another commit, by turns.

    python benchmarks/against.py main overhead efficiency
    python benchmarks/against.py HEAD~3 parallel_step -- --rounds=2 --seconds=0.1

Each side runs its own `benchmarks/NAME.py` with its own `envkit`, with the same
interpreter; what follows `--` goes to the benchmarks. The sides change places from
round to round (this, that, that, this, ...), so that a machine that slows down is fair
to both. Results go nowhere but into the table: `benchmarks/results` stays as it is.

A figure is slower or faster beyond the noise if it is so in nearly all rounds, which
happens to equal sides once in a hundred times, and by more than `--tolerance` in the
middle one. Fewer than seven rounds never show that. Other libraries' figures show how
much the machine itself has changed.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The chance to call two equal sides different.
CHANCE = 0.01


@dataclass(slots=True)
class Figure:
    """One figure of a benchmark, as both sides have it.

    Attributes:
        name: The table's title and the contender.
        unit: What it counts; what is "per second" is better when it is more.
        here: This tree's figures, one for each round.
        there: The other commit's.
    """

    name: str
    unit: str
    here: list[float] = field(default_factory=list)
    there: list[float] = field(default_factory=list)

    def ratios(self) -> list[float]:
        """Returns this tree's figure over the other's, round by round."""
        pairs = zip(self.here, self.there, strict=True)
        return [here / there if there else math.nan for here, there in pairs]

    def verdict(self, tolerance: float) -> str:
        """Returns "slower", "faster" or "differs", or nothing within the noise."""
        ratios = self.ratios()
        middle = statistics.median(ratios)
        against = sum(
            ratio >= 1.0 if middle < 1.0 else ratio <= 1.0 for ratio in ratios
        )
        if abs(middle - 1.0) <= tolerance or against > exceptions(len(ratios)):
            return ""
        if not self.unit:
            return "differs"
        is_more_better = "per second" in self.unit
        return "faster" if (middle > 1.0) == is_more_better else "slower"


def exceptions(rounds: int) -> int:
    """Returns how many rounds may tell otherwise before a difference is noise.

    It is -1 if there are too few rounds to tell, even if they all agree.
    """
    allowed, chance = -1, 2.0**-rounds
    while chance <= CHANCE:
        allowed += 1
        chance += math.comb(rounds, allowed + 1) * 2.0**-rounds
    return allowed


def read(result: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yields the name, the unit and the median of each figure in a result."""
    for title, table in result.get("tables", {}).items():
        for name, values in table["figures"].items():
            if values:
                yield f"{title}: {name}", table["unit"], statistics.median(values)
    for title, curve in result.get("curves", {}).items():
        for name, rows in curve["figures"].items():
            for point, values in zip(curve["points"], rows, strict=True):
                place = f"{title}: {name}, {point:g} {curve['axis']}"
                if values:
                    yield place, curve["unit"], statistics.median(values)
    # What a benchmark without tables writes are facts, too.
    for name, value in {**result, **result.get("facts", {})}.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, "", float(value)


def measure(tree: Path, benchmark: str, options: Sequence[str]) -> dict[str, Any]:
    """Runs a tree's own benchmark once, and returns its result."""
    script = tree / "benchmarks" / f"{benchmark}.py"
    if not script.is_file():
        sys.exit(f"{tree} has no benchmarks/{benchmark}.py.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        finished = subprocess.run(
            [sys.executable, str(script), *options, f"--json={path}"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode or not path.is_file():
            sys.exit(f"{script} failed:\n{finished.stdout}{finished.stderr}")
        result: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return result


def compare(
    there: Path, benchmark: str, rounds: int, options: Sequence[str]
) -> list[Figure]:
    """Runs a benchmark on both sides by turns; returns the figures that both have."""
    sides: list[list[dict[str, tuple[str, float]]]] = [[], []]
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for side in order:
            print(f"{benchmark}: round {number + 1} of {rounds}", file=sys.stderr)
            result = measure((ROOT, there)[side], benchmark, options)
            found = {name: (unit, value) for name, unit, value in read(result)}
            sides[side].append(found)
    figures = []
    for name, (unit, _) in sides[0][0].items():
        values = [[found[name][1] for found in side if name in found] for side in sides]
        if len(values[0]) == len(values[1]) == rounds:
            figures.append(Figure(name, unit, *values))
    if not figures:
        sys.exit(f"The results of {benchmark} have no figure in common.")
    return figures


def check_out(commit: str, folder: Path) -> None:
    """Writes the files of a commit into a folder."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        sys.exit(f"git has no {commit}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def show(benchmark: str, figures: Sequence[Figure], tolerance: float) -> None:
    """Prints the table of a benchmark."""
    width = max(len(figure.name) for figure in figures)
    print(f"\n{benchmark}")
    headings = ("here", "there", "ratio", "middle half", "")
    print(f"{'':{width}} {headings[0]:>10} {headings[1]:>10} {headings[2]:>7}", end="")
    print(f" {headings[3]:>15}")
    for figure in figures:
        ratios = figure.ratios()
        quarters = (
            statistics.quantiles(ratios, n=4, method="inclusive")
            if len(ratios) > 1
            else ratios * 3
        )
        half = f"{quarters[0]:.3f} … {quarters[2]:.3f}"
        here, there = map(statistics.median, (figure.here, figure.there))
        middle = statistics.median(ratios)
        print(f"{figure.name:{width}} {here:10.4g} {there:10.4g} {middle:7.3f}", end="")
        print(f" {half:>15} {figure.unit:14} {figure.verdict(tolerance)}".rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit", help="what to compare this working tree with")
    parser.add_argument("names", nargs="+", metavar="NAME", help="e.g. parallel_step")
    parser.add_argument("--rounds", type=int, default=7, help="of both sides")
    parser.add_argument(
        "--tolerance", type=float, default=0.03, help="what is never a difference"
    )
    parser.add_argument("--only", default="", help="figures with this in their names")
    parser.add_argument(
        "--fail", action="store_true", help="exit with 1 if something is slower"
    )
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    told, options = parser.parse_args(words[:end]), words[end + 1 :]
    is_slower = False
    with tempfile.TemporaryDirectory(prefix="against") as folder:
        check_out(told.commit, Path(folder))
        for name in told.names:
            figures = [
                figure
                for figure in compare(Path(folder), name, told.rounds, options)
                if told.only in figure.name
            ]
            if not figures:
                sys.exit(f"{name} has no figure with {told.only!r} in its name.")
            show(name, figures, told.tolerance)
            verdicts = [figure.verdict(told.tolerance) for figure in figures]
            is_slower |= "slower" in verdicts
    sys.exit(1 if is_slower and told.fail else 0)


if __name__ == "__main__":
    main()
