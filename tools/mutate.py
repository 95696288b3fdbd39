"""Puts random faults into envkit, one at a time, and counts those that tests find.

    python tools/mutate.py --seed 1 --count 50
    python tools/mutate.py --seed 1 2 3 --count 50 --package parallel.slab
    python tools/mutate.py --seed 1 --count 50 --root ../other_checkout

A mutant is the package with one fault (`tools/mutants.py`). A test that fails has
killed it; a mutant that survives shows behaviour without a test, unless its fault
changes nothing that a user could notice. The same seed and the same sources make the
same mutants.

All tests that match run once without a fault, and note which mutants they reach, in
worker processes too. Then each mutant gets the tests that reach it: first those of the
files that are about its module, the fast ones before the slow ones. A mutant is also
killed if a test takes far longer than without it. Everything happens in copies of the
tree, one for each job, which are removed at the end.
"""

from __future__ import annotations

import argparse
import ast
import collections
import concurrent.futures
import contextlib
import functools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mutants import Mutant, code_lines, draw, files_of, shares, with_marks

TOOLS = Path(__file__).resolve().parent
PACKAGES = ["parallel", "specs", "time_step", "wrappers"]
# No part of what tests need; and what would be large.
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "_build", "*.egg-info"
)
# Seconds for a test to be quick, to be slow, and to start pytest on a busy machine.
QUICK, SLOW, START = 0.3, 2.0, 240.0
# A test hangs after so many seconds, and so many times those it takes without a fault.
PATIENCE, TIMES = 40.0, 10.0
Thing, Result = TypeVar("Thing"), TypeVar("Result")


@dataclass(slots=True)
class Test:
    """A test that passes without a fault.

    Attributes:
        name: What pytest calls it.
        seconds: How long it takes.
        reached: The numbers of the mutants that it reaches.
    """

    name: str
    seconds: float
    reached: frozenset[int]

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.name.partition("::")[0]


@dataclass(slots=True)
class Outcome:
    """What a run of pytest has reported.

    Attributes:
        ended: Of each test that has ended: name, seconds, failure, mutants reached.
        failed: The first test that failed, or the files that could not be collected.
        begun: The last test that has begun.
        hung: The test that took too long, if one did.
        exitcode: What pytest returned; `None` if it was ended.
        output: The end of what it printed.
    """

    ended: list[dict[str, Any]] = field(default_factory=list)
    failed: str | None = None
    begun: str | None = None
    hung: str | None = None
    exitcode: int | None = None
    output: str = ""


# Which tests match.


def test_files(
    root: Path, packages: Sequence[str], mutated: Collection[Path]
) -> list[str]:
    """Returns the test files that are about these packages and mutated files.

    Those are the files of the folder or of the name that mirrors a package, mutated
    files with doctests, and files of `tests/` itself that import or name something of a
    mutated file. A mutated file that none of them imports or is called after brings
    those of other folders that import it.
    """
    tests = root / "tests"
    chosen = {root / path for path in mutated if _has_doctests(root / path)}
    for package in packages:
        mirror = tests / Path(*package.split("."))
        file = mirror.with_name(f"test_{mirror.name}.py")
        chosen |= {*mirror.rglob("test_*.py")} | ({file} if file.exists() else set())
    others = set(tests.rglob("test_*.py")) - chosen
    for path in mutated:

        def is_about(file: Path, path: Path = path) -> bool:
            return distance(root, str(file.relative_to(root)), path) < 2

        on_top = {file for file in others if file.parent == tests and is_about(file)}
        chosen |= on_top
        if not on_top and not any(map(is_about, chosen)):
            chosen |= set(filter(is_about, others))
    return sorted(str(path.relative_to(root)) for path in chosen)


def _has_doctests(path: Path) -> bool:
    return ">>>" in path.read_text("utf-8")


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def _defined(path: Path) -> set[str]:
    """Returns the public names that a module defines."""
    kinds = ast.FunctionDef | ast.ClassDef
    body = ast.parse(path.read_text("utf-8")).body
    names = {node.name for node in body if isinstance(node, kinds)}
    return {name for name in names if not name.startswith("_")}


