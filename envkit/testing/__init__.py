"""The public test kit: a checker, example environments, faults, and a clock."""

from __future__ import annotations

from envkit.testing.checks import check_environment
from envkit.testing.clock import ManualClock
from envkit.testing.envs import (
    CountingEnv,
    CrashingEnv,
    EpisodeCountingEnv,
    NestedCountingEnv,
    ScriptedEnv,
    SlowEnv,
    TracingEnv,
    check_trace,
)
from envkit.testing.faults import Chaos, Fault, chaos
from envkit.testing.report import CheckFailed, EnvironmentReport, Outcome

__all__ = [
    "Chaos",
    "CheckFailed",
    "CountingEnv",
    "CrashingEnv",
    "EnvironmentReport",
    "EpisodeCountingEnv",
    "Fault",
    "ManualClock",
    "NestedCountingEnv",
    "Outcome",
    "ScriptedEnv",
    "SlowEnv",
    "TracingEnv",
    "chaos",
    "check_environment",
    "check_trace",
]
