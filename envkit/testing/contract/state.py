"""Promises about state: a token brings back everything, at any time and anywhere."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np

from envkit.testing.contract.findings import Skipped, broken, refuses
from envkit.testing.contract.recording import (
    Rollout,
    expect_same,
    expect_same_stream,
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
    """Copies a token, so that later steps cannot change it."""
    try:
        return copy.deepcopy(token)
    except Exception:
        return token


def _future(trial: Trial, env: Any) -> Rollout:
    """Records the next steps; from the same state, they are the same."""
    return trial.record(env, _STEPS, actor=trial.actor(2), begin=False)


def _expect_future(
    trial: Trial,
    env: Any,
    expected: Rollout,
    problem: str,
    advice: str,
    labels: tuple[str, str] = ("at first", "after set_state()"),
) -> None:
    """Raises `Broken` unless the next steps are those of a recording."""
    expect_same_stream(
        expected, _future(trial, env), problem=problem, advice=advice, labels=labels
    )


def _under_way(trial: Trial) -> Any:
    """Returns an environment in mid-episode; in a batch, all rows if possible."""
    main, env = trial.main, trial.new()
    middles = [main.step_types(index) == StepType.MID for index in range(len(main))]
    for enough in (np.all, np.any):
        found = [index for index, rows in enumerate(middles) if enough(rows)]
        if found:
            # The third episode, if there is one, because its state holds more.
            trial.record(env, found[:3][-1])
            return env
    trial.record(env, min(3, trial.horizon))
    return env


def state(trial: Trial) -> None:
    """set_state() brings back the middle of an episode."""
    _check_round_trip(trial, _under_way(trial), "in the middle of an episode")


def state_after_first(trial: Trial) -> None:
    """set_state() brings back the beginning of an episode."""
    env = trial.new()
    env.reset()
    _check_round_trip(trial, env, "right after reset()")


def state_after_last(trial: Trial) -> None:
    """set_state() brings back the end of an episode."""
    env = trial.new()
    trial.walk_to_last(env)
    _check_round_trip(trial, env, "right after LAST")


def _check_round_trip(trial: Trial, env: Any, where: str) -> None:
    token = _copied(_get_state(env))
    expected = _future(trial, env)
    # Twice, from different positions, because a counter that is not restored may have
    # the right value once by chance.
    for _ in range(2):
        env.set_state(_copied(token))
        _expect_future(
            trial,
            env,
            expected,
            f"A state taken {where} does not bring back what followed, in",
            _FIX,
        )
        trial.record(env, 1, begin=False)


def state_time_step(trial: Trial) -> None:
    """set_state() brings back current_time_step()."""
    env = _under_way(trial)
    token = _copied(_get_state(env))
    expected = snapshot(env.current_time_step())
    _future(trial, env)
    env.set_state(token)
    expect_same(
        expected,
        snapshot(env.current_time_step()),
        "After set_state(), current_time_step() is not that of the state.",
        "A policy acts on it next. Override _get_state() and _set_state(), and leave "
        "get_state() and set_state() to PyEnvironment, which keeps it.",
        ("when saved", "restored"),
    )


def state_stream(trial: Trial) -> None:
    """get_state() changes nothing."""
    expect_unmoved(trial, _get_state, "get_state()")


def state_token(trial: Trial) -> None:
    """Later steps do not change a token of get_state()."""
    env = _under_way(trial)
    token = _get_state(env)
    expected = _future(trial, env)
    for when in ("later steps", "set_state() and later steps"):
        env.set_state(token)
        _expect_future(
            trial,
            env,
            expected,
            f"A token of get_state() was changed by {when}; it no longer brings back "
            "what followed, in",
            "A token is a copy in both directions: copy.deepcopy what get_state() "
            "returns and what set_state() takes over.",
        )


def state_pickle(trial: Trial) -> None:
    """A token pickles."""
    env = _under_way(trial)
    token = _get_state(env)
    try:
        unpickled = pickle.loads(pickle.dumps(token))
    except Exception as error:
        raise broken(
            f"A token of get_state() does not pickle: {type(error).__name__}.",
            "Checkpoints and workers pickle it: keep plain data in it, arrays, numbers "
            "and rng.bit_generator.state, no open files and no lambdas.",
            expected="bytes",
            got=f"{error!s:.200}",
        ) from error
    expected = _future(trial, env)
    env.set_state(unpickled)
    _expect_future(
        trial,
        env,
        expected,
        "A pickled state does not bring back what followed, in",
        "Pickling loses something: check __getstate__ and __reduce__ of the objects in "
        "the token.",
    )


def state_in_new_environment(trial: Trial) -> None:
    """Another environment can continue from a state."""
    env = _under_way(trial)
    token = _copied(_get_state(env))
    expected = _future(trial, env)
    other = trial.make()
    other.set_state(token)
    _expect_future(
        trial,
        other,
        expected,
        "A new environment does not go on from a state as the old one did, in",
        _FIX,
        ("the old one", "a new one"),
    )


def state_garbage(trial: Trial) -> None:
    """set_state() refuses anything but tokens, and nothing moves."""
    env = _under_way(trial)
    token = _copied(_get_state(env))
    expected = _future(trial, env)
    for garbage in (None, object(), "garbage"):
        env.set_state(_copied(token))
        if not refuses(env.set_state, garbage):
            raise broken(
                f"set_state() accepted {repr(garbage)[:20]}.",
                "A wrong state is noticed long after, if at all. Override _set_state() "
                "and leave set_state() to PyEnvironment, which looks at what it is "
                "given.",
                expected="an exception",
                got="no exception",
            )
        _expect_future(
            trial,
            env,
            expected,
            "set_state() refused a value that is not a state, and yet something "
            "changed, in",
            "Look at the value before taking anything over.",
            ("without", "after the error"),
        )
