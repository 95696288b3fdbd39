"""Clusters of Ray that have ended, and whose addresses are still there."""

from __future__ import annotations

import contextlib
import socket

import pytest

from envkit import ParallelPyEnvironment
from envkit.errors import WorkerTimeout
from tests.parallel.environments import Walk

pytest.importorskip("ray", reason="ray is not installed")

# What stands where a cluster was: nothing, a process that says nothing, or another
# program's server.
GONE = ("nothing", "silence", "another program")


@pytest.fixture(params=GONE)
def gone(request, in_thread):
    """Yields an address at which no cluster of Ray answers."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        if request.param != "nothing":
            sock.listen()
        if request.param == "another program":
            in_thread(greet, sock)
        yield f"127.0.0.1:{sock.getsockname()[1]}"
        with contextlib.suppress(OSError):  # Nothing was to listen.
            sock.shutdown(socket.SHUT_RDWR)


def greet(listener):
    with contextlib.suppress(OSError):  # The test has ended.
        while True:
            with listener.accept()[0] as sock:
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("source", ["a file", "a variable"])
@pytest.mark.parametrize("count", [1, None])
def test_start_timeout_ends_the_wait_for_a_cluster_that_has_ended(
    gone, source, count, tmp_path, monkeypatch
):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    place = tmp_path / "ray" / "ray_current_cluster"
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if source == "a file":
        place.parent.mkdir()
        place.write_text(gone)
    else:
        place = "RAY_ADDRESS"
        monkeypatch.setenv("RAY_ADDRESS", gone)
    with pytest.raises(WorkerTimeout) as caught:
        ParallelPyEnvironment(
            [Walk], num_workers=count, backend="ray", start_timeout=0.5
        )

    text = str(caught.value)
    assert text.startswith(
        f"No cluster of Ray answers at {gone} within 0.5 s (start_timeout), so no "
        "worker could be started.\n"
    )
    assert f"That address stands in {place}. If its cluster has ended, " in text
    assert 0.5 == caught.value.timeout
