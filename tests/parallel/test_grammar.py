"""What a pool always refuses: step types out of turn, and values that do not fit."""

from __future__ import annotations

import collections
import functools

import numpy as np
import pytest

from envkit import BatchedPyEnvironment, nest
from envkit.errors import EnvironmentRaised, SpecError
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.testing import CountingEnv
from envkit.time_step import TimeStep, restart, transition
from tests.parallel.streams import pool_of


class Wrong(CountingEnv):
    """Returns another step type than it should, in one call, once."""

    def __init__(self, call, step_type, at=2):
        super().__init__()
        self._call, self._step_type, self._at = call, step_type, at

    def _changed(self, call, time_step):
        self._at -= call == self._call
        if call == self._call and self._at < 0:
            self._at = 10**9
            return time_step._replace(step_type=np.int32(self._step_type))
        return time_step

    def _step(self, action):
        return self._changed("step", super()._step(action))

    def _reset(self):
        return self._changed("reset", super()._reset())


def play(pool, rounds=3):
    for _ in range(rounds):
        pool.reset()
        for _ in range(4):
            pool.step(np.zeros(pool.batch_size, np.int32))


MUST_BE = {"step": "1 (MID) or 2 (LAST)", "reset": "0 (FIRST)"}


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize(
    ("backend", "validate", "call", "step_type"),
    [
        *(("inline", "first", "step", step_type) for step_type in (0, 9, -1)),
        *(("inline", "first", "reset", step_type) for step_type in (1, 2, 7)),
        ("inline", "always", "step", 0),
        ("inline", "always", "reset", 2),
        ("inline", "never", "step", 9),
        ("inline", "never", "reset", 1),
        ("thread", "first", "step", 0),
        ("process", "first", "reset", 2),
    ],
)
def test_a_step_type_out_of_order_is_refused(
    is_batch, backend, validate, call, step_type
):
    wrong = functools.partial(Wrong, call, step_type, at=1 if call == "reset" else 2)

    def batch():
        return BatchedPyEnvironment([CountingEnv(), wrong()])

    makers = [batch] if is_batch else [CountingEnv, wrong]
    with (
        pool_of(makers, backend, num_workers=1, validate=validate) as pool,
        pytest.raises(EnvironmentRaised) as refused,
    ):
        play(pool)

    name = "env 0 (row 1)" if is_batch else "env 1"
    assert isinstance(refused.value, SpecError)
    assert str(refused.value) == (
        f"{name} returned the step type {step_type} from {call}(); it must be "
        f"{MUST_BE[call]}. An episode is FIRST, any number of MID, LAST: only a reset "
        "returns FIRST, and the pool resets an environment after its LAST."
    )


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_a_huge_step_type_is_refused(dtype):
    class Far(CountingEnv):
        def _step(self, action):
            return super()._step(action)._replace(step_type=dtype(2**32 + 1))

    with pool_of([Far], validate="never") as pool, pytest.raises(SpecError) as refused:
        play(pool)
    assert "env 0 returned" in str(refused.value)
    assert "step_type" in str(refused.value)


class Showing(CountingEnv):
    """Shows what it was given, after a first step and reset that are right."""

    def __init__(self, dtype, value):
        super().__init__()
        self._shown_as, self._value = np.dtype(dtype), value
        self._shown = 0

    def observation_spec(self):
        return ArraySpec((2,), self._shown_as)

    def _shown_now(self):
        self._shown += 1
        if self._shown <= 3:
            return np.zeros(2, self._shown_as)
        return self._value

    def _reset(self):
        return super()._reset()._replace(observation=self._shown_now())

    def _step(self, action):
        return super()._step(action)._replace(observation=self._shown_now())


CHANGED = {
    "a fraction": ("uint8", np.array([1.0, 300.7])),
    "a list with a fraction": ("uint8", [1.0, 2.5]),
    "a large number": ("uint8", np.array([1, 300])),
    "a negative number": ("uint64", np.array([1, -1])),
    "a number over all of 32 bits": ("int32", np.array([0, 2**40])),
    "not a number": ("int32", np.array([0, np.nan])),
    "two for a truth": ("bool", np.array([0, 2])),
    "a long text": ("<U3", np.array(["abc", "abcd"])),
}


