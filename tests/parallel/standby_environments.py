"""Environments for `StandbyEnvironment`, in a module that workers import quickly."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np

from envkit.testing.envs import CountingEnv


class Distant(CountingEnv):
    """Knows where it is, and what it was told."""

    level = 1

    def raised_by(self, number):
        self.level += number
        return os.getpid(), self.level

    def get_info(self):
        return {"level": self.level}

    def set_reset_options(self, options):
        self.level = options["level"]

    def render(self, mode="rgb_array"):
        return np.full((2, 2, 3), self.level, np.uint8)


class Dying(CountingEnv):
    """Raises or ends its process in the second reset of one of the two, once."""

    resets = 0

    def __init__(self, how, mark):
        super().__init__(1)
        self._how, self._mark = how, mark

    def _reset(self):
        self.resets += 1
        if self.resets == 2 and not self._mark.exists():
            self._mark.touch()
            if self._how == "raises":
                raise ValueError("The level is broken.")
            os._exit(3)
        return super()._reset()


class Gripping(CountingEnv):
    """Holds Python's lock in the first reset of the second, until a pipe is opened."""

    def __init__(self, mark, pipe):
        super().__init__(6)
        self._pipe = pipe if mark.exists() else None
        mark.touch()

    def _reset(self):
        if self._pipe:
            # A call of PyDLL does not let go of the lock.
            os.close(ctypes.PyDLL(None).open(os.fsencode(self._pipe), os.O_RDONLY))
            self._pipe = None
        return super()._reset()


class Alone(CountingEnv):
    """Must have a process of its own."""

    one_per_process = True


class Hanging(CountingEnv):
    """Never comes back from its second reset, if it is the second that is made."""

    def __init__(self, folder):
        super().__init__(1)
        self._number = len(list(folder.iterdir()))
        self._folder = folder
        (folder / str(os.getpid())).touch()

    def _reset(self):
        if self._number == 1:
            (self._folder / "hangs").touch()
            threading.Event().wait()
        return super()._reset()
