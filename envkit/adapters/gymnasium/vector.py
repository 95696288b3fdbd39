"""`GymnasiumVectorWrapper`: a Gymnasium vector environment as a batch."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from envkit import nest
from envkit._shared.arguments import as_discount
from envkit._shared.own_losses import MOST_KEPT
from envkit.adapters.foreign import (
    ForeignBase,
    ForeignInternals,
    constant,
    drawn_seed,
    forwarded,
    require,
)
from envkit.adapters.gymnasium.conversion import from_member, from_members, to_members
from envkit.adapters.gymnasium.infos import FINAL_OBSERVATION, VectorInfos
from envkit.adapters.gymnasium.kinds import (
    check_shared_memory,
    finish_resets,
    kind_of_vector_env,
    order_of,
    restore_vector_state,
    take_vector_state,
)
from envkit.adapters.gymnasium.spaces import (
    OneOf,
    kind_of_space,
    spec_from_gym_space,
)
from envkit.adapters.gymnasium.wrapper import name_of
from envkit.adapters.reset_arguments import (
    arguments_of_reset,
    known_to_reset,
    refuse_options,
    refuse_seed,
)
from envkit.adapters.state import layers_of
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.extend import ActionRows, describe, listed, options_copy, within
from envkit.losses import Loss
from envkit.provenance import record_seed
from envkit.seeding import checked_seeds, seed_per_row
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import TextSpec
from envkit.specs.validation import check_fits
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["GymnasiumVectorWrapper", "VectorActions"]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
_NEXT, _SAME, _DISABLED = AutoReset.NEXT_STEP, AutoReset.SAME_STEP, AutoReset.DISABLED
_ZERO, _ONE = constant(0.0), constant(1.0)
_NO_ROWS = np.zeros(0, np.intp)
_NO_ROWS.setflags(write=False)
_ARRAY, _BOOLEAN, _INTEGER = np.ndarray, np.dtype(np.bool_), np.dtype(np.int64)
_OBJECT = np.dtype(object)
# Larger numbers of choices get no table.
_MANY = 1 << 16
_MASK = "reset_mask"
# Vector environments written for Gymnasium before 1.0 have the second key.
_OWN_TO_SAME_STEP = frozenset([FINAL_OBSERVATION, "final_observation"])
# `call` refuses these because the wrapper keeps the time steps.
_MOVES = frozenset(["reset", "step", "close"])
_NEEDED = ("reset", "step", "num_envs", "single_observation_space", "action_space")
_STEP = "GymnasiumVectorWrapper.step()"
_new_tuple: Callable[..., TimeStep] = tuple.__new__


class _VectorInternals(ForeignInternals):
    """Defines how envkit treats a batch that Gymnasium steps."""

    keeps_order_itself = True

    def changes_order(self, env: Any) -> bool:
        """Returns True if the wrapper begins the episodes."""
        has_masks: bool = env._has_masks
        return has_masks

    def suspend_order(self, env: Any, suspended: bool) -> None:
        """Suspends the order, or restores it."""
        super().suspend_order(env, suspended)
        if env._has_masks:
            env._begin_as_ordered()

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        """Keeps options that are the same for all rows."""
        _options_of_all(options, rows)  # raises if they differ
        super().hand_options(env, options, rows)


class GymnasiumVectorWrapper(ForeignBase):
    """Wraps any Gymnasium vector environment as a batch.

    A row has the same time steps as in a `GymnasiumWrapper`, and the observation of a
    `LAST` is the final one. `autoreset` says when the next episode begins:

    | its `autoreset_mode`         | `autoreset` | after a `LAST` in a row             |
    |------------------------------|-------------|-------------------------------------|
    | NEXT_STEP                    | NEXT_STEP   | the next step returns its `FIRST`   |
    | SAME_STEP                    | SAME_STEP   | `current_time_step()` has the next  |
    |                              |             | `FIRST`; the next step follows it   |
    | DISABLED                     | SAME_STEP   | the same                            |
    | DISABLED, `auto_reset=False` | DISABLED    | `reset(mask)` begins the next; a    |
    |                              |             | step before that raises             |

    A vector environment steps all its rows, so none can be held while others step. Only
    in the mode DISABLED can it reset some of them; then `reset` takes a mask.

    Public attributes that the wrapper lacks, such as `set_attr`, are taken from the
    vector environment.

    Example:
        >>> import gymnasium
        >>> env = GymnasiumVectorWrapper(gymnasium.make_vec("CartPole-v1", num_envs=3))
        >>> env.seed(7)
        >>> env.reset().observation.shape, env.step([0, 1, 1]).reward
        ((3, 4), array([1., 1., 1.], dtype=float32))
        >>> env.close()
    """

    _envkit = _VectorInternals()

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
            discount: The discount of steps that do not terminate an episode.
            auto_reset: Whether the wrapper begins a row's next episode if the vector
                environment does not, in the mode DISABLED.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            reset_options: The `options` that resets pass on; see `set_reset_options`.
            autoreset_mode: The vector environment's `AutoresetMode`, if its metadata
                lacks it.
            reward_dtype: The dtype of rewards. Most vector environments return float64,
                which float32 rounds.
        """
        require("gymnasium", needed_by="GymnasiumVectorWrapper", extra="gymnasium")
        _check_vector_env(vector_env)
        super().__init__()
        self._foreign = vector_env
        self._name = name_of(vector_env)
        self._batch_size = int(vector_env.num_envs)
        own = order_of(vector_env, autoreset_mode)
        if own is not _DISABLED and not auto_reset:
            raise ValueError(
                f"GymnasiumVectorWrapper was given auto_reset=False with {self._name}, "
                f"which resets itself: its autoreset_mode is {own.name}. Make it "
                "with AutoresetMode.DISABLED."
            )
        # A vector environment that never resets by itself takes a mask.
        self._has_masks = own is _DISABLED
        self._order = _SAME if self._has_masks and auto_reset else own
        # Gymnasium's own take a seed for each row. Others presumably have one generator
        # for all rows, and take one integer.
        self._is_seeded_by_row = bool(kind_of_vector_env(vector_env))
        self._reward_spec = ArraySpec((), reward_dtype, "reward")
        check_shared_memory(vector_env, self._name)
        space, actions = (
            vector_env.single_observation_space,
            vector_env.single_action_space,
        )
        self._observation_spec = _spec_of_all_rows(
            spec_from_gym_space(space, simplify_box_bounds, "observation"),
            vector_env.observation_space,
        )
        self._action_spec = spec_from_gym_space(actions, simplify_box_bounds, "action")
        self._steps = _Steps(
            vector_env,
            own,
            name=self._name,
            adapter=type(self).__name__,
            observation_spec=self._observation_spec,
            actions=VectorActions(actions, self._action_spec, self._batch_size),
            reward_dtype=self._reward_spec.dtype,
            discount=as_discount(discount),
            begins_after_step=self._has_masks and auto_reset,
        )
        self._steps.options = self._checked_options(reset_options)

    @property
    def vector_env(self) -> Any:
        """The Gymnasium vector environment."""
        return self._foreign

    @property
    def autoreset(self) -> AutoReset:
        """When the episode after a `LAST` begins.

        In the vector environment's mode DISABLED, it may be changed to SAME_STEP or
        DISABLED.
        """
        return self._order

    @autoreset.setter
    def autoreset(self, order: AutoReset | str) -> None:
        self._check_open("autoreset")
        order = AutoReset.of(order)
        if order is self._order:
            return
        if not self._has_masks or order is _NEXT:
            raise ValueError(
                f"GymnasiumVectorWrapper cannot keep AutoReset.{order.name}: the "
                f"autoreset_mode of {self._name} is "
                f"{'DISABLED' if self._has_masks else self._order.name}. Make it with "
                f"AutoresetMode.{order.name}."
            )
        self._order = order
        self._begin_as_ordered()

    def _begin_as_ordered(self) -> None:
        if self._current_time_step is not None:
            # Before the change, because the rows keep their current time step.
            self._current_time_step = self.current_time_step()
        is_same = self._order is _SAME and not self._envkit.is_suspended
        self._steps.begin_after_step(is_same)

    @property
    def resets_rows(self) -> bool:
        """True if `reset` takes a mask: when nothing else begins episodes."""
        return self._has_masks

    @property
    def seeds_rows(self) -> bool:
        """True for Gymnasium's own vector environments: each row takes a seed."""
        return self._is_seeded_by_row

    @property
    def holds_rows(self) -> bool:
        """False: a vector environment steps all its rows."""
        return False

    def __getattr__(self, name: str) -> Any:
        # Unlike those of other batches, its `envs` are not envkit environments.
        if name == "envs":
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'envs'; its "
                "vector_env may have."
            )
        try:
            return forwarded(self, lambda: self._foreign, name)
        except AttributeError:
            # Gymnasium's wrappers only forward the attributes of `VectorEnv`.
            return forwarded(self, lambda: self._foreign.unwrapped, name)

    def seed(self, seed: Seed) -> None:
        """Seeds each row at the next reset.

        The rows of a `SyncVectorEnv` or `AsyncVectorEnv` have their own generators.
        Other kinds take one seed for all rows: an integer is passed on as it is, and
        several seeds are combined into one. Episodes that a vector environment begins
        itself are not seeded.
        """
        if "seed" not in self._steps.known_to_reset:
            refuse_seed(self._name)
        record_seed(self, seed)
        as_rows = seed_per_row if self._is_seeded_by_row else checked_seeds
        # In Gymnasium, no seed means that the old generator continues.
        seeds: list[Any] = [
            drawn_seed() if own is None else own
            for own in as_rows(seed, self._steps.rows)
        ]
        if self._is_seeded_by_row:
            self._steps.seeds = seeds
        elif np.ndim(seed) == 0:  # type: ignore[arg-type]  # None has no dimension
            self._steps.seeds = seeds[0]
        else:
            # One seed that depends on all of them.
            self._steps.seeds = int(np.random.SeedSequence(seeds).generate_state(1)[0])

    def _seed_rows(self, seeds: list[int | None]) -> None:
        before = self._steps.seeds
        if not isinstance(before, list):
            before = [None] * len(seeds)
        self._steps.seeds = [
            old if new is None else new for old, new in zip(before, seeds, strict=True)
        ]

    def set_reset_options(self, options: Mapping[str, Any] | None) -> None:
        """Sets the `options` that the next reset and all later ones pass on.

        A vector environment does not use them for episodes that it begins itself; the
        wrapper uses them for those it begins in the mode DISABLED.

        Args:
            options: The options, as the environments expect them; `None` passes none.
        """
        self._steps.options = self._checked_options(options)

    def _checked_options(self, options: Mapping[str, Any] | None) -> Any:
        if options and "options" not in self._steps.known_to_reset:
            refuse_options(self._name, options)
        return _own_options(options)

    def _accepts_options(self) -> bool:
        return "options" in self._steps.known_to_reset

    def get_info(self) -> Any:
        """Returns the infos stacked, or a list of them if they cannot be stacked.

        They belong to the time step returned last, even if the next episode has begun
        since. Each row has the environment's infos, `terminated` and `truncated`.
        Before the first reset they are empty.
        """
        return self._steps.infos.shown()

    def current_info(self) -> Any:
        """Returns the infos of the `current_time_step()`.

        They differ from `get_info()` if an episode has ended and the next has begun.
        """
        return self._steps.infos.standing()

    @property
    def repaired(self) -> Array:
        """A mask of the rows whose last time step is a made-up `LAST`."""
        repaired = np.zeros(self._steps.rows, bool)
        repaired[list(self._steps.infos.losses())] = True
        return repaired

    def current_losses(self) -> dict[int, Loss]:
        """Returns the loss behind each row of `repaired`, by row."""
        return self._steps.infos.losses()

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call that cut an episode short.

        The vector environment reports them in its infos if its environments are
        envkit's.
        """
        losses = list(self._steps.unasked_losses)
        self._steps.unasked_losses.clear()
        return losses

    def call(
        self,
        name: str,
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Calls a method of the rows' environments, and returns the results.

        An attribute that is not a method is returned. A vector environment without
        inner environments is asked once, and its answer counts for all rows.

        Args:
            name: The method's name.
            *args: Its positional arguments.
            env_ids: The rows; only a `SyncVectorEnv` can ask single rows.
            **kwargs: Its keyword arguments.
        """
        self._check_open("call")
        if name in _MOVES:
            raise ValueError(
                f"call({name!r}) would move environments behind the wrapper's back. "
                f"Use {name}() itself."
            )
        env, kind, ids = self._asked(name, env_ids)
        if kind == "SyncVectorEnv":
            found = [env.envs[row].get_wrapper_attr(name) for row in ids]
            return [one(*args, **kwargs) if callable(one) else one for one in found]
        if ids != list(range(self._steps.rows)):
            raise ValueError(
                f"call() was given env_ids, and {type(env).__name__} can only be asked "
                "as a whole: leave them out."
            )
        if kind == "AsyncVectorEnv":
            return list(env.call(name, *args, **kwargs))
        answer = getattr(env, name)
        return [answer(*args, **kwargs) if callable(answer) else answer] * len(ids)

    def access(self, name: str, *, env_ids: Sequence[int] | None = None) -> list[Any]:
        """Returns an attribute of the rows' environments."""
        self._check_open("access")
        env, kind, ids = self._asked(name, env_ids)
        if kind == "SyncVectorEnv":
            return [env.envs[row].get_wrapper_attr(name) for row in ids]
        if kind == "AsyncVectorEnv":
            values = env.get_attr(name)
            return [values[row] for row in ids]
        return [getattr(env, name)] * len(ids)

    def _asked(
        self, name: str, env_ids: Sequence[int] | None
    ) -> tuple[Any, str, list[int]]:
        """Returns the innermost vector environment, its kind, and the rows to ask."""
        if name.startswith("_"):
            raise AttributeError(
                f"{name!r} is private to the environment; only public names are "
                "forwarded."
            )
        rows = self._steps.rows
        ids = list(range(rows) if env_ids is None else env_ids)
        for env in ids:
            if not 0 <= env < rows:
                raise ValueError(
                    f"env_ids has {env}; there are {rows} environments, 0 to "
                    f"{rows - 1}."
                )
        env = self._foreign.unwrapped
        return env, kind_of_vector_env(env), ids

    def current_time_step(self) -> TimeStep:
        """Returns the time step on which a policy should act next.

        If an episode has ended and the next has begun, this returns the next one's
        `FIRST`.
        """
        return self._steps.standing(super().current_time_step())

    def _reset(self, options: list[Any] | None = None) -> TimeStep:
        self._check_open("reset")
        return self._steps.reset(_options_of_all(options, None))

    def _reset_rows(self, mask: Array, options: list[Any] | None = None) -> TimeStep:
        self._check_open("reset")
        if not self._has_masks:
            raise NotImplementedError(
                f"{self._name} cannot reset single rows, as it resets itself: its "
                f"autoreset_mode is {self._order.name}. Make it with "
                "AutoresetMode.DISABLED."
            )
        return self._steps.reset_rows(mask, _options_of_all(options, mask))

    def _step(self, action: NestedArray) -> TimeStep:
        return self._steps.step(action)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        held = np.flatnonzero(~stepping)
        raise NotImplementedError(
            f"{self._name} cannot step without {_rows(held)}: a vector environment of "
            "Gymnasium steps all its rows. envkit's BatchedPyEnvironment and "
            "ParallelPyEnvironment can step some."
        )

    def _close(self) -> None:
        self._steps.is_closed = True
        self._foreign.close()

    def _get_state(self) -> Any:
        return take_vector_state(self._foreign, self._name, self._steps.state)

    def _set_state(self, state: Any) -> None:
        self._steps.state = restore_vector_state(self._foreign, self._name, state)


