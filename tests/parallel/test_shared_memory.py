"""Memory that two processes share and that has no name."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.parallel.system import shared_memory as memory
from envkit.parallel.system.shared_memory import (
    SharedBlock,
    anonymous_file,
    available_bytes,
    fence,
)
from tests import residue

only_linux = pytest.mark.skipif(
    not residue.ON_LINUX, reason="only Linux lists what a process has open"
)


def run_python(program, *arguments, **options):
    """Runs a program and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        **options,
    )
    return done.stdout.strip()


def open_descriptors():
    return len(os.listdir("/dev/fd"))


def test_a_new_block_is_zeroed():
    block = SharedBlock.create(100_000)
    assert bytes(100_000) == block.buffer[:]
    assert 100_000 == block.size
    block.close()


@given(size=st.integers(0, 10_000))
def test_blocks_can_have_any_size(size):
    block = SharedBlock.create(size)
    here, there = block.buffer, SharedBlock.attach(os.dup(block.fd), size)
    here[-1] = 7
    assert max(size, 1) == len(here) == len(there.buffer)
    assert 7 == there.buffer[-1]
    block.close()
    there.close()


def test_another_process_sees_the_same_bytes():
    block = SharedBlock.create(64)
    block.buffer[0] = 5
    program = (
        "import sys; from envkit.parallel.system.shared_memory import SharedBlock\n"
        "block = SharedBlock.attach(int(sys.argv[1]), 64)\n"
        "print(block.buffer[0]); block.buffer[63] = 9"
    )

    assert "5" == run_python(program, block.fd, pass_fds=[block.fd])
    assert 9 == block.buffer[63]
    block.close()


def test_a_block_is_not_inherited_by_programs():
    block = SharedBlock.create(64)
    assert not os.get_inheritable(block.fd)
    block.close()


@only_linux
def test_a_block_has_no_name_anywhere():
    block = SharedBlock.create(1_000_000)
    assert 0 == os.fstat(block.fd).st_nlink
    assert "/memfd:envkit (deleted)" == os.readlink(f"/proc/self/fd/{block.fd}")
    block.close()


def test_without_memfd_an_unnamed_file_is_used(monkeypatch, tmp_path):
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    block = SharedBlock.create(64)
    same = SharedBlock.attach(os.dup(block.fd), 64)
    same.buffer[3] = 4

    assert [] == os.listdir(tmp_path)
    assert 4 == block.buffer[3]
    assert not os.get_inheritable(block.fd)
    block.close()
    same.close()


def test_an_array_stays_readable_after_close():
    block = SharedBlock.create(80)
    array = np.ndarray(10, np.int64, block.buffer)
    array[:] = 3
    block.close()
    del block
    gc.collect()
    assert [3] * 10 == array.tolist()


def test_the_memory_is_freed_with_its_last_array():
    block = SharedBlock.create(80)
    array = np.ndarray(10, np.int64, block.buffer)
    gone = weakref.ref(block)
    block.close()
    del block
    base = array.base
    del array

    assert None is gone()
    assert sys.getrefcount(base) == 2


def test_closing_gives_the_descriptor_back_once():
    before = open_descriptors()
    block = SharedBlock.create(64)
    block.close()
    stranger = os.dup(0)
    block.close()

    assert -1 == block.fd
    os.close(stranger)  # it would raise if the block had closed it
    del block  # with it goes the mapping, which has a descriptor of its own
    assert before == open_descriptors()


def refusal(limits, size):
    """Returns the error of a block that a limited process asks for."""
    program = f"""
import os, resource
from envkit.parallel.system.shared_memory import SharedBlock, available_bytes
before = len(os.listdir("/dev/fd"))
for name, most in {limits!r}.items():
    number = getattr(resource, name)
    resource.setrlimit(number, (most, resource.getrlimit(number)[1]))
try:
    SharedBlock.create({size})
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}")
print(len(os.listdir("/dev/fd")) - before)
"""
    message, left = run_python(program).splitlines()
    assert "0" == left
    return message


@only_linux
@pytest.mark.parametrize(
    ("limits", "size", "why"),
    [
        ({"RLIMIT_FSIZE": 2**20}, 2**21, "File too large"),
        ({"RLIMIT_AS": 2**28}, 2**28, "Cannot allocate memory"),
    ],
    ids=["file size", "address space"],
)
def test_unavailable_memory_is_refused_with_its_size(limits, size, why):
    assert (
        f"MemoryError: The pool needs {size:,} bytes of shared memory, and the system "
        f"refused them: {why}. Use fewer environments or smaller observations."
    ) == refusal(limits, size)


@pytest.mark.parametrize("size", [2**63, 2**100])
def test_more_than_any_machine_has_is_refused(size):
    message = refusal({}, size)
    assert message.startswith(
        f"MemoryError: The pool needs {size:,} bytes of shared memory, and "
    )
    assert message.endswith(". Use fewer environments or smaller observations.")


def test_more_than_the_machine_has_is_refused_before_allocation():
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    message = refusal({"RLIMIT_FSIZE": 2**20}, 4 * whole)
    assert message.startswith(f"MemoryError: The pool needs {4 * whole:,} bytes")


@pytest.mark.parametrize("keeps_order", [True, False])
def test_a_fence_lets_every_thread_pass(monkeypatch, keeps_order):
    monkeypatch.setattr(memory, "KEEPS_ORDER", keeps_order)
    for _ in range(3):
        fence()
    assert not memory._barrier.locked()


def test_an_anonymous_file_is_empty_and_writable():
    fd = anonymous_file()
    os.write(fd, b"hello")
    assert b"hello" == os.pread(fd, 10, 0)
    os.close(fd)


def test_a_mapped_block_counts_as_shared_memory_of_the_process():
    if not Path("/proc/self/smaps").exists():
        pytest.skip("only Linux lists the memory of a process")
    block = SharedBlock.create(3_000_000)
    mapped = Path("/proc/self/smaps").read_text("utf-8")
    assert "/memfd:envkit (deleted)" in mapped
    block.close()


# How much there is.

LIMITS = {
    "nothing": ({}, sys.maxsize),
    "free memory": ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   8 kB\n"}, 8192),
    "version 2": ({"sys/fs/cgroup/memory.max": "4096\n"}, 4096),
    "version 2, no limit": ({"sys/fs/cgroup/memory.max": "max\n"}, sys.maxsize),
    "version 2, a group inside": (
        {
            "proc/self/cgroup": "0::/user/one\n",
            "sys/fs/cgroup/user/one/memory.max": "max\n",
            "sys/fs/cgroup/user/memory.max": "5000\n",
        },
        5000,
    ),
    "version 1": (
        {"sys/fs/cgroup/memory/memory.limit_in_bytes": "6000\n"},
        6000,
    ),
    "version 1, a group inside": (
        {
            "proc/self/cgroup": "5:cpu,memory:/docker/one\n1:cpu:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/docker/one/memory.limit_in_bytes": "7000\n",
        },
        7000,
    ),
}


@pytest.mark.parametrize(("files", "expected"), LIMITS.values(), ids=LIMITS)
def test_the_smallest_limit_of_the_system_counts(files, expected, tmp_path):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "ascii")
    assert expected == available_bytes(str(tmp_path))
