"""A game for people and agents: keep the car on the road, which goes on and on.

    python examples/road.py

Left and right steer. The nearer the car is to the white line, the more points there
are, and in the meadow the drive ends. F12 changes the colour of the lamp in the corner.

The game knows nothing of agents: it draws, and it takes keys. Where it was started by
an `envkit.desktop.Desktop`, it reports its points and ends to that.
"""

from __future__ import annotations

import math
import os
import random
import time

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
import pygame

from envkit.desktop import Reporter

WIDTH, HEIGHT = 320, 240
FRAMES = 60  # in a second
SECONDS = 12.0  # of a drive
HALF = 44  # of the road's width
CAR = 190  # how far down the car is
LAMP = pygame.Rect(0, 0, 10, 10)

_SPEED, _STEERING, _GRIP = 190.0, 200.0, 0.07
_GRASS = [(64, 138, 60), (70, 148, 66)]
_ROAD, _LINE, _CURBS = (74, 76, 84), (238, 238, 232), [(206, 58, 52), (236, 232, 224)]
_TREES = [(28, 84, 40), (36, 100, 48), (24, 74, 46)]


class Drive:
    """A drive: where the road goes, and where the car is.

    Attributes:
        x: Where the car is, from the left.
        way: How far it has come.
        seconds: For how long it has been driven.
    """

    def __init__(self, seed: float) -> None:
        chance = random.Random(seed)
        self._waves = [
            (chance.uniform(44, 60), 1 / chance.uniform(120, 150)),
            (chance.uniform(16, 26), 1 / chance.uniform(52, 66)),
        ]
        self._shift = [chance.uniform(0, 2 * math.pi) for _ in self._waves]
        self._drift = 0.0
        self.way = self.seconds = 0.0
        self.x = self.middle(0.0)

    def middle(self, way: float) -> float:
        """Returns where the middle of the road is, so far ahead of the start."""
        bends = sum(
            size * math.sin(way * often + shift)
            for (size, often), shift in zip(self._waves, self._shift, strict=True)
        )
        return WIDTH / 2 + bends

    def advance(self, seconds: float, steering: int) -> float:
        """Drives on, with -1 for left and 1 for right; returns the points of that."""
        self._drift += (steering * _STEERING - self._drift) * min(1, seconds / _GRIP)
        self.x += self._drift * seconds
        self.way += _SPEED * seconds
        self.seconds += seconds
        return max(0.0, 1.0 - abs(self.off) / HALF) * seconds * 10

    @property
    def off(self) -> float:
        """How far the car is right of the white line."""
        return self.x - self.middle(self.way)

    @property
    def has_crashed(self) -> bool:
        """Whether the car is in the meadow."""
        return abs(self.off) > HALF + 14

    @property
    def lean(self) -> float:
        """How far the car turns, in degrees."""
        return -self._drift / _STEERING * 14


def draw(screen: pygame.Surface, drive: Drive, points: float, lamp: bool) -> None:
    """Draws the road from above, the car and the points."""
    for top in range(0, HEIGHT, 4):
        way = drive.way + CAR - top
        middle = drive.middle(way)
        stripe = int(way // 40) % 2
        pygame.draw.rect(screen, _GRASS[stripe], (0, top, WIDTH, 4))
        left = middle - HALF
        curb = _CURBS[int(way // 14) % 2]
        pygame.draw.rect(screen, curb, (left - 5, top, 2 * HALF + 10, 4))
        pygame.draw.rect(screen, _ROAD, (left, top, 2 * HALF, 4))
        if int(way // 18) % 2:
            pygame.draw.rect(screen, _LINE, (middle - 2, top, 4, 4))
    first = int((drive.way + CAR - HEIGHT) // 34)
    for number in range(first, first + 9):
        chance = random.Random(number)
        way, side = number * 34.0, chance.choice([-1, 1])
        x = drive.middle(way) + side * (HALF + chance.uniform(26, 110))
        size, y = chance.uniform(7, 12), drive.way + CAR - way
        pygame.draw.circle(screen, (40, 92, 44), (x + 4, y + 5), size)
        pygame.draw.circle(screen, chance.choice(_TREES), (x, y), size)
    screen.blit(*_turned(_car(), drive.lean, (drive.x, CAR)))
    pygame.draw.rect(screen, (20, 24, 30), (WIDTH - 68, 8, 60, 8), border_radius=3)
    full = 56 * min(1.0, points / (10 * SECONDS))
    pygame.draw.rect(screen, (250, 206, 70), (WIDTH - 66, 10, full, 4))
    pygame.draw.rect(screen, (240, 60, 50) if lamp else (30, 34, 40), LAMP)
    if drive.has_crashed:
        for number in range(9):
            angle, far = number * 0.7, 10 + 5 * (number % 3)
            place = (drive.x + far * math.cos(angle), CAR + far * math.sin(angle))
            pygame.draw.circle(screen, (250, 180 - 14 * number, 60), place, 8)


def _car() -> pygame.Surface:
    car = pygame.Surface((22, 36), pygame.SRCALPHA)
    for x in (0, 18):
        for y in (4, 24):
            pygame.draw.rect(car, (24, 24, 28), (x, y, 4, 9), border_radius=1)
    pygame.draw.rect(car, (222, 44, 60), (2, 0, 18, 36), border_radius=6)
    pygame.draw.rect(car, (250, 250, 246), (9, 0, 4, 36))
    pygame.draw.rect(car, (34, 46, 66), (5, 9, 12, 7), border_radius=2)
    pygame.draw.rect(car, (34, 46, 66), (5, 25, 12, 5), border_radius=2)
    return car


def _turned(
    picture: pygame.Surface, degrees: float, middle: tuple[float, float]
) -> tuple[pygame.Surface, pygame.Rect]:
    turned = pygame.transform.rotate(picture, degrees)
    return turned, turned.get_rect(center=middle)


def play(screen: pygame.Surface, reporter: Reporter) -> bool:
    """Plays a drive; returns whether there is to be another one."""
    episode = reporter.begin()
    drive, points, lamp = Drive(time.time()), 0.0, False
    clock = pygame.time.Clock()
    clock.tick()
    has_ended = False
    while True:
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                return False
            if event.type == pygame.KEYDOWN and event.key == pygame.K_F12:
                lamp = not lamp
            if event.type == pygame.KEYDOWN and has_ended and episode is None:
                return event.key != pygame.K_ESCAPE
        if has_ended and episode is not None and reporter.is_over():
            return True
        # After a pause of the machine the drive goes on where it was.
        seconds = min(clock.tick(FRAMES) / 1000, 0.1)
        if not has_ended:
            keys = pygame.key.get_pressed()
            earned = drive.advance(seconds, keys[pygame.K_RIGHT] - keys[pygame.K_LEFT])
            points += earned
            has_ended = drive.has_crashed or drive.seconds >= SECONDS
            reporter.report(
                earned,
                terminated=drive.has_crashed,
                truncated=has_ended and not drive.has_crashed,
            )
        draw(screen, drive, points, lamp)
        pygame.display.flip()


def main() -> None:
    pygame.display.init()
    pygame.display.set_caption("Keep to the white line")
    pygame.mouse.set_visible(False)
    screen = pygame.display.set_mode((WIDTH, HEIGHT))
    reporter = Reporter()
    while play(screen, reporter):
        pass


if __name__ == "__main__":
    main()
