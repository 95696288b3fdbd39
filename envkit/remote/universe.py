"""`envkit serve TARGET --universe`: a remote of OpenAI Universe, on two ports.

One port serves a desktop over RFB: it shows the pictures of `render`, and takes the
keys of `envkit play`. The other port serves the rewarder, which sends rewards, ends and
episodes, and takes resets.

```
 desktop, a thread ── keys ──▶ ┐                      ┌ ── pictures ──▶ desktop
                               │  the environment:    │
 rewarder, a thread ─ resets ▶ ┘  a step each tick    └ ── rewards ───▶ rewarder
```

The environment makes `fps` steps a second while clients think, and begins its next
episode by itself; it pauses while there are no clients. If a client asks for an id
whose name ends in `Sync`, the environment waits: each press of the key `c` is a step
with the keys pressed before it. Episodes are numbered: `resetting` begins the next
number, even after a client's reset. A client that asks again before it can know its new
episode gets the same one.

If the environment is lost in its process, its episode has no end: clients get a text
and an info with the kind of the loss and the reason, and the next episode, as after
another client's reset. They mark the old one with `env_status.artificial.done`. An
environment that raises without a process ends the service with the reason.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit._shared.actions_and_rewards import agent_rewards
from envkit._shared.infos import InfoReader
from envkit._shared.listening import place_of
from envkit._shared.secret_files import DRAW
from envkit.desktop.actions import fitting
from envkit.desktop.keys import Event, KeyEvent, keysym
from envkit.desktop.play_keys import KeyboardActions, encoding_of, play_name
from envkit.desktop.server import DesktopServer
from envkit.extend import may_lose
from envkit.play.pointer import ActionNumbers
from envkit.remote.losses import EnvironmentLostError
from envkit.remote.offers import (
    Menu,
    Offer,
    Refusal,
    ServeOptions,
    Service,
    with_reachable_host,
)
from envkit.remote.rewarder import (
    FASTEST,
    JOYSTICK,
    SLOWEST,
    USUAL_PACE,
    USUAL_PASSWORD,
    USUAL_PORTS,
    AxisEvent,
    Describe,
    ErrorReply,
    Observation,
    RemoteEvent,
    ResetReply,
    Reward,
    RewarderError,
    Text,
)
from envkit.remote.rewarder_sockets import ResetRequest, RewarderServer
from envkit.remote.universe_episodes import AskedReset, ServedEpisodes
from envkit.types import Array, NestedArray

__all__ = ["PROBE_KEY", "Remote", "said_in", "serve", "stamped", "texts_in"]

_log = logging.getLogger(__name__)

# The key that Universe's clients press to measure latency.
PROBE_KEY = 0xBEEF1
# In an id: asks for an environment that waits for each action.
_SYNC = re.compile(r"Sync(?=-v\d+$|$)")
# In an id: asks for small observations as numbers, which are always sent.
_FEW_NUMBERS = re.compile(r"Low[D](?=(?:Sync)?(?:-v\d+)?$)")
_MOST_EVENTS, _MOST_NUMBERS = 1 << 12, 64
# The infos with an environment's texts, and the maximum sent in a step.
_SAID = ("env.text", "text")
_MOST_TEXTS, _LONGEST_TEXT = 64, 1 << 14


def serve(menu: Menu, options: ServeOptions) -> Service:
    """Serves the environments of a menu, one at a time, to Universe's clients.

    Args:
        menu: The environments; `v0.env.reset` chooses one.
        options: The options of the server: the desktop is at `port`, the rewarder
            10,000 above. Both have the same password, of which VNC compares 8
            characters; `None` means the default of Universe's clients, which everyone
            knows.
    """
    return Remote(menu, options)


class Remote:
    """An environment that clients watch and play while it runs.

    Attributes:
        line: The addresses, for people.
        password: The password for clients.
        invitation: The address for clients that cannot find a drawn password.
        desktop: The server of pictures and keys.
        rewarder: The server of rewards and resets.
    """

    def __init__(self, menu: Menu, options: ServeOptions) -> None:
        """Makes the first environment of the menu, and listens."""
        self._menu = menu
        given = USUAL_PASSWORD if options.password is None else options.password
        self._offer = menu.offers[0]
        self._is_sync = False
        self._game = _ServedGame(self._offer)
        self._pending: collections.deque[_PendingReset] = collections.deque()
        self._env_id, self._fps = _env_id_of(self._offer), USUAL_PACE
        self._asked_fps: float | None = None
        self._episodes = ServedEpisodes()
        self._wake = threading.Event()
        self._closed = False
        self._failure: str | None = None
        ports: tuple[int | socket.socket, ...] = options.sockets or _ports(options.port)
        with contextlib.ExitStack() as stack:
            stack.callback(self._game.close)
            first = self._game.reset()
            self.desktop = DesktopServer(
                None,  # so that no viewer sees another picture before the first
                host=options.host,
                port=ports[0],
                name=self._env_id,
                password=given,
                on_event=self._on_event,
                max_viewers=options.max_sessions,
            )
            stack.callback(self.desktop.close)
            self.desktop.show(first)
            # Clients find a drawn password by the desktop's address.
            self.password = self.desktop.passwords[0] or ""
            self.rewarder = RewarderServer(
                host=options.host,
                port=ports[1],
                password=self.password,
                on_reset=self._on_reset,
                on_action=self._on_action,
                tls=options.tls,
                max_clients=options.max_sessions,
                is_public=options.password is None,
            )
            stack.pop_all()
        self._describe()
        place, rewarder = place_of(self.desktop.address), self.rewarder.address[1]
        self.line = f"universe: vnc://{place}+{rewarder}"
        self.invitation = ""
        if options.password is DRAW:
            where = f"{self.line.partition(' ')[2]}?password={self.password}"
            self.invitation = (
                "other users, machines and libraries connect with "
                f"{with_reachable_host(where, options.host)}"
            )
        self._thread = threading.Thread(
            target=self._run, name=f"envkit universe {place}", daemon=True
        )
        self._thread.start()

    def health(self) -> list[dict[str, Any]]:
        """Returns the address and the number of clients."""
        sessions, viewers = self.rewarder.clients, self.desktop.viewers
        address = self.line.partition(" ")[2]
        return [{"address": address, "sessions": sessions, "viewers": viewers}]

    def ended(self) -> str | None:
        """Returns why it stopped without `close`; `None` while it serves."""
        return self._failure or self.desktop.ended() or self.rewarder.ended()

    def close(self, reason: str) -> None:
        """Sends clients the reason, and ends; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._wake.set()
            self.rewarder.close(reason)
            # An environment may take longer; its thread is a daemon.
            self._thread.join(_PATIENCE)
            self.desktop.close()

    def _on_event(self, event: RemoteEvent) -> None:
        self._game.player.receive(event)
        self._wake.set()

    def _on_action(self, events: list[RemoteEvent]) -> None:
        for event in events:
            self._on_event(event)

    def _on_reset(self, request: ResetRequest) -> None:
        reset = request.reset
        try:
            offer, is_sync = self._find(reset.env_id)
        except Refusal as error:
            raise RewarderError(str(error)) from error
        episode = reset.episode or 0
        self._episodes.check(episode)
        asked = AskedReset(
            request.client,
            reset.seed,
            episode,
            asked_at=time.monotonic(),
            sent_at=request.received.sent_at,
        )
        self._pending.append(_PendingReset(offer, is_sync, asked, request))
        self._wake.set()

    def _find(self, name: str | None) -> tuple[Offer, bool]:
        """Returns the environment with an id in Gym's form, `name-v0`.

        In `gym-core.CartPole-v0` only the part after the last dot counts. If the
        version does not exist here, another version of the same name is returned.

        Returns:
            The environment, and whether it must wait for each action.
        """
        if name is None:
            return self._offer, self._is_sync
        plain = _FEW_NUMBERS.sub("", name)
        waiting = _SYNC.sub("", plain)
        for text, is_sync in ((name, False), (plain, False), (waiting, True)):
            for with_version in (True, False):
                wanted = _plain(text, with_version)
                for offer in self._menu.offers:
                    names = [_env_id_of(offer), *offer.names]
                    if wanted in [_plain(known, "-v" in wanted) for known in names]:
                        return offer, is_sync
        return self._menu.find(name), False

    def _run(self) -> None:
        try:
            next_tick = time.monotonic()
            while not self._closed:
                if self._pending:
                    self._begin(self._pending.popleft())
                    next_tick = time.monotonic()
                elif not (self.rewarder.clients or self.desktop.viewers):
                    self._wake.wait(0.05)
                    self._wake.clear()
                    next_tick = time.monotonic()
                elif (action := self._committed()) is not None:
                    self._tick(action)
                elif (left := next_tick - time.monotonic()) > 0:
                    self._wake.wait(left)
                    self._wake.clear()
                else:
                    if self._is_sync:
                        # The client waits for a picture newer than the reward.
                        self.desktop.show(self._game.stamped_again())
                    else:
                        self._tick(self._game.player.action())
                    # Missed ticks are not made up for.
                    next_tick = max(next_tick + 1 / self._fps, time.monotonic())
        except Exception as error:
            if self._closed:  # a late environment found everything closed
                _log.info("%s was closed meanwhile: %s", self.line, error)
                return
            _log.exception("The environment of %s has ended.", self.line)
            self._failure = f"{type(error).__name__}: {error}"
            told = self._menu.hide(self._failure)
            self.rewarder.close(f"The environment raised {told}")
        finally:
            self._game.close()

    def _committed(self) -> NestedArray:
        """Returns the action that a client has committed; `None` if it has not."""
        return self._game.player.commit() if self._is_sync else None

    def _tick(self, action: NestedArray) -> None:
        try:
            reward, discount, picture = self._game.step(action)
        except EnvironmentLostError as error:
            self._interrupt(error)
            return
        self.desktop.show(picture)
        self._send_seen()
        done = discount is not None
        info = {} if discount is None else {"discount": discount}
        number = self._episodes.number
        self.rewarder.broadcast(Reward(number, reward, done, info))
        if done:
            self._begin_next()

    def _interrupt(self, lost: EnvironmentLostError) -> None:
        """Tells clients that the episode is lost, and begins the next one."""
        number, reason = self._episodes.number, self._menu.hide(str(lost))
        info = {"loss": lost.loss.kind, "error": reason}
        self.rewarder.broadcast(Text(number, reason))
        # Infos travel with rewards; this one neither rewards nor ends anything.
        self.rewarder.broadcast(Reward(number, 0.0, False, info))
        self._begin_next()

    def _begin_next(self) -> None:
        self._episodes.reset()
        self._describe()
        self.desktop.show(self._game.reset())
        self._episodes.run(time.monotonic())
        self._describe()
        self._send_seen()

    def _send_seen(self) -> None:
        """Sends the observation if it is a few numbers, and the environment's texts."""
        number = self._episodes.number
        if self._game.observed is not None:
            self.rewarder.broadcast(Observation(number, self._game.observed))
        for text in self._game.texts:
            self.rewarder.broadcast(Text(number, text))

    def _begin(self, pending: _PendingReset) -> None:
        """Begins an episode for a client, unless one has begun since its request."""
        asked, reset, refused = pending.asked, pending.request.reset, ""
        is_here = pending.offer is self._offer and pending.is_sync is self._is_sync
        if reset.fps is not None:
            self._asked_fps = reset.fps
        begins = not (is_here and self._episodes.is_repeated(asked))
        if begins:
            self._episodes.reset(asked.episode)
            self._is_sync, self._env_id = pending.is_sync, _env_id_of(pending.offer)
            if pending.is_sync:
                self._env_id = re.sub(r"-v(\d+)$", r"Sync-v\1", self._env_id)
            self._describe()
            if pending.offer is not self._offer:
                self._game.close()
                self._offer, self._game = pending.offer, _ServedGame(pending.offer)
            self._game.is_stamped = pending.is_sync
            refused = self._refused_seed(asked.seed)
            self.desktop.show(self._game.reset())
            # Before the reply: a client may ask for the next episode at once.
            now = time.monotonic()
            self._episodes.remember(None if refused else asked, now)
            self._episodes.run(now)
        answer = ErrorReply(refused) if refused else ResetReply(self._episodes.number)
        self.rewarder.reply(pending.request, answer)
        if begins or self._fps != self._pace():
            self._describe()
        if begins:
            self._send_seen()

    def _refused_seed(self, seed: int | None) -> str:
        """Seeds the environment; returns why it refuses the seed, or ""."""
        try:
            if seed is not None:
                self._game.seed(seed)
        except Exception as error:
            # One client's seed must not end the service for the others.
            _log.info("A seed was refused.", exc_info=True)
            return f"The environment refuses the seed {seed}: {error}"
        return ""

    def _pace(self) -> float:
        """Returns the steps a second; the environment may set them."""
        return self._game.fps or self._asked_fps or USUAL_PACE

    def _describe(self) -> None:
        """Sends clients the state of the environment."""
        self._fps = self._pace()
        state = "running" if self._episodes.is_running else "resetting"
        self.rewarder.broadcast(
            Describe(self._episodes.number, self._env_id, state, self._fps)
        )


