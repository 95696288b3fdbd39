"""dm_env: wraps its environments, and converts specs in both directions.

```
dm_env                          envkit
Array                           ArraySpec
BoundedArray                    BoundedArraySpec; ArraySpec if the dtype is boolean
DiscreteArray(n)                BoundedArraySpec, scalar, from 0 to n - 1
StringArray                     ObjectSpec for strings of any length, or TextSpec if
                                their length is known
Array of other objects          ObjectSpec
```

dm_env's specs are recognised by their attributes, so only `spec_to_dm_env` needs the
library.

dm_env has neither seeds nor states. The adapter finds random generators and state in
the attributes of the environment, of the environments it wraps, and of dm_control's
tasks, which begin episodes and compute rewards.
"""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np

from envkit.adapters.foreign import (
    First,
    ForeignTimeSteps,
    result_of_time_step,
)
from envkit.adapters.known_actions import NamedActions
from envkit.adapters.mujoco import (
    PhysicsState,
    check_can_draw,
    is_mujoco,
    restore_physics,
    save_physics,
    size_of,
)
from envkit.adapters.state import Snapshot, restore_snapshot, take_snapshot
from envkit.adapters.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    few_numbers,
    integer_leaf,
    map_with_paths,
)
from envkit.errors import SpecError
from envkit.extend import Result, describe
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, is_discrete
from envkit.specs.special import ObjectSpec, Strings, TextSpec
from envkit.time_step import DISCOUNT_SPEC, REWARD_SPEC
from envkit.types import Array, NestedSpec, Seed

__all__ = [
    "DmEnvWrapper",
    "Strings",
    "ones_of",
    "spec_from_dm_env",
    "spec_to_dm_env",
    "zeros_of",
]

_TIME_STEP = ("observation", "action", "reward", "discount")
# Environments and tasks are recognised by these methods.
_ENVIRONMENT = ("reset", "step", "observation_spec", "action_spec")
_TASK = ("initialize_episode", "get_reward")
_GENERATORS = (np.random.RandomState, np.random.Generator, random.Random)
_SEEDS = 2**32  # the largest seed of a RandomState, plus 1
# Rewards of these classes are converted without checking them.
_FLOATS = frozenset([float, np.float64])


