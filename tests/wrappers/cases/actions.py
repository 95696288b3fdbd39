"""Wrappers that change actions and leave their structure as it is."""

from typing import Any

import numpy as np

from envkit import BoundedArraySpec
from envkit.wrappers.actions import (
    ActionClipWrapper,
    ActionOffsetWrapper,
    RescaleAction,
    TransformAction,
)
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL, BUILT_IN


def mirror(env: Any) -> TransformAction:
    """Numbers the actions of a built-in environment from the other end."""
    highest = int(env.action_spec().maximum)
    return TransformAction(env, lambda action: highest - action)


def halve(env: Any) -> TransformAction:
    """Takes a single number instead of the wheel's two."""

    def function(action: Any) -> Any:
        return np.stack([action / 2, action], axis=-1)

    return TransformAction(env, function, BoundedArraySpec((), np.float32, -1, 1))


def clip_wider(env: Any) -> TransformAction:
    """Clips actions of which many are out of bounds."""
    return TransformAction(
        ActionClipWrapper(env),
        lambda action: 3 * action - 2,
        env.action_spec(),
    )


CASES = [
    Case("transform_action", mirror, BUILT_IN),
    Case("transform_action_of_another_spec", halve, ("wheel",)),
    Case("action_clip", ActionClipWrapper, ALL),
    Case("action_clip_of_wider", clip_wider, ("catch", "wheel", "camera")),
    Case("rescale_action", RescaleAction, ("drive", "wheel")),
    Case("rescale_action_to", lambda env: RescaleAction(env, 0, [1, 5]), ("wheel",)),
    Case("action_offset", ActionOffsetWrapper, (*BUILT_IN, "camera")),
]
