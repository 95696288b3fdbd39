"""An environment whose pictures are known, and that writes down what people do."""

from __future__ import annotations

import numpy as np

from envkit import PyEnvironment
from envkit.desktop import Events
from envkit.desktop.keys import KEYBOARD, KeyEvent, key_name
from envkit.specs import ArraySpec
from envkit.time_step import restart, transition
from tests.screens import picture_of

SIZE = (200, 120)
KEYS = [*KEYBOARD, "€", "ä", "KP_5", "KP_Enter", "KP_Add"]


def picture_after(count: int) -> np.ndarray:
    """Returns the picture after so many presses of keys."""
    return picture_of(1 + count, *SIZE, 9, 7)


class DrawnEvents(PyEnvironment):
    """Shows a picture that changes with each press, and appends events to a file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.actions = Events(KEYS, size=SIZE, limit=64, buttons=5)
        self._path = path
        self._presses = 0

    def observation_spec(self):
        width, height = SIZE
        return ArraySpec((height, width, 3), np.uint8)

    def action_spec(self):
        return self.actions.spec()

    def render(self, mode="rgb_array"):
        return picture_after(self._presses)

    def _reset(self):
        return restart(self.render())

    def _step(self, action):
        with open(self._path, "a", encoding="utf-8") as file:
            for event in self.actions.events(action):
                if isinstance(event, KeyEvent):
                    self._presses += event.down
                    way = "down" if event.down else "up"
                    print(key_name(event.key), way, file=file)
                else:
                    print(*event, file=file)
        return transition(self.render(), 0.0)
