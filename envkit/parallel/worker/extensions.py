"""Finds the handlers of requests to a whole runner, sent by a pool's extras.

To add one, list its module here, and define `answer(runner, request)` in it. A worker
loads the module when it first gets such a request.
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
    """Returns the handler of a request to a whole runner; `None` for others."""
    name = _MODULES.get(method)
    if name is None:
        return None
    module: Any = importlib.import_module(name)
    answer: Callable[..., Reply] = module.answer
    return answer
