"""Environments for the checks of backends, in a module that workers can import.

They tell the check what becomes of them by making files in its folder, and wait for
files that the check makes: that works in a thread and in another process alike.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from envkit.batched_py_environment import BatchedPyEnvironment
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec
from envkit.testing.envs import TracingEnv
from envkit.time_step import TimeStep, restart, transition
from envkit.types import NestedArray, NestedSpec

__all__ = [
    "DIE",
    "GO",
    "RAISE",
    "WAIT",
    "EchoEnv",
    "ObedientEnv",
    "action_for",
    "make_batch",
    "raise_in_setup",
    "wait_for_file",
]

# The orders that an action may carry.
GO, WAIT, RAISE, DIE = range(4)
_ORDERS = 100_000_000

EXIT_CODE = 3
# How long a step waits at a gate that no check opens.
_LONGEST_WAIT = 600.0

_serial = itertools.count()


def action_for(order: int, number: int) -> int:
    """Returns an action with an order in it; `number` tells it from others."""
    return order * _ORDERS + number


def wait_for_file(path: Path, patience: float) -> bool:
    """Waits until a file is there; says whether it came, or its folder went."""
    deadline = time.monotonic() + patience
    pause = 0.0005
    while not path.exists():
        if not path.parent.exists():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    return True


class ObedientEnv(TracingEnv):
    """A `TracingEnv` that waits, raises or ends its process when its action says so.

    Files in its folder say when one is built (`built-…`) and closed (`closed-…`), and
    when a step with an order begins (`in-…`); it waits until there is `go-…`. While
    there is a file `broken`, none can be built.
    """

    def __init__(self, folder: str, env_id: int = 0) -> None:
        """Makes an environment that is told what to do by the owner of a folder."""
        super().__init__(env_id=env_id)
        self._folder = Path(folder)
        if (self._folder / "broken").exists():
            raise RuntimeError(f"env {env_id} was told not to be built.")
        self._token = f"{os.getpid()}-{next(_serial)}"
        self._note(f"built-{self._token}")

    def where(self) -> tuple[int, int, str]:
        """Returns its process, its thread, and its name among the files."""
        return os.getpid(), threading.get_ident(), self._token

    def echo(self, value: Any) -> Any:
        """Returns what it is given."""
        return value

    def give(self, kind: str) -> Any:
        """Returns a number, or what cannot travel; or raises."""
        if kind == "lock":
            return threading.Lock()
        if kind == "error":
            raise RuntimeError(f"env {self.env_id} was told to raise.")
        return self.env_id

    def close(self) -> None:
        """Closes."""
        self._note(f"closed-{self._token}")
        super().close()

    def _note(self, name: str) -> None:
        # The folder goes when the check is over.
        with contextlib.suppress(OSError):
            (self._folder / name).touch()

    def _step(self, action: NestedArray) -> TimeStep:
        order = int(action) // _ORDERS
        if order != GO:
            self._note(f"in-{self.env_id}-{int(action)}")
        if order == WAIT:
            gate = self._folder / f"go-{self.env_id}-{int(action)}"
            if not wait_for_file(gate, _LONGEST_WAIT):
                raise TimeoutError(f"No check let env {self.env_id} go on.")
        if order == RAISE:
            raise RuntimeError(f"env {self.env_id} was told to raise.")
        if order == DIE:
            os._exit(EXIT_CODE)
        return super()._step(action)


class EchoEnv(PyEnvironment):
    """Observes what its action was; in the beginning, the first of all actions."""

    def __init__(self, with_object: bool = False) -> None:
        """Makes an environment whose leaves are of unusual kinds."""
        super().__init__(handle_auto_reset=True)
        self._spec = {
            "empty": ArraySpec((0, 3), np.float32),
            "flag": ArraySpec((2,), np.bool_),
            "none": (),
            "nothing": {},
            "number": ArraySpec((), np.int16),
            "text": ArraySpec((), "<U8"),
            "when": ArraySpec((), "datetime64[s]"),
        } | ({"thing": ArraySpec((), np.object_)} if with_object else {})

    @classmethod
    def value(cls, number: int, with_object: bool = False) -> Any:
        """Returns a value in which every leaf depends on a number."""
        return {
            "empty": np.zeros((0, 3), np.float32),
            "flag": np.array([number % 2, number % 3 == 0], np.bool_),
            "none": (),
            "nothing": {},
            "number": np.array(number, np.int16),
            "text": np.array(f"n{number}", "<U8"),
            "when": np.array(1_000_000 + number, "datetime64[s]"),
        } | ({"thing": _thing(number)} if with_object else {})

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of an action."""
        return self._spec

    def action_spec(self) -> NestedSpec:
        """Returns the spec of an observation."""
        return self._spec

    def _reset(self) -> TimeStep:
        return restart(self.value(0, "thing" in self._spec))

    def _step(self, action: NestedArray) -> TimeStep:
        return transition(action, reward=0.0)


def _thing(number: int) -> Any:
    thing = np.empty((), np.object_)
    thing[()] = {"number": number, "more": [number] * 3}
    return thing


def make_batch(first_id: int, size: int) -> BatchedPyEnvironment:
    """Makes a batch of `TracingEnv`, numbered from `first_id` on."""
    envs = [TracingEnv(env_id=first_id + index) for index in range(size)]
    return BatchedPyEnvironment(envs, multithreading=False)


def raise_in_setup() -> None:
    """Raises, as the setup of a worker."""
    raise RuntimeError("This setup was told to raise.")
