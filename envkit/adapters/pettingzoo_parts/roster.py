"""`Roster`: who takes part in a game, and how it ended for the others.

```
before the agent appears      alive False   discount as given   reward 0
while it takes part           alive True    discount as given
the step at which it ends     alive False   0 if terminated, else as given
from then on                  alive False   the same            reward 0
```

So the last time step of an episode tells by its discounts alone for whom the game
ended, and for whom it was only cut off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

__all__ = ["Roster"]


class Roster:
    """Follows the agents through an episode.

    Example:
        >>> roster = Roster(["red", "blue"])
        >>> roster.begin(["red", "blue"])
        >>> roster.go_on(["blue"], {"red": True, "blue": False}, {})
        [0]
        >>> roster.alive, roster.discounts(0.9)
        ([False, True], [0.0, 0.9])
    """

    def __init__(self, agents: Sequence[Any]) -> None:
        """Begins with nobody in the game."""
        self._agents = list(agents)
        self.alive = [False] * len(self._agents)
        self.terminated = list(self.alive)

    @property
    def is_over(self) -> bool:
        """Whether nobody takes part any more."""
        return not any(self.alive)

    def begin(self, present: Collection[Any]) -> None:
        """Begins an episode with the agents that are there."""
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
            present: The agents that are there now. Some games still list those that
                have ended.
            terminations: For whom the game has ended.
            truncations: For whom it was cut off.

        Returns:
            The places of the agents that ended with this step.
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
        """Returns what later rewards are worth to each agent."""
        return [0.0 if terminated else discount for terminated in self.terminated]
