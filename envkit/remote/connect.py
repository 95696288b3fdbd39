"""`envkit.connect`: environments of a server as a batch in this program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    import ssl

    from envkit.remote.backend import RemoteBackend
    from envkit.remote.environment import RemoteEnvironment

__all__ = ["connect", "servers"]

# What follows is loaded with the first call: `from envkit import *` has no use for it.


def servers(
    addresses: str,
    *,
    token: str | bytes | None = None,
    token_file: str | os.PathLike[str] | None = None,
    cafile: str | os.PathLike[str] | None = None,
    tls: ssl.SSLContext | None = None,
    mismatch: str = "warn",
    patience: float = 0.0,
    resume: float = 30.0,
) -> RemoteBackend:
    """Returns a backend of pools whose environments are on servers.

    Where no token and no TLS is needed, and for servers of the same user on the same
    machine, whose tokens are found, the addresses alone do: `backend="tcp://a:7600"`.

    Args:
        addresses: Where `envkit serve` listens: `"tcp://a:7600,b:7600"`.
        token: The secret that the servers have in their `--token-file`. Not needed for
            servers of the same user on the same machine that have drawn theirs.
        token_file: A file with that secret, which its owner alone can read.
        cafile: The certificate that the servers show, or that of its authority.
        tls: What encrypts connections, in place of `cafile`.
        mismatch: What to do about a server with another version of envkit, or one that
            differs from another server: "warn" or "error".
        patience: For how many seconds to try again where no server can be reached.
        resume: For how many seconds to try to take up a session whose link is lost; 0
            is not at all.

    Example:
        >>> servers("tcp://a:7600,b:7600").usual_workers()
        2
    """
    from envkit.remote.environment import backend_of

    settings = {
        "token": token,
        "token_file": token_file,
        "cafile": cafile,
        "tls": tls,
        "mismatch": mismatch,
        "patience": patience,
        "resume": resume,
    }
    return backend_of(addresses, settings)


def connect(
    address: str | None = None,
    /,
    *,
    num_envs: int = 1,
    token: str | bytes | None = None,
    token_file: str | os.PathLike[str] | None = None,
    cafile: str | os.PathLike[str] | None = None,
    tls: ssl.SSLContext | None = None,
    mismatch: str = "warn",
    patience: float = 0.0,
    resume: float = 30.0,
    command: Sequence[str] | None = None,
    start_timeout: float = 60.0,
    **arguments: Any,
) -> RemoteEnvironment:
    """Connects with a server of environments, and returns a batch of one of them.

    A server that is lost ends the episodes with a `LAST` that is a truncation, and the
    next ones begin as soon as it is there again, within a `RestartPolicy()`.

    Args:
        address: Where `envkit serve` listens, and which environment is meant:
            `"tcp://gpu-box:7600/CartPole"`; `tls://` for encrypted connections.
        num_envs: How many rows.
        token: The secret that the server has in its `--token-file`, or prints. Not
            needed for a server of the same user on the same machine that has drawn it.
        token_file: A file with that secret, which its owner alone can read.
        cafile: The certificate that the server shows, or that of its authority.
        tls: What encrypts the connection, in place of `cafile`.
        mismatch: What to do about a server with another version of envkit: "warn", or
            "error". What differs is in `provenance()` in any case.
        patience: For how many seconds to try again where no server can be reached.
        resume: For how many seconds to try to take up a session whose link is lost.
        command: What starts the server: its words. It is ended with the environment.
            Without an address it must print one, as `envkit serve` does.
        start_timeout: How many seconds that server has until it answers.
        **arguments: What the environment is made with, as plain data. Those that
            `ParallelPyEnvironment` knows, such as `num_workers` and `step_timeout`, go
            to the pool that carries the rows.

    Example:
        >>> import sys
        >>> serve = [sys.executable, "-m", "envkit", "serve", "CartPole", "--port=0"]
        >>> with connect(command=serve, num_envs=2) as env:
        ...     env.reset().observation.shape
        (2, 4)
    """
    from envkit.remote.environment import connected

    settings = {
        "token": token,
        "token_file": token_file,
        "cafile": cafile,
        "tls": tls,
        "mismatch": mismatch,
        "patience": patience,
        "resume": resume,
    }
    return connected(address, num_envs, settings, arguments, command, start_timeout)
