"""Kills, stops and slows the workers of pools, to test their users: `chaos`.

A seed determines which worker is hit, and how. Faults happen at random times, from a
thread; or every so many steps, in the stepping thread, and then runs can be repeated.
"""

from __future__ import annotations

import errno
import functools
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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from envkit._shared import running_pools
from envkit._shared.arguments import is_number
from envkit._shared.inside import inside
from envkit.extend import a_or_an, checked_size, describe

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


class _Worker(NamedTuple):
    """A worker on this machine.

    Attributes:
        number: Its index.
        pid: Its process; 0 if it is being replaced.
        rows: Its rows.
    """

    number: int
    pid: int
    rows: tuple[int, ...]


class _PoolWorkers:
    """Lists the workers of a pool, and calls back before its steps."""

    def __init__(self, env: Any, first_worker: int, first_row: int) -> None:
        """Takes a pool, and the indices that its first worker and row are to have."""
        self._env = env
        self._first_worker, self._first_row = first_worker, first_row
        self._host = socket.gethostname()
        self._before: dict[str, Any] = {}

    def is_over(self) -> bool:
        """Returns True if the pool is closed."""
        return bool(self._env._closed)

    def listed(self) -> list[_Worker]:
        """Returns the workers on this machine; none while the pool closes."""
        return [
            _Worker(
                self._first_worker + worker.index,
                worker.pid if worker.pid and worker.state == "ready" else 0,
                tuple(self._first_row + row for row in worker.rows),
            )
            for worker in self._env.workers
            if worker.host in ("", self._host)
        ]

    def hook(self, count_step: Callable[[], None]) -> None:
        """Wraps the two methods that start every step."""
        engine = self._env._pool
        step_all, submit = engine.step_all, engine.submit
        is_counted = False

        def counted_step_all() -> bool:
            nonlocal is_counted
            count_step()
            is_counted = True  # some steps of all rows are submitted
            try:
                is_regular: bool = step_all()
                return is_regular
            finally:
                is_counted = False

        def counted_submit(rows: Any, command: Any) -> None:
            if not is_counted and rows.size and engine.slab.asks_to_step(command):
                count_step()
            submit(rows, command)

        self._before = {name: vars(engine).get(name) for name in ("step_all", "submit")}
        engine.step_all, engine.submit = counted_step_all, counted_submit

    def unhook(self) -> None:
        """Takes the two methods back."""
        hooks = vars(self._env._pool)
        for name, before in self._before.items():
            if before is None:
                del hooks[name]
            else:
                hooks[name] = before  # that of another Chaos, around the same pool


class _ProcessWorkers:
    """Lists the workers of all pools that a process and those below it run."""

    def __init__(self, pid: int) -> None:
        """Takes the process."""
        self._pid = pid

    def is_over(self) -> bool:
        """Returns True if the process has ended."""
        return not running_pools.exists(self._pid)

    def listed(self) -> list[_Worker]:
        """Returns the workers that have a process now."""
        tree = running_pools.tree_of(self._pid)
        return [
            _Worker(index, pid, tuple(range(*pool.facts.blocks[index])))
            for pool in running_pools.running_pools(tree)
            for index, pid in pool.workers().items()
        ]

    def hook(self, count_step: Callable[[], None]) -> None:
        """Does nothing: another process does the steps."""

    def unhook(self) -> None:
        """Does nothing."""


class _Steps:
    """Counts the steps of some workers, and draws their faults.

    Attributes:
        workers: The workers.
        random: The source of their faults.
    """

    def __init__(self, workers: _PoolWorkers | _ProcessWorkers, seed: Any) -> None:
        """Takes the workers, and the seed of their faults."""
        self.workers = workers
        self.random = random.Random(seed)
        self._count = 0

    def count(self, every: int, first: int) -> bool:
        """Counts a step; returns True at step `first`, and `every` steps later."""
        self._count += 1
        return self._count >= first and (self._count - first) % every == 0


