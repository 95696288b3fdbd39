"""The ports of `envkit serve`."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from envkit.cli.main import main
from tests.waiting import PATIENCE

PROTOCOLS = {
    "": None,
    "--openenv": "uvicorn",
    "--dm-env-rpc": "grpc",
    "--universe": "websockets",
    "--vnc": None,
}


@pytest.fixture
def busy_port():
    """Gives the port of another program."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def told(capsys, *arguments):
    """Returns the last line of what a command says that could not be done."""
    assert 2 == main([*arguments])
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_port_in_use_is_named_with_the_remedy(protocol, busy_port, capsys):
    if PROTOCOLS[protocol]:
        pytest.importorskip(PROTOCOLS[protocol], reason="it is not installed")
    flags = [protocol] if protocol else []
    assert (
        f"envkit serve: Port {busy_port} is in use by another program. Choose another "
        "with --port, or let --port=0 pick a free one."
    ) == told(capsys, "serve", "Catch", f"--port={busy_port}", *flags)


def test_record_reports_a_port_in_use(busy_port, tmp_path, capsys):
    where = ["--vnc", f"--port={busy_port}", "-o", str(tmp_path / "r")]
    assert (
        f"envkit record: Port {busy_port} is in use by another program. Choose another "
        "with --port, or let --port=0 pick a free one."
    ) == told(capsys, "record", "Catch", *where)
    assert [] == list(tmp_path.iterdir())


def test_an_address_of_another_machine_is_reported(capsys):
    assert "envkit serve: 192.0.2.7 is not an address of this machine." == told(
        capsys, "serve", "Catch", "--host=192.0.2.7", "--port=0"
    )


def are_free(*ports):
    """Returns True if other programs listen on none of these ports."""
    with contextlib.ExitStack() as taken:
        try:
            for port in ports:
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            return False
    return True


def addresses(*arguments):
    """Serves Catch; returns the addresses that the command prints, by protocol."""
    command = [sys.executable, "-m", "envkit", "serve", "Catch", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        text = "".join(process.stdout.readline() for _ in range(3))
        process.send_signal(signal.SIGTERM)
        assert 143 == process.wait(PATIENCE)
    return dict(re.findall(r"^(\w+): vnc://127.0.0.1:(\S+)", text, re.M))


UNIVERSE_FIRST, VNC_FIRST = (
    (["--universe", "--vnc"], 0, 1),
    (["--vnc", "--universe"], 1, 0),
)


@pytest.mark.parametrize(
    ("given", "protocols", "universe", "vnc"),
    [
        ("the usual ports", *UNIVERSE_FIRST),
        ("--port", *VNC_FIRST),
        pytest.param("the usual ports", *VNC_FIRST, marks=pytest.mark.heavy),
        pytest.param("--port", *UNIVERSE_FIRST, marks=pytest.mark.heavy),
    ],
)
def test_universe_and_vnc_take_ports_beside_each_other(given, protocols, universe, vnc):
    pytest.importorskip("websockets", reason="websockets is not installed")
    firsts = [5900] if given == "the usual ports" else range(20_000, 30_000, 7)
    free = (n for n in firsts if are_free(n, n + 1, n + 10_000, n + 10_001))
    first = next(free, None)
    if first is None:
        pytest.skip("another program listens on the usual ports")
    port = [] if given == "the usual ports" else [f"--port={first}"]
    universe, vnc = first + universe, first + vnc
    assert {"universe": f"{universe}+{universe + 10_000}", "vnc": f"{vnc}"} == (
        addresses(*protocols, *port, "--web-port=0")
    )
