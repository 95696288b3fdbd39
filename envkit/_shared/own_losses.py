"""`OwnLosses`: what a single environment reports if it makes up ends itself."""

from __future__ import annotations

import numpy as np

from envkit.losses import Loss
from envkit.types import Array

__all__ = ["MOST_KEPT", "OwnLosses"]

# A program that never asks must not fill its memory with errors.
MOST_KEPT = 4096


class OwnLosses:
    """Reports the losses of a single environment; comes first among its base classes.

    A subclass calls `_lose` when it makes up a `LAST`, and sets `_loss` to `None` when
    an episode begins.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> class Losing(OwnLosses, CountingEnv):
        ...     def _step(self, action):
        ...         self._lose("link_lost", OSError("it is gone"))
        ...         return super()._step(action)
        >>> env = Losing()
        >>> _ = env.reset(), env.step(0)
        >>> bool(env.repaired), [loss.kind for loss in env.losses()], env.losses()
        (True, ['link_lost'], [])
    """

    _loss: Loss | None = None
    _unasked_losses: tuple[Loss, ...] = ()

    def _lose(self, kind: str, error: Exception) -> None:
        """Records why the `LAST` that follows is made up."""
        self._loss = Loss(0, kind, error)
        self._record_loss()

    def _shown_loss(self) -> Loss | None:
        """Returns the loss behind the last time step."""
        return self._loss

    def _record_loss(self) -> None:
        loss = self._shown_loss()
        if loss is not None:
            self._unasked_losses = (*self._unasked_losses, loss)[-MOST_KEPT:]

    @property
    def repaired(self) -> Array:
        """Whether the last time step is a made-up `LAST`, as a mask."""
        return np.array(self._shown_loss() is not None)

    def current_losses(self) -> dict[int, Loss]:
        """Returns the loss behind `repaired`, if it is set."""
        loss = self._shown_loss()
        return {} if loss is None else {0: loss}

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call, the oldest first."""
        losses, self._unasked_losses = list(self._unasked_losses), ()
        return losses
