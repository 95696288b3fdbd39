"""Failures: from facts about what went wrong in a worker to the error that says so.

Facts that are not known are left out of the sentences. They stay available as
attributes of the errors.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Sequence
from typing import Any

from envkit._internal.exceptions import both, caused_by, made_from, rebuilt
from envkit._internal.text import counted, first_line, listed
from envkit.errors import (
    ClosedError,
    ConstructorError,
    EnvironmentRaised,
    SpecMismatchError,
    WorkerCrashed,
    WorkerError,
    WorkerTimeout,
)
from envkit.parallel.messages import ExitReport, RemoteFailure
from envkit.parallel.serialize import describe_constructor

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
    "refuse_elsewhere",
    "timeout",
    "too_wide",
]

# What a caller is told that uses a pool in a fork of its process.
OF_ANOTHER_PROCESS = (
    "These workers belong to another process, of which this one is a fork, or were "
    "closed: a pool can be used only where it was made. Make another here."
)


def refuse_elsewhere(*unused: Any) -> Any:
    """Raises; it takes the place of a pool's calls in a fork of its process."""
    raise ClosedError(OF_ANOTHER_PROCESS)


# What a call is told under which another thread has closed the pool.
CLOSED_MEANWHILE = (
    "The pool was closed by another thread while this one was waiting for its "
    "environments."
)

# What a system without room for another process or descriptor answers.
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
_ROOM = (
    "A pool needs some six open files for each worker, and a process: use fewer "
    "workers, close what is not needed, or raise the limits (ulimit -n, ulimit -u)."
)
# What native code is told by, or tells itself by abort().
_NATIVE_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL"}
# The settings that limit how long these may take.
_TIMEOUTS = {
    "step": "step_timeout",
    "reset": "reset_timeout",
    "rebuild": "reset_timeout",
    "construct": "start_timeout",
}
_PARTICIPLES = {"rebuild": "rebuilt", "construct": "constructed"}
# What libraries raise for a name that is not in their registry; and what envkit says.
_UNKNOWN = {
    "DeprecatedEnv",
    "NameNotFound",
    "NamespaceNotFound",
    "UnregisteredEnv",
    "VersionNotFound",
}
_UNKNOWN_HERE = "no environment named"
_TO_REGISTER = (
    "A worker sees nothing of what your program has registered. If your program has "
    "registered this name, have worker_setup=... do it, too, which runs first in each "
    "worker: "
)
_TO_REGISTER_WITH_GYMNASIUM = (
    "worker_setup=lambda: gymnasium.register_envs(ale_py), or the same with "
    "gymnasium.register(...). Or let the id name the module that registers it: "
    "'ale_py:ALE/Pong-v5'."
)
_TO_REGISTER_HERE = "worker_setup=lambda: envkit.register(...)."
_LONGEST_LINE = 200
_MOST_LINES = 12

name_of = describe_constructor


# Of environments and their constructors.


def construction(
    worker: int, failure: RemoteFailure, maker_of: Callable[[int], str]
) -> WorkerError:
    """Returns the error for an environment that could not be built."""
    original = failure.original()
    of_env = failure.env >= 0
    envs = (failure.env,) if of_env else ()
    if failure.kind == "start":
        text = f"{failure.message.removesuffix('.')}."
        if getattr(original, "errno", None) in _NO_ROOM:
            text = f"{text} {_ROOM}"
        return WorkerError(
            f"worker {worker} could not be started again: {text}", worker=worker
        )
    if isinstance(original, ConstructorError):
        # envkit's own sentence, which needs no traceback of envkit around it.
        original.worker, original.envs = worker, envs
        return original
    what = f"env_constructors[{failure.env}]" if of_env else "worker_setup"
    if failure.kind == "constructor" and not of_env:
        what = "The specs of an environment"
    pid = failure.pid if failure.pid != os.getpid() else None
    error = ConstructorError(
        _paragraphs(
            f"{what} raised {_what(failure)} in {_name(worker, pid, failure.host)}.",
            _facts(
                _environments(envs),
                ("constructor", maker_of(failure.env) if of_env else ""),
            ),
            failure.traceback.rstrip(),
            "" if pid is None else _registration(failure),
            "To look at it without a worker, call the constructor yourself or pass "
            'backend="inline".',
        ),
        worker=worker,
        envs=envs,
    )
    error.remote_traceback = failure.traceback
    return caused_by(error, original)


