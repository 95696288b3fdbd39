"""dm_env: its environments as envkit environments, and its specs as envkit's.

```
dm_env                          envkit
Array                           ArraySpec
BoundedArray                    BoundedArraySpec; of booleans, which have no bounds
                                there, ArraySpec
DiscreteArray(n)                BoundedArraySpec, scalar, from 0 to n - 1
StringArray                     ObjectSpec, which takes strings of any length; or, if
                                their length is known, TextSpec
Array of other objects          ObjectSpec
```

Specs of dm_env are recognized by their attributes, so only `spec_to_dm_env` needs the
library.

dm_env knows neither seeds nor states. Both are found in the parts of an environment: in
the attributes of the environment, of those that it wraps, and of the tasks of
dm_control, which begin episodes and compute rewards.
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
    ForeignEnvironment,
    result_of_time_step,
)
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
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = [
    "DmEnvWrapper",
    "Strings",
    "ones_of",
    "spec_from_dm_env",
    "spec_to_dm_env",
    "zeros_of",
]

_TIME_STEP = ("observation", "action", "reward", "discount")
# The methods by which environments and tasks are recognized.
_ENVIRONMENT = ("reset", "step", "observation_spec", "action_spec")
_TASK = ("initialize_episode", "get_reward")
_GENERATORS = (np.random.RandomState, np.random.Generator, random.Random)
_SEEDS = 2**32  # A RandomState takes no larger seed.
# Of numbers of these classes rewards are made without a look at their values.
_FLOATS = frozenset([float, np.float64])


class DmEnvWrapper(ForeignEnvironment):
    """Makes an envkit environment of any `dm_env.Environment`.

    Time steps are the same in both libraries but for the `FIRST`, which has neither
    reward nor discount in dm_env, and reward 0 and discount 1 here. Nothing of dm_env
    is needed, only an environment with its methods.

    Public attributes that the wrapper does not have, such as `physics` and `task`, are
    those of the environment.

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
        """Wraps an environment; closing the wrapper closes it.

        Args:
            env: A `dm_env.Environment`.
            render_kwargs: Keyword arguments for `physics.render`, if it has physics:
                `height`, `width`, `camera_id` and others.
            as_float32: Of what float64 becomes float32: "observation", "action",
                "reward" and "discount". Everything else keeps its dtype.
            text_length: The maximal length of strings. They are then text of a fixed
                width, which travels between processes as numbers do; otherwise they
                are objects of any length.
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
        # A PyToDMWrapper, which has seeds and pictures of its own.
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
        """Returns the specs of a part of a time step, and its converter."""
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
        """The environment of dm_env."""
        return self._foreign

    def wrapped_env(self) -> Any:
        """Returns the environment of dm_env, as wrappers do."""
        return self._foreign

    def seed(self, seed: Seed) -> None:
        """Seeds the environment at the next reset.

        An environment with a method `seed` is seeded by it. In any other, all random
        generators are seeded that the environment, those that it wraps, or their tasks
        hold. What was random when the environment was made, as parts of some models
        are, stays as it is.
        """
        if self._is_ours:
            self._foreign.seed(seed)  # That is for the next reset, too.
            return
        if not self._has("seed") and not _generators_of(self._foreign):
            raise NotImplementedError(
                f"{self._name} cannot be seeded: dm_env knows no seeds, and neither "
                "the environment nor its task has a random generator. Give it a seed "
                "when you make it."
            )
        super().seed(seed)

    def get_info(self) -> Any:
        """Returns the environment's info, which few of dm_env's have."""
        if self._has("get_info"):
            return self._foreign.get_info()
        return PyEnvironment.get_info(self)

    def _draw(self, mode: str) -> Any:
        """Returns a picture from the physics, if there is one.

        MuJoCo needs a way to draw. Where there is no display, `suite_dm_control.load`
        lets it choose EGL or OSMesa; a program that imports dm_control before sets the
        environment variable `MUJOCO_GL` to one of them.
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
            # The discount of most steps follows from the flags.
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
            self._to_discount(discount)  # It raises.
        return result_of_time_step(kind, step.observation, step.reward, discount)

    def _to_reward(self, reward: Any) -> NestedArray:
        return self._read_reward(reward)

    def _to_discount(self, discount: Any) -> NestedArray:
        return self._read_discount(discount)

    def _keep_end(self, info: Any, terminated: bool, truncated: bool) -> None:
        self._info = info  # The discount tells it.

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
    """The state of an environment that has no `get_state`.

    Attributes:
        snapshot: The attributes of its parts, which stay the objects they are.
        physics: The states of its MuJoCo physics, which are no part of the snapshot
            because a pickled copy of one does not go on with the same last digits.
    """

    snapshot: Snapshot
    physics: list[PhysicsState]


