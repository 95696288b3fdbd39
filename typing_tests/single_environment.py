"""An environment of one's own."""

from __future__ import annotations

import numpy as np
from typing_extensions import assert_type

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    TimeStep,
    restart,
    termination,
    transition,
)
from envkit.types import NestedArray


class Countdown(PyEnvironment):
    """Counts down; an action says by how much."""

    def __init__(self, begin: int = 3) -> None:
        """Begins each episode with this number."""
        super().__init__(handle_auto_reset=True)
        self._begin = begin
        self._left = begin

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((), np.int64)

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 1, 2)

    def _reset(self) -> TimeStep:
        self._left = self._begin
        return restart(np.int64(self._left))

    def _step(self, action: NestedArray) -> TimeStep:
        self._left -= int(action)
        if self._left <= 0:
            return termination(np.int64(self._left), reward=1.0)
        return transition(np.int64(self._left), reward=0.0)


class Endless(Countdown):
    """Forgets to return a time step."""

    def _step(self, action: NestedArray) -> int:  # type: ignore[override]
        return 0


class Unfinished(PyEnvironment):
    """Does not say which actions it takes."""

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((), np.int64)


def main() -> None:
    """Plays an episode."""
    with Countdown(begin=5) as env:
        # The class is kept, and with it what the class adds.
        assert_type(env, Countdown)
        time_step = env.reset()
        while not time_step.is_last():
            time_step = env.step(2)
        assert_type(time_step, TimeStep)
        assert_type(env.current_time_step(), TimeStep)
        # A spec is as narrow as its author says.
        assert_type(env.action_spec(), BoundedArraySpec)
        assert_type(env.observation_spec().shape, tuple[int, ...])


def mistakes() -> None:
    """Does what mypy has to find."""
    Countdown(start=5)  # type: ignore[call-arg]
    Unfinished()  # type: ignore[abstract]
    Countdown().reset().observations  # type: ignore[attr-defined]  # noqa: B018


if __name__ == "__main__":
    main()
