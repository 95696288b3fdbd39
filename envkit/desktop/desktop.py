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
from envkit._shared.own_losses import OwnLosses
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
# Attempts to begin an episode before giving up.
_ATTEMPTS = 3
# Seconds between checks while an episode begins.
_POLL_INTERVAL = 0.02
# A window counts as drawn after this many seconds without a change, and after this many
# seconds if it keeps changing.
_QUIET, _LONGEST_DRAWING = 0.1, 1.0


class Command(NamedTuple):
    """Runs a command that resets a machine, for `Desktop(reset=...)`.

    For example, it reverts a virtual machine to a snapshot. `Desktop` waits for the
    command to end and then reconnects, trying again until `start_timeout`.

    Attributes:
        arguments: The program and its arguments.
        timeout: Seconds that the command may take.

    Example:
        >>> Command(["virsh", "snapshot-revert", "box", "clean"]).timeout
        120.0
    """

    arguments: Sequence[str]
    timeout: float = 120.0

    def run(self) -> None:
        """Runs the command, and waits for it.

        Raises:
            DesktopError: The command does not exist, fails, or takes too long.
        """
        shown = " ".join(self.arguments)
        # A machine that the command has started would keep a pipe open.
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
    """Connects to a VNC server: the loader of the scheme `vnc`.

    Without keys, pointer, buttons or actions, the environment has a keyboard, a pointer
    and three buttons. An episode resets nothing unless you pass `reset`. Recordings
    keep the address, so the password may be in a file:
    `"vnc://box:5900?password_file=secret"`.
    """
    path = address if address.startswith("//") else f"//{address}"
    if not options.keys() & {"keys", "pointer", "buttons", "actions"}:
        options = {"keys": KEYBOARD, "pointer": True, "buttons": 3, **options}
    return Desktop(display=f"vnc:{path}", **{"reset": None, **options})


