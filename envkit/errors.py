"""The errors envkit raises, and the sentences in them.

```
EnvkitError
├── SpecError(ValueError)             a value does not fit its spec
├── SpecMismatchError(ValueError)     two environments disagree about specs
├── CallOrderError(RuntimeError)      a call that makes no sense yet, or any more
├── ClosedError(RuntimeError)         you closed it and used it again
├── WorkerError(RuntimeError)         .worker  .envs
│   ├── ConstructorError              a constructor raised or built no environment
│   ├── EnvironmentRaised             an environment's own code raised
│   ├── WorkerCrashed                 the process is gone
│   └── WorkerTimeout(TimeoutError)   alive, but past its deadline
├── TransportError(ConnectionError)   the network between us, not the environment
└── MissingDependencyError(ImportError)
```

Each text is built by a class method beside its class, from facts that stay
available as attributes, so the line that raises stays one line. Every error pickles:
an exception from a worker arrives as what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envkit.wording import a_or_an, listed

__all__ = [
    "CallOrderError",
    "ClosedError",
    "ConstructorError",
    "EnvironmentRaised",
    "EnvkitError",
    "MissingDependencyError",
    "SpecError",
    "SpecMismatchError",
    "TransportError",
    "WorkerCrashed",
    "WorkerError",
    "WorkerTimeout",
]


class EnvkitError(Exception):
    """The base of the errors that are envkit's own.

    Where Python has the right word already, such as `TypeError` for an argument of the
    wrong kind, that is what envkit raises.
    """

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
            f"form one batch.\n\n{rows}\n\n{difference} {agreement}"
        )
        error.envs = (first, second)
        error.part = part
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
    """

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


class ConstructorError(WorkerError):
    """A constructor raised, or returned something that is no environment."""

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

    Attributes:
        remote_traceback: The traceback of the place where it happened, as text.
    """

    remote_traceback: str = ""


class WorkerCrashed(WorkerError):
    """The process that ran the environments is gone.

    Attributes:
        exitcode: What the process returned, if it returned.
        signal: The name of the signal that ended it, if one did.
        stderr_tail: The last lines it wrote to standard error.
    """

    exitcode: int | None = None
    signal: str | None = None
    stderr_tail: str = ""


class WorkerTimeout(WorkerError, TimeoutError):
    """An environment is alive but did not answer within its deadline."""

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