# Seconds that an environment has to end.
_PATIENCE = 2.0


class _PendingReset(NamedTuple):
    """A client's request for a reset.

    Attributes:
        offer: The environment that the client wants.
        is_sync: Whether it must wait for each action.
        asked: The facts that show whether the request is repeated.
        request: The request, for the answer.
    """

    offer: Offer
    is_sync: bool
    asked: AskedReset
    request: ResetRequest


class _ClientInput:
    """Turns the clients' keys, pointer and joystick into actions.

    A desktop has its own actions for them. Other environments are played with the keys
    of `envkit play`, and with the pointer if they have one. A joystick sets the numbers
    of an action; if actions are choices, it presses the arrow keys.

    Attributes:
        probed_at: When the key of latency probes was last pressed; `None` before.
    """

    def __init__(self, env: Any, size: Callable[[], tuple[int, int]]) -> None:
        """Starts with no key down.

        Args:
            env: The environment.
            size: Returns the width and height of the picture under the pointer.
        """
        self.probed_at: float | None = None
        self._own = encoding_of(env)
        self._actions: Any = self._own or KeyboardActions(env, size)
        self._numbers = ActionNumbers(env.action_spec())
        self._events: collections.deque[Event] = collections.deque(maxlen=_MOST_EVENTS)
        # The joystick axes that were moved, from -1 to 1.
        self._axes: dict[str, float] = {}

    def receive(self, event: RemoteEvent) -> None:
        """Keeps an event for the next action; may be called from any thread."""
        if isinstance(event, AxisEvent):
            before = self._arrows()
            self._axes[event.axis] = event.amount
            for arrow in sorted(before ^ self._arrows()):
                self._events.append(KeyEvent(keysym(arrow), arrow not in before))
        elif isinstance(event, KeyEvent) and event.key == PROBE_KEY:
            if event.down:
                self.probed_at = time.time()
        else:
            self._events.append(event)

    def action(self) -> NestedArray:
        """Returns the action for all events since the last one.

        A desktop does one thing after the other: events that do not fit one action wait
        for the next.
        """
        events = self._pop(len(self._events))
        if self._own is not None:
            count = fitting(self._own, events)
            self._events.extendleft(reversed(events[count:]))
            events = events[:count]
        return self._steered(self._actions.array(events))

    def commit(self) -> NestedArray:
        """Returns the action up to the next press of `c`; `None` if there is none."""
        for count, event in enumerate(list(self._events), 1):
            if _is_commit(event) and event[1]:
                events = [it for it in self._pop(count) if not _is_commit(it)]
                return self._steered(self._actions.array(events))
        return None

    def begin(self) -> None:
        """Forgets all events; an episode begins with no key down."""
        self._events.clear()
        self._axes.clear()
        self._actions.begin()

    def _pop(self, count: int) -> list[Event]:
        return [self._events.popleft() for _ in range(count)]

    def _arrows(self) -> set[str]:
        """Returns the arrow keys that the joystick presses."""
        if self._numbers.floats:
            return set()
        x, y = (self._axes.get(axis, 0.0) for axis in JOYSTICK[:2])
        ways = {"Left": x < -0.5, "Right": x > 0.5, "Up": y < -0.5, "Down": y > 0.5}
        return {way for way, is_held in ways.items() if is_held}

    def _steered(self, action: NestedArray) -> NestedArray:
        """Puts the joystick's axes into an action, in the order of its numbers."""
        axes = dict(self._axes)
        numbers = zip(JOYSTICK, self._numbers.floats, strict=False)
        amounts = {number: axes[axis] for axis, number in numbers if axis in axes}
        return self._numbers.moved(action, amounts)


