"""How a program with workers ends, in every way there is, and that nothing outlives it.

Each test runs a program of its own, which writes down its workers; they may have
children of their own. The tests wait for what is written, never for time to pass.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from envkit import ParallelPyEnvironment
from envkit.errors import ConstructorError
from envkit.parallel.system.guardian import Guardian
from envkit.testing import CountingEnv
from tests.parallel.fake_backend import FailStart, FakeBackend, Interrupt
from tests.waiting import PATIENCE, is_running, until

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="no worker processes there yet"),
]

ROOT = Path(__file__).parents[2]

# What is promised: after the parent's end nothing runs after two seconds, and Ctrl-C
# ends a program within three. A busy machine adds some; what hangs does so for longer.
AFTER_THE_END = 2.0 + PATIENCE
AFTER_CTRL_C = 3.0 + PATIENCE

# What every program begins with. The folder is for marks: files that say how far
# somebody has come, or which process it is.
PREAMBLE = """
import functools, gc, os, signal, subprocess, sys, threading, time
from pathlib import Path
from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment
from envkit.testing import CountingEnv

# A shell without job control starts in the background what does not hear Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

folder = Path(sys.argv[1])
method = sys.argv[2]

def mark(name, text=""):
    part = folder / f"{name}.{os.getpid()}.part"
    part.write_text(str(text))
    part.rename(folder / name)

class Env(CountingEnv):
    def __init__(self, where="", helpers=0):
        super().__init__()
        self._where = where
        for number in range(helpers):
            child = subprocess.Popen(
                [sys.executable, "-S", "-c",
                 "import os, time; os.fork(); time.sleep(600)"])
        mark(f"pid {os.getpid()}")
        self._meet("constructor")

    def _meet(self, where):
        if where == self._where:
            mark(f"in {where}")
            time.sleep(600)

    def _step(self, action):
        self._meet("step")
        return super()._step(action)

    def _reset(self):
        self._meet("reset")
        return super()._reset()

    def render(self, mode="rgb_array"):
        self._meet("render")
        return super().render(mode)

    def close(self):
        self._meet("close")
        super().close()

def pool_of(*wheres, **options):
    makers = [functools.partial(Env, where) for where in wheres]
    options = {"num_workers": len(makers), "start_serially": False, **options}
    return ParallelPyEnvironment(makers, start_method=method, **options)
"""


class Program:
    """A program with workers, and its end."""

    def __init__(self, folder, script, method="fork"):
        self.folder = folder / "marks"
        self.folder.mkdir()
        path = folder / "train.py"
        path.write_text(PREAMBLE + textwrap.dedent(script), "utf-8")
        self.process = subprocess.Popen(
            [sys.executable, str(path), str(self.folder), method],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C goes to its group, as it does from a terminal.
            start_new_session=True,
        )
        self.ended = self.out = self.err = None

    def wait_for(self, name, seconds=PATIENCE):
        mark = self.folder / name
        if not until(lambda: mark.exists() or self.process.poll() is not None, seconds):
            raise TimeoutError(f"Nobody was {name!r} within {seconds} s.")
        if not mark.exists():
            raise RuntimeError(f"It ended first:\n{self.end()[1]}")
        return mark.read_text("utf-8")

    @property
    def workers(self):
        return [
            int(path.name.split()[1])
            for path in self.folder.iterdir()
            if path.name.startswith("pid") and not path.name.endswith(".part")
        ]

    @property
    def descendants(self):
        """All that the workers have started, and they themselves."""
        groups = set(self.workers)
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    text = (folder / "stat").read_text("utf-8")
                except OSError:
                    continue
                fields = text.rpartition(")")[2].split()
                if int(fields[2]) in groups and fields[0] not in "ZX":
                    found.append(int(folder.name))
        return found

    def signal(self, number):
        os.kill(self.process.pid, number)

    def ctrl_c(self):
        self.began = time.monotonic()
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, timeout=2 * PATIENCE):
        """Waits for its end; returns what it returned and wrote to standard error."""
        if self.ended is None:
            self.out, self.err = self.process.communicate(timeout=timeout)
            self.ended = time.monotonic()
        return self.process.returncode, self.err

    def nobody_is_left(self):
        return until(lambda: not self.descendants, AFTER_THE_END)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for pid in {self.process.pid, *self.descendants}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.communicate()


# The parent is killed.

IDLE = """
    pool = pool_of("", "")
    pool.reset()
    mark("ready")
    time.sleep(600)
