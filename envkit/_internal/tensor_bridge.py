"""Answers without importing TensorFlow: is this a tensor, and who handles it?

A tensor can exist only where TensorFlow has been imported. So the bridge
looks for it among the loaded modules and never imports it; only for a tensor does it
load the module of `envkit.tf` that answers in tensors.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit import nest

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["tensor_time_steps"]

_PACKAGE, _MODULE = "envkit.tf", "tf_time_step"
_NEVER_TENSORS = (np.ndarray, np.generic, int, float, str, bytes)


def tensor_time_steps(*values: Any) -> ModuleType | None:
    """Returns the module that makes time steps of tensors, if a value holds one.

    The first leaf of each value decides, as in TF-Agents. `None` means NumPy.
    """
    tensorflow = sys.modules.get("tensorflow")
    # While TensorFlow is still being imported it is listed but not yet usable.
    if tensorflow is None or not hasattr(tensorflow, "TypeSpec"):
        return None
    if not any(_is_tensor_like(tensorflow, nest.first_leaf(value)) for value in values):
        return None
    # A package gets its submodule as an attribute when the submodule's import is over:
    # what `sys.modules` lists may still be half made, by another thread.
    time_steps = getattr(sys.modules.get(_PACKAGE), _MODULE, None)
    return time_steps or _load(tensorflow)


def _load(tensorflow: Any) -> ModuleType:
    # By string: this floor may not import upward, and this is the one door.
    import importlib

    # Inside a `tf.function` AutoGraph rewrites whatever is called, which fails, with a
    # warning, for the machinery of imports.
    load = tensorflow.autograph.experimental.do_not_convert(importlib.import_module)
    time_steps: ModuleType = load(f"{_PACKAGE}.{_MODULE}")
    return time_steps


def _is_tensor_like(tensorflow: Any, leaf: Any) -> bool:
    if leaf is None or isinstance(leaf, _NEVER_TENSORS):
        return False
    return bool(tensorflow.is_tensor(leaf)) or isinstance(leaf, tensorflow.TypeSpec)
