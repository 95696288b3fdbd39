"""Promises about an environment as an object: made, asked for its specs, closed."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import numpy as np

from envkit import nest
from envkit.async_environment import AsyncEnvironment
from envkit.py_environment import PyEnvironment
from envkit.specs.array_spec import ArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.validation import describe
from envkit.testing.contract.findings import Broken, Skipped, broken, raised
from envkit.testing.contract.trial import Move, Trial, is_time_step
from envkit.wording import foreign

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

# How many moves are followed by a look at the specs: enough for a short episode.
_LOOKS = 30


def constructor(trial: Trial) -> None:
    """Looks at whether each call makes another object."""
    try:
        first = trial.make()
    except Exception as error:
        raise raised(error, "make_env()") from error
    try:
        second = trial.make()
    except Exception as error:
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
            [("expected", "an environment"), ("got", f"the class {first.__name__}")],
            f"Pass the class itself, or call it: {first.__name__}().",
        )
    if _missing_calls(first):
        # A forgotten return gives the same None twice, which is not the mistake.
        raise Skipped("what make_env() returns is no environment")
    if first is second:
        raise broken(
            f"make_env() returned the same {type(first).__name__} object twice.",
            [("expected", "two environments"), ("got", "one environment, two times")],
            "Make the environment inside the function, so that each call makes one.",
        )


def interface(trial: Trial) -> None:
    """Looks at whether the object has what an environment has."""
    env = trial.make()
    if isinstance(env, AsyncEnvironment):
        raise broken(
            f"{type(env).__name__} is an AsyncEnvironment.",
            [("expected", "a PyEnvironment"), ("got", "send() and recv()")],
            "Check envkit.Blocking(env): it gives it step() and reset().",
        )
    if env is None:
        raise broken(
            "make_env() returned None, which is no environment.",
            [("expected", "a PyEnvironment"), ("got", "None")],
            "Let the function end with the environment it has made: return env.",
        )
    missing = _missing_calls(env)
    missing += [name for name in ("batched", "batch_size") if not hasattr(env, name)]
    if missing:
        raise broken(
            f"make_env() returned {describe(env)}, which lacks what environments have.",
            [("expected", "a PyEnvironment"), ("missing", ", ".join(missing))],
            "Derive the class from envkit.PyEnvironment, or wrap the object.",
        )
    _check_template(env)
    _check_batch_size(env)


def _missing_calls(env: Any) -> list[str]:
    return [call for call in _CALLS if not callable(getattr(env, call, None))]


def _check_template(env: Any) -> None:
    """Catches what the base class refuses, if `__init__` forgets to call it."""
    if not isinstance(env, PyEnvironment):
        return
    refuses = PyEnvironment._refuse_overridden_template
    if type(env)._refuse_overridden_template is not refuses:
        return  # A pool, whose calls know masks.
    for owner in type(env).__mro__[: type(env).__mro__.index(PyEnvironment)]:
        for call in ("reset", "step"):
            if call in vars(owner) and "_takes_turns" not in vars(owner):
                raise broken(
                    f"{owner.__name__} overrides {call}().",
                    [("expected", f"_{call}()"), ("got", f"{call}()")],
                    f"{call}() belongs to PyEnvironment, which keeps the current time "
                    f"step there: rename it to _{call}().",
                )


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
            [("expected", expected), ("got", repr(size))],
            "Override both properties in a batched environment, and neither in a "
            "single one.",
        )


def specs(trial: Trial) -> None:
    """Looks at whether specs are nests of ArraySpecs, the same at every call."""
    env = trial.make()
    for name in ("observation", "action", "reward", "discount"):
        for path, leaf in nest.flatten_with_paths(getattr(env, f"{name}_spec")()):
            if not isinstance(leaf, ArraySpec):
                raise broken(
                    f"{nest.join(f'{name}_spec()', path)} is no ArraySpec.",
                    [
                        ("expected", "an ArraySpec"),
                        ("got", foreign(env) or describe(leaf)),
                    ],
                    "A spec is an ArraySpec or a BoundedArraySpec, or a nest of them.",
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
            f"{part}_spec() returned something else at {when}.",
            [
                ("first", f"{getattr(before, part)!r:.200}"),
                ("then", f"{getattr(now, part)!r:.200}"),
            ],
            f"{text} Whoever asked once goes on with what was answered: build the "
            "specs in __init__ and return them.",
        )


def _check_time_step_spec(env: Any) -> None:
    spec = env.time_step_spec()
    if not is_time_step(spec):
        raise broken(
            "time_step_spec() is no TimeStep.",
            [("expected", "a TimeStep of specs"), ("got", describe(spec))],
            "Leave time_step_spec() to PyEnvironment, which puts the specs together.",
        )
    said = EnvironmentSpec(
        spec.observation, env.action_spec(), spec.reward, spec.discount
    )
    difference = said.difference(EnvironmentSpec.of(env))
    if difference is not None:
        part, text = difference
        raise broken(
            f"time_step_spec() and {part}_spec() disagree.",
            [
                (f"time_step_spec().{part}", f"{getattr(spec, part)!r:.200}"),
                (f"{part}_spec()", f"{getattr(env, f'{part}_spec')()!r:.200}"),
            ],
            f"{text} Leave time_step_spec() to PyEnvironment, which puts the specs "
            "together.",
        )
    step_type = ArraySpec((), np.int32)
    if (spec.step_type.shape, spec.step_type.dtype) != ((), np.int32):
        raise broken(
            "time_step_spec() has another step type than all others.",
            [("expected", f"{step_type}"), ("got", f"{spec.step_type}")],
            "Leave time_step_spec() to PyEnvironment, which puts the specs together.",
        )


def stable_specs(trial: Trial) -> None:
    """Looks at whether playing changes the specs."""
    env = trial.new()
    before = EnvironmentSpec.of(env)
    calls = itertools.count()

    def compare(move: Move) -> None:
        steps = next(calls)
        if steps < _LOOKS:
            _expect_equal_specs(env, before, f"the first call after {steps} steps")

    trial.record(env, after=compare)
    _expect_equal_specs(env, before, f"the first call after {trial.horizon} steps")


def close(trial: Trial) -> None:
    """Looks at whether closing works at any time, twice, and for one object only."""
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
    except Exception as error:
        raise broken(
            f"The second close() raised {type(error).__name__}.",
            [("expected", "nothing happens"), ("got", f"{error!s:.200}")],
            "Whoever closes cannot know who has closed before: let close() return "
            "where there is nothing left to free.",
        ) from error
    if not trial.has_company:
        return
    try:
        other.step(trial.actor()(time_step))
    except Exception as error:
        raise broken(
            "Closing one environment broke another.",
            [
                ("expected", "step() of the other goes on"),
                ("got", f"{type(error).__name__}: {error!s:.200}"),
            ],
            "Free only what belongs to this object.",
        ) from error


def _check_context_manager(trial: Trial) -> None:
    env = trial.new()
    close, closed = env.close, []

    def count_and_close() -> None:
        closed.append(True)
        close()

    # An object with slots cannot be watched; leaving the block must work all the same.
    with contextlib.suppress(AttributeError):
        env.close = count_and_close
    watched = env.close is count_and_close
    with env as entered:
        entered_same = entered is env
    if not entered_same:
        raise broken(
            "`with` does not give the environment.",
            [("expected", "the environment itself"), ("got", describe(entered))],
            "End __enter__ with: return self.",
        )
    if watched and not closed:
        raise broken(
            "Leaving a `with` block does not close the environment.",
            [("expected", "one call of close()"), ("got", "none")],
            "Call self.close() in __exit__, or leave both methods to PyEnvironment.",
        )