class DmEnvWrapper(NamedActions, ForeignTimeSteps):
    """Wraps any `dm_env.Environment`.

    Time steps are the same in both libraries except for `FIRST`: dm_env gives it no
    reward and no discount, envkit gives it reward 0 and discount 1. dm_env need not be
    installed; an environment with its methods is enough.

    | dm_env              | spec                                                       |
    |---------------------|------------------------------------------------------------|
    | `Array`             | `ArraySpec`                                                |
    | `BoundedArray`      | `BoundedArraySpec`, or `ArraySpec` for booleans            |
    | `DiscreteArray(n)`  | scalar `BoundedArraySpec` from 0 to `n - 1`                |
    | `StringArray`       | `ObjectSpec`, or with `text_length` a `TextSpec`           |
    | `Array` of objects  | `ObjectSpec`                                               |
    | a nest of specs     | the same nest                                              |

    `get_state` calls the environment's own, if it has that and `set_state`. Otherwise a
    state has the attributes of the environment and its tasks, and the physics. `reset`
    takes no options. `get_info` and `render` are the environment's own, or the physics'
    picture.

    Public attributes that the wrapper lacks, such as `physics` and `task`, are taken
    from the environment.

    Example:
        >>> from envkit.adapters import PyToDMWrapper
        >>> from envkit.testing import CountingEnv
        >>> env = DmEnvWrapper(PyToDMWrapper(CountingEnv(steps_per_episode=2)))
        >>> [int(env.step(0).step_type) for _ in range(4)]
        [0, 1, 2, 0]
    """

    _hint = ""

    def __init__(
        self,
        env: Any,
        render_kwargs: Mapping[str, Any] | None = None,
        *,
        as_float32: Collection[str] = ("reward", "discount"),
        text_length: int | None = None,
    ) -> None:
        """Wraps an environment; closing the wrapper closes the environment.

        Args:
            env: A `dm_env.Environment`.
            render_kwargs: Keyword arguments for `physics.render`, if it has physics:
                `height`, `width`, `camera_id` and others.
            as_float32: The parts whose float64 becomes float32: "observation",
                "action", "reward" and "discount". Other parts keep their dtypes.
            text_length: The maximum length of strings. They then become text of a fixed
                width, which travels between processes as fast as numbers; without it,
                they are objects of any length.
        """
        if isinstance(env, type) or not _has_methods(env, _ENVIRONMENT):
            is_class = isinstance(env, type)
            raise TypeError(
                f"{type(self).__name__} was given "
                f"{f'the class {env.__name__}' if is_class else describe(env)}, which "
                f"is not a dm_env.Environment.{self._hint}"
            )
        super().__init__(handle_auto_reset=True)
        self._foreign = env
        self._name = type(env).__name__
        self._render_kwargs = dict(render_kwargs or {})
        self._narrow = _checked_parts(as_float32)
        self._text_length = text_length
        # A PyToDMWrapper has its own seeds and pictures.
        self._is_ours = isinstance(getattr(env, "environment", None), PyEnvironment)
        self._observation_spec, self._to_observation = self._read("observation")
        self._reward_spec, self._read_reward = self._read("reward", REWARD_SPEC)
        self._discount_spec, self._read_discount = self._read("discount", DISCOUNT_SPEC)
        self._action_spec, self._to_action = self._converted(
            "action",
            env.action_spec(),
            f"{type(self).__name__}.step() was given an action that",
            _writer,
        )
        self._prepare()
        reward_spec = self._reward_spec
        is_float = isinstance(reward_spec, ArraySpec) and reward_spec.dtype.kind == "f"
        self._numbers = _FLOATS if is_float and reward_spec.shape == () else frozenset()

    def _read(
        self, part: str, default: ArraySpec | None = None
    ) -> tuple[NestedSpec, Converter]:
        """Returns the specs of a part of a time step, and the part's converter."""
        ask: Callable[[], Any] = getattr(self._foreign, f"{part}_spec", lambda: default)
        article = "an" if part == "observation" else "a"
        subject = f"{self._name} returned {article} {part} that"
        return self._converted(part, ask(), subject, _reader)

    def _converted(
        self,
        part: str,
        theirs: Any,
        subject: str,
        make_leaf: Callable[[Any, ArraySpec, _Refuse], Leaf],
    ) -> tuple[NestedSpec, Converter]:
        def spec_of(leaf: Any, path: str) -> ArraySpec:
            return spec_from_dm_env(
                leaf, path, narrow=part in self._narrow, text_length=self._text_length
            )

        def leaf_of(leaf: Any, path: str) -> Leaf:
            spec = spec_of(leaf, path)

            def refuse(value: Any, reason: str) -> SpecError:
                return SpecError.does_not_fit(
                    subject,
                    path=path,
                    root=part,
                    expected=repr(spec),
                    got=describe(value),
                    reason=reason,
                )

            return make_leaf(leaf, spec, refuse)

        specs = map_with_paths(spec_of, theirs, part)
        leaves = map_with_paths(leaf_of, theirs, part)
        return specs, Converter(specs, leaves, subject=subject, root=part)

    @property
    def dm_env(self) -> Any:
        """The dm_env environment."""
        return self._foreign

    def wrapped_env(self) -> Any:
        """Returns the dm_env environment, as wrappers do."""
        return self._foreign

    def seed(self, seed: Seed) -> None:
        """Seeds the environment at the next reset.

        If the environment has a `seed` method, that is called. Otherwise every random
        generator held by the environment, by the environments it wraps, or by their
        tasks is seeded. Whatever was drawn when the environment was made, such as parts
        of some models, stays the same.
        """
        if self._is_ours:
            self._foreign.seed(seed)  # it applies to the next reset too
            return
        if not self._has("seed") and not _generators_of(self._foreign):
            raise NotImplementedError(
                f"{self._name} cannot be seeded: dm_env has no seeds, and neither the "
                "environment nor its task has a random generator. Give it a seed when "
                "you make it."
            )
        super().seed(seed)

    def get_info(self) -> Any:
        """Returns the environment's info; few dm_env environments have one."""
        if self._has("get_info"):
            return self._foreign.get_info()
        return PyEnvironment.get_info(self)

    def _draw(self, mode: str) -> Any:
        """Returns a picture drawn by the physics, if there is one.

        MuJoCo needs a drawing library. Without a display, `suite_dm_control.load` lets
        dm_control choose EGL or OSMesa; a program that imports dm_control earlier must
        set the environment variable `MUJOCO_GL` to one of them.
        """
        if self._is_ours and self._foreign.row is None:
            return self._foreign.render(mode)
        physics = getattr(self._foreign, "physics", None)
        if physics is None or not hasattr(physics, "render"):
            raise NotImplementedError(
                f"{self._name} cannot render: it has no physics to draw."
            )
        if mode != "rgb_array":
            raise ValueError(f"{self._name} renders 'rgb_array' only, not {mode!r}.")
        if is_mujoco(physics):
            check_can_draw(self._name)
        return physics.render(**self._render_kwargs)

    def _has(self, method: str) -> bool:
        return callable(getattr(self._foreign, method, None))

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        if seed is not None:
            if self._has("seed"):
                self._foreign.seed(seed)
            else:
                _reseed(_generators_of(self._foreign), seed)
        result = self._as_result(self._foreign.reset(), "reset")
        return result.observation if result.__class__ is First else result, {}

    def _move(self, action: Any) -> Any:
        # Hot: called once per step.
        step = self._foreign.step(action)
        try:
            # Usually the discount follows from the flags.
            is_usual = step.discount.__class__ is float and step.discount == self._usual
            if is_usual and step.step_type == 1:
                return step.observation, step.reward, False, False, {}
        except (AttributeError, ValueError):
            self._refuse(step, "step")
        return self._as_result(step, "step")

    def _as_result(self, step: Any, call: str) -> Result:
        # Hot: called once per step.
        try:
            kind = int(step.step_type)
        except (AttributeError, TypeError):
            self._refuse(step, call)
        if not 0 <= kind <= 2:
            self._refuse(step, call)
        discount = step.discount
        if discount is None and kind:
            self._to_discount(discount)  # raises
        return result_of_time_step(kind, step.observation, step.reward, discount)

    def _knows_info(self) -> bool:
        is_ours = type(self).get_info is DmEnvWrapper.get_info
        return is_ours and not self._has("get_info")

    def _choices(self) -> Mapping[int, Any] | None:
        action = self._action_spec
        if not isinstance(action, ArraySpec):
            return None
        if action.shape == ():
            is_number = isinstance(action, BoundedArraySpec) and is_discrete(action)
            return few_numbers(action) or None if is_number else None  # type: ignore[arg-type]  # it is bounded
        is_theirs = np.dtype(self._foreign.action_spec().dtype) == action.dtype
        return {} if is_theirs else None

    def _refuse(self, theirs: Any, call: str) -> NoReturn:
        if hasattr(theirs, "step_type"):
            raise SpecError(
                f"{self._name}.{call}() returned a time step with the step type "
                f"{theirs.step_type!r:.40}. FIRST is 0, MID is 1, LAST is 2."
            )
        raise SpecError(
            f"{self._name}.{call}() returned {describe(theirs)}, not a dm_env.TimeStep."
        )

    def _get_state(self) -> Any:
        if self._has("get_state") and self._has("set_state"):
            return self._foreign.get_state(), self._next_seed
        parts = _parts_of(self._foreign)
        physics = _held_by(parts, is_mujoco)
        snapshot = take_snapshot(
            self._foreign,
            self._name,
            self._next_seed,
            layers=parts,
            kept=physics,
            check=_refuse_memory_of_mujoco if physics else None,
        )
        return _State(snapshot, [save_physics(one) for one in physics])

    def _set_state(self, state: Any) -> None:
        if self._has("get_state") and self._has("set_state"):
            own, self._next_seed = state
            self._foreign.set_state(own)
            return
        parts = _parts_of(self._foreign)
        physics = _held_by(parts, is_mujoco)
        saved = state.physics if isinstance(state, _State) else []
        sizes = [size_of(one) for one in physics], [one.size for one in saved]
        if isinstance(state, _State) and sizes[0] != sizes[1]:
            expected, got = (" and ".join(each) or "no MuJoCo model" for each in sizes)
            raise ValueError(
                f"{self._name} was given the state of another environment.\n\n"
                f"  expected   {expected}\n"
                f"  got        {got}\n\n"
                "A state fits the same environment in the same wrappers."
            )
        snapshot = state.snapshot if isinstance(state, _State) else state
        self._next_seed = restore_snapshot(
            self._foreign, self._name, snapshot, layers=parts, kept=physics
        )
        for one, its_state in zip(physics, saved, strict=True):
            restore_physics(one, its_state)


