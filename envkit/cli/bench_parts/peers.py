"""The same environments through other libraries' vectors of environments.

Each function takes makers of Gymnasium environments and the batches of actions to play
over and over, and returns a `Driven`. The libraries are imported when they are called.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from envkit.errors import EnvkitError

__all__ = [
    "PEERS",
    "Driven",
    "Peer",
    "envpool",
    "gymnasium_async",
    "gymnasium_sync",
    "pufferlib",
    "quiet",
    "stable_baselines3_dummy",
    "stable_baselines3_subproc",
    "torchrl",
]

Makers = Sequence[Callable[[], Any]]
Actions = Sequence[Any]


@dataclass(frozen=True)
class Driven:
    """A vector of environments that can be stepped.

    Attributes:
        step: Steps all of them once.
        close: Ends them.
        spinning: Processes of it that wait busily.
    """

    step: Callable[[], object]
    close: Callable[[], object] = lambda: None
    spinning: Sequence[int] = ()


def gymnasium_sync(makers: Makers, actions: Actions) -> Driven:
    """Gymnasium's vector in the caller's process."""
    import gymnasium

    return _gymnasium(gymnasium.vector.SyncVectorEnv(makers), actions)


def gymnasium_async(makers: Makers, actions: Actions, copy: bool = True) -> Driven:
    """Gymnasium's vector of processes, one for each environment."""
    import gymnasium

    return _gymnasium(gymnasium.vector.AsyncVectorEnv(makers, copy=copy), actions)


def _gymnasium(env: Any, actions: Actions) -> Driven:
    env.reset(seed=0)
    batches = itertools.cycle(actions)
    return Driven(lambda: env.step(next(batches)), env.close)


def stable_baselines3_dummy(makers: Makers, actions: Actions) -> Driven:
    """Stable-Baselines3's vector in the caller's process."""
    with quiet():
        from stable_baselines3.common.vec_env import (  # type: ignore[import-not-found]  # not in the test extra
            DummyVecEnv,
        )

    return _stable_baselines3(DummyVecEnv(list(makers)), actions)


def stable_baselines3_subproc(makers: Makers, actions: Actions) -> Driven:
    """Stable-Baselines3's vector of processes, one for each environment."""
    with quiet():
        from stable_baselines3.common.vec_env import SubprocVecEnv

    # Only starting differs between the methods, and this one starts at once.
    return _stable_baselines3(SubprocVecEnv(list(makers), start_method="fork"), actions)


def _stable_baselines3(env: Any, actions: Actions) -> Driven:
    env.reset()
    batches = itertools.cycle(actions)
    return Driven(lambda: env.step(next(batches)), env.close)


def pufferlib(
    makers: Makers,
    actions: Actions,
    workers: int = 2,
    batch: int | None = None,
) -> Driven:
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

    return Driven(step, env.close, [process.pid for process in env.processes])


def torchrl(makers: Makers, actions: Actions) -> Driven:
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

    return Driven(step, functools.partial(env.close, raise_if_closed=False))


def envpool(
    name: str, num_envs: int, actions: Actions, threads: int | None = None
) -> Driven:
    """EnvPool's own environment of that name, which is written in C++."""
    import envpool

    if name not in envpool.list_all_envs():
        raise EnvkitError(f"EnvPool has no environment named {name!r}.")
    with quiet():
        env = envpool.make(
            name,
            env_type="gymnasium",
            num_envs=num_envs,
            **({} if threads is None else {"num_threads": threads}),
        )
    env.reset()
    batches = itertools.cycle(actions)
    return Driven(lambda: env.step(next(batches)), env.close)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps to itself what old packages say about their age and their bounds."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Peer:
    """A library's way to step environments.

    Attributes:
        title: What it is called.
        package: What has to be installed.
        drive: Opens it; `None` where it has environments of its own.
        has_workers: Whether it is told how many processes to use.
    """

    title: str
    package: str
    drive: Callable[..., Driven] | None
    has_workers: bool = False


# By the name that a process is told.
PEERS = {
    "gymnasium_sync": Peer("Gymnasium SyncVectorEnv", "gymnasium", gymnasium_sync),
    "gymnasium_async": Peer("Gymnasium AsyncVectorEnv", "gymnasium", gymnasium_async),
    "sb3_dummy": Peer("SB3 DummyVecEnv", "stable_baselines3", stable_baselines3_dummy),
    "sb3_subproc": Peer(
        "SB3 SubprocVecEnv", "stable_baselines3", stable_baselines3_subproc
    ),
    "envpool": Peer("EnvPool, its own in C++", "envpool", None),
    "pufferlib": Peer(
        "PufferLib Multiprocessing", "pufferlib", pufferlib, has_workers=True
    ),
    "torchrl": Peer("TorchRL ParallelEnv", "torchrl", torchrl),
}
