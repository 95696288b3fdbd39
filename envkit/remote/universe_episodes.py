"""Tracks the episodes of Universe remotes, at the client and at the server.

A remote numbers its episodes. It begins the next one by itself and reports events as
they happen. So messages about an episode may arrive before the client has finished the
previous one, or after the next one has begun. `EPISODES` is the table of a client's
states (`RemoteEpisodes`); a server has two states (`ServedEpisodes`).

| state of a client | the played episode                                  |
|-------------------|-----------------------------------------------------|
| `ASKED`           | none: a reset is unanswered                         |
| `WAITING`         | none: the newest one will be, as soon as it runs    |
| `PLAYING`         | is running                                          |
| `OVER`            | has ended; `pop` returns the rest until `begin`     |

| message about     | counts                                              |
|-------------------|-----------------------------------------------------|
| the played one    | always, even late, until the next one begins        |
| the newest one    | always; it ends the played one if necessary         |
| any other         | never                                               |

| state of a server | the environment                                     |
|-------------------|-----------------------------------------------------|
| `running`         | makes steps                                         |
| `resetting`       | is about to begin the episode with this number      |

Rules for editing this file:

1. No sockets, threads or clocks: the owner passes in messages and times.
2. Only `_go` changes a client's state, and only as `EPISODES` allows.
3. Data is kept about two episodes, the played one and the newest one, and each
   collection in it has a limit.
4. A reward is added to the episode in its header and to no other.
   tests/remote/test_universe_episodes.py checks this for any order of messages.
"""

from __future__ import annotations

import collections
import enum
import math
from collections.abc import Hashable
from typing import Any, NamedTuple

from envkit.remote.losses import KINDS
from envkit.remote.rewarder import (
    Describe,
    ErrorReply,
    Observation,
    Received,
    ResetReply,
    Reward,
    RewarderError,
    Text,
)

__all__ = [
    "EPISODES",
    "AskedReset",
    "EpisodeEvents",
    "EpisodeState",
    "Happening",
    "RemoteEpisodes",
    "ResetRefusedError",
    "ServedEpisodes",
]

_MOST_TEXTS, _LONGEST_TEXTS = 1 << 10, 1 << 20
_MOST_INFOS = 1 << 8
# How far a client's episode may be ahead of the server's, as after the server
# restarted.
_MOST_AHEAD = 10**9
# What an artificial end counts as if the remote has not given a reason.
_UNEXPLAINED = ("link_lost", "it has begun another episode without ending this one")


class ResetRefusedError(RewarderError):
    """The remote refuses a reset; asking again is pointless."""


# The client's end.


class EpisodeState(enum.Enum):
    """The state of a client."""

    ASKED = "asked"
    WAITING = "waiting"
    PLAYING = "playing"
    OVER = "over"


class Happening(enum.Enum):
    """The events that change a client's state."""

    ASK = "a reset is sent"
    REPLY = "the reply to the reset comes"
    BEGIN = "the newest episode begins"
    END = "the end comes, or news of a newer episode"


_S, _H = EpisodeState, Happening
EPISODES: dict[EpisodeState, dict[Happening, EpisodeState]] = {
    _S.ASKED: {_H.ASK: _S.ASKED, _H.REPLY: _S.WAITING},
    _S.WAITING: {_H.ASK: _S.ASKED, _H.BEGIN: _S.PLAYING},
    _S.PLAYING: {_H.ASK: _S.ASKED, _H.END: _S.OVER},
    _S.OVER: {_H.ASK: _S.ASKED, _H.BEGIN: _S.PLAYING, _H.END: _S.OVER},
}


