"""`GymnasiumWrapper`: a Gymnasium environment for envkit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np

from envkit.adapters.foreign import ForeignEnvironment, require
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
from envkit.adapters.known_actions import NamedActions
from envkit.adapters.losses import LossesInInfos, without_loss
from envkit.adapters.reset_arguments import ResetArguments
from envkit.adapters.state import layers_of
from envkit.errors import SpecError
from envkit.extend import describe
from envkit.specs.arrays import ArraySpec

__all__ = [
    "GymnasiumWrapper",
    "check_single",
    "name_of",
    "set_attribute",
]


class GymnasiumWrapper(LossesInInfos, ResetArguments, NamedActions, ForeignEnvironment):
    """Wraps a Gymnasium environment.

    | Gymnasium                        | time step                                  |
    |----------------------------------|--------------------------------------------|
    | `reset`                          | `FIRST`, reward 0, discount 1              |
    | `step`, neither flag             | `MID`, discount as given to the wrapper    |
    | `step`, truncated                | `LAST`, discount as given to the wrapper   |
    | `step`, terminated, or both      | `LAST`, discount 0                         |

    A reset passes `seed` and `options` by name, as Gymnasium's vector environments do,
    and leaves out what the innermost `reset` does not take. Public attributes that the
    wrapper lacks are taken from the environment.

    A state is a copy of everything in the environment and its wrappers that can be
    pickled; windows stay as they are. If something cannot be pickled, the environment
    must have methods to save itself: `get_state` and `set_state`, `clone_state` and
    `restore_state`, or `clone_full_state` and `restore_full_state`.

    Example:
        >>> import gymnasium
        >>> env = GymnasiumWrapper(gymnasium.make("CartPole-v1"))
        >>> env.seed(7)
        >>> env.reset().observation.dtype, env.step(1).reward
        (dtype('float32'), array(1., dtype=float32))
        >>> env.close()
    """

    _in_state: ClassVar[tuple[str, ...]] = (
        "_info",
        "_next_seed",
        "_reset_options",
        "_next_options",
    )
    _library = "Gymnasium"

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
            gym_env: A single Gymnasium environment.
            discount: The discount of steps that do not terminate the episode.
            auto_reset: Whether the step after the end of an episode begins the next.
                If not, it is an error.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            reset_options: The `options` that every reset passes to the environment,
                automatic resets included; see `set_reset_options`.
            reward_dtype: The dtype of rewards. Most environments return float64, which
                float32 rounds.
            max_lengths: The maximum number of elements in members of `Sequence` and
                `Graph` spaces, which are then padded, as in `spec_from_gym_space`. By
                default they remain objects.
        """
        require("gymnasium", needed_by="GymnasiumWrapper", extra="gymnasium")
        check_single(gym_env, adapter="GymnasiumWrapper", library="Gymnasium")
        super().__init__(handle_auto_reset=auto_reset)
        self._foreign = gym_env
        inside = type(getattr(gym_env, "unwrapped", gym_env)).__module__
        self._loses_nothing = not inside.startswith("envkit.")
        self._name = name_of(gym_env)
        self._reward_spec = ArraySpec((), reward_dtype, "reward")
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
        self._prepare(discount, copies_arrays=True)
        self._know_reset(layers_of(gym_env), reset_options)

    @property
    def gym(self) -> Any:
        """The Gymnasium environment."""
        return self._foreign

    def __getattr__(self, name: str) -> Any:
        # Private names are not forwarded: copy and pickle look some up before there is
        # an environment.
        if not name.startswith("_"):
            try:
                return self._foreign.get_wrapper_attr(name)
            except AttributeError:
                pass
        # Python's error, or that of the wrapper's own property.
        return object.__getattribute__(self, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Sets an attribute on whichever wrapper has it, or on the environment.

        Args:
            name: The attribute's name.
            value: The new value.
            force: Whether to set it on the outermost wrapper if none has it.
        """
        return set_attribute(self._foreign, name, value, force=force)

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        result = self._foreign.reset(**self._arguments(seed, options))
        if not isinstance(result, tuple) or len(result) != 2:
            self._refuse_result("reset", result, "(observation, info)")
        return result

    def _move(self, action: Any) -> Any:
        # Hot: called once per step. Gymnasium's result can be used as it is.
        return self._foreign.step(action)

    def _choices(self) -> Mapping[int, Any] | None:
        space, spec = self._foreign.action_space, self._action_spec
        choices = choices_of(space, spec)
        return choices if choices or not takes_arrays(space, spec) else {}

    def _refuse_result(self, call: str, result: Any, expected: str) -> NoReturn:
        raise SpecError(
            f"{self._name}.{call}() returned {describe(result)}; in Gymnasium it "
            f"returns the tuple {expected}. Environments written for the old Gym "
            "return other ones."
        )

    def _shown_info(self) -> dict[str, Any]:
        self._check_info(self._info)
        return dict(without_loss(self._info))

    def _keep_end(self, info: Any, terminated: bool, truncated: bool) -> None:
        try:
            super()._keep_end(info, terminated, truncated)
        except TypeError:
            self._check_info(info)
            raise
        self._record_loss()

    def _check_info(self, info: Any) -> None:
        # Called when the info is read, because a check in every step costs time.
        if not isinstance(info, Mapping):
            raise SpecError(
                f"{self._name} returned {describe(info)} for an info; in "
                "Gymnasium it must be a dictionary, which may be empty."
            )


def check_single(env: Any, *, adapter: str, library: str) -> None:
    """Raises unless this may be a single environment of the library."""
    # Ask the innermost: some wrappers warn about unknown attributes.
    if hasattr(getattr(env, "unwrapped", env), "single_observation_space"):
        raise TypeError(
            f"{adapter} was given the vector environment {type(env).__name__}; it "
            "takes a single environment."
        )
    needed = ("reset", "step", "observation_space", "action_space")
    missing = [name for name in needed if not hasattr(env, name)]
    if missing or isinstance(env, type):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        ending = f". {library.lower()}.make(...) makes one."
        if hasattr(type(env), "_envkit"):
            ending = ", but one of envkit already."
        raise TypeError(
            f"{adapter} was given {what}, which is not an environment of {library}"
            f"{ending}"
        )


def name_of(env: Any) -> str:
    """Returns an environment's registered id, or its class's name."""
    registered_as = getattr(getattr(env, "spec", None), "id", None)
    return registered_as or type(getattr(env, "unwrapped", env)).__name__


def set_attribute(env: Any, name: str, value: Any, *, force: bool = True) -> bool:
    """Sets an attribute where it exists, or else on the outermost wrapper.

    Gymnasium's environments have a method for this; it does the same for old Gym's.

    Args:
        env: The environment.
        name: The attribute's name.
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
    # Not one that old Gym's wrappers merely forward; Gymnasium 1.0 has no `force`.
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
