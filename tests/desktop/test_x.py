"""Desktops on an X server of their own, with a program that other people wrote."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from envkit.desktop import (
    Demonstration,
    Desktop,
    DesktopClient,
    Events,
    KeyEvent,
    PointerEvent,
    keysym,
)
from tests.waiting import is_running, until

SIZE = (320, 240)
KEYS = ["a", "B", "€", "Return"]
# Writes a line that is typed, and its own process.
TYPED = 'read -r line; echo "$line $$" > typed.new; mv typed.new typed; read x'
OWNER = (
    "import sys, time\n"
    "from envkit.desktop import Desktop\n"
    "program = ['xterm', '-geometry', '80x40+0+0']\n"
    "env = Desktop(program, size=(320, 240), keys=['a'])\n"
    "env.reset()\n"
    "print(env.display, flush=True)\n"
    "time.sleep(3600)\n"
)


POOL = (
    "import functools, sys\n"
    "from envkit import AsyncParallelPyEnvironment\n"
    "from envkit.desktop import Desktop\n"
    "from envkit.realtime import RealTimeEnvironment\n"
    "program = ['xterm', '-geometry', '80x40+0+0']\n"
    "options = dict(size=(320, 240), keys=['a'])\n"
    "game = functools.partial(Desktop, program, **options)\n"
    "make = functools.partial(RealTimeEnvironment, game, 30, host='thread')\n"
    "env = AsyncParallelPyEnvironment([make] * 2, num_workers=2)\n"
    "env.reset_async()\n"
    "batch = env.recv()\n"
    "print(len(batch.info['realtime']['frame_age']), flush=True)\n"
    "while True:\n"
    "    env.send({'keys': batch.env_ids[:, None] > 9}, batch.env_ids)\n"
    "    batch = env.recv(count=1)\n"
)


@pytest.fixture(autouse=True)
def programs():
    for command in ("Xvnc", "xterm"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed")


@pytest.fixture
def make(tmp_path):
    """Makes desktops with a terminal, and closes them."""
    made = []

    def make(**options):
        program = ["xterm", "-geometry", "80x40+0+0", "-e", "sh", "-c", TYPED]
        actions = Events(KEYS, size=SIZE, limit=12)
        options = {"actions": actions, "size": SIZE, **options}
        made.append(Desktop(program, folder=str(tmp_path), **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


def below(pid):
    """Returns the children of a process, whichever of its threads has started them."""
    found: list[Path] = []
    with contextlib.suppress(OSError):  # It has ended meanwhile.
        found += Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in found for child in words_of(file)]


def words_of(file):
    """Returns what is in a file of /proc; nothing if its process is gone."""
    with contextlib.suppress(OSError):
        return file.read_text("utf-8").split()
    return []


def identities(paths):
    """Returns which files there are now: others may come to have the same names."""
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            facts = path.lstat()
            found[path] = facts.st_ino, facts.st_ctime_ns
    return found


def are_left(before):
    """Returns those files that are still there: later ones may have their names."""
    now = identities(before)
    return [path for path, which in before.items() if now.get(path) == which]


def typed(*names):
    """Returns the action that types keys into the window in the middle."""
    events = [PointerEvent(160, 120)]
    for name in names:
        events += [KeyEvent(keysym(name), down) for down in (True, False)]
    return Events(KEYS, size=SIZE, limit=12).array(events)


NOTHING = Events(KEYS, size=SIZE, limit=12).array([])


def played(env, folder, *names):
    """Types a line, and returns the words that the program has written."""
    env.step(typed(*names, "Return"))
    file = Path(folder) / "typed"
    assert until(lambda: env.step(NOTHING) and file.exists())
    words = file.read_text("utf-8").split()
    file.unlink()
    return words


def test_keys_reach_a_program_and_change_its_picture(make, tmp_path):
    env = make(pause=0.001)
    first = env.reset().observation
    words = played(env, tmp_path, "a", "B", "€", "a")

    assert (240, 320, 3) == first.shape
    assert "aB€a" == words[0]
    assert until(lambda: (env.step(NOTHING).observation != first).any())
    assert 0 < env.get_info()["desktop"]["key_to_pixel"]


def test_a_crashed_program_or_display_is_restarted(make, tmp_path):
    env = make()
    env.reset()
    shell = played(env, tmp_path, "a")[1]
    os.kill(int(shell), signal.SIGKILL)
    ends = [until(lambda: env.step(NOTHING).is_last())]
    ends.append(env.step(NOTHING).is_first())
    (server,) = [
        pid
        for supervisor in below(os.getpid())
        for pid in below(supervisor)
        if Path(f"/proc/{pid}/comm").read_text("utf-8").startswith("Xvnc")
    ]
    os.kill(server, signal.SIGKILL)
    ends.append(until(lambda: env.step(NOTHING).is_last()))
    ends.append(env.step(NOTHING).is_first())

    assert [True] * 4 == [bool(one) for one in ends]
    assert "B" == played(env, tmp_path, "B")[0]


def test_a_program_appears_only_on_its_own_screen(tmp_path, monkeypatch):
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    script = (
        'echo "$DISPLAY ${WAYLAND_DISPLAY-none} ${SDL_VIDEODRIVER-none}" > told\n'
        "exec xterm -geometry 80x40+0+0"
    )
    program = ["sh", "-c", script]
    options = {"size": SIZE, "folder": str(tmp_path)}
    with Desktop(program, keys=["a"], **options) as env:
        env.reset()
        told = tmp_path / "told"
        assert until(lambda: told.exists() and told.read_text("utf-8").endswith("\n"))
        assert [env.display, "none", "none"] == told.read_text("utf-8").split()


def test_a_quickly_typed_line_reaches_the_program(make, tmp_path):
    """As viewers send it: with Shift around the capitals."""
    keys = [*"echoHELO", "space", "Return", "shift"]
    with make(actions=None, keys=keys) as env:
        line = [("echo ", False), ("HELLO", True), ("\n", False)]
        with Demonstration(env) as shown, DesktopClient(*shown.address) as viewer:
            for text, is_shifted in line:
                names = ["Return" if letter == "\n" else letter for letter in text]
                shifts = [KeyEvent(keysym("shift"), down) for down in (True, False)]
                pressed = [
                    KeyEvent(keysym(name), down)
                    for name in names
                    for down in (True, False)
                ]
                if is_shifted:
                    pressed = [shifts[0], *pressed, shifts[1]]
                viewer.send(*pressed)
            file = tmp_path / "typed"
            assert until(lambda: shown.step() and file.exists())
    assert ["echo", "HELLO"] == file.read_text("utf-8").split()[:2]


# Who reaches the display.

# Greets an X server without a cookie, as another account, and tells its answers.
STRANGER = """
import os, socket, sys
path, authority = sys.argv[1:]
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for address in (path, "\\0" + path):
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(address)
            link.sendall(b"l\\0\\x0b" + bytes(9))
            print("admitted" if link.recv(1) == b"\\1" else "refused")
        except OSError as error:
            print(type(error).__name__)
