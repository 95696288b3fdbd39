"""Kills workers at random, and shows that no stream differs in a bit because of it.

    python -m tests.soak.replays

Pools with `RestartPolicy(recover="replay")` step a million times in all: in lockstep in
every order of resets, at their own pace, in batches, over links; with environments that
save their state and with some that cannot. Meanwhile workers are killed, mostly amid a
step. Every time step that comes is folded into a checksum of its row's stream, and each
of these is compared with that of a run which nothing disturbs. In the end a table shows
how often workers were killed, and how many environments have continued or have not. It
is an error if a stream differs, an environment has not continued, or hardly any worker
was killed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import os
import queue
import random
import shlex
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    AutoReset,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    RestartPolicy,
    TimeStep,
    nest,
    restart,
    termination,
    transition,
)
from envkit.distributed.command_launcher import CommandLauncher
from envkit.distributed.links import LinkedBackend
from envkit.wrappers import TimeLimit

RESULTS = Path(__file__).parents[2] / "benchmarks/results/soak_replay.json"
POLICY = RestartPolicy(
    max_restarts=1_000_000, within=None, backoff=0.0, recover="replay"
)
ACTIONS = 7
# The longest that a kill waits after the step in which it is to come has begun.
WITHIN = 0.003


class Wandering(PyEnvironment):
    """Goes a random way; all it draws, in steps and resets, shows for ever after."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = np.random.default_rng(seed)
        self._place = np.zeros(3)

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((3,), np.float64)

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, ACTIONS - 1)

    def seed(self, seed: Any) -> Any:
        self._rng = np.random.default_rng(seed)
        return seed

    def _reset(self) -> TimeStep:
        self._place = self._rng.normal(size=3)
        return restart(self._place.copy())

    def _step(self, action: Any) -> TimeStep:
        self._place = 0.9 * self._place + self._rng.normal(size=3) + int(action)
        reward = float(np.float32(self._place.sum()))
        if self._rng.random() < 0.02:
            return termination(self._place.copy(), reward)
        return transition(self._place.copy(), reward)

    def _get_state(self) -> Any:
        return self._rng.bit_generator.state, self._place

    def _set_state(self, state: Any) -> None:
        self._rng.bit_generator.state, self._place = state


class Dealt(Wandering):
    """Cannot save its state; resets alone draw, so that a seed brings it back."""

    def _step(self, action: Any) -> TimeStep:
        self._place = 0.9 * self._place + np.roll(self._place, 1) + int(action)
        return transition(self._place.copy(), float(np.float32(self._place.sum())))

    def _get_state(self) -> Any:
        raise NotImplementedError


def limited(seed: int) -> PyEnvironment:
    return TimeLimit(Wandering(seed), 60)


def dealt(seed: int) -> PyEnvironment:
    return TimeLimit(Dealt(seed), 25)


def in_a_batch(seed: int) -> PyEnvironment:
    envs = [Wandering(2 * seed), limited(2 * seed + 1)]
    return BatchedPyEnvironment(envs, multithreading=False)


class Part(NamedTuple):
    """One pool, and how it is stepped.

    Attributes:
        name: What it is called.
        make: Makes an environment with a seed.
        options: Those of the pool.
        is_async: Whether rows go at their own pace.
        rows: How many rows an environment has.
    """

    name: str
    make: Callable[[int], PyEnvironment]
    options: dict[str, Any]
    is_async: bool = False
    rows: int = 1


FORKED: dict[str, Any] = {"start_method": "forkserver"}
PARTS = [
    Part("lockstep", limited, FORKED),
    Part("same step", limited, {**FORKED, "autoreset": AutoReset.SAME_STEP}),
    Part("resets of some rows", limited, {**FORKED, "autoreset": AutoReset.DISABLED}),
    Part("at their own pace", limited, FORKED, is_async=True),
    Part("without states", dealt, FORKED),
    Part("batches", in_a_batch, FORKED, rows=2),
    Part("links", limited, {"backend": "links"}),
]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="of all rows")
    parser.add_argument("--kills", type=int, default=400, help="of all parts")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    parser.add_argument("--json", type=Path, default=RESULTS)
    return parser.parse_args()


