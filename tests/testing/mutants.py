"""Two environments that keep every promise, and many that break one each.

A mutant's docstring says what is wrong with it. `MUTANTS` says which check names it.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    TimeStep,
    restart,
    termination,
    transition,
    truncation,
)
from envkit._internal.masks import merge
from envkit.py_environment import EnvironmentState
from envkit.seeding import seed_per_row
from envkit.testing import CountingEnv


class Walk(PyEnvironment):
    """Walks at random in the plane, for three to eight steps; correct."""

    handle_auto_reset = True

    def __init__(self):
        super().__init__(handle_auto_reset=self.handle_auto_reset)
        self._rng = np.random.default_rng()
        self._position = np.zeros(2, np.float32)
        self._clock = 0
        self._length = 0

    def observation_spec(self):
        return {
            "position": ArraySpec((2,), np.float32),
            "clock": BoundedArraySpec((), np.int32, 0, 8),
        }

    def action_spec(self):
        return BoundedArraySpec((2,), np.float32, -1, 1)

    def seed(self, seed):
        self._rng = np.random.default_rng(seed)

    def render(self, mode="rgb_array"):
        if mode != "rgb_array":
            raise ValueError(f"There is no mode {mode!r}.")
        return np.full((4, 6, 3), self._clock, np.uint8)

    def get_info(self):
        return {"length": self._length}

    def _observe(self):
        return {
            "position": self._position.copy(),
            "clock": np.array(self._clock, np.int32),
        }

    def _noise(self):
        return self._rng.normal(size=2)

    def _reset(self):
        self._position = self._noise().astype(np.float32)
        self._clock = 0
        self._length = int(self._rng.integers(3, 9))
        return restart(self._observe())

    def _move(self, action):
        self._position = (self._position + action + self._noise()).astype(np.float32)
        self._clock += 1

    def _step(self, action):
        self._move(action)
        return self._outcome()

    def _outcome(self):
        if self._clock < self._length:
            return transition(self._observe(), reward=1.0)
        if self._position[0] > 0:
            return termination(self._observe(), reward=2.0)
        return truncation(self._observe(), reward=2.0, discount=0.9)

    def _get_state(self):
        rng = self._rng.bit_generator.state
        return self._position, self._clock, self._length, rng

    def _set_state(self, state):
        self._position, self._clock, self._length, rng = state
        self._rng.bit_generator.state = rng


class Walks(PyEnvironment):
    """Walks with three rows at once; correct."""

    rows = 3

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self._clock = np.zeros(self.rows, np.int32)
        self._length = np.zeros(self.rows, np.int32)
        self._position = np.zeros((self.rows, 2), np.float32)
        self.seed(None)

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return self.rows

    def observation_spec(self):
        return ArraySpec((2,), np.float32)

    def action_spec(self):
        return BoundedArraySpec((2,), np.float32, -1, 1)

    def seed(self, seed):
        seeds = seed_per_row(seed, self.rows)
        self._rngs = [np.random.default_rng(seed) for seed in seeds]

    def _observe(self):
        return self._position.copy()

    def _reset(self):
        return self._reset_rows(np.ones(self.rows, bool))

    def _reset_rows(self, mask):
        for row in np.flatnonzero(mask):
            self._clock[row] = 0
            self._length[row] = self._rngs[row].integers(3, 9)
            self._position[row] = self._rngs[row].normal(size=2)
        return restart(self._observe(), batch_size=self.rows)

    def _check(self, action):
        if np.shape(action) != (self.rows, 2):
            raise ValueError(f"An action has the shape {(self.rows, 2)}.")

    def _noise(self):
        return np.array([rng.normal(size=2) for rng in self._rngs])

    def _step(self, action):
        self._check(action)
        return self._advance(action)

    def _advance(self, action):
        self._position = (self._position + action + self._noise()).astype(np.float32)
        self._clock = self._clock + 1
        ended = self._clock >= self._length
        return TimeStep(
            np.where(ended, 2, 1).astype(np.int32),
            np.ones(self.rows, np.float32),
            np.where(ended, 0, 1).astype(np.float32),
            self._observe(),
        )

    def _get_state(self):
        rngs = [rng.bit_generator.state for rng in self._rngs]
        return self._position, self._clock, self._length, rngs

    def _set_state(self, state):
        self._position, self._clock, self._length, rngs = state
        for rng, value in zip(self._rngs, rngs, strict=True):
            rng.bit_generator.state = value


class SteadyWalks(Walks):
    """Walks where the actions lead, and at random only in the beginning; correct."""

    def _noise(self):
        return np.zeros((self.rows, 2))


class Delegate:
    """Is no `PyEnvironment`, but behaves like one: `Walks` behind a proxy; correct."""

    def __init__(self):
        self._env = Walks()

    def __getattr__(self, name):
        return getattr(self._env, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


class Mutant(NamedTuple):
    """A broken environment, and the checks that name it."""

    make: Callable[[], Any]
    checks: tuple[str, ...]

    def __repr__(self):
        return getattr(self.make, "__name__", repr(self.make))


MUTANTS: list[Mutant] = []


def caught_by(*checks):
    """Lists a broken environment with the checks that should name it."""

    def add(make):
        MUTANTS.append(Mutant(make, checks))
        return make

    return add


_only = Walk()


@caught_by("constructor")
def always_the_same_object():
    return _only


@caught_by("constructor")
def the_class_itself():
    return Walk


@caught_by("constructor")
class FailsToBegin(Walk):
    """Its constructor raises."""

    def __init__(self):
        raise OSError("no display")


@caught_by("interface")
class NoEnvironment:
    """Knows how to step, and nothing else."""

    def step(self, action):
        return action


@caught_by("interface")
def forgets_to_return_it():
    Walk()


@caught_by("interface")
class OverridesStep(Walk):
    """Overrides the template, and never asks the base class whether it may."""

    def __init__(self):
        self._rng = np.random.default_rng()

    def step(self, action):
        return self._step(action)


@caught_by("interface")
class BatchWithoutSize(Walk):
    """Says that it is batched, and not how large the batch is."""

    batched = True


@caught_by("interface")
class SizeWithoutBatch(Walk):
    """Has a batch size although it is not batched."""

    batch_size = 1


@caught_by("specs")
class NewSpecEachTime(Walk):
    """Answers another spec with each call."""

    calls = 0

    def action_spec(self):
        self.calls += 1
        return BoundedArraySpec((2,), np.float32, -1, self.calls)


@caught_by("specs")
class SpecOfWords(Walk):
    """Has a spec that is a string."""

    def observation_spec(self):
        return super().observation_spec() | {"clock": "int32"}


@caught_by("specs")
class TwoOpinions(Walk):
    """Has a time step spec that its reward spec disagrees with."""

    def time_step_spec(self):
        reward = ArraySpec((3,), np.float32)
        return super().time_step_spec()._replace(reward=reward)


@caught_by("specs")
class WideStepType(Walk):
    """Has an int64 step type in its spec."""

    def time_step_spec(self):
        return super().time_step_spec()._replace(step_type=ArraySpec((), np.int64))


@caught_by("specs")
class TupleOfSpecs(Walk):
    """Has a time step spec that is a plain tuple."""

    def time_step_spec(self):
        return tuple(super().time_step_spec())


@caught_by("stable_specs")
class LearnsItsBounds(Walk):
    """Changes its spec when it has seen more."""

    def observation_spec(self):
        bound = max(8, 8 + self._length)
        clock = BoundedArraySpec((), np.int32, 0, bound)
        return super().observation_spec() | {"clock": clock}


@caught_by("stable_specs")
class BoundsOfTheMoment(Walk):
    """Has other bounds in the second step of each episode."""

    def observation_spec(self):
        clock = BoundedArraySpec((), np.int32, 0, 9 if self._clock == 2 else 8)
        return super().observation_spec() | {"clock": clock}


@caught_by("time_step")
class ReturnsATuple(Delegate):
    """Answers like Gymnasium, and has no base class that would refuse it."""

    def reset(self):
        return self._env.reset().observation, {}


@caught_by("plays")
class ForgetsToReturn(Walk):
    """Has lost a return statement."""

    def _step(self, action):
        super()._step(action)


@caught_by("time_step")
class UnknownStepType(Walk):
    """Has a fourth step type."""

    def _outcome(self):
        outcome = super()._outcome()
        return outcome._replace(step_type=np.array(3, np.int32))


@caught_by("time_step")
class OneStepTypeForAllRows(Walks):
    """Returns a scalar step type for a batch."""

    def _reset(self):
        return super()._reset()._replace(step_type=np.array(0, np.int32))


@caught_by("plays")
class FailsToReset(Walk):
    """Raises in the first reset."""

    def _reset(self):
        raise OSError("no server")


@caught_by("plays")
class FailsInTheMiddle(Walk):
    """Raises in the second step of an episode."""

    def _step(self, action):
        if self._clock == 1:
            raise OSError("the server has gone")
        return super()._step(action)


@caught_by("fits_specs")
class DtypeDrift(Walk):
    """Begins with float32 and goes on with float64."""

    def _move(self, action):
        super()._move(action)
        self._position = self._position.astype(np.float64)


@caught_by("fits_specs")
class MissingKey(Walk):
    """Leaves the clock out of the last observation."""

    def _outcome(self):
        outcome = super()._outcome()
        if outcome.is_last():
            del outcome.observation["clock"]
        return outcome


@caught_by("fits_specs")
class OutOfBounds(Walk):
    """Counts further than its spec says."""

    def _observe(self):
        return super()._observe() | {"clock": np.array(self._clock * 4, np.int32)}


@caught_by("fits_specs")
class ListObservation(Walk):
    """Observes a list where an array belongs."""

    def _observe(self):
        return super()._observe() | {"position": self._position.tolist()}


@caught_by("fits_specs")
class NoneAsReward(Walk):
    """Has no reward."""

    def _outcome(self):
        return super()._outcome()._replace(reward=None)


@caught_by("fits_specs", "step_after_last")
class SpecWithTheBatch(Walks):
    """Puts the batch dimension into its spec."""

    def observation_spec(self):
        return ArraySpec((self.rows, 2), np.float32)


@caught_by("fits_specs", "step_after_last")
class OneRewardForAllRows(Walks):
    """Returns a scalar reward for a batch."""

    def _advance(self, action):
        return super()._advance(action)._replace(reward=np.array(1.0, np.float32))


@caught_by("reset")
class ResetReturnsMid(Walk):
    """Begins its episodes in the middle."""

    def _reset(self):
        super()._reset()
        return transition(self._observe(), reward=0.0)


@caught_by("reset")
class ResetOnlyAtTheEnd(Walk):
    """Goes on with the episode if it is reset before the end."""

    def _reset(self):
        if 0 < self._clock < self._length:
            return transition(self._observe(), reward=0.0)
        return super()._reset()


@caught_by("first_step", "current_time_step")
class ResetsInItsConstructor(Walk):
    """Begins an episode without a reset."""

    def __init__(self):
        super().__init__()
        self.reset()


@caught_by("grammar")
class NeverEnds(Walk):
    """Begins the next episode without having shown the end of this one."""

    def _step(self, action):
        if self._clock + 1 >= self._length:
            return self._reset()
        return super()._step(action)


@caught_by("grammar")
class ResetsAllRows(Walks):
    """Begins an episode in all rows when one has ended."""

    def _step_rows(self, action, stepping, beginning):
        return self._reset()


@caught_by("step_after_last")
class GoesOnAfterLast(Walk):
    """Was never told to begin again."""

    handle_auto_reset = False

    def _outcome(self):
        outcome = super()._outcome()
        if self._clock > self._length:
            self._clock = 3
            return transition(self._observe(), reward=1.0)
        return outcome


@caught_by("step_after_last")
class StaysLast(Walk):
    """Repeats its LAST until it is reset."""

    handle_auto_reset = False

    def _step(self, action):
        if self._clock == self._length:
            return self._outcome()
        return super()._step(action)


@caught_by("step_after_last")
class RaisesAfterLast(Walk):
    """Demands a reset, as Gymnasium's environments do."""

    handle_auto_reset = False

    def _step(self, action):
        if self._clock == self._length:
            raise RuntimeError("The episode is over: call reset().")
        return super()._step(action)


