"""`MembersOf`: the members of a space that has no arrays, as the kind of an object."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from envkit.types import RandomSource

__all__ = ["MembersOf"]


class MembersOf:
    """Knows the members of a space, of which it keeps a copy of its own.

    Where it has come from another process, the library of the space is imported when
    the space is first needed, and not because a spec arrives.

    Example:
        >>> from gymnasium import spaces
        >>> members = MembersOf(spaces.Sequence(spaces.Discrete(2)))
        >>> members, members.contains((0, 1, 1)), members.contains((2,))
        (Sequence(Discrete(2), stack=False), True, False)
    """

    __slots__ = ("_pickled", "_space", "_text")

    def __init__(self, space: Any) -> None:
        """Keeps a copy of a space."""
        self._text = repr(space)
        try:
            self._pickled: bytes | None = pickle.dumps(space)
        # A class within a function, for example, has no place to be found at.
        except Exception:
            self._pickled = None
        self._space: Any = copy.deepcopy(space) if self._pickled is None else None

    def as_space(self) -> Any:
        """Returns a space that is equal to the one it was made of."""
        return copy.deepcopy(self._loaded())

    def contains(self, value: Any) -> bool:
        """Says whether a value is a member."""
        try:
            return bool(self._loaded().contains(value))
        # Spaces take for granted that values are at least of some kind.
        except Exception:
            return False

    def sample(self, rng: RandomSource) -> Any:
        """Draws a member."""
        space = self._loaded()
        space.seed(int(rng.random() * 2**31))
        return space.sample()

    def _loaded(self) -> Any:
        if self._space is None:
            self._space = pickle.loads(self._pickled)  # type: ignore[arg-type]  # one of the two is there
        return self._space

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MembersOf):
            return False
        same = self._pickled is not None and self._pickled == other._pickled
        return same or bool(self._loaded() == other._loaded())

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # spaces have none either

    def __getstate__(self) -> tuple[Any, str]:
        # What does not pickle says so itself, and best.
        return self._pickled or pickle.dumps(self._space), self._text

    def __setstate__(self, state: tuple[Any, str]) -> None:
        self._pickled, self._text = state
        self._space = None
