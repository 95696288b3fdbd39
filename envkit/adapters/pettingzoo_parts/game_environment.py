"""`GameEnvironment`: what both adapters of PettingZoo's games have in common."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envkit.adapters.episode_ends import as_info
from envkit.adapters.forwarding import forwarded
from envkit.adapters.gym_environments import as_discount
from envkit.adapters.pettingzoo_parts.games import (
    agents_of,
    check_render_mode,
    check_saves_all,
    layers_of_game,
    name_of_game,
)
from envkit.adapters.pettingzoo_parts.layouts import Layout
from envkit.adapters.pettingzoo_parts.players import Sight, players_of
from envkit.adapters.pettingzoo_parts.roster import Roster
from envkit.adapters.snapshot import restore_snapshot, take_snapshot
from envkit.errors import ClosedError, SpecError
from envkit.masked_rows import options_copy
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedSpec, Seed

__all__ = ["GameEnvironment", "kept_infos"]


class GameEnvironment(PyEnvironment):
    """Keeps a game of PettingZoo: its seeds, options, infos, pictures and state."""

    def __init__(
        self,
        game: Any,
        layout: type[Layout],
        *,
        possible_agents: Sequence[Any] | None,
        discount: float,
        action_mask: str,
        reset_options: Mapping[str, Any] | None,
        reward_dtype: Any,
    ) -> None:
        """Looks at a game; the arguments are those of the adapters."""
        super().__init__(handle_auto_reset=True)
        self._adapter = type(self).__name__
        self._game = game
        self._name = name_of_game(game)
        self._agents = agents_of(game, possible_agents, self._adapter)
        self._players = players_of(
            game, self._agents, self._name, self._adapter, action_mask
        )
        self._announced = action_mask != "auto" or self._has_mask
        self._layout = layout(self._agents)
        self._roster = Roster(self._agents)
        self._discount = as_discount(discount)
        self._number = ArraySpec((), reward_dtype, "reward")
        self._sights = [player.neutral for player in self._players]
        self._info: dict[Any, Any] = {}
        self._reset_options = self._next_options = options_copy(reset_options)
        self._next_seed: int | None = None
        self._closed = False

    @property
    def game(self) -> Any:
        """The environment of PettingZoo."""
        return self._game

    @property
    def possible_agents(self) -> list[Any]:
        """All agents that may take part, in the order of the axis."""
        return list(self._agents)

    @property
    def action_mask_in(self) -> str | None:
        """Where the game has its masks: "observation", "info", or nowhere."""
        if not self._has_mask:
            return None
        return "info" if self._players[0].masks_come_by_info else "observation"

    @property
    def _has_mask(self) -> bool:
        return self._players[0].mask_spec is not None

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._game, name)

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of the rewards, one for each agent."""
        return self._reward_spec

    def discount_spec(self) -> NestedSpec:
        """Returns the specs of the discounts, one for each agent."""
        return self._discount_spec

    def seed(self, seed: Seed) -> None:
        """Has the next reset seed the game; later ones let it go on."""
        self._noted_seed = seed
        (self._next_seed,) = checked_seeds(seed, 1)
        if self._next_seed is None:
            # To PettingZoo no seed means to go on with the old generator.
            self._next_seed = int(np.random.SeedSequence().generate_state(1)[0])

    def set_reset_options(
        self, options: Mapping[str, Any] | None, *, always: bool = False
    ) -> None:
        """Chooses the `options` that the next reset passes to the game.

        They are part of the state.

        Args:
            options: What the game understands; `None` passes none.
            always: Whether they are for all later resets, too, those that begin an
                episode by themselves among them. Otherwise the wrapper goes on with
                the `reset_options` that it was made with.
        """
        self._next_options = options_copy(options)
        if always:
            self._reset_options = self._next_options

    def get_info(self) -> dict[Any, Any]:
        """Returns the game's infos for the current time step, by agent.

        Those of agents that ended with it have `terminated` and `truncated`, too. Where
        the game says which actions are legal, that of each agent has the
        `action_mask`. Before the first reset there are none.
        """
        infos = kept_infos(self._info)
        if self._declares and self._current_time_step is not None:
            for agent, mask in zip(self._agents, self._masks(), strict=True):
                info = as_info(infos.get(agent))
                infos[agent] = {**info, "action_mask": np.copy(mask)}
        return infos

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of the masks in each agent's info, if there are any."""
        if not self._declares:
            return {}
        return {
            player.agent: {"action_mask": player.mask_spec} for player in self._players
        }

    @property
    def _declares(self) -> bool:
        # The keys of what is declared are text.
        names = all(isinstance(agent, str) for agent in self._agents)
        return self._has_mask and names

    def _masks(self) -> list[Any]:
        """Returns each agent's mask for the current time step."""
        return [sight.mask for sight in self._sights]

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the game renders.

        Args:
            mode: The `render_mode` that the game was made with: PettingZoo does not
                change it later.
        """
        self._check_open("render")
        check_render_mode(self._game, self._name, mode)
        picture = self._game.render()
        return np.array(picture) if mode == "rgb_array" else picture

    def close(self) -> None:
        """Closes the game; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._game.close()

    def _with_numbers_of(self, layout: Layout) -> None:
        """Says that there are as many rewards and discounts as a layout has agents."""
        discount = BoundedArraySpec((), np.float32, 0.0, 1.0, "discount")
        count = len(layout.agents)
        self._reward_spec = layout.join_specs([self._number] * count)
        self._discount_spec = layout.join_specs([discount] * count)
        self._join_rewards = layout.joining([self._number] * count)
        self._join_discounts = layout.joining([discount] * count)

    def _rewards(self, rewards: Mapping[Any, Any], earning: Sequence[bool]) -> Any:
        """Returns the rewards of the agents that earn, and 0 for the others."""
        dtype = self._number.dtype
        pairs = zip(self._agents, earning, strict=True)
        return self._join_rewards(
            [
                self._as_reward(agent, rewards.get(agent, 0) if earns else 0, dtype)
                for agent, earns in pairs
            ]
        )

    def _as_reward(self, agent: Any, reward: Any, dtype: np.dtype[Any]) -> Array:
        array = np.asarray(reward)
        if array.size != 1 or array.dtype.kind not in "biuf":
            raise SpecError.does_not_fit(
                f"{self._name} returned a reward of {agent!r} that",
                path="",
                expected=repr(self._number),
                got=describe(reward),
                reason="A reward of an agent is one number.",
            )
        return np.array(array.reshape(()), dtype)

    def _discounts(self) -> Any:
        worth = self._roster.discounts(self._discount)
        return self._join_discounts([np.array(each, np.float32) for each in worth])

    def _first_numbers(self) -> tuple[Any, Any]:
        """Returns the rewards and discounts of a `FIRST`."""
        count = len(self._agents)
        ones = [np.ones((), np.float32) for _ in range(count)]
        return self._rewards({}, [False] * count), self._join_discounts(ones)

    def _reset_arguments(self, options: dict[str, Any] | None) -> dict[str, Any]:
        """Returns what the next reset passes to the game, once."""
        self._check_open("reset")
        if options is None:
            # A game may change what it is given.
            options = copy.deepcopy(self._next_options)
        arguments = {"seed": self._next_seed, "options": options}
        self._next_seed, self._next_options = None, self._reset_options
        return arguments

    def _begin(self, present: Sequence[Any]) -> None:
        """Begins an episode with some agents, of which nothing was seen yet."""
        self._check_known(present)
        self._roster.begin(present)
        self._sights = [player.neutral for player in self._players]

    def _check_anybody(self) -> None:
        if self._roster.is_over:
            raise SpecError(
                f"{self._name}.reset() began an episode in which nobody acts: its list "
                "`agents` is empty, or the game has ended for all of them."
            )

    def _check_known(self, agents: Sequence[Any]) -> None:
        # Hot: called once per step.
        for agent in agents:
            if agent not in self._agents:
                raise SpecError(
                    f"{self._name} has an agent {agent!r}, which is not one of its "
                    f"possible_agents: {self._agents!r:.200}. Name all that may ever "
                    f"take part: {self._adapter}(env, possible_agents=[...])."
                )

    def _look(self, place: int, observation: Any, info: Any) -> None:
        """Keeps what an agent sees."""
        if not self._announced and isinstance(info, Mapping) and "action_mask" in info:
            raise SpecError(
                f"{self._name} says in its infos which actions are legal. Pass "
                'action_mask="info" to have that in the observation, or '
                'action_mask="none" to leave it to get_info().'
            )
        self._sights[place] = self._players[place].sees(observation, info)

    def _flag(self, ended: Sequence[int], terminations: Any, truncations: Any) -> None:
        """Adds to infos how it ended for some agents; a discount tells only one."""
        for place in ended:
            agent = self._agents[place]
            self._info[agent] = {
                "terminated": bool(terminations.get(agent, False)),
                "truncated": bool(truncations.get(agent, False)),
                **as_info(self._info.get(agent)),
            }

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(self._adapter, call)

    def _kept(self) -> tuple[Any, ...]:
        roster = self._roster.alive, self._roster.terminated
        options = self._reset_options, self._next_options
        sights = [tuple(sight) for sight in self._sights]
        return roster, sights, self._info, self._next_seed, options

    def _get_state(self) -> Any:
        layers = layers_of_game(self._game)
        check_saves_all(layers, self._name)
        return take_snapshot(self._game, self._name, self._kept(), layers=layers)

    def _set_state(self, state: Any) -> None:
        layers = layers_of_game(self._game)
        kept = restore_snapshot(self._game, self._name, state, layers=layers)
        self._take_back(kept)

    def _take_back(self, kept: tuple[Any, ...]) -> None:
        """Takes over what `_kept` returned."""
        roster, sights, self._info, self._next_seed, options = kept
        self._roster.alive, self._roster.terminated = roster
        self._sights = [Sight(*sight) for sight in sights]
        self._reset_options, self._next_options = options


def kept_infos(infos: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Returns a copy of the infos of agents, which some games change later.

    Games that have nothing to say return `None` for all of them, or for one.
    """
    return {
        agent: as_info(info) if info is None or isinstance(info, Mapping) else info
        for agent, info in (infos or {}).items()
    }
