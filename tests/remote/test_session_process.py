"""Sessions that have processes of their own, as `envkit serve` gives each one."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from envkit import ParallelPyEnvironment, connect, make, register, registry
from envkit.errors import ClosedError, ConstructorError, WorkerCrashed
from envkit.remote import observe
from envkit.testing import CountingEnv
from tests.remote.serving import Between, certificate_in, served
from tests.waiting import PATIENCE, is_running, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

SERVE = [sys.executable, "-m", "envkit", "serve"]
CONNECT = [sys.executable, "-c", "import envkit, sys; envkit.connect(sys.argv[1])"]


def same(first, second):
    return all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


def pid_of(env):
    return env.servers()[0].facts["pid"]


def parent_of(pid):
    """Returns the process that a process was forked from."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_a_crash_ends_only_its_own_session_with_the_signal_in_the_error():
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
        with pytest.raises(
            WorkerCrashed, match="session's process was killed by SIGSEGV while"
        ):
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


def test_a_session_keeps_its_process_and_observers_after_a_lost_link():
    with served("CartPole", observers=1, token=None) as server:
        between = Between(server.address)
        with (
            connect(
                between.address, num_envs=3, on_worker_failure="raise", resume=600.0
            ) as env,
            observe(server.address, env.session) as observed,
            make("CartPole", num_envs=3, backend="inline") as local,
        ):
            with pytest.raises(ConnectionError, match="as many observers as"):
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


def test_encrypted_rows_pass_through_the_server(tmp_path):
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


def test_failed_constructors_are_refused_with_their_reason():
    targets = ["unmade=tests.remote.games:Unmade", "bad=tests.remote.games:Fatal"]
    with served(*targets) as server:
        with pytest.raises(ConstructorError, match="OSError: the second one breaks"):
            connect(f"{server.address}/unmade", num_envs=2)
        with pytest.raises(
            ConstructorError, match="session's process was killed by SIGABRT"
        ):
            connect(f"{server.address}/bad")
        assert not server._sessions


def test_a_killed_server_leaves_no_process():
    server = subprocess.Popen([*SERVE, "Catch", "--port=0"], stdout=subprocess.PIPE)
    with server:
        address = re.search(r"tcp://\S+", server.stdout.readline().decode())[0]
        with connect(address, num_envs=2, on_worker_failure="raise") as env:
            env.reset()
            pids = [pid_of(env), parent_of(pid_of(env))]
            assert server.pid not in pids
            server.kill()
            assert until(lambda: not any(map(is_running, pids)))
            with pytest.raises(WorkerCrashed):
                env.step([0, 0])


# Processes that sessions are forked from.

GAME = """
from tests.remote.games import Told
from envkit.time_step import restart
import os, random, threading
import numpy as np

{at_import}
IMPORTED_BY = os.getpid()


class Game(Told):
    def _reset(self):
        {in_reset}
"""
IS_IMPORTED = "return restart(np.int64(os.getpid() != IMPORTED_BY))"


@pytest.fixture
def game(tmp_path, monkeypatch):
    """Returns the target of a game with some lines of its own."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(at_import="", in_reset=IS_IMPORTED):
        text = GAME.format(at_import=at_import, in_reset=in_reset)
        (tmp_path / "the_game.py").write_text(text)
        return "game=the_game:Game"

    return write


def test_a_new_session_has_already_imported_its_library(game):
    with served(game()) as server, connect(server.address) as env:
        assert 1 == env.reset().observation[0]


def test_names_registered_by_the_program_are_served(game, monkeypatch):
    monkeypatch.setattr("envkit.registry._registry", {**registry._registry})
    register("Served-v3", game().partition("=")[2])
    register("Counted-v1", CountingEnv)
    with served("Served", "Counted") as server:
        with connect(f"{server.address}/Served-v3") as env:
            assert 1 == env.reset().observation[0]
            assert ["Served-v3"] == env.servers()[0].facts["names"]
        with connect(f"{server.address}/Counted") as env:
            assert env.reset().is_first().all()


# Imports what a server imports ahead, makes the environment, and prints what that has
# imported besides.
PRELOADING = """
import importlib, sys
from envkit import make
from envkit.extend import scheme_named
from envkit.registry import load

