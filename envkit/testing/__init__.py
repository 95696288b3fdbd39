"""The public test kit: a checker for environments, example environments, a clock."""

from envkit.testing.checks import check_environment
from envkit.testing.clock import ManualClock
from envkit.testing.envs import (
    CountingEnv,
    CrashingEnv,
    EpisodeCountingEnv,
    NestedCountingEnv,
    ScriptedEnv,
    SlowEnv,
)
from envkit.testing.report import CheckFailed, EnvironmentReport, Outcome

__all__ = [
    "CheckFailed",
    "CountingEnv",
    "CrashingEnv",
    "EnvironmentReport",
    "EpisodeCountingEnv",
    "ManualClock",
    "NestedCountingEnv",
    "Outcome",
    "ScriptedEnv",
    "SlowEnv",
    "check_environment",
]
