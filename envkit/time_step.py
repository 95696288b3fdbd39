"""Time steps, and the functions that make them.

Every environment's stream is `FIRST (MID)* LAST`, repeated. A `LAST` with discount 0 is
a termination; a `LAST` with a positive discount is a truncation, whose state value can
be bootstrapped.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from envkit import nest
from envkit._internal import tensor_bridge as _tensor_bridge
from envkit._internal.missing_names import explains_words
from envkit._internal.text import foreign
from envkit.errors import SpecError
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, as_array
from envkit.specs.validation import describe
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "DISCOUNT_SPEC",
    "FLAGS",
    "REWARD_SPEC",
    "STEP_TYPE_SPEC",
    "AutoReset",
    "StepType",
    "TimeStep",
    "derive_from_tf_agents",
    "flags_in",
    "restart",
    "termination",
    "time_step_spec",
    "transition",
    "truncation",
]


def _constant(value: int) -> Array:
    array = np.array(value, np.int32)
    array.setflags(write=False)
    return array


class StepType:
    """The place of a time step in its episode: `FIRST`, `MID` or `LAST`.

    Each is a read-only scalar array, so comparing it with arrays, numbers and tensors
    works as expected. `StepType(1)` is `StepType.MID`.

    Example:
        >>> bool(StepType.FIRST == 0), StepType(2) is StepType.LAST
        (True, True)
    """

    FIRST: ClassVar[Array] = _constant(0)
    MID: ClassVar[Array] = _constant(1)
    LAST: ClassVar[Array] = _constant(2)

    def __new__(cls, value: Any) -> Array:  # type: ignore[misc]  # constants, no instances
        """Returns the constant for 0, 1 or 2."""
        for constant in (cls.FIRST, cls.MID, cls.LAST):
            if np.ndim(value) == 0 and value == constant:
                return constant
        raise ValueError(
            f"No known conversion from {value!r} to a StepType: FIRST is 0, MID is 1, "
            "LAST is 2."
        )


_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
# Scalars for comparisons, because PyTorch warns about read-only arrays.
_FIRST_NUMBER, _MID_NUMBER, _LAST_NUMBER = np.int32(0), np.int32(1), np.int32(2)

# The default specs. Specs are immutable, so all environments share these.
STEP_TYPE_SPEC = ArraySpec((), np.int32, name="step_type")
REWARD_SPEC = ArraySpec((), np.float32, name="reward")
DISCOUNT_SPEC = BoundedArraySpec((), np.float32, 0.0, 1.0, name="discount")


@explains_words
class TimeStep(NamedTuple):
    """The result of `reset` and `step`.

    In a batch every array begins with the dimension of rows. The class's name and the
    order of its fields are TF-Agents', so TensorFlow treats both as one structure.

    Attributes:
        step_type: `FIRST`, `MID` or `LAST`.
        reward: The reward of the action before; 0 in a `FIRST`.
        discount: The weight of later rewards; 0 after a termination.
        observation: What the agent sees.

    Example:
        >>> time_step = transition(np.zeros(2), reward=1.0)
        >>> bool(time_step.is_last()), float(time_step.reward)
        (False, 1.0)
    """

    step_type: Any
    reward: NestedArray
    discount: Any
    observation: NestedArray

    def is_first(self) -> Any:
        """Tells, for each row of a batch, whether an episode begins here."""
        return self.step_type == _FIRST_NUMBER

    def is_mid(self) -> Any:
        """Tells, for each row of a batch, whether it is in mid-episode."""
        return self.step_type == _MID_NUMBER

    def is_last(self) -> Any:
        """Tells, for each row of a batch, whether an episode ends here."""
        return self.step_type == _LAST_NUMBER

    def __hash__(self) -> int:
        return hash(tuple(nest.flatten(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        # As NumPy would, were this not here, but with a message of its own.
        try:
            return np.array(tuple(self), dtype)
        except ValueError:
            raise ValueError(
                "A TimeStep is no array, but four values: step_type, reward, discount "
                "and observation. Write time_step.observation for what the agent sees."
            ) from None

    def __repr__(self) -> str:
        import pprint

        fields = pprint.pformat(self._asdict(), sort_dicts=False)
        return f"TimeStep(\n{fields})"


def derive_from_tf_agents() -> None:
    """Makes `TimeStep` a subclass of TF-Agents' `TimeStep`, if that is imported.

    TF-Agents' agents and policies refuse time step specs of other classes. With their
    class as a base, every time step of envkit is one of theirs, earlier ones included,
    and needs no conversion. This neither imports TF-Agents nor changes a method,
    because envkit's class has all of them.
    """
    theirs = getattr(
        sys.modules.get("tf_agents.trajectories.time_step"), "TimeStep", TimeStep
    )
    # Both are tuples with the same fields, so the one can take the place of `tuple`.
    if not issubclass(TimeStep, theirs) and theirs._fields == TimeStep._fields:
        TimeStep.__bases__ = (theirs,)


def restart(
    observation: NestedArray,
    batch_size: int | Sequence[int] | None = None,
    reward_spec: NestedSpec | None = None,
) -> TimeStep:
    """Returns the time step that begins an episode: `FIRST`, reward 0, discount 1.

    Args:
        observation: Passed through as it is.
        batch_size: The size of the batch, or all its dimensions; `None` for no batch.
        reward_spec: The shape and dtype of the reward, if it is not a float32 scalar.

    Example:
        >>> restart(np.zeros((3, 4)), batch_size=3).reward
        array([0., 0., 0.], dtype=float32)
    """
    tensors = _tensor_bridge.tensor_time_steps(observation)
    if tensors is not None:
        return tensors.restart(observation, batch_size, reward_spec)  # type: ignore[no-any-return]
    dims = () if batch_size is None else _dims(batch_size, "restart", "batch_size")
    reward = (
        np.zeros(dims, np.float32)
        if reward_spec is None
        else _zero_rewards(reward_spec, dims)
    )
    return TimeStep(
        _step_types(_FIRST, dims), reward, np.ones(dims, np.float32), observation
    )


def transition(
    observation: NestedArray,
    reward: NestedArray,
    discount: Any = 1.0,
    outer_dims: Sequence[int] | None = None,
) -> TimeStep:
    """Returns a time step in the middle of an episode: `MID`.

    Args:
        observation: Passed through as it is.
        reward: A number, an array or a nest of them.
        discount: A number for all, or an array with the batch's dimensions.
        outer_dims: The batch's dimensions. `None` takes them from the reward, whose
            first dimension then is the batch size. `()` means that there is no batch,
            whatever the reward's shape, and keeps the reward's dtype.

    Example:
        >>> transition(np.zeros((2, 4)), reward=np.ones(2), discount=0.5).discount
        array([0.5, 0.5], dtype=float32)
        >>> transition(np.zeros(4), np.ones(3, np.float32), outer_dims=()).step_type
        array(1, dtype=int32)
    """
    tensors = _tensor_bridge.tensor_time_steps(observation, reward)
    if tensors is not None:
        return tensors.transition(observation, reward, discount, outer_dims)  # type: ignore[no-any-return]
    return _step("transition", _MID, observation, reward, discount, outer_dims)


def termination(
    observation: NestedArray,
    reward: NestedArray,
    outer_dims: Sequence[int] | None = None,
) -> TimeStep:
    """Returns the time step that terminates an episode: `LAST`, discount 0.

    Args:
        observation: Passed through as it is.
        reward: A number, an array or a nest of them.
        outer_dims: The batch's dimensions, as in `transition`.

    Example:
        >>> time_step = termination(np.zeros(4), reward=1.0)
        >>> bool(time_step.is_last()), float(time_step.discount)
        (True, 0.0)
    """
    tensors = _tensor_bridge.tensor_time_steps(observation, reward)
    if tensors is not None:
        return tensors.termination(observation, reward, outer_dims)  # type: ignore[no-any-return]
    return _step("termination", _LAST, observation, reward, 0.0, outer_dims)


def truncation(
    observation: NestedArray,
    reward: NestedArray,
    discount: Any = 1.0,
    outer_dims: Sequence[int] | None = None,
) -> TimeStep:
    """Returns the time step at which an episode is cut off: `LAST`, discount as given.

    Args:
        observation: Passed through as it is.
        reward: A number, an array or a nest of them.
        discount: A number for all, or an array with the batch's dimensions.
        outer_dims: The batch's dimensions, as in `transition`.

    Example:
        >>> time_step = truncation(np.zeros(4), reward=1.0)
        >>> bool(time_step.is_last()), float(time_step.discount)
        (True, 1.0)
    """
    tensors = _tensor_bridge.tensor_time_steps(observation, reward)
    if tensors is not None:
        return tensors.truncation(observation, reward, discount, outer_dims)  # type: ignore[no-any-return]
    return _step("truncation", _LAST, observation, reward, discount, outer_dims)


def time_step_spec(
    observation_spec: NestedSpec | None = None, reward_spec: NestedSpec | None = None
) -> TimeStep:
    """Returns the specs of a time step's four fields, as a `TimeStep`.

    Without an observation spec every field is empty.

    Example:
        >>> time_step_spec(ArraySpec((4,), np.float32)).discount.maximum
        array(1., dtype=float32)
    """
    derive_from_tf_agents()
    if observation_spec is None:
        return TimeStep((), (), (), ())
    tensors = _tensor_bridge.tensor_time_steps(observation_spec)
    if tensors is not None:
        return tensors.time_step_spec(observation_spec, reward_spec)  # type: ignore[no-any-return]
    _check_specs("time_step_spec", "observation_spec", observation_spec)
    for path, leaf in nest.flatten_with_paths(observation_spec):
        if hasattr(leaf.dtype, "as_numpy_dtype"):
            raise TypeError(
                f"The observation spec at {path} is {leaf!r:.80}, but its first leaf "
                "is an ArraySpec. All must be of one kind."
            )
    for path, leaf in nest.flatten_with_paths(reward_spec or ()):
        if not isinstance(leaf, ArraySpec):
            place = f" at {path}" if path else ""
            raise TypeError(
                f"The reward spec{place} is {foreign(leaf) or f'{leaf!r:.80}'}, but "
                "the observation spec is made of ArraySpecs. Both must be of one kind."
            )
    return TimeStep(
        step_type=STEP_TYPE_SPEC,
        # An empty nest counts as none, as in TF-Agents.
        reward=reward_spec or REWARD_SPEC,
        discount=DISCOUNT_SPEC,
        observation=observation_spec,
    )


class AutoReset(enum.Enum):
    """When a batch begins the episode after a `LAST`.

    | | `step` returns for a row that ended | the next `step` of it | right after the end, `current_time_step()` |
    |---|---|---|---|
    | `NEXT_STEP` | `LAST` | returns `FIRST`, its action ignored | that `LAST` |
    | `SAME_STEP` | `LAST` | is the first step of the new episode | the new episode's `FIRST` |
    | `DISABLED` | `LAST` | an error, until `reset(mask)` | that `LAST` |

    In every order `step` returns what happened, `current_time_step()` returns where the
    environments are, and the transitions are the same.
    """  # noqa: E501  # a table

    NEXT_STEP = "next_step"
    SAME_STEP = "same_step"
    DISABLED = "disabled"

    @classmethod
    def of(cls, value: Any) -> AutoReset:
        """Returns the member for a member or its name, also for Gymnasium's.

        Example:
            >>> AutoReset.of("same_step") is AutoReset.SAME_STEP
            True
            >>> {AutoReset.of(name) for name in ("SameStep", "same-step")}
            {<AutoReset.SAME_STEP: 'same_step'>}
        """
        if isinstance(value, cls):
            return value
        name = value.name if isinstance(value, enum.Enum) else value
        by_letters = {_letters(member.value): member for member in cls}
        found = by_letters.get(_letters(name)) if isinstance(name, str) else None
        if found is not None:
            return found
        hint = ""
        if isinstance(name, str):
            import difflib

            near = difflib.get_close_matches(_letters(name), by_letters, n=1)
            hint = "".join(f" Did you mean {by_letters[each]!s}?" for each in near)
        raise ValueError(
            f"autoreset must be one of "
            f"{', '.join(f'AutoReset.{member.name}' for member in cls)}, "
            f"got {value!r:.80}.{hint}"
        )

    @classmethod
    def kept_by(cls, env: Any) -> AutoReset:
        """Returns the order of any environment.

        Example:
            >>> AutoReset.kept_by(object()) is AutoReset.NEXT_STEP
            True
        """
        value = getattr(getattr(env, "autoreset", None), "value", None)
        return next((order for order in cls if order.value == value), cls.NEXT_STEP)


def _letters(name: str) -> str:
    return "".join(filter(str.isalpha, name.lower()))


# An info's flags say how an episode ended if its time step cannot: if it was terminated
# and truncated at once, or has discount 0 without an end.
FLAGS = ("terminated", "truncated")
_BOOLEAN = np.dtype(np.bool_)


def flags_in(info: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Returns the two flags of an info, if it has both.

    Example:
        >>> flags_in({"terminated": np.array(True), "truncated": False, "steps": 7})
        (array(True), False)
        >>> flags_in({"truncated": True}) is None
        True
    """
    # Hot: called once per step.
    if "terminated" not in info or "truncated" not in info:
        return None
    terminated, truncated = info["terminated"], info["truncated"]
    if _is_flag(terminated) and _is_flag(truncated):
        return terminated, truncated
    return None


