"""Sockets that systemd hands over: a small activator does here what it does there."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

from envkit import connect, make
from envkit._shared.activation import InheritedSocket, shared_out
from envkit.desktop import DesktopClient
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as systemd is")

# Listens at addresses, and becomes `envkit serve` with the sockets as 3, 4, ...
ACTIVATOR = """
import os, socket, sys
names, kinds, *command = sys.argv[1:]
sockets = []
for kind in kinds.split(","):
    if kind == "file":
        sock = socket.socket(socket.AF_UNIX)
        sock.bind("\\0envkit test %d" % os.getpid())
        sock.listen()
    elif kind == "deaf":
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
    elif kind == "none":
        continue
    else:
        sock = socket.create_server((kind, 0))
    sockets.append(sock)
for number, sock in enumerate(sockets):
    os.dup2(sock.fileno(), 103 + number)
for number in range(len(sockets)):
    os.dup2(103 + number, 3 + number)
    os.close(103 + number)
os.environ.setdefault("LISTEN_FDS", str(len(sockets)))
os.environ["LISTEN_FDNAMES"] = names
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.execv(sys.executable, [sys.executable, "-m", "envkit", "serve", *command])
"""


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    """Lets servers of this test have a folder of their own for secrets."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@contextlib.contextmanager
def activated(*command, names="envkit.socket", kinds="127.0.0.1", **variables):
    """Starts `envkit serve` as systemd does; yields the process."""
    process = subprocess.Popen(
        [sys.executable, "-c", ACTIVATOR, names, kinds, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def refused(*command, **how):
    """Returns the message and the status with which the command ends."""
    with activated(*command, **how) as process:
        text = process.communicate(timeout=PATIENCE)[1]
        return process.returncode, text


def test_a_single_protocol_takes_a_single_socket_with_any_name():
    with activated("Catch") as process:
        address = process.stdout.readline().split()[-1]
        assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", address)
        assert not address.endswith(":7600")
        with connect(address) as env:
            assert env.reset().is_first().all()
        process.send_signal(signal.SIGTERM)
        assert 143 == process.wait(PATIENCE)


def test_several_protocols_take_sockets_by_name():
    for package in ("starlette", "websockets"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    names, kinds = "universe:vnc:openenv:universe", ",".join(["127.0.0.1"] * 4)
    flags = ["--openenv", "--universe", "--vnc", "--hz=0", "--no-token"]
    with activated("Catch", *flags, names=names, kinds=kinds) as process:
        lines = [process.stdout.readline().strip() for _ in range(3)]
        (openenv,) = [line for line in lines if line.startswith("openenv: ")]
        (vnc,) = [line for line in lines if line.startswith("vnc: ")]
        (universe,) = [line for line in lines if line.startswith("universe: ")]
        with make(f"openenv:{openenv.split()[-1]}") as env:
            assert env.reset().is_first()
        host, port = re.search(r"vnc://(\S+):(\d+) ", vnc).groups()
        DesktopClient(host, int(port)).close()
        desktop, rewarder = re.search(r":(\d+)\+(\d+)$", universe).groups()
        DesktopClient("127.0.0.1", int(desktop)).close()
        connection = http.client.HTTPConnection(
            "127.0.0.1", int(rewarder), timeout=PATIENCE
        )
        with contextlib.closing(connection):
            connection.request("GET", "/healthz")
            assert "ok" == json.load(connection.getresponse())["status"]


def test_sessions_inherit_neither_the_sockets_nor_the_variables(tmp_path):
    target = "spy=tests.remote.games:Spy"
    file = tmp_path / "seen"
    with activated(target, f"--arg=file={file}", "--no-token") as process:
        address = process.stdout.readline().split()[-1]
        port = int(address.rpartition(":")[2])
        with connect(f"{address}/spy") as env:
            env.reset()
        seen = json.loads(file.read_text())
        assert [] == seen["variables"]
        assert port not in seen["listening"]


def test_sockets_of_another_process_are_left_alone():
    with activated("Catch", "--port=0", LISTEN_PID="1") as process:
        assert "tcp://127.0.0.1:" in process.stdout.readline()


REFUSED = {
    "a host": (
        ["Catch", "--host=127.0.0.1"],
        {},
        "--host contradicts the inherited sockets (LISTEN_FDS), which listen already",
    ),
    "a port": (["Catch", "--port=0"], {}, "--port contradicts the inherited sockets"),
    "no token for other machines": (
        ["Catch", "--no-token"],
        {"kinds": "0.0.0.0"},
        "The inherited socket at 0.0.0.0 lets other machines connect, and there is no "
        "token",
    ),
    "no password for other machines": (
        ["Catch", "--vnc", "--no-password"],
        {"kinds": "0.0.0.0"},
        "The inherited socket at 0.0.0.0 lets other machines connect, and there is no "
        "password",
    ),
    "a socket of a file": (
        ["Catch"],
        {"kinds": "file"},
        "The inherited socket 'envkit.socket' must be a TCP socket",
    ),
    "one that does not listen": (
        ["Catch"],
        {"kinds": "deaf"},
        "must be listening: the unit needs ListenStream= and Accept=no",
    ),
    "one that is closed": (
        ["Catch"],
        {"kinds": "none", "LISTEN_FDS": "99999999999999"},
        "The inherited descriptor 3 (envkit.socket) must be a socket: Bad file "
        "descriptor.",
    ),
    "too many": (
        ["Catch"],
        {"kinds": "127.0.0.1,127.0.0.1"},
        "own needs 1 inherited socket here, got 2.",
    ),
    "an unknown name": (
        ["Catch", "--openenv", "--vnc"],
        {"names": "http"},
        "The inherited socket 'http' belongs to no served protocol: "
        "FileDescriptorName= must be openenv or vnc.",
    ),
    "gRPC": (
        ["Catch", "--dm-env-rpc"],
        {},
        "dm-env-rpc cannot take an inherited socket: gRPC for Python opens its own. "
        "Leave it out of the unit",
    ),
    "too few": (
        ["Catch", "CartPole", "--vnc"],
        {},
        "vnc needs 2 inherited sockets here, got 1.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_command_refuses_sockets_that_it_cannot_use(case):
    command, how, message = REFUSED[case]
    status, text = refused(*command, **how)
    assert 2 == status, text
    assert message in text


def test_a_server_open_to_the_network_needs_a_token():
    with activated("Catch", kinds="0.0.0.0") as process:
        assert "tcp://0.0.0.0:" in process.stdout.readline()
        assert "listens on 0.0.0.0 without TLS" in process.stderr.readline()


def test_sockets_with_the_same_name_keep_their_order():
    first, second, third = (socket.socket() for _ in range(3))
    with first, second, third:
        given = [("vnc", first), ("own", second), ("vnc", third)]
        inherited = [InheritedSocket(name, sock) for name, sock in given]
        shared = shared_out(inherited, {"own": 1, "vnc": 2, "openenv": 1})
        assert {"vnc": (first, third), "own": (second,)} == shared


def test_systemd_is_told_when_the_command_serves_and_when_it_stops():
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told,
    ):
        told.bind(f"{folder}/notify")
        told.settimeout(PATIENCE)
        where = {"NOTIFY_SOCKET": f"{folder}/notify"}
        with activated("Catch", **where) as process:
            process.stdout.readline()
            assert b"READY=1" == told.recv(100)
            process.send_signal(signal.SIGTERM)
            assert b"STOPPING=1" == told.recv(100)
