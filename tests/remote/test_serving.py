"""Environments that are served by name, and used from elsewhere."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

import envkit
from envkit import (
    AsyncParallelPyEnvironment,
    ParallelPyEnvironment,
    RestartPolicy,
    connect,
    make,
)
from envkit.errors import ClosedError, ConstructorError, EnvironmentRaised
from envkit.provenance import VersionWarning
from envkit.remote import observe, servers
from envkit.remote.client_connection import LaunchError
from envkit.remote.protocol import MAGIC
from tests.parallel.streams import is_grammatical
from tests.remote.serving import Between, certificate_in, served
from tests.waiting import PATIENCE, is_running, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

SERVE = [sys.executable, "-m", "envkit", "serve"]


def same(first, second):
    return all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


def play_both(env, other, steps, rows, seed=0):
    """Plays the same actions on both, and compares each time step bit for bit."""
    random = np.random.default_rng(seed)
    env.seed(7), other.seed(7)
    assert same(env.reset(), other.reset())
    for _ in range(steps):
        actions = random.integers(0, 2, rows)
        assert same(env.step(actions), other.step(actions))


@pytest.mark.parametrize("workers", [1, 2])
def test_served_rows_equal_the_rows_of_a_pool(workers):
    with (
        served("CartPole") as server,
        connect(f"{server.address}/CartPole", num_envs=5, num_workers=workers) as env,
        make("CartPole", num_envs=5, backend="inline") as local,
    ):
        play_both(env, local, 60, 5)
        mask = np.array([True, False, False, True, False])
        assert same(env.reset(mask), local.reset(mask))
        info, theirs = local.get_info(), env.get_info()
        assert {*info, "remote"} == set(theirs)
        assert all(np.array_equal(info[key], theirs[key]) for key in info)
        assert np.array_equal(env.render(), local.render())


@pytest.mark.parametrize("order", ["same_step", "disabled"])
def test_autoreset_orders_reach_the_server(order):
    with (
        served("CartPole") as server,
        connect(server.address, num_envs=3, autoreset=order) as env,
        make("CartPole", num_envs=3, backend="inline", autoreset=order) as local,
    ):
        env.seed(1), local.seed(1)
        env.reset(), local.reset()
        for _ in range(60):
            left = np.zeros(3, np.int64)
            got, expected = env.step(left), local.step(left)
            assert same(got, expected)
            assert same(env.current_time_step(), local.current_time_step())
            if order == "disabled" and expected.is_last().any():
                env.reset(expected.is_last()), local.reset(expected.is_last())


@pytest.mark.parametrize("workers", [1, 2])
def test_set_state_restores_everything(workers):
    with (
        served("CartPole") as server,
        connect(server.address, num_envs=3, num_workers=workers) as env,
    ):
        env.seed(3), env.reset()
        state = env.get_state()
        first = [env.step(np.ones(3, np.int64)) for _ in range(20)]
        env.set_state(state)
        again = [env.step(np.ones(3, np.int64)) for _ in range(20)]
        assert all(same(x, y) for x, y in zip(first, again, strict=True))


def test_a_state_of_another_session_is_refused():
    with (
        served("CartPole") as server,
        connect(server.address) as env,
        connect(server.address) as other,
    ):
        env.reset(), other.reset()
        with pytest.raises(ValueError, match="not made by this session of the server"):
            other.set_state(env.get_state())


def test_rows_are_shared_among_the_servers():
    with served("CartPole") as one, served("CartPole") as two:
        both = f"{one.address},{two.address.removeprefix('tcp://')}"
        with (
            ParallelPyEnvironment(["CartPole-v1"] * 5, backend=both) as env,
            make("CartPole", num_envs=5, backend="inline") as local,
        ):
            assert 2 == env.num_workers
            play_both(env, local, 30, 5)


def test_rows_arrive_as_they_finish():
    with (
        served("CartPole") as server,
        AsyncParallelPyEnvironment(
            ["CartPole"] * 4, backend=server.address, num_workers=2
        ) as env,
    ):
        env.reset_async()
        seen = set()
        while len(seen) < 4:
            batch = env.recv(count=1)
            assert batch.time_step.is_first().all()
            seen |= set(batch.env_ids.tolist())


def test_arguments_reach_the_constructor_as_plain_data():
    with (
        served("GridWorld", "Catch", allow_arg=("size", "rows")) as server,
        connect(f"{server.address}/GridWorld", num_envs=2, size=5) as env,
    ):
        assert (5, 5, 3) == env.observation_spec().shape
        with env.switch("Catch", rows=4) as other:
            assert (4, 5) == other.observation_spec().shape
        with pytest.raises(ClosedError):
            env.reset()


REFUSED = {
    "an unknown name": (
        {"name": "Pong"},
        "This server has no environment 'Pong'. It has: GridWorld, corner.",
    ),
    "no name": (
        {"name": ""},
        "This server has several environments, so name one of them: GridWorld, corner.",
    ),
    "an unknown argument": (
        {"name": "GridWorld", "sizes": 5},
        "GridWorld has no argument 'sizes'. Did you mean 'size'? It takes: ",
    ),
    "an argument of the server": (
        {"name": "corner", "max_episode_steps": 5},
        "The server sets max_episode_steps of corner, and a client cannot change it: "
        "leave it out.",
    ),
    "a batch": (
        {"name": "GridWorld", "batch_size": 10**9},
        "A client cannot pass 'batch_size': the session's num_envs is the number of "
        "environments.",
    ),
    "an argument that is not allowed": (
        {"name": "GridWorld", "seed": 3},
        "A client may pass only size, sizes here, not 'seed' (envkit serve --allow-arg "
        "NAME).",
    ),
    "too many rows": (
        {"name": "GridWorld", "num_envs": 9},
        "A session may have at most 8 environments (--max-rows); you asked for 9.",
    ),
    "a constructor that raises": (
        {"name": "GridWorld", "size": -1},
        "size",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_refusal_gives_its_reason(case):
    arguments, message = REFUSED[case]
    given = {**arguments}
    name = given.pop("name")
    fixed = {"max_episode_steps": 9}
    allowed = ("size", "sizes")
    with served(
        "GridWorld",
        "corner=GridWorld",
        max_rows=8,
        arguments=fixed,
        allow_arg=allowed,
    ) as server:
        with pytest.raises(ConstructorError) as caught:
            connect(f"{server.address}/{name}", **given)
        assert str(caught.value).startswith("The server refuses: ")
        assert message in str(caught.value)


def test_a_constructor_that_is_code_is_refused():
    with served("CartPole") as server:
        with pytest.raises(ConstructorError, match="must be a name, such as"):
            ParallelPyEnvironment([lambda: make("CartPole")], backend=server.address)
        with pytest.raises(ConstructorError, match="which plain data cannot hold"):
            connect(server.address, max_episode_steps=object())
        with pytest.raises(ValueError, match="does not run a client's worker_setup"):
            connect(server.address, worker_setup="os:getcwd")


def test_only_calls_that_the_server_allows_are_possible():
    with (
        served("CartPole", allow_call=("observation_spec",)) as server,
        connect(server.address) as env,
    ):
        env.reset()
        with pytest.raises(EnvironmentRaised, match="not let clients call 'provenanc"):
            env.call("provenances")
        assert env.call("observation_spec")


def test_object_leaves_are_refused_with_their_path():
    with served("objects=tests.remote.games:Objects") as server:
        with pytest.raises(ConstructorError) as caught:
            connect(f"{server.address}/objects")
        assert "The time step at observation['thing'] has the dtype object" in str(
            caught.value
        )


def test_actions_out_of_bounds_never_reach_the_environment():
    with (
        served("CartPole") as server,
        connect(server.address, num_envs=2, on_worker_failure="raise") as env,
    ):
        env.reset(), env.step([0, 1])
        with pytest.raises(EnvironmentRaised) as caught:
            env.step([0, 7])
        assert "The actions of rows 1 are not within the bounds" in str(caught.value)


SECRET = "a secret of some length"
TOKENS = {
    "another": ("wrong", SECRET, "The token is not this server's."),
    "none": (None, SECRET, "This server has a token, and the client gave none"),
    "not asked": ("right", None, "it does not know the token"),
}


@pytest.mark.parametrize("case", TOKENS)
def test_only_clients_with_the_token_are_admitted(case, tmp_path):
    ours, theirs, message = TOKENS[case]
    token = None if theirs is None else theirs.encode()
    with (
        served("CartPole", token=token) as server,
        pytest.raises(ConstructorError, match=message),
    ):
        connect(server.address, token=ours)


def test_the_token_is_never_sent(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    with served("CartPole", token=SECRET.encode()) as server:
        between = Between(server.address)
        with connect(between.address, token_file=file) as env:
            assert env.reset().is_first().all()
        between.close()


def test_a_server_limits_the_number_of_sessions():
    with served("CartPole", max_sessions=1) as server:
        with connect(server.address) as env:
            with pytest.raises(ConstructorError, match="as many as it allows"):
                connect(server.address)
            assert env.reset().is_first().all()

        assert until(lambda: is_free(server))


def test_an_idle_session_ends_with_a_reason():
    with (
        served("CartPole", idle_timeout=2.0) as server,
        connect(server.address, on_worker_failure="raise") as env,
    ):
        pid = env.servers()[0].facts["pid"]
        assert until(lambda: not is_running(pid))
        with pytest.raises(envkit.errors.WorkerCrashed) as caught:
            env.reset()
        assert "ended by its server: there was no request for 2 s" in str(caught.value)


def is_free(server):
    """Returns true if a server takes another session."""
    try:
        connect(server.address).close()
    except ConstructorError:
        return False
    return True


def test_a_session_resumes_after_a_lost_link():
    with served("CartPole", token=None) as server:
        between = Between(server.address)
        with (
            connect(
                between.address, num_envs=4, on_worker_failure="raise", resume=600.0
            ) as env,
            make("CartPole", num_envs=4, backend="inline") as local,
        ):
            env.seed(5), local.seed(5)
            assert same(env.reset(), local.reset())
            for step in range(40):
                if step % 8 == 3:
                    between.cut()
                actions = np.full(4, step % 2)
                assert same(env.step(actions), local.step(actions))
            between.cut()
            assert np.array_equal(env.get_info()["state"], local.get_info()["state"])
        between.close()


def test_a_session_that_cannot_be_resumed_ends_its_episodes():
    with served("CartPole", resume=0.0, token=None) as server:
        between = Between(server.address)
        with connect(between.address, num_envs=2, resume=0.0) as env:
            env.reset(), env.step([0, 0])
            between.cut()
            lost = env.step([0, 0])
            assert lost.is_last().all()
            assert (lost.discount == 1).all()
            assert env.repaired.all()
            assert env.step([0, 0]).is_first().all()
        between.close()


def test_a_killed_server_leaves_well_formed_streams():
    """Its rows go on with the other server."""
    processes = [
        subprocess.Popen([*SERVE, "CartPole", "--port=0"], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        lines = [process.stdout.readline().decode() for process in processes]
        found = [re.search(r"tcp://(\S+)", line)[1] for line in lines]
        policy = RestartPolicy(max_restarts=20, backoff=0.05)
        with ParallelPyEnvironment(
            ["CartPole"] * 4,
            backend=f"tcp://{','.join(found)}",
            on_worker_failure=policy,
        ) as env:
            stream = [env.reset()]

            def step_on():
                stream.append(env.step(np.full(4, len(stream) % 2)))
                return env.statistics().restarts

            for _ in range(20):
                step_on()
            processes[0].send_signal(signal.SIGKILL)
            # Its sessions are processes of their own, which end when they notice.
            assert until(step_on)
            for _ in range(20):
                step_on()
            by_row = [[int(ts.step_type[row]) for ts in stream] for row in range(4)]
            assert all(is_grammatical(types) for types in by_row)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()


def test_observers_see_the_clients_time_steps():
    with (
        served("CartPole", observers=1) as server,
        connect(server.address, num_envs=2) as env,
        observe(server.address, env.session) as observed,
    ):
        first = env.reset()
        assert same(first, observed.recv(timeout=PATIENCE))
        with pytest.raises(ConnectionError, match="as many observers as"):
            observe(server.address)
        env.close()
        with pytest.raises(ClosedError, match="over"):
            until(lambda: observed.recv(timeout=1.0) and False)


def test_the_provenance_includes_the_server():
    with served("Catch") as server, connect(server.address, num_envs=3) as env:
        found = env.provenance()
        (recipe,) = found["environments"]
        assert ("Catch-v1", 1, 3) == (recipe["id"], recipe["version"], recipe["count"])
        (remote,) = found["remote"]
        assert server.address == remote["address"]
        assert 64 == len(remote["sha256"])
        assert [] == remote["differences"]


def test_another_version_is_a_warning_or_an_error(monkeypatch):
    from envkit.remote import backend

    monkeypatch.setattr(backend, "envkit_version", lambda: "0.1.7")
    with served("Catch") as server:
        with pytest.warns(VersionWarning, match=r"and this is envkit 0.1.7"):
            env = connect(server.address)
        with env:
            assert "0.1.7" in env.provenance()["remote"][0]["differences"][0]
        with pytest.raises(ConstructorError, match=r"and this is envkit 0.1.7"):
            connect(server.address, mismatch="error")


def test_ping_compares_the_clocks():
    with served("Catch") as server, connect(server.address, num_envs=2) as env:
        env.reset()
        remote = env.get_info()["remote"]
        assert (remote["round_trip"] > 0).all()
        # It is the same clock.
        assert (remote["skew_low"] <= 0).all()
        assert (remote["skew_high"] >= 0).all()


def test_a_stopping_server_wakes_a_waiting_client():
    with served("Catch") as server:
        env = connect(server.address, on_worker_failure="raise")
        env.reset()
        server.close("maintenance at noon")
        with env, pytest.raises(envkit.errors.WorkerCrashed) as caught:
            env.step([0])
        assert "ended by its server: maintenance at noon" in str(caught.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Returns a file with a certificate for localhost, and its key."""
    return certificate_in(tmp_path_factory.mktemp("tls"))


