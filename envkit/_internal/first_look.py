"""Checks the first reset and the first step of an environment.

Shapes, dtypes and bounds are compared with the specs, with the messages of pools. A
faulty environment nearly always fails from the start, so one check is enough, and later
steps do not pay for it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit._internal.entry_points import advice
from envkit._internal.internals import class_behind, has_internals
from envkit._internal.masks import check_time_step
from envkit.errors import SpecError
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits

__all__ = ["leave_unseen", "look_at", "looking", "refuse_unpacking"]


def refuse_unpacking() -> None:
    """Raises `ValueError` if a time step is about to be unpacked as another tuple."""
    advice("unpacking")(sys._getframe(1))


def look_at(env: Any, time_step: Any, method: str) -> None:
    """Raises unless the first time step that a method returned fits the specs.

    Args:
        env: The environment, whose `Internals` say what is still unchecked.
        time_step: The result of the method.
        method: The method's name, such as `_reset`.

    Raises:
        SpecError: The time step does not fit.
    """
    refuse_unpacking()
    call = "reset" if "reset" in method else "step"
    spec = env.time_step_spec()
    # Mocks in tests may return anything.
    if isinstance(time_step, tuple) and all(
        isinstance(leaf, ArraySpec) for leaf in nest.flatten(spec)
    ):
        kind = class_behind(env)
        told = method if kind is type(env) else call
        shown: Any = time_step
        if call == "reset":
            # dm_env and TF-Agents give it discount 1, whatever the spec allows.
            shown = shown._replace(discount=_within(shown.discount, spec.discount))
        check_fits(
            _with_widths(shown, spec),
            spec,
            subject=f"{kind.__name__}.{told}() returned a time step that",
            outer_dims=(env.batch_size,) if env.batched else (),
            context=f"This was the first observation after {call}() of "
            f"{kind.__module__}.{kind.__qualname__}.",
        )
    internals = env._envkit
    unseen = tuple(other for other in internals.unseen if other != call)
    stays_special = bool(unseen) or internals.methods.asks_should_reset or env.batched
    env._envkit = internals.look(unseen, stays_special)
    if unseen and call == "reset":
        _await_own_step(env)


def _within(discount: Any, spec: Any) -> Any:
    """Clips a discount to the bounds of its spec, and keeps everything else."""
    if not isinstance(spec, BoundedArraySpec) or not isinstance(discount, np.ndarray):
        return discount
    try:
        return np.clip(discount, spec.minimum, spec.maximum, dtype=discount.dtype)
    except (TypeError, ValueError):  # it has no numbers, or another shape
        return discount


def _with_widths(time_step: Any, spec: Any) -> Any:
    """Gives text the width of its spec, because any width is accepted."""
    structure = nest.Structure(spec)
    try:
        leaves = structure.flatten(time_step)
    except SpecError:
        return time_step
    for place, (leaf, own) in enumerate(zip(leaves, structure.leaves, strict=True)):
        kind = getattr(getattr(leaf, "dtype", None), "kind", "")
        if kind and kind in "SU" and kind == own.dtype.kind:
            leaves[place] = np.asarray(leaf).astype(own.dtype)
    return structure.unflatten(leaves)


def leave_unseen(env: Any) -> None:
    """Marks an environment and its wrappers as checked: the caller checks them.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = CountingEnv()
        >>> leave_unseen(env)
        >>> env.reset().observation
        array(0, dtype=int32)
    """
    while env is not None:
        internals = env._envkit if has_internals(env) else None
        if internals is not None:
            env._envkit = internals.look((), is_special=True)
        env = getattr(env, "_env", None) if internals and internals.wraps else None


# Environments written for TF-Agents may override the public methods, and may not call
# super().__init__().


def looking(reset: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a public `reset` whose first result is checked."""

    @functools.wraps(reset)
    def looking_reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        time_step = reset(self, *args, **kwargs)
        if "reset" in self._envkit.unseen:
            check_time_step(self, time_step, "reset")
            look_at(self, time_step, "reset")
        return time_step

    return looking_reset


def _await_own_step(env: Any) -> None:
    """Checks the first result of a public `step` that a class has overridden.

    The checking method is stored in the object until then, and costs nothing later. An
    attribute that the object has already is called by it, and comes back.
    """
    if env._envkit.methods.overrides_step:
        step = vars(env).get("step")
        if getattr(step, "func", None) is not _first_own_step:
            env.step = functools.partial(_first_own_step, env, step)


def _first_own_step(env: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
    step = functools.partial(type(env).step, env) if own is None else own
    time_step = step(*args, **kwargs)
    if "step" in env._envkit.unseen:
        check_time_step(env, time_step, "step")
        look_at(env, time_step, "step")
    # Others may have put an attribute in front of this one.
    if getattr(vars(env).get("step"), "func", None) is _first_own_step:
        del env.step
        if own is not None:
            env.step = own
    return time_step
