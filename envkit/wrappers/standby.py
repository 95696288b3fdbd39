"""Resets one environment while another one plays: `StandbyEnvironment`."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envkit._shared.waits import wait_for_event
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import (
    WrapperInternals,
    WrapperState,
    checked_flag,
    describe,
    hand_options,
    set_attribute,
)
from envkit.losses import Loss
from envkit.provenance import record_seed
from envkit.registry import constructor
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import TimeStep
from envkit.types import Array, Seed
from envkit.wrappers.process_member import ProcessMember

__all__ = ["ResetAhead", "StandbyEnvironment", "standby_seed"]

# How many seconds `close` waits for a running reset. After that, the thread of the
# reset closes the environment when it returns.
_GRACE = 5.0
_STRAYED = (
    "envkit: process {pid}, which an environment forked in a reset, returned from the "
    "reset and ends here. A fork must call os._exit() or run another program.\n"
)


class _StandbyInternals(WrapperInternals):
    """Hands options to the environment that plays next."""

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        if options is None:
            for one in env._pair:
                hand_options(one, None)
            return
        # An episode that has begun early did not get them.
        env._settle()
        env._ahead = None
        hand_options(env._pair[env._next()], options)


class StandbyEnvironment(PyEnvironmentBaseWrapper):
    """Alternates the episodes of a row between two environments.

    This hides slow resets: while one plays, the other is reset in a thread. An episode
    begins at once if the reset takes no longer than the previous episode. In a pool,
    each constructor makes the wrapper, as in `ParallelPyEnvironment([lambda:
    StandbyEnvironment(make_env)] * 8)`. A `RealTimeEnvironment` takes a constructor of
    the wrapper, and its clock need not stop for resets.

    - The stream depends on seeds and actions alone, not on how long resets take: odd
      episodes come from one environment, even ones from the other. `seed` seeds the
      next to play, and the other one with a derived seed. Seed the wrapper and not the
      constructor, or both play the same episodes.
    - Calls and pictures go to the environment that plays, even at its `LAST`, until the
      next reset; `set_attr` and `seed` reach both. A seed or options reset the next
      environment again.
    - A reset that raises does so when its episode is due, with the environment's own
      traceback, and the next reset tries again.
    - States hold both environments and fit other such pairs. The two must not share
      anything, and memory doubles.
    - A thread hides resets that wait or compute outside of Python. Pure Python delays
      the steps of its process. For that, for crashes, and for libraries that must stay
      in one thread or exist once per process, `in_workers=True` gives each of the two a
      worker process. A pool's `eager_resets=True` resets in the stepping thread
      instead.

    If a reset that ran early raises, the error appears when its episode is due. In a
    pool, timeouts count from the moment you ask for the row.

    Example:
        >>> import functools
        >>> from envkit.testing import CountingEnv  # its episodes begin at 0, 10, 20
        >>> one_step = functools.partial(CountingEnv, steps_per_episode=1)
        >>> with StandbyEnvironment(one_step) as env:
        ...     [int(env.step(0).observation) for _ in range(8)]
        [0, 1, 0, 1, 10, 11, 10, 11]
    """

    _envkit = _StandbyInternals()
    _shown = ("in_workers",)

    def __init__(
        self, make_env: str | Callable[[], Any], *, in_workers: bool = False
    ) -> None:
        """Builds two environments.

        Args:
            make_env: A constructor of the environment, or a name for `envkit.make`.
            in_workers: Whether each environment runs in its own worker process, so that
                its reset delays nothing and its crash ends nothing else: a
                `RestartPolicy` of the pool repairs its row alone. Each row then costs
                two more processes, and each step another round trip between processes.

        Raises:
            ValueError: The environment is a batch, begins its episodes itself, or
                allows only one instance per process.
            SpecMismatchError: The two environments have different specs.
        """
        make = constructor(make_env)
        #: Whether both run in worker processes.
        self.in_workers = checked_flag("in_workers", in_workers)
        #: How many resets had finished before their episode was needed.
        self.hidden_resets = 0
        #: Seconds of waiting saved by resets that ran early.
        self.hidden_seconds = 0.0
        #: Seconds the caller has waited for resets.
        self.awaited_seconds = 0.0
        self._pair: list[Any] = []
        self._playing = 0
        self._has_begun = False
        self._ahead: ResetAhead | None = None
        self._losses: list[Loss] = []
        try:
            for _ in range(2):
                env = ProcessMember(make) if self.in_workers else make()
                self._pair.append(_checked(env))
            _check_alike(*self._pair)
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise
        super().__init__(self._pair[0], handle_auto_reset=True)

    @property
    def members(self) -> Sequence[Any]:
        """Both environments, until they are closed."""
        return list(self._pair)

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call, of both environments."""
        losses, self._losses = [*self._losses, *super().losses()], []
        return losses

    def _next(self) -> int:
        """Returns the index of the environment that plays the next episode."""
        return 1 - self._playing if self._has_begun else self._playing

    def _reset(self) -> TimeStep:
        following = self._next()
        env, ahead = self._pair[following], self._ahead
        began = time.perf_counter()
        if ahead is None:
            time_step: TimeStep = env.reset()
            self.awaited_seconds += time.perf_counter() - began
        else:
            self.hidden_resets += ahead.is_over()
            ahead.wait()
            awaited = time.perf_counter() - began
            self.awaited_seconds += awaited
            self.hidden_seconds += max(ahead.seconds - awaited, 0.0)
            self._ahead = None  # only now: Ctrl-C may have ended the wait
            time_step = ahead.result()
        if self._has_begun:  # While the other one is reset, it cannot be asked.
            self._losses = self.losses()
        self._playing, self._has_begun, self._env = following, True, env
        self._ahead = ResetAhead(self._pair[1 - following])
        return time_step

    def _settle(self) -> None:
        """Waits for a running reset."""
        if self._ahead is not None:
            self._ahead.wait()

    def seed(self, seed: Seed) -> Any:
        """Seeds both: the next to play with this seed, the other with a derived one.

        So the next episode is the one that a single environment would play.
        """
        self._settle()
        following = self._next()
        result = self._pair[following].seed(seed)
        # An episode that has begun early used the old seed.
        self._ahead = None
        self._pair[1 - following].seed(standby_seed(seed))
        record_seed(self, seed)
        return result

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of both environments.

        Example:
            >>> from envkit.testing import CountingEnv
            >>> with StandbyEnvironment(CountingEnv) as env:
            ...     env.set_attr("level", 3)
            ...     [one.level for one in env.members]
            [3, 3]
        """
        self._settle()
        for env in self._pair:
            set_attribute(env, name, value)

    def _get_state(self) -> WrapperState:
        self._settle()
        first = None if self._ahead is None else self._ahead.result()
        states = tuple(env.get_state() for env in self._pair)
        own = self._playing, self._has_begun, first
        return WrapperState(type(self).__qualname__, states, own)

    def _set_state(self, state: Any) -> None:
        name = type(self).__qualname__
        if not isinstance(state, WrapperState) or state.wrapper != name:
            raise ValueError(
                f"{name}.set_state() was given {describe(state)}, which is not the "
                f"state of a {name}."
            )
        self._settle()
        for env, own in zip(self._pair, state.environment, strict=True):
            env.set_state(own)
        self._playing, self._has_begun, first = state.own
        self._env = self._pair[self._playing]
        self._ahead = (
            None if first is None else ResetAhead(self._pair[self._next()], first)
        )

    def close(self) -> None:
        """Closes both environments; waits for a running reset."""
        pair, self._pair = self._pair, []
        ahead, self._ahead = self._ahead, None
        with contextlib.ExitStack() as stack:
            for env in pair:
                # A process can be ended during a reset.
                is_mine = self.in_workers or ahead is None or ahead.env is not env
                if is_mine or ahead.is_left(_GRACE):  # type: ignore[union-attr]  # it is not None
                    stack.callback(env.close)


def standby_seed(seed: Any) -> Any:
    """Derives the seed of the standby environment.

    Example:
        >>> standby_seed(7) == standby_seed(7), standby_seed(7) == 7
        (True, False)
    """
    if seed is None:
        return None
    if isinstance(seed, list | tuple):
        return [standby_seed(part) for part in seed]
    # Its own key, because seeds of rebuilt environments use another word.
    sequence = np.random.SeedSequence(seed, spawn_key=(0x5742,))
    return int(sequence.generate_state(1)[0])


class ResetAhead:
    """Runs a reset in a thread, and keeps its result.

    Attributes:
        env: The environment that is reset.
        seconds: How long the reset took, once it has finished.
    """

    seconds = 0.0

    def __init__(self, env: Any, first: TimeStep | None = None) -> None:
        """Begins to reset an environment, unless `first` is a reset's result."""
        self.env = env
        self._first = first
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._is_over = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(
            target=self._run, name="envkit-standby", daemon=True
        )
        if first is None:
            self._thread.start()
        else:
            self._is_over.set()

    def _run(self) -> None:
        began = time.perf_counter()
        try:
            self._first = self.env.reset()
        except BaseException as error:  # raised where the episode begins
            self._error = error
        if os.getpid() != self._pid:
            os.write(2, _STRAYED.format(pid=os.getpid()).encode())
            os._exit(1)
        self.seconds = time.perf_counter() - began
        with self._lock:
            self._is_over.set()
            is_abandoned = self._is_abandoned
        if is_abandoned:
            self.env.close()

    def is_over(self) -> bool:
        """Returns True once the reset has returned or raised."""
        return self._is_over.is_set()

    def wait(self) -> None:
        """Waits until the reset has finished."""
        wait_for_event(self._is_over)

    def is_left(self, seconds: float) -> bool:
        """Waits up to `seconds`; False if the thread will close the environment."""
        self._is_over.wait(seconds)
        with self._lock:
            self._is_abandoned = not self._is_over.is_set()
        if not self._is_abandoned and self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._is_abandoned

    def result(self) -> Any:
        """Returns the reset's result, or raises its exception."""
        if self._error is not None:
            raise self._error
        return self._first


