"""Environments for SkyRL: `to_skyrl`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from envkit.errors import MissingDependencyError
from envkit.sessions.blocking import BlockingSessions
from envkit.sessions.leases import LeaseTimeout
from envkit.sessions.players import Player
from envkit.sessions.replies import Replies
from envkit.sessions.rewards import check_rewards
from envkit.sessions.session import Session
from envkit.sessions.sessions import Sessions
from envkit.types import EnvConstructor

__all__ = ["to_skyrl"]

_Message: TypeAlias = Mapping[str, Any]
_Facts: TypeAlias = dict[str, Any]


def to_skyrl(
    target: str | EnvConstructor,
    size: int,
    *,
    parse: Callable[[str], str] = str,
    patience: float = 300.0,
    **options: Any,
) -> type[Any]:
    """Returns a class of environments for `skyrl_gym.register`.

    Its objects play one episode each, in environments that they share. Each row of the
    data set must have a "seed": equal rows play the same episode. It may have "options"
    of the reset. The first text follows the prompt; it says how to reply if actions are
    not just text. A reply that is no action is answered with the reason.

    An episode ends with the environment's own, or after SkyRL's `max_turns`; the
    metadata of the last step say which of both, as "terminated" and "truncated". If an
    environment is lost, `SessionLost` is raised, which ends SkyRL's `generate`: no
    sample comes of it. A generator whose `agent_loop` tries again keeps the others.

    Args:
        target: The environments: a name that `make` knows, or a constructor.
        size: How many there are. SkyRL begins all episodes of a batch at once, each in
            one of its `max_env_workers` threads, and those that wait for an environment
            keep their thread: so there must be as many as episodes in a batch.
        parse: Takes the action out of a reply, such as from between tags. If it raises
            a `ValueError`, the model is told its message.
        patience: Seconds to wait for an environment while none makes a step.
        **options: Arguments of `Sessions`, and of the environments.

    Returns:
        The class. Its `close_environments()` closes them, and so does the end of the
        program.

    Example:
        >>> import skyrl_gym  # doctest: +SKIP
        >>> wordle = to_skyrl("textarena:Wordle-v0", size=64)  # doctest: +SKIP
        >>> skyrl_gym.register(id="wordle", entry_point=wordle)  # doctest: +SKIP
    """
    try:
        from skyrl_gym.envs.base_text_env import BaseTextEnv
    except ImportError as error:
        raise MissingDependencyError.needed_by(
            "to_skyrl", package="skyrl-gym", extra="skyrl"
        ) from error

    shared = BlockingSessions(Sessions(target, size, **options))

    class SkyrlEnvironment(BaseTextEnv):  # type: ignore[misc]  # a class of SkyRL's
        """Plays one episode, in an environment that it leases."""

        def __init__(
            self, env_config: Any = None, extras: Mapping[str, Any] | None = None
        ) -> None:
            super().__init__()
            self._row = extras or {}
            self.max_turns = self._row.get("max_turns") or math.inf
            self._player = Player(shared, functools.partial(_lease, patience))

        def init(self, prompt: Sequence[_Message]) -> tuple[list[_Message], _Facts]:
            """Begins the episode, and returns the prompt with its first text."""
            turn = self._player.begin(self._row)
            self._replies = Replies(
                shared.sessions.action_spec(), shared.sessions.tools
            )
            text = "\n\n".join(filter(None, [turn.text, self._replies.instructions]))
            return _with_text(prompt, text), self._facts()

        def step(self, action: str) -> _Facts:
            """Plays a reply of the model."""
            self.turns += 1
            try:
                reply = self._replies.action(parse(action))
            except ValueError as error:
                text, reward = f"Error: {error}", 0.0
            else:
                turn = self._player.play(reply)
                text, reward = turn.text, float(turn.reward)
            facts = self._facts()
            return {
                "observations": [{"role": "user", "content": text}],
                "reward": reward,
                "done": facts["terminated"] or facts["truncated"],
                "metadata": facts,
            }

        def close(self) -> None:
            """Gives the environment back."""
            self._player.leave()

        def get_metrics(self) -> _Facts:
            """Returns the facts of the episode, which SkyRL averages."""
            return self._facts()

        def _facts(self) -> _Facts:
            turn = self._player.turn
            end = None if turn is None else turn.end
            out_of_turns = end is None and self.turns >= self.max_turns
            return {
                "terminated": end == "terminated",
                "truncated": end == "truncated" or out_of_turns,
                "total": 0.0 if turn is None else float(turn.total),
                "steps": 0 if turn is None else turn.steps,
            }

        @staticmethod
        def close_environments() -> None:
            """Closes the environments of all objects of this class."""
            shared.close()

    title = target if isinstance(target, str) else getattr(target, "__name__", "")
    SkyrlEnvironment.__name__ = str(title) or SkyrlEnvironment.__name__
    return SkyrlEnvironment


def _with_text(prompt: Sequence[_Message], text: str) -> list[_Message]:
    """Adds text to the last message of the user, or as another message."""
    if not prompt or prompt[-1]["role"] != "user":
        return [*prompt, {"role": "user", "content": text}]
    *before, last = prompt
    content = "\n\n".join(filter(None, [last["content"], text]))
    return [*before, {**last, "content": content}]


async def _lease(patience: float, sessions: Sessions, seed: int) -> Session:
    """Leases an environment; waits as long as others make steps."""
    check_rewards(sessions)
    while True:
        before = sessions.statistics()
        try:
            return await sessions.lease(seed=seed, timeout=patience)
        except LeaseTimeout:
            now = sessions.statistics()
            if (now.steps, now.leases) == (before.steps, before.leases):
                raise LeaseTimeout(
                    f"No environment of {now.size} became free, and none made a step "
                    f"for {patience:g} seconds. Episodes that wait for an environment "
                    "keep threads of SkyRL, without which the others cannot go on: "
                    "pass to_skyrl as large a size as a batch has episodes."
                ) from None
