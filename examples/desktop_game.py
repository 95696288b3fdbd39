"""An agent learns to drive from the pixels of a window, in a game that does not wait.

    apt-get install tigervnc-standalone-server
    pip install pygame-ce pillow

The first half of this file is an ordinary game in pygame, which a person may play:
`python desktop_game.py game`. The agent of the second half starts it on a screen of its
own, and ten times a second chooses an arrow key. It sees how far the car is from the
middle of the road ahead, and learns the value of each key by Q-learning.
"""

import math
import os
import random
import sys
import time

import numpy as np

from envkit.desktop import Desktop, Reporter, RewardChannel
from envkit.realtime import RealTimeEnvironment

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
try:
    import pygame
except ModuleNotFoundError:
    sys.exit("The game needs pygame, which is not installed. pip install pygame-ce")

STEPS = 500  # of learning: a minute
TEST_DRIVES = 2
HZ, TICKS = 30.0, 3  # An action is for three ticks, or its effect would drown.
DISCOUNT, LEARNING_RATE = 0.9, 0.2  # DISCOUNT for each tick
SEED = 0
WIDTH, HEIGHT, HALF, CAR = 320, 240, 44, 190  # HALF a road's width; the car's height


def play_game():
    """Left and right steer; the middle of the road earns 10 points a second."""
    pygame.display.init()
    pygame.mouse.set_visible(False)
    screen = pygame.display.set_mode((WIDTH, HEIGHT))
    reporter = Reporter()  # does nothing if no Desktop has started the game
    while True:
        reporter.begin()
        phase, clock = random.uniform(0, 2 * math.pi), pygame.time.Clock()

        def middle(way, phase=phase):
            bends = 44 * math.sin(way / 130 + phase) + 12 * math.sin(way / 60)
            return WIDTH / 2 + bends

        x, drift, way, seconds, is_over = middle(0.0), 0.0, 0.0, 0.0, False
        # A Desktop says when the next drive begins; a person gets it at once.
        while not (is_over and (reporter.episode is None or reporter.is_over())):
            if any(event.type == pygame.QUIT for event in pygame.event.get()):
                return
            passed = min(clock.tick(60) / 1000, 0.1)
            if not is_over:
                keys = pygame.key.get_pressed()
                steering = keys[pygame.K_RIGHT] - keys[pygame.K_LEFT]
                drift += (200 * steering - drift) * min(1.0, passed / 0.07)
                x, way = x + drift * passed, way + 190 * passed
                seconds += passed
                off = abs(x - middle(way))
                has_crashed = off > HALF + 14
                is_over = has_crashed or seconds > 12.0
                points = 10 * passed * max(0.0, 1 - off / HALF)
                truncated = is_over and not has_crashed
                reporter.report(points, terminated=has_crashed, truncated=truncated)
            for top in range(0, HEIGHT, 4):
                ahead = way + CAR - top
                left = middle(ahead) - HALF
                screen.fill((64, 138 + ahead // 40 % 2 * 8, 60), (0, top, WIDTH, 4))
                curb = [(206, 58, 52), (236, 232, 224)][int(ahead // 14) % 2]
                screen.fill(curb, (left - 5, top, 2 * HALF + 10, 4))
                screen.fill((74, 76, 84), (left, top, 2 * HALF, 4))
            car = pygame.Rect(x - 9, CAR - 18, 18, 36)
            pygame.draw.rect(screen, (30, 80, 240), car, border_radius=6)
            pygame.display.flip()


if sys.argv[1:] == ["game"]:
    sys.exit(play_game())

# From here on: the agent.

EDGES = (-40, -24, -12, -4, 4, 12, 24, 40)  # of the nine distances that it tells apart
KEYS = np.array([[True, False], [False, False], [False, True]])  # left, none, right


def distance(pixels):
    """Numbers how far the road ahead is left or right of the car."""
    red, green, blue = np.moveaxis(pixels.astype(int), 2, 0)
    road = np.flatnonzero((abs(red - green)[160] < 12) & (red[160] < 120))
    car = np.flatnonzero((blue > red + 100)[CAR])
    if not len(road) or not len(car):
        return len(EDGES) // 2
    return int(np.digitize(road.mean() - car.mean(), EDGES))


def drive(env, values, rng, exploration, film):
    """Drives to the end of an episode; returns the points and the transitions."""
    time_step, key, points, transitions = env.reset(), 1, 0.0, []
    state = distance(time_step.observation), key
    while not time_step.is_last():
        if len(film) < 100:
            film.append(time_step.observation)
        if rng.random() < exploration:
            key = int(rng.integers(3))
        else:
            key = int(values[state].argmax())
        time_step = env.step({"keys": KEYS[key]})
        points += float(time_step.reward)
        # If the agent was late, more ticks have passed, and are discounted. After a
        # crash the environment's discount is 0: nothing follows.
        discount = DISCOUNT ** max(env.lag().ticks_merged, 1) * time_step.discount
        after = distance(time_step.observation), key
        transitions.append((state, key, float(time_step.reward), discount, after))
        state = after
    return points, transitions


def learn(values, transitions):
    """Learns everything again, the latest first, so that a crash reaches its causes."""
    for (where, held), key, reward, discount, (there, _) in reversed(transitions):
        error = reward + discount * values[there, key].max() - values[where, held, key]
        values[where, held, key] += LEARNING_RATE * error
        # What is right on the left is left on the right.
        values[len(EDGES) - where, 2 - held, 2 - key] = values[where, held, key]


rng, values = np.random.default_rng(SEED), np.zeros((len(EDGES) + 1, 3, 3))
game = Desktop(
    [sys.executable, __file__, "game"],
    size=(WIDTH, HEIGHT),
    keys=["Left", "Right"],
    reward=RewardChannel(),
    ready="reported",
    reset=None,
)
first_film, last_film = [], []
with RealTimeEnvironment(game, HZ, act_every=TICKS, host="thread") as env:
    began, drives, memory = time.monotonic(), [], []
    while len(memory) < STEPS:
        exploration = 0.5 * (1 - len(memory) / STEPS)
        points, transitions = drive(env, values, rng, exploration, first_film)
        memory += transitions
        drives.append(points)
        learn(values, memory)
    seconds = time.monotonic() - began
    tests = [drive(env, values, rng, 0.0, last_film)[0] for _ in range(TEST_DRIVES)]
try:
    from PIL import Image
except ModuleNotFoundError:
    print("There is no film without Pillow: pip install pillow")
else:
    pairs = zip(first_film, last_film, strict=False)
    frames = [Image.fromarray(np.hstack(pair)) for pair in pairs]
    first, *others = frames
    first.save(
        "desktop_game.gif", save_all=True, append_images=others, duration=100, loop=0
    )
    print("film of the first drives and the last: desktop_game.gif")

print(f"{seconds:.0f} seconds of learning in {len(drives)} drives")
first, last = np.mean(drives[:5]), np.mean(tests)
print(f"mean points of a drive: {first:.0f} at first, {last:.0f} after learning")
