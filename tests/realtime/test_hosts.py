"""Where an environment runs in real time, and what may go wrong there."""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimeoutOfFuture
from pathlib import Path

import numpy as np
import pytest

from envkit import ArraySpec, BatchedPyEnvironment, StepType
from envkit.envs import CartPole
from envkit.errors import ClosedError, WorkerCrashed, WorkerTimeout
from envkit.parallel import RestartPolicy
from envkit.realtime import RealTimeEnvironment
from envkit.realtime.actions import LateActions
from envkit.realtime.hosts import VirtualHost
from envkit.realtime.loop import Schedule, TickLoop
from envkit.testing import ManualClock
from tests.realtime.games import Diary
from tests.waiting import PATIENCE, until

FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)
ROOT = Path(__file__).parents[2]
# So seldom that no tick comes while a test runs.
NEVER = 1e-3


@pytest.fixture(params=["virtual", "thread", "process"])
def host(request):
    """Each of the hosts."""
    return request.param


def facts(time_step):
    return int(time_step.step_type), np.asarray(time_step.observation).tolist()


def persist(call):
    """Calls until it is not too late."""
    while True:
        try:
            return call()
        except WorkerTimeout:
            continue


def two_diaries():
    return BatchedPyEnvironment([Diary(), Diary()])


class Gated(Diary):
    """Begins an episode when its gate is open."""

    def __init__(self, gate, length=10**6):
        super().__init__(length)
        self._gate = gate

    def _reset(self):
        self._gate.wait()
        return super()._reset()


class GateOfFile:
    """Is open, also in other processes, while there is a file."""

    def __init__(self, path):
        self._path = path

    def wait(self):
        until(self._path.exists)


class Unwilling(Diary):
    """Begins every second episode only when it is asked again."""

    asked = 0

    def _reset(self):
        self.asked += 1
        if self.asked == 2:
            raise OSError("no start")
        return super()._reset()


DEADLY = 99


class Mortal(Diary):
    """Ends its process when a certain action acts, and never without the agent."""

    def _step(self, action):
        if action == DEADLY:
            os._exit(3)
        return super()._step(action)


# All of them.


def test_peeking_leaves_the_time_step_unread(running, host):
    env = running(Diary, hz=10 if host == "virtual" else 200, host=host)
    env.reset()
    first = env.step(5)
    peeked, stepped = env.peek(), env.step(6)

    assert MID == peeked.step_type
    # All that has happened since the first step, what was peeked at included.
    assert stepped.reward == stepped.observation[1] - first.observation[1]
    assert first.observation[1] <= peeked.observation[1] < stepped.observation[1]
    assert [5, 6] == [one.observation[2] for one in (first, stepped)]


def test_a_failed_reset_leaves_no_episode(running, host):
    env = running(Unwilling, host=host)
    env.reset()
    env.step(1)
    with pytest.raises(OSError, match="no start"):
        env.reset()
    with pytest.raises(Exception, match=r"no start|step\(\) was called after"):
        env.step(1)

    assert (FIRST, [2, 0, 0]) == facts(env.reset())
    assert MID == env.step(1).step_type


def test_a_state_restores_the_timing(running, host):
    make = functools.partial(running, Diary, hz=100, host=host, wait="newest")
    env = make()
    env.reset()
    env.step(1)
    state, lag, info = env.get_state(), env.lag(), env.get_info()["step"]
    other = make()
    other.set_state(state)

    assert lag == other.lag()
    assert info == other.get_info()["step"]
    assert MID == other.step(1).step_type


def test_a_state_from_before_the_first_episode_can_be_restored(running, host):
    env = running(Diary, host=host)
    state = env.get_state()
    env.reset()
    env.set_state(state)
    assert (FIRST, [1, 0, 0]) == facts(env.step(1))


def test_rows_outside_a_reset_keep_their_timing(running, host):
    env = running(two_diaries, host=host, wait="newest")
    env.reset()
    before = env.step([1, 2])
    lag, info = env.lag(), env.get_info()
    after = env.reset(np.array([True, False]))

    assert [FIRST, MID] == after.step_type.tolist()
    assert before.observation[1].tolist() == after.observation[1].tolist()
    assert lag.observation_tick[1] == env.lag().observation_tick[1]
    assert [0, lag.ticks_merged[1]] == env.lag().ticks_merged.tolist()
    assert [0, info["step"][1]] == env.get_info()["step"].tolist()


# A thread.

