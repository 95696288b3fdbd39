"""`Inbox`: what an asynchronous pool has been asked, and what it has answered.

EnvPool answers in batches, and says nothing before one is full. Where fewer rows owe an
answer than a batch has, spare environments are reset to fill it.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np

from envkit.adapters.envpool_parts.late_answers import LateAnswers
from envkit.adapters.envpool_parts.pool_calls import PoolCalls
from envkit.adapters.envpool_parts.pool_rows import Answer, PoolRows, has_true
from envkit.errors import CallOrderError
from envkit.time_step import StepType, TimeStep
from envkit.types import Array
from envkit.wording import counted

__all__ = ["Inbox", "joined", "joined_infos"]


class Inbox:
    """Asks rows of a pool, and keeps what they answer until it is received."""

    def __init__(
        self, pool: Any, answers: PoolRows, name: str, rows: int, batch: int
    ) -> None:
        """Begins with a pool that nobody has asked anything.

        Args:
            pool: The pool.
            answers: How to read what it answers.
            name: What to call it in an error.
            rows: How many of its environments are rows; the others are spares.
            batch: How many it answers at a time.
        """
        self._calls = PoolCalls(pool, 0)
        self._read = answers.read
        self._part = answers.part
        self._name = name
        self._rows = rows
        self._batch = batch
        self._receiver = LateAnswers(self._calls.recv)
        # How many environments owe EnvPool an answer, and which of the spares do.
        self._out = 0
        self._spares = np.arange(rows, int(pool.config["num_envs"]), dtype=np.int32)
        self._spares_out = np.zeros(self._spares.size, bool)
        self._has_spares_out = False
        # What has been answered and not received, the oldest first.
        self._ready: deque[Answer] = deque()
        self._count = 0

    def begin(self, rows: Array) -> None:
        """Asks rows to begin an episode."""
        self._out += rows.size
        self._calls.reset(rows)

    def send(self, actions: Array, rows: Array) -> None:
        """Asks rows to take an action each."""
        self._out += rows.size
        self._calls.send(actions, rows)

    def close(self) -> None:
        """Waits for what EnvPool is being waited for."""
        self._receiver.close()

    def receive(self, wanted: int, timeout: float | None) -> list[Answer]:
        """Returns so many rows, or those that are ready when the time is over."""
        # Hot: called once per batch of any size. Most ask for a batch of EnvPool's own.
        if (
            wanted == self._batch <= self._out
            and timeout is None
            and not self._count
            and not self._has_spares_out
            and self._receiver.is_idle
        ):
            answer = self._read(self._receiver.get_now())
            self._out -= wanted
            return [answer]
        if self._count < wanted:
            self._wait(wanted, timeout)
        if self._count and self._ready[0].rows.size == wanted:
            self._count -= wanted
            return [self._ready.popleft()]
        return self._take(min(wanted, self._count))

    def _wait(self, wanted: int, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._count < wanted:
            if self._receiver.was_interrupted:
                raise CallOrderError(
                    f"{self._name} was interrupted while it answered, and what it "
                    "answered is lost. Close this environment and make another."
                )
            if self._out < self._batch:
                self._fill_up(wanted)
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            result = self._receiver.get(left)
            if result is None:
                return
            self._note(self._read(result[0]))

    def _fill_up(self, wanted: int) -> None:
        """Asks spares to complete a batch for which too few rows owe an answer."""
        missing = self._batch - self._out
        idle = self._spares[~self._spares_out][:missing]
        if idle.size < missing:
            raise CallOrderError(
                f"recv() was called for {counted(wanted, 'environment')}, and EnvPool "
                f"answers {self._batch} at a time, of which {self._out} have been "
                "asked. Ask more of them first, or let AsyncEnvPool make the pool, "
                "with spares: AsyncEnvPool('CartPole-v1', num_envs=8, batch_size=4)."
            )
        self._spares_out[idle - self._rows] = self._has_spares_out = True
        self.begin(idle)

    def _note(self, answer: Answer) -> None:
        """Keeps what rows have answered, and forgets what spares have."""
        # Hot: called once per batch.
        self._out -= answer.rows.size
        if self._has_spares_out:
            is_row = answer.rows < self._rows
            self._spares_out[answer.rows[~is_row] - self._rows] = False
            self._has_spares_out = has_true(self._spares_out)
            answer = self._part(answer, np.flatnonzero(is_row))
        if answer.rows.size:
            self._ready.append(answer)
            self._count += answer.rows.size

    def _take(self, wanted: int) -> list[Answer]:
        """Takes so many of the rows that are ready, the oldest first."""
        taken = []
        self._count -= wanted
        while wanted:
            answer = self._ready.popleft()
            if answer.rows.size > wanted:
                self._ready.appendleft(self._part(answer, slice(wanted, None)))
                answer = self._part(answer, slice(None, wanted))
            taken.append(answer)
            wanted -= answer.rows.size
        return taken


def joined(
    answers: list[Answer], reader: PoolRows
) -> tuple[Array, TimeStep, Array | None]:
    """Returns which rows have answered, their time step, and where one is a `LAST`."""
    # Hot: called once per batch of any size. Nearly always there is one.
    if len(answers) == 1:
        ((rows, time_step, ended, _),) = answers
        return rows, time_step, ended
    flatten, unflatten = reader.structure.flatten, reader.structure.unflatten
    parts = [reader.blank(0), *(answer.time_step for answer in answers)]
    columns = zip(*(flatten(part.observation) for part in parts), strict=True)
    time_step = TimeStep(
        np.concatenate([part.step_type for part in parts]),
        np.concatenate([part.reward for part in parts]),
        np.concatenate([part.discount for part in parts]),
        unflatten([np.concatenate(column) for column in columns]),
    )
    nobody = np.zeros(0, np.int32)
    rows = np.concatenate([nobody, *(answer.rows for answer in answers)])
    return rows, time_step, time_step.step_type == StepType.LAST


def joined_infos(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns infos of some rows and of others as those of all of them."""
    if not infos:
        return {}
    return {
        key: joined_infos([part[key] for part in infos])
        if isinstance(value, dict)
        else np.concatenate([part[key] for part in infos])
        for key, value in infos[0].items()
    }
