"""`GymnasiumWrapper`: an environment of Gymnasium as an envkit environment."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from envkit._internal.direct_row import BEGUN, ENDED, EpisodeEdge
from envkit._shared.arguments import as_discount
from envkit.adapters.foreign import (
    ForeignEnvironment,
    constant,
    require,
    reward_of,
)
from envkit.adapters.gymnasium.conversion import (
    action_converter,
    choices_of,
    from_member,
    takes_arrays,
)
from envkit.adapters.gymnasium.spaces import (
    MaxLengths,
    spec_from_gym_space,
)
from envkit.adapters.reset_arguments import (
    arguments_of_reset,
    known_to_reset,
    refuse_options,
    refuse_seed,
)
from envkit.adapters.state import layers_of
from envkit.errors import CallOrderError, SpecError
from envkit.extend import DirectRow, are_own, describe, options_copy
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec
from envkit.time_step import StepType, TimeStep
from envkit.types import NestedArray, Seed

__all__ = [
    "GymnasiumRow",
    "GymnasiumWrapper",
    "check_single",
    "name_of",
    "set_attribute",
]


_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
_NUMBERS = frozenset([float, int, np.float32, np.float64])


_ZERO, _ONE = constant(0.0), constant(1.0)


class GymnasiumWrapper(ForeignEnvironment):
    """Makes an envkit environment of one of Gymnasium's.

    | Gymnasium                        | time step                                  |
    |----------------------------------|--------------------------------------------|
    | `reset`                          | `FIRST`, reward 0, discount 1              |
    | `step`, neither flag             | `MID`, discount as given to the wrapper    |
    | `step`, truncated                | `LAST`, discount as given to the wrapper   |
    | `step`, terminated, or both      | `LAST`, discount 0                         |

    Public attributes that the wrapper does not have are those of the environment.

    Example:
        >>> import gymnasium
        >>> env = GymnasiumWrapper(gymnasium.make("CartPole-v1"))
        >>> env.seed(7)
        >>> env.reset().observation.dtype, env.step(1).reward
        (dtype('float32'), array(1., dtype=float32))
        >>> env.close()
    """

    _in_state = ("_info", "_next_seed", "_ended", "_reset_options", "_next_options")

    def __init__(
        self,
        gym_env: Any,
        discount: float = 1.0,
        auto_reset: bool = True,
        simplify_box_bounds: bool = True,
        reset_options: Mapping[str, Any] | None = None,
        reward_dtype: Any = np.float32,
        *,
        max_lengths: Any = None,
    ) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            gym_env: A single environment of Gymnasium.
            discount: The discount of steps that do not terminate the episode.
            auto_reset: Whether the step after the end of an episode begins the next.
                If not, it is an error.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            reset_options: The `options` that every reset passes to the environment,
                automatic resets included; see `set_reset_options`.
            reward_dtype: The dtype of rewards. Those of most environments are float64,
                which float32 rounds.
            max_lengths: The largest number of elements of members of `Sequence` and
                `Graph` spaces, which are padded then, as for `spec_from_gym_space`.
                Otherwise they stay objects.
        """
        require("gymnasium", needed_by="GymnasiumWrapper", extra="gymnasium")
        check_single(gym_env, adapter="GymnasiumWrapper", library="Gymnasium")
        super().__init__(handle_auto_reset=auto_reset)
        self._foreign = gym_env
        self._name = name_of(gym_env)
        self._reward_spec = ArraySpec((), reward_dtype, "reward")
        self._reward_dtype = self._reward_spec.dtype
        self._discount_array = constant(as_discount(discount))
        lengths = MaxLengths(max_lengths)
        self._observation_spec = spec_from_gym_space(
            gym_env.observation_space,
            simplify_box_bounds,
            "observation",
            max_lengths=lengths,
        )
        self._action_spec = spec_from_gym_space(
            gym_env.action_space,
            simplify_box_bounds,
            "action",
            max_lengths=lengths,
        )
        lengths.check_all_used()
        self._to_observation = from_member(
            gym_env.observation_space,
            self._observation_spec,
            subject=f"{self._name} returned an observation that",
            root="observation",
        )
        self._to_action = action_converter(
            gym_env.action_space,
            self._action_spec,
            subject="GymnasiumWrapper.step() was given an action that",
            root="action",
        )
        # To take the usual path of an observation that is one array.
        is_one = isinstance(self._observation_spec, ArraySpec)
        self._plain_dtype = self._observation_spec.dtype if is_one else None
        self._plain_shape = self._observation_spec.shape if is_one else None
        self._known_to_reset = known_to_reset(layers_of(gym_env))
        self._reset_options = self._next_options = self._checked_options(reset_options)
        self._ended = False

    @property
    def gym(self) -> Any:
        """The environment of Gymnasium."""
        return self._foreign

    def __getattr__(self, name: str) -> Any:
        # Private names are not forwarded because copy and pickle ask for some before
        # there is an environment.
        if not name.startswith("_"):
            try:
                return self._foreign.get_wrapper_attr(name)
            except AttributeError:
                pass
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}"
        )

    def set_reset_options(
        self, options: Mapping[str, Any] | None, *, always: bool = False
    ) -> None:
        """Chooses the `options` that the next reset passes to the environment.

        They are part of the state.

        Args:
            options: The options, in the environment's words; `None` passes none.
            always: Whether they are for all later resets, too, automatic ones
                included. Otherwise the wrapper goes on with the `reset_options` that it
                was made with.

        Example:
            >>> import gymnasium
            >>> env = GymnasiumWrapper(gymnasium.make("CartPole-v1"))
            >>> env.set_reset_options({"low": 0.01, "high": 0.02})
            >>> observation = env.reset().observation
            >>> bool((observation >= 0.01).all())
            True
            >>> env.close()
        """
        self._next_options = self._checked_options(options)
        if always:
            self._reset_options = self._next_options

    def _checked_options(self, options: Mapping[str, Any] | None) -> Any:
        if options and "options" not in self._known_to_reset:
            refuse_options(self._name, options)
        return options_copy(options)

    def _accepts_options(self) -> bool:
        return "options" in self._known_to_reset

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment at the next reset; later resets let it go on."""
        if "seed" not in self._known_to_reset:
            refuse_seed(self._name)
        return super().seed(seed)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Sets an attribute of the environment, in whichever of its wrappers it is.

        Args:
            name: The attribute.
            value: The new value.
            force: Whether to set it on the outermost wrapper if none has it.
        """
        return set_attribute(self._foreign, name, value, force=force)

    def get_info(self) -> dict[str, Any]:
        """Returns the environment's info for the current time step.

        At the end of an episode it has `terminated` and `truncated`, too. Before the
        first reset it is empty.
        """
        self._check_info()
        return dict(self._info)

    def _reset(self, options: dict[str, Any] | None = None) -> TimeStep:
        self._check_open("reset")
        given: Mapping[str, Any] = self._known_to_reset
        sent = (options, self._next_options, self._next_seed)
        if sent != (None, None, None):
            if options is None:
                # A copy, because an environment may change its options.
                options = copy.deepcopy(self._next_options)
            given = arguments_of_reset(given, self._next_seed, options)
        return self._read_first(self._foreign.reset(**given))

    def _read_first(self, result: Any) -> TimeStep:
        """Returns the time step of what the environment's `reset` has returned."""
        self._next_seed, self._next_options = None, self._reset_options
        if not isinstance(result, tuple) or len(result) != 2:
            self._refuse_result("reset", result, "(observation, info)")
        observation, self._info = result
        self._ended = False
        reward = np.zeros((), self._reward_dtype)
        return TimeStep(_FIRST, reward, _ONE, self._to_observation(observation))

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._closed or self._ended:
            self._refuse_step()
        return self._read(self._foreign.step(self._to_action(action)))

    def _read(self, result: Any) -> TimeStep:
        """Returns the time step of what the environment's `step` has returned."""
        # Hot: called once per step.
        try:
            gym_observation, reward, terminated, truncated, self._info = result
        except (TypeError, ValueError):
            self._refuse_result(
                "step", result, "(observation, reward, terminated, truncated, info)"
            )
        if type(reward) not in _NUMBERS:
            reward = reward_of(self, reward, "Gymnasium")
        if terminated or truncated:
            self._ended = True
            self._check_info()
            # Both can be true, and a discount tells only one.
            flags = {"terminated": bool(terminated), "truncated": bool(truncated)}
            self._info = {**flags, **self._info}
        # The common case of what the converter does, without calling it.
        if (
            type(gym_observation) is np.ndarray
            and gym_observation.dtype is self._plain_dtype
            and gym_observation.shape == self._plain_shape
        ):
            observation = gym_observation.copy()
        else:
            observation = self._to_observation(gym_observation)
        # What `transition` and its like return for a number, without looking for
        # tensors: a third of what this wrapper costs would be that.
        return TimeStep(
            _LAST if self._ended else _MID,
            np.array(reward, self._reward_dtype),
            _ZERO if terminated else self._discount_array,
            observation,
        )

    def _direct_row(self) -> DirectRow | None:
        if self._plain_dtype is None or not are_own(self, _STEPPING):
            return None
        space, spec = self._foreign.action_space, self._action_spec
        choices = choices_of(space, spec)
        if choices is None and not takes_arrays(space, spec):
            return None
        return GymnasiumRow(
            self,
            self._foreign,
            discount=self._discount_array,
            choices=choices,
            writes_edges=are_own(self, _TURNING),
        )

    def _finish_row(self, result: Any) -> TimeStep:
        """Finishes a step that a `DirectRow` has begun."""
        time_step = self._read(result)
        self._current_time_step = time_step
        return time_step

    def _finish_first(self, result: Any) -> TimeStep:
        """Finishes a reset that a `DirectRow` has begun."""
        time_step = self._read_first(result)
        self._current_time_step = time_step
        return time_step

    def _refuse_result(self, call: str, result: Any, expected: str) -> NoReturn:
        raise SpecError(
            f"{self._name}.{call}() returned {describe(result)}; in Gymnasium it "
            f"returns the tuple {expected}. Environments written for the old Gym "
            "return other ones."
        )

    def _check_info(self) -> None:
        # Called where the info is used, because a check in every step costs time.
        if not isinstance(self._info, Mapping):
            raise SpecError(
                f"{self._name} returned {describe(self._info)} for an info; in "
                "Gymnasium it must be a dictionary, which may be empty."
            )

    def _refuse_step(self) -> NoReturn:
        self._check_open("step")
        raise CallOrderError(
            f"The episode of {self._name} has ended, and this GymnasiumWrapper was "
            "made with auto_reset=False. Call reset()."
        )


