"""What an info says of an observation of PySC2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["seen_in"]


def seen_in(observation: Any) -> dict[str, Any]:
    """Returns what an info says of an observation of PySC2's."""
    if not isinstance(observation, Mapping):  # A message of the game.
        observation = observation.observation
        score = observation.score.score
        return {"game_loop": int(observation.game_loop), "score": int(score)}
    info: dict[str, Any] = {}
    if "game_loop" in observation:
        info["game_loop"] = int(observation["game_loop"][0])
    if "score_cumulative" in observation:
        info["score"] = int(observation["score_cumulative"][0])
    if "map_name" in observation:
        info["map_name"] = observation["map_name"]
    return info
