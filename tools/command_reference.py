"""Writes the reference of a command from its parser, as reStructuredText.

    python tools/command_reference.py serve

`docs/conf.py` calls this for docs/reference/command_line.md, so the help of each option
is written once, in the command.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap

from envkit.cli.main import command_parser

# Marks of reStructuredText that helps contain as plain characters.
_MARKS = re.compile(r"([\\*`|])")
_OPTION = re.compile(r"--[a-z][\w-]*(?:=\w+)?")


def command_reference(command: str) -> str:
    """Returns a command's description, arguments, options and example."""
    parser = command_parser(command)
    formatter = parser._get_formatter()
    lines = [f".. program:: envkit {command}", "", _text(parser.description or ""), ""]
    for group in parser._action_groups:
        shown = [
            action
            for action in group._group_actions
            if action.help != argparse.SUPPRESS and action.dest != "help"
        ]
        if shown and group not in (parser._positionals, parser._optionals):
            lines += [_text(f"{group.title}:".capitalize()), ""]
        for action in shown:
            written = formatter._format_action_invocation(action)
            help_text = _text(formatter._expand_help(action))
            lines += [f".. option:: {written}", "", f"   {help_text}", ""]
    example = textwrap.dedent((parser.epilog or "").partition("\n")[2])
    return "\n".join([*lines, "::", "", f"   {example}", ""])


def _text(text: str) -> str:
    escaped = _MARKS.sub(r"\\\1", " ".join(text.split()))
    return _OPTION.sub(r"``\g<0>``", escaped)


if __name__ == "__main__":
    print(command_reference(sys.argv[1]))