@functools.cache
def _mentioned(path: Path) -> tuple[set[str], set[str]]:
    """Returns the modules that a file imports, and the names it takes out of envkit."""
    modules, names = set(), set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            taken = {each.name for each in node.names}
            modules |= {node.module, *(f"{node.module}.{name}" for name in taken)}
            if node.module.split(".")[0] == "envkit":
                names |= taken
    return modules, names


def distance(root: Path, test_file: str, mutated: Path) -> int:
    """Returns how far a test file is from a module: 0 is about it, 3 is not."""
    path, module = Path(test_file), _module(mutated)
    if path == mutated or path.stem == f"test_{mutated.stem}":
        return 0
    if test_file.startswith("envkit"):
        return 3
    imported, named = _mentioned(root / path)
    if module in imported or _defined(root / mutated) & named:
        return 1
    mirror = Path("tests", *mutated.parent.parts[1:])
    return 2 if mirror != Path("tests") and mirror in path.parents else 3


def order(
    root: Path, tests: Iterable[Test], mutant: Mutant, number: int, budget: float
) -> list[list[Test]]:
    """Returns the tests of a mutant in two stages: likely killers, and all others.

    Of more tests than the budget allows, the last ones are left out.
    """

    def key(test: Test) -> tuple[object, ...]:
        pace = (test.seconds >= QUICK) + (test.seconds >= SLOW)
        return pace, distance(root, test.file, mutant.path), test.file, test.name

    # What runs at import is reached by all that imports it.
    reaching = sorted(
        (test for test in tests if mutant.statement is None or number in test.reached),
        key=key,
    )
    stages: list[list[Test]] = [[], []]
    spent = 0.0
    for test in reaching:
        spent += test.seconds
        if spent > budget and any(stages):
            break
        is_likely = distance(root, test.file, mutant.path) < 2 and test.seconds < SLOW
        stages[0 if is_likely and spent < budget / 5 else 1].append(test)
    return [stage for stage in stages if stage]


# Copies of the tree.


class Copy:
    """A copy of the tree, in which one run of pytest at a time takes place.

    Attributes:
        root: The folder of the copy.
    """

    def __init__(self, source: Path, folder: Path, stopped: threading.Event) -> None:
        """Copies a tree into a folder that does not exist yet."""
        self._stopped = stopped
        self.root = folder / "tree"
        self._source = source
        self._scratch = folder / "t"
        # Python takes what it has compiled for current if a file's size and time, in
        # seconds, are the same, so each change has a second of its own.
        self._now = int(time.time())
        shutil.copytree(source, self.root, ignore=LEFT_OUT, symlinks=True)

    @contextlib.contextmanager
    def changed(self, sources: dict[Path, str]) -> Iterator[None]:
        """Gives files another text, and takes it back at the end."""
        try:
            for path, text in sources.items():
                self._write(path, text)
            yield
        finally:
            for path in sources:
                self._write(path, (self._source / path).read_text("utf-8"))

    def _write(self, path: Path, text: str) -> None:
        self._now += 1
        (self.root / path).write_text(text, "utf-8")
        os.utime(self.root / path, (self._now, self._now))

    def run(
        self,
        files: Sequence[str],
        tests: Sequence[Test] | None = None,
        *,
        first_only: bool = True,
        marks: int = 0,
    ) -> Outcome:
        """Runs tests, and ends everything that they have started.

        Args:
            files: The test files.
            tests: Which of their tests, in that order; `None` is all.
            first_only: Whether chosen tests end with the first that fails.
            marks: How many marks the code sets, if it sets some.
        """
        self._scratch.mkdir(parents=True)
        run = f"mutate-{uuid.uuid4().hex}"
        report = self._scratch / "report"
        report.touch()
        paths = [str(self.root), str(TOOLS)]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "TMPDIR": str(self._scratch),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "MUTATE_RUN": run,
            "MUTATE_REPORT": str(report),
        }
        options = ["-q", "-p", "no:cacheprovider", "-p", "reached", "-m", "not heavy"]
        options += ["-o", "faulthandler_timeout=0", "--hypothesis-seed=0"]
        if tests is not None:
            options += ["-x"] if first_only else []
            listed = self._scratch / "tests"
            listed.write_text(json.dumps([test.name for test in tests]), "utf-8")
            env["MUTATE_TESTS"] = str(listed)
        if marks:
            shared = self._scratch / "marks"
            shared.write_bytes(bytes(marks))
            env["MUTATE_MARKS"] = str(shared)
        limits = {test.name: test.seconds for test in tests or ()}
        with open(self._scratch / "output", "w+b") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *files],
                cwd=self.root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                outcome = _watch(process, report, limits, self._stopped)
            finally:
                _end(process, run)
            output.seek(0)
            outcome.output = output.read().decode("utf-8", "replace")[-3000:]
        shutil.rmtree(self._scratch, ignore_errors=True)
        # Examples that have failed once would be tried first with the next mutant.
        shutil.rmtree(self.root / ".hypothesis/examples", ignore_errors=True)
        return outcome


