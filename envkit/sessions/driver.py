"""`Driver`: the thread that moves a pool's rows on behalf of coroutines.

Only this thread calls the pool, so no call of the pool ever blocks the event loop. It
sends what coroutines ask for, polls for answers, and hands them to the loop, many at a
time.

A worker has one request at a time. Seeds, options and infos are questions to a worker,
which an idle worker answers at once; behind a slow step they would hold up the thread,
and with it all other sessions.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from envkit import nest
from envkit.async_environment import AsyncBatch
from envkit.errors import (
    ClosedError,
    SpecError,
    WorkerCrashed,
    WorkerError,
    WorkerTimeout,
)
from envkit.extend import ACCEPTED_KINDS, ActionRows, flatten_as
from envkit.losses import Loss
from envkit.parallel import AsyncParallelPyEnvironment
from envkit.specs import ArraySpec, check_fits
from envkit.specs.special import ObjectSpec
from envkit.time_step import StepType
from envkit.types import Array, NestedArray

__all__ = ["Answer", "Driver", "Request", "ignore", "settle"]

_LOGGER = logging.getLogger(__name__)

# A poll that finds nothing costs this share of a CPU at most,
_POLL_SHARE = 0.05
# and an answer is found within this share of the time that it took, or more often.
_LATE_SHARE = 0.05
_SHORTEST, _LONGEST = 0.0005, 0.05  # seconds between two polls

# Looking at the workers costs this share of a CPU at most, or comes this often.
_LOOK_SHARE, _LATEST_LOOK = 0.01, 0.25

_CALL = "Session.step()"
_SUBJECT = f"{_CALL} was given an action that"

# Kinds of losses after which the worker itself goes on.
_WORKER_LIVES = ("raised", "reset_failed")


@dataclass(slots=True, eq=False)
class Request:
    """A reset or a step of one row.

    Attributes:
        row: The row.
        answered: Receives the `Answer` or the exception, in the event loop.
        action: The action of a step, as the environment takes it.
        is_reset: Whether it is a reset.
        seed: The seed of a reset, or `None`.
        options: The options of a reset, or `None`.
        is_dropped: Whether nobody waits for it any more. If the environment has not
            been asked yet, it will not be.
        began: When the environment was asked, as of `time.monotonic`.
    """

    row: int
    answered: Callable[[Answer | BaseException], None]
    action: NestedArray = None
    is_reset: bool = False
    seed: int | None = None
    options: Mapping[str, Any] | None = None
    is_dropped: bool = False
    began: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The time step of one row.

    Attributes:
        step_type: Its place in the episode.
        observation: The observation of the environment.
        reward: The reward.
        discount: The discount.
        info: The info of the environment.
        loss: Why the episode was cut short, if its environment was lost.
        losses: All losses since the row's last answer, with those of repeated resets.
        is_gone: Whether nothing will replace the lost environment.
    """

    step_type: int
    observation: NestedArray
    reward: Any
    discount: Any
    info: Mapping[str, Any]
    loss: Loss | None = None
    losses: tuple[Loss, ...] = ()
    is_gone: bool = False


# A step and the leaves of its action.
_Step: TypeAlias = tuple[Request, list[Array]]


