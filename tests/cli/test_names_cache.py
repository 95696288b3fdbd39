"""`envkit list` keeps names, and asks a library again when something has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envkit.cli.main import main


@pytest.fixture
def overview(capsys):
    """Returns what lists everything."""

    def overview(*arguments):
        capsys.readouterr()
        main(["list", "--json", *arguments])
        return json.loads(capsys.readouterr().out)

    return overview


@pytest.fixture
def times_asked(tmp_path):
    """Returns what counts how often the library was asked."""
    return lambda: len((tmp_path / "shelf/maze_envs.py.asked").read_text("utf-8"))


def test_a_library_is_asked_once_and_the_answer_is_the_same(
    shelf, overview, times_asked
):
    shelf(castle="names")
    assert overview() == overview()
    assert 1 == times_asked()


def test_specs_of_a_few_are_shown_where_names_were_kept(shelf, overview):
    shelf(castle="names")
    first, second = overview("castle:"), overview("castle:")
    assert first == second
    assert [True, True, False] == ["action" in row for row in second["environments"]]


def test_refresh_asks_again(shelf, overview, times_asked):
    shelf(castle="names")
    overview()
    overview("--refresh")
    overview()
    assert 2 == times_asked()


def change_source(folder):
    path = folder / "maze_envs.py"
    path.write_text(path.read_text("utf-8").replace("Large-v2", "Large-v3"), "utf-8")
    change_time(folder)  # Python compares seconds to find out that a file is new.


def change_time(folder):
    os.utime(folder / "maze_envs.py", ns=(10**18, 10**18))


def change_version(folder):
    old, new = (folder / f"maze_envs-1.{minor}.dist-info" for minor in (2, 3))
    old.rename(new)
    (new / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: maze-envs\nVersion: 1.3\n", "utf-8"
    )


@pytest.mark.parametrize("change", [change_source, change_time, change_version])
def test_a_library_that_has_changed_is_asked_again(
    change, shelf, overview, times_asked
):
    """An editable installation changes, and its version does not."""
    folder = shelf(castle="names")
    overview()
    change(folder)
    found = [row["target"] for row in overview()["environments"]]
    assert 2 == times_asked()
    version = 3 if change is change_source else 2
    assert f"castle:Large-v{version}" in found


def test_a_new_plugin_makes_the_library_be_asked_again(shelf, overview, times_asked):
    folder = shelf(castle="names")
    source = folder / "maze_envs.py"
    scheme = "from envkit.extend import Scheme\nSCHEME = Scheme(load, 'maze_envs')"
    source.write_text(f"{source.read_text('utf-8')}\n{scheme}\n", "utf-8")
    points = folder / "maze_envs-1.2.dist-info/entry_points.txt"
    text = points.read_text("utf-8").replace("maze_envs:load", "maze_envs:SCHEME")
    points.write_text(text, "utf-8")
    overview()
    for group, times in [("other_envs.levels", 1), ("maze_envs.levels", 2)]:
        info = folder / f"{group.replace('.', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {group}\nVersion: 1.0\n", "utf-8"
        )
        (info / "entry_points.txt").write_text(f"[{group}]\nold = mines:dig\n", "utf-8")
        overview()
        assert times == times_asked()


def test_a_new_file_makes_the_library_be_asked_again(shelf, overview, times_asked):
    folder = shelf(castle="names")
    levels = folder / "maze_levels"
    levels.mkdir()
    (levels / "__init__.py").write_text("", "utf-8")
    source = folder / "maze_envs.py"
    source.write_text(f"import maze_levels\n{source.read_text('utf-8')}", "utf-8")
    overview()
    overview()
    assert 1 == times_asked()
    (levels / "dungeon.py").write_text("", "utf-8")
    overview()
    assert 2 == times_asked()


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: b"\0" * 100,
        lambda whole: b'{"answer": {"names": ["dungeon"]}}',
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole.replace(b"small", b"large"),
        lambda whole: None,
    ],
    ids=["empty", "zeros", "forged", "half", "altered", "a folder"],
)
def test_a_broken_cache_file_is_ignored(damage, shelf, cache, overview, times_asked):
    shelf(castle="names")
    expected = overview()
    (path,) = [path for path in cache.iterdir() if b"Large-v2" in path.read_bytes()]
    whole = path.read_bytes()
    path.unlink()
    damaged = damage(whole)
    if damaged is None:
        path.mkdir()
    else:
        path.write_bytes(damaged)
    assert expected == overview()
    assert 2 == times_asked()
    assert damaged is None or whole == path.read_bytes()


def test_another_users_cache_file_is_ignored(shelf, overview, times_asked, monkeypatch):
    shelf(castle="names")
    expected = overview()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert expected == overview()
    assert 2 == times_asked()


def test_without_a_cache_a_library_is_asked_each_time(
    shelf, overview, times_asked, tmp_path, monkeypatch
):
    shelf(castle="names")
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert overview() == overview()
    assert 2 == times_asked()


@pytest.mark.parametrize("folder", ["", "relative"])
def test_a_relative_cache_folder_is_ignored(
    folder, shelf, overview, tmp_path, monkeypatch
):
    shelf(castle="names")
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    overview()
    assert list((tmp_path / "home/.cache/envkit/names").iterdir())
    assert not (tmp_path / "relative").exists()


def test_a_library_that_could_not_answer_is_asked_again(shelf, overview):
    folder = shelf(castle="broken_names")
    assert overview()["broken"]
    source = folder / "maze_envs.py"
    text = source.read_text("utf-8").replace("raise RuntimeError", "return set")
    source.write_text(text, "utf-8")
    assert [] == overview()["broken"]


@pytest.mark.slow
def test_simultaneous_lists_do_not_interfere(shelf, cache):
    folder = shelf(maze="many_names")
    paths = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])

    def run(_):
        return subprocess.run(
            [sys.executable, "-m", "envkit", "list", "maze:", "--json"],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    with ThreadPoolExecutor(4) as threads:
        printed = list(threads.map(run, range(4)))
    found = [row["target"] for row in json.loads(printed[0])["environments"]]
    assert [f"maze:level-{level}" for level in range(11)] == found
    assert [printed[0]] * 4 == printed
    assert {".json"} == {path.suffix for path in cache.iterdir()}


def test_envkits_own_environments_are_cached_without_loading_numpy():
    program = (
        "import sys; from envkit import registry; from envkit.cli.main import main; "
        "registry.schemes = list; "  # none to ask, each in a process of its own
        "main(['list', '*atch-v1']); print('numpy' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first.replace("True", "False") == second
    assert "Catch-v1" in second
