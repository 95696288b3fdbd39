"""The same environments through other libraries, where those are installed.

Each function takes makers of Gymnasium environments and the batches of actions to play
over and over, and returns a `Contender`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from environments import Work, picture
from side_by_side import Contender

from envkit.cli.bench_parts import peers as theirs

Makers = Sequence[Callable[[], gymnasium.Env]]
Actions = Sequence[np.ndarray]


class TheirWorking(gymnasium.Env):
    """What `environments.Working` is, for Gymnasium."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self,
        work: Work | None = None,
        shape: Sequence[int] = (4,),
        dtype: str = "float32",
    ) -> None:
        self._work = work
        self._observation = picture(shape, dtype)
        self.observation_space = gymnasium.spaces.Box(
            0, 255, tuple(shape), self._observation.dtype.type
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observation, {}

    def step(self, action: Any) -> Any:
        if self._work is not None:
            self._work()
        return self._observation, 0.0, False, False, {}


def loop(makers: Makers, actions: Actions) -> Contender:
    """One environment after the other, in this process, nothing put together."""
    envs = [make() for make in makers]
    for env in envs:
        env.reset(seed=0)
    batches = itertools.cycle(actions)

    def step() -> None:
        for env, action in zip(envs, next(batches).tolist(), strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return Contender(step)


def _contender(driven: theirs.Driven) -> Contender:
    return Contender(driven.step, driven.close, driven.spinning)


def gymnasium_sync(makers: Makers, actions: Actions) -> Contender:
    return _contender(theirs.gymnasium_sync(makers, actions))


def gymnasium_async(makers: Makers, actions: Actions, copy: bool = True) -> Contender:
    return _contender(theirs.gymnasium_async(makers, actions, copy))


def stable_baselines3(makers: Makers, actions: Actions) -> Contender:
    return _contender(theirs.stable_baselines3_subproc(makers, actions))


def pufferlib(
    makers: Makers,
    actions: Actions,
    workers: int = 2,
    batch: int | None = None,
) -> Contender:
    """Steps in lockstep, or whichever `batch` environments are ready first."""
    return _contender(theirs.pufferlib(makers, actions, workers, batch))


def torchrl(makers: Makers, actions: Actions) -> Contender:
    return _contender(theirs.torchrl(makers, actions))


def tf_agents(
    makers: Makers, actions: Actions, start_serially: bool = False
) -> Contender:
    with theirs.quiet():
        from tf_agents.environments import parallel_py_environment, py_environment
        from tf_agents.specs import array_spec
        from tf_agents.system import system_multiprocessing
        from tf_agents.trajectories import time_step as ts

    class Wrapped(py_environment.PyEnvironment):
        """The thinnest way from Gymnasium's environment to theirs."""

        def __init__(self, make: Callable[[], gymnasium.Env]) -> None:
            super().__init__()
            self._env = make()

        def observation_spec(self) -> Any:
            space = self._env.observation_space
            return array_spec.ArraySpec(space.shape, space.dtype)

        def action_spec(self) -> Any:
            return array_spec.BoundedArraySpec((), np.int64, 0, 1)

        def _reset(self) -> Any:
            return ts.restart(self._env.reset()[0])

        def _step(self, action: Any) -> Any:
            shown, reward, terminated, truncated, _ = self._env.step(int(action))
            if terminated:
                return ts.termination(shown, reward)
            if truncated:
                return ts.truncation(shown, reward)
            return ts.transition(shown, reward)

    with contextlib.suppress(ValueError):  # It may be told once only.
        system_multiprocessing.enable_interactive_mode()
    env = parallel_py_environment.ParallelPyEnvironment(
        [functools.partial(Wrapped, make) for make in makers], start_serially
    )
    env.reset()
    batches = itertools.cycle(actions)
    return Contender(lambda: env.step(next(batches)), env.close)


def envpool(makers: Makers, actions: Actions) -> Contender:
    """Its own CartPole, which is written in C++: another environment, in fact."""
    return _contender(theirs.envpool("CartPole-v1", len(makers), actions, threads=2))


# By the package that has to be there.
_PACKAGES = {
    stable_baselines3: "stable_baselines3",
    pufferlib: "pufferlib",
    torchrl: "torchrl",
    tf_agents: "tf_agents",
    envpool: "envpool",
}


def installed(
    peer: Callable[..., Contender], *args: Any, **kwargs: Any
) -> Callable[[], Contender] | None:
    """Returns what opens the peer with these arguments; `None` if it is not there."""
    package = _PACKAGES.get(peer)
    if package and importlib.util.find_spec(package) is None:
        return None
    return functools.partial(peer, *args, **kwargs)