"""
BUSY = """
    pool = pool_of("step", "")
    pool.reset()
    pool.step([0, 0])
"""
BUSY_IN_C = """
    class Env(Env):
        def _step(self, action):
            mark("in step")
            3 ** (10 ** 10)
    pool = pool_of("", "")
    pool.reset()
    pool.step([0, 0])
"""
STOPPED = """
    pool = pool_of("", "")
    pool.reset()
    for worker in pool.workers:
        os.kill(worker.pid, signal.SIGSTOP)
    mark("ready")
    time.sleep(600)
"""
HELPERS = """
    pool = ParallelPyEnvironment(
        [functools.partial(Env, helpers=2)] * 2, start_method=method, num_workers=2)
    pool.reset()
    mark("ready")
    time.sleep(600)
"""
BUILDING = """
    pool = pool_of("constructor", "")
"""
DEAF = """
    class Env(Env):
        def _reset(self):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGIO):
                signal.signal(number, signal.SIG_IGN)
            return super()._reset()
    pool = pool_of("", "step")
    pool.reset()
    pool.step([0, 0])
"""
CLOSING = """
    pool = pool_of("close", "")
    pool.reset()
    pool.close(grace=600.0)
"""
MOMENTS = {
    "idle": (IDLE, "ready"),
    "busy": (BUSY, "in step"),
    "busy in C": (BUSY_IN_C, "in step"),
    "stopped": (STOPPED, "ready"),
    "helpers": (HELPERS, "ready"),
    "building": (BUILDING, "in constructor"),
    "deaf": (DEAF, "in step"),
    "closing": (CLOSING, "in close"),
}


@pytest.mark.parametrize(
    ("moment", "method"),
    [
        *((moment, "fork") for moment in MOMENTS),
        ("helpers", "spawn"),
    ],
)
def test_nothing_outlives_a_parent_that_was_killed(moment, method, tmp_path):
    script, name = MOMENTS[moment]
    with Program(tmp_path, script, method) as program:
        program.wait_for(name)
        if moment == "helpers":
            until(lambda: len(program.descendants) == 2 + 8)
        before = program.descendants
        program.signal(signal.SIGKILL)
        program.process.wait()
        nobody = program.nobody_is_left()
        left = program.descendants

    assert nobody, left
    assert before
    assert moment != "helpers" or 2 + 8 == len(before)


def test_nothing_outlives_a_parent_ended_by_a_signal(tmp_path):
    with Program(tmp_path, BUSY) as program:
        program.wait_for("in step")
        before = program.descendants
        program.signal(signal.SIGTERM)
        code, _ = program.end()
        nobody = program.nobody_is_left()

    assert -signal.SIGTERM == code
    assert 2 == len(before)
    assert nobody


EXITS = {
    "os._exit": ("os._exit(5)", 5),
    "end": ("", 0),
    "exception": ("raise RuntimeError('the end')", 1),
    "abort": ("os.abort()", -signal.SIGABRT),
    "exec": ("os.execv('/bin/true', ['true'])", 0),
    "at exit": ("import atexit; atexit.register(lambda: 1 / 0)", 0),
    "thread": ("threading.Thread(target=time.sleep, args=(0.2,)).start()", 0),
    "cycle": ("pool.myself = pool; del pool", 0),
}


@pytest.mark.parametrize("how", EXITS)
def test_nothing_outlives_a_parent_that_ends_without_closing(how, tmp_path):
    end, due = EXITS[how]
    script = f"""
    pool = pool_of("", "")
    pool.reset()
    mark("ready")
    {end}
    """
    with Program(tmp_path, script) as program:
        program.wait_for("ready")
        workers = program.workers
        code, told = program.end()
        nobody = program.nobody_is_left()

    assert due == code
    assert 2 == len(workers)
    assert nobody
    assert told.count("Traceback") == (how in ("exception", "at exit"))
    assert "Exception ignored" not in told.replace(
        "Exception ignored in atexit callback", ""
    )


def test_a_long_step_does_not_keep_the_program_alive(tmp_path):
    script = """
    pool = pool_of("render", "")
    pool.reset()
    pool.envs[0].call("render")
    while not (folder / "in render").exists():
        time.sleep(0.01)
    """
    with Program(tmp_path, script) as program:
        program.wait_for("in render")
        began = time.monotonic()
        code, told = program.end()
        took = program.ended - began
        nobody = program.nobody_is_left()

    assert (0, "") == (code, told)
    assert nobody
    assert took < AFTER_THE_END


# Ctrl-C.

INTERRUPTED = {
    "step": (
        """
    with pool_of("step", "") as pool:
        pool.reset()
        pool.step([0, 0])
    """,
        "in step",
    ),
    "reset": (
        """
    with pool_of("", "reset") as pool:
        pool.reset()
    """,
        "in reset",
    ),
    "render": (
        """
    with pool_of("", "render") as pool:
        pool.reset()
        pool.render()
    """,
        "in render",
    ),
    "constructions": (
        """
    pool_of("", "constructor", "constructor", "", "constructor")
    """,
        "in constructor",
    ),
    "recv": (
        """
    makers = [functools.partial(Env, "step"), Env]
    with AsyncParallelPyEnvironment(
        makers, start_method=method, num_workers=2
    ) as pool:
        pool.reset_async()
        pool.recv()
        pool.send([0, 0])
        pool.recv()
    """,
        "in step",
    ),
}


@pytest.mark.parametrize(
    ("moment", "method"),
    [
        *((moment, "fork") for moment in INTERRUPTED),
        ("constructions", "spawn"),
    ],
)
def test_ctrl_c_ends_a_program_at_once_with_one_traceback(moment, method, tmp_path):
    script, name = INTERRUPTED[moment]
    with Program(tmp_path, script, method) as program:
        program.wait_for(name)
        program.ctrl_c()
        code, told = program.end()
        took = program.ended - program.began
        nobody = program.nobody_is_left()

    assert -signal.SIGINT == code
    assert 1 == told.count("Traceback (most recent call last):"), told
    assert told.endswith("KeyboardInterrupt\n")
    assert took < AFTER_CTRL_C
    assert nobody


class Closing(FakeBackend):
    """Remembers how long its workers were given to end."""

    grace = None

    def close(self, grace):
        self.grace = grace
        return super().close(grace)


def test_ctrl_c_gives_starting_workers_less_time_than_a_failure():
    interrupted, failed = Closing([Interrupt()]), Closing([FailStart()])
    with pytest.raises(KeyboardInterrupt):
        ParallelPyEnvironment([CountingEnv], backend=interrupted)
    with pytest.raises(ConstructorError):
        ParallelPyEnvironment([CountingEnv], backend=failed)
    assert interrupted.grace <= failed.grace / 5


@pytest.mark.parametrize("presses", [1, 2])
def test_a_second_ctrl_c_during_close_ends_it_at_once(presses, tmp_path):
    script = """
    pool = pool_of("close", "close")
    pool.reset()
    mark("ready")
    pool.close(grace=600.0)
    """
    with Program(tmp_path, script) as program:
        program.wait_for("in close")
        program.ctrl_c()
        if presses == 2 and program.process.poll() is None:
            program.ctrl_c()
        code, told = program.end()
        took = program.ended - program.began
        nobody = program.nobody_is_left()

    assert -signal.SIGINT == code
    assert 1 <= told.count("Traceback (most recent call last):") <= presses, told
    assert took < AFTER_CTRL_C
    assert nobody


def test_a_caught_ctrl_c_leaves_the_pool_usable(tmp_path):
    script = """
    class Env(Env):
        def _step(self, action):
            if action == 1:
                mark("in step")
                while not (folder / "go on").exists():
                    time.sleep(0.01)
            return super()._step(action)
    with pool_of("", "") as pool:
        pool.reset()
        try:
            pool.step([1, 0])
        except KeyboardInterrupt:
            mark("go on")
        print(pool.step([0, 0]).observation)
        print(pool.step([0, 0]).observation)
        print(pool.reset().observation, pool.call("get_info"))
    """
    with Program(tmp_path, script) as program:
        program.wait_for("in step")
        program.ctrl_c()
        code, told = program.end()

    assert (0, "") == (code, told)
    assert "[2 2]\n[3 3]\n[0 0] [{}, {}]\n" == program.out


def test_ctrl_c_reaches_no_worker(tmp_path):
    """A shell sends it to a whole group of processes, and workers are in others."""
    script = """
    import contextlib
    pool = pool_of("", "")
    pool.reset()
    mark("ready")
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(600)
    print(pool.step([0, 0]).observation)
    pool.close()
    """
    with Program(tmp_path, script) as program:
        program.wait_for("ready")
        program.ctrl_c()
        code, told = program.end()

    assert (0, "", "[1 1]\n") == (code, told, program.out)


def test_repeated_ctrl_c_ends_a_program(tmp_path):
    script, name = INTERRUPTED["step"]
    with Program(tmp_path, script) as program:
        program.wait_for(name)
        while program.process.poll() is None:
            program.ctrl_c()
            time.sleep(0.005)
        code, _ = program.end()
        nobody = program.nobody_is_left()

    assert code in (-signal.SIGINT, 1)
    assert nobody


# A parent that forks.

FORKS = """
    import multiprocessing
    def fork_by_os(function):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                function()
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        return pid
    def fork_by_multiprocessing(function):
        process = multiprocessing.get_context("fork").Process(target=function)
        process.start()
        return process.pid
    fork = {how}
