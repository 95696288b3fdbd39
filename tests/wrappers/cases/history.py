"""The wrapper that shows the last observations and actions."""

from envkit.wrappers.history import HistoryWrapper
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

CASES = [
    Case("history", lambda env: HistoryWrapper(env, 3), ("cartpole", "drive")),
    Case(
        "history_of_actions",
        lambda env: HistoryWrapper(
            env, 2, include_actions=True, tile_first_step_obs=True
        ),
        ALL,
    ),
    Case(
        "history_of_1",
        lambda env: HistoryWrapper(env, 1, include_actions=True),
        ("catch",),
    ),
]
