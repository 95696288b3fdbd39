"""Environments that go on while the agent thinks."""

from __future__ import annotations

from typing_extensions import assert_type

from envkit import TimeStep
from envkit.envs import Catch
from envkit.realtime import Joint, Lag, RealTimeEnvironment, Throttle, Timer
from envkit.types import NestedArray


def opposite(tick: int, last: NestedArray) -> NestedArray:
    """Says what acts in a tick for which no action has come."""
    return 2 - last


def main() -> None:
    """Plays on a clock that only counts."""
    env = RealTimeEnvironment(
        Catch, hz=20.0, host="virtual", late_action=opposite, think_time=lambda: 0.12
    )
    assert_type(env, RealTimeEnvironment)
    assert_type(env.reset(), TimeStep)
    assert_type(env.step(2), TimeStep)
    assert_type(env.peek(), TimeStep)
    assert_type(env.lag(), Lag)
    assert_type(env.batched, bool)
    assert_type(Timer(Throttle(env, hz=1000)).step(1), TimeStep)
    assert_type(Joint([Catch(batch_size=2), Catch(batch_size=3)]).reset(), TimeStep)


def mistakes() -> None:
    """Does what mypy has to find."""
    RealTimeEnvironment(Catch, hz="20")  # type: ignore[arg-type]
    RealTimeEnvironment(Catch, 20.0, "virtual")  # type: ignore[call-arg]


if __name__ == "__main__":
    main()
