"""Promises about an environment as an object: its construction, its specs, its end."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import numpy as np

from envkit import nest
from envkit.async_environment import AsyncEnvironment
from envkit.extend import describe, foreign
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.testing.contract.findings import FAULTS, Broken, Skipped, broken, raised
from envkit.testing.contract.trial import Move, Trial, is_time_step

__all__ = ["close", "constructor", "interface", "specs", "stable_specs"]

_CALLS = (
    "action_spec",
    "close",
    "current_time_step",
    "discount_spec",
    "get_info",
    "get_state",
    "observation_spec",
    "render",
    "reset",
    "reward_spec",
    "seed",
    "set_state",
    "step",
    "time_step_spec",
)

# The moves after which specs are compared: enough for a short episode.
_MOVES_CHECKED = 30

_LEAVE_TIME_STEP_SPEC = (
    "Leave time_step_spec() to PyEnvironment, which puts the specs together."
)


def constructor(trial: Trial) -> None:
    """Each call makes another environment."""
    try:
        first, first_made = trial.make(), trial.made
    except FAULTS as error:
        raise raised(error, "make_env()") from error
    try:
        trial.make()
    except FAULTS as error:
        text = str(raised(error, "The second make_env()"))
        if trial.has_company:
            text += (
                "\n\nThe first environment was open. If a process may hold one at a "
                "time, let its property one_per_process return True; it is then closed "
                "before the next is made."
            )
        raise Broken(text) from error
    if isinstance(first, type):
        raise broken(
            f"make_env() returned the class {first.__name__}, not an environment.",
            f"Pass the class itself, or call it: {first.__name__}().",
            expected="an environment",
            got=f"the class {first.__name__}",
        )
    if _missing_calls(first):
        # A forgotten return gives the same None twice, which is not the mistake.
        raise Skipped("make_env() does not return an environment")
    if first_made is trial.made:
        raise broken(
            f"make_env() returned the same {type(first_made).__name__} object twice.",
            "Make the environment inside the function, so that each call makes one.",
            expected="two environments",
            got="one environment, two times",
        )


def interface(trial: Trial) -> None:
    """It has the methods of an environment."""
    env = trial.make()
    if isinstance(env, AsyncEnvironment):
        raise broken(
            f"{type(env).__name__} is an AsyncEnvironment.",
            "Check envkit.Blocking(env): it gives it step() and reset().",
            expected="a PyEnvironment",
            got="send() and recv()",
        )
    if env is None:
        raise broken(
            "make_env() returned None, not an environment.",
            "Let the function end with the environment it has made: return env.",
            expected="a PyEnvironment",
            got="None",
        )
    missing = _missing_calls(env)
    missing += [name for name in ("batched", "batch_size") if not hasattr(env, name)]
    if missing:
        raise broken(
            f"make_env() returned {describe(env)}, which lacks parts of an "
            "environment.",
            "Derive the class from envkit.PyEnvironment, or wrap the object.",
            expected="a PyEnvironment",
            missing=", ".join(missing),
        )
    _check_template(env)
    _check_batch_size(env)


def _missing_calls(env: Any) -> list[str]:
    return [call for call in _CALLS if not callable(getattr(env, call, None))]


def _check_template(env: Any) -> None:
    """Applies the base class's own checks, in case `__init__` does not call it."""
    if not isinstance(env, PyEnvironment):
        return
    try:
        PyEnvironment.__init__(env)
    except ValueError as error:
        problem, _, advice = str(error).partition("; ")
        raise broken(f"{problem}.", advice[:1].upper() + advice[1:]) from error


def _check_batch_size(env: Any) -> None:
    size = env.batch_size
    if env.batched:
        fits = isinstance(size, int | np.integer) and size > 0
        expected = "a positive int, because batched is true"
    else:
        fits = size is None
        expected = "None, because batched is false"
    if not fits:
        raise broken(
            f"batch_size is {size!r}, which does not go with batched.",
            "Override both properties in a batched environment, and neither in a "
            "single one.",
            expected=expected,
            got=repr(size),
        )


