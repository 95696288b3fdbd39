"""`WorkerHost`: the common part of all worker processes, whatever their transport.

```
carrier                                    WorkerHost
  the process begins                 ─▶    ties it to its parent
  a PackedJob has come               ─▶    builds the environments, packs the Hello
  a Bind has come, with a slab       ─▶    runs the rows there from now on
  rows were asked                    ─▶    runner.run_pending()
  a Request has come                 ─▶    answers it
  the worker is to end               ─▶    closes the environments
```

One carrier has shared memory, bells and a channel; another has a link to a pool on
another machine.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from envkit.errors import ConstructorError
from envkit.parallel import serialize
from envkit.parallel.messages import (
    PROTOCOL_VERSION,
    Bind,
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
from envkit.parallel.system.lifeline import end_with, mark_helpers
from envkit.parallel.worker.environments import end_fork, lines_at_close, run_setup
from envkit.parallel.worker.runner import EnvRunner
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.types import EnvConstructor

__all__ = ["WorkerHost"]

_Told = TypeVar("_Told", Hello, RemoteFailure)


class WorkerHost:
    """Makes this process a worker, which builds and runs environments.

    Its carrier calls `built`, then `bind` for the first rows and again for other rows,
    and sends the pool their results.

    Attributes:
        runner: Runs the rows, once the environments are there.
    """

    runner: EnvRunner

    def __init__(
        self, fd: int, lifeline_fd: int, *, machine: str = "", as_fork: bool = False
    ) -> None:
        """Ties this process to its parent, and prepares it for environments.

        Args:
            fd: The descriptor of the connection to the pool. Programs that environments
                start do not inherit it.
            lifeline_fd: The lifeline, which ends this process once the other end
                closes.
            machine: The name of this machine, if the pool may be on another.
            as_fork: Whether this process is a fork of the pool's.
        """
        self._lifeline_fd = lifeline_fd
        self._machine = machine
        # Is not empty in a process that an environment has forked.
        self._forked: list[int] = []
        self._slab: Slab
        os.set_inheritable(fd, False)
        os.set_inheritable(lifeline_fd, False)
        end_with(lifeline_fd)
        mark_helpers()
        serialize.work_here(as_fork=as_fork)
        # Environments' prints must show immediately.
        with contextlib.suppress(
            AttributeError, ValueError, OSError
        ):  # stdout is closed
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        # Only faulthandler can tell where native code crashed.
        with contextlib.suppress(Exception):  # stderr may be no file in a notebook
            faulthandler.enable(2)

    def close_in_forks(self, close: Callable[[], None]) -> None:
        """Makes every fork of this worker close what it must not use.

        An environment may fork a helper. If the helper returns into the worker's code,
        it would answer in the worker's place, so `end_fork` ends it there.

        Args:
            close: Closes the carrier's descriptors.
        """

        def leave() -> None:
            if not self._forked:
                os.close(self._lifeline_fd)
            self._forked.append(os.getppid())
            close()

        os.register_at_fork(after_in_child=leave)

    def end_fork(self) -> None:
        """Ends this process, with a message, if it is a fork made by an environment."""
        end_fork(self._forked)

    @contextlib.contextmanager
    def built(
        self, packed: PackedJob, inherited: WorkerJob | None = None
    ) -> Iterator[Packed | RemoteFailure]:
        """Builds the environments of a job; closes them after the block.

        Args:
            packed: The job.
            inherited: The same job, if this process inherited its constructors.

        Yields:
            The message for the pool: a packed `Hello`, or a failure, in which case
            there is no `runner`.
        """
        job = inherited or _unpacked_job(packed)
        if isinstance(job, RemoteFailure):
            yield self._from_here(job)
            return
        runner = EnvRunner(job, forked=self._forked)
        hello = runner.build()
        self.end_fork()
        if isinstance(hello, RemoteFailure):
            yield self._from_here(hello)
            return
        try:
            message = _packed_hello(self._from_here(hello))
            if isinstance(message, Packed):
                self.runner = runner
            yield message
        finally:
            _print_errors(runner.close())

    def unpacked(self, message: Packed) -> Bind:
        """Unpickles the `Bind` that a pool has sent."""
        bind: Bind = serialize.load_value(message.payload)
        return bind

    def bind(
        self,
        slab: Slab,
        worker: int,
        tell: Callable[[RowsRaised | ObjectRow], None],
        *,
        first_row: int = 0,
    ) -> None:
        """Switches to the rows of a slab, which continue those of the previous one.

        Environments that have lost their rows are closed.

        Args:
            slab: The slab.
            worker: The index of the worker in the slab.
            tell: Sends the pool data that does not fit into rows.
            first_row: The pool's row that is the first of the slab.
        """
        runner = self.runner
        self._slab = slab

        def tell_failure(rows: Sequence[int], failure: RemoteFailure) -> None:
            tell(RowsRaised(tuple(rows), self._from_here(failure)))

        def send_objects(row: int, slot: int, leaves: dict[int, Any]) -> None:
            tell(ObjectRow(row, slot, serialize.dump_value(leaves)))

        if runner.is_bound:
            gone = runner.move(slab, worker, send_objects, first_row=first_row)
            _print_errors(gone)
        else:
            runner.bind(slab, worker, send_objects, first_row=first_row)
        runner.tell_failure = tell_failure

    def write_objects(self, message: ObjectActions) -> None:
        """Writes action leaves that shared memory cannot hold, before rows run."""
        slab = self._slab
        for row, payload in message.leaves.items():
            try:
                leaves: dict[int, Any] = serialize.load_value(payload)
            except BaseException as error:
                # The environment gets the exception in place of the value.
                leaves = dict.fromkeys(slab.private_actions, error)
            slab.write_action_objects(row, leaves)

    def reply(self, request: Request) -> Reply:
        """Answers a request; a value that cannot be pickled becomes a failure."""
        try:
            arguments = serialize.load_value(request.arguments)
        except BaseException as error:
            failure = RemoteFailure.of(error, command=f"{request.method}()")
            return Reply(
                request.number, (self._from_here(failure),) * len(request.envs)
            )
        reply = self.runner.handle(request._replace(arguments=arguments))
        return Reply(reply.number, tuple(map(self._packed_result, reply.results)))

    def _packed_result(self, result: Any) -> bytes | RemoteFailure:
        if isinstance(result, RemoteFailure):
            return self._from_here(result)
        try:
            return serialize.dump_value(result)
        except Exception as error:
            return self._from_here(RemoteFailure.of(error, command="answer"))

    def _from_here(self, told: _Told) -> _Told:
        """Adds this machine's name to a message."""
        return told._replace(host=self._machine) if self._machine else told


def _print_errors(errors: Sequence[BaseException]) -> None:
    for line in lines_at_close(errors):
        print(line, file=sys.stderr)


def _unpacked_job(packed: PackedJob) -> WorkerJob | RemoteFailure:
    """Runs the setup of a job, and unpickles its constructors."""
    if packed.protocol != PROTOCOL_VERSION:
        error = RuntimeError(
            f"The worker's envkit speaks version {PROTOCOL_VERSION} and the "
            f"parent's {packed.protocol}: two installations are on the path."
        )
        return RemoteFailure.of(error, kind="setup", command="start")
    # Setup first: the constructors may refer to things that it creates.
    try:
        if packed.setup is not None:
            run_setup(serialize.load_value(packed.setup))
    except BaseException as error:
        return RemoteFailure.of(error, kind="setup", command="setup", pid=os.getpid())
    constructors: list[EnvConstructor] = []
    try:
        # One by one, so their number tells which of them cannot be loaded.
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


def _packed_hello(hello: Hello) -> Packed | RemoteFailure:
    """Pickles the specs of environments; returns a failure if that is impossible."""
    try:
        what = "The specs of the environments"
        # The equal specs of a thousand environments are sent once, and read once.
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
