"""What is possible: processes that loop over environments, and do nothing besides.

Those that never talk are the ideal. Those that are rung for each step, and of which the
last rings back, take what a machine needs to wake processes and to be woken.
"""

from __future__ import annotations

import functools
import itertools
import mmap
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from side_by_side import Contender, microseconds

from envkit.parallel.system.shared_memory import full_fence

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


def rung_loops(
    makers: Sequence[Callable[[], Any]],
    actions: Actions,
    workers: int = 2,
    loop: Loop | None = None,
) -> Contender:
    """Starts processes that step their part of the environments for each ring."""

    def step_of(rows: np.ndarray) -> Callable[[], object]:
        part = [batch[rows] for batch in actions]
        return (loop or _loop)([makers[row] for row in rows], part).step

    parts = np.array_split(np.arange(len(makers)), workers)
    return rung([functools.partial(step_of, rows) for rows in parts])


def rung(steps: Sequence[Callable[[], Callable[[], object]]]) -> Contender:
    """Starts processes that do something whenever they are rung; the last rings back.

    Args:
        steps: By process, what makes there what it does in a step.
    """
    fork = multiprocessing.get_context("fork")
    answers = mmap.mmap(-1, len(steps))
    bells, done = [os.eventfd(0) for _ in steps], os.eventfd(0)

    def serve(index: int) -> None:
        step = steps[index]()
        while os.eventfd_read(bells[index]) == 1:
            step()
            answers[index] = 1
            full_fence()
            if answers.find(b"\0", 0) < 0:
                os.eventfd_write(done, 1)

    processes = [
        fork.Process(target=serve, args=(index,), daemon=True)
        for index in range(len(steps))
    ]
    for process in processes:
        process.start()

    def step() -> None:
        answers[:] = bytes(len(steps))
        for bell in bells:
            os.eventfd_write(bell, 1)
        # Two that were the last at the same moment have both rung.
        while answers.find(b"\0", 0) >= 0:
            os.eventfd_read(done)

    def close() -> None:
        for bell in bells:
            os.eventfd_write(bell, 2)
        for process in processes:
            process.join()
        for fd in (*bells, done):
            os.close(fd)
        answers.close()

    return Contender(step, close)


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
