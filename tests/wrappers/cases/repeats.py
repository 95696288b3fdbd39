"""Wrappers that play actions again or later."""

from envkit.wrappers.repeats import (
    ActionRepeat,
    DelayAction,
    MaxAndSkipObservation,
    StickyAction,
)
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

CASES = [
    Case("action_repeat", lambda env: ActionRepeat(env, 3), ALL),
    Case("max_and_skip", lambda env: MaxAndSkipObservation(env, 3), ALL),
    Case("sticky_action", lambda env: StickyAction(env, 0.4), ALL),
    Case(
        "sticky_for_a_while",
        lambda env: StickyAction(env, 0.4, (1, 3)),
        ("catch", "drive"),
    ),
    Case("delay_action", lambda env: DelayAction(env, 2), ALL),
    Case("delay_action_0", lambda env: DelayAction(env, 0), ("drive",)),
]