def raised(
    worker: int,
    failure: RemoteFailure,
    maker: str,
    reason: str,
    *,
    envs: tuple[int, ...],
) -> WorkerError:
    """Returns the error for an environment that raised.

    Args:
        worker: Index of the worker.
        failure: What came from there.
        maker: The constructor of the environment.
        reason: Why it is not built anew, as `GiveUp` says it.
        envs: The worker's environments.
    """
    original = failure.original()
    if failure.kind == "constructor" or (
        failure.command == "rebuild" and isinstance(original, ConstructorError)
    ):
        return construction(worker, failure, lambda env: maker)
    env, command = failure.env if failure.env >= 0 else envs[0], failure.command
    # What raised in render() goes on with its episode.
    episode = (
        "reset(), or reset(mask) for this row alone, begins a new episode."
        if command in {"step", "reset"}
        else ""
    )
    message = _paragraphs(
        f"env {env} raised {_what(failure)}{_raised_during(command)}.",
        _facts(("worker", str(worker)), ("constructor", maker), ("restarts", reason)),
        failure.traceback.rstrip(),
        _lines(
            _sentences(f"Worker {worker} lives on.", episode),
            _restart_remedy(reason, "have such environments built anew"),
        ),
    )
    if failure.kind == "misfit":
        # What does not fit is all there is to say; no code of the user's raised.
        message = failure.message
    facts = {
        "_envkit_message": message,
        "worker": worker,
        "envs": (env,),
        "also": (),
        "command": command,
        "remote_traceback": failure.traceback,
    }
    if original is not None:
        # A user's class may raise anything when it is asked for its parts, which must
        # not take the place of what happened.
        try:
            return _as_theirs(original, facts)
        except Exception:
            pass
    error = rebuilt(EnvironmentRaised, (message,), facts)
    return caused_by(error, original)


def _as_theirs(original: BaseException, facts: dict[str, Any]) -> EnvironmentRaised:
    """Returns an error that is of the class of the user's exception, too."""
    kind = both(EnvironmentRaised, type(original))
    attributes = dict(vars(original))
    # Notes are shown with the cause, which has them too.
    attributes.pop("__notes__", None)
    given = () if kind is EnvironmentRaised else made_from(original)
    error = rebuilt(kind, original.args, attributes | facts, given)
    return caused_by(error, original)


def differs(worker: int, env: int, maker: str, text: str) -> WorkerError:
    """Returns the error for a new environment unlike the one it replaces."""
    return ConstructorError(
        f"env {env}, built anew in worker {worker} by {maker}, is unlike the one "
        f"before. {text} A constructor must build the same kind of environment each "
        "time.",
        worker=worker,
        envs=(env,),
    )


# Of workers.


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
    """Returns the error for a worker that is gone.

    Args:
        report: How it ended.
        command: What it was doing: "step", "reset", "rebuild", "construct", or a text
            such as "render()"; `None` for nothing, "" if that is not known.
        env: Which of its environments it was doing this with.
        envs: Its environments.
        makers: Their constructors.
        reason: Why it is not replaced, as `GiveUp` says it.
        steps: How many steps it had made since its start.
        others: How many other workers there are.
    """
    activity = _doing(command, env)
    end = _ended(report) + (f" while {activity}" if activity else "")
    if steps is not None:
        end = f"{end}, {_after_start(steps)}"
    error = WorkerCrashed(
        _paragraphs(
            f"{_name(report.worker, report.pid, report.host)} {end}.",
            _worker_facts(envs, makers, reason, report.stderr_tail),
            _lines(
                _sentences(_cause_of_crash(report, command), _other_workers(others)),
                _restart_remedy(reason, "replace crashed workers"),
            ),
        ),
        worker=report.worker,
        envs=envs,
    )
    error.pid, error.exitcode, error.signal = report.pid, report.exitcode, report.signal
    error.host = report.host
    error.command, error.env, error.steps = command, env, steps
    error.stderr_tail, error.resident = report.stderr_tail, report.resident or None
    return error


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
    host: str = "",
    stderr_tail: str = "",
) -> WorkerError:
    """Returns the error for a worker past its deadline; a thread cannot be killed.

    The other facts are those of `crash`.
    """
    known_pid = pid if killed else None
    name = _name(worker, known_pid, host)
    activity = _doing(command, env)
    during = f": {activity}" if activity else ""
    end = (
        "The worker was killed, and every process that it had started."
        if killed
        else "A thread cannot be killed: it was given up, and runs on until the "
        "environment returns."
    )
    setting = _TIMEOUTS.get(command or "")
    error = WorkerTimeout(
        _paragraphs(
            f"{name} did not answer within {timeout:g} s{during}.",
            _worker_facts(envs, makers, reason, stderr_tail),
            _lines(
                end,
                f"If it may take longer, pass a larger {setting}." if setting else "",
                _restart_remedy(reason, "replace late workers"),
            ),
        ),
        worker=worker,
        envs=envs,
    )
    error.pid, error.host = known_pid, host
    error.command, error.env = command, env
    error.timeout, error.stderr_tail = timeout, stderr_tail
    return error