def test_tls_encrypts_and_checks_the_certificate(certificate):
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    with served("CartPole", tls=context, token=SECRET.encode()) as server:
        assert server.address.startswith("tls://")
        with (
            connect(
                server.address, num_envs=3, token=SECRET, cafile=certificate[0]
            ) as env,
            make("CartPole", num_envs=3, backend="inline") as local,
        ):
            play_both(env, local, 30, 3)
        with pytest.raises(ConstructorError, match="cannot be reached with TLS"):
            connect(server.address, token=SECRET)
        in_the_clear = server.address.replace("tls", "tcp")
        with pytest.raises(ConstructorError, match="This server uses TLS"):
            connect(in_the_clear, token=SECRET)


def test_connect_starts_and_ends_a_server():
    env = connect(command=[*SERVE, "CartPole", "--port=0"], num_envs=2)
    pid = env.servers()[0].facts["pid"]
    with env:
        assert env.reset().is_first().all()
    assert until(lambda: not is_running(pid))


def test_a_started_server_ends_when_its_client_is_killed():
    program = f"""
import sys
from envkit import connect

env = connect(command={[*SERVE, "CartPole", "--port=0"]!r})
print(env.servers()[0].facts["pid"], flush=True)
sys.stdin.read()
"""
    client = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with client:
        pid = int(client.stdout.readline())
        client.kill()
    assert until(lambda: not is_running(pid))


