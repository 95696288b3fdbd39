"""The errors envkit raises, and the sentences in them.

```
EnvkitError
├── SpecError(ValueError)             a value does not fit its spec
├── SpecMismatchError(ValueError)     two environments disagree about specs
├── CallOrderError(RuntimeError)      a call that makes no sense yet, or any more
├── ClosedError(RuntimeError)         you closed it and used it again
├── WorkerError(RuntimeError)         .worker  .envs  .also
│   ├── ConstructorError              a constructor raised or built no environment
│   ├── EnvironmentRaised             an environment raised; of its class too
│   ├── WorkerCrashed                 the process is gone
│   └── WorkerTimeout(TimeoutError)   alive, but past its deadline
├── TransportError(ConnectionError)   the network between us, not the environment
├── RecordingError(ValueError)        a recording that cannot be written, read or played
│   └── RecordingEnded                all its episodes have been played
└── MissingDependencyError(ImportError)
```

Each text is built by a class method beside its class, from facts that stay
available as attributes, so the line that raises stays one line. Every error pickles:
an exception from a worker arrives as what it was.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from envkit import error_texts as texts
from envkit.exception_copies import (
    both,
    fields_of,
    halves,
    packed,
    rebuilt,
    unpacked,
)
from envkit.wording import a_or_an, listed

__all__ = [
    "CallOrderError",
    "ClosedError",
    "ConstructorError",
    "EnvironmentRaised",
    "EnvkitError",
    "MissingDependencyError",
    "RecordingEnded",
    "RecordingError",
    "SpecError",
    "SpecMismatchError",
    "TransportError",
    "WorkerCrashed",
    "WorkerError",
    "WorkerTimeout",
]

W = TypeVar("W", bound="WorkerError")


class EnvkitError(Exception):
    """The base of the errors that are envkit's own.

    Where Python has the right word already, such as `TypeError` for an argument of the
    wrong kind, that is what envkit raises.
    """

    # Of an error that is raised while TensorFlow traces a function, its AutoGraph makes
    # another, of a class of its own; but not of one that has this.
    ag_pass_through = True

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __str__(self) -> str:
        # ImportError and OSError would otherwise format their own fields.
        return str(self.args[0]) if self.args else ""


class SpecError(EnvkitError, ValueError):
    """A value does not fit its spec.

    Attributes:
        path: Where in the nest, such as `observation['camera']`; empty for a value
            that is not nested.
        reason: The sentence that says why.
    """

    path: str = ""
    reason: str = ""

    @classmethod
    def does_not_fit(
        cls,
        subject: str,
        *,
        path: str,
        expected: str,
        got: str,
        reason: str,
        root: str = "",
        note: str = "",
    ) -> SpecError:
        """Builds the error for one value at one place in a nest.

        The place is left out of the sentence where it is all of `root`.
        """
        place = f" at {path}" if path != root else ""
        message = (
            f"{subject} does not fit its spec{place}.\n\n"
            f"  expected   {expected}\n"
            f"  got        {got}\n\n"
            f"{reason}"
        )
        error = cls(f"{message}\n{note}" if note else message)
        error.path = path
        error.reason = reason
        return error


class SpecMismatchError(EnvkitError, ValueError):
    """Two environments disagree about their specs, so they cannot form one batch.

    Attributes:
        envs: The indices of the two environments.
        part: Which spec differs: "observation", "action", "reward" or "discount".
    """

    envs: tuple[int, ...] = ()
    part: str = ""

    @classmethod
    def between(
        cls,
        *,
        first: int,
        second: int,
        part: str,
        specs: tuple[str, str],
        makers: tuple[str, str],
        difference: str,
        agreement: str,
        purpose: str = "form one batch",
    ) -> SpecMismatchError:
        """Builds the error from the two spec texts and what distinguishes them."""
        names = [f"env {first}", f"env {second}"]
        width = max(map(len, names)) + 4
        rows = "\n".join(
            f"  {name:<{width}}{spec}    {maker}".rstrip()
            for name, spec, maker in zip(names, specs, makers, strict=True)
        )
        error = cls(
            f"env {first} and env {second} have different {part} specs, so they cannot "
            f"{purpose}.\n\n{rows}\n\n{difference} {agreement}"
        )
        error.envs = (first, second)
        error.part = part
        return error

    def advised(self, hint: str) -> SpecMismatchError:
        """Returns the error with a sentence about what to do, if there is one."""
        error = type(self)(f"{self}\n{hint}") if hint else self
        error.envs, error.part = self.envs, self.part
        return error


class CallOrderError(EnvkitError, RuntimeError, ValueError):
    """A call came before the one it needs, or while another still owes an answer.

    It is a `ValueError` too, because that is what TF-Agents raises from
    `current_time_step()` before the first `reset()`.
    """


class ClosedError(EnvkitError, RuntimeError):
    """The environment was used after `close()`."""

    @classmethod
    def used(cls, what: str, call: str) -> ClosedError:
        """Builds the error for a call on a closed environment."""
        return cls(
            f"{what}.{call}() was called after close(). "
            "A closed environment stays closed: make a new one."
        )


class WorkerError(EnvkitError, RuntimeError):
    """Something happened where environments run.

    Attributes:
        worker: Index of the worker, or `None` where there is no worker.
        envs: Indices of the environments concerned.
        also: What else failed in the same call.
    """

    # On the class too: a user's exception may be mixed in, and have a property of that
    # name which cannot be set.
    worker: int | None = None
    envs: tuple[int, ...] = ()
    also: tuple[WorkerError, ...] = ()

    # Where `args` are those of the user's own exception, the message is here.
    _envkit_message: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        worker: int | None = None,
        envs: Sequence[int] = (),
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.envs = tuple(envs)

    def __str__(self) -> str:
        message = self._envkit_message
        return super().__str__() if message is None else message

    @staticmethod
    def joined(errors: Sequence[WorkerError]) -> WorkerError:
        """Returns the first of the failures of one call, which tells of the others."""
        first, *others = errors
        if not others:
            return first
        error = copy.copy(first)
        others_text = texts.among_others([str(other) for other in others])
        known = {"_envkit_message": f"{first}\n\n{others_text}", "also": tuple(others)}
        vars(error).update(known)
        return error

    def __copy__(self: W) -> W:
        error = rebuilt(type(self), self.args, fields_of(self), vars(self))
        return _caused_by(error, self.__cause__)

    def __deepcopy__(self: W, memo: dict[int, Any]) -> W:
        # What it knows are facts, which nobody changes, and a user's exception, which
        # need not allow to be copied.
        return copy.copy(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        ours, theirs = halves(type(self))
        own: Any = None
        if theirs is not None:
            own = rebuilt(theirs, self.args, fields_of(self), vars(self))
        # Each part for itself: one that cannot travel keeps no other from arriving.
        state = {name: packed(value) for name, value in vars(self).items()}
        parts = (packed(self.args), state, packed(own), packed(self.__cause__))
        return _arrived, (ours, *parts)


_LOST = object()


def _arrived(
    ours: type[WorkerError],
    args: bytes | None,
    state: dict[str, bytes | None],
    own: bytes | None,
    cause: bytes | None,
) -> WorkerError:
    """Puts a pickled error together again, as far as its parts can be had here."""
    theirs = unpacked(own)
    attributes = {name: unpacked(data, _LOST) for name, data in state.items()}
    error = rebuilt(
        ours if theirs is None else both(ours, type(theirs)),
        unpacked(args, ()) if theirs is None else theirs.args,
        {} if theirs is None else fields_of(theirs),
        {name: value for name, value in attributes.items() if value is not _LOST},
    )
    return _caused_by(error, unpacked(cause))


def _caused_by(error: W, cause: BaseException | None) -> W:
    # To set it to None would say that what came before shall not be shown.
    if cause is not None:
        BaseException.__setattr__(error, "__cause__", cause)
    return error


class ConstructorError(WorkerError):
    """A constructor raised, or returned something that is no environment.

    Attributes:
        remote_traceback: The traceback of the place where it raised, as text.
    """

    remote_traceback: str = ""

    @classmethod
    def raised(
        cls,
        what: str,
        *,
        worker: int,
        pid: int | None = None,
        envs: Sequence[int] = (),
        type_name: str,
        text: str,
        traceback: str,
        original: BaseException | None = None,
        constructor: str = "",
        restarts: str = "",
    ) -> ConstructorError:
        """Builds the error for a constructor, or a worker's setup, that raised.

        Args:
            what: Which it was, such as `env_constructors[2]`.
            worker: Index of the worker that called it.
            pid: Its process.
            envs: Indices of the environments that it was to make.
            type_name: The class of what it raised.
            text: The message of that.
            traceback: Where it happened, as text.
            original: The exception itself, if it could travel.
            constructor: What it is.
            restarts: Why it is not tried again, as `GiveUp` says it.
        """
        error = cls(
            texts.paragraphs(
                f"{what} raised {texts.raised_what(type_name, text)} "
                f"in {texts.worker_name(worker, pid)}.",
                texts.facts(
                    texts.environments_row(envs),
                    ("constructor", constructor),
                    ("restarts", restarts),
                ),
                traceback.rstrip(),
                "To look at it without a worker, call the constructor yourself or pass "
                'backend="inline".',
            ),
            worker=worker,
            envs=envs,
        )
        error.remote_traceback = traceback
        return _caused_by(error, original)

    @classmethod
    def no_environment(cls, what: str, got: Any) -> ConstructorError:
        """Builds the error for a constructor that returned something else."""
        if got is None:
            kind = "None"
        elif isinstance(got, type):
            kind = f"the class {got.__name__}"
        else:
            kind = a_or_an(f"{type(got).__name__} object")
        return cls(
            f"{what} returned {kind}, not an environment. "
            "A constructor must return a PyEnvironment."
        )


class EnvironmentRaised(WorkerError):
    """An environment's own code raised.

    Where that can be, the error is an instance of the user's own exception class too,
    with its `args` and attributes, so that `except FileNotFoundError` catches it and
    finds `errno`. It cannot be where that class is no `Exception`, is one that Python
    itself catches or prints in its own way (`StopIteration`, `SyntaxError`), or cannot
    be had in this process. Where both have an attribute of one name, it is this one;
    the user's exception is the `__cause__`.

    Attributes:
        command: What it was doing, such as "step".
        remote_traceback: The traceback of the place where it happened, as text.
    """

    command: str | None = None
    remote_traceback: str = ""

    @classmethod
    def raised(
        cls,
        *,
        env: int,
        worker: int | None,
        command: str | None,
        type_name: str,
        text: str,
        traceback: str,
        original: BaseException | None = None,
        constructor: str = "",
        restarts: str = "",
    ) -> EnvironmentRaised:
        """Builds the error from the user's exception, or from what is known of it."""
        what = texts.raised_what(type_name, text)
        message = texts.paragraphs(
            f"env {env} raised {what}{texts.raised_during(command)}.",
            texts.facts(
                ("worker", "" if worker is None else str(worker)),
                ("constructor", constructor),
                ("restarts", restarts),
            ),
            traceback.rstrip(),
            texts.raised_remedy(worker, command, restarts),
        )
        facts = {
            "_envkit_message": message,
            "worker": worker,
            "envs": (env,),
            "also": (),
            "command": command,
            "remote_traceback": traceback,
        }
        if original is not None:
            # A user's class may raise anything when it is asked for its parts, which
            # must not take the place of what happened.
            try:
                return cls._as_theirs(original, facts)
            except Exception:
                return _caused_by(rebuilt(cls, (message,), {}, facts), original)
        return rebuilt(cls, (message,), {}, facts)

    @classmethod
    def _as_theirs(
        cls, original: BaseException, facts: dict[str, Any]
    ) -> EnvironmentRaised:
        kind = both(cls, type(original))
        attributes = dict(vars(original))
        # Notes are shown with the cause, which has them too.
        attributes.pop("__notes__", None)
        fields = fields_of(original)
        if kind is cls:
            # There is no other place for them.
            attributes = fields | attributes
        error = rebuilt(kind, original.args, fields, attributes | facts)
        return _caused_by(error, original)


