"""An environment's four specs as one value, and the specs of its infos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit._internal.entry_points import converter
from envkit._internal.text import a_or_an, bound_text, foreign
from envkit.errors import SpecError, SpecMismatchError
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, as_array
from envkit.specs.validation import check_fits, describe
from envkit.types import Array, NestedSpec

__all__ = [
    "DeclaredInfo",
    "EnvironmentSpec",
    "checked_spec",
    "common_info_spec",
    "difference_of_leaves",
    "info_spec_of",
    "mismatch",
]


class EnvironmentSpec(NamedTuple):
    """Holds the specs of everything an environment takes and returns.

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
        """Reads an environment's four specs.

        Raises:
            TypeError: One of them is not a method, or does not return specs.
        """
        return cls(*(_ask(env, f"{part}_spec") for part in cls._fields))

    def difference(self, other: EnvironmentSpec) -> tuple[str, str] | None:
        """Names the first part that differs and says how; `None` if all agree."""
        if other is self:
            return None
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

        For the message, `makers` says where each environment comes from, and `purpose`
        what differing environments cannot do.
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
    hint: str = "",
) -> SpecMismatchError:
    """Returns the error for an environment whose specs differ from the first's.

    Args:
        specs: The environments' specs.
        makers: The origin of each environment.
        index: The environment that differs.
        part: The spec that differs, such as "action".
        difference: The difference, as a sentence.
        purpose: What the environments cannot do because of it.
        hint: What to do about it, as a sentence.
    """
    width = len(f"env {index}") + 4
    rows = "\n".join(
        f"  {f'env {env}':<{width}}{_shown(getattr(specs[env], part))}"
        f"    {makers[env] if makers else ''}".rstrip()
        for env in (0, index)
    )
    message = (
        f"env 0 and env {index} have different {part} specs, so they cannot {purpose}."
        f"\n\n{rows}\n\n{difference} {_agreement(specs[0], specs[index], part)}"
    )
    error = SpecMismatchError(f"{message}\n{hint}" if hint else message)
    error.envs, error.part = (0, index), part
    return error


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
        # A base class's default is not the author's own choice.
        raise TypeError(
            f"The environment is {base}, and its {method}() is not made of ArraySpecs."
        )
    return checked_spec(spec, f"{name}() returned")


def checked_spec(spec: NestedSpec, subject: str) -> NestedSpec:
    """Returns a nest of specs; raises if anything in it is not a spec.

    Args:
        spec: The nest to check.
        subject: Its origin, as the beginning of the error message.

    Returns:
        The same nest.

    Raises:
        TypeError: A leaf is not a spec.
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
        return f" {converter('gymnasium-space')}(space) makes one of a space."
    if hasattr(leaf, "is_compatible_with"):
        return f" {converter('tensor-spec')}(spec) makes one of a TensorSpec."
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
    """Describes how two specs of one array differ; "" if they are equal."""
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


def info_spec_of(env: Any) -> dict[str, Any]:
    """Returns the specs that an environment declares for its info; `{}` if none.

    Raises:
        TypeError: The declaration is not a dictionary of specs.

    Example:
        >>> import numpy as np
        >>> class Fueled:
        ...     def info_spec(self):
        ...         return {"fuel": ArraySpec((), np.float32)}
        >>> info_spec_of(Fueled())
        {'fuel': ArraySpec(shape=(), dtype=float32)}
    """
    ask = getattr(env, "info_spec", None)
    if not callable(ask):
        return {}
    found = ask()
    name = f"{type(env).__name__}.info_spec()"
    if not isinstance(found, Mapping):
        raise TypeError(
            f"{name} returned {describe(found)}; it is a dictionary of ArraySpecs, "
            "which may hold others, and {} if nothing is declared."
        )
    return _as_dicts(found, name, "")


def _as_dicts(found: Mapping[Any, Any], name: str, place: str) -> dict[str, Any]:
    specs: dict[str, Any] = {}
    for key, value in found.items():
        path = f"{place}[{key!r}]"
        if not isinstance(key, str):
            raise TypeError(f"{name} has the key {key!r}; its keys are text.")
        if isinstance(value, Mapping):
            specs[key] = _as_dicts(value, name, path)
        elif isinstance(value, ArraySpec):
            specs[key] = value
        else:
            raise TypeError(
                f"{name} has {describe(value)} at {path}, not an ArraySpec or a "
                "dictionary of them."
            )
    return specs


def common_info_spec(specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the info specs on which all of several environments agree.

    They need not agree: anything that only some declare is left out.

    Example:
        >>> import numpy as np
        >>> number = ArraySpec((), np.int64)
        >>> common_info_spec([{"lives": number, "lap": number}, {"lives": number}])
        {'lives': ArraySpec(shape=(), dtype=int64)}
    """
    if not specs:
        return {}
    common: dict[str, Any] = {}
    for key in specs[0]:
        values = [spec.get(key) for spec in specs]
        if all(isinstance(value, Mapping) for value in values):
            inner = common_info_spec(values)  # type: ignore[arg-type]  # all are mappings
            if inner:
                common[key] = inner
        elif all(_is_same(values[0], value) for value in values):
            common[key] = values[0]
    return common


