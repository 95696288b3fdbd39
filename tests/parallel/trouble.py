"""`Troubled`, the environment of all tests about workers, and what such tests need.

It does what it should not exactly when it was told to. What it is told is sent to
workers, which import this module: it does without pytest, which takes long.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np

from envkit import ParallelPyEnvironment
from envkit.errors import WorkerError
from envkit.testing import CountingEnv, TracingEnv, check_trace
from tests.waiting import PATIENCE

# How long a call may take that is promised to return within a second. What hangs does
# so for longer, and a machine may be busy.
PROMPTLY = PATIENCE


class Troubled(TracingEnv):
    """Makes the trouble it was told to make, at one place, once.

    The places are the names of methods, "constructor", and "after step" for when a
    step has done everything but return.
    """

    def __init__(self, env_id=0, where="", trouble=None, at=1, **options):
        super().__init__(env_id, **options)
        self._plans = {}
        self.plan(where, trouble, at)
        self._meet("constructor")

    def plan(self, where, trouble, at=1):
        """Makes trouble in the `at`-th call from now on."""
        self._plans[where] = [at, trouble]

    def _meet(self, where):
        plan = self._plans.get(where)
        if plan is not None:
            plan[0] -= 1
            if plan[0] == 0:
                plan[1]()

    def _reset(self):
        self._meet("reset")
        return super()._reset()

    def _step(self, action):
        self._meet("step")
        time_step = super()._step(action)
        self._meet("after step")
        return time_step

    def render(self, mode="rgb_array"):
        self._meet("render")
        return super().render(mode)

    def get_info(self):
        self._meet("get_info")
        return super().get_info()

    def get_state(self):
        self._meet("get_state")
        return super().get_state()

    def seed(self, seed):
        self._meet("seed")
        return super().seed(seed)

    def meet(self):
        """Is there to be called."""
        self._meet("meet")
        return os.getpid()

    def do(self, function, *args):
        """Calls something in the worker."""
        return function(*args)

    def close(self):
        self._meet("close")
        super().close()


class Numbered(Troubled):
    def access_number(self):
        return self.env_id


def send_myself(number):
    os.kill(os.getpid(), number)


def signalled(number):
    return functools.partial(send_myself, number)


def exits(code):
    return functools.partial(os._exit, code)


def complain_with_a_program():
    """Writes to standard error, as does a program."""
    os.write(2, b"first\n")
    # It opens the file anew, so it has a position of its own in it.
    subprocess.run("echo second >> /dev/stderr", shell=True, check=True)
    os.write(2, b"third")


# How a worker may end, and what its error knows about that.
ENDS = {
    "SIGSEGV": (signalled(signal.SIGSEGV), (None, "SIGSEGV"), "was killed by SIGSEGV"),
    "SIGKILL": (signalled(signal.SIGKILL), (None, "SIGKILL"), "was killed by SIGKILL"),
    "SIGABRT": (os.abort, (None, "SIGABRT"), "was killed by SIGABRT"),
    "exit 0": (exits(0), (0, None), "exited with code 0"),
    "exit 3": (exits(3), (3, None), "exited with code 3"),
}


def pool_of(count, *, workers=None, start_method="fork", make=Troubled, **options):
    """Opens a pool whose environments know their numbers."""
    return ParallelPyEnvironment(
        [functools.partial(make, env) for env in range(count)],
        num_workers=workers or count,
        start_method=start_method,
        start_serially=False,
        **options,
    )


def plan(pool, env, where, trouble, at=1):
    pool.call("plan", where, trouble, at, env_ids=[env])


def failure_of(call, *args, **options):
    """Returns the error that a call must raise."""
    try:
        call(*args, **options)
    except WorkerError as error:
        return error
    raise AssertionError("The call raised no WorkerError.")


def first_line(error):
    return str(error).partition("\n")[0]


def masked(rows, *chosen):
    mask = np.zeros(rows, bool)
    mask[list(chosen)] = True
    return mask


def numbers(*row):
    """Returns actions of which no two rows have the same."""
    return np.array(row, np.int64)


def row_of(time_step, row):
    """Returns one row of a batch."""
    return type(time_step)(
        time_step.step_type[row],
        time_step.reward[row],
        time_step.discount[row],
        {name: leaf[row] for name, leaf in time_step.observation.items()},
    )


def wrong_rows(before, actions, after, rows=None):
    """Returns the faults of a batch of answers of `TracingEnv`."""
    rows = range(len(after.step_type)) if rows is None else rows
    found = []
    for row in rows:
        was = None if before is None else row_of(before, row)
        action = None if actions is None else actions[row]
        found.append(check_trace(was, action, row_of(after, row), env_id=row))
    return [text for text in found if text]


def throw(make, *args, **options):
    raise make(*args, **options)


def raises(make, *args, **options):
    return functools.partial(throw, make, *args, **options)


def late():
    time.sleep(600)


# What workers are told to do, and environments that do it.


def print_a_lot():
    for _ in range(20):
        print("x" * 100_000)
    os.write(1, b"straight to the descriptor\n")


def complain_a_lot():
    for number in range(10):
        sys.stderr.write(f"{number} {'y' * 100_000}\n")
    sys.stderr.flush()


def flood():
    for _ in range(100):
        os.write(2, b"z" * 999_999 + b"\n")


def bytes_of_stderr():
    return os.fstat(2).st_blocks * 512


def close_all_files():
    os.closerange(3, 256)


def fork_and_return():
    with warnings.catch_warnings():
        # Python warns that a fork of a process with threads may hang.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid:
        os.waitpid(pid, 0)


class Forking(CountingEnv):
    """Forks in one of its methods, and the fork comes back from it."""

    def __init__(self, where, how):
        super().__init__()
        self._where, self._how = where, how
        self._meet("constructor")

    def _meet(self, where):
        if where != self._where:
            return
        worker = os.getpid()
        fork_and_return()
        if os.getpid() != worker:
            self._current_step += 100
            if self._how == "raises":
                os.execv("/no/such/program", ["program"])

    def _reset(self):
        self._meet("reset")
        return super()._reset()

    def _step(self, action):
        self._meet("step")
        return super()._step(action)

    def render(self, mode="rgb_array"):
        self._meet("render")
        return np.zeros((1, 1, 3), np.uint8)


class WithMultiprocessing(CountingEnv):
    """Steps with the help of a process that `multiprocessing` forks."""

    def _step(self, action):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with multiprocessing.get_context("fork").Pool(1) as pool:
                assert [1, 4] == pool.map(np.square, [1, 2])
        return super()._step(action)


def fail_within():
    with pool_of(1) as pool:
        pool.reset()
        plan(pool, 0, "step", ENDS["SIGKILL"][0])
        pool.step(numbers(1))


def start_helper():
    helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return helper.pid, os.getppid()