name, _, rest = sys.argv[1].partition(":")
scheme = scheme_named(name)
importlib.import_module(scheme.package)
load(sys.argv[1], scheme.preload)(rest)
before = set(sys.modules)
make(sys.argv[1]).close()
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize(
    "target",
    [
        "gymnasium:CartPole-v1",
        "gymnasium:CartPole",
        "minigrid:MiniGrid-Empty-5x5-v0",
        "bsuite:catch/0",
        "dm_control:cartpole/swingup",
    ],
)
def test_the_server_imports_everything_that_an_environment_needs_ahead(target):
    pytest.importorskip(target.partition(":")[0])
    command = [sys.executable, "-c", PRELOADING, target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert "[]" == done.stdout.strip(), done.stderr


def test_a_session_of_several_libraries_imports_them_itself(game):
    with served("tests.remote.games:Told", game()) as server:
        names = ["tests.remote.games:Told", "game"]
        with ParallelPyEnvironment(names, backend=server.address, num_workers=1) as env:
            assert [0, 0] == env.reset().observation.tolist()


@pytest.mark.parametrize(
    ("at_import", "told"),
    [
        (
            "threading.Thread(target=threading.Event().wait, daemon=True).start()",
            "starts threads",
        ),
        ("FILE = open(os.devnull)", "opens files or connections"),
        ("DRAWN = np.random.default_rng(7)", "makes random generators"),
    ],
)
def test_a_library_that_cannot_be_forked_is_imported_by_each_session(
    at_import, told, game, caplog
):
    with served(game(at_import)) as server, connect(server.address) as env:
        assert 0 == env.reset().observation[0]
    assert f"the_game {told} when it is imported; its sessions" in caplog.text


def test_a_failed_import_is_an_error_of_the_session(game):
    with served("CartPole", game("raise OSError('no licence')")) as server:
        with pytest.raises(ConstructorError, match="no licence"):
            connect(f"{server.address}/game")
        connect(f"{server.address}/CartPole").close()


def test_a_library_that_crashes_when_imported_ends_its_session(game, caplog):
    with (
        served(game("os.kill(os.getpid(), 11)")) as server,
        pytest.raises(ConstructorError, match="killed by SIGSEGV"),
    ):
        connect(server.address)
    assert "forks sessions with the_game was killed by SIGSEGV" in caplog.text


@pytest.fixture
def slow_import(game, tmp_path):
    """Returns a game's target, its importing processes so far, and what lets them go.

    A process that imports the game notes its number, and waits.
    """
    importing, go = tmp_path / "importing", tmp_path / "go"
    importing.touch()
    target = game(
        f"""
with open({str(importing)!r}, "a") as file:
    print(os.getpid(), file=file)
while not os.path.exists({str(go)!r}):
    threading.Event().wait(0.01)
"""
    )
    return target, lambda: [*map(int, importing.read_text().split())], go.touch


def test_a_template_killed_while_it_imports_is_started_anew_by_the_next_session(
    slow_import, caplog
):
    target, importing, go = slow_import
    with served(target) as server:
        assert until(importing)
        os.kill(importing()[0], signal.SIGKILL)
        go()
        with connect(server.address) as env:
            assert 1 == env.reset().observation[0]
            assert [parent_of(pid_of(env))] == importing()[1:]
    assert "the_game was killed by SIGKILL; another is started" in caplog.text


def test_a_session_whose_template_dies_twice_imports_its_library_itself(
    slow_import,
):
    target, importing, go = slow_import
    with served(target) as server, ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(connect, server.address)
        for template in range(2):
            assert until(lambda count=template: len(importing()) > count)
            os.kill(importing()[template], signal.SIGKILL)
        assert until(lambda: len(importing()) > 2)
        go()
        with waiting.result(PATIENCE) as env:
            assert [pid_of(env)] == importing()[2:]
            assert 0 == env.reset().observation[0]
        with connect(server.address) as env:
            assert 1 == env.reset().observation[0]


def test_unseeded_sessions_draw_different_numbers(game):
    drawn = "return restart(np.int64(1e15 * {}))"
    for source, at_import in (
        ("random.random()", ""),
        ("np.random.random()", ""),
        ("DRAWN.random()", "DRAWN = random.Random()"),
        ("DRAWN.random()", "DRAWN = np.random.default_rng()"),
    ):
        with served(game(at_import, drawn.format(source))) as server:
            found = set()
            for _ in range(3):
                with connect(server.address) as env:
                    found.add(int(env.reset().observation[0]))
            assert 3 == len(found)


def test_sessions_start_again_after_their_template_is_killed(caplog):
    with served("CartPole") as server, connect(server.address) as env:
        template = parent_of(pid_of(env))
        os.kill(template, signal.SIGKILL)
        assert until(lambda: parent_of(pid_of(env)) != template)
        env.reset()
        with connect(server.address) as other:
            assert template != parent_of(pid_of(other))
            assert other.reset().is_first().all()
        assert env.step([0]).is_mid().all()
        assert 1 == caplog.text.count("was killed by SIGKILL; another is started")


def test_the_end_of_a_session_without_its_template_is_reported():
    with (
        served("CartPole") as server,
        connect(server.address, on_worker_failure="raise") as env,
    ):
        os.kill(parent_of(pid_of(env)), signal.SIGKILL)
        os.kill(pid_of(env), signal.SIGKILL)
        with pytest.raises(WorkerCrashed, match="session's process has ended"):
            env.reset()


def test_twenty_clients_can_connect_at_once():
    with served("CartPole") as server, contextlib.ExitStack() as stack:
        with ThreadPoolExecutor(20) as clients:
            envs = [*clients.map(connect, [server.address] * 20)]
        for env in envs:
            stack.enter_context(env)
        assert 20 == len({pid_of(env) for env in envs})
        assert all(env.reset().is_first().all() for env in envs)


def test_a_slow_constructor_delays_no_other_session(game, tmp_path):
    place = tmp_path / "go on"
    waits = f"while not os.path.exists({str(place)!r}): threading.Event().wait(0.05)"
    slow = game("").partition("=")[2]
    text = (tmp_path / "the_game.py").read_text()
    slow_make = f"\n\ndef slow():\n    {waits}\n    return Game()\n"
    (tmp_path / "the_game.py").write_text(text + slow_make)
    with (
        served(f"game={slow}", "slow=the_game:slow") as server,
        ThreadPoolExecutor(1) as clients,
    ):
        waiting = clients.submit(connect, f"{server.address}/slow")
        with connect(f"{server.address}/game") as env:
            assert env.reset().is_first().all()
        assert not waiting.done()
        place.touch()
        waiting.result(PATIENCE).close()


def stuck_game(game, folder):
    """Returns the target of a game that is never made, and says so by a pipe."""
    game()
    pipe = str(folder / "pipe")
    never = f"os.mkfifo({pipe!r}), open({pipe!r})"
    with open(folder / "the_game.py", "a") as file:
        file.write(f"\n\ndef stuck():\n    {never}\n    return Game()\n")
    return "stuck=the_game:stuck"


def test_a_client_waiting_for_its_environments_learns_that_the_server_stops(
    game, tmp_path
):
    with (
        served(stuck_game(game, tmp_path)) as server,
        ThreadPoolExecutor(1) as clients,
    ):
        waiting = clients.submit(connect, server.address)
        assert until((tmp_path / "pipe").exists)
        server.close("it gets dark")
        with pytest.raises(ConstructorError, match=r"refuses: it gets dark$"):
            waiting.result(PATIENCE)


def test_a_client_that_leaves_before_its_session_starts_frees_its_place(game, tmp_path):
    stuck = stuck_game(game, tmp_path)
    with served("game=the_game:Game", stuck, max_sessions=1) as server:
        client = subprocess.Popen(
            [*CONNECT, f"{server.address}/stuck"], stderr=subprocess.PIPE
        )
        with client:
            assert until((tmp_path / "pipe").exists)
            with pytest.raises(ConstructorError, match="as many as it allows"):
                connect(f"{server.address}/game")
            client.kill()
        assert until(lambda: not server._opening)
        connect(f"{server.address}/game").close()


def test_a_session_inherits_no_descriptors_of_other_sessions():
    def descriptors(env):
        return len(os.listdir(f"/proc/{pid_of(env)}/fd"))

    with served("CartPole") as server, contextlib.ExitStack() as stack:
        envs = [stack.enter_context(connect(server.address)) for _ in range(4)]
        for env in envs:
            env.reset()
        assert 1 == len({descriptors(env) for env in envs})


def test_child_processes_of_an_environment_end_with_its_session(game):
    starts = "return restart(np.int64(os.spawnlp(os.P_NOWAIT, 'sleep', 'x', '600')))"
    with (
        served(game("", starts)) as server,
        connect(server.address, on_worker_failure="raise") as env,
    ):
        helper = int(env.reset().observation[0])
        assert is_running(helper)
        os.kill(pid_of(env), signal.SIGKILL)
        assert until(lambda: not is_running(helper))


def test_without_fork_each_session_is_a_new_process(game, monkeypatch):
    monkeypatch.setattr("envkit.remote.session_process._FORKS", False)
    with (
        served(game()) as server,
        connect(server.address, on_worker_failure="raise") as env,
    ):
        assert 0 == env.reset().observation[0]
        os.kill(pid_of(env), signal.SIGKILL)
        with pytest.raises(
            WorkerCrashed, match="session's process was killed by SIGKILL"
        ):
            env.step([0])
