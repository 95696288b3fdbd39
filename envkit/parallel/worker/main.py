"""The process of a worker, from its first message to its end.

```
parent                                          worker
  starts it, with a channel and a lifeline  ─▶   ties its life to the lifeline
  Job(constructors, …)                      ─▶   builds the environments
                                            ◀─   Hello(specs, …), or the failure
  Bind(layout) + memory, bells              ─▶   lays its slab over the memory
  rings                                     ─▶   runs the rows that were asked, rings
  rings, sends a Request                    ─▶   answers it
  rings, sends Bind(another layout) + memory ▶   goes on on the rows there
  rings, sends Close                        ─▶   closes the environments and ends
```

A worker knows of its parent only rows, bells and a channel.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envkit.errors import ConstructorError
from envkit.parallel import serialize
from envkit.parallel.messages import (
    PROTOCOL_VERSION,
    Bind,
    Close,
    Hello,
    ObjectActions,
    ObjectRow,
    Packed,
    PackedJob,
    RemoteFailure,
    Reply,
    Request,
    RowsRaised,
    WorkerJob,
)
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import AWAKE, LAST_CPU, STEP
from envkit.parallel.system.channel import Channel
from envkit.parallel.system.cpus import current_cpu
from envkit.parallel.system.doorbell import MESSAGE, Doorbell, is_readable, linger
from envkit.parallel.system.lifeline import end_with, mark_helpers
from envkit.parallel.system.shared_memory import KEEPS_ORDER, SharedBlock, full_fence
from envkit.parallel.worker.environments import end_fork, lines_at_close, run_setup
from envkit.parallel.worker.runner import EnvRunner
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.types import EnvConstructor

__all__ = [
    "built",
    "leave_forks",
    "load_action_objects",
    "main",
    "reply_to",
    "settle_in",
]


def main(channel_fd: int, lifeline_fd: int, inherited: WorkerJob | None = None) -> None:
    """Runs a worker until it is told to end; returns then."""
    settle_in(channel_fd, lifeline_fd, as_fork=inherited is not None)
    worker = _Worker(Channel.attach(channel_fd), lifeline_fd)
    with contextlib.suppress(EOFError, ConnectionError):
        worker.run(inherited)


def settle_in(fd: int, lifeline_fd: int, *, as_fork: bool = False) -> None:
    """Ties this process to its parent, and lets it work as a worker."""
    # A program that an environment starts must not be able to write to the parent.
    os.set_inheritable(fd, False)
    os.set_inheritable(lifeline_fd, False)
    end_with(lifeline_fd)
    mark_helpers()
    serialize.work_here(as_fork=as_fork)
    # What an environment prints is to be seen when it prints it.
    with contextlib.suppress(AttributeError, ValueError, OSError):  # It may be closed.
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Only faulthandler can tell where native code crashed.
    with contextlib.suppress(Exception):  # stderr may be no file in a forked notebook
        faulthandler.enable(2)


def leave_forks(lifeline_fd: int, close: Callable[[], None]) -> list[int]:
    """Prepares every fork of this worker to close what it must not use.

    An environment may fork a helper. One that comes back into the worker would answer
    in its place, so it ends there, by `end_fork`.

    Returns:
        A list that is empty here, and not in a process that an environment has forked.
    """
    forked: list[int] = []

    def leave() -> None:
        if not forked:
            os.close(lifeline_fd)
        forked.append(os.getppid())
        close()

    os.register_at_fork(after_in_child=leave)
    return forked


@contextlib.contextmanager
def built(
    packed: PackedJob,
    forked: list[int],
    *,
    inherited: WorkerJob | None = None,
    host: str = "",
) -> Iterator[tuple[EnvRunner | None, Packed | RemoteFailure]]:
    """Builds the environments of a job, and closes them after the block.

    Args:
        packed: The job.
        forked: Not empty in a process that an environment has forked.
        inherited: The same job, if this process has its constructors already.
        host: The machine, if the pool may be on another one.

    Yields:
        The runner, `None` if there is nothing to run; and what to tell the pool.
    """
    job = inherited or _unpacked_job(packed)
    if isinstance(job, RemoteFailure):
        hello: Hello | RemoteFailure = job
    else:
        runner = EnvRunner(job, forked=forked)
        hello = runner.build()
    end_fork(forked)
    hello = hello._replace(host=host)
    if isinstance(hello, RemoteFailure):
        yield None, hello
        return
    try:
        message = _packed_hello(hello)
        yield runner if isinstance(message, Packed) else None, message
    finally:
        for line in lines_at_close(runner.close()):
            print(line, file=sys.stderr)


class _Worker:
    """Carries a runner in a process of its own."""

    def __init__(self, channel: Channel, lifeline_fd: int) -> None:
        self._channel = channel
        self._bells: list[Doorbell] = []
        self._block: SharedBlock | None = None
        # Those of messages that have come and are not handled yet.
        self._fds: list[int] = []
        # The message that ends the service of the rows that there are.
        self._order: Packed | Close | None = None
        # Whether an environment has raised whose rows were not rung for.
        self._has_failure = False
        self._forked = leave_forks(lifeline_fd, self._close)

    def _close(self) -> None:
        self._channel.close()
        for bell in self._bells:
            bell.close()
        if self._block is not None:
            self._block.close()

    def run(self, inherited: WorkerJob | None) -> None:
        """Builds the environments, then serves rows and requests."""
        packed: PackedJob = self._channel.receive()
        with built(packed, self._forked, inherited=inherited) as (runner, message):
            self._channel.send(message)
            if runner is not None:
                self._runner = runner
                self._serve(packed.job.worker, packed.job.options.rings_each_row)

    def _serve(self, worker: int, rings_each_row: bool) -> None:
        # The first message binds; there is no bell yet to announce it.
        message: Packed | Close = self._channel.receive()
        owed = 0
        while isinstance(message, Packed):
            bind: Bind = serialize.load_value(message.payload)
            slab = self._slab_of(bind)
            for line in self._bind(slab, worker, rings_each_row):
                print(line, file=sys.stderr)
            message, owed = self._run(slab, worker, bind.lingers, owed)

    def _slab_of(self, bind: Bind) -> Slab:
        """Lays a slab over the memory that came with a layout."""
        self._fds += self._channel.receive_fds()
        memory, *bells = self._fds[: bind.fds]
        del self._fds[: bind.fds]
        if bells:
            half = len(bells) // 2
            self._bells = [Doorbell.of(bells[:half]), Doorbell.of(bells[half:])]
        if self._block is not None:
            self._block.close()
        self._block = SharedBlock.attach(memory, bind.layout.size)
        return Slab(bind.layout, self._block.buffer)

    def _run(
        self, slab: Slab, worker: int, lingers: bool, owed: int
    ) -> tuple[Packed | Close, int]:
        """Serves until there is a message that is not about rows or environments.

        Args:
            slab: The rows.
            worker: Whose they are.
            lingers: Whether to linger before it falls asleep.
            owed: How many messages were rung for and have not come, because the parent
                was interrupted; fewer than none, if some came before their ring was
                read.

        Returns:
            The message, and how many are owed then.
        """
        bell, done = self._bells
        runner, ring = self._runner, self._ring_for(slab, done)
        meters = slab.counters(worker)
        clock, now = runner.start_clock(), time.perf_counter_ns
        run_pending, due = runner.run_pending, runner.due
        if slab.private_actions:
            self._slab = slab
            # By row: the number of the request whose objects have come.
            self._objects: dict[int, int] = {}
            run_pending = self._run_with_objects
        announcements, seen = slab.announcements, 0

        def has_been_asked() -> bool:
            return announcements[0] != seen

        def falls_asleep() -> bool:
            # Either this sees what is asked now, or the parent sees that it must ring.
            meters[LAST_CPU] = current_cpu()
            meters[AWAKE] = 0
            full_fence()
            return not has_been_asked()

        # Requests and messages of this slab may have been rung for before.
        is_awake = has_message = True
        while True:
            # Hot: once per batch step.
            if is_awake:
                # The ring for these rows is read later, when nothing is pending.
                clock.woken, is_awake = now(), False
            elif due:
                runner.reset_next()
                clock.before = clock.woken = now()
            else:
                rings = bell.wait() if owed <= 0 else self._wait_for_either(bell)
                clock.woken = now()
                owed += rings // MESSAGE
                has_message = rings >= MESSAGE or owed > 0 or rings == 0
            if has_message:
                runner.messages_seen, has_message = slab.messages[0], False
                owed -= self._answer(slab)
                if self._order is not None:
                    order, self._order = self._order, None
                    return order, owed
            meters[AWAKE] = KEEPS_ORDER
            seen = announcements[0]
            ran = run_pending()
            if ran > 0:
                if runner.after_row is None:
                    ring()
                is_awake = lingers and linger(has_been_asked)
            elif ran < 0:
                is_awake = has_message = True
            is_awake = is_awake or not falls_asleep()

    def _wait_for_either(self, bell: Doorbell) -> int:
        """Waits for the bell or for a message; returns what was rung, if it was."""
        poller = select.poll()
        for fd in (bell.fileno(), self._channel.fileno()):
            poller.register(fd, select.POLLIN)
        rung = any(fd == bell.fileno() for fd, _ in poller.poll())
        return bell.wait() if rung else 0

    def _ring_for(self, slab: Slab, done: Doorbell) -> Callable[[], None]:
        """Returns what wakes the parent if what was answered is what it waits for."""

        def ring() -> None:
            # Hot: called once per batch step, or once per row. One that is marked as
            # raised is waited for, however many others owe an answer.
            if self._has_failure or slab.is_awaited():
                self._has_failure = False
                done.ring()

        return ring

    def _bind(self, slab: Slab, worker: int, rings_each_row: bool) -> list[str]:
        """Takes the rows; returns what environments that have none any more raise."""
        runner, done = self._runner, self._bells[1]

        def tell_failure(rows: Sequence[int], failure: RemoteFailure) -> None:
            self._channel.send(RowsRaised(tuple(rows), failure))
            self._has_failure = True

        def send_objects(row: int, slot: int, leaves: dict[int, Any]) -> None:
            self._channel.send(ObjectRow(row, slot, serialize.dump_value(leaves)))

        runner.after_row = self._ring_for(slab, done) if rings_each_row else None
        if runner.is_bound:
            return lines_at_close(runner.move(slab, worker, send_objects))
        runner.bind(slab, worker, send_objects)
        runner.tell_failure = tell_failure
        return []

    def _answer(self, slab: Slab) -> int:
        """Handles the messages that have come; returns how many these were."""
        count = 0
        # One that was announced and is larger than what fits comes in parts.
        while self._channel.pending or is_readable(self._channel.fileno(), 0):
            message = self._channel.receive()
            count += 1
            if isinstance(message, Close | Packed):
                self._order = message
                break
            if isinstance(message, ObjectActions):
                self._receive_objects(message, slab)
            else:
                self._channel.send(reply_to(self._runner, message))
        return count

    def _receive_objects(self, message: ObjectActions, slab: Slab) -> None:
        for row, payload in message.leaves.items():
            slab.write_action_objects(row, load_action_objects(payload, slab))
            self._objects[row] = message.numbers[row]

    def _run_with_objects(self) -> int:
        """Runs the rows whose actions have come as a whole, as `run_pending` does."""
        slab, arrived = self._slab, self._objects
        pending = self._runner.pending()
        rows = [
            row
            for row in pending
            if arrived.get(row) == slab.numbers[row] or slab.requested[row] != STEP
        ]
        if pending and slab.messages[0] != self._runner.messages_seen:
            return -1
        if len(rows) < len(pending) and not self._runner.is_single:
            # The rows of a batch go together; what is missing rings when it comes.
            return 0
        for row in rows:
            # A number that was taken back comes again, with other objects.
            arrived.pop(row, None)
        if rows:
            self._runner.run(rows)
        return len(rows)


def _unpacked_job(packed: PackedJob) -> WorkerJob | RemoteFailure:
    """Runs the setup of a job and turns its bytes into constructors."""
    if packed.protocol != PROTOCOL_VERSION:
        error = RuntimeError(
            f"The worker's envkit speaks version {PROTOCOL_VERSION} and the "
            f"parent's {packed.protocol}: two installations are on the path."
        )
        return RemoteFailure.of(error, kind="setup", command="start")
    # Setup first: what constructors refer to may exist only after it.
    try:
        if packed.setup is not None:
            run_setup(serialize.load_value(packed.setup))
    except BaseException as error:
        return RemoteFailure.of(error, kind="setup", command="setup", pid=os.getpid())
    constructors: list[EnvConstructor] = []
    try:
        # One by one, so that their number tells which of them cannot be loaded.
        constructors.extend(map(serialize.load_constructor, packed.constructors))
    except BaseException as error:
        return RemoteFailure.of(
            error,
            kind="constructor",
            env=packed.job.first_env + len(constructors),
            command="load",
            pid=os.getpid(),
        )
    return packed.job._replace(constructors=tuple(constructors))


def reply_to(runner: EnvRunner, request: Request) -> Reply:
    """Answers a request; a value that cannot travel becomes its own failure."""
    try:
        arguments = serialize.load_value(request.arguments)
    except BaseException as error:
        failure = RemoteFailure.of(error, command=f"{request.method}()")
        return Reply(request.number, (failure,) * len(request.envs))
    reply = runner.handle(request._replace(arguments=arguments))
    results: list[bytes | RemoteFailure] = []
    for result in reply.results:
        if isinstance(result, RemoteFailure):
            results.append(result)
            continue
        try:
            results.append(serialize.dump_value(result))
        except Exception as error:
            results.append(RemoteFailure.of(error, command="answer"))
    return Reply(reply.number, tuple(results))


def load_action_objects(payload: bytes, slab: Slab) -> dict[int, Any]:
    """Returns the leaves of a row's action that memory cannot hold."""
    try:
        return serialize.load_value(payload)  # type: ignore[no-any-return]
    except BaseException as error:
        # The environment gets the exception in place of what it cannot have.
        return dict.fromkeys(slab.private_actions, error)


def _packed_hello(hello: Hello) -> Packed | RemoteFailure:
    """Turns the specs of environments into bytes, or says why they cannot travel."""
    try:
        what = "The specs of the environments"
        # Those of a thousand environments alike travel once, and are read once.
        kinds: dict[bytes, EnvironmentSpec] = {}
        specs = [
            kinds.setdefault(serialize.dump_value(spec, what), spec)
            for spec in hello.specs
        ]
        return Packed(serialize.dump_value(hello._replace(specs=tuple(specs)), what))
    except Exception as error:
        return RemoteFailure.of(
            ConstructorError(str(error)),
            kind="constructor",
            command="construct",
            pid=hello.pid,
        )
