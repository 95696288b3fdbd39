"""Adapters: other libraries' environments for envkit, and envkit's for others.

The modules here are public; the folders hold their parts. A name is loaded when it is
first used, and an adapter imports its library when it makes an environment, so unused
libraries cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.adapters import bsuite as suite_bsuite
    from envkit.adapters import gin as gin
    from envkit.adapters import jericho as suite_jericho
    from envkit.adapters import minigrid as suite_minigrid
    from envkit.adapters import pysc2 as pysc2
    from envkit.adapters import textworld as suite_textworld
    from envkit.adapters import urnai as urnai
    from envkit.adapters.adapter import Adapter, Result
    from envkit.adapters.adapter import Adapter as EnvAdapter
    from envkit.adapters.ale import suite as suite_ale
    from envkit.adapters.ale.suite import AtariVectorWrapper
    from envkit.adapters.browsergym import suite as suite_browsergym
    from envkit.adapters.browsergym.suite import BrowserGymWrapper
    from envkit.adapters.dm_control import suite as suite_dm_control
    from envkit.adapters.dm_control.suite import DmControlWrapper
    from envkit.adapters.dm_env import DmEnvWrapper
    from envkit.adapters.envpool import suite as suite_envpool
    from envkit.adapters.envpool.suite import AsyncEnvPool as AsyncEnvPool
    from envkit.adapters.envpool.wrapper import EnvPoolWrapper
    from envkit.adapters.gym import suite as gym_wrapper
    from envkit.adapters.gym import suite as suite_gym
    from envkit.adapters.gym.suite import GymWrapper
    from envkit.adapters.gymnasium import suite as suite_gymnasium
    from envkit.adapters.gymnasium import wrapper as gymnasium_wrapper
    from envkit.adapters.gymnasium.spaces import (
        OneOf,
        PaddedGraph,
        PaddedSequence,
        PaddedStack,
        batch_space_from_spec,
        space_from_spec,
        spec_from_gym_space,
    )
    from envkit.adapters.gymnasium.to_gymnasium import PyToGymnasium
    from envkit.adapters.gymnasium.to_gymnasium_vector import (
        PyToGymnasiumVector,
    )
    from envkit.adapters.gymnasium.vector import (
        GymnasiumVectorWrapper,
    )
    from envkit.adapters.gymnasium.vectorize import vectorize
    from envkit.adapters.gymnasium.wrapper import GymnasiumWrapper
    from envkit.adapters.jax import gymnax as suite_gymnax
    from envkit.adapters.jax.brax import BraxWrapper
    from envkit.adapters.jax.functional import FunctionalEnvironment
    from envkit.adapters.jax.gymnax import GymnaxWrapper
    from envkit.adapters.jax.jumanji import JumanjiWrapper
    from envkit.adapters.minari.datasets import MinariReplay, from_minari, to_minari
    from envkit.adapters.nle import suite as suite_nle
    from envkit.adapters.nle.suite import NleWrapper
    from envkit.adapters.pettingzoo import suite as suite_pettingzoo
    from envkit.adapters.pettingzoo.aec import PettingZooAECWrapper
    from envkit.adapters.pettingzoo.agents import AgentTimeSteps
    from envkit.adapters.pettingzoo.parallel import PettingZooWrapper
    from envkit.adapters.pettingzoo.to_pettingzoo import to_pettingzoo
    from envkit.adapters.ple import suite as suite_ple
    from envkit.adapters.ple.suite import PLEWrapper
    from envkit.adapters.pysc2.wrapper import PySC2Wrapper
    from envkit.adapters.reasoning_gym import suite as suite_reasoning_gym
    from envkit.adapters.reasoning_gym.suite import ReasoningGymWrapper
    from envkit.adapters.rllib import to_rllib
    from envkit.adapters.sb3 import DropLostSteps, to_sb3
    from envkit.adapters.textarena import suite as suite_textarena
    from envkit.adapters.textarena.suite import TextArenaWrapper
    from envkit.adapters.tf_agents import from_tf_agents, to_tf_agents
    from envkit.adapters.to_dm_env import PyToDMWrapper
    from envkit.adapters.urnai import from_urnai, to_urnai
    from envkit.adapters.vizdoom import suite as suite_vizdoom
    from envkit.adapters.vizdoom.suite import VizDoomWrapper
    from envkit.remote.dm_env_rpc_client import DmEnvRpcError, DmEnvRpcWrapper
    from envkit.remote.openenv_client import OpenEnvError, OpenEnvWrapper

_HOMES = {
    "MinariReplay": "envkit.adapters.minari.datasets",
    "from_minari": "envkit.adapters.minari.datasets",
    "to_minari": "envkit.adapters.minari.datasets",
    "Adapter": "envkit.adapters.adapter",
    "AgentTimeSteps": "envkit.adapters.pettingzoo.agents",
    "AsyncEnvPool": "envkit.adapters.envpool.suite",  # raises: it was removed
    "AtariVectorWrapper": "envkit.adapters.ale.suite",
    "BraxWrapper": "envkit.adapters.jax.brax",
    "BrowserGymWrapper": "envkit.adapters.browsergym.suite",
    "DmControlWrapper": "envkit.adapters.dm_control.suite",
    "DmEnvRpcError": "envkit.remote.dm_env_rpc_client",
    "DmEnvRpcWrapper": "envkit.remote.dm_env_rpc_client",
    "DmEnvWrapper": "envkit.adapters.dm_env",
    "DropLostSteps": "envkit.adapters.sb3",
    "EnvAdapter": "envkit.adapters.adapter",
    "EnvPoolWrapper": "envkit.adapters.envpool.wrapper",
    "FunctionalEnvironment": "envkit.adapters.jax.functional",
    "GymWrapper": "envkit.adapters.gym.suite",
    "GymnasiumVectorWrapper": "envkit.adapters.gymnasium.vector",
    "GymnasiumWrapper": "envkit.adapters.gymnasium.wrapper",
    "GymnaxWrapper": "envkit.adapters.jax.gymnax",
    "JumanjiWrapper": "envkit.adapters.jax.jumanji",
    "NleWrapper": "envkit.adapters.nle.suite",
    "OneOf": "envkit.adapters.gymnasium.spaces",
    "OpenEnvError": "envkit.remote.openenv_client",
    "OpenEnvWrapper": "envkit.remote.openenv_client",
    "PaddedGraph": "envkit.adapters.gymnasium.spaces",
    "PaddedSequence": "envkit.adapters.gymnasium.spaces",
    "PaddedStack": "envkit.adapters.gymnasium.spaces",
    "PettingZooAECWrapper": "envkit.adapters.pettingzoo.aec",
    "PettingZooWrapper": "envkit.adapters.pettingzoo.parallel",
    "PLEWrapper": "envkit.adapters.ple.suite",
    "PySC2Wrapper": "envkit.adapters.pysc2.wrapper",
    "PyToDMWrapper": "envkit.adapters.to_dm_env",
    "PyToGymnasium": "envkit.adapters.gymnasium.to_gymnasium",
    "PyToGymnasiumVector": "envkit.adapters.gymnasium.to_gymnasium_vector",
    "ReasoningGymWrapper": "envkit.adapters.reasoning_gym.suite",
    "Result": "envkit.adapters.adapter",
    "TextArenaWrapper": "envkit.adapters.textarena.suite",
    "VizDoomWrapper": "envkit.adapters.vizdoom.suite",
    "batch_space_from_spec": "envkit.adapters.gymnasium.spaces",
    "from_tf_agents": "envkit.adapters.tf_agents",
    "from_urnai": "envkit.adapters.urnai",
    "space_from_spec": "envkit.adapters.gymnasium.spaces",
    "spec_from_gym_space": "envkit.adapters.gymnasium.spaces",
    "to_pettingzoo": "envkit.adapters.pettingzoo.to_pettingzoo",
    "to_rllib": "envkit.adapters.rllib",
    "to_sb3": "envkit.adapters.sb3",
    "to_tf_agents": "envkit.adapters.tf_agents",
    "to_urnai": "envkit.adapters.urnai",
    "vectorize": "envkit.adapters.gymnasium.vectorize",
}
_MODULES = (
    "gin",
    "pysc2",
    "urnai",
)
# The names of modules in TF-Agents, and former names.
_ALIASES = {
    "agent_time_steps": "envkit.adapters.pettingzoo.agents",
    "atari_vector_wrapper": "envkit.adapters.ale.suite",
    "dm_control_wrapper": "envkit.adapters.dm_control.suite",
    "dm_env_wrapper": "envkit.adapters.dm_env",
    "env_adapter": "envkit.adapters.adapter",
    "envpool_wrapper": "envkit.adapters.envpool.wrapper",
    "functional_env": "envkit.adapters.jax.functional",
    "dm_env_rpc": "envkit.remote.dm_env_rpc_client",
    "gym_wrapper": "envkit.adapters.gym.suite",
    "gymnasium_vector_wrapper": "envkit.adapters.gymnasium.vector",
    "gymnasium_wrapper": "envkit.adapters.gymnasium.wrapper",
    "gymnax_wrapper": "envkit.adapters.jax.gymnax",
    "openenv": "envkit.remote.openenv_client",
    "pettingzoo_aec_wrapper": "envkit.adapters.pettingzoo.aec",
    "pettingzoo_wrapper": "envkit.adapters.pettingzoo.parallel",
    "ple_wrapper": "envkit.adapters.ple.suite",
    "py_to_dm_wrapper": "envkit.adapters.to_dm_env",
    "py_to_gymnasium": "envkit.adapters.gymnasium.to_gymnasium",
    "py_to_gymnasium_vector": "envkit.adapters.gymnasium.to_gymnasium_vector",
    "py_to_pettingzoo": "envkit.adapters.pettingzoo.to_pettingzoo",
    "py_to_sb3": "envkit.adapters.sb3",
    "pysc2_wrapper": "envkit.adapters.pysc2.wrapper",
    "suite_ale": "envkit.adapters.ale.suite",
    "suite_browsergym": "envkit.adapters.browsergym.suite",
    "suite_bsuite": "envkit.adapters.bsuite",
    "suite_dm_control": "envkit.adapters.dm_control.suite",
    "suite_envpool": "envkit.adapters.envpool.suite",
    "suite_gym": "envkit.adapters.gym.suite",
    "suite_gymnasium": "envkit.adapters.gymnasium.suite",
    "suite_gymnax": "envkit.adapters.jax.gymnax",
    "suite_jericho": "envkit.adapters.jericho",
    "suite_minigrid": "envkit.adapters.minigrid",
    "suite_nle": "envkit.adapters.nle.suite",
    "suite_pettingzoo": "envkit.adapters.pettingzoo.suite",
    "suite_ple": "envkit.adapters.ple.suite",
    "suite_reasoning_gym": "envkit.adapters.reasoning_gym.suite",
    "suite_textarena": "envkit.adapters.textarena.suite",
    "suite_textworld": "envkit.adapters.textworld",
    "suite_vizdoom": "envkit.adapters.vizdoom.suite",
    "vectorized_envs": "envkit.adapters.gymnasium.vectorize",
    "vizdoom_wrapper": "envkit.adapters.vizdoom.suite",
}

# Without `gin`, `pysc2` and `urnai`: `import *` would hide the packages of these names.
__all__ = [
    "Adapter",
    "AgentTimeSteps",
    "AtariVectorWrapper",
    "BraxWrapper",
    "BrowserGymWrapper",
    "DmControlWrapper",
    "DmEnvRpcError",
    "DmEnvRpcWrapper",
    "DmEnvWrapper",
    "DropLostSteps",
    "EnvAdapter",
    "EnvPoolWrapper",
    "FunctionalEnvironment",
    "GymWrapper",
    "GymnasiumVectorWrapper",
    "GymnasiumWrapper",
    "GymnaxWrapper",
    "JumanjiWrapper",
    "MinariReplay",
    "NleWrapper",
    "OneOf",
    "OpenEnvError",
    "OpenEnvWrapper",
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
    "ReasoningGymWrapper",
    "Result",
    "TextArenaWrapper",
    "VizDoomWrapper",
    "batch_space_from_spec",
    "from_minari",
    "from_tf_agents",
    "from_urnai",
    "gym_wrapper",
    "gymnasium_wrapper",
    "space_from_spec",
    "spec_from_gym_space",
    "suite_ale",
    "suite_browsergym",
    "suite_bsuite",
    "suite_dm_control",
    "suite_envpool",
    "suite_gym",
    "suite_gymnasium",
    "suite_gymnax",
    "suite_jericho",
    "suite_minigrid",
    "suite_nle",
    "suite_pettingzoo",
    "suite_ple",
    "suite_reasoning_gym",
    "suite_textarena",
    "suite_textworld",
    "suite_vizdoom",
    "to_minari",
    "to_pettingzoo",
    "to_rllib",
    "to_sb3",
    "to_tf_agents",
    "to_urnai",
    "vectorize",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES, _ALIASES)
