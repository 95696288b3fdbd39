"""Fixtures of tests about losses: `Drawing` behind a server, and its trouble."""

from __future__ import annotations

import pytest

from envkit.remote.offers import Menu, Offer, ServeOptions
from tests.remote.serving import Between


@pytest.fixture
def drawing_served(tmp_path):
    """Serves `Drawing` by a protocol; its folder is that of the test."""
    servers = []

    def serve(service, *, num_workers=None, **options):
        arguments = {"folder": str(tmp_path)}
        offer = Offer("tests.remote.games:Drawing", arguments, num_workers=num_workers)
        options = ServeOptions(port=0, **{"token": None, **options})
        servers.append(service.serve(Menu([offer]), options))
        return servers[-1]

    yield serve
    for server in servers:
        server.close("the test is over")


@pytest.fixture
def trouble(tmp_path):
    """Makes the next steps, or resets, of `Drawing` fail."""

    def make(where, how="SIGKILL", times=1):
        for number in range(times):
            (tmp_path / f"{where}-{number}").write_text(how)

    return make


@pytest.fixture
def actions(tmp_path):
    """Returns the actions that environments have got."""
    file = tmp_path / "actions"
    return lambda: file.read_text() if file.exists() else ""


@pytest.fixture
def between():
    """Makes go-betweens for servers, by address."""
    made = []

    def make(address):
        made.append(Between(address))
        return made[-1]

    yield make
    for one in made:
        one.close()
