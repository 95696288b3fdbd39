"""PufferLib's own CartPole in C, built from its header where that can be found.

The header is `ocean/cartpole/cartpole.h` of an installed PufferLib or of a checkout. It
is compiled with `-O3 -march=native -ffast-math`, with nothing of Python around the loop
over its environments but one call.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC", "-shared", "-w")
# It draws with raylib, of which a loop without pictures calls nothing.
RAYLIB = """
typedef struct { unsigned char r, g, b, a; } Color;
typedef struct { float x, y; } Vector2;
enum { KEY_ESCAPE, KEY_TAB };
static int IsKeyDown(int key) { return 0; }
static int IsKeyPressed(int key) { return 0; }
static const char *TextFormat(const char *text, ...) { return text; }
#define InitWindow(...)
#define SetTargetFPS(...)
#define CloseWindow()
#define ToggleFullscreen()
#define BeginDrawing()
#define EndDrawing()
#define ClearBackground(...)
#define DrawLine(...)
#define DrawLineEx(...)
#define DrawRectangle(...)
#define DrawText(...)
"""
LOOP = """
#include "cartpole.h"
void *make(int rows, float *seen, float *actions, float *rewards, unsigned char *ends) {
    Cartpole *envs = calloc(rows, sizeof(Cartpole));
    for (int row = 0; row < rows; row++) {
        envs[row].observations = seen + 4 * row;
        envs[row].actions = actions + row;
        envs[row].rewards = rewards + row;
        envs[row].terminals = ends + row;
        init(envs + row);
        c_reset(envs + row);
    }
    return envs;
}
void step_all(void *envs, int rows) {
    for (int row = 0; row < rows; row++) c_step((Cartpole *)envs + row);
}
"""


def header(given: Path | None) -> Path | None:
    """Finds the header in a folder, or in the installed package."""
    spec = None if given else importlib.util.find_spec("pufferlib")
    folder = given or (Path(spec.origin).parent if spec and spec.origin else None)
    found = folder and next(folder.rglob("ocean/cartpole/cartpole.h"), None)
    return found if found and shutil.which("cc") else None


def stepper(source: Path, actions: list[np.ndarray]) -> Callable[[], None]:
    """Builds the loop; each call steps all rows with the next of the actions."""
    rows = len(actions[0])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "raylib.h").write_text(RAYLIB, "utf-8")
        (folder / "loop.c").write_text(LOOP, "utf-8")
        shutil.copy(source, folder / "cartpole.h")
        command = ["cc", *FLAGS, "loop.c", "-o", "loop.so", "-lm"]
        subprocess.run(command, cwd=folder, check=True)
        library = ctypes.CDLL(str(folder / "loop.so"))
    seen, ends = np.zeros((rows, 4), np.float32), np.zeros(rows, np.uint8)
    taken, rewards = np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    library.make.restype = ctypes.c_void_p
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (seen, taken)]
    pointers += [array.ctypes.data_as(ctypes.c_void_p) for array in (rewards, ends)]
    envs = ctypes.c_void_p(library.make(rows, *pointers))
    floats = [action.astype(np.float32) for action in actions]
    count = 0

    def step(kept: object = (seen, rewards, ends)) -> None:
        nonlocal count
        count += 1
        taken[:] = floats[count % len(floats)]
        library.step_all(envs, rows)

    return step