class _Steps:
    """Steps a vector environment, and makes time steps from its results.

    | its order | the next episode begins                                            |
    |-----------|--------------------------------------------------------------------|
    | NEXT_STEP | with the next step, which returns its `FIRST`                      |
    | SAME_STEP | with the step that ends one, whose observation is among the infos  |
    | DISABLED  | right after that step, if the wrapper resets; or with `reset(mask)` |

    It is a separate object because a class that forwards attributes takes several times
    as long to find its own, and a step reads many.

    Attributes:
        infos: The infos of the vector environment.
        rows: The number of rows.
        seeds: The seeds of the next reset: one for each row, or one for all.
        options: The options of all resets.
        is_closed: Whether a step raises.
        unasked_losses: The losses that nobody has asked for yet.
    """

    def __init__(
        self,
        vector_env: Any,
        own: AutoReset,
        *,
        name: str,
        adapter: str,
        observation_spec: NestedSpec,
        actions: VectorActions,
        reward_dtype: Any,
        discount: float,
        begins_after_step: bool,
    ) -> None:
        self.rows = rows = int(vector_env.num_envs)
        self.infos = VectorInfos(rows)
        self.seeds: list[int | None] | int | None = None
        self.options: dict[str, Any] | None = None
        self.is_closed = False
        self.unasked_losses: deque[Loss] = deque(maxlen=MOST_KEPT)
        self.known_to_reset = known_to_reset(layers_of(vector_env))
        if own is _DISABLED:
            self.known_to_reset["options"] = None  # the reset mask is an option
        self._vector_env = vector_env
        self._own = own
        self._begins_next = own is _NEXT
        self._begins_after_step = begins_after_step
        self._waits = own is _DISABLED and not begins_after_step
        self._name = name
        self._adapter = adapter
        self._actions = actions
        self._structure = nest.Structure(observation_spec)
        space = vector_env.single_observation_space
        self._to_observations = from_members(
            space,
            observation_spec,
            rows,
            subject=f"{name} returned an observation that",
            root="observation",
        )
        subject = f"{name} returned a final observation that"
        self._to_final = from_member(
            space, observation_spec, subject=subject, root="observation"
        )
        self._to_finals = from_members(
            space, observation_spec, rows, subject=subject, root="observation"
        )
        # Enables the fast path for an observation that is one array.
        is_one = isinstance(observation_spec, ArraySpec)
        self._plain_dtype = observation_spec.dtype if is_one else None
        self._plain_shape = (rows, *observation_spec.shape) if is_one else None
        self._shape = (rows,)
        self._reward_dtype = reward_dtype
        self._no_reward = np.zeros((), reward_dtype)
        # Parts of most time steps, to be copied.
        self._mids = np.full(rows, _MID, np.int32)
        self._discounts = np.full(rows, discount, np.float32)
        self._is_discounted = discount != 1.0
        # The rows whose episode has ended, and the batch of observations that includes
        # their next one, if it has begun.
        self._ended_rows = _NO_ROWS
        self._begun: NestedArray = None

    @property
    def state(self) -> Any:
        """The attributes that later time steps depend on."""
        return self.seeds, self.options, self.infos, self._ended_rows, self._begun

    @state.setter
    def state(self, state: Any) -> None:
        self.seeds, self.options, self.infos, self._ended_rows, self._begun = state

    def begin_after_step(self, after_step: bool) -> None:
        """Sets whether the next episodes begin here, or when rows are reset."""
        self._begins_after_step = after_step
        self._waits = not after_step
        if self._begun is not None:
            self._ended_rows, self._begun = _NO_ROWS, None

    @property
    def _ended(self) -> Array:
        """A mask of the rows whose episode has ended."""
        mask = np.zeros(self.rows, bool)
        mask[self._ended_rows] = True
        return mask

    def reset(self, options: dict[str, Any] | None = None) -> TimeStep:
        """Begins an episode in every row."""
        if self._begins_next and len(self._ended_rows):
            finish_resets(self._vector_env, self._ended_rows)
        observation, infos = self._begin(None, options)
        self.infos.step(infos)
        self._ended_rows = self._ended_rows[:0]
        return self._first(observation)

    def reset_rows(
        self, mask: Array, options: dict[str, Any] | None = None
    ) -> TimeStep:
        """Begins an episode in the masked rows; other rows' parts are meaningless."""
        observation, infos = self._begin(mask, options)
        self.infos.reset_rows(infos, mask)
        self._ended_rows = self._ended_rows[~mask[self._ended_rows]]
        return self._first(observation)

    def _begin(
        self, mask: Array | None, options: dict[str, Any] | None = None
    ) -> tuple[NestedArray, Any]:
        """Resets all rows, or some; returns observations and infos."""
        if options is None:
            # A copy, because Gymnasium's own remove the mask from the dictionary.
            options = copy.deepcopy(self.options)
        seeds: Any = self.seeds
        later = None
        if mask is not None:
            options = {**(options or {}), _MASK: mask.copy()}
            if isinstance(seeds, list):
                pairs = list(zip(seeds, mask.tolist(), strict=True))
                later = [None if masked else own for own, masked in pairs]
                seeds = [own if masked else None for own, masked in pairs]
        arguments = arguments_of_reset(self.known_to_reset, seeds, options)
        result = self._vector_env.reset(**arguments)
        self.seeds = later
        if not isinstance(result, tuple) or len(result) != 2:
            self._refuse_result("reset", result, "(observations, infos)")
        return self._to_observations(result[0]), result[1]

    def _first(self, observation: NestedArray) -> TimeStep:
        return TimeStep(
            np.full_like(self._mids, _FIRST),
            np.zeros(self.rows, self._reward_dtype),
            np.ones(self.rows, np.float32),
            observation,
        )

    def step(self, action: NestedArray) -> TimeStep:
        """Applies an action to each row, except those that begin an episode instead."""
        # Hot: called once per batch step. In most steps of a large batch, some row
        # begins and some row ends. Row indices take half the time of a mask, and
        # writing an array of shape () takes half the time of writing a number.
        begun = self._ended_rows if self._begins_next else _NO_ROWS
        if self.is_closed or (self._waits and len(self._ended_rows)):
            self._refuse_step()
        observation, reward, terminated, truncated, infos = self._read(
            self._vector_env.step(self._actions.members(action, begun))
        )
        # Searching bytes takes a fifth of the time of searching an array.
        truncated_bytes = truncated.tobytes()
        has_cut = b"\1" in truncated_bytes
        ended = np.logical_or(terminated, truncated) if has_cut else terminated
        step_type, discount = self._mids.copy(), self._discounts.copy()
        if len(begun):
            if b"\1" in ended[begun].tobytes():
                self._refuse_end(begun[ended[begun]])
            step_type[begun] = _FIRST
            reward[begun] = self._no_reward
            if self._is_discounted:
                discount[begun] = _ONE
        (rows,) = ended.nonzero()
        self._ended_rows = rows
        self._begun = None
        # The same as `TimeStep(...)`, without the call.
        time_step = _new_tuple(TimeStep, (step_type, reward, discount, observation))
        if not len(rows):
            self.infos.step(infos)
            return time_step
        step_type[rows] = _LAST
        # An episode that ends both ways counts as terminated.
        discount[terminated if has_cut else rows] = _ZERO
        self.infos.step(infos, terminated.tobytes(), truncated_bytes)
        if self._begins_next and not infos:
            return time_step
        self.unasked_losses.extend(self.infos.losses().values())
        return self._with_next(time_step, infos)

    def _read(self, result: Any) -> tuple[NestedArray, Array, Array, Array, Any]:
        """Checks the result of a step, and returns its parts.

        Observations and rewards are copied, because vector environments reuse their
        arrays. The flags are boolean arrays, which the next step may change.
        """
        # Hot: called once per batch step. Each part's usual case comes first; comparing
        # identity is faster than equality.
        try:
            observation, reward, terminated, truncated, infos = result
        except (TypeError, ValueError):
            self._refuse_result(
                "step", result, "(observations, rewards, terminated, truncated, infos)"
            )
        shape = self._shape
        if (
            type(observation) is _ARRAY
            and observation.dtype is self._plain_dtype
            and observation.shape == self._plain_shape
        ):
            # Keep the memory order, because changing it takes twice as long.
            observation = observation.copy("K")
        else:
            observation = self._to_observations(observation)
        if (
            type(reward) is _ARRAY
            and reward.dtype is self._reward_dtype
            and reward.shape == shape
        ):
            reward = reward.copy()
        else:
            reward = self._as_rewards(reward)
        if not (
            type(terminated) is _ARRAY
            and type(truncated) is _ARRAY
            and terminated.dtype is _BOOLEAN
            and truncated.dtype is _BOOLEAN
            and terminated.shape == shape == truncated.shape
        ):
            terminated, truncated = self._as_flags(terminated, truncated)
        return observation, reward, terminated, truncated, infos

    def _as_rewards(self, reward: Any) -> Array:
        array = np.asarray(reward)
        if array.shape != self._shape or array.dtype.kind not in "biuf":
            raise SpecError(
                f"{self._name}.step() returned {describe(reward)} as rewards; in "
                f"Gymnasium these are an array of shape {self._shape}, with a number "
                "for each row."
            )
        return array.astype(self._reward_dtype)

    def _as_flags(self, terminated: Any, truncated: Any) -> tuple[Array, Array]:
        """Converts numbers, lists, or one flag for all rows to arrays."""
        ended = np.logical_or(terminated, truncated)
        if ended.shape != self._shape or ended.dtype != _BOOLEAN:
            raise SpecError(
                f"{self._name}.step() returned {describe(terminated)} and "
                f"{describe(truncated)} as flags; in Gymnasium these are two arrays of "
                f"shape {self._shape}, with a boolean for each row."
            )
        first, second = (
            np.broadcast_to(np.asarray(flag).astype(_BOOLEAN), self._shape)
            for flag in (terminated, truncated)
        )
        return first, second

    def _with_next(self, time_step: TimeStep, infos: Any) -> TimeStep:
        """Begins the next episodes that are due, and finds final observations."""
        if self._own is _SAME:
            self._begun = time_step.observation
            self.infos.begin(infos)
            final = self._with_finals(time_step.observation, infos)
            return time_step._replace(observation=final)
        if self._begins_after_step:
            self._begun, begun_infos = self._begin(self._ended)
            self.infos.begin(begun_infos)
        elif self._begins_next and not _OWN_TO_SAME_STEP.isdisjoint(infos):
            raise SpecError(
                f"{self._name} returned final observations in its infos: its "
                "autoreset_mode is NEXT_STEP, where they are the observations "
                "themselves. If it resets with the same step, pass "
                "autoreset_mode='SameStep'."
            )
        return time_step

    def _with_finals(self, observation: NestedArray, infos: Any) -> NestedArray:
        """Returns observations with the final ones in rows that ended.

        A vector environment that resets in the same step puts them in its infos: one
        for each row in an object array, or all in one batch.
        """
        final, rows = infos.get(FINAL_OBSERVATION), self._ended_rows.tolist()
        is_by_row = isinstance(final, list) or getattr(final, "dtype", None) == _OBJECT
        missing = [
            row for row in rows if final is None or (is_by_row and final[row] is None)
        ]
        if missing:
            raise SpecError(
                f"{self._name} ended the episodes of {_rows(np.array(missing))} and "
                "did not return their final observations: its autoreset_mode is "
                "SAME_STEP, which has them in infos['final_obs']. If it resets with "
                "the next step, pass autoreset_mode='NextStep'."
            )
        if not is_by_row:
            return self._merged(self._ended, self._to_finals(final), observation)
        leaves = [np.array(leaf) for leaf in self._structure.flatten(observation)]
        for row in rows:
            values = self._structure.flatten(self._to_final(final[row]))
            for leaf, value in zip(leaves, values, strict=True):
                # With the ellipsis: otherwise an object would be stored inside its
                # array.
                leaf[row, ...] = value
        return self._structure.unflatten(leaves)

    def _merged(
        self, mask: Array, masked: NestedArray, other: NestedArray
    ) -> NestedArray:
        """Returns the masked rows of one batch with the other rows of another."""
        flatten = self._structure.flatten
        return self._structure.unflatten(
            [
                np.where(mask.reshape(-1, *[1] * (np.ndim(ours) - 1)), ours, theirs)
                for ours, theirs in zip(flatten(masked), flatten(other), strict=True)
            ]
        )

    def standing(self, shown: TimeStep) -> TimeStep:
        """Returns the current time step, given the one returned last."""
        if self._begun is None or not len(self._ended_rows):
            return shown
        ended = self._ended
        return TimeStep(
            np.where(ended, _FIRST, shown.step_type),
            np.where(ended, self._no_reward, shown.reward),
            np.where(ended, _ONE, shown.discount),
            self._merged(ended, self._begun, shown.observation),
        )

    def _refuse_step(self) -> NoReturn:
        if self.is_closed:
            raise ClosedError.used(self._adapter, "step")
        raise CallOrderError(
            f"step() was called after the episode of {_rows(self._ended_rows)} of "
            f"{self._name} ended, and this {self._adapter} was made with "
            "auto_reset=False. Call reset(mask) for them first; none of the "
            "environments has moved."
        )

    def _refuse_end(self, rows: Array) -> NoReturn:
        raise SpecError(
            f"{self._name} ended the episodes of {_rows(rows)} in two steps in a row: "
            "its autoreset_mode is NEXT_STEP, where the second of these steps begins "
            "the next. If it resets with the same step, pass autoreset_mode='SameStep'."
        )

    def _refuse_result(self, call: str, result: Any, expected: str) -> NoReturn:
        raise SpecError(
            f"{self._name}.{call}() returned {describe(result)}; in Gymnasium it "
            f"returns the tuple {expected}."
        )


