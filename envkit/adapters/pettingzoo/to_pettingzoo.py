"""`to_pettingzoo`: an envkit environment as a PettingZoo game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from envkit.adapters.episode_info import with_ended_alone
from envkit.adapters.foreign import (
    LateBase,
    as_info,
    forwarded_to_library,
    handed_options,
    rendered,
    require,
    take_flags,
    told_of_losses,
)
from envkit.adapters.gymnasium.conversion import from_member, to_member
from envkit.adapters.gymnasium.spaces import space_from_spec
from envkit.adapters.gymnasium.to_gymnasium import metadata_of, render_mode_of
from envkit.adapters.losses import loss_info
from envkit.adapters.pettingzoo.agents import AgentParts, AgentView
from envkit.errors import CallOrderError
from envkit.extend import as_environment, may_lose
from envkit.time_step import TimeStep

__all__ = ["PyToPettingZoo", "to_pettingzoo"]

_MASK_PLACES = ("observation", "info")


def to_pettingzoo(
    env: Any,
    agents: Sequence[Any] | None = None,
    *,
    render_mode: str | None = None,
    action_mask_in: str | None = None,
) -> PyToPettingZoo:
    """Makes a `pettingzoo.ParallelEnv` from an envkit environment.

    Args:
        env: A single environment: one whose observation says which agents are alive, as
            `PettingZooWrapper`'s does; one whose arrays have a leading dimension of
            agents, if `agents` names them; or any other, which then has one agent.
        agents: Names for the agents; `None` for the environment's `possible_agents`, or
            else "agent_0", "agent_1" and so on.
        render_mode: The mode of `render`. `None` for the environment's own render mode,
            if it has one.
        action_mask_in: Where masks of legal actions go: "observation" or "info". `None`
            for where the environment has them, or else the observation.

    Example:
        >>> from envkit.envs import Catch
        >>> game = to_pettingzoo(Catch())
        >>> observations, infos = game.reset(seed=7)
        >>> game.agents, observations["agent_0"].shape
        (['agent_0'], (10, 5))
        >>> _, rewards, terminations, truncations, _ = game.step({"agent_0": 1})
        >>> rewards, terminations, truncations
        ({'agent_0': 0.0}, {'agent_0': False}, {'agent_0': False})
    """
    return PyToPettingZoo(
        env, agents, render_mode=render_mode, action_mask_in=action_mask_in
    )


class PyToPettingZoo(LateBase):
    """A PettingZoo game made from an environment by `to_pettingzoo`.

    It is a `pettingzoo.ParallelEnv`.

    | envkit                               | PettingZoo                                |
    |--------------------------------------|-------------------------------------------|
    | `seed`, `reset`                      | `reset(seed=...)`                         |
    | an agent is alive                    | it is in `agents`                         |
    | it ends with discount 0              | terminated                                |
    | it ends with a discount above 0      | truncated                                 |
    | `get_info`, by agent or for all      | the infos; flags in them take precedence  |
    | `LAST` for a lost environment        | all are truncated, and their infos have   |
    |                                      | `repaired` and the `Loss` as `loss`       |

    After the end of an episode, `step` returns empty dictionaries, as PettingZoo's
    games do. Public attributes of the environment that are not part of every
    `PyEnvironment` are the game's too.
    """

    @classmethod
    def _load_base(cls) -> type:
        require("pettingzoo", needed_by="to_pettingzoo", extra="pettingzoo")
        import pettingzoo

        base: type = pettingzoo.ParallelEnv
        return base

    def __init__(
        self,
        env: Any,
        agents: Sequence[Any] | None = None,
        *,
        render_mode: str | None = None,
        action_mask_in: str | None = None,
    ) -> None:
        """Wraps an environment; closing the game closes the environment."""
        self._env = env = as_environment(env, "to_pettingzoo was given")
        self._view = AgentView(env, agents, "to_pettingzoo")
        self._mask_in = _mask_place(env, action_mask_in)
        self.possible_agents = list(self._view.agents)
        self.agents: list[Any] = []
        self.render_mode = render_mode_of(env, render_mode)
        self.metadata = {
            "name": type(env).__name__,
            "is_parallelizable": True,
            **metadata_of(env, self.render_mode),
        }
        if self._view.has_mask and self._mask_in == "info":
            specs = [spec["observation"] for spec in self._view.observation_specs]
        else:
            specs = self._view.observation_specs
        self._observation_specs = specs
        self.observation_spaces = self._spaces(specs)
        self.action_spaces = self._spaces(self._view.action_specs)
        self._compile()
        self._has_info = True
        self._may_lose = may_lose(env)
        self._has_begun = False

    def _spaces(self, specs: Sequence[Any]) -> dict[Any, Any]:
        pairs = zip(self.possible_agents, specs, strict=True)
        return {agent: space_from_spec(spec) for agent, spec in pairs}

    def _compile(self) -> None:
        """Makes the conversion functions."""
        agents = self.possible_agents
        self._to_observation = {
            agent: to_member(self.observation_spaces[agent], spec)
            for agent, spec in zip(agents, self._observation_specs, strict=True)
        }
        self._to_action = {
            agent: from_member(
                self.action_spaces[agent],
                spec,
                subject=f"step() was given an action of {agent!r} that",
                root="action",
                bounded=True,
            )
            for agent, spec in zip(agents, self._view.action_specs, strict=True)
        }

    def __getattr__(self, name: str) -> Any:
        return forwarded_to_library(self, self.wrapped_env, name)

    def wrapped_env(self) -> Any:
        """Returns the envkit environment."""
        return self._env

    def observation_space(self, agent: Any) -> Any:
        """Returns the space of an agent's observation, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: Any) -> Any:
        """Returns the space of an agent's action, always the same object."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Begins an episode.

        Args:
            seed: The environment's seed; `None` does not reseed.
            options: The options of this reset. If the environment takes none, they are
                ignored, and a line in the log says so.
        """
        if seed is not None:
            self._seed(seed)
        with handed_options(self._env, options):
            time_step = self._env.reset()
        parts = self._view.parts(time_step)
        self._has_begun = True
        self.agents = []
        self.agents = self._living(time_step, parts)
        infos = self._infos(self.agents)
        return self._observations(parts, self.agents, infos), infos

    def step(self, actions: Mapping[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """Applies the actions of the agents in `agents`; others are ignored.

        Returns:
            Observations, rewards, terminations, truncations and infos of the agents
            that acted, and of those that have just joined.
        """
        if not self.agents:
            return self._after_the_end()
        places = {agent: self._place(agent) for agent in self.agents}
        chosen = {
            place: self._to_action[agent](self._action_of(agent, actions))
            for agent, place in places.items()
        }
        time_step = self._env.step(self._view.join_actions(chosen))
        parts = self._view.parts(time_step)
        acted, self.agents = self.agents, self._living(time_step, parts)
        shown = acted + [agent for agent in self.agents if agent not in acted]
        infos = self._infos(shown)
        terminations, truncations = self._ends(acted, parts, infos)
        for agent in shown:
            terminations.setdefault(agent, False)
            truncations.setdefault(agent, False)
        if self._may_lose and not self.agents and self._env.repaired:
            (loss,) = self._env.current_losses().values()
            for agent in shown:
                infos[agent].update(loss_info(loss))
        rewards = {agent: self._reward(agent, parts) for agent in shown}
        observations = self._observations(parts, shown, infos)
        return observations, rewards, terminations, truncations, infos

    def render(self) -> Any:
        """Returns a rendering in the adapter's mode."""
        name = f"to_pettingzoo({type(self._env).__name__})"
        return rendered(self._env, self.render_mode, name)

    def state(self) -> Any:
        """Returns the environment's global state, if it has one."""
        state = getattr(self._env, "state", None)
        return state() if callable(state) else super().state()  # type: ignore[misc]  # PettingZoo's, which comes late

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _place(self, agent: Any) -> int:
        return self.possible_agents.index(agent)

    def _living(self, time_step: TimeStep, parts: AgentParts) -> list[Any]:
        """Returns the agents taking part: those from before, then newcomers."""
        if time_step.is_last():
            return []
        order = self.agents + [a for a in self.possible_agents if a not in self.agents]
        return [agent for agent in order if parts.alive[self._place(agent)]]

    def _observations(
        self, parts: AgentParts, agents: Sequence[Any], infos: dict[Any, Any]
    ) -> dict[Any, Any]:
        observations = {}
        for agent in agents:
            observation = parts.observations[self._place(agent)]
            if self._view.has_mask and self._mask_in == "info":
                infos[agent].setdefault("action_mask", observation["action_mask"])
                observation = observation["observation"]
            observations[agent] = self._to_observation[agent](observation)
        return observations

    def _reward(self, agent: Any, parts: AgentParts) -> Any:
        reward = parts.rewards[self._place(agent)]
        return float(reward) if getattr(reward, "shape", None) == () else reward

    def _ends(
        self, acted: Sequence[Any], parts: AgentParts, infos: dict[Any, Any]
    ) -> tuple[dict[Any, bool], dict[Any, bool]]:
        """Returns which of the agents that acted were terminated or truncated."""
        terminations, truncations = {}, {}
        for agent in acted:
            flags = take_flags(infos[agent])
            discount = float(parts.discounts[self._place(agent)])
            ended = agent not in self.agents
            terminated = ended and discount == 0.0
            truncated = ended and not terminated
            if ended and flags is not None and any(flags):
                terminated, truncated = flags
            if discount != (0.0 if terminated else 1.0):
                infos[agent]["discount"] = discount
            terminations[agent], truncations[agent] = terminated, truncated
        return terminations, truncations

    def _infos(self, agents: Sequence[Any]) -> dict[Any, dict[str, Any]]:
        """Returns an info for each agent: its own, or a copy of the shared one."""
        info = self._info()
        if not any(agent in info for agent in self.possible_agents):
            return {agent: dict(info) for agent in agents}
        infos = {agent: as_info(info.get(agent)) for agent in agents}
        if self._view.has_mask and self._mask_in == "observation":
            # Masks are where they belong already.
            for of_agent in infos.values():
                of_agent.pop("action_mask", None)
        # PettingZoo allows more infos, under keys that are not agents.
        others = {key: info[key] for key in info if key not in self.possible_agents}
        return {**infos, **others}

    def _info(self) -> dict[Any, Any]:
        if self._has_info:
            try:
                return with_ended_alone(as_info(self._env.get_info()))
            except NotImplementedError:
                self._has_info = False
        return {}

    def _seed(self, seed: int) -> None:
        with told_of_losses("seed", type(self._env).__name__):
            self._env.seed(seed)

    def _action_of(self, agent: Any, actions: Mapping[Any, Any]) -> Any:
        if agent not in actions:
            raise CallOrderError(
                f"step() was given no action of {agent!r}, which is one of the agents: "
                f"each of {self.agents!r:.200} has to act."
            )
        return actions[agent]

    def _after_the_end(self) -> tuple[dict[Any, Any], ...]:
        if not self._has_begun:
            self._refuse_step()
        return {}, {}, {}, {}, {}

    def _refuse_step(self) -> NoReturn:
        raise CallOrderError(
            f"to_pettingzoo({type(self._env).__name__}).step() was called before "
            "reset(). Call reset() first."
        )

    def __getstate__(self) -> dict[str, Any]:
        # Functions do not pickle.
        compiled = ("_to_observation", "_to_action", "_view")
        return {key: value for key, value in vars(self).items() if key not in compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._view = AgentView(self._env, self.possible_agents, "to_pettingzoo")
        self._compile()


def _mask_place(env: Any, given: str | None) -> str:
    place = getattr(env, "action_mask_in", None) if given is None else given
    if place is None:
        return "observation"
    if place not in _MASK_PLACES:
        raise ValueError(
            f'action_mask_in must be "observation" or "info", got {place!r}.'
        )
    return str(place)
