"""Plays a recording in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from envkit import nest
from envkit.play.game import number_text
from envkit.play.pictures import is_picture, observed_picture
from envkit.play.screen import open_screen
from envkit.play.shortcuts import WATCHING, Shortcuts
from envkit.recording.stored import Episode, Recording
from envkit.types import Array

__all__ = [
    "StepPicture",
    "Viewing",
    "kept_pictures",
    "observed_pictures",
    "pictures_of",
    "view",
]

# Returns the picture of a time step of an episode.
StepPicture = Callable[[Episode, int], Array]


def pictures_of(recording: Recording) -> StepPicture | None:
    """Returns a function from time steps to pictures; `None` if there are none.

    They are the recording's own, or come from the notes or the infos, or else from the
    observation.
    """
    return kept_pictures(recording) or observed_pictures(recording)


def kept_pictures(recording: Recording) -> StepPicture | None:
    """Returns a function to a recording's own pictures, or those in notes or infos."""
    first = next(recording.episodes(), None)
    if first is None:
        return None
    for look in (_kept, _noted, _informed):
        try:
            look(first, 0)
        except LookupError:
            continue
        return look
    return None


def observed_pictures(recording: Recording) -> StepPicture | None:
    """Returns a function to the pictures in observations."""
    observed = observed_picture(recording.layout.time_step.template.observation)
    if observed is None or not recording.of_kind("episode"):
        return None
    return lambda episode, step: observed(episode.time_step(step).observation)


class Viewing:
    """Steps through the episodes of a recording, one time step at a time.

    Attributes:
        over: Whether the viewer has quit.
        paused: Whether the picture is paused.
        shortcuts: The keys.
    """

    def __init__(self, recording: Recording) -> None:
        """Begins with the first time step of the first episode."""
        self.over = False
        self.paused = False
        self.shortcuts = Shortcuts(WATCHING)
        self._recording = recording
        self._entries = recording.of_kind("episode")
        self._index, self._step = 0, 0
        self._episode: Episode = recording.load(self._entries[0])

    def press(self, key: str) -> None:
        """Handles a key."""
        meaning = self.shortcuts.of(key)
        if meaning == "quit":
            self.over = True
        elif meaning == "pause":
            if self._at_end:
                self._go_to(0)
            self.paused = not self.paused
        elif meaning == "forward":
            self.paused = True
            self._move(1)
        elif meaning == "back":
            self.paused = True
            self._move(-1)
        elif meaning == "next":
            self._go_to(min(self._index + 1, len(self._entries) - 1))
        elif meaning == "previous":
            # In the middle of an episode it starts over, as music players do.
            self._go_to(self._index if self._step else max(self._index - 1, 0))

    def tick(self) -> None:
        """Shows the next time step; stays at the last one."""
        if not self.paused:
            self._move(1)
            self.paused = self._at_end

    def scene(self, picture_of: StepPicture) -> Array:
        """Returns the picture of the current time step."""
        return picture_of(self._episode, self._step)

    def lines(self) -> tuple[str, str]:
        """Returns the lines below the picture."""
        episode, step = self._episode, self._step
        last = len(episode) - 1
        parts = [] if self._recording.batch_size is None else [f"row {episode.row}"]
        parts += [f"episode {episode.number}", f"step {step} of {last}"]
        parts.append(f"reward {number_text(episode.time_step(step).reward)}")
        if step:
            parts.append(f"action {_action_text(episode.action(step))}")
        if step == last:
            parts.append("the end" if self._at_end else "the last step")
        elif self.paused:
            parts.append("paused")
        return "   ".join(parts), self.shortcuts.text()

    @property
    def _at_end(self) -> bool:
        is_last = self._index == len(self._entries) - 1
        return is_last and self._step == len(self._episode) - 1

    def _move(self, steps: int) -> None:
        there = self._step + steps
        if 0 <= there < len(self._episode):
            self._step = there
        elif there < 0 and self._index > 0:
            self._go_to(self._index - 1)
            self._step = len(self._episode) - 1
        elif there > 0 and not self._at_end:
            self._go_to(self._index + 1)

    def _go_to(self, index: int) -> None:
        self._index, self._step = index, 0
        self._episode = self._recording.load(self._entries[index])


def _kept(episode: Episode, step: int) -> Array:
    picture = episode.picture(step)
    if picture is None:
        raise LookupError("There is no picture.")
    return picture


def _noted(episode: Episode, step: int) -> Array:
    return _picture_in(episode.annotations(step))


def _informed(episode: Episode, step: int) -> Array:
    return _picture_in(episode.info(step))


def _picture_in(values: Any) -> Array:
    for _, leaf in nest.flatten_with_paths(values):
        if is_picture(leaf):
            return leaf  # type: ignore[no-any-return]  # it is one
    raise LookupError("There is no picture.")


def _action_text(action: Any) -> str:
    text = number_text(action) if _is_numeric(action) else repr(action)
    return text if len(text) <= 30 else f"{text[:29]}…"


def _is_numeric(action: Any) -> bool:
    return all(
        getattr(getattr(leaf, "dtype", None), "kind", "") in tuple("biuf")
        for leaf in nest.flatten(action)
    )


def view(recording: Recording, picture_of: StepPicture, hz: float) -> None:
    """Shows `hz` time steps per second."""
    viewing = Viewing(recording)
    with open_screen() as screen:
        due = time.monotonic()
        while not viewing.over:
            screen.show(viewing.scene(picture_of), *viewing.lines())
            due = max(due + 1.0 / hz, time.monotonic())
            try:
                if viewing.paused:
                    keys = screen.pressed()
                else:
                    keys = screen.pressed(max(0.0, due - time.monotonic()))
            except EOFError:  # the terminal is closed
                return
            for key in keys:
                viewing.press(key)
            if not keys and time.monotonic() >= due:
                viewing.tick()