def _rows(rows: Array) -> str:
    return f"{'row' if rows.size == 1 else 'rows'} {listed(rows)}"


def _own_options(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns a copy of the reset options."""
    own = options_copy(options)
    if own is not None and _MASK in own:
        raise ValueError(
            "The options of a reset have a 'reset_mask', which says which rows are "
            "reset this once. Call reset(mask) for that."
        )
    return own


def _options_of_all(options: Any, rows: Array | None) -> dict[str, Any] | None:
    """Returns a single dictionary of options, given one for each row."""
    if options is None:
        return None
    asked = [own for row, own in enumerate(options) if rows is None or rows[row]]
    if any(own != asked[0] for own in asked):
        raise NotImplementedError(
            "A Gymnasium vector environment resets all rows with the same options. "
            "Pass one dictionary. envkit's pools, and vectorize(), make environments "
            "with options of their own."
        )
    return _own_options(asked[0])


class VectorActions:
    """Checks a batch of actions, and converts it to a member of the batched space.

    Example:
        >>> from gymnasium import spaces
        >>> spec = BoundedArraySpec((), np.int64, 0, 2)
        >>> VectorActions(spaces.Discrete(3), spec, rows=2).members([0, 2])
        array([0, 2])
    """

    def __init__(self, space: Any, spec: NestedSpec, rows: int) -> None:
        """Compiles the checks.

        Args:
            space: The space of one row's action.
            spec: Its specs.
            rows: The number of rows.
        """
        self._rows = rows
        self._columns = ActionRows(spec, rows, _STEP)
        self._structure = self._columns.structure
        self._to_members: Callable[[Any], Any] = to_members(space, spec)
        self._choices = _choices(spec)
        self._shape = (rows,)

    def members(self, action: NestedArray, unused: Sequence[int] | Array = ()) -> Any:
        """Checks actions, and returns them in new arrays.

        Args:
            action: A batch of actions.
            unused: The rows whose action is not used. The vector environment gets any
                fitting action for them.
        """
        # Hot: called once per batch step. The usual case comes first. Looking up
        # choices takes a fifth of the time of comparing them; a negative one counts
        # from the end and comes back as another one.
        if (
            self._choices is not None
            and type(action) is np.ndarray
            and action.dtype is _INTEGER
            and action.shape == self._shape
        ):
            try:
                chosen = self._choices[action]
                if chosen.tobytes() == action.tobytes():
                    return chosen
            except IndexError:
                pass  # the check below names the wrong action
        ignored = None
        if len(unused):
            ignored = np.zeros(self._rows, bool)
            ignored[unused] = True
        columns = self._columns.columns(action, ignored=ignored)
        if ignored is not None:
            columns = [
                self._without_ignored(*pair, ignored)
                for pair in zip(columns, self._structure.leaves, strict=True)
            ]
        for index, column in enumerate(columns):
            self._check_further(index, column, ignored)
        own = [
            np.array(column, spec.dtype)
            for column, spec in zip(columns, self._structure.leaves, strict=True)
        ]
        return self._to_members(self._structure.unflatten(own))

    def _without_ignored(self, column: Array, spec: ArraySpec, ignored: Array) -> Array:
        """Replaces the actions of rows that begin an episode with fitting ones."""
        if not isinstance(spec, BoundedArraySpec):
            return column
        where = ignored.reshape(-1, *[1] * len(spec.shape))
        return np.where(where, spec.minimum, column)

    def _check_further(self, index: int, column: Array, ignored: Array | None) -> None:
        """Checks what `ActionRows` leaves to environments: float bounds and text."""
        spec = self._structure.leaves[index]
        if isinstance(spec, BoundedArraySpec) and spec.dtype.kind == "f":
            if within(column, spec.minimum, spec.maximum):
                return
        elif not isinstance(spec, TextSpec):
            return
        column = column if ignored is None else column[~ignored]
        check_fits(
            column.astype(spec.dtype),
            spec,
            subject=f"{_STEP} was given an action that",
            root="action",
            path=self._structure.paths[index],
            outer_dims=column.shape[:1],
        )


def _choices(spec: NestedSpec) -> Array | None:
    """Returns the table of choices, if an action is one of a few from 0."""
    is_one = isinstance(spec, BoundedArraySpec) and spec.shape == ()
    if is_one and spec.dtype == _INTEGER and spec.minimum == 0 <= spec.maximum < _MANY:
        return np.arange(int(spec.maximum) + 1, dtype=_INTEGER)
    return None


def _spec_of_all_rows(spec: NestedSpec, batch_space: Any) -> NestedSpec:
    """Widens the bounds of one row's spec to those of all rows, where they differ.

    Args:
        spec: The specs of the first row.
        batch_space: The space of the whole batch.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> spec = BoundedArraySpec((), np.float32, 0.0, 1.0)
        >>> both = spaces.Box(np.float32([0, -5]), np.float32([1, 2]))
        >>> _spec_of_all_rows(spec, both)
        BoundedArraySpec(shape=(), dtype=float32, minimum=-5.0, maximum=2.0)
    """
    if isinstance(spec, dict):
        return {
            key: _spec_of_all_rows(child, batch_space.spaces[key])
            for key, child in spec.items()
        }
    if isinstance(spec, tuple) and not isinstance(spec, OneOf):
        pairs = zip(spec, batch_space.spaces, strict=True)
        return tuple(_spec_of_all_rows(*pair) for pair in pairs)
    bounds = _bounds_of_rows(batch_space)
    if not isinstance(spec, BoundedArraySpec) or bounds is None:
        return spec
    low, high = bounds
    if low.shape[1:] != spec.shape:
        return spec
    wide = spec.replace(
        minimum=_simplified(low.min(axis=0), spec.minimum),
        maximum=_simplified(high.max(axis=0), spec.maximum),
    )
    return spec if wide == spec else wide


def _bounds_of_rows(space: Any) -> tuple[Array, Array] | None:
    kind = kind_of_space(space)
    if kind == "Box":
        return space.low, space.high
    if kind == "MultiDiscrete":
        return space.start, space.start + (space.nvec - 1)
    return None


def _simplified(bound: Array, like: Array) -> Any:
    """Reduces a bound to a single number if it was one and still can be."""
    if like.ndim == 0 and (bound == bound.flat[0]).all():
        return bound.flat[0]
    return bound


def _check_vector_env(env: Any) -> None:
    """Raises unless it is a vector environment."""
    if not isinstance(env, type) and all(hasattr(env, name) for name in _NEEDED):
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
