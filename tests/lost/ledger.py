"""What a consumer makes of the episodes that it is shown: `Ledger`.

A player tells the ledger what its library tells a learner: that an episode has begun,
a transition, that the episode is complete, or that it is lost. The ledger compares all
of it with the undisturbed episodes.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np

from tests.lost.numbered import action_of, episode_of

__all__ = ["Ledger", "episodes_to_play"]


def episodes_to_play(usual: int) -> int:
    """Returns how many episodes a test plays: ENVKIT_LOST_EPISODES, if that is set."""
    return int(os.environ.get("ENVKIT_LOST_EPISODES") or usual)


class Ledger:
    """Sorts the episodes of some rows.

    Attributes:
        complete: How many episodes were shown from their beginning to their own end.
        lost: How many were lost, by the kind of loss.
        unresolved: How many were given up before they ended.
        fabricated: A sentence for whatever was shown as real and is not.
    """

    def __init__(self, rows: int) -> None:
        self.begun = self.complete = self.unresolved = 0
        self.lost: Counter[str] = Counter()
        self.fabricated: list[str] = []
        self._seeds: list[int | None] = [None] * rows
        self._rewards: list[list[float]] = [[] for _ in range(rows)]

    @property
    def resolved(self) -> int:
        """How many episodes have come to an end that the consumer knows."""
        return self.complete + self.lost.total()

    @property
    def actions(self) -> np.ndarray:
        """The action for each row's next step."""
        return np.array([action_of(len(each) + 1) for each in self._rewards], np.int32)

    def is_playing(self, row: int = 0) -> bool:
        """Returns True if the row is within an episode."""
        return self._seeds[row] is not None

    def begin(self, observation: Any, row: int = 0) -> None:
        """Takes the first observation of an episode."""
        self.give_up(row)
        seed, step, wrong = map(int, observation)
        self._expect(row, "the beginning", (step, wrong), (0, 0))
        self._seeds[row], self._rewards[row] = seed, []
        self.begun += 1

    def step(self, observation: Any, reward: float, row: int = 0) -> None:
        """Takes a transition that is shown as real."""
        seed, rewards = self._seeds[row], self._rewards[row]
        rewards.append(float(reward))
        shown = tuple(map(int, observation))
        self._expect(row, "a step", shown, (seed, len(rewards), 0))

    def end(self, row: int = 0, *, is_terminated: bool | None) -> None:
        """Takes an episode as complete; `None` if nothing is told of how it ended."""
        seed = self._seeds[row]
        expected = episode_of(-1 if seed is None else seed)
        ends = expected.is_terminated if is_terminated is not None else None
        self._expect(
            row,
            "an episode",
            (tuple(self._rewards[row]), is_terminated, 0),
            (expected.rewards, ends, expected.raises_at),
        )
        self.complete += 1
        self._close(row)

    def lose(self, kind: str, row: int = 0) -> None:
        """Takes the loss of the row's episode."""
        self.lost[kind] += 1
        self._close(row)

    def give_up(self, row: int = 0) -> None:
        """Takes the end of an episode that nobody plays to its end."""
        if self._seeds[row] is not None:
            self.unresolved += 1
            self._close(row)

    def _close(self, row: int) -> None:
        self._seeds[row], self._rewards[row] = None, []

    def _expect(self, row: int, what: str, shown: Any, expected: Any) -> None:
        if shown != expected:
            self.fabricated.append(
                f"{what} in row {row}: {shown} was shown, and {expected} is real"
            )

    def close(self, *kinds: str) -> None:
        """Checks the whole, when the play is over.

        Args:
            *kinds: The kinds of losses that must have come.
        """
        for row in range(len(self._seeds)):
            self.give_up(row)
        print(self)
        assert self.fabricated == []
        assert self.begun == self.resolved + self.unresolved
        assert self.complete
        assert set(kinds) <= set(self.lost)

    def __str__(self) -> str:
        lost = ", ".join(f"{count} {kind}" for kind, count in sorted(self.lost.items()))
        return (
            f"{self.complete} complete, {self.lost.total()} lost ({lost}), "
            f"{self.unresolved} unresolved, {len(self.fabricated)} fabricated"
        )