try:
    open(authority, "rb").close()
    print("opened")
except OSError as error:
    print(type(error).__name__)
"""


def places_of(display):
    """Returns the two sockets at which an X server listens."""
    path = f"/tmp/.X11-unix/X{display.removeprefix(':')}"
    return [path, "\0" + path] if sys.platform == "linux" else [path]


def test_a_program_without_the_cookie_is_refused(make):
    env = make()
    for place in places_of(env.display):
        for cookie in (b"", bytes(16)):
            method = b"MIT-MAGIC-COOKIE-1" if cookie else b""
            greeting = struct.pack("<BxHHHHxx", 108, 11, 0, len(method), len(cookie))
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(place)
                link.sendall(greeting + method + bytes(-len(method) % 4) + cookie)
                assert b"\0" == link.recv(1)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another account")
def test_another_account_is_refused(make):
    env = make()
    authority = env.display_environ["XAUTHORITY"]
    arguments = [places_of(env.display)[0], authority]
    told = subprocess.run(
        [sys.executable, "-c", STRANGER, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ["refused", "refused", "PermissionError"] == told.stdout.split()


def test_the_cookie_is_in_a_file_that_only_its_user_can_read(make):
    files = []
    for env in (make(), make()):
        file = Path(env.display_environ["XAUTHORITY"])
        assert (0o600, 0o700) == (
            stat.S_IMODE(file.stat().st_mode),
            stat.S_IMODE(file.parent.stat().st_mode),
        )
        files.append(file)
    first, second = (file.read_bytes()[-16:] for file in files)
    assert first != second


@pytest.mark.skipif(shutil.which("xdotool") is None, reason="xdotool is not installed")
def test_the_users_tools_reach_the_display_by_its_variables(make, tmp_path):
    env = make()
    env.reset()
    assert env.display == env.display_environ["DISPLAY"]
    environ = {**os.environ, **env.display_environ}
    command = ["xdotool", "type", "ab\n"]
    subprocess.run(command, env=environ, check=True, capture_output=True)
    typed_file = tmp_path / "typed"
    assert until(typed_file.exists)
    assert "ab" == typed_file.read_text("utf-8").split()[0]

    del environ["XAUTHORITY"]
    environ["HOME"] = str(tmp_path)
    refused = subprocess.run(command, env=environ, check=False, capture_output=True)
    assert 0 != refused.returncode


def test_no_display_listens_on_the_network(make):
    """Xvnc would, without -nolisten tcp, at 6000 and the display's number."""
    port = 6000 + int(make().display.removeprefix(":"))
    with socket.socket() as link:
        assert 0 != link.connect_ex(("127.0.0.1", port))


