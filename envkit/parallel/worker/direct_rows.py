"""`DirectRows`: the rows of a worker whose environments need no time steps.

An environment that offers a `DirectRow` is stepped by it, and reset by it after a
`LAST`, as long as the results are plain. Anything else that happens to the environment
(a requested reset, a question) makes its row leave, and it runs as usual. It enters
again in the middle of an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from envkit._internal.direct_row import DirectRow, EpisodeEdge
from envkit._internal.internals import has_internals
from envkit.nest import is_nested
from envkit.parallel.slab import Slab, view_of
from envkit.parallel.slab_layout import (
    SAME_STEP_SLOT,
    TERMINATED,
    TRUNCATED,
    SlabLayout,
    is_private,
)
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["DirectRows"]

_FIRST, _MID, _LAST = map(int, (StepType.FIRST, StepType.MID, StepType.LAST))
_SLOTS = 0, 1, SAME_STEP_SLOT
Step = Callable[[Any], TimeStep]
# Steps a row, as `DirectRow.step` does.
DirectStep = Callable[[Any, Any, Any, bool], TimeStep | EpisodeEdge | None]


class DirectRows:
    """Holds the direct rows of one worker, by place in its block.

    Attributes:
        are_offered: True if any environment can do without time steps.
        steps: The next step of each row; `None` for rows that make time steps.
    """

    def __init__(
        self, slab: Slab, rows: range, forked: Collection[int], allowed: bool
    ) -> None:
        """Prepares for the rows of a worker.

        Args:
            slab: The slab.
            rows: The rows.
            forked: Is not empty in a process that an environment has forked.
            allowed: Whether rows may be written without checking their time steps.
        """
        self._is_possible = allowed and _is_plain(slab.layout)
        self._slab, self._rows, self._forked = slab, rows, forked
        self.are_offered = False
        self.steps: list[DirectStep | None] = [None] * len(rows)
        self._inside: list[DirectRow | None] = [None] * len(rows)
        self._offered: list[DirectRow | None] = [None] * len(rows)
        # Rows to ask again before they enter, because something has happened to them.
        self._doubted: set[int] = set()
        # The library's action for each number, the same for all offered rows.
        self._choices: Mapping[int, Any] | None = None
        if not self._is_possible:
            return
        self._action: ArraySpec = slab.layout.action.leaves[0]
        self._block = slice(rows.start, rows.stop)
        self._given = slab.action_columns()[0][self._block]
        one: tuple[Array | None, Array | None] = (None, None)
        if isinstance(self._action, BoundedArraySpec):
            one = self._action.minimum, self._action.maximum
        # Repeated for each row, because NumPy compares arrays of equal shape faster.
        shape = (len(rows), *self._action.shape)
        self._bounds_of_one, self._bounds = one, [_repeated(b, shape) for b in one]
        slots = [slab.columns(slot) for slot in _SLOTS]
        types, rewards, discounts, observations = zip(*slots, strict=True)
        self._discounts = np.zeros(len(rows), discounts[0].dtype)
        # Views, because assigning to them is faster than to arrays.
        self._columns: list[tuple[Any, Any]] = [
            (view_of(types[slot][self._block]), view_of(discounts[slot][self._block]))
            for slot in _SLOTS
        ]
        self._all_mid = view_of(np.full(len(rows), _MID, types[0].dtype))
        self._usual = view_of(self._discounts)
        self._rewards = [view_of(rewards[slot]) for slot in _SLOTS]
        self._places = [
            [_place_of(observations[slot][row, ...]) for row in rows] for slot in _SLOTS
        ]

    def ask(self, place: int, env: Any) -> None:
        """Asks an environment for its direct row."""
        self.doubt(place)
        self._doubted.discard(place)
        if not (self._is_possible and has_internals(env)):
            return
        if env.repeats_last or env.continues_after_last:
            return
        offered: DirectRow | None = env._envkit.direct_row(env)
        if offered is None:
            return
        if not self.are_offered:
            self._choices, self.are_offered = offered.choices, True
        # The actions of all rows are checked together.
        if _are_same(offered.choices, self._choices):
            offered.row, offered.forked = self._rows.start + place, self._forked
            self._discounts[place] = offered.discount
            self._offered[place] = offered

    def doubt(self, place: int) -> None:
        """Makes a row ordinary until its environment is asked again."""
        self.leave(place)
        self._offered[place] = None
        self._doubted.add(place)

    def enter(self, place: int, env: Any) -> None:
        """Makes a row direct, if its environment supports that."""
        if place in self._doubted:
            self.ask(place, env)
        offered = self._offered[place]
        if offered is not None and offered.enter():
            self._inside[place], self.steps[place] = offered, offered.step

    def leave(self, place: int) -> None:
        """Makes a row ordinary."""
        inside = self._inside[place]
        if inside is not None:
            # If it has left already, its own wrappers have given it a time step.
            if inside.owner._envkit.direct is inside:
                inside.leave()
            self.forget(place)

    def forget(self, place: int) -> None:
        """Forgets a row whose environment has made a time step itself."""
        self._inside[place] = self.steps[place] = None

    def actions(self) -> Iterable[Any] | None:
        """Returns the actions of all rows in the form that libraries take.

        It returns `None` if an environment must convert or refuse one of them.
        """
        # Hot: called once per batch.
        if self._choices is not None:
            try:
                return list(map(self._choices.__getitem__, self._given.tolist()))
            except KeyError:
                return None
        column = self._given.copy()
        return column if self._are_as_theirs(column, *self._bounds) else None

    def _are_as_theirs(self, actions: Any, least: Any, most: Any) -> bool:
        """Returns True if actions need no conversion, judging by dtype and bounds."""
        # Hot: called once per batch.
        if actions.__class__ is not np.ndarray or actions.dtype != self._action.dtype:
            return False
        if least is None:
            return True
        within = (actions >= least) & (actions <= most)
        return bool(np.count_nonzero(within) == within.size)

    def step(
        self, place: int, slot: int, action: Any, wants_info: bool, step: Step
    ) -> TimeStep | EpisodeEdge | None:
        """Steps one direct row.

        Args:
            place: The place of its row.
            slot: The slot of the answer.
            action: The action.
            wants_info: Whether a step with an info must have a time step.
            step: The environment's own step, for an action that the library does not
                take.

        Returns:
            `None` if the answer was written; otherwise the answer to write.
        """
        # Hot in asynchronous use: called once per row and step.
        inside = self.steps[place]
        own = self._action_of(action)
        if inside is None or own is None:
            self.leave(place)
            return step(action)
        types, discounts = self._columns[slot]
        types[place], discounts[place] = _MID, self._discounts[place]
        return inside(own, *self.place_of(place, slot), wants_info)

    def _action_of(self, action: Any) -> Any:
        if self._choices is not None:
            return self._choices.get(action) if np.ndim(action) == 0 else None
        return action if self._are_as_theirs(action, *self._bounds_of_one) else None

    def end(self, place: int, slot: int) -> int:
        """Writes a `LAST` into a row, and returns the marks of its end for the slab."""
        inside = self._inside[place]
        assert inside is not None  # it has ended the episode
        types, discounts = self._columns[slot]
        types[place], discounts[place] = _LAST, inside.last_discount
        return inside.terminated * TERMINATED | inside.truncated * TRUNCATED

    def begin_next(self, place: int, begin: DirectStep) -> None:
        """Makes the next step of a row begin an episode."""
        self.steps[place] = begin

    def begin(self, place: int, slot: int) -> None:
        """Writes a `FIRST` into a row."""
        inside = self._inside[place]
        assert inside is not None  # it has begun the episode
        types, discounts = self._columns[slot]
        types[place], discounts[place] = _FIRST, 1.0
        self.steps[place] = inside.step

    def inside(self, place: int) -> DirectRow | None:
        """Returns the `DirectRow` of a row, if the row is currently direct."""
        return self._inside[place]

    def place_of(self, place: int, slot: int) -> tuple[Any, Any]:
        """Returns the places of a row's observation and reward."""
        return self._places[slot][place], self._rewards[slot]

    def fill_with_mid(self, slot: int) -> tuple[Any, Any]:
        """Writes into a slot that every row is `MID`.

        Returns:
            The places of the rows' observations, and the column of their rewards.
        """
        # Hot: called once per batch.
        types, discounts = self._columns[slot]
        types[:], discounts[:] = self._all_mid, self._usual
        return self._places[slot], self._rewards[slot]


def _is_plain(layout: SlabLayout) -> bool:
    """Returns True for plain time steps and actions that are one array."""
    spec = layout.spec
    if layout.declares_info:
        return False
    if any(map(is_nested, (spec.action, spec.observation, spec.reward, spec.discount))):
        return False
    return (
        all(_is_number(one) for one in (spec.reward, spec.discount))
        and not is_private(spec.action.dtype)
        and spec.observation.dtype.kind in "biufc"
        and spec.observation.dtype.isnative
    )


def _is_number(spec: ArraySpec) -> bool:
    # For these two dtypes, views convert Python's numbers as NumPy does.
    return spec.shape == () and spec.dtype in (np.float32, np.float64)


def _place_of(row: Array) -> Any:
    """Returns the place to assign an observation to; a view checks it for free."""
    return view_of(row) if row.ndim < 2 else row


def _are_same(choices: Any, others: Any) -> bool:
    """Returns True if two rows have the same actions: equal, with equal types."""
    if choices is None or others is None:
        return choices is others
    return choices == others and all(
        type(one) is type(others[number]) for number, one in choices.items()
    )


def _repeated(bound: Array | None, shape: tuple[int, ...]) -> Array | None:
    return None if bound is None else np.broadcast_to(bound, shape).copy()
