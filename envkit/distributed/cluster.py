"""Checks that the cluster to which Ray is about to connect exists.

`ray.init` finds a cluster by `RAY_ADDRESS`, or by a file that `ray start` has written.
If that cluster has ended, it tries to reach it for minutes, in native code that ignores
Ctrl-C. So we check first.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any, NamedTuple

from envkit._shared.listening import host_and_port
from envkit.errors import WorkerTimeout

__all__ = ["Cluster", "await_cluster", "known_cluster"]

# Seconds to try without a start_timeout, and seconds between two tries.
_USUAL_PATIENCE, _PAUSE = 30.0, 0.2
# The first bytes of an HTTP/2 client, with empty settings, and the type of the server's
# first frame.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS = b"\4"


class Cluster(NamedTuple):
    """A Ray cluster that is running, or was.

    Attributes:
        host: The machine of its head node.
        port: The port of its control service.
        source: The place where the address was found.
        remedy: What to do if it has ended.
    """

    host: str
    port: int
    source: str
    remedy: str


def known_cluster(ray: Any) -> Cluster | None:
    """Returns the cluster to which `ray.init()` would connect.

    Args:
        ray: The library.

    Returns:
        The cluster; `None` if Ray would start one, or find one in another way.
    """
    address = os.environ.get("RAY_ADDRESS", "")
    source, remedy = "RAY_ADDRESS", "set RAY_ADDRESS to one that runs, or unset it"
    if address in ("", "auto"):
        # The file depends on Ray's version and on variables.
        address = ray._private.utils.read_ray_address() or ""
        source = "the file of the last `ray start` on this machine"
        with contextlib.suppress(AttributeError):
            source = ray._private.utils.get_ray_address_file(None)
        remedy = (
            "`ray stop` removes the file, and the pool then has Ray start a cluster "
            "here; or set RAY_ADDRESS to a cluster that runs"
        )
    found = host_and_port(address)
    return None if found is None else Cluster(*found, source, remedy)


def await_cluster(cluster: Cluster, patience: float | None) -> None:
    """Waits until a cluster answers.

    Args:
        cluster: The cluster.
        patience: The pool's `start_timeout`.

    Raises:
        WorkerTimeout: It does not answer in time.
    """
    limit = _USUAL_PATIENCE if patience is None else patience
    deadline = time.monotonic() + limit
    while not _answers(cluster, deadline):
        left = deadline - time.monotonic()
        if left <= 0:
            raise _timeout(cluster, limit, is_asked=patience is not None)
        time.sleep(min(_PAUSE, left))


def _timeout(cluster: Cluster, limit: float, *, is_asked: bool) -> WorkerTimeout:
    which = "start_timeout" if is_asked else "pass start_timeout= for another limit"
    error = WorkerTimeout(
        f"No cluster of Ray answers at {cluster.host}:{cluster.port} within {limit:g} "
        f"s ({which}), so no worker could be started.\n\n"
        f"That address stands in {cluster.source}. If its cluster has ended, "
        f"{cluster.remedy}."
    )
    error.timeout = limit
    return error


def _answers(cluster: Cluster, deadline: float) -> bool:
    """Returns True if the server there looks like Ray's control service."""

    def left() -> float:
        return max(0.001, deadline - time.monotonic())

    try:
        with socket.create_connection((cluster.host, cluster.port), left()) as sock:
            # With TLS, Ray itself must find out who answers.
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return True
            sock.settimeout(left())
            sock.sendall(_HELLO)
            said = b""
            while len(said) < 4:
                sock.settimeout(left())
                data = sock.recv(64)
                if not data:
                    return False
                said += data
    except OSError:
        return False
    return said[3:4] == _SETTINGS
