"""`Case`: a wrapper to be tried, and on what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A wrapper with its arguments.

    Attributes:
        name: What the case is called.
        wrap: Wraps an environment.
        environments: Names in `ENVIRONMENTS`: those it can wrap.
        commutes: Whether wrapping single environments before they become a batch gives
            the same stream as wrapping the batch.
        batched: Whether the wrapper takes batches.
        steps: The most steps of a game in `check_environment`.
        skip: Checks of `check_environment` that do not apply, and only for a reason.
        require: Features that the wrapped environment must have besides seed and state.
    """

    name: str
    wrap: Callable[[Any], Any]
    environments: tuple[str, ...]
    commutes: bool = True
    batched: bool = True
    steps: int = 20
    skip: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
