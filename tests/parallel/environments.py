"""Environments for the tests of pools, in a module that workers import quickly."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    nest,
    restart,
    termination,
    transition,
    truncation,
)
from envkit.testing.envs import CountingEnv, TracingEnv
from tests.waiting import PATIENCE

MEGABYTE = 2**20
KEPT: list[bytearray] = []


class Walk(PyEnvironment):
    """Goes a random way of random length, to either kind of end."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(handle_auto_reset=True)
        self._rng = np.random.default_rng(seed)
        self._left = 0
        self._place = np.zeros(2)

    def observation_spec(self) -> Any:
        return {
            "place": ArraySpec((2,), np.float64),
            "left": ArraySpec((), np.uint8),
        }

    def action_spec(self) -> Any:
        return BoundedArraySpec((2,), np.float32, -1, 1)

    def seed(self, seed: Any) -> Any:
        self._rng = np.random.default_rng(seed)
        return seed

    def get_info(self) -> Any:
        return {"left": self._left}

    def _observe(self) -> Any:
        return {"place": self._place.copy(), "left": np.array(self._left, np.uint8)}

    def _reset(self) -> Any:
        self._left = int(self._rng.integers(1, 6))
        self._place = self._rng.random(2)
        return restart(self._observe())

    def _step(self, action: Any) -> Any:
        self._left -= 1
        self._place = self._place + action + self._rng.normal(size=2)
        reward = float(np.float32(self._place.sum()))
        if self._left:
            return transition(self._observe(), reward, discount=0.5)
        end = termination if self._rng.random() < 0.5 else truncation
        return end(self._observe(), reward)

    def _get_state(self) -> Any:
        return self._rng.bit_generator.state, self._left, self._place

    def _set_state(self, state: Any) -> None:
        self._rng.bit_generator.state, self._left, self._place = state


def unseeded_walk() -> Any:
    """Makes an environment that goes another way each time."""
    return Walk(None)


class Fragile(Walk):
    """Ends its process, or hangs, where its action is 1 and a file says how."""

    goes_on = threading.Event()

    def __init__(self, place: str, seed: int) -> None:
        super().__init__(seed)
        self._file = Path(place)

    def _step(self, action: Any) -> Any:
        if action[0] == 1 and self._file.exists():
            how = self._file.read_text("utf-8")
            if not how.startswith("always"):
                self._file.unlink()
            if "hang" in how:
                # A thread of this process is let go when its pool is closed.
                self.goes_on.wait(PATIENCE)
                raise TimeoutError("It was not given up.")
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._step(action)


class Placed(Walk):
    """Knows where it is."""

    def place(self) -> str:
        return os.environ.get("PLACE", "")


class Repeating(PyEnvironment):
    """Observes what the action was; in the beginning, what it was made with."""

    def __init__(self, spec: Any, first: Any) -> None:
        super().__init__(handle_auto_reset=True)
        self._spec = spec
        # NumPy forgets the byte order of some arrays when it pickles them.
        self._first = nest.map_structure(
            lambda leaf, value: np.array(value, leaf.dtype), spec, first
        )

    def observation_spec(self) -> Any:
        return self._spec

    def action_spec(self) -> Any:
        return self._spec

    def _reset(self) -> Any:
        return restart(self._first)

    def _step(self, action: Any) -> Any:
        return transition(action, reward=0.0)


class Echo(PyEnvironment):
    """Observes its action and the number of the step; `meddle` calls in each step."""

    meddle: Any = None

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)
        self._steps = 0

    def observation_spec(self) -> Any:
        return ArraySpec((2,), np.int64)

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 1_000_000)

    def info_spec(self) -> Any:
        return {"steps": ArraySpec((), np.int64)}

    def get_info(self) -> Any:
        return {"steps": np.int64(self._steps)}

    def render(self, mode: str = "rgb_array") -> Any:
        return np.full((2, 2, 3), 7, np.uint8)

    def _reset(self) -> Any:
        return restart(np.zeros(2, np.int64))

    def _step(self, action: Any) -> Any:
        if self.meddle is not None:
            self.meddle()
        self._steps += 1
        return transition(np.array([action, self._steps]), reward=0.0)

    def _get_state(self) -> Any:
        return self._steps

    def _set_state(self, state: Any) -> None:
        self._steps = state


