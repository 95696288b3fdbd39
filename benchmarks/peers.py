"""The same environments through other libraries, where those are installed.

Each function takes makers of Gymnasium environments and the batches of actions to play
over and over, and returns a `Contender`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from environments import Work, picture
from side_by_side import Contender

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
        # NumPy's integers, as every vector of Gymnasium's passes them.
        for env, action in zip(envs, next(batches), strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return Contender(step)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps to itself what old packages say about their age and their bounds."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def gymnasium_sync(makers: Makers, actions: Actions) -> Contender:
    """Gymnasium's vector in the caller's process."""
    import gymnasium

    return _gymnasium(gymnasium.vector.SyncVectorEnv(makers), actions)


def gymnasium_async(makers: Makers, actions: Actions, copy: bool = True) -> Contender:
    """Gymnasium's vector of processes, one for each environment."""
    import gymnasium

    return _gymnasium(gymnasium.vector.AsyncVectorEnv(makers, copy=copy), actions)


def _gymnasium(env: Any, actions: Actions) -> Contender:
    env.reset(seed=0)
    batches = itertools.cycle(actions)
    return Contender(lambda: env.step(next(batches)), env.close)


def stable_baselines3(makers: Makers, actions: Actions) -> Contender:
    """Stable-Baselines3's vector of processes, one for each environment."""
    with quiet():
        from stable_baselines3.common.vec_env import SubprocVecEnv

    # Only starting differs between the methods, and this one starts at once.
    return _stable_baselines3(SubprocVecEnv(list(makers), start_method="fork"), actions)


def _stable_baselines3(env: Any, actions: Actions) -> Contender:
    env.reset()
    batches = itertools.cycle(actions)
    return Contender(lambda: env.step(next(batches)), env.close)


def pufferlib(
    makers: Makers,
    actions: Actions,
    workers: int = 2,
    batch: int | None = None,
) -> Contender:
    """PufferLib's vector of processes.

    It steps in lockstep, or whichever `batch` environments are ready first.
    """
    with quiet():
        import pufferlib.emulation
        import pufferlib.vector
    creators = [
        functools.partial(pufferlib.emulation.GymnasiumPufferEnv, env_creator=make)
        for make in makers
    ]
    env = pufferlib.vector.Multiprocessing(
        creators,
        [[]] * len(makers),
        [{}] * len(makers),
        len(makers),
        num_workers=workers,
        batch_size=batch,
        sync_traj=batch is None,
        # It counts cores without their hyperthreads and would refuse.
        overwork=True,
    )
    env.async_reset(seed=0)
    env.recv()
    batches = itertools.cycle([part[: batch or len(part)] for part in actions])

    def step() -> None:
        env.send(next(batches))
        env.recv()

    return Contender(step, env.close, [process.pid for process in env.processes])


def torchrl(makers: Makers, actions: Actions) -> Contender:
    """TorchRL's vector of processes, one for each environment."""
    with quiet():
        import torch
        from torchrl.envs import EnvCreator, GymWrapper, ParallelEnv

    def make() -> Any:
        return GymWrapper(makers[0](), categorical_action_encoding=True)

    # Each process would import torch otherwise, which takes seconds of a CPU.
    env = ParallelEnv(len(makers), EnvCreator(make), mp_start_method="fork")
    state = env.reset()
    batches = itertools.cycle([torch.from_numpy(part) for part in actions])

    def step() -> None:
        nonlocal state
        state["action"] = next(batches)
        _, state = env.step_and_maybe_reset(state)

    return Contender(step, functools.partial(env.close, raise_if_closed=False))


def tf_agents(
    makers: Makers, actions: Actions, start_serially: bool = False
) -> Contender:
    with quiet():
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


def envpool(
    makers: Makers, actions: Actions, name: str = "CartPole-v1", threads: int | None = 2
) -> Contender:
    """EnvPool's own environment of that name, written in C++: another one, in fact."""
    import envpool as library

    with quiet():
        env = library.make(
            name,
            env_type="gymnasium",
            num_envs=len(makers),
            **({} if threads is None else {"num_threads": threads}),
        )
    env.reset()
    batches = itertools.cycle(actions)
    return Contender(lambda: env.step(next(batches)), env.close)


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
) -> Callable[[], Contender | None] | None:
    """Returns what opens the peer with these arguments; `None` if it is not there.

    One that does not run here is named, and the others are measured without it.
    """
    package = _PACKAGES.get(peer)
    if package is None:
        return functools.partial(peer, *args, **kwargs)
    if importlib.util.find_spec(package) is None:
        return None

    def open_peer() -> Contender | None:
        try:
            return peer(*args, **kwargs)
        except Exception as error:
            print(f"{package} does not run here: {type(error).__name__}: {error}")
            return None

    return open_peer
