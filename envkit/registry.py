"""Makes environments by name, keeps recipes, and registers names.

A target is one of

- `"CartPole-v1"`: a name with its version, built in or registered with `register`; each
  version always behaves the same. Without a version, as in `"CartPole"`, it is the
  newest;
- `"my_package.envs:make_env"`: an attribute of a module;
- `"gymnasium:CartPole-v1"`: a scheme, and the environment's name in that library;
  `schemes()` lists envkit's schemes and those of installed packages;
- any callable that returns an environment.

A constructor made from a string is pickled as that string, so a worker needs only the
import path. Nothing is imported before it is called, not even NumPy: `envkit list`
reads the schemes without it.

A package adds a scheme with an entry point of the group `envkit.schemes`. In its
`pyproject.toml`, for targets such as `"maze:small/7"`:

```
[project.entry-points."envkit.schemes"]
maze = "maze_envs.loading:load"
```

`load("small/7", **kwargs)` must return the environment. The entry point may also name a
`Scheme`, which adds facts: what must be installed, what may follow the colon, and so
on. Each process looks entry points up itself, and only if a target cannot be read in
another way.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import os
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from envkit._internal.entry_points import own
from envkit._internal.missing_names import refuse_unknown_arguments
from envkit._internal.other_registries import enter_names
from envkit._internal.removed import refuse_removed_options
from envkit._internal.text import (
    a_or_an,
    suggestion,
    version_of,
    without_version,
)
from envkit.errors import ConstructorError, MissingDependencyError

if TYPE_CHECKING:
    from envkit._internal.schemes import Scheme
    from envkit.provenance import Origin

__all__ = [
    "Constructor",
    "address_in",
    "constructor",
    "constructor_elsewhere",
    "load",
    "main_script_names",
    "make",
    "missing_for",
    "module_named",
    "names_in",
    "recipe_of_constructor",
    "register",
    "registered",
    "schemes",
    "without_pool_options",
]


# A string, because the engine is a layer above this module.
_POOL = "envkit.parallel:ParallelPyEnvironment"
_SCHEMES = "envkit.schemes"
Register = TypeVar("Register", bound=Callable[..., None])

_registry: dict[str, str | Callable[..., Any]] = {**own("envkit.environments")}


class Constructor:
    """Holds a recipe for an environment: a target and keyword arguments.

    Example:
        >>> recipe = constructor("CartPole", batch_size=2)
        >>> recipe
        constructor('CartPole', batch_size=2)
        >>> recipe().batch_size
        2
    """

    __slots__ = ("_build", "_id", "_kwargs", "_name")

    def __init__(
        self,
        name: str,
        build: str | Callable[..., Any],
        kwargs: dict[str, Any],
        identifier: str | None = None,
    ) -> None:
        """Stores the recipe; use `constructor` to make one."""
        self._name = name
        self._build = build
        self._kwargs = kwargs
        # The name with its version.
        self._id = name if identifier is None else identifier

    @property
    def name(self) -> str:
        """The target, as the caller gave it."""
        return self._name

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the environment."""
        return dict(self._kwargs)

    @property
    def build(self) -> str | Callable[..., Any]:
        """The callable, or where it is, such as `"my_package.envs:make"`."""
        return self._build

    @property
    def makes_batch(self) -> bool:
        """True if the library itself makes the rows that the arguments request.

        Example:
            >>> constructor("envpool:CartPole-v1", num_envs=2).makes_batch
            True
            >>> constructor("gymnasium:CartPole-v1", num_envs=2).makes_batch
            False
        """
        scheme = _scheme_of(self._build)
        return scheme is not None and scheme.batched_by in self._kwargs

    @property
    def is_named(self) -> bool:
        """Whether the target is a name rather than a callable."""
        return (
            isinstance(self._build, str)
            or self._build is _elsewhere
            or _newest(self._name) is not None
        )

    def __call__(self, **kwargs: Any) -> Any:
        """Builds an environment; arguments given here override the recipe's."""
        from envkit._internal.making import built
        from envkit._internal.objects import is_environment
        from envkit.provenance import origin_of
        from envkit.py_environment import Specified

        build = self._build
        if isinstance(build, str):
            build = load(self._name, build)
        kwargs = {**self._kwargs, **kwargs}
        env = built(build, kwargs)
        if not is_environment(env):
            raise ConstructorError.no_environment(repr(self), env)
        if isinstance(env, Specified):
            env._envkit.own(env).origin = self._origin(kwargs, origin_of(env))
        return env

    def _origin(self, kwargs: dict[str, Any], inner: Origin | None = None) -> Origin:
        from envkit.provenance import Origin, plain_arguments

        build = self._build
        if isinstance(build, functools.partial):
            return _origin_of_partial(build, kwargs, inner)
        return Origin(self._id, plain_arguments(kwargs), inner)

    def plain_recipe(self) -> dict[str, Any]:
        """Returns the recipe that its environments report."""
        origin = self._origin(self._kwargs)
        return {
            "id": origin.id,
            "version": version_of(origin.id),
            "class": None,
            "arguments": origin.arguments,
            "seed": None,
            "wrappers": [],
        }

    def __repr__(self) -> str:
        kwargs = "".join(f", {name}={value!r}" for name, value in self._kwargs.items())
        return f"constructor({self._name!r}{kwargs})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Constructor)
            and (self._name, self._build) == (other._name, other._build)
            and _equal(self._kwargs, other._kwargs)
        )

    def __hash__(self) -> int:
        return hash(self._name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Registered names stay in this process; the recipe carries their targets.
        return Constructor, (self._name, self._build, self._kwargs, self._id)


def constructor(target: str | Callable[..., Any], /, **kwargs: Any) -> Constructor:
    """Returns a callable that makes the environment.

    Args:
        target: A name, `"module:attribute"`, `"scheme:id"`, or a callable.
        **kwargs: Arguments for the environment.

    Raises:
        ValueError: No environment has this name; the message suggests the nearest.

    Example:
        >>> make_env = constructor("GridWorld", size=5)
        >>> make_env().observation_spec().shape
        (5, 5, 3)
    """
    if isinstance(target, Constructor):
        merged = {**target._kwargs, **kwargs}
        return Constructor(target._name, target._build, merged, target._id)
    if not isinstance(target, str):
        return Constructor(_name_of(target), target, kwargs)
    if ":" in target:
        module, _, attribute = target.partition(":")
        if not module or not attribute:
            raise ValueError(
                f"{target!r} is not a target: write 'module:attribute' or "
                "'scheme:environment'."
            )
        if module.startswith(".") and not module.endswith(".py"):
            raise ValueError(
                f"{target!r} names the relative module {module!r}; write its whole "
                "name, from the package on."
            )
        return Constructor(target, target, kwargs)
    identifier = _newest(target)
    if identifier is None:
        raise ValueError(_unknown_name(target))
    return Constructor(target, _registry[identifier], kwargs, identifier)


def constructor_elsewhere(target: str, /, **kwargs: Any) -> Constructor:
    """Returns the recipe of an environment for a server, which knows the name.

    Example:
        >>> constructor_elsewhere("Pong")
        constructor('Pong')
    """
    return Constructor(target, _elsewhere, kwargs)


def _elsewhere(**_: Any) -> Any:
    raise ConstructorError("This environment is made by a server, and nowhere else.")


def _newest(name: str) -> str | None:
    """Returns the registered name, with the newest version if it has none."""
    if name in _registry:
        return name
    versions = _versions_of(name)
    return versions[-1] if versions else None


def _versions_of(name: str) -> list[str]:
    """Returns the registered versions of a name, the newest last."""
    found = [other for other in _registry if without_version(other) == name != other]
    return sorted(found, key=lambda other: (version_of(other), other))


def _unknown_name(name: str) -> str:
    bare = without_version(name)
    versions = _versions_of(bare)
    if versions:
        there_are = "there is" if len(versions) == 1 else "there are"
        return (
            f"There is no environment named {name!r}; {there_are} "
            f"{', '.join(map(repr, versions))}."
        )
    if name.endswith(".py") or (os.sep in name and os.path.exists(name)):
        return _names_a_file(name, name, "NAME")
    if name in schemes():
        address = address_in(name)
        remedy = f"'{name}:NAME', with a name that `envkit list {name}:` shows"
        if address:
            remedy = f"where its server is, such as '{name}:{address}'"
        return f"{name!r} alone is not an environment: write {remedy}."
    library, _, rest = name.partition("/")
    if rest and library in schemes():
        return (
            f"There is no environment named {name!r}. A library's name follows its "
            f"scheme and a colon: '{library}:{rest}'."
        )
    if library == "envkit" and _newest(rest):  # its id inside Gymnasium
        return f"There is no environment named {name!r}. Did you mean {rest!r}?"
    known = sorted({without_version(other) for other in _registry})
    text = (
        f"There is no environment named {name!r}.{suggestion(bare, known)} "
        f"Known names are {', '.join(known)}; an environment of your own is "
        "'module:attribute'."
    )
    if bare == name and "/" not in name:
        return text
    # Libraries are not searched here, because that imports them.
    example = "Acrobot-v1" if bare == name else name
    return (
        f"{text} A library's name follows its scheme, as in 'gymnasium:{example}'; "
        f"`envkit list {bare.rpartition('/')[2]}` searches all libraries."
    )


def recipe_of_constructor(make_env: str | Callable[..., Any]) -> dict[str, Any]:
    """Returns the recipe of environments that a constructor makes.

    Example:
        >>> recipe_of_constructor(constructor("Catch", rows=5))["id"]
        'Catch-v1'
    """
    return constructor(make_env).plain_recipe()


def _origin_of_partial(
    build: functools.partial[Any], kwargs: dict[str, Any], inner: Origin | None
) -> Origin:
    """Returns a partial's origin, with arguments by name if the names are known."""
    import inspect

    from envkit.provenance import Origin, plain_arguments

    merged = {**build.keywords, **kwargs}
    function = build.func
    if isinstance(function, Constructor):
        return function._origin({**function._kwargs, **merged}, inner)
    if function is make and build.args:
        return constructor(*build.args)._origin(merged, inner)
    arguments = None
    with contextlib.suppress(TypeError, ValueError):
        bound = inspect.signature(function).bind_partial(*build.args)
        arguments = plain_arguments({**bound.arguments, **merged})
    return Origin(_name_of(function), arguments, inner)


def make(target: Any, /, *, num_envs: int | None = None, **kwargs: Any) -> Any:
    """Makes an environment, or a pool of `num_envs` in worker processes.

    Args:
        target: A name, `"module:attribute"`, `"scheme:id"`, a callable, or an
            environment of another library.
        num_envs: The number of environments in a `ParallelPyEnvironment`, even if it is
            1; `None` makes the environment itself. EnvPool makes that many rows itself,
            and so does ale-py with `vectorization="native"`. Each task of BrowserGym
            gets its own worker.
        **kwargs: Arguments for the environment. With `num_envs`, the arguments of
            `ParallelPyEnvironment`, such as `num_workers`, go to the pool. If the
            environment has an argument of the same name, put it into a recipe:
            `make(constructor(target, backend="x11"), num_envs=8, backend="thread")`.
            With `private_randomness=True`, each environment is in a
            `PrivateRandomness`. `seed=3` seeds the environment after it is made, unless
            its constructor takes a seed; in a pool, each row gets its own, as in
            `reset(seed=3)`.

    Raises:
        TypeError: The environment does not take an argument; the message says what to
            write.
        NotImplementedError: There is a seed, and the environment cannot be seeded.

    Example:
        >>> env = make("CartPole", batch_size=3)
        >>> env.reset().observation.shape
        (3, 4)
        >>> with make("CartPole", num_envs=4, backend="inline") as env:
        ...     env.reset().observation.shape
        (4, 4)
    """
    if num_envs is None:
        env = _made_of_object(target, kwargs)
        return constructor(target, **kwargs)() if env is None else env
    count = _as_count(num_envs)
    whole = constructor(target, **kwargs, num_envs=count)
    if whole.makes_batch:
        return whole()
    refuse_removed_options(kwargs)
    seed = kwargs.pop("seed", None)
    own, options = without_pool_options(kwargs)
    scheme = _scheme_of(whole._build)
    is_alone = scheme is not None and scheme.is_alone
    if is_alone and options.get("backend", "process") == "process":
        options.setdefault("num_workers", count)
    makers, is_taken = _rows(constructor(target, **own), seed, count)
    env = load("num_envs", _POOL)(makers, **options)
    if seed is not None:
        from envkit._internal.making import seed_or_close

        seed_or_close(env, seed, may_refuse=is_taken)
    return env


def _made_of_object(target: Any, kwargs: dict[str, Any]) -> Any:
    """Wraps a library's environment; returns `None` for any other target."""
    if isinstance(target, str) or callable(target):
        return None
    from envkit._internal.making import built
    from envkit._internal.objects import as_environment, is_of_library

    if not is_of_library(target):
        return None
    return built(functools.partial(as_environment, target, None), kwargs)


def _rows(make_env: Constructor, seed: Any, count: int) -> tuple[list[Any], bool]:
    """Returns a recipe for each row of a pool, and whether they take the seeds."""
    if seed is not None and _may_need_seed(make_env):
        from envkit._internal.making import parameters_of
        from envkit.seeding import seed_per_row

        build = make_env._build
        if isinstance(build, str):
            with contextlib.suppress(ConstructorError):
                build = load(make_env.name, build)
        if callable(build) and "seed" in parameters_of(build):
            seeds = seed_per_row(seed, count)
            return [constructor(make_env, seed=own) for own in seeds], True
    return [make_env] * count, False


def _may_need_seed(make_env: Constructor) -> bool:
    """Returns True if a user's own function or class makes the environment."""
    build = make_env._build
    is_registered = _newest(make_env.name) is not None
    return not is_registered and (not isinstance(build, str) or not _scheme_of(build))


def without_pool_options(
    kwargs: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits keyword arguments into the environment's and the pool's.

    Example:
        >>> without_pool_options({"size": 5, "num_workers": 2})
        ({'size': 5}, {'num_workers': 2})
    """
    from envkit._internal.making import pool_options

    known = pool_options()
    options = {name: kwargs[name] for name in known if name in kwargs}
    return {name: kwargs[name] for name in kwargs if name not in options}, options


def _as_count(num_envs: Any) -> int:
    try:
        count = operator.index(num_envs)
    except TypeError:
        from envkit.specs.validation import describe

        raise TypeError(
            f"num_envs must be an integer, or None for a single environment without "
            f"workers, got {describe(num_envs)}."
        ) from None
    if count < 1:
        raise ValueError(f"num_envs must be at least 1, got {count}.")
    return count


def _explains_arguments(call: Register) -> Register:
    @functools.wraps(call)
    def checked(*args: Any, **kwargs: Any) -> None:
        refuse_unknown_arguments(call, args, kwargs)
        call(*args, **kwargs)

    return cast(Register, checked)


@_explains_arguments
def register(name: str, target: str | Callable[..., Any]) -> None:
    """Registers a name for `make` and `constructor` in this process.

    Args:
        name: The name, best with a version: `"Maze-v2"`. Each version must always
            behave the same: when behaviour changes, register the next version; `"Maze"`
            then means the newest. An existing name is refused unless the target is the
            same.
        target: `"module:attribute"`, `"scheme:id"` or a callable.

    Example:
        >>> register("Countdown-v1", "envkit.testing:CountingEnv")
        >>> make("Countdown", steps_per_episode=3).reset().observation
        array(0, dtype=int32)
    """
    if not isinstance(name, str) or not name or ":" in name:
        raise ValueError(f"{name!r} is not a name: a string without a colon is.")
    if isinstance(target, str):
        if not all(target.partition(":")):
            raise ValueError(
                f"{target!r} is not a target to register: write 'module:attribute'."
            )
    else:
        _name_of(target)
    taken = _newest(name)
    bare = without_version(name)
    if taken is None and bare != name and bare in _registry:
        raise ValueError(
            f"The name {bare!r} is taken by {_registry[bare]!r}, without a version, so "
            f"that {name!r} would not be what {bare!r} is. Register that with a "
            "version too."
        )
    if taken is None:
        _registry[name] = target
        enter_names()
    elif _registry[taken] != target:
        raise ValueError(
            f"The name {name!r} is taken by {_registry[taken]!r}; choose another."
        )


def registered() -> list[str]:
    """Returns the names that `make` knows, with their versions, sorted.

    Example:
        >>> [name for name in registered() if name.startswith("CartPole")]
        ['CartPole-v1']
    """
    return sorted(_registry)


def _equal(first: Any, second: Any) -> bool:
    try:
        return bool(first == second)
    except ValueError:  # comparing arrays gives no single answer
        import pickle

        return pickle.dumps(first) == pickle.dumps(second)


def _name_of(target: Any) -> str:
    if not callable(target) or hasattr(target, "time_step_spec"):
        _refuse_objects(target)
    if isinstance(target, functools.partial):
        arguments = [repr(value) for value in target.args]
        arguments += [f"{name}={value!r}" for name, value in target.keywords.items()]
        return f"functools.partial({', '.join([_name_of(target.func), *arguments])})"
    module = getattr(target, "__module__", type(target).__module__)
    return f"{module}:{getattr(target, '__qualname__', type(target).__qualname__)}"


def _refuse_objects(target: Any) -> None:
    """Raises for a target that is an environment, or cannot be called."""
    from envkit._internal.objects import is_environment, is_of_library, shown_recipe

    if is_environment(target) or is_of_library(target):
        kind, named = shown_recipe(target)
        dish, recipe = f"{kind}(...)", f'"{named}"'
        width = max(len(dish), len(recipe)) + 4
        raise TypeError(
            f"The target is {a_or_an(kind)} object; a target is something to call that "
            "makes one, or a name.\n\n"
            f"  {dish.ljust(width)}# the finished dish\n"
            f"  {kind.ljust(width)}# the recipe\n"
            f"  {recipe.ljust(width)}# the recipe, by name"
        )
    if not callable(target):
        from envkit.specs.validation import describe

        several = (
            " ParallelPyEnvironment takes a list of constructors."
            if isinstance(target, list | tuple)
            else _maker_in(target)
        )
        raise TypeError(
            f"The target is {describe(target)}, which is non-callable. It must be a "
            f"string or something to call that makes an environment.{several}"
        )


def _maker_in(target: Any) -> str:
    """Returns a sentence about what makes an environment in an object, or "".

    An `EnvSpec` of Gymnasium has a method, a module of PettingZoo two functions.
    """
    kind = "function" if isinstance(target, types.ModuleType) else "method"
    for name in ("make", "env", "parallel_env"):
        if callable(getattr(target, name, None)):
            return f" Its {kind} `{name}` is."
    return ""


def load(name: str, target: str) -> Callable[..., Any]:
    """Returns the callable that a target stands for.

    Args:
        name: The target's name in messages.
        target: `"module:attribute"` or `"scheme:id"`.

    Example:
        >>> load("Counting", "envkit.testing:CountingEnv").__name__
        'CountingEnv'

    Raises:
        ConstructorError: There is no such module, attribute or scheme.
        MissingDependencyError: The library of the scheme is not installed.
    """
    # Servers load ahead and fork; what makes the environment next must be there, too.
    importlib.import_module("envkit._internal.making")
    prefix, _, rest = target.partition(":")
    if prefix in own(_SCHEMES):
        return _from_scheme(name, target) or _imported(name, prefix, rest)
    # Modules come before other packages' schemes, so that installing a package cannot
    # change the meaning of a target that worked before.
    if not _can_be_attribute(rest):
        return _from_scheme(name, target) or _imported(name, prefix, rest)
    try:
        return _imported(name, prefix, rest)
    except ConstructorError:
        found = _from_scheme(name, target)
        if found is None:
            raise
        return found


def schemes() -> list[str]:
    """Returns the names that may precede the colon, including other packages'.

    Example:
        >>> {"ale", "gymnasium"} <= set(schemes())
        True
    """
    from envkit._internal.plugins import SCHEMES

    return SCHEMES.names()


def names_in(scheme: str) -> list[str] | None:
    """Returns the names that may follow the colon, if the library lists them.

    Returns:
        The names; `None` if the package cannot list them, or if an address follows the
        colon.

    Example:
        >>> "CartPole-v1" in names_in("gymnasium")  # doctest: +SKIP
        True

    Raises:
        ConstructorError: There is no such scheme, or its package is broken.
        MissingDependencyError: The library is not installed.
    """
    from envkit._internal.schemes import names_of, scheme_named

    found = scheme_named(scheme)
    if found is None:
        raise ConstructorError(
            f"There is no scheme {scheme!r}.{suggestion(scheme, schemes())} Schemes "
            f"are {', '.join(schemes())}."
        )
    return None if found.address else names_of(scheme, found)


def address_in(scheme: str) -> str:
    """Returns an example of the address after the colon, or "" if a name follows.

    Example:
        >>> address_in("openenv"), address_in("gymnasium")
        ('http://localhost:8000', '')
    """
    from envkit._internal.schemes import scheme_named

    found = scheme_named(scheme)
    return "" if found is None else found.address


def missing_for(scheme: str) -> MissingDependencyError | None:
    """Returns the error if a scheme's library is not installed; imports no library.

    Example:
        >>> missing_for("gymnasium") is None  # it is installed
        True
    """
    from envkit._internal.schemes import scheme_named

    found = scheme_named(scheme)
    return None if found is None else found.missing(f"The scheme {scheme!r}")


def _scheme_of(target: Any) -> Scheme | None:
    """Returns the scheme of a target, read as in `load`; `None` if it has none."""
    from envkit._internal.schemes import scheme_named  # a name alone needs none

    prefix, _, rest = target.partition(":") if isinstance(target, str) else ("", "", "")
    is_own = prefix in own(_SCHEMES)
    if not rest or (not is_own and _can_be_attribute(rest) and "." in prefix):
        return None
    found = scheme_named(prefix)
    if found is None or is_own or not _can_be_attribute(rest):
        return found
    try:
        _imported(target, prefix, rest)
    except ConstructorError:
        return found
    return None


def module_named(name: str) -> Any:
    """Returns a module by name: the main script if it has that name, else by import.

    Importing the main script by its name would run it a second time.

    Example:
        >>> module_named("envkit.nest").__name__
        'envkit.nest'
    """
    if name in main_script_names():
        return sys.modules["__main__"]
    return importlib.import_module(name)


def main_script_names() -> frozenset[str]:
    """Returns the names by which an import would find the program's main script.

    For `train.py` they are "train", and "my_package.train" if it lies in that package.
    Notebooks and programs from standard input have none.
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
        # Another module of the same name may come first.
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


def _can_be_attribute(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _from_scheme(name: str, target: str) -> Callable[..., Any] | None:
    """Returns the callable for a target of a scheme; `None` if there is no scheme."""
    from envkit._internal.schemes import scheme_named

    prefix, _, rest = target.partition(":")
    scheme = scheme_named(prefix)
    if scheme is None:
        return None
    error = scheme.missing(f"The environment {target!r}")
    if error is not None:
        raise error
    loader = scheme.loader
    if isinstance(loader, str):
        loader = _imported(name, *loader.split(":"))
    return functools.partial(loader, rest)


def _names_a_file(name: str, file: str, attribute: str) -> str:
    module = os.path.basename(file).removesuffix(".py")
    return (
        f"{name!r} names a file, and a target names a module: '{module}:{attribute}', "
        "where the file's folder is the current one or on sys.path."
    )


def _imported(name: str, module_name: str, attribute: str) -> Callable[..., Any]:
    if module_name.startswith("."):  # "./game.py"; other forms are refused earlier
        raise ConstructorError(_names_a_file(name, module_name, attribute))
    try:
        found = module_named(module_name)
    except ModuleNotFoundError as error:
        # Only if the named module itself is missing: for a module that it imports, the
        # original error says more.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        if module_name.endswith(".py"):
            text = _names_a_file(name, module_name, attribute)
            raise ConstructorError(text) from error
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
        from envkit.specs.validation import describe

        raise ConstructorError(
            f"{name!r} is {describe(found)}, which cannot be called to make an "
            "environment."
        )
    return found  # type: ignore[no-any-return]  # callable() says so


def _callables(owner: Any) -> list[str]:
    return [name for name in dir(owner) if callable(getattr(owner, name, None))]
