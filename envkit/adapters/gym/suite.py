"""The old Gym: environments of every version as envkit environments.

Gym changed its interface several times. Environments and wrappers of every version are
still around, and are mixed with each other:

```
            reset returns            step returns  seeds            pictures
to 0.21     observation              4 values      seed(n)          render(mode)
to 0.25     observation              4 values      reset(seed=n)    render(mode)
0.26        (observation, info)      5 values      reset(seed=n)    render()
```

The wrapper looks at the results of methods, and at their signatures. It checks no
version, and Gym need not be installed.

For a long time Gym's spaces had no dtypes, and later its environments did not always
match them. So specs get TF-Agents' dtypes unless you choose others, and observations
are converted to them.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn, TypeAlias

import numpy as np

from envkit.adapters.foreign import (
    ForeignEnvironment,
    drawn_seed,
    limited_and_wrapped,
    require,
)
from envkit.adapters.gymnasium import conversion, spaces
from envkit.adapters.gymnasium.spaces import kind_of_space
from envkit.adapters.gymnasium.suite import id_without_module
from envkit.adapters.gymnasium.wrapper import check_single, name_of, set_attribute
from envkit.adapters.known_actions import NamedActions
from envkit.adapters.quiet import prepare_module
from envkit.adapters.reset_arguments import Parameters, parameters_of, takes_anything
from envkit.adapters.state import layers_of
from envkit.adapters.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    few_numbers,
    integer_leaf,
)
from envkit.errors import SpecError
from envkit.extend import describe, leave_unseen, listed
from envkit.provenance import record_seed
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import TimeStep
from envkit.types import Array, NestedSpec, Seed
from envkit.wrappers import TimeLimit

__all__ = [
    "GymWrapper",
    "action_converter",
    "load",
    "names",
    "observation_converter",
    "reset_takes_seed",
    "spec_from_gym_space",
    "wrap_env",
]


class GymWrapper(NamedActions, ForeignEnvironment):
    """Wraps an environment written for any version of Gym.

    | Gym                                         | time step                      |
    |---------------------------------------------|--------------------------------|
    | `reset`, with an info or without            | `FIRST`, reward 0, discount 1  |
    | 4 values, not `done`                        | `MID`, discount as given       |
    | 4 values, `done`                            | `LAST`, discount 0             |
    | ... and `TimeLimit.truncated` in the info   | `LAST`, discount as given      |
    | 5 values                                    | as in Gymnasium                |

    | version | seeds           | pictures                                            |
    |---------|-----------------|-----------------------------------------------------|
    | to 0.21 | `seed(n)`       | `render(mode)`                                      |
    | to 0.25 | `reset(seed=n)` | `render(mode)`                                      |
    | 0.26    | `reset(seed=n)` | `render()`, with the constructor's `render_mode`    |

    Wrappers for one version may surround an environment for another. `reset` options
    are passed on if the environment takes them, as since 0.22, and refused otherwise.

    Gym itself is not needed. Public attributes that the wrapper lacks are taken from
    the environment.

    Example:
        >>> class Space:
        ...     n, shape = 2, ()
        >>> class Coin:  # An environment of Gym looks like this.
        ...     observation_space = action_space = Space()
        ...     def reset(self):
        ...         return 0
        ...     def step(self, action):
        ...         return action, 1.0, action == 1, {}
        >>> env = GymWrapper(Coin())
        >>> [int(env.step(1).step_type) for _ in range(4)]
        [0, 2, 0, 2]
    """

    # `None` before the first reset, as in TF-Agents.
    _info: Any = None
    _library = "Gym"
    _global_generators = ("random", "numpy")

    def __init__(
        self,
        gym_env: Any,
        discount: float = 1.0,
        spec_dtype_map: Mapping[type, Any] | None = None,
        match_obs_space_dtype: bool = True,
        auto_reset: bool = True,
        simplify_box_bounds: bool = True,
        render_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            gym_env: A single environment.
            discount: The discount of steps that do not terminate the episode.
            spec_dtype_map: The dtypes to use in specs, by class of space, such as
                `{gym.spaces.Discrete: np.int32}`.
            match_obs_space_dtype: Whether observations are converted to the dtypes of
                their specs. Otherwise their dtypes may differ from the specs.
            auto_reset: Whether the step after the end of an episode begins the next.
                If not, it is an error.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            render_kwargs: Keyword arguments for the environment's `render`.
        """
        check_single(gym_env, adapter="GymWrapper", library="Gym")
        super().__init__(handle_auto_reset=auto_reset)
        self._foreign = gym_env
        self._name = name_of(gym_env)
        self._render_kwargs = dict(render_kwargs or {})
        self._observation_spec = spec_from_gym_space(
            gym_env.observation_space,
            spec_dtype_map,
            simplify_box_bounds,
            "observation",
        )
        self._action_spec = spec_from_gym_space(
            gym_env.action_space, spec_dtype_map, simplify_box_bounds, "action"
        )
        self._to_observation = observation_converter(
            gym_env.observation_space,
            self._observation_spec,
            subject=f"{self._name} returned an observation that",
            to_dtype=match_obs_space_dtype,
        )
        self._to_action = action_converter(
            gym_env.action_space,
            self._action_spec,
            subject="GymWrapper.step() was given an action that",
        )
        self._prepare(discount, copies_arrays=True)
        self._ending_keys = _ending_keys(self._observation_spec)
        # The current time step at the time of seeding.
        self._seeded_at: TimeStep | None = None
        self._matches_dtype = match_obs_space_dtype
        if not match_obs_space_dtype:
            leave_unseen(self)

    @property
    def gym(self) -> Any:
        """The Gym environment."""
        return self._foreign

    @property
    def done(self) -> bool:
        """True if the episode has ended or none has begun yet."""
        now = self._current_time_step
        return now is None or bool(now.is_last())

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment, from the next reset on.

        Returns:
            The result of the environment's `seed`, or 0 if there is none.
        """
        calls, passes = _calls_seed(self._foreign), reset_takes_seed(self._foreign)
        if not calls and not passes:
            raise NotImplementedError(
                f"{self._name} cannot be seeded: it has no seed(), and its reset() "
                "takes no seed."
            )
        record_seed(self, seed)
        (number,) = checked_seeds(seed, 1)
        if number is None:
            number = drawn_seed()
        self._next_seed = number
        self._seeded_at = self._current_time_step
        answer = self._foreign.seed(number) if calls else None
        return 0 if answer is None else answer

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Sets an attribute on whichever wrapper has it, or on the environment.

        Args:
            name: The attribute's name.
            value: The new value.
            force: Whether to set it on the outermost wrapper if none has it.
        """
        return set_attribute(self._foreign, name, value, force=force)

    def _shown_info(self) -> Any:
        # A reset that returns only an observation has no info.
        return dict(self._info) if isinstance(self._info, Mapping) else self._info

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders.

        Args:
            mode: The result to return, such as "rgb_array" or "human". If the
                environment was made with a mode, this must be the same.
        """
        self._check_open("render")
        if not hasattr(self._foreign, "render"):
            raise NotImplementedError(
                f"{self._name} cannot render: it has no render()."
            )
        made_with = getattr(self._foreign, "render_mode", None)
        if made_with is None and _render_takes_mode(self._foreign):
            self._check_mode(mode)
            picture = self._foreign.render(mode, **self._render_kwargs)
        elif made_with == mode:
            picture = self._foreign.render(**self._render_kwargs)
        else:
            self._refuse_mode(mode, made_with)
        return picture.copy() if isinstance(picture, np.ndarray) else picture

    def _accepts_options(self) -> bool:
        return _reset_takes_options(self._foreign)

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        if seed is not None and not reset_takes_seed(self._foreign):
            # Seed again, because steps since seed() have used random numbers.
            if self._seeded_at is not self._current_time_step:
                self._foreign.seed(seed)
            seed = None
        given = {"seed": seed, "options": options}
        # Arguments without defaults are passed even if they are `None`.
        result = self._foreign.reset(
            **{
                name: value
                for name, value in given.items()
                if value is not None or _reset_needs(self._foreign, name)
            }
        )
        self._seeded_at = None
        return self._split(result)

    def _split(self, result: Any) -> tuple[Any, Any]:
        """Splits the result of `reset` into observation and info."""
        if (
            isinstance(result, tuple)
            and len(result) == 2
            and isinstance(result[1], Mapping)
            # A pair that ends in a dictionary may itself be an observation.
            and result[1].keys() != self._ending_keys
        ):
            return result
        return result, None

    def _move(self, action: Any) -> Any:
        # Hot: called once per step.
        result = self._foreign.step(action)
        if not isinstance(result, tuple | list) or not 4 <= len(result) <= 5:
            self._refuse_result("step", result, "")
        if len(result) == 5:
            return result
        observation, reward, done, info = result
        truncated = done and _is_cut(info)
        return observation, reward, done and not truncated, truncated, info

    def _keep_end(self, info: Any, terminated: bool, truncated: bool) -> None:
        if info is None or isinstance(info, Mapping):
            super()._keep_end(info or {}, terminated, truncated)

    def _choices(self) -> Mapping[int, Any] | None:
        if not self._matches_dtype:
            return None
        space, spec = self._foreign.action_space, self._action_spec
        kind = _kind(space)
        if kind == "Discrete" and isinstance(spec, BoundedArraySpec):
            return few_numbers(spec, int) or None
        is_array = (
            kind in ("Box", "MultiDiscrete", "MultiBinary")
            and isinstance(spec, ArraySpec)
            and spec.shape != ()
        )
        return {} if is_array and _has_dtype_of(space, spec) else None

    def _refuse_result(self, call: str, result: Any, expected: str) -> NoReturn:
        raise SpecError(
            f"{self._name}.step() returned {describe(result)}; in Gym it returns the "
            "tuple (observation, reward, done, info), and since 0.26 (observation, "
            "reward, terminated, truncated, info)."
        )

    def _check_mode(self, mode: str) -> None:
        metadata = getattr(self._foreign, "metadata", None) or {}
        known = metadata.get("render_modes") or metadata.get("render.modes")
        # Checked if the environment lists its modes: some Gym environments close the
        # standard output for an unknown mode.
        if known and mode not in known:
            raise NotImplementedError(
                f"{self._name} cannot render {mode!r}: its metadata has the modes "
                f"{listed(map(repr, known))}."
            )

    def _refuse_mode(self, mode: str, made_with: Any) -> NoReturn:
        how = f"with render_mode={made_with!r}" if made_with else "without one"
        raise NotImplementedError(
            f"{self._name} cannot render {mode!r}: the render_mode of this environment "
            f"is chosen when it is made, and it was made {how}. Make it with "
            f"render_mode={mode!r}."
        )

    def _set_state(self, state: Any) -> None:
        super()._set_state(state)
        # Makes the next reset seed again.
        self._seeded_at = None


def _is_cut(info: Any) -> bool:
    """Returns True if Gym's TimeLimit ended the episode."""
    return isinstance(info, Mapping) and bool(info.get("TimeLimit.truncated", False))


