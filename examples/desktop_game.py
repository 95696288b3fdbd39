"""Learns to drive from the pixels of a game that does not wait, within two minutes.

    apt-get install tigervnc-standalone-server
    pip install -e ".[play,video]"
    python examples/desktop_game.py
    python examples/desktop_game.py --num_envs=4 --steps=6000 --film=film.gif

The game is `road.py`, a window on a screen, and goes on whatever the agent does. Each
desktop has a screen, a game and a clock of its own that looks 30 times a second; the
agent takes whichever is ready, presses its arrow keys, and learns while it waits. What
it sees is the picture, made smaller; the game reports points and ends.

It learns by deep Q-learning (Mnih et al., 2015) with two Q-networks, returns of several
steps, and pictures that are mirrored now and then, since what is right on the left is
left on the right. Two things matter here as everywhere: a drive that ends in the meadow
has no value after it, and one that is cut off has. And one matters in real time: a step
that took three ticks is discounted three times.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

# A network as small as this one is slower on several threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np
import numpy.typing as npt

from envkit import AsyncParallelPyEnvironment
from envkit.desktop import Desktop, Probe, RewardChannel
from envkit.errors import MissingDependencyError, WorkerError
from envkit.extend import install_command
from envkit.realtime import RealTimeEnvironment

try:
    from PIL import Image, ImageDraw
except ModuleNotFoundError:
    sys.exit(
        "This example needs the package pillow, which is not installed. "
        f"{install_command('play', 'video', package='pillow')}"
    )

GAME = Path(__file__).with_name("road.py")
SIZE = (320, 240)
LAMP = Probe((0, 0, 10, 10), key="F12")
# The keys of each action: left, none, right.
KEYS = np.array([[True, False], [False, False], [False, True]])
# How many places of the picture the agent sees, and how many units it has for them.
ROWS, COLUMNS, HIDDEN = 16, 32, 32

GAMMA, STEPS = 0.9, 6
LEARNING_RATE, FOLLOWING, BATCH = 2e-3, 0.01, 64
FEWEST, MOST = 200, 50_000
HOLD = 6  # ticks for which a key is tried, at the mean
FILM_HZ, FILM_SECONDS = 12, 6

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.integer]


def look(pixels: npt.NDArray[np.uint8]) -> Floats:
    """Returns how much redder than green the picture is, in each of its places."""
    part = pixels[100:228].reshape(ROWS, 8, COLUMNS, 10, 3)[:, ::4, :, ::5]
    part = part.astype(np.float32)
    return (part[..., 0] - part[..., 1]).mean(axis=(1, 3)).ravel() / 255 + 0.1


class Network:
    """Returns the value of each action: a layer of units, and a sum of them."""

    def __init__(self, rng: np.random.Generator) -> None:
        size = ROWS * COLUMNS
        weights = rng.normal(0.0, np.sqrt(2 / size), (size, HIDDEN))
        shapes = [(HIDDEN,), (HIDDEN, len(KEYS)), (len(KEYS),)]
        self.parts = [
            weights.astype(np.float32),
            *[np.zeros(shape, np.float32) for shape in shapes],
        ]

    def hidden(self, seen: Floats) -> Floats:
        return np.maximum(seen @ self.parts[0] + self.parts[1], 0)

    def values(self, seen: Floats) -> Floats:
        return self.hidden(seen) @ self.parts[2] + self.parts[3]

    def gradients(self, seen: Floats, actions: Ints, targets: Floats) -> list[Floats]:
        """Returns where values go down in error, which counts 1 at most."""
        hidden = self.hidden(seen)
        values = hidden @ self.parts[2] + self.parts[3]
        rows = np.arange(len(actions))
        error = np.zeros_like(values)
        error[rows, actions] = np.clip(values[rows, actions] - targets, -1, 1)
        error /= len(actions)
        back = (error @ self.parts[2].T) * (hidden > 0)
        return [seen.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


class Memory:
    """Keeps transitions: what was seen, done, earned, and seen after that."""

    def __init__(self) -> None:
        self.count = 0
        self.seen = np.zeros((MOST, ROWS * COLUMNS), np.float32)
        self.after = np.zeros((MOST, ROWS * COLUMNS), np.float32)
        self.actions = np.zeros(MOST, np.int64)
        self.earned = np.zeros(MOST, np.float32)
        self.discounts = np.zeros(MOST, np.float32)

    def add(self, one: Transition, after: Floats) -> None:
        place = self.count % MOST
        self.seen[place], self.after[place] = one.seen, after
        self.actions[place] = one.action
        self.earned[place], self.discounts[place] = one.earned, one.discount
        self.count += 1

    def draw(self, rng: np.random.Generator) -> tuple[Any, ...]:
        """Returns some of them, half of them mirrored."""
        rows = rng.integers(min(self.count, MOST), size=BATCH)
        mirrored = rng.random(BATCH) < 0.5
        actions = np.where(
            mirrored, len(KEYS) - 1 - self.actions[rows], self.actions[rows]
        )
        pictures = []
        for kept in (self.seen, self.after):
            picture = kept[rows].reshape(BATCH, ROWS, COLUMNS)
            picture[mirrored] = picture[mirrored, :, ::-1]
            pictures.append(picture.reshape(BATCH, -1))
        return (
            pictures[0],
            actions,
            self.earned[rows],
            self.discounts[rows],
            pictures[1],
        )


class Transition:
    """A transition that goes on for some steps."""

    def __init__(self, seen: Floats, action: int) -> None:
        self.seen, self.action = seen, action
        self.earned, self.discount, self.steps = 0.0, 1.0, 0

    def go_on(self, reward: float, discount: float) -> None:
        self.earned += self.discount * reward
        self.discount *= discount
        self.steps += 1


class Agent:
    """Learns which key is worth most."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.network, self.slow = Network(self.rng), Network(self.rng)
        self.memory = Memory()
        self.updates = 0
        self._means = [np.zeros_like(part) for part in self.network.parts]
        self._squares = [np.zeros_like(part) for part in self.network.parts]

    def act(self, seen: Floats) -> int:
        return int(self.network.values(seen[np.newaxis]).argmax())

    def learn(self) -> None:
        """Brings the values of some transitions nearer to what came of them."""
        seen, actions, earned, discounts, after = self.memory.draw(self.rng)
        best = self.network.values(after).argmax(axis=1)
        following = self.slow.values(after)[np.arange(BATCH), best]
        gradients = self.network.gradients(
            seen, actions, earned + discounts * following
        )
        self.updates += 1
        # Adam (Kingma and Ba, 2015).
        for part, slow, gradient, mean, square in zip(
            self.network.parts,
            self.slow.parts,
            gradients,
            self._means,
            self._squares,
            strict=True,
        ):
            mean += 0.1 * (gradient - mean)
            square += 0.01 * (gradient**2 - square)
            first = mean / (1 - 0.9**self.updates)
            second = square / (1 - 0.99**self.updates)
            part -= LEARNING_RATE * first / (np.sqrt(second) + 1e-8)
            slow += FOLLOWING * (part - slow)


