"""Wrappers between discrete actions and what environments take instead."""

from envkit.wrappers.actions.discrete import (
    ActionDiscretizeWrapper,
    OneHotActionWrapper,
)
from tests.wrappers.case import Case

BUILT_IN = ("bandit", "cartpole", "catch", "gridworld", "tictactoe")

CASES = [
    Case("discretize", lambda env: ActionDiscretizeWrapper(env, 5), ("wheel",)),
    Case(
        "discretize_unequally",
        lambda env: ActionDiscretizeWrapper(env, [2, 7]),
        ("wheel",),
    ),
    Case("one_hot", OneHotActionWrapper, (*BUILT_IN, "camera", "drive", "wheel")),
]
