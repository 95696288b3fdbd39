"""What environments declare of their infos, and how to take that out of an info."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.arrays import as_array
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import check_fits, describe
from envkit.types import Array

__all__ = ["DeclaredInfo", "common_info_spec", "info_spec_of", "key_paths"]


def info_spec_of(env: Any) -> dict[str, Any]:
    """Asks an environment what it declares of its info; `{}` if it declares nothing.

    Raises:
        TypeError: That is something else than specs in dictionaries.

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
    """Returns what all of several environments declare of their infos, and alike.

    They need not agree about that: what only some of them declare nobody relies on.

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


def key_paths(template: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the keys that lead to each leaf, in the order of leaves.

    Example:
        >>> list(key_paths({"fuel": 0, "at": {"y": 0, "x": 0}}))
        [('at', 'x'), ('at', 'y'), ('fuel',)]
    """
    if isinstance(template, Mapping):
        for key in sorted(template):
            yield from key_paths(template[key], (*path, key))
    else:
        yield path


class DeclaredInfo:
    """Takes out of infos what an environment declares of them.

    Attributes:
        structure: The structure of that.

    Example:
        >>> import numpy as np
        >>> declared = DeclaredInfo({"fuel": ArraySpec((), np.float32)})
        >>> declared.values({"fuel": 0.5, "note": "low"})
        [array(0.5)]
        >>> declared.is_all_of({"fuel": 0.5, "note": "low"})
        False
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Takes what `info_spec_of` returns."""
        self.structure = nest.Structure(dict(spec))
        self._keys = list(key_paths(spec))
        self._sizes = list(_sizes(spec))

    def values(
        self, info: Any, dims: Sequence[int] = (), subject: str = "The info"
    ) -> list[Array]:
        """Returns the declared values of an info, in the order of leaves.

        Numbers of the same kind will do, such as int64 for int32.

        Args:
            info: What `get_info` has returned.
            dims: The dimensions of a batch, if it is one of a batch.
            subject: What messages call it.

        Raises:
            SpecError: One of them is missing or does not fit.
        """
        # Hot: called once per step of environments that declare something.
        dims = tuple(dims)
        leaves = []
        for keys, spec in zip(self._keys, self.structure.leaves, strict=True):
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
        """Does the same for a batch, whose infos may also be a list with each row's.

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
        """Says whether an info that has the declared values has no others."""
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
    """Yields where there are dictionaries, and how many keys they have."""
    yield path, len(spec)
    for key, value in spec.items():
        if isinstance(value, Mapping):
            yield from _sizes(value, (*path, key))


def _casts(leaf: Array, spec: ArraySpec) -> bool:
    if leaf.dtype == spec.dtype or spec.dtype.hasobject:
        return True
    # Text that is too long would be cut off.
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
        note="Leave out of info_spec() what is not there at every time step.",
    )