def _is_commit(event: Event) -> bool:
    return isinstance(event, KeyEvent) and play_name(event.key) == "c"


class _ServedGame:
    """An environment with its keys and pictures."""

    def __init__(self, offer: Offer) -> None:
        self._env: Any = offer.make_drawing()
        try:
            if self._env.batched:
                raise ValueError(
                    f"{offer.name} is a batch; only a single environment can be shown."
                )
            self.player = _ClientInput(self._env, lambda: self._shown.shape[1::-1])
        except BaseException:
            self._env.close()
            raise
        # The observation for JSON; `None` if it is not a few numbers.
        self.observed: Any = None
        # The environment's texts in the last step.
        self.texts: list[str] = []
        self._standing: list[str] = []
        self._infos = InfoReader(self._env)
        self._may_lose = may_lose(self._env)
        self.is_stamped = False
        self._shown: Array = np.zeros((1, 1, 3), np.uint8)
        metadata = getattr(self._env, "metadata", None)
        told: Any = metadata.get("render_fps") if isinstance(metadata, dict) else None
        self.fps = float(told) if _is_pace(told) else None

    def seed(self, seed: int) -> None:
        self._env.seed(seed)

    def reset(self) -> Array:
        """Begins an episode, with no key down, and returns its first picture."""
        time_step = self._env.reset()
        self.player.begin()
        self._standing = []
        return self._picture(time_step.observation)

    def step(self, action: NestedArray) -> tuple[float, float | None, Array]:
        """Steps; returns the reward, the discount if it is an end, and a picture.

        Raises:
            EnvironmentLostError: The environment was lost, and has been replaced.
        """
        time_step = self._env.step(action)
        if self._may_lose and np.all(time_step.is_last()):
            for loss in self._env.current_losses().values():
                raise EnvironmentLostError(loss)
        reward = float(agent_rewards(time_step.reward).sum())
        reward = reward if math.isfinite(reward) else 0.0
        discount = None
        if np.all(time_step.is_last()):
            discount = max(
                float(np.max(leaf)) for leaf in nest.flatten(time_step.discount)
            )
        return reward, discount, self._picture(time_step.observation)

    def close(self) -> None:
        self._env.close()

    def stamped_again(self) -> Array:
        """Returns the previous picture, stamped with the current time."""
        return self._stamped(self._shown)

    def _picture(self, observation: NestedArray) -> Array:
        self.observed = _few_numbers(observation)
        standing = texts_in(observation)
        fresh = [text for text in standing if text not in self._standing]
        self._standing = standing
        self.texts = [*fresh, *said_in(self._infos.read())][:_MOST_TEXTS]
        picture = self._env.render("rgb_array")
        self._shown = np.ascontiguousarray(picture, np.uint8)
        return self._stamped(self._shown)

    def _stamped(self, picture: Array) -> Array:
        probed_at = self.player.probed_at
        if probed_at is None and not self.is_stamped:
            return picture
        return stamped(picture, time.time(), probed_at or 0.0)


