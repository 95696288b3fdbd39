"""Checks and copies options of a reset, and passes them to any environment."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from envkit._internal.text import counted, listed
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = [
    "checked_options",
    "hand_options",
    "offer_options",
    "options_copy",
    "options_per_row",
]


def checked_options(options: Any) -> Mapping[str, Any] | None:
    """Returns the options of a reset; raises unless they are a dictionary."""
    if options is None or isinstance(options, Mapping):
        return options
    raise TypeError(
        "The options of a reset are a dictionary such as {'level': 3}, not "
        f"{describe(options)}."
    )


def options_copy(options: Any) -> dict[str, Any] | None:
    """Returns a copy of options, which an environment may change; `None` for none."""
    checked = checked_options(options)
    return None if checked is None else copy.deepcopy(dict(checked))


def options_per_row(options: Any, rows: int) -> list[Mapping[str, Any] | None]:
    """Returns each row's options, from a list or from one dictionary for all rows.

    Example:
        >>> options_per_row({"level": 3}, 2)
        [{'level': 3}, {'level': 3}]
    """
    if not isinstance(options, Sequence) or isinstance(options, str | bytes):
        return [checked_options(options)] * rows
    if len(options) != rows:
        raise ValueError(
            f"Options for {counted(len(options), 'row')}, and "
            f"{counted(rows, 'row')} are reset. Pass a list with one dictionary, or "
            "None, for each row, or one dictionary for all."
        )
    return [checked_options(own) for own in options]


def hand_options(env: Any, options: Any, rows: Array | None = None) -> None:
    """Passes options for its next reset to an environment of any library.

    Args:
        env: The environment.
        options: A dictionary, or for a batch a list with each row's; `None` discards
            unused options.
        rows: In a batch, a mask of the rows to be reset; `None` for all.
    """
    # Checks the class, because wrappers and mocks answer to any name.
    if hasattr(type(env), "_envkit"):
        env._envkit.hand_options(env, options, rows)
    else:
        offer_options(env, options, rows)


def offer_options(env: Any, options: Any, rows: Array | None) -> None:
    """Passes options to a method that accepts them; raises if there is none."""
    setter = getattr(env, "set_reset_options", None)
    if callable(setter):
        _set_options(setter, options, rows)
    elif options is not None:
        _refuse_options(env, options, rows)


def _set_options(setter: Any, options: Any, rows: Array | None) -> None:
    """Passes options to a method that takes one dictionary for the next reset."""
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
    """Raises if there are options, because nothing would read them."""
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
