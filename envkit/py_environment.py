"""`PyEnvironment`: what every environment is, single or batched.

A subclass says what it takes and gives (`action_spec`, `observation_spec`) and how an
episode begins and goes on (`_reset`, `_step`). The base class keeps the current time
step, starts episodes that were not started, and turns state into a token.
"""

from __future__ import annotations

import abc
import copy
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from envkit import nest
from envkit.arrays import as_array
from envkit.errors import CallOrderError, SpecError
from envkit.specified import Specified
from envkit.specs.validation import check_fits, describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed
from envkit.wording import listed

__all__ = ["EnvironmentState", "PyEnvironment"]

Self = TypeVar("Self", bound="PyEnvironment")

_MID, _LAST = StepType.MID, StepType.LAST


class EnvironmentState(NamedTuple):
    """What `get_state` returns: a token for `set_state`, to be kept or pickled.

    Attributes:
        environment: What the environment's `_get_state` returned.
        time_step: The current time step; `None` before the first reset.
    """

    environment: Any
    time_step: TimeStep | None


class PyEnvironment(Specified):
    """An environment in Python, which takes actions and returns time steps.

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
    _current_time_step: TimeStep | None = None
    _handle_auto_reset: bool = False
    _overrides_should_reset: ClassVar[bool] = False
    _merge_structure: nest.Structure | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._overrides_should_reset = cls.should_reset is not PyEnvironment.should_reset

    def __init__(self, handle_auto_reset: bool = False) -> None:
        """Prepares the base class.

        Args:
            handle_auto_reset: Whether `step` begins a new episode by itself after a
                `LAST`. If false, the environment's own `_step` must.
        """
        self._refuse_overridden_template()
        self._handle_auto_reset = handle_auto_reset
        self._current_time_step = None

    def _refuse_overridden_template(self) -> None:
        mro = type(self).__mro__
        for name in ("reset", "step"):
            for owner in mro[: mro.index(PyEnvironment)]:
                if name in vars(owner):
                    raise ValueError(
                        f"{owner.__name__} overrides {name}(); override _{name}() "
                        f"instead. {name}() belongs to PyEnvironment, which keeps the "
                        "current time step there."
                    )

    @property
    def batched(self) -> bool:
        """Whether this is a batch: arrays then have a dimension of rows in front."""
        return False

    @property
    def batch_size(self) -> int | None:
        """How many rows a batch has; `None` for a single environment."""
        if self.batched:
            raise RuntimeError(
                f"{type(self).__name__} says it is batched but has no batch_size: "
                "override the property batch_size."
            )
        return None

    def current_time_step(self) -> TimeStep:
        """Returns where the environment stands now: what a policy should act on."""
        time_step = self._current_time_step
        if time_step is None:
            raise CallOrderError(
                "Current timestep not initialized: "
                f"{type(self).__name__}.current_time_step() was called before the "
                "first episode. Call reset() first."
            )
        return time_step

    def reset(self, mask: Array | None = None) -> TimeStep:
        """Starts an episode and returns its first time step.

        Args:
            mask: For a batch, which rows start an episode; the others stay where they
                are. `None` means all.

        Returns:
            The time step of the whole batch: `FIRST` in the rows that were reset.
        """
        if mask is not None:
            return self._reset_masked(mask)
        time_step = self._reset()
        if time_step.__class__ is not TimeStep:
            self._check_time_step(time_step, "_reset")
        self._current_time_step = time_step
        return time_step

    def step(self, action: NestedArray) -> TimeStep:
        """Applies an action and returns what comes of it.

        The first step of a new environment starts an episode, and so does the step
        after a `LAST`: both return a `FIRST` and ignore the action. In a batch that
        holds for each row by itself. An environment made without `handle_auto_reset`
        sees to the second in its own `_step`.
        """
        # Hot: called once per step. Whatever there is to decide about episodes hides
        # behind the first branch.
        time_step = self._current_time_step
        if time_step is None or self._handle_auto_reset or self._overrides_should_reset:
            return self._step_or_reset(time_step, action)
        time_step = self._step(action)
        if time_step.__class__ is not TimeStep:
            self._check_time_step(time_step, "_step")
        self._current_time_step = time_step
        return time_step

    def _check_time_step(self, result: Any, method: str) -> None:
        """Refuses what is no time step; those of other libraries are."""
        if hasattr(result, "step_type"):
            return
        hint = (
            "Did a return statement get lost?"
            if result is None
            else "Build it with envkit.restart, transition, termination or truncation."
        )
        raise SpecError(
            f"{type(self).__name__}.{method}() returned {describe(result)}, not a "
            f"TimeStep. {hint}"
        )

    def should_reset(self, current_time_step: TimeStep) -> bool:
        """Says whether the next `step` is to be a `reset` of everything."""
        return self._handle_auto_reset and bool(np.all(current_time_step.is_last()))

    def _step_or_reset(
        self, time_step: TimeStep | None, action: NestedArray
    ) -> TimeStep:
        if time_step is None:
            return self.reset()
        # Hot: nearly every step of a single environment ends here, for the functions
        # that make time steps share one constant, and comparing arrays is not cheap.
        if time_step.step_type is not _MID or self._overrides_should_reset:
            if self.should_reset(time_step):
                return self.reset()
            if self._handle_auto_reset and self.batched:
                ended = np.asarray(time_step.step_type) == _LAST
                if ended.any():
                    return self._step_and_reset(action, ended)
        stepped = self._step(action)
        if stepped.__class__ is not TimeStep:
            self._check_time_step(stepped, "_step")
        self._current_time_step = stepped
        return stepped

    def _step_and_reset(self, action: NestedArray, ended: Array) -> TimeStep:
        """Steps a batch some of whose rows have ended: those begin a new episode."""
        stepped = self._step(action)
        if stepped.__class__ is not TimeStep:
            self._check_time_step(stepped, "_step")
        if type(self)._reset_rows is PyEnvironment._reset_rows:
            # Without the hook the environment has to do it alone, as in TF-Agents.
            self._check_has_reset(ended, stepped)
        else:
            stepped = self._merge(ended, self._reset_rows(ended), stepped)
        self._current_time_step = stepped
        return stepped

    def _check_has_reset(self, ended: Array, stepped: TimeStep) -> None:
        stuck = np.flatnonzero(
            ended & (np.asarray(stepped.step_type) != StepType.FIRST)
        )
        if stuck.size:
            noun = "row" if stuck.size == 1 else "rows"
            raise NotImplementedError(
                f"{noun} {listed(stuck)} of {type(self).__name__} ended with the last "
                "step, and this step did not begin a new episode there. Override "
                "_reset_rows(mask), which begins an episode in the masked rows only, "
                "or let _step() do it."
            )

    def _merge(self, mask: Array, reset: TimeStep, other: TimeStep) -> TimeStep:
        """Takes the masked rows from what `_reset_rows` returned, the rest from other.

        `other` is what `_step` returned, or the current time step.
        """
        structure = self._merge_structure
        if structure is None:  # Compiled once: a batch merges at nearly every step.
            structure = self._merge_structure = nest.Structure(self.time_step_spec())
        whole = "It returns the whole batch; only the masked rows of it are used."
        columns = zip(
            self._checked_rows(structure, reset, "_reset_rows", whole),
            self._checked_rows(structure, other, "_step", ""),
            strict=True,
        )
        picked = [
            np.where(mask.reshape(-1, *[1] * (ours.ndim - 1)), ours, theirs)
            for ours, theirs in columns
        ]
        merged: TimeStep = structure.unflatten(picked)
        return merged

    def _checked_rows(
        self, structure: nest.Structure, time_step: TimeStep, method: str, context: str
    ) -> list[Array]:
        """Flattens a batch's time step; nothing may broadcast or change its dtype."""
        dims = (self.batch_size,)
        try:
            leaves = [np.asarray(leaf) for leaf in structure.flatten(time_step)]
        except SpecError:
            leaves = []
        if len(leaves) != len(structure.leaves) or any(
            leaf.shape != dims + spec.shape or leaf.dtype != spec.dtype
            for leaf, spec in zip(leaves, structure.leaves, strict=True)
        ):
            check_fits(
                time_step,
                structure.template,
                subject=f"{type(self).__name__}.{method}() returned a time step that",
                outer_dims=dims,  # type: ignore[arg-type]  # a batch has a size
                context=context,
            )
        return leaves

    def _reset_masked(self, mask: Any) -> TimeStep:
        rows = self._as_mask(mask)
        if rows.all():
            return self.reset()
        current = self._current_time_step
        if current is None:
            raise CallOrderError(
                f"{type(self).__name__}.reset(mask) was called before the first "
                "reset(): the rows outside the mask have no time step yet. Call "
                "reset() first."
            )
        if rows.any():
            self._current_time_step = self._merge(rows, self._reset_rows(rows), current)
        return self.current_time_step()

    def _as_mask(
        self, mask: Any, call: str = "reset", purpose: str = "an episode is to begin"
    ) -> Array:
        if not self.batched:
            raise ValueError(
                f"{type(self).__name__} is not batched, so it has no rows to choose "
                "from: call reset() without a mask."
            )
        rows = as_array(mask)
        if rows.dtype != np.bool_ or rows.shape != (self.batch_size,):
            raise SpecError.does_not_fit(
                f"{type(self).__name__}.{call}() was given a mask that",
                path="",
                expected=f"boolean array of shape ({self.batch_size},)",
                got=describe(mask),
                reason=f"A mask has one boolean for each row: true where {purpose}.",
            )
        return rows

    def close(self) -> None:  # most environments hold nothing
        """Frees what the environment holds; calling it again does nothing."""

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
                the batch dimension in front in a batch. What else there is, the
                environment says.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot render.")

    def seed(self, seed: Seed) -> Any:
        """Makes what is random from the next reset on depend on `seed` alone.

        A batch gives each row a stream of its own, or takes one seed per row.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be seeded.")

    def get_info(self) -> Any:
        """Returns what else there is to know about the current time step."""
        raise NotImplementedError(f"{type(self).__name__} has no info.")

    def get_state(self) -> Any:
        """Returns a token with which `set_state` brings everything back.

        The token is a copy: later steps do not change it. It pickles.
        """
        return copy.deepcopy(
            EnvironmentState(self._get_state(), self._current_time_step)
        )

    def set_state(self, state: Any) -> None:
        """Brings back everything a token of `get_state` holds.

        The same actions then give the same time steps as they did.
        """
        if not isinstance(state, EnvironmentState):
            raise TypeError(
                f"{type(self).__name__}.set_state() was given {describe(state)}; it "
                "takes what get_state() returned."
            )
        state = copy.deepcopy(state)
        self._set_state(state.environment)
        self._current_time_step = state.time_step

    @abc.abstractmethod
    def _reset(self) -> TimeStep:
        """Starts an episode, in every row of a batch, and returns a `FIRST`."""

    @abc.abstractmethod
    def _step(self, action: NestedArray) -> TimeStep:
        """Applies an action and returns the time step that follows.

        In a batch with `handle_auto_reset` it is called for rows that have ended, too,
        before `_reset_rows`; what it returns for them is not used.
        """

    def _reset_rows(self, mask: Array) -> TimeStep:
        """Starts an episode in the rows where `mask` is true; for batches.

        Returns the time step of the whole batch; only the masked rows of it are used.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot reset single rows: override "
            "_reset_rows(mask), which begins an episode in the masked rows only."
        )

    def _get_state(self) -> Any:
        """Returns all that later steps depend on, besides the current time step."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot save its state: override _get_state() and "
            "_set_state()."
        )

    def _set_state(self, state: Any) -> None:
        """Takes over what `_get_state` returned; the object is this environment's."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot restore a state: override _get_state() and "
            "_set_state()."
        )
