"""TextArena's games, which draw from `random`, keep to their seeds in any worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envkit import (
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    RestartPolicy,
    restart,
    termination,
    transition,
)
from envkit.specs import ObjectSpec
from envkit.testing import chaos
from envkit.wrappers import PrivateRandomness

pytest.importorskip("textarena", reason="needs TextArena: pip install textarena")

MOVES = ("[Hit]", "[Stand]")
REPLAY = RestartPolicy(max_restarts=99, within=None, backoff=0, recover="replay")


class Blackjack(PyEnvironment):
    """Shows the game's whole transcript."""

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)

    def observation_spec(self) -> ObjectSpec:
        return ObjectSpec()

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self) -> Any:
        import textarena

        # Anew, because its wrappers keep the transcript of the episode before.
        self.game = textarena.make("Blackjack-v0")
        self.game.reset(num_players=1)
        return restart(self._seen())

    def _seen(self) -> Any:
        seen = np.empty((), object)
        seen[()] = self.game.get_observation()[1]
        return seen

    def _step(self, action: Any) -> Any:
        done, _ = self.game.step(action=MOVES[int(action)])
        if done:
            rewards, _ = self.game.close()
            return termination(np.array("over", object), rewards[0])
        return transition(self._seen(), reward=0.0)


def make() -> PrivateRandomness:
    return PrivateRandomness(Blackjack, generators=("random",))


def played(env: Any, seeds: Any) -> list[Any]:
    """Returns what is seen in some games, by time step and row."""
    env.seed(seeds)
    shown = []
    for step in range(60):
        time_step = env.step(np.full(np.shape(seeds), step % 3 == 2, np.int64))
        shown.append((time_step.observation.tolist(), time_step.reward.tolist()))
    return shown


def by_row(shown: list[Any], rows: int) -> list[Any]:
    return [[(seen[row], reward[row]) for seen, reward in shown] for row in range(rows)]


@pytest.mark.parametrize("rows", [4, 16])
@pytest.mark.parametrize("kills", [False, True])
def test_games_play_in_one_worker_as_they_do_alone(nothing_left_behind, rows, kills):
    alone = [played(make(), seed) for seed in range(rows)]

    makers = [make] * rows
    with ParallelPyEnvironment(makers, num_workers=1, on_worker_failure=REPLAY) as pool:
        if kills:
            with chaos(pool, every_steps=25):
                together = played(pool, list(range(rows)))
            assert pool.statistics().restarts
        else:
            together = played(pool, list(range(rows)))

    assert alone == by_row(together, rows)
