"""Small games of PettingZoo, for what its own games do not do."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

__all__ = [
    "ENDLESS",
    "LATE",
    "Auction",
    "Meadow",
    "SilentAuction",
    "Stay",
    "Taciturn",
    "Uneven",
    "late",
    "library_tests",
    "rps",
    "speakers",
    "walkers",
    "zombies",
]

ENDLESS = 10**6


def library_tests() -> Any:
    """Returns the module of PettingZoo's own tests of games."""
    with warnings.catch_warnings():
        # It warns of how it imports its own games.
        warnings.simplefilter("ignore", DeprecationWarning)
        import pettingzoo.test
    return pettingzoo.test


class Stay(NamedTuple):
    """When an agent is in the game: from a step on, until one, and how it ends."""

    begin: int
    end: int
    how: str = "terminated"


class Meadow(ParallelEnv):
    """Agents come and go as a script says; each sees random numbers and its choice.

    It reuses the arrays that it returns.
    """

    def __init__(self, stays=None, *, mask=None, render_mode=None, limit=ENDLESS):
        self.metadata = {"name": "meadow_v1", "render_modes": ["rgb_array", "human"]}
        stays = stays or {"cow": Stay(0, 3), "hen": Stay(0, 5, "truncated")}
        self.stays = stays
        self.possible_agents = list(stays)
        self.agents = []
        self.render_mode = render_mode
        self.mask = mask
        self.limit = limit
        self.options = []
        self.closed = 0
        self._random = np.random.default_rng(0)
        self._arrays = {agent: np.zeros(3, np.float32) for agent in stays}
        self._observation_spaces = {agent: self._seen(agent) for agent in stays}
        self._action_spaces = {agent: spaces.Discrete(3) for agent in stays}

    def _seen(self, agent) -> Any:
        space = spaces.Box(-1, 9, (3,), np.float32)
        if self.mask != "observation":
            return space
        mask = spaces.Box(0, 1, (3,), np.int8)
        return spaces.Dict({"observation": space, "action_mask": mask})

    def observation_space(self, agent):
        return self._observation_spaces[agent]

    def action_space(self, agent):
        return self._action_spaces[agent]

    def legal(self, agent) -> Any:
        mask = np.ones(3, np.int8)
        mask[(self.steps + self.possible_agents.index(agent)) % 3] = 0
        return mask

    def _observations(self, agents, actions=None) -> dict[str, Any]:
        observations = {}
        for agent in agents:
            array = self._arrays[agent]
            array[:2] = self._random.uniform(0, 1, 2)
            array[2] = (actions or {}).get(agent, -1)
            observations[agent] = array
            if self.mask == "observation":
                observations[agent] = {
                    "observation": array,
                    "action_mask": self.legal(agent),
                }
        return observations

    def _infos(self, agents) -> dict[str, Any]:
        infos = {agent: {"steps": self.steps} for agent in agents}
        if self.mask == "info":
            for agent in agents:
                infos[agent]["action_mask"] = self.legal(agent)
        return infos

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.options.append(options)
        self.steps = 0
        self.agents = [agent for agent, stay in self.stays.items() if stay.begin == 0]
        return self._observations(self.agents), self._infos(self.agents)

    def step(self, actions):
        assert set(actions) == set(self.agents)
        assert all(self.action_space(a).contains(x) for a, x in actions.items())
        self.steps += 1
        acted = list(self.agents)
        over = [agent for agent in acted if self.stays[agent].end == self.steps]
        cut = acted if self.steps >= self.limit else []
        coming = [a for a, stay in self.stays.items() if stay.begin == self.steps]
        shown = acted + coming
        ways = {agent: self.stays[agent].how for agent in over}
        terminations = {a: ways.get(a) in ("terminated", "both") for a in shown}
        truncations = {
            a: ways.get(a) in ("truncated", "both") or a in cut for a in shown
        }
        rewards = {a: 0.1 * self.steps + int(actions.get(a, 0)) for a in shown}
        observations, infos = self._observations(shown, actions), self._infos(shown)
        self.agents = [a for a in shown if not (terminations[a] or truncations[a])]
        return observations, rewards, terminations, truncations, infos

    def state(self):
        return np.array([self.steps])

    def render(self):
        return np.full((2, 2, 3), self.steps, np.uint8)

    def close(self):
        self.closed += 1


