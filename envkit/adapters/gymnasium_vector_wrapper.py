"""`GymnasiumVectorWrapper`: a vector environment of Gymnasium as a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

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
from envkit.adapters.gymnasium_vector.vector_ends import FinalObservations, merged
from envkit.adapters.gymnasium_vector.vector_infos import (
    VectorInfos,
    final_observations,
)
from envkit.adapters.gymnasium_vector.vector_kinds import finish_resets, order_of
from envkit.adapters.gymnasium_vector.vector_resets import ResetArguments
from envkit.adapters.gymnasium_vector.vector_spaces import (
    check_shared_memory,
    spec_of_all_rows,
)
from envkit.adapters.gymnasium_vector.vector_state import (
    restore_vector_state,
    take_vector_state,
)
from envkit.adapters.spaces.from_members import from_members
from envkit.adapters.spaces.specs_from_spaces import spec_from_gym_space
from envkit.autoreset import AutoReset
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.py_environment import PyEnvironment
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wording import listed

__all__ = ["GymnasiumVectorWrapper"]

_FIRST, _MID, _LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


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
        """
        require("gymnasium", needed_by="GymnasiumVectorWrapper", extra="gymnasium")
        _check_vector_env(vector_env)
        super().__init__()
        self._vector_env = vector_env
        self._name = name_of(vector_env)
        self._rows = int(vector_env.num_envs)
        self._shape = (self._rows,)
        self._read_order(order_of(vector_env, autoreset_mode), auto_reset)
        self._read_spaces(simplify_box_bounds)
        self._arguments = ResetArguments(vector_env, reset_options)
        self._infos = VectorInfos(self._rows)
        # What most steps return, to be copied.
        self._mids = np.full(self._rows, _MID, np.int32)
        self._discounts = np.full(self._rows, as_discount(discount), np.float32)
        # Where the last step has ended an episode.
        self._ended = np.zeros(self._rows, bool)
        self._has_ended = False
        # What those rows see now, if the next episode has begun there.
        self._begun: NestedArray = None
        self._closed = False

    def _read_order(self, order: AutoReset, auto_reset: bool) -> None:
        """Keeps who begins the next episode of a row, and when."""
        self._has_masks = order is AutoReset.DISABLED
        self._begins_next = order is AutoReset.NEXT_STEP
        self._begins_same = order is AutoReset.SAME_STEP
        self._waits = self._has_masks and not auto_reset
        self._begins_rows = self._has_masks and auto_reset
        if not (auto_reset or self._has_masks):
            raise ValueError(
                f"GymnasiumVectorWrapper was given auto_reset=False with {self._name}, "
                f"which resets by itself: its autoreset_mode is {order.name}. Make it "
                "with AutoresetMode.DISABLED."
            )
        self._order = AutoReset.SAME_STEP if self._begins_rows else order

    def _read_spaces(self, simplify: bool) -> None:
        env, rows = self._vector_env, self._rows
        check_shared_memory(env, self._name)
        space, actions = env.single_observation_space, env.single_action_space
        spec = spec_from_gym_space(space, simplify, "observation")
        self._observation_spec = spec_of_all_rows(spec, env.observation_space)
        self._action_spec = spec_from_gym_space(actions, simplify, "action")
        self._actions = VectorActions(actions, self._action_spec, rows)
        self._observations = nest.Structure(self._observation_spec)
        self._to_observations = from_members(
            space,
            self._observation_spec,
            rows,
            subject=f"{self._name} returned an observation that",
            root="observation",
        )
        self._finals = FinalObservations(space, spec, rows, self._name)

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
        """When the episode after a `LAST` begins."""
        return self._order

    @property
    def resets_rows(self) -> bool:
        """Whether `reset` takes a mask: where the vector environment resets nothing."""
        return self._has_masks

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

    def seed(self, seed: Seed) -> None:
        """Has the next reset seed each row: with its own stream, or with its own seed.

        The rows of a `SyncVectorEnv` or `AsyncVectorEnv` have generators of their own.
        Others take one seed for all rows: an integer goes there as it is, and of one
        seed for each row one is made. Episodes that vector environments begin by
        themselves are not seeded, so these are not resets in this sense.
        """
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
        return self._infos.shown()

    def current_info(self) -> Any:
        """Returns the infos that belong to the `current_time_step()`.

        They differ from `get_info()` where an episode has ended and the next begun.
        """
        return self._infos.standing()

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
        if not self._closed:
            self._closed = True
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
        current = super().current_time_step()
        if self._begun is None or not self._has_ended:
            return current
        ended = self._ended
        return TimeStep(
            np.where(ended, np.int32(_FIRST), current.step_type),
            np.where(ended, _ZERO, current.reward),
            np.where(ended, _ONE, current.discount),
            merged(self._observations, ended, self._begun, current.observation),
        )

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        if self._begins_next and self._has_ended:
            finish_resets(self._vector_env, self._ended)
        observation, infos = self._begin()
        self._infos.step(infos)
        self._ended = np.zeros(self._rows, bool)
        self._has_ended = False
        return self._first_time_step(observation)

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._check_open("reset")
        if not self._has_masks:
            raise NotImplementedError(
                f"{self._name} cannot reset single rows, as it resets by itself: its "
                f"autoreset_mode is {self._order.name}. Make it with "
                "AutoresetMode.DISABLED."
            )
        observation, infos = self._begin(mask)
        self._infos.reset_rows(infos, mask)
        self._ended = self._ended & ~mask
        self._has_ended = _has_true(self._ended)
        return self._first_time_step(observation)

    def _begin(self, mask: Array | None = None) -> tuple[NestedArray, Any]:
        """Resets all rows, or some; returns observations and infos."""
        result = self._vector_env.reset(**self._arguments.of_reset(mask))
        self._arguments.use_seeds(mask)
        if not isinstance(result, tuple) or len(result) != 2:
            self._refuse_result("reset", result, "(observations, infos)")
        return self._to_observations(result[0]), result[1]

    def _first_time_step(self, observation: NestedArray) -> TimeStep:
        return TimeStep(
            np.full(self._rows, _FIRST, np.int32),
            np.zeros(self._rows, np.float32),
            np.ones(self._rows, np.float32),
            observation,
        )

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per batch step.
        if self._closed or (self._waits and self._has_ended):
            self._refuse_step()
        beginning = self._ended if self._has_ended and self._begins_next else None
        result = self._vector_env.step(self._actions.members(action, beginning))
        try:
            observation, reward, terminated, truncated, infos = result
        except (TypeError, ValueError):
            self._refuse_result(
                "step", result, "(observations, rewards, terminated, truncated, infos)"
            )
        time_step = TimeStep(
            self._mids.copy(),
            self._as_rewards(reward),
            self._discounts.copy(),
            self._to_observations(observation),
        )
        self._ended = ended = np.logical_or(terminated, truncated)
        if ended.shape != self._shape or ended.dtype != np.bool_:
            self._refuse_flags(terminated, truncated)
        self._has_ended = _has_true(ended)
        self._begun = None
        self._infos.step(infos)
        if beginning is not None:
            self._note_beginnings(time_step, beginning)
        if self._has_ended:
            return self._with_ends(time_step, terminated, truncated, infos)
        return time_step

    def _note_beginnings(self, time_step: TimeStep, beginning: Array) -> None:
        """Makes the `FIRST` of rows whose episode had ended before the step."""
        # Hot: in most steps of a large batch some row begins, and some row ends.
        again = beginning & self._ended
        if _has_true(again):
            raise SpecError(
                f"{self._name} ended the episodes of {_rows(again)} in two steps in a "
                "row: its autoreset_mode is NEXT_STEP, where the second of these steps "
                "begins the next. If it resets with the same step, pass "
                "autoreset_mode='SameStep'."
            )
        time_step.step_type[beginning] = _FIRST
        time_step.reward[beginning] = 0.0
        time_step.discount[beginning] = 1.0

    def _with_ends(
        self, time_step: TimeStep, terminated: Any, truncated: Any, infos: Any
    ) -> TimeStep:
        """Makes the `LAST` of rows whose episode has ended."""
        ended, observation = self._ended, time_step.observation
        terminated = np.array(terminated, np.bool_)
        self._infos.end(terminated, np.array(truncated, np.bool_))
        time_step.step_type[ended] = _LAST
        # What ends both ways at once is a termination.
        time_step.discount[terminated] = 0.0
        if self._begins_same:
            self._begun = observation
            self._infos.begin(infos)
            final = self._finals.put_into(observation, infos, ended)
            return time_step._replace(observation=final)
        if self._begins_rows:
            self._begun, begun_infos = self._begin(ended)
            self._infos.begin(begun_infos)
        elif self._begins_next and final_observations(infos) is not None:
            raise SpecError(
                f"{self._name} returned final observations in its infos: its "
                "autoreset_mode is NEXT_STEP, where they are the observations "
                "themselves. If it resets with the same step, pass "
                "autoreset_mode='SameStep'."
            )
        return time_step

    def _as_rewards(self, reward: Any) -> Array:
        array = np.asarray(reward)
        if array.shape != self._shape or array.dtype.kind not in "biuf":
            raise SpecError(
                f"{self._name}.step() returned {describe(reward)} as rewards; in "
                f"Gymnasium these are an array of shape {self._shape}, with a number "
                "for each row."
            )
        return array.astype(np.float32)

    def _refuse_flags(self, terminated: Any, truncated: Any) -> NoReturn:
        raise SpecError(
            f"{self._name}.step() says with {describe(terminated)} and "
            f"{describe(truncated)} which episodes have ended; in Gymnasium these are "
            f"two arrays of shape {self._shape}, with a boolean for each row."
        )

    def _refuse_result(self, call: str, result: Any, expected: str) -> NoReturn:
        raise SpecError(
            f"{self._name}.{call}() returned {describe(result)}; in Gymnasium it "
            f"returns the tuple {expected}."
        )

    def _refuse_step(self) -> NoReturn:
        self._check_open("step")
        raise CallOrderError(
            f"step() was called after the episode of "
            f"{_rows(self._ended)} of {self._name} ended, and this "
            "GymnasiumVectorWrapper was made with auto_reset=False. Call reset(mask) "
            "for them first; none of the environments has moved."
        )

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        raise NotImplementedError(
            f"{self._name} cannot step without {_rows(~stepping)}: a vector "
            "environment of Gymnasium steps all its rows. envkit's "
            "BatchedPyEnvironment and ParallelPyEnvironment can step some."
        )

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> Any:
        beside = self._infos, self._arguments.state, self._ended, self._begun
        return take_vector_state(self._vector_env, self._name, beside)

    def _set_state(self, state: Any) -> None:
        beside = restore_vector_state(self._vector_env, self._name, state)
        self._infos, self._arguments.state, self._ended, self._begun = beside
        self._has_ended = _has_true(self._ended)


def _check_vector_env(env: Any) -> None:
    needed = ("reset", "step", "num_envs", "single_observation_space", "action_space")
    if not isinstance(env, type) and all(hasattr(env, name) for name in needed):
        return
    what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
    is_single = not isinstance(env, type) and hasattr(env, "observation_space")
    hint = (
        "GymnasiumWrapper takes a single environment."
        if is_single
        else "gymnasium.make_vec(...) makes one."
    )
    raise TypeError(
        f"GymnasiumVectorWrapper was given {what}, which is not a vector environment "
        f"of Gymnasium. {hint}"
    )


def _has_true(mask: Array) -> bool:
    # In a fifth of the time that mask.any() takes.
    return b"\1" in mask.tobytes()


def _rows(mask: Array) -> str:
    rows = np.flatnonzero(mask)
    return f"{'row' if rows.size == 1 else 'rows'} {listed(rows)}"