def _ending_keys(spec: NestedSpec) -> Any:
    """Returns the keys of a dictionary that is second in a pair of observations."""
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[1], dict):
        return spec[1].keys()
    return None


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def _calls_seed(env: Any) -> bool:
    """Returns True if `seed()` must be called to seed an environment.

    Gym's base class had one until 0.25. From 0.22 on, it seeds nothing that
    `reset(seed=...)` does not seed too, and warns that it will disappear.
    """
    if not callable(getattr(env, "seed", None)):
        return False
    if not reset_takes_seed(env):
        return True
    return any(_has_own_seed(layer) for layer in layers_of(env))


def reset_takes_seed(env: Any) -> bool:
    """Returns True if `reset` takes a seed through all wrappers.

    Most wrappers of every version pass on all arguments, so the innermost one decides.
    If it takes any argument too, it takes a seed unless it has a `seed()`.
    """
    wrappers, innermost = _resets(env)
    if not _all_take(wrappers, "seed"):
        return False
    if "seed" in innermost:
        return True
    return takes_anything(innermost) and not callable(getattr(env, "seed", None))


def _reset_takes_options(env: Any) -> bool:
    """Returns True if `reset` takes options (since Gym 0.22) through all wrappers."""
    wrappers, innermost = _resets(env)
    return _all_take([*wrappers, innermost], "options")


