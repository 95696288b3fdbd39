"""`GameEnvironment`, the base of PettingZoo's adapters, and its games' agents.

A `LiveAgents` follows the agents through an episode:

```
before the agent appears      alive False   discount as given   reward 0
while it takes part           alive True    discount as given
the step in which it ends     alive False   0 if terminated, else as given
afterwards                    alive False   the same            reward 0
```

So the discounts of an episode's last time step show for which agents the game
terminated, and for which it was truncated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np

from envkit import nest
from envkit._shared.arguments import as_discount
from envkit.adapters.foreign import (
    ForeignEnvironment,
    as_info,
    check_render_mode,
    require,
)
from envkit.adapters.gymnasium.conversion import action_converter, from_member
from envkit.adapters.gymnasium.spaces import (
    kind_of_space,
    neutral_value,
    spec_from_gym_space,
)
from envkit.adapters.losses import LossesInInfos, loss_in, without_loss
from envkit.adapters.pettingzoo.layouts import AxisLayout, Layout
from envkit.adapters.reset_arguments import ResetArguments
from envkit.adapters.state import restore_snapshot, take_snapshot
from envkit.errors import SpecError, SpecMismatchError
from envkit.extend import Result, describe, listed
from envkit.losses import Loss
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "AgentObservation",
    "GameEnvironment",
    "LiveAgents",
    "Player",
    "is_aec",
    "kept_infos",
    "name_of_game",
    "players_of",
]

# Where a game reports legal actions.
_MASK_PLACES = ("auto", "info", "none")
_MASKED = {"observation", "action_mask"}
_IS_ALIVE = ArraySpec((), np.bool_, "alive")
_NEEDED = ("reset", "step", "observation_space", "action_space")


class AgentObservation(NamedTuple):
    """An agent's observation, and its legal actions if the game reports them."""

    observation: NestedArray
    mask: NestedArray | None


class Player:
    """Converts one agent's observations and actions.

    Attributes:
        agent: The agent.
        observation_space: The library's space of observations.
        action_space: The library's space of actions.
        observation_spec: The observation's specs, without the mask.
        action_spec: The action's specs.
        mask_spec: The spec of the mask of legal actions; `None` without one.
        masks_come_by_info: Whether the mask is in the infos.
        to_action: Makes a member of the agent's action space.
        neutral: Its observation while it takes no part.
    """

    def __init__(
        self, game: Any, agent: Any, name: str, adapter: str, mask: str
    ) -> None:
        """Examines an agent's spaces.

        Args:
            game: The game.
            agent: The agent.
            name: The game's name in errors.
            adapter: The adapter whose `step` takes actions.
            mask: The place of the mask: one of `_MASK_PLACES`.
        """
        self.agent = agent
        self.observation_space = game.observation_space(agent)
        self.action_space = game.action_space(agent)
        self._name = name
        self.masks_come_by_info = mask == "info"
        spec = spec_from_gym_space(self.observation_space, name="observation")
        self._mask_is_seen = mask == "auto" and _is_masked(spec)
        self._read = from_member(
            self.observation_space,
            spec,
            subject=f"{name} returned an observation of {agent!r} that",
            root="observation",
        )
        self.action_spec = spec_from_gym_space(self.action_space, name="action")
        self.to_action = action_converter(
            self.action_space,
            self.action_spec,
            subject=f"{adapter}.step() was given an action of {agent!r} that",
            root="action",
        )
        self.observation_spec: NestedSpec = spec
        self.mask_spec: NestedSpec | None = None
        if self._mask_is_seen:
            self.observation_spec = spec["observation"]
            self.mask_spec = spec["action_mask"]
        elif self.masks_come_by_info:
            self.mask_spec = self._spec_of_info_mask()
        self.neutral = AgentObservation(
            neutral_value(self.observation_spec),
            None if self.mask_spec is None else neutral_value(self.mask_spec),
        )

    def read(self, observation: Any, info: Any) -> AgentObservation:
        """Converts an observation, and finds the mask."""
        value = self._read(observation)
        if self._mask_is_seen:
            return AgentObservation(value["observation"], value["action_mask"])
        if self.masks_come_by_info:
            return AgentObservation(value, self._mask_of(info))
        return AgentObservation(value, None)

    def _spec_of_info_mask(self) -> NestedSpec:
        if kind_of_space(self.action_space) != "Discrete":
            raise ValueError(
                f"{self._name} cannot read masks from infos: the actions of "
                f"{self.agent!r} are {self.action_space}, and only actions of a "
                "Discrete space can be counted."
            )
        count = int(self.action_space.n)
        return BoundedArraySpec((count,), np.int8, 0, 1, "action_mask")

    def _mask_of(self, info: Any) -> Array:
        spec: Any = self.mask_spec
        given = info.get("action_mask") if isinstance(info, Mapping) else None
        if given is None:  # without a mask, everything is legal
            return np.ones(spec.shape, spec.dtype)
        mask = np.array(given)
        if mask.shape != spec.shape or mask.dtype.kind not in "biuf":
            raise SpecError.does_not_fit(
                f"{self._name} returned a mask of {self.agent!r} that",
                path="",
                expected=repr(spec),
                got=describe(given),
                reason="A mask has a 1 for each action that is legal, and a 0 for each "
                "other.",
            )
        return mask.astype(spec.dtype)


