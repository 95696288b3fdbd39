"""The four specs of an environment as one value that can be compared and explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.errors import SpecMismatchError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import NestedSpec
from envkit.wording import a_or_an, bound_text, foreign

__all__ = [
    "EnvironmentSpec",
    "checked_spec",
    "difference_of_leaves",
    "mismatch",
]


class EnvironmentSpec(NamedTuple):
    """What an environment promises: the specs of everything it takes and gives.

    Example:
        >>> import numpy as np
        >>> scalar = ArraySpec((), np.float32)
        >>> spec = EnvironmentSpec(scalar, scalar, scalar, scalar)
        >>> spec.difference(spec._replace(action=ArraySpec((2,), np.float32)))
        ('action', 'The shape differs: () and (2,).')
    """

    observation: NestedSpec
    action: NestedSpec
    reward: NestedSpec
    discount: NestedSpec

    @classmethod
    def of(cls, env: Any) -> EnvironmentSpec:
        """Asks an environment for its four specs.

        Raises:
            TypeError: One of them is no method, or returns something else than specs.
        """
        return cls(*(_ask(env, f"{part}_spec") for part in cls._fields))

    def difference(self, other: EnvironmentSpec) -> tuple[str, str] | None:
        """Names the first part that differs and says how; `None` if all agree."""
        for part in self._fields:
            text = _difference(getattr(self, part), getattr(other, part))
            if text:
                return part, text
        return None

    @staticmethod
    def check_all_equal(
        specs: Sequence[EnvironmentSpec],
        makers: Sequence[str] | None = None,
        purpose: str = "form one batch",
    ) -> None:
        """Raises a `SpecMismatchError` unless every spec equals the first.

        `makers` says where each environment came from, and `purpose` what they cannot
        do otherwise, for the message.
        """
        for index, spec in enumerate(specs):
            difference = specs[0].difference(spec)
            if difference is None:
                continue
            raise mismatch(specs, makers, index, *difference, purpose=purpose)


def mismatch(
    specs: Sequence[EnvironmentSpec],
    makers: Sequence[str] | None,
    index: int,
    part: str,
    difference: str,
    purpose: str = "form one batch",
) -> SpecMismatchError:
    """Makes the error for an environment that has another spec than the first.

    Args:
        specs: The environments' specs.
        makers: Where each came from.
        index: Which of them differs.
        part: Which of its specs does, such as "action".
        difference: How, as a sentence.
        purpose: What they cannot do for that.
    """
    return SpecMismatchError.between(
        first=0,
        second=index,
        part=part,
        specs=(_shown(getattr(specs[0], part)), _shown(getattr(specs[index], part))),
        makers=(makers[0], makers[index]) if makers else ("", ""),
        difference=difference,
        agreement=_agreement(specs[0], specs[index], part),
        purpose=purpose,
    )


def _ask(env: Any, method: str) -> NestedSpec:
    name = f"{type(env).__name__}.{method}"
    ask = getattr(env, method)
    if not callable(ask):
        raise TypeError(
            f"{name} is {a_or_an(type(ask).__name__)}; it has to be a method that "
            "returns one."
        )
    spec = ask()
    base = foreign(env)
    if base and not all(isinstance(leaf, ArraySpec) for leaf in nest.flatten(spec)):
        # What its base says by default is not what its author wrote.
        raise TypeError(
            f"The environment is {base}, and its {method}() is not made of ArraySpecs."
        )
    return checked_spec(spec, f"{name}() returned")


def checked_spec(spec: NestedSpec, subject: str) -> NestedSpec:
    """Returns specs, if they are.

    Args:
        spec: What may be a nest of specs.
        subject: Where it is from, as the sentence of an error begins.

    Raises:
        TypeError: A leaf is no spec.
    """
    for path, leaf in nest.flatten_with_paths(spec):
        if not isinstance(leaf, ArraySpec):
            place = f" at {path}" if path else ""
            raise TypeError(
                f"{subject} {foreign(leaf) or f'{leaf!r:.80}'}{place}, not an "
                f"ArraySpec.{_hint(leaf)}"
            )
    return spec


def _hint(leaf: Any) -> str:
    if leaf is None:
        return " Did a return statement get lost?"
    if hasattr(leaf, "contains") and hasattr(leaf, "sample"):
        return " envkit.adapters.spec_from_gym_space(space) makes one of a space."
    if hasattr(leaf, "is_compatible_with"):
        return " envkit.tf.tensor_spec.to_array_spec(spec) makes one of a TensorSpec."
    return ""


def _shown(spec: NestedSpec) -> str:
    text = repr(spec)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _agreement(first: EnvironmentSpec, second: EnvironmentSpec, part: str) -> str:
    agree = [
        name
        for name in first._fields
        if name != part and not _difference(getattr(first, name), getattr(second, name))
    ]
    if not agree:
        return "No other spec agrees either."
    names = " and ".join(filter(None, [", ".join(agree[:-1]), agree[-1]]))
    verb, noun = ("agree", "specs") if len(agree) > 1 else ("agrees", "spec")
    return f"{names[0].upper()}{names[1:]} {noun} {verb}."


def _difference(first: NestedSpec, second: NestedSpec) -> str:
    if first is second:
        return ""
    for pair in nest.pair_up(first, second):
        place = f" at {pair.path}" if pair.path else ""
        if pair.problem:
            return f"The structure differs{place}. {pair.problem}"
        if nest.is_nested(pair.value):
            return (
                f"The structure differs{place}: a single array and "
                f"{nest.outline(pair.value)}."
            )
        text = difference_of_leaves(pair.template, pair.value, place)
        if text:
            return text
    return ""


def difference_of_leaves(first: Any, second: Any, place: str) -> str:
    """Says how two specs of one array differ; "" if they are equal."""
    if first == second:
        return ""
    if not (isinstance(first, ArraySpec) and isinstance(second, ArraySpec)):
        return f"The spec differs{place}: {first!r:.80} and {second!r:.80}."
    if first.shape != second.shape:
        return f"The shape differs{place}: {first.shape} and {second.shape}."
    if first.dtype != second.dtype:
        return f"The dtype differs{place}: {first.dtype} and {second.dtype}."
    if isinstance(first, BoundedArraySpec) and isinstance(second, BoundedArraySpec):
        same = np.array_equal(
            np.broadcast_to(first.minimum, first.shape),
            np.broadcast_to(second.minimum, second.shape),
            equal_nan=True,
        )
        which = "maximum" if same else "minimum"
        ours, theirs = (bound_text(getattr(spec, which)) for spec in (first, second))
        return f"The {which} differs{place}: {ours} and {theirs}."
    return f"Only one of the two is bounded{place}."
