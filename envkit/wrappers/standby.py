"""`StandbyEnvironment`: an environment that is reset while another one plays."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from envkit._internal.arguments import checked_flag
from envkit._internal.threads import wait_for_event
from envkit.base_wrapper import (
    PyEnvironmentBaseWrapper,
    WrapperInternals,
    WrapperState,
    no_environment,
    set_attribute,
)
from envkit.batches import hand_options
from envkit.own_worker import OwnWorker
from envkit.provenance import record_seed
from envkit.registry import constructor
from envkit.seeding import seed_of_standby
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import Array, Seed

__all__ = ["ResetAhead", "StandbyEnvironment", "close_both"]

# For how many seconds closing waits for a reset that is under way. Then the thread of
# the reset closes the environment, when it comes back.
_GRACE = 5.0


class _StandbyInternals(WrapperInternals):
    """Hands options to the environment that plays next."""

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        if options is None:
            for one in env._pair:
                hand_options(one, None)
            return
        # The episode that has begun ahead began without them.
        env._settle()
        env._ahead = None
        hand_options(env._pair[env._next()], options)


class StandbyEnvironment(PyEnvironmentBaseWrapper):
    """Lets the episodes of a row alternate between two environments.

    While one plays, the other is reset in a thread, so an episode begins at once, if
    the reset takes no longer than the episode before. Which episodes there are does not
    depend on that: the first, third and so on are those of one environment, the others
    those of the other one.

    The environment that plays is that of which everything is asked, up to the next
    reset; `set_attr` and `seed` reach both. Each has half of the episodes, so they must
    not share anything; it takes twice the memory. Where a reset must be made in the
    thread of the steps, or holds Python's lock all the time, there is something to gain
    only with `in_workers=True`.

    Example:
        >>> import functools
        >>> from envkit.testing import CountingEnv  # its episodes begin at 0, 10, 20
        >>> one_step = functools.partial(CountingEnv, steps_per_episode=1)
        >>> with StandbyEnvironment(one_step) as env:
        ...     [int(env.step(0).observation) for _ in range(8)]
        [0, 1, 0, 1, 10, 11, 10, 11]
    """

    _envkit = _StandbyInternals()

    def __init__(
        self,
        make_env: Any,
        *,
        in_workers: bool = False,
        after_reset: Callable[[], None] | None = None,
    ) -> None:
        """Builds two environments.

        Args:
            make_env: A constructor of the environment, or a name for `envkit.make`.
            in_workers: Whether each of the two lives in a worker process of its own,
                where its reset delays nothing and its crash ends nothing else.
            after_reset: Called in the thread of a reset that has come back.

        Raises:
            ValueError: The environment is a batch, one that begins its episodes itself,
                or one of which a process may hold only one.
            SpecMismatchError: The two environments have different specs.
        """
        make = constructor(make_env) if isinstance(make_env, str) else make_env
        if not callable(make):
            raise TypeError(
                f"make_env is {describe(make)}; StandbyEnvironment makes two "
                "environments, and needs something to call that makes one."
            )
        if checked_flag("in_workers", in_workers):
            make = functools.partial(OwnWorker, make)
        self._pair: list[Any] = []
        self._playing = 0
        self._has_begun = False
        self._ahead: ResetAhead | None = None
        self._after_reset = after_reset
        #: How the last reset went: whether it was over before, and for how many
        #: nanoseconds of it the caller has not waited, and has.
        self.last_reset = (False, 0, 0)
        try:
            self._pair.append(_checked(make()))
            self._pair.append(_checked(make()))
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

    def _next(self) -> int:
        """Returns which of them plays the next episode."""
        return 1 - self._playing if self._has_begun else self._playing

    def _reset(self) -> TimeStep:
        following = self._next()
        env, ahead = self._pair[following], self._ahead
        began = time.perf_counter_ns()
        if ahead is None:
            time_step: TimeStep = env.reset()
            self.last_reset = (False, 0, time.perf_counter_ns() - began)
        else:
            self.last_reset = ahead.awaited()
            self._ahead = None  # Not before: Ctrl-C may have ended the wait.
            time_step = ahead.result()
        self._playing, self._has_begun, self._env = following, True, env
        other = self._pair[1 - following]
        self._ahead = ResetAhead(other, other.reset, self._after_reset)
        return time_step

    def _settle(self) -> None:
        """Waits for a reset that is under way."""
        if self._ahead is not None:
            self._ahead.wait()

    def seed(self, seed: Seed) -> Any:
        """Seeds both: the one that plays next with this seed, the other with its own.

        So the next episode is that of an environment without another one.
        """
        self._settle()
        following = self._next()
        result = self._pair[following].seed(seed)
        # The episode that has begun ahead began before.
        self._ahead = None
        self._pair[1 - following].seed(seed_of_standby(seed))
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
                f"{name}.set_state() was given {describe(state)}, the state of an "
                "environment for which no other one stands by."
            )
        self._settle()
        for env, own in zip(self._pair, state.environment, strict=True):
            env.set_state(own)
        self._playing, self._has_begun, first = state.own
        self._env = self._pair[self._playing]
        self._ahead = None if first is None else ResetAhead.over(first)

    def close(self) -> None:
        """Closes both environments; waits for a reset that is under way."""
        pair, self._pair = self._pair, []
        ahead, self._ahead = self._ahead, None
        close_both(pair, ahead)


def close_both(pair: Sequence[Any], ahead: ResetAhead | None) -> None:
    """Closes two environments, of which one may be in a reset.

    Args:
        pair: The environments.
        ahead: The reset that is under way or was, if there is one.
    """
    with contextlib.ExitStack() as stack:
        for env in pair:
            if ahead is None or ahead.env is not env or ahead.is_left(_GRACE):
                stack.callback(env.close)


class ResetAhead:
    """A reset in a thread, and what has come of it."""

    taken = 0

    def __init__(
        self,
        env: Any,
        reset: Callable[[], Any],
        after: Callable[[], None] | None = None,
    ) -> None:
        """Begins to reset an environment; without one, it is over.

        Args:
            env: The environment.
            reset: Resets it.
            after: Called in the thread when the reset has come back.
        """
        self.env = env
        self._reset, self._after = reset, after
        self._first: Any = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._is_over = threading.Event()
        if env is not None:
            self._thread = threading.Thread(
                target=self._run, name="envkit-standby", daemon=True
            )
            self._thread.start()

    @classmethod
    def over(cls, first: TimeStep) -> ResetAhead:
        """Returns one that has returned this."""
        reset = cls(None, _nothing)
        reset._first = first
        reset._is_over.set()
        return reset

    def _run(self) -> None:
        began = time.perf_counter_ns()
        try:
            self._first = self._reset()
        except BaseException as error:  # It is raised where the episode begins.
            self._error = error
        if self._after is not None:
            self._after()
        self.taken = time.perf_counter_ns() - began
        with self._lock:
            self._is_over.set()
            is_abandoned = self._is_abandoned
        if is_abandoned:
            self.env.close()

    def awaited(self) -> tuple[bool, int, int]:
        """Waits until it is over; returns how it went.

        That is whether it was over before, and for how many nanoseconds of it the
        caller has not waited, and has.
        """
        began, was_over = time.perf_counter_ns(), self._is_over.is_set()
        wait_for_event(self._is_over)
        waited = 0 if was_over else time.perf_counter_ns() - began
        return was_over, max(self.taken - waited, 0), waited

    def wait(self) -> None:
        """Waits until it is over."""
        wait_for_event(self._is_over)

    def is_left(self, seconds: float) -> bool:
        """Waits for so long; returns False if the thread closes the environment."""
        self._is_over.wait(seconds)
        with self._lock:
            self._is_abandoned = not self._is_over.is_set()
        if not self._is_abandoned:
            if self.env is not None:
                self._thread.join(seconds)
            return True
        return False

    def result(self) -> Any:
        """Returns what the reset has returned, or raises what it has raised."""
        if self._error is not None:
            raise self._error
        return self._first


def _nothing() -> None:
    """Resets nothing, because it is done."""


def _checked(env: Any) -> Any:
    """Refuses what cannot stand by."""
    if isinstance(env, type) or not hasattr(env, "time_step_spec"):
        raise TypeError(f"make_env returned no environment, but {no_environment(env)}")
    is_alone = isinstance(env, OwnWorker)
    name, why = env.type_name if is_alone else type(env).__name__, ""
    if getattr(env, "batched", False) is True:
        why = (
            "is a batch, whose rows begin their episodes one by one. Let each row have "
            "another environment that stands by, before they become a batch"
        )
    elif getattr(env, "continues_after_last", False) is True:
        why = "continues after a LAST, so that it is never reset"
    elif getattr(env, "repeats_last", False) is True:
        why = "decides itself which step begins an episode. Wrap what is inside of it"
    elif getattr(env, "realtime", False) is True:
        why = (
            "has a clock that runs while it stands by. Let another stand by inside: "
            "RealTimeEnvironment(functools.partial(StandbyEnvironment, make_env), ...)"
        )
    elif getattr(env, "one_per_process", False) is True and not is_alone:
        why = (
            "may be made only once in a process. With standby_workers=True of pools, "
            "and in_workers=True of StandbyEnvironment, each has its own"
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
