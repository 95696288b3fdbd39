"""`RemoteEnvironment`: a batch whose environments a server runs."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import WrapperInternals
from envkit.provenance import recipe_of
from envkit.registry import constructor_elsewhere, load
from envkit.remote.backend import PING, SERVER, RemoteBackend
from envkit.remote.client_connection import ServerAddress, addresses_in, peer_of
from envkit.remote.launch import Launched
from envkit.remote.server_info import ServerInfo

__all__ = ["RemoteEnvironment", "backend_of", "connected"]

# Strings, because nothing here knows the engine before there is something to connect.
_POOL = "envkit.parallel:ParallelPyEnvironment"
_POLICY = "envkit.parallel:RestartPolicy"
_PINGS = 3
_STALE = 1.0


def backend_of(
    addresses: str, settings: Mapping[str, Any], launched: Launched | None = None
) -> RemoteBackend:
    """Returns the backend for servers; the settings are those of `servers`."""
    found = addresses_in(addresses)
    ways = ("mismatch", "patience", "resume")
    how = {name: settings[name] for name in settings if name not in ways}
    options = {name: settings[name] for name in ways if name in settings}
    return RemoteBackend(found, peer_of(found, **how), **options, launched=launched)


def connected(
    address: str | None,
    num_envs: int,
    settings: dict[str, Any],
    arguments: Mapping[str, Any],
    command: Any,
    start_timeout: float,
) -> RemoteEnvironment:
    """Starts a server, if there is a command for that, and connects with it.

    The arguments are those of `envkit.connect`.
    """
    launched = None
    if command is not None:
        launched = Launched(command, start_timeout)
        settings["patience"] = max(settings["patience"], start_timeout)
    elif address is None:
        raise TypeError(
            "connect() needs the address of a server, such as "
            '"tcp://gpu-box:7600/CartPole", or the command that starts one.'
        )
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
        backend = self._backend = backend_of(str(address), settings, launched)
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
        """Returns what the server of each session has said of itself, and differs."""
        self._asked(SERVER)  # It raises where there is none any more.
        return self._backend.facts()

    def ping(self) -> dict[str, float]:
        """Asks the server for its clock.

        Returns:
            The seconds that it took, `round_trip`, and between which numbers of
            seconds its clock is ahead of this machine's: `skew_low`, `skew_high`.
        """
        pong = dict(self._asked(PING)[0])
        known = self._lag
        if known and max(known["skew_low"], pong["skew_low"]) <= min(
            known["skew_high"], pong["skew_high"]
        ):
            pong["skew_low"] = max(known["skew_low"], pong["skew_low"])
            pong["skew_high"] = min(known["skew_high"], pong["skew_high"])
        self._lag, self._pinged_at = pong, time.monotonic()
        return dict(pong)

    def _asked(self, name: str) -> list[Any]:
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
            said = self.servers()[0].said.get("provenance")
            keys = ("id", "version", "class", "arguments", "seed", "wrappers")
            if isinstance(said, dict) and all(key in said for key in keys):
                more = ("environments",) if "environments" in said else ()
                return {key: said[key] for key in (*keys, *more)}
        return None

    def _count(self) -> int:
        return len(self._env.envs)

    def provenance(self) -> dict[str, Any]:
        """Returns where the environments come from, and from which servers."""
        found = {**self._env.provenance(), **self._recipe()}
        facts = self.servers()
        said = facts[0].said.get("provenance") if facts else None
        if isinstance(said, dict):
            found |= {key: said[key] for key in ("packages", "python") if key in said}
        found["remote"] = [
            {
                "address": fact.address,
                "host": fact.said.get("host"),
                "envkit": fact.said.get("envkit"),
                "protocol": fact.said.get("protocol"),
                "sha256": fact.said.get("sha256"),
                "differences": list(fact.differences),
            }
            for fact in facts
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