def _is_flag(value: Any) -> bool:
    kind = type(value)
    if kind is np.ndarray:
        return value.ndim == 0 and value.dtype == _BOOLEAN  # type: ignore[no-any-return]  # a boolean
    return kind is bool or kind is np.bool_


def _step(
    call: str,
    step_type: Array,
    observation: NestedArray,
    reward: NestedArray,
    discount: Any,
    outer_dims: Sequence[int] | None,
) -> TimeStep:
    # Hot: called by environments once per step; a plain number is the common case.
    if outer_dims is None and type(reward) in _NUMBERS and type(discount) in _NUMBERS:
        return TimeStep(
            step_type,
            np.array(reward, np.float32),
            np.array(discount, np.float32),
            observation,
        )
    if outer_dims is not None:
        dims = _dims(outer_dims, call, "outer_dims")
        reward = _map_reward(call, reward, keep_dtype=True)
        _check_reward_dims(call, reward, dims)
    else:
        reward = _map_reward(call, reward, keep_dtype=False)
        dims = np.shape(nest.first_leaf(reward))[:1]
        _check_reward_dims(call, reward, dims)
    return TimeStep(
        _step_types(step_type, dims),
        reward,
        _as_discount(call, discount, dims),
        observation,
    )


_NUMBERS = frozenset([float, int, bool, np.float32, np.float64, np.bool_])


