"""Who may use a server: the secrets that are drawn, found, printed and refused."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import struct
import subprocess
import sys
import threading

import pytest

import envkit
from envkit import connect, make
from envkit._shared.guesses import Guesses
from envkit._shared.secret_files import DRAW, SecretFileError
from envkit.desktop import DesktopClient, DesktopError
from envkit.errors import ConstructorError, EnvkitError
from envkit.remote import observe
from envkit.remote.client_connection import Peer, ServerAddress, dial
from envkit.remote.protocol import MAGIC, RefusedError, frame_of
from tests.remote.games import EVIL
from tests.remote.serving import served
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

SECRET = "a secret of some length"
WRONG = "another of some length"


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    """Lets servers of this test and those that it starts have a folder of their own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "envkit"


def stranger(monkeypatch):
    """Lets what follows be as another user's: it finds no secrets."""
    monkeypatch.setattr("envkit._shared.secret_files._folders", list)


# Envkit's own protocol.


def test_clients_of_the_same_user_find_a_drawn_token(runtime):
    with served("CartPole", observers=1) as server:
        assert 43 == len(server.token)
        assert server.token.decode() not in server.line
        (file,) = runtime.iterdir()
        assert server.token.decode() in file.read_text("utf-8")
        with (
            connect(server.address.replace("127.0.0.1", "localhost")) as env,
            observe(server.address) as observed,
        ):
            env.reset()
            assert observed.recv(timeout=PATIENCE).is_first().all()
    assert [] == list(runtime.iterdir())


def test_other_users_need_the_token_in_the_invitation(monkeypatch):
    with served("CartPole") as server:
        stranger(monkeypatch)
        with pytest.raises(ConstructorError, match="gave none"):
            connect(server.address)
        call = re.search(r"envkit\.connect\(.*\)$", server.invitation)[0]
        with eval(call, {"envkit": envkit}) as env:
            assert env.reset().is_first().all()


def test_a_server_has_no_token_only_on_request(monkeypatch):
    with served("CartPole", token=None) as server:
        stranger(monkeypatch)
        assert (None, "") == (server.token, server.invitation)
        with connect(server.address) as env:
            assert env.reset().is_first().all()


def test_a_secret_file_that_others_can_read_is_not_used(runtime):
    with served("CartPole") as server:
        (file,) = runtime.iterdir()
        file.chmod(0o644)
        with pytest.raises(ConstructorError, match="it has the mode 0644"):
            connect(server.address)
        with pytest.raises(SecretFileError, match="it has the mode 0644"):
            observe(server.address)


@pytest.mark.parametrize("token", [b"t", b"fifteen letters"])
def test_the_error_for_a_short_token_tells_how_to_draw_one(token):
    with (
        pytest.raises(
            ValueError, match=r"at least 16 .*, got \d+\. Draw one with: ope"
        ),
        served("CartPole", token=token),
    ):
        pass


def test_a_client_refuses_a_token_file_that_others_can_read(tmp_path):
    file = tmp_path / "token"
    file.write_text(SECRET)
    file.chmod(0o644)
    with served("CartPole", token=SECRET.encode()) as server:
        with pytest.raises(PermissionError, match=r"the mode 0644\. Run: chmod 600"):
            connect(server.address, token_file=file)
        file.chmod(0o600)
        connect(server.address, token_file=file).close()


# Guesses, and the log.


def test_each_wrong_guess_of_a_host_waits_longer_and_other_hosts_do_not_wait():
    guesses = Guesses(most_waiting=4)
    with contextlib.ExitStack() as stack:
        waits = [stack.enter_context(guesses.late("a")) for _ in range(3)]
        assert [0.25, 0.5, 1.0] == waits
        assert 0.25 == stack.enter_context(guesses.late("b"))
        # No more of them hold a thread.
        assert 0.0 == stack.enter_context(guesses.late("a"))
    with guesses.late("a") as seconds:
        assert 4.0 == seconds


def test_wrong_guesses_are_delayed_and_right_tokens_are_not(monkeypatch):
    for name in ("_FIRST", "_LONGEST"):
        monkeypatch.setattr(f"envkit._shared.guesses.{name}", 10 * PATIENCE)
    with served("CartPole", token=SECRET.encode()) as server:
        address = ServerAddress.parse(server.address)

        def guess():
            with contextlib.suppress(OSError):
                dial([address], {"list": True}, Peer(WRONG.encode()))

        guessers = [threading.Thread(target=guess) for _ in range(4)]
        for each in guessers:
            each.start()
        assert until(lambda: server._admission.guesses._waiting == 4)
        with connect(server.address, token=SECRET) as env:
            assert env.reset().is_first().all()
        assert 4 == server._admission.guesses._waiting
    for each in guessers:
        each.join(PATIENCE)
        assert not each.is_alive()


