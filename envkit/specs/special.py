"""Specs of text and objects: `TextSpec`, and `ObjectSpec` with its kinds."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from envkit.specs.arrays import ArraySpec
from envkit.types import Array, RandomSource, Shape

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "Choices",
    "ObjectKind",
    "ObjectSpec",
    "Strings",
    "TextSpec",
]

SpecialT = TypeVar("SpecialT", bound="_SpecialSpec")


class _SpecialSpec(ArraySpec):
    """Describes text and objects, which need more than shape and dtype.

    A subclass returns the additional facts from `_details`, as keyword arguments of its
    constructor.
    """

    __slots__ = ()

    @property
    def _details(self) -> dict[str, Any]:
        raise NotImplementedError

    def allows_all(self, array: Array) -> bool:
        """Returns True if every element of an array is valid."""
        raise NotImplementedError

    def check_array(self, array: Any) -> bool:
        """Returns True if shape, dtype and every element fit; never raises."""
        return (
            isinstance(array, np.ndarray)
            and super().check_array(array)
            and self.allows_all(array)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        make = functools.partial(type(self), **self._details)
        return make, (self._shape, self._dtype, self._name)

    @classmethod
    def from_spec(cls: type[SpecialT], spec: ArraySpec) -> SpecialT:
        """Converts a spec of the same dtype; copies one of the same class."""
        details = spec._details if isinstance(spec, cls) else {}
        return cls(spec.shape, spec.dtype, spec.name, **details)

    def replace(
        self: SpecialT,
        shape: Shape | None = None,
        dtype: npt.DTypeLike | None = None,
        name: str | None = None,
    ) -> SpecialT:
        """Returns a copy with the given values; `None` keeps a value."""
        return type(self)(
            self._shape if shape is None else shape,
            self._dtype if dtype is None else dtype,
            self._name if name is None else name,
            **self._details,
        )


class TextSpec(_SpecialSpec):
    """Describes text: its length and its letters.

    Text is stored in a fixed-width array, so it travels through shared memory like
    numbers. Trailing NUL characters are lost.

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
            name: A name for people to read.
            min_length: The shortest length of each text.
            max_length: The longest length; `None` for the width of the dtype.
            letters: The allowed characters, in the order that counts where order
                matters; `None` for all.
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
        """The minimum length of each text."""
        return self._min_length

    @property
    def max_length(self) -> int:
        """The maximum length of each text."""
        return self._max_length

    @property
    def letters(self) -> str | None:
        """The allowed characters, or `None` for all."""
        return self._letters

    def allows(self, text: str) -> bool:
        """Returns True if a text's length and letters fit this spec."""
        return self._min_length <= len(text) <= self._max_length and (
            self._letters is None or set(text) <= set(self._letters)
        )

    def allows_all(self, array: Array) -> bool:
        """Returns True if every text of an array fits."""
        return all(self.allows(text) for text in array.ravel().tolist())

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

    @property
    def _details(self) -> dict[str, Any]:
        return {
            "min_length": self._min_length,
            "max_length": self._max_length,
            "letters": self._letters,
        }


def _few(letters: str) -> str:
    return letters if len(letters) <= 16 else f"{letters[:12]}…"


def _as_set(letters: str | None) -> frozenset[str] | None:
    return None if letters is None else frozenset(letters)


class ObjectKind(Protocol):
    """Checks and draws the values of an `ObjectSpec`; pickles if the spec must."""

    def contains(self, value: Any) -> bool:
        """Returns True if a value is valid; never raises."""

    def sample(self, rng: RandomSource) -> Any:
        """Draws a value."""


