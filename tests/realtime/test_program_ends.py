"""The clock's process ends with the program, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE, is_running, until

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="looks at the children in /proc"
)

PROGRAM = """
import os, sys
from envkit.realtime import RealTimeEnvironment
from envkit.testing import CountingEnv

env = RealTimeEnvironment(CountingEnv, hz=50)
env.reset()
with open(f"/proc/self/task/{os.getpid()}/children") as children:
    print(children.read(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, None])
def test_the_clock_ends_with_the_program(ending):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        clocks = [int(pid) for pid in program.stdout.readline().split()]
        assert clocks
        assert all(is_running(pid) for pid in clocks)

        if ending is None:  # It comes to its end.
            program.stdin.close()
        else:
            os.kill(program.pid, ending)
        program.wait(PATIENCE)

    assert until(lambda: not any(is_running(pid) for pid in clocks))
