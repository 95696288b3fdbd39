"""The commands speak one language: the same names, defaults and mistakes."""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import envkit
from envkit._internal import entry_points
from envkit.cli.main import command_parser, main

COMMANDS = sorted(entry_points.own("envkit.commands"))
# Other ways to state a default.
ELSEWHERE = re.compile(r"if not given|unless given|by default|without it", re.I)


def options_of(command):
    """Returns the options that the help of a command shows."""
    return [
        action
        for action in command_parser(command)._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    ]


def names_of(command):
    return {name for option in options_of(command) for name in option.option_strings}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_with_a_value_ends_in_its_default(command):
    formatter = command_parser(command)._get_formatter()
    for option in options_of(command):
        text = formatter._expand_help(option)
        assert not ELSEWHERE.search(text), text
        if option.nargs != 0:
            assert re.search(r"\(default: .+\)$", text, re.S), text
            assert 1 == text.count("default"), text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_one_name_in_all_commands(command):
    others = {"--fps", "--rate", "--batch-size", "--envs", "--dir", "--random-seed"}
    assert set() == names_of(command) & others


@pytest.mark.parametrize(
    ("option", "commands"),
    [
        ("--hz", {"play", "record", "replay", "serve"}),
        ("--num-envs", {"bench", "check", "describe", "record"}),
        ("--seed", {"bench", "check", "describe", "play", "record"}),
        ("--vnc", {"record", "serve"}),
        ("--port", {"record", "serve"}),
        ("--password-file", {"record", "serve"}),
        ("--host", {"record", "serve"}),
        ("--cert", {"record", "serve"}),
        ("--key", {"record", "serve"}),
        ("--overwrite", {"play", "record"}),
        ("--policy", {"bench", "check", "record"}),
        ("--pickle", {"convert", "replay"}),
    ],
)
def test_an_option_has_the_same_kind_in_all_commands(option, commands):
    assert commands == {each for each in COMMANDS if option in names_of(each)}
    kinds = {
        (each.nargs, each.metavar)
        for command in commands
        for each in options_of(command)
        if option in each.option_strings
    }
    assert 1 == len(kinds)


ROOT = Path(envkit.__file__).parents[1]
CALL = re.compile(r"^\$ envkit (\w+)(.*)", re.M)


def shown_calls():
    """Yields the calls of commands that the pages show."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for command, rest in CALL.findall(page.read_text("utf-8")):
            words = shlex.split(re.split(r" [<>|#]", rest)[0])
            yield pytest.param(command, words, id=f"{page.name}: {command}{rest}")


@pytest.mark.parametrize(("command", "words"), [*shown_calls()])
def test_the_calls_on_pages_parse(command, words):
    command_parser(command).parse_args(words)


REFERENCE = runpy.run_path(str(ROOT / "tools" / "command_reference.py"))


def test_the_reference_has_each_command():
    page = (ROOT / "docs" / "reference" / "command_line.md").read_text("utf-8")
    blocks = re.findall(r"^## envkit (\w+)\n\n```{command} (\w+)\n```$", page, re.M)
    assert [(name, name) for name in COMMANDS] == sorted(blocks)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_of_a_command_has_each_option(command):
    lines = REFERENCE["command_reference"](command).splitlines()
    described = [line for line in lines if line.startswith(".. option:: ")]
    words = {word.strip(",") for line in described for word in line.split()}
    assert names_of(command) - {"-h", "--help"} == {
        word for word in words if word.startswith("-")
    }


def test_each_example_parses():
    for command in COMMANDS:
        (example,) = re.findall(r"example:\n  (.*)", command_parser(command).epilog)
        name, *words = shlex.split(example)
        if command != "worker":  # Its example is the call of a pool.
            assert ("envkit", command) == (name, words[0])
            command_parser(command).parse_args(words[1:])


def refused(capsys, *arguments):
    """Returns the line that refuses arguments."""
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    assert 2 == ended.value.code
    printed = capsys.readouterr()
    assert ("", 1) == (printed.out, printed.err.count("\n"))
    return printed.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["play", "Catch", "--fps", "5"], "--fps has been renamed: write --hz."),
        (["replay", "r", "--fps=5"], "--fps has been renamed: write --hz."),
        (["record", "Catch", "--fps=5"], "--fps has been renamed: write --hz."),
        (
            ["record", "Catch", "--batch-size", "2"],
            "--batch-size has been renamed: write --num-envs.",
        ),
        (
            ["record", "--vnc", "5901", "Catch"],
            "--vnc no longer takes the port: write --vnc --port=PORT.",
        ),
        (
            ["record", "Catch", "--vnc=0"],
            "--vnc no longer takes the port: write --vnc --port=PORT.",
        ),
        (
            ["serve", "Catch", "--observer-token-file=x"],
            "--observer-token-file has been renamed: write --observer-password-file.",
        ),
        (
            ["serve", "Catch", "--threads"],
            "--threads has been removed: each client has a process of its own, unless "
            "--sessions-per-process says otherwise; leave it out.",
        ),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(arguments, told, capsys):
    command = arguments[0]
    expected = f"envkit {command}: {told} (envkit {command} --help)\n"
    assert expected == refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["bench", "Catch", "--nmu-envs=3"],
            "There is no option --nmu-envs. Did you mean '--num-envs'?",
        ),
        (["describe", "Catch", "-x"], "There is no option -x."),
        (["describe", "Catch", "CartPole"], "There is one argument too many: "),
        (["record", "Catch", "runs/a"], "many: 'runs/a'. Did you mean -o runs/a?"),
        (["describe"], "the following arguments are required: TARGET."),
        (["bench", "Catch", "--seed=-1"], "argument --seed: must be an integer of at"),
        (["check", "Catch", "--steps=x"], "argument --steps: must be an integer of at"),
        (["--vresion"], "There is no option --vresion. Did you mean '--version'?"),
    ],
)
def test_a_mistake_is_one_line(arguments, told, capsys):
    assert told in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("bensh", "'bench'"), ("descrbie", "'describe'"), ("SERVE", "'serve'")],
)
def test_a_misspelt_command_is_answered_with_a_suggestion(name, meant):
    done = subprocess.run(
        [sys.executable, "-m", "envkit", name, "CartPole"],
        capture_output=True,
        text=True,
    )
    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == done.stderr.count("\n")
    assert done.stderr.startswith(
        f"envkit: There is no command {name!r}. Did you mean {meant}"
    )


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("replay out --html", "PAGE"),
        ("replay out --html --draw", "PAGE"),
        ("record CartPole -o", "PATH"),
    ],
)
def test_an_option_without_its_value_is_shown_with_one(line, value, capsys):
    command, _, option, *_ = line.split()
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert (
        f"envkit {command}: {option} needs a value: write {option} {value}. "
        f"(envkit {command} --help)\n"
    ) == capsys.readouterr().err
