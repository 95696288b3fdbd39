"""`MaskedRows`: what a batch does with some of its rows while the others stay."""

from __future__ import annotations

import abc
import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from envkit import nest
from envkit._internal.direct_row import CurrentTimeStep, DirectRow
from envkit._internal.first_look import look_at
from envkit._internal.text import counted, listed
from envkit.errors import CallOrderError, SpecError
from envkit.seeding import seed_per_row
from envkit.specs.arrays import as_array
from envkit.specs.validation import check_fits, describe
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, Options, ResetSeed, Seed

__all__ = [
    "STEPS",
    "MaskedRows",
    "copied_arrays",
    "hand_options",
    "is_as_new",
    "options_copy",
    "options_per_row",
    "refuse_ended",
    "rely_on_size",
]

# What the mask of a step says.
STEPS = "a row is to take its action"
_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_NEXT_STEP = AutoReset.NEXT_STEP
_WHOLE = "It returns the whole batch; only the masked rows of it are used."


class MaskedRows(abc.ABC):
    """The part of `PyEnvironment` that concerns batches and their rows.

    A batch that can begin episodes in some rows alone overrides `_reset_rows`, and one
    that can leave rows where they are while others step overrides `_step_rows`.
    """

    # On the class, so that a subclass whose __init__ forgets super().__init__() works.
    _current_time_step: TimeStep | None = CurrentTimeStep()  # type: ignore[assignment]  # what is read of it
    # What steps the environment at the moment instead of `step`, if something does.
    _direct: DirectRow | None = None
    # The calls whose first result has not been looked at.
    _unseen: tuple[str, ...] = ()
    _handle_auto_reset: bool = False
    _merge_structure: nest.Structure | None = None
    # The order of a batch, and whether its rows move as under NEXT_STEP for now.
    _order_kept: AutoReset = _NEXT_STEP
    _moves_plainly: bool = False
    # Whether rows are beginning in the step that ended the episodes before.
    _begins_at_once: bool = False
    # Whether the order is one that can be changed.
    _changes_order: bool = True
    # Whether a call has to look what the order is, and who keeps it if another does.
    _has_order: bool = False
    _order_keeper: Any = None
    # What tells of the step that was returned last, as the next episodes have begun.
    _told_of_last: tuple[str, ...] = ()
    # What the beginning of episodes has raised in a step that returned their ends.
    _late_error: Exception | None = None
    # What the next reset is given: in a batch, a list with an entry for each row.
    _seed_of_reset: Any = None
    _options_of_reset: Any = None

    # Which arguments of reset() the class's own methods take, by their names.
    _reset_takes: ClassVar[tuple[str, ...]] = ()
    _reset_rows_takes: ClassVar[tuple[str, ...]] = ()
    # Whether the class, where it changes how all rows are seeded, says so of some, too.
    _seeds_rows: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._reset_takes = _taken_by(cls._reset)
        cls._reset_rows_takes = _taken_by(cls._reset_rows)
        cls._seeds_rows = is_as_new(cls, "_seed_rows", "seed")

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

    @property
    def resets_rows(self) -> bool:
        """Whether `reset` takes a mask of rows."""
        return self.batched and type(self)._reset_rows is not MaskedRows._reset_rows

    @property
    def holds_rows(self) -> bool:
        """Whether `step` takes a mask of rows: the others stay where they are."""
        return self.batched and type(self)._step_rows is not MaskedRows._step_rows

    @property
    def seeds_rows(self) -> bool:
        """Whether `reset` takes seeds for some rows: the streams of others go on."""
        knows = self._seeds_rows or "seed" in self._reset_rows_takes
        return self.batched and knows

    @property
    def autoreset(self) -> AutoReset:
        """When the episode after a `LAST` begins; of a batch it may be changed.

        A wrapper's order is that of the batch inside: to change either is the same.

        Example:
            >>> from envkit.envs import Catch
            >>> env = Catch(batch_size=2)
            >>> env.autoreset = "same_step"
            >>> env.autoreset
            <AutoReset.SAME_STEP: 'same_step'>
        """
        keeper = self._order_keeper
        return self._order_kept if keeper is None else keeper.autoreset

    @autoreset.setter
    def autoreset(self, order: AutoReset | str) -> None:
        order, keeper = self._checked_order(order), self._order_keeper
        if keeper is None:
            self._order_kept = order
            if order is not _NEXT_STEP:
                self._has_order = True
        elif order is not keeper.autoreset:
            self._check_may_choose()
            change = functools.partial(setattr, keeper, "autoreset", order)
            if self._current_time_step is None:
                change()
            else:  # What the batch shows is where it stands: nothing has begun beside.
                self._plainly(change)

    @property
    @abc.abstractmethod
    def continues_after_last(self) -> bool:
        """Whether the step after a `LAST` takes its action: no `FIRST` follows it."""

    @abc.abstractmethod
    def reset(
        self,
        mask: Array | None = None,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> TimeStep:
        """Starts an episode in every row, or in the masked rows."""

    @abc.abstractmethod
    def time_step_spec(self) -> TimeStep:
        """Returns the specs of a whole time step, as a `TimeStep`."""

    @abc.abstractmethod
    def get_info(self) -> Any:
        """Returns what else there is to know about the current time step."""

    @abc.abstractmethod
    def seed(self, seed: Seed) -> Any:
        """Makes what is random from the next reset on depend on `seed` alone."""

    @abc.abstractmethod
    def _reset(self) -> TimeStep:
        """Starts an episode in every row."""

    @abc.abstractmethod
    def _step(self, action: NestedArray) -> TimeStep:
        """Applies an action to every row."""

    def _reset_rows(self, mask: Array) -> TimeStep:
        """Starts an episode in the rows where `mask` is true; for batches.

        Returns the time step of the whole batch; only the masked rows of it are used.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot reset single rows: override "
            "_reset_rows(mask), which begins an episode in the masked rows only."
        )

    def _seed_rows(self, seeds: list[int | None]) -> None:
        """Seeds some rows from their next reset on; for batches.

        Args:
            seeds: An entry for each row: its seed, or `None` for a row whose random
                numbers go on.
        """
        if "seed" not in self._reset_rows_takes:
            self._refuse_seeds(seeds)
        before = self._seed_of_reset or [None] * len(seeds)
        self._seed_of_reset = [
            old if new is None else new for old, new in zip(before, seeds, strict=True)
        ]

    def _refuse_seeds(self, seeds: list[int | None]) -> None:
        rows = np.array([row for row, seed in enumerate(seeds) if seed is not None])
        raise NotImplementedError(
            f"{type(self).__name__} cannot seed {_rows(rows)} alone: override "
            "_seed_rows(seeds), whose seeds are None for the rows that go on. "
            "seed(seeds) seeds all rows."
        )

    # A reset with a seed or with options.

    def _reset_with(self, mask: Any, seed: ResetSeed, options: Options) -> TimeStep:
        """Hands on a seed and options, and resets."""
        rows = None if mask is None else self._as_mask(mask)
        if rows is not None and rows.all():
            rows = None
        if rows is not None:
            self._check_others_have_begun(rows)
        try:
            if options is not None:
                self._take_options(self._as_options(options), rows)
            if seed is not None:
                self._take_seed(seed, rows)
            return self.reset(rows)
        finally:
            # Options that were not used must not reach another reset.
            if options is not None:
                self._take_options(None, rows)

    def _check_others_have_begun(self, mask: Array) -> None:
        """Refuses a mask as long as the rows outside of it stand nowhere."""
        if self._current_time_step is None:
            self._refuse_mask()

    def _resets_itself(self) -> bool:
        """Returns True if the base class begins an episode after a `LAST`."""
        return self._handle_auto_reset and not self.continues_after_last

    def _refuse_mask(self) -> None:
        raise CallOrderError(
            f"{type(self).__name__}.reset(mask) was called before the first reset(): "
            "the rows outside the mask have no time step yet. Call reset() first."
        )

    def _as_options(self, options: Any) -> Any:
        """Returns checked options: in a batch a list with those of each row."""
        if not self.batched:
            return _checked_options(options)
        return options_per_row(options, self.batch_size)  # type: ignore[arg-type]  # a batch has a size

    def _take_options(self, options: Any, rows: Array | None) -> None:
        """Keeps options for the next reset, or forgets them.

        Args:
            options: A dictionary, in a batch a list with one, or `None`, for each row;
                `None` forgets what has been kept.
            rows: In a batch, a mask of the rows that are to be reset; `None` for all.
        """
        if self._takes_options(rows):
            self._options_of_reset = options
            return
        _offer_options(self, options, rows)

    def _takes_options(self, rows: Array | None) -> bool:
        taken = self._reset_takes if rows is None else self._reset_rows_takes
        return "options" in taken

    def _take_seed(self, seed: Any, rows: Array | None) -> None:
        """Seeds all rows, or those of a mask."""
        given = seed
        if not self.batched:
            self.seed(seed)
        else:
            given = seed_per_row(seed, self.batch_size)  # type: ignore[arg-type]  # a batch has a size
            if rows is not None:
                given = [
                    own if begins else None
                    for own, begins in zip(given, rows.tolist(), strict=True)
                ]
            if None not in given:
                self.seed(seed)  # As it came, which is what a provenance notes.
            elif any(own is not None for own in given):
                self._hand_seeds(given)
        taken = self._reset_takes if rows is None else self._reset_rows_takes
        # The author's seed() need not pass it on.
        if "seed" in taken and self._seed_of_reset is None:
            self._seed_of_reset = given

    def _hand_seeds(self, seeds: list[int | None]) -> None:
        """Seeds all rows, or some if the class says how."""
        if None not in seeds:
            self.seed(seeds)  # type: ignore[arg-type]  # none is None
            return
        if not self.seeds_rows:
            self._refuse_seeds(seeds)
        self._seed_rows(seeds)

    def _given_to(
        self, taken: tuple[str, ...], mask: Array | None = None
    ) -> dict[str, Any]:
        """Returns what an author's method takes of a reset's arguments, once."""
        seed, options = self._seed_of_reset, self._options_of_reset
        self._seed_of_reset = self._options_of_reset = None
        if seed is None and options is None:
            return {} if _ANYTHING in taken else dict.fromkeys(taken)
        if mask is not None and seed is not None:
            masked = mask.tolist()
            pairs = list(zip(seed, masked, strict=True))
            self._seed_of_reset = [None if begins else own for own, begins in pairs]
            seed = [own if begins else None for own, begins in pairs]
        if isinstance(options, list):
            options = [options_copy(own) for own in options]
        else:
            options = options_copy(options)
        given = {"seed": seed, "options": options}
        return {
            name: value
            for name, value in given.items()
            if name in taken and (value is not None or _ANYTHING not in taken)
        }

    def _begun_rows(self, mask: Array) -> TimeStep:
        """Starts an episode in some rows, with what the reset was given."""
        taken = self._reset_rows_takes
        return self._reset_rows(mask, **(self._given_to(taken, mask) if taken else {}))

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        """Steps some rows, begins an episode in others, and holds the rest.

        Args:
            action: A batch of actions, of which those of stepping rows are used.
            stepping: Which rows take their action: some, but not all.
            beginning: Which rows begin an episode; none of those that step.

        Returns:
            The time step of the whole batch; held rows of it are not used.
        """
        held = ~(stepping | beginning)
        if held.any():
            raise NotImplementedError(
                f"{type(self).__name__} cannot leave rows {listed(held.nonzero()[0])} "
                "where they are while others step: override _step_rows(action, "
                "stepping, beginning)."
            )
        # Nothing is held, so a step of all will do: what it makes of the rows that
        # begin an episode right after is not used.
        stepped = self._checked(self._step(action), "_step")
        return self._merge(beginning, self._begun_rows(beginning), stepped)

    def step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array | None = None
    ) -> TimeStep:
        """Steps some rows of a batch, resets others, and leaves the rest as they are.

        That is `step(action, stepping)` and `reset(beginning)` in one call.

        Args:
            action: A batch of actions; those of rows that do not step are ignored.
            stepping: A mask of the rows that take their action. Those whose episode
                has ended begin the next one, as in every step.
            beginning: A mask of the rows that begin an episode whatever they were at.

        Returns:
            The time step of the whole batch, as it stands now in each row.
        """
        stepping, beginning = self._as_moves(stepping, beginning)
        if self._has_order and self._moves_in_other_order():
            move = functools.partial(self.step_rows, action, stepping, beginning)
            return self._move_in_order(move, stepping)
        current = self._current_time_step
        if current is None:
            if (stepping | beginning).all():
                return self.reset()
            raise CallOrderError(
                f"{type(self).__name__}.step_rows() was called before the first "
                "reset(): the rows that are to stay have no time step yet. Call "
                "reset() first."
            )
        if self._resets_itself():
            over = stepping & (np.asarray(current.step_type) == _LAST)
            stepping, beginning = stepping & ~over, beginning | over
        if not stepping.any():
            return self.reset(beginning) if beginning.any() else current
        moved = self._moved(action, stepping, beginning, current)
        if "step" in self._unseen:
            look_at(self, moved, "_step" if stepping.all() else "_step_rows")
        self._current_time_step = moved
        return moved

    # The order of episodes. Rows always move as under NEXT_STEP; what another order
    # does besides is done around that, in the outermost wrapper.

    def _checked_order(self, order: AutoReset | str) -> AutoReset:
        """Returns an order that this batch can keep, or says why it cannot."""
        order = AutoReset.of(order)
        if order is _NEXT_STEP or self._begins_rows:
            return order
        name = type(self).__name__
        why = (
            "its rows cannot begin an episode one by one: override _reset_rows(mask) "
            "there, or let it keep AutoReset.NEXT_STEP"
            if self.batched
            else "it is a single environment, and orders are for the rows of a batch"
        )
        raise ValueError(f"{name} cannot keep AutoReset.{order.name}: {why}.")

    def _take_order_of(self, env: Any) -> None:
        """Prepares to keep the order of a batch inside, whichever it is or becomes."""
        rely_on_size(self, env)
        keeper = getattr(env, "_order_keeper", None) or env
        if hasattr(type(keeper), "_move_plainly"):
            self._order_keeper, self._has_order = keeper, True
        else:
            self._order_kept = AutoReset.kept_by(env)
            self._has_order = self._order_kept is not _NEXT_STEP
            if self._order_kept is AutoReset.SAME_STEP:
                self._refuse_order(type(env).__name__)
        if self.autoreset is AutoReset.SAME_STEP:
            self._check_may_choose()
            self._checked_order(AutoReset.SAME_STEP)

    def _check_may_choose(self) -> None:
        """Refuses a batch inside whose order cannot be changed, not even for a step."""
        keeper = self._order_keeper
        if keeper is not None and not getattr(keeper, "_changes_order", True):
            self._refuse_order(type(keeper).__name__)

    def _refuse_order(self, batch: str) -> NoReturn:
        raise ValueError(
            f"{type(self).__name__} cannot wrap {batch} with AutoReset."
            f"{self.autoreset.name} or give it another order: {batch} always keeps its "
            "own. Wrap the single environments before they become a batch, or make "
            "the batch with AutoReset.NEXT_STEP."
        )

    @property
    def _keeper(self) -> Any:
        return self if self._order_keeper is None else self._order_keeper

    @property
    def _begins_rows(self) -> bool:
        return self.resets_rows or (self.batched and self.batch_size == 1)

    def _is_in_other_order(self) -> bool:
        """Returns True if rows move in another order than `NEXT_STEP` in this call."""
        keeper = self._keeper
        return (
            not keeper._moves_plainly
            and keeper.autoreset is not _NEXT_STEP
            and not self.continues_after_last
        )

    def _moves_in_other_order(self) -> bool:
        """Does the same, and forgets what was kept of the last step."""
        # Hot: called once per step of a batch, by each of its wrappers.
        keeper = self if self._order_keeper is None else self._order_keeper
        if keeper._moves_plainly:
            return False
        if self._told_of_last:
            for name in self._told_of_last:
                self.__dict__.pop(name, None)
            self._told_of_last = ()
        if keeper.autoreset is _NEXT_STEP:
            return False
        return not self.continues_after_last

    def _move_plainly(self, plainly: bool) -> None:
        """Lets the rows move as under `NEXT_STEP`, or again as the order says."""
        self._moves_plainly = plainly

    def _plainly(self, call: Callable[[], Any]) -> Any:
        """Makes a call in which the rows move as under `NEXT_STEP`."""
        keeper = self._keeper
        keeper._move_plainly(True)
        try:
            return call()
        finally:
            keeper._move_plainly(False)

    def _reset_in_order(self, mask: Array | None) -> TimeStep:
        """Does what `reset` does, under another order than `NEXT_STEP`."""
        self._late_error = None
        time_step: TimeStep = self._plainly(functools.partial(self.reset, mask))
        return time_step

    def _move_in_order(
        self, move: Callable[[], TimeStep], stepping: Array | None
    ) -> TimeStep:
        """Moves rows under another order than `NEXT_STEP`.

        Args:
            move: Moves them as under that one.
            stepping: A mask of those that take their action; `None` for all.
        """
        order, current = self._checked_order(self.autoreset), self._current_time_step
        error, self._late_error = self._late_error, None
        if error is not None:
            raise error
        if order is AutoReset.DISABLED and current is not None:
            rows = self._ended_in(current, stepping).nonzero()[0]
            if rows.size:
                refuse_ended(rows)
        shown: TimeStep = self._plainly(move)
        if order is AutoReset.SAME_STEP:
            ended = self._ended_in(shown, stepping)
            if ended.any():
                self._keep_told()
                self._plainly(functools.partial(self._begin_at_once, ended))
        return shown

    def _ended_in(self, time_step: TimeStep, rows: Array | None) -> Array:
        """Returns which of the rows have ended an episode, and do not pad it."""
        over: Array = np.asarray(time_step.step_type) == _LAST
        if rows is not None:
            over &= rows
        padding = self._padding_rows()
        return over if padding is None else over & ~padding

    def _padding_rows(self) -> Array | None:
        """Returns the rows whose next step repeats a `LAST`; `None` for none."""
        return None

    def _begin_at_once(self, ended: Array) -> None:
        """Begins the next episodes, after the step that is about to be returned."""
        keeper = self._keeper
        keeper._begins_at_once = True
        try:
            self.reset(ended)
        except Exception as error:
            # The ends are an answer all the same; the next step raises the rest.
            self._late_error = error
        finally:
            keeper._begins_at_once = False

    def _keep_told(self) -> None:
        """Keeps what there is to know of a step, before the next episodes begin."""
        told: dict[str, Any] = {}
        try:
            info = copied_arrays(self.get_info())
        except NotImplementedError:
            pass
        except Exception as error:
            told["get_info"] = functools.partial(_raise, error)
        else:
            told["get_info"] = functools.partial(copied_arrays, info)
        if hasattr(type(self._keeper), "repaired"):
            told["repaired"] = self._keeper.repaired
        # In place of the methods, whichever class has written them.
        self.__dict__.update(told)
        self._told_of_last = tuple(told)

    def _as_moves(self, stepping: Any, beginning: Any) -> tuple[Array, Array]:
        """Checks what `step_rows` was given, and returns two masks."""
        stepping = self._as_mask(stepping, "step_rows", STEPS)
        if beginning is None:
            return stepping, np.zeros_like(stepping)
        beginning = self._as_mask(beginning, "step_rows")
        both = (stepping & beginning).nonzero()[0]
        if both.size:
            raise ValueError(
                f"{type(self).__name__}.step_rows() was asked to step and to reset "
                f"{_rows(both)}. A row does one of the two in a call."
            )
        return stepping, beginning

    def _moved(
        self, action: NestedArray, stepping: Array, beginning: Array, current: TimeStep
    ) -> TimeStep:
        """Returns the time step after some rows, or all, have moved."""
        if stepping.all():
            return self._checked(self._step(action), "_step")
        moved = self._step_rows(action, stepping, beginning)
        moved = self._checked(moved, "_step_rows")
        touched = stepping | beginning
        if touched.all():
            return moved
        return self._merge(touched, moved, current, "_step_rows")

    def _step_and_reset(self, action: NestedArray, ended: Array) -> TimeStep:
        """Steps a batch some of whose rows have ended: those begin a new episode."""
        if self.resets_rows or self.holds_rows:
            stepped = self._step_rows(action, ~ended, ended)
            stepped = self._checked(stepped, "_step_rows")
        else:
            # Without a hook the environment has to do it alone, as in TF-Agents.
            stepped = self._checked(self._step(action), "_step")
            self._check_has_reset(ended, stepped)
        self._current_time_step = stepped
        return stepped

    def _check_has_reset(self, ended: Array, stepped: TimeStep) -> None:
        stuck = np.flatnonzero(ended & (np.asarray(stepped.step_type) != _FIRST))
        if stuck.size:
            raise NotImplementedError(
                f"{_rows(stuck)} of {type(self).__name__} ended with the last step, "
                "and this step did not begin a new episode there. Override "
                "_reset_rows(mask), which begins an episode in the masked rows only, "
                "or let _step() do it."
            )

    def _reset_masked(self, mask: Any) -> TimeStep:
        rows = self._as_mask(mask)
        if rows.all():
            return self.reset()
        self._check_others_have_begun(rows)
        current: TimeStep = self._current_time_step  # type: ignore[assignment]  # checked
        if rows.any():
            current = self._merge(rows, self._begun_rows(rows), current)
            self._current_time_step = current
        return current

    def _as_mask(
        self, mask: Any, call: str = "reset", purpose: str = "an episode is to begin"
    ) -> Array:
        if not self.batched:
            raise ValueError(
                f"{type(self).__name__} is not batched, so it has no rows to choose "
                f"from: call {'reset' if call == 'reset' else 'step'}() without a mask."
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

    def _merge(
        self,
        mask: Array,
        masked: TimeStep,
        other: TimeStep,
        method: str = "_reset_rows",
    ) -> TimeStep:
        """Takes the masked rows from what `method` returned, the rest from `other`.

        `other` is what `_step` returned, or the current time step.
        """
        source = f"{type(self).__name__}._step() returned a time step that"
        if other is self._current_time_step:
            # It belongs to the caller of step(), who may have taken it apart.
            source = f"The current time step of {type(self).__name__}"
        structure = self._merge_structure
        if structure is None:  # Compiled once: a batch merges at nearly every step.
            structure = self._merge_structure = nest.Structure(self.time_step_spec())
        columns = zip(
            self._checked_rows(
                structure,
                masked,
                f"{type(self).__name__}.{method}() returned a time step that",
                _WHOLE,
            ),
            self._checked_rows(structure, other, source, ""),
            strict=True,
        )
        # np.where makes arrays of native byte order.
        picked = [
            np.where(mask.reshape(-1, *[1] * (ours.ndim - 1)), ours, theirs).astype(
                ours.dtype, copy=False
            )
            for ours, theirs in columns
        ]
        merged: TimeStep = structure.unflatten(picked)
        return merged

    def _checked_rows(
        self, structure: nest.Structure, time_step: TimeStep, subject: str, context: str
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
                subject=subject,
                outer_dims=dims,  # type: ignore[arg-type]  # a batch has a size
                context=context,
            )
        return leaves

    def _checked(self, result: Any, method: str) -> TimeStep:
        """Refuses anything but a time step: `None`, arrays, Gymnasium's tuples.

        No more than that: the time steps of other libraries will do, and a method that
        `unittest.mock` has replaced may return what it likes, as in TF-Agents' tests.
        `look_at` and `check_environment` look closer.
        """
        is_stand_in = hasattr(getattr(self, method), "mock_calls") or (
            # A wrapper hands on what such a method has returned.
            "_env" in vars(self) and not isinstance(result, tuple)
        )
        if hasattr(result, "step_type") or (is_stand_in and result is not None):
            time_step: TimeStep = result
            return time_step
        hint = (
            "Did a return statement get lost?"
            if result is None
            else "Build it with envkit.restart, transition, termination or truncation."
        )
        raise SpecError(
            f"{type(self).__name__}.{method}() returned {describe(result)}, not a "
            f"TimeStep. {hint}"
        )


def refuse_ended(rows: Array) -> NoReturn:
    """Refuses to step rows whose episode has ended, under `AutoReset.DISABLED`."""
    raise CallOrderError(
        f"step() was called after the episode of {_rows(rows)} ended. Under "
        "AutoReset.DISABLED, call reset(mask) for them first, or leave them out with "
        "step(action, mask); none of the environments has moved."
    )


def _raise(error: Exception) -> NoReturn:
    raise error


def _checked_options(options: Any) -> Mapping[str, Any] | None:
    """Returns the options of a reset, or refuses anything but a dictionary."""
    if options is None or isinstance(options, Mapping):
        return options
    raise TypeError(
        "The options of a reset are a dictionary such as {'level': 3}, not "
        f"{describe(options)}."
    )


def options_copy(options: Any) -> dict[str, Any] | None:
    """Returns a copy of options, which an environment may change; `None` for none."""
    checked = _checked_options(options)
    return None if checked is None else copy.deepcopy(dict(checked))


def options_per_row(options: Any, rows: int) -> list[Mapping[str, Any] | None]:
    """Returns the options of each row, given those of each or one dictionary for all.

    Example:
        >>> options_per_row({"level": 3}, 2)
        [{'level': 3}, {'level': 3}]
    """
    if not isinstance(options, Sequence) or isinstance(options, str | bytes):
        return [_checked_options(options)] * rows
    if len(options) != rows:
        raise ValueError(
            f"Options for {counted(len(options), 'row')}, and "
            f"{counted(rows, 'row')} are reset. Pass a list with one dictionary, or "
            "None, for each row, or one dictionary for all."
        )
    return [_checked_options(own) for own in options]


def rely_on_size(holder: Any, env: Any) -> None:
    """Notes that something relies on the number of a batch's rows while it lives."""
    keeper = getattr(env, "_order_keeper", None) or env
    note = getattr(type(keeper), "_note_reliance", None)
    if note is not None:
        note(keeper, holder)


def hand_options(env: Any, options: Any, rows: Array | None = None) -> None:
    """Hands options for its next reset to an environment, of whatever library.

    Args:
        env: The environment.
        options: Those of a single one, or a list with those of each row; `None` takes
            back what has not been used.
        rows: In a batch, a mask of the rows that are to be reset; `None` for all.
    """
    take = getattr(env, "_take_options", None)
    if callable(take):
        take(options, rows)
    else:
        _offer_options(env, options, rows)


def _offer_options(env: Any, options: Any, rows: Array | None) -> None:
    """Passes options on where there is a method for it, or refuses them."""
    setter = getattr(env, "set_reset_options", None)
    if callable(setter):
        _set_options(setter, options, rows)
    elif options is not None:
        _refuse_options(env, options, rows)


def _set_options(setter: Any, options: Any, rows: Array | None) -> None:
    """Passes options on to a method that takes one dictionary, for the next reset."""
    if isinstance(options, list):
        asked = [own for own, _ in _of_rows(options, rows)]
        if any(own != asked[0] for own in asked):
            raise ValueError(
                "The rows of this batch are reset with the same options, for its "
                "set_reset_options() takes one dictionary. Pass one for all rows."
            )
        options = asked[0] if asked else None
    if options is not None:
        setter(options)


def _of_rows(options: list[Any], rows: Array | None) -> list[tuple[Any, int]]:
    return [(own, row) for row, own in enumerate(options) if rows is None or rows[row]]


def _refuse_options(env: Any, options: Any, rows: Array | None) -> None:
    """Raises if there are options, which nothing would look at."""
    pairs = _of_rows(options, rows) if isinstance(options, list) else [(options, -1)]
    given = next(((own, row) for own, row in pairs if own), None)
    if given is None:
        return
    own, row = given
    raise NotImplementedError(
        f"{type(env).__name__} takes no reset options, and was given "
        f"{listed(map(repr, own))}{'' if row < 0 else f' for row {row}'}: its "
        f"{'_reset' if rows is None else '_reset_rows'} has no argument `options`."
    )


# That a method takes any keyword argument.
_ANYTHING = "**"


def _taken_by(method: Any) -> tuple[str, ...]:
    """Returns which arguments of a reset a method takes."""
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):  # It is not a function of Python.
        return ()
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return "seed", "options", _ANYTHING
    return tuple(name for name in ("seed", "options") if name in parameters)


def is_as_new(cls: type, hook: str, whole: str) -> bool:
    """Returns True if a hook was written together with the method it belongs to."""
    for owner in cls.__mro__:
        if hook in vars(owner):
            return True
        if whole in vars(owner):
            return False
    return False


def _rows(rows: Array) -> str:
    return f"{'row' if rows.size == 1 else 'rows'} {listed(rows)}"


def copied_arrays(value: Any) -> Any:
    """Copies arrays, and the dictionaries, lists and tuples that they are in.

    Environments may go on writing to the infos that they have returned. Everything else
    stays the object that it is: it may be an environment, or what cannot be copied.

    Example:
        >>> board = np.array([1, 2])
        >>> info = {"board": board, "seen": [board]}
        >>> kept = copied_arrays(info)
        >>> board[:] = 0
        >>> kept
        {'board': array([1, 2]), 'seen': [array([1, 2])]}
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        own = copy.copy(value)
        own.update((key, copied_arrays(item)) for key, item in value.items())
        return own
    if type(value) in {list, tuple}:
        return type(value)(map(copied_arrays, value))
    return value
