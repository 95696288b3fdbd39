"""`Plain`: an environment of Gymnasium whose numbers have the types they should."""

from __future__ import annotations

import gymnasium
import numpy as np


class Plain(gymnasium.Wrapper):
    """Returns numbers of the types that members of spaces, and rewards, have.

    Some environments have Python's integers where their spaces have NumPy's, some have
    NumPy's rewards, and some JAX's arrays.
    """

    def reset(self, **kwargs):
        observation, info = super().reset(**kwargs)
        return self._plain(observation), info

    def step(self, action):
        observation, reward, *others = super().step(action)
        return self._plain(observation), float(reward), *others

    def _plain(self, observation):
        if isinstance(observation, tuple):
            return tuple(np.int64(part) for part in observation)
        is_array = np.ndim(observation) > 0
        return np.asarray(observation) if is_array else np.int64(observation)
