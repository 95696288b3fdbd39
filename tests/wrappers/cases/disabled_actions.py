"""ExtraDisabledActionsWrapper."""

from typing import Any

from envkit.wrappers.actions import TransformAction
from envkit.wrappers.discrete_actions import ExtraDisabledActionsWrapper
from tests.wrappers.case import Case
from tests.wrappers.environments import BUILT_IN


def with_enabled_actions(env: Any) -> TransformAction:
    """Adds actions, and a spec for those who choose at random: without them."""
    wrapped = ExtraDisabledActionsWrapper(env, 3)
    return TransformAction(wrapped, lambda action: action, env.action_spec())


CASES = [
    Case("extra_disabled_actions", with_enabled_actions, (*BUILT_IN, "camera")),
]
