"""`PyEnvironment`: the base class of all environments, single or batched.

A subclass defines its specs (`action_spec`, `observation_spec`) and how an episode
begins and continues (`_reset`, `_step`). The base class keeps the current time step,
resets an environment that was not reset, and makes state tokens.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import functools
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from envkit import batches, provenance
from envkit._internal.direct_row import CurrentTimeStep
from envkit._internal.first_look import looking
from envkit._internal.internals import Internals, methods_of, own_internals
from envkit._internal.masks import check_time_step
from envkit._internal.missing_names import explains_words
from envkit._internal.reset_order import (
    is_in_other_order,
    moves_in_other_order,
    with_order_suspended,
)
from envkit._internal.resets import begin, keep_seed
from envkit.errors import CallOrderError
from envkit.losses import LossReports
from envkit.provenance import MadeBy, check_made_by
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.validation import describe
from envkit.time_step import (
    DISCOUNT_SPEC,
    REWARD_SPEC,
    STEP_TYPE_SPEC,
    StepType,
    TimeStep,
    derive_from_tf_agents,
)
from envkit.types import Array, NestedArray, NestedSpec, Options, ResetSeed, Seed

__all__ = [
    "EnvironmentState",
    "InnerSpecs",
    "PyEnvironment",
    "SpecKeeper",
    "Specified",
    "SpecifiedEnvironment",
]


@explains_words
class Specified(abc.ABC):
    """Declares specs; the base of every environment class.

    The specs describe one environment, without the dimensions of a batch.
    """

    # Everything else that envkit stores about an environment.
    _envkit: Internals = Internals(keeps_order=False)

    @abc.abstractmethod
    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation, without a batch dimension."""

    @abc.abstractmethod
    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action, without a batch dimension."""

    def __repr__(self) -> str:
        # The number of rows of a half-made object may raise anything.
        size = None
        with contextlib.suppress(Exception):
            size = getattr(self, "batch_size", None)
        arguments = f"batch_size={size}" if isinstance(size, int) else ""
        return f"{type(self).__name__}({arguments})"

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of the reward: a float32 scalar unless overridden."""
        return REWARD_SPEC

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of the discount: a float32 in [0, 1] unless overridden."""
        return DISCOUNT_SPEC

    def time_step_spec(self) -> TimeStep:
        """Returns the specs of a whole time step, as a `TimeStep`."""
        derive_from_tf_agents()
        return TimeStep(
            step_type=STEP_TYPE_SPEC,
            reward=self.reward_spec(),
            discount=self.discount_spec(),
            observation=self.observation_spec(),
        )

    def environment_spec(self) -> EnvironmentSpec:
        """Returns the four specs together, for comparison."""
        return EnvironmentSpec.of(self)

    def provenance(self) -> dict[str, Any]:
        """Returns the origin of the environment, as data that JSON can hold.

        The keys are `id`, `version`, `class`, `arguments` (of the constructor, or
        `None` if `envkit.make` did not record them), `seed` (the last one), `wrappers`
        (the outermost first), in a batch `environments`, then `envkit`, `python` and
        `packages` (their versions), and `machine`.

        Example:
            >>> from envkit import make
            >>> found = make("Catch", seed=7).provenance()
            >>> found["id"], found["version"], found["arguments"], found["seed"]
            ('Catch-v1', 1, {'seed': 7}, 7)
        """
        return provenance.provenance_of(self)


Self = TypeVar("Self", bound="PyEnvironment")

_MID = StepType.MID
# The methods that only one thread may call at a time, if that matters.
_ONE_AT_A_TIME = (
    "current_time_step",
    "get_info",
    "get_state",
    "render",
    "reset",
    "seed",
    "set_state",
    "step",
    "step_rows",
)


class SpecKeeper(Specified):
    """Keeps its four specs as one value, in `_spec`."""

    _spec: EnvironmentSpec

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one environment's observation."""
        return self._spec.observation

    def action_spec(self) -> NestedSpec:
        """Returns the specs of one environment's action."""
        return self._spec.action

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of one environment's reward."""
        return self._spec.reward

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of one environment's discount."""
        return self._spec.discount


class InnerSpecs(Specified):
    """Forwards the specs of the environment in `_env`."""

    _env: Any

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one row's observation."""
        return self._env.observation_spec()

    def action_spec(self) -> NestedSpec:
        """Returns the specs of one row's action."""
        return self._env.action_spec()

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of one row's reward."""
        return self._env.reward_spec()

    def discount_spec(self) -> NestedSpec:
        """Returns the specs of one row's discount."""
        return self._env.discount_spec()


