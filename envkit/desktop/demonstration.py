"""`Demonstration`: people play a desktop in a VNC viewer, as an agent would."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from envkit._shared.closing import Closable
from envkit._shared.secret_files import DRAW, Draw
from envkit.desktop.actions import Actions
from envkit.desktop.human import Person
from envkit.time_step import TimeStep

__all__ = ["Demonstration"]


class Demonstration(Closable):
    """Lets people play in any VNC viewer, in steps that an agent could take.

    What a person does in a step becomes the closest action, and only that action
    reaches the program of a `Desktop`. So a recording has demonstrations with the
    environment's own actions, and replaying it repeats them.

    Attributes:
        address: The host and port for the viewer.
        password: What the viewer must know; `None` for nothing.
        server: What viewers connect to, which a `BrowserServer` shows as well.

    Example:
        >>> from envkit.desktop import Desktop, DesktopClient, DesktopServer
        >>> with DesktopServer((64, 48)) as game:
        ...     address = "vnc://{}:{}".format(*game.address)
        ...     env = Desktop(display=address, keys=["Left"], reset=None)
        ...     with Demonstration(env) as shown:
        ...         with DesktopClient(*shown.address) as viewer:
        ...             viewer.key("Left", True)
        ...             while not shown.step().action["keys"].any():
        ...                 pass
        ...     env.close()
    """

    def __init__(
        self,
        env: Any,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        password: str | Draw | None = DRAW,
        observer_password: str | None = None,
        actions: Actions | None = None,
    ) -> None:
        """Begins an episode, and listens for a viewer.

        Args:
            env: A `Desktop`, or a wrapper around one, such as a `Record`; or any other
                environment with pictures.
            host: The address to listen at.
            port: The port; 0 for any that is free.
            password: What the viewer must know, drawn unless given; `None` lets every
                account of the machine play.
            observer_password: What viewers must know that only observe.
            actions: The encoding of actions; by default that of a `Desktop`, or the
                keys of `envkit play`.
        """
        self._person = Person(
            env,
            host=host,
            port=port,
            password=password,
            observer_password=observer_password,
            actions=actions,
            await_picture=True,
        )
        try:
            self._env = env
            self._time_step: TimeStep = env.reset()
            self._person.show(self._time_step)
        except BaseException:
            self._person.close()
            raise
        self.address = self._person.address
        self.password = self._person.password
        self.server = self._person.server
        self.action: Any = None

    def step(self) -> Demonstration:
        """Steps with what the person has done since the last step.

        Returns:
            This object, which has the `action` and the `time_step`.
        """
        self.action = self._person.action()
        self._time_step = self._env.step(self.action)
        self._person.show(self._time_step)
        return self

    @property
    def time_step(self) -> TimeStep:
        """The current time step."""
        return self._time_step

    @property
    def viewers(self) -> int:
        """How many viewers are connected."""
        return self._person.viewers

    def run(
        self,
        episodes: int = 1,
        *,
        hz: float = 30.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        """Steps until so many episodes have ended.

        Args:
            episodes: How many.
            hz: The steps in a second.
            now: The clock.
            sleep: A function that waits for so many seconds.
        """
        due = now()
        while episodes > 0:
            episodes -= bool(self.step().time_step.is_last())
            # After a slow step time goes on from now, and is not made up for.
            due = max(due + 1.0 / hz, now())
            if (left := due - now()) > 0:
                sleep(left)

    def close(self) -> None:
        """Ends the connection of the viewer; the environment stays open."""
        self._person.close()
