"""One session: resets, steps, turns, and the end of its lease."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import envkit
from envkit import PyEnvironment
from envkit.errors import CallOrderError, ClosedError, ConstructorError, SpecError
from envkit.parallel.backends.thread import ThreadBackend
from envkit.sessions import SessionEnded, Sessions
from envkit.sessions.driver import Answer
from envkit.sessions.session import Session, Slot
from tests.sessions.environments import IS_OVER, Guess, Owned, Slow
from tests.sessions.running import in_loop, run, until_so
from tests.waiting import PATIENCE, is_running, until


@pytest.mark.parametrize("backend", ["thread", "process", "inline"])
def test_a_session_plays_the_episode_of_its_seed(backend):
    with envkit.make("Catch") as env:
        env.seed(7)
        alone = [env.reset()]
        while not alone[-1].is_last():
            alone.append(env.step(1))

    @in_loop
    async def play():
        async with (
            Sessions("Catch", 2, backend=backend, num_workers=1) as sessions,
            sessions.lease(seed=7) as session,
        ):
            turns = [await session.reset()]
            while turns[-1].end is None:
                turns.append(await session.step(1))
        for turn, time_step in zip(turns, alone, strict=True):
            np.testing.assert_array_equal(turn.observation, time_step.observation)
            assert turn.reward == time_step.reward
        assert turns[-1].total == sum(turn.reward for turn in turns)
        assert (turns[-1].end, turns[-1].steps) == ("terminated", len(turns) - 1)

    play()


@in_loop
async def test_a_time_limit_truncates():
    async with (
        Sessions("CartPole", 1, max_episode_steps=3) as sessions,
        sessions.lease(seed=1) as session,
    ):
        turn = await session.reset()
        while turn.end is None:
            turn = await session.step(turn.steps % 2)
    assert (turn.end, turn.steps, turn.discount) == ("truncated", 3, 1.0)


@in_loop
async def test_arguments_of_the_environment_are_passed_on():
    async with Sessions("Catch", 1, rows=4) as sessions, sessions.lease() as session:
        assert (await session.reset()).observation.shape == (4, 5)


@in_loop
async def test_a_second_reset_begins_another_episode():
    async with Sessions("Catch", 1) as sessions, sessions.lease(seed=7) as session:
        firsts = [(await session.reset()).observation for _ in range(8)]
        again = [(await session.reset(seed=7)).observation]
        again += [(await session.reset()).observation for _ in range(7)]
    assert len({first.tobytes() for first in firsts}) > 1
    np.testing.assert_array_equal(firsts, again)


@in_loop
async def test_options_reach_the_reset():
    async with Sessions(Owned, 1) as sessions, sessions.lease() as session:
        turn = await session.reset(options={"owner": 5})
    assert turn.observation["owner"] == 5


@in_loop
async def test_options_must_be_a_dictionary():
    async with Sessions(Owned, 1) as sessions, sessions.lease() as session:
        with pytest.raises(TypeError, match="options must be a dictionary, got 5"):
            await session.reset(options=5)


@in_loop
async def test_a_step_before_a_reset_is_refused():
    async with Sessions("Catch", 1) as sessions, sessions.lease() as session:
        with pytest.raises(CallOrderError, match="before the episode began"):
            await session.step(1)
        with pytest.raises(CallOrderError, match="no turn yet"):
            _ = session.turn


@in_loop
async def test_a_step_after_the_end_is_refused():
    make = functools.partial(Slow, 0.0, steps=1)
    async with Sessions(make, 1) as sessions, sessions.lease() as session:
        await session.reset()
        assert (await session.step(0)).end == "terminated"
        with pytest.raises(CallOrderError, match="after its end"):
            await session.step(0)


@in_loop
async def test_an_action_that_does_not_fit_is_refused_and_the_session_goes_on():
    async with Sessions("Catch", 1) as sessions, sessions.lease() as session:
        await session.reset()
        for wrong in (17, "left", [1], {"left": 1}):
            # It is about one action, and none of a batch.
            with pytest.raises(SpecError, match=r"Session\.step\(\).*\n.*\n.*=\(\)"):
                await session.step(wrong)
        for steps in (1, 2):
            assert (await session.step(1)).steps == steps
            with pytest.raises(SpecError, match="17 is above the maximum"):
                await session.step(17)


@in_loop
async def test_a_text_that_is_none_is_refused():
    async with Sessions(Guess, 1) as sessions, sessions.lease(seed=1) as session:
        word = (await session.reset()).text.removeprefix("Say ")
        with pytest.raises(SpecError, match="It holds None"):
            await session.step(None)  # as the content of a model's tool call is
        assert (await session.step(word)).reward == 1.0


@in_loop
async def test_two_calls_at_once_are_refused():
    make = functools.partial(Slow, 60.0)
    async with Sessions(make, 1) as sessions, sessions.lease() as session:
        await session.reset()
        first = asyncio.ensure_future(session.step(0))
        await until_so(lambda: session.is_busy)
        with pytest.raises(CallOrderError, match="still answers"):
            await session.step(0)
        IS_OVER.set()
        assert (await first).steps == 1


class Asked:
    """Has a session, whose requests the test answers."""

    tools, idle_timeout = (), None

    def submit(self, slot, request):
        self.answer = request.answered

    def count(self, turn, losses):
        """Counts nothing."""


@in_loop
async def test_a_session_is_busy_until_its_coroutine_has_the_answer():
    """Otherwise it could be taken back as idle, or be stepped again, before that."""
    owner = Asked()
    session = Session(owner, Slot(0), None, has_one_episode=False)
    reset = asyncio.ensure_future(session.reset())
    await asyncio.sleep(0)
    owner.answer(Answer(0, np.zeros(1), 0.0, 1.0, {}))
    assert session.is_busy
    await reset
    assert not session.is_busy


@in_loop
async def test_an_end_is_told_to_each_call_that_is_under_way():
    stuck = functools.partial(Slow, 60.0)
    async with Sessions(stuck, 1) as sessions, sessions.lease() as session:
        await session.reset()
        calls = [
            asyncio.ensure_future(session.step(0)),
            asyncio.ensure_future(session.reset()),
        ]
        await until_so(lambda: session.is_busy)
        session.release()
        for call in calls:
            with pytest.raises(SessionEnded):
                await call
        IS_OVER.set()  # and with that the step


@in_loop
async def test_a_cancelled_step_is_followed_by_a_reset():
    make = functools.partial(Slow, 60.0)
    async with Sessions(make, 1) as sessions, sessions.lease() as session:
        await session.reset()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.step(0), 0.001)
        with pytest.raises(CallOrderError):
            await session.step(0)
        IS_OVER.set()
        assert (await session.reset()).observation == 0
        assert (await session.step(0)).observation == 1


@in_loop
async def test_a_reset_after_a_cancelled_step_begins_a_later_episode():
    async with Sessions("Catch", 1) as sessions, sessions.lease(seed=7) as session:
        episodes = [(await session.reset()).observation.tobytes()]
        for _ in range(7):
            step = asyncio.ensure_future(session.step(1))
            await asyncio.sleep(0)
            step.cancel()
            await asyncio.wait([step])
            episodes.append((await session.reset()).observation.tobytes())
    assert len(set(episodes)) > 1


@in_loop
async def test_a_reset_that_was_cancelled_has_not_used_the_seed():
    async with Sessions("Catch", 1) as sessions, sessions.lease(seed=7) as session:
        cancelled = asyncio.ensure_future(session.reset())
        await asyncio.sleep(0)
        cancelled.cancel()
        turn = await session.reset()
        again = await session.reset(seed=7)
    np.testing.assert_array_equal(again.observation, turn.observation)


@in_loop
async def test_a_session_that_was_given_back_says_so():
    async with Sessions("Catch", 1) as sessions:
        async with sessions.lease() as session:
            await session.reset()
        with pytest.raises(SessionEnded, match="lease is over") as caught:
            await session.reset()
        assert caught.value.reason == "released"
        assert session.turn.steps == 0


@in_loop
async def test_an_idle_session_is_taken_back_and_reads_the_reason():
    async with Sessions("Catch", 1, idle_timeout=0.05) as sessions:
        idle = await sessions.lease()
        async with sessions.lease() as other:
            await other.reset()
            with pytest.raises(SessionEnded, match=r"idle_timeout=0\.05") as caught:
                await idle.reset()
        assert caught.value.reason == "idle"
        assert sessions.statistics().reclaimed >= 1


@in_loop
async def test_a_session_is_not_idle_while_the_event_loop_is_held_up():
    """A trainer in the same thread does that: no coroutine can call its session."""
    async with Sessions("Catch", 1, idle_timeout=20.0) as sessions:
        loop, session = asyncio.get_running_loop(), await sessions.lease()
        turn = await session.reset()
        now = loop.time
        loop.time = lambda: now() + 60.0  # a minute later
        await until_so(lambda: session.idle_looks > 0)
        turn = await session.step(1)
        assert (turn.steps, sessions.statistics().reclaimed) == (1, 0)


@in_loop
async def test_a_session_that_nobody_holds_is_taken_back():
    async with Sessions("Catch", 1) as sessions:
        session = await sessions.lease()
        await session.reset()
        del session
        gc.collect()
        async with sessions.lease(timeout=60) as other:
            await other.reset()


class Held(Slow):
    """Stays in its step until it is let go."""

    def __init__(self, let_go):
        super().__init__(0.0)
        self._let_go = let_go

    def _step(self, action):
        assert self._let_go.wait(60.0)
        return super()._step(action)


class Building(Slow):
    """Is built once a file exists, or a minute has passed."""

    def __init__(self, begun, let_go):
        super().__init__(0.0)
        begun.touch()
        assert until(let_go.exists, 60.0)


@pytest.mark.parametrize("num_workers", [2, 1])
def test_the_event_loop_runs_while_an_environment_is_stuck(num_workers):
    """A loop that waited for the environment would never let it go."""
    let_go = threading.Event()

    @in_loop
    async def play():
        async with (
            Sessions(lambda: Held(let_go), 2, num_workers=num_workers) as sessions,
            sessions.lease() as stuck,
            sessions.lease() as other,
        ):
            await stuck.reset()
            step = asyncio.ensure_future(stuck.step(0))
            await until_so(lambda: stuck.is_busy)
            # Behind the step if there is one worker.
            behind = asyncio.ensure_future(other.reset(options={}))
            if num_workers == 2:
                await asyncio.wait([behind])
            for _ in range(200):
                await asyncio.sleep(0.001)
            assert not step.done()
            assert behind.done() is (num_workers == 2)
            let_go.set()
            assert (await step).steps == 1
            await asyncio.wait([behind])

    play()


class Failing(ThreadBackend):
    """Fails in a way that no pool expects."""

    has_failed = False

    def wait_events(self, timeout, owing=-1):
        if self.has_failed:
            raise OSError("The disk is gone.")
        return super().wait_events(timeout, owing)


@in_loop
async def test_sessions_end_if_their_thread_fails(caplog):
    backend, let_go = Failing(), threading.Event()
    async with Sessions(lambda: Held(let_go), 1, backend=backend) as sessions:
        session = await sessions.lease()
        await session.reset()
        waits = asyncio.ensure_future(sessions.lease()._take())
        await until_so(lambda: sessions.statistics().waiting == 1)
        backend.has_failed = True
        with pytest.raises(SessionEnded, match="closed"):
            await session.step(1)
        with pytest.raises(ClosedError):
            await waits
        let_go.set()
    assert "The disk is gone." in caplog.text


PROGRAM = """
import asyncio, functools, sys
from envkit.sessions import Sessions
from tests.sessions.environments import Slow

