"""Losses at the doors of a network: what servers tell, and what clients report."""

from __future__ import annotations

from envkit._shared.own_losses import OwnLosses
from envkit.adapters.foreign import ForeignEnvironment
from envkit.errors import EnvironmentRaised, EnvkitError, WorkerCrashed, WorkerTimeout
from envkit.extend import DirectRow
from envkit.losses import Loss

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
        error: The exception that it has raised.
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


class LosingClient(OwnLosses, ForeignEnvironment):
    """Is the base class of clients that end an episode if its environment is lost."""

    def _direct_row(self) -> DirectRow | None:
        return None  # it would not show that a `LAST` is made up
