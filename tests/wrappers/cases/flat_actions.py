"""FlattenActionWrapper."""

import numpy as np

from envkit.wrappers.flat_actions import FlattenActionWrapper
from tests.wrappers.case import Case
from tests.wrappers.environments import ENVIRONMENTS

CASES = [
    Case(
        "flatten_action",
        FlattenActionWrapper,
        tuple(name for name in ENVIRONMENTS if name != "drive"),
    ),
    Case(
        "flatten_action_as",
        lambda env: FlattenActionWrapper(env, np.float64),
        ("drive", "catch"),
    ),
]
