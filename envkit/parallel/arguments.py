"""What pools are given, checked: constructors, numbers, timeouts, names of backends."""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envkit import registry
from envkit._internal import plugins
from envkit._internal.arguments import checked_flag
from envkit._internal.entry_points import loaded
from envkit._internal.removed import removed_option
from envkit.errors import EnvkitError
from envkit.specs.validation import describe
from envkit.types import EnvConstructor

if TYPE_CHECKING:
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.restarts import RestartPolicy

__all__ = [
    "as_backend",
    "as_bytes",
    "as_constructors",
    "as_eager_resets",
    "as_policy",
    "as_timeout",
    "as_validate",
    "as_worker_count",
    "check_name",
    "connect",
    "placed",
    "takes_names",
]

# The backends of this machine, by name, so that nothing is imported that is not used.
# Others are entry points of the group `envkit.backends`.
BACKENDS = {
    "inline": "envkit.parallel.backends.inline:InlineBackend",
    "thread": "envkit.parallel.backends.thread:ThreadBackend",
    "process": "envkit.parallel.backends.process:ProcessBackend",
}
START_METHODS = ("spawn", "forkserver", "fork")
VALIDATE = ("always", "first", "never")


def takes_names(backend: Any) -> bool:
    """Returns True if a backend is given names of environments, which it knows."""
    if isinstance(backend, str):
        backend = None if backend in BACKENDS else _found(backend)
    return getattr(backend, "takes_names", False) is True


def as_constructors(
    given: Any, pool: str, *, elsewhere: bool = False
) -> list[EnvConstructor]:
    """Returns what to call for each environment.

    Args:
        given: Constructors and names.
        pool: The class of the pool, for messages.
        elsewhere: Whether names are those that servers know.
    """
    if isinstance(given, str) or callable(given) or hasattr(given, "time_step_spec"):
        kind = describe(given)
        if isinstance(given, type):
            kind = f"the class {given.__name__}"
        raise TypeError(
            f"env_constructors is {kind}; {pool} needs a list with one constructor "
            "for each environment:\n\n"
            f'  {pool}(["my_game.envs:make"] * 8)\n'
            f"  {pool}([MyEnv] * 8)"
        )
    if not isinstance(given, Sequence):
        try:
            given = list(given)
        except TypeError:
            raise TypeError(
                f"env_constructors is {describe(given)}; {pool} needs a list with one "
                "constructor for each environment."
            ) from None
    if not given:
        raise ValueError(
            "env_constructors must hold at least one constructor, and it is empty."
        )
    return [
        _as_constructor(entry, index, pool, elsewhere)
        for index, entry in enumerate(given)
    ]


def _as_constructor(
    entry: Any, index: int, pool: str, elsewhere: bool
) -> EnvConstructor:
    if isinstance(entry, str) and elsewhere:
        return registry.constructor_elsewhere(entry)
    if isinstance(entry, str):
        return registry.constructor(entry)
    if hasattr(entry, "time_step_spec") and not isinstance(entry, type):
        kind = type(entry).__name__
        raise TypeError(
            f"env_constructors[{index}] is a {kind} object; {pool} needs something to "
            "call that makes one.\n\n"
            "Each environment is built inside its own worker, so pass the recipe:\n\n"
            f"  {pool}([{kind}(...)])                       # the finished dish\n"
            f"  {pool}([functools.partial({kind}, ...)])    # the recipe\n"
            f'  {pool}(["my_game.envs:make"])               # the recipe, by name'
        )
    if not callable(entry):
        raise TypeError(
            f"env_constructors[{index}] is {describe(entry)}, which is non-callable; "
            f"{pool} needs something to call that makes an environment, or a name."
        )
    return entry  # type: ignore[no-any-return]  # callable() says so


def as_worker_count(given: Any, envs: int) -> int | None:
    """Returns how many workers were asked for: no more than environments."""
    if given is None:
        return None
    if isinstance(given, str) and given == "auto":
        raise removed_option('num_workers="auto"')
    must = (
        "num_workers must be an integer of at least 1, or None for one worker per "
        "available CPU, got"
    )
    try:
        if isinstance(given, bool):
            raise TypeError
        count = operator.index(given)
    except TypeError:
        raise TypeError(f"{must} {describe(given)}.") from None
    if count < 1:
        raise ValueError(f"{must} {count}.")
    return min(count, envs)


def connect(backend: Any, start_timeout: float | None) -> None:
    """Lets a backend connect with the cluster that starts its workers, if it has one.

    That is done before its places are counted, and may take long.
    """
    connecting = getattr(backend, "connect", None)
    if connecting is not None:
        connecting(start_timeout)


def placed(count: int | None, envs: int, backend: Backend) -> int:
    """Returns the number of workers, for which a backend must have places.

    Args:
        count: What was asked for, if anything.
        envs: How many environments there are.
        backend: What is to start them.
    """
    if count is None:
        return min(backend.usual_workers(), envs)
    places = backend.places()
    if places is not None and count > places:
        raise ValueError(
            f"num_workers must be at most {places}, as many as the backend has "
            f"places for, got {count}."
        )
    return count


