"""`envkit list`: what is available here, and what is said of what is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from envkit import registry
from envkit._internal.plugins import SCHEMES
from envkit.cli import asking, list_command
from envkit.cli.findings import matches, schemes_for
from envkit.cli.main import main
from envkit.cli.survey import survey
from envkit.errors import MissingDependencyError
from envkit.extend import Scheme
from envkit.registry import make, registered
from tests.waiting import PATIENCE
from tools.libraries import schemes, target


def listed(capsys, *arguments):
    """Returns the exit status and what is printed."""
    status = main(["list", *arguments])
    printed = capsys.readouterr()
    assert "" == printed.err
    return status, printed.out


def answer(capsys, *arguments):
    """Returns the answer in JSON."""
    return json.loads(listed(capsys, *arguments, "--json")[1])


def test_envkits_own_environments_are_listed_with_specs(shelf, capsys):
    status, printed = listed(capsys)

    assert 0 == status
    assert [
        "built in      observation                               action",
        "Bandit-v1     float32 (1,) 1…1                          int64 0…9",
        "CartPole-v1   float32 (4,)                              int64 0…1",
        "Catch-v1      float32 (10, 5) 0…1                       int64 0…2",
        "GridWorld-v1  uint8 (8, 8, 3)                           int64 0…3",
        "TicTacToe-v1  board: int32 (3, 3) 0…2, mask: bool (9,)  int64 0…8",
        "",
        "'envkit list gymnasium:' lists one library, 'envkit list pole' searches all.",
    ] == printed.splitlines()


@pytest.mark.slow
def test_missing_broken_and_silent_libraries_are_reported_separately(
    shelf, capsys, monkeypatch
):
    """In words, and in JSON what is the same."""
    survey, found = list_command.survey, []
    monkeypatch.setattr(
        list_command,
        "survey",
        lambda *given, **more: found or found.extend(survey(*given, **more)) or found,
    )
    shelf(
        castle="names",
        cave="broken_names",
        lake="crashing_names",
        maze="missing_names",
        moor="ending_names",
        tower="",
    )
    status, printed = listed(capsys)

    assert 0 == status
    assert "castle   3  small, Large-v2, locked\n" in printed
    died = "(--debug shows what it printed)"
    assert [
        "not installed",
        "maze           pip install stones",
        "",
        "broken",
        "cave    RuntimeError: The map is torn.",
        f"lake    its process was ended by SIGKILL {died}",
        f"moor    its process ended with status 3 {died}",
        "",
        "not listed",
        "tower       make takes names that its package does not list",
        "",
    ] == printed.splitlines()[10:-1]

    told = answer(capsys)
    assert [*registered(), "castle:small", "castle:Large-v2", "castle:locked"] == [
        row["target"] for row in told["environments"]
    ]
    assert "int64 0…1" == told["environments"][1]["action"]["text"]
    assert [
        {
            "scheme": "maze",
            "package": "stones",
            "install": "pip install stones",
            "reason": "The maze needs the package stones, which is not installed. "
            "pip install stones",
        }
    ] == told["missing"]
    assert [
        {"scheme": "cave", "reason": "RuntimeError: The map is torn."},
        {"scheme": "lake", "reason": f"its process was ended by SIGKILL {died}"},
        {"scheme": "moor", "reason": f"its process ended with status 3 {died}"},
    ] == told["broken"]
    assert ["tower"] == told["unlisted"]


def test_a_narrow_pattern_shows_specs_and_why_there_are_none(shelf, capsys):
    shelf(castle="names")
    status, printed = listed(capsys, "CASTLE:")
    assert 0 == status
    assert [
        "environment      observation                        action",
        "castle:small     int32                              int32 0…1",
        "castle:Large-v2  int32                              int32 0…1",
        "castle:locked    RuntimeError: The door is locked.",
    ] == printed.splitlines()


def test_many_matches_are_listed_without_specs(shelf, capsys):
    shelf(maze="many_names")
    _, printed = listed(capsys, "maze:*")
    levels = [f"maze:level-{level}" for level in range(11)]
    assert ["environment", *levels] == printed.splitlines()
    _, overview = listed(capsys)
    assert (
        "library      environments, such as\n"
        "maze     11  level-0, level-1, level-2, level-3, …\n"
    ) in overview


def test_the_limit_on_shown_specs_counts_all_libraries_together(shelf, capsys):
    shelf(castle="names", maze="many_names")
    few = answer(capsys, "*:*-*2")["environments"]
    assert ["castle:Large-v2", "maze:level-2"] == [row["target"] for row in few]
    assert [True, True] == ["observation" in row for row in few]
    many = answer(capsys, "*:*l*")["environments"]
    assert [False] * 14 == ["observation" in row for row in many]


def test_no_process_is_started_for_a_missing_library(shelf, capsys, monkeypatch):
    shelf(maze="")
    scheme = Scheme("maze_envs:load", package="no_such_package", extra="maze")
    monkeypatch.setattr("maze_envs.load", scheme)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    found = answer(capsys, "small")

    assert [
        {
            "scheme": "maze",
            "package": "no_such_package",
            "install": "pip install no_such_package",
            "reason": "The scheme 'maze' needs the package no_such_package, which is "
            "not installed. pip install no_such_package",
        }
    ] == found["missing"]


def test_specs_of_many_are_shown_on_request(shelf, capsys):
    shelf(maze="many_names")
    rows = answer(capsys, "maze:", "--specs")["environments"]
    assert [True] * 11 == ["observation" in row for row in rows]


def test_a_crashed_process_leaves_its_earlier_answers(shelf, capsys):
    shelf(maze="deadly_names")
    found = answer(capsys, "maze:")
    assert [True, False, False] == ["action" in row for row in found["environments"]]
    reason = "its process was ended by SIGKILL when its environments were made"
    assert [{"scheme": "maze", "reason": reason}] == found["broken"]


@pytest.mark.parametrize("debugging", [[], ["--debug"]])
def test_debug_shows_the_output_of_libraries(debugging, shelf, capfd):
    shelf(maze="talkative_names")
    assert 0 == main(["list", "maze:", "--json", *debugging])
    printed = capfd.readouterr()
    assert "maze:hall" == json.loads(printed.out)["environments"][0]["target"]
    for text in ("from native code", "Welcome!"):
        assert (text in printed.err) == bool(debugging)
    assert debugging or "" == printed.err


def test_a_library_that_never_answers_is_given_up(shelf, capsys, monkeypatch):
    monkeypatch.setattr(asking, "_PATIENCE", 0.5)
    shelf(maze="endless_names")
    found = answer(capsys, "maze:")
    assert [
        {
            "scheme": "maze",
            "reason": "it took more than 0.5 seconds (--debug shows what it printed)",
        }
    ] == found["broken"]


def test_nothing_found_is_status_1_with_a_suggestion(shelf, capsys):
    status, printed = listed(capsys, "cartpool")
    assert 1 == status
    assert "Nothing matches. Did you mean 'CartPole-v1'?\n" == printed


def test_numbered_names_are_suggested_as_one(shelf, capsys):
    shelf(maze="numbered_names")
    status, printed = listed(capsys, "hedgs")
    assert 1 == status
    assert "Nothing matches. Did you mean 'hedges'?\n" == printed


def test_missing_libraries_that_might_match_are_named(shelf, capsys):
    shelf(castle="names", maze="missing_names")
    _, printed = listed(capsys, "catch")
    assert printed.endswith(
        "\nnot installed: maze ('envkit list' says how to install them)\n"
    )
    # Only the library that a pattern names is asked.
    found = answer(capsys, "castle:small")
    assert [] == found["missing"]
    assert ["castle:small"] == [row["target"] for row in found["environments"]]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("caste:", "There is no scheme 'caste'. Did you mean 'castle'? Schemes are"),
        ("Tower:x", "There is no scheme 'Tower'. Schemes are castle, maze."),
        ("castle:tower", "Nothing matches.\n"),
    ],
)
def test_an_unknown_scheme_is_reported(pattern, said, shelf, capsys):
    shelf(castle="names", maze="many_names")
    status, printed = listed(capsys, pattern)
    assert 1 == status
    assert printed.startswith(said)


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ("vnc", "the address of a server: vnc://localhost:5900"),
        ("minari", "the id of a dataset: minari:D4RL/door/human-v2"),
    ],
)
def test_a_library_without_a_list_says_what_follows_the_colon(
    scheme, said, capsys, monkeypatch
):
    monkeypatch.setattr(Scheme, "missing", lambda self, subject: None)
    assert f"make takes {said}\n" in listed(capsys, f"{scheme}:")[1]


def test_a_scheme_whose_package_is_broken_costs_a_line(shelf, capsys):
    (shelf(castle="names") / "maze_envs.py").write_text("import no_such_thing", "utf-8")
    (broken,) = answer(capsys)["broken"]
    assert "castle" == broken["scheme"]
    assert "maze-envs 1.2" in broken["reason"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (None, ["CartPole-v1", "gymnasium:CartPole-v1", "ale:Pong-v5"]),
        ("pole", ["CartPole-v1", "gymnasium:CartPole-v1"]),
        ("Gym", ["gymnasium:CartPole-v1"]),
        ("gymnasium:pole", ["gymnasium:CartPole-v1"]),
        ("ale:pole", []),
        ("*-v5", ["ale:Pong-v5"]),
        ("c*", ["CartPole-v1", "gymnasium:CartPole-v1"]),
        ("*:*", ["gymnasium:CartPole-v1", "ale:Pong-v5"]),
        ("ale:po?g-v[45]", ["ale:Pong-v5"]),
        ("po?", []),
    ],
)
def test_a_pattern_is_a_part_of_the_name_or_a_glob(pattern, found):
    names = ["CartPole-v1", "gymnasium:CartPole-v1", "ale:Pong-v5"]
    assert found == [name for name in names if matches(name, pattern)]


@pytest.mark.parametrize(
    "pattern", [None, "pole", "GYM:", "m:pole", "*m:*", "gym*:", "x:y", "gym:*"]
)
def test_a_scheme_that_is_not_asked_has_no_match(pattern):
    schemes = ["ale", "gym", "gymnasium"]
    asked = schemes_for(pattern, schemes)
    assert [] == [
        scheme
        for scheme in schemes
        if scheme not in asked and matches(f"{scheme}:CartPole-v1", pattern)
    ]


# Where addresses follow, there is no list.
KNOWN = {name: scheme.example for name, scheme in schemes().items()}


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(name, marks=() if name == "gymnasium" else pytest.mark.heavy)
        for name in KNOWN
    ],
)
def test_libraries_are_listed_by_the_names_that_make_takes(scheme, monkeypatch):
    # Some take a quarter of a minute to import on a quiet machine.
    monkeypatch.setattr(asking, "_PATIENCE", PATIENCE)
    (found,) = survey([scheme], None)
    if found.missing:
        with pytest.raises(MissingDependencyError):
            make(target(scheme, schemes()[scheme]))
        return
    if not KNOWN[scheme]:
        assert ("", None) == (found.broken, found.names)
        assert registry.address_in(scheme)
        return
    assert ("", True) == (found.broken, KNOWN[scheme] in found.names)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="only POSIX has named pipes")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_the_processes_too(number, status, shelf, tmp_path):
    folder = shelf(maze="endless_names")
    bell = tmp_path / "bell"
    os.mkfifo(bell)
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "list", "maze:"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(folder), "BELL": str(bell)},
    )
    looking = int(bell.read_text())
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)

    assert (status, b"", b"") == (process.returncode, out, err)
    with pytest.raises(ProcessLookupError):
        os.kill(looking, 0)


NOTHING_INSTALLED = """
import importlib.util, json, subprocess, sys
from envkit._internal.plugins import SCHEMES, Plugins
from envkit._internal.schemes import scheme_named
from envkit.cli.main import main

missing = {scheme_named(name).package for name in SCHEMES.own()} - {""}
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in missing else find(name)
Plugins._foreign = lambda self: []

def started(*_, **__):
    raise AssertionError("A process was started.")

subprocess.Popen = started
assert 0 == main(["list", "--json"])
print(json.dumps([name for name in sys.modules if name.startswith("rich.")]))
"""


def test_without_installed_libraries_no_process_is_started():
    """That would take as long as all the rest, and so would a bar of progress."""
    told = subprocess.run(
        [sys.executable, "-c", NOTHING_INSTALLED],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    answer, end = json.JSONDecoder().raw_decode(told)
    assert {*SCHEMES.own()} - {"vnc"} == {one["scheme"] for one in answer["missing"]}
    assert ([], ["vnc"]) == (answer["broken"], answer["unlisted"])
    assert not {"rich.live", "rich.progress"} & set(json.loads(told[end:]))
