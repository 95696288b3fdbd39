"""`Person`: a person who acts in a VNC viewer, as a policy for any environment."""

from __future__ import annotations

import collections
import copy
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.actions_and_rewards import nearest_to_zero
from envkit._shared.closing import Closable
from envkit._shared.secret_files import DRAW, Draw
from envkit.desktop.actions import fitting
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import Event, KeyEvent, PointerEvent, key_name
from envkit.desktop.server import DesktopServer
from envkit.errors import ClosedError
from envkit.play.key_map import KeyMap, key_map, pace_of
from envkit.play.pictures import picture_of
from envkit.play.pressed_keys import PressedKeys
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray

__all__ = ["KeyChanges", "KeyboardActions", "PendingEvents", "Person", "play_name"]

# Events that wait for a step; who sends more does not type them.
_MOST_EVENTS, _MOST_RELEASES = 4096, 1024
# Pictures that are smaller are enlarged, because viewers show pixels as they are.
_SMALLEST = 300
# The steps in a second of a desktop, which has no pace of its own.
_OF_DESKTOPS = 30.0
# Seconds between two looks whether the waiting is over.
_POLL_INTERVAL = 0.2


class KeyChanges:
    """Tells which keys of `envkit play` go down or up with the events of a viewer.

    The left button of the pointer is the space bar.
    """

    def __init__(self) -> None:
        """Begins with no button down."""
        self.buttons = 0

    def of(self, event: Event) -> tuple[str, bool] | None:
        """Returns a key, and whether it is down now; `None` if nothing has changed."""
        if isinstance(event, KeyEvent):
            return play_name(event.key), event.down
        changed, self.buttons = event.buttons ^ self.buttons, event.buttons
        return ("space", bool(event.buttons & 1)) if changed & 1 else None


def play_name(key: int) -> str:
    """Returns the name that `envkit play` has for a key."""
    name = key_name(key).lower().removeprefix("kp_")
    return _PLAY_NAMES.get(name, name)


_PLAY_NAMES = {"return": "enter", "escape": "esc", "minus": "-", "plus": "+"}


