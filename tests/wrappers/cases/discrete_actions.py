"""Wrappers between discrete actions and what environments take instead."""

from envkit.wrappers.discrete_actions import (
    ActionDiscretizeWrapper,
    DiscretizeAction,
    OneHotActionWrapper,
)
from tests.wrappers.case import Case
from tests.wrappers.environments import BUILT_IN

CASES = [
    Case("discretize", lambda env: ActionDiscretizeWrapper(env, 5), ("wheel",)),
    Case(
        "discretize_unequally",
        lambda env: ActionDiscretizeWrapper(env, [2, 7]),
        ("wheel",),
    ),
    Case("discretize_action", lambda env: DiscretizeAction(env, 5), ("wheel",)),
    Case(
        "discretize_multi",
        lambda env: DiscretizeAction(env, (2, 7), multidiscrete=True),
        ("wheel",),
    ),
    Case("one_hot", OneHotActionWrapper, (*BUILT_IN, "camera", "drive", "wheel")),
]
