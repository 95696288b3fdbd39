"""`PettingZooWrapper`: a PettingZoo game in which all agents act at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from envkit.adapters.pettingzoo.layouts import AxisLayout, DictLayout
from envkit.adapters.pettingzoo.players import (
    GameEnvironment,
    is_aec,
    kept_infos,
    name_of_game,
)
from envkit.errors import SpecError
from envkit.extend import Result, describe

__all__ = ["PettingZooWrapper"]


class PettingZooWrapper(GameEnvironment):
    """Wraps a game for several agents that act at once.

    There is one time step for all of them. With `agents="axis"`, for agents that are
    alike, each array has a leading dimension of agents; with `agents="dict"`, each
    agent's part is under its name.

    | part of the time step            | value                                      |
    |----------------------------------|--------------------------------------------|
    | `observation["observation"]`     | what each agent observes; once it has      |
    |                                  | ended, its final observation               |
    | `observation["alive"]`           | the agents that act next                   |
    | `observation["action_mask"]`     | legal actions, if the game reports them    |
    | `reward`                         | each agent's reward; 0 without a part      |
    | `discount`                       | 0 for each agent whose game terminated     |
    | `step_type`                      | `LAST` when the last agent has ended       |

    In a game whose agents take turns, the masks of waiting agents are all 0. An agent
    that ends in both ways at once is terminated; its info has both flags. The actions
    of agents that are not alive are ignored. `AgentTimeSteps` presents a
    time step per agent. Public attributes that the wrapper lacks, such as `state()`,
    are taken from the game.

    Example:
        >>> from pettingzoo.classic.rps.rps import parallel_env
        >>> env = PettingZooWrapper(lambda: parallel_env(max_cycles=3))
        >>> env.possible_agents, env.action_spec().shape
        (['player_0', 'player_1'], (2,))
        >>> first = env.reset()
        >>> env.step([0, 1]).reward
        array([-1.,  1.], dtype=float32)
        >>> env.close()
    """

    _layouts: ClassVar = {"axis": AxisLayout, "dict": DictLayout}

    def __init__(
        self,
        env_or_factory: Any,
        agents: str = "axis",
        *,
        possible_agents: Sequence[Any] | None = None,
        discount: float = 1.0,
        action_mask: str = "auto",
        reset_options: Mapping[str, Any] | None = None,
        reward_dtype: Any = np.float32,
    ) -> None:
        """Wraps a game; closing the wrapper closes the game.

        Args:
            env_or_factory: A `ParallelEnv`, an `AECEnv` that PettingZoo can convert to
                one, or a function that makes either.
            agents: The layout of the agents' parts: "axis" or "dict".
            possible_agents: All agents that may take part, if the game does not name
                them, or for another order.
            discount: An agent's discount for steps that do not terminate its game.
            action_mask: "auto" for masks inside the agents' observations, beside an
                `observation`; "info" for masks in their infos; "none" leaves masks
                where they are.
            reset_options: The `options` that every reset passes to the game, including
                automatic resets.
            reward_dtype: The dtype of rewards. PettingZoo's may be of any type; float32
                rounds some.
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
        self._compile(self._layout)

    def _of_kind(self, game: Any) -> Any:
        if not is_aec(game):
            return game
        if not getattr(game, "metadata", {}).get("is_parallelizable", False):
            raise TypeError(
                f"{self._adapter} was given {name_of_game(game)}, whose agents take "
                "turns: its metadata does not say that it is_parallelizable. "
                "PettingZooAECWrapper takes it unchanged."
            )
        from pettingzoo.utils.conversions import aec_to_parallel

        return aec_to_parallel(game)

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        result = self._foreign.reset(**self._arguments(seed, options))
        if not isinstance(result, tuple) or len(result) != 2:
            self._refuse_result("reset", result, "(observations, infos)")
        observations, infos = result
        self._welcome(self._foreign.agents)
        self._check_has_agents()
        self._see(observations, infos, self._live.alive)
        return self._shown(self._seen), self._info

    def _move(self, action: Any) -> Result:
        acting = self._live.alive[:]
        parts = zip(self._players, action, acting, strict=True)
        actions = {
            player.agent: player.to_action(part) for player, part, acts in parts if acts
        }
        result = self._foreign.step(actions)
        if not isinstance(result, tuple) or len(result) != 5:
            self._refuse_result(
                "step",
                result,
                "(observations, rewards, terminations, truncations, infos)",
            )
        observations, rewards, terminations, truncations, infos = result
        present = self._foreign.agents
        self._check_known(present)
        ended = self._live.go_on(present, terminations, truncations)
        taking_part = [
            acts or is_alive
            for acts, is_alive in zip(acting, self._live.alive, strict=True)
        ]
        self._see(observations, infos, taking_part)
        self._flag(ended, terminations, truncations)
        earned = self._rewards(rewards, taking_part)
        return self._result(self._shown(self._seen), earned)

    def _see(
        self,
        observations: Mapping[Any, Any],
        infos: Mapping[Any, Any] | None,
        taking_part: Sequence[bool],
    ) -> None:
        """Keeps the observations of the agents that take part."""
        self._info = kept_infos(infos)
        for place, takes_part in enumerate(taking_part):
            agent = self._agents[place]
            if takes_part and agent in observations:
                self._look(place, observations[agent], self._info.get(agent))
            elif self._live.alive[place]:
                raise SpecError(
                    f"{self._name} returned no observation of {agent!r}, which is one "
                    "of its agents."
                )

    def _refuse_result(self, call: str, result: Any, expected: str) -> NoReturn:
        raise SpecError(
            f"{self._name}.{call}() returned {describe(result)}; in PettingZoo it "
            f"returns the tuple {expected}. Older versions of PettingZoo returned "
            "other ones."
        )
