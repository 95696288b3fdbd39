"""gymnax: environments by name, and `GymnaxWrapper`, which puts them on the device.

gymnax's spaces resemble Gymnasium's: `Discrete` has `n`, `Box` has `low` and `high`,
`Dict` and `Tuple` have `spaces`. But their dtypes do not always match the environments'
results, so the shapes and dtypes of observations come from the functions, and the
spaces only add bounds.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit.adapters.foreign import require
from envkit.adapters.jax.functional import FunctionalEnvironment
from envkit.adapters.jax.program import OfEnvironment
from envkit.adapters.known_actions import NamedActions
from envkit.adapters.values import rebuilt
from envkit.extend import describe, suggestion
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedSpec, Seed

__all__ = ["GymnaxWrapper", "action_spec_from_space", "load", "names", "with_bounds"]


class GymnaxWrapper(NamedActions, FunctionalEnvironment):
    """Makes an environment, or a batch, from a gymnax environment.

    Any object with its methods is accepted: `reset_env` and `step_env`, or `reset` and
    `step`, which take a key, a state, an action and parameters.

    | gymnax                           | time step                                  |
    |----------------------------------|--------------------------------------------|
    | `reset_env`                      | `FIRST`, reward 0, discount 1              |
    | `step_env`, no flag              | `MID`, discount as given to the wrapper    |
    | truncated                        | `LAST`, discount as given to the wrapper   |
    | terminated, or both, or `done`   | `LAST`, discount 0                         |

    Unlike gymnax's own `step`, a step does not begin an episode: the observation of a
    `LAST` is the final one, and the next step returns the `FIRST`. The `done` of gymnax
    before 1.0 counts as a termination, because it does not say why.

    Public attributes that the wrapper lacks are taken from the environment.

    Example:
        >>> import gymnax  # doctest: +SKIP
        >>> env = GymnaxWrapper(gymnax.make("CartPole-v1")[0], batch_size=64)
        ... # doctest: +SKIP
        >>> env.seed(7)  # doctest: +SKIP
        >>> env.reset().observation.shape  # doctest: +SKIP
        (64, 4)
    """

    def __init__(
        self,
        env: Any,
        params: Any = None,
        *,
        batch_size: int | None = None,
        seed: Seed = None,
        discount: float = 1.0,
        reward_dtype: Any = np.float32,
        observation_bounds: bool = True,
    ) -> None:
        """Wraps an environment, which is stateless and may serve several wrappers.

        Args:
            env: The environment; `gymnax.make` returns it with its parameters.
            params: Parameters; a dictionary of those that differ from the environment's
                `default_params`, `None` for the defaults.
            batch_size: The number of rows; `None` for a single environment.
            seed: The seed, as if passed to `seed()`.
            discount: The discount of steps that do not terminate the episode.
            reward_dtype: The dtype of rewards.
            observation_bounds: Whether the specs have the bounds of the
                `observation_space`. Some environments exceed them; by name,
                `MemoryChain-bsuite`, `UmbrellaChain-bsuite` and `GaussianBandit-misc`
                are made without.
        """
        self._observation_bounds = observation_bounds
        params = _params_of(_checked(env), params)
        self._foreign = env
        super().__init__(
            _GymnaxReset(env),
            _GymnaxStep(env),
            action_spec_from_space(env.action_space(params)),
            params=params,
            batch_size=batch_size,
            seed=seed,
            discount=discount,
            reward_dtype=reward_dtype,
            name=str(getattr(env, "name", type(env).__name__)),
        )

    @property
    def gymnax(self) -> Any:
        """The gymnax environment."""
        return self._foreign

    def _find_observation_spec(self, found: NestedSpec) -> NestedSpec:
        space = getattr(self._foreign, "observation_space", None)
        if space is None or not self._observation_bounds:
            return found
        return with_bounds(found, space(self._params))


def _checked(env: Any) -> Any:
    if isinstance(env, tuple) and len(env) == 2:
        raise TypeError(
            "GymnaxWrapper was given a pair; gymnax.make returns the environment and "
            "its parameters: GymnaxWrapper(*gymnax.make(...))."
        )
    needed = ("reset", "step", "action_space")
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"GymnaxWrapper was given {what}, which is not an environment of gymnax. "
            "gymnax.make(...) makes one."
        )
    if hasattr(env, "step_env") and not hasattr(type(env), "step_env"):
        raise TypeError(
            f"GymnaxWrapper was given the wrapper {type(env).__name__}. gymnax's "
            "wrappers see the next episode instead of an episode's end. Pass the "
            "environment itself, and use the wrappers of envkit.wrappers."
        )
    return env


def _params_of(env: Any, params: Any) -> Any:
    if params is None:
        return getattr(env, "default_params", None)
    if not isinstance(params, Mapping):
        return params
    default = getattr(env, "default_params", None)
    unknown = [name for name in params if not hasattr(default, name)]
    if unknown:
        known = ", ".join(sorted(vars(default))) if default is not None else "none"
        raise ValueError(
            f"{type(env).__name__} has no parameter {unknown[0]!r}. Its parameters "
            f"are {known}."
        )
    return default.replace(**params)  # type: ignore[union-attr]  # they have all of them


class _GymnaxReset(OfEnvironment):
    """Begins an episode."""

    __slots__ = ()

    def __call__(self, key: Any, params: Any) -> Any:
        """Returns an observation and a state."""
        env = self._env
        begin = env.reset_env if hasattr(env, "reset_env") else env.reset
        return begin(key, params)


class _GymnaxStep(OfEnvironment):
    """Steps within an episode; never begins another."""

    __slots__ = ()

    def __call__(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        """Returns the result of a functional environment's step."""
        env = self._env
        if not hasattr(env, "step_env"):
            return _with_final_observation(env.step(key, state, action, params))
        result = env.step_env(key, state, action, params)
        # Before gymnax 1.0 there was only `done`, without a reason.
        if len(result) != 5 or not hasattr(env, "is_truncated"):
            return tuple(result)
        observation, state, reward, terminated, info = result
        truncated = env.is_truncated(state, params)
        return observation, state, reward, terminated, truncated, info


