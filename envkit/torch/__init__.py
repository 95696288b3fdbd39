"""Connects envkit to PyTorch: the only package that imports PyTorch and TorchRL.

Names are loaded when they are first used. Without PyTorch, importing the package or one
of its modules raises a `MissingDependencyError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit._shared.installed import is_installed
from envkit.errors import MissingDependencyError
from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.torch.returns import generalized_advantages, n_step_returns
    from envkit.torch.rollout_buffer import RolloutBuffer
    from envkit.torch.torch_environment import TorchEnvironment
    from envkit.torch.torchrl_environment import as_torchrl
    from envkit.torch.transitions import Transitions

_HOMES = {
    "RolloutBuffer": "envkit.torch.rollout_buffer",
    "TorchEnvironment": "envkit.torch.torch_environment",
    "Transitions": "envkit.torch.transitions",
    "as_torchrl": "envkit.torch.torchrl_environment",
    "generalized_advantages": "envkit.torch.returns",
    "n_step_returns": "envkit.torch.returns",
}

__all__ = [
    "RolloutBuffer",
    "TorchEnvironment",
    "Transitions",
    "as_torchrl",
    "generalized_advantages",
    "n_step_returns",
]


# Found but not imported here, because a broken installation raises its own error.
if not is_installed("torch"):
    raise MissingDependencyError.needed_by(__name__, package="torch", extra="torch")

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
