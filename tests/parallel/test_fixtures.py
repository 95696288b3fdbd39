"""What watches over the other tests sees what it is there for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.specs import ArraySpec, array_spec
from tests import residue, strategies
from tests.waiting import until

ROOT = Path(__file__).parents[2]

only_linux = pytest.mark.skipif(
    not residue.ON_LINUX, reason="only Linux lists what a process has open"
)


def left_since(before, kind):
    """Names what there was not before, of one kind, without waiting."""
    left = residue.Residue.now().since(before)
    return [without_state(text) for key, text in left.items() if key[0] == kind]


def without_state(text):
    """Takes away what changes from one moment to the next."""
    return re.sub(r" \((running|sleeping|waiting for a device)\):", ":", text)


def run_python(*arguments, **options):
    """Runs a program that can import the tests' own modules."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        **options,
    )


def run_tests(folder, source):
    """Runs tests in a process of their own, with the fixtures that all tests have."""
    (folder / "test_it.py").write_text(source, "utf-8")
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider"]
    return run_python("-m", "pytest", "-q", *options, "test_it.py", cwd=folder)


# What is left behind.


def test_every_test_in_this_folder_is_checked_for_leftovers(request):
    assert "nothing_left_behind" in request.fixturenames


@only_linux
def test_a_process_is_found_until_it_is_reaped():
    before = residue.Residue.now()
    process = subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    # Once it answers, it runs cat; before, it may have its parent's name.
    process.stdin.write(b"!")
    process.stdout.read(1)
    running = left_since(before, "process")
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    ended = left_since(before, "process")
    process.stdout.close()
    process.wait()

    assert [f"process {process.pid}: cat"] == running
    assert [f"process {process.pid} (zombie): cat"] == ended
    assert [] == left_since(before, "process")


# Starts a process, forgets it and prints its number.
ORPHAN = """
import subprocess

nothing = subprocess.DEVNULL
orphan = subprocess.Popen(["sleep", "60"], stdout=nothing, stderr=nothing, {})
orphan.returncode = 0  # or it would warn that it still runs
print(orphan.pid)
"""


@only_linux
@pytest.mark.parametrize("options", ["", "start_new_session=True"])
def test_an_orphaned_process_is_found(options):
    before = residue.Residue.now()
    pid = int(run_python("-c", ORPHAN.format(options)).stdout)
    # The program may have begun and have no environment yet.
    left = until(lambda: residue.left_behind(before, within=0.0))
    residue.end_processes(left)
    assert [f"process {pid}: sleep 60"] == [*map(without_state, left.values())]
    assert {} == residue.left_behind(before)


FORK = """
import os
from tests import residue

before = residue.Residue.now()
reading, writing = os.pipe()
if not (child := os.fork()):
    if not (orphan := os.fork()):
        os.close(1)
        os.close(2)
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.write(1, b"%d\\n" % orphan)
    os._exit(0)
os.waitpid(child, 0)
print(residue.Residue.now().since(before))
os.close(reading)
os.close(writing)
print(residue.left_behind(before))
"""


@only_linux
def test_an_orphaned_fork_is_found():
    """Its environment is the one that its grandparent was started with."""
    finished = run_python("-c", FORK)
    orphan, seen, left = finished.stdout.splitlines()
    assert f"('process', {orphan}, " in seen
    assert "{}" == left


def test_a_thread_is_found_with_its_name():
    before = residue.Residue.now()
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait, name="straggler")
    thread.start()
    left = residue.left_behind(before, within=0.0)
    may_end.set()
    thread.join()

    assert ["thread 'straggler'"] == [text.split(" (")[0] for text in left.values()]


@only_linux
def test_a_descriptor_is_found_with_its_target(tmp_path):
    before = residue.Residue.now()
    fd = os.open(tmp_path, os.O_RDONLY)
    opened = left_since(before, "descriptor")
    os.close(fd)
    assert [f"descriptor {fd}: {tmp_path}"] == opened
    assert [] == left_since(before, "descriptor")


@only_linux
def test_named_and_unnamed_shared_memory_is_found(monkeypatch):
    # Python's tracker of such memory is a process that would stay.
    monkeypatch.setattr(resource_tracker, "register", lambda *args: None)
    monkeypatch.setattr(resource_tracker, "unregister", lambda *args: None)
    before = residue.Residue.now()
    memory = SharedMemory(create=True, size=1000)
    named = left_since(before, "segment")
    memory.unlink()
    unnamed = left_since(before, "mapping")
    memory.close()

    assert [f"named segment /dev/shm/{memory.name}: 1,000 bytes"] == named
    assert [f"/dev/shm/{memory.name} (deleted)"] == [
        text.split(": ")[1] for text in unnamed
    ]
    assert {} == residue.left_behind(before)


SEGMENT = """
import mmap, os, sys

fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 4096)
memory = mmap.mmap(fd, 4096)
print(flush=True)
input()
"""


