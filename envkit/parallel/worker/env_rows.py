"""`EnvRows`: a worker's environments on their rows, and where each is in its episode.

What every way of running rows does to an environment stands here: it is reset, rebuilt
and checked, and an answer that breaks the order of episodes is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from envkit._internal.direct_row import ENDED, DirectRow, EpisodeEdge
from envkit.batches import hand_options
from envkit.errors import SpecError
from envkit.parallel.messages import WorkerJob
from envkit.parallel.slab import (
    AWAITED_NS,
    HIDDEN_NS,
    HIDDEN_RESETS,
    REBUILD,
    RESET,
    RESETS,
    SAME_STEP_ORDER,
    SAME_STEP_SLOT,
    STEP,
    Slab,
    view_of,
)
from envkit.parallel.worker.direct_rows import DirectRows, DirectStep
from envkit.parallel.worker.eager_resets import EagerResets
from envkit.parallel.worker.environments import EnvironmentHost, end_fork
from envkit.parallel.worker.infos import InfoNotes
from envkit.parallel.worker.write_rows import MisfitError, ObjectSink, RowWriter
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["EnvRow", "EnvRows", "SentOptions", "Step", "raising"]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST

Step = Callable[[Any], TimeStep]


class SentOptions(NamedTuple):
    """Options that an environment has been given for one reset of some rows.

    Attributes:
        env: The environment.
        row: One of the rows.
        number: The request of that row which is the reset.
        options: The options.
        mask: Of a batch, which of its rows; `None` for all.
    """

    env: Any
    row: int
    number: int
    options: Any
    mask: Array | None


class EnvRow:
    """An environment and the rows of the slab that it runs on.

    Attributes:
        index: Its place among the worker's environments.
        rows: Its rows.
        block: The same as a slice.
        place: Its first row, counted from the worker's first.
        is_batch: Whether the environment is a batch, which moves its rows together.
        all_mid: The bytes of its step types where each is MID.
        own_step: The environment's step, which checks the first time step or all.
        is_reset_checked: Whether no further reset needs a check of everything.
        is_step_checked: Whether no further step does.
        options: The options that have been sent ahead of a reset.
    """

    __slots__ = (
        "_envs",
        "all_mid",
        "block",
        "index",
        "is_batch",
        "is_reset_checked",
        "is_step_checked",
        "options",
        "own_step",
        "place",
        "rows",
    )
    own_step: Step

    def __init__(self, envs: list[Any], index: int, first: int, place: int) -> None:
        # The host's own list: a rebuilt environment is found there.
        self._envs = envs
        self.index = index
        self.is_batch = bool(envs[index].batched)
        start = first + place
        self.rows = range(start, start + (self.env.batch_size if self.is_batch else 1))
        self.block = slice(start, self.rows.stop)
        self.place = place
        self.all_mid = np.full(len(self.rows), _MID, np.int32).tobytes()
        self.is_reset_checked = self.is_step_checked = False
        self.options: SentOptions | None = None

    @property
    def env(self) -> Any:
        """The environment."""
        return self._envs[self.index]

    @property
    def repeats_last(self) -> bool:
        """Whether the environment takes the step after a `LAST` itself."""
        # An object with the methods of an environment may lack this one.
        return getattr(self.env, "repeats_last", False) is True

    @property
    def continues(self) -> bool:
        """Whether no `FIRST` follows a `LAST` of the environment."""
        return getattr(self.env, "continues_after_last", False) is True

    @property
    def kind(self) -> str:
        """The environment's class, with its module."""
        kind = type(self.env)
        return f"{kind.__module__}.{kind.__qualname__}"


