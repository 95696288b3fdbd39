"""Where an environment comes from: its id and version, arguments, seed, libraries.

A `Constructor` leaves an `Origin` on what it has built, and `seed()` notes its seed.
All the rest is found out when somebody asks.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "MadeBy",
    "Origin",
    "VersionWarning",
    "check_made_by",
    "envkit_version",
    "made_by",
    "name_of",
    "origin_of",
    "package_version",
    "packages_behind",
    "plain_arguments",
    "plain_recipe",
    "provenance_of",
    "recipe_of",
    "recipe_of_rows",
    "version_of",
    "without_version",
]

_VERSION = re.compile(r"(?<=.)-v(0|[1-9][0-9]*)\Z")
# Of arrays that are larger a provenance says only what they look like.
_LARGEST = 4096


class VersionWarning(UserWarning):
    """A state or a recording was made by another version of envkit."""


class Origin(NamedTuple):
    """What an environment was made of.

    Attributes:
        id: What `make` was given.
        arguments: The keyword arguments, as plain data.
        inner: Where that came from what was given; `None` if it did so by itself.
    """

    id: str
    arguments: dict[str, Any] | None
    inner: Origin | None = None


class MadeBy(NamedTuple):
    """Which versions a state was saved by.

    Attributes:
        id: The environment's id, if that has a version.
        envkit: The version of envkit.
    """

    id: str | None
    envkit: str


def envkit_version() -> str:
    """Returns the version of this envkit."""
    return str(sys.modules["envkit"].__version__)


def version_of(identifier: str) -> int | None:
    """Returns the version that an id ends in.

    Example:
        >>> version_of("CartPole-v1"), version_of("my_package.envs:make")
        (1, None)
    """
    found = _VERSION.search(identifier)
    return int(found[1]) if found else None


def without_version(identifier: str) -> str:
    """Returns an id without its version."""
    return _VERSION.sub("", identifier)


def name_of(thing: Any) -> str:
    """Returns `"module:name"` of a class or function.

    Example:
        >>> name_of(MadeBy)
        'envkit.provenance:MadeBy'
    """
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}:{kind.__qualname__}"


def plain_arguments(arguments: Any, place: str = "arguments") -> Any:
    """Returns arguments as plain data; `{"$unknown": ...}` for what is none."""
    # Only what is made by name comes here.
    from envkit.plain_data import to_plain

    return to_plain(_without_large(arguments), place, _unknown)


class _Placeholder:
    """Stands for an array that is too large to keep."""

    def __init__(self, text: str) -> None:
        self.text = text


def _without_large(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.nbytes > _LARGEST:
        return _Placeholder(f"an array of shape {value.shape}, dtype {value.dtype}")
    if type(value) in (list, tuple):
        return type(value)(map(_without_large, value))
    if type(value) is dict:
        return {key: _without_large(item) for key, item in value.items()}
    return value


def _unknown(value: Any, _: str) -> Any:
    if isinstance(value, _Placeholder):
        return {"$unknown": value.text}
    as_recipe = getattr(type(value), "plain_recipe", None)
    if as_recipe is not None:
        return {"$constructor": as_recipe(value)}
    if isinstance(value, functools.partial):
        return {
            "$partial": [
                plain_arguments(part)
                for part in (value.func, list(value.args), dict(value.keywords))
            ]
        }
    if callable(value) and hasattr(value, "__qualname__"):
        name = name_of(value)
        return {"$unknown" if "<" in name else "$name": name}
    return {"$unknown": f"a {type(value).__qualname__} object"}


def origin_of(env: Any) -> Origin | None:
    """Returns what a `Constructor` has left on an environment."""
    origin = getattr(env, "__dict__", {}).get("_made_from")
    return origin if isinstance(origin, Origin) else None


def recipe_of(env: Any) -> dict[str, Any]:
    """Returns what an environment is made of: what it takes to make another one.

    An environment of another kind is known by its class alone.
    """
    own = getattr(type(env), "_made_of", None)
    if own is not None and hasattr(type(env), "provenance"):
        return own(env)  # type: ignore[no-any-return]  # it is one
    return plain_recipe(env)


def plain_recipe(env: Any) -> dict[str, Any]:
    """Returns the recipe of an environment that is made of no other."""
    origin = origin_of(env)
    kind = name_of(type(env))
    seed = getattr(env, "__dict__", {}).get("_noted_seed")
    return {
        "id": kind if origin is None else origin.id,
        "version": None if origin is None else version_of(origin.id),
        "class": kind,
        "arguments": None if origin is None else origin.arguments,
        "seed": plain_arguments(seed),
        "wrappers": [],
    }


def recipe_of_rows(env: Any, recipes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the recipe of a batch that is made of environments."""
    recipe = plain_recipe(env)
    if recipe["seed"] is not None:  # That of the batch is where theirs come from.
        recipes = [{**one, "seed": None} for one in recipes]
    runs = [(one, len(list(same))) for one, same in itertools.groupby(recipes)]
    return {**recipe, "environments": [{"count": n, **one} for one, n in runs]}


