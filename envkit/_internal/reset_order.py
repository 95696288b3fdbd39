"""Implements reset orders other than `NEXT_STEP`, for batches that reset rows.

Rows always move as under `NEXT_STEP`. The outermost wrapper adds the rest of another
order: it suspends the order of the batch inside, moves the rows, and then resets rows
that have ended, or refuses to step them.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from envkit._internal.internals import ResetOrder, has_internals, own_internals
from envkit._internal.text import named_rows
from envkit.errors import CallOrderError
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array

__all__ = [
    "adopt_order_of",
    "copied_arrays",
    "get_order",
    "is_in_other_order",
    "move_in_order",
    "moves_in_other_order",
    "refuse_ended",
    "rely_on_size",
    "reset_in_order",
    "set_order",
    "with_order_suspended",
]

_LAST = int(StepType.LAST)
_NEXT_STEP = AutoReset.NEXT_STEP


def get_order(env: Any) -> AutoReset:
    """Returns the reset order of an environment."""
    kept = env._envkit.order
    if kept is None:
        return _NEXT_STEP
    found: AutoReset = kept.order if kept.batch is None else kept.batch.autoreset
    return found


def set_order(env: Any, order: AutoReset | str) -> None:
    """Changes the reset order of a batch; raises if it cannot."""
    order, kept = _checked_order(env, order), env._envkit.order
    if kept is None:
        if order is not _NEXT_STEP:
            own_internals(env).order = ResetOrder(order)
    elif kept.batch is None:
        kept.order = order
    elif order is not kept.batch.autoreset:
        _check_may_choose(env)
        change = functools.partial(setattr, kept.batch, "autoreset", order)
        if env._current_time_step is None:
            change()
        else:  # the batch shows its current position: nothing has begun in between
            with_order_suspended(env, change)


def _checked_order(env: Any, order: AutoReset | str) -> AutoReset:
    """Returns an order that a batch supports; raises for others."""
    order = AutoReset.of(order)
    begins_rows = env.resets_rows or (env.batched and env.batch_size == 1)
    if order is _NEXT_STEP or begins_rows:
        return order
    name = type(env).__name__
    why = (
        "its rows cannot begin an episode one by one: override _reset_rows(mask) "
        "there, or let it keep AutoReset.NEXT_STEP"
        if env.batched
        else "it is a single environment, and orders are for the rows of a batch"
    )
    raise ValueError(f"{name} cannot keep AutoReset.{order.name}: {why}.")


def adopt_order_of(env: Any, inside: Any) -> None:
    """Prepares to use the order of a batch inside, now and after changes."""
    rely_on_size(env, inside)
    batch = _batch_of(inside)
    if has_internals(batch) and batch._envkit.keeps_order:
        own_internals(env).order = ResetOrder(batch=batch)
    else:
        order = AutoReset.kept_by(inside)
        if order is not _NEXT_STEP:
            own_internals(env).order = ResetOrder(order)
        if order is AutoReset.SAME_STEP:
            _refuse_order(env, type(inside).__name__)
    if env.autoreset is AutoReset.SAME_STEP:
        _check_may_choose(env)
        _checked_order(env, AutoReset.SAME_STEP)


def rely_on_size(holder: Any, env: Any) -> None:
    """Tells a batch that a live object relies on the number of its rows."""
    batch = _batch_of(env)
    if has_internals(batch):
        batch._envkit.rely_on_size(batch, holder)


def _batch_of(env: Any) -> Any:
    """Returns the batch that owns the order: the environment, or one inside."""
    kept = env._envkit.order if has_internals(env) else None
    return env if kept is None or kept.batch is None else kept.batch


def _check_may_choose(env: Any) -> None:
    """Refuses a batch whose inner order cannot be changed, not even for a step."""
    batch = _batch_of(env)
    if not batch._envkit.changes_order(batch):
        _refuse_order(env, type(batch).__name__)


def _refuse_order(env: Any, batch: str) -> NoReturn:
    raise ValueError(
        f"{type(env).__name__} cannot wrap {batch} with AutoReset."
        f"{env.autoreset.name} or give it another order: {batch} always keeps its "
        "own. Wrap the single environments before they become a batch, or make "
        "the batch with AutoReset.NEXT_STEP."
    )


def is_in_other_order(env: Any) -> bool:
    """Returns True if this call moves rows in an order other than `NEXT_STEP`."""
    if env._envkit.order is None or env._envkit.keeps_order_itself:
        return False
    batch = _batch_of(env)
    return (
        not batch._envkit.is_suspended
        and batch.autoreset is not _NEXT_STEP
        and not env.continues_after_last
    )


def moves_in_other_order(env: Any) -> bool:
    """Does the same as `is_in_other_order`, and forgets the last step."""
    # Hot: called once per step of a batch, by each of its wrappers.
    internals = env._envkit
    kept = internals.order
    if kept is None or internals.keeps_order_itself:
        return False
    batch = env if kept.batch is None else kept.batch
    if batch._envkit.is_suspended:
        return False
    if kept.shown:
        for name in kept.shown:
            env.__dict__.pop(name, None)
        kept.shown = ()
    if batch.autoreset is _NEXT_STEP:
        return False
    return not env.continues_after_last


def with_order_suspended(env: Any, call: Callable[[], Any]) -> Any:
    """Makes a call in which rows move as under `NEXT_STEP`."""
    batch = _batch_of(env)
    batch._envkit.suspend_order(batch, True)
    try:
        return call()
    finally:
        batch._envkit.suspend_order(batch, False)


def reset_in_order(env: Any, mask: Array | None) -> TimeStep:
    """Resets rows under an order other than `NEXT_STEP`."""
    env._envkit.order.late_error = None
    time_step: TimeStep = with_order_suspended(env, functools.partial(env.reset, mask))
    return time_step


def move_in_order(
    env: Any, move: Callable[[], TimeStep], stepping: Array | None
) -> TimeStep:
    """Steps or resets a batch in the order `SAME_STEP` or `DISABLED`.

    Args:
        env: The batch, or its wrapper.
        move: Steps or resets the rows as under `NEXT_STEP`.
        stepping: A mask of the rows that use their action; `None` for all.
    """
    order, current = _checked_order(env, env.autoreset), env._current_time_step
    kept = env._envkit.order
    error, kept.late_error = kept.late_error, None
    if error is not None:
        raise error
    if order is AutoReset.DISABLED and current is not None:
        rows = _ended_in(env, current, stepping).nonzero()[0]
        if rows.size:
            refuse_ended(rows)
    shown: TimeStep = with_order_suspended(env, move)
    if order is AutoReset.SAME_STEP:
        ended = _ended_in(env, shown, stepping)
        if ended.any():
            _keep_showing(env)
            with_order_suspended(env, functools.partial(_reset_at_once, env, ended))
    return shown


def refuse_ended(rows: Array) -> NoReturn:
    """Refuses to step rows whose episode has ended, under `AutoReset.DISABLED`."""
    raise CallOrderError(
        f"step() was called after the episode of {named_rows(rows)} ended. Under "
        "AutoReset.DISABLED, call reset(mask) for them first, or leave them out with "
        "step(action, mask); none of the environments has moved."
    )


def _ended_in(env: Any, time_step: TimeStep, rows: Array | None) -> Array:
    """Returns the rows that have ended an episode and do not show padding."""
    over: Array = np.asarray(time_step.step_type) == _LAST
    if rows is not None:
        over &= rows
    padding = env._envkit.padding_rows(env)
    return over if padding is None else over & ~padding


def _reset_at_once(env: Any, ended: Array) -> None:
    """Begins the next episodes, before the step that ended the last ones returns."""
    order = _batch_of(env)._envkit.order
    order.resets_at_once = True
    try:
        env.reset(ended)
    except Exception as error:
        # The ends are a valid answer; the next step raises the error.
        env._envkit.order.late_error = error
    finally:
        order.resets_at_once = False


def _keep_showing(env: Any) -> None:
    """Keeps everything that describes a step, before the next episodes begin."""
    shown: dict[str, Any] = {}
    try:
        info = copied_arrays(env.get_info())
    except NotImplementedError:
        pass
    except Exception as error:
        shown["get_info"] = functools.partial(_raise, error)
    else:
        shown["get_info"] = functools.partial(copied_arrays, info)
    losses = env.current_losses()
    shown["repaired"] = env.repaired
    shown["current_losses"] = lambda: dict(losses)
    # Replaces the methods, whichever class defines them.
    env.__dict__.update(shown)
    env._envkit.order.shown = tuple(shown)


def _raise(error: Exception) -> NoReturn:
    raise error


def copied_arrays(value: Any) -> Any:
    """Copies arrays, and the dictionaries, lists and tuples that contain them.

    Environments may keep writing to infos that they have returned. Any other object
    stays the same: it may be an environment, or impossible to copy.

    Example:
        >>> board = np.array([1, 2])
        >>> info = {"board": board, "seen": [board]}
        >>> kept = copied_arrays(info)
        >>> board[:] = 0
        >>> kept
        {'board': array([1, 2]), 'seen': [array([1, 2])]}
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        own = copy.copy(value)
        own.update((key, copied_arrays(item)) for key, item in value.items())
        return own
    if type(value) in {list, tuple}:
        return type(value)(map(copied_arrays, value))
    return value
