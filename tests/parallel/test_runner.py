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
from envkit.errors import SpecError
from envkit.parallel import runner as runner_module
from envkit.parallel import serialize
from envkit.parallel.messages import Hello, RemoteFailure, Request, WorkerJob
from envkit.parallel.runner import EnvRunner
from envkit.parallel.slab import (
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
    Slab,
    SlabLayout,
    slot_of,
)
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


# How rows come to a runner: all of a worker at once, or one after the other, with
# somebody who wants to be told of each. Those are different loops.
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
    def slot(self):
        """The slot of the first row's answer."""
        return slot_of(int(self.slab.sequence[2]))

    def ask(self, command, rows=None, actions=None):
        rows = self.rows if rows is None else np.array(rows)
        if actions is not None:
            for column in self.slab.actions:
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
        if self.slab.answered[row] & RAISED:
            return "raised"
        slot = slot_of(int(self.slab.sequence[row])) if slot is None else slot
        leaves = [array[slot, row] for array in self.slab.steps]
        return int(leaves[0]), float(leaves[1]), np.asarray(leaves[3]).tolist()

    def answers(self, rows=None):
        return [self.answer(row) for row in (self.rows if rows is None else rows)]

    def firsts(self):
        return [self.answer(row, SAME_STEP_SLOT) for row in self.rows]

    def ask_info(self, *envs):
        request = Request(1, "get_info", envs, (None,) * len(envs))
        return self.runner.handle(request).results


def rig(*makers, way="together", validate="first", order=NEXT_STEP_ORDER, passes=()):
    """Builds environments and lays their rows out behind two rows of somebody else."""
    runner = EnvRunner(WorkerJob(1, 2, makers, validate=validate), passes)
    hello = runner.build()
    assert isinstance(hello, Hello), hello
    rows = sum(size or 1 for size in hello.batch_sizes)
    slab = Slab(SlabLayout(hello.specs[0], ((0, 2), (2, 2 + rows))))
    slab.autoreset = order
    # Not far from where the numbers begin again, and in the slot of an odd request.
    slab.sequence[:] = slab.answered[:] = 2**32 - 6
    runner.bind(slab, 1)
    failures = {}

    def tell_failure(rows, failure):
        for row in rows:
            assert not slab.answered_rows()[row], "told after the row was marked"
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
@each_kind
def test_a_row_that_is_told_to_reset_returns_a_first(way, kind):
    pool = rig(kind, kind, way=way)

    assert [(FIRST, 0.0, [1, 0])] * 2 == pool.do(RESET)
    assert [(FIRST, 0.0, [2, 0])] * 2 == pool.do(RESET)


@each_way
@each_kind
def test_a_row_that_is_told_to_step_steps_with_its_own_action(way, kind):
    pool = rig(kind, kind, way=way)
    pool.do(RESET)

    assert [(MID, 5.0, [1, 1]), (MID, 7.0, [1, 1])] == pool.do(STEP, actions=[5, 7])
    assert [(MID, 6.0, [1, 2]), (MID, 8.0, [1, 2])] == pool.do(STEP, actions=[6, 8])


@each_way
@each_kind
def test_a_row_that_is_told_to_rebuild_has_a_new_environment(way, kind):
    pool = rig(kind, kind, way=way)
    pool.do(RESET)
    pool.do(RESET)
    before = list(pool.envs)
    answers = pool.do([REBUILD, RESET])

    assert [(FIRST, 0.0, [1, 0]), (FIRST, 0.0, [3, 0])] == answers
    assert [False, True] == [
        new is old for new, old in zip(pool.envs, before, strict=True)
    ]


@each_way
def test_a_rebuilt_environment_takes_the_steps_from_then_on(way):
    pool = rig(PairEnv, PairEnv, way=way)
    pool.do(RESET)
    old = pool.envs[0]
    pool.do(REBUILD, rows=[2])
    pool.do(STEP, actions=[4, 4])

    assert [] == old.actions
    assert [4] == [int(action) for action in pool.envs[0].actions]


@each_way
def test_rows_of_one_batch_may_be_told_different_things(way):
    pool = rig(*[lambda: PairEnv(1)] * 4, way=way)
    pool.do(RESET)
    pool.do(STEP, rows=[5], actions=[9])
    answers = pool.do([STEP, RESET, REBUILD, STEP], actions=[3, 3, 3, 3])

    assert [
        (LAST, 3.0, [1, 1]),
        (FIRST, 0.0, [2, 0]),
        (FIRST, 0.0, [1, 0]),
        (FIRST, 0.0, [2, 0]),
    ] == answers


