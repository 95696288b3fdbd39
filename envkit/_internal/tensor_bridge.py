"""Finds out whether a value is a tensor, without importing TensorFlow.

A tensor can exist only if TensorFlow has been imported. So the bridge looks for it
among the loaded modules and never imports it. Only for a tensor does it load the module
that handles tensors.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit import nest
from envkit._internal.entry_points import loaded, own

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["tensor_time_steps"]

_NEVER_TENSORS = (np.ndarray, np.generic, int, float, str, bytes)


def tensor_time_steps(*values: Any) -> ModuleType | None:
    """Returns the module that makes time steps of tensors, if a value holds one.

    The first leaf of each value decides, as in TF-Agents. `None` means NumPy.
    """
    tensorflow = sys.modules.get("tensorflow")
    # While TensorFlow is being imported, it is listed but not yet usable.
    if tensorflow is None or not hasattr(tensorflow, "TypeSpec"):
        return None
    if not any(_is_tensor_like(tensorflow, nest.first_leaf(value)) for value in values):
        return None
    return _time_steps or _load(tensorflow)


# Set once the import has finished: modules in `sys.modules` may still be incomplete, in
# another thread.
_time_steps: ModuleType | None = None


def _load(tensorflow: Any) -> ModuleType:
    global _time_steps
    # Inside a `tf.function`, AutoGraph rewrites everything that is called, which fails
    # with a warning for the import machinery.
    load = tensorflow.autograph.experimental.do_not_convert(_load_time_steps)
    time_steps: ModuleType = load()
    _time_steps = time_steps
    return time_steps


def _load_time_steps() -> Any:
    return loaded(own("envkit.tensorflow")["time_steps"])


def _is_tensor_like(tensorflow: Any, leaf: Any) -> bool:
    if leaf is None or isinstance(leaf, _NEVER_TENSORS):
        return False
    return bool(tensorflow.is_tensor(leaf)) or isinstance(leaf, tensorflow.TypeSpec)
