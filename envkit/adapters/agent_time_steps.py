"""`AgentTimeSteps`: an environment with several agents, as a time step for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.forwarding import forwarded
from envkit.adapters.pettingzoo_parts.agent_views import AgentParts, AgentView
from envkit.errors import CallOrderError
from envkit.time_step import StepType, TimeStep
from envkit.types import NestedArray, NestedSpec

__all__ = ["AgentTimeSteps"]


class AgentTimeSteps:
    """Shows each agent of an environment a stream of its own.

    `reset` and `step` return a dictionary of time steps, with one for each agent that
    takes part or has just ended. Each agent's stream is `FIRST (MID)* LAST`, whenever
    in the episode it comes and goes; its `LAST` has its final observation, and discount
    0 if the game terminated for it. The step after the end of the episode begins the
    next one.

    It takes environments whose observation says who is alive, as those of
    `PettingZooWrapper` do, and any whose arrays begin with a dimension of agents. It
    keeps nothing itself: wrappers, `seed`, `get_state` and `set_state` are the
    environment's.

    Example:
        >>> from pettingzoo.classic.rps.rps import parallel_env
        >>> from envkit.adapters import PettingZooWrapper
        >>> env = AgentTimeSteps(PettingZooWrapper(lambda: parallel_env(max_cycles=3)))
        >>> sorted(env.reset())
        ['player_0', 'player_1']
        >>> steps = env.step({"player_0": 0, "player_1": 1})
        >>> float(steps["player_1"].reward), int(steps["player_1"].step_type)
        (1.0, 1)
        >>> env.close()
    """

    def __init__(self, env: Any, agents: Sequence[Any] | None = None) -> None:
        """Shows an environment.

        Args:
            env: A single environment of envkit's.
            agents: What to call the agents; `None` for the environment's
                `possible_agents`, or else "agent_0", "agent_1" and so on.
        """
        self._env = env
        self._view = AgentView(env, agents, "AgentTimeSteps")

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, self.wrapped_env, name)

    def wrapped_env(self) -> Any:
        """Returns the environment."""
        return self._env

    @property
    def possible_agents(self) -> list[Any]:
        """All agents that may take part."""
        return list(self._view.agents)

    @property
    def agents(self) -> list[Any]:
        """The agents that act in the next step; none where that begins an episode."""
        time_step = self._current()
        if time_step is None or time_step.is_last():
            return []
        alive = self._view.parts(time_step).alive
        return [self._view.agents[place] for place in _places(alive)]

    def observation_spec(self, agent: Any) -> NestedSpec:
        """Returns the specs of what an agent observes."""
        return self._view.observation_specs[self._place(agent)]

    def action_spec(self, agent: Any) -> NestedSpec:
        """Returns the specs of what an agent does."""
        return self._view.action_specs[self._place(agent)]

    def time_step_spec(self, agent: Any) -> TimeStep:
        """Returns the specs of an agent's time steps."""
        place = self._place(agent)
        return TimeStep(
            step_type=self._env.time_step_spec().step_type,
            reward=self._view.reward_specs[place],
            discount=self._view.discount_specs[place],
            observation=self._view.observation_specs[place],
        )

    def reset(self) -> dict[Any, TimeStep]:
        """Begins an episode, and returns the `FIRST` of each agent in it."""
        return self._shown(None, self._env.reset())

    def step(self, actions: Mapping[Any, NestedArray]) -> dict[Any, TimeStep]:
        """Applies the actions of all agents that are in `agents`; others are ignored.

        Raises:
            CallOrderError: An agent's action is missing, or nobody has this name.
        """
        before = self._current()
        if before is None or before.is_last():
            return self._shown(None, self._env.step(self._view.join_actions({})))
        parts = self._view.parts(before)
        given = {self._place(agent): action for agent, action in actions.items()}
        missing = [place for place in _places(parts.alive) if place not in given]
        if missing:
            raise CallOrderError(
                "AgentTimeSteps.step() was given no action of "
                f"{self._view.agents[missing[0]]!r}, which takes part: each of "
                f"{self.agents!r:.200} has to act."
            )
        acting = {place: given[place] for place in _places(parts.alive)}
        return self._shown(parts, self._env.step(self._view.join_actions(acting)))

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _current(self) -> TimeStep | None:
        try:
            time_step: TimeStep = self._env.current_time_step()
        except CallOrderError:
            return None
        return time_step

    def _place(self, agent: Any) -> int:
        if agent not in self._view.agents:
            raise CallOrderError(
                f"AgentTimeSteps has no agent {agent!r}; the agents are "
                f"{self._view.agents!r:.200}."
            )
        return self._view.agents.index(agent)

    def _shown(
        self, before: AgentParts | None, time_step: TimeStep
    ) -> dict[Any, TimeStep]:
        """Returns the time steps of those that took part before, or do so now."""
        parts = self._view.parts(time_step)
        begins = before is None or bool(time_step.is_first())
        is_over = bool(time_step.is_last())
        steps = {}
        for place, agent in enumerate(self._view.agents):
            was = not begins and before is not None and before.alive[place]
            goes_on = parts.alive[place] and not is_over
            if was:
                step_type = StepType.MID if goes_on else StepType.LAST
                steps[agent] = self._made(place, step_type, parts)
            elif goes_on:
                steps[agent] = self._made(place, StepType.FIRST, parts)
        return steps

    def _made(self, place: int, step_type: Any, parts: AgentParts) -> TimeStep:
        reward, discount = parts.rewards[place], parts.discounts[place]
        if step_type is StepType.FIRST:
            # What came of what others did is not what this agent earned.
            reward = nest.map_structure(np.zeros_like, reward)
            discount = np.ones_like(discount)
        return TimeStep(step_type, reward, discount, parts.observations[place])


def _places(alive: Sequence[bool]) -> list[int]:
    return [place for place, is_alive in enumerate(alive) if is_alive]