@each_way
def test_a_batch_waits_until_all_of_a_request_is_written(way):
    pool = rig(BatchEnv, way=way)
    pool.do(RESET)
    pool.slab.asking[0] += 1
    pool.slab.command[pool.rows] = STEP
    pool.slab.sequence[2] += 2
    # A ring for the request before, which is heard now.
    worker = threading.Thread(target=pool.runner.run_pending)
    worker.start()
    pool.slab.sequence[3] += 2
    pool.slab.announcements[0] += 1
    worker.join()

    assert ["reset", "step"] == pool.envs[0].calls
    assert {} == pool.failures
    assert [MID, MID] == [step_type for step_type, *_ in pool.answers()]


@each_way
def test_a_row_that_was_not_asked_keeps_its_time_step(way):
    pool = rig(PairEnv, PairEnv, PairEnv, way=way)
    pool.do(RESET)
    pool.do(STEP, rows=[3], actions=[1])

    assert [(FIRST, 0.0, [1, 0]), (MID, 1.0, [1, 1]), (FIRST, 0.0, [1, 0])] == (
        pool.answers()
    )


def test_rows_of_another_worker_are_left_alone():
    pool = rig(PairEnv)
    pool.slab.request(np.arange(3), STEP)
    pool.runner.run_pending()

    assert [False, False, True] == pool.slab.answered_rows().tolist()
    assert [0, 0] == [int(array[..., :2].any()) for array in pool.slab.steps[:2]]


def test_a_first_step_without_a_reset_is_what_the_environment_makes_of_it():
    pool = rig(CountingEnv)

    assert [(FIRST, 0.0, 0)] == pool.do(STEP)


def test_nothing_is_done_when_nothing_was_asked():
    pool = rig(PairEnv)

    assert 0 == pool.runner.run_pending()
    assert 0 == pool.envs[0].calls


def test_it_counts_what_it_has_done():
    pool = rig(lambda: PairEnv(2), lambda: PairEnv(9), BatchEnv)
    pool.do(RESET)
    pool.do(STEP)
    pool.do(STEP)
    pool.do([STEP, RESET, STEP, STEP])

    steps, resets = pool.slab.meters[1][[STEPS, RESETS]].tolist()
    assert 16 == steps
    # Those whose episode had ended began anew, in the batch, too.
    assert 4 + 1 + 1 + 1 == resets
    assert [0] * 8 == pool.slab.meters[0].tolist()


# The end of an episode.


@each_way
@each_kind
def test_the_step_after_a_last_is_a_first_that_ignores_the_action(way, kind):
    pool = rig(lambda: kind(2), lambda: kind(3), way=way)
    pool.do(RESET)
    stream = [pool.do(STEP, actions=[step, step]) for step in (1, 2, 3, 4)]

    assert [(MID, 1.0, [1, 1]), (MID, 1.0, [1, 1])] == stream[0]
    assert [(LAST, 2.0, [1, 2]), (MID, 2.0, [1, 2])] == stream[1]
    assert [(FIRST, 0.0, [2, 0]), (LAST, 3.0, [1, 3])] == stream[2]
    assert [(MID, 4.0, [2, 1]), (FIRST, 0.0, [2, 0])] == stream[3]


@each_way
@each_kind
def test_the_next_episode_begins_in_the_same_step(way, kind):
    pool = rig(lambda: kind(2), lambda: kind(3), way=way, order=SAME_STEP_ORDER)
    pool.do(RESET)
    pool.do(STEP, actions=[1, 1])
    ends = pool.do(STEP, actions=[2, 2])
    first = pool.answer(2, SAME_STEP_SLOT)
    after = pool.do(STEP, actions=[3, 3])

    assert [(LAST, 2.0, [1, 2]), (MID, 2.0, [1, 2])] == ends
    assert (FIRST, 0.0, [2, 0]) == first
    assert [(MID, 3.0, [2, 1]), (LAST, 3.0, [1, 3])] == after


@each_way
def test_without_autoreset_a_runner_resets_when_it_is_told(way):
    pool = rig(lambda: PairEnv(1), way=way, order=DISABLED_ORDER)
    pool.do(RESET)
    last = pool.do(STEP, actions=[1])
    first = pool.do(RESET)

    assert [(LAST, 1.0, [1, 1])] == last
    assert [(FIRST, 0.0, [2, 0])] == first
    assert [(LAST, 2.0, [2, 1])] == pool.do(STEP, actions=[2])


@each_way
def test_a_reset_right_after_a_last_is_one_reset(way):
    pool = rig(lambda: PairEnv(1), way=way)
    pool.do(RESET)
    pool.do(STEP, actions=[1])

    assert [(FIRST, 0.0, [2, 0])] == pool.do(RESET)
    assert [(LAST, 1.0, [2, 1])] == pool.do(STEP, actions=[1])


@each_way
def test_the_order_may_change_between_two_steps(way):
    pool = rig(lambda: PairEnv(1), way=way)
    pool.do(RESET)
    pool.do(STEP, actions=[1])
    pool.slab.autoreset = SAME_STEP_ORDER
    first = pool.do(STEP, actions=[2])
    last = pool.do(STEP, actions=[3])

    assert [(FIRST, 0.0, [2, 0])] == first
    assert [(LAST, 3.0, [2, 1])] == last
    assert [(FIRST, 0.0, [3, 0])] == pool.firsts()


