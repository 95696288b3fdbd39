"""The part of an observation that is for the model: `text_of`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from envkit.types import NestedArray

__all__ = ["TEXT", "text_of"]

# The key of the part that an environment shows to a model.
TEXT = "text"


def text_of(observation: NestedArray) -> str:
    """Returns the part of an observation that is for the model.

    It is the observation itself if that is text, and the entry `"text"` of a
    dictionary. Anything else is written out, which is good enough to look at.

    Example:
        >>> import numpy as np
        >>> text_of({"text": "A door.", "score": np.float32(3)}), text_of(np.arange(3))
        ('A door.', '[0 1 2]')
    """
    if isinstance(observation, Mapping) and TEXT in observation:
        observation = observation[TEXT]
    if isinstance(observation, np.ndarray) and not observation.shape:
        observation = observation[()]
    return str(observation)
