"""A wrapper that measures where an environment's time goes."""

from envkit.wrappers.profiling import PerformanceProfiler
from tests.wrappers.case import Case
from tests.wrappers.environments import ENVIRONMENTS


def throw_away(profile):
    pass


CASES = [
    Case(
        "performance_profiler",
        lambda env: PerformanceProfiler(env, throw_away, process_steps=7),
        tuple(ENVIRONMENTS),
    )
]
