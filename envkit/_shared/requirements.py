"""The pip requirements of parts that need a library and have no scheme."""

from __future__ import annotations

__all__ = ["EXTRAS", "INSTALLED_BY"]

# For libraries without a scheme; a scheme declares its own.
EXTRAS: dict[str, tuple[str, ...]] = {
    "dm-env": ("dm-env>=1.6",),
    "gin": ("gin-config>=0.5,<0.6",),
    "jax": ("jax>=0.4.30",),
    "numba": ("numba>=0.61",),
    "play": ("pygame-ce>=2.5",),
    "plot": ("matplotlib>=3.9",),
    "ray": ("ray>=2.40",),
    "rllib": ("gymnasium>=1.0", "ray[rllib]>=2.52", "torch>=2.4"),
    "sb3": ("gymnasium>=1.0", "stable-baselines3>=2.4"),
    "skyrl": ("skyrl-gym>=0.4",),
    "tensorboard": ("tensorboard>=2.16",),
    "tf": ("tensorflow>=2.16",),
    "torch": ("torch>=2.4",),
    "torchrl": ("torch>=2.4", "torchrl>=0.7"),
    "trl": ("transformers>=5.13", "trl>=1.16"),
    "verifiers": ("verifiers>=0.4,<0.5; python_version >= '3.11'",),
    "video": ("imageio-ffmpeg>=0.5.1",),
}
# Modules whose name differs from the pip package that installs them.
INSTALLED_BY = {
    "browsergym": "browsergym-core",
    "gin": "gin-config",
    "h5py": "minari",
    "pil": "pillow",
    "playwright": "browsergym-core",
    "pygame": "pygame-ce",
    "skyrl_gym": "skyrl-gym",
    "tensordict": "torchrl",
}