class EpisodeEvents:
    """The rewarder's reports about an episode since the last `pop`.

    Attributes:
        reward: The sum of the rewards.
        count: The number of rewards.
        done: Whether the episode is over.
        discount: The discount of its end.
        is_artificial: Whether the remote has not reported that end.
        state: The rewarder's last report: "running" or "resetting".
        loss: The kind of the loss behind an artificial end, and the reason.
        info: The infos sent with rewards, under Universe's names.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.reward, self.count = 0.0, 0
        self.state, self.done, self.discount = "", False, 0.0
        self.is_artificial = False
        self.loss = _UNEXPLAINED
        self.info: dict[str, Any] = {}
        self._texts: collections.deque[tuple[int, Any]] = collections.deque()
        self._length = 0

    def pop_texts(self) -> list[Any]:
        """Returns and removes the texts."""
        texts = [text for _, text in self._texts]
        self._texts.clear()
        self._length = 0
        return texts

    def add(self, received: Received) -> None:
        """Adds a message about the episode."""
        message, info = received.message, self.info
        if math.isfinite(received.sent_at):
            info["reward_buffer.remote_time"] = received.sent_at
            info["reward_buffer.local_time"] = received.at
        if isinstance(message, Describe):
            self.state = message.env_state
        elif isinstance(message, Text):
            self._texts.append((received.size, message.text))
            self._length += received.size
            while len(self._texts) > _MOST_TEXTS or self._length > _LONGEST_TEXTS:
                self._length -= self._texts.popleft()[0]
        elif isinstance(message, Observation):
            info["rewarder.observation"] = message.observation
        elif isinstance(message, Reward):
            self.reward += message.reward
            self.count += 1
            info.update(message.info)
            kind = message.info.get("loss")
            if isinstance(kind, str) and kind in KINDS:
                self.loss = kind, str(message.info.get("error"))
            if message.done:
                # Universe did not distinguish terminations from truncations; envkit's
                # remotes do.
                discount = message.info.get("discount", 0.0)
                is_number = isinstance(discount, int | float) and 0 <= discount <= 1
                self.end(discount if is_number else 0.0)
                info["reward_buffer.done_time"] = received.at
            while len(info) > _MOST_INFOS:
                del info[next(iter(info))]

    def interrupt(self) -> None:
        """Ends the episode without a report of the remote."""
        self.end(1.0)
        self.is_artificial = True
        self.info["env_status.artificial.done"] = True

    def end(self, discount: float) -> None:
        """Ends the episode."""
        self.done, self.discount = True, float(discount)


class RemoteEpisodes:
    """The episodes of a remote, at the client's end.

    Attributes:
        state: The client's state.
        episode: The number of the played episode, or `None`.
        env_id: The remote's name for its environment.
        fps: The remote's steps a second.
        failure: The error that ended the connection, or `None`.

    Example:
        >>> episodes = RemoteEpisodes()
        >>> def receive(*messages):
        ...     for message in messages:
        ...         episodes.receive(Received(message))
        >>> receive(Describe(1, "Catch-v1", "running", 60.0))
        >>> episodes.begin(), episodes.episode
        (True, 1)
        >>> receive(Reward(1, 2.0, False, {}), Reward(1, 3.0, True, {}))
        >>> receive(Describe(2, "Catch-v1", "resetting", 60.0))
        >>> events = episodes.pop()
        >>> events.reward, events.done, episodes.begin()
        (5.0, True, False)
        >>> receive(Describe(2, "Catch-v1", "running", 60.0))
        >>> episodes.begin(), episodes.episode
        (True, 2)
    """

    def __init__(self) -> None:
        """Starts without an episode."""
        self.state = EpisodeState.WAITING
        self.episode: int | None = None
        self.env_id, self.fps = "", 60.0
        self.failure: RewarderError | None = None
        # Events of the played episode and of the newest one.
        self._events: dict[int, EpisodeEvents] = {}
        # Episodes below this number are past.
        self._least = 0
        self._request: int | None = None

    @property
    def newest(self) -> int:
        """The number of the newest reported episode; 0 before."""
        return max(self._events, default=0)

    @property
    def done(self) -> bool:
        """True if the played episode is over."""
        return self.state is EpisodeState.OVER

    def ask(self, request: int) -> None:
        """Delays the next episode until the reply to a reset with this number."""
        self._go(Happening.ASK)
        newest = self.newest
        self._request, self.episode = request, None
        self._events = {one: it for one, it in self._events.items() if one == newest}

    def receive(self, received: Received) -> None:
        """Reads a message.

        Raises:
            ResetRefusedError: The remote refuses the reset.
        """
        message = received.message
        is_reply = self._request is not None and received.parent == self._request
        if isinstance(message, ErrorReply) and is_reply:
            raise ResetRefusedError(
                f"The remote refuses the reset: {message.message[:500]}"
            )
        number = getattr(message, "episode", None)
        if isinstance(message, ResetReply) and is_reply:
            self._go(Happening.REPLY)
            self._request = None
            self._forget_before(max(message.episode, self._least))
        if number is None or number < self._least:
            return
        if isinstance(message, Describe):
            self.env_id, self.fps = message.env_id, message.fps or self.fps
        if number > self.newest or number == self.episode or not self._events:
            self._events.setdefault(number, EpisodeEvents())
            kept = {self.episode, self.newest}
            self._events = {
                one: events for one, events in self._events.items() if one in kept
            }
        if number in self._events:
            self._events[number].add(received)
        self._end_played()

    def begin(self) -> bool:
        """Plays the newest episode if it is another and runs; returns True if so."""
        newest = self._events.get(self.newest)
        if (
            Happening.BEGIN not in EPISODES[self.state]
            or newest is None
            or newest.state != "running"
            or self.newest == self.episode
        ):
            return False
        self._go(Happening.BEGIN)
        self.episode = self.newest
        self._forget_before(self.episode)
        self._end_played()
        return True

    def pop(self) -> EpisodeEvents:
        """Returns and removes the events of the played episode."""
        assert self.episode is not None
        events = self._events[self.episode]
        self._events[self.episode] = rest = EpisodeEvents()
        # The report of a loss may come before the news of the episode after it.
        rest.state, rest.done, rest.loss = events.state, events.done, events.loss
        return events

    def pop_texts(self) -> list[Any]:
        """Returns and removes only the texts of the played episode."""
        assert self.episode is not None
        return self._events[self.episode].pop_texts()

    def _go(self, happening: Happening) -> None:
        if happening not in EPISODES[self.state]:
            raise RuntimeError(f"{happening.value} while {self.state.value}.")
        self.state = EPISODES[self.state][happening]

    def _end_played(self) -> None:
        """Ends the played episode if it is done or a newer one exists."""
        if self.episode is None:
            return
        events = self._events[self.episode]
        if not events.done and self.newest > self.episode:
            # The remote did not report its end, so it was interrupted.
            events.interrupt()
        if events.done:
            self._go(Happening.END)

    def _forget_before(self, number: int) -> None:
        self._least = number
        self._events = {
            one: events for one, events in self._events.items() if one >= number
        }


# The server's end.


class AskedReset(NamedTuple):
    """A client's request for a reset.

    Attributes:
        client: The client.
        seed: The seed, or `None`.
        episode: The latest episode that the client knows; 0 if none.
        asked_at: The time of arrival by this machine's monotonic clock.
        sent_at: The time of sending by the client's clock.
    """

    client: Hashable
    seed: int | None
    episode: int
    asked_at: float
    sent_at: float


class ServedEpisodes:
    """The numbers of episodes, at the server's end.

    Attributes:
        number: The number of the episode.
        is_running: True if it is running, False if it is about to begin.

    Example:
        >>> episodes = ServedEpisodes()
        >>> asked = AskedReset("a client", None, 0, asked_at=4.0, sent_at=4.0)
        >>> episodes.is_repeated(asked), episodes.reset(), episodes.is_running
        (False, 2, False)
        >>> episodes.run(now=5.0)
        >>> episodes.is_repeated(asked), episodes.reset(7)
        (True, 8)
    """

    def __init__(self) -> None:
        """Starts with the first episode, already running."""
        self.number, self.is_running = 1, True
        # When the episode began.
        self._began_at = -math.inf
        # The last reset, its episode, and the seconds until the reply.
        self._last: tuple[AskedReset, int, float] | None = None

    def check(self, episode: int) -> None:
        """Checks the episode that a client wants to end.

        Raises:
            RewarderError: There cannot be an episode with that number.
        """
        if episode > self.number + _MOST_AHEAD:
            raise RewarderError(f"There is no episode {episode} to end.")

    def reset(self, known: int = 0) -> int:
        """Moves past the episode that a client knows; returns the new number."""
        self.number, self.is_running = max(known, self.number) + 1, False
        return self.number

    def run(self, now: float) -> None:
        """Marks the episode as running."""
        self.is_running, self._began_at = True, now

    def remember(self, asked: AskedReset | None, now: float) -> None:
        """Remembers the reset that began the episode; `None` forgets the last one."""
        self._last = None
        if asked is not None:
            self._last = (asked, self.number, now - asked.asked_at)

    def is_repeated(self, asked: AskedReset) -> bool:
        """Returns True if the client asked only because it did not know the episode.

        If a client sends two resets in a row, the second leaves before the first is
        answered. With an episode for each, the first would end at once, with reward 0.
        The client sends the episode that it knows, or 0 if it does not care.
        """
        last, number, took = self._last or (None, 0, 0.0)
        if last is not None and last.client is not asked.client:
            last = None
        is_seeded = last is not None and (last.seed, number) == (
            asked.seed,
            self.number,
        )
        if self.number <= asked.episode or not (asked.seed is None or is_seeded):
            return False
        if last is None or asked.asked_at <= self._began_at:
            return asked.asked_at <= self._began_at
        # The reply was still on its way. Both times are by the client's clock.
        since = asked.sent_at - last.sent_at
        return 0 < asked.episode < number or 0 <= since < took
