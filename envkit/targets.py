"""What a string stands for that says how to make an environment.

- `"my_package.envs:make_env"`: an attribute of a module;
- `"gymnasium:CartPole-v1"`: a scheme, and what its library calls the environment.

A package of anybody's adds a scheme with an entry point of the group `envkit.schemes`.
In its `pyproject.toml`, for targets such as `"maze:small/7"`:

```
[project.entry-points."envkit.schemes"]
maze = "maze_envs.loading:load"
```

`load("small/7", **kwargs)` is then asked for the environment. Entry points are looked
up when there is no other way to read a target, and by each process for itself.

A second one, of the group `envkit.names` and with the name of the scheme, is for
`envkit list`. It is called without arguments, and returns what may stand after the
colon:

```
[project.entry-points."envkit.names"]
maze = "maze_envs.loading:names"
```
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from envkit.errors import ConstructorError, MissingDependencyError
from envkit.specs.validation import describe
from envkit.wording import listed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "load",
    "main_script_names",
    "makes_batches",
    "missing_for",
    "module_named",
    "names_in",
    "schemes",
    "suggestion",
]

_GROUP, _NAMES = "envkit.schemes", "envkit.names"


class _Scheme(NamedTuple):
    """A library's environments: who loads them, and what has to be installed.

    With the argument `batched_by` the library steps `num_envs` rows by itself. The
    function `lister` of the loader's module returns what may stand after the colon.
    Without `beside` there are no environments either, as the loader explains.
    """

    loader: str
    package: str
    extra: str
    batched_by: str = ""
    lister: str = "names"
    beside: str = ""


# Strings, because adapters stand on a higher floor than this module.
_SCHEMES = {
    "ale": _Scheme(
        "envkit.adapters.suite_ale:load", "ale_py", "atari", "vectorization"
    ),
    "bsuite": _Scheme("envkit.adapters.suite_bsuite:load_by_id", "bsuite", "bsuite"),
    "dm_control": _Scheme(
        "envkit.adapters.suite_dm_control:load_by_path", "dm_control", "dm_control"
    ),
    "envpool": _Scheme(
        "envkit.adapters.suite_envpool:load", "envpool", "envpool", "num_envs"
    ),
    "gym": _Scheme("envkit.adapters.suite_gym:load", "gym", "gym"),
    "gymnasium": _Scheme(
        "envkit.adapters.suite_gymnasium:load", "gymnasium", "gymnasium"
    ),
    "gymnax": _Scheme("envkit.adapters.suite_gymnax:load", "gymnax", "gymnax"),
    "minigrid": _Scheme("envkit.adapters.suite_minigrid:load", "minigrid", "minigrid"),
    "pettingzoo": _Scheme(
        "envkit.adapters.suite_pettingzoo:load", "pettingzoo", "pettingzoo"
    ),
    "ple": _Scheme("envkit.adapters.suite_ple:load", "pygame", "ple", beside="ple"),
    "pysc2": _Scheme("envkit.adapters.pysc2:load", "pysc2", "pysc2"),
    "vizdoom": _Scheme(
        "envkit.adapters.suite_vizdoom:load", "vizdoom", "vizdoom", lister="scenarios"
    ),
}


def load(name: str, target: str) -> Callable[..., Any]:
    """Returns what to call for the environment that a target stands for.

    Args:
        name: What messages call the target.
        target: `"module:attribute"` or `"scheme:id"`.

    Example:
        >>> load("Counting", "envkit.testing:CountingEnv").__name__
        'CountingEnv'

    Raises:
        ConstructorError: There is no such module, attribute or scheme.
        MissingDependencyError: The library of the scheme is not installed.
    """
    prefix, _, rest = target.partition(":")
    if prefix in _SCHEMES:
        return _from_library(name, target, _SCHEMES[prefix], rest)
    # Modules come before the schemes of other packages, so that installing one of them
    # cannot change what a target means that worked before.
    if not _can_be_attribute(rest):
        return _from_package(prefix, rest) or _imported(name, prefix, rest)
    try:
        return _imported(name, prefix, rest)
    except ConstructorError:
        found = _from_package(prefix, rest)
        if found is None:
            raise
        return found


def schemes() -> list[str]:
    """Returns what may stand before the colon, other packages' schemes included.

    Example:
        >>> {"ale", "gymnasium"} <= set(schemes())
        True
    """
    return sorted({*_SCHEMES, *(entry.name for entry in _entry_points(_GROUP))})


def names_in(scheme: str) -> list[str] | None:
    """Returns what may stand after the colon, as far as the scheme's library says.

    Returns:
        The names; `None` of a package that has no entry point to list them.

    Example:
        >>> "CartPole-v1" in names_in("gymnasium")  # doctest: +SKIP
        True

    Raises:
        ConstructorError: There is no such scheme, or its package is broken.
        MissingDependencyError: The library is not installed.
    """
    if scheme in _SCHEMES:
        found = _SCHEMES[scheme]
        module, _, _ = found.loader.partition(":")
        return list(_imported(scheme, module, found.lister)())
    # For what is said of a scheme that several offer, or that cannot be loaded.
    if _from_package(scheme, "") is None:
        raise ConstructorError(
            f"There is no scheme {scheme!r}.{suggestion(scheme, schemes())} Schemes "
            f"are {', '.join(schemes())}."
        )
    lister = _offered(scheme, _NAMES)
    return None if lister is None else list(_loaded(lister)())


def missing_for(scheme: str) -> MissingDependencyError | None:
    """Returns the error of a scheme whose library is not installed; imports no library.

    Example:
        >>> missing_for("gymnasium") is None  # it is installed
        True
    """
    found = _SCHEMES.get(scheme)
    if found is None:
        return None
    if not _is_installed(found.package):
        return MissingDependencyError.needed_by(
            f"The scheme {scheme!r}", package=found.package, extra=found.extra
        )
    if found.beside and not _is_installed(found.beside):
        try:
            names_in(scheme)
        except MissingDependencyError as error:
            return error
    return None


def makes_batches(target: Any, arguments: Collection[str]) -> bool:
    """Says whether a target's library makes `num_envs` rows itself, without workers.

    Args:
        target: What `load` takes, or anything else.
        arguments: The names of what its environment is made with.

    Example:
        >>> makes_batches("envpool:CartPole-v1", ["num_envs"])
        True
        >>> makes_batches("gymnasium:CartPole-v1", ["num_envs"])
        False
    """
    prefix = target.partition(":")[0] if isinstance(target, str) else ""
    return prefix in _SCHEMES and _SCHEMES[prefix].batched_by in arguments


def module_named(name: str) -> Any:
    """Returns a module: the main script, if the name is its, else an imported one.

    Importing the main script by its name would run it a second time.

    Example:
        >>> module_named("envkit.testing").__name__
        'envkit.testing'
    """
    if name in main_script_names():
        return sys.modules["__main__"]
    return importlib.import_module(name)


def main_script_names() -> frozenset[str]:
    """Returns the names by which an import would find the program's main script.

    Those of `train.py` are "train", and "my_package.train" if that is where it lies.
    A notebook, and a program that comes through a pipe, have none.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m my_package.train
        return frozenset([spec.name]) - {"__main__"}
    file = getattr(main, "__file__", None)
    if not isinstance(file, str):
        return frozenset()
    return _names_of_script(file, tuple(map(str, sys.path)))


