"""`EnvRow`: an environment of a worker and the rows of the slab that it runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from envkit._internal.internals import class_behind
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["EnvRow", "SentOptions", "Step"]

Step = Callable[[Any], TimeStep]


class SentOptions(NamedTuple):
    """Options of an environment for one reset of some rows.

    Attributes:
        env: The environment.
        row: One of the rows.
        number: The number of that row's reset request.
        options: The options.
        mask: A mask of the rows of a batch; `None` for all.
    """

    env: Any
    row: int
    number: int
    options: Any
    mask: Array | None


class EnvRow:
    """An environment and the rows of the slab that it runs on.

    Attributes:
        index: Its place among the worker's environments.
        rows: Its rows.
        block: The same as a slice.
        place: Its first row, counted from the worker's first.
        is_batch: Whether the environment is batched, and so moves its rows together.
        all_mid: The bytes of its step types when each is MID.
        own_step: The environment's step, checking its first time step or all.
        is_reset_checked: Whether no further reset needs a check of everything.
        is_step_checked: Whether no further step needs one.
        may_lose: Whether it can report losses inside it.
        options: Options that were sent before a reset.
    """

    __slots__ = (
        "_envs",
        "all_mid",
        "block",
        "index",
        "is_batch",
        "is_reset_checked",
        "is_step_checked",
        "may_lose",
        "options",
        "own_step",
        "place",
        "rows",
    )
    own_step: Step

    def __init__(self, envs: list[Any], index: int, first: int, place: int) -> None:
        # The host's own list, so that we find rebuilt environments in it.
        self._envs = envs
        self.index = index
        self.is_batch = bool(envs[index].batched)
        start = first + place
        self.rows = range(start, start + (self.env.batch_size if self.is_batch else 1))
        self.block = slice(start, self.rows.stop)
        self.place = place
        self.all_mid = np.full(len(self.rows), StepType.MID, np.int32).tobytes()
        self.is_reset_checked = self.is_step_checked = self.may_lose = False
        self.options: SentOptions | None = None

    @property
    def env(self) -> Any:
        """The environment."""
        return self._envs[self.index]

    @property
    def repeats_last(self) -> bool:
        """Whether the environment itself handles the step after a `LAST`."""
        # An object that only has the methods of an environment may lack this attribute.
        return getattr(self.env, "repeats_last", False) is True

    @property
    def continues(self) -> bool:
        """Whether no `FIRST` follows a `LAST` of the environment."""
        return getattr(self.env, "continues_after_last", False) is True

    @property
    def kind(self) -> str:
        """The environment's class, including its module."""
        kind = class_behind(self.env)
        return f"{kind.__module__}.{kind.__qualname__}"
