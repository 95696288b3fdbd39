"""`TextSpec`: text of certain lengths, made of certain letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from envkit.specs.array_spec import ArraySpec
from envkit.types import Array, Shape

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["TextSpec"]


class TextSpec(ArraySpec):
    """Describes text: how long it may be, and what letters it may have.

    It is kept in a fixed-width array, so it travels through shared memory as numbers
    do. Text that ends in NUL characters cannot be told from text without them.

    Example:
        >>> spec = TextSpec((), "<U5", min_length=1, letters="abc")
        >>> spec.check_array(np.array("cab", "<U5"))
        True
        >>> spec.check_array(np.array("", "<U5"))
        False
    """

    __slots__ = ("_letters", "_max_length", "_min_length")

    _letters: str | None
    _max_length: int
    _min_length: int

    def __init__(
        self,
        shape: Shape,
        dtype: npt.DTypeLike,
        name: str | None = None,
        *,
        min_length: int = 0,
        max_length: int | None = None,
        letters: str | None = None,
    ) -> None:
        """Makes a spec of text.

        Args:
            shape: The shape, any iterable of non-negative integers.
            dtype: A dtype of text with a width, such as `"<U10"`.
            name: What the array is called where people read about it.
            min_length: How long each text is at least.
            max_length: How long it is at most; `None` for the width of the dtype.
            letters: The characters that it may have, in the order in which they are
                counted where that matters; `None` for all that there are.
        """
        super().__init__(shape, dtype, name)
        width = self._dtype.itemsize // 4 if self._dtype.kind == "U" else 0
        if not width:
            raise TypeError(
                f"TextSpec needs a dtype of text with a width, such as '<U10', not "
                f"{self._dtype}."
            )
        longest = width if max_length is None else max_length
        if not 0 <= min_length <= longest <= width:
            raise ValueError(
                f"TextSpec was given texts of {min_length} to {longest} characters in "
                f"{self._dtype}, which has room for {width}."
            )
        if letters is not None:
            letters = "".join(dict.fromkeys(letters))
        if letters == "" and min_length:
            raise ValueError(
                f"TextSpec was given no letters for texts of at least {min_length}."
            )
        set_slot = object.__setattr__
        set_slot(self, "_min_length", min_length)
        set_slot(self, "_max_length", longest)
        set_slot(self, "_letters", letters)

    @property
    def min_length(self) -> int:
        """How long each text is at least."""
        return self._min_length

    @property
    def max_length(self) -> int:
        """How long each text is at most."""
        return self._max_length

    @property
    def letters(self) -> str | None:
        """The characters that a text may have, or `None` for all."""
        return self._letters

    def allows(self, text: str) -> bool:
        """Says whether one text has a length and letters of this spec."""
        return self._min_length <= len(text) <= self._max_length and (
            self._letters is None or set(text) <= set(self._letters)
        )

    def allows_all(self, array: Array) -> bool:
        """Says whether every text of an array has lengths and letters of this spec."""
        return all(self.allows(text) for text in array.ravel().tolist())

    def check_array(self, array: Any) -> bool:
        """Says whether shape, dtype and every text fit; never raises."""
        return (
            isinstance(array, np.ndarray)
            and super().check_array(array)
            and self.allows_all(array)
        )

    def _describe(self) -> str:
        letters = "" if self._letters is None else f", letters={_few(self._letters)!r}"
        return (
            f"{super()._describe()}, min_length={self._min_length}, "
            f"max_length={self._max_length}{letters}"
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TextSpec)
            and super().__eq__(other)
            and self._min_length == other._min_length
            and self._max_length == other._max_length
            and _as_set(self._letters) == _as_set(other._letters)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), self._shape, self._dtype, self._name, self._details)

    @property
    def _details(self) -> dict[str, Any]:
        return {
            "min_length": self._min_length,
            "max_length": self._max_length,
            "letters": self._letters,
        }

    @classmethod
    def from_spec(cls, spec: ArraySpec) -> TextSpec:
        """Makes a spec of text of any spec of text."""
        details = spec._details if isinstance(spec, TextSpec) else {}
        return cls(spec.shape, spec.dtype, spec.name, **details)

    def replace(
        self,
        shape: Shape | None = None,
        dtype: npt.DTypeLike | None = None,
        name: str | None = None,
    ) -> TextSpec:
        """Makes a copy in which what is not `None` is different."""
        return type(self)(
            self._shape if shape is None else shape,
            self._dtype if dtype is None else dtype,
            self._name if name is None else name,
            **self._details,
        )


def _few(letters: str) -> str:
    return letters if len(letters) <= 16 else f"{letters[:12]}…"


def _as_set(letters: str | None) -> frozenset[str] | None:
    return None if letters is None else frozenset(letters)


def _make(kind: Any, shape: Any, dtype: Any, name: Any, details: Any) -> Any:
    return kind(shape, dtype, name, **details)
