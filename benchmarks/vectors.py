"""How long an environment of yours takes to step in the vectors of other libraries.

    python benchmarks/vectors.py gymnasium:Acrobot-v1 --num-envs 64
    python benchmarks/vectors.py my_package.envs:Maze

A target of Gymnasium is stepped as it is, any other one through `PyToGymnasium`;
EnvPool takes part where it has an environment of the same name. `envkit bench` finds
out which of envkit's own ways is the fastest.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import peers
from peers import installed
from side_by_side import Contender, Report, opened, options, take_turns

import envkit
from envkit.adapters import PyToGymnasium


@dataclass(frozen=True)
class Maker:
    """Makes the environment as one of Gymnasium's; it pickles."""

    target: str

    def __call__(self) -> Any:
        scheme, _, name = self.target.partition(":")
        if scheme == "gymnasium":
            return gymnasium.make(name)
        return PyToGymnasium(envkit.make(self.target))


def batches(make: Maker, num_envs: int) -> list[np.ndarray]:
    env = make()
    space = env.action_space
    env.close()
    space.seed(0)
    return [np.stack([space.sample() for _ in range(num_envs)]) for _ in range(50)]


def ours(target: str, actions: list[np.ndarray]) -> Contender:
    env = envkit.make(target, num_envs=len(actions[0]))
    env.reset()
    rounds = itertools.cycle(actions)
    return Contender(lambda: env.step(next(rounds)), env.close)


def contenders(target: str, num_envs: int) -> dict[str, Any]:
    make = Maker(target)
    given = [make] * num_envs, batches(make, num_envs)
    found = {
        "envkit": functools.partial(ours, target, given[1]),
        "a loop over Gymnasium's": functools.partial(peers.loop, *given),
        "Gymnasium SyncVectorEnv": functools.partial(peers.gymnasium_sync, *given),
        "Gymnasium AsyncVectorEnv": functools.partial(peers.gymnasium_async, *given),
        "Stable-Baselines3 SubprocVecEnv": installed(peers.stable_baselines3, *given),
        "PufferLib, 2 workers": installed(peers.pufferlib, *given, workers=2),
        "TorchRL ParallelEnv": installed(peers.torchrl, *given),
    }
    if importlib.util.find_spec("envpool"):
        import envpool

        name = target.partition(":")[2]
        if name in envpool.list_all_envs():
            found["EnvPool (its own, in C++)"] = functools.partial(
                peers.envpool, *given, name=name, threads=None
            )
    return found


def main() -> None:
    parser = options(__doc__, rounds=5, seconds=0.4, num_envs=64)
    parser.add_argument("target", help="what envkit.make takes")
    told = parser.parse_args()
    report = Report("vectors")
    with opened(contenders(told.target, told.num_envs)) as players:
        figures = take_turns(players, told.rounds, told.seconds)
    report.table(f"one step of {told.num_envs} times {told.target}", figures)


if __name__ == "__main__":
    main()