def _step_types(step_type: Array, dims: tuple[int, ...]) -> Array:
    return np.full(dims, step_type, np.int32) if dims else step_type


def _dims(dims: Any, call: str, name: str) -> tuple[int, ...]:
    array = as_array(dims)
    if array.size == 0:
        return ()
    if array.ndim > 1 or array.dtype.kind not in "iu" or (array < 0).any():
        raise SpecError(
            f"{call}() was given {dims!r:.80} as {name}; a size or a sequence of sizes "
            "is expected."
        )
    return tuple(int(size) for size in array.reshape(-1))


def _zero_rewards(reward_spec: NestedSpec, dims: tuple[int, ...]) -> NestedArray:
    _check_specs("restart", "reward_spec", reward_spec)
    return nest.map_structure(lambda spec: _zeros(spec, dims), reward_spec)


def _check_specs(call: str, name: str, specs: NestedSpec) -> None:
    for path, leaf in nest.flatten_with_paths(specs):
        # A class such as np.float32 has both attributes too, and so has an array.
        is_value = isinstance(leaf, type | np.ndarray | np.generic)
        if is_value or not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise TypeError(
                f"{call}() was given {leaf!r:.80} as {nest.join(name, path)}, which is "
                "not a spec."
            )


def _zeros(spec: Any, dims: tuple[int, ...]) -> Array:
    # A tensor spec keeps its dtype in TensorFlow's terms.
    dtype = getattr(spec.dtype, "as_numpy_dtype", spec.dtype)
    return np.zeros((*dims, *spec.shape), dtype)


