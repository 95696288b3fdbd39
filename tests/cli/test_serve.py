"""`envkit serve` where it cannot listen."""

from __future__ import annotations

import socket

import pytest

from envkit.cli.main import main

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
        "with --port, or any that is free with --port=0."
    ) == told(capsys, "serve", "Catch", f"--port={busy_port}", *flags)


def test_record_reports_a_port_in_use(busy_port, tmp_path, capsys):
    where = ["--vnc", f"--port={busy_port}", "-o", str(tmp_path / "r")]
    assert (
        f"envkit record: Port {busy_port} is in use by another program. Choose another "
        "with --port, or any that is free with --port=0."
    ) == told(capsys, "record", "Catch", *where)
    assert [] == list(tmp_path.iterdir())


def test_an_address_of_another_machine_is_reported(capsys):
    assert "envkit serve: 192.0.2.7 is not an address of this machine." == told(
        capsys, "serve", "Catch", "--host=192.0.2.7", "--port=0"
    )