def texts_in(value: Any) -> list[str]:
    """Returns the texts in an observation or another value.

    Example:
        >>> texts_in({"mission": np.array("go to the door"), "image": np.zeros(3)})
        ['go to the door']
    """
    texts: list[str] = []
    for leaf in nest.flatten(value):
        if isinstance(leaf, str):
            texts.append(leaf)
        elif isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind == "U":
            texts += np.atleast_1d(leaf).reshape(-1).tolist()
    return [text[:_LONGEST_TEXT] for text in texts if text]


def said_in(info: Any) -> list[str]:
    """Returns the texts in an info, from `env.text` or `text`.

    Example:
        >>> said_in({"text": "hello", "path": "/tmp", "env.text": ["a", "b"]})
        ['a', 'b', 'hello']
    """
    if not isinstance(info, Mapping):
        return []
    return [text for name in _SAID for text in texts_in(info.get(name))]


# Two rows of two pixels, which clients search for to find the stamp.
_ANCHOR = (
    ((0x12, 0x34, 0x56), (0x78, 0x90, 0xAB)),
    ((0x23, 0x45, 0x67), (0x89, 0x0A, 0xBC)),
)


def stamped(picture: Array, now: float, probed_at: float) -> Array:
    """Draws two times into a corner, as Universe's environments did.

    Clients that probe the latency read them from the picture: when it was drawn, and
    when the last probe arrived. The picture stays as it is if it is too small or
    contains one of the stamp's colours.

    Example:
        >>> stamped(np.zeros((3, 8, 3), np.uint8), 1.5, 0.25)[1, 2:6].tolist()
        [[0, 0, 0], [0, 5, 220], [0, 0, 0], [0, 0, 250]]
    """
    height, width = picture.shape[:2]
    if height < 2 or width < 6 or (picture == _ANCHOR[0][0]).all(axis=2).any():
        return picture
    picture = picture.copy()
    picture[-2:, :2] = _ANCHOR
    for number, moment in enumerate((now, probed_at)):
        data = int(moment * 1000).to_bytes(6, "big")
        column = 2 + 2 * number
        picture[-2, column : column + 2] = np.frombuffer(data, np.uint8).reshape(2, 3)
    return picture