@caught_by("step_after_last")
class CannotResetRows(Walks):
    """Can only begin all rows together."""

    _reset_rows = PyEnvironment._reset_rows

    def _reset(self):
        return Walks._reset_rows(self, np.ones(self.rows, bool))


class HandlesTheEndItself(Walk):
    """Begins episodes in its own `_step`; correct."""

    handle_auto_reset = False
    _ended = False

    def _reset(self):
        self._ended = False
        return super()._reset()

    def _step(self, action):
        if self._ended:
            return self._reset()
        self._move(action)
        outcome = self._outcome()
        self._ended = bool(outcome.is_last())
        return outcome

    def _get_state(self):
        return *super()._get_state(), self._ended

    def _set_state(self, state):
        *rest, self._ended = state
        super()._set_state(rest)


@caught_by("reset_after_last")
class ForgetsExplicitReset(HandlesTheEndItself):
    """Begins another episode although reset() has begun one."""

    def _reset(self):
        return Walk._reset(self)

    def _step(self, action):
        if self._ended:
            self._ended = False
            return self._reset()
        return super()._step(action)


class Ageing(Walk):
    """Counts its steps, of which only the longest game has many; correct."""

    _age = 0

    def _step(self, action):
        self._age += 1
        return super()._step(action)

    @property
    def _old(self):
        return self._age > 120


