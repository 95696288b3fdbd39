"""Pictures of what an agent of PySC2 sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["picture_of"]


def picture_of(observation: Any, layer: str) -> Array | None:
    """Draws the screen of an agent.

    Args:
        observation: PySC2's own.
        layer: Which layer of the screen is drawn where there are no colours.

    Returns:
        A picture of dtype uint8; `None` if the agent has no screen.
    """
    if not isinstance(observation, dict):
        return None
    if "rgb_screen" in observation:
        return np.asarray(observation["rgb_screen"]).astype(np.uint8)
    if "feature_screen" not in observation:
        return None
    from pysc2.lib import features

    feature = getattr(features.SCREEN_FEATURES, layer)
    plane = np.asarray(observation["feature_screen"])[feature.index]
    # Values that the game has come to know since have no colours.
    known = np.clip(plane, 0, feature.scale - 1)
    return np.array(feature.color(known), np.uint8)