def _watch(
    process: subprocess.Popen[bytes],
    report: Path,
    limits: dict[str, float],
    stopped: threading.Event,
) -> Outcome:
    """Reads the report of a run until it ends or hangs."""
    outcome = Outcome()
    running, deadline = "the start", time.monotonic() + START
    with report.open(encoding="utf-8") as lines:
        rest, has_ended = "", False
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                outcome.exitcode = process.wait(0.2)
                has_ended = True
            *whole, rest = (rest + lines.read()).split("\n")
            for line in whole:
                facts = json.loads(line)
                seconds = 0.0
                if "begun" in facts:
                    running = outcome.begun = facts["begun"]
                    seconds = limits.get(running, PATIENCE)
                elif "ended" in facts:
                    running = "the end"
                    outcome.ended.append(facts)
                    if facts["failed"] and outcome.failed is None:
                        outcome.failed = facts["ended"]
                elif "uncollected" in facts and outcome.failed is None:
                    outcome.failed = facts["uncollected"]
                deadline = time.monotonic() + PATIENCE + TIMES * seconds
            if has_ended:
                return outcome
            if stopped.is_set() or time.monotonic() > deadline:
                outcome.hung = running
                return outcome


def _end(process: subprocess.Popen[bytes], run: str) -> None:
    """Ends a run's process group, and whatever else it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    mark = f"MUTATE_RUN={run}".encode()
    # What has a process group of its own still has the environment.
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


# The run.


class Machine:
    """The copies of a tree, and the jobs that use them."""

    def __init__(self, root: Path, folder: Path, jobs: int) -> None:
        """Makes a copy for each job."""
        self._stopped = threading.Event()
        self._copies: queue.Queue[Copy] = queue.Queue()
        for number in range(jobs):
            self._copies.put(Copy(root, folder / str(number), self._stopped))
        self._pool = concurrent.futures.ThreadPoolExecutor(jobs)

    def each(
        self, function: Callable[[Copy, Thing], Result], things: Iterable[Thing]
    ) -> Iterator[Result]:
        """Calls a function with a copy and each thing; yields results as they come."""

        def call(thing: Thing) -> Result:
            copy = self._copies.get()
            try:
                return function(copy, thing)
            finally:
                self._copies.put(copy)

        futures = [self._pool.submit(call, thing) for thing in things]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()

    def close(self) -> None:
        """Ends the runs that are under way."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)