class KeyboardActions:
    """The actions of any environment, by the keys that `envkit play` has for them.

    Attributes:
        keys: The keys.

    Example:
        >>> from envkit import make
        >>> from envkit.desktop import keysym
        >>> actions = KeyboardActions(make("Catch"))
        >>> actions.array([KeyEvent(keysym("Right"), True)]), actions.array([])
        (array(2), array(2))
        >>> actions.array([KeyEvent(keysym("Right"), False)]), actions.array([])
        (array(2), array(1))
    """

    def __init__(self, env: Any) -> None:
        """Takes an environment.

        Raises:
            ValueError: Its actions cannot be said with keys.
        """
        self.keys: KeyMap = key_map(env)
        self._down, self._changes = PressedKeys(), KeyChanges()
        self._last = nearest_to_zero(env.action_spec())

    def begin(self) -> list[Event]:
        """Forgets the keys that are down."""
        self._down.clear()
        self._changes.buttons = 0
        return []

    def pressed(self, events: Iterable[Event]) -> NestedArray:
        """Returns the action of keys that are down; `None` if they have none."""
        for event in events:
            change = self._changes.of(event)
            if change is not None:
                name, is_down = change
                (self._down.press if is_down else self._down.release)(name)
        keys = self._down.tick()
        return self.keys.action(keys) if keys else None

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events one action can do.

        A key waits for the next action where the ones pressed before it would not count
        beside it, or have been let go of.
        """
        down, changes = set(self._down.down), copy.copy(self._changes)
        pressed: list[str] = []
        is_over = False
        for count, event in enumerate(events):
            name, is_down = changes.of(event) or ("", False)
            if not is_down:
                is_over |= name in pressed
                down.discard(name)
            elif name not in down and self.keys.knows(name):
                if pressed and (is_over or not self._adds(pressed, name)):
                    return count
                pressed.append(name)
                down.add(name)
        return len(events)

    def _adds(self, pressed: list[str], name: str) -> bool:
        """True if a key and each of those before it count when all of them are down."""
        # Asking another kind of map may not be without effect.
        if not isinstance(self.keys, KeyMap):
            return False
        together = [*pressed, name]
        action = self.keys.action(together)
        without = ([key for key in together if key != one] for one in together)
        return action is not None and not any(
            _is_same(action, self.keys.action(others)) for others in without
        )

    def array(self, events: Iterable[Event]) -> NestedArray:
        """Returns the action of a tick in which there were these events.

        Where no key is down that has an action, it is that for no key, or else the last
        one goes on.
        """
        action = self.pressed(events)
        if action is None:
            action = self.keys.idle_action()
        if action is not None:
            self._last = action
        return self._last


def _is_same(action: NestedArray, other: NestedArray) -> bool:
    if other is None:
        return False
    leaves = zip(nest.flatten(action), nest.flatten(other), strict=True)
    return all(np.array_equal(leaf, its) for leaf, its in leaves)


class PendingEvents:
    """The events that wait for a step; any thread may put and pop.

    Moves of the pointer that another one follows are left out.
    """

    def __init__(self) -> None:
        """Begins without events."""
        self._events: collections.deque[Event] = collections.deque()
        self._lock = threading.Lock()
        # The buttons that are down, and whether the last event was a mere move.
        self._buttons, self._has_moved = 0, False

    def put(self, event: Event) -> None:
        """Puts an event last.

        Raises:
            DesktopError: There are more than people can make.
        """
        with self._lock:
            events = self._events
            moves = isinstance(event, PointerEvent) and event.buttons == self._buttons
            if moves and self._has_moved and events:
                events[-1] = event
                return
            # Releases have room of their own, so that no key stays down.
            room = _MOST_EVENTS + (not _is_press(event)) * _MOST_RELEASES
            if len(events) >= room:
                raise DesktopError(
                    f"A viewer must send at most {_MOST_EVENTS} events in a step, got "
                    "more."
                )
            events.append(event)
            self._has_moved = moves
            if isinstance(event, PointerEvent):
                self._buttons = event.buttons

    def pop(self, most: int | None = None) -> list[Event]:
        """Returns the oldest events, the oldest first; all unless told how many."""
        with self._lock:
            count = len(self._events) if most is None else min(most, len(self._events))
            return [self._events.popleft() for _ in range(count)]

    def pop_fitting(self, actions: Any) -> list[Event]:
        """Returns as many as one action of an encoding can do in their order."""
        with self._lock:
            events = list(self._events)
        return self.pop(fitting(actions, events)) if events else []

    def has_press(self) -> bool:
        """Returns whether there is a press of a key or a button."""
        with self._lock:
            return any(map(_is_press, self._events))

    def pop_press(self) -> list[Event]:
        """Returns the events up to the first press; none if there is no press."""
        with self._lock:
            for place, event in enumerate(self._events):
                if _is_press(event):
                    return [self._events.popleft() for _ in range(place + 1)]
        return []


def _is_press(event: Event) -> bool:
    return event.down if isinstance(event, KeyEvent) else bool(event.buttons)


class Person(Closable):
    """Lets a person act in a VNC viewer: a policy, for any environment with pictures.

    It listens for viewers, shows them the environment, and turns the keys and the
    pointer of the one that controls into actions: those of a `Desktop` come nearest to
    what the person did, and others have the keys of `envkit play`. It waits for a
    viewer while it has none.

    | `hz`   | a step is due                                                          |
    |--------|------------------------------------------------------------------------|
    | above 0| so many times a second, whether a key is down or not                   |
    | 0      | when a key goes down that has an action                                |

    Attributes:
        address: The host and port for viewers.
        password: What the person must know; `None` for nothing.
        hz: The steps in a second; 0 if each waits for a key.
        actions: The encoding of actions.

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
        port: int = 0,
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
            port: The port; 0 for any that is free.
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
        found = getattr(env, "actions", None) if actions is None else actions
        self._is_desktop = hasattr(found, "array") and hasattr(found, "begin")
        if self._is_desktop:
            # A copy, because that of the environment knows what the environment holds.
            self.actions: Any = copy.deepcopy(found)
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
        self._server = DesktopServer(
            None if await_picture else (640, 480),
            host=host,
            port=port,
            name=name,
            password=password,
            observer_password=observer_password,
            on_event=self._handle,
            max_viewers=max_viewers,
        )
        self.address = self._server.address
        self.password = self._server.passwords[0]

    @property
    def viewers(self) -> int:
        """How many viewers are connected."""
        return self._server.viewers

    def rename(self, name: str) -> None:
        """Changes the title of viewers' windows."""
        self._server.rename(name)

    def show(self, time_step: TimeStep) -> None:
        """Shows viewers the picture of a time step.

        Raises:
            ValueError: The environment has no pictures.
        """
        if self._picture is None:
            self._picture = self._pictures(self._env)
        self._server.show(self._picture(time_step))

    def action(self) -> NestedArray:
        """Returns the action of what the person did since the last one.

        What one action cannot do in its order, the next ones do.
        """
        return self.actions.array(self._pending.pop_fitting(self.actions))

    def ended(self) -> str | None:
        """Returns why the viewers' server has ended; `None` as long as it serves."""
        return self._server.ended()

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
        if not self._server.viewers:
            self._wait_for(lambda: bool(self._server.viewers))
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
        self._server.close()

    def _handle(self, event: Event) -> None:
        self._pending.put(event)
        self._wake.set()

    def _next_press(self) -> NestedArray:
        """Waits for a key that has an action."""
        found: list[NestedArray] = []

        def has_action() -> bool:
            if self._is_desktop:
                if self._pending.has_press():
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
            reason = self._server.ended()
            if reason is not None:
                raise DesktopError(f"The server of viewers has ended: {reason}")
        if self._closed:
            raise ClosedError.used("Person", "__call__")

    def _pictures(self, env: Any) -> Callable[[TimeStep], Array]:
        """Returns a function from time steps to the pictures that viewers see."""
        if self._is_desktop:
            # What an agent sees, pixel by pixel, because it is pointed at.
            return lambda time_step: _seen(env, time_step)
        look = picture_of(env)
        return lambda time_step: _enlarged(look(time_step))


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