class Desktop(OwnLosses, PyEnvironment):
    """Turns a program on a screen into an environment, through its keys and pointer.

    The program runs whether or not the agent acts: `step` sends the events of the
    action, and returns the newest picture. Wrapped in a `RealTimeEnvironment` it keeps
    a steady pace, and reports how old a picture is and how late an action was.

    If the program ends, or nothing changes for `patience` seconds, the episode is
    truncated, and the next reset starts the program again. If an episode does not begin
    within `start_timeout`, or the program ends first, `reset` tries three times in all,
    then raises a `DesktopError` with the last lines that the program printed.

    Such a truncation is an end that no program has reported. Unless the program has
    exited with status 0, its reward is 0, `repaired` marks it, and `losses()` has the
    kind: "crashed", "timed_out" after `patience`, or "link_lost".

    A small process, the supervisor, is the parent of the display and of the program.
    When this process ends, by whatever signal, it ends both and removes their files.

    | `display`             | screen                                                   |
    |-----------------------|----------------------------------------------------------|
    | `"local"`             | a new X server: Xvnc                                     |
    | `"vnc://host:5900"`   | a VNC server: a virtual machine, a container, an emulator|

    | `reset`               | how an episode begins                                    |
    |-----------------------|----------------------------------------------------------|
    | `"restart"`           | the program is started again                             |
    | a list of chords      | they are pressed one after the other: `["ctrl-r"]`       |
    | a function            | it is called with this environment                       |
    | a `Command`           | it is run, and the desktop connects again                |
    | `None`                | it continues where the last one ended                    |

    | `reward`              | the reward of a step                                     |
    |-----------------------|----------------------------------------------------------|
    | a function            | its result for the picture and the one before            |
    | a `RewardChannel`     | the sum of the program's reports, which also say when    |
    |                       | the episode ends                                         |

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
            program: The program's command: a list of its name and arguments.
            display: The screen.
            size: The screen's width and height; by default 640 and 480, or the
                server's.
            keys: The keys of `Controls`, the default encoding.
            pointer: Whether `Controls` has a pointer.
            buttons: The number of buttons of that pointer.
            actions: Another action encoding.
            reward: A function of the picture and the one before, or a `RewardChannel`.
            done: A function of the picture that returns whether the episode has ended.
            reset: How an episode begins.
            ready: When the episode has begun: a function of the picture that returns
                true, a number of seconds, or "reported" if the program tells the
                `RewardChannel`. By default a started program is ready when it has drawn
                something, and the picture then stays the same for a tenth of a second,
                or has kept changing for a second. The same holds after chords, which
                have a second to change the picture. After a function, a `Command` or
                `None`, `reset` does not wait.
            pixels: Whether observations have the picture.
            text: The largest number of characters of text in an observation; 0 for
                none. With text, an observation is a dictionary with `"pixels"` and
                `"text"`.
            read_text: A function that reads the text from the picture; by default the
                text is what the program reported since the last step.
            pause: Seconds between an action and its picture. In a `RealTimeEnvironment`
                leave it 0, because the clock waits.
            patience: Seconds without a changed picture or a report after which the
                program counts as hung; `None` for never.
            probe: Where the program shows its response to a key, to measure the time
                from a key to its pixels; by default any change after an event counts.
            start_timeout: Seconds within which the display must be ready, and within
                which an episode must begin.
            password: The password of the VNC server; the address may have it instead.
            environ: Environment variables for the program.
            folder: The program's working directory.
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
        # Pictures received in the last step, and until then.
        self._updates: int = 0
        self._updates_seen: int = 0
        # When to press the probe's key again.
        self._probe_due: float = 0.0
        self._frame = self._picture()
        self._begin_counting()

    def action_spec(self) -> NestedSpec:
        """Returns the action spec of the encoding."""
        return self._actions.spec()

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of the picture, or those of the picture and the text."""
        width, height = self._size
        pixels = BoundedArraySpec((height, width, 3), np.uint8, 0, 255, "pixels")
        if not self._most_text:
            return pixels
        text = TextSpec((), f"<U{self._most_text}", "text")
        return {"pixels": pixels, "text": text} if self._has_pixels else {"text": text}

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of the picture's timing."""
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
        """Returns the picture's timing.

        `frame_age` is the seconds since the picture changed, `key_to_pixel` the last
        measured seconds from an event to its change, and `missed_frames` the number of
        pictures in the last step that the next picture replaced before they were used.
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
        """The action encoding."""
        return self._actions

    def key_map(self) -> ProgramKeys | None:
        """Returns the keys for `envkit play`; `None` if the encoding has no keys."""
        keys = getattr(self._actions, "keys", None)
        if not keys:
            return None
        points = {"pointer", "buttons"} & set(self._actions.spec())
        return ProgramKeys(self._actions, keys, self._size if points else None)

    @property
    def display(self) -> str:
        """The X display, such as ":7", or the address of the VNC server."""
        return self._display.name

    @property
    def display_environ(self) -> dict[str, str]:
        """The environment variables that programs need to use the display.

        They are `DISPLAY`, and `XAUTHORITY` for the file with the X server's cookie. A
        VNC server has none.
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

        It is meant for `reset` functions; agents have actions.
        """
        self._check_open("press")
        for text in chords:
            keys = chord(text)
            self._display.send([KeyEvent(key, True) for key in keys])
            self._display.send([KeyEvent(key, False) for key in reversed(keys)])

    def wait_until(self, is_so: Callable[[Array], bool], timeout: float = 60.0) -> bool:
        """Waits until a function of the picture holds; returns whether it did."""
        self._check_open("wait_until")
        deadline = time.monotonic() + timeout
        while not is_so(self._picture()):
            left = deadline - time.monotonic()
            if left <= 0 or self._display.trouble() is not None:
                return False
            self._display.update(min(left, _POLL_INTERVAL))
        return True

    def close(self) -> None:
        """Stops the program and the display, and frees their resources."""
        self._closed = True
        if self._finalizer.detach() is not None:
            try:
                if self._episode:
                    # Not every server releases the keys of a viewer that leaves.
                    self._display.send(self._actions.begin())
            finally:
                _close(self._display, self._channel)

    # Episodes.

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        self._episode += 1
        self._loss = None
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
        # Rewards reported so far count in the first step.
        texts = [] if self._channel is None else self._channel.pop_texts()
        return restart(self._observation(texts))

    def _begin(self) -> str | None:
        """Begins the episode, or returns why that failed."""
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
        """Waits for the episode to begin; returns the reason if it does not."""
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
                    return None  # The first picture may equal the last episode's end.
            elif ready == "reported":
                if self._channel is not None and self._channel.is_ready():
                    return None
            elif callable(ready):
                if ready(self._picture()):
                    return None
            elif now - began >= float(ready):
                return None
            display.update(_POLL_INTERVAL)
        return "it was not ready in time. Pass ready= to say when it is"

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
        """Presses the probe's key if it is due."""
        now = time.monotonic()
        if probe.key is not None and now >= self._probe_due:
            self._probe_due = now + probe.every
            self._display.screen.expect()
            key = keysym(probe.key)
            self._display.send([KeyEvent(key, True), KeyEvent(key, False)])

    def _judged(self, previous: Array, reported: Reported) -> TimeStep:
        """Returns the time step of the newest picture and the program's reports."""
        reward = reported.reward
        if self._reward is not None:
            reward += float(self._reward(self._frame, previous))
        observation = self._observation(reported.texts)
        is_done = self._done is not None and bool(self._done(self._frame))
        if is_done or reported.terminated:
            return termination(observation, reward)
        if reported.truncated:
            return truncation(observation, reward)
        kind: str | None = None
        if (trouble := self._display.trouble()) is not None:
            kind = self._display.loss_kind()
        elif (trouble := self._hang()) is not None:
            kind = "timed_out"
        if trouble is None:
            return transition(observation, reward)
        _LOGGER.warning("episode %d was truncated: %s", self._episode, trouble)
        if kind is not None:
            self._lose(kind, DesktopError(f"The desktop is lost: {trouble}."))
            reward = 0.0
        return truncation(observation, reward)

    def _hang(self) -> str | None:
        """Stops a program that hangs, and returns the reason; `None` if it does not."""
        if self._patience is None:
            return None
        idle = self._seen_at - self._moved_at
        if idle < self._patience:
            return None
        self._display.stop()
        return f"nothing has changed for {idle:.1f} s"

    def _begin_counting(self) -> None:
        now = time.monotonic()
        # When the picture was last used, and when something last changed.
        self._seen_at = self._moved_at = now
        self._display.screen.forget()
        self._key_to_pixel = 0.0
        self._probe_due = now
        self._updates, self._updates_seen = 0, self._display.screen.updates

    def _observation(self, texts: list[str]) -> NestedArray:
        # The caller owns the returned picture, and `reward` needs it in the next step.
        frame = self._frame if self._reward is None else self._frame.copy()
        if not self._most_text:
            return frame
        if self._read_text is not None:
            text = self._read_text(self._frame)
        else:
            text = "\n".join(texts)
        # A text that is too long loses its oldest part.
        found = np.array(text[-self._most_text :], f"<U{self._most_text}")
        if self._has_pixels:
            return {"pixels": frame, "text": found}
        return {"text": found}

    def _picture(self) -> Array:
        """Returns a copy of the picture, in the size of the spec."""
        frame, (width, height) = self._display.screen.frame, self._size
        if frame.shape[:2] == (height, width):
            return frame.copy()
        # The server has changed the size of its screen.
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
    """Closes a desktop that was not closed, and warns."""
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
                "environ must map names to strings, such as {'LANG': 'C.UTF-8'}, got "
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