"""
HOWS = ["fork_by_os", "fork_by_multiprocessing"]


def test_a_fork_of_the_parent_keeps_no_worker_alive(tmp_path):
    script = (
        FORKS.format(how="fork_by_os")
        + """
    pool = pool_of("step", "")
    pool.reset()
    def child():
        os.closerange(0, 3)
        mark("forked", os.getpid())
        time.sleep(600)
    fork(child)
    pool.step([0, 0])
    """
    )
    with Program(tmp_path, script) as program:
        child = int(program.wait_for("forked"))
        program.wait_for("in step")
        program.signal(signal.SIGKILL)
        program.process.wait()
        nobody = program.nobody_is_left()
        lives = is_running(child)
        os.kill(child, signal.SIGKILL)

    assert nobody
    assert lives


@pytest.mark.parametrize("how", HOWS)
def test_a_fork_that_ends_disturbs_nobody(how, tmp_path):
    """Not by its end, not by collecting garbage, not by closing what it inherits."""
    script = (
        FORKS.format(how=how)
        + """
    with pool_of("", "") as pool:
        pool.reset()
        print(pool.step([0, 0]).observation, flush=True)
        def child():
            global pool
            pool.close()
            pool = None
            gc.collect()
        def other():
            sys.exit(0)
        for function in (child, other):
            os.waitpid(fork(function), 0)
            print(pool.step([0, 0]).observation, flush=True)
        print(pool.call("get_info"), pool.reset().observation)
    """
    )
    with Program(tmp_path, script) as program:
        code, told = program.end()
        nobody = program.nobody_is_left()

    assert (0, "") == (code, told)
    assert "[1 1]\n[2 2]\n[3 3]\n[{}, {}] [0 0]\n" == program.out
    assert nobody


def test_using_the_pool_in_a_fork_is_an_error(tmp_path):
    script = (
        FORKS.format(how="fork_by_multiprocessing")
        + """
    with pool_of("", "") as pool:
        pool.reset()
        def child():
            for call in (
                lambda: pool.step([0, 0]), pool.reset, pool.render, pool.get_state,
                lambda: pool.call("get_info"), lambda: pool.seed(3),
                lambda: pool.envs[0].step(0),
            ):
                try:
                    print(call())
                except Exception as error:
                    print(type(error).__name__, error)
        print(os.waitpid(fork(child), 0)[1], flush=True)
        print(pool.step([0, 0]).observation)
    """
    )
    with Program(tmp_path, script) as program:
        code, told = program.end()
        lines = program.out.splitlines()

    assert (0, "") == (code, told)
    assert ["0", "[1 1]"] == lines[-2:]
    assert 7 == len(lines[:-2])
    assert {"ClosedError"} == {line.split()[0] for line in lines[:-2]}
    assert all("fork" in line for line in lines[:-2]), lines


def test_a_new_pool_in_a_fork_works(tmp_path):
    script = (
        FORKS.format(how="fork_by_os")
        + """
    with pool_of("", "") as pool:
        pool.reset()
        def child():
            with pool_of("", "") as other:
                other.reset()
                print(other.step([0, 0]).observation, flush=True)
        print(os.waitpid(fork(child), 0)[1], flush=True)
        print(pool.step([0, 0]).observation)
    """
    )
    with Program(tmp_path, script) as program:
        code, told = program.end()
        nobody = program.nobody_is_left()

    assert (0, "") == (code, told)
    assert "[1 1]\n0\n[1 1]\n" == program.out
    assert nobody


def test_a_thread_that_started_the_pool_may_end(tmp_path):
    """Workers live as long as the process, not as long as the thread."""
    script = """
    found = []
    thread = threading.Thread(target=lambda: found.append(pool_of("", "")))
    thread.start()
    thread.join()
    pool, = found
    pool.reset()
    time.sleep(0.2)
    print(pool.step([0, 0]).observation)
    pool.close()
    """
    with Program(tmp_path, script) as program:
        code, told = program.end()

    assert (0, "", "[1 1]\n") == (code, told, program.out)


# A program whose output nobody reads any more, or that has none.


def test_a_program_without_standard_streams_can_have_workers(tmp_path):
    script = """
    os.closerange(0, 3)
    sys.stdin = sys.stdout = sys.stderr = None
    with pool_of("", "") as pool:
        pool.reset()
        observation = pool.step([0, 0]).observation
    mark("done", observation)
    """
    with Program(tmp_path, script) as program:
        told = program.wait_for("done")
        code, _ = program.end()

    assert (0, "[1 1]") == (code, told)


def test_a_program_that_ignores_dead_children_can_have_workers(tmp_path):
    """With SIGCHLD ignored the kernel forgets how children ended."""
    script = """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with pool_of("", "") as pool:
        pool.reset()
        os.kill(pool.workers[0].pid, signal.SIGKILL)
        try:
            while True:
                pool.step([0, 0])
        except Exception as error:
            print(type(error).__name__)
    """
    with Program(tmp_path, script) as program:
        code, told = program.end()
        nobody = program.nobody_is_left()

    assert (0, "", "WorkerCrashed\n") == (code, told, program.out)
    assert nobody


def test_a_fork_that_uses_the_pool_sends_its_workers_nothing(tmp_path):
    """Workers that still look for orders would find one in the memory of all."""
    script = (
        FORKS.format(how="fork_by_os")
        + """
    with pool_of("", "") as pool:
        pool.reset()
        def child():
            for call in (lambda: pool.step([0, 0]), lambda: pool.envs[0].step(0)):
                try:
                    call()
                except Exception:
                    pass
        for _ in range(8):
            child_id = fork(child)
            print(pool.step([0, 0]).observation, flush=True)
            os.waitpid(child_id, 0)
    """
    )
    with Program(tmp_path, script) as program:
        code, told = program.end()

    assert (0, "") == (code, told)
    assert [f"[{step} {step}]" for step in range(1, 9)] == program.out.splitlines()


# Helpers that escape from the process group of their worker.

ESCAPED = """
    class Host(CountingEnv):
        def __init__(self):
            super().__init__()
            for number in range(2):
                helper = subprocess.Popen(
                    [sys.executable, "-S", "-c", "import time; time.sleep(600)"],
                    start_new_session=bool(number))
                mark(f"pid {helper.pid}")

    pool = ParallelPyEnvironment([Host], start_method=method)
    pool.reset()
    mark("ready", pool.workers[0].pid)