@pytest.mark.parametrize("validate", ["first", "never"])
@pytest.mark.parametrize(("dtype", "value"), CHANGED.values(), ids=CHANGED)
def test_a_value_that_a_row_cannot_hold_is_refused(dtype, value, validate):
    maker = functools.partial(Showing, dtype, value)
    with (
        pool_of([maker], validate=validate) as pool,
        pytest.raises(SpecError, match="observation"),
    ):
        play(pool)


KEPT = {
    "whole floats": ("uint8", np.array([1.0, 255.0]), [1, 255]),
    "small numbers": ("uint8", np.array([1, 200]), [1, 200]),
    "a list": ("int32", [3, 4], [3, 4]),
    "doubles": ("float32", np.array([0.1, 1e300]), [np.float32(0.1), np.inf]),
    "integers": ("float32", np.array([1, 2**24 + 1]), [1, 2**24]),
    "a short text": ("<U3", np.array(["abc", "d"]), ["abc", "d"]),
}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize(("dtype", "value", "expected"), KEPT.values(), ids=KEPT)
def test_a_lossless_value_is_converted(dtype, value, expected):
    with pool_of([functools.partial(Showing, dtype, value)]) as pool:
        for _ in range(4):
            time_step = pool.step([0])
    assert expected == time_step.observation[0].tolist()


class Bounded(CountingEnv):
    """Leaves the bounds of its spec after the first steps."""

    def observation_spec(self):
        return BoundedArraySpec((), np.int32, 0, 3)


def test_always_refuses_values_outside_of_the_spec():
    with (
        pool_of([Bounded], validate="always") as pool,
        pytest.raises(SpecError, match="above the maximum"),
    ):
        play(pool)


class Batch(BatchedPyEnvironment):
    """Shows 300.7 in a batch, where a byte belongs."""

    def observation_spec(self):
        return ArraySpec((), np.uint8)

    def _step(self, action):
        time_step = super()._step(action)
        return TimeStep(*time_step[:3], np.full(2, 300.7))

    def _reset(self):
        time_step = super()._reset()
        return TimeStep(*time_step[:3], np.zeros(2, np.uint8))


def test_batches_are_checked_in_the_same_way():
    def batch():
        return Batch([CountingEnv(), CountingEnv()])

    with pool_of([batch], validate="never") as pool:
        pool.reset()
        with pytest.raises(SpecError, match="observation"):
            pool.step([0, 0])


# What an environment returns that is not made like its specs.

PAIR = ArraySpec((2,), np.int32)
NUMBER = ArraySpec((), np.float32)


class Returning(CountingEnv):
    """Returns what it is told to in its second step, and zeros before."""

    def __init__(self, answer, observation=PAIR, reward=NUMBER):
        super().__init__()
        self._answer, self._specs, self._calls = answer, (observation, reward), 0

    def observation_spec(self):
        return self._specs[0]

    def reward_spec(self):
        return self._specs[1]

    def _zeros(self):
        return nest.map_structure(
            lambda spec: np.zeros(spec.shape, spec.dtype), self._specs
        )

    def _reset(self):
        observation, reward = self._zeros()
        return restart(observation)._replace(reward=reward)

    def _step(self, action):
        self._calls += 1
        observation, reward = self._zeros()
        usual = transition(observation, 0.0)._replace(reward=reward)
        return usual if self._calls == 1 else self._answer


