"""`Desktop`: any program on a screen as an environment."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit._shared.arguments import checked_seconds
from envkit.desktop.actions import Actions, Controls, Size, checked_screen
from envkit.desktop.display import Display
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import KEYBOARD, KeyEvent, chord, keysym
from envkit.desktop.play_keys import ProgramKeys
from envkit.desktop.rewards import Reported, RewardChannel
from envkit.desktop.screen_thread import Probe, checked_probe
from envkit.errors import ClosedError
from envkit.extend import checked_size, describe
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import TextSpec
from envkit.time_step import TimeStep, restart, termination, transition, truncation
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["Command", "Desktop", "load"]

_LOGGER = logging.getLogger(__name__)
# How often a program is started for one episode before that is given up.
_ATTEMPTS = 3
# Seconds between two looks while an episode begins.
_POLL_INTERVAL = 0.02
# Seconds without a change after which a window counts as drawn, and within which one
# does that keeps changing.
_QUIET, _LONGEST_DRAWING = 0.1, 1.0


class Command(NamedTuple):
    """Runs a command that resets a machine, for `Desktop(reset=...)`.

    For example, it reverts a virtual machine to a snapshot. `Desktop` waits for the
    command to end and then reconnects, trying again until `start_timeout`.

    Attributes:
        arguments: The program and its arguments.
        timeout: Seconds that it may take.

    Example:
        >>> Command(["virsh", "snapshot-revert", "box", "clean"]).timeout
        120.0
    """

    arguments: Sequence[str]
    timeout: float = 120.0

    def run(self) -> None:
        """Runs the command, and waits for it.

        Raises:
            DesktopError: There is none, it fails, or it takes too long.
        """
        shown = " ".join(self.arguments)
        # A pipe would end with a machine that the command has started, not with it.
        with tempfile.TemporaryFile() as printed:
            try:
                done = subprocess.run(
                    list(self.arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    timeout=self.timeout,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise DesktopError(
                    f"The command {shown!r} cannot reset: {error}"
                ) from error
            if done.returncode:
                printed.seek(max(0, printed.seek(0, os.SEEK_END) - 500))
                words = printed.read().decode("utf-8", "replace").strip()
                raise DesktopError(
                    f"The command {shown!r} must end with status 0, got "
                    f"{done.returncode}: {words}"
                )


def load(address: str, **options: Any) -> Desktop:
    """Connects with a VNC server: the loader of the scheme `vnc`.

    Without keys, pointer, buttons and actions, those of people are there: a keyboard,
    a pointer and three buttons. Unless `reset` says so, nothing is reset. A password
    may be in a file, `"vnc://box:5900?password_file=secret"`, because recordings keep
    the address.
    """
    path = address if address.startswith("//") else f"//{address}"
    if not options.keys() & {"keys", "pointer", "buttons", "actions"}:
        options = {"keys": KEYBOARD, "pointer": True, "buttons": 3, **options}
    return Desktop(display=f"vnc:{path}", **{"reset": None, **options})


class Desktop(PyEnvironment):
    """Makes an environment of a program on a screen, by its keys and its pointer.

    The program goes on whether the agent acts or not: `step` sends the events of the
    action, and returns the newest picture. Around it, `RealTimeEnvironment` keeps a
    rhythm, and tells how old a picture is and how late an action was.

    A program that ends, or does nothing for `patience` seconds, ends its episode with a
    `LAST` that is a truncation, and is started again by the next reset. If an episode
    does not begin within `start_timeout`, or the program ends first, `reset` tries
    three times in all, then raises a `DesktopError` with the program's last words.

    A small process, the supervisor, is the parent of the display and of the program.
    When this process ends, by whatever signal, it ends both and removes their files.

    | `display`             | is                                                       |
    |-----------------------|----------------------------------------------------------|
    | `"local"`             | an X server of its own: Xvnc                             |
    | `"vnc://host:5900"`   | a VNC server: a virtual machine, a container, an emulator|

    | `reset`               | begins an episode                                        |
    |-----------------------|----------------------------------------------------------|
    | `"restart"`           | by starting the program again                            |
    | a list of chords      | by pressing them one after the other: `["ctrl-r"]`       |
    | a function            | by calling it with this environment                      |
    | a `Command`           | by running it, and connecting again                      |
    | `None`                | where the last one has ended                             |

    | `reward`              | is                                                       |
    |-----------------------|----------------------------------------------------------|
    | a function            | what it returns for the picture and the one before       |
    | a `RewardChannel`     | the sum of what the program reports, which also says     |
    |                       | when the episode has ended                               |

    Example:
        >>> import numpy as np
        >>> from envkit.desktop import DesktopServer
        >>> with DesktopServer((4, 3)) as server:
        ...     server.show(np.full((3, 4, 3), 7, np.uint8))
        ...     address = "vnc://{}:{}".format(*server.address)
        ...     env = Desktop(display=address, keys=["Left"], reset=None)
        ...     time_step = env.reset()
        ...     time_step = env.step({"keys": np.array([True])})
        ...     env.close()
        >>> time_step.observation.shape, float(time_step.reward)
        ((3, 4, 3), 0.0)
    """

    def __init__(
        self,
        program: Sequence[str] | None = None,
        *,
        display: str = "local",
        size: Size | None = None,
        keys: Sequence[str | int] = (),
        pointer: bool = False,
        buttons: int = 0,
        actions: Actions | None = None,
        reward: Callable[[Array, Array], float] | RewardChannel | None = None,
        done: Callable[[Array], bool] | None = None,
        reset: Any = "restart",
        ready: Callable[[Array], bool] | float | str | None = None,
        pixels: bool = True,
        text: int = 0,
        read_text: Callable[[Array], str] | None = None,
        pause: float = 0.0,
        patience: float | None = None,
        probe: Probe | None = None,
        start_timeout: float = 60.0,
        password: str | None = None,
        environ: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> None:
        """Starts the display, or connects to it; the program starts with a reset.

        Args:
            program: The command of the program: a list of its name and arguments.
            display: Where the screen is.
            size: Its width and height; by default 640 and 480, or those of the server.
            keys: The keys of `Controls`, if there are no `actions`.
            pointer: Whether these have a pointer.
            buttons: How many buttons it has.
            actions: The encoding of actions.
            reward: A function of the picture and the one before, or a `RewardChannel`.
            done: A function of the picture: whether the episode has ended.
            reset: How an episode begins.
            ready: When it has begun: a function of the picture that returns true, a
                number of seconds, or "reported" for a program that says so to the
                `RewardChannel`. By default, a program that was started has begun when
                it has drawn something and the picture then stays the same for a tenth
                of a second, or has kept changing for a second. The same holds after
                keys, which get a second to change the picture. After a function, a
                `Command` or `None`, `reset` does not wait.
            pixels: Whether observations have the picture.
            text: The most characters of text in an observation; 0 for none. Then an
                observation is a dictionary with `"pixels"` and `"text"`.
            read_text: A function of the picture that returns the text; by default it is
                the text that the program has reported since the last step.
            pause: Seconds from an action to its picture. In real time the clock waits.
            patience: After how many seconds without a change of the picture or a report
                the program counts as hung; `None` for never.
            probe: What the program draws back of a key, so that the time from a key to
                its pixels is measured; by default any change that follows an event.
            start_timeout: Seconds within which the display must be there, and an
                episode must begin.
            password: The password of the VNC server; it may be in the address.
            environ: Environment variables of the program.
            folder: The folder that it runs in.
        """
        super().__init__(handle_auto_reset=True)
        self._closed = False
        self._program = _checked_program(program)
        self._reset_by = _checked_reset(reset, self._program)
        functions = {"reward": reward, "done": done, "read_text": read_text}
        for name, function in functions.items():
            _check_function(name, function)
        self._reward = None if isinstance(reward, RewardChannel) else reward
        self._channel = reward if isinstance(reward, RewardChannel) else None
        self._done = done
        self._ready = _checked_ready(ready, self._channel)
        self._read_text = read_text
        self._most_text = checked_size("text", text, least=0)
        self._has_pixels = bool(pixels)
        if not self._has_pixels and not self._most_text:
            raise ValueError("An observation must have pixels or text; both are off.")
        self._pause = checked_seconds("pause", pause, hint=", 0 for none")
        self._patience = None
        if patience is not None:
            self._patience = checked_seconds(
                "patience", patience, hint=", None for never"
            )
        start_timeout = checked_seconds("start_timeout", start_timeout)
        self._start_timeout = start_timeout
        if actions is not None and not callable(getattr(actions, "events", None)):
            raise TypeError(
                "actions must be an encoding such as Controls, Events or Macros, got "
                f"{describe(actions)}."
            )
        self._environ = _checked_environ(environ)
        self._folder = None if folder is None else os.fspath(folder)
        size = None if size is None else checked_screen(size)
        self._episode = 0
        self._display = Display(display, size, password, start_timeout)
        self._finalizer = weakref.finalize(
            self, _close_and_warn, self._display, self._channel
        )
        try:
            self._size: Size = size or self._display.screen.size
            self._actions: Actions = actions or Controls(
                keys, size=self._size, pointer=pointer, buttons=buttons
            )
            self._probe = checked_probe(probe, self._size)
            self._display.set_probe(self._probe)
            if self._channel is not None:
                self._channel.open(self._display.folder)
        except BaseException:
            self.close()
            raise
        # How many pictures have come with the last step.
        self._updates: int = 0
        self._updates_seen: int = 0
        # When the probe's key is to be pressed again.
        self._probe_due: float = 0.0
        self._frame = self._picture()
        self._begin_counting()

    def action_spec(self) -> NestedSpec:
        """Returns the specs of the encoding of actions."""
        return self._actions.spec()

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of the picture, or those of picture and text."""
        width, height = self._size
        pixels = BoundedArraySpec((height, width, 3), np.uint8, 0, 255, "pixels")
        if not self._most_text:
            return pixels
        text = TextSpec((), f"<U{self._most_text}", "text")
        return {"pixels": pixels, "text": text} if self._has_pixels else {"text": text}

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of the timing of the picture."""
        seconds, count = np.float64, np.int64
        return {
            "desktop": {
                "episode": ArraySpec((), count, "episode"),
                "frame_age": ArraySpec((), seconds, "frame_age"),
                "key_to_pixel": ArraySpec((), seconds, "key_to_pixel"),
                "missed_frames": ArraySpec((), count, "missed_frames"),
            },
            "vnc": {"updates.n": ArraySpec((), count, "updates.n")},
        }

    def get_info(self) -> dict[str, Any]:
        """Returns the timing of the picture.

        `frame_age` has the seconds since it last changed, `key_to_pixel` those from an
        event to its change, as measured last, and `missed_frames` the number of
        pictures that came with the last step and were not looked at, because the next
        one was there.
        """
        changed = self._display.screen.received_at
        age = 0.0 if changed is None else max(self._seen_at - changed, 0.0)
        return {
            "desktop": {
                "episode": np.int64(self._episode),
                "frame_age": np.float64(age),
                "key_to_pixel": np.float64(self._key_to_pixel),
                "missed_frames": np.int64(max(self._updates - 1, 0)),
            },
            "vnc": {"updates.n": np.int64(self._updates)},
        }

    @property
    def actions(self) -> Actions:
        """The encoding of actions."""
        return self._actions

    def key_map(self) -> ProgramKeys | None:
        """Returns the keys for `envkit play`, if actions have the program's keys."""
        keys = getattr(self._actions, "keys", None)
        if not keys:
            return None
        points = {"pointer", "buttons"} & set(self._actions.spec())
        return ProgramKeys(self._actions, keys, self._size if points else None)

    @property
    def display(self) -> str:
        """The display as X has it, such as ":7", or the address of the VNC server."""
        return self._display.name

    @property
    def display_environ(self) -> dict[str, str]:
        """The environment variables that programs need to use the display.

        They are `DISPLAY` and `XAUTHORITY`, the file with the cookie that the X server
        asks for; none if the display is a VNC server.
        """
        return self._display.access()

    @property
    def screen(self) -> Any:
        """The screen: `frame`, `size`, `update()` and `send(*events)`."""
        return self._display.screen

    @property
    def episode(self) -> int:
        """The id of the episode; 0 before the first."""
        return self._episode

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns the picture of the screen."""
        if mode != "rgb_array":
            raise NotImplementedError(
                f"Desktop renders in mode 'rgb_array', not {mode!r}."
            )
        self._check_open("render")
        self._display.update()
        return self._picture()

    def press(self, *chords: str) -> None:
        """Presses chords such as "ctrl-t", one after the other.

        It is for functions that begin an episode; agents have actions.
        """
        self._check_open("press")
        for text in chords:
            keys = chord(text)
            self._display.send([KeyEvent(key, True) for key in keys])
            self._display.send([KeyEvent(key, False) for key in reversed(keys)])

    def wait_until(self, is_so: Callable[[Array], bool], timeout: float = 60.0) -> bool:
        """Waits until a function of the picture returns true; false if it does not."""
        self._check_open("wait_until")
        deadline = time.monotonic() + timeout
        while not is_so(self._picture()):
            left = deadline - time.monotonic()
            if left <= 0 or self._display.trouble() is not None:
                return False
            self._display.update(min(left, _POLL_INTERVAL))
        return True

    def close(self) -> None:
        """Ends the program and the display, and frees all that they hold."""
        self._closed = True
        if self._finalizer.detach() is not None:
            try:
                if self._episode:
                    # Because not every server lets go of keys when a viewer leaves.
                    self._display.send(self._actions.begin())
            finally:
                _close(self._display, self._channel)

    # Episodes.

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        self._episode += 1
        trouble = None
        for _ in range(_ATTEMPTS):
            self._display.restart()
            trouble = self._begin()
            if trouble is None:
                break
            _LOGGER.warning("an episode did not begin: %s", trouble)
        else:
            raise DesktopError(
                f"An episode must begin within {self._start_timeout:g} s; in "
                f"{_ATTEMPTS} attempts it did not: {trouble}."
            )
        self._frame = self._picture()
        self._begin_counting()
        # Rewards wait for the first step.
        texts = [] if self._channel is None else self._channel.pop_texts()
        return restart(self._observation(texts))

    def _begin(self) -> str | None:
        """Begins the episode, or returns the reason why it has not begun."""
        display = self._display
        if self._channel is not None:
            self._channel.begin(self._episode)
        display.send(self._actions.begin())
        if isinstance(self._reset_by, Command):
            self._reset_by.run()
            display.restart(again=True)
        display.update()
        before = display.screen.frame.copy()
        starts = self._program is not None and (
            self._reset_by == "restart"
            or not display.has_program
            or display.trouble() is not None
        )
        if starts:
            display.stop()
            display.update()
            before = display.screen.frame.copy()
            environ = {} if self._channel is None else self._channel.variables()
            display.start(
                self._program or (), {**self._environ, **environ}, self._folder
            )
        elif isinstance(self._reset_by, list):
            self.press(*self._reset_by)
            return self._await_beginning(before, must_draw=False)
        elif callable(self._reset_by):
            self._reset_by(self)
        return self._await_beginning(before if starts else None)

    def _await_beginning(
        self, before: Array | None, *, must_draw: bool = True
    ) -> str | None:
        """Waits until the episode has begun, or returns the reason why it has not."""
        display, ready = self._display, self._ready
        began = time.monotonic()
        changed_at: float | None = None
        while (now := time.monotonic()) - began < self._start_timeout:
            trouble = display.trouble()
            if trouble is not None:
                return trouble
            if ready is None:
                if before is None:
                    return None
                if not np.array_equal(display.screen.frame, before):
                    # Programs draw their windows in parts.
                    changed_at = changed_at or now
                    is_quiet = now - (display.screen.received_at or now) >= _QUIET
                    if is_quiet or now - changed_at >= _LONGEST_DRAWING:
                        return None
                elif not must_draw and now - began >= _LONGEST_DRAWING:
                    return None  # It looks as it did at the end of the last one.
            elif ready == "reported":
                if self._channel is not None and self._channel.is_ready():
                    return None
            elif callable(ready):
                if ready(self._picture()):
                    return None
            elif now - began >= float(ready):
                return None
            display.update(_POLL_INTERVAL)
        return "it was not ready in time. ready= says when it is"

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._closed:
            self._check_open("step")
        display = self._display
        events = self._actions.events(action)
        if events and (self._probe is None or self._probe.key is None):
            display.screen.expect()
        display.send(events)
        if self._probe is not None:
            self._press_probe(self._probe)
        if self._pause:
            deadline = time.monotonic() + self._pause
            while (left := deadline - time.monotonic()) > 0 and display.update(left):
                pass
        display.update()
        screen = display.screen
        self._seen_at = time.monotonic()
        self._updates = screen.updates - self._updates_seen
        self._updates_seen = screen.updates
        self._key_to_pixel = screen.key_to_pixel
        previous, self._frame = self._frame, self._picture()
        reported = Reported() if self._channel is None else self._channel.take()
        if self._updates or reported.count:
            self._moved_at = self._seen_at
        return self._judged(previous, reported)

    def _press_probe(self, probe: Probe) -> None:
        """Presses the key of the probe, if that is due."""
        now = time.monotonic()
        if probe.key is not None and now >= self._probe_due:
            self._probe_due = now + probe.every
            self._display.screen.expect()
            key = keysym(probe.key)
            self._display.send([KeyEvent(key, True), KeyEvent(key, False)])

    def _judged(self, previous: Array, reported: Reported) -> TimeStep:
        """Returns the time step of a picture: its reward, and whether it is the end."""
        reward = reported.reward
        if self._reward is not None:
            reward += float(self._reward(self._frame, previous))
        observation = self._observation(reported.texts)
        is_done = self._done is not None and bool(self._done(self._frame))
        if is_done or reported.terminated:
            return termination(observation, reward)
        if reported.truncated:
            return truncation(observation, reward)
        trouble = self._display.trouble() or self._hang()
        if trouble is not None:
            _LOGGER.warning("episode %d was cut off: %s", self._episode, trouble)
            return truncation(observation, reward)
        return transition(observation, reward)

    def _hang(self) -> str | None:
        """Returns that the program hangs, if it does, and ends it then."""
        if self._patience is None:
            return None
        idle = self._seen_at - self._moved_at
        if idle < self._patience:
            return None
        self._display.stop()
        return f"nothing has changed for {idle:.1f} s"

    def _begin_counting(self) -> None:
        now = time.monotonic()
        # When the picture was looked at, and when something has changed.
        self._seen_at = self._moved_at = now
        self._display.screen.forget()
        self._key_to_pixel = 0.0
        self._probe_due = now
        self._updates, self._updates_seen = 0, self._display.screen.updates

    def _observation(self, texts: list[str]) -> NestedArray:
        # A returned picture is the caller's, and a function of two pictures needs both.
        frame = self._frame if self._reward is None else self._frame.copy()
        if not self._most_text:
            return frame
        if self._read_text is not None:
            text = self._read_text(self._frame)
        else:
            text = "\n".join(texts)
        # Too long a text loses its beginning; the end is the newest.
        found = np.array(text[-self._most_text :], f"<U{self._most_text}")
        if self._has_pixels:
            return {"pixels": frame, "text": found}
        return {"text": found}

    def _picture(self) -> Array:
        """Returns a copy of the picture, in the size of the spec."""
        frame, (width, height) = self._display.screen.frame, self._size
        if frame.shape[:2] == (height, width):
            return frame.copy()
        # The server has changed its size.
        picture = np.zeros((height, width, 3), np.uint8)
        part = frame[:height, :width]
        picture[: part.shape[0], : part.shape[1]] = part
        return picture

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used("Desktop", call)


def _close(display: Display, channel: RewardChannel | None) -> None:
    try:
        if channel is not None:
            channel.close()
    finally:
        display.close()


def _close_and_warn(display: Display, channel: RewardChannel | None) -> None:
    """Closes a desktop that was not closed, and warns of it."""
    _close(display, channel)
    warnings.warn(
        "A Desktop was not closed. Use it in a with statement, or call close().",
        ResourceWarning,
        stacklevel=2,
    )


def _checked_program(program: Any) -> list[str] | None:
    if program is None:
        return None
    is_list = isinstance(program, Sequence) and not isinstance(program, str | bytes)
    if not is_list or not program or not all(isinstance(x, str) for x in program):
        raise TypeError(
            "program must be a list of a command and its arguments, such as ['xterm', "
            f"'-e', 'nethack'], got {describe(program)}."
        )
    return list(program)


def _check_function(name: str, function: Any) -> None:
    if function is None or callable(function):
        return
    if name == "reward" and isinstance(function, RewardChannel):
        return
    allowed = ", a RewardChannel or None" if name == "reward" else " or None"
    raise TypeError(
        f"{name} must be a function of the picture{allowed}, got {describe(function)}."
    )


def _checked_environ(environ: Any) -> dict[str, str]:
    given = dict(environ or {})
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(
                "environ must have texts by name, such as {'LANG': 'C.UTF-8'}, got "
                f"{describe(value)} for {name!r}."
            )
    return given


def _checked_reset(reset: Any, program: list[str] | None) -> Any:
    if reset == "restart" and program is None:
        return None
    if reset is None or reset == "restart":
        return reset
    if isinstance(reset, Command):
        arguments = reset.arguments
        if isinstance(arguments, str) or not arguments:
            raise TypeError(
                "reset=Command(...) must have a list of a command and its arguments, "
                f"got {describe(arguments)}."
            )
        return reset
    if callable(reset):
        return reset
    if isinstance(reset, list | tuple) and all(isinstance(x, str) for x in reset):
        for text in reset:
            chord(text)
        return list(reset)
    raise TypeError(
        "reset must be 'restart', a list of chords such as ['ctrl-r'], a function of "
        f"the environment, a Command, or None, got {describe(reset)}."
    )


def _checked_ready(ready: Any, channel: RewardChannel | None) -> Any:
    if ready is None or callable(ready):
        return ready
    if ready == "reported":
        if channel is None:
            raise ValueError("ready='reported' needs reward=RewardChannel().")
        return ready
    if isinstance(ready, int | float) and not isinstance(ready, bool) and ready >= 0:
        return ready
    raise TypeError(
        "ready must be a function of the picture, a number of seconds, 'reported' or "
        f"None, got {describe(ready)}."
    )
