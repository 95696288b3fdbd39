"""`ParallelPyEnvironment`: many environments in workers as one batch, in lockstep."""

from __future__ import annotations

import functools
import logging
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit import nest
from envkit._internal.first_look import refuse_unpacking
from envkit._internal.masks import STEPS, as_mask, as_moves, check_others_have_begun
from envkit._internal.removed import refuses_removed_options
from envkit._internal.resets import reset_with
from envkit._internal.text import counted, listed
from envkit.batches import refuse_ended
from envkit.errors import CallOrderError
from envkit.parallel.options import PoolOptions
from envkit.parallel.pool_environment import GRACE, PoolEnvironment, locked
from envkit.parallel.promise import Promise
from envkit.parallel.slab_layout import BUSY_NS, RESET, STEP
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import as_array
from envkit.time_step import AutoReset, TimeStep
from envkit.types import (
    Array,
    EnvConstructor,
    NestedArray,
    Options,
    ResetSeed,
)

if TYPE_CHECKING:
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.env_handles import EnvHandle
    from envkit.parallel.restarts import RestartPolicy
    from envkit.parallel.state import PoolState

__all__ = ["ParallelPyEnvironment"]

_LOGGER = logging.getLogger(__name__)

# Faster than a comprehension, which costs a call of its own.
_COPY = operator.methodcaller("copy")
# After this many calls, say once if one process alone would be faster.
_CALLS_BEFORE_ADVICE = 1000