@each_way
def test_a_reset_that_fails_in_the_same_step_keeps_the_end_and_is_told_by_the_next(way):
    def make():
        return PairEnv(2, raises_in=(4,))

    pool = rig(make, PairEnv, way=way, order=SAME_STEP_ORDER)
    pool.do(RESET)
    pool.do(STEP, actions=[1, 1])
    end = pool.do(STEP, actions=[2, 2])
    failures = dict(pool.failures)
    after = pool.do(STEP, actions=[3, 3])

    assert [(LAST, 2.0, [1, 2]), (MID, 2.0, [1, 2])] == end
    assert {} == failures
    assert ["raised", (LAST, 3.0, [1, 3])] == after
    assert [2] == list(pool.failures)
    assert ("ValueError", "call 4") == facts(pool.failures[2])[3:]


@each_way
@pytest.mark.parametrize("command", [RESET, REBUILD])
def test_after_a_failed_reset_in_the_same_step_it_may_begin_anew(way, command):
    def make():
        return PairEnv(2, raises_in=(4,))

    pool = rig(make, way=way, order=SAME_STEP_ORDER)
    pool.do(RESET)
    pool.do(STEP, actions=[1])
    pool.do(STEP, actions=[2])
    (first,) = pool.do(command)

    assert (FIRST, 0.0) == first[:2]
    assert [(MID, 1.0)] == [answer[:2] for answer in pool.do(STEP, actions=[1])]


# What there is to know about the end of an episode.


@pytest.mark.parametrize("order", [NEXT_STEP_ORDER, SAME_STEP_ORDER])
def test_info_is_about_the_step_that_was_returned_last(order):
    pool = rig(lambda: PairEnv(2), order=order)
    infos = []
    for command in (RESET, STEP, STEP, STEP):
        answers = pool.do(command, actions=[1])
        infos.append((answers[0][2], pool.ask_info(2)[0]))

    assert [
        (observation, {"episode": observation[0], "step": observation[1]})
        for observation, _ in infos
    ] == infos


def test_info_of_a_batch_is_about_the_step_that_was_returned_last():
    pool = rig(lambda: BatchEnv([2, 2]), order=SAME_STEP_ORDER)
    pool.do(RESET)
    pool.do(STEP, actions=[1, 1])
    pool.do(STEP, actions=[1, 1])
    at_the_end = pool.ask_info(2)
    pool.do(STEP, actions=[1, 1])

    assert ([{"episode": 1, "step": 2}] * 2,) == at_the_end
    assert ([{"episode": 2, "step": 1}] * 2,) == pool.ask_info(2)


@pytest.mark.parametrize("command", [RESET, REBUILD])
def test_info_of_an_episode_that_has_ended_is_gone_with_a_reset(command):
    pool = rig(lambda: PairEnv(1), order=SAME_STEP_ORDER)
    pool.do(RESET)
    pool.do(STEP, actions=[1])
    pool.do(command)
    (info,) = pool.ask_info(2)

    assert 0 == info["step"]


def test_an_info_that_fails_at_the_end_fails_when_somebody_asks():
    class NoInfoAtTheEnd(PairEnv):
        def get_info(self):
            if self.steps == self.length:
                raise ValueError("nothing to know")
            return super().get_info()

    pool = rig(lambda: NoInfoAtTheEnd(1), order=SAME_STEP_ORDER)
    pool.do(RESET)
    end = pool.do(STEP, actions=[1])
    (failure,) = pool.ask_info(2)

    assert [(LAST, 1.0, [1, 1])] == end
    assert ("raised", 2, "get_info()", "ValueError", "nothing to know") == facts(
        failure
    )


def test_an_environment_without_info_ends_episodes_all_the_same():
    class NoInfo(PairEnv):
        def get_info(self):
            raise NotImplementedError

    pool = rig(lambda: NoInfo(1), order=SAME_STEP_ORDER)
    pool.do(RESET)

    assert [(LAST, 1.0, [1, 1])] == pool.do(STEP, actions=[1])
    assert "NotImplementedError" == pool.ask_info(2)[0].type_name


# Failures.


@each_way
@each_kind
@pytest.mark.parametrize("how", ["raises_in", "exits_in"])
def test_an_environment_that_raises_leaves_its_neighbours_alone(way, kind, how):
    pool = rig(kind, lambda: kind(**{how: (2,)}), kind, way=way)
    pool.do(RESET)
    answers = pool.do(STEP, actions=[1, 2, 3])
    failures = dict(pool.failures)
    after = pool.do(STEP, actions=[4, 5, 6])

    assert [(MID, 1.0, [1, 1]), "raised", (MID, 3.0, [1, 1])] == answers
    type_name = "ValueError" if how == "raises_in" else "SystemExit"
    assert {3: ("raised", 3, "step", type_name, "call 2")} == {
        row: facts(failure) for row, failure in failures.items()
    }
    assert [(MID, 4.0, [1, 2]), (MID, 5.0, [1, 1]), (MID, 6.0, [1, 2])] == after


