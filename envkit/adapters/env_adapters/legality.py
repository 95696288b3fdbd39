"""Which actions are legal, as a mask, of what an author says about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = ["LegalActions"]


class LegalActions:
    """Makes masks of what `legal_actions` returns.

    Booleans are a mask, and so are integers of which there is one for each action, all
    of them 0 or 1. Other integers are places in the menu, and anything else is an
    action of it.

    Example:
        >>> mask = LegalActions("Game", ["left", "right", "jump"], 3)
        >>> mask([True, False, True]).tolist(), mask({"jump"}).tolist()
        ([True, False, True], [False, False, True])
        >>> mask([1, 1, 0]).tolist(), mask([0, 2]).tolist()
        ([True, True, False], [True, False, True])
    """

    def __init__(self, name: str, actions: Sequence[Any] | None, count: int) -> None:
        """Prepares.

        Args:
            name: Whose actions they are, for messages.
            actions: The menu, if there is one.
            count: How many actions there are.
        """
        self._name = name
        self._actions = None if actions is None else list(actions)
        self._count = count

    @property
    def spec(self) -> ArraySpec:
        """The spec of a mask."""
        return ArraySpec((self._count,), np.bool_, "legal_actions")

    def all(self) -> Array:
        """Returns the mask in which everything is legal."""
        return np.ones(self._count, np.bool_)

    def __call__(self, legal: Any) -> Array:
        """Makes the mask of what was returned."""
        if not hasattr(legal, "__iter__") or isinstance(legal, str):
            raise self._refused(legal, "It is not a collection of actions.")
        # The order of a set means nothing, so it is no mask.
        is_set = isinstance(legal, set | frozenset)
        items = legal if isinstance(legal, np.ndarray) else list(legal)
        given = None if is_set or not _are_integers(items) else np.asarray(items)
        if given is None or not given.size:
            return self._of_places(map(self._place_of, items), legal)
        if given.dtype == np.bool_:
            if given.shape != (self._count,):
                raise self._refused(legal, "A mask has one boolean for each action.")
            return given.copy()
        return self._of_integers(given, legal)

    def _of_integers(self, given: Array, legal: Any) -> Array:
        may_be_mask = given.shape == (self._count,) and set(given.tolist()) <= {0, 1}
        may_be_places = len(set(given.ravel().tolist())) == given.size
        if may_be_mask and may_be_places and self._count > 1:
            raise self._refused(
                legal,
                "Of two actions, 0 and 1 may be a mask as well as the places of both: "
                "return booleans for a mask, and a set for places.",
            )
        if may_be_mask and given.tolist() != [0]:
            return given.astype(np.bool_)
        return self._of_places(given.ravel().tolist(), legal)

    def _place_of(self, action: Any) -> int:
        if isinstance(action, int | np.integer):
            return int(action)
        if self._actions is None or action not in self._actions:
            raise self._refused(action, "It is neither in the menu nor a place in it.")
        return self._actions.index(action)

    def _of_places(self, places: Iterable[int], legal: Any) -> Array:
        mask = np.zeros(self._count, np.bool_)
        for place in places:
            if not 0 <= place < self._count:
                raise self._refused(legal, f"There is no action {place}.")
            mask[place] = True
        return mask

    def _refused(self, legal: Any, why: str) -> SpecError:
        menu = "" if self._actions is None else ", or actions of the menu"
        return SpecError(
            f"{self._name}.legal_actions() returned {describe(legal)}.\n\n"
            f"  expected   {self._count} booleans, or places from 0 to "
            f"{self._count - 1}{menu}\n\n"
            f"{why}"
        )


def _are_integers(items: Any) -> bool:
    if isinstance(items, np.ndarray):
        return items.dtype.kind in "biu"
    return all(isinstance(item, bool | int | np.bool_ | np.integer) for item in items)