def _reset_needs(env: Any, name: str) -> bool:
    """Returns True if `reset` requires an argument of this name.

    Wrappers must pass it to the innermost environment.
    """
    wrappers, innermost = _resets(env)
    known = innermost.get(name)
    is_needed = known is not None and known.default is known.empty
    return is_needed and _all_take(wrappers, name)


def _resets(env: Any) -> tuple[list[Parameters], Parameters]:
    """Returns the parameters of each wrapper's `reset`, and of the innermost's."""
    *wrappers, innermost = [parameters_of(layer, "reset") for layer in layers_of(env)]
    return wrappers, innermost


def _all_take(resets: list[Parameters], name: str) -> bool:
    return all(name in known or takes_anything(known) for known in resets)


def _render_takes_mode(env: Any) -> bool:
    """Returns True if `render` takes the mode, rather than the constructor."""
    for layer in layers_of(env):
        known = parameters_of(layer, "render")
        if "mode" in known or any(p.kind in _POSITIONAL for p in known.values()):
            return True
        if all(p.kind is not p.VAR_POSITIONAL for p in known.values()):
            return False
    return True


def _has_own_seed(layer: Any) -> bool:
    method = getattr(layer, "seed", None)
    # The methods of Gym's own classes do nothing, or call the next layer.
    return getattr(method, "__module__", None) not in ("gym.core", "gymnasium.core")


