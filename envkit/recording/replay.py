"""Plays a recording as an environment: `Replay`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from envkit.errors import RecordingEnded, RecordingError, SpecError
from envkit.extend import counted, describe
from envkit.losses import Loss
from envkit.provenance import dumped, to_plain
from envkit.py_environment import PyEnvironment
from envkit.recording.stored import Episode, Recording
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["Replay"]

_LAST = StepType.LAST
_FIRST = int(StepType.FIRST)
_STEP_TYPES = {int(one): one for one in (StepType.FIRST, StepType.MID, StepType.LAST)}


class Replay(PyEnvironment):
    """Plays the episodes of a recording one after the other, whatever the actions.

    `reset` begins the next episode, even in the middle of one. From a batch, it plays
    the chosen row, or one row after the other, as a single environment. An episode that
    was broken off ends with a truncation: its last time step becomes a `LAST` with its
    own reward and discount. One that has only a `FIRST` is left out. The end of one
    whose environment was lost is `repaired`, as it was when it was recorded.

    Example:
        >>> import tempfile
        >>> from envkit import make
        >>> from envkit.recording import Record
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Record(make("Bandit-v1", seed=1), folder + "/bandit") as env:
        ...         rewards = [float(env.step(1).reward) for _ in range(4)]
        ...     env = Replay(folder + "/bandit", actions="check")
        ...     rewards == [float(env.step(1).reward) for _ in range(4)]
        True
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Recording,
        *,
        row: int | None = None,
        episodes: Sequence[int] | None = None,
        actions: str = "ignore",
        at_end: str = "raise",
        pickle: bool = False,
    ) -> None:
        """Opens a recording.

        Args:
            path: The directory, or a `Recording`, which decides itself whether to read
                pickles.
            row: The row of a batch to play; `None` for all.
            episodes: The numbers of the episodes to play; `None` for all.
            actions: "ignore" ignores actions; "check" requires the recorded ones.
            at_end: After the last episode, "raise" raises `RecordingEnded`, and
                "repeat" starts over.
            pickle: Whether to read pickles, if there are any. That may run any code.
        """
        super().__init__()
        _check_choice("actions", actions, ("ignore", "check"))
        _check_choice("at_end", at_end, ("raise", "repeat"))
        if episodes is not None and not isinstance(episodes, Iterable):
            raise TypeError(
                f"episodes must be a list of numbers, got {describe(episodes)}."
            )
        if not isinstance(path, Recording):
            path = Recording(path, pickle=pickle)
        self._recording = path
        self._entries = [
            entry
            for entry in self._recording.of_kind("episode")
            if (row is None or entry.row == row)
            and (episodes is None or entry.number in episodes)
        ]
        if not self._entries:
            raise RecordingError(self._nothing_to_play(row, episodes))
        self._checks = actions == "check"
        self._repeats = at_end == "repeat"
        # The index of the next entry, and of the current one.
        self._next = 0
        self._index = -1
        # The current episode, once it has been read, and the current step in it.
        self._episode: Episode | None = None
        self._step_index = 0
        self._losses: list[Loss] = []

    def _nothing_to_play(self, row: Any, episodes: Any) -> str:
        found = self._recording.of_kind("episode")
        rows = sorted({entry.row for entry in found})
        asked = [
            f"{name}={value!r}"
            for name, value in (("row", row), ("episodes", episodes))
            if value is not None
        ]
        of = f" for {', '.join(asked)}" if asked else ""
        count = counted(len(found), "episode")
        what = f"{count}, of rows {rows}" if found else "none at all"
        return (
            f"The recording in {str(self._recording.path)!r} has no episode to play"
            f"{of}. It has {what}."
        )

    @property
    def recording(self) -> Recording:
        """The recording."""
        return self._recording

    @property
    def repeats_last(self) -> bool:
        """Whether a `LAST` may be repeated as padding."""
        return bool(self._recording.facts["repeats_last"])

    @property
    def remaining(self) -> int:
        """The number of episodes left before any is repeated."""
        return len(self._entries) - self._next

    @property
    def episode(self) -> int:
        """The number of the current episode."""
        return self._playing().number

    @property
    def row(self) -> int:
        """The row of the current episode in its batch; 0 for a single environment."""
        return self._playing().row

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._recording.layout.time_step.template.observation

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._recording.layout.action.template

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of the reward."""
        return self._recording.layout.time_step.template.reward

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of the discount."""
        return self._recording.layout.time_step.template.discount

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs that the environment declared for its info."""
        return self._recording.layout.info.template  # type: ignore[no-any-return]

    def get_info(self) -> Any:
        """Returns the info that was recorded with the current time step."""
        episode = self._playing()
        if not episode.has_info:
            raise NotImplementedError("The recording has no info.")
        return episode.info(self._step_index)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns the picture that was recorded with the current time step.

        Raises:
            NotImplementedError: It has none: `Record` writes some with `pictures=True`.
        """
        if mode != "rgb_array":
            raise NotImplementedError(
                f"Replay does not render {mode!r}; its only mode is 'rgb_array'."
            )
        picture = self._playing().picture(self._step_index)
        if picture is None:
            raise NotImplementedError(
                f"The recording in {str(self._recording.path)!r} has no picture of "
                "this time step: Record writes pictures with pictures=True."
            )
        return picture

    @property
    def repaired(self) -> Array:
        """True if the environment was lost on the way to the current time step."""
        return np.array(bool(self.current_losses()))

    def current_losses(self) -> dict[int, Loss]:
        """Returns the loss behind `repaired`, as that of row 0."""
        if self._index < 0:
            return {}
        episode = self._playing()
        is_over = self._step_index == len(episode) - 1
        loss = self._recording.loss_of(episode) if is_over else None
        return {} if loss is None else {0: loss._replace(row=0)}

    def losses(self) -> list[Loss]:
        """Returns the losses in what has been played since the last call."""
        losses, self._losses = self._losses, []
        return losses

    def annotations(self) -> dict[str, Any]:
        """Returns the notes about the current time step."""
        return self._playing().annotations(self._step_index)

    def recorded_action(self) -> NestedArray:
        """Returns the recorded action of the next step.

        It is `None` where the next step begins an episode.
        """
        episode = self._playing()
        if self._step_index + 1 >= len(episode):
            return None
        return episode.action(self._step_index + 1)

    def _playing(self) -> Episode:
        self.current_time_step()
        if self._episode is None:  # Because this is a copy.
            self._episode = self._recording.load(self._entries[self._index])
        return self._episode

    def _reset(self) -> TimeStep:
        for _ in range(len(self._entries) + 1):
            if self._next == len(self._entries):
                if not self._repeats:
                    break
                self._next = 0
            episode = self._recording.load(self._entries[self._next])
            self._index, self._next = self._next, self._next + 1
            if len(episode) > 1:
                self._episode, self._step_index = episode, 0
                return self._shown(episode, 0)
        raise RecordingEnded(
            f"All episodes of the recording in {str(self._recording.path)!r} have been "
            "played. Make another Replay, or one with at_end='repeat'."
        )

    def _step(self, action: NestedArray) -> TimeStep:
        episode = self._playing()
        step = self._step_index + 1
        if step == len(episode):
            return self._reset()
        if self._checks:
            self._compare(action, episode, step)
        self._step_index = step
        self._losses += self.current_losses().values()
        return self._shown(episode, step)

    def _shown(self, episode: Episode, step: int) -> TimeStep:
        time_step = episode.time_step(step)
        step_type = _STEP_TYPES[int(time_step.step_type)]
        if step == len(episode) - 1 and step_type != _LAST:
            step_type = _LAST
        return time_step._replace(step_type=step_type)

    def _compare(self, action: NestedArray, episode: Episode, step: int) -> None:
        layout = self._recording.layout
        expected = layout.action.flatten(episode.action(step))
        try:
            given = layout.action.flatten(action)
        except SpecError as error:
            raise SpecError(
                f"Replay.step() was given another structure: {error}"
            ) from None
        for name, ours, theirs in zip(layout.actions, expected, given, strict=True):
            if not _equal(ours, theirs):
                raise RecordingError(
                    f"Replay.step() was given another action than the recorded one, in "
                    f"episode {episode.number}, step {step}, at {name}.\n\n"
                    f"  recorded   {describe(np.asarray(ours))}\n"
                    f"  got        {describe(theirs)}\n\n"
                    "With actions='ignore' they are not compared."
                )

    def __getstate__(self) -> dict[str, Any]:
        # Without the episode, which is in its file.
        return {**self.__dict__, "_episode": None}

    def _get_state(self) -> Any:
        return {"next": self._next, "index": self._index, "step": self._step_index}

    def _set_state(self, state: Any) -> None:
        following, index, step = self._checked_state(state)
        # Read before anything changes, because the file may be broken.
        episode = None if index < 0 else self._recording.load(self._entries[index])
        if episode is not None and step >= len(episode):
            raise RecordingError(
                f"Replay.set_state() was given the state at step {step} of an episode "
                f"that has {len(episode)}. It takes what get_state() has returned of a "
                "Replay of the same recording."
            )
        self._next, self._index, self._step_index = following, index, step
        self._episode = episode

    def _checked_state(self, state: Any) -> tuple[int, int, int]:
        """Returns the three numbers of a state; raises if they do not fit."""
        count = len(self._entries)
        limits = {
            "next": (0, count),
            "index": (-1, count - 1),
            "step": (0, sys.maxsize),
        }
        numbers = []
        for name, (least, most) in limits.items():
            number = state.get(name) if isinstance(state, dict) else None
            if type(number) is not int or not least <= number <= most:
                raise RecordingError(
                    f"Replay.set_state() was given {describe(state)}, of which "
                    f"{name!r} is {describe(number)}. It takes what get_state() has "
                    "returned of a Replay of the same recording."
                )
            numbers.append(number)
        following, index, step = numbers
        return following, index, step


def _equal(recorded: Any, given: Any) -> bool:
    """True if an action has the recorded values, in any dtype."""
    ours, theirs = np.asarray(recorded), np.asarray(given)
    if ours.dtype.hasobject:
        try:
            return dumped(to_plain(ours)) == dumped(to_plain(given))
        except TypeError:
            return bool(ours[()] == given)
    if ours.shape != theirs.shape:
        return False
    nan = ours.dtype.kind in "fc" and theirs.dtype.kind in "fc"
    return bool(np.array_equal(ours, theirs, equal_nan=nan))


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(
            f"{name} must be {' or '.join(map(repr, choices))}, got {describe(value)}."
        )
