"""`Stage`: replays the moves of a lost environment in a new one.

The new environment runs as any other, under the original request numbers, but on its
own rows that nothing else reads or writes. So everything that depends on running, such
as infos and the beginnings of episodes, comes out as before. And the pool's rows stay
untouched until it has compared them.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import numpy as np

from envkit.parallel.messages import (
    RemoteFailure,
    Replayed,
    ReplayPlan,
    Reply,
    Request,
)
from envkit.parallel.slab_layout import RESET
from envkit.parallel.worker.env_row import EnvRow
from envkit.parallel.worker.env_rows import EnvRows
from envkit.parallel.worker.runner import EnvRunner
from envkit.types import Array

__all__ = ["Stage", "answer"]

_LARGEST = 2**32 - 1
_TWO = np.uint32(2)


def answer(runner: EnvRunner, request: Request) -> Reply:
    """Replays the moves of lost environments in the environments of a runner."""
    stage = Stage(runner)
    first = runner.env_rows.host.job.first_env
    return Reply(
        request.number,
        tuple(
            stage.replay(runner.env_rows, env - first, plan)
            for env, plan in zip(request.envs, request.arguments, strict=True)
        ),
    )


class Stage:
    """The rows on which a worker's new environments replay the lost ones' moves."""

    def __init__(self, runner: EnvRunner) -> None:
        """Takes the runner of the new environments."""
        self._failures: deque[RemoteFailure] = deque()
        twin, self._rows = runner.beside(self._failures)
        self._env_rows, self._run, self._handle = twin.env_rows, twin.run, twin.handle
        self._job = twin.env_rows.host.job

    def replay(
        self, env_rows: EnvRows, index: int, plan: ReplayPlan
    ) -> Replayed | RemoteFailure:
        """Brings an environment to the state of a lost one.

        Args:
            env_rows: The rows where it will continue.
            index: The environment.
            plan: The plan.

        Returns:
            Where it stands then, or its exception.
        """
        host = env_rows.host
        self._failures.clear()
        try:
            failure = self._play(self._env_rows.all[index], plan)
        except BaseException as error:
            host.let_through(error)
            failure = RemoteFailure.of(
                error,
                env=self._job.first_env + index,
                command="replay()",
                pid=os.getpid(),
            )
        # If it is rebuilt here, it continues the lost environment's seeds.
        host.assume_seed(index, *plan.known_seed)
        if failure is not None:
            return failure
        env_rows.adopt(env_rows.all[index], self._env_rows)
        return self._result(self._env_rows.all[index], plan)

    def _play(self, env_row: EnvRow, plan: ReplayPlan) -> RemoteFailure | None:
        for name, value in plan.attributes:
            self._ask(env_row, "set_attr", (name, value))
        if plan.state is not None:
            self._ask(env_row, "set_state", (plan.state, plan.ended))
        elif plan.seed is not None:
            env_row.env.seed(plan.seed)
        block = np.arange(env_row.block.start, env_row.block.stop)
        for left in range(plan.resets - 1, -1, -1):
            number = np.uint32(plan.number - 2 * left & _LARGEST)
            if (failure := self._move(block, number, RESET)) is not None:
                return failure
        if not env_row.is_batch:
            return self._play_single(env_row, plan)
        notes = list(plan.notes)
        times, starts = np.unique(plan.times, return_index=True)
        stops = [*starts.tolist(), len(plan.times)][1:]
        for time, start, stop in zip(
            times.tolist(), starts.tolist(), stops, strict=True
        ):
            moves = slice(start, stop)
            rows = env_row.block.start + plan.rows[moves].astype(np.intp)
            numbers = plan.numbers[moves]
            # Options belong to the number of the request that comes next.
            self._stand(rows, numbers - _TWO)
            while notes and notes[0][0] <= time:
                self._ask(env_row, *notes.pop(0)[1:])
            self._rows.autoreset = int(plan.orders[start])
            columns = [column[moves] for column in plan.actions]
            self._rows.write_actions(columns, rows)
            failure = self._move(rows, numbers, plan.commands[moves])
            if failure is not None:
                return failure
        for _, method, argument in notes:
            self._ask(env_row, method, argument)
        return None

    def _play_single(self, env_row: EnvRow, plan: ReplayPlan) -> RemoteFailure | None:
        """Replays the moves of a single environment."""
        # Hot: there may be thousands of moves.
        slab, row = self._rows, env_row.rows[0]
        sequence, command, answered, _ = slab.words
        places = [column[row : row + 1] for column in slab.action_columns()]
        pairs = list(zip(places, plan.actions, strict=True))
        notes, one, run = list(plan.notes), [row], self._run
        columns = (plan.times, plan.numbers, plan.commands, plan.orders)
        for move, (time, number, asked, order) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            # Options belong to the number of the request that comes next.
            sequence[row] = answered[row] = number - 2 & _LARGEST
            while notes and notes[0][0] <= time:
                self._ask(env_row, *notes.pop(0)[1:])
            slab.order[0] = order
            for place, column in pairs:
                place[0] = column[move]
            command[row] = asked
            sequence[row] = number
            run(one)
            if self._failures:
                return self._failures[-1]
        for _, method, argument in notes:
            self._ask(env_row, method, argument)
        return None

    def _ask(self, env_row: EnvRow, method: str, argument: Any) -> None:
        """Asks the environment a question again; raises its exception."""
        env = self._job.first_env + env_row.index
        (result,) = self._handle(Request(0, method, (env,), (argument,))).results
        if isinstance(result, RemoteFailure):
            error = result.original()
            raise RuntimeError(f"{method}(): {result.message}") from error

    def _stand(self, rows: Array, numbers: Any) -> None:
        self._rows.stand_at(rows, numbers)

    def _move(self, rows: Array, numbers: Any, commands: Any) -> RemoteFailure | None:
        """Runs rows; returns the environment's exception, if any."""
        self._rows.ask_as(rows, numbers, commands)
        self._run(rows.tolist())
        return self._failures[-1] if self._failures else None

    def _result(self, env_row: EnvRow, plan: ReplayPlan) -> Replayed:
        rows, slab = np.arange(env_row.block.start, env_row.block.stop), self._rows
        is_known = np.full(len(rows), plan.resets > 0)
        is_known[plan.rows] = True
        if not len(plan.rows) and plan.state is not None:
            # It has not moved, so its time step comes from its state.
            time_step = getattr(env_row.env, "_current_time_step", None)
            if time_step is not None:
                self._write(env_row, time_step)
                is_known[:] = True
        return Replayed(
            tuple(is_known.tolist()),
            tuple(slab.read(rows)),
            tuple(slab.read_standing(rows)),
        )

    def _write(self, env_row: EnvRow, time_step: Any) -> None:
        writer = self._env_rows.writer
        slot = int(self._rows.slots(env_row.block)[0])
        if env_row.is_batch:
            writer.write_batch(env_row.block, time_step, slot)
        else:
            writer.write(env_row.rows[0], slot, time_step)
