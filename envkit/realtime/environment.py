"""Steps an environment by a clock while the agent thinks: `RealTimeEnvironment`."""

from __future__ import annotations

import functools
import numbers
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit._shared.arguments import checked_seconds
from envkit.errors import ClosedError
from envkit.extend import Internals, as_environment, describe, locked
from envkit.provenance import recipe_of, record_seed, wrapper_recipe
from envkit.py_environment import PyEnvironment
from envkit.realtime.actions import GivenActions, LateActions
from envkit.realtime.hosts import Host, ThreadHost, VirtualHost
from envkit.realtime.loop import EngineSchedule, Schedule, TickLoop
from envkit.realtime.merging import check_mergeable
from envkit.realtime.process_host import ProcessHost
from envkit.realtime.report import LAG_SPEC, Lag
from envkit.registry import constructor
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["RealTimeEnvironment"]

_LAST = int(StepType.LAST)
_HOSTS = ("process", "thread", "virtual")


class _RealTimeInternals(Internals):
    """Connects a clocked environment to envkit."""

    def recipe(self, env: Any) -> dict[str, Any]:
        """Returns the environment's recipe, with the clock as a layer."""
        inner = env._make_env
        if not _is_environment(inner):
            return wrapper_recipe(env, constructor(inner).plain_recipe(), env._given)
        return wrapper_recipe(env, recipe_of(inner), env._given)

    def inside(self, env: Any) -> list[Any]:
        """Returns the pool of a host that has one."""
        return env._host.inside()  # type: ignore[no-any-return]  # it is a host

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        """Stores options for the environment at the host."""
        if options is not None:
            env._host.check_options(options, rows)
        super().hand_options(env, options, rows)

    def check_open(self, env: Any, call: str) -> None:
        """Raises if the environment is closed."""
        env._check_open(call)