def baseline(
    machine: Machine, root: Path, mutants: Sequence[Mutant], files: Sequence[str]
) -> list[Test]:
    """Runs all tests without a fault, and names those that fail and are left out."""
    places: dict[Path, dict[tuple[int, int], list[int]]] = collections.defaultdict(dict)
    for number, mutant in enumerate(mutants):
        if mutant.statement is not None:
            places[mutant.path].setdefault(mutant.statement, []).append(number)
    marked = {
        path: with_marks((root / path).read_text("utf-8"), found)
        for path, found in places.items()
    }

    def run(
        copy: Copy, chunk: Sequence[str]
    ) -> tuple[Sequence[str], Outcome, set[str]]:
        with copy.changed(marked):
            outcome = copy.run(chunk, marks=len(mutants))
        failing = {str(facts["ended"]) for facts in outcome.ended if facts["failed"]}
        if failing and outcome.hung is None:
            # It may be the marks that a test does not stand, or a busy machine.
            suspects = [Test(name, PATIENCE, frozenset()) for name in sorted(failing)]
            files = sorted({test.file for test in suspects})
            again = copy.run(files, suspects, first_only=False)
            failing -= {
                str(facts["ended"]) for facts in again.ended if not facts["failed"]
            }
        return chunk, outcome, failing

    tests: list[Test] = []
    chunks = [files[start : start + 6] for start in range(0, len(files), 6)]
    while chunks:
        broken: list[str] = []
        for chunk, outcome, failing in machine.each(run, chunks):
            if outcome.hung is not None or outcome.exitcode not in (0, 1, 5):
                # One file that does not run is to spoil no other.
                at = outcome.begun.partition("::")[0] if outcome.begun else chunk[0]
                start = chunk.index(at) if at in chunk else 0
                if len(chunk) > 1:
                    broken += chunk[start:]
                else:
                    place = outcome.begun or "its first line"
                    _say(
                        f"left out, for it ends without a fault: {chunk[0]} at {place}"
                    )
                    _say(outcome.output)
            for name in sorted(failing):
                _say(f"left out, for it fails without a fault: {name}")
            for facts in outcome.ended:
                name, seconds = str(facts["ended"]), float(facts["seconds"])
                if name not in failing and name.partition("::")[0] not in broken:
                    tests.append(Test(name, seconds, frozenset(facts["reached"])))
            _say(f"{len(tests)} tests pass without a fault")
        chunks = [[file] for file in broken]
    return sorted(tests, key=lambda test: test.name)


@dataclass(slots=True)
class Verdict:
    """What has become of a mutant.

    Attributes:
        number: The mutant's.
        killer: The test that failed or hung; `None` if the mutant has survived.
        how: How it has ended, in words.
        seconds: How long that took.
    """

    number: int
    killer: str | None
    how: str
    seconds: float


def judge(
    copy: Copy,
    root: Path,
    mutant: Mutant,
    number: int,
    tests: Sequence[Test],
    budget: float,
) -> Verdict:
    """Runs the tests of a mutant, until one fails."""
    start = time.monotonic()
    stages = order(root, tests, mutant, number, budget)
    source = (root / mutant.path).read_text("utf-8")
    with copy.changed({mutant.path: mutant.applied(source)}):
        for stage in stages:
            files = list(dict.fromkeys(test.file for test in stage))
            outcome = copy.run(files, stage)
            seconds = time.monotonic() - start
            if outcome.hung is not None:
                return Verdict(number, outcome.hung, "timed out", seconds)
            if outcome.exitcode != 0:
                code = f"exit code {outcome.exitcode} in {outcome.begun}"
                killer = outcome.failed or code
                return Verdict(number, killer, "killed", seconds)
    count = sum(map(len, stages))
    how = f"survived {count} tests" if count else "survived: no test reaches it"
    return Verdict(number, None, how, time.monotonic() - start)


def _say(text: str) -> None:
    print(text, flush=True)


def chosen(
    root: Path, packages: Sequence[str], seeds: Sequence[str], count: int
) -> list[tuple[tuple[str, str], Mutant]]:
    """Returns the mutants of all seeds, each with its seed and package."""
    files = {package: files_of(root, package) for package in packages}
    sizes = [
        sum(code_lines((root / path).read_text("utf-8")) for path in files[package])
        for package in packages
    ]
    return [
        ((seed, package), mutant)
        for seed in seeds
        for package, share in zip(packages, shares(sizes, count), strict=True)
        for mutant in draw(root, files[package], share, f"{seed} {package}")
    ]