class Showing(PyEnvironment):
    """Observes given values in turn, exactly as they are."""

    def __init__(self, spec: Any, values: Any, action_spec: Any = None) -> None:
        super().__init__(handle_auto_reset=True)
        self._spec = spec
        self._values = values
        self._action_spec = (
            BoundedArraySpec((), np.int64, 0, 9) if action_spec is None else action_spec
        )
        self._next = 0
        self._heard: list[Any] = []

    @property
    def heard(self) -> list[Any]:
        """The actions, the very objects that they were."""
        return self._heard

    def observation_spec(self) -> Any:
        return self._spec

    def action_spec(self) -> Any:
        return self._action_spec

    def _value(self) -> Any:
        value = self._values[self._next % len(self._values)]
        self._next += 1
        return value

    def _reset(self) -> Any:
        return restart(self._value())

    def _step(self, action: Any) -> Any:
        self._heard.append(action)
        return transition(self._value(), reward=0.0)


class Reusing(PyEnvironment):
    """Returns the same array each time, and writes into it long after that."""

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)
        self._board = np.zeros(3, np.int64)

    def observation_spec(self) -> Any:
        return ArraySpec((3,), np.int64)

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 9)

    def spoil(self) -> None:
        """Overwrites what has been returned."""
        self._board[:] = -1

    def _reset(self) -> Any:
        self._board[:] = 0
        return restart(self._board)

    def _step(self, action: Any) -> Any:
        self._board += 1
        return transition(self._board, reward=0.0)


class Screens(BatchedPyEnvironment):
    """Walks that show pictures; all it returns is in memory that it writes over."""

    def __init__(self, count: int) -> None:
        super().__init__([Walk() for _ in range(count)])
        self._screens = np.zeros((count, 96, 96), np.int64)

    def observation_spec(self) -> Any:
        return ArraySpec((96, 96), np.int64)

    def _reset(self) -> Any:
        return self._shown(super()._reset())

    def _reset_rows(self, mask: Any) -> Any:
        return self._shown(super()._reset_rows(mask))

    def _step(self, action: Any) -> Any:
        return self._shown(super()._step(action))

    def _step_rows(self, action: Any, stepping: Any, beginning: Any) -> Any:
        return self._shown(super()._step_rows(action, stepping, beginning))

    def _shown(self, time_step: Any) -> Any:
        place = time_step.observation["place"][:, :1, None]
        self._screens[:] = 1000 * place + np.arange(96)
        return time_step._replace(observation=self._screens)


class Loose(PyEnvironment):
    """Observes whatever it is told to with `show`, whether it fits or not."""

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)
        self._shown: Any = np.zeros(2, np.float32)

    def observation_spec(self) -> Any:
        return ArraySpec((2,), np.float32)

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 9)

    def show(self, value: Any) -> None:
        """Says what to observe from now on."""
        self._shown = value

    def _reset(self) -> Any:
        return restart(self._shown)

    def _step(self, action: Any) -> Any:
        return transition(self._shown, reward=0.0)


class Gated(TracingEnv):
    """A `TracingEnv` whose step waits at a gate if its action is odd.

    The gate is a pipe with a name; each byte in it lets one step pass.
    """

    def __init__(self, gate: str, env_id: int = 0) -> None:
        super().__init__(env_id=env_id)
        self._gate = os.open(gate, os.O_RDWR)

    def _step(self, action: Any) -> Any:
        if action % 2:
            os.read(self._gate, 1)
        return super()._step(action)

    def close(self) -> None:
        gate, self._gate = self._gate, -1
        if gate >= 0:
            os.close(gate)


def open_gate(gate: Any) -> None:
    """Lets one step pass."""
    fd = os.open(gate, os.O_RDWR | os.O_NONBLOCK)
    # The environment has it open, so the byte stays when this end is closed.
    os.write(fd, b".")
    os.close(fd)


