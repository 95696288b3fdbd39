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
import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from envkit import nest
from envkit.async_environment import AsyncBatch
from envkit.errors import (
    ClosedError,
    EnvironmentRaised,
    WorkerCrashed,
    WorkerError,
    WorkerTimeout,
)
from envkit.extend import flatten_as
from envkit.losses import Loss
from envkit.parallel import AsyncParallelPyEnvironment
from envkit.specs.special import ObjectSpec
from envkit.time_step import StepType
from envkit.types import NestedArray

__all__ = ["Answer", "Driver", "Request", "ignore", "settle"]

_LOGGER = logging.getLogger(__name__)

# A poll that finds nothing costs this share of a CPU at most,
_POLL_SHARE = 0.05
# and an answer is found within this share of the time that it took, or more often.
_LATE_SHARE = 0.05
_SHORTEST, _LONGEST = 0.0005, 0.05  # seconds between two polls


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
    """

    row: int
    answered: Callable[[Answer | BaseException], None]
    action: NestedArray = None
    is_reset: bool = False
    seed: int | None = None
    options: Mapping[str, Any] | None = None
    is_dropped: bool = False


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


class Driver:
    """Moves the rows of a pool in a thread of its own."""

    def __init__(
        self,
        make_pool: Callable[[], tuple[AsyncParallelPyEnvironment, Any]],
        call_soon: Callable[..., Any],
    ) -> None:
        """Prepares to start.

        Args:
            make_pool: Makes the pool, under `AutoReset.DISABLED`, and returns it with
                anything else.
            call_soon: Calls a function in the event loop, from any thread.
        """
        self._make_pool = make_pool
        self._call_soon = call_soon
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, name="envkit-sessions", daemon=True
        )
        self._grace = 0.0
        self._is_closing = False

    def start(
        self,
        opened: Callable[[Any], None],
        closed: Callable[[], None],
    ) -> None:
        """Starts the thread, which makes the pool.

        Args:
            opened: Receives, in the event loop, what `make_pool` returned or raised.
            closed: Is called when the pool is closed and the thread about to end.
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

    # In the thread.

    def _run(self) -> None:
        pool = None
        try:
            made = self._make_pool()
            pool, _ = made
            self._tell(self._opened, made)
            _Lanes(pool, self._tell_all).run(self._inbox, lambda: self._is_closing)
        except BaseException as error:
            if pool is None:
                self._tell(self._opened, error)
            else:
                _LOGGER.exception("the sessions' thread has failed, and all end")
        finally:
            if pool is not None:
                with contextlib.suppress(Exception):
                    pool.close(self._grace)
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
    ) -> None:
        self._pool = pool
        self._deliver = deliver
        self._worker_of_row = _worker_of_row(pool)
        self._waiting: list[deque[Request]] = [deque() for _ in range(pool.num_workers)]
        # By row, the request that its environment is answering.
        self._running: dict[int, Request] = {}
        self._idle = set(range(pool.num_workers))
        # Workers to look at: idle ones with requests.
        self._due: set[int] = set()
        # Rows that need a reset before they can be asked anything: their environments
        # were lost, and may still be on their way back.
        self._lost: set[int] = set()
        # False if environments have turned out to have no infos.
        self._have_infos = True
        # By row, losses that no answer has reported yet.
        self._told: dict[int, list[Loss]] = {}
        self._done: list[tuple[Request, Answer | BaseException]] = []
        self._structure = nest.Structure(pool.action_spec())

    def run(
        self,
        inbox: queue.SimpleQueue[Request | None],
        is_over: Callable[[], bool],
    ) -> None:
        """Moves rows until `is_over` returns True."""
        heard = time.monotonic()
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
            now = time.monotonic()
            if self._done:
                self._deliver(self._done)
                self._done, heard = [], now
            else:
                cost = now - began
            if self._due:
                timeout = 0.0
            elif self._running:
                pause = max(cost / _POLL_SHARE, (now - heard) * _LATE_SHARE)
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
        for worker in list(self._due):
            self._due.discard(worker)
            waiting = self._waiting[worker]
            while waiting and worker in self._idle:
                request = waiting.popleft()
                if request.is_dropped:
                    self._finish(request, ClosedError("Nobody waits for it any more."))
                else:
                    self._start(worker, request)

    def _start(self, worker: int, request: Request) -> None:
        row, pool = request.row, self._pool
        try:
            if not request.is_reset:
                pool.send(self._as_batch(request.action), [row])
            elif row in self._lost:
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
        except (WorkerCrashed, WorkerTimeout) as error:
            self._end(request, error, is_gone=True)
        except Exception as error:
            self._finish(request, error)
        else:
            self._running[row] = request
            self._idle.discard(worker)

    def _as_batch(self, action: NestedArray) -> NestedArray:
        """Returns a batch of one action."""
        leaves = flatten_as(
            self._structure, action, subject="Session.step() was given an action that"
        )
        return self._structure.unflatten(
            [
                _one_object(leaf)
                if isinstance(spec, ObjectSpec)
                else np.asarray(leaf)[None]
                for leaf, spec in zip(leaves, self._structure.leaves, strict=True)
            ]
        )

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
        lost = pool.current_losses() if pool.repaired[rows].any() else {}
        for loss in pool.losses():
            self._told.setdefault(loss.row, []).append(loss)
        asks = pool.rows_with_info() & pool.rows_with_more_info()
        for place, row in enumerate(rows.tolist()):
            if row in lost:
                self._lost.add(row)
            try:
                info = {} if row in lost else self._info(batch, place, asks[row])
            except Exception as error:
                self._free(row, error)
                continue
            answer = Answer(
                int(steps.step_type[place]),
                _at(place, steps.observation),
                _at(place, steps.reward),
                _at(place, steps.discount),
                info,
                lost.get(row),
                tuple(self._told.pop(row, ())),
            )
            self._free(row, answer)

    def _info(self, batch: AsyncBatch, place: int, asks: bool) -> Any:
        """Returns a row's info; asks its environment if the slab lacks some of it."""
        if asks and self._have_infos:
            try:
                (info,) = self._pool.get_infos([int(batch.env_ids[place])])
                return info
            except NotImplementedError:
                self._have_infos = False
        return _at(place, batch.info)

    def _fail(self, error: WorkerError) -> None:
        """Ends the requests whose environments have failed and are not replaced."""
        for one in (error, *error.also):
            for row in one.envs:
                request = self._running.get(row)
                if request is not None:
                    self._end(request, one)

    def _end(
        self, request: Request, error: WorkerError, *, is_gone: bool = False
    ) -> None:
        loss = Loss(request.row, _kind_of(error), error)
        self._lost.add(request.row)
        losses = (*self._told.pop(request.row, ()), loss)
        answer = Answer(int(StepType.LAST), None, 0.0, 1.0, {}, loss, losses, is_gone)
        if request.row in self._running:
            self._free(request.row, answer)
        else:
            self._finish(request, answer)

    def _free(self, row: int, answer: Answer | Exception) -> None:
        request = self._running.pop(row)
        worker = self._worker_of_row[row]
        self._idle.add(worker)
        if self._waiting[worker]:
            self._due.add(worker)
        is_lost = isinstance(answer, Answer) and answer.loss is not None
        if request.answered is ignore and is_lost:
            # The request behind it would fail in the same way.
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


def _one_object(value: Any) -> Any:
    column = np.empty(1, object)
    column[0] = (
        value[()] if isinstance(value, np.ndarray) and not value.shape else value
    )
    return column


def _kind_of(error: WorkerError) -> str:
    if isinstance(error, WorkerCrashed):
        return "crashed"
    if isinstance(error, WorkerTimeout):
        return "timed_out"
    is_in_step = isinstance(error, EnvironmentRaised) and error.command == "step"
    return "raised" if is_in_step else "reset_failed"


def _worker_of_row(pool: AsyncParallelPyEnvironment) -> list[int]:
    workers = pool.statistics().workers
    return [worker.worker for worker in workers for _ in worker.envs]