class Taciturn(Meadow):
    """Has nothing to say: its infos are `None`, or those of its agents are."""

    def __init__(self, *, by_agent):
        super().__init__()
        self._by_agent = by_agent

    def _infos(self, agents) -> Any:
        return dict.fromkeys(agents) if self._by_agent else None


class Uneven(Meadow):
    """Its agents have different numbers of choices."""

    def __init__(self):
        super().__init__()
        self._action_spaces["hen"] = spaces.Discrete(5, start=2)


class Auction(AECEnv):
    """Three bid in turn; who bids 0 has left, and so has whoever is bid 2 against.

    The next bidder after a bid of 2 is thus out of the game when it is its turn.
    """

    def __init__(self, bids=(3, 3, 3)):
        self.metadata = {"name": "auction_v1", "is_parallelizable": False}
        self.render_mode = None
        self.possible_agents = ["ann", "bob", "cid"]
        self._action_spaces = {
            agent: spaces.Discrete(count)
            for agent, count in zip(self.possible_agents, bids, strict=True)
        }
        self._observation_spaces = {
            agent: spaces.Box(0, 99, (2,), np.int64) for agent in self.possible_agents
        }

    def observation_space(self, agent):
        return self._observation_spaces[agent]

    def action_space(self, agent):
        return self._action_spaces[agent]

    def reset(self, seed=None, options=None):
        self._random = np.random.default_rng(seed)
        self.agents = self.possible_agents[:]
        self.agent_selection = self.agents[0]
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"bids": 0} for agent in self.agents}
        self.bids = 0

    def observe(self, agent):
        return np.array([self.possible_agents.index(agent), self.bids % 100])

    def state(self):
        return np.array([self.bids])

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self.bids += 1
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        self.infos[agent]["bids"] += 1
        others = [other for other in self._after(agent) if other != agent]
        self.rewards[agent] = int(action)
        if action == 0:
            self.terminations[agent] = True
        if action == 2 and others:
            self.terminations[others[0]] = True
            self.rewards[others[0]] = -1
        if self.bids == 20:
            self.truncations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        alive = [other for other in self._after(agent) if not self._is_out(other)]
        self.agent_selection = alive[0] if alive else agent
        self._deads_step_first()

    def _is_out(self, agent) -> bool:
        return self.terminations[agent] or self.truncations[agent]

    def _after(self, agent) -> list[str]:
        """Lists who is in the game, from the next in turn to the agent itself."""
        place = self.possible_agents.index(agent) + 1
        order = self.possible_agents[place:] + self.possible_agents[:place]
        return [other for other in order if other in self.agents]

    def close(self):
        pass


class SilentAuction(Auction):
    """Its infos are `None`, or those of its agents are."""

    def __init__(self, *, by_agent):
        super().__init__()
        self._by_agent = by_agent

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self._hush()

    def step(self, action):
        self.infos = {agent: {"bids": 0} for agent in self.agents}
        super().step(action)
        self._hush()

    def _hush(self):
        self.infos = dict.fromkeys(self.agents) if self._by_agent else None


LATE = {"ant": Stay(0, 2), "bee": Stay(1, 4, "truncated"), "cat": Stay(3, 5, "both")}


def rps() -> Any:
    """Returns a game of two players that choose at once."""
    pytest.importorskip("pygame", reason="pygame-ce is not installed")
    from pettingzoo.classic.rps.rps import parallel_env

    return parallel_env(max_cycles=6)


def zombies() -> Any:
    """Returns a game whose players die one by one."""
    pytest.importorskip("pygame", reason="pygame-ce is not installed")
    name = "pettingzoo.butterfly.knights_archers_zombies.knights_archers_zombies"
    module = pytest.importorskip(name, reason="its libraries are not installed")
    return module.parallel_env(line_death=True, max_cycles=70)


def walkers() -> Any:
    """Returns a game whose players carry one thing."""
    pytest.importorskip("Box2D", reason="Box2D is not installed")
    from pettingzoo.sisl.multiwalker.multiwalker import parallel_env

    return parallel_env(max_cycles=70, remove_on_fall=True, terminate_on_fall=False)


def speakers() -> Any:
    """Returns a game whose players have unlike spaces."""
    pytest.importorskip("mpe2", reason="mpe2 is not installed")
    from mpe2 import simple_speaker_listener_v4

    return simple_speaker_listener_v4.parallel_env(max_cycles=10)


def late() -> Any:
    """Returns a meadow whose players come and go."""
    return Meadow(LATE)
