"""`connect` and `servers`: environments of servers in this program.

`connect` returns a `RemoteEnvironment`: a pool over a `RemoteBackend`, with what only a
client of servers has. `from envkit import *` loads this module, so functions load the
engine and the network when they are called.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import WrapperInternals
from envkit.provenance import recipe_of
from envkit.registry import constructor_elsewhere, load

if TYPE_CHECKING:
    import os
    import ssl

    from envkit.remote.backend import RemoteBackend, ServerInfo
    from envkit.remote.client_connection import Launched, ServerAddress

__all__ = ["RemoteEnvironment", "connect", "servers"]

# Strings, because nothing here knows the engine before there is something to connect.
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
    from envkit.remote.client_connection import Launched, ServerAddress

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
            '"tcp://gpu-box:7600/CartPole", or the command that starts one.'
        )
    launched = None if command is None else Launched(command, start_timeout)
    try:
        if launched is not None and address is None:
            address = launched.await_address()
        assert address is not None  # one of the two has given it
        where = ServerAddress.parse(address)
        return RemoteEnvironment(where, num_envs, arguments, settings, launched)
    except BaseException:
        if launched is not None:
            launched.close()
        raise


class _RemoteInternals(WrapperInternals):
    """Asks the server where the environments come from."""

    def recipe(self, env: Any) -> dict[str, Any]:
        recipe: dict[str, Any] = env._recipe()
        return recipe


class RemoteEnvironment(PyEnvironmentBaseWrapper):
    """A batch of an environment that a server runs; `connect` makes these.

    `get_info()` has the entry `"remote"` beside those of the environments: the round
    trip of the last ping, and between which numbers of seconds the server's clock is
    ahead of this machine's.
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
        """Connects; the arguments are those of `connect`."""
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
        # The bounds of several pings are tighter than those of one.
        for _ in range(_PINGS):
            self.ping()

    @property
    def session(self) -> str:
        """What the server calls the session; observers name it."""
        return self.servers()[0].session

    def servers(self) -> list[ServerInfo]:
        """Returns what each session's server says of itself, and what differs."""
        from envkit.remote.backend import SERVER

        self._ask_server(SERVER)  # It raises where there is none any more.
        return self._backend.server_infos()

    def ping(self) -> dict[str, float]:
        """Asks the server for its clock.

        Returns:
            The seconds that it took, `round_trip`, and between which numbers of
            seconds its clock is ahead of this machine's: `skew_low`, `skew_high`.
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
        """Asks the same server for another environment, and closes this one.

        Args:
            name: What the server calls it.
            num_envs: How many rows; `None` for as many as this has.
            **arguments: As those of `connect`.

        Returns:
            The other environment. Where it cannot be had, this one stays as it is.
        """
        launched = self._launched
        other = RemoteEnvironment(
            self._address._replace(name=name),
            len(self._env.envs) if num_envs is None else num_envs,
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
        with contextlib.suppress(Exception):  # It is closed, or lost.
            found = self.servers()[0].facts.get("provenance")
            keys = ("id", "version", "class", "arguments", "seed", "wrappers")
            if isinstance(found, dict) and all(key in found for key in keys):
                more = ("environments",) if "environments" in found else ()
                return {key: found[key] for key in (*keys, *more)}
        return None

    def _count(self) -> int:
        return len(self._env.envs)

    def provenance(self) -> dict[str, Any]:
        """Returns where the environments come from, and from which servers."""
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
        """Ends the session, and the server if `connect` has started it."""
        try:
            self._env.close()
        finally:
            launched, self._launched = self._launched, None
            if launched is not None:
                launched.close()
