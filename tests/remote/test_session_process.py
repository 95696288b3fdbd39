"""Sessions that have processes of their own, as `envkit serve` gives each one."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys

import numpy as np
import pytest

from envkit import connect, make
from envkit.errors import ClosedError, ConstructorError, WorkerCrashed
from envkit.remote import observe
from tests.remote.serving import Between, certificate_in, served
from tests.waiting import PATIENCE, is_running, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

SERVE = [sys.executable, "-m", "envkit", "serve"]


def same(first, second):
    return all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


def pid_of(env):
    return env.servers()[0].facts["pid"]


def test_a_crash_ends_one_session_and_says_how():
    with (
        served("CartPole") as server,
        connect(server.address, num_envs=2) as other,
        connect(server.address, num_envs=2, on_worker_failure="raise") as env,
        connect(server.address, num_envs=2) as lasting,
    ):
        assert 3 == len({os.getpid(), pid_of(env), pid_of(other)})
        for each in (env, other, lasting):
            each.reset(), each.step([0, 1])
        os.kill(pid_of(env), signal.SIGSEGV)
        with pytest.raises(WorkerCrashed, match="session was killed by SIGSEGV while"):
            env.step([0, 0])
        before = pid_of(lasting)
        os.kill(before, signal.SIGKILL)
        lost = lasting.step([0, 0])
        assert lost.is_last().all()
        assert (lost.discount == 1).all()
        assert lasting.repaired.all()
        assert lasting.step([0, 0]).is_first().all()
        assert before != pid_of(lasting)
        assert other.step([1, 0]).is_mid().all()
        pids = [pid_of(other), pid_of(lasting)]
    assert until(lambda: not any(map(is_running, pids)))


def test_a_link_is_taken_up_and_watched_by_the_same_process():
    with served("CartPole", observers=1, token=None) as server:
        between = Between(server.address)
        with (
            connect(
                between.address, num_envs=3, on_worker_failure="raise", resume=600.0
            ) as env,
            observe(server.address, env.session) as observed,
            make("CartPole", num_envs=3, backend="inline") as local,
        ):
            with pytest.raises(ConnectionError, match="may have 1 observers"):
                observe(server.address)
            env.seed(5), local.seed(5)
            assert same(env.reset(), local.reset())
            assert observed.recv(timeout=PATIENCE).is_first().all()
            for step in range(24):
                if step % 8 == 3:
                    between.cut()
                actions = np.full(3, step % 2)
                assert same(env.step(actions), local.step(actions))
            env.close()
            with pytest.raises(ClosedError, match="over"):
                until(lambda: observed.recv(timeout=1.0) and False)
        between.close()


def test_encrypted_rows_pass_the_server(tmp_path):
    """Pictures do not fit what is sent at once."""
    cert, key = certificate_in(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    how = {"token": "a secret of some length", "cafile": cert, "num_envs": 32}
    target = "game=tests.remote.games:Pictures"
    token = how["token"].encode()
    with served(target, tls=context, token=token) as server:
        between = Between(server.address)
        address = between.address.replace("tcp", "tls")
        with connect(f"{address}/game", **how, resume=600.0) as env:
            assert env.reset().observation.shape == (32, 160, 160)
            for number in range(1, 8):
                if number % 3 == 0:
                    between.cut()
                shown = env.step(np.zeros(32, int)).observation
                assert (shown == number).all()
            os.kill(pid_of(env), signal.SIGKILL)
            assert env.step(np.zeros(32, int)).is_last().all()
            assert env.step(np.zeros(32, int)).is_first().all()
        between.close()


def test_environments_that_cannot_be_made_are_refused_in_words():
    targets = ["unmade=tests.remote.games:Unmade", "bad=tests.remote.games:Fatal"]
    with served(*targets) as server:
        with pytest.raises(ConstructorError, match="OSError: the second one breaks"):
            connect(f"{server.address}/unmade", num_envs=2)
        with pytest.raises(
            ConstructorError, match="process of the session was killed by SIGABRT"
        ):
            connect(f"{server.address}/bad")
        assert not server._sessions


def test_a_killed_server_leaves_no_process():
    server = subprocess.Popen([*SERVE, "Catch", "--port=0"], stdout=subprocess.PIPE)
    with server:
        address = re.search(r"tcp://\S+", server.stdout.readline().decode())[0]
        with connect(address, num_envs=2, on_worker_failure="raise") as env:
            env.reset()
            pid = pid_of(env)
            assert pid != server.pid
            server.kill()
            assert until(lambda: not is_running(pid))
            with pytest.raises(WorkerCrashed):
                env.step([0, 0])
