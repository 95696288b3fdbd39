"""Makes errors from the facts about a failure in a worker.

The sentences leave out unknown facts. The errors have all facts as attributes too.
"""

from __future__ import annotations

import copy
import errno
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from envkit._internal.exceptions import both, caused_by, made_from, rebuilt
from envkit._internal.text import (
    counted,
    facts_table,
    first_line,
    lines,
    paragraphs,
    sentences,
)
from envkit.errors import (
    ClosedError,
    ConstructorError,
    EnvironmentRaised,
    SpecError,
    SpecMismatchError,
    WorkerError,
)
from envkit.parallel.endings import (
    PARTICIPLES,
    environments_row,
    restart_remedy,
    worker_name,
)
from envkit.parallel.messages import RemoteFailure

__all__ = [
    "CLOSED_MEANWHILE",
    "OF_ANOTHER_PROCESS",
    "construction",
    "differs",
    "joined",
    "loss_kind",
    "no_room",
    "raised",
    "refuse_elsewhere",
    "too_wide",
]

# The message for using a pool in a fork of its process.
OF_ANOTHER_PROCESS = (
    "These workers belong to another process, of which this one is a fork, or were "
    "closed: a pool can be used only where it was made. Make another here."
)


def refuse_elsewhere(*unused: Any) -> Any:
    """Raises; it replaces a pool's methods in a fork of its process."""
    raise ClosedError(OF_ANOTHER_PROCESS)


# The message for a call during which another thread closed the pool.
CLOSED_MEANWHILE = (
    "The pool was closed by another thread while this one was waiting for its "
    "environments."
)

# What a system without room for another process or descriptor reports.
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
_ROOM = (
    "A pool needs some six open files for each worker, and a process: use fewer "
    "workers, close what is not needed, or raise the limits (ulimit -n, ulimit -u)."
)
# What libraries raise for an unregistered name, and what envkit says instead.
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
# A restart does not help against an action that the environment refuses.
_ABOUT_ACTION = re.compile(r"\b(action|move)s?\b", re.IGNORECASE)
_ACTION_REMEDY = (
    "If the action was wrong, send another: an environment built anew would refuse it "
    "too."
)

# Failures of environments and their constructors.


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
        # envkit's own error; its sentence needs no traceback.
        original.worker, original.envs = worker, envs
        return original
    what = f"env_constructors[{failure.env}]" if of_env else "worker_setup"
    if failure.kind == "constructor" and not of_env:
        what = "The specs of an environment"
    pid = failure.pid if failure.pid != os.getpid() else None
    where = worker_name(worker, pid, failure.host)
    # Without a traceback, the sentence says all.
    shown = _shown_traceback(failure)
    error = ConstructorError(
        paragraphs(
            f"{what} {_raised(failure, f' in {where}')}",
            facts_table(
                environments_row(envs),
                ("constructor", maker_of(failure.env) if of_env else ""),
            ),
            shown,
            "" if pid is None else _registration(failure),
            "To look at it without a worker, call the constructor yourself or pass "
            'backend="inline".'
            if shown
            else "",
        ),
        worker=worker,
        envs=envs,
    )
    error.remote_traceback = failure.traceback
    return caused_by(error, original if shown else None)


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
        failure: The exception that came from the worker.
        maker: The constructor of the environment.
        reason: Why it is not rebuilt, in the words of `GiveUp`.
        envs: The worker's environments.
    """
    original = failure.original()
    if failure.kind == "constructor" or (
        failure.command == "rebuild" and isinstance(original, ConstructorError)
    ):
        return construction(worker, failure, lambda env: maker)
    env, command = failure.env if failure.env >= 0 else envs[0], failure.command
    # An exception in render() does not end the episode.
    episode = (
        "reset(), or reset(mask) for this row alone, begins a new episode."
        if command in {"step", "reset"}
        else ""
    )
    message = paragraphs(
        f"env {env} {_raised(failure, _during(command))}",
        facts_table(
            ("worker", str(worker)), ("constructor", maker), ("restarts", reason)
        ),
        _shown_traceback(failure),
        lines(
            sentences(f"Worker {worker} lives on.", episode),
            _remedy(failure, original, reason),
        ),
    )
    if failure.kind == "misfit":
        # The misfit is the whole message; no code of the user's raised.
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
        # A user's exception class may raise anything when its parts are read. That must
        # not hide the original failure.
        try:
            return _as_theirs(original, facts)
        except Exception:
            pass
    error = rebuilt(EnvironmentRaised, (message,), facts)
    return caused_by(error, original)


def loss_kind(failure: RemoteFailure) -> str:
    """Returns what kind of `Loss` an environment's exception is."""
    is_in_step = failure.command == "step" and failure.kind != "constructor"
    return "raised" if is_in_step else "reset_failed"