Dtypes: TypeAlias = Mapping[type, Any]


def spec_from_gym_space(
    space: Any,
    dtype_map: Dtypes | None = None,
    simplify_box_bounds: bool = True,
    name: str | None = None,
) -> NestedSpec:
    """Makes specs for the members of a Gym space, as arrays.

    `Discrete` becomes int64, `MultiDiscrete` and `MultiBinary` int32, as in TF-Agents;
    `Box` keeps its dtype. `Dict` becomes a dictionary with the space's order of keys,
    `Tuple` a tuple. Spaces that only late versions of Gym have are treated as in
    Gymnasium.

    Args:
        space: A Gym space, or anything with the attributes of one.
        dtype_map: Other dtypes to use, by class of space.
        simplify_box_bounds: Whether bounds that are the same for every element of a
            `Box` are kept as a single number.
        name: The name of the spec; in a nest, the prefix of the names.

    Raises:
        ValueError: The argument is not a space.

    Example:
        >>> class Discrete:  # gym.spaces.Discrete has these attributes, too.
        ...     n, shape = 3, ()
        >>> spec_from_gym_space(Discrete(), name="action")
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=2, name='action')
        >>> spec_from_gym_space(Discrete(), {Discrete: np.uint8}).dtype
        dtype('uint8')
    """
    specs = _GymSpecs(dtype_map or {}, simplify_box_bounds, name or "")
    return specs.of(space, name, name or "")


# Default dtypes: TF-Agents'. A box may have its own.
_DTYPES = {
    "Box": np.float32,
    "Discrete": np.int64,
    "MultiBinary": np.int32,
    "MultiDiscrete": np.int32,
}


class _GymSpecs(spaces.SpaceSpecs):
    """Makes specs of Gym spaces, with the dtypes of a table."""

    def __init__(self, chosen: Dtypes, simplify: bool, root: str) -> None:
        super().__init__(simplify, spaces.MaxLengths(None), root)
        self._chosen = chosen

    def of(self, space: Any, name: str | None, path: str) -> NestedSpec:
        if not _kind(space):
            raise _no_space(space, path)
        return super().of(space, name, path)

    def kind_of(self, space: Any) -> str:
        return _kind(space)

    def leaf(self, space: Any, kind: str, name: str | None) -> ArraySpec:
        if kind not in _DTYPES:
            return super().leaf(space, kind, name)
        own = getattr(space, "dtype", None) if kind == "Box" else None
        dtypes = _chosen_dtype(self._chosen, space), own, _DTYPES[kind]
        dtype = np.dtype(next(dtype for dtype in dtypes if dtype is not None))
        return spaces.SPECS[kind](_completed(space, dtype), self.simplify, name)


def _completed(space: Any, dtype: np.dtype[Any]) -> Any:
    """Returns a space with a dtype, and with attributes that early spaces lack."""
    arrays = {
        name: np.asarray(getattr(space, name))
        for name in ("low", "high", "nvec")
        if hasattr(space, name)
    }
    others = {"n": getattr(space, "n", None), "start": getattr(space, "start", 0)}
    return SimpleNamespace(shape=_shape(space), dtype=dtype, **arrays, **others)


def _kind(space: Any) -> str:
    """Returns the name of a Gym space's class, found by name or by attributes."""
    kind = kind_of_space(space)
    if kind:
        return kind
    if hasattr(space, "spaces"):
        return "Dict" if isinstance(space.spaces, Mapping) else "Tuple"
    if hasattr(space, "nvec"):
        return "MultiDiscrete"
    if hasattr(space, "low") and hasattr(space, "high"):
        return "Box"
    if hasattr(space, "n"):
        return "MultiBinary" if getattr(space, "shape", None) else "Discrete"
    return ""


