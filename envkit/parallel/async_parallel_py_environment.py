"""`AsyncParallelPyEnvironment`: environments in workers, each at its own pace."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from envkit._internal.first_look import refuse_unpacking
from envkit._internal.removed import refuses_removed_options
from envkit._internal.text import counted, listed
from envkit.async_environment import AsyncBatch, AsyncEnvironment, check_env_ids
from envkit.batches import options_per_row
from envkit.errors import CallOrderError, SpecError, WorkerError
from envkit.parallel.asking import among_all, send_options
from envkit.parallel.backends.base import Backend
from envkit.parallel.options import PoolOptions, as_timeout
from envkit.parallel.pool_environment import PoolEnvironment, locked
from envkit.parallel.pool_infos import declared
from envkit.parallel.restarts import RestartPolicy
from envkit.parallel.slab_layout import RESET, STEP
from envkit.parallel.state import PoolState, check_state
from envkit.provenance import record_seed
from envkit.seeding import seed_per_row
from envkit.specs.validation import describe
from envkit.time_step import AutoReset, TimeStep
from envkit.types import Array, EnvConstructor, NestedArray, Options, ResetSeed

__all__ = ["AsyncParallelPyEnvironment"]


class AsyncParallelPyEnvironment(PoolEnvironment, AsyncEnvironment):
    """Steps environments in workers, and returns whichever are ready first.

    While a policy thinks about one half, the other half steps, and a slow environment
    delays only the others in its worker.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = AsyncParallelPyEnvironment([CountingEnv] * 4, backend="inline")
        >>> env.reset_async()
        >>> first = env.recv(count=2)
        >>> env.send(np.zeros(2, np.int32), first.env_ids)
        >>> sorted(env.recv().env_ids.tolist())
        [0, 1, 2, 3]
        >>> env.close()
    """

    @refuses_removed_options
    def __init__(
        self,
        env_constructors: Sequence[EnvConstructor | str],
        start_serially: bool = False,
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
        validate: str = "first",
        specs: str = "equal",
        eager_resets: bool = False,
        max_worker_memory: int | None = None,
    ) -> None:
        """Starts the workers and waits until every environment is built.

        Takes the same arguments as `ParallelPyEnvironment`. Workers that share nothing
        delay each other least: for environments of very different speed, take as many
        workers as environments.
        """
        # The parameters that are options have their names.
        options = PoolOptions.among({**locals(), "rings_each_row": True})
        self._open(env_constructors, backend, options)
        self._looked_at = np.zeros(0, bool)
        self._adopt_size()

    def _adopt_size(self) -> None:
        super()._adopt_size()
        self._actions = self._action_rows("send")
        self._has_batches = any(self._pool.is_batch)
        known = self._looked_at[: self._rows]
        new = np.zeros(self._rows - len(known), bool)
        self._looked_at = np.concatenate([known, new])
        self._looks_at_bounds = self._looks_always or (
            self._options.validate != "never" and not self._looked_at.all()
        )

    @property
    def num_envs(self) -> int:
        """The number of rows."""
        return self._rows

    @property
    @locked
    def owing(self) -> Array:
        """A mask of the rows whose answer no `recv` has returned yet."""
        return self._owing()

    def _owing(self) -> Array:
        if self._closed:
            return np.zeros(self._rows, bool)
        owing = self._pool.rows.owing()
        if self._pool.errors:
            # Their answer is the error.
            errors, told = self._pool.errors, self._raised
            owing[[row for row in errors if told.get(row) is not errors[row]]] = True
        return owing

    @locked
    def reset_async(
        self,
        env_ids: Sequence[int] | Array | None = None,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> None:
        """Starts an episode in the given rows, or in all, and returns immediately.

        A seed or options must be sent first, so the call then waits until the workers
        of these rows are idle.

        Args:
            env_ids: The rows; `None` for all.
            seed: One integer, which gives row `i` the same random numbers as `seed()`
                does, or a list with an integer or `None` for each of `env_ids`.
            options: Options for this one reset: a dictionary for all, or a list with a
                dictionary or `None` for each of `env_ids`.
        """
        self._check_open("reset_async")
        rows = self._as_rows(env_ids)
        self._check_nothing_owed(rows, "reset_async")
        self._pool.check_alive(rows, "reset_async")
        if options is not None:
            mask = np.zeros(self._rows, bool)
            mask[rows] = True
            by_row = among_all(self, options_per_row(options, rows.size), rows)
            send_options(self, by_row, mask)
            self._given.set_options(by_row, mask)
        if seed is not None:
            self._seed_rows(among_all(self, self._seeds_of(seed, rows), rows))
            if rows.size == self._rows and np.ndim(seed) == 0:  # type: ignore[arg-type]  # as below
                record_seed(self, seed)
        self._pool.submit(rows, RESET)

    def _seeds_of(self, seed: ResetSeed, rows: Array) -> list[int | None]:
        """Returns a seed for each of these rows."""
        if np.ndim(seed) == 0:  # type: ignore[arg-type]  # None in it has no dimension
            by_row = seed_per_row(seed, self._rows)
            return [by_row[row] for row in rows.tolist()]
        return seed_per_row(seed, rows.size)

    @locked
    def send(
        self, actions: NestedArray, env_ids: Sequence[int] | Array | None = None
    ) -> None:
        """Sends row `i` of the actions to `env_ids[i]`, and returns immediately.

        `env_ids` defaults to all rows. Under NEXT_STEP, a row whose episode has ended
        begins the next one and ignores its action. So does a row that has not begun
        yet.
        """
        # Hot: called once per batch of any size.
        self._check_open("send")
        rows = self._as_rows(env_ids)
        self._check_nothing_owed(rows, "send")
        pool = self._pool
        pool.check_alive(rows, "send")
        self._check_can_step(rows)
        has_new = b"\0" in pool.begun[rows].tobytes()
        if self._looks_at_bounds:
            columns = self._actions.columns(
                actions, rows=rows, ignored=self._have_ended(rows)
            )
            # The first action of every row is checked completely.
            self._looked_at[rows] = True
            self._looks_at_bounds = self._looks_always or not self._looked_at.all()
        else:
            columns = self._actions.columns(actions, rows=rows, bounds=False)
        pool.slab.write_actions(columns, rows)
        if has_new:
            begun = pool.begun[rows]
            pool.submit(rows[~begun], RESET)
            rows = rows[begun]
        if rows.size:
            pool.submit(rows, STEP)

    @locked
    def recv(
        self, count: int | None = None, timeout: float | None = None
    ) -> AsyncBatch:
        """Returns finished rows, in the order in which they finished.

        Args:
            count: How many rows to wait for; `None` waits for all that owe an answer.
                No more than these are returned, the oldest answers first.
            timeout: Seconds after which to return what is ready, possibly nothing.

        Raises:
            CallOrderError: No row owes an answer, or fewer than `count` do.
            WorkerError: An environment that owes an answer has failed. The error is its
                answer; the other answers are kept for the next call.
        """
        # Hot: called once per batch of any size.
        self._check_open("recv")
        if not self._calls:
            refuse_unpacking()
        began = perf_counter()
        pool = self._pool
        # Rows whose failure has been raised owe nothing any more.
        owing = self._owing().nonzero()[0]
        wanted = self._as_count(count, owing.size)
        if timeout is not None and timeout != 0:
            timeout = as_timeout("timeout", timeout)
        self._raise_failures()
        pool.wait(wanted, owing, timeout)
        self._raise_failures()
        while self._given.are_any and self._begin_again(owing):
            pool.wait(wanted, owing, timeout)
            self._raise_failures()
        rows = pool.rows.finished(owing, wanted)
        time_step = self._structure.unflatten(pool.slab.read(rows))
        info = self._declared_of(rows) if pool.layout.info_spec else None
        pool.rows.set_returned(rows)
        self._calls += 1
        self._elapsed += perf_counter() - began
        return AsyncBatch(rows, time_step, info)

    def _begin_again(self, owing: Array) -> bool:
        """Resets rows again that were lost before using their seeds or options.

        Returns:
            Whether there are any.
        """
        given = self._given.take(self._pool.rows.finished(owing, owing.size))
        lost = given.lost()
        if not lost.size:
            return False
        self._pool.rows.set_returned(lost)
        given.give(lost)
        self._given.put_back(given, lost)
        self._pool.submit(lost, RESET)
        return True

    def _declared_of(self, rows: Array) -> dict[str, Any] | Exception:
        """Returns the declared infos of rows, or the error raised in reading them.

        The caller sees such an error only on reading the infos: the time steps are
        good.
        """
        try:
            return declared(self, rows)
        except (SpecError, WorkerError) as error:
            return error

    def _as_count(self, count: int | None, owing: int) -> int:
        if not owing:
            raise CallOrderError(
                "recv() was called although no environment owes an answer. Call "
                "reset_async() or send() first."
            )
        if count is None:
            return owing
        must = (
            "count must be an integer of at least 1, or None for all that owe an "
            "answer, got"
        )
        try:
            wanted = operator.index(count)
        except TypeError:
            raise TypeError(f"{must} {describe(count)}.") from None
        if wanted < 1:
            raise ValueError(f"{must} {wanted}.")
        if wanted > owing:
            raise CallOrderError(
                f"recv(count={wanted}) was called although only "
                f"{counted(owing, 'environment')} owe{'s' * (owing == 1)} an answer, "
                "so it would wait for ever. Ask for fewer, or send more first."
            )
        return wanted

    @locked
    def current_time_step(
        self, env_ids: Sequence[int] | Array | None = None
    ) -> TimeStep:
        """Returns the time steps for a policy to act on, of rows that owe nothing.

        Under `AutoReset.SAME_STEP` these differ from what `recv` returned: after the
        `LAST` of an episode, they are already the `FIRST` of the next.
        """
        self._check_open("current_time_step")
        rows = self._as_rows(env_ids)
        self._check_nothing_owed(rows, "current_time_step")
        if not self._pool.begun[rows].all():
            raise CallOrderError(
                "current_time_step() was called before environment "
                f"{listed(rows[~self._pool.begun[rows]])} began. Call reset_async() "
                "first."
            )
        leaves = self._pool.slab.read_standing(rows)
        return self._structure.unflatten(leaves)  # type: ignore[no-any-return]

    def _as_rows(self, env_ids: Sequence[int] | Array | None) -> Array:
        # Hot: called once per send.
        if env_ids is None:
            return self._everyone
        rows = np.asarray(env_ids)
        check_env_ids(env_ids, rows, self._rows)
        return rows.astype(np.intp, copy=False)

    def _check_nothing_owed(self, rows: Array, call: str) -> None:
        # Hot: called once per send.
        owing = rows[self._owing()[rows]]
        if owing.size:
            one = owing.size == 1
            raise CallOrderError(
                f"{call}() was called while {counted(owing.size, 'environment')} "
                f"({listed(owing)}) still {'owes' if one else 'owe'} an answer. Call "
                f"recv() until it returns {'it' if one else 'them'}."
            )

    def _have_ended(self, rows: Array) -> Array:
        """Returns a mask of the rows that this step resets, whatever the action."""
        begins: Array = ~self._pool.begun[rows]
        return begins if self._pool.continues else begins | self._pool.slab.ended(rows)

    def _check_can_step(self, rows: Array) -> None:
        pool = self._pool
        if pool.errors:
            broken = pool.rows.broken(rows)
            if broken.size:
                noun = "environment" if broken.size == 1 else "environments"
                raise CallOrderError(
                    f"send() was called after {noun} {listed(broken)} raised. Call "
                    "reset_async(env_ids) to begin new episodes there."
                )
        if self._order is AutoReset.DISABLED:
            ended = rows[pool.slab.shows_last(rows) & pool.begun[rows]]
            if ended.size:
                noun = "row" if ended.size == 1 else "rows"
                raise CallOrderError(
                    f"send() was called after the episode of {noun} {listed(ended)} "
                    "ended. Under AutoReset.DISABLED, call reset_async(env_ids) for "
                    "them first."
                )
        for env, block in enumerate(pool.rows_of_env) if self._has_batches else ():
            chosen = np.isin(block, rows)
            if chosen.any() and not chosen.all():
                raise ValueError(
                    f"env_ids has only some of rows {block.start} to {block.stop - 1}, "
                    f"which are one environment (env {env}) that is a batch itself and "
                    "moves together."
                )

    def _before_other_order(self) -> None:
        self._check_idle("autoreset")
        # Rows that have not begun have no time step; the pool still knows which they
        # are.
        leaves = self._pool.slab.read_standing(self._everyone)
        self._pool.rows.stand(leaves, leaves)

    def _check_idle(self, call: str) -> None:
        self._check_open(call)
        self._check_nothing_owed(self._everyone, call)

    def _check_answered(self, rows: Array, call: str) -> None:
        self._check_open(call)
        self._check_nothing_owed(rows, call)

    # State.

    @locked
    def get_state(self) -> PoolState:
        """Returns a token from which any pool's `set_state` restores all environments.

        No row may owe an answer.
        """
        self._check_idle("get_state")
        from envkit.parallel.durability.saving import state_of

        return state_of(self)

    @locked
    def set_state(self, state: PoolState) -> None:
        """Restores what `get_state` returned, or changes nothing."""
        self._check_idle("set_state")
        check_state(state, type(self).__name__, self._pool)
        from envkit.parallel.durability.saving import restore

        restore(self, state)
