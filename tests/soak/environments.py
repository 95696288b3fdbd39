"""Environments whose every answer can be foretold, and that make trouble when told to.

They import nothing but NumPy and envkit, as their workers' memory is measured.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import time
from typing import Any, NoReturn

import numpy as np

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    TimeStep,
    restart,
    termination,
    transition,
    truncation,
)

# What an observation shows, in this order.
ENV_ID, PID, BIRTH, EPISODE, STEP, ACTION, CHAIN, STARTED = FIELDS = range(8)

# The last digit of an action, in this base, says which trouble to make; 0 makes none.
CODES = 16
HELPER, FORK, FLOOD, HANG, SLOW = range(1, 6)
LARGEST_ACTION = 2**40 - 1

_MASK = 2**64 - 1
_FLOODS = [1 << 18, 1 << 20, 24 << 20]
_LINES = b"flood of standard error\n" * 2730
_SLEEP = ["sleep", "3600"]
# Popen objects that nothing refers to would warn.
_helpers: list[subprocess.Popen[bytes]] = []


def link(chain: Any, env_id: Any, episode: Any, step: Any, action: Any) -> Any:
    """Returns the next link of a chain of hashes: of numbers, or of uint64 arrays.

    A single answer that was lost, doubled, exchanged or late gives every later link
    another value.
    """
    mixed = (
        chain * 0x9E3779B97F4A7C15
        + env_id * 0xC2B2AE3D27D4EB4F
        + episode * 0x165667B19E3779F9
        + step * 0x27D4EB2F165667C5
        + action * 0x85EBCA77C2B2AE63
    ) & _MASK
    mixed = ((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9) & _MASK
    return (mixed ^ (mixed >> 32)) >> 1


def length(env_id: Any, episode: Any) -> Any:
    """Returns how many steps an episode has."""
    return 5 + (7 * env_id + 3 * episode) % 60


def truncates(episode: Any) -> Any:
    """Returns whether an episode is cut off at its end instead of being over."""
    return episode % 3 == 2


def reward(chain: Any) -> Any:
    """Returns what the action earned that led to this link."""
    return chain % 251


class Chained(PyEnvironment):
    """Shows who it is, where it stands, and a link that depends on all there was."""

    def __init__(self, env_id: int, slow: float = 0.0) -> None:
        """Makes an environment.

        Args:
            env_id: Its number.
            slow: How many seconds a step takes that is told to be slow.
        """
        super().__init__()
        self._env_id = env_id
        self._slow = slow
        self._birth = time.monotonic_ns()
        self._episode = -1
        self._step_number = self._chain = self._started = 0
        self._action = -1

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((len(FIELDS),), np.int64)

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, LARGEST_ACTION)

    def where(self) -> list[int]:
        """Returns what the current observation shows; the episode is -1 without one."""
        return [
            self._env_id,
            os.getpid(),
            self._birth,
            self._episode,
            self._step_number,
            self._action,
            self._chain,
            self._started,
        ]

    def take_long(self, variant: int) -> int:
        """Takes as long as it was told, without the time in which nothing runs."""
        for _ in range(6):
            time.sleep(self._slow / 6)
        return 0

    def _observe(self) -> np.ndarray:
        return np.array(self.where(), np.int64)

    def _reset(self) -> TimeStep:
        self._episode += 1
        self._step_number, self._action, self._started = 0, -1, 0
        self._chain = link(0, self._env_id, self._episode, 0, 0)
        return restart(self._observe())

    def _step(self, action: np.ndarray) -> TimeStep:
        self._step_number += 1
        self._action = number = int(action)
        self._chain = link(
            self._chain, self._env_id, self._episode, self._step_number, number
        )
        variant, code = divmod(number, CODES)
        self._started = TROUBLES[code](self, variant) if code else 0
        shown, earned = self._observe(), float(reward(self._chain))
        if self._step_number < length(self._env_id, self._episode):
            return transition(shown, earned)
        end = truncation if truncates(self._episode) else termination
        return end(shown, earned)


def start_helper(env: Chained, variant: int) -> int:
    """Starts a program that would run for an hour: one of three kinds."""
    kind = variant % 3
    command = _SLEEP if kind else ["sh", "-c", "sleep 3600 & sleep 3600 & wait"]
    helper = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ending the group of the worker does not end such a one.
        start_new_session=kind < 2,
    )
    _helpers.append(helper)
    return helper.pid


def fork(env: Chained, variant: int) -> int:
    """Forks this process: a child that ends, one that comes back, one that raises."""
    if variant % 3 == 0:
        child = multiprocessing.get_context("fork").Process(target=sum, args=([1, 2],))
        child.start()
        child.join()
        pid, code = child.pid or 0, child.exitcode
        child.close()
        if code != 0:
            raise RuntimeError(f"The child ended with {code} instead of 0.")
        return pid
    pid = os.fork()
    if pid == 0:
        if variant % 3 == 1:
            return 0  # And so it goes on in the runner, as if it were the worker.
        raise RuntimeError("This is the child.")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 1:
        raise RuntimeError(f"A child that came back ended with {code} instead of 1.")
    return pid


def flood(env: Chained, variant: int) -> int:
    """Writes a lot to standard error, at once; returns how much."""
    size = left = _FLOODS[variant % len(_FLOODS)]
    while left > 0:
        left -= os.write(2, _LINES[:left])
    return size


def hang(env: Chained, variant: int) -> NoReturn:
    """Never returns: it sleeps, computes, or has itself stopped."""
    if variant % 3 == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    if variant % 3 == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        pass


TROUBLES: dict[int, Any] = {
    HELPER: start_helper,
    FORK: fork,
    FLOOD: flood,
    HANG: hang,
    SLOW: Chained.take_long,
}
