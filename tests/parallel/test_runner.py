"""What happens to an environment when its row says STEP, RESET or REBUILD."""

from __future__ import annotations

import dataclasses
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import PyEnvironment, StepType, restart, termination, transition
from envkit.parallel.messages import Hello, RemoteFailure, Request, WorkerJob
from envkit.parallel.options import PoolOptions
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import (
    DISABLED_ORDER,
    NEXT_STEP_ORDER,
    RAISED,
    REBUILD,
    RESET,
    RESETS,
    SAME_STEP_ORDER,
    SAME_STEP_SLOT,
    STEP,
    STEPS,
    SlabLayout,
    slot_of,
)
from envkit.parallel.worker import runner as runner_module
from envkit.parallel.worker.runner import EnvRunner
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.testing import CountingEnv, CrashingEnv

FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)
ACTION = ArraySpec((), np.int64)


class PairEnv(PyEnvironment):
    """Observes its episode, counted from 1, and its step, as one small array.

    In the calls `raises_in`, counted over its life, it raises or leaves the process.
    """

    def __init__(self, length=3, raises_in=(), exits_in=()):
        super().__init__()
        self.length, self.raises_in, self.exits_in = length, raises_in, exits_in
        self.calls = self.episode = self.steps = 0
        self.actions = []

    def observation_spec(self):
        return ArraySpec((2,), np.int32)

    def action_spec(self):
        return ACTION

    def get_info(self):
        return {"episode": self.episode, "step": self.steps}

    def _observe(self):
        return np.array([self.episode, self.steps], np.int32)

    def _count(self):
        self.calls += 1
        if self.calls in self.raises_in:
            raise ValueError(f"call {self.calls}")
        if self.calls in self.exits_in:
            sys.exit(f"call {self.calls}")

    def _reset(self):
        self._count()
        self.episode, self.steps = self.episode + 1, 0
        return restart(self._observe())

    def _step(self, action):
        self.actions.append(action)
        self._count()
        self.steps += 1
        if self.steps < self.length:
            return transition(self._observe(), reward=float(action))
        return termination(self._observe(), reward=float(action))

    def _get_state(self):
        return self.episode, self.steps

    def _set_state(self, state):
        self.episode, self.steps = state


class ParcelEnv(PairEnv):
    """The same with a dictionary as observation and as action."""

    def observation_spec(self):
        return {"pair": ArraySpec((2,), np.int32)}

    def action_spec(self):
        return {"force": ACTION}

    def _observe(self):
        return {"pair": super()._observe()}

    def _step(self, action):
        return super()._step(action["force"])


class BatchEnv(PyEnvironment):
    """A batch, each row of which is one `PairEnv` and ends when that ends."""

    def __init__(self, lengths=(2, 3), raises_in_reset_rows=False):
        super().__init__(handle_auto_reset=True)
        self._envs = [PairEnv(length) for length in lengths]
        self._raises = raises_in_reset_rows
        self.calls = []

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return len(self._envs)

    def observation_spec(self):
        return ArraySpec((2,), np.int32)

    def action_spec(self):
        return ACTION

    def get_info(self):
        return [env.get_info() for env in self._envs]

    def _stacked(self, time_steps):
        return type(time_steps[0])(
            *(np.stack(column) for column in zip(*time_steps, strict=True))
        )

    def _reset(self):
        self.calls.append("reset")
        return self._stacked([env.reset() for env in self._envs])

    def _step(self, action):
        self.calls.append("step")
        pairs = zip(self._envs, action, strict=True)
        return self._stacked([env.step(part) for env, part in pairs])

    def _reset_rows(self, mask):
        self.calls.append(f"reset {np.flatnonzero(mask).tolist()}")
        if self._raises:
            raise ValueError("no rows")
        return self._stacked(
            [
                env.reset() if masked else env.current_time_step()
                for env, masked in zip(self._envs, mask, strict=True)
            ]
        )


# How rows come to a runner: all of a worker at once, or one after the other, with a
# carrier that is told of each. Those are different loops.
WAYS = ["together", "one by one"]
each_way = pytest.mark.parametrize("way", WAYS)
each_kind = pytest.mark.parametrize("kind", [PairEnv, ParcelEnv])