def test_a_started_server_that_dies_is_restarted():
    """At another port: its command takes any that is free."""
    policy = RestartPolicy(max_restarts=20, backoff=0.05)
    command = [*SERVE, "Catch", "--port=0"]
    with connect(
        command=command, num_envs=4, num_workers=2, on_worker_failure=policy
    ) as env:
        stream = [env.reset()]
        before = {fact.address for fact in env.servers()}
        pids = {fact.facts["pid"] for fact in env.servers()}
        assert 2 == len(pids)
        for step in range(30):
            if step == 8:
                env._launched._process.kill()
                assert until(lambda: not any(map(is_running, pids)))
            stream.append(env.step(np.zeros(4, int)))
        by_row = [[int(ts.step_type[row]) for ts in stream] for row in range(4)]
        assert all(is_grammatical(types) for types in by_row)
        assert not before & {fact.address for fact in env.servers()}
    assert env._launched is None
    with connect(command=command, on_worker_failure="raise") as env:
        env.reset()
        env._launched._process.kill()
        with pytest.raises(envkit.errors.WorkerCrashed):
            until(lambda: env.step([0]) and False)


def test_a_server_that_does_not_start_says_why():
    with pytest.raises(LaunchError, match=r"exited with code 1\. It said: no"):
        connect(command=[sys.executable, "-c", "import sys; sys.exit('no game')"])
    with pytest.raises(LaunchError, match="cannot be started: No such file"):
        connect(command=["there-is-no-such-command"])
    with pytest.raises(ConstructorError, match="exited with code 3"):
        connect(
            "tcp://127.0.0.1:1/CartPole",
            command=[sys.executable, "-c", "raise SystemExit(3)"],
        )


