"""The supervisor of a desktop: it ends all that was started, however its owner ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from envkit.desktop.supervisor import Supervisor, SupervisorError
from tests.waiting import is_running, until

# A program, a child of it with a session of its own, and one whose parent has ended.
FAMILY = (
    "import os, subprocess, sys, time\n"
    "sleep = [sys.executable, '-c', 'import time; time.sleep(3600)']\n"
    "child = subprocess.Popen(sleep, start_new_session=True)\n"
    "reader, writer = os.pipe()\n"
    "if not os.fork():\n"
    "    os.setsid()\n"
    "    orphan = subprocess.Popen(sleep)\n"
    "    os.write(writer, str(orphan.pid).encode())\n"
    "    os._exit(0)\n"
    "os.wait()\n"
    "pids = [os.getpid(), child.pid, int(os.read(reader, 99))]\n"
    "with open('pids.new', 'w') as file: print(*pids, file=file)\n"
    "os.rename('pids.new', 'pids')\n"
    "time.sleep(3600)\n"
)
OWNER = (
    "import sys, time\n"
    "from envkit.desktop.supervisor import Supervisor\n"
    "supervisor = Supervisor()\n"
    "supervisor.start([sys.executable, '-c', sys.argv[1]], folder=sys.argv[2])\n"
    "print(supervisor.folder, flush=True)\n"
    "time.sleep(3600)\n"
)


@pytest.fixture
def supervisor():
    made = Supervisor()
    yield made
    made.close()


def family_in(folder):
    """Waits until the family is complete, and returns its processes."""
    file = folder / "pids"
    assert until(file.exists)
    return [int(pid) for pid in file.read_text("utf-8").split()]


def start_family(supervisor, folder):
    number = supervisor.start([sys.executable, "-c", FAMILY], folder=str(folder))
    return number, family_in(folder)


def test_a_program_is_stopped_with_everything_it_started(supervisor, tmp_path):
    number, pids = start_family(supervisor, tmp_path)
    other = supervisor.start(["sleep", "3600"])
    supervisor.stop(number)

    assert [False] * 3 == [is_running(pid) for pid in pids]
    assert supervisor.ended(other) is None


def test_closing_ends_everything_and_removes_the_folder(tmp_path):
    supervisor = Supervisor()
    _, pids = start_family(supervisor, tmp_path)
    Path(supervisor.folder, "left").write_text("x", "utf-8")
    supervisor.close()
    supervisor.close()

    assert [False] * 3 == [is_running(pid) for pid in pids]
    assert not os.path.exists(supervisor.folder)
    with pytest.raises(SupervisorError, match="closed"):
        supervisor.start(["true"])


def test_nothing_is_left_when_the_owner_is_killed(tmp_path):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, FAMILY, str(tmp_path)], stdout=subprocess.PIPE
    )
    folder = owner.stdout.readline().decode().strip()
    pids = family_in(tmp_path)
    assert [True] * 3 == [is_running(pid) for pid in pids]
    owner.kill()
    owner.wait()
    owner.stdout.close()

    assert until(lambda: not any(is_running(pid) for pid in pids))
    assert until(lambda: not os.path.exists(folder))


def test_a_pool_that_kills_marked_processes_spares_the_supervisor(monkeypatch):
    monkeypatch.setenv("ENVKIT_POOL", "1-a.")
    supervisor = Supervisor()
    number = supervisor.start(["sh", "-c", "echo ${ENVKIT_POOL-none}"])
    words = until(lambda: supervisor.ended(number)).words
    supervisor.close()

    assert "none" == words


def test_a_program_ends_when_its_supervisor_is_killed(tmp_path):
    supervisor = Supervisor()
    number = supervisor.start(["sleep", "3600"], folder=str(tmp_path))
    script = "import os; print(os.getppid(), flush=True)"
    told = supervisor.start([sys.executable, "-c", script])
    assert until(lambda: supervisor.ended(told))
    process = int(supervisor.ended(told).words)
    (sleep,) = [
        int(pid)
        for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]
    os.kill(process, signal.SIGKILL)

    assert until(lambda: not is_running(sleep))
    with pytest.raises(SupervisorError, match="gone"):
        supervisor.stop(number)
    supervisor.close()
    shutil.rmtree(supervisor.folder)


def test_the_end_of_a_program_is_reported_with_its_last_output(supervisor):
    number = supervisor.start(
        ["sh", "-c", "echo first; echo the disk is full >&2; exit 3"]
    )
    killed = supervisor.start(["sh", "-c", "kill -SEGV $$"])
    ended = until(lambda: supervisor.ended(number))

    assert "has ended with status 3" == str(ended)
    assert "first\nthe disk is full" == ended.words
    assert "was killed by SIGSEGV" == str(until(lambda: supervisor.ended(killed)))


def test_a_program_that_prints_endlessly_is_not_blocked(supervisor):
    script = "import sys; sys.stdout.write('x' * 5_000_000 + 'the end')"
    number = supervisor.start([sys.executable, "-c", script])
    ended = until(lambda: supervisor.ended(number))

    assert (0, 4096) == (ended.status, len(ended.words))
    assert ended.words.endswith("the end")


def test_a_program_that_closes_its_output_causes_no_busy_loop(supervisor, tmp_path):
    script = "exec >&- 2>&-; touch silent; exec sleep 3600"
    supervisor.start(["sh", "-c", script], folder=str(tmp_path))
    assert until((tmp_path / "silent").exists)
    stat = Path(f"/proc/{supervisor._process.pid}/stat")
    assert until(lambda: stat.read_text("utf-8").rpartition(")")[2].split()[0] == "S")


MANY = (
    "import os, resource, time\n"
    "from envkit.desktop import Reporter, RewardChannel\n"
    "from envkit.desktop.supervisor import Supervisor\n"
    "most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
    "resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n"
    "files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]\n"
    "supervisor = Supervisor()\n"
    "number = supervisor.start(['true'])\n"
    "while supervisor.ended(number) is None: time.sleep(0.01)\n"
    "channel = RewardChannel()\n"
    "channel.open(supervisor.folder)\n"
    "reporter = Reporter(channel.variables())\n"
    "print(reporter.is_over(), reporter._link.fileno() > 1023)\n"
    "reporter.close(), channel.close(), supervisor.close()\n"
)


def test_the_owner_may_have_many_open_files():
    resource = pytest.importorskip("resource")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < 1200:
        pytest.skip("only few files may be open")
    command = [sys.executable, "-c", MANY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ("False True\n", "") == (done.stdout, done.stderr)


def test_variables_and_the_folder_reach_the_program(supervisor, tmp_path):
    number = supervisor.start(
        ["sh", "-c", "pwd; echo $WHO"], {"WHO": "me"}, str(tmp_path)
    )
    assert f"{tmp_path}\nme" == until(lambda: supervisor.ended(number)).words


def test_a_variable_can_be_removed(supervisor, monkeypatch):
    monkeypatch.setenv("WHO", "me")
    number = supervisor.start(["sh", "-c", "echo ${WHO-none}"], {"WHO": None})
    assert "none" == until(lambda: supervisor.ended(number)).words


def test_a_missing_program_is_named(supervisor):
    with pytest.raises(SupervisorError, match="There is no program 'no-such-game'"):
        supervisor.start(["no-such-game"])
    with pytest.raises(SupervisorError, match="There is no folder '/no/folder'"):
        supervisor.start(["true"], folder="/no/folder")
    with pytest.raises(SupervisorError, match="false does not start"):
        supervisor.display(["false"])
    assert supervisor.start(["true"]) == 3
