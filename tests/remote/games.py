"""Environments for the tests of servers, in a module that workers import quickly."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    restart,
    termination,
    transition,
    truncation,
)
from envkit.specs.special import ObjectSpec, Strings, TextSpec
from envkit.testing.envs import CountingEnv
from tests.waiting import PATIENCE

# What no terminal and no log may be shown.
EVIL = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202etext\nsecond line"
# Set by a test that lets `Stuck` go on.
GO_ON = threading.Event()
# Set when `Stuck` is in a step.
IS_STUCK = threading.Event()


def free_port() -> int:
    """Returns a port that a server can take, and take again after another."""
    while True:
        # Below those that systems hand out themselves.
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as taken:
            if taken.connect_ex(("127.0.0.1", port)) != 0:
                return port


class Walk(PyEnvironment):
    """Goes a random way of random length, to either kind of end."""

    def __init__(self, most: int = 6) -> None:
        super().__init__(handle_auto_reset=True)
        self._most = most
        self._rng = np.random.default_rng(0)
        self._left = 0
        self._place = np.zeros(2)

    def observation_spec(self) -> Any:
        return {
            "place": ArraySpec((2,), np.float64, "place"),
            "left": BoundedArraySpec((), np.uint8, 0, 6, "left"),
            "word": TextSpec((), "<U3", "word"),
        }

    def action_spec(self) -> Any:
        return {
            "push": BoundedArraySpec((2,), np.float32, [-1, 0], 1, "push"),
            "jump": ArraySpec((), bool, "jump"),
        }

    def seed(self, seed: Any) -> Any:
        self._rng = np.random.default_rng(seed)

    def get_info(self) -> Any:
        return {"left": self._left, "place": self._place}

    def _observe(self) -> Any:
        return {
            "place": self._place.copy(),
            "left": np.array(self._left, np.uint8),
            "word": np.array("odd" if self._left % 2 else "", "<U3"),
        }

    def _reset(self) -> Any:
        self._left = int(self._rng.integers(1, self._most))
        self._place = self._rng.random(2)
        return restart(self._observe())

    def _step(self, action: Any) -> Any:
        self._left -= 1
        self._place = self._place + action["push"] + self._rng.normal(size=2)
        reward = float(np.float32(self._place.sum())) * (1 + bool(action["jump"]))
        if self._left:
            return transition(self._observe(), reward)
        end = termination if self._rng.random() < 0.5 else truncation
        return end(self._observe(), reward)


class Echo(PyEnvironment):
    """Observes what is said to it; its options are its first words."""

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)

    def observation_spec(self) -> Any:
        return ObjectSpec(kind=Strings(str))

    def action_spec(self) -> Any:
        return ObjectSpec(kind=Strings(str))

    def _reset(self, options: Any = None) -> Any:
        return restart(ObjectSpec.wrap(f"{(options or {}).get('task')}"))

    def _step(self, action: Any) -> Any:
        said = action[()] if isinstance(action, np.ndarray) else action
        if said == "raise":
            raise ArithmeticError("was told to raise")
        return transition(ObjectSpec.wrap(said), 0.25)


class Breaking(Echo):
    """Does what servers do not expect."""

    def _step(self, action: Any) -> Any:
        said = action[()] if isinstance(action, np.ndarray) else action
        if said == "exit":
            sys.exit(3)
        if said == "half":
            raise ValueError("\ud83d")
        return super()._step(action)

    def get_info(self) -> Any:
        return {} if self.current_time_step().is_first() else {"far": 10**5000}


class Stuck(CountingEnv):
    """Stays in its second step until it may go on."""

    def _step(self, action: Any) -> Any:
        if self._current_step == 1:
            IS_STUCK.set()
            GO_ON.wait()
        return super()._step(action)


class Gate(CountingEnv):
    """Stops at action 1, until another one in this process is reset."""

    _OPEN = threading.Event()

    def __init__(self) -> None:
        super().__init__(steps_per_episode=1_000_000)

    def _reset(self) -> Any:
        self._OPEN.set()
        return super()._reset()

    def _step(self, action: Any) -> Any:
        if action == 1:
            self._OPEN.clear()
            self._OPEN.wait()
        return super()._step(action)


class Gathering(CountingEnv):
    """Ends no step before all of 64 environments are in one."""

    all_in_a_step = threading.Barrier(64)

    def _step(self, action: Any) -> Any:
        self.all_in_a_step.wait(PATIENCE)
        return super()._step(action)


class Leaving(Stuck):
    """Keeps a list of those that are not closed."""

    there: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        super().__init__()
        self.there.append(self)

    def close(self) -> None:
        self.there.remove(self)
        super().close()


class Unmade(CountingEnv):
    """Cannot be made a second time."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        if self.made > 1:
            raise OSError("the second one breaks")
        super().__init__()


class Discounting(CountingEnv):
    """Has a discount whose spec is unusual."""

    def discount_spec(self) -> Any:
        return BoundedArraySpec((), np.float32, 0, 0.5)

    def _reset(self) -> Any:
        return super()._reset()._replace(discount=np.float32(0.5))

    def _step(self, action: Any) -> Any:
        return super()._step(action)._replace(discount=np.float32(0.25))


class Pictures(CountingEnv):
    """Shows large pictures, each of one colour: the number of the step."""

    def observation_spec(self) -> Any:
        return ArraySpec((160, 160), np.uint8)

    def _observe(self) -> Any:
        return np.full((160, 160), self._current_step, np.uint8)


class Fatal(CountingEnv):
    """Crashes the process in which it is made."""

    def __init__(self) -> None:
        os.abort()