@dataclasses.dataclass
class Rig:
    """A runner that has the rows from 2 on; rows 0 and 1 are another worker's."""

    runner: EnvRunner
    slab: Slab
    failures: dict[int, RemoteFailure]

    @property
    def envs(self):
        return self.runner._host.envs

    @property
    def rows(self):
        return np.arange(2, self.slab.layout.rows)

    @property
    def answered(self):
        """Which rows have answered or raised."""
        return [mark <= RAISED for mark in self.slab.numbers ^ self.slab.answers][2:]

    @property
    def slot(self):
        """The slot of the first row's answer."""
        return slot_of(int(self.slab.numbers[2]))

    def ask(self, command, rows=None, actions=None):
        rows = self.rows if rows is None else np.array(rows)
        if actions is not None:
            for column in self.slab.action_columns():
                column[rows] = actions
        self.slab.request(rows, np.array(command, np.uint8))

    def do(self, command, rows=None, actions=None):
        """Asks rows for something, and returns what they answer."""
        self.ask(command, rows, actions)
        self.failures.clear()
        self.runner.run_pending()
        return self.answers(rows)

    def answer(self, row, slot=None):
        """Returns what a row says: "raised", or step type, reward and observation."""
        if self.slab.answers[row] & RAISED:
            return "raised"
        slot = slot_of(int(self.slab.numbers[row])) if slot is None else slot
        leaves = [array[slot, row] for array in self.slab._steps]
        return int(leaves[0]), float(leaves[1]), np.asarray(leaves[3]).tolist()

    def answers(self, rows=None):
        return [self.answer(row) for row in (self.rows if rows is None else rows)]

    def firsts(self):
        return [self.answer(row, SAME_STEP_SLOT) for row in self.rows]


def rig(*makers, way="together", validate="first", order=NEXT_STEP_ORDER, passes=()):
    """Builds environments and lays their rows out behind those of another worker."""
    runner = EnvRunner(
        WorkerJob(1, 2, makers, options=PoolOptions(validate=validate)), passes
    )
    hello = runner.build()
    assert isinstance(hello, Hello), hello
    rows = sum(size or 1 for size in hello.batch_sizes)
    slab = Slab(SlabLayout(hello.specs[0], ((0, 2), (2, 2 + rows))))
    slab.autoreset = order
    # Not far from where the numbers begin again, and in the slot of an odd request.
    slab.stand_at(slice(None), 2**32 - 6)
    runner.bind(slab, 1)
    failures = {}

    def tell_failure(rows, failure):
        for row in rows:
            assert slab.owing_rows()[row], "told after the row was marked"
            failures[row] = failure

    runner.tell_failure = tell_failure
    if way == "one by one":
        runner.after_row = lambda: None
    return Rig(runner, slab, failures)


def facts(failure):
    """Returns what a failure says but for its traceback."""
    return (
        failure.kind,
        failure.env,
        failure.command,
        failure.type_name,
        failure.message,
    )


# Commands.


@each_way
def test_a_batch_waits_for_its_whole_request(way):
    pool = rig(BatchEnv, way=way)
    pool.do(RESET)
    pool.slab.asking[0] += 1
    pool.slab._command[pool.rows] = STEP
    pool.slab._sequence[2] += 2
    # A ring for the request before, which is heard now.
    worker = threading.Thread(target=pool.runner.run_pending)
    worker.start()
    pool.slab._sequence[3] += 2
    pool.slab.announcements[0] += 1
    worker.join()

    assert ["reset", "step"] == pool.envs[0].calls
    assert {} == pool.failures
    assert [MID, MID] == [step_type for step_type, *_ in pool.answers()]


def test_a_first_step_without_a_reset_reaches_the_environment():
    pool = rig(CountingEnv)
    assert [(FIRST, 0.0, 0)] == pool.do(STEP)


def test_without_a_request_nothing_is_run():
    pool = rig(PairEnv)
    assert 0 == pool.runner.run_pending()
    assert 0 == pool.envs[0].calls


def test_runs_and_steps_are_counted():
    pool = rig(lambda: PairEnv(2), lambda: PairEnv(9), BatchEnv)
    pool.do(RESET)
    pool.do(STEP)
    pool.do(STEP)
    pool.do([STEP, RESET, STEP, STEP])

    steps, resets = (int(pool.slab.counter(which)[1]) for which in (STEPS, RESETS))
    assert 16 == steps
    # Those whose episode had ended began anew, in the batch, too.
    assert 4 + 1 + 1 + 1 == resets
    assert not any(pool.slab.counters(0))


# The end of an episode.


@each_way
def test_the_order_can_change_between_steps(way):
    pool = rig(lambda: PairEnv(1), way=way)
    pool.do(RESET)
    pool.do(STEP, actions=[1])
    pool.slab.autoreset = SAME_STEP_ORDER
    first = pool.do(STEP, actions=[2])
    last = pool.do(STEP, actions=[3])

    assert [(FIRST, 0.0, [2, 0])] == first
    assert [(LAST, 3.0, [2, 1])] == last
    assert [(FIRST, 0.0, [3, 0])] == pool.firsts()


def ask(pool, method, *arguments, envs=(2,)):
    request = Request(7, method, envs, arguments or (None,) * len(envs))
    reply = pool.runner.handle(request)
    assert 7 == reply.number
    return reply.results


def test_the_info_of_a_batch_belongs_to_its_last_step():
    pool = rig(lambda: BatchEnv([2, 2]), order=SAME_STEP_ORDER)
    pool.do(RESET)
    pool.do(STEP, actions=[1, 1])
    pool.do(STEP, actions=[1, 1])
    at_the_end = ask(pool, "get_info")
    pool.do(STEP, actions=[1, 1])

    assert ([{"episode": 1, "step": 2}] * 2,) == at_the_end
    assert ([{"episode": 2, "step": 1}] * 2,) == ask(pool, "get_info")


