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
    reaches the program of a `Desktop`. A recording therefore has the environment's own
    actions, and a replay repeats the demonstration.

    Attributes:
        address: The host and port for viewers.
        password: The password for viewers; `None` if they need none.
        server: The server for viewers, which a `BrowserServer` can show too.

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
        """Begins an episode, and listens for viewers.

        Args:
            env: A `Desktop`, a wrapper around one, such as a `Record`, or any other
                environment with pictures.
            host: The address to listen on.
            port: The port; 0 picks a free one.
            password: The password for viewers, by default a random one; `None` lets
                every account of the machine play.
            observer_password: A password with which viewers can only watch.
            actions: The action encoding; by default a `Desktop`'s, or the keys of
                `envkit play`.
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
        """Makes a step from what the person did since the last one.

        Returns:
            This object, with the `action` and the `time_step`.
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
        """The number of connected viewers."""
        return self._person.viewers

    def run(
        self,
        episodes: int = 1,
        *,
        hz: float = 30.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        """Plays a number of episodes.

        Args:
            episodes: The number of episodes.
            hz: The steps per second.
            now: The clock.
            sleep: A function that waits for a number of seconds.
        """
        due = now()
        while episodes > 0:
            episodes -= bool(self.step().time_step.is_last())
            # After a slow step, time continues from now and does not catch up.
            due = max(due + 1.0 / hz, now())
            if (left := due - now()) > 0:
                sleep(left)

    def close(self) -> None:
        """Disconnects the viewers; the environment stays open."""
        self._person.close()