async def play():
    sessions = Sessions(functools.partial(Slow, 60.0), 2, backend=sys.argv[1])
    await sessions.open()
    session = await sessions.lease()
    await session.reset()
    step = asyncio.ensure_future(session.step(0))
    while not session.is_busy:
        await asyncio.sleep(0.01)
    print(*[worker.pid for worker in sessions._pool.workers], flush=True)
    if sys.argv[2] == "raises":
        raise ZeroDivisionError
    await step

asyncio.run(play())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="signals, and processes by number")
@pytest.mark.parametrize(
    ("backend", "how"), [("thread", "raises"), ("process", "ctrl-c")]
)
def test_a_program_that_closes_no_sessions_ends_and_leaves_nothing(backend, how):
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, backend, how],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        workers = program.stdout.readline().split()
        if how == "ctrl-c":
            program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=PATIENCE)
    assert ("ZeroDivisionError" if how == "raises" else "KeyboardInterrupt") in errors
    assert "thread has failed" not in errors
    pids = [int(pid) for pid in workers if pid != "None"]
    assert until(lambda: not any(map(is_running, pids)))


@in_loop
async def test_closing_ends_sessions_and_waits_for_no_step():
    sessions = Sessions(functools.partial(Slow, 60.0), 2)
    await sessions.open()
    session = await sessions.lease()
    await session.reset()
    step = asyncio.ensure_future(session.step(0))
    await until_so(lambda: session.is_busy)
    held = await sessions.lease()
    waiting = asyncio.ensure_future(sessions.lease()._take())
    await until_so(lambda: sessions.statistics().waiting == 1)
    await sessions.close(grace=0.0)
    assert held.losses == ()
    with pytest.raises(SessionEnded, match="closed"):
        await step
    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        sessions.statistics()
    await sessions.close()