@pytest.mark.parametrize(
    ("command", "episode"), [(RESET, 3), (REBUILD, 1), ("set_state", 1)]
)
def test_the_info_of_an_end_is_dropped_with_the_next_step(command, episode):
    pool = rig(lambda: PairEnv(1), order=SAME_STEP_ORDER)
    pool.do(RESET)
    (state,) = ask(pool, "get_state")
    pool.do(STEP, actions=[1])
    if command == "set_state":
        ask(pool, command, (state, [False]))
    else:
        pool.do(command)

    assert ({"episode": episode, "step": 0},) == ask(pool, "get_info")


# Failures.


@each_way
def test_a_failure_keeps_the_previous_time_step_whole(way):
    pool = rig(lambda: PairEnv(raises_in=(3,)), way=way)
    pool.do(RESET)
    pool.do(STEP, actions=[5])
    slot = pool.slot
    failed = pool.do(STEP, actions=[6])
    pool.slab.commit(2)

    assert ["raised"] == failed
    assert (MID, 5.0, [1, 1]) == pool.answer(2, slot)


def test_a_failure_carries_the_exception_and_its_traceback():
    pool = rig(lambda: PairEnv(raises_in=(1,)))
    pool.do(RESET)
    failure = pool.failures[2]
    assert ("call 1",) == failure.original().args
    assert "in _count\n" in failure.traceback
    assert failure.traceback.endswith("ValueError: call 1\n")


def test_rebuilding_continues_after_a_constructor_raised():
    made = []

    def make():
        made.append(len(made))
        if len(made) == 2:
            raise OSError("no level")
        return PairEnv()

    pool = rig(make, PairEnv)
    pool.do(RESET)
    failed = pool.do([REBUILD, STEP], actions=[1, 1])
    failure = pool.failures[2]

    assert ["raised", (MID, 1.0, [1, 1])] == failed
    assert ("raised", 2, "rebuild", "OSError", "no level") == facts(failure)
    assert [(FIRST, 0.0, [1, 0])] == pool.do(REBUILD, rows=[2])


@each_way
@each_kind
@pytest.mark.parametrize("where", ["_step", "_reset", "get_info"])
def test_exceptions_of_the_worker_are_raised(way, kind, where):
    class CarriersOwn(BaseException):
        pass

    def fail(*args):
        raise CarriersOwn

    pool = rig(lambda: kind(1), way=way, passes=(CarriersOwn,), order=SAME_STEP_ORDER)
    pool.do(RESET)
    setattr(pool.envs[0], where, fail)

    with pytest.raises(CarriersOwn):
        pool.do(STEP, actions=[1])
    assert [False] == pool.answered
    assert {} == pool.failures


class Grudging:
    """Has a shape, but cannot be made an array."""

    shape = (2,)
    ndim = 1

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("it requires a gradient")


@each_way
@pytest.mark.parametrize(
    ("changed", "type_name"),
    [
        ({"observation": Grudging()}, "RuntimeError"),
        ({"reward": np.array(1e300)}, "FloatingPointError"),
    ],
    ids=["no array", "a large number"],
)
def test_a_value_that_cannot_be_written_is_its_own_environments_failure(
    way, changed, type_name
):
    def answering():
        return Answering(restart(GOOD), transition(GOOD, 0.0)._replace(**changed))

    pool = rig(PairEnv, answering, PairEnv, way=way, validate="never")
    pool.do(RESET)
    with np.errstate(over="raise"):
        answers = pool.do(STEP, actions=[1, 2, 3])

    assert [(MID, 1.0, [1, 1]), "raised", (MID, 3.0, [1, 1])] == answers
    assert type_name == pool.failures[3].type_name


# What comes before what.


@pytest.mark.parametrize(
    ("makers", "told"),
    [
        ([PairEnv] * 3, ["100", "110", "111"]),
        ([ParcelEnv, BatchEnv], ["100", "111"]),
        ([BatchEnv, PairEnv], ["110", "111"]),
        ([lambda: PairEnv(raises_in=(1,)), PairEnv], ["10", "11"]),
    ],
    ids=["arrays", "nests", "a batch", "one that raises"],
)
def test_a_row_is_complete_before_it_is_marked(makers, told):
    pool = rig(*makers)
    seen = []
    pool.runner.after_row = lambda: seen.append(
        "".join(str(int(answered)) for answered in pool.answered)
    )
    pool.do(RESET)
    assert told == seen


