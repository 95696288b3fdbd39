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
    from envkit.adapters import pysc2 as pysc2
    from envkit.adapters import suite_ale as suite_ale
    from envkit.adapters import suite_bsuite as suite_bsuite
    from envkit.adapters import suite_dm_control as suite_dm_control
    from envkit.adapters import suite_envpool as suite_envpool
    from envkit.adapters import suite_gym as suite_gym
    from envkit.adapters import suite_gymnasium as suite_gymnasium
    from envkit.adapters import suite_gymnax as suite_gymnax
    from envkit.adapters import suite_minigrid as suite_minigrid
    from envkit.adapters import suite_pettingzoo as suite_pettingzoo
    from envkit.adapters import suite_ple as suite_ple
    from envkit.adapters import suite_vizdoom as suite_vizdoom
    from envkit.adapters import urnai as urnai
    from envkit.adapters.agent_time_steps import AgentTimeSteps
    from envkit.adapters.atari_vector_wrapper import AtariVectorWrapper
    from envkit.adapters.dm_control_wrapper import DmControlWrapper
    from envkit.adapters.dm_env_wrapper import DmEnvWrapper
    from envkit.adapters.env_adapter import EnvAdapter, Result
    from envkit.adapters.envpool_async import AsyncEnvPool
    from envkit.adapters.envpool_wrapper import EnvPoolWrapper
    from envkit.adapters.functional_env import FunctionalEnvironment
    from envkit.adapters.gym_wrapper import GymWrapper
    from envkit.adapters.gymnasium_vector_wrapper import (
        GymnasiumVectorWrapper,
    )
    from envkit.adapters.gymnasium_wrapper import GymnasiumWrapper
    from envkit.adapters.gymnax_wrapper import GymnaxWrapper
    from envkit.adapters.pettingzoo_aec_wrapper import PettingZooAECWrapper
    from envkit.adapters.pettingzoo_wrapper import PettingZooWrapper
    from envkit.adapters.ple_wrapper import PLEWrapper
    from envkit.adapters.py_to_dm_wrapper import PyToDMWrapper
    from envkit.adapters.py_to_gymnasium import PyToGymnasium
    from envkit.adapters.py_to_gymnasium_vector import (
        PyToGymnasiumVector,
    )
    from envkit.adapters.py_to_pettingzoo import to_pettingzoo
    from envkit.adapters.py_to_sb3 import to_sb3
    from envkit.adapters.pysc2_wrapper import PySC2Wrapper
    from envkit.adapters.spaces.one_of import OneOf
    from envkit.adapters.spaces.padded import (
        PaddedGraph,
        PaddedSequence,
        PaddedStack,
    )
    from envkit.adapters.spaces.spaces_from_specs import (
        batch_space_from_spec,
        space_from_spec,
    )
    from envkit.adapters.spaces.specs_from_spaces import spec_from_gym_space
    from envkit.adapters.tf_agents import from_tf_agents, to_tf_agents
    from envkit.adapters.urnai_envs.from_env import from_urnai
    from envkit.adapters.urnai_envs.to_env import to_urnai
    from envkit.adapters.vectorized_envs import vectorize
    from envkit.adapters.vizdoom_wrapper import VizDoomWrapper