class RealTimeEnvironment(PyEnvironment):
    """Steps an environment by a clock, while the agent acts whenever it is ready.

    The clock ticks `hz` times a second. `step` hands in an action, which takes effect
    at the next tick, and returns all ticks since the last time step as one. Rewards are
    merged with their discounts, but never across the end of an episode. So a learner
    sees an ordinary environment with steps of different lengths. Every `LAST` appears
    once, with its own observation. `lag()` and `get_info()["realtime"]` report the
    timing: how old and how late a time step is, and how many ticks it merges.

    | `wait`    | `step` returns                                                      |
    |-----------|---------------------------------------------------------------------|
    | "next"    | when the action has acted for a tick, or for `act_every` ticks; at  |
    |           | the end or beginning of an episode at once                          |
    | "newest"  | at once, with the ticks so far; if there was none, the same         |
    |           | observation again, with reward 0                                    |
    | seconds   | like "next", but after that many seconds with the ticks so far      |

    | `late_action` | acts in ticks for which the agent's action comes too late       |
    |---------------|-----------------------------------------------------------------|
    | "repeat"      | the agent's last action again                                   |
    | "no_op"       | `no_op`, or the action nearest to 0                             |
    | a function    | `late_action(tick, last_action)`                                |

    Before the agent's first action in an episode, the no-op acts.

    | `host`    | the clock runs in                                                   |
    |-----------|---------------------------------------------------------------------|
    | "process" | a process, where the agent cannot delay it                          |
    | "thread"  | a thread of this process: for environments that mostly wait, and    |
    |           | inside workers, which are otherwise idle                            |
    | "virtual" | nowhere: time is only counted, and passes as fast as the machine    |
    |           | allows. The agent thinks for `think_time`                           |

    An environment with its own clock has an attribute `realtime = True` and gets no
    second one: leave `hz` out. It is already in its next tick when the agent sees the
    last one, so an action acts one tick later.

    A reset at the end of an episode returns the `FIRST` of the episode that has begun
    meanwhile; a reset with a seed or options begins a new one.

    Example:
        >>> from envkit.envs import Catch
        >>> env = RealTimeEnvironment(Catch, hz=10, host="virtual", think_time=0.25)
        >>> time_step = env.reset()
        >>> time_step = env.step(2)  # two ticks pass meanwhile, in the third it acts
        >>> lag = env.lag()
        >>> int(lag.ticks_merged), int(lag.missed_ticks), float(lag.think_time)
        (3, 2, 0.25)
        >>> env.close()
    """

    _envkit = _RealTimeInternals(one_thread=True, closes_at_once=True)

    def __init__(
        self,
        make_env: Any,
        hz: float | None = None,
        *,
        host: str = "process",
        wait: str | float = "next",
        act_every: int = 1,
        late_action: str | Callable[[int, NestedArray], NestedArray] = "repeat",
        no_op: NestedArray = None,
        at_end: str = "run",
        overrun: str = "skip",
        merge: str = "discounted",
        think_time: float | str | Callable[[], float] | None = None,
        reset_timeout: float | None = None,
        worker_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Builds the environment at its host.

        Args:
            make_env: A constructor of the environment, or a name for `envkit.make`. If
                it stays in this process, it may be the environment itself.
            hz: Ticks per second.
            host: Where the clock runs: "process", "thread" or "virtual".
            wait: How long `step` waits: "next", "newest" or seconds.
            act_every: How many ticks an action is meant for; the agent is late only
                after that many.
            late_action: The action when the agent is late: "repeat", "no_op" or a
                function.
            no_op: The action that does nothing.
            at_end: At the end of an episode, "run" continues into the next one, and
                "pause" waits until the agent has seen the `LAST`.
            overrun: For ticks that are due before the environment has finished the
                previous one: "skip" leaves them out, "stretch" slows time down, "raise"
                raises.
            merge: How rewards are merged: "discounted", or "sum".
            think_time: With a virtual clock, how many seconds the agent thinks before
                each step; a function that returns them; or "measured" for its real
                time.
            reset_timeout: How many seconds to wait for an episode to begin. After that
                a `WorkerTimeout` is raised, and repeating the call continues to wait.
            worker_options: Keyword arguments of the `ParallelPyEnvironment` that holds
                the process, such as `on_worker_failure`. A `reset_timeout` in them ends
                the process.
        """
        super().__init__()
        options = {
            "hz": hz,
            "host": host,
            "wait": wait,
            "act_every": act_every,
            "late_action": late_action,
            "no_op": no_op,
            "at_end": at_end,
            "overrun": overrun,
            "merge": merge,
            "think_time": think_time,
            "reset_timeout": reset_timeout,
            "worker_options": worker_options,
        }
        make_env = as_environment(make_env)
        _check_choices(make_env, options)
        self._is_closed = False
        self._seeded = False
        self._make_env = make_env
        self._given = options
        make_loop = functools.partial(
            _make_loop,
            make_env,
            hz=hz,
            is_virtual=host == "virtual",
            overrun=overrun,
            late_action=late_action,
            no_op=no_op,
            act_every=int(act_every),
            pauses=at_end == "pause",
            discounted=merge == "discounted",
        )
        self._host: Host
        if host == "virtual":
            self._host = VirtualHost(make_loop, wait, think_time or 0.0)
        elif host == "thread":
            self._host = ThreadHost(make_loop, wait, reset_timeout)
        else:
            here = ("think_time", "worker_options")
            there = {name: options[name] for name in options if name not in here}
            inside = functools.partial(
                RealTimeEnvironment, make_env, **{**there, "host": "thread"}
            )
            self._host = ProcessHost(inside, worker_options or {})
        self._actions = GivenActions(self.action_spec(), self.batch_size)
        # Stops the clock when the environment is garbage-collected.
        self._finalizer = weakref.finalize(self, _forgotten, self._host)
        if host == "virtual":
            self._finalizer.detach()

    @property
    def batched(self) -> bool:
        """True if the environment is a batch, whose rows share one clock."""
        return self._host.batch_size is not None

    @property
    def batch_size(self) -> int | None:
        """The number of rows of a batch; `None` for a single environment."""
        return self._host.batch_size

    @property
    def resets_rows(self) -> bool:
        """True if the environment can reset single rows."""
        return self._host.resets_rows

    @property
    def realtime(self) -> bool:
        """Whether time passes between two calls; not with a virtual clock."""
        return not isinstance(self._host, VirtualHost)

    @property
    def one_per_process(self) -> bool:
        """True if the environment is in this process, which may hold no other."""
        return self._host.one_per_process

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._host.spec.observation

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._host.spec.action

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of the reward."""
        return self._host.spec.reward

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of the discount."""
        return self._host.spec.discount

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of the timing, and those of the environment's info."""
        return {**self._host.info_spec, "realtime": LAG_SPEC._asdict()}

    @locked
    def peek(self) -> TimeStep:
        """Returns all ticks since the current time step as one, without consuming them.

        The next `step` returns them too, together with later ones. Before the next tick
        it returns the same observation with reward 0; at the end of an episode, the
        `LAST` with reward and discount 0 until the next episode has begun.
        """
        self._check_open("peek")
        return self._host.peek(self.current_time_step())

    @locked
    def lag(self) -> Lag:
        """Returns the timing of the current time step."""
        self.current_time_step()
        return self._host.lag()

    def get_info(self) -> Any:
        """Returns the environment's info, with the timing as `"realtime"`.

        The info belongs to the tick of the returned observation.
        """
        lag = self.lag()._asdict()
        info = self.inner_info()
        if isinstance(info, list):
            return [
                {**_as_mapping(one), "realtime": _row_of(lag, row)}
                for row, one in enumerate(info)
            ]
        return {**_as_mapping(info), "realtime": lag}

    @locked
    def inner_info(self) -> Any:
        """Returns the environment's own info; `None` if it has none."""
        return self._host.info()

    def seed(self, seed: Seed) -> Any:
        """Makes all randomness from the next reset on depend on `seed` alone.

        Episodes that begin without a reset do not count as resets.
        """
        self._check_open("seed")
        self._seeded = True
        record_seed(self, seed)
        return self._host.seed(seed)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns a picture of the environment's current state."""
        self._check_open("render")
        return self._host.render(mode)

    def close(self) -> None:
        """Stops the clock, and closes the environment."""
        if not self._is_closed:
            self._is_closed = True
            self._finalizer.detach()
            self._host.close()

    def _reset(self, options: Any = None) -> TimeStep:
        return self._begin(None, options)

    def _reset_rows(self, mask: Array, options: Any = None) -> TimeStep:
        return self._begin(mask, options)

    def _begin(self, mask: Array | None, options: Any) -> TimeStep:
        self._check_open("reset")
        # An episode that begins without a reset has no options.
        if options is None and self._stands_at_end(mask):
            return self._host.next_episode(mask)
        self._seeded = False
        return self._host.reset(mask, options)

    def _stands_at_end(self, mask: Array | None) -> bool:
        """True if the next episode begins by itself, without a reset."""
        current = self._current_time_step
        if current is None or self._seeded:
            return False
        ended = np.asarray(current.step_type) == _LAST
        return bool(np.all(ended if mask is None else ended[mask]))

    def _step(self, action: NestedArray) -> TimeStep:
        self._check_open("step")
        if not self.batched and self._stands_at_end(None):
            return self._host.next_episode(None)
        taken = self._actions.take(action, "RealTimeEnvironment.step()")
        return self._host.step(taken)

    def _check_open(self, call: str) -> None:
        if self._is_closed:
            raise ClosedError.used("RealTimeEnvironment", call)

    def _get_state(self) -> Any:
        return self._host.get_state()

    def _set_state(self, state: Any) -> None:
        self._host.set_state(state)


def _make_loop(make_env: Any, hz: float | None, **options: Any) -> tuple[Any, TickLoop]:
    """Builds the environment, and the loop that steps it."""
    if _is_environment(make_env):
        return make_env, _loop_of(make_env, hz, **options)
    env = constructor(make_env)()
    try:
        return env, _loop_of(env, hz, **options)
    except BaseException:
        env.close()
        raise


def _loop_of(
    env: Any,
    hz: float | None,
    *,
    is_virtual: bool,
    overrun: str,
    late_action: Any,
    no_op: NestedArray,
    act_every: int,
    pauses: bool,
    discounted: bool,
) -> TickLoop:
    """Builds the environment's loop; raises if it cannot have one."""
    name = type(env).__name__
    if env.batched and AutoReset.kept_by(env) is not AutoReset.NEXT_STEP:
        raise ValueError(
            f"RealTimeEnvironment cannot run {name} with "
            f"AutoReset.{AutoReset.kept_by(env).name}: its rows must begin their next "
            "episodes without a reset. Make it with AutoReset.NEXT_STEP."
        )
    if pauses and env.batched and not env.holds_rows:
        raise ValueError(
            f"RealTimeEnvironment cannot pause single rows of {name}, which steps all "
            "its rows together. Use at_end='run', or a RealTimeEnvironment for each."
        )
    check_mergeable(env, discounted)
    is_native = getattr(env, "realtime", False) is True
    if is_native and is_virtual:
        raise ValueError(
            f"{name} runs on its own clock (realtime = True), which no virtual "
            "one can stop. Use host='process' or 'thread'."
        )
    if is_native and hz is not None:
        raise ValueError(
            f"{name} runs on its own clock (realtime = True), and hz={hz!r} would "
            "be a second one. Leave hz out; the engine sets the pace."
        )
    if hz is None and not is_native:
        raise ValueError(
            f"{name} has no clock of its own, so RealTimeEnvironment needs hz, the "
            "number of ticks per second."
        )
    schedule = EngineSchedule() if hz is None else Schedule(hz, overrun)
    late = LateActions(late_action, env.action_spec(), no_op, env.batch_size)
    return TickLoop(
        env,
        schedule,
        late,
        act_every=act_every,
        pauses=pauses,
        discounted=discounted,
    )


def _forgotten(host: Host) -> None:
    """Closes an environment that was never closed, and warns about it."""
    host.close()
    warnings.warn(
        "A RealTimeEnvironment was not closed. Use it in a with statement, or call "
        "close().",
        ResourceWarning,
        stacklevel=2,
    )


def _as_mapping(info: Any) -> Mapping[str, Any]:
    if info is None:
        return {}
    return info if isinstance(info, Mapping) else {"info": info}


def _row_of(lag: Mapping[str, Array], row: int) -> dict[str, Any]:
    return {name: value[row] for name, value in lag.items()}


def _check_choices(make_env: Any, options: Mapping[str, Any]) -> None:
    """Refuses arguments that suit no environment.

    Args:
        make_env: The constructor, or the environment.
        options: The keyword arguments, by name.
    """
    host = options["host"]
    _check_choice("host", host, _HOSTS)
    _check_choice("at_end", options["at_end"], ("run", "pause"))
    _check_choice("merge", options["merge"], ("discounted", "sum"))
    _check_choice("overrun", options["overrun"], ("skip", "stretch", "raise"))
    if options["wait"] not in ("next", "newest"):
        checked_seconds("wait", options["wait"], "next", "newest")
    _check_ticks("act_every", options["act_every"])
    late_action = options["late_action"]
    if not (callable(late_action) or late_action in ("repeat", "no_op")):
        raise ValueError(
            "late_action must be 'repeat', 'no_op', or a function "
            f"late_action(tick, last_action), got {describe(late_action)}."
        )
    if options["hz"] is not None:
        Schedule(options["hz"])
    _check_host(host, options)
    if host == "process" and _is_environment(make_env):
        raise TypeError(
            f"make_env is {describe(make_env)}, which exists already, "
            "and the clock runs in another process. Pass what makes it, or use "
            "host='thread'."
        )


def _check_host(host: str, options: Mapping[str, Any]) -> None:
    """Refuses arguments that belong to another host."""
    think_time, timeout = options["think_time"], options["reset_timeout"]
    if think_time is not None and host != "virtual":
        raise ValueError(
            f"think_time is for host='virtual'; with host={host!r} the agent "
            "thinks for as long as it does."
        )
    if not (think_time in (None, "measured") or callable(think_time)):
        checked_seconds("think_time", think_time)
    if timeout is not None:
        checked_seconds("reset_timeout", timeout)
        if host == "virtual":
            raise ValueError(
                "reset_timeout is for clocks that do not wait; with host='virtual' "
                "everything waits for the environment."
            )
    if options["worker_options"] and host != "process":
        raise ValueError(
            f"worker_options are for host='process'; with host={host!r} there is no "
            "worker."
        )


def _is_environment(value: Any) -> bool:
    """True for an environment, False for a constructor of one."""
    return hasattr(value, "time_step_spec") and not isinstance(value, type)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices))}, got "
            f"{describe(value)}."
        )


def _check_ticks(name: str, value: Any) -> None:
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or value < 1:
        kind = ValueError if is_integer else TypeError
        raise kind(f"{name} must be at least one tick, got {describe(value)}.")
