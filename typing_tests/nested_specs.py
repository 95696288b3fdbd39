"""Observations and actions that are nests."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    TimeStep,
    restart,
    transition,
)
from envkit.specs import sample_spec_nest


class Sight(TypedDict):
    """What the arm sees."""

    picture: npt.NDArray[np.uint8]
    joints: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]


class Grip(TypedDict):
    """What the arm does."""

    speed: npt.NDArray[np.float32]
    is_open: npt.NDArray[np.bool_]


class Arm(PyEnvironment):
    """An arm with a camera."""

    def observation_spec(self) -> dict[str, ArraySpec | tuple[ArraySpec, ...]]:
        return {
            "picture": BoundedArraySpec((8, 8, 3), np.uint8, 0, 255),
            "joints": (ArraySpec((2,), np.float32), ArraySpec((3,), np.float32)),
        }

    def action_spec(self) -> dict[str, ArraySpec]:
        return {
            "speed": BoundedArraySpec((2,), np.float32, [-1.0, 0.0], [1.0, 2.0]),
            "is_open": ArraySpec((), np.bool_),
        }

    def look(self) -> Sight:
        """Returns what the arm sees."""
        return {
            "picture": np.zeros((8, 8, 3), np.uint8),
            "joints": (np.zeros(2, np.float32), np.zeros(3, np.float32)),
        }

    def _reset(self) -> TimeStep:
        return restart(self.look())

    # An author who knows what an action is may say so.
    def _step(self, action: Grip) -> TimeStep:
        assert_type(action["speed"], npt.NDArray[np.float32])
        return transition(self.look(), reward=float(action["speed"].sum()))


def main() -> None:
    """Takes a random action."""
    env = Arm()
    env.reset()
    rng = np.random.default_rng(0)
    time_step = env.step(sample_spec_nest(env.action_spec(), rng))

    # Python cannot say "a nest of arrays", so a nest is what its reader takes it for.
    sight: Sight = time_step.observation
    assert_type(sight["joints"][0], npt.NDArray[np.float32])
    assert_type(env.action_spec()["speed"], ArraySpec)
    assert_type(env.time_step_spec(), TimeStep)


def mistakes() -> None:
    """Does what mypy has to find."""
    ArraySpec("float32", (2,))  # type: ignore[arg-type]
    ArraySpec((2,), np.float32).shape = (3,)  # type: ignore[misc]
    Arm().action_spec()["speed"].minimum  # type: ignore[attr-defined]  # noqa: B018


if __name__ == "__main__":
    main()