_HOMES = {
    "AgentTimeSteps": "envkit.adapters.agent_time_steps",
    "AsyncEnvPool": "envkit.adapters.envpool_async",
    "AtariVectorWrapper": "envkit.adapters.atari_vector_wrapper",
    "DmControlWrapper": "envkit.adapters.dm_control_wrapper",
    "DmEnvWrapper": "envkit.adapters.dm_env_wrapper",
    "EnvAdapter": "envkit.adapters.env_adapter",
    "EnvPoolWrapper": "envkit.adapters.envpool_wrapper",
    "FunctionalEnvironment": "envkit.adapters.functional_env",
    "GymWrapper": "envkit.adapters.gym_wrapper",
    "GymnasiumVectorWrapper": "envkit.adapters.gymnasium_vector_wrapper",
    "GymnasiumWrapper": "envkit.adapters.gymnasium_wrapper",
    "GymnaxWrapper": "envkit.adapters.gymnax_wrapper",
    "OneOf": "envkit.adapters.spaces.one_of",
    "PaddedGraph": "envkit.adapters.spaces.padded",
    "PaddedSequence": "envkit.adapters.spaces.padded",
    "PaddedStack": "envkit.adapters.spaces.padded",
    "PettingZooAECWrapper": "envkit.adapters.pettingzoo_aec_wrapper",
    "PettingZooWrapper": "envkit.adapters.pettingzoo_wrapper",
    "PLEWrapper": "envkit.adapters.ple_wrapper",
    "PySC2Wrapper": "envkit.adapters.pysc2_wrapper",
    "PyToDMWrapper": "envkit.adapters.py_to_dm_wrapper",
    "PyToGymnasium": "envkit.adapters.py_to_gymnasium",
    "PyToGymnasiumVector": "envkit.adapters.py_to_gymnasium_vector",
    "Result": "envkit.adapters.env_adapter",
    "VizDoomWrapper": "envkit.adapters.vizdoom_wrapper",
    "batch_space_from_spec": "envkit.adapters.spaces.spaces_from_specs",
    "from_tf_agents": "envkit.adapters.tf_agents",
    "from_urnai": "envkit.adapters.urnai_envs.from_env",
    "space_from_spec": "envkit.adapters.spaces.spaces_from_specs",
    "spec_from_gym_space": "envkit.adapters.spaces.specs_from_spaces",
    "to_pettingzoo": "envkit.adapters.py_to_pettingzoo",
    "to_sb3": "envkit.adapters.py_to_sb3",
    "to_tf_agents": "envkit.adapters.tf_agents",
    "to_urnai": "envkit.adapters.urnai_envs.to_env",
    "vectorize": "envkit.adapters.vectorized_envs",
}
_MODULES = (
    "gin",
    "pysc2",
    "suite_ale",
    "suite_bsuite",
    "suite_dm_control",
    "suite_envpool",
    "suite_gym",
    "suite_gymnasium",
    "suite_gymnax",
    "suite_minigrid",
    "suite_pettingzoo",
    "suite_ple",
    "suite_vizdoom",
    "urnai",
)

# Without `gin`, `pysc2` and `urnai`, which would hide the packages of these names from
# whoever imports all.
__all__ = [
    "AgentTimeSteps",
    "AsyncEnvPool",
    "AtariVectorWrapper",
    "DmControlWrapper",
    "DmEnvWrapper",
    "EnvAdapter",
    "EnvPoolWrapper",
    "FunctionalEnvironment",
    "GymWrapper",
    "GymnasiumVectorWrapper",
    "GymnasiumWrapper",
    "GymnaxWrapper",
    "OneOf",
    "PLEWrapper",
    "PaddedGraph",
    "PaddedSequence",
    "PaddedStack",
    "PettingZooAECWrapper",
    "PettingZooWrapper",
    "PySC2Wrapper",
    "PyToDMWrapper",
    "PyToGymnasium",
    "PyToGymnasiumVector",
    "Result",
    "VizDoomWrapper",
    "batch_space_from_spec",
    "from_tf_agents",
    "from_urnai",
    "space_from_spec",
    "spec_from_gym_space",
    "suite_ale",
    "suite_bsuite",
    "suite_dm_control",
    "suite_envpool",
    "suite_gym",
    "suite_gymnasium",
    "suite_gymnax",
    "suite_minigrid",
    "suite_pettingzoo",
    "suite_ple",
    "suite_vizdoom",
    "to_pettingzoo",
    "to_sb3",
    "to_tf_agents",
    "to_urnai",
    "vectorize",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
