"""`ParallelPyEnvironment`: many environments in workers as one batch, in lockstep.

`EnvHandle` is one environment of it, asked alone, whose answers may be promises;
`ProcessPyEnvironment` is a pool of one.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit import nest
from envkit._internal.masks import STEPS, as_mask, as_moves, check_others_have_begun
from envkit._internal.removed import refuses_removed_options
from envkit._internal.resets import reset_with
from envkit._internal.text import counted, listed
from envkit.batches import options_per_row, refuse_ended
from envkit.errors import CallOrderError, ClosedError
from envkit.parallel.opening import as_constructors
from envkit.parallel.options import PoolOptions
from envkit.parallel.pool_environment import (
    GRACE,
    PoolEnvironment,
    check_name,
    in_turn,
)
from envkit.parallel.slab import (
    BEGUN_INFO,
    BUSY_NS,
    RESET,
    SHOWN_INFO,
    STEP,
)
from envkit.parallel.state import PoolState, check_state
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds, seed_per_row
from envkit.specs.arrays import as_array
from envkit.time_step import AutoReset, TimeStep
from envkit.types import (
    Array,
    EnvConstructor,
    NestedArray,
    NestedSpec,
    Options,
    ResetSeed,
)

if TYPE_CHECKING:
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.restarts import RestartPolicy

__all__ = ["EnvHandle", "ParallelPyEnvironment", "ProcessPyEnvironment", "Promise"]

_LOGGER = logging.getLogger(__name__)

# After how many calls to say, once, that one process alone would be faster.
_CALLS_BEFORE_ADVICE = 1000


class Promise:
    """The answer to a call, which is waited for when it is asked for.

    Example:
        >>> promise = Promise(lambda: 42)
        >>> promise()
        42
    """

    def __init__(
        self,
        wait: Callable[[], Any],
        in_turn: Callable[..., Any] | None = None,
        look: Callable[[float], bool] | None = None,
    ) -> None:
        """Takes what waits for the answer.

        Args:
            wait: What waits for it; it is called once.
            in_turn: Calls what it is given when no other thread uses the pool.
            look: Waits for so many seconds at most, and returns True if the answer has
                come; without it there is no waiting for a time.
        """
        self._wait: Callable[[], Any] | None = wait
        self._in_turn, self._look = in_turn, look
        self._value: Any = None
        self._error: BaseException | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, for `timeout` seconds at most; returns True if there is an answer."""
        in_turn = self._in_turn or (lambda _, function, *given: function(*given))
        if self._wait is not None and timeout is not None and self._look is not None:
            return in_turn("promise", self._look, timeout)  # type: ignore[no-any-return]  # a bool
        if self._wait is not None:
            in_turn("promise", self.settle)
        return True

    def settle(self) -> None:
        """Waits for the answer, if that has not been done, and keeps it."""
        if self._wait is None:
            return
        try:
            self._value = self._wait()
        except Exception as error:
            # Because it is raised where the answer is asked for, and not here.
            self._error = error
        self._wait = None

    def __call__(self) -> Any:
        """Returns the answer, or raises what the environment raised."""
        if self._in_turn is not None and self._wait is not None:
            self._in_turn("promise", self.settle)
        return self.answer()

    def answer(self) -> Any:
        """Does the same for a call that has its turn already."""
        self.settle()
        if self._error is not None:
            raise self._error
        return self._value