class Driver:
    """Drives in one desktop, and hands what happens to the agent's memory."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._open: deque[Transition] = deque()
        self._held, self._key = 0, 0
        self.points = 0.0

    def step(self, time_step: Any, ticks: int, curiosity: float) -> int:
        """Takes in a time step of this desktop, and returns an action."""
        seen = look(time_step.observation)
        if time_step.is_first():
            self._open.clear()
            self._held, self.points = 0, 0.0
        else:
            self._take(time_step, seen, ticks)
        if time_step.is_last():
            return 1  # The next step begins a drive, whatever the action.
        action = self._choose(seen, curiosity)
        self._open.append(Transition(seen, action))
        return action

    def _take(self, time_step: Any, seen: Floats, ticks: int) -> None:
        self.points += float(time_step.reward)
        # 10 points a second at most: about 1 for each tick.
        reward = 3.0 * float(time_step.reward)
        discount = GAMMA ** max(ticks, 1) * float(time_step.discount)
        for one in self._open:
            one.go_on(reward, discount)
        while self._open and (time_step.is_last() or self._open[0].steps >= STEPS):
            self.agent.memory.add(self._open.popleft(), seen)

    def _choose(self, seen: Floats, curiosity: float) -> int:
        """Chooses the best key, or now and then holds another one for a while."""
        rng = self.agent.rng
        if not self._held and rng.random() < curiosity / HOLD:
            self._held = int(rng.integers(2, 2 * HOLD))
            self._key = int(rng.integers(len(KEYS)))
        if self._held:
            self._held -= 1
            return self._key
        return self.agent.act(seen)


class Lags:
    """Adds up how late the agent was, from the lags of the steps."""

    def __init__(self) -> None:
        self._reactions: list[float] = []
        self._latencies: list[float] = []
        self._ticks = self._missed = 0

    def add(self, lag: dict[str, Any], row: int) -> None:
        self._ticks += int(lag["ticks_merged"][row])
        self._missed += int(lag["missed_ticks"][row])
        parts = ("think_time", "action_latency", "observation_age")
        self._reactions.append(sum(float(lag[name][row]) for name in parts))
        if lag["key_to_pixel"][row] > 0:
            self._latencies.append(float(lag["key_to_pixel"][row]))

    def __str__(self) -> str:
        def middle(times: list[float]) -> str:
            return f"{1000 * float(np.median(times)):.0f} ms" if times else "unknown"

        missed = 100 * self._missed / max(self._ticks, 1)
        return (
            f"reaction {middle(self._reactions)}, key to pixel "
            f"{middle(self._latencies)}, {missed:.0f}% of ticks missed"
        )


class Camera:
    """Keeps the first seconds of pictures."""

    def __init__(self) -> None:
        self.pictures: list[Any] = []
        self._due = 0.0

    def show(self, picture: Any, passed: float) -> None:
        if passed >= self._due and len(self.pictures) < FILM_HZ * FILM_SECONDS:
            self.pictures.append(np.array(picture))
            self._due = max(self._due, passed - 1 / FILM_HZ) + 1 / FILM_HZ


class School:
    """The desktops, with a driver for each, and one agent."""

    def __init__(self, env: AsyncParallelPyEnvironment, agent: Agent) -> None:
        self.env, self.agent = env, agent
        self.drivers = [Driver(agent) for _ in range(env.num_envs)]
        self.steps = 0
        self._begin()
        env.reset_async()

    def _begin(self) -> None:
        self.drives: list[float] = []
        self.lags, self.camera = Lags(), Camera()
        # Desktops that have begun a drive since then: others' drives are of before.
        self._begun: set[int] = set()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """For how long it has been driven or learned."""
        return time.monotonic() - self._began

    def learn(self, steps: int, most: float) -> None:
        """Drives and learns for so many steps, or for so many seconds at most.

        Fewer steps come on a machine that is busy with other programs, where games and
        agents are late, so it is steps that learning is measured in.
        """
        self._begin()
        updates, told = 0, 10.0
        while self.steps < steps and self.seconds < most:
            curiosity = max(0.05, 1 - self.steps / (0.4 * steps))
            if self._take(curiosity, waits=False):
                continue
            # As often as there are steps, so that the games have time, too.
            if self.agent.memory.count > FEWEST and updates < self.steps:
                self.agent.learn()
                updates += 1
            else:
                self._take(curiosity, waits=True)
            if self.seconds >= told:
                print(f"{told:4.0f} s  {self.steps:5} steps  {self}", flush=True)
                told += 10.0
                self.lags = Lags()

    def show(self, seconds: float) -> None:
        """Drives for so long, and one drive at least, as well as it has learned to."""
        self._begin()
        while self.seconds < seconds or not self.drives:
            self._take(0.0, waits=True)

    def _take(self, curiosity: float, *, waits: bool) -> bool:
        """Lets the drivers act whose desktops are ready; returns whether one was."""
        batch = self.env.recv(count=1, timeout=None if waits else 0)
        for index, env_id in enumerate(batch.env_ids.tolist()):
            parts = [part[index] for part in batch.time_step]
            time_step = type(batch.time_step)(*parts)
            lag = batch.info["realtime"]
            driver = self.drivers[env_id]
            action = driver.step(time_step, int(lag["ticks_merged"][index]), curiosity)
            self.env.send({"keys": KEYS[action][np.newaxis]}, [env_id])
            if time_step.is_first():
                self._begun.add(env_id)
            if time_step.is_mid():
                self.steps += 1
                self.lags.add(lag, index)
            if env_id in self._begun:
                if time_step.is_last():
                    self.drives.append(driver.points)
                if env_id == 0:
                    self.camera.show(time_step.observation, self.seconds)
        return bool(len(batch.env_ids))

    def __str__(self) -> str:
        recent = float(np.mean(self.drives[-10:] or [0.0]))
        return (
            f"{len(self.drives):4} drives, the last ones {recent:5.1f} points; "
            f"{self.lags}"
        )


def film(path: Path, shown: dict[str, list[Any]]) -> None:
    """Writes a film of drives side by side, each below its title."""
    width, height = SIZE
    count = max(map(len, shown.values()))
    pictures = []
    shown = {title: frames for title, frames in shown.items() if frames}
    for number in range(count):
        whole = Image.new("RGB", (width * len(shown) + 8, height + 20), "white")
        for place, (title, frames) in enumerate(shown.items()):
            left = place * (width + 8)
            frame = Image.fromarray(frames[min(number, len(frames) - 1)])
            whole.paste(frame, (left, 20))
            ImageDraw.Draw(whole).text((left + 4, 4), title, fill="black")
        pictures.append(whole)
    # One palette for all, without dots, so that the file is small.
    palette = pictures[-1].quantize(48)
    first, *others = [
        one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    first.save(
        path, save_all=True, append_images=others, duration=1000 // FILM_HZ, loop=0
    )


def make_env(options: argparse.Namespace) -> Any:
    """Returns the constructor of a desktop in real time."""
    game = functools.partial(
        Desktop,
        [sys.executable, str(GAME)],
        size=SIZE,
        keys=["Left", "Right"],
        reward=RewardChannel(),
        ready="reported",
        reset=None,
        patience=30.0,
        probe=LAMP,
    )
    # A thread, because this is in a process of its own in the pool.
    return functools.partial(RealTimeEnvironment, game, options.hz, host="thread")


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=2, help="desktops")
    parser.add_argument("--steps", type=int, default=4500, help="of learning")
    parser.add_argument(
        "--max_seconds", type=float, default=240.0, help="when to stop learning anyway"
    )
    parser.add_argument(
        "--shown_seconds", type=float, default=26.0, help="of driving after that"
    )
    parser.add_argument("--hz", type=float, default=30.0, help="ticks in a second")
    parser.add_argument(
        "--seed", type=int, default=0, help="what the random numbers depend on"
    )
    parser.add_argument(
        "--film", type=Path, default=Path("desktop_game.gif"), help="where it goes"
    )
    return parser.parse_args()


def main() -> None:
    """Learns, shows how well it drives, and makes a film."""
    options = arguments()
    if importlib.util.find_spec("pygame") is None:
        sys.exit(
            "This example needs the package pygame, which is not installed. "
            f"{install_command('play', 'video', package='pygame')}"
        )
    try:
        env = AsyncParallelPyEnvironment(
            [make_env(options)] * options.num_envs, num_workers=options.num_envs
        )
    except WorkerError as error:
        if isinstance(error.__cause__, MissingDependencyError):
            sys.exit(str(error.__cause__))
        raise
    with env:
        school = School(env, Agent(options.seed))
        school.learn(options.steps, options.max_seconds)
        seconds, at_first = school.seconds, school.drives[:10] or [0.0]
        before = school.camera.pictures
        school.show(options.shown_seconds)
    path = options.film.resolve()
    learned = f"after {seconds:.0f} seconds of learning at {options.hz:g} Hz"
    film(path, {"the first seconds": before, learned: school.camera.pictures})
    print(f"the first drives: {np.mean(at_first):.1f} points")
    print(f"the last drives: {np.mean(school.drives):.1f} points; {school.lags}")
    print(f"the film: {path}")


if __name__ == "__main__":
    main()
