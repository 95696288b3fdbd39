"""Runs the benchmarks, and writes what they measured into the pages that show it.

    make bench                            # all of them
    make bench ONLY="startup games"       # some of them
    make bench BUSY=1                     # whatever else the machine does

One that fails is named, and the others go on. The figures go to build/bench first; from
there into benchmarks/results and the pages only if the machine was quiet: a benchmark
beside which others used more than a tenth of the machine is run once more at the end,
and if it is disturbed again, nothing is written. The exit status is 0 if everything ran
and was written, 1 if a benchmark failed, and 2 if the machine was busy.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import quiet

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "build/bench"
RESULTS = ROOT / "benchmarks/results"
PAGES = ("benchmarks/RESULTS.md", "docs/performance.md", "README.md")
# TF-Agents needs an older TensorFlow than the others.
TF_AGENTS = Path(f"{sys.prefix}-tf-agents/bin/python")
# A benchmark that takes longer than this is ended, in seconds.
PATIENCE = 600.0


@dataclass(frozen=True)
class Benchmark:
    """A script of benchmarks/, and how it is run.

    Attributes:
        name: What its result is called.
        script: Which script that is; by default the one of that name.
        options: What it is told.
        python: The interpreter that runs it.
        needs: A module without which it measures nothing.
    """

    name: str
    script: str = ""
    options: tuple[str, ...] = ()
    python: Path = Path(sys.executable)
    needs: str = ""

    def command(self, path: Path) -> list[str]:
        """Returns the words that run it, and write its figures to the path."""
        script = ROOT / "benchmarks" / f"{self.script or self.name}.py"
        return [str(self.python), str(script), *self.options, f"--json={path}"]

    def missing(self) -> str:
        """Returns what it lacks here, if anything."""
        if not self.python.exists():
            return f"{self.python} is not there"
        if not self.needs:
            return ""
        program = f"import importlib.util as i; exit(not i.find_spec({self.needs!r}))"
        finds = subprocess.run([self.python, "-c", program], check=False)
        return f"{self.needs} is not installed" if finds.returncode else ""


def _with_tf_agents() -> tuple[str, ...]:
    return (f"--tf-agents={TF_AGENTS}",) if TF_AGENTS.exists() else ()


# In an order in which the quick ones come first. Their turns are so short that all of
# them take less than half an hour.
BENCHMARKS = [
    Benchmark("import_cost"),
    Benchmark("overhead"),
    Benchmark("batched_envs", options=("--rounds=7",)),
    Benchmark("scaling"),
    Benchmark("parallel_step", options=("--rounds=7",)),
    Benchmark(
        "tf_agents",
        script="parallel_step",
        options=("--sizes", "64", "--rounds=5"),
        python=TF_AGENTS,
        needs="tf_agents",
    ),
    Benchmark("games"),
    Benchmark("efficiency", options=("--seconds=0.3",)),
    Benchmark("images", options=("--seconds=0.3",)),
    Benchmark("links", options=("--seconds=0.3",)),
    Benchmark("stragglers", options=("--seconds=0.5",)),
    Benchmark("startup"),
    Benchmark("tf_environment", options=_with_tf_agents(), needs="tensorflow"),
    Benchmark("torch_steps", options=("--seconds=0.3",), needs="torch"),
    Benchmark("wrappers"),
    Benchmark("native_vectors"),
    Benchmark("adapters", options=("--rounds=7", "--seconds=0.2")),
    Benchmark("realtime", options=("--seconds=1",)),
    Benchmark("serving", options=("--seconds=0.3",)),
    Benchmark("protocols", options=("--rounds=5", "--seconds=0.3")),
    Benchmark("sessions", options=("--rounds=1",)),
    Benchmark("recovery"),
    Benchmark("losses"),
    Benchmark("resets"),
    Benchmark("desktop", options=("--seconds=1",)),
    Benchmark("ray_pools", options=("--rounds=3", "--seconds=0.5"), needs="ray"),
]
# It steps an environment that one names.
_FOR_USERS = {"vectors"}


def benchmarks() -> list[Benchmark]:
    """Returns those above, and whatever else in benchmarks/ writes a report."""
    named = {each.script or each.name for each in BENCHMARKS} | _FOR_USERS
    scripts = sorted((ROOT / "benchmarks").glob("*.py"))
    others = [
        path.stem
        for path in scripts
        if path.stem not in named and f'Report("{path.stem}"' in path.read_text("utf-8")
    ]
    return [*BENCHMARKS, *map(Benchmark, others)]


@dataclass
class Outcome:
    """What became of the benchmarks, by name.

    Attributes:
        measured: Where the figures of those are that have some.
        failed: Why others have none.
        left_out: What others lack here.
        disturbed: What was found beside those that were run beside something else.
        seconds: How long each took.
    """

    measured: dict[str, Path] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    disturbed: dict[str, quiet.Found] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def run_all(
    benchmarks: Sequence[Benchmark], folder: Path, *, needs_quiet: bool = True
) -> Outcome:
    """Runs the benchmarks one after the other, disturbed ones once more at the end.

    Args:
        benchmarks: What to run.
        folder: Where the figures go.
        needs_quiet: Whether to wait for a quiet machine, and to repeat what was
            disturbed.
    """
    outcome = Outcome()
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(benchmarks, 1):
        print(f"\n[{number}/{len(benchmarks)}] {each.name}", flush=True)
        _run_one(each, folder / f"{each.name}.json", outcome, needs_quiet)
    for each in benchmarks:
        if needs_quiet and each.name in outcome.disturbed:
            print(f"\n{each.name}, once more, as it was disturbed", flush=True)
            _run_one(each, folder / f"{each.name}.json", outcome, needs_quiet)
    return outcome


def _run_one(each: Benchmark, path: Path, outcome: Outcome, needs_quiet: bool) -> None:
    path.unlink(missing_ok=True)
    outcome.disturbed.pop(each.name, None)
    if missing := each.missing():
        outcome.left_out[each.name] = missing
        print(f"{each.name} is left out: {missing}")
        return
    cpus = len(os.sched_getaffinity(0)) if quiet.CAN_LOOK else 1
    before = quiet.wait_for_quiet(cpus) if needs_quiet else quiet.Found()
    began = time.monotonic()
    with quiet.watched() as found:
        why = _ended(each.command(path))
    seconds = time.monotonic() - began
    outcome.seconds[each.name] = outcome.seconds.get(each.name, 0.0) + seconds
    if left := quiet.end_descendants():
        print(f"{each.name} left {', '.join(left)}, which was killed")
    if not why and not path.is_file():
        why = "it wrote no figures"
    if why:
        outcome.failed[each.name] = why
        print(f"{each.name} failed: {why}")
        return
    for when, seen in (("before", before), ("beside", found)):
        if seen.is_busy(cpus):
            outcome.disturbed[each.name] = seen
            print(f"The machine is busy: {when} {each.name} {seen}")
    outcome.measured[each.name] = path
    print(f"{each.name}: {seconds:.0f} s; {found}")


def _ended(command: list[str]) -> str:
    """Runs a command to its end; returns why that was not a good one."""
    paths = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split()])
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return f"it took longer than {PATIENCE:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return f"exit status {code}" if code else ""


def write(measured: Iterable[Path]) -> list[str]:
    """Puts the figures where the pages come from, and writes the pages.

    Returns:
        The tools that could not write theirs.
    """
    failed = []
    for path in measured:
        shutil.copy(path, RESULTS)
    for words in (
        ["performance_figures.py", str(RESULTS), *PAGES],
        ["choosing_figures.py"],
    ):
        tool = ROOT / "tools" / words[0]
        command = [sys.executable, str(tool), *words[1:]]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(words[0])
    return failed


def not_measured(measured: Mapping[str, Path]) -> dict[str, set[str]]:
    """Returns by contender which of the benchmarks have no figure of it."""
    found: dict[str, set[str]] = {}
    for name, path in measured.items():
        tables = json.loads(path.read_text("utf-8")).get("tables", {})
        for table in tables.values():
            for contender, values in table["figures"].items():
                if not values:
                    found.setdefault(contender, set()).add(name)
    return found


def finish(outcome: Outcome, *, needs_quiet: bool) -> int:
    """Says what became of everything, writes the pages or not; returns the status."""
    print("\n" + "=" * 72)
    for contender, names in not_measured(outcome.measured).items():
        print(
            f"without {contender}, which was not measured: {', '.join(sorted(names))}"
        )
    for name, why in outcome.left_out.items():
        print(f"left out: {name}, because {why}")
    for name, found in outcome.disturbed.items():
        print(f"BUSY: beside {name} {found}")
    for name, why in outcome.failed.items():
        print(f"FAILED: {name}, {why}")
    minutes = sum(outcome.seconds.values()) / 60
    print(f"{len(outcome.measured)} benchmarks were measured in {minutes:.0f} minutes")
    if outcome.disturbed and needs_quiet:
        print(
            "Nothing was written to the docs: the machine was busy. The figures are in "
            f"{FIGURES.relative_to(ROOT)}. End what else runs, or have figures of a "
            "busy machine written with: make bench BUSY=1"
        )
        return 2
    if outcome.measured:
        if unwritten := write(outcome.measured.values()):
            print(f"FAILED: {' and '.join(unwritten)}, whose pages are as they were")
            return 1
        print(f"{', '.join(PAGES)} and docs/pictures have the figures now")
    return 1 if outcome.failed else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run")
    parser.add_argument("--busy", action="store_true", help="write in any case")
    told = parser.parse_args()
    known = {each.name: each for each in benchmarks()}
    if unknown := [name for name in told.names if name not in known]:
        sys.exit(f"There is no {', '.join(unknown)}; there are {', '.join(known)}.")
    if not quiet.CAN_LOOK:
        print("What else uses the machine cannot be seen on this system.")
    quiet.adopt_orphans()
    chosen = [known[name] for name in told.names or known]
    outcome = run_all(chosen, FIGURES, needs_quiet=not told.busy)
    sys.exit(finish(outcome, needs_quiet=not told.busy))


if __name__ == "__main__":
    main()