def _as_theirs(original: BaseException, facts: dict[str, Any]) -> EnvironmentRaised:
    """Returns an error that is also an instance of the user's exception class."""
    kind = both(EnvironmentRaised, type(original))
    attributes = dict(vars(original))
    # The cause has the notes already, and shows them.
    attributes.pop("__notes__", None)
    given = () if kind is EnvironmentRaised else made_from(original)
    error = rebuilt(kind, original.args, attributes | facts, given)
    return caused_by(error, original)


def differs(worker: int, env: int, maker: str, text: str) -> WorkerError:
    """Returns the error for a new environment that differs from the one it replaces."""
    return ConstructorError(
        f"env {env}, built anew in worker {worker} by {maker}, is unlike the one "
        f"before. {text} A constructor must build the same kind of environment each "
        "time.",
        worker=worker,
        envs=(env,),
    )


def joined(errors: Sequence[WorkerError]) -> WorkerError:
    """Returns a call's first failure, which also mentions the others."""
    first, *others = errors
    if not others:
        return first
    told = [f"  - {first_line(str(other))}" for other in others[:8]]
    if len(others) > len(told):
        told.append(f"  - and {len(others) - len(told)} more")
    heading = f"{counted(len(others), 'other failure')} in the same call:"
    error = copy.copy(first)
    message = paragraphs(str(first), lines(heading, *told))
    vars(error).update({"_envkit_message": message, "also": tuple(others)})
    return error


def no_room(error: OSError) -> WorkerError | None:
    """Returns the error for a system with too little room for the pool.

    `None` if the error has another reason.
    """
    # ConnectionAbortedError means that a message lost its descriptors.
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


# Parts of sentences.


def _remedy(failure: RemoteFailure, original: BaseException | None, reason: str) -> str:
    """Says how to survive such failures, unless a new environment would fail too."""
    if failure.command == "step" and _ABOUT_ACTION.search(failure.message):
        return _ACTION_REMEDY
    is_of_code = isinstance(original, SpecError | NotImplementedError)
    if is_of_code and reason.startswith("not allowed"):
        return ""
    return restart_remedy(reason, "have such environments built anew")


def _registration(failure: RemoteFailure) -> str:
    """Returns the remedy for a name that only the caller's process may know."""
    if failure.type_name.rpartition(".")[2] in _UNKNOWN:
        return _TO_REGISTER + _TO_REGISTER_WITH_GYMNASIUM
    if _UNKNOWN_HERE in failure.message:
        return _TO_REGISTER + _TO_REGISTER_HERE
    return ""


def _raised(failure: RemoteFailure, where: str) -> str:
    """Says what was raised where, with the first line of its text."""
    kind = failure.type_name
    line, _, more = failure.message.strip().partition("\n")
    if len(line) > _LONGEST_LINE or more:
        line = f"{line[:_LONGEST_LINE].rstrip()} …"
    if not line:
        return f"raised {kind}{where}."
    # Sentences stand at the end; fewer words stand inside ours.
    if line.endswith((".", "?", "!", "…")):
        return f"raised {kind}{where}: {line}"
    return f"raised {kind}: {line}{where}."


def _shown_traceback(failure: RemoteFailure) -> str:
    """Returns the traceback, or without frames as much of the text as is not shown."""
    text, message = failure.traceback.rstrip(), failure.message.strip()
    if "\n  File " in text or failure.message not in text:
        return text
    is_shown = "\n" not in message and len(message) <= _LONGEST_LINE
    return "" if is_shown else message


def _during(command: str | None) -> str:
    match command:
        case None | "":
            return ""
        case "step" | "reset":
            return f" in {command}()"
        case "rebuild" | "construct":
            return " while it was being " + PARTICIPLES[command]
    return f" in {command}"
