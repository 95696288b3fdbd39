"""Requests for a whole runner, by extras of a pool that the runner does not know.

To add one, name its module here, and have it define `answer(runner, request)`. The
module is loaded when a worker is first sent such a request.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envkit.parallel.messages import Reply

__all__ = ["extension"]

_MODULES = {"replay": "envkit.parallel.worker.replay"}


def extension(method: str) -> Callable[..., Reply] | None:
    """Returns what answers a request for a whole runner; `None` if it is not one."""
    name = _MODULES.get(method)
    if name is None:
        return None
    module: Any = importlib.import_module(name)
    answer: Callable[..., Reply] = module.answer
    return answer
