"""Kills, stops and slows the workers of a pool, to test its users: `chaos`.

A seed determines which worker is hit, and how. Faults happen at random times, from a
thread; or every so many steps, in the stepping thread, and then runs can be repeated.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import random
import select
import signal
import socket
import threading
import time
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from envkit._shared.arguments import is_number
from envkit.extend import a_or_an, checked_size, describe

if TYPE_CHECKING:
    from envkit.parallel.statistics import WorkerStatistics

__all__ = ["Chaos", "Fault", "chaos"]

_LOGGER = logging.getLogger(__name__)

_KILL, _HANG, _SLOW = "kill", "hang", "slow"
_NAMES = {_KILL: "kills_per_minute", _HANG: "hangs", _SLOW: "slow"}
# The longest pause of a slow worker, in seconds.
_LONGEST_PAUSE = 0.5
# How long a worker hangs if no timeout ends it, and how much longer than a timeout
# others hang: a question, or a reset without a timeout, would otherwise wait forever.
_HANG_SECONDS = 5.0
# A process ends shortly after SIGKILL, unless a disk or a driver holds it up.
_END_SECONDS = 10.0


class Fault(NamedTuple):
    """Records one fault of a worker.

    Attributes:
        seconds: The time since the beginning.
        what: "kill", "hang" or "slow".
        worker: The index of the worker.
        pid: The worker's process.
        rows: The worker's rows.
    """

    seconds: float
    what: str
    worker: int
    pid: int
    rows: tuple[int, ...]


class Chaos:
    """Kills, stops and slows a pool's workers until it is closed; see `chaos`.

    Attributes:
        log: All faults, in order.
    """

    def __init__(
        self,
        pool: Any,
        *,
        seed: int = 0,
        kills_per_minute: float = 6.0,
        hangs: float = 0.0,
        slow: float = 0.0,
        every_steps: int | None = None,
    ) -> None:
        """Begins; the arguments are those of `chaos`."""
        self._rates = _checked_rates(
            {_KILL: kills_per_minute, _HANG: hangs, _SLOW: slow}
        )
        if every_steps is not None:
            every_steps = checked_size("every_steps", every_steps, hint=" or None")
        self._environment = environment = _pool_in(pool)
        self._host = socket.gethostname()
        _check_has_processes(environment, self._host)
        step_timeout = _check_survives(environment, self._rates)
        self._hang_seconds = 2.0 * (step_timeout or 0.0) + _HANG_SECONDS
        self.log: list[Fault] = []
        self._random = random.Random(seed)
        self._began = time.monotonic()
        # Guards the attributes below. Stopped workers, each with its pidfd, or -1, and
        # the time at which it continues.
        self._changed = threading.Condition()
        self._stopped: dict[int, tuple[int, float]] = {}
        self._killed: set[int] = set()
        self._is_over = False
        self._next = math.inf
        self._every, self._steps = every_steps, 0
        self._before: dict[str, Any] = {}
        if every_steps is None:
            self._next = self._began + self._drawn_pause()
        else:
            self._hook(environment._pool)
        self._thread = threading.Thread(
            target=self._run, name="envkit-chaos", daemon=True
        )
        self._thread.start()

    @property
    def counts(self) -> dict[str, int]:
        """The number of faults of each kind, with the keys kill, hang and slow."""
        found = Counter(fault.what for fault in list(self.log))
        return {what: found[what] for what in _NAMES}

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"Chaos(kills={counts[_KILL]}, hangs={counts[_HANG]}, slow={counts[_SLOW]})"
        )

    def close(self) -> None:
        """Ends the faults and continues stopped workers; may be called repeatedly."""
        from envkit.parallel.system.ctrl_c import uninterrupted

        with uninterrupted(), self._changed:
            if not self._is_over:
                self._is_over = True
                self._unhook()
                self._release(math.inf)
                self._changed.notify_all()

    def __enter__(self) -> Chaos:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # When.

    def _drawn_pause(self) -> float:
        return self._random.expovariate(sum(self._rates.values()) / 60.0)

    def _run(self) -> None:
        """Makes faults when they are due, and ends temporary ones."""
        with self._changed:
            while not self._is_over:
                now = time.monotonic()
                self._release(now)
                if now >= self._next:
                    if self._environment._closed:
                        return
                    self._strike()
                    self._next = time.monotonic() + self._drawn_pause()
                due = min([self._next, *(due for _, due in self._stopped.values())])
                seconds = max(due - time.monotonic(), 0.0)
                self._changed.wait(min(seconds, threading.TIMEOUT_MAX))

    def _hook(self, engine: Any) -> None:
        """Wraps the two methods that start every step."""
        step_all, submit = engine.step_all, engine.submit

        def counted_step_all() -> None:
            self._count_step()
            step_all()

        def counted_submit(rows: Any, command: Any) -> None:
            if rows.size and engine.slab.asks_to_step(command):
                self._count_step()
            submit(rows, command)

        self._before = {name: vars(engine).get(name) for name in ("step_all", "submit")}
        engine.step_all, engine.submit = counted_step_all, counted_submit

    def _unhook(self) -> None:
        hooks = vars(self._environment._pool)
        for name, before in self._before.items():
            if before is None:
                del hooks[name]
            else:
                hooks[name] = before  # that of another Chaos, around the same pool

    def _count_step(self) -> None:
        """Counts a step that is about to start; some steps get a fault first."""
        self._steps += 1
        if self._every is None or self._steps % self._every:
            return
        with self._changed:
            pid = None if self._is_over else self._strike()
            self._changed.notify_all()  # a stopped worker may continue earlier
        if pid is not None:
            _await_end(pid)

    # What.

    def _strike(self) -> int | None:
        """Makes a fault in a worker; returns the process if it was killed."""
        # Each fault uses the same number of random numbers, whether or not it is
        # possible.
        (what,) = self._random.choices(
            list(self._rates), weights=list(self._rates.values())
        )
        chosen, share = self._random.random(), self._random.random()
        workers = _workers_of(self._environment, self._host)
        if not workers:
            return None
        worker = workers[int(chosen * len(workers))]
        pid = worker.pid
        if not worker.is_alive or pid <= 0 or pid in self._killed:
            return None  # it is being replaced
        if what != _KILL and pid in self._stopped:
            return None
        from envkit.parallel.system.ctrl_c import uninterrupted

        with uninterrupted():
            now = time.monotonic()
            life = _life_of(pid)
            if life is None:
                return None  # it has ended for another reason
            if what == _KILL:
                self._killed.add(pid)
                done = _send(pid, signal.SIGKILL, life)
                _close(life)
            else:
                seconds = self._hang_seconds
                if what == _SLOW:
                    seconds = share * _LONGEST_PAUSE
                # Recorded first, because only recorded workers are sure to continue.
                self._stopped[pid] = life, now + seconds
                done = _send(pid, signal.SIGSTOP, life)
            if done:
                fault = Fault(now - self._began, what, worker.worker, pid, worker.envs)
                self.log.append(fault)
        if not done:
            return None
        _LOGGER.info("%s of worker %d (pid %d)", what, worker.worker, pid)
        return pid if what == _KILL else None

    def _release(self, now: float) -> None:
        """Continues workers whose time has come."""
        for pid, (life, due) in list(self._stopped.items()):
            if due <= now:
                _send(pid, signal.SIGCONT, life)
                del self._stopped[pid]
                _close(life)


def chaos(
    pool: Any,
    *,
    seed: int = 0,
    kills_per_minute: float = 6.0,
    hangs: float = 0.0,
    slow: float = 0.0,
    every_steps: int | None = None,
) -> Chaos:
    """Kills, stops and slows workers of a pool at random, until the block ends.

    A killed worker gets SIGKILL. A hanging one gets SIGSTOP, and hangs until the pool
    kills it because it exceeds `step_timeout`; it continues at the latest 5 seconds
    after twice that time. A slow one pauses for up to half a second.

    The seed determines the faults and their times. With `every_steps`, a fault happens
    right before every so many steps of the batch, in the stepping thread, and a killed
    worker has ended before the step starts. So with at least 2, a run can be repeated.

    At the end of the block, stopped workers go on, after Ctrl-C too. A warning says if
    the pool has no `RestartPolicy`, so the first kill ends the program, or no
    `step_timeout`, so hanging workers are not replaced.

    Args:
        pool: A pool whose workers are processes on this machine, or a wrapper of one.
        seed: The seed of all choices.
        kills_per_minute: How many workers are killed per minute, on average.
        hangs: How many hang per minute.
        slow: How many are slowed per minute.
        every_steps: The number of steps between faults; the three rates are then the
            weights of the kinds of faults.

    Returns:
        A context manager with the `log` of faults. Without a `with` statement, call its
        `close()`.

    Raises:
        TypeError: `pool` is not a pool.
        ValueError: A rate is negative, or all are 0, or no worker is a process on this
            machine.

    Example:
        >>> from envkit import ParallelPyEnvironment, RestartPolicy
        >>> from envkit.testing import CountingEnv, chaos
        >>> policy = RestartPolicy(max_restarts=1000, recover="replay")
        >>> env = ParallelPyEnvironment(
        ...     [CountingEnv] * 2, num_workers=2, on_worker_failure=policy
        ... )
        >>> with env, chaos(env, every_steps=2) as trouble:
        ...     _ = env.reset()
        ...     for _ in range(4):
        ...         time_step = env.step([0, 0])
        >>> trouble, time_step.observation.tolist()
        (Chaos(kills=2, hangs=0, slow=0), [4, 4])
    """
    return Chaos(
        pool,
        seed=seed,
        kills_per_minute=kills_per_minute,
        hangs=hangs,
        slow=slow,
        every_steps=every_steps,
    )


def _checked_rates(rates: dict[str, Any]) -> dict[str, float]:
    for what, rate in rates.items():
        if not is_number(rate) or not 0 <= rate < math.inf:
            raise ValueError(
                f"{_NAMES[what]} must be a number of at least 0, got {describe(rate)}."
            )
    if not any(rates.values()):
        raise ValueError(
            "One of kills_per_minute, hangs and slow must be larger than 0: otherwise "
            "nothing happens to any worker."
        )
    return {what: float(rate) for what, rate in rates.items()}


def _pool_in(env: Any) -> Any:
    """Returns the pool inside wrappers."""
    from envkit.parallel import AsyncParallelPyEnvironment, ParallelPyEnvironment

    inner = env
    while not isinstance(inner, ParallelPyEnvironment | AsyncParallelPyEnvironment):
        if hasattr(inner, "wrapped_env"):
            inner = inner.wrapped_env()
        elif hasattr(inner, "pyenv"):
            inner = inner.pyenv
        else:
            raise TypeError(
                "pool must be a ParallelPyEnvironment or an AsyncParallelPyEnvironment,"
                f" or a wrapper of one, got {a_or_an(type(env).__name__)}."
            )
    return inner


def _check_has_processes(environment: Any, host: str) -> None:
    environment._check_open("chaos")
    backend = environment._backend.name
    name = type(environment).__name__
    if not environment._backend.can_kill:
        raise ValueError(
            f"pool must have workers that are processes, but this {name} has "
            f'backend="{backend}". Pass backend="process".'
        )
    if not _workers_of(environment, host):
        raise ValueError(
            f"pool must have workers on this machine ({host}), but all workers of this "
            f"{name} are on others. Try it with links to this machine."
        )


def _check_survives(environment: Any, rates: dict[str, float]) -> float | None:
    """Warns if the pool cannot survive such faults; returns its step_timeout."""
    options = environment._pool._options
    timeout: float | None = options.step_timeout
    if rates[_HANG] and timeout is None:
        warnings.warn(
            "The pool has no step_timeout, so a worker that hangs is waited for: it "
            f"goes on after {_HANG_SECONDS:g} seconds. To have it replaced, pass "
            "step_timeout= to the pool.",
            stacklevel=4,
        )
    is_lost = rates[_KILL] or (rates[_HANG] and timeout is not None)
    if is_lost and options.policy is None:
        warnings.warn(
            "The pool has no RestartPolicy, so the first worker that is lost ends the "
            "program with an error. To see it go on, pass "
            "on_worker_failure=RestartPolicy(max_restarts=1000) to the pool.",
            stacklevel=4,
        )
    return timeout


def _workers_of(environment: Any, host: str) -> list[WorkerStatistics]:
    """Returns the workers that are processes on this machine; none while it closes."""
    try:
        workers = environment.statistics().workers
    except Exception:
        if not environment._closed:  # by another thread
            raise
        return []
    return [worker for worker in workers if worker.host in ("", host)]


def _life_of(pid: int) -> int | None:
    """Returns a process's pidfd, -1 if there are none; `None` if it has ended."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        life = os.pidfd_open(pid)
    except OSError as error:
        # An old kernel has none. A process that cannot be opened now is left alone.
        return -1 if error.errno == errno.ENOSYS else None
    if _ends(life, 0.0):
        os.close(life)
        return None
    return life


def _ends(life: int, seconds: float) -> bool:
    """Waits at most `seconds` for a process to end; returns True if it has."""
    poller = select.poll()
    poller.register(life, select.POLLIN)
    return bool(poller.poll(1000 * seconds))


def _await_end(pid: int) -> None:
    """Waits until a killed process has ended."""
    life = _life_of(pid)
    if life is not None and life >= 0:
        try:
            _ends(life, _END_SECONDS)
        finally:
            os.close(life)


def _close(life: int) -> None:
    if life >= 0:
        os.close(life)


def _send(pid: int, number: int, life: int) -> bool:
    """Sends a signal; returns False if the process is gone."""
    try:
        if life < 0:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(life, number)
    except ProcessLookupError:
        return False
    return True