class EnvironmentState(NamedTuple):
    """A token that `get_state` returns for `set_state`; it pickles.

    Attributes:
        environment: What the environment's `_get_state` returned.
        time_step: The current time step; `None` before the first reset.
        made_by: The versions that made it; `None` if unknown.
        next_seed: The seed of the next reset; `None` for none.
    """

    environment: Any
    time_step: TimeStep | None
    made_by: MadeBy | None = None
    next_seed: Any = None


class PyEnvironment(Specified, batches.MaskedRows, LossReports):
    """An environment that takes actions and returns time steps.

    Example:
        >>> import numpy as np
        >>> from envkit import ArraySpec, BoundedArraySpec, PyEnvironment
        >>> from envkit import restart, termination, transition
        >>> class Countdown(PyEnvironment):
        ...     def __init__(self):
        ...         super().__init__(handle_auto_reset=True)
        ...     def observation_spec(self):
        ...         return ArraySpec((), np.int32)
        ...     def action_spec(self):
        ...         return BoundedArraySpec((), np.int32, 0, 1)
        ...     def _reset(self):
        ...         self._left = np.int32(2)
        ...         return restart(np.array(self._left))
        ...     def _step(self, action):
        ...         self._left -= np.int32(1)
        ...         if self._left:
        ...             return transition(np.array(self._left), reward=0.0)
        ...         return termination(np.array(self._left), reward=1.0)
        >>> env = Countdown()
        >>> [int(env.step(0).step_type) for _ in range(4)]
        [0, 1, 2, 0]
    """

    # On the class, so that a subclass whose __init__ forgets super().__init__() works.
    _current_time_step: TimeStep | None = CurrentTimeStep()  # type: ignore[assignment]  # what is read of it
    _handle_auto_reset: bool = False
    _envkit = Internals()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declares = "_envkit" in vars(cls)
        methods = methods_of(cls, PyEnvironment)
        cls._envkit = cls._envkit.of_class(methods, is_declared=declares)
        if cls._envkit.one_thread:
            from envkit._internal.threads import locked

            for name in _ONE_AT_A_TIME:
                if declares or name in vars(cls):
                    setattr(cls, name, locked(getattr(cls, name)))
        elif "reset" in vars(cls):
            cls.reset = looking(vars(cls)["reset"])  # type: ignore[method-assign]  # it does the same

    def __init__(self, handle_auto_reset: bool = False) -> None:
        """Prepares the base class.

        Args:
            handle_auto_reset: Whether `step` begins a new episode after a `LAST`. If
                false, the environment's own `_step` must.
        """
        _check_template(type(self))
        if self._envkit.one_thread:
            from envkit._internal.threads import CallLock

            own_internals(self).lock = CallLock()
        self._handle_auto_reset = handle_auto_reset
        self._current_time_step = None

    @property
    def repeats_last(self) -> bool:
        """Whether another `LAST` may follow a `LAST`, as padding.

        Then only the environment knows which step begins the next episode. Wrappers
        that give all episodes the same length do this.
        """
        return False

    @property
    def continues_after_last(self) -> bool:
        """Whether the step after a `LAST` uses its action, so that no `FIRST` follows.

        This is for environments whose every step is an episode, such as contextual
        bandits: the next action answers the observation of the `LAST`. Only `reset`
        returns a `FIRST`, and all orders of `autoreset` are the same.

        Example:
            >>> import numpy as np
            >>> from envkit import ArraySpec, BoundedArraySpec, restart, termination
            >>> class Guess(PyEnvironment):
            ...     continues_after_last = True
            ...     def observation_spec(self):
            ...         return ArraySpec((), np.int32)
            ...     def action_spec(self):
            ...         return BoundedArraySpec((), np.int32, 0, 9)
            ...     def _reset(self):
            ...         self._asked = np.array(3, np.int32)
            ...         return restart(self._asked)
            ...     def _step(self, action):
            ...         reward = float(action == self._asked)
            ...         self._asked = (self._asked + 1) % np.array(10, np.int32)
            ...         return termination(np.array(self._asked), reward)
            >>> env = Guess()
            >>> time_step = env.reset()
            >>> for _ in range(3):
            ...     time_step = env.step(time_step.observation)
            >>> float(time_step.reward), int(time_step.step_type)
            (1.0, 2)
        """
        return False

    @property
    def adapts(self) -> bool:
        """Whether its output depends on everything before, as running statistics do.

        Then a seed does not repeat a stream, and the rows of a batch are not
        independent.
        """
        return False

    @property
    def one_per_process(self) -> bool:
        """Whether a process may hold only one such environment at a time.

        This is for libraries that have one window or simulator for a whole process.
        Close the first environment before you make a second, or use another process.
        """
        return False

    def current_time_step(self) -> TimeStep:
        """Returns the last time step, which a policy should act on."""
        time_step = self._current_time_step
        if time_step is None:
            raise CallOrderError(
                "Current timestep not initialized: "
                f"{type(self).__name__}.current_time_step() was called before the "
                "first episode. Call reset() first."
            )
        return time_step

    def reset(
        self,
        mask: Array | None = None,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> TimeStep:
        """Starts an episode and returns its first time step.

        Args:
            mask: For a batch, the rows that start an episode; the others don't move.
                `None` means all.
            seed: Seeds the rows that start, as `seed()` does. In a list for a batch,
                `None` lets a row continue its random stream.
            options: Configures this one reset: a dictionary, or for a batch a list
                with a dictionary or `None` for each row.

        Returns:
            The time step of the whole batch: `FIRST` in the rows that were reset.

        Raises:
            NotImplementedError: The environment takes no seed, or no options.
        """
        is_plain = mask is None and seed is None and options is None
        if not is_plain or self._envkit.is_special:
            return batches.reset(self, mask, seed, options)
        time_step: TimeStep = begin(self)
        if time_step.__class__ is not TimeStep:
            check_time_step(self, time_step, "_reset")
        self._current_time_step = time_step
        return time_step

    def step(self, action: NestedArray, mask: Array | None = None) -> TimeStep:
        """Applies an action and returns the next time step.

        The first step of a new environment, and the step after a `LAST`, start an
        episode: they return a `FIRST` and ignore the action. In a batch each row does
        this on its own, in the order of `autoreset`. An environment made without
        `handle_auto_reset` must start the next episode in its own `_step`.

        Args:
            action: An action, or one for each row of a batch.
            mask: For a batch, the rows that step; the others don't move, and their
                actions are ignored. `None` means all.

        Returns:
            The time step of the whole batch.
        """
        # Hot: called once per step. The functions that make time steps share one
        # constant, because comparing arrays is not cheap.
        if mask is not None or self._envkit.is_special:
            return batches.step(self, action, mask)
        time_step = self._current_time_step
        if time_step is None or (
            self._handle_auto_reset
            and time_step.step_type is not _MID
            and self.should_reset(time_step)
        ):
            return self.reset()
        time_step = self._step(action)
        if time_step.__class__ is not TimeStep:
            check_time_step(self, time_step, "_step")
        self._current_time_step = time_step
        return time_step

    def should_reset(self, current_time_step: TimeStep) -> bool:
        """Returns True if the next `step` should be a complete `reset`."""
        return (
            self._handle_auto_reset
            and bool(np.all(current_time_step.is_last()))
            and not self.continues_after_last
        )

    def close(self) -> None:  # most environments hold nothing
        """Frees the environment's resources; calling it again does nothing."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns a picture of the current state.

        Args:
            mode: "rgb_array" for a uint8 array of shape `(height, width, 3)`, with
                the batch dimension in front in a batch. Environments with more
                modes list them in `render_modes`.

        Raises:
            NotImplementedError: The environment does not render, or not in this mode.
        """
        raise _lacking(
            self,
            "cannot render",
            "override render(mode), which returns a uint8 array of shape (height, "
            'width, 3) for "rgb_array"',
        )

    def seed(self, seed: Seed) -> Any:
        """Makes all randomness from the next reset on depend only on `seed`.

        A batch gives each row its own stream, or takes a seed for each row. An
        environment whose `_reset` has an argument `seed` gets it there.
        """
        if "seed" not in self._envkit.methods.reset_takes:
            hook = "override seed(seed), or give _reset() an argument seed"
            raise _lacking(self, "cannot be seeded", hook)
        provenance.record_seed(self, seed)
        keep_seed(self, seed)

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of the entries that `get_info` has at every time step.

        They are nested in dictionaries like the info itself; `{}` declares nothing. A
        pool keeps declared entries in shared memory beside the observation and reads
        them without asking the worker; a recording keeps them as arrays.

        Example:
            >>> from envkit.realtime import RealTimeEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with RealTimeEnvironment(CountingEnv, hz=60, host="virtual") as env:
            ...     env.info_spec()["realtime"]["observation_age"]
            ArraySpec(shape=(), dtype=float64, name='observation_age')
        """
        return {}

    def get_info(self) -> Any:
        """Returns the environment's info for the current time step."""
        hook = "override get_info(), which returns a dictionary"
        raise _lacking(self, "has no info", hook)

    def get_state(self) -> Any:
        """Returns a token from which `set_state` restores everything.

        The token is a copy that later steps don't change. It pickles.
        """
        if is_in_other_order(self):
            return with_order_suspended(self, self.get_state)
        return copy.deepcopy(
            EnvironmentState(
                self._get_state(),
                self._current_time_step,
                self._envkit.made_by(self),
                self._envkit.next_seed,
            )
        )

    def set_state(self, state: Any) -> None:
        """Restores everything from a token of `get_state`.

        Equal actions then give equal time steps.

        Raises:
            ValueError: The state belongs to another version of the environment. A state
                saved by another version of envkit gives a `VersionWarning`.
        """
        if moves_in_other_order(self):
            with_order_suspended(self, functools.partial(self.set_state, state))
            self._envkit.order.late_error = None  # type: ignore[union-attr]  # it has one
            return
        if not isinstance(state, EnvironmentState):
            raise TypeError(
                f"{type(self).__name__}.set_state() was given {describe(state)}; it "
                "takes what get_state() returned."
            )
        check_made_by(self, state.made_by)
        state = copy.deepcopy(state)
        self._set_state(state.environment)
        self._current_time_step = state.time_step
        if self._envkit.next_seed is not state.next_seed:
            own_internals(self).next_seed = state.next_seed

    @abc.abstractmethod
    def _reset(self) -> TimeStep:
        """Starts an episode, in every row of a batch, and returns a `FIRST`.

        It may have arguments `seed` and `options`, which get what the caller of `reset`
        passed, or `None`, by name. In a batch these are lists with an entry for each
        row.
        """

    @abc.abstractmethod
    def _step(self, action: NestedArray) -> TimeStep:
        """Applies an action and returns the time step that follows.

        In a batch with `handle_auto_reset`, it is called for ended rows too, before
        `_reset_rows`; its values for them are ignored.
        """

    def _get_state(self) -> Any:
        """Returns everything that affects later steps, except the current time step."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot save its state: override _get_state() and "
            "_set_state()."
        )

    def _set_state(self, state: Any) -> None:
        """Adopts what `_get_state` returned, which now belongs to this environment."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot restore a state: override _get_state() and "
            "_set_state()."
        )


