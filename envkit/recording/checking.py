"""Plays what was recorded once more, and compares every time step, bit for bit.

The recording says in which call each time step came, so the calls can be made again:
of a batch those of all its rows together, with those that were reset or left where
they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.errors import RecordingError, SpecError
from envkit.masked_rows import hand_options
from envkit.plain_data import PlainDataError, dumped, from_plain, to_plain
from envkit.recording.layout import EPISODE
from envkit.recording.stored import Entry, Episode, Recording
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["Difference", "Outcome", "check"]

# What happened between two calls.
_CALLS = {"seed", "seed_rows", "options", "set_state", "replaced"}
_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)


class Difference(NamedTuple):
    """The first place where it is not the same.

    Attributes:
        row: The row of the batch; `None` of a single environment.
        episode: The number of the episode.
        step: The number of the time step in it, 0 for the `FIRST`.
        place: Where in the time step.
        recorded: What was recorded.
        now: What came now.
    """

    row: int | None
    episode: int
    step: int
    place: str
    recorded: str
    now: str


class Outcome(NamedTuple):
    """What came of a check.

    Attributes:
        episodes: How many episodes were compared to their end.
        time_steps: How many time steps were compared.
        difference: The first difference; `None` if there is none.
        unchecked: Why some of it could not be compared; `None` if all was.
    """

    episodes: int
    time_steps: int
    difference: Difference | None = None
    unchecked: str | None = None


class _Row:
    """The time steps of one row, in the order of their calls."""

    def __init__(self, recording: Recording, row: int) -> None:
        self._recording = recording
        self._entries = [entry for entry in recording.entries if entry.row == row]
        self._row = row
        self._position = 0
        self.expected = 0
        self.episode: Episode | None = None
        self.is_whole = False
        self.index = 0
        # The number of the row's episode of which nothing is known.
        self.missing: int | None = None
        self._go_on()

    @property
    def call(self) -> int | None:
        """The number of the next call that moves it."""
        return None if self.episode is None else int(self.episode.calls[self.index])

    def advance(self) -> None:
        self.index += 1
        if self.episode is not None and self.index == len(self.episode):
            self._go_on()

    def _go_on(self) -> None:
        self.episode, self.index = None, 0
        if self._position == len(self._entries):
            return
        entry: Entry = self._entries[self._position]
        self._position += 1
        if entry.number != self.expected:
            self.missing = self.expected
        self.episode = self._recording.load(entry)
        self.is_whole = entry.kind == EPISODE
        self.expected = self.episode.last_number + 1


class _Player:
    """Makes the calls of a recording again."""

    def __init__(self, recording: Recording, env: Any) -> None:
        self.layout, self.env = recording.layout, env
        self.batched = recording.batch_size is not None
        rows = recording.batch_size or 1
        self.rows = [_Row(recording, row) for row in range(rows)]
        self.ended = np.zeros(rows, bool)
        self._has_options = False
        self._actions = [
            np.zeros((rows, *spec.shape), spec.dtype)
            for spec in self.layout.action.leaves
        ]

    def prepare(self, event: dict[str, Any]) -> None:
        """Seeds, or hands over options, as it was done before a call."""
        if event["event"] == "options":
            options, rows = from_plain(event["options"]), event["rows"]
            mask = None if rows is None else np.array(rows)
            hand_options(self.env, options, mask)
            self._has_options = True
        elif "seed" in event:
            self.env.seed(from_plain(event["seed"]))
        else:
            self.env._hand_seeds(event["rows"])

    def play(self, moving: list[int]) -> TimeStep:
        """Moves some rows as they were moved, and returns the time step."""
        try:
            return self._play(moving)
        finally:
            if self._has_options:
                self._has_options = False
                hand_options(self.env, None)

    def _play(self, moving: list[int]) -> TimeStep:
        firsts = np.zeros(len(self.rows), bool)
        moved = np.zeros(len(self.rows), bool)
        for row in moving:
            episode, index = self.rows[row].episode, self.rows[row].index
            moved[row] = True
            firsts[row] = int(episode.step_types[index]) == _FIRST  # type: ignore[union-attr]  # it moves
        if not self.batched:
            return self._play_one(bool(firsts[0]))
        ended, self.ended = self.ended, self.ended.copy()
        if (firsts == moved).all():
            whole = moved.all()
            return self.env.reset() if whole else self.env.reset(moved)  # type: ignore[no-any-return]
        actions = self._batch_of_actions(moving)
        if moved.all() and not (firsts & ~ended).any():
            return self.env.step(actions)  # type: ignore[no-any-return]
        return self.env.step_rows(actions, moved & ~firsts, firsts)  # type: ignore[no-any-return]

    def _play_one(self, is_first: bool) -> TimeStep:
        if is_first:
            return self.env.reset()  # type: ignore[no-any-return]
        row = self.rows[0]
        return self.env.step(row.episode.action(row.index))  # type: ignore[no-any-return, union-attr]

    def _batch_of_actions(self, moving: list[int]) -> Any:
        """Returns a batch of actions: those of rows that do not move are not used."""
        flat = {
            row: self.layout.action.flatten(
                self.rows[row].episode.action(self.rows[row].index)  # type: ignore[union-attr]
            )
            for row in moving
        }
        columns = []
        for leaf, default in enumerate(self._actions):
            values = [
                flat[row][leaf] if row in flat else default[row, ...]
                for row in range(len(self.rows))
            ]
            self._actions[leaf] = column = np.stack(values)
            columns.append(column)
        return self.layout.action.unflatten(columns)


def check(recording: Recording, env: Any) -> Outcome:
    """Plays a recording on an environment that is as it was, and compares.

    Args:
        recording: The recording.
        env: The environment, new and seeded as it was at first.
    """
    try:
        _check_specs(recording, env)
        player = _Player(recording, env)
        return _compared(recording, player)
    except _NotTheSameError as error:
        return Outcome(0, 0, error.difference)


class _NotTheSameError(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(difference)
        self.difference = difference


def _check_specs(recording: Recording, env: Any) -> None:
    layout = recording.layout
    size = env.batch_size if env.batched else None
    if size != recording.batch_size:
        raise RecordingError(
            f"The recording is of batch_size {recording.batch_size}, and the "
            f"environment has {size}."
        )
    for name, ours, theirs in (
        ("time_step_spec()", layout.time_step.template, env.time_step_spec()),
        ("action_spec()", layout.action.template, env.action_spec()),
    ):
        for path, recorded, now in _unequal_specs(ours, theirs):
            raise _NotTheSameError(
                Difference(None, 0, 0, nest.join(name, path), recorded, now)
            )


def _unequal_specs(ours: Any, theirs: Any) -> Iterator[tuple[Any, str, str]]:
    """Yields the places where a file has no room for what comes now."""
    recorded, now = nest.Structure(ours), nest.Structure(theirs)
    if recorded.paths != now.paths:
        yield "", nest.outline(ours), nest.outline(theirs)
        return
    for path, one, other in zip(
        recorded.paths, recorded.leaves, now.leaves, strict=True
    ):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            yield path, repr(one), repr(other)


def _events(recording: Recording) -> Iterator[dict[str, Any]]:
    return (event for event in recording.events if event["event"] in _CALLS)


def _compared(recording: Recording, player: _Player) -> Outcome:
    events = list(_events(recording))
    episodes = time_steps = 0
    while True:
        calls = [row.call for row in player.rows if row.call is not None]
        if not calls:
            return Outcome(episodes, time_steps, unchecked=_rest(recording, player))
        call = min(calls)
        why = _obstacle(recording, player, events, call)
        if why is not None:
            return Outcome(episodes, time_steps, unchecked=why)
        while events and events[0]["call"] <= call:
            player.prepare(events.pop(0))
        moving = [row for row, state in enumerate(player.rows) if state.call == call]
        now = player.play(moving)
        for row in moving:
            state = player.rows[row]
            difference = _difference(player, row, now)
            if difference is not None:
                return Outcome(episodes, time_steps, difference)
            time_steps += state.is_whole
            is_over = (
                state.episode is not None and state.index == len(state.episode) - 1
            )
            episodes += state.is_whole and is_over
            player.ended[row] = int(state.episode.step_types[state.index]) == _LAST  # type: ignore[union-attr]
            state.advance()


def _obstacle(
    recording: Recording, player: _Player, events: list[dict[str, Any]], call: int
) -> str | None:
    """Says why it cannot go on with a call; `None` if it can."""
    past = [one for one in events if one["call"] <= call]
    replaced = [one["row"] for one in past if one["event"] == "replaced"]
    if replaced:
        return (
            f"Then the environment of row {replaced[0]} was lost and replaced by a new "
            "one: what follows cannot be compared."
        )
    if any(one["event"] == "set_state" for one in past):
        return (
            "Then a state was set, which the recording does not hold: what follows "
            "cannot be compared."
        )
    begun = _begun(recording)
    for row, state in enumerate(player.rows):
        missing = state.missing
        if missing is None and state.call is None and state.expected != begun.get(row):
            missing = state.expected
        if missing is not None:
            return _unknown(player, row, missing)
    return None


def _rest(recording: Recording, player: _Player) -> str | None:
    """Says what there was besides that is not known; `None` if there was nothing."""
    begun = _begun(recording)
    for row, state in enumerate(player.rows):
        if begun.get(row, state.expected) != state.expected:
            return _unknown(player, row, state.expected)
    return None


def _begun(recording: Recording) -> dict[int, int]:
    """Returns how many episodes each row had, if the recording was closed."""
    last = recording.events[-1] if recording.events else {}
    return dict(enumerate(last.get("episodes", [])))


def _unknown(player: _Player, row: int, episode: int) -> str:
    of = f" of row {row}" if player.batched else ""
    return (
        f"Then nothing is known of episode {episode}{of}, and what follows depends on "
        "it."
    )


def _difference(player: _Player, row: int, now: TimeStep) -> Difference | None:
    """Returns the first leaf of a row that is not as it was."""
    state, layout = player.rows[row], player.layout
    episode, index = state.episode, state.index
    assert episode is not None
    where = (row if player.batched else None, episode.number, index)
    try:
        leaves = layout.time_step.flatten(now)
    except SpecError as error:
        return Difference(*where, "its structure", "that of its spec", str(error))
    if not state.is_whole:
        recorded = {"step_type": episode.step_types[index]}
    else:
        flat = layout.time_step.flatten(episode.time_step(index))
        recorded = dict(zip(layout.steps, flat, strict=True))
    for name, leaf in zip(layout.steps, leaves, strict=True):
        if name not in recorded:
            continue
        value = np.asarray(leaf)[row, ...] if player.batched else leaf
        texts = _unequal(np.asarray(recorded[name]), np.asarray(value))
        if texts is not None:
            place, ours, theirs = texts
            return Difference(*where, f"{name}{place}", ours, theirs)
    return None


def _unequal(ours: Array, theirs: Array) -> tuple[str, str, str] | None:
    """Returns where two arrays differ in a bit, and their values there."""
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return "", _looks(ours), _looks(theirs)
    if ours.dtype.hasobject:
        texts = [_as_text(array) for array in (ours, theirs)]
        return None if texts[0] == texts[1] else ("", texts[0], texts[1])
    if ours.tobytes() == theirs.tobytes():
        return None
    width = ours.dtype.itemsize
    bits = [
        np.frombuffer(array.tobytes(), np.uint8).reshape(-1, width)
        for array in (ours, theirs)
    ]
    first = int((bits[0] != bits[1]).any(1).argmax())
    index = np.unravel_index(first, ours.shape)
    place = f"[{', '.join(str(int(part)) for part in index)}]" if index else ""
    return place, _exact(ours[index]), _exact(theirs[index])


def _looks(array: Array) -> str:
    return f"array of shape {array.shape}, dtype {array.dtype}"


def _exact(value: Any) -> str:
    text = repr(value.item())
    # What looks the same and is not: nan of several kinds.
    return f"{text} (bytes {value.tobytes().hex()})" if text == "nan" else text


def _as_text(array: Array) -> str:
    try:
        return dumped(to_plain(array))
    except PlainDataError:
        return repr(array.tolist())