def _no_space(space: Any, path: str) -> SpecError:
    place = f" at {path}" if path else ""
    error = SpecError(
        f"The space{place} is {describe(space)}, which is not a space of Gym."
    )
    error.path = path
    return error


def _chosen_dtype(dtypes: Dtypes, space: Any) -> Any:
    """Returns the dtype chosen for a space, or `None`."""
    for kind in type(space).__mro__:
        if kind in dtypes:
            return np.dtype(dtypes[kind])
    return None


def _shape(space: Any) -> tuple[int, ...]:
    shape = getattr(space, "shape", None)
    if shape is None:
        # Early spaces have no shape, only their arguments.
        bounds = getattr(space, "low", getattr(space, "nvec", None))
        if bounds is not None:
            return np.shape(bounds)
        shape = np.ravel(space.n) if _kind(space) == "MultiBinary" else ()
    return tuple(int(size) for size in shape)


def observation_converter(
    space: Any, spec: NestedSpec, *, subject: str, to_dtype: bool = True
) -> Converter:
    """Returns a function that copies an observation into new arrays.

    Args:
        space: A space of Gym.
        spec: The result of `spec_from_gym_space` for it.
        subject: The beginning of error messages.
        to_dtype: Whether arrays are converted to the spec's dtype, which may lose
            nothing but decimal digits. Otherwise any dtype is accepted.
    """
    reader = _ObservationReader(subject, "observation", bounded=False)
    reader.to_dtype = to_dtype
    return reader.converter(space, spec, "observation")


class _ObservationReader(conversion.MemberReader):
    """Makes leaf functions for observations of any dtype."""

    to_dtype = True

    def leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        if _kind(space) not in _DTYPES:
            return super().leaf(space, spec, path)
        return _converted_leaf(spec) if self.to_dtype else _shaped_leaf(spec)


def _converted_leaf(spec: ArraySpec) -> Leaf:
    """Returns a function like `array_leaf`'s that takes whole floats as integers."""
    convert = array_leaf(spec)
    if spec.dtype.kind not in "iu":
        return convert

    def convert_whole(value: Any) -> Array:
        try:
            return convert(value)  # type: ignore[no-any-return]  # it makes arrays
        except SpecError:
            whole = _whole(value, spec)
            if whole is None:
                raise
            return whole

    return convert_whole


def _whole(value: Any, spec: ArraySpec) -> Array | None:
    """Returns an array of floats as integers, if they are whole."""
    try:
        given = np.asarray(value)
    except ValueError:  # rows of different lengths
        return None
    if given.shape != spec.shape or given.dtype.kind != "f":
        return None
    # Values that are too large, or NaN, change; the comparison below detects that.
    with np.errstate(invalid="ignore"):
        array = given.astype(spec.dtype)
    return array if (array == given).all() else None


def _shaped_leaf(spec: ArraySpec) -> Leaf:
    def convert(value: Any) -> Array:
        try:
            array = np.array(value)
        except ValueError:  # rows of different lengths
            raise SpecError from None
        if array.shape != spec.shape or array.dtype == object:
            raise SpecError
        return array

    return convert


def action_converter(space: Any, spec: NestedSpec, *, subject: str) -> Converter:
    """Returns a function that converts fitting values to members of a space.

    A choice becomes a Python number: old environments look it up in dictionaries.

    Args:
        space: A space of Gym.
        spec: The result of `spec_from_gym_space` for it.
        subject: The beginning of error messages.
    """
    return _ActionChecks(subject, "action").converter(space, spec, "action")


class _ActionChecks(conversion.ActionChecks):
    """Makes leaf functions for actions, in the dtypes of the spaces."""

    def leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        kind = _kind(space)
        if kind not in _DTYPES:
            return super().leaf(space, spec, path)
        if isinstance(spec, BoundedArraySpec) and kind == "Discrete":
            return integer_leaf(spec, int)
        return _array_leaf(space, spec)


def _array_leaf(space: Any, spec: ArraySpec) -> Leaf:
    convert = bounded_leaf(spec)
    if _has_dtype_of(space, spec):
        return convert
    dtype = np.dtype(space.dtype)

    def convert_back(value: Any) -> Array:
        array: Array = convert(value)
        return array.astype(dtype)

    return convert_back


