"""Checks what a pool is opened with: constructors, a backend, places for workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from envkit import registry
from envkit._internal import plugins
from envkit._internal.entry_points import loaded
from envkit._internal.objects import is_environment, is_of_library, shown_recipe
from envkit._internal.text import a_or_an, listed
from envkit.errors import EnvkitError
from envkit.specs.special import Strings
from envkit.specs.validation import describe
from envkit.types import EnvConstructor

if TYPE_CHECKING:
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.observers import PoolObserver
    from envkit.parallel.options import PoolOptions
    from envkit.parallel.pool import Pool

__all__ = [
    "as_backend",
    "as_constructors",
    "observers_of",
    "placed",
    "takes_names",
    "tell_slow_leaves",
]

_LOGGER = logging.getLogger(__name__)

# The backends of this machine, by name, so that only the one in use is imported. Others
# are entry points of the group `envkit.backends`.
BACKENDS = {
    "inline": "envkit.parallel.backends.inline:InlineBackend",
    "thread": "envkit.parallel.backends.thread:ThreadBackend",
    "process": "envkit.parallel.backends.process:ProcessBackend",
}


def takes_names(backend: Any) -> bool:
    """Returns True if a backend takes names of environments instead of constructors."""
    if isinstance(backend, str):
        backend = None if backend in BACKENDS else _found(backend)
    return getattr(backend, "takes_names", False) is True


def as_constructors(
    given: Any, pool: str, *, elsewhere: bool = False
) -> list[EnvConstructor]:
    """Returns a constructor for each environment.

    Args:
        given: Constructors and names.
        pool: The class of the pool, for messages.
        elsewhere: Whether names refer to environments that servers know.
    """
    if isinstance(given, str) or callable(given) or _is_made(given):
        kind, target = describe(given), "my_game.envs:make"
        if isinstance(given, type):
            kind = f"the class {given.__name__}"
        elif isinstance(given, str):
            target = given
        elif _is_made(given):
            _, target = shown_recipe(given)
        raise TypeError(
            f"env_constructors is {kind}; {pool} needs a list with one constructor "
            "for each environment:\n\n"
            f'  {pool}(["{target}"] * 8)\n'
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
    if _is_made(entry):
        kind, target = shown_recipe(entry)
        recipe = f"  {pool}([functools.partial({kind}, ...)])    "
        by_name = f'  {pool}(["{target}"])'.ljust(len(recipe))
        raise TypeError(
            f"env_constructors[{index}] is {a_or_an(kind)} object; {pool} needs "
            "something to call that makes one.\n\n"
            "Each environment is built inside its own worker, so pass the recipe:\n\n"
            f"  {pool}([{kind}(...)])                       # the finished dish\n"
            f"{recipe}# the recipe\n"
            f"{by_name}# the recipe, by name"
        )
    if not callable(entry):
        raise TypeError(
            f"env_constructors[{index}] is {describe(entry)}, which is non-callable; "
            f"{pool} needs something to call that makes an environment, or a name."
        )
    return entry  # type: ignore[no-any-return]  # callable() says so


def _is_made(thing: Any) -> bool:
    """Returns True for an environment, of envkit or of another library."""
    return is_environment(thing) or (not callable(thing) and is_of_library(thing))


def placed(backend: Any, options: PoolOptions, envs: int) -> int:
    """Returns the number of workers, and checks that the backend has places for them.

    A backend whose workers run on a cluster connects to it first, which may take long.
    """
    connect = getattr(backend, "connect", None)
    if connect is not None:
        connect(options.start_timeout)
    if options.num_workers is None:
        return min(int(backend.usual_workers()), envs)
    count, places = min(options.num_workers, envs), backend.places()
    if places is not None and count > places:
        raise ValueError(
            f"num_workers must be at most {places}, as many as the backend has "
            f"places for, got {count}."
        )
    return count


def as_backend(given: Any, options: PoolOptions) -> Backend:
    """Returns the backend of a name, or the given backend itself."""
    if not isinstance(given, str):
        if not hasattr(given, "wait_events"):
            names, _ = _names()
            raise TypeError(
                f"backend must be a name ({names}) or a Backend, got {describe(given)}."
            )
        return given  # type: ignore[no-any-return] # it was checked for the methods
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
        return make(options.start_method, options.worker_env)  # type: ignore[no-any-return]
    return make(given) if "://" in given else make()  # type: ignore[no-any-return]


def _found(given: str) -> Any:
    """Returns the factory for a backend's name or address; `None` if there is none."""
    if given in BACKENDS:
        return loaded(BACKENDS[given])
    name, is_address, _ = given.partition("://")
    plugin = plugins.BACKENDS.find(name)
    make = None if plugin is None else plugin.load()
    return make if bool(is_address) == bool(_address_of(make)) else None


def _address_of(make: Any) -> str:
    """Returns an example of a backend's addresses, or ""."""
    return getattr(make, "address", "")


def _names() -> tuple[str, str]:
    """Returns the names of all backends, and a clause about addresses."""
    names, addresses = list(BACKENDS), set()
    for name in plugins.BACKENDS.names():
        try:
            address = _address_of(_found(name) or _found(f"{name}://"))
        except EnvkitError:  # It is broken, but the message is about something else.
            address = ""
        if address:
            addresses.add(repr(address))
        else:
            names.append(name)
    end = f", and {' or '.join(sorted(addresses))} is a server's" if addresses else ""
    return ", ".join(map(repr, names)), end


def observers_of(
    kind: str, backend: Backend, options: PoolOptions, pool: Pool
) -> list[PoolObserver]:
    """Returns the observers that a pool's options require."""
    observers: list[PoolObserver] = []
    policy = options.policy
    # An inline worker is the caller's own thread, which cannot die.
    if policy is not None and policy.recover is not None and backend.name != "inline":
        from envkit.parallel.durability.recovery import Recovery

        observers.append(
            Recovery(
                pool,
                policy,
                keeps_answers=backend.keeps_answers,
                keeps_states=backend.keeps_states,
            )
        )
    if options.max_worker_memory is not None:
        from envkit.parallel.durability.memory_limit import MemoryLimit

        observers.append(MemoryLimit(pool, backend, options.max_worker_memory))
    if backend.can_kill:  # Only processes can be killed.
        from envkit.parallel.durability.published import Publisher

        observers.append(Publisher(pool, backend, kind))
    return observers


def tell_slow_leaves(pool: Pool) -> None:
    """Warns once about leaves that are pickled in every step, except texts."""
    for what, structure, leaves in (
        ("action", pool.layout.action, pool.layout.private_actions),
        ("time step", pool.layout.time_step, pool.layout.private_steps),
    ):
        specs = structure.leaves
        kinds = {at: getattr(specs[at], "kind", None) for at in leaves}
        slow = [at for at in leaves if not isinstance(kinds[at], Strings)]
        if slow:
            places = [structure.paths[leaf] for leaf in slow]
            _LOGGER.warning(
                "the %s%s cannot lie in shared memory, for its dtype is %s: it is "
                "pickled at every step, which is slow",
                what,
                f" at {listed(places)}" if any(places) else "",
                specs[slow[0]].dtype,
            )
