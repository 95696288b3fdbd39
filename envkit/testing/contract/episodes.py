"""Promises about streams: `FIRST (MID)* LAST`, and time steps that fit their specs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.extend import describe
from envkit.specs.arrays import BoundedArraySpec
from envkit.specs.validation import explain
from envkit.testing.contract.findings import (
    Broken,
    Skipped,
    broken,
    raised,
    refuses,
)
from envkit.testing.contract.recording import (
    BEGINS,
    Rollout,
    expect_same,
    expect_same_stream,
    first_difference,
    row_of,
    snapshot,
)
from envkit.testing.contract.trial import Actor, Move, Trial, is_time_step
from envkit.time_step import AutoReset, StepType
from envkit.types import Array, NestedArray
from envkit.wrappers.findings import (
    AUTO_RESET,
    CONTINUES,
    after_last,
    bad_discount,
    bad_reward,
    first_with,
    name_of,
    not_first,
    show,
    too_early,
)

__all__ = [
    "current_time_step",
    "discount",
    "first_discount",
    "first_reward",
    "first_step",
    "fits_specs",
    "grammar",
    "ignored_action",
    "long_game",
    "plays",
    "reset",
    "reset_after_last",
    "reward",
    "step_after_last",
    "time_step",
]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_ADVICE = {
    AutoReset.NEXT_STEP: "The step after LAST must begin the next episode and ignore "
    f"its action. {AUTO_RESET}",
    AutoReset.SAME_STEP: "Under AutoReset.SAME_STEP the next episode has begun when "
    "step() returns a LAST: current_time_step() is its FIRST.",
    AutoReset.DISABLED: "Under AutoReset.DISABLED a row stays at its LAST until "
    "reset(mask) begins the next episode, and a step before that is an error.",
}


def time_step(trial: Trial) -> None:
    """Every call returns a TimeStep with a known step type."""
    main = _begun(trial)
    for index, (call, result) in enumerate(zip(main.calls, main.results, strict=True)):
        if not is_time_step(result):
            raise broken(
                f"{call} returned {describe(result)}, not a TimeStep.",
                "Build it with envkit.restart, transition, termination or truncation.",
                expected="TimeStep(step_type, reward, discount, observation)",
                got=describe(result),
            )
        leaves = main.part(index, "step_type")
        if [leaf.shape for _, leaf in leaves] != [trial.dims]:
            raise broken(
                f"{call} returned a step type of the wrong shape, in "
                f"{main.place(index)}.",
                "There is one step type for each row of a batch, and a scalar where "
                "there is no batch.",
                expected=f"one array of shape {trial.dims}",
                got=" and ".join(show(leaf) for _, leaf in leaves) or "none",
            )
        for row, step_type in enumerate(leaves[0][1].reshape(-1).tolist()):
            if step_type not in (0, 1, 2):
                raise broken(
                    f"{call} returned the step type {step_type!r:.40} in "
                    f"{main.place(index, row)}.",
                    "Build time steps with envkit.restart, transition, termination or "
                    "truncation, which set the step type.",
                    expected="FIRST (0), MID (1) or LAST (2)",
                    got=f"{step_type!r:.40}",
                )


def _begun(trial: Trial) -> Rollout:
    """Returns the usual recording; skips the check if it is empty."""
    if not trial.main.results:
        raise Skipped("the first reset() returned nothing")
    return trial.main


def plays(trial: Trial) -> None:
    """reset() and actions within the spec raise nothing."""
    error = trial.main.error
    if error is None or _fails_after_last(trial):
        return
    text = str(raised(error))
    if not trial.main.results:
        raise Broken(f"{text}\n\nThis was the first reset().") from error
    text += f"\n\nThis came after {trial.main.place(len(trial.main) - 1)}."
    # A SpecError concerns the time step, whatever the action was.
    if not isinstance(error, SpecError):
        text += (
            " The actions were drawn from action_spec(); if not all of them are "
            "allowed at any time, pass action_fn=, which chooses them."
        )
    raise Broken(text) from error


def _fails_after_last(trial: Trial) -> bool:
    return bool(trial.main.error and trial.main.results and np.any(trial.ends[-1]))


def fits_specs(trial: Trial) -> None:
    """Time steps have the structure, shapes, dtypes and bounds of the specs."""
    spec, main = trial.time_step_spec, _begun(trial)
    for index, (call, result) in enumerate(zip(main.calls, main.results, strict=True)):
        if first_difference(main.copies[index], snapshot(result)) is not None:
            continue  # overwritten since; `kept_results` reports that
        text = explain(
            result,
            spec,
            subject=f"{call} returned a time step that",
            outer_dims=trial.dims,
        )
        if text is not None:
            raise Broken(f"{text}\nThis was {main.place(index)}.")


def reset(trial: Trial) -> None:
    """Every reset begins an episode, at any time."""
    env = trial.new()
    _expect_first(env.reset(), "The first reset()")
    if any(map(_has_mid, map(trial.main.step_types, range(len(trial.main))))):
        trial.walk(env, _has_mid)
    _expect_first(env.reset(), "A reset() in the middle of an episode")
    _expect_first(env.reset(), "A reset() right after another")


def _has_mid(step_types: Array) -> bool:
    return bool(np.any(step_types == StepType.MID))


def _expect_first(result: Any, subject: str) -> None:
    """Raises `Broken` unless every row of a time step is `FIRST`."""
    step_types = np.asarray(result.step_type).reshape(-1)
    wrong = np.flatnonzero(step_types != _FIRST)
    if wrong.size:
        at = f" in row {wrong[0]}" if np.ndim(result.step_type) else ""
        raise Broken(not_first(subject, name_of(step_types[wrong[0]]), at).text)


def first_step(trial: Trial) -> None:
    """step() on a new environment begins an episode."""
    action = trial.first_action()
    _expect_first(trial.new().step(action), "step() before any reset()")


def grammar(trial: Trial) -> None:
    """Every row goes FIRST (MID)* LAST before the next FIRST."""
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
        ended = int(others[0]) if others.size else None
        place = main.place(index - 1, row)
        raise Broken(too_early("step()", name_of(before[row]), place, row, ended).text)


def _check_stayed(main: Rollout, index: int, stayed: Array) -> None:
    """Raises if rows moved in a call in which only other rows begin an episode."""
    for row in np.flatnonzero(stayed).tolist():
        expect_same(
            row_of(main.copies[index - 1], row),
            row_of(main.copies[index], row),
            f"{main.calls[index]} of rows that had ended changed row {row}, after "
            f"{main.place(index - 1, row)}.",
            "Its episode had not ended: it stays where it is until its next step.",
            ("before", "after"),
        )


def step_after_last(trial: Trial) -> None:
    """The step after LAST begins the next episode.

    In an order other than `NEXT_STEP`, the step itself begins it, or a reset of the
    row.
    """
    main = trial.main
    if _fails_after_last(trial):
        place = main.place(len(main) - 1, int(np.argmax(trial.ends[-1])))
        error = main.error
        assert error is not None  # _fails_after_last says so
        # The text of PyEnvironment's own error has its advice.
        advice = "" if isinstance(error, NotImplementedError) else f" {AUTO_RESET}"
        raise Broken(
            f"{raised(error)}\n\nThis was the step after LAST, after {place}. It "
            f"must begin the next episode and ignore its action.{advice}"
        ) from error
    trial.need_end()
    # An environment that pads its episodes may repeat a LAST before the next FIRST.
    allowed = {_FIRST, _LAST} if trial.repeats_last else {_FIRST}
    if trial.continues:
        _expect_no_first(trial)
        return
    for index in range(1, len(main)):
        before, now = main.step_types(index - 1), main.step_types(index)
        wrong = np.flatnonzero((before == _LAST) & ~np.isin(now, list(allowed)))
        if wrong.size:
            row = int(wrong[0])
            place, advice = main.place(index - 1, row), _ADVICE[trial.order]
            if _always_last(main):
                advice = f"{advice} {CONTINUES}"
            got = name_of(now[row])
            raise Broken(after_last(main.calls[index], got, place, advice).text)
    if trial.order is AutoReset.DISABLED:
        _check_waits(trial)


def _always_last(main: Rollout) -> bool:
    """Returns True if every step returned `LAST`."""
    types = [main.step_types(index) for index in range(1, len(main))]
    return all(np.all(one == _LAST) for one in types)


def _expect_no_first(trial: Trial) -> None:
    """Raises if a `FIRST` follows a `LAST` although the environment rules that out."""
    main = trial.main
    for index in range(1, len(main)):
        now, before = main.step_types(index), main.step_types(index - 1)
        begun = np.flatnonzero((before == _LAST) & (now == _FIRST))
        if begun.size:
            place = main.place(index - 1, int(begun[0]))
            raise broken(
                f"{main.calls[index]} after LAST returned FIRST, after {place}.",
                "continues_after_last is true, which says that the step after a LAST "
                "takes its action. Take that declaration out, or let _step() go on.",
                expected="MID or LAST",
                got="FIRST",
            )


def _check_waits(trial: Trial) -> None:
    """Raises unless a step at the end of an episode is refused until a reset."""
    env = trial.new()
    trial.walk_to_last(env)
    before = env.current_time_step()
    if trial.repeats_last:
        return  # the row may have padding steps left
    advice = _ADVICE[AutoReset.DISABLED]
    if not refuses(env.step, trial.actor(1)(before, env)):
        raise broken(
            "step() at the end of an episode was not refused.",
            advice,
            expected="CallOrderError",
            got="a TimeStep",
        )
    expect_same(
        snapshot(before),
        snapshot(env.current_time_step()),
        "step() at the end of an episode was refused, and yet something moved.",
        advice,
        ("before", "after the error"),
    )


def reset_after_last(trial: Trial) -> None:
    """reset() after LAST begins one episode, not two."""
    env = trial.new()
    trial.walk_to_last(env)
    result = env.reset()
    _expect_first(result, "reset() after LAST")
    after = env.step(trial.actor()(result, env))
    again = np.flatnonzero(np.asarray(after.step_type).reshape(-1) == _FIRST)
    if again.size:
        row = f" in row {again[0]}" if trial.dims else ""
        raise broken(
            f"The first step after reset() returned another FIRST{row}.",
            "The environment remembers that an episode had ended although reset() has "
            "begun another: clear that flag in _reset(). The agent's first action was "
            "lost.",
            expected="MID or LAST",
            got="FIRST",
        )


def long_game(trial: Trial) -> None:
    """Step types, dtypes, shapes and bounds hold for as long as `steps` says.

    The recording of the other checks ends after a few episodes. This game continues,
    and keeps nothing.
    """
    if len(trial.main) > trial.steps:
        return  # the other checks have checked as many steps, more closely
    form = _Form(trial)
    moves = trial.play(trial.new(), trial.actor())
    # As after a LAST in every row, because the first reset begins an episode.
    before: Array = np.full(trial.dims or (1,), StepType.LAST)
    for number in range(trial.steps + 1):
        place = f"This was step {number} after the first reset()."
        try:
            move = next(moves)
        except Exception as error:
            raise Broken(f"{raised(error)}\n\n{place}") from error
        form.expect(move, place)
        # A copy, because the environment may write into the time step.
        now = np.array(move.result.step_type).reshape(-1)
        if trial.continues:
            before = np.where(before == _LAST, StepType.MID, before)
            before = before if number else np.full_like(before, _LAST)
        _expect_order(move, before, now, place, pads=trial.repeats_last)
        before = now


class _Form:
    """Compares time steps with their spec, quickly as long as they fit."""

    def __init__(self, trial: Trial) -> None:
        self._spec, self._dims = trial.time_step_spec, trial.dims
        self._structure = nest.Structure(self._spec)
        self._arrays = [
            (leaf, (*self._dims, *leaf.shape)) for leaf in self._structure.leaves
        ]

    def expect(self, move: Move, place: str) -> None:
        """Raises `Broken` unless a time step fits its spec."""
        if self._fits(move.result):
            return
        text = explain(
            move.result,
            self._spec,
            subject=f"{move.call} returned a time step that",
            outer_dims=self._dims,
        )
        if text is not None:
            raise Broken(f"{text}\n{place}")

    def _fits(self, result: Any) -> bool:
        try:
            leaves = self._structure.flatten(result)
        except SpecError:
            return False
        return all(
            isinstance(leaf, np.ndarray)
            and (leaf.dtype, leaf.shape) == (spec.dtype, shape)
            and _within_bounds(leaf, spec)
            for leaf, (spec, shape) in zip(leaves, self._arrays, strict=True)
        )


def _within_bounds(leaf: Array, spec: Any) -> bool:
    if not isinstance(spec, BoundedArraySpec):
        return True
    # False for NaN.
    return bool(((leaf >= spec.minimum) & (leaf <= spec.maximum)).all())


def _expect_order(
    move: Move, before: Array, now: Array, place: str, *, pads: bool
) -> None:
    known = (now >= StepType.FIRST) & (now <= StepType.LAST)
    ended, begun = before == StepType.LAST, now == StepType.FIRST
    if pads:
        ended = ended & (now != StepType.LAST)
    # A call of `BEGINS` moves only the rows that have ended.
    stayed = before == now if move.call in BEGINS.values() else False
    wrong = np.flatnonzero(~known | ((ended != begun) & ~np.asarray(stayed)))
    if not wrong.size:
        return
    row = wrong[0]
    at = f" in row {row}" if np.ndim(move.result.step_type) else ""
    names = name_of(before[row]), name_of(now[row])
    raise broken(
        f"{move.call} went from {names[0]} to {names[1]}{at}.",
        f"An episode begins after a LAST, and only there.\n{place}",
        expected="FIRST" if ended[row] else "MID or LAST",
        got=names[1],
    )


def first_reward(trial: Trial) -> None:
    """The reward of FIRST is 0."""
    _expect_in_first(trial, "reward", 0)


def first_discount(trial: Trial) -> None:
    """The discount of FIRST is 1."""
    _expect_in_first(trial, "discount", 1)


def _expect_in_first(trial: Trial, part: str, value: int) -> None:
    main = trial.main
    for index, path, rows in _leaves(trial, part):
        differs = (rows != value).reshape(len(rows), -1).any(axis=1)
        wrong = np.flatnonzero(differs & (main.step_types(index) == _FIRST))
        if wrong.size:
            row = int(wrong[0])
            call, place = main.calls[index], main.place(index, row)
            raise Broken(first_with(call, part, value, path, rows[row], place).text)


def _leaves(trial: Trial, part: str) -> Iterator[tuple[int, str, Array]]:
    """Yields each leaf of one field of all time steps; the first dimension is rows."""
    for index in range(len(trial.main)):
        for path, leaf in trial.main.part(index, part):
            yield index, path, leaf if trial.dims else leaf[np.newaxis]


def discount(trial: Trial) -> None:
    """Discounts are between 0 and 1."""
    specs = dict(nest.flatten_with_paths(trial.time_step_spec.discount))
    for index, path, rows in _leaves(trial, "discount"):
        # The spec's bounds may allow more, and `fits_specs` checks them.
        if isinstance(specs.get(path.removeprefix("discount")), BoundedArraySpec):
            continue
        outside = np.argwhere(~((rows >= 0) & (rows <= 1)))
        if len(outside):
            row = int(outside[0][0])
            call, place = trial.main.calls[index], trial.main.place(index, row)
            raise Broken(bad_discount(call, path, rows[row], place).text)


def reward(trial: Trial) -> None:
    """Rewards are finite."""
    for index, path, rows in _leaves(trial, "reward"):
        if rows.dtype.kind not in "fc" or np.isfinite(rows).all():
            continue
        row = int(np.argwhere(~np.isfinite(rows))[0][0])
        call, place = trial.main.calls[index], trial.main.place(index, row)
        raise Broken(bad_reward(call, path, rows[row], place).text)


def current_time_step(trial: Trial) -> None:
    """The current time step is the one that the last call returned."""
    env = trial.new()
    try:
        early = env.current_time_step()
    except Exception:
        pass
    else:
        raise broken(
            "current_time_step() answered before the first reset().",
            "No episode has begun, so there is no time step: leave __init__ without a "
            "call of reset().",
            expected="CallOrderError",
            got=describe(early),
        )
    current = Rollout(trial.rows)

    def ask(move: Move) -> None:
        now = env.current_time_step()
        has_begun = trial.order is AutoReset.SAME_STEP and np.any(
            np.asarray(move.result.step_type) == _LAST
        )
        # The next episode has begun then, and `step_after_last` checks that.
        current.add(move.call, move.result if has_begun else now)

    expect_same_stream(
        trial.record(env, after=ask),
        current,
        problem="current_time_step() is not the time step of the call before it, in",
        advice="It is where the environment stands now: leave it to PyEnvironment.",
        labels=("returned", "current"),
    )


def ignored_action(trial: Trial) -> None:
    """A step that begins an episode ignores its action."""
    if not nest.flatten(trial.action_spec):
        raise Skipped("there is nothing in an action")
    trial.need_end()
    trial.need_repeatable()
    advice = "A step that begins an episode does what reset() does, and nothing else."
    labels = "one action", "another"
    actions = [trial.first_action(stream) for stream in (0, 1)]
    one, other = (snapshot(trial.new().step(action)) for action in actions)
    expect_same(
        one,
        other,
        "The first step of a new environment depends on its action.",
        advice,
        labels,
    )
    if trial.continues:
        return  # here it is an action like any other
    expect_same_stream(
        trial.record(trial.new(), trial.past_end),
        trial.record(trial.new(), trial.past_end, actor=_other_after_last(trial)),
        problem="The action of the step after LAST makes a difference, in",
        advice=f"It was chosen for the episode before. {advice}",
        labels=labels,
        same_actions=False,
    )


def _other_after_last(trial: Trial) -> Actor:
    """Returns the usual policy, with different actions where they should not count."""
    usual, other = trial.actor(), trial.actor(1)

    def act(time_step: Any, env: Any) -> NestedArray:
        ended = np.asarray(time_step.step_type) == _LAST
        action, instead = usual(time_step, env), other(time_step, env)

        def pick(first: Any, second: Any) -> Array:
            rows = ended.reshape((*ended.shape, *[1] * (np.ndim(first) - ended.ndim)))
            return np.asarray(np.where(rows, second, first))

        return nest.map_structure(pick, action, instead)

    return act
