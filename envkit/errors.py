"""The errors that envkit raises, and their attributes.

```
EnvkitError
├── SpecError(ValueError)             a value does not fit its spec
├── SpecMismatchError(ValueError)     two environments disagree about specs
├── CallOrderError(RuntimeError)      a call at the wrong time
├── ClosedError(RuntimeError)         you closed it and used it again
├── WorkerError(RuntimeError)         .worker  .envs  .also
│   ├── ConstructorError              a constructor raised or built no environment
│   ├── EnvironmentRaised             an environment raised; of its class too
│   ├── WorkerCrashed                 the process is gone
│   └── WorkerTimeout(TimeoutError)   alive, but past its deadline
├── CheckpointError(ValueError)       a checkpoint that cannot be read or does not fit
├── RecordingError(ValueError)        a recording that cannot be written, read or played
│   └── RecordingEnded                all its episodes have been played
├── CompileError(TypeError)           rules that numba cannot compile
├── RulesDiffer                       rules that compute something else when compiled
└── MissingDependencyError(ImportError)

InsecureWarning(UserWarning)          others can read a connection, or change it
```

Facts stay available as attributes. The sentences about workers are in
`envkit.parallel.failures`. Every error pickles: an exception from a worker arrives with
its class, its arguments, its attributes and its text.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from envkit._internal.exceptions import (
    both,
    caused_by,
    halves,
    made_from,
    packed,
    rebuilt,
    unpacked,
)
from envkit._internal.extras import install_command
from envkit._internal.namesake import refuse_foreign_package
from envkit._internal.text import a_or_an, how_to_adapt, sentences

__all__ = [
    "CallOrderError",
    "CheckpointError",
    "ClosedError",
    "CompileError",
    "ConstructorError",
    "EnvironmentRaised",
    "EnvkitError",
    "InsecureWarning",
    "MissingDependencyError",
    "RecordingEnded",
    "RecordingError",
    "RulesDiffer",
    "SpecError",
    "SpecMismatchError",
    "WorkerCrashed",
    "WorkerError",
    "WorkerTimeout",
]

# Here, because nearly all modules import this one.
refuse_foreign_package()

W = TypeVar("W", bound="WorkerError")


class EnvkitError(Exception):
    """The base class of envkit's own errors.

    Where Python already has the right class, such as `TypeError` for an argument of the
    wrong kind, envkit raises that.
    """

    # If an error is raised while TensorFlow traces a function, AutoGraph replaces it by
    # an error of its own class, unless it has this attribute.
    ag_pass_through = True

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __str__(self) -> str:
        # ImportError and OSError would otherwise format their own fields.
        return str(self.args[0]) if self.args else ""


class SpecError(EnvkitError, ValueError):
    """A value does not fit its spec.

    Attributes:
        path: The path in the nest, such as `observation['camera']`; empty for a value
            that is not nested.
        reason: The sentence that says why it does not fit.
        check: The name of the broken promise in `check_environment`, if a
            `PassiveChecker` found it; else empty.
    """

    path: str = ""
    reason: str = ""
    check: str = ""

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
        """Builds the error for one value at one path in a nest.

        If the path is just `root`, the message leaves it out.
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
    """Two environments have different specs, so they cannot form one batch.

    Attributes:
        envs: The indices of the two environments.
        part: The spec that differs: "observation", "action", "reward" or "discount".
    """

    envs: tuple[int, ...] = ()
    part: str = ""


