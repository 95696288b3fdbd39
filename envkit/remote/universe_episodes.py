"""Universe's episodes, both ends of them: which one is played, and what is about it.

A remote numbers its episodes. It begins the next one without being asked, and tells
what happens as it happens, so messages about an episode may come before the one before
it is seen through, or after the next has begun. `EPISODES` is the table of states of a
client (`RemoteEpisodes`); a server has two states (`ServedEpisodes`).

| state of a client | the episode that is played                          |
|-------------------|-----------------------------------------------------|
| `ASKED`           | none: a reset is not answered yet                   |
| `WAITING`         | none: the newest is, as soon as it runs             |
| `PLAYING`         | is under way                                        |
| `OVER`            | has ended; `pop` has the rest of it until `begin`   |

| message about     | counts                                              |
|-------------------|-----------------------------------------------------|
| the one played    | always, also late: until the next one begins        |
| the newest        | always; it ends the one that is played, if need be  |
| any other         | never                                               |

| state of a server | the environment                                     |
|-------------------|-----------------------------------------------------|
| `running`         | makes steps                                         |
| `resetting`       | is about to begin the episode of this number        |

Rules for editing this file:

1. No sockets, threads or clocks: the owner hands in messages and times.
2. A client's state changes by `_go` alone, and only as `EPISODES` says.
3. What is kept is about two episodes, the one that is played and the newest, and each
   collection in it has a limit.
4. A reward is added to the sum of the episode in its header, and to no other one.
   tests/remote/test_universe_episodes.py tries that for any order of messages.
"""

from __future__ import annotations

import collections
import enum
import math
from collections.abc import Hashable
from typing import Any, NamedTuple

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
# How far a client's episode may be ahead of the server's, as after that began anew.
_MOST_AHEAD = 10**9


class ResetRefusedError(RewarderError):
    """The remote does not do what it is asked: to ask again is of no use."""


# The client's end.


class EpisodeState(enum.Enum):
    """Where a client is with the episodes of a remote."""

    ASKED = "asked"
    WAITING = "waiting"
    PLAYING = "playing"
    OVER = "over"


class Happening(enum.Enum):
    """What moves a client from state to state."""

    ASK = "a reset is sent"
    REPLY = "the reply to the reset comes"
    BEGIN = "the newest episode begins"
    END = "the end comes, or word of a newer episode"


_S, _H = EpisodeState, Happening
EPISODES: dict[EpisodeState, dict[Happening, EpisodeState]] = {
    _S.ASKED: {_H.ASK: _S.ASKED, _H.REPLY: _S.WAITING},
    _S.WAITING: {_H.ASK: _S.ASKED, _H.BEGIN: _S.PLAYING},
    _S.PLAYING: {_H.ASK: _S.ASKED, _H.END: _S.OVER},
    _S.OVER: {_H.ASK: _S.ASKED, _H.BEGIN: _S.PLAYING, _H.END: _S.OVER},
}


class EpisodeEvents:
    """What a rewarder has said about an episode since the last look.

    Attributes:
        reward: The sum of the rewards.
        count: How many they were.
        done: Whether it is over.
        discount: The discount of its end.
        state: "running" or "resetting", as the rewarder has said last.
        info: What came with rewards, under Universe's names.
    """

    def __init__(self, state: str = "", *, done: bool = False) -> None:
        """Begins with nothing."""
        self.reward, self.count = 0.0, 0
        self.state, self.done, self.discount = state, done, 0.0
        self.info: dict[str, Any] = {}
        self._texts: collections.deque[tuple[int, Any]] = collections.deque()
        self._length = 0

    def pop_texts(self) -> list[Any]:
        """Returns the texts, and forgets them."""
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
            if message.done:
                # Universe did not tell terminations from truncations; envkit's
                # remotes do.
                discount = message.info.get("discount", 0.0)
                is_number = isinstance(discount, int | float) and 0 <= discount <= 1
                self.end(discount if is_number else 0.0)
                info["reward_buffer.done_time"] = received.at
            while len(info) > _MOST_INFOS:
                del info[next(iter(info))]

    def end(self, discount: float) -> None:
        """Ends the episode."""
        self.done, self.discount = True, float(discount)


