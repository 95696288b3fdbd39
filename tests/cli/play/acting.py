"""An environment with whatever actions a test wants."""

from __future__ import annotations

import numpy as np

from envkit import BoundedArraySpec
from envkit.testing import CountingEnv


class Acting(CountingEnv):
    """Takes the actions of a spec, and remembers the last one."""

    def __init__(self, spec, **told):
        super().__init__(steps_per_episode=3)
        self._spec = spec
        self.last = None
        for name, value in told.items():
            setattr(self, name, value)

    def action_spec(self):
        return self._spec

    def _step(self, action):
        self.last = action
        return super()._step(action)


def choice(count, first=0):
    return BoundedArraySpec((), np.int64, first, first + count - 1)
