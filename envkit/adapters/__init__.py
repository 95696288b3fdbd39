"""Environments of other libraries as envkit environments, and some the other way.

Names are loaded when they are first used, and each adapter imports its library only
when it is asked for an environment, so nobody pays for a library that is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.lazy_names import lazy_names

if TYPE_CHECKING:
    from envkit.adapters import suite_dm_control as suite_dm_control
    from envkit.adapters import suite_gymnasium as suite_gymnasium
    from envkit.adapters.dm_control_wrapper import DmControlWrapper
    from envkit.adapters.gymnasium_wrapper import GymnasiumWrapper
    from envkit.adapters.spaces import spec_from_gym_space
    from envkit.adapters.tf_agents import from_tf_agents, to_tf_agents

_HOMES = {
    "DmControlWrapper": "envkit.adapters.dm_control_wrapper",
    "GymnasiumWrapper": "envkit.adapters.gymnasium_wrapper",
    "from_tf_agents": "envkit.adapters.tf_agents",
    "spec_from_gym_space": "envkit.adapters.spaces",
    "to_tf_agents": "envkit.adapters.tf_agents",
}
_MODULES = ("suite_dm_control", "suite_gymnasium")

__all__ = [
    "DmControlWrapper",
    "GymnasiumWrapper",
    "from_tf_agents",
    "spec_from_gym_space",
    "suite_dm_control",
    "suite_gymnasium",
    "to_tf_agents",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
