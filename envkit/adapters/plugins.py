"""The schemes of the libraries that have adapters, which entry points name.

They name functions by strings: a scheme is read where a pool is made or all are listed,
and neither has a use for the adapters themselves.
"""

from __future__ import annotations

from envkit.extend import Scheme

ALE = Scheme(
    "envkit.adapters.ale:load",
    package="ale_py",
    extra="atari",
    lister="envkit.adapters.ale:names",
    batched_by="vectorization",
)
BROWSERGYM = Scheme(
    "envkit.adapters.browsergym:load",
    package="browsergym",
    extra="browsergym",
    lister="envkit.adapters.browsergym:names",
    is_alone=True,
)
BSUITE = Scheme(
    "envkit.adapters.bsuite:load_by_id",
    package="bsuite",
    extra="bsuite",
    lister="envkit.adapters.bsuite:names",
)
DM_CONTROL = Scheme(
    "envkit.adapters.dm_control:load_by_path",
    package="dm_control",
    extra="dm-control",
    lister="envkit.adapters.dm_control:names",
)
DM_ENV_RPC = Scheme(
    "envkit.adapters.dm_env_rpc:load",
    package="dm_env_rpc",
    extra="dm-env-rpc",
    address="localhost:9000",
)
ENVPOOL = Scheme(
    "envkit.adapters.envpool.suite:load",
    package="envpool",
    extra="envpool",
    lister="envkit.adapters.envpool.suite:names",
    batched_by="num_envs",
)
GYM = Scheme(
    "envkit.adapters.gym:load",
    package="gym",
    extra="gym",
    lister="envkit.adapters.gym:names",
)
GYMNASIUM = Scheme(
    "envkit.adapters.gymnasium.suite:load",
    package="gymnasium",
    extra="gymnasium",
    lister="envkit.adapters.gymnasium.suite:names",
)
GYMNAX = Scheme(
    "envkit.adapters.jax.gymnax:load",
    package="gymnax",
    extra="gymnax",
    lister="envkit.adapters.jax.gymnax:names",
)
# A dataset may be on this machine or not, so its id is an address.
MINARI = Scheme(
    "envkit.adapters.minari:MinariReplay",
    package="minari",
    extra="minari",
    address="D4RL/door/human-v2",
)
MINIGRID = Scheme(
    "envkit.adapters.minigrid:load",
    package="minigrid",
    extra="minigrid",
    lister="envkit.adapters.minigrid:names",
)
OPENENV = Scheme(
    "envkit.adapters.openenv:load",
    package="websockets",
    extra="openenv",
    address="http://localhost:8000",
)
PETTINGZOO = Scheme(
    "envkit.adapters.pettingzoo.suite:load",
    package="pettingzoo",
    extra="pettingzoo",
    lister="envkit.adapters.pettingzoo.suite:names",
)
PLE = Scheme(
    "envkit.adapters.ple:load",
    package="pygame",
    extra="ple",
    lister="envkit.adapters.ple:names",
    beside="ple",
)
PYSC2 = Scheme(
    "envkit.adapters.pysc2:load",
    package="pysc2",
    extra="pysc2",
    lister="envkit.adapters.pysc2:names",
)
VIZDOOM = Scheme(
    "envkit.adapters.vizdoom:load",
    package="vizdoom",
    extra="vizdoom",
    lister="envkit.adapters.vizdoom:scenarios",
)
