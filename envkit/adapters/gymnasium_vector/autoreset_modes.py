"""The autoreset modes of Gymnasium, made of what a batch of envkit's can do.

| wanted    | the batch's own | how                                     | needs        |
|-----------|-----------------|-----------------------------------------|--------------|
| any       | the same        | its `step`                              |              |
| any       | can be chosen   | its `step`, after choosing; of a batch  |              |
|           |                 | that is no pool, NEXT_STEP is chosen    |              |
| NEXT_STEP | DISABLED        | rows that ended begin while others step | `holds_rows` |
| SAME_STEP | NEXT, DISABLED  | a step, then `reset` of what has ended  | `resets_rows`|
| DISABLED  | NEXT_STEP       | a step while no row is at its end       | `resets_rows`|

A batch of one row can all of this. From SAME_STEP there is no way to another mode: what
the step returns has been left behind by then.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np

from envkit.autoreset import AutoReset
from envkit.masked_rows import MaskedRows
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray
from envkit.wording import listed

__all__ = ["ResetMode", "as_order", "check_begun", "reset_mode"]

_NEXT, _SAME, _DISABLED = AutoReset.NEXT_STEP, AutoReset.SAME_STEP, AutoReset.DISABLED


class ResetMode(Protocol):
    """How a batch steps in one of the modes."""

    def step(self, action: NestedArray, ended: Array) -> TimeStep:
        """Steps, and returns what happened.

        Args:
            action: A batch of actions.
            ended: The rows that stand at the end of an episode.
        """

    def begin(self, ended: Array) -> TimeStep:
        """Returns where the rows stand when those that ended have begun anew.

        Only in SAME_STEP, right after a step that returned `LAST` in some rows.
        """


def as_order(mode: Any) -> AutoReset:
    """Returns envkit's name for a mode of Gymnasium's.

    Example:
        >>> as_order("SameStep")
        <AutoReset.SAME_STEP: 'same_step'>
    """
    value = getattr(mode, "value", mode)
    for order in AutoReset:
        # Gymnasium has "NextStep" for what is "next_step" here.
        if isinstance(value, str) and _letters(value) == _letters(order.value):
            return order
    raise ValueError(
        f"autoreset_mode is {describe(mode)}; it is 'NextStep', 'SameStep' or "
        "'Disabled', or the AutoresetMode of that name."
    )


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def reset_mode(env: Any, wanted: AutoReset, adapter: str) -> ResetMode:
    """Returns how a batch steps in a mode, and lets it choose that mode if it can.

    Raises:
        ValueError: The batch cannot; the message says why, and what can.
    """
    own = _chosen_order(env, wanted)
    one = env.batch_size == 1
    if wanted is _NEXT and getattr(env, "repeats_last", False) is True:
        raise ValueError(
            f"{adapter} was given {type(env).__name__}, which repeats the LAST of an "
            "episode to give all episodes the same length. In Gymnasium an episode "
            "ends once. Leave the padding off, or use autoreset_mode 'SameStep' or "
            "'Disabled'."
        )
    if own is wanted:
        return _TellsWhereItStands(env) if own is _SAME else _AsItIs(env)
    if wanted is _NEXT and own is _DISABLED and (one or env.holds_rows):
        return _BeginsWithTheStep(env)
    if wanted is not _NEXT and own is not _SAME and (one or env.resets_rows):
        return _BeginsAfterTheStep(env) if wanted is _SAME else _AsItIs(env)
    _refuse(env, wanted, own, adapter)


def _chosen_order(env: Any, wanted: AutoReset) -> AutoReset:
    """Lets a batch keep the order that serves best, if it can choose."""
    own = AutoReset.kept_by(env)
    found = getattr(type(env), "autoreset", None)
    if not isinstance(found, property) or found.fset is None:
        return own
    if found.fset is vars(MaskedRows)["autoreset"].fset:
        # What is done around its steps is done here, where both infos can be seen.
        wanted = _NEXT
    if own is not wanted:
        try:
            env.autoreset = wanted
        except ValueError:  # A wrapper around what cannot choose.
            return own
    return wanted


def _refuse(env: Any, wanted: AutoReset, own: AutoReset, adapter: str) -> NoReturn:
    name = type(env).__name__
    if own is _SAME:
        why = (
            "its own order is SAME_STEP, in which the end of an episode is left at once"
        )
    elif wanted is _NEXT:
        why = (
            "its own order is DISABLED, and it cannot leave rows where they are while "
            "others step (holds_rows)"
        )
    else:
        why = "it cannot begin episodes in some rows alone (resets_rows)"
    raise ValueError(
        f"{adapter} cannot give {name} the autoreset_mode {_title(wanted)!r}: {why}. "
        f"Its own is {_title(own)!r}. A ParallelPyEnvironment, and a "
        "BatchedPyEnvironment of single environments, can all modes."
    )


def _title(order: AutoReset) -> str:
    """Returns Gymnasium's word for an order."""
    return order.value.title().replace("_", "")


class _AsItIs:
    """The batch's own order is the one."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def step(self, action: NestedArray, ended: Array) -> TimeStep:
        time_step: TimeStep = self._env.step(action)
        return time_step

    def begin(self, ended: Array) -> TimeStep:
        raise NotImplementedError(f"Rows {listed(ended.nonzero()[0])} begin later.")


class _TellsWhereItStands(_AsItIs):
    """The batch's own order is SAME_STEP."""

    def begin(self, ended: Array) -> TimeStep:
        time_step: TimeStep = self._env.current_time_step()
        return time_step


class _BeginsAfterTheStep(_AsItIs):
    """SAME_STEP, by resetting what has ended right after a step."""

    def begin(self, ended: Array) -> TimeStep:
        time_step: TimeStep
        time_step = self._env.reset() if ended.all() else self._env.reset(ended)
        return time_step


class _BeginsWithTheStep(_AsItIs):
    """NEXT_STEP, by resetting what has ended while the others step."""

    def step(self, action: NestedArray, ended: Array) -> TimeStep:
        time_step: TimeStep
        if not ended.any():
            time_step = self._env.step(action)
        elif ended.all():
            time_step = self._env.reset()
        else:
            time_step = self._env.step_rows(action, ~ended, ended)
        return time_step


def check_begun(ended: Array, adapter: str) -> None:
    """Refuses a step of rows that stand at the end of an episode."""
    if not np.count_nonzero(ended):  # Hot: called once per batch step.
        return
    from gymnasium.error import ResetNeeded

    rows = np.flatnonzero(ended)
    noun = "row" if rows.size == 1 else "rows"
    raise ResetNeeded(
        f"{adapter}.step() was called after the episode of {noun} {listed(rows)} "
        "ended. Call reset(options={'reset_mask': mask}) for them first; none of the "
        "environments has moved."
    )
