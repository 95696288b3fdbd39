"""Several environments as one batch: equal to a loop over them, whatever goes wrong."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import signal
import threading

import attrs
import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    EnvironmentSpec,
    PyEnvironment,
    RandomPyEnvironment,
    constructor,
    nest,
    restart,
    termination,
    transition,
)
from envkit.batched_py_environment import unstack_actions
from envkit.errors import (
    CallOrderError,
    ClosedError,
    SpecError,
    SpecMismatchError,
)
from envkit.seeding import seed_per_row
from envkit.testing import (
    CountingEnv,
    CrashingEnv,
    NestedCountingEnv,
)
from tests.comparing import bits, told
from tests.waiting import PATIENCE

serial_and_threads = pytest.mark.parametrize(
    "multithreading", [False, True], ids=["serial", "threads"]
)

Move = collections.namedtuple("Move", ["speed", "turn"])


@attrs.define
class Command:
    """A container that only dm-tree can take apart."""

    press: object
    aim: object


class Dice(PyEnvironment):
    """Adds its action to a random number; its episodes have a random length."""

    def __init__(self, seed=0):
        super().__init__(handle_auto_reset=True)
        self._rng = np.random.default_rng(seed)

    def observation_spec(self):
        return {"sum": ArraySpec((), np.int64), "noise": ArraySpec((2,), np.float32)}

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 9)

    def seed(self, seed):
        self._rng = np.random.default_rng(seed)
        return seed

    def get_info(self):
        return {"left": self._left}

    def _observe(self, total):
        return {
            "sum": np.array(total, np.int64),
            "noise": self._rng.random(2, dtype=np.float32),
        }

    def _reset(self):
        self._left = int(self._rng.integers(1, 5))
        self._sum = int(self._rng.integers(100))
        return restart(self._observe(self._sum))

    def _step(self, action):
        self._left -= 1
        self._sum += int(action)
        if self._left:
            return transition(self._observe(self._sum), reward=0.25, discount=0.5)
        return termination(self._observe(self._sum), reward=1.0)

    def _get_state(self):
        return self._rng.bit_generator.state, self._left, self._sum

    def _set_state(self, state):
        self._rng.bit_generator.state, self._left, self._sum = state


class Endless(PyEnvironment):
    """Leaves it to others to begin the next episode, and refuses to go on itself."""

    def __init__(self, length):
        super().__init__()
        self._length = length

    def observation_spec(self):
        return ArraySpec((), np.int32)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def _reset(self):
        self._place = 0
        return restart(np.array(0, np.int32))

    def _step(self, action):
        assert self._place < self._length, "stepped beyond the end"
        self._place += 1
        observation = np.array(self._place, np.int32)
        if self._place == self._length:
            return termination(observation, reward=1.0)
        return transition(observation, reward=0.0)


class Listening(CountingEnv):
    """Keeps the actions it was given, and observes with any spec."""

    def __init__(self, action_spec):
        super().__init__()
        self._action_spec = action_spec
        self.heard = []

    def action_spec(self):
        return self._action_spec

    def _step(self, action):
        self.heard.append(action)
        return super()._step(action)


class Changing(CountingEnv):
    """Returns what a test makes of the right time step."""

    def __init__(self, change):
        super().__init__()
        self._change = change

    def _step(self, action):
        return self._change(super()._step(action))


def counting(rows=2, multithreading=False, **options):
    """Makes a batch of counting environments."""
    return BatchedPyEnvironment(
        [CountingEnv(**options) for _ in range(rows)], multithreading
    )


def stacked(rows):
    """Stacks time steps without the help of the thing under test."""
    return nest.map_structure(lambda *leaves: np.stack(leaves), *rows)


def is_grammatical(step_types):
    """Says whether step types are FIRST MID* LAST, repeated; the end may be cut off."""
    text = "".join(map(str, step_types))
    return all(
        episode.startswith("0") and set(episode[1:]) <= {"1"}
        for episode in filter(None, text.split("2"))
    )


# A batch is a loop.


@serial_and_threads
@settings(max_examples=30)
@given(
    actions=st.lists(
        st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=20
    ),
    seeds=st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3),
)
def test_a_batch_equals_the_loop_over_its_environments(multithreading, actions, seeds):
    loop = [Dice(seed) for seed in seeds]
    types = []
    with BatchedPyEnvironment([Dice(seed) for seed in seeds], multithreading) as batch:
        for action in actions:
            together = batch.step(np.array(action))
            alone = [
                env.step(np.int64(choice))
                for env, choice in zip(loop, action, strict=True)
            ]
            types.append(together.step_type)
            assert bits(stacked(alone)) == bits(together)
            assert together is batch.current_time_step()
    for row in zip(*types, strict=True):
        assert is_grammatical(row)


@serial_and_threads
def test_environments_that_do_not_reset_themselves_are_reset_in_their_row(
    multithreading,
):
    envs = [Endless(length) for length in (1, 2, 3)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        types = [batch.step([0, 0, 0]).step_type.tolist() for _ in range(6)]
    assert [
        [0, 0, 0],
        [2, 1, 1],
        [0, 2, 1],
        [2, 0, 2],
        [0, 1, 0],
        [2, 2, 1],
    ] == types


def test_threads_step_the_environments_concurrently():
    """Each waits in its step until the other has come to the same place."""
    meeting = threading.Barrier(2, timeout=PATIENCE)

    class Meeting(CountingEnv):
        def _step(self, action):
            meeting.wait()
            return super()._step(action)

    with BatchedPyEnvironment([Meeting(), Meeting()]) as batch:
        batch.reset()
        assert [1, 1] == batch.step([0, 0]).observation.tolist()


def test_without_threads_everything_runs_in_the_callers_thread():
    seen = set()

    class Where(CountingEnv):
        def _step(self, action):
            seen.add(threading.current_thread())
            return super()._step(action)

    batch = BatchedPyEnvironment([Where(), Where()], multithreading=False)
    batch.reset()
    batch.step([0, 0])
    assert {threading.current_thread()} == seen


def test_the_specs_of_a_batch_are_those_of_one_environment():
    class Special(Dice):
        def reward_spec(self):
            return ArraySpec((), np.float32, name="coins")

        def discount_spec(self):
            return BoundedArraySpec((), np.float32, 0.0, 0.5)

    batch = BatchedPyEnvironment([Special(), Special()], multithreading=False)
    assert EnvironmentSpec.of(Special()) == batch.environment_spec()
    assert Special().time_step_spec() == batch.time_step_spec()
    assert "coins" == batch.reward_spec().name


def test_a_batch_is_batched_and_shows_its_environments_in_order():
    envs = [CountingEnv(), CountingEnv(), CountingEnv()]
    batch = BatchedPyEnvironment(tuple(envs), multithreading=False)
    batch.envs.clear()
    assert batch.batched is True
    assert 3 == batch.batch_size
    assert envs == batch.envs


def test_changing_the_list_of_environments_later_has_no_effect():
    envs = [CountingEnv(), CountingEnv()]
    batch = BatchedPyEnvironment(envs, multithreading=False)
    envs.clear()
    assert [0, 0] == batch.reset().observation.tolist()


def test_arrays_that_the_environment_reuses_are_copied():
    class Reusing(CountingEnv):
        def __init__(self):
            super().__init__()
            self._array = np.zeros((), np.int32)

        def _observe(self):
            self._array[...] = super()._observe()
            return self._array

    batch = BatchedPyEnvironment([Reusing(), Reusing()], multithreading=False)
    first = batch.reset()
    batch.step([0, 0])
    assert [0, 0] == first.observation.tolist()


def test_byte_orders_are_kept():
    class Swapped(CountingEnv):
        def __init__(self):
            super().__init__(dtype=">i4")

    batch = BatchedPyEnvironment([Swapped(), Swapped()], multithreading=False)
    assert ">i4" == batch.reset().observation.dtype.str


def test_plain_numbers_that_fit_are_stacked():
    class Plain(CountingEnv):
        def __init__(self):
            super().__init__(dtype=np.int64)

        def _observe(self):
            return int(super()._observe())

    batch = BatchedPyEnvironment([Plain(), CountingEnv(dtype=np.int64)], False)
    batch.reset()
    observation = batch.step([0, 0]).observation
    assert ([1, 1], np.int64) == (observation.tolist(), observation.dtype)


def test_a_step_before_the_first_reset_begins_the_episodes():
    batch = BatchedPyEnvironment(
        [Listening(BoundedArraySpec((), np.int64, 0, 1))], multithreading=False
    )
    assert [0] == batch.step([1]).step_type.tolist()
    assert [] == batch.envs[0].heard


# Resetting chosen rows.


@serial_and_threads
@settings(max_examples=20)
@given(
    masks=st.lists(
        st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=8
    )
)
def test_a_masked_reset_equals_resetting_these_environments(multithreading, masks):
    loop = [Dice(seed) for seed in range(4)]
    for env in loop:
        env.reset()
    with BatchedPyEnvironment([Dice(i) for i in range(4)], multithreading) as batch:
        batch.reset()
        for mask in masks:
            for env, chosen in zip(loop, mask, strict=True):
                if chosen:
                    env.reset()
            now = stacked([env.current_time_step() for env in loop])
            assert bits(now) == bits(batch.reset(np.array(mask)))

            alone = [env.step(np.int64(1)) for env in loop]
            assert bits(stacked(alone)) == bits(batch.step([1, 1, 1, 1]))


# Actions of every kind.


NESTED = [
    (
        {"b": BoundedArraySpec((), np.int64, 0, 9), "a": ArraySpec((2,), np.float32)},
        {"b": np.array([1, 2]), "a": np.array([[1, 2], [3, 4]], np.float32)},
        [{"b": 1, "a": [1.0, 2.0]}, {"b": 2, "a": [3.0, 4.0]}],
    ),
    (
        [BoundedArraySpec((), np.int64, 0, 9), BoundedArraySpec((), np.int64, 0, 9)],
        [np.array([1, 2]), np.array([3, 4])],
        [[1, 3], [2, 4]],
    ),
    (
        (BoundedArraySpec((), np.int64, 0, 9), (ArraySpec((1,), np.int32),)),
        (np.array([1, 2]), (np.array([[3], [4]], np.int32),)),
        [(1, ([3],)), (2, ([4],))],
    ),
    (
        Move(ArraySpec((), np.float32), BoundedArraySpec((), np.int64, -1, 1)),
        Move(np.array([0.5, 1.5], np.float32), np.array([-1, 1])),
        [Move(0.5, -1), Move(1.5, 1)],
    ),
    (
        collections.OrderedDict(
            z=BoundedArraySpec((), np.int64, 0, 9), a=BoundedArraySpec((), np.int64)
        ),
        collections.OrderedDict(z=np.array([1, 2]), a=np.array([3, 4])),
        [collections.OrderedDict(z=1, a=3), collections.OrderedDict(z=2, a=4)],
    ),
    (
        Command(
            press=BoundedArraySpec((), np.int64, 0, 1), aim=ArraySpec((2,), np.int32)
        ),
        Command(press=np.array([0, 1]), aim=np.array([[1, 2], [3, 4]], np.int32)),
        [Command(press=0, aim=[1, 2]), Command(press=1, aim=[3, 4])],
    ),
    ((), (), [(), ()]),
    ({}, {}, [{}, {}]),
    (
        {"only": (), "and": BoundedArraySpec((), np.int64, 0, 9)},
        {"only": (), "and": np.array([5, 6])},
        [{"only": (), "and": 5}, {"only": (), "and": 6}],
    ),
]


@pytest.mark.parametrize(
    ("spec", "action", "rows"),
    NESTED,
    ids=[
        "dict",
        "list",
        "tuple",
        "namedtuple",
        "OrderedDict",
        "attrs",
        "empty tuple",
        "empty dict",
        "empty part",
    ],
)
@serial_and_threads
def test_each_environment_gets_its_part_of_a_nested_action(
    multithreading, spec, action, rows
):
    envs = [Listening(spec), Listening(spec)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        batch.step(action)
    (first,), (second,) = (env.heard for env in envs)
    plain = functools.partial(nest.map_structure, lambda leaf: leaf.tolist())
    assert rows == [plain(first), plain(second)]
    assert [type(row) for row in rows] == [type(first), type(second)]


def test_an_action_spec_without_leaves_steps_random_environments():
    spec = ArraySpec((), np.float32)
    envs = [RandomPyEnvironment(spec), RandomPyEnvironment(spec)]
    batch = BatchedPyEnvironment(envs, multithreading=False)
    batch.reset()
    assert (2,) == batch.step(()).observation.shape


@pytest.mark.parametrize(
    "action", [[1, 0], (1, 0), np.array([1, 0]), np.array([1, 0], np.uint8)], ids=repr
)
def test_integers_of_any_dtype_are_valid_actions(action):
    batch = counting()
    batch.reset()
    assert [1, 1] == batch.step(action).observation.tolist()


def test_changes_to_an_action_do_not_reach_the_caller():
    class Clipping(Listening):
        def _step(self, action):
            np.clip(action, 0.0, 1.0, out=action)
            return super()._step(action)

    spec = ArraySpec((2,), np.float32)
    batch = BatchedPyEnvironment([Clipping(spec), Clipping(spec)], False)
    batch.reset()
    action = np.full((2, 2), 7.0, np.float32)
    batch.step(action)
    assert [[7.0, 7.0], [7.0, 7.0]] == action.tolist()


def test_an_environment_can_keep_an_action_that_the_caller_reuses():
    spec = ArraySpec((2,), np.float32)
    batch = BatchedPyEnvironment([Listening(spec), Listening(spec)], False)
    batch.reset()
    action = np.ones((2, 2), np.float32)
    batch.step(action)
    action[:] = 9.0
    assert [[1.0, 1.0], [1.0, 1.0]] == [env.heard[0].tolist() for env in batch.envs]


@pytest.mark.parametrize(
    ("action", "got", "reason"),
    [
        ([0], "a list of 1 element", "1 action was given for 3 environments."),
        (
            [0, 1, 0, 1],
            "a list of 4 elements",
            "4 actions were given for 3 environments.",
        ),
        (
            np.zeros(0, np.int32),
            "array of shape (0,), dtype int32",
            "0 actions were given for 3 environments.",
        ),
        (
            np.zeros((3, 1), np.int8),
            "array of shape (3, 1), dtype int32, values 0 … 0",
            "The array has 2 dimensions instead of 1.",
        ),
        (
            1,
            "array of shape (), dtype int32, values 1 … 1",
            "The whole batch dimension is missing: expected (3,).",
        ),
        (None, "None", "None is not an array. Did a return statement get lost?"),
        (
            "go",
            "array of shape (), dtype <U2",
            "The whole batch dimension is missing: expected (3,). dtype is <U2; the "
            "spec says int32. If that is meant, add .astype(np.int32).",
        ),
        (
            ["a", "b", "c"],
            "array of shape (3,), dtype <U1",
            "dtype is <U1; the spec says int32. If that is meant, add "
            ".astype(np.int32).",
        ),
        (
            [0, None, 1],
            "a list of 3 elements",
            "The value is a list, not an array: use np.array(..., np.int32).",
        ),
        (
            [0, [1, 2], 1],
            "a list of 3 elements",
            "The value is a list, not an array: use np.array(..., np.int32).",
        ),
        (
            [0.0, 1.0, 0.0],
            "array of shape (3,), dtype float64, values 0.0 … 1.0",
            "dtype is float64; the spec says int32. If that is meant, add "
            ".astype(np.int32).",
        ),
        (
            [0, 2, 7],
            "array of shape (3,), dtype int32, values 0 … 7",
            "2 of 3 elements are above the maximum 1: 2 at index (1,).",
        ),
    ],
    ids=repr,
)
def test_a_wrong_action_steps_no_environment(action, got, reason):
    batch = counting(rows=3)
    first = batch.reset()
    expected = (
        "BatchedPyEnvironment.step() was given an action that does not fit its spec."
        "\n\n  expected   BoundedArraySpec(shape=(3,), dtype=int32, minimum=0, "
        f"maximum=1)\n  got        {got}\n\n{reason}\n"
        "None of the environments has moved."
    )
    assert (SpecError, expected) == told(batch.step, action)
    assert [0, 0, 0] == [int(env.current_time_step().observation) for env in batch.envs]
    assert batch.current_time_step() is first


def test_floats_out_of_bounds_are_left_to_the_environment():
    spec = BoundedArraySpec((), np.float32, -1, 1)
    batch = BatchedPyEnvironment([Listening(spec), Listening(spec)], False)
    batch.reset()
    batch.step(np.array([1.5, -2.0], np.float32))
    assert [1.5, -2.0] == [float(env.heard[0]) for env in batch.envs]


@pytest.mark.parametrize(
    ("action", "place", "expected", "got", "problem"),
    [
        (
            {"go": [1, 2], "at": (np.zeros((2, 3), np.float32),)},
            " at action['at'][0]",
            "ArraySpec(shape=(2, 2), dtype=float32)",
            "array of shape (2, 3), dtype float32, values 0.0 … 0.0",
            "Axis 1 has size 3 instead of 2.\nNone of the environments has moved.",
        ),
        (
            {"go": [1, 2]},
            "",
            "the structure {'go': *, 'at': (*,)}",
            "a dict of 1 element",
            "Key 'at' is missing.",
        ),
        (
            {"go": [1, 2], "at": [[0, 0]]},
            " at action['at']",
            "the structure (*,)",
            "a list of 1 element",
            "The value is a list; a tuple is expected.",
        ),
        (
            None,
            "",
            "the structure {'go': *, 'at': (*,)}",
            "None",
            "The value is None; a dictionary is expected. Did a return statement get "
            "lost?",
        ),
    ],
    ids=["shape", "missing key", "list for tuple", "None"],
)
def test_a_wrong_part_of_an_action_is_named_and_steps_no_environment(
    action, place, expected, got, problem
):
    spec = {"go": BoundedArraySpec((), np.int64, 0, 9), "at": (ArraySpec((2,), "f4"),)}
    batch = BatchedPyEnvironment([Listening(spec), Listening(spec)], False)
    batch.reset()
    text = (
        f"BatchedPyEnvironment.step() was given an action that does not fit its spec"
        f"{place}.\n\n  expected   {expected}\n  got        {got}\n\n{problem}"
    )
    assert (SpecError, text) == told(batch.step, action)
    assert [[], []] == [env.heard for env in batch.envs]


# What environments must not return.


TIME_STEP = "the structure TimeStep(step_type=*, reward=*, discount=*, observation=*)"
SCALAR = (
    "BoundedArraySpec(shape=(), dtype=int32, minimum=-2147483648, maximum=2147483647)"
)


@pytest.mark.parametrize(
    ("change", "place", "expected", "got", "reason"),
    [
        (
            lambda time_step: time_step._replace(reward=None),
            " at reward",
            "ArraySpec(shape=(), dtype=float32, name='reward')",
            "None",
            "None is not an array. Did a return statement get lost? The other 3 leaves "
            "fit.",
        ),
        (
            lambda time_step: time_step._replace(observation=np.zeros(2, np.int32)),
            " at observation",
            SCALAR,
            "array of shape (2,), dtype int32, values 0 … 0",
            "There is one dimension too many, of size 2: a batch where a single value "
            "belongs. The other 3 leaves fit.",
        ),
        (
            lambda time_step: time_step._replace(observation=np.array(1)),
            " at observation",
            SCALAR,
            "array of shape (), dtype int64, values 1 … 1",
            "dtype is int64; the spec says int32. NumPy makes int64 by default: add "
            ".astype(np.int32). The other 3 leaves fit.",
        ),
        (
            lambda time_step: time_step._replace(observation=np.array(1, np.int8)),
            " at observation",
            SCALAR,
            "array of shape (), dtype int8, values 1 … 1",
            "dtype is int8; the spec says int32. If that is meant, add "
            ".astype(np.int32). The other 3 leaves fit.",
        ),
        (
            lambda time_step: time_step._replace(observation={"a": 1}),
            " at observation",
            SCALAR,
            "a dict of 1 element",
            "The value is a dict; an array is expected here. The other 3 leaves fit.",
        ),
        (
            lambda time_step: time_step._replace(observation=[1]),
            " at observation",
            SCALAR,
            "a list of 1 element",
            "The value is a list, not an array: use np.array(..., np.int32). The other "
            "3 leaves fit.",
        ),
    ],
    ids=[
        "None reward",
        "shape",
        "wider",
        "narrower",
        "dict",
        "list",
    ],
)
@serial_and_threads
def test_a_time_step_that_does_not_fit_names_its_environment(
    multithreading, change, place, expected, got, reason
):
    envs = [CountingEnv(), CountingEnv(), Changing(change)]
    text = (
        f"env 2 (Changing) returned a time step that does not fit its spec{place}.\n\n"
        f"  expected   {expected}\n"
        f"  got        {got}\n\n"
        f"{reason}"
    )
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        assert (SpecError, text) == told(batch.step, [0, 0, 0])


def test_a_foreign_environment_that_returns_none_is_named():
    class Foreign:
        """Is no PyEnvironment, but has what one has."""

        def __init__(self):
            self._env = CountingEnv()

        def __getattr__(self, name):
            return getattr(self._env, name)

        def step(self, action):
            return None

    batch = BatchedPyEnvironment([CountingEnv(), Foreign()], multithreading=False)
    batch.reset()
    expected = (
        "env 1 (Foreign) returned a time step that does not fit its spec.\n\n"
        f"  expected   {TIME_STEP}\n"
        "  got        None\n\n"
        "The value is None; a namedtuple TimeStep is expected. Did a return statement "
        "get lost?"
    )

    assert (SpecError, expected) == told(batch.step, [0, 0])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda time_step: (time_step.observation, 1.0, False, {}),
            "a tuple of 4 elements, not a TimeStep. Build it with envkit.restart, "
            "transition, termination or truncation.",
        ),
        (
            lambda _: None,
            "None, not a TimeStep. Did a return statement get lost?",
        ),
    ],
    ids=["tuple", "None"],
)
def test_the_environment_refuses_results_that_are_no_time_step(change, text):
    batch = BatchedPyEnvironment([CountingEnv(), Changing(change)], False)
    batch.reset()
    assert (SpecError, f"Changing._step() returned {text}") == told(batch.step, [0, 0])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"observation_spec": lambda self: None},
            "Wrong.observation_spec() returned None, not an ArraySpec. Did a return "
            "statement get lost?",
        ),
        (
            {"action_spec": lambda self: {"go": [np.float32]}},
            "Wrong.action_spec() returned <class 'numpy.float32'> at ['go'][0], not an "
            "ArraySpec.",
        ),
        (
            {"observation_spec": ArraySpec((), np.int32)},
            "Wrong.observation_spec is an ArraySpec; it has to be a method that "
            "returns one.",
        ),
    ],
    ids=["None", "a dtype", "no method"],
)
def test_missing_specs_are_refused(change, text):
    wrong = type("Wrong", (CountingEnv,), change)
    assert (TypeError, text) == told(lambda: BatchedPyEnvironment([wrong()]))


def test_a_time_step_that_lacks_a_key_names_its_environment_and_place():
    class Forgetful(NestedCountingEnv):
        def _observe(self):
            return {"total_steps": np.array(0, np.int32)}

    envs = [NestedCountingEnv(), Forgetful()]
    batch = BatchedPyEnvironment(envs, multithreading=False)
    expected = (
        "env 1 (Forgetful) returned a time step that does not fit its spec at "
        "observation.\n\n"
        "  expected   the structure {'total_steps': *, 'current_steps': *}\n"
        "  got        a dict of 1 element\n\n"
        "Key 'current_steps' is missing. The other 3 leaves fit."
    )
    assert (SpecError, expected) == told(batch.reset)


def test_a_shape_that_all_environments_get_wrong_blames_the_first():
    def change(time_step):
        return time_step._replace(observation=np.zeros(3, np.int32))

    batch = BatchedPyEnvironment([Changing(change), Changing(change)], False)
    batch.reset()
    kind, text = told(batch.step, [0, 0])
    assert SpecError is kind
    assert text.startswith("env 0 (Changing) returned a time step that does not fit")


# Environments that fail.


@serial_and_threads
def test_when_one_environment_fails_the_others_have_stepped(multithreading):
    envs = [CountingEnv(), CrashingEnv(crash_at=1), CountingEnv(steps_per_episode=1)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        with pytest.raises(RuntimeError) as raised:
            batch.step([0, 0, 0])
        now = batch.current_time_step()
    assert "CrashingEnv was told to raise in step 1." == str(raised.value)
    assert ["Raised by env 1 of a BatchedPyEnvironment in step()."] == (
        raised.value.__notes__
    )
    assert [1, 0, 1] == now.observation.tolist()
    assert [1, 0, 2] == now.step_type.tolist()


@serial_and_threads
def test_after_a_failure_no_environment_is_stepped_beyond_its_end(multithreading):
    class Failing(Endless):
        def _step(self, action):
            time_step = super()._step(action)
            if action:
                raise OSError("told to")
            return time_step

    envs = [Failing(5), Endless(1), Endless(2)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        told(batch.step, [1, 0, 0])
        after = batch.step([0, 0, 0])
    assert [0, 2] == after.step_type[1:].tolist()


@serial_and_threads
def test_the_batch_continues_after_a_failure(multithreading):
    envs = [CountingEnv(), CrashingEnv(crash_at=2)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        batch.step([0, 0])
        told(batch.step, [0, 0])
        assert [3, 2] == batch.step([0, 0]).observation.tolist()
        assert [0, 0] == batch.reset().observation.tolist()


@serial_and_threads
@pytest.mark.parametrize("mask", [None, [False, True]], ids=["all", "masked"])
def test_a_failure_in_reset_leaves_the_batch_usable(multithreading, mask):
    envs = [CountingEnv(), CrashingEnv(crash_at=2, where="reset")]
    begun = 0 if mask is None else 1
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        batch.step([0, 0])
        assert (RuntimeError, "CrashingEnv was told to raise in reset 2.") == told(
            batch.reset, mask
        )
        assert [begun, 1] == batch.current_time_step().observation.tolist()
        assert [begun + 1, 2] == batch.step([0, 0]).observation.tolist()


@serial_and_threads
def test_a_failure_in_the_first_reset_is_followed_by_another_first(multithreading):
    envs = [CountingEnv(), CrashingEnv(crash_at=1, where="reset")]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        told(batch.reset)
        assert CallOrderError is told(batch.current_time_step)[0]
        assert [0, 0] == batch.step([1, 1]).step_type.tolist()


class TwoArguments(Exception):
    """An exception that cannot be rebuilt from its message."""

    def __init__(self, code, *, place):
        super().__init__(f"{code} in {place}")


@serial_and_threads
def test_the_original_error_is_raised_with_one_note(multithreading):
    failure = TwoArguments(7, place="arena")

    class Failing(CountingEnv):
        def _step(self, action):
            raise failure

    with BatchedPyEnvironment([Failing()], multithreading) as batch:
        batch.reset()
        for _ in range(3):
            with pytest.raises(TwoArguments) as raised:
                batch.step([0])
    assert raised.value is failure
    assert ["Raised by env 0 of a BatchedPyEnvironment in step()."] == failure.__notes__


@pytest.mark.parametrize(
    ("rows", "others"),
    [
        ([1], "1 other environment failed too:"),
        ([1, 3], "2 other environments failed too:"),
    ],
)
@serial_and_threads
def test_the_note_names_all_environments_that_failed(multithreading, rows, others):
    envs = [CrashingEnv() if row in (0, *rows) else CountingEnv() for row in range(4)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        with pytest.raises(RuntimeError) as raised:
            batch.step([0, 0, 0, 0])
    lines = [
        f"Raised by env 0 of a BatchedPyEnvironment in step(). {others}",
        *(
            f"  env {row} raised RuntimeError: CrashingEnv was told to raise in step 1."
            for row in rows
        ),
    ]
    assert ["\n".join(lines)] == raised.value.__notes__


def test_errors_without_notes_are_raised_too():
    @dataclasses.dataclass(frozen=True)
    class Frozen(Exception):
        code: int

    class Failing(CountingEnv):
        def _step(self, action):
            raise Frozen(7)

    batch = BatchedPyEnvironment([Failing()], multithreading=False)
    batch.reset()
    with pytest.raises(Frozen) as raised:
        batch.step([0])
    assert 7 == raised.value.code


@pytest.mark.own_process
def test_an_interrupted_step_finishes_before_the_next_call_begins(interruptible):
    """Ctrl-C reaches the caller while one environment is still in its step."""
    overlaps = []
    released = threading.Event()

    class Busy(CountingEnv):
        inside = False

        def _step(self, action):
            self.inside = True
            released.wait(0.3)
            self.inside = False
            return super()._step(action)

        def _reset(self):
            overlaps.append(self.inside)
            return super()._reset()

    class Interrupting(CountingEnv):
        def _step(self, action):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return super()._step(action)

    with BatchedPyEnvironment([Busy(), Interrupting()]) as batch:
        batch.reset()

        assert KeyboardInterrupt is told(batch.step, [0, 0])[0]
        assert [0, 0] == batch.reset().observation.tolist()
        released.set()

    assert [False, False] == overlaps


# Info, pictures, seeds.


class Informed(CountingEnv):
    """Has the info that a test gives it."""

    def __init__(self, info):
        super().__init__()
        self._info = info

    def get_info(self):
        return self._info


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ([{}, {}], {}),
        ([{"a": 1}, {"a": 2}], {"a": [1, 2]}),
        ([{"a": (1, [2.0])}, {"a": (3, [4.0])}], {"a": ([1, 3], [[2.0, 4.0]])}),
        ([3.0, 4.0], [3.0, 4.0]),
        ([None, None], [None, None]),
    ],
    ids=repr,
)
def test_infos_of_one_structure_are_stacked(infos, expected):
    batch = BatchedPyEnvironment([Informed(info) for info in infos], False)
    actual = nest.map_structure(
        lambda leaf: leaf.tolist() if isinstance(leaf, np.ndarray) else leaf,
        batch.get_info(),
    )
    assert expected == actual


@pytest.mark.parametrize(
    "infos",
    [
        [{"a": 1}, {"b": 1}],
        [{"a": np.zeros(2)}, {"a": np.zeros(3)}],
        [{"a": 1}, None],
        [None, {"a": 1}],
        [{"a": 1, 2: 3}, {"a": 1, 2: 3}],
        [{"a": 1}, {"a": "x"}],
        [{"a": 2**53 + 1}, {"a": 0.5}],
    ],
    ids=[
        "keys",
        "shapes",
        "dict and None",
        "None and dict",
        "keys without an order",
        "number and text",
        "whole and broken numbers",
    ],
)
def test_infos_that_do_not_stack_are_a_list_with_one_for_each_row(infos):
    batch = BatchedPyEnvironment([Informed(info) for info in infos], False)
    actual = batch.get_info()
    assert isinstance(actual, list)
    assert all(own is given for own, given in zip(infos, actual, strict=True))


@serial_and_threads
def test_infos_come_in_the_order_of_rows(multithreading):
    envs = [Dice(seed) for seed in range(3)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        assert [env._left for env in envs] == batch.get_info()["left"].tolist()


def test_pictures_are_stacked():
    batch = BatchedPyEnvironment([CountingEnv(2), CountingEnv(4)], False)
    batch.reset()
    batch.step([0, 0])
    pictures = batch.render()
    assert ((2, 8, 8, 3), np.uint8) == (pictures.shape, pictures.dtype)
    assert [127, 63] == pictures[:, 0, 0, 0].tolist()


def test_other_kinds_of_pictures_are_a_list():
    class Writing(CountingEnv):
        def render(self, mode="rgb_array"):
            return f"{mode} of {self._current_step}"

    batch = BatchedPyEnvironment([Writing(), Writing()], False)
    batch.reset()
    assert ["ansi of 0", "ansi of 0"] == batch.render("ansi")


def test_an_unknown_render_mode_raises_the_environments_own_error():
    batch = counting()
    batch.reset()
    expected = "Only rgb_array is rendered by CountingEnv, not 'human'."
    assert (NotImplementedError, expected) == told(batch.render, "human")


@serial_and_threads
def test_one_seed_gives_every_row_a_different_seed(multithreading):
    with BatchedPyEnvironment([Dice() for _ in range(4)], multithreading) as batch:
        given_seeds = batch.seed(7)
        sums = batch.reset().observation["noise"][:, 0].tolist()
    assert seed_per_row(7, 4) == given_seeds
    assert 4 == len(set(sums))


def test_equal_seeds_and_actions_give_equal_streams():
    streams = []
    for seed in (7, 7, 8, [8, None]):
        batch = BatchedPyEnvironment([Dice(), Dice()], multithreading=False)
        given_seeds = batch.seed(seed)
        streams.append([bits(batch.step([1, 2])) for _ in range(12)])
    assert streams[0] == streams[1]
    assert streams[0] != streams[2]
    assert [8, None] == given_seeds
    assert [None, None] == batch.seed(None)


@pytest.mark.parametrize(
    ("seeds", "count"), [([1], "1 seed"), ([1, 2, 3], "3 seeds"), ([], "0 seeds")]
)
def test_a_list_of_seeds_of_another_length_is_refused(seeds, count):
    expected = (
        f"{count} for 2 environments. Pass one seed for each environment, or one "
        "integer from which each gets its own."
    )
    assert (ValueError, expected) == told(counting().seed, seeds)


# State.


@serial_and_threads
@settings(max_examples=20)
@given(data=st.data())
def test_setting_a_state_is_the_identity_on_the_future(multithreading, data):
    row = st.lists(st.integers(0, 9), min_size=2, max_size=2)
    before, between, after = (data.draw(st.lists(row, max_size=8)) for _ in range(3))
    after = [*after, [1, 2]]
    with BatchedPyEnvironment([Dice(1), Dice(2)], multithreading) as batch:
        batch.reset()
        for action in before:
            batch.step(action)
        now = bits(batch.current_time_step())
        token = batch.get_state()
        future = [bits(batch.step(action)) for action in after]
        for action in between:
            batch.step(action)
        batch.set_state(token)

        assert now == bits(batch.current_time_step())
        assert future == [bits(batch.step(action)) for action in after]


def test_a_state_is_a_list_with_one_token_for_each_environment():
    batch = counting(rows=3)
    batch.reset()
    batch.step([0, 0, 0])
    assert [(0, 1)] * 3 == [token.environment for token in batch.get_state()]


def test_a_state_from_before_the_first_reset_restores_that_too():
    batch = counting()
    token = batch.get_state()
    batch.reset()
    batch.step([0, 0])
    batch.set_state(token)
    assert CallOrderError is told(batch.current_time_step)[0]
    assert [0, 0] == batch.step([0, 0]).step_type.tolist()


def test_states_of_environments_can_be_put_into_other_rows():
    """One state in every row: branching."""
    batch = BatchedPyEnvironment([Dice(1), Dice(2), Dice(3)], multithreading=False)
    batch.reset()
    batch.step([1, 1, 1])
    middle = batch.get_state()[1]
    batch.set_state((middle, middle, middle))
    time_step = batch.step([4, 4, 4])
    assert 1 == len(set(time_step.observation["sum"].tolist()))


@pytest.mark.parametrize(
    ("state", "got"),
    [
        ([1], "a list of 1 element"),
        ([1, 2, 3], "a list of 3 elements"),
        ((), "a tuple of 0 elements"),
        (None, "None"),
        (7, "7 of type int"),
        ({0: 1, 1: 2}, "a dict of 2 elements"),
    ],
    ids=repr,
)
def test_a_state_of_another_length_changes_nothing(state, got):
    batch = counting()
    first = batch.reset()
    expected = (
        f"BatchedPyEnvironment.set_state() was given {got}; it takes a list with one "
        "state for each of 2 environments."
    )
    assert (ValueError, expected) == told(batch.set_state, state)
    assert batch.current_time_step() is first
    assert [(0, 0), (0, 0)] == [token.environment for token in batch.get_state()]


@serial_and_threads
def test_a_state_that_one_environment_refuses_changes_nothing(multithreading):
    with counting(rows=3, multithreading=multithreading) as batch:
        batch.reset()
        good = batch.get_state()
        now = batch.step([0, 0, 0])
        expected = (
            "CountingEnv.set_state() was given the string 'broken'; it takes what "
            "get_state() returned."
        )
        assert (TypeError, expected) == told(
            batch.set_state, [good[0], "broken", good[2]]
        )
        assert batch.current_time_step() is now
        assert [2, 2, 2] == batch.step([0, 0, 0]).observation.tolist()


def test_a_state_whose_time_step_does_not_fit_changes_nothing():
    batch = counting()
    batch.reset()
    good = batch.get_state()
    now = batch.step([0, 0])
    wide = good[1].time_step._replace(observation=np.zeros(3, np.int32))
    bad = [good[0], good[1]._replace(time_step=wide)]
    assert told(batch.set_state, bad)[0] is SpecError
    assert batch.current_time_step() is now
    assert [2, 2] == batch.step([0, 0]).observation.tolist()


@pytest.mark.parametrize("stubborn", [0, 1, 2])
def test_rows_are_restored_even_if_one_environment_refuses_every_state(
    stubborn,
):
    class Stubborn(CountingEnv):
        def _set_state(self, state):
            raise OSError("read only")

    envs = [CountingEnv(), CountingEnv(), CountingEnv()]
    envs[stubborn] = Stubborn()
    batch = BatchedPyEnvironment(envs, multithreading=False)
    batch.reset()
    then = batch.get_state()
    batch.step([0, 0, 0])
    assert (OSError, "read only") == told(batch.set_state, then)
    assert [1, 1, 1] == [token.environment[1] for token in batch.get_state()]


def test_an_impossible_state_is_refused_before_any_row_changes():
    class Stateless(CountingEnv):
        def _get_state(self):
            return PyEnvironment._get_state(self)

    source = counting()
    source.step([0, 0])
    batch = BatchedPyEnvironment([CountingEnv(), Stateless()], multithreading=False)
    batch.reset()
    batch.step([0, 0])
    expected = (
        "Stateless cannot save its state: override _get_state() and _set_state()."
    )
    assert (NotImplementedError, expected) == told(batch.get_state)
    assert (NotImplementedError, expected) == told(batch.set_state, source.get_state())
    assert 1 == batch.envs[0].current_time_step().observation


def test_environments_with_their_own_state_tokens_are_asked_for_them():
    class OwnTokens(CountingEnv):
        value = 0

        def get_state(self):
            return {"value": self.value}

        def set_state(self, state):
            self.value = state["value"]

    batch = BatchedPyEnvironment([OwnTokens(), OwnTokens()], multithreading=False)
    batch.set_state([{"value": 10}, {"value": 20}])
    assert [{"value": 10}, {"value": 20}] == batch.get_state()


# Closing.


@serial_and_threads
def test_closing_closes_every_environment_once(multithreading):
    class Closing(CountingEnv):
        closed = 0

        def close(self):
            self.closed += 1

    envs = [Closing(), Closing()]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
    batch.close()
    assert [1, 1] == [env.closed for env in envs]


def test_closing_ends_the_threads():
    def threads():
        return {
            thread
            for thread in threading.enumerate()
            if thread.name.startswith("BatchedPyEnvironment")
        }

    before = threads()
    batch = counting(rows=3, multithreading=True)
    batch.reset()
    batch.close()
    # Those of a batch that an earlier test has dropped may end in the meantime.
    assert threads() <= before


@serial_and_threads
def test_closing_continues_if_one_environment_fails(multithreading):
    class Closing(CountingEnv):
        closed = False

        def close(self):
            self.closed = True

    envs = [CrashingEnv(where="close"), Closing()]
    batch = BatchedPyEnvironment(envs, multithreading)
    assert (RuntimeError, "CrashingEnv was told to raise in close 1.") == told(
        batch.close
    )
    assert envs[1].closed
    batch.close()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("reset", lambda batch: batch.reset()),
        ("reset", lambda batch: batch.reset([True, False])),
        ("step", lambda batch: batch.step([0, 0])),
        ("render", lambda batch: batch.render()),
        ("seed", lambda batch: batch.seed(1)),
        ("get_info", lambda batch: batch.get_info()),
        ("get_state", lambda batch: batch.get_state()),
        ("set_state", lambda batch: batch.set_state([1, 2])),
    ],
    ids=[
        "reset",
        "masked reset",
        "step",
        "render",
        "seed",
        "get_info",
        "get_state",
        "set_state",
    ],
)
def test_a_closed_batch_stays_closed(name, call):
    batch = counting()
    batch.reset()
    batch.close()
    expected = (
        f"BatchedPyEnvironment.{name}() was called after close(). A closed environment "
        "stays closed: make a new one."
    )
    assert (ClosedError, expected) == told(call, batch)


# What a batch is not made of.

ONE = CountingEnv()


@pytest.mark.parametrize(
    ("envs", "kind", "expected"),
    [
        ([], ValueError, "envs must have at least one environment, got none."),
        ((), ValueError, "envs must have at least one environment, got none."),
        (
            None,
            ValueError,
            "envs must be a list or tuple of environments, got None.",
        ),
        (
            4,
            ValueError,
            "envs must be a list or tuple of environments, got 4 of type int.",
        ),
        (
            CountingEnv(),
            ValueError,
            "envs must be a list or tuple of environments, got a CountingEnv object.",
        ),
        (
            iter([CountingEnv()]),
            ValueError,
            "envs must be a list or tuple of environments, got a list_iterator object.",
        ),
        (
            gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"),
            ValueError,
            "envs must be a list or tuple of environments, got a SyncVectorEnv object. "
            "envkit.make(envs) wraps it.",
        ),
        (
            [CountingEnv(), CountingEnv],
            TypeError,
            "envs[1] is the class CountingEnv; BatchedPyEnvironment takes environments "
            "that exist already: CountingEnv().",
        ),
        (
            [lambda: CountingEnv()],
            TypeError,
            "envs[0] is a function object, not an environment. Did you mean to call "
            "it?",
        ),
        (
            [constructor(CountingEnv)],
            TypeError,
            "envs[0] is a Constructor object, not an environment. Did you mean to call "
            "it?",
        ),
        ([CountingEnv(), None], TypeError, "envs[1] is None, not an environment."),
        (
            ["CartPole"],
            TypeError,
            "envs[0] is the string 'CartPole', not an environment. Did you mean "
            "make('CartPole')?",
        ),
        (
            [CountingEnv(), counting()],
            ValueError,
            "envs[1] (BatchedPyEnvironment) is batched already; a BatchedPyEnvironment "
            "is made of single environments.",
        ),
        (
            [ONE, CountingEnv(), ONE],
            ValueError,
            "envs[0] and envs[2] are the same object. Each row needs an environment of "
            "its own: [make_env() for _ in range(n)].",
        ),
    ],
    ids=[
        "empty list",
        "empty tuple",
        "None",
        "number",
        "one environment",
        "iterator",
        "vector environment",
        "class",
        "lambda",
        "constructor",
        "None inside",
        "name",
        "batch",
        "twice",
    ],
)
def test_anything_but_a_list_of_environments_is_refused(envs, kind, expected):
    assert (kind, expected) == told(BatchedPyEnvironment, envs)


def test_specs_that_disagree_are_shown_side_by_side():
    class Level(CountingEnv):
        def __init__(self, actions):
            super().__init__()
            self._actions = actions

        def action_spec(self):
            return BoundedArraySpec((), np.int64, 0, self._actions - 1)

    envs = [Level(6), Level(6), Level(18)]
    expected = (
        "env 0 and env 2 have different action specs, so they cannot form one batch."
        "\n\n"
        "  env 0    BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=5)    "
        "Level\n"
        "  env 2    BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=17)    "
        "Level\n\n"
        "The maximum differs: 5 and 17. Observation, reward and discount specs agree.\n"
        'specs="union" makes one batch, with the widest bounds.'
    )

    assert (SpecMismatchError, expected) == told(BatchedPyEnvironment, envs)


@pytest.mark.parametrize(
    ("method", "spec", "part"),
    [
        ("observation_spec", ArraySpec((3,), np.int32), "observation"),
        ("action_spec", {"a": ArraySpec((), np.int32)}, "action"),
        ("reward_spec", ArraySpec((2,), np.float32), "reward"),
        ("discount_spec", ArraySpec((), np.float64), "discount"),
    ],
)
def test_every_spec_must_agree(method, spec, part):
    other = type("Other", (CountingEnv,), {method: lambda self: spec})
    with pytest.raises(SpecMismatchError) as raised:
        BatchedPyEnvironment([CountingEnv(), other()])
    assert ((0, 1), part) == (raised.value.envs, raised.value.part)


# Stacking and unstacking.


@pytest.mark.parametrize(
    ("actions", "rows"),
    [
        (np.array([[1, 2], [3, 4], [5, 6]]), [[1, 2], [3, 4], [5, 6]]),
        (Move(np.array([1, 2]), np.array([3, 4])), [Move(1, 3), Move(2, 4)]),
        (
            {"b": np.array([1, 2]), "a": (np.array([[3], [4]]),)},
            [{"b": 1, "a": ([3],)}, {"b": 2, "a": ([4],)}],
        ),
    ],
    ids=["array", "namedtuple", "dict"],
)
def test_unstacking_gives_one_nest_for_each_row(actions, rows):
    plain = functools.partial(nest.map_structure, lambda leaf: leaf.tolist())
    assert rows == [plain(row) for row in unstack_actions(actions)]


NO_ROWS = (
    "unstack_actions() was given {}, which has no rows. Each leaf is an array with one "
    "row for each environment."
)


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        (
            np.array(3),
            NO_ROWS.format("array of shape (), dtype int64, values 3 … 3"),
        ),
        ({"a": np.zeros(2), "b": 5}, NO_ROWS.format("5 of type int at actions['b']")),
        ([1, 2], NO_ROWS.format("1 of type int at actions[0]")),
        (None, NO_ROWS.format("None")),
        (
            {"a": np.zeros(2), "b": np.zeros(3)},
            "The leaves of the actions have different numbers of rows: [2, 3].",
        ),
    ],
    ids=["scalar", "scalar inside", "list", "None", "lengths"],
)
def test_unstacking_a_nest_without_rows_is_refused(actions, expected):
    assert (SpecError, expected) == told(unstack_actions, actions)


@serial_and_threads
def test_a_batch_in_use_can_be_copied(multithreading):
    with counting(multithreading=multithreading) as batch:
        batch.reset()
        with copy.deepcopy(batch) as copied:
            batch.step([0, 0])
            assert [1, 1] == copied.step([0, 0]).observation.tolist()


def test_the_action_of_a_row_that_ended_may_be_anything():
    batch = BatchedPyEnvironment([CountingEnv(1), CountingEnv(9)], False)
    batch.reset()
    batch.step([0, 0])
    assert [0, 1] == batch.step([-1, 1]).step_type.tolist()
    with pytest.raises(SpecError, match="1 of 2 elements is below the minimum 0"):
        batch.step([-1, 1])