def test_an_unreachable_address_is_an_error():
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    sock.close()
    with pytest.raises(ConstructorError, match=r"Is envkit serve running there\?"):
        connect(f"tcp://127.0.0.1:{port}/CartPole")


ADDRESSES = ["gpu-box:7600", "http://a", "tcp://", "tcp://a:port", "tcp://a:99999"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_malformed_address_is_refused(address):
    with pytest.raises(ValueError, match="must be tcp://host:port or tls://host:port"):
        servers(address)


def test_an_address_without_its_scheme_is_shown_with_one():
    for address in ("gpu-box:7600", "gpu-box:7600/CartPole"):
        with pytest.raises(ValueError, match=f"Did you mean 'tcp://{address}'\\?$"):
            servers(address)


# The command.


def test_the_command_stops_at_a_signal_and_sends_clients_the_reason():
    process = subprocess.Popen(
        [*SERVE, "CartPole", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    address = re.search(r"tcp://\S+", process.stdout.readline().decode())[0]
    with connect(address, on_worker_failure="raise") as env:
        env.reset()
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=PATIENCE)
        assert 128 + signal.SIGTERM == process.returncode
        told, opened = stderr.decode().splitlines()
        assert told.startswith("envkit serve: other users and machines connect with ")
        assert re.search(r" 127\.0\.0\.1:\d+ opened the session \w+ of 1 env", opened)
        with pytest.raises(envkit.errors.WorkerCrashed, match="server is stopping"):
            env.step([0])


COMMANDS = {
    "no token": (
        ["CartPole", "--host=0.0.0.0", "--no-token"],
        "--host=0.0.0.0 lets other machines connect, and there is no token",
    ),
    "no target": (["CartPol"], "There is no environment named 'CartPol'"),
    "a key alone": (["CartPole", "--key=k"], "--key needs --cert"),
    "no token file": (
        ["CartPole", "--token-file=none"],
        "--token-file must be a file that can be read, got 'none': No such file",
    ),
    "no certificate": (
        ["CartPole", "--cert=none"],
        "--cert must be a file that can be read, got 'none': No such file",
    ),
    "not a certificate": (
        ["CartPole", f"--cert={__file__}"],
        "must be a certificate, and --key=",
    ),
    "an option of others": (
        ["CartPole", "--universe", "--idle-timeout=3"],
        "--idle-timeout has no effect with --universe: leave it out. It works "
        "with envkit's own protocol, --openenv, --dm-env-rpc.",
    ),
    "workers, which clients have": (
        ["CartPole", "--num-workers=2"],
        "--num-workers has no effect with envkit's own protocol: leave it out; "
        "connect(..., num_workers=N) starts a process here for each worker. It works",
    ),
    "recovery, which clients do": (
        ["CartPole", "--recover"],
        "--recover has no effect with envkit's own protocol: leave it out; "
        'connect(..., on_worker_failure=RestartPolicy(recover="replay")) does this '
        "from the client. It works",
    ),
    "an option of others alone": (
        ["CartPole", "--universe", "--openenv", "--observers=3"],
        "--observers has no effect with --universe, --openenv: leave it out. It works "
        "with envkit's own protocol, --vnc.",
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_the_command_refuses_wrong_options(case, capsys):
    from envkit.cli.main import main

    arguments, message = COMMANDS[case]
    assert 2 == main(["serve", *arguments])
    assert message in capsys.readouterr().err


def test_the_magic_bytes_belong_to_no_other_protocol():
    assert not MAGIC.startswith((b"GET", b"RFB", b"PRI"))
