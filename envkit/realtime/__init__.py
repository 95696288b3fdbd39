"""Real time: environments that continue while the agent thinks."""

from envkit.realtime.environment import RealTimeEnvironment
from envkit.realtime.joint import Joint
from envkit.realtime.loop import OverrunError
from envkit.realtime.pacing import Logger, Throttle, Timer, Timing
from envkit.realtime.report import LAG_SPEC, Lag
from envkit.realtime.universe import (
    BlockingReset,
    PeekReward,
    RowSpace,
    UniverseView,
    universe_view,
)

__all__ = [
    "LAG_SPEC",
    "BlockingReset",
    "Joint",
    "Lag",
    "Logger",
    "OverrunError",
    "PeekReward",
    "RealTimeEnvironment",
    "RowSpace",
    "Throttle",
    "Timer",
    "Timing",
    "UniverseView",
    "universe_view",
]
