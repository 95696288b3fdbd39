"""`PettingZooAECWrapper`: a PettingZoo game in which agents take turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from envkit.adapters.foreign import as_info
from envkit.adapters.pettingzoo.layouts import (
    AxisLayout,
    DictLayout,
    OneLayout,
)
from envkit.adapters.pettingzoo.players import GameEnvironment, is_aec, kept_infos
from envkit.errors import SpecError
from envkit.extend import Result
from envkit.specs.arrays import BoundedArraySpec
from envkit.types import NestedArray

__all__ = ["PettingZooAECWrapper"]


class PettingZooAECWrapper(GameEnvironment):
    """Wraps a game for several agents that take turns.

    Each step is the decision of one agent. PettingZoo also requires steps without an
    action for agents that have ended; the wrapper makes those itself.

    | with `agents="turn"`             | for agents that are alike                    |
    |----------------------------------|----------------------------------------------|
    | `observation["agent"]`           | the current agent: an index in               |
    |                                  | `possible_agents`                            |
    | `observation["observation"]`     | what that agent observes                     |
    | `observation["action_mask"]`     | its legal actions, if the game reports them  |
    | `observation["alive"]`           | the agents still in the game                 |
    | `reward`                         | each agent's reward for this step            |
    | `discount`                       | 0 for each agent whose game terminated       |
    | `step_type`                      | `LAST` when the last agent has ended         |

    With `agents="dict"`, the observations, masks, actions, rewards and discounts of all
    agents are under their names, and only the current agent's action counts.

    An agent may end outside its turn. Its final observation is then in its part of
    `get_info()` as `final_observation`, and with `agents="dict"` also in the
    observation. Public attributes that the wrapper lacks, such as `state()` and
    `observe(agent)`, are taken from the game.

    Example:
        >>> from pettingzoo.classic.tictactoe.tictactoe import env as tictactoe
        >>> env = PettingZooAECWrapper(tictactoe)
        >>> first = env.reset().observation
        >>> int(first["agent"]), first["action_mask"].tolist()
        (0, [1, 1, 1, 1, 1, 1, 1, 1, 1])
        >>> second = env.step(4).observation
        >>> int(second["agent"]), second["action_mask"].tolist()
        (1, [1, 1, 1, 1, 0, 1, 1, 1, 1])
        >>> env.close()
    """

    _layouts: ClassVar = {"turn": AxisLayout, "dict": DictLayout}

    def __init__(
        self,
        env_or_factory: Any,
        agents: str = "turn",
        *,
        possible_agents: Sequence[Any] | None = None,
        discount: float = 1.0,
        action_mask: str = "auto",
        reset_options: Mapping[str, Any] | None = None,
        reward_dtype: Any = np.float32,
    ) -> None:
        """Wraps a game; closing the wrapper closes the game.

        Args:
            env_or_factory: An `AECEnv`, a `ParallelEnv`, whose agents then decide one
                after another, or a function that makes either.
            agents: "turn" if an observation is the current agent's, "dict" if it has
                those of all agents by name.
            possible_agents: As for `PettingZooWrapper`.
            discount: As for `PettingZooWrapper`.
            action_mask: As for `PettingZooWrapper`.
            reset_options: As for `PettingZooWrapper`.
            reward_dtype: As for `PettingZooWrapper`.
        """
        super().__init__(
            env_or_factory,
            agents,
            possible_agents=possible_agents,
            discount=discount,
            action_mask=action_mask,
            reset_options=reset_options,
            reward_dtype=reward_dtype,
        )
        self._shows_all = agents == "dict"
        self._turn = 0
        last = len(self._agents) - 1
        self._compile(self._layout if self._shows_all else OneLayout(self._agents[:1]))
        self._observation_spec = {
            "agent": BoundedArraySpec((), np.int64, 0, last, "agent"),
            **self._observation_spec,
        }

    def _of_kind(self, game: Any) -> Any:
        if is_aec(game):
            return game
        from pettingzoo.utils.conversions import parallel_to_aec

        return parallel_to_aec(game)

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        game = self._foreign
        game.reset(**self._arguments(seed, options))
        self._welcome(game.agents)
        self._keep_infos()
        self._turn = self._place_of(game.agent_selection)
        # An agent may have ended before the game begins.
        self._take_out_the_ended()
        self._check_has_agents()
        self._look_around()
        return self._observation(), self._info

    def _move(self, action: Any) -> Result:
        game = self._foreign
        choice = action[self._turn] if self._shows_all else action[0]
        game.step(self._players[self._turn].to_action(choice))
        rewards = self._rewards(dict(game.rewards), [True] * len(self._agents))
        self._keep_infos()
        self._turn = self._place_of(game.agent_selection)
        self._take_out_the_ended()
        self._look_around()
        return self._result(self._observation(), rewards)

    def _take_out_the_ended(self) -> None:
        """Makes the steps without an action that PettingZoo requires."""
        game = self._foreign
        while True:
            self._follow_ends()
            if not game.agents:
                return
            agent = game.agent_selection
            if not (game.terminations[agent] or game.truncations[agent]):
                self._turn = self._place_of(agent)
                return
            game.step(None)
            if agent in game.agents:
                raise SpecError(
                    f"{self._name}.step(None) left {agent!r} in its list `agents`, "
                    "although the game has ended for it. Games call "
                    "self._was_dead_step(action) for that."
                )

    def _follow_ends(self) -> None:
        """Records how the game ended for some agents, and their final observations."""
        game = self._foreign
        self._check_known(game.agents)
        ended = self._live.go_on(game.agents, game.terminations, game.truncations)
        for place in ended:
            agent = self._agents[place]
            if agent in game.agents:
                self._look(place, game.observe(agent), self._info.get(agent))
            if not self._shows_all:
                final = self._seen[place].observation
                self._info[agent] = {
                    "final_observation": final,
                    **as_info(self._info.get(agent)),
                }
        self._flag(ended, game.terminations, game.truncations)

    def _look_around(self) -> None:
        """Keeps the observations of the agents to show."""
        if self._live.is_over:
            return
        alive = self._live.alive
        places = [place for place, is_alive in enumerate(alive) if is_alive]
        for place in places if self._shows_all else [self._turn]:
            agent = self._agents[place]
            self._look(place, self._foreign.observe(agent), self._info.get(agent))

    def _keep_infos(self) -> None:
        self._info = kept_infos(self._foreign.infos)

    def _masks(self) -> list[Any]:
        if self._shows_all:
            return super()._masks()
        # An agent has no legal action outside its turn.
        masks = [player.neutral.mask for player in self._players]
        masks[self._turn] = self._seen[self._turn].mask
        return masks

    def _observation(self) -> dict[str, NestedArray]:
        seen = self._seen if self._shows_all else [self._seen[self._turn]]
        return {"agent": np.array(self._turn, np.int64), **self._shown(seen)}

    def _place_of(self, agent: Any) -> int:
        self._check_known([agent])
        return self._agents.index(agent)

    def _kept(self) -> tuple[Any, ...]:
        return *super()._kept(), self._turn

    def _take_back(self, kept: tuple[Any, ...]) -> None:
        *others, self._turn = kept
        super()._take_back(tuple(others))
