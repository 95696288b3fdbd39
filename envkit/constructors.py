"""Environments by name: made, kept as recipes, and registered.

A target is one of

- `"CartPole-v1"`: a name with its version, of `envkit.envs` or given to `register`;
  what an environment does is fixed in each version. Without one, as in `"CartPole"`, it
  is the newest;
- `"my_package.envs:make_env"`: an attribute of a module;
- `"gymnasium:CartPole-v1"`: a scheme, and what that library calls the environment.
  The schemes are `ale`, `bsuite`, `dm_control`, `envpool`, `gym`, `gymnasium`,
  `gymnax`, `minigrid`, `pettingzoo`, `ple`, `pysc2` and `vizdoom`, and those that
  packages of anybody's add (`envkit.targets` says how);
- anything that can be called and returns an environment.

A constructor made from a string pickles as that string, so it travels to a worker that
has nothing but the import path. Nothing is imported before it is called.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable
from typing import Any

from envkit import targets
from envkit.errors import ConstructorError
from envkit.provenance import (
    Origin,
    origin_of,
    plain_arguments,
    version_of,
    without_version,
)
from envkit.specified import Specified
from envkit.specs.validation import describe

__all__ = [
    "Constructor",
    "built_by",
    "constructor",
    "make",
    "recipe_of_constructor",
    "register",
    "registered",
]

# A string, because the engine stands on a higher floor than this module.
_POOL = "envkit.parallel:ParallelPyEnvironment"

_registry: dict[str, str | Callable[..., Any]] = {
    "Bandit-v1": "envkit.envs.bandit:Bandit",
    "CartPole-v1": "envkit.envs.cartpole:CartPole",
    "Catch-v1": "envkit.envs.catch:Catch",
    "GridWorld-v1": "envkit.envs.gridworld:GridWorld",
    "TicTacToe-v1": "envkit.envs.tictactoe:TicTacToe",
}


class Constructor:
    """A recipe for an environment: a target and keyword arguments.

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
        """Keeps the recipe; `constructor` makes these."""
        self._name = name
        self._build = build
        self._kwargs = kwargs
        # The name with its version.
        self._id = name if identifier is None else identifier

    def __call__(self, **kwargs: Any) -> Any:
        """Builds an environment; arguments given here replace those of the recipe."""
        build = self._build
        if isinstance(build, str):
            build = targets.load(self._name, build)
        kwargs = {**self._kwargs, **kwargs}
        env = build(**kwargs)
        if isinstance(env, type) or not hasattr(env, "time_step_spec"):
            raise ConstructorError.no_environment(repr(self), env)
        if isinstance(env, Specified):
            env._made_from = self._origin(kwargs, origin_of(env))
        return env

    def _origin(self, kwargs: dict[str, Any], inner: Origin | None = None) -> Origin:
        build = self._build
        if isinstance(build, functools.partial):
            return _origin_of_partial(build, kwargs, inner)
        return Origin(self._id, plain_arguments(kwargs), inner)

    def plain_recipe(self) -> dict[str, Any]:
        """Returns what environments that this makes say of themselves."""
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
        # What `register` was told stays in this process; the recipe carries what it
        # stands for.
        return Constructor, (self._name, self._build, self._kwargs, self._id)


