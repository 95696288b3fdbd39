"""Wrappers that decide how many steps an episode has."""

from envkit.wrappers.limits import FixedLength, TimeLimit
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

CASES = [
    Case("time_limit", lambda env: TimeLimit(env, 4), ALL),
    Case("time_limit_1", lambda env: TimeLimit(env, 1), ("catch", "drive")),
    Case("fixed_length", lambda env: FixedLength(env, 6), ALL),
]