class Driver:
    """Moves the rows of a pool in a thread of its own.

    Attributes:
        ended: Is done when the pool is closed and the thread about to end.
    """

    def __init__(
        self,
        make_pool: Callable[[], tuple[AsyncParallelPyEnvironment, Any]],
        call_soon: Callable[..., Any],
        max_restarts: int,
    ) -> None:
        """Prepares to start.

        Args:
            make_pool: Makes the pool, under `AutoReset.DISABLED`, and returns it with
                anything else.
            call_soon: Calls a function in the event loop, from any thread.
            max_restarts: How often a reset may be lost and repeated.
        """
        self._make_pool = make_pool
        self._call_soon = call_soon
        self._max_restarts = max_restarts
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, name="envkit-sessions", daemon=True
        )
        self._grace = 0.0
        self._is_closing = False
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        # Held while the thread is interrupted, and while this changes.
        self._changing = threading.Lock()
        self._is_ending = False

    def start(
        self,
        opened: Callable[[Any], None],
        closed: Callable[[], None],
    ) -> None:
        """Starts the thread, which makes the pool.

        Args:
            opened: Receives, in the event loop, what `make_pool` returned or raised.
            closed: Is called in the event loop when the pool is closed.
        """
        self._opened, self._closed = opened, closed
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Sends a request."""
        self._inbox.put(request)

    def close(self, grace: float) -> None:
        """Makes the thread close the pool and end; open requests get no answer.

        Args:
            grace: Seconds for environments to finish what they do and close.
        """
        self._grace = grace
        self._is_closing = True
        self._inbox.put(None)

    def interrupt(self) -> None:
        """Ends whatever the thread waits for, as Ctrl-C would.

        A pool has no other way to give up while its environments are being built, or
        one answers a question.
        """
        with self._changing:
            if not self._is_ending:
                number = ctypes.c_ulong(self._thread.ident or 0)
                error = ctypes.py_object(SystemExit)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, error)

    # In the thread.

    def _run(self) -> None:
        made = None
        try:
            made = self._make_pool()
            self._tell(self._opened, made)
            lanes = _Lanes(made[0], self._tell_all, self._max_restarts)
            lanes.run(self._inbox, lambda: self._is_closing)
        except BaseException as error:
            if made is None:
                self._tell(self._opened, error)
            elif not isinstance(error, ClosedError | SystemExit):
                # If it is closed, the program has ended.
                _LOGGER.exception("the sessions' thread has failed, and all end")
        finally:
            # An interruption may come here too.
            with contextlib.suppress(SystemExit), self._changing:
                self._is_ending = True
            if made is not None:
                with contextlib.suppress(Exception):
                    made[0].close(self._grace)
            self.ended.set_result(None)
            self._tell(self._closed)

    def _tell(self, function: Callable[..., Any], *args: Any) -> None:
        # The loop may be closed: its program has ended without closing the sessions.
        with contextlib.suppress(RuntimeError):
            self._call_soon(function, *args)

    def _tell_all(self, answers: list[tuple[Request, Answer | BaseException]]) -> None:
        self._tell(_deliver, answers)


def _deliver(answers: Iterable[tuple[Request, Answer | BaseException]]) -> None:
    for request, answer in answers:
        request.answered(answer)


class _Lanes:
    """The requests of each worker: one that runs, and others behind it."""

    def __init__(
        self,
        pool: AsyncParallelPyEnvironment,
        deliver: Callable[[list[tuple[Request, Answer | BaseException]]], None],
        max_restarts: int,
    ) -> None:
        self._pool = pool
        self._deliver = deliver
        self._rows_of_worker = [worker.rows for worker in pool.workers]
        self._worker_of_row = [
            worker for worker, rows in enumerate(self._rows_of_worker) for _ in rows
        ]
        self._max_restarts = max_restarts
        self._waiting: list[deque[Request]] = [deque() for _ in range(pool.num_workers)]
        # By row, the request that its environment is answering.
        self._running: dict[int, Request] = {}
        self._idle = set(range(pool.num_workers))
        # Workers to look at: idle ones with requests.
        self._due: set[int] = set()
        # Rows that need a reset before they can be asked anything: their environments
        # were lost, and may still be on their way back.
        self._lost: set[int] = set()
        self._next_look = 0.0
        # False if environments have turned out to have no infos.
        self._have_infos = True
        # By row, losses that no answer has reported yet.
        self._told: dict[int, list[Loss]] = {}
        self._done: list[tuple[Request, Answer | BaseException]] = []
        # About the seconds of the shortest answers.
        self._usual = 0.0
        self._actions = nest.Structure(pool.action_spec())
        self._action_rows = ActionRows(pool.action_spec(), pool.num_envs, _CALL)
        self._observations = nest.Structure(pool.observation_spec())
        self._rewards = nest.Structure(pool.reward_spec())

    def run(
        self,
        inbox: queue.SimpleQueue[Request | None],
        is_over: Callable[[], bool],
    ) -> None:
        """Moves rows until `is_over` returns True."""
        heard = counted = time.monotonic()
        cost = 0.0  # seconds of a poll that finds nothing
        timeout: float | None = None
        while not is_over():
            with contextlib.suppress(queue.Empty):
                self._take(inbox.get(timeout=timeout))
                while True:
                    self._take(inbox.get_nowait())
            self._start_due()
            began = time.monotonic()
            if self._running:
                self._receive()
                if began - counted > _LONGEST:
                    counted = began
                    self._end_hopeless()
            now = time.monotonic()
            if self._done:
                self._deliver(self._done)
                self._done, heard = [], now
            else:
                cost = now - began
            if self._due:
                timeout = 0.0
            elif self._running:
                usual = max(self._usual, now - heard)
                pause = max(cost / _POLL_SHARE, usual * _LATE_SHARE)
                timeout = min(max(pause, _SHORTEST), _LONGEST)
            else:
                timeout = None

    def _take(self, request: Request | None) -> None:
        if request is not None:
            worker = self._worker_of_row[request.row]
            self._waiting[worker].append(request)
            if worker in self._idle:
                self._due.add(worker)

    # Sending.

    def _start_due(self) -> None:
        due, self._due = self._due, set()
        steps = []
        for worker in due:
            waiting = self._waiting[worker]
            while waiting and worker in self._idle:
                request = waiting.popleft()
                if request.is_dropped:
                    self._finish(request, ClosedError("Nobody waits for it any more."))
                elif request.is_reset:
                    self._reset(worker, request)
                else:
                    self._idle.discard(worker)
                    steps.append(request)
        for same in self._alike(steps):
            self._step(same)

    def _reset(self, worker: int, request: Request) -> None:
        row, pool = request.row, self._pool
        try:
            if request.seed is not None or request.options is not None:
                self._look_at_workers()
            if row in self._lost:
                # Its worker may still be starting. A reset waits for that elsewhere; a
                # question, which seeds and options are, would wait here.
                self._lost.discard(row)
                if request.seed is not None or request.options is not None:
                    self._waiting[worker].appendleft(request)
                    request = Request(row, ignore, is_reset=True)
                pool.reset_async([row])
            else:
                seed, options = request.seed, request.options
                pool.reset_async(
                    [row],
                    seed=None if seed is None else [seed],
                    options=None if options is None else [dict(options)],
                )
        except Exception as error:
            self._refuse(request, error)
        else:
            self._expect([request])
            self._idle.discard(worker)

    def _look_at_workers(self) -> None:
        """Finds workers that were lost while they were idle, which no answer tells."""
        began = time.monotonic()
        if began < self._next_look:
            return
        for worker in self._pool.workers:
            if worker.state not in ("ready", "lost"):
                self._lost.update(worker.rows)
        now = time.monotonic()
        self._next_look = now + min((now - began) / _LOOK_SHARE, _LATEST_LOOK)

    def _alike(self, steps: Iterable[Request]) -> Iterable[list[_Step]]:
        """Groups steps whose actions have the same shapes and types.

        So an array of them shows the pool the same as each of them does.
        """
        groups: dict[Any, list[_Step]] = {}
        for request in steps:
            try:
                leaves = flatten_as(self._actions, request.action, subject=_SUBJECT)
                arrays = [
                    _as_array(leaf, spec, path)
                    for leaf, spec, path in zip(
                        leaves, self._actions.leaves, self._actions.paths, strict=True
                    )
                ]
            except Exception as error:
                self._refuse(request, error)
            else:
                kind = tuple((array.dtype, array.shape) for array in arrays)
                groups.setdefault(kind, []).append((request, arrays))
        return groups.values()

    def _step(self, steps: list[_Step]) -> None:
        """Sends steps; if the pool refuses them, those that it accepts."""
        requests = [request for request, _ in steps]
        columns = zip(*(arrays for _, arrays in steps), strict=True)
        leaves = [np.stack(arrays) for arrays in columns]
        try:
            # The pool looks at the bounds of each row's first action only.
            self._action_rows.columns_of(leaves, len(steps))
            actions = self._actions.unflatten(leaves)
            self._pool.send(actions, [request.row for request in requests])
        except Exception as error:
            half = len(steps) // 2
            if half:
                self._step(steps[:half])
                self._step(steps[half:])
            else:
                ((request, arrays),) = steps
                self._refuse(request, self._misfit(arrays) or error)
        else:
            self._expect(requests)

    def _misfit(self, arrays: list[Array]) -> SpecError | None:
        """Returns why an action does not fit; the pool speaks of a batch of them."""
        leaves = [
            array.astype(spec.dtype) if _is_convertible(array, spec) else array
            for array, spec in zip(arrays, self._actions.leaves, strict=True)
        ]
        try:
            check_fits(
                self._actions.unflatten(leaves),
                self._pool.action_spec(),
                subject=_SUBJECT,
            )
        except SpecError as error:
            return error
        return None

    def _expect(self, requests: Iterable[Request]) -> None:
        now = time.monotonic()
        for request in requests:
            request.began = now
            self._running[request.row] = request

    def _refuse(self, request: Request, error: Exception) -> None:
        """Answers a request that the pool does not accept."""
        self._set_idle(request.row)
        if isinstance(error, WorkerCrashed | WorkerTimeout):
            self._blame(request, error)
            self._end(request, is_gone=True)
        else:
            self._finish(request, error)

    def _set_idle(self, row: int) -> None:
        worker = self._worker_of_row[row]
        self._idle.add(worker)
        if self._waiting[worker]:
            self._due.add(worker)

    # Receiving.

    def _receive(self) -> None:
        pool = self._pool
        try:
            batch = pool.recv(timeout=0.0)
        except WorkerError as error:
            self._fail(error)
            return
        rows, steps = batch
        if not rows.size:
            return
        self._learn_duration(rows.tolist())
        lost = pool.current_losses() if pool.repaired[rows].any() else {}
        self._count_losses()
        for row, step_type, observation, reward, discount, info in zip(
            rows.tolist(),
            steps.step_type.tolist(),
            _each(self._observations, steps.observation),
            _each(self._rewards, steps.reward),
            steps.discount,
            self._infos(batch, lost),
            strict=True,
        ):
            if row not in self._running:
                continue  # Its reset was given up.
            if isinstance(info, Exception):
                # A step whose turn has not arrived must not be missing in a total.
                self._blame(self._running[row], info)
                self._end(self._running[row])
                continue
            losses = tuple(self._told.pop(row, ()))
            answer = Answer(
                step_type, observation, reward, discount, info, lost.get(row), losses
            )
            self._free(row, answer)

    def _learn_duration(self, rows: Iterable[int]) -> None:
        began = [self._running[row].began for row in rows if row in self._running]
        shortest = time.monotonic() - max(began, default=0.0)
        # Falls at once, and rises slowly.
        self._usual = min(shortest, 2 * self._usual or shortest)

    def _infos(self, batch: AsyncBatch, lost: Container[int]) -> Iterable[Any]:
        """Returns the info of each row, or the exception that reading it raised."""
        rows = batch.env_ids.tolist()
        infos: dict[int, Any] = {row: {} for row in rows}
        asked = [row for row in rows if row not in lost]
        try:
            declared = batch.info
        except Exception:
            # One of them has no good info; each is asked for its own.
            return {**infos, **self._asked_infos(asked)}.values()
        if declared:
            places = {row: place for place, row in enumerate(rows)}
            infos |= {row: _at(places[row], declared) for row in asked}
        if self._have_infos:
            # Environments are asked if the slab lacks some of it.
            pool = self._pool
            asks = pool.rows_with_info() & pool.rows_with_more_info()
            infos |= self._asked_infos([row for row in asked if asks[row]])
        return infos.values()

    def _asked_infos(self, rows: list[int]) -> dict[int, Any]:
        """Returns infos of environments, or what they raise."""
        if not rows:
            return {}
        try:
            return dict(zip(rows, self._pool.get_infos(rows), strict=True))
        except NotImplementedError:
            self._have_infos = False
            return {}
        except Exception as error:
            if len(rows) == 1:
                return {rows[0]: error}
            # One of them has no good info; the others have.
            return {
                row: info
                for row in rows
                for row, info in self._asked_infos([row]).items()
            }

    def _count_losses(self) -> None:
        for loss in self._pool.losses():
            self._told.setdefault(loss.row, []).append(loss)

    def _end_hopeless(self) -> None:
        """Ends resets that were lost too often.

        The pool repeats them as long as its policy allows, which is without end if each
        of them takes long.
        """
        resets = [row for row, request in self._running.items() if request.is_reset]
        if resets:
            self._count_losses()
        for row in resets:
            if len(self._told.get(row, ())) > self._max_restarts:
                self._end(self._running[row], is_gone=True)

    def _fail(self, error: WorkerError) -> None:
        """Ends the requests whose environments have failed and are not replaced."""
        self._count_losses()
        for one in (error, *error.also):
            for row in one.envs:
                request = self._running.get(row)
                if request is not None:
                    if row not in self._told:
                        self._blame(request, one)
                    worker = self._pool.workers[self._worker_of_row[row]]
                    self._end(request, is_gone=worker.state == "lost")

    def _blame(self, request: Request, error: Exception) -> None:
        loss = Loss(request.row, _kind_of(error, request), error)
        self._told.setdefault(request.row, []).append(loss)

    def _end(self, request: Request, *, is_gone: bool = False) -> None:
        """Answers a request with the last loss of its row."""
        losses = tuple(self._told.pop(request.row))
        last = int(StepType.LAST)
        answer = Answer(last, None, 0.0, 1.0, {}, losses[-1], losses, is_gone)
        if request.row in self._running:
            self._free(request.row, answer)
        else:
            self._finish(request, answer)

    def _free(self, row: int, answer: Answer | Exception) -> None:
        request = self._running.pop(row)
        worker = self._worker_of_row[row]
        self._set_idle(row)
        if isinstance(answer, Answer):
            loss, is_first = answer.loss, request.answered is ignore
            if loss is not None and loss.kind not in _WORKER_LIVES:
                self._lost.update(self._rows_of_worker[worker])
            elif is_first and not answer.is_gone:
                if loss is None and answer.losses:  # They are the next reset's.
                    self._told[row] = list(answer.losses)
                return
            elif loss is not None:
                self._lost.add(row)
            if is_first:  # The reset behind it would fail in the same way.
                request = self._waiting[worker].popleft()
        self._finish(request, answer)

    def _finish(self, request: Request, answer: Answer | BaseException) -> None:
        if request.answered is not ignore:
            self._done.append((request, answer))


def ignore(_: Any) -> None:
    """Receives the answer to a reset that only waits for a new environment."""


def settle(future: asyncio.Future[Any], answer: Any) -> None:
    """Gives a future a result or an exception, unless it was cancelled."""
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _at(place: int, batch: Any) -> Any:
    """Returns one row of a nest of arrays."""
    return nest.map_structure(lambda leaf: leaf[place], batch)


def _each(structure: nest.Structure, batch: Any) -> Iterator[Any]:
    """Yields each row of a nest of arrays of at least one row."""
    columns = [
        # Copies, because a row of an array would keep the others in memory.
        [row.copy() for row in leaf] if leaf.ndim > 1 else list(leaf)
        for leaf in structure.flatten(batch)
    ]
    rows = zip(*columns, strict=True) if columns else itertools.repeat(())
    return map(structure.unflatten, rows)


def _as_array(value: Any, spec: ArraySpec, path: str) -> Array:
    """Returns a leaf of an action as an array; objects must fit, as no pool checks."""
    if not isinstance(spec, ObjectSpec):
        return np.asarray(value)
    is_array = isinstance(value, np.ndarray) and not value.shape
    array: Array = ObjectSpec.wrap(value[()] if is_array else value)
    check_fits(array, spec, subject=_SUBJECT, path=path)
    return array


def _is_convertible(array: Array, spec: ArraySpec) -> bool:
    return array.dtype.kind in ACCEPTED_KINDS.get(spec.dtype.kind, "")


def _kind_of(error: Exception, request: Request) -> str:
    if isinstance(error, WorkerCrashed):
        return "crashed"
    if isinstance(error, WorkerTimeout):
        return "timed_out"
    return "reset_failed" if request.is_reset else "raised"
