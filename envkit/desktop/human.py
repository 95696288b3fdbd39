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

# Smaller pictures are enlarged, because viewers show them at their own size.
_SMALLEST = 300
# Steps per second of a desktop, which has no pace of its own.
_OF_DESKTOPS = 30.0
# Longest sleep before checking whether a wait is over, in seconds.
_POLL_INTERVAL = 0.2


class Person(Closable):
    """Lets a person act in a VNC viewer: a policy for any environment with pictures.

    It shows viewers the environment, and turns the keys and the pointer of the viewer
    that controls into actions. A `Desktop` gets the action closest to what the person
    did; other environments have the keys of `envkit play`. While there is no viewer, it
    waits for one. Small pictures are enlarged by whole factors.

    | `hz`   | a step is due                                                          |
    |--------|------------------------------------------------------------------------|
    | above 0| `hz` times a second, whether or not a key is down                      |
    | 0      | when a key with an action goes down; on a `Desktop` also when a key or |
    |        | a button goes up                                                       |

    Attributes:
        address: The host and port for viewers.
        password: The password for viewers; `None` if they need none.
        hz: The steps per second; 0 if each step waits for a key.
        actions: The action encoding.
        server: The server for viewers.

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
        """Listens for viewers; the first picture is that of the first time step.

        Args:
            env: A single environment.
            host: The address to listen on.
            port: The port; 0 picks a free one. Or a socket that already listens.
            password: The password for viewers, by default a random one; `None` for no
                password.
            observer_password: A password with which viewers can only watch.
            name: The title of viewers' windows.
            actions: The action encoding, such as `Controls`; by default a `Desktop`'s,
                or the keys of `envkit play`.
            hz: The steps per second; with 0 each step waits for a key. The default is
                30 for a `Desktop`. For other environments it is their own pace, or 0 if
                they have none, or no action for "no key".
            end_pause: Seconds for which the end of an episode is shown.
            max_viewers: The largest number of viewers at a time.
            await_picture: Whether viewers that connect before the first picture wait
                for it. Otherwise they first see a black one of 640 x 480, and viewers
                that cannot change the size keep it.

        Raises:
            ValueError: The environment is a batch, or keys cannot express its actions.
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
        # Some environments cannot render before their first episode.
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
        """The pace and the keys, as text for people."""
        pace = f"{self.hz:g} steps a second" if self.hz else "each step waits for a key"
        table: Any = getattr(self.actions, "keys", None)
        if not hasattr(table, "table"):
            return pace
        keys = [f"{key}: {label}" for key, label in table.table()]
        return "; ".join([pace, *keys])

    @property
    def viewers(self) -> int:
        """The number of connected viewers."""
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
        """Returns the action for what the person did since the last one.

        Events that do not fit into one action, in order, wait for the next ones.
        """
        return self.actions.array(self._pending.pop_fitting(self.actions))

    def ended(self) -> str | None:
        """Returns why the viewers' server has ended; `None` while it runs."""
        return self.server.ended()

    def __call__(self, time_step: TimeStep) -> NestedArray:
        """Shows a time step, waits until the next step is due, and returns its action.

        Raises:
            ClosedError: The person was closed meanwhile.
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
        # After a slow step, time continues from now and does not catch up.
        self._due = max(self._due + 1.0 / self.hz, time.monotonic())
        return self.action()

    def close(self) -> None:
        """Disconnects the viewers; the environment stays open."""
        self._closed = True
        self._wake.set()
        self.server.close()

    def _may_rest(self) -> bool:
        """Returns True if nobody is connected and no key has to be released."""
        is_held = self._pending and (self.hz or self._is_desktop)
        return not self.server.viewers and not is_held

    def _handle(self, event: Event) -> None:
        self._pending.put(event)
        self._wake.set()

    def _next_press(self) -> NestedArray:
        """Waits for a key with an action."""
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
        """Waits until a condition holds, for at most some seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._closed and not is_so():
            left = _POLL_INTERVAL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return
            # Short, because Ctrl-C and new viewers do not set the event.
            self._wake.wait(min(left, _POLL_INTERVAL))
            self._wake.clear()
            reason = self.server.ended()
            if reason is not None:
                raise DesktopError(f"The server of viewers has ended: {reason}")
        if self._closed:
            raise ClosedError.used("Person", "__call__")

    def _pictures(self, env: Any) -> Callable[[TimeStep], Array]:
        """Returns a function from time steps to the pictures for viewers."""
        if self._is_desktop:
            # The agent's own pixels: the person points at them.
            return lambda time_step: _seen(env, time_step)
        look = picture_of(env)
        return lambda time_step: _enlarged(look(time_step))


def _has_idle_action(actions: Any) -> bool:
    """Returns True if an encoding has an action that holds nothing down."""
    try:
        copy.deepcopy(actions).array([])
    except ValueError:  # `Macros` without `None`
        return False
    return True


def _seen(env: Any, time_step: TimeStep) -> Array:
    """Returns the picture of a desktop's observation, or else of its screen."""
    observation = time_step.observation
    if isinstance(observation, dict):
        observation = observation.get("pixels")
    return np.asarray(env.render() if observation is None else observation)


def _enlarged(picture: Array) -> Array:
    """Enlarges a picture by a whole factor until it is large enough for people."""
    times = -(-_SMALLEST // max(picture.shape[:2]))
    if times <= 1:
        return picture
    return picture.repeat(times, axis=0).repeat(times, axis=1)
