"""`LossLog`: the losses of a pool, until its caller asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from envkit.errors import WorkerError
from envkit.losses import Loss

__all__ = ["LossLog"]

# For a state whose environment was lost, and not replaced, when it was saved.
_EARLIER = "The environment was lost before its state was saved, in another run."
# A program that never asks must not fill its memory with errors.
_MOST_KEPT = 4096


class LossLog:
    """Keeps each loss from the failure until the caller takes it.

    A failure is blamed on rows when it is handled. Its loss is reported when the row
    returns something in its place. For an idle row that is a later call, or never,
    because recovery may bring the environment back.

    Example:
        >>> log = LossLog()
        >>> log.blame([0, 1], "crashed", WorkerError("worker 0 died"))
        >>> log.end(0)
        >>> [(loss.row, loss.kind) for loss in log.take()], log.take()
        ([(0, 'crashed')], [])
        >>> log.endings[0].kind
        'crashed'
    """

    def __init__(self) -> None:
        self._blamed: dict[int, Loss] = {}
        self._told: deque[Loss] = deque(maxlen=_MOST_KEPT)
        self._resets: set[int] = set()
        # : By row, the number of the answer after which its environment was asked.
        self.asked: dict[int, int] = {}
        # : The loss that cut the last lost episode of each row short.
        self.endings: dict[int, Loss] = {}

    def blame(self, rows: Iterable[int], kind: str, error: WorkerError) -> None:
        """Records why the environments of some rows were lost."""
        self._blamed.update((row, Loss(row, kind, error)) for row in rows)

    def add(self, loss: Loss) -> None:
        """Reports a loss that cut an episode short inside a row's environment."""
        self.endings[loss.row] = loss
        self._told.append(loss)

    def tell(self, row: int) -> None:
        """Reports the loss of a row that was about to begin, unless reported before."""
        if self._tell(row):
            self._resets.add(row)

    def rebuild(self, rows: Iterable[int]) -> None:
        """Records that rows' seeds and options went to their previous environment."""
        self._resets.update(rows)

    def end(self, row: int) -> None:
        """Reports a row's loss, which cuts its episode short."""
        if row not in self._blamed:
            self.blame([row], "crashed", WorkerError(_EARLIER))
        self.endings[row] = self._blamed[row]
        self._tell(row)

    def _tell(self, row: int) -> bool:
        loss = self._blamed.pop(row, None)
        if loss is not None:
            self._told.append(loss)
        return loss is not None

    def take(self) -> list[Loss]:
        """Returns the losses reported since the last call, the oldest first."""
        taken = list(self._told)
        self._told.clear()
        return taken

    def take_resets(self, rows: Iterable[int]) -> set[int]:
        """Returns those of the rows that have begun in a new environment.

        The old one was lost in the reset, or had raised and was rebuilt for it.
        """
        taken = self._resets.intersection(rows)
        self._resets -= taken
        return taken
