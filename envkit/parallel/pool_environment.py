"""`PoolEnvironment`: the common part of lockstep and asynchronous pools."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from envkit import nest
from envkit._internal.internals import Internals
from envkit._internal.text import a_or_an
from envkit._internal.threads import CallLock
from envkit.actions import ActionRows, OwnActionRows, action_rows
from envkit.async_environment import as_envs
from envkit.errors import ClosedError, EnvironmentRaised, WorkerError
from envkit.losses import Loss
from envkit.parallel import asking
from envkit.parallel.asking import check_name
from envkit.parallel.given_resets import GivenResets
from envkit.parallel.pool_internals import PoolInternals
from envkit.parallel.slab_layout import BEGUN_INFO, SHOWN_INFO
from envkit.provenance import provenance_of, record_seed
from envkit.seeding import seed_per_row
from envkit.time_step import AutoReset
from envkit.types import Array, EnvConstructor, NestedSpec, Seed

if TYPE_CHECKING:
    from envkit._internal.worker_process import WorkerProcess
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.options import PoolOptions
    from envkit.parallel.pool import Pool
    from envkit.parallel.statistics import PoolStatistics

__all__ = ["GRACE", "PoolEnvironment", "locked"]

Method = TypeVar("Method", bound=Callable[..., Any])
AnyPool = TypeVar("AnyPool", bound="PoolEnvironment")

_LOGGER = logging.getLogger(__name__)

_ORDERS = [AutoReset.NEXT_STEP, AutoReset.SAME_STEP, AutoReset.DISABLED]


# Seconds for environments to close, before their processes are killed.
GRACE = 5.0
# Used after Ctrl-C, because someone is waiting.
_SHORT_GRACE = 1.0
_LONGEST = threading.TIMEOUT_MAX


def locked(method: Method) -> Method:
    """Makes a method of a pool wait until the calls of other threads are over."""

    @functools.wraps(method)
    def run(self: PoolEnvironment, *args: Any, **kwargs: Any) -> Any:
        return self._locked(method.__name__, method, self, *args, **kwargs)

    return cast(Method, run)


class PoolEnvironment:
    """Asks environments, reports on the pool, and closes it.

    One thread uses it at a time: calls that ask, move or read rows hold `_call_lock`. A
    method marked `locked` must not call another one, unless it consists of several such
    calls and clears `_call_lock.call` first.
    """

    _pool: Pool
    _actions: ActionRows
    _closed = True  # until there is a pool
    _is_inherited = False
    #: The `extra` that was given to `save`, in a pool made by `load`.
    extra: Any = None
    # The workers check what environments return.
    _envkit: Internals = PoolInternals(
        first_look=False, is_template=True, closes_at_once=True
    )

    def _open(
        self, env_constructors: Any, backend: str | Backend, options: PoolOptions
    ) -> None:
        """Starts the pool."""
        # Loaded with the first pool: programs that only name the class, and workers
        # that import such programs, don't need it.
        from envkit.parallel.failures import no_room
        from envkit.parallel.lifetime import close_forgotten, disown_in_forks
        from envkit.parallel.opening import (
            as_backend,
            as_constructors,
            observers_of,
            placed,
            takes_names,
            tell_slow_leaves,
        )
        from envkit.parallel.pool import Pool

        name = type(self).__name__
        elsewhere = takes_names(backend)
        constructors = as_constructors(env_constructors, name, elsewhere=elsewhere)
        self._constructors = constructors
        if options.eager_resets and elsewhere:
            raise ValueError(
                "eager_resets must be False for environments of servers, which reset "
                "them when they are asked. Let the server offer environments for which "
                "others stand by: StandbyEnvironment."
            )
        try:
            # Comes after all other checks, because it opens files.
            self._backend = as_backend(backend, options)
            self._is_worker = self._backend.is_worker
            try:
                count = placed(self._backend, options, len(constructors))
                options = dataclasses.replace(options, num_workers=count)
            except BaseException:
                if self._backend is not backend:
                    self._backend.close(0.0)
                raise
            self._pool = pool = Pool(
                constructors,
                self._backend,
                options,
                functools.partial(observers_of, name, self._backend, options),
            )
        except OSError as error:
            if (refusal := no_room(error)) is None:
                raise
            raise refusal from error
        self._options = options
        PoolEnvironment._adopt_size(self)
        self._keep_order(options.autoreset)
        # Failures that have been raised already, by row.
        self._raised: dict[int, WorkerError] = {}
        self._given = GivenResets(self)
        self._call_lock = CallLock()
        self._calls = 0
        self._elapsed = 0.0
        self._relying_refs: list[weakref.ref[Any]] = []
        self._closed = False
        self._finalizer = weakref.finalize(self, close_forgotten, name, pool)
        if self._backend.can_kill:  # Its workers are processes.
            tell_slow_leaves(pool)
            disown_in_forks(self)

    def _action_rows(self, call: str) -> ActionRows:
        """Returns the checker for the actions of a call."""
        pool = self._pool
        own = [pool.own_specs[env].action for env in pool.env_of_row]
        return action_rows(pool.spec.action, own, f"{type(self).__name__}.{call}()")

    @property
    def _looks_always(self) -> bool:
        """Whether to check the bounds of every action, as when rows have their own."""
        return self._options.validate == "always" or isinstance(
            self._actions, OwnActionRows
        )

    # One thread at a time.

    def _locked(
        self, call: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Calls a function while no other thread uses the pool."""
        lock = self._call_lock
        if lock.call is not None or lock.waiting or self._is_worker():
            self._await_lock(call)
        with lock:
            try:
                lock.call = call
                return function(*args, **kwargs)
            except Exception as error:
                self._refuse_closed(error)
                raise
            finally:
                lock.call = None

    def _await_lock(self, call: str) -> None:
        lock, in_worker = self._call_lock, self._is_worker()
        if lock.is_mine() and lock.call is None and not in_worker:
            return  # This call is one part of a larger one.
        if lock.is_mine() or in_worker:
            raise lock.refuse(type(self).__name__, call)
        lock.wait(call, self._check_open)

    def _refuse_closed(self, error: Exception) -> None:
        """Raises the error for a call during which the pool was closed."""
        if self._closed and not isinstance(error, ClosedError):
            from envkit.parallel.failures import CLOSED_MEANWHILE

            raise ClosedError(CLOSED_MEANWHILE) from error

    # Specs and settings.

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one environment's observation."""
        return self._pool.spec.observation

    def action_spec(self) -> NestedSpec:
        """Returns the specs of one environment's action."""
        return self._pool.spec.action

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of one environment's reward."""
        return self._pool.spec.reward

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of one environment's discount."""
        return self._pool.spec.discount

    @property
    def autoreset(self) -> AutoReset:
        """When the episode after a `LAST` begins; may be changed at any time."""
        return self._order_kept

    @autoreset.setter
    @locked
    def autoreset(self, order: AutoReset | str) -> None:
        self._check_open("autoreset")
        order = AutoReset.of(order)
        self._before_other_order()
        self._keep_order(order)

    @property
    def continues_after_last(self) -> bool:
        """Whether the step after a `LAST` uses its action: no `FIRST` follows."""
        return self._pool.continues

    def _keep_order(self, order: AutoReset) -> None:
        self._order_kept = order
        self._move_in(order)

    def _move_in(self, order: AutoReset) -> None:
        """Sets the rows' order; environments that continue allow only one."""
        self._order = AutoReset.NEXT_STEP if self._pool.continues else order
        self._pool.slab.autoreset = _ORDERS.index(self._order)

    def _before_other_order(self) -> None:
        """Finishes work that belongs to the current order before it changes."""

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return len(self._pool.layout.blocks)

    @property
    def repaired(self) -> Array:
        """A mask of rows whose last time step was made up for a replaced environment.

        Such a row is a `LAST` with reward 0 and discount 1; a learner may leave it out.
        """
        if self._closed:
            return self._pool.repaired.copy()
        inside = self._pool.slab.shows_loss(self._everyone)
        return self._pool.repaired | inside

    @locked
    def current_losses(self) -> dict[int, Loss]:
        """Returns, by row, the loss behind each row of `repaired`."""
        self._collect_losses()
        endings = self._pool.rows.losses.endings
        return {row: endings[row] for row in self.repaired.nonzero()[0].tolist()}

    def _collect_losses(self) -> None:
        """Collects the losses inside environments that have made up a `LAST`."""
        if self._closed:
            return
        rows = self._pool.slab.shows_loss(self._everyone).nonzero()[0]
        if rows.size:
            from envkit.parallel.inner_losses import collect

            collect(self, rows)

    @locked
    def losses(self) -> list[Loss]:
        """Returns the losses since the last call, the oldest first.

        Some cut an episode short, some happen in a reset, after which the row shows the
        `FIRST` of another environment, and some were raised. An environment lost
        between two episodes costs nothing, and is not listed; nor is one that
        `recover="replay"` has brought back. A pool keeps the last 4096.

        Example:
            >>> import functools
            >>> from envkit import ParallelPyEnvironment, RestartPolicy
            >>> from envkit.testing import CrashingEnv
            >>> make = functools.partial(CrashingEnv, crash_at=2, how="raise")
            >>> policy = RestartPolicy()
            >>> with ParallelPyEnvironment(
            ...     [make] * 2, backend="inline", on_worker_failure=policy
            ... ) as env:
            ...     _ = env.reset(), env.step([0, 0]), env.step([0, 0])
            ...     [(loss.row, loss.kind) for loss in env.losses()], env.losses()
            ([(0, 'raised'), (1, 'raised')], [])
        """
        self._collect_losses()
        return self._pool.rows.losses.take()

    # Asking environments.

    @locked
    def seed(self, seed: Seed) -> list[Any]:
        """Seeds every environment, from one integer or with a seed for each."""
        self._check_idle("seed")
        pool = self._pool
        seeds = seed_per_row(seed, pool.num_rows)
        by_env = [
            [seeds[row] for row in rows] if pool.is_batch[env] else seeds[rows[0]]
            for env, rows in enumerate(pool.rows_of_env)
        ]
        record_seed(self, seed)
        results = asking.ask(self, "seed", None, by_env, tries=math.inf)
        self._given.seed(seeds)
        return results

    def _seed_rows(self, seeds: list[int | None]) -> None:
        """Seeds some rows; those with a seed of `None` keep their random numbers."""
        asking.seed_rows(self, seeds)
        self._given.seed(seeds)

    @locked
    def render(
        self, mode: str = "rgb_array", *, env_ids: Sequence[int] | None = None
    ) -> Any:
        """Returns stacked pictures; for other modes, a list.

        Either has an element for each row.

        Args:
            mode: "rgb_array" for pictures, or another mode of the environments. Windows
                open in the workers.
            env_ids: Which environments to render; `None` for all.

        Raises:
            NotImplementedError: The environments do not render in this mode.
        """
        self._check_open("render")
        envs = self._as_envs(env_ids)
        return asking.render(self, envs, mode)

    @locked
    def call(
        self,
        name: str,
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Calls a method of environments, in their workers, and returns the results.

        After Ctrl-C, an environment may or may not have been called. If it was, the
        call takes effect before any later one.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with ParallelPyEnvironment([CountingEnv] * 3, backend="inline") as env:
            ...     env.call("get_info", env_ids=[0, 2])
            [{}, {}]
        """
        self._check_open("call")
        check_name(name)
        if name in {"reset", "step"}:
            raise ValueError(
                f"call({name!r}) would move environments behind the pool's back. Use "
                f"{name}(), with a mask for some of them."
            )
        envs = self._as_envs(env_ids)
        return asking.ask(self, "call", envs, [(name, args, kwargs)] * len(envs))

    @locked
    def access(self, name: str, *, env_ids: Sequence[int] | None = None) -> list[Any]:
        """Returns an attribute of environments.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with ParallelPyEnvironment([CountingEnv] * 2, backend="inline") as env:
            ...     env.access("batched")
            [False, False]
        """
        self._check_open("access")
        check_name(name)
        envs = self._as_envs(env_ids)
        return asking.ask(self, "access", envs, [(name,)] * len(envs))

    @locked
    def set_attr(
        self, name: str, value: Any, env_ids: Sequence[int] | None = None
    ) -> None:
        """Sets an attribute of environments, in their workers.

        It is set on the wrapper or environment that has the attribute, or on the
        outermost if none has. An environment that is rebuilt after a failure has its
        constructor's values again.

        Args:
            name: The attribute.
            value: The value, the same for all.
            env_ids: Which environments; `None` for all.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with ParallelPyEnvironment([CountingEnv] * 3, backend="inline") as env:
            ...     env.set_attr("level", 1)
            ...     env.set_attr("level", 5, env_ids=[2])
            ...     env.access("level")
            [1, 1, 5]
        """
        self._check_open("set_attr")
        check_name(name)
        envs = self._as_envs(env_ids)
        asking.ask(self, "set_attr", envs, [(name, value)] * len(envs))

    @locked
    def env_is_wrapped(
        self, wrapper_class: type, *, env_ids: Sequence[int] | None = None
    ) -> list[bool]:
        """Returns for each row whether its environment is in a wrapper of this class.

        Args:
            wrapper_class: One of envkit's wrappers, or a Gymnasium wrapper around a
                Gymnasium environment.
            env_ids: Which environments; `None` for all.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> from envkit.wrappers import TimeLimit
            >>> makers = [CountingEnv, lambda: TimeLimit(CountingEnv(), 5)]
            >>> with ParallelPyEnvironment(makers, backend="inline") as env:
            ...     env.env_is_wrapped(TimeLimit)
            [False, True]
        """
        self._check_open("env_is_wrapped")
        envs = self._as_envs(env_ids)
        asked = [(wrapper_class,)] * len(envs)
        answers = asking.ask(self, "env_is_wrapped", envs, asked)
        return [is_wrapped for rows in answers for is_wrapped in rows]

    def _as_envs(self, env_ids: Sequence[int] | None) -> list[int]:
        return as_envs(env_ids, len(self._pool.rows_of_env))

    # Infos.

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of the infos that all environments declare."""
        return nest.map_structure(  # type: ignore[no-any-return]
            lambda spec: spec, self._pool.layout.info_spec
        )

    @locked
    def get_info(self) -> Any:
        """Returns the infos stacked, or as a list if they cannot be stacked.

        They belong to the last returned time step, even if the next episode has begun
        since. The info of a replaced environment is `{}`, because its time step was
        made up. If infos have only the keys that `info_spec` declares, no worker is
        asked.
        """
        from envkit.parallel import pool_infos

        self._check_idle("get_info")
        return pool_infos.all_infos(self)

    @locked
    def declared_info(self, env_ids: Sequence[int] | None = None) -> dict[str, Any]:
        """Returns the infos of `info_spec`: arrays with an element for each row.

        Like the infos of `get_info`, they belong to the last returned time step; they
        come from shared memory. Workers are asked only about environments that were
        called, or set to a state, since then. The rows of a replaced environment have
        zeros; `repaired` marks them.

        Args:
            env_ids: Which environments; their rows come in this order.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.realtime import RealTimeEnvironment
            >>> from envkit.testing import CountingEnv
            >>> def make():
            ...     return RealTimeEnvironment(CountingEnv, hz=60, host="virtual")
            >>> with ParallelPyEnvironment([make] * 2, backend="inline") as env:
            ...     _ = env.reset(), env.step([0, 0])
            ...     env.declared_info()["realtime"]["observation_tick"]
            array([1, 1])
        """
        from envkit.parallel import pool_infos

        self._check_open("declared_info")
        rows = self._rows_of(self._as_envs(env_ids))
        self._check_answered(rows, "declared_info")
        return pool_infos.declared(self, rows)

    @locked
    def get_infos(self, env_ids: Sequence[int] | None = None) -> list[Any]:
        """Returns the infos in a list, with an element for each environment.

        Args:
            env_ids: Which environments to ask; no row of theirs may owe an answer.
        """
        self._check_open("get_infos")
        envs = self._as_envs(env_ids)
        self._check_answered(self._rows_of(envs), "get_infos")
        return asking.ask(self, "get_info", envs)

    @locked
    def rows_with_info(self, *, begun: bool = False) -> Array:
        """Returns a mask of the rows that have an info.

        An info that has only the flags `terminated` and `truncated` does not count;
        `ends` has those. Workers start looking at the first call, and keep the infos
        for `get_info`. Until a row's next step its element is True.

        Args:
            begun: Whether to ask about the `FIRST` that has followed a `LAST` in the
                same step, instead of the time step that the last call returned.

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

    @locked
    def rows_with_more_info(self) -> Array:
        """Returns a mask of rows whose info has more than `info_spec` declares.

        Rows whose info no worker has checked yet count too.
        """
        from envkit.parallel import pool_infos

        self._check_open("rows_with_more_info")
        return pool_infos.has_more_info(self)

    def _rows_of(self, envs: Sequence[int]) -> Array:
        rows_of_env = self._pool.rows_of_env
        return np.concatenate([np.empty(0, np.intp), *(rows_of_env[e] for e in envs)])

    def _check_answered(self, rows: Array, call: str) -> None:
        """Raises unless all answers of these rows have been returned."""

    # Changing the number of rows.

    @locked
    def resize(
        self,
        num_envs: int,
        constructors: Sequence[EnvConstructor | str] | None = None,
        *,
        num_workers: int | None = None,
    ) -> None:
        """Changes the number of rows; the remaining rows are not disturbed.

        New rows are appended, in new workers, with the seeds that they would have if
        the pool had had this size when it was last seeded with one integer; after a
        list of seeds they get none. Their environments must have the pool's specs. In a
        lockstep pool that has begun, new rows begin at once: `current_time_step()` has
        their `FIRST`.

        A smaller number removes the last rows: their environments are closed, workers
        left without environments end, and `statistics()` no longer counts them. Rows
        that come back have the same seeds.

        Arrays returned before stay valid, with `zero_copy` too, and occupy memory as
        long as you keep them. If it raises, after Ctrl-C too, nothing has changed.

        Args:
            num_envs: The new number of rows. A batched environment comes or goes as a
                whole.
            constructors: Constructors of the new environments. They may be left out if
                all environments have the same one.
            num_workers: How many new workers share the new environments; `None` keeps
                the number of environments per worker.

        Raises:
            CallOrderError: Rows owe an answer, or a wrapper relies on their number.
            ValueError: The number is impossible, or the constructors are unclear.
            WorkerError: New environments could not be built, or could not begin.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with ParallelPyEnvironment([CountingEnv] * 2, backend="inline") as env:
            ...     _ = env.reset(), env.step([0, 0])
            ...     env.resize(3)
            ...     env.current_time_step().observation.tolist(), env.batch_size
            ([1, 1, 0], 3)
        """
        from envkit.parallel.durability.resizing import resize

        self._check_idle("resize")
        self._settle()
        resize(self, num_envs, constructors, num_workers)

    # The reason why wrappers around the pool do not forward it.
    resize.is_not_forwarded = (  # type: ignore[attr-defined]
        "has been made for as many rows as there are. Let the constructors wrap each "
        "environment, or resize the pool before it is wrapped."
    )

    def _has_begun(self) -> bool:
        """True if new rows must begin at once."""
        return False

    def _begin_new(self, rows: Array) -> None:
        """Begins new rows, if all others have begun."""

    def _relying(self) -> list[str]:
        """Returns the classes of the objects that rely on the number of rows."""
        known = [ref() for ref in self._relying_refs]
        return [type(one).__name__ for one in known if one is not None]

    def _adopt_size(self) -> None:
        """Updates everything that depends on the number of rows."""
        pool = self._pool
        self._structure = pool.layout.time_step
        self._rows = pool.num_rows
        self._everyone = np.arange(pool.num_rows)

    # Provenance.

    def provenance(self) -> dict[str, Any]:
        """Returns where the environments come from, as data that JSON can hold.

        Versions of packages are the first worker's.
        """
        found = provenance_of(self)
        if self._closed:
            return found
        try:
            (there,) = self.call("provenance", env_ids=[0])
        except EnvironmentRaised:  # It is a different kind of environment.
            return found
        return {**found, "packages": there["packages"]}

    # State.

    @locked
    def save(
        self,
        path: str | os.PathLike[str],
        extra: Any = None,
        *,
        pickle: bool = False,
    ) -> None:
        """Writes a checkpoint, from which `load` continues bit for bit.

        An existing checkpoint is replaced only when the new one is complete and on the
        disk. It survives a failed write, and a program that is killed meanwhile; a kill
        can leave a hidden file, `.run.ckpt.….part`, which may be deleted. An object
        that a state refers to twice comes back as two.

        Args:
            path: The file.
            extra: Anything else to save, such as a learner's weights and the state of
                its random generator: numbers, text, arrays, and lists, tuples and
                dictionaries of these.
            pickle: Whether to pickle everything that is not such plain data, bytes
                included.

        Raises:
            TypeError: The state of an environment, or `extra`, is not plain data.
            NotImplementedError: An environment cannot save its state.
        """
        from envkit.parallel.durability import saving

        self._check_idle("save")
        self._settle()
        saving.save(self, path, extra, pickle)

    # The reason why wrappers around the pool do not forward it.
    save.is_not_forwarded = (  # type: ignore[attr-defined]
        "a checkpoint of the pool would lack what the wrapper holds. Let the "
        "constructors wrap each environment, or save the pool and keep the rest in its "
        "extra."
    )

    @classmethod
    def load(
        cls: type[AnyPool],
        path: str | os.PathLike[str],
        env_constructors: Any,
        *,
        pickle: bool = False,
        **options: Any,
    ) -> AnyPool:
        """Makes a pool that continues from the checkpoint of a saved pool.

        The same actions give the same time steps as in the saved pool, whatever the
        backend and the number of workers. The pool's `extra` is the one given to
        `save`.

        Args:
            path: The checkpoint.
            env_constructors: The constructors of the environments, as in the saved
                pool.
            pickle: Whether to unpickle data in the file, which can run any code.
                Without it, no file can run code.
            **options: Other arguments of the class; `autoreset` defaults to the saved
                pool's.

        Raises:
            CheckpointError: The file is no checkpoint, was truncated or altered, or
                belongs to other environments. No pool is left running.
        """
        from envkit.parallel.durability.saving import load_pool

        return load_pool(  # type: ignore[no-any-return]  # it makes one of `cls`
            cls, path, env_constructors, pickle, options
        )

    # Statistics, failures and the end.

    def statistics(self) -> PoolStatistics:
        """Returns the workers' counts so far, and their current state.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with ParallelPyEnvironment([CountingEnv] * 2, backend="inline") as env:
            ...     _ = env.reset(), env.step([0, 0])
            ...     env.statistics().steps
            4
        """
        from envkit.parallel.statistics import statistics_of

        self._check_open("statistics")
        return statistics_of(self._pool, self._backend, self._calls, self._elapsed)

    @property
    def workers(self) -> list[WorkerProcess]:
        """The workers and their processes, for `psutil`, `gdb` or `py-spy`.

        Another thread may read it while a step hangs. It is empty once the pool is
        closed.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with ParallelPyEnvironment([CountingEnv] * 4, num_workers=2) as env:
            ...     [(worker.rows, worker.state) for worker in env.workers]
            [((0, 1), 'ready'), ((2, 3), 'ready')]
        """
        from envkit.parallel.worker_processes import workers_of

        return [] if self._closed else workers_of(self._pool, self._backend)

    @contextlib.contextmanager
    def _marking_raised(self) -> Iterator[None]:
        """Records that a failure was raised, if it is a row's answer."""
        try:
            yield
        except WorkerError as error:
            for env in error.envs:
                for row in self._pool.rows_of_env[env]:
                    if row in self._pool.errors:
                        self._raised[row] = self._pool.errors[row]
            raise

    def _raise_failures(self) -> None:
        """Raises failures that were not raised before."""
        errors = self._pool.errors
        if not errors:
            return
        untold = {
            row: error
            for row, error in sorted(errors.items())
            if self._raised.get(row) is not error
        }
        if untold:
            self._raised = dict(errors)
            distinct = {id(error): error for error in untold.values()}
            from envkit.parallel.failures import joined

            raise joined(list(distinct.values()))

    def _check_open(self, call: str) -> None:
        if self._is_inherited:
            from envkit.parallel.failures import OF_ANOTHER_PROCESS

            raise ClosedError(OF_ANOTHER_PROCESS)
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _check_idle(self, call: str) -> None:
        self._check_open(call)

    def _settle(self) -> None:
        """Completes work left unfinished by an earlier call."""

    def close(self, grace: float = GRACE) -> None:
        """Ends the workers; calling it again does nothing.

        Args:
            grace: Seconds for environments to finish and close; then their processes
                are killed.
        """
        if not self._closed:
            self._closed = True
            self._finalizer.detach()
            # Another thread may be waiting. This frees it at once, unless it runs an
            # environment itself.
            self._pool.wake()
            is_out = False
            try:
                is_out = self._call_lock.acquire(timeout=min(max(grace, 0.0), _LONGEST))
            finally:
                try:
                    self._pool.close(grace)
                finally:
                    if is_out:
                        self._call_lock.release()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(exception, KeyboardInterrupt | SystemExit):
            self.close(_SHORT_GRACE)
        else:
            self.close()

    def __reduce__(self) -> Any:
        kind = a_or_an(type(self).__name__)
        raise TypeError(
            f"{kind[0].upper()}{kind[1:]} has workers and cannot be copied or pickled: "
            "pass what it was made of, and make another there."
        )
