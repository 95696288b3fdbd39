"""How long a batch takes whose environments have something to compute, by library.

    python benchmarks/games.py

Acrobot integrates four equations in Python. Pong is an Atari game: each step plays four
frames and returns a picture of 210 by 160 pixels, or of 84 by 84 with EnvPool's own.
Pools of workers are made for environments like these; parallel_step.py measures the
other extreme, a step of a few microseconds. The ideal is two processes that each loop
over half of the environments: it shows what a second CPU can gain on this machine.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import numpy as np
import peers
from apart import apart
from peers import installed
from side_by_side import Contender, Report, best, opened, options, take_turns

from envkit import ParallelPyEnvironment

WORKERS = 2


class Game(NamedTuple):
    """An environment of Gymnasium's, and how many of them are stepped."""

    target: str
    num_envs: int
    num_actions: int


# The module before the colon is what registers the name, in each process.
IDEAL = "ideal: two loops that never talk"
GAMES = [Game("Acrobot-v1", 64, 3), Game("ale_py:ALE/Pong-v5", 16, 6)]
OTHERS: dict[str, Callable[..., Contender]] = {
    "a loop over Gymnasium's": peers.loop,
    "Gymnasium AsyncVectorEnv": peers.gymnasium_async,
    "Stable-Baselines3 SubprocVecEnv": peers.stable_baselines3,
    "TorchRL ParallelEnv": peers.torchrl,
}
PUFFERS = ["PufferLib, 1 worker", "PufferLib, 2 workers"]
ENVPOOL = "EnvPool (its own, in C++)"


def ours(game: Game, actions: list[np.ndarray]) -> Contender:
    env = ParallelPyEnvironment(
        [f"gymnasium:{game.target}"] * game.num_envs, num_workers=WORKERS
    )
    env.reset()
    batches = itertools.cycle(actions)
    return Contender(lambda: env.step(next(batches)), env.close)


def compare(report: Report, game: Game, rounds: int, seconds: float) -> None:
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, game.num_actions, game.num_envs) for _ in range(50)]
    makers = [functools.partial(gymnasium.make, game.target)] * game.num_envs
    contenders = {
        "envkit": functools.partial(ours, game, actions),
        IDEAL: functools.partial(
            apart, makers[0], game.num_envs, actions, WORKERS, peers.loop
        ),
    }
    for name, play in OTHERS.items():
        contenders[name] = installed(play, makers, actions)
    for workers, name in enumerate(PUFFERS, 1):
        contenders[name] = installed(peers.pufferlib, makers, actions, workers=workers)
    name = game.target.rpartition("/")[2]
    contenders[ENVPOOL] = installed(peers.envpool, makers, actions, name=name)
    with opened(contenders) as players:
        figures = take_turns(players, rounds, seconds)
    report.table(f"one step of {game.num_envs} of {name}, {WORKERS} workers", figures)
    for other in (*OTHERS, best(figures, PUFFERS), ENVPOOL, IDEAL):
        claim = f"as fast as {other}, {game.num_envs} of {name}"
        report.ratio(claim, figures[other], figures["envkit"])


def main() -> None:
    told = options(__doc__, rounds=7, seconds=0.4).parse_args()
    report = Report("games")
    for game in GAMES:
        compare(report, game, told.rounds, told.seconds)
    report.finish(told.json)


if __name__ == "__main__":
    main()
