"""Environments that are not in lockstep: `AsyncEnvironment`, and `Blocking` around it.

`send` hands actions to some rows and returns at once; `recv` returns whichever rows are
ready. A row that is busy, or resetting, is simply not among the ids, so each row's own
stream stays `FIRST (MID)* LAST`.
"""

from __future__ import annotations

import abc
import numbers
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from envkit import nest
from envkit.arrays import as_array
from envkit.errors import (
    CallOrderError,
    ClosedError,
    SpecError,
    WorkerError,
    WorkerTimeout,
)
from envkit.py_environment import PyEnvironment
from envkit.specified import Specified
from envkit.specs.validation import check_fits, describe, flatten_as
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wording import counted, listed

__all__ = ["AsyncBatch", "AsyncEnvironment", "Blocking"]

Self = TypeVar("Self", bound="AsyncEnvironment")


class AsyncBatch(NamedTuple):
    """What `recv` returns: the rows that are ready and their time steps.

    Attributes:
        env_ids: Which rows these are, in the order in which they finished.
        time_step: Their time steps; row `i` of every array belongs to `env_ids[i]`.
    """

    env_ids: Array
    time_step: TimeStep


class AsyncEnvironment(Specified):
    """A batch of environments, each of which takes its own time.

    The contract, for each row: `reset_async` or `send` makes it owe one answer, and
    exactly one `recv` returns that answer. A row that owes an answer takes no action.
    """

    @property
    @abc.abstractmethod
    def num_envs(self) -> int:
        """How many rows there are."""

    @abc.abstractmethod
    def reset_async(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Lets the given rows, or all, start an episode; returns at once."""

    @abc.abstractmethod
    def send(
        self, actions: NestedArray, env_ids: Sequence[int] | Array | None = None
    ) -> None:
        """Hands row `i` of the actions to `env_ids[i]`, or to all; returns at once.

        Actions that do not fit are refused before any row has got one.
        """

    @abc.abstractmethod
    def recv(
        self, count: int | None = None, timeout: float | None = None
    ) -> AsyncBatch:
        """Returns rows that have finished, in the order in which they did.

        Args:
            count: How many to wait for; `None` waits for all that owe an answer.
            timeout: Seconds after which to return what is ready, possibly nothing.

        Raises:
            CallOrderError: No row owes an answer, or fewer than `count` do.
        """

    def seed(self, seed: Seed) -> Any:
        """Makes what is random from the next reset on depend on `seed` alone."""
        raise NotImplementedError(f"{type(self).__name__} cannot be seeded.")

    def close(self) -> None:  # nothing to free unless a subclass says so
        """Frees what the environment holds; calling it again does nothing."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Blocking(PyEnvironment):
    """Makes an `AsyncEnvironment` wait for all its rows: an ordinary batch.

    Each `step` and `reset` returns when every row concerned has answered. Past the
    timeout a `WorkerTimeout` names the rows that are late; nothing is lost: the
    answers that came are kept, `wait()` completes the batch, `reset()` starts over.
    """

    def __init__(
        self,
        env: AsyncEnvironment,
        timeout: float | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wraps an asynchronous environment.

        Args:
            env: The environment; closing this one closes it.
            timeout: Seconds that one `step` or `reset` may take; `None` for ever.
            now: The clock that the timeout is measured with.
        """
        if not isinstance(env, AsyncEnvironment):
            raise TypeError(f"Blocking needs an AsyncEnvironment, not {describe(env)}.")
        if timeout is not None and not isinstance(timeout, numbers.Real):
            raise TypeError(f"timeout is {describe(timeout)}; it is seconds or None.")
        super().__init__()
        self._env = env
        self._timeout = timeout
        self._now = now
        self._rows = env.num_envs
        self._action = nest.Structure(env.action_spec())
        self._structure = nest.Structure(env.time_step_spec())
        self._columns = [
            np.zeros((self._rows, *spec.shape), spec.dtype)
            for spec in self._structure.leaves
        ]
        # Which rows owe an answer, and how many were asked with them.
        self._owing = np.zeros(self._rows, bool)
        self._asked = 0
        # Which rows have raised or died, and not been reset since.
        self._failed = np.zeros(self._rows, bool)
        # The rows to reset as soon as nobody owes an answer to something earlier.
        self._to_reset: Array | None = None
        self._closed = False

    @property
    def batched(self) -> bool:
        """True: the rows are a batch."""
        return True

    @property
    def batch_size(self) -> int:
        """How many rows the environment has."""
        return self._rows

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one row's observation."""
        return self._env.observation_spec()

    def action_spec(self) -> NestedSpec:
        """Returns the specs of one row's action."""
        return self._env.action_spec()

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of one row's reward."""
        return self._env.reward_spec()

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of one row's discount."""
        return self._env.discount_spec()

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        self._check_open("seed")
        return self._env.seed(seed)

    def close(self) -> None:
        """Closes the environment."""
        if not self._closed:
            self._closed = True
            self._env.close()

    def wait(self) -> TimeStep:
        """Completes a `step` or `reset` that ran into its timeout, and returns it."""
        self._check_open("wait")
        self._check_none_failed("wait()")
        if not self._owing.any() and self._to_reset is None:
            raise CallOrderError(
                "Blocking.wait() was called although no row owes an answer. It is for "
                "completing a step() or reset() that ran into its timeout."
            )
        self._current_time_step = self._complete("wait")
        return self._current_time_step

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        # Answers that are still out belong to the episodes given up here.
        self._to_reset = np.ones(self._rows, bool)
        return self._complete("reset")

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._check_open("reset")
        self._check_nothing_owed("reset(mask)")
        self._to_reset = mask
        return self._complete("reset")

    def _step(self, action: NestedArray) -> TimeStep:
        self._check_open("step")
        self._check_nothing_owed("step()")
        self._check_length(action)
        everyone = np.ones(self._rows, bool)
        self._ask(everyone, lambda rows: self._env.send(action, rows))
        return self._complete("step")

    def _check_length(self, action: NestedArray) -> None:
        """Refuses a batch of another length; what else is wrong, `send` says."""
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
                f"{listed(np.flatnonzero(self._failed))} failed, whose episodes cannot "
                "go on. Call reset(), which begins new ones."
            )

    def _check_nothing_owed(self, call: str) -> None:
        self._check_none_failed(call)
        late = np.flatnonzero(self._owing)
        if late.size:
            noun, verb = (
                ("environment", "owes") if late.size == 1 else ("environments", "owe")
            )
            raise CallOrderError(
                f"Blocking.{call} was called while {noun} {listed(late)} still {verb} "
                "an answer. Call wait() for it, or reset()."
            )

    def _ask(self, mask: Array, ask: Callable[[Array], None]) -> None:
        # Noted first: an interrupt may come when the rows have been asked already.
        self._owing[:] = mask
        self._asked = int(np.count_nonzero(mask))
        try:
            ask(np.flatnonzero(mask))
        except Exception:
            self._owing[:] = False  # Refused, so no row has been asked.
            raise

    def _complete(self, call: str) -> TimeStep:
        """Waits for what is owed, then for the reset that had to wait for it."""
        deadline = None if self._timeout is None else self._now() + self._timeout
        if self._to_reset is not None:
            self._collect(call, deadline, giving_up=True)
            self._ask(self._to_reset, self._env.reset_async)
            self._failed[self._to_reset] = False
            self._to_reset = None
        self._collect(call, deadline)
        # Copies: the caller keeps this time step while the next fills the columns.
        time_step: TimeStep = self._structure.unflatten(
            [column.copy() for column in self._columns]
        )
        return time_step

    def _collect(
        self, call: str, deadline: float | None, *, giving_up: bool = False
    ) -> None:
        """Receives until no row owes an answer, and puts each in its place."""
        while self._owing.any():
            left = None if deadline is None else max(deadline - self._now(), 0.0)
            try:
                batch = self._env.recv(int(np.count_nonzero(self._owing)), left)
            except CallOrderError:
                if not giving_up:
                    raise
                # Ctrl-C came between noting whom to ask and asking them.
                self._owing[:] = False
                return
            except WorkerError as error:
                # The error is the answer of these rows; they owe no other.
                failed = list(error.envs)
                self._owing[failed] = False
                self._failed[failed] = True
                raise
            self._place(batch, left)
            # A pool may return early with what is ready, so the clock decides.
            if deadline is not None and self._owing.any() and self._now() >= deadline:
                raise WorkerTimeout.waiting(
                    f"Blocking.{call}",
                    envs=np.flatnonzero(self._owing).tolist(),
                    total=self._asked,
                    timeout=self._timeout or 0.0,
                )

    def _place(self, batch: AsyncBatch, timeout: float | None) -> None:
        rows = self._rows_of(batch)
        if not rows.size:
            if timeout is None:
                raise self._broken("returned no row although it had no timeout")
            return
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

    def _rows_of(self, batch: Any) -> Array:
        """Returns the ids of a batch, each of which must owe an answer, once."""
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
                f"returned env_ids {listed(rows.tolist())}, of which "
                f"{listed(np.flatnonzero(self._owing))} owe an answer"
            )
        return rows.astype(np.intp)

    def _broken(self, what: str) -> CallOrderError:
        return CallOrderError(
            f"{type(self._env).__name__}.recv() {what}. It returns each row that owes "
            "an answer, exactly once."
        )