def told() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", nargs="+", required=True, help="one, or several")
    parser.add_argument(
        "--count", type=int, default=50, help="of mutants, for each seed"
    )
    parser.add_argument(
        "--package", nargs="+", default=PACKAGES, help="parts of envkit, e.g. parallel"
    )
    parser.add_argument("--root", type=Path, default=TOOLS.parent, help="of the tree")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--budget", type=float, default=120.0, help="seconds of tests for one mutant"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="FILE:LINE", help="of those drawn, these mutants"
    )
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    return parser.parse_args()


def main() -> None:
    options = told()
    root = options.root.resolve()
    drawn = chosen(root, options.package, options.seed, options.count)
    if options.only:
        drawn = [
            each for each in drawn if f"{each[1].path}:{each[1].line}" in options.only
        ]
    mutants = [mutant for _, mutant in drawn]
    sources = {
        mutant.path: (root / mutant.path).read_text("utf-8") for mutant in mutants
    }
    if options.list:
        for mutant in mutants:
            _say(f"{mutant.path}:{mutant.line} {mutant.kind}")
            _say(mutant.difference(sources[mutant.path]))
        return
    # Ended from outside, it removes its copies all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    files = test_files(root, options.package, sources)
    with tempfile.TemporaryDirectory(prefix="mutate") as folder:
        machine = Machine(root, Path(folder), options.jobs)
        try:
            _say(f"{len(mutants)} mutants, {len(files)} files of tests")
            tests = baseline(machine, root, mutants, files)
            if not tests:
                sys.exit("No test passes without a fault, so none can show anything.")
            seconds = sum(test.seconds for test in tests)
            _say(f"{len(tests)} tests pass without a fault, in {seconds:.0f} s")

            def run(copy: Copy, number: int) -> Verdict:
                mutant = mutants[number]
                return judge(copy, root, mutant, number, tests, options.budget)

            verdicts = {}
            for verdict in machine.each(run, range(len(mutants))):
                verdicts[verdict.number] = verdict
                _report(verdict, drawn[verdict.number], sources)
        finally:
            machine.close()
    _summarize(verdicts, drawn, sources)


def _report(
    verdict: Verdict,
    drawn: tuple[tuple[str, str], Mutant],
    sources: dict[Path, str],
) -> None:
    (seed, _), mutant = drawn
    place = f"{mutant.path}:{mutant.line}"
    by = "" if verdict.killer is None else f", by {verdict.killer}"
    how = f"{verdict.how:9} {place} {mutant.kind}{by}"
    _say(f"{how} ({verdict.seconds:.0f} s, seed {seed})")
    if verdict.killer is None:
        _say(mutant.difference(sources[mutant.path]))


def _summarize(
    verdicts: dict[int, Verdict],
    drawn: Sequence[tuple[tuple[str, str], Mutant]],
    sources: dict[Path, str],
) -> None:
    survivors = [number for number in sorted(verdicts) if not verdicts[number].killer]
    _say("\nSurvivors:" if survivors else "\nNo survivors.")
    for number in survivors:
        _report(verdicts[number], drawn[number], sources)
    totals: collections.Counter[str] = collections.Counter()
    killed: collections.Counter[str] = collections.Counter()
    for number, ((seed, package), _) in enumerate(drawn):
        for name in (package, f"seed {seed}", "all"):
            totals[name] += 1
            killed[name] += verdicts[number].killer is not None
    _say(f"\n{'':20} {'mutants':>8} {'killed':>8} {'share':>8}")
    for name in sorted(totals, key=lambda name: (name == "all", name)):
        share = killed[name] / totals[name]
        _say(f"{name:20} {totals[name]:8} {killed[name]:8} {share:8.0%}")


if __name__ == "__main__":
    main()