class EnvRows:
    """The environments of one worker, on the rows of its block.

    Attributes:
        host: Who has the environments.
        slab: Where the rows are.
        all: The environments with their rows, in order.
        of_row: The same by row of the block.
        steps: By row of the block, what its next STEP does; of a batch, that of its
            first row.
        ended: Likewise, whether that begins an episode.
        doubted: Where Ctrl-C came amid a step, so that an episode may have ended
            unseen.
        is_in_reset: Whether an environment is being reset.
        direct: The rows that need no time steps.
        writer: Writes time steps into rows.
        infos: Keeps and marks infos.
        meters: What the worker counts.
        eager: The episodes that have begun before their rows were asked.
        sequence: The number of each row's last request.
        answered: The number that each row has answered.
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
            host: Who has the environments.
            slab: Where the rows are.
            worker: Whose rows they are.
            send_objects: Sends the leaves that the slab cannot hold.
            may_write: Called before anything is written; raises if it may not be.
            first_row: Which of the pool's rows is the first of the slab.
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
        self.is_in_reset = False
        self._ended = view_of(self.ended)
        self._resets = [self._resetting(env_row) for env_row in self.of_row]
        self.eager = EagerResets(self, self._job.resets_eagerly)
        self._begins: list[DirectStep] = [
            functools.partial(self.begin_directly, env_row) for env_row in self.of_row
        ]
        is_sure = self._job.validate != "always" and may_write is None
        self.direct = DirectRows(slab, rows, host.forked, is_sure)
        for env_row in self.all:
            self._renew(env_row)
        self.writer = RowWriter(slab, send_objects, may_write, self.name_of, first_row)
        self.infos = InfoNotes(slab, host, may_write, self.name_of)
        self.meters = view_of(slab.meters[worker])
        self.sequence, self._command = view_of(slab.sequence), view_of(slab.command)
        self.answered = view_of(slab.answered)

    def name_of(self, row: int) -> str:
        """Names the environment of a row."""
        return f"env {self._job.first_env + self.of_row[row - self._first].index}"

    def ended_of(self, env_row: EnvRow) -> Array:
        """Returns which rows of an environment begin an episode with the next step."""
        return self.ended[env_row.place : env_row.place + len(env_row.rows)]

    def _renew(self, env_row: EnvRow) -> None:
        """Lets an environment step itself, with the checks of a new one."""
        env_row.own_step = self.steps[env_row.place] = self._checking_step(env_row)
        env_row.is_reset_checked = env_row.is_step_checked = (
            self._job.validate == "never"
        )
        if not env_row.is_batch:
            self.direct.ask(env_row.place, env_row.env)

    def rebuild(self, env_row: EnvRow) -> None:
        """Makes an environment anew."""
        self.eager.drop(env_row)
        self.host.rebuild(env_row.index)
        self._renew(env_row)

    def adopt(self, env_row: EnvRow, other: EnvRows) -> None:
        """Lets an environment go on as it has done on other rows."""
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
        self.eager.adopt(env_row, other.eager, twin.place)
        if not env_row.is_batch:
            self.direct.doubt(env_row.place)

    def go_on(self, other: EnvRows) -> None:
        """Lets every environment go on as on the rows that it had before."""
        for env_row in self.all:
            twin = other.all[env_row.index]
            env_row.options = twin.options
            env_row.is_reset_checked = twin.is_reset_checked
            env_row.is_step_checked = twin.is_step_checked
            if env_row.is_step_checked:
                env_row.own_step = self.steps[env_row.place] = env_row.env.step
            self.adopt(env_row, other)
        self.doubted[:] = other.doubted[: len(self.doubted)]

    # Episodes.

    def turn(self, row: int, time_step: TimeStep) -> None:
        """Handles a time step that may begin or end an episode."""
        step_type = time_step.step_type
        place = row - self._first
        env_row = self.of_row[place]
        if step_type is _FIRST and self.ended[place]:
            self.ended[place] = False
        elif step_type != _LAST:
            is_amid = step_type == _FIRST and not self.ended[place]
            is_wrong = is_amid and not self.doubted[place]
            if is_wrong or step_type not in (_FIRST, _MID):
                self.refuse_type(row, step_type, "step", "1 (MID) or 2 (LAST)")
            self.ended[place] = self.doubted[place] = False
        elif env_row.continues:
            # A FIRST may follow, but only what is inside knows when.
            self.ended[place] = True
        elif self.slab.autoreset == SAME_STEP_ORDER:
            self._begin_at_once(env_row, row, time_step)
        else:
            self.ended[place] = True
            self.let_begin_after_last(env_row)
            self.eager.schedule(env_row)

    def let_begin_after_last(self, env_row: EnvRow) -> None:
        """Lets the next step of an environment begin an episode."""
        if not (env_row.repeats_last or env_row.continues):
            self.steps[env_row.place] = self._resets[env_row.place]

    def _resetting(self, env_row: EnvRow) -> Step:
        """Returns the step that resets an environment, whatever the action is."""
        return lambda action: self.begin(env_row, RESET)

    def _begin_at_once(self, env_row: EnvRow, row: int, last: TimeStep) -> None:
        """Begins the next episode in the step that ended the one before."""
        self.infos.keep_final(env_row.index, row)
        first = last
        try:
            self.meters[RESETS] += 1
            first = self.reset(env_row)
            self.ended[env_row.place] = False
            self.writer.write(row, SAME_STEP_SLOT, first)
        except BaseException as error:
            self._not_begun(env_row, row, last, error)
        if self.infos.wanted[0]:
            self.infos.note_begun(env_row.index, row, first)

    def _not_begun(
        self, env_row: EnvRow, row: int, last: TimeStep, error: BaseException
    ) -> None:
        """RequestHandler with a `LAST` that no `FIRST` follows in the same step."""
        self.host.let_through(error)
        self.direct.leave(env_row.place)
        # The end of the episode is an answer all the same; the next step raises what
        # kept the next episode from beginning.
        self.writer.write(row, SAME_STEP_SLOT, last)
        self.fail_next(env_row, error)

    def begin(self, env_row: EnvRow, command: int) -> TimeStep:
        """Begins an episode of a single environment."""
        self.meters[RESETS] += 1
        self.infos.forget(env_row.index)
        if command == REBUILD:
            self.rebuild(env_row)
        begin = self.eager.begin if self.eager.is_used else self.reset
        time_step = begin(env_row)
        # Not before: if the reset raises, the episode before has ended all the same.
        self.steps[env_row.place] = env_row.own_step
        return time_step

    def begin_directly(
        self, env_row: EnvRow, action: Any, place: Any, rewards: Any, wants_info: bool
    ) -> TimeStep | EpisodeEdge | None:
        """Does the same for one of the direct rows after a `LAST`."""
        row = self._usual_begin(env_row)
        if row is None or self.eager.is_used:
            return self.begin(env_row, RESET)
        self.meters[RESETS] += 1
        self.infos.forget(env_row.index)
        self.is_in_reset = True
        begun = row.begin(place, rewards, wants_info)
        self.is_in_reset = False
        self.steps[env_row.place] = env_row.own_step
        return begun

    def _usual_begin(self, env_row: EnvRow) -> DirectRow | None:
        """Returns the direct row of an environment, if it can begin an episode."""
        is_usual = env_row.options is None and env_row.is_reset_checked
        return self.direct.to_begin(env_row.place) if is_usual else None

    def note_edge(self, place: int, slot: int, edge: EpisodeEdge) -> None:
        """Notes that a direct row has begun or ended an episode."""
        direct, env_row = self.direct, self.of_row[place]
        if edge is not ENDED:
            self._ended[place] = False
            direct.begin(place, slot)
            return
        direct.end(place, slot)
        if self.slab.autoreset == SAME_STEP_ORDER:
            direct.leave(place)
            self._begin_at_once(
                env_row, env_row.rows.start, env_row.env.current_time_step()
            )
            self.enter_directly(place)
            return
        self._ended[place] = True
        # None that is direct repeats its `LAST`.
        self.steps[place] = self._resets[place]
        direct.begin_next(place, self._begins[place])
        if self.eager.is_used:
            self.eager.schedule(env_row)

    def enter_directly(self, place: int) -> None:
        """Lets an environment do without time steps, if it is within an episode."""
        # Hot in asynchronous use: called once per row and step.
        env_row = self.of_row[place]
        is_amid = not self._ended[place] and self.steps[place] is env_row.own_step
        if is_amid and env_row.is_step_checked:
            self.direct.enter(place, env_row.env)

    def reset(self, env_row: EnvRow) -> TimeStep:
        """Resets an environment as a whole; returns a `FIRST` that fits."""
        self.is_in_reset = True
        if not env_row.is_batch:
            self.direct.leave(env_row.place)
            # Until it has begun there is no episode, and a step may begin one.
            self.ended[env_row.place] = True
        time_step = self.with_options(env_row, env_row.env.reset)
        end_fork(self.host.forked)
        if not env_row.is_reset_checked or self._job.validate == "always":
            self.check(env_row, time_step, "reset")
            env_row.is_reset_checked = True
        self.check_begun(env_row, time_step)
        self.is_in_reset = False
        if self._job.standby:
            self._add_times(*self.host.built()[env_row.index].last_reset)
        return time_step

    def note_times(self, env_row: EnvRow) -> None:
        """Notes how long a batch was awaited that resets some rows ahead itself."""
        take = getattr(env_row.env, "_take_reset_times", None)
        if take is not None:
            self._add_times(*take())

    def _add_times(self, over: int, hidden: int, awaited: int) -> None:
        self.meters[HIDDEN_RESETS] += over
        self.meters[HIDDEN_NS] += hidden
        self.meters[AWAITED_NS] += awaited

    def with_options(self, env_row: EnvRow, reset: Callable[[], TimeStep]) -> TimeStep:
        """Resets an environment with the options that were sent ahead, if any were."""
        sent, env_row.options = env_row.options, None
        if sent is None:
            return reset()
        if not self._are_meant(sent):
            hand_options(env_row.env, None)  # The reset that they were for never came.
        elif env_row.env is not sent.env:  # It has been rebuilt since.
            hand_options(env_row.env, sent.options, sent.mask)
        try:
            return reset()
        finally:
            hand_options(env_row.env, None)

    def has_options(self, env_row: EnvRow) -> bool:
        """True if options were sent for the reset that a row is asked for now."""
        return env_row.options is not None and self._are_meant(env_row.options)

    def _are_meant(self, sent: SentOptions) -> bool:
        is_reset = self._command[sent.row] != STEP
        return is_reset and self.sequence[sent.row] == sent.number

    def fail_next(self, env_row: EnvRow, error: BaseException) -> None:
        """Lets the next step of an environment raise an error."""
        self.is_in_reset = False
        self.steps[env_row.place] = raising(error)

    # Checks.

    def let_through(self, env_row: EnvRow, error: BaseException) -> None:
        """Raises what is not the environment's but the carrier's own, as Ctrl-C is."""
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
        """Returns the step of an environment that checks itself, once or always."""
        step: Step = env_row.env.step
        if self._job.validate == "never":
            return step

        def checked(action: Any) -> TimeStep:
            time_step = step(action)
            self.check(env_row, time_step, "step")
            if self._job.validate == "first":
                env_row.own_step = self.steps[env_row.place] = step
                env_row.is_step_checked = True
            return time_step

        return checked

    def check(self, env_row: EnvRow, time_step: Any, call: str) -> None:
        """Refuses a time step that does not fit its spec in every respect."""
        if self._job.validate == "always":
            occasion = f"It came from {call}() of {env_row.kind}."
        else:
            occasion = (
                f"This was the first observation after {call}() of {env_row.kind}."
            )
        self.writer.check(env_row.rows, time_step, occasion, is_batch=env_row.is_batch)

    def check_always(self, env_row: EnvRow, time_step: Any, call: str) -> None:
        """Checks a time step where every one is to be checked."""
        if self._job.validate == "always":
            self.check(env_row, time_step, call)

    def check_begun(
        self, env_row: EnvRow, time_step: TimeStep, mask: Array | bool = True
    ) -> None:
        """Refuses a reset that returns anything but a `FIRST`, in the masked rows."""
        if getattr(time_step, "step_type", _FIRST) is _FIRST:
            return
        types = np.asarray(getattr(time_step, "step_type", _FIRST))
        wrong = np.flatnonzero(mask & (types != _FIRST))
        if wrong.size:
            row = env_row.rows[int(wrong[0])]
            self.refuse_type(row, types.flat[wrong[0]], "reset", "0 (FIRST)")

    def refuse_type(self, row: int, step_type: Any, call: str, must_be: str) -> None:
        """Raises a `MisfitError` that says which step type was due."""
        name = self.name_of(row)
        if self.of_row[row - self._first].is_batch:
            name += f" (row {self._first_row + row})"
        raise MisfitError from SpecError(
            f"{name} returned the step type {step_type} from {call}(); it must be "
            f"{must_be}. An episode is FIRST, any number of MID, LAST: only a reset "
            "returns FIRST, and the pool resets an environment after its LAST."
        )


def raising(error: BaseException) -> Step:
    """Returns a step that raises what has kept an episode from beginning."""
    return _Raising(error)


class _Raising:
    """The step of an environment whose next episode could not begin."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, action: Any) -> TimeStep:
        raise self._error


def _missing(action: Any) -> TimeStep:
    raise AssertionError("only the first row of a batch has a step")
