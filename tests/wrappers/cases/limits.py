"""Wrappers that decide how many steps an episode has."""

from envkit.wrappers.limits import EpisodeLimit, FixedLength, TimeLimit
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

CASES = [
    Case("time_limit", lambda env: TimeLimit(env, 4), ALL, require=("render",)),
    Case("time_limit_1", lambda env: TimeLimit(env, 1), ("catch", "drive")),
    Case("time_limit_in_seconds", lambda env: TimeLimit(env, seconds=1e9), ALL),
    Case("episode_limit", lambda env: EpisodeLimit(env, 2), ALL),
    Case("fixed_length", lambda env: FixedLength(env, 6), ALL),
]
