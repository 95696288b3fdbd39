"""Steps environments a million times while their workers are killed, and checks it all.

    python benchmarks/soak.py

Each environment shows who it is, in which process, where it stands and which action it
was given, so that every answer can be proven right from the one before it. Workers are
killed at random moments with random signals, from a thread of its own, by a schedule
that depends on the seed. It is an error if an answer is wrong, if anything is left in
the end, or if hardly anyone was killed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import logging
import os
import signal
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from environments import ACTION, ENV_ID, EPISODE, PID, STEP, Telling
from rich.console import Console
from side_by_side import RESULTS

from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment, RestartPolicy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.residue import Residue, left_behind

SIGNALS = [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT]
FIRST, MID, LAST = 0, 1, 2


class Kill(NamedTuple):
    """When, by steps made and seconds after that; whom, by environment; with what."""

    steps: int
    pause: float
    env_id: int
    number: signal.Signals

    def __str__(self) -> str:
        return f"{self.steps}+{1e3 * self.pause:.1f}ms:{self.env_id}:{self.number.name}"


def schedule(told: argparse.Namespace, seed: int) -> list[Kill]:
    """Plans one way's share of the kills."""
    rng, steps = np.random.default_rng(seed), told.steps // len(WAYS)
    return [
        Kill(
            int(when),
            round(float(rng.uniform(0.0, 0.003)), 6),
            int(rng.integers(told.num_envs)),
            SIGNALS[rng.integers(len(SIGNALS))],
        )
        for when in np.sort(rng.integers(steps // 50, steps, told.kills // len(WAYS)))
    ]


class Judge:
    """Remembers what each environment showed last, and judges what it shows next."""

    def __init__(self, num_envs: int) -> None:
        self.steps = 0
        self.repaired = 0
        self.wrong: list[str] = []
        self.pids: set[int] = set()
        self.types = np.full(num_envs, LAST)
        self.shown = np.full((num_envs, 5), -1)
        self._lengths = np.array([Telling.length(i) for i in range(num_envs)])

    def judge(self, rows: np.ndarray, actions: np.ndarray, answer: Any) -> None:
        """Takes the answers of some rows to these actions, after their last ones."""
        shown, before = answer.observation, self.shown[rows]
        types, ended = answer.step_type, self.types[rows] == LAST
        alike = shown[:, PID] == before[:, PID]

        first = types == FIRST
        first &= ended & (answer.reward == 0) & (answer.discount == 1)
        first &= (shown[:, STEP] == 0) & (shown[:, ACTION] == -1)
        first &= shown[:, EPISODE] == np.where(alike, before[:, EPISODE] + 1, 0)

        went_on = ~ended & alike & (shown[:, EPISODE] == before[:, EPISODE])
        went_on &= (shown[:, STEP] == before[:, STEP] + 1) & (
            shown[:, ACTION] == actions
        )
        at_end = shown[:, STEP] == self._lengths[rows]
        went_on &= types == np.where(at_end, LAST, MID)
        went_on &= answer.discount == np.where(at_end, 0, 1)
        went_on &= answer.reward == Telling.reward(shown)

        # Cut off: the last that was seen once more, as a truncation.
        cut = ~ended & (types == LAST) & (answer.reward == 0) & (answer.discount == 1)
        cut &= (shown == before).all(axis=1)

        right = (first | went_on | cut) & (shown[:, ENV_ID] == rows)
        for i in np.flatnonzero(~right)[:10]:
            self.wrong.append(
                f"env {rows[i]}: {before[i].tolist()} (type {self.types[rows[i]]}), "
                f"then action {actions[i]}, then {shown[i].tolist()} (type {types[i]}, "
                f"reward {answer.reward[i]}, discount {answer.discount[i]})"
            )
        self.wrong += [""] * max(0, int((~right).sum()) - 10)
        self.repaired += int((cut & ~went_on).sum())
        self.shown[rows], self.types[rows] = shown, types
        self.pids.update(shown[:, PID].tolist())
        self.steps += len(rows)


class Killer(threading.Thread):
    """Sends each signal when it is due, to the process that the environment was in."""

    def __init__(self, plan: list[Kill], judge: Judge) -> None:
        super().__init__(name="killer")
        self.sent: Counter[str] = Counter()
        self._plan = plan
        self._judge = judge
        self._killed: set[int] = set()
        self._over = threading.Event()

    def run(self) -> None:
        for kill in self._plan:
            while self._judge.steps < kill.steps:
                if self._over.wait(0.0005):
                    return
            time.sleep(kill.pause)
            pid = int(self._judge.shown[kill.env_id, PID])
            # Its number may be another's by now, if it has been killed already.
            if pid > 0 and pid not in self._killed:
                self._killed.add(pid)
                os.kill(pid, kill.number)
                self.sent[kill.number.name] += 1

    def stop(self) -> None:
        self._over.set()
        self.join()


def pool_options(num_workers: int) -> dict[str, Any]:
    policy = RestartPolicy(max_restarts=10**6, within=None, backoff=0.0)
    return {"num_workers": num_workers, "on_worker_failure": policy}


def in_lockstep(makers: list[Any], workers: int, judge: Judge) -> Iterator[Any]:
    """Steps everyone at once; hands out the pool with every answer."""
    everyone, rng = np.arange(len(makers)), np.random.default_rng(1)
    with ParallelPyEnvironment(makers, **pool_options(workers)) as env:
        judge.judge(everyone, np.full(len(makers), -1), env.reset())
        while True:
            actions = rng.integers(0, 1_000_000, len(makers))
            judge.judge(everyone, actions, env.step(actions))
            yield env


def first_come(makers: list[Any], workers: int, judge: Judge) -> Iterator[Any]:
    """Steps whoever is ready, eight at a time."""
    given, rng = np.full(len(makers), -1), np.random.default_rng(2)
    with AsyncParallelPyEnvironment(makers, **pool_options(workers)) as env:
        env.reset_async()
        while True:
            rows, answer = env.recv(min(8, len(makers)))
            judge.judge(rows, given[rows], answer)
            given[rows] = rng.integers(0, 1_000_000, len(rows))
            env.send(given[rows], rows)
            yield env


Way = Callable[[list[Any], int, Judge], Iterator[Any]]
WAYS: dict[str, Way] = {"in lockstep": in_lockstep, "first come": first_come}


def soak(way: Way, told: argparse.Namespace, plan: list[Kill]) -> Counter[str]:
    """Runs one way of stepping through its share of the steps; says what happened."""
    makers = [functools.partial(Telling, i) for i in range(told.num_envs)]
    judge = Judge(told.num_envs)
    killer = Killer(plan, judge)
    deadline = time.monotonic() + told.seconds / len(WAYS)
    running = way(makers, told.workers, judge)
    restarts = 0
    killer.start()
    try:
        for env in running:
            if judge.steps >= told.steps // len(WAYS) or time.monotonic() > deadline:
                killer.stop()
                restarts = sum(worker.restarts for worker in env.statistics().workers)
                break
    finally:
        killer.stop()
        running.close()
    for text in filter(None, judge.wrong):
        print(f"wrong: {text}")
    return Counter(
        steps=judge.steps,
        kills=killer.sent.total(),
        restarts=restarts,
        repaired=judge.repaired,
        wrong=len(judge.wrong),
        **killer.sent,
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=120.0, help="stops after that")
    parser.add_argument("--kills", type=int, default=240)
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of the schedule")
    parser.add_argument("--json", type=Path, default=RESULTS / "soak.json")
    return parser.parse_args()


def failures(
    told: argparse.Namespace, total: Counter[str], left: Mapping[Any, str]
) -> Iterator[str]:
    """Says why the run counts as failed, if it does."""
    if total["wrong"]:
        yield "answers were wrong"
    if left:
        yield "something was left"
    # Nothing is shown by a run in which hardly anything happened.
    if min(total["kills"], total["restarts"]) < max(1, told.kills // 4):
        yield "too few workers were killed"
    if total["restarts"] > total["kills"]:
        yield "workers were replaced that nobody had killed"
    # Each kill cuts no more than the episodes of one worker.
    if total["repaired"] > total["kills"] * -(-told.num_envs // told.workers):
        yield "episodes were cut without a reason"


def main() -> None:
    told, console = parse(), Console()
    # Every restart is a line there, and every crash a traceback on stderr.
    logging.getLogger("envkit").setLevel(logging.ERROR)
    # What is imported or opened once and for all is no leak.
    soak(in_lockstep, argparse.Namespace(**{**vars(told), "steps": 1}), [])
    before, start = Residue.now(), time.monotonic()
    total: Counter[str] = Counter()
    schedules: dict[str, list[str]] = {}
    with contextlib.redirect_stderr(io.StringIO()):
        for number, (name, way) in enumerate(WAYS.items()):
            seed = told.seed + number
            plan = schedule(told, seed)
            console.print(f"{name}: {len(plan)} kills planned, seed {seed}")
            console.print(textwrap.shorten(" ".join(map(str, plan)), 240))
            schedules[name] = [str(kill) for kill in plan]
            counts = soak(way, told, plan)
            total += counts
            console.print(", ".join(f"{each} {n:,}" for each, n in counts.items()))
    left = left_behind(before)
    for text in left.values():
        console.print(f"left: {text}")
    result = {
        **{name: total[name] for name in ("steps", "kills", "restarts", "repaired")},
        "signals": {number.name: total[number.name] for number in SIGNALS},
        "wrong transitions": total["wrong"],
        "leaked things": len(left),
        "seconds": round(time.monotonic() - start, 1),
    }
    for name, value in result.items():
        console.print(f"{name}: {value}")
    told.json.parent.mkdir(parents=True, exist_ok=True)
    facts = {**result, "seed": told.seed, "schedules": schedules}
    told.json.write_text(json.dumps(facts, indent=1) + "\n")
    if reasons := list(failures(told, total, left)):
        sys.exit(f"failed: {', '.join(reasons)}")


if __name__ == "__main__":
    main()