@each_way
def test_the_time_step_before_a_failure_stays_whole(way):
    pool = rig(lambda: PairEnv(raises_in=(3,)), way=way)
    pool.do(RESET)
    pool.do(STEP, actions=[5])
    slot = pool.slot
    failed = pool.do(STEP, actions=[6])
    pool.slab.answered[2] = pool.slab.sequence[2]

    assert ["raised"] == failed
    assert (MID, 5.0, [1, 1]) == pool.answer(2, slot)


@each_way
@pytest.mark.parametrize(
    ("command", "called"), [(RESET, "reset"), (REBUILD, "rebuild"), (STEP, "step")]
)
def test_a_failure_says_what_it_was_told_to_do(way, command, called):
    pool = rig(lambda: PairEnv(raises_in=(1,)), way=way)
    pool.do(RESET)
    pool = rig(lambda: PairEnv(raises_in=(1, 2)), way=way)
    pool.do(RESET)
    pool.do(command, actions=[1])

    assert ("raised", 2, called) == facts(pool.failures[2])[:3]


@each_way
def test_a_reset_that_raises_after_a_last_is_called_reset(way):
    pool = rig(lambda: PairEnv(1, raises_in=(3,)), way=way)
    pool.do(RESET)
    pool.do(STEP, actions=[1])
    pool.do(STEP, actions=[1])

    assert ("raised", 2, "reset", "ValueError", "call 3") == facts(pool.failures[2])


@each_way
def test_after_a_failed_reset_a_failed_step_is_called_step(way):
    pool = rig(lambda: PairEnv(raises_in=(1, 3)), way=way)
    commands = []
    for command in (RESET, RESET, STEP):
        pool.do(command, actions=[1])
        commands += [failure.command for failure in pool.failures.values()]

    assert ["reset", "step"] == commands


def test_a_failure_carries_the_exception_and_its_traceback():
    pool = rig(lambda: PairEnv(raises_in=(1,)))
    pool.do(RESET)
    failure = pool.failures[2]

    assert ("call 1",) == failure.original().args
    assert "in _count\n" in failure.traceback
    assert failure.traceback.endswith("ValueError: call 1\n")


@each_way
def test_rebuilding_goes_on_after_a_constructor_that_raised(way):
    made = []

    def make():
        made.append(len(made))
        if len(made) == 2:
            raise OSError("no level")
        return PairEnv()

    pool = rig(make, PairEnv, way=way)
    pool.do(RESET)
    failed = pool.do([REBUILD, STEP], actions=[1, 1])
    failure = pool.failures[2]

    assert ["raised", (MID, 1.0, [1, 1])] == failed
    assert ("raised", 2, "rebuild", "OSError", "no level") == facts(failure)
    assert [(FIRST, 0.0, [1, 0])] == pool.do(REBUILD, rows=[2])


@each_way
@each_kind
def test_whatever_an_environment_raises_is_its_own_failure(way, kind):
    class Interrupted(kind):
        def _step(self, action):
            raise KeyboardInterrupt

    pool = rig(Interrupted, kind, way=way)
    pool.do(RESET)

    assert ["raised", (MID, 2.0, [1, 1])] == pool.do(STEP, actions=[1, 2])
    assert "KeyboardInterrupt" == pool.failures[2].type_name


@each_way
@each_kind
@pytest.mark.parametrize("where", ["_step", "_reset", "get_info"])
def test_what_belongs_to_the_carrier_passes_through(way, kind, where):
    class CarriersOwn(BaseException):
        pass

    def fail(*args):
        raise CarriersOwn

    pool = rig(lambda: kind(1), way=way, passes=(CarriersOwn,), order=SAME_STEP_ORDER)
    pool.do(RESET)
    setattr(pool.envs[0], where, fail)

    with pytest.raises(CarriersOwn):
        pool.do(STEP, actions=[1])
    assert not pool.slab.answered_rows()[2]
    assert {} == pool.failures


class Grudging:
    """Has a shape, but cannot be made an array."""

    shape = (2,)
    ndim = 1

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("it requires a gradient")


@each_way
def test_a_value_that_cannot_be_written_is_its_own_environments_failure(way):
    def grudging():
        return Answering(restart(GOOD), transition(Grudging(), 0.0))

    pool = rig(PairEnv, grudging, PairEnv, way=way, validate="never")
    pool.do(RESET)

    assert [(MID, 1.0, [1, 1]), "raised", (MID, 3.0, [1, 1])] == pool.do(
        STEP, actions=[1, 2, 3]
    )
    assert ("RuntimeError", "it requires a gradient") == facts(pool.failures[3])[3:]