class ParallelPyEnvironment(PoolEnvironment, PyEnvironment):
    """Steps environments in worker processes, all together, as one batch.

    Every environment's stream is `FIRST (MID)* LAST`, also when workers crash. Arrays
    that come back belong to the caller.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> with ParallelPyEnvironment([CountingEnv] * 3, num_workers=1) as env:
        ...     first = env.reset()
        ...     second = env.step([0, 0, 0])
        >>> first.observation, second.observation
        (array([0, 0, 0], dtype=int32), array([1, 1, 1], dtype=int32))
    """

    @refuses_removed_options
    def __init__(
        self,
        env_constructors: Sequence[EnvConstructor | str],
        start_serially: bool = True,
        blocking: bool = False,
        flatten: bool = False,
        *,
        backend: str | Backend = "process",
        num_workers: int | None = None,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        start_method: str = "spawn",
        on_worker_failure: str | RestartPolicy = "raise",
        start_timeout: float | None = None,
        reset_timeout: float | None = None,
        step_timeout: float | None = None,
        worker_setup: Any = None,
        worker_env: Mapping[str, str] | None = None,
        zero_copy: bool = False,
        validate: str = "first",
        specs: str = "equal",
        eager_resets: bool = False,
        max_worker_memory: int | None = None,
    ) -> None:
        """Starts the workers and waits until every environment is built.

        Args:
            env_constructors: What to call, in a worker, for each environment: classes,
                functions, partials, lambdas, or names such as "my_game.envs:make". One
                that builds a batch takes as many rows as its batch size.
            start_serially: Whether the environments of one worker are built before
                those of the next.
            blocking: Whether environments step one after the other.
            flatten: Accepted for TF-Agents' sake; rows are always flat.
            backend: "process", "thread", "inline", or a `Backend`.
            num_workers: How many workers share the environments; `None` for one per
                CPU that this process may use.
            autoreset: When the episode after a `LAST` begins.
            start_method: How processes start: "spawn", "forkserver" or "fork".
            on_worker_failure: "raise", or a `RestartPolicy`.
            start_timeout: Seconds that building all environments may take.
            reset_timeout: Seconds that a reset may take.
            step_timeout: Seconds that a step may take.
            worker_setup: A callable, or "module:function", that runs first in each
                worker.
            worker_env: Environment variables of the workers, set before anything is
                imported there.
            zero_copy: Whether to return read-only views, which stay whole until the
                call after the next, instead of copies.
            validate: Whether to look at everything environments return: "always",
                "first" (the first reset and step of each) or "never".
            specs: What may differ between the environments: nothing ("equal"), bounds
                ("union"), or bounds and the shapes of observations ("pad").
            eager_resets: Whether an environment is reset right after its `LAST`, while
                the caller does something else. Then what it is asked between the two
                comes after the reset.
            max_worker_memory: How many bytes a worker may hold; one that holds more is
                replaced where episodes end. `None` for no limit.
        """
        # The parameters that are options have their names.
        options = PoolOptions.among(locals())
        super().__init__()
        self._blocking, self._zero_copy = options.blocking, options.zero_copy
        self._opening: Callable[[], None] | None = functools.partial(
            self._open, env_constructors, backend, options
        )
        self.start()

    def start(self) -> None:
        """Starts the workers, which the constructor does; does nothing while they run.

        Example:
            >>> from envkit.testing import CountingEnv
            >>> env = ParallelPyEnvironment([CountingEnv] * 2, backend="inline")
            >>> env.start()
            >>> env.reset().observation
            array([0, 0], dtype=int32)
            >>> env.close()

        Raises:
            ClosedError: The environment was closed.
        """
        if self._opening is None:
            self._check_open("start")
            return
        opening, self._opening = self._opening, None
        opening()
        self._has_advised = False
        # By row: what a handle has promised and was not asked for yet.
        self._promises: dict[int, Promise] = {}
        # The number of row 0 in the current time step; it changes when all rows move.
        self._shown = 0
        self._looks_at_bounds = self._options.validate != "never"
        self._note_size()

    def _note_size(self) -> None:
        super()._note_size()
        self._actions = self._action_rows("step")
        self._looks_at_bounds |= self._looks_always
        slab = self._pool.slab
        # Where actions go that are one array.
        is_one = not nest.is_nested(self._pool.spec.action)
        self._one_action = slab.action_columns()[0] if is_one else None
        self._sequence = slab.words.numbers
        self._views = [slab.views(slot) for slot in (0, 1)]
        self._unflatten = self._structure.unflatten
        if self._current_time_step is not None:
            self._note_current()

    def _has_begun(self) -> bool:
        return self._current_time_step is not None

    def _begin_new(self, rows: Array) -> None:
        if self._has_begun():
            # Not by `run`, which would bring them into the slot of the others before.
            self._pool.submit(rows, RESET)
            self._pool.finish(rows)
            self._note_current()
            self._raise_failures()

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """How many rows there are."""
        return self._rows

    @property
    def envs(self) -> list[EnvHandle]:
        """A handle on each environment, for calling just that one."""
        return [EnvHandle(self, env) for env in range(len(self._pool.rows_of_env))]

    @property
    def _envs(self) -> list[EnvHandle]:
        # Code written for TF-Agents looks for it here.
        return self.envs

    # Rows.

    @in_turn
    def reset(
        self,
        mask: Array | None = None,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> TimeStep:
        """Starts an episode, in the masked rows or in all, and returns the whole batch.

        Args:
            mask: Which rows start an episode; the others stay where they are.
            seed: What the rows that start are seeded with before, as by `seed()`; in a
                list, `None` lets a row's random numbers go on.
            options: What environments are told of this one reset: a dictionary for all
                rows, or a list with one, or `None`, for each.
        """
        self._check_open("reset")
        if seed is not None or options is not None:
            # This thread keeps its turn, and each part of the call is one of its own.
            self._thread_turn.call = None
            return reset_with(self, mask, seed, options)
        if mask is None:
            return self._move(self._everyone, RESET, "reset")
        rows = as_mask(self, mask)
        check_others_have_begun(self, rows)
        return self._move(np.flatnonzero(rows), RESET, "reset")

    def step(self, action: NestedArray, mask: Array | None = None) -> TimeStep:
        """Applies an action to each row and returns the whole batch.

        Args:
            action: A batch of actions, one for each row, arrays or lists.
            mask: Which rows step; the others stay where they are, and their actions
                are not used.
        """
        # Hot: called once per batch step.
        if self._closed:
            self._check_open("step")
        if mask is not None:
            return self.step_rows(action, as_mask(self, mask, "step", STEPS))
        turn = self._thread_turn
        if turn.call is not None or turn.line:
            self._await_turn("step")
        with turn:
            try:
                turn.call = "step"
                return self._step_all(action)
            except Exception as error:
                self._refuse_closed(error)
                raise
            finally:
                turn.call = None

    def _step_all(self, action: NestedArray) -> TimeStep:
        # Hot: called once per batch step.
        if self._closed:  # While this thread waited for its turn.
            self._check_open("step")
        if self._current_time_step is None:
            return self._begin()
        began = time.perf_counter()
        pool = self._pool
        is_regular = pool.is_regular
        if not is_regular or self._order is AutoReset.DISABLED:
            self._settle()
            self._check_can_step(self._everyone)
            is_regular = pool.is_regular
        place = self._one_action
        if (
            place is not None
            and not self._looks_at_bounds
            and type(action) is np.ndarray
            and action.dtype == place.dtype
            and action.shape == place.shape
        ):
            place[...] = action
        else:
            self._write_actions(action)
        if self._blocking or not is_regular:
            return self._move(self._everyone, STEP, "step")
        if not pool.step_all():
            return self._returned()
        time_step: TimeStep = self._read()
        self._current_time_step = time_step
        self._shown = self._sequence[0]
        self._calls += 1
        self._elapsed += time.perf_counter() - began
        if self._calls == _CALLS_BEFORE_ADVICE:
            self._advise()
        return time_step

    def _begin(self) -> TimeStep:
        """Begins all rows, instead of a step before there is anything to step."""
        self._settle()
        # Unless some have begun, and others have raised when they were to.
        self._check_can_step(self._everyone)
        return self._move(self._everyone, RESET, "reset")

    def _write_actions(self, action: NestedArray) -> None:
        """Checks a batch of actions and writes it into the slab."""
        columns = self._actions.columns(action, bounds=False)
        if self._looks_at_bounds:
            self._look_at_bounds(action)
        self._pool.slab.write_actions(columns)

    @property
    def resets_rows(self) -> bool:
        """True: `reset` takes a mask."""
        return True

    @property
    def seeds_rows(self) -> bool:
        """True: `reset` takes seeds for some rows."""
        return True

    @property
    def holds_rows(self) -> bool:
        """Whether `step` takes any mask: unless environments are batches themselves."""
        return len(self._pool.rows_of_env) == self._rows

    @in_turn
    def step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array | None = None
    ) -> TimeStep:
        """Steps some rows, resets others, and leaves the rest as they are.

        Args:
            action: A batch of actions; those of rows that do not step are ignored.
            stepping: A mask of the rows that take their action.
            beginning: A mask of the rows that begin an episode whatever they were at.
        """
        self._check_open("step_rows")
        stepping, beginning = as_moves(self, stepping, beginning)
        if self._current_time_step is None:
            return self._begin()
        self._settle()
        rows = np.flatnonzero(stepping)
        self._check_can_step(rows)
        moving = np.flatnonzero(stepping | beginning)
        self._check_whole_batches(rows, moving)
        columns = self._actions.columns(action, ignored=~stepping)
        self._pool.slab.write_actions([column[rows] for column in columns], rows)
        if rows.size == moving.size:
            return self._move(rows, STEP, "step")
        return self._move(moving, np.where(stepping[moving], STEP, RESET), "step")

    def _look_at_bounds(self, action: NestedArray) -> None:
        """Looks at the first batch of actions completely, or at every one."""
        ended = self._pool.slab.ended(self._everyone) & (not self._pool.continues)
        self._actions.columns(action, ignored=ended)
        self._looks_at_bounds = self._looks_always

    def _check_can_step(self, rows: Array) -> None:
        """Refuses rows that have no episode to go on with."""
        pool = self._pool
        self._raise_failures()
        pool.check_alive(rows, "step")
        broken = pool.rows.broken(rows)
        if broken.size:
            noun = "environment" if broken.size == 1 else "environments"
            raise CallOrderError(
                f"step() was called after {noun} {listed(broken)} raised, whose "
                "episodes cannot go on. Call reset(), or reset(mask) for these alone; "
                "none of the environments has moved."
            )
        if self._order is AutoReset.DISABLED:
            ended = rows[pool.slab.shows_last(rows)]
            if ended.size:
                refuse_ended(ended)

    def _check_whole_batches(self, stepping: Array, moving: Array) -> None:
        """Refuses to hold rows of a batch that can only move together."""
        if self.holds_rows:
            return
        steps, moves = set(stepping.tolist()), set(moving.tolist())
        for env, block in enumerate(self._pool.rows_of_env):
            if steps.intersection(block) and not moves.issuperset(block):
                raise ValueError(
                    f"The mask steps only some of rows {block.start} to "
                    f"{block.stop - 1}, which are one environment (env {env}) that is "
                    "a batch itself and moves together."
                )

    def _move(self, rows: Array, command: int | Array, call: str) -> TimeStep:
        """Runs rows and returns the whole batch."""
        began = time.perf_counter()
        pool = self._pool
        self._settle()
        pool.check_alive(rows, call)
        if not rows.size:
            return self._standing()
        if self._blocking:
            for index, row in enumerate(rows.tolist()):
                one = command[index] if isinstance(command, np.ndarray) else command
                pool.run(np.array([row]), int(one))
        else:
            pool.run(rows, command)
        if self._order is AutoReset.SAME_STEP and rows.size < self._rows:
            # They are shown where they stand, and not their end once more.
            pool.slab.show_standing(np.delete(self._everyone, rows))
        time_step = self._returned()
        self._calls += 1
        self._elapsed += time.perf_counter() - began
        return time_step

    def _returned(self) -> TimeStep:
        """Returns the batch, or raises what has failed; the other rows have moved."""
        time_step = self._note_current()
        self._raise_failures()
        return time_step

    def _read(self) -> TimeStep:
        # Hot: called once per batch step. All rows stand in the same slot.
        views = self._views[(self._sequence[0] >> 1) & 1]
        if not self._zero_copy:
            views = [view.copy() for view in views]
        return self._unflatten(views)  # type: ignore[no-any-return]

    @in_turn
    def current_time_step(self) -> TimeStep:
        """Returns where the environments stand now: what a policy should act on.

        Under `AutoReset.SAME_STEP` that is the `FIRST` of the next episode where one
        has just ended.
        """
        return self._standing()

    def _standing(self) -> TimeStep:
        if not self._closed:
            self._settle()
        current = super().current_time_step()
        if self._order is not AutoReset.SAME_STEP or self._closed:
            return current
        slab = self._pool.slab
        if not slab.shows_last(self._everyone).any():
            return current
        # From the slab: what was returned belongs to the caller.
        leaves = slab.read_standing(self._everyone)
        return self._structure.unflatten(leaves)  # type: ignore[no-any-return]

    # Promises: of all environments together, and of one after the other.

    @property
    def steps_ahead(self) -> bool:
        """True if what is begun goes on while the program does something else."""
        return not self._blocking and self._backend.name != "inline"

    @in_turn
    def begin_step(self, action: NestedArray) -> Promise:
        """Begins a step of all rows, and returns a promise of the whole batch.

        What the pool is asked besides waits for the step.

        Example:
            >>> from envkit.testing import CountingEnv
            >>> with ParallelPyEnvironment([CountingEnv] * 2, backend="thread") as env:
            ...     first = env.reset()
            ...     promise = env.begin_step([0, 0])
            ...     promise().observation.tolist()
            [1, 1]
        """
        self._check_open("step")
        self._settle()
        rows, pool = self._everyone, self._pool
        self._check_can_step(rows)
        command = RESET if self._current_time_step is None else STEP
        if command == STEP:
            self._write_actions(action)
        pool.check_alive(rows, "step")
        pool.submit(rows, command)

        def look(timeout: float) -> bool:
            self._check_open("step")
            pool.wait(rows.size, rows, timeout)
            return not pool.rows.busy(rows)

        def wait() -> TimeStep:
            self._check_open("step")
            self._promises.clear()
            pool.finish(rows)
            return self._returned()

        promise = Promise(wait, self._in_turn, look)
        self._promises = dict.fromkeys(range(self._rows), promise)
        return promise

    def _submit(self, rows: Array, command: int) -> Promise:
        """Asks rows and returns a promise of their part of the batch."""
        pool = self._pool
        for row in rows.tolist():
            if row in self._promises:
                self._promises[row].settle()
        if not self._promises:
            self._settle()
        pool.check_alive(rows, "step" if command == STEP else "reset")
        pool.submit(rows, command)

        def wait() -> TimeStep:
            self._check_open("step")
            pool.wait_for(rows)
            for row in rows.tolist():
                self._promises.pop(row, None)
                error = pool.errors.get(row)
                if error is not None and self._told.get(row) is not error:
                    self._told[row] = error
                    raise error
            leaves = pool.slab.read(rows)
            pool.rows.take(rows)
            return self._unflatten(leaves)  # type: ignore[no-any-return]

        promise = Promise(wait)
        self._promises.update(dict.fromkeys(rows.tolist(), promise))
        return promise

    def _settle(self) -> None:
        """Completes what an interrupted call, or a promise, has left."""
        promises, self._promises = list(self._promises.values()), {}
        for promise in promises:
            promise.settle()
        # Some rows may have moved, or all of them in a call that was interrupted.
        has_moved = not self._pool.is_regular or self._shown != self._sequence[0]
        self._pool.settle()
        if has_moved:
            self._note_current()

    def _note_current(self) -> TimeStep:
        """Reads the batch, and notes that this is where the rows stand."""
        time_step = self._read()
        if self._pool.begun.all():
            self._current_time_step = time_step
        self._shown = self._sequence[0]
        return time_step

    def _step(self, action: NestedArray) -> TimeStep:
        return self.step(action)

    def _reset(self) -> TimeStep:
        return self.reset()

    def _unstack_actions(self, batched_actions: NestedArray) -> list[NestedArray]:
        from envkit.batched_py_environment import unstack_actions

        return unstack_actions(batched_actions)

    def close(self, grace: float = GRACE) -> None:
        """Ends the workers; calling it again does nothing.

        Args:
            grace: Seconds that environments have for what they are doing, and for
                closing; then their processes are killed.
        """
        super().close(grace)
        # They would keep the memory.
        self._views = []
        self._one_action = None
        self._sequence = memoryview(b"")

    # Infos.

    @in_turn
    def get_infos(self, env_ids: Sequence[int] | None = None) -> list[Any]:
        """Returns what `get_info` does, in a list with an element for each environment.

        Args:
            env_ids: Which environments to ask.
        """
        self._check_idle("get_infos")
        return self._ask("get_info", self._as_envs(env_ids))

    @in_turn
    def rows_with_info(self, *, begun: bool = False) -> Array:
        """Returns a mask of the rows that have an info.

        An info that tells no more than that the episode has ended, as the time step
        does, does not count. Workers look from the first call on, and keep what they
        find for `get_info`; until a row's next step its element is true.

        Args:
            begun: Whether it is about the `FIRST` that has followed a `LAST` in the
                same step, instead of what the last call returned.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with ParallelPyEnvironment([CountingEnv] * 2, backend="inline") as env:
            ...     before = env.rows_with_info()
            ...     _ = env.reset()
            ...     before, env.rows_with_info()
            (array([ True,  True]), array([False, False]))
        """
        # Hot: called once per batch step.
        self._check_open("rows_with_info")
        slab = self._pool.slab
        slab.want_infos()
        mask: Array = slab.info_marks & (BEGUN_INFO if begun else SHOWN_INFO) != 0
        return mask

    # State.

    def _before_other_order(self) -> None:
        self._settle()
        if self._current_time_step is not None:
            # Where the environments stand does not depend on what comes after.
            standing = self._standing()
            leaves = self._structure.flatten(standing)
            self._pool.rows.stand(leaves, leaves)
            self._current_time_step = standing

    @in_turn
    def get_state(self) -> PoolState:
        """Returns a token with which `set_state` of any such pool brings all back."""
        self._check_open("get_state")
        self._settle()
        return self._state()

    @in_turn
    def set_state(self, state: PoolState) -> None:
        """Brings back what `get_state` returned, or changes nothing at all."""
        self._check_open("set_state")
        check_state(state, type(self).__name__, self._pool)
        self._settle()
        shown = self._restore(state)
        began = shown is not None and self._pool.begun.all()
        self._current_time_step = _copied(shown) if began else None

    def _advise(self) -> None:
        """Says once if the environments alone would be as fast without workers."""
        if self._has_advised or self._backend.name != "process":
            return
        self._has_advised = True
        stepping = float(self._pool.slab.counter(BUSY_NS).sum()) / 1e9
        if stepping < self._elapsed:
            _LOGGER.info(
                "%s took %.1f ms in all for %s; the environments themselves took %.1f "
                'ms of it, so one process would be as fast: backend="inline", or '
                "fewer workers with more environments each",
                type(self).__name__,
                self._elapsed * 1e3,
                counted(self._calls, "call"),
                stepping * 1e3,
            )


