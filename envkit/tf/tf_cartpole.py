"""The built-in CartPole written in TensorFlow, as an example: `TFCartPole`.

Everything that a step depends on is in variables with one element per row: the
quantities of the state, the number of steps in the episode, a flag that it is over, and
the position of the row's random stream. A step reads them, computes each row twice, as
an episode that continues and as one that begins, chooses the one that applies, and
assigns it. Nothing branches and no shape depends on a value, so XLA can compile the
step into a few loops over the rows.

Each quantity has its own variable: with one variable for the whole state, XLA would
slowly find out for each element which quantity it is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from envkit.envs.cartpole import CartPole
from envkit.envs.streams import RowStreams
from envkit.errors import SpecError
from envkit.extend import checked_size
from envkit.seeding import seed_per_row
from envkit.tf.tensor_spec import from_spec
from envkit.tf.tf_environment import TensorActions, TFEnvironment
from envkit.tf.tf_time_step import as_written
from envkit.time_step import TimeStep
from envkit.types import NestedArray, Seed

__all__ = ["TFCartPole"]

# The constants of envkit.envs.cartpole, which explains them; a test compares the two.
_SECONDS_PER_STEP = 0.02
_TOTAL_MASS = 1.1
_POLE_MASS = 0.1
_POLE_MOMENT = 0.05
_PUSH = _SECONDS_PER_STEP * 10.0 / _TOTAL_MASS
_SWING = _SECONDS_PER_STEP * _POLE_MOMENT / _TOTAL_MASS
_FALL = _SECONDS_PER_STEP * 9.8
_RECOIL = _POLE_MOMENT / _TOTAL_MASS
_UPRIGHT = 0.5 * (4.0 / 3.0 - _POLE_MASS / _TOTAL_MASS)
_FARTHEST = 2.4
_STEEPEST = 12 * 2 * math.pi / 360
_START = 0.05
_SERIES = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(5, 0, -1))

# The constants of envkit.envs.streams, which are those of SplitMix64.
_STEP = 0x9E3779B97F4A7C15
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)

# The number of steps in a row that has not begun any episode.
_NOT_BEGUN = -1


class TFCartPole(TFEnvironment):
    """Steps a batch of `envkit.envs.CartPole` in TensorFlow.

    Specs, rewards, ends of episodes and dynamics are those of `CartPole(batch_size)`;
    with equal seeds, so are the initial states. The state is float64. Run one operation
    at a time, a step gives exactly CartPole's states. XLA rounds less often, so the
    last bit of a float64 may differ, and the pole magnifies the difference by about 8 %
    per step of an episode.

    A single step is a hundred small operations. It is fast in a compiled loop:

    Example:
        >>> env = TFCartPole(batch_size=1000, seed=3)
        >>> @tf.function(jit_compile=True)
        ... def ten_steps(action):
        ...     earned = tf.zeros([1000])
        ...     for _ in tf.range(10):
        ...         earned += env.step(action).reward
        ...     return earned
        >>> env.reset().observation.shape
        TensorShape([1000, 4])
        >>> bool(tf.reduce_all(ten_steps(tf.ones([1000], tf.int64)) >= 8.0))
        True
    """

    def __init__(
        self,
        batch_size: int = 1,
        *,
        max_episode_steps: int | None = 500,
        seed: Seed = None,
    ) -> None:
        """Makes the variables; episodes begin with the first call.

        Args:
            batch_size: The number of rows.
            max_episode_steps: The number of steps after which an episode is truncated;
                `None` for no limit.
            seed: Seeds the initial states, as if given to `seed()`.
        """
        rows = checked_size("batch_size", batch_size)
        like = CartPole(max_episode_steps=max_episode_steps)
        action_spec = from_spec(like.action_spec())
        super().__init__(from_spec(like.time_step_spec()), action_spec, rows)
        self._limit = max_episode_steps
        self._actions = TensorActions("TFCartPole", action_spec, rows, cast=True)
        zeros = np.zeros(rows)
        self._position = tf.Variable(zeros, name="position")
        self._velocity = tf.Variable(zeros, name="velocity")
        self._angle = tf.Variable(zeros, name="angle")
        self._spin = tf.Variable(zeros, name="spin")
        self._steps = tf.Variable(
            np.full(rows, _NOT_BEGUN, np.int64), name="episode_steps"
        )
        # It follows from the others, but XLA does not merge that into one loop
        # everywhere.
        self._ended = tf.Variable(np.ones(rows, bool), name="ended")
        streams = RowStreams(seed_per_row(seed, rows))
        self._places = tf.Variable(streams.positions, name="random_positions")
        self._keys = tf.Variable(streams.keys, name="random_keys")

    def seed(self, seed: Seed) -> None:
        """Seeds the initial states of all later episodes.

        One integer gives each row its own stream; a sequence has one seed per row.
        `None` uses fresh entropy. In a traced function, the seed is fixed at tracing.
        """
        streams = RowStreams(seed_per_row(seed, self._places.shape[0]))
        self._places.assign(streams.positions)
        self._keys.assign(streams.keys)

    @as_written
    def reset_to(self, state: Any, mask: Any = None) -> TimeStep:
        """Starts episodes in given states and returns the time step of all rows.

        Args:
            state: Position, velocity, angle and angular velocity of each row, in this
                order: the `"state"` of `get_info()` of a `CartPole` or a `TFCartPole`.
            mask: A boolean per row: True where an episode starts. `None` means all
                rows.
        """
        given = tf.cast(state, tf.float64)
        expected = self._ended.shape.concatenate([4])
        if not given.shape.is_compatible_with(expected):
            raise SpecError(
                f"The state of TFCartPole.reset_to() must have shape {expected}, four "
                f"numbers for each row, got shape {given.shape}."
            )
        given = tf.ensure_shape(given, expected)
        rows = tf.ones_like(self._ended) if mask is None else self._as_mask(mask)
        self._begin_new_rows()
        return self._begin(rows, tf.unstack(given, axis=1))

    @as_written
    def get_info(self) -> dict[str, Any]:
        """Returns the info, with one element per row.

        The names are the same as in `CartPole.get_info()`.
        """
        self._begin_new_rows()
        state = self._state()
        return {
            "terminated": _fallen(state) & (self._steps > 0),
            "truncated": self._is_at_limit(self._steps.read_value()),
            "episode_steps": self._steps.read_value(),
            "state": tf.stack(state, axis=1),
        }

    @as_written
    def _current_time_step(self) -> TimeStep:
        self._begin_new_rows()
        return _time_step(
            self._state(), self._steps.read_value(), self._ended.read_value()
        )

    def _reset(self) -> TimeStep:
        return self._reset_rows(tf.ones_like(self._ended))

    @as_written
    def _reset_rows(self, mask: Any) -> TimeStep:
        rows = mask | (self._steps < 0)
        return self._begin(rows, self._drawn_starts(rows))

    @as_written
    def _step(self, action: NestedArray) -> TimeStep:
        ended = self._ended.read_value()
        leaves = self._actions.leaves(action)
        with tf.control_dependencies(self._actions.check_bounds(leaves, ended)):
            starts = self._drawn_starts(ended)
            moved = _moved(_push(leaves[0]), *self._state())
            state = _chosen(ended, starts, moved)
            return self._keep(state, _counted(ended, self._steps + 1))

    def _begin_new_rows(self) -> None:
        """Begins an episode in the rows that have never had one."""
        new = self._steps < 0

        def begin() -> Any:
            self._begin(new, self._drawn_starts(new))
            return True

        tf.cond(tf.reduce_any(new), begin, lambda: False)

    def _begin(self, rows: Any, starts: list[Any]) -> TimeStep:
        """Begins an episode in some rows; the others stay where they are."""
        state = _chosen(rows, starts, self._state())
        return self._keep(state, _counted(rows, self._steps))

    def _state(self) -> list[Any]:
        return [
            self._position.read_value(),
            self._velocity.read_value(),
            self._angle.read_value(),
            self._spin.read_value(),
        ]

    def _keep(self, state: list[Any], steps: Any) -> TimeStep:
        ended = (_fallen(state) & (steps > 0)) | self._is_at_limit(steps)
        self._position.assign(state[0])
        self._velocity.assign(state[1])
        self._angle.assign(state[2])
        self._spin.assign(state[3])
        self._steps.assign(steps)
        self._ended.assign(ended)
        return _time_step(state, steps, ended)

    def _is_at_limit(self, steps: Any) -> Any:
        if self._limit is None:
            return tf.zeros_like(steps, tf.bool)
        return steps >= self._limit

    def _drawn_starts(self, rows: Any) -> list[Any]:
        """Draws initial states, and advances the random streams of these rows."""
        place, keys = self._places.read_value(), self._keys.read_value()
        words = [place + np.uint64(n * _STEP % 2**64) for n in range(1, 5)]
        self._places.assign(tf.where(rows, words[-1], place))
        return [_share(word, keys) * (2 * _START) - _START for word in words]


def _chosen(rows: Any, ours: list[Any], theirs: list[Any]) -> list[Any]:
    """Returns quantities that are `ours` in these rows and `theirs` in the others."""
    return [tf.where(rows, a, b) for a, b in zip(ours, theirs, strict=True)]


def _counted(begun: Any, steps: Any) -> Any:
    """Returns the numbers of steps, with 0 in the rows that have just begun."""
    return tf.where(begun, tf.constant(0, tf.int64), steps)


def _fallen(state: list[Any]) -> Any:
    return (tf.abs(state[0]) > _FARTHEST) | (tf.abs(state[2]) > _STEEPEST)


def _time_step(state: list[Any], steps: Any, ended: Any) -> TimeStep:
    stepped = steps > 0
    terminated = _fallen(state) & stepped
    quantities = [tf.cast(quantity, tf.float32) for quantity in state]
    return TimeStep(
        # FIRST is 0 and has no step, MID is 1 and has one, LAST is 2 and has one too.
        tf.cast(stepped, tf.int32) + tf.cast(ended, tf.int32),
        tf.cast(stepped, tf.float32),
        # An episode that ends both ways at once counts as terminated.
        tf.cast(~terminated, tf.float32),
        # With XLA this is faster than stacking along the last axis.
        tf.transpose(tf.stack(quantities)),
    )


def _push(action: Any) -> Any:
    """Returns the change of the carts' velocities in a step without their poles."""
    left, right = tf.constant(-_PUSH, tf.float64), tf.constant(_PUSH, tf.float64)
    return tf.where(tf.equal(action, 0), left, right)


