"""`Player`: what one agent sees and does, in the library's terms and in envkit's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit.adapters.spaces.checked_members import action_converter
from envkit.adapters.spaces.from_members import from_member
from envkit.adapters.spaces.one_of import neutral_value
from envkit.adapters.spaces.space_kinds import kind_of_space
from envkit.adapters.spaces.specs_from_spaces import spec_from_gym_space
from envkit.errors import SpecError, SpecMismatchError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wording import listed

__all__ = ["MASK_PLACES", "Player", "Sight", "check_alike", "players_of"]

# Where a game says which actions are legal.
MASK_PLACES = ("auto", "info", "none")
_MASKED = {"observation", "action_mask"}


class Sight(NamedTuple):
    """What an agent sees: an observation, and which actions are legal, if told."""

    observation: NestedArray
    mask: NestedArray | None


class Player:
    """Converts what one agent sees and does.

    Attributes:
        agent: The agent.
        observation_space: The library's space of what it sees.
        action_space: The library's space of what it does.
        observation_spec: What it observes, without the mask.
        action_spec: What it does.
        mask_spec: The mask of its legal actions; `None` if there is none.
        masks_come_by_info: Whether the mask is in the infos.
        to_action: Makes a member of the agent's action space.
        neutral: What stands for its sight where it takes no part.
    """

    def __init__(
        self, game: Any, agent: Any, name: str, adapter: str, mask: str
    ) -> None:
        """Looks at an agent's spaces.

        Args:
            game: The game.
            agent: The agent.
            name: What to call the game in errors.
            adapter: Whose `step` takes actions.
            mask: Where the mask is: one of `MASK_PLACES`.
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
        self.neutral = Sight(
            neutral_value(self.observation_spec),
            None if self.mask_spec is None else neutral_value(self.mask_spec),
        )

    def sees(self, observation: Any, info: Any) -> Sight:
        """Converts an observation, and finds the mask."""
        value = self._read(observation)
        if self._mask_is_seen:
            return Sight(value["observation"], value["action_mask"])
        if self.masks_come_by_info:
            return Sight(value, self._mask_of(info))
        return Sight(value, None)

    def _spec_of_info_mask(self) -> NestedSpec:
        if kind_of_space(self.action_space) != "Discrete":
            raise ValueError(
                f"{self._name} cannot have its masks read from infos: actions of "
                f"{self.agent!r} are {self.action_space}, and only those of a Discrete "
                "space can be counted."
            )
        count = int(self.action_space.n)
        return BoundedArraySpec((count,), np.int8, 0, 1, "action_mask")

    def _mask_of(self, info: Any) -> Array:
        spec: Any = self.mask_spec
        given = info.get("action_mask") if isinstance(info, Mapping) else None
        if given is None:  # What is not forbidden is legal.
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
    """Returns a player for each agent, and masks for all of them or for none."""
    if mask not in MASK_PLACES:
        raise ValueError(
            f"action_mask is {mask!r}; it is one of {listed(map(repr, MASK_PLACES))}."
        )
    players = [Player(game, agent, name, adapter, mask) for agent in agents]
    masked = [player.mask_spec is not None for player in players]
    if len(set(masked)) > 1:
        # A mask that some have stays where the game puts it.
        return [Player(game, agent, name, adapter, "none") for agent in agents]
    return players


def check_alike(players: Sequence[Player], name: str, remedy: str) -> None:
    """Raises unless all agents have the same spaces.

    Args:
        players: The agents.
        name: What to call the game.
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
