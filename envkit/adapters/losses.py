"""Losses in the infos of other libraries, which have no other place for them.

An info about the end of an episode has two more entries if envkit made up that end
because an environment was lost: `repaired` is True, and `loss` is the `Loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envkit._shared.own_losses import OwnLosses
from envkit.losses import Loss

__all__ = ["LOSS", "LossesInInfos", "loss_in", "loss_info", "without_loss"]

LOSS = "loss"
_REPAIRED = "repaired"


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


class LossesInInfos(OwnLosses):
    """Reports the losses in a library's infos, whose environments may be envkit's.

    For adapters of single environments. An adapter calls `_record_loss` at the end of
    every episode.
    """

    # Whether no info can tell of a loss, because the environment is not envkit's.
    _loses_nothing = False
    _info: Any

    def _shown_loss(self) -> Loss | None:
        loss = self._loss_in(self._info)
        return None if loss is None else loss._replace(row=0)

    def _loss_in(self, info: Any) -> Loss | None:
        """Returns the loss in the current info."""
        return loss_in(info)