def gone(earlier: WorkerError, call: str) -> WorkerError:
    """Returns the error for a call that needs a worker which an earlier call lost."""
    if not isinstance(earlier, WorkerCrashed | WorkerTimeout):
        return earlier
    name = _name(earlier.worker, earlier.pid, earlier.host)
    end, line, body = str(earlier).partition("\n")
    error = WorkerCrashed(
        f"{call}() needs {name}, which was lost in an earlier call; "
        f"it {end.removeprefix(name).lstrip()}{line}{body}",
        worker=earlier.worker,
        envs=earlier.envs,
    )
    # Of a worker that was killed for being late, less is known.
    known = vars(earlier).keys() & WorkerCrashed.__annotations__.keys()
    vars(error).update({fact: getattr(earlier, fact) for fact in known})
    return error


def joined(errors: Sequence[WorkerError]) -> WorkerError:
    """Returns the first of the failures of one call, which tells of the others."""
    first, *others = errors
    if not others:
        return first
    told = [f"  - {first_line(str(other))}" for other in others[:8]]
    if len(others) > len(told):
        told.append(f"  - and {len(others) - len(told)} more")
    heading = f"{counted(len(others), 'other failure')} in the same call:"
    error = copy.copy(first)
    message = _paragraphs(str(first), _lines(heading, *told))
    vars(error).update({"_envkit_message": message, "also": tuple(others)})
    return error


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


def too_wide(how: str, part: str, text: str) -> SpecMismatchError:
    """Returns the error for new environments that would change the batch's specs.

    Args:
        how: What may differ between the environments.
        part: The part of the specs.
        text: How it would change.
    """
    return SpecMismatchError(
        f"The new environments would change the {part} spec of the batch, which "
        f"resize() keeps as it is. {text} With specs={how!r} a pool takes its specs "
        "from the environments that it is made of: make one with all of them."
    )


# The parts of sentences.


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _lines(*parts: str) -> str:
    return "\n".join(filter(None, parts))