@functools.cache
def _names_of_script(file: str, search_path: tuple[str, ...]) -> frozenset[str]:
    """Returns the names by which a search path leads to a script."""
    from importlib.machinery import PathFinder

    file = os.path.realpath(file)
    names = set()
    for folder in map(os.path.realpath, search_path):
        if not file.startswith(os.path.join(folder, "")) or not file.endswith(".py"):
            continue
        parts = os.path.relpath(file, folder).removesuffix(".py").split(os.sep)
        if not all(part.isidentifier() for part in parts):
            continue
        # A module of the same name may come before it.
        first = PathFinder.find_spec(parts[0], list(search_path))
        if first is None:
            continue
        if len(parts) == 1:
            is_first = os.path.realpath(first.origin or "") == file
        else:
            places = map(os.path.realpath, first.submodule_search_locations or ())
            is_first = os.path.join(folder, parts[0]) in places
        if is_first:
            names.add(".".join(parts))
    return frozenset(names)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns a sentence with the names that look most like a wrong one, or nothing.

    Example:
        >>> suggestion("Cartpole", ["CartPole", "Catch"])
        " Did you mean 'CartPole'?"
    """
    import difflib

    spellings: dict[str, list[str]] = {}
    for other in known:
        spellings.setdefault(other.lower(), []).append(other)
    near = difflib.get_close_matches(name.lower(), list(spellings), n=3, cutoff=0.6)
    names = [repr(other) for lowered in near for other in spellings[lowered]]
    return f" Did you mean {' or '.join(names)}?" if names else ""


def _can_be_attribute(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _is_installed(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None


def _from_library(
    name: str, target: str, scheme: _Scheme, rest: str
) -> Callable[..., Any]:
    if not _is_installed(scheme.package):
        raise MissingDependencyError.needed_by(
            f"The environment {target!r}", package=scheme.package, extra=scheme.extra
        )
    return functools.partial(_imported(name, *scheme.loader.split(":")), rest)


def _from_package(prefix: str, rest: str) -> Callable[..., Any] | None:
    """Returns what the package calls whose scheme it is; `None` if there is none."""
    entry = _offered(prefix, _GROUP)
    return None if entry is None else functools.partial(_loaded(entry), rest)


def _offered(scheme: str, group: str) -> EntryPoint | None:
    """Returns the entry point of a scheme, of which there must not be two."""
    offers = {
        entry.value: entry for entry in _entry_points(group) if entry.name == scheme
    }
    if len(offers) > 1:
        who = [f"{_package_of(entry)} ({entry.value})" for entry in offers.values()]
        raise ConstructorError(
            f"The scheme {scheme!r} is offered by {len(who)} packages: "
            f"{listed(sorted(who))}. Uninstall all but one of them."
        )
    return next(iter(offers.values()), None)


def _loaded(entry: EntryPoint) -> Callable[..., Any]:
    package = _package_of(entry)
    what = (
        f"The scheme {entry.name!r} is offered by {package}, whose entry point "
        f"{entry.value!r}"
    )
    remedy = f"Reinstall or update {package.partition(' ')[0]}, or tell its authors."
    try:
        loader = entry.load()
    except Exception as error:  # Importing it runs code that may do anything.
        raise ConstructorError(
            f"{what} cannot be loaded: {type(error).__name__}: {error}. {remedy}"
        ) from error
    if not callable(loader):
        raise ConstructorError(
            f"{what} is {describe(loader)}, which cannot be called to make an "
            f"environment. {remedy}"
        )
    return loader  # type: ignore[no-any-return]  # callable() says so


def _entry_points(group: str) -> list[EntryPoint]:
    import importlib.metadata

    return list(importlib.metadata.entry_points(group=group))


def _package_of(entry: EntryPoint) -> str:
    package = entry.dist
    return "a package" if package is None else f"{package.name} {package.version}"


def _names_a_file(name: str, file: str, attribute: str) -> ConstructorError:
    module = os.path.basename(file).removesuffix(".py")
    return ConstructorError(
        f"{name!r} names a file, and a target names a module: '{module}:{attribute}', "
        "where the file's folder is the current one or on sys.path."
    )


def _imported(name: str, module_name: str, attribute: str) -> Callable[..., Any]:
    if module_name.startswith("."):  # "./game.py": others are refused before.
        raise _names_a_file(name, module_name, attribute)
    try:
        found = module_named(module_name)
    except ModuleNotFoundError as error:
        # Only if it is the named module that is missing: one that it imports itself
        # is the author's own business, and its error says more.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        if module_name.endswith(".py"):
            raise _names_a_file(name, module_name, attribute) from error
        known = schemes()
        raise ConstructorError(
            f"{name!r} names the module {module_name!r}, and there is no module "
            f"{error.name!r} to import.{suggestion(module_name, known)} Schemes are "
            f"{', '.join(known)}; otherwise check the spelling, and that "
            "the package is installed."
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            if found is sys.modules["__main__"]:
                raise ConstructorError(
                    f"{name!r}: {module_name} is the script that is running, and it "
                    f"has not defined {part!r} yet."
                    f"{suggestion(part, _callables(found))} Define it above."
                )
            raise ConstructorError(
                f"{name!r}: {getattr(found, '__name__', module_name)} has no attribute "
                f"{part!r}.{suggestion(part, _callables(found))}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise ConstructorError(
            f"{name!r} is {describe(found)}, which cannot be called to make an "
            "environment."
        )
    return found  # type: ignore[no-any-return]  # callable() says so


def _callables(owner: Any) -> list[str]:
    return [name for name in dir(owner) if callable(getattr(owner, name, None))]