@each_way
@pytest.mark.parametrize(
    "makers",
    [
        [PairEnv] * 3,
        [ParcelEnv] * 3,
        [BatchEnv],
        [BatchEnv, PairEnv],
        [PairEnv, lambda: PairEnv(raises_in=(1, 3, 4))],
        [lambda: BatchEnv(raises_in_reset_rows=True)],
    ],
    ids=["arrays", "nests", "a batch", "a batch and one", "one that raises", "resets"],
)
def test_a_run_is_counted_once_and_before_its_last_row_is_marked(makers, way):
    pool = rig(*makers, way=way)
    seen = []
    pool.runner.before_last_mark = lambda: seen.append(
        (pool.slab.numbers ^ pool.slab.answers)[2:].tolist()
    )
    commands = [RESET, STEP, STEP, STEP, STEP]
    for command in commands:
        pool.do(command)

    assert len(commands) == len(seen)
    assert all(owed[-1] > RAISED for owed in seen), seen


def test_objects_are_sent_before_their_row_is_marked():
    class Noted(PairEnv):
        def observation_spec(self):
            return {"note": ArraySpec((), object), "pair": ArraySpec((2,), np.int32)}

        def _observe(self):
            return {"note": ["step", self.steps], "pair": super()._observe()}

    pool = rig(Noted, validate="never")
    sent = []

    def send(row, slot, objects):
        assert [False] == pool.answered
        sent.append((row, slot, {leaf: value[()] for leaf, value in objects.items()}))

    pool.runner.bind(pool.slab, 1, send)
    pool.do(RESET)
    pool.do(STEP, actions=[1])

    assert [(2, 0, {3: ["step", 0]}), (2, 1, {3: ["step", 1]})] == sent


@each_way
def test_an_action_that_an_environment_keeps_does_not_change(way):
    class Hoarder(PairEnv):
        def action_spec(self):
            return ArraySpec((2,), np.float32)

        def _step(self, action):
            super()._step(action[0])
            self.actions[-1] = action
            return transition(self._observe(), reward=0.0)

    pool = rig(Hoarder, Hoarder, way=way)
    pool.do(RESET)
    for step in (1, 2, 3):
        pool.do(STEP, actions=[[step, 10], [step, 20]])

    kept = [[action.tolist() for action in env.actions] for env in pool.envs]
    assert [[[step, ten] for step in (1, 2, 3)] for ten in (10, 20)] == kept


@each_way
@pytest.mark.parametrize(
    "dtype", ["bool", "<U3", "S3", "datetime64[s]", ">i4", "<f4", "<i8", "<c8"]
)
def test_a_single_action_fits_its_spec_whatever_its_dtype(way, dtype):
    spec = ArraySpec((), np.dtype(dtype))

    class Mirror(PairEnv):
        def action_spec(self):
            return {"key": spec}

        def _step(self, action):
            self.actions.append(action["key"])
            return transition(self._observe(), reward=0.0)

    pool = rig(Mirror, Mirror, way=way)
    pool.do(RESET)
    values = np.array([0, 1]).astype(spec.dtype)
    pool.do(STEP, actions=values)
    pool.do(STEP, actions=values[::-1])
    kept = [env.actions for env in pool.envs]

    assert [values.tolist(), values[::-1].tolist()] == [
        [action.tolist() for action in actions] for actions in kept
    ]
    assert {(spec.dtype, ())} == {
        (action.dtype, action.shape) for actions in kept for action in actions
    }


def test_an_environment_may_write_into_its_action():
    class Scribbler(PairEnv):
        def action_spec(self):
            return ArraySpec((2,), np.int64)

        def _step(self, action):
            action += 1
            return transition(self._observe(), reward=float(action.sum()))

    pool = rig(Scribbler, Scribbler)
    pool.do(RESET)
    answers = pool.do(STEP, actions=[[1, 1], [2, 2]])

    assert [4.0, 6.0] == [answer[1] for answer in answers]
    assert [[1, 1], [2, 2]] == pool.slab.action_columns()[0][2:].tolist()


@each_way
def test_an_environment_without_an_action_gets_an_empty_one(way):
    class Passive(PairEnv):
        def action_spec(self):
            return {}

        def _step(self, action):
            assert action == {}
            return super()._step(3)

    pool = rig(Passive, Passive, way=way)
    pool.do(RESET)

    assert [(MID, 3.0, [1, 1])] * 2 == pool.do(STEP)


# What environments return.


class Answering(PairEnv):
    """Returns what the test says."""

    def __init__(self, first, then):
        super().__init__()
        self._first, self._then = first, then

    def _reset(self):
        return self._first

    def _step(self, action):
        return self._then


GOOD = np.array([1, 2], np.int32)


@each_way
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"observation": [1, 2]},
        {"step_type": 1, "reward": 0.5, "discount": 1.0, "observation": [1, 2]},
    ],
    ids=["arrays", "a list", "numbers"],
)
def test_numbers_and_lists_are_converted_to_arrays(way, changed):
    answer = transition(GOOD, reward=0.5)._replace(**changed)
    pool = rig(
        *[lambda: Answering(restart(GOOD), answer)] * 2, way=way, validate="never"
    )
    pool.do(RESET)
    assert [(MID, 0.5, [1, 2])] * 2 == pool.do(STEP)
    assert [1.0, 1.0] == pool.slab.columns(pool.slot)[2][2:].tolist()