_STEPPING = {
    "step": PyEnvironment.step,
    "_step": GymnasiumWrapper._step,
    "_read": GymnasiumWrapper._read,
    "should_reset": PyEnvironment.should_reset,
}


_TURNING: dict[str, Callable[..., Any]] = {
    "reset": PyEnvironment.reset,
    "_reset": GymnasiumWrapper._reset,
    "_read_first": GymnasiumWrapper._read_first,
    "_check_info": GymnasiumWrapper._check_info,
}


class GymnasiumRow(DirectRow):
    """Writes what an environment of Gymnasium returns."""

    __slots__ = ()

    def enter(self) -> bool:
        """Takes over the current time step, within an episode."""
        return not (self.owner._closed or self.owner._ended) and super().enter()

    def step(
        self, action: Any, place: Any, rewards: Any, wants_info: bool
    ) -> TimeStep | EpisodeEdge | None:
        """Steps the environment, and writes what it returns if that is plain."""
        # Hot: called once per row and step, and all that is called for most of them.
        result = self.foreign.step(action)
        observation: Any
        reward: Any
        try:
            observation, reward, terminated, truncated, info = result
            steps = self._steps + 1
            if not (
                terminated
                or truncated
                or steps >= self.most
                or observation.__class__ not in self.classes
                or reward.__class__ not in _NUMBERS
                or self.forked
                or (wants_info and (info.__class__ is not dict or info))
                or (
                    self.shape is not None
                    and (
                        observation.shape != self.shape
                        or observation.dtype is not self.dtype
                    )
                )
            ):
                place[self.key] = observation
                rewards[self.row] = reward
                self.owner._info = info
                self.place, self.reward = place, reward
                self.step_type = _MID
                self._steps = steps
                return None
            if (
                self.writes_edges
                and (terminated or truncated or steps >= self.most)
                and reward.__class__ in _NUMBERS
                and self._is_plain(observation, info)
            ):
                is_over = bool(terminated or truncated)
                both = terminated and (truncated or steps >= self.most)
                # An info that says no more than the time step does is none.
                if not (wants_info and (info or both or not self.discount)):
                    place[self.key] = observation
                    rewards[self.row] = reward
                    if is_over:
                        flags = {"terminated": bool(terminated)}
                        flags["truncated"] = bool(truncated)
                        info, self.owner._ended = {**flags, **info}, True
                    self.owner._info = info
                    discount = _ZERO if terminated else self.discount
                    self.set_last(reward, place, is_over, discount)
                    return ENDED
        except Exception:
            # The time step is made where such results are converted or refused.
            return self.finished(result)
        return self.finished(result)

    def _is_plain(self, observation: Any, info: Any) -> bool:
        """Returns True if an observation with its info can be written as it is."""
        return info.__class__ is dict and self.can_show(observation)

    def can_begin(self) -> bool:
        """Returns True if nothing has been chosen for the next reset."""
        owner = self.owner
        return (
            owner._next_seed is None
            and owner._next_options is None
            and owner._reset_options is None
            and not owner._closed
        )

    def begin(
        self, place: Any, rewards: Any, wants_info: bool
    ) -> TimeStep | EpisodeEdge:
        """Resets the environment, and writes what comes of it if that is plain."""
        owner = self.owner
        try:
            result = self.foreign.reset(**owner._known_to_reset)
        except BaseException:
            self.leave()
            raise
        try:
            observation, info = result
            if (
                result.__class__ is tuple
                and self._is_plain(observation, info)
                and not (wants_info and info)
            ):
                place[self.key] = observation
                rewards[self.row] = 0.0
                owner._info, owner._ended = info, False
                self.set_first(place)
                return BEGUN
        except Exception:
            # The time step is made where such results are converted or refused.
            return self.finished_first(result)
        return self.finished_first(result)


