"""Losses at the doors of a network: what servers tell, and what clients report."""

from __future__ import annotations

import numpy as np

from envkit.adapters.foreign import ForeignEnvironment
from envkit.errors import EnvironmentRaised, EnvkitError, WorkerCrashed, WorkerTimeout
from envkit.extend import DirectRow
from envkit.losses import Loss
from envkit.types import Array

__all__ = ["KINDS", "REPLACED", "EnvironmentLostError", "LosingClient", "loss_of"]

KINDS = ("crashed", "timed_out", "raised", "reset_failed", "link_lost")
# The kinds after which a client shows a made-up `LAST`. After the others it raises, as
# an environment in its own process would.
REPLACED = ("crashed", "timed_out", "link_lost")


class EnvironmentLostError(EnvkitError):
    """A served environment is lost, and its episode has no end.

    Attributes:
        loss: What was lost.
    """

    def __init__(self, loss: Loss) -> None:
        error = loss.error
        text = str(error).partition("\n")[0]
        if not isinstance(error, WorkerCrashed | WorkerTimeout | EnvironmentRaised):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        super().__init__(f"The environment was lost ({loss.kind}): {text}")
        self.loss = loss


def loss_of(error: BaseException, kind: str) -> Loss:
    """Returns the loss of a single environment that has raised.

    Args:
        error: What it has raised.
        kind: The kind, unless it says more about itself.

    Example:
        >>> loss_of(WorkerCrashed("worker 0 died"), "raised").kind
        'crashed'
        >>> loss_of(ValueError("no level"), "reset_failed").kind
        'reset_failed'
    """
    if isinstance(error, WorkerCrashed):
        kind = "crashed"
    elif isinstance(error, WorkerTimeout):
        kind = "timed_out"
    if not isinstance(error, Exception):  # SystemExit, for example
        error = EnvironmentRaised(f"{type(error).__name__}: {error}")
    return Loss(0, kind, error)


class LosingClient(ForeignEnvironment):
    """Is the base class of clients that end an episode if its environment is lost.

    A subclass calls `_lose` when it makes up a `LAST`, and sets `_loss` to `None` when
    an episode begins.
    """

    _loss: Loss | None = None
    _unasked_losses: tuple[Loss, ...] = ()

    def _lose(self, kind: str, error: Exception) -> None:
        """Records why the `LAST` that follows is made up."""
        self._loss = Loss(0, kind, error)
        self._unasked_losses = (*self._unasked_losses, self._loss)[-_MOST_KEPT:]

    @property
    def repaired(self) -> Array:
        """Whether the last time step is a made-up `LAST`, as a mask."""
        return np.array(self._loss is not None)

    def current_losses(self) -> dict[int, Loss]:
        """Returns the loss behind `repaired`, if it is set."""
        return {} if self._loss is None else {0: self._loss}

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call, the oldest first."""
        losses, self._unasked_losses = list(self._unasked_losses), ()
        return losses

    def _direct_row(self) -> DirectRow | None:
        return None  # it would not show that a `LAST` is made up


# A program that never asks must not fill its memory with errors.
_MOST_KEPT = 4096