def _env_id_of(offer: Offer) -> str:
    """Returns the id of an environment in Gym's form: a name and a version.

    Example:
        >>> _env_id_of(Offer("Catch")), _env_id_of(Offer("envkit.envs:CartPole"))
        ('Catch-v1', 'CartPole-v0')
    """
    name = _plain(offer.id if offer.id in offer.names else offer.name)
    return name if re.search(r"-v\d+$", name) else f"{name}-v{offer.version or 0}"


def _plain(name: str, with_version: bool = True) -> str:
    """Returns the last part of a name, with only the characters that Gym allows.

    Example:
        >>> _plain("gym-core.CartPole-v0"), _plain("ale:ALE/Pong-v5", False)
        ('CartPole-v0', 'Pong')
    """
    last = re.split(r"[:/.]", name)[-1] or name
    last = re.sub(r"[^\w-]", "-", last)
    return last if with_version else re.sub(r"-v\d+$", "", last)


def _few_numbers(observation: NestedArray) -> Any:
    """Returns a small observation for JSON, `None` for any other."""
    if not isinstance(observation, np.ndarray | np.number):
        return None
    is_small = observation.size <= _MOST_NUMBERS and observation.dtype.kind in "biuf"
    is_told = is_small and bool(np.isfinite(observation).all())
    return observation.tolist() if is_told else None


def _is_pace(fps: Any) -> bool:
    is_number = isinstance(fps, int | float) and not isinstance(fps, bool)
    return is_number and SLOWEST <= fps <= FASTEST


def _ports(port: int | None) -> tuple[int, int]:
    if port is None:
        return USUAL_PORTS
    if port == 0:
        return 0, 0
    above = USUAL_PORTS[1] - USUAL_PORTS[0]
    if port > 65535 - above:
        raise ValueError(
            f"The port must leave room for the rewarder's, which is "
            f"{above} above, got {port}."
        )
    return port, port + above