class Streams:
    """For each row a checksum of all it has shown, after each of its time steps."""

    def __init__(self, rows: int) -> None:
        self.sums: list[list[int]] = [[0] for _ in range(rows)]

    def add(self, rows: Any, time_step: TimeStep) -> None:
        leaves = [np.ascontiguousarray(leaf) for leaf in nest.flatten(time_step)]
        for place, row in enumerate(rows):
            total = self.sums[row][-1]
            for leaf in leaves:
                total = zlib.crc32(leaf[place].tobytes(), total)
            self.sums[row].append(total)

    def action(self, row: int) -> int:
        """Returns an action that depends on all that the row has shown."""
        return self.sums[row][-1] % ACTIONS


def first_difference(quiet: Streams, other: Streams) -> tuple[int, int] | None:
    """Returns a row that differs, and its first time step that does."""
    for row, (one, two) in enumerate(zip(quiet.sums, other.sums, strict=True)):
        for step, (mine, theirs) in enumerate(zip(one, two, strict=False)):
            if mine != theirs:
                return row, step
    return None


class Killer(threading.Thread):
    """Kills a worker a moment after it has been told to."""

    def __init__(self) -> None:
        super().__init__(name="killer", daemon=True)
        self.orders: queue.Queue[tuple[int, float] | None] = queue.Queue()

    def run(self) -> None:
        while (order := self.orders.get()) is not None:
            pid, pause = order
            time.sleep(pause)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def play(env: Any, part: Part, steps: int) -> Iterator[Streams]:
    """Steps a pool until its rows have made so many steps; yields after each call."""
    rows = env.num_envs if part.is_async else env.batch_size
    streams, everyone = Streams(rows), range(rows)
    if part.is_async:
        env.reset_async()
        for _ in range(2 * steps // rows):
            ids, time_step = env.recv(max(1, rows // 2))[:2]
            streams.add(ids.tolist(), time_step)
            actions = [streams.action(row) for row in ids.tolist()]
            env.send(np.array(actions, np.int64), ids)
            yield streams
        return
    time_step = env.reset()
    streams.add(everyone, time_step)
    for _ in range(steps // rows):
        ended = np.asarray(time_step.is_last())
        actions = np.array([streams.action(row) for row in everyone], np.int64)
        if env.autoreset is AutoReset.DISABLED and ended.any():
            if not ended.all():
                time_step = env.step(actions, ~ended)
                streams.add(np.flatnonzero(~ended).tolist(), _of(time_step, ~ended))
            time_step = env.reset(ended)
            streams.add(np.flatnonzero(ended).tolist(), _of(time_step, ended))
        else:
            time_step = env.step(actions)
            streams.add(everyone, time_step)
        yield streams


def _of(time_step: TimeStep, rows: np.ndarray) -> TimeStep:
    found: TimeStep = nest.map_structure(lambda leaf: leaf[rows], time_step)
    return found


def makers(part: Part, told: argparse.Namespace) -> list[Any]:
    count = told.num_envs // part.rows
    return [functools.partial(part.make, seed) for seed in range(count)]


def quiet_run(part: Part, told: argparse.Namespace, steps: int) -> Streams:
    """Plays in this process, where nothing happens."""
    order = part.options.get("autoreset", AutoReset.NEXT_STEP)
    with ParallelPyEnvironment(
        makers(part, told), backend="inline", autoreset=order
    ) as env:
        for streams in play(env, part._replace(is_async=False), steps):  # noqa: B007
            pass
    return streams


class Result(NamedTuple):
    """What came of one part.

    Attributes:
        steps: How many time steps its rows have shown.
        kills: How often a worker was killed.
        recovered: How many environments have continued.
        fallen_back: How many were lost and have not.
        repaired: How many episodes were seen to be cut.
        difference: The first difference, if there is one.
    """

    steps: int
    kills: int
    recovered: int
    fallen_back: int
    repaired: int
    difference: tuple[int, int] | None


def troubled_run(part: Part, told: argparse.Namespace, steps: int) -> Result:
    """Plays while workers are killed; one at a time, and none for one step twice."""
    drawn = random.Random(f"{told.seed} {part.name}")
    kills, calls = told.kills // len(PARTS), steps // told.num_envs
    due = sorted(drawn.sample(range(5, calls), min(kills, calls - 5)), reverse=True)
    options = dict(part.options)
    if options.get("backend") == "links":
        command = f"{shlex.quote(sys.executable)} -m envkit worker {{address}}"
        launcher = CommandLauncher([command] * told.workers)
        options["backend"] = LinkedBackend(launcher)
    kind = AsyncParallelPyEnvironment if part.is_async else ParallelPyEnvironment
    killer = Killer()
    killer.start()
    lost, repaired, killed = 0, 0, 0
    # How much rows must have shown before the next is killed.
    until: list[int] = []
    with kind(
        makers(part, told),
        start_serially=False,
        num_workers=told.workers,
        on_worker_failure=POLICY,
        **options,
    ) as env:
        for call, streams in enumerate(play(env, part, steps)):
            repaired += int(env.repaired.sum())
            if not due or call < due[-1]:
                continue
            if env.statistics().restarts < killed:
                continue
            # A worker that ends again over the same request is given up.
            shown = [len(each) for each in streams.sums]
            until = until or [number + 3 for number in shown]
            if killed and any(np.less(shown, until)):
                continue
            due.pop()
            worker = drawn.choice(env.workers)
            lost += len(worker.rows) // part.rows
            killed += 1
            until = []
            killer.orders.put((worker.pid, drawn.random() * WITHIN))
        if part.is_async:
            env.recv()  # Those of the last worker may not have come back yet.
        # The last kill may still be on its way.
        found = env.statistics()
        recovered = found.recovered
        if found.restarts < killed:
            lost -= len(worker.envs) // part.rows
            killed -= 1
    killer.orders.put(None)
    killer.join()
    difference = first_difference(quiet_run(part, told, steps * 2), streams)
    shown = sum(len(each) - 1 for each in streams.sums)
    return Result(shown, killed, recovered, lost - recovered, repaired, difference)


def main() -> None:
    told = parse()
    logging.getLogger("envkit").setLevel(logging.ERROR)
    console, start = Console(), time.monotonic()
    console.print(f"{told.kills} kills planned, seed {told.seed}")
    table = Table("pool", "steps", "kills", "continued", "fell back", "streams")
    results = {}
    for part in PARTS:
        result = troubled_run(part, told, told.steps // len(PARTS))
        results[part.name] = result
        differs = result.difference
        table.add_row(
            part.name,
            *(f"{number:,}" for number in result[:4]),
            "equal" if differs is None else "row {}, step {}".format(*differs),
        )
    console.print(table)
    figures = {
        "steps": sum(result.steps for result in results.values()),
        "kills": sum(result.kills for result in results.values()),
        "recovered": sum(result.recovered for result in results.values()),
        "fell back": sum(result.fallen_back for result in results.values()),
        "streams that differ": sum(
            result.difference is not None for result in results.values()
        ),
        "seconds": round(time.monotonic() - start, 1),
    }
    console.print(", ".join(f"{name} {value:,}" for name, value in figures.items()))
    told.json.parent.mkdir(parents=True, exist_ok=True)
    pools = {
        name: {
            "steps": result.steps,
            "kills": result.kills,
            "recovered": result.recovered,
            "fell back": result.fallen_back,
            "streams that differ": int(result.difference is not None),
        }
        for name, result in results.items()
    }
    facts = {**figures, "seed": told.seed, "pools": pools}
    told.json.write_text(json.dumps(facts, indent=1) + "\n")
    if reasons := list(_wrong(told, results)):
        sys.exit(f"failed with seed {told.seed}:\n  " + "\n  ".join(reasons))


def _wrong(told: argparse.Namespace, results: dict[str, Result]) -> Iterator[str]:
    paces = {part.name: part.is_async for part in PARTS}
    for name, result in results.items():
        # Rows that go at their own pace make most of their steps while one is lost.
        least = 1 if paces[name] else max(1, told.kills // len(PARTS) // 2)
        if result.difference is not None:
            row, step = result.difference
            yield f"{name}: row {row} differs from its time step {step} on"
        if result.fallen_back or result.repaired:
            yield f"{name}: {result.fallen_back} environments have not continued"
        if result.kills < least:
            yield f"{name}: only {result.kills} workers were killed"


if __name__ == "__main__":
    main()