def specs(trial: Trial) -> None:
    """The specs are nests of ArraySpecs, the same at every call."""
    env = trial.make()
    for name in ("observation", "action", "reward", "discount"):
        for path, leaf in nest.flatten_with_paths(getattr(env, f"{name}_spec")()):
            if not isinstance(leaf, ArraySpec):
                raise broken(
                    f"{nest.join(f'{name}_spec()', path)} is not an ArraySpec.",
                    "A spec is an ArraySpec or a BoundedArraySpec, or a nest of them.",
                    expected="an ArraySpec",
                    got=foreign(env) or describe(leaf),
                )
    before = EnvironmentSpec.of(env)
    _expect_equal_specs(env, before, "the next call")
    _check_time_step_spec(env)
    _expect_equal_specs(trial.make(), before, "the next environment")


def _expect_equal_specs(env: Any, before: EnvironmentSpec, when: str) -> None:
    now = EnvironmentSpec.of(env)
    difference = before.difference(now)
    if difference is not None:
        part, text = difference
        raise broken(
            f"{part}_spec() returned another spec at {when}.",
            f"{text} Callers ask once and keep the spec: build the specs in __init__ "
            "and return them.",
            first=f"{getattr(before, part)!r:.200}",
            then=f"{getattr(now, part)!r:.200}",
        )


def _check_time_step_spec(env: Any) -> None:
    spec = env.time_step_spec()
    if not is_time_step(spec):
        raise broken(
            "time_step_spec() did not return a TimeStep.",
            _LEAVE_TIME_STEP_SPEC,
            expected="a TimeStep of specs",
            got=describe(spec),
        )
    told = EnvironmentSpec(
        spec.observation, env.action_spec(), spec.reward, spec.discount
    )
    difference = told.difference(EnvironmentSpec.of(env))
    if difference is not None:
        part, text = difference
        facts = {
            f"time_step_spec().{part}": f"{getattr(spec, part)!r:.200}",
            f"{part}_spec()": f"{getattr(env, f'{part}_spec')()!r:.200}",
        }
        raise broken(
            f"time_step_spec() and {part}_spec() disagree.",
            f"{text} {_LEAVE_TIME_STEP_SPEC}",
            **facts,
        )
    step_type = ArraySpec((), np.int32)
    if (spec.step_type.shape, spec.step_type.dtype) != ((), np.int32):
        raise broken(
            "time_step_spec() has another step type than all others.",
            _LEAVE_TIME_STEP_SPEC,
            expected=f"{step_type}",
            got=f"{spec.step_type}",
        )


def stable_specs(trial: Trial) -> None:
    """Playing does not change the specs."""
    env = trial.new()
    before = EnvironmentSpec.of(env)
    calls = itertools.count()

    def compare(move: Move) -> None:
        steps = next(calls)
        if steps < _MOVES_CHECKED:
            _expect_equal_specs(env, before, f"the first call after {steps} steps")

    trial.record(env, after=compare)
    _expect_equal_specs(env, before, f"the first call after {trial.horizon} steps")


def close(trial: Trial) -> None:
    """An environment closes at any time, and twice."""
    trial.make().close()
    _check_context_manager(trial)
    env = trial.new()
    env.reset()
    if trial.has_company:
        other = trial.new()
        time_step = other.reset()
    env.close()
    try:
        env.close()
    except FAULTS as error:
        raise broken(
            f"The second close() raised {type(error).__name__}.",
            "A caller cannot know that the environment is closed already: let close() "
            "return where there is nothing left to free.",
            expected="nothing happens",
            got=f"{error!s:.200}",
        ) from error
    if not trial.has_company:
        return
    try:
        other.step(trial.actor()(time_step, other))
    except FAULTS as error:
        raise broken(
            "Closing one environment broke another.",
            "Free only what belongs to this object.",
            expected="step() of the other goes on",
            got=f"{type(error).__name__}: {error!s:.200}",
        ) from error


def _check_context_manager(trial: Trial) -> None:
    env = trial.new()
    close, closed = env.close, []

    def count_and_close() -> None:
        closed.append(True)
        close()

    # An object with slots cannot be watched; leaving the block must still work.
    with contextlib.suppress(AttributeError):
        env.close = count_and_close
    watched = env.close is count_and_close
    with env as entered:
        entered_same = entered is env
    if not entered_same:
        raise broken(
            "`with` does not give the environment.",
            "End __enter__ with: return self.",
            expected="the environment itself",
            got=describe(entered),
        )
    if watched and not closed:
        raise broken(
            "Leaving a `with` block does not close the environment.",
            "Call self.close() in __exit__, or leave both methods to PyEnvironment.",
            expected="one call of close()",
            got="none",
        )