def _has_dtype_of(space: Any, spec: ArraySpec) -> bool:
    """Returns True if a space and its spec have the same dtype."""
    own = getattr(space, "dtype", None)
    return own is None or np.dtype(own) == spec.dtype


def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    spec_dtype_map: Mapping[type, Any] | None = None,
    gym_kwargs: Mapping[str, Any] | None = None,
    render_kwargs: Mapping[str, Any] | None = None,
    *,
    private_randomness: bool = True,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a Gym environment by its id.

    `TimeLimit` replaces Gym's own limit of steps, because most versions of Gym do not
    distinguish an episode that was cut off from one that ended.

    Args:
        environment_name: The id, with the module to import first, if any:
            `"my_package:Maze-v0"`.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` for the registered limit, 0 for no limit.
        gym_env_wrappers: Wrappers for Gym's environment, innermost first.
        env_wrappers: Wrappers for the envkit environment, innermost first.
        spec_dtype_map: The dtypes to use in specs, by class of space.
        gym_kwargs: Keyword arguments for the environment's constructor.
        render_kwargs: Keyword arguments for the environment's `render`.
        private_randomness: Whether the environment gets its own global random
            generators, with `PrivateRandomness`.
        **kwargs: More arguments of the constructor.
    """
    require("gym", needed_by=f"The environment {environment_name!r}", extra="gym")
    spec = _spec_of(environment_name)
    if max_episode_steps is None:
        max_episode_steps = spec.max_episode_steps
    prepare_module(
        getattr(spec, "entry_point", None),
        {**(gym_kwargs or {}), **kwargs}.get("render_mode"),
    )
    return wrap_env(
        _make(spec, **(gym_kwargs or {}), **kwargs),
        discount=discount,
        max_episode_steps=max_episode_steps,
        gym_env_wrappers=gym_env_wrappers,
        env_wrappers=env_wrappers,
        spec_dtype_map=spec_dtype_map,
        render_kwargs=render_kwargs,
        private_randomness=private_randomness,
    )


def names() -> list[str]:
    """Lists the ids registered with Gym in this process.

    Example:
        >>> "CartPole-v1" in names()  # doctest: +SKIP
        True
    """
    require("gym", needed_by="suite_gym", extra="gym")
    import gym

    registry = gym.envs.registry
    # A dictionary since 0.26; before, an object that holds one.
    return sorted(getattr(registry, "env_specs", registry))


def wrap_env(
    gym_env: Any,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    time_limit_wrapper: Callable[[PyEnvironment, int], PyEnvironment] = TimeLimit,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    spec_dtype_map: Mapping[type, Any] | None = None,
    auto_reset: bool = True,
    render_kwargs: Mapping[str, Any] | None = None,
    *,
    private_randomness: bool = True,
) -> PyEnvironment:
    """Wraps a Gym environment, with both libraries' wrappers.

    Args:
        gym_env: The environment; Gym itself need not be installed.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` or 0 for no limit.
        gym_env_wrappers: Wrappers for Gym's environment, innermost first.
        time_limit_wrapper: Makes the time limit: `(env, max_episode_steps)`.
        env_wrappers: Wrappers for the envkit environment, innermost first.
        spec_dtype_map: The dtypes to use in specs, by class of space.
        auto_reset: Whether the step after the end of an episode begins the next.
        render_kwargs: Keyword arguments for the environment's `render`.
        private_randomness: Whether the environment gets its own global random
            generators, with `PrivateRandomness`.
    """
    for wrap_gym in gym_env_wrappers:
        gym_env = wrap_gym(gym_env)
    env: PyEnvironment = GymWrapper(
        gym_env,
        discount=discount,
        spec_dtype_map=spec_dtype_map,
        auto_reset=auto_reset,
        render_kwargs=render_kwargs,
    )
    return limited_and_wrapped(
        env,
        max_episode_steps,
        time_limit_wrapper,
        env_wrappers,
        private_randomness=private_randomness,
    )


def _spec_of(name: str) -> Any:
    """Returns the specification registered under an id."""
    import gym

    return gym.spec(id_without_module(name))


def _make(spec: Any, **kwargs: Any) -> Any:
    """Makes an environment without Gym's default wrappers."""
    # A copy, because versions differ in their arguments for a limit.
    spec = copy.copy(spec)
    spec.max_episode_steps = None
    if hasattr(spec, "disable_env_checker"):
        # The checker fails with NumPy 2, which lacks a name that it uses.
        spec.disable_env_checker = True
    return spec.make(**kwargs)