def check_single(env: Any, *, adapter: str, library: str) -> None:
    """Raises unless this can be a single environment of the library."""
    # Of the innermost, because some wrappers warn about unknown attributes.
    if hasattr(getattr(env, "unwrapped", env), "single_observation_space"):
        raise TypeError(
            f"{adapter} was given the vector environment {type(env).__name__}; it "
            "takes a single environment."
        )
    needed = ("reset", "step", "observation_space", "action_space")
    missing = [name for name in needed if not hasattr(env, name)]
    if missing or isinstance(env, type):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"{adapter} was given {what}, which is not an environment of {library}. "
            f"{library.lower()}.make(...) makes one."
        )


def name_of(env: Any) -> str:
    """Returns the id that an environment is registered with, or its class's name."""
    registered_as = getattr(getattr(env, "spec", None), "id", None)
    return registered_as or type(getattr(env, "unwrapped", env)).__name__


def set_attribute(env: Any, name: str, value: Any, *, force: bool = True) -> bool:
    """Sets an attribute where it is, and if it is nowhere, on the outermost wrapper.

    Environments of Gymnasium know how since 1.0; for older ones this does the same.

    Args:
        env: The environment.
        name: The attribute.
        value: The new value.
        force: Whether to set it on the outermost wrapper if none has it.

    Returns:
        Whether it was set.

    Example:
        >>> from types import SimpleNamespace
        >>> inner = SimpleNamespace(gravity=9.8)
        >>> set_attribute(SimpleNamespace(env=inner), "gravity", 1.6), inner
        (True, namespace(gravity=1.6))
    """
    # Not what older wrappers forward; and 1.0 knows no force.
    if force and hasattr(type(env), "set_wrapper_attr"):
        env.set_wrapper_attr(name, value)
        return True
    layers = [env]
    while (inner := getattr(layers[-1], "__dict__", {}).get("env")) is not None:
        layers.append(inner)
    owners = [layer for layer in layers if _is_own(layer, name)]
    if not (owners or force):
        return False
    setattr((owners or layers)[0], name, value)
    return True


def _is_own(layer: Any, name: str) -> bool:
    return name in getattr(layer, "__dict__", {}) or hasattr(type(layer), name)
