"""`AgentView`: what each agent has of an environment's specs, time steps and actions.

An environment has several agents

```
observation_spec()                                  how the parts lie
{"observation": …, "alive": array of shape (A,)}    along an axis
{"observation": {…}, "alive": {agent: …}}           under the agents' names
any nest of arrays that begin with A, and the       along an axis, and all take part
agents are named                                    from beginning to end
```

Otherwise it has one. A reward or discount without the agents' dimension is everyone's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.adapters.pettingzoo_parts.layouts import (
    AxisLayout,
    DictLayout,
    Layout,
    OneLayout,
)
from envkit.adapters.spaces.one_of import neutral_value
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import NestedArray, NestedSpec

__all__ = ["AgentParts", "AgentView"]

_ONE = "agent_0"


class AgentParts(NamedTuple):
    """A time step, taken apart: one value for each agent in every field."""

    alive: list[bool]
    observations: list[NestedArray]
    rewards: list[NestedArray]
    discounts: list[Any]


class AgentView:
    """Takes apart what an environment has for several agents.

    Attributes:
        agents: The agents, in the order of the parts.
        observation_specs: What each of them observes; with an `action_mask`, it is a
            dictionary of `observation` and `action_mask`.
        action_specs: What each of them does.
        reward_specs: What each of them earns.
        discount_specs: What later rewards are worth to each.
        has_mask: Whether there are masks of legal actions.
    """

    def __init__(self, env: Any, agents: Sequence[Any] | None, who: str) -> None:
        """Looks at an environment.

        Args:
            env: A single environment of envkit's.
            agents: What to call the agents; `None` for the environment's
                `possible_agents`, or else "agent_0", "agent_1" and so on.
            who: Who asks, as the sentence of an error begins.
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
        """Takes a time step apart; the arrays are new."""
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
        """Makes one action of some agents', by place; the others get a neutral one."""
        return self._join_actions(
            [
                actions.get(place, neutral)
                for place, neutral in enumerate(self._neutral_actions)
            ]
        )

    def _seen(self, observation: Any) -> Any:
        """Returns the part of an observation, or of its specs, that agents see."""
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
                    f"not have the agents {self.agents!r:.200} for its keys."
                )
        return layout.split_specs(spec)

    def _numbers(self, layout: Layout, spec: NestedSpec) -> tuple[list[Any], Any]:
        """Returns specs, and how to split; one number for all is everyone's."""
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
                    "and its like have a part for each agent in every step."
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
                f"{spec!r:.200}, and whose observation does not say who is alive. If "
                "its arrays begin with a dimension of agents, name them: "
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
    if isinstance(env, type) or not hasattr(env, "time_step_spec"):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"{who} was given {what}, which is not an environment of envkit's."
        )
    if getattr(env, "batched", False) is True:
        raise ValueError(
            f"{who} was given {type(env).__name__}, which is a batch; it takes a "
            "single environment."
        )
