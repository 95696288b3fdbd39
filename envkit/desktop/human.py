"""`Person`: a person who acts in a VNC viewer, as a policy for any environment."""

from __future__ import annotations

import copy
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit._shared.closing import Closable
from envkit._shared.secret_files import DRAW, Draw
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import Event
from envkit.desktop.pending_events import PendingEvents
from envkit.desktop.play_keys import KeyboardActions, encoding_of
from envkit.desktop.server import DesktopServer
from envkit.errors import ClosedError
from envkit.play.key_map import pace_of
from envkit.play.pictures import picture_of
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray

__all__ = ["Person"]

# Pictures that are smaller are enlarged, because viewers show pixels as they are.
_SMALLEST = 300
# The steps in a second of a desktop, which has no pace of its own.
_OF_DESKTOPS = 30.0
# Seconds between two checks whether the wait is over.
_POLL_INTERVAL = 0.2


class Person(Closable):
    """Lets a person act in a VNC viewer: a policy, for any environment with pictures.

    It listens for viewers, shows them the environment, and turns the keys and the
    pointer of the one that controls into actions: those of a `Desktop` come nearest to
    what the person did, and others have the keys of `envkit play`. It waits for a
    viewer while it has none. Small pictures are enlarged by whole numbers.

    | `hz`   | a step is due                                                          |
    |--------|------------------------------------------------------------------------|
    | above 0| so many times a second, whether a key is down or not                   |
    | 0      | when a key with an action goes down; on a `Desktop` also when a key or |
    |        | a button goes up                                                       |

    Attributes:
        address: The host and port for viewers.
        password: What the person must know; `None` for nothing.
        hz: The steps in a second; 0 if each waits for a key.
        actions: The encoding of actions.
        server: What viewers connect to.

    Example:
        >>> from envkit import make
        >>> from envkit.desktop import DesktopClient
        >>> env = make("Catch", seed=1)
        >>> with Person(env, hz=0) as person, DesktopClient(*person.address) as viewer:
        ...     viewer.press("Right")
        ...     int(person(env.reset()))
        2
    """

    def __init__(
        self,
        env: Any,
        *,
        host: str = "127.0.0.1",
        port: int | socket.socket = 0,
        password: str | Draw | None = DRAW,
        observer_password: str | None = None,
        name: str = "envkit",
        actions: Any = None,
        hz: float | None = None,
        end_pause: float = 1.0,
        max_viewers: int = 16,
        await_picture: bool = False,
    ) -> None:
        """Listens for viewers; the first time step has the first picture.

        Args:
            env: An environment, a single one.
            host: The address to listen at.
            port: The port; 0 for any that is free. Or a socket that listens already.
            password: What the person must know, drawn unless given; `None` for no
                password.
            observer_password: What viewers must know that only observe.
            name: The title of viewers' windows.
            actions: The encoding of actions, such as `Controls`; by default that of a
                `Desktop`, or the keys of `envkit play`.
            hz: The steps in a second; 0 waits for a key before each. By default it is
                30 for a `Desktop`, and else the environment's own pace, if it tells one
                and has an action for no key, or 0.
            end_pause: Seconds for which the end of an episode is shown.
            max_viewers: How many viewers there may be at a time.
            await_picture: Whether viewers that connect before the first picture wait
                for it. Otherwise they see a black one of 640 x 480 until then, and keep
                that size if they cannot follow.

        Raises:
            ValueError: The environment is a batch, or its actions cannot be said with
                keys.
        """
        if env.batched:
            raise ValueError(
                "A person plays a single environment, and this is a batch of "
                f"{env.batch_size}."
            )
        if hz is not None and not 0 <= hz <= 1000:
            raise ValueError(f"hz must be a number from 0 to 1000, got {hz!r}.")
        own = encoding_of(env) if actions is None else copy.deepcopy(actions)
        self._is_desktop = own is not None
        self._can_release = self._is_desktop and _has_idle_action(own)
        if self._is_desktop:
            self.actions: Any = own
            pace = _OF_DESKTOPS
        else:
            keyboard = self.actions = KeyboardActions(env)
            pace = pace_of(env, keyboard.keys)
        self.hz = pace if hz is None else float(hz)
        self._pending = PendingEvents()
        self._wake = threading.Event()
        self._closed = False
        self._end_pause = end_pause
        self._due = 0.0
        self._env = env
        # Before its first episode it may not render.
        self._picture: Callable[[TimeStep], Array] | None = None
        self.server = DesktopServer(
            None if await_picture else (640, 480),
            host=host,
            port=port,
            name=name,
            password=password,
            observer_password=observer_password,
            on_event=self._handle,
            max_viewers=max_viewers,
        )
        self.address = self.server.address
        self.password = self.server.passwords[0]

    @property
    def hint(self) -> str:
        """The pace and the keys, for people."""
        pace = f"{self.hz:g} steps a second" if self.hz else "each step waits for a key"
        table: Any = getattr(self.actions, "keys", None)
        if not hasattr(table, "table"):
            return pace
        keys = [f"{key}: {label}" for key, label in table.table()]
        return "; ".join([pace, *keys])

    @property
    def viewers(self) -> int:
        """How many viewers are connected."""
        return self.server.viewers

    def rename(self, name: str) -> None:
        """Changes the title of viewers' windows."""
        self.server.rename(name)

    def show(self, time_step: TimeStep) -> None:
        """Shows viewers the picture of a time step.

        Raises:
            ValueError: The environment has no pictures.
        """
        if self._picture is None:
            self._picture = self._pictures(self._env)
        self.server.show(self._picture(time_step))

    def action(self) -> NestedArray:
        """Returns the action of what the person did since the last one.

        What one action cannot do in its order, the next ones do.
        """
        return self.actions.array(self._pending.pop_fitting(self.actions))

    def ended(self) -> str | None:
        """Returns why the viewers' server has ended; `None` as long as it serves."""
        return self.server.ended()

    def __call__(self, time_step: TimeStep) -> NestedArray:
        """Shows a time step, waits until the step is due, and returns the action.

        Raises:
            ClosedError: It was closed meanwhile.
        """
        self.show(time_step)
        if time_step.is_last():
            self._wait_for(lambda: False, self._end_pause)
            self.actions.begin()
            self._pending.pop()
            self._due = 0.0
        if self._may_rest():
            self._wait_for(lambda: not self._may_rest())
            self._due = 0.0
        if not self.hz:
            return self._next_press()
        left = self._due - time.monotonic()
        self._wait_for(lambda: False, left)
        # Steps that were missed are not made up for.
        self._due = max(self._due + 1.0 / self.hz, time.monotonic())
        return self.action()

    def close(self) -> None:
        """Ends the connections of viewers; the environment stays open."""
        self._closed = True
        self._wake.set()
        self.server.close()

    def _may_rest(self) -> bool:
        """Returns whether there is no viewer, and all have let go of what they held."""
        is_held = self._pending and (self.hz or self._is_desktop)
        return not self.server.viewers and not is_held

    def _handle(self, event: Event) -> None:
        self._pending.put(event)
        self._wake.set()

    def _next_press(self) -> NestedArray:
        """Waits for a key that has an action."""
        found: list[NestedArray] = []

        def has_action() -> bool:
            if self._is_desktop:
                has_left = not self.server.viewers
                is_due = self._pending.has_press() or (
                    self._can_release and self._pending.has_release()
                )
                if is_due or (has_left and self._pending):
                    found.append(self.action())
                return bool(found)
            while events := self._pending.pop_press():
                action = self.actions.pressed(events)
                if action is not None:
                    found.append(action)
                    return True
            return False

        self._wait_for(has_action)
        return found[0]

    def _wait_for(
        self, is_so: Callable[[], bool], seconds: float | None = None
    ) -> None:
        """Waits until a condition holds, or for so many seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._closed and not is_so():
            left = _POLL_INTERVAL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return
            # Short, because Ctrl-C and new viewers do not ring.
            self._wake.wait(min(left, _POLL_INTERVAL))
            self._wake.clear()
            reason = self.server.ended()
            if reason is not None:
                raise DesktopError(f"The server of viewers has ended: {reason}")
        if self._closed:
            raise ClosedError.used("Person", "__call__")

    def _pictures(self, env: Any) -> Callable[[TimeStep], Array]:
        """Returns a function from time steps to the pictures that viewers see."""
        if self._is_desktop:
            # The agent's own pixels, because the person points at them.
            return lambda time_step: _seen(env, time_step)
        look = picture_of(env)
        return lambda time_step: _enlarged(look(time_step))


def _has_idle_action(actions: Any) -> bool:
    """Returns whether an encoding has an action in which nothing is down."""
    try:
        copy.deepcopy(actions).array([])
    except ValueError:  # `Macros` without `None`
        return False
    return True


def _seen(env: Any, time_step: TimeStep) -> Array:
    """Returns the picture in the observation of a desktop, or that of its screen."""
    observation = time_step.observation
    if isinstance(observation, dict):
        observation = observation.get("pixels")
    return np.asarray(env.render() if observation is None else observation)


def _enlarged(picture: Array) -> Array:
    """Returns a picture that is large enough for people, enlarged by a whole number."""
    times = -(-_SMALLEST // max(picture.shape[:2]))
    if times <= 1:
        return picture
    return picture.repeat(times, axis=0).repeat(times, axis=1)
