"""Environments of other libraries as envkit environments, and some the other way.

The modules here are what users name; the folders hold what those are made of. Names
are loaded when they are first used, and each adapter imports its library only
when it is asked for an environment, so nobody pays for a library that is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.lazy_names import lazy_names

if TYPE_CHECKING:
    from envkit.adapters import gin as gin
    from envkit.adapters import suite_bsuite as suite_bsuite
    from envkit.adapters import suite_dm_control as suite_dm_control
    from envkit.adapters import suite_gym as suite_gym
    from envkit.adapters import suite_gymnasium as suite_gymnasium
    from envkit.adapters.dm_control_wrapper import DmControlWrapper
    from envkit.adapters.dm_env_wrapper import DmEnvWrapper
    from envkit.adapters.gym_wrapper import GymWrapper
    from envkit.adapters.gymnasium_vector_wrapper import (
        GymnasiumVectorWrapper,
    )
    from envkit.adapters.gymnasium_wrapper import GymnasiumWrapper
    from envkit.adapters.py_to_dm_wrapper import PyToDMWrapper
    from envkit.adapters.py_to_gymnasium import PyToGymnasium
    from envkit.adapters.py_to_gymnasium_vector import (
        PyToGymnasiumVector,
    )
    from envkit.adapters.py_to_sb3 import to_sb3
    from envkit.adapters.spaces.spaces_from_specs import space_from_spec
    from envkit.adapters.spaces.specs_from_spaces import spec_from_gym_space
    from envkit.adapters.tf_agents import from_tf_agents, to_tf_agents
    from envkit.adapters.vectorized_envs import vectorize

_HOMES = {
    "DmControlWrapper": "envkit.adapters.dm_control_wrapper",
    "DmEnvWrapper": "envkit.adapters.dm_env_wrapper",
    "GymWrapper": "envkit.adapters.gym_wrapper",
    "GymnasiumVectorWrapper": "envkit.adapters.gymnasium_vector_wrapper",
    "GymnasiumWrapper": "envkit.adapters.gymnasium_wrapper",
    "PyToDMWrapper": "envkit.adapters.py_to_dm_wrapper",
    "PyToGymnasium": "envkit.adapters.py_to_gymnasium",
    "PyToGymnasiumVector": "envkit.adapters.py_to_gymnasium_vector",
    "from_tf_agents": "envkit.adapters.tf_agents",
    "space_from_spec": "envkit.adapters.spaces.spaces_from_specs",
    "spec_from_gym_space": "envkit.adapters.spaces.specs_from_spaces",
    "to_sb3": "envkit.adapters.py_to_sb3",
    "to_tf_agents": "envkit.adapters.tf_agents",
    "vectorize": "envkit.adapters.vectorized_envs",
}
_MODULES = ("gin", "suite_bsuite", "suite_dm_control", "suite_gym", "suite_gymnasium")

# Without `gin`, which would hide the package of that name from whoever imports all.
__all__ = [
    "DmControlWrapper",
    "DmEnvWrapper",
    "GymWrapper",
    "GymnasiumVectorWrapper",
    "GymnasiumWrapper",
    "PyToDMWrapper",
    "PyToGymnasium",
    "PyToGymnasiumVector",
    "from_tf_agents",
    "space_from_spec",
    "spec_from_gym_space",
    "suite_bsuite",
    "suite_dm_control",
    "suite_gym",
    "suite_gymnasium",
    "to_sb3",
    "to_tf_agents",
    "vectorize",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