class CallOrderError(EnvkitError, RuntimeError, ValueError):
    """A call was made too early, or while an answer is still outstanding.

    It is a `ValueError` too, because TF-Agents raises that from `current_time_step()`
    before the first `reset()`.
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
    """Something went wrong in a worker, or wherever environments run.

    Attributes:
        worker: Index of the worker, or `None` if there is no worker.
        envs: Indices of the environments concerned.
        also: Other failures in the same call.
    """

    # On the class too: an exception class of the user may be mixed in, with a read-only
    # property of that name.
    worker: int | None = None
    envs: tuple[int, ...] = ()
    also: tuple[WorkerError, ...] = ()

    # If `args` are those of the user's own exception, the message is here.
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

    def __copy__(self: W) -> W:
        error = rebuilt(type(self), self.args, vars(self), made_from(self))
        return caused_by(error, self.__cause__)

    def __deepcopy__(self: W, memo: dict[int, Any]) -> W:
        # It holds facts that do not change, and a user's exception that may not allow
        # copies.
        return copy.copy(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        ours, theirs = halves(type(self))
        own: Any = None
        if theirs is not None:
            own = rebuilt(theirs, self.args, vars(self), made_from(self))
        # Each part on its own: one that cannot be pickled does not keep out the others.
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
    """Rebuilds a pickled error, as far as its parts can be loaded here."""
    theirs = unpacked(own)
    attributes = {name: unpacked(data, _LOST) for name, data in state.items()}
    error = rebuilt(
        ours if theirs is None else both(ours, type(theirs)),
        unpacked(args, ()) if theirs is None else theirs.args,
        {name: value for name, value in attributes.items() if value is not _LOST},
        () if theirs is None else made_from(theirs),
    )
    return caused_by(error, unpacked(cause))


class ConstructorError(WorkerError):
    """A constructor raised, or did not return an environment.

    Attributes:
        remote_traceback: The traceback from where it raised, as text.
    """

    remote_traceback: str = ""

    @classmethod
    def no_environment(cls, what: str, got: Any) -> ConstructorError:
        """Builds the error for a constructor that returned no environment."""
        if got is None:
            kind = "None"
        elif isinstance(got, type):
            kind = f"the class {got.__name__}"
        else:
            kind = a_or_an(f"{type(got).__name__} object")
        return cls(
            sentences(
                f"{what} returned {kind}, not an environment.",
                "A constructor must return a PyEnvironment, or an environment of a "
                "library that envkit knows.",
                how_to_adapt(got),
            )
        )


class EnvironmentRaised(WorkerError):
    """An environment's own code raised.

    If possible, the error is also an instance of the user's exception class, with its
    `args` and attributes, so `except FileNotFoundError` catches it and finds `errno`.
    That is not possible if the class does not derive from `Exception`, is handled
    specially by Python (`StopIteration`, `SyntaxError`), or cannot be imported in this
    process. If both have an attribute of the same name, this error's wins; the user's
    exception is the `__cause__`. Values in `__slots__` stay in the worker.

    Attributes:
        command: The call it was in, such as "step".
        remote_traceback: The traceback from where it raised, as text.
    """

    command: str | None = None
    remote_traceback: str = ""


class WorkerCrashed(WorkerError):
    """The process that ran the environments has died.

    Attributes:
        pid: The id of the process.
        host: Its machine, if that may be another one.
        exitcode: The exit code, if it exited.
        signal: The name of the signal that killed it, if one did.
        command: The call it was in, such as "step"; `None` if it was idle.
        env: Index of the environment in that call.
        steps: How many steps it had made since its start.
        stderr_tail: The last lines it wrote to standard error.
        resident: Its memory when last measured, in bytes.
    """

    pid: int | None = None
    host: str = ""
    exitcode: int | None = None
    signal: str | None = None
    command: str | None = None
    env: int | None = None
    steps: int | None = None
    stderr_tail: str = ""
    resident: int | None = None


class WorkerTimeout(WorkerError, TimeoutError):
    """An environment is alive but did not answer within its deadline.

    Attributes:
        pid: The process of the worker, or `None` if it is a thread.
        host: Its machine, if that may be another one.
        command: The call it was in, such as "step".
        env: Index of the environment in that call.
        timeout: The limit in seconds.
        stderr_tail: The last lines it wrote to standard error.
    """

    pid: int | None = None
    host: str = ""
    command: str | None = None
    env: int | None = None
    timeout: float | None = None
    stderr_tail: str = ""


class CheckpointError(EnvkitError, ValueError):
    """A checkpoint of a pool cannot be read, or does not fit these environments."""


class RecordingError(EnvkitError, ValueError):
    """A recording cannot be written, read or played."""


class RecordingEnded(RecordingError):
    """All episodes of a recording have been played."""


class CompileError(EnvkitError, TypeError):
    """The rules of a `CompiledEnvironment` contain code that numba cannot compile.

    Attributes:
        rule: "reset", "step" or "observe"; empty if it is in a function they call.
        file: The file of the line; empty if unknown.
        line: The line; 0 if unknown.
    """

    rule: str = ""
    file: str = ""
    line: int = 0


class RulesDiffer(EnvkitError):
    """Rules compute different results in plain Python and compiled.

    Attributes:
        row: The row that differs.
        step: The number of batch steps before.
        where: The field of the state, or the part of the time step.
    """

    row: int = 0
    step: int = 0
    where: str = ""


class InsecureWarning(UserWarning):
    """Others on the network can read or change a connection."""


class MissingDependencyError(EnvkitError, ImportError):
    """A package that one feature needs is not installed.

    Attributes:
        package: The package that is missing.
        extra: The extra of envkit that installs it.
        command: The pip command that installs it, if one is enough.
    """

    package: str = ""
    extra: str = ""
    command: str = ""

    @classmethod
    def needed_by(
        cls, what: str, *, package: str, extra: str, requires: Sequence[str] = ()
    ) -> MissingDependencyError:
        """Builds the error, with the command that installs the missing package."""
        command = install_command(extra, package=package, requires=requires)
        error = cls(
            f"{what} needs the package {package}, which is not installed. {command}"
        )
        error.package, error.extra, error.command = package, extra, command
        return error
