"""Balances a pole on a cart, with the dynamics of Gymnasium's CartPole-v1: `CartPole`.

The equations are those of Barto, Sutton and Anderson (1983) as corrected by Florian
(2007), integrated with Euler's method:

    drive  = (force + m l spin² sin) / M
    twist  = (g sin - cos drive) / (l (4/3 - m cos² / M))
    thrust = drive - m l twist cos / M

with the pole's mass m and half length l, the total mass M, the pole's angular velocity
`spin` and acceleration `twist`, and the cart's acceleration `thrust`.

A single environment computes in Gymnasium's order, with NumPy's sine and cosine, so it
follows Gymnasium exactly. In a batch, these two functions would take half of a step. A
batch uses its own series instead, and constants multiplied in advance, so a step
differs in the last bit of a float64.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from envkit.envs.base import BatchableEnvironment
from envkit.envs.drawing import canvas, disc, line, rectangle
from envkit.envs.kernels import Kernels
from envkit.envs.streams import drawn
from envkit.specs.arrays import BoundedArraySpec
from envkit.time_step import AutoReset, TimeStep
from envkit.types import Array, Seed

__all__ = ["CartPole"]

_GRAVITY = 9.8
_POLE_MASS = 0.1
_TOTAL_MASS = 1.0 + _POLE_MASS
_HALF_LENGTH = 0.5
_POLE_MOMENT = _POLE_MASS * _HALF_LENGTH
_FORCE = 10.0
_SECONDS_PER_STEP = 0.02
_FARTHEST = 2.4
_STEEPEST = 12 * 2 * math.pi / 360
_START = 0.05

# Constants for a batch, multiplied by the time of a step, so accelerations become
# changes of velocity.
_PUSH = _SECONDS_PER_STEP * _FORCE / _TOTAL_MASS
_SWING = _SECONDS_PER_STEP * _POLE_MOMENT / _TOTAL_MASS
_FALL = _SECONDS_PER_STEP * _GRAVITY
_RECOIL = _POLE_MOMENT / _TOTAL_MASS
# l (4/3 - m cos² / M) is _UPRIGHT + _RECOIL sin².
_UPRIGHT = _HALF_LENGTH * (4.0 / 3.0 - _POLE_MASS / _TOTAL_MASS)

# The Taylor series of sin(x) / x - 1 in x², from the last term. Within 12 degrees,
# where episodes continue, its error is at most one unit in the last place.
_SERIES = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(5, 0, -1))


# Kernels for numba: `_begin`, `_advance` and `_observe` as loops over rows. They round
# in the same places.


def _begin_rows(rows: Array, positions: Array, keys: Array, state: Array) -> None:
    for row in rows:
        for quantity in range(4):
            positions[row], share = drawn(positions[row], keys[row])
            state[quantity, row] = share * (2 * _START) - _START


def _advance_rows(
    actions: Array,
    live: Array,
    positions: Array,
    keys: Array,
    reward: Array,
    fallen: Array,
    state: Array,
) -> None:
    position, velocity, angle, spin = state[0], state[1], state[2], state[3]
    for row in range(len(actions)):
        lean, turn = angle[row], spin[row]
        square = lean * lean
        sine = square * _SERIES[0]
        sine = (sine + _SERIES[1]) * square
        sine = (sine + _SERIES[2]) * square
        sine = (sine + _SERIES[3]) * square
        sine = (sine + _SERIES[4]) * square
        sine = (sine + 1.0) * lean
        cosine = math.sqrt(1.0 - sine * sine)
        push = _PUSH if actions[row] else -_PUSH
        drive = turn * turn * _SWING * sine + push
        inertia = sine * sine * _RECOIL + _UPRIGHT
        twist = (sine * _FALL - cosine * drive) / inertia
        thrust = drive - cosine * twist * _RECOIL
        place = position[row] + _SECONDS_PER_STEP * velocity[row]
        lean += _SECONDS_PER_STEP * turn
        position[row], angle[row] = place, lean
        velocity[row] += thrust
        spin[row] = turn + twist
        fallen[row] = (abs(place) > _FARTHEST) | (abs(lean) > _STEEPEST)
        reward[row] = np.float32(live[row])


def _observe_rows(terminated: Array, state: Array, observation: Array) -> None:
    position, velocity, angle, spin = state[0], state[1], state[2], state[3]
    # With known strides, the compiler can vectorise over rows.
    flat = observation.reshape(-1)
    for row in range(len(observation)):
        flat[4 * row] = position[row]
        flat[4 * row + 1] = velocity[row]
        flat[4 * row + 2] = angle[row]
        flat[4 * row + 3] = spin[row]


class CartPole(BatchableEnvironment):
    """Balances a pole on a cart that is pushed left (0) or right (1).

    The reward is 1 for every step, including the last. The episode terminates when the
    pole leans more than 12 degrees or the cart is more than 2.4 from the middle, and is
    truncated after `max_episode_steps`.

    The observation is (position, velocity, angle, angular velocity) in float32. The
    state is float64, and `get_info` returns it. Given the same state and actions, a
    single environment follows Gymnasium's CartPole-v1 exactly. In a batch, each step
    may differ in the last bit of a float64. The pole magnifies any difference by 8 %
    per step, so after about 150 steps of one episode a batch's row visibly differs from
    a single environment.

    Example:
        >>> env = CartPole(batch_size=1000, seed=3)
        >>> env.reset().observation.shape
        (1000, 4)
        >>> float(env.step(np.ones(1000, int)).reward.sum())
        1000.0
    """

    action_names: ClassVar[tuple[str, ...]] = ("left", "right")
    _state_arrays: ClassVar[tuple[str, ...]] = ("_state",)
    _row_axis: ClassVar[int] = 1
    _kernels: ClassVar[Kernels] = Kernels(_begin_rows, _advance_rows, _observe_rows)

    def __init__(
        self,
        batch_size: int | None = None,
        *,
        max_episode_steps: int | None = 500,
        seed: Seed = None,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        compiled: bool = False,
    ) -> None:
        """Makes a single environment, or a batch.

        Args:
            batch_size: The number of rows in the batch; `None` for a single
                environment.
            max_episode_steps: The number of steps after which an episode is truncated;
                `None` for no limit.
            seed: Seeds the initial states, as if given to `seed()`.
            autoreset: When the next episode of a row begins, in a batch.
            compiled: Whether numba compiles the batch; the numbers stay the same.
        """
        # Episodes end at half of these bounds, so even the last observation is within
        # them.
        highest = np.array([2 * _FARTHEST, np.inf, 2 * _STEEPEST, np.inf], np.float32)
        super().__init__(
            BoundedArraySpec((4,), np.float32, -highest, highest),
            num_actions=2,
            batch_size=batch_size,
            max_episode_steps=max_episode_steps,
            seed=seed,
            autoreset=autoreset,
            compiled=compiled,
        )
        # One row per quantity, so computing with a quantity reads contiguous memory.
        self._state = np.zeros((4, self._num_rows))

    def _begin(self, rows: Array) -> None:
        start = self._streams.uniform(rows, 4)
        start *= 2 * _START
        start -= _START
        for quantity, values in zip(self._state, start, strict=True):
            quantity[rows] = values

    def _advance(self, actions: Array, live: Array) -> tuple[Array, Array]:
        # Hot: called once per batch step. The state's arrays change in place.
        position, _, angle, _ = _moved(_PUSHES.take(actions), *self._state)
        fallen = np.abs(position) > _FARTHEST
        fallen |= np.abs(angle) > _STEEPEST
        return live.astype(np.float32), fallen

    def _step_single(self, action: int) -> TimeStep:
        # Hot: called once per step. Python numbers are several times faster than arrays
        # of one element.
        force = _FORCE if action else -_FORCE
        state = _moved_like_gymnasium(force, *self._state[:, 0].tolist())
        self._state[:, 0] = state
        position, _, angle, _ = state
        fallen = abs(position) > _FARTHEST or abs(angle) > _STEEPEST
        return self._single_time_step(1.0, fallen, np.array(state, np.float32))

    def _observe(self) -> Array:
        observation = np.empty((self._num_rows, 4), np.float32)
        for column, quantity in enumerate(self._state):
            observation[:, column] = quantity
        return observation

    def _info(self) -> dict[str, Array]:
        return {"state": self._state.T.copy()}

    def _draw(self, row: int) -> Array:
        position, _, angle, _ = self._state[:, row].tolist()
        picture = canvas(100, 240, (255, 255, 255))
        rail, cart = 80.0, 120.0 + 50.0 * position
        line(picture, (rail, 0.0), (rail, 240.0), 1.0, (60, 60, 60))
        rectangle(picture, (rail, cart), 12.0, 26.0, (40, 40, 40))
        tip = (rail - 50.0 * math.cos(angle), cart + 50.0 * math.sin(angle))
        line(picture, (rail, cart), tip, 5.0, (200, 150, 100))
        disc(picture, (rail, cart), 3.0, (130, 130, 200))
        return picture


# `+=` changes an array in place and rebinds a number. So the same code serves batches
# and single environments, and both round in the same order.


def _moved_like_gymnasium(
    force: float, position: float, velocity: float, angle: float, spin: float
) -> tuple[float, float, float, float]:
    """Returns the state after a step; every operation rounds as Gymnasium's does."""
    # NumPy's sine: the math module's may differ in the last bit.
    cosine, sine = float(np.cos(angle)), float(np.sin(angle))
    drive = (force + _POLE_MOMENT * (spin * spin) * sine) / _TOTAL_MASS
    inertia = _HALF_LENGTH * (4.0 / 3.0 - _POLE_MASS * (cosine * cosine) / _TOTAL_MASS)
    twist = (_GRAVITY * sine - cosine * drive) / inertia
    thrust = drive - _POLE_MOMENT * twist * cosine / _TOTAL_MASS
    return (
        position + _SECONDS_PER_STEP * velocity,
        velocity + _SECONDS_PER_STEP * thrust,
        angle + _SECONDS_PER_STEP * spin,
        spin + _SECONDS_PER_STEP * twist,
    )