@dataclasses.dataclass(frozen=True, slots=True)
class _State:
    """Holds the state of an environment without `get_state`.

    Attributes:
        snapshot: The attributes of its parts; the parts themselves stay in place.
        physics: The states of its MuJoCo physics. They are not in the snapshot, because
            a pickled copy of a physics computes slightly different digits.
    """

    snapshot: Snapshot
    physics: list[PhysicsState]


def _refuse_memory_of_mujoco(value: Any) -> None:
    """Raises for an array whose memory belongs to a library other than NumPy."""
    if isinstance(value, np.ndarray):
        base: Any = value
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        if not isinstance(base, np.ndarray | bytes | bytearray | memoryview):
            raise pickle.PicklingError(
                "an array that shares MuJoCo's memory, which a copy would not."
            )


def _checked_parts(parts: Collection[str]) -> frozenset[str]:
    if isinstance(parts, str):
        raise TypeError(
            f"as_float32 must be a list of names, got {parts!r}. Write [{parts!r}]."
        )
    unknown = sorted(set(parts) - set(_TIME_STEP))
    if unknown:
        raise ValueError(
            f"as_float32 has no part {unknown[0]!r}. The parts are "
            f"{', '.join(_TIME_STEP)}."
        )
    return frozenset(parts)


def zeros_of(spec: ArraySpec) -> Array:
    """Returns the reward of a `FIRST`: zeros."""
    return np.zeros(spec.shape, spec.dtype)


