"""The ideal: environments looped over in processes that never talk."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from side_by_side import Contender, microseconds


def apart(
    make: Callable[[], Any],
    num_envs: int,
    actions: Sequence[np.ndarray],
    workers: int = 2,
) -> Contender:
    """Starts processes with so many envkit environments in all, and the actions."""
    return _Apart(make, num_envs, actions, workers).contender()


class _Apart:
    def __init__(
        self,
        make: Callable[[], Any],
        num_envs: int,
        actions: Sequence[np.ndarray],
        workers: int,
    ) -> None:
        fork = multiprocessing.get_context("fork")
        self._barrier = fork.Barrier(workers)
        self._pipes, self._processes = [], []
        for rows in np.array_split(np.arange(num_envs), workers):
            mine, its = fork.Pipe()
            part = [batch[rows] for batch in actions]
            process = fork.Process(
                target=self._run, args=(its, make, part), daemon=True
            )
            process.start()
            self._pipes.append(mine)
            self._processes.append(process)

    def contender(self) -> Contender:
        return Contender(close=self._close, measure=self._measure)

    def _run(self, pipe: Any, make: Callable[[], Any], actions: list[Any]) -> None:
        envs = [make() for _ in actions[0]]
        for env in envs:
            env.reset()
        batches = itertools.cycle(actions)

        def step() -> None:
            for env, action in zip(envs, next(batches), strict=True):
                env.step(action)

        while seconds := pipe.recv():
            # All at once, as it would be with a pool.
            self._barrier.wait()
            pipe.send(microseconds(step, seconds))

    def _measure(self, seconds: float) -> float:
        """Returns the time in which all the environments are stepped once."""
        for pipe in self._pipes:
            pipe.send(seconds)
        # Each part is done at a rate of its own.
        rates = [1 / pipe.recv() for pipe in self._pipes]
        return len(rates) / sum(rates)

    def _close(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(0)
            process.join()
