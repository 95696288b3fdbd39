"""From facts about what went wrong in a worker to the error that says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from envkit.errors import (
    ConstructorError,
    EnvironmentRaised,
    WorkerCrashed,
    WorkerError,
    WorkerTimeout,
)
from envkit.parallel.constructor_texts import describe_constructor
from envkit.parallel.messages import ExitReport, RemoteFailure

__all__ = [
    "CLOSED_MEANWHILE",
    "OF_ANOTHER_PROCESS",
    "construction",
    "crash",
    "differs",
    "gone",
    "joined",
    "name_of",
    "no_room",
    "raised",
    "timeout",
]

# What whoever uses a pool in a fork of its process is told.
OF_ANOTHER_PROCESS = (
    "These workers belong to another process, of which this one is a fork, or were "
    "closed: a pool can be used only where it was made. Make another here."
)

# What a call is told under which another thread has closed the pool.
CLOSED_MEANWHILE = (
    "The pool was closed by another thread while this one was waiting for its "
    "environments."
)

# What the system says that has no room for another process or descriptor.
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
_ROOM = (
    "A pool needs some six open files for each worker, and a process: use fewer "
    "workers, close what is not needed, or raise the limits (ulimit -n, ulimit -u)."
)

joined = WorkerError.joined
name_of = describe_constructor


def construction(
    worker: int, failure: RemoteFailure, maker_of: Callable[[int], str]
) -> WorkerError:
    """Returns the error for an environment that could not be built."""
    original = failure.original()
    if failure.kind == "start":
        return WorkerError(
            f"worker {worker} could not be started again: {failure.message}. {_ROOM}",
            worker=worker,
        )
    if isinstance(original, ConstructorError):
        # envkit's own sentence, which needs no traceback of envkit around it.
        error = original
        error.worker = worker
        error.envs = (failure.env,) if failure.env >= 0 else ()
        return error
    of_env = failure.env >= 0
    what = f"env_constructors[{failure.env}]" if of_env else "worker_setup"
    if failure.kind == "constructor" and not of_env:
        what = "The specs of an environment"
    return ConstructorError.raised(
        what,
        worker=worker,
        pid=_foreign(failure.pid),
        envs=(failure.env,) if of_env else (),
        type_name=failure.type_name,
        text=failure.message,
        traceback=failure.traceback,
        original=original,
        constructor=maker_of(failure.env) if of_env else "",
    )


def raised(
    worker: int,
    failure: RemoteFailure,
    maker: str,
    reason: str,
    *,
    envs: tuple[int, ...],
) -> WorkerError:
    """Returns the error for an environment that raised."""
    original = failure.original()
    if failure.kind == "constructor" or (
        failure.command == "rebuild" and isinstance(original, ConstructorError)
    ):
        return construction(worker, failure, lambda env: maker)
    error = EnvironmentRaised.raised(
        env=failure.env if failure.env >= 0 else envs[0],
        worker=worker,
        command=failure.command,
        type_name=failure.type_name,
        text=failure.message,
        traceback=failure.traceback,
        original=original,
        constructor=maker,
        restarts=reason,
    )
    if failure.kind == "misfit":
        # What does not fit is all there is to say; no code of the user's raised.
        vars(error)["_envkit_message"] = failure.message
    return error


def crash(
    report: ExitReport,
    *,
    command: str | None,
    env: int | None,
    envs: Sequence[int],
    makers: Sequence[str],
    reason: str,
    steps: int | None = None,
    others: int | None = None,
) -> WorkerError:
    """Returns the error for a worker that is gone."""
    return WorkerCrashed.ended(
        worker=report.worker,
        pid=report.pid,
        envs=envs,
        exitcode=report.exitcode,
        signal=report.signal,
        command=command,
        env=env,
        steps=steps,
        constructors=makers,
        restarts=reason,
        stderr_tail=report.stderr_tail,
        others=others,
        resident=report.resident or None,
    )


def timeout(
    *,
    worker: int,
    pid: int,
    env: int | None,
    envs: Sequence[int],
    command: str | None,
    timeout: float,
    makers: Sequence[str],
    reason: str,
    killed: bool,
    stderr_tail: str = "",
) -> WorkerError:
    """Returns the error for a worker that did not answer in time."""
    return WorkerTimeout.late(
        worker=worker,
        pid=pid if killed else None,
        envs=envs,
        env=env,
        command=command,
        timeout=timeout,
        constructors=makers,
        restarts=reason,
        stderr_tail=stderr_tail,
    )


def gone(earlier: WorkerError, call: str) -> WorkerError:
    """Returns the error for a call that needs a worker which is gone."""
    if isinstance(earlier, WorkerCrashed | WorkerTimeout):
        return WorkerCrashed.gone(earlier, call=call)
    return earlier


def differs(worker: int, env: int, maker: str, text: str) -> WorkerError:
    """Returns the error for a new environment unlike the one it replaces."""
    return ConstructorError(
        f"env {env}, built anew in worker {worker} by {maker}, is unlike the one "
        f"before. {text} A constructor must build the same kind of environment each "
        "time.",
        worker=worker,
        envs=(env,),
    )


def no_room(error: OSError) -> WorkerError | None:
    """Returns the error for a pool for which the system has no room.

    `None` if the error has another reason.
    """
    # The other one says that a message has lost its descriptors.
    lost = isinstance(error, ConnectionAbortedError)
    if isinstance(error, WorkerError) or not (lost or error.errno in _NO_ROOM):
        return None
    text = str(error).rstrip(".")
    return WorkerError(f"The pool could not be started: {text}. {_ROOM}")


def _foreign(pid: int) -> int | None:
    """Returns a process that is not this one."""
    return pid if pid and pid != os.getpid() else None