@caught_by("long_game")
class LateDtypeDrift(Ageing):
    """Goes on with float64 when it is old."""

    def _observe(self):
        dtype = np.float64 if self._old else np.float32
        return super()._observe() | {"position": self._position.astype(dtype)}


@caught_by("long_game")
class LosesAKeyLate(Ageing):
    """Observes no clock when it is old."""

    def _observe(self):
        observation = super()._observe()
        if self._old:
            del observation["clock"]
        return observation


@caught_by("long_game")
class EndsInSilenceLate(Ageing):
    """Begins the next episode without the end of this one when it is old."""

    def _outcome(self):
        outcome = super()._outcome()
        return self._reset() if self._old and outcome.is_last() else outcome


@caught_by("long_game")
class FailsLate(Ageing):
    """Raises when it is old."""

    def _outcome(self):
        if self._old:
            raise OSError("the disk is full")
        return super()._outcome()


@caught_by("long_game")
class LeavesBoundsLate(Ageing):
    """Goes beyond the end of its clock when it is old."""

    def _observe(self):
        return super()._observe() | {"clock": np.array(9 * self._old, np.int32)}


@caught_by("reward")
class DividesByZero(Walk):
    """Pays 0 / 0."""

    def _outcome(self):
        return super()._outcome()._replace(reward=np.array(np.nan, np.float32))


