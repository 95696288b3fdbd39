"""The public test kit: checkers, example environments, a clock, a fake backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.lazy_names import lazy_names
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
from envkit.testing.report import CheckFailed, EnvironmentReport, Outcome

if TYPE_CHECKING:
    from envkit.testing.backend import FakeBackend
    from envkit.testing.backend_checks import check_backend

# The engine is loaded by those who test it.
_HOMES = {
    "FakeBackend": "envkit.testing.backend",
    "check_backend": "envkit.testing.backend_checks",
}

__all__ = [
    "CheckFailed",
    "CountingEnv",
    "CrashingEnv",
    "EnvironmentReport",
    "EpisodeCountingEnv",
    "FakeBackend",
    "ManualClock",
    "NestedCountingEnv",
    "Outcome",
    "ScriptedEnv",
    "SlowEnv",
    "TracingEnv",
    "check_backend",
    "check_environment",
    "check_trace",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