def provenance_of(env: Any) -> dict[str, Any]:
    """Returns all that is known of where an environment comes from, as plain data."""
    import platform

    ask = getattr(env, "_packages_behind", None)
    packages = {"numpy", *(ask() if callable(ask) else packages_behind(env))}
    versions = {name: package_version(name) for name in sorted(packages)}
    return {
        **recipe_of(env),
        "envkit": envkit_version(),
        "packages": {name: found for name, found in versions.items() if found},
        "python": platform.python_version(),
        "machine": _machine(),
    }


def packages_behind(env: Any) -> set[str]:
    """Names the packages that an environment's class and its parts are from."""
    parts = list(getattr(env, "__dict__", {}).values())
    kinds = {type(env), *map(type, parts)}
    for part in parts:
        # Gymnasium's wrappers, for one, are of another package than the game in them.
        if _package(type(part)) and not hasattr(type(part), "provenance"):
            kinds.add(type(getattr(part, "unwrapped", part)))
    return {package for kind in kinds if (package := _package(kind))}


def _package(kind: type) -> str:
    """Names the package of a class, if that is anybody else's; else ""."""
    known = {"envkit", "numpy", "__main__", "__mp_main__"} | sys.stdlib_module_names
    # One that is made here, or as it is needed, is of the package of its base.
    packages = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((package for package in packages if package not in known), "")


def package_version(name: str) -> str | None:
    """Returns the version of a package that is installed; `None` if that is unknown."""
    import importlib.metadata

    try:
        return importlib.metadata.version(name.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        found = getattr(sys.modules.get(name), "__version__", None)
        return found if isinstance(found, str) else None


@functools.cache
def _machine_facts() -> tuple[tuple[str, Any], ...]:
    import os
    import platform

    return (
        ("system", platform.system()),
        ("release", platform.release()),
        ("architecture", platform.machine()),
        ("processor", _processor()),
        ("cpus", os.cpu_count()),
    )


def _machine() -> dict[str, Any]:
    return dict(_machine_facts())


def _processor() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as facts:
            for line in facts:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    except OSError:  # That is how Linux tells.
        pass
    return None


def made_by(env: Any) -> MadeBy:
    """Returns the versions that are to stand in a state of an environment."""
    origin = origin_of(env)
    while origin is not None and version_of(origin.id) is None:
        origin = origin.inner
    return MadeBy(None if origin is None else origin.id, envkit_version())


def check_made_by(env: Any, saved: MadeBy | None) -> None:
    """Refuses a state of another version of the environment.

    Of one that another version of envkit has saved it warns.
    """
    if saved is None:
        return
    ours = made_by(env).id
    if (
        ours is not None
        and saved.id is not None
        and ours != saved.id
        and without_version(ours) == without_version(saved.id)
    ):
        raise ValueError(
            f"{type(env).__name__}.set_state() was given a state of {saved.id}, and "
            f"this environment is {ours}. What an environment does is fixed in each "
            f"version and differs between them: make({saved.id!r}) takes this state."
        )
    if saved.envkit != envkit_version():
        warnings.warn(
            f"{type(env).__name__}.set_state() was given a state that envkit "
            f"{saved.envkit} has saved, and this is envkit {envkit_version()}. What "
            "follows may differ from what would have followed there.",
            VersionWarning,
            stacklevel=3,
        )
