"""`as_written`: keeps AutoGraph from rewriting a function inside `tf.function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

__all__ = ["as_written"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def as_written(function: _Function) -> _Function:
    """Marks a function that branches only on what is known while it is traced.

    Rewriting it would take long and change nothing.
    """
    kept: _Function = tf.autograph.experimental.do_not_convert(function)
    return kept