@caught_by("first_reward")
class RewardInFirst(Walk):
    """Pays the last reward together with the next observation."""

    def _reset(self):
        return super()._reset()._replace(reward=np.array(2.0, np.float32))


@caught_by("first_discount")
class DiscountInFirst(Walk):
    """Discounts the first step too."""

    def _reset(self):
        return super()._reset()._replace(discount=np.array(0.9, np.float32))


@caught_by("discount")
class GrowingDiscount(Walk):
    """Has a discount of 1.5 and a spec without bounds."""

    def discount_spec(self):
        return ArraySpec((), np.float32)

    def _outcome(self):
        return super()._outcome()._replace(discount=np.array(1.5, np.float32))


@caught_by("current_time_step")
class StaleCurrent(Walk):
    """Says that it stands where the episode began."""

    def current_time_step(self):
        current = super().current_time_step()
        return current._replace(step_type=np.array(0, np.int32))


@caught_by("kept_results")
class ReusedArray(Walk):
    """Writes every position into the same array."""

    def _observe(self):
        self.__dict__.setdefault("_buffer", np.zeros(2, np.float32))
        self._buffer[:] = self._position
        return super()._observe() | {"position": self._buffer}


@caught_by("kept_results")
class ReusedDictionary(Walk):
    """Returns the same dictionary each time, with other arrays in it."""

    def __init__(self):
        super().__init__()
        self._seen = {}

    def _observe(self):
        self._seen.update(super()._observe())
        return self._seen


@caught_by("kept_results")
class ReusedReward(Walks):
    """Adds up rewards in an array that it has given away."""

    def _reset_rows(self, mask):
        first = super()._reset_rows(mask)
        self._reward = np.zeros(self.rows, np.float32)
        return first._replace(reward=self._reward)

    def _advance(self, action):
        self._reward += 1
        return super()._advance(action)._replace(reward=self._reward)