@only_linux
def test_a_segment_that_another_process_uses_is_not_left_behind(monkeypatch):
    before = residue.Residue.now()
    name = f"/dev/shm/envkit-test-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-c", SEGMENT, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    of_ours = residue.left_behind(before, within=0.0)
    monkeypatch.setattr(residue.Run, "processes", lambda run: [])
    of_others = residue.left_behind(before, within=0.0)
    process.communicate()
    os.unlink(name)

    assert any(text.startswith("named segment") for text in of_ours.values())
    assert not any(text.startswith("named segment") for text in of_others.values())


class Holder:
    """Holds a descriptor open for as long as it lives."""

    def __init__(self, fd):
        self.fd = fd
        self.me = self

    def __del__(self):
        os.close(self.fd)


@only_linux
def test_resources_held_only_by_garbage_are_not_left_behind(tmp_path):
    before = residue.Residue.now()
    Holder(os.open(tmp_path, os.O_RDONLY))
    assert {} == residue.left_behind(before, within=0.0)


LEAKS = """
import os, subprocess, threading, pytest
from tests import residue

residue.PATIENCE = 0.05
pytestmark = pytest.mark.usefixtures("nothing_left_behind")
kept = []

def test_process():
    kept.append(subprocess.Popen(["sleep", "60"]))

def test_zombie():
    kept.append(subprocess.Popen(["true"]))
    os.waitid(os.P_PID, kept[-1].pid, os.WEXITED | os.WNOWAIT)

def test_thread():
    threading.Thread(target=threading.Event().wait, daemon=True, name="late").start()

def test_file():
    os.open("/dev/null", os.O_RDONLY)

def test_two():
    os.open("/dev/zero", os.O_RDONLY)
    os.open("/dev/full", os.O_RDONLY)

def test_nothing():
    os.close(os.open("/dev/null", os.O_RDONLY))
    subprocess.run(["true"])
    kept[0].wait()  # It was ended.
"""


@only_linux
def test_the_fixture_fails_and_names_what_a_test_leaves(tmp_path):
    before = residue.Residue.now()
    finished = run_tests(tmp_path, LEAKS)
    messages = re.findall(
        r"ERROR at teardown of test_(\w+) _+\n(.*?)\n(?=[_=])", finished.stdout, re.S
    )
    advice = "What a test starts or opens it ends or closes, also where it fails."

    assert "6 passed, 5 errors" in finished.stdout
    assert [
        (name, f"The test left behind:\n\n{things}\n\n{advice}")
        for name, things in [
            ("process", "  process 0: sleep 60"),
            ("zombie", "  process 0 (zombie): true"),
            ("thread", "  thread 'late' (0)"),
            ("file", "  descriptor 0: /dev/null"),
            ("two", "  descriptor 0: /dev/zero\n  descriptor 0: /dev/full"),
        ]
    ] == [
        (name, re.sub(r"\b\d+(?=[:) ])", "0", without_state(message)))
        for name, message in messages
    ]
    assert {} == residue.left_behind(before)


# What hangs.


HANGS = """
import threading

def wait_for_ever():
    threading.Event().wait()

def test_that_hangs():
    threading.Thread(target=wait_for_ever, daemon=True).start()
    threading.Event().wait()
"""


def test_a_test_that_hangs_ends_the_run_with_the_stacks_of_all_threads(tmp_path):
    (tmp_path / "test_it.py").write_text(HANGS, "utf-8")
    ours = ["-c", ROOT / "pyproject.toml", "-o", "faulthandler_timeout=0.5"]
    finished = run_python("-m", "pytest", *ours, tmp_path, "-p", "no:cacheprovider")
    assert finished.returncode == 1
    assert "in wait_for_ever" in finished.stderr
    assert "in test_that_hangs" in finished.stderr
    assert "passed" not in finished.stdout


# Nests of specs that a slab can hold, and values for them.


@given(
    drawn=strategies.slab_specs().flatmap(
        lambda spec: st.tuples(st.just(spec), strategies.values_of(spec))
    )
)
def test_drawn_values_fit_their_specs(drawn):
    spec, value = drawn
    assert array_spec.check_arrays_nest(value, spec)


@given(
    spec=st.builds(ArraySpec, strategies.shapes(), strategies.slab_dtypes()),
    layout=st.sampled_from(strategies.LAYOUTS),
    data=st.data(),
)
def test_a_layout_changes_no_element(spec, layout, data):
    array = np.array(data.draw(strategies.values_of(spec)))
    assert array.tobytes() == strategies.laid_out(array, layout).tobytes()


@pytest.mark.parametrize(
    ("layout", "contiguous", "aligned", "writeable"),
    [
        ("C", True, True, True),
        ("Fortran", False, True, True),
        ("strided", False, True, True),
        ("reversed", False, True, True),
        ("unaligned", True, False, True),
        ("read-only", True, True, False),
    ],
)
def test_a_layout_matches_its_name(layout, contiguous, aligned, writeable):
    flags = strategies.laid_out(np.zeros((2, 3)), layout).flags
    assert (contiguous, aligned, writeable) == (
        flags.c_contiguous,
        flags.aligned,
        flags.writeable,
    )


def test_every_dtype_of_a_slab_is_drawn():
    kinds = {np.dtype(each).kind for each in strategies.SLAB_DTYPES}
    assert set("biufcMmUS") == kinds