def test_each_client_is_logged_in_one_line(caplog):
    caplog.set_level(logging.INFO, "envkit")
    with served("CartPole", token=SECRET.encode()) as server:
        for token in (WRONG, None):
            with pytest.raises(ConstructorError):
                connect(server.address, token=token)
        connect(server.address, token=SECRET, num_envs=2).close()
        with socket.create_connection(ServerAddress.parse(server.address)[:2]) as sock:
            sock.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
            assert sock.recv(4096)
        peer = r"127\.0\.0\.1:\d+ "
        for text in (
            peer + r"was refused by envkit: the token is wrong",
            peer + r"was refused by envkit: it gave no token",
            peer + r"opened the session \w+ of 2 environments",
            peer + r"was refused by envkit: This is a server of envkit environments",
        ):
            found = [line for line in caplog.messages if re.match(text, line)]
            assert 1 == len(found), caplog.messages
    assert 4 == len(caplog.messages)
    assert SECRET not in caplog.text


# What peers say.


@contextlib.contextmanager
def refusing(reason):
    """Is a server that refuses with a text of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            sock, _ = listener.accept()
            with sock:
                sock.sendall(b"".join(frame_of({"refused": reason})))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(4096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(PATIENCE)


def is_harmless(text):
    return not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_no_escape_sequence_of_a_refusal_reaches_the_terminal():
    with refusing(EVIL) as address, pytest.raises(ConstructorError) as caught:
        connect(address)
    assert is_harmless(str(caught.value))
    assert r"\u001b]0;owned\u0007\u001b[2J" in str(caught.value)
    with refusing(EVIL) as address, pytest.raises(RefusedError) as refused:
        observe(address)
    assert is_harmless(str(refused.value))


def test_no_escape_sequence_of_an_environment_elsewhere_reaches_the_terminal():
    with (
        served("evil=tests.remote.games:Evil") as server,
        connect(f"{server.address}/evil", on_worker_failure="raise") as env,
    ):
        env.reset()
        with pytest.raises(ValueError, match=r"u001b\]0;owned") as caught:
            env.step([0])
        assert is_harmless(str(caught.value))
        assert is_harmless(caught.value.remote_traceback)


def test_no_escape_sequence_of_a_name_reaches_the_log(caplog):
    caplog.set_level(logging.INFO, "envkit")
    with served("CartPole") as server:
        with pytest.raises(ConstructorError):
            connect(f"{server.address}/{EVIL}")
        said = {"protocol": [9, EVIL], "envkit": EVIL, "nonce": "00" * 16, "order": "<"}
        with socket.create_connection(ServerAddress.parse(server.address)[:2]) as sock:
            sock.sendall(MAGIC + b"".join(frame_of(said)))
            assert sock.recv(4096)
        assert until(lambda: len(caplog.messages) >= 2)
    assert all(map(is_harmless, caplog.messages))


def test_no_escape_sequence_of_a_vnc_server_reaches_the_terminal():
    reason = EVIL.encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            link, _ = listener.accept()
            with link:
                link.sendall(b"RFB 003.008\n")
                link.recv(12)
                link.sendall(b"\0" + struct.pack(">I", len(reason)) + reason)
                link.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(DesktopError, match="refuses the connection: ") as caught:
            DesktopClient(*listener.getsockname())
        thread.join(PATIENCE)
    assert is_harmless(str(caught.value))


# What clients are told, and what they may give.


LOCKED = "locked=tests.remote.games:Locked"
SET = {"secret": "hush-hush", "pin": 271828}


def test_clients_never_see_the_servers_own_arguments():
    with served(LOCKED, arguments=SET, allow_arg=("level", "secret")) as it:
        told = []
        for given in ({"secret": "guess"}, {"pin": 1}, {"level": -1}):
            with pytest.raises(ConstructorError) as caught:
                connect(f"{it.address}/locked", **given)
            told.append(str(caught.value))
            told.append(caught.value.remote_traceback)
        assert "The server sets secret of locked" in told[0]
        assert "level must be at least 0, with '…' and …" in told[4]
        with connect(f"{it.address}/locked", on_worker_failure="raise") as env:
            told += [str(env.provenance()), str(env.servers()[0].facts)]
            env.reset()
            with pytest.raises(RuntimeError, match="do not open the") as raised:
                env.step([1])
            told += [str(raised.value), raised.value.remote_traceback]
    assert not [text for text in told if "hush-hush" in text or "271828" in text]


@pytest.mark.parametrize("protocol", ["openenv", "dm_env_rpc"])
def test_no_protocol_reveals_the_servers_own_arguments(protocol):
    for package in ("starlette", "websockets", "dm_env_rpc"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from envkit.remote import dm_env_rpc, openenv
    from envkit.remote.offers import Menu, Offer, ServeOptions

    serve = {"openenv": openenv, "dm_env_rpc": dm_env_rpc}[protocol].serve
    with serve(Menu([Offer(LOCKED, SET)]), ServeOptions(port=0)) as server:
        address = getattr(server, "url", None) or server.address
        with make(f"{protocol}:{address}") as env:
            env.reset()
            with pytest.raises(EnvkitError, match="… and … do not open the door"):
                env.step(1)


def test_a_client_may_pass_only_arguments_that_the_server_allows():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    target = "gymnasium:CartPole-v1"
    with served(target) as server:
        for given in ({"gym_kwargs": {"render_mode": "human"}}, {"render_mode": "x"}):
            with pytest.raises(ConstructorError) as caught:
                connect(f"{server.address}/{target}", **given)
            assert (
                f"A client may pass no arguments here, not {next(iter(given))!r} "
                "(envkit serve --allow-arg NAME)."
            ) in str(caught.value)
    with served(target, allow_arg=("gym_kwargs",)) as server:
        given = {"gym_kwargs": {"render_mode": "rgb_array"}}
        with connect(f"{server.address}/{target}", **given) as env:
            env.reset()
            assert env.render().ndim == 4


# The command.

SERVE = [sys.executable, "-m", "envkit", "serve"]


@contextlib.contextmanager
def command(*arguments):
    """Runs `envkit serve`; yields the first line of its output and that of its log."""
    process = subprocess.Popen(
        [*SERVE, *arguments, "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process.stdout.readline().strip(), process.stderr.readline().strip()
        finally:
            process.terminate()
            process.communicate()


def test_the_command_prints_the_call_for_other_users(monkeypatch, runtime):
    with command("CartPole") as (line, told):
        assert re.fullmatch(r"envkit serves CartPole at tcp://127\.0\.0\.1:\d+", line)
        connect(line.rpartition(" ")[2]).close()
        stranger(monkeypatch)
        call = re.search(r"envkit\.connect\(.*\)$", told)[0]
        with eval(call, {"envkit": envkit}) as env:
            assert env.reset().is_first().all()
    assert [] == list(runtime.iterdir())


def test_the_command_warns_when_it_serves_all_accounts(monkeypatch):
    with command("CartPole", "--no-token") as (line, told):
        assert (
            "envkit serve: --no-token: every account of this machine can use the "
            "environments." == told
        )
        stranger(monkeypatch)
        connect(line.rpartition(" ")[2]).close()


def test_viewers_passwords_are_not_tokens(monkeypatch):
    with command("Catch", "--vnc", "--hz=0") as (line, told):
        host, port = re.search(r"vnc://(\S+):(\d+) ", line).groups()
        password = re.fullmatch(r".* need the password (\w{8}); in .*", told)[1]
        DesktopClient(host, int(port)).close()
        stranger(monkeypatch)
        with pytest.raises(DesktopError, match="asks for a password"):
            DesktopClient(host, int(port))
        DesktopClient(host, int(port), password=password).close()


def test_a_token_and_a_password_are_drawn_separately():
    pytest.importorskip("starlette", reason="starlette is not installed")
    with command("Catch", "--openenv", "--vnc", "--hz=0") as (_, told):
        assert "Authorization: Bearer " in told


def file_with(folder, name, text, mode=0o600):
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


COMMANDS = {
    "a short token": (
        ["--token-file={short}"],
        "A token must have at least 16 characters, got 5. Draw one with: openssl rand",
    ),
    "a token for all to read": (
        ["--token-file={open}"],
        "--token-file must be a file that its owner alone can read, and ",
    ),
    "a password for all to read": (
        ["--vnc", "--password-file={open}"],
        "--password-file must be a file that its owner alone can read, and ",
    ),
    "a short password": (
        ["--vnc", "--password-file={short}"],
        "--password-file must have a password of at least 6 characters, of which VNC ",
    ),
    "a token as password": (
        ["--openenv", "--vnc", "--token-file={good}", "--password-file={good}"],
        "--token-file and --password-file must have different secrets: the first 8 ",
    ),
    "a password that watches and controls": (
        ["--vnc", "--password-file={good}", "--observer-password-file={good}"],
        "--password-file and --observer-password-file must have different secrets",
    ),
    "a token for viewers": (
        ["--vnc", "--token-file={good}"],
        "--token-file has no effect with --vnc: use --password-file. It works "
        "with envkit's own protocol, --openenv, --dm-env-rpc.",
    ),
    "a password without viewers": (
        ["--no-password"],
        "--no-password has no effect with envkit's own protocol: use --no-token. It "
        "works with --universe, --vnc.",
    ),
    "both of them": (
        ["--no-token", "--token-file={good}"],
        "--token-file and --no-token contradict each other: leave one out.",
    ),
    "an option of viewers": (
        ["--hz", "3"],
        "--hz has no effect with envkit's own protocol: leave it out. It works with "
        "--vnc.",
    ),
    "an option of viewers alone": (
        ["--observer-password-file={good}"],
        "--observer-password-file has no effect with envkit's own protocol: leave it",
    ),
    "arguments of viewers": (
        ["--vnc", "--allow-arg=size"],
        "--allow-arg has no effect with --vnc: leave it out. It works with envkit's "
        "own protocol, --dm-env-rpc.",
    ),
    "all machines without a token": (
        ["--host=0.0.0.0", "--no-token"],
        "--host=0.0.0.0 lets other machines connect, and there is no token",
    ),
    "all machines without a password": (
        ["--vnc", "--host=0.0.0.0", "--no-password"],
        "--host=0.0.0.0 lets other machines connect, and there is no password",
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_the_command_refuses_wrong_secrets(case, capsys, tmp_path):
    from envkit.cli.main import main

    files = {
        "short": file_with(tmp_path, "short", "short"),
        "good": file_with(tmp_path, "good", SECRET),
        "open": file_with(tmp_path, "open", SECRET, 0o644),
    }
    arguments, message = COMMANDS[case]
    given = [each.format(**files) for each in arguments]
    assert 2 == main(["serve", "CartPole", *given])
    assert message in capsys.readouterr().err


def test_an_unread_log_does_not_block_the_server():
    process = subprocess.Popen(
        [*SERVE, "CartPole", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        line = process.stdout.readline().decode()
        address = ServerAddress.parse(line.split()[-1])
        # More lines than the pipe has room for.
        for _ in range(1200):
            with socket.create_connection(address[:2], PATIENCE) as sock:
                sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                sock.recv(4096)
        with connect(str(address)) as env:
            assert env.reset().is_first().all()
        process.terminate()
        assert 143 == process.wait(PATIENCE)
        process.stderr.close()


# Other protocols.


def test_openenv_clients_find_the_token_or_take_it_from_the_address(monkeypatch):
    pytest.importorskip("starlette", reason="starlette is not installed")
    pytest.importorskip("websockets", reason="websockets is not installed")
    from websockets.sync.client import connect as plain

    from envkit.remote.offers import Menu, Offer, ServeOptions
    from envkit.remote.openenv import OpenEnvServer
    from envkit.remote.openenv_client import OpenEnvError, OpenEnvWrapper

    with OpenEnvServer(Menu([Offer("Catch")]), ServeOptions(port=0)) as server:
        assert server.token.decode() not in server.line
        with make(f"openenv:{server.url}") as env:
            assert env.reset().is_first()
        stranger(monkeypatch)
        with pytest.raises(OpenEnvError, match=r"401.*needs a token"):
            OpenEnvWrapper(server.url)
        url = re.search(r"http://\S+(?=,)", server.invitation)[0]
        with OpenEnvWrapper(url) as env:
            assert env.reset().is_first()
            assert server.url == env.url
        # As OpenEnv's own client does.
        with plain(f"{url.replace('http', 'ws', 1)}/ws") as socket_of_theirs:
            socket_of_theirs.send('{"type": "state"}')
            assert '"step_count":0' in socket_of_theirs.recv(PATIENCE)
        with pytest.raises(OpenEnvError, match="401"):
            OpenEnvWrapper(server.url, token=WRONG)


def test_dm_env_rpc_clients_find_the_token(monkeypatch):
    pytest.importorskip("dm_env_rpc", reason="dm_env_rpc is not installed")
    from envkit.remote.dm_env_rpc import DmEnvRpcServer
    from envkit.remote.dm_env_rpc_client import DmEnvRpcError, DmEnvRpcWrapper
    from envkit.remote.offers import Menu, Offer, ServeOptions

    with DmEnvRpcServer(Menu([Offer("GridWorld")]), ServeOptions(port=0)) as server:
        with make(f"dm_env_rpc:{server.address}") as env:
            assert env.reset().is_first()
        with pytest.raises(DmEnvRpcError, match="A client may pass no arguments here"):
            make(f"dm_env_rpc:{server.address}", settings={"size": 5})
        stranger(monkeypatch)
        for token in (None, WRONG):
            with pytest.raises(DmEnvRpcError, match="UNAUTHENTICATED"):
                DmEnvRpcWrapper(server.address, token=token)
        token = re.search(r"'Bearer (.*)'\)", server.invitation)[1]
        with DmEnvRpcWrapper(server.address, token=token) as env:
            assert env.reset().is_first()


def test_universe_clients_find_the_password_or_take_it_from_the_address(monkeypatch):
    pytest.importorskip("websockets", reason="websockets is not installed")
    from envkit.remote import universe
    from envkit.remote.offers import Menu, Offer, ServeOptions

    remote = universe.serve(Menu([Offer("Catch")]), ServeOptions(port=0))
    try:
        address = remote.line.partition("vnc://")[2]
        make(f"universe://{address}").close()
        stranger(monkeypatch)
        with pytest.raises(DesktopError, match="The password is wrong"):
            make(f"universe://{address}")
        theirs = re.search(r"vnc:(//\S+\?password=\w{8})$", remote.invitation)[1]
        make(f"universe:{theirs}").close()
    finally:
        remote.close("the test is over")


def test_wrong_passwords_for_a_rewarder_are_delayed(monkeypatch, caplog):
    pytest.importorskip("websockets", reason="websockets is not installed")
    from websockets.sync.client import connect as plain

    from envkit.remote.rewarder import authorization
    from envkit.remote.rewarder_sockets import RewarderServer

    for name in ("_FIRST", "_LONGEST"):
        monkeypatch.setattr(f"envkit._shared.guesses.{name}", 10 * PATIENCE)
    caplog.set_level(logging.INFO, "envkit")
    server = RewarderServer(port=0, password=SECRET, on_reset=print, on_action=print)
    address = "ws://{}:{}".format(*server.address)

    def entered(password):
        return plain(
            address, additional_headers={"authorization": authorization(password)}
        )

    with contextlib.ExitStack() as stack:
        stack.callback(server.close, "the test is over")
        stack.enter_context(entered(WRONG))
        assert until(lambda: server._admission.guesses._waiting == 1)
        client = stack.enter_context(entered(SECRET))
        client.send('{"method": "v0.control.ping"}')
        assert "v0.reply.control.ping" in client.recv(PATIENCE)
        assert 1 == server._admission.guesses._waiting
    refused, connected = caplog.messages
    assert refused.endswith(" was refused by universe: the password is wrong")
    assert connected.endswith(" connected to the rewarder")


@pytest.mark.parametrize("protocol", ["openenv", "dm_env_rpc"])
def test_wrong_tokens_for_other_protocols_are_delayed(protocol, monkeypatch, caplog):
    for package in ("starlette", "websockets", "dm_env_rpc"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from envkit.remote import dm_env_rpc, openenv
    from envkit.remote.offers import Menu, Offer, ServeOptions

    for name in ("_FIRST", "_LONGEST"):
        monkeypatch.setattr(f"envkit._shared.guesses.{name}", 10 * PATIENCE)
    caplog.set_level(logging.INFO, "envkit")
    serve = {"openenv": openenv, "dm_env_rpc": dm_env_rpc}[protocol].serve
    server = serve(Menu([Offer("Catch")]), ServeOptions(port=0, token=SECRET.encode()))
    target = f"{protocol}:{getattr(server, 'url', None) or server.address}"

    def guess():
        with contextlib.suppress(EnvkitError):
            make(target, token=WRONG, connect_timeout=PATIENCE)

    guesser = threading.Thread(target=guess)
    with server:
        guesser.start()
        assert until(lambda: server._admission.guesses._waiting == 1)
        with make(target, token=SECRET) as env:
            assert env.reset().is_first()
        assert 1 == server._admission.guesses._waiting
        refused = [text for text in caplog.messages if "was refused" in text]
        assert 1 == len(refused)
        name = protocol.replace("_", "-")
        assert refused[0].endswith(f" was refused by {name}: the token is wrong")
        assert len(caplog.messages) > 1  # There is one for the other client, too.
    guesser.join(PATIENCE)
    assert not guesser.is_alive()


def test_all_servers_draw_a_secret_by_default():
    from envkit.remote.offers import ServeOptions

    options = ServeOptions()
    assert (DRAW, DRAW) == (options.token, options.password)