class ObjectSpec(_SpecialSpec):
    """Describes a value that is not an array, such as a graph or a list of any length.

    The value is the only element of an object array of shape `()`. Between processes on
    one machine it is pickled, beside the arrays.

    Example:
        >>> class Names:
        ...     def contains(self, value):
        ...         return isinstance(value, str)
        ...     def sample(self, rng):
        ...         return "n" * int(rng.integers(5))
        >>> spec = ObjectSpec(kind=Names())
        >>> spec.check_array(spec.wrap("Ada")), spec.check_array(spec.wrap(7))
        (True, False)
    """

    __slots__ = ("_kind",)

    _kind: ObjectKind | None

    def __init__(
        self,
        shape: Shape = (),
        dtype: npt.DTypeLike = object,
        name: str | None = None,
        *,
        kind: ObjectKind | None = None,
    ) -> None:
        """Makes a spec.

        Args:
            shape: The shape: the batch's, or `()`.
            dtype: `object`.
            name: A name for people to read.
            kind: Checks and draws values; without it all are valid, and none can be
                drawn.
        """
        super().__init__(shape, dtype, name)
        if not self._dtype.hasobject or self._dtype.fields:
            raise TypeError(f"ObjectSpec is of dtype object, not {self._dtype}.")
        object.__setattr__(self, "_kind", kind)

    @property
    def kind(self) -> ObjectKind | None:
        """The kind of the values, or `None`."""
        return self._kind

    @staticmethod
    def wrap(value: Any) -> Any:
        """Returns an array of shape `()` with a value as its only element."""
        array = np.empty((), object)
        array[()] = value
        return array

    def contains(self, value: Any) -> bool:
        """Returns True if a value, without an array around it, is valid."""
        return self._kind is None or bool(self._kind.contains(value))

    def allows_all(self, array: Array) -> bool:
        """Returns True if every value of an array is valid."""
        return all(map(self.contains, array.flat))

    def _describe(self) -> str:
        kind = "" if self._kind is None else f", kind={self._kind!r:.120}"
        return f"{super()._describe()}{kind}"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ObjectSpec)
            and super().__eq__(other)
            and bool(self._kind == other._kind)
        )

    @property
    def _details(self) -> dict[str, Any]:
        return {"kind": self._kind}


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Strings:
    """Checks and draws the values of a `StringArray`: strings of any length.

    Example:
        >>> Strings(str).contains("north"), Strings(str).contains(b"north")
        (True, False)
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: type[str] | type[bytes]) -> None:
        """Takes `str` or `bytes`."""
        self._kind = kind

    @property
    def kind(self) -> type[str] | type[bytes]:
        """Either `str` or `bytes`."""
        return self._kind

    def contains(self, value: Any) -> bool:
        """Returns whether a value is such a string."""
        return isinstance(value, self._kind)

    def sample(self, rng: RandomSource) -> str | bytes:
        """Draws a few letters."""
        letters = "".join(_LETTERS[int(rng.random() * 26)] for _ in range(5))
        return letters if self._kind is str else letters.encode()

    def __repr__(self) -> str:
        return f"Strings({self._kind.__name__})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Strings) and self._kind is other._kind

    def __hash__(self) -> int:
        return hash(self._kind)


class Choices:
    """Checks and draws the values of a choice among JSON values, such as strings.

    Example:
        >>> ways = Choices(["left", "right"])
        >>> ways.contains("left"), ways.contains("up"), ways.contains(0)
        (True, False, False)
    """

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[Any]) -> None:
        """Takes the values; at least one is required."""
        self._values = tuple(values)
        if not self._values:
            raise ValueError("Choices must be given one value at least, got none.")

    @property
    def values(self) -> tuple[Any, ...]:
        """The values, in the given order."""
        return self._values

    def contains(self, value: Any) -> bool:
        """Returns whether a value is one of them."""
        return any(
            type(value) is type(known) and bool(value == known)
            for known in self._values
        )

    def sample(self, rng: RandomSource) -> Any:
        """Draws one of the values."""
        return self._values[int(rng.random() * len(self._values))]

    def __repr__(self) -> str:
        return f"Choices({list(self._values)!r:.120})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choices) and self._values == other._values

    def __hash__(self) -> int:
        return hash(len(self._values))
