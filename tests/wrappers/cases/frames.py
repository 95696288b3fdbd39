"""Wrappers that show earlier observations."""

from envkit.wrappers.history import DelayObservation, FrameStack
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

CASES = [
    Case("frame_stack", lambda env: FrameStack(env, 4), ALL),
    Case("frame_stack_1", lambda env: FrameStack(env, 1), ("catch",)),
    Case(
        "frame_stack_at_the_end",
        lambda env: FrameStack(env, 3, padding_type="zero", axis=-1),
        ("camera", "drive"),
    ),
    Case(
        "frame_stack_concatenated",
        lambda env: FrameStack(env, 2, axis=-1, concatenate=True),
        ("catch", "camera"),
    ),
    Case("delay", lambda env: DelayObservation(env, 2), ALL),
    Case("delay_0", lambda env: DelayObservation(env, 0), ("drive",)),
]