@caught_by("separate_arrays")
class SameArrayEachTime(Walk):
    """Returns the same array as long as nothing has changed in it."""

    def __init__(self):
        super().__init__()
        self._goal = np.array(5, np.int32)

    def _observe(self):
        return super()._observe() | {"clock": self._goal}


@caught_by("separate_arrays")
class TwoNamesForOneArray(Walk):
    """Shows one array under two names."""

    def observation_spec(self):
        return super().observation_spec() | {"last": ArraySpec((1,), np.float32)}

    def _observe(self):
        observation = super()._observe()
        return observation | {"last": observation["position"][1:]}


@caught_by("separate_arrays")
class OneRowForAll(Walks):
    """Shows one piece of memory as three rows."""

    def _advance(self, action):
        reward = as_strided(np.ones(1, np.float32), (self.rows,), (0,))
        return super()._advance(action)._replace(reward=reward)


@caught_by("own_arrays")
class ReturnsItsState(Walk):
    """Goes on working with the array that it has returned."""

    def _observe(self):
        return super()._observe() | {"position": self._position}


@caught_by("own_arrays")
class ReadsWhatItReturned(Walk):
    """Keeps its position in the time step that the caller has."""

    def _move(self, action):
        self._position = self.current_time_step().observation["position"]
        super()._move(action)


@caught_by("unchanged_actions")
class ClipsInPlace(Walk):
    """Clips the caller's action."""

    def _move(self, action):
        super()._move(np.clip(action, -0.1, 0.1, out=action))


@caught_by("released_actions")
class KeepsTheAction(Walk):
    """Moves by the action before, which it has not copied."""

    _before = np.zeros(2)

    def _reset(self):
        self._before = np.zeros(2)
        return super()._reset()

    def _move(self, action):
        super()._move(self._before)
        self._before = action

    def _get_state(self):
        return *super()._get_state(), self._before

    def _set_state(self, state):
        *rest, self._before = state
        super()._set_state(rest)


@caught_by("released_actions")
class ShowsTheAction(Walk):
    """Shows the caller's own array as part of the observation."""

    def observation_spec(self):
        return super().observation_spec() | {"action": self.action_spec()}

    def _reset(self):
        self._action = np.zeros(2, np.float32)
        return super()._reset()

    def _move(self, action):
        self._action = action
        super()._move(action)

    def _observe(self):
        return super()._observe() | {"action": self._action}


@caught_by("global_random")
class NumPysGenerator(Walk):
    """Draws from NumPy's global generator."""

    def _noise(self):
        return np.random.normal(size=2)  # noqa: NPY002  # is what is wrong


@caught_by("global_random")
class PythonsGenerator(Walk):
    """Draws from Python's global generator."""

    def _noise(self):
        return np.full(2, random.random())


@caught_by("global_random")
class SeedsEverybody(Walk):
    """Seeds NumPy's global generator, and so the whole program."""

    def seed(self, seed):
        super().seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # is what is wrong


@caught_by("seeding")
class Unseeded(Walk):
    """Takes a seed and forgets it."""

    def seed(self, seed):
        pass


@caught_by("seeding")
class SeedsTheLengthOnly(Walk):
    """Draws its noise from a generator that was forgotten in seed()."""

    def __init__(self):
        super().__init__()
        self._other = np.random.default_rng()

    def _noise(self):
        return self._other.normal(size=2)

    def _get_state(self):
        return *super()._get_state(), self._other.bit_generator.state

    def _set_state(self, state):
        *rest, self._other.bit_generator.state = state
        super()._set_state(rest)


@caught_by("reseeding")
class SeedsOnlyOnce(Walk):
    """Ignores every seed but the first."""

    _seeded = False

    def seed(self, seed):
        if not self._seeded:
            super().seed(seed)
        self._seeded = True


@caught_by("reseeding")
class DrawsAhead(Walk):
    """Keeps a random number that was drawn before seed()."""

    _ahead = 0.0

    def _noise(self):
        noise, self._ahead = self._ahead, self._rng.normal(size=2)
        return np.zeros(2) + noise

    def _get_state(self):
        return *super()._get_state(), self._ahead

    def _set_state(self, state):
        *rest, self._ahead = state
        super()._set_state(rest)


@caught_by("row_seeds")
class AllRowsAlike(Walks):
    """Gives every row the seed of the batch."""

    def seed(self, seed):
        alike = [seed] * self.rows if isinstance(seed, int) else seed
        super().seed(alike)