class Hostile:
    """Pickles, but cannot be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


class UnpicklableError(Exception):
    """An exception that cannot travel."""

    def __init__(self) -> None:
        super().__init__("no way")
        self.lock = threading.Lock()


class Talkative(CountingEnv):
    """Has things to ask for, and some that cannot be sent."""

    colour = "green"

    def __init__(self, number: int = 0, ballast: bytes = b"") -> None:
        super().__init__()
        self.number = number
        self._secret = 42
        self._info: Any = {"number": number}
        self._picture_size = 2
        self._complaint: Any = None
        self._kept: Any = None

    @property
    def lock(self) -> Any:
        return threading.Lock()

    @property
    def pid(self) -> int:
        return os.getpid()

    def add(self, *numbers: int, factor: int = 1) -> int:
        return (self.number + sum(numbers)) * factor

    def make_lock(self) -> Any:
        return threading.Lock()

    def size_of(self, payload: bytes) -> int:
        return len(payload)

    def payload(self, size: int) -> bytes:
        return bytes(size)

    def complain(self, text: Any) -> None:
        raise KeyError(text)

    def complain_of_size(self, size: int) -> None:
        raise KeyError("x" * size)

    def fail_unsendably(self) -> None:
        raise UnpicklableError

    def leave(self) -> None:
        raise SystemExit(3)

    def inform(self, info: Any) -> None:
        """Says what `get_info` returns."""
        self._info = info

    def inform_of_size(self, size: int) -> None:
        self._info = {"payload": np.zeros(size, np.uint8)}

    def inform_of_lock(self) -> None:
        self._info = {"lock": threading.Lock()}

    def paint(self, size: int) -> None:
        """Says how large `render` paints."""
        self._picture_size = size

    def keep(self, size: int) -> None:
        """Makes the state larger."""
        self._kept = bytes(size)

    def plan_complaint(self, size: int) -> None:
        """Lets the next step raise."""
        self._complaint = size

    def get_info(self) -> Any:
        return self._info

    def render(self, mode: str = "rgb_array") -> Any:
        if mode == "ansi":
            return f"number {self.number}"
        if mode != "rgb_array":
            raise NotImplementedError(f"Only rgb_array is rendered, not {mode!r}.")
        size = self._picture_size
        return np.full((size, size, 3), self.number, np.uint8)

    def _step(self, action: Any) -> Any:
        if self._complaint is not None:
            size, self._complaint = self._complaint, None
            raise KeyError("x" * size)
        return super()._step(action)

    def _get_state(self) -> Any:
        return super()._get_state(), self.number, self._kept

    def _set_state(self, state: Any) -> None:
        inner, self.number, self._kept = state
        super()._set_state(inner)


class Stateless(CountingEnv):
    """Cannot save its state."""

    def _get_state(self) -> Any:
        raise NotImplementedError("Stateless cannot save its state.")


class Stubborn(CountingEnv):
    """Saves its state, and refuses any other."""

    def _set_state(self, state: Any) -> None:
        if state != self._get_state():
            raise ValueError("Stubborn stays where it is.")


class Told(CountingEnv):
    """Shows the number that it was told last."""

    number = 0

    def tell(self, number: int) -> None:
        self.number = number

    def _observe(self) -> Any:
        return np.array(self.number, np.int32)


class Marking(CountingEnv):
    """Writes down in a folder when it is built, steps and is closed."""

    def __init__(self, folder: str, number: int) -> None:
        self._journal = os.path.join(folder, "journal")
        self._number = number
        self._write("begin")
        super().__init__()
        self._write("built")

    def _write(self, what: str) -> None:
        # One system call, so lines of several processes do not mix.
        fd = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, f"{what} {self._number} {os.getpid()}\n".encode())
        os.close(fd)

    def _step(self, action: Any) -> Any:
        self._write("step")
        time_step = super()._step(action)
        self._write("stepped")
        return time_step

    def close(self) -> None:
        self._write("close")


class Meeting(CountingEnv):
    """Is built once another one is being built at the same time, or never."""

    def __init__(self, mine: str, other: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(other)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(mine)
        # Opening a pipe waits until its other end is opened.
        if mine < other:
            os.close(os.open(mine, os.O_RDONLY))
            os.close(os.open(other, os.O_WRONLY))
        else:
            os.close(os.open(other, os.O_WRONLY))
            os.close(os.open(mine, os.O_RDONLY))
        super().__init__()


class Odd(PyEnvironment):
    """An environment whose specs have no leaves at all, and no base initialised."""

    def __init__(self) -> None:
        self._steps = 0

    def observation_spec(self) -> Any:
        return ()

    def action_spec(self) -> Any:
        return {}

    @property
    def steps(self) -> int:
        return self._steps

    def _reset(self) -> Any:
        return restart(())

    def _step(self, action: Any) -> Any:
        assert action == {}
        self._steps += 1
        return transition((), reward=1.0)


class Rewarding(CountingEnv):
    """Has a reward for each of two players, and a discount of double precision."""

    def reward_spec(self) -> Any:
        return {"players": ArraySpec((2,), np.float64), "move": ArraySpec((), np.int8)}

    def discount_spec(self) -> Any:
        return BoundedArraySpec((), np.float64, 0, 1)

    def _reset(self) -> Any:
        time_step = super()._reset()
        zero = {"players": np.zeros(2), "move": np.array(0, np.int8)}
        return time_step._replace(reward=zero, discount=np.array(1.0))

    def _step(self, action: Any) -> Any:
        time_step = super()._step(action)
        reward = {"players": np.array([1 / 3, -1 / 3]), "move": np.array(5, np.int8)}
        discount = np.array(0.0 if time_step.is_last() else 1 / 3)
        return time_step._replace(reward=reward, discount=discount)


def traced(count: int, **options: Any) -> list[Any]:
    """Lists constructors of environments that say whose answer each answer is."""
    return [functools.partial(TracingEnv, row, **options) for row in range(count)]


def counting() -> Any:
    """Makes an environment; a plain function does."""
    return CountingEnv()


def counting_for(steps: int) -> Any:
    """Makes an environment with short episodes."""
    return CountingEnv(steps_per_episode=steps)


def nothing() -> None:
    """Forgets to return the environment."""


def pair_of(*lengths: int) -> Any:
    """Makes a batch of environments whose episodes have these lengths."""
    return BatchedPyEnvironment(
        [TracingEnv(env_id=length, steps_per_episode=length) for length in lengths],
        multithreading=False,
    )


class LooseBatch(PyEnvironment):
    """Two rows that observe whatever they are told to, whether it fits or not."""

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)
        self._shown: Any = np.zeros((2, 3), np.float32)
        self._rewards: Any = np.zeros(2, np.float32)

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return 2

    def observation_spec(self) -> Any:
        return ArraySpec((3,), np.float32)

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 9)

    def show(self, value: Any, rewards: Any = None) -> None:
        """Says what to observe from now on, and which rewards there are."""
        self._shown = value
        self._rewards = np.zeros(2, np.float32) if rewards is None else rewards

    def _reset(self) -> Any:
        return restart(self._shown, batch_size=2)

    def _step(self, action: Any) -> Any:
        time_step = transition(self._shown, np.zeros(2, np.float32))
        return time_step._replace(reward=self._rewards)


COUNT = ArraySpec((2,), np.int64)


class Telling(PyEnvironment):
    """Its info is what it shows: the number of the episode, and of the step in it.

    An info that belongs to another time step is thereby seen.
    """

    def __init__(self, length=3, more=False, crash_at=None):
        super().__init__(handle_auto_reset=True)
        self.length, self.more, self.crash_at = length, more, crash_at
        self.count = np.array([-1, 0])
        self.asked = self.moved = 0

    def observation_spec(self):
        return COUNT

    def action_spec(self):
        return ArraySpec((), np.int64)

    def info_spec(self):
        return {"count": COUNT}

    def get_info(self):
        self.asked += 1
        return {"count": self.count.copy(), **({"more": "text"} if self.more else {})}

    def _reset(self):
        self.count = np.array([self.count[0] + 1, 0])
        return restart(self.count.copy())

    def _step(self, action):
        self.moved += 1
        if self.moved == self.crash_at:
            raise OSError("the cable")
        self.count = self.count + np.array([0, 1])
        if self.count[1] == self.length:
            return termination(self.count.copy(), reward=0.0)
        return transition(self.count.copy(), reward=0.0)

    def _get_state(self):
        return self.count.copy()

    def _set_state(self, state):
        self.count = state.copy()

    def jump(self):
        self.count = self.count + 100


def batch_of(lengths):
    return BatchedPyEnvironment(
        [Telling(length) for length in lengths], multithreading=False
    )


class WritesActions(CountingEnv):
    """Counts, and appends each action that it gets to a file."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def action_spec(self):
        return ArraySpec((), np.int32)

    def _step(self, action):
        with open(self._path, "a", encoding="ascii") as file:
            file.write(f"{int(action)}\n")
        return super()._step(action)


class Hoarding(CountingEnv):
    """Keeps 24 megabytes more in its process with each episode."""

    def _reset(self) -> Any:
        KEPT.append(bytearray(b"1" * (24 * MEGABYTE)))
        return super()._reset()


class Speechless(Hoarding):
    """Cannot save its state."""

    def _get_state(self) -> Any:
        raise NotImplementedError
