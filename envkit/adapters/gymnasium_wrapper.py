"""`GymnasiumWrapper`: an environment of Gymnasium as an envkit environment."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from envkit.adapters.dependencies import require
from envkit.adapters.gym_environments import (
    as_discount,
    check_render_mode,
    check_single,
    known_to_reset,
    name_of,
    number_of,
    set_attribute,
)
from envkit.adapters.snapshot import restore_snapshot, take_snapshot
from envkit.adapters.spaces.checked_members import action_converter
from envkit.adapters.spaces.from_members import from_member
from envkit.adapters.spaces.padded import MaxLengths
from envkit.adapters.spaces.space_kinds import keeping_floats
from envkit.adapters.spaces.specs_from_spaces import spec_from_gym_space
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.masked_rows import options_copy
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["GymnasiumWrapper"]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
_NUMBERS = frozenset([float, int, np.float32, np.float64])


def _constant(number: float) -> Array:
    """Makes a discount of many time steps, to which nobody may write."""
    array = np.array(number, np.float32)
    array.setflags(write=False)
    return array


_ZERO, _ONE = _constant(0.0), _constant(1.0)


class GymnasiumWrapper(PyEnvironment):
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
            discount: What later rewards are worth, after every step that does not
                terminate the episode.
            auto_reset: Whether the step after the end of an episode begins the next.
                If not, it is an error.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            reset_options: What every reset passes to the environment as its `options`,
                those that begin an episode by themselves among them; see
                `set_reset_options`.
            reward_dtype: What rewards are made of. Gymnasium's are float64 in most
                environments, which float32 rounds.
            max_lengths: How many elements members of `Sequence` and `Graph` spaces may
                have, which are padded then, as for `spec_from_gym_space`. Otherwise
                they stay objects.
        """
        require("gymnasium", needed_by="GymnasiumWrapper", extra="gymnasium")
        check_single(gym_env, adapter="GymnasiumWrapper", library="Gymnasium")
        super().__init__(handle_auto_reset=auto_reset)
        self._gym = gym_env
        self._name = name_of(gym_env)
        self._reward_spec = ArraySpec((), reward_dtype, "reward")
        self._reward_dtype = self._reward_spec.dtype
        self._discount_array = _constant(as_discount(discount))
        lengths = MaxLengths(max_lengths)
        self._observation_spec = spec_from_gym_space(
            gym_env.observation_space,
            simplify_box_bounds,
            "observation",
            max_lengths=lengths,
        )
        self._action_spec = keeping_floats(
            spec_from_gym_space(
                gym_env.action_space,
                simplify_box_bounds,
                "action",
                max_lengths=lengths,
            )
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
        # What an observation is that is one array.
        is_one = isinstance(self._observation_spec, ArraySpec)
        self._plain_dtype = self._observation_spec.dtype if is_one else None
        self._plain_shape = self._observation_spec.shape if is_one else None
        self._info: dict[str, Any] = {}
        self._reset_options = self._next_options = options_copy(reset_options)
        self._next_seed: int | None = None
        self._known_to_reset = known_to_reset(gym_env)
        self._ended = False
        self._closed = False

    @property
    def gym(self) -> Any:
        """The environment of Gymnasium."""
        return self._gym

    def __getattr__(self, name: str) -> Any:
        # Private names are not looked for: copy and pickle ask for some before there
        # is an environment to forward to.
        if not name.startswith("_"):
            try:
                return self._gym.get_wrapper_attr(name)
            except AttributeError:
                pass
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}"
        )

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of a reward: one number."""
        return self._reward_spec

    def seed(self, seed: Seed) -> None:
        """Has the next reset seed the environment; later ones let it go on."""
        self._noted_seed = seed
        (self._next_seed,) = checked_seeds(seed, 1)
        if self._next_seed is None:
            # To Gymnasium no seed means to go on with the old generator.
            self._next_seed = int(np.random.SeedSequence().generate_state(1)[0])

    def set_reset_options(
        self, options: Mapping[str, Any] | None, *, always: bool = False
    ) -> None:
        """Chooses the `options` that the next reset passes to the environment.

        They are part of the state.

        Args:
            options: What the environment understands; `None` passes none.
            always: Whether they are for all later resets, too, those that begin an
                episode by themselves among them. Otherwise the wrapper goes on with
                the `reset_options` that it was made with.

        Example:
            >>> import gymnasium
            >>> env = GymnasiumWrapper(gymnasium.make("CartPole-v1"))
            >>> env.set_reset_options({"low": 0.01, "high": 0.02})
            >>> observation = env.reset().observation
            >>> bool((observation >= 0.01).all())
            True
            >>> env.close()
        """
        self._next_options = options_copy(options)
        if always:
            self._reset_options = self._next_options

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Sets an attribute of the environment, in whichever of its wrappers it is.

        Args:
            name: The attribute.
            value: What to set it to.
            force: Whether it is set if nobody has it.
        """
        return set_attribute(self._gym, name, value, force=force)

    def get_info(self) -> dict[str, Any]:
        """Returns the environment's info for the current time step.

        At the end of an episode it has `terminated` and `truncated`, too. Before the
        first reset it is empty.
        """
        self._check_info()
        return dict(self._info)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders.

        Args:
            mode: The `render_mode` that the environment was made with: Gymnasium does
                not change it later.
        """
        self._check_open("render")
        check_render_mode(self._gym, self._name, mode)
        picture = self._gym.render()
        return np.array(picture) if mode == "rgb_array" else picture

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._gym.close()

    def _reset(self, options: dict[str, Any] | None = None) -> TimeStep:
        self._check_open("reset")
        if options is None:
            # An environment may change what it is given.
            options = copy.deepcopy(self._next_options)
        given = {"seed": self._next_seed, "options": options}
        given = {name: value for name, value in given.items() if value is not None}
        result = self._gym.reset(**{**self._known_to_reset, **given})
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
        result = self._gym.step(self._to_action(action))
        try:
            gym_observation, reward, terminated, truncated, self._info = result
        except (TypeError, ValueError):
            self._refuse_result(
                "step", result, "(observation, reward, terminated, truncated, info)"
            )
        if type(reward) not in _NUMBERS:
            reward = self._as_number(reward)
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

    def _as_number(self, reward: Any) -> float:
        number = number_of(reward)
        if number is not None:
            return number
        raise SpecError.does_not_fit(
            f"{self._name} returned a reward that",
            path="",
            expected=repr(self.reward_spec()),
            got=describe(reward),
            reason="A reward of a Gymnasium environment is one number.",
        )

    def _refuse_result(self, call: str, result: Any, expected: str) -> NoReturn:
        raise SpecError(
            f"{self._name}.{call}() returned {describe(result)}; in Gymnasium it "
            f"returns the tuple {expected}. Environments written for the old Gym "
            "return other ones."
        )

    def _check_info(self) -> None:
        # Only where it is used: it would be asked in every step.
        if not isinstance(self._info, Mapping):
            raise SpecError(
                f"{self._name} returned {describe(self._info)} for an info; in "
                "Gymnasium it is a dictionary, which may be empty."
            )

    def _refuse_step(self) -> NoReturn:
        self._check_open("step")
        raise CallOrderError(
            f"The episode of {self._name} has ended, and this GymnasiumWrapper was "
            "made with auto_reset=False. Call reset()."
        )

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> Any:
        options = self._reset_options, self._next_options
        beside = self._info, self._next_seed, self._ended, options
        return take_snapshot(self._gym, self._name, beside)

    def _set_state(self, state: Any) -> None:
        beside = restore_snapshot(self._gym, self._name, state)
        self._info, self._next_seed, self._ended, options = beside
        self._reset_options, self._next_options = options