@caught_by("seed_list")
class AnyNumberOfSeeds(Walks):
    """Repeats the seeds it is given as often as it needs them."""

    def seed(self, seed):
        if isinstance(seed, list):
            seed = (seed * self.rows)[: self.rows]
        super().seed(seed)


@caught_by("independence")
class SharedState(Walk):
    """Has its position in an array of the class."""

    _shared = np.zeros(2, np.float32)

    def _reset(self):
        first = super()._reset()
        self._shared[:] = self._position
        return first

    def _move(self, action):
        self._position = self._shared
        super()._move(action)
        self._shared[:] = self._position

    def _set_state(self, state):
        super()._set_state(state)
        self._shared[:] = self._position


@caught_by("ignored_action")
class BeginsWithTheAction(Walk):
    """Begins the next episode where the last action leads."""

    handle_auto_reset = False

    def _step(self, action):
        if not self.current_time_step().is_last():
            return super()._step(action)
        begun = self._reset()
        self._position = self._position + np.asarray(action)
        begun.observation["position"] += np.asarray(action)
        return begun


@caught_by("ignored_action")
class FirstActionCounts(Walk):
    """Begins its first episode where the action leads."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.step = self._step_public

    def _step_public(self, action, mask=None):
        is_new = self._current_time_step is None
        begun = type(self).step(self, action, mask)
        if is_new:
            begun.observation["position"] += np.asarray(action)
        return begun


@caught_by("state")
class StateWithoutGenerator(Walk):
    """Saves everything but the generator."""

    def _set_state(self, state):
        self._position, self._clock, self._length, _ = state


@caught_by("state")
class StateWithoutClock(Walk):
    """Saves everything but a counter."""

    def _set_state(self, state):
        clock = self._clock
        super()._set_state(state)
        self._clock = clock


@caught_by("state")
class SavesButDoesNotRestore(Walk):
    """Has get_state() and no set_state()."""

    _set_state = PyEnvironment._set_state


@caught_by("state_after_first")
class TakesZeroForNothing(Walk):
    """Restores no state in which the clock is 0."""

    def _set_state(self, state):
        if state[1]:
            super()._set_state(state)


@caught_by("state_after_last")
class ForgetsTheEnd(Walk):
    """Does not restore the generator if the episode has ended."""

    def _set_state(self, state):
        position, clock, length, rng = state
        if clock == length:
            rng = self._rng.bit_generator.state
        super()._set_state((position, clock, length, rng))


@caught_by("state_time_step")
class RestoresAnotherTimeStep(Walk):
    """Restores the current time step without its reward."""

    def set_state(self, state):
        super().set_state(state)
        if self._current_time_step.is_mid():
            reward = np.array(0.0, np.float32)
            self._current_time_step = self._current_time_step._replace(reward=reward)


@caught_by("state_stream")
class DrawsWhenSaved(Walk):
    """Draws a random number before it saves its generator."""

    def _get_state(self):
        self._rng.random()
        return super()._get_state()


@caught_by("state_token")
class LiveToken(Walk):
    """Returns a token that it goes on writing to."""

    def _move(self, action):
        before = self._position
        super()._move(action)
        before[:] = self._position
        self._position = before

    def get_state(self):
        return EnvironmentState(self._get_state(), self._current_time_step)


@caught_by("state_token")
class AdoptsTheToken(Walk):
    """Takes the token's arrays over and writes to them."""

    def _move(self, action):
        before = self._position
        super()._move(action)
        before[:] = self._position
        self._position = before

    def set_state(self, state):
        if not isinstance(state, EnvironmentState):
            raise TypeError("This is not a state.")
        self._set_state(state.environment)
        self._current_time_step = state.time_step


@caught_by("state_pickle")
class StateWithALambda(Walk):
    """Has something in its state that does not pickle."""

    def _get_state(self):
        return *super()._get_state(), lambda: None

    def _set_state(self, state):
        super()._set_state(state[:-1])


@caught_by("state_pickle")
class StateWithALock(Delegate):
    """Has something in its state that cannot even be copied."""

    def get_state(self):
        return self._env.get_state(), threading.Lock()

    def set_state(self, state):
        self._env.set_state(state[0])


class _ForgetfulNumber(int):
    """Is 0 after it was pickled."""

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _ForgetfulNumber, ()


