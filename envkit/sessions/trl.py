"""Environments for TRL's `GRPOTrainer`: `to_trl`."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from envkit.sessions.blocking import BlockingSessions
from envkit.sessions.leases import LeaseTimeout
from envkit.sessions.players import Player
from envkit.sessions.replies import Replies
from envkit.sessions.rewards import check_rewards
from envkit.sessions.session import Session, SessionLost, Turn
from envkit.sessions.sessions import Sessions
from envkit.sessions.signatures import method_of
from envkit.sessions.tools import Tool, call_text
from envkit.types import EnvConstructor

__all__ = ["TrlEnvironments", "to_trl"]

_LOGGER = logging.getLogger(__name__)

# Methods of an environment that TRL calls by itself.
_OWN = {"reset", "get_reward"}
# Seconds between two looks at whether a lease can still come.
_GLANCE = 1.0


def to_trl(
    target: str | EnvConstructor,
    size: int,
    *,
    tool: str = "act",
    description: str = "Acts, and returns what happens next.",
    **options: Any,
) -> TrlEnvironments:
    """Returns environments for `GRPOTrainer(environment_factory=...)` of TRL.

    The tools of the environment are the model's tools. An environment without tools
    has one, whose argument is the action. Each row of the data set must have a "seed":
    equal rows play the same episode. It may have "options" of the reset.

    The reward is the sum of the episode's rewards. If an environment is lost, it is
    `None`, so TRL leaves the sample out of the group's mean and gives it no advantage.
    Other reward functions must return `None` too where `environments[i].is_lost`.

    Args:
        target: The environments: a name that `make` knows, or a constructor.
        size: How many there are, at least as many as TRL plays at once: with
            `GRPOTrainer` the generation batch of each process, with `AsyncGRPOTrainer`
            `max_inflight_tasks`.
        tool: The name of the tool of an environment that declares none.
        description: What that tool does, for the model.
        **options: Arguments of `Sessions`, and of the environments.

    Returns:
        A function without arguments. Its `close()` closes the environments; so does
        leaving a with statement, or the end of the program.

    Example:
        >>> environments = to_trl("textarena:Wordle-v0", size=64, step_timeout=60.0)
        >>> environments
        <TrlEnvironments of 64 'textarena:Wordle-v0'>
    """
    return TrlEnvironments(target, size, tool, description, options)


class TrlEnvironments:
    """Makes objects for TRL, which play episodes in shared sessions.

    It can be pickled, as `AsyncGRPOTrainer` does; the copy starts its own environments.
    """

    def __init__(
        self,
        target: str | EnvConstructor,
        size: int,
        tool: str,
        description: str,
        options: Mapping[str, Any],
    ) -> None:
        """Prepares to start; the first call starts the workers."""
        self._arguments = (target, size, tool, description, options)
        self._shared = BlockingSessions(Sessions(target, size, **options))
        self._lock = threading.Lock()
        self._class: type[_TrlEnvironment] | None = None

    def __call__(self) -> Any:
        """Returns an object that plays one episode after another."""
        with self._lock:
            if self._class is None:
                self._class = self._shared.call(self._build)
        return self._class(self._shared)

    async def _build(self) -> type[_TrlEnvironment]:
        target, _, name, description, _ = self._arguments
        sessions = self._shared.sessions
        check_rewards(sessions)
        if sessions.tools:
            methods = {tool.name: _calling(tool) for tool in sessions.tools}
        else:
            replies = Replies(sessions.action_spec())
            methods = {name: _acting(name, description, replies)}
        for reserved in methods.keys() & _OWN:
            raise ValueError(
                f"A tool for TRL must not be called {reserved!r}: TRL calls the method "
                "of that name itself."
            )
        is_name = isinstance(target, str)
        title = target if is_name else getattr(target, "__name__", "Environment")
        return type(str(title), (_TrlEnvironment,), methods)

    def close(self) -> None:
        """Closes the environments."""
        self._shared.close()

    def __enter__(self) -> TrlEnvironments:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return TrlEnvironments, self._arguments

    def __repr__(self) -> str:
        target, size, *_ = self._arguments
        return f"<TrlEnvironments of {size} {target!r}>"


class _TrlEnvironment:
    """Plays one episode after another; a subclass has the tools."""

    def __init__(self, shared: BlockingSessions) -> None:
        self._player = Player(shared, _lease)

    @property
    def last_turn(self) -> Turn | None:
        """The last turn."""
        return self._player.turn

    @property
    def is_lost(self) -> bool:
        """Whether the episode was cut short by a failure, so that it is no sample."""
        return self._player.error is not None

    def reset(self, **row: Any) -> str | None:
        """Begins the episode of a row, and returns its first text."""
        try:
            text = self._player.begin(row).text
        except SessionLost as error:
            _LOGGER.warning("an episode of TRL could not begin: %s", error)
            return None  # It will have no reward, and the others go on.
        return f"\n\n{text}" if _has_text(row.get("prompt")) else text

    def get_reward(self) -> float | None:
        """Returns the sum of the episode's rewards, or `None` if it is no sample."""
        self._player.leave()
        turn = self._player.turn
        return None if turn is None or self._player.error else float(turn.total)

    def __repr__(self) -> str:
        player = self._player
        state = f"lost: {player.error}" if player.error else f"{player.turn}"
        return f"<{type(self).__name__}, {state}>"


def _calling(tool: Tool) -> Any:
    def call(env: _TrlEnvironment, arguments: Mapping[str, Any]) -> str:
        return env._player.play(call_text((tool,), tool.name, arguments)).text

    return method_of(tool, call)


def _acting(name: str, description: str, replies: Replies) -> Any:
    def act(env: _TrlEnvironment, arguments: Mapping[str, Any]) -> str:
        action = arguments["action"]
        reply = action if isinstance(action, str) else json.dumps(action)
        return env._player.play(replies.action(reply)).text

    words = f"What to do, as {json.dumps(replies.schema)}."
    is_text = replies.schema.get("type") == "string"
    schema = {**replies.schema, "description": "What to do." if is_text else words}
    parameters = {"properties": {"action": schema}, "required": ["action"]}
    return method_of(Tool(name, description, parameters), act)


def _has_text(prompt: Any) -> bool:
    content = prompt[-1]["content"] if prompt else None
    return isinstance(content, str) and bool(content.strip())


async def _lease(sessions: Sessions, seed: int) -> Session:
    """Leases an environment.

    TRL begins all episodes of a batch before it plays one, so waiting for a session of
    another episode would take forever.
    """
    while True:
        now = sessions.statistics()
        if now.leased >= now.size > 0:
            lost = sessions.size - now.size
            raise ValueError(
                f"TRL plays more than {now.size} episodes at once, and has as many "
                f"environments{f', since {lost} were lost for good' if lost else ''}. "
                "Pass to_trl a larger size: GRPOTrainer needs one for each sample of a "
                "generation batch."
            )
        with contextlib.suppress(LeaseTimeout):
            return await sessions.lease(seed=seed, timeout=_GLANCE)
