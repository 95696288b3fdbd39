"""`GymnasiumVectorWrapper`: a vector environment of Gymnasium as a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.dependencies import require
from envkit.adapters.forwarding import forwarded
from envkit.adapters.gym_environments import (
    as_discount,
    check_render_mode,
    name_of,
)
from envkit.adapters.gymnasium_vector.vector_actions import VectorActions
from envkit.adapters.gymnasium_vector.vector_calls import access_envs, call_envs
from envkit.adapters.gymnasium_vector.vector_ends import FinalObservations
from envkit.adapters.gymnasium_vector.vector_kinds import check_vector_env, order_of
from envkit.adapters.gymnasium_vector.vector_resets import (
    ResetArguments,
    options_of_all,
)
from envkit.adapters.gymnasium_vector.vector_results import VectorResults
from envkit.adapters.gymnasium_vector.vector_spaces import (
    check_shared_memory,
    spec_of_all_rows,
)
from envkit.adapters.gymnasium_vector.vector_state import (
    restore_vector_state,
    take_vector_state,
)
from envkit.adapters.gymnasium_vector.vector_steps import Beginnings, VectorSteps
from envkit.adapters.spaces.from_members import from_members
from envkit.adapters.spaces.space_kinds import keeping_floats
from envkit.adapters.spaces.specs_from_spaces import spec_from_gym_space
from envkit.autoreset import AutoReset
from envkit.errors import ClosedError
from envkit.py_environment import PyEnvironment
from envkit.specs.array_spec import ArraySpec
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wording import listed

__all__ = ["GymnasiumVectorWrapper"]


class GymnasiumVectorWrapper(PyEnvironment):
    """Makes a batch of a vector environment of Gymnasium, of whatever kind.

    A row's time steps are those of a `GymnasiumWrapper`, and the observation of a
    `LAST` is the final one. When the next episode begins, `autoreset` says:

    | `autoreset_mode` there       | `autoreset` | after a `LAST` in a row             |
    |------------------------------|-------------|-------------------------------------|
    | NEXT_STEP                    | NEXT_STEP   | the next step returns its `FIRST`   |
    | SAME_STEP                    | SAME_STEP   | `current_time_step()` has the next  |
    |                              |             | `FIRST`, where the next step begins |
    | DISABLED                     | SAME_STEP   | likewise                            |
    | DISABLED, `auto_reset=False` | DISABLED    | `reset(mask)` begins the next; a    |
    |                              |             | step before that is an error        |

    A vector environment steps all its rows, so none can be held while others step, and
    only one whose mode is DISABLED resets some of them: there `reset` takes a mask.

    Public attributes that the wrapper does not have, such as `set_attr`, are those of
    the vector environment.

    Example:
        >>> import gymnasium
        >>> env = GymnasiumVectorWrapper(gymnasium.make_vec("CartPole-v1", num_envs=3))
        >>> env.seed(7)
        >>> env.reset().observation.shape, env.step([0, 1, 1]).reward
        ((3, 4), array([1., 1., 1.], dtype=float32))
        >>> env.close()
    """

    def __init__(
        self,
        vector_env: Any,
        discount: float = 1.0,
        auto_reset: bool = True,
        simplify_box_bounds: bool = True,
        *,
        reset_options: Mapping[str, Any] | None = None,
        autoreset_mode: Any = None,
        reward_dtype: Any = np.float32,
    ) -> None:
        """Wraps a vector environment; closing the wrapper closes it.

        Args:
            vector_env: A vector environment of Gymnasium.
            discount: What later rewards are worth, after every step that does not
                terminate the episode.
            auto_reset: Whether episodes begin by themselves where the vector
                environment leaves that to others: where its mode is DISABLED.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            reset_options: What resets pass on as their `options`; see
                `set_reset_options`.
            autoreset_mode: The vector environment's `AutoresetMode`, where its metadata
                does not have it.
            reward_dtype: What rewards are made of. Gymnasium's are float64 in most
                vector environments, which float32 rounds.
        """
        require("gymnasium", needed_by="GymnasiumVectorWrapper", extra="gymnasium")
        check_vector_env(vector_env, "GymnasiumVectorWrapper")
        super().__init__()
        self._vector_env = vector_env
        self._name = name_of(vector_env)
        self._rows = int(vector_env.num_envs)
        order = order_of(vector_env, autoreset_mode)
        beginnings = self._beginnings(order, auto_reset)
        self._order = AutoReset.SAME_STEP if beginnings.after_step else order
        # Whether it resets rows when it is told, and only then.
        self._has_masks = order is AutoReset.DISABLED
        self._arguments = ResetArguments(vector_env, reset_options)
        self._reward_spec = ArraySpec((), reward_dtype, "reward")
        self._read_spaces(simplify_box_bounds)
        self._steps = VectorSteps(
            vector_env,
            beginnings,
            name=self._name,
            adapter=type(self).__name__,
            arguments=self._arguments,
            actions=VectorActions(
                vector_env.single_action_space, self._action_spec, self._rows
            ),
            results=self._results(),
            finals=self._finals,
            discount=as_discount(discount),
        )

    def _beginnings(self, order: AutoReset, auto_reset: bool) -> Beginnings:
        """Returns who begins the next episode of a row, and when."""
        if order is AutoReset.DISABLED:
            return Beginnings(after_step=auto_reset, when_told=not auto_reset)
        if not auto_reset:
            raise ValueError(
                f"GymnasiumVectorWrapper was given auto_reset=False with {self._name}, "
                f"which resets by itself: its autoreset_mode is {order.name}. Make it "
                "with AutoresetMode.DISABLED."
            )
        is_next = order is AutoReset.NEXT_STEP
        return Beginnings(with_next_step=is_next, with_same_step=not is_next)

    def _read_spaces(self, simplify: bool) -> None:
        env = self._vector_env
        check_shared_memory(env, self._name)
        space, actions = env.single_observation_space, env.single_action_space
        spec = spec_from_gym_space(space, simplify, "observation")
        self._observation_spec = spec_of_all_rows(spec, env.observation_space)
        self._action_spec = keeping_floats(
            spec_from_gym_space(actions, simplify, "action")
        )
        self._observations = nest.Structure(self._observation_spec)
        self._finals = FinalObservations(space, spec, self._rows, self._name)

    def _results(self) -> VectorResults:
        """Returns what reads the results of the vector environment."""
        to_observations = from_members(
            self._vector_env.single_observation_space,
            self._observation_spec,
            self._rows,
            subject=f"{self._name} returned an observation that",
            root="observation",
        )
        return VectorResults(
            self._name,
            self._rows,
            to_observations=to_observations,
            observation_spec=self._observation_spec,
            reward_dtype=self._reward_spec.dtype,
        )

    @property
    def vector_env(self) -> Any:
        """The vector environment of Gymnasium."""
        return self._vector_env

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """How many rows there are."""
        return self._rows

    @property
    def autoreset(self) -> AutoReset:
        """When the episode after a `LAST` begins.

        Where the vector environment's mode is DISABLED, it may be changed: to
        SAME_STEP, or DISABLED.
        """
        return self._order

    @autoreset.setter
    def autoreset(self, order: AutoReset | str) -> None:
        self._check_open("autoreset")
        order = AutoReset.of(order)
        if order is self._order:
            return
        if not self._has_masks or order is AutoReset.NEXT_STEP:
            raise ValueError(
                f"GymnasiumVectorWrapper cannot keep AutoReset.{order.name}: the "
                f"autoreset_mode of {self._name} is "
                f"{'DISABLED' if self._has_masks else self._order.name}. Make it with "
                f"AutoresetMode.{order.name}."
            )
        self._order = order
        self._begin_as_ordered()

    @property
    def _changes_order(self) -> bool:  # type: ignore[override]  # it is only read
        return self._has_masks

    def _move_plainly(self, plainly: bool) -> None:
        super()._move_plainly(plainly)
        if self._has_masks:
            self._begin_as_ordered()

    def _begin_as_ordered(self) -> None:
        if self._current_time_step is not None:
            # Where the rows stand does not depend on what comes after.
            self._current_time_step = self.current_time_step()
        is_same = self._order is AutoReset.SAME_STEP and not self._moves_plainly
        self._steps.begin_after_step(is_same)

    @property
    def resets_rows(self) -> bool:
        """Whether `reset` takes a mask: where the vector environment resets nothing."""
        return self._has_masks

    @property
    def seeds_rows(self) -> bool:
        """Whether each row takes a seed: in Gymnasium's own vector environments."""
        return self._arguments.is_by_row

    @property
    def holds_rows(self) -> bool:
        """False: a vector environment steps all its rows."""
        return False

    def __getattr__(self, name: str) -> Any:
        # Its `envs` are not envkit's, which are what is expected under that name.
        if name == "envs":
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'envs'; its "
                "vector_env may have."
            )
        try:
            return forwarded(self, lambda: self._vector_env, name)
        except AttributeError:
            # Gymnasium's wrappers of vector environments forward only what they know.
            return forwarded(self, lambda: self._vector_env.unwrapped, name)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one row's observation."""
        return self._observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the specs of one row's action."""
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of one row's reward: one number."""
        return self._reward_spec

    def seed(self, seed: Seed) -> None:
        """Has the next reset seed each row: with its own stream, or with its own seed.

        The rows of a `SyncVectorEnv` or `AsyncVectorEnv` have generators of their own.
        Others take one seed for all rows: an integer goes there as it is, and of one
        seed for each row one is made. Episodes that vector environments begin by
        themselves are not seeded, so these are not resets in this sense.
        """
        self._noted_seed = seed
        self._arguments.note_seed(seed)

    def set_reset_options(self, options: Mapping[str, Any] | None) -> None:
        """Chooses the `options` that the next reset and all later ones pass on.

        Vector environments do not use them for episodes that they begin by themselves;
        where the wrapper begins them, because the mode is DISABLED, it does.

        Args:
            options: What the environments understand; `None` passes none.
        """
        self._arguments.note_options(options)

    def get_info(self) -> Any:
        """Returns the infos stacked, or a list of them where they cannot be.

        They belong to the time step that was returned last, also where the next episode
        has begun since. Besides what the environment says, each row has `terminated`
        and `truncated`. Before the first reset they are empty.
        """
        return self._steps.infos.shown()

    def current_info(self) -> Any:
        """Returns the infos that belong to the `current_time_step()`.

        They differ from `get_info()` where an episode has ended and the next begun.
        """
        return self._steps.infos.standing()

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the vector environment renders; its pictures are stacked.

        Args:
            mode: The `render_mode` that the environments were made with: Gymnasium does
                not change it later.
        """
        self._check_open("render")
        check_render_mode(self._vector_env, self._name, mode)
        pictures = self._vector_env.render()
        return np.array(pictures) if mode == "rgb_array" else pictures

    def close(self) -> None:
        """Closes the vector environment; calling it again does nothing."""
        if not self._steps.is_closed:
            self._steps.is_closed = True
            self._vector_env.close()

    def call(
        self,
        name: str,
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Calls a method of the rows' environments, and returns the results.

        An attribute that is no method is returned. A vector environment that has no
        environments in it is asked once, and its answer is that of all rows.

        Args:
            name: The method.
            *args: What to call it with.
            env_ids: Which rows; only a `SyncVectorEnv` can ask some alone.
            **kwargs: What to call it with, by name.
        """
        self._check_open("call")
        return call_envs(self._vector_env, name, args, kwargs, env_ids)

    def access(self, name: str, *, env_ids: Sequence[int] | None = None) -> list[Any]:
        """Returns an attribute of the rows' environments."""
        self._check_open("access")
        return access_envs(self._vector_env, name, env_ids)

    def current_time_step(self) -> TimeStep:
        """Returns where the rows stand now: what a policy should act on.

        Where an episode has ended and the next begun, that is the next one's `FIRST`.
        """
        return self._steps.standing(super().current_time_step(), self._observations)

    def _take_options(self, options: Any, rows: Array | None) -> None:
        options_of_all(options, rows)  # Refuses those that differ.
        super()._take_options(options, rows)

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._arguments.note_seeds(seeds)

    def _reset(self, options: list[Any] | None = None) -> TimeStep:
        self._check_open("reset")
        return self._steps.reset(options_of_all(options, None))

    def _reset_rows(self, mask: Array, options: list[Any] | None = None) -> TimeStep:
        self._check_open("reset")
        if not self._has_masks:
            raise NotImplementedError(
                f"{self._name} cannot reset single rows, as it resets by itself: its "
                f"autoreset_mode is {self._order.name}. Make it with "
                "AutoresetMode.DISABLED."
            )
        return self._steps.reset_rows(mask, options_of_all(options, mask))

    def _step(self, action: NestedArray) -> TimeStep:
        return self._steps.step(action)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        held = np.flatnonzero(~stepping)
        raise NotImplementedError(
            f"{self._name} cannot step without {'row' if held.size == 1 else 'rows'} "
            f"{listed(held)}: a vector environment of Gymnasium steps all its rows. "
            "envkit's BatchedPyEnvironment and ParallelPyEnvironment can step some."
        )

    def _check_open(self, call: str) -> None:
        if self._steps.is_closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> Any:
        beside = self._arguments.state, self._steps.state
        return take_vector_state(self._vector_env, self._name, beside)

    def _set_state(self, state: Any) -> None:
        beside = restore_vector_state(self._vector_env, self._name, state)
        self._arguments.state, self._steps.state = beside