def test_an_episode_begins_on_an_empty_screen(make):
    seen = []

    def has_drawn(frame):
        seen.append(float(frame.mean()))
        return seen[-1] > 100

    env = make(ready=has_drawn)
    env.reset()
    seen.clear()
    env.reset()

    assert seen[0] < 50
    assert seen[-1] > 100


def test_nothing_is_left_when_the_owner_is_killed(tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as owner:
        try:
            number = owner.stdout.readline().decode().strip().removeprefix(":")
            (folder,) = tmp_path.glob("envkit-desktop-*")
            (supervisor,) = below(owner.pid)
            # A process that is about to run another program may be there as well.
            assert until(lambda: len(below(supervisor)) == 2)
            programs = below(supervisor)
            # A server of another test that ends may have taken one of them along.
            files = identities(
                [Path(f"/tmp/.X11-unix/X{number}"), Path(f"/tmp/.X{number}-lock")]
            )
        finally:
            owner.kill()

    assert until(lambda: not any(map(is_running, [supervisor, *programs])))
    assert until(lambda: not (folder.exists() or are_left(files)))


def display_of(pid):
    """Returns the number of the display that a process shows itself on."""
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (display,) = [one for one in environ if one.startswith(b"DISPLAY=:")]
    return int(display.removeprefix(b"DISPLAY=:"))


def all_below(pid):
    """Returns the processes below one, and those below these."""
    return [one for child in below(pid) for one in (child, *all_below(child))]


def test_nothing_is_left_when_the_owner_of_a_pool_in_real_time_is_killed(tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", POOL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as owner:
        try:
            assert b"2\n" == owner.stdout.readline()
            folders = list(tmp_path.glob("envkit-desktop-*"))
            processes = all_below(owner.pid)
            numbers = {
                display_of(pid)
                for pid in processes
                if ["xterm"] == words_of(Path(f"/proc/{pid}/comm"))
            }
            sockets = identities(Path(f"/tmp/.X11-unix/X{one}") for one in numbers)
            # Servers that choose their number themselves have no such file.
            locks = identities(Path(f"/tmp/.X{one}-lock") for one in numbers)
        finally:
            owner.kill()

    assert 2 == len(folders) == len(numbers)
    assert until(lambda: not any(map(is_running, processes)))
    assert until(lambda: not any(path.exists() for path in folders))
    assert until(lambda: not are_left({**sockets, **locks}))