def _is_masked(spec: NestedSpec) -> bool:
    return (
        isinstance(spec, dict)
        and spec.keys() == _MASKED
        and isinstance(spec["action_mask"], ArraySpec)
    )


def players_of(
    game: Any, agents: Sequence[Any], name: str, adapter: str, mask: str
) -> list[Player]:
    """Returns a player for each agent; either all of them have masks, or none."""
    if mask not in _MASK_PLACES:
        raise ValueError(
            f"action_mask must be one of {listed(map(repr, _MASK_PLACES))}, got "
            f"{mask!r}."
        )
    players = [Player(game, agent, name, adapter, mask) for agent in agents]
    masked = [player.mask_spec is not None for player in players]
    if len(set(masked)) > 1:
        # If only some have a mask, it stays where the game puts it.
        return [Player(game, agent, name, adapter, "none") for agent in agents]
    return players


def _check_alike(players: Sequence[Player], name: str, remedy: str) -> None:
    """Raises unless all agents have the same spaces.

    Args:
        players: The agents.
        name: The game's name.
        remedy: What to do about it.
    """
    first = players[0]
    for part in ("observation", "action"):
        ours = getattr(first, f"{part}_space")
        for player in players[1:]:
            theirs = getattr(player, f"{part}_space")
            if ours != theirs:
                width = max(len(repr(first.agent)), len(repr(player.agent)))
                raise SpecMismatchError(
                    f"{name} has agents with different {part} spaces, so they have no "
                    "common axis.\n\n"
                    f"  {first.agent!r:{width}}   {ours!r:.200}\n"
                    f"  {player.agent!r:{width}}   {theirs!r:.200}\n\n"
                    f"{remedy}"
                )


class LiveAgents:
    """Follows the agents through an episode.

    Example:
        >>> live = LiveAgents(["red", "blue"])
        >>> live.begin(["red", "blue"])
        >>> live.go_on(["blue"], {"red": True, "blue": False}, {})
        [0]
        >>> live.alive, live.discounts(0.9)
        ([False, True], [0.0, 0.9])
    """

    def __init__(self, agents: Sequence[Any]) -> None:
        """Begins with no agent in the game."""
        self._agents = list(agents)
        self.alive = [False] * len(self._agents)
        self.terminated = list(self.alive)

    @property
    def is_over(self) -> bool:
        """True if no agent takes part any more."""
        return not any(self.alive)

    def begin(self, present: Collection[Any]) -> None:
        """Begins an episode with the present agents."""
        self.alive = [agent in present for agent in self._agents]
        self.terminated = [False] * len(self._agents)

    def go_on(
        self,
        present: Collection[Any],
        terminations: Mapping[Any, Any],
        truncations: Mapping[Any, Any],
    ) -> list[int]:
        """Follows one step.

        Args:
            present: The agents that are present now. Some games still list agents that
                have ended.
            terminations: True for agents whose game has terminated.
            truncations: True for agents whose game was truncated.

        Returns:
            The indices of the agents that ended with this step.
        """
        ended = []
        for place, agent in enumerate(self._agents):
            terminated = bool(terminations.get(agent, False))
            over = terminated or bool(truncations.get(agent, False))
            was, now = self.alive[place], agent in present and not over
            if was and not now:
                ended.append(place)
                self.terminated[place] = terminated
            elif now:
                self.terminated[place] = False
            self.alive[place] = now
        return ended

    def discounts(self, discount: float) -> list[float]:
        """Returns each agent's discount."""
        return [0.0 if terminated else discount for terminated in self.terminated]