class Chaos:
    """Kills, stops and slows workers until it is closed; see `chaos`.

    Attributes:
        log: All faults, in order.
    """

    def __init__(
        self,
        env: Any,
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
        pools = _pools_in(env)
        pid = None if pools else _pid_of(env)
        for pool in pools:
            _check_has_processes(pool)
        step_timeout = _check_survives(pools, self._rates)
        self._hang_seconds = 2.0 * step_timeout + _HANG_SECONDS
        found: Sequence[_PoolWorkers | _ProcessWorkers] = (
            _workers_of(pools) if pid is None else [_ProcessWorkers(pid)]
        )
        self._parts = [
            _Steps(workers, seed + index if index else seed)
            for index, workers in enumerate(found)
        ]
        self.log: list[Fault] = []
        self._random = self._parts[0].random
        self._began = time.monotonic()
        # Guards the attributes below. Stopped workers, each with its pidfd, or -1, and
        # the time at which it continues.
        self._changed = threading.Condition()
        self._stopped: dict[int, tuple[int, float]] = {}
        self._killed: set[int] = set()
        self._is_over = False
        self._next = math.inf
        self._every = every_steps
        if every_steps is None:
            self._next = self._began + self._drawn_pause()
        else:
            for part in self._parts:
                part.workers.hook(functools.partial(self._count_step, part))
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
                for part in self._parts if self._every is not None else ():
                    part.workers.unhook()
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
                    if all(part.workers.is_over() for part in self._parts):
                        return
                    workers = [
                        worker
                        for part in self._parts
                        for worker in part.workers.listed()
                    ]
                    self._strike(self._random, workers)
                    self._next = time.monotonic() + self._drawn_pause()
                due = min([self._next, *(due for _, due in self._stopped.values())])
                seconds = max(due - time.monotonic(), 0.0)
                self._changed.wait(min(seconds, threading.TIMEOUT_MAX))

    def count_step(self) -> None:
        """Counts a step of a process, for `every_steps`, right before it is sent."""
        self._count_step(self._parts[0])

    def _count_step(self, part: _Steps) -> None:
        """Counts a step that is about to start; some steps get a fault first."""
        if self._every is None:
            return
        # Several pools take turns, so the batch of all gets as many faults.
        first = self._every * (self._parts.index(part) + 1)
        if not part.count(self._every * len(self._parts), first):
            return
        with self._changed:
            pid = None
            if not self._is_over:
                pid = self._strike(part.random, part.workers.listed())
            self._changed.notify_all()  # a stopped worker may continue earlier
        if pid is not None:
            _await_end(pid)

    # What.

    def _strike(self, source: random.Random, workers: list[_Worker]) -> int | None:
        """Makes a fault in a worker; returns the process if it was killed."""
        # Each fault uses the same number of random numbers, whether or not it is
        # possible.
        (what,) = source.choices(list(self._rates), weights=list(self._rates.values()))
        chosen, share = source.random(), source.random()
        if not workers:
            return None
        worker = workers[int(chosen * len(workers))]
        pid = worker.pid
        if pid <= 0 or pid in self._killed:
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
                fault = Fault(now - self._began, what, worker.number, pid, worker.rows)
                self.log.append(fault)
        if not done:
            return None
        _LOGGER.info("%s of worker %d (pid %d)", what, worker.number, pid)
        return pid if what == _KILL else None

    def _release(self, now: float) -> None:
        """Lets workers continue whose time has come."""
        for pid, (life, due) in list(self._stopped.items()):
            if due <= now:
                _send(pid, signal.SIGCONT, life)
                del self._stopped[pid]
                _close(life)


def chaos(
    env: Any,
    *,
    seed: int = 0,
    kills_per_minute: float = 6.0,
    hangs: float = 0.0,
    slow: float = 0.0,
    every_steps: int | None = None,
) -> Chaos:
    """Kills, stops and slows workers at random, until the block ends.

    A killed worker gets SIGKILL. A hanging one gets SIGSTOP, and hangs until the pool
    kills it because it exceeds `step_timeout`; it continues at the latest 5 seconds
    after twice that time. A slow one pauses for up to half a second.

    Workers are found behind whatever presents a pool: wrappers and batches, the
    adapters of other libraries (`vectorize`, `to_sb3`, `TFPyEnvironment`) and their
    wrappers. Linked workers, actors of Ray and the environments of servers are hit if
    they are processes of this machine. For a server that runs its own pools, such as
    `envkit serve --openenv`, pass its process.

    The seed determines the faults and their times. With `every_steps`, a fault happens
    right before every so many steps of the batch, in the stepping thread, and a killed
    worker has ended before the step starts. So with at least 2, a run can be repeated.
    Steps of another process cannot be seen: call `count_step()` before each of them.

    At the end of the block, stopped workers continue, after Ctrl-C too. A warning says
    if a pool has no `RestartPolicy`, so the first kill ends the program, or no
    `step_timeout`, so hanging workers are not replaced.

    Args:
        env: An environment whose workers are processes on this machine; or a process
            that runs such pools, as its pid or an object with a `pid`.
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
        TypeError: There is no pool in `env`, and it is no process.
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
        env,
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


def _pools_in(env: Any) -> list[Any]:
    """Returns the pools inside wrappers, adapters and batches."""
    from envkit.parallel import (
        AsyncParallelPyEnvironment,
        ParallelPyEnvironment,
        ProcessPyEnvironment,
    )

    if isinstance(env, ParallelPyEnvironment | AsyncParallelPyEnvironment):
        return [env]
    if isinstance(env, ProcessPyEnvironment):
        return [env._facade]
    return [pool for inner in inside(env) for pool in _pools_in(inner)]


def _pid_of(process: Any) -> int:
    """Returns the pid of a process."""
    pid = process if isinstance(process, int) else getattr(process, "pid", None)
    if isinstance(pid, bool) or not isinstance(pid, int):
        raise TypeError(
            "env must have a pool of worker processes inside, or be a process that "
            f"runs such pools, got {a_or_an(type(process).__name__)}."
        )
    if not running_pools.exists(pid):
        raise ValueError(f"env must be a running process; there is no process {pid}.")
    return pid


def _workers_of(pools: list[Any]) -> list[_PoolWorkers]:
    """Numbers the workers and rows of several pools through."""
    found, worker, row = [], 0, 0
    for pool in pools:
        found.append(_PoolWorkers(pool, worker, row))
        worker += len(pool.workers)
        row += sum(len(one.rows) for one in pool.workers)
    return found


def _check_has_processes(environment: Any) -> None:
    environment._check_open("chaos")
    backend = environment._backend.name
    name = type(environment).__name__
    if not environment._backend.can_kill:
        raise ValueError(
            f"env must have workers that are processes, but this {name} has "
            f'backend="{backend}". Pass backend="process".'
        )
    if not _PoolWorkers(environment, 0, 0).listed():
        raise ValueError(
            f"env must have workers on this machine ({socket.gethostname()}), but all "
            f"workers of this {name} are on others. Try it with links to this machine."
        )


def _check_survives(pools: list[Any], rates: dict[str, float]) -> float:
    """Warns if pools cannot survive such faults; returns their longest step_timeout."""
    options = [pool._pool._options for pool in pools]
    timeouts: list[float | None] = [each.step_timeout for each in options]
    if rates[_HANG] and None in timeouts:
        warnings.warn(
            "The pool has no step_timeout, so a worker that hangs is waited for: it "
            f"goes on after {_HANG_SECONDS:g} seconds. To have it replaced, pass "
            "step_timeout= to the pool.",
            stacklevel=4,
        )
    is_lost = any(
        each.policy is None
        and (rates[_KILL] or (rates[_HANG] and each.step_timeout is not None))
        for each in options
    )
    if is_lost:
        warnings.warn(
            "The pool has no RestartPolicy, so the first worker that is lost ends the "
            "program with an error. To see it go on, pass "
            "on_worker_failure=RestartPolicy(max_restarts=1000) to the pool.",
            stacklevel=4,
        )
    return max((timeout or 0.0 for timeout in timeouts), default=0.0)


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