class ParallelPyEnvironment(PoolEnvironment, PyEnvironment):
    """Steps environments in worker processes, all together, as one batch.

    Every environment's stream is `FIRST (MID)* LAST`, even when workers crash. Returned
    arrays belong to the caller.

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
            env_constructors: A callable for each environment, called in a worker:
                classes, functions, partials, lambdas, or names such as
                "my_game.envs:make". A batched environment takes as many consecutive
                rows as its batch size, all in one worker.
            start_serially: Whether workers build their environments one worker after
                the other, as in TF-Agents, while the next ones already load Python and
                NumPy. With False all build at the same time.
            blocking: Whether environments step one after another, for debugging.
            flatten: Accepted for compatibility with TF-Agents; rows are always flat.
            backend: "process", "thread", "inline", or a `Backend`.
            num_workers: How many workers share the environments, each a block of
                consecutive rows; `None` for one per CPU that this process may use,
                within its CPU affinity and its container's limits.
            autoreset: When the episode after a `LAST` begins.
            start_method: How processes start. "spawn" starts fresh interpreters, in
                some tenths of a second. "forkserver" starts one, which forks the
                workers; it pays off with several workers, or if they are replaced
                often. "fork" forks this process: constructors need not travel, but
                workers inherit locks that other threads hold and may hang, so it is not
                for programs with TensorFlow, PyTorch or threads.
            on_worker_failure: "raise", or a `RestartPolicy`.
            start_timeout: Seconds that building all environments may take; `None`, here
                and below, for no limit.
            reset_timeout: Seconds that a reset may take.
            step_timeout: Seconds that a step may take. Time in which this program is
                stopped during a call does not count. Between calls a pool cannot tell a
                pause from computing, so it counts; but a worker whose time has run out
                gets it back, once per request.
            worker_setup: A callable, or "module:function", that runs first in each
                worker, for example to register environments with other libraries.
            worker_env: Environment variables for the workers, set before anything is
                imported there. Without it workers see no GPU (`CUDA_VISIBLE_DEVICES` is
                -1) and use one thread for numerics: `OMP_NUM_THREADS`,
                `OPENBLAS_NUM_THREADS`, `MKL_NUM_THREADS`, `NUMEXPR_NUM_THREADS` and
                `VECLIB_MAXIMUM_THREADS` are 1 unless you have set them.
            zero_copy: Whether to return read-only views instead of copies. A view stays
                valid until the call after the next.
            validate: How often to check everything that environments return, and the
                bounds of actions: "always", "first" (the first reset and step of each
                environment, and the first batch of actions) or "never". Shapes, step
                types and lossless conversion to the specs' dtypes are always checked.
            specs: What may differ between the environments: nothing ("equal"), bounds
                ("union"), or bounds and the shapes of observations ("pad"). With "pad"
                an observation is a dictionary: the padded `observation`, a `mask` of
                the environment's own elements, and an `action_mask` of the choices that
                it knows, for actions that are a choice of up to 65,536.
            eager_resets: Whether an environment is reset right after its `LAST`, while
                the caller does something else. Questions in between then reach it after
                the reset, and `get_state`, `save` and recovery include the episode that
                has begun; any pool can continue from such a state. Only under
                NEXT_STEP, and not for environments that are batches or repeat a `LAST`.
            max_worker_memory: How many bytes a worker process may hold, as
                `statistics().resident_bytes` counts them; a larger one is replaced when
                its episodes end, and not again before it has grown. A limit below what
                workers hold from the start is refused. `None` for no limit.
        """
        # PoolOptions has fields of these names.
        options = PoolOptions.among(locals())
        super().__init__()
        self._blocking, self._zero_copy = options.blocking, options.zero_copy
        self._opening: Callable[[], None] | None = functools.partial(
            self._open, env_constructors, backend, options
        )
        self.start()

    def start(self) -> None:
        """Does nothing: the constructor has started the workers.

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
        self._has_new_caller = True
        # By row: the promise of a handle that nobody has called yet.
        self._promises: dict[int, Promise] = {}
        # The number of row 0 in the current time step; it changes when all rows move.
        self._shown = 0
        self._looks_at_bounds = self._options.validate != "never"
        self._adopt_size()

    def _adopt_size(self) -> None:
        super()._adopt_size()
        self._actions = self._action_rows("step")
        self._looks_at_bounds |= self._looks_always
        slab = self._pool.slab
        # The place of an action that is a single array.
        is_one = not nest.is_nested(self._pool.spec.action)
        self._one_action = slab.action_columns()[0] if is_one else None
        self._sequence = slab.words.numbers
        self._views = [slab.views(slot) for slot in (0, 1)]
        self._unflatten = self._structure.unflatten
        if self._current_time_step is not None:
            self._read_current()

    def _has_begun(self) -> bool:
        return self._current_time_step is not None

    def _begin_new(self, rows: Array) -> None:
        if self._has_begun():
            # Not `run`, which would first bring them into the others' slot.
            self._pool.submit(rows, RESET)
            self._pool.finish(rows)
            self._read_current()
            self._raise_failures()

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """The number of rows."""
        return self._rows

    @property
    def envs(self) -> list[EnvHandle]:
        """A handle for each environment, to call just that one."""
        from envkit.parallel.env_handles import EnvHandle

        return [EnvHandle(self, env) for env in range(len(self._pool.rows_of_env))]

    @property
    def _envs(self) -> list[EnvHandle]:
        # Code written for TF-Agents looks for it here.
        return self.envs

    # Rows.

    @locked
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
            seed: Seeds for the rows that start, used as `seed()` does; `None` in a list
                leaves a row's random numbers as they are.
            options: Options for this one reset: a dictionary for all rows, or a list
                with a dictionary or `None` for each.
        """
        self._check_open("reset")
        if self._current_time_step is None:
            refuse_unpacking()
        if seed is not None or options is not None:
            # This thread keeps the lock; each part of this call counts as a call of its
            # own.
            self._call_lock.call = None
            return reset_with(self, mask, seed, options)
        if mask is None:
            return self._move(self._everyone, RESET, "reset")
        rows = as_mask(self, mask)
        check_others_have_begun(self, rows)
        return self._move(np.flatnonzero(rows), RESET, "reset")

    def step(self, action: NestedArray, mask: Array | None = None) -> TimeStep:
        """Applies an action to each row and returns the whole batch.

        Args:
            action: A batch of actions, one for each row, as arrays or lists.
            mask: Which rows step; the others stay where they are and ignore their
                actions.
        """
        # Hot: called once per batch step.
        if self._closed:
            self._check_open("step")
        if mask is not None:
            return self.step_rows(action, as_mask(self, mask, "step", STEPS))
        lock = self._call_lock
        if lock.call is not None or lock.waiting:
            self._await_lock("step")
        with lock:
            try:
                lock.call = "step"
                return self._step_all(action)
            except Exception as error:
                self._refuse_closed(error)
                raise
            finally:
                lock.call = None

    def _step_all(self, action: NestedArray) -> TimeStep:
        # Hot: called once per batch step.
        if self._closed:  # It was closed while this thread waited for the lock.
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
        if self._blocking or not is_regular or self._given.are_any:
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
        """Resets all rows in place of the first step."""
        refuse_unpacking()
        self._settle()
        # Raises if some rows have begun, and others raised when they should have.
        self._check_can_step(self._everyone)
        return self._move(self._everyone, RESET, "reset")

    def _write_actions(self, action: NestedArray) -> None:
        """Writes a checked batch of actions into the slab."""
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
        """Whether `step` takes any mask: True unless environments are batched."""
        return len(self._pool.rows_of_env) == self._rows

    @locked
    def step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array | None = None
    ) -> TimeStep:
        """Steps some rows, resets others, and leaves the rest as they are.

        Args:
            action: A batch of actions; rows that do not step ignore theirs.
            stepping: A mask of the rows that apply their action.
            beginning: A mask of the rows that begin an episode, wherever they stand.
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
        """Checks the first batch of actions completely, or every one."""
        if self._has_new_caller:
            refuse_unpacking()
            self._has_new_caller = False
        ended = self._pool.slab.ended(self._everyone) & (not self._pool.continues)
        self._actions.columns(action, ignored=ended)
        self._looks_at_bounds = self._looks_always

    def _check_can_step(self, rows: Array) -> None:
        """Raises if one of the rows has no episode to step in."""
        pool = self._pool
        self._raise_failures()
        pool.check_alive(rows, "step")
        broken = pool.rows.broken(rows)
        if broken.size:
            noun = "environment" if broken.size == 1 else "environments"
            raise CallOrderError(
                f"step() was called after {noun} {listed(broken)} raised. Call "
                "reset(), or reset(mask) for these rows alone, to begin new episodes. "
                "None of the environments has moved."
            )
        if self._order is AutoReset.DISABLED:
            ended = rows[pool.slab.shows_last(rows)]
            if ended.size:
                refuse_ended(ended)

    def _check_whole_batches(self, stepping: Array, moving: Array) -> None:
        """Raises if only some rows of a batched environment would move."""
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
        if self._given.are_any:
            self._repeat_lost_resets(rows, pool.finish)
        if self._order is AutoReset.SAME_STEP and rows.size < self._rows:
            # The other rows show their current time step instead of repeating their
            # LAST.
            pool.slab.show_standing(np.delete(self._everyone, rows))
        time_step = self._returned()
        self._calls += 1
        self._elapsed += time.perf_counter() - began
        return time_step

    def _repeat_lost_resets(self, rows: Array, wait: Callable[[Array], None]) -> None:
        """Resets rows again that were lost before they used their seed or options.

        Args:
            rows: The rows that have moved.
            wait: Waits for rows.
        """
        given = self._given.take(rows)
        while (lost := given.lost()).size:
            given.give(lost)
            self._pool.submit(lost, RESET)
            wait(lost)

    def _returned(self) -> TimeStep:
        """Returns the batch, or raises a row's failure; the other rows have moved."""
        time_step = self._read_current()
        self._raise_failures()
        return time_step

    def _read(self) -> TimeStep:
        # Hot: called once per batch step. All rows use the same slot.
        views = self._views[(self._sequence[0] >> 1) & 1]
        if not self._zero_copy:
            views = list(map(_COPY, views))
        return self._unflatten(views)  # type: ignore[no-any-return]

    @locked
    def current_time_step(self) -> TimeStep:
        """Returns the current time steps, for a policy to act on.

        Under `AutoReset.SAME_STEP`, a row whose episode has just ended has the `FIRST`
        of the next one here.
        """
        return self._standing()

    def _standing(self) -> TimeStep:
        if not self._closed:
            self._settle()
        current = super().current_time_step()
        if self._order is not AutoReset.SAME_STEP or self._closed:
            return current
        # Read from the slab, because returned arrays belong to the caller.
        leaves = self._pool.slab.read_standing(self._everyone)
        return self._structure.unflatten(leaves)  # type: ignore[no-any-return]

    # Promises: of all environments, and of single ones.

    @property
    def steps_ahead(self) -> bool:
        """True if a begun step runs while the program does something else."""
        return not self._blocking and self._backend.name != "inline"

    @locked
    def begin_step(self, action: NestedArray) -> Promise:
        """Begins a step of all rows, and returns a promise of the whole batch.

        `promise.wait(timeout=0.1)` is true once it has arrived. Other calls to the pool
        wait for the step.

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
            if self._given.are_any:
                self._repeat_lost_resets(rows, pool.finish)
            return self._returned()

        promise = Promise(wait, self._locked, look)
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
            if self._given.are_any:
                self._repeat_lost_resets(rows, pool.wait_for)
            for row in rows.tolist():
                error = pool.errors.get(row)
                if error is not None and self._raised.get(row) is not error:
                    self._raised[row] = error
                    raise error
            leaves = pool.slab.read(rows)
            pool.rows.set_returned(rows)
            return self._unflatten(leaves)  # type: ignore[no-any-return]

        promise = Promise(wait)
        self._promises.update(dict.fromkeys(rows.tolist(), promise))
        return promise

    def _settle(self) -> None:
        """Completes the pending work of an interrupted call or a promise."""
        promises, self._promises = list(self._promises.values()), {}
        for promise in promises:
            promise.settle()
        # Some rows may have moved, or all of them in a call that was interrupted.
        has_moved = not self._pool.is_regular or self._shown != self._sequence[0]
        self._pool.settle()
        if has_moved:
            self._read_current()

    def _read_current(self) -> TimeStep:
        """Reads the batch, and makes it the current time step."""
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
            grace: Seconds for environments to finish and close; then their processes
                are killed.
        """
        super().close(grace)
        # Views would keep the memory alive.
        self._views = []
        self._one_action = None
        self._sequence = memoryview(b"")

    @locked
    def ends(self) -> tuple[Array, Array]:
        """Returns masks of the rows whose episodes have ended: terminated, truncated.

        They describe the last returned time steps. An episode may end in both ways at
        once, which its discount cannot show. Workers report that from the first call of
        `rows_with_info` on; until then discounts decide.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> one = [lambda: CountingEnv(steps_per_episode=1)]
            >>> with ParallelPyEnvironment(one, backend="inline") as env:
            ...     _ = env.reset(), env.step([0])
            ...     env.ends()
            (array([ True]), array([False]))
        """
        self._check_open("ends")
        return self._pool.slab.ends()

    # State.

    def _before_other_order(self) -> None:
        self._settle()
        if self._current_time_step is not None:
            # Read first: later questions do not move environments.
            standing = self._standing()
            leaves = self._structure.flatten(standing)
            self._pool.rows.stand(leaves, leaves)
            self._current_time_step = standing

    @locked
    def get_state(self) -> PoolState:
        """Returns a token from which any such pool's `set_state` restores it."""
        self._check_open("get_state")
        self._settle()
        from envkit.parallel.durability.saving import state_of

        return state_of(self)

    @locked
    def set_state(self, state: PoolState) -> None:
        """Restores what `get_state` returned, or changes nothing.

        Both pools must have constructors that make the same environments in the same
        order; that is not checked. Dead workers are replaced first, if the pool has a
        `RestartPolicy`.

        Raises:
            TypeError: This is no state of a pool.
            ValueError: The state does not fit; the error names the part.
        """
        from envkit.parallel.durability.saving import restore
        from envkit.parallel.state import check_state

        self._check_open("set_state")
        check_state(state, type(self).__name__, self._pool)
        self._settle()
        shown = restore(self, state)
        began = shown is not None and self._pool.begun.all()
        self._current_time_step = _copied(shown) if began else None

    def _advise(self) -> None:
        """Says once if the environments would be as fast without workers."""
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
