"""An environment to film, and what reads films back."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import imageio_ffmpeg
import numpy as np

from envkit import BatchedPyEnvironment
from envkit.testing import CountingEnv


class Slides(CountingEnv):
    """Shows its observation as a shade of grey, and counts how often it is looked at.

    Attributes:
        looks: How often it was rendered.
        size: The height and width of its pictures.
    """

    def __init__(self, steps_per_episode: int = 3, size: Any = (4, 6)) -> None:
        super().__init__(steps_per_episode)
        self.looks = 0
        self.size = size

    def render(self, mode: str = "rgb_array") -> Any:
        self.looks += 1
        return np.full((*self.size, 3), self.current_time_step().observation, np.uint8)


def slides(*lengths: int) -> BatchedPyEnvironment:
    return BatchedPyEnvironment([Slides(length) for length in lengths], False)


def files(folder: Path) -> list[str]:
    """Lists a folder."""
    return sorted(path.name for path in folder.iterdir())


def gif(path: Path) -> Any:
    """Reads the pictures of a GIF."""
    return imageio.imread(path, plugin="pillow", index=None, mode="RGB")


def shades(path: Path) -> list[int]:
    """Reads a GIF of pictures that are grey all over."""
    pictures = gif(path)
    return [int(picture.min()) for picture in pictures if np.ptp(picture) == 0]


def mp4(path: Path, height: int, width: int) -> Any:
    """Reads the pictures of an MP4, whose size has to be known."""
    # Not with imageio, which leaves pipes open.
    program = imageio_ffmpeg.get_ffmpeg_exe()
    output = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    data = subprocess.run(
        [program, "-v", "error", "-i", path, *output],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    ).stdout
    return np.frombuffer(data, np.uint8).reshape(-1, height, width, 3)
