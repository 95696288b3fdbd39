"""What slow resets cost in lockstep, and how much of that can be hidden.

    python benchmarks/resets.py

Environments wait for 100 ms in a reset and for 1 ms in a step, as those do that talk to
a game or a browser; an episode has 50 steps. In lockstep each worker resets its eight
rows one after the other. With `StandbyEnvironment` the resets run beside the steps of
the episode before. In the second table the caller learns for a second whenever the
episodes have ended, and `eager_resets=True` resets meanwhile.
"""

from __future__ import annotations

import argparse
import functools
import time

import numpy as np
from environments import Resetting
from side_by_side import Contender, Report, opened, options, take_turns

from envkit import ParallelPyEnvironment, StandbyEnvironment

EPISODE = 50
STANDBY = "StandbyEnvironment"
HOW = ("plain resets", "eager_resets=True", STANDBY)


class Playing:
    """A pool that is stepped through whole episodes, and what it hides of resets."""

    def __init__(self, told: argparse.Namespace, how: str, think: float) -> None:
        maker = functools.partial(Resetting, told.reset / 1e3, told.step / 1e3, EPISODE)
        if how == STANDBY:
            maker = functools.partial(StandbyEnvironment, maker)
        self._env = ParallelPyEnvironment(
            [maker] * told.num_envs,
            num_workers=told.workers,
            eager_resets=how == "eager_resets=True",
        )
        self._has_pairs = how == STANDBY
        self._env.reset()
        self._actions = np.zeros(told.num_envs, np.int64)
        self._think = think
        self.hidden = ""

    def contender(self) -> Contender:
        return Contender(measure=self._measure, close=self._close)

    def _measure(self, seconds: float) -> float:
        """Returns the microseconds of a step, the begins of episodes among them."""
        steps, start, elapsed = 0, time.perf_counter(), 0.0
        while not steps or elapsed < seconds:
            for _ in range(EPISODE):
                self._env.step(self._actions)
            if self._think:
                time.sleep(self._think)
            self._env.step(self._actions)
            steps += EPISODE + 1
            elapsed = time.perf_counter() - start
        return 1e6 * elapsed / steps

    def _close(self) -> None:
        numbers = self._env.statistics()
        names = ("hidden_resets", "hidden_seconds", "awaited_seconds")
        if self._has_pairs:
            resets, hidden, awaited = (sum(self._env.access(name)) for name in names)
        else:
            resets, hidden, awaited = (getattr(numbers, name) for name in names)
        if hidden + awaited:
            self.hidden = (
                f"{resets} of {numbers.resets} resets, "
                f"{hidden / (hidden + awaited):.0%} of their time"
            )
        self._env.close()


def compare(report: Report, told: argparse.Namespace, think: float) -> dict:
    """Lets all kinds of pools play, and prints what they hide."""
    playing: dict[str, Playing] = {}

    def play(name: str) -> Contender:
        playing[name] = Playing(told, name, think)
        return playing[name].contender()

    with opened({name: functools.partial(play, name) for name in HOW}) as players:
        figures = take_turns(players, told.rounds, told.seconds)
    learns = f"learning {1e3 * think:g} ms an episode" if think else "without learning"
    title = f"{told.num_envs} rows, {told.workers} workers, {learns}"
    report.table(title, figures)
    for name, player in playing.items():
        if player.hidden:
            report.fact(f"{learns}, {name}: hidden", player.hidden)
    return figures


def main() -> None:
    parser = options(__doc__, rounds=5, seconds=1.0, num_envs=16, workers=2)
    parser.add_argument("--reset", type=float, default=100.0, help="ms of a reset")
    parser.add_argument("--step", type=float, default=1.0, help="ms of a step")
    parser.add_argument("--think", type=float, default=1000.0, help="ms of learning")
    told = parser.parse_args()
    report = Report("resets")
    figures = compare(report, told, 0.0)
    report.ratio(
        f"{STANDBY}: steps, over plain resets",
        figures["plain resets"],
        figures[STANDBY],
        at_least=2.5,
    )
    learning = compare(report, told, told.think / 1e3)
    for name in ("eager_resets=True", STANDBY):
        report.ratio(
            f"{name} beside learning: steps, over plain resets",
            learning["plain resets"],
            learning[name],
        )
    report.finish(told.json)


if __name__ == "__main__":
    main()
