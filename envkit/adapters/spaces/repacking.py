"""`Repacker`: checks a nest, converts its leaves, and may change its containers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from envkit import nest
from envkit.adapters.spaces.values import Leaf
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import check_fits
from envkit.types import NestedSpec

__all__ = ["Repacker"]


class Repacker:
    """Checks a nest, converts its leaves, and packs them as a template says.

    A `Converter` does the same for values without a batch, whose containers stay.

    Example:
        >>> from envkit.adapters.spaces.values import array_leaf
        >>> spec = {"speed": ArraySpec((), "float32")}
        >>> repack = Repacker(spec, (2,), leaf=array_leaf, subject="It", template=[0])
        >>> repack({"speed": [0.5, 1.0]})
        [array([0.5, 1. ], dtype=float32)]
    """

    __slots__ = ("_dims", "_leaves", "_structure", "_subject", "_unflatten")

    def __init__(
        self,
        spec: NestedSpec,
        dims: tuple[int, ...],
        *,
        leaf: Callable[[ArraySpec], Leaf],
        subject: str,
        template: Any = None,
    ) -> None:
        """Compiles a repacker.

        Args:
            spec: The specs of what comes in.
            dims: The dimensions that arrays have before those of their specs.
            leaf: Makes a function that converts a leaf from the leaf's spec.
            subject: What comes in, as the sentence of an error begins.
            template: A nest of as many leaves, if it goes out in other containers.
        """
        self._structure = nest.Structure(spec)
        self._dims = dims
        self._leaves = [
            leaf(part.replace(shape=dims + part.shape))
            for part in self._structure.leaves
        ]
        self._subject = subject
        out = self._structure if template is None else nest.Structure(template)
        self._unflatten = out.unflatten

    def __call__(self, value: Any) -> Any:
        """Repacks one value."""
        # Hot: called once per step.
        try:
            pairs = zip(self._leaves, self._structure.flatten(value), strict=True)
            leaves = [convert(part) for convert, part in pairs]
        except SpecError:
            check_fits(
                self._converted_where_it_fits(value),
                self._structure.template,
                subject=self._subject,
                outer_dims=self._dims,
            )
            raise
        return self._unflatten(leaves)

    def _converted_where_it_fits(self, value: Any) -> Any:
        """Converts what can be converted, so that only the rest is complained of."""
        try:
            parts = self._structure.flatten(value)
        except SpecError:
            return value
        for index, convert in enumerate(self._leaves):
            with contextlib.suppress(SpecError):
                parts[index] = convert(parts[index])
        return self._structure.unflatten(parts)
