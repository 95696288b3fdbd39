"""Secrets that servers leave in files, where clients of the same user find them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from contextlib import closing

import pytest

from envkit._shared import secret_files
from envkit._shared.secret_files import (
    find,
    new_password,
    new_token,
    publish,
    secret_in,
)
from tests.waiting import until


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "envkit"


def test_a_client_finds_the_secret_by_any_name_of_the_address():
    with closing(publish("token", "127.0.0.1", 7600, "hush")):
        assert "hush" == find("token", "127.0.0.1", 7600)
        assert "hush" == find("token", "localhost", 7600)


def test_only_the_requested_address_and_kind_are_found():
    with closing(publish("token", "127.0.0.1", 7600, "hush")):
        assert find("token", "127.0.0.1", 7601) is None
        assert find("token", "127.0.0.2", 7600) is None
        assert find("token", "no-such-host.invalid", 7600) is None
        assert find("password", "127.0.0.1", 7600) is None


def test_a_server_at_all_addresses_is_found_only_at_local_ones():
    with closing(publish("token", "0.0.0.0", 7600, "hush")):
        assert "hush" == find("token", "127.0.0.1", 7600)
        assert find("token", "192.0.2.1", 7600) is None


def test_only_the_user_can_open_the_file_and_its_folder(runtime):
    with closing(publish("token", "127.0.0.1", 7600, "hush")) as file:
        assert 0o600 == stat.S_IMODE(os.stat(file.path).st_mode)
        assert 0o700 == stat.S_IMODE(runtime.stat().st_mode)


def test_the_file_is_removed_at_the_end(runtime):
    publish("token", "127.0.0.1", 7600, "hush").close()
    assert [] == list(runtime.iterdir())
    assert find("token", "127.0.0.1", 7600) is None


PROGRAM = """
import sys
from envkit._shared.secret_files import publish

file = publish("token", "127.0.0.1", 7600, sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


def publishing(secret):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, secret],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert b"ready\n" == process.stdout.readline()
    return process


def test_the_secret_of_a_killed_server_is_ignored(runtime):
    with publishing("old") as process:
        assert "old" == find("token", "127.0.0.1", 7600)
        process.send_signal(signal.SIGKILL)
    assert 1 == len(list(runtime.iterdir()))
    assert until(lambda: find("token", "127.0.0.1", 7600) is None)
    with closing(publish("token", "127.0.0.1", 7600, "new")):
        assert "new" == find("token", "127.0.0.1", 7600)
        assert 1 == len(list(runtime.iterdir()))


def test_a_program_that_ends_without_close_removes_its_file(runtime):
    with publishing("old") as process:
        process.stdin.close()
        process.wait()
    assert [] == list(runtime.iterdir())


def test_a_file_that_others_can_read_is_refused():
    with closing(publish("token", "127.0.0.1", 7600, "hush")) as file:
        os.chmod(file.path, 0o640)
        with pytest.raises(PermissionError, match="it has the mode 0640"):
            find("token", "127.0.0.1", 7600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused():
    with closing(publish("token", "127.0.0.1", 7600, "hush")) as file:
        os.chown(file.path, 65534, -1)
        with pytest.raises(PermissionError, match="it belongs to the user 65534"):
            find("token", "127.0.0.1", 7600)


def test_a_link_is_refused(runtime, tmp_path):
    with closing(publish("token", "127.0.0.1", 7600, "hush")) as file:
        os.rename(file.path, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", file.path)
        with pytest.raises(PermissionError, match="it cannot be opened"):
            find("token", "127.0.0.1", 7600)


def test_both_ends_refuse_a_folder_that_others_can_open(runtime):
    with closing(publish("token", "127.0.0.1", 7600, "hush")):
        runtime.chmod(0o770)
        with pytest.raises(PermissionError, match="it has the mode 0770"):
            find("token", "127.0.0.1", 7600)
        with pytest.raises(PermissionError, match="it has the mode 0770"):
            publish("token", "127.0.0.1", 7601, "hush")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runtime_folder_of_another_user_is_not_used(tmp_path):
    os.chown(tmp_path, 65534, -1)
    with closing(publish("token", "127.0.0.1", 7600, "hush")) as file:
        assert not file.path.startswith(str(tmp_path))
        assert "hush" == find("token", "127.0.0.1", 7600)


def test_a_client_without_the_servers_variable_finds_the_secret(monkeypatch):
    """As one that cron starts."""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(secret_files, "_is_own_folder", lambda path: False)
    with closing(publish("token", "127.0.0.1", 7600, "hush")):
        monkeypatch.undo()
        assert "hush" == find("token", "127.0.0.1", 7600)


def test_two_servers_at_one_port_of_two_addresses_keep_their_secrets():
    with (
        closing(publish("token", "127.0.0.1", 7600, "one")),
        closing(publish("token", "127.0.0.2", 7600, "two")),
    ):
        found = [find("token", host, 7600) for host in ("127.0.0.1", "127.0.0.2")]
        assert ["one", "two"] == found


def test_random_secrets_differ():
    assert 100 == len({new_token() for _ in range(100)})
    assert 100 == len({new_password() for _ in range(100)})


def test_only_the_owner_may_be_able_to_read_a_secret_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("a secret\n")
    for mode in (0o640, 0o604):
        file.chmod(mode)
        with pytest.raises(PermissionError, match=f"has the mode {mode:04o}. Run: chm"):
            secret_in(file, "--token-file")
    file.chmod(0o600)
    assert b"a secret" == secret_in(file, "--token-file")