@each_way
def test_a_number_too_large_is_its_own_environments_failure_where_numpy_raises(way):
    def large():
        answer = transition(GOOD, 0.0)
        return Answering(restart(GOOD), answer._replace(reward=np.array(1e300)))

    pool = rig(PairEnv, large, PairEnv, way=way, validate="never")
    pool.do(RESET)
    with np.errstate(over="raise"):
        answers = pool.do(STEP, actions=[1, 2, 3])

    assert [(MID, 1.0, [1, 1]), "raised", (MID, 3.0, [1, 1])] == answers
    assert "FloatingPointError" == pool.failures[3].type_name


# What comes before what.


@pytest.mark.parametrize("kind", [PairEnv, ParcelEnv, CountingEnv])
def test_a_row_is_complete_when_it_is_marked_and_told_of_after_that(kind):
    pool = rig(kind, kind, kind)
    seen = []
    pool.runner.after_row = lambda: seen.append(pool.slab.answered_rows()[2:].tolist())
    pool.do(RESET)

    assert [[True, False, False], [True, True, False], [True, True, True]] == seen


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
        (pool.slab.sequence ^ pool.slab.answered)[2:].tolist()
    )
    commands = [RESET, STEP, STEP, STEP, STEP]
    for command in commands:
        pool.do(command)

    assert len(commands) == len(seen)
    assert all(owed[-1] > RAISED for owed in seen), seen


def test_somebody_who_waits_for_single_rows_is_told_of_failures_too():
    pool = rig(lambda: PairEnv(raises_in=(1,)), PairEnv)
    seen = []
    pool.runner.after_row = lambda: seen.append(
        (sorted(pool.failures), pool.slab.answered_rows()[2:].tolist())
    )
    pool.do(RESET)

    assert [([2], [True, False]), ([2], [True, True])] == seen


def test_objects_are_sent_before_their_row_is_marked():
    class Noted(PairEnv):
        def observation_spec(self):
            return {"note": ArraySpec((), object), "pair": ArraySpec((2,), np.int32)}

        def _observe(self):
            return {"note": ["step", self.steps], "pair": super()._observe()}

    pool = rig(Noted, validate="never")
    sent = []

    def send(row, slot, objects):
        owes = not pool.slab.answered_rows()[row]
        sent.append((row, slot, {leaf: value[()] for leaf, value in objects.items()}))
        assert owes

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
    assert [[1, 1], [2, 2]] == pool.slab.actions[0][2:].tolist()


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
OBSERVATION = "observation"


@each_way
@pytest.mark.parametrize("plain", [True, False])
def test_numbers_and_lists_are_taken_for_arrays(way, plain):
    answer = transition(GOOD, reward=0.5)
    if plain:
        answer = answer._replace(
            step_type=1, reward=0.5, discount=0.25, observation=[7, 8]
        )
    pool = rig(lambda: Answering(restart(GOOD), answer), way=way, validate="never")
    pool.do(RESET)

    assert [(MID, 0.5, [7, 8] if plain else [1, 2])] == pool.do(STEP)
    assert (0.25 if plain else 1.0) == pool.slab.steps[2][pool.slot, 2]


@each_way
@each_kind
def test_rows_are_marked_behind_a_fence_where_processors_reorder(
    monkeypatch, way, kind
):
    monkeypatch.setattr(runner_module, "KEEPS_ORDER", False)
    fences = []
    pool = rig(kind, kind, way=way)
    pool.do(RESET)

    def fence():
        fences.append(pool.slab.answered_rows()[2:].tolist())

    monkeypatch.setattr(runner_module, "fence", fence)
    answers = pool.do(STEP, actions=[1, 2])

    assert [(MID, 1.0, [1, 1]), (MID, 2.0, [1, 1])] == answers
    assert [[False, False], [True, False]] == fences[-2:]


@each_way
def test_a_list_in_place_of_an_array_alone_is_taken_too(way):
    answer = transition(GOOD, 0.5)._replace(observation=[7, 8])
    pool = rig(
        lambda: Answering(restart(GOOD), answer),
        lambda: Answering(restart(GOOD), answer),
        way=way,
        validate="never",
    )
    pool.do(RESET)

    assert [(MID, 0.5, [7, 8])] * 2 == pool.do(STEP)


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
def test_an_observation_of_another_shape_never_broadcasts(way, wrong, validate):
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


@pytest.mark.parametrize("wrong", [None, 3, "text", (1, 2, 3, 4), {}], ids=repr)
def test_what_is_no_time_step_is_the_environments_own_mistake(wrong):
    pool = rig(lambda: Answering(restart(GOOD), wrong), validate="never")
    pool.do(RESET)

    assert ["raised"] == pool.do(STEP)
    assert (2, "step", "SpecError") == facts(pool.failures[2])[1:4]


