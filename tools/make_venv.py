"""Makes a virtual environment with a pip that can install envkit.

    python tools/make_venv.py .venv

`python -m venv` alone is not enough everywhere: some systems ship Python without what
puts pip into a new environment, and some Pythons put one there that is too old for
editable installs. The pip that runs outside mends both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# On Python 3.10 the resolver of older ones tries combinations for hours.
_OLDEST_PIP = (25, 1)


def make(folder: Path) -> None:
    """Makes the environment, from scratch if there is one of ours already."""
    # What somebody else put into the folder is theirs to remove.
    clear = ["--clear"] if (folder / ".home").exists() else []
    made = _run("-m", "venv", *clear, str(folder))
    if made.returncode != 0:
        bare = _run("-m", "venv", *clear, "--without-pip", str(folder))
        if bare.returncode != 0:
            sys.exit(f"{made.stdout}{made.stderr}{bare.stdout}{bare.stderr}")
        _install_pip_into(folder, because=made.stdout + made.stderr)
    if _pip_version(folder) < _OLDEST_PIP:
        subprocess.run(
            [_python(folder), "-m", "pip", "install", "-q", "--upgrade", "pip"],
            check=True,
        )


def _install_pip_into(folder: Path, because: str) -> None:
    purelib = _output(
        folder, "import sysconfig; print(sysconfig.get_path('purelib'))"
    ).strip()
    # --target, because older pips cannot install for another interpreter.
    installed = _run("-m", "pip", "install", "-q", "--target", purelib, "pip")
    if installed.returncode != 0:
        sys.exit(
            f"{because}{installed.stderr}\nThis Python can make no virtual environment "
            "with pip. On Debian and Ubuntu: apt install python3-venv python3-pip"
        )


def _pip_version(folder: Path) -> tuple[int, ...]:
    version = _output(folder, "import pip; print(pip.__version__)").split(".")
    return tuple(int(part) for part in version[:2])


def _python(folder: Path) -> str:
    return str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")


def _output(folder: Path, program: str) -> str:
    return subprocess.run(
        [_python(folder), "-c", program], check=True, capture_output=True, text=True
    ).stdout


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
