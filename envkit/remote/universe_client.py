"""`envkit.make("universe://...")`: remotes of OpenAI Universe as rows of a batch.

A remote sends its screen over RFB, and rewards through its rewarder. It keeps running
while the agent thinks. A step sends keys and pointer events, and `1 / hz` seconds later
returns the newest picture and the sum of the rewards since the last step.

`RemoteEpisodes` sorts the rewarder's messages by episode, so that no reward reaches
another episode, however late it comes. Two threads per remote receive messages, one for
each connection; one lock protects all rows.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import logging
import os
import re
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit._shared.listening import place_of
from envkit._shared.own_losses import MOST_KEPT
from envkit._shared.secret_files import SecretFileError, find
from envkit.async_environment import AsyncBatch, AsyncEnvironment, as_envs
from envkit.desktop.actions import Actions, Controls
from envkit.desktop.client import DesktopClient
from envkit.desktop.errors import DesktopError
from envkit.desktop.screen_thread import ScreenThread
from envkit.errors import CallOrderError, ClosedError, SpecError, WorkerError
from envkit.extend import counted, describe, listed
from envkit.losses import Loss
from envkit.remote.rewarder import (
    USUAL_PASSWORD,
    USUAL_PORTS,
    Action,
    AxisEvent,
    Received,
    RemoteEvent,
    Reset,
    RewarderError,
    event_of,
)
from envkit.remote.rewarder_sockets import RewarderLink
from envkit.remote.universe_episodes import (
    EpisodeEvents,
    RemoteEpisodes,
    ResetRefusedError,
)
from envkit.seeding import seed_per_row
from envkit.specs.arrays import BoundedArraySpec
from envkit.specs.special import ObjectSpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Options, ResetSeed, Seed

__all__ = ["RemoteAddress", "UniverseRemotes", "load", "remotes_in"]

_log = logging.getLogger(__name__)

_FIRST, _MID, _LAST = (
    np.int32(kind) for kind in (StepType.FIRST, StepType.MID, StepType.LAST)
)


def load(target: str, **kwargs: Any) -> UniverseRemotes:
    """Connects to remotes: the loader of the scheme `universe`."""
    return UniverseRemotes(f"universe:{target}", **kwargs)


class RemoteAddress(NamedTuple):
    """The address of a remote.

    Attributes:
        host: The machine.
        desktop: The VNC port.
        rewarder: The rewarder's port.
    """

    host: str
    desktop: int
    rewarder: int

    def __str__(self) -> str:
        return f"{self.host}:{self.desktop}+{self.rewarder}"


_ADDRESS = re.compile(r"(\[[^]]+\]|[^:+\[\]]+)(?::(\d+))?(?:\+(\d+))?")


def remotes_in(target: str) -> tuple[list[RemoteAddress], dict[str, str]]:
    """Reads the addresses of remotes, and the options after them.

    Example:
        >>> remotes, options = remotes_in("universe://box:5901+15901,b?password=secret")
        >>> [str(remote) for remote in remotes], options
        (['box:5901+15901', 'b:5900+15900'], {'password': 'secret'})

    Raises:
        ValueError: The target is malformed.
    """
    parts = urllib.parse.urlsplit(target)
    found = [_ADDRESS.fullmatch(part) for part in parts.netloc.split(",")]
    given = dict(urllib.parse.parse_qsl(parts.query))
    unknown = given.keys() - {"password", "env_id"}
    if None in found or parts.path.strip("/") or unknown:
        raise ValueError(
            "A Universe target must be like universe://HOST:5900+15900, with commas "
            "between several remotes, and ?password= and &env_id= after them, got "
            f"{target!r}."
        )
    desktop, rewarder = USUAL_PORTS
    addresses = [
        RemoteAddress(
            match[1].strip("[]"), int(match[2] or desktop), int(match[3] or rewarder)
        )
        for match in found
        if match is not None
    ]
    return addresses, given


class _VncEvents:
    """The space of Universe's actions: lists of events."""

    def contains(self, value: Any) -> bool:
        try:
            _events_in(value)
        except (TypeError, ValueError, OverflowError):
            return False
        return True

    def sample(self, rng: Any) -> list[tuple[Any, ...]]:
        if rng.random() < 0.5:
            return [("PointerEvent", int(rng.integers(640)), int(rng.integers(480)), 0)]
        key = ("left", "up", "right", "down", "space")[int(rng.integers(5))]
        return [("KeyEvent", key, bool(rng.integers(2)))]


