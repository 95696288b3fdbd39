"""Commands with real games print nothing but their answer, and leave no files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE

# As on a server: root, no display, no sound, no session.
LACKING = {
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "SDL_VIDEODRIVER",
    "SDL_AUDIODRIVER",
    "PYGAME_HIDE_SUPPORT_PROMPT",
    "MUJOCO_GL",
}
COMMANDS = """
import sys
from envkit.cli.main import main

name = sys.argv[1]
# The last one takes long.
for command in (
    ["describe", name],
    ["play", name, "--keys", ".q"],
    ["record", name, "-o", "runs", "--steps", "2", "--overwrite"],
    ["bench", name, "--num-envs", "2", "--seconds", "0.1"],
)[: int(sys.argv[2])]:
    if status := main(command):
        sys.exit(f"{command} returned {status}.")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package", "count"),
    [
        ("gymnasium:Acrobot-v1", "gymnasium", 3),
        pytest.param("gymnasium:HalfCheetah-v5", "mujoco", 4, marks=pytest.mark.heavy),
        ("gymnasium:ALE/Pong-v5", "ale_py", 3),
        pytest.param(
            "dm_control:cheetah/run", "dm_control", 3, marks=pytest.mark.heavy
        ),
    ],
)
def test_commands_print_only_their_answer(name, package, count, tmp_path):
    pytest.importorskip(package, reason=f"{package} is not installed")
    kept = {key: value for key, value in os.environ.items() if key not in LACKING}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, name, str(count)],
        env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert ("", 0) == (done.stderr, done.returncode)
    assert "pygame" not in done.stdout
    assert ["runs"] == [path.name for path in tmp_path.iterdir()]
