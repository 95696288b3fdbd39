"""The modules of envkit that can be imported with the libraries that are installed."""

from __future__ import annotations

import pkgutil
from importlib.util import find_spec
from pathlib import Path

import envkit

# What is beside TensorFlow too large for every run: `make test-all` has it.
LIBRARIES = {
    "envkit.jax": "jax",
    "envkit.torch": "torch",
    "envkit.torch.torchrl_environment": "torchrl",
}


def lacks_library(module: str) -> bool:
    """Returns true if a module needs a library that is not installed."""
    return any(
        find_spec(library) is None
        for part, library in LIBRARIES.items()
        if module == part or module.startswith(f"{part}.")
    )


def importable_modules() -> list[str]:
    """Lists the modules, programs apart."""
    root = str(Path(envkit.__file__).parent)
    names = [found.name for found in pkgutil.walk_packages([root], "envkit.")]
    return [
        name
        for name in names
        if not name.endswith("__main__") and not lacks_library(name)
    ]
