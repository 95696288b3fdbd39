"""`EnvRows`: a worker's environments on their rows, and the state of their episodes.

Here is the common part of all ways to run rows: resetting, rebuilding and checking
environments, and refusing answers that break the order of an episode.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit._internal.direct_row import ENDED, DirectRow, EpisodeEdge
from envkit.batches import hand_options
from envkit.errors import SpecError
from envkit.losses import may_lose
from envkit.parallel.messages import RemoteFailure, WorkerJob
from envkit.parallel.slab import Slab, view_of
from envkit.parallel.slab_layout import (
    AWAITED_NS,
    HIDDEN_NS,
    HIDDEN_RESETS,
    LOST,
    NEXT_STEP_ORDER,
    REBUILD,
    RESET,
    RESETS,
    SAME_STEP_ORDER,
    SAME_STEP_SLOT,
    STEP,
)
from envkit.parallel.worker.direct_rows import DirectRows, DirectStep
from envkit.parallel.worker.eager_resets import BegunState, EagerResets
from envkit.parallel.worker.env_row import EnvRow, SentOptions, Step
from envkit.parallel.worker.environments import EnvironmentHost, end_fork
from envkit.parallel.worker.infos import InfoNotes
from envkit.parallel.worker.write_rows import MisfitError, ObjectSink, RowWriter
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["EnvRows"]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST

_COMMANDS = {STEP: "step", RESET: "reset", REBUILD: "rebuild"}


class EnvRows:
    """Runs the environments of one worker on the rows of its block.

    Attributes:
        host: The host of the environments.
        slab: The slab.
        all: The environments with their rows, in order.
        of_row: The same, by row of the block.
        steps: By row of the block, the function that its next STEP calls; for a batch,
            only in its first row.
        ended: By row of the block, whether the next STEP begins an episode.
        doubted: Environments whose step Ctrl-C interrupted, so that an episode may have
            ended unseen.
        direct: The rows that need no time steps.
        writer: Writes time steps into rows.
        infos: Keeps and marks infos.
        meters: The worker's counts.
        eager: The episodes that began before their rows were asked.
    """

    def __init__(
        self,
        host: EnvironmentHost,
        slab: Slab,
        worker: int,
        send_objects: ObjectSink | None = None,
        may_write: Callable[[], None] | None = None,
        first_row: int = 0,
    ) -> None:
        """Gives every environment of a host its rows.

        Args:
            host: The host of the environments.
            slab: The slab.
            worker: The index of the worker in the slab.
            send_objects: Sends the leaves that the slab cannot hold.
            may_write: Called before each write; raises if writing is forbidden.
            first_row: The pool's row that is the first of the slab.
        """
        self.host, self.slab = host, slab
        self._job: WorkerJob = host.job
        self._first_row = first_row
        self._first, stop = slab.layout.blocks[worker]
        rows = range(self._first, stop)
        self.all: list[EnvRow] = []
        for index in range(len(host.envs)):
            place = self.all[-1].rows.stop - self._first if self.all else 0
            self.all.append(EnvRow(host.envs, index, self._first, place))
        self.of_row = [env_row for env_row in self.all for _ in env_row.rows]
        self.steps: list[Step] = [_missing] * len(rows)
        self.ended = np.ones(len(rows), bool)
        self.doubted = np.zeros(len(rows), bool)
        self._is_in_reset = False
        self._ended = view_of(self.ended)
        self._resets = [self._resetting(env_row) for env_row in self.of_row]
        self.eager = EagerResets(len(rows), is_eager=self._job.options.eager_resets)
        self._begins: list[DirectStep] = [
            functools.partial(self._begin_directly, env_row) for env_row in self.of_row
        ]
        is_sure = self._job.options.validate != "always" and may_write is None
        self.direct = DirectRows(slab, rows, host.forked, is_sure)
        for env_row in self.all:
            self._renew(env_row)
        self.writer = RowWriter(slab, send_objects, may_write, self.name_of, first_row)
        self.infos = InfoNotes(slab, host, may_write, self.name_of)
        self.meters = slab.counters(worker)
        self._sequence, self._command, self._answered, self._has_info = slab.words
        self._structure = slab.layout.action
        self._action_is_leaf = not nest.is_nested(self._structure.template)
        # Indexing scalars of these dtypes returns objects that are no arrays and fit no
        # spec.
        self._as_0d_arrays = [
            leaf
            for leaf, spec in enumerate(self._structure.leaves)
            if spec.shape == ()
            and not spec.dtype.hasobject
            and (spec.dtype.kind not in "iufc" or not spec.dtype.isnative)
        ]

    def name_of(self, row: int) -> str:
        """Names the environment of a row."""
        return f"env {self._job.first_env + self.of_row[row - self._first].index}"

    def ended_of(self, env_row: EnvRow) -> Array:
        """Returns a mask of the rows whose next step begins an episode."""
        return self.ended[env_row.place : env_row.place + len(env_row.rows)]

    def _renew(self, env_row: EnvRow) -> None:
        """Restores an environment's own step, and checks it like a new environment."""
        env_row.own_step = self.steps[env_row.place] = self._checking_step(env_row)
        env_row.is_reset_checked = env_row.is_step_checked = (
            self._job.options.validate == "never"
        )
        env_row.may_lose = may_lose(env_row.env)
        if not env_row.is_batch:
            self.direct.ask(env_row.place, env_row.env)

    def rebuild(self, env_row: EnvRow) -> None:
        """Rebuilds an environment."""
        self.eager.drop(env_row.place)
        self.host.rebuild(env_row.index)
        self._renew(env_row)

    def adopt(self, env_row: EnvRow, other: EnvRows) -> None:
        """Takes over an environment from other rows, in its current state."""
        twin = other.all[env_row.index]
        self.ended_of(env_row)[:] = other.ended_of(twin)
        step = other.steps[twin.place]
        if step is twin.own_step:
            self.steps[env_row.place] = env_row.own_step
        elif isinstance(step, _Raising):
            self.steps[env_row.place] = step
        elif self.ended[env_row.place] and not env_row.is_batch:
            self.let_begin_after_last(env_row)
        self.infos.adopt(env_row.index, other.infos)
        self.eager.adopt(env_row.place, other.eager, twin.place)
        if not env_row.is_batch:
            self.direct.doubt(env_row.place)

    def adopt_all(self, other: EnvRows) -> None:
        """Takes over every environment from the previous rows, in its current state."""
        for env_row in self.all:
            twin = other.all[env_row.index]
            env_row.options = twin.options
            env_row.is_reset_checked = twin.is_reset_checked
            env_row.is_step_checked = twin.is_step_checked
            if env_row.is_step_checked:
                env_row.own_step = self.steps[env_row.place] = env_row.env.step
            self.adopt(env_row, other)
        self.doubted[:] = other.doubted[: len(self.doubted)]

    def make_plain(self) -> None:
        """Makes every row ordinary, with a time step now and after the next step."""
        for env_row in self.all:
            if not env_row.is_batch:
                self.direct.leave(env_row.place)

    # Answers.

    def actions(self, rows: Sequence[int]) -> Iterable[NestedArray]:
        """Returns copies of the rows' actions."""
        # Hot: one copy for all rows, which environments may keep their part of.
        is_all = len(rows) == len(self.of_row)
        chosen = slice(self._first, self._first + len(rows)) if is_all else rows
        columns = self.slab.read_actions(chosen)
        for leaf in self._as_0d_arrays:
            columns[leaf] = _0d_arrays(columns[leaf])
        if self._action_is_leaf:
            return columns[0]  # type: ignore[no-any-return]  # an array
        if not columns:
            return (self._structure.unflatten([]) for _ in rows)
        return map(self._structure.unflatten, zip(*columns, strict=True))

    def step(self, row: int) -> TimeStep:
        """Steps a single environment with its action."""
        (action,) = self.actions([row])
        return self.steps[row - self._first](action)

    def show(self, row: int, slot: int, answer: TimeStep | EpisodeEdge) -> None:
        """Writes an answer of a single environment that is not an ordinary `MID`.

        If possible, its next step is made without a time step.
        """
        # Hot in asynchronous use: called once per row and step.
        place = row - self._first
        if isinstance(answer, EpisodeEdge):
            self._has_info[row] = 0
            self._handle_direct_edge(place, slot, answer)
            return
        self.direct.forget(place)
        if self.host.forked:
            end_fork(self.host.forked)
        self.writer.write(row, slot, answer)
        if self.infos.wanted[0]:
            self.infos.record(self.of_row[place].index, row, answer)
        if answer.step_type is not _MID:
            self.handle_edge(row, answer)
        if self.direct.are_offered:
            self._enter_directly(place)

    def failure(self, env_row: EnvRow, row: int, error: BaseException) -> RemoteFailure:
        """Returns the failure that reports an exception to the pool.

        Raises the exception if it belongs to the worker, such as KeyboardInterrupt.

        Args:
            env_row: The environment that raised it.
            row: One of the rows that were asked.
            error: The exception.
        """
        self.let_through(env_row, error)
        kind = "raised"
        if isinstance(error, MisfitError) and error.__cause__ is not None:
            kind, error = "misfit", error.__cause__
        command = _COMMANDS.get(self._command[row], "")
        if self._is_in_reset:
            self._is_in_reset = False
            command = "reset" if command == "step" else command
        return RemoteFailure.of(
            error,
            kind=kind,
            env=self._job.first_env + env_row.index,
            command=command,
            pid=os.getpid(),
        )

    # Episodes.

    def has_ended(self, row: int) -> bool:
        """Returns True if a row's next step begins an episode, whatever the action."""
        place = row - self._first
        return bool(self._ended[place]) and not self.of_row[place].continues

    def handle_edge(self, row: int, time_step: TimeStep) -> None:
        """Records the beginning or end of an episode, if this time step is one."""
        step_type = time_step.step_type
        place = row - self._first
        env_row = self.of_row[place]
        if env_row.may_lose and step_type == _LAST:
            self.mark_losses(env_row)
        if step_type is _FIRST and self.ended[place]:
            self.ended[place] = False
        elif step_type != _LAST:
            is_amid = step_type == _FIRST and not self.ended[place]
            is_wrong = is_amid and not self.doubted[place]
            if is_wrong or step_type not in (_FIRST, _MID):
                self.refuse_type(row, step_type, "step", "1 (MID) or 2 (LAST)")
            self.ended[place] = self.doubted[place] = False
        elif env_row.continues:
            # A FIRST may follow, but only the wrapped environment knows when.
            self.ended[place] = True
        elif self.slab.autoreset == SAME_STEP_ORDER:
            self._begin_at_once(env_row, row, time_step)
        else:
            self.ended[place] = True
            self.let_begin_after_last(env_row)
            self.schedule(env_row)

    def mark_losses(self, env_row: EnvRow, rows: Array | None = None) -> None:
        """Marks the ends that an environment has made up because it lost something.

        Args:
            env_row: The environment.
            rows: The mask of its rows that have ended, for a batch.
        """
        # Hot: called at the end of each episode, which is nearly always a real one.
        repaired = env_row.env.repaired
        if not (
            env_row.is_batch or repaired or self._has_info[env_row.rows.start] & LOST
        ):
            return
        lost = np.atleast_1d(repaired)
        marks = self.slab.info_marks[env_row.block] & ~np.uint8(LOST)
        marks[lost] |= LOST
        ended = np.ones(len(lost), bool) if rows is None else rows
        self.slab.mark_infos(env_row.rows.start + ended.nonzero()[0], marks[ended])

    def let_begin_after_last(self, env_row: EnvRow) -> None:
        """Makes the next step of an environment begin an episode."""
        if not (env_row.repeats_last or env_row.continues):
            self.steps[env_row.place] = self._resets[env_row.place]

    def _resetting(self, env_row: EnvRow) -> Step:
        """Returns a step that resets an environment and ignores the action."""
        return lambda action: self.begin(env_row, RESET)

    def _begin_at_once(
        self, env_row: EnvRow, row: int, last: TimeStep | None = None
    ) -> None:
        """Begins the next episode in the step that ended the previous one.

        Args:
            env_row: The environment.
            row: Its row.
            last: The `LAST`; `None` if it was written without a time step.
        """
        self.infos.keep_final(env_row.index, row)
        try:
            self.meters[RESETS] += 1
            first = self._first_at_once(env_row)
            self.ended[env_row.place] = False
            if first is None:
                return
            self.writer.write(row, SAME_STEP_SLOT, first)
        except BaseException as error:
            first = self._not_begun(env_row, row, last, error)
        if self.infos.wanted[0]:
            self.infos.record_begun(env_row.index, row, first)

    def _first_at_once(self, env_row: EnvRow) -> TimeStep | None:
        """Resets an environment; returns `None` if its `FIRST` is written already."""
        inside, place = self._usual_begin(env_row), env_row.place
        if inside is None:
            return self.reset(env_row)
        self._is_in_reset = True
        where = self.direct.place_of(place, SAME_STEP_SLOT)
        begun = inside.begin(*where, bool(self.infos.wanted[0]))
        if isinstance(begun, EpisodeEdge):
            self._is_in_reset = False
            self.direct.begin(place, SAME_STEP_SLOT)
            return None
        self.direct.forget(place)
        end_fork(self.host.forked)
        self.check_begun(env_row, begun)
        self._is_in_reset = False
        return begun

    def _not_begun(
        self, env_row: EnvRow, row: int, last: TimeStep | None, error: BaseException
    ) -> TimeStep:
        """Repeats and returns the `LAST`, because resetting the environment failed."""
        self.host.let_through(error)
        self.direct.leave(env_row.place)
        if last is None:
            last = env_row.env.current_time_step()
        # The end of the episode is still a valid answer; the next step raises the
        # exception of the reset.
        self.writer.write(row, SAME_STEP_SLOT, last)
        self.fail_next(env_row, error)
        return last

    def begin(self, env_row: EnvRow, command: int) -> TimeStep:
        """Begins an episode of a single environment."""
        self.meters[RESETS] += 1
        self.infos.forget(env_row.index)
        if command == REBUILD:
            self.rebuild(env_row)
        begin = self._begin_early if self.eager.is_used else self.reset
        time_step = begin(env_row)
        # Not earlier: if the reset raises, the previous episode has still ended.
        self.steps[env_row.place] = env_row.own_step
        return time_step

    def _begin_directly(
        self, env_row: EnvRow, action: Any, place: Any, rewards: Any, wants_info: bool
    ) -> TimeStep | EpisodeEdge | None:
        """Does the same as `begin`, for a direct row after a `LAST`."""
        row = self._usual_begin(env_row)
        if row is None or self.eager.is_used:
            return self.begin(env_row, RESET)
        self.meters[RESETS] += 1
        self.infos.forget(env_row.index)
        self._is_in_reset = True
        begun = row.begin(place, rewards, wants_info)
        if not isinstance(begun, EpisodeEdge):
            self.check_begun(env_row, begun)
        self._is_in_reset = False
        self.steps[env_row.place] = env_row.own_step
        return begun

    def _usual_begin(self, env_row: EnvRow) -> DirectRow | None:
        """Returns the direct row of an environment, if it can begin an episode."""
        is_usual = env_row.options is None and env_row.is_reset_checked
        return self.direct.inside(env_row.place) if is_usual else None

    def _handle_direct_edge(self, place: int, slot: int, edge: EpisodeEdge) -> None:
        """Does the same as `handle_edge`, for a direct row."""
        direct, env_row = self.direct, self.of_row[place]
        if edge is not ENDED:
            self._ended[place] = False
            direct.begin(place, slot)
            return
        marks = direct.end(place, slot)
        if self.infos.wanted[0]:
            self._has_info[self._first + place] = marks
        if env_row.may_lose:
            self.mark_losses(env_row)
        if self.slab.autoreset == SAME_STEP_ORDER:
            self._begin_at_once(env_row, env_row.rows.start)
            if direct.steps[place] is None:
                self._enter_directly(place)
            return
        self._ended[place] = True
        # Direct rows never repeat their `LAST`.
        self.steps[place] = self._resets[place]
        direct.begin_next(place, self._begins[place])
        self.schedule(env_row)

    def _enter_directly(self, place: int) -> None:
        """Makes a row direct, if its environment is in the middle of an episode."""
        # Hot in asynchronous use: called once per row and step.
        env_row = self.of_row[place]
        is_amid = not self._ended[place] and self.steps[place] is env_row.own_step
        if is_amid and env_row.is_step_checked:
            self.direct.enter(place, env_row.env)

    def reset(self, env_row: EnvRow) -> TimeStep:
        """Resets an environment as a whole; returns a `FIRST` that fits the specs."""
        self._is_in_reset = True
        if not env_row.is_batch:
            self.direct.leave(env_row.place)
            # Until it has begun there is no episode, so a step must begin one.
            self.ended[env_row.place] = True
        time_step = self.with_options(env_row, env_row.env.reset)
        end_fork(self.host.forked)
        if not env_row.is_reset_checked or self._job.options.validate == "always":
            self.check(env_row, time_step, "reset")
            env_row.is_reset_checked = True
        self.check_begun(env_row, time_step)
        self._is_in_reset = False
        return time_step

    def with_options(self, env_row: EnvRow, reset: Callable[[], TimeStep]) -> TimeStep:
        """Resets an environment with the options sent for this reset."""
        sent, env_row.options = env_row.options, None
        if sent is None:
            return reset()
        if not self._are_meant(sent):
            hand_options(env_row.env, None)  # Their reset never came.
        elif env_row.env is not sent.env:  # It was rebuilt since.
            hand_options(env_row.env, sent.options, sent.mask)
        try:
            return reset()
        finally:
            hand_options(env_row.env, None)

    def _has_options(self, env_row: EnvRow) -> bool:
        """Returns True if a row's requested reset has options."""
        return env_row.options is not None and self._are_meant(env_row.options)

    def _are_meant(self, sent: SentOptions) -> bool:
        is_reset = self._command[sent.row] != STEP
        return is_reset and self._sequence[sent.row] == sent.number

    # Resets before a row is asked to begin.

    def schedule(self, env_row: EnvRow) -> None:
        """Makes an environment due for an early reset, after the end of an episode."""
        if (
            self.eager.is_eager
            and self.slab.autoreset == NEXT_STEP_ORDER
            and not env_row.repeats_last
        ):
            self.eager.schedule(env_row.place)

    def reset_next(self, *, is_hidden: bool) -> None:
        """Resets the environment that has been due for longest.

        Args:
            is_hidden: Whether the caller of the pool does something else meanwhile.
        """
        self._reset_early(self.of_row[next(iter(self.eager.due))], is_hidden)

    def settle(self, env_row: EnvRow) -> None:
        """Resets an environment that is due, before anything else is done to it."""
        if env_row.place in self.eager.due:
            self._reset_early(env_row, is_hidden=False)

    def _reset_early(self, env_row: EnvRow, is_hidden: bool) -> None:
        began = time.perf_counter_ns()
        place, row = env_row.place, env_row.rows[0]
        number = self._answered[row]
        final = functools.partial(self.infos.final, env_row.index, number)
        self.eager.keep_info(place, final)
        self.eager.keep_first(place, self._reset_or_error(env_row))
        self.eager.finish(place)
        elapsed = time.perf_counter_ns() - began
        if is_hidden and self._sequence[row] == number:
            self.meters[HIDDEN_RESETS] += 1
            self.meters[HIDDEN_NS] += elapsed
        else:  # The caller waits, or the row was asked meanwhile.
            self.meters[AWAITED_NS] += elapsed

    def _reset_or_error(self, env_row: EnvRow) -> TimeStep | BaseException:
        """Resets a single environment; returns the result or the exception."""
        try:
            return self.reset(env_row)
        except BaseException as error:
            # If the exception is the carrier's, the reset is still due.
            self.let_through(env_row, error)
            return error
        finally:
            self._is_in_reset = False

    def _begin_early(self, env_row: EnvRow) -> TimeStep:
        """Returns the `FIRST` of a row that begins, perhaps from an early reset.

        It raises the exception of an early reset.
        """
        has_options = self._has_options(env_row)
        begun = self.eager.claim(env_row.place, has_options=has_options)
        if isinstance(begun, BaseException):
            self._is_in_reset = True
            raise begun
        if begun is not None:
            return begun
        began = time.perf_counter_ns()
        time_step = self.reset(env_row)
        self.meters[AWAITED_NS] += time.perf_counter_ns() - began
        return time_step

    # Questions to environments.

    def info(self, env_row: EnvRow) -> Any:
        """Returns the info of the last returned time step."""
        kept = self.eager.info(env_row.place)
        if kept is None:
            return self.infos.answer(env_row.index, env_row.rows.start)
        return self.infos.told(env_row.index, *kept)

    def set_state(
        self,
        env_row: EnvRow,
        token: Any,
        ended: Sequence[bool],
        load: Callable[[bytes | str], Any],
    ) -> None:
        """Sets an environment to a state.

        Args:
            env_row: The environment.
            token: Its own state, or a `BegunState`.
            ended: A mask of its rows that begin an episode with the next step.
            load: Restores an info from its saved form.
        """
        if isinstance(token, BegunState):
            info = None if token.info is None else (load(token.info),)
            env_row.env.set_state(token.environment)
            self.eager.restore(env_row.place, token.first, info)
        else:
            env_row.env.set_state(token)
            self.eager.drop(env_row.place)
        self.ended_of(env_row)[:] = ended
        self.infos.forget(env_row.index)
        self.steps[env_row.place] = env_row.own_step
        if any(ended) and not env_row.is_batch:
            self.let_begin_after_last(env_row)

    def fail_next(self, env_row: EnvRow, error: BaseException) -> None:
        """Makes the next step of an environment raise an error."""
        self._is_in_reset = False
        self.steps[env_row.place] = _Raising(error)

    # Checks.

    def let_through(self, env_row: EnvRow, error: BaseException) -> None:
        """Re-raises exceptions that belong to the worker, such as KeyboardInterrupt."""
        block = slice(env_row.place, env_row.place + len(env_row.rows))
        self.doubted[block] = True
        try:
            self.host.let_through(error)
        except BaseException:
            if not env_row.is_batch:
                self.direct.leave(env_row.place)
            raise
        self.doubted[block] = False

    def _checking_step(self, env_row: EnvRow) -> Step:
        """Returns a step of an environment that checks its results, once or always."""
        step: Step = env_row.env.step
        if self._job.options.validate == "never":
            return step

        def checked(action: Any) -> TimeStep:
            time_step = step(action)
            self.check(env_row, time_step, "step")
            if self._job.options.validate == "first":
                env_row.own_step = self.steps[env_row.place] = step
                env_row.is_step_checked = True
            return time_step

        return checked

    def check(self, env_row: EnvRow, time_step: Any, call: str) -> None:
        """Raises a `MisfitError` if a time step does not fit its spec."""
        if self._job.options.validate == "always":
            occasion = f"It came from {call}() of {env_row.kind}."
        else:
            occasion = (
                f"This was the first observation after {call}() of {env_row.kind}."
            )
        self.writer.check(env_row.rows, time_step, occasion, is_batch=env_row.is_batch)

    def check_always(self, env_row: EnvRow, time_step: Any, call: str) -> None:
        """Checks a time step if `validate` is "always"."""
        if self._job.options.validate == "always":
            self.check(env_row, time_step, call)

    def check_begun(
        self, env_row: EnvRow, time_step: TimeStep, mask: Array | bool = True
    ) -> None:
        """Raises a `MisfitError` if a masked row of a reset is no `FIRST`."""
        if getattr(time_step, "step_type", _FIRST) is _FIRST:
            return
        types = np.asarray(getattr(time_step, "step_type", _FIRST))
        wrong = np.flatnonzero(mask & (types != _FIRST))
        if wrong.size:
            row = env_row.rows[int(wrong[0])]
            self.refuse_type(row, types.flat[wrong[0]], "reset", "0 (FIRST)")

    def refuse_type(self, row: int, step_type: Any, call: str, must_be: str) -> None:
        """Raises a `MisfitError` that says which step type was expected."""
        name = self.name_of(row)
        if self.of_row[row - self._first].is_batch:
            name += f" (row {self._first_row + row})"
        raise MisfitError from SpecError(
            f"{name} returned the step type {step_type} from {call}(); it must be "
            f"{must_be}. An episode is FIRST, any number of MID, LAST: only a reset "
            "returns FIRST, and the pool resets an environment after its LAST."
        )


class _Raising:
    """Raises the exception that prevented an environment's next episode."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, action: Any) -> TimeStep:
        raise self._error


def _0d_arrays(column: Array) -> Array:
    """Returns the elements of a column as arrays without dimensions."""
    elements = np.empty(len(column), object)
    for row in range(len(column)):
        elements[row] = column[row, ...]
    return elements


def _missing(action: Any) -> TimeStep:
    raise AssertionError("only the first row of a batch has a step")