def _sentences(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _facts(*rows: tuple[str, str]) -> str:
    """Lays out names and what they stand for in two columns; no row for nothing."""
    return "\n".join(
        f"  {name if number == 0 else '':<14}  {line}".rstrip()
        for name, text in rows
        if text
        for number, line in enumerate(text.splitlines())
    )


def _environments(envs: Sequence[int]) -> tuple[str, str]:
    return "environment" if len(envs) == 1 else "environments", listed(envs)


def _worker_facts(
    envs: Sequence[int], makers: Sequence[str], reason: str, stderr_tail: str
) -> str:
    names = list(dict.fromkeys(filter(None, makers)))
    if len(names) > 4:
        names = [*names[:4], f"and {len(names) - 4} more"]
    return _facts(
        _environments(envs),
        ("constructor" if len(names) == 1 else "constructors", "\n".join(names)),
        ("restarts", reason),
        ("last stderr", _stderr_excerpt(stderr_tail)),
    )


def _stderr_excerpt(tail: str) -> str:
    """Chooses the lines of standard error that tell most: few, and none too long."""
    shown = tail.strip("\n").splitlines()
    for number, line in enumerate(shown):
        # Python's report of a crash begins with the cause and the innermost call, and
        # can be hundreds of lines long.
        if line.startswith("Fatal Python error"):
            shown = shown[number : number + _MOST_LINES]
            break
    return "\n".join(
        line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"
        for line in shown[-_MOST_LINES:]
    )


def _name(worker: int | None, pid: int | None, host: str = "") -> str:
    """Names a worker by its index, its process and its machine, as far as it has any.

    Example:
        >>> _name(3, 4711), _name(3, 4711, "node-7"), _name(3, None)
        ('worker 3 (pid 4711)', 'worker 3 (pid 4711 on node-7)', 'worker 3')
    """
    place = f" on {host}" if host else ""
    return f"worker {worker} (pid {pid}{place})" if pid else f"worker {worker}"


def _registration(failure: RemoteFailure) -> str:
    """Returns what to do about a name that only the caller's process may know."""
    if failure.type_name.rpartition(".")[2] in _UNKNOWN:
        return _TO_REGISTER + _TO_REGISTER_WITH_GYMNASIUM
    if _UNKNOWN_HERE in failure.message:
        return _TO_REGISTER + _TO_REGISTER_HERE
    return ""


def _what(failure: RemoteFailure) -> str:
    """Names an exception with the first line of its text."""
    line, _, more = failure.message.strip().partition("\n")
    if len(line) > _LONGEST_LINE or more:
        line = f"{line[:_LONGEST_LINE].rstrip()} …"
    # A sentence goes on after it.
    line = line.removesuffix(".")
    return f"{failure.type_name}: {line}" if line else failure.type_name


def _doing(command: str | None, env: int | None) -> str:
    """Describes what a worker did: `None` is nothing, and "" is not known."""
    who = "an environment" if env is None else f"env {env}"
    match command:
        case None:
            return "it was idle"
        case "":
            return ""
        case "step" | "reset":
            return f"{who} was in {command}()"
        case "rebuild" | "construct":
            return f"{who} was being {_PARTICIPLES[command]}"
    return f"it answered {command}"


def _raised_during(command: str | None) -> str:
    match command:
        case None | "":
            return ""
        case "step" | "reset":
            return f" in {command}()"
        case "rebuild" | "construct":
            return " while it was being " + _PARTICIPLES[command]
    return f" in {command}"


def _ended(report: ExitReport) -> str:
    if report.lost:
        return report.lost
    if report.signal:
        return f"was killed by {report.signal}"
    if report.exitcode is None:
        return "ended"
    return f"exited with code {report.exitcode}"


def _after_start(steps: int) -> str:
    if steps == 0:
        return "before its first step"
    number = f"{steps:,}".replace(",", " ")
    return f"{number} {'step' if steps == 1 else 'steps'} after start"


def _cause_of_crash(report: ExitReport, command: str | None) -> str:
    """Describes what usually ends a worker like this."""
    if report.lost or report.remedy:
        return report.remedy
    if report.signal in _NATIVE_SIGNALS:
        return f"Signal {report.signal} comes from native code."
    if report.signal == "SIGKILL":
        held = (
            f" This worker held {_size(report.resident)} when last seen."
            if report.resident
            else ""
        )
        return (
            f"envkit never sends SIGKILL {_during(command)}; on Linux the usual "
            f"sender is the out-of-memory killer.{held}"
        )
    if report.signal:
        return (
            f"{report.signal} came from another program, a person, or the environment "
            "itself."
        )
    if report.exitcode is not None:
        return (
            "envkit did not ask it to: the environment, or native code under it, "
            "called os._exit() or exit()."
        )
    return ""


def _during(command: str | None) -> str:
    match command:
        case None:
            return "to an idle worker"
        case "":
            return "to a worker in use"
        case "step" | "reset":
            return f"during {command}()"
        case "rebuild" | "construct":
            return "while an environment is being " + _PARTICIPLES[command]
    return f"during {command}"


def _size(count: int) -> str:
    """Writes a number of bytes in a unit that suits it."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _other_workers(others: int | None) -> str:
    match others:
        case None:
            return ""
        case 0:
            return "No other worker is left."
        case 1:
            return "The other worker is idle and unharmed."
    return f"The other {others} workers are idle and unharmed."


def _restart_remedy(reason: str, what: str) -> str:
    """Describes how to go on after failures like this, or that it was tried.

    Args:
        reason: The supervisor's; "" if it was not asked.
        what: What is to be replaced, such as "replace crashed workers".
    """
    if not reason:
        return ""
    if reason.startswith("not allowed"):
        return f"To {what} and go on, pass on_worker_failure=RestartPolicy()."
    return (
        f"Its RestartPolicy allows no further restart: {reason}. What fails so often "
        "has a cause that a restart does not cure."
    )