def _moved(push: Any, position: Any, velocity: Any, angle: Any, spin: Any) -> list[Any]:
    """Returns the state after a step; every operation rounds as CartPole's does."""
    sine = _sine(angle)
    cosine = tf.sqrt(1.0 - sine * sine)
    drive = spin * spin * _SWING * sine + push
    inertia = sine * sine * _RECOIL + _UPRIGHT
    twist = (sine * _FALL - cosine * drive) / inertia
    thrust = drive - cosine * twist * _RECOIL
    return [
        position + _SECONDS_PER_STEP * velocity,
        velocity + thrust,
        angle + _SECONDS_PER_STEP * spin,
        spin + twist,
    ]


def _sine(angle: Any) -> Any:
    square = angle * angle
    sine = square * _SERIES[0]
    for factor in _SERIES[1:]:
        sine = (sine + factor) * square
    return (sine + 1.0) * angle


def _share(word: Any, keys: Any) -> Any:
    """Scrambles 64 bits and turns them into a float64 in [0, 1)."""
    word ^= _shifted(word, 30)
    word *= _FIRST_FACTOR
    word ^= _shifted(word, 27)
    word ^= keys
    word *= _SECOND_FACTOR
    word ^= _shifted(word, 31)
    # With 53 bits left, the sign is positive, and signed integers convert faster.
    return tf.cast(tf.bitcast(_shifted(word, 11), tf.int64), tf.float64) * 2.0**-53


def _shifted(word: Any, bits: int) -> Any:
    return tf.bitwise.right_shift(word, np.uint64(bits))