TOO_LATE = (
    "RealTimeEnvironment.reset() waited 0.01 s for {} to begin an episode. It goes on "
    "beginning: call reset() again to wait for it, or close()."
)


def test_closing_in_another_thread_ends_a_waiting_step(running):
    env = running(Diary, NEVER, host="thread")
    env.reset()
    raised = []

    def act():
        with pytest.raises(ClosedError) as caught:
            env.step(1)
        raised.append(caught.value)

    agent = threading.Thread(target=act)
    agent.start()
    env.close()
    agent.join(PATIENCE)

    assert [ClosedError] == [type(error) for error in raised]


@pytest.mark.own_process
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_only_the_wait(running):
    env = running(Diary, NEVER, host="thread")
    env.reset()
    loop = env._host.loop

    def interrupt():
        until(lambda: loop._is_new.any())
        os.kill(os.getpid(), signal.SIGINT)

    finger = threading.Thread(target=interrupt)
    finger.start()
    with pytest.raises(KeyboardInterrupt):
        env.step(1)
    finger.join(PATIENCE)

    assert (FIRST, [2, 0, 0]) == facts(env.reset())


def test_a_late_reset_completes_in_a_later_step(running):
    gate = threading.Event()
    env = running(lambda: Gated(gate), host="thread", reset_timeout=0.01)
    with pytest.raises(WorkerTimeout, match=re.escape(TOO_LATE.format("Gated"))):
        env.reset()
    gate.set()
    seen = [facts(persist(lambda: env.step(1)))[0], facts(env.step(1))[0]]

    assert [FIRST, MID] == seen
    assert (FIRST, [2, 0, 0]) == facts(persist(env.reset))


def test_a_reset_that_finishes_at_its_deadline_succeeds(running, monkeypatch):
    class JustDone(Future):
        def result(self, timeout=None):
            done = super().result()
            if timeout is not None:
                raise TimeoutOfFuture
            return done

    monkeypatch.setattr("envkit.realtime.hosts.Future", JustDone)
    env = running(Diary, NEVER, host="thread", reset_timeout=0.01)

    assert (FIRST, [1, 0, 0]) == facts(env.reset())


def test_an_episode_begun_before_the_seed_is_discarded(running):
    gate = threading.Event()
    env = running(lambda: Gated(gate), host="thread", reset_timeout=0.01)
    with pytest.raises(WorkerTimeout):
        env.reset()
    gate.set()
    env.seed(3)
    assert (FIRST, [2, 0, 0]) == facts(persist(env.reset))


def test_resets_of_different_rows_are_separate(running):
    gate = threading.Event()

    def make():
        return BatchedPyEnvironment([Gated(gate), Gated(gate)])

    env = running(make, 50, host="thread", reset_timeout=0.01)
    gate.set()
    persist(env.reset)
    gate.clear()
    with pytest.raises(WorkerTimeout):
        env.reset(np.array([True, False]))
    gate.set()
    time_step = persist(lambda: env.reset(np.array([False, True])))

    assert FIRST == time_step.step_type[1]
    assert 2 == time_step.observation[1][0]


def test_an_unclosed_environment_warns_and_ends(running):
    env = RealTimeEnvironment(Diary, NEVER, host="thread")
    thread = env._host._thread
    message = (
        "A RealTimeEnvironment was not closed. Use it in a with statement, or call "
        "close()."
    )
    with pytest.warns(ResourceWarning, match=re.escape(message)):
        env = gc.collect()

    assert not thread.is_alive()


def test_an_environment_that_cannot_be_run_is_closed_again():
    made = []

    class Counting(Diary):
        def __init__(self):
            super().__init__()
            made.append(self)

        def reward_spec(self):
            return ArraySpec((), np.int64)

    with pytest.raises(ValueError, match="Use merge='sum'"):
        RealTimeEnvironment(Counting, 10, host="thread")
    with pytest.raises(ValueError, match="Use merge='sum'"):
        RealTimeEnvironment(given := Counting(), 10, host="virtual")

    assert [True, False] == [env.is_closed for env in made]
    assert given is made[1]


def test_an_error_while_closing_is_reported(running, caplog):
    class Stuck(Diary):
        def close(self):
            raise OSError("no end")

    env = running(Stuck, host="thread")
    env.close()

    assert "Closing Stuck, which ran in real time, failed." == caplog.messages[0]


# The virtual clock.