@each_way
@each_kind
def test_rows_are_marked_behind_a_memory_fence(monkeypatch, way, kind):
    monkeypatch.setattr(runner_module, "KEEPS_ORDER", False)
    fences = []
    pool = rig(kind, kind, way=way)
    pool.do(RESET)

    def fence():
        fences.append(pool.answered)

    monkeypatch.setattr(runner_module, "fence", fence)
    answers = pool.do(STEP, actions=[1, 2])

    assert [(MID, 1.0, [1, 1]), (MID, 2.0, [1, 1])] == answers
    assert [[False, False], [True, False]] == fences[-2:]


@each_way
@pytest.mark.parametrize(
    "wrong",
    [
        np.int32(3),
        np.array(3, np.int32),
        np.zeros(1, np.int32),
        np.zeros((1, 2), np.int32),
        np.zeros((2, 1), np.int32),
        np.zeros((2, 2), np.int32),
        3,
        [[1, 2]],
        [1],
        [1, [2]],
        None,
    ],
    ids=repr,
)
@pytest.mark.parametrize("validate", ["never", "first", "always"])
def test_an_observation_of_another_shape_is_never_broadcast(way, wrong, validate):
    pool = rig(
        lambda: Answering(
            restart(GOOD), transition(GOOD, 0.0)._replace(observation=wrong)
        ),
        way=way,
        validate=validate,
    )
    pool.do(RESET)

    assert ["raised"] == pool.do(STEP)
    failure = pool.failures[2]
    assert ("misfit", 2, "step", "SpecError") == facts(failure)[:4]
    assert failure.message.startswith(
        "env 2 returned a time step that does not fit its spec at observation.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=int32)\n  got        "
    )


@each_way
@pytest.mark.parametrize("part", ["reward", "discount", "step_type"])
@pytest.mark.parametrize("wrong", [np.zeros(1, np.float32), [0.0], None], ids=repr)
def test_a_number_with_another_shape_is_refused(way, part, wrong):
    answer = transition(GOOD, 0.0)._replace(**{part: wrong})
    pool = rig(lambda: Answering(restart(GOOD), answer), way=way, validate="never")
    pool.do(RESET)
    assert ["raised"] == pool.do(STEP)
    assert pool.failures[2].message.startswith(
        f"env 2 returned a time step that does not fit its spec at {part}.\n"
    )


FLOATS = np.array([1.0, 2.0])


@pytest.mark.parametrize("call", ["reset", "step"])
@pytest.mark.parametrize(
    ("validate", "occasion"),
    [
        ("first", "This was the first observation after"),
        ("always", "It came from"),
        ("never", None),
    ],
)
def test_a_time_step_is_checked_completely(call, validate, occasion):
    first = restart(FLOATS if call == "reset" else GOOD)
    pool = rig(lambda: Answering(first, transition(FLOATS, 0.0)), validate=validate)
    for command in (RESET, STEP)[: 1 + (call == "step")]:
        pool.do(command)

    # Without validation values are converted as an assignment does.
    assert bool(occasion) == bool(pool.failures)
    for failure in pool.failures.values():
        assert (
            "env 2 returned a time step that does not fit its spec at observation.\n\n"
            "  expected   ArraySpec(shape=(2,), dtype=int32)\n"
            "  got        array of shape (2,), dtype float64, values 1.0 … 2.0\n\n"
            "dtype is float64; the spec says int32. If that is meant, add "
            ".astype(np.int32). The other 3 leaves fit.\n"
            f"{occasion} {call}() of {__name__}.Answering."
        ) == failure.message
        assert "observation" == failure.original().path


def test_bounds_are_checked_in_the_first_time_steps():
    class OutOfBounds(PairEnv):
        def observation_spec(self):
            return BoundedArraySpec((2,), np.int32, 1, 9)

    pool = rig(OutOfBounds)

    assert ["raised"] == pool.do(RESET)
    assert "1 of 2 elements is below the minimum 1" in pool.failures[2].message


class Late(PairEnv):
    """Fits for a while, then returns floats."""

    def __init__(self, good_calls):
        super().__init__(length=99)
        self._good_calls = good_calls

    def _observe(self):
        pair = super()._observe()
        return pair if self.calls <= self._good_calls else pair.astype(np.float64)


@each_way
@pytest.mark.parametrize(
    ("validate", "expected"),
    [("never", 0), ("first", 0), ("always", 2)],
)
def test_the_number_of_checked_time_steps_can_be_chosen(way, validate, expected):
    pool = rig(lambda: Late(2), way=way, validate=validate)
    misfits = 0
    for command in (RESET, STEP, STEP, RESET):
        pool.do(command, actions=[1])
        misfits += len(pool.failures)
    assert expected == misfits