def _with_final_observation(result: Any) -> tuple[Any, ...]:
    """Puts the final observation back, if a step begins episodes itself."""
    observation, *middle, info = result
    if isinstance(info, dict) and "final_observation" in info:
        info = dict(info)
        observation = info.pop("final_observation")
    return (observation, *middle, info)


def with_bounds(spec: NestedSpec, space: Any) -> NestedSpec:
    """Adds a space's bounds to specs where the two match.

    Example:
        >>> from gymnasium import spaces
        >>> with_bounds(ArraySpec((2,), np.float32), spaces.Box(0, 9, (2,), np.int32))
        BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, maximum=9.0)
    """
    parts = getattr(space, "spaces", None)
    if isinstance(spec, dict) and isinstance(parts, Mapping):
        return {key: with_bounds(child, parts.get(key)) for key, child in spec.items()}
    if isinstance(spec, list | tuple) and isinstance(parts, list | tuple):
        if len(spec) != len(parts):
            return spec
        pairs = zip(spec, parts, strict=True)
        return rebuilt(spec, [with_bounds(*pair) for pair in pairs])
    if isinstance(spec, ArraySpec) and spec.dtype.kind in "iuf":
        return _bounded(spec, space)
    return spec


def action_spec_from_space(space: Any, path: str = "action") -> NestedSpec:
    """Returns specs for the actions of a space.

    Raises:
        TypeError: It does not resemble a space.

    Example:
        >>> from gymnasium import spaces
        >>> action_spec_from_space(spaces.Discrete(3))
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=2, name='action')
    """
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        return {
            key: action_spec_from_space(child, f"{path}[{key!r}]")
            for key, child in parts.items()
        }
    if isinstance(parts, list | tuple):
        return tuple(
            action_spec_from_space(child, f"{path}[{index}]")
            for index, child in enumerate(parts)
        )
    if not hasattr(space, "shape") or not hasattr(space, "dtype"):
        raise TypeError(
            f"The space of {path} is {describe(space)}; it has neither `spaces`, like "
            "a composite space, nor `shape` and `dtype`."
        )
    spec = ArraySpec(tuple(space.shape), np.dtype(space.dtype), path)
    return _bounded(spec, space) if spec.dtype.kind in "iuf" else spec


def _bounded(spec: ArraySpec, space: Any) -> ArraySpec:
    if hasattr(space, "n"):
        start = int(getattr(space, "start", 0))
        low, high = np.asarray(start), np.asarray(start + int(space.n) - 1)
    elif hasattr(space, "low") and hasattr(space, "high"):
        low, high = np.asarray(space.low), np.asarray(space.high)
    else:
        return spec
    try:
        low, high = (np.broadcast_to(bound, spec.shape) for bound in (low, high))
    except ValueError:  # another shape, so the bounds do not apply
        return spec
    low, high = _in(spec.dtype, low), _in(spec.dtype, high)
    same = low.size and (low == low.flat[0]).all() and (high == high.flat[0]).all()
    if same:
        low, high = low.flat[0], high.flat[0]
    return BoundedArraySpec(spec.shape, spec.dtype, low, high, spec.name)


