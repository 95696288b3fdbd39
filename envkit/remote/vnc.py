"""`envkit serve TARGET --vnc`: people watch and play in VNC viewers and in browsers.

Each environment has its own VNC port, and all share one port for browsers. An
environment makes `hz` steps a second, or one for each key press of the controlling
viewer. It pauses while nobody is connected. Other viewers only watch.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping
from typing import Any

from envkit._shared.actions_and_rewards import agent_rewards
from envkit._shared.listening import ListenError, is_loopback, place_of
from envkit._shared.secret_files import DRAW
from envkit.desktop.browser import BrowserServer
from envkit.desktop.human import Person
from envkit.errors import ClosedError, MissingDependencyError
from envkit.extend import may_lose
from envkit.remote.offers import (
    Menu,
    Offer,
    ServeOptions,
    Service,
    with_reachable_host,
)
from envkit.remote.plugins import VNC_PORT
from envkit.time_step import TimeStep

__all__ = ["PlayedEnv", "host_for_vnc", "pages_for", "serve"]

_log = logging.getLogger(__name__)

# The default limit on observers.
_OBSERVERS = 15
# Seconds that an environment has to end.
_PATIENCE = 2.0


def serve(menu: Menu, options: ServeOptions) -> Service:
    """Shows the environments of a menu to VNC viewers, each on its own port.

    Browsers find all of them at one port. A certificate encrypts only the browsers'
    port: other machines then reach the pages, and VNC listens only on this machine.

    Args:
        menu: The environments.
        options: The options of the server. The first environment is at `port`, the
            others are above it. Viewers need the password, of which VNC compares 8
            characters; the `observer_password` only lets them watch.

    Raises:
        ValueError: An environment has no pictures, or there are no keys for its
            actions.
        MissingDependencyError: Other machines need the pages, and the package for the
            pages is not installed.
    """
    return _VncService(menu, options)


def pages_for(
    people: Mapping[str, Person], options: ServeOptions
) -> tuple[BrowserServer | None, str]:
    """Serves pages for browsers if that is safe or requested.

    Args:
        people: The players by the names of their pages.
        options: The options of the server.

    Returns:
        The server of the pages, or `None` and a line that explains why there is none.

    Raises:
        MissingDependencyError: A package is missing, and there is no other way in.
        ValueError: The chosen port is in use.
    """
    is_private = is_loopback(options.host)
    if not is_private and options.tls is None and options.web_port is None:
        return None, "with --cert and --key, browsers can connect too"
    desktops = {name: person.server for name, person in people.items()}
    hints = {name: person.hint for name, person in people.items()}
    try:
        return BrowserServer(
            desktops,
            host=options.host,
            port=options.web_port,
            tls=options.tls,
            hints=hints,
        ), ""
    except MissingDependencyError as error:
        if options.web_port is not None or not is_private:
            raise
        return None, str(error)
    except ListenError as error:
        raise ValueError(
            f"{error} Choose another with --web-port, or any that is free with "
            "--web-port=0."
        ) from error


def host_for_vnc(options: ServeOptions) -> str:
    """Returns the host for VNC: with a certificate, only this machine."""
    is_inside = options.tls is not None and not is_loopback(options.host)
    return "127.0.0.1" if is_inside else options.host


class _VncService:
    """All environments that are shown.

    Attributes:
        line: The addresses, for people.
        invitation: The passwords, if they were drawn.
        shown: The environments.
        browsers: The server of their pages, or `None`.
    """

    def __init__(self, menu: Menu, options: ServeOptions) -> None:
        self.shown: list[PlayedEnv] = []
        self.browsers: BrowserServer | None = None
        inside = options._replace(host=host_for_vnc(options))
        if inside.host != options.host and options.sockets:
            raise ValueError(
                "With --cert the inherited socket for VNC must listen on 127.0.0.1, "
                f"because VNC is never encrypted, got {options.host}."
            )
        try:
            for number, offer in enumerate(menu.offers):
                where = options.port_or_socket(VNC_PORT, number)
                self.shown.append(PlayedEnv(offer, inside, where))
            pages: dict[str, PlayedEnv] = {}
            for number, one in enumerate(self.shown, 1):
                name = f"{one.name} {number}" if one.name in pages else one.name
                pages[name] = one
            people = {name: one.person for name, one in pages.items()}
            self.browsers, note = pages_for(people, options)
        except BaseException:
            self.close("")
            raise
        lines = [one.line for one in self.shown]
        invitations = [one.invitation for one in self.shown]
        if self.browsers is not None:
            url = with_reachable_host(self.browsers.url, options.host)
            them = "it" if len(lines) == 1 else "all of them"
            lines.append(f"vnc: {url} shows {them} in browsers")
        if self.browsers is not None and options.password is DRAW:
            urls = [
                self.browsers.page(name, one.person.password)
                for name, one in pages.items()
            ]
            invitations = [
                f"{known}; in a browser: {with_reachable_host(url, options.host)}"
                for known, url in zip(invitations, urls, strict=True)
            ]
        self.line = "\n".join(lines)
        self.invitation = "\n".join(filter(None, [*invitations, note]))

    def health(self) -> list[dict[str, Any]]:
        """Returns the address and the number of viewers of each environment."""
        return [
            {
                "address": f"vnc://{place_of(one.person.address)}",
                "sessions": one.person.viewers,
            }
            for one in self.shown
        ]

    def ended(self) -> str | None:
        """Returns why one stopped without `close`; `None` while all serve."""
        servers: list[Any] = [*self.shown, *filter(None, [self.browsers])]
        return next(filter(None, (one.ended() for one in servers)), None)

    def close(self, reason: str) -> None:
        """Closes all environments; calling it again does nothing."""
        if self.browsers is not None:
            self.browsers.close(reason)
        for one in self.shown:
            one.person.close()
        for one in self.shown:
            one.join()


class PlayedEnv:
    """An environment that a person plays, in its own thread.

    Attributes:
        name: Its name for clients.
        line: Its address and its keys.
        invitation: The password for viewers, if it was drawn.
        person: The person who plays.
    """

    def __init__(
        self, offer: Offer, options: ServeOptions, port: int | socket.socket
    ) -> None:
        """Makes the environment, begins an episode, and listens."""
        self.name = offer.name
        self._env: Any = offer.make_drawing()
        self._may_lose = may_lose(self._env)
        self._failure: str | None = None
        try:
            self.person = Person(
                self._env,
                host=options.host,
                port=port,
                password=options.password,
                observer_password=options.observer_password,
                name=self.name,
                hz=options.hz,
                max_viewers=1 + (options.observers or _OBSERVERS),
                await_picture=True,
            )
            try:
                self._first = self._env.reset()
                self.person.show(self._first)
            except BaseException:
                self.person.close()
                raise
        except BaseException:
            self._env.close()
            raise
        place = place_of(self.person.address)
        self.line = f"vnc: vnc://{place} shows {self.name}; {self.person.hint}"
        self.invitation = ""
        if options.password is DRAW:
            where = with_reachable_host(place, options.host)
            self.invitation = (
                f"viewers of {self.name} at {where} need the password "
                f"{self.person.password}"
            )
        self._thread = threading.Thread(
            target=self._run, name=f"envkit vnc {place}", daemon=True
        )
        self._thread.start()

    def ended(self) -> str | None:
        """Returns why it stopped without `close`; `None` while it serves."""
        return self._failure or self.person.ended()

    def join(self) -> None:
        """Waits a few seconds for the environment to close."""
        # It may take longer; its thread is a daemon.
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            self._play()
        except ClosedError:
            if self.person.ended() is None:
                return
            raise
        except Exception as error:
            _log.exception("The environment at %s has ended.", self.line)
            self._failure = f"{type(error).__name__}: {error}"
            self.person.close()
        finally:
            self._env.close()

    def _play(self) -> None:
        time_step: TimeStep = self._first
        episode, earned = 1, 0.0
        while True:
            if time_step.is_first():
                self.person.rename(f"{self.name}: episode {episode}")
                earned = 0.0
            time_step = self._env.step(self.person(time_step))
            if not time_step.is_first():
                earned += float(agent_rewards(time_step.reward).sum())
            if time_step.is_last():
                end = f"return {earned:g}"
                if self._may_lose:
                    for loss in self._env.current_losses().values():
                        end = f"lost ({loss.kind})"
                self.person.rename(f"{self.name}: episode {episode}, {end}")
                episode += 1
