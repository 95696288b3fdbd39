"""Steps environments a million times through all kinds of trouble, and checks it all.

    python -m tests.soak.run

Workers are killed and paused, the whole program is, environments start helpers, fork,
hang and flood their standard error, links of workers are cut or swallow what they are
given, actors are killed where Ray is installed, and two threads use one pool: all at
random, by a schedule that depends on a seed, in one run. Every observation carries a
chain of hashes over all there was before it, so that each answer can be foretold and
any that is lost, doubled, exchanged or late is seen. In the end a table shows what was
tried and what held. It is an error if an answer is wrong, if anything does not hold or
is left, or if hardly anything of some kind has happened.

The environments are in `environments.py`, the troubles in `plan.py`, what an
answer must be in `judge.py`, what harms links in `links.py`, what harms
actors in `actors.py`, and the process that steps in `parts.py`. This process is
the one outside, which kills and pauses: it goes on when all stand still.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.soak.plan import (
    KINDS,
    MARK,
    OVER,
    PART,
    PAUSES,
    QUIET,
    SIGNALS,
    STANDSTILLS,
    STEPS,
    THREADS,
    Board,
    Kind,
    Trouble,
    command_of,
    count_of,
    has_mark,
    marked,
    schedule,
)

RESULTS = Path(__file__).parents[2] / "benchmarks/results/soak.json"
NUMBERS = [
    signal.SIGKILL,
    signal.SIGKILL,
    signal.SIGSEGV,
    signal.SIGTERM,
    signal.SIGABRT,
    signal.SIGBUS,
]
# How many bytes a second the reader of standard error takes, which is slow.
READING = 20e6


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument(
        "--seconds", type=float, default=3600.0, help="gives up after that"
    )
    parser.add_argument("--troubles", type=int, default=500, help="of all kinds")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=3.0, help="of a step")
    parser.add_argument("--seed", type=int, default=0, help="of the schedule")
    parser.add_argument("--json", type=Path, default=RESULTS)
    return parser.parse_args()


# Trouble from outside.


class Outside:
    """Kills and pauses processes when it is time.

    Attributes:
        tried: How often each kind of trouble was made.
        signals: How often each signal was sent.
        moved: How many steps were made while everything was to stand still.
    """

    def __init__(
        self,
        board: Board,
        plan: Sequence[Sequence[Trouble]],
        mark: str,
        process: subprocess.Popen[bytes],
        timeout: float,
    ) -> None:
        self.tried: Counter[str] = Counter()
        self.signals: Counter[str] = Counter()
        self.moved = 0
        self._board = board
        self._plan = plan
        self._mark = mark
        self._process = process
        self._timeout = timeout

    def run(self) -> None:
        """Makes the troubles of each part, until the process has ended."""
        head = self._board.head
        does: dict[Kind, Callable[[Trouble], None]] = {
            SIGNALS: self._kill,
            PAUSES: self._pause_worker,
            STANDSTILLS: self._pause_all,
        }
        for number, troubles in enumerate(self._plan, 1):
            if not self._await(PART, number):
                return
            for trouble in (each for each in troubles if each.kind.from_outside):
                if not self._await(STEPS, trouble.steps, unless_over=number):
                    return
                if head[OVER] >= number:
                    break
                time.sleep(trouble.pause)
                does[trouble.kind](trouble)
            head[QUIET] = number

    def _await(self, name: int, least: int, unless_over: int | None = None) -> bool:
        """Waits until a number on the board is as large as that, or a part is over.

        Returns:
            Whether the process is there; if it has ended, there is nothing to wait for.
        """
        head = self._board.head
        over = len(self._plan) + 1 if unless_over is None else unless_over
        while head[name] < least and head[OVER] < over:
            if self._process.poll() is not None:
                return False
            time.sleep(0.0005)
        return True

    def _kill(self, trouble: Trouble) -> None:
        pid, number = self._worker(trouble), NUMBERS[trouble.variant % len(NUMBERS)]
        if pid:
            # First: whatever follows from it is explained then.
            self._board.note_killed(pid)
            os.kill(pid, number)
            self.tried[trouble.kind.name] += 1
            self.signals[number.name] += 1

    def _pause_worker(self, trouble: Trouble) -> None:
        if pid := self._worker(trouble):
            _send(pid, signal.SIGSTOP)
            time.sleep(min(0.5, self._timeout / 6) * (trouble.variant % 100) / 100)
            _send(pid, signal.SIGCONT)
            self.tried[trouble.kind.name] += 1

    def _pause_all(self, trouble: Trouble) -> None:
        """Stops whatever has the mark; mostly for longer than a step may take."""
        # By then an environment is in the middle of a slow step.
        time.sleep(0.3)
        stopped: list[int] = []
        _send(self._process.pid, signal.SIGSTOP)
        # Again, until there is none: one of them may have started another meanwhile.
        while new := set(marked(self._mark)) - set(stopped):
            for pid in new:
                _send(pid, signal.SIGSTOP)
                stopped.append(pid)
        time.sleep(0.02)
        steps = int(self._board.head[STEPS])
        time.sleep(self._timeout + 0.5 if trouble.variant % 3 else 0.3)
        self.moved += int(self._board.head[STEPS]) - steps
        random.Random(trouble.variant).shuffle(stopped)
        for pid in stopped:
            _send(pid, signal.SIGCONT)
        self.tried[trouble.kind.name] += 1

    def _worker(self, trouble: Trouble) -> int:
        """Returns the process that an environment is in, or another; 0 for none."""
        killed = self._board.all_killed()
        for pid in np.roll(self._board.pids, -trouble.env_id).tolist():
            if pid not in killed and has_mark(pid, self._mark):
                return int(pid)
        return 0


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class SlowReader(threading.Thread):
    """Reads standard error more slowly than it is written; keeps what is no flood."""

    def __init__(self, pipe: Any) -> None:
        super().__init__(name="reader", daemon=True)
        self.count = 0
        self.lines: deque[str] = deque(maxlen=60)
        self._pipe = pipe

    def run(self) -> None:
        while data := os.read(self._pipe.fileno(), 1 << 16):
            self.count += len(data)
            lines = data.decode("utf-8", "replace").splitlines()
            self.lines += [line for line in lines if "flood of" not in line]
            time.sleep(len(data) / READING)


# The run as a whole.


def inside(told: argparse.Namespace) -> None:
    """Steps and judges; what has come of it goes to the process outside."""
    from tests.soak.parts import PARTS, run

    mark = os.environ[MARK]
    board_fd, report_fd = map(int, mark.split(":")[1:])
    board = Board(board_fd, told.num_envs, told.troubles)
    plan = schedule_of(told, PARTS)
    results = run(told, plan, board, mark, functools.partial(print, flush=True))
    with open(report_fd, "w", encoding="utf-8") as file:
        json.dump([result._asdict() for result in results], file)


def schedule_of(told: argparse.Namespace, parts: Sequence[Any]) -> list[list[Trouble]]:
    able: dict[str, list[int]] = {}
    for number, part in enumerate(parts):
        able.setdefault(part.carrier, []).append(number)
    steps = told.steps // len(parts)
    return schedule(told.troubles, told.seed, len(parts), steps, told.num_envs, able)


def outside(told: argparse.Namespace, console: Console) -> tuple[list[Any], Outside]:
    """Starts the process inside, and makes trouble; returns what came of both."""
    from tests.soak.parts import PARTS

    board_fd, report_fd = os.memfd_create("board"), os.memfd_create("report")
    board = Board(board_fd, told.num_envs, told.troubles)
    mark = f"{secrets.token_hex(8)}:{board_fd}:{report_fd}"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.run", *sys.argv[1:]],
        env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        pass_fds=(board_fd, report_fd),
        # What stops its group must not stop whatever waits for this program.
        start_new_session=True,
    )
    reader = SlowReader(process.stderr)
    reader.start()
    trouble = Outside(board, schedule_of(told, PARTS), mark, process, told.timeout)
    try:
        trouble.run()
        process.wait()
    finally:
        process.kill()
        process.wait()
        left = [*map(command_of, marked(mark))]
        for pid in marked(mark):
            _send(pid, signal.SIGKILL)
    reader.join(5.0)
    if process.returncode:
        print(*reader.lines, sep="\n", file=sys.stderr)
        sys.exit(f"failed: the process that steps ended with {process.returncode}")
    console.print(f"{reader.count:,} bytes of standard error were shown in all")
    results = json.loads(os.pread(report_fd, os.fstat(report_fd).st_size, 0))
    results[-1]["left"] += left
    return results, trouble


def total(results: Sequence[Any], of: str) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for result in results:
        counts.update(result[of])
    return counts


def rows(
    told: argparse.Namespace, results: Sequence[Any], trouble: Outside
) -> Iterator[tuple[str, int, int, int, str]]:
    """Returns what was tried of each kind, the least there must be, and what held."""
    from tests.soak.parts import PARTS

    made, harm = total(results, "made"), total(results, "harm")
    harm[STANDSTILLS.name] += trouble.moved
    carriers = {part.carrier for part in PARTS}
    for kind in KINDS:
        if kind.needs and kind.needs not in carriers:
            continue
        tried = (trouble.tried if kind.from_outside else made)[kind.name]
        least = max(1, count_of(kind, told.troubles) // 4)
        yield kind.name, tried, least, max(0, tried - harm[kind.name]), kind.checked
    calls = total(results, "counts")[THREADS]
    yield (
        THREADS,
        calls,
        told.steps // told.num_envs // 50,
        max(0, calls - harm[THREADS]),
        "each call gets its own answer, in an order that explains all of them",
    )


def failures(
    told: argparse.Namespace,
    table: Sequence[tuple[str, int, int, int, str]],
    results: Sequence[Any],
) -> Iterator[str]:
    """Says why the run counts as failed, if it does."""
    if any(result["counts"]["gave up"] for result in results):
        yield f"it gave up after {told.seconds:g} s; --seconds allows more"
    if total(results, "counts")["wrong"]:
        yield "answers were wrong"
    for name, tried, least, held, _ in table:
        if held < tried:
            yield f"{name}: {tried - held} of {tried} did not hold"
        # Nothing is shown by a run in which hardly anything happened.
        if tried < least:
            yield f"{name}: only {tried} tried"
    for result in results:
        yield from result["wrong"][:3]
        yield from (f"left: {text}" for text in result["left"])


def main() -> None:
    told = parse()
    if MARK in os.environ:
        inside(told)
        return
    if sys.platform != "linux":
        sys.exit("The soak looks at processes in /proc, which only Linux has.")
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit("ended"))
    console, start = Console(), time.monotonic()
    console.print(f"{told.troubles} troubles planned, seed {told.seed}")
    results, trouble = outside(told, console)
    counts = total(results, "counts")
    table = list(rows(told, results, trouble))
    shown = Table("trouble", "tried", "least", "held", "what was checked")
    for name, *numbers, checked in table:
        shown.add_row(name, *(f"{number:,}" for number in numbers), checked)
    console.print(shown)
    left = sum(len(result["left"]) for result in results)
    figures = {
        "steps": counts["steps"],
        "kills": trouble.tried[SIGNALS.name],
        "restarts": counts["restarts"],
        "repaired": counts["cut"],
        "wrong transitions": counts["wrong"],
        "leaked things": left,
        "seconds": round(time.monotonic() - start, 1),
    }
    console.print(", ".join(f"{name} {value:,}" for name, value in figures.items()))
    facts = {
        **figures,
        "signals": dict(trouble.signals),
        "seed": told.seed,
        "troubles": {
            name: {"tried": tried, "held": held, "checked": checked}
            for name, tried, _, held, checked in table
        },
    }
    told.json.parent.mkdir(parents=True, exist_ok=True)
    told.json.write_text(json.dumps(facts, indent=1) + "\n")
    if reasons := list(failures(told, table, results)):
        text = textwrap.indent("\n".join(reasons), "  ")
        sys.exit(f"failed with seed {told.seed}:\n{text}")


if __name__ == "__main__":
    main()
