"""Sessions that share processes: `envkit serve --sessions-per-process N`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

import pytest

from envkit import connect
from envkit.errors import WorkerCrashed, WorkerTimeout
from envkit.remote import observe
from tests.remote.serving import Between, served
from tests.waiting import PATIENCE, is_running, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")


def pid_of(env):
    return env.servers()[0].facts["pid"]


@contextlib.contextmanager
def clients(server, count, **options):
    """Connects several clients, each to a session of its own."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(connect(server.address, **options))
            for _ in range(count)
        ]


def step_for_ever(env):
    # Other threads go on while the process ends.
    while True:
        env.step([0])


def number_of_sessions(server):
    return server.health()[0]["sessions"]


def test_a_process_takes_as_many_sessions_as_allowed():
    with served("CartPole", sessions_per_process=2) as server:
        with clients(server, 3) as envs:
            pids = [pid_of(env) for env in envs]
            for env in envs:
                assert env.reset().is_first().all()
                assert env.step([0]).is_mid().all()
        assert pids[0] == pids[1] != pids[2]
        assert until(lambda: not any(map(is_running, pids)))


def test_a_session_takes_the_place_of_one_that_has_ended():
    with (
        served("CartPole", sessions_per_process=2) as server,
        clients(server, 1) as (lasting,),
    ):
        for _ in range(3):
            with clients(server, 1) as (env,):
                assert pid_of(env) == pid_of(lasting)
            assert until(lambda: number_of_sessions(server) == 1)


def test_libraries_do_not_share_a_process():
    targets = ("CartPole", "game=tests.remote.games:Told")
    with served(*targets, sessions_per_process=8) as server:
        names = ("CartPole", "game", "CartPole")
        with contextlib.ExitStack() as stack:
            pids = [
                pid_of(stack.enter_context(connect(f"{server.address}/{name}")))
                for name in names
            ]
        assert pids[0] == pids[2] != pids[1]


def test_a_crash_ends_the_sessions_of_its_process_with_the_signal_in_the_error():
    with served("CartPole", sessions_per_process=2) as server:
        with clients(server, 3, on_worker_failure="raise") as envs:
            for env in envs:
                env.reset()
            os.kill(pid_of(envs[0]), signal.SIGSEGV)
            for env in envs[:2]:
                with pytest.raises(
                    WorkerCrashed, match="session's process was killed by SIGSEGV"
                ):
                    step_for_ever(env)
            assert envs[2].step([0]).is_mid().all()
        with clients(server, 1) as (env,):
            assert env.reset().is_first().all()


def test_a_lost_session_goes_on_in_another_process():
    with (
        served("CartPole", sessions_per_process=2) as server,
        clients(server, 2) as envs,
    ):
        for env in envs:
            env.reset()
        before = pid_of(envs[0])
        os.kill(before, signal.SIGKILL)
        for env in envs:
            while not env.repaired.all():
                last = env.step([0])
            assert last.is_last().all()
            assert env.step([0]).is_first().all()
        assert before != pid_of(envs[0]) == pid_of(envs[1])


def test_a_session_that_waits_delays_no_other():
    with (
        served("game=tests.remote.games:Gate", sessions_per_process=4) as server,
        clients(server, 2) as (waiting, other),
    ):
        waiting.reset(), other.reset()
        thread = threading.Thread(target=waiting.step, args=([1],))
        thread.start()
        for _ in range(3):
            assert other.step([0]).is_mid().all()
        assert thread.is_alive()
        assert until(lambda: other.reset() and not thread.is_alive())


def test_a_lost_link_is_resumed():
    with served("CartPole", sessions_per_process=2, observers=1, token=None) as server:
        between = Between(server.address)
        with (
            connect(between.address, on_worker_failure="raise", resume=600.0) as env,
            clients(server, 1),
            observe(server.address, env.session) as observed,
        ):
            env.reset()
            assert observed.recv(timeout=PATIENCE).is_first().all()
            between.cut()
            assert env.step([0]).is_mid().all()
            assert observed.recv(timeout=PATIENCE).is_mid().all()
        between.close()


def test_a_stopped_server_tells_all_sessions_why():
    with (
        served("CartPole", sessions_per_process=2) as server,
        clients(server, 2, on_worker_failure="raise") as envs,
    ):
        for env in envs:
            env.reset()
        server.close("it gets dark")
        for env in envs:
            with pytest.raises(WorkerCrashed, match="it gets dark"):
                env.step([0])


@pytest.mark.parametrize("most", [1, 2])
def test_a_step_that_never_ends_frees_its_session_when_the_client_has_left(
    most, monkeypatch
):
    monkeypatch.setattr("envkit.remote.session_process._GRACE", 0.1)
    with served(
        "game=tests.remote.games:Gate",
        sessions_per_process=most,
        idle_timeout=10.0,
        resume=0.1,
    ) as server:
        with clients(server, 1) as (other,):
            before = pid_of(other)
            other.reset()
            with clients(server, 1, step_timeout=0.5, on_worker_failure="raise") as (
                env,
            ):
                env.reset()
                with pytest.raises(WorkerTimeout):
                    env.step([1])
            assert until(lambda: other.step([0]) and number_of_sessions(server) == 1)
            with clients(server, 1) as (env,):
                # Its thread is stuck in the first process.
                assert pid_of(env) != before
        assert until(lambda: not is_running(before))