FLOATS = np.array([1.0, 2.0])


def misfit_of(call, *, validate="first", again=0):
    """Returns the message about floats where integers belong."""
    first = restart(FLOATS if call == "reset" else GOOD)
    pool = rig(lambda: Answering(first, transition(FLOATS, 0.0)), validate=validate)
    for command in (RESET, STEP)[: 1 + (call == "step")]:
        pool.do(command)
    return pool.failures[2].message if pool.failures else ""


@pytest.mark.parametrize("call", ["reset", "step"])
def test_the_first_time_step_of_each_kind_is_looked_at_completely(call):
    assert (
        "env 2 returned a time step that does not fit its spec at observation.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=int32)\n"
        "  got        array of shape (2,), dtype float64, values 1.0 … 2.0\n\n"
        "dtype is float64; the spec says int32. If that is meant, add "
        ".astype(np.int32). The other 3 leaves fit.\n"
        f"This was the first observation after {call}() of {__name__}.Answering."
    ) == misfit_of(call)


@pytest.mark.parametrize("call", ["reset", "step"])
def test_every_time_step_may_be_looked_at_completely(call):
    message = misfit_of(call, validate="always")

    assert message.endswith(
        f"The other 3 leaves fit.\nIt came from {call}() of {__name__}.Answering."
    )


@pytest.mark.parametrize("call", ["reset", "step"])
def test_without_validation_values_are_converted_as_an_assignment_does(call):
    assert "" == misfit_of(call, validate="never")


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
def test_how_long_time_steps_are_looked_at_can_be_chosen(way, validate, expected):
    pool = rig(lambda: Late(2), way=way, validate=validate)
    misfits = 0
    for command in (RESET, STEP, STEP, RESET):
        pool.do(command, actions=[1])
        misfits += len(pool.failures)

    assert expected == misfits


@each_way
@pytest.mark.parametrize("command", [RESET, STEP])
def test_a_misfit_is_a_misfit_again_the_second_time(way, command):
    pool = rig(lambda: Late(0 if command == RESET else 1), way=way)
    if command == STEP:
        pool.do(RESET)
    pool.do(command, actions=[1])

    assert ["raised"] == pool.do(command, actions=[1])


@each_way
def test_a_rebuilt_environment_is_looked_at_anew(way):
    makers = iter([PairEnv, lambda: Late(0)])
    pool = rig(lambda: next(makers)(), way=way)
    pool.do(RESET)

    assert ["raised"] == pool.do(REBUILD)
    assert "misfit" == pool.failures[2].kind


def test_a_misfit_in_the_same_step_is_told_by_the_next():
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


def test_a_batch_begins_the_next_episode_in_the_same_step():
    pool = rig(lambda: BatchEnv([2, 3]), order=SAME_STEP_ORDER)
    pool.do(RESET)
    pool.do(STEP, actions=[1, 1])
    end = pool.do(STEP, actions=[2, 2])
    first = pool.answer(2, SAME_STEP_SLOT)
    after = pool.do(STEP, actions=[3, 3])

    assert [(LAST, 2.0, [1, 2]), (MID, 2.0, [1, 2])] == end
    assert (FIRST, 0.0, [2, 0]) == first
    assert [(MID, 3.0, [2, 1]), (LAST, 3.0, [1, 3])] == after
    assert 2 + 1 + 1 == pool.slab.meters[1][RESETS]


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


def test_rows_of_a_batch_stand_in_slots_of_their_own():
    pool = rig(lambda: BatchEnv([9, 9]))
    pool.do(RESET)
    pool.do(RESET, rows=[3])
    pool.do(STEP, actions=[5, 6])

    assert [0, 1] == sorted(pool.slab.slots(pool.rows).tolist())
    assert [(MID, 5.0, [1, 1]), (MID, 6.0, [2, 1])] == pool.answers()


def test_rows_of_a_batch_that_begin_anew_move_with_those_that_step():
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


def test_a_batch_that_was_never_reset_begins_as_a_whole():
    pool = rig(lambda: BatchEnv([9, 9]))

    assert [(FIRST, 0.0, [1, 0])] == pool.do(RESET, rows=[3])


def test_a_batch_is_rebuilt_as_a_whole():
    pool = rig(lambda: BatchEnv([9, 9]))
    pool.do(RESET)
    pool.do(STEP, actions=[1, 1])
    old = pool.envs[0]

    assert [(FIRST, 0.0, [1, 0])] * 2 == pool.do(REBUILD)
    assert old is not pool.envs[0]


def test_a_batch_that_raises_fails_in_all_its_rows_and_in_no_other():
    class Broken(BatchEnv):
        def _step(self, action):
            raise ValueError("broken")

    pool = rig(PairEnv, Broken, PairEnv)
    pool.do(RESET)
    answers = pool.do(STEP, actions=[1, 2, 3, 4])

    assert [(MID, 1.0, [1, 1]), "raised", "raised", (MID, 4.0, [1, 1])] == answers
    assert {3: 3, 4: 3} == {row: failure.env for row, failure in pool.failures.items()}