class WorkerCrashed(WorkerError):
    """The process that ran the environments is gone.

    Attributes:
        pid: The process that it was.
        exitcode: What the process returned, if it returned.
        signal: The name of the signal that ended it, if one did.
        command: What it was doing, such as "step"; `None` for nothing.
        env: Index of the environment that it was doing this with.
        steps: How many steps it had made since its start.
        stderr_tail: The last lines it wrote to standard error.
        resident: Its memory when last seen, in bytes.
    """

    pid: int | None = None
    exitcode: int | None = None
    signal: str | None = None
    command: str | None = None
    env: int | None = None
    steps: int | None = None
    stderr_tail: str = ""
    resident: int | None = None

    @classmethod
    def ended(
        cls,
        *,
        worker: int,
        pid: int | None,
        envs: Sequence[int],
        exitcode: int | None = None,
        signal: str | None = None,
        command: str | None = "",
        env: int | None = None,
        steps: int | None = None,
        constructors: Sequence[str] = (),
        restarts: str = "",
        stderr_tail: str = "",
        others: int | None = None,
        resident: int | None = None,
    ) -> WorkerCrashed:
        """Builds the error for a worker that ended while somebody waited for it.

        Args:
            worker: Its index.
            pid: Its process.
            envs: Indices of its environments.
            exitcode: What it returned, if it returned.
            signal: The name of the signal that ended it, if one did.
            command: What it was doing: "step", "reset", "rebuild", "construct", or a
                text such as "render()"; `None` for nothing, "" if nobody knows.
            env: Which of its environments it was doing this with.
            steps: How many steps it had made since its start.
            constructors: What its environments were made by.
            restarts: Why it is not replaced, as `GiveUp` says it.
            stderr_tail: The last lines it wrote to standard error.
            others: How many other workers there are.
            resident: Its memory when last seen, in bytes.
        """
        end = texts.crash_end(
            exitcode=exitcode, signal=signal, command=command, env=env, steps=steps
        )
        cause = texts.crash_cause(
            exitcode=exitcode, signal=signal, command=command, resident=resident
        )
        error = cls(
            texts.paragraphs(
                f"{texts.worker_name(worker, pid)} {end}.",
                texts.worker_facts(envs, constructors, restarts, stderr_tail),
                texts.lines(
                    texts.sentences(cause, texts.other_workers(others)),
                    texts.restart_remedy(restarts, "replace crashed workers"),
                ),
            ),
            worker=worker,
            envs=envs,
        )
        error.pid, error.exitcode, error.signal = pid, exitcode, signal
        error.command, error.env, error.steps = command, env, steps
        error.stderr_tail, error.resident = stderr_tail, resident
        return error

    @classmethod
    def gone(
        cls, earlier: WorkerCrashed | WorkerTimeout, *, call: str
    ) -> WorkerCrashed:
        """Builds the error for a call that needs a worker which an earlier one lost.

        Args:
            earlier: The error of that worker alone, with which the earlier call ended.
            call: What needs it now, such as "step".
        """
        name = texts.worker_name(earlier.worker, earlier.pid)
        end, line, body = str(earlier).partition("\n")
        error = cls(
            f"{call}() needs {name}, which was lost in an earlier call; "
            f"it {end.removeprefix(name).lstrip()}{line}{body}",
            worker=earlier.worker,
            envs=earlier.envs,
        )
        # A worker that was killed for being late knows less about its end.
        known = vars(earlier).keys() & cls.__annotations__.keys()
        vars(error).update({name: getattr(earlier, name) for name in known})
        return error