def _copied(time_step: TimeStep | None) -> TimeStep | None:
    return nest.map_structure(lambda leaf: np.array(as_array(leaf)), time_step)  # type: ignore[no-any-return]


class _OneEnvironment:
    """One environment of a pool, which lives in its worker and moves alone.

    Attributes that this object does not have are asked from the environment, and set in
    it.
    """

    __slots__ = ()
    _pool_env: ParallelPyEnvironment | None
    _env: int

    @property
    def _facade(self) -> ParallelPyEnvironment:
        if self._pool_env is None:
            raise CallOrderError(
                f"This {type(self).__name__} has not been started. Call start() first."
            )
        return self._pool_env

    @property
    def _own_rows(self) -> range:
        rows_of_env = self._facade._pool.rows_of_env
        if self._env >= len(rows_of_env):
            raise ClosedError(
                f"env {self._env} was closed by resize(): the pool has "
                f"{counted(len(rows_of_env), 'environment')} now. Take another handle "
                "from envs."
            )
        return rows_of_env[self._env]

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._facade.observation_spec()

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._facade.action_spec()

    def time_step_spec(self) -> TimeStep:
        """Returns the specs of a time step."""
        return self._facade.time_step_spec()

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise:
        """Calls a method of the environment; the promise waits for the result.

        What the environment is asked later, it does later.
        """
        if name == "step":
            return self._promise(self.step(*args, **{**kwargs, "blocking": False}))
        if name == "reset":
            return self._promise(self.reset(*args, **{**kwargs, "blocking": False}))
        self._facade._check_open("call")
        check_name(name)
        return self._ask("call", (name, args, kwargs))

    def _ask(self, method: str, argument: Any) -> Promise:
        return self._facade._in_turn(method, self._asked, method, argument)  # type: ignore[no-any-return]

    def _asked(self, method: str, argument: Any) -> Promise:
        """Asks the environment; the promise waits for the answer."""
        self._facade._check_open(method)
        pool, envs = self._facade._pool, [self._env]
        _ = self._own_rows  # There is one.
        numbers = pool.post(method, envs, [argument])

        def wait() -> Any:
            self._facade._check_open(method)
            with self._facade._telling():
                results = pool.answers(numbers, envs)
            pool.raise_failures(envs, results)
            return results[0]

        return Promise(wait, self._facade._in_turn)

    @staticmethod
    def _promise(promise: Any) -> Promise:
        return promise  # type: ignore[no-any-return]  # blocking=False returns one

    def access(self, name: str) -> Any:
        """Returns an attribute of the environment."""
        return self._facade.access(name, env_ids=[self._env])[0]

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of the environment, as `set_attr` of the pool does."""
        self._facade.set_attr(name, value, env_ids=[self._env])

    def step(self, action: NestedArray, blocking: bool = True) -> Any:
        """Steps this environment alone; returns its time step, or a promise of it."""
        return self._facade._in_turn("step", self._step, action, blocking)

    def _step(self, action: NestedArray, blocking: bool) -> Any:
        facade = self._facade
        rows = np.array(self._own_rows)
        facade._check_open("step")
        if not facade._pool.begun[rows].all():
            return self._move(rows, RESET, blocking)
        for row in rows.tolist():
            if row in facade._promises:
                facade._promises[row].settle()
        facade._check_can_step(rows)
        columns = facade._actions.columns(self._with_rows(action), rows=rows)
        facade._pool.slab.write_actions(columns, rows)
        return self._move(rows, STEP, blocking)

    def reset(
        self,
        blocking: bool = True,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> Any:
        """Resets this environment alone; returns its time step, or a promise of it.

        Args:
            blocking: Whether to wait for the time step.
            seed: What the environment is seeded with before.
            options: What the environment is told of this one reset.
        """
        return self._facade._in_turn("reset", self._reset, blocking, seed, options)

    def _reset(self, blocking: bool, seed: ResetSeed, options: Options) -> Any:
        facade, rows = self._facade, np.array(self._own_rows)
        facade._check_open("reset")
        if options is not None:
            own = options_per_row(options, rows.size)
            facade._send_options(facade._among_all(own, rows), None)
        if seed is not None:
            is_batch = facade._pool.is_batch[self._env]
            seeds = (
                seed_per_row(seed, rows.size) if is_batch else checked_seeds(seed, 1)
            )
            facade._seed_rows(facade._among_all(seeds, rows))
        return self._move(rows, RESET, blocking)

    def _move(self, rows: Any, command: int, blocking: bool) -> Any:
        promise = self._facade._submit(rows, command)
        own = Promise(lambda: self._own(promise.answer()), self._facade._in_turn)
        return own.answer() if blocking else own

    def render(self, mode: str = "rgb_array", blocking: bool = True) -> Any:
        """Returns a picture of this environment, or a promise of it."""
        self._facade._check_open("render")
        promise = self._ask("render", mode)
        return promise() if blocking else promise

    def _with_rows(self, action: NestedArray) -> NestedArray:
        if self._facade._pool.is_batch[self._env]:
            return action
        structure = self._facade._actions.structure
        return structure.unflatten(
            [np.asarray(leaf)[None] for leaf in structure.flatten(action)]
        )

    def _own(self, time_step: TimeStep) -> TimeStep:
        """Takes away the dimension of rows, unless the environment is a batch."""
        if self._facade._pool.is_batch[self._env]:
            return time_step
        return nest.map_structure(lambda leaf: leaf[0, ...], time_step)  # type: ignore[no-any-return]

    def current_time_step(self) -> TimeStep:
        """Returns where this environment stands now."""
        block = slice(self._own_rows.start, self._own_rows.stop)
        current = self._facade.current_time_step()
        return self._own(nest.map_structure(lambda leaf: leaf[block], current))

    def __getattr__(self, name: str) -> Any:
        # Private names are never asked for: a half-built object that is unpickled must
        # not ask a process that is not there.
        if name.startswith("_"):
            raise AttributeError(name)
        return self.access(name)

    def _set_there(self, name: str, value: Any) -> None:
        """Sets an attribute of the environment.

        Raises:
            AttributeError: It is one of this object, which would hide that of the
                environment.
        """
        kind = type(self)
        if hasattr(kind, name):
            raise AttributeError(
                f"{name!r} is an attribute of {kind.__name__} and cannot be set. Where "
                f"the environment has one of this name: set_attr({name!r}, value)."
            )
        self.set_attr(name, value)


class EnvHandle(_OneEnvironment):
    """One environment of a pool, which lives in its worker.

    Attributes that the handle does not have are asked from the environment, and set in
    it.

    Example:
        >>> from envkit import ParallelPyEnvironment
        >>> from envkit.testing import CountingEnv
        >>> with ParallelPyEnvironment([CountingEnv] * 2, backend="inline") as pool:
        ...     pool.envs[1].level = 3
        ...     promise = pool.envs[1].call("get_info")
        ...     pool.envs[1].level, promise()
        (3, {})
    """

    __slots__ = ("_env", "_pool_env")

    def __init__(self, pool: ParallelPyEnvironment, env: int) -> None:
        """Makes a handle; pools do."""
        self._pool_env = pool
        self._env = env

    @property
    def rows(self) -> range:
        """The rows of the batch that are this environment's."""
        return self._own_rows

    def __setattr__(self, name: str, value: Any) -> None:
        if name in EnvHandle.__slots__:
            object.__setattr__(self, name, value)
        else:
            self._set_there(name, value)

    def __repr__(self) -> str:
        return f"EnvHandle(env={self._env}, rows={self.rows.start}:{self.rows.stop})"


