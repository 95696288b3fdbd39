"""envkit: the environment layer for reinforcement learning in Python.

Names are loaded when they are first used, so `import envkit` costs almost nothing, and
a worker process loads only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit._internal.lazy_names import lazy_names
from envkit._internal.namesake import warn_of_namesake
from envkit._internal.other_registries import watch_imports

if TYPE_CHECKING:
    from envkit import errors as errors
    from envkit import specs as specs
    from envkit import testing as testing
    from envkit import wrappers as wrappers
    from envkit.async_environment import AsyncBatch as AsyncBatch
    from envkit.async_environment import AsyncEnvironment as AsyncEnvironment
    from envkit.batched_py_environment import (
        BatchedPyEnvironment as BatchedPyEnvironment,
    )
    from envkit.blocking import Blocking as Blocking
    from envkit.envs.random_py_environment import (
        RandomPyEnvironment as RandomPyEnvironment,
    )
    from envkit.losses import Loss as Loss
    from envkit.making import make as make
    from envkit.monitoring.curves import plot as plot
    from envkit.monitoring.progress_bar import progress as progress
    from envkit.parallel import AsyncParallelPyEnvironment as AsyncParallelPyEnvironment
    from envkit.parallel import ParallelPyEnvironment as ParallelPyEnvironment
    from envkit.parallel import ProcessPyEnvironment as ProcessPyEnvironment
    from envkit.parallel import RestartPolicy as RestartPolicy
    from envkit.policies import RandomPolicy as RandomPolicy
    from envkit.policies import random_actions as random_actions
    from envkit.py_environment import PyEnvironment as PyEnvironment
    from envkit.registry import constructor as constructor
    from envkit.registry import register as register
    from envkit.remote.client import connect as connect
    from envkit.specs import ArraySpec as ArraySpec
    from envkit.specs import BoundedArraySpec as BoundedArraySpec
    from envkit.specs import EnvironmentSpec as EnvironmentSpec
    from envkit.tf import TFEnvironment as TFEnvironment
    from envkit.tf import TFPyEnvironment as TFPyEnvironment
    from envkit.time_step import AutoReset as AutoReset
    from envkit.time_step import StepType as StepType
    from envkit.time_step import TimeStep as TimeStep
    from envkit.time_step import restart as restart
    from envkit.time_step import termination as termination
    from envkit.time_step import time_step_spec as time_step_spec
    from envkit.time_step import transition as transition
    from envkit.time_step import truncation as truncation
    from envkit.wrappers import PyEnvironmentBaseWrapper as PyEnvironmentBaseWrapper
    from envkit.wrappers.rebuild_after import RebuildAfter as RebuildAfter
    from envkit.wrappers.standby import StandbyEnvironment as StandbyEnvironment

__version__ = "0.3.0"

# Each public name and its module.
_HOMES = {
    "ArraySpec": "envkit.specs",
    "AsyncBatch": "envkit.async_environment",
    "AsyncEnvironment": "envkit.async_environment",
    "AsyncParallelPyEnvironment": "envkit.parallel",
    "AutoReset": "envkit.time_step",
    "BatchedPyEnvironment": "envkit.batched_py_environment",
    "Blocking": "envkit.blocking",
    "BoundedArraySpec": "envkit.specs",
    "EnvironmentSpec": "envkit.specs",
    "Loss": "envkit.losses",
    "ParallelPyEnvironment": "envkit.parallel",
    "ProcessPyEnvironment": "envkit.parallel",
    "PyEnvironment": "envkit.py_environment",
    "PyEnvironmentBaseWrapper": "envkit.wrappers",
    "RandomPolicy": "envkit.policies",
    "RandomPyEnvironment": "envkit.envs.random_py_environment",
    "RebuildAfter": "envkit.wrappers.rebuild_after",
    "RestartPolicy": "envkit.parallel",
    "StandbyEnvironment": "envkit.wrappers.standby",
    "StepType": "envkit.time_step",
    "TFEnvironment": "envkit.tf",
    "TFPyEnvironment": "envkit.tf",
    "TimeStep": "envkit.time_step",
    "connect": "envkit.remote.client",
    "constructor": "envkit.registry",
    "make": "envkit.making",
    "plot": "envkit.monitoring.curves",
    "progress": "envkit.monitoring.progress_bar",
    "random_actions": "envkit.policies",
    "register": "envkit.registry",
    "restart": "envkit.time_step",
    "termination": "envkit.time_step",
    "time_step_spec": "envkit.time_step",
    "transition": "envkit.time_step",
    "truncation": "envkit.time_step",
}
_MODULES = ("errors", "specs", "testing", "wrappers")
# The module's name in TF-Agents.
_ALIASES = {"random_py_environment": "envkit.envs.random_py_environment"}

# `from envkit import *` loads all of these, so none may import TensorFlow.
__all__ = sorted(
    [name for name, home in _HOMES.items() if home != "envkit.tf"] + [*_MODULES]
)

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES, _ALIASES)
warn_of_namesake(__file__)
watch_imports()