class Seeding(Slow):
    def __init__(self, let_go):
        super().__init__(0.0)
        self._let_go = let_go

    def seed(self, seed):
        assert self._let_go.wait(60.0)


def names_of_threads():
    return [thread.name for thread in threading.enumerate()]


def test_closing_waits_for_no_question():
    let_go = threading.Event()

    @in_loop
    async def close():
        sessions = Sessions(functools.partial(Seeding, let_go), 1)
        await sessions.open()
        session = await sessions.lease()
        reset = asyncio.ensure_future(session.reset(seed=1))
        await until_so(lambda: session.is_busy)
        await sessions.close(grace=0.0)
        with pytest.raises(SessionEnded, match="closed"):
            await reset

    close()
    assert until(lambda: "envkit-sessions" not in names_of_threads(), 30.0)
    let_go.set()


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_opening_is_given_up_at_once(backend, tmp_path):
    """It would otherwise wait for constructors, of which none ends by itself."""
    let_go = tmp_path / "let_go"

    @in_loop
    async def give_up():
        make = functools.partial(Building, tmp_path / "begun", let_go)
        sessions = Sessions(make, 2, backend=backend)
        opening = asyncio.ensure_future(sessions.open())
        await until_so((tmp_path / "begun").exists)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        with pytest.raises(ClosedError):
            await sessions.lease()

    give_up()
    if backend == "thread":  # which cannot be killed
        let_go.touch()


