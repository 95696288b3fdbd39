"""`envkit serve TARGET --vnc`: people watch and play environments in VNC viewers.

Each environment has a port of its own. It goes on `hz` times a second, or whenever the
viewer that controls presses a key, and stands still while there is no viewer; further
viewers observe.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from envkit._shared.actions_and_rewards import agent_rewards
from envkit._shared.secret_files import DRAW
from envkit.desktop.human import Person
from envkit.errors import ClosedError
from envkit.remote.offers import (
    Menu,
    Offer,
    ServeOptions,
    Service,
    is_loopback,
    with_reachable_host,
)
from envkit.time_step import TimeStep

__all__ = ["Shown", "serve"]

_log = logging.getLogger(__name__)

_PORT = 5900
# How many may observe, unless the options say so.
_OBSERVERS = 15
# Seconds within which an environment must come to its end.
_PATIENCE = 2.0


def serve(menu: Menu, options: ServeOptions) -> Service:
    """Shows the environments of a menu to VNC viewers, each at a port of its own.

    Args:
        menu: The environments.
        options: Where to listen: the first environment at `port`, the others above it.
            Viewers need the password, of which VNC has 8 characters; those who know the
            `observer_password` observe.

    Raises:
        ValueError: An environment has no pictures, or its actions no keys; or VNC is to
            be encrypted, which it cannot be.
    """
    if options.tls is not None and not is_loopback(options.host):
        raise ValueError(
            f"--vnc cannot be encrypted by --cert, and --host={options.host} lets "
            "other machines connect. Leave --cert out, or --host, and reach it through "
            "a tunnel."
        )
    return _Shop(menu, options)


class _Shop:
    """All environments that are shown.

    Attributes:
        line: Where they are, for people.
        invitation: The password, if it was drawn.
        shown: The environments.
    """

    def __init__(self, menu: Menu, options: ServeOptions) -> None:
        self.shown: list[Shown] = []
        first = _PORT if options.port is None else options.port
        try:
            for number, offer in enumerate(menu.offers):
                port = first + number if first else 0
                self.shown.append(Shown(offer, options, port))
        except BaseException:
            self.close("")
            raise
        self.line = "\n".join(one.line for one in self.shown)
        self.invitation = "\n".join(
            filter(None, (one.invitation for one in self.shown))
        )

    def ended(self) -> str | None:
        """Returns why one of them has ended unasked; `None` as long as all serve."""
        return next(filter(None, (one.ended() for one in self.shown)), None)

    def close(self, reason: str) -> None:
        """Ends them all; calling it again does nothing."""
        for one in self.shown:
            one.person.close()
        for one in self.shown:
            one.join()


class Shown:
    """An environment that a person plays, in a thread of its own.

    Attributes:
        line: Where it is, and its keys.
        invitation: The password for viewers, if it was drawn.
        person: The person who plays.
    """

    def __init__(self, offer: Offer, options: ServeOptions, port: int) -> None:
        """Makes the environment, begins an episode, and listens at a port."""
        self._name = offer.name
        self._env: Any = offer.make_drawing()
        self._failure: str | None = None
        try:
            self.person = Person(
                self._env,
                host=options.host,
                port=port,
                password=options.password,
                observer_password=options.observer_password,
                name=self._name,
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
        host, port = self.person.address
        host = f"[{host}]" if ":" in host else host
        self.line = f"vnc: vnc://{host}:{port} shows {self._name}; {self._how()}"
        self.invitation = ""
        if options.password is DRAW:
            where = with_reachable_host(f"{host}:{port}", options.host)
            self.invitation = (
                f"viewers of {self._name} at {where} need the password "
                f"{self.person.password}"
            )
        self._thread = threading.Thread(
            target=self._run, name=f"envkit vnc {port}", daemon=True
        )
        self._thread.start()

    def ended(self) -> str | None:
        """Returns why it has ended unasked; `None` as long as it serves."""
        return self._failure or self.person.ended()

    def join(self) -> None:
        """Waits a while until the environment is closed."""
        # It may take as long as it likes; its thread is a daemon.
        self._thread.join(_PATIENCE)

    def _how(self) -> str:
        """Returns the pace and the keys, for people."""
        hz = self.person.hz
        pace = f"{hz:g} steps a second" if hz else "each step waits for a key"
        table: Any = getattr(self.person.actions, "keys", None)
        if not hasattr(table, "table"):
            return pace
        keys = "; ".join(f"{key}: {label}" for key, label in table.table())
        return f"{pace}; {keys}"

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
                self.person.rename(f"{self._name}: episode {episode}")
                earned = 0.0
            time_step = self._env.step(self.person(time_step))
            if not time_step.is_first():
                earned += float(agent_rewards(time_step.reward).sum())
            if time_step.is_last():
                self.person.rename(
                    f"{self._name}: episode {episode}, return {earned:g}"
                )
                episode += 1