@each_way
def test_a_rebuilt_environment_is_checked_again(way):
    makers = iter([PairEnv, lambda: Late(0)])
    pool = rig(lambda: next(makers)(), way=way)
    pool.do(RESET)
    assert ["raised"] == pool.do(REBUILD)
    assert "misfit" == pool.failures[2].kind


def test_a_spec_error_in_the_same_step_is_raised_by_the_next():
    pool = rig(lambda: Late(2), order=SAME_STEP_ORDER, validate="always")
    pool.envs[0].length = 1
    pool.do(RESET)
    end = pool.do(STEP, actions=[4])
    assert [(LAST, 4.0, [1, 1])] == end
    assert ["raised"] == pool.do(STEP, actions=[5])
    assert ("misfit", 2) == facts(pool.failures[2])[:2]


# Batched environments.


def test_a_batch_steps_once_for_all_its_rows():
    pool = rig(lambda: BatchEnv([2, 3]))
    reset = pool.do(RESET)
    stream = [pool.do(STEP, actions=[step, 10 * step]) for step in (1, 2, 3)]

    assert [(FIRST, 0.0, [1, 0])] * 2 == reset
    assert [(MID, 1.0, [1, 1]), (MID, 10.0, [1, 1])] == stream[0]
    assert [(LAST, 2.0, [1, 2]), (MID, 20.0, [1, 2])] == stream[1]
    assert [(FIRST, 0.0, [2, 0]), (LAST, 30.0, [1, 3])] == stream[2]
    assert ["reset", "step", "step", "step", "reset [0]"] == pool.envs[0].calls


def test_some_rows_of_a_batch_are_reset():
    pool = rig(lambda: BatchEnv([9, 9, 9]))
    pool.do(RESET)
    pool.do(STEP, actions=[1, 1, 1])
    pool.do(RESET, rows=[3])

    assert [(MID, 1.0, [1, 1]), (FIRST, 0.0, [2, 0]), (MID, 1.0, [1, 1])] == (
        pool.answers()
    )
    assert [(MID, 2.0, [1, 2]), (MID, 2.0, [2, 1]), (MID, 2.0, [1, 2])] == (
        pool.do(STEP, actions=[2, 2, 2])
    )


def test_rows_of_a_batch_can_reset_while_others_step():
    pool = rig(lambda: BatchEnv([9, 9]))
    pool.do(RESET)
    assert [(MID, 1.0, [1, 1]), (FIRST, 0.0, [2, 0])] == pool.do(
        [STEP, RESET], actions=[1, 1]
    )


def test_a_part_of_a_batch_cannot_step():
    pool = rig(lambda: BatchEnv([9, 9, 9]))
    pool.do(RESET)
    pool.do(STEP, rows=[2, 4], actions=[1, 1])

    assert (
        "raised",
        2,
        "step",
        "CallOrderError",
        "Rows 2, 4 were to step without rows 3, but all of them are one BatchEnv, a "
        "batch that moves together.",
    ) == facts(pool.failures[2])
    assert [2, 4] == sorted(pool.failures)
    assert ["reset"] == pool.envs[0].calls


def test_an_unreset_batch_begins_as_a_whole():
    pool = rig(lambda: BatchEnv([9, 9]))
    assert [(FIRST, 0.0, [1, 0])] == pool.do(RESET, rows=[3])


def test_a_batch_is_rebuilt_as_a_whole():
    pool = rig(lambda: BatchEnv([9, 9]))
    pool.do(RESET)
    pool.do(STEP, actions=[1, 1])
    old = pool.envs[0]
    assert [(FIRST, 0.0, [1, 0])] * 2 == pool.do(REBUILD)
    assert old is not pool.envs[0]


def test_a_batch_that_raises_fails_in_exactly_its_rows():
    class Broken(BatchEnv):
        def _step(self, action):
            raise ValueError("broken")

    pool = rig(PairEnv, Broken, PairEnv)
    pool.do(RESET)
    answers = pool.do(STEP, actions=[1, 2, 3, 4])

    assert [(MID, 1.0, [1, 1]), "raised", "raised", (MID, 4.0, [1, 1])] == answers
    assert {3: 3, 4: 3} == {row: failure.env for row, failure in pool.failures.items()}


def test_a_reset_of_some_rows_that_fails_in_the_same_step_keeps_the_end():
    pool = rig(
        lambda: BatchEnv([1, 3], raises_in_reset_rows=True), order=SAME_STEP_ORDER
    )
    pool.do(RESET)
    end = pool.do(STEP, actions=[1, 1])

    assert [(LAST, 1.0, [1, 1]), (MID, 1.0, [1, 1])] == end
    assert ["raised", "raised"] == pool.do(STEP, actions=[2, 2])
    assert ("ValueError", "no rows") == facts(pool.failures[2])[3:]