def _opened(env_or_factory: Any, adapter: str) -> Any:
    """Returns a game: the given one, or a factory's result."""
    if _is_game(env_or_factory):
        return env_or_factory
    if not callable(env_or_factory):
        _refuse(adapter, f"was given {describe(env_or_factory)}")
    game = env_or_factory()
    if not _is_game(game):
        _refuse(adapter, f"was given a factory that made {describe(game)}")
    return game


def _is_game(thing: Any) -> bool:
    has_methods = all(callable(getattr(thing, name, None)) for name in _NEEDED)
    return has_methods and not isinstance(thing, type)


def _refuse(adapter: str, what: str) -> NoReturn:
    raise TypeError(
        f"{adapter} {what}, which is not an environment of PettingZoo. Its modules "
        "have functions that make some: pettingzoo.butterfly.pistonball_v6"
        ".parallel_env()."
    )


def is_aec(game: Any) -> bool:
    """Returns True for a game in which agents take turns: an AEC game."""
    return callable(getattr(game, "last", None)) and hasattr(game, "observe")


def name_of_game(game: Any) -> str:
    """Returns a game's own name, or the name of its class."""
    innermost = getattr(game, "unwrapped", game)
    metadata = getattr(game, "metadata", None) or {}
    return str(metadata.get("name") or type(innermost).__name__)


def _agents_of(game: Any, given: Sequence[Any] | None, adapter: str) -> list[Any]:
    """Returns all agents that may take part: the given ones, or the game's."""
    named = getattr(game, "possible_agents", None) or ()
    agents = list(named if given is None else given)
    if not agents:
        raise ValueError(
            f"{adapter} was given {name_of_game(game)}, which has no possible_agents. "
            "Name all agents that may ever take part: "
            f'{adapter}(env, possible_agents=["agent_0", "agent_1"]).'
        )
    if len(set(agents)) != len(agents):
        raise ValueError(f"possible_agents names an agent twice: {agents!r:.200}.")
    return agents


def _layers_of(game: Any) -> list[Any]:
    """Lists the wrappers and conversions, outermost first, and the game last."""
    layers = [game]
    while (inner := _inside(layers[-1])) is not None:
        layers.append(inner)
    return layers


def _inside(layer: Any) -> Any:
    # Some games have an `env` attribute without being wrappers.
    innermost = getattr(layer, "unwrapped", layer)
    if innermost is layer:
        return None
    held: dict[str, Any] = vars(layer)
    return held.get("env", held.get("aec_env", innermost))