def as_backend(
    given: Any, start_method: Any, worker_env: Mapping[str, str] | None
) -> Backend:
    """Returns the backend that a name stands for, or the one that was given."""
    if start_method not in START_METHODS:
        raise ValueError(
            f"start_method must be one of {', '.join(map(repr, START_METHODS))}, "
            f"got {start_method!r:.80}."
        )
    _check_worker_env(worker_env)
    if not isinstance(given, str):
        if not hasattr(given, "wait_events"):
            names, _ = _names()
            raise TypeError(
                f"backend must be a name ({names}) or a Backend, got {describe(given)}."
            )
        return given  # type: ignore[no-any-return]  # it has the methods
    if given == "process" and os.name == "nt":
        raise ValueError(
            'backend="process" does not run on Windows yet: use backend="thread" or '
            'backend="inline".'
        )
    make = _found(given)
    if make is None:
        names, addresses = _names()
        raise ValueError(
            f"There is no backend named {given!r:.80}; the names are "
            f"{names}{addresses}."
        )
    if given == "process":
        return make(start_method, worker_env)  # type: ignore[no-any-return]
    return make(given) if "://" in given else make()  # type: ignore[no-any-return]


def _found(given: str) -> Any:
    """Returns what makes a backend of a name or an address; `None` if nothing does."""
    if given in BACKENDS:
        return loaded(BACKENDS[given])
    name, is_address, _ = given.partition("://")
    plugin = plugins.BACKENDS.find(name)
    make = None if plugin is None else plugin.load()
    return make if bool(is_address) == bool(_address_of(make)) else None


def _address_of(make: Any) -> str:
    """Returns an example of the addresses that a backend takes, or ""."""
    return getattr(make, "address", "")


def _names() -> tuple[str, str]:
    """Returns the names of all backends, and the end of a sentence on addresses."""
    names, addresses = list(BACKENDS), set()
    for name in plugins.BACKENDS.names():
        try:
            address = _address_of(_found(name) or _found(f"{name}://"))
        except EnvkitError:  # It is broken, which is not what the message is about.
            address = ""
        if address:
            addresses.add(repr(address))
        else:
            names.append(name)
    end = f", and {' or '.join(sorted(addresses))} is a server's" if addresses else ""
    return ", ".join(map(repr, names)), end


def _check_worker_env(worker_env: Any) -> None:
    if worker_env is None:
        return
    if not isinstance(worker_env, Mapping) or not all(
        isinstance(part, str) for item in worker_env.items() for part in item
    ):
        raise TypeError(
            "worker_env must map names of environment variables to strings, such as "
            f'{{"CUDA_VISIBLE_DEVICES": "0"}}, got {describe(worker_env)}.'
        )


def as_policy(given: Any) -> RestartPolicy | None:
    """Returns what to do about a worker that fails: `None` is to raise."""
    if isinstance(given, str) and given == "raise":
        return None
    from envkit.parallel.restarts import RestartPolicy

    if isinstance(given, RestartPolicy):
        return given
    raise ValueError(
        f'on_worker_failure must be "raise" or a RestartPolicy(...), got {given!r:.80}.'
    )


def as_timeout(name: str, given: Any) -> float | None:
    """Returns seconds, or `None` for no limit."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise TypeError(
            f"{name} must be a positive number of seconds, or None, got "
            f"{describe(given)}."
        )
    seconds = float(given)
    if math.isnan(seconds) or seconds <= 0:
        raise ValueError(
            f"{name} must be a positive number of seconds, or None, got {given}."
        )
    return None if math.isinf(seconds) else seconds


def as_bytes(given: Any) -> int | None:
    """Returns how much memory a worker may hold, if that is limited."""
    must = (
        "max_worker_memory must be a whole number of bytes, such as 2 * 2**30, or "
        "None, got"
    )
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, numbers.Integral):
        raise TypeError(f"{must} {describe(given)}.")
    if given < 1:
        raise ValueError(f"{must} {given}.")
    return int(given)


def as_validate(given: Any) -> str:
    """Returns when to look at everything that environments return."""
    if given in VALIDATE:
        return str(given)
    raise ValueError(
        f"validate must be one of {', '.join(map(repr, VALIDATE))}, got {given!r:.80}."
    )


def as_eager_resets(given: Any, elsewhere: bool) -> bool:
    """Returns whether environments are reset right after a `LAST`.

    Args:
        given: What was asked for.
        elsewhere: Whether servers have the environments.
    """
    is_eager = checked_flag("eager_resets", given)
    if is_eager and elsewhere:
        raise ValueError(
            "eager_resets must be False for environments of servers, which reset them "
            "when they are asked. Let the server offer environments for which others "
            "stand by: StandbyEnvironment."
        )
    return is_eager


def check_name(name: Any) -> None:
    """Refuses values that are not names, and names that are private."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {describe(name)}.")
    if name.startswith("_"):
        raise AttributeError(
            f"{name!r} is private to the environment; only public names are forwarded."
        )
