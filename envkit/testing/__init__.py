"""The public test kit: checkers, example environments, a clock, a fake backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
