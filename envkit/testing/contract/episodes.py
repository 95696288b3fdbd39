"""Promises about streams: `FIRST (MID)* LAST`, and time steps that fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.autoreset import AutoReset
from envkit.errors import SpecError
from envkit.specs.array_spec import BoundedArraySpec
from envkit.specs.validation import describe, explain
from envkit.testing.contract.findings import (
    Broken,
    Skipped,
    broken,
    name_of,
    raised,
    show,
)
from envkit.testing.contract.recording import (
    Recording,
    expect_same_stream,
    explain_difference,
    first_difference,
    snapshot,
)
from envkit.testing.contract.trial import Actor, Move, Trial, is_time_step
from envkit.time_step import StepType
from envkit.types import Array, NestedArray

__all__ = [
    "current_time_step",
    "discount",
    "first_discount",
    "first_reward",
    "first_step",
    "fits_specs",
    "grammar",
    "ignored_action",
    "plays",
    "reset",
    "reset_after_last",
    "reward",
    "step_after_last",
    "time_step",
]

_AUTO_RESET = "Pass handle_auto_reset=True to PyEnvironment.__init__, and it will."
_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_ADVICE = {
    AutoReset.NEXT_STEP: "The step after LAST begins the next episode and ignores its "
    f"action. {_AUTO_RESET}",
    AutoReset.SAME_STEP: "Under AutoReset.SAME_STEP the next episode has begun when "
    "step() returns a LAST: current_time_step() is its FIRST.",
    AutoReset.DISABLED: "Under AutoReset.DISABLED a row stays at its LAST until "
    "reset(mask) begins the next episode, and a step before that is an error.",
}


def time_step(trial: Trial) -> None:
    """Looks at whether every answer is a TimeStep with known step types."""
    main = trial.main
    if not main.results:
        raise Skipped("the first reset() returned nothing")
    for index, (call, result) in enumerate(zip(main.calls, main.results, strict=True)):
        if not is_time_step(result):
            raise broken(
                f"{call} returned {describe(result)}, not a TimeStep.",
                [
                    ("expected", "TimeStep(step_type, reward, discount, observation)"),
                    ("got", describe(result)),
                ],
                "Build it with envkit.restart, transition, termination or truncation.",
            )
        leaves = main.part(index, "step_type")
        shapes = [leaf.shape for _, leaf in leaves]
        if shapes != [trial.dims]:
            raise broken(
                f"{call} returned a step type of the wrong shape, in "
                f"{main.place(index)}.",
                [
                    ("expected", f"one array of shape {trial.dims}"),
                    ("got", " and ".join(show(leaf) for _, leaf in leaves) or "none"),
                ],
                "There is one step type for each row of a batch, and a scalar where "
                "there is no batch.",
            )
        for row, step_type in enumerate(leaves[0][1].reshape(-1).tolist()):
            if step_type not in (0, 1, 2):
                raise broken(
                    f"{call} returned the step type {step_type!r:.40} in "
                    f"{main.place(index, row)}.",
                    [
                        ("expected", "FIRST (0), MID (1) or LAST (2)"),
                        ("got", f"{step_type!r:.40}"),
                    ],
                    "Build time steps with envkit.restart, transition, termination or "
                    "truncation, which set the step type.",
                )


def plays(trial: Trial) -> None:
    """Looks at whether reset() and random actions within the spec raise nothing."""
    error = trial.main.error
    if error is None or _fails_after_last(trial):
        return
    text = str(raised(error))
    if not trial.main.results:
        raise Broken(f"{text}\n\nThis was the first reset().") from error
    text += f"\n\nThis came after {trial.main.place(len(trial.main) - 1)}."
    # What envkit says of a time step has nothing to do with the action.
    if not isinstance(error, SpecError):
        text += (
            " The actions were drawn from action_spec(); if not all of them are "
            "allowed at any time, pass action_fn=, which chooses them."
        )
    raise Broken(text) from error


def _fails_after_last(trial: Trial) -> bool:
    return bool(trial.main.error and trial.main.results and np.any(trial.ends[-1]))


def fits_specs(trial: Trial) -> None:
    """Looks at whether every time step has the structure, shapes, dtypes and bounds."""
    spec, main = trial.time_step_spec, trial.main
    if not main.results:
        raise Skipped("the first reset() returned nothing")
    for index, (call, result) in enumerate(zip(main.calls, main.results, strict=True)):
        if first_difference(main.copies[index], snapshot(result)) is not None:
            continue  # Overwritten since: that is for another check to say.
        text = explain(
            result,
            spec,
            subject=f"{call} returned a time step that",
            outer_dims=trial.dims,
        )
        if text is not None:
            raise Broken(f"{text}\nThis was {main.place(index)}.")


def reset(trial: Trial) -> None:
    """Looks at whether a reset begins an episode in every row, at any time."""
    env = trial.new()
    _expect_all_first(env.reset(), "The first reset()")
    if any(map(_has_mid, map(trial.main.step_types, range(len(trial.main))))):
        trial.walk(env, _has_mid)
    _expect_all_first(env.reset(), "A reset() in the middle of an episode")
    _expect_all_first(env.reset(), "A reset() right after another")


def _has_mid(step_types: Array) -> bool:
    return bool(np.any(step_types == StepType.MID))


def _expect_all_first(result: Any, subject: str) -> None:
    _expect_first(result, subject, np.ones(np.size(result.step_type), bool))


def _expect_first(result: Any, subject: str, rows: Array) -> None:
    """Raises unless the given rows of a time step are `FIRST`."""
    step_types = np.asarray(result.step_type).reshape(-1)
    wrong = np.flatnonzero(rows & (step_types != _FIRST))
    if wrong.size:
        row = f" in row {wrong[0]}" if np.ndim(result.step_type) else ""
        got = name_of(step_types[wrong[0]])
        raise broken(
            f"{subject} returned {got}{row}.",
            [("expected", "FIRST"), ("got", got)],
            "An episode begins with envkit.restart(observation).",
        )


def first_step(trial: Trial) -> None:
    """Looks at whether step() on a new environment begins an episode."""
    action = trial.first_action()
    result = trial.new().step(action)
    _expect_all_first(result, "step() before any reset()")


def grammar(trial: Trial) -> None:
    """Looks at whether every row goes FIRST (MID)* LAST and begins again only then."""
    main = trial.main
    for index in range(1, len(main)):
        before, now = main.step_types(index - 1), main.step_types(index)
        moved = main.moved(index)
        _check_stayed(main, index, ~moved)
        wrong = np.flatnonzero((before != _LAST) & (now == _FIRST) & moved)
        if not wrong.size:
            continue
        row = int(wrong[0])
        others = np.flatnonzero(before == _LAST)
        because = (
            f"Row {others[0]} had ended, and row {row} had not: begin an episode only "
            "in the rows that ended."
            if others.size
            else "An episode ends with LAST, so that a learner sees its end; return "
            "envkit.termination or envkit.truncation before the next FIRST."
        )
        raise broken(
            f"step() went from {name_of(before[row])} to FIRST, after "
            f"{main.place(index - 1, row)}.",
            [("expected", "MID or LAST"), ("got", "FIRST")],
            because,
        )


def _check_stayed(main: Recording, index: int, stayed: Array) -> None:
    """Raises if rows have moved with a call in which only others begin an episode."""
    for row in np.flatnonzero(stayed).tolist():
        pair = [
            tuple((path, leaf[row, ...]) for path, leaf in main.copies[at])
            for at in (index - 1, index)
        ]
        difference = first_difference(*pair)
        if difference is not None:
            raise explain_difference(
                f"{main.calls[index]} of rows that had ended changed row {row}, after "
                f"{main.place(index - 1, row)}.",
                difference,
                "Its episode had not ended: it stays where it is until its next step.",
                ("before", "after"),
            )


def step_after_last(trial: Trial) -> None:
    """Looks at whether the next episode of a row begins after LAST, as its order says.

    That is with the next step, with the step itself, or when it is told.
    """
    main = trial.main
    if _fails_after_last(trial):
        place = main.place(len(main) - 1, int(np.argmax(trial.ends[-1])))
        error = main.error
        assert error is not None  # _fails_after_last says so
        # What PyEnvironment raises itself says what to do.
        advice = "" if isinstance(error, NotImplementedError) else f" {_AUTO_RESET}"
        raise Broken(
            f"{raised(error)}\n\nThis was the step after LAST, after {place}. It "
            f"begins the next episode and ignores its action.{advice}"
        ) from error
    trial.need_end()
    # One that pads its episodes may repeat a LAST before it begins the next.
    allowed = {_FIRST, _LAST} if trial.repeats_last else {_FIRST}
    for index in range(1, len(main)):
        before, now = main.step_types(index - 1), main.step_types(index)
        wrong = np.flatnonzero((before == _LAST) & ~np.isin(now, list(allowed)))
        if wrong.size:
            row = int(wrong[0])
            raise broken(
                f"{main.calls[index]} after LAST returned {name_of(now[row])}, after "
                f"{main.place(index - 1, row)}.",
                [("expected", "FIRST"), ("got", name_of(now[row]))],
                _ADVICE[trial.order],
            )
    if trial.order is AutoReset.DISABLED:
        _check_waits(trial)


def _check_waits(trial: Trial) -> None:
    """Looks at whether a step at the end of an episode is refused, until a reset."""
    env = trial.new()
    trial.walk_to_last(env)
    before = env.current_time_step()
    if trial.repeats_last:
        return  # The row may have steps left that only pad.
    try:
        env.step(trial.actor(1)(before))
    except Exception:
        difference = first_difference(
            snapshot(before), snapshot(env.current_time_step())
        )
        if difference is None:
            return
        raise explain_difference(
            "step() at the end of an episode was refused, and yet something moved.",
            difference,
            _ADVICE[AutoReset.DISABLED],
            ("before", "after the error"),
        ) from None
    raise broken(
        "step() at the end of an episode was not refused.",
        [("expected", "CallOrderError"), ("got", "a TimeStep")],
        _ADVICE[AutoReset.DISABLED],
    )


def reset_after_last(trial: Trial) -> None:
    """Looks at whether a reset after LAST begins one episode, and not two."""
    env = trial.new()
    trial.walk_to_last(env)
    result = env.reset()
    _expect_all_first(result, "reset() after LAST")
    after = env.step(trial.actor()(result))
    again = np.flatnonzero(np.asarray(after.step_type).reshape(-1) == _FIRST)
    if again.size:
        row = f" in row {again[0]}" if trial.dims else ""
        raise broken(
            f"The first step after reset() returned another FIRST{row}.",
            [("expected", "MID or LAST"), ("got", "FIRST")],
            "The environment remembers that an episode had ended although reset() has "
            "begun another: clear that flag in _reset(). The agent's first action was "
            "lost.",
        )


def first_reward(trial: Trial) -> None:
    """Looks at whether the reward of a FIRST is 0."""
    _expect_in_first(
        trial,
        "reward",
        0,
        "Nothing was done yet that could earn something: the reward of the last action "
        "belongs to LAST. envkit.restart(observation) sets it to 0.",
    )


def first_discount(trial: Trial) -> None:
    """Looks at whether the discount of a FIRST is 1."""
    _expect_in_first(
        trial,
        "discount",
        1,
        "envkit.restart(observation) sets it to 1.",
    )


def _expect_in_first(trial: Trial, part: str, value: int, advice: str) -> None:
    main = trial.main
    for index in range(len(main)):
        first = main.step_types(index) == _FIRST
        for path, leaf in main.part(index, part):
            rows = leaf.reshape(len(first), leaf.size // len(first))
            wrong = np.flatnonzero(first & (rows != value).any(axis=1))
            if wrong.size:
                row = int(wrong[0])
                raise broken(
                    f"A FIRST came with another {part} than {value}, in "
                    f"{main.place(index, row)}.",
                    [
                        ("expected", f"{path} = {value}"),
                        ("got", f"{path} = {show(leaf[row] if trial.dims else leaf)}"),
                    ],
                    advice,
                )


def discount(trial: Trial) -> None:
    """Looks at whether discounts lie in [0, 1] where the spec does not bound them."""
    specs = dict(nest.flatten_with_paths(trial.time_step_spec.discount))
    main = trial.main
    for index in range(len(main)):
        for path, leaf in main.part(index, "discount"):
            bounded = isinstance(
                specs.get(path.removeprefix("discount")), BoundedArraySpec
            )
            outside = np.argwhere(~((leaf >= 0) & (leaf <= 1)))
            if len(outside) and not bounded:
                row = int(outside[0][0]) if trial.dims else 0
                raise broken(
                    f"A discount is not between 0 and 1, in {main.place(index, row)}.",
                    [
                        ("expected", f"0 <= {path} <= 1"),
                        ("got", f"{path} = {leaf[tuple(outside[0])]}"),
                    ],
                    "It is 0 after a termination, and what later rewards are worth "
                    "otherwise. If other values are meant, say so in discount_spec().",
                )


def reward(trial: Trial) -> None:
    """Looks at whether rewards are numbers that can be added up."""
    main = trial.main
    for index in range(len(main)):
        for path, leaf in main.part(index, "reward"):
            if leaf.dtype.kind not in "fc" or np.isfinite(leaf).all():
                continue
            place = np.argwhere(~np.isfinite(leaf))[0]
            row = int(place[0]) if trial.dims else 0
            raise broken(
                f"A reward is not finite, in {main.place(index, row)}.",
                [
                    ("expected", "a number"),
                    ("got", f"{path} = {leaf[tuple(place)]}"),
                ],
                "Every sum, mean and gradient that it comes into is lost. Where it was "
                "computed, numpy.seterr(all='raise') shows.",
            )


def current_time_step(trial: Trial) -> None:
    """Looks at whether the current time step is what the last call returned."""
    env = trial.new()
    try:
        early = env.current_time_step()
    except Exception:
        pass
    else:
        raise broken(
            "current_time_step() answered before the first reset().",
            [("expected", "CallOrderError"), ("got", describe(early))],
            "No episode has begun, so there is no time step: leave __init__ without a "
            "call of reset().",
        )
    current = Recording(trial.rows)

    def ask(move: Move) -> None:
        now = env.current_time_step()
        has_begun = trial.order is AutoReset.SAME_STEP and np.any(
            np.asarray(move.result.step_type) == _LAST
        )
        # Where that is the next episode, another check looks at it.
        current.add(move.call, move.result if has_begun else now)

    expect_same_stream(
        trial.record(env, after=ask),
        current,
        problem="current_time_step() is not what the call before it returned, in",
        advice="It is where the environment stands now: leave it to PyEnvironment.",
        labels=("returned", "current"),
    )


def ignored_action(trial: Trial) -> None:
    """Looks at whether a step that begins an episode ignores its action."""
    if not nest.flatten(trial.action_spec):
        raise Skipped("there is nothing in an action")
    trial.need_end()
    trial.need_repeatable()
    advice = "A step that begins an episode does what reset() does, and nothing else."
    actions = [trial.first_action(stream) for stream in (0, 1)]
    one, other = (trial.new().step(action) for action in actions)
    difference = first_difference(snapshot(one), snapshot(other))
    if difference is not None:
        raise explain_difference(
            "The first step of a new environment depends on its action.",
            difference,
            advice,
            ("one action", "another"),
        )
    expect_same_stream(
        trial.record(trial.new(), trial.past_end),
        trial.record(trial.new(), trial.past_end, actor=_other_after_last(trial)),
        problem="The action of the step after LAST makes a difference, in",
        advice=f"It was chosen for the episode before. {advice}",
        labels=("one action", "another"),
    )


def _other_after_last(trial: Trial) -> Actor:
    """Returns the usual policy, but with other actions where they should not count."""
    usual, other = trial.actor(), trial.actor(1)

    def act(time_step: Any) -> NestedArray:
        ended = np.asarray(time_step.step_type) == _LAST
        action, instead = usual(time_step), other(time_step)

        def pick(first: Any, second: Any) -> Array:
            rows = ended.reshape((*ended.shape, *[1] * (np.ndim(first) - ended.ndim)))
            return np.asarray(np.where(rows, second, first))

        return nest.map_structure(pick, action, instead)

    return act
