"""What `desktop.py` has on its screens: windows that answer keys, move, or stand still.

python benchmarks/desktop_screens.py answers
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
import numpy as np
import pygame

SIZE = (640, 480)
SQUARE = (288, 208, 64, 64)  # what a key changes


def answers(screen: pygame.Surface) -> None:
    """Changes a square when a key goes down, and stands still otherwise."""
    light = 55
    while True:
        pygame.draw.rect(screen, (light, light, light), SQUARE)
        pygame.display.flip()
        while pygame.event.wait().type != pygame.KEYDOWN:
            pass
        light = 255 - light


def moves(screen: pygame.Surface) -> None:
    """Moves balls, 60 times a second."""
    clock, tick = pygame.time.Clock(), 0
    while True:
        pygame.event.pump()
        screen.fill((30, 60, 90))
        for number in range(12):
            place = (tick * (3 + number) % SIZE[0], 20 + 38 * number)
            pygame.draw.circle(screen, (255, 20 * number, 80), place, 18)
        pygame.display.flip()
        clock.tick(60)
        tick += 1


def still(pixels: np.ndarray) -> None:
    """Shows a picture."""
    pygame.surfarray.blit_array(pygame.display.get_surface(), pixels.swapaxes(0, 1))
    while True:
        pygame.display.flip()
        pygame.event.wait()


def photo() -> np.ndarray:
    """Returns soft colours with some noise, as photographs have them."""
    rows, columns = np.mgrid[: SIZE[1], : SIZE[0]]
    waves = [
        np.sin(rows / (30 + 9 * k)) * np.cos(columns / (41 - 7 * k)) for k in range(3)
    ]
    noise = np.random.default_rng(0).normal(0, 2, (SIZE[1], SIZE[0], 3))
    return np.clip(128 + 100 * np.stack(waves, axis=-1) + noise, 0, 255).astype(
        np.uint8
    )


def window() -> np.ndarray:
    """Returns lines of small signs on white with a bar above, as programs have them."""
    pixels = np.full((SIZE[1], SIZE[0], 3), 255, np.uint8)
    pixels[:24] = (60, 90, 160)
    signs = np.random.default_rng(0).random((50, 80, 5, 5)) < 0.4
    for row in range(34):
        for column in range(80):
            place = pixels[30 + 13 * row :, 8 * column :][:10:2, :5]
            place[signs[row, column]] = 20
    return pixels


def main() -> None:
    pygame.display.init()
    screen = pygame.display.set_mode(SIZE)
    pygame.mouse.set_visible(False)
    what = sys.argv[1]
    if what in ("photo", "window"):
        still(photo() if what == "photo" else window())
    else:
        {"answers": answers, "moves": moves}[what](screen)


if __name__ == "__main__":
    main()
