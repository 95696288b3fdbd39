"""`RemoteEpisodes`: the episodes of a remote of Universe, told by its rewarder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envkit.remote.rewarder import Message, RewarderError

__all__ = ["EpisodeEvents", "RemoteEpisodes", "ResetRefusedError"]


class ResetRefusedError(RewarderError):
    """The remote does not do what it is asked: to ask again is of no use."""


class EpisodeEvents:
    """What a rewarder has told of an episode, and is not handed on yet."""

    def __init__(self) -> None:
        self.reward, self.count = 0.0, 0
        self.done = self.interrupted = False
        self.state = ""
        self.discount = 0.0
        self.text: list[str] = []
        self.info: dict[str, Any] = {}


class RemoteEpisodes:
    """The episodes of a remote, as its rewarder tells them.

    Nothing that is told before the reply to a reset counts for what comes after it, and
    rewards of one episode never reach another. An episode that a newer one follows
    without an end has been interrupted.

    Attributes:
        episode: The number of the episode that is played; `None` before the first.
        env_id: What the remote calls its environment.
        fps: How many steps a second it makes.
        failure: What has ended the connection; `None` as long as nothing has.

    Example:
        >>> episodes = RemoteEpisodes()
        >>> def tell(method, episode, **body):
        ...     headers = {"episode_id": str(episode), "sent_at": 0.0}
        ...     episodes.take(Message(method, body, headers), now=0.0)
        >>> tell("v0.env.describe", 1, env_state="running")
        >>> episodes.begin(), episodes.episode
        (True, 1)
        >>> tell("v0.env.reward", 1, reward=2, done=False, info={})
        >>> tell("v0.env.reward", 1, reward=3, done=True, info={})
        >>> tell("v0.env.describe", 2, env_state="resetting")
        >>> told = episodes.pop()
        >>> told.reward, told.done, episodes.begin()
        (5.0, True, False)
        >>> tell("v0.env.describe", 2, env_state="running")
        >>> episodes.begin(), episodes.episode
        (True, 2)
    """

    def __init__(self) -> None:
        """Begins without an episode."""
        self.episode: int | None = None
        self.env_id, self.fps = "", 60.0
        self.failure: RewarderError | None = None
        self._told: dict[int, EpisodeEvents] = {}
        self._least = 0
        self._reply: int | None = None

    @property
    def awaits_reply(self) -> bool:
        """True if a reset was sent, and the reply has not come."""
        return self._reply is not None

    @property
    def newest(self) -> int:
        """The newest episode that was told of; 0 before."""
        return max(self._told, default=0)

    def await_reply(self, number: int) -> None:
        """Lets nothing count until the reply to a reset of this number has come."""
        self._reply, self.episode = number, None

    def take(self, message: Message, now: float) -> None:
        """Takes a message.

        Raises:
            RewarderError: It does not have what it must.
        """
        body, number = message.body, message.episode
        if message.method == "v0.reply.error":
            if self._is_awaited(message):
                raise ResetRefusedError(
                    f"The remote refuses the reset: {str(body.get('message'))[:500]}"
                )
            return
        if number is None or number < self._least:
            return
        told = self._told.setdefault(number, EpisodeEvents())
        sent = message.headers.get("sent_at")
        if isinstance(sent, int | float):
            told.info["reward_buffer.remote_time"] = sent
            told.info["reward_buffer.local_time"] = now
        if message.method == "v0.env.describe":
            told.state = str(body.get("env_state"))
            self.env_id = str(body.get("env_id") or "")
            fps = body.get("fps")
            self.fps = fps if isinstance(fps, int | float) and fps > 0 else self.fps
        elif message.method == "v0.env.reward":
            self._take_reward(told, body, now)
        elif message.method == "v0.env.text":
            told.text = [*told.text, str(body.get("text"))][-_MOST_TEXTS:]
        elif message.method == "v0.env.observation":
            told.info["rewarder.observation"] = body.get("observation")
        elif message.method == "v0.reply.env.reset" and self._is_awaited(message):
            self._reply = None
            self._drop_below(number)
        self._end_those_before(number)

    def _is_awaited(self, message: Message) -> bool:
        parent = message.headers.get("parent_message_id")
        return self._reply is not None and parent == self._reply

    def _take_reward(
        self, told: EpisodeEvents, body: Mapping[str, Any], now: float
    ) -> None:
        reward, info = body.get("reward", 0), body.get("info", {})
        if not isinstance(reward, int | float) or not isinstance(info, dict):
            raise RewarderError(
                "v0.env.reward must have a number as reward and an object as info, got "
                f"{reward!r:.40} and {info!r:.40}."
            )
        told.reward += reward
        told.count += 1
        told.info.update(info)
        if body.get("done"):
            told.done = True
            told.info["reward_buffer.done_time"] = now
            # Universe did not tell terminations from truncations; envkit's remotes do.
            discount = info.get("discount", 0.0)
            told.discount = discount if isinstance(discount, int | float) else 0.0

    def _end_those_before(self, number: int) -> None:
        for other, told in self._told.items():
            if other < number and not told.done:
                told.done = told.interrupted = True
                told.discount = 1.0
                told.info["env_status.artificial.done"] = True
        if len(self._told) > _MOST_EPISODES:
            kept = {self.episode, *sorted(self._told)[-_MOST_EPISODES // 2 :]}
            self._told = {one: told for one, told in self._told.items() if one in kept}

    def _drop_below(self, number: int) -> None:
        self._least = number
        self._told = {one: told for one, told in self._told.items() if one >= number}

    def begin(self) -> bool:
        """Goes to the newest episode, if it is running; returns whether it has."""
        newest = self._told.get(self.newest)
        if self.awaits_reply or newest is None or newest.state != "running":
            return False
        if self.episode == self.newest:
            return False
        self.episode = self.newest
        self._drop_below(self.newest)
        return True

    @property
    def done(self) -> bool:
        """True if the episode that is played is over."""
        told = self._told.get(-1 if self.episode is None else self.episode)
        return told is not None and told.done

    def pop(self) -> EpisodeEvents:
        """Returns what is new of the episode that is played."""
        assert self.episode is not None
        told = self._told[self.episode]
        self._told[self.episode] = rest = EpisodeEvents()
        rest.state, rest.done = told.state, told.done
        return told


_MOST_TEXTS, _MOST_EPISODES = 1 << 10, 1 << 10
