"""The libraries that parts of envkit need, and the pip command for a missing one.

The command names libraries rather than an extra of envkit, because pip would look for
envkit itself then: on the package index, that name is another project's, and from a
clone or a wheel it has nothing to find.
"""

from __future__ import annotations

import re

__all__ = ["EXTRAS", "install_command"]

# As in pyproject.toml, without the markers for versions of Python.
EXTRAS: dict[str, tuple[str, ...]] = {
    "atari": ("ale-py>=0.12.1", "gymnasium>=1.0"),
    "browsergym": (
        "browsergym-core>=0.14",
        "browsergym-miniwob>=0.14",
        "gymnasium>=1.0",
        "miniwob>=1.1",
    ),
    "bsuite": ("bsuite>=0.3.6",),
    "dm-control": ("dm-control>=1.0.16", "mujoco<4"),
    "dm-env": ("dm-env>=1.6",),
    "dm-env-rpc": ("dm-env-rpc>=1.1",),
    "envpool": ("envpool>=1.1",),
    "gin": ("gin-config>=0.5,<0.6",),
    "gym": ("gym>=0.22",),
    "gymnasium": ("gymnasium>=1.0",),
    "gymnax": ("gymnax>=0.0.8", "six"),
    "jax": ("jax>=0.4.30",),
    "minari": ("gymnasium>=1.0", "minari[hdf5]>=0.5.4", "pillow>=10"),
    "minigrid": ("gymnasium>=1.0", "minigrid>=2.3"),
    "numba": ("numba>=0.61",),
    "openenv": ("starlette>=0.40", "uvicorn>=0.35", "websockets>=15"),
    "pettingzoo": ("gymnasium>=1.0", "pettingzoo>=1.24"),
    "play": ("pygame-ce>=2.5",),
    "ple": ("pillow>=10", "pygame-ce>=2.5"),
    "plot": ("matplotlib>=3.9",),
    "pysc2": ("absl-py>=1.4", "pysc2>=4.0"),
    "ray": ("ray>=2.40",),
    "rllib": ("gymnasium>=1.0", "ray[rllib]>=2.52", "torch>=2.4"),
    "sb3": ("gymnasium>=1.0", "stable-baselines3>=2.4"),
    "tf": ("tensorflow>=2.16",),
    "torch": ("torch>=2.4",),
    "torchrl": ("torch>=2.4", "torchrl>=0.7"),
    "universe": ("websockets>=15",),
    "video": ("imageio>=2.31", "imageio-ffmpeg>=0.5.1", "pillow>=10"),
    "vizdoom": ("vizdoom>=1.2",),
    "vnc": ("pillow>=10",),
}
# Modules that are called otherwise than what pip installs, or come along with it.
_INSTALLED_BY = {
    "browsergym": "browsergym-core",
    "gin": "gin-config",
    "h5py": "minari",
    "pil": "pillow",
    "playwright": "browsergym-core",
    "pygame": "pygame-ce",
    "tensordict": "torchrl",
}


def install_command(*extras: str, package: str = "") -> str:
    """Returns the pip command for all that extras need, the missing package first.

    Args:
        *extras: The extras. An extra that envkit does not have needs nothing.
        package: What is missing, by the name that Python imports or pip installs.

    Example:
        >>> install_command("gymnasium", package="gymnasium")
        'pip install "gymnasium>=1.0"'
        >>> install_command("atari", package="gymnasium")
        'pip install "gymnasium>=1.0" "ale-py>=0.12.1"'
        >>> install_command("of-another-package", package="stones")
        'pip install stones'
    """
    needed = dict.fromkeys(one for extra in extras for one in EXTRAS.get(extra, ()))
    name = package.lower().replace("_", "-")
    name = _INSTALLED_BY.get(name, name)
    first = [one for one in needed if re.split(r"[\[<>=]", one)[0] == name]
    if package and not first:
        first = [package]
    words = dict.fromkeys([*first, *needed])
    return f"pip install {' '.join(map(_quoted, words))}"


def _quoted(requirement: str) -> str:
    return f'"{requirement}"' if re.search(r"[\[<>=]", requirement) else requirement
