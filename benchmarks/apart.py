"""The ideal: environments looped over in processes that never talk."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from side_by_side import Contender, microseconds

Actions = Sequence[np.ndarray]
Loop = Callable[[Sequence[Callable[[], Any]], Actions], Contender]


def apart(
    make: Callable[[], Any] | Sequence[Callable[[], Any]],
    num_envs: int,
    actions: Actions,
    workers: int = 2,
    loop: Loop | None = None,
) -> Contender:
    """Starts processes with so many environments in all, and the actions.

    Args:
        make: Makes an environment; or what makes each of them.
        num_envs: How many there are in all.
        actions: The batches of actions to play over and over.
        workers: How many processes there are.
        loop: Makes what steps the environments of a process; `None` for a loop over
            environments of envkit.
    """
    makers = [make] * num_envs if callable(make) else make
    return _Apart(makers, actions, workers, loop or _loop).contender()


def _loop(makers: Sequence[Callable[[], Any]], actions: Actions) -> Contender:
    envs = [make() for make in makers]
    for env in envs:
        env.reset()
    batches = itertools.cycle(actions)

    def step() -> None:
        for env, action in zip(envs, next(batches), strict=True):
            env.step(action)

    return Contender(step)


class _Apart:
    def __init__(
        self,
        makers: Sequence[Callable[[], Any]],
        actions: Actions,
        workers: int,
        loop: Loop,
    ) -> None:
        fork = multiprocessing.get_context("fork")
        self._barrier = fork.Barrier(workers)
        self._pipes, self._processes = [], []
        for rows in np.array_split(np.arange(len(makers)), workers):
            mine, its = fork.Pipe()
            part = [batch[rows] for batch in actions]
            process = fork.Process(
                target=self._run,
                args=(its, loop, [makers[row] for row in rows], part),
                daemon=True,
            )
            process.start()
            self._pipes.append(mine)
            self._processes.append(process)

    def contender(self) -> Contender:
        return Contender(close=self._close, measure=self._measure)

    def _run(
        self,
        pipe: Any,
        loop: Loop,
        makers: Sequence[Callable[[], Any]],
        actions: Actions,
    ) -> None:
        step = loop(makers, actions).step
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
