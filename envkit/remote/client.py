"""`connect` and `servers`: plays environments that run on servers.

`connect` returns a `RemoteEnvironment`: a pool over a `RemoteBackend`, with methods for
the server. `from envkit import *` loads this module, so its functions import the engine
and the network only when called.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import WrapperInternals, checked_size
from envkit.provenance import recipe_of
from envkit.registry import constructor_elsewhere, load

if TYPE_CHECKING:
    import os
    import ssl

    from envkit.remote.backend import RemoteBackend, ServerInfo
    from envkit.remote.client_connection import Launched, ServerAddress

__all__ = ["RemoteEnvironment", "connect", "servers"]

# Strings, because the engine is imported only when something connects.
_POOL = "envkit.parallel:ParallelPyEnvironment"
_POLICY = "envkit.parallel:RestartPolicy"
_PINGS = 3
_STALE = 1.0


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
    """Returns a backend for pools whose environments run on servers.

    The addresses alone are enough, as in `backend="tcp://a:7600"`, if the servers need
    no token and no TLS, or run on this machine as the same user, so that their tokens
    are found.

    Args:
        addresses: The addresses of `envkit serve`: `"tcp://a:7600,b:7600"`.
        token: The servers' secret from their `--token-file`. Not needed for servers
            that run on this machine as the same user and have drawn their tokens.
        token_file: A file with the secret that only its owner can read.
        cafile: The servers' certificate, or its authority's.
        tls: An SSL context for connections, instead of `cafile`.
        mismatch: "warn" or "error": what to do if a server has another version of
            envkit, or differs from another server.
        patience: Seconds to keep trying while no server can be reached.
        resume: Seconds to keep trying to resume a session after a lost link; 0 to end
            it at once.

    Example:
        >>> servers("tcp://a:7600,b:7600").usual_workers()
        2
    """
    from envkit.remote.backend import RemoteBackend
    from envkit.remote.client_connection import addresses_in, peer_of

    found = addresses_in(addresses)
    peer = peer_of(found, token=token, token_file=token_file, cafile=cafile, tls=tls)
    return RemoteBackend(
        found, peer, mismatch=mismatch, patience=patience, resume=resume
    )


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
    """Connects to a server, and returns a batch of one of its environments.

    If the server is lost, the episodes end with a truncating `LAST`. The next ones
    begin as soon as it is back, within the limits of a `RestartPolicy()`.

    Args:
        address: The address of `envkit serve` and the environment's name:
            `"tcp://gpu-box:7600/CartPole"`; `tls://` for encrypted connections.
        num_envs: The number of rows.
        token: The server's secret, which is in its `--token-file` or which it prints.
            Not needed for a server that runs on this machine as the same user and has
            drawn its token.
        token_file: A file with the secret that only its owner can read.
        cafile: The server's certificate, or its authority's.
        tls: An SSL context for the connection, instead of `cafile`.
        mismatch: "warn" or "error": what to do if the server has another version of
            envkit. `provenance()` lists the differences either way.
        patience: Seconds to keep trying while the server cannot be reached.
        resume: Seconds to keep trying to resume a session after a lost link.
        command: A command that starts the server, as a list of words. It ends with the
            environment. Without an `address` it must print one, as `envkit serve` does.
        start_timeout: Seconds that this server has to answer.
        **arguments: Arguments for the environment's constructor, as plain data.
            Arguments of `ParallelPyEnvironment`, such as `num_workers` and
            `step_timeout`, go to the pool.

    Example:
        >>> import sys
        >>> serve = [sys.executable, "-m", "envkit", "serve", "CartPole", "--port=0"]
        >>> with connect(command=serve, num_envs=2) as env:
        ...     env.reset().observation.shape
        (2, 4)
    """
    from envkit.remote.client_connection import Launched, ServerAddress

    rows = checked_size("num_envs", num_envs)
    settings = {
        "token": token,
        "token_file": token_file,
        "cafile": cafile,
        "tls": tls,
        "mismatch": mismatch,
        "patience": patience if command is None else max(patience, start_timeout),
        "resume": resume,
    }
    if address is None and command is None:
        raise TypeError(
            "connect() needs the address of a server, such as "
            '"tcp://gpu-box:7600/CartPole", or a command that starts one.'
        )
    launched = None if command is None else Launched(command, start_timeout)
    try:
        if launched is not None and address is None:
            address = launched.await_address()
        assert address is not None  # one of the two provided it
        where = ServerAddress.parse(address)
        return RemoteEnvironment(where, rows, arguments, settings, launched)
    except BaseException:
        if launched is not None:
            launched.close()
        raise


class _RemoteInternals(WrapperInternals):
    """Includes the server in the environments' provenance."""

    def recipe(self, env: Any) -> dict[str, Any]:
        recipe: dict[str, Any] = env._recipe()
        return recipe


