"""The services of `envkit serve`: their protocols, sockets and health."""

from __future__ import annotations

import argparse
import socket
import ssl
import sys
import threading
from typing import Any, NamedTuple

from envkit._shared.activation import inherited_sockets, shared_out
from envkit._shared.health import HealthServer
from envkit._shared.listening import is_loopback, listener
from envkit.cli.output import say
from envkit.cli.target import busy_port_explained, port_number
from envkit.remote.offers import ServeOptions, Service, check_exposure
from envkit.remote.plugins import ServeProtocol

__all__ = ["Chosen", "Services", "host_and_port", "places_of", "warnings_of"]


class Chosen(NamedTuple):
    """A protocol to serve, and its flag without dashes."""

    flag: str
    protocol: ServeProtocol

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"--{self.flag}" if self.flag else "envkit's own protocol"


def _inherited(
    arguments: argparse.Namespace, protocols: list[Chosen]
) -> dict[str, tuple[socket.socket, ...]]:
    """Returns the sockets inherited from systemd, by the flag of a protocol.

    Raises:
        ValueError: They do not fit the protocols, or the options contradict them.
    """
    counts = {}
    for chosen in protocols:
        count = chosen.protocol.sockets
        counts[chosen.flag or "own"] = len(arguments.targets) if count < 0 else count
    shared = shared_out(inherited_sockets(), counts)
    if shared and len(shared) == len(counts):
        for option in ("host", "port"):
            if getattr(arguments, option) is not None:
                raise ValueError(
                    f"--{option} contradicts the inherited sockets (LISTEN_FDS), which "
                    "listen already: leave it out."
                )
    return shared


def _place_of(
    chosen: Chosen,
    options: ServeOptions,
    inherited: dict[str, tuple[socket.socket, ...]],
) -> ServeOptions:
    """Returns the options of one protocol, including its sockets."""
    sockets = inherited.get(chosen.flag or "own", ())
    if not sockets:
        return options
    hosts = [str(sock.getsockname()[0]) for sock in sockets]
    # The most widely reachable host counts.
    host = next((host for host in hosts if not is_loopback(host)), hosts[0])
    return options._replace(host=host, sockets=sockets)


def places_of(
    arguments: argparse.Namespace, protocols: list[Chosen], options: ServeOptions
) -> dict[Chosen, ServeOptions]:
    """Returns the options of each protocol, with its port or sockets.

    Raises:
        ValueError: Inherited sockets do not fit the protocols or the options.
    """
    inherited = _inherited(arguments, protocols)
    taken: set[int] = set()
    places = {}
    for chosen in dict.fromkeys(protocols):
        place = _place_of(chosen, options, inherited)
        places[chosen] = _apart(chosen, place, len(arguments.targets), taken)
    return places


def _apart(
    chosen: Chosen, options: ServeOptions, targets: int, taken: set[int]
) -> ServeOptions:
    """Moves a protocol up to the next ports that no other protocol here uses."""
    first = chosen.protocol.port if options.port is None else options.port
    if options.sockets or not first:
        return options
    count = targets if chosen.protocol.sockets < 0 else 1
    while not taken.isdisjoint(range(first, first + count)):
        first += 1
    taken.update(range(first, first + count))
    return options._replace(port=first)


def warnings_of(places: dict[Chosen, ServeOptions]) -> list[str]:
    """Returns warnings about servers that others can reach, each only once.

    Raises:
        ValueError: One of them could be used by anyone.
    """
    kinds: dict[ServeOptions, dict[str, None]] = {}
    for chosen, options in places.items():
        options = options._replace(port=None)
        kinds.setdefault(options, {})[chosen.protocol.secret] = None
    found = [check_exposure(options, [*kinds[options]]) for options in kinds]
    return [*dict.fromkeys(warning for warning in found if warning is not None)]


class Services:
    """Holds the running services, and reports on them."""

    def __init__(self) -> None:
        self._chosen: list[tuple[Chosen, Service]] = []
        self._status = "starting"

    def add(self, chosen: Chosen, service: Service) -> None:
        """Adds a listening service."""
        self._chosen.append((chosen, service))

    def begin(self) -> None:
        """Reports from now on that the services are serving."""
        self._status = "ok"

    def stop(self) -> None:
        """Reports from now on that the services are stopping."""
        self._status = "stopping"

    def lines(self) -> list[str]:
        """Returns the services' addresses, for people."""
        return [line for _, one in self._chosen for line in one.line.split("\n")]

    def invitations(self) -> list[str]:
        """Returns lines that tell other users and machines how to connect."""
        lines = (line for _, one in self._chosen for line in one.invitation.split("\n"))
        return [line for line in lines if line]

    def health_server(
        self, place: tuple[str, int] | None, tls: ssl.SSLContext | None
    ) -> HealthServer | None:
        """Returns a server that answers for all of them, if wanted."""
        if place is None:
            return None
        with busy_port_explained():
            return HealthServer(listener(*place), self.report, tls)

    def report(self) -> dict[str, Any]:
        """Returns the services' health, for `--health`."""
        told = []
        for chosen, service in self._chosen:
            status = "ok" if service.ended() is None else "ended"
            # Other packages' services may lack `health`.
            health: Any = getattr(service, "health", lambda: [{}])
            for facts in health():
                name = chosen.flag or "envkit"
                told.append({"protocol": name, "status": status, **facts})
        status = self._status
        if status == "ok" and any(one["status"] != "ok" for one in told):
            status = "failed"
        return {"status": status, "services": told}

    def await_end(self) -> int:
        """Waits until a signal raises, or a service stops by itself."""
        never = threading.Event()
        while True:
            for _, service in self._chosen:
                reason = service.ended()
                if reason is not None:
                    say(f"envkit serve: {service.line}: {reason}", file=sys.stderr)
                    return 1
            never.wait(0.5)


def host_and_port(text: str) -> tuple[str, int]:
    """Reads a port with an optional address before it."""
    host, _, port = text.rpartition(":")
    return host.strip("[]") or "127.0.0.1", port_number(port)
