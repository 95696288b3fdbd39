"""`envkit COMMAND`: finds the command, and returns its exit status.

A command is a module with `add_arguments(parser)` and `run(arguments)`, which returns
the status: 0 if all is well, 1 if what was looked at is not, 2 if it could not be done.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

# By name, so that only the one that is asked for is imported.
_COMMANDS = {"replay": ("envkit.cli.replay", "shows a recording, or checks it")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The command and what follows it; `None` for those of the process.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="envkit", description="Environments for reinforcement learning."
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{name}: {text}.")
        if name in given:
            importlib.import_module(module).add_arguments(command)
    parsed = parser.parse_args(given)
    run = importlib.import_module(_COMMANDS[parsed.command][0]).run
    try:
        status: int = run(parsed)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Who read what was printed has seen enough. Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2


def _version() -> str:
    from envkit.provenance import envkit_version

    return f"envkit {envkit_version()}"