@pytest.mark.parametrize("order", [NEXT_STEP_ORDER, SAME_STEP_ORDER, DISABLED_ORDER])
def test_single_environments_and_batches_live_together(order):
    def together():
        return rig(
            lambda: PairEnv(2),
            lambda: BatchEnv([2, 3]),
            lambda: PairEnv(3),
            order=order,
        )

    def alone():
        return rig(*[lambda n=n: PairEnv(n) for n in (2, 2, 3, 3)], order=order)

    streams = []
    for pool in (together(), alone()):
        stream = [pool.do(RESET)]
        for step in range(6):
            ended = [
                row
                for row, answer in zip(pool.rows, stream[-1], strict=True)
                if answer[0] == LAST
            ]
            if order == DISABLED_ORDER and ended:
                stream.append(pool.do(RESET, rows=ended))
            answers = pool.do(STEP, actions=[step] * 4)
            if order == SAME_STEP_ORDER:
                stream.append(
                    [
                        pool.answer(row, SAME_STEP_SLOT)
                        for row, answer in zip(pool.rows, answers, strict=True)
                        if answer[0] == LAST
                    ]
                )
            stream.append(answers)
        streams.append(stream)

    assert streams[1] == streams[0]


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
def test_what_begins_in_the_same_step_is_looked_at_as_well(lengths):
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


def test_an_environment_behind_a_batch_is_called_by_its_own_number():
    pool = rig(BatchEnv, lambda: Answering(restart(FLOATS), None))
    pool.do(RESET)

    assert [4] == list(pool.failures)
    assert pool.failures[4].message.startswith("env 3 returned a time step that ")
    assert 3 == pool.failures[4].env


def test_somebody_is_told_when_a_batch_has_moved():
    pool = rig(BatchEnv, PairEnv)
    seen = []
    pool.runner.after_row = lambda: seen.append(pool.slab.answered_rows()[2:].tolist())
    pool.do(RESET)

    assert [[True, True, False], [True, True, True]] == seen


# All at once.

SCHEDULES = st.lists(
    st.lists(
        st.sampled_from([0, STEP, STEP, STEP, RESET, REBUILD]), min_size=3, max_size=3
    ),
    min_size=1,
    max_size=14,
)
PLANS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sets(st.integers(1, 9), max_size=2),
        st.sets(st.integers(1, 9), max_size=1),
    ),
    min_size=3,
    max_size=3,
)


class Twin:
    """What one environment should answer, in the plainest way."""

    def __init__(self, plan, order):
        self.plan, self.order = plan, order
        self.env = PairEnv(*plan)
        self.ended = False
        self.broken = False

    def answer(self, command, action):
        if command == REBUILD:
            self.env = PairEnv(*self.plan)
        first = None
        try:
            if command != STEP or self.ended:
                time_step = self.env.reset()
                # Not before: after a reset that raised there is no episode either.
                self.broken = False
            elif self.broken:
                return "raised", None
            else:
                time_step = self.env.step(action)
        except (ValueError, SystemExit):
            if command != STEP and self.order == SAME_STEP_ORDER:
                self.ended = False
            return "raised", None
        self.ended = bool(time_step.is_last())
        if self.ended and self.order == SAME_STEP_ORDER:
            self.ended = False
            try:
                first = self.shown(self.env.reset())
            except (ValueError, SystemExit):
                self.broken = True
                first = self.shown(time_step)
        return self.shown(time_step), first

    @staticmethod
    def shown(time_step):
        return (
            int(time_step.step_type),
            float(time_step.reward),
            time_step.observation.tolist(),
        )


@settings(max_examples=60)
@given(
    plans=PLANS,
    schedule=SCHEDULES,
    order=st.sampled_from([NEXT_STEP_ORDER, SAME_STEP_ORDER, DISABLED_ORDER]),
    way=st.sampled_from(WAYS),
    kind=st.sampled_from([PairEnv, ParcelEnv]),
    validate=st.sampled_from(["never", "first", "always"]),
)
def test_every_row_does_what_it_is_told_whatever_its_neighbours_do(
    plans, schedule, order, way, kind, validate
):
    pool = rig(
        *[lambda plan=plan: kind(*plan) for plan in plans],
        way=way,
        order=order,
        validate=validate,
    )
    twins = [Twin(plan, order) for plan in plans]
    for number, commands in enumerate(schedule):
        rows = [2 + row for row, command in enumerate(commands) if command]
        asked = [command for command in commands if command]
        answers = (
            pool.do(asked, rows=rows, actions=[number] * len(rows)) if rows else []
        )
        for row, command, answer in zip(rows, asked, answers, strict=True):
            expected, first = twins[row - 2].answer(command, number)

            assert expected == answer
            assert first is None or first == pool.answer(row, SAME_STEP_SLOT)
            assert (answer == "raised") == (row in pool.failures)