def _checked(env: Any) -> Any:
    """Raises for environments that cannot stand by."""
    is_alone = isinstance(env, ProcessMember)
    name, why = env.type_name if is_alone else type(env).__name__, ""
    if getattr(env, "batched", False) is True:
        why = (
            "is a batch, whose rows begin their episodes one by one. Wrap each row "
            "before they become a batch"
        )
    elif getattr(env, "continues_after_last", False) is True:
        why = "continues after a LAST and is never reset"
    elif getattr(env, "repeats_last", False) is True:
        why = "begins its episodes itself. Wrap the environment inside it"
    elif getattr(env, "realtime", False) is True:
        why = (
            "has a clock, which would run while it stands by. Put the wrapper inside: "
            "RealTimeEnvironment(functools.partial(StandbyEnvironment, make_env), ...)"
        )
    elif getattr(env, "one_per_process", False) is True and not is_alone:
        why = (
            "may exist only once in a process. Pass in_workers=True to run each in its "
            "own process"
        )
    if why:
        with contextlib.suppress(Exception):
            env.close()
        raise ValueError(f"No environment can stand by for {name}, which {why}.")
    return env


def _check_alike(one: Any, other: Any) -> None:
    if one is other:
        raise ValueError(
            f"make_env returned the same {type(one).__name__} twice. It must make a "
            "new environment each time."
        )
    specs = [EnvironmentSpec.of(env) for env in (one, other)]
    EnvironmentSpec.check_all_equal(specs, purpose="stand by for each other")