def _refuse_memory_of_mujoco(value: Any) -> None:
    """Raises for an array that shows memory of a library that is not NumPy's."""
    if isinstance(value, np.ndarray):
        base: Any = value
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        if not isinstance(base, np.ndarray | bytes | bytearray | memoryview):
            raise pickle.PicklingError(
                "an array that shows the memory of MuJoCo, which a copy would not."
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
    """Returns the reward of a `FIRST`."""
    return np.zeros(spec.shape, spec.dtype)


def ones_of(spec: ArraySpec) -> Array:
    """Returns the discount of a `FIRST`."""
    return np.ones(spec.shape, spec.dtype)


def _parts_of(env: Any) -> list[Any]:
    """Lists an environment, those that it wraps, and their tasks, from the outside."""
    parts = [env]
    for part in parts:  # It grows meanwhile.
        for name, value in getattr(part, "__dict__", {}).items():
            # Not the object, because some wrappers look for attributes elsewhere.
            kind = type(value)
            is_part = _has_methods(kind, _ENVIRONMENT) or _has_methods(kind, _TASK)
            if is_part or name in ("task", "_task"):
                _add(parts, value)
    return parts


def _has_methods(env: Any, names: tuple[str, ...]) -> bool:
    return all(callable(getattr(env, name, None)) for name in names)


def _generators_of(env: Any) -> list[Any]:
    """Lists the random generators of an environment and its parts."""
    return _held_by(_parts_of(env), lambda value: isinstance(value, _GENERATORS))


def _held_by(parts: list[Any], fits: Callable[[Any], bool]) -> list[Any]:
    """Lists the attributes of some parts that fit, each object once."""
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
    """Seeds generators: one with the seed itself, several with seeds made of it."""
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


# Makes the error for a value, and the reason why it does not fit.
_Refuse: TypeAlias = Callable[[Any, str], SpecError]

_SUPPORTED = "biufUSO"
_FLOAT32 = np.dtype(np.float32)


def spec_from_dm_env(
    spec: Any, path: str = "", *, narrow: bool = False, text_length: int | None = None
) -> ArraySpec:
    """Makes a spec of envkit of one of dm_env's.

    Args:
        spec: The spec.
        path: Where it stands, for errors.
        narrow: Whether float64 becomes float32.
        text_length: The maximal length of strings; `None` if that is not known.
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
        f"The spec at {path} is {spec!r:.120}, which is not supported: there are specs "
        "for arrays of numbers, of booleans, of text and of objects."
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
    """Returns bounds, with finite ones that float32 does not reach moved into it."""
    limits = np.finfo(np.float32)
    bound = np.asarray(bound)
    return np.where(np.isinf(bound), bound, np.clip(bound, limits.min, limits.max))


def _reader(theirs: Any, spec: ArraySpec, refuse: _Refuse) -> Leaf:
    """Returns a function that makes the array of a spec from a value of dm_env.

    Args:
        theirs: The spec of dm_env.
        spec: The spec that `spec_from_dm_env` made of it.
        refuse: Makes the error for a value of another kind, and the reason.
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
    """Returns a function that makes an action of dm_env from a value that fits a spec.

    Single values become NumPy's numbers, or strings, because environments use them as
    indices and as keys.

    Args:
        theirs: The spec of dm_env.
        spec: The spec that `spec_from_dm_env` made of it.
        refuse: Makes the error for a value of another kind, and the reason.
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
        # A bound as a float32 may lie a little beyond the bound itself.
        return (wide if low is None else np.clip(wide, low, high))[()]

    return convert_wide


def _object_leaf(theirs: Any, spec: ArraySpec, refuse: _Refuse) -> Leaf:
    """Returns a function that makes a new array of checked objects."""
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
            objects[index] = kind(item)  # NumPy has strings of its own.
            if not isinstance(spec, ObjectSpec):
                _check_width(objects[index], spec, objects, refuse)
        return objects

    return convert


def _as_objects(value: Any, shape: tuple[int, ...], *, is_text: bool) -> Array | None:
    if not shape and not is_text and not isinstance(value, np.ndarray):
        # It may be a list, of which NumPy would make an array.
        return ObjectSpec.wrap(value)  # type: ignore[no-any-return]  # an array
    try:
        return np.array(value, object)
    except ValueError:  # Rows that differ in length.
        return None


def _check_width(text: Any, spec: ArraySpec, whole: Array, refuse: _Refuse) -> None:
    """Refuses text that a fixed width would change."""
    # It loses what is too long, and NULs at the end.
    if np.array(text, spec.dtype)[()] != text:
        reason = (
            f"A text of {len(text)} characters does not keep its form in {spec.dtype}. "
            "Make the wrapper with a larger text_length; without one texts have any "
            "length."
        )
        raise refuse(whole, reason)


def spec_to_dm_env(spec: ArraySpec) -> Any:
    """Makes a spec of dm_env of one of envkit's; dm_env must be installed.

    An integer scalar from 0 is a `DiscreteArray`. Text of a fixed width is an `Array`
    of its dtype, so that nothing is lost.

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
