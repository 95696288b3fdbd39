"""Promises about render() and get_info(): they return, and change nothing."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import MissingDependencyError, SpecError
from envkit.extend import describe
from envkit.specs.environment_spec import DeclaredInfo, info_spec_of
from envkit.testing.contract.arrays import expect_undamaged, scribble
from envkit.testing.contract.findings import Broken, Skipped, broken
from envkit.testing.contract.recording import (
    Snapshot,
    expect_same,
    expect_same_stream,
    snapshot,
)
from envkit.testing.contract.trial import Move, Trial
from envkit.time_step import StepType

__all__ = [
    "expect_unmoved",
    "info",
    "info_kept",
    "info_spec",
    "info_stream",
    "render",
    "render_kept",
    "render_mode",
    "render_stream",
]

# The calls after which every check looks, because some pictures take long to draw.
_PICTURES = 10


def _now_and_then(look: Callable[[], Any]) -> Callable[[Move], None]:
    """Returns a function that looks after the first calls, and after each `LAST`."""
    calls = itertools.count()

    def after(move: Move) -> None:
        if next(calls) < _PICTURES or np.any(move.result.step_type == StepType.LAST):
            look()

    return after


def _render(env: Any) -> Any:
    try:
        return env.render("rgb_array")
    except NotImplementedError:
        raise Skipped("render() is not implemented", "render") from None
    except MissingDependencyError as error:
        raise Skipped(f"render() needs {error.package}", "render") from None


def _get_info(env: Any) -> Any:
    try:
        return env.get_info()
    except NotImplementedError:
        raise Skipped("get_info() is not implemented", "info") from None


def render(trial: Trial) -> None:
    """Rendering returns pictures."""
    env = trial.new()

    def look() -> None:
        picture = _render(env)
        if not _is_picture(picture, trial.dims):
            rows = f"{trial.rows}, " if trial.dims else ""
            raise broken(
                'render("rgb_array") did not return a picture.',
                "One picture for each row, colours last, values from 0 to 255."
                if trial.dims
                else "Colours last, values from 0 to 255.",
                expected=f"uint8 array of shape ({rows}height, width, 3)",
                got=describe(picture),
            )

    trial.record(env, after=_now_and_then(look))


def _is_picture(picture: Any, dims: tuple[int, ...]) -> bool:
    return (
        isinstance(picture, np.ndarray)
        and picture.dtype == np.uint8
        and picture.ndim == len(dims) + 3
        and picture.shape[-1] == 3
        and picture.shape[: len(dims)] == dims
    )


def render_mode(trial: Trial) -> None:
    """render() refuses unknown modes."""
    env = trial.new()
    env.reset()
    _render(env)
    try:
        picture = env.render("no such mode")
    except Exception:
        return
    raise broken(
        'render("no such mode") raised nothing.',
        "A mistyped mode should not go unnoticed: raise a NotImplementedError that "
        "lists the modes there are.",
        expected="an exception",
        got=describe(picture),
    )


def render_kept(trial: Trial) -> None:
    """A picture never changes."""
    _expect_kept(
        trial,
        _render,
        "Picture",
        "A video made of it would show one picture all the time: return a copy of the "
        "canvas.",
    )


def _expect_kept(
    trial: Trial, look: Callable[[Any], Any], what: str, advice: str
) -> None:
    env = trial.new()
    kept: list[tuple[Any, Snapshot]] = []

    def keep() -> None:
        returned = look(env)
        kept.append((returned, snapshot(returned)))

    trial.record(env, after=_now_and_then(keep))
    for number, (returned, copied) in enumerate(kept, 1):
        expect_same(
            copied,
            snapshot(returned),
            f"{what} {number} of {len(kept)} was overwritten later.",
            advice,
            ("returned", "now"),
        )


def render_stream(trial: Trial) -> None:
    """Rendering changes nothing."""
    expect_unmoved(trial, _render, "render()")


def info(trial: Trial) -> None:
    """get_info() returns an info that pickles."""
    env = trial.new()

    def look() -> None:
        answer = _get_info(env)
        try:
            pickle.loads(pickle.dumps(answer))
        except Exception as error:
            raise broken(
                f"The info of get_info() does not pickle: {type(error).__name__}.",
                "It travels between processes: keep plain data in it.",
                expected="bytes",
                got=f"{error!s:.200}",
            ) from error

    trial.record(env, after=_now_and_then(look))


def info_spec(trial: Trial) -> None:
    """An info has what the environment declares for it."""
    env = trial.new()
    try:
        spec = info_spec_of(env)
    except TypeError as error:
        raise Broken(str(error)) from error
    if not spec:
        raise Skipped("info_spec() declares nothing", "info_spec")
    declared = DeclaredInfo(spec)

    def look(move: Move) -> None:
        answer = _get_info(env)
        try:
            if trial.rows:
                declared.batch_values(answer, trial.rows)
            else:
                declared.values(answer)
        except SpecError as error:
            raise Broken(str(error)) from error

    trial.record(env, after=look)


def info_kept(trial: Trial) -> None:
    """An info never changes."""
    _expect_kept(
        trial,
        _info_nest,
        "Info",
        "A caller that keeps it would hold a later one instead: return a new one each "
        "time, with copies of arrays that are written to again.",
    )


def _info_nest(env: Any) -> Any:
    """Returns the info, as one leaf if its keys do not make a nest."""
    answer = _get_info(env)
    try:
        nest.flatten(answer)
    except (SpecError, TypeError):
        leaf = np.empty((), object)
        leaf[()] = answer
        return leaf
    return answer


def info_stream(trial: Trial) -> None:
    """get_info() changes nothing; neither does writing into an info."""
    expect_unmoved(trial, _get_info, "get_info()")
    env = trial.new()
    expect_undamaged(
        trial,
        _now_and_then(lambda: scribble(_info_nest(env))),
        "Writing into what get_info() returned",
        "An info belongs to the caller. Return copies of the arrays that the "
        "environment goes on working with: self._state.copy().",
        env=env,
    )


def expect_unmoved(trial: Trial, look: Callable[[Any], Any], call: str) -> None:
    """Raises `Broken` unless the stream is the same with and without looks."""
    env = trial.new()
    looked_at = trial.record(env, after=_now_and_then(lambda: look(env)))
    trial.need_repeatable()
    expect_same_stream(
        trial.reference,
        looked_at,
        problem=f"Calling {call} changes what comes later, in",
        advice="A look must change nothing. If it draws random numbers, give it a "
        "generator of its own.",
        labels=("without", "with"),
    )