@pytest.mark.parametrize("lengths", [[1, 1], [1, 3]], ids=["all rows", "some rows"])
def test_resets_in_the_same_step_are_checked(lengths):
    pool = rig(lambda: BatchEnv(lengths), order=SAME_STEP_ORDER, validate="always")
    reset = pool.envs[0].reset

    def reset_with_floats(*mask):
        time_step = reset(*mask)
        if "step" in pool.envs[0].calls:
            wrong = time_step.observation.astype(float)
            time_step = time_step._replace(observation=wrong)
        return time_step

    pool.envs[0].reset = reset_with_floats
    pool.do(RESET)
    end = pool.do(STEP, actions=[1, 1])

    assert [(LAST, 1.0, [1, 1])] == end[:1]
    assert ["raised", "raised"] == pool.do(STEP, actions=[2, 2])
    assert "misfit" == pool.failures[2].kind


class FloatBatch(BatchEnv):
    def _step(self, action):
        stepped = super()._step(action)
        return stepped._replace(observation=stepped.observation.astype(float))


def test_a_batch_that_does_not_fit_says_which_rows_it_has():
    pool = rig(PairEnv, lambda: FloatBatch([2, 3]))
    pool.do(RESET)
    pool.do(STEP, actions=[1, 1, 1])

    assert (
        "env 3 (rows 3 to 4) returned a time step that does not fit its spec at "
        "observation.\n\n"
        "  expected   ArraySpec(shape=(2, 2), dtype=int32)\n"
        "  got        array of shape (2, 2), dtype float64, values 1.0 … 1.0\n\n"
        "dtype is float64; the spec says int32. If that is meant, add "
        ".astype(np.int32). The other 3 leaves fit.\n"
        f"This was the first observation after step() of {__name__}.FloatBatch."
    ) == pool.failures[3].message
    assert [3, 4] == sorted(pool.failures)


def test_environments_after_a_batch_keep_their_own_number():
    pool = rig(BatchEnv, lambda: Answering(restart(FLOATS), None))
    pool.do(RESET)
    assert [4] == list(pool.failures)
    assert pool.failures[4].message.startswith("env 3 returned a time step that ")
    assert 3 == pool.failures[4].env


# All at once.


@pytest.mark.parametrize("order", [NEXT_STEP_ORDER, SAME_STEP_ORDER, DISABLED_ORDER])
def test_a_batch_equals_single_environments(order):
    """The same episodes, beside single environments and without."""
    lengths = [2, 2, 3, 3]
    pools = [
        rig(*[lambda n=n: PairEnv(n) for n in lengths], order=order),
        rig(
            lambda: PairEnv(2),
            lambda: BatchEnv([2, 3]),
            lambda: PairEnv(3),
            order=order,
        ),
        rig(lambda: BatchEnv(lengths), order=order),
    ]
    streams = []
    for pool in pools:
        stream = [pool.do(RESET)]
        for step in range(6):
            ended = [
                row
                for row, answer in zip(pool.rows, stream[-1], strict=True)
                if answer[0] == LAST
            ]
            if order == DISABLED_ORDER and ended:
                stream.append(pool.do(RESET, rows=ended))
            answers = pool.do(STEP, actions=[step * row for row in pool.rows])
            if order == SAME_STEP_ORDER:
                stream.append(
                    [
                        pool.answer(row, SAME_STEP_SLOT)
                        for row, answer in zip(pool.rows, answers, strict=True)
                        if answer[0] == LAST
                    ]
                )
            stream.append(answers)
        streams.append((stream, pool.slab.counters(1).tolist()))

    assert streams[0] == streams[1] == streams[2]


class Twin:
    """Answers as one environment should, in the plainest way.

    Attributes:
        failed: Of the answer "raised": command, type of the exception, and message.
    """

    def __init__(self, plan, order):
        self.plan, self.order = plan, order
        self.env = PairEnv(*plan)
        self.ended = False
        self.kept = self.failed = None

    def answer(self, command, action):
        """Returns the answer, and the FIRST that follows it at once."""
        name = {STEP: "step", RESET: "reset", REBUILD: "rebuild"}[command]
        if command == REBUILD:
            self.env = PairEnv(*self.plan)
            self.ended = False
        first = None
        try:
            if command != STEP or self.ended:
                name = "reset" if command == STEP else name
                time_step = self.env.reset()
                # Not before: after a reset that raised there is no episode either.
                self.kept = None
            elif self.kept:
                raise self.kept
            else:
                time_step = self.env.step(action)
        except (ValueError, SystemExit) as error:
            self.failed = name, type(error).__name__, str(error)
            if command != STEP and self.order == SAME_STEP_ORDER:
                self.ended = False
            return "raised", None
        self.ended = bool(time_step.is_last())
        if self.ended and self.order == SAME_STEP_ORDER:
            self.ended = False
            try:
                first = self.shown(self.env.reset())
            except (ValueError, SystemExit) as error:
                self.kept = error
                first = self.shown(time_step)
        return self.shown(time_step), first

    @staticmethod
    def shown(time_step):
        return (
            int(time_step.step_type),
            float(time_step.reward),
            time_step.observation.tolist(),
        )


