"""Losses in the infos of other libraries, which have no other place for them.

An info about the end of an episode has two more entries if envkit made up that end
because an environment was lost: `repaired` is True, and `loss` is the `Loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.losses import Loss
from envkit.types import Array

__all__ = ["LOSS", "MOST_KEPT", "LossesInInfos", "loss_in", "loss_info", "without_loss"]

LOSS = "loss"
_REPAIRED = "repaired"
# A program that never asks must not fill its memory with errors.
MOST_KEPT = 4096


def loss_info(loss: Loss) -> dict[str, Any]:
    """Returns the entries about a made-up end."""
    return {_REPAIRED: True, LOSS: loss}


def loss_in(info: Any) -> Loss | None:
    """Returns the loss in an info, if there is one.

    Example:
        >>> loss = Loss(0, "crashed", RuntimeError("it has gone"))
        >>> loss_in(loss_info(loss)) is loss, loss_in({"loss": 0.5})
        (True, None)
    """
    # Hot: called at the end of each episode, where the class is compared much faster.
    is_mapping = info.__class__ is dict or isinstance(info, Mapping)
    loss = info.get(LOSS) if is_mapping else None
    return loss if isinstance(loss, Loss) else None


def without_loss(info: Any) -> Any:
    """Returns an info without the entries about a made-up end.

    `current_losses` reports it, and infos with errors in them cannot be stacked.
    """
    if loss_in(info) is None:
        return info
    return {key: info[key] for key in info if key not in (_REPAIRED, LOSS)}


class LossesInInfos:
    """Reports the losses in a library's infos, whose environments may be envkit's.

    For adapters of single environments. An adapter calls `_record_loss` at the end of
    every episode.
    """

    # Whether no info can tell of a loss, because the environment is not envkit's.
    _loses_nothing = False
    _info: Any
    _unasked: tuple[Loss, ...] = ()

    def _loss(self) -> Loss | None:
        """Returns the loss in the current info."""
        return loss_in(self._info)

    def _record_loss(self) -> None:
        loss = self._loss()
        if loss is not None:
            self._unasked = (*self._unasked, loss._replace(row=0))[-MOST_KEPT:]

    @property
    def repaired(self) -> Array:
        """Whether the last time step is a made-up `LAST`, as a mask."""
        return np.array(self._loss() is not None)

    def current_losses(self) -> dict[int, Loss]:
        """Returns the loss behind `repaired`, if it is set."""
        loss = self._loss()
        return {} if loss is None else {0: loss._replace(row=0)}

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call that cut an episode short."""
        losses, self._unasked = list(self._unasked), ()
        return losses