def test_think_time_may_be_measured():
    clock, env = ManualClock(), Diary()
    loop = TickLoop(env, Schedule(10), LateActions("repeat", env.action_spec()))
    host = VirtualHost(lambda: (env, loop), "next", "measured", watch=clock)
    host.reset(None)
    clock.advance(0.25)
    time_step = host.step(np.array(5))

    assert (MID, [1, 3, 5]) == facts(time_step)
    assert 0.25 == host.lag().think_time


# A process.


@pytest.mark.slow
def test_a_crashed_process_is_reported():
    with RealTimeEnvironment(Mortal, 200) as env:
        env.reset()
        with pytest.raises(WorkerCrashed, match="exited with code 3"):
            env.step(DEADLY)


@pytest.mark.slow
def test_a_crashed_process_can_be_replaced():
    """What went on is cut off, and known to be."""
    options = {"on_worker_failure": RestartPolicy(max_restarts=2)}
    with RealTimeEnvironment(Mortal, 50, worker_options=options) as env:
        env.reset()
        env.step(1)
        end = env.step(DEADLY)
        lag, peeked, info = env.lag(), env.peek(), env.get_info()
        begun = env.step(1)

        assert LAST == end.step_type
        assert (1.0, 0.0) == (float(end.discount), float(peeked.discount))
        assert (True, -1, 0) == (lag.interrupted, lag.episode_id, lag.ticks_merged)
        assert ["realtime"] == list(info)
        assert (FIRST, [1, 0, 0]) == facts(begun)
        assert 0 == env.lag().episode_id


@pytest.mark.slow
@pytest.mark.parametrize("batched", [False, True])
def test_a_process_that_starts_too_slowly_keeps_starting(tmp_path, batched):
    gate = tmp_path / "gate"
    make = functools.partial(Gated, GateOfFile(gate), 3)
    if batched:
        make = functools.partial(_batch_of, make)
    with RealTimeEnvironment(make, 200, reset_timeout=0.01) as env:
        with pytest.raises(WorkerTimeout) as caught:
            env.reset()
        gate.touch()
        begun = persist(env.reset)
        gate.unlink()
        late = None
        try:
            while True:
                env.step([1] if batched else 1)
        except WorkerTimeout as error:
            late = error
        gate.touch()
        again = persist(env.reset)

    name = "BatchedPyEnvironment" if batched else "Gated"
    assert TOO_LATE.format(name) == str(caught.value)
    assert str(late).endswith(
        "Call reset(), which begins one in every row, or close()."
        if batched
        else "It goes on beginning: call step() again to wait for it, or close()."
    )
    assert [FIRST, FIRST] == [int(np.squeeze(one.step_type)) for one in (begun, again)]


def _batch_of(make):
    return BatchedPyEnvironment([make()])


def script(text):
    """Runs a program, and returns what it has printed."""
    program = textwrap.dedent(text)
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return finished.returncode, finished.stdout.strip(), finished.stderr


def test_a_fork_has_no_clock():
    code, told, errors = script(
        """
        import os, warnings
        from envkit.envs import Catch
        from envkit.realtime import RealTimeEnvironment

        warnings.simplefilter("ignore")
        env = RealTimeEnvironment(Catch, 50, host="thread")
        env.reset()
        if not os.fork():
            for call in (env.reset, lambda: env.step(1), env.peek, env.get_state):
                try:
                    call()
                except Exception as error:
                    print(type(error).__name__, error, flush=True)
            env.close()
            os._exit(0)
        os.wait()
        env.step(1)
        env.close()
        """
    )
    message = (
        "ClosedError This RealTimeEnvironment runs in a thread of another process, of "
        "which this one is a fork, and threads are not forked along. Make another here."
    )

    assert (0, [message] * 4) == (code, told.splitlines()), errors


@pytest.mark.slow
@pytest.mark.parametrize("host", ["thread", "process"])
def test_a_running_clock_does_not_keep_the_interpreter_alive(host):
    code, told, errors = script(
        f"""
        from envkit.envs import Catch
        from envkit.realtime import RealTimeEnvironment

        env = RealTimeEnvironment(Catch, 50, host="{host}")
        env.reset()
        env.step(1)
        print("done")
        """
    )

    assert (0, "done", "") == (code, told, errors)


def test_a_batch_passes_its_seeds_to_its_rows(host, running):
    env = running(functools.partial(CartPole, batch_size=2), host=host)
    env.seed([3, 4])
    begun = env.reset()

    np.testing.assert_array_equal(
        [CartPole(seed=seed).reset().observation for seed in (3, 4)],
        begun.observation,
    )