def _in(dtype: np.dtype[Any], bound: Array) -> Array:
    """Converts a bound to a dtype, or to the nearest value that it has."""
    if dtype.kind == "f":
        return bound.astype(dtype)
    info = np.iinfo(dtype)
    # Infinity is not an integer, and the largest integers are not floats.
    inside = (bound > info.min) & (bound < info.max)
    edge = np.where(bound > 0, info.max, info.min).astype(dtype)
    return np.where(inside, np.where(inside, bound, 0).astype(dtype), edge)


# Environments whose observations exceed their observation_space: by a rounding error,
# the last one by 1.
_BEYOND_BOUNDS = frozenset(
    ["MemoryChain-bsuite", "UmbrellaChain-bsuite", "GaussianBandit-misc"]
)


def load(
    environment_name: str,
    batch_size: int | None = None,
    *,
    params: Any = None,
    seed: Seed = None,
    discount: float = 1.0,
    reward_dtype: Any = np.float32,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a gymnax environment by its id.

    `envkit.make("gymnax:CartPole-v1", batch_size=64)` calls this. All environments of
    one id in this process share their compiled functions.

    Args:
        environment_name: The id.
        batch_size: The number of rows; `None` for a single environment.
        params: Parameters; a dictionary of those that differ from the defaults.
        seed: The seed, as if passed to `seed()`.
        discount: The discount of steps that do not terminate the episode.
        reward_dtype: The dtype of rewards.
        env_wrappers: Wrappers for the environment, innermost first.
        **kwargs: Arguments that gymnax passes to the environment.

    Raises:
        ValueError: gymnax has no such environment.

    Example:
        >>> env = load("CartPole-v1", 64, params={"max_steps_in_episode": 200})
        ... # doctest: +SKIP
        >>> env.reset().observation.shape  # doctest: +SKIP
        (64, 4)
    """
    _require(f"The environment {environment_name!r}")
    env: PyEnvironment = GymnaxWrapper(
        _made(environment_name, tuple(sorted(kwargs.items()))),
        params,
        batch_size=batch_size,
        seed=seed,
        discount=discount,
        reward_dtype=reward_dtype,
        observation_bounds=environment_name not in _BEYOND_BOUNDS,
    )
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def names() -> list[str]:
    """Lists the ids of all gymnax environments.

    Example:
        >>> "CartPole-v1" in names()  # doctest: +SKIP
        True
    """
    _require("suite_gymnax")
    # Importing gymnax imports JAX, SciPy and more: seconds just for a list of names.
    known = [] if "gymnax" in sys.modules else _ids_in_source()
    if not known:
        import gymnax

        known = gymnax.registered_envs
    return sorted(known)


def _ids_in_source() -> list[str]:
    """Reads the ids from the source of the registering module; empty if not found."""
    spec = importlib.util.find_spec("gymnax")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "registration.py")
        if not file.is_file():
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.List):
                ids = [getattr(element, "value", None) for element in node.elts]
                if "CartPole-v1" in ids:
                    return [name for name in ids if isinstance(name, str)]
    return []


def _require(needed_by: str) -> None:
    # gymnax imports six without requiring it.
    for package in ("gymnax", "jax", "six"):
        require(package, needed_by=needed_by, extra="gymnax")


def _made(name: str, kwargs: tuple[tuple[str, Any], ...]) -> Any:
    try:
        hash(kwargs)
    except TypeError:  # unhashable, such as an array: make it anew
        return _make(name, kwargs)
    return _shared(name, kwargs)


def _make(name: str, kwargs: tuple[tuple[str, Any], ...]) -> Any:
    import gymnax

    if name not in gymnax.registered_envs:
        known = sorted(gymnax.registered_envs)
        raise ValueError(
            f"gymnax has no environment {name!r}.{suggestion(name, known)} It has "
            f"{', '.join(known)}."
        )
    try:
        env, _ = gymnax.make(name, **dict(kwargs))
    except TypeError as error:
        if not kwargs:
            raise
        names = ", ".join(key for key, _ in kwargs)
        raise TypeError(
            f"gymnax does not make {name!r} with {names}: {error}. Pass its parameters "
            "in params={...}."
        ) from error
    return env


# They are stateless: share one per id, and keep its compiled functions.
_shared = functools.lru_cache(maxsize=32)(_make)