class WorkerTimeout(WorkerError, TimeoutError):
    """An environment is alive but did not answer within its deadline.

    Attributes:
        pid: The process of the worker, or `None` if it is a thread.
        command: What it was doing, such as "step".
        env: Index of the environment that it was doing this with.
        timeout: The seconds that it had.
        stderr_tail: The last lines it wrote to standard error.
    """

    pid: int | None = None
    command: str | None = None
    env: int | None = None
    timeout: float | None = None
    stderr_tail: str = ""

    @classmethod
    def late(
        cls,
        *,
        worker: int,
        pid: int | None,
        envs: Sequence[int],
        env: int | None,
        command: str | None,
        timeout: float,
        constructors: Sequence[str] = (),
        restarts: str = "",
        stderr_tail: str = "",
        others: int | None = None,
    ) -> WorkerTimeout:
        """Builds the error for a worker past its deadline; one without pid is a thread.

        The other facts are those of `WorkerCrashed.ended`.
        """
        activity = texts.doing(command, env)
        during = f": {activity}" if activity else ""
        error = cls(
            texts.paragraphs(
                f"{texts.worker_name(worker, pid)} did not answer within "
                f"{timeout:g} s{during}.",
                texts.worker_facts(envs, constructors, restarts, stderr_tail),
                texts.lines(
                    texts.sentences(texts.late_end(pid), texts.other_workers(others)),
                    texts.timeout_remedy(command),
                    texts.restart_remedy(restarts, "replace late workers"),
                ),
            ),
            worker=worker,
            envs=envs,
        )
        error.pid, error.command, error.env = pid, command, env
        error.timeout, error.stderr_tail = timeout, stderr_tail
        return error

    @classmethod
    def waiting(
        cls, call: str, *, envs: Sequence[int], total: int, timeout: float
    ) -> WorkerTimeout:
        """Builds the error for rows that did not answer `call` in time."""
        noun = "environment" if len(envs) == 1 else "environments"
        subject = f"{noun} {listed(envs)}"
        return cls(
            f"{call}() waited {timeout:g} s for {subject}; "
            f"{total - len(envs)} of {total} answered. Their answers are kept: "
            "call wait() for the rest, or reset() to start over.",
            envs=envs,
        )


class TransportError(EnvkitError, ConnectionError):
    """The network between us failed, not the environment."""


class RecordingError(EnvkitError, ValueError):
    """A recording cannot be written, read or played."""


class RecordingEnded(RecordingError):
    """All episodes of a recording have been played."""


class MissingDependencyError(EnvkitError, ImportError):
    """A package that one feature needs is not installed.

    Attributes:
        package: The package that is missing.
        extra: The extra of envkit that installs it.
    """

    package: str = ""
    extra: str = ""

    @classmethod
    def needed_by(
        cls, what: str, *, package: str, extra: str
    ) -> MissingDependencyError:
        """Builds the error with the command that installs what is missing."""
        error = cls(
            f"{what} needs the package {package}, which is not installed. "
            f'pip install "envkit[{extra}]"'
        )
        error.package = package
        error.extra = extra
        return error