def constructor(target: str | Callable[..., Any], /, **kwargs: Any) -> Constructor:
    """Returns something to call that makes the environment.

    Args:
        target: A name, `"module:attribute"`, `"scheme:id"`, or a callable.
        **kwargs: What to pass when the environment is made.

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


def built_by(name: str) -> str | Callable[..., Any] | None:
    """Returns the target that a name stands for here; `None` if it is not registered.

    Example:
        >>> built_by("Catch")
        'envkit.envs.catch:Catch'
    """
    identifier = _newest(name)
    return None if identifier is None else _registry[identifier]


def _newest(name: str) -> str | None:
    """Returns the registered name: with the newest version if there is none in it."""
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
    known = sorted({without_version(other) for other in _registry})
    return (
        f"There is no environment named {name!r}.{targets.suggestion(bare, known)} "
        f"Known names are {', '.join(known)}; an environment of your own is "
        "'module:attribute'."
    )


def recipe_of_constructor(make_env: str | Callable[..., Any]) -> dict[str, Any]:
    """Returns what environments that something makes are made of.

    Example:
        >>> recipe_of_constructor(constructor("Catch", rows=5))["id"]
        'Catch-v1'
    """
    return constructor(make_env).plain_recipe()


def _origin_of_partial(
    build: functools.partial[Any], kwargs: dict[str, Any], inner: Origin | None
) -> Origin:
    """Says what a function is called with, by name where that can be known."""
    import inspect

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


def make(
    target: str | Callable[..., Any], /, *, num_envs: int | None = None, **kwargs: Any
) -> Any:
    """Makes an environment, or a pool of `num_envs` of them in worker processes.

    Args:
        target: A name, `"module:attribute"`, `"scheme:id"`, or a callable.
        num_envs: How many to make in a `ParallelPyEnvironment`, even if it is one;
            `None` for the environment itself. EnvPool makes so many rows itself, and
            ale-py does with `vectorization="native"`.
        **kwargs: What to pass when an environment is made. With `num_envs`, those that
            `ParallelPyEnvironment` knows, such as `num_workers`, go to the pool; where
            an environment has one of the same name, a recipe keeps it apart:
            `make(constructor(target, backend="x11"), num_envs=8, backend="thread")`.

    Example:
        >>> env = make("CartPole", batch_size=3)
        >>> env.reset().observation.shape
        (3, 4)
        >>> with make("CartPole", num_envs=4, backend="inline") as env:
        ...     env.reset().observation.shape
        (4, 4)
    """
    if num_envs is None:
        return constructor(target, **kwargs)()
    import inspect

    count = _as_count(num_envs)
    whole = constructor(target, **kwargs, num_envs=count)
    if targets.makes_batches(whole._build, whole._kwargs):
        return whole()
    pool = targets.load("num_envs", _POOL)
    _, *known = inspect.signature(pool).parameters
    options = {name: kwargs.pop(name) for name in known if name in kwargs}
    return pool([constructor(target, **kwargs)] * count, **options)


def _as_count(num_envs: Any) -> int:
    try:
        count = operator.index(num_envs)
    except TypeError:
        raise TypeError(
            f"num_envs is {describe(num_envs)}; it is an integer, or None for a single "
            "environment without workers."
        ) from None
    if count < 1:
        raise ValueError(f"num_envs is {count}; a pool has at least one environment.")
    return count


def register(name: str, target: str | Callable[..., Any]) -> None:
    """Gives an environment a name for `make` and `constructor` in this process.

    Args:
        name: The name, best with a version: `"Maze-v2"`. What an environment does is
            fixed in each version; whoever changes that registers the next one, and
            `"Maze"` is then the newest. A name that exists is refused unless the target
            is the same.
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
    except ValueError:  # Arrays have no one answer.
        import pickle

        return pickle.dumps(first) == pickle.dumps(second)


def _name_of(target: Any) -> str:
    if hasattr(target, "time_step_spec") and not isinstance(target, type):
        kind = type(target).__name__
        raise TypeError(
            f"The target is a {kind} object; a constructor is something to call that "
            "makes one.\n\n"
            f"  constructor({kind}(...))       # the finished dish\n"
            f"  constructor({kind}, ...)       # the recipe"
        )
    if not callable(target):
        raise TypeError(
            f"The target is {describe(target)}, which is non-callable. It must be a "
            "string or something to call that makes an environment."
        )
    if isinstance(target, functools.partial):
        arguments = [repr(value) for value in target.args]
        arguments += [f"{name}={value!r}" for name, value in target.keywords.items()]
        return f"functools.partial({', '.join([_name_of(target.func), *arguments])})"
    module = getattr(target, "__module__", type(target).__module__)
    return f"{module}:{getattr(target, '__qualname__', type(target).__qualname__)}"
