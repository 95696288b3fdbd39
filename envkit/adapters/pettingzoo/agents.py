"""`AgentTimeSteps`: an environment of several agents, as a time step for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.adapters.foreign import forwarded
from envkit.adapters.gymnasium.spaces import neutral_value
from envkit.adapters.pettingzoo.layouts import (
    AxisLayout,
    DictLayout,
    Layout,
    OneLayout,
)
from envkit.errors import CallOrderError
from envkit.extend import as_environment
from envkit.specs.arrays import ArraySpec
from envkit.time_step import StepType, TimeStep
from envkit.types import NestedArray, NestedSpec

__all__ = ["AgentParts", "AgentTimeSteps", "AgentView"]

_ONE = "agent_0"


class AgentParts(NamedTuple):
    """Holds the parts of a time step: one value per agent in every field."""

    alive: list[bool]
    observations: list[NestedArray]
    rewards: list[NestedArray]
    discounts: list[Any]


class AgentView:
    """Splits the values of an environment of several agents.

    Attributes:
        agents: The agents, in the order of the parts.
        observation_specs: Each agent's observation; with an `action_mask`, a dictionary
            of `observation` and `action_mask`.
        action_specs: Each agent's action.
        reward_specs: Each agent's reward.
        discount_specs: Each agent's discount.
        has_mask: Whether there are masks of legal actions.
    """

    def __init__(self, env: Any, agents: Sequence[Any] | None, who: str) -> None:
        """Examines an environment.

        Args:
            env: A single envkit environment.
            agents: Names for the agents; `None` for the environment's
                `possible_agents`, or else "agent_0", "agent_1" and so on.
            who: The subject of error messages.
        """
        _check_single(env, who)
        self._env_name = type(env).__name__
        self._who = who
        observation = env.observation_spec()
        layout = _layout_of(env, observation, agents, who)
        self.agents = layout.agents
        self._has_alive = _names_the_living(observation)
        self.has_mask = self._has_alive and "action_mask" in observation
        seen = self._seen(observation)
        self._split_seen = layout.splitting(seen)
        self.observation_specs = self._split_specs(layout, seen, "observation")
        action = env.action_spec()
        self.action_specs = self._split_specs(layout, action, "action")
        self._join_actions = layout.joining(self.action_specs)
        self._neutral_actions = [neutral_value(spec) for spec in self.action_specs]
        self.reward_specs, self._split_reward = self._numbers(layout, env.reward_spec())
        self.discount_specs, self._split_discount = self._numbers(
            layout, env.discount_spec()
        )
        if self._has_alive:
            self._split_alive = layout.splitting(observation["alive"])

    def parts(self, time_step: TimeStep) -> AgentParts:
        """Splits a time step into new arrays."""
        alive = [True] * len(self.agents)
        if self._has_alive:
            flags = self._split_alive(time_step.observation["alive"])
            alive = [bool(flag) for flag in flags]
        return AgentParts(
            alive,
            self._split_seen(self._seen(time_step.observation)),
            self._split_reward(time_step.reward),
            self._split_discount(time_step.discount),
        )

    def join_actions(self, actions: Mapping[int, NestedArray]) -> NestedArray:
        """Joins the actions of some agents, by index; others get a neutral action."""
        return self._join_actions(
            [
                actions.get(place, neutral)
                for place, neutral in enumerate(self._neutral_actions)
            ]
        )

    def _seen(self, observation: Any) -> Any:
        """Returns the part of an observation, or of its specs, that agents observe."""
        if not self._has_alive:
            return observation
        if not self.has_mask:
            return observation["observation"]
        mask, seen = observation["action_mask"], observation["observation"]
        if not isinstance(observation["alive"], Mapping):
            return {"observation": seen, "action_mask": mask}
        return {
            agent: {"observation": seen[agent], "action_mask": mask[agent]}
            for agent in self.agents
        }

    def _split_specs(
        self, layout: Layout, spec: NestedSpec, part: str
    ) -> list[NestedSpec]:
        if isinstance(layout, AxisLayout):
            count = len(self.agents)
            for path, leaf in nest.flatten_with_paths(spec):
                if leaf.shape[:1] != (count,):
                    raise ValueError(
                        f"{self._who} was given {self._env_name}, whose {part}_spec() "
                        f"has {leaf!r:.120} at {nest.join(part, path)}: it does not "
                        f"begin with a dimension of {count} agents."
                    )
        elif isinstance(layout, DictLayout):
            named = isinstance(spec, Mapping)
            if not named or set(spec) != set(self.agents):
                raise ValueError(
                    f"{self._who} was given {self._env_name}, whose {part}_spec() does "
                    f"not have the agents {self.agents!r:.200} as its keys."
                )
        return layout.split_specs(spec)

    def _numbers(self, layout: Layout, spec: NestedSpec) -> tuple[list[Any], Any]:
        """Returns specs and a function that splits; all share a single number."""
        count = len(self.agents)
        if isinstance(spec, ArraySpec) and spec.shape == ():
            return [spec] * count, lambda number: [
                np.array(number) for _ in range(count)
            ]
        specs = layout.split_specs(spec)
        return specs, layout.splitting(spec)


def _names_the_living(spec: NestedSpec) -> bool:
    return isinstance(spec, Mapping) and "alive" in spec and "observation" in spec


def _layout_of(
    env: Any, observation: Any, agents: Sequence[Any] | None, who: str
) -> Layout:
    if _names_the_living(observation):
        unknown = observation.keys() - {"observation", "alive", "action_mask"}
        if unknown:
            raise ValueError(
                f"{who} was given {type(env).__name__}, which observes "
                f"{sorted(unknown, key=str)!r:.120} beside what its agents see. "
                + (
                    'Its agents take turns: only PettingZooWrapper(env, agents="axis") '
                    "and similar environments have a part for each agent in every "
                    "step."
                    if "agent" in unknown
                    else "There is no agent to give that to."
                )
            )
        alive = observation["alive"]
        if isinstance(alive, Mapping):
            return DictLayout(_named(env, agents, list(alive), who))
        return AxisLayout(_named(env, agents, _numbered(alive.shape[0]), who))
    if agents is not None and len(agents) > 1:
        return AxisLayout(agents)
    for part in ("reward", "discount"):
        spec = getattr(env, f"{part}_spec")()
        if nest.is_nested(spec) or (part == "discount" and spec.shape != ()):
            raise ValueError(
                f"{who} was given {type(env).__name__}, whose {part}_spec() is "
                f"{spec!r:.200}, and whose observation does not say which agents are "
                "alive. If its arrays begin with a dimension of agents, name them: "
                'agents=["agent_0", "agent_1"].'
            )
    return OneLayout([_ONE] if agents is None else agents)


def _named(
    env: Any, given: Sequence[Any] | None, usual: list[Any], who: str
) -> list[Any]:
    names = given
    if names is None:
        names = getattr(env, "possible_agents", usual)
    if len(names) != len(usual):
        raise ValueError(
            f"{who} was given {len(names)} names, and {type(env).__name__} has "
            f"{len(usual)} agents."
        )
    return list(names)


def _numbered(count: int) -> list[Any]:
    return [f"agent_{place}" for place in range(count)]


def _check_single(env: Any, who: str) -> None:
    if getattr(env, "batched", False) is True:
        raise ValueError(
            f"{who} was given {type(env).__name__}, which is a batch; it takes a "
            "single environment."
        )


class AgentTimeSteps:
    """Gives each agent of an environment its own stream of time steps.

    `reset` and `step` return a dictionary with a time step for each agent that takes
    part or has just ended. Each agent's stream is `FIRST (MID)* LAST`, whenever in the
    episode it joins and leaves; its `LAST` has its final observation, and discount 0 if
    the game terminated for it. The step after the end of the episode begins the next
    one.

    It accepts environments whose observation says which agents are alive, as
    `PettingZooWrapper`'s does, and any whose arrays have a leading dimension of agents.
    It keeps no state: wrappers, `seed`, `get_state` and `set_state` are the
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
        """Wraps an environment.

        Args:
            env: A single envkit environment.
            agents: Names for the agents; `None` for the environment's
                `possible_agents`, or else "agent_0", "agent_1" and so on.
        """
        self._env = env = as_environment(env, "AgentTimeSteps was given")
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
        """The agents that act in the next step; empty if it begins an episode."""
        time_step = self._current()
        if time_step is None or time_step.is_last():
            return []
        alive = self._view.parts(time_step).alive
        return [self._view.agents[place] for place in _places(alive)]

    def observation_spec(self, agent: Any) -> NestedSpec:
        """Returns the specs of an agent's observation."""
        return self._view.observation_specs[self._place(agent)]

    def action_spec(self, agent: Any) -> NestedSpec:
        """Returns the specs of an agent's action."""
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
        """Applies the actions of all agents in `agents`; others are ignored.

        Raises:
            CallOrderError: An agent's action is missing, or a name is unknown.
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
        """Returns the time steps of agents that took part before, or do now."""
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
            # Rewards from before the agent joined are not its own.
            reward = nest.map_structure(np.zeros_like, reward)
            discount = np.ones_like(discount)
        return TimeStep(step_type, reward, discount, parts.observations[place])


def _places(alive: Sequence[bool]) -> list[int]:
    return [place for place, is_alive in enumerate(alive) if is_alive]
