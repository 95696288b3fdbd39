"""Sessions for the trainer verifiers: `to_verifiers`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envkit.errors import MissingDependencyError
from envkit.extend import describe
from envkit.sessions.replies import Replies
from envkit.sessions.rewards import check_rewards
from envkit.sessions.session import Session, Turn, unless_lost
from envkit.sessions.sessions import Sessions
from envkit.types import EnvConstructor

__all__ = ["to_verifiers"]

_KEYS = {"seed", "options", "name", "system_prompt"}


def to_verifiers(
    target: str | EnvConstructor,
    size: int,
    *,
    seeds: Iterable[int] | None = None,
    tasks: Iterable[Mapping[str, Any]] | None = None,
    system_prompt: str | None = None,
    **kwargs: Any,
) -> tuple[type[Any], type[Any]]:
    """Returns a taskset and an environment for verifiers 0.4, which `vf-eval` runs.

    A module that exports both is what verifiers calls a taskset:

    ```
    # catch_tasks.py
    from envkit.sessions import to_verifiers

    Tasks, Environment = to_verifiers("Catch", size=64, seeds=range(1000))
    __all__ = ["Environment", "Tasks"]
    ```

    ```console
    $ vf-eval catch-tasks -n 10 -r 8 -m MODEL
    ```

    A task is the episode of one seed; its rollouts are attempts at it. The
    environment's text is the user, and the model's reply is the action. A reply that is
    no action is explained to the model, and no step is made. The episode's sum of
    rewards is the reward "reward".

    A rollout whose environment was lost raises `SessionLost`. Its trace is an error
    without a reward.

    Args:
        target: The environments, as `Sessions` takes them.
        size: How many there are; further rollouts wait for one.
        seeds: The seeds of the tasks; without seeds and tasks, 0, 1, 2 and so on, and
            `vf-eval -n` says how many.
        tasks: In place of seeds, dictionaries with the keys "seed", "options" (of the
            reset), "name" and "system_prompt", all optional. verifiers writes them to
            its records as JSON.
        system_prompt: The system prompt of all tasks.
        **kwargs: Further arguments of `Sessions`, and of the environments.

    Raises:
        MissingDependencyError: verifiers is not installed.
        ValueError: Both seeds and tasks are given.
        TypeError: A task has an unknown key.
    """
    if seeds is not None and tasks is not None:
        raise ValueError("to_verifiers takes seeds or tasks, and got both.")
    rows = None if tasks is None else [_checked(task) for task in tasks]
    if seeds is not None:
        rows = [{"seed": seed} for seed in seeds]
    try:
        import verifiers.v1 as vf
        from verifiers.v1.harnesses.null import NullHarnessConfig
    except ImportError as error:
        raise MissingDependencyError.needed_by(
            "to_verifiers", package="verifiers", extra="verifiers"
        ) from error

    class SessionData(vf.TaskData):  # type: ignore[misc]  # a class of verifiers'
        seed: int | None = None
        options: dict[str, Any] | None = None

    class SessionTask(vf.Task[SessionData]):  # type: ignore[misc]  # as above
        pass

    class SessionTaskset(vf.Taskset[SessionTask]):  # type: ignore[misc]  # as above
        INFINITE = rows is None

        def load(self) -> Iterator[SessionTask]:
            found = ({"seed": seed} for seed in itertools.count())
            for row in found if rows is None else rows:
                data = {"system_prompt": system_prompt, **row}
                yield SessionTask(SessionData(**data), self.config.task)

    class SessionEnvConfig(vf.EnvConfig):  # type: ignore[misc]  # as above
        # A chat with the model, which runs no code and needs no sandbox.
        player: vf.AgentConfig = vf.AgentConfig(
            harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig()
        )

    class SessionEnv(vf.Env[SessionEnvConfig]):  # type: ignore[misc]  # as above
        _sessions: Sessions | None = None

        async def start(self) -> None:
            self._sessions = sessions = Sessions(target, size, **kwargs)
            await sessions.open()
            check_rewards(sessions)
            self._replies = Replies(sessions.action_spec(), sessions.tools)

        async def stop(self) -> None:
            if self._sessions is not None:
                await self._sessions.close()

        async def run(self, task: SessionTask, agents: Any) -> None:
            assert self._sessions is not None  # verifiers has called start()
            async with self._sessions.lease(seed=task.data.seed) as session:
                await _play(session, self._replies, task, agents.player)

    return SessionTaskset, SessionEnv


def _checked(task: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [key for key in task if key not in _KEYS]
    if unknown:
        raise TypeError(
            f"A task's keys must be among {sorted(_KEYS)}, got {describe(unknown[0])}."
        )
    return dict(task)


async def _play(session: Session, replies: Replies, task: Any, player: Any) -> None:
    """Plays an episode with a model.

    The interaction is opened first: an error while it is open marks the trace.
    """
    async with player.interaction(task) as interaction:
        turn = unless_lost(await session.reset(options=task.data.options))
        text = "\n\n".join(filter(None, [turn.text, replies.instructions]))
        while turn.end is None:
            segment = await interaction.turn(text)
            if segment.terminated:  # verifiers has ended it: a limit, or an error
                break
            turn, text = await _answered(session, replies, segment.last_reply)
        else:
            interaction.trace.stop(turn.end)
    trace = interaction.trace
    if trace.ok:
        trace.record_reward("reward", turn.total)
        trace.record_metric("steps", turn.steps)


async def _answered(session: Session, replies: Replies, reply: str) -> tuple[Turn, str]:
    """Makes a step; returns the turn, and what the model is told."""
    try:
        action = replies.action(reply)
    except ValueError as error:
        return session.turn, f"Error: {error}"
    turn = unless_lost(await session.step(action))
    return turn, turn.text