def _is_same(first: Any, second: Any) -> bool:
    return isinstance(first, ArraySpec) and bool(first == second)


def _key_paths(template: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the keys that lead to each leaf, in the order of leaves.

    Example:
        >>> list(_key_paths({"fuel": 0, "at": {"y": 0, "x": 0}}))
        [('at', 'x'), ('at', 'y'), ('fuel',)]
    """
    if isinstance(template, Mapping):
        for key in sorted(template):
            yield from _key_paths(template[key], (*path, key))
    else:
        yield path


class DeclaredInfo:
    """Extracts the declared values from infos.

    Attributes:
        structure: The structure of the declared values.
        keys: For each leaf, the keys that lead to it.

    Example:
        >>> import numpy as np
        >>> declared = DeclaredInfo({"fuel": ArraySpec((), np.float32)})
        >>> declared.values({"fuel": 0.5, "note": "low"})
        [array(0.5)]
        >>> declared.is_all_of({"fuel": 0.5, "note": "low"})
        False
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Takes the result of `info_spec_of`."""
        self.structure = nest.Structure(dict(spec))
        self.keys = list(_key_paths(spec))
        self._sizes = list(_sizes(spec))

    def values(
        self, info: Any, dims: Sequence[int] = (), subject: str = "The info"
    ) -> list[Array]:
        """Returns the declared values of an info, in the order of leaves.

        Other numbers of the same kind are accepted, such as int64 for int32.

        Args:
            info: The result of `get_info`.
            dims: The size of the batch in a tuple, or `()`.
            subject: The name of the info in messages.

        Raises:
            SpecError: A value is missing or does not fit.
        """
        # Hot: called once per step of environments that declare values.
        dims = tuple(dims)
        leaves = []
        for keys, spec in zip(self.keys, self.structure.leaves, strict=True):
            value = info
            for key in keys:
                try:
                    value = value[key]
                except (KeyError, TypeError, IndexError):
                    raise _missing(subject, keys, spec, info) from None
            leaf = as_array(value)
            if leaf.shape != (*dims, *spec.shape) or not _casts(leaf, spec):
                path = "info" + "".join(f"[{key!r}]" for key in keys)
                check_fits(leaf, spec, subject=subject, path=path, outer_dims=dims)
            leaves.append(leaf)
        return leaves

    def batch_values(
        self, info: Any, rows: int, subject: str = "The info"
    ) -> list[Array]:
        """Does the same for a batch, whose info may be a list with one info per row.

        Example:
            >>> declared = DeclaredInfo({"fuel": ArraySpec((), float)})
            >>> declared.batch_values([{"fuel": 0.5}, {"fuel": 0.25}], 2)
            [array([0.5 , 0.25])]
        """
        if not (isinstance(info, list) and len(info) == rows):
            return self.values(info, (rows,), subject)
        by_row = [self.values(one, (), subject) for one in info]
        return [np.stack(column) for column in zip(*by_row, strict=True)]

    def is_all_of(self, info: Any) -> bool:
        """Returns True if an info has the declared values and no others."""
        for keys, size in self._sizes:
            value = info
            for key in keys:
                value = value[key]
            if len(value) != size:
                return False
        return True


def _sizes(
    spec: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yields the paths of dictionaries, with their numbers of keys."""
    yield path, len(spec)
    for key, value in spec.items():
        if isinstance(value, Mapping):
            yield from _sizes(value, (*path, key))


def _casts(leaf: Array, spec: ArraySpec) -> bool:
    if leaf.dtype == spec.dtype or spec.dtype.hasobject:
        return True
    # Longer text would be cut off.
    casting: Any = "safe" if spec.dtype.kind in "SU" else "same_kind"
    return bool(np.can_cast(leaf.dtype, spec.dtype, casting))


def _missing(
    subject: str, keys: Sequence[str], spec: ArraySpec, info: Any
) -> SpecError:
    place = "".join(f"[{key!r}]" for key in keys)
    return SpecError.does_not_fit(
        subject,
        path=f"info{place}",
        expected=str(spec),
        got=describe(info),
        reason="info_spec() declares it, so each info has it.",
        note="Declare in info_spec() only values that every time step has.",
    )