def ones_of(spec: ArraySpec) -> Array:
    """Returns the discount of a `FIRST`: ones."""
    return np.ones(spec.shape, spec.dtype)


def _parts_of(env: Any) -> list[Any]:
    """Lists an environment, the ones it wraps, and their tasks, outermost first."""
    parts = [env]
    for part in parts:  # grows meanwhile
        for name, value in getattr(part, "__dict__", {}).items():
            # Look at the class: some wrappers forward attribute look-ups elsewhere.
            kind = type(value)
            is_part = _has_methods(kind, _ENVIRONMENT) or _has_methods(kind, _TASK)
            if is_part or name in ("task", "_task"):
                _add(parts, value)
    return parts


def _has_methods(env: Any, names: tuple[str, ...]) -> bool:
    return all(callable(getattr(env, name, None)) for name in names)


def _generators_of(env: Any) -> list[Any]:
    """Lists the random generators held by an environment and its parts."""
    return _held_by(_parts_of(env), lambda value: isinstance(value, _GENERATORS))


def _held_by(parts: list[Any], fits: Callable[[Any], bool]) -> list[Any]:
    """Lists the parts' attributes that satisfy `fits`, each object once."""
    found: list[Any] = []
    for part in parts:
        for value in getattr(part, "__dict__", {}).values():
            if fits(value):
                _add(found, value)
    return found


def _add(found: list[Any], value: Any) -> None:
    if not any(value is other for other in found):
        found.append(value)