PLANS = st.tuples(
    st.integers(1, 3),
    st.sets(st.integers(1, 9), max_size=2),
    st.sets(st.integers(1, 9), max_size=1),
)
COMMANDS = st.sampled_from([0, STEP, STEP, STEP, RESET, REBUILD])


@settings(max_examples=40)
@given(
    plans=st.lists(PLANS, min_size=3, max_size=3),
    schedule=st.lists(
        st.lists(COMMANDS, min_size=3, max_size=3), min_size=1, max_size=14
    ),
    order=st.sampled_from([NEXT_STEP_ORDER, SAME_STEP_ORDER, DISABLED_ORDER]),
    way=st.sampled_from(WAYS),
    kind=st.sampled_from([PairEnv, ParcelEnv]),
    validate=st.sampled_from(["never", "first", "always"]),
)
def test_rows_are_independent_of_their_neighbours(
    plans, schedule, order, way, kind, validate
):
    pool = rig(
        *[lambda plan=plan: kind(*plan) for plan in plans],
        way=way,
        order=order,
        validate=validate,
    )
    twins = {row: Twin(plan, order) for row, plan in enumerate(plans, 2)}
    expected = pool.answers()
    for number, commands in enumerate(schedule):
        asked = {row: command for row, command in enumerate(commands, 2) if command}
        if not asked:
            continue
        before = list(pool.envs)
        actions = [10 * number + row for row in asked]
        pool.do([*asked.values()], rows=[*asked], actions=actions)
        failed, firsts = {}, {}
        for (row, command), action in zip(asked.items(), actions, strict=True):
            answer, first = twins[row].answer(command, action)
            expected[row - 2] = answer
            if first is not None:
                firsts[row] = first
            if answer == "raised":
                failed[row] = ("raised", row, *twins[row].failed)

        # Rows that were not asked stay as they were.
        assert expected == pool.answers()
        assert failed == {row: facts(each) for row, each in pool.failures.items()}
        assert firsts == {row: pool.answer(row, SAME_STEP_SLOT) for row in firsts}
        assert [asked.get(row) != REBUILD for row in pool.rows] == [
            new is old for new, old in zip(pool.envs, before, strict=True)
        ]


# Everything that is not rows.


class Leaver(CrashingEnv):
    def leave(self):
        sys.exit(3)


NO_WINGS = "'Leaver' object has no attribute 'wings'"
TOLD_TO_RAISE = "CrashingEnv was told to raise in render 1."


@pytest.mark.parametrize(
    ("method", "argument", "failure"),
    [
        ("call", ("leave", (), {}), ("call('leave')", "SystemExit", "3")),
        ("access", ("wings",), ("access('wings')", "AttributeError", NO_WINGS)),
        ("render", "rgb_array", ("render()", "RuntimeError", TOLD_TO_RAISE)),
        (
            "dance",
            None,
            ("dance()", "ValueError", "The request 'dance' does not exist."),
        ),
    ],
    ids=["call", "access", "render", "unknown"],
)
def test_a_request_that_fails_says_what_was_called(method, argument, failure):
    pool = rig(lambda: Leaver(where="render"))
    assert ("raised", 2, *failure) == facts(ask(pool, method, argument)[0])


def test_a_failing_request_affects_no_other():
    pool = rig(lambda: CrashingEnv(where="render"), CountingEnv)
    first, second = ask(pool, "render", "rgb_array", "rgb_array", envs=(2, 3))
    assert "raised" == first.kind
    assert (8, 8, 3) == second.shape


@pytest.mark.parametrize("ended", [False, True])
def test_a_state_restores_an_environments_progress(ended):
    pool = rig(lambda: PairEnv(2))
    pool.do(RESET)
    for _ in range(1 + ended):
        pool.do(STEP, actions=[1])
    (state,) = ask(pool, "get_state")
    future = [pool.do(STEP, actions=[1]) for _ in range(4)]
    pool.do(RESET)
    ask(pool, "set_state", (state, [ended]))

    assert isinstance(state, bytes)
    assert future == [pool.do(STEP, actions=[1]) for _ in range(4)]


def test_closing_closes_every_environment_and_reports_errors():
    closed = []

    class Closing(PairEnv):
        def __init__(self, name, error=None):
            super().__init__()
            self._name, self._error = name, error

        def close(self):
            closed.append(self._name)
            if self._error:
                raise self._error

    pool = rig(
        lambda: Closing("a", ValueError("stuck")),
        lambda: Closing("b", SystemExit(3)),
        lambda: Closing("c"),
    )
    errors = pool.runner.close()

    assert ["a", "b", "c"] == closed
    assert ["ValueError('stuck')", "SystemExit(3)"] == [repr(error) for error in errors]
