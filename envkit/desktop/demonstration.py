"""`Demonstration`: people play a desktop in a VNC viewer, as an agent would."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from envkit.desktop.actions import Actions
from envkit.desktop.keys import Event
from envkit.desktop.server import DesktopServer
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import Array

__all__ = ["Demonstration"]


class Demonstration:
    """Lets people play a `Desktop` in any VNC viewer, in steps that an agent could do.

    What a person does in a step becomes the action that comes nearest, and only that
    reaches the program. So a recording of the environment has demonstrations with its
    own actions, and playing them again does what was done.

    Attributes:
        address: The host and port for the viewer.

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
        password: str | None = None,
        actions: Actions | None = None,
    ) -> None:
        """Begins an episode, and listens for a viewer.

        Args:
            env: A `Desktop`, or a wrapper around one, such as a `Record`.
            host: The address to listen at.
            port: The port; 0 for any that is free.
            password: What the viewer must know; `None` for no password.
            actions: The encoding of actions; by default that of the `Desktop`.
        """
        found = getattr(env, "actions", None) if actions is None else actions
        if not hasattr(found, "array"):
            raise TypeError(
                "env must be a Desktop, or a wrapper around one, or actions must be "
                f"given; got {describe(env)}."
            )
        self._env = env
        self._actions: Any = found
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._time_step: TimeStep = env.reset()
        frame = self._picture()
        self._server = DesktopServer(
            (frame.shape[1], frame.shape[0]),
            host=host,
            port=port,
            password=password,
            on_event=self._events.put,
        )
        self._server.show(frame)
        self.address = self._server.address
        self.action: Any = None

    def step(self) -> Demonstration:
        """Takes a step with what the person has done since the last one.

        Returns:
            This object, which has the `action` and the `time_step`.
        """
        events = []
        while not self._events.empty():
            events.append(self._events.get())
        self.action = self._actions.array(events)
        self._time_step = self._env.step(self.action)
        self._server.show(self._picture())
        return self

    @property
    def time_step(self) -> TimeStep:
        """Where the environment stands."""
        return self._time_step

    @property
    def viewers(self) -> int:
        """How many viewers are connected."""
        return self._server.viewers

    def run(
        self,
        episodes: int = 1,
        *,
        hz: float = 30.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        """Takes steps until so many episodes have ended.

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
        self._server.close()

    def __enter__(self) -> Demonstration:
        """Returns the demonstration."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends it."""
        self.close()

    def _picture(self) -> Array:
        """Returns the picture that the agent would see, or that of the screen."""
        observation = self._time_step.observation
        if isinstance(observation, dict):
            observation = observation.get("pixels")
        if observation is None:
            observation = self._env.render()
        return np.asarray(observation)