class ProcessPyEnvironment(_OneEnvironment):
    """Runs one environment in a process of its own: a pool of one.

    Nothing runs before `start()`. Public attributes that are not here are asked from
    the environment, and set in it.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = ProcessPyEnvironment(CountingEnv)
        >>> env.start()
        >>> _ = env.reset()
        >>> promise = env.step(0, blocking=False)
        >>> promise().observation
        array(1, dtype=int32)
        >>> env.close()
    """

    _env = 0

    def __init__(
        self,
        env_constructor: EnvConstructor | str,
        flatten: bool = False,
        **options: Any,
    ) -> None:
        """Prepares; `start` starts the process.

        Args:
            env_constructor: What to call, in the process, or its name.
            flatten: Accepted for TF-Agents' sake.
            **options: Keyword arguments of `ParallelPyEnvironment`.
        """
        self._constructor = as_constructors([env_constructor], type(self).__name__)
        self._options = options
        self._pool_env: ParallelPyEnvironment | None = None

    def start(self, wait_to_start: bool = True) -> None:
        """Starts the process and waits until the environment is built.

        Args:
            wait_to_start: Accepted for TF-Agents' sake: `wait_start` then returns at
                once.
        """
        if self._pool_env is None:
            self._pool_env = ParallelPyEnvironment(self._constructor, **self._options)

    def wait_start(self) -> None:
        """Returns once the environment is built."""
        self._facade._check_open("wait_start")

    @property
    def batched(self) -> bool:
        """Whether the environment is a batch itself."""
        return self._facade._pool.is_batch[0]

    @property
    def batch_size(self) -> int | None:
        """How many rows it has if it is a batch, else `None`."""
        return self._facade.batch_size if self.batched else None

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of the reward."""
        return self._facade.reward_spec()

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of the discount."""
        return self._facade.discount_spec()

    def seed(self, seed: Any) -> Any:
        """Seeds the environment with exactly this seed."""
        if self.batched:
            return self._facade.seed(seed)
        return self._facade.seed([seed])[0]

    def get_info(self) -> Any:
        """Returns what else there is to know about the current time step."""
        return self._facade.call("get_info")[0]

    def get_state(self) -> Any:
        """Returns a token for `set_state`."""
        return self._facade.get_state()

    def set_state(self, state: Any) -> None:
        """Brings back what `get_state` returned."""
        self._facade.set_state(state)

    def close(self) -> None:
        """Ends the process; calling it again does nothing."""
        if self._pool_env is not None:
            self._pool_env.close()

    def __enter__(self) -> ProcessPyEnvironment:
        self.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool_env is not None:
            self._pool_env.__exit__(exception_type, exception, traceback)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self._set_there(name, value)