def _events_in(value: Any) -> list[RemoteEvent]:
    """Reads events: envkit's own, or tuples such as `("KeyEvent", "left", True)`."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return [event_of(one) for one in ([] if value is None else value)]


class UniverseRemotes(AsyncEnvironment):
    """Plays remotes of OpenAI Universe; each row steps at its own pace.

    `universe_view(env)` presents them with Universe's lists. An observation is
    `{"vision": uint8[height, width, 3]}`; texts and timing are in `get_info`, under
    Universe's names. If a row's connection or its environment is lost, or the remote
    begins another episode without reporting the end of the row's, the episode ends with
    a truncating `LAST`, marked in `repaired`; `losses()` has the kind and the error.
    The row reconnects for the next episode, and sends no event twice.

    Without `keys` and `actions`, an action is a list of events as in Universe:
    `[("KeyEvent", "left", True), ("PointerEvent", 10, 20, 1)]`. Joystick events such as
    `("JoystickAxisXEvent", 0.5)` go through the rewarder.

    Example:
        >>> env = UniverseRemotes("universe://box:5900+15900")  # doctest: +SKIP
        >>> env.reset_async()  # doctest: +SKIP
        >>> env.recv(count=1).time_step.observation["vision"].shape  # doctest: +SKIP
        (1, 160, 80, 3)
    """

    def __init__(
        self,
        remotes: str,
        *,
        env_id: str | None = None,
        password: str | None = None,
        keys: Sequence[str | int] | None = None,
        actions: Actions | None = None,
        hz: float | None = None,
        fps: float | None = None,
        observer: bool = False,
        start_timeout: float = 30.0,
        encodings: Iterable[str] = ("zrle", "zlib", "copy", "raw"),
        cafile: str | os.PathLike[str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects to all remotes.

        Args:
            remotes: Their addresses: `"universe://host:5900+15900,other?password=..."`.
            env_id: The environment for the remotes to run; by default their own.
            password: Their password. By default it is found for remotes that run on
                this machine as the same user; otherwise it is "openai", as in Universe.
            keys: Keys to hold down; the action has a flag for each.
            actions: Another encoding of actions from `envkit.desktop`.
            hz: The agent's steps a second; by default the remotes' rate. 0 returns from
                each step at once.
            fps: The steps a second to request from the remotes.
            observer: Whether to only watch, and send neither resets nor actions.
            start_timeout: Seconds for making a connection.
            encodings: The encodings accepted from the desktop, the best first.
            cafile: The rewarders' certificate, or its authority's; the desktop is
                not encrypted.
            tls: An SSL context for the rewarders, instead of `cafile`.
        """
        if cafile is not None:
            if tls is not None:
                raise ValueError("Pass either tls or cafile, not both.")
            tls = ssl.create_default_context(cafile=os.fspath(cafile))
        self._tls = tls
        self._addresses, given = remotes_in(remotes)
        self._env_id = env_id if env_id is not None else given.get("env_id")
        self._password = password or given.get("password")
        self._hz, self._fps, self._observer = hz, fps, bool(observer)
        self._start_timeout = start_timeout
        self._encodings = tuple(encodings)
        if keys is not None and actions is not None:
            raise ValueError("Pass either keys or actions, not both.")
        self._changed = threading.Condition()
        self._closed = False
        self._rows = [
            _RemoteRow(self, number) for number in range(len(self._addresses))
        ]
        self._unasked_losses = collections.deque[Loss](maxlen=MOST_KEPT)
        # Rows that owe an answer, in the order of their requests.
        self._owing: dict[int, None] = {}
        try:
            for row in self._rows:
                row.dial()
            for row in self._rows:
                row.wait_connected()
        except BaseException:
            self.close()
            raise
        self._size = self._rows[0].size
        for row in self._rows[1:]:
            if row.size != self._size:
                self.close()
                raise SpecError(
                    f"All remotes must show pictures of one size, got {self._size} at "
                    f"{self._addresses[0]} and {row.size} at {row.address}."
                )
        if keys is not None:
            actions = Controls(keys)
        self._actions = (
            None if actions is None else [copy.deepcopy(actions) for _ in self._rows]
        )

    @property
    def num_envs(self) -> int:
        """The number of remotes."""
        return len(self._rows)

    @property
    def repaired(self) -> Array:
        """A mask of the rows whose last time step is a made-up `LAST`."""
        return np.array([row.loss is not None for row in self._rows])

    def current_losses(self) -> dict[int, Loss]:
        """Returns the loss behind each row of `repaired`, by row."""
        losses = [(row.number, row.loss) for row in self._rows]
        return {number: loss for number, loss in losses if loss is not None}

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call, the oldest first."""
        with self._changed:
            losses = list(self._unasked_losses)
            self._unasked_losses.clear()
        return losses

    def _add_loss(self, row: int, kind: str, reason: object) -> Loss:
        text = f"The remote {self._addresses[row]} was lost: {reason}"
        loss = Loss(row, kind, WorkerError(text, envs=[row]))
        self._unasked_losses.append(loss)
        return loss

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of the picture, under `"vision"`."""
        width, height = self._size
        picture = BoundedArraySpec((height, width, 3), np.uint8, 0, 255, "vision")
        return {"vision": picture}

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action, by default a list of events."""
        if self._actions is None:
            return ObjectSpec(name="events", kind=_VncEvents())
        return self._actions[0].spec()

    def seed(self, seed: Seed) -> Any:
        """Sets the seed for each remote's next reset."""
        self._check_open("seed")
        for row, own in zip(self._rows, seed_per_row(seed, self.num_envs), strict=True):
            row.seed = own
        return seed

    def reset_async(
        self,
        env_ids: Sequence[int] | Array | None = None,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> None:
        """Makes rows begin an episode; returns at once.

        After an end the remote begins an episode by itself. So a reset is sent only for
        the first episode, in the middle of an episode, and with a seed.
        """
        self._check_open("reset_async")
        if options is not None:
            raise NotImplementedError("Universe remotes take no reset options.")
        rows = self._free(env_ids, "reset_async")
        seeds = seed_per_row(seed, self.num_envs if np.ndim(seed) == 0 else len(rows))  # type: ignore[arg-type]  # np.ndim(None) is 0
        with self._changed:
            for number, row in enumerate(rows):
                if seed is not None:
                    row.seed = seeds[row.number if np.ndim(seed) == 0 else number]  # type: ignore[arg-type]  # likewise
                self._owing[row.number] = None
                row.begin(asked=True)

    def send(
        self, actions: NestedArray, env_ids: Sequence[int] | Array | None = None
    ) -> None:
        """Sends the actions' events; a row whose episode is over begins the next."""
        self._check_open("send")
        rows = self._free(env_ids, "send")
        events = [self._events(actions, number, row) for number, row in enumerate(rows)]
        with self._changed:
            for row, own in zip(rows, events, strict=True):
                self._owing[row.number] = None
                if row.plays:
                    row.act(own)
                else:
                    row.begin(asked=False)

    def recv(
        self, count: int | None = None, timeout: float | None = None
    ) -> AsyncBatch:
        """Returns finished rows in the order in which they finished.

        Raises:
            WorkerError: A remote cannot be reached.
        """
        self._check_open("recv")
        count = len(self._owing) if count is None else count
        if not self._owing or count > len(self._owing):
            raise CallOrderError(
                f"recv() was called for {counted(count, 'row')}, but only "
                f"{len(self._owing)} owe an answer. Call reset_async() or send()."
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                ready = [row for row in self._owed() if row.ready]
                if len(ready) >= count or self._closed:
                    break
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    break
                due = [row.due for row in self._owed() if row.due is not None]
                ends = [*due, *([] if deadline is None else [deadline])]
                self._changed.wait(max(0.0, min(ends) - now) if ends else None)
            self._check_open("recv")
            ready.sort(key=lambda row: row.finished_at)
            for row in ready:
                if row.failure is not None:
                    error, row.failure = row.failure, None
                    del self._owing[row.number]
                    raise WorkerError(
                        f"The remote {row.address} cannot be used: {error}",
                        envs=[row.number],
                    ) from error
            for row in ready:
                del self._owing[row.number]
            return self._batch(ready)

    def call(
        self, name: str, env_ids: Sequence[int] | Array | None = None
    ) -> list[Any]:
        """Calls `get_info` of rows; remotes have no other method.

        Raises:
            AttributeError: The name is a different one.
        """
        if name != "get_info":
            raise AttributeError(f"A Universe remote has no {name!r:.60}.")
        with self._changed:
            return [
                copy.deepcopy(self._rows[row].info)
                for row in as_envs(env_ids, self.num_envs)  # type: ignore[arg-type]  # arrays, too
            ]

    def get_info(self) -> list[Any]:
        """Returns the infos of the newest time steps, a dictionary for each row."""
        return self.call("get_info")

    def render(
        self, mode: str = "rgb_array", env_ids: Sequence[int] | Array | None = None
    ) -> Array:
        """Returns the desktops' current pictures, one for each row."""
        if mode != "rgb_array":
            raise NotImplementedError(f"The mode must be 'rgb_array', got {mode!r}.")
        with self._changed:
            return np.stack(
                [
                    self._rows[row].picture(self._size)
                    for row in as_envs(env_ids, self.num_envs)  # type: ignore[arg-type]  # arrays, too
                ]
            )

    def close(self) -> None:
        """Closes all connections; calling it again does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for row in self._rows:
            row.close()

    def _free(self, env_ids: Any, call: str) -> list[_RemoteRow]:
        rows = [self._rows[row] for row in as_envs(env_ids, self.num_envs)]
        busy = [row.number for row in rows if row.number in self._owing]
        if busy:
            raise CallOrderError(
                f"{call}() was called for rows {listed(busy)}, which still owe an "
                "answer. Call recv() for them first."
            )
        return rows

    def _owed(self) -> list[_RemoteRow]:
        return [self._rows[number] for number in self._owing]

    def _events(
        self, actions: Any, number: int, row: _RemoteRow
    ) -> Sequence[RemoteEvent]:
        """Returns the events of a row's action; none if it only watches."""
        if not row.plays:
            return []
        if self._actions is not None:
            own = (
                {name: leaf[number] for name, leaf in actions.items()}
                if isinstance(actions, Mapping)
                else actions[number]
            )
            return self._actions[row.number].events(own)
        try:
            return _events_in(actions[number])
        except (TypeError, ValueError, OverflowError) as error:
            raise SpecError(
                "A remote's action must be a list of events such as ('KeyEvent', "
                f"'left', True), got {describe(actions[number])}: {error}"
            ) from error

    def _releases(self, row: int) -> list[RemoteEvent]:
        """Returns the events that release everything before an episode."""
        return [] if self._actions is None else [*self._actions[row].begin()]

    def _batch(self, rows: list[_RemoteRow]) -> AsyncBatch:
        steps = [row.time_step(self._size) for row in rows]
        width, height = self._size
        pictures = np.zeros((len(rows), height, width, 3), np.uint8)
        for picture, step in zip(pictures, steps, strict=True):
            picture[:] = step.observation
        return AsyncBatch(
            np.array([row.number for row in rows], np.int64),
            TimeStep(
                np.array([step.step_type for step in steps], np.int32),
                np.array([step.reward for step in steps], np.float32),
                np.array([step.discount for step in steps], np.float32),
                {"vision": pictures},
            ),
        )

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used("UniverseRemotes", call)


class _RemoteRow:
    """A remote's two connections and the state of its episode."""

    def __init__(self, env: UniverseRemotes, number: int) -> None:
        self._env = env
        self._changed = env._changed
        self.number = number
        self.address = env._addresses[number]
        self.seed: int | None = None
        # True between a FIRST and the LAST.
        self.plays = False
        # True until the FIRST is returned.
        self._is_first = False
        self.due: float | None = None
        self.failure: Exception | None = None
        # What the last time step returned stands for, if it is a made-up `LAST`.
        self.loss: Loss | None = None
        self.info: dict[str, Any] = {}
        self.finished_at = 0.0
        self._episodes = RemoteEpisodes()
        self._lost: Exception | None = None
        self._frame: Array = np.zeros((0, 0, 3), np.uint8)
        self._screen: ScreenThread | None = None
        self._rewarder: RewarderLink | None = None
        self._dialing: threading.Thread | None = None
        self._wants_reset = True
        self._begins = False
        # The number of connections lost since an episode began.
        self._losses = 0
        # The number of screen updates since the last time step.
        self._updates = 0

    @property
    def size(self) -> tuple[int, int]:
        return self._frame.shape[1], self._frame.shape[0]

    def picture(self, size: tuple[int, int]) -> Array:
        """Returns a copy of the newest picture, cut or padded to a size."""
        self._look()
        if size == self.size:
            return self._frame.copy()
        picture = np.zeros((size[1], size[0], 3), np.uint8)
        shown = self._frame[: size[1], : size[0]]
        picture[: shown.shape[0], : shown.shape[1]] = shown
        return picture

    @property
    def ready(self) -> bool:
        """Returns True if it can answer now, and sets `finished_at`."""
        if self.failure is not None:
            return True
        if self._begins:
            is_connected = self._rewarder is not None and self._lost is None
            self.plays = is_connected and self._episodes.begin()
            if self.plays:
                self._begins, self.due, self._losses = False, None, 0
                self._is_first, self.finished_at = True, time.monotonic()
            return self.plays
        if self._is_first:
            return True
        if self._lost is not None or self._episodes.done:
            self.finished_at = time.monotonic()
            return True
        is_due = self.due is not None and time.monotonic() >= self.due
        self.finished_at = self.due or 0.0
        return is_due

    def begin(self, *, asked: bool) -> None:
        """Begins an episode, with a reset if the remote does not begin it by itself."""
        interrupts = self.plays and not self._episodes.done
        self._wants_reset |= asked and (interrupts or self.seed is not None)
        self.plays, self._begins, self.due = False, True, None
        if self._lost is not None or self._rewarder is None:
            self.dial()
        else:
            self._ask()

    def _ask(self) -> None:
        """Sends the reset, and releases all keys."""
        if not self._begins or self._rewarder is None:
            return
        env = self._env
        try:
            if self._wants_reset and not env._observer:
                known = self._episodes.episode
                reset = Reset(env._env_id, self.seed, env._fps, known)
                self._episodes.ask(self._rewarder.send(reset))
            self._wants_reset, self.seed = False, None
            self._send(env._releases(self.number))
        except (RewarderError, DesktopError) as error:
            self._lose(error)

    def act(self, events: Sequence[RemoteEvent]) -> None:
        """Sends events; the answer is due one step later."""
        hz = self._env._hz
        pace = self._episodes.fps if hz is None else hz
        self.due = time.monotonic() + (1 / pace if pace else 0.0)
        try:
            self._send(events)
        except DesktopError as error:
            self._lose(error)

    def time_step(self, size: tuple[int, int]) -> TimeStep:
        """Returns the time step that is ready."""
        picture = self.picture(size)
        was_first, self._is_first = self._is_first, False
        episodes = self._episodes
        episode = episodes.episode
        if episode is None:
            events, texts = EpisodeEvents(), []
        else:
            texts = episodes.pop_texts()
            # Rewards so far belong to the first action.
            events = EpisodeEvents() if was_first else episodes.pop()
        status: dict[str, Any] = {
            "env.text": texts,
            "stats.reward.count": events.count,
            "env_status.episode_id": str(episode),
            "env_status.env_state": "running",
            "env_status.env_id": episodes.env_id,
            **events.info,
        }
        pixels = self._updates * self._frame.shape[0] * self._frame.shape[1]
        vnc = {"updates.n": self._updates, "updates.pixels": pixels}
        self._updates = 0
        self.info = {"universe": status, "vnc": vnc}
        self.loss = None
        if was_first:
            return TimeStep(_FIRST, 0.0, 1.0, picture)
        lost, is_over = self._lost, events.done
        if not is_over and lost is None:
            return TimeStep(_MID, events.reward, 1.0, picture)
        self.plays = False
        status["env_status.env_state"] = "resetting"
        status["env_status.complete.episode_id"] = str(episode)
        if is_over and not events.is_artificial:
            return TimeStep(_LAST, events.reward, events.discount, picture)
        kind, reason = "link_lost", str(lost)
        if is_over:
            kind, reason = events.loss
        status["error"] = reason
        self.loss = self._env._add_loss(self.number, kind, reason)
        self.info.update(repaired=True, loss=self.loss)
        return TimeStep(_LAST, 0.0, 1.0, picture)

    def dial(self) -> None:
        """Connects in a thread, unless a thread is connecting already."""
        if self._dialing is None or not self._dialing.is_alive():
            self._dialing = threading.Thread(
                target=self._dial, name=f"envkit dials {self.address}", daemon=True
            )
            self._dialing.start()

    def wait_connected(self) -> None:
        """Waits for the first connection.

        Raises:
            RewarderError, DesktopError: It took too long.
        """
        assert self._dialing is not None
        self._dialing.join()
        if self.failure is not None:
            error, self.failure = self.failure, None
            raise error

    def close(self) -> None:
        """Closes the connections and ends the threads."""
        if self._dialing is not None:
            self._dialing.join()
        self._hang_up()

    def _hang_up(self) -> None:
        rewarder, self._rewarder = self._rewarder, None
        screen, self._screen = self._screen, None
        if rewarder is not None:
            rewarder.close()
        if screen is not None:
            screen.close()

    def _dial(self) -> None:
        """Connects, and retries until the time is up."""
        env, attempt = self._env, 0
        deadline = time.monotonic() + env._start_timeout
        self._hang_up()
        if self._losses > 1:
            # A remote that refuses may still be busy with the previous connection.
            with self._changed:
                self._changed.wait_for(lambda: env._closed, 0.05 * 2**self._losses)
        while True:
            password = self._password()
            try:
                self._connect(max(0.1, deadline - time.monotonic()), password)
            except (DesktopError, RewarderError) as error:
                pause = min(2 * attempt + 1, 10) / 4
                attempt += 1
                with self._changed:
                    is_over = time.monotonic() + pause > deadline
                    # Retrying a wrong password is pointless, unless the remote has
                    # drawn a new one meanwhile.
                    refused = isinstance(error, DesktopError) and error.refused
                    is_over |= refused and password == self._password()
                    if is_over or env._closed:
                        self.failure = error
                        self._begins = False
                        self._changed.notify_all()
                        return
                    _log.info("%s Trying again in %g s.", error, pause)
                    self._changed.wait_for(lambda: env._closed, pause)
            else:
                return

    def _password(self) -> str:
        """Returns the remote's password: given, found, or the default."""
        given, address = self._env._password, self.address
        if given is not None:
            return given
        try:
            found = find("password", address.host, address.desktop)
        except SecretFileError as error:
            _log.warning("%s", error)
            found = None
        return found or USUAL_PASSWORD

    def _connect(self, timeout: float, password: str) -> None:
        env, address = self._env, self.address
        episodes = RemoteEpisodes()
        desktop = DesktopClient(
            address.host,
            address.desktop,
            password=password,
            encodings=env._encodings,
            timeout=timeout,
        )
        with contextlib.ExitStack() as stack:
            stack.callback(desktop.close)
            desktop.update(timeout)
            described = threading.Event()

            def receive(received: Received | RewarderError) -> None:
                self._receive(episodes, received)
                described.set()

            rewarder = RewarderLink(
                place_of((address.host, address.rewarder)),
                password,
                receive,
                observer=env._observer,
                timeout=timeout,
                tls=env._tls,
            )
            stack.callback(rewarder.close)
            # The remote first describes itself, or says why it hangs up.
            described.wait(timeout)
            if episodes.failure is not None:
                raise episodes.failure
            stack.pop_all()
        with self._changed:
            self._screen, self._rewarder = ScreenThread(desktop), rewarder
            self._frame = self._screen.frame
            self._episodes, self._lost = episodes, None
            self._wants_reset = True
            self._ask()
            self._changed.notify_all()

    def _receive(
        self, episodes: RemoteEpisodes, received: Received | RewarderError
    ) -> None:
        """Handles a message of the rewarder, in its thread."""
        with self._changed:
            try:
                if isinstance(received, RewarderError):
                    raise received
                episodes.receive(received)
            except RewarderError as error:
                episodes.failure = error
                if episodes is self._episodes:
                    self._lose(error)
            self._changed.notify_all()

    def _look(self) -> None:
        """Fetches the newest picture of the screen."""
        screen = self._screen
        if screen is None:
            return
        before = screen.updates
        try:
            screen.update()
        except DesktopError as error:
            self._lose(error)
        self._frame = screen.frame
        self._updates += screen.updates - before

    def _send(self, events: Sequence[RemoteEvent]) -> None:
        if self._screen is None or self._env._observer:
            return
        axes = [event for event in events if isinstance(event, AxisEvent)]
        keys = [event for event in events if not isinstance(event, AxisEvent)]
        if axes and self._rewarder is not None:
            # RFB has no joystick.
            try:
                self._rewarder.send(Action(self._episodes.env_id, list(axes)))
            except RewarderError as error:
                self._lose(error)
        if keys:
            self._screen.send(*keys)

    def _lose(self, error: Exception) -> None:
        """Ends the connection, and reconnects if an episode must begin."""
        if self._lost is None and not self._env._closed:
            self._lost = error
            self._losses += 1
            is_refused = isinstance(error, ResetRefusedError)
            is_useless = self._losses > _MOST_LOSSES or is_refused
            if self._begins:
                kind = "reset_failed" if is_refused else "link_lost"
                self._env._add_loss(self.number, kind, error)
            if self._begins and is_useless:
                self.failure, self._begins = error, False
            elif self._begins:
                self.dial()


_MOST_LOSSES = 5
