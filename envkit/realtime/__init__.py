"""Real time: environments that go on while the agent thinks."""

from envkit.realtime.environment import RealTimeEnvironment
from envkit.realtime.report import LAG_SPEC, Lag
from envkit.realtime.schedule import OverrunError

__all__ = ["LAG_SPEC", "Lag", "OverrunError", "RealTimeEnvironment"]
