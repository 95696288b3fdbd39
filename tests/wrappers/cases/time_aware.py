"""The wrapper that shows how far the episode has come."""

from envkit.wrappers.limits import TimeLimit
from envkit.wrappers.time_aware import TimeAwareObservation
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

CASES = [
    Case("time_aware", TimeAwareObservation, ALL),
    Case(
        "time_beside",
        lambda env: TimeAwareObservation(env, flatten=False),
        ("cartpole", "tictactoe", "drive", "camera"),
    ),
    Case(
        "time_normalized",
        lambda env: TimeAwareObservation(env, normalize_time=True, max_steps=5),
        ("cartpole", "drive"),
    ),
    Case(
        "time_limited",
        lambda env: TimeAwareObservation(
            TimeLimit(env, 4), flatten=False, normalize_time=True
        ),
        ("cartpole", "gridworld", "tictactoe"),
    ),
]