def _moved(
    push: Array, position: Array, velocity: Array, angle: Array, spin: Array
) -> tuple[Array, Array, Array, Array]:
    """Returns the states after a step, in the same arrays."""
    sine = _sine(angle)
    cosine = np.sqrt(1.0 - sine * sine)
    thrust, twist = _accelerations(push, spin, sine, cosine)
    position += _SECONDS_PER_STEP * velocity
    velocity += thrust
    angle += _SECONDS_PER_STEP * spin
    spin += twist
    return position, velocity, angle, spin


def _accelerations(
    push: Array, spin: Array, sine: Array, cosine: Array
) -> tuple[Array, Array]:
    """Returns how much a step changes the velocities of carts and poles."""
    drive = spin * spin
    drive *= _SWING
    drive *= sine
    drive += push
    inertia = sine * sine
    inertia *= _RECOIL
    inertia += _UPRIGHT
    twist = sine * _FALL
    twist -= cosine * drive
    twist /= inertia
    recoil = cosine * twist
    recoil *= _RECOIL
    drive -= recoil
    return drive, twist


def _sine(angle: Array) -> Array:
    """Returns the sines of angles within the range of a running episode."""
    square = angle * angle
    sine = square * _SERIES[0]
    for factor in _SERIES[1:]:
        sine += factor
        sine *= square
    sine += 1.0
    sine *= angle
    return sine


def _pushes() -> Array:
    pushes = np.array([-_PUSH, _PUSH])
    pushes.setflags(write=False)
    return pushes


_PUSHES = _pushes()