# Everything that is not rows.


def ask(pool, method, *arguments, envs=None):
    envs = (2,) if envs is None else envs
    request = Request(7, method, envs, arguments or (None,) * len(envs))
    reply = pool.runner.handle(request)
    assert 7 == reply.number
    return reply.results


def test_a_method_is_called_with_its_arguments():
    class Teller(PairEnv):
        def tell(self, what, *, loud=False):
            return what.upper() if loud else what

    pool = rig(Teller, Teller)
    results = ask(
        pool,
        "call",
        ("tell", ("hello",), {}),
        ("tell", ("hello",), {"loud": True}),
        envs=(2, 3),
    )

    assert ("hello", "HELLO") == results


def test_an_attribute_is_looked_up():
    assert (3,) == ask(rig(PairEnv), "access", ("length",))


def test_an_environment_is_seeded_and_returns_what_it_likes():
    class Seeded(PairEnv):
        def seed(self, seed):
            self.seeded = seed
            return [seed]

    pool = rig(Seeded)

    assert ([7],) == ask(pool, "seed", 7)
    assert 7 == pool.envs[0].seeded


def test_a_picture_is_rendered():
    (picture,) = ask(rig(CountingEnv), "render", "rgb_array")

    assert (8, 8, 3) == picture.shape


def test_one_that_fails_answers_for_itself_alone():
    pool = rig(lambda: CrashingEnv(where="render"), CountingEnv)
    first, second = ask(pool, "render", "rgb_array", "rgb_array", envs=(2, 3))

    assert (
        "raised",
        2,
        "render()",
        "RuntimeError",
        "CrashingEnv was told to raise in render 1.",
    ) == facts(first)
    assert (8, 8, 3) == second.shape


@pytest.mark.parametrize(
    ("method", "argument", "command"),
    [
        ("call", ("fly", (), {}), "call('fly')"),
        ("access", ("wings",), "access('wings')"),
    ],
)
def test_a_failure_says_what_was_called(method, argument, command):
    (failure,) = ask(rig(PairEnv), method, argument)

    assert ("raised", 2, command, "AttributeError") == facts(failure)[:4]


def test_a_method_that_leaves_the_process_fails():
    class Leaver(PairEnv):
        def leave(self):
            sys.exit(3)

    (failure,) = ask(rig(Leaver), "call", ("leave", (), {}))

    assert ("raised", 2, "call('leave')", "SystemExit", "3") == facts(failure)


def test_a_request_that_nobody_knows_is_a_failure():
    (failure,) = ask(rig(PairEnv), "dance")

    assert ("ValueError", "Nobody knows the request 'dance'.") == facts(failure)[3:]


@pytest.mark.parametrize("ended", [False, True])
def test_a_state_brings_back_where_an_environment_stood(ended):
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


def test_a_state_is_not_changed_by_later_steps():
    pool = rig(PairEnv)
    pool.do(RESET)
    (state,) = ask(pool, "get_state")
    kept = bytes(state)
    pool.do(STEP, actions=[1])

    assert kept == state
    assert (1, 0) == serialize.load_value(state).environment


def test_a_state_forgets_how_the_last_episode_ended():
    pool = rig(lambda: PairEnv(1), order=SAME_STEP_ORDER)
    pool.do(RESET)
    (state,) = ask(pool, "get_state")
    pool.do(STEP, actions=[1])
    ask(pool, "set_state", (state, [False]))

    assert {"episode": 1, "step": 0} == pool.ask_info(2)[0]


def test_closing_closes_every_environment_and_tells_what_went_wrong():
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


def test_what_fits_no_spec_is_a_spec_error_where_it_arrives():
    pool = rig(lambda: Answering(restart(FLOATS), None))
    pool.do(RESET)
    original = pool.failures[2].original()

    assert isinstance(original, SpecError)
    assert OBSERVATION == original.path


def test_bounds_are_looked_at_in_the_first_time_steps():
    class OutOfBounds(PairEnv):
        def observation_spec(self):
            return BoundedArraySpec((2,), np.int32, 0, 3)

        def _observe(self):
            return np.array([1, 4], np.int32)

    pool = rig(OutOfBounds)
    pool.do(RESET)

    assert (
        "env 2 returned a time step that does not fit its spec at observation.\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=int32, minimum=0, maximum=3)\n"
        "  got        array of shape (2,), dtype int32, values 1 … 4\n\n"
        "1 of 2 elements is above the maximum 3: 4 at index (1,). "
        "The other 3 leaves fit.\n"
        "This was the first observation after reset() of "
        f"{__name__}.test_bounds_are_looked_at_in_the_first_time_steps.<locals>"
        ".OutOfBounds."
    ) == pool.failures[2].message