@caught_by("state_pickle")
class LosesSomethingInPickles(Walk):
    """Has something in its state that pickles as something else."""

    def _get_state(self):
        position, clock, length, rng = super()._get_state()
        return position, _ForgetfulNumber(clock), length, rng


@caught_by("state_in_new_environment")
class KeepsItsStatesAtHome(Walk):
    """Returns the number of a state that it keeps to itself."""

    def __init__(self):
        super().__init__()
        self._states = []

    def _get_state(self):
        self._states.append(super()._get_state())
        return len(self._states) - 1

    def _set_state(self, state):
        super()._set_state(self._states[state])


@caught_by("state_garbage")
class TakesGarbage(Walk):
    """Ignores a state that is none."""

    def set_state(self, state):
        with contextlib.suppress(TypeError):
            super().set_state(state)


@caught_by("state_garbage")
class BreaksOnGarbage(Walk):
    """Notices too late that a state is none."""

    def set_state(self, state):
        self._clock = 0
        super().set_state(state)


@caught_by("render")
class FloatPicture(Walk):
    """Draws with floats."""

    def render(self, mode="rgb_array"):
        return super().render(mode) / 255


@caught_by("render_mode")
class AnyMode(Walk):
    """Knows no mode, and takes all of them."""

    def render(self, mode="rgb_array"):
        return super().render()


@caught_by("render_kept")
class ReusedCanvas(Walk):
    """Draws everything on one canvas."""

    _canvas = None

    def render(self, mode="rgb_array"):
        picture = super().render(mode)
        self._canvas = picture if self._canvas is None else self._canvas
        self._canvas[:] = picture
        return self._canvas


@caught_by("render_stream")
class DrawsAtRandom(Walk):
    """Takes the noise in its pictures from the generator of the episode."""

    def render(self, mode="rgb_array"):
        picture = super().render(mode)
        return picture + self._rng.integers(0, 9, picture.shape, np.uint8)


@caught_by("info")
class InfoWithALambda(Walk):
    """Has an info that does not pickle."""

    def get_info(self):
        return {"length": lambda: self._length}


@caught_by("info_stream")
class MovesWhenAsked(Walk):
    """Moves when it is asked for its info."""

    def get_info(self):
        self._position = self._position + np.float32(1)
        return super().get_info()


@caught_by("info_stream")
class InformsWithItsState(Walk):
    """Has the array in its info that it goes on working with."""

    def get_info(self):
        return {"position": self._position}


@caught_by("info_spec")
class ForgetsADeclaredInfo(Walk):
    """Declares something of which its info has nothing at the end of an episode."""

    def info_spec(self):
        return {"fuel": ArraySpec((), np.float32), "length": ArraySpec((), np.int64)}

    def get_info(self):
        fuel = {} if self._clock == self._length else {"fuel": np.float32(0.5)}
        return {**super().get_info(), **fuel}


@caught_by("info_spec")
class DeclaresAnArray(Walk):
    """Declares an array for its info instead of a dictionary of them."""

    def info_spec(self):
        return ArraySpec((), np.int64)


@caught_by("info_kept")
class ReusedInfo(Walk):
    """Writes every info into the same array."""

    _info = None

    def get_info(self):
        self._info = np.zeros((), np.int32) if self._info is None else self._info
        self._info[...] = self._clock
        return {"clock": self._info}


@caught_by("info_kept")
class UpdatedInfo(Walk):
    """Returns the same dictionary each time, whose keys are no nest's."""

    _info = None

    def get_info(self):
        self._info = {} if self._info is None else self._info
        self._info.update({"clock": self._clock, 0: "anything"})
        return self._info


@caught_by("masked_reset")
class IgnoresTheMask(Delegate):
    """Resets all rows, whatever the mask."""

    def reset(self, mask=None):
        return self._env.reset()


@caught_by("masked_reset")
class ResetsTheOtherRows(Delegate):
    """Reads the mask the wrong way round."""

    def reset(self, mask=None):
        return self._env.reset(None if mask is None else ~mask)