def test_sessions_are_used_in_the_event_loop_in_which_they_were_opened():
    sessions = Sessions("Catch", 1)

    async def open_them():
        await sessions.open()
        session = await sessions.lease()
        await session.reset()
        return session

    async def use_them():
        with pytest.raises(CallOrderError, match="another event loop"):
            await session.step(1)
        with pytest.raises(CallOrderError, match="another event loop"):
            await sessions.lease()
        await sessions.close()

    session = run(open_them())
    run(use_them())


@in_loop
async def test_an_environment_that_cannot_be_built_raises_at_once():
    def broken() -> PyEnvironment:
        raise ValueError("no such level")

    with pytest.raises(ConstructorError, match="no such level"):
        await Sessions(broken, 2).open()


@in_loop
async def test_a_batch_is_refused():
    with pytest.raises(ValueError, match="not a batch"):
        await Sessions("CartPole", 2, batch_size=3).open()


@in_loop
async def test_sessions_that_are_not_open_say_how_to_open_them():
    sessions = Sessions("Catch", 1)
    with pytest.raises(CallOrderError, match="async with Sessions"):
        await sessions.lease()


@pytest.mark.parametrize("argument", [{"size": 0}, {"idle_timeout": -1.0}])
def test_impossible_arguments_are_refused(argument):
    with pytest.raises(ValueError, match=next(iter(argument))):
        Sessions(**{"target": "Catch", "size": 1, **argument})


def test_restart_must_be_a_policy():
    with pytest.raises(TypeError, match="restart must be a RestartPolicy, got 3"):
        Sessions("Catch", 1, restart=3)


@in_loop
async def test_an_argument_that_sessions_take_too_is_given_to_the_environment():
    make = envkit.constructor("GridWorld", size=5)
    async with Sessions(make, 1) as sessions:
        assert sessions.observation_spec().shape == (5, 5, 3)
