"""The calls that are refused in real time, and their messages."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec
from envkit.envs import CartPole, Catch
from envkit.errors import CallOrderError, SpecError
from envkit.realtime import Joint, Logger, RealTimeEnvironment, Throttle, universe_view
from envkit.realtime.actions import LateActions
from envkit.specs import ObjectSpec
from envkit.testing import CountingEnv
from envkit.wrappers import EpisodeLimit
from tests.realtime.games import Diary, OwnTime, Paying

FLOAT = ArraySpec((), np.float32)
DIAL = BoundedArraySpec((), np.int64, 0, 4)
DIAL_TEXT = "BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=4)"


class Together(CartPole):
    """Cannot hold single rows."""

    holds_rows = False


def same_step():
    return CartPole(batch_size=2, autoreset="same_step")


def stepped(env, action):
    env.reset()
    env.step(action)


# Of arguments, on the virtual clock unless they say otherwise.
ARGUMENTS = [
    ({"host": "cloud"},
     "host must be one of 'process', 'thread', 'virtual', got the string 'cloud'."),
    ({"at_end": "stop"},
     "at_end must be one of 'run', 'pause', got the string 'stop'."),
    ({"merge": "mean"},
     "merge must be one of 'discounted', 'sum', got the string 'mean'."),
    ({"wait": -1},
     "wait must be 'next', 'newest' or a number of seconds, got -1 of type int."),
    ({"wait": True},
     "wait must be 'next', 'newest' or a number of seconds, got True of type bool."),
    ({"act_every": 0}, "act_every must be at least one tick, got 0 of type int."),
    ({"reset_timeout": 1.0},
     "reset_timeout is for clocks that do not wait; with host='virtual' everything "
     "waits for the environment."),
    ({"host": "thread", "reset_timeout": -1},
     "reset_timeout must be a number of seconds, got -1 of type int."),
    ({"worker_options": {"start_method": "fork"}},
     "worker_options are for host='process'; with host='virtual' there is no worker."),
    ({"think_time": "long"},
     "think_time must be a number of seconds, got the string 'long'."),
    ({"host": "thread", "think_time": 1.0},
     "think_time is for host='virtual'; with host='thread' the agent thinks for as "
     "long as it does."),
    ({"host": "process", "overrun": "hurry"},
     "overrun must be one of 'skip', 'stretch', 'raise', got the string 'hurry'."),
    ({"late_action": "panic"},
     "late_action must be 'repeat', 'no_op', or a function late_action(tick, "
     "last_action), got the string 'panic'."),
    ({"hz": None},
     "Diary has no clock of its own, so RealTimeEnvironment needs hz, the number of "
     "ticks per second."),
    *[({"host": "process", "hz": hz},
       f"hz must be a number of ticks per second, such as 60, got {got}.")
      for hz, got in [(0, "0 of type int"), (-5, "-5 of type int"),
                      (float("inf"), "inf of type float"),
                      (float("nan"), "nan of type float"),
                      (True, "True of type bool"), ("60", "the string '60'")]],
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), ARGUMENTS)
def test_an_argument_that_no_environment_can_run_with_is_refused(
    options, message, message_of
):
    options = {"host": "virtual", "hz": 10, **options}
    assert message == message_of(
        ValueError, lambda: RealTimeEnvironment(Diary, **options)
    )


def virtual(env, hz=10, **options):
    return RealTimeEnvironment(env, hz, host="virtual", **options)


REFUSED = {
    "act_every": (lambda: virtual(Diary, act_every=1.5), TypeError,
        "act_every must be at least one tick, got 1.5 of type float."),
    "a think time that is no number": (
        lambda: stepped(virtual(Diary, think_time=lambda: -1), 1), ValueError,
        "think_time must be a number of seconds, got -1 of type int."),
    "an environment for another process": (
        lambda: RealTimeEnvironment(Diary(), 10), TypeError,
        "make_env is a Diary object, which exists already, and the clock runs in "
        "another process. Pass what makes it, or use host='thread'."),
    "a virtual clock for an engine": (
        lambda: virtual(OwnTime, None), ValueError,
        "OwnTime runs on its own clock (realtime = True), which no virtual one "
        "can stop. Use host='process' or 'thread'."),
    "a second clock": (
        lambda: RealTimeEnvironment(OwnTime, 60, host="thread"), ValueError,
        "OwnTime runs on its own clock (realtime = True), and hz=60 would be a "
        "second one. Leave hz out; the engine sets the pace."),
    "rows that cannot pause": (
        lambda: virtual(functools.partial(Together, batch_size=2), at_end="pause"),
        ValueError,
        "RealTimeEnvironment cannot pause single rows of Together, which steps all its "
        "rows together. Use at_end='run', or a RealTimeEnvironment for each."),
    "another order of resets": (
        lambda: virtual(same_step), ValueError,
        "RealTimeEnvironment cannot run CartPole with "
        "AutoReset.SAME_STEP: its rows must begin their next episodes without a reset. "
        "Make it with AutoReset.NEXT_STEP."),
    "a LAST that is repeated": (
        lambda: virtual(EpisodeLimit(Diary(), 2)), ValueError,
        "RealTimeEnvironment cannot run EpisodeLimit, which repeats the LAST of an "
        "episode: merged steps would not show how often. Wrap the RealTimeEnvironment "
        "instead."),
    "whole numbers with discounts": (
        lambda: virtual(Paying({"a": ArraySpec((), np.int64)}, FLOAT)), ValueError,
        "RealTimeEnvironment cannot merge the rewards of Paying with its discounts: "
        "reward['a'] is of dtype int64, and discounted rewards are not whole numbers. "
        "Use merge='sum'."),
    "objects without a no-op": (
        lambda: LateActions("repeat", ObjectSpec()), ValueError,
        "There is no action that does nothing for the spec ObjectSpec(shape=(), "
        "dtype=object). Pass no_op=..., which acts until the agent does."),
    "a no-op that does not fit": (
        lambda: LateActions("no_op", DIAL, 9), SpecError,
        "The action given as no_op does not fit its spec.\n\n"
        f"  expected   {DIAL_TEXT}\n"
        "  got        9 of type int\n\n"
        "The value 9 is above the maximum 4."),
    "a late action that does not fit": (
        lambda: LateActions(lambda tick, last: 99, DIAL).choose(3, np.array(4)),
        SpecError,
        "RealTimeEnvironment, by late_action, was given an action that does not fit "
        "its spec.\n\n"
        f"  expected   {DIAL_TEXT}\n"
        "  got        99 of type int\n\n"
        "The value 99 is above the maximum 4."),
    "Throttle": (lambda: Throttle(CountingEnv(), 0), ValueError,
        "hz must be a number of ticks per second, such as 60, got 0 of type int."),
    "Logger, every": (lambda: Logger(CountingEnv(), -1.0), ValueError,
        "every must be a positive number of seconds, got -1.0 of type float."),
    "Logger, log": (lambda: Logger(CountingEnv(), log="stdout"), TypeError,
        "log must be a function that takes a line, got the string 'stdout'."),
    "Joint of nothing": (lambda: Joint([]), ValueError,
        "The envs of Joint must be at least one batch, got none."),
    "Joint of a single environment": (lambda: Joint([CountingEnv()]), ValueError,
        "envs[0] must be a batch, got a CountingEnv object. BatchedPyEnvironment makes "
        "one of single environments."),
    "Joint of another order": (lambda: Joint([same_step()]), ValueError,
        "envs[0] must be a batch with AutoReset.NEXT_STEP, got a CartPole object "
        "with AutoReset.SAME_STEP."),
    "universe_view of a class": (lambda: universe_view(CountingEnv), TypeError,
        "universe_view must be given an environment, got an ABCMeta object."),
    "universe_view of another order": (lambda: universe_view(same_step()), ValueError,
        "universe_view must be given an environment with AutoReset.NEXT_STEP, got a "
        "CartPole object with AutoReset.SAME_STEP."),
    "a step before a reset": (
        lambda: universe_view(CartPole(batch_size=2)).step([0, 0]), CallOrderError,
        "step() was called before reset(). Call reset() once; rows that are done then "
        "begin without it."),
    "an action for some rows": (
        lambda: stepped(universe_view(CartPole(batch_size=2)), [0]), SpecError,
        "step() must be given an action for each of 2 rows, got 1. None of them has "
        "moved."),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_calls_are_refused(case, message_of):
    call, error, message = REFUSED[case]
    assert message == message_of(error, call)


def test_batches_of_different_specs_are_refused():
    with pytest.raises(ValueError, match="CartPole"):
        Joint([CartPole(batch_size=1), Catch(batch_size=1)])