@caught_by("masked_reset")
class HidesTheMaskedReset(Delegate):
    """Does not take a masked reset for the current time step."""

    _masked = False

    def reset(self, mask=None):
        self._masked = mask is not None
        return self._env.reset(mask)

    def step(self, action):
        self._masked = False
        return self._env.step(action)

    def current_time_step(self):
        current = self._env.current_time_step()
        if not self._masked:
            return current
        return current._replace(step_type=np.ones(3, np.int32))


@caught_by("masked_reset")
class BeginsTwice(Delegate):
    """Begins the masked rows once more with the next step."""

    _again = None

    def reset(self, mask=None):
        self._again = mask
        return self._env.reset(mask)

    def step(self, action):
        time_step = self._env.step(action)
        if self._again is not None:
            time_step = self._env.reset(self._again)
            self._again = None
        return time_step


@caught_by("other_rows")
class ResetsOthersInside(SteadyWalks):
    """Resets all rows, and PyEnvironment shows the others as they were."""

    def _reset_rows(self, mask):
        return super()._reset_rows(np.ones(self.rows, bool))


@caught_by("other_rows")
class ResetsOneClock(SteadyWalks):
    """Has one clock for all rows."""

    def _reset_rows(self, mask):
        first = super()._reset_rows(mask)
        self._clock[:] = 0
        return first

    def _observe(self):
        return (self._position + self._clock[:, None]).astype(np.float32)


class HoldsRows(SteadyWalks):
    """Leaves rows where they are while others step; correct."""

    def _step_rows(self, action, stepping, beginning):
        self._check(action)
        held = ~(stepping | beginning)
        kept = self._position[held], self._clock[held]
        stepped = self._advance(action)
        self._position[held], self._clock[held] = kept
        if not beginning.any():
            return stepped
        return merge(self, beginning, self._reset_rows(beginning), stepped)


@caught_by("held_rows")
class MovesHeldRows(HoldsRows):
    """Steps all rows, and PyEnvironment shows the others as they were."""

    def _step_rows(self, action, stepping, beginning):
        return super()._step_rows(action, stepping | ~beginning, beginning)


@caught_by("held_rows")
class ShowsHeldRowsOtherwise(Delegate):
    """Moves the rows that are to be held, and shows it."""

    holds_rows = True

    def step(self, action, mask=None):
        return self._env.step(action)


@caught_by("wrong_action")
class BroadcastsActions(Walks):
    """Takes one action for all rows, by accident."""

    def _check(self, action):
        if np.shape(action)[0] not in (1, self.rows) or np.ndim(action) != 2:
            raise ValueError(f"An action has the shape {(self.rows, 2)}.")


@caught_by("wrong_action")
class IgnoresItsActions(Walks):
    """Goes nowhere in particular, whatever the action."""

    def _step(self, action):
        return self._advance(np.float32(0))


@caught_by("wrong_action")
class MovesBeforeItLooks(Walks):
    """Notices a wrong action when the first row has moved."""

    def _check(self, action):
        self._position = self._position + np.float32(1)
        super()._check(action)


@caught_by("close")
class ClosesOnce(Walk):
    """Raises when it is closed again."""

    _closed = False

    def close(self):
        if self._closed:
            raise RuntimeError("This was closed already.")
        self._closed = True


@caught_by("close")
class StaysOpen(Walk):
    """Does not close at the end of a with block."""

    def __exit__(self, *exception):
        pass


@caught_by("close")
class EntersSomethingElse(Walk):
    """Gives a with block something else."""

    def __enter__(self):
        return None


@caught_by("close")
class ClosesForEverybody(Walk):
    """Closes what all environments share."""

    open_servers = 0

    def _reset(self):
        type(self).open_servers = 1
        return super()._reset()

    def _step(self, action):
        if not self.open_servers:
            raise ConnectionError("the server has gone")
        return super()._step(action)

    def close(self):
        type(self).open_servers = 0


class Featureless(Walk):
    """Has nothing that an environment may lack; correct."""

    seed = PyEnvironment.seed
    render = PyEnvironment.render
    get_info = PyEnvironment.get_info
    _get_state = PyEnvironment._get_state
    _set_state = PyEnvironment._set_state


class FeaturelessCounter(CountingEnv):
    """Has nothing that an environment may lack, and is not random; correct."""

    seed = PyEnvironment.seed
    render = PyEnvironment.render
    get_info = PyEnvironment.get_info
    _get_state = PyEnvironment._get_state
    _set_state = PyEnvironment._set_state