class RemoteEpisodes:
    """The episodes of a remote, at the end of a client.

    Attributes:
        state: Where the client is.
        episode: The number of the episode that is played; `None` for none.
        env_id: What the remote calls its environment.
        fps: How many steps a second it makes.
        failure: What has ended the connection; `None` as long as nothing has.

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
        """Begins without an episode."""
        self.state = EpisodeState.WAITING
        self.episode: int | None = None
        self.env_id, self.fps = "", 60.0
        self.failure: RewarderError | None = None
        # What is about the episode that is played, and about the newest one.
        self._events: dict[int, EpisodeEvents] = {}
        # Episodes below this one are of the past.
        self._least = 0
        self._request: int | None = None

    @property
    def newest(self) -> int:
        """The number of the newest episode that the remote spoke of; 0 before."""
        return max(self._events, default=0)

    @property
    def done(self) -> bool:
        """True if the episode that is played is over."""
        return self.state is EpisodeState.OVER

    def ask(self, request: int) -> None:
        """Lets no episode begin before the reply to a reset with this number."""
        self._go(Happening.ASK)
        newest = self.newest
        self._request, self.episode = request, None
        self._events = {one: it for one, it in self._events.items() if one == newest}

    def receive(self, received: Received) -> None:
        """Reads a message.

        Raises:
            ResetRefusedError: The remote refuses the reset that it was asked for.
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
        """Goes to the newest episode if it runs and is another; True if it has."""
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
        """Returns what is new about the episode that is played."""
        assert self.episode is not None
        events = self._events[self.episode]
        self._events[self.episode] = EpisodeEvents(events.state, done=events.done)
        return events

    def pop_texts(self) -> list[Any]:
        """Returns the texts of the episode that is played, and leaves the rest."""
        assert self.episode is not None
        return self._events[self.episode].pop_texts()

    def _go(self, happening: Happening) -> None:
        if happening not in EPISODES[self.state]:
            raise RuntimeError(f"{happening.value} while {self.state.value}.")
        self.state = EPISODES[self.state][happening]

    def _end_played(self) -> None:
        """Ends the episode that is played, if it is done or a newer one is there."""
        if self.episode is None:
            return
        events = self._events[self.episode]
        if not events.done and self.newest > self.episode:
            # The remote has not said so: it was interrupted.
            events.end(1.0)
            events.info["env_status.artificial.done"] = True
        if events.done:
            self._go(Happening.END)

    def _forget_before(self, number: int) -> None:
        self._least = number
        self._events = {
            one: events for one, events in self._events.items() if one >= number
        }


# The server's end.


class AskedReset(NamedTuple):
    """A reset that a client has asked for.

    Attributes:
        client: Who asks.
        seed: The seed; `None` for none.
        episode: The episode that the client knows; 0 if none.
        asked_at: When it has come, by our clock, which never goes back.
        sent_at: When it was sent, by the client's clock.
    """

    client: Hashable
    seed: int | None
    episode: int
    asked_at: float
    sent_at: float


class ServedEpisodes:
    """The numbers of episodes, at the end of a server.

    Attributes:
        number: The number of the episode.
        is_running: True if it is under way, and false if it is about to begin.

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
        """Begins with the first episode, which runs."""
        self.number, self.is_running = 1, True
        # When it began.
        self._began_at = -math.inf
        # The reset that was done last, its episode, and the seconds until the reply.
        self._last: tuple[AskedReset, int, float] | None = None

    def check(self, episode: int) -> None:
        """Checks the episode that a client wants to end.

        Raises:
            RewarderError: There cannot be one of that number.
        """
        if episode > self.number + _MOST_AHEAD:
            raise RewarderError(f"There is no episode {episode}, which you ask to end.")

    def reset(self, known: int = 0) -> int:
        """Goes to the next episode, after the one that a client knows; returns it."""
        self.number, self.is_running = max(known, self.number) + 1, False
        return self.number

    def run(self, now: float) -> None:
        """Lets the episode run."""
        self.is_running, self._began_at = True, now

    def remember(self, asked: AskedReset | None, now: float) -> None:
        """Remembers the reset that the episode was for; `None` forgets the last."""
        self._last = None
        if asked is not None:
            self._last = (asked, self.number, now - asked.asked_at)

    def is_repeated(self, asked: AskedReset) -> bool:
        """Returns True if its client would not have asked, had it known the episode.

        Of two resets in a row the second is sent before the first is answered. With an
        episode for each, the client would be told of one that ends at once, with reward
        0. It says which episode it knows, or 0 where it does not matter to it.
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
        # The reply was still on its way. Both times are of the client's clock.
        since = asked.sent_at - last.sent_at
        return 0 < asked.episode < number or 0 <= since < took
