"""Makes a batch of fixed size from rows that take their own time: `Blocking`."""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit._internal.internals import Internals
from envkit._internal.reset_order import adopt_order_of
from envkit._internal.text import counted, listed
from envkit._internal.threads import locked
from envkit._internal.worker_process import WorkerProcess
from envkit.async_environment import AsyncBatch, AsyncEnvironment
from envkit.batches import as_mask
from envkit.errors import (
    CallOrderError,
    ClosedError,
    SpecError,
    WorkerError,
    WorkerTimeout,
)
from envkit.provenance import recipe_of, record_seed, wrapper_recipe
from envkit.py_environment import InnerSpecs, PyEnvironment
from envkit.specs.arrays import as_array
from envkit.specs.environment_spec import info_spec_of
from envkit.specs.validation import check_fits, describe, flatten_as
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["Blocking"]


class _BlockingInternals(Internals):
    """Connects an asynchronous environment used as a batch to envkit."""

    def recipe(self, env: Any) -> dict[str, Any]:
        """Returns the environment's recipe, with this layer added."""
        arguments = {"timeout": env._timeout, "wait": env._waits}
        return wrapper_recipe(env, recipe_of(env._env), arguments)

    def inside(self, env: Any) -> list[Any]:
        """Returns the asynchronous environment."""
        return [env._env]

    def padding_rows(self, env: Any) -> Array | None:
        """Returns the rows that are resetting, if no call waits for them."""
        return None if env._waits else env.resetting

    def check_open(self, env: Any, call: str) -> None:
        """Raises if the environment is closed."""
        env._check_open(call)


