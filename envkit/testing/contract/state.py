"""Promises about state: a token brings back everything, any time and anywhere."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.testing.contract.findings import Skipped, broken
from envkit.testing.contract.recording import (
    Recording,
    expect_same_stream,
    explain_difference,
    first_difference,
    snapshot,
)
from envkit.testing.contract.trial import Trial
from envkit.testing.contract.views import expect_unmoved
from envkit.time_step import StepType

__all__ = [
    "state",
    "state_after_first",
    "state_after_last",
    "state_garbage",
    "state_in_new_environment",
    "state_pickle",
    "state_stream",
    "state_time_step",
    "state_token",
]

_STEPS = 20
_FIX = (
    "_get_state() has to hold all that later steps depend on: counters, positions, "
    "and the state of the random generator."
)


def _get_state(env: Any) -> Any:
    try:
        return env.get_state()
    except NotImplementedError:
        raise Skipped("get_state() is not implemented", "state") from None


def _copied(token: Any) -> Any:
    """Copies a token at once, so that later steps cannot change it."""
    try:
        return copy.deepcopy(token)
    except Exception:
        return token


def _future(trial: Trial, env: Any) -> Recording:
    """Records what comes next; called at the same place, it should be the same."""
    return trial.record(env, _STEPS, actor=trial.actor(2), begin=False)


def _under_way(trial: Trial) -> Any:
    """Returns an environment in mid-episode, in all rows of a batch if that happens."""
    main, env = trial.main, trial.new()
    middles = [main.step_types(index) == StepType.MID for index in range(len(main))]
    for enough in (np.all, np.any):
        found = [index for index, rows in enumerate(middles) if enough(rows)]
        if found:
            # The third, where there is one: more has happened that could be forgotten.
            trial.record(env, found[:3][-1])
            return env
    trial.record(env, min(3, trial.horizon))
    return env


def state(trial: Trial) -> None:
    """Looks at whether set_state() brings back the middle of an episode."""
    _check_round_trip(trial, _under_way(trial), "in the middle of an episode")


def state_after_first(trial: Trial) -> None:
    """Looks at whether set_state() brings back the beginning of an episode."""
    env = trial.new()
    env.reset()
    _check_round_trip(trial, env, "right after reset()")


def state_after_last(trial: Trial) -> None:
    """Looks at whether set_state() brings back the end of an episode."""
    env = trial.new()
    trial.walk_to_last(env)
    _check_round_trip(trial, env, "right after LAST")


def _check_round_trip(trial: Trial, env: Any, where: str) -> None:
    token = _copied(_get_state(env))
    expected = _future(trial, env)
    # Twice, from different places: a counter that is not restored may happen to have
    # the right value once.
    for _ in range(2):
        env.set_state(_copied(token))
        expect_same_stream(
            expected,
            _future(trial, env),
            problem=f"A state taken {where} does not bring back what followed, in",
            advice=_FIX,
            labels=("at first", "after set_state()"),
        )
        trial.record(env, 1, begin=False)


def state_time_step(trial: Trial) -> None:
    """Looks at whether current_time_step() comes back with the state."""
    env = _under_way(trial)
    token = _copied(_get_state(env))
    expected = snapshot(env.current_time_step())
    _future(trial, env)
    env.set_state(token)
    difference = first_difference(expected, snapshot(env.current_time_step()))
    if difference is not None:
        raise explain_difference(
            "After set_state(), current_time_step() is not that of the state.",
            difference,
            "A policy acts on it next. Override _get_state() and _set_state(), and "
            "leave get_state() and set_state() to PyEnvironment, which keeps it.",
            ("when saved", "restored"),
        )


def state_stream(trial: Trial) -> None:
    """Looks at whether asking for the state leaves the episode alone."""
    expect_unmoved(trial, _get_state, "get_state()")


def state_token(trial: Trial) -> None:
    """Looks at whether later steps, and its own use, leave a token as it was."""
    env = _under_way(trial)
    token = _get_state(env)
    expected = _future(trial, env)
    for when in ("later steps", "set_state() and later steps"):
        env.set_state(token)
        expect_same_stream(
            expected,
            _future(trial, env),
            problem=f"A token of get_state() was changed by {when}; it no longer "
            "brings back what followed, in",
            advice="A token is a copy in both directions: copy.deepcopy what "
            "get_state() returns and what set_state() takes over.",
            labels=("at first", "after set_state()"),
        )


def state_pickle(trial: Trial) -> None:
    """Looks at whether a token pickles, and works when it comes back."""
    env = _under_way(trial)
    token = _get_state(env)
    try:
        packed = pickle.dumps(token)
        unpacked = pickle.loads(packed)
    except Exception as error:
        raise broken(
            f"A token of get_state() does not pickle: {type(error).__name__}.",
            [("expected", "bytes"), ("got", f"{error!s:.200}")],
            "Checkpoints and workers pickle it: keep plain data in it, arrays, numbers "
            "and rng.bit_generator.state, no open files and no lambdas.",
        ) from error
    expected = _future(trial, env)
    env.set_state(unpacked)
    expect_same_stream(
        expected,
        _future(trial, env),
        problem="A pickled state does not bring back what followed, in",
        advice="Something is lost on the way: look at __getstate__ and __reduce__ of "
        "what is in the token.",
        labels=("at first", "after set_state()"),
    )


def state_in_new_environment(trial: Trial) -> None:
    """Looks at whether another environment can go on from a state."""
    env = _under_way(trial)
    token = _copied(_get_state(env))
    expected = _future(trial, env)
    other = trial.make()
    other.set_state(token)
    expect_same_stream(
        expected,
        _future(trial, other),
        problem="A new environment does not go on from a state as the old one did, in",
        advice=_FIX,
        labels=("the old one", "a new one"),
    )


def state_garbage(trial: Trial) -> None:
    """Looks at whether set_state() refuses what is no token, and nothing moves then."""
    env = _under_way(trial)
    token = _copied(_get_state(env))
    expected = _future(trial, env)
    for garbage in (None, object(), "garbage"):
        env.set_state(_copied(token))
        _expect_refused(env.set_state, garbage)
        expect_same_stream(
            expected,
            _future(trial, env),
            problem="set_state() refused a value that is no state, and yet something "
            "changed, in",
            advice="Look at the value before taking anything over.",
            labels=("without", "after the error"),
        )


def _expect_refused(set_state: Callable[[Any], None], garbage: Any) -> None:
    try:
        set_state(garbage)
    except Exception:
        return
    raise broken(
        f"set_state() accepted {'None' if garbage is None else f'{garbage!r:.20}'}.",
        [("expected", "an exception"), ("got", "no exception")],
        "A wrong state is noticed long after, if at all. Override _set_state() and "
        "leave set_state() to PyEnvironment, which looks at what it is given.",
    )