ONES = np.ones(2, np.int32)
STRANGE = {
    "a shape in a nest": (
        {"pair": PAIR},
        transition({"pair": np.zeros((2, 2), np.int32)}, 0.0),
        "env 0 returned a time step that does not fit its spec at "
        "observation['pair'].\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=int32)\n"
        "  got        array of shape (2, 2), dtype int32, values 0 … 0\n\n"
        "There is one dimension too many, of size 2: a batch where a single value "
        "belongs. The other 3 leaves fit.",
    ),
    "another key": (
        {"camera": PAIR},
        transition({"cam": ONES}, 0.0),
        "env 0 returned a time step that does not fit its spec at observation.\n\n"
        "  expected   the structure {'camera': *}\n"
        "  got        a dict of 1 element\n\n"
        "Key 'camera' is missing; key 'cam' is not in the spec. The other 3 leaves "
        "fit.",
    ),
    "no reward": (
        {"pair": PAIR},
        transition({"pair": ONES}, 0.0)._replace(reward=None),
        "env 0 returned a time step that does not fit its spec at reward.",
    ),
    "no observation": (
        NUMBER,
        transition(ONES, 0.0)._replace(observation=None),
        "env 0 returned a time step that does not fit its spec at observation.",
    ),
}


@pytest.mark.parametrize(
    ("spec", "answer", "message"), STRANGE.values(), ids=list(STRANGE)
)
def test_values_that_do_not_fit_are_refused_and_change_nothing(spec, answer, message):
    with pool_of([functools.partial(Returning, answer, spec)]) as pool:
        pool.reset()
        before = nest.flatten(pool.step([0]))
        with pytest.raises(SpecError) as refused:
            pool.step([0])
        after = nest.flatten(pool.current_time_step())

    assert str(refused.value).startswith(message)
    assert [leaf.tobytes() for leaf in before] == [leaf.tobytes() for leaf in after]


def answered(answer, **specs):
    """Returns what a pool makes of an answer."""
    with pool_of([functools.partial(Returning, answer, **specs)]) as pool:
        pool.reset()
        pool.step([0])
        return pool.step([0])


@pytest.mark.parametrize("kind", [float, np.float64, np.float16, int, np.asarray])
@pytest.mark.parametrize("observation", [PAIR, (PAIR,)], ids=["plain", "nest"])
def test_rewards_may_be_numbers_of_any_kind(observation, kind):
    shown = (ONES,) if isinstance(observation, tuple) else ONES
    answer = transition(shown, 0.0)._replace(reward=kind(3), discount=kind(1))
    time_step = answered(answer, observation=observation)
    assert ([3.0], [1.0]) == (time_step.reward.tolist(), time_step.discount.tolist())


def test_rewards_may_have_a_structure():
    reward = {"a": np.float32(5), "b": np.array([1, 2], np.int32)}
    answer = transition(ONES, 0.0)._replace(reward=reward)
    time_step = answered(answer, reward={"a": NUMBER, "b": PAIR})
    assert [[1, 2]] == time_step.reward["b"].tolist()


def test_time_steps_of_other_libraries_are_accepted():
    theirs = collections.namedtuple("TimeStep", TimeStep._fields)
    time_step = answered(theirs(*transition(np.array([1, 2], np.int32), 0.5)))
    assert ([0.5], [[1, 2]]) == (
        time_step.reward.tolist(),
        time_step.observation.tolist(),
    )


class WrongBatch(BatchedPyEnvironment):
    """Returns what it is told to in its step."""

    def __init__(self, answer):
        super().__init__([CountingEnv(), CountingEnv()])
        self._told = answer

    def _step(self, action):
        super()._step(action)
        return self._told


@pytest.mark.parametrize(
    "answer",
    [
        transition(np.ones(1, np.int32), np.zeros(1, np.float32)),
        transition(np.ones(3, np.int32), np.zeros(3, np.float32)),
        transition({"one": np.ones(2, np.int32)}, np.zeros(2, np.float32)),
    ],
    ids=["shorter", "longer", "a nest"],
)
def test_a_batch_that_does_not_fit_its_spec_is_refused(answer):
    with pool_of([lambda: WrongBatch(answer)]) as pool:
        before = pool.reset().observation.tolist()
        with pytest.raises(SpecError) as refused:
            pool.step([0, 0])
        after = pool.current_time_step().observation.tolist()

    assert str(refused.value).startswith(
        "env 0 (rows 0 to 1) returned a time step that does not fit its spec"
    )
    assert before == after
