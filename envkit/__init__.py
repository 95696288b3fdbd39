"""envkit: the environment layer for reinforcement learning in Python.

Public names are loaded when they are first used, so `import envkit` costs next to
nothing and a worker process holds only what it needs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envkit import errors as errors
    from envkit import specs as specs
    from envkit import testing as testing
    from envkit import wrappers as wrappers
    from envkit.async_environment import AsyncBatch, AsyncEnvironment
    from envkit.autoreset import AutoReset
    from envkit.batched_py_environment import BatchedPyEnvironment
    from envkit.blocking import Blocking
    from envkit.constructors import constructor, make, register
    from envkit.parallel import (
        AsyncParallelPyEnvironment,
        ParallelPyEnvironment,
        ProcessPyEnvironment,
        RestartPolicy,
    )
    from envkit.py_environment import PyEnvironment
    from envkit.random_policy import RandomPolicy
    from envkit.random_py_environment import RandomPyEnvironment
    from envkit.specs import ArraySpec, BoundedArraySpec, EnvironmentSpec
    from envkit.tf import TFEnvironment as TFEnvironment
    from envkit.tf import TFPyEnvironment as TFPyEnvironment
    from envkit.time_step import (
        StepType,
        TimeStep,
        restart,
        termination,
        time_step_spec,
        transition,
        truncation,
    )
    from envkit.wrappers import PyEnvironmentBaseWrapper

__version__ = "0.1.0"

_HOMES = {
    "ArraySpec": "envkit.specs",
    "AsyncBatch": "envkit.async_environment",
    "AsyncEnvironment": "envkit.async_environment",
    "AsyncParallelPyEnvironment": "envkit.parallel",
    "AutoReset": "envkit.autoreset",
    "BatchedPyEnvironment": "envkit.batched_py_environment",
    "Blocking": "envkit.blocking",
    "BoundedArraySpec": "envkit.specs",
    "EnvironmentSpec": "envkit.specs",
    "ParallelPyEnvironment": "envkit.parallel",
    "ProcessPyEnvironment": "envkit.parallel",
    "PyEnvironment": "envkit.py_environment",
    "PyEnvironmentBaseWrapper": "envkit.wrappers",
    "RandomPolicy": "envkit.random_policy",
    "RandomPyEnvironment": "envkit.random_py_environment",
    "RestartPolicy": "envkit.parallel",
    "StepType": "envkit.time_step",
    "TFEnvironment": "envkit.tf",
    "TFPyEnvironment": "envkit.tf",
    "TimeStep": "envkit.time_step",
    "constructor": "envkit.constructors",
    "make": "envkit.constructors",
    "register": "envkit.constructors",
    "restart": "envkit.time_step",
    "termination": "envkit.time_step",
    "time_step_spec": "envkit.time_step",
    "transition": "envkit.time_step",
    "truncation": "envkit.time_step",
}
_MODULES = ("errors", "specs", "testing", "wrappers")

# Without those that import TensorFlow: `from envkit import *` loads all of these.
__all__ = [
    "ArraySpec",
    "AsyncBatch",
    "AsyncEnvironment",
    "AsyncParallelPyEnvironment",
    "AutoReset",
    "BatchedPyEnvironment",
    "Blocking",
    "BoundedArraySpec",
    "EnvironmentSpec",
    "ParallelPyEnvironment",
    "ProcessPyEnvironment",
    "PyEnvironment",
    "PyEnvironmentBaseWrapper",
    "RandomPolicy",
    "RandomPyEnvironment",
    "RestartPolicy",
    "StepType",
    "TimeStep",
    "constructor",
    "errors",
    "make",
    "register",
    "restart",
    "specs",
    "termination",
    "testing",
    "time_step_spec",
    "transition",
    "truncation",
    "wrappers",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"envkit.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value  # Later uses find it without asking again.
        return value
    # With its name and owner, Python suggests the nearest name itself.
    raise AttributeError(
        f"module 'envkit' has no attribute {name!r}",
        name=name,
        obj=sys.modules[__name__],
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