class Told(PyEnvironment):
    """Counts from where its options say; a negative action raises."""

    _count = 0

    def observation_spec(self) -> Any:
        return ArraySpec((), np.int64)

    def action_spec(self) -> Any:
        return ArraySpec((), np.int64)

    def seed(self, seed: Any = None) -> Any:
        if seed == 13:
            raise LookupError("no seed 13")

    def add(self, by: int) -> int:
        return self._count + by

    def _reset(self, options: Any = None) -> Any:
        self._count = (options or {}).get("start", 0)
        return restart(np.int64(self._count))

    def _step(self, action: Any) -> Any:
        if action < 0:
            raise LookupError("no such way")
        self._count += 1
        return transition(np.int64(self._count), 0.0)


class Texts(Told):
    """Observes what is said to it, in text of a given length."""

    def observation_spec(self) -> Any:
        return TextSpec((), "<U8")

    def action_spec(self) -> Any:
        return TextSpec((), "<U8")

    def _reset(self) -> Any:
        return restart(np.array("", "<U8"))

    def _step(self, action: Any) -> Any:
        return transition(np.asarray(action, "<U8"), 0.0)


class Tasks(Walk):
    """Has tasks, as environments of OpenEnv do that have a data set."""

    def list_splits(self) -> Any:
        return ["train", {"name": "x", "type": "test"}]

    def list_tasks(self, split: str) -> Any:
        if split != "x":
            raise ValueError(f"there is no split {split!r}")
        return ("x0", "x1", "x2")

    def num_tasks(self, split: str) -> int:
        return len(self.list_tasks(split))

    def get_task(self, split: str, index: int) -> Any:
        return self.list_tasks(split)[index]

    def get_task_range(self, split: str, start: Any = None, stop: Any = None) -> Any:
        return self.list_tasks(split)[start:stop]


class Drawing(PyEnvironment):
    """Draws its observations, and writes each action to a file of a folder.

    Its steps, and its resets, fail as many times as the folder has files for them,
    which say how.
    """

    def __init__(self, folder: str, steps: int = 4) -> None:
        super().__init__(handle_auto_reset=True)
        self._folder, self._steps = Path(folder), steps
        self._numbers = np.random.default_rng()

    def observation_spec(self) -> Any:
        return ArraySpec((), np.int64)

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 1)

    def _fail(self, where: str) -> None:
        for trouble in self._folder.glob(f"{where}-*"):
            how = trouble.read_text()
            trouble.unlink()
            if how == "raise":
                raise RuntimeError(f"there is no {where} today")
            os.kill(os.getpid(), getattr(signal, how))

    def _reset(self, seed: int | None = None) -> Any:
        self._fail("reset")
        if seed is not None:
            self._numbers = np.random.default_rng(seed)
        self._left = self._steps
        return restart(self._drawn())

    def _step(self, action: Any) -> Any:
        with open(self._folder / "actions", "ab") as file:
            file.write(b"%d" % action)
        self._fail("step")
        self._left -= 1
        return (transition if self._left else truncation)(self._drawn(), 1.0)

    def _drawn(self) -> Any:
        return np.int64(self._numbers.integers(1_000_000))


class Fragile(Walk):
    """Ends its process at the first action above 0, if there is a file."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._file = Path(place)

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 1, "crash")

    def _step(self, action: Any) -> Any:
        if action and self._file.exists():
            self._file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        push = np.full(2, action, np.float32)
        return super()._step({"push": push, "jump": False})


class Evil(CountingEnv):
    """Raises an error that would take over a terminal."""

    def _step(self, action: Any) -> Any:
        raise ValueError(EVIL)


class Locked(CountingEnv):
    """Has a secret, and says so in all its errors."""

    def __init__(
        self, secret: str = "", pin: int = 0, most: int = 3, level: int = 0
    ) -> None:
        if level < 0:
            raise ValueError(f"level must be at least 0, with {secret!r} and {pin}")
        super().__init__(steps_per_episode=most)
        self.secret, self.pin = secret, pin

    def _step(self, action: Any) -> Any:
        if action == 1:
            raise RuntimeError(f"{self.secret} and {self.pin} do not open the door")
        return super()._step(action)


class SlowToClose(CountingEnv):
    """Takes as long to close as a file exists."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        open(f"{self._file}.closing", "w").close()
        while os.path.exists(self._file):
            time.sleep(0.01)
        super().close()


class Spy(CountingEnv):
    """Writes what its process has inherited."""

    def __init__(self, file: str) -> None:
        super().__init__()
        listening = []
        for fd in range(3, 64):
            with contextlib.suppress(OSError):
                sock = socket.socket(fileno=os.dup(fd))
                with sock:
                    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        listening.append(sock.getsockname()[1])
        variables = [name for name in os.environ if name.startswith("LISTEN_")]
        with open(file, "w", encoding="utf-8") as out:
            json.dump({"variables": variables, "listening": listening}, out)


class Objects(PyEnvironment):
    """Observes objects in one of two leaves."""

    def observation_spec(self) -> Any:
        number = ArraySpec((), np.float32)
        return {"number": number, "thing": ObjectSpec()}

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self) -> Any:
        raise NotImplementedError

    _step = _reset


def in_virtual_time() -> Any:
    """Makes an environment that goes on while the agent thinks."""
    from envkit.realtime import RealTimeEnvironment  # no other game needs it

    return RealTimeEnvironment(CountingEnv, hz=60, host="virtual")


class Unsendable(CountingEnv):
    """Returns an observation in its steps that does not fit its spec."""

    def _step(self, action: Any) -> Any:
        return super()._step(action)._replace(observation=np.zeros((3, 3)))
