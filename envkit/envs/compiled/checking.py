"""Checks that rules compute the same compiled as in plain Python: `check_rules`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from envkit import nest
from envkit.envs.compiled.environment import CompiledEnvironment
from envkit.envs.compiled.rules import Rules
from envkit.errors import RulesDiffer
from envkit.extend import describe
from envkit.specs.sampling import sample_spec_nest
from envkit.specs.validation import check_fits
from envkit.types import Array

__all__ = ["check_rules"]

_ADVICE = (
    "If only the last digits differ, a NumPy function, a power or a sum() of many "
    "numbers causes it: use math, x * x, or a loop. If integers differ, one overflowed "
    "or was unsigned. If everything differs, the rules keep something "
    "outside the state."
)


def check_rules(
    rules: Rules | type[CompiledEnvironment],
    *,
    steps: int = 500,
    batch_size: int = 4,
    seed: int = 0,
) -> None:
    """Plays rules in plain Python and compiled, and compares every bit.

    Every step has random actions. States, random streams, time steps and flags are
    compared. The plain Python version runs first, and raises Python's errors: an index
    out of range, a number too large for its dtype, or a field set to another type.
    Observations are checked against their spec.

    Args:
        rules: The rules, or an environment class that has them.
        steps: How many steps to play.
        batch_size: How many rows to play.
        seed: Seeds the rows and the actions.

    Raises:
        RulesDiffer: The two differ; the error says where they first do.
        CompileError: numba cannot compile the rules.

    Example:
        >>> def reset(state, rng):
        ...     state.place = rng.integers(0, 3)
        >>> def step(state, action, rng):
        ...     state.place += action
        ...     return 1.0, state.place >= 9, False
        >>> def observe(state, out):
        ...     out[0] = state.place
        >>> from envkit.specs import BoundedArraySpec
        >>> class Walk(CompiledEnvironment):
        ...     rules = Rules(
        ...         state={"place": 0},
        ...         observation_spec=BoundedArraySpec((), np.int32, 0, 20),
        ...         action_spec=BoundedArraySpec((), np.int64, 0, 2),
        ...         reset=reset,
        ...         step=step,
        ...         observe=observe,
        ...     )
        >>> check_rules(Walk, steps=50)  # doctest: +SKIP
    """
    cls = rules if isinstance(rules, type) else _environment_of(rules)
    plain, native = (
        cls(batch_size, seed=seed, compiled=compiled, bounds_checked=compiled)
        for compiled in (False, True)
    )
    rng = np.random.default_rng(seed)
    spec = plain.action_spec()
    actions = None
    for step in range(steps + 1):
        if actions is None:
            time_steps = [plain.reset(), native.reset()]
        else:
            time_steps = [env.step(actions) for env in (plain, native)]
        check_fits(
            time_steps[0].observation,
            plain.observation_spec(),
            subject=f"After {step} steps observe() of {cls.__name__} wrote what",
            root="observation",
            outer_dims=(batch_size,),
        )
        _compare(cls.__name__, step, actions, (plain, native), time_steps)
        actions = sample_spec_nest(spec, rng, (batch_size,))


def _environment_of(rules: Rules) -> Any:
    return type("Rules", (CompiledEnvironment,), {"rules": rules})


def _compare(name: str, step: int, actions: Any, envs: Any, time_steps: Any) -> None:
    ours, theirs = map(_parts, envs, time_steps)
    for (where, one), (_, other) in zip(ours, theirs, strict=True):
        rows = _rows_that_differ(one, other)
        if not rows.size:
            continue
        row = int(rows[0])
        places = np.argwhere(np.atleast_1d(one[row] != other[row]))
        at = places[0].tolist() if np.ndim(one[row]) and len(places) else []
        index = f"[{', '.join(map(str, at))}]" if at else ""
        first, second = (np.asarray(each[row])[tuple(at)] for each in (one, other))
        done = "reset()" if actions is None else f"the action {actions[row]!s}"
        told = RulesDiffer(
            f"{name} computes {where}{index} as {first!s} in plain Python and as "
            f"{second!s} when it is compiled: row {row}, step {step}, after {done}.\n\n"
            f"{_ADVICE}"
        )
        told.row, told.step, told.where = row, step, where
        raise told


def _parts(env: Any, time_step: Any) -> Iterator[tuple[str, Array]]:
    """Yields everything that may differ, causes before their consequences."""
    states = env._states
    for name in env.rules.state:
        yield f"state.{name}", states[name]
    yield "the random numbers", env._streams.positions
    yield "the reward", time_step.reward
    yield "terminated", env._terminated
    yield "truncated", env._truncated
    for path, leaf in nest.flatten_with_paths(time_step.observation):
        yield f"the observation{path}", leaf
    yield "the step type", time_step.step_type
    yield "the discount", time_step.discount


def _rows_that_differ(one: Array, other: Array) -> Array:
    """Returns the rows whose bytes differ; NaN equals itself."""
    if one.dtype != other.dtype or one.shape != other.shape:
        raise RulesDiffer(
            f"One is {describe(one)} and the other {describe(other)}: that is a bug in "
            "envkit."
        )
    rows = len(one)
    sides = [
        np.ascontiguousarray(each).reshape(rows, -1).view(np.uint8)
        for each in (one, other)
    ]
    return np.flatnonzero((sides[0] != sides[1]).any(axis=1))