class Blocking(InnerSpecs, PyEnvironment):
    """Makes an `AsyncEnvironment` wait for all its rows, as an ordinary batch does.

    Each `step` and `reset` returns when all its rows have answered. Past the timeout, a
    `WorkerTimeout` names the late rows. Nothing is lost: answers that arrived are kept,
    `wait()` completes the batch, and `reset()` starts over.

    With `wait=False`, no call waits for an episode to begin. `reset` returns at once,
    and `step` as soon as all rows within an episode have answered. If no row is within
    an episode, `step` waits for the first to begin, and `poll` does not. A row that is
    still resetting repeats a `LAST` with reward 0, discount 0 and its last observation,
    and is false in the mask `valid`. Its actions are dropped, and its `FIRST` appears
    once it is ready. Leave out the rows that are not valid when you learn from such a
    batch; they come only after a `LAST`.

    Example:
        >>> from envkit import AsyncParallelPyEnvironment
        >>> pool = AsyncParallelPyEnvironment(["Catch"] * 2, backend="inline")
        >>> env = Blocking(pool, wait=False)
        >>> env.reset().step_type, env.valid
        (array([0, 0], dtype=int32), array([ True,  True]))
        >>> env.close()
    """

    # Rows that are resetting show padding, so workers have to check the rows' results.
    _envkit = _BlockingInternals(one_thread=True, closes_at_once=True, first_look=False)

    def __init__(
        self,
        env: AsyncEnvironment,
        timeout: float | None = None,
        *,
        wait: bool = True,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wraps an asynchronous environment.

        Args:
            env: The environment; closing this one closes it.
            timeout: Seconds that one `step` or `reset` may take; `None` for no limit.
            wait: Whether to wait for episodes to begin.
            now: The clock that measures the timeout.
        """
        if not isinstance(env, AsyncEnvironment):
            raise TypeError(f"Blocking needs an AsyncEnvironment, not {describe(env)}.")
        if timeout is not None and not isinstance(timeout, numbers.Real):
            raise TypeError(
                f"timeout must be seconds or None, got {describe(timeout)}."
            )
        super().__init__()
        self._env = env
        self._continues = getattr(env, "continues_after_last", False) is True
        self._timeout = timeout
        self._now = now
        self._waits = bool(wait)
        self._rows = env.num_envs
        self._action = nest.Structure(env.action_spec())
        self._structure = nest.Structure(env.time_step_spec())
        self._columns = [
            np.zeros((self._rows, *spec.shape), spec.dtype)
            for spec in self._structure.leaves
        ]
        # Rows that owe an answer, and how many were asked together with each.
        self._owing = np.zeros(self._rows, bool)
        self._asked = 0
        # Rows that have raised or died, and not been reset since.
        self._failed = np.zeros(self._rows, bool)
        # Rows to reset as soon as they have given an earlier answer.
        self._to_reset = np.zeros(self._rows, bool)
        # The options of those resets.
        self._options: dict[int, Any] = {}
        # Rows still to be reset; rows whose last time step is real.
        self._beginning = np.zeros(self._rows, bool)
        self._valid = np.ones(self._rows, bool)
        self._closed = False
        adopt_order_of(self, env)
        # Not if a pool's environments are batches themselves.
        access = getattr(env, "access", None)
        self._rows_are_environments = access is not None and not any(access("batched"))

    @property
    def batched(self) -> bool:
        """True: the rows are a batch."""
        return True

    @property
    def batch_size(self) -> int:
        """The number of the environment's rows."""
        return self._rows

    @property
    def repeats_last(self) -> bool:
        """True if rows that are resetting repeat a `LAST`: with `wait=False`."""
        return not self._waits

    @property
    def continues_after_last(self) -> bool:
        """Whether the step after a `LAST` uses its action: no `FIRST` follows it."""
        return self._continues

    @property
    def seeds_rows(self) -> bool:
        """Whether `reset` accepts seeds for some rows, as a pool's does."""
        return hasattr(self._env, "_seed_rows")

    @property
    def valid(self) -> Array:
        """A mask of the rows whose time step was new; the others are resetting."""
        return self._valid.copy()

    @property
    def resetting(self) -> Array:
        """A mask of the rows whose next episode has not begun yet."""
        return self._beginning | self._to_reset

    @property
    def workers(self) -> list[WorkerProcess]:
        """The workers of the environment, if it is a pool."""
        return getattr(self._env, "workers", [])

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        self._check_open("seed")
        record_seed(self, seed)
        return self._env.seed(seed)

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs that the environment declares for its infos.

        With `wait=False`, rows that are resetting have no info, so nothing is declared.
        """
        return info_spec_of(self._env) if self._waits else {}

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns the environments' pictures, as the environment does."""
        self._check_open("render")
        env: Any = self._env
        return env.render(mode) if hasattr(env, "render") else super().render(mode)

    def get_info(self) -> Any:
        """Returns the infos of all rows, as the environment does.

        With `wait=False`, while rows are resetting, it is a list in which theirs are
        empty.
        """
        self._check_open("get_info")
        env: Any = self._env
        if not hasattr(env, "get_info"):
            return super().get_info()
        if not (self._rows_are_environments and self._owing.any()):
            return env.get_info()  # raises while a batch is busy
        infos: list[Any] = [{} for _ in range(self._rows)]
        idle = np.flatnonzero(~self._owing).tolist()
        for row, info in zip(idle, env.get_infos(idle), strict=True):
            infos[row] = info
        return infos

    def close(self) -> None:
        """Closes the environment."""
        if not self._closed:
            self._closed = True
            self._env.close()

    @locked
    def wait(self) -> TimeStep:
        """Completes a `step` or `reset` that exceeded its timeout, and returns it."""
        self._check_open("wait")
        self._check_none_failed("wait()")
        if not (self._owing | self._to_reset).any():
            raise CallOrderError(
                "Blocking.wait() was called although no row owes an answer. It "
                "completes a step() or reset() that ran into its timeout."
            )
        self._current_time_step = self._complete("wait")
        return self._current_time_step

    @locked
    def poll(self) -> TimeStep:
        """Returns episodes that have begun, without waiting for any.

        No row steps, so only rows that have just begun are `valid`. For `wait=False`.

        Example:
            >>> from envkit import AsyncParallelPyEnvironment
            >>> pool = AsyncParallelPyEnvironment(["Catch"] * 2, backend="inline")
            >>> env = Blocking(pool, wait=False)
            >>> env.reset_async()
            >>> env.poll().step_type, env.valid
            (array([0, 0], dtype=int32), array([ True,  True]))
            >>> env.close()
        """
        self._check_open("poll")
        if self._waits:
            raise CallOrderError(
                "Blocking.poll() is for wait=False; this one waits for all its rows."
            )
        self._check_nothing_owed("poll()")
        self._current_time_step = self._complete("poll")
        return self._current_time_step

    @locked
    def reset_async(self, mask: Array | None = None) -> None:
        """Begins an episode in the masked rows, or in all, without waiting for it.

        They are `resetting` from then on. With `wait=False`, `reset` does the same;
        otherwise the next `wait()` returns the whole batch.

        Args:
            mask: The rows; `None` for all.
        """
        self._check_open("reset_async")
        if mask is not None:
            mask = as_mask(self, mask, "reset_async", "a row is to begin an episode")
        self._begin(np.ones(self._rows, bool) if mask is None else mask)

    def _seed_rows(self, seeds: list[int | None]) -> None:
        env: Any = self._env
        env._seed_rows(seeds)

    def _reset(self, options: Any = None) -> TimeStep:
        self._check_open("reset")
        # Outstanding answers belong to the episodes that are abandoned here.
        self._begin(np.ones(self._rows, bool), options)
        return self._complete("reset")

    def _reset_rows(self, mask: Array, options: Any = None) -> TimeStep:
        self._check_open("reset")
        if self._waits:
            self._check_nothing_owed("reset(mask)")
        self._begin(mask, options)
        return self._complete("reset")

    def _begin(self, mask: Array, options: Any = None) -> None:
        """Resets rows; those that owe an answer are reset as soon as it has come."""
        if not self._waits:
            # A row that is already beginning need not begin again.
            again = [own is not None for own in options or [None] * self._rows]
            mask = mask & (~self._beginning | again)
        self._to_reset |= mask
        self._options.update(
            (row, None if options is None else options[row])
            for row in np.flatnonzero(mask).tolist()
        )
        self._reset_free_rows()

    def _reset_async(self, rows: Array) -> None:
        """Begins episodes in rows, with the options that were set for them."""
        options = [self._options.pop(row, None) for row in rows.tolist()]
        if any(own is not None for own in options):
            self._env.reset_async(rows, options=options)
        else:
            self._env.reset_async(rows)

    def _reset_free_rows(self) -> None:
        free = self._to_reset & ~self._owing
        if self._waits and self._owing.any():
            return  # all of them together
        if free.any():
            self._beginning |= free
            try:
                self._ask(free, self._reset_async)
            except NotImplementedError:  # it takes no options
                self._to_reset &= ~free
                raise
            self._failed[free] = False
            self._to_reset &= ~free

    def _step(self, action: NestedArray) -> TimeStep:
        self._check_open("step")
        self._check_nothing_owed("step()")
        self._check_length(action)
        moving = ~(self._owing | self._to_reset)
        if moving.any():
            # These rows begin an episode, whatever their action.
            if not self._continues:
                self._beginning |= moving & (self._columns[0] == StepType.LAST)
            if not moving.all():
                action = self._action.map(lambda leaf: as_array(leaf)[moving], action)
            self._ask(moving, lambda rows: self._env.send(action, rows))
        return self._complete("step")

    def _check_length(self, action: NestedArray) -> None:
        """Raises for a batch of the wrong length; `send` checks everything else."""
        subject = "Blocking.step() was given an action that"
        leaves = flatten_as(self._action, action, subject=subject, root="action")
        for path, spec, leaf in zip(
            self._action.paths, self._action.leaves, leaves, strict=True
        ):
            array = as_array(leaf)
            if array.shape[:1] == (self._rows,):
                continue
            expected = (self._rows, *spec.shape)
            raise SpecError.does_not_fit(
                subject,
                path=nest.join("action", path),
                root="action",
                expected=repr(spec.replace(shape=expected)),
                got=describe(leaf),
                reason=f"One action is needed for each of "
                f"{counted(self._rows, 'environment')}; none of them has moved.",
            )

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _check_none_failed(self, call: str) -> None:
        if self._failed.any():
            noun = "environment" if self._failed.sum() == 1 else "environments"
            raise CallOrderError(
                f"Blocking.{call} was called after {noun} "
                f"{listed(np.flatnonzero(self._failed))} failed. Call reset() to begin "
                "new episodes."
            )

    def _check_nothing_owed(self, call: str) -> None:
        self._check_none_failed(call)
        late = np.flatnonzero(self._awaited())
        if late.size:
            noun, verb = (
                ("environment", "owes") if late.size == 1 else ("environments", "owe")
            )
            raise CallOrderError(
                f"Blocking.{call} was called while {noun} {listed(late)} still {verb} "
                "an answer. Call wait() for it, or reset()."
            )

    def _awaited(self) -> Array:
        """Returns the rows whose answer the current call waits for."""
        if self._waits:
            return self._owing | self._to_reset
        return self._owing & ~self._beginning

    def _ask(self, mask: Array, ask: Callable[[Array], None]) -> None:
        # Recorded first: an interrupt may come when the rows have been asked already.
        self._owing |= mask
        self._asked = int(np.count_nonzero(mask))
        try:
            ask(np.flatnonzero(mask))
        except Exception:
            self._owing &= ~mask  # refused, so no row has been asked
            self._beginning &= ~mask
            raise

    def _complete(self, call: str) -> TimeStep:
        """Waits for outstanding answers, then for the resets queued behind them."""
        deadline = None if self._timeout is None else self._now() + self._timeout
        new = np.zeros(self._rows, bool)
        self._collect(call, deadline, new)
        if not self._waits:
            self._receive_what_is_there(new)
            waits = call not in ("reset", "poll")
            if waits and not new.any() and self._owing.any():
                # Without any time step to show, it has to wait for one.
                self._collect(call, deadline, new, at_least=1)
        self._show_fillers(~new & self._owing)
        self._valid = new if call == "poll" else ~self._owing
        # Copies: the caller keeps this time step while the next one fills the arrays.
        time_step: TimeStep = self._structure.unflatten(
            [column.copy() for column in self._columns]
        )
        return time_step

    def _show_fillers(self, rows: Array) -> None:
        """Makes rows that are resetting show padding, which learners leave out."""
        if not rows.any():
            return
        filler = TimeStep(
            np.int32(StepType.LAST),
            nest.map_structure(lambda spec: 0, self._env.reward_spec()),
            nest.map_structure(lambda spec: 0, self._env.discount_spec()),
            None,
        )
        values = [filler.step_type, *nest.flatten(filler.reward)]
        values += nest.flatten(filler.discount)
        # After these fields comes the observation, which stays.
        for column, value in zip(self._columns, values, strict=False):
            column[rows] = value

    def _receive_what_is_there(self, new: Array) -> None:
        """Takes the `FIRST`s that have arrived, without waiting."""
        while self._owing.any():
            count = int(np.count_nonzero(self._owing))
            before = count
            self._receive(count, 0.0, new)
            if np.count_nonzero(self._owing) == before:
                return

    def _collect(
        self, call: str, deadline: float | None, new: Array, *, at_least: int = 0
    ) -> None:
        """Receives until no row is awaited, and writes each answer into its row."""
        while True:
            self._reset_free_rows()
            missing = int(np.count_nonzero(self._awaited() & self._owing))
            missing = missing or at_least - int(np.count_nonzero(new))
            if missing <= 0:
                return
            left = None if deadline is None else max(deadline - self._now(), 0.0)
            self._receive(missing, left, new)
            # A pool may return early with the rows that are ready, so the clock
            # decides.
            late = self._awaited() if self._awaited().any() else self._owing
            if (
                deadline is not None
                and late.any()
                and not (at_least and new.any())
                and self._now() >= deadline
            ):
                raise self._too_late(call, np.flatnonzero(late).tolist())

    def _too_late(self, call: str, envs: list[int]) -> WorkerTimeout:
        noun = "environment" if len(envs) == 1 else "environments"
        return WorkerTimeout(
            f"Blocking.{call}() waited {self._timeout or 0.0:g} s for {noun} "
            f"{listed(envs)}; {self._asked - len(envs)} of {self._asked} answered. "
            "Their answers are kept: call wait() for the rest, or reset() to start "
            "over.",
            envs=envs,
        )

    def _receive(self, count: int, timeout: float | None, new: Array) -> None:
        try:
            batch = self._env.recv(count, timeout)
        except CallOrderError:
            if not self._to_reset.any():
                raise
            # Ctrl-C came between recording which rows to ask and asking them.
            self._owing[:] = self._beginning[:] = False
            return
        except WorkerError as error:
            # The error is these rows' answer; they owe no other.
            failed = list(error.envs)
            self._owing[failed] = self._beginning[failed] = False
            self._failed[failed] = True
            raise
        rows = self._place(batch, timeout)
        self._beginning[rows] = False
        # Rows that will be reset have abandoned this episode.
        new[rows] = ~self._to_reset[rows]

    def _place(self, batch: AsyncBatch, timeout: float | None) -> Array:
        rows = self._rows_of(batch)
        if not rows.size:
            if timeout is None:
                raise self._broken("returned no row although it had no timeout")
            return rows
        leaves = [as_array(leaf) for leaf in self._structure.flatten(batch.time_step)]
        if any(
            leaf.shape != (rows.size, *column.shape[1:]) or leaf.dtype != column.dtype
            for leaf, column in zip(leaves, self._columns, strict=True)
        ):
            check_fits(
                batch.time_step,
                self._structure.template,
                subject=f"{type(self._env).__name__}.recv() returned a time step that",
                outer_dims=(rows.size,),
            )
        for column, leaf in zip(self._columns, leaves, strict=True):
            column[rows] = leaf
        self._owing[rows] = False
        return rows

    def _rows_of(self, batch: Any) -> Array:
        """Returns the ids of a batch; each must owe an answer, and appear once."""
        if not hasattr(batch, "env_ids") or not hasattr(batch, "time_step"):
            raise self._broken(f"returned {describe(batch)}, not an AsyncBatch")
        rows = as_array(batch.env_ids)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise self._broken(f"returned {describe(batch.env_ids)} as env_ids")
        unknown = [row for row in rows.tolist() if not 0 <= row < self._rows]
        if unknown:
            raise self._broken(
                f"returned env_ids {listed(unknown)}; there are {self._rows} rows"
            )
        if len(set(rows.tolist())) < rows.size or not self._owing[rows].all():
            raise self._broken(
                f"returned env_ids {listed(rows.tolist())}, but only rows "
                f"{listed(np.flatnonzero(self._owing))} owe an answer"
            )
        return rows.astype(np.intp)

    def _broken(self, what: str) -> CallOrderError:
        return CallOrderError(
            f"{type(self._env).__name__}.recv() {what}. It must return each row that "
            "owes an answer, exactly once."
        )