"""
ENDS = {
    "the pool is closed": "pool.close()\n    mark('over')\n    time.sleep(600)",
    "the worker dies": """
    os.kill(pool.workers[0].pid, signal.SIGKILL)
    try:
        pool.step([0])
    except Exception:
        mark("over")
    time.sleep(600)""",
    "the parent is killed": "mark('over')\n    os.kill(os.getpid(), signal.SIGKILL)",
    "the parent is killed after the worker": """
    worker = pool.workers[0].pid
    os.kill(worker, signal.SIGKILL)
    os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    mark("over")
    os.kill(os.getpid(), signal.SIGKILL)""",
}


@pytest.mark.skipif(sys.platform != "linux", reason="helpers are found in /proc")
@pytest.mark.parametrize(
    ("end", "method"),
    [*((end, "fork") for end in ENDS), ("the parent is killed", "spawn")],
)
def test_helpers_in_any_session_end_with_their_worker(end, method, tmp_path):
    with Program(tmp_path, ESCAPED + "\n    " + ENDS[end], method) as program:
        program.wait_for("over")
        helpers = program.workers
        ended = until(lambda: not any(map(is_running, helpers)), AFTER_THE_END)
        for helper in helpers:
            if is_running(helper):
                os.kill(helper, signal.SIGKILL)

    assert 2 == len(helpers)
    assert ended


@pytest.mark.skipif(sys.platform != "linux", reason="finds descriptors in /proc")
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_child_program_of_an_environment_inherits_nothing_of_the_pool(
    method, tmp_path
):
    script = """
        class Attacked(CountingEnv):
            def _step(self, action):
                attack = "\\n".join([
                    "import os, pickle",
                    "for fd in map(int, os.listdir('/proc/self/fd')):",
                    "    try:",
                    "        fd > 2 and os.write(fd, pickle.dumps(print) * 100)",
                    "    except OSError:",
                    "        pass",
                ])
                subprocess.run([sys.executable, "-c", attack], close_fds=False)
                return super()._step(action)

        with ParallelPyEnvironment([Attacked] * 2, start_method=method) as pool:
            pool.reset()
            for number in (1, 2, 3):
                mark(f"step {number}", pool.step([0, 0]).observation.tolist())
                pool.call("get_info")
        mark("over")
    """
    with Program(tmp_path, script, method) as program:
        program.wait_for("over")
        seen = [program.wait_for(f"step {number}") for number in (1, 2, 3)]
        code, _ = program.end()

    assert (0, ["[1, 1]", "[2, 2]", "[3, 3]"]) == (code, seen)


def test_pools_forked_in_two_threads_do_not_share_lifelines(tmp_path):
    script = """
        def run(number):
            for _ in range(6):
                together.wait()
                pool = ParallelPyEnvironment([Env] * 2, start_method="fork")
                pool.reset()
                pools.append(pool)

        pools = []
        together = threading.Barrier(2)
        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=run, args=[i]) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        mark("ready")
        time.sleep(600)
    """
    with Program(tmp_path, script) as program:
        program.wait_for("ready")
        program.signal(signal.SIGKILL)
        program.process.wait()
        nobody = program.nobody_is_left()

    assert nobody


# A program that is stopped with all its workers, as a paused container is.

STOPPED_IN = {
    "step": """
        with pool_of("", "", step_timeout=4.0) as pool:
            pool.reset()
            print(pool.step([1, 0]).observation, pool.step([0, 0]).observation)
    """,
    "start": """
        mark("hold")
        with pool_of("", "", start_timeout=4.0) as pool:
            pool.reset()
            print(pool.step([0, 0]).observation, pool.step([0, 0]).observation)
    """,
    "between send and recv": """
        makers = [functools.partial(Env, ""), Env]
        with AsyncParallelPyEnvironment(
            makers, start_method=method, num_workers=2, step_timeout=4.0
        ) as pool:
            pool.reset_async()
            pool.recv()
            pool.send([1, 0])
            while not (folder / "go on").exists():
                time.sleep(0.01)
            print(np.sort(pool.recv().time_step.observation), end=" ")
            pool.send([0, 0])
            print(pool.recv().time_step.observation)
    """,
}
HELD = """
    import numpy as np

    class Env(Env):
        def _hold(self):
            mark("held")
            while not (folder / "go on").exists():
                time.sleep(0.01)

        def _meet(self, where):
            if where == "constructor" and (folder / "hold").exists():
                self._hold()

        def _step(self, action):
            if action == 1:
                self._hold()
            return super()._step(action)
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", STOPPED_IN)
def test_a_program_stopped_with_its_workers_can_continue(moment, tmp_path):
    script = textwrap.dedent(HELD) + textwrap.dedent(STOPPED_IN[moment])
    with Program(tmp_path, script) as program:
        program.wait_for("held")
        everyone = [program.process.pid, *program.descendants]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        # Longer than any timeout of a call.
        subprocess.run(["sleep", "5"], check=True)
        (program.folder / "go on").touch()
        for pid in reversed(everyone):
            os.kill(pid, signal.SIGCONT)
        code, told = program.end()

    assert (0, "") == (code, told)
    assert "[1 1] [2 2]\n" == program.out


@pytest.mark.skipif(sys.platform != "linux", reason="there is a guardian on Linux only")
@pytest.mark.parametrize("has_left", [False, True])
def test_the_guardian_ends_no_group_whose_worker_has_ended(has_left):
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as group:
        guardian = Guardian()
        guardian.start()
        guardian.watch(group.pid)
        if has_left:
            guardian.leave(group.pid)
        # As if the parent were gone.
        guardian.forget()
        os.waitpid(guardian._pid, 0)
        lives = not until(
            lambda: group.poll() is not None, 0.0 if has_left else PATIENCE
        )
        group.kill()

    assert has_left == lives