def _reseed(generators: list[Any], seed: int) -> None:
    """Seeds one generator with the seed itself, or several with derived seeds."""
    if len(generators) == 1 and seed < _SEEDS:
        seeds = [seed]
    else:
        seeds = np.random.SeedSequence(seed).generate_state(len(generators)).tolist()
    for generator, own in zip(generators, seeds, strict=True):
        if isinstance(generator, np.random.Generator):
            bits = generator.bit_generator
            bits.state = type(bits)(own).state
        else:
            generator.seed(own)


# Makes the error for a value, given the reason why it does not fit.
_Refuse: TypeAlias = Callable[[Any, str], SpecError]

_SUPPORTED = "biufUSO"
_FLOAT32 = np.dtype(np.float32)


def spec_from_dm_env(
    spec: Any, path: str = "", *, narrow: bool = False, text_length: int | None = None
) -> ArraySpec:
    """Converts a dm_env spec to an envkit spec.

    Args:
        spec: The spec.
        path: Its path, for error messages.
        narrow: Whether float64 becomes float32.
        text_length: The maximum length of strings; `None` if unknown.
    """
    missing = [name for name in ("shape", "dtype") if not hasattr(spec, name)]
    if missing or np.dtype(spec.dtype).kind not in _SUPPORTED:
        raise _not_supported(spec, path)
    name = getattr(spec, "name", None)
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "O":
        return _object_spec(spec, name, text_length)
    narrowed = _FLOAT32 if narrow and dtype == np.float64 else dtype
    if not hasattr(spec, "minimum") or dtype.kind not in "iuf":
        return ArraySpec(spec.shape, narrowed, name)
    low, high = spec.minimum, spec.maximum
    if narrowed != dtype:
        low, high = _within_float32(low), _within_float32(high)
    return BoundedArraySpec(spec.shape, narrowed, low, high, name)


def _not_supported(spec: Any, path: str) -> SpecError:
    error = SpecError(
        f"The spec at {path} is {spec!r:.120}, which is not supported: specs are for "
        "arrays of numbers, booleans, text or objects."
    )
    error.path = path
    return error


def _object_spec(spec: Any, name: str | None, text_length: int | None) -> ArraySpec:
    kind = getattr(spec, "string_type", None)
    if kind is None:
        return ObjectSpec(spec.shape, name=name)
    if text_length is None:
        return ObjectSpec(spec.shape, name=name, kind=Strings(kind))
    if kind is str:
        return TextSpec(spec.shape, f"<U{text_length}", name)
    return ArraySpec(spec.shape, f"S{text_length}", name)


def _within_float32(bound: Any) -> Any:
    """Returns bounds, with finite ones clipped to the range of float32."""
    limits = np.finfo(np.float32)
    bound = np.asarray(bound)
    return np.where(np.isinf(bound), bound, np.clip(bound, limits.min, limits.max))


def _reader(theirs: Any, spec: ArraySpec, refuse: _Refuse) -> Leaf:
    """Returns a function that converts a value from dm_env to an array of a spec.

    Args:
        theirs: The dm_env spec.
        spec: The result of `spec_from_dm_env` for it.
        refuse: Makes the error for an unsuitable value, given the reason.
    """
    if np.dtype(theirs.dtype).kind == "O":
        convert_objects = _object_leaf(theirs, spec, refuse)
        if isinstance(spec, ObjectSpec):
            return convert_objects
        return lambda value: convert_objects(value).astype(spec.dtype)
    convert_other = array_leaf(spec)
    if spec.shape or spec.dtype.kind != "f":
        return convert_other
    dtype = spec.dtype

    def convert_number(value: Any) -> Array:
        # Hot: called once per step, of rewards and discounts.
        if type(value) is float or type(value) is np.float64:
            return np.array(value, dtype)
        array: Array = convert_other(value)
        return array

    return convert_number