class GameEnvironment(LossesInInfos, ResetArguments, ForeignEnvironment):
    """Is the base class of both PettingZoo adapters.

    A subclass implements `_of_kind`, `_begin` and `_move`. `_layouts` maps the values
    of the argument `agents` to layouts; a layout along an axis needs agents that are
    alike.
    """

    _layouts: ClassVar[Mapping[str, type[Layout]]]

    def __init__(
        self,
        env_or_factory: Any,
        agents: str,
        *,
        possible_agents: Sequence[Any] | None,
        discount: float,
        action_mask: str,
        reset_options: Mapping[str, Any] | None,
        reward_dtype: Any,
    ) -> None:
        """Opens a game; the arguments are the adapters'."""
        self._adapter = adapter = type(self).__name__
        require("pettingzoo", needed_by=adapter, extra="pettingzoo")
        require("gymnasium", needed_by=adapter, extra="pettingzoo")
        if agents not in self._layouts:
            names = " or ".join(f'"{name}"' for name in self._layouts)
            raise ValueError(f"agents must be {names}, got {agents!r}.")
        super().__init__(handle_auto_reset=True)
        self._foreign = game = self._of_kind(_opened(env_or_factory, adapter))
        self._name = name_of_game(game)
        self._agents = _agents_of(game, possible_agents, adapter)
        self._players = players_of(game, self._agents, self._name, adapter, action_mask)
        self._announced = action_mask != "auto" or self._has_mask
        self._layout = self._layouts[agents](self._agents)
        self._live = LiveAgents(self._agents)
        self._discount = as_discount(discount)
        self._number = ArraySpec((), reward_dtype, "reward")
        self._seen = [player.neutral for player in self._players]
        self._info: dict[Any, Any] = {}
        self._know_reset(_layers_of(game), reset_options)
        if isinstance(self._layout, AxisLayout):
            _check_alike(
                self._players,
                self._name,
                f'{adapter}(env, agents="dict") keeps them apart, by name.',
            )

    def _of_kind(self, game: Any) -> Any:
        """Returns a game of the adapter's kind, converted if necessary."""
        raise NotImplementedError

    def _compile(self, view: Layout) -> None:
        """Makes the specs, and the functions that join parts.

        Args:
            view: The layout of observations and actions.
        """
        layout, count = self._layout, len(self._agents)
        discount = BoundedArraySpec((), np.float32, 0.0, 1.0, "discount")
        self._reward_spec = layout.join_specs([self._number] * count)
        self._discount_spec = layout.join_specs([discount] * count)
        self._join_rewards = layout.joining([self._number] * count)
        self._join_discounts = layout.joining([discount] * count)
        self._join_flags = layout.joining([_IS_ALIVE] * count)
        seen = [player.observation_spec for player in self._players]
        self._observation_spec = {
            "observation": view.join_specs(seen),
            "alive": layout.join_specs([_IS_ALIVE] * count),
        }
        self._join_observations = view.joining(seen)
        if self._has_mask:
            masks = [player.mask_spec for player in self._players]
            self._observation_spec["action_mask"] = view.join_specs(masks)
            self._join_masks = view.joining(masks)
        actions = [player.action_spec for player in self._players]
        self._action_spec = view.join_specs(actions)
        self._to_action = view.choosing(
            self._action_spec, f"{self._adapter}.step() was given an action that"
        )
        self._prepare()

    @property
    def game(self) -> Any:
        """The PettingZoo environment."""
        return self._foreign

    @property
    def possible_agents(self) -> list[Any]:
        """All agents that may take part, in the order of the axis."""
        return list(self._agents)

    @property
    def action_mask_in(self) -> str | None:
        """The place of the game's masks: "observation", "info", or `None`."""
        if not self._has_mask:
            return None
        return "info" if self._players[0].masks_come_by_info else "observation"

    @property
    def _has_mask(self) -> bool:
        return self._players[0].mask_spec is not None

    def get_info(self) -> dict[Any, Any]:
        """Returns the game's infos for the current time step, by agent.

        Infos of agents that ended with it include `terminated` and `truncated`. If the
        game reports legal actions, each agent's info has the `action_mask`. Before the
        first reset there are none.
        """
        infos = {
            agent: without_loss(info) for agent, info in kept_infos(self._info).items()
        }
        if self._declares and self._current_time_step is not None:
            for agent, mask in zip(self._agents, self._masks(), strict=True):
                info = as_info(infos.get(agent))
                infos[agent] = {**info, "action_mask": np.copy(mask)}
        return infos

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of the masks in the agents' infos, if there are any."""
        if not self._declares:
            return {}
        return {
            player.agent: {"action_mask": player.mask_spec} for player in self._players
        }

    @property
    def _declares(self) -> bool:
        # Declared keys must be text.
        names = all(isinstance(agent, str) for agent in self._agents)
        return self._has_mask and names

    def _masks(self) -> list[Any]:
        """Returns each agent's mask for the current time step."""
        return [one.mask for one in self._seen]

    def _draw(self, mode: str) -> Any:
        check_render_mode(self._foreign, self._name, mode, "PettingZoo")
        return self._foreign.render()

    def _shown(self, seen: Sequence[AgentObservation]) -> dict[str, NestedArray]:
        """Returns an observation from the agents' observations and the agents alive."""
        observation = {
            "observation": self._join_observations([each.observation for each in seen]),
            "alive": self._join_flags([np.array(alive) for alive in self._live.alive]),
        }
        if self._has_mask:
            observation["action_mask"] = self._join_masks([each.mask for each in seen])
        return observation

    def _rewards(self, rewards: Mapping[Any, Any], earning: Sequence[bool]) -> Any:
        """Returns the rewards of agents that earn one, and 0 for the others."""
        pairs = zip(self._agents, earning, strict=True)
        return self._join_rewards(
            [
                self._as_reward(agent, rewards.get(agent, 0) if earns else 0)
                for agent, earns in pairs
            ]
        )

    def _as_reward(self, agent: Any, reward: Any) -> Array:
        array = np.asarray(reward)
        if array.size != 1 or array.dtype.kind not in "biuf":
            raise SpecError.does_not_fit(
                f"{self._name} returned a reward of {agent!r} that",
                path="",
                expected=repr(self._number),
                got=describe(reward),
                reason="A reward of an agent is one number.",
            )
        return np.array(array.reshape(()), self._number.dtype)

    def _discounts(self) -> Any:
        worth = self._live.discounts(self._discount)
        return self._join_discounts([np.array(each, np.float32) for each in worth])

    def _result(self, observation: Any, rewards: Any) -> Result:
        """Returns the result of a step; discounts tell how it ended for each agent."""
        is_over, discounts = self._live.is_over, self._discounts()
        goes_on = is_over and any(map(np.any, nest.flatten(discounts)))
        return Result(
            observation,
            rewards,
            is_over and not goes_on,
            goes_on,
            self._info,
            discounts,
        )

    # A game's result has been joined already.

    def _to_observation(self, observation: Any) -> NestedArray:
        return observation

    def _to_reward(self, reward: Any) -> NestedArray:
        return reward

    def _to_discount(self, discount: Any) -> NestedArray:
        return discount

    def _keep_end(self, info: Any, terminated: bool, truncated: bool) -> None:
        self._info = info  # the agents' infos have the flags
        self._record_loss()

    def _loss_in(self, info: Any) -> Loss | None:
        return next(filter(None, map(loss_in, info.values())), None)

    def _welcome(self, present: Sequence[Any]) -> None:
        """Begins an episode with some agents, which have no observation yet."""
        self._check_known(present)
        self._live.begin(present)
        self._seen = [player.neutral for player in self._players]

    def _check_has_agents(self) -> None:
        if self._live.is_over:
            raise SpecError(
                f"{self._name}.reset() began an episode in which no agent acts: its "
                "list `agents` is empty, or the game has ended for all of them."
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
        """Keeps an agent's observation."""
        if not self._announced and isinstance(info, Mapping) and "action_mask" in info:
            raise SpecError(
                f"{self._name} says in its infos which actions are legal. Pass "
                'action_mask="info" to have that in the observation, or '
                'action_mask="none" to leave it to get_info().'
            )
        self._seen[place] = self._players[place].read(observation, info)

    def _flag(self, ended: Sequence[int], terminations: Any, truncations: Any) -> None:
        """Adds flags to the infos of agents that ended; a discount shows only one."""
        for place in ended:
            agent = self._agents[place]
            self._info[agent] = {
                "terminated": bool(terminations.get(agent, False)),
                "truncated": bool(truncations.get(agent, False)),
                **as_info(self._info.get(agent)),
            }

    def _kept(self) -> tuple[Any, ...]:
        """Returns the parts of a state other than the game."""
        live = self._live.alive, self._live.terminated
        options = self._reset_options, self._next_options
        seen = [tuple(one) for one in self._seen]
        return live, seen, self._info, self._next_seed, options

    def _take_back(self, kept: tuple[Any, ...]) -> None:
        """Restores a result of `_kept`."""
        live, seen, self._info, self._next_seed, options = kept
        self._live.alive, self._live.terminated = live
        self._seen = [AgentObservation(*one) for one in seen]
        self._reset_options, self._next_options = options

    def _get_state(self) -> Any:
        layers = _layers_of(self._foreign)
        # A pymunk space pickles without its contacts between bodies, so a copied game
        # would continue differently.
        for value in (value for layer in layers for value in vars(layer).values()):
            if type(value).__module__.partition(".")[0] == "pymunk":
                raise NotImplementedError(
                    f"{self._name} cannot save its state: a pickle of pymunk's "
                    "physics lacks the contacts between bodies."
                )
        return take_snapshot(self._foreign, self._name, self._kept(), layers=layers)

    def _set_state(self, state: Any) -> None:
        layers = _layers_of(self._foreign)
        self._take_back(
            restore_snapshot(self._foreign, self._name, state, layers=layers)
        )


def kept_infos(infos: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Returns a copy of the agents' infos, because some games change them later.

    Games without infos return `None` for all of them, or for one agent.
    """
    return {
        agent: as_info(info) if info is None or isinstance(info, Mapping) else info
        for agent, info in (infos or {}).items()
    }
