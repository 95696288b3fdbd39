"""Environments that answer every step with a `LAST`, as TF-Agents' bandits do."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import ArraySpec, BoundedArraySpec, PyEnvironment, restart, termination
from envkit.errors import SpecError


class Guess(PyEnvironment):
    """Asks for a number; the reward is 1 for that one, and the next is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0
        self.taken: list[int] = []

    def observation_spec(self) -> Any:
        return ArraySpec((), np.int32)

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int32, 0, 9)

    def _observe(self) -> Any:
        return np.array(self._asked, np.int32)

    def _reset(self) -> Any:
        self._asked = 3
        return restart(self._observe())

    def _step(self, action: Any) -> Any:
        self.taken.append(int(action))
        reward = float(action == self._asked)
        self._asked = (self._asked + 1) % 10
        return termination(self._observe(), reward)

    def get_info(self) -> dict[str, Any]:
        return {"asked": self._asked}

    def _get_state(self) -> Any:
        return self._asked

    def _set_state(self, state: Any) -> None:
        self._asked = state


class Bandit(Guess):
    """Says so."""

    continues_after_last = True


class BanditBatch(PyEnvironment):
    """Is a batch of them, with one generator of questions."""

    continues_after_last = True
    batched = True

    def __init__(self, rows: int = 2, handle_auto_reset: bool = False) -> None:
        super().__init__(handle_auto_reset)
        self._rows = rows
        self._asked = np.zeros(rows, np.int32)

    @property
    def batch_size(self) -> int:
        return self._rows

    def observation_spec(self) -> Any:
        return ArraySpec((), np.int32)

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int32, 0, 9)

    def _reset(self) -> Any:
        self._asked = np.full(self._rows, 3, np.int32)
        return restart(self._asked.copy(), self._rows)

    def _reset_rows(self, mask: Any) -> Any:
        self._asked = np.where(mask, 3, self._asked).astype(np.int32)
        return restart(self._asked.copy(), self._rows)

    def _step(self, action: Any) -> Any:
        action = np.asarray(action)
        if action.shape != (self._rows,):
            raise SpecError("There must be one action for each row.")
        reward = (action == self._asked).astype(np.float32)
        self._asked = (self._asked + 1) % np.int32(10)
        return termination(self._asked.copy(), reward)
