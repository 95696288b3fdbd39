"""`GymWrapper`: an environment of the old Gym as an envkit environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from envkit.adapters.forwarding import forwarded
from envkit.adapters.gym_environments import (
    as_discount,
    check_single,
    name_of,
    number_of,
    set_attribute,
)
from envkit.adapters.old_gym.gym_ages import (
    calls_seed,
    render_takes_mode,
    reset_needs,
    reset_takes_options,
    reset_takes_seed,
)
from envkit.adapters.old_gym.gym_spaces import (
    action_converter,
    observation_converter,
    spec_from_gym_space,
)
from envkit.adapters.snapshot import restore_snapshot, take_snapshot
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep, restart, termination, truncation
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wording import listed

__all__ = ["GymWrapper", "spec_from_gym_space"]

_MID = StepType.MID
_NUMBERS = frozenset([float, int, np.float32, np.float64])


class GymWrapper(PyEnvironment):
    """Makes an envkit environment of one written for Gym, of whatever age.

    | Gym                                         | time step                      |
    |---------------------------------------------|--------------------------------|
    | `reset`, with an info or without            | `FIRST`, reward 0, discount 1  |
    | 4 values, not `done`                        | `MID`, discount as given       |
    | 4 values, `done`                            | `LAST`, discount 0             |
    | ... and `TimeLimit.truncated` in the info   | `LAST`, discount as given      |
    | 5 values                                    | as with Gymnasium              |

    Gym itself is not needed: what counts is what the environment does. Public
    attributes that the wrapper does not have are those of the environment.

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
            discount: What later rewards are worth, after every step that does not
                terminate the episode.
            spec_dtype_map: Which dtypes to use in the specs, by class of space, such as
                `{gym.spaces.Discrete: np.int32}`.
            match_obs_space_dtype: Whether observations are converted to the dtypes of
                their specs. If not, the specs say what the environment's spaces say,
                true or not.
            auto_reset: Whether the step after the end of an episode begins the next.
                If not, it is an error.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            render_kwargs: Keyword arguments for the environment's `render`.
        """
        check_single(gym_env, adapter="GymWrapper", library="Gym")
        super().__init__(handle_auto_reset=auto_reset)
        self._gym = gym_env
        self._name = name_of(gym_env)
        self._discount = as_discount(discount)
        # One for all steps, so nobody may write to it.
        self._discount_array = np.array(self._discount, np.float32)
        self._discount_array.setflags(write=False)
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
        # What an observation is that is one array.
        is_one = isinstance(self._observation_spec, ArraySpec)
        self._plain_dtype = self._observation_spec.dtype if is_one else None
        self._plain_shape = self._observation_spec.shape if is_one else None
        self._ending_keys = _ending_keys(self._observation_spec)
        self._info: Any = None
        self._next_seed: int | None = None
        # Where the environment stood when it was seeded.
        self._seeded_at: TimeStep | None = None
        self._done = True
        self._closed = False

    @property
    def gym(self) -> Any:
        """The environment of Gym."""
        return self._gym

    @property
    def done(self) -> bool:
        """Whether there is no episode: it has ended, or none has begun yet."""
        return self._done

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._gym, name)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._action_spec

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment, from the next reset on.

        Returns:
            What the environment's `seed` returned, or 0 if that is nothing.
        """
        calls, passes = calls_seed(self._gym), reset_takes_seed(self._gym)
        if not calls and not passes:
            raise NotImplementedError(
                f"{self._name} cannot be seeded: it has no seed(), and its reset() "
                "takes no seed."
            )
        self._noted_seed = seed
        (number,) = checked_seeds(seed, 1)
        if number is None:
            # In a reset no seed means to go on with the old generator.
            number = int(np.random.SeedSequence().generate_state(1)[0])
        self._next_seed = number
        self._seeded_at = self._current_time_step
        answer = self._gym.seed(number) if calls else None
        return 0 if answer is None else answer

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Sets an attribute of the environment, in whichever of its wrappers it is.

        Args:
            name: The attribute.
            value: What to set it to.
            force: Whether it is set if nobody has it.
        """
        return set_attribute(self._gym, name, value, force=force)

    def get_info(self) -> Any:
        """Returns the environment's info for the current time step.

        It is `None` before the first reset, and after each in which the environment
        says nothing but its observation: those of the first 25 versions of Gym. At the
        end of an episode it has `terminated` and `truncated`, too.
        """
        return dict(self._info) if isinstance(self._info, Mapping) else self._info

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders.

        Args:
            mode: What to return, such as "rgb_array" or "human". Where it is chosen
                when the environment is made, this has to be the same.
        """
        self._check_open("render")
        if not hasattr(self._gym, "render"):
            raise NotImplementedError(
                f"{self._name} cannot render: it has no render()."
            )
        made_with = getattr(self._gym, "render_mode", None)
        if made_with is None and render_takes_mode(self._gym):
            self._check_mode(mode)
            picture = self._gym.render(mode, **self._render_kwargs)
        elif made_with == mode:
            picture = self._gym.render(**self._render_kwargs)
        else:
            self._refuse_mode(mode, made_with)
        return picture.copy() if isinstance(picture, np.ndarray) else picture

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            close = getattr(self._gym, "close", None)
            if close is not None:
                close()

    def _takes_options(self, rows: Array | None) -> bool:
        return reset_takes_options(self._gym)

    def _reset(self, options: dict[str, Any] | None = None) -> TimeStep:
        self._check_open("reset")
        seed = self._next_seed
        if seed is not None and not reset_takes_seed(self._gym):
            # What has happened since seed() has used up random numbers.
            if self._seeded_at is not self._current_time_step:
                self._gym.seed(seed)
            seed = None
        given = {"seed": seed, "options": options}
        # Where one has no default it is passed in any case.
        result = self._gym.reset(
            **{
                name: value
                for name, value in given.items()
                if value is not None or reset_needs(self._gym, name)
            }
        )
        self._next_seed = self._seeded_at = None
        observation, self._info = self._split(result)
        self._done = False
        return restart(self._to_observation(observation))

    def _split(self, result: Any) -> tuple[Any, Any]:
        """Returns the observation and the info of what `reset` returned."""
        if (
            isinstance(result, tuple)
            and len(result) == 2
            and isinstance(result[1], Mapping)
            # A pair that ends in a dictionary may be an observation itself.
            and result[1].keys() != self._ending_keys
        ):
            return result
        return result, None

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._closed or self._done:
            self._refuse_step()
        result = self._gym.step(self._to_action(action))
        if not isinstance(result, tuple | list) or not 4 <= len(result) <= 5:
            self._refuse_result(result)
        if len(result) == 4:
            gym_observation, reward, done, self._info = result
            truncated = done and _is_cut(self._info)
            terminated = done and not truncated
        else:
            gym_observation, reward, terminated, truncated, self._info = result
        if type(reward) not in _NUMBERS:
            reward = self._as_number(reward)
        # The common case of what the converter does, without calling it.
        if (
            type(gym_observation) is np.ndarray
            and gym_observation.dtype == self._plain_dtype
            and gym_observation.shape == self._plain_shape
        ):
            observation = gym_observation.copy()
        else:
            observation = self._to_observation(gym_observation)
        if terminated or truncated:
            return self._last(observation, reward, bool(terminated), bool(truncated))
        # What `transition` returns for a number, without looking for tensors.
        return TimeStep(
            _MID, np.array(reward, np.float32), self._discount_array, observation
        )

    def _last(
        self, observation: NestedArray, reward: Any, terminated: bool, truncated: bool
    ) -> TimeStep:
        self._done = True
        # Both can be true, and a discount tells only one.
        flags = {"terminated": terminated, "truncated": truncated}
        if self._info is None:
            self._info = flags
        elif isinstance(self._info, Mapping):
            self._info = {**flags, **self._info}
        if terminated:
            return termination(observation, reward)
        return truncation(observation, reward, self._discount)

    def _as_number(self, reward: Any) -> float:
        number = number_of(reward)
        if number is not None:
            return number
        raise SpecError.does_not_fit(
            f"{self._name} returned a reward that",
            path="",
            expected=repr(self.reward_spec()),
            got=describe(reward),
            reason="A reward of a Gym environment is one number.",
        )

    def _refuse_result(self, result: Any) -> NoReturn:
        raise SpecError(
            f"{self._name}.step() returned {describe(result)}; in Gym it returns the "
            "tuple (observation, reward, done, info), and since 0.26 (observation, "
            "reward, terminated, truncated, info)."
        )

    def _refuse_step(self) -> NoReturn:
        self._check_open("step")
        raise CallOrderError(
            f"The episode of {self._name} has ended, and this GymWrapper was made with "
            "auto_reset=False. Call reset()."
        )

    def _check_mode(self, mode: str) -> None:
        metadata = getattr(self._gym, "metadata", None) or {}
        known = metadata.get("render_modes") or metadata.get("render.modes")
        # An environment need not list its modes. One that does makes anything of the
        # others: some of Gym's own close the standard output.
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

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> Any:
        beside = self._info, self._next_seed, self._done
        return take_snapshot(self._gym, self._name, beside)

    def _set_state(self, state: Any) -> None:
        self._info, self._next_seed, self._done = restore_snapshot(
            self._gym, self._name, state
        )
        # So the next reset seeds once more, whatever has happened before.
        self._seeded_at = None


def _is_cut(info: Any) -> bool:
    """Says whether an episode that is done has reached the limit of Gym's TimeLimit."""
    return isinstance(info, Mapping) and bool(info.get("TimeLimit.truncated", False))


def _ending_keys(spec: NestedSpec) -> Any:
    """Returns the keys of a dictionary that is the second of two in an observation."""
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[1], dict):
        return spec[1].keys()
    return None