def _map_reward(call: str, reward: NestedArray, *, keep_dtype: bool) -> NestedArray:
    if not nest.is_nested(reward):
        return _as_reward(call, reward, "reward", keep_dtype)
    paths = iter(
        [nest.join("reward", path) for path, _ in nest.flatten_with_paths(reward)]
    )
    return nest.map_structure(
        lambda leaf: _as_reward(call, leaf, next(paths), keep_dtype), reward
    )


def _as_reward(call: str, reward: Any, path: str, keep_dtype: bool) -> Array:
    """Copies one reward, because environments reuse their arrays."""
    if reward is None:
        raise SpecError(
            f"{call}() was given None as {path}. A reward is a number or an array; "
            "where nothing was earned, pass 0.0."
        )
    given = as_array(reward)
    if given.dtype.kind not in "biuf":
        raise SpecError(
            f"{call}() was given {describe(reward)} as {path}. A reward is a number "
            "or an array of numbers."
        )
    kept = keep_dtype and isinstance(reward, np.ndarray | np.generic)
    return np.array(given, given.dtype if kept else np.float32)


def _check_reward_dims(call: str, reward: NestedArray, dims: tuple[int, ...]) -> None:
    for path, leaf in nest.flatten_with_paths(reward):
        if leaf.shape[: len(dims)] == dims:
            continue
        place = f" at {path}" if path else ""
        hint = (
            " A list or tuple is a nest of rewards, not a batch: use np.array."
            if isinstance(reward, list | tuple) and leaf.ndim == 0
            else ""
        )
        raise SpecError(
            f"{call}() was given a reward of shape {leaf.shape}{place}, which does not "
            f"begin with the batch's dimensions {dims}.{hint}"
        )


def _as_discount(call: str, discount: Any, dims: tuple[int, ...]) -> Array:
    if discount is None:
        raise SpecError(
            f"{call}() was given None as discount. Pass 1.0 where later rewards count "
            "in full, 0.0 where the episode has ended."
        )
    given = as_array(discount)
    if given.dtype.kind not in "biuf":
        raise SpecError(
            f"{call}() was given {describe(discount)} as discount. A discount is a "
            "number or an array of numbers."
        )
    array = np.array(given, np.float32)
    if array.shape[: len(dims)] == dims:
        return array
    if array.ndim == 0:
        return np.full(dims, array)
    raise SpecError(
        f"{call}() was given a discount of shape {array.shape}, which does not begin "
        f"with the batch's dimensions {dims}. Pass one number for all rows, or one "
        "for each."
    )
