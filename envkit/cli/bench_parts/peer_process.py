"""The process in which a peer is measured.

Other libraries start threads and processes, print, and may crash; none of that is to
reach the process that compares them.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

from envkit.cli.bench_parts.measuring import in_one_line, time_steps
from envkit.cli.bench_parts.peers import PEERS, Driven, envpool
from envkit.constructors import make
from envkit.errors import EnvkitError
from envkit.parallel.worker_main import end_with

__all__ = ["main"]

_BATCHES = 32


@dataclass(frozen=True)
class _Maker:
    """Makes the environment as one of Gymnasium's; it pickles."""

    target: str
    arguments: dict[str, Any]

    def __call__(self) -> Any:
        prefix, _, name = self.target.partition(":")
        if prefix == "gymnasium":
            import gymnasium

            return gymnasium.make(name, **self.arguments)
        from envkit.adapters.py_to_gymnasium import PyToGymnasium

        return PyToGymnasium(make(self.target, **self.arguments))


def main() -> None:
    """Measures the peer that standard input describes, and writes the figures."""
    order = json.load(sys.stdin)
    os.set_inheritable(order["lifeline"], False)
    end_with(order["lifeline"])
    answer = order["answer"]
    try:
        found: dict[str, Any] = _measured(order)
    except Exception as error:
        found = {"error": in_one_line(error)}
    with open(f"{answer}.part", "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(f"{answer}.part", answer)


def _measured(order: dict[str, Any]) -> dict[str, Any]:
    driven = _opened(order)
    try:
        figures = time_steps(
            driven.step, order["num_envs"], order["seconds"], order["rounds"]
        )
    finally:
        driven.close()
    return figures.as_data()


def _opened(order: dict[str, Any]) -> Driven:
    peer = PEERS[order["peer"]]
    count = order["num_envs"]
    maker = _Maker(order["target"], order["arguments"])
    if peer.drive is None:
        scheme, _, name = order["target"].partition(":")
        if scheme not in {"envpool", "gymnasium"}:
            raise EnvkitError("It has environments of its own, and not this one.")
        return envpool(name, count, _own_actions(name, count))
    actions = _actions(maker, count)
    if peer.has_workers:
        # It waits busily, and its own process does so on one of the CPUs.
        most = max(1, order["cpus"] - 1)
        workers = max(n for n in range(1, most + 1) if count % n == 0)
        return peer.drive([maker] * count, actions, workers=workers)
    return peer.drive([maker] * count, actions)


def _actions(maker: _Maker, count: int) -> list[Any]:
    import gymnasium
    import numpy as np

    env = maker()
    space = env.action_space
    env.close()
    spaces = gymnasium.spaces
    plain = (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)
    if not isinstance(space, plain):
        raise TypeError(f"An action is no array but {type(space).__name__}.")
    space.seed(0)
    return [
        np.stack([space.sample() for _ in range(count)]).astype(space.dtype)
        for _ in range(_BATCHES)
    ]


def _own_actions(name: str, count: int) -> list[Any]:
    import envpool as library
    import numpy as np

    space = library.make_spec(name).gymnasium_action_space
    return [
        np.stack([space.sample() for _ in range(count)]).astype(space.dtype)
        for _ in range(_BATCHES)
    ]