class RemoteEnvironment(PyEnvironmentBaseWrapper):
    """A batch of an environment that runs on a server; `connect` creates it.

    `get_info()` adds the entry `"remote"` to the environments' infos: the round trip of
    the last ping, and bounds on the seconds by which the server's clock is ahead.
    """

    _envkit = _RemoteInternals()

    def __init__(
        self,
        address: ServerAddress,
        num_envs: int,
        arguments: Mapping[str, Any],
        settings: Mapping[str, Any],
        launched: Launched | None = None,
    ) -> None:
        """Connects; takes the same arguments as `connect`."""
        self._address = address
        self._settings = dict(settings)
        self._launched = launched
        backend = self._backend = servers(str(address), **settings)
        backend.launched = launched
        make_pool: Any = load("connect", _POOL)
        _, *known = inspect.signature(make_pool).parameters
        options = {name: arguments[name] for name in known if name in arguments}
        own = {name: arguments[name] for name in arguments if name not in options}
        options.setdefault("on_worker_failure", load("connect", _POLICY)())
        recipe = constructor_elsewhere(address.name, **own)
        pool = make_pool([recipe] * num_envs, backend=backend, **options)
        super().__init__(pool)
        self._lag: dict[str, float] = {}
        self._pinged_at = -_STALE
        # Several pings give tighter bounds than one.
        for _ in range(_PINGS):
            self.ping()

    @property
    def session(self) -> str:
        """The session's name on the server, which observers need."""
        return self.servers()[0].session

    def servers(self) -> list[ServerInfo]:
        """Returns each session's server, its facts, and how it differs."""
        from envkit.remote.backend import SERVER

        self._ask_server(SERVER)  # raises if the session is gone
        return self._backend.server_infos()

    def ping(self) -> dict[str, float]:
        """Compares the server's clock with this machine's.

        Returns:
            The seconds it took, `round_trip`, and bounds on the seconds by which the
            server's clock is ahead: `skew_low` and `skew_high`.
        """
        from envkit.remote.backend import PING

        pong = dict(self._ask_server(PING)[0])
        known = self._lag
        if known and max(known["skew_low"], pong["skew_low"]) <= min(
            known["skew_high"], pong["skew_high"]
        ):
            pong["skew_low"] = max(known["skew_low"], pong["skew_low"])
            pong["skew_high"] = min(known["skew_high"], pong["skew_high"])
        self._lag, self._pinged_at = pong, time.monotonic()
        return dict(pong)

    def _ask_server(self, name: str) -> list[Any]:
        return self._env.call(name, env_ids=[0])  # type: ignore[no-any-return]

    def get_info(self) -> Any:
        """Returns the environments' infos, with the entry `"remote"`."""
        info = self._env.get_info()
        if time.monotonic() - self._pinged_at > _STALE:
            self.ping()
        rows = self._dims[0]
        if isinstance(info, list):
            return [
                {**one, "remote": dict(self._lag)} if isinstance(one, dict) else one
                for one in info
            ]
        columns = {name: np.full(rows, value) for name, value in self._lag.items()}
        return {**info, "remote": columns}

    def switch(
        self, name: str, *, num_envs: int | None = None, **arguments: Any
    ) -> RemoteEnvironment:
        """Switches to another environment of the same server, and closes this one.

        Args:
            name: The other environment's name on the server.
            num_envs: The number of rows; `None` for as many as now.
            **arguments: Arguments as for `connect`.

        Returns:
            The other environment. If that fails, this one stays open.
        """
        launched = self._launched
        rows = len(self._env.envs) if num_envs is None else num_envs
        other = RemoteEnvironment(
            self._address._replace(name=name),
            checked_size("num_envs", rows),
            arguments,
            self._settings,
            launched,
        )
        self._launched = None
        self.close()
        return other

    def _recipe(self) -> dict[str, Any]:
        recipe = recipe_of(self._env)
        found = self._server_recipe()
        if found is None:
            return recipe
        return {**recipe, "environments": [{"count": self._count(), **found}]}

    def _server_recipe(self) -> dict[str, Any] | None:
        with contextlib.suppress(Exception):  # it is closed or lost
            found = self.servers()[0].facts.get("provenance")
            keys = ("id", "version", "class", "arguments", "seed", "wrappers")
            if isinstance(found, dict) and all(key in found for key in keys):
                more = ("environments",) if "environments" in found else ()
                return {key: found[key] for key in (*keys, *more)}
        return None

    def _count(self) -> int:
        return len(self._env.envs)

    def provenance(self) -> dict[str, Any]:
        """Returns the environments' provenance, including that of the servers."""
        found = {**self._env.provenance(), **self._recipe()}
        infos = self.servers()
        first = infos[0].facts.get("provenance") if infos else None
        if isinstance(first, dict):
            found |= {key: first[key] for key in ("packages", "python") if key in first}
        known = ("host", "envkit", "protocol", "sha256")
        found["remote"] = [
            {
                "address": info.address,
                **{key: info.facts.get(key) for key in known},
                "differences": list(info.differences),
            }
            for info in infos
        ]
        return found

    def close(self) -> None:
        """Ends the session, and the server if `connect` started it."""
        try:
            self._env.close()
        finally:
            launched, self._launched = self._launched, None
            if launched is not None:
                launched.close()