def _writer(theirs: Any, spec: ArraySpec, refuse: _Refuse) -> Leaf:
    """Returns a function that converts a value that fits a spec to a dm_env action.

    Scalars become NumPy scalars or strings, because environments use them as indices
    and dictionary keys.

    Args:
        theirs: The dm_env spec.
        spec: The result of `spec_from_dm_env` for it.
        refuse: Makes the error for an unsuitable value, given the reason.
    """
    if np.dtype(theirs.dtype).kind == "O":
        convert_objects = _object_leaf(theirs, spec, refuse)
        return lambda value: convert_objects(value)[()]
    convert = bounded_leaf(spec)
    dtype = np.dtype(theirs.dtype)
    if isinstance(spec, BoundedArraySpec) and not spec.shape and dtype.kind in "iu":
        return integer_leaf(spec)
    if dtype == spec.dtype:
        return lambda value: convert(value)[()]
    low, high = getattr(theirs, "minimum", None), getattr(theirs, "maximum", None)

    def convert_wide(value: Any) -> Any:
        wide = convert(value).astype(dtype)
        # Rounded to float32, a bound may lie slightly outside the original bound.
        return (wide if low is None else np.clip(wide, low, high))[()]

    return convert_wide


def _object_leaf(theirs: Any, spec: ArraySpec, refuse: _Refuse) -> Leaf:
    """Returns a function that copies objects to a new array and checks them."""
    shape = spec.shape
    kind = getattr(theirs, "string_type", None)

    def convert(value: Any) -> Array:
        objects = _as_objects(value, shape, is_text=kind is not None)
        if objects is None or objects.shape != shape:
            raise refuse(value, f"An array of shape {shape} is expected.")
        if kind is None:
            return objects
        for index, item in np.ndenumerate(objects):
            if not isinstance(item, kind):
                place = f" at index {index}" if index else ""
                reason = f"There is {describe(item)}{place}; it takes {kind.__name__}."
                raise refuse(objects, reason)
            objects[index] = kind(item)  # NumPy has its own string classes
            if not isinstance(spec, ObjectSpec):
                _check_width(objects[index], spec, objects, refuse)
        return objects

    return convert


def _as_objects(value: Any, shape: tuple[int, ...], *, is_text: bool) -> Array | None:
    if not shape and not is_text and not isinstance(value, np.ndarray):
        # NumPy would turn a list into an array.
        return ObjectSpec.wrap(value)  # type: ignore[no-any-return]  # an array
    try:
        return np.array(value, object)
    except ValueError:  # rows of different lengths
        return None


def _check_width(text: Any, spec: ArraySpec, whole: Array, refuse: _Refuse) -> None:
    """Raises if a fixed width would change the text."""
    # NumPy cuts long texts and drops trailing NULs.
    if np.array(text, spec.dtype)[()] != text:
        reason = (
            f"A text of {len(text)} characters does not keep its form in {spec.dtype}. "
            "Make the wrapper with a larger text_length; without one, texts may have "
            "any length."
        )
        raise refuse(whole, reason)


def spec_to_dm_env(spec: ArraySpec) -> Any:
    """Converts an envkit spec to a dm_env spec; dm_env must be installed.

    An integer scalar with minimum 0 becomes a `DiscreteArray`. Text of a fixed width
    becomes an `Array` of its dtype, so that nothing is lost.

    Example:
        >>> spec_to_dm_env(BoundedArraySpec((), "int64", 0, 4, name="way")).num_values
        5
    """
    from dm_env import specs

    if isinstance(spec, ObjectSpec):
        if isinstance(spec.kind, Strings):
            return specs.StringArray(spec.shape, spec.kind.kind, spec.name)
        return specs.Array(spec.shape, object, spec.name)
    if not isinstance(spec, BoundedArraySpec):
        return specs.Array(spec.shape, spec.dtype, spec.name)
    if spec.shape == () and spec.dtype.kind in "iu" and spec.minimum == 0:
        return specs.DiscreteArray(int(spec.maximum) + 1, spec.dtype, spec.name)
    make: Callable[..., Any] = specs.BoundedArray
    return make(spec.shape, spec.dtype, spec.minimum, spec.maximum, spec.name)
