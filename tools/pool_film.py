"""Films a pool of CartPoles of which a worker is killed, for the README.

    python tools/pool_film.py docs/pictures/pool.gif

Each column is a worker with three environments. The second worker is killed in the
middle: its episodes are truncated (red), a new worker takes its place, and the stream
goes on.
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import numpy.typing as npt
from PIL import Image

import envkit

WORKERS, ROWS, FRAMES, KILLED_AT = 4, 3, 120, 50
# Frames for which a truncated row stays marked.
MARKED = 12
RED = np.array([255, 90, 80])


def policy(observation: npt.NDArray[np.floating]) -> npt.NDArray[np.integer]:
    """Pushes where the pole leans and turns: good enough for long episodes."""
    return (observation[:, 2] + 0.3 * observation[:, 3] > 0).astype(int)


def tiled(
    pictures: npt.NDArray[np.uint8], ages: npt.NDArray[np.integer]
) -> Image.Image:
    """Returns the pictures, those of one worker below each other."""
    shown = pictures.copy()
    shown[:, [0, -1]] = shown[:, :, [0, -1]] = 200
    for row in np.flatnonzero(ages < MARKED):
        shown[row] = (0.5 * shown[row] + 0.5 * RED).astype(np.uint8)
    columns = shown.reshape(WORKERS, ROWS, *shown.shape[1:])
    board = np.concatenate(
        [np.concatenate(list(column), axis=0) for column in columns], axis=1
    )
    return Image.fromarray(board).reduce(2)


def main(path: str) -> None:
    frames = []
    ages = np.full(WORKERS * ROWS, MARKED)
    with envkit.make(
        "CartPole",
        num_envs=WORKERS * ROWS,
        num_workers=WORKERS,
        on_worker_failure=envkit.RestartPolicy(max_restarts=1),
    ) as env:
        env.seed(4)
        time_step = env.reset()
        for frame in range(FRAMES):
            if frame == KILLED_AT:
                os.kill(env.statistics().workers[1].pid, signal.SIGKILL)
            time_step = env.step(policy(time_step.observation))
            truncated = env.repaired & time_step.is_last()
            ages = np.where(truncated, 0, ages + 1)
            # A new environment has nothing to draw before its first episode.
            if not truncated.any():
                pictures = env.render()
            frames.append(tiled(pictures, ages))
    palette = frames[KILLED_AT + 2].quantize(32)
    small = [
        frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames
    ]
    small[0].save(path, save_all=True, append_images=small[1:], duration=50, loop=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