def _lacking(env: Any, lack: str, hook: str) -> NotImplementedError:
    """Returns the error for an optional ability; an author is told the hook."""
    cls = type(env)
    remedy = "" if cls.__module__.startswith("envkit.") else f": {hook}"
    return NotImplementedError(f"{cls.__name__} {lack}{remedy}.")


def _check_template(cls: type[PyEnvironment]) -> None:
    """Refuses a class that overrides `reset` or `step`."""
    found = _overridden_template(cls)
    if found is not None:
        owner, name = found
        raise ValueError(
            f"{owner.__name__} overrides {name}(); override _{name}() instead. "
            f"{name}() belongs to PyEnvironment, which keeps the current time step "
            "there."
        )


def _overridden_template(cls: type[PyEnvironment]) -> tuple[type, str] | None:
    """Returns the class that overrides `reset` or `step`, and which of the two.

    Classes of envkit may override them.
    """
    if cls._envkit.is_template:
        return None
    owners = cls.__mro__[: cls.__mro__.index(PyEnvironment)]
    for name in ("reset", "step"):
        for owner in owners:
            internals = getattr(owner, "_envkit", None)  # A mixin has none.
            if name in vars(owner) and not (internals and internals.locks_here):
                return owner, name
    return None


class SpecifiedEnvironment(PyEnvironment):
    """Keeps specs and batch size in attributes.

    A subclass sets `_observation_spec` and `_action_spec`, a batch `_batch_size` too,
    and `_reward_spec` and `_discount_spec` if they are no float32 scalars.
    """

    # On the class, so that an object that is not made yet can be closed and copied.
    _observation_spec: NestedSpec = None
    _action_spec: NestedSpec = None
    _reward_spec: NestedSpec = REWARD_SPEC
    _discount_spec: NestedSpec = DISCOUNT_SPEC
    _batch_size: int | None = None

    @property
    def batched(self) -> bool:
        """True for a batch."""
        return self._batch_size is not None

    @property
    def batch_size(self) -> int | None:
        """The number of rows of a batch; `None` for a single environment."""
        return self._batch_size

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of the reward."""
        return self._reward_spec

    def discount_spec(self) -> NestedSpec:
        """Returns the specs of the discount."""
        return self._discount_spec
