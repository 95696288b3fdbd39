"""Installs envkit and the libraries that the benchmarks compare it with.

    python tools/install_peers.py

It installs into the environment whose interpreter runs it: first all libraries of the
extra `bench` at once; if they do not go together, each alone, and one that does not
install is named and left out. The benchmarks name the rows that are missing then.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The build of PyTorch for processors alone is a tenth of that with CUDA. It may be in a
# folder that pip was configured to look into, and is where PyTorch keeps it.
TORCH = (
    ("--no-index",),
    ("--retries=1", "--index-url=https://download.pytorch.org/whl/cpu"),
)


def install(*words: str, env: Mapping[str, str] | None = None) -> str:
    """Installs something; returns the last words of pip if it does not install."""
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *words],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in ended.stderr.splitlines() if "ERROR" in line]
    return (said or ["pip failed"])[-1] if ended.returncode else ""


def requirements(extra: str) -> list[str]:
    """Returns what an extra of the installed envkit asks for."""
    importlib.invalidate_caches()
    found = []
    for line in importlib.metadata.requires("envkit-rl") or []:
        named, _, condition = line.partition(";")
        if re.search(rf"extra == ['\"]{extra}['\"]", condition):
            others = re.sub(r"( and )?extra == ['\"][\w-]+['\"]", "", condition)
            others = others.strip().strip("()")
            found.append(f"{named.strip()}; {others}" if others else named.strip())
    return found


def main() -> None:
    """Installs them, and says what is missing."""
    if why := install("-e", "."):
        sys.exit(f"envkit does not install: {why}")
    if all(install("--no-deps", *where, "torch>=2.4") for where in TORCH):
        print("PyTorch comes with CUDA, which takes longer")
    if install("-e", ".[bench]"):
        print("Not everything goes together, so each is installed alone")
        for requirement in requirements("bench"):
            if why := install(requirement):
                print(f"{requirement} is left out: {why}")
    if why := install_pufferlib():
        print(f"pufferlib is left out: {why}")


def install_pufferlib() -> str:
    """Installs PufferLib without its own environments, which it would build.

    It asks for older versions of NumPy and Gymnasium than the others do, and runs with
    today's. To be built beside what is there spares a second PyTorch.
    """
    with tempfile.TemporaryDirectory() as folder:
        # Without its environments its setup.py reads a name that it has not set.
        mended = "import builtins\nbuiltins.c_extension_paths = []\n"
        (Path(folder) / "sitecustomize.py").write_text(mended, "utf-8")
        env = {"NO_OCEAN": "1", "NO_TRAIN": "1", "PYTHONPATH": folder}
        words = ("--no-deps", "--no-build-isolation", "pufferlib>=3,<4")
        return install(*words, env=env)


if __name__ == "__main__":
    main()
